// What cuda/instructions.h has for a device, over the emulator: matrices of a warp, asynchronous copies, pairs of bf16 and f16.
// The sum of a product is float, in ascending order: a device's own order is another. An address that a device would
// refuse is a failure that names the kernel's file and line.
#pragma once
#include <math.h>

#include "emulator.h"

// Last parameters, by default the place of the call.
#define HELIOS_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

namespace helios::simt {

inline float bf16_to_float(uint32_t bits) {
  bits <<= 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t float_to_bf16(float value) {  // to nearest, even on a tie
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;  // NaN, as the device gives it
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

inline float half_to_float(uint32_t half) {
  const uint32_t sign = (half & 0x8000) << 16, magnitude = half & 0x7fff;
  uint32_t bits = sign | ((magnitude << 13) + (112u << 23));
  if (magnitude >= 0x7c00) bits = sign | 0x7f800000u | (magnitude & 0x3ff) << 13;
  float value;
  memcpy(&value, &bits, sizeof value);
  if (magnitude < 0x400) value = (sign ? -1.f : 1.f) * float(magnitude) * 0x1p-24f;
  return value;
}
inline uint16_t float_to_half(float value) {  // to nearest, even on a tie
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;  // NaN, as the device gives it
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00);
  if (magnitude < 0x38800000u) return uint16_t(sign | uint16_t(lrintf(fabsf(value) * 0x1p24f)));
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
  return uint16_t(sign | uint16_t((rounded - (112u << 23)) >> 13));
}

struct Operands {
  float d[4];
  uint32_t a[4], b[2];
};
struct Accumulators {
  float d[4];
};
typedef float Columns __attribute__((vector_size(32)));
inline void add_product(Columns (&d)[16], const float (&a)[16][16], const Columns (&b)[16]) {
  for (int row = 0; row < 16; row++)
    for (int k = 0; k < 16; k++) d[row] += a[row][k] * b[k];
}
// The elements of a lane's registers, which stand for floats.
using Element = float (*)(uint32_t bits);
template <Element kElement>
void spread(float (&a)[16][16], const uint32_t (&of_lane)[4], int lane) {
  const int g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; i++) {
    a[g + i % 2 * 8][2 * t + i / 2 * 8] = kElement(of_lane[i] & 0xffff);
    a[g + i % 2 * 8][2 * t + i / 2 * 8 + 1] = kElement(of_lane[i] >> 16);
  }
}
template <Element kElement>
void multiply_add(Warp& warp) {
  float a[16][16];
  Columns b[16], d[16];
  for (int lane = 0; lane < kWarp; lane++) {
    Operands of_lane;
    memcpy(&of_lane, warp.in[lane], sizeof of_lane);
    spread<kElement>(a, of_lane.a, lane);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) d[g + i / 2 * 8][2 * t + i % 2] = of_lane.d[i];
    for (int i = 0; i < 2; i++) {
      b[2 * t + 8 * i][g] = kElement(of_lane.b[i] & 0xffff);
      b[2 * t + 8 * i + 1][g] = kElement(of_lane.b[i] >> 16);
    }
  }
  add_product(d, a, b);
  for (int lane = 0; lane < kWarp; lane++) {
    Accumulators given;
    for (int i = 0; i < 4; i++) given.d[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    memcpy(warp.out[lane], &given, sizeof given);
  }
}

template <int kN>
struct Registers {
  uint32_t words[kN];
};
template <int kN>
Registers<kN> load_matrices(const void* row, bool is_transposed, const Site& site) {
  if (reinterpret_cast<uintptr_t>(row) % 16) fail_here(site, "a matrix row is not aligned to 16 bytes");
  return warp_operation<Registers<kN>>(0xffffffffu, row, site, [is_transposed](Warp& warp) {
    uint16_t m[kN][8][8];
    for (int i = 0; i < 8 * kN; i++) {
      const void* from;
      memcpy(&from, warp.in[i], sizeof from);
      memcpy(m[i / 8][i % 8], from, sizeof m[0][0]);
    }
    for (int lane = 0; lane < kWarp; lane++) {
      Registers<kN> given;
      const int g = lane / 4, t = lane % 4 * 2;
      for (int i = 0; i < kN; i++)
        given.words[i] = is_transposed ? m[i][t][g] | uint32_t(m[i][t + 1][g]) << 16
                                       : m[i][g][t] | uint32_t(m[i][g][t + 1]) << 16;
      memcpy(warp.out[lane], &given, sizeof given);
    }
  });
}

}  // namespace helios::simt

namespace helios::cuda {

template <simt::Element kElement>
void multiply_add_as(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const char* file, int line) {
  const simt::Operands mine{{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const auto given = simt::warp_operation<simt::Accumulators>(0xffffffffu, mine, simt::Site{"mma.sync", file, line},
                                                              simt::multiply_add<kElement>);
  memcpy(d, given.d, sizeof d);
}
inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], HELIOS_CALLER) {
  multiply_add_as<simt::bf16_to_float>(d, a, b, file, line);
}
inline void multiply_add_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], HELIOS_CALLER) {
  multiply_add_as<simt::half_to_float>(d, a, b, file, line);
}

template <int kN>
void load_matrices(uint32_t (&m)[kN], const void* row, HELIOS_CALLER) {
  static_assert(kN == 2 || kN == 4, "ldmatrix.x2 and .x4");
  const auto given = simt::load_matrices<kN>(row, false, simt::Site{"ldmatrix", file, line});
  memcpy(m, given.words, sizeof m);
}
template <int kN>
void load_transposed(uint32_t (&m)[kN], const void* row, HELIOS_CALLER) {
  static_assert(kN == 2 || kN == 4, "ldmatrix.x2 and .x4");
  const auto given = simt::load_matrices<kN>(row, true, simt::Site{"ldmatrix.trans", file, line});
  memcpy(m, given.words, sizeof m);
}

inline uint32_t pack_bf16(float low, float high) { return simt::float_to_bf16(low) | simt::float_to_bf16(high) << 16; }
inline uint32_t pack_f16(float low, float high) { return simt::float_to_half(low) | uint32_t(simt::float_to_half(high)) << 16; }
inline uint32_t add_bf16(uint32_t a, uint32_t b) {
  using simt::bf16_to_float;
  return pack_bf16(bf16_to_float(a & 0xffff) + bf16_to_float(b & 0xffff), bf16_to_float(a >> 16) + bf16_to_float(b >> 16));
}

inline void copy_async_4(void* to, const void* from, bool is_there = true, HELIOS_CALLER) {
  simt::copy_async(to, is_there ? from : nullptr, 4, simt::Site{"cp.async", file, line});
}
inline void copy_async_16(void* to, const void* from, bool is_there = true, HELIOS_CALLER) {
  simt::copy_async(to, is_there ? from : nullptr, 16, simt::Site{"cp.async", file, line});
}
inline void commit_copies() { simt::current->thread->copy_group++; }
template <int kPending>
inline void wait_copies() {
  simt::wait_for_copies(kPending);
}

// Blocks of one launch end before those of the next start.
inline void wait_for_kernel_before() {}
inline void start_kernel_after() {}

}  // namespace helios::cuda
