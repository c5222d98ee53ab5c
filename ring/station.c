#include "ring/station.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "ring/echo.h"
#include "ring/share.h"
#include "ring/steps.h"

enum {
    MAX_VISITORS = 32,     // links whose OPEN has not come yet
    OPEN_WITHIN_MS = 3000, // it must come in
    NEXT_WITHIN_MS = 6000, // from connecting to the next member to its answer to OPEN
    TICK_MS = 100,
    N_POSTS = 256,
    FRAME_MAX_CONTROL = 64 << 10,
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

    uint32_t epoch, frame_max;
    kin_link *previous, *next;
    bool next_open;
    kin_time next_since;
    unsigned n_tries;
    uint64_t net_in, net_out; // of ring links that are closed

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

void kin_station_say_open(kin_station *s, kin_link *link, kin_proto_role role, uint32_t epoch) {
    kin_proto_message m = {.type = KIN_FRAME_OPEN};
    m.open.role = role;
    m.open.id = s->o.id;
    m.open.features = s->o.features;
    snprintf(m.open.name, sizeof m.open.name, "%s", s->o.name);
    snprintf(m.open.version, sizeof m.open.version, "%s", s->o.version);
    kin_station_say(link, epoch, &m);
}

static void refuse(kin_link *link, const char *reason) {
    kin_proto_message m = {.type = KIN_FRAME_REFUSE};
    snprintf(m.refuse.reason, sizeof m.refuse.reason, "%s", reason);
    kin_station_say(link, 0, &m);
    kin_link_close(link, reason);
}

// ---- the ring's links

static void count_bytes(kin_station *s, const kin_link *link) {
    kin_link_stats stats = kin_link_stats_now(link);
    s->net_in += stats.bytes_in;
    s->net_out += stats.bytes_out;
}

static void forget_previous(kin_station *s, const char *reason) {
    if (!s->previous) return;
    count_bytes(s, s->previous);
    kin_link_close(s->previous, reason);
    s->previous = NULL;
}

static void previous_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    kin_station *s = user;
    (void)link;
    if (frame->type != KIN_FRAME_STEP && frame->type != KIN_FRAME_FORGET) {
        forget_previous(s, "a ring link carries steps");
        return;
    }
    if (frame->epoch != s->epoch) return;
    kin_parcel *parcel = kin_parcels_take(s->o.pool, frame->length);
    if (!parcel) {
        kin_log(KIN_LOG_WARN, "%s sent more steps at once than can be", kin_link_name(link));
        forget_previous(s, "more steps on their way than there can be");
        return;
    }
    parcel->frame = *frame;
    memcpy(parcel->payload, payload, frame->length);
    kin_parcel_queue_put(s->o.in, parcel);
}

static void previous_closed(void *user, kin_link *link, const char *reason) {
    kin_station *s = user;
    (void)reason;
    if (s->previous == link) s->previous = NULL;
}

static void take_previous(kin_station *s, kin_link *link) {
    static const kin_link_callbacks callbacks = {.frame = previous_frame, .closed = previous_closed};
    forget_previous(s, "another link has taken its place");
    s->previous = link;
    kin_link_accept(link, &callbacks, s);
    kin_link_set_frame_max(link, s->frame_max);
    kin_station_say_accept(s, link);
}

static void drop_next(kin_station *s, const char *reason) {
    if (!s->next) return;
    count_bytes(s, s->next);
    kin_link_close(s->next, reason);
    s->next = NULL;
    s->next_open = false;
}

static void next_opened(void *user, kin_link *link) {
    kin_station *s = user;
    kin_station_say_open(s, link, KIN_PROTO_RING, s->epoch);
}

static void next_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    kin_station *s = user;
    kin_proto_refuse m;
    kin_err err;
    (void)link;
    if (frame->type == KIN_FRAME_ACCEPT && !s->next_open) {
        s->next_open = true;
        s->cb.next(s->user, s->epoch, true, "");
        return;
    }
    bool refused = frame->type == KIN_FRAME_REFUSE && kin_proto_decode_refuse(payload, frame->length, &m, &err) == 0;
    drop_next(s, NULL);
    s->cb.next(s->user, s->epoch, false, refused ? m.reason : "it does not answer as a member of a ring does");
}

static void next_closed(void *user, kin_link *link, const char *reason) {
    kin_station *s = user;
    if (s->next != link) return;
    s->next = NULL;
    s->next_open = false;
    s->cb.next(s->user, s->epoch, false, reason);
}

void kin_station_connect_next(kin_station *s, const kin_proto_endpoint *to) {
    static const kin_link_callbacks callbacks = {.opened = next_opened, .frame = next_frame, .closed = next_closed};
    kin_link_options o = kin_link_options_default(s->tls);
    kin_err err;
    drop_next(s, NULL);
    if (to->n_addresses == 0) {
        s->cb.next(s->user, s->epoch, false, "its address is not known");
        return;
    }
    // All steps that can be on their way may wait here for a slow network: a prompt's chunks are sent in one go. How large they
    // are is not known before the model is here; they are ours, so there is no more of it than we make.
    o.queue_max = SIZE_MAX / 2;
    s->next_since = kin_clock_now();
    const char *address = to->address[s->n_tries++ % (unsigned)to->n_addresses];
    if (kin_link_connect(&s->next, &s->loop, address, to->port, &o, &callbacks, s, &err) != 0) {
        s->next = NULL;
        s->cb.next(s->user, s->epoch, false, err.text);
    }
}

void kin_station_close_next(kin_station *s) {
    drop_next(s, NULL);
}

void kin_station_set_epoch(kin_station *s, uint32_t epoch, uint32_t frame_max) {
    if (s->epoch != epoch) {
        forget_previous(s, "the epoch is over");
        drop_next(s, NULL);
        s->n_tries = 0;
    }
    s->epoch = epoch;
    s->frame_max = frame_max < FRAME_MAX_CONTROL ? FRAME_MAX_CONTROL : frame_max;
    if (s->previous) kin_link_set_frame_max(s->previous, s->frame_max);
}

// ---- who connects

static void leave(visitor *v) {
    v->link = NULL;
}

static void take_probe(kin_station *s, kin_link *link) {
    if (kin_echo_is_full(s->echo)) {
        refuse(link, "busy: others are measuring");
        return;
    }
    kin_station_say_accept(s, link);
    kin_echo_add(s->echo, link);
}

static void sort_in(kin_station *s, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    if (open->role == KIN_PROTO_RING && epoch == s->epoch && epoch != 0)
        take_previous(s, link);
    else if (open->role == KIN_PROTO_RING)
        refuse(link, "busy: it is not in that epoch");
    else if (open->role == KIN_PROTO_PROBE)
        take_probe(s, link);
    else if (open->role == KIN_PROTO_CONTROL && s->cb.control)
        s->cb.control(s->user, link, open);
    else if (open->role == KIN_PROTO_FETCH && s->cb.fetch)
        s->cb.fetch(s->user, link, open);
    else if (open->role == KIN_PROTO_OBSERVE && s->cb.observe)
        s->cb.observe(s->user, link, open);
    else
        refuse(link, "other: this device is no head");
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
    (void)link, (void)reason;
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

static void look_at_next(kin_station *s, kin_time now) {
    static const char reason[] = "it does not answer OPEN";
    if (!s->next || s->next_open || kin_clock_ms(s->next_since, now) < NEXT_WITHIN_MS) return;
    drop_next(s, reason);
    s->cb.next(s->user, s->epoch, false, reason);
}

static void on_tick(uv_timer_t *timer) {
    kin_station *s = timer->data;
    kin_time now = kin_clock_now();
    look_at_next(s, now);
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

static void record_sent(kin_station *s, const kin_parcel *p) {
    uint64_t step;
    int round;
    if (kin_events_are_on(s->o.events) && kin_steps_peek(p, &step, &round))
        kin_events_add(s->o.events, KIN_PROTO_EVENT_SEND, step, round, p->sent_at, kin_clock_now());
}

static void flush_outgoing(void *arg) {
    kin_station *s = arg;
    kin_parcel *next;
    for (kin_parcel *p = take_outgoing(s); p; p = next) {
        next = p->next;
        if (s->next_open && p->frame.epoch == s->epoch) {
            kin_link_part part = {p->payload, p->frame.length};
            kin_link_sent sent = kin_link_send(s->next, p->frame.type, p->frame.epoch, 1, &part);
            if (sent == KIN_LINK_FULL) { // so much cannot be on its way in an epoch that works
                drop_next(s, "it takes no more");
                s->cb.next(s->user, s->epoch, false, "it takes no more");
            }
            record_sent(s, p);
        }
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
    s->frame_max = FRAME_MAX_CONTROL;
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
    forget_previous(s, "kin ends here");
    drop_next(s, "kin ends here");
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

kin_station_stats kin_station_stats_now(const kin_station *s) {
    kin_station_stats stats = {
        .net_in = s->net_in, .net_out = s->net_out, .has_previous = s->previous != NULL, .has_next = s->next_open};
    const kin_link *links[] = {s->previous, s->next};
    for (int i = 0; i < 2; i++) {
        if (!links[i]) continue;
        kin_link_stats of = kin_link_stats_now(links[i]);
        stats.net_in += of.bytes_in;
        stats.net_out += of.bytes_out;
        if (links[i] == s->next) stats.rtt_ns = of.rtt_ns;
    }
    return stats;
}
