// What cuda/warpgroup.h has for a device, over the emulator. Copies that are deferred happen when a thread waits for their
// barrier, and products at once, so that a copy that was not waited for is missed; with eager copies a product happens when
// it is waited for, so that what is read or filled again before that shows. A rule of CUDA that the numbers would not
// always show is a failure that names file and line: see warpgroup.cpp.
#pragma once
#include "instructions.h"

namespace helios::simt {

uint32_t shared_address(const void* p, const Site& site);
void sync_threads(int id, int n_threads, const Site& site);
void init_barrier(uint64_t* barrier, int n_arrivals, const Site& site);
void arrive_and_expect(uint64_t* barrier, int nbytes, const Site& site);
void wait_for_phase(uint64_t* barrier, uint32_t parity, const Site& site);
void copy_bulk(void* to, const void* from, int nbytes, uint64_t* barrier, const Site& site);
void multiply_async(const Multiply& mine, const Site& site);
void end_products(const Site& site);

}  // namespace helios::simt

namespace helios::cuda {

inline bool has_warpgroups() { return simt::current->architecture == simt::Architecture::sm_90a; }

template <int kId, int kThreads>
void sync_threads(HELIOS_CALLER) {
  simt::sync_threads(kId, kThreads, simt::Site{"bar.sync", file, line});
}
inline void init_barrier(uint64_t* barrier, int n_arrivals, HELIOS_CALLER) {
  simt::init_barrier(barrier, n_arrivals, simt::Site{"mbarrier.init", file, line});
}
inline void arrive_and_expect(uint64_t* barrier, int nbytes, HELIOS_CALLER) {
  simt::arrive_and_expect(barrier, nbytes, simt::Site{"mbarrier.arrive.expect_tx", file, line});
}
inline void wait_for_phase(uint64_t* barrier, uint32_t parity, HELIOS_CALLER) {
  simt::wait_for_phase(barrier, parity, simt::Site{"mbarrier.try_wait", file, line});
}
inline void copy_bulk(void* to, const void* from, int nbytes, uint64_t* barrier, HELIOS_CALLER) {
  simt::copy_bulk(to, from, nbytes, barrier, simt::Site{"cp.async.bulk", file, line});
}
inline void fence_for_async() { simt::current->thread->has_unfenced_copies = false; }

inline uint64_t matrix_in_shared(const void* first, uint32_t leading_nbytes, uint32_t stride_nbytes, HELIOS_CALLER) {
  return uint64_t(simt::shared_address(first, simt::Site{"matrix_in_shared", file, line}) >> 4 & 0x3fffu) |
         uint64_t(leading_nbytes >> 4) << 16 | uint64_t(stride_nbytes >> 4) << 32;
}
inline void begin_products() { simt::current->thread->may_multiply = true; }
template <bool kAdds, int kN>
void multiply_async(float (&d)[kN], const uint32_t (&a)[4], uint64_t b, HELIOS_CALLER) {
  static_assert(kN == 4 || kN == 8 || kN == 16 || kN == 32, "n is 8, 16, 32 or 64");
  simt::multiply_async({d, b, {a[0], a[1], a[2], a[3]}, 2 * kN, kAdds}, simt::Site{"wgmma.mma_async", file, line});
}
template <int kN>
void end_products(float (&)[kN], HELIOS_CALLER) {
  simt::end_products(simt::Site{"wgmma.wait_group", file, line});
}

}  // namespace helios::cuda
