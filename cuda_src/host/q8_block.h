// The integer dot product of one block of int8 weights with 32 int8 activations, for the rows of one group (V = F8) or
// of two consecutive groups (V = F16, AVX-512 only). Exact on every target, so nothing here can show in the bits.
//
// Both sides are signed, the instructions want unsigned times signed:
//   AVX-512  (a + 128) unsigned times w, starting from -128 * sum(w), which is the same for all tokens
//   AVX2     |w| times sign(a, w); a pair is at most 2*128*127 = 32512, no second one fits int16: vpmaddwd by 1, vpaddd
//   other    short_block.h
// (AVX2: a weight of -128 has |w| = 128, right as unsigned; an activation is never -128, which vpsignb could not negate.)
#pragma once
#include "linear_blocks.h"
#if !defined(HELIOS_AVX2)
#include "short_block.h"
#endif

namespace helios {

constexpr int kByteBytes = 256;  // weights of one (group, block), before its scales

// Bytes<V>(w, next): the quads of the block at w; quad[j] holds inputs 4j..4j+3. ByteProducts<V>(bytes, q).lower()
// and .upper() are the dot products of inputs 0..15 and 16..31.
template <class V>
struct Bytes;
template <class V>
struct ByteProducts;

#if defined(HELIOS_AVX512)

template <>
struct Bytes<F8> {
  __m256i quad[kQuads], start[2];
  HELIOS_INLINE Bytes(const uint8_t* w, int64_t) : start{} {
    HELIOS_UNROLL
    for (int j = 0; j < kQuads; j++) {
      quad[j] = load<__m256i>(w + 32 * j);
      start[j / kHalfQuads] = _mm256_dpbusd_epi32(start[j / kHalfQuads], _mm256_set1_epi8(-128), quad[j]);
    }
    for (int h = 0; h < 2; h++) start[h] = _mm256_sub_epi32(_mm256_setzero_si256(), start[h]);
  }
  HELIOS_INLINE void keep_in_registers() {
    HELIOS_UNROLL
    for (int j = 0; j < kQuads; j++) HELIOS_FENCE(quad[j]);
    HELIOS_FENCE(start[0]);
    HELIOS_FENCE(start[1]);
  }
};

// The activations of a block plus 128, as unsigned bytes.
struct UnsignedBlock {
  alignas(32) int8_t q[kBlock];
  HELIOS_INLINE explicit UnsignedBlock(const int8_t* signed_q) {
    store(q, _mm256_xor_si256(load<__m256i>(signed_q), _mm256_set1_epi8(-128)));
  }
};

template <>
struct ByteProducts<F8> {
  __m256i sums[2];
  HELIOS_INLINE ByteProducts(const Bytes<F8>& w, const int8_t* q) {
    const UnsignedBlock u(q);
    sums[0] = half_sum(w, u, w.start[0], 0);
    sums[1] = half_sum(w, u, w.start[1], kHalfQuads);
  }
  static HELIOS_INLINE __m256i half_sum(const Bytes<F8>& w, const UnsignedBlock& u, __m256i sum, int first) {
    HELIOS_UNROLL
    for (int j = first; j < first + kHalfQuads; j++)
      sum = _mm256_dpbusd_epi32(sum, _mm256_set1_epi32(quad_bits(u.q + 4 * j)), w.quad[j]);
    return sum;
  }
  HELIOS_INLINE F8 lower() const { return to_float((I8)sums[0]); }
  HELIOS_INLINE F8 upper() const { return to_float((I8)sums[1]); }
};

template <>
struct Bytes<F16> {
  __m512i quad[kQuads], start[2];
  HELIOS_INLINE Bytes(const uint8_t* w, int64_t next) : start{} {
    HELIOS_UNROLL
    for (int j = 0; j < kQuads; j++) {
      quad[j] = load_two_groups(w + 32 * j, next);
      start[j / kHalfQuads] = _mm512_dpbusd_epi32(start[j / kHalfQuads], _mm512_set1_epi8(-128), quad[j]);
    }
    for (int h = 0; h < 2; h++) start[h] = _mm512_sub_epi32(_mm512_setzero_si512(), start[h]);
  }
  HELIOS_INLINE void keep_in_registers() {
    HELIOS_UNROLL
    for (int j = 0; j < kQuads; j++) HELIOS_FENCE(quad[j]);
    HELIOS_FENCE(start[0]);
    HELIOS_FENCE(start[1]);
  }
};

template <>
struct ByteProducts<F16> {
  __m512i sums[2];
  HELIOS_INLINE ByteProducts(const Bytes<F16>& w, const int8_t* q) : ByteProducts(w, UnsignedBlock(q)) {}
  HELIOS_INLINE ByteProducts(const Bytes<F16>& w, const UnsignedBlock& u)
      : sums{half_sum(w, u, w.start[0], 0), half_sum(w, u, w.start[1], kHalfQuads)} {}
  static HELIOS_INLINE __m512i half_sum(const Bytes<F16>& w, const UnsignedBlock& u, __m512i sum, int first) {
    HELIOS_UNROLL
    for (int j = first; j < first + kHalfQuads; j++)
      sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi32(quad_bits(u.q + 4 * j)), w.quad[j]);
    return sum;
  }
  HELIOS_INLINE F16 lower() const { return to_float((I16)sums[0]); }
  HELIOS_INLINE F16 upper() const { return to_float((I16)sums[1]); }
};

// The same in memory for certain, to be broadcast from there. Compilers rather shuffle them out of the register, 12 times a
// block on a port that the products need: better for a few tokens, which wait for memory, and a fifth slower for many.
struct StoredBlock : UnsignedBlock {
  HELIOS_INLINE explicit StoredBlock(const int8_t* signed_q) : UnsignedBlock(signed_q) { asm("" : "+m"(q)); }
};

template <>
struct Bytes<F32> {
  Bytes<F16> lo, hi;
  HELIOS_INLINE Bytes(const uint8_t* w, int64_t next) : lo(w, next), hi(w + 2 * next, next) {}
  HELIOS_INLINE void keep_in_registers() {
    lo.keep_in_registers();
    hi.keep_in_registers();
  }
};

template <>
struct ByteProducts<F32> {
  ByteProducts<F16> lo, hi;
  HELIOS_INLINE ByteProducts(const Bytes<F32>& w, const int8_t* q) : ByteProducts(w, StoredBlock(q)) {}
  HELIOS_INLINE ByteProducts(const Bytes<F32>& w, const StoredBlock& u) : lo(w.lo, u), hi(w.hi, u) {}
  HELIOS_INLINE F32 lower() const { return {lo.lower(), hi.lower()}; }
  HELIOS_INLINE F32 upper() const { return {lo.upper(), hi.upper()}; }
};

#elif defined(HELIOS_AVX2)

template <>
struct Bytes<F8> {
  const uint8_t* signed_quads;  // the signs are read again for each token, as memory operands
  __m256i magnitude[kQuads];
  HELIOS_INLINE Bytes(const uint8_t* w, int64_t) : signed_quads(w) {
    HELIOS_UNROLL
    for (int j = 0; j < kQuads; j++) magnitude[j] = _mm256_abs_epi8(load<__m256i>(w + 32 * j));
  }
  HELIOS_INLINE void keep_in_registers() {
    HELIOS_UNROLL
    for (int j = 0; j < kQuads; j++) HELIOS_FENCE(magnitude[j]);
  }
};

template <>
struct ByteProducts<F8> {
  __m256i sums[2];
  HELIOS_INLINE ByteProducts(const Bytes<F8>& w, const int8_t* q)
      : sums{half_sum(w, q, 0), half_sum(w, q, kHalfQuads)} {}
  static HELIOS_INLINE __m256i half_sum(const Bytes<F8>& w, const int8_t* q, int first) {
    __m256i sum = products(w, q, first);
    HELIOS_UNROLL
    for (int j = first + 1; j < first + kHalfQuads; j++) {
      sum = _mm256_add_epi32(sum, products(w, q, j));
      HELIOS_FENCE(sum);
    }
    return sum;
  }
  static HELIOS_INLINE __m256i products(const Bytes<F8>& w, const int8_t* q, int j) {
    const __m256i quad = _mm256_castps_si256(_mm256_broadcast_ss((const float*)(q + 4 * j)));
    const __m256i a = _mm256_sign_epi8(quad, load<__m256i>(w.signed_quads + 32 * j));
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w.magnitude[j], a), _mm256_set1_epi16(1));
  }
  HELIOS_INLINE F8 lower() const { return to_float((I8)sums[0]); }
  HELIOS_INLINE F8 upper() const { return to_float((I8)sums[1]); }
};

#else

template <>
struct Bytes<F8> : ShortWeights {
  HELIOS_INLINE Bytes(const uint8_t* w, int64_t) {
    for (int j = 0; j < kQuads; j++)
      for (int i = 0; i < 32; i += 8) store(quad[j] + i, widen(load<B8>(w + 32 * j + i)));
  }
};
template <>
struct ByteProducts<F8> : ShortProducts {
  using ShortProducts::ShortProducts;
};

#endif

}  // namespace helios
