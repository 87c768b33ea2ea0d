// How keys and values stand in a page for one KV head (kernels.h): a struct for each format, which writes a position. f16 is
// also read here, element by element; attention_fragments.h reads the others. A score over scaled pages is the sum of query *
// key, times `key_scale`; an output the sum of weight * `value_scale` * value.
#pragma once
#include "formats.h"
#include "kv_pages.h"

namespace helios::cuda {

struct KvF16 {
  static constexpr int kElementBytes = 2, kScaleBytes = 0;
  static __device__ __forceinline__ float key(const char* head, int32_t, int32_t d, int32_t offset) {
    return __half2float(reinterpret_cast<const __half*>(head)[d * kPageTokens + offset]);
  }
  static __device__ __forceinline__ float value(const char* head, int32_t head_dim, int32_t d, int32_t offset) {
    return __half2float(reinterpret_cast<const __half*>(head)[(kPageTokens + offset) * head_dim + d]);
  }
  // Writes the keys and values of one position; every thread of a warp calls it.
  static __device__ void write(char* head, int32_t head_dim, int32_t offset, const float* k, const float* v) {
    __half* to = reinterpret_cast<__half*>(head);
    for (int32_t d = int32_t(threadIdx.x) % kWarpLanes; d < head_dim; d += kWarpLanes) {
      to[d * kPageTokens + offset] = __float2half_rn(k[d]);
      to[(kPageTokens + offset) * head_dim + d] = __float2half_rn(v[d]);
    }
  }
};

struct KvBf16 {
  static constexpr int kElementBytes = 2, kScaleBytes = 0, kChunk = 8;
  static __device__ __forceinline__ int32_t place(int32_t d, int32_t offset) {
    return (d / kChunk * kPageTokens + offset) * kChunk + d % kChunk;
  }
  static __device__ void write(char* head, int32_t head_dim, int32_t offset, const float* k, const float* v) {
    uint16_t *keys = reinterpret_cast<uint16_t*>(head), *values = keys + head_dim * kPageTokens;
    for (int32_t d = int32_t(threadIdx.x) % kWarpLanes; d < head_dim; d += kWarpLanes) {
      keys[place(d, offset)] = round_to_bf16(k[d]);
      values[place(d, offset)] = round_to_bf16(v[d]);
    }
  }
};

struct KvQ8 {
  static constexpr int kElementBytes = 1, kScaleBytes = 2 * 4;  // of a position's element; of its keys and values
  static __device__ __forceinline__ const float* scales_of(const char* head, int32_t head_dim) {
    return reinterpret_cast<const float*>(head + head_dim * (2 * kPageTokens));
  }
  static __device__ __forceinline__ int32_t key_place(int32_t d, int32_t offset) {
    return (d / 4 * kPageTokens + offset) * 4 + d % 4;
  }
  static __device__ __forceinline__ int32_t value_place(int32_t head_dim, int32_t d, int32_t offset) {
    return ((kPageTokens + offset / 4 * 4) * head_dim) + d * 4 + offset % 4;
  }
  static __device__ __forceinline__ float key_scale(const char* head, int32_t head_dim, int32_t offset) {
    return scales_of(head, head_dim)[offset];
  }
  static __device__ __forceinline__ float value_scale(const char* head, int32_t head_dim, int32_t offset) {
    return scales_of(head, head_dim)[kPageTokens + offset];
  }
  // The factor that takes head_dim numbers to whole ones, and the scale that takes them back to *scale.
  static __device__ float inverse_scale(const float* x, int32_t head_dim, float* scale) {
    uint32_t largest = 0;  // as integers, NaN > infinity > any number
    for (int32_t d = int32_t(threadIdx.x) % kWarpLanes; d < head_dim; d += kWarpLanes) {
      const uint32_t magnitude = __float_as_uint(x[d]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    largest = combine_warp(largest, Largest{});
    const float amax = __uint_as_float(largest);
    if (threadIdx.x % kWarpLanes == 0) *scale = largest < 0x7f800000u ? amax / 127.f : __uint_as_float(0x7fc00000u);
    return largest < 0x7f800000u && amax > 1e-30f ? 127.f / amax : 0.f;
  }
  static __device__ __forceinline__ int8_t whole(float x, float inverse) {
    return int8_t(inverse == 0 ? 0 : __float2int_rn(x * inverse));
  }
  static __device__ void write(char* head, int32_t head_dim, int32_t offset, const float* k, const float* v) {
    float* scales = const_cast<float*>(scales_of(head, head_dim)) + offset;
    const float of_keys = inverse_scale(k, head_dim, scales), of_values = inverse_scale(v, head_dim, scales + kPageTokens);
    int8_t* to = reinterpret_cast<int8_t*>(head);
    for (int32_t d = int32_t(threadIdx.x) % kWarpLanes; d < head_dim; d += kWarpLanes) {
      to[key_place(d, offset)] = whole(k[d], of_keys);
      to[value_place(head_dim, d, offset)] = whole(v[d], of_values);
    }
  }
};

// Keys and values of KV head `kv_head` in a page.
template <class Format>
__device__ __forceinline__ const char* head_in_page(const char* page, int32_t kv_head, int32_t head_dim) {
  return page + kv_head * int64_t((head_dim * 2 * Format::kElementBytes + Format::kScaleBytes) * kPageTokens);
}

}  // namespace helios::cuda
