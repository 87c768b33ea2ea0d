// linear.q4_1.g16k8 for the tests that plant faults in its sources: every block of a launch, on the emulator.
#include "linear_g16.h"

#include <string.h>

HELIOS_G16_KERNEL(linear_q4_1_g16, helios::cuda::Q4Weights<true>, kG16Store)

extern "C" __attribute__((visibility("default"))) void run_planted(const void* n_rows, const void* x, const void* weight,
                                                                   void* y, int rows_capacity, int n_in, int n_out,
                                                                   int y_stride, int order, uint64_t seed, int copies,
                                                                   int architecture, char* failure, size_t size) {
  HeliosArgs_linear_q4_1_g16 args{};
  args.n_rows = n_rows, args.x = x, args.weight = weight, args.y = y;
  args.rows_capacity = rows_capacity, args.n_in = n_in, args.n_out = n_out, args.y_stride = y_stride;
  HeliosGeometry geometry;
  helios::cuda::geometry<helios::cuda::launch_linear_q4_1_g16>(&args, &geometry);
  helios::simt::set_conduct({helios::simt::Order(order), seed, helios::simt::Copies(copies),
                             helios::simt::Architecture(architecture)});
  for (int64_t block = 0; block < geometry.n_blocks && !helios::simt::has_failed(); block++)
    helios::simt::run_block("linear.q4_1.g16k8", helios_emulated_linear_q4_1_g16, &args, geometry, uint32_t(block));
  strncpy(failure, helios::simt::failure().c_str(), size - 1);
}
