#include "net/endpoint.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/echo_responder.h"
#include "pure/proto/label.h"
#include "pure/proto/versions.h"

enum {
    MAX_VISITORS = 32,     // links whose OPEN has not arrived
    OPEN_WITHIN_MS = 3000, // time limit for OPEN
    TICK_MS = 100,
    N_CALLS = 256,
    LINK_QUEUE_BYTES = 2 << 20, // bounds the memory for a peer that does not read
};

typedef struct visitor {
    kin_endpoint *endpoint;
    kin_link *link; // NULL: free slot
    kin_time since;
} visitor;

struct kin_endpoint {
    kin_endpoint_options o;
    kin_endpoint_callbacks cb;
    void *user;
    pthread_t thread;
    bool started;

    uv_loop_t loop;
    uv_timer_t timer;
    bool has_loop, has_timer;
    kin_tls_ctx *tls;
    kin_mailbox *mailbox;
    kin_listener *listener;
    kin_echo_responder *echo;
    visitor visitors[MAX_VISITORS];

    kin_mailbox_fn begin, end;
    void *begin_arg, *end_arg;
};

// ---- messages

kin_link_sent kin_endpoint_send_message(kin_link *link, uint32_t epoch, const kin_proto_message *m) {
    size_t n = kin_proto_encode(NULL, 0, epoch, m);
    uint8_t *frame = malloc(n);
    if (!frame) return KIN_LINK_FULL;
    kin_proto_encode(frame, n, epoch, m);
    kin_frame_part part = {frame + KIN_FRAME_HEADER, n - KIN_FRAME_HEADER};
    kin_link_sent sent = kin_link_send(link, m->type, epoch, 1, &part);
    free(frame);
    return sent;
}

void kin_endpoint_send_accept(kin_endpoint *s, kin_link *link) {
    kin_proto_message m = {.type = KIN_FRAME_ACCEPT};
    m.accept.id = s->o.id;
    m.accept.features = s->o.features;
    m.accept.versions = s->o.versions;
    snprintf(m.accept.name, sizeof m.accept.name, "%s", s->o.name);
    snprintf(m.accept.version, sizeof m.accept.version, "%s", s->o.version);
    kin_endpoint_send_message(link, 0, &m);
}

kin_proto_open kin_endpoint_self(const kin_endpoint *s) {
    kin_proto_open open = {.id = s->o.id, .run = s->o.run, .versions = s->o.versions, .features = s->o.features};
    snprintf(open.name, sizeof open.name, "%s", s->o.name);
    snprintf(open.version, sizeof open.version, "%s", s->o.version);
    return open;
}

void kin_endpoint_refuse(kin_link *link, const char *reason) {
    kin_proto_message m = {.type = KIN_FRAME_REFUSE};
    kin_label_set_sentence(m.refuse.reason, KIN_PROTO_MAX_REASON, reason);
    kin_endpoint_send_message(link, 0, &m);
    kin_link_close(link, reason);
}

// ---- incoming links

static void leave(visitor *v) {
    v->link = NULL;
}

static void accept_probe(kin_endpoint *s, kin_link *link) {
    if (kin_echo_responder_is_full(s->echo)) {
        kin_endpoint_refuse(link, "busy: other devices are measuring");
        return;
    }
    kin_endpoint_send_accept(s, link);
    kin_echo_responder_add(s->echo, link);
}

// True if OPEN names another process as its peer.
static bool is_for_another(const kin_endpoint *s, const kin_proto_open *open) {
    return !kin_proto_id_is_none(&open->peer) && !kin_proto_id_equal(&open->peer, &s->o.id);
}

static void sort_in(kin_endpoint *s, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    kin_err err;
    uint16_t version = kin_proto_versions_agree(&(kin_proto_speaker){s->o.name, s->o.version, s->o.versions},
                                                &(kin_proto_speaker){open->name, open->version, open->versions}, &err);
    kin_link_set_version(link, version);
    if (version == 0) {
        kin_log(KIN_LOG_WARN, "%s: %s", kin_link_name(link), err.text);
        kin_endpoint_refuse(link, err.text);
    } else if (open->role == KIN_PROTO_PROBE && !is_for_another(s, open)) {
        accept_probe(s, link);
    } else if (s->cb.opened) {
        s->cb.opened(s->user, link, epoch, open);
    } else {
        kin_endpoint_refuse(link, "other: this node accepts no links");
    }
}

static void visitor_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    visitor *v = user;
    kin_proto_open open;
    kin_err err;
    leave(v);
    if (frame->type != KIN_FRAME_OPEN) {
        kin_link_close(link, "the first message of a link must be OPEN");
    } else if (kin_proto_decode_open(payload, frame->length, &open, &err) != 0) {
        kin_log(KIN_LOG_WARN, "%s: %s", kin_link_name(link), err.text);
        kin_link_close(link, err.text);
    } else {
        sort_in(v->endpoint, link, frame->epoch, &open);
    }
}

static void visitor_closed(void *user, kin_link *link, const char *reason) {
    kin_log(KIN_LOG_WARN, "link %s: %s", kin_link_name(link), reason); // the link has no other owner
    leave(user);
}

static void on_link_accepted(void *user, kin_link *link) {
    static const kin_link_callbacks callbacks = {.frame = visitor_frame, .closed = visitor_closed};
    kin_endpoint *s = user;
    for (int i = 0; i < MAX_VISITORS; i++) {
        visitor *v = &s->visitors[i];
        if (v->link) continue;
        *v = (visitor){s, link, kin_clock_now()};
        kin_link_accept(link, &callbacks, v);
        return;
    }
    kin_link_close(link, "too many links that have not sent OPEN");
}

static void on_endpoint_tick(uv_timer_t *timer) {
    kin_endpoint *s = timer->data;
    kin_time now = kin_clock_now();
    kin_echo_responder_tick(s->echo, now);
    for (int i = 0; i < MAX_VISITORS; i++) {
        visitor *v = &s->visitors[i];
        if (!v->link || kin_clock_ms(v->since, now) < OPEN_WITHIN_MS) continue;
        kin_log(KIN_LOG_INFO, "%s did not send OPEN in time", kin_link_name(v->link));
        kin_link_close(v->link, "no OPEN in time");
        leave(v);
    }
    if (s->cb.tick) s->cb.tick(s->user);
}

// ---- from other threads

bool kin_endpoint_call(kin_endpoint *s, kin_mailbox_fn fn, void *arg) {
    return kin_mailbox_call_when_room(s->mailbox, fn, arg);
}

// ---- opening and closing

static int open_endpoint(kin_endpoint *s, kin_err *err) {
    if (kin_tls_ctx_open(&s->tls, s->o.key.bytes, err) != 0) return KIN_FAIL;
    if (uv_loop_init(&s->loop) != 0) return kin_err_set(err, "cannot create an event loop");
    s->has_loop = true;
    if (uv_timer_init(&s->loop, &s->timer) != 0) return kin_err_set(err, "cannot create a timer");
    s->has_timer = true;
    s->timer.data = s;
    if (kin_echo_responder_open(&s->echo, err) != 0) return KIN_FAIL;
    if (kin_mailbox_open(&s->mailbox, &s->loop, N_CALLS, err) != 0) return KIN_FAIL;
    kin_listener_options lo = kin_listener_options_default(s->tls);
    lo.link.queue_max = LINK_QUEUE_BYTES;
    return kin_listener_open(&s->listener, &s->loop, s->o.listen, s->o.port, &lo, on_link_accepted, s, err);
}

int kin_endpoint_open(kin_endpoint **out, const kin_endpoint_options *o, const kin_endpoint_callbacks *cb, void *user,
                      kin_err *err) {
    *out = NULL;
    kin_endpoint *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->o = *o;
    s->o.versions = kin_proto_versions_or_own(o->versions);
    s->cb = *cb;
    s->user = user;
    if (open_endpoint(s, err) != 0) {
        kin_endpoint_close(s, NULL, NULL);
        return KIN_FAIL;
    }
    *out = s;
    return 0;
}

static void close_handles(kin_endpoint *s) {
    kin_mailbox_close(s->mailbox); // first: pending calls need the owner unchanged
    if (s->end) s->end(s->end_arg);
    for (int i = 0; i < MAX_VISITORS; i++) {
        if (s->visitors[i].link) kin_link_close(s->visitors[i].link, "kin was stopped");
    }
    kin_echo_responder_close(s->echo, "kin was stopped");
    kin_listener_close(s->listener);
    if (s->has_timer) uv_close((uv_handle_t *)&s->timer, NULL);
}

static void stop(void *arg) {
    close_handles(arg);
}

static void *run_loop(void *arg) {
    kin_endpoint *s = arg;
    uv_timer_start(&s->timer, on_endpoint_tick, TICK_MS, TICK_MS);
    s->begin(s->begin_arg);
    uv_run(&s->loop, UV_RUN_DEFAULT); // until stop is called and all handles are closed
    return NULL;
}

int kin_endpoint_start(kin_endpoint *s, kin_mailbox_fn begin, void *arg, kin_err *err) {
    s->begin = begin;
    s->begin_arg = arg;
    s->started = pthread_create(&s->thread, NULL, run_loop, s) == 0;
    return s->started ? 0 : kin_err_set(err, "cannot start the network thread");
}

void kin_endpoint_close(kin_endpoint *s, kin_mailbox_fn end, void *arg) {
    if (!s) return;
    s->end = end;
    s->end_arg = arg;
    if (s->started) { // links end in their own thread, where SIGPIPE is blocked
        kin_endpoint_call(s, stop, s);
        pthread_join(s->thread, NULL);
    } else {
        close_handles(s);
        if (s->has_loop) uv_run(&s->loop, UV_RUN_DEFAULT);
    }
    kin_assert(!s->has_loop || uv_loop_close(&s->loop) == 0); // a remaining handle would use freed memory
    kin_mailbox_free(s->mailbox);
    kin_tls_ctx_close(s->tls);
    kin_key_wipe(&s->o.key);
    free(s);
}

uv_loop_t *kin_endpoint_loop(kin_endpoint *s) {
    return &s->loop;
}

kin_tls_ctx *kin_endpoint_tls(kin_endpoint *s) {
    return s->tls;
}

uint16_t kin_endpoint_port(const kin_endpoint *s) {
    return kin_listener_port(s->listener);
}
