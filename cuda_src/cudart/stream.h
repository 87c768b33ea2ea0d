// Streams and fences: ordered queues of work, each with its own thread, and marks in them that others can wait for.
// A stream knows nothing about what it runs. Work runs in the order in which it was put; its thread sleeps while the
// queue is empty; after a fault the queue still drains, but the work itself is skipped.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "device.h"
#include "futex.h"

namespace helios {

// A point in a stream. Signalled once, waited for by any number of threads.
class Fence {
 public:
  bool is_signalled() const { return word_.load(std::memory_order_acquire) != 0; }

  void signal() {
    word_.store(1);
    futex_wake(word_, INT32_MAX);
  }

  void wait() {
    while (!is_signalled()) futex_wait(word_, 0);
  }

 private:
  FutexWord word_{0};
};

class Stream {
 public:
  // Throws std::system_error when the system refuses the thread.
  explicit Stream(HostDevice& device);
  ~Stream();  // drains the queue

  HostDevice& device() { return device_; }
  void put(std::function<void()> work);
  void put_fence(std::shared_ptr<Fence> fence);
  void put_wait(std::shared_ptr<Fence> fence);
  void synchronize();

 private:
  struct Entry {
    std::function<void()> work;
    bool is_mark;  // a fence or a wait: runs after a fault too, so that nobody waits for ever
  };
  void put_entry(Entry entry);
  void serve();

  HostDevice& device_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<Entry> queue_;
  bool is_closing_ = false;
  std::thread thread_;
};

// The stream of a handle, null when unknown.
std::shared_ptr<Stream> find_stream(cudaStream_t stream);

// Waits until all work put so far on the device's streams (null: on every stream) has ended.
void synchronize_streams(const HostDevice* device);

}  // namespace helios
