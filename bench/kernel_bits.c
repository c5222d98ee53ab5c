// Checks that every back-end of the CPU kernels that can run here computes the bits of the table (testkit/bits/bits.h): for an
// emulator or WebAssembly, where the test libraries are not available. Exit 1: a back-end does not.
//
//   kernel_bits [--write | --ways N | --cases N]    --write: prints the scalar back-end's hashes of the cases, for the table
//
// --ways: tests only the first N variants of multiplying rows (kernels/kernels.h): 2 if a compiler gets sums of four products
// wrong. --cases: only the first N cases, if all that matters is which back-ends run.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testkit/bits/bits.h"

static int check(const kin_kernels *k, int n_cases) {
    int n = 0, n_wrong = 0;
    for (const kin_bits_case *c; n < n_cases && (c = kin_bits_at(n)); n++) {
        uint64_t hash = c->compute(k, c->what);
        if (hash == c->expected) continue;
        printf("%s: %s: %016llx, expected %016llx\n", k->name, c->name, (unsigned long long)hash,
               (unsigned long long)c->expected);
        n_wrong++;
    }
    printf("%s: %d of %d cases have the bits that they should have\n", k->name, n - n_wrong, n);
    return n_wrong;
}

static void write_table(const kin_kernels *k) {
    for (int i = 0; kin_bits_at(i); i++) {
        const kin_bits_case *c = kin_bits_at(i);
        printf("%s: 0x%016llx\n", c->name, (unsigned long long)c->compute(k, c->what));
    }
}

int main(int argc, char **argv) {
    const bool write = argc > 1 && strcmp(argv[1], "--write") == 0;
    int n_wrong = 0, n_cases = INT_MAX;
    if (argc == 3 && strcmp(argv[1], "--cases") == 0) n_cases = atoi(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--ways") == 0) kin_bits_n_variants = atoi(argv[2]);
    for (int i = 0; kin_kernels_at(i); i++) {
        const kin_kernels *k = kin_kernels_at(i);
        bool last = !kin_kernels_at(i + 1); // scalar
        if (!kin_kernels_can_run(k)) continue;
        if (!write)
            n_wrong += check(k, n_cases);
        else if (last)
            write_table(k);
    }
    return n_wrong > 0;
}
