// The library's exports: the table of all kernels, run block by block, and the conduct of the emulator.
#include <string.h>

#include "cuda/launch.h"
#include "emulator.h"
#include "host/host.h"
#include "kernel_table.h"

#define HELIOS_DECLARE_EMULATED(id, name, list) void helios_emulated_##id(const void* args);
HELIOS_KERNELS(HELIOS_DECLARE_EMULATED)

namespace helios {
namespace {

#define HELIOS_RUN_BLOCK(id, name, list)                                                                         \
  int32_t run_block_##id(const void* args, const HeliosGeometry* geometry, int32_t block) {                      \
    return simt::has_failed() || !simt::run_block(name, helios_emulated_##id, args, *geometry, uint32_t(block)); \
  }
HELIOS_KERNELS(HELIOS_RUN_BLOCK)

#define HELIOS_TABLE_KERNEL(id, name, list)            \
  {HELIOS_TABLE_ARGUMENTS(id, name),                   \
   cuda::geometry<cuda::launch_##id>,                  \
   HELIOS_KERNEL_WAITS,                                \
   0,                                                  \
   nullptr,                                            \
   nullptr,                                            \
   run_block_##id,                                     \
   nullptr,                                            \
   "helios_" #id},

const HeliosKernel kernels[] = {HELIOS_KERNELS(HELIOS_TABLE_KERNEL)};
const HeliosKernelLibrary library = {
    HELIOS_KERNEL_ABI, sizeof kernels / sizeof kernels[0], kernels, HELIOS_TARGET, 0, 0, nullptr};

}  // namespace
}  // namespace helios

HELIOS_EXPORT const HeliosKernelLibrary* helios_kernel_library(void) { return &helios::library; }

// How blocks are run from now on (Conduct in emulator.h); a failure is forgotten.
HELIOS_EXPORT void helios_simt_set_conduct(int32_t order, uint64_t seed, int32_t copies, int32_t architecture) {
  helios::simt::set_conduct({helios::simt::Order(order), seed, helios::simt::Copies(copies),
                             helios::simt::Architecture(architecture)});
}
// The first failure since then, empty when there is none, cut to `size` bytes.
HELIOS_EXPORT void helios_simt_failure(char* text, size_t size) {
  if (size == 0) return;
  strncpy(text, helios::simt::failure().c_str(), size - 1);
  text[size - 1] = 0;
}
