// Where a position's keys and values are: the page table walked with every index checked.
// What stands there is the format's (kv_formats.h); here a page is bytes.
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

}  // namespace helios::cuda
