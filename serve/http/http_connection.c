#include "serve/http/http_connection.h"

#include <stdlib.h>

#include "base/hex.h"
#include "serve/http/http_exchange_impl.h"

enum {
    INPUT_KEPT = 64 << 10, // bytes; beyond, nothing is read until the response is out
    BYTES_PER_MS = 16,     // each 16 bytes received extend the time limit by one millisecond
    FINISHING_MS = 2000,   // time for the client to close, too
    MAX_PROBES = 3         // some clients accept at most five interim responses
};

typedef enum phase {
    RECEIVING, // a request; possibly no byte of it has arrived
    ANSWERING, // the exchange belongs to its owner
    SENDING,   // the rest of a response; the next request follows
    TUNNEL,    // another protocol has taken over: all bytes belong to it
    FINISHING  // the rest of the last response; further input is dropped until the client closes
} phase;

struct kin_http_connection {
    kin_http_exchange x; // first member: it is cast back to kin_http_connection
    kin_http_service *service;
    const kin_http_socket_ops *ops;
    void *socket;
    phase phase;
    bool is_closing;    // the socket is closing; an open exchange gets `gone` when the connection is freed
    bool is_used;       // there has been a request
    bool is_parsing;    // inside parse_input
    bool is_paused;     // nothing is read
    bool has_eof;       // the client's
    bool has_eof_since; // false: the next tick sets `eof_since`
    kin_time eof_since;
    int n_probes;          // sent since then
    bool has_since;        // false: the next tick sets `since`
    kin_time since;        // start of the phase, or of its request
    kin_time out_since;    // the last time when bytes were sent or nothing was pending
    uint64_t n_out;        // at that time
    size_t n_unsent;       // this connection's share of the service's n_unsent
    kin_text_buffer input; // unparsed from input_at on; counted in the service's memory
    size_t input_at;
};

static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

// ---- phases

static void enter(kin_http_connection *c, phase phase) {
    c->phase = phase;
    c->has_since = false;
}

static size_t pending(const kin_http_connection *c) {
    uint64_t n_out;
    return c->ops->pending(c->socket, &n_out);
}

static void count_unsent(kin_http_connection *c, size_t n) {
    c->service->n_unsent += n - c->n_unsent;
    c->n_unsent = n;
}

static void set_reading(kin_http_connection *c, bool on) {
    if (c->is_paused != on) return;
    c->is_paused = !on;
    c->ops->read(c->socket, on);
}

static void drop_input(kin_http_connection *c) {
    c->service->memory.used -= c->input.len;
    kin_text_fini(&c->input);
    c->input_at = 0;
}

static void close_socket(kin_http_connection *c) {
    if (c->is_closing) return;
    c->is_closing = true;
    c->ops->close(c->socket);
}

static void finish(kin_http_connection *c) {
    enter(c, FINISHING);
    drop_input(c);
    set_reading(c, true);
    c->ops->finish(c->socket);
    if (c->has_eof && pending(c) == 0) close_socket(c);
}

// ---- requests

static bool begin_request(kin_http_connection *c) {
    if (c->x.request) return true;
    c->x.request = kin_http_request_new(c->service->prefix, &c->service->limits, &c->service->memory);
    c->has_since = false;
    uint64_t random[2] = {kin_rng_u64(&c->service->rng), kin_rng_u64(&c->service->rng)};
    *kin_hex_put(c->x.id, (const uint8_t *)random, sizeof random) = '\0';
    if (!c->x.request) close_socket(c);
    return c->x.request != NULL;
}

void kin_http_connection_refuse(kin_http_connection *c, int status, const char *message) {
    if (c->is_closing || c->phase != RECEIVING || !begin_request(c)) return;
    c->x.closes = true;
    if (status == 503) kin_http_add_header(&c->x, "Retry-After", "1");
    kin_http_reply_error(&c->x, status, message);
}

static void handle_head(kin_http_connection *c, bool has_more) {
    kin_http_service *s = c->service;
    c->x.closes = true; // in case it is answered now: the body is not read
    if (s->callbacks.head) s->callbacks.head(s->user, &c->x);
    kin_assert(c->x.answer == KIN_HTTP_UNANSWERED);
    if (c->is_closing || c->phase != RECEIVING) return;
    if (!has_more && kin_http_request_expects_continue(c->x.request)) c->ops->send(c->socket, go_on, sizeof go_on - 1);
}

static void handle_whole(kin_http_connection *c) {
    kin_http_service *s = c->service;
    c->is_used = true;
    c->x.closes = s->is_draining || !kin_http_request_keeps_alive(c->x.request);
    enter(c, ANSWERING);
    s->callbacks.request(s->user, &c->x);
}

// Returns the number of bytes taken; stops after a request that is not answered yet.
static size_t parse_input(kin_http_connection *c, const char *bytes, size_t n) {
    size_t at = 0, n_consumed;
    bool goes_on = n > 0; // after a header, continue even without another byte
    c->is_parsing = true;
    while (goes_on && c->phase == RECEIVING && !c->is_closing && begin_request(c)) {
        kin_http_progress progress = kin_http_request_feed(c->x.request, bytes + at, n - at, &n_consumed);
        kin_http_refusal refusal = kin_http_request_refusal(c->x.request);
        at += n_consumed;
        goes_on = at < n || progress == KIN_HTTP_HEAD;
        if (progress == KIN_HTTP_HEAD) handle_head(c, at < n);
        if (progress == KIN_HTTP_WHOLE) handle_whole(c);
        if (progress == KIN_HTTP_REFUSED) kin_http_connection_refuse(c, refusal.status, refusal.message);
    }
    c->is_parsing = false;
    return at;
}

static void give_tunnel(kin_http_connection *c, const char *bytes, size_t n) {
    if (n > 0 && !c->is_closing) c->x.tunnel.bytes(c->x.tunnel.user, (const uint8_t *)bytes, n);
}

static void keep_input(kin_http_connection *c, const char *bytes, size_t n) {
    kin_http_memory *memory = &c->service->memory;
    if (n == 0 || c->is_closing || c->phase == FINISHING) return;
    if (n <= memory->max - memory->used) kin_text_put(&c->input, bytes, n);
    if (n > memory->max - memory->used || c->input.failed) {
        close_socket(c);
        return;
    }
    memory->used += n;
    if (c->input.len - c->input_at >= INPUT_KEPT) set_reading(c, false);
}

static void parse_kept(kin_http_connection *c) {
    if (c->input.len == 0) return;
    size_t n_consumed = parse_input(c, c->input.at + c->input_at, c->input.len - c->input_at);
    c->input_at += n_consumed;
    if (c->phase == FINISHING) return;
    if (c->phase == TUNNEL) {
        give_tunnel(c, c->input.at + c->input_at, c->input.len - c->input_at);
        c->input_at = c->input.len;
    }
    if (c->input_at == c->input.len) drop_input(c);
    if (c->input.len - c->input_at < INPUT_KEPT) set_reading(c, true);
}

void kin_http_connection_feed(kin_http_connection *c, const char *bytes, size_t n) {
    if (c->is_closing) return;
    size_t n_consumed = c->phase == RECEIVING ? parse_input(c, bytes, n) : 0;
    if (c->phase == TUNNEL)
        give_tunnel(c, bytes + n_consumed, n - n_consumed);
    else
        keep_input(c, bytes + n_consumed, n - n_consumed);
}

// ---- responses

static void next_request(kin_http_connection *c) {
    enter(c, RECEIVING);
    if (!c->is_parsing && !c->is_closing) parse_kept(c);
}

static void on_send(kin_http_exchange *x, const kin_text_buffer *bytes) {
    kin_http_connection *c = (kin_http_connection *)x;
    if (c->is_closing) return;
    if (bytes->failed || (x->answer == KIN_HTTP_STREAMING && pending(c) > c->service->limits.max_pending))
        close_socket(c);
    else
        c->ops->send(c->socket, bytes->at, bytes->len);
}

static void on_ended(kin_http_exchange *x) {
    kin_http_connection *c = (kin_http_connection *)x;
    bool closes = x->closes;
    kin_http_exchange_reset(x);
    enter(c, SENDING);
    if (c->is_closing) return;
    count_unsent(c, pending(c));
    if (closes)
        finish(c);
    else if (pending(c) == 0)
        next_request(c);
}

static void on_upgraded(kin_http_exchange *x) {
    kin_http_connection *c = (kin_http_connection *)x;
    kin_http_tunnel tunnel = x->tunnel;
    kin_assert(c->phase == ANSWERING);
    kin_http_exchange_reset(x);
    x->tunnel = tunnel;
    enter(c, TUNNEL);
}

static size_t on_pending(const kin_http_exchange *x) {
    return pending((const kin_http_connection *)x);
}

static size_t on_unsent(const kin_http_exchange *x) {
    return ((const kin_http_connection *)x)->service->n_unsent;
}

static void on_close(kin_http_exchange *x) {
    close_socket((kin_http_connection *)x);
}

void kin_http_connection_sent(kin_http_connection *c) {
    count_unsent(c, 0);
    if (c->is_closing) return;
    if (c->phase == SENDING) next_request(c);
    if (c->phase == FINISHING && c->has_eof) close_socket(c);
}

// Tests, before any byte of the response is sent, whether a client that has ended its sending side is still there.
static void probe(kin_http_connection *c) {
    bool may = c->phase == ANSWERING && c->x.answer == KIN_HTTP_UNANSWERED && !kin_http_request_is_1_0(c->x.request);
    if (!may || c->n_probes == MAX_PROBES) return;
    c->n_probes++;
    c->ops->send(c->socket, go_on, sizeof go_on - 1);
}

static void tick_eof(kin_http_connection *c, kin_time now) {
    static const int after_ms[MAX_PROBES] = {0, 200, 5000};
    if (!c->has_eof_since) c->eof_since = now;
    c->has_eof_since = true;
    if (c->n_probes < MAX_PROBES && kin_clock_ms(c->eof_since, now) >= after_ms[c->n_probes]) probe(c);
}

void kin_http_connection_eof(kin_http_connection *c) {
    bool is_first = !c->has_eof;
    c->has_eof = true;
    if (c->is_closing) return;
    if (c->phase == ANSWERING && c->x.answer == KIN_HTTP_UNANSWERED) {
        c->x.closes = true;
        if (is_first) probe(c);
    } else if (c->phase == SENDING)
        finish(c);
    else if (c->phase != FINISHING || pending(c) == 0)
        close_socket(c);
}

// ---- time

static void tick_receiving(kin_http_connection *c, double ms) {
    const kin_http_limits *limits = &c->service->limits;
    if (!c->x.request) {
        if (ms > (c->is_used ? limits->idle_ms : limits->header_ms)) close_socket(c);
        return;
    }
    if (ms > (double)limits->header_ms + (double)(kin_http_request_n_received(c->x.request) / BYTES_PER_MS))
        kin_http_connection_refuse(c, 408, "The request took too long to arrive.");
}

void kin_http_connection_tick(kin_http_connection *c, kin_time now) {
    uint64_t n_out;
    if (c->is_closing) return;
    size_t n = c->ops->pending(c->socket, &n_out);
    if (n == 0 || n_out != c->n_out) c->out_since = now;
    c->n_out = n_out;
    if (!c->has_since || (c->phase == FINISHING && n > 0)) c->since = now;
    c->has_since = true;
    if (c->has_eof) tick_eof(c, now);
    if (kin_clock_ms(c->out_since, now) > c->service->limits.stall_ms)
        close_socket(c);
    else if (c->phase == RECEIVING)
        tick_receiving(c, kin_clock_ms(c->since, now));
    else if (c->phase == FINISHING && kin_clock_ms(c->since, now) > FINISHING_MS)
        close_socket(c);
}

// ---- open and end

int kin_http_connection_open(kin_http_connection **out, kin_http_service *service, const kin_http_socket_ops *ops, void *socket,
                             kin_err *err) {
    kin_http_connection *c = *out = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "out of memory");
    c->service = service;
    c->ops = ops;
    c->socket = socket;
    c->x.send = on_send;
    c->x.ended = on_ended;
    c->x.upgraded = on_upgraded;
    c->x.pending = on_pending;
    c->x.unsent = on_unsent;
    c->x.close = on_close;
    c->x.refusal = service->callbacks.refusal;
    return 0;
}

static void report_gone(kin_http_connection *c) {
    bool is_tunnel = c->phase == TUNNEL;
    if (c->phase != ANSWERING && !is_tunnel) return;
    enter(c, SENDING);
    if (is_tunnel) {
        c->x.tunnel.closed(c->x.tunnel.user);
        return;
    }
    c->service->callbacks.gone(c->service->user, &c->x);
}

void kin_http_connection_end(kin_http_connection *c) {
    close_socket(c);
    report_gone(c);
}

void kin_http_connection_free(kin_http_connection *c) {
    if (!c) return;
    report_gone(c);
    kin_http_exchange_reset(&c->x);
    count_unsent(c, 0);
    drop_input(c);
    free(c);
}

void kin_http_connection_drain(kin_http_connection *c) {
    c->x.closes = true;
    if (c->is_closing) return;
    if (c->phase == SENDING || (c->phase == RECEIVING && !c->x.request && !c->is_parsing)) finish(c);
}

// ---- inspection

bool kin_http_connection_is_idle(const kin_http_connection *c, kin_time *since) {
    *since = c->has_since ? c->since : UINT64_MAX;
    return !c->is_closing && c->phase == RECEIVING && !c->x.request;
}

bool kin_http_connection_is_busy(const kin_http_connection *c) {
    return !c->is_closing && (c->phase == ANSWERING || pending(c) > 0);
}
