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

__device__ __forceinline__ bool is_aligned(const void* p, size_t nbytes = sizeof(Chunk)) {
  return reinterpret_cast<uintptr_t>(p) % nbytes == 0;
}

// The first of n floats, zeros past them; one by one where the row does not stand so that a chunk of it can be read.
__device__ __forceinline__ Floats load_floats(const float* x, int64_t n) {
  if (n >= kFloats && is_aligned(x)) return *reinterpret_cast<const Floats*>(x);
  Floats floats = {};
  HELIOS_UNROLL
  for (int i = 0; i < kFloats; i++)
    if (i < n) floats.v[i] = x[i];
  return floats;
}
__device__ __forceinline__ void store_floats(float* x, const Floats& floats, int64_t n) {
  if (n >= kFloats && is_aligned(x)) {
    *reinterpret_cast<Floats*>(x) = floats;
  } else {
    HELIOS_UNROLL
    for (int i = 0; i < kFloats; i++)
      if (i < n) x[i] = floats.v[i];
  }
}

// What is left of n bytes when the block has copied them a T at a time, where both ends are aligned to it.
template <class T>
__device__ __forceinline__ int64_t copy_as(char* to, const char* from, int64_t n) {
  if (!is_aligned(to, sizeof(T)) || !is_aligned(from, sizeof(T))) return n;
  const int64_t n_whole = n / int64_t(sizeof(T));
  for (int64_t i = threadIdx.x; i < n_whole; i += kThreads) as<T>(to)[i] = as<T>(from)[i];
  return n % int64_t(sizeof(T));
}
// All threads of a block of kThreads together.
__device__ __forceinline__ void copy_bytes(char* to, const char* from, int64_t n) {
  int64_t left = copy_as<Chunk>(to, from, n);
  left = copy_as<uint32_t>(to + (n - left), from + (n - left), left);
  copy_as<char>(to + (n - left), from + (n - left), left);
}

}  // namespace helios::cuda
