// Where a position's keys and values are: the page table walked with every index checked.
// Inside a page, for each KV head: K fp16 [head_dim][16 positions], V fp16 [16 positions][head_dim] (kernels.h).
#pragma once
#include "kernel.h"

namespace helios::cuda {

constexpr int kPageTokens = HELIOS_PAGE_TOKENS, kMaxHeadDim = 256;

// The page of `slot` that holds page index `index`, or null when any number on the way is out of range.
template <class Args>
__device__ __forceinline__ const char* page_at(const Args& a, int32_t slot, int32_t index) {
  if (!in_range(slot, a.n_slots) || !in_range(index, a.pages_per_slot)) return nullptr;
  const int32_t page = as<int32_t>(a.page_table)[int64_t(slot) * a.pages_per_slot + index];
  if (!in_range(page, a.n_pages)) return nullptr;
  return static_cast<const char*>(a.kv) + page * a.page_stride;
}
// The keys of one KV head in a page; its values follow after head_dim * 16 elements.
__device__ __forceinline__ const __half* keys_in_page(const char* page, int32_t kv_head, int32_t head_dim) {
  return reinterpret_cast<const __half*>(page) + int64_t(kv_head) * head_dim * (2 * kPageTokens);
}

}  // namespace helios::cuda
