// y = W x for weights in groups of 16 output rows: one driver for every weight format and every output. It walks the groups
// (a gate group and its up group for the SiLU gate) and blocks of tokens, asks the format's product for the sums, and hands
// them to the output.
//
// A product provides
//   Rows(base, rows_capacity, n_in), the activations; kInputs (n_in is a multiple), rows_nbytes(rows_capacity, n_in),
//   group_nbytes(n_in), and n_groups_at_once(n_tokens) <= kG16Groups, which go together;
//   Product(n_tokens).compute(w, n_groups, x, first_token, n_tokens <= kG16Tokens, sums): sums[g][kG16Tokens][16] of the
//   consecutive groups at w. first_token is a multiple of 16.
// Bits: a sum depends on its own weights and its own input row only; never on the block of tokens, the task or the
// thread.
//
// Tasks: (token block, run of units), run fastest, so that a block's activations stay in the second cache while the
// weights stream by. A run of few tokens is about 40 KiB of weights: smaller ones lose bandwidth to task starts.
#pragma once
#include "bf16_rows.h"
#include "g16_block.h"

namespace helios {

constexpr int kG16Tokens = 256;  // of one block: 768 KiB of activations for 1,536 inputs
constexpr int kG16Groups = 4;

struct G16Blocks {
  int32_t n, size;
  explicit G16Blocks(int32_t n_rows)
      : n((n_rows + kG16Tokens - 1) / kG16Tokens), size(n ? ((n_rows + n - 1) / n + 15) & ~15 : 0) {}
};

// What the products of all g16k8 layouts share.
template <class Block>
struct G16Format {
  using Rows = Bf16Rows;
  static constexpr int kInputs = kG16Inputs;
  static Size rows_nbytes(int32_t rows_capacity, int32_t n_in) { return bf16_rows_nbytes(rows_capacity, n_in); }
  static int64_t group_nbytes(int32_t n_in) { return int64_t(n_in / kG16Inputs) * Block::kNbytes; }
};
template <class Block>
struct G16Product;

// What happens to the 16 sums of one token.
struct G16Store {
  static constexpr int kGroups = 1;
  static HELIOS_INLINE void put(float* y, const float* sums, const float*) { store(y, load<F16>(sums)); }
  static HELIOS_INLINE void put_one(float* y, float sum) { *y = sum; }
};
struct G16Add {
  static constexpr int kGroups = 1;
  static HELIOS_INLINE void put(float* y, const float* sums, const float*) {
    store(y, load<F16>(y) + load<F16>(sums));
  }
  static HELIOS_INLINE void put_one(float* y, float sum) { *y += sum; }
};
struct G16SiluGate {
  static constexpr int kGroups = 2;
  static HELIOS_INLINE void put(float* y, const float* gate, const float* up) {
    for (int i = 0; i < kG16Rows; i += 8) store(y + i, silu(load<F8>(gate + i)) * load<F8>(up + i));
  }
  static HELIOS_INLINE void put_one(float*, float) {}  // n_out is a multiple of the group
};

template <class Args, class Product, class Output>
struct LinearG16 {
  static constexpr int kGroups = Output::kGroups;  // of one unit of work

  static bool extents(const Args& a, Extents<Args>& e) {
    if (!is_width(a.n_in) || a.n_in % Product::kInputs || !is_width(a.n_out) || (kGroups > 1 && a.n_out % kG16Rows) ||
        a.rows_capacity <= 0 || a.y_stride < a.n_out)
      return false;
    e.n_rows = Size(4);
    e.x = Product::rows_nbytes(a.rows_capacity, a.n_in);
    e.weight = divide_up(Size(a.n_out), kG16Rows) * kGroups * Product::group_nbytes(a.n_in);
    e.y = strided(a.rows_capacity, a.y_stride, a.n_out) * 4;
    return true;
  }

  static int32_t n_units_of(const Args& a) { return (a.n_out + kG16Rows - 1) / kG16Rows; }

  static int32_t n_tasks(const Args& a, int32_t n_threads) {
    const int32_t n_rows = live_count(a.n_rows, a.rows_capacity);
    if (n_rows == 0) return 0;
    const int32_t n_units = n_units_of(a), n_blocks = G16Blocks(n_rows).n;
    const int64_t unit_nbytes = Product::group_nbytes(a.n_in) * kGroups;
    const int32_t step = units_a_step(n_rows), n_steps = (n_units + step - 1) / step;
    const int32_t usual = step > 1 ? 1 : int32_t(40960 / unit_nbytes);
    const int32_t fair = int32_t(int64_t(n_steps) * n_blocks / (4 * int64_t(n_threads)));
    const int32_t steps_a_run = clamp(fair < usual ? fair : usual, 1, n_steps);
    int32_t n_runs = (n_steps + steps_a_run - 1) / steps_a_run;
    if (n_runs % n_threads && n_runs + n_threads <= n_steps)
      n_runs += n_threads - n_runs % n_threads;  // no thread ends a run short
    return n_runs * n_blocks;
  }
  // Runs consist of whole steps: the units that many tokens take at once.
  static int32_t units_a_step(int32_t n_rows) {
    const int32_t n_groups = Product::n_groups_at_once(n_rows);
    return n_groups > kGroups ? n_groups / kGroups : 1;
  }

  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const int32_t n_rows = live_count(a.n_rows, a.rows_capacity);
    const G16Blocks blocks(n_rows);
    if (blocks.n == 0 || n_tasks < blocks.n) return;
    const int32_t n_runs = n_tasks / blocks.n, first_token = task / n_runs * blocks.size;
    const int32_t n_tokens = n_rows - first_token < blocks.size ? n_rows - first_token : blocks.size;
    if (n_tokens <= 0) return;
    const int32_t n_units = n_units_of(a), step = units_a_step(n_rows);
    const Span steps = part_of((n_units + step - 1) / step, task % n_runs, n_runs);
    const typename Product::Rows x(a.x, a.rows_capacity, a.n_in);
    const int64_t unit_nbytes = Product::group_nbytes(a.n_in) * kGroups;
    const Product product(n_tokens);
    alignas(64) float sums[kG16Groups][kG16Tokens * kG16Rows];
    for (int32_t unit = steps.begin * step; unit < steps.end * step && unit < n_units; unit += step) {
      const int32_t n = n_units - unit < step ? n_units - unit : step;
      product.compute(as<uint8_t>(a.weight) + unit * unit_nbytes, n * kGroups, x, first_token, n_tokens, sums[0]);
      for (int32_t i = 0; i < n; i++)
        put_unit(a, unit + i, first_token, n_tokens, sums[i * kGroups], sums[i * kGroups + kGroups - 1]);
    }
  }

  static void put_unit(const Args& a, int32_t unit, int32_t first_token, int32_t n_tokens, const float* sums,
                       const float* last) {
    float* y = as<float>(a.y) + int64_t(first_token) * a.y_stride + int64_t(unit) * kG16Rows;
    const int32_t width = a.n_out - unit * kG16Rows;
    for (int32_t t = 0; t < n_tokens; t++, y += a.y_stride, sums += kG16Rows, last += kG16Rows) {
      if (width >= kG16Rows) {
        Output::put(y, sums, last);
      } else {
        for (int32_t r = 0; r < width; r++) Output::put_one(y + r, sums[r]);
      }
    }
  }
};

}  // namespace helios
