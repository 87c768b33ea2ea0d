// The CUDA library's one export: the table of all kernels, and the device code that has them. The library needs no CUDA
// runtime, so what a launch may touch (the host library's answer: the vocabulary has one) and how it is made is known
// where no GPU is. The sources of this folder are in it as the emulator's compiler sees them, for their launches alone;
// the linker drops the bodies.
#include "host/host.h"
#include "images.h"
#include "kernel_table.h"
#include "launch.h"

namespace helios {
namespace {

#define HELIOS_TABLE_KERNEL(id, name, list)            \
  {HELIOS_TABLE_ARGUMENTS(id, name),                   \
   cuda::geometry<cuda::launch_##id>,                  \
   HELIOS_KERNEL_WAITS,                                \
   0,                                                  \
   nullptr,                                            \
   nullptr,                                            \
   nullptr,                                            \
   cuda::launch_##id.source,                           \
   "helios_" #id},

const HeliosKernel kernels[] = {HELIOS_KERNELS(HELIOS_TABLE_KERNEL)};
const HeliosKernelLibrary library = {
    HELIOS_KERNEL_ABI, sizeof kernels / sizeof kernels[0], kernels, "cuda", cuda::n_images, 0, cuda::images};

}  // namespace
}  // namespace helios

HELIOS_EXPORT const HeliosKernelLibrary* helios_kernel_library(void) { return &helios::library; }
