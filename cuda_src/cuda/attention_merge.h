// What every form of attention has to agree on: segments of 256 positions, and the softmax over segments, ascending:
//   m' = max(m, seg.max);  l = l e^(m - m') + seg.sum e^(seg.max - m');  o likewise.
#pragma once
#include "kv_pages.h"

namespace helios::cuda {

constexpr int kSegment = HELIOS_SEGMENT, kSegmentPages = kSegment / kPageTokens;
constexpr float kNoScore = -1e30f;    // of an empty segment; finite, so that differences are
constexpr float kLeastScore = -60.f;  // below the largest: e^-60 is lost in rounding

__device__ __forceinline__ int32_t n_segments(int32_t position) { return position / kSegment + 1; }
// Positions of a segment that a row at `position` sees.
__device__ __forceinline__ int32_t n_visible(int32_t position, int32_t segment) {
  const int64_t n = position + int64_t(1) - int64_t(segment) * kSegment;
  return n < 0 ? 0 : n < kSegment ? int32_t(n) : kSegment;
}
__device__ __forceinline__ float weight_of(float score, float max) {
  const float z = score - max;
  return z < kLeastScore ? 0.f : expf(z);  // NaN stays NaN
}

// The softmax of one row over the segments so far, without the values.
struct Softmax {
  float max = kNoScore, sum = 0;
};
// What the values so far, and those of the segment, are multiplied by.
struct Shares {
  float keep, take;
};
__device__ __forceinline__ Shares merge(Softmax& merged, const Softmax& segment) {
  const float top = segment.max > merged.max ? segment.max : merged.max;
  const Shares shares{expf(merged.max - top), expf(segment.max - top)};
  merged = {top, fmaf(segment.sum, shares.take, merged.sum * shares.keep)};
  return shares;
}
__device__ __forceinline__ void merge(float& merged, float segment, const Shares& shares) {
  merged = fmaf(segment, shares.take, merged * shares.keep);
}
// 1 / sum; zeros for a row without positions, and a NaN stays NaN.
__device__ __forceinline__ float normalise(const Softmax& merged) { return merged.sum == 0.f ? 0.f : 1.f / merged.sum; }

// partials[row][head][segment] = {max, sum, values}.
template <class Args>
__device__ __forceinline__ float* partial_at(const Args& a, int64_t row, int32_t head, int32_t segment) {
  return const_cast<float*>(static_cast<const float*>(a.partials)) +
         ((row * a.n_heads + head) * a.max_segments + segment) * (a.head_dim + 2);
}

}  // namespace helios::cuda
