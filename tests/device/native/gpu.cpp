// A stand-in for the real CUDA runtime, for tests: the host runtime behind it, with the emulator for the device code, and
// what a machine with GPUs says of itself. What it says, and when a call fails, is set by the test. A thread begins at GPU 0, and
// may launch on streams of its own GPU alone.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <mutex>
#include <string>

#include "cudart/cudart.h"
#include "kernels.h"

namespace {

struct Script {
  int driver_version = 13000, n_devices = 2, count_code = 0, capability = 9;
  size_t free_nbytes = size_t(8) << 30;
  const char* failing = "";  // a function, which from now on ...
  int code = 0;              // ... returns this
  int n_early_edges = 0, n_images = 0, n_uploads = 0, n_executables = 0;
  unsigned event_flags = 0, device_flags = 0;
};
Script script;
std::string failing;
thread_local int device = 0;
std::mutex streams_lock;
std::map<cudaStream_t, int> stream_devices;

int scripted(const char* name) { return failing == name ? script.code : 0; }

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

const HeliosKernelLibrary* emulated() {
  static const HeliosKernelLibrary* table = [] {
    void* library = dlopen(getenv("HELIOS_TEST_KERNELS"), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<const HeliosKernelLibrary* (*)()>(dlsym(library, "helios_kernel_library"))();
  }();
  return table;
}

}  // namespace

#define FORWARD(name, parameters, arguments) \
  HELIOS_API cudaError_t name parameters {   \
    if (int code = scripted(#name)) return cudaError_t(code); \
    return next<decltype(&name)>(#name) arguments;            \
  }

// What is asked of the stand-in; counts start again.
HELIOS_API void gpu_script(int driver_version, int n_devices, int count_code, int capability, size_t free_nbytes,
                           const char* function, int code) {
  failing = function;
  script = Script{driver_version, n_devices, count_code, capability, free_nbytes, "", code};
}
HELIOS_API int gpu_early_edges(void) { return script.n_early_edges; }
HELIOS_API int gpu_images(void) { return script.n_images; }
HELIOS_API int gpu_device(void) { return device; }
HELIOS_API int gpu_uploads(void) { return script.n_uploads; }
HELIOS_API int gpu_executables(void) { return script.n_executables; }
HELIOS_API int gpu_event_flags(void) { return int(script.event_flags); }
HELIOS_API int gpu_device_flags(void) { return int(script.device_flags); }

HELIOS_API cudaError_t cudaDriverGetVersion(int* version) {
  *version = script.driver_version;
  return cudaSuccess;
}
HELIOS_API cudaError_t cudaGetDeviceCount(int* count) {
  if (script.count_code) return cudaError_t(script.count_code);
  *count = script.n_devices;
  return cudaSuccess;
}
HELIOS_API cudaError_t cudaSetDevice(int index) {
  device = index;
  return cudaSuccess;
}
HELIOS_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute != cudaDevAttrComputeCapabilityMajor)
    return next<decltype(&cudaDeviceGetAttribute)>("cudaDeviceGetAttribute")(value, attribute, 0);
  *value = script.capability;
  return cudaSuccess;
}
HELIOS_API cudaError_t cudaMemGetInfo(size_t* free_nbytes, size_t* total_nbytes) {
  *free_nbytes = *total_nbytes = script.free_nbytes;
  return cudaSuccess;
}
// A GPU's memory is what the last owner left.
HELIOS_API cudaError_t cudaMalloc(void** address, size_t nbytes) {
  const cudaError_t code = next<decltype(&cudaMalloc)>("cudaMalloc")(address, nbytes);
  if (code == cudaSuccess) memset(*address, 0xa5, nbytes);
  return code;
}
HELIOS_API cudaError_t cudaHostAlloc(void** address, size_t nbytes, unsigned int flags) {
  const cudaError_t code = next<decltype(&cudaHostAlloc)>("cudaHostAlloc")(address, nbytes, flags);
  if (code == cudaSuccess) memset(*address, 0xa5, nbytes);
  return code;
}

HELIOS_API cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, void* jit_options, void** jit_values,
                                           unsigned int n_jit_options, void* options, void** values, unsigned int n_options) {
  if (int failure = scripted("cudaLibraryLoadData")) return cudaError_t(failure);
  uint32_t magic;
  memcpy(&magic, code, sizeof magic);
  if (magic != 0xba55ed50) return cudaErrorInvalidKernelImage;  // of a fat binary
  script.n_images++;
  return next<decltype(&cudaLibraryLoadFromFile)>("cudaLibraryLoadFromFile")(
      library, getenv("HELIOS_TEST_KERNELS"), jit_options, jit_values, n_jit_options, options, values, n_options);
}
HELIOS_API cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* symbol) {
  const HeliosKernelLibrary* table = emulated();
  for (uint32_t i = 0; i < table->n_kernels; i++)
    if (strcmp(table->kernels[i].symbol, symbol) == 0)
      return next<decltype(&cudaLibraryGetKernel)>("cudaLibraryGetKernel")(kernel, library, table->kernels[i].name);
  return cudaErrorSymbolNotFound;
}
HELIOS_API cudaError_t cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* nbytes) {
  const cudaError_t code = next<decltype(&cudaFuncGetParamInfo)>("cudaFuncGetParamInfo")(function, index, offset, nbytes);
  if (scripted("cudaFuncGetParamInfo") && code == cudaSuccess) *nbytes += 8;
  return code;
}
HELIOS_API cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                        const cudaGraphEdgeData* edges, size_t n_dependencies,
                                        const cudaGraphNodeParams* params) {
  script.n_early_edges++;
  return next<decltype(&cudaGraphAddNode)>("cudaGraphAddNode")(node, graph, dependencies, edges, n_dependencies, params);
}
HELIOS_API cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  if (int code = scripted("cudaGraphUpload")) return cudaError_t(code);
  script.n_uploads++;
  return next<decltype(&cudaGraphUpload)>("cudaGraphUpload")(exec, stream);
}
HELIOS_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  script.event_flags = flags;
  return next<decltype(&cudaEventCreateWithFlags)>("cudaEventCreateWithFlags")(event, flags);
}
HELIOS_API cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  script.device_flags = flags;
  return next<decltype(&cudaSetDeviceFlags)>("cudaSetDeviceFlags")(flags);
}
HELIOS_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  script.n_executables++;
  return next<decltype(&cudaGraphInstantiate)>("cudaGraphInstantiate")(exec, graph, flags);
}
HELIOS_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  script.n_executables--;
  return next<decltype(&cudaGraphExecDestroy)>("cudaGraphExecDestroy")(exec);
}
FORWARD(cudaEventSynchronize, (cudaEvent_t event), (event))
FORWARD(cudaFree, (void* address), (address))
HELIOS_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  const cudaError_t code = next<decltype(&cudaStreamCreateWithFlags)>("cudaStreamCreateWithFlags")(stream, flags);
  const std::lock_guard<std::mutex> lock(streams_lock);
  if (code == cudaSuccess) stream_devices[*stream] = device;
  return code;
}
HELIOS_API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (int code = scripted("cudaGraphLaunch")) return cudaError_t(code);
  const std::lock_guard<std::mutex> lock(streams_lock);
  if (stream_devices[stream] != device) return cudaErrorInvalidResourceHandle;
  return next<decltype(&cudaGraphLaunch)>("cudaGraphLaunch")(exec, stream);
}
