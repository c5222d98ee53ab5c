// A test environment for links: a loop with a listener, link ends that record what they receive, and strangers with a bare
// socket.
//
// Only for tests of links; all functions assert through cmocka. One thread.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "net/link.h"
#include "net/listener.h"
#include "testkit/pair_transport.h"
#include "tests/place.h"

enum {
    TIMEOUT_MS = 60000, // limit for events that should come soon
    MAX_ENDS = 80,
    HANDSHAKE_MS = 20000, // more than a handshake takes on a busy machine
    HASTY_MS = 400,       // for handshakes that must time out
    CLOSE_MS = 10000,     // limit for closing a context
    SILENCE_MS = 400
};

static const uint8_t good_key[KIN_TLS_KEY_BYTES] = {1, 2, 3};
static const uint8_t other_key[KIN_TLS_KEY_BYTES] = {1, 2, 4};

// ---- the log

static char log_text[16384];  // lines
static char ends_text[16384]; // why links ended, one per line, printed when a test fails

static inline void keep_line(void *user, kin_log_level level, const char *line) {
    (void)user;
    if (level == KIN_LOG_DEBUG) return; // not shown by default
    size_t n = strlen(log_text);
    snprintf(log_text + n, sizeof log_text - n, "%s\n", line);
}

static inline int n_lines(const char *words) {
    int n = 0;
    for (const char *at = log_text; (at = strstr(at, words)); at++) n++;
    return n;
}

// ---- the environment: one loop, a listener, and the ends of links

typedef struct context context;

typedef struct end {
    context *w;
    kin_link *link; // NULL: closed
    bool is_open, is_drained;
    int n_frames;
    kin_frame last;
    uint8_t *bytes; // [n_bytes] of the last frame
    size_t n_bytes;
    uint64_t sum; // hash over all payloads, in order
    char reason[512];
    void (*on_frame)(struct end *e);
} end;

struct context {
    uv_loop_t loop;
    uv_timer_t timer;
    kin_tls_ctx *tls, *other_tls;
    kin_pair *pair; // NULL: links go over TCP
    kin_listener *listener;
    uint16_t port;
    kin_listener_options o;
    end ends[MAX_ENDS]; // accepted links
    int n_ends;
    uint32_t frame_max; // frame limit of accepted links; 0: the default
};

static inline void on_opened(void *user, kin_link *link) {
    end *e = user;
    assert_ptr_equal(e->link, link);
    e->is_open = true;
}

static inline void on_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    end *e = user;
    assert_ptr_equal(e->link, link);
    e->n_frames++;
    e->last = *frame;
    free(e->bytes);
    e->n_bytes = frame->length;
    e->bytes = malloc(e->n_bytes + 1);
    if (e->n_bytes) memcpy(e->bytes, payload, e->n_bytes);
    e->sum = e->sum * 31 + kin_hash64(e->bytes, e->n_bytes, frame->epoch);
    if (e->on_frame) e->on_frame(e);
}

static inline void on_drained(void *user, kin_link *link) {
    (void)link;
    ((end *)user)->is_drained = true;
}

static inline void on_closed(void *user, kin_link *link, const char *reason) {
    end *e = user;
    assert_ptr_equal(e->link, link);
    e->link = NULL;
    e->is_open = false;
    snprintf(e->reason, sizeof e->reason, "%s", reason);
    size_t n = strlen(ends_text);
    snprintf(ends_text + n, sizeof ends_text - n, "%s\n", reason);
}

static const kin_link_callbacks callbacks = {on_opened, on_frame, on_drained, on_closed};

static inline void on_accepted(void *user, kin_link *link) {
    context *w = user;
    assert_true(w->n_ends < MAX_ENDS);
    end *e = &w->ends[w->n_ends++];
    e->w = w;
    e->link = link;
    e->is_open = true;
    kin_link_accept(link, &callbacks, e);
    if (w->frame_max) kin_link_set_frame_max(link, w->frame_max);
}

static inline int open_context_with(void **state, bool is_pair, uint32_t handshake_ms) {
    context *w = calloc(1, sizeof *w);
    kin_err err;
    log_text[0] = ends_text[0] = 0;
    kin_log_set_sink(keep_line, NULL);
    uv_loop_init(&w->loop);
    uv_timer_init(&w->loop, &w->timer);
    assert_int_equal(kin_tls_ctx_open(&w->tls, good_key, &err), 0);
    assert_int_equal(kin_tls_ctx_open(&w->other_tls, other_key, &err), 0);
    w->o = kin_listener_options_default(w->tls);
    w->o.link.handshake_ms = handshake_ms;
    w->o.link.silence_ms = SILENCE_MS;
    w->o.link.ping_ms = 50;
    if (is_pair) {
        assert_int_equal(kin_pair_open(&w->pair, &w->loop, &err), 0);
        w->o.link.transport = kin_pair_transport(w->pair);
    }
    assert_int_equal(kin_listener_open(&w->listener, &w->loop, NULL, 0, &w->o, on_accepted, w, &err), 0);
    w->port = kin_listener_port(w->listener);
    assert_int_not_equal(w->port, 0);
    *state = w;
    return 0;
}
#define open_context_with(...) FROM_TEST(open_context_with(__VA_ARGS__))

// Over TCP and TLS, on loopback.
static inline int open_context(void **state) {
    return open_context_with(state, false, HANDSHAKE_MS);
}

// With a handshake timeout so short that strangers never complete the handshake.
static inline int open_hasty_context(void **state) {
    return open_context_with(state, false, HASTY_MS);
}

// Without sockets, for tests that do not depend on them.
static inline int open_pair_context(void **state) {
    return open_context_with(state, true, HANDSHAKE_MS);
}

// Runs the loop until nothing is open. Returns false if a test has left something open, as a failed one does.
static inline bool run_to_end(context *w) {
    for (kin_time begun = kin_clock_now(); uv_run(&w->loop, UV_RUN_NOWAIT) != 0; usleep(1000))
        if (kin_clock_ms(begun, kin_clock_now()) > CLOSE_MS) return false;
    return true;
}

static inline int close_context(void **state) {
    context *w = *state;
    for (int i = 0; i < w->n_ends; i++) {
        kin_link_close(w->ends[i].link, NULL);
        free(w->ends[i].bytes);
    }
    kin_listener_close(w->listener);
    uv_close((uv_handle_t *)&w->timer, NULL);
    if (!run_to_end(w)) {
        print_error("links were left open; their memory is leaked\n");
        return -1;
    }
    kin_pair_close(w->pair);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    kin_tls_ctx_close(w->tls);
    kin_tls_ctx_close(w->other_tls);
    free(w);
    return 0;
}

static inline void on_timer(uv_timer_t *timer) {
    (void)timer;
}

static inline void turn(context *w) {
    uv_timer_start(&w->timer, on_timer, 5, 0);
    uv_run(&w->loop, UV_RUN_ONCE);
}

#define RUN_UNTIL(w, condition)                                                                                                  \
    do {                                                                                                                         \
        kin_time begun_ = kin_clock_now();                                                                                       \
        while (!(condition)) {                                                                                                   \
            turn(w);                                                                                                             \
            if (kin_clock_ms(begun_, kin_clock_now()) > TIMEOUT_MS)                                                              \
                fail_msg("waited in vain for: %s; log:\n%sends:\n%s", #condition, log_text, ends_text);                          \
        }                                                                                                                        \
    } while (0)

static inline void run_for(context *w, double ms) {
    kin_time begun = kin_clock_now();
    while (kin_clock_ms(begun, kin_clock_now()) < ms) turn(w);
}

static inline void connect_end(context *w, end *e, const char *address, const kin_link_options *o) {
    kin_err err;
    *e = (end){.w = w};
    assert_int_equal(kin_link_connect(&e->link, &w->loop, address, w->port, o, &callbacks, e, &err), 0);
}
#define connect_end(...) FROM_TEST(connect_end(__VA_ARGS__))

// Connects `client` and returns the server's end of the same link.
static inline end *connect_pair(context *w, end *client) {
    int n = w->n_ends;
    connect_end(w, client, "127.0.0.1", &w->o.link);
    RUN_UNTIL(w, client->is_open && w->n_ends == n + 1);
    return &w->ends[n];
}
#define connect_pair(...) FROM_TEST(connect_pair(__VA_ARGS__))

static inline void close_end(context *w, end *e) {
    kin_link_close(e->link, NULL);
    e->link = NULL;
    free(e->bytes);
    e->bytes = NULL;
    turn(w);
}

static inline kin_link_sent send_bytes(end *e, kin_frame_type type, const void *bytes, size_t n) {
    return kin_link_send(e->link, type, 7, 1, &(kin_frame_part){bytes, n});
}

static inline void expect_frame(context *w, end *from, end *to, const char *text) {
    int n = to->n_frames;
    send_bytes(from, KIN_FRAME_STATUS, text, strlen(text));
    RUN_UNTIL(w, to->n_frames == n + 1);
    assert_int_equal(to->n_bytes, strlen(text));
    assert_memory_equal(to->bytes, text, to->n_bytes);
}
#define expect_frame(...) FROM_TEST(expect_frame(__VA_ARGS__))

// ---- a peer with a bare socket, with or without the key

typedef struct stranger {
    int fd;
    kin_tls *tls;
    bool has_end; // the other side closed the connection
    size_t n_read;
} stranger;

static inline stranger connect_stranger(context *w) {
    stranger s = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(w->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(s.fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(fcntl(s.fd, F_SETFL, O_NONBLOCK), 0);
    return s;
}
#define connect_stranger(...) FROM_TEST(connect_stranger(__VA_ARGS__))

static inline void say(stranger *s, const void *bytes, size_t n) {
    if (send(s->fd, bytes, n, MSG_NOSIGNAL) < 0 && errno != EAGAIN) s->has_end = true;
}

static inline void send_output(stranger *s) {
    size_t n;
    const uint8_t *bytes = kin_tls_output(s->tls, &n);
    if (n > 0) say(s, bytes, n);
    kin_tls_output_done(s->tls);
}

static inline void hear(stranger *s) {
    uint8_t bytes[65536], plain[4096];
    ssize_t n = recv(s->fd, bytes, sizeof bytes, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) s->has_end = true;
    if (n <= 0) return;
    s->n_read += (size_t)n;
    if (!s->tls) return;
    kin_err err;
    kin_tls_feed(s->tls, bytes, (size_t)n, &err);
    for (size_t k = 1; k > 0;) {
        if (kin_tls_read(s->tls, plain, sizeof plain, &k, &err) != 0) return;
    }
}

// Connects with the key and completes the handshake. The stranger can then send arbitrary bytes.
static inline stranger connect_insider(context *w, end **other) {
    kin_err err;
    int n = w->n_ends;
    stranger s = connect_stranger(w);
    assert_int_equal(kin_tls_open(&s.tls, w->tls, true, &err), 0);
    while (w->n_ends == n) {
        send_output(&s);
        turn(w);
        hear(&s);
    }
    send_output(&s);
    *other = &w->ends[n];
    return s;
}
#define connect_insider(...) FROM_TEST(connect_insider(__VA_ARGS__))

static inline void send_encrypted(stranger *s, const void *bytes, size_t n) {
    kin_err err;
    assert_int_equal(kin_tls_write(s->tls, bytes, n, &err), 0);
    send_output(s);
}
#define send_encrypted(...) FROM_TEST(send_encrypted(__VA_ARGS__))

static inline void leave(stranger *s) {
    kin_tls_close(s->tls);
    close(s->fd);
}
