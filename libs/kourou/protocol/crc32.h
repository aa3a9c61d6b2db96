/* CRC-32 (IEEE 802.3, reflected): carry-less multiplication where the CPU has it, else a table.
 *
 * crc32_setup() runs once, before the first crc32_of(); the import of the extension does that.
 * The folding constants are x^(512+32), x^(512-32), x^(128+32) and x^(128-32) modulo the
 * polynomial, bit-reflected (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ", 2009).
 */
#ifndef KOUROU_CRC32_H
#define KOUROU_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#define KOUROU_CRC32_PCLMUL 1
#include <immintrin.h>
#endif

static uint32_t crc32_table[8][256];
static int crc32_folds = 0;

static void crc32_setup(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? (c >> 1) ^ 0xEDB88320u : c >> 1;
        crc32_table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            crc32_table[t][i] =
                (crc32_table[t - 1][i] >> 8) ^ crc32_table[0][crc32_table[t - 1][i] & 255];
#ifdef KOUROU_CRC32_PCLMUL
    crc32_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static uint32_t crc32_by_table(uint32_t c, const uint8_t *p, size_t n) {
    while (n >= 8) {
        uint32_t a = ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24) ^ c;
        c = crc32_table[7][a & 255] ^ crc32_table[6][(a >> 8) & 255]
          ^ crc32_table[5][(a >> 16) & 255] ^ crc32_table[4][a >> 24]
          ^ crc32_table[3][p[4]] ^ crc32_table[2][p[5]] ^ crc32_table[1][p[6]] ^ crc32_table[0][p[7]];
        p += 8;
        n -= 8;
    }
    while (n--) c = (c >> 8) ^ crc32_table[0][(c ^ *p++) & 255];
    return c;
}

#ifdef KOUROU_CRC32_PCLMUL
__attribute__((target("pclmul,sse4.1")))
static inline __m128i crc32_fold(__m128i x, __m128i k, __m128i next) {
    return _mm_xor_si128(
        next, _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)));
}

/* n is at least 64 and a multiple of 16. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t crc32_by_folding(uint32_t c, const uint8_t *p, size_t n) {
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596LL, 0x0154442bd4LL);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009eLL, 0x01751997d0LL);
    __m128i w = _mm_loadu_si128((const __m128i *)p);
    __m128i x = _mm_loadu_si128((const __m128i *)(p + 16));
    __m128i y = _mm_loadu_si128((const __m128i *)(p + 32));
    __m128i z = _mm_loadu_si128((const __m128i *)(p + 48));
    w = _mm_xor_si128(w, _mm_cvtsi32_si128((int)c));
    p += 64;
    n -= 64;
    while (n >= 64) {
        w = crc32_fold(w, by_64, _mm_loadu_si128((const __m128i *)p));
        x = crc32_fold(x, by_64, _mm_loadu_si128((const __m128i *)(p + 16)));
        y = crc32_fold(y, by_64, _mm_loadu_si128((const __m128i *)(p + 32)));
        z = crc32_fold(z, by_64, _mm_loadu_si128((const __m128i *)(p + 48)));
        p += 64;
        n -= 64;
    }
    w = crc32_fold(w, by_16, x);
    w = crc32_fold(w, by_16, y);
    w = crc32_fold(w, by_16, z);
    while (n >= 16) {
        w = crc32_fold(w, by_16, _mm_loadu_si128((const __m128i *)p));
        p += 16;
        n -= 16;
    }
    uint8_t remainder[16]; /* sixteen bytes with the same checksum as all that came before */
    _mm_storeu_si128((__m128i *)remainder, w);
    return crc32_by_table(0, remainder, 16);
}
#endif

static uint32_t crc32_of(const uint8_t *p, size_t n) {
    uint32_t c = 0xFFFFFFFFu;
#ifdef KOUROU_CRC32_PCLMUL
    if (crc32_folds && n >= 80) {
        size_t whole = n & ~(size_t)15;
        c = crc32_by_folding(c, p, whole);
        p += whole;
        n -= whole;
    }
#endif
    return ~crc32_by_table(c, p, n);
}

#endif
