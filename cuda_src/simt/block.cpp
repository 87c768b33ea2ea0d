// The scheduler of one block's fibers. One Engine a CPU thread, with stacks that outlive the blocks.
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "emulator.h"
#include "fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace helios::simt {

thread_local Block* current __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

constexpr size_t kStackBytes = 64 << 10, kGuardBytes = 4 << 10;
constexpr size_t kStackUsedBytes = kStackBytes - 2 * kGuardBytes;  // below the top of any: they are staggered by up to 3 KB
constexpr size_t kSharedBytes = 227 << 10, kCanaryBytes = 64;  // shared memory of a block; bytes after each array
constexpr size_t kSharedAlignment = 128;
constexpr unsigned char kUnset = 0xff;                        // shared memory starts as NaN

struct Book {
  std::mutex mutex;
  Conduct conduct;
  std::string failure;
};
Book& book() {
  static auto* the_book = new Book;
  return *the_book;
}
std::atomic<bool> is_failed{false};

void record_failure(const std::string& text) {
  std::lock_guard<std::mutex> lock(book().mutex);
  if (!book().failure.empty()) return;
  book().failure = text;
  is_failed = true;
  fprintf(stderr, "simt: %s\n", text.c_str());
}

std::string place(const Site& site) {
  return std::string(site.what) + " at " + site.file + ":" + std::to_string(site.line);
}

struct SharedArray {
  const void* key;
  const char* name;
  size_t offset, nbytes;
};

// A fiber never returns from its frames: what AddressSanitizer forbids to touch around them ends here.
void forget_frames([[maybe_unused]] void* from, [[maybe_unused]] size_t nbytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(from, nbytes);
#endif
}

// Stacks side by side, an unmapped page below each; their tops are staggered, or all would share the same cache sets.
class Stacks {
 public:
  Stacks() {
    void* memory = mmap(nullptr, kMaxThreads * kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    memory_ = static_cast<char*>(memory);
  }
  ~Stacks() {
    forget_frames(memory_, kMaxThreads * kStackBytes);
    munmap(memory_, kMaxThreads * kStackBytes);
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  char* top(int i) {
    for (; n_guarded_ <= i; n_guarded_++) mprotect(memory_ + size_t(n_guarded_) * kStackBytes, kGuardBytes, PROT_NONE);
    return memory_ + size_t(i + 1) * kStackBytes - size_t(i % 16) * 192;
  }

 private:
  char* memory_;
  int n_guarded_ = 0;
};

class Engine : public Block {
 public:
  Engine() : threads_(kMaxThreads), warps_(kMaxThreads / kWarp), shared_(kSharedBytes + kSharedAlignment) {
    for (int i = 0; i < kMaxThreads; i++) threads_[size_t(i)].stack_top = stacks_.top(i);
    threads = threads_.data(), warps = warps_.data();
    const uintptr_t begin = reinterpret_cast<uintptr_t>(shared_.data());
    shared_begin = shared_.data() + (kSharedAlignment - begin % kSharedAlignment) % kSharedAlignment;
  }

  bool run(const char* kernel, Entry entry, const void* args, const HeliosGeometry& geometry, uint32_t block);
  void* shared(const void* key, const char* name, size_t nbytes);
  int barrier(const Site& site, int value, int neutral, int (*combine)(int, int));
  void finish_warp(uint32_t mask);
  void fail(const std::string& reason);
  void wait_until_woken(const void* awaited, const Site& site);
  void wake(const void* awaited);
  void give_way();
  void switch_away();
  void run_thread();

 private:
  const char* kernel_ = "";
  Entry entry_ = nullptr;
  const void* args_ = nullptr;
  Conduct conduct_;
  uint64_t random_ = 0;
  int n_alive_ = 0, n_in_barrier_ = 0, barrier_value_ = 0, barrier_result_ = 0;
  bool is_failed_ = false;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<int> ready_;
  size_t first_ready_ = 0;
  std::vector<unsigned char> shared_;
  std::vector<SharedArray> arrays_;
  Stacks stacks_;
  void* own_stack_ = nullptr;

  Thread* next();
  void make_ready(Thread& thread);
  void check_shared();
  void report_waiting();
  int number(const Thread& thread) const { return int(&thread - threads_.data()); }
};

Engine& engine() {
  static thread_local std::unique_ptr<Engine> mine;
  if (!mine) mine = std::make_unique<Engine>();
  return *mine;
}

void start_thread() {
  static_cast<Engine*>(current)->run_thread();
  abort();  // an ended fiber is never switched to
}

bool Engine::run(const char* kernel, Entry entry, const void* args, const HeliosGeometry& geometry, uint32_t block) {
  n_threads = geometry.n_threads;
  {
    std::lock_guard<std::mutex> lock(book().mutex);
    conduct_ = book().conduct;
  }
  kernel_ = kernel, entry_ = entry, args_ = args;
  random_ = (conduct_.seed + 1) * 0x9e3779b97f4a7c15ull + block;
  index = {block, 0, 0}, grid = {uint32_t(geometry.n_blocks), 1, 1}, size = {uint32_t(n_threads), 1, 1};
  copies = conduct_.copies, architecture = conduct_.architecture, dynamic_shared_nbytes = size_t(geometry.shared_nbytes);
  n_alive_ = n_threads;
  n_in_barrier_ = 0, is_failed_ = false, shared_end = shared_begin, first_ready_ = 0;
  arrays_.clear(), ready_.clear();
  begin_asynchronous(*this);
  for (int i = 0; i < n_threads; i++) {
    Thread& thread = threads_[size_t(i)];
    thread.index = {uint32_t(i), 0, 0};
    thread.lane = i % kWarp;
    thread.warp = &warps_[size_t(i / kWarp)];
    thread.warp->arrived = 0;
    thread.copy_group = 0;
    thread.has_unfenced_copies = thread.may_multiply = false;
    thread.copies.clear();
    forget_frames(thread.stack_top - kStackUsedBytes, kStackUsedBytes);
    thread.stack_pointer = prepare_stack(thread.stack_top, start_thread);
    make_ready(thread);
  }
  Block* outer = std::exchange(current, this);
  thread = next();
  switch_stack(&own_stack_, thread->stack_pointer);
  current = outer;
  if (n_alive_ != 0 && !is_failed_) report_waiting();
  if (const std::string left = unfinished(*this); !left.empty() && !is_failed_) fail(left);
  check_shared();
  return !is_failed_;
}

void Engine::run_thread() {
  entry_(args_);
  Thread& me = *thread;
  me.state = State::ended;
  n_alive_--;
  if (!me.copies.empty())
    fail("thread " + std::to_string(number(me)) + " ended with asynchronous copies that it did not wait for");
  if (n_alive_ != 0 && n_in_barrier_ == n_alive_) {  // those that ended are not waited for
    barrier_result_ = barrier_value_;
    n_in_barrier_ = 0;
    for (int i = 0; i < n_threads; i++)
      if (threads_[size_t(i)].state == State::in_barrier) make_ready(threads_[size_t(i)]);
  }
  switch_away();
}

void Engine::make_ready(Thread& thread) {
  thread.state = State::ready;
  ready_.push_back(number(thread));
}

// The fiber to run next; null when none can, or none should.
Thread* Engine::next() {
  const size_t n = ready_.size() - first_ready_;
  if (n == 0 || is_failed_) return nullptr;
  int chosen;
  if (conduct_.order == Order::first_in) {
    chosen = ready_[first_ready_++];
    if (first_ready_ == ready_.size()) ready_.clear(), first_ready_ = 0;
  } else {
    if (conduct_.order == Order::random) {
      random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
      std::swap(ready_[size_t(random_ % n)], ready_.back());
    }
    chosen = ready_.back();
    ready_.pop_back();
  }
  return &threads_[size_t(chosen)];
}

void Engine::switch_away() {
  Thread* me = thread;
  Thread* other = next();
  if (other == me) return;
  if (other) {
    thread = other;
    switch_stack(&me->stack_pointer, other->stack_pointer);
  } else {
    switch_stack(&me->stack_pointer, own_stack_);
  }
}

int Engine::barrier(const Site& site, int value, int neutral, int (*combine)(int, int)) {
  Thread& me = *thread;
  me.site = site;
  barrier_value_ = combine(n_in_barrier_ == 0 ? neutral : barrier_value_, value);
  for (int i = 0; n_in_barrier_ != 0 && i < n_threads; i++) {
    const Thread& other = threads_[size_t(i)];
    if (other.state != State::in_barrier) continue;
    if (other.site.line == site.line && other.site.file == site.file) break;  // one is enough: the others met it
    fail("divergence: thread " + std::to_string(number(me)) + " waits in " + place(site) + ", thread " +
         std::to_string(i) + " in " + place(other.site));
    switch_away();
  }
  if (++n_in_barrier_ < n_alive_) {
    me.state = State::in_barrier;
    switch_away();
    return barrier_result_;
  }
  n_in_barrier_ = 0;
  barrier_result_ = barrier_value_;
  for (int i = 0; i < n_threads; i++)
    if (threads_[size_t(i)].state == State::in_barrier) make_ready(threads_[size_t(i)]);
  give_way();
  return barrier_result_;
}

// The last to arrive has no right to go first.
void Engine::give_way() {
  if (conduct_.order == Order::first_in) return;
  make_ready(*thread);
  switch_away();
}

// The lanes of a finished warp operation go on. All of them must have called the same one.
void Engine::finish_warp(uint32_t mask) {
  Thread& me = *thread;
  me.warp->arrived &= ~mask;
  const int first = number(me) - me.lane;
  for (int lane = 0; lane < kWarp; lane++) {
    if (!(mask >> lane & 1) || lane == me.lane) continue;
    Thread& other = threads_[size_t(first + lane)];
    if (other.mask != mask || other.site.what != me.site.what) {
      fail("divergence: thread " + std::to_string(number(me)) + " is in " + place(me.site) + ", thread " +
           std::to_string(first + lane) + " in " + place(other.site));
      return switch_away();
    }
    make_ready(other);
  }
}

void Engine::wait_until_woken(const void* awaited, const Site& site) {
  Thread& me = *thread;
  me.site = site, me.awaited = awaited, me.state = State::waiting;
  switch_away();
}
void Engine::wake(const void* awaited) {
  for (int i = 0; i < n_threads; i++)
    if (threads_[size_t(i)].state == State::waiting && threads_[size_t(i)].awaited == awaited)
      make_ready(threads_[size_t(i)]);
}

void Engine::fail(const std::string& reason) {
  is_failed_ = true;
  record_failure(std::string("kernel ") + kernel_ + ", block " + std::to_string(index.x) + ": " + reason);
}

// One thread of each place where threads wait.
void Engine::report_waiting() {
  std::string waiting;
  std::vector<Site> named;
  for (int i = 0; i < n_threads && named.size() < 4; i++) {
    const Thread& waiter = threads_[size_t(i)];
    if (waiter.state == State::ended) continue;
    bool is_named = false;
    for (const Site& site : named)
      is_named = is_named || (site.file == waiter.site.file && site.line == waiter.site.line);
    if (is_named) continue;
    named.push_back(waiter.site);
    waiting += "; thread " + std::to_string(i) + " waits in " + place(waiter.site);
  }
  fail("deadlock" + waiting);
}

void* Engine::shared(const void* key, const char* name, size_t nbytes) {
  for (const SharedArray& array : arrays_)
    if (array.key == key) return shared_begin + array.offset;
  const size_t used = size_t(shared_end - shared_begin),
               offset = (used + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  if (offset + nbytes + kCanaryBytes > kSharedBytes) {
    fail(std::string("shared array ") + name + " does not fit in " + std::to_string(kSharedBytes) + " bytes");
    switch_away();
  }
  arrays_.push_back({key, name, offset, nbytes});
  shared_end = shared_begin + offset + nbytes + kCanaryBytes;
  memset(shared_begin + offset, kUnset, nbytes + kCanaryBytes);
  return shared_begin + offset;
}

void Engine::check_shared() {
  for (const SharedArray& array : arrays_)
    for (size_t i = 0; i < kCanaryBytes; i++)
      if (shared_begin[array.offset + array.nbytes + i] != kUnset)
        return fail(std::string("wrote past the end of shared array ") + array.name);
}

}  // namespace

void set_conduct(const Conduct& conduct) {
  std::lock_guard<std::mutex> lock(book().mutex);
  book().conduct = conduct;
  book().failure.clear();
  is_failed = false;
}
std::string failure() {
  std::lock_guard<std::mutex> lock(book().mutex);
  return book().failure;
}
bool has_failed() { return is_failed; }

bool run_block(const char* kernel, Entry entry, const void* args, const HeliosGeometry& geometry, uint32_t block) {
  return engine().run(kernel, entry, args, geometry, block);
}
void* shared_array(const void* key, const char* name, size_t nbytes) {
  return static_cast<Engine*>(current)->shared(key, name, nbytes);
}
int barrier(const Site& site, int value, int neutral, int (*combine)(int, int)) {
  return static_cast<Engine*>(current)->barrier(site, value, neutral, combine);
}
void wait_in_warp(uint32_t, const Site&) {
  current->thread->state = State::in_warp;
  static_cast<Engine*>(current)->switch_away();
}
void end_warp_operation(uint32_t mask) { static_cast<Engine*>(current)->finish_warp(mask); }
void wait_until_woken(const void* awaited, const Site& site) {
  static_cast<Engine*>(current)->wait_until_woken(awaited, site);
}
void wake(const void* awaited) { static_cast<Engine*>(current)->wake(awaited); }
void give_way() { static_cast<Engine*>(current)->give_way(); }
void fail_here(const Site& site, const char* reason) {
  auto* block = static_cast<Engine*>(current);
  block->fail(std::string(reason) + " in " + place(site));
  current->thread->site = site;
  current->thread->state = State::in_warp;
  block->switch_away();
}

void make(const Copy& copy) {
  if (copy.from) {
    memcpy(copy.to, copy.from, size_t(copy.nbytes));
  } else {
    memset(copy.to, 0, size_t(copy.nbytes));
  }
}

void copy_async(void* to, const void* from, int nbytes, const Site& site) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % uintptr_t(nbytes))
    fail_here(site, "a copy is not aligned to its size");
  Thread& me = *current->thread;
  const Copy copy{to, from, nbytes, me.copy_group};
  if (current->copies == Copies::deferred) {
    me.copies.push_back(copy);
  } else {
    make(copy);
  }
}
// Until at most the last n_pending groups are under way.
void wait_for_copies(int n_pending) {
  Thread& me = *current->thread;
  me.has_unfenced_copies = true;
  size_t n_done = 0;
  for (; n_done < me.copies.size() && me.copies[n_done].group < me.copy_group - n_pending; n_done++)
    make(me.copies[n_done]);
  me.copies.erase(me.copies.begin(), me.copies.begin() + long(n_done));
}

}  // namespace helios::simt
