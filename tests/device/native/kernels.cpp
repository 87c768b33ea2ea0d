// Kernels for the tests of the device layer: each does one thing that a test can see from outside.
// They know nothing of models. Their table has the layout of kernels.h, so the loader takes them like any kernel
// library.
#include <stdint.h>
#include <time.h>

#include <atomic>

#include "kernel_table.h"

// counters[task] += 1 for n tasks.
#define COUNT_TASKS(F) F(X, counters) F(I, n)
// log[0] counts entries; appends `value` if there is room. One task.
#define APPEND(F) F(X, log) F(I, capacity) F(I, value)
// Each of n tasks sleeps.
#define SLEEP(F) F(I, n) F(I, milliseconds)
// Waits until `gate` is not zero, for a minute at most. One task.
#define WAIT(F) F(R, gate)
// y[i] = x[i] + 1, one task.
#define INCREMENT(F) F(R, x) F(W, y) F(I, n)
// The same where x stands at a multiple of 16 bytes.
#define INCREMENT_CHUNKS(F) F(R16, x) F(W, y) F(I, n)
// Sums the first word of every page into total. One task.
#define SUM_PAGES(F) F(R, plane) F(W, total) F(I, n_pages) F(L, page_stride)
// Refuses to run.
#define FAIL(F) F(I, unused)

#define TEST_KERNELS(X)                                                                                   \
  X(count_tasks, "count_tasks.1", COUNT_TASKS) X(append, "append.1", APPEND) X(sleep, "sleep.1", SLEEP)   \
  X(wait, "wait.1", WAIT) X(increment, "increment.1", INCREMENT) X(increment_chunks, "increment_chunks.1", INCREMENT_CHUNKS)   \
  X(sum_pages, "sum_pages.1", SUM_PAGES) X(fail, "fail.1", FAIL)

#define TEST_STRUCT(id, name, list) typedef struct { list(HELIOS_FIELD) } Args_##id;
TEST_KERNELS(TEST_STRUCT)

namespace {

template <class Args>
const Args& as(const void* args) {
  return *static_cast<const Args*>(args);
}

uint64_t words(int64_t n) { return n < 0 ? UINT64_MAX : uint64_t(n) * 4; }

uint64_t count_tasks_extent(const void* args, uint32_t) { return words(as<Args_count_tasks>(args).n); }
int32_t count_tasks_n(const void* args, int32_t) { return as<Args_count_tasks>(args).n; }
void count_tasks_run(const void* args, int32_t task, int32_t) {
  static_cast<std::atomic<int32_t>*>(as<Args_count_tasks>(args).counters)[task].fetch_add(1);
}

uint64_t append_extent(const void* args, uint32_t) { return words(int64_t(as<Args_append>(args).capacity) + 1); }
int32_t one_task(const void*, int32_t) { return 1; }
void append_run(const void* args, int32_t, int32_t) {
  const Args_append& a = as<Args_append>(args);
  int32_t* log = static_cast<int32_t*>(a.log);
  if (log[0] < a.capacity) log[++log[0]] = a.value;
}

uint64_t no_extent(const void*, uint32_t) { return 0; }
int32_t sleep_n(const void* args, int32_t) { return as<Args_sleep>(args).n; }
void sleep_run(const void* args, int32_t, int32_t) {
  const int32_t milliseconds = as<Args_sleep>(args).milliseconds;
  const timespec length{milliseconds / 1000, milliseconds % 1000 * 1000000L};
  nanosleep(&length, nullptr);
}

uint64_t one_word(const void*, uint32_t) { return 4; }
void wait_run(const void* args, int32_t, int32_t) {
  const std::atomic<int32_t>& gate = *static_cast<const std::atomic<int32_t>*>(as<Args_wait>(args).gate);
  const timespec millisecond{0, 1000000L};
  for (int i = 0; i < 60000 && gate.load() == 0; i++) nanosleep(&millisecond, nullptr);
}

uint64_t increment_extent(const void* args, uint32_t) { return words(as<Args_increment>(args).n); }
void increment_run(const void* args, int32_t, int32_t) {
  const Args_increment& a = as<Args_increment>(args);
  for (int32_t i = 0; i < a.n; i++) static_cast<int32_t*>(a.y)[i] = static_cast<const int32_t*>(a.x)[i] + 1;
}

void increment_chunks_run(const void* args, int32_t task, int32_t n_tasks) { increment_run(args, task, n_tasks); }

uint64_t sum_pages_extent(const void* args, uint32_t field) {
  const Args_sum_pages& a = as<Args_sum_pages>(args);
  if (field == 1) return 4;
  uint64_t last_page;
  if (a.n_pages < 1 || a.page_stride < 4) return UINT64_MAX;
  const bool overflows = __builtin_mul_overflow(uint64_t(a.n_pages - 1), uint64_t(a.page_stride), &last_page);
  return overflows ? UINT64_MAX : last_page + 4;
}
void sum_pages_run(const void* args, int32_t, int32_t) {
  const Args_sum_pages& a = as<Args_sum_pages>(args);
  int32_t total = 0;
  for (int32_t page = 0; page < a.n_pages; page++) {
    total += *reinterpret_cast<const int32_t*>(static_cast<const char*>(a.plane) + page * a.page_stride);
  }
  *static_cast<int32_t*>(a.total) = total;
}

void geometry(const void*, HeliosGeometry* geometry) { *geometry = {1, 1, 0}; }

int32_t fail_n(const void*, int32_t) { return -1; }
void fail_run(const void*, int32_t, int32_t) {}

#define TEST_FIELDS(id, name, list)            \
  namespace fields_##id {                      \
    using Args = Args_##id;                    \
    const HeliosField table[] = {list(HELIOS_TABLE_FIELD)}; \
  }
TEST_KERNELS(TEST_FIELDS)

#define N_FIELDS(id) uint32_t(sizeof(fields_##id::table) / sizeof(HeliosField))
#define TEST_ENTRY(id, extent, n_tasks)                                                                            \
  {nullptr, sizeof(Args_##id), N_FIELDS(id), fields_##id::table, extent, geometry, 0, 0, n_tasks, id##_run, nullptr, \
   nullptr, nullptr}

HeliosKernel kernels[] = {
    TEST_ENTRY(count_tasks, count_tasks_extent, count_tasks_n),
    TEST_ENTRY(append, append_extent, one_task),
    TEST_ENTRY(sleep, no_extent, sleep_n),
    TEST_ENTRY(wait, one_word, one_task),
    TEST_ENTRY(increment, increment_extent, one_task),
    TEST_ENTRY(increment_chunks, increment_extent, one_task),
    TEST_ENTRY(sum_pages, sum_pages_extent, one_task),
    TEST_ENTRY(fail, no_extent, fail_n),
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const HeliosKernelLibrary* helios_kernel_library(void) {
#define TEST_NAME(id, name, list) name,
  static const char* const names[] = {TEST_KERNELS(TEST_NAME)};
  static const HeliosKernelLibrary library = [] {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) kernels[i].name = names[i];
    return HeliosKernelLibrary{HELIOS_KERNEL_ABI, sizeof names / sizeof names[0], kernels, "test", 0, 0, nullptr};
  }();
  return &library;
}
