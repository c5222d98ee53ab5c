// The pages of a file that are in memory while it is streamed: those of its resident blocks, and no others.
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

#include "engine/stream.h"
#include "sys/pages.h"
#include "testkit/os.h"
#include "tests/place.h"
#include "tests/real_madvise.h"

enum {
    N_BLOCKS = 12,
    BLOCK = (3 << 20) + (64 << 10), // bytes; only the first block begins at a huge page
    N = N_BLOCKS * BLOCK,
};

typedef struct file {
    int fd;
    void *reserved;
    uint8_t *at; // [N], aligned to huge pages
    kin_stream_block blocks[N_BLOCKS];
} file;

static file open_file(void) {
    char path[] = KIN_BINARY_DIR "/kin-test-pages-XXXXXX";
    file f = {.fd = mkstemp(path)};
    uint8_t *bytes = calloc(N, 1);
    assert_true(f.fd >= 0 && bytes);
    unlink(path);
    assert_int_equal(write(f.fd, bytes, N), N);
    free(bytes);
    fsync(f.fd);
    f.reserved = mmap(NULL, N + KIN_HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(f.reserved, MAP_FAILED);
    f.at = (uint8_t *)f.reserved + (KIN_HUGE_PAGE - (uintptr_t)f.reserved % KIN_HUGE_PAGE) % KIN_HUGE_PAGE;
    assert_ptr_equal(mmap(f.at, N, PROT_READ, MAP_SHARED | MAP_FIXED, f.fd, 0), f.at);
    for (int i = 0; i < N_BLOCKS; i++) {
        uint64_t offset = (uint64_t)i * BLOCK;
        f.blocks[i] = (kin_stream_block){.extents = {{0, offset, BLOCK, f.at + offset}}, .n_extents = 1, .i_group = i};
    }
    return f;
}
#define open_file(...) FROM_TEST(open_file(__VA_ARGS__))

static void close_file(file *f) {
    munmap(f->reserved, N + KIN_HUGE_PAGE);
    close(f->fd);
}

// Drops the pages. False if the OS keeps them or gives no information.
static bool reclaim(const file *f) {
    if (!madvise_is_real()) return false;
    drop_cached_pages(f->fd);
    return !kin_pages_held(f->at, N);
}

static kin_stream *open_stream(const file *f, uint64_t budget) {
    kin_stream_options o = {.fds = &f->fd,
                            .n_files = 1,
                            .blocks = f->blocks,
                            .n_blocks = N_BLOCKS,
                            .n_layer_blocks = N_BLOCKS,
                            .mode = KIN_STREAM_RESIDENT,
                            .budget = budget};
    kin_stream *s;
    kin_err err;
    if (kin_stream_open(&s, &o, &err) != 0) fail_msg("%s", err.text);
    return s;
}
#define open_stream(...) FROM_TEST(open_stream(__VA_ARGS__))

// Returns the budget for n resident blocks.
static uint64_t budget_of(const file *f, uint64_t n_resident) {
    return kin_stream_min_budget(f->blocks, N_BLOCKS) + n_resident * BLOCK;
}

static int n_pages_held(const uint8_t *at) {
    int n = 0;
    for (uint64_t i = 0; i < BLOCK; i += kin_page_bytes()) n += kin_pages_held(at + i, 1);
    return n;
}

static int pass(const file *f, kin_stream *s, bool resident[N_BLOCKS]) {
    const uint8_t *ptrs[KIN_STREAM_MAX_EXTENTS];
    kin_err err;
    int n_resident = 0;
    assert_true(kin_stream_begin(s, 0, true));
    for (size_t i = 0; i < N_BLOCKS; i++) {
        assert_int_equal(kin_stream_acquire(s, i, ptrs, &err), 1);
        resident[i] = ptrs[0] == f->at + i * BLOCK;
        n_resident += resident[i];
        kin_stream_release(s, 1);
    }
    return n_resident;
}

// Looks after two passes, because blocks of the first may have been read before the budget changed.
static bool has_pages_of(const file *f, kin_stream *s, int n_resident) {
    bool resident[N_BLOCKS];
    pass(f, s, resident);
    assert_int_equal(pass(f, s, resident), n_resident);
    const int all = BLOCK / (int)kin_page_bytes();
    for (size_t i = 0; i < N_BLOCKS; i++)
        if (n_pages_held(f->at + i * BLOCK) != (resident[i] ? all : 0)) return false;
    return true;
}

// Some kernels take pages that no process has touched yet (DAMON's pageout), so blocks may be fetched anew twice.
static void expect_pages_of(const file *f, kin_stream *s, int n_resident) {
    for (int i = 0; i < 2; i++) {
        if (has_pages_of(f, s, n_resident)) return;
        kin_stream_set_budget(s, budget_of(f, 0));
        kin_stream_set_budget(s, budget_of(f, (uint64_t)n_resident));
    }
    assert_true(has_pages_of(f, s, n_resident));
}
#define expect_pages_of(...) FROM_TEST(expect_pages_of(__VA_ARGS__))

static void what_streams_is_not_in_memory(void **state) {
    (void)state;
    file f = open_file();
    bool gone = reclaim(&f);
    static const int budgets[] = {10, 9, 8, 6, 3, 10, 5, 0}; // blocks
    kin_stream *s = open_stream(&f, budget_of(&f, 7));
    if (gone) expect_pages_of(&f, s, 7);
    for (size_t i = 0; gone && i < sizeof budgets / sizeof *budgets; i++) {
        kin_stream_set_budget(s, budget_of(&f, (uint64_t)budgets[i]));
        expect_pages_of(&f, s, budgets[i]);
    }
    kin_stream_close(s);
    close_file(&f);
    if (!gone) skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_streams_is_not_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
