// The devices that this process shows: a worker pool each, and the streams that are open on them.
// A device knows no graph and no memory. Its pool exists from the first launch that needs it until the device's last
// stream closes, and only one phase runs on it at a time.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "../kernels.h"
#include "cudart.h"
#include "pool.h"

namespace helios {

class HostDevice {
 public:
  HostDevice();

  int n_threads();
  void set_n_threads(int n_threads);
  void stream_opened();
  void stream_closed();

  // Runs one launch to its end on the calling thread and the pool. Host kernels do not look at the geometry.
  cudaError_t run_kernel(const HeliosKernel& kernel, const HeliosGeometry& geometry, const void* args);

 private:
  cudaError_t run_tasks(Pool::Run run, const void* args, int32_t n_tasks);

  std::mutex mutex_;  // held for the length of a phase that uses the pool
  std::atomic<int> n_threads_;
  std::unique_ptr<Pool> pool_;
  int n_streams_ = 0;
};

constexpr int max_threads = 1024;

int n_devices();
int current_device_index();
HostDevice& current_device();

}  // namespace helios
