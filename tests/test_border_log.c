// The log of hidden states at a border (engine/border_log.h): which rows are stored, under which name, and whose memory is
// reused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/border_log.h"
#include "tests/memory_dir.h"
#include "tests/own_dir.h"
#include "tests/place.h"

static int make_dir(void **state) {
    (void)state;
    return make_own_dir(memory_dir(), "border-log");
}

enum { LOG_BATCH = 1024 };

static const kin_kv_peers *peers; // for open_log; NULL: none

static kin_border_log *open_log(int n_embd) {
    static const uint8_t variant[KIN_KV_VARIANT_BYTES] = {1};
    const kin_kv_disk disk = {.dir = dir, .peers = peers};
    kin_border_log *log;
    kin_err err;
    const kin_border_rows rows = {.n_embd = n_embd, .n_batch = LOG_BATCH};
    if (kin_border_log_open(&log, &rows, &disk, variant, &err) != 0) fail_msg("%s", err.text);
    return log;
}
#define open_log(...) FROM_TEST(open_log(__VA_ARGS__))

// Adds n rows of a block from its cell `at` on at the border before layer `il`, each with the value `value` + cell.
static void add_at(kin_border_log *log, int il, int block, int at, int n, float value) {
    int64_t cells[KIN_KV_CELLS];
    float rows[KIN_KV_CELLS];
    for (int i = 0; i < n; i++) {
        cells[i] = (int64_t)block * KIN_KV_CELLS + at + i;
        rows[i] = value + (float)(at + i);
    }
    kin_border_log_add(log, il, cells, n, rows);
}

static void add(kin_border_log *log, int block, int at, int n, float value) {
    add_at(log, 3, block, at, n, value);
}

static bool has(kin_border_log *log, int block, float value, int from, float value_from) {
    const kin_page_key name = {{(uint8_t)block, (uint8_t)(int)value, (uint8_t)from}};
    float rows[KIN_KV_CELLS];
    kin_border_log_keep(log, block, &name);
    kin_border_log_settle(log);
    if (!kin_border_log_get(log, 3, &name, rows)) return false;
    for (int i = 0; i < KIN_KV_CELLS; i++) assert_true(rows[i] == (i < from ? value : value_from) + (float)i);
    return true;
}
#define has(...) FROM_TEST(has(__VA_ARGS__))

static void count_fetched(void *user, const kin_page_name *names, int n, size_t bytes, int timeout_ms) {
    (void)names, (void)bytes;
    assert_int_equal(timeout_ms, 70);
    *(int *)user = 10 * *(int *)user + n;
}

static void only_pages_that_are_missing_are_fetched(void **state) {
    (void)state;
    const kin_page_key names[] = {{{1}}, {{2}}, {{3}}};
    const float rows[KIN_KV_CELLS] = {1};
    int fetched = 0; // the number of pages of each request, as digits
    const kin_kv_peers counting = {.fetch = count_fetched, .user = &fetched};
    peers = &counting;
    kin_border_log *log = open_log(1);
    kin_border_log_put(log, 3, &names[0], rows, false);
    kin_border_log_settle(log);
    kin_border_log_fetch(log, 3, names, 1, 70);
    assert_int_equal(fetched, 0);
    kin_border_log_fetch(log, 3, names, 3, 0); // no time to wait
    assert_int_equal(fetched, 0);
    kin_border_log_fetch(log, 3, names, 3, 70);
    assert_int_equal(fetched, 2);
    kin_border_log_fetch(log, 4, names, 3, 70); // another border
    assert_int_equal(fetched, 23);
    kin_border_log_close(log);
    peers = NULL;
}

static void the_first_block_is_forgotten_too(void **state) {
    (void)state;
    kin_border_log *log = open_log(1);
    add(log, 9, 0, 64, 100);
    kin_border_log_forget(log, 9);
    assert_false(has(log, 9, 100, 64, 0));
    kin_border_log_close(log);
}

static void a_block_is_kept_when_all_its_rows_are_known(void **state) {
    (void)state;
    kin_border_log *log = open_log(1);
    add(log, 0, 0, 40, 100);
    assert_false(has(log, 0, 100, 64, 0));
    add(log, 0, 40, 24, 100);
    assert_true(has(log, 0, 100, 64, 0));
    add(log, 1, 20, 44, 100); // the first rows are missing
    assert_false(has(log, 1, 100, 64, 0));
    add(log, 2, 0, 64, 100); // from cell 50 on rejected drafts, which are overwritten
    add(log, 2, 50, 14, 200);
    assert_true(has(log, 2, 100, 50, 200));
    add(log, 4, 0, 64, 100);
    kin_border_log_forget(log, 4);
    add(log, 4, 1, 63, 100);
    assert_false(has(log, 4, 100, 64, 0));
    add(log, 5, 0, 40, 100);
    add(log, 5, 50, 14, 100); // the rows between are missing
    assert_false(has(log, 5, 100, 64, 0));
    kin_border_log_close(log);
}

// Drafts of a block that has a name already are rejected: what comes instead has a name of its own.
static void rows_that_replace_kept_ones_are_kept_under_their_name(void **state) {
    (void)state;
    kin_border_log *log = open_log(1);
    add(log, 2, 0, 64, 100);
    assert_true(has(log, 2, 100, 64, 0));
    add(log, 2, 50, 14, 200);
    assert_true(has(log, 2, 100, 50, 200));
    add(log, 2, 0, 64, 50); // anew from its first row on, in the same memory
    assert_true(has(log, 2, 50, 64, 0));
    assert_int_equal(kin_border_log_bytes(log), KIN_KV_CELLS * sizeof(float));
    kin_border_log_close(log);
}

// A name is that of one block, at each of its borders, and of no block that has none.
static void a_name_stores_the_rows_of_its_block_alone(void **state) {
    (void)state;
    const kin_page_key name = {{9}}, none = {{0}};
    kin_border_log *log = open_log(1);
    add_at(log, 3, 0, 0, 64, 100);
    add_at(log, 4, 1, 0, 64, 200);
    add_at(log, 5, 2, 0, 64, 300);
    kin_border_log_forget(log, 2);
    kin_border_log_keep(log, 0, &name);
    kin_border_log_settle(log);
    assert_true(kin_border_log_get(log, 3, &name, NULL));
    for (int il = 3; il <= 5; il++) {
        assert_int_equal(kin_border_log_get(log, il, &name, NULL), il == 3);
        assert_false(kin_border_log_get(log, il, &none, NULL));
    }
    kin_border_log_close(log);
}

static void a_block_with_rows_that_are_not_finite_is_not_kept(void **state) {
    (void)state;
    kin_border_log *log = open_log(1);
    add(log, 0, 0, 63, 100);
    add(log, 0, 63, 1, NAN);
    add(log, 1, 0, 63, 100);
    add(log, 1, 63, 1, INFINITY);
    for (int block = 0; block < 2; block++) {
        const kin_page_key name = {{(uint8_t)(1 + block)}};
        kin_border_log_keep(log, block, &name);
        kin_border_log_settle(log);
        assert_false(kin_border_log_get(log, 3, &name, NULL));
    }
    add(log, 2, 0, 64, 100); // a later block is kept
    assert_true(has(log, 2, 100, 64, 0));
    kin_border_log_close(log);
}

static void a_copy_of_a_block_begins_with_its_rows(void **state) {
    (void)state;
    kin_border_log *log = open_log(1);
    add(log, 0, 0, 64, 100);
    assert_true(has(log, 0, 100, 64, 0)); // its rows stay in memory after it was kept
    kin_border_log_copy(log, 0, 7);
    add(log, 7, 30, 34, 200);
    assert_true(has(log, 7, 100, 30, 200));
    add(log, 1, 0, 1, 100);
    kin_border_log_copy(log, 1, 8); // of a single row
    add(log, 8, 1, 63, 100);
    assert_true(has(log, 8, 100, 64, 0));
    kin_border_log_close(log);
}

// The copy replaces the block's rows at all borders, also where the source has none. A copy of an empty block takes no memory.
static void a_copy_has_the_borders_of_its_source(void **state) {
    (void)state;
    const kin_page_key name = {{9}};
    kin_border_log *log = open_log(1);
    add_at(log, 3, 0, 0, 64, 100);
    add_at(log, 4, 7, 0, 64, 200);
    kin_border_log_copy(log, 0, 7);
    kin_border_log_keep(log, 7, &name);
    kin_border_log_settle(log);
    assert_true(kin_border_log_get(log, 3, &name, NULL));
    assert_false(kin_border_log_get(log, 4, &name, NULL));
    const uint64_t bytes = kin_border_log_bytes(log);
    kin_border_log_forget(log, 0);
    kin_border_log_copy(log, 0, 8);
    assert_int_equal(kin_border_log_bytes(log), bytes);
    kin_border_log_close(log);
}

// The log has room for a step of 1024 tokens and 16 more blocks: 32 blocks.
static void kept_blocks_make_room_and_others_are_left_out(void **state) {
    (void)state;
    enum { WIDE = (1 << 20) / 4 / KIN_KV_CELLS };
    kin_border_log *log = open_log(WIDE);
    float *rows = calloc(KIN_KV_CELLS * WIDE, sizeof *rows);
    int64_t cells[KIN_KV_CELLS];
    const kin_page_key names[] = {{{1}}, {{2}}, {{3}}};
    assert_non_null(rows);
    for (int block = 0; block < 33; block++) {
        for (int i = 0; i < KIN_KV_CELLS; i++) cells[i] = block * KIN_KV_CELLS + i;
        if (block == 32) kin_border_log_keep(log, 5, &names[0]);
        kin_border_log_add(log, 3, cells, KIN_KV_CELLS, rows);
    }
    kin_border_log_keep(log, 32, &names[1]); // block 32 took the place of block 5
    for (int i = 0; i < KIN_KV_CELLS; i++) cells[i] = 50 * KIN_KV_CELLS + i;
    for (int n = 0; n < 2; n++) kin_border_log_add(log, 3, cells, KIN_KV_CELLS, rows); // takes the place of block 32
    for (int i = 0; i < KIN_KV_CELLS; i++) cells[i] = 51 * KIN_KV_CELLS + i;
    kin_border_log_add(log, 3, cells, KIN_KV_CELLS, rows); // no room: no other block has been kept
    kin_border_log_keep(log, 51, &names[2]);
    kin_border_log_settle(log);
    assert_true(kin_border_log_get(log, 3, &names[0], NULL));
    assert_true(kin_border_log_get(log, 3, &names[1], NULL));
    assert_false(kin_border_log_get(log, 3, &names[2], NULL));
    assert_int_equal(kin_border_log_bytes(log), kin_border_log_most_bytes(WIDE, LOG_BATCH));
    free(rows);
    kin_border_log_close(log);
}

// As on a full disk: a block that could not be written is tried again when a later block is kept, unless its rows were dropped.
static void what_the_disk_did_not_take_is_tried_again(void **state) {
    (void)state;
    kin_border_log *log = open_log(1);
    struct rlimit limit, small;
    const kin_page_key names[] = {{{1}}, {{2}}, {{3}}};
    float rows[KIN_KV_CELLS];
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 100;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int block = 0; block < 2; block++) {
        add(log, block, 0, 64, 100 * (float)block);
        kin_border_log_keep(log, block, &names[block]);
        kin_border_log_settle(log);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_false(kin_border_log_get(log, 3, &names[0], NULL));
    assert_false(kin_border_log_get(log, 3, &names[1], NULL));
    kin_border_log_forget(log, 1);
    add(log, 2, 0, 64, 300);
    kin_border_log_keep(log, 2, &names[2]);
    kin_border_log_settle(log);
    assert_true(kin_border_log_get(log, 3, &names[0], rows));
    for (int i = 0; i < KIN_KV_CELLS; i++) assert_true(rows[i] == (float)i);
    assert_false(kin_border_log_get(log, 3, &names[1], NULL));
    assert_true(kin_border_log_get(log, 3, &names[2], NULL));
    kin_border_log_close(log);
}

// ---- whose memory is reused: the log has room for N_ROOM blocks

enum { N_ROOM = LOG_BATCH / KIN_KV_CELLS + 16 };

// Fills the rest of the log with blocks that have no name.
static void fill(kin_border_log *log, int n_used) {
    for (int i = n_used; i < N_ROOM; i++) add(log, 100 + i, 0, 64, 0);
}

// Adds n_first rows to a block, n_between to others, and one more to it, if n_between > 0; then n_rows to others, the last of
// which wants room. Returns whether the block still has its rows.
static bool outlives(int n_first, int n_between, int n_rows) {
    kin_border_log *log = open_log(1);
    const int n_begun = n_first + (n_between > 0);
    int block = 1;
    add(log, 0, 0, n_first, 100);
    for (int n = n_between; n > 0; n -= 64) add(log, block++, 0, n < 64 ? n : 64, 0);
    if (n_between > 0) add(log, 0, n_first, 1, 100);
    for (int n = n_rows; n > 0; n -= 64) add(log, block++, 0, n < 64 ? n : 64, 0);
    if (n_begun < 64) add(log, 0, n_begun, 64 - n_begun, 100);
    const bool is_there = has(log, 0, 100, 64, 0);
    kin_border_log_close(log);
    remove_dir(NULL);
    return is_there;
}
#define outlives(...) FROM_TEST(outlives(__VA_ARGS__))

// 2048 rows after its last one, a partly filled block belongs to a sequence that has ended; 16384 after it, any block without a
// name.
static void a_block_without_a_name_has_its_memory_for_so_many_rows(void **state) {
    (void)state;
    assert_true(outlives(40, 0, 2048));
    assert_false(outlives(40, 0, 2049));
    assert_false(outlives(63, 0, 2049));
    assert_true(outlives(64, 0, 2049));
    assert_true(outlives(64, 0, 16384));
    assert_false(outlives(64, 0, 16385));
    assert_true(outlives(40, 960, 2048)); // counted from its last row
    assert_false(outlives(40, 960, 2049));
}

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes == RLIM_INFINITY ? limit.rlim_max : bytes;
    signal(SIGXFSZ, bytes == RLIM_INFINITY ? SIG_DFL : SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void keep(kin_border_log *log, int block, const kin_page_key *name) {
    kin_border_log_keep(log, block, name);
    kin_border_log_settle(log);
}

// A block that is on the disk leaves before an older one that the disk has not taken, whichever comes first in memory.
static void blocks_on_the_disk_leave_first(void **state) {
    (void)state;
    const kin_page_key kept = {{1}}, refused = {{2}}, any = {{3}};
    for (int first = 0; first < 2; first++) { // the place of the kept block
        kin_border_log *log = open_log(1);
        for (int block = 0; block < 2; block++) add(log, block, 0, 64, 100 * (float)block);
        limit_files(100);
        keep(log, 1 - first, &refused);
        limit_files(RLIM_INFINITY);
        add(log, first, 0, 64, 100 * (float)first); // now the newer one
        kin_border_log_put(log, 3, &kept, (const float[KIN_KV_CELLS]){0}, false);
        kin_border_log_settle(log);
        limit_files(100);
        keep(log, first, &kept);
        fill(log, 2);
        add(log, 50, 0, 64, 500); // in the place of the kept one
        limit_files(RLIM_INFINITY);
        keep(log, 99, &any); // tries again
        assert_true(kin_border_log_get(log, 3, &refused, NULL));
        assert_true(has(log, 50, 500, 64, 0));
        kin_border_log_close(log);
        remove_dir(NULL);
    }
}

static void of_blocks_on_the_disk_the_oldest_leaves_first(void **state) {
    (void)state;
    const kin_page_key names[] = {{{1}}, {{2}}}, any = {{3}};
    kin_border_log *log = open_log(1);
    for (int block = 0; block < 2; block++) add(log, block, 0, 64, 100);
    add(log, 0, 0, 64, 100); // now the newer one
    for (int block = 0; block < 2; block++) keep(log, block, &names[block]);
    keep(log, 99, &any); // sees that both are on the disk
    fill(log, 2);
    add(log, 50, 0, 64, 500);
    add(log, 0, 63, 1, 200); // block 0 still has its rows
    assert_true(has(log, 0, 100, 63, 200));
    assert_true(has(log, 50, 500, 64, 0));
    kin_border_log_close(log);
}

// No block may leave.
static void without_room_a_copy_is_left_out(void **state) {
    (void)state;
    kin_border_log *log = open_log(1);
    fill(log, 0);
    kin_border_log_copy(log, 100, 60);
    assert_false(has(log, 60, 0, 64, 0));
    assert_true(has(log, 100, 0, 64, 0));
    assert_int_equal(kin_border_log_bytes(log), kin_border_log_most_bytes(1, LOG_BATCH));
    kin_border_log_close(log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_pages_that_are_missing_are_fetched, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_first_block_is_forgotten_too, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_block_is_kept_when_all_its_rows_are_known, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(rows_that_replace_kept_ones_are_kept_under_their_name, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_name_stores_the_rows_of_its_block_alone, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_block_with_rows_that_are_not_finite_is_not_kept, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_copy_of_a_block_begins_with_its_rows, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_copy_has_the_borders_of_its_source, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(kept_blocks_make_room_and_others_are_left_out, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(what_the_disk_did_not_take_is_tried_again, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_block_without_a_name_has_its_memory_for_so_many_rows, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(blocks_on_the_disk_leave_first, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(of_blocks_on_the_disk_the_oldest_leaves_first, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(without_room_a_copy_is_left_out, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
