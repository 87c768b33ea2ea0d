// The sums of w12 weights and q12 rows (kernels.h). Of a group of 512 inputs they are whole numbers below 2^31, so every
// form here gives the same bits; only the scaling, a multiply-add a group, is in float:
//   acc = fma(float(sum) * S, s, acc), groups ascending
//
// Up to 24 tokens, with vpdpbusd, 8 at once: sums of nibbles times int8 over a half block, 16 bits each, then k*c times both halves'
// sums and j times the sums of c*q by vpdpwssd. Nothing is unpacked but the nibbles.
// More, on the matrix unit: both numbers are 12 bits, 256 * upper + lower, the upper part signed and the lower one
// of a weight not; four products of bytes, depth 64, into three tiles. Weights are unpacked a group of 512 inputs x 4
// groups of rows at a time, and all tokens meet them.
// Bound for 16 tokens x 16 rows x 64 inputs: four tile products, 64 cycles.
// Elsewhere, plainly: a group of 512 inputs is unpacked to 16 bits once and meets all tokens.
#pragma once
#include <optional>

#include "g16_block.h"
#include "linear_g16.h"
#include "q12_rows.h"
#include "tiles.h"

namespace helios {

constexpr int kW12BlockBytes = 320, kW12Multipliers = 256, kW12Offsets = 288;  // of a block: its size, k, j

struct W12Format {
  using Rows = Q12Rows;
  static constexpr int kInputs = kQ12Depth;
  static Size rows_nbytes(int32_t rows_capacity, int32_t n_in) { return q12_rows_nbytes(rows_capacity, n_in); }
  static int64_t group_nbytes(int32_t n_in) {
    return int64_t(n_in) / kQ12Block * kW12BlockBytes + n_q12_groups(n_in) * int64_t(sizeof(float) * kG16Rows);
  }
  // The 16 scales of group `group` of inputs.
  static const float* scales(const uint8_t* w, int32_t n_in, int32_t group) {
    return reinterpret_cast<const float*>(w + int64_t(n_in) / kQ12Block * kW12BlockBytes) + kG16Rows * group;
  }
};

// Inputs [begin, end) of a group.
HELIOS_INLINE Span q12_group_inputs(int32_t group, int32_t n_in) {
  const int32_t begin = group * kQ12Group;
  return {begin, n_in - begin < kQ12Group ? n_in : begin + kQ12Group};
}

HELIOS_INLINE void add_w12_sums(float* acc, I16 sums, const float* scales, const uint8_t* s) {
  store(acc, fma(to_float(sums) * load<F16>(scales), splat<F16>(bits_as<float>(load<int32_t>(s))), load<F16>(acc)));
}

#if defined(HELIOS_AVX512)

constexpr int kW12FewTokens = 8;  // at once, in registers
// Up to here vectors are faster than tiles, whose weights are unpacked first: 16 tokens 1.0, 24 0.8, 32 1.05 of their time.
constexpr int kW12VectorTokens = 24;
constexpr int kW12PrefetchBytes = 8192;

// The 16 rows' int16 at p, each twice.
HELIOS_INLINE __m512i twice(const uint8_t* p) {
  const __m512i words = _mm512_cvtepu16_epi32(load<__m256i>(p));
  return _mm512_or_si512(words, _mm512_slli_epi32(words, 16));
}
HELIOS_INLINE __m512i splat_word(const uint8_t* p) { return _mm512_set1_epi32(load<int32_t>(p)); }

// The sums of n tokens from `first` on.
template <int n>
__attribute__((noinline)) void multiply_few_w12(const uint8_t* w, const Q12Rows& x, int32_t first, float* sums) {
  const __m512i nibble = _mm512_set1_epi8(15), lower_word = _mm512_set1_epi32(0xffff);
  for (int t = 0; t < n; t++) store(sums + kG16Rows * t, splat<F16>(0.f));
  for (int32_t g = 0; g < x.n_groups; g++) {
    const Span inputs = q12_group_inputs(g, x.width);
    __m512i total[n];
    HELIOS_UNROLL
    for (int t = 0; t < n; t++) total[t] = _mm512_setzero_si512();
    for (int32_t b = inputs.begin / kQ12Block; b < inputs.end / kQ12Block; b++) {
      const uint8_t* block = w + int64_t(b) * kW12BlockBytes;
      HELIOS_UNROLL
      for (int line = 0; line < kW12BlockBytes; line += 64) prefetch_outer(block + kW12PrefetchBytes + line);
      const __m512i multipliers = twice(block + kW12Multipliers), offsets = twice(block + kW12Offsets);
      __m512i q[8];
      HELIOS_UNROLL
      for (int j = 0; j < 4; j++) {
        const __m512i vector = load<__m512i>(block + 64 * j);
        q[2 * j] = _mm512_and_si512(vector, nibble);
        q[2 * j + 1] = _mm512_and_si512(_mm512_srli_epi16(vector, 4), nibble);
      }
      if constexpr (n > 4) {
        HELIOS_UNROLL
        for (int j = 0; j < 8; j++) HELIOS_FENCE(q[j]);
      }
      HELIOS_UNROLL
      for (int t = 0; t < n; t++) {
        const uint8_t* numbers = x.numbers(first + t) + kQ12Block * b;
        const uint8_t* factors = x.block_factors(first + t, b);
        __m512i halves[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        HELIOS_UNROLL
        for (int i = 0; i < 4; i++) {
          HELIOS_UNROLL
          for (int h = 0; h < 2; h++) {
            halves[h] = _mm512_dpbusd_epi32(halves[h], q[4 * h + i], splat_word(numbers + kQ12Half * h + 4 * i));
            HELIOS_FENCE(halves[h]);
          }
        }
        const __m512i pair =
            _mm512_ternarylogic_epi32(lower_word, halves[0], _mm512_slli_epi32(halves[1], 16), 0xea);  // a & b | c
        total[t] = _mm512_dpwssd_epi32(total[t], pair, _mm512_mullo_epi16(multipliers, splat_word(factors)));
        total[t] = _mm512_dpwssd_epi32(total[t], offsets, splat_word(factors + 4));
      }
    }
    HELIOS_UNROLL
    for (int t = 0; t < n; t++)
      add_w12_sums(sums + kG16Rows * t, (I16)total[t], W12Format::scales(w, x.width, g), x.scale(first + t, g));
  }
}

template <int n = kW12FewTokens>
HELIOS_INLINE void multiply_up_to_w12(const uint8_t* w, const Q12Rows& x, int32_t first, int32_t n_tokens, float* sums) {
  if constexpr (n > 0) {
    if (n_tokens == n) {
      multiply_few_w12<n>(w, x, first, sums);
    } else {
      multiply_up_to_w12<n - 1>(w, x, first, n_tokens, sums);
    }
  }
}

inline void multiply_group_w12(const uint8_t* w, const Q12Rows& x, int32_t first, int32_t n_tokens, float* sums) {
  for (int32_t t = 0; t < n_tokens; t += kW12FewTokens)
    multiply_up_to_w12(w, x, first + t, n_tokens - t < kW12FewTokens ? n_tokens - t : kW12FewTokens, sums + kG16Rows * t);
}

#else

inline void unpack_w12(const uint8_t* block, int16_t (*weights)[kG16Rows]) {
  for (int r = 0; r < kG16Rows; r++) {
    const int32_t k = load<int16_t>(block + kW12Multipliers + 2 * r), j = load<int16_t>(block + kW12Offsets + 2 * r);
    for (int i = 0; i < kQ12Block; i++) {
      const uint8_t nibbles = block[i / 8 * 64 + 4 * r + i % 4];
      weights[i][r] = int16_t(k * (i % 8 < 4 ? nibbles & 15 : nibbles >> 4) + j);
    }
  }
}

// Wrapping: foreign weights may break the bound.
HELIOS_INLINE void add_w12_block(const int16_t (*weights)[kG16Rows], const Q12Rows& x, int32_t row, int32_t b,
                                 uint32_t (&sum)[kG16Rows]) {
  const uint8_t *numbers = x.numbers(row) + kQ12Block * b, *factors = x.block_factors(row, b);
  for (int i = 0; i < kQ12Block; i++) {
    const int32_t c = load<int16_t>(factors + i / kQ12Half * 2), number = c * int8_t(numbers[i]);
    for (int r = 0; r < kG16Rows; r++) sum[r] += uint32_t(int32_t(weights[i][r])) * uint32_t(number);
  }
}

inline void multiply_group_w12(const uint8_t* w, const Q12Rows& x, int32_t first, int32_t n_tokens, float* sums) {
  memset(sums, 0, sizeof(float) * kG16Rows * size_t(n_tokens));
  for (int32_t group = 0; group < x.n_groups; group++) {
    const Span inputs = q12_group_inputs(group, x.width);
    const int32_t n_blocks = (inputs.end - inputs.begin) / kQ12Block, first_block = inputs.begin / kQ12Block;
    int16_t weights[kQ12Group][kG16Rows];
    for (int32_t b = 0; b < n_blocks; b++)
      unpack_w12(w + int64_t(first_block + b) * kW12BlockBytes, weights + kQ12Block * b);
    for (int32_t t = first; t < first + n_tokens; t++) {
      alignas(64) uint32_t sum[kG16Rows] = {};
      for (int32_t b = 0; b < n_blocks; b++) add_w12_block(weights + kQ12Block * b, x, t, first_block + b, sum);
      add_w12_sums(sums + (t - first) * kG16Rows, load<I16>(sum), W12Format::scales(w, x.width, group), x.scale(t, group));
    }
  }
}

#endif

#if defined(HELIOS_AMX)

// Tiles: three sums; the activations' upper and lower parts; the weights' lower and upper parts.
class W12Product : public W12Format {
 public:
  explicit W12Product(int32_t n_tokens) {
    if (n_tokens > kW12VectorTokens) tiles.emplace(Tiles::Rows{16, 16, 16, 16, 16, 16, 16, 16});
  }

  static int32_t n_groups_at_once(int32_t n_tokens) { return n_tokens > kW12VectorTokens ? kG16Groups : 1; }

  void compute(const uint8_t* w, int32_t n_groups, const Q12Rows& x, int32_t first, int32_t n_tokens, float* sums) const {
    if (n_tokens > kW12VectorTokens) return sweep(w, n_groups, x, first, n_tokens, sums);
    for (int32_t g = 0; g < n_groups; g++)
      multiply_group_w12(w + g * group_nbytes(x.width), x, first, n_tokens, sums + g * kG16Tokens * kG16Rows);
  }

 private:
  struct Panel {
    alignas(64) uint8_t lower[kQ12Group * kG16Rows], upper[kQ12Group * kG16Rows];
  };

  static void sweep(const uint8_t* w, int32_t n_groups, const Q12Rows& x, int32_t first, int32_t n_tokens, float* sums) {
    Panel panels[kG16Groups];
    for (int32_t g = 0; g < n_groups; g++)
      memset(sums + g * kG16Tokens * kG16Rows, 0, sizeof(float) * kG16Rows * size_t(n_tokens));
    for (int32_t group = 0; group < x.n_groups; group++) {
      const Span inputs = q12_group_inputs(group, x.width);
      for (int32_t g = 0; g < n_groups; g++)
        unpack(w + g * group_nbytes(x.width) + int64_t(inputs.begin) / kQ12Block * kW12BlockBytes,
               (inputs.end - inputs.begin) / kQ12Block, panels[g]);
      for (int32_t g = 0; g < n_groups; g++) {
        const float* scales = W12Format::scales(w + g * group_nbytes(x.width), x.width, group);
        for (int32_t t = 0; t < n_tokens; t += kTileRows)
          multiply(panels[g], inputs, x, first + t, n_tokens - t < kTileRows ? n_tokens - t : kTileRows, scales, group,
                   sums + (g * kG16Tokens + t) * kG16Rows);
      }
    }
  }

  // 16 tokens (their tiles are whole) times one panel; the first n are added to sums.
  static HELIOS_INLINE void multiply(const Panel& panel, Span inputs, const Q12Rows& x, int32_t first, int32_t n,
                                     const float* scales, int32_t group, float* sums) {
    alignas(64) static constexpr uint8_t kZeros[64] = {};
    alignas(64) int32_t products[3][kTileRows * kG16Rows];
    load_tile<0>(kZeros, 0);
    load_tile<1>(kZeros, 0);
    load_tile<2>(kZeros, 0);
    const uint8_t* activations = x.tile(first, inputs.begin);
    for (int32_t k = 0; k < inputs.end - inputs.begin; k += kQ12Depth, activations += 2 * kQ12TileBytes) {
      load_tile<3>(activations, kTileRowBytes);
      load_tile<4>(activations + kQ12TileBytes, kTileRowBytes);
      load_tile<5>(panel.lower + k * kG16Rows, kTileRowBytes);
      load_tile<6>(panel.upper + k * kG16Rows, kTileRowBytes);
      multiply_tiles_signed<0, 3, 6>();
      multiply_tiles_signed<1, 4, 6>();
      multiply_tiles_unsigned<1, 3, 5>();
      multiply_tiles_unsigned<2, 4, 5>();
    }
    store_tile<0>(products[0], kTileRowBytes);
    store_tile<1>(products[1], kTileRowBytes);
    store_tile<2>(products[2], kTileRowBytes);
    for (int32_t t = 0; t < n; t++) {
      const int at = t * kG16Rows;
      const __m512i upper = _mm512_slli_epi32(load<__m512i>(products[0] + at), 16),
                    middle = _mm512_slli_epi32(load<__m512i>(products[1] + at), 8);
      const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(upper, middle), load<__m512i>(products[2] + at));
      add_w12_sums(sums + at, (I16)sum, scales, x.scale(first + t, group));
    }
  }

  // k*q + j in two bytes, four inputs of the 16 rows to a line of 64.
  static HELIOS_INLINE void unpack(const uint8_t* block, int32_t n_blocks, Panel& to) {
    const __m512i nibble = _mm512_set1_epi16(15), lower_byte = _mm512_set1_epi16(255);
    uint8_t *lower = to.lower, *upper = to.upper;
    for (int32_t b = 0; b < n_blocks; b++, block += kW12BlockBytes) {
      HELIOS_UNROLL
      for (int line = 0; line < kW12BlockBytes; line += 64) prefetch_outer(block + kW12PrefetchBytes + line);
      const __m512i multipliers = twice(block + kW12Multipliers), offsets = twice(block + kW12Offsets);
      const auto number = [&](__m512i q) { return _mm512_add_epi16(_mm512_mullo_epi16(q, multipliers), offsets); };
      // The words of `even` are inputs 0 and 2 of a line, those of `odd` 1 and 3.
      const auto put = [&](__m512i even, __m512i odd) {
        store(lower, _mm512_ternarylogic_epi32(lower_byte, even, _mm512_slli_epi16(odd, 8), 0xea));
        store(upper, _mm512_ternarylogic_epi32(lower_byte, odd, _mm512_srli_epi16(even, 8), 0xae));
        lower += 64;
        upper += 64;
      };
      HELIOS_UNROLL
      for (int j = 0; j < 4; j++) {
        const __m512i words = load<__m512i>(block + 64 * j);
        const __m512i first = number(_mm512_and_si512(words, nibble)),
                      second = number(_mm512_and_si512(_mm512_srli_epi16(words, 8), nibble)),
                      third = number(_mm512_and_si512(_mm512_srli_epi16(words, 4), nibble)),
                      fourth = number(_mm512_srli_epi16(words, 12));
        put(first, second);
        put(third, fourth);
      }
    }
  }

  std::optional<Tiles> tiles;
};

#else

struct W12Product : W12Format {
  explicit W12Product(int32_t) {}
  static int32_t n_groups_at_once(int32_t) { return 1; }
  void compute(const uint8_t* w, int32_t n_groups, const Q12Rows& x, int32_t first, int32_t n_tokens, float* sums) const {
    for (int32_t g = 0; g < n_groups; g++)
      multiply_group_w12(w + g * group_nbytes(x.width), x, first, n_tokens, sums + g * kG16Tokens * kG16Rows);
  }
};

#endif

}  // namespace helios
