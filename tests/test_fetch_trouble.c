// Fetching while peers die, send wrong data or stay silent: it completes, or gives the reason in one sentence.
#include "tests/fetch_context.h"

#include "testkit/proxy.h"
#include "tests/place.h"

static void the_head_may_die_and_come_back(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    n->windows = kin_windows_one(0, N_LAYER, 0);
    kin_fetch_options o = options_of(n);
    o.n_in_flight_all = 2;
    start_with(n, &o);
    RUN_UNTIL(w, kin_fetch_stats_now(n->fetch).n_here > 20);
    close_share(&w->head);
    run_for(w, 400);
    assert_int_equal(n->n_done, 0);
    open_chunk_server(&w->head, w->head.port);
    expect_done(n);
}

static void a_device_that_dies_is_done_without(void **state) {
    context *w = *state;
    node *giver = &w->devices[0], *n = &w->devices[1];
    giver->windows = n->windows = kin_windows_one(0, N_LAYER, 0);
    open_chunk_server(giver, 0);
    start(giver);
    expect_done(giver);
    kin_fetch_options o = options_of(n);
    o.n_in_flight_all = 2;
    n->pauses_head = true;
    start_with(n, &o);
    RUN_UNTIL(w, n->n_opened > 0);
    announce_store(n, giver);
    RUN_UNTIL(w, kin_fetch_stats_now(n->fetch).bytes_peers > 3 * CHUNK);
    close_share(giver);
    expect_done(n);
    kin_fetch_gone(n->fetch, &giver->id);
    kin_fetch_gone(n->fetch, &w->head.id);
}

static void a_peer_that_sends_wrong_bytes_is_not_asked_again(void **state) {
    context *w = *state;
    node *liar = &w->devices[MAX_DEVICES - 1], *n = &w->devices[0];
    n->windows = kin_windows_one(0, 3, 0);
    listen_with(liar, 0, on_fake_connection);
    n->pauses_head = true;
    start(n);
    RUN_UNTIL(w, n->n_opened > 0);
    announce_all(n, liar);
    RUN_UNTIL(w, kin_fetch_stats_now(n->fetch).n_bad_peers == 1);
    int n_links = w->n_raws;
    announce_all(n, liar);
    expect_done(n);
    expect_needed_chunks(n, true);
    assert_int_equal(kin_fetch_stats_now(n->fetch).n_bad_peers, 1);
    assert_int_equal(w->n_raws, n_links);
}

static void fetch_beside_a_fake(context *w, uint32_t answer_ms) {
    node *fake = &w->devices[MAX_DEVICES - 1], *n = &w->devices[0];
    n->windows = kin_windows_one(0, 3, 0);
    listen_with(fake, 0, on_fake_connection);
    kin_fetch_options o = options_of(n);
    o.answer_ms = answer_ms;
    n->pauses_head = true;
    start_with(n, &o);
    RUN_UNTIL(w, n->n_opened > 0);
    announce_all(n, fake);
    RUN_UNTIL(w, w->n_asked_fake > 0);
    expect_done(n);
    expect_needed_chunks(n, true);
    assert_int_equal(kin_fetch_stats_now(n->fetch).n_bad_peers, 0);
}
#define fetch_beside_a_fake(...) FROM_TEST(fetch_beside_a_fake(__VA_ARGS__))

// ---- slow links, and links that break again and again

enum { LARGER_CHUNK = 1 << 20, LIMIT = 300000 };

static int open_larger_context(void **state) {
    return open_context_of(state, "25m", LARGER_CHUNK, false);
}

static int open_whole_context(void **state) {
    return open_context_of(state, "tiny", LARGER_CHUNK, false);
}

// Each connection breaks long before a chunk is complete, even within messages. Received bytes are never fetched again.
static void links_that_break_within_every_chunk_bring_all_of_them(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    kin_proxy *proxy;
    n->windows = kin_windows_one(0, 1, 0);
    assert_int_equal(kin_proxy_open(&proxy, w->head.port, NULL), 0);
    kin_proxy_limit(proxy, LIMIT);
    kin_fetch_options o = options_of(n);
    o.head_port = kin_proxy_port(proxy);
    start_with(n, &o);
    expect_done(n);
    uint64_t needed = bytes_needed_by(n);
    assert_in_range(kin_fetch_stats_now(n->fetch).bytes_head, needed / 4, needed);
    print_message("             %u connections for %llu bytes\n", (unsigned)kin_proxy_n_accepted(proxy),
                  (unsigned long long)needed);
    assert_in_range(kin_proxy_n_accepted(proxy), needed / LIMIT, needed / LIMIT * 5 / 4 + 3);
    kin_proxy_close(proxy);
}

// Each message takes twice the time for which a source may be silent.
static void a_message_that_is_still_arriving_is_no_silence(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    kin_proxy *proxy;
    n->windows = kin_windows_one(0, 1, 0);
    assert_int_equal(kin_proxy_open(&proxy, w->head.port, NULL), 0);
    kin_proxy_slow(proxy, KIN_FRAME_DATA_BYTES);
    kin_fetch_options o = options_of(n);
    o.head_port = kin_proxy_port(proxy);
    o.answer_ms = 500;
    start_with(n, &o);
    expect_done(n);
    assert_int_equal(kin_proxy_n_accepted(proxy), 1);
    kin_proxy_close(proxy);
}

// The head sends the rest of chunks whose first bytes a device sent wrong, and is not blamed.
static void a_peer_that_completes_a_wrong_part_is_not_blamed(void **state) {
    context *w = *state;
    w->halves = true;
    fetch_beside_a_fake(w, 10000);
    assert_int_equal(kin_fetch_stats_now(w->devices[0].fetch).n_bad_peers, 0);
}

// ---- misbehaving sources

static void a_peer_that_does_not_answer_is_done_without(void **state) {
    context *w = *state;
    w->is_mute = true;
    fetch_beside_a_fake(w, 300);
    RUN_UNTIL(w, w->raws[0].is_closed);
}

static void a_peer_that_sends_unrequested_chunks_loses_its_link(void **state) {
    context *w = *state;
    w->strays = true;
    fetch_beside_a_fake(w, 10000);
    RUN_UNTIL(w, w->raws[0].is_closed);
    assert_non_null(strstr(w->raws[0].reason, "without a request"));
}

static void have_of_others_is_looked_at_before_it_is_believed(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    uint8_t bits[64] = {0xff};
    n->windows = kin_windows_one(0, 1, 0);
    start(n);
    kin_proto_have have = {.n_chunks = w->manifest.n_chunks, .bitmap = bits};
    tell(n, &have, &w->devices[1]); // for another model
    memcpy(have.model.bytes, w->manifest.hash, sizeof have.model.bytes);
    tell(n, &have, n); // about the fetching device itself
    have.n_chunks = 8;
    tell(n, &have, &w->devices[1]); // with another number of chunks
    have.id = w->devices[2].id;
    have.endpoint.n_addresses = 0;
    kin_fetch_have(n->fetch, &have); // without an address
    expect_done(n);
    assert_int_equal(kin_fetch_stats_now(n->fetch).bytes_peers, 0);
}

static void fake_head(context *w) {
    close_share(&w->head);
    listen_with(&w->head, 0, on_fake_connection);
}
#define fake_head(...) FROM_TEST(fake_head(__VA_ARGS__))

static void hashes_of_another_model_are_refused(void **state) {
    context *w = *state;
    w->spoils_hashes = true;
    fake_head(w);
    start(&w->devices[0]);
    expect_failed(&w->devices[0], "the chunk hashes belong to the model");
}

static void other_sizes_than_the_plan_has_are_refused(void **state) {
    context *w = *state;
    w->spoils_sizes = true;
    fake_head(w);
    start(&w->devices[0]);
    expect_failed(&w->devices[0], "the head: file 1 of the model has");
}

static void a_head_that_sends_wrong_bytes_gets_nowhere(void **state) {
    context *w = *state;
    kin_fetch_options o = options_of(&w->devices[0]);
    fake_head(w);
    o.head_port = w->head.port;
    o.give_up_ms = 1500; // long enough for one request, even on a busy machine
    start_with(&w->devices[0], &o);
    expect_failed(&w->devices[0], "no device is left to fetch the model from; 1 sent damaged chunks");
}

static void without_a_head_it_gives_up(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    kin_fetch_options o = options_of(n);
    o.give_up_ms = 600;
    o.head_port = 1;
    n->cancel_in = "failed";
    start_with(n, &o);
    expect_failed(n, "the model's hashes did not arrive in time; the head: cannot connect");
    assert_null(n->fetch);
}

static void a_head_with_another_id_or_without_the_model_is_no_head(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    kin_fetch_options o = options_of(n);
    o.give_up_ms = 1500;
    o.head_id.bytes[3] = 9;
    start_with(n, &o);
    expect_failed(n, "another device, 'test', answers at its address");
    kin_fetch_cancel(n->fetch);
    o.head_id = w->head.id;
    o.model.bytes[0] ^= 1;
    start_with(n, &o);
    expect_failed(n, "it has no chunks of that model");
    kin_fetch_cancel(n->fetch);
    o.id = w->head.id;
    o.head_id = (kin_proto_id){{0}};
    start_with(n, &o);
    expect_failed(n, "its address leads back to this device");
}

static void layers_that_the_model_has_not_are_refused(void **state) {
    context *w = *state;
    w->devices[0].windows = kin_windows_one(5, 9, 0);
    start(&w->devices[0]);
    expect_failed(&w->devices[0], "no tensors of layer 6");
}

static void a_disk_that_fails_is_told(void **state) {
    context *w = *state;
    node *n = &w->devices[0];
    kin_fetch_options o = options_of(n);
    o.cache_dir = w->path[0]; // a file, not a folder
    start_with(n, &o);
    expect_failed(n, "whole.gguf");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_head_may_die_and_come_back),
        TEST(a_device_that_dies_is_done_without),
        TEST(a_peer_that_sends_wrong_bytes_is_not_asked_again),
        cmocka_unit_test_setup_teardown(links_that_break_within_every_chunk_bring_all_of_them, open_larger_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(a_message_that_is_still_arriving_is_no_silence, open_whole_context, close_context),
        TEST(a_peer_that_completes_a_wrong_part_is_not_blamed),
        TEST(a_peer_that_does_not_answer_is_done_without),
        TEST(a_peer_that_sends_unrequested_chunks_loses_its_link),
        TEST(have_of_others_is_looked_at_before_it_is_believed),
        TEST(hashes_of_another_model_are_refused),
        TEST(other_sizes_than_the_plan_has_are_refused),
        TEST(a_head_that_sends_wrong_bytes_gets_nowhere),
        TEST(without_a_head_it_gives_up),
        TEST(a_head_with_another_id_or_without_the_model_is_no_head),
        TEST(layers_that_the_model_has_not_are_refused),
        TEST(a_disk_that_fails_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
