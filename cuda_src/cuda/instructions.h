// The instructions that C++ has no words for, by inline PTX; ../simt/instructions.h has the same for the emulator.
// A warp's matrices of bf16 or f16, two elements to a register, the first in its low half; with g = lane / 4, t = lane % 4:
//   a 16 x 16: a[0] row g, columns 2t and 2t+1; a[1] row g+8; a[2] and a[3] the same 8 columns on.
//   b 16 x 8:  b[0] rows 2t and 2t+1 of column g; b[1] 8 rows on.
//   d 16 x 8:  d[0] and d[1] row g, columns 2t and 2t+1; d[2] and d[3] row g+8.
#pragma once
#include <stdint.h>

namespace helios::cuda {

static __device__ __forceinline__ uint32_t shared_address(const void* p) {
  return uint32_t(__cvta_generic_to_shared(p));
}

// d += a * b.
static __device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void multiply_add_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ldmatrix: 8 x 8 matrices of 16-bit elements from shared memory; lane 8i + j names row j (16 bytes) of matrix i, and gets
// in m[i] the elements 2t and 2t+1 of row g. Transposed: rows 2t and 2t+1 of column g.
static __device__ __forceinline__ void load_matrices(uint32_t (&m)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(m[0]), "=r"(m[1])
               : "r"(shared_address(row))
               : "memory");
}
static __device__ __forceinline__ void load_matrices(uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}
static __device__ __forceinline__ void load_transposed(uint32_t (&m)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(m[0]), "=r"(m[1])
               : "r"(shared_address(row))
               : "memory");
}
static __device__ __forceinline__ void load_transposed(uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}

// Two floats rounded to bf16, or to f16, to nearest even.
static __device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
static __device__ __forceinline__ uint32_t pack_f16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
// The sums of two pairs of bf16 (as a * 1 + b: sm_80 has no other way).
static __device__ __forceinline__ uint32_t add_bf16(uint32_t a, uint32_t b) {
  uint32_t pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(pair) : "r"(a), "r"(0x3f803f80u), "r"(b));
  return pair;
}

// cp.async: 4 or 16 bytes into shared memory. `is_there` false: zeros, and `from` is not read.
static __device__ __forceinline__ void copy_async_4(void* to, const void* from, bool is_there = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared_address(to)), "l"(from),
               "r"(is_there ? 4 : 0)
               : "memory");
}
static __device__ __forceinline__ void copy_async_16(void* to, const void* from, bool is_there = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
}
static __device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Until at most the last kPending groups of the calling thread are under way.
template <int kPending>
static __device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Programmatic dependent launch, a no-op before sm_90: until the kernel before this one has ended and its writes are
// seen; and the kernel after this one may be started.
static __device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}
static __device__ __forceinline__ void start_kernel_after() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

}  // namespace helios::cuda
