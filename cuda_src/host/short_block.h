// The dot product of a block for targets without a byte multiplier: weights widened to int16 once a block, then 8
// products at a time with sums of neighbours (SSE2 pmaddwd, NEON smull and addp). Exact: a pair is at most 2*128*128.
#pragma once
#include "linear_blocks.h"

namespace helios {

typedef int16_t S8 __attribute__((vector_size(16)));
typedef int8_t B8 __attribute__((vector_size(8)));

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

HELIOS_INLINE I4 add_neighbours(I4 a, I4 b) { return I4{a[0], a[2], b[0], b[2]} + I4{a[1], a[3], b[1], b[3]}; }

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

HELIOS_INLINE S8 widen(B8 bytes) { return __builtin_convertvector(bytes, S8); }

// quad[j][4*row + c]: input 4j + c of a row.
struct ShortWeights {
  alignas(16) int16_t quad[kQuads][32];
  void keep_in_registers() {}
};

struct ShortProducts {
  F8 sums[2];
  HELIOS_INLINE ShortProducts(const ShortWeights& w, const int8_t* q)
      : sums{half_sum(w, q, 0), half_sum(w, q, kHalfQuads)} {}
  static HELIOS_INLINE F8 half_sum(const ShortWeights& w, const int8_t* q, int first) {
    I4 rows01{}, rows23{}, rows45{}, rows67{};  // two sums for each row
    HELIOS_UNROLL
    for (int j = first; j < first + kHalfQuads; j++) {
      const S8 inputs = widen_twice(q + 4 * j);
      rows01 = add_pair_products(rows01, load<S8>(w.quad[j]), inputs);
      rows23 = add_pair_products(rows23, load<S8>(w.quad[j] + 8), inputs);
      rows45 = add_pair_products(rows45, load<S8>(w.quad[j] + 16), inputs);
      rows67 = add_pair_products(rows67, load<S8>(w.quad[j] + 24), inputs);
    }
    const I8 sums = {add_neighbours(rows01, rows23), add_neighbours(rows45, rows67)};
    return to_float(sums);
  }
  HELIOS_INLINE F8 lower() const { return sums[0]; }
  HELIOS_INLINE F8 upper() const { return sums[1]; }
};

}  // namespace helios
