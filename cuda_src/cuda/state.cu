// The device's own book-keeping: page tables, request rows, the row table of a round and its commit. A few hundred numbers a
// round, in one block each; what a slot starts with is copied 16 bytes a thread, by many blocks. The host kernels
// (host/state.cpp) walk their lists in order, and so the outcome here is that of the same order: whoever writes a place walks
// the list to find what comes last.
//
// Floor: the time of a few loads that wait for each other; 2 bytes a byte that is copied. As built: up to 64 registers a
// thread and 3,584 bytes of shared memory, 8 blocks a multiprocessor.
#include "chunks.h"

namespace helios::cuda {

// A thread owns every kThreads-th cell, and sees all updates in order: of two for one cell the later stays.
__device__ void update_page_table(const HeliosArgs_page_table_update& a) {
  const int32_t* update = as<int32_t>(a.updates);
  const int32_t n_updates = live_count(a.n_updates, a.updates_capacity);
  for (int32_t i = 0; i < n_updates; i++) {
    const int32_t cell = update[2 * i];
    if (cell % kThreads == int32_t(threadIdx.x) && in_range(cell, int64_t(a.n_slots) * a.pages_per_slot))
      as<int32_t>(a.page_table)[cell] = update[2 * i + 1];
  }
}

// Histograms go in parts, a block each; the rest of a slot goes with the first.
constexpr int64_t kPartBytes = 32 << 10;

__host__ __device__ inline int64_t n_parts(const HeliosArgs_slot_init& a) {
  return (int64_t(a.vocabulary) * 4 + kPartBytes - 1) / kPartBytes;
}
// One lane's slot. A slot that a later lane sets up too is left to that one.
__device__ void init_slot(const HeliosArgs_slot_init& a, int32_t lane, int64_t part, int32_t n_lanes) {
  const HeliosSamplingRow& staged = as<HeliosSamplingRow>(a.staged_sampling)[lane];
  const bool has_histogram = staged.flags & HELIOS_SAMPLING_PENALTIES;
  if (part != 0 && !has_histogram) return;
  const int32_t* slots = as<int32_t>(a.lane_slot);
  const int64_t slot = slots[lane];
  bool is_mine = in_range(int32_t(slot), a.n_slots);
  for (int32_t other = lane + 1; other < n_lanes; other++) is_mine = is_mine && slots[other] != slot;
  if (!is_mine) return;
  if (has_histogram) {
    const int64_t row_nbytes = int64_t(a.vocabulary) * 4, begin = part * kPartBytes, left = row_nbytes - begin;
    copy_bytes(as<char>(a.histogram) + slot * row_nbytes + begin, as<char>(a.staged_histogram) + lane * row_nbytes + begin,
               left < kPartBytes ? left : kPartBytes);
  }
  if (part != 0) return;
  constexpr int64_t kBiasBytes = 8 * HELIOS_MAX_BIAS;
  copy_bytes(as<char>(a.sampling) + slot * int64_t(sizeof staged), reinterpret_cast<const char*>(&staged), sizeof staged);
  copy_bytes(as<char>(a.bias) + slot * kBiasBytes, as<char>(a.staged_bias) + lane * kBiasBytes,
             8 * clamp(staged.n_bias, 0, HELIOS_MAX_BIAS));
  if (threadIdx.x != 0) return;
  HeliosRequestRow request = {};
  request.pending_token = -1;
  request.consumed = as<int32_t>(a.lane_position)[lane];
  request.generation = as<uint32_t>(a.lane_generation)[lane];
  as<HeliosRequestRow>(a.requests)[slot] = request;
}
__device__ void init_slots(const HeliosArgs_slot_init& a) {
  const int32_t n_lanes = live_count(a.n_lanes, a.lanes_capacity);
  const int64_t lane = blockIdx.x / n_parts(a);
  if (lane < n_lanes) init_slot(a, int32_t(lane), blockIdx.x % n_parts(a), n_lanes);
}

__device__ __forceinline__ bool is_current(const HeliosRequestRow* request, uint32_t generation) {
  return request && request->generation == generation && request->finish == HELIOS_FINISH_NONE;
}

// The rows that a lane asks for, and where they go.
struct LaneRows {
  int32_t slot, position, n;  // n 0: none
  int32_t pending_token;
  int32_t n_staged;  // tokens that it has among the prompts'; 0: it goes on with its pending token
  int32_t is_sampled;
  int32_t first_row;  // -1: the lane is dead
};
__device__ LaneRows wanted_rows(const HeliosArgs_row_table& a, int32_t lane) {
  const int32_t slot = as<int32_t>(a.lane_slot)[lane];
  const HeliosRequestRow* request = in_range(slot, a.n_slots) ? as<HeliosRequestRow>(a.requests) + slot : nullptr;
  LaneRows wanted{slot, 0, 0, -1, 0, as<int32_t>(a.lane_sample)[lane] != 0, -1};
  if (as<int32_t>(a.lane_source)[lane] == HELIOS_TOKENS_PROMPT) {
    const int32_t length = as<int32_t>(a.lane_query_length)[lane];
    wanted.n = wanted.n_staged = length > 0 ? length : 0;
    wanted.position = as<int32_t>(a.lane_position)[lane];
  } else if (request) {
    wanted.pending_token = request->pending_token;
    wanted.n = in_range(wanted.pending_token, a.vocabulary);
    wanted.position = request->consumed;
  }
  const bool is_possible = is_current(request, as<uint32_t>(a.lane_generation)[lane]) && wanted.position >= 0 &&
                           wanted.n <= a.n_positions - wanted.position;
  if (!is_possible) wanted.n = 0;
  return wanted;
}
__device__ __forceinline__ void write_row(const HeliosArgs_row_table& a, const LaneRows& lane, int32_t i, int32_t token) {
  const int32_t row = lane.first_row + i;
  as<int32_t>(a.row_token)[row] = token;
  as<int32_t>(a.row_position)[row] = lane.position + i;
  as<int32_t>(a.row_slot)[row] = lane.slot;
  as<int32_t>(a.row_identity)[row] = row;
}

// How far the lanes before have come.
struct Cursors {
  int64_t token = 0;
  int32_t row = 0, sample = 0;
};
// Calls use(lane, first token) for the lanes of this warp that have prompt tokens, and moves the cursor over all.
template <class Use>
__device__ __forceinline__ void for_prompts(LaneRows* lanes, int32_t n_lanes, int64_t& cursor, Use use) {
  for (int32_t i = 0; i < n_lanes; i++) {
    if (i % kWarps == int32_t(threadIdx.x) / kWarpLanes && lanes[i].n_staged > 0) use(lanes[i], cursor);
    cursor += lanes[i].n_staged;
  }
}
// A lane whose tokens were not all staged, or are none of the vocabulary's, gets no rows.
__device__ __forceinline__ void check_tokens(const HeliosArgs_row_table& a, LaneRows& lane, int64_t first_token) {
  bool are_tokens = first_token + lane.n <= a.rows_capacity;
  for (int32_t i = int32_t(threadIdx.x) % kWarpLanes; are_tokens && i < lane.n; i += kWarpLanes)
    are_tokens = in_range(as<int32_t>(a.prompt_tokens)[first_token + i], a.vocabulary);
  if (__ballot_sync(kAllLanes, !are_tokens)) lane.n = 0;
}
// Every thread walks the lanes with the same numbers, and keeps what its own gets.
__device__ __forceinline__ void place_rows(const HeliosArgs_row_table& a, LaneRows* lanes, int32_t n_lanes, int32_t first_lane,
                                           Cursors& next) {
  const int32_t me = int32_t(threadIdx.x);
  int32_t my_row = -1, my_sample = -1;
  for (int32_t i = 0; i < n_lanes; i++) {
    const bool is_live = lanes[i].n > 0 && lanes[i].n <= a.rows_capacity - next.row;
    if (i == me && is_live) my_row = next.row, my_sample = lanes[i].is_sampled ? next.sample : -1;
    next.row += is_live ? lanes[i].n : 0;
    next.sample += is_live && lanes[i].is_sampled;
  }
  if (me >= n_lanes) return;
  lanes[me].first_row = my_row;
  as<int32_t>(a.lane_first_row)[first_lane + me] = my_row;
  if (my_row >= 0 && lanes[me].n_staged == 0) write_row(a, lanes[me], 0, lanes[me].pending_token);
  if (my_sample < 0) return;
  as<int32_t>(a.sample_row)[my_sample] = my_row + lanes[me].n - 1;
  as<int32_t>(a.sample_lane)[my_sample] = first_lane + me;
}
// A thread a lane, kThreads of them at a time; a warp a prompt.
__device__ void expand_lanes(const HeliosArgs_row_table& a) {
  HELIOS_SHARED(LaneRows, lanes, kThreads);
  const int32_t n_lanes = live_count(a.n_lanes, a.lanes_capacity), me = int32_t(threadIdx.x);
  Cursors next;
  for (int32_t first = 0; first < n_lanes; first += kThreads) {
    const int32_t n = n_lanes - first < kThreads ? n_lanes - first : kThreads;
    int64_t token = next.token;
    __syncthreads();  // the lanes may still be read from the last time
    if (me < n) lanes[me] = wanted_rows(a, first + me);
    __syncthreads();
    for_prompts(lanes, n, token, [&](LaneRows& lane, int64_t first_token) { check_tokens(a, lane, first_token); });
    __syncthreads();
    place_rows(a, lanes, n, first, next);
    __syncthreads();
    for_prompts(lanes, n, next.token, [&](const LaneRows& lane, int64_t first_token) {
      for (int32_t i = me % kWarpLanes; lane.first_row >= 0 && i < lane.n; i += kWarpLanes)
        write_row(a, lane, i, as<int32_t>(a.prompt_tokens)[first_token + i]);
    });
  }
  if (me != 0) return;
  int32_t* counts = as<int32_t>(a.counts);
  counts[HELIOS_COUNT_ROWS] = next.row;
  counts[HELIOS_COUNT_LANES] = n_lanes;
  counts[HELIOS_COUNT_SAMPLES] = next.sample;
  counts[HELIOS_COUNT_RESERVED] = 0;
}

__device__ void write_header(const HeliosArgs_commit& a, int32_t n_lanes) {
  const uint32_t* staged = as<uint32_t>(a.submission);
  uint32_t* header = as<uint32_t>(a.completion);  // words: the record need not be aligned to 8 bytes
  const uint32_t words[sizeof(HeliosCompletionHeader) / 4] = {staged[0], staged[1], staged[2], uint32_t(n_lanes),
                                                              staged[3], 0,         0,         0};
  for (int i = 0; i < int(sizeof words / 4); i++) header[i] = words[i];
}
// The keys and values of the lane's rows are in the cache now.
__device__ void advance(const HeliosArgs_commit& a, int32_t lane, HeliosRequestRow& request) {
  if (as<int32_t>(a.lane_source)[lane] == HELIOS_TOKENS_PROMPT) {
    const int64_t end = int64_t(as<int32_t>(a.lane_position)[lane]) + as<int32_t>(a.lane_query_length)[lane];
    request.consumed = int32_t(end < 0 ? 0 : end < INT32_MAX ? end : INT32_MAX);
    request.pending_token = -1;
  } else if (request.consumed < INT32_MAX) {
    request.consumed++;
  }
}
__device__ int32_t finish_after(const HeliosSamplingRow& sampling, const HeliosRequestRow& request, int32_t token) {
  const int32_t n_eos = clamp(sampling.n_eos, 0, HELIOS_MAX_EOS);
  for (int32_t i = 0; i < n_eos; i++)
    if (sampling.eos[i] == token) return HELIOS_FINISH_EOS;
  return request.emitted >= sampling.output_limit ? HELIOS_FINISH_LIMIT : HELIOS_FINISH_NONE;
}
__device__ void emit(const HeliosArgs_commit& a, int32_t slot, const HeliosSample& sample, HeliosRequestRow& request,
                     HeliosCompletionLane& record) {
  if (!in_range(sample.token, a.vocabulary)) return;
  const HeliosSamplingRow& sampling = as<HeliosSamplingRow>(a.sampling)[slot];
  request.pending_token = sample.token;
  if (request.emitted < INT32_MAX) request.emitted++;
  request.finish = finish_after(sampling, request, sample.token);
  if (sampling.flags & HELIOS_SAMPLING_PENALTIES) {
    uint32_t& word = as<uint32_t>(a.histogram)[int64_t(slot) * a.vocabulary + sample.token];
    if ((word & 0x7fffffffu) != 0x7fffffffu) word++;
  }
  record.emitted = 1;
  record.token = sample.token;
  record.logprob = sample.logprob;
  record.rank = sample.rank;
  record.n_candidates = clamp(sample.n_candidates, 0, HELIOS_MAX_CANDIDATES);
  for (int i = 0; i < HELIOS_MAX_CANDIDATES; i++) {
    record.candidate_token[i] = sample.candidate_token[i];
    record.candidate_logprob[i] = sample.candidate_logprob[i];
  }
}
// `sample` is the lane's own, or null.
__device__ void commit_lane(const HeliosArgs_commit& a, int32_t lane, const HeliosSample* sample) {
  const int32_t slot = as<int32_t>(a.lane_slot)[lane];
  const uint32_t generation = as<uint32_t>(a.lane_generation)[lane];
  HeliosRequestRow* request = in_range(slot, a.n_slots) ? as<HeliosRequestRow>(a.requests) + slot : nullptr;
  HeliosCompletionLane& record = *reinterpret_cast<HeliosCompletionLane*>(
      as<char>(a.completion) + sizeof(HeliosCompletionHeader) + int64_t(lane) * int64_t(sizeof(HeliosCompletionLane)));
  record = {};
  record.slot = slot;
  record.generation = request ? request->generation : generation;
  record.draft_cursor = record.reserved_model = record.token = -1;
  if (as<int32_t>(a.lane_first_row)[lane] >= 0 && is_current(request, generation)) {
    advance(a, lane, *request);
    if (sample) emit(a, slot, *sample, *request, record);
  }
  if (request) {
    record.consumed = request->consumed;
    record.finish = request->finish;
  }
}
// A thread owns the slots whose first lane is its own, and commits all lanes of such a slot in order.
__device__ void commit_lanes(const HeliosArgs_commit& a) {
  const int32_t n_lanes = live_count(a.n_lanes, a.lanes_capacity),
                n_samples = live_count(a.counts, HELIOS_COUNT_SAMPLES, a.lanes_capacity);
  const int32_t* slots = as<int32_t>(a.lane_slot);
  if (threadIdx.x == 0) write_header(a, n_lanes);
  for (int32_t first = int32_t(threadIdx.x); first < n_lanes; first += kThreads) {
    bool is_first = true;
    for (int32_t lane = 0; lane < first; lane++) is_first = is_first && slots[lane] != slots[first];
    int32_t next_sample = 0;
    for (int32_t lane = 0; is_first && lane < n_lanes; lane++) {
      const bool is_sampled = next_sample < n_samples && as<int32_t>(a.sample_lane)[next_sample] == lane;
      if (slots[lane] == slots[first])
        commit_lane(a, lane, is_sampled ? as<HeliosSample>(a.samples) + next_sample : nullptr);
      next_sample += is_sampled;
    }
  }
}

}  // namespace helios::cuda

HELIOS_CUDA_KERNEL(page_table_update, helios::cuda::kThreads, 1, helios::cuda::update_page_table(a))
HELIOS_CUDA_KERNEL(slot_init, helios::cuda::kThreads, a.lanes_capacity* helios::cuda::n_parts(a),
                   helios::cuda::init_slots(a))
HELIOS_CUDA_KERNEL(row_table, helios::cuda::kThreads, 1, helios::cuda::expand_lanes(a))
HELIOS_CUDA_KERNEL(commit, helios::cuda::kThreads, 1, helios::cuda::commit_lanes(a))
