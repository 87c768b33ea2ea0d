// How each kernel of the vocabulary is launched: what a library's table needs to know of the kernels in this folder.
#pragma once
#include <stdint.h>

#include "kernels.h"

namespace helios::cuda {

// `n_blocks` and `shared_nbytes` (of dynamic shared memory) are for these scalar arguments. `source` is the
// file that has the kernel.
struct Launch {
  int32_t n_threads;
  int64_t (*n_blocks)(const void* args);
  int64_t (*shared_nbytes)(const void* args);
  const char* source;
};
#define HELIOS_DECLARE_LAUNCH(id, name, list) extern const Launch launch_##id;
HELIOS_KERNELS(HELIOS_DECLARE_LAUNCH)

template <const Launch& launch>
void geometry(const void* args, HeliosGeometry* geometry) {
  *geometry = {launch.n_blocks(args), launch.n_threads, int32_t(launch.shared_nbytes(args))};
}

}  // namespace helios::cuda
