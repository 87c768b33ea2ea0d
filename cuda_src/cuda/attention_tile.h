// Attention of a tile, up to 16 (row, query head) pairs that share a slot and a KV head, over one segment, on the matrix
// units. A block does it: a warp has 64 positions, whose scores never leave its registers; the largest score and the sums of
// the four warps meet in shared memory, warps ascending.
//
// Queries and weights are sums of two numbers (two products each), so that what is lost is the format's own rounding.
// A row of the tile does not see the others: what it must not see has weight 0, and where a value that only some rows see is
// not finite (0 times it is NaN) the rows are multiplied one by one. So a row has the same bits in any tile, alone too.
#pragma once
#include "attention_fragments.h"
#include "attention_merge.h"

namespace helios::cuda {

constexpr int kTileRows = 16;

struct TileScratch {
  Chunk ring[kStages][kPieceChunks][kThreads];            // of each lane
  float values[kWarps][kValueTiles][kWarpLanes][4];       // of a group of dimensions
  float max[kWarps][kTileRows], sum[kWarps][kTileRows];   // of the warps' positions
  const char* heads[kSegmentPages];
  float query_scales[kTileRows];  // of the pairs: their scores are those of the scratch's query times this
  Chunk query[kMaxHeadDim / 16][2][kWarpLanes];  // as the matrix units take them: [step][high, low part][lane]
};
// Steps of the keys that a query is multiplied with; what is past them of a scratch is not there.
__host__ __device__ inline int32_t n_query_steps(int32_t head_dim) { return (head_dim + kKeyDims - 1) / kKeyDims * 2; }
__host__ __device__ inline int64_t scratch_nbytes(int32_t head_dim) {
  return int64_t(sizeof(TileScratch)) - (kMaxHeadDim / 16 - n_query_steps(head_dim)) * int64_t(sizeof(TileScratch::query[0]));
}

// Rows first_row .. of one slot, each with heads first_head .. : pair i is row i / n_heads, head i % n_heads.
struct Tile {
  int32_t first_row, n_rows, slot, kv_head, first_head, n_heads;
  int32_t least_position, largest_position;
};

template <class Args>
__device__ __forceinline__ const float* query_of(const Args& a, const Tile& tile, int32_t pair) {
  const int64_t stride = int64_t(a.n_heads + 2 * a.n_kv_heads) * a.head_dim;
  return as<float>(a.qkv) + (tile.first_row + pair / tile.n_heads) * stride +
         int64_t(tile.first_head + pair % tile.n_heads) * a.head_dim;
}
// Powers of two by which the largest number of each query, if it is finite, becomes one of [1024, 2048).
template <class Args>
__device__ void find_query_scales(const Args& a, const Tile& tile, TileScratch& scratch) {
  const int32_t lane = int32_t(threadIdx.x) % kWarpLanes;
  HELIOS_NO_UNROLL
  for (int32_t pair = int32_t(threadIdx.x) / kWarpLanes; pair < kTileRows; pair += kWarps) {
    uint32_t largest = 0;  // as integers, NaN > infinity > any number
    for (int32_t d = lane; pair < tile.n_rows * tile.n_heads && d < a.head_dim; d += kWarpLanes)
      largest = Largest{}(largest, __float_as_uint(query_of(a, tile, pair)[d]) & 0x7fffffffu);
    largest = combine_warp(largest, Largest{});
    const int32_t exponent = clamp(int32_t(largest >> 23), 20, 254);  // so that both the scale and 1 / scale are normal
    if (lane == 0) scratch.query_scales[pair] = __uint_as_float(uint32_t(exponent - 10) << 23);
  }
  __syncthreads();
}

template <class Fragments, class Args>
__device__ void load_query(const Args& a, const Tile& tile, TileScratch& scratch) {
  const int32_t lane = int32_t(threadIdx.x) % kWarpLanes, g = lane / 4, t = lane % 4;
  const int32_t n_steps = n_query_steps(a.head_dim);
  if constexpr (Fragments::kScalesQueries) find_query_scales(a, tile, scratch);
  for (int32_t step = int32_t(threadIdx.x) / kWarpLanes; step < n_steps; step += kWarps) {
    const int32_t d = step / 2 * kKeyDims + 8 * t + 4 * (step % 2);
    Chunk high = {}, low = {};
    HELIOS_UNROLL
    for (int i = 0; i < 2; i++) {
      const int32_t pair = g + 8 * i;
      if (pair >= tile.n_rows * tile.n_heads || d >= a.head_dim) continue;
      const float* q = query_of(a, tile, pair) + d;
      const float scale = Fragments::kScalesQueries ? 1.f / scratch.query_scales[pair] : 1.f;
      Fragments::split(q[0] * scale, q[1] * scale, high.words[i], low.words[i]);
      Fragments::split(q[2] * scale, q[3] * scale, high.words[2 + i], low.words[2 + i]);
    }
    scratch.query[step][0][lane] = high;
    scratch.query[step][1][lane] = low;
  }
}

// The places of the segment's pages; null past the last row's position, and where an id is out of range.
template <class Format, class Args>
__device__ __forceinline__ void find_pages(const Args& a, const Tile& tile, int32_t segment, TileScratch& scratch) {
  const int32_t i = int32_t(threadIdx.x);
  if (i >= kSegmentPages) return;
  const char* page = i * kPageTokens < n_visible(tile.largest_position, segment)
                         ? page_at(a, tile.slot, segment * kSegmentPages + i)
                         : nullptr;
  scratch.heads[i] = page ? head_in_page<Format>(page, tile.kv_head, a.head_dim) : nullptr;
}

template <class Fragments>
__device__ __forceinline__ void multiply_split(float (&d)[4], const uint32_t (&high)[4], const uint32_t (&low)[4],
                                               const uint32_t (&b)[2]) {
  Fragments::multiply(d, high, b);
  Fragments::multiply(d, low, b);
}

template <class Fragments>
__device__ __forceinline__ void scores_of(Pieces<Fragments>& pieces, const TileScratch& scratch,
                                          float (&scores)[kScoreTiles][4]) {
  const int32_t lane = int32_t(threadIdx.x) % kWarpLanes, n_groups = n_query_steps(pieces.pages.head_dim) / 2;
  HELIOS_NO_UNROLL
  for (int32_t group = 0; group < n_groups; group++) {
    HELIOS_UNROLL
    for (int part = 0; part < Fragments::kKeyParts; part++) {
      Chunk chunks[kPieceChunks];
      pieces.take(chunks);
      uint32_t b[Fragments::kKeyTiles][Fragments::kKeySteps][2];
      Fragments::keys(chunks, b);
      HELIOS_UNROLL
      for (int step = 0; step < Fragments::kKeySteps; step++) {
        const int32_t of_query = 2 * group + part * Fragments::kKeySteps % 2 + step;
        const Chunk high = scratch.query[of_query][0][lane], low = scratch.query[of_query][1][lane];
        HELIOS_UNROLL
        for (int tile = 0; tile < Fragments::kKeyTiles; tile++)
          multiply_split<Fragments>(scores[part * Fragments::kKeyTiles % kScoreTiles + tile], high.words, low.words,
                                    b[tile][step]);
      }
    }
  }
}

// The largest score over the four lanes of a row, and their sum in a fixed order.
template <class Combine>
__device__ __forceinline__ float combine_row(float v, Combine combine) {
  for (int bits = 1; bits < 4; bits *= 2) v = combine(v, __shfl_xor_sync(kAllLanes, v, bits));
  return v;
}

struct WeightParts {
  uint32_t high[kSteps][4], low[kSteps][4];
};

// The product for each row alone, with the values past its position left out, as it is when the tile has no other row.
template <class Fragments>
__device__ __forceinline__ void multiply_rows(const Tile& tile, const int32_t* row_position, int32_t first_position, int step,
                                           const uint32_t (&high)[4], const uint32_t (&low)[4], const uint32_t (&b)[2],
                                           float (&values)[4]) {
  const int32_t lane = int32_t(threadIdx.x) % kWarpLanes, g = lane / 4, t = lane % 4;
  float mixed[4] = {values[0], values[1], values[2], values[3]};
  HELIOS_NO_UNROLL
  for (int32_t row = 0; row < tile.n_rows; row++) {
    const int32_t last = row_position[tile.first_row + row] - first_position;
    uint32_t seen[2];
    for (int i = 0; i < 2; i++)
      seen[i] = (Fragments::value_position(step, 2 * i, t) <= last ? b[i] & 0xffffu : 0) |
                (Fragments::value_position(step, 2 * i + 1, t) <= last ? b[i] & 0xffff0000u : 0);
    float alone[4] = {values[0], values[1], values[2], values[3]};
    multiply_split<Fragments>(alone, high, low, seen);
    for (int i = 0; i < 4; i++)
      if ((g + i / 2 * 8) / tile.n_heads == row) mixed[i] = alone[i];
  }
  for (int i = 0; i < 4; i++) values[i] = mixed[i];
}

template <class Fragments>
__device__ __forceinline__ void values_of(Pieces<Fragments>& pieces, const Tile& tile, const int32_t* row_position,
                                          int32_t first_position, const WeightParts& weights,
                                          float (&values)[kValueTiles][4]) {
  HELIOS_UNROLL
  for (int part = 0; part < Fragments::kValueParts; part++) {
    Chunk chunks[kPieceChunks];
    pieces.take(chunks);
    HELIOS_UNROLL
    for (int in_part = 0; in_part < Fragments::kPartSteps; in_part++) {
      const int step = part * Fragments::kPartSteps + in_part;
      uint32_t b[kValueTiles][2];
      Fragments::values(chunks, in_part, b);
      if constexpr (!Fragments::kHasScales) {
        const int32_t last = first_position + Fragments::value_position(step, 3, 3);
        if (tile.n_rows > 1 && last > tile.least_position) {
          bool is_odd = false;
          HELIOS_UNROLL
          for (int i = 0; i < kValueTiles; i++)
            is_odd = is_odd || Fragments::is_not_finite(b[i][0]) || Fragments::is_not_finite(b[i][1]);
          if (__ballot_sync(kAllLanes, is_odd)) {
            HELIOS_UNROLL
            for (int i = 0; i < kValueTiles; i++)
              multiply_rows<Fragments>(tile, row_position, first_position, step, weights.high[step], weights.low[step], b[i],
                                       values[i]);
            continue;
          }
        }
      }
      HELIOS_UNROLL
      for (int i = 0; i < kValueTiles; i++)
        multiply_split<Fragments>(values[i], weights.high[step], weights.low[step], b[i]);
    }
  }
}

// Turns the scores of rows g and g + 8 into weights, split for the products; the softmax of the segment on the way. `last`:
// the last position of this warp's 64 that each row sees.
template <class Fragments>
__device__ __forceinline__ void weigh(const WarpPages& pages, const int32_t (&last)[2], float (&scores)[kScoreTiles][4],
                                      TileScratch& scratch, Softmax (&softmax)[2], WeightParts& parts) {
  const int32_t warp = int32_t(threadIdx.x) / kWarpLanes;
  float top[2] = {kNoScore, kNoScore}, sum[2] = {};
  HELIOS_UNROLL
  for (int i = 0; i < kScoreTiles * 4; i++) {
    float& score = scores[i / 4][i % 4];
    const int32_t position = Fragments::position(i / 4, i % 2, pages.t), row = i % 4 / 2;
    if constexpr (Fragments::kScalesQueries) score *= scratch.query_scales[pages.g + 8 * row];
    if constexpr (Fragments::kHasScales) {
      const char* head = pages.heads[position / kPageTokens];
      if (head && position <= last[row]) score *= KvQ8::key_scale(head, pages.head_dim, position % kPageTokens);
    }
    if (position <= last[row]) top[row] = Largest{}(top[row], score);
  }
  HELIOS_UNROLL
  for (int row = 0; row < 2; row++) {
    top[row] = combine_row(top[row], Largest{});
    if (pages.t == 0) scratch.max[warp][pages.g + 8 * row] = top[row];
  }
  __syncthreads();
  HELIOS_UNROLL
  for (int row = 0; row < 2; row++)
    for (int other = 0; other < kWarps; other++)
      softmax[row].max = Largest{}(softmax[row].max, scratch.max[other][pages.g + 8 * row]);
  HELIOS_UNROLL
  for (int i = 0; i < kScoreTiles * 4; i++) {
    float& score = scores[i / 4][i % 4];
    const int32_t position = Fragments::position(i / 4, i % 2, pages.t), row = i % 4 / 2;
    const bool is_seen = position <= last[row];
    score = is_seen ? weight_of(score, softmax[row].max) : 0.f;
    sum[row] += score;
    if constexpr (Fragments::kHasScales) {
      const char* head = pages.heads[position / kPageTokens];
      if (head && is_seen) score *= KvQ8::value_scale(head, pages.head_dim, position % kPageTokens);
    }
  }
  HELIOS_UNROLL
  for (int row = 0; row < 2; row++) {
    sum[row] = combine_row(sum[row], Sum{});
    if (pages.t == 0) scratch.sum[warp][pages.g + 8 * row] = sum[row];
  }
  HELIOS_UNROLL
  for (int step = 0; step < kSteps; step++) {
    float a[4][2];
    Fragments::weights(scores, step, a);
    HELIOS_UNROLL
    for (int i = 0; i < 4; i++) Fragments::split(a[i][0], a[i][1], parts.high[step][i], parts.low[step][i]);
  }
}

// The sums of the warps; nothing for a row that sees a page that is not there.
__device__ __forceinline__ void finish_softmax(const int32_t (&position)[2], int32_t segment, const TileScratch& scratch,
                                               Softmax (&softmax)[2], bool (&is_empty)[2]) {
  int32_t n_good = 0;  // positions before the first such page
  while (n_good < kSegment && scratch.heads[n_good / kPageTokens]) n_good += kPageTokens;
  HELIOS_UNROLL
  for (int row = 0; row < 2; row++) {
    for (int other = 0; other < kWarps; other++)
      softmax[row].sum += scratch.sum[other][int32_t(threadIdx.x) % kWarpLanes / 4 + 8 * row];
    is_empty[row] = n_visible(position[row], segment) > n_good;
    if (is_empty[row]) softmax[row] = {};
  }
}

// Calls weighed(softmax of rows g and g + 8), then take(group, values) for each group of dimensions: element i of the values
// is element i % 4 of tile 2 * warp + i / 4.
template <class Fragments, class Args, class Weighed, class Take>
__device__ __forceinline__ void attend_segment(const Args& a, const Tile& tile, const int32_t (&position)[2],
                                               int32_t segment, TileScratch& scratch, Weighed weighed, Take take) {
  const int32_t lane = int32_t(threadIdx.x) % kWarpLanes, warp = int32_t(threadIdx.x) / kWarpLanes;
  __syncthreads();  // the scratch may still be read from the last time
  find_pages<typename Fragments::Format>(a, tile, segment, scratch);
  __syncthreads();
  const int32_t first_position = segment * kSegment + warp * kWarpPositions;
  const WarpPages pages{scratch.heads + warp * kWarpPages, a.head_dim, tile.largest_position - first_position + 1, lane / 4,
                        lane % 4};
  Pieces<Fragments> pieces(pages, scratch.ring);
  float scores[kScoreTiles][4] = {};
  if (pages.n > 0) scores_of(pieces, scratch, scores);
  WeightParts weights;
  Softmax softmax[2];
  weigh<Fragments>(pages, {position[0] - first_position, position[1] - first_position}, scores, scratch, softmax, weights);
  __syncthreads();
  bool is_empty[2];
  finish_softmax(position, segment, scratch, softmax, is_empty);
  weighed(softmax);
  HELIOS_NO_UNROLL
  for (int32_t group = 0; group * kValueDims < a.head_dim; group++) {
    float values[kValueTiles][4] = {};
    if (pages.n > 0) values_of(pieces, tile, as<int32_t>(a.row_position), first_position, weights, values);
    HELIOS_UNROLL
    for (int i = 0; i < kValueTiles * 4; i++) scratch.values[warp][i / 4][lane][i % 4] = values[i / 4][i % 4];
    __syncthreads();
    float sums[8];
    HELIOS_UNROLL
    for (int i = 0; i < 8; i++) {
      sums[i] = 0;
      for (int other = 0; other < kWarps; other++) sums[i] += scratch.values[other][2 * warp + i / 4][lane][i % 4];
      if (is_empty[i % 4 / 2]) sums[i] = 0;
    }
    take(group, sums);
    __syncthreads();
  }
  wait_copies<0>();
}

}  // namespace helios::cuda
