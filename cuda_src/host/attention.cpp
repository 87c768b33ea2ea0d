// Causal attention of each row over the pages of its slot, grouped heads, fp16 keys and values.
//
//   out[h] = sum_i softmax_i(q[h] . k_i) v_i over positions i <= row_position (q is already scaled)
// Positions go in segments of 256. A segment gives {max, sum of e^(s - max), sum of e^(s - max) v}; segments are merged ascending:
//   m' = max(m, seg.max);  l = l e^(m - m') + seg.sum e^(seg.max - m');  o likewise.
// Both kernels use the same segment and the same merge, so batch, chunk, task and thread cannot show in the bits.
//
// Layout: keys of a page are [head_dim][16 positions], so lanes are positions and scores need no horizontal sum; values are
// [16 positions][head_dim], so lanes are dimensions. Up to 3 query heads share one pass over the keys.
// Bound: decode reads 4 * head_dim bytes a position, KV head and layer; pages are scattered, so the next page is prefetched here.
// A segment with a page id out of range counts as empty; a row with no positions at all gets zeros.
#include "kv_pages.h"
#include "vec.h"

namespace helios {
namespace {

constexpr int kSegment = HELIOS_SEGMENT, kSegmentPages = kSegment / kPageTokens, kHeadsAtOnce = 3;
constexpr float kNoScore = -1e30f;  // weighs e^-87 beside any real score: lost in rounding; and finite, so that differences are

// The pages of one segment of one row, for one KV head. No positions when a page id is out of range.
struct SegmentPages {
  PageHead page[kSegmentPages];
  int32_t n_positions = 0;

  template <class Args>
  SegmentPages(const Args& a, int32_t slot, int32_t position, int32_t segment, int32_t kv_head) {
    const int64_t first = int64_t(segment) * kSegment;
    const int64_t n = position + int64_t(1) - first < kSegment ? position + int64_t(1) - first : kSegment;
    for (int32_t p = 0; p * kPageTokens < n; p++) {
      const char* at = page_at(a, slot, int32_t(first / kPageTokens) + p);
      if (!at) return;
      page[p] = head_in_page(at, kv_head, a.head_dim);
    }
    n_positions = int32_t(n);
  }
};

// H query heads against the keys: scores[h][i], padded to whole pages with kNoScore.
template <int H>
void segment_scores(const float* q, int32_t head_dim, const SegmentPages& pages, float (*scores)[kSegment]) {
  const int32_t n_pages = (pages.n_positions + kPageTokens - 1) / kPageTokens;
  for (int32_t p = 0; p < n_pages; p++) {
    const uint16_t* k = pages.page[p].k;
    const char* next = (const char*)pages.page[p + 1 < n_pages ? p + 1 : p].k;
    const char* values = (const char*)pages.page[p].v;
    F16 acc[H];
    for (int h = 0; h < H; h++) acc[h] = splat<F16>(0.f);
    for (int32_t d = 0; d < head_dim; d += 2) {
      prefetch(next + 32 * d);
      prefetch_outer(values + 32 * d);
      HELIOS_UNROLL
      for (int e = 0; e < 2; e++) {
        const F16 keys = load_as_float<F16>((const Half*)(k + (d + e) * kPageTokens));
        HELIOS_UNROLL
        for (int h = 0; h < H; h++) acc[h] = fma(keys, splat<F16>(q[h * head_dim + d + e]), acc[h]);
      }
    }
    for (int h = 0; h < H; h++) store(scores[h] + p * kPageTokens, acc[h]);
  }
  for (int h = 0; h < H; h++)
    for (int32_t i = pages.n_positions; i < n_pages * kPageTokens; i++) scores[h][i] = kNoScore;
}

// scores -> weights e^(score - max), in place; returns {max, sum}.
struct MaxSum {
  float max, sum;
};
MaxSum exponentiate(float* scores, int32_t n_padded) {
  F8 largest = load<F8>(scores), sum = splat<F8>(0.f);
  for (int32_t i = 8; i < n_padded; i += 8) largest = max(largest, load<F8>(scores + i));
  const float m = max_lanes(largest);
  for (int32_t i = 0; i < n_padded; i += 8) {
    const F8 e = exp(load<F8>(scores + i) - splat<F8>(m));
    sum = sum + e;
    store(scores + i, e);
  }
  return {m, sum_lanes(sum)};
}

// Weighted sum of the values for D vectors of 8 dimensions from `dim` on: out[h][dim..].
template <int H, int D>
void weighted_values(const SegmentPages& pages, const float (*weights)[kSegment], int32_t head_dim, int32_t dim, float* const* out) {
  F8 acc[H][D];
  for (int h = 0; h < H; h++)
    for (int d = 0; d < D; d++) acc[h][d] = splat<F8>(0.f);
  for (int32_t i = 0; i < pages.n_positions; i++) {
    const Half* v = (const Half*)(pages.page[i / kPageTokens].v + i % kPageTokens * head_dim + dim);
    F8 values[D];
    HELIOS_UNROLL
    for (int d = 0; d < D; d++) values[d] = load_as_float<F8>(v + 8 * d);
    HELIOS_UNROLL
    for (int h = 0; h < H; h++) {
      const F8 weight = splat<F8>(weights[h][i]);
      HELIOS_UNROLL
      for (int d = 0; d < D; d++) acc[h][d] = fma(values[d], weight, acc[h][d]);
    }
  }
  for (int h = 0; h < H; h++)
    for (int d = 0; d < D; d++) store(out[h] + dim + 8 * d, acc[h][d]);
}

// One segment of H heads: part[h] = {max, sum, values[head_dim]}.
template <int H>
void attend_segment(const float* q, int32_t head_dim, const SegmentPages& pages, float* const* part) {
  if (pages.n_positions == 0) {
    for (int h = 0; h < H; h++) {
      part[h][0] = kNoScore;
      memset(part[h] + 1, 0, sizeof(float) * (1 + size_t(head_dim)));
    }
    return;
  }
  alignas(64) float scores[H][kSegment];
  segment_scores<H>(q, head_dim, pages, scores);
  const int32_t n_padded = (pages.n_positions + kPageTokens - 1) / kPageTokens * kPageTokens;
  float* values[H];
  for (int h = 0; h < H; h++) {
    const MaxSum s = exponentiate(scores[h], n_padded);
    part[h][0] = s.max;
    part[h][1] = s.sum;
    values[h] = part[h] + 2;
  }
  int32_t dim = 0;
  for (; dim + 32 <= head_dim; dim += 32) weighted_values<H, 4>(pages, scores, head_dim, dim, values);
  for (; dim < head_dim; dim += 8) weighted_values<H, 1>(pages, scores, head_dim, dim, values);
}
void attend_heads(int n_heads, const float* q, int32_t head_dim, const SegmentPages& pages, float* const* part) {
  switch (n_heads) {
    case 1: return attend_segment<1>(q, head_dim, pages, part);
    case 2: return attend_segment<2>(q, head_dim, pages, part);
    default: return attend_segment<3>(q, head_dim, pages, part);
  }
}

// A softmax over the segments seen so far.
struct Merged {
  float max = kNoScore, sum = 0;
  alignas(64) float values[kMaxHeadDim];

  void start(int32_t head_dim) {
    max = kNoScore, sum = 0;
    memset(values, 0, sizeof(float) * size_t(head_dim));
  }
  void add(const float* part, int32_t head_dim) {
    const float top = part[0] > max ? part[0] : max;
    const F8 keep = exp(splat<F8>(max - top)), take = exp(splat<F8>(part[0] - top));
    sum = fma(part[1], first_lane(take), sum * first_lane(keep));
    for (int32_t d = 0; d < head_dim; d += 8) store(values + d, fma(load<F8>(part + 2 + d), take, load<F8>(values + d) * keep));
    max = top;
  }
  void finish(float* out, int32_t head_dim) const {
    const F8 scale = splat<F8>(sum == 0.f ? 0.f : 1.f / sum);  // a NaN sum stays NaN
    for (int32_t d = 0; d < head_dim; d += 8) store(out + d, load<F8>(values + d) * scale);
  }
  static float first_lane(F8 v) {
    float lanes[8];
    store(lanes, v);
    return lanes[0];
  }
};

template <class Args>
const float* query(const Args& a, int32_t row, int32_t head) {
  return as<float>(a.qkv) + (int64_t(row) * (a.n_heads + 2 * a.n_kv_heads) + head) * a.head_dim;
}
int32_t n_segments(int32_t position) { return position / kSegment + 1; }

struct Attention {
  using Args = HeliosArgs_attention;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (!paged_extents(a, e)) return false;
    e.out = Size(a.rows_capacity) * a.n_heads * a.head_dim * 4;
    return true;
  }
  static int32_t n_tasks(const Args& a, int32_t) {
    const int64_t n = int64_t(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity)) * a.n_kv_heads;
    return n < INT32_MAX ? int32_t(n) : INT32_MAX;
  }
  // Task: a row and a KV head, late rows (the long ones of a prompt) first.
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const int64_t n_items = int64_t(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity)) * a.n_kv_heads;
    for (int64_t item = task; item < n_items; item += n_tasks)
      attend_row(a, int32_t((n_items - 1 - item) / a.n_kv_heads), int32_t(item % a.n_kv_heads));
  }
  static void attend_row(const Args& a, int32_t row, int32_t kv_head) {
    const int32_t position = as<int32_t>(a.row_position)[row], slot = as<int32_t>(a.row_slot)[row];
    if (!in_range(position, int64_t(a.pages_per_slot) * kPageTokens) || !in_range(slot, a.n_slots)) return;
    const int32_t heads_each = a.n_heads / a.n_kv_heads;
    for (int32_t first = 0; first < heads_each; first += kHeadsAtOnce) {
      const int32_t n_heads = heads_each - first < kHeadsAtOnce ? heads_each - first : kHeadsAtOnce, head = kv_head * heads_each + first;
      alignas(64) float parts[kHeadsAtOnce][2 + kMaxHeadDim];
      float* const part[kHeadsAtOnce] = {parts[0], parts[1], parts[2]};
      Merged merged[kHeadsAtOnce];
      for (int32_t h = 0; h < n_heads; h++) merged[h].start(a.head_dim);
      for (int32_t s = 0; s < n_segments(position); s++) {
        attend_heads(n_heads, query(a, row, head), a.head_dim, SegmentPages(a, slot, position, s, kv_head), part);
        for (int32_t h = 0; h < n_heads; h++) merged[h].add(part[h], a.head_dim);
      }
      for (int32_t h = 0; h < n_heads; h++) merged[h].finish(as<float>(a.out) + (int64_t(row) * a.n_heads + head + h) * a.head_dim, a.head_dim);
    }
  }
};

template <class Args>
bool partials_are_acceptable(const Args& a) {
  return a.max_segments > 0 && is_width(int64_t(a.n_heads) * a.head_dim) && a.head_dim > 0 && a.head_dim % 8 == 0 && a.head_dim <= kMaxHeadDim && a.rows_capacity > 0;
}
template <class Args>
Size partials_nbytes(const Args& a) {
  return Size(a.rows_capacity) * a.n_heads * a.max_segments * (Size(a.head_dim) + Size(2)) * 4;
}
template <class Args>
int64_t partial_at(const Args& a, int32_t row, int32_t head, int32_t segment) {
  return ((int64_t(row) * a.n_heads + head) * a.max_segments + segment) * (a.head_dim + 2);
}

struct AttentionSplit {
  using Args = HeliosArgs_attention_split;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (!paged_extents(a, e) || !partials_are_acceptable(a)) return false;
    e.partials = partials_nbytes(a);
    return true;
  }
  // The most segments of any live row: the task grid is rows x KV heads x these.
  static int32_t live_segments(const Args& a, int32_t n_rows) {
    int32_t most = 0;
    for (int32_t i = 0; i < n_rows; i++) {
      const int32_t position = as<int32_t>(a.row_position)[i];
      if (position >= 0 && n_segments(position) > most) most = n_segments(position);
    }
    return most < a.max_segments ? most : a.max_segments;
  }
  static int32_t n_tasks(const Args& a, int32_t) {
    const int32_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity);
    const int64_t n = int64_t(n_rows) * a.n_kv_heads * live_segments(a, n_rows);
    return n < INT32_MAX ? int32_t(n) : INT32_MAX;
  }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const int32_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity), segments = live_segments(a, n_rows);
    const int64_t n_items = int64_t(n_rows) * a.n_kv_heads * segments;
    for (int64_t item = task; item < n_items; item += n_tasks)
      attend_part(a, int32_t(item / segments / a.n_kv_heads), int32_t(item / segments % a.n_kv_heads), int32_t(item % segments));
  }
  static void attend_part(const Args& a, int32_t row, int32_t kv_head, int32_t segment) {
    const int32_t position = as<int32_t>(a.row_position)[row], slot = as<int32_t>(a.row_slot)[row];
    if (position < 0 || segment >= n_segments(position)) return;
    const SegmentPages pages(a, slot, position, segment, kv_head);
    const int32_t heads_each = a.n_heads / a.n_kv_heads;
    for (int32_t first = 0; first < heads_each; first += kHeadsAtOnce) {
      const int32_t n_heads = heads_each - first < kHeadsAtOnce ? heads_each - first : kHeadsAtOnce, head = kv_head * heads_each + first;
      float* part[kHeadsAtOnce] = {};
      for (int32_t h = 0; h < n_heads; h++) part[h] = as<float>(a.partials) + partial_at(a, row, head + h, segment);
      attend_heads(n_heads, query(a, row, head), a.head_dim, pages, part);
    }
  }
};

struct AttentionMerge {
  using Args = HeliosArgs_attention_merge;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (!partials_are_acceptable(a)) return false;
    e.counts = Size(16);
    e.row_position = Size(a.rows_capacity) * 4;
    e.partials = partials_nbytes(a);
    e.out = Size(a.rows_capacity) * a.n_heads * a.head_dim * 4;
    return true;
  }
  static int32_t n_tasks(const Args& a, int32_t) {
    return row_tasks(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity), a.n_heads * a.head_dim);
  }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const Span rows = part_of(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity), task, n_tasks);
    for (int32_t row = rows.begin; row < rows.end; row++) {
      const int32_t position = as<int32_t>(a.row_position)[row];
      if (position < 0 || n_segments(position) > a.max_segments) continue;
      for (int32_t head = 0; head < a.n_heads; head++) {
        Merged merged;
        merged.start(a.head_dim);
        for (int32_t s = 0; s < n_segments(position); s++) merged.add(as<float>(a.partials) + partial_at(a, row, head, s), a.head_dim);
        merged.finish(as<float>(a.out) + (int64_t(row) * a.n_heads + head) * a.head_dim, a.head_dim);
      }
    }
  }
};

}  // namespace

HELIOS_HOST_KERNEL(attention, Attention)
HELIOS_HOST_KERNEL(attention_split, AttentionSplit)
HELIOS_HOST_KERNEL(attention_merge, AttentionMerge)

}  // namespace helios
