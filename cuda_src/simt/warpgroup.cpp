// The instructions of sm_90a over the emulator: named barriers, mbarriers, bulk copies and products of a warpgroup. Each
// warp of a warpgroup does its own rows of a product; that all four started the same ones is looked at when the block ends.
#include "warpgroup.h"

namespace helios::simt {

namespace {

// An mbarrier, in the eight bytes that CUDA gives it.
struct Phases {
  static constexpr uint8_t kMark = 0x6d;
  uint8_t mark, parity, n_arrivals, n_to_come;
  int32_t nbytes_to_come;
};
static_assert(sizeof(Phases) == sizeof(uint64_t), "one word");

Phases read(const uint64_t* barrier, const Site& site) {
  Phases phases;
  memcpy(&phases, barrier, sizeof phases);
  if (phases.mark != Phases::kMark) fail_here(site, "the mbarrier was not initialised");
  return phases;
}
void write(uint64_t* barrier, Phases phases) {
  if (phases.n_to_come == 0 && phases.nbytes_to_come == 0)
    phases.parity ^= 1, phases.n_to_come = phases.n_arrivals;
  memcpy(barrier, &phases, sizeof phases);
  wake(barrier);
}

void complete(const BulkCopy& bulk, const Site& site) {
  make(bulk.copy);
  Phases phases = read(bulk.barrier, site);
  phases.nbytes_to_come -= bulk.copy.nbytes;
  write(bulk.barrier, phases);
}
// The oldest copy under way that arrives at this barrier; whether there was one.
bool complete_one(const uint64_t* barrier, const Site& site) {
  auto& copies = current->bulk_copies;
  for (auto bulk = copies.begin(); bulk != copies.end(); ++bulk) {
    if (bulk->barrier != barrier) continue;
    const BulkCopy done = *bulk;
    copies.erase(bulk);
    complete(done, site);
    return true;
  }
  return false;
}

const unsigned char* in_shared(size_t offset, const Site& site) {
  if (offset + 16 > size_t(current->shared_end - current->shared_begin))
    fail_here(site, "a matrix lies outside shared memory");
  return current->shared_begin + offset;
}

void multiply(const WarpProduct& product, const Site& site) {
  const Multiply& first = product.lanes[0];
  const size_t start = (first.b & 0x3fff) << 4, leading = (first.b >> 16 & 0x3fff) << 4, stride = (first.b >> 32 & 0x3fff) << 4;
  float a[16][16];
  for (int lane = 0; lane < kWarp; lane++) spread<bf16_to_float>(a, product.lanes[lane].a, lane);
  for (int tile = 0; tile < first.n / 8; tile++) {
    Columns b[16], d[16];
    for (int k8 = 0; k8 < 2; k8++)
      for (int column = 0; column < 8; column++) {
        uint16_t elements[8];
        memcpy(elements, in_shared(start + size_t(k8) * leading + size_t(tile) * stride + size_t(column) * 16, site),
               sizeof elements);
        for (int k = 0; k < 8; k++) b[k8 * 8 + k][column] = bf16_to_float(elements[k]);
      }
    for (int lane = 0; lane < kWarp; lane++)
      for (int i = 0; i < 4; i++)
        d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = first.adds ? product.lanes[lane].d[tile * 4 + i] : 0.f;
    add_product(d, a, b);
    for (int lane = 0; lane < kWarp; lane++)
      for (int i = 0; i < 4; i++)
        product.lanes[lane].d[tile * 4 + i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

}  // namespace

void begin_asynchronous(Block& block) {
  for (int& n : block.n_in_named_barrier) n = 0;
  block.mbarriers.clear(), block.bulk_copies.clear();
  for (int i = 0; i < block.n_threads / kWarp; i++) {
    Warp& warp = block.warps[i];
    warp.products.clear();
    warp.n_products = warp.products_digest = 0;
  }
}

std::string unfinished(const Block& block) {
  if (!block.bulk_copies.empty()) return "ended with bulk copies that it did not wait for";
  for (const uint64_t* barrier : block.mbarriers) {
    Phases phases;
    memcpy(&phases, barrier, sizeof phases);
    if (phases.nbytes_to_come != 0)
      return "ended with an mbarrier that expects " + std::to_string(phases.nbytes_to_come) + " bytes more";
  }
  for (int i = 0; i < block.n_threads / kWarp; i++) {
    const Warp &warp = block.warps[i], &first = block.warps[i / 4 * 4];
    if (!warp.products.empty()) return "ended with products that it did not wait for";
    if (warp.n_products != first.n_products || warp.products_digest != first.products_digest)
      return "the warps of a warpgroup did not start the same products";
  }
  return "";
}

uint32_t shared_address(const void* p, const Site& site) {
  const auto* at = static_cast<const unsigned char*>(p);
  if (at < current->shared_begin || at >= current->shared_end) fail_here(site, "an address is not in shared memory");
  if (uintptr_t(at) % 16) fail_here(site, "a matrix is not aligned to 16 bytes");
  return uint32_t(at - current->shared_begin);
}

void sync_threads(int id, int n_threads, const Site& site) {
  int& n_arrived = current->n_in_named_barrier[id];
  if (++n_arrived < n_threads) return wait_until_woken(&n_arrived, site);
  n_arrived = 0;
  wake(&n_arrived);
  give_way();
}

void init_barrier(uint64_t* barrier, int n_arrivals, const Site&) {
  const Phases phases{Phases::kMark, 0, uint8_t(n_arrivals), uint8_t(n_arrivals), 0};
  memcpy(barrier, &phases, sizeof phases);
  current->mbarriers.push_back(barrier);
  current->thread->has_unfenced_copies = true;
}
void arrive_and_expect(uint64_t* barrier, int nbytes, const Site& site) {
  Phases phases = read(barrier, site);
  if (phases.n_to_come == 0) fail_here(site, "more have arrived than the mbarrier was initialised for");
  phases.n_to_come--, phases.nbytes_to_come += nbytes;
  write(barrier, phases);
}
void wait_for_phase(uint64_t* barrier, uint32_t parity, const Site& site) {
  while (read(barrier, site).parity == parity)
    if (!complete_one(barrier, site)) wait_until_woken(barrier, site);
}

void copy_bulk(void* to, const void* from, int nbytes, uint64_t* barrier, const Site& site) {
  if ((uintptr_t(to) | uintptr_t(from) | uintptr_t(nbytes)) % 16) fail_here(site, "a bulk copy is not aligned to 16 bytes");
  const BulkCopy bulk{{to, from, nbytes, 0}, barrier};
  read(barrier, site);
  if (current->copies != Copies::deferred) return complete(bulk, site);
  current->bulk_copies.push_back(bulk);
  wake(barrier);
}

void multiply_async(const Multiply& mine, const Site& site) {
  static_assert(sizeof mine <= kSlotBytes, "a lane's slot");
  if (!current->thread->may_multiply) fail_here(site, "products were not begun");
  for (int i = 0; i < current->n_threads; i++)
    if (current->threads[i].has_unfenced_copies) fail_here(site, "what was copied is not fenced");
  warp_operation<int>(0xffffffffu, mine, site, [&site](Warp& warp) {
    WarpProduct product;
    for (int lane = 0; lane < kWarp; lane++) memcpy(&product.lanes[lane], warp.in[lane], sizeof product.lanes[lane]);
    const Multiply& first = product.lanes[0];
    warp.n_products++;
    warp.products_digest = (warp.products_digest ^ first.b ^ uint64_t(first.n) << 52 ^ uint64_t(first.adds) << 63) * 0x9e3779b97f4a7c15ull;
    if (current->copies == Copies::eager) {
      warp.products.push_back(product);
    } else {
      multiply(product, site);
    }
  });
}
void end_products(const Site& site) {
  current->thread->may_multiply = false;
  warp_operation<int>(0xffffffffu, 0, site, [&site](Warp& warp) {
    for (const WarpProduct& product : warp.products) multiply(product, site);
    warp.products.clear();
  });
}

}  // namespace helios::simt
