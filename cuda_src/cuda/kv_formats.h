// How keys and values stand in a page for one KV head (kernels.h): a struct for each format, whose write_keys and
// write_values put one position there, all lanes of a warp together, from head_dim floats in shared memory. Stores are as
// wide as the numbers of one position stand together: 16 bytes of bf16 and of the values of f16, 4 of the keys of q8, else
// single elements. attention_fragments.h reads them. A score over scaled pages is the sum of query * key, times `key_scale`; an
// output the sum of weight * `value_scale` * value.
#pragma once
#include "chunks.h"
#include "formats.h"
#include "kv_pages.h"

namespace helios::cuda {

constexpr int kChunk = 8;  // elements of 16 bits

struct KvF16 {
  static constexpr int kElementBytes = 2, kScaleBytes = 0;
  static __device__ void write_keys(char* head, int32_t head_dim, int32_t offset, const float* x) {
    HELIOS_NO_UNROLL
    for (int32_t d = int32_t(threadIdx.x) % kWarpLanes; d < head_dim; d += kWarpLanes)
      reinterpret_cast<__half*>(head)[d * kPageTokens + offset] = __float2half_rn(x[d]);
  }
  static __device__ void write_values(char* head, int32_t head_dim, int32_t offset, const float* x) {
    struct alignas(16) Halves {
      __half v[kChunk];
    };
    Halves* to = reinterpret_cast<Halves*>(head + (kPageTokens + offset) * head_dim * kElementBytes);
    HELIOS_NO_UNROLL
    for (int32_t c = int32_t(threadIdx.x) % kWarpLanes; c < head_dim / kChunk; c += kWarpLanes) {
      Halves halves;
      HELIOS_UNROLL
      for (int i = 0; i < kChunk; i++) halves.v[i] = __float2half_rn(x[c * kChunk + i]);
      to[c] = halves;
    }
  }
};

struct KvBf16 {
  static constexpr int kElementBytes = 2, kScaleBytes = 0;
  static __device__ void write_keys(char* head, int32_t head_dim, int32_t offset, const float* x) {
    for (int32_t c = int32_t(threadIdx.x) % kWarpLanes; c < head_dim / kChunk; c += kWarpLanes) {
      Chunk chunk;
      HELIOS_UNROLL
      for (int i = 0; i < 4; i++) {
        const float* pair = x + c * kChunk + 2 * i;
        chunk.words[i] = round_to_bf16(pair[0]) | uint32_t(round_to_bf16(pair[1])) << 16;
      }
      reinterpret_cast<Chunk*>(head)[c * kPageTokens + offset] = chunk;
    }
  }
  static __device__ void write_values(char* head, int32_t head_dim, int32_t offset, const float* x) {
    write_keys(head + head_dim * (kPageTokens * kElementBytes), head_dim, offset, x);
  }
};

struct KvQ8 {
  static constexpr int kElementBytes = 1, kScaleBytes = 2 * 4;  // of a position's element; of its keys and values
  static __device__ __forceinline__ const float* scales_of(const char* head, int32_t head_dim) {
    return reinterpret_cast<const float*>(head + head_dim * (2 * kPageTokens));
  }
  static __device__ __forceinline__ float key_scale(const char* head, int32_t head_dim, int32_t offset) {
    return scales_of(head, head_dim)[offset];
  }
  static __device__ __forceinline__ float value_scale(const char* head, int32_t head_dim, int32_t offset) {
    return scales_of(head, head_dim)[kPageTokens + offset];
  }
  // The factor that takes head_dim numbers to whole ones, and the scale that takes them back to *scale.
  static __device__ float inverse_scale(const float* x, int32_t head_dim, const float* scale) {
    uint32_t largest = 0;  // as integers, NaN > infinity > any number
    HELIOS_NO_UNROLL
    for (int32_t d = int32_t(threadIdx.x) % kWarpLanes; d < head_dim; d += kWarpLanes) {
      const uint32_t magnitude = __float_as_uint(x[d]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    largest = combine_warp(largest, Largest{});
    const float amax = __uint_as_float(largest);
    if (threadIdx.x % kWarpLanes == 0)
      *const_cast<float*>(scale) = largest < 0x7f800000u ? amax / 127.f : __uint_as_float(0x7fc00000u);
    return largest < 0x7f800000u && amax > 1e-30f ? 127.f / amax : 0.f;
  }
  static __device__ __forceinline__ uint8_t whole(float x, float inverse) {
    return uint8_t(inverse == 0 ? 0 : __float2int_rn(x * inverse));
  }
  static __device__ void write_keys(char* head, int32_t head_dim, int32_t offset, const float* x) {
    const float inverse = inverse_scale(x, head_dim, scales_of(head, head_dim) + offset);
    for (int32_t four = int32_t(threadIdx.x) % kWarpLanes; four < head_dim / 4; four += kWarpLanes) {
      uint32_t word = 0;
      HELIOS_UNROLL
      for (int i = 0; i < 4; i++) word |= uint32_t(whole(x[4 * four + i], inverse)) << (8 * i);
      reinterpret_cast<uint32_t*>(head)[four * kPageTokens + offset] = word;
    }
  }
  static __device__ void write_values(char* head, int32_t head_dim, int32_t offset, const float* x) {
    const float inverse = inverse_scale(x, head_dim, scales_of(head, head_dim) + kPageTokens + offset);
    char* to = head + (kPageTokens + offset / 4 * 4) * head_dim + offset % 4;
    HELIOS_NO_UNROLL
    for (int32_t d = int32_t(threadIdx.x) % kWarpLanes; d < head_dim; d += kWarpLanes) to[4 * d] = char(whole(x[d], inverse));
  }
};

// Keys and values of KV head `kv_head` in a page.
template <class Format>
__device__ __forceinline__ const char* head_in_page(const char* page, int32_t kv_head, int32_t head_dim) {
  return page + kv_head * int64_t((head_dim * 2 * Format::kElementBytes + Format::kScaleBytes) * kPageTokens);
}

}  // namespace helios::cuda
