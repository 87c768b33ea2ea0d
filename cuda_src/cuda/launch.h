// How each kernel of the vocabulary is launched: what a library's table needs to know of the kernels in this folder.
#pragma once
#include <stdint.h>

#include "kernels.h"

namespace helios::cuda {

// `n_blocks` is the grid for these scalar arguments. `entry` is the kernel's address: for the CUDA runtime, or for the
// emulator to call.
struct Launch {
  int32_t n_threads;
  int64_t (*n_blocks)(const void* args);
  void (*entry)(const void* args);
};
#define HELIOS_DECLARE_LAUNCH(id, name, list) extern const Launch launch_##id;
HELIOS_KERNELS(HELIOS_DECLARE_LAUNCH)

}  // namespace helios::cuda
