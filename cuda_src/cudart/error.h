// The error state of the process: one fault that sticks, and each thread's last error.
// It knows nothing about what failed. Once `set_fault` was called, every call that can fail returns that fault.
#pragma once
#include "cudart.h"

namespace helios {

// The first fault wins and stays until the process ends, as a corrupted CUDA context does.
void set_fault(cudaError_t error);
bool has_fault();

// What an entry point returns: the fault if there is one, else `error`; remembered as this thread's last error.
cudaError_t report(cudaError_t error);

}  // namespace helios
