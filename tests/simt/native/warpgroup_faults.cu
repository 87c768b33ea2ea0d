// Kernels for the tests of the emulator's sm_90a: right ones, and the same with one planted fault each.
#include "simt/cuda.h"

#include <string.h>

namespace {

using namespace helios::cuda;

constexpr int kThreads = 128, kSteps = 4, kSlots = 2, kN = 32, kMatrix = 16 * kN, kMatrixNbytes = 2 * kMatrix;

struct Args {
  const uint16_t *left, *right;
  float* to;
  int fault;
};

// 64 x 64 times 64 x 32, by steps of 16. `left` is bf16 by rows, `right` kSteps matrices as core matrices: 8 rows of the
// first column, of the next ..., then the other 8 rows of each. The first is copied by cp.async, the others in bulk,
// through two slots.
void product(const void* pointer) {
  const Args& a = *static_cast<const Args*>(pointer);
  HELIOS_DYNAMIC_SHARED(uint8_t, shared);
  const int me = int(threadIdx.x), lane = me % 32, row = me / 32 * 16 + lane / 4;
  uint64_t* barriers = reinterpret_cast<uint64_t*>(shared);
  uint8_t* slots = shared + 128;
  auto fetch = [&](int step) {
    if (me != 0 || step >= kSteps) return;
    const int expected = kMatrixNbytes + (a.fault == 3 ? -16 : a.fault == 4 ? 16 : 0);
    arrive_and_expect(barriers + step % kSlots, expected);
    copy_bulk(slots + step % kSlots * kMatrixNbytes, a.right + step * kMatrix, kMatrixNbytes / 2 - (a.fault == 5 ? 8 : 0),
              barriers + step % kSlots);
    copy_bulk(slots + step % kSlots * kMatrixNbytes + kMatrixNbytes / 2, a.right + step * kMatrix + kMatrix / 2,
              kMatrixNbytes / 2, barriers + step % kSlots);
  };
  if (me < kSlots && a.fault != 6) init_barrier(barriers + me, 1);
  if (me < kMatrixNbytes / 16) copy_async_16(slots + 16 * me, a.right + 8 * me);
  commit_copies();
  wait_copies<0>();
  if (a.fault != 7) fence_for_async();
  __syncthreads();
  fetch(1);
  float sum[kN / 2] = {};
  for (int step = 0; step < kSteps; step++) {
    const int uses = (step - (step % kSlots == 0 ? kSlots : 0)) / kSlots;  // of the slot, in bulk
    if (step != 0 && a.fault != 1) wait_for_phase(barriers + step % kSlots, a.fault == 2 ? 0 : uint32_t(uses % 2));
    uint32_t of_left[4];
    for (int i = 0; i < 4; i++)
      memcpy(&of_left[i], a.left + (row + i % 2 * 8) * 16 * kSteps + step * 16 + lane % 4 * 2 + i / 2 * 8, 4);
    float d[kN / 2] = {};
    const uint64_t right = matrix_in_shared(slots + step % kSlots * kMatrixNbytes, kMatrixNbytes / 2, 128);
    if (a.fault != 8) begin_products();
    if (a.fault != 9 || me < 96) multiply_async<false>(d, of_left, right);
    if (a.fault == 11) fetch(step + kSlots);
    if (a.fault != 10) end_products(d);
    for (int i = 0; i < kN / 2; i++) sum[i] += d[i];
    if (a.fault == 10) end_products(d);
    if (a.fault != 11) {
      __syncthreads();
      if (step == 0) fetch(2);
      if (step > 0) fetch(step + kSlots);
    }
  }
  for (int i = 0; i < kN / 2; i++)
    a.to[(row + i / 2 % 2 * 8) * kN + i / 4 * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

// Two teams of 64 threads; each reverses its own numbers `kSteps + team` times.
void teams(const void* pointer) {
  const Args& a = *static_cast<const Args*>(pointer);
  HELIOS_SHARED(float, shared, kThreads);
  const int me = int(threadIdx.x), team = me / 64;
  float mine = float(me);
  auto sync = [&](bool is_left_out) {
    if (is_left_out) return;
    if (team == 0) {
      sync_threads<1, 64>();
    } else {
      sync_threads<2, 64>();
    }
  };
  for (int round = 0; round < kSteps + team; round++) {
    shared[me] = mine;
    sync(a.fault == 1);
    mine = shared[me ^ 63];
    sync(a.fault == 2);
  }
  a.to[me] = mine;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void run_fault(const char* name, const void* left, const void* right,
                                                                 float* to, int fault, int order, uint64_t seed, int copies,
                                                                 int architecture, char* failure, size_t size) {
  using namespace helios::simt;
  set_conduct({Order(order), seed, Copies(copies), Architecture(architecture)});
  const Args args{static_cast<const uint16_t*>(left), static_cast<const uint16_t*>(right), to, fault};
  run_block(name, strcmp(name, "product") == 0 ? product : teams, &args, {1, kThreads, 128 + kSlots * kMatrixNbytes}, 0);
  strncpy(failure, helios::simt::failure().c_str(), size - 1);
}
