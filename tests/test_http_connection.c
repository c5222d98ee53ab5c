// A connection of the HTTP server, with the test's own socket and clock.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "pure/text/text_buffer.h"
#include "serve/http/http.h"
#include "serve/http/http_connection.h"
#include "tests/place.h"

typedef struct context {
    kin_http_service service;
    kin_http_connection *c;
    kin_http_exchange *open;
    int n_requests, n_gone;
    kin_text_buffer sent;
    size_t n_pending; // of the sent bytes
    bool takes_nothing, is_finished, is_closed, is_paused;
    kin_time now;
} context;

static void send_bytes(void *socket, const void *bytes, size_t n) {
    context *w = socket;
    assert_false(w->is_closed || w->is_finished);
    kin_text_put(&w->sent, bytes, n);
    if (w->takes_nothing) w->n_pending += n;
}

static size_t count_pending(const void *socket, uint64_t *n_out) {
    const context *w = socket;
    *n_out = w->sent.len - w->n_pending;
    return w->n_pending;
}

static void set_reading(void *socket, bool on) {
    ((context *)socket)->is_paused = !on;
}

static void finish(void *socket) {
    ((context *)socket)->is_finished = true;
}

static void close_socket(void *socket) {
    ((context *)socket)->is_closed = true;
}

static const kin_http_socket_ops ops = {send_bytes, count_pending, set_reading, finish, close_socket};

static void on_request(void *user, kin_http_exchange *x) {
    context *w = user;
    w->n_requests++;
    w->open = x;
}

static void on_gone(void *user, kin_http_exchange *x) {
    context *w = user;
    assert_ptr_equal(x, w->open);
    w->open = NULL;
    w->n_gone++;
}

static void open_context(context *w) {
    *w = (context){.service = {.limits = kin_http_options_default().limits,
                               .memory = {.max = 1 << 20},
                               .callbacks = {.request = on_request, .gone = on_gone}}};
    w->service.user = w;
    kin_rng_seed(&w->service.rng, 1);
    assert_int_equal(kin_http_connection_open(&w->c, &w->service, &ops, w, NULL), 0);
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

static void close_context(context *w) {
    kin_http_connection_free(w->c);
    kin_text_fini(&w->sent);
    assert_int_equal(w->service.memory.used, 0);
}
#define close_context(...) FROM_TEST(close_context(__VA_ARGS__))

static void feed(context *w, const char *text) {
    kin_http_connection_feed(w->c, text, strlen(text));
}

static void get(context *w) {
    feed(w, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
}

static void reply(context *w, const char *text) {
    kin_http_exchange *x = w->open;
    w->open = NULL;
    kin_http_reply(x, 200, NULL, text, strlen(text));
}

// Advances the time.
static void pass(context *w, uint64_t ms) {
    kin_http_connection_tick(w->c, w->now);
    kin_http_connection_tick(w->c, w->now += ms * 1000000);
}

static void handle_pending(context *w) {
    w->n_pending = 0;
    kin_http_connection_sent(w->c);
}

// ----

static void a_refused_client_can_read_why_and_has_two_seconds_to_close(void **state) {
    (void)state;
    for (int closes = 0; closes < 2; closes++) {
        context w;
        open_context(&w);
        feed(&w, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n");
        assert_non_null(strstr(w.sent.at, "HTTP/1.1 413"));
        assert_true(w.is_finished && !w.is_closed && !w.is_paused); // closing now could discard the response
        size_t n_sent = w.sent.len;
        feed(&w, "more of the body");
        pass(&w, 1999);
        assert_false(w.is_closed);
        if (closes)
            kin_http_connection_eof(w.c);
        else
            pass(&w, 2001);
        assert_true(w.is_closed);
        assert_int_equal(w.sent.len, n_sent);
        close_context(&w);
    }
}

static void put_refusal(kin_str path, const kin_api_error *error, kin_text_buffer *body) {
    kin_text_print(body, "%d for <%.*s>", error->status, (int)path.len, path.at);
}

static void the_owner_says_how_a_refusal_of_a_path_looks(void **state) {
    (void)state;
    static const struct {
        const char *text, *body;
    } requests[] = {{"POST /api/a?b=c HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", "413 for </api/a>"},
                    {"GARBAGE\r\n\r\n", "400 for <>"}};
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        context w;
        open_context(&w);
        kin_http_connection_free(w.c);
        w.service.callbacks.refusal = put_refusal;
        assert_int_equal(kin_http_connection_open(&w.c, &w.service, &ops, &w, NULL), 0);
        feed(&w, requests[i].text);
        if (!strstr(w.sent.at, requests[i].body)) fail_msg("%s", w.sent.at);
        close_context(&w);
    }
}

static void a_slow_client_gets_the_end_of_the_last_response(void **state) {
    (void)state;
    context w;
    open_context(&w);
    w.takes_nothing = true;
    feed(&w, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    reply(&w, "text");
    for (int i = 0; i < 10; i++) { // seconds; one byte goes out in each
        pass(&w, 1000);
        w.n_pending--;
    }
    kin_http_connection_eof(w.c); // a client may end its sending side at once
    assert_false(w.is_closed);
    handle_pending(&w);
    assert_true(w.is_closed);
    close_context(&w);
}

static void the_next_request_waits_until_the_response_is_out(void **state) {
    (void)state;
    context w;
    open_context(&w);
    w.takes_nothing = true;
    get(&w);
    get(&w);
    get(&w);
    assert_int_equal(w.n_requests, 1);
    reply(&w, "first");
    assert_int_equal(w.n_requests, 1);
    assert_true(kin_http_connection_is_busy(w.c));
    handle_pending(&w);
    assert_int_equal(w.n_requests, 2);
    kin_http_connection_eof(w.c); // the third one is dropped
    assert_false(w.is_closed);
    reply(&w, "second");
    assert_non_null(strstr(w.sent.at, "second"));
    handle_pending(&w);
    assert_true(w.is_closed);
    close_context(&w);
    assert_int_equal(w.n_gone, 0);
    assert_int_equal(w.n_requests, 2);
}

static void gone_is_not_said_inside_of_a_write(void **state) {
    (void)state;
    static const char piece[3 << 20];
    context w;
    open_context(&w);
    w.takes_nothing = true;
    get(&w);
    kin_http_begin(w.open, 200, NULL);
    for (int i = 0; i < 2; i++) kin_http_write(w.open, piece, sizeof piece);
    assert_false(w.is_closed);
    kin_http_write(w.open, piece, sizeof piece); // 6 MiB are unsent
    assert_true(w.is_closed);
    assert_int_equal(w.n_gone, 0);
    kin_http_write(w.open, piece, sizeof piece); // the owner does not know yet
    assert_true(w.sent.len < 7 << 20);
    close_context(&w);
    assert_int_equal(w.n_gone, 1);
}

static int n_interim(const context *w) {
    int n = 0;
    for (const char *at = w->sent.at; at && (at = strstr(at, "HTTP/1.1 100 Continue\r\n\r\n")); at++) n++;
    return n;
}

static void a_client_that_sends_nothing_more_is_answered(void **state) {
    (void)state;
    context w;
    open_context(&w);
    get(&w);
    kin_http_connection_eof(w.c);
    assert_false(w.is_closed);
    assert_int_equal(n_interim(&w), 1); // a test whether the client is still there
    pass(&w, 0);
    assert_int_equal(n_interim(&w), 1);
    pass(&w, 300);
    assert_int_equal(n_interim(&w), 2);
    for (int i = 0; i < 30; i++) pass(&w, 1000);
    assert_int_equal(n_interim(&w), 3);
    assert_false(w.is_closed);
    reply(&w, "late");
    assert_non_null(strstr(w.sent.at, "Connection: close"));
    assert_non_null(strstr(w.sent.at, "late"));
    assert_true(w.is_closed);
    close_context(&w);
    assert_int_equal(w.n_gone, 0);
}

static void what_http_1_0_does_not_know_is_not_sent_to_it(void **state) {
    (void)state;
    context w;
    open_context(&w);
    feed(&w, "GET / HTTP/1.0\r\n\r\n");
    kin_http_connection_eof(w.c);
    for (int i = 0; i < 9; i++) pass(&w, 1000);
    assert_int_equal(n_interim(&w), 0);
    assert_false(w.is_closed);
    reply(&w, "late");
    assert_true(w.is_closed);
    close_context(&w);
}

static void the_end_of_bytes_within_a_request_ends_it(void **state) {
    (void)state;
    context w;
    open_context(&w);
    feed(&w, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
    kin_http_connection_eof(w.c);
    assert_true(w.is_closed);
    close_context(&w);
    assert_int_equal(w.n_requests, 0);
}

static void an_exchange_that_ends_after_its_client_went_is_not_gone_too(void **state) {
    (void)state;
    static const char piece[3 << 20];
    context w;
    open_context(&w);
    get(&w);
    kin_http_begin(w.open, 200, NULL);
    w.takes_nothing = true;
    kin_http_write(w.open, piece, sizeof piece);
    kin_http_write(w.open, piece, sizeof piece);
    kin_http_write(w.open, piece, sizeof piece); // more than may be pending
    assert_true(w.is_closed);
    kin_http_end(w.open);
    close_context(&w);
    assert_int_equal(w.n_gone, 0);
}

static void a_large_body_has_more_time_than_a_header(void **state) {
    (void)state;
    static char body[320 << 10]; // 20 seconds at 16 KiB per second
    context w;
    open_context(&w);
    memset(body, 'x', sizeof body);
    feed(&w, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n");
    kin_http_connection_feed(w.c, body, sizeof body);
    pass(&w, 15000 + 19000);
    assert_null(w.sent.at);
    kin_http_connection_tick(w.c, w.now += (uint64_t)2000 * 1000000);
    assert_non_null(strstr(w.sent.at, "HTTP/1.1 408"));
    close_context(&w);
}

static void waiting_for_the_owner_takes_any_time(void **state) {
    (void)state;
    context w;
    open_context(&w);
    get(&w);
    pass(&w, 24 * 3600 * 1000);
    assert_false(w.is_closed);
    reply(&w, "late");
    pass(&w, 74000);
    assert_false(w.is_closed);
    pass(&w, 76000); // idle
    assert_true(w.is_closed);
    close_context(&w);
}

// ---- tunnels

typedef struct tunnel {
    context w;
    kin_text_buffer got;
    int n_closed;
} tunnel;

static void on_bytes(void *user, const uint8_t *bytes, size_t n) {
    kin_text_put(&((tunnel *)user)->got, (const char *)bytes, n);
}

static void count_closed(void *user) {
    ((tunnel *)user)->n_closed++;
}

static void upgrade_it(void *user, kin_http_exchange *x) {
    tunnel *t = user; // the context is its first member
    t->w.open = x;
    kin_http_upgrade(x, "echo", &(kin_http_tunnel){.bytes = on_bytes, .closed = count_closed, .user = t});
}

static void open_tunnel(tunnel *t, const char *behind) {
    memset(t, 0, sizeof *t);
    open_context(&t->w);
    t->w.service.callbacks.request = upgrade_it;
    feed(&t->w, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r");
    char end[100] = "\n";
    feed(&t->w, strncat(end, behind, sizeof end - 2));
    assert_non_null(strstr(t->w.sent.at, "HTTP/1.1 101 Switching Protocols\r\n"));
    assert_non_null(strstr(t->w.sent.at, "Upgrade: echo\r\n"));
}
#define open_tunnel(...) FROM_TEST(open_tunnel(__VA_ARGS__))

static void close_tunnel(tunnel *t) {
    close_context(&t->w);
    kin_text_fini(&t->got);
    assert_int_equal(t->n_closed, 1);
    assert_int_equal(t->w.n_gone, 0);
}
#define close_tunnel(...) FROM_TEST(close_tunnel(__VA_ARGS__))

static void after_an_upgrade_all_bytes_are_the_tunnels(void **state) {
    (void)state;
    tunnel t;
    open_tunnel(&t, "GET / HTTP/1.1\r\n");
    feed(&t.w, "\r\nmore");
    assert_string_equal(t.got.at, "GET / HTTP/1.1\r\n\r\nmore");
    size_t n = t.w.sent.len;
    kin_http_tunnel_send(t.w.open, "answer", 6);
    assert_int_equal(t.w.sent.len, n + 6);
    assert_memory_equal(t.w.sent.at + n, "answer", 6);
    pass(&t.w, 3600000); // a tunnel may be silent for any time
    assert_false(t.w.is_closed);
    assert_int_equal(t.n_closed, 0);
    close_tunnel(&t);
}

static void a_tunnel_ends_with_its_client_or_when_it_is_closed(void **state) {
    (void)state;
    for (int is_client = 0; is_client < 2; is_client++) {
        tunnel t;
        open_tunnel(&t, "");
        if (is_client)
            kin_http_connection_eof(t.w.c);
        else
            kin_http_tunnel_close(t.w.open);
        assert_true(t.w.is_closed);
        feed(&t.w, "too late");
        assert_int_equal(t.got.len, 0);
        close_tunnel(&t);
    }
}

static void a_tunnel_whose_client_takes_nothing_is_closed(void **state) {
    (void)state;
    tunnel t;
    open_tunnel(&t, "");
    t.w.takes_nothing = true;
    kin_http_tunnel_send(t.w.open, "answer", 6);
    assert_int_equal(kin_http_tunnel_pending(t.w.open), 6);
    pass(&t.w, t.w.service.limits.stall_ms + 1);
    assert_true(t.w.is_closed);
    close_tunnel(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_client_can_read_why_and_has_two_seconds_to_close),
        cmocka_unit_test(the_owner_says_how_a_refusal_of_a_path_looks),
        cmocka_unit_test(a_slow_client_gets_the_end_of_the_last_response),
        cmocka_unit_test(the_next_request_waits_until_the_response_is_out),
        cmocka_unit_test(gone_is_not_said_inside_of_a_write),
        cmocka_unit_test(a_client_that_sends_nothing_more_is_answered),
        cmocka_unit_test(what_http_1_0_does_not_know_is_not_sent_to_it),
        cmocka_unit_test(the_end_of_bytes_within_a_request_ends_it),
        cmocka_unit_test(an_exchange_that_ends_after_its_client_went_is_not_gone_too),
        cmocka_unit_test(a_large_body_has_more_time_than_a_header),
        cmocka_unit_test(waiting_for_the_owner_takes_any_time),
        cmocka_unit_test(after_an_upgrade_all_bytes_are_the_tunnels),
        cmocka_unit_test(a_tunnel_ends_with_its_client_or_when_it_is_closed),
        cmocka_unit_test(a_tunnel_whose_client_takes_nothing_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
