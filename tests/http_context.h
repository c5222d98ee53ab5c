// An HTTP server, its owner and clients, all in one loop of the test.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/http/access.h"
#include "serve/http/http.h"
#include "tests/place.h"

enum { OPEN_MOST = 64, HANG_S = 240 };

typedef struct context {
    uv_loop_t loop;
    kin_http_options o;
    kin_http *http;
    kin_http_exchange *open[OPEN_MOST]; // requests not answered yet
    int n_open, n_requests, n_gone;
    bool refuses_heads;
    const kin_access *access; // NULL: no access control
} context;

typedef struct client {
    context *w;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    };
    uv_connect_t connect;
    char *got; // [n_got], and a NUL
    size_t n_got;
    bool is_connected, has_ended;
} client;

// Runs the loop until the condition holds. SIGALRM ends the test after HANG_S seconds.
#define run_until(w, condition)                                                                                                  \
    do {                                                                                                                         \
        alarm(HANG_S);                                                                                                           \
        while (!(condition)) uv_run(&(w)->loop, UV_RUN_ONCE);                                                                    \
        alarm(0);                                                                                                                \
    } while (0)

// ---- the owner

static inline bool is(kin_str s, const char *text) {
    return s.at && s.len == strlen(text) && memcmp(s.at, text, s.len) == 0;
}

static inline void reply_text(kin_http_exchange *x, const char *text) {
    kin_http_reply(x, 200, "text/plain", text, strlen(text));
}

static inline void on_request(void *user, kin_http_exchange *x) {
    context *w = user;
    kin_str path = kin_http_path(x), body = kin_http_body(x), q = kin_http_query(x, "q");
    w->n_requests++;
    if (w->access && kin_access_preflight(x)) return;
    if (is(path, "/echo")) {
        kin_http_reply(x, 200, NULL, body.at, body.len);
    } else if (is(path, "/query")) {
        char text[256];
        snprintf(text, sizeof text, "[%.*s] %.*s", (int)q.len, q.at ? q.at : "", (int)kin_http_method(x).len,
                 kin_http_method(x).at);
        reply_text(x, text);
    } else if (is(path, "/later") || is(path, "/stream")) {
        assert_true(w->n_open < OPEN_MOST);
        w->open[w->n_open++] = x;
        kin_http_set_data(x, w);
        if (is(path, "/stream")) kin_http_begin(x, 200, "text/event-stream");
    } else if (is(path, "/load") && !kin_access_may_load(w->access, x)) {
        kin_http_reply_error(x, 403, "");
    } else {
        reply_text(x, "hello");
    }
}

static inline void on_head(void *user, kin_http_exchange *x) {
    context *w = user;
    if (w->access && !kin_access_admit(w->access, x)) return;
    if (w->refuses_heads) kin_http_reply_error(x, 401, "Invalid API Key");
}

static inline void on_gone(void *user, kin_http_exchange *x) {
    context *w = user;
    assert_ptr_equal(kin_http_data(x), w);
    for (int i = 0; i < w->n_open; i++)
        if (w->open[i] == x) w->open[i] = w->open[--w->n_open];
    w->n_gone++;
}

static inline kin_http_exchange *pop_exchange(context *w) {
    assert_true(w->n_open > 0);
    return w->open[--w->n_open];
}
#define pop_exchange(...) FROM_TEST(pop_exchange(__VA_ARGS__))

static const kin_http_callbacks owner = {.head = on_head, .request = on_request, .gone = on_gone};

static inline void open_context(context *w) {
    *w = (context){.o = kin_http_options_default()};
    w->o.host = "127.0.0.1";
    assert_int_equal(uv_loop_init(&w->loop), 0);
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

static inline void serve(context *w) {
    kin_err err = {""};
    if (kin_http_open(&w->http, &w->loop, &w->o, &owner, w, &err) != 0) fail_msg("%s", err.text);
}
#define serve(...) FROM_TEST(serve(__VA_ARGS__))

static inline void close_context(context *w) {
    kin_http_close(w->http);
    alarm(HANG_S);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    alarm(0);
    assert_int_equal(w->n_open, 0);
    assert_int_equal(uv_loop_close(&w->loop), 0);
}
#define close_context(...) FROM_TEST(close_context(__VA_ARGS__))

// ---- clients

static inline void on_client_alloc(uv_handle_t *handle, size_t n, uv_buf_t *buf) {
    client *c = handle->data;
    c->got = realloc(c->got, c->n_got + n + 1);
    assert_non_null(c->got);
    *buf = uv_buf_init(c->got + c->n_got, (unsigned)n);
}

static inline void on_client_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    client *c = stream->data;
    (void)buf;
    if (n < 0) c->has_ended = true;
    if (n > 0) c->n_got += (size_t)n;
    c->got[c->n_got] = '\0';
}

static inline void on_client_connected(uv_connect_t *connect, int status) {
    client *c = connect->data;
    assert_int_equal(status, 0);
    c->is_connected = true;
    uv_read_start(&c->stream, on_client_alloc, on_client_read);
}

static inline client *connect_client(context *w) {
    client *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->w = w;
    c->got = calloc(1, 1);
    struct sockaddr_in at;
    uv_ip4_addr("127.0.0.1", kin_http_port(w->http), &at);
    if (kin_http_port(w->http) > 0)
        uv_tcp_init(&w->loop, &c->tcp);
    else
        uv_pipe_init(&w->loop, &c->pipe, 0);
    c->handle.data = c->connect.data = c;
    if (kin_http_port(w->http) > 0)
        assert_int_equal(uv_tcp_connect(&c->connect, &c->tcp, (const struct sockaddr *)&at, on_client_connected), 0);
    else
        uv_pipe_connect(&c->connect, &c->pipe, w->o.host, on_client_connected);
    run_until(w, c->is_connected);
    return c;
}
#define connect_client(...) FROM_TEST(connect_client(__VA_ARGS__))

static inline void on_client_closed(uv_handle_t *handle) {
    client *c = handle->data;
    free(c->got);
    free(c);
}

static inline void close_client(client *c) {
    uv_close(&c->handle, on_client_closed);
}

typedef struct client_write {
    uv_write_t write;
    char bytes[];
} client_write;

static inline void on_client_written(uv_write_t *write, int status) {
    (void)status;
    free(write);
}

static inline void send_bytes(client *c, const char *bytes, size_t n) {
    client_write *w = malloc(sizeof *w + n);
    assert_non_null(w);
    memcpy(w->bytes, bytes, n);
    uv_buf_t buf = uv_buf_init(w->bytes, (unsigned)n);
    assert_int_equal(uv_write(&w->write, &c->stream, &buf, 1, on_client_written), 0);
}
#define send_bytes(...) FROM_TEST(send_bytes(__VA_ARGS__))

static inline void send_text(client *c, const char *text) {
    send_bytes(c, text, strlen(text));
}
#define send_text(...) FROM_TEST(send_text(__VA_ARGS__))

// Sends "GET PATH" with the headers that every request needs.
static inline void get(client *c, const char *path) {
    char text[512];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    send_text(c, text);
}
#define get(...) FROM_TEST(get(__VA_ARGS__))

static inline void wait_for(client *c, const char *text) {
    run_until(c->w, strstr(c->got, text) || c->has_ended);
    if (!strstr(c->got, text)) fail_msg("'%s' did not come, but: %s", text, c->got);
}
#define wait_for(...) FROM_TEST(wait_for(__VA_ARGS__))

static inline void wait_for_end(client *c) {
    run_until(c->w, c->has_ended);
}

static inline void expect_in(const client *c, const char *text) {
    if (!strstr(c->got, text)) fail_msg("no '%s' in: %s", text, c->got);
}
#define expect_in(...) FROM_TEST(expect_in(__VA_ARGS__))

// Discards the bytes received so far.
static inline void forget(client *c) {
    c->n_got = 0;
    c->got[0] = '\0';
}

static inline int count(const char *in, const char *text) {
    int n = 0;
    for (const char *at = in; (at = strstr(at, text)); at += strlen(text)) n++;
    return n;
}
