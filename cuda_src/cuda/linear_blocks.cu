// Linear maps over weights in blocks of 32 inputs with 8-bit activations, whole numbers multiplied within a block.
//
// A lane has 8 inputs of a block for its row, all in one half of it:  acc = fma(d * s[half], sum of w q, acc), blocks
// ascending; the first part of a row adds the format's offset times the block's sum of activations. n_in is a multiple
// of 32.
//
// For cores of before g16k8. Floor: the weights' bytes once for every kTokens rows. As built: up to 64 registers a thread
// and 0 bytes of shared memory, 8 blocks a multiprocessor.
#include "linear.h"

namespace helios::cuda {

template <class Blocks>
struct LinearBlocks : Blocks {
  template <class Args>
  static __device__ void sums(const Args& a, int32_t n_rows, const LinearTile& tile, const uint8_t* group,
                              float (&acc)[kTokens]) {
    if (!group) return;
    const int32_t lane = int32_t(threadIdx.x) % kWarpLanes, row = lane % kGroup, part = lane / kGroup;
    const int8_t* q = as<int8_t>(a.x);
    const float* scales = reinterpret_cast<const float*>(q + int64_t(a.rows_capacity) * a.n_in);
    for (int32_t b = 0; b < a.n_in / kBlock; b++, group += Blocks::kUnitBytes) {
      const float d = scale_at(group + Blocks::kScalesAt, row), offset = Blocks::offset(group, row);
      for (int t = 0; t < kTokens; t++) {
        if (t >= tile.n_tokens) continue;
        const int64_t at = int64_t(b) * n_rows + tile.first_token + t;
        const float* s = scales + at * kScales;
        acc[t] = fmaf(d * s[Blocks::half_of(part)], float(Blocks::dot(group, row, part, q + at * kBlock)), acc[t]);
        if (part == 0) acc[t] = fmaf(offset, s[2], acc[t]);
      }
    }
  }
};

}  // namespace helios::cuda

HELIOS_LINEAR_KERNELS(q4_1, helios::cuda::LinearBlocks<helios::cuda::Q4_1>)
HELIOS_LINEAR_KERNELS(q4_0, helios::cuda::LinearBlocks<helios::cuda::Q4_0>)
HELIOS_LINEAR_KERNELS(q8_0, helios::cuda::LinearBlocks<helios::cuda::Q8_0>)
