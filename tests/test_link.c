// Links over real sockets: frames arrive whole and in order, and a link ends with one clear sentence.
#include "tests/link_context.h"

#include <sys/socket.h>

#include "base/rng.h"

// ---- frames

static void frames_of_all_lengths_arrive_as_they_were_sent(void **state) {
    static const size_t lengths[] = {0, 1, 15, 16, 4096, 16367, 16368, 16369, 16400, 65536, 65537, 300000, 5000000};
    context *w = *state;
    end client;
    end *server = connect_pair(w, &client);
    kin_link_set_frame_max(server->link, 8 << 20);
    uint8_t *bytes = malloc(5000000);
    for (size_t i = 0; i < 5000000; i++) bytes[i] = (uint8_t)(i * 7 + i / 251);
    for (int i = 0; i < (int)(sizeof lengths / sizeof *lengths); i++) {
        size_t n = lengths[i], cut = n / 3;
        kin_frame_part parts[] = {{bytes, cut}, {NULL, 0}, {bytes + cut, n - cut}};
        kin_link_sent sent = kin_link_send(client.link, KIN_FRAME_STEP, 100 + (uint32_t)i, 3, parts);
        assert_true(sent == KIN_LINK_SENT || sent == KIN_LINK_QUEUED);
        RUN_UNTIL(w, server->n_frames == i + 1);
        assert_int_equal(server->last.type, KIN_FRAME_STEP);
        assert_int_equal(server->last.epoch, 100 + i);
        assert_int_equal(server->n_bytes, n);
        assert_memory_equal(server->bytes, bytes, n);
    }
    expect_frame(w, server, &client, "and back");
    free(bytes);
    close_end(w, &client);
}

static void round_trips_and_bytes_are_counted(void **state) {
    context *w = *state;
    end client;
    end *server = connect_pair(w, &client);
    expect_frame(w, &client, server, "one");
    run_for(w, 300);
    kin_link_stats a, b;
    // A ping may be in flight.
    RUN_UNTIL(w, (a = kin_link_stats_now(client.link), b = kin_link_stats_now(server->link), a.frames_out == b.frames_in) &&
                     a.frames_in == b.frames_out);
    assert_in_range(a.rtt_ns, 1, 1000000000);
    assert_in_range(b.rtt_ns, 1, 1000000000);
    assert_true(llabs(a.clock_ahead_ns) <= (int64_t)a.rtt_ns * 100); // it is the same clock
    assert_int_equal(a.bytes_out, b.bytes_in);
    assert_int_equal(a.bytes_in, b.bytes_out);
    assert_int_equal(a.queued, 0);
    assert_int_equal(server->n_frames, 1); // pings do not reach the owner
    close_end(w, &client);
}

static int taken_fd;
static kin_tls *taken_tls;

static void claim_link(end *e) {
    kin_err err;
    if (kin_link_release(e->link, &taken_fd, &taken_tls, &err) != 0) fail_msg("%s", err.text);
    e->link = NULL;
}

static void what_came_behind_the_frame_that_a_link_is_taken_at_is_not_lost(void **state) {
    context *w = *state;
    uint8_t bytes[2 * KIN_FRAME_HEADER];
    size_t n = 0, n_read;
    end client;
    kin_err err;
    end *server = connect_pair(w, &client);
    server->on_frame = claim_link;
    assert_int_equal(send_bytes(&client, KIN_FRAME_STATUS, "", 0), KIN_LINK_SENT); // both in one segment
    assert_int_equal(send_bytes(&client, KIN_FRAME_STATUS, "", 0), KIN_LINK_SENT);
    RUN_UNTIL(w, !server->link);
    run_for(w, 20);                // the link's memory is freed
    while (n < KIN_FRAME_HEADER) { // the rest is in the socket
        uint8_t more[256];
        assert_int_equal(kin_tls_read(taken_tls, bytes + n, sizeof bytes - n, &n_read, &err), 0);
        n += n_read;
        ssize_t got = n_read > 0 ? 0 : recv(taken_fd, more, sizeof more, MSG_DONTWAIT);
        if (got > 0) assert_int_equal(kin_tls_feed(taken_tls, more, (size_t)got, &err), 0);
        if (n < KIN_FRAME_HEADER) turn(w);
    }
    kin_frame frame;
    assert_int_equal(kin_frame_decode(bytes, n, &frame, &err), KIN_FRAME_HEADER);
    assert_int_equal(frame.type, KIN_FRAME_STATUS);
    close(taken_fd);
    kin_tls_close(taken_tls);
    close_end(w, &client);
}

static void links_go_by_name_and_by_both_families(void **state) {
    context *w = *state;
    end client;
    connect_end(w, &client, "localhost", &w->o.link);
    RUN_UNTIL(w, client.is_open);
    close_end(w, &client);
    connect_end(w, &client, "127.0.0.1", &w->o.link);
    RUN_UNTIL(w, client.is_open && w->n_ends == 2);
    assert_string_equal(kin_link_address(client.link), "127.0.0.1");
    assert_string_equal(kin_link_address(w->ends[1].link), "127.0.0.1");
    char name[64];
    snprintf(name, sizeof name, "127.0.0.1:%u", w->port);
    assert_string_equal(kin_link_name(client.link), name);
    close_end(w, &client);
    connect_end(w, &client, "::1", &w->o.link);
    RUN_UNTIL(w, client.is_open || !client.link);
    if (client.link) {
        snprintf(name, sizeof name, "[::1]:%u", w->port);
        assert_string_equal(kin_link_name(client.link), name);
    }
    close_end(w, &client);
}

static void of_a_names_addresses_the_one_that_answers_is_taken(void **state) {
    context *w = *state;
    kin_listener *v4;
    end client;
    assert_int_equal(kin_listener_open(&v4, &w->loop, "127.0.0.1", 0, &w->o, on_accepted, w, NULL), 0);
    w->port = kin_listener_port(v4);
    connect_end(w, &client, "localhost", &w->o.link); // ::1 first, if the machine has it
    RUN_UNTIL(w, client.is_open);
    assert_string_equal(kin_link_address(client.link), "127.0.0.1");
    close_end(w, &client);
    kin_listener_close(v4);
}

static void closed_is_called_if_there_is_no_listener(void **state) {
    context *w = *state;
    end client;
    kin_err err;
    kin_listener *gone;
    assert_int_equal(kin_listener_open(&gone, &w->loop, "127.0.0.1", 0, &w->o, on_accepted, w, &err), 0);
    uint16_t port = w->port, gone_port = kin_listener_port(gone);
    kin_listener_close(gone);
    turn(w);
    w->port = gone_port;
    connect_end(w, &client, "127.0.0.1", &w->o.link);
    assert_int_equal(send_bytes(&client, KIN_FRAME_STATUS, "", 0), KIN_LINK_SHUT);
    RUN_UNTIL(w, !client.link);
    assert_non_null(strstr(client.reason, "cannot connect: connection refused"));
    connect_end(w, &client, "no-such-name.invalid", &w->o.link);
    RUN_UNTIL(w, !client.link);
    assert_true(strstr(client.reason, "cannot resolve the name") || strstr(client.reason, "no answer within"));
    w->port = port;
}

static void a_port_in_use_is_an_error_that_names_it(void **state) {
    context *w = *state;
    kin_err err;
    kin_listener *second;
    assert_int_equal(kin_listener_open(&second, &w->loop, NULL, w->port, &w->o, on_accepted, w, &err), KIN_FAIL);
    char port[16];
    snprintf(port, sizeof port, "%u", w->port);
    assert_non_null(strstr(err.text, port));
    assert_non_null(strstr(err.text, "in use"));
    assert_int_equal(kin_listener_open(&second, &w->loop, "not numbers", 0, &w->o, on_accepted, w, &err), KIN_FAIL);
}

// ---- closing

static void a_reason_reaches_the_other_side_behind_what_was_queued(void **state) {
    context *w = *state;
    w->frame_max = 16 << 20;
    end client;
    end *server = connect_pair(w, &client);
    uint8_t *bytes = calloc(1, 12 << 20);
    send_bytes(&client, KIN_FRAME_STEP, bytes, 12 << 20);
    kin_link_close(client.link, "off to bed");
    RUN_UNTIL(w, !server->link);
    assert_int_equal(server->n_frames, 1);
    assert_int_equal(server->n_bytes, 12 << 20);
    assert_string_equal(server->reason, "the other side closed the link: off to bed");
    free(bytes);
}

static void a_long_or_unprintable_reason_is_made_fit(void **state) {
    context *w = *state;
    char reason[3000];
    memset(reason, 'a', sizeof reason - 1);
    reason[0] = '\n';
    reason[sizeof reason - 1] = 0;
    end client;
    end *server = connect_pair(w, &client);
    kin_link_close(client.link, reason);
    RUN_UNTIL(w, !server->link);
    assert_non_null(strstr(server->reason, "closed the link: ?aaaa"));
}

static void close_in_frame(end *e) {
    kin_link_close(e->link, "enough");
    e->link = NULL;
}

static void a_link_may_be_closed_inside_of_its_callbacks(void **state) {
    context *w = *state;
    end client;
    end *server = connect_pair(w, &client);
    server->on_frame = close_in_frame;
    send_bytes(&client, KIN_FRAME_STATUS, "1", 1);
    send_bytes(&client, KIN_FRAME_STATUS, "2", 1);
    RUN_UNTIL(w, !client.link);
    assert_int_equal(server->n_frames, 1);
    assert_string_equal(client.reason, "the other side closed the link: enough");
}

static kin_rng acts;

static uint32_t one_of(uint32_t n) {
    return (uint32_t)(kin_rng_u64(&acts) % n);
}

static void send_some(end *e) {
    static const uint8_t bytes[100000];
    send_bytes(e, KIN_FRAME_STEP, bytes, one_of(2) ? one_of(40) : one_of(sizeof bytes));
}

static void act_at_random(end *e) {
    if (one_of(24) == 0)
        close_in_frame(e);
    else if (one_of(3) > 0)
        send_some(e);
}

// Each frame is answered, or its link closed, while more frames are behind it.
static void links_survive_what_their_owners_do_inside_of_callbacks(void **state) {
    context *w = *state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        end client;
        kin_rng_seed(&acts, seed);
        end *server = connect_pair(w, &client);
        kin_link_set_frame_max(server->link, 1 << 20);
        kin_link_set_frame_max(client.link, 1 << 20);
        server->on_frame = client.on_frame = act_at_random;
        for (int i = 0; i < 12 && client.link; i++) send_some(&client);
        for (int i = 0; i < 40 && (client.link || server->link); i++) uv_run(&w->loop, UV_RUN_NOWAIT);
        server->on_frame = NULL;
        if (server->link) close_in_frame(server);
        close_end(w, &client);
    }
}

static void a_link_may_be_closed_in_every_phase(void **state) {
    context *w = *state;
    for (int n_turns = 0; n_turns < 12; n_turns++) {
        end client;
        connect_end(w, &client, n_turns % 2 ? "localhost" : "127.0.0.1", &w->o.link);
        for (int i = 0; i < n_turns; i++) uv_run(&w->loop, UV_RUN_NOWAIT);
        kin_link_close(client.link, "never mind");
        run_for(w, 10);
    }
    for (int i = 0; i < w->n_ends; i++) RUN_UNTIL(w, !w->ends[i].link);
}

static void a_peer_that_does_not_close_is_left_after_linger_ms(void **state) {
    context *w = *state;
    end *other;
    stranger s = connect_insider(w, &other);
    kin_time begun = kin_clock_now();
    uv_update_time(&w->loop); // timers start from this time
    kin_link_close(other->link, "bye");
    other->link = NULL;
    kin_listener_close(w->listener);
    w->listener = NULL;
    uv_timer_stop(&w->timer);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_in_range(kin_clock_ms(begun, kin_clock_now()), w->o.link.linger_ms - 2, TIMEOUT_MS);
    leave(&s);
}

static void a_process_that_was_stopped_does_not_blame_the_others(void **state) {
    context *w = *state;
    end client;
    end *server = connect_pair(w, &client);
    run_for(w, 60);
    usleep(SILENCE_MS * 3000);
    run_for(w, 200);
    assert_non_null(client.link);
    assert_non_null(server->link);
    expect_frame(w, &client, server, "still here");
    close_end(w, &client);
}

// ---- the queue

static void a_full_queue_refuses_and_says_when_there_is_room(void **state) {
    enum { N_BYTES = 1 << 20 };
    context *w = *state;
    w->frame_max = 64 << 20;
    w->o.link.queue_max = 2 << 20;
    end client;
    end *server = connect_pair(w, &client);
    uint8_t *bytes = calloc(1, N_BYTES);
    uint64_t sum = 0;
    int n_sent = 0, n_full = 0;
    while (n_sent < 40) {
        kin_put_u32(bytes, (uint32_t)n_sent);
        kin_link_sent sent = send_bytes(&client, KIN_FRAME_STEP, bytes, N_BYTES);
        assert_true(sent != KIN_LINK_SHUT);
        assert_true(kin_link_stats_now(client.link).queued <= 2 << 20);
        if (sent == KIN_LINK_FULL) {
            n_full++;
            client.is_drained = false;
            RUN_UNTIL(w, client.is_drained);
            continue;
        }
        sum = sum * 31 + kin_hash64(bytes, N_BYTES, 7);
        n_sent++;
    }
    assert_true(n_full > 0);
    RUN_UNTIL(w, server->n_frames == n_sent);
    assert_true(server->sum == sum);
    free(bytes);
    close_end(w, &client);
}

static void a_frame_longer_than_the_queue_is_taken_when_it_is_empty(void **state) {
    context *w = *state;
    w->frame_max = 64 << 20;
    w->o.link.queue_max = 1000;
    end client;
    end *server = connect_pair(w, &client);
    uint8_t *bytes = calloc(1, 20 << 20);
    RUN_UNTIL(w, send_bytes(&client, KIN_FRAME_STEP, bytes, 20 << 20) == KIN_LINK_QUEUED);
    assert_int_equal(send_bytes(&client, KIN_FRAME_STEP, bytes, 1), KIN_LINK_FULL);
    RUN_UNTIL(w, server->n_frames == 1 && client.is_drained);
    assert_int_not_equal(send_bytes(&client, KIN_FRAME_STEP, bytes, 1), KIN_LINK_FULL);
    RUN_UNTIL(w, server->n_frames == 2);
    free(bytes);
    close_end(w, &client);
}

static void a_queue_longer_than_one_write_arrives_as_it_was_sent(void **state) {
    context *w = *state;
    enum { FRAME_BYTES = 11 << 20 };
    w->frame_max = FRAME_BYTES;
    w->o.link.queue_max = 100 << 20;
    end client;
    end *server = connect_pair(w, &client);
    uint8_t *bytes = malloc(FRAME_BYTES);
    kin_rng rng;
    kin_rng_seed(&rng, 5);
    for (size_t i = 0; i < FRAME_BYTES / 8; i++) kin_put_u64(bytes + 8 * i, kin_rng_u64(&rng));
    for (int i = 1; i <= 3; i++) {
        bytes[0] = (uint8_t)i;
        assert_int_not_equal(send_bytes(&client, KIN_FRAME_STEP, bytes, FRAME_BYTES), KIN_LINK_FULL);
    }
    for (int i = 1; i <= 3; i++) {
        RUN_UNTIL(w, server->n_frames == i);
        bytes[0] = (uint8_t)i;
        assert_memory_equal(server->bytes, bytes, FRAME_BYTES);
    }
    kin_link_stats stats = kin_link_stats_now(client.link);
    assert_int_equal(stats.queued, 0);
    assert_true(stats.bytes_out > 3 * (uint64_t)FRAME_BYTES && stats.bytes_out < 3 * (uint64_t)FRAME_BYTES + (1 << 20));
    free(bytes);
    close_end(w, &client);
}

static void many_links_do_not_mix_their_frames(void **state) {
    enum { N_LINKS = 64 };
    context *w = *state;
    w->o.link.silence_ms = 10000;
    end *clients = calloc(N_LINKS, sizeof *clients);
    for (int i = 0; i < N_LINKS; i++) connect_pair(w, &clients[i]);
    for (uint32_t i = 0; i < N_LINKS * 20; i++) {
        uint8_t bytes[1000];
        memset(bytes, (int)(i % N_LINKS), sizeof bytes);
        send_bytes(&clients[i % N_LINKS], KIN_FRAME_STATUS, bytes, sizeof bytes);
    }
    for (int i = 0; i < N_LINKS; i++) {
        RUN_UNTIL(w, w->ends[i].n_frames == 20);
        for (int k = 0; k < 1000; k++) assert_int_equal(w->ends[i].bytes[k], i);
    }
    for (int i = 0; i < N_LINKS; i++) close_end(w, &clients[i]);
    free(clients);
}

// ---- two loops, each in its own thread

typedef struct sender {
    pthread_t thread;
    uint16_t port;
    kin_tls_ctx *tls;
    uv_loop_t loop;
    kin_link *link;
    uint8_t *bytes;
    uint32_t n_sent;
    uint64_t sum;
} sender;

enum { BULK_FRAMES = 100, BULK_BYTES = 1 << 20 };

static void send_more(void *user, kin_link *link) {
    sender *s = user;
    while (s->n_sent < BULK_FRAMES) {
        size_t n = BULK_BYTES - s->n_sent * 1000;
        for (size_t i = 0; i + 8 <= n; i += 4096) kin_put_u64(s->bytes + i, s->n_sent * 1000003 + i);
        if (kin_link_send(link, KIN_FRAME_STEP, 7, 1, &(kin_frame_part){s->bytes, n}) == KIN_LINK_FULL) return;
        s->sum = s->sum * 31 + kin_hash64(s->bytes, n, 7);
        s->n_sent++;
    }
    kin_link_close(link, "done");
}

static void ignore_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    (void)user, (void)link, (void)frame, (void)payload;
}

static void ignore_closed(void *user, kin_link *link, const char *reason) {
    (void)user, (void)link, (void)reason;
}

static void *run_sender(void *arg) {
    static const kin_link_callbacks sending = {send_more, ignore_frame, send_more, ignore_closed};
    sender *s = arg;
    kin_link_options o = kin_link_options_default(s->tls);
    o.queue_max = 3 << 20;
    o.linger_ms = TIMEOUT_MS;
    uv_loop_init(&s->loop);
    kin_link_connect(&s->link, &s->loop, "127.0.0.1", s->port, &o, &sending, s, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    return NULL;
}

static void a_hundred_megabytes_cross_two_threads_unharmed(void **state) {
    context *w = *state;
    w->frame_max = BULK_BYTES;
    sender s = {.port = w->port, .tls = w->tls, .bytes = calloc(1, BULK_BYTES)};
    assert_int_equal(pthread_create(&s.thread, NULL, run_sender, &s), 0);
    RUN_UNTIL(w, w->n_ends == 1 && !w->ends[0].link);
    pthread_join(s.thread, NULL);
    assert_string_equal(w->ends[0].reason, "the other side closed the link: done");
    assert_int_equal(w->ends[0].n_frames, BULK_FRAMES);
    assert_true(w->ends[0].sum == s.sum);
    free(s.bytes);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
#define PAIR_TEST(name)                                                                                                          \
    { #name "_over_a_pair", name, open_pair_context, close_context, NULL }
    const struct CMUnitTest tests[] = {
        TEST(frames_of_all_lengths_arrive_as_they_were_sent),
        TEST(round_trips_and_bytes_are_counted),
        TEST(what_came_behind_the_frame_that_a_link_is_taken_at_is_not_lost),
        TEST(links_go_by_name_and_by_both_families),
        TEST(of_a_names_addresses_the_one_that_answers_is_taken),
        TEST(closed_is_called_if_there_is_no_listener),
        TEST(a_port_in_use_is_an_error_that_names_it),
        TEST(a_reason_reaches_the_other_side_behind_what_was_queued),
        TEST(a_long_or_unprintable_reason_is_made_fit),
        TEST(a_link_may_be_closed_inside_of_its_callbacks),
        TEST(links_survive_what_their_owners_do_inside_of_callbacks),
        TEST(a_link_may_be_closed_in_every_phase),
        TEST(a_peer_that_does_not_close_is_left_after_linger_ms),
        TEST(a_process_that_was_stopped_does_not_blame_the_others),
        TEST(a_full_queue_refuses_and_says_when_there_is_room),
        TEST(a_frame_longer_than_the_queue_is_taken_when_it_is_empty),
        TEST(a_queue_longer_than_one_write_arrives_as_it_was_sent),
        TEST(many_links_do_not_mix_their_frames),
        TEST(a_hundred_megabytes_cross_two_threads_unharmed),
        PAIR_TEST(frames_of_all_lengths_arrive_as_they_were_sent),
        PAIR_TEST(round_trips_and_bytes_are_counted),
        PAIR_TEST(a_reason_reaches_the_other_side_behind_what_was_queued),
        PAIR_TEST(a_long_or_unprintable_reason_is_made_fit),
        PAIR_TEST(a_link_may_be_closed_inside_of_its_callbacks),
        PAIR_TEST(a_link_may_be_closed_in_every_phase),
        PAIR_TEST(a_full_queue_refuses_and_says_when_there_is_room),
        PAIR_TEST(a_frame_longer_than_the_queue_is_taken_when_it_is_empty),
        PAIR_TEST(many_links_do_not_mix_their_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
