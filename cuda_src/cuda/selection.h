// Top-k and top-p without sorting. A kept set is always a prefix of the order "larger logit first, lower id first on a
// tie", so it is a Cut: a logit, and the last id that still belongs among its equals. A cut that the list of the best
// (top_list.h) does not hold is found by radix selection on the bits of the logit, 8 at a time, counting tokens and mass
// from the top. Most logits share their first bits, so a warp adds what its lanes have for a bin at once. Counts and masses
// are whole numbers: the result depends on the row and the goal alone.
#pragma once
#include "logits.h"

namespace helios::cuda {

struct Cut {
  float logit;
  int32_t last_equal;
  __device__ __forceinline__ bool keeps(float x, int32_t id) const {
    return x > logit || (x == logit && id <= last_equal);
  }
};
__device__ __forceinline__ Cut keep_all() { return {nothing(), INT32_MAX}; }
__device__ __forceinline__ Cut tighter(const Cut& a, const Cut& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.last_equal < b.last_equal) ? a : b;
}

constexpr int kRadixBits = 8, kBins = 1 << kRadixBits;

struct Goal {
  unsigned long long count, mass;  // most tokens; enough mass
};
struct Found {
  Cut cut;
  unsigned long long mass;  // of the kept tokens
};
struct SelectionScratch {
  unsigned long long masses[kBins], mass_above;
  uint32_t counts[kBins], count_above;
  int32_t bin;
};

// An order-preserving integer of a logit, and back.
__device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float logit_of(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// Counts and masses by the 8 bits above `shift`, of keys that begin with `prefix`.
__device__ inline void fill_bins(const Logits& logits, const Weights& weights, uint32_t prefix, int shift,
                                 SelectionScratch& s) {
  __syncthreads();
  for (int bin = int(threadIdx.x); bin < kBins; bin += kRowThreads) s.counts[bin] = 0, s.masses[bin] = 0;
  __syncthreads();
  HELIOS_NO_UNROLL
  for (int64_t begin = 0; begin < logits.n; begin += kRowThreads) {
    const int64_t i = begin + threadIdx.x;
    const float x = i < logits.n ? logits.at(int32_t(i)) : nothing();
    const uint32_t key = key_of(x), bin = key >> shift & (kBins - 1);
    const bool is_in = x > nothing() && (shift + kRadixBits == 32 || key >> (shift + kRadixBits) == prefix);
    const unsigned long long mass = is_in ? whole_weight(weights.of(x)) : 0;
    for (uint32_t left = __ballot_sync(kAllLanes, is_in); left != 0;) {
      const int first = __popc((left & -left) - 1);
      const uint32_t of_first = __shfl_sync(kAllLanes, bin, first);
      const bool is_same = is_in && bin == of_first;
      const uint32_t same = __ballot_sync(kAllLanes, is_same);
      const unsigned long long sum = combine_warp(is_same ? mass : 0ull, Sum{});
      if (int(threadIdx.x) % kWarpLanes == first) {
        atomicAdd(&s.counts[bin], uint32_t(__popc(same)));
        atomicAdd(&s.masses[bin], sum);
      }
      left &= ~same;
    }
  }
  __syncthreads();
}
// Walks down from the top bin to the one where the goal is met; -1 when it is not. One thread.
__device__ inline int find_bin(const Goal& goal, SelectionScratch& s) {
  for (int bin = kBins - 1; bin >= 0; bin--) {
    if (s.counts[bin] == 0) continue;
    if (s.count_above + s.counts[bin] >= goal.count || s.mass_above + s.masses[bin] >= goal.mass) return bin;
    s.count_above += s.counts[bin];
    s.mass_above += s.masses[bin];
  }
  return -1;
}
// The cut at which the goal is met; everything is kept when the goal is more than there is.
__device__ inline Found find_cut(const Logits& logits, const Weights& weights, const Goal& goal, RowScratch& row,
                                 SelectionScratch& s) {
  uint32_t prefix = 0;
  __syncthreads();
  if (threadIdx.x == 0) s.count_above = 0, s.mass_above = 0;
  for (int shift = 32 - kRadixBits; shift >= 0; shift -= kRadixBits) {
    fill_bins(logits, weights, prefix, shift, s);
    if (threadIdx.x == 0) s.bin = find_bin(goal, s);
    __syncthreads();
    if (s.bin < 0) return {keep_all(), s.mass_above};
    prefix = prefix << kRadixBits | uint32_t(s.bin);
  }
  // s.count_above larger ones; of their equals as many as the goal needs, lowest ids first.
  const float logit = logit_of(prefix);
  const unsigned long long each = whole_weight(weights.of(logit)), n_equal = s.counts[prefix & (kBins - 1)];
  const unsigned long long n_left = goal.count - s.count_above;
  unsigned long long wanted = n_left < n_equal ? n_left : n_equal;
  if (s.mass_above + each * wanted >= goal.mass && each != 0) {
    const unsigned long long needed = goal.mass > s.mass_above ? (goal.mass - s.mass_above + each - 1) / each : 0;
    wanted = needed < 1 ? 1 : needed < wanted ? needed : wanted;
  }
  const unsigned long long mass = s.mass_above + each * wanted;
  if (wanted == n_equal) return {{logit, INT32_MAX}, mass};
  const auto is_equal = [&](int32_t i) { return (unsigned long long)(logits.at(i) == logit); };
  sum_of_runs(logits.n, row, is_equal);
  return {{logit, id_where_sum_exceeds(logits.n, wanted - 1, row, is_equal)}, mass};
}

}  // namespace helios::cuda
