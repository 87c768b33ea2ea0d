// silu(v) = v / (1 + e^-v), in single precision.
#pragma once
#include "kernel.h"

namespace helios::cuda {

__device__ __forceinline__ float silu(float v) { return v / (1.f + expf(-v)); }

}  // namespace helios::cuda
