// Log-probabilities, ranks and best tokens of a row of logits as the model gave it: no bias, penalty or temperature.
// Log-probabilities are never below -9999. Of equal logits the lower id is the more likely. All threads of a block call
// these together; the sum of the exponentials goes in an order that depends on the vocabulary alone.
#pragma once
#include "top_list.h"

namespace helios::cuda {

constexpr float kLowestLogprob = -9999.f;

struct RawDistribution {
  const Logits& logits;
  RowScratch& scratch;
  double log_total;  // ln of the sum of e^x; infinite when there is nothing

  __device__ RawDistribution(const Logits& row, RowScratch& shared) : logits(row), scratch(shared) {
    const Candidate top = largest(logits.n, scratch, [&](int32_t i) { return logits.raw(i); });
    const Weights weights{top.logit, 1.f};
    double sum = 0;
    for_row(logits.n, [&](int32_t i) { return logits.raw(i); }, [&](int32_t, float x) { sum += double(weights.of(x)); });
    sum = combine_block<kRowWarps>(sum, scratch.masses, Sum{});
    log_total = top.id < 0 ? double(__uint_as_float(0x7f800000u)) : double(top.logit) + log(sum);
  }
  __device__ float logprob(float x) const {
    const double p = double(x) - log_total;
    return p > double(kLowestLogprob) ? float(p) : kLowestLogprob;
  }
  __device__ void report_candidate(int32_t i, const Candidate& candidate, HeliosSample& out) const {
    out.candidate_token[i] = candidate.id;
    out.candidate_logprob[i] = logprob(candidate.logit);
  }
  // The n best, n <= HELIOS_MAX_CANDIDATES.
  __device__ void report_candidates(int32_t n, ListScratch& list, HeliosSample& out) const {
    const auto raw = [&](int32_t i) { return logits.raw(i); };
    const int32_t found = n < logits.n ? n : logits.n, me = int32_t(threadIdx.x);
    if (found > 0 && list_top(logits.n, found, list, raw)) {
      if (me < found) report_candidate(me, list.sorted[me], out);
    } else {
      Candidate last{0.f, -1};
      for (int32_t i = 0; i < found; i++) {
        last = next_candidate(logits.n, last, scratch, raw);
        if (me == 0) report_candidate(i, last, out);
      }
    }
    if (me == 0) out.n_candidates = found;
  }
  __device__ void report_token(int32_t token, HeliosSample& out) const {
    const Candidate chosen{logits.raw(token), token};
    const unsigned long long n_before = sum_of_row(logits.n, scratch, [&](int32_t i) {
      return (unsigned long long)is_before(Candidate{logits.raw(i), i}, chosen);
    });
    if (threadIdx.x != 0) return;
    out.logprob = logprob(chosen.logit);
    out.rank = 1 + int32_t(n_before);
  }
};

}  // namespace helios::cuda
