// The kernel library's one export: the table of all kernels, built from the vocabulary in kernels.h.
#include "host.h"

#ifndef HELIOS_TARGET
#error "define HELIOS_TARGET as the name of the instruction set that this library is built for"
#endif

namespace helios {
namespace {

constexpr uint32_t kKindOfR = HELIOS_KIND_READ, kKindOfW = HELIOS_KIND_WRITE, kKindOfX = HELIOS_KIND_READ_WRITE,
                   kKindOfI = HELIOS_KIND_I32, kKindOfL = HELIOS_KIND_I64, kKindOfU = HELIOS_KIND_U32,
                   kKindOfS = HELIOS_KIND_F32;

#define HELIOS_TABLE_FIELD(kind, name) {#name, uint32_t(offsetof(Args, name)), kKindOf##kind},
#define HELIOS_TABLE_FIELDS(id, name, list)                 \
  namespace fields_##id {                                   \
    using Args = HeliosArgs_##id;                           \
    const HeliosField table[] = {list(HELIOS_TABLE_FIELD)}; \
  }
HELIOS_KERNELS(HELIOS_TABLE_FIELDS)

#define HELIOS_TABLE_KERNEL(id, name, list)          \
  {name,                                             \
   sizeof(HeliosArgs_##id),                          \
   sizeof(fields_##id::table) / sizeof(HeliosField), \
   fields_##id::table,                               \
   host_##id.extent,                                 \
   host_##id.n_tasks,                                \
   host_##id.run},

const HeliosKernel kernels[] = {HELIOS_KERNELS(HELIOS_TABLE_KERNEL)};
const HeliosKernelLibrary library = {1, sizeof kernels / sizeof kernels[0], kernels, HELIOS_TARGET};

}  // namespace
}  // namespace helios

extern "C" __attribute__((visibility("default"))) const HeliosKernelLibrary* helios_kernel_library(void) {
  return &helios::library;
}
