#include "serve/http/http_socket.h"

#include <stdlib.h>
#include <string.h>

enum {
    KEEPALIVE_S = 60,        // idle time before the system probes the other machine
    TLS_FIRST_BYTE = 0x16,   // of a handshake
    WRITE_MOST = 1024 << 20, // bytes in one write: libuv counts them in 32 bits
};

typedef struct socket_impl {
    kin_http_socket base; // first member: it is cast back to socket_impl
    kin_http_sockets *all;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    };
    uv_shutdown_t shutdown;
    kin_tls *tls;   // NULL: none
    bool has_bytes; // a byte has arrived
    uint64_t n_put; // bytes given to the system or to libuv so far
} socket_impl;

typedef struct output {
    uv_write_t write;
    char bytes[];
} output;

static void on_closed(uv_handle_t *handle) {
    socket_impl *s = handle->data;
    kin_http_connection_free(s->base.connection);
    kin_tls_close(s->tls);
    s->all->closed(&s->base, s->all);
    free(s);
}

static void close_socket(void *socket) {
    socket_impl *s = socket;
    if (!uv_is_closing(&s->handle)) uv_close(&s->handle, on_closed);
}

// ---- out

static size_t count_pending(const void *socket, uint64_t *n_out) {
    const socket_impl *s = socket;
    size_t n = uv_stream_get_write_queue_size(&s->stream);
    *n_out = s->n_put - n;
    return n;
}

static void on_written(uv_write_t *write, int status) {
    socket_impl *s = write->data;
    free(write);
    if (uv_is_closing(&s->handle)) return;
    if (status < 0)
        close_socket(s);
    else if (uv_stream_get_write_queue_size(&s->stream) == 0)
        kin_http_connection_sent(s->base.connection);
}

static void queue(socket_impl *s, const char *bytes, size_t n) {
    output *o = malloc(sizeof *o + n);
    if (!o) {
        close_socket(s);
        return;
    }
    memcpy(o->bytes, bytes, n);
    o->write.data = s;
    uv_buf_t buf = uv_buf_init(o->bytes, (unsigned)n);
    if (uv_write(&o->write, &s->stream, &buf, 1, on_written) == 0) return;
    free(o);
    close_socket(s);
}

static void put(socket_impl *s, const char *bytes, size_t n) {
    if (n == 0 || uv_is_closing(&s->handle)) return;
    kin_assert(n <= WRITE_MOST);
    uv_buf_t buf = uv_buf_init((char *)bytes, (unsigned)n);
    int sent = uv_try_write(&s->stream, &buf, 1);
    s->n_put += n;
    if (sent < 0 && sent != UV_EAGAIN)
        close_socket(s);
    else if (sent < 0)
        queue(s, bytes, n);
    else if ((size_t)sent < n)
        queue(s, bytes + sent, n - (size_t)sent);
}

static void put_tls_output(socket_impl *s) {
    size_t n;
    uint8_t *bytes = kin_tls_pop_output(s->tls, &n);
    put(s, (const char *)bytes, n);
    free(bytes);
}

static void send_bytes(void *socket, const void *bytes, size_t n) {
    socket_impl *s = socket;
    if (uv_is_closing(&s->handle)) return;
    if (!s->tls) {
        put(s, bytes, n);
    } else if (kin_tls_state_now(s->tls) == KIN_TLS_OPEN || kin_tls_state_now(s->tls) == KIN_TLS_CLOSED) {
        if (kin_tls_write(s->tls, bytes, n, NULL) != 0) close_socket(s);
        put_tls_output(s);
    }
}

static void on_shut_down(uv_shutdown_t *shutdown, int status) {
    (void)shutdown, (void)status; // the connection waits for the client
}

static void finish(void *socket) {
    socket_impl *s = socket;
    if (uv_is_closing(&s->handle)) return;
    if (s->tls) {
        kin_tls_finish(s->tls);
        put_tls_output(s);
    }
    if (uv_is_closing(&s->handle)) return;
    s->shutdown.data = s;
    if (uv_shutdown(&s->shutdown, &s->stream, on_shut_down) != 0) close_socket(s);
}

// ---- in

static void decrypt_bytes(socket_impl *s, const char *bytes, size_t n) {
    size_t n_plain = 1;
    bool is_right = kin_tls_feed(s->tls, bytes, n, NULL) == 0;
    while (is_right && n_plain > 0 && !uv_is_closing(&s->handle)) {
        is_right = kin_tls_read(s->tls, s->all->plain, sizeof s->all->plain, &n_plain, NULL) == 0;
        if (is_right && n_plain > 0) kin_http_connection_feed(s->base.connection, s->all->plain, n_plain);
    }
    put_tls_output(s); // handshake data, or an alert
    if (uv_is_closing(&s->handle)) return;
    if (!is_right)
        close_socket(s);
    else if (kin_tls_state_now(s->tls) == KIN_TLS_CLOSED)
        kin_http_connection_eof(s->base.connection);
}

static void handle_bytes(socket_impl *s, const char *bytes, size_t n) {
    bool is_plain = s->tls && !s->has_bytes && bytes[0] != TLS_FIRST_BYTE;
    s->has_bytes = true;
    if (is_plain) {
        kin_tls_close(s->tls);
        s->tls = NULL;
        kin_http_connection_refuse(s->base.connection, 400, "This port accepts HTTPS only: use https:// in the URL.");
    } else if (s->tls) {
        decrypt_bytes(s, bytes, n);
    } else {
        kin_http_connection_feed(s->base.connection, bytes, n);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    (void)suggested;
    const socket_impl *s = handle->data;
    *buf = uv_buf_init(s->all->input, sizeof s->all->input);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    socket_impl *s = stream->data;
    if (n > 0)
        handle_bytes(s, buf->base, (size_t)n);
    else if (n == UV_EOF)
        kin_http_connection_eof(s->base.connection);
    else if (n < 0)
        close_socket(s);
}

static void set_reading(void *socket, bool on) {
    socket_impl *s = socket;
    if (uv_is_closing(&s->handle)) return;
    if (!on)
        uv_read_stop(&s->stream);
    else if (uv_read_start(&s->stream, on_alloc, on_read) != 0)
        close_socket(s);
}

// ---- accept

static const kin_http_socket_ops ops = {
    .send = send_bytes, .pending = count_pending, .read = set_reading, .finish = finish, .close = close_socket};

static void drop(uv_handle_t *handle) {
    socket_impl *s = handle->data;
    kin_tls_close(s->tls);
    free(s);
}

int kin_http_socket_accept(kin_http_socket **out, kin_http_sockets *sockets, uv_stream_t *listener, kin_err *err) {
    *out = NULL;
    socket_impl *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    bool is_tcp = listener->type == UV_TCP;
    if (is_tcp)
        uv_tcp_init(listener->loop, &s->tcp);
    else
        uv_pipe_init(listener->loop, &s->pipe, 0);
    s->all = sockets;
    s->handle.data = s;
    int rc = uv_accept(listener, &s->stream);
    if (rc == 0 && is_tcp) uv_tcp_nodelay(&s->tcp, 1);
    if (rc == 0 && is_tcp) uv_tcp_keepalive(&s->tcp, 1, KEEPALIVE_S);
    if (rc == 0) rc = uv_read_start(&s->stream, on_alloc, on_read);
    if (rc != 0) kin_err_set(err, "cannot accept a connection: %s", uv_strerror(rc));
    if (rc == 0 && (!sockets->tls || kin_tls_open(&s->tls, sockets->tls, false, err) == 0) &&
        kin_http_connection_open(&s->base.connection, &sockets->service, &ops, s, err) == 0) {
        *out = &s->base;
        return 0;
    }
    uv_close(&s->handle, drop);
    return KIN_FAIL;
}
