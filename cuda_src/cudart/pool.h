// A pool of worker threads that runs the tasks of one kernel launch (a phase) at a time.
// It knows no stream and no graph. A phase ends when all its tasks are done, not when all threads have arrived, so a
// worker that sleeps or was taken off its CPU delays nobody unless it holds a task, and one that did rests for a while.
// Each thread has a run of neighbouring tasks, whose weights are one stream that the processor can fetch ahead, and
// helps with the others' when its own is done; each task runs exactly once.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "futex.h"

namespace helios {

class Pool {
 public:
  using Run = void (*)(const void* args, int32_t task, int32_t n_tasks);

  // `n_threads` counts the caller of `run_phase`, which takes tasks too. Throws std::system_error when a thread is
  // refused.
  explicit Pool(int n_threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Runs run(args, task, n_tasks) for each task in 0..n_tasks-1; returns when all are done. One caller at a time.
  void run_phase(Run run, const void* args, int32_t n_tasks);

 private:
  // The tasks of one thread in the open phase: the phase's number in the high half, those not yet taken in the low
  // half. Whoever's compare-and-swap takes one off owns that task; a late thread's fails, as the number has changed.
  struct alignas(64) TaskRun {
    std::atomic<uint64_t> untaken{0};
  };

  void serve(uint32_t index);
  void take_tasks(int own_index);
  uint32_t take_run(int index);
  int32_t run_end(int index, int32_t n_tasks) const;
  void count_stall(int64_t waited_ns, int64_t worked_ns);
  void call_workers();
  int64_t workers_cpu_ns();
  void rest(uint32_t index);
  void await_phase(uint32_t seen);
  void await_tasks(uint32_t n_tasks);
  void stop();

  // How long a thread looks for work before it sleeps: about one futex wake-up, so spinning never costs more than
  // sleeping.
  static constexpr int64_t spin_ns = 50'000;
  // A worker that holds a task for so long without working was taken off its CPU (tasks are some tens of microseconds
  // long, a scheduler's slice is about 3 ms). The process's own threads do that for a millisecond or two in every step;
  // where a third of a window is lost, some other program wants a CPU. Until `rest_ns` have passed the pool does with
  // one thread less, so that a phase waits for no thread that waits for a CPU.
  static constexpr int64_t stall_ns = 1'000'000;
  static constexpr int64_t window_ns = 30'000'000;
  static constexpr int64_t most_stalled_ns = window_ns / 3;
  static constexpr int64_t rest_ns = 100'000'000;

  const int n_threads_;
  const std::unique_ptr<TaskRun[]> runs_;
  uint32_t n_phases_ = 0;         // the caller's
  int64_t resting_until_ns_ = 0;  // the caller's; 0 when no worker rests
  int64_t window_began_ns_ = 0;   // the caller's: when the first stall of the window began,
  int64_t stalled_ns_ = 0;        // and how long all of them were
  FutexWord n_active_;            // threads that take tasks, the caller among them; the others sleep on it
  // What the open phase runs. Valid for a thread whose swap on a run succeeded after reading it.
  alignas(64) std::atomic<Run> run_{nullptr};
  std::atomic<const void*> args_{nullptr};
  std::atomic<int32_t> n_tasks_{0};
  alignas(64) FutexWord n_done_{0};  // tasks of the open phase that have ended
  std::atomic<bool> is_caller_asleep_{false};
  alignas(64) FutexWord n_published_{0};  // phases opened so far; workers sleep on it
  std::atomic<int32_t> n_asleep_{0};
  std::atomic<bool> is_stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace helios
