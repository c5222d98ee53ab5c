// Arena: allocations are aligned and zeroed, do not overlap, and never exceed the limit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/arena.h"

static void allocations_are_zeroed_aligned_and_apart(void **state) {
    (void)state;
    enum { N = 2000 };
    static char *at[N];
    static size_t len[N];
    kin_arena *arena = kin_arena_new(SIZE_MAX);
    for (size_t i = 0; i < N; i++) {
        len[i] = i % 50 == 49 ? 1000 * i : i % 70; // some larger than a chunk
        at[i] = kin_arena_alloc(arena, len[i]);
        assert_non_null(at[i]);
        assert_int_equal((uintptr_t)at[i] % _Alignof(max_align_t), 0);
        for (size_t k = 0; k < len[i]; k++) assert_int_equal(at[i][k], 0);
        memset(at[i], (int)(i % 251) + 1, len[i]);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < len[i]; k++) assert_int_equal((unsigned char)at[i][k], i % 251 + 1);
    kin_arena_free(arena);
    kin_arena_free(NULL);
}

static void the_limit_holds(void **state) {
    (void)state;
    for (size_t limit = 0; limit < 100000; limit += 977) {
        kin_arena *arena = kin_arena_new(limit);
        size_t n = 0;
        while (n < limit && kin_arena_alloc(arena, 100)) n += 100;
        assert_true(n <= limit && n + 64 * 1024 > limit);
        assert_null(kin_arena_alloc(arena, limit));
        assert_null(kin_arena_alloc(arena, SIZE_MAX));
        assert_null(kin_arena_alloc(arena, SIZE_MAX - 8));
        assert_true(kin_arena_bytes(arena) <= limit || n == 0);
        kin_arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_zeroed_aligned_and_apart),
        cmocka_unit_test(the_limit_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
