// Rotary positions on q and k, the query scale, and the write of k and v into the row's page. A block a row.
//
//   (a, b) -> (a*cos - b*sin, a*sin + b*cos) for pairs (2i, 2i+1) or (i, i + n_rot/2), i < n_rot/2;  then q *= q_scale
// A row whose position, slot or page id is out of range is left as it is and writes nothing.
#include "kv_formats.h"

namespace helios::cuda {

template <bool kInterleaved, class Args>
__device__ void rotate_row(const Args& a, float* q, const float* cos_sin) {
  const int32_t half = a.n_rot / 2, n_pairs = (a.n_heads + a.n_kv_heads) * half;
  for (int32_t i = int32_t(threadIdx.x); i < n_pairs; i += kThreads) {
    const int32_t head = i / half, pair = i % half;
    float* x = q + int64_t(head) * a.head_dim;
    float *pa = x + (kInterleaved ? 2 * pair : pair), *pb = x + (kInterleaved ? 2 * pair + 1 : pair + half);
    const float va = *pa, vb = *pb, c = cos_sin[2 * pair], s = cos_sin[2 * pair + 1];
    *pa = va * c - vb * s;
    *pb = va * s + vb * c;
  }
}
// Keys and values of one row, into its page; a warp a head.
template <class Format, class Args>
__device__ void write_row(const Args& a, const char* page, int32_t offset, const float* k) {
  const float* v = k + a.n_kv_heads * a.head_dim;
  for (int32_t head = int32_t(threadIdx.x) / kWarpLanes; head < a.n_kv_heads; head += kWarps)
    Format::write(const_cast<char*>(head_in_page<Format>(page, head, a.head_dim)), a.head_dim, offset,
                  k + head * a.head_dim, v + head * a.head_dim);
}

template <bool kInterleaved, class Format, class Args>
__device__ void rope_kv(const Args& a) {
  const int32_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity);
  for (int32_t i = int32_t(blockIdx.x); i < n_rows; i += int32_t(gridDim.x)) {
    const int32_t position = as<int32_t>(a.row_position)[i];
    if (!in_range(position, a.n_positions)) continue;
    const char* page = page_at(a, as<int32_t>(a.row_slot)[i], position / kPageTokens);
    if (!page) continue;
    float* q = as<float>(a.qkv) + int64_t(i) * (a.n_heads + 2 * a.n_kv_heads) * a.head_dim;
    rotate_row<kInterleaved>(a, q, as<float>(a.rope) + int64_t(position) * a.n_rot);
    __syncthreads();
    float* k = q + int64_t(a.n_heads) * a.head_dim;
    for (float* x = q + threadIdx.x; x < k; x += kThreads) *x *= a.q_scale;
    write_row<Format>(a, page, position % kPageTokens, k);
  }
}

}  // namespace helios::cuda

#define HELIOS_ROPE_KV(suffix, Format)                                                          \
  HELIOS_CUDA_KERNEL(rope_kv_interleaved##suffix, helios::cuda::kThreads, a.rows_capacity,      \
                     helios::cuda::rope_kv<true, helios::cuda::Format>(a))                      \
  HELIOS_CUDA_KERNEL(rope_kv_half##suffix, helios::cuda::kThreads, a.rows_capacity,             \
                     helios::cuda::rope_kv<false, helios::cuda::Format>(a))
HELIOS_ROPE_KV(, KvF16)
HELIOS_ROPE_KV(_bf16, KvBf16)
HELIOS_ROPE_KV(_q8, KvQ8)
