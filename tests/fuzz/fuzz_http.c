// Feeds any bytes in pieces, as a client would send them, to a connection whose socket is in memory. Every request that reaches
// the owner is answered once or reported gone once, nothing is sent after the end, and no memory remains counted.
//
// The first byte chooses the size of the pieces, the second when the owner answers and whether the client reads.
#include <string.h>

#include "base/err.h"
#include "serve/http/http_connection.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

typedef struct context {
    kin_http_exchange *open;
    int n_requests, n_answered, n_gone;
    bool answers_at_once, reads, refuses, is_finished, is_closed, is_paused;
    size_t n_pending, n_sent;
} context;

// ---- the socket

static void send_bytes(void *socket, const void *bytes, size_t n) {
    context *w = socket;
    kin_assert(!w->is_closed && !w->is_finished && n > 0);
    if (w->n_sent == 0) kin_assert(n >= 9 && memcmp(bytes, "HTTP/1.1 ", 9) == 0);
    w->n_sent += n;
    if (!w->reads) w->n_pending += n;
}

static size_t count_pending(const void *socket, uint64_t *n_out) {
    const context *w = socket;
    *n_out = w->n_sent - w->n_pending;
    return w->n_pending;
}

static void set_reading(void *socket, bool on) {
    ((context *)socket)->is_paused = !on;
}

static void finish(void *socket) {
    context *w = socket;
    kin_assert(!w->is_finished);
    w->is_finished = true;
}

static void close_socket(void *socket) {
    context *w = socket;
    kin_assert(!w->is_closed);
    w->is_closed = true;
}

static const kin_http_socket_ops ops = {send_bytes, count_pending, set_reading, finish, close_socket};

// ---- the owner

static void check_string(kin_str s) {
    kin_assert(!s.at || strlen(s.at) == s.len);
}

static void answer(context *w) {
    kin_http_exchange *x = w->open;
    if (!x) return;
    w->open = NULL;
    w->n_answered++;
    kin_str body = kin_http_body(x);
    if (body.len % 2 == 0) {
        kin_http_reply(x, 200, "text/plain", body.at, body.len);
        return;
    }
    kin_http_begin(x, 200, NULL);
    kin_http_write(x, body.at, body.len);
    kin_http_end(x);
}

static void on_head(void *user, kin_http_exchange *x) {
    context *w = user;
    check_string(kin_http_path(x));
    check_string(kin_http_query(x, "q"));
    check_string(kin_http_header(x, "host"));
    if (w->refuses && kin_http_header(x, "authorization").at) kin_http_reply_error(x, 401, "Invalid API Key");
}

static void on_request(void *user, kin_http_exchange *x) {
    context *w = user;
    kin_assert(!w->open && !w->is_closed && !w->is_finished);
    w->n_requests++;
    w->open = x;
    if (w->answers_at_once) answer(w);
}

static void on_gone(void *user, kin_http_exchange *x) {
    context *w = user;
    kin_assert(w->open == x);
    w->open = NULL;
    w->n_gone++;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 2) return 0;
    size_t step = bytes[0] ? bytes[0] : SIZE_MAX;
    uint8_t how = bytes[1];
    context w = {.answers_at_once = how & 1, .reads = how & 2, .refuses = how & 4};
    kin_http_service service = {
        .limits =
            {.max_header = 2000, .max_body = 3000, .header_ms = 1000, .idle_ms = 1000, .stall_ms = 3000, .max_pending = 1000},
        .memory = {.max = 6000},
        .prefix = how & 8 ? "/api" : NULL,
        .callbacks = {.head = on_head, .request = on_request, .gone = on_gone},
        .user = &w};
    kin_http_connection *c;
    kin_rng_seed(&service.rng, 1);
    if (kin_http_connection_open(&c, &service, &ops, &w, NULL) != 0) return 0;
    kin_time now = 0;
    for (size_t at = 2; at < size && !w.is_closed; at += step) {
        size_t n = step < size - at ? step : size - at;
        if (!w.is_paused) kin_http_connection_feed(c, (const char *)bytes + at, n);
        kin_http_connection_tick(c, now += (kin_time)(how >> 4) * 10000000);
        if (at % 3 == 0) answer(&w);
        if (w.n_pending > 0 && at % 5 == 0) {
            w.n_pending = 0;
            kin_http_connection_sent(c);
        }
        if (step > SIZE_MAX / 2) break;
    }
    if (how & 2) kin_http_connection_eof(c);
    answer(&w);
    kin_http_connection_free(c);
    kin_assert(w.n_requests == w.n_answered + w.n_gone && service.memory.used == 0);
    return 0;
}
