// y = W x for g16k8 weights and bf16 rows on the tensor cores, in three forms with one sum. (sm_90a has forms of its own,
// in linear_g16_warpgroup.h.)
//
// The blocks of 32 inputs are cut into kG16Parts parts by their number alone. A part's sum starts at zero and takes its
// blocks in ascending order (add_block); an output is 0 + part 0 + part 1 + ... All forms do this with one instruction
// and one place for each weight, so a row has the same bits in each, alone or among many, in any place.
//
// FewRows, for 1 to 8 rows, and to 32 of a matrix with fewer than kSomeGroups groups, bound by memory: a thread block
// has 16 weight rows (or a gate group and its up group) and 8 rows of x, each warp a part. Weights are the left
// operand, so 1 to 8 rows cost the tensor cores the same. Each warp streams its part through a ring of its own in
// shared memory, 9 KB, by 16-byte cp.async; no warp waits for another before the parts are added. In flight are 8
// warps x (stages - 1) x the weights of a stage (q4_1: 4 x 640 bytes): 18 KB for q4_0, 20 for q4_1, 26 for q8_0, 40
// for bf16, 20 to 35 for a gate and its up group; twice that on a multiprocessor with two blocks. An H200 needs about
// 64 KB there: q4 falls short, by arithmetic; no GPU has run this yet. Floor: the weights' bytes once, at the
// memory's bandwidth; above 8 rows they come again from the L2 cache.
//
// SomeRows, for 9 to 32 rows: a thread block has 64 weight rows and 32 rows of x, so that weights come once, and the
// L2 cache has to give 2.7 bytes for one of q4_1 (FewRows: 10.8 for 32 rows); each warp 32 x 8 of it, stages of one
// block of inputs by the whole thread block, 7 of them under way: 24 KB for q4_1, 9 of them weights, and 42 for bf16.
// Floor: the weights' bytes once.
//
// ManyRows, bound by the tensor cores: the same with 128 weight rows and 64 rows of x, each warp 32 x 32 of it.
// Floor: 2 * rows * n_in * n_out operations (twice for f16) at the rate of mma.sync; a stage reads 128 weight rows
// and 64 x rows, so the L2 cache has to give 64 + 18 (q4_1) bytes an input for 16,384 operations.
//
// Registers, shared memory and blocks of a multiprocessor: linear_g16.cu.
#pragma once
#include "g16_map.h"
#include "linear_g16_warpgroup.h"

namespace helios::cuda {

constexpr int kFewRows = 32, kSomeGroups = 128;

// Pieces of 16 bytes, one after the other, by n threads.
__device__ __forceinline__ void copy_pieces(uint8_t* to, const uint8_t* from, int n_pieces, int me, int n) {
  for (int i = me; i < n_pieces; i += n) copy_async_16(to + 16 * i, from + 16 * i);
}

template <class Weights, G16Output kOutput>
struct FewRows {
  static constexpr int kTokens = 8, kGroups = kOutput == kG16SiluGate ? 2 : 1, kTile = kG16Rows * kTokens;
  static constexpr int kSumsNbytes = Weights::kHasOffset ? kTokens * 4 : 0;
  static constexpr int kBlockNbytes = kGroups * Weights::kNbytes + kTokens * kG16XNbytes + kSumsNbytes;
  static constexpr int kStageBlocks = kBlockNbytes > 1280 ? 1 : 2;
  static constexpr int kStageNbytes = kStageBlocks * kBlockNbytes, kStages = 9216 / kStageNbytes;
  static constexpr int kXAt = kStageBlocks * kGroups * Weights::kNbytes;
  static constexpr int kSumsAt = kXAt + kStageBlocks * kTokens * kG16XNbytes;
  static constexpr int kPartialsAt = kG16Warps * kStages * kStageNbytes;
  static constexpr int kNbytes = kPartialsAt + kG16Parts * kGroups * kTile * 4;
  static_assert(kStageBlocks * kTokens <= kWarpLanes && kStages >= 3, "a stage's sums are one copy of the warp");

  static __host__ __device__ int64_t n_tiles(int32_t n_out, int32_t n_rows) {
    return int64_t((n_out + kG16Rows - 1) / kG16Rows) * ((n_rows + kTokens - 1) / kTokens);
  }

  // Copies blocks first .. first + n - 1 into a stage.
  static __device__ __forceinline__ void fetch(const G16Map& map, const uint8_t* weight, int32_t first_row, int32_t first,
                                               int32_t n, uint8_t* stage) {
    const int lane = int(threadIdx.x) % kWarpLanes;
    for (int group = 0; group < kGroups; group++)
      copy_pieces(stage + group * kStageBlocks * Weights::kNbytes,
                  weight + group * map.group_nbytes + int64_t(first) * Weights::kNbytes, n * (Weights::kNbytes / 16),
                  lane, kWarpLanes);
    const int32_t row = first_row + lane / 4;
    const uint16_t* x = map.x + int64_t(row < map.n_rows ? row : 0) * map.n_in + first * kG16Inputs + lane % 4 * 8;
    for (int b = 0; b < n; b++)
      copy_async_16(stage + kXAt + (b * kWarpLanes + lane) * 16, x + b * kG16Inputs, row < map.n_rows);
    if (!Weights::kHasOffset || lane >= n * kTokens) return;
    const int32_t of_sum = first_row + lane % kTokens;
    copy_async_4(stage + kSumsAt + lane * 4,
                 map.sums + int64_t(of_sum < map.n_rows ? of_sum : 0) * map.n_blocks + first + lane / kTokens,
                 of_sum < map.n_rows);
  }

  static __device__ __forceinline__ void add_stage(const uint8_t* stage, int32_t n, float (&acc)[kGroups][4]) {
    const int lane = int(threadIdx.x) % kWarpLanes;
    for (int b = 0; b < n; b++) {
      const uint4 x = fragment_of_rows(stage + kXAt + b * kTokens * kG16XNbytes, lane);
      const float* sums = reinterpret_cast<const float*>(stage + kSumsAt) + b * kTokens + lane % 4 * 2;
      HELIOS_UNROLL for (int group = 0; group < kGroups; group++) {
        G16Fragment<Weights> weights;
        read_fragment(stage + (group * kStageBlocks + b) * Weights::kNbytes, lane, weights);
        add_block(acc[group], weights, x, sums);
      }
    }
  }

  // The calling warp's part.
  static __device__ __forceinline__ void add_part(const G16Map& map, const uint8_t* weight, int32_t first_row,
                                                  uint8_t* ring, int warp, float (&acc)[kGroups][4]) {
    const int32_t begin = part_begin(map.n_blocks, warp), n = part_begin(map.n_blocks, warp + 1) - begin,
                  n_stages = (n + kStageBlocks - 1) / kStageBlocks;
    auto n_in_stage = [&](int32_t s) { return n - s * kStageBlocks < kStageBlocks ? n - s * kStageBlocks : kStageBlocks; };
    auto fetch_stage = [&](int32_t s) {
      if (s < n_stages)
        fetch(map, weight, first_row, begin + s * kStageBlocks, n_in_stage(s), ring + s % kStages * kStageNbytes);
      commit_copies();
    };
    for (int32_t s = 0; s < kStages - 1; s++) fetch_stage(s);
    for (int32_t s = 0; s < n_stages; s++) {
      wait_copies<kStages - 2>();
      __syncwarp();  // the stage is there for all lanes, and all of them have left the one before it
      fetch_stage(s + kStages - 1);
      add_stage(ring + s % kStages * kStageNbytes, n_in_stage(s), acc);
    }
  }

  static __device__ void run(const G16Map& map, uint8_t* shared, int64_t tile) {
    const int32_t n_row_tiles = (map.n_rows + kTokens - 1) / kTokens, first_row = int32_t(tile % n_row_tiles) * kTokens,
                  out_group = int32_t(tile / n_row_tiles);
    const int warp = int(threadIdx.x) / kWarpLanes, lane = int(threadIdx.x) % kWarpLanes;
    float acc[kGroups][4] = {};
    add_part(map, map.weight + out_group * kGroups * map.group_nbytes, first_row, shared + warp * kStages * kStageNbytes,
             warp, acc);
    float(*partials)[kGroups][kTile] = reinterpret_cast<float(*)[kGroups][kTile]>(shared + kPartialsAt);
    for (int group = 0; group < kGroups; group++)
      for (int i = 0; i < 4; i++)
        partials[warp][group][(lane % 4 * 2 + i % 2) * kG16Rows + lane / 4 * 2 + i / 2] = acc[group][i];
    __syncthreads();
    const int me = int(threadIdx.x);
    const int32_t row = first_row + me / kG16Rows, out = out_group * kG16Rows + me % kG16Rows;
    if (me >= kTile || row >= map.n_rows || out >= map.n_out) return;
    float sums[2] = {};
    for (int part = 0; part < kG16Parts; part++)
      for (int group = 0; group < kGroups; group++) sums[group] += partials[part][group][me];
    put<kOutput>(map.y + row * map.y_stride + out, sums[0], sums[1]);
  }
};

// A tile of kGroups groups and kTokens rows of x; each warp has two of the groups (of the SiLU gate, a gate group and its up
// group) and kWarpTiles tiles of 8 rows.
template <class Weights, G16Output kOutput, int kTokens_, int kGroups_>
struct RowTiles {
  static constexpr int kTokens = kTokens_, kGroups = kGroups_, kWarpGroups = 2, kGroupWarps = kGroups / kWarpGroups,
                       kWarpTiles = kTokens / 8 * kGroupWarps / kG16Warps;
  static constexpr int kXPieces = kTokens * kG16XNbytes / 16;
  static constexpr int kXAt = kGroups * Weights::kNbytes, kSumsAt = kXAt + kXPieces * 16;
  static constexpr int kStageNbytes = kSumsAt + (Weights::kHasOffset ? kTokens * 4 : 0);
  static constexpr int kTile = kWarpGroups * kWarpTiles * 4, kSumsNbytes = kG16Threads * kTile * 4, kStages = kWarpTiles == 1 ? 8 : 4,
                       kNbytes = kSumsNbytes + kStages * kStageNbytes;
  static_assert(kWarpTiles * 8 * (kG16Warps / kGroupWarps) == kTokens, "the warps have all rows");
  static_assert(kXPieces <= kG16Threads, "a thread copies a piece of x");

  static __host__ __device__ int64_t n_tiles(int32_t n_out, int32_t n_rows) {
    const int64_t n_groups = int64_t((n_out + kG16Rows - 1) / kG16Rows) * (kOutput == kG16SiluGate ? 2 : 1);
    return (n_groups + kGroups - 1) / kGroups * ((n_rows + kTokens - 1) / kTokens);
  }

  static __device__ __forceinline__ void fetch(const G16Map& map, int32_t first_group, int32_t first_row, int32_t block,
                                               uint8_t* stage) {
    constexpr int kPieces = Weights::kNbytes / 16;
    const int me = int(threadIdx.x);
    HELIOS_NO_UNROLL for (int i = me; i < kGroups * kPieces; i += kG16Threads) {
      const int32_t group = first_group + i / kPieces;
      const bool is_there = group < map.n_groups;
      copy_async_16(stage + 16 * i,
                    map.weight + (is_there ? group : 0) * map.group_nbytes + int64_t(block) * Weights::kNbytes +
                        i % kPieces * 16,
                    is_there);
    }
    const int32_t row = first_row + me / 4;
    if (me < kXPieces)
      copy_async_16(stage + kXAt + 16 * me,
                    map.x + int64_t(row < map.n_rows ? row : 0) * map.n_in + block * kG16Inputs + me % 4 * 8,
                    row < map.n_rows);
    if (!Weights::kHasOffset || me >= kTokens) return;
    const int32_t of_sum = first_row + me;
    copy_async_4(stage + kSumsAt + 4 * me, map.sums + int64_t(of_sum < map.n_rows ? of_sum : 0) * map.n_blocks + block,
                 of_sum < map.n_rows);
  }

  using Tile = float[kWarpGroups][kWarpTiles][4];

  // Warp (i, j) = (warp % kGroupWarps, warp / kGroupWarps) has groups 2i and 2i+1, and the j-th kWarpTiles tiles.
  static __device__ __forceinline__ int group_of_warp() {
    return int(threadIdx.x) / kWarpLanes % kGroupWarps * kWarpGroups;
  }
  static __device__ __forceinline__ int row_of_warp() {
    return int(threadIdx.x) / kWarpLanes / kGroupWarps * kWarpTiles * 8;
  }
  static __device__ __forceinline__ void add_stage(const uint8_t* stage, Tile& acc) {
    const int lane = int(threadIdx.x) % kWarpLanes;
    HELIOS_UNROLL for (int group = 0; group < kWarpGroups; group++) {
      G16Fragment<Weights> weights;
      read_fragment(stage + (group_of_warp() + group) * Weights::kNbytes, lane, weights);
      HELIOS_UNROLL for (int tile = 0; tile < kWarpTiles; tile++) {
        const int row = row_of_warp() + tile * 8;
        add_block(acc[group][tile], weights, fragment_of_rows(stage + kXAt + row * kG16XNbytes, lane),
                  reinterpret_cast<const float*>(stage + kSumsAt) + row + lane % 4 * 2);
      }
    }
  }

  // The calling thread's sums, one in every kG16Threads floats: adding the parts costs no registers.
  static __device__ __forceinline__ void store(const G16Map& map, int32_t first_group, int32_t first_row,
                                               const float* sums) {
    const int lane = int(threadIdx.x) % kWarpLanes;
    constexpr int kOutputs = kOutput == kG16SiluGate ? kTile / 2 : kTile;
    HELIOS_NO_UNROLL for (int i = 0; i < kOutputs; i++) {
      const int group = i / (kWarpTiles * 4), tile = i / 4 % kWarpTiles, at = i % 4;
      const int32_t row = first_row + tile * 8 + lane % 4 * 2 + at % 2,
                    out_group = kOutput == kG16SiluGate ? first_group / 2 : first_group + group,
                    out = out_group * kG16Rows + lane / 4 * 2 + at / 2;
      if (row < map.n_rows && out < map.n_out)
        put<kOutput>(map.y + row * map.y_stride + out, sums[i * kG16Threads], sums[(i + kTile - kOutputs) * kG16Threads]);
    }
  }

  static __device__ void run(const G16Map& map, uint8_t* shared, int64_t tile) {
    const int32_t n_row_tiles = (map.n_rows + kTokens - 1) / kTokens, first_row = int32_t(tile % n_row_tiles) * kTokens,
                  first_group = int32_t(tile / n_row_tiles) * kGroups;
    float* sums = reinterpret_cast<float*>(shared) + threadIdx.x;
    uint8_t* ring = shared + kSumsNbytes;
    auto fetch_block = [&](int32_t block) {
      if (block < map.n_blocks) fetch(map, first_group, first_row, block, ring + block % kStages * kStageNbytes);
      commit_copies();
    };
    for (int32_t block = 0; block < kStages - 1; block++) fetch_block(block);
    for (int i = 0; i < kTile; i++) sums[i * kG16Threads] = 0;
    for (int part = 0; part < kG16Parts; part++) {
      Tile acc = {};
      for (int32_t block = part_begin(map.n_blocks, part); block < part_begin(map.n_blocks, part + 1); block++) {
        wait_copies<kStages - 2>();
        __syncthreads();  // the stage is there for all threads, and all of them have left the one before it
        fetch_block(block + kStages - 1);
        add_stage(ring + block % kStages * kStageNbytes, acc);
      }
      HELIOS_UNROLL for (int i = 0; i < kTile; i++)
        sums[i * kG16Threads] += acc[i / (kWarpTiles * 4)][i / 4 % kWarpTiles][i % 4];
    }
    store(map, first_group + group_of_warp(), first_row + row_of_warp(), sums);
  }
};
template <class Weights, G16Output kOutput>
using SomeRows = RowTiles<Weights, kOutput, 32, 4>;
template <class Weights, G16Output kOutput>
using ManyRows = RowTiles<Weights, kOutput, 64, 8>;

// The grid has room for every form at any live count, and so for those of sm_90a: the tiles of up to 32 rows have as many weight
// rows as the smallest or more, and no fewer rows of x.
template <class Weights, G16Output kOutput>
__host__ __device__ int64_t n_g16_blocks(int32_t n_out, int32_t rows_capacity) {
  const int64_t few = FewRows<Weights, kOutput>::n_tiles(n_out, rows_capacity < kFewRows ? rows_capacity : kFewRows);
  if (rows_capacity <= kFewRows) return few;
  const int64_t many = ManyRows<Weights, kOutput>::n_tiles(n_out, rows_capacity);
  return few > many ? few : many;
}
template <class Weights, G16Output kOutput>
__host__ __device__ constexpr int64_t g16_shared_nbytes() {
  static_assert(FewRows<Weights, kOutput>::kNbytes <= kG16SharedNbytes, "few rows");
  static_assert(SomeRows<Weights, kOutput>::kNbytes <= kG16SharedNbytes, "some rows");
  static_assert(ManyRows<Weights, kOutput>::kNbytes <= kG16SharedNbytes, "many rows");
  return kG16SharedNbytes;
}

template <class Weights, G16Output kOutput, class Args>
__device__ __forceinline__ void linear_g16(const Args& a) {
  HELIOS_DYNAMIC_SHARED(uint8_t, shared);
  const G16Map map = g16_map<Weights, kOutput>(a);
  if (has_warpgroups()) {
    WarpgroupForms<Weights, kOutput>::run(map, shared);
  } else if (map.n_rows <= 8 || (map.n_rows <= kFewRows && map.n_groups < kSomeGroups)) {
    run_tile<FewRows<Weights, kOutput>>(map, shared);
  } else if (map.n_rows <= kFewRows) {
    run_tile<SomeRows<Weights, kOutput>>(map, shared);
  } else {
    run_tile<ManyRows<Weights, kOutput>>(map, shared);
  }
}

}  // namespace helios::cuda

#define HELIOS_G16_KERNEL(id, weights, output)                                                                    \
  HELIOS_CUDA_KERNEL_WITH(id, helios::cuda::kG16Threads, 2,                                                       \
                          (helios::cuda::n_g16_blocks<weights, helios::cuda::output>(a.n_out, a.rows_capacity)),  \
                          (helios::cuda::g16_shared_nbytes<weights, helios::cuda::output>()),                     \
                          helios::cuda::linear_g16<weights, helios::cuda::output>(a))
#define HELIOS_G16_KERNELS(suffix, weights)                          \
  HELIOS_G16_KERNEL(linear_##suffix, weights, kG16Store)             \
  HELIOS_G16_KERNEL(linear_add_##suffix, weights, kG16Add)           \
  HELIOS_G16_KERNEL(linear_silu_gate_##suffix, weights, kG16SiluGate)
