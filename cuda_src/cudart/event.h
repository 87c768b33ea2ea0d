// Events: the latest fence that was recorded under a handle.
// An event knows no stream. Whoever waits for it waits for the record that was the latest when the wait was asked for.
#pragma once
#include <memory>
#include <mutex>

#include "cudart.h"
#include "stream.h"

namespace helios {

class Event {
 public:
  // Null before the first record.
  std::shared_ptr<Fence> latest();
  void set_latest(std::shared_ptr<Fence> fence);

 private:
  std::mutex mutex_;
  std::shared_ptr<Fence> latest_;
};

std::shared_ptr<Event> find_event(cudaEvent_t event);

}  // namespace helios
