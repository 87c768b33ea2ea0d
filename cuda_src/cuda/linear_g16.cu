// The linear maps over weights in g16k8 with bf16 rows; the forms are in the two headers.
//
// 256 threads; a launch does not know the architecture, so shared memory is the most that any form may have. As built: up
// to 128 registers a thread and 81,920 bytes of shared memory, 1 block a multiprocessor that has 100 KB of it; 2 with more.
#include "linear_g16.h"

HELIOS_G16_KERNELS(q4_1_g16, helios::cuda::Q4Weights<true>)
HELIOS_G16_KERNELS(q4_0_g16, helios::cuda::Q4Weights<false>)
HELIOS_G16_KERNELS(q8_0_g16, helios::cuda::Q8Weights)
HELIOS_G16_KERNELS(bf16_g16, helios::cuda::Bf16Weights)
HELIOS_G16_KERNELS(f16_g16, helios::cuda::F16Weights)
