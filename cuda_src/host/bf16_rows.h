// Activations rounded to bf16: row-major, then the sum of each block of 32 of the rounded numbers (layout in kernels.h).
// They carry no scale, so that a product of whole-number weights with them is a plain sum of products.
// Rounding is to nearest, ties to even; the sum adds the block's four vectors of 8 by neighbours, then the lanes. A NaN
// stays one and an infinity stays in its own row.
#pragma once
#include "host.h"
#include "vec.h"

namespace helios {

constexpr int kBf16Block = 32;

inline Size bf16_rows_nbytes(int32_t rows_capacity, int32_t width) {
  const Size elements = Size(rows_capacity) * width;
  return elements * 2 + divide_up(elements, 8);
}

struct Bf16Rows {
  const uint16_t* x;
  const float* sums;
  int32_t width, n_blocks;

  Bf16Rows(const void* base, int32_t rows_capacity, int32_t width)
      : x(as<uint16_t>(base)),
        sums(reinterpret_cast<const float*>(x + int64_t(rows_capacity) * width)),
        width(width),
        n_blocks(width / kBf16Block) {}
  const uint16_t* row(int32_t row) const { return x + int64_t(row) * width; }
  const float* row_sums(int32_t row) const { return sums + int64_t(row) * n_blocks; }
};

HELIOS_INLINE uint16_t round_to_bf16(float v) {
  const uint32_t bits = bits_as<uint32_t>(v), is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return uint16_t((is_nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Rounds block `b` of row `row` from the 32 floats at x.
HELIOS_INLINE void store_bf16_block(void* base, int32_t rows_capacity, int32_t row, int32_t b, const float* x,
                                    int32_t width) {
  uint16_t* to = as<uint16_t>(base) + int64_t(row) * width + b * kBf16Block;
  float* sums = reinterpret_cast<float*>(as<uint16_t>(base) + int64_t(rows_capacity) * width);
  float rounded[kBf16Block];
#if defined(__AVX512BF16__)
  for (int i = 0; i < kBf16Block; i += 16) {
    const __m256i halves = (__m256i)_mm512_cvtneps_pbh(load<__m512>(x + i));
    store(to + i, halves);
    store(rounded + i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
#else
  for (int i = 0; i < kBf16Block; i++) {
    to[i] = round_to_bf16(x[i]);
    rounded[i] = bfloat_to_float(to[i]);
  }
#endif
  const F8 sum = (load<F8>(rounded) + load<F8>(rounded + 8)) + (load<F8>(rounded + 16) + load<F8>(rounded + 24));
  sums[int64_t(row) * (width / kBf16Block) + b] = sum_lanes(sum);
}

}  // namespace helios
