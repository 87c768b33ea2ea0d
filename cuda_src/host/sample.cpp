// The choice of a token from a row of logits.
//
//   logits -> bias -> penalties -> mask -> / temperature -> top-k -> top-p -> min-p -> one draw against the running sum
//   in id order (logits.h, selection.h and nucleus.h have the steps; bias is written into the row, and taken out again when
//   log-probabilities are asked for)
//
// Decided here: when no token is left the lowest allowed id is chosen (0 when the mask allows none). A temperature
// below 1e-5 is greedy. A sample whose row, lane or slot is out of range gets token -1. One lane is one task, so the bits
// depend on the lane alone.
//
// Bound: the row is 4 bytes a token, in cache from the head. Passes over it: greedy one (about 10 us for 49152 tokens),
// a draw one more (exponentials, 13 us), top-k two more that skip nearly everything, top-p alone three more.
#include "nucleus.h"
#include "philox.h"
#include "raw_distribution.h"

namespace helios {
namespace {

constexpr float kGreedyBelow = 1e-5f;

Cut cut_for(const HeliosSamplingRow& s, const Logits& logits, const Weights& weights) {
  const bool has_top_k = s.top_k > 0 && s.top_k < logits.n, has_top_p = s.top_p < 1.f;
  if (!has_top_k && !has_top_p) return {};
  const double share = s.top_p > 0.f ? double(s.top_p) : 0.;
  if (!has_top_k) return Nucleus(logits, weights).find(share);
  Selection selection(logits, weights);
  const Selection::Found by_count = selection.find({s.top_k, double(INFINITY)});
  if (!has_top_p) return by_count.cut;
  return tighter(selection.find({INT32_MAX, share * by_count.mass}).cut, by_count.cut);
}

int32_t draw(const HeliosSamplingRow& s, const Logits& logits, const Weights& weights, double u, int32_t fallback) {
  const Cut cut = cut_for(s, logits, weights);
  const Wide least = splat<Wide>(s.min_p > 0.f ? s.min_p < 1.f ? s.min_p : 1.f : 0.f);  // the largest weight is 1
  const bool has_cut = cut.logit > -INFINITY;
  const auto kept = [&](int32_t i) __attribute__((always_inline)) {
    const Wide x = logits.at(i), zero = splat<Wide>(0.f);
    if (has_cut && !(max_lanes(x) >= cut.logit)) return zero;
    const Wide weight = has_cut ? cut.keep(x, i, weights.of(x)) : weights.of(x);
    return choose(greater(least, weight), zero, weight);
  };
  const ChunkSums sums(logits.n, kept);
  const double target = u * sums.total;
  double running = 0;
  int32_t chunk = -1;
  for (int32_t c = 0; c < ChunkSums::kChunks; c++) {
    if (!(sums.sums[c] > 0)) continue;
    if (chunk >= 0) running += sums.sums[chunk];
    chunk = c;
    if (running + sums.sums[c] > target) break;
  }
  if (chunk < 0) return fallback;
  int32_t token = fallback;
  const int64_t begin = int64_t(chunk) * sums.chunk_size, end = begin + sums.chunk_size;
  for (int32_t i = int32_t(begin); i < logits.n && i < end; i += kWide) {
    float lanes[kWide];
    store(lanes, kept(i));
    for (int r = 0; r < kWide; r++) {
      if (!(lanes[r] > 0.f)) continue;
      token = i + r;
      running += double(lanes[r]);
      if (running > target) return token;
    }
  }
  return token;  // rounding left the target at the chunk's very end
}

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
  const auto logits_at = [&](int32_t i) __attribute__((always_inline)) { return logits.at(i); };
  const Top top = largest(logits.n, logits_at);
  if (top.id < 0) return logits.lowest_allowed();
  if (!(s.temperature >= kGreedyBelow)) return top.id;
  const Weights weights{top.logit, 1.f / s.temperature};
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
      logits.histogram = as<int32_t>(a.histogram) + slot * a.vocabulary;
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
