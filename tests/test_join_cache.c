// A device whose cache cannot be written, or is removed while it runs, fetches its weights again and joins the ring.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "testkit/head_eval.h"
#include "tests/place.h"
#include "tests/small_cluster.h"

enum { N_IDS = 4, TIMEOUT_MS = 60000 };

static const int32_t ids[N_IDS] = {1, 50, 60, 70};
static char cache[] = "/tmp/kin-test-cache-XXXXXX", in_the_way[64], copy[] = "/tmp/kin-test-copy-XXXXXX";

// Opens the model with a manifest in chunks of the size that fetches use.
static int open_fetched_model(void **state) {
    kin_manifest_options o = kin_manifest_options_defaults();
    const char *path = model_path;
    kin_err err;
    if (open_model(state) != 0) return -1;
    kin_manifest_fini(&manifest);
    o.chunk_bytes = 64 << 10;
    return kin_manifest_make(&manifest, &path, 1, &o, &err);
}

// ---- files

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static void remove_cache(void) {
    assert_int_equal(nftw(cache, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}
#define remove_cache(...) FROM_TEST(remove_cache(__VA_ARGS__))

static int make_cache(void **state) {
    (void)state;
    strcpy(strrchr(cache, '-') + 1, "XXXXXX");
    if (!mkdtemp(cache)) return -1;
    snprintf(in_the_way, sizeof in_the_way, "%s/models", cache);
    return 0;
}

static int end_cache(void **state) {
    (void)state;
    nftw(cache, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

static void copy_model(void) {
    char bytes[4096];
    ssize_t n;
    int from = open(model_path, O_RDONLY), to = mkstemp(copy);
    assert_true(from >= 0 && to >= 0);
    while ((n = read(from, bytes, sizeof bytes)) > 0) assert_int_equal(write(to, bytes, (size_t)n), n);
    close(from);
    close(to);
}
#define copy_model(...) FROM_TEST(copy_model(__VA_ARGS__))

// ---- head and device

static atomic_int n_rounds;

static int plan_rounds(kin_planner *user, const kin_planner_question *q, kin_plan *out, kin_err *err) {
    (void)user;
    return kin_plan_even(q->candidates, q->n, N_LAYER, atomic_load(&n_rounds), out, err);
}

static kin_cluster *open_head(uint16_t port, int rounds) {
    kin_cluster_options o = cluster_options(1);
    o.port = port;
    o.calls.ask = plan_rounds;
    atomic_store(&n_rounds, rounds);
    return open_small_cluster(&o);
}
#define open_head(...) FROM_TEST(open_head(__VA_ARGS__))

static kin_join_options device_with_cache(uint16_t head_port) {
    kin_join_options o = device_options(1, "anna", head_port);
    o.cache_dir = cache;
    o.no_cache = true;
    o.n_threads = 1;
    return o;
}

// Evaluates until a request has run on n members.
static void expect_members(kin_cluster *c, int n) {
    static float logits[N_IDS * N_VOCAB];
    kin_err err = {"nothing was asked"};
    for (kin_time begun = kin_clock_now(); kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS;) {
        if (kin_cluster_begin(c, &err) != 0) fail_msg("%s", err.text);
        kin_head_set_chunk(kin_cluster_head(c), N_BATCH);
        kin_head_clear(kin_cluster_head(c));
        int rc = kin_head_eval(kin_cluster_head(c), 0, 0, ids, N_IDS, logits, N_IDS, &err);
        kin_cluster_end(c);
        if (rc == 0 && kin_cluster_n_members(c) == n) return;
        usleep(50000);
    }
    fail_msg("not with %d members: %s", n, err.text);
}
#define expect_members(...) FROM_TEST(expect_members(__VA_ARGS__))

static void a_device_whose_first_fetch_failed_is_part_of_the_next_plan(void **state) {
    (void)state;
    device d;
    kin_cluster *c = open_head(0, 1);
    int fd = open(in_the_way, O_WRONLY | O_CREAT, 0600); // a file where the device wants to make its folder
    assert_true(fd >= 0);
    close(fd);
    kin_join_options o = device_with_cache(kin_cluster_port(c));
    start_device(&d, &o, NULL);
    expect_members(c, 1); // the device failed and is left out
    assert_int_equal(unlink(in_the_way), 0);
    expect_members(c, 2);
    close_device(&d);
    kin_cluster_close(c);
}

static void a_device_whose_cache_was_removed_fetches_again(void **state) {
    (void)state;
    device d;
    kin_cluster *c = open_head(0, 1);
    uint16_t port = kin_cluster_port(c);
    kin_join_options o = device_with_cache(port);
    start_device(&d, &o, NULL);
    expect_members(c, 2);
    kin_cluster_close(c);
    remove_cache();
    c = open_head(port, 2); // other windows, so the device opens the model again
    expect_members(c, 2);
    assert_int_equal(access(in_the_way, F_OK), 0); // the cache is there again for the next start
    close_device(&d);
    kin_cluster_close(c);
}

static void a_device_whose_own_model_file_was_removed_fetches_the_model(void **state) {
    (void)state;
    device d;
    kin_cluster *c = open_head(0, 1);
    uint16_t port = kin_cluster_port(c);
    copy_model();
    kin_join_options o = device_with_model(1, "anna", port);
    o.model_path = copy;
    o.cache_dir = cache;
    start_device(&d, &o, NULL);
    expect_members(c, 2);
    kin_cluster_close(c);
    assert_int_equal(unlink(copy), 0);
    c = open_head(port, 2);
    expect_members(c, 2);
    close_device(&d);
    kin_cluster_close(c);
}

#define CACHE_TEST(test) cmocka_unit_test_setup_teardown(test, make_cache, end_cache)

int main(void) {
    const struct CMUnitTest tests[] = {
        CACHE_TEST(a_device_whose_first_fetch_failed_is_part_of_the_next_plan),
        CACHE_TEST(a_device_whose_cache_was_removed_fetches_again),
        CACHE_TEST(a_device_whose_own_model_file_was_removed_fetches_the_model),
    };
    return cmocka_run_group_tests(tests, open_fetched_model, close_model);
}
