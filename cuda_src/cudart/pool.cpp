// The pool's protocol: publish a phase, take tasks by compare-and-swap, count the ends, sleep when nothing comes.
// All shared words are atomics; the sleeping sides use sequentially consistent order, because each of them writes one
// word and then reads the other's (asleep/published, asleep/done), and at least one of the two has to see the other.
#include "pool.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

namespace helios {

namespace {

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// Spins until `is_over()` or about `limit_ns` have passed; says whether it was over. The clock is read every 64 rounds.
template <class Condition>
bool spin_until(Condition is_over, int64_t limit_ns) {
  int64_t started_ns = 0;
  for (uint32_t round = 0;; round++) {
    if (is_over()) return true;
    cpu_pause();
    if (round % 64 != 63) continue;
    const int64_t at_ns = now_ns();
    if (started_ns == 0) started_ns = at_ns;
    if (at_ns - started_ns > limit_ns) return false;
  }
}

}  // namespace

Pool::Pool(int n_threads) {
  try {
    for (int i = 1; i < n_threads; i++) workers_.push_back(start_thread("helios-worker", [this] { serve(); }));
  } catch (...) {
    stop();
    throw;
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  is_stopping_.store(true);
  n_published_.fetch_add(1);
  futex_wake(n_published_, static_cast<int>(workers_.size()));
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

namespace {

// The task of the n-th ticket. Threads take tickets about in turn, so each gets a run of neighbouring tasks, whose weights
// are one stream that the processor can fetch ahead; what does not divide evenly comes last.
int32_t task_of(int32_t ticket, int32_t n_tasks, int32_t n_threads) {
  const int32_t n_each = n_tasks / n_threads;
  return ticket < n_each * n_threads ? ticket % n_threads * n_each + ticket / n_threads : ticket;
}

}  // namespace

void Pool::run_phase(Run run, const void* args, int32_t n_tasks) {
  if (n_tasks <= 1 || workers_.empty()) {
    for (int32_t task = 0; task < n_tasks; task++) run(args, task, n_tasks);
    return;
  }
  run_.store(run, std::memory_order_relaxed);
  args_.store(args, std::memory_order_relaxed);
  n_tasks_.store(n_tasks, std::memory_order_relaxed);
  n_done_.store(0, std::memory_order_relaxed);
  const uint64_t phase = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(phase << 32 | static_cast<uint32_t>(n_tasks), std::memory_order_release);
  n_published_.fetch_add(1);
  const int32_t n_asleep = n_asleep_.load();
  if (n_asleep > 0) futex_wake(n_published_, std::min(n_asleep, n_tasks - 1));
  take_tasks();
  await_tasks(static_cast<uint32_t>(n_tasks));
}

void Pool::take_tasks() {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(ticket) != 0) {
    const Run run = run_.load(std::memory_order_relaxed);
    const void* args = args_.load(std::memory_order_relaxed);
    const int32_t n_tasks = n_tasks_.load(std::memory_order_relaxed);
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    // The phase cannot end before this task does, so what was read above is what the phase published.
    const int32_t n_taken = n_tasks - static_cast<int32_t>(static_cast<uint32_t>(ticket));
    run(args, task_of(n_taken, n_tasks, static_cast<int32_t>(workers_.size()) + 1), n_tasks);
    const uint32_t n_done = n_done_.fetch_add(1) + 1;
    if (n_done == static_cast<uint32_t>(n_tasks) && is_caller_asleep_.load()) futex_wake(n_done_, 1);
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void Pool::await_tasks(uint32_t n_tasks) {
  const auto is_over = [&] { return n_done_.load(std::memory_order_acquire) == n_tasks; };
  if (spin_until(is_over, spin_ns)) return;
  is_caller_asleep_.store(true);
  for (uint32_t n_done = n_done_.load(); n_done != n_tasks; n_done = n_done_.load()) futex_wait(n_done_, n_done);
  is_caller_asleep_.store(false);
}

void Pool::serve() {
  while (!is_stopping_.load()) {
    const uint32_t seen = n_published_.load();
    take_tasks();
    await_phase(seen);
  }
}

void Pool::await_phase(uint32_t seen) {
  const auto is_over = [&] { return n_published_.load(std::memory_order_acquire) != seen; };
  if (spin_until(is_over, spin_ns)) return;
  n_asleep_.fetch_add(1);
  if (n_published_.load() == seen) futex_wait(n_published_, seen);
  n_asleep_.fetch_sub(1);
}

}  // namespace helios
