// Rotary positions on q and k, the query scale, and the write of k and v into the row's page.
//
//   (a, b) -> (a*cos - b*sin, a*sin + b*cos) for pairs (2i, 2i+1) or (i, i + n_rot/2), i < n_rot/2;  then q *= q_scale
// Bound: the qkv row once in and out of cache; 960 elements take about 0.5 us. Rows of one page touch different bytes
// of it. A row whose position, slot or page id is out of range is left as it is and writes nothing.
#include "kv_formats.h"

namespace helios {
namespace {

template <class Args, bool kInterleaved, class Format>
struct RopeKv {
  static bool extents(const Args& a, Extents<Args>& e) {
    if (!paged_extents<Format>(a, e) || a.n_positions <= 0 || a.n_rot < 0 || a.n_rot % 2 || a.n_rot > a.head_dim) return false;
    e.rope = Size(a.n_positions) * a.n_rot * 4;
    return true;
  }
  static int32_t row_width(const Args& a) { return (a.n_heads + 2 * a.n_kv_heads) * a.head_dim; }
  static int32_t n_tasks(const Args& a, int32_t) {
    return row_tasks(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity), row_width(a));
  }

  static void rotate(float* x, const float* cos_sin, int32_t n_rot) {
    const int32_t half = n_rot / 2;
    for (int32_t i = 0; i < half; i++) {
      float *pa = x + (kInterleaved ? 2 * i : i), *pb = x + (kInterleaved ? 2 * i + 1 : i + half);
      const float a = *pa, b = *pb, c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
      *pa = a * c - b * s;
      *pb = a * s + b * c;
    }
  }
  // The page that row i writes to, or null when it writes nothing.
  static char* page_of(const Args& a, int32_t i) {
    const int32_t position = as<int32_t>(a.row_position)[i];
    if (!in_range(position, a.n_positions)) return nullptr;
    return const_cast<char*>(page_at(a, as<int32_t>(a.row_slot)[i], position / kPageTokens));
  }
  static void prefetch_page(const Args& a, int32_t i) {
    const char* page = page_of(a, i);
    for (int32_t h = 0; page && h < a.n_kv_heads; h++)
      Format::prefetch_position(page + h * Format::head_nbytes(a.head_dim), a.head_dim,
                                as<int32_t>(a.row_position)[i] % kPageTokens);
  }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const Span rows = part_of(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity), task, n_tasks);
    for (int32_t i = rows.begin; i < rows.end; i++) prefetch_page(a, i);
    for (int32_t i = rows.begin; i < rows.end; i++) {
      const int32_t position = as<int32_t>(a.row_position)[i];
      char* page = page_of(a, i);
      if (!page) continue;
      const float* cos_sin = as<float>(a.rope) + int64_t(position) * a.n_rot;
      float* q = as<float>(a.qkv) + int64_t(i) * row_width(a);
      for (int32_t h = 0; h < a.n_heads + a.n_kv_heads; h++) rotate(q + int64_t(h) * a.head_dim, cos_sin, a.n_rot);
      float *k = q + int64_t(a.n_heads) * a.head_dim, *v = k + int64_t(a.n_kv_heads) * a.head_dim;
      for (float* p = q; p < k; p++) *p *= a.q_scale;
      for (int32_t h = 0; h < a.n_kv_heads; h++)
        Format::write(page + h * Format::head_nbytes(a.head_dim), a.head_dim, position % kPageTokens, k + h * a.head_dim,
                      v + h * a.head_dim);
    }
  }
};

}  // namespace

HELIOS_HOST_KERNEL(rope_kv_interleaved, RopeKv<HeliosArgs_rope_kv_interleaved, true, KvF16>)
HELIOS_HOST_KERNEL(rope_kv_half, RopeKv<HeliosArgs_rope_kv_half, false, KvF16>)
HELIOS_HOST_KERNEL(rope_kv_interleaved_bf16, RopeKv<HeliosArgs_rope_kv_interleaved_bf16, true, KvBf16>)
HELIOS_HOST_KERNEL(rope_kv_half_bf16, RopeKv<HeliosArgs_rope_kv_half_bf16, false, KvBf16>)
HELIOS_HOST_KERNEL(rope_kv_interleaved_q8, RopeKv<HeliosArgs_rope_kv_interleaved_q8, true, KvQ8>)
HELIOS_HOST_KERNEL(rope_kv_half_q8, RopeKv<HeliosArgs_rope_kv_half_q8, false, KvQ8>)

}  // namespace helios
