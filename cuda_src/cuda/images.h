// The device code that the build puts into the library: a fat binary for each source in this folder, named by its path.
#pragma once
#include "kernels.h"

namespace helios::cuda {

extern const HeliosImage images[];
extern const uint32_t n_images;

}  // namespace helios::cuda
