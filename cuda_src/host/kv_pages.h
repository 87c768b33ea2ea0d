// Where a position's keys and values are: the page table walked with every index checked.
// What stands there is the format's (kv_formats.h); here a page is bytes, a part for each layer, in it one for each KV head.
#pragma once
#include "host.h"

namespace helios {

constexpr int kPageTokens = HELIOS_PAGE_TOKENS, kMaxHeadDim = 256, kPageAlignment = 16;

template <class Args>
inline bool attention_shape_is_acceptable(const Args& a) {
  return a.rows_capacity > 0 && a.n_slots > 0 && a.pages_per_slot > 0 && a.pages_per_slot <= INT32_MAX / kPageTokens &&
         a.n_pages > 0 && is_width(a.n_heads) && is_width(a.n_kv_heads) && a.n_heads % a.n_kv_heads == 0 &&
         a.head_dim > 0 && a.head_dim % 8 == 0 && a.head_dim <= kMaxHeadDim &&
         is_width((int64_t(a.n_heads) + 2 * int64_t(a.n_kv_heads)) * a.head_dim);
}
template <class Args>
inline Size qkv_nbytes(const Args& a) {
  return Size(a.rows_capacity) * (Size(a.n_heads) + Size(a.n_kv_heads) + Size(a.n_kv_heads)) * a.head_dim * 4;
}

// Sets the extents that rope and attention share. The plane goes from the layer's part in page 0 to the end of it in the
// last page.
template <class Format, class Args>
inline bool paged_extents(const Args& a, Extents<Args>& e) {
  if (!attention_shape_is_acceptable(a) || a.page_stride < 0 || a.page_stride % kPageAlignment) return false;
  const Size part = Size(a.n_kv_heads) * Format::head_nbytes(a.head_dim);
  if (Size(a.page_stride).n < part.n) return false;
  e.counts = Size(16);
  e.row_position = e.row_slot = Size(a.rows_capacity) * 4;
  e.page_table = Size(a.n_slots) * a.pages_per_slot * 4;
  e.qkv = qkv_nbytes(a);
  e.kv = Size(int64_t(a.n_pages) - 1) * Size(a.page_stride) + part;
  return true;
}

// The page of `slot` that holds page index `index`, or null when any number on the way is out of range.
template <class Args>
inline const char* page_at(const Args& a, int32_t slot, int32_t index) {
  if (!in_range(slot, a.n_slots) || !in_range(index, a.pages_per_slot)) return nullptr;
  const int32_t page = as<int32_t>(a.page_table)[int64_t(slot) * a.pages_per_slot + index];
  if (!in_range(page, a.n_pages)) return nullptr;
  return static_cast<const char*>(a.kv) + page * a.page_stride;
}

}  // namespace helios
