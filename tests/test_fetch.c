// Fetching over real links: each device ends with exactly the chunks that its windows need and fetches nothing twice.
#include "tests/fetch_context.h"
#include "tests/place.h"

#include <ggml.h>

static void devices_end_with_exactly_the_chunks_of_their_windows(void **state) {
    context *w = *state;
    w->devices[0].windows = kin_windows_one(0, 2, 0);
    w->devices[1].windows = two_windows(2, 3, 4, 5);
    w->devices[2].windows = kin_windows_one(3, 6, 0);
    for (int i = 0; i < MAX_DEVICES; i++) open_chunk_server(&w->devices[i], 0);
    for (int i = 0; i < MAX_DEVICES; i++) start(&w->devices[i]);
    for (int i = 0; i < MAX_DEVICES; i++) {
        node *n = &w->devices[i];
        expect_done(n);
        expect_needed_chunks(n, true);
        assert_int_equal(n->n_opened, 1);
        assert_int_equal(n->n_headers, 1);
        assert_int_equal(n->n_first, 1);
        assert_int_equal(n->n_done, 1);
        assert_int_equal(n->n_kept, kin_fetch_stats_now(n->fetch).n_here);
        assert_true(n->here_at_headers < kin_fetch_stats_now(n->fetch).n_here);
        assert_true(n->n_progress > 0 && n->n_have > 0);
        assert_int_equal(n->progress.sent.stage, KIN_PROTO_FETCHING);
        assert_int_equal(n->progress.sent.done, bytes_needed_by(n));
        assert_int_equal(n->progress.sent.total, bytes_needed_by(n));
    }
}

static void a_relay_gets_the_headers(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    start(n);
    expect_done(n);
    expect_needed_chunks(n, true);
    assert_int_equal(n->n_first, 1);
}

static void work_can_start_when_the_first_window_is_here(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = two_windows(0, 1, 2, 6);
    kin_fetch_options o = options_of(n);
    o.n_in_flight_all = 1;
    start_with(n, &o);
    RUN_UNTIL(w, n->n_first > 0);
    node first = *n;
    first.windows = kin_windows_one(0, 1, 0);
    expect_needed_chunks(&first, false);
    expect_layers(&first);
    assert_int_equal(n->n_done, 0);
    expect_done(n);
    assert_true(n->here_at_first < kin_fetch_stats_now(n->fetch).n_wanted);
}

static void devices_give_each_other_what_the_head_then_need_not_give(void **state) {
    context *w = *state;
    for (int i = 0; i < MAX_DEVICES; i++) {
        w->devices[i].windows = kin_windows_one(0, N_LAYER, 0);
        open_chunk_server(&w->devices[i], 0);
    }
    start(&w->devices[0]);
    expect_done(&w->devices[0]);
    uint64_t need = bytes_needed_by(&w->devices[0]), before = kin_chunk_server_stats_now(w->head.server).bytes;
    assert_true(before >= need);
    node *n = &w->devices[1];
    n->pauses_head = true;
    start(n);
    RUN_UNTIL(w, n->n_opened > 0);
    announce_store(n, &w->devices[0]);
    expect_done(n);
    assert_true(kin_chunk_server_stats_now(w->devices[0].server).bytes > need / 2);
    assert_true(kin_chunk_server_stats_now(w->head.server).bytes - before < need / 2);
    assert_int_equal(n->progress.sent.from_peers, kin_fetch_stats_now(n->fetch).bytes_peers);
}

static void a_model_in_several_files_comes_too(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = two_windows(1, 2, 4, 6);
    start(n);
    expect_done(n);
    expect_needed_chunks(n, true);
}

static void what_is_there_is_not_fetched_again(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(0, N_LAYER, 0);
    kin_fetch_options o = options_of(n);
    o.n_in_flight_all = 2;
    start_with(n, &o);
    RUN_UNTIL(w, n->fetch && kin_fetch_stats_now(n->fetch).n_here > 20);
    end_fetch(n); // and start again at once, while the store is still closing
    start_with(n, &o);
    expect_done(n);
    uint64_t left = bytes_needed_by(n) - (kin_manifest_total(&w->manifest) - n->missing_bytes);
    assert_true(left < bytes_needed_by(n));
    assert_int_equal(kin_fetch_stats_now(n->fetch).bytes_head, left);
    end_fetch(n);
    uint64_t before = kin_chunk_server_stats_now(w->head.server).bytes;
    start(n);
    expect_done(n);
    assert_int_equal(n->n_first, 1);
    assert_int_equal(kin_chunk_server_stats_now(w->head.server).bytes, before);
}

// Between two starts of a device, a byte of its copy changed on the disk.
static void a_chunk_that_changed_on_the_disk_is_fetched_again(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(0, N_LAYER, 0);
    start(n);
    expect_done(n);
    char path[512];
    snprintf(path, sizeof path, "%s", kin_store_path(kin_chunk_store_store(n->chunks), 0));
    end_fetch(n);
    uv_run(&w->loop, UV_RUN_NOWAIT);
    for (off_t at = 5; at < 20 * CHUNK; at += 17 * CHUNK) { // one byte in the header, one in the weights
        uint8_t byte;
        int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 8;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    start(n);
    expect_done(n);
    expect_needed_chunks(n, true);
    expect_layers(n);
    assert_int_equal(kin_fetch_stats_now(n->fetch).bytes_head, 2 * CHUNK);
}

static void weights_beyond_the_caches_limit_are_refused_before_they_are_fetched(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(0, N_LAYER, 0);
    kin_fetch_options o = options_of(n);
    o.cache_cap = bytes_needed_by(n) / 2;
    start_with(n, &o);
    RUN_UNTIL(w, n->reason[0]);
    assert_non_null(strstr(n->reason, "cache's limit"));
    assert_int_equal(kin_chunk_server_stats_now(w->head.server).bytes / CHUNK, n->n_kept); // only the headers
    assert_true((uint64_t)n->n_kept * CHUNK < bytes_needed_by(n) / 2);
    end_fetch(n);
    o.cache_cap = 2 * kin_manifest_total(&w->manifest);
    start_with(n, &o);
    expect_done(n);
}

static void a_complete_device_needs_no_head(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(1, 3, 0);
    start(n);
    expect_done(n);
    end_fetch(n);
    close_share(&w->head);
    start(n);
    expect_done(n);
}

static void another_plan_fetches_only_what_is_new(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(0, 2, 0);
    start(n);
    expect_done(n);
    uint64_t before = kin_fetch_stats_now(n->fetch).bytes_head, had = bytes_needed_by(n);
    assert_int_equal(before, had);
    n->windows = kin_windows_one(0, 3, 0);
    kin_fetch_set_windows(n->fetch, &n->windows);
    RUN_UNTIL(w, n->n_done == 2);
    assert_int_equal(n->n_headers, 2);
    assert_int_equal(n->n_first, 2);
    expect_needed_chunks(n, true);
    expect_layers(n);
    assert_int_equal(kin_fetch_stats_now(n->fetch).bytes_head, bytes_needed_by(n));
    n->windows = kin_windows_one(1, 2, 0);
    kin_fetch_set_windows(n->fetch, &n->windows);
    RUN_UNTIL(w, n->n_done == 3);
}

// Two equal shares of each layer.
static void split_layers(const context *w, kin_share *shares) {
    kin_model model;
    kin_err err;
    if (kin_model_open(&model, w->path[0], &err) != 0) fail_msg("%s", err.text);
    if (kin_share_split(&model, GGML_TYPE_F16, (double[]){1, 1}, 2, shares, &err) != 0) fail_msg("%s", err.text);
    kin_model_close(&model);
}
#define split_layers(...) FROM_TEST(split_layers(__VA_ARGS__))

static void want_share(node *n, const kin_share *share) {
    int n_done = n->n_done;
    n->share = *share;
    kin_fetch_set_windows(n->fetch, &n->windows);
    kin_fetch_set_share(n->fetch, &n->share);
    RUN_UNTIL(n->w, n->n_done > n_done || n->reason[0]);
    if (n->reason[0]) fail_msg("%s", n->reason);
    expect_needed_chunks(n, false);
    expect_layers(n);
}
#define want_share(...) FROM_TEST(want_share(__VA_ARGS__))

static void a_device_of_a_group_fetches_the_chunks_of_its_slices(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    kin_share shares[2];
    split_layers(w, shares);
    n->windows = two_windows(0, 2, 3, 5);
    uint64_t whole = bytes_needed_by(n);
    n->share = shares[1];
    start(n);
    expect_done(n);
    expect_needed_chunks(n, true);
    kin_fetch_stats s = kin_fetch_stats_now(n->fetch);
    assert_int_equal(s.bytes_head, bytes_needed_by(n));
    assert_int_equal(n->progress.sent.total, s.bytes_head);
    assert_true(s.bytes_head < whole * 9 / 10);
    // Under another plan the device has another rank of the group, then whole layers: it finds the missing chunks.
    want_share(n, &shares[0]);
    assert_in_range(kin_fetch_stats_now(n->fetch).bytes_head, s.bytes_head + 1, whole);
    want_share(n, &(kin_share){0});
    expect_needed_chunks(n, true);
    assert_int_equal(kin_fetch_stats_now(n->fetch).bytes_head, whole);
}

// The share comes from the head, so it must be checked.
static void a_share_that_the_model_has_not_is_refused(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(0, 1, 0);
    const kin_share shares[] = {{1, 2, 1, 200, 0, 256}, {0, 2, 0, 1, 256, 65536}, {0, 2, 0, 1, 7, 9}, {0, 2, 1, 0, 0, 16}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        n->share = shares[i];
        start(n);
        expect_failed(n, "cannot slice the tensor");
        end_fetch(n);
    }
}

static void another_plan_in_the_middle_leaves_what_is_not_needed_any_more(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(0, 5, 0);
    kin_fetch_options o = options_of(n);
    o.n_in_flight_all = 1;
    start_with(n, &o);
    RUN_UNTIL(w, kin_fetch_stats_now(n->fetch).n_here > 15);
    n->windows = kin_windows_one(5, 6, 0);
    kin_fetch_set_windows(n->fetch, &n->windows);
    expect_done(n);
    assert_true(kin_fetch_stats_now(n->fetch).bytes_head < kin_manifest_total(&w->manifest) * 3 / 4);
}

static void of_many_windows_as_many_come_as_may_take_room(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(0, 1, 0);
    start(n);
    expect_done(n);
    uint64_t layer = bytes_needed_by(n);
    n->windows = (kin_windows){.n = N_LAYER};
    for (int il = 0; il < N_LAYER; il++) n->windows.at[il] = (kin_window){il, il + 1, 0, 0};
    kin_fetch_set_windows(n->fetch, &n->windows);
    kin_fetch_set_most(n->fetch, 2 * layer);
    RUN_UNTIL(w, n->n_done == 2);
    int n_windows = n->windows.n = kin_fetch_stats_now(n->fetch).n_windows;
    assert_in_range(n_windows, 2, N_LAYER - 1);
    expect_needed_chunks(n, true);
    assert_true(kin_fetch_stats_now(n->fetch).bytes_head <= 3 * layer);
}

// With chunks of megabytes it reads in slices; after that it gets the rest of a chunk at once.
static void a_gentle_fetch_brings_the_same_and_may_hurry_in_the_middle(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(0, 1, 0);
    start(n);
    kin_fetch_set_rate_limited(n->fetch, true);
    expect_done(n);
    expect_needed_chunks(n, true);
    n->windows = kin_windows_one(0, 3, 0);
    kin_fetch_set_windows(n->fetch, &n->windows);
    uint64_t before = kin_fetch_stats_now(n->fetch).bytes_head;
    RUN_UNTIL(w, kin_fetch_stats_now(n->fetch).bytes_head > before);
    assert_true(kin_fetch_stats_now(n->fetch).bytes_head - before <= 64 << 10); // one slice
    kin_fetch_set_rate_limited(n->fetch, false);
    RUN_UNTIL(w, n->n_done == 2);
    expect_needed_chunks(n, true);
    expect_layers(n);
}

static void a_chunk_store_that_is_held_can_be_filled_by_the_next_fetch(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(0, 1, 0);
    start(n);
    expect_done(n);
    kin_fetch_cancel(n->fetch);
    start(n);
    expect_failed(n, "another kin is writing to it");
    kin_fetch_cancel(n->fetch);
    n->windows = kin_windows_one(0, 2, 0);
    kin_fetch_options o = options_of(n);
    o.chunks = n->chunks;
    start_with(n, &o);
    expect_done(n);
}

static void a_fetch_can_be_cancelled_in_any_callback(void **state) {
    static const char *const callbacks[] = {"opened", "have", "progress", "headers", "kept", "first window", "done"};
    context *w = *state;
    for (size_t i = 0; i < sizeof callbacks / sizeof *callbacks; i++) {
        node *n = &w->devices[0];
        n->windows = kin_windows_one(0, i < N_LAYER ? (int)i + 1 : N_LAYER, 0);
        n->cancel_in = callbacks[i];
        start(n);
        RUN_UNTIL(w, !n->fetch);
        assert_string_equal(n->reason, "");
        assert_int_equal(n->n_done, strcmp(callbacks[i], "done") == 0);
        end_fetch(n);
    }
}

static void a_fetch_can_be_cancelled_at_any_time(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(0, N_LAYER, 0);
    for (int i = 0; i < 40; i++) {
        start(n);
        for (int k = 0; k < i; k++) uv_run(&w->loop, UV_RUN_NOWAIT);
        end_fetch(n);
    }
    start(n);
    expect_done(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(devices_end_with_exactly_the_chunks_of_their_windows),
        TEST(a_relay_gets_the_headers),
        TEST(work_can_start_when_the_first_window_is_here),
        TEST(devices_give_each_other_what_the_head_then_need_not_give),
        cmocka_unit_test_setup_teardown(a_model_in_several_files_comes_too, open_split_context, close_context),
        TEST(what_is_there_is_not_fetched_again),
        TEST(a_chunk_that_changed_on_the_disk_is_fetched_again),
        TEST(weights_beyond_the_caches_limit_are_refused_before_they_are_fetched),
        TEST(a_complete_device_needs_no_head),
        TEST(another_plan_fetches_only_what_is_new),
        TEST(of_many_windows_as_many_come_as_may_take_room),
        TEST(a_device_of_a_group_fetches_the_chunks_of_its_slices),
        TEST(a_share_that_the_model_has_not_is_refused),
        TEST(another_plan_in_the_middle_leaves_what_is_not_needed_any_more),
        cmocka_unit_test_setup_teardown(a_gentle_fetch_brings_the_same_and_may_hurry_in_the_middle, open_large_context,
                                        close_context),
        TEST(a_chunk_store_that_is_held_can_be_filled_by_the_next_fetch),
        TEST(a_fetch_can_be_cancelled_in_any_callback),
        TEST(a_fetch_can_be_cancelled_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
