// Where the parts of q12 rows and of w12 weights lie (kernels.h).
#pragma once
#include "kernel.h"

namespace helios::cuda {

constexpr int kQ12Group = 512, kQ12Half = 16, kQ12Block = 32, kQ12Depth = 64;  // inputs
constexpr int kQ12TileRows = 16, kQ12TileBytes = kQ12TileRows * kQ12Depth, kQ12MostFactor = 16;

__host__ __device__ inline int32_t n_q12_groups(int32_t width) { return (width + kQ12Group - 1) / kQ12Group; }

struct Q12Rows {
  uint8_t *tiles, *q, *factors;
  float* scales;
  int32_t width, n_groups;

  __device__ Q12Rows(const void* base, int32_t rows_capacity, int32_t width)
      : tiles(const_cast<uint8_t*>(as<uint8_t>(base))),
        q(tiles + (int64_t(rows_capacity) + kQ12TileRows - 1) / kQ12TileRows * kQ12TileRows * width * 2),
        factors(q + int64_t(rows_capacity) * width),
        scales(reinterpret_cast<float*>(factors + int64_t(rows_capacity) * width / 4)),
        width(width),
        n_groups(n_q12_groups(width)) {}

  // Of a row, from input `k` on: the upper parts in its tile (the lower ones kQ12TileBytes on), q; and of its block
  // int16 c of both halves, then int16 sums of c*q.
  __device__ uint8_t* upper(int32_t row, int32_t k) const {
    return tiles + (int64_t(row / kQ12TileRows) * (width / kQ12Depth) + k / kQ12Depth) * 2 * kQ12TileBytes +
           row % kQ12TileRows * kQ12Depth + k % kQ12Depth;
  }
  __device__ uint8_t* numbers(int32_t row, int32_t k) const { return q + int64_t(row) * width + k; }
  __device__ int16_t* block_factors(int32_t row, int32_t k) const {
    return reinterpret_cast<int16_t*>(factors + int64_t(row) * width / 4 + k / kQ12Block * 8);
  }
  __device__ float* scale(int32_t row, int32_t group) const { return scales + int64_t(row) * n_groups + group; }
};

}  // namespace helios::cuda
