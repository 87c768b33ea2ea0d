// The machine's two limits for a model on the CPU, measured: how fast all threads together can read a buffer the size of the
// weights (decode: every step reads each weight byte once), and how many 8-bit multiply-adds their vector units do in
// registers (prefill). The matrix unit (AMX) is left out: this is the rate that ordinary vector code can reach.
//   floor SIZE_BYTES N_THREADS   ->   {"read_bytes_per_s": ..., "multiply_adds_per_s": ...}   (the best of several passes)
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { MAX_THREADS = 256, N_PASSES = 7, N_CHAINS = 10, N_PRODUCTS = 1 << 20 };

struct share {
    const uint64_t *words;
    size_t n_words;
    uint64_t sink;
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *read_share(void *argument) {
    struct share *share = argument;
    uint64_t sums[32] = {0};  // enough for the compiler to keep whole vectors in flight
    for (size_t i = 0; i + 32 <= share->n_words; i += 32) {
        __builtin_prefetch(share->words + i + 320);
        __builtin_prefetch(share->words + i + 328);
        __builtin_prefetch(share->words + i + 336);
        __builtin_prefetch(share->words + i + 344);
        for (int j = 0; j < 32; j++) sums[j] ^= share->words[i + j];
    }
    for (int j = 0; j < 32; j++) share->sink ^= sums[j];
    return NULL;
}

// One chain step: LANES 8-bit multiply-adds into an accumulator. The empty asm keeps each result alive and in order.
#if defined(__AVX512VNNI__)
typedef __m512i vector;
enum { LANES = 64 };
static inline vector splat(int v) { return _mm512_set1_epi8((char)v); }
static inline vector step(vector sum, vector a, vector b) { return _mm512_dpbusd_epi32(sum, a, b); }
#define KEEP(v) __asm__ volatile("" : "+v"(v))
#elif defined(__AVX2__)
typedef __m256i vector;
enum { LANES = 32 };
static inline vector splat(int v) { return _mm256_set1_epi8((char)v); }
static inline vector step(vector sum, vector a, vector b) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b)); }
#define KEEP(v) __asm__ volatile("" : "+x"(v))
#elif defined(__ARM_FEATURE_DOTPROD)
typedef int8x16_t vector;
enum { LANES = 16 };
static inline vector splat(int v) { return vdupq_n_s8((int8_t)v); }
static inline vector step(vector sum, vector a, vector b) {
    return vreinterpretq_s8_s32(vdotq_s32(vreinterpretq_s32_s8(sum), a, b));
}
#define KEEP(v) __asm__ volatile("" : "+w"(v))
#else
typedef int32_t vector;
enum { LANES = 1 };
static inline vector splat(int v) { return v; }
static inline vector step(vector sum, vector a, vector b) { return sum + a * b; }
#define KEEP(v) __asm__ volatile("" : "+r"(v))
#endif

#define CHAIN(sum)           \
    sum = step(sum, a, b);   \
    KEEP(sum);

static void *multiply_share(void *argument) {
    (void)argument;
    // Ten variables, not an array: compilers keep that in memory, where a chain is three times slower.
    vector a = splat(3), b = splat(5), s0 = splat(0), s1 = s0, s2 = s0, s3 = s0, s4 = s0;
    vector s5 = s0, s6 = s0, s7 = s0, s8 = s0, s9 = s0;
    for (int i = 0; i < N_PRODUCTS; i++) {
        KEEP(a);  // or the maddubs of the AVX2 path leaves the loop
        CHAIN(s0) CHAIN(s1) CHAIN(s2) CHAIN(s3) CHAIN(s4) CHAIN(s5) CHAIN(s6) CHAIN(s7) CHAIN(s8) CHAIN(s9)
    }
    return NULL;
}

static double best_pass_s(void *(*work)(void *), struct share *shares, int n_threads) {
    double best_s = 1e9;
    for (int pass = 0; pass < N_PASSES; pass++) {
        pthread_t threads[MAX_THREADS];
        double started_s = now_s();
        for (int i = 1; i < n_threads; i++) pthread_create(&threads[i], NULL, work, &shares[i]);
        work(&shares[0]);
        for (int i = 1; i < n_threads; i++) pthread_join(threads[i], NULL);
        double elapsed_s = now_s() - started_s;
        if (elapsed_s < best_s) best_s = elapsed_s;
    }
    return best_s;
}

int main(int n_arguments, char **arguments) {
    size_t size_bytes = n_arguments == 3 ? strtoull(arguments[1], NULL, 10) : 0;
    int n_threads = n_arguments == 3 ? atoi(arguments[2]) : 0;
    size_t n_words = n_threads > 0 ? size_bytes / 8 / n_threads / 512 * 512 : 0;
    if (n_words == 0 || n_threads > MAX_THREADS) {
        fprintf(stderr, "usage: floor SIZE_BYTES N_THREADS\n");
        return 2;
    }
    struct share shares[MAX_THREADS] = {0};
    for (int i = 0; i < n_threads; i++) {
        uint64_t *words = aligned_alloc(4096, n_words * 8 + 4096);
        if (!words) return 1;
        memset(words, i + 1, n_words * 8);
        shares[i].words = words;
        shares[i].n_words = n_words;
    }
    double read_s = best_pass_s(read_share, shares, n_threads);
    double multiply_s = best_pass_s(multiply_share, shares, n_threads);
    printf("{\"read_bytes_per_s\": %.0f, \"multiply_adds_per_s\": %.0f}\n", (double)n_words * 8 * n_threads / read_s,
           (double)N_PRODUCTS * N_CHAINS * LANES * n_threads / multiply_s);
    return 0;
}
