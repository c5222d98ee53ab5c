#include "net/gateway.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "net/dial.h"
#include "net/tls_socket.h"
#include "pure/proto/goodbye.h"
#include "pure/proto/id.h"
#include "sys/io.h"

enum {
    PIECE_BYTES = 64 << 10,
    DIAL_MS = 3000,   // below the device's own limit (KIN_DIAL_LIMIT_MS), so that it receives the reason
    LINGER_MS = 1000, // after one side has ended, to deliver data in flight to the other
};

typedef enum passage_state { FREE, DIALS, PASSES } passage_state;

typedef struct passage {
    struct kin_gateway *of;
    passage_state state;
    kin_proto_role role;
    kin_proto_id from;
    char name[KIN_PROTO_MAX_STR + 1];

    kin_link *link; // DIALS: not answered yet
    kin_dial *dial;

    pthread_t thread; // PASSES
    kin_tls_socket ends[2];
    atomic_bool is_over;
} passage;

struct kin_gateway {
    kin_endpoint *endpoint;
    kin_proto_endpoint head; // without an address: no head
    passage passages[KIN_GATEWAY_LINKS];
};

int kin_gateway_open(kin_gateway **out, kin_endpoint *endpoint, kin_err *err) {
    kin_gateway *x = *out = calloc(1, sizeof *x);
    if (!x) return kin_err_set(err, "out of memory");
    x->endpoint = endpoint;
    for (int i = 0; i < KIN_GATEWAY_LINKS; i++) x->passages[i].of = x;
    return 0;
}

// ---- moving bytes, in a thread per link

// Moves received data from one end to the other, once that has sent everything before it.
static int move(kin_tls_socket *from, kin_tls_socket *to, uint8_t *piece, kin_err *err) {
    bool moved;
    size_t n = 1;
    while (n > 0 && !kin_tls_socket_has_to_send(to)) {
        if (kin_tls_socket_receive(from, piece, PIECE_BYTES, &n, err) != 0) return KIN_FAIL;
        if (n > 0 && (kin_tls_write(to->tls, piece, n, err) != 0 || kin_tls_socket_send(to, &moved, err) != 0)) return KIN_FAIL;
    }
    return kin_tls_socket_send(to, &moved, err);
}

static void wait_for_bytes(const kin_tls_socket *ends) {
    struct pollfd fds[2];
    for (int i = 0; i < 2; i++) {
        bool sends = kin_tls_socket_has_to_send(&ends[i]), reads = !kin_tls_socket_has_to_send(&ends[1 - i]);
        short events = (short)((sends ? POLLOUT : 0) | (reads ? POLLIN : 0));
        fds[i] = (struct pollfd){.fd = events ? ends[i].fd : -1, .events = events};
    }
    poll(fds, 2, -1);
}

static void send_rest(kin_tls_socket *end) {
    bool moved;
    kin_err err;
    kin_tls_finish(end->tls);
    for (int ms = 0; ms < LINGER_MS && kin_tls_socket_has_to_send(end); ms += 10) {
        if (kin_tls_socket_send(end, &moved, &err) != 0) return;
        if (kin_tls_socket_has_to_send(end)) poll(&(struct pollfd){.fd = end->fd, .events = POLLOUT}, 1, 10);
    }
}

static void *pass(void *arg) {
    passage *p = arg;
    kin_err err;
    kin_io_block_sigpipe();
    uint8_t *piece = malloc(PIECE_BYTES);
    while (piece && move(&p->ends[0], &p->ends[1], piece, &err) == 0 && move(&p->ends[1], &p->ends[0], piece, &err) == 0)
        wait_for_bytes(p->ends);
    for (int i = 0; i < 2; i++) send_rest(&p->ends[i]);
    for (int i = 0; i < 2; i++) shutdown(p->ends[i].fd, SHUT_RDWR);
    free(piece);
    atomic_store(&p->is_over, true);
    return NULL;
}

// ---- ending

static void clear(passage *p) {
    kin_dial_cancel(p->dial, NULL);
    kin_link_close(p->link, KIN_GOODBYE_STOPPED);
    if (p->state == PASSES) {
        for (int i = 0; i < 2; i++) shutdown(p->ends[i].fd, SHUT_RDWR);
        pthread_join(p->thread, NULL);
        for (int i = 0; i < 2; i++) kin_tls_socket_close(&p->ends[i]);
    }
    *p = (passage){.of = p->of};
}

static void clear_all(kin_gateway *x) {
    for (int i = 0; i < KIN_GATEWAY_LINKS; i++) clear(&x->passages[i]);
}

void kin_gateway_close(kin_gateway *x) {
    if (!x) return;
    clear_all(x);
    free(x);
}

void kin_gateway_set_head(kin_gateway *x, const char *address, uint16_t port) {
    if (address)
        x->head = kin_dial_address(address, port);
    else
        clear_all(x);
    if (!address) x->head.n_addresses = 0;
}

void kin_gateway_tick(kin_gateway *x) {
    for (int i = 0; i < KIN_GATEWAY_LINKS; i++) {
        passage *p = &x->passages[i];
        if (p->state != PASSES || !atomic_load(&p->is_over)) continue;
        if (p->role == KIN_PROTO_CONTROL)
            kin_log(KIN_LOG_INFO, "device '%s' no longer reaches the head through this device", p->name);
        clear(p);
    }
}

// ---- starting

static void refuse(passage *p, const char *reason) {
    kin_endpoint_refuse(p->link, reason);
    p->link = NULL;
    clear(p);
}

// Takes over a link's connection, or closes the link.
static int adopt_connection(kin_link *link, kin_tls_socket *end, kin_err *err) {
    kin_tls *tls;
    int fd;
    if (kin_link_release(link, &fd, &tls, err) == 0) return kin_tls_socket_open(end, fd, tls, err);
    kin_link_close(link, err->text);
    return KIN_FAIL;
}

static int begin_to_pass(passage *p, kin_link *head, kin_err *err) {
    kin_link *link = p->link;
    p->link = NULL;
    p->ends[0].fd = p->ends[1].fd = -1;
    if (adopt_connection(link, &p->ends[0], err) != 0) {
        kin_link_close(head, err->text);
        return KIN_FAIL;
    }
    if (adopt_connection(head, &p->ends[1], err) != 0) return KIN_FAIL;
    atomic_store(&p->is_over, false);
    return pthread_create(&p->thread, NULL, pass, p) == 0 ? 0 : kin_err_set(err, "cannot start a thread");
}

static void dial_accepted(void *user, kin_link *head, const kin_proto_accept *accept) {
    passage *p = user;
    kin_proto_message m = {.type = KIN_FRAME_ACCEPT};
    kin_err err;
    p->dial = NULL;
    m.accept = *accept;
    m.accept.features |= KIN_PROTO_BY_GATEWAY;
    kin_endpoint_send_message(p->link, 0, &m);
    if (begin_to_pass(p, head, &err) != 0) {
        kin_log(KIN_LOG_WARN, "cannot forward a link of '%s': %s", p->name, err.text);
        for (int i = 0; i < 2; i++) kin_tls_socket_close(&p->ends[i]);
        clear(p);
        return;
    }
    p->state = PASSES;
    if (p->role == KIN_PROTO_CONTROL) kin_log(KIN_LOG_INFO, "device '%s' reaches the head through this device", p->name);
}

static void dial_failed(void *user, const kin_dial_failure *failure) {
    passage *p = user;
    char reason[KIN_PROTO_MAX_REASON + 1];
    p->dial = NULL;
    snprintf(reason, sizeof reason, failure->end == KIN_DIAL_REFUSED ? "%s" : "no head: the head does not answer: %s",
             failure->reason);
    refuse(p, reason);
}

static void link_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    passage *p = user;
    (void)link, (void)frame, (void)payload;
    refuse(p, "other: a message arrived before ACCEPT");
}

static void link_closed(void *user, kin_link *link, const char *reason) {
    passage *p = user;
    (void)link, (void)reason;
    p->link = NULL;
    clear(p);
}

static bool has_control_link(const kin_gateway *x, const kin_proto_id *id) {
    for (int i = 0; i < KIN_GATEWAY_LINKS; i++) {
        const passage *p = &x->passages[i];
        if (p->state != FREE && p->role == KIN_PROTO_CONTROL && kin_proto_id_equal(&p->from, id)) return true;
    }
    return false;
}

static bool is_for_head(const kin_gateway *x, const kin_proto_open *open) {
    kin_proto_id own = kin_endpoint_self(x->endpoint).id;
    if (x->head.n_addresses == 0 || kin_proto_id_equal(&open->peer, &own)) return false;
    if (open->role == KIN_PROTO_CONTROL || open->role == KIN_PROTO_OBSERVE) return true;
    return !kin_proto_id_is_none(&open->peer) && has_control_link(x, &open->id);
}

bool kin_gateway_accept(kin_gateway *x, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    static const kin_link_callbacks of_link = {.frame = link_frame, .closed = link_closed};
    static const kin_dial_callbacks of_dial = {.accepted = dial_accepted, .failed = dial_failed};
    if (!is_for_head(x, open)) return false;
    int i = 0;
    while (i < KIN_GATEWAY_LINKS && x->passages[i].state != FREE) i++;
    if (i == KIN_GATEWAY_LINKS) {
        kin_endpoint_refuse(link, "busy: too many forwarded links");
        return true;
    }
    passage *p = &x->passages[i];
    p->state = DIALS;
    p->role = open->role;
    p->from = open->id;
    snprintf(p->name, sizeof p->name, "%s", open->name);
    p->link = link;
    kin_link_accept(link, &of_link, p);
    kin_dial_options o = kin_dial_options_default(kin_endpoint_tls(x->endpoint));
    kin_err err;
    o.limit_ms = DIAL_MS;
    o.to = x->head;
    o.open = *open;
    o.epoch = epoch;
    if (kin_dial_start(&p->dial, kin_endpoint_loop(x->endpoint), &o, &of_dial, p, &err) != 0) refuse(p, err.text);
    return true;
}
