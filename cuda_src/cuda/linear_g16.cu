// The linear maps over weights in g16k8 with bf16 rows.
#include "linear_g16.h"

HELIOS_G16_KERNELS(q4_1_g16, helios::cuda::Q4Fragments<true>)
HELIOS_G16_KERNELS(q4_0_g16, helios::cuda::Q4Fragments<false>)
HELIOS_G16_KERNELS(q8_0_g16, helios::cuda::Q8Fragments)
HELIOS_G16_KERNELS(bf16_g16, helios::cuda::Bf16Fragments)
HELIOS_G16_KERNELS(f16_g16, helios::cuda::F16Fragments)
