// Linear maps over Q8_0 weights with 8-bit activations.
//
//   y[row] = sum over blocks b of 32 inputs, ascending:
//     acc += d * (s0 * float(lower dot(w, q)) + s1 * float(upper dot(w, q)))     (add_halves: rounding and order)
// The integer dots are exact on every target, so these few operations a block are the whole arithmetic.
// Layout g8k4 (kernels.h): lane = output row; q8_block.h has the dot product.
//
// Bounds: up to 4 tokens, the weight stream (272 bytes for 256 products a token); beyond, the multiplier.
#include "q8_block.h"

namespace helios {
namespace {

struct Q8Block {
  static constexpr int kNbytes = kByteBytes + 16;
  static constexpr int kFewTokens = 4;  // a tile of 5 to 8 is as fast as a sweep, or slower
  static constexpr int kTaskScale = 4;  // vocabulary heads: many groups, so longer runs

  template <class V>
  using Products = ByteProducts<V>;

  template <class V>
  struct Weights : Bytes<V> {
    V d;
    HELIOS_INLINE Weights(const uint8_t* w, int64_t next)
        : Bytes<V>(w, next), d(load_halves<V>(w + kByteBytes, next)) {}
    HELIOS_INLINE V add(V acc, const Products<V>& products, const float* s) const {
      return add_halves(acc, products.lower(), products.upper(), d, s);
    }
  };
};

}  // namespace

HELIOS_LINEAR_KERNELS(q8_0, BlockFormat<Q8Block>)

}  // namespace helios
