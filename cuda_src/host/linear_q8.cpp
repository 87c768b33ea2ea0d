// Linear maps over Q8_0 weights with 8-bit activations.
//
//   y[row] = sum over blocks b of 32 inputs, ascending:  acc = fma(float(dot(w, q)), d*s, acc)
// The integer dot is exact on every target. Layout q8_0.g8k4 in kernels.h: lane = output row.
// AVX2: both sides are signed while vpmaddubsw wants unsigned times signed, so |w| times sign(q, w); a pair is at most
// 2*128*127 = 32512, no second one fits int16, hence vpmaddwd by 1 and vpaddd at every step.
// Bound: up to 4 tokens the weight stream (272 bytes for 256 products a token); beyond, the multiplier.
#include "linear.h"
#include "q8_rows.h"

namespace helios {
namespace {

constexpr int kByteBytes = 256;  // weights of one (group, block)

struct Q8 {
  static constexpr int kBlockBytes = kByteBytes + 16;
  static constexpr int kInputs = kBlock, kGroups = 1, kTaskScale = 4;  // vocabulary heads: many groups, so longer runs
  using Input = Q8Rows;

  static Size group_nbytes(int32_t n_in) { return Size(n_in / kBlock) * kBlockBytes; }
  static Size input_nbytes(int32_t rows_capacity, int32_t n_in) { return q8_rows_nbytes(rows_capacity, n_in); }

#if defined(HELIOS_AVX2)
  template <int T>
  static HELIOS_INLINE void block_dots(const uint8_t* w, const int8_t* q, F8 (&dots)[T]) {
    const __m256i one = _mm256_set1_epi16(1);
    __m256i sum[T];
    HELIOS_UNROLL
    for (int j = 0; j < 8; j++) {
      const __m256i v = load<__m256i>(w + 32 * j);
      __m256i magnitude = _mm256_abs_epi8(v);
      if (T > 1) HELIOS_FENCE(magnitude);
      HELIOS_UNROLL
      for (int t = 0; t < T; t++) {
        const __m256i quad = _mm256_castps_si256(_mm256_broadcast_ss((const float*)(q + kBlock * t + 4 * j)));
        const __m256i products = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(quad, v)), one);
        if (j == 0) {
          sum[t] = products;
        } else {
          sum[t] = _mm256_add_epi32(sum[t], products);
          HELIOS_FENCE(sum[t]);
        }
      }
    }
    HELIOS_UNROLL
    for (int t = 0; t < T; t++) dots[t] = to_float((I8)sum[t]);
  }
#else
  template <int T>
  static void block_dots(const uint8_t* w, const int8_t* q, F8 (&dots)[T]) {
    const int8_t* weights = (const int8_t*)w;
    for (int t = 0; t < T; t++) {
      int32_t sum[kGroup] = {};
      for (int j = 0; j < 8; j++)
        for (int r = 0; r < kGroup; r++)
          for (int c = 0; c < 4; c++) sum[r] += weights[32 * j + 4 * r + c] * q[kBlock * t + 4 * j + c];
      dots[t] = to_float(load<I8>(sum));
    }
  }
#endif

  template <int T>
  static HELIOS_INLINE void tile(const uint8_t* w, const Q8Rows& x, int32_t first_token, float* sums) {
    F8 acc[T];
    HELIOS_UNROLL
    for (int t = 0; t < T; t++) acc[t] = splat<F8>(0.f);
    const int8_t* q = x.q + x.at(0, first_token) * kBlock;
    const float* s = x.scales + x.at(0, first_token) * 2;
    for (int32_t b = 0; b < x.n_blocks; b++, w += kBlockBytes, q += int64_t(x.n_rows) * kBlock, s += int64_t(x.n_rows) * 2) {
      for (int line = 0; line < 5; line++) prefetch(w + 2560 + 64 * line);
      F8 dots[T];
      block_dots<T>(w, q, dots);
      const F8 d = load_as_float<F8>((const Half*)(w + kByteBytes));
      HELIOS_UNROLL
      for (int t = 0; t < T; t++) acc[t] = fma(dots[t], d * splat<F8>(s[2 * t]), acc[t]);
    }
    HELIOS_UNROLL
    for (int t = 0; t < T; t++) store(sums + kGroup * t, acc[t]);
  }

  template <int G>
  static void compute(const uint8_t* w, const Q8Rows& x, int32_t first_token, int32_t n, float* sums) {
    for (; n >= 8; n -= 8, first_token += 8, sums += 8 * kGroup) tile<8>(w, x, first_token, sums);
    if (n >= 4) {
      tile<4>(w, x, first_token, sums);
      n -= 4, first_token += 4, sums += 4 * kGroup;
    }
    switch (n) {
      case 1: return tile<1>(w, x, first_token, sums);
      case 2: return tile<2>(w, x, first_token, sums);
      case 3: return tile<3>(w, x, first_token, sums);
    }
  }
};

}  // namespace

HELIOS_LINEAR_KERNELS(q8_0, Q8)

}  // namespace helios
