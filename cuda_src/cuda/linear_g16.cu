// The linear maps over weights in g16k8 with bf16 rows.
#include "linear_g16.h"

HELIOS_G16_KERNELS(q4_1_g16, helios::cuda::Q4Weights<true>)
HELIOS_G16_KERNELS(q4_0_g16, helios::cuda::Q4Weights<false>)
HELIOS_G16_KERNELS(q8_0_g16, helios::cuda::Q8Weights)
HELIOS_G16_KERNELS(bf16_g16, helios::cuda::Bf16Weights)
HELIOS_G16_KERNELS(f16_g16, helios::cuda::F16Weights)
