// Stream queues and the asynchronous copy and fill.
// It knows no graph. Addresses are checked when the work is put, under the lock of the memory book, so a free that
// comes later waits for the work; pageable host memory is refused, because a GPU would copy it at another time than the
// stream says.
#include "stream.h"

#include <string.h>

#include <system_error>

#include "error.h"
#include "event.h"
#include "handles.h"
#include "memory.h"
#include "transfer.h"

namespace helios {

namespace {

HandleTable<Stream>& streams() {
  static auto* table = new HandleTable<Stream>;
  return *table;
}

}  // namespace

Stream::Stream(HostDevice& device) : device_(device) {
  thread_ = start_thread("helios-stream", [this] { serve(); });
  device_.stream_opened();
}

Stream::~Stream() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_closing_ = true;
  }
  has_work_.notify_one();
  thread_.join();
  device_.stream_closed();
}

void Stream::put_entry(Entry entry) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(entry));
  }
  has_work_.notify_one();
}

void Stream::put(std::function<void()> work) { put_entry({std::move(work), false}); }

void Stream::put_fence(std::shared_ptr<Fence> fence) {
  put_entry({[fence] { fence->signal(); }, true});
}

void Stream::put_wait(std::shared_ptr<Fence> fence) {
  put_entry({[fence] { fence->wait(); }, true});
}

void Stream::synchronize() {
  const auto fence = std::make_shared<Fence>();
  put_fence(fence);
  fence->wait();
}

void Stream::serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [this] { return is_closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Entry entry = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (entry.is_mark || !has_fault()) entry.work();
    entry.work = nullptr;  // what the work held is released here, not under the lock
    lock.lock();
  }
}

std::shared_ptr<Stream> find_stream(cudaStream_t stream) { return streams().find(stream); }

void synchronize_streams(const HostDevice* device) {
  for (const std::shared_ptr<Stream>& stream : streams().all()) {
    if (!device || &stream->device() == device) stream->synchronize();
  }
}

}  // namespace helios

using namespace helios;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  if (!stream || flags > 1) return report(cudaErrorInvalidValue);
  try {
    *stream = streams().add<cudaStream_t>(std::make_shared<Stream>(current_device()));
  } catch (const std::system_error&) {
    return report(cudaErrorOperatingSystem);
  }
  return report(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::shared_ptr<Stream> taken = streams().take(stream);
  if (!taken) return report(cudaErrorInvalidResourceHandle);
  taken->synchronize();
  return report(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::shared_ptr<Stream> found = find_stream(stream);
  if (!found) return report(cudaErrorInvalidResourceHandle);
  found->synchronize();
  return report(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  const std::shared_ptr<Stream> found = find_stream(stream);
  const std::shared_ptr<Event> awaited = find_event(event);
  if (!found || !awaited) return report(cudaErrorInvalidResourceHandle);
  if (flags != 0) return report(cudaErrorInvalidValue);
  if (const std::shared_ptr<Fence> fence = awaited->latest()) found->put_wait(fence);
  return report(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t nbytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const std::shared_ptr<Stream> found = find_stream(stream);
  if (!found) return report(cudaErrorInvalidResourceHandle);
  if (has_fault() || nbytes == 0) return report(cudaSuccess);
  const auto lock = lock_memory();
  const cudaError_t refusal = check_copy(dst, src, nbytes, kind);
  if (refusal == cudaSuccess) found->put([=] { memcpy(dst, src, nbytes); });
  return report(refusal);
}

cudaError_t cudaMemsetAsync(void* dst, int value, size_t nbytes, cudaStream_t stream) {
  const std::shared_ptr<Stream> found = find_stream(stream);
  if (!found) return report(cudaErrorInvalidResourceHandle);
  if (has_fault() || nbytes == 0) return report(cudaSuccess);
  const auto lock = lock_memory();
  if (!is_known_range(dst, nbytes)) return report(cudaErrorInvalidValue);
  found->put([=] { memset(dst, value, nbytes); });
  return report(cudaSuccess);
}
