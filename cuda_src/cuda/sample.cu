// The choice of a token from a row of logits. A block a row.
//
//   logits -> bias -> penalties -> mask -> / temperature -> top-k -> top-p -> min-p -> one draw against the running sum
//   in id order (logits.h and selection.h have the steps; bias is written into the row, and taken out again when
//   log-probabilities are asked for)
// Decided as on the host: when no token is left the lowest allowed id is chosen (0 when the mask allows none). A
// temperature below 1e-5 is greedy. A sample whose row, lane or slot is out of range gets token -1. Masses are whole
// numbers: the draw is exact.
//
// Floor: 4 bytes a token of the vocabulary and pass, from the second pass on out of the L2 cache. Greedy is 1 pass; a draw 2
// (the largest, the running sum); top-k to 128 adds 2, top-p alone 3, the log-probabilities and the best tokens 4. A row
// is one block's, so that a batch has no more blocks than lanes. As built: up to 146 registers a thread and 12,528 bytes of shared
// memory, 1 block a multiprocessor (2 up to sm_90a).
#include "philox.h"
#include "raw_distribution.h"
#include "selection.h"

namespace helios::cuda {

constexpr float kGreedyBelow = 1e-5f;

struct SampleScratch {
  RowScratch row;
  SelectionScratch selection;
  ListScratch list;
  float before_bias[HELIOS_MAX_BIAS];
  Cut cut;
  bool is_cut;
};

__device__ __forceinline__ unsigned long long share_of(float top_p, unsigned long long whole) {
  return __double2ull_rn((top_p > 0.f ? double(top_p) : 0.) * double(whole));
}
// The cut when it is among the first n_listed ids, which top-k allows (`is_top_k`) or may well not; one thread. `whole` is the
// mass that top-p has a share of, without top-k.
__device__ bool cut_in_list(const HeliosSamplingRow& s, const Weights& weights, int32_t n_listed, bool is_top_k,
                            unsigned long long whole, const Candidate* list, Cut& cut) {
  for (int32_t i = 0; is_top_k && i < n_listed; i++) whole += whole_weight(weights.of(list[i].logit));
  const unsigned long long enough = s.top_p < 1.f ? share_of(s.top_p, whole) : ~0ull;
  unsigned long long mass = 0;
  for (int32_t i = 0; i < n_listed; i++) {
    mass += whole_weight(weights.of(list[i].logit));
    cut = {list[i].logit, list[i].id};
    if (mass >= enough) return true;
  }
  return is_top_k;
}
__device__ Cut cut_for(const HeliosSamplingRow& s, const Logits& logits, const Weights& weights,
                       SampleScratch& scratch) {
  const bool has_top_k = s.top_k > 0 && s.top_k < logits.n, has_top_p = s.top_p < 1.f;
  if (!has_top_k && !has_top_p) return keep_all();
  const auto at = [&](int32_t i) { return logits.at(i); };
  unsigned long long whole = 0;
  if (!has_top_k) whole = sum_of_row(logits.n, scratch.row, [&](int32_t i) { return whole_weight(weights.of(at(i))); });
  const int32_t n_listed = has_top_k ? s.top_k : logits.n < kMostListed ? logits.n : kMostListed;
  if (n_listed <= kMostListed && list_top(logits.n, n_listed, scratch.list, at)) {
    if (threadIdx.x == 0)
      scratch.is_cut = cut_in_list(s, weights, n_listed, has_top_k, whole, scratch.list.sorted, scratch.cut);
    __syncthreads();
    if (scratch.is_cut) return scratch.cut;
  }
  Found by_count{keep_all(), whole};
  if (has_top_k)
    by_count = find_cut(logits, weights, {(unsigned long long)s.top_k, ~0ull}, scratch.row, scratch.selection);
  if (!has_top_p) return by_count.cut;
  const Goal goal{~0ull, share_of(s.top_p, by_count.mass)};
  return tighter(find_cut(logits, weights, goal, scratch.row, scratch.selection).cut, by_count.cut);
}

__device__ int32_t draw(const HeliosSamplingRow& s, const Logits& logits, const Weights& weights, unsigned long long u,
                        int32_t fallback, SampleScratch& scratch) {
  const Cut cut = cut_for(s, logits, weights, scratch);
  const float least = s.min_p > 0.f ? s.min_p < 1.f ? s.min_p : 1.f : 0.f;  // the largest weight is 1
  const auto kept = [&](int32_t i) {
    const float x = logits.at(i), weight = weights.of(x);
    return cut.keeps(x, i) && weight >= least ? whole_weight(weight) : 0ull;
  };
  const unsigned long long total = sum_of_runs(logits.n, scratch.row, kept);
  const unsigned long long target = __umul64hi(u << 11, total);  // floor(u / 2^53 * total) < total
  const int32_t token = id_where_sum_exceeds(logits.n, target, scratch.row, kept);
  return token < 0 ? fallback : token;
}

struct BiasEntry {
  int32_t id;
  float value;
};
// Adds the bias entries to the row, and takes them out again bit for bit. A thread owns every kRowThreads-th id, and sees
// all entries in order.
struct Bias {
  const BiasEntry* entries;
  int32_t n_entries;
  float* before;
  __device__ __forceinline__ bool is_mine(const Logits& logits, int32_t id) const {
    return id % kRowThreads == int32_t(threadIdx.x) && in_range(id, logits.n);
  }
  __device__ void add(const Logits& logits) const {
    __syncthreads();  // the raw row may still be read
    for (int32_t i = 0; i < n_entries; i++) {
      if (!is_mine(logits, entries[i].id)) continue;
      before[i] = logits.x[entries[i].id];
      logits.x[entries[i].id] += entries[i].value;
    }
    __syncthreads();
  }
  __device__ void take_out(const Logits& logits) const {
    __syncthreads();
    for (int32_t i = n_entries - 1; i >= 0; i--)
      if (is_mine(logits, entries[i].id)) logits.x[entries[i].id] = before[i];
    __syncthreads();
  }
};

__device__ int32_t choose_token(const HeliosSamplingRow& s, const Logits& logits, int32_t position,
                                SampleScratch& scratch) {
  const Candidate top = largest(logits.n, scratch.row, [&](int32_t i) { return logits.at(i); });
  if (top.id < 0) return logits.lowest_allowed();
  if (!(s.temperature >= kGreedyBelow)) return top.id;
  const Weights weights{top.logit, 1.f / s.temperature};
  return draw(s, logits, weights, uniform_draw(s.seed, uint32_t(position), 0), top.id, scratch);
}

__device__ Logits logits_of(const HeliosArgs_sample& a, const HeliosSamplingRow& s, int32_t index, int32_t lane,
                            int64_t slot) {
  Logits logits{as<float>(a.logits) + int64_t(index) * a.vocabulary, a.vocabulary, nullptr, nullptr, 1, 0, 0};
  if (as<int32_t>(a.lane_masked)[lane]) logits.mask = as<uint32_t>(a.mask) + int64_t(lane) * ((a.vocabulary + 31) / 32);
  if (s.flags & HELIOS_SAMPLING_PENALTIES) {
    logits.histogram = as<uint32_t>(a.histogram) + slot * a.vocabulary;
    logits.repetition = s.repetition_penalty;
    logits.frequency = s.frequency_penalty;
    logits.presence = s.presence_penalty;
  }
  return logits;
}
__device__ void sample_lane(const HeliosArgs_sample& a, int32_t index, int32_t lane, int64_t slot, int32_t position,
                            HeliosSample& out, SampleScratch& scratch) {
  const HeliosSamplingRow& s = as<HeliosSamplingRow>(a.sampling)[slot];
  const Logits logits = logits_of(a, s, index, lane, slot);
  const Bias bias{as<BiasEntry>(a.bias) + slot * HELIOS_MAX_BIAS,
                  s.flags & HELIOS_SAMPLING_BIAS ? clamp(s.n_bias, 0, HELIOS_MAX_BIAS) : 0, scratch.before_bias};
  if (!(s.flags & HELIOS_SAMPLING_LOGPROBS)) {
    bias.add(logits);
    const int32_t token = choose_token(s, logits, position, scratch);
    if (threadIdx.x == 0) out.token = token;
    return;
  }
  const RawDistribution raw(logits, scratch.row);
  raw.report_candidates(clamp(s.n_candidates, 0, HELIOS_MAX_CANDIDATES), scratch.list, out);
  bias.add(logits);
  const int32_t token = choose_token(s, logits, position, scratch);
  bias.take_out(logits);
  if (threadIdx.x == 0) out.token = token;
  raw.report_token(token, out);
}
__device__ void sample(const HeliosArgs_sample& a) {
  HELIOS_SHARED(SampleScratch, scratch, 1);
  const int32_t n_samples = live_count(a.counts, HELIOS_COUNT_SAMPLES, a.lanes_capacity);
  for (int32_t i = int32_t(blockIdx.x); i < n_samples; i += int32_t(gridDim.x)) {
    const int32_t row = as<int32_t>(a.sample_row)[i], lane = as<int32_t>(a.sample_lane)[i];
    HeliosSample& out = as<HeliosSample>(a.samples)[i];
    if (threadIdx.x == 0) {
      out = {};
      out.token = -1;
    }
    if (!in_range(row, a.rows_capacity) || !in_range(lane, a.lanes_capacity)) continue;
    const int32_t slot = as<int32_t>(a.row_slot)[row];
    if (in_range(slot, a.n_slots)) sample_lane(a, i, lane, slot, as<int32_t>(a.row_position)[row], out, scratch[0]);
  }
}

}  // namespace helios::cuda

HELIOS_CUDA_KERNEL(sample, helios::cuda::kRowThreads, a.lanes_capacity, helios::cuda::sample(a))
