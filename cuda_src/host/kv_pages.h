// Where a position's keys and values are: the page table walked with every index checked.
// Inside a page, for each KV head: K fp16 [head_dim][16 positions], V fp16 [16 positions][head_dim] (kernels.h).
#pragma once
#include "host.h"

namespace helios {

constexpr int kPageTokens = HELIOS_PAGE_TOKENS, kMaxHeadDim = 256;

template <class Args>
inline bool attention_shape_is_acceptable(const Args& a) {
  return a.rows_capacity > 0 && a.n_slots > 0 && a.pages_per_slot > 0 && a.pages_per_slot <= INT32_MAX / kPageTokens &&
         a.n_pages > 0 && is_width(a.n_heads) && is_width(a.n_kv_heads) && a.n_heads % a.n_kv_heads == 0 &&
         a.head_dim > 0 && a.head_dim % 8 == 0 && a.head_dim <= kMaxHeadDim &&
         is_width((int64_t(a.n_heads) + 2 * int64_t(a.n_kv_heads)) * a.head_dim);
}
// Bytes of one layer's part of a page, and of the plane from that part in page 0 to the end of it in the last page.
inline Size page_part_nbytes(int32_t n_kv_heads, int32_t head_dim) {
  return Size(n_kv_heads) * head_dim * (kPageTokens * 2 * 2);
}
template <class Args>
inline Size kv_nbytes(const Args& a) {
  return Size(int64_t(a.n_pages) - 1) * Size(a.page_stride) + page_part_nbytes(a.n_kv_heads, a.head_dim);
}
template <class Args>
inline Size qkv_nbytes(const Args& a) {
  return Size(a.rows_capacity) * (Size(a.n_heads) + Size(a.n_kv_heads) + Size(a.n_kv_heads)) * a.head_dim * 4;
}

// Sets the extents that rope and attention share.
template <class Args>
inline bool paged_extents(const Args& a, Extents<Args>& e) {
  if (!attention_shape_is_acceptable(a) || a.page_stride < 0 || a.page_stride % 2 ||
      Size(a.page_stride).n < page_part_nbytes(a.n_kv_heads, a.head_dim).n)
    return false;
  e.counts = Size(16);
  e.row_position = e.row_slot = Size(a.rows_capacity) * 4;
  e.page_table = Size(a.n_slots) * a.pages_per_slot * 4;
  e.qkv = qkv_nbytes(a);
  e.kv = kv_nbytes(a);
  return true;
}

// The keys of one KV head in a page; its values follow after head_dim * 16 elements.
struct PageHead {
  uint16_t* k;
  uint16_t* v;
};

// The page of `slot` that holds page index `index`, or null when any number on the way is out of range.
template <class Args>
inline const char* page_at(const Args& a, int32_t slot, int32_t index) {
  if (!in_range(slot, a.n_slots) || !in_range(index, a.pages_per_slot)) return nullptr;
  const int32_t page = as<int32_t>(a.page_table)[int64_t(slot) * a.pages_per_slot + index];
  if (!in_range(page, a.n_pages)) return nullptr;
  return static_cast<const char*>(a.kv) + page * a.page_stride;
}
inline PageHead head_in_page(const char* page, int32_t kv_head, int32_t head_dim) {
  uint16_t* k = reinterpret_cast<uint16_t*>(const_cast<char*>(page)) + int64_t(kv_head) * head_dim * (2 * kPageTokens);
  return {k, k + head_dim * kPageTokens};
}

}  // namespace helios
