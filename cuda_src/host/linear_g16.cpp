// Linear maps over weights in g16k8 with bf16 rows.
//
//   y[row] = sum over blocks b of 32 inputs, ascending:
//     acc = fma(m_b, sum_b, acc)          with an offset
//     acc = fma(d_b, P_b, acc)            without a scale: acc + P_b
//   P_b = (fused chain of the products of even inputs) + (that of the odd ones), ascending, as tdpbf16ps adds them.
// Whole-number weights and bf16 activations are exact factors, so this is the whole arithmetic. F16 weights are the sum
// of two bf16 numbers, with a P_b each, the larger one's first.
//
// g16_product.h has the form for the matrix unit. Here is the one for processors without it, which serves cores that were
// prepared elsewhere: a block is unpacked once and meets every token. Bound: 32 multiply-adds of 16 lanes for a block.
#include "g16_product.h"

namespace helios {

#if !defined(HELIOS_AMX)
namespace {

HELIOS_INLINE F16 dot(const float (&w)[kG16Inputs][kG16Rows], const float* x) {
  F16 even = splat<F16>(0.f), odd = even;
  for (int i = 0; i < kG16Inputs; i += 2) {
    even = fma(load<F16>(w[i]), splat<F16>(x[i]), even);
    odd = fma(load<F16>(w[i + 1]), splat<F16>(x[i + 1]), odd);
  }
  return even + odd;
}

template <class Block>
HELIOS_INLINE void unpack(const uint8_t* block, float (&w)[kG16Inputs][kG16Rows]) {
  for (int i = 0; i < kG16Inputs; i++)
    for (int r = 0; r < kG16Rows; r++) w[i][r] = Block::value(block, r, i);
}

// What rounding to bf16 takes off; the rest goes to `rest`.
void split(float (&w)[kG16Inputs][kG16Rows], float (&rest)[kG16Inputs][kG16Rows]) {
  for (int i = 0; i < kG16Inputs; i++)
    for (int r = 0; r < kG16Rows; r++) {
      const float high = bfloat_to_float(round_to_bf16(w[i][r]));
      rest[i][r] = w[i][r] - high;
      w[i][r] = high;
    }
}

}  // namespace

template <class Block>
struct G16Product : G16Format<Block> {
  static constexpr bool kIsSplit = Block::kIsHalf;

  explicit G16Product(int32_t) {}

  static int32_t n_groups_at_once(int32_t) { return 1; }

  void compute(const uint8_t* w, int32_t n_groups, const Bf16Rows& x, int32_t first_token, int32_t n_tokens,
               float* sums) const {
    for (int32_t g = 0; g < n_groups; g++)
      compute_group(w + g * int64_t(x.n_blocks) * Block::kNbytes, x, first_token, n_tokens,
                    sums + g * kG16Tokens * kG16Rows);
  }

  static void compute_group(const uint8_t* w, const Bf16Rows& x, int32_t first_token, int32_t n_tokens, float* sums) {
    memset(sums, 0, sizeof(float) * kG16Rows * size_t(n_tokens));
    for (int32_t b = 0; b < x.n_blocks; b++, w += Block::kNbytes) {
      alignas(64) float values[kG16Inputs][kG16Rows], rest[kG16Inputs][kG16Rows];
      unpack<Block>(w, values);
      if constexpr (kIsSplit) split(values, rest);
      for (int32_t t = 0; t < n_tokens; t++) {
        const uint16_t* bits = x.row(first_token + t) + b * kG16Inputs;
        float inputs[kG16Inputs];
        for (int i = 0; i < kG16Inputs; i++) inputs[i] = bfloat_to_float(bits[i]);
        F16 acc = load<F16>(sums + kG16Rows * t);
        if constexpr (Block::kHasOffset)
          acc = fma(load_as_float<F16>(Block::offsets(w)), splat<F16>(x.row_sums(first_token + t)[b]), acc);
        if constexpr (Block::kHasScale) {
          acc = fma(load_as_float<F16>(Block::scales(w)), dot(values, inputs), acc);
        } else {
          acc = acc + dot(values, inputs);
        }
        if constexpr (kIsSplit) acc = acc + dot(rest, inputs);
        store(sums + kG16Rows * t, acc);
      }
    }
  }
};

#endif

#define HELIOS_G16_KERNELS(suffix, ...)                                                                       \
  HELIOS_HOST_KERNEL(linear_##suffix, LinearG16<HeliosArgs_linear_##suffix, G16Product<__VA_ARGS__>, G16Store>) \
  HELIOS_HOST_KERNEL(linear_add_##suffix, LinearG16<HeliosArgs_linear_add_##suffix, G16Product<__VA_ARGS__>, G16Add>)     \
  HELIOS_HOST_KERNEL(linear_silu_gate_##suffix,                                                               \
                     LinearG16<HeliosArgs_linear_silu_gate_##suffix, G16Product<__VA_ARGS__>, G16SiluGate>)

HELIOS_G16_KERNELS(q4_1_g16, Q4G16<true>)
HELIOS_G16_KERNELS(q4_0_g16, Q4G16<false>)
HELIOS_G16_KERNELS(q8_0_g16, Q8G16)
HELIOS_G16_KERNELS(bf16_g16, FloatG16<Bfloat>)
HELIOS_G16_KERNELS(f16_g16, FloatG16<Half>)

}  // namespace helios
