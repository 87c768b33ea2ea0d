// Loaded kernel libraries and the kernels in them.
// It knows no graph and no device. A kernel keeps its library mapped for as long as anything refers to the kernel.
#pragma once
#include <atomic>
#include <memory>

#include "../kernels.h"
#include "cudart.h"

namespace helios {

// An open shared object with a kernel table.
class KernelImage {
 public:
  KernelImage(void* shared_object, const HeliosKernelLibrary* table) : shared_object_(shared_object), table_(table) {}
  ~KernelImage();
  KernelImage(const KernelImage&) = delete;
  KernelImage& operator=(const KernelImage&) = delete;

  const HeliosKernel* find(const char* name) const;

 private:
  void* shared_object_;
  const HeliosKernelLibrary* table_;
};

struct Kernel {
  std::shared_ptr<const KernelImage> image;
  const HeliosKernel* entry;
  std::atomic<int> max_dynamic_shared_nbytes{48 * 1024};
};

std::shared_ptr<Kernel> find_kernel(const void* kernel);

}  // namespace helios
