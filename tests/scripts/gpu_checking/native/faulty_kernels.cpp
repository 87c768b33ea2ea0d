// The emulated kernels with faults against exactness planted in three of them: what a device would do whose sums depend on the
// place in a tile, on the number of rows, and on the way attention is cut. Each is off in single bits.
#include <dlfcn.h>
#include <stdlib.h>

#include <atomic>
#include <string_view>
#include <vector>

#include "kernels.h"

namespace {

int32_t live(const void* count, int32_t capacity) {
  const int32_t n = *static_cast<const int32_t*>(count);
  return n < capacity ? n : capacity;
}
void flip(float* x, uint32_t bit) { *reinterpret_cast<uint32_t*>(x) ^= bit; }

// The sixth row of a tile.
void spoil(const HeliosArgs_linear_q4_1_g16& a) {
  if (live(a.n_rows, a.rows_capacity) > 5) flip(static_cast<float*>(a.y) + 5 * a.y_stride, 1);
}
// Every row that is not alone.
void spoil(const HeliosArgs_linear_add_q8_0& a) {
  const int n = live(a.n_rows, a.rows_capacity);
  for (int row = 0; n > 1 && row < n; row++) flip(static_cast<float*>(a.y) + row * a.y_stride, 1);
}
// A part that the whole does not have.
void spoil(const HeliosArgs_attention_split_q8& a) { flip(static_cast<float*>(a.partials) + 5, 1 << 12); }

template <class Args>
struct Spoiled {
  static inline int32_t (*run_block)(const void*, const HeliosGeometry*, int32_t);
  static inline std::atomic<int64_t> n_blocks_done;

  static int32_t run(const void* args, const HeliosGeometry* geometry, int32_t block) {
    const int32_t code = run_block(args, geometry, block);
    if (++n_blocks_done == geometry->n_blocks) {
      n_blocks_done = 0;
      spoil(*static_cast<const Args*>(args));
    }
    return code;
  }
  static void plant(HeliosKernel& kernel) {
    run_block = kernel.run_block;
    kernel.run_block = run;
  }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const HeliosKernelLibrary* helios_kernel_library(void) {
  static std::vector<HeliosKernel> kernels;
  static HeliosKernelLibrary library;
  if (kernels.empty()) {
    void* right = dlopen(getenv("HELIOS_TEST_KERNELS"), RTLD_NOW | RTLD_LOCAL);
    library = *reinterpret_cast<const HeliosKernelLibrary* (*)()>(dlsym(right, "helios_kernel_library"))();
    kernels.assign(library.kernels, library.kernels + library.n_kernels);
    library.kernels = kernels.data();
    for (HeliosKernel& kernel : kernels) {
      const std::string_view name = kernel.name;
      if (name == "linear.q4_1.g16k8.1") Spoiled<HeliosArgs_linear_q4_1_g16>::plant(kernel);
      if (name == "linear_add.q8_0.g8k4.1") Spoiled<HeliosArgs_linear_add_q8_0>::plant(kernel);
      if (name == "attention_split.q8.1") Spoiled<HeliosArgs_attention_split_q8>::plant(kernel);
    }
  }
  return &library;
}
