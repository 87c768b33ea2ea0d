// The integer dot product of one block of nibble weights (0..15) with 32 int8 activations, for the rows of one group (V
// = F8) or of two consecutive groups (V = F16, AVX-512 only). Exact on every target, so nothing here can show in the
// bits.
//
// A quad is a vector of 4 consecutive inputs for each row; it meets 4 activations broadcast to all rows, and no sum
// crosses lanes.
//   AVX-512  vpdpbusd adds 4 products to each int32 lane; the activations are broadcast from memory
//   AVX2     vpmaddubsw, 4 of them summed in int16 (at most 4*2*15*128 = 15360 < 32768), then vpmaddwd by 1
//   other    short_block.h
#pragma once
#include "linear_blocks.h"
#if !defined(HELIOS_AVX2)
#include "short_block.h"
#endif

namespace helios {

constexpr int kNibbleBytes = 128;  // of one (group, block), before its scales

// Nibbles<V>(w, next): the unpacked quads of the block at w, and for two groups of the one `next` bytes further.
// quad[2j] holds inputs 8j..8j+3, quad[2j+1] inputs 8j+4..8j+7. NibbleProducts<V>(nibbles, q).lower() and
// .upper() are the dot products of inputs 0..15 and 16..31.
template <class V>
struct Nibbles;
template <class V>
struct NibbleProducts;

#if defined(HELIOS_AVX2)

template <>
struct Nibbles<F8> {
  __m256i quad[kQuads];
  HELIOS_INLINE Nibbles(const uint8_t* w, int64_t) {
    const __m256i low = _mm256_set1_epi8(15);
    HELIOS_UNROLL
    for (int j = 0; j < 4; j++) {
      const __m256i v = load<__m256i>(w + 32 * j);
      quad[2 * j] = _mm256_and_si256(v, low);
      quad[2 * j + 1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    }
  }
  HELIOS_INLINE void keep_in_registers() {
    HELIOS_UNROLL
    for (int j = 0; j < kQuads; j++) HELIOS_FENCE(quad[j]);
  }
};

#endif
#if defined(HELIOS_AVX512)

template <>
struct NibbleProducts<F8> {
  __m256i sums[2];
  HELIOS_INLINE NibbleProducts(const Nibbles<F8>& w, const int8_t* q)
      : sums{half_sum(w, q, 0), half_sum(w, q, kHalfQuads)} {}
  static HELIOS_INLINE __m256i half_sum(const Nibbles<F8>& w, const int8_t* q, int first) {
    __m256i sum = _mm256_setzero_si256();
    HELIOS_UNROLL
    for (int j = first; j < first + kHalfQuads; j++)
      sum = _mm256_dpbusd_epi32(sum, w.quad[j], _mm256_set1_epi32(quad_bits(q + 4 * j)));
    return sum;
  }
  HELIOS_INLINE F8 lower() const { return to_float((I8)sums[0]); }
  HELIOS_INLINE F8 upper() const { return to_float((I8)sums[1]); }
};

template <>
struct Nibbles<F16> {
  __m512i quad[kQuads];
  HELIOS_INLINE Nibbles(const uint8_t* w, int64_t next) {
    const __m512i low = _mm512_set1_epi8(15);
    HELIOS_UNROLL
    for (int j = 0; j < 4; j++) {
      const __m512i v = load_two_groups(w + 32 * j, next);
      quad[2 * j] = _mm512_and_si512(v, low);
      quad[2 * j + 1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    }
  }
  HELIOS_INLINE void keep_in_registers() {
    HELIOS_UNROLL
    for (int j = 0; j < kQuads; j++) HELIOS_FENCE(quad[j]);
  }
};

template <>
struct NibbleProducts<F16> {
  __m512i sums[2];
  HELIOS_INLINE NibbleProducts(const Nibbles<F16>& w, const int8_t* q)
      : sums{half_sum(w, q, 0), half_sum(w, q, kHalfQuads)} {}
  static HELIOS_INLINE __m512i half_sum(const Nibbles<F16>& w, const int8_t* q, int first) {
    __m512i sum = _mm512_setzero_si512();
    HELIOS_UNROLL
    for (int j = first; j < first + kHalfQuads; j++)
      sum = _mm512_dpbusd_epi32(sum, w.quad[j], _mm512_set1_epi32(quad_bits(q + 4 * j)));
    return sum;
  }
  HELIOS_INLINE F16 lower() const { return to_float((I16)sums[0]); }
  HELIOS_INLINE F16 upper() const { return to_float((I16)sums[1]); }
};

template <>
struct Nibbles<F32> {
  Nibbles<F16> lo, hi;
  HELIOS_INLINE Nibbles(const uint8_t* w, int64_t next) : lo(w, next), hi(w + 2 * next, next) {}
  HELIOS_INLINE void keep_in_registers() {
    lo.keep_in_registers();
    hi.keep_in_registers();
  }
};

template <>
struct NibbleProducts<F32> {
  NibbleProducts<F16> lo, hi;
  HELIOS_INLINE NibbleProducts(const Nibbles<F32>& w, const int8_t* q) : lo(w.lo, q), hi(w.hi, q) {}
  HELIOS_INLINE F32 lower() const { return {lo.lower(), hi.lower()}; }
  HELIOS_INLINE F32 upper() const { return {lo.upper(), hi.upper()}; }
};

#elif defined(HELIOS_AVX2)

template <>
struct NibbleProducts<F8> {
  __m256i sums[2];  // of pairs, int16
  HELIOS_INLINE NibbleProducts(const Nibbles<F8>& w, const int8_t* q)
      : sums{half_sum(w, q, 0), half_sum(w, q, kHalfQuads)} {}
  static HELIOS_INLINE __m256i half_sum(const Nibbles<F8>& w, const int8_t* q, int first) {
    __m256i sum = _mm256_maddubs_epi16(w.quad[first], quad_at(q + 4 * first));
    HELIOS_FENCE(sum);
    HELIOS_UNROLL
    for (int j = first + 1; j < first + kHalfQuads; j++) {
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w.quad[j], quad_at(q + 4 * j)));
      HELIOS_FENCE(sum);
    }
    return sum;
  }
  static HELIOS_INLINE __m256i quad_at(const int8_t* q) {
    return _mm256_castps_si256(_mm256_broadcast_ss((const float*)q));
  }
  static HELIOS_INLINE F8 pairs_to_float(__m256i pairs) {
    return to_float((I8)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  HELIOS_INLINE F8 lower() const { return pairs_to_float(sums[0]); }
  HELIOS_INLINE F8 upper() const { return pairs_to_float(sums[1]); }
};

#else

template <>
struct Nibbles<F8> : ShortWeights {
  HELIOS_INLINE Nibbles(const uint8_t* w, int64_t) {
    for (int j = 0; j < 4; j++)
      for (int i = 0; i < 32; i += 8) {
        const S8 bytes = widen(load<B8>(w + 32 * j + i));
        store(quad[2 * j] + i, bytes & 15);
        store(quad[2 * j + 1] + i, bytes >> 4 & 15);
      }
  }
};
template <>
struct NibbleProducts<F8> : ShortProducts {
  using ShortProducts::ShortProducts;
};

#endif

}  // namespace helios
