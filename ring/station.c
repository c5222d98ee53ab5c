#include "ring/station.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "pure/proto/id.h"
#include "ring/echo.h"
#include "ring/share.h"

enum {
    MAX_VISITORS = 32,     // links whose OPEN has not come yet
    OPEN_WITHIN_MS = 3000, // it must come in
    TICK_MS = 100,
    N_POSTS = 256,
};

typedef struct visitor {
    kin_station *station;
    kin_link *link; // NULL: free place
    kin_time since;
} visitor;

struct kin_station {
    kin_station_options o;
    kin_station_callbacks cb;
    void *user;
    pthread_t thread;
    bool started;

    uv_loop_t loop;
    uv_timer_t timer;
    bool has_loop, has_timer;
    kin_tls_ctx *tls;
    kin_post *post;
    kin_listener *listener;
    kin_echo *echo;
    visitor visitors[MAX_VISITORS];

    kin_neighbours *neighbours;

    // From other threads, in order of sending.
    pthread_mutex_t mutex;
    kin_parcel *out_first, **out_end;
    bool out_posted;

    kin_post_fn begin, end;
    void *begin_arg, *end_arg;
};

// ---- messages

kin_link_sent kin_station_say(kin_link *link, uint32_t epoch, const kin_proto_message *m) {
    size_t n = kin_proto_encode(NULL, 0, epoch, m);
    uint8_t *frame = malloc(n);
    if (!frame) return KIN_LINK_FULL;
    kin_proto_encode(frame, n, epoch, m);
    kin_link_part part = {frame + KIN_FRAME_HEADER, n - KIN_FRAME_HEADER};
    kin_link_sent sent = kin_link_send(link, m->type, epoch, 1, &part);
    free(frame);
    return sent;
}

void kin_station_say_accept(kin_station *s, kin_link *link) {
    kin_proto_message m = {.type = KIN_FRAME_ACCEPT};
    m.accept.id = s->o.id;
    m.accept.features = s->o.features;
    snprintf(m.accept.name, sizeof m.accept.name, "%s", s->o.name);
    snprintf(m.accept.version, sizeof m.accept.version, "%s", s->o.version);
    kin_station_say(link, 0, &m);
}

static kin_proto_open self(const kin_station *s) {
    kin_proto_open open = {.id = s->o.id, .run = s->o.run, .features = s->o.features};
    snprintf(open.name, sizeof open.name, "%s", s->o.name);
    snprintf(open.version, sizeof open.version, "%s", s->o.version);
    return open;
}

void kin_station_say_control(kin_station *s, kin_link *link) {
    kin_proto_message m = {.type = KIN_FRAME_OPEN, .open = self(s)};
    m.open.role = KIN_PROTO_CONTROL;
    kin_station_say(link, 0, &m);
}

void kin_station_refuse(kin_link *link, const char *reason) {
    kin_proto_message m = {.type = KIN_FRAME_REFUSE};
    snprintf(m.refuse.reason, sizeof m.refuse.reason, "%s", reason);
    kin_station_say(link, 0, &m);
    kin_link_close(link, reason);
}

// ---- who connects

static void leave(visitor *v) {
    v->link = NULL;
}

static void take_probe(kin_station *s, kin_link *link) {
    if (kin_echo_is_full(s->echo)) {
        kin_station_refuse(link, "busy: others are measuring");
        return;
    }
    kin_station_say_accept(s, link);
    kin_echo_add(s->echo, link);
}

// One end of a hop: ours, or one that the owner passes on.
static void take_ring(kin_station *s, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    const char *reason = "identity: this is another device than the one that is called";
    bool is_ours = kin_proto_id_equal(&open->peer, &s->o.id);
    if (is_ours && kin_neighbours_takes(s->neighbours, epoch, open, &reason)) {
        kin_station_say_accept(s, link);
        kin_neighbours_take(s->neighbours, link, open);
    } else if (!is_ours && s->cb.relay) {
        s->cb.relay(s->user, link, epoch, open);
    } else {
        kin_station_refuse(link, reason);
    }
}

static void sort_in(kin_station *s, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    if (open->role == KIN_PROTO_RING || open->role == KIN_PROTO_BACK)
        take_ring(s, link, epoch, open);
    else if (open->role == KIN_PROTO_PROBE)
        take_probe(s, link);
    else if (open->role == KIN_PROTO_CONTROL && s->cb.control)
        s->cb.control(s->user, link, open);
    else if (open->role == KIN_PROTO_FETCH && s->cb.fetch)
        s->cb.fetch(s->user, link, open);
    else if (open->role == KIN_PROTO_OBSERVE && s->cb.observe)
        s->cb.observe(s->user, link, open);
    else
        kin_station_refuse(link, "other: this device is no head");
}

static void visitor_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    visitor *v = user;
    kin_proto_open open;
    kin_err err;
    leave(v);
    if (frame->type != KIN_FRAME_OPEN) {
        kin_link_close(link, "a link begins with OPEN");
    } else if (kin_proto_decode_open(payload, frame->length, &open, &err) != 0) {
        kin_log(KIN_LOG_WARN, "%s: %s", kin_link_name(link), err.text);
        kin_link_close(link, err.text);
    } else {
        sort_in(v->station, link, frame->epoch, &open);
    }
}

static void visitor_closed(void *user, kin_link *link, const char *reason) {
    kin_log(KIN_LOG_WARN, "link %s: %s", kin_link_name(link), reason); // of a stranger: it has no other owner
    leave(user);
}

static void on_accepted(void *user, kin_link *link) {
    static const kin_link_callbacks callbacks = {.frame = visitor_frame, .closed = visitor_closed};
    kin_station *s = user;
    for (int i = 0; i < MAX_VISITORS; i++) {
        visitor *v = &s->visitors[i];
        if (v->link) continue;
        *v = (visitor){s, link, kin_clock_now()};
        kin_link_accept(link, &callbacks, v);
        return;
    }
    kin_link_close(link, "too many at the door");
}

static void on_tick(uv_timer_t *timer) {
    kin_station *s = timer->data;
    kin_time now = kin_clock_now();
    kin_neighbours_tick(s->neighbours, now);
    kin_echo_tick(s->echo, now);
    for (int i = 0; i < MAX_VISITORS; i++) {
        visitor *v = &s->visitors[i];
        if (!v->link || kin_clock_ms(v->since, now) < OPEN_WITHIN_MS) continue;
        kin_log(KIN_LOG_INFO, "%s did not say what it wants", kin_link_name(v->link));
        kin_link_close(v->link, "no OPEN came");
        leave(v);
    }
    if (s->cb.tick) s->cb.tick(s->user);
}

// ---- from other threads

static kin_parcel *take_outgoing(kin_station *s) {
    pthread_mutex_lock(&s->mutex);
    kin_parcel *all = s->out_first;
    s->out_first = NULL;
    s->out_end = &s->out_first;
    s->out_posted = false;
    pthread_mutex_unlock(&s->mutex);
    return all;
}

static void flush_outgoing(void *arg) {
    kin_station *s = arg;
    kin_parcel *next;
    for (kin_parcel *p = take_outgoing(s); p; p = next) {
        next = p->next;
        if (s->neighbours) kin_neighbours_send(s->neighbours, p);
        kin_parcels_give(s->o.pool, p);
    }
}

void kin_station_send(kin_station *s, kin_parcel *parcel) {
    parcel->next = NULL;
    parcel->sent_at = kin_clock_now();
    pthread_mutex_lock(&s->mutex);
    *s->out_end = parcel;
    s->out_end = &parcel->next;
    bool post = !s->out_posted;
    s->out_posted = true;
    pthread_mutex_unlock(&s->mutex);
    if (post) kin_station_call(s, flush_outgoing, s);
}

bool kin_station_call(kin_station *s, kin_post_fn fn, void *arg) {
    return kin_post_call_when_room(s->post, fn, arg);
}

// ---- opening and closing

static int open_all(kin_station *s, kin_err *err) {
    if (kin_tls_ctx_open(&s->tls, s->o.key.bytes, err) != 0) return KIN_FAIL;
    if (uv_loop_init(&s->loop) != 0) return kin_err_set(err, "no event loop");
    s->has_loop = true;
    if (uv_timer_init(&s->loop, &s->timer) != 0) return kin_err_set(err, "no timer");
    s->has_timer = true;
    s->timer.data = s;
    if (kin_echo_open(&s->echo, err) != 0) return KIN_FAIL;
    kin_neighbours_options no = {
        .loop = &s->loop, .tls = s->tls, .self = self(s), .pool = s->o.pool, .in = s->o.in, .events = s->o.events};
    if (kin_neighbours_open(&s->neighbours, &no, s->cb.hop, s->user, err) != 0) return KIN_FAIL;
    if (kin_post_open(&s->post, &s->loop, N_POSTS, err) != 0) return KIN_FAIL;
    kin_listener_options lo = kin_listener_options_default(s->tls);
    lo.link.queue_max = KIN_SHARE_QUEUE_BYTES; // what a device that fetches and does not read can cost
    return kin_listener_open(&s->listener, &s->loop, s->o.listen, s->o.port, &lo, on_accepted, s, err);
}

int kin_station_open(kin_station **out, const kin_station_options *o, const kin_station_callbacks *cb, void *user, kin_err *err) {
    *out = NULL;
    kin_station *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->o = *o;
    s->cb = *cb;
    s->user = user;
    s->out_end = &s->out_first;
    pthread_mutex_init(&s->mutex, NULL);
    if (open_all(s, err) != 0) {
        kin_station_close(s, NULL, NULL);
        return KIN_FAIL;
    }
    *out = s;
    return 0;
}

static void close_handles(kin_station *s) {
    kin_post_close(s->post); // first: what was left needs the owner as it is
    if (s->end) s->end(s->end_arg);
    for (int i = 0; i < MAX_VISITORS; i++) {
        if (s->visitors[i].link) kin_link_close(s->visitors[i].link, "kin ends here");
    }
    kin_neighbours_close(s->neighbours, "kin ends here");
    s->neighbours = NULL;
    kin_echo_close(s->echo, "kin ends here");
    kin_listener_close(s->listener);
    if (s->has_timer) uv_close((uv_handle_t *)&s->timer, NULL);
}

static void stop(void *arg) {
    close_handles(arg);
}

static void *run(void *arg) {
    kin_station *s = arg;
    uv_timer_start(&s->timer, on_tick, TICK_MS, TICK_MS);
    s->begin(s->begin_arg);
    uv_run(&s->loop, UV_RUN_DEFAULT); // until stop, and nothing is left to close
    return NULL;
}

int kin_station_start(kin_station *s, kin_post_fn begin, void *arg, kin_err *err) {
    s->begin = begin;
    s->begin_arg = arg;
    s->started = pthread_create(&s->thread, NULL, run, s) == 0;
    return s->started ? 0 : kin_err_set(err, "no thread for the network");
}

void kin_station_close(kin_station *s, kin_post_fn end, void *arg) {
    if (!s) return;
    s->end = end;
    s->end_arg = arg;
    if (s->started) { // links end in their own thread, where SIGPIPE is blocked
        kin_station_call(s, stop, s);
        pthread_join(s->thread, NULL);
    } else {
        close_handles(s);
        if (s->has_loop) uv_run(&s->loop, UV_RUN_DEFAULT);
    }
    if (s->has_loop) uv_loop_close(&s->loop);
    for (kin_parcel *p = take_outgoing(s), *next; p; p = next) {
        next = p->next;
        kin_parcels_give(s->o.pool, p);
    }
    kin_post_free(s->post);
    kin_tls_ctx_close(s->tls);
    kin_key_wipe(&s->o.key);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

uv_loop_t *kin_station_loop(kin_station *s) {
    return &s->loop;
}

kin_tls_ctx *kin_station_tls(kin_station *s) {
    return s->tls;
}

uint16_t kin_station_port(const kin_station *s) {
    return kin_listener_port(s->listener);
}

kin_neighbours *kin_station_neighbours(kin_station *s) {
    return s->neighbours;
}
