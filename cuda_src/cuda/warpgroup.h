// What sm_90a has beside the instructions of instructions.h, by inline PTX: copies that complete on a barrier in shared
// memory, and products of a warpgroup (four warps, the first a multiple of four). ../simt/warpgroup.h has the same for the
// emulator. Facts are of the PTX ISA, chapters mbarrier, cp.async.bulk, "Async proxy" and wgmma.
//
// Left operand, 64 x 16, in registers: warp w has rows 16w .. 16w+15, each lane the same elements as in `a` of mma.sync
// 16 x 16. Result, 64 x n: d[4j .. 4j+3] is the lane's `d` of mma.sync for columns 8j .. 8j+7.
// Right operand, 16 x n, in shared memory: 8 rows of one column are 16 bytes; 8 columns of them, one behind the other, a
// core matrix. Without a swizzle a descriptor says how far the core matrix of the next 8 rows is (its leading byte
// offset) and that of the next 8 columns (its stride byte offset).
#pragma once
#include <stdint.h>

#include "instructions.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HELIOS_SM_90A(...) __VA_ARGS__
#else
#define HELIOS_SM_90A(...)
#endif

namespace helios::cuda {

// Whether the code is for sm_90a: nothing below is called where it is not.
static __device__ __forceinline__ constexpr bool has_warpgroups() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  return true;
#else
  return false;
#endif
}

// A barrier for kThreads threads (whole warps). The id is known to the compiler, or the kernel takes all sixteen.
template <int kId, int kThreads>
static __device__ __forceinline__ void sync_threads() {
  static_assert(kId > 0 && kId < 16, "0 is the barrier of __syncthreads");
  asm volatile("bar.sync %0, %1;\n" ::"n"(kId), "n"(kThreads) : "memory");
}

// mbarrier: a phase ends when `n_arrivals` have arrived and all bytes that they expect have come; the next one begins.
// Phases have parity 0, 1, 0, ...
static __device__ __forceinline__ void init_barrier(uint64_t* barrier, int n_arrivals) {
  HELIOS_SM_90A(asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(n_arrivals)
                             : "memory"));
}
static __device__ __forceinline__ void arrive_and_expect(uint64_t* barrier, int nbytes) {
  HELIOS_SM_90A(asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)),
                             "r"(nbytes)
                             : "memory"));
}
// Until the phase of this parity has ended.
static __device__ __forceinline__ void wait_for_phase(uint64_t* barrier, uint32_t parity) {
  HELIOS_SM_90A(asm volatile("{\n.reg .pred ended;\nagain:\n"
                             "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
                             "@!ended bra again;\n}\n" ::"r"(shared_address(barrier)),
                             "r"(parity)
                             : "memory"));
}

// cp.async.bulk: nbytes into shared memory, both places and the size multiples of 16; they arrive at the barrier.
static __device__ __forceinline__ void copy_bulk(void* to, const void* from, int nbytes, uint64_t* barrier) {
  HELIOS_SM_90A(asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
          shared_address(to)),
      "l"(from), "r"(nbytes), "r"(shared_address(barrier))
      : "memory"));
}

// What the calling thread wrote into shared memory (barriers and cp.async too) is there for bulk copies and products.
static __device__ __forceinline__ void fence_for_async() {
  HELIOS_SM_90A(asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"));
}

// A descriptor without a swizzle.
static __device__ __forceinline__ uint64_t matrix_in_shared(const void* first, uint32_t leading_nbytes,
                                                            uint32_t stride_nbytes) {
  return uint64_t(shared_address(first) >> 4 & 0x3fffu) | uint64_t(leading_nbytes >> 4) << 16 |
         uint64_t(stride_nbytes >> 4) << 32;
}

// Before products whose registers were touched since the last ones.
static __device__ __forceinline__ void begin_products() {
  HELIOS_SM_90A(asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"));
}

#define HELIOS_FOUR(c, d, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define HELIOS_EIGHT(c, d, i) HELIOS_FOUR(c, d, i), HELIOS_FOUR(c, d, i + 4)
#define HELIOS_SIXTEEN(c, d, i) \
  HELIOS_FOUR(c, d, i), HELIOS_FOUR(c, d, i + 4), HELIOS_FOUR(c, d, i + 8), HELIOS_FOUR(c, d, i + 12)
#define HELIOS_THIRTY_TWO(c, d, i) HELIOS_SIXTEEN(c, d, i), HELIOS_SIXTEEN(c, d, i + 16)
#define HELIOS_SIXTEEN_NAMES "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define HELIOS_PRODUCT(n, list, c, names, a0, a1, a2, a3, at_b, scale)                                                 \
  HELIOS_SM_90A(asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" names "}, {%" #a0 ", %" #a1 \
                             ", %" #a2 ", %" #a3 "}, %" #at_b ", " scale ", 1, 1, 0;\n"                                \
                             : list(c, d, 0)                                                                          \
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)))
#define HELIOS_PRODUCTS(n, list, names, a0, a1, a2, a3, at_b)                                                    \
  template <bool kAdds>                                                                                         \
  static __device__ __forceinline__ void multiply_async(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b) { \
    if (kAdds) {                                                                                                \
      HELIOS_PRODUCT(n, list, "+f", names, a0, a1, a2, a3, at_b, "1");                                           \
    } else {                                                                                                    \
      HELIOS_PRODUCT(n, list, "=f", names, a0, a1, a2, a3, at_b, "0");                                           \
    }                                                                                                           \
  }

// d = a * b, or d += a * b when kAdds, under way until end_products. Neither d nor a may be touched before that.
HELIOS_PRODUCTS(8, HELIOS_FOUR, "%0, %1, %2, %3", 4, 5, 6, 7, 8)
HELIOS_PRODUCTS(16, HELIOS_EIGHT, "%0, %1, %2, %3, %4, %5, %6, %7", 8, 9, 10, 11, 12)
HELIOS_PRODUCTS(32, HELIOS_SIXTEEN, HELIOS_SIXTEEN_NAMES, 16, 17, 18, 19, 20)
HELIOS_PRODUCTS(64, HELIOS_THIRTY_TWO,
                HELIOS_SIXTEEN_NAMES ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31",
                32, 33, 34, 35, 36)

// Until all products of the warpgroup are done.
template <int kN>
static __device__ __forceinline__ void end_products(float (&d)[kN]) {
  HELIOS_SM_90A(asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n" ::: "memory"));
  HELIOS_UNROLL for (int i = 0; i < kN; i++) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace helios::cuda
