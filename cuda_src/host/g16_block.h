// One (group of 16 rows, block of 32 inputs) of the g16k8 weight layouts (kernels.h): where its values and scales lie.
// Plain reads, one value at a time; they know nothing of how a target multiplies.
// A value is what the block's scale multiplies: a whole number of at most 8 bits, or the element itself.
#pragma once
#include <type_traits>

#include "host.h"
#include "vec.h"

namespace helios {

constexpr int kG16Rows = 16, kG16Inputs = 32;

// The element at lane z*16 + r of 8 elements, for input 8z + i.
HELIOS_INLINE int g16_element(int row, int input) { return (input / 8 * kG16Rows + row) * 8 + input % 8; }

// Formats with a scale for each row of the block, behind the values.
template <int kValueBytes>
struct ScaledG16 {
  static constexpr bool kHasScale = true, kIsHalf = false;
  static HELIOS_INLINE const Half* scales(const uint8_t* block) { return (const Half*)(block + kValueBytes); }
  static HELIOS_INLINE const Half* offsets(const uint8_t* block) { return scales(block) + kG16Rows; }
  static HELIOS_INLINE uint16_t bits_at(const uint8_t* p, int i) {
    uint16_t bits;
    memcpy(&bits, p + 2 * i, 2);
    return bits;
  }
};

// kOffset: Q4_1 stores an offset; the nibbles of Q4_0 count from -8.
template <bool kOffset>
struct Q4G16 : ScaledG16<256> {
  static constexpr bool kHasOffset = kOffset;
  static constexpr int kNbytes = kOffset ? 320 : 288, kLowest = kOffset ? 0 : -8;
  static HELIOS_INLINE float value(const uint8_t* block, int row, int input) {
    const int in_lane = input % 8;  // 2j + p
    const uint16_t word = bits_at(block + (input / 8 * kG16Rows + row) * 4, in_lane % 2);
    return float((word >> (in_lane / 2 * 4) & 15) + kLowest);
  }
};
struct Q8G16 : ScaledG16<512> {
  static constexpr bool kHasOffset = false;
  static constexpr int kNbytes = 544;
  static HELIOS_INLINE float value(const uint8_t* block, int row, int input) {
    return float(int8_t(block[g16_element(row, input)]));
  }
};
template <class E>
struct FloatG16 {
  using Element = E;
  static constexpr bool kHasScale = false, kHasOffset = false, kIsHalf = std::is_same<E, Half>::value;
  static constexpr int kNbytes = kG16Rows * kG16Inputs * sizeof(E);
  static HELIOS_INLINE float value(const uint8_t* block, int row, int input) {
    E element;
    memcpy(&element, block + sizeof(E) * g16_element(row, input), sizeof element);
    return element_to_float(element);
  }
};

}  // namespace helios
