// Linear maps over F32, F16 and BF16 weights with float activations.
//
//   y[row] = sum over inputs k, ascending:  acc = fma(w[k], x[k], acc)
// Layout g8 in kernels.h: [group][input][8 rows], so lane = output row and a weight vector meets one broadcast input.
// Bound: the weight stream for few tokens; beyond, 2 fused multiply-adds a cycle. A chain waits 4 cycles for itself, so
// a tile holds up to 8 independent ones: 8 tokens of a group, or one or two tokens of 4 groups.
#include "linear.h"

namespace helios {
namespace {

struct FloatRows {
  const float* x;
  int32_t width;
  FloatRows(const void* base, int32_t, int32_t, int32_t width) : x(as<float>(base)), width(width) {}
};

template <class Element>
struct Float {
  static constexpr int kInputs = 1, kGroups = 4, kSweepGroups = 4, kFewTokens = 4, kTaskScale = 4;
  using Input = FloatRows;

  static Size group_nbytes(int32_t n_in) { return Size(n_in) * (kGroup * sizeof(Element)); }
  static Size input_nbytes(int32_t rows_capacity, int32_t n_in) { return Size(rows_capacity) * n_in * sizeof(float); }

  // T tokens by G groups; sums[t][8 * stride_groups].
  template <int T, int G>
  static HELIOS_INLINE void tile(const uint8_t* w, const FloatRows& in, int32_t first_token, float* sums,
                                 int stride_groups) {
    F8 acc[T][G];
    for (int t = 0; t < T; t++)
      for (int g = 0; g < G; g++) acc[t][g] = splat<F8>(0.f);
    const float* x = in.x + int64_t(first_token) * in.width;
    const Element* weights = (const Element*)w;
    const int64_t group_elements = int64_t(in.width) * kGroup;
    for (int32_t k = 0; k < in.width; k++, weights += kGroup) {
      F8 input[T];
      HELIOS_UNROLL
      for (int t = 0; t < T; t++) input[t] = splat<F8>(x[int64_t(t) * in.width + k]);
      HELIOS_UNROLL
      for (int g = 0; g < G; g++) {
        const F8 weight = load_as_float<F8>(weights + g * group_elements);
        HELIOS_UNROLL
        for (int t = 0; t < T; t++) acc[t][g] = fma(weight, input[t], acc[t][g]);
      }
    }
    for (int t = 0; t < T; t++)
      for (int g = 0; g < G; g++) store(sums + (t * stride_groups + g) * kGroup, acc[t][g]);
  }

  template <int T, int G>
  static void tiles(const uint8_t* w, const FloatRows& x, int32_t first_token, float* sums) {
    constexpr int kAtOnce = T >= 8 ? 1 : T == 4 ? 2 : 4;
    constexpr int kStep = kAtOnce < G ? kAtOnce : G;
    for (int g = 0; g < G; g += kStep)
      tile<T, kStep>(w + int64_t(group_nbytes(x.width).n) * g, x, first_token, sums + kGroup * g, G);
  }

  template <int G>
  static void compute(const uint8_t* w, const FloatRows& x, int32_t first_token, int32_t n, float* sums) {
    for (; n >= 8; n -= 8, first_token += 8, sums += 8 * kGroup * G) tiles<8, G>(w, x, first_token, sums);
    if (n >= 4) {
      tiles<4, G>(w, x, first_token, sums);
      n -= 4, first_token += 4, sums += 4 * kGroup * G;
    }
    if (n >= 2) {
      tiles<2, G>(w, x, first_token, sums);
      n -= 2, first_token += 2, sums += 2 * kGroup * G;
    }
    if (n == 1) tiles<1, G>(w, x, first_token, sums);
  }
};

}  // namespace

HELIOS_LINEAR_KERNELS(f32, Float<float>)
HELIOS_LINEAR_KERNELS(f16, Float<Half>)
HELIOS_LINEAR_KERNELS(bf16, Float<Bfloat>)

}  // namespace helios
