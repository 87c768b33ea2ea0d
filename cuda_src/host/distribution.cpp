// Whole rows of raw logits with the logarithm of their total, for the lanes that ask for them: log-probabilities of any token
// follow from them with the bits that `sample` and `score` report (raw_distribution.h).
// One task, as few rows are asked for: two passes over 4 bytes a token of the vocabulary, and nothing where none is.
#include <string.h>

#include "raw_distribution.h"

namespace helios {
namespace {

struct Distribution {
  using Args = HeliosArgs_distribution;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (a.logits_capacity <= 0 || a.rows_capacity <= 0 || a.n_slots <= 0 || a.distributions_capacity <= 0 ||
        !is_width(a.vocabulary))
      return false;
    const Size vocabulary(a.vocabulary);
    e.n_rows = Size(4);
    e.rows = Size(a.logits_capacity) * 4;
    e.row_slot = Size(a.rows_capacity) * 4;
    e.sampling = Size(a.n_slots) * sizeof(HeliosSamplingRow);
    e.logits = Size(a.logits_capacity) * vocabulary * 4;
    e.distributions = Size(a.distributions_capacity) * int32_t(HELIOS_DISTRIBUTION_NBYTES(a.vocabulary));
    return true;
  }
  static int32_t n_tasks(const Args&, int32_t) { return 1; }
  static void run(const Args& a, int32_t, int32_t) {
    const int32_t n_rows = live_count(a.n_rows, a.logits_capacity);
    int32_t n_found = 0;
    for (int32_t i = 0; i < n_rows && n_found < a.distributions_capacity; i++)
      if (is_asked_for(a, as<int32_t>(a.rows)[i])) report(a, i, n_found++);
  }
  static bool is_asked_for(const Args& a, int32_t row) {
    if (!in_range(row, a.rows_capacity)) return false;
    const int32_t slot = as<int32_t>(a.row_slot)[row];
    return in_range(slot, a.n_slots) && (as<HeliosSamplingRow>(a.sampling)[slot].flags & a.flag);
  }
  static void report(const Args& a, int32_t index, int32_t place) {
    const Logits logits{const_cast<float*>(as<float>(a.logits)) + int64_t(index) * a.vocabulary, a.vocabulary};
    char* out = as<char>(a.distributions) + place * HELIOS_DISTRIBUTION_NBYTES(a.vocabulary);
    const double head[2] = {RawDistribution(logits).log_total, 0.};
    memcpy(out, head, sizeof head);
    float* row = reinterpret_cast<float*>(out + sizeof head);
    for (int32_t i = 0; i < logits.n; i += kWide) {
      float lanes[kWide];
      store(lanes, logits.raw(i));
      memcpy(row + i, lanes, size_t(logits.n - i < kWide ? logits.n - i : kWide) * sizeof(float));
    }
  }
};

}  // namespace

HELIOS_HOST_KERNEL(distribution, Distribution)

}  // namespace helios
