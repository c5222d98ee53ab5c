// Loading and dropping pages of a mapped file.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sys/pages.h"
#include "testkit/os.h"
#include "tests/place.h"
#include "tests/real_madvise.h"

enum { N = 1 << 20 };

typedef struct mapped {
    int fd;
    uint8_t *at; // [N]
} mapped;

// Uses /var/tmp, which is on a disk; TMPDIR may be in memory.
static mapped open_mapped(void) {
    static uint8_t bytes[N];
    char path[] = "/var/tmp/kin-test-XXXXXX";
    mapped m = {.fd = mkstemp(path)};
    assert_true(m.fd >= 0);
    unlink(path);
    assert_int_equal(write(m.fd, bytes, N), N);
    fsync(m.fd);
    m.at = mmap(NULL, N, PROT_READ, MAP_SHARED, m.fd, 0);
    assert_ptr_not_equal(m.at, MAP_FAILED);
    return m;
}
#define open_mapped(...) FROM_TEST(open_mapped(__VA_ARGS__))

static void close_mapped(mapped *m) {
    munmap(m->at, N);
    close(m->fd);
}

// Drops the pages. False if the OS keeps them or gives no information.
static bool reclaim(const mapped *m) {
    if (!madvise_is_real()) return false;
    madvise(m->at, N, MADV_DONTNEED);
    drop_cached_pages(m->fd);
    return !kin_pages_held(m->at, N);
}

static void what_was_written_is_held(void **state) {
    (void)state;
    mapped m = open_mapped();
    assert_true(kin_pages_held(m.at + 1, N - 1));
    close_mapped(&m);
}

#ifdef __linux__
static void untouched_pages_are_not_held(void **state) {
    (void)state;
    mapped m = open_mapped();
    assert_int_equal(ftruncate(m.fd, 0), 0);
    assert_int_equal(ftruncate(m.fd, N), 0);
    assert_false(kin_pages_held(m.at, N));
    assert_int_equal(m.at[0], 0);
    assert_true(kin_pages_held(m.at, 1));
    close_mapped(&m);
}
#endif

// Returns false if the OS keeps the pages.
static bool expect_faults_of_one_page(bool huge) {
    mapped m = open_mapped();
    bool gone = reclaim(&m);
    if (huge) kin_pages_advise_huge(m.at, N);
    if (gone) {
        kin_pages_read_around(m.at, N, false);
        const uint64_t before = kin_pages_faults(); // nothing else runs until the next count: a page of code may be on disk too
        const uint8_t byte = *(volatile uint8_t *)(m.at + N / 2);
        const uint64_t faults = kin_pages_faults();
        assert_int_equal(byte, 0);
        assert_int_equal(faults, before + 1);
        assert_true(kin_pages_held(m.at + N / 2, 1));
        assert_false(kin_pages_held(m.at + N / 2, kin_page_bytes() + 1));
        kin_pages_read_around(m.at, N, true);
        assert_int_equal(m.at[N / 4], 0);
        assert_true(kin_pages_held(m.at + N / 4, kin_page_bytes() + 1));
    }
    close_mapped(&m);
    return gone;
}
#define expect_faults_of_one_page(...) FROM_TEST(expect_faults_of_one_page(__VA_ARGS__))

static void a_fault_reads_one_page_where_others_are_not_wanted(void **state) {
    (void)state;
    if (!expect_faults_of_one_page(false) || !expect_faults_of_one_page(true)) skip();
}

static void what_is_fetched_is_all_held(void **state) {
    (void)state;
    bool gone = true;
    for (int huge = 0; huge < 2; huge++) {
        mapped m = open_mapped();
        gone = reclaim(&m) && gone;
        kin_pages_read_around(m.at, N, false);
        bool wished = huge && kin_pages_advise_huge(m.at, N);
        assert_int_equal(kin_pages_fetch(m.at + 100, N - 100, wished), 0);
        assert_true(kin_pages_held(m.at, N));
        close_mapped(&m);
    }
    if (!gone) skip();
}

// Uses anonymous memory, which is zero again after it was dropped.
static void what_is_dropped_is_whole_pages_of_the_size_that_they_have(void **state) {
    (void)state;
    for (uint64_t page = 16 << 10; page <= 64 << 10; page *= 4) {
        uint8_t *all = mmap(NULL, 2 * N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(all, MAP_FAILED);
        uint8_t *at = all + (N - (uintptr_t)all % N);
        memset(at, 1, N);
        kin_page_bytes_fake(page);
        kin_pages_drop(at + 1, N - 2);
        kin_page_bytes_fake(0);
        for (uint64_t i = 0; i < N; i++) assert_int_equal(at[i], i < page || i >= N - page);
        munmap(all, 2 * N);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_held),
#ifdef __linux__
        cmocka_unit_test(untouched_pages_are_not_held),
#endif
        cmocka_unit_test(a_fault_reads_one_page_where_others_are_not_wanted),
        cmocka_unit_test(what_is_fetched_is_all_held),
        cmocka_unit_test(what_is_dropped_is_whole_pages_of_the_size_that_they_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
