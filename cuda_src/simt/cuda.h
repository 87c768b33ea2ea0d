// The names of CUDA C++ that the kernels use, over the emulator: what nvcc and its headers provide, for a C++ compiler.
// Only what is used is here. Arithmetic is IEEE single and double precision, without contraction, on both sides.
#pragma once
#include <math.h>

#include <type_traits>

#include "emulator.h"
#include "instructions.h"
#include "warpgroup.h"

#define __global__
#define __device__
#define __host__
#define HELIOS_UNROLL
#define HELIOS_NO_UNROLL
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

#define threadIdx (helios::simt::current->thread->index)
#define blockIdx (helios::simt::current->index)
#define blockDim (helios::simt::current->size)
#define gridDim (helios::simt::current->grid)

#define HELIOS_SITE(what) (helios::simt::Site{what, __FILE__, __LINE__})
#define HELIOS_LANE (helios::simt::current->thread->lane)
#define __syncthreads() ((void)helios::simt::barrier(HELIOS_SITE("__syncthreads"), 0, 0, helios::simt::either))
#define __syncthreads_and(v) helios::simt::barrier(HELIOS_SITE("__syncthreads_and"), (v) != 0, 1, helios::simt::both)
#define __syncthreads_or(v) helios::simt::barrier(HELIOS_SITE("__syncthreads_or"), (v) != 0, 0, helios::simt::either)
#define __shfl_sync(mask, v, lane) helios::simt::shuffle(mask, v, lane, HELIOS_SITE("__shfl_sync"))
#define __shfl_xor_sync(mask, v, bits) \
  helios::simt::shuffle(mask, v, HELIOS_LANE ^ (bits), HELIOS_SITE("__shfl_xor_sync"))
#define __ballot_sync(mask, vote) helios::simt::ballot(mask, (vote) != 0, HELIOS_SITE("__ballot_sync"))
#define __syncwarp() ((void)helios::simt::ballot(0xffffffffu, false, HELIOS_SITE("__syncwarp")))

// Arrays in shared memory are asked for by name, so that the emulator can fill them, fence them and give each block its
// own.
#define HELIOS_SHARED(type, name, n)       \
  static const char helios_key_##name = 0; \
  type(&name)[n] = *static_cast<type(*)[n]>(helios::simt::shared_array(&helios_key_##name, #name, sizeof(type) * (n)))

#define HELIOS_DYNAMIC_SHARED(type, name)                                              \
  static const char helios_key_##name = 0;                                             \
  type* name = static_cast<type*>(helios::simt::shared_array(&helios_key_##name, #name, \
                                                             helios::simt::current->dynamic_shared_nbytes))

namespace helios::simt {

inline int either(int a, int b) { return a | b; }
inline int both(int a, int b) { return a & b; }

}  // namespace helios::simt

struct __half {
  uint16_t bits;
};
inline float __half2float(__half v) { return helios::simt::half_to_float(v.bits); }
inline __half __float2half_rn(float v) { return {helios::simt::float_to_half(v)}; }
inline __half __ushort_as_half(uint16_t bits) { return {bits}; }
struct __nv_bfloat16 {
  uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 v) {
  const uint32_t bits = uint32_t(v.bits) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t __float_as_uint(float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}
inline int __float2int_rn(float v) { return int(lrintf(v)); }
inline unsigned long long __double2ull_rn(double v) { return (unsigned long long)llrint(v); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __popc(uint32_t v) { return __builtin_popcount(v); }
inline int __dp4a(int a, int b, int sum) {
  for (int shift = 0; shift < 32; shift += 8) sum += int(int8_t(a >> shift)) * int(int8_t(b >> shift));
  return sum;
}

// The fibers of a block never run at the same time, and no kernel shares a word between blocks: plain sums are atomic.
template <class T>
inline T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
