// A row of logits as the sampler sees it: bias is in the row already, penalties and mask are applied on the fly, so the
// raw logits stay what they were. NaN counts as -infinity, +infinity as 3e38, and -0 as +0: equal logits have equal
// bits.
//
// The functions over a whole row are called by all threads of a block of kRowThreads and give every thread the same answer.
// They find extremes, or sum whole numbers, so that the order of the threads cannot show. A thread has kTogether logits on the
// way: 16 KiB a block.
#pragma once
#include "kernel.h"

namespace helios::cuda {

constexpr float kLargestLogit = 3e38f;
constexpr int kRowThreads = 256, kRowWarps = kRowThreads / kWarpLanes, kTogether = 16;

__device__ __forceinline__ float nothing() { return __uint_as_float(0xff800000u); }  // -infinity
__device__ __forceinline__ float usable(float x) { return x != x ? nothing() : x < kLargestLogit ? x : kLargestLogit; }

struct Logits {
  float* x;
  int32_t n;
  const uint32_t* histogram;  // null: no penalties
  const uint32_t* mask;       // null: everything is allowed
  float repetition, frequency, presence;

  __device__ __forceinline__ float raw(int32_t i) const { return usable(x[i]) + 0.f; }
  __device__ __forceinline__ float at(int32_t i) const {
    float v = usable(x[i]);
    if (histogram) v = penalised(v, histogram[i]);
    if (mask && !(mask[i / 32] >> (i % 32) & 1)) v = nothing();
    return v + 0.f;  // -0 -> +0
  }
  // The word's top bit is set when the token is in the prompt; its low 31 bits count the outputs.
  __device__ __forceinline__ float penalised(float v, uint32_t word) const {
    const int32_t count = int32_t(word & 0x7fffffffu);
    if (word != 0) v = v > 0.f ? v / repetition : v * repetition;
    return usable(v - frequency * float(count) - (count > 0 ? presence : 0.f));
  }
  __device__ int32_t lowest_allowed() const {
    for (int32_t i = 0; mask && i < n; i++)
      if (mask[i / 32] >> (i % 32) & 1) return i;
    return 0;
  }
};

// A logit and its token, in the order of likelihood: the larger logit, of equal ones the lower id. Id -1: none.
struct Candidate {
  float logit;
  int32_t id;
};
__device__ __forceinline__ bool is_before(const Candidate& a, const Candidate& b) {
  return a.id >= 0 && (b.id < 0 || a.logit > b.logit || (a.logit == b.logit && a.id < b.id));
}

// Calls use(i, at(i)) for the ids of this thread, ascending: every kRowThreads-th.
template <class At, class Use>
__device__ __forceinline__ void for_row(int32_t n, At at, Use use) {
  for (int64_t first = threadIdx.x; first < n; first += kRowThreads * kTogether) {
    decltype(at(0)) values[kTogether] = {};
    HELIOS_UNROLL
    for (int j = 0; j < kTogether; j++)
      if (first + j * kRowThreads < n) values[j] = at(int32_t(first) + j * kRowThreads);
    HELIOS_UNROLL
    for (int j = 0; j < kTogether; j++)
      if (first + j * kRowThreads < n) use(int32_t(first) + j * kRowThreads, values[j]);
  }
}

// Shared memory of the functions below; one for a block.
struct RowScratch {
  Candidate candidates[kRowWarps];
  unsigned long long numbers[kRowWarps], runs[kRowThreads];
  double masses[kRowWarps];
  int32_t found;
};

__device__ __forceinline__ Candidate first_of_block(Candidate mine, RowScratch& scratch) {
  for (int bits = kWarpLanes / 2; bits > 0; bits /= 2) {
    const Candidate other{__shfl_xor_sync(kAllLanes, mine.logit, bits), __shfl_xor_sync(kAllLanes, mine.id, bits)};
    if (is_before(other, mine)) mine = other;
  }
  __syncthreads();
  if (threadIdx.x % kWarpLanes == 0) scratch.candidates[threadIdx.x / kWarpLanes] = mine;
  __syncthreads();
  for (int warp = 0; warp < kRowWarps; warp++)
    if (is_before(scratch.candidates[warp], mine)) mine = scratch.candidates[warp];
  return mine;
}
// The most likely of at(i) that comes after `before` (id -1: of all), -infinity included.
template <class At>
__device__ Candidate next_candidate(int32_t n, Candidate before, RowScratch& scratch, At at) {
  Candidate mine{nothing(), -1};
  for_row(n, at, [&](int32_t i, float logit) {
    const Candidate candidate{logit, i};
    if ((before.id < 0 || is_before(before, candidate)) && is_before(candidate, mine)) mine = candidate;
  });
  return first_of_block(mine, scratch);
}
// The largest of at(i); id -1 when nothing is above -infinity.
template <class At>
__device__ Candidate largest(int32_t n, RowScratch& scratch, At at) {
  const Candidate top = next_candidate(n, Candidate{0.f, -1}, scratch, at);
  return top.logit > nothing() ? top : Candidate{nothing(), -1};
}

// Unnormalised probabilities: e^((x - max) / temperature), 0 below e^-87. As whole numbers they are in units of 2^-35,
// so that sums of 2^28 of them fit into 64 bits and do not depend on the order; what is less likely than the most
// likely by 2^36 counts as 0.
struct Weights {
  float max_logit, inverse_temperature;
  __device__ __forceinline__ float of(float x) const {
    const float z = (x - max_logit) * inverse_temperature;
    return z > -87.f ? expf(z) : 0.f;
  }
};
constexpr double kWeightUnits = double(1ull << 35);
__device__ __forceinline__ unsigned long long whole_weight(float weight) {
  return __double2ull_rn(double(weight) * kWeightUnits);
}

template <class F>
__device__ unsigned long long sum_of_row(int32_t n, RowScratch& scratch, F f) {
  unsigned long long sum = 0;
  for_row(n, f, [&](int32_t, unsigned long long value) { sum += value; });
  return combine_block<kRowWarps>(sum, scratch.numbers, Sum{});
}

// The running sum over the lanes of a warp, each lane's own included.
__device__ __forceinline__ unsigned long long running_sum(unsigned long long v) {
  const int lane = int(threadIdx.x) % kWarpLanes;
  for (int step = 1; step < kWarpLanes; step *= 2) {
    const unsigned long long before = __shfl_sync(kAllLanes, v, lane >= step ? lane - step : lane);
    if (lane >= step) v += before;
  }
  return v;
}
// A row is kRowThreads runs of consecutive ids, whole warps long.
__device__ __forceinline__ int32_t run_length(int32_t n) {
  return (n + kRowThreads * kWarpLanes - 1) / (kRowThreads * kWarpLanes) * kWarpLanes;
}
// The sum of f(i) over the row; what each run adds to it stays in `scratch.runs`. A warp has every kRowWarps-th run.
template <class F>
__device__ unsigned long long sum_of_runs(int32_t n, RowScratch& scratch, F f) {
  const int32_t lane = int32_t(threadIdx.x) % kWarpLanes, length = run_length(n);
  __syncthreads();  // the runs may still be read from the last time
  for (int run = int(threadIdx.x) / kWarpLanes; run < kRowThreads; run += kRowWarps) {
    const int64_t begin = int64_t(run) * length, left = n - begin;
    unsigned long long sum = 0;
    for (int32_t i = lane; i < length && i < left; i += kWarpLanes) sum += f(int32_t(begin) + i);
    if (left > 0) sum = combine_warp(sum, Sum{});
    if (lane == 0) scratch.runs[run] = sum;
  }
  __syncthreads();
  return combine_block<kRowWarps>(scratch.runs[threadIdx.x], scratch.numbers, Sum{});
}
// After sum_of_runs: the id at which the running sum of f(i), ids ascending, first exceeds `target`; -1 when it never does.
template <class F>
__device__ int32_t id_where_sum_exceeds(int32_t n, unsigned long long target, RowScratch& scratch, F f) {
  const int32_t me = int32_t(threadIdx.x), lane = me % kWarpLanes, warp = me / kWarpLanes, length = run_length(n);
  const unsigned long long mine = scratch.runs[me];
  unsigned long long end = running_sum(mine);
  __syncthreads();
  if (lane == kWarpLanes - 1) scratch.numbers[warp] = end;
  if (me == 0) scratch.found = -1;
  __syncthreads();
  for (int other = 0; other < warp; other++) end += scratch.numbers[other];
  const uint32_t here = __ballot_sync(kAllLanes, end > target && end - mine <= target);  // in one lane of the block, or none
  if (here) {
    const int from = __popc((here & -here) - 1);
    unsigned long long before = __shfl_sync(kAllLanes, end - mine, from);
    const int64_t begin = int64_t(warp * kWarpLanes + from) * length;
    for (int32_t i = lane;; i += kWarpLanes) {
      const unsigned long long sum = before + running_sum(begin + i < n ? f(int32_t(begin) + i) : 0ull);
      const uint32_t past = __ballot_sync(kAllLanes, sum > target);
      if (past && lane == __popc((past & -past) - 1)) scratch.found = int32_t(begin) + i;
      if (past) break;
      before = __shfl_sync(kAllLanes, sum, kWarpLanes - 1);
    }
  }
  __syncthreads();
  return scratch.found;
}

}  // namespace helios::cuda
