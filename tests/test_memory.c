// The OS's figures for this process's memory (sys/memory.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "sys/memory.h"
#include "sys/ring.h"
#include "tests/place.h"

enum { BYTES = 64 << 20, NOISE = 16 << 20 };

static void touch_and_give_back(void) {
    void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    memset(at, 1, BYTES);
    assert_int_equal(munmap(at, BYTES), 0);
}
#define touch_and_give_back(...) FROM_TEST(touch_and_give_back(__VA_ARGS__))

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

static void *wait_for_the_end(void *arg) {
    pthread_mutex_lock(arg);
    pthread_mutex_unlock(arg);
    return NULL;
}

static void page_tables_and_threads_count_as_the_kernels(void **state) {
    enum { STACK = 16 << 10, TABLES = BYTES / 512 };
    (void)state;
    pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    const uint64_t before = kin_memory_read().kernel;
    if (before == 0) skip(); // the OS gives no figure
    pthread_mutex_lock(&held);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_the_end, &held), 0);
    const uint64_t with_thread = kin_memory_read().kernel;
    uint8_t *ring = kin_ring_map(BYTES); // pages of 4 KiB, each with an 8-byte page table entry
    assert_non_null(ring);
    memset(ring, 1, BYTES);
    const uint64_t with_tables = kin_memory_read().kernel;
    kin_ring_unmap(ring, BYTES);
    pthread_mutex_unlock(&held);
    pthread_join(thread, NULL);
    assert_true(with_thread >= before + STACK);
    assert_true(with_tables >= with_thread + TABLES);
}

static void a_ring_counts_once_as_long_as_it_is_touched(void **state) {
    (void)state;
    uint8_t *ring = kin_ring_map(BYTES);
    assert_non_null(ring);
    assert_int_equal(kin_ring_bytes(), BYTES);
    memset(ring, 1, BYTES);
    const kin_memory half_seen = kin_memory_read();
    if (half_seen.rings == 0) skip(); // the OS gives no figure
    assert_int_equal(half_seen.rings, BYTES);
    for (size_t i = 0; i < BYTES; i++) assert_int_equal(ring[BYTES + i], 1);
    const kin_memory mem = kin_memory_read();
    assert_int_equal(mem.rings, BYTES);
    assert_true(mem.own >= BYTES && mem.own < half_seen.own + NOISE);
    kin_ring_forget(ring, BYTES);
    assert_int_equal(kin_memory_read().rings, 0);
    assert_int_equal(ring[5], 0);
    kin_ring_unmap(ring, BYTES);
    assert_int_equal(kin_ring_bytes(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peak_remembers_what_was_given_back),
        cmocka_unit_test(a_reset_forgets_it_and_later_peaks_count_again),
        cmocka_unit_test(page_tables_and_threads_count_as_the_kernels),
        cmocka_unit_test(a_ring_counts_once_as_long_as_it_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
