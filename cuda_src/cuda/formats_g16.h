// One (group of 16 rows, block of 32 inputs) of the g16k8 weight layouts (kernels.h): where its values and scales lie.
// A value is what the block's scale multiplies: a whole number of at most 8 bits, or the element itself.
#pragma once
#include "formats.h"

namespace helios::cuda {

constexpr int kG16Rows = 16, kG16Inputs = 32;

// The element at lane z*16 + r of 8 elements, for input 8z + i.
__device__ __forceinline__ int g16_element(int row, int input) { return (input / 8 * kG16Rows + row) * 8 + input % 8; }

template <int kValueBytes>
struct ScaledG16 {
  static __device__ __forceinline__ float scale(const uint8_t* block, int row) {
    return scale_at(block + kValueBytes, row);
  }
};

// kHasOffset: Q4_1 stores an offset; the nibbles of Q4_0 count from -8.
template <bool kHasOffset>
struct Q4G16 : ScaledG16<256> {
  static constexpr int kNbytes = kHasOffset ? 320 : 288;
  static __device__ __forceinline__ float value(const uint8_t* block, int row, int input) {
    const int in_lane = input % 8;  // 2j + p
    const uint16_t* words = reinterpret_cast<const uint16_t*>(block + (input / 8 * kG16Rows + row) * 4);
    return float((words[in_lane % 2] >> (in_lane / 2 * 4) & 15) - (kHasOffset ? 0 : 8));
  }
  static __device__ __forceinline__ float offset(const uint8_t* block, int row) {
    return kHasOffset ? scale_at(block + 256 + 2 * kG16Rows, row) : 0.f;
  }
};
struct Q8G16 : ScaledG16<512> {
  static constexpr int kNbytes = 544;
  static __device__ __forceinline__ float value(const uint8_t* block, int row, int input) {
    return float(int8_t(block[g16_element(row, input)]));
  }
  static __device__ __forceinline__ float offset(const uint8_t*, int) { return 0.f; }
};
template <class Element>
struct FloatG16 {
  static constexpr int kNbytes = kG16Rows * kG16Inputs * sizeof(Element);
  static __device__ __forceinline__ float value(const uint8_t* block, int row, int input) {
    return to_float(reinterpret_cast<const Element*>(block)[g16_element(row, input)]);
  }
  static __device__ __forceinline__ float scale(const uint8_t*, int) { return 1.f; }
  static __device__ __forceinline__ float offset(const uint8_t*, int) { return 0.f; }
};

}  // namespace helios::cuda
