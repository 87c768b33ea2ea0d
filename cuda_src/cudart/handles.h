// Tables from opaque handles to shared objects.
// A table knows nothing about what it holds. Handles come from one process-wide counter and are never reused, so a
// destroyed handle, or a handle of another kind, is always recognised as unknown.
#pragma once
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace helios {

inline uintptr_t new_handle() {
  static std::atomic<uintptr_t> next{0x1000};
  return next.fetch_add(16, std::memory_order_relaxed);
}

template <class Object>
class HandleTable {
 public:
  template <class Handle>
  Handle add(std::shared_ptr<Object> object) {
    const uintptr_t handle = new_handle();
    std::lock_guard<std::mutex> lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return reinterpret_cast<Handle>(handle);
  }

  std::shared_ptr<Object> find(const void* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }

  // Removes the handle; work that still holds the object keeps it alive.
  std::shared_ptr<Object> take(const void* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  template <class Condition>
  void remove_if(Condition condition) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto entry = objects_.begin(); entry != objects_.end();) {
      entry = condition(*entry->second) ? objects_.erase(entry) : std::next(entry);
    }
  }

  std::vector<std::shared_ptr<Object>> all() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<Object>> objects;
    for (const auto& entry : objects_) objects.push_back(entry.second);
    return objects;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uintptr_t, std::shared_ptr<Object>> objects_;
};

}  // namespace helios
