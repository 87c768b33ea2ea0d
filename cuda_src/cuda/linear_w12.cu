// Linear maps over w12 weights and q12 rows (kernels.h), for a core that was prepared for a CPU: plain, without tiles.
//
// A warp has a group of 16 output rows (a gate group and its up group for the SiLU gate) and up to kTokens tokens; its lanes are
// (half of a block, row). A lane's sum of a group of 512 inputs is of whole numbers, so the halves may be added last:
//   acc = fma(float(sum) * S, s, acc), groups ascending;  sum of (k*q + j) * (c*x) = k*c * sum of q*x + j * sum of c*x.
// Beyond the layout's bounds it wraps.
//
// Floor: the weights' bytes once for every kW12Tokens rows. As built: up to 120 registers a thread and 0 bytes of shared memory,
// 4 blocks a multiprocessor.
#include "q12_rows.h"
#include "silu.h"

namespace helios::cuda {

constexpr int kW12Rows = 16, kW12Tokens = 4;
constexpr int kW12BlockBytes = 320, kW12Multipliers = 256, kW12Offsets = 288;

__host__ __device__ inline int32_t n_w12_group_blocks(int32_t n_out) {
  return ((n_out + kW12Rows - 1) / kW12Rows + kWarps - 1) / kWarps;
}
__host__ __device__ inline int64_t n_w12_blocks(int32_t n_out, int32_t n_rows) {
  return int64_t(n_w12_group_blocks(n_out)) * ((n_rows + kW12Tokens - 1) / kW12Tokens);
}
__device__ __forceinline__ int64_t w12_group_nbytes(int32_t n_in) {
  return int64_t(n_in / kQ12Block) * kW12BlockBytes + n_q12_groups(n_in) * int64_t(sizeof(float) * kW12Rows);
}
__device__ __forceinline__ int32_t word_at(const uint8_t* p) { return *reinterpret_cast<const int32_t*>(p); }
__device__ __forceinline__ int32_t short_at(const uint8_t* p, int i) { return reinterpret_cast<const int16_t*>(p)[i]; }

// The products of the lane's row with tokens first .. first + n - 1, in both its lanes.
__device__ __forceinline__ void w12_products(const uint8_t* weights, const Q12Rows& x, int32_t first, int32_t n,
                                             float (&acc)[kW12Tokens]) {
  const int32_t lane = int32_t(threadIdx.x) % kWarpLanes, row = lane % kW12Rows, half = lane / kW12Rows;
  const float* scales = reinterpret_cast<const float*>(weights + int64_t(x.width / kQ12Block) * kW12BlockBytes);
  for (int32_t group = 0; group < x.n_groups; group++) {
    uint32_t sums[kW12Tokens] = {};
    const int32_t begin = group * kQ12Group, end = x.width - begin < kQ12Group ? x.width : begin + kQ12Group;
    for (int32_t k = begin; k < end; k += kQ12Block) {
      const uint8_t* block = weights + int64_t(k / kQ12Block) * kW12BlockBytes;
      const int32_t word[2] = {word_at(block + (2 * half) * 64 + row * 4), word_at(block + (2 * half + 1) * 64 + row * 4)};
      const int32_t multiplier = short_at(block + kW12Multipliers, row), offset = short_at(block + kW12Offsets, row);
      HELIOS_UNROLL
      for (int t = 0; t < kW12Tokens; t++) {
        if (t >= n) continue;
        const uint8_t* q = x.numbers(first + t, k + half * kQ12Half);
        const int16_t* factors = x.block_factors(first + t, k) + half;
        int32_t dot = 0;
        HELIOS_UNROLL
        for (int j = 0; j < 2; j++) {
          dot = __dp4a(word[j] & 0x0f0f0f0f, word_at(q + 8 * j), dot);
          dot = __dp4a(word[j] >> 4 & 0x0f0f0f0f, word_at(q + 8 * j + 4), dot);
        }
        sums[t] += uint32_t(multiplier * factors[0]) * uint32_t(dot) + uint32_t(offset * factors[2]);
      }
    }
    const float scale = scales[group * kW12Rows + row];
    HELIOS_UNROLL
    for (int t = 0; t < kW12Tokens; t++) {
      const uint32_t sum = sums[t] + __shfl_xor_sync(kAllLanes, sums[t], kW12Rows);
      if (t < n) acc[t] = fmaf(float(int32_t(sum)) * scale, *x.scale(first + t, group), acc[t]);
    }
  }
}

// Calls put(y, product, product of the same row of the next group) for each output of the block, in one lane.
template <int kGroups, class Args, class Put>
__device__ __forceinline__ void for_w12_products(const Args& a, Put put) {
  const int32_t n_rows = live_count(a.n_rows, a.rows_capacity), n_group_blocks = n_w12_group_blocks(a.n_out);
  const int64_t n_blocks = n_w12_blocks(a.n_out, n_rows), group_nbytes = w12_group_nbytes(a.n_in);
  const int32_t lane = int32_t(threadIdx.x) % kWarpLanes, warp = int32_t(threadIdx.x) / kWarpLanes;
  const Q12Rows x(a.x, a.rows_capacity, a.n_in);
  for (int64_t block = blockIdx.x; block < n_blocks; block += gridDim.x) {
    const int32_t unit = int32_t(block % n_group_blocks) * kWarps + warp, first = int32_t(block / n_group_blocks) * kW12Tokens;
    if (unit >= (a.n_out + kW12Rows - 1) / kW12Rows) continue;
    const int32_t n = n_rows - first < kW12Tokens ? n_rows - first : kW12Tokens, out = unit * kW12Rows + lane;
    const uint8_t* weights = as<uint8_t>(a.weight) + unit * group_nbytes * kGroups;
    float products[kW12Tokens] = {}, others[kW12Tokens] = {};
    w12_products(weights, x, first, n, products);
    if constexpr (kGroups == 2) w12_products(weights + group_nbytes, x, first, n, others);
    if (lane >= kW12Rows || out >= a.n_out) continue;
    HELIOS_UNROLL
    for (int t = 0; t < kW12Tokens; t++)
      if (t < n) put(as<float>(a.y)[int64_t(first + t) * a.y_stride + out], products[t], others[t]);
  }
}

template <class Args>
__device__ void linear_w12(const Args& a) {
  for_w12_products<1>(a, [](float& y, float product, float) { y = product; });
}
template <class Args>
__device__ void linear_add_w12(const Args& a) {
  for_w12_products<1>(a, [](float& y, float product, float) { y += product; });
}
template <class Args>
__device__ void linear_silu_gate_w12(const Args& a) {
  for_w12_products<2>(a, [](float& y, float gate, float up) { y = silu(gate) * up; });
}

}  // namespace helios::cuda

#define HELIOS_W12_KERNEL(id) \
  HELIOS_CUDA_KERNEL(id, helios::cuda::kThreads, helios::cuda::n_w12_blocks(a.n_out, a.rows_capacity), helios::cuda::id(a))

HELIOS_W12_KERNEL(linear_w12)
HELIOS_W12_KERNEL(linear_add_w12)
HELIOS_W12_KERNEL(linear_silu_gate_w12)
