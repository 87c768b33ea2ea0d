// Linear maps over Q4_1 and Q4_0 weights with 8-bit activations.
//
//   y[row] = sum over blocks b of 32 inputs, ascending:
//     acc = fma(m, o, acc)
//     acc += d * (s0 * float(lower dot(w, q)) + s1 * float(upper dot(w, q)))     (add_halves: rounding and order)
//   where w are the nibbles 0..15, {d, m} the weight block's scale and offset (m = -8d for Q4_0), {s0, s1, o} the
//   activations' (q8_rows.h): a scale for each half of the block.
// The integer dots are exact on every target, so these few operations a block are the whole arithmetic.
//
// Layout g8k4 (kernels.h): lane = output row, so no sum ever crosses lanes; q4_block.h has the dot product.
//
// Bounds: up to about 4 tokens, the weight stream (160 bytes for 256 products a token): aim at 90 % of a plain read loop.
// Beyond, the multiplier; AVX2 runs 42 instructions for 256 products: aim at 50 % of vpmaddubsw + vpaddw alone.
#include "q4_block.h"

namespace helios {
namespace {

// kHasOffset: Q4_1 stores m; Q4_0's is -8d.
template <bool kHasOffset>
struct Q4Block {
  static constexpr int kNbytes = kNibbleBytes + (kHasOffset ? 32 : 16), kFewTokens = kRegisterTokens, kTaskScale = 1;

  template <class V>
  using Products = NibbleProducts<V>;

  template <class V>
  struct Weights : Nibbles<V> {
    V d, m;
    HELIOS_INLINE Weights(const uint8_t* w, int64_t next)
        : Nibbles<V>(w, next), d(load_halves<V>(w + kNibbleBytes, next)) {
      if constexpr (kHasOffset) {
        m = load_halves<V>(w + kNibbleBytes + 16, next);
      } else {
        m = d * splat<V>(-8.f);
      }
    }
    HELIOS_INLINE V add(V acc, const Products<V>& products, const float* s) const {
      acc = fma(m, splat<V>(s[2]), acc);
      return add_halves(acc, products.lower(), products.upper(), d, s);
    }
  };
};

}  // namespace

HELIOS_LINEAR_KERNELS(q4_1, BlockFormat<Q4Block<true>>)
HELIOS_LINEAR_KERNELS(q4_0, BlockFormat<Q4Block<false>>)

}  // namespace helios
