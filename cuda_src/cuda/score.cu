// Scores of prompt tokens: what the raw distribution of a row says about the token that really follows. A block a row.
//
// Floor: 4 bytes a token of the vocabulary, 5 times, from the second on out of the L2 cache. As built: up to 96 registers a
// thread and 5,332 bytes of shared memory, 2 blocks a multiprocessor.
#include "raw_distribution.h"

namespace helios::cuda {

__device__ void score(const HeliosArgs_score& a) {
  HELIOS_SHARED(RowScratch, scratch, 1);
  HELIOS_SHARED(ListScratch, list, 1);
  const int32_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity);
  for (int32_t i = int32_t(blockIdx.x); i < n_rows; i += int32_t(gridDim.x)) {
    const int32_t target = as<int32_t>(a.targets)[i];
    HeliosSample& out = as<HeliosSample>(a.scores)[i];
    const bool is_token = in_range(target, a.vocabulary);
    if (threadIdx.x == 0) {
      out = {};
      out.token = is_token ? target : -1;
    }
    if (!is_token) continue;
    float* x = const_cast<float*>(as<float>(a.logits)) + int64_t(i) * a.vocabulary;  // only read
    const Logits logits{x, a.vocabulary, nullptr, nullptr, 1, 0, 0};
    const RawDistribution raw(logits, scratch[0]);
    raw.report_token(target, out);
    raw.report_candidates(a.n_candidates, list[0], out);
  }
}

}  // namespace helios::cuda

HELIOS_CUDA_KERNEL(score, helios::cuda::kRowThreads, a.rows_capacity, helios::cuda::score(a))
