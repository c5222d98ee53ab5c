#include "testkit/pair_transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pure/proto/goodbye.h"

enum { MAX_STREAMS = 256, MAX_ACCEPTORS = 8, PORT_FIRST = 1000 };

#define ADDRESS "127.0.0.1"

typedef struct acceptor {
    kin_acceptor base; // must be first
    kin_pair *pair;
    uint16_t port;
    kin_acceptor_connected connected;
    void *user;
} acceptor;

typedef enum stream_phase { CONNECTING, ACCEPTED, OPEN, FINISHING, ENDED, CLOSED } stream_phase;

typedef struct stream {
    kin_byte_stream base; // must be first
    kin_pair *pair;
    struct stream *other; // NULL: not connected yet, or closed
    stream_phase phase;
    uint16_t port;        // port that it connects to
    const char *mistake;  // why it cannot connect; NULL: it can
    bool is_last_written; // the other end has written its last byte
    kin_byte_stream_callbacks callbacks;
    void *user;
    uint8_t *in;                // bytes written by the other end: [capacity]
    size_t n_in, n_read, n_cap; // n_in bytes, of which n_read have been read
    uint64_t n_came, n_written; // bytes in total
    char name[32];
} stream;

struct kin_pair {
    kin_transport table; // must be first
    uv_idle_t idle;      // runs while there is something to deliver
    acceptor *acceptors[MAX_ACCEPTORS];
    stream *streams[MAX_STREAMS];
    int n_streams;
    stream *arriving; // the stream that is being accepted
    uint16_t n_ports;
};

static bool is_live(const stream *s) {
    return s->phase < ENDED;
}

static void end_because(stream *s, const char *reason) {
    if (!is_live(s)) return;
    s->phase = ENDED;
    s->callbacks.ended(s->user, reason);
}

// ---- delivering

static acceptor *find_acceptor(const kin_pair *p, uint16_t port) {
    for (int i = 0; i < MAX_ACCEPTORS; i++) {
        if (p->acceptors[i] && p->acceptors[i]->port == port) return p->acceptors[i];
    }
    return NULL;
}

static void deliver_connection(stream *s) {
    acceptor *a = find_acceptor(s->pair, s->port);
    if (s->mistake || !a) {
        end_because(s, s->mistake ? s->mistake : "cannot connect: connection refused");
        return;
    }
    s->pair->arriving = s;
    a->connected(a->user, &a->base, NULL);
    s->pair->arriving = NULL;
    if (s->phase == CONNECTING) end_because(s, "the other side closed the connection during the handshake");
}

static void deliver_bytes(stream *s) {
    stream *other = s->other;
    if (s->phase == OPEN) s->callbacks.readable(s->user);
    s->n_came += s->n_in;
    s->n_in = s->n_read = 0;
    if (other && s->other == other && is_live(other)) other->callbacks.written(other->user);
}

// False if there was nothing to deliver.
static bool deliver(stream *s) {
    if (s->phase == CONNECTING) {
        deliver_connection(s);
    } else if (s->phase == ACCEPTED) {
        s->phase = OPEN;
        s->callbacks.opened(s->user);
    } else if (is_live(s) && s->n_in > 0) {
        deliver_bytes(s);
    } else if (is_live(s) && s->is_last_written) {
        end_because(s, KIN_GOODBYE_CLOSED);
    } else {
        return false;
    }
    return true;
}

static void free_closed(kin_pair *p) {
    int n = 0;
    for (int i = 0; i < p->n_streams; i++) {
        stream *s = p->streams[i];
        if (s->phase != CLOSED) {
            p->streams[n++] = s;
            continue;
        }
        free(s->in);
        free(s);
    }
    p->n_streams = n;
}

static void on_idle(uv_idle_t *idle) {
    kin_pair *p = idle->data;
    bool has_more = false;
    int n = p->n_streams; // streams made during this come next time
    for (int i = 0; i < n; i++) has_more = deliver(p->streams[i]) || has_more;
    free_closed(p);
    if (!has_more) uv_idle_stop(idle);
}

static void wake(kin_pair *p) {
    uv_idle_start(&p->idle, on_idle);
}

// ---- opening

static int add_stream(stream **out, kin_pair *p, uint16_t port, const kin_byte_stream_callbacks *callbacks, void *user,
                      kin_err *err) {
    stream *s = p->n_streams < MAX_STREAMS ? calloc(1, sizeof *s) : NULL;
    *out = s;
    if (!s) return kin_err_set(err, "too many streams in a test, or out of memory");
    s->base.transport = &p->table;
    s->pair = p;
    s->callbacks = *callbacks;
    s->user = user;
    s->port = port;
    snprintf(s->name, sizeof s->name, ADDRESS ":%u", port);
    p->streams[p->n_streams++] = s;
    wake(p);
    return 0;
}

static int pair_connect(kin_byte_stream **out, const kin_transport *self, uv_loop_t *loop, const char *address, uint16_t port,
                        const kin_byte_stream_options *o, const kin_byte_stream_callbacks *callbacks, void *user, kin_err *err) {
    stream *s;
    (void)loop, (void)o;
    *out = NULL;
    if (add_stream(&s, (kin_pair *)self, port, callbacks, user, err) != 0) return KIN_FAIL;
    if (strcmp(address, ADDRESS) != 0) s->mistake = "cannot resolve the name: it has no address";
    *out = &s->base;
    return 0;
}

static int pair_accept(kin_byte_stream **out, kin_acceptor *base, const kin_byte_stream_options *o,
                       const kin_byte_stream_callbacks *callbacks, void *user, kin_err *err) {
    kin_pair *p = ((acceptor *)base)->pair;
    stream *s, *other = p->arriving;
    (void)o;
    *out = NULL;
    if (!other) return kin_err_set(err, "cannot accept a connection: there is none");
    if (add_stream(&s, p, other->port, callbacks, user, err) != 0) return KIN_FAIL;
    p->arriving = NULL;
    s->other = other;
    other->other = s;
    s->phase = other->phase = ACCEPTED;
    *out = &s->base;
    return 0;
}

static int pair_listen(kin_acceptor **out, const kin_transport *self, uv_loop_t *loop, const char *address, uint16_t port,
                       kin_acceptor_connected connected, void *user, kin_err *err) {
    kin_pair *p = (kin_pair *)self;
    acceptor **place = NULL;
    (void)loop, (void)address;
    *out = NULL;
    for (int i = 0; i < MAX_ACCEPTORS && !place; i++) place = p->acceptors[i] ? NULL : &p->acceptors[i];
    acceptor *a = *place = place ? calloc(1, sizeof *a) : NULL;
    if (!a) return kin_err_set(err, "too many acceptors in a test, or out of memory");
    *a = (acceptor){{self}, p, port ? port : (uint16_t)(PORT_FIRST + p->n_ports++), connected, user};
    *out = &a->base;
    return 0;
}

static uint16_t pair_port(const kin_acceptor *base) {
    return ((const acceptor *)base)->port;
}

static void pair_unlisten(kin_acceptor *base) {
    kin_pair *p = ((acceptor *)base)->pair;
    for (int i = 0; i < MAX_ACCEPTORS; i++) {
        if ((kin_acceptor *)p->acceptors[i] == base) p->acceptors[i] = NULL;
    }
    free(base);
}

// ---- an open stream

static int stream_write(kin_byte_stream *base, const void *bytes, size_t n, kin_err *err) {
    stream *s = (stream *)base, *to = s->other;
    if (s->phase != OPEN) return kin_err_set(err, "the connection is closed");
    s->n_written += n;
    if (!to || n == 0) return 0; // the other end is closed, which is reported next
    if (to->n_in + n > to->n_cap) {
        size_t cap = (to->n_in + n) * 2;
        uint8_t *grown = realloc(to->in, cap);
        if (!grown) return kin_err_set(err, "out of memory");
        to->in = grown;
        to->n_cap = cap;
    }
    memcpy(to->in + to->n_in, bytes, n);
    to->n_in += n;
    wake(s->pair);
    return 0;
}

static void stream_flush(kin_byte_stream *base) {
    (void)base; // the output is already at the other end
}

static int stream_read(kin_byte_stream *base, void *buf, size_t n, size_t *n_read, kin_err *err) {
    stream *s = (stream *)base;
    (void)err;
    size_t left = s->n_in - s->n_read;
    *n_read = n < left ? n : left;
    if (*n_read > 0) memcpy(buf, s->in + s->n_read, *n_read);
    s->n_read += *n_read;
    return 0;
}

static void mark_last(stream *s) {
    if (s->other) s->other->is_last_written = true;
    wake(s->pair);
}

static void stream_finish(kin_byte_stream *base) {
    stream *s = (stream *)base;
    if (s->phase != OPEN) return;
    s->phase = FINISHING;
    mark_last(s);
}

static void stream_close(kin_byte_stream *base) {
    stream *s = (stream *)base;
    if (s->phase == CLOSED) return;
    s->phase = CLOSED;
    mark_last(s);
    if (s->other) s->other->other = NULL;
    s->other = NULL;
}

static void stream_tick(kin_byte_stream *base, uint64_t now) {
    (void)base, (void)now; // a stream that is not accepted learns of it in the next iteration
}

static kin_byte_stream_counts stream_counts(const kin_byte_stream *base) {
    const stream *s = (const stream *)base;
    size_t n = s->other ? s->other->n_in : 0;
    return (kin_byte_stream_counts){.in = s->n_came + s->n_read, .out = s->n_written - n, .waiting = n};
}

static size_t stream_unacknowledged(const kin_byte_stream *base) {
    (void)base;
    return 0;
}

static void stream_limit_window(kin_byte_stream *base, size_t n) {
    (void)base, (void)n; // everything is here in the next iteration
}

static kin_tls_fault stream_fault(const kin_byte_stream *base) {
    (void)base;
    return KIN_TLS_FAULT_NONE;
}

static const char *stream_name(const kin_byte_stream *base) {
    return ((const stream *)base)->name;
}

static const char *stream_address(const kin_byte_stream *base) {
    (void)base;
    return ADDRESS;
}

static int stream_release(kin_byte_stream *base, int *fd, kin_tls **tls, kin_err *err) {
    (void)base, (void)fd, (void)tls;
    return kin_err_set(err, "there is no file descriptor below");
}

// ---- the pair

int kin_pair_open(kin_pair **out, uv_loop_t *loop, kin_err *err) {
    kin_pair *p = *out = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    p->table = (kin_transport){.connect = pair_connect,
                               .listen = pair_listen,
                               .accept = pair_accept,
                               .port = pair_port,
                               .unlisten = pair_unlisten,
                               .write = stream_write,
                               .flush = stream_flush,
                               .read = stream_read,
                               .finish = stream_finish,
                               .close = stream_close,
                               .release = stream_release,
                               .tick = stream_tick,
                               .counts = stream_counts,
                               .unacknowledged = stream_unacknowledged,
                               .limit_window = stream_limit_window,
                               .fault = stream_fault,
                               .name = stream_name,
                               .address = stream_address};
    uv_idle_init(loop, &p->idle);
    p->idle.data = p;
    return 0;
}

static void free_pair(uv_handle_t *idle) {
    free(idle->data);
}

void kin_pair_close(kin_pair *p) {
    if (!p) return;
    kin_assert(p->n_streams == 0);
    uv_close((uv_handle_t *)&p->idle, free_pair);
}

const kin_transport *kin_pair_transport(const kin_pair *p) {
    return &p->table;
}
