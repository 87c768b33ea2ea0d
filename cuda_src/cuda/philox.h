// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a draw is a pure function of
// its name. The same draws as the host's (host/philox.h), as whole numbers.
#pragma once
#include "kernel.h"

namespace helios::cuda {

// A uniform draw from [0, 2^53), named by (request seed, position, purpose).
__device__ inline unsigned long long uniform_draw(const uint32_t* seed, uint32_t position, uint32_t purpose) {
  uint32_t c[4] = {position, purpose, 0, 0}, key[2] = {seed[0], seed[1]};
  for (int round = 0; round < 10; round++, key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u) {
    const unsigned long long p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    const uint32_t next[4] = {uint32_t(p1 >> 32) ^ c[1] ^ key[0], uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ key[1],
                              uint32_t(p0)};
    for (int i = 0; i < 4; i++) c[i] = next[i];
  }
  return (unsigned long long)(c[0] >> 5) << 26 | c[1] >> 6;
}

}  // namespace helios::cuda
