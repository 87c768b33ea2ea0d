// The sums of g16k8 weights and bf16 rows on the matrix unit: 16 tokens, 16 output rows and a block of 32 inputs are one
// tile product from zero, which is exactly the P_b of linear_g16.cpp; vectors scale it and add it to the sums, a token a
// register. A single row takes the same instructions, or vectors that give the same bits. Float weights need no scaling, so their
// products are added up in the tile: acc + P_b is what the instruction computes.
//
// Pipeline: while the product of block b + 2 is multiplied, that of block b is stored and added. Few tokens unpack block
// b + 4 meanwhile (nothing is kept); many unpack a panel of kPanelGroups x kPanelBlocks blocks into
// the first cache and sweep all tokens over it, so that activations are read from the second cache once for four groups.
// Bound for 16 x 16 x 32: 16 cycles of multiplier, 16 of tile store, 64 loads of 64 bytes at two a cycle: 32 cycles, 9 ns.
// Measured: 19 to 22 ns alone, 34 to 36 with outputs and cold activations (docs/performance.md).
#pragma once
#include "g16_tiles.h"
#include "linear_g16.h"

#if defined(HELIOS_AMX)
namespace helios {

constexpr int kPanelGroups = 4, kPanelBlocks = 8, kStreamBlocks = 64;
// A tile that was stored is better loaded two steps later: unpacked 2 ahead a block takes 24 ns, 4 ahead 15 (one row, cached).
constexpr int kSlots = 4, kUnpackedAhead = 4;
constexpr int kRowBlocks = 2;  // that a single row takes at once
// Into the second cache: one row then takes 20 to 24 ns a block, with prefetches into the first, near or far, 28 to 31.
constexpr int kPrefetchBytes = 16384;  // ahead of the block that is unpacked

// Tiles 0..2 are for whole tiles of 16 tokens (two sums, activations), 3..5 the same for a part of one, 6 and 7 weights.
enum TileSet { kWhole = 0, kPart = 3 };

template <class Block>
struct G16Product : G16Format<Block> {
  using Tile = TileOf<Block>;
  static constexpr int kTiles = Tile::kTiles, kBlockTileBytes = kTiles * kTileBytes;

  int32_t n_part;
  Tiles tiles;

  explicit G16Product(int32_t n_tokens)
      : n_part(n_tokens % kTileRows),
        tiles(Tiles::Rows{16, 16, 16, n_part ? n_part : 16, n_part ? n_part : 16, n_part ? n_part : 16, 16, 16}) {}

  static int32_t n_groups_at_once(int32_t n_tokens) { return n_tokens > kTileRows ? kPanelGroups : 1; }

  void compute(const uint8_t* w, int32_t n_groups, const Bf16Rows& x, int32_t first_token, int32_t n_tokens,
               float* sums) const {
    for (int32_t g = 0; g < n_groups; g++)
      memset(sums + g * kG16Tokens * kG16Rows, 0, sizeof(float) * kG16Rows * size_t(n_tokens));
    if (n_tokens <= kTileRows) {
      for (int32_t g = 0; g < n_groups; g++)
        stream(w + g * int64_t(x.n_blocks) * Block::kNbytes, x, first_token, n_tokens,
               sums + g * kG16Tokens * kG16Rows);
    } else {
      sweep(w, n_groups, x, first_token, n_tokens, sums);
    }
  }

 private:
  // What one tile of tokens multiplies: n blocks from `block` on.
  struct Run {
    const uint8_t* w;        // the raw blocks, for their scales
    uint8_t* panel;          // unpacked, or kSlots places for it
    const uint16_t* x;       // the first token's inputs
    int64_t x_stride_bytes;
    const float* x_sums;     // [block][16 tokens]
    int32_t n;
    float* sums;             // [16 tokens][16]
  };

  static void transpose_sums(const Bf16Rows& x, int32_t first_token, int32_t n_tokens, int32_t block, int32_t n,
                             float* to) {
    for (int32_t t = 0; t < n_tokens; t++) {
      const float* from = x.row_sums(first_token + t) + block;
      for (int32_t b = 0; b < n; b++) to[b * kTileRows + t] = from[b];
    }
  }

  // Up to 16 tokens: every block is unpacked for one product.
  static void stream(const uint8_t* w, const Bf16Rows& x, int32_t first_token, int32_t n_tokens, float* sums) {
    alignas(64) uint8_t slots[kSlots * kBlockTileBytes];
    alignas(64) float x_sums[kStreamBlocks * kTileRows];
    for (int32_t block = 0; block < x.n_blocks; block += kStreamBlocks) {
      const int32_t left = x.n_blocks - block, n = left < kStreamBlocks ? left : kStreamBlocks;
      if constexpr (Block::kHasOffset) transpose_sums(x, first_token, n_tokens, block, n, x_sums);
      const Run run{w + int64_t(block) * Block::kNbytes, slots, x.row(first_token) + block * kG16Inputs,
                    x.width * int64_t(sizeof(uint16_t)), x_sums, n, sums};
      if (n_tokens == 1) {
        if constexpr (Tile::kRowByVectors) {
          multiply_row(run);
        } else {
          multiply<kPart, 1, true>(run);
        }
      } else if (n_tokens == 2) {
        multiply<kPart, 2, true>(run);
      } else if (n_tokens <= 4) {
        multiply<kPart, 4, true>(run);
      } else if (n_tokens <= 8) {
        multiply<kPart, 8, true>(run);
      } else {
        multiply<kPart, 16, true>(run);
      }
    }
  }

  void sweep(const uint8_t* w, int32_t n_groups, const Bf16Rows& x, int32_t first_token, int32_t n_tokens,
             float* sums) const {
    alignas(64) uint8_t panel[kPanelGroups][kPanelBlocks * kBlockTileBytes];
    alignas(64) float x_sums[kPanelBlocks * kTileRows];
    const int64_t group_nbytes = int64_t(x.n_blocks) * Block::kNbytes;
    for (int32_t block = 0; block < x.n_blocks; block += kPanelBlocks) {
      const int32_t left = x.n_blocks - block, n = left < kPanelBlocks ? left : kPanelBlocks;
      const uint8_t* first = w + int64_t(block) * Block::kNbytes;
      for (int32_t g = 0; g < n_groups; g++)
        for (int32_t b = 0; b < n; b++)
          Tile::unpack(first + g * group_nbytes + b * Block::kNbytes, panel[g] + b * kBlockTileBytes);
      for (int32_t t = 0; t < n_tokens; t += kTileRows) {
        const int32_t n_here = n_tokens - t < kTileRows ? n_tokens - t : kTileRows;
        if constexpr (Block::kHasOffset) transpose_sums(x, first_token + t, n_here, block, n, x_sums);
        for (int32_t g = 0; g < n_groups; g++) {
          const Run run{first + g * group_nbytes, panel[g], x.row(first_token + t) + block * kG16Inputs,
                        x.width * int64_t(sizeof(uint16_t)), x_sums, n, sums + (g * kG16Tokens + t) * kG16Rows};
          if (n_here == kTileRows) {
            multiply<kWhole, 16, false>(run);
          } else {
            multiply<kPart, 16, false>(run);
          }
        }
      }
    }
  }

  // One token: the chains of the tile product by vectors, which need no tile to be stored and loaded again.
  static __attribute__((noinline)) void multiply_row(const Run& run) {
    alignas(64) float x[kStreamBlocks * kG16Inputs];
    for (int32_t i = 0; i < run.n * kG16Inputs; i += kG16Rows)
      store(x + i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(load<__m256i>(run.x + i)), 16));
    F16 acc = load<F16>(run.sums);
    int32_t b = 0;
    for (; b + kRowBlocks <= run.n; b += kRowBlocks) acc = add_row_blocks<kRowBlocks>(run, b, x, acc);
    for (; b < run.n; b++) acc = add_row_blocks<1>(run, b, x, acc);
    store(run.sums, acc);
  }

  template <int N>
  static HELIOS_INLINE F16 add_row_blocks(const Run& run, int32_t b, const float* x, F16 acc) {
    const uint8_t* blocks = run.w + int64_t(b) * Block::kNbytes;
    F16 even[N], odd[N];
    HELIOS_UNROLL
    for (int n = 0; n < N; n++) {
      prefetch_ahead(run, b + n);
      even[n] = odd[n] = splat<F16>(0.f);
    }
    Tile::template add_products<N>(blocks, x + b * kG16Inputs, even, odd);
    HELIOS_UNROLL
    for (int n = 0; n < N; n++) {
      const uint8_t* block = blocks + n * Block::kNbytes;
      if constexpr (Block::kHasOffset)
        acc = fma(load_as_float<F16>(Block::offsets(block)), splat<F16>(run.x_sums[(b + n) * kTileRows]), acc);
      acc = fma(load_as_float<F16>(Block::scales(block)) * splat<F16>(Tile::kUnscale), even[n] + odd[n], acc);
    }
    return acc;
  }

  static HELIOS_INLINE void unpack_ahead(const Run& run, int32_t b) {
    if (b < run.n) Tile::unpack(run.w + int64_t(b) * Block::kNbytes, slot<true>(run, b));
  }
  template <bool kUnpacks>
  static HELIOS_INLINE uint8_t* slot(const Run& run, int32_t b) {
    return run.panel + int64_t(kUnpacks ? b % kSlots : b) * kBlockTileBytes;
  }
  static HELIOS_INLINE void prefetch_ahead(const Run& run, int32_t b) {
    const uint8_t* block = run.w + int64_t(b) * Block::kNbytes;
    for (int line = 0; line * 64 < Block::kNbytes; line++) prefetch_outer(block + kPrefetchBytes + 64 * line);
  }

  template <TileSet kSet, int T, bool kUnpacks>
  static __attribute__((noinline)) void multiply(const Run& run) {
    if constexpr (kUnpacks)
      for (int32_t b = 0; b < kUnpackedAhead; b++) unpack_ahead(run, b);
    if constexpr (Block::kHasScale) {
      scaled<kSet, T, kUnpacks>(run);
    } else {
      plain<kSet, kUnpacks>(run);
    }
  }

  template <TileSet kSet, int kWhich, bool kUnpacks>
  static HELIOS_INLINE void product(const Run& run, int32_t b) {
    zero_tile<kSet + kWhich>();
    load_tile<kSet + 2>(run.x + b * kG16Inputs, run.x_stride_bytes);
    load_tile<6 + kWhich>(slot<kUnpacks>(run, b), kTileRowBytes);
    multiply_tiles_bf16<kSet + kWhich, kSet + 2, 6 + kWhich>();
  }

  template <TileSet kSet, int T, bool kUnpacks>
  static HELIOS_INLINE void scaled(const Run& run) {
    alignas(64) float products[2][kTileRows * kG16Rows];
    F16 acc[T];
    HELIOS_UNROLL
    for (int t = 0; t < T; t++) acc[t] = load<F16>(run.sums + kG16Rows * t);
    product<kSet, 0, kUnpacks>(run, 0);
    if (run.n > 1) product<kSet, 1, kUnpacks>(run, 1);
    int32_t b = 0;
    for (; b + 1 < run.n; b += 2) {
      step<kSet, 0, T, kUnpacks>(run, b, products[0], acc);
      step<kSet, 1, T, kUnpacks>(run, b + 1, products[1], acc);
    }
    if (b < run.n) step<kSet, 0, T, kUnpacks>(run, b, products[0], acc);
    HELIOS_UNROLL
    for (int t = 0; t < T; t++) store(run.sums + kG16Rows * t, acc[t]);
  }

  template <TileSet kSet, int kWhich, int T, bool kUnpacks>
  static HELIOS_INLINE void step(const Run& run, int32_t b, float* products, F16 (&acc)[T]) {
    if constexpr (kUnpacks) {
      prefetch_ahead(run, b);
      unpack_ahead(run, b + kUnpackedAhead);
    }
    store_tile<kSet + kWhich>(products, kTileRowBytes);
    if (b + 2 < run.n) product<kSet, kWhich, kUnpacks>(run, b + 2);
    add(run, b, products, acc);
  }

  template <int T>
  static HELIOS_INLINE void add(const Run& run, int32_t b, const float* products, F16 (&acc)[T]) {
    const uint8_t* block = run.w + int64_t(b) * Block::kNbytes;
    const F16 d = load_as_float<F16>(Block::scales(block)) * splat<F16>(Tile::kUnscale);
    if constexpr (Block::kHasOffset) {
      const F16 m = load_as_float<F16>(Block::offsets(block));
      HELIOS_UNROLL
      for (int t = 0; t < T; t++) acc[t] = fma(m, splat<F16>(run.x_sums[b * kTileRows + t]), acc[t]);
    }
    HELIOS_UNROLL
    for (int t = 0; t < T; t++) acc[t] = fma(d, load<F16>(products + kG16Rows * t), acc[t]);
  }

  template <TileSet kSet, bool kUnpacks>
  static HELIOS_INLINE void plain(const Run& run) {
    load_tile<kSet>(run.sums, kTileRowBytes);
    for (int32_t b = 0; b < run.n; b++) {
      load_tile<kSet + 2>(run.x + b * kG16Inputs, run.x_stride_bytes);
      load_tile<6>(slot<kUnpacks>(run, b), kTileRowBytes);
      multiply_tiles_bf16<kSet, kSet + 2, 6>();
      if constexpr (kTiles == 2) {
        load_tile<7>(slot<kUnpacks>(run, b) + kTileBytes, kTileRowBytes);
        multiply_tiles_bf16<kSet, kSet + 2, 7>();
      }
      if constexpr (kUnpacks) {
        prefetch_ahead(run, b);
        unpack_ahead(run, b + kUnpackedAhead);
      }
    }
    store_tile<kSet>(run.sums, kTileRowBytes);
  }
};

}  // namespace helios
#endif
