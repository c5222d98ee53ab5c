// A model's weights through the prepacked cache (engine/packed.h): whatever the cache's state, logits have the same bits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "testkit/head_eval.h"
#include "testkit/os.h"
#include "testkit/runner.h"
#include "tests/packed_context.h"

static kin_weights_stats run_model(const big_model *m, const char *cache_dir, float *logits) {
    static const int32_t ids[N_IDS] = {1, 300, 301, 302, 5, 700, 1000, 42, 17};
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    kin_err err;
    o.cache_dir = cache_dir;
    if (kin_runner_open(&r, m->path, &o, &err) != 0) fail_msg("%s", err.text);
    kin_weights_stats stats = kin_shard_get_stats(r.shard).weights;
    if (!r.devices.cpu.repack_buft) stats.packed_bytes = UINT64_MAX; // this CPU needs no other layout
    if (kin_head_eval(r.head, 0, 0, ids, N_IDS, logits, N_IDS, &err) != 0) fail_msg("%s", err.text);
    kin_runner_close(&r);
    return stats;
}
#define run_model(...) FROM_TEST(run_model(__VA_ARGS__))

static bool without_cache(big_model *m) {
    kin_weights_stats none = run_model(m, NULL, m->want);
    if (none.packed_bytes == UINT64_MAX || none.packed_bytes == 0) return false;
    assert_true(none.packed_bytes >= 32u << 20);
    assert_int_equal(none.anonymous_bytes, none.packed_bytes);
    assert_int_equal(none.cached_bytes, 0);
    return true;
}
#define without_cache(...) FROM_TEST(without_cache(__VA_ARGS__))

// Expects the same bits, and stats that show if the weights came from the cache.
static void expect_run(const big_model *m, const temp_dir *d, bool cached) {
    static float got[N_IDS * N_VOCAB];
    kin_weights_stats s = run_model(m, d->path, got);
    assert_memory_equal(got, m->want, sizeof got);
    assert_true(cached ? s.packed_bytes == 0 && s.anonymous_bytes == 0 && s.cached_bytes >= 32u << 20
                       : s.packed_bytes >= 32u << 20 && s.cached_bytes == 0);
}
#define expect_run(...) FROM_TEST(expect_run(__VA_ARGS__))

// Returns the only cache file of the folder.
static file_path only_file(const temp_dir *d) {
    file_path p;
    char command[128];
    snprintf(command, sizeof command, "ls %s/*.pack", d->path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(p.text, sizeof p.text, f));
    p.text[strcspn(p.text, "\n")] = '\0';
    assert_int_equal(fgetc(f), EOF);
    pclose(f);
    return p;
}
#define only_file(...) FROM_TEST(only_file(__VA_ARGS__))

static void cold_cached_truncated_and_no_cache_give_the_same_bits(void **state) {
    big_model *m = *state;
    if (!without_cache(m)) {
        print_message("             ggml has no faster layout for this CPU\n");
        skip();
    }
    temp_dir d = make_dir();
    expect_run(m, &d, false);
    expect_run(m, &d, true);
    file_path path = only_file(&d);
    assert_int_equal(truncate(path.text, 20 << 20), 0);
    expect_run(m, &d, false);
    expect_run(m, &d, true);
    flip(path.text, 3, 0x10);
    expect_run(m, &d, false);
    expect_run(m, &d, true);
    remove_dir(&d, path.text);
}

static void a_lost_block_is_packed_again_beside_the_cached_ones(void **state) {
    static float got[N_IDS * N_VOCAB];
    big_model *m = *state;
    if (!without_cache(m)) skip();
    temp_dir d = make_dir();
    expect_run(m, &d, false);
    file_path path = only_file(&d);
    flip(path.text, HEADER_BYTES + 5 * ENTRY_BYTES + 25, 1);
    kin_weights_stats s = run_model(m, d.path, got);
    assert_memory_equal(got, m->want, sizeof got);
    assert_true(s.packed_bytes > 0 && s.packed_bytes < s.cached_bytes);
    expect_run(m, &d, true);
    remove_dir(&d, path.text);
}

static void a_flipped_byte_in_the_cache_gives_the_same_bits(void **state) {
    static float got[N_IDS * N_VOCAB];
    big_model *m = *state;
    if (!without_cache(m)) skip();
    temp_dir d = make_dir();
    expect_run(m, &d, false);
    file_path path = only_file(&d);
    struct stat st;
    assert_int_equal(stat(path.text, &st), 0);
    for (int part = 1; part < 10; part += 4) {
        flip(path.text, st.st_size * part / 10, 0x40);
        kin_weights_stats s = run_model(m, d.path, got);
        assert_memory_equal(got, m->want, sizeof got);
        assert_true(s.packed_bytes > 0 && s.packed_bytes < s.cached_bytes); // only the damaged block was packed again
        expect_run(m, &d, true);
    }
    remove_dir(&d, path.text);
}

// A model file with a wrong byte was used and then repaired in place; its size and modification time did not change.
static void a_model_that_was_mended_in_place_is_packed_again(void **state) {
    static float got[N_IDS * N_VOCAB];
    big_model *m = *state;
    if (!without_cache(m)) skip();
    temp_dir d = make_dir();
    struct stat st;
    struct timespec times[3];
    assert_int_equal(stat(m->path, &st), 0);
    assert_int_equal(read_file_times(m->path, times), 0);
    flip(m->path, st.st_size / 2 + 777, 0x40);
    assert_int_equal(utimensat(AT_FDCWD, m->path, times, 0), 0);
    run_model(m, d.path, got);
    assert_memory_not_equal(got, m->want, sizeof got);
    flip(m->path, st.st_size / 2 + 777, 0x40);
    assert_int_equal(utimensat(AT_FDCWD, m->path, times, 0), 0);
    kin_weights_stats s = run_model(m, d.path, got);
    assert_memory_equal(got, m->want, sizeof got);
    assert_true(s.packed_bytes > 0 && s.packed_bytes < s.cached_bytes);
    expect_run(m, &d, true);
    file_path path = only_file(&d);
    remove_dir(&d, path.text);
}

static void a_copy_of_a_model_uses_its_cache(void **state) {
    big_model *m = *state, copy = *m;
    if (!without_cache(m)) skip();
    temp_dir d = make_dir();
    expect_run(m, &d, false);
    snprintf(copy.path, sizeof copy.path, "%.40s/copy", d.path);
    copy_file(m->path, copy.path);
    memcpy(copy.want, m->want, sizeof copy.want);
    expect_run(&copy, &d, true);
    unlink(copy.path);
    file_path path = only_file(&d);
    remove_dir(&d, path.text);
}

static void without_a_usable_folder_weights_are_packed_in_memory(void **state) {
    static float got[N_IDS * N_VOCAB];
    big_model *m = *state;
    if (!without_cache(m)) skip();
    kin_weights_stats s = run_model(m, "/dev/null/kin", got);
    assert_memory_equal(got, m->want, sizeof got);
    assert_true(s.anonymous_bytes == s.packed_bytes && s.cached_bytes == 0);
}

static kin_weights_stats stats_of(const kin_runner *r) {
    return kin_shard_get_stats(r->shard).weights;
}

static void weights_that_move_to_the_cache_file_stay_resident(void **state) {
    big_model *m = *state;
    if (!without_cache(m)) skip();
    temp_dir d = make_dir();
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    kin_err err;
    o.cache_dir = d.path;
    if (kin_runner_open(&r, m->path, &o, &err) != 0) fail_msg("%s", err.text);
    uint64_t resident = stats_of(&r).resident_bytes;
    assert_true(resident >= 32u << 20);
    for (int i = 0; i < 3000 && stats_of(&r).anonymous_bytes > 0; i++) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(stats_of(&r).anonymous_bytes, 0);
    assert_int_equal(stats_of(&r).resident_bytes, resident);
    kin_runner_close(&r);
    if (kin_runner_open(&r, m->path, &o, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(stats_of(&r).resident_bytes, resident);
    kin_runner_close(&r);
    file_path path = only_file(&d);
    remove_dir(&d, path.text);
}

static void a_model_of_the_same_shape_has_its_own_cache(void **state) {
    static big_model other;
    big_model *m = *state;
    if (!without_cache(m)) skip();
    assert_int_equal(generate(&other, 2), 0);
    without_cache(&other);
    assert_memory_not_equal(other.want, m->want, sizeof m->want);
    temp_dir d = make_dir();
    expect_run(m, &d, false);
    file_path path = only_file(&d);
    expect_run(&other, &d, false);
    expect_run(m, &d, true);
    expect_run(&other, &d, true);
    remove_dir(&d, path.text);
    path = only_file(&d);
    remove_dir(&d, path.text);
    unlink(other.path);
}

static void two_runs_at_once_give_the_same_bits(void **state) {
    static float got[N_IDS * N_VOCAB];
    big_model *m = *state;
    if (!without_cache(m)) skip();
    temp_dir d = make_dir();
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner first;
    kin_err err;
    o.cache_dir = d.path;
    if (kin_runner_open(&first, m->path, &o, &err) != 0) fail_msg("%s", err.text); // may still be writing the cache
    run_model(m, d.path, got);
    assert_memory_equal(got, m->want, sizeof got);
    kin_runner_close(&first);
    expect_run(m, &d, true);
    file_path path = only_file(&d);
    remove_dir(&d, path.text);
}

// With an argument: runs only the tests whose names match this pattern.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        MODEL_TEST(cold_cached_truncated_and_no_cache_give_the_same_bits),
        MODEL_TEST(a_lost_block_is_packed_again_beside_the_cached_ones),
        MODEL_TEST(a_flipped_byte_in_the_cache_gives_the_same_bits),
        MODEL_TEST(a_model_that_was_mended_in_place_is_packed_again),
        MODEL_TEST(a_copy_of_a_model_uses_its_cache),
        MODEL_TEST(without_a_usable_folder_weights_are_packed_in_memory),
        MODEL_TEST(weights_that_move_to_the_cache_file_stay_resident),
        MODEL_TEST(a_model_of_the_same_shape_has_its_own_cache),
        MODEL_TEST(two_runs_at_once_give_the_same_bits),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, remove_made);
}
