// Sleeping on a 32-bit word, and starting threads that leave signals to the program's own threads.
// It knows nothing about what is waited for. A wait may return early; callers loop on their condition.
#pragma once
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace helios {

using FutexWord = std::atomic<uint32_t>;
static_assert(sizeof(FutexWord) == 4, "a futex is a plain 32-bit word");

inline void futex_wait(FutexWord& word, uint32_t while_value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, while_value, nullptr, nullptr, 0);
}

inline void futex_wake(FutexWord& word, int n_threads) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, n_threads, nullptr, nullptr, 0);
}

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The new thread blocks every signal: the program's own threads take them. Throws std::system_error when refused.
template <class Body>
std::thread start_thread(const char* name, Body body) {
  sigset_t all_signals, previous;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &previous);
  struct RestoreMask {
    const sigset_t& mask;
    ~RestoreMask() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{previous};
  return std::thread([name, body] {
    pthread_setname_np(pthread_self(), name);
    body();
  });
}

}  // namespace helios
