// Device and pinned memory: both are ordinary zeroed memory here, kept apart only by the book that says which is which.
// It knows no contents. An allocation is refused, rather than granted and killed for later, when the machine and the
// control group have no room for it; freeing waits until no stream can still use the memory. Device memory lies on huge pages,
// allocations below the size of one side by side in slabs and the smallest in the C heap: a decode step reads every weight
// once, and translating the addresses of 4 KiB pages cost it a tenth of its time. Pinned memory, and what its owner says is
// sparse, is touched here and there, where a huge page would be resident for a few bytes.
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <map>

#include "cudart.h"
#include "error.h"
#include "limits.h"
#include "stream.h"

namespace helios {

namespace {

constexpr size_t huge_page_nbytes = size_t{2} << 20;
constexpr size_t small_alignment = 64;  // a cache line, and the widest vector
constexpr size_t least_slab_part_nbytes = size_t{16} << 10, slab_nbytes = 16 * huge_page_nbytes;
constexpr size_t most_unused_nbytes = huge_page_nbytes / 4;  // of a slab's last huge page

struct Mapping {
  void* base = nullptr;
  size_t nbytes = 0;
};

// Huge pages for allocations below the size of one, given out from the front and never again: they are zero. One of
// which little is used stays in ordinary pages, as all of a huge one is resident.
struct Slab {
  Mapping mapping;
  char* start;
  size_t used_nbytes = 0;
  size_t huge_nbytes = 0;  // from the front
  size_t n_allocations = 0;  // not yet released; without any it goes
};

struct Allocation {
  size_t nbytes;
  MemoryKind kind;
  bool is_sparse;
  Mapping mapping;  // of its own, if any; else it is part of a slab, if any; else from the C heap
  std::list<Slab>::iterator slab;
  bool is_in_slab = false;
};

struct Book {
  std::mutex mutex;
  std::map<uintptr_t, Allocation> allocations;
  std::list<Slab> slabs;  // the first one that has room is given out from
  uint64_t n_removals = 0;
  uint64_t mapped_nbytes = 0;
};

Book& book() {
  static Book* the_book = new Book;
  return *the_book;
}

// What can still be allocated: what is free now, less what was promised to earlier allocations and not yet touched.
MemoryRoom room_left(uint64_t mapped_nbytes) {
  MemoryRoom room = memory_room();
  const uint64_t resident_nbytes = resident_anonymous_nbytes();
  const uint64_t promised_nbytes = mapped_nbytes > resident_nbytes ? mapped_nbytes - resident_nbytes : 0;
  room.available_nbytes -= promised_nbytes < room.available_nbytes ? promised_nbytes : room.available_nbytes;
  return room;
}

void* obtain_small(size_t nbytes, Allocation* allocation) {
  void* address = nullptr;
  if (posix_memalign(&address, small_alignment, nbytes) != 0) return nullptr;
  memset(address, 0, nbytes);
  allocation->nbytes = nbytes;
  return address;
}

// Lazily zero, aligned to huge pages: the mapping is one huge page longer than asked so that an aligned start exists.
char* map_aligned(size_t nbytes, int page_advice, Mapping* mapping) {
  if (nbytes > SIZE_MAX / 2 || nbytes > room_left(book().mapped_nbytes).available_nbytes) return nullptr;
  const size_t mapping_nbytes = nbytes + huge_page_nbytes;
  void* base =
      mmap(nullptr, mapping_nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  const uintptr_t start = (reinterpret_cast<uintptr_t>(base) + huge_page_nbytes - 1) & ~(huge_page_nbytes - 1);
  madvise(reinterpret_cast<void*>(start), nbytes, page_advice);
  book().mapped_nbytes += nbytes;
  *mapping = {base, mapping_nbytes};
  return reinterpret_cast<char*>(start);
}

void unmap(const Mapping& mapping) {
  munmap(mapping.base, mapping.nbytes);
  book().mapped_nbytes -= mapping.nbytes - huge_page_nbytes;
}

void* obtain_large(size_t nbytes, Allocation* allocation) {
  allocation->nbytes = nbytes;
  const int page_advice = allocation->is_sparse ? MADV_NOHUGEPAGE : MADV_HUGEPAGE;
  return map_aligned(nbytes, page_advice, &allocation->mapping);
}

void* obtain_from_slab(size_t nbytes, Allocation* allocation) {
  std::list<Slab>& slabs = book().slabs;
  // A cache line that is nobody's ends each part: what runs over the end of one does not start in another one.
  const size_t part_nbytes = ((nbytes + small_alignment - 1) & ~(small_alignment - 1)) + small_alignment;
  const auto has_room = [part_nbytes](const Slab& slab) { return part_nbytes <= slab_nbytes - slab.used_nbytes; };
  auto slab = std::find_if(slabs.begin(), slabs.end(), has_room);
  if (slab == slabs.end()) {
    Slab added{};
    added.start = map_aligned(slab_nbytes, MADV_NOHUGEPAGE, &added.mapping);
    if (!added.start) return obtain_small(nbytes, allocation);  // there may be room for this much
    slab = slabs.insert(slabs.end(), added);
  }
  void* address = slab->start + slab->used_nbytes;
  slab->used_nbytes += part_nbytes;
  slab->n_allocations++;
  const size_t huge_nbytes = (slab->used_nbytes + most_unused_nbytes) / huge_page_nbytes * huge_page_nbytes;
  madvise(slab->start + slab->huge_nbytes, huge_nbytes - slab->huge_nbytes, MADV_HUGEPAGE);
  slab->huge_nbytes = huge_nbytes;
  allocation->nbytes = nbytes;
  allocation->slab = slab;
  allocation->is_in_slab = true;
  return address;
}

void* obtain(size_t nbytes, Allocation* allocation) {
  if (nbytes < least_slab_part_nbytes) return obtain_small(nbytes, allocation);
  const bool is_in_slab = nbytes < huge_page_nbytes && !allocation->is_sparse;
  return is_in_slab ? obtain_from_slab(nbytes, allocation) : obtain_large(nbytes, allocation);
}

void give_back(void* address, const Allocation& allocation) {
  if (allocation.is_in_slab) {
    if (--allocation.slab->n_allocations > 0) return;
    unmap(allocation.slab->mapping);
    book().slabs.erase(allocation.slab);
  } else if (allocation.mapping.base) {
    unmap(allocation.mapping);
  } else {
    free(address);
  }
}

cudaError_t allocate(void** address, size_t nbytes, MemoryKind kind, bool is_sparse) {
  if (!address || nbytes == 0) return cudaErrorInvalidValue;
  if (has_fault()) return cudaSuccess;  // reported by the caller
  std::lock_guard<std::mutex> lock(book().mutex);
  Allocation allocation{};
  allocation.kind = kind;
  allocation.is_sparse = is_sparse;
  void* obtained = obtain(nbytes, &allocation);
  if (!obtained) return cudaErrorMemoryAllocation;
  book().allocations.emplace(reinterpret_cast<uintptr_t>(obtained), allocation);
  *address = obtained;
  return cudaSuccess;
}

cudaError_t release(void* address, MemoryKind kind) {
  if (!address) return cudaSuccess;
  Allocation allocation;
  {
    std::lock_guard<std::mutex> lock(book().mutex);
    const auto found = book().allocations.find(reinterpret_cast<uintptr_t>(address));
    if (found == book().allocations.end() || found->second.kind != kind) return cudaErrorInvalidValue;
    allocation = found->second;
    book().allocations.erase(found);
    book().n_removals++;
  }
  synchronize_streams(nullptr);
  std::lock_guard<std::mutex> lock(book().mutex);
  give_back(address, allocation);
  return cudaSuccess;
}

const Allocation* find_allocation(const void* address, uint64_t nbytes) {
  const uintptr_t start = reinterpret_cast<uintptr_t>(address);
  const auto after = book().allocations.upper_bound(start);
  if (after == book().allocations.begin()) return nullptr;
  const auto& [base, allocation] = *std::prev(after);
  const uint64_t offset = start - base;
  return offset <= allocation.nbytes && nbytes <= allocation.nbytes - offset ? &allocation : nullptr;
}

}  // namespace

std::unique_lock<std::mutex> lock_memory() { return std::unique_lock<std::mutex>(book().mutex); }

bool is_known_range(const void* address, uint64_t nbytes) { return find_allocation(address, nbytes) != nullptr; }

bool is_known_range(const void* address, uint64_t nbytes, MemoryKind kind) {
  const Allocation* allocation = find_allocation(address, nbytes);
  return allocation && allocation->kind == kind;
}

uint64_t removals() { return book().n_removals; }

}  // namespace helios

using namespace helios;

cudaError_t cudaMemGetInfo(size_t* free_nbytes, size_t* total_nbytes) {
  if (!free_nbytes || !total_nbytes) return report(cudaErrorInvalidValue);
  std::lock_guard<std::mutex> lock(book().mutex);
  const MemoryRoom room = room_left(book().mapped_nbytes);
  *free_nbytes = room.available_nbytes;
  *total_nbytes = room.total_nbytes;
  return report(cudaSuccess);
}

cudaError_t cudaMalloc(void** address, size_t nbytes) {
  return report(allocate(address, nbytes, MemoryKind::device, false));
}

cudaError_t heliosHostMallocSparse(void** address, size_t nbytes) {
  return report(allocate(address, nbytes, MemoryKind::device, true));
}

cudaError_t cudaFree(void* address) { return report(release(address, MemoryKind::device)); }

cudaError_t cudaHostAlloc(void** address, size_t nbytes, unsigned int flags) {
  const unsigned int known_flags = 1 | 2 | 4;  // portable, mapped, write-combined: all the same here
  if (flags & ~known_flags) return report(cudaErrorInvalidValue);
  return report(allocate(address, nbytes, MemoryKind::pinned, true));
}

cudaError_t cudaFreeHost(void* address) { return report(release(address, MemoryKind::pinned)); }
