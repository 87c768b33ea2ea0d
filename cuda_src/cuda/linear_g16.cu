// Linear maps over weights in g16k8 with bf16 rows: a thread an output.
//
//   acc = fma(offset_b, sum_b, acc), acc = fma(scale_b, P_b, acc), blocks ascending; P_b adds its products in ascending
//   order.
#include "formats_g16.h"
#include "silu.h"

namespace helios::cuda {

template <class Block>
__device__ float g16_sum(const uint8_t* group, int row, const uint16_t* x, const float* sums, int32_t n_blocks) {
  float acc = 0;
  for (int32_t b = 0; b < n_blocks; b++, group += Block::kNbytes, x += kG16Inputs) {
    float product = 0;
    for (int i = 0; i < kG16Inputs; i++)
      product = fmaf(Block::value(group, row, i), __uint_as_float(uint32_t(x[i]) << 16), product);
    acc = fmaf(Block::offset(group, row), sums[b], acc);
    acc = fmaf(Block::scale(group, row), product, acc);
  }
  return acc;
}

template <class Args>
__host__ __device__ int64_t n_g16_blocks(const Args& a) {
  return (int64_t(a.rows_capacity) * a.n_out + kThreads - 1) / kThreads;
}

enum G16Output { kG16Store, kG16Add, kG16SiluGate };

template <class Block, G16Output kOutput, class Args>
__device__ void linear_g16(const Args& a) {
  const int32_t n_rows = live_count(a.n_rows, a.rows_capacity), n_blocks = a.n_in / kG16Inputs;
  const int64_t group_nbytes = int64_t(n_blocks) * Block::kNbytes;
  const float* sums = reinterpret_cast<const float*>(as<uint16_t>(a.x) + int64_t(a.rows_capacity) * a.n_in);
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < int64_t(n_rows) * a.n_out;
       i += int64_t(gridDim.x) * kThreads) {
    const int32_t token = int32_t(i / a.n_out), out = int32_t(i % a.n_out), row = out % kG16Rows;
    const uint16_t* x = as<uint16_t>(a.x) + int64_t(token) * a.n_in;
    const float* x_sums = sums + int64_t(token) * n_blocks;
    const uint8_t* group = as<uint8_t>(a.weight) + out / kG16Rows * (kOutput == kG16SiluGate ? 2 : 1) * group_nbytes;
    float* y = as<float>(a.y) + int64_t(token) * a.y_stride + out;
    const float sum = g16_sum<Block>(group, row, x, x_sums, n_blocks);
    if (kOutput == kG16SiluGate) {
      *y = silu(sum) * g16_sum<Block>(group + group_nbytes, row, x, x_sums, n_blocks);
    } else {
      *y = kOutput == kG16Add ? *y + sum : sum;
    }
  }
}

}  // namespace helios::cuda

#define HELIOS_G16_KERNELS(suffix, ...)                                                                 \
  HELIOS_CUDA_KERNEL(linear_##suffix, helios::cuda::kThreads, helios::cuda::n_g16_blocks(a),            \
                     helios::cuda::linear_g16<__VA_ARGS__, helios::cuda::kG16Store>(a))                 \
  HELIOS_CUDA_KERNEL(linear_add_##suffix, helios::cuda::kThreads, helios::cuda::n_g16_blocks(a),        \
                     helios::cuda::linear_g16<__VA_ARGS__, helios::cuda::kG16Add>(a))                   \
  HELIOS_CUDA_KERNEL(linear_silu_gate_##suffix, helios::cuda::kThreads, helios::cuda::n_g16_blocks(a),  \
                     helios::cuda::linear_g16<__VA_ARGS__, helios::cuda::kG16SiluGate>(a))

HELIOS_G16_KERNELS(q4_1_g16, helios::cuda::Q4G16<true>)
HELIOS_G16_KERNELS(q4_0_g16, helios::cuda::Q4G16<false>)
HELIOS_G16_KERNELS(q8_0_g16, helios::cuda::Q8G16)
HELIOS_G16_KERNELS(bf16_g16, helios::cuda::FloatG16<__nv_bfloat16>)
HELIOS_G16_KERNELS(f16_g16, helios::cuda::FloatG16<__half>)
