// The dot product of a block for targets without a byte multiplier: weights widened to int16 once a block, then 8
// products at a time with sums of neighbours (SSE2 pmaddwd, NEON smull and addp). Exact: a pair is at most 2*128*128.
#pragma once
#include "linear_blocks.h"

namespace helios {

typedef int16_t S8 __attribute__((vector_size(16)));

// Four sums of neighbouring products.
HELIOS_INLINE I4 add_pair_products(I4 sum, S8 a, S8 b) {
#if defined(__SSE2__)
  return sum + (I4)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif defined(__aarch64__)
  const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
  return sum + (I4)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
#else
  for (int i = 0; i < 4; i++) sum[i] += a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
  return sum;
#endif
}

// Four bytes, widened, twice over.
HELIOS_INLINE S8 widen_twice(const int8_t* q) {
#if defined(__SSE2__)
  const __m128i bytes = _mm_set1_epi32(quad_bits(q));
  return (S8)_mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
#elif defined(__aarch64__)
  return (S8)vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(quad_bits(q))));
#else
  return S8{q[0], q[1], q[2], q[3], q[0], q[1], q[2], q[3]};
#endif
}

// quad[j][4*row + c]: input 4j + c of a row.
struct ShortWeights {
  alignas(16) int16_t quad[kQuads][32];
  void keep_in_registers() {}
};

struct ShortProducts {
  I4 pairs[2][4] = {};  // of a half: rows 2v and 2v+1, two sums each
  HELIOS_INLINE ShortProducts(const ShortWeights& w, const int8_t* q) {
    HELIOS_UNROLL
    for (int j = 0; j < kQuads; j++) {
      const S8 inputs = widen_twice(q + 4 * j);
      I4* half = pairs[j / kHalfQuads];
      HELIOS_UNROLL
      for (int v = 0; v < 4; v++) half[v] = add_pair_products(half[v], load<S8>(w.quad[j] + 8 * v), inputs);
    }
  }
  HELIOS_INLINE F8 lower() const { return total(pairs[0]); }
  HELIOS_INLINE F8 upper() const { return total(pairs[1]); }

  static HELIOS_INLINE F8 total(const I4 (&half)[4]) {
    int32_t sums[kGroup];
    for (int v = 0; v < 4; v++) {
      sums[2 * v] = half[v][0] + half[v][1];
      sums[2 * v + 1] = half[v][2] + half[v][3];
    }
    return to_float(load<I8>(sums));
  }
};

}  // namespace helios
