// Graphs of kernel launches, copies and fills, and their executable copies.
// It knows no Python and no program. A node may depend only on nodes that are already in its graph, so a graph has no
// cycles and the order of insertion is a topological order, which is the order in which an executable walks it.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <variant>
#include <vector>

#include "cudart.h"
#include "device.h"
#include "library.h"

namespace helios {

struct KernelWork {
  std::shared_ptr<const Kernel> kernel;
  HeliosGeometry geometry;
  std::vector<uint64_t> args;  // the argument struct, in whole words for its alignment
};
struct CopyWork {
  void* dst;
  const void* src;
  size_t nbytes;
  cudaMemcpyKind kind;
};
struct FillWork {
  void* dst;
  unsigned char value;
  size_t nbytes;
};
using Work = std::variant<KernelWork, CopyWork, FillWork>;

struct Graph {
  std::mutex mutex;
  std::vector<Work> nodes;
  std::unordered_map<uintptr_t, size_t> node_indices;  // by handle
};

// An immutable copy of a graph's nodes. Launches of one executable never overlap each other.
class GraphExec {
 public:
  explicit GraphExec(std::vector<Work> nodes) : nodes_(std::move(nodes)) {}

  // Whether every address is still in a live allocation. The caller holds the lock of the memory book.
  bool has_valid_addresses();

  // Runs every node; the first failure becomes the process's fault and ends the walk.
  void run(HostDevice& device);

 private:
  std::vector<Work> nodes_;
  uint64_t checked_at_removal_ = UINT64_MAX;  // under the lock of the memory book
  std::mutex running_;
};

}  // namespace helios
