// What every CUDA kernel shares, and the one place that tells the two compilers apart: nvcc, and the C++ compiler over
// the emulator in ../simt.
//
// HELIOS_CUDA_KERNEL(id, n_threads, n_blocks, body) defines kernel `id` of the vocabulary: `body` runs in blocks of
// n_threads with the argument struct as `a`; `n_blocks` is the grid, from the scalar arguments alone, because a
// captured graph keeps it for good. HELIOS_CUDA_KERNEL_WITH(id, n_threads, n_resident, n_blocks, shared_nbytes, body)
// says more: how many blocks a multiprocessor has to hold at once, and the bytes of dynamic shared memory
// (HELIOS_DYNAMIC_SHARED). A name in the expressions is qualified: they stand outside any namespace. The launch is what
// was asked for, to the block, on the emulator too. Every thread of every kernel first waits for the kernel before
// (HELIOS_KERNEL_WAITS), so that it may be started while that one ends. Indices that come from memory (counts, slots,
// positions, tokens, page ids) are checked before they are used, as in the host kernels, whose meaning these equal.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "launch.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Before a loop whose turns are constants and index registers; and before one that would cost too many of them.
#define HELIOS_UNROLL _Pragma("unroll")
#define HELIOS_NO_UNROLL _Pragma("unroll 1")
#include "instructions.h"
#include "warpgroup.h"

#define HELIOS_SHARED(type, name, n) __shared__ type name[n]

// Dynamic shared memory, from its first byte on.
#define HELIOS_DYNAMIC_SHARED(type, name)                         \
  extern __shared__ __align__(1024) unsigned char helios_shared[]; \
  type* name = reinterpret_cast<type*>(helios_shared)

#define HELIOS_CUDA_KERNEL_WITH(id, n_threads, n_resident, n_blocks, shared_nbytes, ...) \
  extern "C" __global__ void __launch_bounds__(n_threads, n_resident)                    \
      helios_##id(const __grid_constant__ HeliosArgs_##id a) {                           \
    helios::cuda::wait_for_kernel_before();                                              \
    helios::cuda::start_kernel_after();                                                  \
    __VA_ARGS__;                                                                         \
  }
#else
#include "simt/cuda.h"

#define HELIOS_CUDA_KERNEL_WITH(id, n_threads, n_resident, n_blocks_of, shared_nbytes_of, ...) \
  namespace helios::cuda {                                                                            \
  static int64_t n_blocks_##id(const void* args) {                                                    \
    const HeliosArgs_##id& a = *static_cast<const HeliosArgs_##id*>(args);                            \
    (void)a;                                                                                          \
    return n_blocks_of;                                                                               \
  }                                                                                                   \
  static int64_t shared_nbytes_##id(const void* args) {                                               \
    const HeliosArgs_##id& a = *static_cast<const HeliosArgs_##id*>(args);                            \
    (void)a;                                                                                          \
    return shared_nbytes_of;                                                                          \
  }                                                                                                   \
  const Launch launch_##id = {n_threads, n_blocks_##id, shared_nbytes_##id, __FILE__};                \
  }                                                                                                   \
  void helios_emulated_##id(const void* args) {                                                       \
    const HeliosArgs_##id& a = *static_cast<const HeliosArgs_##id*>(args);                            \
    __VA_ARGS__;                                                                                      \
  }
#endif

#define HELIOS_CUDA_KERNEL(id, n_threads, n_blocks, ...) \
  HELIOS_CUDA_KERNEL_WITH(id, n_threads, 1, n_blocks, 0, __VA_ARGS__)

namespace helios::cuda {

constexpr int kThreads = 128, kWarpLanes = 32, kWarps = kThreads / kWarpLanes;
constexpr uint32_t kAllLanes = 0xffffffffu;

__device__ __forceinline__ int32_t clamp(int32_t v, int32_t low, int32_t high) {
  return v < low ? low : v > high ? high : v;
}
__device__ __forceinline__ bool in_range(int32_t index, int64_t n) { return index >= 0 && index < n; }
// A live count in device memory, never more than the capacity that the extents were proven for.
__device__ __forceinline__ int32_t live_count(const void* count, int32_t capacity) {
  return clamp(*static_cast<const int32_t*>(count), 0, capacity);
}
__device__ __forceinline__ int32_t live_count(const void* counts, int which, int32_t capacity) {
  return clamp(static_cast<const int32_t*>(counts)[which], 0, capacity);
}
template <class T>
__device__ __forceinline__ const T* as(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
__device__ __forceinline__ T* as(void* p) {
  return static_cast<T*>(p);
}

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {  // of numbers; a NaN loses
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || b != b ? a : b;
  }
};

// The lanes' values combined in a fixed tree; every lane gets the result.
template <class T, class Combine>
__device__ __forceinline__ T combine_warp(T v, Combine combine) {
  for (int bits = kWarpLanes / 2; bits > 0; bits /= 2) v = combine(v, __shfl_xor_sync(kAllLanes, v, bits));
  return v;
}
// The same for a block, by way of a place in shared memory for each warp.
template <int kBlockWarps = kWarps, class T, class Combine>
__device__ __forceinline__ T combine_block(T v, T* shared, Combine combine) {
  v = combine_warp(v, combine);
  __syncthreads();  // the places may still be read from the last time
  if (threadIdx.x % kWarpLanes == 0) shared[threadIdx.x / kWarpLanes] = v;
  __syncthreads();
  T all = shared[0];
  for (int warp = 1; warp < kBlockWarps; warp++) all = combine(all, shared[warp]);
  return all;
}

}  // namespace helios::cuda
