// Causal attention of each row over the pages of its slot, grouped heads, in tiles on the matrix units (attention_tile.h); and the
// merge of what the blocks of a split left.
//
//   out[h] = sum_i softmax_i(q[h] . k_i) v_i over positions i <= row_position (q is already scaled)
// A tile is as many rows of a slot as fit with the query heads of a KV head into 16, in `attention`; one row in
// `attention_split`, whose blocks have a segment each. Both use the same segment and the same merge (attention_merge.h). A
// segment with a page id out of range counts as empty for the rows that see it; a row with no positions at all gets zeros.
//
// Floor: decode reads 4 * head_dim bytes (2 * head_dim + 8 of q8) a position and KV head, once for all its query heads; a
// prompt multiplies 2 * 2 * 2 * head_dim numbers a row, head and position (twice 2 for the split). A lane's next two pieces of
// keys and values are on the way while it multiplies one, over the softmax too: 8 KiB a warp. As built: up to 247 registers a
// thread and 49,856 bytes of shared memory, 2 blocks a multiprocessor (of 128 dimensions; 1 with 256 where there are 100 KB).
#include "attention_tile.h"

namespace helios::cuda {

// How the pairs of (row, query head) go into tiles.
struct Tiling {
  int32_t n_heads, n_head_tiles, n_rows;  // of a tile, of a KV head, of a tile
};
template <class Args>
__host__ __device__ inline Tiling tiling_of(const Args& a) {
  const int32_t share = a.n_heads / a.n_kv_heads, n_heads = share < kTileRows ? share : kTileRows;
  return {n_heads, (share + n_heads - 1) / n_heads, kTileRows / n_heads};
}
template <class Args>
__device__ __forceinline__ Tile tile_of(const Args& a, const Tiling& tiling, int32_t kv_head, int32_t head_tile) {
  const int32_t share = a.n_heads / a.n_kv_heads, first = head_tile * tiling.n_heads, left = share - first;
  return {0, 0, 0, kv_head, kv_head * share + first, left < tiling.n_heads ? left : tiling.n_heads, 0, 0};
}
// The positions of the tile's rows g and g + 8; -1 where there is none.
__device__ __forceinline__ void positions_of(const Tile& tile, const int32_t* row_position, int32_t (&position)[2]) {
  for (int i = 0; i < 2; i++) {
    const int32_t pair = int32_t(threadIdx.x) % kWarpLanes / 4 + 8 * i;
    position[i] = pair < tile.n_rows * tile.n_heads ? row_position[tile.first_row + pair / tile.n_heads] : -1;
  }
}

// Calls f(row, head, dimension, element) for each value of a group that the thread has.
template <class F>
__device__ __forceinline__ void for_own_values(const Tile& tile, int32_t head_dim, int32_t group, F f) {
  const int32_t lane = int32_t(threadIdx.x) % kWarpLanes, warp = int32_t(threadIdx.x) / kWarpLanes;
  HELIOS_UNROLL
  for (int i = 0; i < 8; i++) {
    const int32_t pair = lane / 4 + i % 4 / 2 * 8,
                  d = group * kValueDims + 8 * (lane % 4 * 2 + i % 2) + 2 * warp + i / 4;
    if (pair < tile.n_rows * tile.n_heads && d < head_dim)
      f(tile.first_row + pair / tile.n_heads, tile.first_head + pair % tile.n_heads, d, i);
  }
}

// Between segments the values so far wait in `out`, each read and written by its own thread.
template <class Fragments, class Args>
__device__ void attend_rows(const Args& a, const Tile& tile, TileScratch& scratch) {
  int32_t position[2];
  positions_of(tile, as<int32_t>(a.row_position), position);
  __syncthreads();
  load_query<Fragments>(a, tile, scratch);
  Softmax merged[2];
  Shares shares[2];
  const int32_t last_segment = n_segments(tile.largest_position) - 1;
  for (int32_t segment = 0; segment <= last_segment; segment++)
    attend_segment<Fragments>(
        a, tile, position, segment, scratch,
        [&](const Softmax(&softmax)[2]) {
          for (int row = 0; row < 2; row++) shares[row] = merge(merged[row], softmax[row]);
        },
        [&](int32_t group, const float(&sums)[8]) {
          for_own_values(tile, a.head_dim, group, [&](int32_t row, int32_t head, int32_t d, int i) {
            float* out = as<float>(a.out) + (int64_t(row) * a.n_heads + head) * a.head_dim + d;
            float value = segment == 0 ? 0.f : *out;
            merge(value, sums[i], shares[i % 4 / 2]);
            *out = segment == last_segment ? value * normalise(merged[i % 4 / 2]) : value;
          });
        });
}
template <class Fragments, class Args>
__device__ void attend_row_segment(const Args& a, const Tile& tile, int32_t segment, TileScratch& scratch) {
  int32_t position[2];
  positions_of(tile, as<int32_t>(a.row_position), position);
  __syncthreads();
  load_query<Fragments>(a, tile, scratch);
  Softmax softmax[2];
  attend_segment<Fragments>(
      a, tile, position, segment, scratch,
      [&](const Softmax(&found)[2]) { softmax[0] = found[0], softmax[1] = found[1]; },
      [&](int32_t group, const float(&sums)[8]) {
        for_own_values(tile, a.head_dim, group, [&](int32_t row, int32_t head, int32_t d, int i) {
          float* out = partial_at(a, row, head, segment);
          if (d == 0) out[0] = softmax[i % 4 / 2].max, out[1] = softmax[i % 4 / 2].sum;
          out[2 + d] = sums[i];
        });
      });
}

template <class Args>
__host__ __device__ inline int64_t n_tiles(const Args& a, int64_t n_rows) {
  const Tiling tiling = tiling_of(a);
  return (n_rows + tiling.n_rows - 1) / tiling.n_rows * a.n_kv_heads * tiling.n_head_tiles;
}
// The next rows of [first, end) with one slot, whose positions exist; in `tile`. The row after them.
template <class Args>
__device__ __forceinline__ int32_t next_rows(const Args& a, int32_t first, int32_t end, Tile& tile) {
  const int32_t *slots = as<int32_t>(a.row_slot), *positions = as<int32_t>(a.row_position);
  const int64_t n_positions = int64_t(a.pages_per_slot) * kPageTokens;
  tile.first_row = first, tile.slot = slots[first];
  int32_t row = first;
  for (; row < end && slots[row] == tile.slot && in_range(positions[row], n_positions); row++) {
    const int32_t position = positions[row];
    if (row == first || position < tile.least_position) tile.least_position = position;
    if (row == first || position > tile.largest_position) tile.largest_position = position;
  }
  tile.n_rows = in_range(tile.slot, a.n_slots) ? row - first : 0;
  return row > first ? row : first + 1;
}

template <class Fragments, class Args>
__device__ void attention_tiles(const Args& a) {
  HELIOS_DYNAMIC_SHARED(TileScratch, scratch);
  const int32_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity);
  const Tiling tiling = tiling_of(a);
  const int32_t n_each = a.n_kv_heads * tiling.n_head_tiles;
  for (int64_t item = blockIdx.x; item < n_tiles(a, n_rows); item += gridDim.x) {
    const int32_t in_row = int32_t(item % n_each), first = int32_t(item / n_each) * tiling.n_rows;
    Tile tile = tile_of(a, tiling, in_row / tiling.n_head_tiles, in_row % tiling.n_head_tiles);
    const int32_t end = first + tiling.n_rows < n_rows ? first + tiling.n_rows : n_rows;
    for (int32_t row = first; row < end;) {
      row = next_rows(a, row, end, tile);
      if (tile.n_rows > 0) attend_rows<Fragments>(a, tile, *scratch);
    }
  }
}

// Blocks stride over the segments, segments slowest, so that what rows do not reach costs little.
template <class Args>
__host__ __device__ inline int64_t n_split_items(const Args& a, int64_t n_rows) {
  return n_rows * a.n_kv_heads * tiling_of(a).n_head_tiles * a.max_segments;
}
template <class Args>
__host__ __device__ inline int64_t n_split_blocks(const Args& a) {
  const int64_t n_items = n_split_items(a, a.rows_capacity), most = 4096;
  return n_items < most ? n_items : most;
}
template <class Fragments, class Args>
__device__ void attention_split_tiles(const Args& a) {
  HELIOS_DYNAMIC_SHARED(TileScratch, scratch);
  const int64_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity);
  const Tiling tiling = tiling_of(a);
  const int64_t n_each = int64_t(a.n_kv_heads) * tiling.n_head_tiles;
  for (int64_t item = blockIdx.x; item < n_split_items(a, n_rows); item += gridDim.x) {
    const int32_t segment = int32_t(item / (n_rows * n_each)), in_row = int32_t(item % n_each),
                  row = int32_t(item / n_each % n_rows), position = as<int32_t>(a.row_position)[row];
    if (position < 0 || segment >= n_segments(position)) continue;
    Tile tile = tile_of(a, tiling, in_row / tiling.n_head_tiles, in_row % tiling.n_head_tiles);
    tile.first_row = row, tile.n_rows = 1, tile.slot = as<int32_t>(a.row_slot)[row];
    tile.least_position = tile.largest_position = position;
    attend_row_segment<Fragments>(a, tile, segment, *scratch);
  }
}

// A block a row and head; a thread has every kThreads-th dimension.
__device__ void attention_merge(const HeliosArgs_attention_merge& a) {
  const int64_t n_items = int64_t(live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity)) * a.n_heads;
  for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
    const int32_t row = int32_t(item / a.n_heads), head = int32_t(item % a.n_heads),
                  position = as<int32_t>(a.row_position)[row];
    if (position < 0 || n_segments(position) > a.max_segments) continue;
    for (int32_t d = int32_t(threadIdx.x); d < a.head_dim; d += kThreads) {
      Softmax merged;
      float value = 0;
      for (int32_t s = 0; s < n_segments(position); s++) {
        const float* stored = partial_at(a, row, head, s);
        const Shares shares = merge(merged, Softmax{stored[0], stored[1]});
        merge(value, stored[2 + d], shares);
      }
      as<float>(a.out)[item * a.head_dim + d] = value * normalise(merged);
    }
  }
}

}  // namespace helios::cuda

#define HELIOS_ATTENTION(suffix, Fragments)                                                                      \
  HELIOS_CUDA_KERNEL_WITH(attention##suffix, helios::cuda::kThreads, 2, helios::cuda::n_tiles(a, a.rows_capacity), \
                          helios::cuda::scratch_nbytes(a.head_dim),                                              \
                          helios::cuda::attention_tiles<helios::cuda::Fragments>(a))                             \
  HELIOS_CUDA_KERNEL_WITH(attention_split##suffix, helios::cuda::kThreads, 2, helios::cuda::n_split_blocks(a),  \
                          helios::cuda::scratch_nbytes(a.head_dim),                                              \
                          helios::cuda::attention_split_tiles<helios::cuda::Fragments>(a))
HELIOS_ATTENTION(, F16Fragments)
HELIOS_ATTENTION(_bf16, Bf16Fragments)
HELIOS_ATTENTION(_q8, Q8Fragments)
HELIOS_CUDA_KERNEL(attention_merge, helios::cuda::kThreads, int64_t(a.rows_capacity) * a.n_heads,
                   helios::cuda::attention_merge(a))
