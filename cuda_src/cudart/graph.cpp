// Builds, checks, instantiates and launches graphs.
// It knows no program names. Argument structs are copied when a node is added, addresses are checked then and again at
// a launch after any memory was freed, so a node never touches memory that is not allocated.
#include "graph.h"

#include <string.h>

#include "error.h"
#include "handles.h"
#include "memory.h"
#include "stream.h"
#include "transfer.h"

namespace helios {

namespace {

HandleTable<Graph>& graphs() {
  static auto* table = new HandleTable<Graph>;
  return *table;
}

HandleTable<GraphExec>& execs() {
  static auto* table = new HandleTable<GraphExec>;
  return *table;
}

// The three overloads need the lock of the memory book.
cudaError_t check_addresses(const KernelWork& work) {
  const HeliosKernel& entry = *work.kernel->entry;
  const char* args = reinterpret_cast<const char*>(work.args.data());
  for (uint32_t i = 0; i < entry.n_fields; i++) {
    if (entry.fields[i].kind > HELIOS_KIND_READ_WRITE) continue;
    const void* address;
    memcpy(&address, args + entry.fields[i].offset, sizeof address);
    const uint64_t nbytes = entry.extent(args, i);
    if (nbytes != 0 && !is_known_range(address, nbytes)) return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t check_addresses(const CopyWork& work) { return check_copy(work.dst, work.src, work.nbytes, work.kind); }

cudaError_t check_addresses(const FillWork& work) {
  return is_known_range(work.dst, work.nbytes) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t run_work(const KernelWork& work, HostDevice& device) {
  return device.run_kernel(*work.kernel->entry, work.geometry, work.args.data());
}

cudaError_t run_work(const CopyWork& work, HostDevice&) {
  memcpy(work.dst, work.src, work.nbytes);
  return cudaSuccess;
}

cudaError_t run_work(const FillWork& work, HostDevice&) {
  memset(work.dst, work.value, work.nbytes);
  return cudaSuccess;
}

// Kernels have one dimension of blocks and of threads.
bool is_launchable(const cudaKernelNodeParams& params, const Kernel& kernel) {
  const dim3 &grid = params.gridDim, &block = params.blockDim;
  const bool is_grid_valid = grid.x >= 1 && grid.x <= INT32_MAX && grid.y == 1 && grid.z == 1;
  const bool is_block_valid = block.x >= 1 && block.x <= 1024 && block.y == 1 && block.z == 1;
  return is_grid_valid && is_block_valid && params.sharedMemBytes <= unsigned(kernel.max_dynamic_shared_nbytes);
}

HeliosGeometry geometry_of(const cudaKernelNodeParams& params) {
  return {int64_t(params.gridDim.x), int32_t(params.blockDim.x), int32_t(params.sharedMemBytes)};
}

// A kernel that waits itself for the one before it may follow a kernel. Here it starts after that, as it always may.
bool is_edge_valid(const cudaGraphEdgeData& edge, const Work& before) {
  const bool is_programmatic = edge.type == cudaGraphDependencyTypeProgrammatic;
  const int port = is_programmatic ? cudaGraphKernelNodePortProgrammatic : cudaGraphKernelNodePortDefault;
  const bool is_known = is_programmatic || edge.type == cudaGraphDependencyTypeDefault;
  return is_known && edge.from_port == port && edge.to_port == 0 &&
         (!is_programmatic || std::holds_alternative<KernelWork>(before));
}

cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                     const cudaGraphEdgeData* edges, size_t n_dependencies, Work work) {
  const std::shared_ptr<Graph> found = graphs().find(graph);
  if (!found) return cudaErrorInvalidResourceHandle;
  if (!node || (n_dependencies != 0 && !dependencies)) return cudaErrorInvalidValue;
  {
    const auto lock = lock_memory();
    const cudaError_t refusal = std::visit([](const auto& w) { return check_addresses(w); }, work);
    if (refusal != cudaSuccess) return refusal;
  }
  std::lock_guard<std::mutex> lock(found->mutex);
  for (size_t i = 0; i < n_dependencies; i++) {
    const auto before = found->node_indices.find(reinterpret_cast<uintptr_t>(dependencies[i]));
    if (before == found->node_indices.end()) return cudaErrorInvalidValue;
    if (edges && !is_edge_valid(edges[i], found->nodes[before->second])) return cudaErrorInvalidValue;
  }
  const uintptr_t handle = new_handle();
  found->node_indices[handle] = found->nodes.size();
  found->nodes.push_back(std::move(work));
  *node = reinterpret_cast<cudaGraphNode_t>(handle);
  return cudaSuccess;
}

}  // namespace

bool GraphExec::has_valid_addresses() {
  if (checked_at_removal_ == removals()) return true;
  for (const Work& work : nodes_) {
    if (std::visit([](const auto& w) { return check_addresses(w); }, work) != cudaSuccess) return false;
  }
  checked_at_removal_ = removals();
  return true;
}

void GraphExec::run(HostDevice& device) {
  std::lock_guard<std::mutex> lock(running_);
  for (const Work& work : nodes_) {
    const cudaError_t failure = std::visit([&](const auto& w) { return run_work(w, device); }, work);
    if (failure != cudaSuccess) return set_fault(failure);
  }
}

}  // namespace helios

using namespace helios;

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned int flags) {
  if (!graph || flags != 0) return report(cudaErrorInvalidValue);
  *graph = graphs().add<cudaGraph_t>(std::make_shared<Graph>());
  return report(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return report(graphs().take(graph) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

static cudaError_t add_kernel_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   const cudaGraphEdgeData* edges, size_t n_dependencies,
                                   const cudaKernelNodeParams* params) {
  if (!params || !params->kernelParams || !params->kernelParams[0] || params->extra) return cudaErrorInvalidValue;
  const std::shared_ptr<Kernel> kernel = find_kernel(params->func);
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  if (!is_launchable(*params, *kernel)) return cudaErrorInvalidValue;
  KernelWork work{kernel, geometry_of(*params), std::vector<uint64_t>((kernel->entry->args_nbytes + 7) / 8)};
  memcpy(work.args.data(), params->kernelParams[0], kernel->entry->args_nbytes);
  return add_node(node, graph, dependencies, edges, n_dependencies, std::move(work));
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t n_dependencies, const cudaKernelNodeParams* params) {
  return report(add_kernel_node(node, graph, dependencies, nullptr, n_dependencies, params));
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                             const cudaGraphEdgeData* edges, size_t n_dependencies,
                             const cudaGraphNodeParams* params) {
  if (!params || params->type != cudaGraphNodeTypeKernel) return report(cudaErrorInvalidValue);
  return report(add_kernel_node(node, graph, dependencies, edges, n_dependencies, &params->kernel));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                     size_t n_dependencies, void* dst, const void* src, size_t nbytes,
                                     cudaMemcpyKind kind) {
  if (nbytes == 0) return report(cudaErrorInvalidValue);
  return report(add_node(node, graph, dependencies, nullptr, n_dependencies, CopyWork{dst, src, nbytes, kind}));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t n_dependencies, const cudaMemsetParams* params) {
  const bool is_byte_fill =
      params && params->elementSize == 1 && params->height == 1 && params->width != 0 && params->value <= 255;
  if (!is_byte_fill) return report(cudaErrorInvalidValue);
  const FillWork work{params->dst, static_cast<unsigned char>(params->value), params->width};
  return report(add_node(node, graph, dependencies, nullptr, n_dependencies, work));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  if (!exec || flags != 0) return report(cudaErrorInvalidValue);
  const std::shared_ptr<Graph> found = graphs().find(graph);
  if (!found) return report(cudaErrorInvalidResourceHandle);
  std::lock_guard<std::mutex> lock(found->mutex);
  *exec = execs().add<cudaGraphExec_t>(std::make_shared<GraphExec>(found->nodes));
  return report(cudaSuccess);
}

// There is nothing to upload: the executable already lies where it runs.
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return report(execs().find(exec) && find_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const std::shared_ptr<GraphExec> found = execs().find(exec);
  const std::shared_ptr<Stream> launched_on = find_stream(stream);
  if (!found || !launched_on) return report(cudaErrorInvalidResourceHandle);
  if (has_fault()) return report(cudaSuccess);
  const auto lock = lock_memory();
  if (!found->has_valid_addresses()) {
    set_fault(cudaErrorLaunchFailure);
    return report(cudaSuccess);
  }
  HostDevice& device = launched_on->device();
  launched_on->put([found, &device] { found->run(device); });
  return report(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return report(execs().take(exec) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
