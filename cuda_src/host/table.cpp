// The kernel library's one export: the table of all kernels, built from the vocabulary in kernels.h.
#include "host.h"
#include "kernel_table.h"

#ifndef HELIOS_TARGET
#error "define HELIOS_TARGET as the name of the instruction set that this library is built for"
#endif

namespace helios {
namespace {

void geometry(const void*, HeliosGeometry* geometry) { *geometry = {1, 1, 0}; }

#define HELIOS_TABLE_KERNEL(id, name, list) \
  {HELIOS_TABLE_ARGUMENTS(id, name),        \
   geometry,                                \
   0,                                       \
   0,                                       \
   host_##id.n_tasks,                       \
   host_##id.run,                           \
   nullptr,                                 \
   nullptr,                                 \
   nullptr},

const HeliosKernel kernels[] = {HELIOS_KERNELS(HELIOS_TABLE_KERNEL)};
const HeliosKernelLibrary library = {
    HELIOS_KERNEL_ABI, sizeof kernels / sizeof kernels[0], kernels, HELIOS_TARGET, 0, 0, nullptr};

}  // namespace
}  // namespace helios

HELIOS_EXPORT const HeliosKernelLibrary* helios_kernel_library(void) { return &helios::library; }
