// Partial pages copied to rows of state and back. Parts of 16 KiB, a block each; 16 bytes a thread and step, or words or
// bytes where the strides are no multiples of that. Indices that do not exist are skipped, as kernels.h says.
//
// Floor: 2 bytes a byte copied. As built: up to 54 registers a thread and 0 bytes of shared memory, 9 blocks a multiprocessor.
#include "chunks.h"
#include "kv_pages.h"

namespace helios::cuda {

constexpr int64_t kPartBytes = 16 << 10;

template <class Args>
__host__ __device__ inline int64_t n_parts(const Args& a) {
  return (a.page_nbytes + kPartBytes - 1) / kPartBytes;
}
template <bool kIsSave, class Args>
__device__ void copy_pages(const Args& a) {
  const int64_t n_copies = live_count(a.n_lanes, a.lanes_capacity) * n_parts(a);
  for (int64_t i = blockIdx.x; i < n_copies; i += gridDim.x) {
    const int64_t lane = i / n_parts(a), begin = i % n_parts(a) * kPartBytes;
    const int32_t endpoint = as<int32_t>(a.lane_endpoint)[lane], row = as<int32_t>(a.lane_row)[lane];
    if (endpoint < 0 || endpoint % kPageTokens == 0 || !in_range(row, a.n_rows)) continue;
    const char* page = page_at(a, as<int32_t>(a.lane_slot)[lane], endpoint / kPageTokens);
    if (!page) continue;
    const char* saved = static_cast<const char*>(a.rows) + row * a.row_stride;
    const char *from = kIsSave ? page : saved, *to = kIsSave ? saved : page;
    const int64_t left = a.page_nbytes - begin;
    copy_bytes(const_cast<char*>(to) + begin, from + begin, left < kPartBytes ? left : kPartBytes);
  }
}

}  // namespace helios::cuda

HELIOS_CUDA_KERNEL(page_save, helios::cuda::kThreads, a.lanes_capacity* helios::cuda::n_parts(a),
                   helios::cuda::copy_pages<true>(a))
HELIOS_CUDA_KERNEL(page_restore, helios::cuda::kThreads, a.lanes_capacity* helios::cuda::n_parts(a),
                   helios::cuda::copy_pages<false>(a))
