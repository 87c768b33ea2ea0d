// y = W x for packed rows, one driver for every weight format and every output: it walks groups of 8 output rows and
// blocks of tokens, asks the format for the sums, and hands them to the output.
//
// A format provides
//   kInputs (n_in is a multiple), group_nbytes(n_in), input_nbytes(rows_capacity, n_in), Input(args, n_rows), kGroups and
//   kSweepGroups (that go together for up to kFewTokens and for more), kTaskScale, and compute<G>(w, input, first_token,
//   n_tokens <= kTokens, sums): sums[t][8*G] for G consecutive groups at w.
// Bits: a sum depends on its own weights and its own input row only; never on kTokens, the tile, the task or the
// thread.
//
// Tasks: (token block, run of groups), run fastest, so that a block's activations stay in the second cache while the
// weights stream by. Runs are as measured: 8 groups for few tokens (smaller ones lose bandwidth to task starts), 4
// up to 32, then 2, but never a part of what goes together; fewer when threads are many.
#pragma once
#include "host.h"
#include "vec.h"

namespace helios {

constexpr int kGroup = 8;  // output rows
constexpr int kTokens =
    64;  // tokens of one block: sums and activations of 32 inputs stay in the first cache, of all inputs in the second

struct TokenBlocks {
  int32_t n, size;
  explicit TokenBlocks(int32_t n_rows)
      : n((n_rows + kTokens - 1) / kTokens), size(n ? ((n_rows + n - 1) / n + 3) & ~3 : 0) {}
};

// The sums of one group inside `compute`'s result: token t at sums + t * stride.
struct Sums {
  const float* at;
  int stride;
  HELIOS_INLINE F8 of(int32_t t) const { return load<F8>(at + t * stride); }
};

template <class Args, class Format>
struct LinearBase {
  static bool common_extents(const Args& a, Extents<Args>& e, int groups_a_unit) {
    if (!is_width(a.n_in) || a.n_in % Format::kInputs || !is_width(a.n_out) || a.rows_capacity <= 0 ||
        a.y_stride < a.n_out)
      return false;
    e.n_rows = Size(4);
    e.x = Format::input_nbytes(a.rows_capacity, a.n_in);
    e.weight = divide_up(Size(a.n_out), kGroup) * groups_a_unit * Format::group_nbytes(a.n_in);
    e.y = strided(a.rows_capacity, a.y_stride, a.n_out) * 4;
    return true;
  }
  static int32_t n_tasks_of(const Args& a, int32_t n_threads, int groups_a_unit) {
    const int32_t n_rows = live_count(a.n_rows, a.rows_capacity);
    if (n_rows == 0) return 0;
    const int32_t n_units = (a.n_out + kGroup - 1) / kGroup, n_blocks = TokenBlocks(n_rows).n;
    const int32_t usual = (n_rows <= Format::kFewTokens ? 8 : n_rows <= 32 ? 4 : 2) * Format::kTaskScale;
    const int32_t fair = int32_t(int64_t(n_units) * groups_a_unit * n_blocks / (4 * int64_t(n_threads)));
    const int32_t step = units_a_step(n_rows, groups_a_unit), n_steps = (n_units + step - 1) / step;
    const int32_t steps_a_run = clamp(clamp(fair, 1, usual) / groups_a_unit / step, 1, n_steps);
    int32_t n_runs = (n_steps + steps_a_run - 1) / steps_a_run;
    if (n_runs % n_threads && n_runs + n_threads <= n_steps)
      n_runs += n_threads - n_runs % n_threads;  // no thread ends a run short
    return n_runs * n_blocks;
  }
  // Runs consist of whole steps: the units that go together.
  static int32_t units_a_step(int32_t n_rows, int groups_a_unit) {
    const int32_t groups = n_rows > Format::kFewTokens ? Format::kSweepGroups : Format::kGroups;
    return groups > groups_a_unit ? groups / groups_a_unit : 1;
  }
  // f(first unit, end unit, first token, n tokens)
  template <class F>
  static HELIOS_INLINE void for_task(const Args& a, int32_t task, int32_t n_tasks, int groups_a_unit, F&& f) {
    const int32_t n_rows = live_count(a.n_rows, a.rows_capacity);
    const TokenBlocks blocks(n_rows);
    if (blocks.n == 0 || n_tasks < blocks.n) return;
    const int32_t n_runs = n_tasks / blocks.n, first_token = task / n_runs * blocks.size;
    const int32_t n_units = (a.n_out + kGroup - 1) / kGroup, step = units_a_step(n_rows, groups_a_unit);
    const Span steps = part_of((n_units + step - 1) / step, task % n_runs, n_runs);
    const Span units{steps.begin * step, steps.end * step < n_units ? steps.end * step : n_units};
    const int32_t n_tokens = n_rows - first_token < blocks.size ? n_rows - first_token : blocks.size;
    if (n_tokens > 0) f(units, first_token, n_tokens);
  }
};

// Outputs: what happens to the 8 sums of one token of one group.
struct StoreSums {
  static HELIOS_INLINE void put(float* y, F8 sums) { store(y, sums); }
  static HELIOS_INLINE void put_one(float* y, float sum) { *y = sum; }
};
struct AddSums {
  static HELIOS_INLINE void put(float* y, F8 sums) { store(y, load<F8>(y) + sums); }
  static HELIOS_INLINE void put_one(float* y, float sum) { *y += sum; }
};

template <class Args, class Format, class Output>
struct Linear : LinearBase<Args, Format> {
  using Base = LinearBase<Args, Format>;
  static bool extents(const Args& a, Extents<Args>& e) { return Base::common_extents(a, e, 1); }
  static int32_t n_tasks(const Args& a, int32_t n_threads) { return Base::n_tasks_of(a, n_threads, 1); }

  static void put_group(const Args& a, int32_t group, int32_t first_token, int32_t n_tokens, Sums sums) {
    float* y = as<float>(a.y) + int64_t(first_token) * a.y_stride + int64_t(group) * kGroup;
    const int32_t width = a.n_out - group * kGroup;
    for (int32_t t = 0; t < n_tokens; t++, y += a.y_stride) {
      if (width >= kGroup) {
        Output::put(y, sums.of(t));
      } else {
        for (int32_t r = 0; r < width; r++) Output::put_one(y + r, sums.at[t * sums.stride + r]);
      }
    }
  }
  // The groups, G at a time as far as they go; returns the first that is left.
  template <int G>
  static int32_t put_groups(const Args& a, const typename Format::Input& input, Span groups, int32_t first_token,
                            int32_t n_tokens) {
    const int64_t group_nbytes = int64_t(Format::group_nbytes(a.n_in).n);
    alignas(64) float sums[kTokens * kGroup * G];
    int32_t g = groups.begin;
    for (; g + G <= groups.end; g += G) {
      Format::template compute<G>(as<uint8_t>(a.weight) + g * group_nbytes, input, first_token, n_tokens, sums);
      for (int i = 0; i < G; i++) put_group(a, g + i, first_token, n_tokens, {sums + kGroup * i, kGroup * G});
    }
    return g;
  }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const typename Format::Input input(a.x, live_count(a.n_rows, a.rows_capacity), a.rows_capacity, a.n_in);
    Base::for_task(a, task, n_tasks, 1, [&](Span groups, int32_t first_token, int32_t n_tokens) {
      if (Format::kSweepGroups > Format::kGroups && n_tokens > Format::kFewTokens)
        groups.begin = put_groups<Format::kSweepGroups>(a, input, groups, first_token, n_tokens);
      groups.begin = put_groups<Format::kGroups>(a, input, groups, first_token, n_tokens);
      put_groups<1>(a, input, groups, first_token, n_tokens);
    });
  }
};

// Gate and up interleaved by groups; the unit of work is the pair.
template <class Args, class Format>
struct LinearSiluGate : LinearBase<Args, Format> {
  using Base = LinearBase<Args, Format>;
  static bool extents(const Args& a, Extents<Args>& e) {
    return a.n_out % kGroup == 0 && Base::common_extents(a, e, 2);
  }
  static int32_t n_tasks(const Args& a, int32_t n_threads) { return Base::n_tasks_of(a, n_threads, 2); }

  // The pairs, as many at a time as G groups hold, as far as they go; returns the first that is left.
  template <int G>
  static int32_t put_pairs(const Args& a, const typename Format::Input& input, Span pairs, int32_t first_token,
                           int32_t n_tokens) {
    constexpr int kPairs = G == 1 ? 1 : G / 2, kStride = G * kGroup, kUp = G == 1 ? kTokens * kGroup : kGroup;
    const int64_t group_nbytes = int64_t(Format::group_nbytes(a.n_in).n);
    alignas(64) float sums[2 * kPairs * kTokens * kGroup];
    int32_t pair = pairs.begin;
    for (; pair + kPairs <= pairs.end; pair += kPairs) {
      const uint8_t* w = as<uint8_t>(a.weight) + 2 * pair * group_nbytes;
      Format::template compute<G>(w, input, first_token, n_tokens, sums);
      if constexpr (G == 1) Format::template compute<1>(w + group_nbytes, input, first_token, n_tokens, sums + kUp);
      for (int i = 0; i < kPairs; i++)
        put_pair(a, pair + i, first_token, n_tokens, {sums + 2 * kGroup * i, kStride},
                 {sums + 2 * kGroup * i + kUp, kStride});
    }
    return pair;
  }
  static void put_pair(const Args& a, int32_t pair, int32_t first_token, int32_t n_tokens, Sums gate, Sums up) {
    float* y = as<float>(a.y) + int64_t(first_token) * a.y_stride + int64_t(pair) * kGroup;
    for (int32_t t = 0; t < n_tokens; t++, y += a.y_stride) store(y, silu(gate.of(t)) * up.of(t));
  }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    constexpr int kTogether = Format::kGroups >= 2 ? 2 : 1;
    const typename Format::Input input(a.x, live_count(a.n_rows, a.rows_capacity), a.rows_capacity, a.n_in);
    Base::for_task(a, task, n_tasks, 2, [&](Span pairs, int32_t first_token, int32_t n_tokens) {
      if (Format::kSweepGroups > kTogether && n_tokens > Format::kFewTokens)
        pairs.begin = put_pairs<Format::kSweepGroups>(a, input, pairs, first_token, n_tokens);
      put_pairs<kTogether>(a, input, pairs, first_token, n_tokens);
    });
  }
};

// The three linear kernels of one format.
#define HELIOS_LINEAR_KERNELS(suffix, Format)                                                      \
  HELIOS_HOST_KERNEL(linear_##suffix, Linear<HeliosArgs_linear_##suffix, Format, StoreSums>)       \
  HELIOS_HOST_KERNEL(linear_add_##suffix, Linear<HeliosArgs_linear_add_##suffix, Format, AddSums>) \
  HELIOS_HOST_KERNEL(linear_silu_gate_##suffix, LinearSiluGate<HeliosArgs_linear_silu_gate_##suffix, Format>)

}  // namespace helios
