// Element by element over float rows: the bias of a linear map, and the SiLU gate. A thread has 16 bytes, a block a part of
// kThreads times that, so that one row is the work of many blocks.
//
// Floor: 8 bytes a number and the bias once; 12 bytes a number of the gate. As built: up to 25 registers a thread and 0
// bytes of shared memory, 12 blocks a multiprocessor.
#include "chunks.h"
#include "silu.h"

namespace helios::cuda {

constexpr int kPartFloats = kThreads * kFloats;

__host__ __device__ inline int64_t n_parts_of(int64_t n_floats) { return (n_floats + kPartFloats - 1) / kPartFloats; }

__device__ void add_bias(const HeliosArgs_add_bias& a) {
  const int64_t n_parts = n_parts_of(a.n_out), row = blockIdx.x / n_parts;
  const int64_t j = blockIdx.x % n_parts * kPartFloats + int64_t(threadIdx.x) * kFloats;
  if (row >= live_count(a.n_rows, a.rows_capacity) || j >= a.n_out) return;
  float* y = as<float>(a.y) + row * a.y_stride + j;
  const Floats bias = load_floats(as<float>(a.bias) + j, a.n_out - j);
  Floats sum = load_floats(y, a.n_out - j);
  HELIOS_UNROLL
  for (int i = 0; i < kFloats; i++) sum.v[i] += bias.v[i];
  store_floats(y, sum, a.n_out - j);
}

// The rows are one long row.
__device__ void silu_gate(const HeliosArgs_silu_gate& a) {
  const int64_t n = int64_t(live_count(a.n_rows, a.rows_capacity)) * a.width,
                j = int64_t(blockIdx.x) * kPartFloats + int64_t(threadIdx.x) * kFloats;
  if (j >= n) return;
  const Floats gate = load_floats(as<float>(a.gate) + j, n - j), up = load_floats(as<float>(a.up) + j, n - j);
  Floats y;  // may be where the gate is
  HELIOS_UNROLL
  for (int i = 0; i < kFloats; i++) y.v[i] = silu(gate.v[i]) * up.v[i];
  store_floats(as<float>(a.y) + j, y, n - j);
}

}  // namespace helios::cuda

HELIOS_CUDA_KERNEL(add_bias, helios::cuda::kThreads, a.rows_capacity* helios::cuda::n_parts_of(a.n_out),
                   helios::cuda::add_bias(a))
HELIOS_CUDA_KERNEL(silu_gate, helios::cuda::kThreads, helios::cuda::n_parts_of(int64_t(a.rows_capacity) * a.width),
                   helios::cuda::silu_gate(a))
