// A hostile_peer: a thread that has the cluster's key and links to everybody, and says every message at every moment, as a device
// or as a head. It plays along far enough that others go on with it. What it does is decided by a seed.
//
// Included by test_cluster_hostile.c only, below what it takes from there: the key, the model's manifest, plan_of_all, the
// numbers.
#pragma once

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/rng.h"
#include "net/echo_responder.h"
#include "net/endpoint.h"
#include "net/listener.h"
#include "pure/proto/label.h"
#include "pure/proto/versions.h"

// A session ends after SESSION_MS; where that is too little for the least that it is to say and hear (sanitizers, a busy
// machine), later.
enum { N_SESSIONS = 8, SESSION_MS = 1000, SESSION_MS_MAX = 5000, SESSION_SAYS = 40, SESSION_HEARS = 2, N_LINKS = 10 };

typedef struct hostile_peer hostile_peer;

typedef struct tie { // a link of it
    hostile_peer *v;
    kin_link *link;
    kin_proto_role role;
    bool open, is_ours; // it has connected
} tie;

struct hostile_peer {
    bool is_head;       // else a device
    bool is_mute;       // does all that it should, but never sends a step on
    atomic_bool leaves; // a mute one, when this is set
    uint64_t seed;
    kin_rng rng;
    uint16_t port, target; // its own, and where it connects to
    atomic_bool *stop;     // set when it has gone
    pthread_t thread;

    uv_loop_t loop;
    uv_timer_t timer;
    kin_tls_ctx *tls;
    kin_listener *listener;
    tie ties[N_LINKS];
    kin_proto_id id, victim; // its own, and whom it calls
    uint32_t epoch;
    kin_time begun;
    int n_sessions, n_left;
    uint64_t n_sent, n_heard, n_plans;
    uint64_t n_sent_before, n_heard_before; // this session
};

static int pick(hostile_peer *v, int n) {
    if (v->is_mute) return n - 1;
    return (int)(kin_rng_u64(&v->rng) % (uint64_t)n);
}

static uint32_t any_epoch(hostile_peer *v) {
    int k = pick(v, 12);
    return k == 0 ? (uint32_t)kin_rng_u64(&v->rng) : k == 1 ? v->epoch - 1 : k == 2 ? v->epoch + 1 : v->epoch;
}

static void fill_step(hostile_peer *v, kin_proto_step *m) {
    static uint8_t room[4096 + 4 * 40 * 2 * N_EMBD];
    m->step = (uint64_t)pick(v, 30);
    m->round = (uint16_t)pick(v, N_ROUNDS + (pick(v, 10) == 0));
    m->flags = (uint16_t)pick(v, 16);
    if (m->round == 0 && pick(v, 4)) m->flags |= KIN_PROTO_STEP_POSITIONS;
    m->type = pick(v, 20) == 0;
    m->n_tokens = 1 + (uint32_t)pick(v, pick(v, 10) ? N_BATCH : 40);
    m->n_out = m->flags & KIN_PROTO_STEP_ALL_ROWS ? m->n_tokens : (uint32_t)pick(v, (int)m->n_tokens + 1);
    m->n_rows = pick(v, 2) ? m->n_tokens : m->n_out;
    m->n_embd = pick(v, 20) ? N_EMBD : 1 + (uint32_t)pick(v, 2 * N_EMBD);
    for (uint32_t i = 0; i < 40; i++) {
        kin_put_u32(room + 4 * i, (uint32_t)pick(v, pick(v, 30) ? N_CTX : INT32_MAX));
        kin_put_u32(room + 1024 + 4 * i, (uint32_t)pick(v, 3));
        kin_put_u32(room + 2048 + 4 * i, i);
    }
    m->pos = room;
    m->seq = room + 1024;
    m->out = room + 2048;
    m->activations = room + 4096;
}

static void fill_plan(hostile_peer *v, kin_proto_plan *m) {
    *m = plan_of_all(N_CTX, N_BATCH);
    m->next_id = m->previous_id = v->id;
    m->next.port = m->previous.port = v->port;
    if (pick(v, 8)) return;
    m->n_ctx = 1 + (uint32_t)pick(v, pick(v, 2) ? 2 * N_CTX : KIN_PROTO_MAX_CONTEXT);
    m->n_batch = 1 + (uint32_t)pick(v, pick(v, 2) ? 2 * N_BATCH : KIN_PROTO_MAX_TOKENS);
    m->n_rounds = (uint16_t)(1 + pick(v, 4));
    m->n_threads = (uint16_t)pick(v, UINT16_MAX);
    m->memory = pick(v, 3) ? 0 : (uint64_t)pick(v, 1 << 30);
    m->kv_type = (kin_proto_kv_type)pick(v, 2);
    m->mode = (kin_proto_mode)pick(v, 3);
    m->n_windows = pick(v, 3);
    for (int i = 0, at = 0; i < m->n_windows && i < m->n_rounds; i++) {
        int begin = at + pick(v, 2), end = begin + 1 + pick(v, pick(v, 6) ? 2 : KIN_PROTO_MAX_LAYERS / 2);
        m->window[i] = (kin_proto_window){(uint16_t)i, (uint16_t)begin, (uint16_t)end, (uint16_t)(pick(v, 9) == 0)};
        at = end;
    }
    if (m->n_windows > m->n_rounds) m->n_windows = m->n_rounds;
    m->next.n_addresses = pick(v, 2);
    snprintf(m->next.address[0], sizeof m->next.address[0], "%s", pick(v, 2) ? "127.0.0.1" : "nowhere.invalid");
    m->previous = m->next;
    if (pick(v, 4) == 0) m->previous_id.bytes[0]++; // one that is not there
}

static void fill_have(hostile_peer *v, kin_proto_have *m) {
    static const uint8_t bitmap[KIN_PROTO_MAX_CHUNKS / 8];
    memcpy(m->model.bytes, manifest.hash, sizeof m->model.bytes);
    m->id = v->id;
    m->n_chunks = pick(v, 4) ? manifest.n_chunks : 1 + (uint32_t)pick(v, KIN_PROTO_MAX_CHUNKS);
    m->bitmap = bitmap;
}

static void fill(hostile_peer *v, kin_proto_message *m) {
    switch (m->type) {
    case KIN_FRAME_OPEN:
        m->open.role = (kin_proto_role)pick(v, KIN_PROTO_N_ROLES);
        m->open.id = v->id;
        m->open.peer = pick(v, 2) ? v->victim : v->id;
        m->open.versions = KIN_PROTO_VERSIONS;
        kin_label_set(m->open.version, KIN_PROTO_MAX_STR, "test");
        break;
    case KIN_FRAME_ACCEPT:
        m->accept.id = v->id;
        m->accept.versions = KIN_PROTO_VERSIONS;
        break;
    case KIN_FRAME_DEVICE:
        m->device.n_threads = 1;
        m->device.memory = kin_rng_u64(&v->rng) >> (16 + pick(v, 48));
        m->device.endpoint.port = v->port;
        break;
    case KIN_FRAME_PLAN: fill_plan(v, &m->plan); break;
    case KIN_FRAME_PROGRESS:
        m->progress.total = kin_rng_u64(&v->rng) >> (16 + pick(v, 48));
        m->progress.done = m->progress.total / (1 + (uint64_t)pick(v, 3));
        m->progress.rate = (uint64_t)pick(v, 3);
        m->progress.stage = (kin_proto_stage)pick(v, 4);
        break;
    case KIN_FRAME_NEXT: m->next.is_open = pick(v, 4) > 0; break;
    case KIN_FRAME_STEP: fill_step(v, &m->step); break;
    case KIN_FRAME_FORGET: m->forget = (kin_proto_forget){pick(v, 4) - 1, pick(v, 9), 9 + pick(v, INT32_MAX - 9)}; break;
    case KIN_FRAME_HAVE: fill_have(v, &m->have); break;
    case KIN_FRAME_PROFILE:
        m->profile.facts.memory_bytes = pick(v, 2) ? NAN : (double)(kin_rng_u64(&v->rng) >> pick(v, 64));
        m->profile.facts.cpu.token_bytes_s[pick(v, KIN_N_QUANT)] = pick(v, 9) ? 1e9 : -1;
        break;
    case KIN_FRAME_MEASURE:
        m->measure.id = v->id;
        m->measure.hidden_bytes = 1 + (uint32_t)pick(v, KIN_FRAME_ECHO_BYTES);
        m->measure.endpoint.port = v->port;
        m->measure.endpoint.n_addresses = pick(v, 2);
        snprintf(m->measure.endpoint.address[0], sizeof m->measure.endpoint.address[0], "127.0.0.1");
        break;
    case KIN_FRAME_MEASURED:
        m->measured.id = v->id;
        m->measured.rtt_s = pick(v, 2) ? NAN : 1e-3;
        m->measured.to_bytes_s = pick(v, 2) ? -INFINITY : 1e8;
        break;
    case KIN_FRAME_ECHO:
        m->echo.token = kin_rng_u64(&v->rng);
        m->echo.answer_bytes = pick(v, 4) ? (uint32_t)pick(v, 4096) : KIN_FRAME_ECHO_BYTES;
        break;
    case KIN_FRAME_HASHES_WANTED: memcpy(m->hashes_wanted.model.bytes, manifest.hash, sizeof manifest.hash); break;
    case KIN_FRAME_GET:
        memcpy(m->get.model.bytes, manifest.hash, sizeof manifest.hash);
        m->get.i_chunk = pick(v, 30) == 0;
        m->get.length = 1 + (uint32_t)pick(v, 1 << 18);
        break;
    default: break;
    }
}

// Types whose messages of zeros cannot be encoded come as random bytes.
static bool is_made(kin_frame_type type) {
    return type != KIN_FRAME_HASHES && type != KIN_FRAME_DATA && type != KIN_FRAME_EVENTS && type != KIN_FRAME_REPORT;
}

static void send_message(hostile_peer *v, tie *t, kin_frame_type type, uint32_t epoch) {
    static kin_proto_message m;
    static uint8_t bytes[1 << 20];
    size_t n = (size_t)pick(v, 200), cap = kin_frame_cap(type);
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)pick(v, 256);
    if (is_made(type) && pick(v, 500)) {
        memset(&m, 0, sizeof m);
        m.type = type;
        fill(v, &m);
        uint32_t any = 1; // of the header, which the link makes anew
        if (kin_proto_encode(NULL, 0, any, &m) > sizeof bytes) return;
        n = kin_proto_encode(bytes, sizeof bytes, any, &m) - KIN_FRAME_HEADER;
        memmove(bytes, bytes + KIN_FRAME_HEADER, n);
        if (n && pick(v, 500) == 0) bytes[pick(v, (int)n)] ^= (uint8_t)(1 << pick(v, 8));
    }
    kin_link_part part = {bytes, n < cap ? n : cap};
    if (epoch == 0 && (type == KIN_FRAME_STEP || type == KIN_FRAME_FORGET || type == KIN_FRAME_PLAN)) epoch = 1;
    kin_link_send(t->link, type, epoch ? epoch : 1, 1, &part);
    v->n_sent++;
}

static void tie_opened(void *user, kin_link *link) {
    tie *t = user;
    (void)link;
    kin_proto_message m = {.type = KIN_FRAME_OPEN};
    t->open = true;
    m.open.role = t->role;
    m.open.id = t->v->id;
    m.open.peer = pick(t->v, 12) ? t->v->victim : t->v->id; // now and then somebody to be passed on to
    m.open.run = (uint64_t)pick(t->v, 2);
    m.open.versions = KIN_PROTO_VERSIONS;
    kin_label_set(m.open.name, KIN_PROTO_MAX_STR, "villain");
    kin_label_set(m.open.version, KIN_PROTO_MAX_STR, "test");
    kin_endpoint_send_message(t->link, t->v->epoch, &m);
}

static void connect_to(hostile_peer *v, kin_proto_role role);

// Nearly what it should do, so that others go on with it.
static void play_along(hostile_peer *v, tie *t, const kin_frame *frame, const uint8_t *payload) {
    static kin_proto_message m;
    kin_err err;
    if (kin_proto_decode(frame->type, payload, frame->length, &m, &err) != 0) return;
    switch (m.type) {
    case KIN_FRAME_OPEN:
        t->role = m.open.role;
        send_message(v, t, KIN_FRAME_ACCEPT, 1);
        break;
    case KIN_FRAME_ACCEPT:
        if (t->role == KIN_PROTO_CONTROL && t->is_ours && pick(v, 2) == 0) send_message(v, t, KIN_FRAME_PROFILE, 1);
        if (t->role == KIN_PROTO_CONTROL && t->is_ours) send_message(v, t, KIN_FRAME_DEVICE, 1);
        break;
    case KIN_FRAME_DEVICE:
        v->target = m.device.endpoint.port;
        send_message(v, t, KIN_FRAME_PLAN, ++v->epoch);
        break;
    case KIN_FRAME_PLAN:
        v->epoch = frame->epoch;
        v->n_plans++;
        send_message(v, t, KIN_FRAME_READY, v->epoch);
        send_message(v, t, KIN_FRAME_NEXT, v->epoch);
        connect_to(v, KIN_PROTO_RING);
        if (pick(v, 4) == 0) connect_to(v, KIN_PROTO_BACK);
        break;
    case KIN_FRAME_READY: connect_to(v, pick(v, 3) ? KIN_PROTO_RING : KIN_PROTO_BACK); break;
    case KIN_FRAME_FAILED: send_message(v, t, KIN_FRAME_PLAN, ++v->epoch); break;
    case KIN_FRAME_ECHO: kin_echo_responder_say(t->link, m.echo.token + (pick(v, 9) == 0), 0, m.echo.answer_bytes); break;
    case KIN_FRAME_STEP:
        for (int i = 0; i < N_LINKS && !v->is_mute; i++) { // round it goes, perhaps changed
            tie *to = &v->ties[i];
            bool is_next = to->is_ours ? to->role == KIN_PROTO_RING : to->role == KIN_PROTO_BACK;
            if (!to->open || !is_next || pick(v, 5) == 0) continue;
            static uint8_t bytes[1 << 16];
            size_t n = frame->length < sizeof bytes ? frame->length : sizeof bytes;
            memcpy(bytes, payload, n);
            if (pick(v, 6) == 0) bytes[pick(v, 32)] ^= (uint8_t)(1 << pick(v, 4));
            kin_link_send(to->link, KIN_FRAME_STEP, frame->epoch, 1, &(kin_link_part){bytes, n});
        }
        break;
    default: break;
    }
}

static void tie_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    tie *t = user;
    (void)link;
    t->v->n_heard++;
    if (pick(t->v, 12)) play_along(t->v, t, frame, payload);
}

static void tie_closed(void *user, kin_link *link, const char *reason) {
    tie *t = user;
    (void)link, (void)reason;
    t->link = NULL;
    t->open = false;
}

static const kin_link_callbacks tie_callbacks = {.opened = tie_opened, .frame = tie_frame, .closed = tie_closed};

static tie *free_tie(hostile_peer *v) {
    for (int i = 0; i < N_LINKS; i++) {
        if (!v->ties[i].link) return &v->ties[i];
    }
    return NULL;
}

static void connect_to(hostile_peer *v, kin_proto_role role) {
    tie *t = free_tie(v);
    kin_err err;
    kin_link_options o = kin_link_options_default(v->tls);
    if (!t || v->target == 0) return;
    o.frame_max = KIN_FRAME_CAP_LARGE;
    *t = (tie){.v = v, .role = role, .is_ours = true};
    if (kin_link_connect(&t->link, &v->loop, "127.0.0.1", v->target, &o, &tie_callbacks, t, &err) != 0) t->link = NULL;
}

static void villain_accepted(void *user, kin_link *link) {
    hostile_peer *v = user;
    tie *t = free_tie(v);
    if (!t) {
        kin_link_close(link, NULL);
        return;
    }
    *t = (tie){.v = v, .link = link, .open = true};
    kin_link_accept(link, &tie_callbacks, t);
    kin_link_set_frame_max(link, KIN_FRAME_CAP_LARGE);
}

// Mostly of those that are good on such a link from such a side. What ends everything at once comes seldom, or never.
static kin_frame_type any_type(hostile_peer *v, const tie *t) {
    static const kin_frame_type of_head[] = {KIN_FRAME_HAVE, KIN_FRAME_STATUS_WANTED, KIN_FRAME_MEASURE};
    static const kin_frame_type of_device[] = {KIN_FRAME_READY,  KIN_FRAME_NEXT,     KIN_FRAME_HAVE,
                                               KIN_FRAME_DEVICE, KIN_FRAME_PROGRESS, KIN_FRAME_STATUS,
                                               KIN_FRAME_NEXT,   KIN_FRAME_PROFILE,  KIN_FRAME_MEASURED};
    kin_frame_type type = (kin_frame_type)(1 + pick(v, KIN_FRAME_N_TYPES));
    bool final = type == KIN_FRAME_REFUSE || type == KIN_FRAME_BYE || type == KIN_FRAME_EVENTS;
    if (pick(v, 200) == 0 && !final) return type;
    if (t->role == KIN_PROTO_RING || t->role == KIN_PROTO_BACK) return pick(v, 8) ? KIN_FRAME_STEP : KIN_FRAME_FORGET;
    if (t->role == KIN_PROTO_FETCH) return KIN_FRAME_GET;
    if (t->role == KIN_PROTO_OBSERVE) return KIN_FRAME_STATUS_WANTED;
    if (t->role == KIN_PROTO_PROBE) return KIN_FRAME_ECHO;
    if (!v->is_head) return pick(v, 300) ? of_device[pick(v, 9)] : KIN_FRAME_FAILED;
    return pick(v, 100) ? of_head[pick(v, 3)] : pick(v, 4) ? KIN_FRAME_PLAN : KIN_FRAME_END;
}

// A device comes back late to a head that it has lost: a head keeps those links.
static void end_session(hostile_peer *v, bool all) {
    for (int i = 0; i < N_LINKS; i++) {
        if (v->is_head && !all && !v->ties[i].is_ours) continue;
        kin_link_close(v->ties[i].link, NULL);
        v->ties[i] = (tie){0};
    }
}

static void begin_session(hostile_peer *v) {
    kin_rng_seed(&v->rng, v->seed + (uint64_t)v->n_sessions++);
    v->begun = kin_clock_now();
    v->n_sent_before = v->n_sent;
    v->n_heard_before = v->n_heard;
    v->id.bytes[0] = (uint8_t)(1 + (pick(v, 4) == 0)); // as a rule one that was there before
    if (!v->is_head && pick(v, 3) == 0) connect_to(v, KIN_PROTO_CONTROL);
}

static bool has_tie(const hostile_peer *v, kin_proto_role role) {
    for (int i = 0; i < N_LINKS; i++) {
        if (v->ties[i].link && v->ties[i].is_ours && v->ties[i].role == role) return true;
    }
    return false;
}

static bool session_is_over(const hostile_peer *v) {
    double ms = kin_clock_ms(v->begun, kin_clock_now());
    bool has_said = v->n_sent - v->n_sent_before >= SESSION_SAYS && v->n_heard - v->n_heard_before >= SESSION_HEARS;
    return ms > (has_said ? SESSION_MS : SESSION_MS_MAX);
}

static void villain_tick(uv_timer_t *timer) {
    hostile_peer *v = timer->data;
    bool over = v->is_mute ? atomic_load(&v->leaves) : session_is_over(v);
    if (over) {
        bool last = --v->n_left == 0;
        end_session(v, last);
        if (last) {
            kin_listener_close(v->listener);
            uv_close((uv_handle_t *)timer, NULL);
            return;
        }
        begin_session(v);
    }
    if (v->is_mute) {
        if (!has_tie(v, KIN_PROTO_CONTROL)) connect_to(v, KIN_PROTO_CONTROL);
        return;
    }
    if (pick(v, 200) == 0) connect_to(v, (kin_proto_role)pick(v, KIN_PROTO_N_ROLES));
    for (int role = 0; role < 3 && pick(v, 10) == 0; role++) {
        if (!(v->is_head && role == KIN_PROTO_CONTROL) && !has_tie(v, (kin_proto_role)role)) connect_to(v, (kin_proto_role)role);
    }
    for (int i = 0; i < 30; i++) {
        tie *t = &v->ties[pick(v, N_LINKS)];
        if (!t->link || !t->open || (t->role != KIN_PROTO_CONTROL && !t->is_ours) || pick(v, 4)) continue;
        kin_frame_type type = any_type(v, t);
        send_message(v, t, type, type == KIN_FRAME_PLAN ? ++v->epoch : any_epoch(v));
        if (pick(v, 2000) == 0) {
            kin_link_close(t->link, "so");
            *t = (tie){0};
        }
    }
}

static void *villain_run(void *arg) {
    hostile_peer *v = arg;
    uv_run(&v->loop, UV_RUN_DEFAULT);
    uv_loop_close(&v->loop);
    kin_tls_ctx_close(v->tls);
    if (v->stop) atomic_store(v->stop, true);
    return NULL;
}

static void open_villain(hostile_peer *v) {
    kin_err err;
    v->n_left = v->is_mute ? 1 : N_SESSIONS;
    v->epoch = 1;
    uv_loop_init(&v->loop);
    uv_timer_init(&v->loop, &v->timer);
    v->timer.data = v;
    assert_int_equal(kin_tls_ctx_open(&v->tls, key.bytes, &err), 0);
    kin_listener_options lo = kin_listener_options_default(v->tls);
    assert_int_equal(kin_listener_open(&v->listener, &v->loop, "127.0.0.1", v->port, &lo, villain_accepted, v, &err), 0);
    v->port = kin_listener_port(v->listener);
    begin_session(v);
    uv_timer_start(&v->timer, villain_tick, 2, 2);
    assert_int_equal(pthread_create(&v->thread, NULL, villain_run, v), 0);
}

static void join_villain(hostile_peer *v) {
    pthread_join(v->thread, NULL);
    print_message("%d sessions, %llu messages sent, %llu heard, %llu plans\n", v->n_sessions, (unsigned long long)v->n_sent,
                  (unsigned long long)v->n_heard, (unsigned long long)v->n_plans);
    assert_true(v->is_mute || (v->n_sent > 300 && v->n_heard > 10));
}
