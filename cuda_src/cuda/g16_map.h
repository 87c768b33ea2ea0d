// A launch of a linear map over g16k8 weights: its operands, how its inputs are cut into parts, what becomes of a sum.
#pragma once
#include "g16_fragments.h"
#include "silu.h"

namespace helios::cuda {

constexpr int kG16Warps = 8, kG16Threads = kG16Warps * kWarpLanes, kG16Parts = kG16Warps;
constexpr int kG16SharedNbytes = 80 << 10;  // at most: two thread blocks in the 164 KB of sm_80

enum G16Output { kG16Store, kG16Add, kG16SiluGate };

__device__ __forceinline__ int32_t part_begin(int32_t n_blocks, int part) {
  return int32_t(int64_t(n_blocks) * part / kG16Parts);
}
template <G16Output kOutput>
__device__ __forceinline__ void put(float* y, float v, float up) {
  *y = kOutput == kG16SiluGate ? silu(v) * up : kOutput == kG16Add ? *y + v : v;
}

// The operands of a launch. A group is 16 rows of W; the outputs of the SiLU gate take two.
struct G16Map {
  const uint8_t* weight;
  const uint16_t* x;
  const float* sums;
  float* y;
  int64_t group_nbytes, y_stride;
  int32_t n_rows, n_in, n_out, n_blocks, n_groups;
};
template <class Weights, G16Output kOutput, class Args>
__device__ G16Map g16_map(const Args& a) {
  const int32_t n_blocks = a.n_in / kG16Inputs, n_out_groups = (a.n_out + kG16Rows - 1) / kG16Rows;
  const uint16_t* x = as<uint16_t>(a.x);
  return {as<uint8_t>(a.weight),
          x,
          reinterpret_cast<const float*>(x + int64_t(a.rows_capacity) * a.n_in),
          as<float>(a.y),
          int64_t(n_blocks) * Weights::kNbytes,
          a.y_stride,
          live_count(a.n_rows, a.rows_capacity),
          a.n_in,
          a.n_out,
          n_blocks,
          kOutput == kG16SiluGate ? 2 * n_out_groups : n_out_groups};
}

// The calling block's tile in a form, if it has one.
template <class Form>
__device__ __forceinline__ void run_tile(const G16Map& map, uint8_t* shared) {
  if (blockIdx.x < Form::n_tiles(map.n_out, map.n_rows)) Form::run(map, shared, blockIdx.x);
}

}  // namespace helios::cuda
