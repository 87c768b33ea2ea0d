// The CUDA library's one export: the table of all kernels, and the device code that has them. The library needs no CUDA
// runtime, so what a launch may touch (the host library's answer: the vocabulary has one) and how it is made is known
// where no GPU is. The sources of this folder are in it as the emulator's compiler sees them, for their launches alone;
// the linker drops the bodies.
#include "host/host.h"
#include "images.h"
#include "launch.h"

namespace helios {
namespace {

#define HELIOS_KIND_OF_R HELIOS_KIND_READ
#define HELIOS_KIND_OF_W HELIOS_KIND_WRITE
#define HELIOS_KIND_OF_X HELIOS_KIND_READ_WRITE
#define HELIOS_KIND_OF_I HELIOS_KIND_I32
#define HELIOS_KIND_OF_L HELIOS_KIND_I64
#define HELIOS_KIND_OF_U HELIOS_KIND_U32
#define HELIOS_KIND_OF_S HELIOS_KIND_F32

#define HELIOS_TABLE_FIELD(kind, name) {#name, uint32_t(offsetof(Args, name)), HELIOS_KIND_OF_##kind},
#define HELIOS_TABLE_FIELDS(id, name, list)                 \
  namespace fields_##id {                                   \
    using Args = HeliosArgs_##id;                           \
    const HeliosField table[] = {list(HELIOS_TABLE_FIELD)}; \
  }
HELIOS_KERNELS(HELIOS_TABLE_FIELDS)

#define HELIOS_TABLE_KERNEL(id, name, list)            \
  {name,                                               \
   sizeof(HeliosArgs_##id),                            \
   sizeof(fields_##id::table) / sizeof(HeliosField),   \
   fields_##id::table,                                 \
   host_##id.extent,                                   \
   cuda::geometry<cuda::launch_##id>,                  \
   cuda::launch_##id.waits ? HELIOS_KERNEL_WAITS : 0u, \
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

extern "C" __attribute__((visibility("default"))) const HeliosKernelLibrary* helios_kernel_library(void) {
  return &helios::library;
}
