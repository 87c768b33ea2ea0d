// The device's own book-keeping: page tables, request rows, the row table of a round and its commit. One task each: a
// few hundred numbers a round, about a microsecond (a histogram row of slot_init, 4 bytes a token of the vocabulary, is
// the one exception). kernels.h gives the meaning; what is decided here is only what happens to impossible input, which
// never leaves the buffers: an entry with an index out of range is skipped, a lane that cannot be expanded whole is
// dead (no rows, nothing emitted).
#include "host.h"
#include <string.h>

namespace helios {
namespace {

struct PageTableUpdate {
  using Args = HeliosArgs_page_table_update;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (a.updates_capacity <= 0 || a.n_slots <= 0 || a.pages_per_slot <= 0) return false;
    e.updates = Size(a.updates_capacity) * 8;
    e.n_updates = Size(4);
    e.page_table = Size(a.n_slots) * a.pages_per_slot * 4;
    return true;
  }
  static int32_t n_tasks(const Args& a, int32_t) { return live_count(a.n_updates, a.updates_capacity) > 0; }
  static void run(const Args& a, int32_t, int32_t) {
    const int32_t* update = as<int32_t>(a.updates);
    for (int32_t i = live_count(a.n_updates, a.updates_capacity); i > 0; i--, update += 2)
      if (in_range(update[0], int64_t(a.n_slots) * a.pages_per_slot)) as<int32_t>(a.page_table)[update[0]] = update[1];
  }
};

struct SlotInit {
  using Args = HeliosArgs_slot_init;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (a.lanes_capacity <= 0 || a.n_slots <= 0 || !is_width(a.vocabulary)) return false;
    const Size lanes(a.lanes_capacity), slots(a.n_slots), histogram_row = Size(a.vocabulary) * 4,
                                                          bias_row(int32_t(HELIOS_MAX_BIAS * 8));
    e.n_lanes = Size(4);
    e.lane_slot = e.lane_generation = e.lane_position = lanes * 4;
    e.staged_sampling = lanes * sizeof(HeliosSamplingRow);
    e.staged_bias = lanes * bias_row;
    e.staged_histogram = lanes * histogram_row;
    e.requests = slots * sizeof(HeliosRequestRow);
    e.sampling = slots * sizeof(HeliosSamplingRow);
    e.bias = slots * bias_row;
    e.histogram = slots * histogram_row;
    return true;
  }
  static int32_t n_tasks(const Args& a, int32_t) { return live_count(a.n_lanes, a.lanes_capacity) > 0; }
  static void run(const Args& a, int32_t, int32_t) {
    const int32_t n_lanes = live_count(a.n_lanes, a.lanes_capacity);
    for (int32_t i = 0; i < n_lanes; i++) {
      const int64_t slot = as<int32_t>(a.lane_slot)[i];
      if (!in_range(int32_t(slot), a.n_slots)) continue;
      const HeliosSamplingRow& staged = as<HeliosSamplingRow>(a.staged_sampling)[i];
      as<HeliosSamplingRow>(a.sampling)[slot] = staged;
      constexpr int64_t kBiasBytes = HELIOS_MAX_BIAS * 8;
      memcpy(as<char>(a.bias) + slot * kBiasBytes, as<char>(a.staged_bias) + i * kBiasBytes,
             size_t(clamp(staged.n_bias, 0, HELIOS_MAX_BIAS)) * 8);
      HeliosRequestRow request = {};
      request.pending_token = -1;
      request.consumed = as<int32_t>(a.lane_position)[i];
      request.generation = as<uint32_t>(a.lane_generation)[i];
      as<HeliosRequestRow>(a.requests)[slot] = request;
      if (staged.flags & HELIOS_SAMPLING_PENALTIES) {
        const int64_t width = a.vocabulary;
        memcpy(as<uint32_t>(a.histogram) + slot * width, as<uint32_t>(a.staged_histogram) + i * width,
               size_t(width) * 4);
      }
    }
  }
};

// The request row of a submitted lane, or null when the slot does not exist.
template <class Args>
auto* request_of(const Args& a, int32_t slot) {
  return in_range(slot, a.n_slots) ? as<HeliosRequestRow>(a.requests) + slot : nullptr;
}
bool is_current(const HeliosRequestRow* request, uint32_t generation) {
  return request && request->generation == generation && request->finish == HELIOS_FINISH_NONE;
}

struct RowTable {
  using Args = HeliosArgs_row_table;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (a.lanes_capacity <= 0 || a.rows_capacity <= 0 || a.n_slots <= 0 || a.n_positions <= 0 ||
        !is_width(a.vocabulary))
      return false;
    const Size lanes = Size(a.lanes_capacity) * 4, rows = Size(a.rows_capacity) * 4;
    e.n_lanes = Size(4);
    e.lane_slot = e.lane_generation = e.lane_source = e.lane_query_length = e.lane_position = e.lane_sample = lanes;
    e.prompt_tokens = rows;
    e.requests = Size(a.n_slots) * sizeof(HeliosRequestRow);
    e.counts = Size(16);
    e.row_token = e.row_position = e.row_slot = e.row_identity = rows;
    e.lane_first_row = e.sample_row = e.sample_lane = lanes;
    return true;
  }
  static int32_t n_tasks(const Args&, int32_t) { return 1; }

  // The rows that one lane asks for.
  struct Request {
    const int32_t* tokens;
    int32_t n, position;
  };
  // Writes the lane's rows from `first` on; false, and nothing written, when any of them is impossible.
  static bool expand(const Args& a, const Request& r, int32_t slot, int32_t first) {
    if (r.n <= 0 || r.n > a.rows_capacity - first || r.position < 0 || r.n > a.n_positions - r.position) return false;
    for (int32_t j = 0; j < r.n; j++)
      if (!in_range(r.tokens[j], a.vocabulary)) return false;
    for (int32_t j = 0; j < r.n; j++) {
      as<int32_t>(a.row_token)[first + j] = r.tokens[j];
      as<int32_t>(a.row_position)[first + j] = r.position + j;
      as<int32_t>(a.row_slot)[first + j] = slot;
      as<int32_t>(a.row_identity)[first + j] = first + j;
    }
    return true;
  }
  static void run(const Args& a, int32_t, int32_t) {
    const int32_t n_lanes = live_count(a.n_lanes, a.lanes_capacity);
    int32_t n_rows = 0, n_samples = 0;
    int64_t prompt_cursor = 0;
    for (int32_t i = 0; i < n_lanes; i++) {
      const int32_t slot = as<int32_t>(a.lane_slot)[i];
      const HeliosRequestRow* request = request_of(a, slot);
      Request wanted{nullptr, 0, 0};
      if (as<int32_t>(a.lane_source)[i] == HELIOS_TOKENS_PROMPT) {
        const int32_t length = as<int32_t>(a.lane_query_length)[i];
        const bool is_staged = length > 0 && prompt_cursor + length <= a.rows_capacity;
        wanted = {as<int32_t>(a.prompt_tokens) + (is_staged ? prompt_cursor : 0), is_staged ? length : 0,
                  as<int32_t>(a.lane_position)[i]};
        prompt_cursor += length > 0 ? length : 0;
      } else if (request) {
        wanted = {&request->pending_token, 1, request->consumed};
      }
      const bool is_live = is_current(request, as<uint32_t>(a.lane_generation)[i]) && expand(a, wanted, slot, n_rows);
      as<int32_t>(a.lane_first_row)[i] = is_live ? n_rows : -1;
      if (!is_live) continue;
      n_rows += wanted.n;
      if (as<int32_t>(a.lane_sample)[i] == 0) continue;
      as<int32_t>(a.sample_row)[n_samples] = n_rows - 1;
      as<int32_t>(a.sample_lane)[n_samples++] = i;
    }
    int32_t* counts = as<int32_t>(a.counts);
    counts[HELIOS_COUNT_ROWS] = n_rows;
    counts[HELIOS_COUNT_LANES] = n_lanes;
    counts[HELIOS_COUNT_SAMPLES] = n_samples;
    counts[HELIOS_COUNT_RESERVED] = 0;
  }
};

struct Commit {
  using Args = HeliosArgs_commit;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (a.lanes_capacity <= 0 || a.n_slots <= 0 || !is_width(a.vocabulary)) return false;
    const Size lanes(a.lanes_capacity);
    e.n_lanes = Size(4);
    e.lane_slot = e.lane_generation = e.lane_source = e.lane_query_length = e.lane_position = e.lane_sample =
        e.lane_first_row = lanes * 4;
    e.counts = Size(16);
    e.sample_lane = lanes * 4;
    e.samples = lanes * sizeof(HeliosSample);
    e.submission = Size(16);
    e.sampling = Size(a.n_slots) * sizeof(HeliosSamplingRow);
    e.requests = Size(a.n_slots) * sizeof(HeliosRequestRow);
    e.histogram = Size(a.n_slots) * a.vocabulary * 4;
    e.completion = Size(sizeof(HeliosCompletionHeader)) + lanes * sizeof(HeliosCompletionLane);
    return true;
  }
  static int32_t n_tasks(const Args&, int32_t) { return 1; }

  static void write_header(const Args& a, int32_t n_lanes) {
    const uint32_t* staged = as<uint32_t>(a.submission);
    HeliosCompletionHeader header = {};
    header.sequence = uint64_t(staged[1]) << 32 | staged[0];
    header.program = staged[2];
    header.n_lanes = uint32_t(n_lanes);
    header.frame = staged[3];
    memcpy(a.completion, &header, sizeof header);
  }
  // The keys and values of the lane's rows are in the cache now.
  static void advance(const Args& a, int32_t lane, HeliosRequestRow& request) {
    if (as<int32_t>(a.lane_source)[lane] == HELIOS_TOKENS_PROMPT) {
      const int64_t end = int64_t(as<int32_t>(a.lane_position)[lane]) + as<int32_t>(a.lane_query_length)[lane];
      request.consumed = int32_t(end < 0 ? 0 : end < INT32_MAX ? end : INT32_MAX);
      request.pending_token = -1;
    } else if (request.consumed < INT32_MAX) {
      request.consumed++;
    }
  }
  static int32_t finish_after(const HeliosSamplingRow& sampling, const HeliosRequestRow& request, int32_t token) {
    const int32_t n_eos = clamp(sampling.n_eos, 0, HELIOS_MAX_EOS);
    for (int32_t i = 0; i < n_eos; i++)
      if (sampling.eos[i] == token) return HELIOS_FINISH_EOS;
    return request.emitted >= sampling.output_limit ? HELIOS_FINISH_LIMIT : HELIOS_FINISH_NONE;
  }
  static void emit(const Args& a, int32_t slot, const HeliosSample& sample, HeliosRequestRow& request,
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
    memcpy(record.candidate_token, sample.candidate_token, sizeof record.candidate_token);
    memcpy(record.candidate_logprob, sample.candidate_logprob, sizeof record.candidate_logprob);
  }
  static void run(const Args& a, int32_t, int32_t) {
    const int32_t n_lanes = live_count(a.n_lanes, a.lanes_capacity),
                  n_samples = live_count(a.counts, HELIOS_COUNT_SAMPLES, a.lanes_capacity);
    write_header(a, n_lanes);
    int32_t next_sample = 0;
    for (int32_t i = 0; i < n_lanes; i++) {
      const int32_t slot = as<int32_t>(a.lane_slot)[i];
      HeliosRequestRow* request = request_of(a, slot);
      HeliosCompletionLane record = {};
      record.slot = slot;
      record.generation = request ? request->generation : as<uint32_t>(a.lane_generation)[i];
      record.draft_cursor = record.reserved_model = record.token = -1;
      const bool is_sampled = next_sample < n_samples && as<int32_t>(a.sample_lane)[next_sample] == i;
      const HeliosSample* sample = is_sampled ? as<HeliosSample>(a.samples) + next_sample++ : nullptr;
      if (as<int32_t>(a.lane_first_row)[i] >= 0 && is_current(request, as<uint32_t>(a.lane_generation)[i])) {
        advance(a, i, *request);
        if (sample) emit(a, slot, *sample, *request, record);
      }
      if (request) {
        record.consumed = request->consumed;
        record.finish = request->finish;
      }
      memcpy(as<char>(a.completion) + sizeof(HeliosCompletionHeader) + int64_t(i) * int64_t(sizeof record), &record,
             sizeof record);
    }
  }
};

}  // namespace

HELIOS_HOST_KERNEL(page_table_update, PageTableUpdate)
HELIOS_HOST_KERNEL(slot_init, SlotInit)
HELIOS_HOST_KERNEL(row_table, RowTable)
HELIOS_HOST_KERNEL(commit, Commit)

}  // namespace helios
