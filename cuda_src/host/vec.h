// Vectors of 4, 8 and 16 floats and the few operations that the host kernels need, the same source for every target.
// The widest register of the target holds one vector; a wider vector is a pair of halves, so lanes and their order
// never depend on the target. Every function here is lane by lane except those named sum_ and max_. Bits: one target
// always gives the same bits; targets differ (baseline x86-64 has no fused multiply-add and rounds twice).
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12's own AVX-512 intrinsics set it off
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace helios {

#define HELIOS_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define HELIOS_UNROLL _Pragma("unroll")
#else
#define HELIOS_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HELIOS_AVX2 1
#endif
#if defined(HELIOS_AVX2) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__)
#define HELIOS_AVX512 1
#endif

// No instruction. It keeps GCC from reassociating integer sums across the point, which would hoist all the products of
// a block and spill them (61 stores in a tile of 8; 20 % of the speed). Intrinsics alone do not protect from that.
#if defined(HELIOS_AVX512)
#define HELIOS_FENCE(x) asm("" : "+v"(x))
#elif defined(HELIOS_AVX2)
#define HELIOS_FENCE(x) asm("" : "+x"(x))
#endif

typedef float F4 __attribute__((vector_size(16)));
typedef int32_t I4 __attribute__((vector_size(16)));

// A vector twice as wide as H.
template <class H>
struct Pair {
  H lo, hi;
};
template <class H>
HELIOS_INLINE Pair<H> operator+(Pair<H> a, Pair<H> b) {
  return {a.lo + b.lo, a.hi + b.hi};
}
template <class H>
HELIOS_INLINE Pair<H> operator-(Pair<H> a, Pair<H> b) {
  return {a.lo - b.lo, a.hi - b.hi};
}
template <class H>
HELIOS_INLINE Pair<H> operator*(Pair<H> a, Pair<H> b) {
  return {a.lo * b.lo, a.hi * b.hi};
}
template <class H>
HELIOS_INLINE Pair<H> operator/(Pair<H> a, Pair<H> b) {
  return {a.lo / b.lo, a.hi / b.hi};
}
template <class H>
HELIOS_INLINE Pair<H> operator&(Pair<H> a, Pair<H> b) {
  return {a.lo & b.lo, a.hi & b.hi};
}
template <class H>
HELIOS_INLINE Pair<H> operator<<(Pair<H> a, int n) {
  return {a.lo << n, a.hi << n};
}
template <class H>
HELIOS_INLINE Pair<H> operator>>(Pair<H> a, int n) {
  return {a.lo >> n, a.hi >> n};
}

#if defined(HELIOS_AVX2)
typedef float F8 __attribute__((vector_size(32)));
typedef int32_t I8 __attribute__((vector_size(32)));
#else
using F8 = Pair<F4>;
using I8 = Pair<I4>;
#endif
#if defined(HELIOS_AVX512)
typedef float F16 __attribute__((vector_size(64)));
typedef int32_t I16 __attribute__((vector_size(64)));
#else
using F16 = Pair<F8>;
using I16 = Pair<I8>;
#endif

// The widest vector in one register.
#if defined(HELIOS_AVX512)
using Wide = F16;
#elif defined(HELIOS_AVX2)
using Wide = F8;
#else
using Wide = F4;
#endif

template <class V>
struct Lanes;
template <>
struct Lanes<F4> {
  using Int = I4;
  static constexpr int n = 4;
};
template <>
struct Lanes<F8> {
  using Int = I8;
  static constexpr int n = 8;
};
template <>
struct Lanes<F16> {
  using Int = I16;
  static constexpr int n = 16;
};
template <>
struct Lanes<Pair<F16>> {
  static constexpr int n = 32;
};

// Memory. No alignment is assumed: an aligned address costs nothing extra on the targets that matter.
template <class V>
HELIOS_INLINE V load(const void* p) {
  V v;
  memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
HELIOS_INLINE void store(void* p, V v) {
  memcpy(p, &v, sizeof v);
}
template <class To, class From>
HELIOS_INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

template <class V>
struct Splat {
  template <class E>
  static HELIOS_INLINE V of(E v) {
    using H = decltype(V::lo);
    return {Splat<H>::of(v), Splat<H>::of(v)};
  }
};
template <>
struct Splat<F4> {
  static HELIOS_INLINE F4 of(float v) { return F4{v, v, v, v}; }
};
template <>
struct Splat<I4> {
  static HELIOS_INLINE I4 of(int32_t v) { return I4{v, v, v, v}; }
};
#if defined(HELIOS_AVX2)
template <>
struct Splat<F8> {
  static HELIOS_INLINE F8 of(float v) { return (F8)_mm256_set1_ps(v); }
};
template <>
struct Splat<I8> {
  static HELIOS_INLINE I8 of(int32_t v) { return (I8)_mm256_set1_epi32(v); }
};
#endif
#if defined(HELIOS_AVX512)
template <>
struct Splat<F16> {
  static HELIOS_INLINE F16 of(float v) { return (F16)_mm512_set1_ps(v); }
};
template <>
struct Splat<I16> {
  static HELIOS_INLINE I16 of(int32_t v) { return (I16)_mm512_set1_epi32(v); }
};
#endif
template <class V, class E>
HELIOS_INLINE V splat(E v) {
  return Splat<V>::of(v);
}

// a * b + c, one rounding where the target has the instruction.
HELIOS_INLINE F4 fma(F4 a, F4 b, F4 c) {
#if defined(__FMA__)
  return (F4)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#elif defined(__aarch64__)
  return (F4)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
HELIOS_INLINE float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// The smaller or larger of two lanes; b when a lane of either is NaN.
HELIOS_INLINE F4 min(F4 a, F4 b) { return a < b ? a : b; }
HELIOS_INLINE F4 max(F4 a, F4 b) { return a > b ? a : b; }
HELIOS_INLINE I4 max(I4 a, I4 b) { return a > b ? a : b; }
// Lanes of all ones where a > b (never for NaN), and the lanes of a where `where` is set, else of b.
HELIOS_INLINE I4 greater(F4 a, F4 b) { return a > b; }
HELIOS_INLINE I4 greater(I4 a, I4 b) { return a > b; }
HELIOS_INLINE F4 choose(I4 where, F4 a, F4 b) { return where ? a : b; }
HELIOS_INLINE I4 choose(I4 where, I4 a, I4 b) { return where ? a : b; }
HELIOS_INLINE F4 to_float(I4 v) { return __builtin_convertvector(v, F4); }
// Nearest integer, even on a tie, for |v| < 2^22 (adding 1.5 * 2^23 leaves no room for a fraction).
HELIOS_INLINE I4 round_to_int(F4 v) {
  const F4 magic = splat<F4>(12582912.f);
  return __builtin_convertvector((v + magic) - magic, I4);
}
// 2^n for -126 <= n <= 127.
HELIOS_INLINE F4 power_of_two(I4 n) { return bits_as<F4>((n + 127) << 23); }
HELIOS_INLINE I4 magnitude_bits(F4 v) { return bits_as<I4>(v) & 0x7fffffff; }
HELIOS_INLINE float sum_lanes(F4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }
HELIOS_INLINE int32_t sum_lanes(I4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }
HELIOS_INLINE int32_t max_lanes(I4 v) {
  const int32_t a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
}
HELIOS_INLINE float max_lanes(F4 v) {
  float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
}

#if defined(HELIOS_AVX2)
HELIOS_INLINE F8 fma(F8 a, F8 b, F8 c) { return (F8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
HELIOS_INLINE F8 min(F8 a, F8 b) { return (F8)_mm256_min_ps((__m256)a, (__m256)b); }
HELIOS_INLINE F8 max(F8 a, F8 b) { return (F8)_mm256_max_ps((__m256)a, (__m256)b); }
HELIOS_INLINE I8 max(I8 a, I8 b) { return (I8)_mm256_max_epi32((__m256i)a, (__m256i)b); }
HELIOS_INLINE I8 greater(F8 a, F8 b) { return a > b; }
HELIOS_INLINE I8 greater(I8 a, I8 b) { return a > b; }
HELIOS_INLINE F8 choose(I8 where, F8 a, F8 b) { return where ? a : b; }
HELIOS_INLINE I8 choose(I8 where, I8 a, I8 b) { return where ? a : b; }
HELIOS_INLINE F8 to_float(I8 v) { return (F8)_mm256_cvtepi32_ps((__m256i)v); }
HELIOS_INLINE I8 round_to_int(F8 v) { return (I8)_mm256_cvtps_epi32((__m256)v); }
HELIOS_INLINE F8 power_of_two(I8 n) { return bits_as<F8>((n + 127) << 23); }
HELIOS_INLINE I8 magnitude_bits(F8 v) { return bits_as<I8>(v) & 0x7fffffff; }
HELIOS_INLINE float sum_lanes(F8 v) {
  return sum_lanes((F4)_mm256_castps256_ps128((__m256)v) + (F4)_mm256_extractf128_ps((__m256)v, 1));
}
HELIOS_INLINE int32_t sum_lanes(I8 v) {
  return sum_lanes((I4)_mm256_castsi256_si128((__m256i)v) + (I4)_mm256_extracti128_si256((__m256i)v, 1));
}
HELIOS_INLINE int32_t max_lanes(I8 v) {
  return max_lanes((I4)_mm_max_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1)));
}
HELIOS_INLINE float max_lanes(F8 v) {
  return max_lanes(max((F4)_mm256_castps256_ps128((__m256)v), (F4)_mm256_extractf128_ps((__m256)v, 1)));
}
#endif
#if defined(HELIOS_AVX512)
HELIOS_INLINE F8 low_half(F16 v) { return (F8)_mm512_castps512_ps256((__m512)v); }
HELIOS_INLINE F8 high_half(F16 v) { return (F8)_mm512_extractf32x8_ps((__m512)v, 1); }
HELIOS_INLINE F16 fma(F16 a, F16 b, F16 c) { return (F16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
HELIOS_INLINE F16 min(F16 a, F16 b) { return (F16)_mm512_min_ps((__m512)a, (__m512)b); }
HELIOS_INLINE F16 max(F16 a, F16 b) { return (F16)_mm512_max_ps((__m512)a, (__m512)b); }
HELIOS_INLINE I16 greater(F16 a, F16 b) { return a > b; }
HELIOS_INLINE I16 greater(I16 a, I16 b) { return a > b; }
HELIOS_INLINE F16 choose(I16 where, F16 a, F16 b) { return where ? a : b; }
HELIOS_INLINE I16 choose(I16 where, I16 a, I16 b) { return where ? a : b; }
HELIOS_INLINE F16 to_float(I16 v) { return (F16)_mm512_cvtepi32_ps((__m512i)v); }
HELIOS_INLINE I16 round_to_int(F16 v) { return (I16)_mm512_cvtps_epi32((__m512)v); }
HELIOS_INLINE F16 power_of_two(I16 n) { return bits_as<F16>((n + 127) << 23); }
HELIOS_INLINE float sum_lanes(F16 v) { return sum_lanes(low_half(v) + high_half(v)); }
HELIOS_INLINE float max_lanes(F16 v) { return max_lanes(max(low_half(v), high_half(v))); }
#endif

template <class H>
HELIOS_INLINE Pair<H> fma(Pair<H> a, Pair<H> b, Pair<H> c) {
  return {fma(a.lo, b.lo, c.lo), fma(a.hi, b.hi, c.hi)};
}
template <class H>
HELIOS_INLINE Pair<H> min(Pair<H> a, Pair<H> b) {
  return {min(a.lo, b.lo), min(a.hi, b.hi)};
}
template <class H>
HELIOS_INLINE Pair<H> max(Pair<H> a, Pair<H> b) {
  return {max(a.lo, b.lo), max(a.hi, b.hi)};
}
template <class H>
HELIOS_INLINE auto greater(Pair<H> a, Pair<H> b) -> Pair<decltype(greater(a.lo, b.lo))> {
  return {greater(a.lo, b.lo), greater(a.hi, b.hi)};
}
template <class C, class H>
HELIOS_INLINE Pair<H> choose(Pair<C> where, Pair<H> a, Pair<H> b) {
  return {choose(where.lo, a.lo, b.lo), choose(where.hi, a.hi, b.hi)};
}
template <class H>
HELIOS_INLINE auto to_float(Pair<H> v) -> Pair<decltype(to_float(v.lo))> {
  return {to_float(v.lo), to_float(v.hi)};
}
template <class H>
HELIOS_INLINE auto round_to_int(Pair<H> v) -> Pair<decltype(round_to_int(v.lo))> {
  return {round_to_int(v.lo), round_to_int(v.hi)};
}
template <class H>
HELIOS_INLINE auto power_of_two(Pair<H> n) -> Pair<decltype(power_of_two(n.lo))> {
  return {power_of_two(n.lo), power_of_two(n.hi)};
}
template <class H>
HELIOS_INLINE auto magnitude_bits(Pair<H> v) -> Pair<decltype(magnitude_bits(v.lo))> {
  return {magnitude_bits(v.lo), magnitude_bits(v.hi)};
}
template <class H>
HELIOS_INLINE auto sum_lanes(Pair<H> v) {
  return sum_lanes(v.lo + v.hi);
}
template <class H>
HELIOS_INLINE auto max_lanes(Pair<H> v) {
  return max_lanes(max(v.lo, v.hi));
}

// The low bytes of 32 lanes.
HELIOS_INLINE void store_low_bytes(int8_t* p, const I8 (&v)[4]) {
#if defined(HELIOS_AVX2)
  const __m256i a = _mm256_packs_epi32((__m256i)v[0], (__m256i)v[1]),
                b = _mm256_packs_epi32((__m256i)v[2], (__m256i)v[3]);
  const __m256i mixed = _mm256_packs_epi16(a, b);  // within halves of 128 bits; put the words of 4 bytes in order
  store(p, _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
#else
  int32_t lanes[32];
  for (int i = 0; i < 4; i++) store(lanes + 8 * i, v[i]);
  for (int i = 0; i < 32; i++) p[i] = int8_t(lanes[i]);
#endif
}

// IEEE half precision.
HELIOS_INLINE float half_to_float(uint16_t h) {
#if defined(HELIOS_AVX2)
  return _cvtsh_ss(h);
#else
  const uint32_t magnitude = uint32_t(h & 0x7fff) << 13;
  const float scaled =
      bits_as<float>(magnitude) * bits_as<float>(uint32_t(0x77800000));  // * 2^112: also right for subnormals
  const uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;    // infinity and NaN keep their mantissa
  return bits_as<float>(bits_as<uint32_t>(scaled) | special | uint32_t(h & 0x8000) << 16);
#endif
}
HELIOS_INLINE uint16_t float_to_half(float f) {  // to nearest, even on a tie
#if defined(HELIOS_AVX2)
  return _cvtss_sh(f, 0);
#else
  const uint32_t w = bits_as<uint32_t>(f), twice = w + w;
  float base =
      (bits_as<float>(w & 0x7fffffffu) * 0x1.0p+112f) * 0x1.0p-110f;  // overflow to infinity, then room for rounding
  uint32_t bias = twice & 0xff000000u;
  if (bias < 0x71000000u) bias = 0x71000000u;
  base = bits_as<float>((bias >> 1) + 0x07800000u) + base;
  const uint32_t bits = bits_as<uint32_t>(base), finite = ((bits >> 13) & 0x7c00u) + (bits & 0xfffu);
  return uint16_t((w >> 16 & 0x8000u) | (twice > 0xff000000u ? 0x7e00u : finite));
#endif
}
HELIOS_INLINE float bfloat_to_float(uint16_t h) { return bits_as<float>(uint32_t(h) << 16); }

// Load elements of a storage type as floats.
struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};
HELIOS_INLINE float element_to_float(float v) { return v; }
HELIOS_INLINE float element_to_float(Half v) { return half_to_float(v.bits); }
HELIOS_INLINE float element_to_float(Bfloat v) { return bfloat_to_float(v.bits); }

template <class V, class E>
HELIOS_INLINE V load_as_float(const E* p) {
  float lanes[Lanes<V>::n];
  for (int i = 0; i < Lanes<V>::n; i++) lanes[i] = element_to_float(p[i]);
  return load<V>(lanes);
}
#if !defined(HELIOS_AVX2)
typedef uint16_t H4 __attribute__((vector_size(8)));
template <>
HELIOS_INLINE F4 load_as_float<F4, Half>(const Half* p) {  // half_to_float, lane by lane
  const I4 h = __builtin_convertvector(load<H4>(p), I4);
  const F4 scaled = bits_as<F4>((h & 0x7fff) << 13) * splat<F4>(bits_as<float>(uint32_t(0x77800000)));
  const I4 special = ((h & 0x7c00) == 0x7c00) & 0x7f800000;
  return bits_as<F4>(bits_as<I4>(scaled) | special | (h & 0x8000) << 16);
}
template <>
HELIOS_INLINE F8 load_as_float<F8, Half>(const Half* p) {
  return {load_as_float<F4>(p), load_as_float<F4>(p + 4)};
}
template <>
HELIOS_INLINE F16 load_as_float<F16, Half>(const Half* p) {
  return {load_as_float<F8>(p), load_as_float<F8>(p + 8)};
}
#endif
#if defined(HELIOS_AVX2)
template <>
HELIOS_INLINE F8 load_as_float<F8, float>(const float* p) {
  return load<F8>(p);
}
template <>
HELIOS_INLINE F8 load_as_float<F8, Half>(const Half* p) {
  return (F8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
}
template <>
HELIOS_INLINE F8 load_as_float<F8, Bfloat>(const Bfloat* p) {
  return (F8)_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}
#if defined(HELIOS_AVX512)
template <>
HELIOS_INLINE F16 load_as_float<F16, Half>(const Half* p) {
  return (F16)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}
#else
template <>
HELIOS_INLINE F16 load_as_float<F16, Half>(const Half* p) {
  return {load_as_float<F8>(p), load_as_float<F8>(p + 8)};
}
#endif
#endif

// e^x, about 1 ulp: degree 6 on [-ln2/2, ln2/2]. Clamped to [-87, 88], so it is never 0 and never infinite; NaN stays
// NaN.
template <class V>
HELIOS_INLINE V exp(V x) {
  x = max(splat<V>(-87.f), min(splat<V>(88.f), x));
  const auto n = round_to_int(x * splat<V>(1.44269504f));
  const V whole = to_float(n);
  V r = fma(whole, splat<V>(-0.693359375f), x);
  r = fma(whole, splat<V>(2.12194440e-4f), r);
  V p = splat<V>(1.f / 720);
  p = fma(p, r, splat<V>(1.f / 120));
  p = fma(p, r, splat<V>(1.f / 24));
  p = fma(p, r, splat<V>(1.f / 6));
  p = fma(p, r, splat<V>(0.5f));
  p = fma(p, r, splat<V>(1.f));
  p = fma(p, r, splat<V>(1.f));
  return p * power_of_two(n);
}
template <class V>
HELIOS_INLINE V silu(V x) {
  return x / (splat<V>(1.f) + exp(splat<V>(0.f) - x));
}

HELIOS_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
// For writing: takes the line from the other processors' caches. Written out, because compilers make a prefetch for reading of
// it unless told that the processor has this; one that does not ignores it.
HELIOS_INLINE void prefetch_to_write(const void* p) {
#if defined(__x86_64__)
  asm volatile("prefetchw (%0)" ::"r"(p));
#else
  __builtin_prefetch(p, 1, 3);
#endif
}
HELIOS_INLINE void prefetch_outer(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace helios
