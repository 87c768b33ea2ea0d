// One segment of attention: up to 256 positions against a few queries that share them. A query is one head of one row.
//
// What a query gets depends on its own head, its own last position and the pages: the queries beside it only share the
// loads. So a row of a prompt has the same bits alone, as when 4 rows go together.
// The format of the pages is a parameter (kv_formats.h).
#pragma once
#include "kv_formats.h"

namespace helios {

constexpr int kSegment = HELIOS_SEGMENT, kSegmentPages = kSegment / kPageTokens;
constexpr float kNoScore = -1e30f;  // of padding and of empty segments; finite, so that differences are
constexpr float kLeastScore =
    -60.f;  // below the largest: e^-60 is lost in rounding, and would make slow subnormal products

// The pages of one segment for one KV head.
struct SegmentPages {
  const char* head[kSegmentPages];
};

// A segment of Q queries. Query i sees positions [0, n_positions[i]) of the segment; the counts ascend. part[i] = {max,
// sum, values}.
template <int Q>
struct SegmentQueries {
  alignas(64) float query[kMaxHeadDim][Q];  // dimension first: all queries are at fixed offsets from one pointer
  int32_t n_positions[Q];
  float* part[Q];
};

HELIOS_INLINE int32_t n_pages_of(int32_t n_positions) { return (n_positions + kPageTokens - 1) / kPageTokens; }

// scores[i][position], padded to whole pages with kNoScore. The next page's keys and this one's values are prefetched:
// pages are scattered, so the hardware cannot guess.
template <class Format, int Q>
HELIOS_INLINE void segment_scores(const SegmentQueries<Q>& s, const SegmentPages& pages, int32_t head_dim,
                                  float (*scores)[kSegment]) {
  const int32_t n_pages = n_pages_of(s.n_positions[Q - 1]);
  for (int32_t p = 0; p < n_pages; p++) {
    const char *head = pages.head[p], *next = pages.head[p + 1 < n_pages ? p + 1 : p];
    const char* values = head + head_dim * (64 / Format::kDims);
    F16 acc[Q];
    HELIOS_UNROLL
    for (int i = 0; i < Q; i++) acc[i] = splat<F16>(0.f);
    for (int32_t d = 0; d < head_dim; d += Format::kDims) {
      prefetch(next + d * (64 / Format::kDims));
      prefetch(values + d * (64 / Format::kDims));
      F16 keys[Format::kDims];
      Format::load_keys(head, d, keys);
      HELIOS_UNROLL
      for (int j = 0; j < Format::kDims; j++) {
        HELIOS_UNROLL
        for (int i = 0; i < Q; i++) acc[i] = fma(keys[j], splat<F16>(s.query[d + j][i]), acc[i]);
      }
    }
    HELIOS_UNROLL
    for (int i = 0; i < Q; i++)
      store(scores[i] + p * kPageTokens, Format::scale_scores(head, head_dim, acc[i]));
  }
  for (int i = 0; i < Q; i++)
    for (int32_t j = s.n_positions[i]; j < n_pages_of(s.n_positions[i]) * kPageTokens; j++) scores[i][j] = kNoScore;
}

// scores -> weights e^(score - max), in place; part = {max, sum}.
HELIOS_INLINE void exponentiate(float* scores, int32_t n_padded, float* part) {
  Wide largest = load<Wide>(scores), sum = splat<Wide>(0.f);
  for (int32_t i = Lanes<Wide>::n; i < n_padded; i += Lanes<Wide>::n) largest = max(largest, load<Wide>(scores + i));
  const float top = max_lanes(largest);
  for (int32_t i = 0; i < n_padded; i += Lanes<Wide>::n) {
    const Wide z = load<Wide>(scores + i) - splat<Wide>(top);
    const Wide weight = choose(greater(splat<Wide>(kLeastScore), z), splat<Wide>(0.f), exp(z));  // NaN stays NaN
    sum = sum + weight;
    store(scores + i, weight);
  }
  part[0] = top;
  part[1] = sum_lanes(sum);
}

// Adds the weighted values of positions [from, to) to acc of queries first..Q-1, for D vectors of dimensions.
template <class Format, class V, int Q, int D>
HELIOS_INLINE void add_values(const SegmentPages& pages, const float (*weights)[kSegment], int32_t head_dim,
                              int32_t dim, int32_t from, int32_t to, int first, V (&acc)[Q][D]) {
  for (int32_t i = from; i < to; i += Format::kPositions) {
    const char* head = pages.head[i / kPageTokens];
    HELIOS_UNROLL
    for (int j = 0; j < Format::kPositions; j++) {
      V values[D];
      HELIOS_UNROLL
      for (int d = 0; d < D; d++)
        values[d] = Format::template load_values<V>(head, head_dim, i % kPageTokens, j, dim + Lanes<V>::n * d);
      HELIOS_UNROLL
      for (int q = 0; q < Q; q++) {
        if (q < first) continue;
        const V weight = splat<V>(weights[q][i + j]);
        HELIOS_UNROLL
        for (int d = 0; d < D; d++) acc[q][d] = fma(values[d], weight, acc[q][d]);
      }
    }
  }
}

// The weighted sums of the values for D vectors of dimensions from `dim` on.
template <class Format, class V, int Q, int D>
HELIOS_INLINE void weighted_values(const SegmentQueries<Q>& s, const SegmentPages& pages,
                                   const float (*weights)[kSegment], int32_t head_dim, int32_t dim) {
  V acc[Q][D];
  HELIOS_UNROLL
  for (int q = 0; q < Q; q++) {
    HELIOS_UNROLL
    for (int d = 0; d < D; d++) acc[q][d] = splat<V>(0.f);
  }
  if (Format::kPositions > 1) {  // positions that a query does not see have weight 0
    add_values<Format, V, Q, D>(pages, weights, head_dim, dim, 0, s.n_positions[Q - 1], 0, acc);
  } else {
    add_values<Format, V, Q, D>(pages, weights, head_dim, dim, 0, s.n_positions[0], 0, acc);
    for (int q = 1; q < Q; q++)  // positions that only the later queries see
      if (s.n_positions[q] > s.n_positions[q - 1])
        add_values<Format, V, Q, D>(pages, weights, head_dim, dim, s.n_positions[q - 1], s.n_positions[q], q, acc);
  }
  HELIOS_UNROLL
  for (int q = 0; q < Q; q++) {
    HELIOS_UNROLL
    for (int d = 0; d < D; d++) store(s.part[q] + 2 + dim + Lanes<V>::n * d, acc[q][d]);
  }
}

template <class Format, int Q>
__attribute__((noinline)) void attend_segment(const SegmentQueries<Q>& s, const SegmentPages& pages, int32_t head_dim) {
  alignas(64) float scores[Q][kSegment];
  segment_scores<Format, Q>(s, pages, head_dim, scores);
  for (int i = 0; i < Q; i++) {
    exponentiate(scores[i], n_pages_of(s.n_positions[i]) * kPageTokens, s.part[i]);
    for (int32_t p = 0; p < n_pages_of(s.n_positions[Q - 1]); p++)
      Format::scale_weights(pages.head[p], head_dim, s.n_positions[i] - p * kPageTokens, scores[i] + p * kPageTokens);
  }
  constexpr int kWide = Lanes<Wide>::n, kAtOnce = Q <= 3 ? 4 : 2;  // at most 12 sums in registers (24 with AVX-512)
  int32_t dim = 0;
  for (; dim + kWide * kAtOnce <= head_dim; dim += kWide * kAtOnce)
    weighted_values<Format, Wide, Q, kAtOnce>(s, pages, scores, head_dim, dim);
  for (; dim + 8 <= head_dim; dim += 8) weighted_values<Format, F8, Q, 1>(s, pages, scores, head_dim, dim);
}

// An empty segment: it adds nothing when it is merged.
inline void empty_part(float* part, int32_t head_dim) {
  part[0] = kNoScore;
  memset(part + 1, 0, sizeof(float) * (1 + size_t(head_dim)));
}

}  // namespace helios
