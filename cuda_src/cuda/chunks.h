// Memory 16 bytes at a time, the most that a thread loads or stores at once.
#pragma once
#include "kernel.h"

namespace helios::cuda {

struct alignas(16) Chunk {
  uint32_t words[4];
};
struct alignas(16) Floats {
  float v[4];
};

constexpr int kFloats = sizeof(Floats) / sizeof(float);

__device__ __forceinline__ bool is_aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % sizeof(Chunk) == 0;
}

}  // namespace helios::cuda
