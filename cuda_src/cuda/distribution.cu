// Whole rows of raw logits with the logarithm of their total, for the lanes that ask for them. A block a row; each finds its
// own place by counting those that ask before it.
//
// Floor: 4 bytes a token of the vocabulary, read 3 times, from the second on out of the L2 cache, and written once. As built:
// up to 71 registers a thread and 2,248 bytes of shared memory, 3 blocks a multiprocessor.
#include "raw_distribution.h"

namespace helios::cuda {

__device__ bool is_asked_for(const HeliosArgs_distribution& a, int32_t index) {
  const int32_t row = as<int32_t>(a.rows)[index];
  if (!in_range(row, a.rows_capacity)) return false;
  const int32_t slot = as<int32_t>(a.row_slot)[row];
  return in_range(slot, a.n_slots) && (as<HeliosSamplingRow>(a.sampling)[slot].flags & a.flag);
}

__device__ void distribution(const HeliosArgs_distribution& a) {
  HELIOS_SHARED(RowScratch, scratch, 1);
  const int32_t n_rows = live_count(a.n_rows, a.logits_capacity);
  for (int32_t i = int32_t(blockIdx.x); i < n_rows; i += int32_t(gridDim.x)) {
    if (!is_asked_for(a, i)) continue;
    int32_t place = 0;
    for (int32_t before = 0; before < i; before++) place += is_asked_for(a, before);
    if (place >= a.distributions_capacity) continue;
    float* x = const_cast<float*>(as<float>(a.logits)) + int64_t(i) * a.vocabulary;  // only read
    const Logits logits{x, a.vocabulary, nullptr, nullptr, 1, 0, 0};
    const RawDistribution raw(logits, scratch[0]);
    char* out = as<char>(a.distributions) + place * HELIOS_DISTRIBUTION_NBYTES(a.vocabulary);
    if (threadIdx.x == 0) {
      double* head = reinterpret_cast<double*>(out);
      head[0] = raw.log_total;
      head[1] = 0;
    }
    float* row = reinterpret_cast<float*>(out + 2 * sizeof(double));
    for (int32_t token = int32_t(threadIdx.x); token < a.vocabulary; token += kRowThreads) row[token] = logits.raw(token);
  }
}

}  // namespace helios::cuda

HELIOS_CUDA_KERNEL(distribution, helios::cuda::kRowThreads, a.logits_capacity, helios::cuda::distribution(a))
