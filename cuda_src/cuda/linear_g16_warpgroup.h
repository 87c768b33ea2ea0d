// The linear maps over g16k8 weights on sm_90a, with products of a warpgroup: weights are the left operand, made in
// registers, activations the right one, read from shared memory. There is one tile in five sizes, and all of them
// multiply the same 16 inputs in the same order, block after block and part after part, so a row has the same bits in
// each. (Not those of mma.sync, which takes the inputs in another order: a device has the one or the other.) A product
// starts at zero for each block of 32 inputs; it is waited for and scaled into the sum before the next one, meanwhile
// the other three warpgroups of the multiprocessor have the tensor cores.
//
// A thread block's 256 threads are one team with 128 weight rows, or two with the same 64 or fewer, which take the parts
// in turn. A team runs through its inputs by stages. Weights come by bulk copies, one a warp, that end a phase of the
// stage's mbarrier; as many stages as fit are under way. Activations lie in memory row by row and are wanted as core
// matrices of 8 rows by 16 bytes, which a bulk copy does not make of them, so each thread brings 16 bytes at a time by
// cp.async, kXStages deep: they come from the L2 cache.
//
//   live rows         weight rows x rows of x    weights under way in a block of threads
//                                                q4_0     q4_1     q8_0     bf16, f16
//   1 to 8            64 x 8                     55 KB    51 KB    61 KB    66 KB
//   the same, small   16 x 8, 32 x 8 for a gate  35       38       61 (65)  49 (57)
//   9 to 32           64 x 32                    32       31       48       41
//   above             128 x 64                   32       33       31       25
//
// A multiprocessor has two blocks (linear_g16.cu). Floors: up to 32 rows the weights' bytes once, at the memory's
// bandwidth, for a weight is read by one block; above, 2 * rows * n_in * n_out operations (twice for f16) at the rate of
// wgmma. By that rate a product of 64 x 64 x 32 takes the tensor cores 64 cycles; to scale it takes each scheduler 32
// multiply-adds, 64 with offsets, and to make its left operand about 40 instructions more: q4_1 cannot reach the rate.
// No GPU has run this.
#pragma once
#include "g16_map.h"

namespace helios::cuda {

// kWarpParts: into how many parts the warps of a team with few groups are divided; each has columns of its own in a
// product, which gives them all.
template <class Weights, G16Output kOutput, int kTokens_, int kTeams_, int kWarpParts_ = 1>
struct WarpgroupTile {
  static constexpr int kTokens = kTokens_, kTeams = kTeams_, kWarpParts = kWarpParts_, kColumns = kTokens * kWarpParts;
  static constexpr int kTeamThreads = kG16Threads / kTeams, kTeamWarps = kTeamThreads / kWarpLanes,
                       kGroups = kTeamWarps / kWarpParts, kRoundParts = kTeams * kWarpParts, kElements = kTokens / 2;
  // Of a stage's weights: a bulk copy is the better for its length, as far as x leaves room.
  static constexpr int kStageNbytesWanted = kColumns == 8 ? 6144 : kTokens == 32 ? 3072 : 1;
  static constexpr int kFitting = kStageNbytesWanted / (kTeamWarps * Weights::kNbytes),
                       kStageBlocks = kFitting < 1 ? 1 : kFitting > 4 ? 4 : kFitting;
  static constexpr int kWeightsNbytes = kStageBlocks * Weights::kNbytes;  // of a warp's stage
  static constexpr int kXNbytes = kStageBlocks * kColumns * kG16XNbytes,
                       kXStageNbytes = kXNbytes + (Weights::kHasOffset ? kStageBlocks * kColumns * 4 : 0);
  static constexpr int kMaxStages = 16, kXStages = 3;
  static constexpr int kSumsAt = kTeams * kMaxStages * 8, kTeamsAt = kSumsAt + kG16Threads * kElements * 4;
  static constexpr int kTeamNbytes = (kG16SharedNbytes - kTeamsAt) / kTeams / 128 * 128,
                       kXAt = kTeamNbytes - kXStages * kXStageNbytes;
  static constexpr int kFittingStages = kXAt / (kTeamWarps * kWeightsNbytes),
                       kStages = kFittingStages > kMaxStages ? kMaxStages : kFittingStages;
  static_assert(kStages >= 3 && kXStageNbytes % 16 == 0 && kXAt % 16 == 0, "the rings fit and are aligned");
  static_assert(kStageBlocks * kColumns <= kTeamThreads, "a stage's sums are one copy of the team");
  static_assert(kG16Parts % kRoundParts == 0, "every warp has as many parts");

  static __host__ __device__ int64_t n_tiles(int32_t n_out, int32_t n_rows) {
    const int64_t n_groups = int64_t((n_out + kG16Rows - 1) / kG16Rows) * (kOutput == kG16SiluGate ? 2 : 1);
    return (n_groups + kGroups - 1) / kGroups * ((n_rows + kTokens - 1) / kTokens);
  }

  // kStageBlocks blocks of inputs of each of a team's parts of a round, from block `at` of the part on.
  struct Stage {
    int32_t n_blocks, at = 0;
    int team, round = 0, slot = 0;
    __device__ Stage(const G16Map& map, int team) : n_blocks(map.n_blocks), team(team) { skip(); }
    __device__ __forceinline__ int32_t begin(int warp_part) const {
      return part_begin(n_blocks, round * kRoundParts + team * kWarpParts + warp_part);
    }
    // Of the stage, of a part.
    __device__ __forceinline__ int n(int warp_part) const {
      if (round * kRoundParts >= kG16Parts) return 0;
      const int32_t left = begin(warp_part + 1) - begin(warp_part) - at;
      return left < 0 ? 0 : left < kStageBlocks ? left : kStageBlocks;
    }
    __device__ __forceinline__ int most() const {
      int n_most = 0;
      HELIOS_UNROLL for (int part = 0; part < kWarpParts; part++) n_most = n(part) > n_most ? n(part) : n_most;
      return n_most;
    }
    __device__ __forceinline__ void skip() {
      while (round * kRoundParts < kG16Parts && most() == 0) round++, at = 0;
    }
    __device__ __forceinline__ void advance(int n_slots) {
      at += kStageBlocks;
      skip();
      slot = slot + 1 == n_slots ? 0 : slot + 1;
    }
  };

  struct Team {
    const G16Map& map;
    uint64_t* barriers;
    uint8_t *weights, *x;
    int32_t first_group, first_row;
    int id, me;

    __device__ __forceinline__ void sync() const {
      if (kTeams == 1) {
        __syncthreads();
      } else if (id == 0) {
        sync_threads<1, kTeamThreads>();
      } else {
        sync_threads<2, kTeamThreads>();
      }
    }

    // By the first warp: lane i brings warp i's weights. A group that is not there is nobody's output.
    __device__ __forceinline__ void fetch_weights(const Stage& stage) const {
      if (me >= kTeamWarps || stage.most() == 0) return;
      const int32_t group = first_group + me % kGroups;
      const int nbytes = group < map.n_groups ? stage.n(me / kGroups) * Weights::kNbytes : 0;
      arrive_and_expect(barriers + stage.slot, nbytes);
      if (nbytes != 0)
        copy_bulk(weights + (stage.slot * kTeamWarps + me) * kWeightsNbytes,
                  map.weight + group * map.group_nbytes + int64_t(stage.begin(me / kGroups) + stage.at) * Weights::kNbytes,
                  nbytes, barriers + stage.slot);
    }

    // Rows that are not there are zeros.
    __device__ __forceinline__ void fetch_x(const Stage& stage) const {
      uint8_t* to = x + stage.slot * kXStageNbytes;
      HELIOS_UNROLL for (int i = 0; i < kStageBlocks * kColumns * 4; i += kTeamThreads) {
        const int piece = i + me, column = piece / 4 % kColumns, part = column / kTokens, b = piece / (4 * kColumns);
        const int32_t row = first_row + column % kTokens;
        if (b < stage.n(part))
          copy_async_16(to + ((b * 4 + piece % 4) * kColumns + column) * 16,
                        map.x + int64_t(row < map.n_rows ? row : 0) * map.n_in +
                            (stage.begin(part) + stage.at + b) * kG16Inputs + piece % 4 * 8,
                        row < map.n_rows);
      }
      const int column = me % kColumns, part = column / kTokens, b = me / kColumns;
      const int32_t row = first_row + column % kTokens;
      if (Weights::kHasOffset && b < stage.n(part))
        copy_async_4(to + kXNbytes + me * 4,
                     map.sums + int64_t(row < map.n_rows ? row : 0) * map.n_blocks + stage.begin(part) + stage.at + b,
                     row < map.n_rows);
      commit_copies();
    }

    __device__ __forceinline__ void add_stage(const Stage& stage, int x_slot, float (&acc)[kElements]) const {
      const int lane = me % kWarpLanes, warp = me / kWarpLanes, part = warp / kGroups;
      const uint8_t *mine = weights + (stage.slot * kTeamWarps + warp) * kWeightsNbytes,
                    *inputs = x + x_slot * kXStageNbytes;
      HELIOS_NO_UNROLL for (int b = 0; b < stage.most(); b++) {
        G16Fragment<Weights> fragment;
        read_fragment_in_order(mine + b * Weights::kNbytes, lane, fragment);
        float product[kColumns / 2];
        multiply(product, fragment, inputs + b * kColumns * kG16XNbytes);
        const float* sums = reinterpret_cast<const float*>(inputs + kXNbytes) + b * kColumns + lane % 4 * 2;
        HELIOS_UNROLL for (int of_part = 0; of_part < kWarpParts; of_part++) {
          if (part != of_part || b >= stage.n(part)) continue;
          HELIOS_UNROLL for (int i = 0; i < kElements; i++) {
            const int column = of_part * kTokens + i / 4 * 8 + i % 2;
            if (Weights::kHasOffset) acc[i] = fmaf(fragment.offset[i / 2 % 2], sums[column], acc[i]);
            acc[i] = fmaf(fragment.scale[i / 2 % 2], product[of_part * kElements + i], acc[i]);
          }
        }
      }
    }

    // Of a block of 32 inputs; its order is the same for every number of rows.
    static __device__ __forceinline__ void multiply(float (&product)[kColumns / 2], const G16Fragment<Weights>& fragment,
                                                    const uint8_t* inputs) {
      begin_products();
      HELIOS_UNROLL for (int half = 0; half < 2; half++) {
        const uint64_t b = matrix_in_shared(inputs + half * 2 * kColumns * 16, kColumns * 16, 128);
        HELIOS_UNROLL for (int part = 0; part < Weights::kProducts; part++) {
          if (half == 0 && part == 0) {
            multiply_async<false>(product, fragment.a[part][half], b);
          } else {
            multiply_async<true>(product, fragment.a[part][half], b);
          }
        }
      }
      end_products(product);
    }
  };

  // The calling thread's sums, one in every kG16Threads floats.
  static __device__ __forceinline__ void store(const G16Map& map, int32_t group, int32_t first_row, const float* sums) {
    const int lane = int(threadIdx.x) % kWarpLanes;
    if (kOutput == kG16SiluGate && group % 2) return;
    const float* up = sums + (kOutput == kG16SiluGate ? kWarpLanes : 0);  // the next warp's
    HELIOS_UNROLL for (int i = 0; i < kElements; i++) {
      const int32_t row = first_row + i / 4 * 8 + lane % 4 * 2 + i % 2,
                    out = (kOutput == kG16SiluGate ? group / 2 : group) * kG16Rows + lane / 4 * 2 + i / 2 % 2;
      if (row < map.n_rows && out < map.n_out)
        put<kOutput>(map.y + row * map.y_stride + out, sums[i * kG16Threads], up[i * kG16Threads]);
    }
  }

  static __device__ void run(const G16Map& map, uint8_t* shared, int64_t tile) {
    const int32_t n_row_tiles = (map.n_rows + kTokens - 1) / kTokens;
    const int thread = int(threadIdx.x), id = thread / kTeamThreads;
    uint64_t* barriers = reinterpret_cast<uint64_t*>(shared) + id * kMaxStages;
    uint8_t* rings = shared + kTeamsAt + id * kTeamNbytes;
    float* sums = reinterpret_cast<float*>(shared + kSumsAt) + thread;
    const Team team = {map,
                       barriers,
                       rings,
                       rings + kXAt,
                       int32_t(tile / n_row_tiles) * kGroups,
                       int32_t(tile % n_row_tiles) * kTokens,
                       id,
                       thread % kTeamThreads};
    if (team.me < kStages) {
      init_barrier(barriers + team.me, kTeamWarps);
      fence_for_async();
    }
    HELIOS_UNROLL for (int i = 0; i < kElements; i++) sums[i * kG16Threads] = 0;
    team.sync();
    Stage fetched(map, id), x_fetched(map, id), stage(map, id);
    auto fetch_weights = [&] { team.fetch_weights(fetched), fetched.advance(kStages); };
    auto fetch_x = [&] { team.fetch_x(x_fetched), x_fetched.advance(kXStages); };
    for (int i = 0; i < kStages - 1; i++) fetch_weights();
    for (int i = 0; i < kXStages - 1; i++) fetch_x();
    int x_slot = 0;
    uint32_t parity = 0;
    HELIOS_NO_UNROLL for (int round = 0; round < kG16Parts / kRoundParts; round++) {
      float acc[kElements] = {};
      while (stage.round == round) {
        wait_copies<kXStages - 2>();
        fence_for_async();
        team.sync();  // the stage's inputs are there for all, and all have left the stage before it
        fetch_weights();
        fetch_x();
        wait_for_phase(barriers + stage.slot, parity);
        team.add_stage(stage, x_slot, acc);
        stage.advance(kStages);
        x_slot = x_slot + 1 == kXStages ? 0 : x_slot + 1;
        parity ^= stage.slot == 0;
      }
      add_parts(sums, acc);
    }
    if (kRoundParts == 1) __syncthreads();  // the next warp's sums are there
    if (thread < kGroups * kWarpLanes) store(map, team.first_group + thread / kWarpLanes, team.first_row, sums);
  }

  // A round's parts in ascending order, which is that of the warps; the first kGroups warps have the sums.
  static __device__ __forceinline__ void add_parts(float* sums, const float (&acc)[kElements]) {
    constexpr int kPartThreads = kGroups * kWarpLanes;
    const bool is_first = int(threadIdx.x) < kPartThreads;
    HELIOS_UNROLL for (int i = 0; i < kElements; i++)
      sums[i * kG16Threads] = is_first ? sums[i * kG16Threads] + acc[i] : acc[i];
    if (kRoundParts == 1) return;
    __syncthreads();
    if (is_first)
      HELIOS_NO_UNROLL for (int part = 1; part < kRoundParts; part++)
        HELIOS_UNROLL for (int i = 0; i < kElements; i++)
          sums[i * kG16Threads] += sums[i * kG16Threads + part * kPartThreads];
    __syncthreads();
  }
};

// A matrix is small when it has fewer groups than kManyGroups: tiles of 64 weight rows would leave multiprocessors without
// one. Its blocks have a group each, or a gate and its up group, and a warp, or two, for each part.
template <class Weights, G16Output kOutput>
struct WarpgroupForms {
  static constexpr int kManyGroups = 512;
  static __device__ __forceinline__ void run(const G16Map& map, uint8_t* shared) {
    if (map.n_rows <= 8 && map.n_groups < kManyGroups) {
      run_tile<WarpgroupTile<Weights, kOutput, 8, 2, kOutput == kG16SiluGate ? 2 : 4>>(map, shared);
    } else if (map.n_rows <= 8) {
      run_tile<WarpgroupTile<Weights, kOutput, 8, 2>>(map, shared);
    } else if (map.n_rows <= 32) {
      run_tile<WarpgroupTile<Weights, kOutput, 32, 2>>(map, shared);
    } else {
      run_tile<WarpgroupTile<Weights, kOutput, 64, 1>>(map, shared);
    }
  }
};

}  // namespace helios::cuda
