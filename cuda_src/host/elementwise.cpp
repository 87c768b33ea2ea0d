// Element by element over float rows: the bias of a linear map, and the SiLU gate.
//
//   add_bias: y[i] += bias;   silu_gate: y[i] = silu(gate[i]) * up[i], silu(v) = v / (1 + e^-v) with the polynomial of
//   vec.h
// Bound: one read and one write of the rows, in cache.
#include "host.h"
#include "vec.h"

namespace helios {
namespace {

struct AddBias {
  using Args = HeliosArgs_add_bias;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (a.rows_capacity <= 0 || !is_width(a.n_out) || a.y_stride < a.n_out) return false;
    e.n_rows = Size(4);
    e.bias = Size(a.n_out) * 4;
    e.y = strided(a.rows_capacity, a.y_stride, a.n_out) * 4;
    return true;
  }
  static int32_t n_tasks(const Args& a, int32_t) { return row_tasks(live_count(a.n_rows, a.rows_capacity), a.n_out); }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const Span rows = part_of(live_count(a.n_rows, a.rows_capacity), task, n_tasks);
    const float* bias = as<float>(a.bias);
    for (int32_t i = rows.begin; i < rows.end; i++) {
      float* y = as<float>(a.y) + int64_t(i) * a.y_stride;
      for (int32_t j = 0; j < a.n_out; j++) y[j] += bias[j];
    }
  }
};

struct SiluGate {
  using Args = HeliosArgs_silu_gate;
  static bool extents(const Args& a, Extents<Args>& e) {
    if (a.rows_capacity <= 0 || !is_width(a.width)) return false;
    e.n_rows = Size(4);
    e.gate = e.up = e.y = Size(a.rows_capacity) * a.width * 4;
    return true;
  }
  static int32_t n_tasks(const Args& a, int32_t) { return row_tasks(live_count(a.n_rows, a.rows_capacity), a.width); }
  static void run(const Args& a, int32_t task, int32_t n_tasks) {
    const Span rows = part_of(live_count(a.n_rows, a.rows_capacity), task, n_tasks);
    const int64_t end = int64_t(rows.end) * a.width;
    const float *gate = as<float>(a.gate), *up = as<float>(a.up);
    float* y = as<float>(a.y);
    int64_t i = int64_t(rows.begin) * a.width;
    for (; i + 8 <= end; i += 8) store(y + i, silu(load<F8>(gate + i)) * load<F8>(up + i));
    if (i < end) {  // the same arithmetic on a padded vector
      float g[8] = {}, u[8] = {}, out[8];
      memcpy(g, gate + i, size_t(end - i) * 4);
      memcpy(u, up + i, size_t(end - i) * 4);
      store(out, silu(load<F8>(g)) * load<F8>(u));
      memcpy(y + i, out, size_t(end - i) * 4);
    }
  }
};

}  // namespace

HELIOS_HOST_KERNEL(add_bias, AddBias)
HELIOS_HOST_KERNEL(silu_gate, SiluGate)

}  // namespace helios
