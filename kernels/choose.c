// Chooses the back-end: the best that this CPU supports, or the one that KIN_CPU names.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backends.h"
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#define DECLARE(name) extern const kin_kernels kin_kernels_##name;
#define ADDRESS(name) &kin_kernels_##name,
KIN_BACKENDS(DECLARE)
static const kin_kernels *const all[] = {KIN_BACKENDS(ADDRESS)};

uint8_t kin_kernels_variants[KIN_VARIANT_TYPES];

#if defined(__x86_64__)
// The processor is asked here, because not every compiler's library has what __builtin_cpu_supports needs.
typedef struct features {
    bool avx2, avxvnni, avx512, avx512vbmi; // with what their back-ends use beside them
} features;

// Returns the registers that the operating system saves: XCR0.
static unsigned saved_registers(void) {
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static features read_features(void) {
    enum { AVX_REGISTERS = 0x6, AVX512_REGISTERS = 0xe6 };
    features f = {false, false, false, false};
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX)) return f;
    const unsigned saved = saved_registers();
    const bool has_f16c = c & bit_F16C;
    if ((saved & AVX_REGISTERS) != AVX_REGISTERS || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
    f.avx2 = b & bit_AVX2 && has_f16c;
#ifdef __APPLE__
    const bool saves_512 = true; // macOS begins to save them when they are first used
#else
    const bool saves_512 = (saved & AVX512_REGISTERS) == AVX512_REGISTERS;
#endif
    f.avx512 =
        f.avx2 && saves_512 && b & bit_AVX512F && b & bit_AVX512BW && b & bit_AVX512VL && b & bit_AVX512DQ && c & bit_AVX512VNNI;
    f.avx512vbmi = f.avx512 && c & bit_AVX512VBMI;
    f.avxvnni = f.avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 4;
    return f;
}
#elif defined(__aarch64__)
static bool has_dot_product(void) {
#if defined(__linux__)
    return getauxval(AT_HWCAP) & 1ul << 20; // HWCAP_ASIMDDP
#else
    return true; // all 64-bit Apple processors since 2018 have it
#endif
}
#endif

const kin_kernels *kin_kernels_at(int i) {
    return i >= 0 && i < (int)(sizeof all / sizeof *all) ? all[i] : NULL;
}

bool kin_kernels_can_run(const kin_kernels *k) {
#if defined(__x86_64__)
    const features f = read_features();
    if (k == &kin_kernels_avx2) return f.avx2;
    if (k == &kin_kernels_avxvnni) return f.avxvnni;
    if (k == &kin_kernels_avx512) return f.avx512;
    if (k == &kin_kernels_avx512vbmi) return f.avx512vbmi;
#elif defined(__aarch64__)
    if (k == &kin_kernels_neon) return has_dot_product();
#elif defined(__wasm__)
    if (k == all[0]) return true; // otherwise the module would not have been loaded
#endif
    return k == &kin_kernels_scalar;
}

// Writes a list such as "avx512, avx2, scalar".
static void list_runnable(char *text, size_t n) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!kin_kernels_can_run(all[i]) || used >= n) continue;
        used += (size_t)snprintf(text + used, n - used, "%s%s", used ? ", " : "", all[i]->name);
    }
}

const kin_kernels *kin_kernels_choose(kin_err *err) {
    const char *wanted = getenv("KIN_CPU");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool named = !wanted || !wanted[0] || strcmp(wanted, all[i]->name) == 0;
        if (named && kin_kernels_can_run(all[i])) return all[i];
    }
    char runnable[128];
    list_runnable(runnable, sizeof runnable);
    kin_err_set(err, "KIN_CPU is \"%.32s\", but this CPU can run %s", wanted, runnable);
    return NULL;
}
