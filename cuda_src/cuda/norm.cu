// RMS norm (to float rows, quantised rows or bf16 rows), and float rows quantised or rounded. A block a row, a thread every
// kThreads-th four numbers of it: 16 bytes a load, and a store as wide as four numbers are.
//
//   y = x / sqrt(mean(x^2) + epsilon) * weight;  quantised rows and bf16 rows as in kernels.h
// The sum of squares: each thread its own numbers, then the fixed tree of combine_block; an order that depends on the width
// alone. A row index outside x leaves its output row as it is. A half block with a NaN or an infinity becomes q = 0 with a
// NaN scale, so that its row turns NaN in what follows and no other row notices.
//
// Floor: 4 bytes a number in, 4, 2 or 1 and the block's scales or sum out; the second reading is from the L1 cache. As built:
// up to 32 registers a thread and 16 bytes of shared memory, 12 blocks a multiprocessor.
#include "formats.h"
#include "norm.h"

namespace helios::cuda {

constexpr int kBlockLanes = kBlock / kFloats;  // lanes that share a block of 32, four numbers each

// Where the numbers k .. k + 3 of a row go, in one of the forms. All lanes of a warp call these together, those past the width
// with zeros.
struct Row {
  void* base;
  int32_t rows_capacity, n_rows, row, width;
};
struct ToFloats {
  static __device__ __forceinline__ void store(const Row& to, int32_t k, const Floats& y) {
    if (k < to.width) store_floats(as<float>(to.base) + int64_t(to.row) * to.width + k, y, to.width - k);
  }
};
struct ToQ8 {
  static __device__ __forceinline__ void store(const Row& to, int32_t k, const Floats& y) {
    uint32_t largest = 0;  // as integers, NaN > infinity > any number
    HELIOS_UNROLL
    for (int i = 0; i < kFloats; i++) largest = Largest{}(largest, __float_as_uint(y.v[i]) & 0x7fffffffu);
    largest = combine_lanes<kBlockLanes / 2>(largest, Largest{});
    const bool is_finite = largest < 0x7f800000u;
    const float amax = __uint_as_float(largest), to_q = is_finite && amax > 1e-30f ? 127.f / amax : 0.f,
                scale = is_finite ? amax / 127.f : __uint_as_float(0x7fc00000u);
    int32_t sum = 0;
    uint32_t word = 0;
    HELIOS_UNROLL
    for (int i = 0; i < kFloats; i++) {
      const int32_t q = __float2int_rn((is_finite ? y.v[i] : 0.f) * to_q);
      word |= (uint32_t(q) & 0xffu) << (8 * i);
      sum += q;
    }
    sum = combine_lanes<kBlockLanes / 2>(sum, Sum{});
    const float product = scale * float(sum), upper_scale = __shfl_xor_sync(kAllLanes, scale, kBlockLanes / 2),
                upper_product = __shfl_xor_sync(kAllLanes, product, kBlockLanes / 2);
    if (k >= to.width) return;
    const int64_t at = int64_t(k / kBlock) * to.n_rows + to.row;
    uint8_t* q = as<uint8_t>(to.base);
    *reinterpret_cast<uint32_t*>(q + at * kBlock + k % kBlock) = word;
    Floats* scales = reinterpret_cast<Floats*>(q + int64_t(to.rows_capacity) * to.width);
    if (k % kBlock == 0) scales[at] = {scale, upper_scale, product + upper_product, 0.f};
  }
};
struct ToBf16 {
  static __device__ __forceinline__ void store(const Row& to, int32_t k, const Floats& y) {
    uint32_t words[2];
    float sum = 0;
    HELIOS_UNROLL
    for (int i = 0; i < 2; i++) {
      words[i] = round_to_bf16(y.v[2 * i]) | uint32_t(round_to_bf16(y.v[2 * i + 1])) << 16;
      sum += __uint_as_float(words[i] << 16);
      sum += __uint_as_float(words[i] & 0xffff0000u);
    }
    sum = combine_lanes<kBlockLanes>(sum, Sum{});
    if (k >= to.width) return;
    uint16_t* rows = as<uint16_t>(to.base);
    *reinterpret_cast<uint2*>(rows + int64_t(to.row) * to.width + k) = {words[0], words[1]};
    float* sums = reinterpret_cast<float*>(rows + int64_t(to.rows_capacity) * to.width);
    if (k % kBlock == 0) sums[int64_t(to.row) * (to.width / kBlock) + k / kBlock] = sum;
  }
};

template <class Form, class Args>
__device__ void rms_norm(const Args& a) {
  HELIOS_SHARED(float, partial, kWarps);
  const int32_t n_rows = live_count(a.n_rows, a.rows_capacity), i = int32_t(blockIdx.x);
  if (i >= n_rows) return;
  const int32_t row = as<int32_t>(a.rows)[i];
  if (!in_range(row, a.x_rows)) return;
  const float *x = as<float>(a.x) + int64_t(row) * a.width, *weight = as<float>(a.weight);
  const float scale = norm_scale(x, a.width, a.epsilon, partial);
  for_fours(a.width, [&](int32_t k) {
    Floats y = load_floats(x + k, a.width - k);
    const Floats weights = load_floats(weight + k, a.width - k);
    HELIOS_UNROLL
    for (int j = 0; j < kFloats; j++) y.v[j] = y.v[j] * scale * weights.v[j];
    Form::store({a.y, a.rows_capacity, n_rows, i, a.width}, k, y);
  });
}

template <class Form, class Args>
__device__ void convert_rows(const Args& a) {
  const int32_t n_rows = live_count(a.n_rows, a.rows_capacity), i = int32_t(blockIdx.x);
  if (i >= n_rows) return;
  const float* x = as<float>(a.x) + int64_t(i) * a.width;
  for_fours(a.width, [&](int32_t k) {
    Form::store({a.y, a.rows_capacity, n_rows, i, a.width}, k, load_floats(x + k, a.width - k));
  });
}

}  // namespace helios::cuda

HELIOS_CUDA_KERNEL(rms_norm, helios::cuda::kThreads, a.rows_capacity, helios::cuda::rms_norm<helios::cuda::ToFloats>(a))
HELIOS_CUDA_KERNEL(rms_norm_q8, helios::cuda::kThreads, a.rows_capacity, helios::cuda::rms_norm<helios::cuda::ToQ8>(a))
HELIOS_CUDA_KERNEL(rms_norm_bf16, helios::cuda::kThreads, a.rows_capacity, helios::cuda::rms_norm<helios::cuda::ToBf16>(a))
HELIOS_CUDA_KERNEL(quantize_q8, helios::cuda::kThreads, a.rows_capacity,
                   helios::cuda::convert_rows<helios::cuda::ToQ8>(a))
HELIOS_CUDA_KERNEL(round_bf16, helios::cuda::kThreads, a.rows_capacity,
                   helios::cuda::convert_rows<helios::cuda::ToBf16>(a))
