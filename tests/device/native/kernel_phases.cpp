// Runs the host kernels of a layer in the pool, to be run under ThreadSanitizer: two tasks of one launch that touch the
// same bytes, one of them writing, show as a race. Numbers are whatever the buffers hold; what matters is who touches what.
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "cudart/pool.h"
#include "host/host.h"

namespace {

using namespace helios;

constexpr int32_t kHidden = 192, kHeads = 6, kKvHeads = 2, kHeadDim = 32, kInner = 320, kVocabulary = 500, kLanes = 8;
constexpr int32_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim, kRows = 200, kPositions = 512, kPages = kPositions / 16;

template <class T = float>
struct Buffer {
  std::vector<T> values;
  explicit Buffer(size_t n, T value = T{}) : values(n, value) {}
  T* at() { return values.data(); }
};

struct Layer {
  Buffer<int32_t> counts{4}, positions{kRows}, slots{kRows}, identity{kRows}, table{kLanes * kPages}, masked{kLanes};
  Buffer<> x{kRows * kHidden}, norm{kHidden, 1.f}, qkv{kRows * kQkv}, heads{kRows * kHidden}, inner{kRows * kInner};
  Buffer<> rope{kPositions * kHeadDim}, partials{kRows * kHeads * 2 * (kHeadDim + 2)}, logits{kLanes * kVocabulary};
  Buffer<uint8_t> quantized{kRows * kInner * 3}, weight{2 * kInner * kHidden * 2}, cache{kLanes * kPages * kKvHeads * 64 * kHeadDim};
  Buffer<HeliosSamplingRow> sampling{kLanes};
  Buffer<HeliosSample> samples{kLanes};
  Buffer<uint8_t> bias{kLanes * HELIOS_MAX_BIAS * 8};
  Buffer<uint32_t> histogram{kLanes * kVocabulary}, mask{kLanes * (kVocabulary + 31) / 32};

  // `n_rows` positions of one slot, or of a slot each.
  void set_rows(int32_t n_rows, bool is_prompt) {
    counts.values = {n_rows, is_prompt ? 1 : n_rows, is_prompt ? 1 : n_rows, 0};
    for (int32_t i = 0; i < kRows; i++) {
      positions.values[i] = is_prompt ? i : 300 + i;
      slots.values[i] = is_prompt ? 0 : i;
      identity.values[i] = i;
    }
    for (int32_t i = 0; i < kLanes * kPages; i++) table.values[i] = i;
    for (HeliosSamplingRow& row : sampling.values) row.temperature = 1, row.top_p = 0.9f;
  }
};

template <class Args>
void run(Pool& pool, int n_threads, const HostKernel& kernel, const Args& args) {
  pool.run_phase(kernel.run, &args, kernel.n_tasks(&args, n_threads));
}

template <class Args>
Args linear_args(Layer& l, float* y, int32_t n_in, int32_t n_out) {
  Args a{};
  a.n_rows = l.counts.at(), a.x = l.quantized.at(), a.weight = l.weight.at(), a.y = y;
  a.rows_capacity = kRows, a.n_in = n_in, a.n_out = n_out, a.y_stride = n_out;
  return a;
}

template <class Args>
Args paged_args(Layer& l) {
  Args a{};
  a.counts = l.counts.at(), a.row_position = l.positions.at(), a.row_slot = l.slots.at(), a.page_table = l.table.at();
  a.qkv = l.qkv.at(), a.kv = l.cache.at();
  a.rows_capacity = kRows, a.n_slots = kLanes, a.pages_per_slot = kPages, a.n_pages = kLanes * kPages;
  a.page_stride = kKvHeads * 64 * kHeadDim, a.n_heads = kHeads, a.n_kv_heads = kKvHeads, a.head_dim = kHeadDim;
  return a;
}

void run_layer(Pool& pool, int n_threads, Layer& l) {
  HeliosArgs_rms_norm_q8 norm{};
  norm.n_rows = l.counts.at(), norm.rows = l.identity.at(), norm.x = l.x.at(), norm.weight = l.norm.at(), norm.y = l.quantized.at();
  norm.rows_capacity = norm.x_rows = kRows, norm.width = kHidden, norm.epsilon = 1e-5f;
  run(pool, n_threads, host_rms_norm_q8, norm);
  run(pool, n_threads, host_linear_q4_1, linear_args<HeliosArgs_linear_q4_1>(l, l.qkv.at(), kHidden, kQkv));
  auto rope = paged_args<HeliosArgs_rope_kv_half>(l);
  rope.rope = l.rope.at(), rope.n_rot = kHeadDim, rope.n_positions = kPositions, rope.q_scale = 1;
  run(pool, n_threads, host_rope_kv_half, rope);
  auto attention = paged_args<HeliosArgs_attention>(l);
  attention.out = l.heads.at();
  run(pool, n_threads, host_attention, attention);
  auto split = paged_args<HeliosArgs_attention_split>(l);
  split.partials = l.partials.at(), split.max_segments = 2;
  run(pool, n_threads, host_attention_split, split);
  HeliosArgs_attention_merge merge{};
  merge.counts = l.counts.at(), merge.row_position = l.positions.at(), merge.partials = l.partials.at(), merge.out = l.heads.at();
  merge.rows_capacity = kRows, merge.n_heads = kHeads, merge.head_dim = kHeadDim, merge.max_segments = 2;
  run(pool, n_threads, host_attention_merge, merge);
  HeliosArgs_quantize_q8 quantize{};
  quantize.n_rows = l.counts.at(), quantize.x = l.heads.at(), quantize.y = l.quantized.at();
  quantize.rows_capacity = kRows, quantize.width = kHidden;
  run(pool, n_threads, host_quantize_q8, quantize);
  run(pool, n_threads, host_linear_add_q8_0, linear_args<HeliosArgs_linear_add_q8_0>(l, l.x.at(), kHidden, kHidden));
  run(pool, n_threads, host_linear_silu_gate_q4_1, linear_args<HeliosArgs_linear_silu_gate_q4_1>(l, l.inner.at(), kHidden, kInner));
  if (l.counts.values[2] > 1) {  // a head for every lane
    run(pool, n_threads, host_linear_q8_0, linear_args<HeliosArgs_linear_q8_0>(l, l.logits.at(), kHidden, kVocabulary));
    HeliosArgs_sample sample{};
    sample.counts = l.counts.at(), sample.sample_row = sample.sample_lane = l.identity.at(), sample.lane_masked = l.masked.at();
    sample.row_position = l.positions.at(), sample.row_slot = l.slots.at(), sample.mask = l.mask.at(), sample.sampling = l.sampling.at();
    sample.bias = l.bias.at(), sample.histogram = l.histogram.at(), sample.logits = l.logits.at(), sample.samples = l.samples.at();
    sample.rows_capacity = kRows, sample.lanes_capacity = sample.n_slots = kLanes, sample.vocabulary = kVocabulary;
    run(pool, n_threads, host_sample, sample);
  }
}

}  // namespace

int main() {
  constexpr int n_threads = 4;
  Pool pool(n_threads);
  Layer layer;
  for (int repeat = 0; repeat < 20; repeat++) {
    for (int32_t n_rows : {1, 3, kLanes}) layer.set_rows(n_rows, false), run_layer(pool, n_threads, layer);
    for (int32_t n_rows : {5, 70, kRows}) layer.set_rows(n_rows, true), run_layer(pool, n_threads, layer);
  }
  puts("ok");
}
