// Keys and values of a page as a thread of mma.sync holds them, a struct for each format: straight from global memory, 16
// bytes a load, each sector of 32 bytes whole. A product does not mind which number of the sum stands in which place, nor a
// table which column is which: so places and columns are dealt out to fit the loads. With g = lane / 4 and t = lane % 4:
//   a warp has 64 positions of a segment (4 pages) as 8 tiles of scores; element v = 0, 1 of tile i is that of `position`;
//   keys: step j of a group of 32 dimensions multiplies dimensions 8t + 4j .. + 3 of the query;
//   values: element v of tile j of a group of 64 dimensions is dimension 8 (2t + v) + j.
#pragma once
#include "kv_formats.h"

namespace helios::cuda {

constexpr int kWarpPages = 4, kWarpPositions = kWarpPages * kPageTokens, kScoreTiles = kWarpPositions / 8,
              kSteps = kWarpPositions / 16, kKeyDims = 32, kValueDims = 64, kValueTiles = kValueDims / 8;

__device__ __forceinline__ Chunk load_chunk(const char* at, bool is_there) {
  Chunk chunk = {};
  if (is_there) chunk = *reinterpret_cast<const Chunk*>(at);
  return chunk;
}
// The 16-bit element `which` of two words, in one: {a's, b's}.
__device__ __forceinline__ uint32_t pair_of(uint32_t a, uint32_t b, int which) {
  return which ? a >> 16 | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
}

// The part of a warp: `heads` are those of the KV head in its 4 pages (null: not there), `n` the positions to read.
struct WarpPages {
  const char* const* heads;
  int32_t head_dim, n, g, t;
};

struct Bf16Fragments {
  using Format = KvBf16;
  static constexpr bool kHasScales = false;
  static __device__ __forceinline__ int position(int tile, int v, int t) {
    return tile / 2 * kPageTokens + tile % 2 * 8 + 4 * v + t;
  }
  static __device__ __forceinline__ void keys(const WarpPages& p, int32_t group, uint32_t (&b)[kScoreTiles][2][2]) {
    const int32_t chunk = group * 4 + p.t, offset = p.g % 2 * 4 + p.g / 2;
    HELIOS_UNROLL
    for (int tile = 0; tile < kScoreTiles; tile++) {
      const char* head = p.heads[tile / 2];
      const Chunk k = load_chunk(head + (chunk * kPageTokens + tile % 2 * 8 + offset) * 16, head && chunk * 8 < p.head_dim);
      b[tile][0][0] = k.words[0], b[tile][0][1] = k.words[1], b[tile][1][0] = k.words[2], b[tile][1][1] = k.words[3];
    }
  }
  // The scores of a step as places of a sum: {row g, row g + 8} x {first two, last two}.
  static __device__ __forceinline__ void weights(const float (&s)[kScoreTiles][4], int step, float (&a)[4][2]) {
    HELIOS_UNROLL
    for (int i = 0; i < 4; i++)
      a[i][0] = s[2 * step + i / 2][i % 2 * 2], a[i][1] = s[2 * step + i / 2][i % 2 * 2 + 1];
  }
  // Position i of a step's four in a thread, from the warp's first.
  static __device__ __forceinline__ int value_position(int step, int i, int t) { return step * kPageTokens + 4 * i + t; }
  static __device__ __forceinline__ void values(const WarpPages& p, int32_t group, int step,
                                                uint32_t (&b)[kValueTiles][2]) {
    const int32_t chunk = group * 8 + p.g;
    const char* head = p.heads[step];
    Chunk v[4];
    HELIOS_UNROLL
    for (int i = 0; i < 4; i++)
      v[i] = load_chunk(head + ((p.head_dim / 8 + chunk) * kPageTokens + 4 * i + p.t) * 16,
                        head && chunk * 8 < p.head_dim && value_position(step, i, p.t) < p.n);
    HELIOS_UNROLL
    for (int tile = 0; tile < kValueTiles; tile++) {
      b[tile][0] = pair_of(v[0].words[tile / 2], v[1].words[tile / 2], tile % 2);
      b[tile][1] = pair_of(v[2].words[tile / 2], v[3].words[tile / 2], tile % 2);
    }
  }
};

struct Q8Fragments {
  using Format = KvQ8;
  static constexpr bool kHasScales = true;
  static __device__ __forceinline__ int position(int tile, int v, int t) {
    return (tile / 4 * 2 + t / 2) * kPageTokens + (2 * (t % 2) + v) * 4 + tile % 4;
  }
  // Bytes 2 * half and 2 * half + 1 of a word.
  static __device__ __forceinline__ uint32_t two_of(uint32_t word, int half) {
    const uint32_t two = word >> (16 * half);
    return pack_bf16(float(int8_t(two)), float(int8_t(two >> 8)));
  }
  static __device__ __forceinline__ void keys(const WarpPages& p, int32_t group, uint32_t (&b)[kScoreTiles][2][2]) {
    HELIOS_UNROLL
    for (int i = 0; i < 4; i++) {
      const int pages = i / 2, step = i % 2;
      const int32_t four = group * 8 + 2 * p.t + step;
      const char* head = p.heads[2 * pages + p.g / 4];
      const Chunk k = load_chunk(head + (four * kPageTokens + p.g % 4 * 4) * 4, head && four * 4 < p.head_dim);
      HELIOS_UNROLL
      for (int j = 0; j < 4; j++)
        b[4 * pages + j][step][0] = two_of(k.words[j], 0), b[4 * pages + j][step][1] = two_of(k.words[j], 1);
    }
  }
  static __device__ __forceinline__ void weights(const float (&s)[kScoreTiles][4], int step, float (&a)[4][2]) {
    HELIOS_UNROLL
    for (int i = 0; i < 4; i++) {
      const int tile = step / 2 * 4 + i / 2 * 2, element = i % 2 * 2 + step % 2;
      a[i][0] = s[tile][element], a[i][1] = s[tile + 1][element];
    }
  }
  static __device__ __forceinline__ void values(const WarpPages& p, int32_t group, int step,
                                                uint32_t (&b)[kValueTiles][2]) {
    const char* head = p.heads[step / 2 * 2 + p.t / 2];
    const int32_t four = 2 * (p.t % 2) + step % 2;
    HELIOS_UNROLL
    for (int half = 0; half < 2; half++) {
      const int32_t d = group * kValueDims + 8 * p.g + 4 * half;
      const Chunk v = load_chunk(head + (kPageTokens + four * 4) * p.head_dim + d * 4, head && d < p.head_dim);
      HELIOS_UNROLL
      for (int j = 0; j < 4; j++)
        b[4 * half + j][0] = two_of(v.words[j], 0), b[4 * half + j][1] = two_of(v.words[j], 1);
    }
  }
};

}  // namespace helios::cuda
