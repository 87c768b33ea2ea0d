// A (group of 16 rows, block of 32 inputs) of the g16k8 weight layouts as a warp multiplies it: the left operands of two
// mma.sync of 16 inputs each. Lane (g, t) = (lane / 4, lane % 4) has inputs 8t..8t+7 of rows 2g and 2g+1: row i of an
// operand is row 2i of the group, row i+8 row 2i+1, and the order of the inputs is the layout's own. So every lane
// reads its weights, its scales and (fragment_of_rows) its inputs at one place each.
//
// Whole numbers become bf16 without a conversion: 0x4300 | q is 128 + q for q < 128, and the difference is exact.
#pragma once
#include "formats_g16.h"

namespace helios::cuda {

constexpr int kG16XNbytes = 2 * kG16Inputs;  // of one row's inputs of a block

// kProducts operands for each half of the block (half h: inputs 8t+4h .. 8t+4h+3); scale and offset of rows 2g, 2g+1.
template <class Weights>
struct G16Fragment {
  uint32_t a[Weights::kProducts][2][4];
  float scale[2], offset[2];
};

template <bool kHasOffset_>
struct Q4Weights : Q4G16<kHasOffset_> {
  static constexpr bool kHasOffset = kHasOffset_;
  static constexpr int kProducts = 1;
  static __device__ __forceinline__ uint32_t pair(uint32_t word, int j) {
    constexpr uint32_t kLess = kHasOffset ? 0xc300c300u : 0xc308c308u;  // -128; -136
    return add_bf16((word >> 4 * j & 0x000f000fu) | 0x43004300u, kLess);
  }
  static __device__ __forceinline__ void read(const uint8_t* block, int g, int t, uint32_t (&a)[kProducts][2][4]) {
    const uint2 words = *reinterpret_cast<const uint2*>(block + (t * kG16Rows + 2 * g) * 4);
    HELIOS_UNROLL for (int j = 0; j < 4; j++) {
      a[0][j / 2][j % 2 * 2] = pair(words.x, j);
      a[0][j / 2][j % 2 * 2 + 1] = pair(words.y, j);
    }
  }
  static __device__ __forceinline__ void read_in_order(const uint8_t* block, int g, int t,
                                                       uint32_t (&a)[kProducts][2][4]) {
    HELIOS_UNROLL for (int z = 0; z < 4; z++) {
      const uint2 words = *reinterpret_cast<const uint2*>(block + (z * kG16Rows + 2 * g) * 4);
      a[0][z / 2][z % 2 * 2] = pair(words.x, t);
      a[0][z / 2][z % 2 * 2 + 1] = pair(words.y, t);
    }
  }
};

struct Q8Weights : Q8G16 {
  static constexpr bool kHasOffset = false;
  static constexpr int kProducts = 1;
  // Bytes 0 and 1 as bf16: 128 + the low 7 bits, less 128, or less 256 for a negative one.
  static __device__ __forceinline__ uint32_t pair(uint32_t bytes) {
    const uint32_t apart = (bytes & 0xffu) | (bytes & 0xff00u) << 8;
    return add_bf16((apart & 0x007f007fu) | 0x43004300u, (apart & 0x00800080u) | 0xc300c300u);
  }
  static __device__ __forceinline__ void read(const uint8_t* block, int g, int t, uint32_t (&a)[kProducts][2][4]) {
    const uint4 words = *reinterpret_cast<const uint4*>(block + (t * kG16Rows + 2 * g) * 8);
    const uint32_t upper[2] = {words.x, words.y}, lower[2] = {words.z, words.w};
    HELIOS_UNROLL for (int half = 0; half < 2; half++) {
      a[0][half][0] = pair(upper[half]);
      a[0][half][1] = pair(lower[half]);
      a[0][half][2] = pair(upper[half] >> 16);
      a[0][half][3] = pair(lower[half] >> 16);
    }
  }
  static __device__ __forceinline__ void read_in_order(const uint8_t* block, int g, int t,
                                                       uint32_t (&a)[kProducts][2][4]) {
    HELIOS_UNROLL for (int i = 0; i < 8; i++) {
      const int z = i / 2, row = 2 * g + i % 2;
      a[0][z / 2][z % 2 * 2 + i % 2] = pair(*reinterpret_cast<const uint16_t*>(block + (z * kG16Rows + row) * 8 + 2 * t));
    }
  }
};

// Two rows' lanes of 16-bit elements, by pairs of inputs.
__device__ __forceinline__ void read_g16_pairs(const uint8_t* block, int g, int t, uint32_t (&a)[2][4]) {
  const uint4* lanes = reinterpret_cast<const uint4*>(block) + t * kG16Rows + 2 * g;
  const uint4 upper = lanes[0], lower = lanes[1];
  a[0][0] = upper.x, a[0][2] = upper.y, a[1][0] = upper.z, a[1][2] = upper.w;
  a[0][1] = lower.x, a[0][3] = lower.y, a[1][1] = lower.z, a[1][3] = lower.w;
}
// Row i of a matrix of inputs 8z .. 8z+7 is row 2i of the group, or row 2i+1: the order of the lanes' registers.
__device__ __forceinline__ void read_g16_pairs_in_order(const uint8_t* block, int g, int t, uint32_t (&a)[2][4]) {
  const int lane = g * 4 + t, matrix = lane / 8, row = lane % 8 * 2 + matrix % 2;
  HELIOS_UNROLL for (int half = 0; half < 2; half++)
    load_matrices(a[half], block + ((2 * half + matrix / 2) * kG16Rows + row) * 16);
}

struct Bf16Weights : FloatG16<__nv_bfloat16> {
  static constexpr bool kHasOffset = false;
  static constexpr int kProducts = 1;
  static __device__ __forceinline__ void read(const uint8_t* block, int g, int t, uint32_t (&a)[kProducts][2][4]) {
    read_g16_pairs(block, g, t, a[0]);
  }
  static __device__ __forceinline__ void read_in_order(const uint8_t* block, int g, int t,
                                                       uint32_t (&a)[kProducts][2][4]) {
    read_g16_pairs_in_order(block, g, t, a[0]);
  }
};

// A half is the sum of two bf16: rounded to one, and what is left (at most 4 bits).
struct F16Weights : FloatG16<__half> {
  static constexpr bool kHasOffset = false;
  static constexpr int kProducts = 2;
  static __device__ __forceinline__ void read(const uint8_t* block, int g, int t, uint32_t (&a)[kProducts][2][4]) {
    read_g16_pairs(block, g, t, a[0]);
    split(a);
  }
  static __device__ __forceinline__ void read_in_order(const uint8_t* block, int g, int t,
                                                       uint32_t (&a)[kProducts][2][4]) {
    read_g16_pairs_in_order(block, g, t, a[0]);
    split(a);
  }
  static __device__ __forceinline__ void split(uint32_t (&a)[kProducts][2][4]) {
    HELIOS_UNROLL for (int i = 0; i < 8; i++) {
      uint32_t& pair = a[0][i / 4][i % 4];
      const float low = __half2float(__ushort_as_half(uint16_t(pair))),
                  high = __half2float(__ushort_as_half(uint16_t(pair >> 16)));
      split_pair(low, high, pair, a[1][i / 4][i % 4]);
    }
  }
};

template <class Weights>
__device__ __forceinline__ void read_scales(const uint8_t* block, int lane, G16Fragment<Weights>& fragment) {
  for (int i = 0; i < 2; i++) {
    fragment.scale[i] = Weights::scale(block, lane / 4 * 2 + i);
    fragment.offset[i] = Weights::kHasOffset ? Weights::offset(block, lane / 4 * 2 + i) : 0.f;
  }
}
template <class Weights>
__device__ __forceinline__ void read_fragment(const uint8_t* block, int lane, G16Fragment<Weights>& fragment) {
  Weights::read(block, lane / 4, lane % 4, fragment.a);
  read_scales(block, lane, fragment);
}
// The same rows with the inputs in ascending order, as wgmma meets them: half h has inputs 16h .. 16h+15.
template <class Weights>
__device__ __forceinline__ void read_fragment_in_order(const uint8_t* block, int lane, G16Fragment<Weights>& fragment) {
  Weights::read_in_order(block, lane / 4, lane % 4, fragment.a);
  read_scales(block, lane, fragment);
}

// The lane's part of 8 rows of a block's inputs, 64 bytes a row: inputs 8t..8t+7 of row g.
__device__ __forceinline__ uint4 fragment_of_rows(const uint8_t* rows, int lane) {
  return reinterpret_cast<const uint4*>(rows)[lane];
}

// acc = fma(offset, sum, acc), acc = fma(scale, P, acc): weight rows 2g (acc[0], acc[1]) and 2g+1, input rows 2t and 2t+1,
// whose sums are at `sums`. P starts at zero, so that the order of its products is within the block.
template <class Weights>
__device__ __forceinline__ void add_block(float (&acc)[4], const G16Fragment<Weights>& weights, const uint4& x,
                                          const float* sums) {
  float product[4] = {};
  const uint32_t halves[2][2] = {{x.x, x.y}, {x.z, x.w}};
  HELIOS_UNROLL for (int part = 0; part < Weights::kProducts; part++)
  HELIOS_UNROLL for (int half = 0; half < 2; half++) multiply_add(product, weights.a[part][half], halves[half]);
  HELIOS_UNROLL for (int i = 0; i < 4; i++) {
    if (Weights::kHasOffset) acc[i] = fmaf(weights.offset[i / 2], sums[i % 2], acc[i]);
    acc[i] = fmaf(weights.scale[i / 2], product[i], acc[i]);
  }
}

}  // namespace helios::cuda
