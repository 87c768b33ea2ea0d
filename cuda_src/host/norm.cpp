// RMS norm (to float rows, q8, q12 or bf16 rows), and float rows quantised or rounded.
//
//   y = x / sqrt(mean(x^2) + epsilon) * weight;  the other rows as in q8_rows.h, q12_rows.h and bf16_rows.h
// The sum of squares runs in four accumulators of 8 lanes over blocks of 32, then 8, then single elements: an order
// that depends on the width alone. Bound: reading x once (it is in the cache of whoever wrote it); 576 elements take
// about 150 ns. A row index outside x leaves its output row as it is. A NaN stays in its own row.
#include "bf16_rows.h"
#include "host.h"
#include "q12_rows.h"
#include "q8_rows.h"
#include "vec.h"

namespace helios {
namespace {

float sum_of_squares(const float* x, int32_t n) {
  F8 acc[4] = {splat<F8>(0.f), splat<F8>(0.f), splat<F8>(0.f), splat<F8>(0.f)};
  int32_t i = 0;
  for (; i + 32 <= n; i += 32)
    for (int j = 0; j < 4; j++) {
      const F8 v = load<F8>(x + i + 8 * j);
      acc[j] = fma(v, v, acc[j]);
    }
  for (; i + 8 <= n; i += 8) {
    const F8 v = load<F8>(x + i);
    acc[0] = fma(v, v, acc[0]);
  }
  float sum = sum_lanes((acc[0] + acc[1]) + (acc[2] + acc[3]));
  for (; i < n; i++) sum = fma(x[i], x[i], sum);
  return sum;
}

// y[0..n) for elements [from, from + n) of a row.
HELIOS_INLINE void normalise(const float* x, const float* weight, float scale, int32_t n, float* y) {
  int32_t i = 0;
  for (; i + 8 <= n; i += 8) store(y + i, load<F8>(x + i) * splat<F8>(scale) * load<F8>(weight + i));
  for (; i < n; i++) y[i] = x[i] * scale * weight[i];
}

// What rows are written as, `kPart` numbers at a time (the last part of a row may be shorter); a width is a multiple of kInputs.
// put takes the n floats of a part.
struct ToQ8 {
  static constexpr int kPart = kBlock, kInputs = kBlock;
  static Size nbytes(int32_t rows_capacity, int32_t width) { return q8_rows_nbytes(rows_capacity, width); }
  static HELIOS_INLINE void put(void* y, int32_t rows_capacity, int32_t n_rows, int32_t row, int32_t part, const float* x,
                                int32_t, int32_t width) {
    store_q8_block(y, rows_capacity, n_rows, row, part, x, width);
  }
};
struct ToQ12 {
  static constexpr int kPart = kQ12Group, kInputs = kQ12Depth;
  static Size nbytes(int32_t rows_capacity, int32_t width) { return q12_rows_nbytes(rows_capacity, width); }
  static HELIOS_INLINE void put(void* y, int32_t rows_capacity, int32_t, int32_t row, int32_t part, const float* x, int32_t n,
                                int32_t width) {
    store_q12_group(y, rows_capacity, row, part, x, n, width);
  }
};
struct ToBf16 {
  static constexpr int kPart = kBf16Block, kInputs = kBf16Block;
  static Size nbytes(int32_t rows_capacity, int32_t width) { return bf16_rows_nbytes(rows_capacity, width); }
  static HELIOS_INLINE void put(void* y, int32_t rows_capacity, int32_t, int32_t row, int32_t part, const float* x, int32_t,
                                int32_t width) {
    store_bf16_block(y, rows_capacity, row, part, x, width);
  }
};

// f(part, its first number, how many it has) for the parts of a row.
template <class To, class F>
HELIOS_INLINE void for_parts(int32_t width, F&& f) {
  for (int32_t part = 0, at = 0; at < width; part++, at += To::kPart)
    f(part, at, width - at < To::kPart ? width - at : To::kPart);
}

template <class Args>
bool norm_extents(const Args& a, Extents<Args>& e, Size y_nbytes) {
  if (a.rows_capacity <= 0 || a.x_rows <= 0 || !is_width(a.width)) return false;
  e.n_rows = Size(4);
  e.rows = Size(a.rows_capacity) * 4;
  e.x = Size(a.x_rows) * a.width * 4;
  e.weight = Size(a.width) * 4;
  e.y = y_nbytes;
  return true;
}

// f(row of y, row of x, scale) for the task's rows.
template <class Args, class F>
HELIOS_INLINE void for_norm_rows(const Args& a, int32_t task, int32_t n_tasks, F&& f) {
  const Span rows = part_of(live_count(a.n_rows, a.rows_capacity), task, n_tasks);
  for (int32_t i = rows.begin; i < rows.end; i++) {
    const int32_t row = as<int32_t>(a.rows)[i];
    if (!in_range(row, a.x_rows)) continue;
    const float* x = as<float>(a.x) + int64_t(row) * a.width;
    f(i, x, 1.f / __builtin_sqrtf(sum_of_squares(x, a.width) / float(a.width) + a.epsilon));
  }
}

struct RmsNorm {
  using Args = HeliosArgs_rms_norm;
  static bool extents(const Args& a, Extents<Args>& e) {
    return norm_extents(a, e, Size(a.rows_capacity) * a.width * 4);
  }
  static int32_t n_tasks(const Args& a, int32_t) { return row_tasks(live_count(a.n_rows, a.rows_capacity), a.width); }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    for_norm_rows(a, task, n_tasks, [&](int32_t i, const float* x, float scale) {
      normalise(x, as<float>(a.weight), scale, a.width, as<float>(a.y) + int64_t(i) * a.width);
    });
  }
};

template <class Args, class To>
struct RmsNormTo {
  static bool extents(const Args& a, Extents<Args>& e) {
    return a.width % To::kInputs == 0 && norm_extents(a, e, To::nbytes(a.rows_capacity, a.width));
  }
  static int32_t n_tasks(const Args& a, int32_t) { return row_tasks(live_count(a.n_rows, a.rows_capacity), a.width); }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const int32_t n_rows = live_count(a.n_rows, a.rows_capacity);
    const float* weight = as<float>(a.weight);
    for_norm_rows(a, task, n_tasks, [&](int32_t i, const float* x, float scale) {
      for_parts<To>(a.width, [&](int32_t part, int32_t at, int32_t n) {
        float normed[To::kPart];
        normalise(x + at, weight + at, scale, n, normed);
        To::put(a.y, a.rows_capacity, n_rows, i, part, normed, n, a.width);
      });
    });
  }
};

template <class Args, class To>
struct RowsTo {
  static bool extents(const Args& a, Extents<Args>& e) {
    if (a.rows_capacity <= 0 || !is_width(a.width) || a.width % To::kInputs) return false;
    e.n_rows = Size(4);
    e.x = Size(a.rows_capacity) * a.width * 4;
    e.y = To::nbytes(a.rows_capacity, a.width);
    return true;
  }
  static int32_t n_tasks(const Args& a, int32_t) { return row_tasks(live_count(a.n_rows, a.rows_capacity), a.width); }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const int32_t n_rows = live_count(a.n_rows, a.rows_capacity);
    const Span rows = part_of(n_rows, task, n_tasks);
    for (int32_t i = rows.begin; i < rows.end; i++) {
      const float* x = as<float>(a.x) + int64_t(i) * a.width;
      for_parts<To>(a.width, [&](int32_t part, int32_t at, int32_t n) {
        To::put(a.y, a.rows_capacity, n_rows, i, part, x + at, n, a.width);
      });
    }
  }
};

}  // namespace

HELIOS_HOST_KERNEL(rms_norm, RmsNorm)
HELIOS_HOST_KERNEL(rms_norm_q8, RmsNormTo<HeliosArgs_rms_norm_q8, ToQ8>)
HELIOS_HOST_KERNEL(rms_norm_q12, RmsNormTo<HeliosArgs_rms_norm_q12, ToQ12>)
HELIOS_HOST_KERNEL(rms_norm_bf16, RmsNormTo<HeliosArgs_rms_norm_bf16, ToBf16>)
HELIOS_HOST_KERNEL(quantize_q8, RowsTo<HeliosArgs_quantize_q8, ToQ8>)
HELIOS_HOST_KERNEL(quantize_q12, RowsTo<HeliosArgs_quantize_q12, ToQ12>)
HELIOS_HOST_KERNEL(round_bf16, RowsTo<HeliosArgs_round_bf16, ToBf16>)

}  // namespace helios
