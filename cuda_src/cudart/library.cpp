// Opens kernel libraries, finds kernels by name, and describes their one argument.
// It runs nothing. Only a shared object that exports a table of our ABI number, with complete host entries, is
// accepted.
#include "library.h"

#include <dlfcn.h>
#include <string.h>

#include <unordered_map>
#include <vector>

#include "error.h"
#include "handles.h"

namespace helios {

namespace {

HandleTable<const KernelImage>& images() {
  static auto* table = new HandleTable<const KernelImage>;
  return *table;
}

HandleTable<Kernel>& kernels() {
  static auto* table = new HandleTable<Kernel>;
  return *table;
}

bool is_complete(const HeliosKernelLibrary* table) {
  if (!table || table->abi != HELIOS_KERNEL_ABI) return false;
  for (uint32_t i = 0; i < table->n_kernels; i++) {
    const HeliosKernel& kernel = table->kernels[i];
    if (!kernel.name || !kernel.extent || !kernel.geometry) return false;
    if (!(kernel.n_tasks && kernel.run) && !kernel.run_block) return false;
  }
  return true;
}

}  // namespace

KernelImage::~KernelImage() { dlclose(shared_object_); }

const HeliosKernel* KernelImage::find(const char* name) const {
  for (uint32_t i = 0; i < table_->n_kernels; i++) {
    if (strcmp(table_->kernels[i].name, name) == 0) return &table_->kernels[i];
  }
  return nullptr;
}

std::shared_ptr<Kernel> find_kernel(const void* kernel) { return kernels().find(kernel); }

}  // namespace helios

using namespace helios;

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* path, void*, void**, unsigned int n_jit_options,
                                    void*, void**, unsigned int n_library_options) {
  if (!library || !path || n_jit_options != 0 || n_library_options != 0) return report(cudaErrorInvalidValue);
  void* shared_object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!shared_object) return report(cudaErrorFileNotFound);
  using GetTable = const HeliosKernelLibrary* (*)();
  const auto get_table = reinterpret_cast<GetTable>(dlsym(shared_object, "helios_kernel_library"));
  const HeliosKernelLibrary* table = get_table ? get_table() : nullptr;
  if (!is_complete(table)) {
    dlclose(shared_object);
    return report(cudaErrorInvalidKernelImage);
  }
  *library = images().add<cudaLibrary_t>(std::make_shared<const KernelImage>(shared_object, table));
  return report(cudaSuccess);
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t*, const void*, void*, void**, unsigned int, void*, void**, unsigned int) {
  return report(cudaErrorInvalidKernelImage);
}

// Kernel handles of the library stop being valid with it; graphs that hold its kernels keep it mapped.
cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  const std::shared_ptr<const KernelImage> image = images().take(library);
  if (!image) return report(cudaErrorInvalidResourceHandle);
  kernels().remove_if([&](const Kernel& kernel) { return kernel.image == image; });
  return report(cudaSuccess);
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  if (!kernel || !name) return report(cudaErrorInvalidValue);
  const std::shared_ptr<const KernelImage> image = images().find(library);
  if (!image) return report(cudaErrorInvalidResourceHandle);
  const HeliosKernel* entry = image->find(name);
  if (!entry) return report(cudaErrorSymbolNotFound);
  auto found = std::make_shared<Kernel>();
  found->image = image;
  found->entry = entry;
  *kernel = kernels().add<cudaKernel_t>(std::move(found));
  return report(cudaSuccess);
}

// Every kernel has exactly one parameter: its argument struct, by value.
cudaError_t cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* nbytes) {
  const std::shared_ptr<Kernel> kernel = find_kernel(function);
  if (!kernel) return report(cudaErrorInvalidDeviceFunction);
  if (index != 0 || !offset) return report(cudaErrorInvalidValue);
  *offset = 0;
  if (nbytes) *nbytes = kernel->entry->args_nbytes;
  return report(cudaSuccess);
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const std::shared_ptr<Kernel> kernel = find_kernel(function);
  if (!kernel) return report(cudaErrorInvalidDeviceFunction);
  const bool is_acceptable =
      attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value >= 0 && value <= 227 * 1024;
  if (!is_acceptable) return report(cudaErrorInvalidValue);
  kernel->max_dynamic_shared_nbytes = value;
  return report(cudaSuccess);
}
