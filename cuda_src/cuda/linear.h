// y = W x for packed rows: one driver for every weight format and every output. A warp has a group of 8 output rows (a
// gate group and its up group for the SiLU gate) and up to kTokens tokens; its lanes are (row, part), and the parts of
// a row are added in a fixed tree. So a sum depends on its own weights and its own input row, never on the tokens
// beside it.
//
// A format provides Input(args) and sums(input, group, first token, n tokens, acc): the lane's part of acc[kTokens].
// Every thread of the block calls it, a warp without a group too (`group` is null), because inputs may be staged for
// the whole block.
#pragma once
#include "formats.h"
#include "silu.h"

namespace helios::cuda {

constexpr int kTokens = 4;

// Block b: groups kWarps * (b % n_group_blocks) and on, tokens kTokens * (b / n_group_blocks) and on.
struct LinearTile {
  int32_t group, first_token, n_tokens;
  bool has_group;
};
__host__ __device__ inline int32_t n_group_blocks(int32_t n_out) {
  return ((n_out + kGroup - 1) / kGroup + kWarps - 1) / kWarps;
}
__host__ __device__ inline int64_t n_linear_blocks(int32_t n_out, int32_t n_rows) {
  return int64_t(n_group_blocks(n_out)) * ((n_rows + kTokens - 1) / kTokens);
}
template <class Args>
__device__ __forceinline__ LinearTile tile_of(const Args& a, int64_t block, int32_t n_rows) {
  const int32_t n_blocks = n_group_blocks(a.n_out), n_groups = (a.n_out + kGroup - 1) / kGroup;
  const int32_t group = int32_t(block % n_blocks) * kWarps + int32_t(threadIdx.x) / kWarpLanes;
  const int32_t first_token = int32_t(block / n_blocks) * kTokens, left = n_rows - first_token;
  return {group, first_token, left < kTokens ? left : kTokens, group < n_groups};
}

// The parts of a row added up; every lane of the row gets the sum.
__device__ __forceinline__ float add_parts(float v) {
  for (int bits = kWarpLanes / 2; bits >= kGroup; bits /= 2) v += __shfl_xor_sync(kAllLanes, v, bits);
  return v;
}

template <class Format, bool kAdds, class Args>
__device__ void linear(const Args& a) {
  const int32_t n_rows = live_count(a.n_rows, a.rows_capacity), lane = int32_t(threadIdx.x) % kWarpLanes;
  const int64_t group_nbytes = int64_t(a.n_in / Format::kUnit) * Format::kUnitBytes,
                n_blocks = n_linear_blocks(a.n_out, n_rows);
  for (int64_t block = blockIdx.x; block < n_blocks; block += gridDim.x) {
    const LinearTile tile = tile_of(a, block, n_rows);
    float acc[kTokens] = {};
    Format::sums(a, n_rows, tile, tile.has_group ? as<uint8_t>(a.weight) + tile.group * group_nbytes : nullptr, acc);
    const int32_t out = tile.group * kGroup + lane % kGroup;
    for (int t = 0; t < kTokens; t++) {
      const float sum = add_parts(acc[t]);
      if (lane >= kGroup || t >= tile.n_tokens || out >= a.n_out) continue;
      float* y = as<float>(a.y) + int64_t(tile.first_token + t) * a.y_stride + out;
      *y = kAdds ? *y + sum : sum;
    }
  }
}

template <class Format, class Args>
__device__ void linear_silu_gate(const Args& a) {
  const int32_t n_rows = live_count(a.n_rows, a.rows_capacity), lane = int32_t(threadIdx.x) % kWarpLanes;
  const int64_t group_nbytes = int64_t(a.n_in / Format::kUnit) * Format::kUnitBytes,
                n_blocks = n_linear_blocks(a.n_out, n_rows);
  for (int64_t block = blockIdx.x; block < n_blocks; block += gridDim.x) {
    const LinearTile tile = tile_of(a, block, n_rows);
    const uint8_t* pair = tile.has_group ? as<uint8_t>(a.weight) + 2 * tile.group * group_nbytes : nullptr;
    float gate[kTokens] = {}, up[kTokens] = {};
    Format::sums(a, n_rows, tile, pair, gate);
    Format::sums(a, n_rows, tile, pair ? pair + group_nbytes : nullptr, up);
    for (int t = 0; t < kTokens; t++) {
      const float g = add_parts(gate[t]), u = add_parts(up[t]);
      if (lane >= kGroup || t >= tile.n_tokens || !tile.has_group) continue;
      as<float>(a.y)[int64_t(tile.first_token + t) * a.y_stride + tile.group * kGroup + lane] = silu(g) * u;
    }
  }
}

}  // namespace helios::cuda

// The three linear kernels of one format.
#define HELIOS_LINEAR_KERNELS(suffix, ...)                                                                             \
  HELIOS_CUDA_KERNEL(linear_##suffix, helios::cuda::kThreads, helios::cuda::n_linear_blocks(a.n_out, a.rows_capacity), \
                     helios::cuda::linear<__VA_ARGS__, false>(a))                                                      \
  HELIOS_CUDA_KERNEL(linear_add_##suffix, helios::cuda::kThreads,                                                      \
                     helios::cuda::n_linear_blocks(a.n_out, a.rows_capacity),                                          \
                     helios::cuda::linear<__VA_ARGS__, true>(a))                                                       \
  HELIOS_CUDA_KERNEL(linear_silu_gate_##suffix, helios::cuda::kThreads,                                                \
                     helios::cuda::n_linear_blocks(a.n_out, a.rows_capacity),                                          \
                     helios::cuda::linear_silu_gate<__VA_ARGS__>(a))
