// The streamer: an acquired extent has the file's bytes, whatever the budget, whenever it changes and wherever a pass stops.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "engine/stream.h"
#include "sys/memory.h"
#include "sys/pages.h"
#include "testkit/os.h"
#include "tests/place.h"
#include "tests/real_madvise.h"

enum {
    N_FILES = 3,
    N_LAYER_BLOCKS = 24,
    N_TILES = 4,
    N_BLOCKS = N_LAYER_BLOCKS + N_TILES,
    MAX_GROUP = 3,        // blocks
    IN_MEMORY = 5,        // the block that has no extents
    MAX_PAUSE_NS = 10000, // between two changes of the budget
    TIMEOUT_MS = 20000    // timeout for events that must happen soon
};

static const size_t file_bytes[N_FILES] = {9000001, 6 << 20, 3333333};

// ---- random numbers; each test has a seed

static uint64_t rng_state;

static uint64_t random_below(uint64_t end) {
    rng_state++;
    return kin_hash64(&rng_state, sizeof rng_state, 0) % end;
}

// ---- files of random bytes, and blocks made of pieces of them

typedef struct context {
    char paths[N_FILES][512];
    int fds[N_FILES];
    uint8_t *bytes[N_FILES]; // the files' contents
    uint8_t *maps[N_FILES];
    kin_stream_block blocks[N_BLOCKS];
    size_t n_blocks;
    uint64_t total, slots; // bytes of all blocks; the same widened to pages
} context;

static void write_all(int fd, const uint8_t *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t k = pwrite(fd, bytes + done, n - done, (off_t)done);
        assert_true(k > 0);
        done += (size_t)k;
    }
}

static void make_file(context *w, const char *dir, int i) {
    size_t n = file_bytes[i];
    snprintf(w->paths[i], sizeof w->paths[i], "%s/kin-test-stream-XXXXXX", dir);
    int fd = mkstemp(w->paths[i]);
    assert_true(fd >= 0);
    w->bytes[i] = malloc(n + sizeof(uint64_t));
    assert_non_null(w->bytes[i]);
    uint64_t word = random_below(UINT64_MAX) | 1;
    for (size_t at = 0; at < n; at += sizeof word) {
        word ^= word << 13, word ^= word >> 7, word ^= word << 17; // xorshift64
        memcpy(w->bytes[i] + at, &word, sizeof word);
    }
    write_all(fd, w->bytes[i], n);
    assert_int_equal(fsync(fd), 0);
    w->maps[i] = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(w->maps[i] != MAP_FAILED);
    w->fds[i] = fd;
}

// Returns an extent of a few bytes up to more than one read, at any offset; some end at the file's last byte.
static kin_extent random_extent(const context *w) {
    int i = (int)random_below(N_FILES);
    uint64_t bytes = 1 + random_below(random_below(3) == 0 ? 500 : random_below(12) == 0 ? 3 << 20 : 200000);
    uint64_t last = file_bytes[i] - bytes, offset = random_below(5) == 0 ? last : random_below(last + 1);
    return (kin_extent){i, offset, bytes, w->maps[i] + offset};
}

static uint64_t slot_bytes(const kin_extent *e) {
    uint64_t begin = e->offset / KIN_STREAM_ALIGN, end = (e->offset + e->bytes + KIN_STREAM_ALIGN - 1) / KIN_STREAM_ALIGN;
    return (end - begin) * KIN_STREAM_ALIGN;
}

static void make_blocks(context *w) {
    int i_group = 0, left_in_group = 0;
    w->n_blocks = N_BLOCKS;
    for (size_t i = 0; i < N_BLOCKS; i++) {
        kin_stream_block *u = &w->blocks[i];
        if (left_in_group == 0 || i >= N_LAYER_BLOCKS) {
            i_group++;
            left_in_group = 1 + (int)random_below(MAX_GROUP);
        }
        left_in_group--;
        u->i_group = i_group;
        u->n_extents = i == IN_MEMORY ? 0 : i % 7 == 0 ? KIN_STREAM_MAX_EXTENTS : 1 + (int)random_below(4);
        for (int k = 0; k < u->n_extents; k++) {
            u->extents[k] = random_extent(w);
            w->total += u->extents[k].bytes;
            w->slots += slot_bytes(&u->extents[k]);
        }
    }
}

static context *open_context(const char *dir) {
    rng_state = 1;
    context *w = calloc(1, sizeof *w);
    assert_non_null(w);
    for (int i = 0; i < N_FILES; i++) make_file(w, dir, i);
    make_blocks(w);
    return w;
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

static void close_context(context *w) {
    for (int i = 0; i < N_FILES && w; i++) {
        munmap(w->maps[i], file_bytes[i]);
        unlink(w->paths[i]);
        close(w->fds[i]);
        free(w->bytes[i]);
    }
    free(w);
}

// Consecutive tests of one folder share its context, because no test changes it.
static struct {
    const char *dir;
    context *w;
    uint64_t rng_state;
} shared;

// *state: the folder before, the context afterwards.
static int share_context(void **state) {
    if (shared.dir != *state) {
        close_context(shared.w);
        shared.dir = *state;
        shared.w = open_context(shared.dir);
        shared.rng_state = rng_state;
    }
    rng_state = shared.rng_state;
    *state = shared.w;
    return 0;
}

static int close_shared(void **state) {
    (void)state;
    close_context(shared.w);
    return 0;
}

static uint64_t min_budget(const context *w) {
    return kin_stream_min_budget(w->blocks, w->n_blocks);
}

static int try_open(const context *w, kin_stream_mode mode, uint64_t budget, kin_stream **out, kin_err *err) {
    kin_stream_options o = {
        .fds = w->fds, .n_files = N_FILES, .blocks = w->blocks, .n_blocks = w->n_blocks, .mode = mode, .budget = budget};
    o.n_layer_blocks = N_LAYER_BLOCKS;
    return kin_stream_open(out, &o, err);
}

static kin_stream *open_stream(const context *w, kin_stream_mode mode, uint64_t budget) {
    kin_stream *s;
    kin_err err;
    if (try_open(w, mode, budget, &s, &err) != 0) fail_msg("%s", err.text);
    return s;
}
#define open_stream(...) FROM_TEST(open_stream(__VA_ARGS__))

// ---- passes

typedef struct outcome {
    bool begun;              // kin_stream_begin returned true
    bool failed;             // an acquire failed
    uint64_t resident_bytes; // bytes acquired from the mapping
} outcome;

static size_t group_end(const context *w, size_t begin) {
    size_t end = begin;
    while (end < w->n_blocks && w->blocks[end].i_group == w->blocks[begin].i_group) end++;
    return end;
}

static void expect_bytes(const context *w, size_t block, const uint8_t *const *ptrs) {
    for (int k = 0; k < w->blocks[block].n_extents; k++) {
        const kin_extent *e = &w->blocks[block].extents[k];
        if (memcmp(ptrs[k], w->bytes[e->i_file] + e->offset, e->bytes) != 0)
            fail_msg("block %zu, extent %d: wrong bytes", block, k);
    }
}
#define expect_bytes(...) FROM_TEST(expect_bytes(__VA_ARGS__))

// The pointers of a group's blocks, which one computation needs at the same time.
typedef struct held {
    const uint8_t *ptrs[MAX_GROUP][KIN_STREAM_MAX_EXTENTS];
} held;

static int acquire_group(const context *w, kin_stream *s, size_t begin, size_t end, held *h, outcome *out, kin_err *err) {
    for (size_t i = begin; i < end; i++) {
        const uint8_t **ptrs = h->ptrs[i - begin];
        int n = kin_stream_acquire(s, i, ptrs, err);
        if (n < 0) return KIN_FAIL;
        assert_int_equal(n, w->blocks[i].n_extents);
        for (int k = 0; k < n; k++) {
            const kin_extent *e = &w->blocks[i].extents[k];
            if (ptrs[k] == e->map) out->resident_bytes += e->bytes;
        }
    }
    return 0;
}
#define acquire_group(...) FROM_TEST(acquire_group(__VA_ARGS__))

// Acquires and releases groups from block `begin` on, like kin_weights, and checks all bytes. Stops after block `stop`.
static outcome run_from(const context *w, kin_stream *s, size_t begin, bool with_output, size_t stop) {
    outcome out = {.begun = kin_stream_begin(s, begin, with_output)};
    size_t end = with_output ? w->n_blocks : N_LAYER_BLOCKS;
    kin_err err = {""};
    held h;
    for (size_t i = begin; out.begun && i < end && i <= stop;) {
        size_t next = group_end(w, i);
        if (acquire_group(w, s, i, next, &h, &out, &err) != 0) {
            assert_true(err.text[0] && !strchr(err.text, '\n'));
            out.failed = true;
            return out;
        }
        for (size_t k = i; k < next; k++) expect_bytes(w, k, h.ptrs[k - i]);
        kin_stream_release(s, next - i);
        i = next;
    }
    return out;
}
#define run_from(...) FROM_TEST(run_from(__VA_ARGS__))

static outcome run_pass(const context *w, kin_stream *s, bool with_output, size_t stop) {
    return run_from(w, s, 0, with_output, stop);
}
#define run_pass(...) FROM_TEST(run_pass(__VA_ARGS__))

static outcome whole_pass(const context *w, kin_stream *s, bool with_output) {
    outcome out = run_pass(w, s, with_output, SIZE_MAX);
    assert_false(out.failed);
    return out;
}
#define whole_pass(...) FROM_TEST(whole_pass(__VA_ARGS__))

// ---- the right bytes

static void every_budget_gives_the_files_bytes(void **state) {
    const context *w = *state;
    for (uint64_t k = 0; k <= 8; k++) {
        kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w) + w->total * k / 8);
        for (int pass = 0; pass < 5; pass++) whole_pass(w, s, pass % 3 != 1);
        kin_stream_close(s);
    }
}

// The ring is mapped twice, so its size must be a multiple of the page size; so must be the ranges that are dropped.
static void pages_of_16_and_64_KiB_give_the_files_bytes(void **state) {
    const context *w = *state;
    for (uint64_t page = 16 << 10; page <= 64 << 10; page *= 4) {
        kin_page_bytes_fake(page);
        assert_int_equal(min_budget(w) % page, 0);
        for (uint64_t k = 0; k <= 2; k++) {
            kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w) + w->total * k / 2);
            whole_pass(w, s, true);
            kin_stream_set_budget(s, min_budget(w));
            whole_pass(w, s, true);
            kin_stream_close(s);
        }
        kin_stream *s;
        kin_err err;
        kin_stream_options o = {.fds = w->fds, .n_files = N_FILES, .blocks = w->blocks, .n_blocks = w->n_blocks, .window = 1};
        o.n_layer_blocks = N_LAYER_BLOCKS;
        assert_int_equal(kin_stream_open(&s, &o, &err), 0);
        whole_pass(w, s, true);
        kin_stream_close(s);
        kin_page_bytes_fake(0);
    }
}

static void a_pass_may_stop_anywhere(void **state) {
    const context *w = *state;
    rng_state = 2;
    for (int round = 0; round < 3; round++) {
        kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w) + random_below(w->total));
        for (int pass = 0; pass < 40; pass++) assert_false(run_pass(w, s, random_below(2), random_below(2 * N_BLOCKS)).failed);
        kin_stream_close(s);
    }
}

static void a_stream_may_be_closed_while_it_reads_ahead(void **state) {
    const context *w = *state;
    rng_state = 3;
    for (int round = 0; round < 10; round++) {
        kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w) + random_below(w->total));
        run_pass(w, s, true, random_below(4));
        kin_stream_close(s);
    }
    kin_stream_close(NULL);
}

static void without_output_units_passes_are_the_layers_only(void **state) {
    context w = *(const context *)*state;
    w.n_blocks = N_LAYER_BLOCKS;
    kin_stream *s = open_stream(&w, KIN_STREAM_RESIDENT, min_budget(&w));
    for (int pass = 0; pass < 4; pass++) assert_true(whole_pass(&w, s, false).begun);
    kin_stream_close(s);
}

// Acquired bytes do not change, however far the streamer reads ahead meanwhile.
static void what_is_acquired_is_not_overwritten_before_release(void **state) {
    const context *w = *state;
    kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w));
    for (int pass = 0; pass < 3; pass++) {
        held h;
        outcome out;
        kin_err err;
        assert_true(kin_stream_begin(s, 0, false));
        for (size_t i = 0, next; i < N_LAYER_BLOCKS; i = next) {
            next = group_end(w, i);
            assert_int_equal(acquire_group(w, s, i, next, &h, &out, &err), 0);
            for (uint64_t before = 0, now; (now = kin_stream_get_stats(s).read_bytes) != before; before = now) usleep(3000);
            for (size_t k = i; k < next; k++) expect_bytes(w, k, h.ptrs[k - i]);
            kin_stream_release(s, next - i);
        }
    }
    kin_stream_close(s);
}

static void the_intervals_of_reading_add_up_to_the_busy_time(void **state) {
    const context *w = *state;
    kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w));
    static kin_interval got[KIN_BUSY_KEPT];
    kin_time last = kin_clock_now();
    uint64_t sum = 0, least = kin_stream_get_stats(s).busy_ns;
    whole_pass(w, s, true);
    least = kin_stream_get_stats(s).busy_ns - least;
    size_t n = kin_stream_pop_intervals(s, KIN_STREAM_READS, got, KIN_BUSY_KEPT);
    uint64_t most = kin_stream_get_stats(s).busy_ns;
    assert_true(n > 0 && n < KIN_BUSY_KEPT);
    for (size_t i = 0; i < n; i++) {
        assert_true(got[i].begin >= last && got[i].end >= got[i].begin);
        last = got[i].end;
        sum += got[i].end - got[i].begin;
    }
    assert_true(last <= kin_clock_now());
    assert_true(sum >= least && sum <= most); // an interval, because reading ahead continues
    n = kin_stream_pop_intervals(s, KIN_STREAM_STALLS, got, KIN_BUSY_KEPT);
    sum = 0;
    for (size_t i = 0; i < n; i++) sum += got[i].end - got[i].begin;
    assert_int_equal(sum, kin_stream_get_stats(s).wait_ns);
    kin_stream_close(s);
}

// ---- budgets

static void a_budget_that_cannot_hold_the_ring_is_refused_with_the_number(void **state) {
    const context *w = *state;
    const uint64_t too_small[] = {0, 1 << 20, min_budget(w) - 1};
    for (size_t i = 0; i < sizeof too_small / sizeof *too_small; i++) {
        kin_stream *s;
        kin_err err = {""};
        char number[32];
        assert_int_equal(try_open(w, KIN_STREAM_RESIDENT, too_small[i], &s, &err), KIN_FAIL);
        assert_null(s);
        snprintf(number, sizeof number, "%llu MiB", (unsigned long long)(min_budget(w) + (1 << 20) - 1) >> 20);
        if (!strstr(err.text, number) || strchr(err.text, '\n')) fail_msg("'%s' does not say %s", err.text, number);
    }
    kin_stream_close(open_stream(w, KIN_STREAM_RESIDENT, min_budget(w)));
}

static void the_resident_bytes_are_those_of_the_stats_and_fit_the_budget(void **state) {
    const context *w = *state;
    for (uint64_t k = 0; k <= 8; k++) {
        uint64_t budget = min_budget(w) + (w->total - min_budget(w)) * k / 8;
        kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, budget);
        outcome out = whole_pass(w, s, true);
        kin_stream_stats stats = kin_stream_get_stats(s);
        assert_true(out.begun);
        assert_int_equal(out.resident_bytes, stats.resident_bytes);
        if (k == 0) assert_int_equal(stats.resident_bytes, 0);
        if (k == 8)
            assert_int_equal(stats.resident_bytes, w->total);
        else
            assert_true(stats.resident_bytes + stats.ring_bytes <= budget);
        kin_stream_close(s);
    }
}

static void when_everything_is_in_memory_passes_run_without_the_stream(void **state) {
    const context *w = *state;
    kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, UINT64_MAX);
    assert_true(whole_pass(w, s, true).begun); // the first pass fetches all blocks
    for (int pass = 0; pass < 3; pass++) assert_false(whole_pass(w, s, true).begun);
    kin_stream_stats stats = kin_stream_get_stats(s);
    assert_int_equal(stats.read_bytes, 0);
    assert_int_equal(stats.fetch_bytes, w->total);
    assert_int_equal(stats.n_passes, 4);
    kin_stream_close(s);
}

// Runs passes until one needs no streaming. More than one is needed if the OS has dropped pages: fetching them faults, and blocks
// that fault are checked once more.
static void run_until_all_is_here(const context *w, kin_stream *s) {
    int n = 0;
    while (whole_pass(w, s, true).begun) assert_true(++n < 10);
}
#define run_until_all_is_here(...) FROM_TEST(run_until_all_is_here(__VA_ARGS__))

static void a_budget_may_shrink_and_grow_between_passes(void **state) {
    const context *w = *state;
    kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, UINT64_MAX);
    for (int round = 0; round < 3; round++) {
        run_until_all_is_here(w, s);
        assert_int_equal(kin_stream_set_budget(s, min_budget(w)), 0);
        outcome out = whole_pass(w, s, true);
        assert_true(out.begun);
        assert_int_equal(out.resident_bytes, 0);
        uint64_t half = min_budget(w) + w->total / 2, resident = kin_stream_set_budget(s, half);
        assert_true(resident > 0 && resident <= w->total / 2);
        whole_pass(w, s, true);
        whole_pass(w, s, true); // the blocks of the first pass may have been read ahead
        assert_int_equal(whole_pass(w, s, true).resident_bytes, resident);
        assert_int_equal(kin_stream_set_budget(s, UINT64_MAX), w->total);
        whole_pass(w, s, false); // layers may have been read ahead
    }
    kin_stream_close(s);
}

enum { N_CHANGERS = 2 };

typedef struct changer {
    const context *w;
    kin_stream *s;
    atomic_int n_done;
} changer;

static void *change_budgets(void *arg) {
    changer *c = arg;
    uint64_t at = 7, everything = min_budget(c->w) + c->w->total;
    for (int i = 0; i < 500 / N_CHANGERS; i++) {
        at = kin_hash64(&i, sizeof i, at);
        uint64_t budget = i % 10 == 0 ? 0 : i % 10 == 5 ? UINT64_MAX : at % (everything + everything / 8);
        uint64_t resident = kin_stream_set_budget(c->s, budget);
        if (resident > budget) abort();
        for (kin_time begun = kin_clock_now(); kin_clock_now() - begun < at % MAX_PAUSE_NS;) {
        } // spins, because yielding may take as long as a time slice
    }
    atomic_fetch_add(&c->n_done, 1);
    return NULL;
}

static void a_budget_may_change_at_any_moment_from_other_threads(void **state) {
    const context *w = *state;
    changer c = {.w = w, .s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w))};
    pthread_t threads[N_CHANGERS];
    rng_state = 4;
    for (int i = 0; i < N_CHANGERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, change_budgets, &c), 0);
    for (int pass = 0; pass < 30 || atomic_load(&c.n_done) < N_CHANGERS; pass++) {
        assert_false(run_pass(w, c.s, random_below(2), random_below(3 * N_BLOCKS)).failed);
    }
    for (int i = 0; i < N_CHANGERS; i++) pthread_join(threads[i], NULL);
    kin_stream_close(c.s);
}

// ---- the other modes

static void in_mmap_mode_every_pass_is_left_to_the_os(void **state) {
    const context *w = *state;
    kin_stream *s = open_stream(w, KIN_STREAM_MMAP, 0);
    for (int pass = 0; pass < 4; pass++) assert_false(whole_pass(w, s, pass % 2).begun);
    kin_stream_stats stats = kin_stream_get_stats(s);
    assert_true(stats.read_bytes == 0 && stats.fetch_bytes == 0 && stats.ring_bytes == 0);
    kin_stream_close(s);
}

static void in_willneed_mode_units_are_announced_and_come_from_the_mapping(void **state) {
    const context *w = *state;
    kin_stream *s = open_stream(w, KIN_STREAM_WILLNEED, 0);
    rng_state = 5;
    for (int pass = 0; pass < 4; pass++) {
        outcome out = whole_pass(w, s, true);
        assert_true(out.begun);
        assert_int_equal(out.resident_bytes, w->total);
    }
    kin_stream_stats stats = kin_stream_get_stats(s);
    assert_true(stats.read_bytes == 0 && stats.ring_bytes == 0);
    assert_true(stats.fetch_bytes >= 4 * w->total);
    assert_true(kin_stream_is_reading());
    for (int pass = 0; pass < 20; pass++) assert_false(run_pass(w, s, random_below(2), random_below(2 * N_BLOCKS)).failed);
    kin_stream_close(s);
}

// Waits until the announced bytes are as many as these, and fails if there are more.
static void await_announced(kin_stream *s, uint64_t bytes) {
    kin_time begun = kin_clock_now();
    while (kin_stream_get_stats(s).fetch_bytes < bytes) {
        if (kin_clock_ms(begun, kin_clock_now()) > TIMEOUT_MS)
            fail_msg("%llu bytes are announced, not %llu", (unsigned long long)kin_stream_get_stats(s).fetch_bytes,
                     (unsigned long long)bytes);
        usleep(1000);
    }
    assert_int_equal(kin_stream_get_stats(s).fetch_bytes, bytes);
}
#define await_announced(...) FROM_TEST(await_announced(__VA_ARGS__))

static uint64_t window_bytes(const context *w, int window) {
    uint64_t sum = 0;
    for (size_t i = 0; i < w->n_blocks; i++) {
        for (int k = 0; k < w->blocks[i].n_extents; k++)
            sum += w->blocks[i].i_window == window ? w->blocks[i].extents[k].bytes : 0;
    }
    return sum;
}

// Two windows of 12 blocks, with groups of one block, and the output.
static void in_willneed_mode_a_window_is_announced_whole_once_the_one_before_it_is_computed(void **state) {
    enum { N_WINDOW = N_LAYER_BLOCKS / 2 };
    static context w;
    const uint8_t *ptrs[KIN_STREAM_MAX_EXTENTS];
    kin_err err;
    w = *(const context *)*state;
    for (int i = 0; i < N_BLOCKS; i++) w.blocks[i].i_group = i, w.blocks[i].i_window = i / N_WINDOW;
    kin_stream *s = open_stream(&w, KIN_STREAM_WILLNEED, 0);
    assert_true(kin_stream_begin(s, 0, true));
    uint64_t announced = 0;
    for (size_t i = 0; i < N_BLOCKS; i++) {
        if (i % N_WINDOW == 0) announced += window_bytes(&w, (int)(i / N_WINDOW));
        await_announced(s, announced);
        assert_true(kin_stream_acquire(s, i, ptrs, &err) >= 0);
        await_announced(s, announced);
        kin_stream_release(s, 1);
    }
    await_announced(s, w.total + window_bytes(&w, 0)); // the first window of the next pass
    kin_stream_close(s);
}

// ---- reading ahead

// Waits until this many bytes were read, without acquiring anything.
static void await_read_bytes(kin_stream *s, uint64_t bytes) {
    kin_time begun = kin_clock_now();
    while (kin_stream_get_stats(s).read_bytes < bytes) {
        if (kin_clock_ms(begun, kin_clock_now()) > TIMEOUT_MS) fail_msg("nobody reads ahead");
        usleep(1000);
    }
}
#define await_read_bytes(...) FROM_TEST(await_read_bytes(__VA_ARGS__))

// Returns blocks of 1 MiB after a first one of 8 MiB, which makes the ring large enough for several of them.
static context with_even_blocks(const context *from) {
    context w = *from;
    w.slots = w.total = 0;
    for (size_t i = 0; i < w.n_blocks; i++) {
        uint64_t bytes = i == 0 ? 8 << 20 : 1 << 20, offset = i == 0 ? 4096 : (i * 204800) / KIN_STREAM_ALIGN * KIN_STREAM_ALIGN;
        w.blocks[i] = (kin_stream_block){.n_extents = 1, .i_group = (int)i};
        w.blocks[i].extents[0] = (kin_extent){0, offset, bytes, w.maps[0] + offset};
        w.total += bytes;
        w.slots += bytes;
    }
    return w;
}

static uint64_t slot_bytes_of(const kin_stream_block *b) {
    uint64_t sum = 0;
    for (int k = 0; k < b->n_extents; k++) sum += slot_bytes(&b->extents[k]);
    return sum;
}

// The ring holds the largest three consecutive groups, even with a budget of 0.
static void a_window_holds_so_many_parts_and_what_stays(void **state) {
    context w = *(const context *)*state;
    uint64_t want = 0, stays = 0, largest = 0;
    for (size_t i = 0; i < w.n_blocks; i++) {
        w.blocks[i].i_part = w.blocks[i].i_group;
        w.blocks[i].stays = i < N_LAYER_BLOCKS && i % 8 == 1;
        for (int k = 0; w.blocks[i].stays && k < w.blocks[i].n_extents; k++) stays += w.blocks[i].extents[k].bytes;
    }
    for (size_t first = 0; first < w.n_blocks; first++) {
        uint64_t sum = 0, group = 0;
        for (size_t i = 0; i < w.n_blocks; i++) {
            int from_first = w.blocks[i].i_part - w.blocks[first].i_part;
            sum += from_first >= 0 && from_first < 3 && !w.blocks[i].stays ? slot_bytes_of(&w.blocks[i]) : 0;
            group += from_first == 0 ? slot_bytes_of(&w.blocks[i]) : 0;
        }
        want = sum > want ? sum : want;
        largest = group > largest ? group : largest;
    }
    want = want > largest ? want : largest;
    kin_stream_options o = {.fds = w.fds, .n_files = N_FILES, .blocks = w.blocks, .n_blocks = w.n_blocks, .window = 3};
    o.n_layer_blocks = N_LAYER_BLOCKS;
    kin_stream *s;
    kin_err err;
    assert_int_equal(kin_stream_open(&s, &o, &err), 0);
    for (int pass = 0; pass < 3; pass++) {
        assert_int_equal(whole_pass(&w, s, true).resident_bytes, stays);
        kin_stream_set_budget(s, pass ? UINT64_MAX : 0);
    }
    kin_stream_stats stats = kin_stream_get_stats(s);
    assert_int_equal(stats.resident_bytes, stays);
    assert_true(stats.ring_bytes >= want && stats.ring_bytes < want + kin_page_bytes());
    kin_stream_close(s);
}

static void later_units_are_read_while_earlier_ones_are_computed(void **state) {
    context w = with_even_blocks(*state);
    kin_stream *s = open_stream(&w, KIN_STREAM_RESIDENT, min_budget(&w));
    const uint8_t *ptrs[KIN_STREAM_MAX_EXTENTS];
    kin_err err;
    assert_true(kin_stream_begin(s, 0, false));
    assert_int_equal(kin_stream_acquire(s, 0, ptrs, &err), 1);
    await_read_bytes(s, 10 << 20); // the ring has 2 MiB more than the first block
    uint64_t waited = kin_stream_get_stats(s).wait_ns;
    assert_int_equal(kin_stream_acquire(s, 1, ptrs, &err), 1);
    assert_int_equal(kin_stream_acquire(s, 2, ptrs, &err), 1);
    assert_int_equal(kin_stream_get_stats(s).wait_ns, waited);
    kin_stream_release(s, 3);
    await_read_bytes(s, 19 << 20); // after those three, ten more fit the ring; the last one may not be counted yet
    kin_stream_close(s);
}

static void reading_goes_on_across_the_end_of_a_pass(void **state) {
    context w = with_even_blocks(*state);
    kin_stream *s = open_stream(&w, KIN_STREAM_RESIDENT, min_budget(&w));
    const uint8_t *ptrs[KIN_STREAM_MAX_EXTENTS];
    kin_err err;
    whole_pass(&w, s, true);
    await_read_bytes(s, w.slots + (10 << 20)); // reads the next pass's layers before it begins
    uint64_t waited = kin_stream_get_stats(s).wait_ns;
    assert_true(kin_stream_begin(s, 0, true));
    for (size_t i = 0; i < 3; i++) assert_int_equal(kin_stream_acquire(s, i, ptrs, &err), 1);
    assert_int_equal(kin_stream_get_stats(s).wait_ns, waited);
    kin_stream_close(s);
}

// ---- stats

// A pass reads the bytes of its streamed blocks once, apart from those read ahead for the next pass.
static void a_pass_reads_what_is_streamed_once(void **state) {
    const context *w = *state;
    kin_time begun = kin_clock_now();
    kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w));
    for (uint64_t pass = 1; pass <= 4; pass++) {
        whole_pass(w, s, true);
        kin_stream_stats stats = kin_stream_get_stats(s);
        assert_in_range(stats.read_bytes, pass * w->slots, pass * w->slots + stats.ring_bytes);
        assert_int_equal(stats.fetch_bytes, 0);
        assert_int_equal(stats.n_passes, pass);
        assert_int_equal(stats.ring_bytes, min_budget(w));
        assert_in_range(stats.busy_ns, 0, kin_clock_now() - begun);
        assert_in_range(stats.wait_ns, 0, kin_clock_now() - begun);
    }
    for (int ms = 0; kin_stream_get_stats(s).busy_ns == 0 && ms < TIMEOUT_MS; ms++) usleep(1000); // until the ring is full
    assert_true(kin_stream_get_stats(s).busy_ns > 0);
    kin_stream_close(s);
}

// Drops all pages, as the OS does when it needs memory. False if the files exist only in memory.
static bool reclaim_pages(const context *w) {
    bool gone = madvise_is_real();
    for (int i = 0; i < N_FILES; i++) {
        madvise(w->maps[i], file_bytes[i], MADV_DONTNEED);
        fsync(w->fds[i]);
        drop_cached_pages(w->fds[i]);
        gone = gone && !kin_pages_held(w->maps[i], file_bytes[i]);
    }
    return gone;
}

static void pages_that_the_os_took_back_are_fetched_again_ahead_of_their_use(void **state) {
    const context *w = *state;
    kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w) + w->total / 2);
    whole_pass(w, s, true);
    whole_pass(w, s, true);
    if (!reclaim_pages(w)) {
        kin_stream_close(s);
        skip();
    }
    const kin_stream_stats before = kin_stream_get_stats(s);
    for (int pass = 0; pass < 3; pass++) whole_pass(w, s, true);
    const uint64_t again = kin_stream_get_stats(s).fetch_bytes - before.fetch_bytes;
    assert_in_range(again, before.resident_bytes / 2, before.resident_bytes); // some pages were faulted in before
    kin_stream_close(s);
}

static void the_rings_memory_goes_back_when_nothing_is_streamed(void **state) {
    const context *w = *state;
    if (!reclaim_pages(w)) skip(); // files in memory count as memory of rings
    kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w));
    whole_pass(w, s, true);
    assert_in_range(kin_memory_read().rings, min_budget(w) / 2, min_budget(w));
    kin_stream_set_budget(s, w->total);
    int passes = 1;
    while (whole_pass(w, s, true).begun) passes++;
    assert_in_range(passes, 2, 4); // all blocks are fetched, and checked once more because fetching faults
    assert_int_equal(kin_memory_read().rings, 0);
    kin_stream_close(s);
}

static void resident_units_are_fetched_once_and_never_streamed(void **state) {
    const context *w = *state;
    kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w) + w->total / 2);
    for (uint64_t pass = 1; pass <= 4; pass++) {
        whole_pass(w, s, true);
        kin_stream_stats stats = kin_stream_get_stats(s);
        assert_int_equal(stats.fetch_bytes, stats.resident_bytes);
        assert_in_range(stats.read_bytes, pass * (w->total - stats.resident_bytes),
                        pass * (w->slots - stats.resident_bytes) + stats.ring_bytes);
    }
    kin_stream_close(s);
}

// Drafts use the output matrix between passes. If it leaves memory last it needs no run of the stream, which would drop what is
// read ahead.
static void an_output_that_is_kept_is_in_memory_as_long_as_it_fits(void **state) {
    const context *w = *state;
    uint64_t output = 0;
    for (size_t i = N_LAYER_BLOCKS; i < w->n_blocks; i++)
        for (int k = 0; k < w->blocks[i].n_extents; k++) output += w->blocks[i].extents[k].bytes;
    for (int keeps = 0; keeps < 2; keeps++) {
        kin_stream_options o = {.fds = w->fds, .n_files = N_FILES, .blocks = w->blocks, .n_blocks = w->n_blocks};
        kin_stream *s;
        kin_err err;
        o.n_layer_blocks = N_LAYER_BLOCKS;
        o.keeps_output = keeps;
        o.budget = min_budget(w) + output;
        assert_int_equal(kin_stream_open(&s, &o, &err), 0);
        assert_false(kin_stream_has_output(s)); // it comes with the first pass
        bool had = false;
        for (int pass = 0; pass < 20 && !had; pass++) { // after a page fault pages are in doubt until the next pass
            whole_pass(w, s, true);
            had = kin_stream_has_output(s);
        }
        assert_int_equal(had, keeps);
        kin_stream_set_budget(s, min_budget(w));
        whole_pass(w, s, true);
        assert_false(kin_stream_has_output(s));
        kin_stream_close(s);
    }
}

// The windows of a ring are runs over parts of a pass. In order they cost no additional reads; any order gives the right bytes.
static void a_pass_in_several_runs_reads_no_more_than_in_one(void **state) {
    const context *w = *state;
    enum { N_PASSES = 6 };
    uint64_t read[2];
    for (int cut = 0; cut < 2; cut++) {
        kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w));
        for (int pass = 0; pass < N_PASSES; pass++) {
            size_t middle = group_end(w, N_LAYER_BLOCKS / 2);
            run_from(w, s, 0, true, cut ? middle - 1 : SIZE_MAX);
            if (cut) run_from(w, s, middle, true, N_LAYER_BLOCKS - 1);
            if (cut) run_from(w, s, N_LAYER_BLOCKS, true, SIZE_MAX);
        }
        kin_stream_stats stats = kin_stream_get_stats(s);
        assert_int_equal(stats.n_passes, N_PASSES);
        read[cut] = stats.read_bytes;
        kin_stream_close(s);
    }
    assert_true(read[1] <= read[0] + min_budget(w) &&
                read[0] <= read[1] + min_budget(w)); // apart from the bytes read ahead at the end
}

static void runs_in_any_order_give_the_files_bytes(void **state) {
    const context *w = *state;
    for (uint64_t k = 0; k <= 4; k++) {
        kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w) + w->total * k / 5);
        for (int run = 0; run < 60; run++) {
            size_t begin = random_below(w->n_blocks);
            while (begin > 0 && group_end(w, begin - 1) != begin) begin--;
            run_from(w, s, begin, random_below(2), begin + random_below(w->n_blocks));
        }
        whole_pass(w, s, true);
        kin_stream_close(s);
    }
}

// ---- what goes wrong

static void restore_file(const context *w, int i) {
    int fd = open(w->paths[i], O_WRONLY);
    assert_true(fd >= 0);
    write_all(fd, w->bytes[i], file_bytes[i]);
    close(fd);
}
#define restore_file(...) FROM_TEST(restore_file(__VA_ARGS__))

static void a_file_that_becomes_shorter_is_an_error_until_it_is_whole_again(void **state) {
    const context *w = *state;
    kin_stream *s = open_stream(w, KIN_STREAM_RESIDENT, min_budget(w)); // nothing accesses the mapping
    for (int round = 0; round < 2; round++) {
        bool failed = false;
        whole_pass(w, s, true);
        assert_int_equal(truncate(w->paths[0], 1000000), 0);
        for (int pass = 0; pass < 3 && !failed; pass++)
            failed = run_pass(w, s, true, SIZE_MAX).failed; // the first pass was read ahead
        assert_true(failed);
        assert_true(run_pass(w, s, true, SIZE_MAX).failed);
        assert_true(run_pass(w, s, false, SIZE_MAX).failed);
        restore_file(w, 0);
        run_pass(w, s, true, SIZE_MAX); // may still use bytes that were read ahead
        run_pass(w, s, false, SIZE_MAX);
        for (int pass = 0; pass < 2; pass++) whole_pass(w, s, true);
    }
    kin_stream_close(s);
}

static int count_open_files(void) {
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) return -1;
    int n = 0;
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static void files_are_closed_whether_opening_succeeds_or_not(void **state) {
    context w = *(const context *)*state;
    int before = count_open_files();
    kin_stream *s = open_stream(&w, KIN_STREAM_RESIDENT, min_budget(&w));
    run_pass(&w, s, true, 3);
    kin_stream_close(s);
    assert_int_equal(count_open_files(), before);

    kin_err err;
    assert_int_equal(try_open(&w, KIN_STREAM_RESIDENT, 0, &s, &err), KIN_FAIL);
    assert_int_equal(count_open_files(), before);
}

#define ON(dir, name)                                                                                                            \
    { #name " " #dir, name, share_context, NULL, (void *)dir }
#define STREAM_TESTS(dir)                                                                                                        \
    ON(dir, every_budget_gives_the_files_bytes), ON(dir, pages_of_16_and_64_KiB_give_the_files_bytes),                           \
        ON(dir, a_pass_may_stop_anywhere), ON(dir, a_stream_may_be_closed_while_it_reads_ahead),                                 \
        ON(dir, without_output_units_passes_are_the_layers_only), ON(dir, what_is_acquired_is_not_overwritten_before_release),   \
        ON(dir, the_intervals_of_reading_add_up_to_the_busy_time),                                                               \
        ON(dir, a_budget_that_cannot_hold_the_ring_is_refused_with_the_number),                                                  \
        ON(dir, the_resident_bytes_are_those_of_the_stats_and_fit_the_budget),                                                   \
        ON(dir, when_everything_is_in_memory_passes_run_without_the_stream),                                                     \
        ON(dir, a_budget_may_shrink_and_grow_between_passes), ON(dir, a_pass_in_several_runs_reads_no_more_than_in_one),         \
        ON(dir, runs_in_any_order_give_the_files_bytes), ON(dir, a_budget_may_change_at_any_moment_from_other_threads),          \
        ON(dir, in_mmap_mode_every_pass_is_left_to_the_os),                                                                      \
        ON(dir, in_willneed_mode_a_window_is_announced_whole_once_the_one_before_it_is_computed),                                \
        ON(dir, in_willneed_mode_units_are_announced_and_come_from_the_mapping),                                                 \
        ON(dir, a_window_holds_so_many_parts_and_what_stays), ON(dir, later_units_are_read_while_earlier_ones_are_computed),     \
        ON(dir, reading_goes_on_across_the_end_of_a_pass), ON(dir, a_pass_reads_what_is_streamed_once),                          \
        ON(dir, an_output_that_is_kept_is_in_memory_as_long_as_it_fits),                                                         \
        ON(dir, resident_units_are_fetched_once_and_never_streamed),                                                             \
        ON(dir, pages_that_the_os_took_back_are_fetched_again_ahead_of_their_use),                                               \
        ON(dir, the_rings_memory_goes_back_when_nothing_is_streamed),                                                            \
        ON(dir, a_file_that_becomes_shorter_is_an_error_until_it_is_whole_again),                                                \
        ON(dir, files_are_closed_whether_opening_succeeds_or_not)

// The build folder supports O_DIRECT on a real disk; the other folder may not.
static const char on_disk[] = KIN_BINARY_DIR, in_memory[] = "/dev/shm";

// With an argument: runs only the tests whose names match this pattern.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        STREAM_TESTS(on_disk),
        STREAM_TESTS(in_memory),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, close_shared);
}
