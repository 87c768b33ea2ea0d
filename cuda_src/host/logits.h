// A row of logits as the sampler sees it: bias is in the row already, penalties and mask are applied on the fly, so the
// raw logits stay what they were. NaN counts as -infinity, +infinity as 3e38, and -0 as +0: equal logits have equal
// bits. Everything goes in vectors of the target's widest register over ascending ids, so sums depend on the row alone.
#pragma once
#include <math.h>

#include "host.h"
#include "vec.h"

namespace helios {

using WideInt = Lanes<Wide>::Int;
constexpr int kWide = Lanes<Wide>::n;
constexpr float kLargestLogit = 3e38f;

HELIOS_INLINE Wide nothing() { return splat<Wide>(-INFINITY); }
HELIOS_INLINE Wide usable(Wide x) { return max(min(splat<Wide>(kLargestLogit), x), nothing()); }

// A vector of elements from i on; those at and past n are `fill`.
template <class V, class E>
HELIOS_INLINE V load_up_to(const E* x, int32_t i, int32_t n, E fill) {
  if (i + kWide <= n) return load<V>(x + i);
  E lanes[kWide];
  for (int r = 0; r < kWide; r++) lanes[r] = i + r < n ? x[i + r] : fill;
  return load<V>(lanes);
}
HELIOS_INLINE WideInt ids_from(int32_t i) {
  alignas(64) static constexpr int32_t kLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return splat<WideInt>(i) + load<WideInt>(kLanes);
}

struct Logits {
  float* x;
  int32_t n;
  const int32_t* histogram = nullptr;  // null: no penalties
  const uint32_t* mask = nullptr;      // null: everything is allowed
  float repetition = 1, frequency = 0, presence = 0;

  HELIOS_INLINE Wide raw(int32_t i) const { return usable(load_up_to<Wide>(x, i, n, -INFINITY)); }
  HELIOS_INLINE Wide at(int32_t i) const {
    Wide v = raw(i);
    if (histogram) v = penalised(v, i);
    if (mask) v = masked(v, i);
    return v + splat<Wide>(0.f);  // -0 -> +0
  }
  float raw_of(int32_t id) const {
    float lanes[kWide];
    store(lanes, raw(id / kWide * kWide));
    return lanes[id % kWide];
  }

  // A word is negative (top bit) when the token is in the prompt; its low 31 bits count the outputs.
  HELIOS_INLINE Wide penalised(Wide v, int32_t i) const {
    const WideInt words = load_up_to<WideInt>(histogram, i, n, 0), none = splat<WideInt>(0);
    const WideInt counts = words & splat<WideInt>(0x7fffffff), is_output = greater(counts, none);
    const Wide zero = splat<Wide>(0.f), factor = splat<Wide>(repetition);
    const Wide repeated = choose(greater(v, zero), v / factor, v * factor);
    v = choose(greater(none, words), repeated, choose(is_output, repeated, v));
    return usable(v - splat<Wide>(frequency) * to_float(counts) - choose(is_output, splat<Wide>(presence), zero));
  }
  HELIOS_INLINE Wide masked(Wide v, int32_t i) const {
    int32_t lane_bits[kWide];
    for (int r = 0; r < kWide; r++) lane_bits[r] = 1 << r;
    const WideInt bits = splat<WideInt>(int32_t(mask[i / 32] >> (i % 32) & 0xffff)) & load<WideInt>(lane_bits);
    return choose(greater(bits, splat<WideInt>(0)), v, nothing());
  }
  int32_t lowest_allowed() const {
    for (int32_t i = 0; mask && i < n; i++)
      if (mask[i / 32] >> (i % 32) & 1) return i;
    return 0;
  }
};

// The largest of at(i) and the lowest id that has it; id -1 when nothing is above -infinity.
struct Top {
  float logit;
  int32_t id;
};
template <class At>
HELIOS_INLINE Top largest(int32_t n, At at) {
  Wide best = nothing();
  WideInt best_id = splat<WideInt>(-1), id = ids_from(0);
  for (int32_t i = 0; i < n; i += kWide, id = id + splat<WideInt>(kWide)) {
    const Wide x = at(i);
    const WideInt better = greater(x, best);
    best = choose(better, x, best);
    best_id = choose(better, id, best_id);
  }
  float logits[kWide];
  int32_t ids[kWide];
  store(logits, best);
  store(ids, best_id);
  Top top{-INFINITY, -1};
  for (int r = 0; r < kWide; r++)
    if (logits[r] > top.logit || (logits[r] == top.logit && ids[r] >= 0 && ids[r] < top.id)) top = {logits[r], ids[r]};
  return top;
}

// Unnormalised probabilities: e^((x - max) / temperature), 0 below e^-87.
struct Weights {
  float max_logit, inverse_temperature;
  HELIOS_INLINE Wide of(Wide x) const {
    const Wide z = (x - splat<Wide>(max_logit)) * splat<Wide>(inverse_temperature);
    return choose(greater(z, splat<Wide>(-87.f)), exp(z), splat<Wide>(0.f));
  }
};

// Sums of f(i) (a vector of weights) over chunks of consecutive ids, and over all.
struct ChunkSums {
  static constexpr int kChunks = 256;
  int32_t chunk_size;
  double sums[kChunks], total = 0;

  template <class F>
  HELIOS_INLINE ChunkSums(int32_t n, F f) : chunk_size((n / kChunks + kWide) / kWide * kWide) {
    for (int32_t c = 0; c < kChunks; c++) {
      const int64_t begin = int64_t(c) * chunk_size, end = begin + chunk_size < n ? begin + chunk_size : n;
      Wide acc = splat<Wide>(0.f);
      for (int64_t i = begin; i < end; i += kWide) acc = acc + f(int32_t(i));
      sums[c] = sum_lanes(acc);
      total += sums[c];
    }
  }
};

}  // namespace helios
