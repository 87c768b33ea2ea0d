// The thread block of a CUDA kernel on one CPU thread: every thread of the block is a fiber, and runs until it has to
// wait for another. It knows no kernel. A block's barriers, warp operations, shared memory and asynchronous copies
// behave as CUDA defines them; what CUDA leaves open is chosen by Conduct, so that a kernel which relies on one
// choice fails under another. A block that cannot go on, or that broke a rule, is a failure that names file and line.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <string>
#include <vector>

#include "kernels.h"

namespace helios::simt {

constexpr int kWarp = 32, kMaxThreads = 1024, kSlotBytes = 48;

enum class Order : int { first_in, last_in, random };  // which of the fibers that could run, runs next
enum class Copies : int { eager, deferred };  // whether an asynchronous copy happens at once, or when waited for
enum class Architecture : int { sm_80, sm_90a };  // whose instructions a kernel finds
struct Conduct {
  Order order = Order::first_in;
  uint64_t seed = 0;
  Copies copies = Copies::eager;
  Architecture architecture = Architecture::sm_80;
};

// Sets how the blocks that start from now on are run, and forgets a failure.
void set_conduct(const Conduct& conduct);
// The first failure since then; empty: none. Sticky, as on a device.
std::string failure();
bool has_failed();

// Runs one block of a launch on the calling thread; whether it kept all rules.
using Entry = void (*)(const void* args);
bool run_block(const char* kernel, Entry entry, const void* args, const HeliosGeometry& geometry, uint32_t block);

struct Index {
  uint32_t x = 0, y = 0, z = 0;
};
struct Site {
  const char *what, *file;
  int line;
};
struct Copy {  // `from` null: zeros
  void* to;
  const void* from;
  int nbytes, group;
};
struct BulkCopy {
  Copy copy;
  uint64_t* barrier;
};
struct Multiply {  // a lane's part of a product of wgmma
  float* d;
  uint64_t b;
  uint32_t a[4];
  int16_t n;
  bool adds;
};
struct WarpProduct {
  Multiply lanes[kWarp];
};
struct Warp {
  uint32_t arrived = 0;
  std::vector<WarpProduct> products;  // under way
  uint64_t n_products = 0, products_digest = 0;  // of all that it started: the same in the warps of a warpgroup
  alignas(16) unsigned char in[kWarp][kSlotBytes], out[kWarp][kSlotBytes];
};
enum class State : uint8_t { ready, in_barrier, in_warp, waiting, ended };

struct Thread {
  void* stack_pointer;
  char* stack_top;
  Index index;
  int lane;
  State state;
  Warp* warp;
  uint32_t mask;  // of the warp operation that it waits in
  const void* awaited;  // what it waits for
  Site site;            // where it waits
  bool has_unfenced_copies, may_multiply;
  int copy_group;
  std::vector<Copy> copies;
};

// The block and the thread that run on this CPU thread.
struct Block {
  Index index, grid, size;
  Thread* thread;
  Copies copies;
  Architecture architecture;
  size_t dynamic_shared_nbytes;
  int n_threads;
  Thread* threads;
  Warp* warps;
  unsigned char *shared_begin, *shared_end;
  // Of the instructions of sm_90a (warpgroup.cpp).
  int n_in_named_barrier[16];
  std::vector<uint64_t*> mbarriers;
  std::vector<BulkCopy> bulk_copies;  // under way
};
extern thread_local Block* current __attribute__((tls_model("initial-exec")));

void* shared_array(const void* key, const char* name, size_t nbytes);
int barrier(const Site& site, int value, int neutral, int (*combine)(int, int));
void wait_in_warp(uint32_t mask, const Site& site);
void end_warp_operation(uint32_t mask);
void wait_until_woken(const void* awaited, const Site& site);
void wake(const void* awaited);
void give_way();
void fail_here(const Site& site, const char* reason);
void copy_async(void* to, const void* from, int nbytes, const Site& site);
void wait_for_copies(int n_pending);
void make(const Copy& copy);
// Before and after a block: what the instructions of sm_90a keep, and what is wrong with it at the end.
void begin_asynchronous(Block& block);
std::string unfinished(const Block& block);

// A warp operation: every lane of the mask leaves its input; the last one to arrive runs body(warp) for all of them.
template <class Out, class In, class Body>
Out warp_operation(uint32_t mask, const In& in, const Site& site, Body body) {
  static_assert(sizeof(In) <= kSlotBytes && sizeof(Out) <= kSlotBytes, "a lane's slot");
  Thread& me = *current->thread;
  Warp& warp = *me.warp;
  memcpy(warp.in[me.lane], &in, sizeof in);
  if (!(mask >> me.lane & 1)) fail_here(site, "the mask does not name the calling lane");
  warp.arrived |= 1u << me.lane;
  me.mask = mask;
  me.site = site;
  if ((warp.arrived & mask) == mask) {
    body(warp);
    end_warp_operation(mask);
  } else {
    wait_in_warp(mask, site);
  }
  Out out;
  memcpy(&out, warp.out[me.lane], sizeof out);
  return out;
}

template <class T>
T shuffle(uint32_t mask, T value, int from, const Site& site) {
  struct Offer {
    T value;
    int from;
  };
  return warp_operation<T>(mask, Offer{value, from}, site, [mask](Warp& warp) {
    for (int lane = 0; lane < kWarp; lane++) {
      if (!(mask >> lane & 1)) continue;
      Offer asked, given;
      memcpy(&asked, warp.in[lane], sizeof asked);
      memcpy(&given, warp.in[asked.from & (kWarp - 1)], sizeof given);
      memcpy(warp.out[lane], &given.value, sizeof(T));
    }
  });
}
inline uint32_t ballot(uint32_t mask, bool vote, const Site& site) {
  return warp_operation<uint32_t>(mask, uint32_t(vote), site, [mask](Warp& warp) {
    uint32_t votes = 0;
    for (int lane = 0; lane < kWarp; lane++) votes |= uint32_t(mask >> lane & 1 && warp.in[lane][0]) << lane;
    for (int lane = 0; lane < kWarp; lane++)
      if (mask >> lane & 1) memcpy(warp.out[lane], &votes, sizeof votes);
  });
}

}  // namespace helios::simt
