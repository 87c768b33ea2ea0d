// The pool's protocol: publish a phase, take tasks by compare-and-swap, count the ends, sleep when nothing comes.
// A thread takes from its own run first, whose word stays in its cache, and from the others' when that is empty; it
// counts what it has done once, after that, so a task costs no traffic between processors.
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

Pool::Pool(int n_threads) : n_threads_(n_threads), runs_(new TaskRun[n_threads]), n_active_(n_threads) {
  try {
    for (int i = 1; i < n_threads; i++) workers_.push_back(start_thread("helios-worker", [this, i] { serve(i); }));
  } catch (...) {
    stop();
    throw;
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  is_stopping_.store(true);
  call_workers();
  n_published_.fetch_add(1);
  futex_wake(n_published_, static_cast<int>(workers_.size()));
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void Pool::run_phase(Run run, const void* args, int32_t n_tasks) {
  if (resting_until_ns_ != 0 && now_ns() >= resting_until_ns_) call_workers();
  if (n_tasks <= 1 || n_active_.load(std::memory_order_relaxed) == 1) {
    for (int32_t task = 0; task < n_tasks; task++) run(args, task, n_tasks);
    return;
  }
  run_.store(run, std::memory_order_relaxed);
  args_.store(args, std::memory_order_relaxed);
  n_tasks_.store(n_tasks, std::memory_order_relaxed);
  n_done_.store(0, std::memory_order_relaxed);
  n_phases_++;
  for (int i = 0; i < n_threads_; i++) {
    const auto n_of_run = static_cast<uint32_t>(run_end(i, n_tasks) - run_end(i - 1, n_tasks));
    runs_[i].untaken.store(uint64_t{n_phases_} << 32 | n_of_run, std::memory_order_release);
  }
  n_published_.fetch_add(1);
  const int32_t n_asleep = n_asleep_.load();
  if (n_asleep > 0) futex_wake(n_published_, std::min(n_asleep, n_tasks - 1));
  take_tasks(0);
  await_tasks(static_cast<uint32_t>(n_tasks));
}

// Where the run of thread `index` ends. Runs differ by one task at most.
int32_t Pool::run_end(int index, int32_t n_tasks) const {
  return static_cast<int32_t>(int64_t{n_tasks} * (index + 1) / n_threads_);
}

void Pool::take_tasks(int own_index) {
  uint32_t n_done = 0;
  for (int i = 0; i < n_threads_; i++) n_done += take_run((own_index + i) % n_threads_);
  if (n_done == 0) return;
  // The phase cannot end before this, so all that was taken is of one phase.
  const uint32_t n_done_by_all = n_done_.fetch_add(n_done) + n_done;
  if (n_done_by_all == static_cast<uint32_t>(n_tasks_.load(std::memory_order_relaxed)) && is_caller_asleep_.load())
    futex_wake(n_done_, 1);
}

uint32_t Pool::take_run(int index) {
  std::atomic<uint64_t>& untaken = runs_[index].untaken;
  uint32_t n_taken = 0;
  uint64_t word = untaken.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(word) != 0) {
    const Run run = run_.load(std::memory_order_relaxed);
    const void* args = args_.load(std::memory_order_relaxed);
    const int32_t n_tasks = n_tasks_.load(std::memory_order_relaxed);
    if (!untaken.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    // The phase cannot end before this task is counted, so what was read above is what the phase published.
    run(args, run_end(index, n_tasks) - static_cast<int32_t>(static_cast<uint32_t>(word)), n_tasks);
    n_taken++;
    word = untaken.load(std::memory_order_acquire);
  }
  return n_taken;
}

void Pool::await_tasks(uint32_t n_tasks) {
  const auto is_over = [&] { return n_done_.load(std::memory_order_acquire) == n_tasks; };
  if (spin_until(is_over, spin_ns)) return;
  const int64_t began_ns = now_ns(), worked_ns = workers_cpu_ns();
  is_caller_asleep_.store(true);
  for (uint32_t n_done = n_done_.load(); n_done != n_tasks; n_done = n_done_.load()) futex_wait(n_done_, n_done);
  is_caller_asleep_.store(false);
  const int64_t waited_ns = now_ns() - began_ns;
  if (waited_ns > stall_ns) count_stall(waited_ns, workers_cpu_ns() - worked_ns);
}

// After a wait at the end of a phase, in which the workers together worked for `worked_ns`: if too much of the window
// was lost to such waits, one worker rests.
void Pool::count_stall(int64_t waited_ns, int64_t worked_ns) {
  if (2 * worked_ns > waited_ns) return;  // a long task, not a late thread
  const int64_t at_ns = now_ns();
  if (at_ns - window_began_ns_ > window_ns) {
    window_began_ns_ = at_ns - waited_ns;
    stalled_ns_ = 0;
  }
  stalled_ns_ += waited_ns;
  if (stalled_ns_ < most_stalled_ns) return;
  n_active_.fetch_sub(1);  // two at least: alone, the caller waits for nobody
  resting_until_ns_ = at_ns + rest_ns;
  stalled_ns_ = 0;
}

void Pool::call_workers() {
  n_active_.store(static_cast<uint32_t>(n_threads_));
  futex_wake(n_active_, n_threads_);
  resting_until_ns_ = 0;
}

int64_t Pool::workers_cpu_ns() {
  int64_t sum_ns = 0;
  for (std::thread& worker : workers_) {
    clockid_t clock;
    timespec used;
    if (pthread_getcpuclockid(worker.native_handle(), &clock) == 0 && clock_gettime(clock, &used) == 0)
      sum_ns += used.tv_sec * int64_t{1'000'000'000} + used.tv_nsec;
  }
  return sum_ns;
}

void Pool::serve(uint32_t index) {
  for (;;) {
    rest(index);
    const uint32_t seen = n_published_.load();
    if (is_stopping_.load()) return;  // read last, as `stop` writes it first: who missed it sees a phase published
    take_tasks(static_cast<int>(index));
    await_phase(seen);
  }
}

void Pool::rest(uint32_t index) {
  for (uint32_t n_active = n_active_.load(); index >= n_active; n_active = n_active_.load())
    futex_wait(n_active_, n_active);
}

void Pool::await_phase(uint32_t seen) {
  const auto is_over = [&] { return n_published_.load(std::memory_order_acquire) != seen; };
  if (spin_until(is_over, spin_ns)) return;
  n_asleep_.fetch_add(1);
  if (n_published_.load() == seen) futex_wait(n_published_, seen);
  n_asleep_.fetch_sub(1);
}

}  // namespace helios
