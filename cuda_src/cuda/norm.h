// What the kernels that write rows share: a block of kThreads has a row, a thread every kThreads-th four numbers of it.
#pragma once
#include "chunks.h"

namespace helios::cuda {

// v combined over n neighbouring lanes, in a fixed tree.
template <int n, class T, class Combine>
__device__ __forceinline__ T combine_lanes(T v, Combine combine) {
  for (int bits = 1; bits < n; bits *= 2) v = combine(v, __shfl_xor_sync(kAllLanes, v, bits));
  return v;
}

// Calls use(k) for the thread's fours of a row, all threads of the block equally often.
template <class Use>
__device__ __forceinline__ void for_fours(int32_t width, Use use) {
  for (int32_t first = 0; first < width; first += kThreads * kFloats) use(first + int32_t(threadIdx.x) * kFloats);
}

// 1 / sqrt(mean(x^2) + epsilon); `partial` has a place for each warp.
__device__ __forceinline__ float norm_scale(const float* x, int32_t width, float epsilon, float* partial) {
  float sum = 0;
  for_fours(width, [&](int32_t k) {
    const Floats four = load_floats(x + k, width - k);
    HELIOS_UNROLL
    for (int j = 0; j < kFloats; j++) sum = fmaf(four.v[j], four.v[j], sum);
  });
  return 1.f / sqrtf(combine_block(sum, partial, Sum{}) / float(width) + epsilon);
}

}  // namespace helios::cuda
