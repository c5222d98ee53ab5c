// Pages from other processes' disks (fetch/page_fetch.h): wanted pages are found at any peer, missing pages cause no waiting, and
// copies are fetched unasked.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "fetch/chunk_server.h"
#include "fetch/page_fetch.h"
#include "pure/proto/swarm.h"
#include "sys/completion.h"
#include "tests/place.h"

enum { N_NODES = 3, BYTES = 140000, TIMEOUT_MS = 20000, COPY_TIMEOUT_MS = 3000, MOST_TRICKLED = 1000 };

typedef struct node {
    kin_endpoint *endpoint;
    kin_chunk_server *server;
    kin_page_fetch *fetch;
    kin_proto_id id;
    char dir[80];
    bool is_busy;  // computes, so copies are rate-limited; set before a copy starts
    bool trickles; // serves one byte at a time; set before the first request
    bool hangs;    // with `trickles`: accepts requests and sends nothing
    struct {
        uv_timer_t timer;
        kin_link *link;
        uint32_t i_chunk, n; // n: bytes sent, at most MOST_TRICKLED
        bool is_over;
    } trickle;
    // A call on the loop's thread.
    kin_completion called;
    void (*fn)(struct node *node, const void *arg);
    const void *arg;
} node;

static char root[64];
static node nodes[N_NODES];
static atomic_int n_warnings;

static void on_line(void *user, kin_log_level level, const char *line) {
    (void)user, (void)line;
    n_warnings += level == KIN_LOG_WARN;
}

// ---- processes

static void send_byte(uv_timer_t *timer) {
    node *n = timer->data;
    static const uint8_t zero[1];
    kin_proto_data m = {.i_chunk = n->trickle.i_chunk, .offset = n->trickle.n++, .n_bytes = 1, .bytes = zero};
    uint8_t bytes[sizeof m];
    kin_frame_part part = {bytes, kin_proto_encode_data(bytes, sizeof bytes, &m)};
    kin_link_send(n->trickle.link, KIN_FRAME_DATA, 0, 1, &part);
    if (n->trickle.n == MOST_TRICKLED) uv_timer_stop(timer);
}

static void on_trickle_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    node *n = user;
    kin_proto_get m;
    kin_err err;
    assert_int_equal(kin_proto_decode_get(payload, frame->length, &m, &err), 0);
    if (n->trickle.link || n->hangs) return;
    n->trickle.link = link;
    n->trickle.i_chunk = m.i_chunk;
    n->trickle.n = 0;
    uv_timer_init(kin_endpoint_loop(n->endpoint), &n->trickle.timer);
    n->trickle.timer.data = n;
    uv_timer_start(&n->trickle.timer, send_byte, 0, 10);
}

static void on_trickle_closed(void *user, kin_link *link, const char *reason) {
    node *n = user;
    (void)link, (void)reason;
    if (n->trickle.link) uv_close((uv_handle_t *)&n->trickle.timer, NULL);
    n->trickle.link = NULL;
    n->trickle.is_over = true;
}

static void on_link(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    static const kin_link_callbacks callbacks = {.frame = on_trickle_frame, .closed = on_trickle_closed};
    node *n = user;
    (void)epoch;
    assert_int_equal(open->role, KIN_PROTO_FETCH);
    if (n->trickles) kin_link_accept(link, &callbacks, n);
    kin_endpoint_send_accept(n->endpoint, link);
    if (!n->trickles) kin_chunk_server_accept(n->server, link);
}

static bool is_busy(void *user) {
    return ((const node *)user)->is_busy;
}

static void begin(void *arg) {
    node *n = arg;
    kin_page_fetch_options o = {.endpoint = n->endpoint, .dir = n->dir, .cap = 1 << 26, .is_busy = is_busy, .user = n};
    o.copy_timeout_ms = COPY_TIMEOUT_MS;
    kin_err err;
    if (kin_chunk_server_open(&n->server, kin_endpoint_loop(n->endpoint), NULL, &err) != 0 ||
        kin_chunk_server_give_pages(n->server, n->dir, &err) != 0 || kin_page_fetch_open(&n->fetch, &o, &err) != 0)
        fail_msg("%s", err.text);
}

static void end(void *arg) {
    node *n = arg;
    kin_page_fetch_close(n->fetch);
    kin_chunk_server_close(n->server);
}

static void run_call(void *arg) {
    node *n = arg;
    n->fn(n, n->arg);
    kin_completion_done(&n->called, kin_completion_asked(&n->called), true);
}

// Calls fn on the node's loop thread and waits for it.
static void in_loop(node *n, void (*fn)(node *n, const void *arg), const void *arg) {
    uint32_t generation = kin_completion_ask(&n->called);
    n->fn = fn;
    n->arg = arg;
    assert_true(kin_endpoint_call(n->endpoint, run_call, n));
    kin_completion_wait(&n->called, generation);
}
#define in_loop(...) FROM_TEST(in_loop(__VA_ARGS__))

static void nothing(node *n, const void *arg) {
    (void)n, (void)arg;
}

static int open_nodes(void **state) {
    static const kin_endpoint_callbacks callbacks = {.opened = on_link};
    kin_err err;
    (void)state;
    strcpy(root, "/tmp/kin-test-page-fetch-XXXXXX");
    if (!mkdtemp(root)) return -1;
    n_warnings = 0;
    kin_log_set_sink(on_line, NULL);
    for (int i = 0; i < N_NODES; i++) {
        node *n = &nodes[i];
        *n = (node){.id = {{(uint8_t)(i + 1)}}};
        snprintf(n->dir, sizeof n->dir, "%s/%d", root, i);
        kin_completion_init(&n->called);
        kin_endpoint_options o = {.id = n->id, .name = "node", .version = "1", .key = {{7}}, .listen = "127.0.0.1"};
        if (kin_endpoint_open(&n->endpoint, &o, &callbacks, n, &err) != 0 || kin_endpoint_start(n->endpoint, begin, n, &err) != 0)
            fail_msg("%s", err.text);
        in_loop(n, nothing, NULL); // waits until `begin` has run
    }
    return 0;
}

static int close_nodes(void **state) {
    char command[128];
    (void)state;
    for (int i = N_NODES; i-- > 0;) { // the node that fetches closes first, which ends its links
        kin_endpoint_close(nodes[i].endpoint, end, &nodes[i]);
        kin_completion_fini(&nodes[i].called);
    }
    kin_log_set_sink(NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void know(node *n, const void *arg) {
    const node *other = arg;
    kin_proto_endpoint at = {kin_endpoint_port(other->endpoint), 1, {"127.0.0.1"}};
    kin_page_fetch_know(n->fetch, &other->id, &at);
}

static void know_nobody(node *n, const void *arg) {
    kin_proto_endpoint at = {1, 1, {"127.0.0.1"}}; // no process listens on this port
    (void)arg;
    kin_page_fetch_know(n->fetch, &(kin_proto_id){{99}}, &at);
}

// Registers many peers that do not answer. arg: if they are then forgotten, like devices that have left.
static void know_many(node *n, const void *arg) {
    const bool *forgets = arg;
    kin_proto_endpoint at = {1, 1, {"127.0.0.1"}};
    for (int i = 0; i < 2 * KIN_SWARM_SOURCES; i++) kin_page_fetch_know(n->fetch, &(kin_proto_id){{77, (uint8_t)i}}, &at);
    if (*forgets) kin_page_fetch_forget(n->fetch);
}

static void forget(node *n, const void *arg) {
    (void)arg;
    kin_page_fetch_forget(n->fetch);
}

// ---- pages

static kin_page_name name_of(int i) {
    return (kin_page_name){.folder = {1, 2}, .key = {{3, (uint8_t)i}}};
}

static void fill(uint8_t *bytes, int i) {
    for (int k = 0; k < BYTES; k++) bytes[k] = (uint8_t)(k * 31 + i * 7 + k / 256);
}

static void give(const node *n, int from, int to, size_t bytes) {
    static uint8_t page[BYTES];
    kin_kv_room room = {.cap = 1 << 26};
    kin_err err;
    for (int i = from; i < to; i++) {
        kin_page_name name = name_of(i);
        fill(page, i);
        if (kin_kv_file_write(n->dir, &room, &name, page, bytes, &err) != 0) fail_msg("%s", err.text);
    }
}
#define give(...) FROM_TEST(give(__VA_ARGS__))

static int count_here(const node *n, int to) {
    static uint8_t expected[BYTES], got[BYTES + 1];
    int n_here = 0;
    kin_err err;
    for (int i = 0; i < to; i++) {
        kin_page_name name = name_of(i);
        size_t n_got;
        if (kin_kv_file_read(n->dir, &name, got, sizeof got, &n_got, &err) != 0) continue;
        fill(expected, i);
        assert_int_equal(n_got, BYTES);
        assert_memory_equal(got, expected, BYTES);
        n_here++;
    }
    return n_here;
}
#define count_here(...) FROM_TEST(count_here(__VA_ARGS__))

static void want_for(node *n, int to, int timeout_ms) {
    kin_page_name names[64];
    for (int i = 0; i < to; i++) names[i] = name_of(i);
    kin_page_fetch_want(n->fetch, names, to, BYTES, timeout_ms);
}

static void want(node *n, int to) {
    want_for(n, to, TIMEOUT_MS);
}

// Expects n_here pages after wanting them. On a busy machine a fetch may take longer than its timeout, so it is repeated.
static void expect_here(node *n, int to, int n_here) {
    kin_time begun = kin_clock_now();
    do {
        want(n, to);
    } while (count_here(n, to) < n_here && kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS);
    assert_int_equal(count_here(n, to), n_here);
}
#define expect_here(...) FROM_TEST(expect_here(__VA_ARGS__))

static void what_is_wanted_comes_from_whoever_has_it(void **state) {
    (void)state;
    give(&nodes[0], 0, 20, BYTES);
    give(&nodes[1], 20, 40, BYTES);
    in_loop(&nodes[2], know, &nodes[0]);
    in_loop(&nodes[2], know, &nodes[1]);
    in_loop(&nodes[2], know, &nodes[2]); // a node does not ask itself
    expect_here(&nodes[2], 50, 40);
    give(&nodes[1], 40, 50, BYTES);
    expect_here(&nodes[2], 50, 50); // also wants pages that are already here: the caller is to check first
}

static void a_device_that_is_not_there_is_passed_over(void **state) {
    (void)state;
    give(&nodes[0], 0, 5, BYTES);
    in_loop(&nodes[2], know_nobody, NULL);
    in_loop(&nodes[2], know, &nodes[0]);
    expect_here(&nodes[2], 5, 5);
}

static void a_forgotten_device_is_not_asked(void **state) {
    (void)state;
    give(&nodes[0], 0, 5, BYTES);
    want(&nodes[2], 5); // no peer is registered
    in_loop(&nodes[2], know, &nodes[0]);
    in_loop(&nodes[2], forget, NULL);
    want(&nodes[2], 5);
    assert_int_equal(count_here(&nodes[2], 5), 0);
    in_loop(&nodes[2], know, &nodes[0]);
    expect_here(&nodes[2], 5, 5);
}

// Many devices have come and gone.
static void devices_that_are_gone_take_no_place(void **state) {
    static const bool yes = true, no = false;
    (void)state;
    give(&nodes[0], 0, 5, BYTES);
    in_loop(&nodes[2], know_many, &yes);
    in_loop(&nodes[2], know, &nodes[0]);
    expect_here(&nodes[2], 5, 5);
    give(&nodes[1], 5, 6, BYTES);
    in_loop(&nodes[2], know_many, &no);
    expect_here(&nodes[2], 6, 5); // none of the many peers answers
    in_loop(&nodes[2], know, &nodes[1]);
    expect_here(&nodes[2], 6, 6);
}

static void a_page_of_another_size_is_lacking(void **state) {
    (void)state;
    give(&nodes[0], 0, 1, BYTES - 1);
    give(&nodes[0], 1, 2, BYTES);
    in_loop(&nodes[2], know, &nodes[0]);
    expect_here(&nodes[2], 2, 1);
}

static void a_disk_that_cannot_be_written_is_told_once(void **state) {
    char path[100];
    (void)state;
    assert_int_equal(mkdir(nodes[2].dir, 0700), 0);
    snprintf(path, sizeof path, "%s/kv", nodes[2].dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600); // a file where the folder should be
    assert_true(fd >= 0);
    close(fd);
    give(&nodes[0], 0, 4, BYTES);
    in_loop(&nodes[2], know, &nodes[0]);
    for (kin_time begun = kin_clock_now(); n_warnings == 0 && kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS;)
        want(&nodes[2], 4);
    want(&nodes[2], 4);
    assert_int_equal(n_warnings, 1);
}

static bool is_over;
static uint32_t n_trickled;

static void look(node *n, const void *arg) {
    (void)arg;
    is_over = n->trickle.is_over;
    n_trickled = n->trickle.n;
}

// The slow transfer is abandoned before its end, and the next fetch asks another peer first.
static void a_slow_peer_is_left(void **state) {
    (void)state;
    nodes[0].trickles = true;
    give(&nodes[1], 0, 5, BYTES);
    in_loop(&nodes[2], know, &nodes[0]);
    in_loop(&nodes[2], know, &nodes[1]);
    want_for(&nodes[2], 5, 500);
    assert_int_equal(count_here(&nodes[2], 5), 0);
    for (kin_time begun = kin_clock_now(); !is_over && kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS;) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        in_loop(&nodes[0], look, NULL);
    }
    assert_true(is_over && n_trickled < MOST_TRICKLED);
    expect_here(&nodes[2], 5, 5);
}

// ---- copies

// Copies six pages of the node `arg` (NULL: the first one).
static void copy(node *n, const void *arg) {
    const node *from = arg ? arg : &nodes[0];
    uint8_t names[6 * sizeof(kin_proto_hash)];
    kin_proto_kept kept = {.id = from->id, .page_bytes = BYTES, .n_names = 6, .names = names};
    for (int i = 0; i < 6; i++) {
        kin_page_name name = name_of(i);
        kin_proto_hash hash = kin_page_fetch_hash(&name);
        if (i == 5) hash.bytes[31] = 1; // not the hash of a page
        memcpy(names + sizeof hash * (size_t)i, &hash, sizeof hash);
    }
    kin_page_fetch_copy(n->fetch, &kept);
}

static kin_page_fetch_stats stats;

static void read_stats(node *n, const void *arg) {
    (void)arg;
    stats = kin_page_fetch_stats_now(n->fetch);
}

static void wait_for_copies(node *n, uint64_t n_copied, uint64_t n_left_out) {
    kin_time begun = kin_clock_now();
    do {
        in_loop(n, read_stats, NULL);
        assert_true(kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    } while (stats.n_copied < n_copied || stats.n_left_out < n_left_out);
}
#define wait_for_copies(...) FROM_TEST(wait_for_copies(__VA_ARGS__))

static void copies_come_by_themselves(void **state) {
    (void)state;
    give(&nodes[0], 0, 4, BYTES);   // the fifth page is gone
    in_loop(&nodes[2], copy, NULL); // the peer is not registered, so nothing is copied
    in_loop(&nodes[2], know, &nodes[0]);
    in_loop(&nodes[2], copy, NULL);
    wait_for_copies(&nodes[2], 4, 1);
    assert_int_equal(count_here(&nodes[2], 5), 4);
    assert_int_equal(stats.bytes, 4 * BYTES);
    assert_int_equal(stats.n_wanted, 0);
}

// The copy is rate-limited: slices with pauses.
static void a_computing_device_copies_rate_limited(void **state) {
    (void)state;
    give(&nodes[0], 0, 4, BYTES);
    in_loop(&nodes[2], know, &nodes[0]);
    nodes[2].is_busy = true;
    in_loop(&nodes[2], copy, NULL);
    wait_for_copies(&nodes[2], 4, 1);
    assert_int_equal(count_here(&nodes[2], 5), 4);
    want(&nodes[2], 5); // the link is no longer rate-limited
    assert_int_equal(count_here(&nodes[2], 5), 4);
}

// While a copy waits for its next slice, other pages are wanted from the same peer.
static void a_copy_goes_on_after_what_was_wanted(void **state) {
    (void)state;
    give(&nodes[0], 0, 5, BYTES);
    in_loop(&nodes[2], know, &nodes[0]);
    nodes[2].is_busy = true;
    in_loop(&nodes[2], copy, NULL);
    kin_time begun = kin_clock_now();
    do {
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL); // a copy can start only while no pages are wanted
        want(&nodes[2], 1);
        in_loop(&nodes[2], read_stats, NULL);
        assert_true(kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS);
    } while (stats.n_copied < 5);
}

// The peer's disk hangs, but its heartbeat does not.
static void a_peer_that_hangs_holds_up_no_copies_of_others(void **state) {
    (void)state;
    nodes[0].trickles = nodes[0].hangs = true;
    give(&nodes[1], 0, 5, BYTES);
    in_loop(&nodes[2], know, &nodes[0]);
    in_loop(&nodes[2], know, &nodes[1]);
    in_loop(&nodes[2], copy, &nodes[0]);
    in_loop(&nodes[2], copy, &nodes[1]);
    wait_for_copies(&nodes[2], 5, 5);
    assert_int_equal(count_here(&nodes[2], 5), 5);
}

// Settling waits for pending copies, but not for missing pages, and returns at once if there are no copies.
static void what_ends_has_its_copies(void **state) {
    (void)state;
    give(&nodes[0], 0, 4, BYTES);
    kin_page_fetch_settle(nodes[2].fetch);
    in_loop(&nodes[2], know, &nodes[0]);
    in_loop(&nodes[2], copy, NULL);
    kin_page_fetch_settle(nodes[2].fetch);
    assert_int_equal(count_here(&nodes[2], 5), 4);
    kin_page_fetch_settle(nodes[2].fetch);
}

// Wanted pages do not wait for copies, and copies are not postponed forever.
static void copies_wait_for_what_is_wanted(void **state) {
    (void)state;
    give(&nodes[0], 0, 5, BYTES);
    give(&nodes[1], 0, 30, BYTES);
    in_loop(&nodes[2], know, &nodes[0]);
    in_loop(&nodes[2], know, &nodes[1]);
    in_loop(&nodes[2], copy, NULL);
    expect_here(&nodes[2], 30, 30);
    wait_for_copies(&nodes[2], 5, 0);
}

static void names_are_told_from_hashes_of_models(void **state) {
    (void)state;
    kin_page_name name = name_of(200), back;
    kin_proto_hash hash = kin_page_fetch_hash(&name);
    assert_true(kin_page_fetch_name(&hash, &back));
    assert_memory_equal(&back, &name, sizeof name);
    for (int i = 24; i < 32; i++) {
        kin_proto_hash other = hash;
        other.bytes[i] = 1;
        assert_false(kin_page_fetch_name(&other, &back));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_wanted_comes_from_whoever_has_it, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(a_device_that_is_not_there_is_passed_over, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(a_forgotten_device_is_not_asked, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(devices_that_are_gone_take_no_place, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(a_page_of_another_size_is_lacking, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(a_disk_that_cannot_be_written_is_told_once, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(a_slow_peer_is_left, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(copies_come_by_themselves, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(a_peer_that_hangs_holds_up_no_copies_of_others, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(a_computing_device_copies_rate_limited, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(a_copy_goes_on_after_what_was_wanted, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(what_ends_has_its_copies, open_nodes, close_nodes),
        cmocka_unit_test_setup_teardown(copies_wait_for_what_is_wanted, open_nodes, close_nodes),
        cmocka_unit_test(names_are_told_from_hashes_of_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
