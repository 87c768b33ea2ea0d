// Kernels for the tests of the emulator: right ones, and the same with one planted fault each.
#include "simt/cuda.h"

#include <string.h>

namespace {

constexpr int kN = 64, kRounds = 3;

struct Args {
  const float* from;
  float* to;
  int fault;
};

// Reverses the block's numbers kRounds times through one array: a barrier before and a barrier after each use of it.
void reverse(const void* pointer) {
  const Args& a = *static_cast<const Args*>(pointer);
  HELIOS_SHARED(float, shared, kN);
  const int me = int(threadIdx.x);
  float mine = a.from[me];
  for (int round = 0; round < kRounds; round++) {
    shared[me] = mine;
    if (a.fault != 1) __syncthreads();
    mine = shared[kN - 1 - me];
    if (a.fault != 2) __syncthreads();
  }
  a.to[me] = mine;
}

// Two copies under way, used in turn: the wait leaves one of them.
void staged_copy(const void* pointer) {
  const Args& a = *static_cast<const Args*>(pointer);
  HELIOS_SHARED(float, shared, 2 * kN);
  const int me = int(threadIdx.x);
  for (int stage = 0; stage < 2; stage++) {
    helios::cuda::copy_async_4(&shared[stage * kN + me], &a.from[me]);
    helios::cuda::commit_copies();
  }
  if (a.fault == 1) {
    helios::cuda::wait_copies<2>();
  } else {
    helios::cuda::wait_copies<1>();
  }
  __syncthreads();
  a.to[me] = shared[kN - 1 - me];
  if (a.fault != 2) helios::cuda::wait_copies<0>();
}

void overrun(const void* pointer) {
  const Args& a = *static_cast<const Args*>(pointer);
  HELIOS_SHARED(float, shared, kN);
  shared[threadIdx.x + (a.fault == 1)] = a.from[threadIdx.x];
  __syncthreads();
  a.to[threadIdx.x] = shared[threadIdx.x];
}

void diverge(const void* pointer) {
  const Args& a = *static_cast<const Args*>(pointer);
  const int me = int(threadIdx.x);
  float sum = a.from[me];
  if (a.fault == 1 && me == 3) {
    __syncthreads();
  } else if (a.fault == 2 && me % 32 >= 16) {
    __syncthreads();
  } else if (a.fault == 3 && me % 2) {
    sum += __shfl_sync(0xffffffffu, sum, 0);
  } else {
    for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
  }
  __syncthreads();
  a.to[me] = sum;
}

void vote(const void* pointer) {
  const Args& a = *static_cast<const Args*>(pointer);
  const uint32_t votes = __ballot_sync(0xffffffffu, a.from[threadIdx.x] > 0);
  const int all = __syncthreads_and(a.from[threadIdx.x] > 0), any = __syncthreads_or(a.from[threadIdx.x] > 0);
  a.to[threadIdx.x] = float(__popc(votes) + 100 * all + 1000 * any);
}

// d = a * b for a 16 x 16 and b 16 x 8: whole numbers in bf16, both row by row in shared memory by way of 16-byte copies.
// Faults: the copies are not waited for; matrix rows that are not aligned; columns read as rows.
void matrices(const void* pointer) {
  const Args& a = *static_cast<const Args*>(pointer);
  HELIOS_DYNAMIC_SHARED(uint16_t, shared);
  const int me = int(threadIdx.x), lane = me % 32;
  uint16_t *left = shared, *right = shared + 16 * 16;
  const uint16_t* from = reinterpret_cast<const uint16_t*>(a.from);
  if (me < 48) helios::cuda::copy_async_16(shared + 8 * me, from + 8 * me, me != 47);  // the last row of b is zeros
  helios::cuda::commit_copies();
  if (a.fault != 1) helios::cuda::wait_copies<0>();
  __syncthreads();
  if (me >= 32) {
    helios::cuda::wait_copies<0>();
    return;
  }
  uint32_t of_a[4], of_b[2];
  helios::cuda::load_matrices(of_a, left + lane % 16 * 16 + lane / 16 * 8 + (a.fault == 2));
  if (a.fault == 3) {
    helios::cuda::load_matrices(of_b, right + lane % 16 * 8);
  } else {
    helios::cuda::load_transposed(of_b, right + lane % 16 * 8);
  }
  float d[4] = {};
  helios::cuda::multiply_add(d, of_a, of_b);
  helios::cuda::wait_copies<0>();
  for (int i = 0; i < 4; i++) a.to[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}

struct Named {
  const char* name;
  helios::simt::Entry entry;
};
const Named kernels[] = {
    {"reverse", reverse}, {"staged_copy", staged_copy}, {"overrun", overrun},
                         {"diverge", diverge}, {"vote", vote}, {"matrices", matrices}};

}  // namespace

extern "C" __attribute__((visibility("default"))) void run_fault(const char* name, const float* from, float* to, int fault,
                                                                 int order, uint64_t seed, int copies, char* failure,
                                                                 size_t size) {
  helios::simt::set_conduct({helios::simt::Order(order), seed, helios::simt::Copies(copies)});
  const Args args{from, to, fault};
  for (const Named& kernel : kernels)
    if (strcmp(kernel.name, name) == 0) helios::simt::run_block(name, kernel.entry, &args, {1, kN, 48 * 16}, 0);
  strncpy(failure, helios::simt::failure().c_str(), size - 1);
}
