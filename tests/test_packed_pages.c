// The prepacked cache in huge pages, if the file system supports them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/packed.h"
#include "sys/pages.h"
#include "tests/place.h"

#define MIB ((size_t)1 << 20)

enum { N_BLOCKS = 2 };

static const uint64_t block_bytes[N_BLOCKS] = {7 << 20, 7 << 20};

// Returns the bytes of the mapping at `begin` that are in huge pages of a file.
static size_t huge_bytes(const uint8_t *begin) {
    char line[512];
    size_t kib = 0;
    bool is_here = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) is_here = (uintptr_t)begin >= from && (uintptr_t)begin < to;
        if (is_here) sscanf(line, "FilePmdMapped: %zu", &kib);
    }
    if (f) fclose(f);
    return kib << 10;
}

// Reserves address space that begins, like the file, at a multiple of the huge page size.
static uint8_t *reserve(size_t n) {
    uint8_t *at = mmap(NULL, n + KIN_HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(at != MAP_FAILED);
    return at + (KIN_HUGE_PAGE - (uintptr_t)at % KIN_HUGE_PAGE) % KIN_HUGE_PAGE;
}
#define reserve(...) FROM_TEST(reserve(__VA_ARGS__))

static void neighbours_share_a_huge_page(void **state) {
    (void)state;
    char dir[] = "/tmp/kin-test-packed-pages-XXXXXX", command[64];
    kin_packed *p;
    kin_err err;
    uint8_t *bytes = calloc(1, 7 * MIB), *home = reserve(16 * MIB);
    assert_true(bytes && mkdtemp(dir));
    assert_int_equal(kin_packed_open(&p, dir, (kin_packed_key){1, 2}, 3, N_BLOCKS, block_bytes, &err), 0);
    for (size_t i = 0; i < N_BLOCKS; i++) {
        assert_int_equal(kin_packed_write(p, i, bytes, 4, &err), 0);
        assert_int_equal(kin_packed_map(p, i, home + kin_packed_offset(p, i), &err), 0);
    }
    uint8_t *first = home + kin_packed_offset(p, 0), *border = home + 6 * MIB;
    kin_pages_advise_huge(home + 2 * MIB, 12 * MIB);
    assert_int_equal(kin_pages_fetch(home + 2 * MIB, 12 * MIB, true), 0);
    size_t huge = huge_bytes(border);
    munmap(home, 6 * MIB); // leaves only the huge page that both blocks share
    munmap(home + 8 * MIB, 8 * MIB);
    size_t huge_at_border = huge_bytes(border);
    bool is_one_range = kin_packed_offset(p, 1) == kin_packed_offset(p, 0) + 7 * MIB && first < home + 2 * MIB;
    kin_packed_close(p);
    free(bytes);
    munmap(border, 2 * MIB);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    assert_true(is_one_range);
    if (huge == 0) skip(); // the file system has no huge pages
    assert_int_equal(huge_at_border, 2 * MIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_share_a_huge_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
