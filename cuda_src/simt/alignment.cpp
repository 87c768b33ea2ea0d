// What the compiler calls where a load or a store is not aligned to its type (-fsanitize=alignment, with which the emulated
// kernels are compiled): as on a GPU, whose loads and stores are as wide as the type, the block stops there. GCC checks all of
// them, Clang those of numbers but not of structs.
#include "emulator.h"

namespace {

// As GCC and Clang lay it out, for the second version of the call.
struct TypeMismatch {
  const char* file;
  uint32_t line, column;
  const void* type;
  uint8_t log_alignment, access;
};
constexpr uint8_t kStore = 1;

}  // namespace

extern "C" void __ubsan_handle_type_mismatch_v1(const TypeMismatch* at, uintptr_t) {
  if (!helios::simt::current) return;  // in a host kernel, which may
  const char* what = at->access == kStore ? "a store" : "a load";
  helios::simt::fail_here({what, at->file, int(at->line)}, "an address is not aligned to its type");
}
