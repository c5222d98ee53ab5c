#include "net/transport_tcp.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/address.h"
#include "pure/proto/goodbye.h"
#include "sys/io.h"

enum {
    BACKLOG = 128,
    INPUT_BYTES = 64 << 10,  // bytes per read from the socket
    WRITE_BYTES = 4 << 20,   // most bytes per write
    FLUSH_BYTES = 256 << 10, // long data is sent in such pieces, while the next is encrypted
    N_ADDRESSES = 8,         // addresses tried per name
};

typedef enum stream_phase {
    RESOLVING,
    CONNECTING,
    HANDSHAKE,
    OPEN,
    FINISHING, // pending data is still sent
    ENDED,     // by itself; the owner was informed
    CLOSED,    // waiting for libuv to release it
} stream_phase;

typedef struct stream {
    kin_byte_stream base; // must be first
    uv_tcp_t tcp;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    uv_write_t write;
    uv_shutdown_t shutdown;
    int n_held; // handles and requests that libuv still uses

    stream_phase phase;
    bool is_server;
    kin_byte_stream_options o;
    kin_byte_stream_callbacks callbacks;
    void *user;
    char name[KIN_ADDRESS_TEXT], address[KIN_ADDRESS_HOST];
    uint16_t port;
    kin_address addresses[N_ADDRESSES]; // to try
    int n_addresses, i_address;
    kin_time begun;

    kin_tls *tls;
    uint8_t *in_flight; // data being written; NULL: none
    size_t n_in_flight; // its bytes
    size_t n_given;     // bytes of it passed to libuv
    uint64_t n_in;      // bytes received
    uint64_t n_handed;  // total bytes passed to libuv
    uint8_t input[INPUT_BYTES];
} stream;

static bool is_live(const stream *s) {
    return s->phase < ENDED;
}

// ---- the end

static void release_stream(stream *s) {
    if (--s->n_held > 0) return;
    kin_tls_close(s->tls);
    free(s->in_flight);
    free(s);
}

static void on_closed(uv_handle_t *handle) {
    release_stream(handle->data);
}

static void end_because(stream *s, const char *fmt, ...) KIN_PRINTF(2, 3);
static void end_because(stream *s, const char *fmt, ...) {
    char reason[sizeof((kin_err *)0)->text];
    if (!is_live(s)) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    if (s->phase == RESOLVING) uv_cancel((uv_req_t *)&s->resolve);
    s->phase = ENDED;
    s->callbacks.ended(s->user, reason);
}

// Limits a write to what libuv takes at once: it counts bytes in 32 bits.
static uv_buf_t piece_of(const uint8_t *bytes, size_t n) {
    return uv_buf_init((char *)bytes, (unsigned)(n < WRITE_BYTES ? n : WRITE_BYTES));
}

// Sends the last TLS record, an alert or close_notify, if the OS takes it at once.
static void send_goodbye(stream *s) {
    if (!s->tls || s->in_flight) return;
    size_t n;
    kin_tls_finish(s->tls);
    const uint8_t *bytes = kin_tls_output(s->tls, &n);
    uv_buf_t buf = piece_of(bytes, n);
    if (n > 0) uv_try_write((uv_stream_t *)&s->tcp, &buf, 1);
}

static void stream_close(kin_byte_stream *base) {
    stream *s = (stream *)base;
    if (s->phase == CLOSED) return;
    if (s->phase == RESOLVING) uv_cancel((uv_req_t *)&s->resolve);
    s->phase = CLOSED;
    send_goodbye(s);
    if (!uv_is_closing((uv_handle_t *)&s->tcp)) uv_close((uv_handle_t *)&s->tcp, on_closed);
}

// ---- writing

static void flush(stream *s);

static kin_byte_stream_counts stream_counts(const kin_byte_stream *base) {
    const stream *s = (const stream *)base;
    size_t n = 0, n_libuv = uv_stream_get_write_queue_size((const uv_stream_t *)&s->tcp);
    if (s->tls) kin_tls_output(s->tls, &n);
    return (kin_byte_stream_counts){
        .in = s->n_in, .out = s->n_handed - n_libuv, .waiting = n + s->n_in_flight - s->n_given + n_libuv};
}

static size_t stream_unacknowledged(const kin_byte_stream *base) {
    uv_os_fd_t fd;
    return uv_fileno((const uv_handle_t *)&((const stream *)base)->tcp, &fd) == 0 ? kin_io_unacknowledged(fd) : 0;
}

static void stream_limit_window(kin_byte_stream *base, size_t n) {
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&((const stream *)base)->tcp, &fd) == 0) kin_io_limit_window(fd, n);
}

static void on_shut_down(uv_shutdown_t *shutdown, int status) {
    (void)shutdown, (void)status; // then the peer or the owner closes
}

static void shut_down_if_out(stream *s) {
    if (s->phase == FINISHING && stream_counts(&s->base).waiting == 0 && !uv_is_closing((uv_handle_t *)&s->tcp))
        uv_shutdown(&s->shutdown, (uv_stream_t *)&s->tcp, on_shut_down);
}

static void write_piece(stream *s);

static void end_flight(stream *s) {
    free(s->in_flight);
    s->in_flight = NULL;
    s->n_in_flight = s->n_given = 0;
}

static void on_written(uv_write_t *write, int status) {
    stream *s = write->data;
    bool has_more = s->n_given < s->n_in_flight;
    if (status < 0 || !is_live(s) || !has_more) end_flight(s);
    if (!is_live(s)) return;
    if (status < 0) {
        end_because(s, "the connection broke: %s", uv_strerror(status));
        return;
    }
    if (has_more) {
        write_piece(s);
        return;
    }
    flush(s);
    shut_down_if_out(s);
    if (is_live(s)) s->callbacks.written(s->user);
}

static void write_piece(stream *s) {
    uv_buf_t buf = piece_of(s->in_flight + s->n_given, s->n_in_flight - s->n_given);
    s->n_given += buf.len;
    s->n_handed += buf.len;
    int rc = uv_write(&s->write, (uv_stream_t *)&s->tcp, &buf, 1, on_written);
    if (rc == 0) return;
    end_flight(s);
    end_because(s, "the connection broke: %s", uv_strerror(rc));
}

// Passes encrypted data to the OS at once; the rest follows when it can be written.
static void flush(stream *s) {
    size_t n;
    const uint8_t *bytes = kin_tls_output(s->tls, &n);
    if (n == 0 || s->in_flight || !is_live(s)) return;
    uv_buf_t buf = piece_of(bytes, n);
    int sent = uv_try_write((uv_stream_t *)&s->tcp, &buf, 1);
    if (sent < 0 && sent != UV_EAGAIN) {
        end_because(s, "the connection broke: %s", uv_strerror(sent));
        return;
    }
    if (sent < 0) sent = 0;
    s->n_handed += (uint64_t)sent;
    if ((size_t)sent == n) {
        kin_tls_output_done(s->tls);
        return;
    }
    s->in_flight = kin_tls_pop_output(s->tls, &s->n_in_flight);
    s->n_given = (size_t)sent;
    write_piece(s);
}

static void stream_flush(kin_byte_stream *base) {
    flush((stream *)base);
}

static int stream_write(kin_byte_stream *base, const void *bytes, size_t n, kin_err *err) {
    stream *s = (stream *)base;
    if (s->phase != OPEN) return kin_err_set(err, "the connection is closed");
    if (kin_tls_write(s->tls, bytes, n, err) != 0) return KIN_FAIL;
    kin_tls_output(s->tls, &n);
    if (n >= FLUSH_BYTES) flush(s);
    return s->phase == OPEN ? 0 : kin_err_set(err, "the connection broke");
}

static void stream_finish(kin_byte_stream *base) {
    stream *s = (stream *)base;
    if (s->phase != OPEN) return;
    kin_tls_finish(s->tls);
    flush(s);
    if (s->phase != OPEN) return;
    s->phase = FINISHING;
    shut_down_if_out(s);
}

// ---- reading, and the handshake

static int stream_read(kin_byte_stream *base, void *buf, size_t n, size_t *n_read, kin_err *err) {
    return kin_tls_read(((stream *)base)->tls, buf, n, n_read, err);
}

static void handle_bytes(stream *s, const uint8_t *bytes, size_t n) {
    kin_err err;
    s->n_in += n;
    if (s->phase == FINISHING) return;
    if (kin_tls_feed(s->tls, bytes, n, &err) != 0) {
        end_because(s, "%s", err.text);
        return;
    }
    flush(s);
    if (s->phase == HANDSHAKE && kin_tls_state_now(s->tls) == KIN_TLS_OPEN) {
        s->phase = OPEN;
        s->callbacks.opened(s->user);
    }
    if (s->phase == OPEN) s->callbacks.readable(s->user);
    if (s->phase == OPEN && kin_tls_state_now(s->tls) == KIN_TLS_CLOSED) end_because(s, KIN_GOODBYE_CLOSED);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    (void)suggested;
    stream *s = handle->data;
    *buf = uv_buf_init((char *)s->input, sizeof s->input);
}

static void on_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf) {
    stream *s = tcp->data;
    if (n > 0 && is_live(s))
        handle_bytes(s, (const uint8_t *)buf->base, (size_t)n);
    else if (n == UV_EOF)
        end_because(s, s->phase == HANDSHAKE ? "the other side closed the connection during the handshake"
                                             : "the connection was closed unexpectedly");
    else if (n < 0)
        end_because(s, "the connection broke: %s", uv_strerror((int)n));
}

static void set_name(stream *s, const kin_address *address) {
    kin_address_host(address, s->address);
    kin_address_format(address, s->name);
}

static void begin_handshake(stream *s) {
    kin_err err;
    kin_address address;
    int n = sizeof address.at;
    s->phase = HANDSHAKE;
    if (uv_tcp_getpeername(&s->tcp, (struct sockaddr *)&address.at, &n) == 0) set_name(s, &address);
    uv_tcp_nodelay(&s->tcp, 1);
    if (kin_tls_open(&s->tls, s->o.tls, !s->is_server, &err) != 0) {
        end_because(s, "%s", err.text);
        return;
    }
    flush(s);
    int rc = s->phase == HANDSHAKE ? uv_read_start((uv_stream_t *)&s->tcp, on_alloc, on_read) : 0;
    if (rc != 0) end_because(s, "the connection broke: %s", uv_strerror(rc));
}

static int stream_release(kin_byte_stream *base, int *fd, kin_tls **tls, kin_err *err) {
    stream *s = (stream *)base;
    uv_os_fd_t own;
    if (s->phase != OPEN || stream_counts(base).waiting > 0) return kin_err_set(err, "there are unsent bytes");
    if (kin_tls_keep_input(s->tls, err) != 0) return KIN_FAIL;
    if (uv_fileno((uv_handle_t *)&s->tcp, &own) != 0 || (*fd = dup(own)) < 0) return kin_err_set(err, "out of file descriptors");
    *tls = s->tls;
    s->tls = NULL;
    stream_close(base);
    return 0;
}

// ---- connecting

static int open_stream(stream **out, uv_loop_t *loop, const kin_byte_stream_options *o,
                       const kin_byte_stream_callbacks *callbacks, void *user, kin_err *err) {
    stream *s = *out = malloc(sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    kin_io_block_sigpipe();
    memset(s, 0, offsetof(stream, input));
    s->base.transport = &kin_transport_tcp;
    s->o = *o;
    s->callbacks = *callbacks;
    s->user = user;
    s->begun = kin_clock_now();
    s->n_held = 1;
    uv_tcp_init(loop, &s->tcp);
    s->tcp.data = s->connect.data = s->write.data = s->resolve.data = s;
    return 0;
}

static void try_connect(stream *s);

static void on_attempt_closed(uv_handle_t *handle) {
    stream *s = handle->data;
    if (s->phase == CLOSED) {
        release_stream(s);
        return;
    }
    uv_tcp_init(handle->loop, &s->tcp);
    s->tcp.data = s;
    if (is_live(s)) try_connect(s);
}

static void next_address(stream *s) {
    if (s->i_address < s->n_addresses && !uv_is_closing((uv_handle_t *)&s->tcp))
        uv_close((uv_handle_t *)&s->tcp, on_attempt_closed);
}

static void on_connected(uv_connect_t *connect, int status) {
    stream *s = connect->data;
    if (s->phase != CONNECTING || status == UV_ECANCELED) return;
    if (status == 0)
        begin_handshake(s);
    else if (s->i_address < s->n_addresses)
        next_address(s);
    else
        end_because(s, "cannot connect: %s", uv_strerror(status));
}

static void try_connect(stream *s) {
    s->phase = CONNECTING;
    const kin_address *address = &s->addresses[s->i_address++];
    set_name(s, address);
    int rc = uv_tcp_connect(&s->connect, &s->tcp, (const struct sockaddr *)&address->at, on_connected);
    if (rc != 0) on_connected(&s->connect, rc);
}

static void on_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *list) {
    stream *s = resolve->data;
    if (s->phase == RESOLVING && status == 0) s->n_addresses = kin_address_copy_list(s->addresses, N_ADDRESSES, list, s->port);
    uv_freeaddrinfo(list);
    if (s->phase == RESOLVING && s->n_addresses > 0)
        try_connect(s);
    else if (s->phase == RESOLVING)
        end_because(s, "cannot resolve the name: %s", status == 0 ? "it has no address" : uv_strerror(status));
    release_stream(s);
}

static int tcp_connect(kin_byte_stream **out, const kin_transport *self, uv_loop_t *loop, const char *address, uint16_t port,
                       const kin_byte_stream_options *o, const kin_byte_stream_callbacks *callbacks, void *user, kin_err *err) {
    stream *s;
    (void)self;
    *out = NULL;
    if (open_stream(&s, loop, o, callbacks, user, err) != 0) return KIN_FAIL;
    *out = &s->base;
    snprintf(s->name, sizeof s->name, "%s:%u", address, port);
    s->port = port;
    if (kin_address_parse(&s->addresses[0], address, port)) {
        s->n_addresses = 1;
        try_connect(s);
        return 0;
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int rc = uv_getaddrinfo(loop, &s->resolve, on_resolved, address, NULL, &hints);
    if (rc == 0)
        s->n_held++;
    else
        end_because(s, "cannot resolve the name: %s", uv_strerror(rc));
    return 0;
}

static kin_time after_ms(kin_time from, uint64_t ms) {
    return from + ms * 1000000;
}

static void stream_tick(kin_byte_stream *base, uint64_t now) {
    stream *s = (stream *)base;
    if (s->phase >= OPEN) return;
    if (now >= after_ms(s->begun, s->o.handshake_ms))
        end_because(s, s->phase == HANDSHAKE ? "no handshake within %u ms" : "no answer within %u ms", s->o.handshake_ms);
    else if (s->phase == CONNECTING &&
             now >= after_ms(s->begun, (uint64_t)s->o.handshake_ms * (unsigned)s->i_address / (unsigned)s->n_addresses))
        next_address(s);
}

// ---- listening

typedef struct acceptor {
    kin_acceptor base; // must be first
    uv_tcp_t tcp;
    kin_acceptor_connected connected;
    void *user;
} acceptor;

static void on_connection(uv_stream_t *tcp, int status) {
    acceptor *a = tcp->data;
    a->connected(a->user, &a->base, status < 0 ? uv_strerror(status) : NULL);
}

static int tcp_accept(kin_byte_stream **out, kin_acceptor *base, const kin_byte_stream_options *o,
                      const kin_byte_stream_callbacks *callbacks, void *user, kin_err *err) {
    acceptor *a = (acceptor *)base;
    stream *s;
    *out = NULL;
    if (open_stream(&s, a->tcp.loop, o, callbacks, user, err) != 0) return KIN_FAIL;
    s->is_server = true;
    int rc = uv_accept((uv_stream_t *)&a->tcp, (uv_stream_t *)&s->tcp);
    if (rc != 0) {
        stream_close(&s->base);
        return kin_err_set(err, "cannot accept a connection: %s", uv_strerror(rc));
    }
    *out = &s->base;
    begin_handshake(s);
    return 0;
}

static void free_acceptor(uv_handle_t *tcp) {
    free(tcp->data);
}

static void tcp_unlisten(kin_acceptor *base) {
    uv_close((uv_handle_t *)&((acceptor *)base)->tcp, free_acceptor);
}

// Uses one socket for both families if the machine has IPv6, else IPv4 only.
static int listen_at(acceptor *a, const char *address, uint16_t port) {
    kin_address at;
    uv_os_fd_t fd;
    bool has_v6 = uv_fileno((uv_handle_t *)&a->tcp, &fd) == 0;
    if (!kin_address_parse(&at, address ? address : has_v6 ? "::" : "0.0.0.0", port)) return UV_EINVAL;
    int rc = uv_tcp_bind(&a->tcp, (const struct sockaddr *)&at.at, 0);
    return rc != 0 ? rc : uv_listen((uv_stream_t *)&a->tcp, BACKLOG, on_connection);
}

static int tcp_listen(kin_acceptor **out, const kin_transport *self, uv_loop_t *loop, const char *address, uint16_t port,
                      kin_acceptor_connected connected, void *user, kin_err *err) {
    *out = NULL;
    acceptor *a = calloc(1, sizeof *a);
    if (!a) return kin_err_set(err, "out of memory");
    a->base.transport = self;
    a->connected = connected;
    a->user = user;
    // With a family the socket is created at once, which fails on a machine without IPv6.
    if (address || uv_tcp_init_ex(loop, &a->tcp, AF_INET6) != 0) uv_tcp_init(loop, &a->tcp);
    a->tcp.data = a;
    int rc = listen_at(a, address, port);
    if (rc != 0) {
        tcp_unlisten(&a->base);
        return kin_err_set(err, "cannot listen on %s port %u: %s%s", address ? address : "any address,", port, uv_strerror(rc),
                           rc == UV_EADDRINUSE ? "; another program uses it, perhaps another kin" : "");
    }
    *out = &a->base;
    return 0;
}

static uint16_t tcp_port(const kin_acceptor *base) {
    kin_address address;
    int n = sizeof address.at;
    const uv_tcp_t *tcp = &((const acceptor *)base)->tcp;
    return uv_tcp_getsockname(tcp, (struct sockaddr *)&address.at, &n) == 0 ? kin_address_port(&address) : 0;
}

// ---- inspection

static kin_tls_fault stream_fault(const kin_byte_stream *base) {
    const stream *s = (const stream *)base;
    return s->tls ? kin_tls_fault_of(s->tls) : KIN_TLS_FAULT_NONE;
}

static const char *stream_name(const kin_byte_stream *base) {
    return ((const stream *)base)->name;
}

static const char *stream_address(const kin_byte_stream *base) {
    return ((const stream *)base)->address;
}

const kin_transport kin_transport_tcp = {
    .connect = tcp_connect,
    .listen = tcp_listen,
    .accept = tcp_accept,
    .port = tcp_port,
    .unlisten = tcp_unlisten,
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
    .address = stream_address,
};
