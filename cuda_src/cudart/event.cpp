// Event handles, recording, asking and waiting.
// It measures no time: every event is a cudaEventDisableTiming one. An event that was never recorded counts as
// complete, as in CUDA, and destroying an event disturbs nobody who already waits for it.
#include "event.h"

#include "error.h"
#include "handles.h"

namespace helios {

namespace {

HandleTable<Event>& events() {
  static auto* table = new HandleTable<Event>;
  return *table;
}

}  // namespace

std::shared_ptr<Fence> Event::latest() {
  std::lock_guard<std::mutex> lock(mutex_);
  return latest_;
}

void Event::set_latest(std::shared_ptr<Fence> fence) {
  std::lock_guard<std::mutex> lock(mutex_);
  latest_ = std::move(fence);
}

std::shared_ptr<Event> find_event(cudaEvent_t event) { return events().find(event); }

}  // namespace helios

using namespace helios;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  const unsigned int blocking_sync = 1, disable_timing = 2;
  if (!event || flags & ~(blocking_sync | disable_timing) || !(flags & disable_timing))
    return report(cudaErrorInvalidValue);
  *event = events().add<cudaEvent_t>(std::make_shared<Event>());
  return report(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return report(events().take(event) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::shared_ptr<Event> found = find_event(event);
  const std::shared_ptr<Stream> recorded = find_stream(stream);
  if (!found || !recorded) return report(cudaErrorInvalidResourceHandle);
  const auto fence = std::make_shared<Fence>();
  found->set_latest(fence);
  recorded->put_fence(fence);
  return report(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::shared_ptr<Event> found = find_event(event);
  if (!found) return report(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Fence> fence = found->latest();
  return report(!fence || fence->is_signalled() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::shared_ptr<Event> found = find_event(event);
  if (!found) return report(cudaErrorInvalidResourceHandle);
  if (const std::shared_ptr<Fence> fence = found->latest()) fence->wait();
  return report(cudaSuccess);
}
