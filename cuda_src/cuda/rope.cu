// Rotary positions on q and k, the query scale, and the write of k and v into the row's page. A warp a head, which it has in
// shared memory in between: 16 bytes a lane come and go.
//
//   (a, b) -> (a*cos - b*sin, a*sin + b*cos) for pairs (2i, 2i+1) or (i, i + n_rot/2), i < n_rot/2;  then q *= q_scale
// A row whose position, slot or page id is out of range is left as it is and writes nothing.
//
// Floor: 8 bytes a number of q and k, 4 of v, and what a page takes of k and v. As built: up to 40 registers a thread and 4,096
// bytes of shared memory, 12 blocks a multiprocessor.
#include "kv_formats.h"

namespace helios::cuda {

template <bool kInterleaved>
__device__ __forceinline__ void rotate(float* x, const float* cos_sin, int32_t n_rot) {
  const int32_t half = n_rot / 2;
  HELIOS_NO_UNROLL
  for (int32_t i = int32_t(threadIdx.x) % kWarpLanes; i < half; i += kWarpLanes) {
    float &first = x[kInterleaved ? 2 * i : i], &second = x[kInterleaved ? 2 * i + 1 : i + half];
    const float a = first, b = second, c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
    first = a * c - b * s;
    second = a * s + b * c;
  }
}
__device__ __forceinline__ void load_head(float* to, const float* from, int32_t head_dim) {
  HELIOS_NO_UNROLL
  for (int32_t i = int32_t(threadIdx.x) % kWarpLanes; i < head_dim / kFloats; i += kWarpLanes)
    reinterpret_cast<Floats*>(to)[i] = reinterpret_cast<const Floats*>(from)[i];
}
__device__ __forceinline__ void store_head(float* to, const float* from, int32_t head_dim, float scale) {
  HELIOS_NO_UNROLL
  for (int32_t i = int32_t(threadIdx.x) % kWarpLanes; i < head_dim / kFloats; i += kWarpLanes) {
    Floats floats = reinterpret_cast<const Floats*>(from)[i];
    HELIOS_UNROLL
    for (int j = 0; j < kFloats; j++) floats.v[j] *= scale;
    reinterpret_cast<Floats*>(to)[i] = floats;
  }
}

// The heads of a row are those of q, k and v, in this order, as they lie.
template <class Args>
__host__ __device__ inline int32_t heads_of_row(const Args& a) {
  return a.n_heads + 2 * a.n_kv_heads;
}
template <bool kInterleaved, class Format, class Args>
__device__ void rope_kv(const Args& a) {
  HELIOS_SHARED(Floats, heads, kWarps * kMaxHeadDim / kFloats);
  const int32_t warp = int32_t(threadIdx.x) / kWarpLanes, n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity);
  const int64_t item = int64_t(blockIdx.x) * kWarps + warp;
  const int32_t row = int32_t(item / heads_of_row(a)), head = int32_t(item % heads_of_row(a));
  if (row >= n_rows) return;
  const int32_t position = as<int32_t>(a.row_position)[row];
  if (!in_range(position, a.n_positions)) return;
  const char* page = page_at(a, as<int32_t>(a.row_slot)[row], position / kPageTokens);
  if (!page) return;
  float *x = heads[warp * (kMaxHeadDim / kFloats)].v, *in_row = as<float>(a.qkv) + item * a.head_dim;
  load_head(x, in_row, a.head_dim);
  __syncwarp();
  const int32_t kv_head = head - a.n_heads, value_head = kv_head - a.n_kv_heads;
  if (value_head < 0) {
    rotate<kInterleaved>(x, as<float>(a.rope) + int64_t(position) * a.n_rot, a.n_rot);
    __syncwarp();
    store_head(in_row, x, a.head_dim, kv_head < 0 ? a.q_scale : 1.f);
  }
  if (kv_head < 0) return;
  char* in_page = const_cast<char*>(head_in_page<Format>(page, value_head < 0 ? kv_head : value_head, a.head_dim));
  if (value_head < 0) {
    Format::write_keys(in_page, a.head_dim, position % kPageTokens, x);
  } else {
    Format::write_values(in_page, a.head_dim, position % kPageTokens, x);
  }
}
template <class Args>
__host__ __device__ inline int64_t n_rope_blocks(const Args& a) {
  return (int64_t(a.rows_capacity) * heads_of_row(a) + kWarps - 1) / kWarps;
}

}  // namespace helios::cuda

#define HELIOS_ROPE_KV(suffix, Format)                                                                        \
  HELIOS_CUDA_KERNEL_WITH(rope_kv_interleaved##suffix, helios::cuda::kThreads, 12, helios::cuda::n_rope_blocks(a), \
                          0, helios::cuda::rope_kv<true, helios::cuda::Format>(a))                     \
  HELIOS_CUDA_KERNEL_WITH(rope_kv_half##suffix, helios::cuda::kThreads, 12, helios::cuda::n_rope_blocks(a),    \
                          0, helios::cuda::rope_kv<false, helios::cuda::Format>(a))
HELIOS_ROPE_KV(, KvF16)
HELIOS_ROPE_KV(_bf16, KvBf16)
HELIOS_ROPE_KV(_q8, KvQ8)
