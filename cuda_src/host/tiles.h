// The instructions of the matrix unit (AMX): eight tiles of up to 16 rows of 64 bytes. A compiler does not know what a
// tile holds, so a function that uses them configures them, works, and releases them before it returns.
//
// Written as instructions because the intrinsics take the number of a tile as a literal only, and because GCC 12 says
// that ldtilecfg reads 8 bytes where it reads 64.
#pragma once
#include <array>

#include "vec.h"

#if defined(HELIOS_AVX512) && defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AMX_INT8__)
#define HELIOS_AMX 1

namespace helios {

constexpr int kTileRows = 16, kTileRowBytes = 64, kTileBytes = kTileRows * kTileRowBytes;

// The tiles for as long as it lives; tile i has n_rows[i] rows of 64 bytes.
struct Tiles {
  using Rows = std::array<int, 8>;
  struct alignas(64) Config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  explicit Tiles(const Rows& n_rows) {
    Config config{};
    config.palette = 1;
    for (int i = 0; i < 8; i++) {
      config.row_bytes[i] = kTileRowBytes;
      config.rows[i] = uint8_t(n_rows[size_t(i)]);
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~Tiles() { asm volatile("tilerelease" ::: "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

template <int kTile>
HELIOS_INLINE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <int kTile>
HELIOS_INLINE void load_tile(const void* rows, int64_t stride_bytes) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(rows), "r"(stride_bytes) : "memory");
}
template <int kTile>
HELIOS_INLINE void store_tile(void* rows, int64_t stride_bytes) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(rows), "r"(stride_bytes) : "memory");
}
// C[m][n] += the sum of A[m][2i] * B[i][2n] over i, plus that of A[m][2i+1] * B[i][2n+1], of bf16 numbers.
template <int kC, int kA, int kB>
HELIOS_INLINE void multiply_tiles_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}
// C[m][n] += the sum of A[m][4i + c] * B[i][4n + c] over i and c = 0..3, of signed bytes; and of signed bytes times unsigned ones.
template <int kC, int kA, int kB>
HELIOS_INLINE void multiply_tiles_signed() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}
template <int kC, int kA, int kB>
HELIOS_INLINE void multiply_tiles_unsigned() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

}  // namespace helios
#endif
