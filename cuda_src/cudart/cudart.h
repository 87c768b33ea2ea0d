// The subset of the CUDA 13 runtime ABI that serving needs: same names, signatures, numbers and struct layouts as the
// real libcudart, so that one table of ctypes signatures drives both. `helios/device/cudart.py` holds that table, and a
// test compares it with this file. Functions whose names begin with `heliosHost` exist only in the host library.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define HELIOS_API extern "C" __attribute__((visibility("default")))

typedef enum {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidKernelImage = 200,
  cudaErrorFileNotFound = 301,
  cudaErrorOperatingSystem = 304,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorSymbolNotFound = 500,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
} cudaError_t;

typedef enum {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
} cudaMemcpyKind;

typedef enum {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,     // host: worker threads of the device
  cudaDevAttrComputeCapabilityMajor = 75,  // host: 1 x86-64, 3 x86-64-v3, 4 x86-64-v4 with VNNI, 8 aarch64
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
} cudaDeviceAttr;

typedef enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 } cudaFuncAttribute;

// Handles are opaque; the host library never reuses one, so a destroyed handle stays invalid.
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUlib_st* cudaLibrary_t;
typedef struct CUkern_st* cudaKernel_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphNode_st* cudaGraphNode_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;

typedef struct {
  unsigned int x, y, z;
} dim3;

typedef struct {
  void* func;  // a cudaKernel_t
  dim3 gridDim;
  dim3 blockDim;
  unsigned int sharedMemBytes;
  void** kernelParams;
  void** extra;
} cudaKernelNodeParams;  // 56 bytes

typedef struct {
  void* dst;
  size_t pitch;
  unsigned int value;
  unsigned int elementSize;
  size_t width;  // elements
  size_t height;
} cudaMemsetParams;  // 40 bytes

typedef enum { cudaGraphNodeTypeKernel = 0 } cudaGraphNodeType;

typedef struct {
  cudaGraphNodeType type;  // a kernel's: the only node that is added this way
  int reserved0[3];
  cudaKernelNodeParams kernel;
  size_t reserved1[23];
} cudaGraphNodeParams;  // 256 bytes

enum { cudaGraphKernelNodePortDefault = 0, cudaGraphKernelNodePortProgrammatic = 1 };
enum { cudaGraphDependencyTypeDefault = 0, cudaGraphDependencyTypeProgrammatic = 1 };

typedef struct {
  unsigned char from_port, to_port, type;
  unsigned char reserved[5];
} cudaGraphEdgeData;  // 8 bytes

static_assert(sizeof(cudaGraphNodeParams) == 256 && sizeof(cudaGraphEdgeData) == 8, "layouts of CUDA 13");
static_assert(sizeof(cudaKernelNodeParams) == 56 && sizeof(cudaMemsetParams) == 40, "layouts of CUDA 13");

// Versions and devices (device.cpp)
HELIOS_API cudaError_t cudaRuntimeGetVersion(int* version);
HELIOS_API cudaError_t cudaDriverGetVersion(int* version);
HELIOS_API cudaError_t cudaGetDeviceCount(int* count);
HELIOS_API cudaError_t cudaSetDevice(int device);
HELIOS_API cudaError_t cudaGetDevice(int* device);
HELIOS_API cudaError_t cudaSetDeviceFlags(unsigned int flags);
HELIOS_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
HELIOS_API cudaError_t cudaDeviceSynchronize(void);
// Threads that run kernel tasks on the current device, from the next phase on; the stream's own thread counts as one.
// 0: as many as the process may keep busy.
HELIOS_API cudaError_t heliosHostSetThreads(int n_threads);

// Memory (memory.cpp)
HELIOS_API cudaError_t cudaMemGetInfo(size_t* free_nbytes, size_t* total_nbytes);
HELIOS_API cudaError_t cudaMalloc(void** address, size_t nbytes);
// Device memory of which little will be touched: only that is resident.
HELIOS_API cudaError_t heliosHostMallocSparse(void** address, size_t nbytes);
HELIOS_API cudaError_t cudaFree(void* address);
HELIOS_API cudaError_t cudaHostAlloc(void** address, size_t nbytes, unsigned int flags);
HELIOS_API cudaError_t cudaFreeHost(void* address);

// Streams (stream.cpp)
HELIOS_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags);
HELIOS_API cudaError_t cudaStreamDestroy(cudaStream_t stream);
HELIOS_API cudaError_t cudaStreamSynchronize(cudaStream_t stream);
HELIOS_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);
HELIOS_API cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t nbytes, cudaMemcpyKind kind,
                                       cudaStream_t stream);
HELIOS_API cudaError_t cudaMemsetAsync(void* dst, int value, size_t nbytes, cudaStream_t stream);

// Events (event.cpp)
HELIOS_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
HELIOS_API cudaError_t cudaEventDestroy(cudaEvent_t event);
HELIOS_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
HELIOS_API cudaError_t cudaEventQuery(cudaEvent_t event);
HELIOS_API cudaError_t cudaEventSynchronize(cudaEvent_t event);

// Kernel libraries (library.cpp)
HELIOS_API cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* path, void* jit_options,
                                               void** jit_values, unsigned int n_jit_options, void* library_options,
                                               void** library_values, unsigned int n_library_options);
// Only to be there: no image in memory is a host library.
HELIOS_API cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, void* jit_options,
                                           void** jit_values, unsigned int n_jit_options, void* library_options,
                                           void** library_values, unsigned int n_library_options);
HELIOS_API cudaError_t cudaLibraryUnload(cudaLibrary_t library);
HELIOS_API cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name);
HELIOS_API cudaError_t cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* nbytes);
HELIOS_API cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value);

// Graphs (graph.cpp)
HELIOS_API cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned int flags);
HELIOS_API cudaError_t cudaGraphDestroy(cudaGraph_t graph);
HELIOS_API cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                              const cudaGraphNode_t* dependencies, size_t n_dependencies,
                                              const cudaKernelNodeParams* params);
HELIOS_API cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                        const cudaGraphEdgeData* edges, size_t n_dependencies,
                                        const cudaGraphNodeParams* params);
HELIOS_API cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                                const cudaGraphNode_t* dependencies, size_t n_dependencies, void* dst,
                                                const void* src, size_t nbytes, cudaMemcpyKind kind);
HELIOS_API cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                              const cudaGraphNode_t* dependencies, size_t n_dependencies,
                                              const cudaMemsetParams* params);
HELIOS_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags);
HELIOS_API cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
HELIOS_API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
HELIOS_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

// Errors (error.cpp)
HELIOS_API cudaError_t cudaGetLastError(void);
HELIOS_API cudaError_t cudaPeekAtLastError(void);
HELIOS_API const char* cudaGetErrorName(cudaError_t error);
HELIOS_API const char* cudaGetErrorString(cudaError_t error);
