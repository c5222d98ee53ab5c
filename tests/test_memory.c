// What the OS says of this process's memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>

#include "sys/memory.h"

enum { BYTES = 64 << 20, NOISE = 16 << 20 };

static void touch_and_give_back(void) {
    void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    memset(at, 1, BYTES);
    assert_int_equal(munmap(at, BYTES), 0);
}

static void the_peak_remembers_what_was_given_back(void **state) {
    (void)state;
    uint64_t before = kin_memory_peak();
    assert_true(before > 0);
    touch_and_give_back();
    assert_true(kin_memory_peak() > BYTES - NOISE);
}

static void a_reset_forgets_it_and_later_peaks_count_again(void **state) {
    (void)state;
    touch_and_give_back();
    if (!kin_memory_reset_peak()) skip();
    assert_true(kin_memory_peak() < BYTES - NOISE);
    touch_and_give_back();
    assert_true(kin_memory_peak() > BYTES - NOISE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peak_remembers_what_was_given_back),
        cmocka_unit_test(a_reset_forgets_it_and_later_peaks_count_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
