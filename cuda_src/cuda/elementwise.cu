// Element by element over float rows: the bias of a linear map, and the SiLU gate. A block a row.
#include "silu.h"

namespace helios::cuda {

__device__ void add_bias(const HeliosArgs_add_bias& a) {
  const int32_t n_rows = live_count(a.n_rows, a.rows_capacity);
  const float* bias = as<float>(a.bias);
  for (int32_t i = int32_t(blockIdx.x); i < n_rows; i += int32_t(gridDim.x)) {
    float* y = as<float>(a.y) + int64_t(i) * a.y_stride;
    for (int32_t j = int32_t(threadIdx.x); j < a.n_out; j += kThreads) y[j] += bias[j];
  }
}

__device__ void silu_gate(const HeliosArgs_silu_gate& a) {
  const int32_t n_rows = live_count(a.n_rows, a.rows_capacity);
  for (int32_t i = int32_t(blockIdx.x); i < n_rows; i += int32_t(gridDim.x)) {
    const int64_t row = int64_t(i) * a.width;
    const float *gate = as<float>(a.gate) + row, *up = as<float>(a.up) + row;
    float* y = as<float>(a.y) + row;  // may be gate
    for (int32_t j = int32_t(threadIdx.x); j < a.width; j += kThreads) y[j] = silu(gate[j]) * up[j];
  }
}

}  // namespace helios::cuda

HELIOS_CUDA_KERNEL(add_bias, helios::cuda::kThreads, a.rows_capacity, helios::cuda::add_bias(a))
HELIOS_CUDA_KERNEL(silu_gate, helios::cuda::kThreads, a.rows_capacity, helios::cuda::silu_gate(a))
