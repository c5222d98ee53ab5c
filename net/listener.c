#include "net/listener.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/address.h"

enum {
    LINES_MAX = 8, // log lines about failed handshakes per LINES_MS
    LINES_MS = 10000
};

typedef struct pending {
    kin_listener *listener;
    kin_link *link; // NULL: free slot
    uint64_t order; // increases with each connection
    uint8_t network[KIN_ADDRESS_NETWORK];
} pending;

struct kin_listener {
    uv_loop_t *loop;
    kin_acceptor *acceptor;
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

// Rate-limited, so that peers without the key cannot flood the log.
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

// Returns the oldest pending handshake, only of `network` if it is not NULL; *n: how many there are.
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

static pending *find_free_pending(kin_listener *s) {
    for (int i = 0; i < s->o.n_pending; i++) {
        if (!s->pending[i].link) return &s->pending[i];
    }
    return NULL;
}

static void drop_pending(pending *p, const char *reason) {
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

static void on_connected(void *user, kin_acceptor *acceptor, const char *error) {
    static const kin_link_callbacks callbacks = {on_opened, on_unowned_frame, NULL, on_pending_closed};
    kin_listener *s = user;
    if (error) {
        kin_log(KIN_LOG_WARN, "link: cannot accept a connection: %s", error);
        return;
    }
    int n;
    pending *oldest = find_oldest(s, NULL, &n);
    if (n == s->o.n_pending) drop_pending(oldest, "too many pending handshakes; dropped the oldest");

    pending *p = find_free_pending(s);
    kin_link *link;
    kin_err err;
    if (kin_link_serve(&link, s->loop, acceptor, &s->o.link, &callbacks, p, &err) != 0) {
        kin_log(KIN_LOG_WARN, "link: %s", err.text);
        return;
    }
    kin_address address;
    uint8_t network[KIN_ADDRESS_NETWORK] = {0};
    if (kin_address_parse(&address, kin_link_address(link), 0)) kin_address_network(&address, network);
    oldest = find_oldest(s, network, &n);
    if (n == s->o.n_pending_address) drop_pending(oldest, "too many pending handshakes from this address; dropped the oldest");
    p->link = link;
    p->order = s->n_ever++;
    memcpy(p->network, network, sizeof network);
}

// ---- opening

static void free_listener(kin_listener *s) {
    free(s->pending);
    free(s);
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
    s->loop = loop;
    const kin_transport *transport = o->link.transport;
    if (transport->listen(&s->acceptor, transport, loop, address, port, on_connected, s, err) != 0) {
        free_listener(s);
        return KIN_FAIL;
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
    s->acceptor->transport->unlisten(s->acceptor);
    free_listener(s);
}

uint16_t kin_listener_port(const kin_listener *s) {
    return s->acceptor->transport->port(s->acceptor);
}
