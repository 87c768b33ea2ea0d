// What the operating system lets this process use: CPUs and memory.
// It knows no device. Every answer takes the affinity mask and all enclosing control groups (v1 and v2) into account.
#pragma once
#include <cstdint>

namespace helios {

// CPUs that this process may keep busy at once, at least 1.
int usable_cpus();

struct MemoryRoom {
  uint64_t available_nbytes;  // can be taken now without swapping or being killed
  uint64_t total_nbytes;
};
MemoryRoom memory_room();

// Anonymous memory of this process that is really backed by pages.
uint64_t resident_anonymous_nbytes();

}  // namespace helios
