// A row of logits as the sampler sees it: bias is in the row already, penalties and mask are applied on the fly, so the
// raw logits stay what they were. NaN counts as -infinity, +infinity as 3e38, and -0 as +0: equal logits have equal
// bits.
//
// The functions over a whole row are called by all threads of a block and give every thread the same answer. They find
// extremes, or sum whole numbers, so that the order of the threads cannot show.
#pragma once
#include "kernel.h"

namespace helios::cuda {

constexpr float kLargestLogit = 3e38f;

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

// Shared memory of the functions below; one for a block.
struct RowScratch {
  Candidate candidates[kWarps];
  unsigned long long numbers[kWarps];
  double masses[kWarps];
};

__device__ __forceinline__ Candidate first_of_block(Candidate mine, RowScratch& scratch) {
  for (int bits = kWarpLanes / 2; bits > 0; bits /= 2) {
    const Candidate other{__shfl_xor_sync(kAllLanes, mine.logit, bits), __shfl_xor_sync(kAllLanes, mine.id, bits)};
    if (is_before(other, mine)) mine = other;
  }
  __syncthreads();
  if (threadIdx.x % kWarpLanes == 0) scratch.candidates[threadIdx.x / kWarpLanes] = mine;
  __syncthreads();
  for (int warp = 0; warp < kWarps; warp++)
    if (is_before(scratch.candidates[warp], mine)) mine = scratch.candidates[warp];
  return mine;
}
// The most likely of at(i) that comes after `before` (id -1: of all), -infinity included.
template <class At>
__device__ Candidate next_candidate(int32_t n, Candidate before, RowScratch& scratch, At at) {
  Candidate mine{nothing(), -1};
  for (int32_t i = int32_t(threadIdx.x); i < n; i += kThreads) {
    const Candidate candidate{at(i), i};
    if ((before.id < 0 || is_before(before, candidate)) && is_before(candidate, mine)) mine = candidate;
  }
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
  for (int32_t i = int32_t(threadIdx.x); i < n; i += kThreads) sum += f(i);
  return combine_block(sum, scratch.numbers, Sum{});
}

// Finds the id at which the running sum of f(i), ids ascending, first exceeds `target`; -1 when it never does. Each
// thread has a run of consecutive ids; the one in whose run it happens walks it.
template <class F>
__device__ int32_t id_where_sum_exceeds(int32_t n, unsigned long long target, unsigned long long (&sums)[kThreads],
                                        int32_t& found, F f) {
  const int32_t me = int32_t(threadIdx.x), each = (n + kThreads - 1) / kThreads;
  const int64_t begin = int64_t(me) * each, end = begin + each < n ? begin + each : n;
  unsigned long long sum = 0, running = 0;
  for (int64_t i = begin; i < end; i++) sum += f(int32_t(i));
  __syncthreads();
  sums[me] = sum;
  if (me == 0) found = -1;
  __syncthreads();
  for (int32_t other = 0; other < me; other++) running += sums[other];
  if (running <= target && running + sum > target) {
    int64_t i = begin;
    while ((running += f(int32_t(i))) <= target) i++;
    found = int32_t(i);
  }
  __syncthreads();
  return found;
}

}  // namespace helios::cuda
