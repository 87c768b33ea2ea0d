// x[i] = the weight row of token row_token[i], as float. A thread has 8 inputs of a row, a block 1,024 of them.
// A token outside [0, vocabulary) leaves its row as it is.
//
// Floor: 4 bytes a number written, and the sectors of 32 bytes that the row's weights lie in. The g16k8 layouts keep 8
// inputs of a row together, 4 to 16 bytes in one load; of the others, which are of old cores, each is a load. As built: up
// to 48 registers a thread and 0 bytes of shared memory, 10 blocks a multiprocessor.
#include "chunks.h"
#include "formats_g16.h"

namespace helios::cuda {

constexpr int kInputs = 8, kPartInputs = kThreads * kInputs;

// read: the 8 inputs from k on, of `row` in a group of kRows; what is past the row's n_in is zero.
template <class Format>
struct PlainRows {
  static constexpr int kRows = kGroup, kUnit = Format::kUnit, kUnitBytes = Format::kUnitBytes;
  static __device__ __forceinline__ void read(const uint8_t* group, int row, int32_t k, int32_t n_in, float (&x)[kInputs]) {
    HELIOS_UNROLL
    for (int i = 0; i < kInputs; i++) {
      const uint8_t* unit = group + int64_t((k + i) / kUnit) * kUnitBytes;
      x[i] = k + i < n_in ? Format::element(unit, row, (k + i) % kUnit) : 0.f;
    }
  }
};
template <class Block, int kNbytes>
struct G16Rows {
  static constexpr int kRows = kG16Rows, kUnit = kG16Inputs, kUnitBytes = Block::kNbytes;
  struct alignas(kNbytes) Lane {
    uint8_t bytes[kNbytes];
  };
  static __device__ __forceinline__ void read(const uint8_t* group, int row, int32_t k, int32_t, float (&x)[kInputs]) {
    const uint8_t* block = group + int64_t(k / kUnit) * kUnitBytes;
    const Lane lane = reinterpret_cast<const Lane*>(block)[k % kUnit / kInputs * kRows + row];
    const float scale = Block::scale(block, row), offset = Block::offset(block, row);
    HELIOS_UNROLL
    for (int i = 0; i < kInputs; i++) x[i] = scale * Block::value(lane.bytes, 0, i) + offset;  // as row 0 of a block
  }
};

template <class Args>
__host__ __device__ inline int64_t n_parts_of(const Args& a) {
  return (a.hidden + kPartInputs - 1) / kPartInputs;
}
template <class Format, class Args>
__device__ void embed(const Args& a) {
  const int64_t n_parts = n_parts_of(a), row = blockIdx.x / n_parts;
  const int32_t k = int32_t(blockIdx.x % n_parts) * kPartInputs + int32_t(threadIdx.x) * kInputs;
  if (row >= live_count(a.counts, HELIOS_COUNT_ROWS, a.rows_capacity) || k >= a.hidden) return;
  const int32_t token = as<int32_t>(a.row_token)[row];
  if (!in_range(token, a.vocabulary)) return;
  const int64_t group_nbytes = int64_t(a.hidden / Format::kUnit) * Format::kUnitBytes;
  float inputs[kInputs];
  Format::read(as<uint8_t>(a.weight) + token / Format::kRows * group_nbytes, token % Format::kRows, k, a.hidden, inputs);
  float* x = as<float>(a.x) + row * a.hidden + k;
  HELIOS_UNROLL
  for (int i = 0; i < kInputs; i += kFloats)
    store_floats(x + i, {inputs[i], inputs[i + 1], inputs[i + 2], inputs[i + 3]}, a.hidden - k - i);
}

}  // namespace helios::cuda

#define HELIOS_EMBED(suffix, ...)                                                                           \
  HELIOS_CUDA_KERNEL(embed_##suffix, helios::cuda::kThreads, a.rows_capacity* helios::cuda::n_parts_of(a), \
                     helios::cuda::embed<__VA_ARGS__>(a))
HELIOS_EMBED(q4_1, helios::cuda::PlainRows<helios::cuda::Q4_1>)
HELIOS_EMBED(q4_0, helios::cuda::PlainRows<helios::cuda::Q4_0>)
HELIOS_EMBED(q8_0, helios::cuda::PlainRows<helios::cuda::Q8_0>)
HELIOS_EMBED(f32, helios::cuda::PlainRows<helios::cuda::FloatFormat<float>>)
HELIOS_EMBED(f16, helios::cuda::PlainRows<helios::cuda::FloatFormat<__half>>)
HELIOS_EMBED(bf16, helios::cuda::PlainRows<helios::cuda::FloatFormat<__nv_bfloat16>>)
HELIOS_EMBED(q4_1_g16, helios::cuda::G16Rows<helios::cuda::Q4G16<true>, 4>)
HELIOS_EMBED(q4_0_g16, helios::cuda::G16Rows<helios::cuda::Q4G16<false>, 4>)
HELIOS_EMBED(q8_0_g16, helios::cuda::G16Rows<helios::cuda::Q8G16, 8>)
HELIOS_EMBED(bf16_g16, helios::cuda::G16Rows<helios::cuda::FloatG16<__nv_bfloat16>, 16>)
HELIOS_EMBED(f16_g16, helios::cuda::G16Rows<helios::cuda::FloatG16<__half>, 16>)
