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

uint8_t kin_kernels_ways[KIN_WAYS_TYPES];

#if defined(__x86_64__)
// Features that compilers have no names for yet.
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
static bool has_avx_vnni(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 4;
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
    bool avx2 = __builtin_cpu_supports("avx2") && has_f16c();
    if (k == &kin_kernels_avx2) return avx2;
    if (k == &kin_kernels_avxvnni) return avx2 && has_avx_vnni();
    if (k == &kin_kernels_avx512vbmi && !__builtin_cpu_supports("avx512vbmi")) return false;
    if (k == &kin_kernels_avx512 || k == &kin_kernels_avx512vbmi) {
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
    }
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
