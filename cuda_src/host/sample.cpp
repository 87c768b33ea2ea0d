// The choice of a token from a row of logits.
//
//   logits -> bias -> penalties -> mask -> / temperature -> top-k -> top-p -> min-p -> one draw against the running sum
//   in id order
// A kept set is always a prefix of the order (larger logit first, lower id first on a tie), so a set is a Cut: a logit
// and the last id that still belongs among its equals. Cuts are found by radix selection on the bits of the logit (11 +
// 11 + 10), never by sorting. Bias is written into the row (and taken out again when log-probabilities are asked for);
// the rest is computed on the fly.
//
// Decided here: NaN counts as -infinity, +infinity as 3e38. When no token is left the lowest allowed id is chosen (0
// when the mask allows none). A temperature below 1e-5 is greedy. Log-probabilities are never below -9999. One lane is
// one task, so the bits depend on the lane alone. A sample whose row, lane or slot is out of range gets token -1.
//
// Bound: the row is 4 bytes a token, in cache from the head: greedy is one pass (about 10 us for 49152 tokens), a draw
// two more, top-k and top-p three or four more.
#include <float.h>

#include "host.h"
#include "philox.h"
#include "vec.h"

namespace helios {
namespace {

constexpr float kGreedyBelow = 1e-5f, kLowestLogprob = -9999.f, kLargestLogit = 3e38f;
constexpr int kChunks = 256;  // of the vocabulary, for running sums

const F8 kNothing = splat<F8>(-INFINITY);

HELIOS_INLINE F8 usable(F8 x) { return max(min(splat<F8>(kLargestLogit), x), kNothing); }

// 8 elements from i on, or those up to n with `fill` behind them.
template <class V, class E>
HELIOS_INLINE V load_up_to(const E* x, int32_t i, int32_t n, E fill) {
  if (i + 8 <= n) return load<V>(x + i);
  E lanes[8];
  for (int r = 0; r < 8; r++) lanes[r] = i + r < n ? x[i + r] : fill;
  return load<V>(lanes);
}

// A row of logits as the rest of this file sees it: after penalties and mask.
struct Logits {
  float* x;
  int32_t n;
  const uint32_t* histogram = nullptr;  // null: no penalties
  const uint32_t* mask = nullptr;       // null: everything is allowed
  float repetition = 1, frequency = 0, presence = 0;

  HELIOS_INLINE F8 raw(int32_t i) const { return usable(load_up_to<F8>(x, i, n, -INFINITY)); }
  HELIOS_INLINE F8 at(int32_t i) const {
    F8 v = raw(i);
    if (histogram) v = penalised(v, i);
    if (mask) v = masked(v, i);
    return v + splat<F8>(0.f);  // -0 -> +0: equal logits have equal bits
  }
  F8 penalised(F8 v, int32_t i) const {
    const I8 words = load_up_to<I8>(reinterpret_cast<const int32_t*>(histogram), i, n, 0);
    const I8 none = splat<I8>(0), counts = words & splat<I8>(0x7fffffff), is_output = greater(counts, none);
    const F8 zero = splat<F8>(0.f), one = splat<F8>(1.f);
    const F8 factor = splat<F8>(repetition), repeated = choose(greater(v, zero), v / factor, v * factor);
    const F8 untouched = choose(greater(none, words), repeated, choose(is_output, repeated, v));
    return usable(untouched - splat<F8>(frequency) * to_float(counts) -
                  choose(is_output, splat<F8>(presence) * one, zero));
  }
  F8 masked(F8 v, int32_t i) const {
    const uint32_t bits = mask[i / 32] >> (i % 32);
    int32_t lanes[8];
    for (int r = 0; r < 8; r++) lanes[r] = int32_t(bits >> r & 1);
    return choose(greater(load<I8>(lanes), splat<I8>(0)), v, kNothing);
  }
  int32_t lowest_allowed() const {
    if (mask)
      for (int32_t i = 0; i < n; i++)
        if (mask[i / 32] >> (i % 32) & 1) return i;
    return 0;
  }
};

HELIOS_INLINE I8 ids_from(int32_t i) {
  const int32_t lanes[8] = {i, i + 1, i + 2, i + 3, i + 4, i + 5, i + 6, i + 7};
  return load<I8>(lanes);
}

// The largest logit and the lowest id that has it; id -1 when there is no logit above -infinity.
struct Top {
  float logit;
  int32_t id;
};
template <class At>
HELIOS_INLINE Top largest(int32_t n, At at) {
  F8 best = kNothing;
  I8 best_id = splat<I8>(-1), id = ids_from(0);
  for (int32_t i = 0; i < n; i += 8, id = id + splat<I8>(8)) {
    const F8 x = at(i);
    const I8 better = greater(x, best);
    best = choose(better, x, best);
    best_id = choose(better, id, best_id);
  }
  float logits[8];
  int32_t ids[8];
  store(logits, best);
  store(ids, best_id);
  Top top{-INFINITY, -1};
  for (int r = 0; r < 8; r++)
    if (logits[r] > top.logit || (logits[r] == top.logit && ids[r] >= 0 && ids[r] < top.id)) top = {logits[r], ids[r]};
  return top;
}

// Tokens above `logit`, and those equal to it up to id `last_equal`.
struct Cut {
  float logit = -INFINITY;
  int32_t last_equal = -1;
  HELIOS_INLINE F8 keep(F8 x, int32_t i, F8 weight) const {
    const F8 edge = splat<F8>(logit), zero = splat<F8>(0.f);
    const F8 if_equal = choose(greater(ids_from(i), splat<I8>(last_equal)), zero, weight);
    return choose(greater(x, edge), weight, choose(greater(edge, x), zero, if_equal));
  }
};

// Unnormalised probabilities: e^((x - max) / temperature), 0 below e^-87.
struct Weights {
  const Logits& logits;
  float max_logit, inverse_temperature;
  HELIOS_INLINE F8 of(F8 x) const {
    const F8 z = (x - splat<F8>(max_logit)) * splat<F8>(inverse_temperature);
    return choose(greater(z, splat<F8>(-87.f)), exp(z), splat<F8>(0.f));
  }
};

// Running sums of f(i) (8 weights) over the vocabulary, in chunks of consecutive ids.
struct ChunkSums {
  int32_t chunk_size;
  double sums[kChunks], total = 0;

  template <class F>
  ChunkSums(int32_t n, F f) : chunk_size((n / kChunks + 8) / 8 * 8) {
    for (int32_t c = 0; c < kChunks; c++) {
      const int64_t begin = int64_t(c) * chunk_size, end = begin + chunk_size < n ? begin + chunk_size : n;
      F8 acc = splat<F8>(0.f);
      for (int64_t i = begin; i < end; i += 8) acc = acc + f(int32_t(i));
      sums[c] = sum_lanes(acc);
      total += sums[c];
    }
  }
};

// Order-preserving integer of a logit and back.
uint32_t key_of(float x) {
  const uint32_t b = bits_as<uint32_t>(x);
  return b & 0x80000000u ? ~b : b | 0x80000000u;
}
float logit_of(uint32_t key) { return bits_as<float>(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

// Finds the cut after `count` tokens, or the first one that holds `mass`.
class Selection {
 public:
  Selection(const Logits& logits, const Weights& weights) : logits_(logits), weights_(weights) {}

  struct Goal {
    int64_t count;  // most tokens
    double mass;    // enough mass; infinite: only the count matters
  };
  struct Found {
    Cut cut;
    double mass;  // of the kept tokens
  };
  Found find(Goal goal) {
    // Most goals lie within 16 temperatures of the largest logit: try without the long tail first.
    const float floor = weights_.max_logit - 16.f / weights_.inverse_temperature;
    Found found;
    if (!descend(goal, floor, found)) descend(goal, -FLT_MAX, found);
    return found;
  }

 private:
  static constexpr int kBits[3] = {11, 11, 10}, kBins = 2048;
  const Logits& logits_;
  const Weights& weights_;
  uint32_t count_[kBins];
  double mass_[kBins];

  // Counts and masses by the `bits` bits above `shift`, of logits with low <= logit <= high.
  void fill_bins(float low, float high, int shift, int bits) {
    memset(count_, 0, sizeof count_);
    memset(mass_, 0, sizeof mass_);
    for (int32_t i = 0; i < logits_.n; i += 8) {
      const F8 x = logits_.at(i);
      if (!(max_lanes(x) >= low)) continue;
      float lanes[8], weights[8];
      store(lanes, x);
      store(weights, weights_.of(x));
      for (int r = 0; r < 8; r++) {
        if (!(lanes[r] >= low && lanes[r] <= high)) continue;
        const uint32_t bin = key_of(lanes[r]) >> shift & ((1u << bits) - 1);
        count_[bin]++;
        mass_[bin] += double(weights[r]);
      }
    }
  }
  // False when the goal lies below `floor`; otherwise, or when there is nothing below it, true.
  bool descend(Goal goal, float floor, Found& found) {
    float low = floor, high = FLT_MAX;
    uint32_t prefix = 0;
    int64_t count = 0;
    double mass = 0;
    for (int level = 0, shift = 32; level < 3; level++) {
      shift -= kBits[level];
      fill_bins(low, high, shift, kBits[level]);
      int32_t bin = (1 << kBits[level]) - 1, lowest = -1;
      for (; bin >= 0; bin--) {
        if (count_[bin] == 0) continue;
        lowest = bin;
        if (count + count_[bin] >= goal.count || mass + mass_[bin] >= goal.mass) break;
        count += count_[bin];
        mass += mass_[bin];
      }
      if (bin < 0) {  // not reached: by less than rounding inside a bin, or in the tail at the top
        if (level == 0 && floor > -FLT_MAX) return false;
        if (level == 0 || lowest < 0)
          return found = {Cut{}, mass}, true;  // the goal is more than there is: keep everything
        bin = lowest;
        count -= count_[bin];
        mass -= mass_[bin];
      }
      prefix |= uint32_t(bin) << shift;
      low = logit_of(prefix);
      high = logit_of(prefix | ((1u << shift) - 1));
    }
    finish(goal, low, count_[prefix & ((1u << kBits[2]) - 1)], count, mass, found);
    return true;
  }
  // `n_equal` tokens have the logit at the cut, after `count` larger ones: keep as many as the goal needs, lowest ids
  // first.
  void finish(Goal goal, float logit, int64_t n_equal, int64_t count, double mass, Found& found) const {
    float weight[8];
    store(weight, weights_.of(splat<F8>(logit)));
    int64_t wanted = goal.count - count < n_equal ? goal.count - count : n_equal;
    if (double(weight[0]) * double(wanted) + mass >= goal.mass) {
      const double needed = (goal.mass - mass) / double(weight[0]);
      const int64_t whole = int64_t(needed) + (needed > double(int64_t(needed)));
      wanted = whole < 1 ? 1 : whole < wanted ? whole : wanted;
    }
    found.mass = mass + double(wanted) * double(weight[0]);
    found.cut = {logit, last_of(logit, wanted)};
  }
  int32_t last_of(float logit, int64_t n) const {
    for (int32_t i = 0; i < logits_.n; i += 8) {
      float lanes[8];
      store(lanes, logits_.at(i));
      for (int r = 0; r < 8; r++)
        if (lanes[r] == logit && --n <= 0) return i + r;
    }
    return logits_.n;
  }
};
constexpr int Selection::kBits[3];

Cut tighter(Cut a, Cut b) { return a.logit > b.logit || (a.logit == b.logit && a.last_equal < b.last_equal) ? a : b; }

Cut cut_for(const HeliosSamplingRow& s, const Logits& logits, const Weights& weights) {
  const bool has_top_k = s.top_k > 0 && s.top_k < logits.n, has_top_p = s.top_p < 1.f;
  if (!has_top_k && !has_top_p) return {};
  Selection selection(logits, weights);
  Selection::Found by_count{{}, 0};
  if (has_top_k) by_count = selection.find({s.top_k, double(INFINITY)});
  if (!has_top_p) return by_count.cut;
  const double whole =
      has_top_k ? by_count.mass : ChunkSums(logits.n, [&](int32_t i) { return weights.of(logits.at(i)); }).total;
  const double share = s.top_p > 0.f ? double(s.top_p) : 0.;
  return tighter(selection.find({INT32_MAX, share * whole}).cut, by_count.cut);
}

int32_t draw(const HeliosSamplingRow& s, const Logits& logits, const Weights& weights, double u, int32_t fallback) {
  const Cut cut = cut_for(s, logits, weights);
  const F8 least = splat<F8>(s.min_p > 0.f ? s.min_p < 1.f ? s.min_p : 1.f : 0.f);  // the largest weight is 1
  const auto kept = [&](int32_t i) __attribute__((always_inline)) {
    const F8 x = logits.at(i), weight = cut.keep(x, i, weights.of(x));
    return choose(greater(least, weight), splat<F8>(0.f), weight);
  };
  const ChunkSums sums(logits.n, kept);
  const double target = u * sums.total;
  double running = 0;
  int32_t chunk = -1;
  for (int32_t c = 0; c < kChunks; c++) {
    if (!(sums.sums[c] > 0)) continue;
    if (chunk >= 0) running += sums.sums[chunk];
    chunk = c;
    if (running + sums.sums[c] > target) break;
  }
  if (chunk < 0) return fallback;
  int32_t token = fallback;
  const int32_t begin = chunk * sums.chunk_size,
                end = begin + sums.chunk_size < logits.n ? begin + sums.chunk_size : logits.n;
  for (int32_t i = begin; i < end; i += 8) {
    float lanes[8];
    store(lanes, kept(i));
    for (int r = 0; r < 8; r++) {
      if (!(lanes[r] > 0.f)) continue;
      token = i + r;
      running += double(lanes[r]);
      if (running > target) return token;
    }
  }
  return token;  // rounding left the target at the chunk's very end
}

// ln(v) for finite v > 0: v = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m - 1) / (m + 1)).
double natural_log(double v) {
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
    const float top = largest(logits.n, [&](int32_t i) { return logits.raw(i); }).logit;
    if (!(top > -INFINITY)) {
      log_total = INFINITY;
      return;
    }
    const Weights weights{logits, top, 1.f};
    log_total =
        double(top) + natural_log(ChunkSums(logits.n, [&](int32_t i) { return weights.of(logits.raw(i)); }).total);
  }
  float logprob(float x) const {
    const double p = double(x) - log_total;
    return p > double(kLowestLogprob) ? float(p) : kLowestLogprob;
  }
  void report_candidates(int32_t n, HeliosSample& out) const {
    float best[HELIOS_MAX_CANDIDATES];
    int32_t found = 0;
    for (int32_t i = 0; n > 0 && i < logits.n; i += 8) {
      const F8 x = logits.raw(i);
      if (found == n && !(max_lanes(x) > best[n - 1])) continue;
      float lanes[8];
      store(lanes, x);
      for (int32_t r = 0; r < 8 && i + r < logits.n; r++) {
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
    float lanes[8];
    store(lanes, logits.raw(token / 8 * 8));
    const float x = lanes[token % 8];
    out.logprob = logprob(x);
    out.rank = 1;
    for (int32_t i = 0; i < logits.n; i += 8) {
      const F8 v = logits.raw(i);
      if (!(max_lanes(v) >= x)) continue;
      store(lanes, v);
      for (int32_t r = 0; r < 8 && i + r < logits.n; r++) out.rank += lanes[r] > x || (lanes[r] == x && i + r < token);
    }
  }
};

// Adds the bias entries to the row and takes them out again, bit for bit.
struct Bias {
  struct Entry {
    int32_t id;
    float value;
  };
  float* x;
  int32_t n, n_entries;
  const Entry* entries;
  float before[HELIOS_MAX_BIAS];

  Bias(const Logits& logits, const HeliosSamplingRow& s, const void* entries)
      : x(logits.x),
        n(logits.n),
        n_entries(s.flags & HELIOS_SAMPLING_BIAS ? clamp(s.n_bias, 0, HELIOS_MAX_BIAS) : 0),
        entries(as<Entry>(entries)) {}
  void add() {
    for (int32_t i = 0; i < n_entries; i++) {
      if (!in_range(entries[i].id, n)) continue;
      before[i] = x[entries[i].id];
      x[entries[i].id] += entries[i].value;
    }
  }
  void take_out() {
    for (int32_t i = n_entries - 1; i >= 0; i--)
      if (in_range(entries[i].id, n)) x[entries[i].id] = before[i];
  }
};

int32_t choose_token(const HeliosSamplingRow& s, const Logits& logits, int32_t position) {
  const Top top = largest(logits.n, [&](int32_t i) { return logits.at(i); });
  if (top.id < 0) return logits.lowest_allowed();
  if (!(s.temperature >= kGreedyBelow)) return top.id;
  const Weights weights{logits, top.logit, 1.f / s.temperature};
  return draw(s, logits, weights, uniform_draw(s.seed, uint32_t(position), 0), top.id);
}

struct Sample {
  using Args = HeliosArgs_sample;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (a.lanes_capacity <= 0 || a.rows_capacity <= 0 || a.n_slots <= 0 || !is_width(a.vocabulary)) return false;
    const Size lanes(a.lanes_capacity), rows(a.rows_capacity), slots(a.n_slots), vocabulary(a.vocabulary);
    e.counts = Size(16);
    e.sample_row = e.sample_lane = e.lane_masked = lanes * 4;
    e.row_position = e.row_slot = rows * 4;
    e.mask = lanes * divide_up(vocabulary, 32) * 4;
    e.sampling = slots * sizeof(HeliosSamplingRow);
    e.bias = slots * int32_t(HELIOS_MAX_BIAS * sizeof(Bias::Entry));
    e.histogram = slots * vocabulary * 4;
    e.logits = lanes * vocabulary * 4;
    e.samples = lanes * sizeof(HeliosSample);
    return true;
  }
  static int32_t n_tasks(const Args& a, int32_t) {
    return live_count(a.counts, HELIOS_COUNT_SAMPLES, a.lanes_capacity);
  }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    for (int32_t i = task; i < live_count(a.counts, HELIOS_COUNT_SAMPLES, a.lanes_capacity); i += n_tasks) {
      const int32_t row = as<int32_t>(a.sample_row)[i], lane = as<int32_t>(a.sample_lane)[i];
      HeliosSample& out = as<HeliosSample>(a.samples)[i];
      out = {};
      out.token = -1;
      if (!in_range(row, a.rows_capacity) || !in_range(lane, a.lanes_capacity)) continue;
      const int32_t slot = as<int32_t>(a.row_slot)[row];
      if (in_range(slot, a.n_slots)) sample_lane(a, i, lane, slot, as<int32_t>(a.row_position)[row], out);
    }
  }
  static void sample_lane(const Args& a, int32_t index, int32_t lane, int64_t slot, int32_t position,
                          HeliosSample& out) {
    const HeliosSamplingRow& s = as<HeliosSamplingRow>(a.sampling)[slot];
    Logits logits{as<float>(a.logits) + int64_t(index) * a.vocabulary, a.vocabulary};
    if (as<int32_t>(a.lane_masked)[lane])
      logits.mask = as<uint32_t>(a.mask) + int64_t(lane) * ((a.vocabulary + 31) / 32);
    if (s.flags & HELIOS_SAMPLING_PENALTIES) {
      logits.histogram = as<uint32_t>(a.histogram) + slot * a.vocabulary;
      logits.repetition = s.repetition_penalty;
      logits.frequency = s.frequency_penalty;
      logits.presence = s.presence_penalty;
    }
    Bias bias(logits, s, as<char>(a.bias) + slot * int64_t(HELIOS_MAX_BIAS * sizeof(Bias::Entry)));
    if (!(s.flags & HELIOS_SAMPLING_LOGPROBS)) {
      bias.add();
      out.token = choose_token(s, logits, position);
      return;
    }
    const RawDistribution raw(logits);
    raw.report_candidates(clamp(s.n_candidates, 0, HELIOS_MAX_CANDIDATES), out);
    bias.add();
    out.token = choose_token(s, logits, position);
    bias.take_out();
    raw.report_token(out.token, out);
  }
};

}  // namespace

HELIOS_HOST_KERNEL(sample, Sample)

}  // namespace helios
