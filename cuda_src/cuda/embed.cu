// x[i] = the weight row of token row_token[i], as float. A block a row; a thread an input at a time.
// A token outside [0, vocabulary) leaves its row as it is.
#include "formats_g16.h"

namespace helios::cuda {

template <class T>
struct PlainRows : T {
  static constexpr int kRows = kGroup;
};
template <class Block>
struct G16Rows {
  static constexpr int kRows = kG16Rows, kUnit = kG16Inputs, kUnitBytes = Block::kNbytes;
  static __device__ __forceinline__ float element(const uint8_t* unit, int row, int input) {
    return Block::scale(unit, row) * Block::value(unit, row, input) + Block::offset(unit, row);
  }
};

template <class Format, class Args>
__device__ void embed(const Args& a) {
  const int32_t n_rows = live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity), n_units = a.hidden / Format::kUnit;
  for (int32_t i = int32_t(blockIdx.x); i < n_rows; i += int32_t(gridDim.x)) {
    const int32_t token = as<int32_t>(a.row_token)[i];
    if (!in_range(token, a.vocabulary)) continue;
    const uint8_t* group = as<uint8_t>(a.weight) + int64_t(token / Format::kRows) * n_units * Format::kUnitBytes;
    float* x = as<float>(a.x) + int64_t(i) * a.hidden;
    for (int32_t k = int32_t(threadIdx.x); k < a.hidden; k += kThreads)
      x[k] =
          Format::element(group + int64_t(k / Format::kUnit) * Format::kUnitBytes, token % Format::kRows, k % Format::kUnit);
  }
}

}  // namespace helios::cuda

#define HELIOS_EMBED(suffix, ...) \
  HELIOS_CUDA_KERNEL(embed_##suffix, helios::cuda::kThreads, a.rows_capacity, helios::cuda::embed<__VA_ARGS__>(a))
HELIOS_EMBED(q4_1, helios::cuda::PlainRows<helios::cuda::Q4_1>)
HELIOS_EMBED(q4_0, helios::cuda::PlainRows<helios::cuda::Q4_0>)
HELIOS_EMBED(q8_0, helios::cuda::PlainRows<helios::cuda::Q8_0>)
HELIOS_EMBED(f32, helios::cuda::PlainRows<helios::cuda::FloatFormat<float>>)
HELIOS_EMBED(f16, helios::cuda::PlainRows<helios::cuda::FloatFormat<__half>>)
HELIOS_EMBED(bf16, helios::cuda::PlainRows<helios::cuda::FloatFormat<__nv_bfloat16>>)
HELIOS_EMBED(q4_1_g16, helios::cuda::G16Rows<helios::cuda::Q4G16<true>>)
HELIOS_EMBED(q4_0_g16, helios::cuda::G16Rows<helios::cuda::Q4G16<false>>)
HELIOS_EMBED(q8_0_g16, helios::cuda::G16Rows<helios::cuda::Q8G16>)
HELIOS_EMBED(bf16_g16, helios::cuda::G16Rows<helios::cuda::FloatG16<__nv_bfloat16>>)
HELIOS_EMBED(f16_g16, helios::cuda::G16Rows<helios::cuda::FloatG16<__half>>)
