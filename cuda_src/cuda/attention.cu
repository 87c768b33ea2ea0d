// Causal attention of each row over the pages of its slot, grouped heads. A block has one head of one row.
//
//   out[h] = sum_i softmax_i(q[h] . k_i) v_i over positions i <= row_position (q is already scaled)
// Positions go in segments of 256. A segment gives {max, sum of e^(s - max), sum of e^(s - max) v}; segments are merged
// ascending:
//   m' = max(m, seg.max);  l = l e^(m - m') + seg.sum e^(seg.max - m');  o likewise.
// Both forms use the same segment and the same merge. Within a segment a thread has kThreads-th positions for the
// scores, and then kThreads-th dimensions for the values, positions ascending: nothing of the batch or the chunk is in
// the order. A segment with a page id out of range counts as empty; a row with no positions at all gets zeros.
#include "kv_formats.h"

namespace helios::cuda {

constexpr int kSegment = HELIOS_SEGMENT, kSegmentPages = kSegment / kPageTokens, kDims = kMaxHeadDim / kThreads;
constexpr float kNoScore = -1e30f;    // of an empty segment; finite, so that differences are
constexpr float kLeastScore = -60.f;  // below the largest: e^-60 is lost in rounding

__device__ __forceinline__ int32_t n_segments(int32_t position) { return position / kSegment + 1; }
// Positions of a segment that a row at `position` sees.
__device__ __forceinline__ int32_t n_visible(int32_t position, int32_t segment) {
  const int64_t n = position + int64_t(1) - int64_t(segment) * kSegment;
  return n < 0 ? 0 : n < kSegment ? int32_t(n) : kSegment;
}

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
  float max = kNoScore, sum = 0, values[kDims] = {};
};

// e^(score - max) of the segment's positions, in `weights`; false when a page id is out of range.
template <class Format, class Args>
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
    const char* head = head_in_page<Format>(page, q.kv_head, a.head_dim);
    float score = 0;
    for (int32_t d = 0; d < a.head_dim; d++)
      score = fmaf(Format::key(head, a.head_dim, d, p % kPageTokens), q.query[d], score);
    scores[i] = score * Format::key_scale(head, a.head_dim, p % kPageTokens);
    top = Largest{}(top, scores[i]);
  }
  if (!__syncthreads_and(has_pages)) return false;
  part.max = combine_block(top, partial, Largest{});
  float sum = 0;
  for (int i = 0; i < kSegment / kThreads; i++) {
    const int32_t p = int32_t(threadIdx.x) + i * kThreads;
    if (p >= n) continue;
    const float z = scores[i] - part.max, weight = z < kLeastScore ? 0.f : expf(z);  // NaN stays NaN
    weights[p] = weight;
    sum += weight;
  }
  part.sum = combine_block(sum, partial, Sum{});  // its barriers also show the weights to all
  return true;
}
template <class Format, class Args>
__device__ Part attend_segment(const Args& a, const Query& q, int32_t segment) {
  HELIOS_SHARED(float, weights, kSegment);
  HELIOS_SHARED(float, partial, kWarps);
  Part part;
  const int32_t n = n_visible(q.position, segment);
  if (!segment_weights<Format>(a, q, segment, n, weights, partial, part)) return Part{};
  for (int i = 0; i < kDims; i++) {
    const int32_t d = int32_t(threadIdx.x) + i * kThreads;
    if (d >= a.head_dim) continue;
    for (int32_t p = 0; p < n; p++) {
      const char* page = page_at(a, q.slot, segment * kSegmentPages + p / kPageTokens);
      const char* head = head_in_page<Format>(page, q.kv_head, a.head_dim);
      const float weight = weights[p] * Format::value_scale(head, a.head_dim, p % kPageTokens);
      part.values[i] = fmaf(Format::value(head, a.head_dim, d, p % kPageTokens), weight, part.values[i]);
    }
  }
  return part;
}

// A softmax over the segments seen so far.
__device__ __forceinline__ void merge(Part& merged, const Part& part) {
  const float top = part.max > merged.max ? part.max : merged.max;
  const float keep = expf(merged.max - top), take = expf(part.max - top);
  merged.sum = fmaf(part.sum, take, merged.sum * keep);
  for (int i = 0; i < kDims; i++) merged.values[i] = fmaf(part.values[i], take, merged.values[i] * keep);
  merged.max = top;
}
__device__ __forceinline__ void finish(const Part& merged, float* out, int32_t head_dim) {
  const float scale = merged.sum == 0.f ? 0.f : 1.f / merged.sum;  // a NaN sum stays NaN
  for (int i = 0; i < kDims; i++) {
    const int32_t d = int32_t(threadIdx.x) + i * kThreads;
    if (d < head_dim) out[d] = merged.values[i] * scale;
  }
}

template <class Format, class Args>
__device__ void attention(const Args& a) {
  const int64_t n_items = int64_t(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity)) * a.n_heads;
  for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
    const int32_t row = int32_t(item / a.n_heads), head = int32_t(item % a.n_heads);
    const Query q = query_of(a, row, head);
    if (!in_range(q.position, int64_t(a.pages_per_slot) * kPageTokens) || !in_range(q.slot, a.n_slots)) continue;
    Part merged;
    for (int32_t s = 0; s < n_segments(q.position); s++) merge(merged, attend_segment<Format>(a, q, s));
    finish(merged, as<float>(a.out) + (int64_t(row) * a.n_heads + head) * a.head_dim, a.head_dim);
  }
}

// partials[row][head][segment] = {max, sum, values}.
template <class Args>
__device__ __forceinline__ int64_t partial_at(const Args& a, int64_t row, int32_t head, int32_t segment) {
  return ((row * a.n_heads + head) * a.max_segments + segment) * (a.head_dim + 2);
}
template <class Format, class Args>
__device__ void attention_split(const Args& a) {
  const int64_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity),
                n_items = n_rows * a.n_heads * a.max_segments;
  for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
    const int32_t segment = int32_t(item % a.max_segments), head = int32_t(item / a.max_segments % a.n_heads),
                  row = int32_t(item / a.max_segments / a.n_heads);
    const Query q = query_of(a, row, head);
    if (q.position < 0 || segment >= n_segments(q.position)) continue;
    const Part part = attend_segment<Format>(a, q, segment);
    float* out = as<float>(a.partials) + partial_at(a, row, head, segment);
    if (threadIdx.x == 0) out[0] = part.max, out[1] = part.sum;
    for (int i = 0; i < kDims; i++) {
      const int32_t d = int32_t(threadIdx.x) + i * kThreads;
      if (d < a.head_dim) out[2 + d] = part.values[i];
    }
  }
}
__device__ void attention_merge(const HeliosArgs_attention_merge& a) {
  const int64_t n_items = int64_t(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity)) * a.n_heads;
  for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
    const int32_t row = int32_t(item / a.n_heads), head = int32_t(item % a.n_heads),
                  position = as<int32_t>(a.row_position)[row];
    if (position < 0 || n_segments(position) > a.max_segments) continue;
    Part merged;
    for (int32_t s = 0; s < n_segments(position); s++) {
      const float* stored = as<float>(a.partials) + partial_at(a, row, head, s);
      Part part;
      part.max = stored[0], part.sum = stored[1];
      for (int i = 0; i < kDims; i++) {
        const int32_t d = int32_t(threadIdx.x) + i * kThreads;
        if (d < a.head_dim) part.values[i] = stored[2 + d];
      }
      merge(merged, part);
    }
    finish(merged, as<float>(a.out) + item * a.head_dim, a.head_dim);
  }
}

}  // namespace helios::cuda

#define HELIOS_ATTENTION(suffix, Format)                                                                  \
  HELIOS_CUDA_KERNEL(attention##suffix, helios::cuda::kThreads, int64_t(a.rows_capacity) * a.n_heads,      \
                     helios::cuda::attention<helios::cuda::Format>(a))                                     \
  HELIOS_CUDA_KERNEL(attention_split##suffix, helios::cuda::kThreads,                                      \
                     int64_t(a.rows_capacity) * a.n_heads * a.max_segments,                                \
                     helios::cuda::attention_split<helios::cuda::Format>(a))
HELIOS_ATTENTION(, KvF16)
HELIOS_ATTENTION(_bf16, KvBf16)
HELIOS_ATTENTION(_q8, KvQ8)
HELIOS_CUDA_KERNEL(attention_merge, helios::cuda::kThreads, int64_t(a.rows_capacity) * a.n_heads,
                   helios::cuda::attention_merge(a))
