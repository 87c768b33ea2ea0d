// Forced in front of the peer's C++ sources when scripts/bench builds llama-cpp-python (CXXFLAGS=-include).
// The amxtileintrin.h of GCC 12 says that _tile_loadconfig reads 8 bytes; it reads 64. The compiler therefore drops the
// stores to the other 56 as dead, ldtilecfg meets garbage and faults, and every ggml built with AMX dies in its first
// matrix product (ggml-org/llama.cpp issue 20824). This states the true extent and changes nothing else.
#if defined(__x86_64__) && defined(__AMX_TILE__)
#include <immintrin.h>
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(const char (*)[64])(config)))
#endif
