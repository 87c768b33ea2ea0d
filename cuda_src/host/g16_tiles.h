// Blocks of g16k8 weights as tiles of bf16 pairs: row i of a tile has the inputs 2i and 2i+1 of the 16 rows. Whole numbers
// of 8 bits are exact in bf16, so nothing is rounded here.
//
// Bound: for 512 weights 16 shifts, 16 look-ups and 16 stores (nibbles), 104 operations and 16 stores (bytes); memory
// brings the 320 and 544 bytes in about 50 and 90 cycles.
#pragma once
#include "g16_block.h"
#include "tiles.h"

#if defined(HELIOS_AMX)
namespace helios {

constexpr int kPairRows = 4;  // tile rows that the 8 inputs of a lane fill

// unpack(block, tile): the values of the block divided by kUnscale. Where kRowByVectors, add_products(blocks, x, even,
// odd) adds the chains of a tile product for one row of floats, of N consecutive blocks at once, since a chain waits 4
// cycles for itself. For bytes that is faster than a tile of one row (22 ns a block, 28); for nibbles it is not (20, 16).
template <class Block>
struct TileOf;

template <bool kOffset>
struct TileOf<Q4G16<kOffset>> {
  static constexpr int kTiles = 1;  // for a block
  static constexpr bool kRowByVectors = false;
  static constexpr float kUnscale = 1.f;
  static HELIOS_INLINE void unpack(const uint8_t* block, uint8_t* tile) {
    alignas(64) static constexpr uint16_t kUnsigned[16] = {0,      0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,
                                                           0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120, 0x4130,
                                                           0x4140, 0x4150, 0x4160, 0x4170};
    alignas(64) static constexpr uint16_t kSigned[16] = {0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040,
                                                         0xc000, 0xbf80, 0,      0x3f80, 0x4000, 0x4040,
                                                         0x4080, 0x40a0, 0x40c0, 0x40e0};
    // Twice over: an index has 5 bits, of which the nibble is 4.
    const __m512i values = _mm512_broadcast_i64x4(load<__m256i>(kOffset ? kUnsigned : kSigned));
    HELIOS_UNROLL
    for (int z = 0; z < 4; z++) {
      const __m512i words = load<__m512i>(block + 64 * z);
      uint8_t* rows = tile + kPairRows * kTileRowBytes * z;
      store(rows, _mm512_permutexvar_epi16(words, values));
      store(rows + 64, _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), values));
      store(rows + 128, _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 8), values));
      store(rows + 192, _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 12), values));
    }
  }
};

template <>
struct TileOf<Q8G16> {
  static constexpr int kTiles = 1;
  static constexpr bool kRowByVectors = true;
  static constexpr float kUnscale = 1.f / (1 << 24);  // a byte is converted where it lies, at the top of its word
  static HELIOS_INLINE void unpack(const uint8_t* block, uint8_t* tile) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    HELIOS_UNROLL
    for (int z = 0; z < 4; z++) {
      const __m512i a = load<__m512i>(block + 128 * z), b = load<__m512i>(block + 128 * z + 64);
      uint8_t* rows = tile + kPairRows * kTileRowBytes * z;
      put_words(_mm512_permutex2var_epi32(a, even, b), rows);
      put_words(_mm512_permutex2var_epi32(a, odd, b), rows + 2 * kTileRowBytes);
    }
  }
  template <int N>
  static HELIOS_INLINE void add_products(const uint8_t* blocks, const float* x, F16 (&even)[N], F16 (&odd)[N]) {
    const __m512i first = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    HELIOS_UNROLL
    for (int i = 0; i < 8; i++) {
      HELIOS_UNROLL
      for (int n = 0; n < N; n++) {
        const uint8_t* lanes = blocks + n * Q8G16::kNbytes + i / 2 * 128;
        const __m512i index = i % 2 ? _mm512_add_epi32(first, _mm512_set1_epi32(1)) : first;
        const __m512i words = _mm512_permutex2var_epi32(load<__m512i>(lanes), index, load<__m512i>(lanes + 64));
        const float* inputs = x + n * kG16Inputs + 4 * i;
        even[n] = fma((F16)at_top<0>(words), splat<F16>(inputs[0]), even[n]);
        odd[n] = fma((F16)at_top<1>(words), splat<F16>(inputs[1]), odd[n]);
        even[n] = fma((F16)at_top<2>(words), splat<F16>(inputs[2]), even[n]);
        odd[n] = fma((F16)at_top<3>(words), splat<F16>(inputs[3]), odd[n]);
      }
    }
  }
  // Four bytes of each row: two tile rows.
  static HELIOS_INLINE void put_words(__m512i words, uint8_t* rows) {
    store(rows, pairs(at_top<0>(words), at_top<1>(words)));
    store(rows + kTileRowBytes, pairs(at_top<2>(words), at_top<3>(words)));
  }
  // 2^24 times byte i of each word, as floats.
  template <int i>
  static HELIOS_INLINE __m512i at_top(__m512i words) {
    const __m512i from = _mm512_set4_epi32(int(0x0c808080u + (uint32_t(i) << 24)), int(0x08808080u + (uint32_t(i) << 24)),
                                           int(0x04808080u + (uint32_t(i) << 24)), int(0x00808080u + (uint32_t(i) << 24)));
    return (__m512i)_mm512_cvtepi32_ps(_mm512_shuffle_epi8(words, from));
  }
  // bf16 pairs of floats whose lower halves are zero.
  static HELIOS_INLINE __m512i pairs(__m512i low, __m512i high) { return _mm512_or_si512(_mm512_srli_epi32(low, 16), high); }
};

// Dword j of the 16 lanes of 16 bytes at p, j = 0..3.
HELIOS_INLINE void transpose_lanes(const uint8_t* p, __m512i (&rows)[kPairRows]) {
  const __m512i a = load<__m512i>(p), b = load<__m512i>(p + 64), c = load<__m512i>(p + 128), d = load<__m512i>(p + 192);
  const __m512i low = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  HELIOS_UNROLL
  for (int j = 0; j < kPairRows; j++) {
    const __m512i index = _mm512_add_epi32(low, _mm512_set1_epi32(j));
    rows[j] = _mm512_shuffle_i64x2(_mm512_permutex2var_epi32(a, index, b), _mm512_permutex2var_epi32(c, index, d), 0x44);
  }
}

// Calls put(tile row, its pairs of 16-bit elements) for each row of the tile.
template <class Put>
HELIOS_INLINE void for_pair_rows(const uint8_t* block, uint8_t* tile, Put put) {
  for (int z = 0; z < 4; z++) {
    __m512i rows[kPairRows];
    transpose_lanes(block + 256 * z, rows);
    for (int j = 0; j < kPairRows; j++) put(tile + kTileRowBytes * (kPairRows * z + j), rows[j]);
  }
}

template <>
struct TileOf<FloatG16<Bfloat>> {
  static constexpr int kTiles = 1;
  static constexpr bool kRowByVectors = false;
  static constexpr float kUnscale = 1.f;
  static HELIOS_INLINE void unpack(const uint8_t* block, uint8_t* tile) {
    for_pair_rows(block, tile, [](uint8_t* row, __m512i pairs) { store(row, pairs); });
  }
};

template <>
struct TileOf<FloatG16<Half>> {
  static constexpr int kTiles = 2;  // the number rounded to bf16, and what is left of it
  static constexpr bool kRowByVectors = false;
  static constexpr float kUnscale = 1.f;
  static HELIOS_INLINE void unpack(const uint8_t* block, uint8_t* tile) {
    for_pair_rows(block, tile, split);
  }
  static HELIOS_INLINE void split(uint8_t* row, __m512i pairs) {
    const __m512 lower = _mm512_cvtph_ps(_mm512_castsi512_si256(pairs)),
                 upper = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(pairs, 1));
    const __m512i lower_high = rounded(lower), upper_high = rounded(upper);
    const __m512i lower_rest = (__m512i)_mm512_sub_ps(lower, (__m512)lower_high),
                  upper_rest = (__m512i)_mm512_sub_ps(upper, (__m512)upper_high);
    store(row, upper_halves(lower_high));
    store(row + 32, upper_halves(upper_high));
    store(row + kTileBytes, upper_halves(lower_rest));
    store(row + kTileBytes + 32, upper_halves(upper_rest));
  }
  // To nearest, ties to even; a NaN stays one.
  static HELIOS_INLINE __m512i rounded(__m512 v) {
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v)), 16);
  }
  static HELIOS_INLINE __m256i upper_halves(__m512i floats) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(floats, 16)); }
};

}  // namespace helios
#endif
