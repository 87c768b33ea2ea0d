// Scores of prompt tokens: what the raw distribution of a row says about the token that really follows.
// One row is one task, so the bits depend on the row alone (raw_distribution.h).
// Bound: three to four passes over 4 bytes a token of the vocabulary, in cache from the head.
#include "raw_distribution.h"

namespace helios {
namespace {

struct Score {
  using Args = HeliosArgs_score;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (a.rows_capacity <= 0 || !is_width(a.vocabulary) || a.n_candidates < 0 ||
        a.n_candidates > HELIOS_MAX_CANDIDATES)
      return false;
    const Size rows(a.rows_capacity);
    e.counts = Size(16);
    e.targets = rows * 4;
    e.logits = rows * a.vocabulary * 4;
    e.scores = rows * sizeof(HeliosSample);
    return true;
  }
  static int32_t n_tasks(const Args& a, int32_t) { return live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity); }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    for (int32_t i = task; i < live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity); i += n_tasks) {
      const int32_t target = as<int32_t>(a.targets)[i];
      HeliosSample& out = as<HeliosSample>(a.scores)[i];
      out = {};
      out.token = -1;
      if (!in_range(target, a.vocabulary)) continue;
      const Logits logits{const_cast<float*>(as<float>(a.logits)) + int64_t(i) * a.vocabulary, a.vocabulary};
      const RawDistribution raw(logits);
      out.token = target;
      raw.report_token(target, out);
      raw.report_candidates(a.n_candidates, out);
    }
  }
};

}  // namespace

HELIOS_HOST_KERNEL(score, Score)

}  // namespace helios
