// Linear maps over w12 weights and q12 rows: w = S * (k*q + j), x = s * c * q. Twelve bits on both sides and scales for
// groups of 512 inputs make a group's sum one whole number; w12_product.h has the forms that compute it.
//
// Bounds: one token, the weight stream (324 bytes for 512 products); many, the matrix unit's four products.
#include "w12_product.h"

namespace helios {

HELIOS_HOST_KERNEL(linear_w12, LinearG16<HeliosArgs_linear_w12, W12Product, G16Store>)
HELIOS_HOST_KERNEL(linear_add_w12, LinearG16<HeliosArgs_linear_add_w12, W12Product, G16Add>)
HELIOS_HOST_KERNEL(linear_silu_gate_w12, LinearG16<HeliosArgs_linear_silu_gate_w12, W12Product, G16SiluGate>)

}  // namespace helios
