// RMS norm to q12 rows, and float rows as q12 rows. A block a row and group of 512, a thread every kThreads-th four numbers of it.
//
//   y = x / sqrt(mean(x^2) + epsilon) * weight;  q12 rows as in kernels.h
// Every group reads its row for the norm, and its own numbers twice: for a core that was prepared for a CPU, so plain. A group
// with a NaN or an infinity becomes q = 0 with a NaN scale.
//
// Floor: 4 bytes a number in, 3.25 and the group's scale out. As built: up to 48 registers a thread and 32 bytes of shared memory,
// 12 blocks a multiprocessor.
#include "norm.h"
#include "q12_rows.h"

namespace helios::cuda {

constexpr int kHalfLanes = kQ12Half / kFloats;  // lanes that share a half block

// The factor of a half block whose largest magnitude is amax, in a group with scale s > 0.
__device__ __forceinline__ int32_t q12_factor(float amax, float s) {
  const float exact = amax / (127.f * s);
  const int32_t below = int32_t(exact);
  return clamp(below + (float(below) < exact ? 1 : 0), 1, kQ12MostFactor);
}

__device__ __forceinline__ uint32_t largest_of(const Floats& y) {
  uint32_t largest = 0;  // as integers, NaN > infinity > any number
  HELIOS_UNROLL
  for (int i = 0; i < kFloats; i++) largest = Largest{}(largest, __float_as_uint(y.v[i]) & 0x7fffffffu);
  return largest;
}

// Writes group `group` of row `row`, whose numbers k .. k + 3 are four(k), zeros past the group.
template <class Four>
__device__ __forceinline__ void store_q12_group(const Q12Rows& rows, int32_t row, int32_t group, uint32_t* partial, Four four) {
  const int32_t begin = group * kQ12Group, left = rows.width - begin, n = left < kQ12Group ? left : kQ12Group;
  uint32_t largest = 0;
  for_fours(n, [&](int32_t k) { largest = Largest{}(largest, largest_of(four(k, n))); });
  largest = combine_block(largest, partial, Largest{});
  const float amax = __uint_as_float(largest), s = amax / float(127 * kQ12MostFactor);
  const bool is_finite = largest < 0x7f800000u, is_zero = !(is_finite && amax > 1e-30f);
  if (threadIdx.x == 0) *rows.scale(row, group) = is_finite ? s : __uint_as_float(0x7fc00000u);
  for_fours(n, [&](int32_t k) {
    const Floats y = four(k, n);
    const float half_amax = __uint_as_float(combine_lanes<kHalfLanes>(largest_of(y), Largest{}));
    const int32_t c = is_zero ? 1 : q12_factor(half_amax, s);
    const float to_q = is_zero ? 0.f : 1.f / (s * float(c));
    uint32_t numbers = 0, upper = 0, lower = 0;
    int32_t sum = 0;
    HELIOS_UNROLL
    for (int i = 0; i < kFloats; i++) {
      const float v = is_zero ? 0.f : y.v[i];
      const int32_t q = __float2int_rn(fmaxf(fminf(v * to_q, 127.f), -127.f)), number = q * c;
      numbers |= (uint32_t(q) & 0xffu) << (8 * i);
      upper |= (uint32_t((number + 128) >> 8) & 0xffu) << (8 * i);
      lower |= (uint32_t(number) & 0xffu) << (8 * i);
      sum += number;
    }
    sum = combine_lanes<kHalfLanes>(sum, Sum{});
    if (k >= n) return;
    *reinterpret_cast<uint32_t*>(rows.numbers(row, begin + k)) = numbers;
    uint8_t* tile = rows.upper(row, begin + k);
    *reinterpret_cast<uint32_t*>(tile) = upper;
    *reinterpret_cast<uint32_t*>(tile + kQ12TileBytes) = lower;
    int16_t* factors = rows.block_factors(row, begin + k) + k / kQ12Half % 2;
    if (k % kQ12Half == 0) {
      factors[0] = int16_t(c);
      factors[2] = int16_t(sum);
    }
  });
}

template <class Args>
__device__ void rms_norm_q12(const Args& a) {
  HELIOS_SHARED(float, partial, kWarps);
  HELIOS_SHARED(uint32_t, largest, kWarps);
  const int32_t n_groups = n_q12_groups(a.width), n_rows = live_count(a.n_rows, a.rows_capacity);
  const int32_t i = int32_t(blockIdx.x) / n_groups, group = int32_t(blockIdx.x) % n_groups;
  if (i >= n_rows) return;
  const int32_t row = as<int32_t>(a.rows)[i];
  if (!in_range(row, a.x_rows)) return;
  const float* x = as<float>(a.x) + int64_t(row) * a.width;
  const float scale = norm_scale(x, a.width, a.epsilon, partial);
  const float* weight = as<float>(a.weight) + group * kQ12Group;
  x += group * kQ12Group;
  store_q12_group(Q12Rows(a.y, a.rows_capacity, a.width), i, group, largest, [&](int32_t k, int32_t n) {
    Floats y = load_floats(x + k, n - k);
    const Floats weights = load_floats(weight + k, n - k);
    HELIOS_UNROLL
    for (int j = 0; j < kFloats; j++) y.v[j] = y.v[j] * scale * weights.v[j];
    return y;
  });
}

template <class Args>
__device__ void quantize_q12(const Args& a) {
  HELIOS_SHARED(uint32_t, largest, kWarps);
  const int32_t n_groups = n_q12_groups(a.width), n_rows = live_count(a.n_rows, a.rows_capacity);
  const int32_t i = int32_t(blockIdx.x) / n_groups, group = int32_t(blockIdx.x) % n_groups;
  if (i >= n_rows) return;
  const float* x = as<float>(a.x) + int64_t(i) * a.width + group * kQ12Group;
  store_q12_group(Q12Rows(a.y, a.rows_capacity, a.width), i, group, largest,
                  [&](int32_t k, int32_t n) { return load_floats(x + k, n - k); });
}

}  // namespace helios::cuda

HELIOS_CUDA_KERNEL(rms_norm_q12, helios::cuda::kThreads, int64_t(a.rows_capacity) * helios::cuda::n_q12_groups(a.width),
                   helios::cuda::rms_norm_q12(a))
HELIOS_CUDA_KERNEL(quantize_q12, helios::cuda::kThreads, int64_t(a.rows_capacity) * helios::cuda::n_q12_groups(a.width),
                   helios::cuda::quantize_q12(a))
