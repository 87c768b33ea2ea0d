// 12-bit activations ("q12 rows", layout in kernels.h): a whole number of at most 2,032 for each input and a float for each
// group of 512. The number is a factor c of its half block of 16, 1..16, times an int8: c makes up for most of an outlier
// elsewhere in the group, and every sum of a group is a whole number, which any order of adding gives exactly.
//   s = amax(group) / 2032,  c = ceil(amax(half) / (127 s)),  q = round(x / (s c)) to nearest even
// A group with a NaN or an infinity becomes q = 0 with a NaN scale: its row turns NaN in what follows, no other row notices.
#pragma once
#include "host.h"
#include "vec.h"

namespace helios {

constexpr int kQ12Group = 512, kQ12Half = 16, kQ12Block = 32, kQ12Depth = 64;  // inputs; a tile is kQ12Depth deep
constexpr int kQ12TileRows = 16, kQ12TileBytes = kQ12TileRows * kQ12Depth;
constexpr int kQ12MostFactor = 16;

constexpr int32_t n_q12_groups(int32_t width) { return (width + kQ12Group - 1) / kQ12Group; }

inline Size q12_rows_nbytes(int32_t rows_capacity, int32_t width) {
  const Size elements = Size(rows_capacity) * width;
  return divide_up(Size(rows_capacity), kQ12TileRows) * kQ12TileRows * width * 2 + elements + divide_up(elements, 4) +
         Size(rows_capacity) * n_q12_groups(width) * 4;
}

// Byte is uint8_t, const or not.
template <class Byte>
struct Q12RowsOf {
  Byte *tiles, *q, *factors, *scales;
  int32_t width, n_groups;

  Q12RowsOf(Byte* base, int32_t rows_capacity, int32_t width)
      : tiles(base),
        q(tiles + (int64_t(rows_capacity) + kQ12TileRows - 1) / kQ12TileRows * kQ12TileRows * width * 2),
        factors(q + int64_t(rows_capacity) * width),
        scales(factors + int64_t(rows_capacity) * width / 4),
        width(width),
        n_groups(n_q12_groups(width)) {}

  // The tile of 16 rows that has `row`, kQ12Depth inputs from `input` on: the upper parts, then the lower ones.
  Byte* tile(int32_t row, int32_t input) const {
    return tiles + (int64_t(row / kQ12TileRows) * (width / kQ12Depth) + input / kQ12Depth) * 2 * kQ12TileBytes;
  }
  Byte* numbers(int32_t row) const { return q + int64_t(row) * width; }
  // Of a block: int16 c of both halves, int16 sums of c*q of both.
  Byte* block_factors(int32_t row, int32_t block) const { return factors + int64_t(row) * width / 4 + 8 * block; }
  Byte* scale(int32_t row, int32_t group) const { return scales + (int64_t(row) * n_groups + group) * 4; }
};

struct Q12Rows : Q12RowsOf<const uint8_t> {
  Q12Rows(const void* base, int32_t rows_capacity, int32_t width)
      : Q12RowsOf(as<uint8_t>(base), rows_capacity, width) {}
};

// The factor of a half block whose largest magnitude is amax, in a group with scale s > 0.
HELIOS_INLINE int32_t q12_factor(float amax, float s) {
  const float exact = amax / (127.f * s);
  const int32_t below = int32_t(exact);
  return clamp(below + (float(below) < exact), 1, kQ12MostFactor);
}

// Quantises numbers [kQ12Group * group, + n) of row `row` from the n floats at x; n is a multiple of kQ12Depth.
HELIOS_INLINE void store_q12_group(void* base, int32_t rows_capacity, int32_t row, int32_t group, const float* x, int32_t n,
                                   int32_t width) {
  const Q12RowsOf<uint8_t> rows(as<uint8_t>(base), rows_capacity, width);
  int32_t half_amax[kQ12Group / kQ12Half], amax_bits = 0;  // as integers, NaN > infinity > any number
  for (int32_t h = 0; h < n / kQ12Half; h++) {
    const float* half = x + h * kQ12Half;
    half_amax[h] = max_lanes(max(magnitude_bits(load<F8>(half)), magnitude_bits(load<F8>(half + 8))));
    if (half_amax[h] > amax_bits) amax_bits = half_amax[h];
  }
  const float amax = bits_as<float>(amax_bits);
  const bool is_finite = amax < INFINITY, is_zero = !(is_finite && amax > 1e-30f);
  const float s = amax / float(127 * kQ12MostFactor);
  int32_t half_factor[kQ12Group / kQ12Half];
  float half_to_q[kQ12Group / kQ12Half];
  for (int32_t h = 0; h < n / kQ12Half; h++) {
    half_factor[h] = is_zero ? 1 : q12_factor(bits_as<float>(half_amax[h]), s);
    half_to_q[h] = is_zero ? 0.f : 1.f / (s * float(half_factor[h]));
  }
  const F8 most = splat<F8>(127.f), least = splat<F8>(-127.f);
  for (int32_t b = 0; b < n / kQ12Block; b++) {
    const float* block = x + b * kQ12Block;
    const int32_t input = kQ12Group * group + b * kQ12Block;
    I8 q[4], upper[4], lower[4];
    int16_t factors[4];
    HELIOS_UNROLL
    for (int h = 0; h < 2; h++) {
      const int32_t c = half_factor[2 * b + h];
      const F8 to_q = splat<F8>(half_to_q[2 * b + h]);
      for (int i = 2 * h; i < 2 * h + 2; i++) {
        const F8 v = is_zero ? splat<F8>(0.f) : load<F8>(block + 8 * i);
        q[i] = round_to_int(min(max(v * to_q, least), most));
        const I8 number = q[i] * splat<I8>(c);
        upper[i] = (number + splat<I8>(128)) >> 8;
        lower[i] = number - (upper[i] << 8);
      }
      factors[h] = int16_t(c);
      factors[2 + h] = int16_t(c * sum_lanes(q[2 * h] + q[2 * h + 1]));
    }
    uint8_t* tile_row = rows.tile(row, input) + row % kQ12TileRows * kQ12Depth + input % kQ12Depth;
    store_low_bytes(reinterpret_cast<int8_t*>(rows.numbers(row) + input), q);
    store_low_bytes(reinterpret_cast<int8_t*>(tile_row), upper);
    store_low_bytes(reinterpret_cast<int8_t*>(tile_row + kQ12TileBytes), lower);
    memcpy(rows.block_factors(row, input / kQ12Block), factors, sizeof factors);
  }
  const float stored = is_finite ? s : NAN;
  memcpy(rows.scale(row, group), &stored, sizeof stored);
}

}  // namespace helios
