// RMS norm (to float rows, quantised rows or bf16 rows), and float rows quantised or rounded. A block a row.
//
//   y = x / sqrt(mean(x^2) + epsilon) * weight;  quantised rows and bf16 rows as in kernels.h
// The sum of squares: each thread its every kThreads-th element, then the fixed tree of combine_block; an order that
// depends on the width alone. A row index outside x leaves its output row as it is. A half block with a NaN or an
// infinity becomes q = 0 with a NaN scale, so that its row turns NaN in what follows and no other row notices.
#include "formats.h"

namespace helios::cuda {

struct QuantisedHalf {
  float scale;
  int32_t sum;
};
// Quantises 16 floats to q; returns the scale and the sum of the integers.
__device__ QuantisedHalf quantise_half_block(const float* x, int8_t* q) {
  uint32_t largest = 0;  // as integers, NaN > infinity > any number
  for (int i = 0; i < kHalfBlock; i++) {
    const uint32_t magnitude = __float_as_uint(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const bool is_finite = largest < 0x7f800000u;
  const float amax = __uint_as_float(largest), to_q = is_finite && amax > 1e-30f ? 127.f / amax : 0.f;
  QuantisedHalf half{is_finite ? amax / 127.f : __uint_as_float(0x7fc00000u), 0};
  for (int i = 0; i < kHalfBlock; i++) {
    const int32_t rounded = __float2int_rn((is_finite ? x[i] : 0.f) * to_q);
    q[i] = int8_t(rounded);
    half.sum += rounded;
  }
  return half;
}
// Quantise block `b` of row `row` from the 32 floats at x.
__device__ void store_q8_block(void* base, int32_t rows_capacity, int32_t n_rows, int32_t row, int32_t b,
                               const float* x, int32_t width) {
  const int64_t at = int64_t(b) * n_rows + row;
  int8_t* q = as<int8_t>(base);
  const QuantisedHalf lower = quantise_half_block(x, q + at * kBlock),
                      upper = quantise_half_block(x + kHalfBlock, q + at * kBlock + kHalfBlock);
  float* scales = reinterpret_cast<float*>(q + int64_t(rows_capacity) * width) + kScales * at;
  scales[0] = lower.scale;
  scales[1] = upper.scale;
  scales[2] = lower.scale * float(lower.sum) + upper.scale * float(upper.sum);
  scales[3] = 0;
}

// Rounds block `b` of row `row` from the 32 floats at x; its sum adds the rounded numbers in ascending order.
__device__ void store_bf16_block(void* base, int32_t rows_capacity, int32_t row, int32_t b, const float* x,
                                 int32_t width) {
  uint16_t* to = as<uint16_t>(base) + int64_t(row) * width + b * kBlock;
  float sum = 0;
  for (int i = 0; i < kBlock; i++) {
    to[i] = round_to_bf16(x[i]);
    sum += __uint_as_float(uint32_t(to[i]) << 16);
  }
  float* sums = reinterpret_cast<float*>(as<uint16_t>(base) + int64_t(rows_capacity) * width);
  sums[int64_t(row) * (width / kBlock) + b] = sum;
}

enum RowsAs { kFloats, kQ8, kBf16 };

template <RowsAs kAs>
__device__ __forceinline__ void store_block(void* base, int32_t rows_capacity, int32_t n_rows, int32_t row, int32_t b,
                                            const float* x, int32_t width) {
  if (kAs == kQ8) {
    store_q8_block(base, rows_capacity, n_rows, row, b, x, width);
  } else {
    store_bf16_block(base, rows_capacity, row, b, x, width);
  }
}

template <RowsAs kAs, class Args>
__device__ void rms_norm(const Args& a) {
  HELIOS_SHARED(float, partial, kWarps);
  const int32_t n_rows = live_count(a.n_rows, a.rows_capacity), me = int32_t(threadIdx.x);
  const float* weight = as<float>(a.weight);
  for (int32_t i = int32_t(blockIdx.x); i < n_rows; i += int32_t(gridDim.x)) {
    const int32_t row = as<int32_t>(a.rows)[i];
    if (!in_range(row, a.x_rows)) continue;
    const float* x = as<float>(a.x) + int64_t(row) * a.width;
    float sum = 0;
    for (int32_t k = me; k < a.width; k += kThreads) sum = fmaf(x[k], x[k], sum);
    sum = combine_block(sum, partial, Sum{});
    const float scale = 1.f / sqrtf(sum / float(a.width) + a.epsilon);
    if (kAs != kFloats) {
      for (int32_t b = me; b < a.width / kBlock; b += kThreads) {
        float block[kBlock];
        for (int k = 0; k < kBlock; k++) block[k] = x[b * kBlock + k] * scale * weight[b * kBlock + k];
        store_block<kAs>(a.y, a.rows_capacity, n_rows, i, b, block, a.width);
      }
    } else {
      float* y = as<float>(a.y) + int64_t(i) * a.width;
      for (int32_t k = me; k < a.width; k += kThreads) y[k] = x[k] * scale * weight[k];
    }
  }
}

template <RowsAs kAs, class Args>
__device__ void convert_rows(const Args& a) {
  const int32_t n_rows = live_count(a.n_rows, a.rows_capacity);
  for (int32_t i = int32_t(blockIdx.x); i < n_rows; i += int32_t(gridDim.x)) {
    const float* x = as<float>(a.x) + int64_t(i) * a.width;
    for (int32_t b = int32_t(threadIdx.x); b < a.width / kBlock; b += kThreads)
      store_block<kAs>(a.y, a.rows_capacity, n_rows, i, b, x + b * kBlock, a.width);
  }
}

}  // namespace helios::cuda

HELIOS_CUDA_KERNEL(rms_norm, helios::cuda::kThreads, a.rows_capacity, helios::cuda::rms_norm<helios::cuda::kFloats>(a))
HELIOS_CUDA_KERNEL(rms_norm_q8, helios::cuda::kThreads, a.rows_capacity, helios::cuda::rms_norm<helios::cuda::kQ8>(a))
HELIOS_CUDA_KERNEL(rms_norm_bf16, helios::cuda::kThreads, a.rows_capacity, helios::cuda::rms_norm<helios::cuda::kBf16>(a))
HELIOS_CUDA_KERNEL(quantize_q8, helios::cuda::kThreads, a.rows_capacity,
                   helios::cuda::convert_rows<helios::cuda::kQ8>(a))
HELIOS_CUDA_KERNEL(round_bf16, helios::cuda::kThreads, a.rows_capacity,
                   helios::cuda::convert_rows<helios::cuda::kBf16>(a))
