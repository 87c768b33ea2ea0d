// Drives the host runtime from several threads at once, to be run under ThreadSanitizer.
// It knows the pool and the C functions. Task results are plain memory on purpose: only the runtime's own ordering
// makes them safe to read, so a missing edge shows as a race and a lost or doubled task as a wrong count.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "cudart/cudart.h"
#include "cudart/pool.h"

namespace {

#define REQUIRE(condition)                                                     \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)
#define SUCCEED(call) REQUIRE((call) == cudaSuccess)

void mark(const void* args, int32_t task, int32_t) { (*static_cast<std::vector<int>* const*>(args))->at(task)++; }

// Phases of every length, back to back and after pauses long enough for the workers to sleep.
void stress_pool(int n_threads) {
  helios::Pool pool(n_threads);
  std::vector<int> n_runs(1000);
  std::vector<int>* args = &n_runs;
  for (int n_tasks = 0; n_tasks <= 1000; n_tasks++) {
    pool.run_phase(mark, &args, n_tasks);
    if (n_tasks % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int task = 0; task < 1000; task++) REQUIRE(n_runs[task] == 1000 - task);
  // Short phases without a pause: a worker meets the next phase before it has looked for news of it.
  const int n_phases = 20000;
  for (int phase = 0; phase < n_phases; phase++) pool.run_phase(mark, &args, 2);
  REQUIRE(n_runs[0] == 1000 + n_phases && n_runs[1] == 999 + n_phases);
}

// Two tasks and who ran them: the caller waits for the other task to begin, and any other thread sleeps for `pause`.
struct Pair {
  std::thread::id caller = std::this_thread::get_id();
  std::chrono::milliseconds pause{0};
  std::atomic<int> n_begun{0};
  std::atomic<int> n_by_others{0};
};

void run_pair(const void* args, int32_t, int32_t) {
  Pair& pair = **static_cast<Pair* const*>(args);
  pair.n_begun++;
  if (std::this_thread::get_id() != pair.caller) {
    pair.n_by_others++;
    std::this_thread::sleep_for(pair.pause);
  } else {
    // So that the other thread is there for the other task; one that rests does not come.
    for (int i = 0; i < 50 && pair.n_begun < 2; i++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

int run_by_others(helios::Pool& pool, int pause_ms) {
  Pair pair;
  pair.pause = std::chrono::milliseconds(pause_ms);
  Pair* args = &pair;
  pool.run_phase(run_pair, &args, 2);
  return pair.n_by_others;
}

// On a busy machine threads are late for reasons of their own: so often is tried what takes a time.
const int n_tries = 100;

// A worker that held a task without working rests, and comes back after a while.
void rest_and_return() {
  helios::Pool pool(2);
  while (run_by_others(pool, 0) == 0) continue;
  bool has_rested = false;
  for (int i = 0; i < n_tries && !has_rested; i++) {
    while (run_by_others(pool, 80) == 0) continue;
    has_rested = run_by_others(pool, 0) == 0;
  }
  REQUIRE(has_rested);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  while (run_by_others(pool, 0) == 0) continue;
}

// The program's own threads take a CPU for a few milliseconds now and then, for which no worker rests.
void late_now_and_then() {
  helios::Pool pool(2);
  int n_timely = 0, n_back = 0;
  for (int i = 0; i < n_tries && n_timely < 10; i++) {
    std::chrono::steady_clock::time_point began;
    do {
      began = std::chrono::steady_clock::now();
    } while (run_by_others(pool, 4) == 0);
    const bool is_timely = std::chrono::steady_clock::now() - began < std::chrono::milliseconds(9);
    const int n_by_others = run_by_others(pool, 0);
    if (is_timely) {
      n_timely++;
      n_back += n_by_others;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
  }
  REQUIRE(n_back > 0 || n_timely < 10);
}

void run_nothing(const void*, int32_t, int32_t) {}

// A pool ends at any moment of its threads' lives: at once, and while one rests.
void end_pools() {
  for (int i = 0; i < 2000; i++) helios::Pool pool(4);
  for (int i = 0; i < 10; i++) {
    helios::Pool pool(2);
    while (run_by_others(pool, 20) == 0) continue;
    pool.run_phase(run_nothing, nullptr, 2);  // which calls the worker, to find that it rests
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

struct CountArgs {
  void* counters;
  int32_t n;
};

// A graph of `n_nodes` launches of n tasks on `counters`.
cudaGraphExec_t counting_graph(cudaKernel_t kernel, void* counters, int32_t n, int n_nodes) {
  cudaGraph_t graph;
  SUCCEED(cudaGraphCreate(&graph, 0));
  CountArgs args{counters, n};
  void* params[] = {&args};
  const cudaKernelNodeParams node_params{kernel, {1, 1, 1}, {1, 1, 1}, 0, params, nullptr};
  cudaGraphNode_t previous = nullptr;
  for (int i = 0; i < n_nodes; i++) {
    cudaGraphNode_t node;
    SUCCEED(cudaGraphAddKernelNode(&node, graph, &previous, i ? 1 : 0, &node_params));
    previous = node;
  }
  cudaGraphExec_t exec;
  SUCCEED(cudaGraphInstantiate(&exec, graph, 0));
  SUCCEED(cudaGraphDestroy(graph));
  return exec;
}

// One user of the runtime: own stream, own memory, two frames of staging, everything made and destroyed on the way.
void use_runtime(cudaLibrary_t library) {
  const int32_t n = 33;
  const size_t nbytes = n * sizeof(int32_t);
  cudaKernel_t kernel;
  SUCCEED(cudaLibraryGetKernel(&kernel, library, "count_tasks.1"));
  cudaStream_t stream;
  SUCCEED(cudaStreamCreateWithFlags(&stream, 1));
  void *counters, *record;
  SUCCEED(cudaMalloc(&counters, nbytes));
  SUCCEED(cudaHostAlloc(&record, nbytes, 0));
  cudaGraphExec_t exec = counting_graph(kernel, counters, n, 10);
  cudaEvent_t event;
  SUCCEED(cudaEventCreateWithFlags(&event, 3));
  for (int round = 1; round <= 20; round++) {
    void* passing;
    SUCCEED(cudaMalloc(&passing, 256));
    SUCCEED(cudaMemsetAsync(passing, round, 256, stream));
    SUCCEED(cudaGraphLaunch(exec, stream));
    SUCCEED(cudaMemcpyAsync(record, counters, nbytes, cudaMemcpyDeviceToHost, stream));
    SUCCEED(cudaEventRecord(event, stream));
    SUCCEED(cudaStreamWaitEvent(stream, event, 0));
    SUCCEED(cudaEventSynchronize(event));
    for (int32_t task = 0; task < n; task++) REQUIRE(static_cast<int32_t*>(record)[task] == 10 * round);
    SUCCEED(cudaFree(passing));
    if (round % 7 == 0) SUCCEED(heliosHostSetThreads(1 + round % 4));
  }
  SUCCEED(cudaGraphExecDestroy(exec));
  SUCCEED(cudaEventDestroy(event));
  SUCCEED(cudaStreamDestroy(stream));
  SUCCEED(cudaFree(counters));
  SUCCEED(cudaFreeHost(record));
}

}  // namespace

int main(int, char** words) {
  for (const int n_threads : {1, 2, 4}) stress_pool(n_threads);
  rest_and_return();
  late_now_and_then();
  end_pools();
  cudaLibrary_t library;
  SUCCEED(cudaLibraryLoadFromFile(&library, words[1], nullptr, nullptr, 0, nullptr, nullptr, 0));
  std::vector<std::thread> users;
  for (int i = 0; i < 3; i++) users.emplace_back(use_runtime, library);
  for (std::thread& user : users) user.join();
  SUCCEED(cudaLibraryUnload(library));
  SUCCEED(cudaGetLastError());
  return 0;
}
