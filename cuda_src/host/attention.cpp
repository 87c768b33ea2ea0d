// Causal attention of each row over the pages of its slot, grouped heads.
//
//   out[h] = sum_i softmax_i(q[h] . k_i) v_i over positions i <= row_position (q is already scaled)
// Positions go in segments of 256. A segment gives {max, sum of e^(s - max), sum of e^(s - max) v}; segments are merged
// ascending:
//   m' = max(m, seg.max);  l = l e^(m - m') + seg.sum e^(seg.max - m');  o likewise.
// Both kernels use the same segment (attention_segment.h) and the same merge, so batch, chunk, task and thread cannot
// show in the bits.
//
// Bound: decode reads 4 * head_dim bytes a position, KV head and layer. A prompt is bound by the multiplier: up to 3
// heads of up to 4 consecutive rows share one pass over the keys and values. A segment with a page id out of range
// counts as empty; a row with no positions at all gets zeros.
#include "attention_segment.h"

namespace helios {
namespace {

constexpr int kHeadsTogether = 3;
#if defined(HELIOS_AVX512)
constexpr int kRowsTogether = 4;
#else
constexpr int kRowsTogether = 2;
#endif
constexpr int kMaxQueries = kHeadsTogether * kRowsTogether;

int32_t n_segments(int32_t position) { return position / kSegment + 1; }

// Positions of a segment that a row at `position` sees.
int32_t n_visible(int32_t position, int32_t segment) {
  const int64_t n = position + int64_t(1) - int64_t(segment) * kSegment;
  return n < 0 ? 0 : n < kSegment ? int32_t(n) : kSegment;
}

// The first n_positions of a segment; false when a page id is out of range.
template <class Format, class Args>
bool find_pages(const Args& a, int32_t slot, int32_t segment, int32_t n_positions, int32_t kv_head,
                SegmentPages& pages) {
  for (int32_t p = 0; p < n_pages_of(n_positions); p++) {
    const char* at = page_at(a, slot, segment * kSegmentPages + p);
    if (!at) return false;
    pages.head[p] = at + kv_head * Format::head_nbytes(a.head_dim);
  }
  return true;
}

// One segment of `n_heads` heads of `n_rows` consecutive positions of one slot; part[row * n_heads + head]. Positions past
// the segment see all of it, so rows of several slots that have its pages in common are a block too.
struct Block {
  const float* query[kRowsTogether];  // of the first head of each row
  int32_t slot, position, n_rows, n_heads, kv_head;
};
template <class Format, int Q>
void attend_queries(const Block& b, int32_t segment, const SegmentPages& pages, int32_t head_dim, float* const* part) {
  SegmentQueries<Q> s;
  for (int i = 0; i < Q; i++) {
    const int32_t row = i / b.n_heads;
    const float* query = b.query[row] + i % b.n_heads * head_dim;
    for (int32_t d = 0; d < head_dim; d++) s.query[d][i] = query[d];
    s.n_positions[i] = n_visible(b.position + row, segment);
    s.part[i] = part[i];
  }
  attend_segment<Format, Q>(s, pages, head_dim);
}
template <class Format, class Args>
void attend_block(const Args& a, const Block& b, int32_t segment, float* const* part) {
  SegmentPages pages;
  const int32_t n_queries = b.n_rows * b.n_heads, last = b.position + (b.n_rows - 1);
  if (!find_pages<Format>(a, b.slot, segment, n_visible(last, segment), b.kv_head, pages)) {
    if (b.n_rows == 1) {
      for (int32_t i = 0; i < n_queries; i++) empty_part(part[i], a.head_dim);
    }
    for (int32_t row = 0; b.n_rows > 1 && row < b.n_rows; row++) {  // the first rows may not need the bad page
      const Block alone{{b.query[row]}, b.slot, b.position + row, 1, b.n_heads, b.kv_head};
      attend_block<Format>(a, alone, segment, part + row * b.n_heads);
    }
    return;
  }
  switch (n_queries) {
    case 1:
      return attend_queries<Format, 1>(b, segment, pages, a.head_dim, part);
    case 2:
      return attend_queries<Format, 2>(b, segment, pages, a.head_dim, part);
    case 3:
      return attend_queries<Format, 3>(b, segment, pages, a.head_dim, part);
    case kRowsTogether * 2:
      return attend_queries<Format, kRowsTogether * 2>(b, segment, pages, a.head_dim, part);
    case kRowsTogether * 3:
      return attend_queries<Format, kRowsTogether * 3>(b, segment, pages, a.head_dim, part);
#if defined(HELIOS_AVX512)
    case 4:
      return attend_queries<Format, 4>(b, segment, pages, a.head_dim, part);
#endif
  }
}

// A softmax over the segments seen so far.
struct Merged {
  float max, sum;
  alignas(64) float values[kMaxHeadDim];

  void start(int32_t head_dim) {
    max = kNoScore, sum = 0;
    memset(values, 0, sizeof(float) * size_t(head_dim));
  }
  void add(const float* part, int32_t head_dim) {
    const float top = part[0] > max ? part[0] : max;
    const F8 keep = exp(splat<F8>(max - top)), take = exp(splat<F8>(part[0] - top));
    sum = fma(part[1], first_lane(take), sum * first_lane(keep));
    for (int32_t d = 0; d < head_dim; d += 8)
      store(values + d, fma(load<F8>(part + 2 + d), take, load<F8>(values + d) * keep));
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
int64_t qkv_stride(const Args& a) {
  return int64_t(a.n_heads + 2 * a.n_kv_heads) * a.head_dim;
}

template <class Args, class Format>
struct Attention {
  static bool extents(const Args& a, Extents<Args>& e) {
    if (!paged_extents<Format>(a, e)) return false;
    e.out = Size(a.rows_capacity) * a.n_heads * a.head_dim * 4;
    return true;
  }
  static int64_t n_items(const Args& a) {
    const int32_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity);
    return (int64_t(n_rows) + kRowsTogether - 1) / kRowsTogether * a.n_kv_heads;
  }
  static int32_t n_tasks(const Args& a, int32_t) { return int32_t(n_items(a) < INT32_MAX ? n_items(a) : INT32_MAX); }
  // Task: a few rows and a KV head, late rows (the long ones of a prompt) first.
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const int32_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity);
    for (int64_t n = n_items(a), item = task; item < n; item += n_tasks) {
      const int32_t first = int32_t((n - 1 - item) / a.n_kv_heads) * kRowsTogether;
      const int32_t count = n_rows - first < kRowsTogether ? n_rows - first : kRowsTogether;
      attend_rows(a, first, count, int32_t(item % a.n_kv_heads));
    }
  }
  // Whether rows [first, first + n) are consecutive positions of one slot, within one segment.
  static bool go_together(const Args& a, int32_t first, int32_t n) {
    const int32_t *position = as<int32_t>(a.row_position) + first, *slot = as<int32_t>(a.row_slot) + first;
    for (int32_t i = 1; i < n; i++) {
      const bool is_next = slot[i] == slot[0] && position[i] == int64_t(position[i - 1]) + 1;
      if (!is_next || position[i] % kSegment == 0 || !is_position(a, position[i])) return false;
    }
    return n == kRowsTogether;
  }
  static bool is_position(const Args& a, int32_t position) {
    return in_range(position, int64_t(a.pages_per_slot) * kPageTokens);
  }
  static void attend_rows(const Args& a, int32_t first, int32_t n, int32_t kv_head) {
    const int32_t step = go_together(a, first, n) ? n : 1, heads_each = a.n_heads / a.n_kv_heads;
    for (int32_t row = first; row < first + n; row += step) {
      const int32_t position = as<int32_t>(a.row_position)[row], slot = as<int32_t>(a.row_slot)[row];
      if (!is_position(a, position) || !in_range(slot, a.n_slots)) continue;
      for (int32_t head = 0; head < heads_each; head += kHeadsTogether) {
        const int32_t n_heads = heads_each - head < kHeadsTogether ? heads_each - head : kHeadsTogether;
        attend_heads(a, row, kv_head * heads_each + head,
                     Block{{}, slot, position, step, n_heads, kv_head});
      }
    }
  }
  // All segments of a block of queries, the first one being `head` of `row`.
  static void attend_heads(const Args& a, int32_t row, int32_t head, Block b) {
    alignas(64) float parts[kMaxQueries][2 + kMaxHeadDim];
    float* part[kMaxQueries];
    Merged merged[kMaxQueries];
    const int32_t n_queries = b.n_rows * b.n_heads;
    for (int32_t i = 0; i < b.n_rows; i++)
      b.query[i] = as<float>(a.qkv) + (row + i) * qkv_stride(a) + int64_t(head) * a.head_dim;
    for (int32_t i = 0; i < n_queries; i++) {
      part[i] = parts[i];
      merged[i].start(a.head_dim);
    }
    for (int32_t s = 0; s < n_segments(b.position); s++) {
      attend_block<Format>(a, b, s, part);
      for (int32_t i = 0; i < n_queries; i++) merged[i].add(part[i], a.head_dim);
    }
    for (int32_t i = 0; i < n_queries; i++) {
      const int64_t at = int64_t(row + i / b.n_heads) * a.n_heads + head + i % b.n_heads;
      merged[i].finish(as<float>(a.out) + at * a.head_dim, a.head_dim);
    }
  }
};

template <class Args>
bool partials_are_acceptable(const Args& a) {
  return a.max_segments > 0 && is_width(int64_t(a.n_heads) * a.head_dim) && a.head_dim > 0 && a.head_dim % 8 == 0 &&
         a.head_dim <= kMaxHeadDim && a.rows_capacity > 0;
}
template <class Args>
Size partials_nbytes(const Args& a) {
  return Size(a.rows_capacity) * a.n_heads * a.max_segments * (Size(a.head_dim) + Size(2)) * 4;
}
template <class Args>
int64_t partial_at(const Args& a, int32_t row, int32_t head, int32_t segment) {
  return ((int64_t(row) * a.n_heads + head) * a.max_segments + segment) * (a.head_dim + 2);
}

template <class Args, class Format>
struct AttentionSplit {
  static bool extents(const Args& a, Extents<Args>& e) {
    if (!paged_extents<Format>(a, e) || !partials_are_acceptable(a)) return false;
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
    const int32_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity),
                  segments = live_segments(a, n_rows);
    const int64_t n_items = int64_t(n_rows) * a.n_kv_heads * segments;
    for (int64_t item = task; item < n_items; item += n_tasks)
      attend_part(a, int32_t(item / segments / a.n_kv_heads), int32_t(item / segments % a.n_kv_heads),
                  int32_t(item % segments));
  }
  // The segment's page ids when the row sees all of it, else null.
  static const int32_t* whole_segment(const Args& a, int32_t row, int32_t segment) {
    const int32_t position = as<int32_t>(a.row_position)[row], slot = as<int32_t>(a.row_slot)[row];
    const int64_t first_page = int64_t(segment) * kSegmentPages;
    if (position < 0 || n_visible(position, segment) < kSegment || !in_range(slot, a.n_slots)) return nullptr;
    if (first_page + kSegmentPages > a.pages_per_slot) return nullptr;
    return as<int32_t>(a.page_table) + int64_t(slot) * a.pages_per_slot + first_page;
  }
  // Rows whose lanes have a segment in the same pages (a common prefix) read it together, a few at a time. `rows` are
  // those that `row` reads it for: none when a row before it does.
  static int32_t rows_together(const Args& a, int32_t row, int32_t segment, int32_t (&rows)[kRowsTogether]) {
    rows[0] = row;
    const int32_t* pages = whole_segment(a, row, segment);
    if (!pages) return 1;
    const int32_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity);
    int32_t n_before = 0, n = 1;
    for (int32_t other = 0; other < n_rows && n < kRowsTogether; other++) {
      const int32_t* theirs = other == row ? nullptr : whole_segment(a, other, segment);
      if (!theirs || theirs[0] != pages[0] || memcmp(theirs, pages, sizeof(int32_t) * kSegmentPages)) continue;
      if (other < row) {
        n_before++;
      } else if (n_before % kRowsTogether == 0) {
        rows[n++] = other;
      }
    }
    return n_before % kRowsTogether == 0 ? n : 0;
  }
  static void attend_part(const Args& a, int32_t row, int32_t kv_head, int32_t segment) {
    const int32_t position = as<int32_t>(a.row_position)[row];
    if (position < 0 || segment >= n_segments(position)) return;
    int32_t rows[kRowsTogether];
    const int32_t n = rows_together(a, row, segment, rows);
    if (n == kRowsTogether) return attend_rows(a, rows, n, kv_head, segment);
    for (int32_t i = 0; i < n; i++) attend_rows(a, rows + i, 1, kv_head, segment);
  }
  static void attend_rows(const Args& a, const int32_t* rows, int32_t n_rows, int32_t kv_head, int32_t segment) {
    const int32_t heads_each = a.n_heads / a.n_kv_heads, slot = as<int32_t>(a.row_slot)[rows[0]];
    // Rows that go together see all of the segment, wherever they end.
    const int32_t position = n_rows > 1 ? segment * kSegment + (kSegment - 1) : as<int32_t>(a.row_position)[rows[0]];
    for (int32_t first = 0; first < heads_each; first += kHeadsTogether) {
      const int32_t n_heads = heads_each - first < kHeadsTogether ? heads_each - first : kHeadsTogether,
                    head = kv_head * heads_each + first;
      Block b{{}, slot, position, n_rows, n_heads, kv_head};
      float* part[kMaxQueries] = {};
      for (int32_t i = 0; i < n_rows; i++) {
        b.query[i] = as<float>(a.qkv) + rows[i] * qkv_stride(a) + int64_t(head) * a.head_dim;
        for (int32_t h = 0; h < n_heads; h++)
          part[i * n_heads + h] = as<float>(a.partials) + partial_at(a, rows[i], head + h, segment);
      }
      attend_block<Format>(a, b, segment, part);
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
        for (int32_t s = 0; s < n_segments(position); s++)
          merged.add(as<float>(a.partials) + partial_at(a, row, head, s), a.head_dim);
        merged.finish(as<float>(a.out) + (int64_t(row) * a.n_heads + head) * a.head_dim, a.head_dim);
      }
    }
  }
};

}  // namespace

HELIOS_HOST_KERNEL(attention, Attention<HeliosArgs_attention, KvF16>)
HELIOS_HOST_KERNEL(attention_bf16, Attention<HeliosArgs_attention_bf16, KvBf16>)
HELIOS_HOST_KERNEL(attention_q8, Attention<HeliosArgs_attention_q8, KvQ8>)
HELIOS_HOST_KERNEL(attention_split, AttentionSplit<HeliosArgs_attention_split, KvF16>)
HELIOS_HOST_KERNEL(attention_split_bf16, AttentionSplit<HeliosArgs_attention_split_bf16, KvBf16>)
HELIOS_HOST_KERNEL(attention_split_q8, AttentionSplit<HeliosArgs_attention_split_q8, KvQ8>)
HELIOS_HOST_KERNEL(attention_merge, AttentionMerge)

}  // namespace helios
