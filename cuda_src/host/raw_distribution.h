// Log-probabilities, ranks and best tokens of a row of logits as the model gave it: no bias, penalty or temperature.
// Log-probabilities are never below -9999. Of equal logits the lower id is the more likely. What is reported depends on the
// row alone, so a prompt token scored in a prefill has the very bits that it has when it is sampled.
#pragma once
#include "logits.h"

namespace helios {

constexpr float kLowestLogprob = -9999.f;

// ln(v) for finite v > 0: v = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m - 1) / (m + 1)).
inline double natural_log(double v) {
  uint64_t bits = bits_as<uint64_t>(v);
  int64_t exponent = int64_t(bits >> 52) - 1022;
  double m = bits_as<double>((bits & 0x000fffffffffffffull) | 0x3fe0000000000000ull);  // [1/2, 1)
  if (m < 0.70710678118654752) m *= 2, exponent--;
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double series = 0;
  for (int k = 19; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  return 2 * s * series + double(exponent) * 0.69314718055994531;
}

// Log-probabilities of the unmodified distribution.
struct RawDistribution {
  const Logits& logits;
  double log_total;  // ln of the sum of e^x

  explicit RawDistribution(const Logits& logits) : logits(logits) {
    const auto raw_at = [&](int32_t i) __attribute__((always_inline)) { return logits.raw(i); };
    const float top = largest(logits.n, raw_at).logit;
    if (!(top > -INFINITY)) {
      log_total = INFINITY;
      return;
    }
    const Weights weights{top, 1.f};
    const auto weight_at = [&](int32_t i) __attribute__((always_inline)) { return weights.of(logits.raw(i)); };
    log_total = double(top) + natural_log(ChunkSums(logits.n, weight_at).total);
  }
  float logprob(float x) const {
    const double p = double(x) - log_total;
    return p > double(kLowestLogprob) ? float(p) : kLowestLogprob;
  }
  void report_candidates(int32_t n, HeliosSample& out) const {
    float best[HELIOS_MAX_CANDIDATES];
    int32_t found = 0;
    for (int32_t i = 0; n > 0 && i < logits.n; i += kWide) {
      const Wide x = logits.raw(i);
      if (found == n && !(max_lanes(x) > best[n - 1])) continue;
      float lanes[kWide];
      store(lanes, x);
      for (int32_t r = 0; r < kWide && i + r < logits.n; r++) {
        if (found == n && !(lanes[r] > best[n - 1])) continue;
        int32_t at = found < n ? found++ : n - 1;
        for (; at > 0 && lanes[r] > best[at - 1]; at--) {
          best[at] = best[at - 1];
          out.candidate_token[at] = out.candidate_token[at - 1];
        }
        best[at] = lanes[r];
        out.candidate_token[at] = i + r;
      }
    }
    out.n_candidates = found;
    for (int32_t i = 0; i < found; i++) out.candidate_logprob[i] = logprob(best[i]);
  }
  void report_token(int32_t token, HeliosSample& out) const {
    const float x = logits.raw_of(token);
    out.logprob = logprob(x);
    out.rank = 1;
    for (int32_t i = 0; i < logits.n; i += kWide) {
      const Wide v = logits.raw(i);
      if (!(max_lanes(v) >= x)) continue;
      float lanes[kWide];
      store(lanes, v);
      for (int32_t r = 0; r < kWide && i + r < logits.n; r++)
        out.rank += lanes[r] > x || (lanes[r] == x && i + r < token);
    }
  }
};

}  // namespace helios
