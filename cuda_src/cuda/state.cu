// The device's own book-keeping: page tables, request rows, the row table of a round and its commit. A few hundred
// numbers a round, in one block each. The host kernels (host/state.cpp) walk their lists in order, and so the outcome
// here is that of the same order: whoever writes a place walks the list to find what comes last.
#include "kernel.h"

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

__device__ __forceinline__ void copy_words(void* to, const void* from, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += kThreads) as<uint32_t>(to)[i] = as<uint32_t>(from)[i];
}
// One lane's slot. A slot that a later lane sets up too is left to that one.
__device__ void init_slot(const HeliosArgs_slot_init& a, int32_t lane, int32_t n_lanes) {
  const int32_t* slots = as<int32_t>(a.lane_slot);
  const int64_t slot = slots[lane];
  bool is_mine = in_range(int32_t(slot), a.n_slots);
  for (int32_t other = lane + 1; other < n_lanes; other++) is_mine = is_mine && slots[other] != slot;
  if (!is_mine) return;
  constexpr int64_t kRowWords = sizeof(HeliosSamplingRow) / 4, kBiasWords = 2 * HELIOS_MAX_BIAS;
  const HeliosSamplingRow& staged = as<HeliosSamplingRow>(a.staged_sampling)[lane];
  copy_words(as<HeliosSamplingRow>(a.sampling) + slot, &staged, kRowWords);
  copy_words(as<uint32_t>(a.bias) + slot * kBiasWords, as<uint32_t>(a.staged_bias) + lane * kBiasWords,
             2 * clamp(staged.n_bias, 0, HELIOS_MAX_BIAS));
  if (staged.flags & HELIOS_SAMPLING_PENALTIES)
    copy_words(as<uint32_t>(a.histogram) + slot * a.vocabulary,
               as<uint32_t>(a.staged_histogram) + int64_t(lane) * a.vocabulary, a.vocabulary);
  if (threadIdx.x != 0) return;
  HeliosRequestRow request = {};
  request.pending_token = -1;
  request.consumed = as<int32_t>(a.lane_position)[lane];
  request.generation = as<uint32_t>(a.lane_generation)[lane];
  as<HeliosRequestRow>(a.requests)[slot] = request;
}
__device__ void init_slots(const HeliosArgs_slot_init& a) {
  const int32_t n_lanes = live_count(a.n_lanes, a.lanes_capacity);
  for (int32_t lane = int32_t(blockIdx.x); lane < n_lanes; lane += int32_t(gridDim.x)) init_slot(a, lane, n_lanes);
}

__device__ __forceinline__ bool is_current(const HeliosRequestRow* request, uint32_t generation) {
  return request && request->generation == generation && request->finish == HELIOS_FINISH_NONE;
}

// The rows that one lane asks for.
struct WantedRows {
  const int32_t* tokens;
  int32_t n, position;
};
__device__ __forceinline__ bool are_possible(const HeliosArgs_row_table& a, const WantedRows& wanted, int32_t first) {
  return wanted.n > 0 && wanted.n <= a.rows_capacity - first && wanted.position >= 0 &&
         wanted.n <= a.n_positions - wanted.position;
}
// All threads walk the lanes with the same numbers; a lane's tokens are checked and its rows written side by side.
__device__ void expand_lanes(const HeliosArgs_row_table& a) {
  const int32_t n_lanes = live_count(a.n_lanes, a.lanes_capacity), me = int32_t(threadIdx.x);
  int32_t n_rows = 0, n_samples = 0;
  int64_t prompt_cursor = 0;
  for (int32_t i = 0; i < n_lanes; i++) {
    const int32_t slot = as<int32_t>(a.lane_slot)[i];
    const HeliosRequestRow* request = in_range(slot, a.n_slots) ? as<HeliosRequestRow>(a.requests) + slot : nullptr;
    WantedRows wanted{nullptr, 0, 0};
    if (as<int32_t>(a.lane_source)[i] == HELIOS_TOKENS_PROMPT) {
      const int32_t length = as<int32_t>(a.lane_query_length)[i];
      const bool is_staged = length > 0 && prompt_cursor + length <= a.rows_capacity;
      wanted = {as<int32_t>(a.prompt_tokens) + (is_staged ? prompt_cursor : 0), is_staged ? length : 0,
                as<int32_t>(a.lane_position)[i]};
      prompt_cursor += length > 0 ? length : 0;
    } else if (request) {
      wanted = {&request->pending_token, 1, request->consumed};
    }
    bool is_live = is_current(request, as<uint32_t>(a.lane_generation)[i]) && are_possible(a, wanted, n_rows);
    if (is_live) {
      bool are_tokens = true;
      for (int32_t j = me; j < wanted.n; j += kThreads)
        are_tokens = are_tokens && in_range(wanted.tokens[j], a.vocabulary);
      is_live = __syncthreads_and(are_tokens);
    }
    for (int32_t j = me; is_live && j < wanted.n; j += kThreads) {
      as<int32_t>(a.row_token)[n_rows + j] = wanted.tokens[j];
      as<int32_t>(a.row_position)[n_rows + j] = wanted.position + j;
      as<int32_t>(a.row_slot)[n_rows + j] = slot;
      as<int32_t>(a.row_identity)[n_rows + j] = n_rows + j;
    }
    if (me == 0) as<int32_t>(a.lane_first_row)[i] = is_live ? n_rows : -1;
    if (!is_live) continue;
    n_rows += wanted.n;
    if (as<int32_t>(a.lane_sample)[i] == 0) continue;
    if (me == 0) {
      as<int32_t>(a.sample_row)[n_samples] = n_rows - 1;
      as<int32_t>(a.sample_lane)[n_samples] = i;
    }
    n_samples++;
  }
  if (me != 0) return;
  int32_t* counts = as<int32_t>(a.counts);
  counts[HELIOS_COUNT_ROWS] = n_rows;
  counts[HELIOS_COUNT_LANES] = n_lanes;
  counts[HELIOS_COUNT_SAMPLES] = n_samples;
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
HELIOS_CUDA_KERNEL(slot_init, helios::cuda::kThreads, a.lanes_capacity, helios::cuda::init_slots(a))
HELIOS_CUDA_KERNEL(row_table, helios::cuda::kThreads, 1, helios::cuda::expand_lanes(a))
HELIOS_CUDA_KERNEL(commit, helios::cuda::kThreads, 1, helios::cuda::commit_lanes(a))
