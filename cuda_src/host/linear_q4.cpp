// Linear maps over Q4_1 and Q4_0 weights with 8-bit activations.
//
//   y[row] = sum over blocks b of 32 inputs, ascending:  acc = fma(m, s*sum(q), acc);  acc = fma(float(dot(w, q)), d*s, acc)
//   where w are the nibbles 0..15, {d, m} the weight block's scale and offset (m = -8d for Q4_0), {s, s*sum(q)} the activations'.
// The integer dot is exact on every target, so the two fused multiply-adds a block are the whole arithmetic.
//
// Layout g8k4 (kernels.h): lane = output row, so no sum ever crosses lanes. One nibble vector times four broadcast activations is
// 32 products for 8 rows. AVX2: eight vpmaddubsw summed in int16 (at most 8*2*15*128 = 30720 < 32768), then one vpmaddwd by 1.
// AVX-512: vpdpbusd, straight to int32.
//
// Bounds: up to 4 tokens, the weight stream (160 bytes for 256 products a token): aim at 90 % of a plain read loop, hence the
// prefetch 2.5 KiB ahead. Beyond, the multiplier: the sweep keeps the 8 unpacked vectors of a block in registers and runs over up
// to 128 tokens, 38 instructions for 256 products; aim at 50 % of vpmaddubsw + vpaddw alone.
#include "linear.h"
#include "q8_rows.h"

namespace helios {
namespace {

constexpr int kNibbleBytes = 128;  // of one (group, block)

#if defined(HELIOS_AVX2)

// The 8 unpacked weight vectors of one (group, block): quad[2j] holds inputs 8j..8j+3, quad[2j+1] inputs 8j+4..8j+7.
struct Nibbles {
  __m256i quad[8];
  HELIOS_INLINE explicit Nibbles(const uint8_t* w) {
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
    for (int j = 0; j < 8; j++) HELIOS_FENCE(quad[j]);
  }
};
HELIOS_INLINE __m256i broadcast_quad(const int8_t* q) { return _mm256_castps_si256(_mm256_broadcast_ss((const float*)q)); }

struct Products {
  __m256i sum;
  HELIOS_INLINE Products(const Nibbles& w, const int8_t* q) {
    __m256i even = _mm256_maddubs_epi16(w.quad[0], broadcast_quad(q)), odd = _mm256_maddubs_epi16(w.quad[1], broadcast_quad(q + 4));
    HELIOS_FENCE(even);
    HELIOS_FENCE(odd);
    HELIOS_UNROLL
    for (int j = 1; j < 4; j++) {
      even = _mm256_add_epi16(even, _mm256_maddubs_epi16(w.quad[2 * j], broadcast_quad(q + 8 * j)));
      HELIOS_FENCE(even);
      odd = _mm256_add_epi16(odd, _mm256_maddubs_epi16(w.quad[2 * j + 1], broadcast_quad(q + 8 * j + 4)));
      HELIOS_FENCE(odd);
    }
    sum = _mm256_add_epi16(even, odd);
    HELIOS_FENCE(sum);
  }
  HELIOS_INLINE F8 total() const { return to_float((I8)_mm256_madd_epi16(sum, _mm256_set1_epi16(1))); }
};

#else

struct Nibbles {
  uint8_t quad[8][32];
  explicit Nibbles(const uint8_t* w) {
    for (int j = 0; j < 4; j++)
      for (int i = 0; i < 32; i++) {
        quad[2 * j][i] = w[32 * j + i] & 15;
        quad[2 * j + 1][i] = w[32 * j + i] >> 4;
      }
  }
  void keep_in_registers() {}
};

struct Products {
  int32_t sum[kGroup] = {};
  Products(const Nibbles& w, const int8_t* q) {
    for (int j = 0; j < 8; j++)
      for (int r = 0; r < kGroup; r++)
        for (int c = 0; c < 4; c++) sum[r] += w.quad[j][4 * r + c] * q[4 * j + c];
  }
  F8 total() const { return to_float(load<I8>(sum)); }
};

#endif

// kHasOffset: Q4_1 stores m; Q4_0's is -8d.
template <bool kHasOffset>
struct Q4 {
  static constexpr int kBlockBytes = kNibbleBytes + (kHasOffset ? 32 : 16);
  static constexpr int kInputs = kBlock, kGroups = 1, kTaskScale = 1;
  using Input = Q8Rows;

  static Size group_nbytes(int32_t n_in) { return Size(n_in / kBlock) * kBlockBytes; }
  static Size input_nbytes(int32_t rows_capacity, int32_t n_in) { return q8_rows_nbytes(rows_capacity, n_in); }

  struct Scales {
    F8 d, m;
    HELIOS_INLINE explicit Scales(const uint8_t* w) : d(load_as_float<F8>((const Half*)(w + kNibbleBytes))) {
      if constexpr (kHasOffset) {
        m = load_as_float<F8>((const Half*)(w + kNibbleBytes + 16));
      } else {
        m = d * splat<F8>(-8.f);
      }
    }
    HELIOS_INLINE F8 add(F8 acc, const Products& products, const float* s) const {
      acc = fma(m, splat<F8>(s[1]), acc);
      return fma(products.total(), d * splat<F8>(s[0]), acc);
    }
  };
  static HELIOS_INLINE void prefetch_stream(const uint8_t* w) {
    for (int line = 0; line < 3; line++) prefetch(w + 2560 + 64 * line);
  }

  // 1 to 4 tokens: the sums stay in registers, each unpacked vector serves T tokens.
  template <int T>
  static HELIOS_INLINE void tile(const uint8_t* w, const Q8Rows& x, int32_t first_token, float* sums) {
    F8 acc[T];
    HELIOS_UNROLL
    for (int t = 0; t < T; t++) acc[t] = splat<F8>(0.f);
    const int8_t* q = x.q + x.at(0, first_token) * kBlock;
    const float* s = x.scales + x.at(0, first_token) * 2;
    for (int32_t b = 0; b < x.n_blocks; b++, w += kBlockBytes, q += int64_t(x.n_rows) * kBlock, s += int64_t(x.n_rows) * 2) {
      prefetch_stream(w);
      const Nibbles nibbles(w);
      const Scales scales(w);
      HELIOS_UNROLL
      for (int t = 0; t < T; t++) acc[t] = scales.add(acc[t], Products(nibbles, q + kBlock * t), s + 2 * t);
    }
    HELIOS_UNROLL
    for (int t = 0; t < T; t++) store(sums + kGroup * t, acc[t]);
  }

  // Any number of tokens up to kTokens. The tail of token t-1 is issued after the integer part of token t (10 % fewer cycles).
  static __attribute__((noinline)) void sweep(const uint8_t* w, const Q8Rows& x, int32_t first_token, int32_t n, float* sums) {
    memset(sums, 0, sizeof(float) * kGroup * size_t(n));
    for (int32_t b = 0; b < x.n_blocks; b++, w += kBlockBytes) {
      prefetch_stream(w);
      Nibbles nibbles(w);
      nibbles.keep_in_registers();
      const Scales scales(w);
      const int8_t* q = x.q + x.at(b, first_token) * kBlock;
      const float* s = x.scales + x.at(b, first_token) * 2;
      float* acc = sums;
      Products previous(nibbles, q);
      for (int32_t t = 1; t < n; t++, s += 2, acc += kGroup) {
        q += kBlock;
        const Products current(nibbles, q);
        store(acc, scales.add(load<F8>(acc), previous, s));
        previous = current;
      }
      store(acc, scales.add(load<F8>(acc), previous, s));
    }
  }

  template <int G>
  static void compute(const uint8_t* w, const Q8Rows& x, int32_t first_token, int32_t n_tokens, float* sums) {
    switch (n_tokens) {
      case 1: return tile<1>(w, x, first_token, sums);
      case 2: return tile<2>(w, x, first_token, sums);
      case 3: return tile<3>(w, x, first_token, sums);
      case 4: return tile<4>(w, x, first_token, sums);
      default: return sweep(w, x, first_token, n_tokens, sums);
    }
  }
};

}  // namespace

HELIOS_LINEAR_KERNELS(q4_1, Q4<true>)
HELIOS_LINEAR_KERNELS(q4_0, Q4<false>)

}  // namespace helios
