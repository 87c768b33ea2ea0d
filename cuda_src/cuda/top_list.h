// The most likely ids of a row in order, up to kMostListed of them, in two passes: the best of each thread, then all that come
// no later than the k-th of those, which at least k ids do. How many more they are hangs on how the row lies: a list that does
// not fit is none, and the caller has another way.
#pragma once
#include "logits.h"

namespace helios::cuda {

constexpr int kMostListed = 128;

struct ListScratch {
  Candidate gathered[kRowThreads], sorted[kMostListed];
  Candidate last;
  int32_t n_gathered;
};

// How many of others[0 .. n) come before `mine`.
__device__ __forceinline__ int32_t rank_among(const Candidate* others, int32_t n, const Candidate& mine) {
  int32_t rank = 0;
  for (int32_t i = 0; i < n; i++) rank += is_before(others[i], mine);
  return rank;
}

// Puts the first k of the order of at(i) into scratch.sorted, k <= kMostListed and k <= n, -infinity included; whether it could.
template <class At>
__device__ bool list_top(int32_t n, int32_t k, ListScratch& scratch, At at) {
  const int32_t me = int32_t(threadIdx.x), n_threads = n < kRowThreads ? n : kRowThreads;
  Candidate mine{nothing(), -1};
  for_row(n, at, [&](int32_t i, float logit) {
    if (is_before(Candidate{logit, i}, mine)) mine = {logit, i};
  });
  __syncthreads();  // the list may still be read from the last time
  scratch.gathered[me] = mine;
  if (me == 0) scratch.n_gathered = 0;
  __syncthreads();
  if (me < n_threads && rank_among(scratch.gathered, n_threads, mine) == k - 1) scratch.last = mine;
  __syncthreads();
  const Candidate last = scratch.last;
  for_row(n, at, [&](int32_t i, float logit) {
    if (is_before(last, Candidate{logit, i})) return;
    const int32_t place = atomicAdd(&scratch.n_gathered, 1);
    if (place < kRowThreads) scratch.gathered[place] = {logit, i};
  });
  __syncthreads();
  const int32_t n_gathered = scratch.n_gathered;
  if (n_gathered > kRowThreads) return false;
  if (me < n_gathered) {
    const int32_t rank = rank_among(scratch.gathered, n_gathered, scratch.gathered[me]);
    if (rank < k) scratch.sorted[rank] = scratch.gathered[me];
  }
  __syncthreads();
  return true;
}

}  // namespace helios::cuda
