// The book of live allocations: every address that a copy, a fill or a kernel names has to lie in one of them.
// It knows no stream and no graph. A range counts as known only while its allocation lives and only within that one
// allocation; `removals` changes whenever a range that was known may no longer be.
#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace helios {

enum class MemoryKind { device, pinned };

// While this lock is held no allocation disappears. Check and enqueue under one lock: a later free then waits for the
// work.
std::unique_lock<std::mutex> lock_memory();

// These three need the lock.
bool is_known_range(const void* address, uint64_t nbytes);
bool is_known_range(const void* address, uint64_t nbytes, MemoryKind kind);
uint64_t removals();

}  // namespace helios
