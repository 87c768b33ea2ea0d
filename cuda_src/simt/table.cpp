// The library's exports: the table of all kernels, run block by block, and the conduct of the emulator. What a launch may touch is what the host library says (`extent`): the vocabulary has one answer, whatever
// runs it.
#include <string.h>

#include "cuda/launch.h"
#include "emulator.h"
#include "host/host.h"

#define HELIOS_DECLARE_EMULATED(id, name, list) void helios_emulated_##id(const void* args);
HELIOS_KERNELS(HELIOS_DECLARE_EMULATED)

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
#define HELIOS_TABLE_FIELDS(id, name, list)                                                                         \
  namespace fields_##id {                                                                                           \
    using Args = HeliosArgs_##id;                                                                                   \
    const HeliosField table[] = {list(HELIOS_TABLE_FIELD)};                                                         \
    int32_t run_block(const void* args, const HeliosGeometry* geometry, int32_t block) {                            \
      return simt::has_failed() || !simt::run_block(name, helios_emulated_##id, args, *geometry, uint32_t(block)); \
    }                                                                                                               \
  }
HELIOS_KERNELS(HELIOS_TABLE_FIELDS)

#define HELIOS_TABLE_KERNEL(id, name, list)           \
  {name,                                              \
   sizeof(HeliosArgs_##id),                           \
   sizeof(fields_##id::table) / sizeof(HeliosField),  \
   fields_##id::table,                                \
   host_##id.extent,                                  \
   cuda::geometry<cuda::launch_##id>,                 \
   cuda::launch_##id.waits ? HELIOS_KERNEL_WAITS : 0u, \
   0,                                                 \
   nullptr,                                           \
   nullptr,                                           \
   fields_##id::run_block,                            \
   nullptr,                                           \
   "helios_" #id},

const HeliosKernel kernels[] = {HELIOS_KERNELS(HELIOS_TABLE_KERNEL)};
const HeliosKernelLibrary library = {
    HELIOS_KERNEL_ABI, sizeof kernels / sizeof kernels[0], kernels, HELIOS_TARGET, 0, 0, nullptr};

}  // namespace
}  // namespace helios

#define HELIOS_EXPORT extern "C" __attribute__((visibility("default")))

HELIOS_EXPORT const HeliosKernelLibrary* helios_kernel_library(void) { return &helios::library; }

// How blocks are run from now on (Conduct in emulator.h); a failure is forgotten.
HELIOS_EXPORT void helios_simt_set_conduct(int32_t order, uint64_t seed, int32_t copies) {
  helios::simt::set_conduct({helios::simt::Order(order), seed, helios::simt::Copies(copies)});
}
// The first failure since then, empty when there is none, cut to `size` bytes.
HELIOS_EXPORT void helios_simt_failure(char* text, size_t size) {
  if (size == 0) return;
  strncpy(text, helios::simt::failure().c_str(), size - 1);
  text[size - 1] = 0;
}
