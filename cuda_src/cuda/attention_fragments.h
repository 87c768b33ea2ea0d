// Keys and values of a page as a thread of mma.sync holds them, a struct for each format: 16 bytes a load, each sector of 32
// bytes whole. A product does not mind which number of the sum stands in which place, nor a table which column is which: so
// places and columns are dealt out to fit the loads. With g = lane / 4 and t = lane % 4:
//   a warp has 64 positions of a segment (4 pages) as 8 tiles of scores; element v = 0, 1 of tile i is that of `position`;
//   keys: step j of a group of 32 dimensions multiplies dimensions 8t + 4j .. + 3 of the query;
//   values: element v of tile j of a group of 64 dimensions is dimension 8 (2t + v) + j.
// Queries and weights are sums of two numbers of the element that the pages are multiplied in: bf16, and f16 for those of f16, whose
// range is short: queries come into it by a power of two that each has of its own (kScalesQueries).
//
// A warp reads pieces of 4 chunks a lane: first the keys, kKeyParts pieces a group, then the values, kValueParts a group. Each
// lane copies for itself alone (cp.async), so that a piece needs no barrier, just the wait for it.
#pragma once
#include "kv_formats.h"

namespace helios::cuda {

constexpr int kWarpPages = 4, kWarpPositions = kWarpPages * kPageTokens, kScoreTiles = kWarpPositions / 8,
              kSteps = kWarpPositions / 16, kKeyDims = 32, kValueDims = 64, kValueTiles = kValueDims / 8;
constexpr int kPieceChunks = 4, kStages = 3;  // pieces of a lane in shared memory: one in use, the others on the way

// The 16-bit element `which` of two words, in one: {a's, b's}.
__device__ __forceinline__ uint32_t pair_of(uint32_t a, uint32_t b, int which) {
  return which ? a >> 16 | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
}

// The part of a warp: `heads` are those of the KV head in its 4 pages (null: not there), `n` the positions to read.
struct WarpPages {
  const char* const* heads;
  int32_t head_dim, n, g, t;
};

// The element of a product: how floats become pairs of it, the numbers rounded and what that left.
struct Bf16Element {
  static constexpr bool kScalesQueries = false;
  static __device__ __forceinline__ void split(float x, float y, uint32_t& rounded, uint32_t& rest) {
    split_pair(x, y, rounded, rest);
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    multiply_add(d, a, b);
  }
  static __device__ __forceinline__ bool is_not_finite(uint32_t pair) {
    return (pair & 0x7f80u) == 0x7f80u || (pair & 0x7f800000u) == 0x7f800000u;
  }
};
struct F16Element {
  static constexpr bool kScalesQueries = true;
  static __device__ __forceinline__ void split(float x, float y, uint32_t& rounded, uint32_t& rest) {
    rounded = pack_f16(x, y);
    rest = pack_f16(x - __half2float(__ushort_as_half(uint16_t(rounded))),
                    y - __half2float(__ushort_as_half(uint16_t(rounded >> 16))));
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    multiply_add_f16(d, a, b);
  }
  static __device__ __forceinline__ bool is_not_finite(uint32_t pair) {
    return (pair & 0x7c00u) == 0x7c00u || (pair & 0x7c000000u) == 0x7c000000u;
  }
};

// The values of pages that keep 8 dimensions of a position together: a piece has a step's four positions of a lane.
struct ValueChunks {
  static constexpr int kValueParts = kSteps, kPartSteps = 1;
  static __device__ __forceinline__ void values(const Chunk (&v)[kPieceChunks], int, uint32_t (&b)[kValueTiles][2]) {
    HELIOS_UNROLL
    for (int tile = 0; tile < kValueTiles; tile++) {
      b[tile][0] = pair_of(v[0].words[tile / 2], v[1].words[tile / 2], tile % 2);
      b[tile][1] = pair_of(v[2].words[tile / 2], v[3].words[tile / 2], tile % 2);
    }
  }
};

// In each struct: where chunk i of a part of a group of keys or of values is, null when it is not there and counts as zeros;
// what the chunks of a part are as operands; and which positions stand where in them. A part of the keys has kKeyTiles tiles of
// kKeySteps steps.
struct Bf16Fragments : Bf16Element, ValueChunks {
  using Format = KvBf16;
  static constexpr bool kHasScales = false;
  static constexpr int kKeyParts = 2, kKeyTiles = kScoreTiles / kKeyParts, kKeySteps = 2;
  static __device__ __forceinline__ int position(int tile, int v, int t) {
    return tile / 2 * kPageTokens + tile % 2 * 8 + 4 * v + t;
  }
  static __device__ __forceinline__ const char* key_chunk(const WarpPages& p, int32_t group, int32_t part, int i) {
    const int32_t chunk = group * 4 + p.t, offset = i % 2 * 8 + p.g % 2 * 4 + p.g / 2;
    const char* head = p.heads[part * 2 + i / 2];
    return head && chunk * kChunk < p.head_dim ? head + (chunk * kPageTokens + offset) * 16 : nullptr;
  }
  static __device__ __forceinline__ void keys(const Chunk (&k)[kPieceChunks], uint32_t (&b)[kKeyTiles][kKeySteps][2]) {
    HELIOS_UNROLL
    for (int i = 0; i < kPieceChunks; i++)
      b[i][0][0] = k[i].words[0], b[i][0][1] = k[i].words[1], b[i][1][0] = k[i].words[2], b[i][1][1] = k[i].words[3];
  }
  // The scores of a step as places of a sum: {row g, row g + 8} x {first two, last two}.
  static __device__ __forceinline__ void weights(const float (&s)[kScoreTiles][4], int step, float (&a)[4][2]) {
    HELIOS_UNROLL
    for (int i = 0; i < 4; i++)
      a[i][0] = s[2 * step + i / 2][i % 2 * 2], a[i][1] = s[2 * step + i / 2][i % 2 * 2 + 1];
  }
  // Position i of a step's four in a thread, from the warp's first.
  static __device__ __forceinline__ int value_position(int step, int i, int t) { return step * kPageTokens + 4 * i + t; }
  static __device__ __forceinline__ const char* value_chunk(const WarpPages& p, int32_t group, int32_t part, int i) {
    const int32_t chunk = group * 8 + p.g;
    const char* head = p.heads[part];
    const bool is_there = head && chunk * kChunk < p.head_dim && value_position(part, i, p.t) < p.n;
    return is_there ? head + ((p.head_dim / kChunk + chunk) * kPageTokens + 4 * i + p.t) * 16 : nullptr;
  }
};

// A lane's chunk of keys has one dimension of 8 positions, its values are of page t: scores and values of 16 positions a lane.
struct F16Fragments : F16Element, ValueChunks {
  using Format = KvF16;
  static constexpr bool kHasScales = false;
  static constexpr int kKeyParts = 2, kKeyTiles = kScoreTiles, kKeySteps = 2 / kKeyParts;
  static __device__ __forceinline__ int position(int tile, int v, int t) { return (2 * t + v) * 8 + tile; }
  static __device__ __forceinline__ const char* key_chunk(const WarpPages& p, int32_t group, int32_t part, int i) {
    const int32_t d = group * kKeyDims + 8 * p.t + 4 * part + i;
    const char* head = p.heads[p.g / 2];
    return head && d < p.head_dim ? head + (2 * d + p.g % 2) * 16 : nullptr;
  }
  static __device__ __forceinline__ void keys(const Chunk (&k)[kPieceChunks], uint32_t (&b)[kKeyTiles][kKeySteps][2]) {
    HELIOS_UNROLL
    for (int tile = 0; tile < kKeyTiles; tile++) {
      b[tile][0][0] = pair_of(k[0].words[tile / 2], k[1].words[tile / 2], tile % 2);
      b[tile][0][1] = pair_of(k[2].words[tile / 2], k[3].words[tile / 2], tile % 2);
    }
  }
  static __device__ __forceinline__ void weights(const float (&s)[kScoreTiles][4], int step, float (&a)[4][2]) {
    HELIOS_UNROLL
    for (int i = 0; i < 4; i++) {
      const int tile = step % 2 * 4 + i / 2 * 2, element = i % 2 * 2 + step / 2;
      a[i][0] = s[tile][element], a[i][1] = s[tile + 1][element];
    }
  }
  static __device__ __forceinline__ int value_position(int step, int i, int t) { return t * kPageTokens + 4 * step + i; }
  static __device__ __forceinline__ const char* value_chunk(const WarpPages& p, int32_t group, int32_t part, int i) {
    const int32_t chunk = group * 8 + p.g;
    const char* head = p.heads[p.t];
    const bool is_there = head && chunk * kChunk < p.head_dim && value_position(part, i, p.t) < p.n;
    return is_there ? head + ((kPageTokens + 4 * part + i) * (p.head_dim / kChunk) + chunk) * 16 : nullptr;
  }
};

struct Q8Fragments : Bf16Element {
  using Format = KvQ8;
  static constexpr bool kHasScales = true;
  static constexpr int kKeyParts = 1, kKeyTiles = kScoreTiles, kKeySteps = 2, kValueParts = 2, kPartSteps = kSteps / kValueParts;
  static __device__ __forceinline__ int position(int tile, int v, int t) {
    return (tile / 4 * 2 + t / 2) * kPageTokens + (2 * (t % 2) + v) * 4 + tile % 4;
  }
  // Bytes 2 * half and 2 * half + 1 of a word.
  static __device__ __forceinline__ uint32_t two_of(uint32_t word, int half) {
    const uint32_t two = word >> (16 * half);
    return pack_bf16(float(int8_t(two)), float(int8_t(two >> 8)));
  }
  static __device__ __forceinline__ const char* key_chunk(const WarpPages& p, int32_t group, int32_t, int i) {
    const int32_t four = group * 8 + 2 * p.t + i % 2;
    const char* head = p.heads[i / 2 * 2 + p.g / 4];
    return head && four * 4 < p.head_dim ? head + (four * kPageTokens + p.g % 4 * 4) * 4 : nullptr;
  }
  static __device__ __forceinline__ void keys(const Chunk (&k)[kPieceChunks], uint32_t (&b)[kKeyTiles][kKeySteps][2]) {
    HELIOS_UNROLL
    for (int i = 0; i < kPieceChunks; i++) {
      HELIOS_UNROLL
      for (int j = 0; j < 4; j++)
        b[i / 2 * 4 + j][i % 2][0] = two_of(k[i].words[j], 0), b[i / 2 * 4 + j][i % 2][1] = two_of(k[i].words[j], 1);
    }
  }
  static __device__ __forceinline__ void weights(const float (&s)[kScoreTiles][4], int step, float (&a)[4][2]) {
    HELIOS_UNROLL
    for (int i = 0; i < 4; i++) {
      const int tile = step / 2 * 4 + i / 2 * 2, element = i % 2 * 2 + step % 2;
      a[i][0] = s[tile][element], a[i][1] = s[tile + 1][element];
    }
  }
  static __device__ __forceinline__ const char* value_chunk(const WarpPages& p, int32_t group, int32_t part, int i) {
    const char* head = p.heads[part * 2 + p.t / 2];
    const int32_t four = 2 * (p.t % 2) + i / 2, d = group * kValueDims + 8 * p.g + 4 * (i % 2);
    return head && d < p.head_dim ? head + (kPageTokens + four * 4) * p.head_dim + d * 4 : nullptr;
  }
  static __device__ __forceinline__ void values(const Chunk (&v)[kPieceChunks], int step, uint32_t (&b)[kValueTiles][2]) {
    HELIOS_UNROLL
    for (int tile = 0; tile < kValueTiles; tile++) {
      const uint32_t word = v[2 * step + tile / 4].words[tile % 4];
      b[tile][0] = two_of(word, 0), b[tile][1] = two_of(word, 1);
    }
  }
};

// The pieces of a warp's part of a segment, in order; three of a lane's at a time are in shared memory.
template <class Fragments>
struct Pieces {
  const WarpPages& pages;
  Chunk (*ring)[kPieceChunks][kThreads];
  int32_t n_keys, n_all, next;

  __device__ __forceinline__ Pieces(const WarpPages& of, Chunk (*shared)[kPieceChunks][kThreads])
      : pages(of), ring(shared), next(0) {
    n_keys = (of.head_dim + kKeyDims - 1) / kKeyDims * Fragments::kKeyParts;
    n_all = of.n > 0 ? n_keys + (of.head_dim + kValueDims - 1) / kValueDims * Fragments::kValueParts : 0;
    for (int i = 0; i < kStages - 1; i++) start(i);
  }
  // A piece past the last is an empty one, so that the number of those on the way is always the same.
  __device__ __forceinline__ void start(int32_t piece) {
    if (piece < n_all) {
      const int32_t of_values = piece - n_keys;
      HELIOS_UNROLL
      for (int i = 0; i < kPieceChunks; i++) {
        const char* from =
            of_values < 0
                ? Fragments::key_chunk(pages, piece / Fragments::kKeyParts, piece % Fragments::kKeyParts, i)
                : Fragments::value_chunk(pages, of_values / Fragments::kValueParts, of_values % Fragments::kValueParts, i);
        copy_async_16(&ring[piece % kStages][i][threadIdx.x], from, from != nullptr);
      }
    }
    commit_copies();
  }
  // The next piece, and one more on the way.
  __device__ __forceinline__ void take(Chunk (&chunks)[kPieceChunks]) {
    wait_copies<kStages - 2>();
    HELIOS_UNROLL
    for (int i = 0; i < kPieceChunks; i++) chunks[i] = ring[next % kStages][i][threadIdx.x];
    start(next + kStages - 1);
    next++;
  }
};

}  // namespace helios::cuda
