// linear.q4_1.g16k8 for the tests that plant faults in its sources: every block of a launch, on the emulator. What it copies of
// the weights is counted.
#include "kernel.h"

#include <string.h>

namespace helios::cuda {

const uint8_t* counted_begin;
uint64_t counted_nbytes, n_copied_bytes;

inline void count(const void* from, int nbytes) {
  if (uint64_t(static_cast<const uint8_t*>(from) - counted_begin) < counted_nbytes) n_copied_bytes += uint64_t(nbytes);
}
inline void counted_copy_async_16(void* to, const void* from, bool is_there = true, HELIOS_CALLER) {
  if (is_there) count(from, 16);
  copy_async_16(to, from, is_there, file, line);
}
inline void counted_copy_bulk(void* to, const void* from, int nbytes, uint64_t* barrier, HELIOS_CALLER) {
  count(from, nbytes);
  copy_bulk(to, from, nbytes, barrier, file, line);
}

}  // namespace helios::cuda

#define copy_async_16 counted_copy_async_16
#define copy_bulk counted_copy_bulk
#include "linear_g16.h"

HELIOS_G16_KERNEL(linear_q4_1_g16, helios::cuda::Q4Weights<true>, kG16Store)

extern "C" __attribute__((visibility("default"))) void run_planted(const void* n_rows, const void* x, const void* weight,
                                                                   void* y, int rows_capacity, int n_in, int n_out,
                                                                   int y_stride, int order, uint64_t seed, int copies,
                                                                   int architecture, uint64_t weight_nbytes, uint64_t* n_copied,
                                                                   char* failure, size_t size) {
  HeliosArgs_linear_q4_1_g16 args{};
  args.n_rows = n_rows, args.x = x, args.weight = weight, args.y = y;
  args.rows_capacity = rows_capacity, args.n_in = n_in, args.n_out = n_out, args.y_stride = y_stride;
  HeliosGeometry geometry;
  helios::cuda::geometry<helios::cuda::launch_linear_q4_1_g16>(&args, &geometry);
  helios::simt::set_conduct({helios::simt::Order(order), seed, helios::simt::Copies(copies),
                             helios::simt::Architecture(architecture)});
  helios::cuda::counted_begin = static_cast<const uint8_t*>(weight);
  helios::cuda::counted_nbytes = weight_nbytes;
  helios::cuda::n_copied_bytes = 0;
  for (int64_t block = 0; block < geometry.n_blocks && !helios::simt::has_failed(); block++)
    helios::simt::run_block("linear.q4_1.g16k8", helios_emulated_linear_q4_1_g16, &args, geometry, uint32_t(block));
  *n_copied = helios::cuda::n_copied_bytes;
  strncpy(failure, helios::simt::failure().c_str(), size - 1);
}
