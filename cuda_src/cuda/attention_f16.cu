// Causal attention over pages of f16, a thread an element. A block has one head of one row. attention.cu has the formats that a GPU
// is usually prepared for, and says what is the same here.
//
// Within a segment a thread has kThreads-th positions for the scores, and then kThreads-th dimensions for the values, positions
// ascending: nothing of the batch or the chunk is in the order. As built: up to 90 registers a thread and 1,040 bytes of shared
// memory, 5 blocks a multiprocessor.
#include "attention_merge.h"
#include "kv_formats.h"

namespace helios::cuda {

constexpr int kDims = kMaxHeadDim / kThreads;

// One head of one row.
struct Query {
  const float* query;
  int32_t slot, position, kv_head;
};
template <class Args>
__device__ __forceinline__ Query query_of(const Args& a, int32_t row, int32_t head) {
  const int64_t stride = int64_t(a.n_heads + 2 * a.n_kv_heads) * a.head_dim;
  return {as<float>(a.qkv) + row * stride + int64_t(head) * a.head_dim, as<int32_t>(a.row_slot)[row],
          as<int32_t>(a.row_position)[row], head / (a.n_heads / a.n_kv_heads)};
}

// What a segment adds: max and sum are the same in every thread, values are those of dimensions threadIdx.x + kThreads
// * i.
struct Part {
  Softmax softmax;
  float values[kDims] = {};
};

// e^(score - max) of the segment's positions, in `weights`; false when a page id is out of range.
template <class Args>
__device__ bool segment_weights(const Args& a, const Query& q, int32_t segment, int32_t n, float* weights,
                                float* partial, Part& part) {
  float scores[kSegment / kThreads], top = kNoScore;
  bool has_pages = true;
  for (int i = 0; i < kSegment / kThreads; i++) {
    const int32_t p = int32_t(threadIdx.x) + i * kThreads;
    if (p >= n) continue;
    const char* page = page_at(a, q.slot, segment * kSegmentPages + p / kPageTokens);
    has_pages = has_pages && page;
    if (!page) continue;
    const char* head = head_in_page<KvF16>(page, q.kv_head, a.head_dim);
    float score = 0;
    for (int32_t d = 0; d < a.head_dim; d++)
      score = fmaf(KvF16::key(head, a.head_dim, d, p % kPageTokens), q.query[d], score);
    scores[i] = score;
    top = Largest{}(top, scores[i]);
  }
  if (!__syncthreads_and(has_pages)) return false;
  part.softmax.max = combine_block(top, partial, Largest{});
  float sum = 0;
  for (int i = 0; i < kSegment / kThreads; i++) {
    const int32_t p = int32_t(threadIdx.x) + i * kThreads;
    if (p >= n) continue;
    weights[p] = weight_of(scores[i], part.softmax.max);
    sum += weights[p];
  }
  part.softmax.sum = combine_block(sum, partial, Sum{});  // its barriers also show the weights to all
  return true;
}
template <class Args>
__device__ Part attend_segment(const Args& a, const Query& q, int32_t segment) {
  HELIOS_SHARED(float, weights, kSegment);
  HELIOS_SHARED(float, partial, kWarps);
  Part part;
  const int32_t n = n_visible(q.position, segment);
  if (!segment_weights(a, q, segment, n, weights, partial, part)) return Part{};
  for (int i = 0; i < kDims; i++) {
    const int32_t d = int32_t(threadIdx.x) + i * kThreads;
    if (d >= a.head_dim) continue;
    for (int32_t p = 0; p < n; p++) {
      const char* page = page_at(a, q.slot, segment * kSegmentPages + p / kPageTokens);
      const char* head = head_in_page<KvF16>(page, q.kv_head, a.head_dim);
      const float weight = weights[p];
      part.values[i] = fmaf(KvF16::value(head, a.head_dim, d, p % kPageTokens), weight, part.values[i]);
    }
  }
  return part;
}

__device__ __forceinline__ void merge(Part& merged, const Part& part) {
  const Shares shares = merge(merged.softmax, part.softmax);
  for (int i = 0; i < kDims; i++) merge(merged.values[i], part.values[i], shares);
}
__device__ __forceinline__ void finish(const Part& merged, float* out, int32_t head_dim) {
  const float scale = normalise(merged.softmax);
  for (int i = 0; i < kDims; i++) {
    const int32_t d = int32_t(threadIdx.x) + i * kThreads;
    if (d < head_dim) out[d] = merged.values[i] * scale;
  }
}

template <class Args>
__device__ void attention(const Args& a) {
  const int64_t n_items = int64_t(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity)) * a.n_heads;
  for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
    const int32_t row = int32_t(item / a.n_heads), head = int32_t(item % a.n_heads);
    const Query q = query_of(a, row, head);
    if (!in_range(q.position, int64_t(a.pages_per_slot) * kPageTokens) || !in_range(q.slot, a.n_slots)) continue;
    Part merged;
    for (int32_t s = 0; s < n_segments(q.position); s++) merge(merged, attend_segment(a, q, s));
    finish(merged, as<float>(a.out) + (int64_t(row) * a.n_heads + head) * a.head_dim, a.head_dim);
  }
}

template <class Args>
__device__ void attention_split(const Args& a) {
  const int64_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity),
                n_items = n_rows * a.n_heads * a.max_segments;
  for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
    const int32_t segment = int32_t(item % a.max_segments), head = int32_t(item / a.max_segments % a.n_heads),
                  row = int32_t(item / a.max_segments / a.n_heads);
    const Query q = query_of(a, row, head);
    if (q.position < 0 || segment >= n_segments(q.position)) continue;
    const Part part = attend_segment(a, q, segment);
    float* out = partial_at(a, row, head, segment);
    if (threadIdx.x == 0) out[0] = part.softmax.max, out[1] = part.softmax.sum;
    for (int i = 0; i < kDims; i++) {
      const int32_t d = int32_t(threadIdx.x) + i * kThreads;
      if (d < a.head_dim) out[2 + d] = part.values[i];
    }
  }
}
}  // namespace helios::cuda

HELIOS_CUDA_KERNEL(attention, helios::cuda::kThreads, int64_t(a.rows_capacity) * a.n_heads, helios::cuda::attention(a))
HELIOS_CUDA_KERNEL(attention_split, helios::cuda::kThreads, int64_t(a.rows_capacity) * a.n_heads * a.max_segments,
                   helios::cuda::attention_split(a))
