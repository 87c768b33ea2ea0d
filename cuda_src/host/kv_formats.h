// How keys and values stand in a page for one KV head (kernels.h): a struct for each format, which writes a position
// and loads vectors of floats. Keys load with positions as lanes, so scores need no horizontal sum; values with
// dimensions as lanes. What a load gives for a position depends on the bytes of that position alone.
//
// kDims: so many dimensions of the keys come from 64 bytes. kPositions: values of so many neighbours share their words; where it
// is more than one they are finite whatever the bytes are, so that a position of weight 0 adds 0.
#pragma once
#include <math.h>

#include "bf16_rows.h"
#include "kv_pages.h"
#include "vec.h"

namespace helios {

HELIOS_INLINE void prefetch_span(const char* from, int32_t nbytes) {
  for (int32_t at = 0; at < nbytes; at += 64) prefetch_to_write(from + at);
}

// Formats whose numbers are what they stand for.
struct UnscaledKv {
  static HELIOS_INLINE F16 scale_scores(const char*, int32_t, F16 scores) { return scores; }
  static HELIOS_INLINE void scale_weights(const char*, int32_t, int32_t, float*) {}
};

struct KvF16 : UnscaledKv {
  static constexpr int kDims = 2, kPositions = 1;
  static constexpr int32_t head_nbytes(int32_t head_dim) { return head_dim * kPageTokens * 4; }
  static void write(char* head, int32_t head_dim, int32_t offset, const float* k, const float* v) {
    uint16_t *keys = reinterpret_cast<uint16_t*>(head), *values = keys + head_dim * kPageTokens;
    for (int32_t d = 0; d < head_dim; d++) keys[d * kPageTokens + offset] = float_to_half(k[d]);
    for (int32_t d = 0; d < head_dim; d++) values[offset * head_dim + d] = float_to_half(v[d]);
  }
  static void prefetch_position(const char* head, int32_t head_dim, int32_t offset) {
    prefetch_span(head, head_dim * kPageTokens * 2);
    prefetch_span(head + (kPageTokens + offset) * head_dim * 2, head_dim * 2);
  }
  static HELIOS_INLINE void load_keys(const char* head, int32_t dim, F16 (&keys)[kDims]) {
    const Half* first = reinterpret_cast<const Half*>(head) + dim * kPageTokens;
    keys[0] = load_as_float<F16>(first), keys[1] = load_as_float<F16>(first + kPageTokens);
  }
  template <class V>
  static HELIOS_INLINE V load_values(const char* head, int32_t head_dim, int32_t offset, int, int32_t dim) {
    return load_as_float<V>(reinterpret_cast<const Half*>(head) + (kPageTokens + offset) * head_dim + dim);
  }
};

struct KvBf16 : UnscaledKv {
  static constexpr int kDims = 2, kPositions = 1, kChunk = 8;
  static constexpr int32_t head_nbytes(int32_t head_dim) { return head_dim * kPageTokens * 4; }
  static constexpr int32_t place(int32_t offset, int32_t dim) {
    return dim / kChunk * (kPageTokens * kChunk) + offset * kChunk + dim % kChunk;
  }
  static void write(char* head, int32_t head_dim, int32_t offset, const float* k, const float* v) {
    uint16_t *keys = reinterpret_cast<uint16_t*>(head), *values = keys + head_dim * kPageTokens;
    for (int32_t d = 0; d < head_dim; d++) keys[place(offset, d)] = round_to_bf16(k[d]);
    for (int32_t d = 0; d < head_dim; d++) values[place(offset, d)] = round_to_bf16(v[d]);
  }
  static void prefetch_position(const char* head, int32_t head_dim, int32_t offset) {
    for (int32_t d = 0; d < 2 * head_dim; d += kChunk) prefetch_to_write(head + place(offset, d) * sizeof(uint16_t));
  }
  static HELIOS_INLINE void load_keys(const char* head, int32_t dim, F16 (&keys)[kDims]) {
    const uint16_t* first = reinterpret_cast<const uint16_t*>(head) + place(0, dim);
    int32_t pairs[kPageTokens];
    for (int p = 0; p < kPageTokens; p++) memcpy(pairs + p, first + p * kChunk, sizeof pairs[p]);
    const I16 pair = load<I16>(pairs);
    keys[0] = bits_as<F16>(pair << 16);
    keys[1] = bits_as<F16>(pair >> 16 << 16);
  }
  template <class V>
  static HELIOS_INLINE V load_values(const char* head, int32_t head_dim, int32_t offset, int, int32_t dim) {
    constexpr int kRun = Lanes<V>::n < kChunk ? Lanes<V>::n : kChunk;
    const uint16_t* all = reinterpret_cast<const uint16_t*>(head) + head_dim * kPageTokens;
    Bfloat lanes[Lanes<V>::n];
    for (int i = 0; i < Lanes<V>::n; i += kRun) memcpy(lanes + i, all + place(offset, dim + i), kRun * sizeof *lanes);
    return load_as_float<V>(lanes);
  }
};

struct KvQ8 {
  static constexpr int kDims = 4, kPositions = 4;
  static constexpr int32_t head_nbytes(int32_t head_dim) { return (head_dim * 2 + 8) * kPageTokens; }
  static constexpr int32_t scales_at(int32_t head_dim) { return head_dim * 2 * kPageTokens; }

  // The 127 / m and m / 127 of n numbers (kernels.h).
  struct Scale {
    float inverse, scale;
  };
  static Scale scale_of(const float* x, int32_t n) {
    uint32_t most = 0;
    for (int32_t i = 0; i < n; i++) {
      const uint32_t magnitude = bits_as<uint32_t>(x[i]) & 0x7fffffffu;
      if (magnitude > most) most = magnitude;
    }
    if (most >= 0x7f800000u) return {0, bits_as<float>(uint32_t(0x7fc00000))};
    const float largest = bits_as<float>(most);
    return {largest > 1e-30f ? 127.f / largest : 0, largest / 127.f};
  }
  static int8_t quantize(float x, float inverse) { return inverse == 0 ? 0 : int8_t(nearbyintf(x * inverse)); }
  static void write(char* head, int32_t head_dim, int32_t offset, const float* k, const float* v) {
    int8_t *keys = reinterpret_cast<int8_t*>(head), *values = keys + head_dim * kPageTokens;
    const Scale of_k = scale_of(k, head_dim), of_v = scale_of(v, head_dim);
    for (int32_t d = 0; d < head_dim; d++)
      keys[d / 4 * (4 * kPageTokens) + offset * 4 + d % 4] = quantize(k[d], of_k.inverse);
    for (int32_t d = 0; d < head_dim; d++)
      values[(offset / 4 * head_dim + d) * 4 + offset % 4] = quantize(v[d], of_v.inverse);
    float* scales = reinterpret_cast<float*>(head + scales_at(head_dim));
    scales[offset] = of_k.scale, scales[kPageTokens + offset] = of_v.scale;
  }
  static void prefetch_position(const char* head, int32_t head_dim, int32_t offset) {
    const char* values = head + head_dim * kPageTokens;
    prefetch_span(head, head_dim * kPageTokens);
    prefetch_span(values + offset / 4 * head_dim * 4, head_dim * 4);
    prefetch_span(values + head_dim * kPageTokens, 2 * kPageTokens * sizeof(float));
  }

  static HELIOS_INLINE void load_keys(const char* head, int32_t dim, F16 (&keys)[kDims]) {
    const I16 words = load<I16>(head + dim * kPageTokens);
    HELIOS_UNROLL
    for (int i = 0; i < kDims; i++) keys[i] = to_float(words << (24 - 8 * i) >> 24);
  }
  // Of position offset + i, where offset is a multiple of 4 and i is known to the compiler.
  template <class V>
  static HELIOS_INLINE V load_values(const char* head, int32_t head_dim, int32_t offset, int i, int32_t dim) {
    using Words = decltype(round_to_int(V{}));
    return to_float(load<Words>(head + head_dim * kPageTokens + offset * head_dim + dim * 4) << (24 - 8 * i) >> 24);
  }
  static HELIOS_INLINE F16 scale_scores(const char* head, int32_t head_dim, F16 scores) {
    return scores * load<F16>(head + scales_at(head_dim));
  }
  // Weights of a page's first n positions; those of the rest are 0.
  static HELIOS_INLINE void scale_weights(const char* head, int32_t head_dim, int32_t n, float* weights) {
    const float* scales = reinterpret_cast<const float*>(head + scales_at(head_dim)) + kPageTokens;
    for (int32_t i = 0; i < kPageTokens; i++) weights[i] = i < n ? weights[i] * scales[i] : 0.f;
  }
};

}  // namespace helios
