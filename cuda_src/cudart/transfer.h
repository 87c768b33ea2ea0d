// The rule for copies, shared by streams and graphs.
// It knows only the memory book, whose lock the caller holds. Both ranges lie in one live allocation each, they do not
// overlap, and the kind says truthfully which side is device memory.
#pragma once
#include "cudart.h"
#include "memory.h"

namespace helios {

inline cudaError_t check_copy(const void* dst, const void* src, uint64_t nbytes, cudaMemcpyKind kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (!is_known_range(dst, nbytes) || !is_known_range(src, nbytes)) return cudaErrorInvalidValue;
  const uintptr_t to = reinterpret_cast<uintptr_t>(dst), from = reinterpret_cast<uintptr_t>(src);
  if (to < from + nbytes && from < to + nbytes) return cudaErrorInvalidValue;
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool is_truthful = is_known_range(dst, nbytes, to_device ? MemoryKind::device : MemoryKind::pinned) &&
                           is_known_range(src, nbytes, from_device ? MemoryKind::device : MemoryKind::pinned);
  return is_truthful ? cudaSuccess : cudaErrorInvalidMemcpyDirection;
}

}  // namespace helios
