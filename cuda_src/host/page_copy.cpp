// Partial pages copied to rows of state and back: what a snapshot keeps of the page that it cannot share.
// A page goes in parts of 64 KiB, each a task. Nothing is computed; indices that do not exist are skipped, as kernels.h says.
// Bound: the page's bytes once read and once written, at memory speed (a page of 30 layers is about 370 KB).
#include <string.h>

#include "kv_pages.h"

namespace helios {
namespace {

constexpr int64_t kPartBytes = 64 << 10, kMaxPageBytes = int64_t{1} << 32;

template <class Args, bool kIsSave>
struct PageCopy {
  static bool extents(const Args& a, Extents<Args>& e) {
    if (!is_width(a.lanes_capacity) || a.n_slots <= 0 || a.pages_per_slot <= 0 ||
        a.pages_per_slot > INT32_MAX / kPageTokens || a.n_pages <= 0 || a.n_rows <= 0 || a.page_nbytes <= 0 ||
        a.page_nbytes > kMaxPageBytes || a.page_stride < a.page_nbytes || a.row_stride < a.page_nbytes)
      return false;
    e.n_lanes = Size(4);
    e.lane_slot = e.lane_endpoint = e.lane_row = Size(a.lanes_capacity) * 4;
    e.page_table = Size(a.n_slots) * a.pages_per_slot * 4;
    e.kv = Size(int64_t(a.n_pages) - 1) * Size(a.page_stride) + Size(a.page_nbytes);
    e.rows = Size(int64_t(a.n_rows) - 1) * Size(a.row_stride) + Size(a.page_nbytes);
    return true;
  }
  static int64_t n_parts(const Args& a) { return (a.page_nbytes + kPartBytes - 1) / kPartBytes; }
  static int64_t n_copies(const Args& a) { return live_count(a.n_lanes, a.lanes_capacity) * n_parts(a); }
  static int32_t n_tasks(const Args& a, int32_t) {
    const int64_t n = n_copies(a);
    return n < INT32_MAX ? int32_t(n) : INT32_MAX;
  }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    for (int64_t i = task; i < n_copies(a); i += n_tasks) copy_part(a, i / n_parts(a), i % n_parts(a));
  }
  static void copy_part(const Args& a, int64_t lane, int64_t part) {
    const int32_t endpoint = as<int32_t>(a.lane_endpoint)[lane], row = as<int32_t>(a.lane_row)[lane];
    if (endpoint < 0 || endpoint % kPageTokens == 0 || !in_range(row, a.n_rows)) return;
    const char* page = page_at(a, as<int32_t>(a.lane_slot)[lane], endpoint / kPageTokens);
    if (!page) return;
    const char* saved = static_cast<const char*>(a.rows) + row * a.row_stride;
    const int64_t begin = part * kPartBytes;
    const size_t n = size_t(a.page_nbytes - begin < kPartBytes ? a.page_nbytes - begin : kPartBytes);
    const char *from = kIsSave ? page : saved, *to = kIsSave ? saved : page;
    memcpy(const_cast<char*>(to) + begin, from + begin, n);
  }
};

}  // namespace

HELIOS_HOST_KERNEL(page_save, PageCopy<HeliosArgs_page_save, true>)
HELIOS_HOST_KERNEL(page_restore, PageCopy<HeliosArgs_page_restore, false>)

}  // namespace helios
