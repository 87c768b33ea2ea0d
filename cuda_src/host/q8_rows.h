// Quantised activations: int8 in blocks of 32 with one scale each, block-major, so that the sweep over all tokens of a
// block is one linear stream. Layout in kernels.h; M is the live row count, the same for the writer and the readers of
// a launch.
//   scale = amax / 127, q = round(x * 127 / amax) to nearest even; a second float holds scale * sum(q), for weights
//   with an offset.
// Both floats are rounded to the 11 significant bits of a half: the numbers of ggml's Q8 blocks, so that both make the
// same rounding errors and their answers stay close, but with a float's range. A block with a NaN or an infinity
// becomes q = 0 with NaN scales: its row turns NaN in what follows, no other row notices.
#pragma once
#include "host.h"
#include "vec.h"

namespace helios {

constexpr int kBlock = 32;

inline Size q8_rows_nbytes(int32_t rows_capacity, int32_t width) {
  const Size elements = Size(rows_capacity) * width;
  return elements + divide_up(elements, 4);
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

// v rounded to 11 significant bits, ties to even.
inline float round_to_half_precision(float v) {
  const uint32_t bits = bits_as<uint32_t>(v);
  return bits_as<float>((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

// Quantise block `b` of row `row` from the 32 floats at x.
HELIOS_INLINE void store_q8_block(void* base, int32_t rows_capacity, int32_t n_rows, int32_t row, int32_t b,
                                  const float* x, int32_t width) {
  F8 v[4];
  I8 amax_bits{};
  for (int i = 0; i < 4; i++) {
    v[i] = load<F8>(x + 8 * i);
    amax_bits = max(amax_bits, magnitude_bits(v[i]));  // as integers: NaN > infinity > any number
  }
  const float amax = bits_as<float>(max_lanes(amax_bits));
  const bool is_finite = amax < INFINITY;
  const F8 to_q = splat<F8>(is_finite && amax > 1e-30f ? 127.f / amax : 0.f);
  I8 rounded[4];
  for (int i = 0; i < 4; i++) rounded[i] = round_to_int((is_finite ? v[i] : splat<F8>(0.f)) * to_q);
  const int32_t sum = sum_lanes((rounded[0] + rounded[1]) + (rounded[2] + rounded[3]));
  const int64_t at = int64_t(b) * n_rows + row;
  int8_t* q = as<int8_t>(base);
  store_low_bytes(q + at * kBlock, rounded);
  float* scales = reinterpret_cast<float*>(q + int64_t(rows_capacity) * width) + 2 * at;
  const float scale = is_finite ? amax / 127.f : NAN;  // a quiet NaN stays one when rounded
  scales[0] = round_to_half_precision(scale);
  scales[1] = round_to_half_precision(scale * float(sum));
}

}  // namespace helios
