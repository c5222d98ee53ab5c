#include "net/listener.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/address.h"

enum {
    BACKLOG = 128,
    LINES_MAX = 8, // in the log about failed handshakes, in LINES_MS
    LINES_MS = 10000
};

typedef struct pending {
    kin_listener *listener;
    kin_link *link; // NULL: a free place
    uint64_t order; // the oldest has the smallest
    uint8_t network[KIN_ADDRESS_NETWORK];
} pending;

struct kin_listener {
    uv_tcp_t tcp;
    kin_listener_options o;
    kin_listener_accepted accepted;
    void *user;
    pending *pending; // [o.n_pending]
    uint64_t n_ever;
    kin_time lines_begun;
    int n_lines;
};

kin_listener_options kin_listener_options_default(kin_tls_ctx *tls) {
    return (kin_listener_options){.link = kin_link_options_default(tls), .n_pending = 32, .n_pending_address = 8};
}

// Somebody without the key must not fill the log either.
static void log_line(kin_listener *s, const char *name, const char *reason) {
    kin_time now = kin_clock_now();
    if (s->n_lines == 0 || kin_clock_ms(s->lines_begun, now) >= LINES_MS) {
        if (s->n_lines > LINES_MAX) kin_log(KIN_LOG_WARN, "link: %d more failed handshakes", s->n_lines - LINES_MAX);
        s->n_lines = 0;
        s->lines_begun = now;
    }
    if (s->n_lines++ < LINES_MAX) kin_log(KIN_LOG_WARN, "link %s: %s", name, reason);
}

// ---- pending handshakes

// The oldest one, of that network only if it is not NULL; *n says how many there are.
static pending *find_oldest(kin_listener *s, const uint8_t *network, int *n) {
    pending *oldest = NULL;
    *n = 0;
    for (int i = 0; i < s->o.n_pending; i++) {
        pending *p = &s->pending[i];
        if (!p->link || (network && memcmp(p->network, network, sizeof p->network) != 0)) continue;
        if (!oldest || p->order < oldest->order) oldest = p;
        ++*n;
    }
    return oldest;
}

static pending *find_free(kin_listener *s) {
    for (int i = 0; i < s->o.n_pending; i++) {
        if (!s->pending[i].link) return &s->pending[i];
    }
    return NULL;
}

static void drop(pending *p, const char *reason) {
    log_line(p->listener, kin_link_name(p->link), reason);
    kin_link_close(p->link, NULL);
    p->link = NULL;
}

static void on_pending_closed(void *user, kin_link *link, const char *reason) {
    pending *p = user;
    log_line(p->listener, kin_link_name(link), reason);
    p->link = NULL;
}

static void on_unowned_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    (void)user, (void)frame, (void)payload;
    kin_link_close(link, NULL);
}

static void on_opened(void *user, kin_link *link) {
    static const kin_link_callbacks nobody = {.frame = on_unowned_frame};
    pending *p = user;
    p->link = NULL;
    kin_link_accept(link, &nobody, NULL);
    p->listener->accepted(p->listener->user, link);
}

static void on_connection(uv_stream_t *stream, int status) {
    static const kin_link_callbacks callbacks = {on_opened, on_unowned_frame, NULL, on_pending_closed};
    kin_listener *s = stream->data;
    if (status < 0) {
        kin_log(KIN_LOG_WARN, "link: cannot take a connection: %s", uv_strerror(status));
        return;
    }
    int n;
    pending *oldest = find_oldest(s, NULL, &n);
    if (n == s->o.n_pending) drop(oldest, "too many handshakes at a time; this is the oldest");

    pending *p = find_free(s);
    kin_link *link;
    kin_err err;
    if (kin_link_serve(&link, stream, &s->o.link, &callbacks, p, &err) != 0) {
        kin_log(KIN_LOG_WARN, "link: %s", err.text);
        return;
    }
    kin_address address;
    uint8_t network[KIN_ADDRESS_NETWORK] = {0};
    if (kin_address_parse(&address, kin_link_address(link), 0)) kin_address_network(&address, network);
    oldest = find_oldest(s, network, &n);
    if (n == s->o.n_pending_address) drop(oldest, "too many handshakes of this address at a time; this is the oldest");
    p->link = link;
    p->order = s->n_ever++;
    memcpy(p->network, network, sizeof network);
}

// ---- opening

static void free_listener(uv_handle_t *tcp) {
    kin_listener *s = tcp->data;
    free(s->pending);
    free(s);
}

// One socket for both families where the machine has IPv6, else IPv4 alone.
static int listen_at(kin_listener *s, const char *address, uint16_t port) {
    kin_address a;
    uv_os_fd_t fd;
    bool has_v6 = uv_fileno((uv_handle_t *)&s->tcp, &fd) == 0;
    if (!kin_address_parse(&a, address ? address : has_v6 ? "::" : "0.0.0.0", port)) return UV_EINVAL;
    int rc = uv_tcp_bind(&s->tcp, (const struct sockaddr *)&a.at, 0);
    return rc != 0 ? rc : uv_listen((uv_stream_t *)&s->tcp, BACKLOG, on_connection);
}

int kin_listener_open(kin_listener **out, uv_loop_t *loop, const char *address, uint16_t port, const kin_listener_options *o,
                      kin_listener_accepted accepted, void *user, kin_err *err) {
    *out = NULL;
    kin_listener *s = calloc(1, sizeof *s);
    if (s) s->pending = calloc((size_t)o->n_pending, sizeof *s->pending);
    if (!s || !s->pending) {
        free(s);
        return kin_err_set(err, "out of memory");
    }
    s->o = *o;
    s->accepted = accepted;
    s->user = user;
    for (int i = 0; i < o->n_pending; i++) s->pending[i].listener = s;
    // With a family the socket is made at once, which fails where the machine has no IPv6.
    if (address || uv_tcp_init_ex(loop, &s->tcp, AF_INET6) != 0) uv_tcp_init(loop, &s->tcp);
    s->tcp.data = s;
    int rc = listen_at(s, address, port);
    if (rc != 0) {
        uv_close((uv_handle_t *)&s->tcp, free_listener);
        return kin_err_set(err, "cannot listen on %s port %u: %s", address ? address : "any address,", port, uv_strerror(rc));
    }
    *out = s;
    return 0;
}

void kin_listener_close(kin_listener *s) {
    if (!s) return;
    for (int i = 0; i < s->o.n_pending; i++) {
        kin_link_close(s->pending[i].link, NULL);
        s->pending[i].link = NULL;
    }
    uv_close((uv_handle_t *)&s->tcp, free_listener);
}

uint16_t kin_listener_port(const kin_listener *s) {
    kin_address address;
    int n = sizeof address.at;
    return uv_tcp_getsockname(&s->tcp, (struct sockaddr *)&address.at, &n) == 0 ? kin_address_port(&address) : 0;
}
