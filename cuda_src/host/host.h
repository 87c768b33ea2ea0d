// What every host kernel shares: checked sizes, live counts, the split of work into tasks, and how a kernel is
// registered. A kernel is a class with three static functions over its argument struct: `extents` (bytes behind each
// pointer, or false when the scalars are not acceptable), `n_tasks` and `run`. No kernel allocates, locks, throws or
// keeps state between calls. Always true: indices that come from memory (counts, slots, positions, tokens, page ids)
// are checked before they are used.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

namespace helios {

// A number of elements or bytes that remembers overflow: negative input or overflow anywhere gives `kUnacceptable` for
// good.
constexpr uint64_t kUnacceptable = UINT64_MAX;
struct Size {
  uint64_t n = 0;
  constexpr Size() = default;
  constexpr Size(int64_t v) : n(v < 0 ? kUnacceptable : uint64_t(v)) {}
  constexpr Size(int32_t v) : Size(int64_t(v)) {}
  constexpr Size(size_t v) : n(v) {}
};
inline Size operator+(Size a, Size b) {
  Size r;
  if (a.n == kUnacceptable || b.n == kUnacceptable || __builtin_add_overflow(a.n, b.n, &r.n)) r.n = kUnacceptable;
  return r;
}
inline Size operator*(Size a, Size b) {
  Size r;
  if (a.n == kUnacceptable || b.n == kUnacceptable || __builtin_mul_overflow(a.n, b.n, &r.n)) r.n = kUnacceptable;
  return r;
}
inline Size divide_up(Size a, uint64_t by) {
  Size r;
  r.n = a.n == kUnacceptable ? a.n : a.n / by + (a.n % by != 0);
  return r;
}
// `rows` rows of `width` elements, `stride` elements from row to row.
inline Size strided(int32_t rows, int32_t stride, int32_t width) { return Size(int64_t(rows) - 1) * stride + width; }

// For each argument struct a struct of sizes: one for each argument, with the argument's name, in the same order.
template <class Args>
struct ExtentsOf;
#define HELIOS_SIZE_FIELD(kind, name) Size name;
#define HELIOS_EXTENTS(id, name, list) \
  struct Extents_##id {                \
    list(HELIOS_SIZE_FIELD)            \
  };                                   \
  template <>                          \
  struct ExtentsOf<HeliosArgs_##id> {  \
    using type = Extents_##id;         \
  };
HELIOS_KERNELS(HELIOS_EXTENTS)
template <class Args>
using Extents = typename ExtentsOf<Args>::type;

// A kernel as the exported table wants it.
struct HostKernel {
  uint64_t (*extent)(const void* args, uint32_t field);
  int32_t (*n_tasks)(const void* args, int32_t n_threads);
  void (*run)(const void* args, int32_t task, int32_t n_tasks);
};
template <class Args, class Kernel>
struct Registered {
  static uint64_t extent(const void* args, uint32_t field) {
    Extents<Args> e;
    if (field >= sizeof e / sizeof(Size) || !Kernel::extents(*static_cast<const Args*>(args), e)) return kUnacceptable;
    return reinterpret_cast<const Size*>(&e)[field].n;
  }
  static int32_t n_tasks(const void* args, int32_t n_threads) {
    return Kernel::n_tasks(*static_cast<const Args*>(args), n_threads > 0 ? n_threads : 1);
  }
  static void run(const void* args, int32_t task, int32_t n_tasks) {
    Kernel::run(*static_cast<const Args*>(args), task, n_tasks);
  }
};
#define HELIOS_DECLARE_HOST(id, name, list) extern const HostKernel host_##id;
HELIOS_KERNELS(HELIOS_DECLARE_HOST)
// HELIOS_HOST_KERNEL(id, class): defines the kernel `id` by a class.
#define HELIOS_HOST_KERNEL(id, ...)                                                \
  const HostKernel host_##id = {Registered<HeliosArgs_##id, __VA_ARGS__>::extent,  \
                                Registered<HeliosArgs_##id, __VA_ARGS__>::n_tasks, \
                                Registered<HeliosArgs_##id, __VA_ARGS__>::run};

inline int32_t clamp(int32_t v, int32_t low, int32_t high) { return v < low ? low : v > high ? high : v; }

// A live count in device memory, never more than the capacity that the extents were proven for.
inline int32_t live_count(const void* count, int32_t capacity) {
  return clamp(*static_cast<const int32_t*>(count), 0, capacity);
}
inline int32_t live_count(const void* counts, int which, int32_t capacity) {
  return clamp(static_cast<const int32_t*>(counts)[which], 0, capacity);
}
// Widths, vocabularies and head counts are far below this; it keeps 32-bit sums of a few of them from overflowing.
inline bool is_width(int64_t v) { return v > 0 && v <= 1 << 28; }
inline bool in_range(int32_t index, int64_t n) { return index >= 0 && index < n; }

// Part `part` of `parts` nearly equal consecutive parts of [0, n).
struct Span {
  int32_t begin, end;
};
inline Span part_of(int32_t n, int32_t part, int32_t parts) {
  return {int32_t(int64_t(n) * part / parts), int32_t(int64_t(n) * (part + 1) / parts)};
}

// Tasks for work that goes row by row: about 2000 elements each, since starting a task costs about as much as 500.
inline int32_t row_tasks(int32_t n_rows, int32_t row_elements) {
  const int32_t rows_a_task = clamp(2304 / (row_elements > 0 ? row_elements : 1), 1, 16);
  return (n_rows + rows_a_task - 1) / rows_a_task;
}

template <class T>
inline const T* as(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
inline T* as(void* p) {
  return static_cast<T*>(p);
}

}  // namespace helios
