// The kernel library's one export: the table of all kernels, built from the vocabulary in kernels.h.
#include "host.h"

#ifndef HELIOS_TARGET
#error "define HELIOS_TARGET as the name of the instruction set that this library is built for"
#endif

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

void geometry(const void*, HeliosGeometry* geometry) { *geometry = {1, 1, 0}; }

#define HELIOS_TABLE_KERNEL(id, name, list)          \
  {name,                                             \
   sizeof(HeliosArgs_##id),                          \
   sizeof(fields_##id::table) / sizeof(HeliosField), \
   fields_##id::table,                               \
   host_##id.extent,                                 \
   geometry,                                         \
   0,                                                \
   0,                                                \
   host_##id.n_tasks,                                \
   host_##id.run,                                    \
   nullptr,                                          \
   nullptr,                                          \
   nullptr},

const HeliosKernel kernels[] = {HELIOS_KERNELS(HELIOS_TABLE_KERNEL)};
const HeliosKernelLibrary library = {
    HELIOS_KERNEL_ABI, sizeof kernels / sizeof kernels[0], kernels, HELIOS_TARGET, 0, 0, nullptr};

}  // namespace
}  // namespace helios

extern "C" __attribute__((visibility("default"))) const HeliosKernelLibrary* helios_kernel_library(void) {
  return &helios::library;
}
