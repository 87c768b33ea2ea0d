// Linear maps over F32, F16 and BF16 weights with float activations.
//
// The activations of a tile go through shared memory in stages of kStage inputs, the next stage's copy under way while
// this one is used. A lane adds its part's inputs in ascending order:  acc = fma(w[k], x[k], acc), k = part, part + 4,
// ...
//
// For F32 weights, and for cores of before g16k8. Floor: the weights' bytes once for every kTokens rows. As built: up to 72
// registers a thread and 4,096 bytes of shared memory, 7 blocks a multiprocessor.
#include "linear.h"

namespace helios::cuda {

constexpr int kStage = 128, kStageFloats = kTokens * kStage;

// Starts the copy of the inputs [first, first + kStage) of the tile's tokens; places past the end are left.
template <class Args>
__device__ __forceinline__ void stage_inputs(const Args& a, const LinearTile& tile, int32_t first, float* stage) {
  for (int i = int(threadIdx.x); i < kStageFloats; i += kThreads) {
    const int32_t t = i / kStage, k = first + i % kStage;
    if (t < tile.n_tokens && k < a.n_in)
      copy_async_4(stage + i, as<float>(a.x) + int64_t(tile.first_token + t) * a.n_in + k);
  }
  commit_copies();
}

template <class Element>
struct LinearFloat : FloatFormat<Element> {
  template <class Args>
  static __device__ void sums(const Args& a, int32_t, const LinearTile& tile, const uint8_t* group,
                              float (&acc)[kTokens]) {
    HELIOS_SHARED(float, stages, 2 * kStageFloats);
    const int32_t lane = int32_t(threadIdx.x) % kWarpLanes, part = lane / kGroup;
    const int32_t n_stages = (a.n_in + kStage - 1) / kStage;
    const Element* weights = reinterpret_cast<const Element*>(group) + lane;  // lane = part * 8 + row
    stage_inputs(a, tile, 0, stages);
    for (int32_t s = 0; s < n_stages; s++) {
      stage_inputs(a, tile, (s + 1) * kStage,
                   stages + (s + 1) % 2 * kStageFloats);  // none after the last: an empty group
      wait_copies<1>();
      __syncthreads();
      const float* x = stages + s % 2 * kStageFloats;
      const int32_t left = a.n_in - s * kStage, n = left < kStage ? left : kStage;
      for (int32_t k = part; group && k < n; k += kParts) {
        const float w = to_float(weights[int64_t(s * kStage + k - part) * kGroup]);
        for (int t = 0; t < kTokens; t++)
          if (t < tile.n_tokens) acc[t] = fmaf(w, x[t * kStage + k], acc[t]);
      }
      __syncthreads();  // the stage is free again
    }
  }
};

}  // namespace helios::cuda

HELIOS_LINEAR_KERNELS(f32, helios::cuda::LinearFloat<float>)
HELIOS_LINEAR_KERNELS(f16, helios::cuda::LinearFloat<__half>)
HELIOS_LINEAR_KERNELS(bf16, helios::cuda::LinearFloat<__nv_bfloat16>)
