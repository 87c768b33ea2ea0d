// Error codes, their names and sentences, the sticky fault and each thread's last error.
// It knows no other part of the library. `cudaErrorNotReady` is an answer, not an error, and is never remembered.
#include "error.h"

#include <atomic>

namespace helios {

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* sentence;
};

const ErrorText error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "the copy kind contradicts the addresses"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "not a kernel of a loaded library"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidKernelImage, "cudaErrorInvalidKernelImage", "the file is not a kernel library of this version"},
    {cudaErrorFileNotFound, "cudaErrorFileNotFound", "the kernel library cannot be loaded"},
    {cudaErrorOperatingSystem, "cudaErrorOperatingSystem", "the operating system refused a thread"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "unknown or destroyed handle"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "no such kernel in the library"},
    {cudaErrorNotReady, "cudaErrorNotReady", "not finished yet"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "a launch failed; the device is lost until the process ends"},
};

std::atomic<cudaError_t> fault{cudaSuccess};
thread_local cudaError_t last_error = cudaSuccess;

const ErrorText* find_text(cudaError_t error) {
  for (const ErrorText& text : error_texts) {
    if (text.error == error) return &text;
  }
  return nullptr;
}

}  // namespace

void set_fault(cudaError_t error) {
  cudaError_t none = cudaSuccess;
  fault.compare_exchange_strong(none, error);
}

bool has_fault() { return fault.load(std::memory_order_acquire) != cudaSuccess; }

cudaError_t report(cudaError_t error) {
  const cudaError_t stuck = fault.load(std::memory_order_acquire);
  if (stuck != cudaSuccess) error = stuck;
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

}  // namespace helios

using namespace helios;

cudaError_t cudaPeekAtLastError() { return report(last_error); }

cudaError_t cudaGetLastError() {
  const cudaError_t error = report(last_error);
  last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* text = find_text(error);
  return text ? text->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* text = find_text(error);
  return text ? text->sentence : "unrecognized error code";
}
