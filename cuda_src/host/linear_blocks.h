// A weight format of blocks of 32 inputs with 8-bit activations, for the driver in linear.h: the register tile and the
// sweep, both over the same block arithmetic. The block type says how weights are stored and what one block adds to the
// sums:
//   kNbytes, kFewTokens (the most of a tile), kTaskScale, Weights<V>(w, next) with add(acc, products, scales), Products<V>(weights, q)
// V holds the 8 rows of a group (F8), and with AVX-512 16 of two consecutive groups (F16), the second one `next` bytes
// further, or 32 of four (F32, two registers).
#pragma once
#include "linear.h"
#include "q8_rows.h"

namespace helios {

// The vector for G groups, and the number of groups in the widest register.
template <int G>
struct GroupVectorOf;
template <>
struct GroupVectorOf<1> {
  using type = F8;
};
template <>
struct GroupVectorOf<2> {
  using type = F16;
};
template <int G>
using GroupVector = typename GroupVectorOf<G>::type;
#if defined(HELIOS_AVX512)
using F32 = Pair<F16>;
template <>
struct GroupVectorOf<4> {
  using type = F32;
};
constexpr int kVectorGroups = 2, kSweepVectorGroups = 4;
constexpr int kRegisterTokens = 8;  // whose sums fit the registers beside the weights of a block
#else
constexpr int kVectorGroups = 1, kSweepVectorGroups = 1;
constexpr int kRegisterTokens = 4;
#endif

// The fp16 scales at p for the rows of V.
template <class V>
HELIOS_INLINE V load_halves(const uint8_t* p, int64_t next);
template <>
HELIOS_INLINE F8 load_halves<F8>(const uint8_t* p, int64_t) {
  return load_as_float<F8>((const Half*)p);
}
#if defined(HELIOS_AVX512)
template <>
HELIOS_INLINE F16 load_halves<F16>(const uint8_t* p, int64_t next) {
  return (F16)_mm512_cvtph_ps(
      _mm256_inserti128_si256(_mm256_castsi128_si256(load<__m128i>(p)), load<__m128i>(p + next), 1));
}
template <>
HELIOS_INLINE F32 load_halves<F32>(const uint8_t* p, int64_t next) {
  return {load_halves<F16>(p, next), load_halves<F16>(p + 2 * next, next)};
}
// The 32 bytes at p in the low half, those of the next group in the high half.
HELIOS_INLINE __m512i load_two_groups(const uint8_t* p, int64_t next) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(load<__m256i>(p)), load<__m256i>(p + next), 1);
}
#endif
HELIOS_INLINE int32_t quad_bits(const int8_t* q) {  // 4 activations
  int32_t bits;
  memcpy(&bits, q, 4);
  return bits;
}

constexpr int kQuads = 8, kHalfQuads = kQuads / 2;  // of a block: vectors of 4 consecutive inputs for each row

// acc + d * (s0 * lower + s1 * upper), for the two halves of a block. AVX2 has the registers for one product a token: the halves
// are summed first, a multiply fewer. AVX-512 has room for both, and there the order was chosen by the agreement with other
// implementations' answers (docs/performance.md). One target has one order, so the bits stay the same for any tile or task.
template <class V>
HELIOS_INLINE V add_halves(V acc, V lower, V upper, V d, const float* s) {
#if defined(HELIOS_AVX512)
  acc = fma(lower, d * splat<V>(s[0]), acc);
  return fma(upper, d * splat<V>(s[1]), acc);
#else
  return fma(fma(upper, splat<V>(s[1]), lower * splat<V>(s[0])), d, acc);
#endif
}

template <class Block>
struct BlockFormat {
  static constexpr int kInputs = kBlock, kGroups = kVectorGroups, kSweepGroups = kSweepVectorGroups,
                       kFewTokens = Block::kFewTokens, kTaskScale = Block::kTaskScale;
  static constexpr int64_t kAheadBytes = 5120;  // of each stream; half and twice as much are slower for some format or number of tokens
  using Input = Q8Rows;

  static Size group_nbytes(int32_t n_in) { return Size(n_in / kBlock) * Block::kNbytes; }
  static Size input_nbytes(int32_t rows_capacity, int32_t n_in) { return q8_rows_nbytes(rows_capacity, n_in); }

  // Fetches what each stream needs kAheadBytes after block b, at w. Past a stream's end that lies in the next groups, which this
  // thread or its neighbour takes next; the streams advance together, so it is as far into those.
  template <class V>
  static HELIOS_INLINE void prefetch_ahead(const uint8_t* w, int64_t next, int32_t b) {
    constexpr int kStreams = Lanes<V>::n / kGroup;
    const int64_t n_groups_on = (b * int64_t(Block::kNbytes) + kAheadBytes) / next;
    const uint8_t* ahead = w + kAheadBytes + n_groups_on * (kStreams - 1) * next;
    for (int line = 0; line * 64 < Block::kNbytes; line++)
      for (int g = 0; g < kStreams; g++) prefetch(ahead + g * next + 64 * line);
  }

  // A few tokens: the sums stay in registers, each unpacked vector serves T tokens.
  template <class V, int T>
  static HELIOS_INLINE void tile(const uint8_t* w, const Q8Rows& x, int32_t first_token, float* sums) {
    const int64_t next = int64_t(x.n_blocks) * Block::kNbytes;
    V acc[T];
    HELIOS_UNROLL
    for (int t = 0; t < T; t++) acc[t] = splat<V>(0.f);
    const int8_t* q = x.q + x.at(0, first_token) * kBlock;
    const float* s = x.scales + x.at(0, first_token) * kScales;
    for (int32_t b = 0; b < x.n_blocks;
         b++, w += Block::kNbytes, q += int64_t(x.n_rows) * kBlock, s += int64_t(x.n_rows) * kScales) {
      prefetch_ahead<V>(w, next, b);
      const typename Block::template Weights<V> weights(w, next);
      HELIOS_UNROLL
      for (int t = 0; t < T; t++)
        acc[t] = weights.add(acc[t], typename Block::template Products<V>(weights, q + kBlock * t), s + kScales * t);
    }
    HELIOS_UNROLL
    for (int t = 0; t < T; t++) store(sums + Lanes<V>::n * t, acc[t]);
  }

  // Up to kTokens tokens: the unpacked vectors of a block stay in registers, the sums are in the first cache. Where there
  // are registers for it, the tail of token t-1 is issued after the integer part of token t (4 % with AVX-512; with the 16
  // registers of AVX2 it would cost 7 %).
  template <class V>
  static __attribute__((noinline)) void sweep(const uint8_t* w, const Q8Rows& x, int32_t first_token, int32_t n,
                                              float* sums) {
    using Products = typename Block::template Products<V>;
    const int64_t next = int64_t(x.n_blocks) * Block::kNbytes;
    memset(sums, 0, sizeof(V) * size_t(n));
    for (int32_t b = 0; b < x.n_blocks; b++, w += Block::kNbytes) {
      prefetch_ahead<V>(w, next, b);
      typename Block::template Weights<V> weights(w, next);
      weights.keep_in_registers();
      const int8_t* q = x.q + x.at(b, first_token) * kBlock;
      const float* s = x.scales + x.at(b, first_token) * kScales;
      float* acc = sums;
      if constexpr (Lanes<V>::n == 2 * kGroup) {
        Products previous(weights, q);
        for (int32_t t = 1; t < n; t++, s += kScales, acc += Lanes<V>::n) {
          q += kBlock;
          const Products current(weights, q);
          store(acc, weights.add(load<V>(acc), previous, s));
          previous = current;
        }
        store(acc, weights.add(load<V>(acc), previous, s));
      } else {
        for (int32_t t = 0; t < n; t++, q += kBlock, s += kScales, acc += Lanes<V>::n)
          store(acc, weights.add(load<V>(acc), Products(weights, q), s));
      }
    }
  }

  template <class V, int kMost>
  static HELIOS_INLINE void tile_of(const uint8_t* w, const Q8Rows& x, int32_t first_token, int32_t n, float* sums) {
    if (n == kMost) return tile<V, kMost>(w, x, first_token, sums);
    if constexpr (kMost > 1) tile_of<V, kMost - 1>(w, x, first_token, n, sums);
  }

  template <int G>
  static void compute(const uint8_t* w, const Q8Rows& x, int32_t first_token, int32_t n_tokens, float* sums) {
    using V = GroupVector<G>;
    if constexpr (G <= kGroups) {
      if (n_tokens <= kFewTokens) return tile_of<V, kFewTokens>(w, x, first_token, n_tokens, sums);
    }
    sweep<V>(w, x, first_token, n_tokens, sums);
  }
};

}  // namespace helios
