// Quantised activations: int8 in blocks of 32, block-major, so that the sweep over all tokens of a block is one linear
// stream. Layout in kernels.h; M is the live row count, the same for the writer and the readers of a launch. Each half
// of a block, 16 inputs, has a scale of its own: an outlier spoils half as many neighbours, which takes a quarter off
// the error of the answers for two more instructions a block.
//   scale = amax / 127, q = round(x * 127 / amax) to nearest even; a third float holds the sum of scale * sum(q) over
//   both halves, for weights with an offset.
// A half with a NaN or an infinity becomes q = 0 with a NaN scale: its row turns NaN in what follows, no other row
// notices.
#pragma once
#include "host.h"
#include "vec.h"

namespace helios {

constexpr int kBlock = 32, kHalfBlock = kBlock / 2, kScales = 4;  // scales: {lower, upper, sum for offsets, unused}

inline Size q8_rows_nbytes(int32_t rows_capacity, int32_t width) {
  const Size elements = Size(rows_capacity) * width;
  return elements + divide_up(elements, 2);
}

struct Q8Rows {
  const int8_t* q;
  const float* scales;
  int32_t n_rows, n_blocks;

  Q8Rows(const void* base, int32_t n_rows, int32_t rows_capacity, int32_t width)
      : q(as<int8_t>(base)),
        scales(reinterpret_cast<const float*>(q + int64_t(rows_capacity) * width)),
        n_rows(n_rows),
        n_blocks(width / kBlock) {}
  int64_t at(int32_t block, int32_t row) const { return int64_t(block) * n_rows + row; }
};

// Quantise the 16 floats at x; returns the sum of the integers, and the scale through `scale`.
HELIOS_INLINE int32_t quantise_half_block(const float* x, I8* rounded, float* scale) {
  const F8 v[2] = {load<F8>(x), load<F8>(x + 8)};
  const float amax = bits_as<float>(max_lanes(max(magnitude_bits(v[0]), magnitude_bits(v[1]))));
  const bool is_finite = amax < INFINITY;  // compared as integers, NaN > infinity > any number
  const F8 to_q = splat<F8>(is_finite && amax > 1e-30f ? 127.f / amax : 0.f);
  for (int i = 0; i < 2; i++) rounded[i] = round_to_int((is_finite ? v[i] : splat<F8>(0.f)) * to_q);
  *scale = is_finite ? amax / 127.f : NAN;
  return sum_lanes(rounded[0] + rounded[1]);
}

// Quantise block `b` of row `row` from the 32 floats at x.
HELIOS_INLINE void store_q8_block(void* base, int32_t rows_capacity, int32_t n_rows, int32_t row, int32_t b,
                                  const float* x, int32_t width) {
  I8 rounded[4];
  float lower, upper;
  const int32_t lower_sum = quantise_half_block(x, rounded, &lower);
  const int32_t upper_sum = quantise_half_block(x + kHalfBlock, rounded + 2, &upper);
  const int64_t at = int64_t(b) * n_rows + row;
  int8_t* q = as<int8_t>(base);
  store_low_bytes(q + at * kBlock, rounded);
  float* scales = reinterpret_cast<float*>(q + int64_t(rows_capacity) * width) + kScales * at;
  scales[0] = lower;
  scales[1] = upper;
  scales[2] = lower * float(lower_sum) + upper * float(upper_sum);
  scales[3] = 0;
}

}  // namespace helios
