// Weight formats as one lane of a warp reads them (layouts in kernels.h): 8 output rows to a group, and the warp's
// lanes are (row, part), row fastest, so that the 32 lanes read consecutive bytes. Unaligned tensors do not occur:
// layouts are multiples of 16 bytes.
#pragma once
#include "kernel.h"

namespace helios::cuda {

constexpr int kGroup = 8, kParts = kWarpLanes / kGroup;  // output rows of a group; lanes that share a row
constexpr int kBlock = 32, kHalfBlock = kBlock / 2, kScales = 4;

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ uint16_t round_to_bf16(float v) {
  const uint32_t bits = __float_as_uint(v);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return uint16_t((is_nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Two numbers as two pairs of bf16: the numbers rounded, and what that left.
__device__ __forceinline__ void split_pair(float x, float y, uint32_t& rounded, uint32_t& rest) {
  rounded = pack_bf16(x, y);
  rest = pack_bf16(x - __uint_as_float(rounded << 16), y - __uint_as_float(rounded & 0xffff0000u));
}

template <class T>
struct FloatFormat {
  using Element = T;
  static constexpr int kUnit = 1, kUnitBytes = kGroup * sizeof(T);  // inputs of a unit; bytes of a group's unit
  // The inputs of one unit for one row.
  static __device__ __forceinline__ float element(const uint8_t* unit, int row, int) {
    return to_float(reinterpret_cast<const T*>(unit)[row]);
  }
};

__device__ __forceinline__ float scale_at(const uint8_t* scales, int row) {
  return __half2float(reinterpret_cast<const __half*>(scales)[row]);
}
__device__ __forceinline__ int32_t word_at(const uint8_t* p) { return *reinterpret_cast<const int32_t*>(p); }

// Nibbles: lane (row, part) has inputs 8*part .. 8*part+7, the first four in the low halves of its word.
struct Q4 {
  static constexpr int kUnit = kBlock, kScalesAt = 128;
  static __device__ __forceinline__ int nibble(const uint8_t* unit, int row, int input) {
    const uint8_t byte = unit[input / 8 * 32 + row * 4 + input % 4];
    return input % 8 < 4 ? byte & 15 : byte >> 4;
  }
  // The lane's sum of weight * activation, as integers; `q` are the block's activations.
  static __device__ __forceinline__ int dot(const uint8_t* unit, int row, int part, const int8_t* q) {
    const int32_t* inputs = reinterpret_cast<const int32_t*>(q + 8 * part);
    const int32_t word = word_at(unit + part * 32 + row * 4);
    return __dp4a(word >> 4 & 0x0f0f0f0f, inputs[1], __dp4a(word & 0x0f0f0f0f, inputs[0], 0));
  }
  static __device__ __forceinline__ int half_of(int part) { return part / 2; }
};
struct Q4_1 : Q4 {
  static constexpr int kUnitBytes = 160;
  static __device__ __forceinline__ float element(const uint8_t* unit, int row, int input) {
    return scale_at(unit + kScalesAt, row) * float(nibble(unit, row, input)) + scale_at(unit + kScalesAt + 16, row);
  }
  static __device__ __forceinline__ float offset(const uint8_t* unit, int row) {
    return scale_at(unit + kScalesAt + 16, row);
  }
};
struct Q4_0 : Q4 {
  static constexpr int kUnitBytes = 144;
  static __device__ __forceinline__ float element(const uint8_t* unit, int row, int input) {
    return scale_at(unit + kScalesAt, row) * float(nibble(unit, row, input) - 8);
  }
  static __device__ __forceinline__ float offset(const uint8_t* unit, int row) {
    return -8.f * scale_at(unit + kScalesAt, row);
  }
};
// Bytes: lane (row, part) has inputs 8*part .. 8*part+7, in two words.
struct Q8_0 {
  static constexpr int kUnit = kBlock, kUnitBytes = 272, kScalesAt = 256;
  static __device__ __forceinline__ float element(const uint8_t* unit, int row, int input) {
    return scale_at(unit + kScalesAt, row) * float(int8_t(unit[input / 4 * 32 + row * 4 + input % 4]));
  }
  static __device__ __forceinline__ float offset(const uint8_t*, int) { return 0.f; }
  static __device__ __forceinline__ int dot(const uint8_t* unit, int row, int part, const int8_t* q) {
    const int32_t* inputs = reinterpret_cast<const int32_t*>(q + 8 * part);
    const uint8_t* words = unit + 2 * part * 32 + row * 4;
    return __dp4a(word_at(words + 32), inputs[1], __dp4a(word_at(words), inputs[0], 0));
  }
  static __device__ __forceinline__ int half_of(int part) { return part / 2; }
};

}  // namespace helios::cuda
