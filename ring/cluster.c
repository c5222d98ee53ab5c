#include "ring/cluster.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "pure/proto/label.h"
#include "pure/proto/roster.h"
#include "ring/alone.h"
#include "ring/discovery.h"
#include "ring/part.h"
#include "ring/share.h"
#include "ring/station.h"
#include "ring/wire.h"
#include "sys/memory.h"

enum {
    MAX_PEERS = KIN_ROSTER_DEVICES + 8, // control links, with those that are about to be refused
    N_PARCELS = 2 * KIN_STEPS_ON_THEIR_WAY + 16,
    LOOK_MS = 100,
    RECONNECT_TICKS = 3, // of 100 ms, before the ring link is tried again
    MAX_SEQUENCES = 1 << 16,
};

// A device's control link.
typedef struct peer {
    struct kin_cluster *cluster;
    kin_link *link; // NULL: free place
    uint32_t number;
    kin_proto_device facts;
    uint8_t *have; // the last HAVE of it, as it goes to others
    size_t n_have;
} peer;

// A plan, as the planner gave it.
typedef struct planned {
    kin_ring_plan ring;
    kin_proto_id ids[KIN_ROUNDS_MAX_MEMBERS]; // of the members but the head
    kin_member_windows windows[KIN_ROUNDS_MAX_MEMBERS];
    int n_rounds;
} planned;

// What the computing thread must know of the epoch.
typedef struct news {
    uint32_t epoch; // 0: none
    bool up;
    kin_member_windows own;
    uint64_t own_memory;
    int n_rounds, n_members;
    char broken[KIN_ROSTER_SENTENCE]; // why the last request was ended
    char doing[KIN_ROSTER_SENTENCE];
} news;

struct kin_cluster {
    kin_cluster_options o;
    kin_parcels *pool;
    kin_parcel_queue *in;
    kin_station *station;

    // The loop's thread.
    kin_roster *roster;
    kin_discovery *discovery;
    kin_share *share;
    kin_stock *stock;
    peer peers[MAX_PEERS];
    uint32_t next_number;
    planned *plan, *asked; // in force; the last answer of the planner
    int n_ticks_to_reconnect;
    bool wants_ring; // the roster wants the head's own ring link

    pthread_mutex_t mutex; // over `news`
    pthread_cond_t changed;
    news news;

    // The computing thread.
    news *seen; // a copy of the news that the shard is opened for
    kin_shard *shard;
    kin_part *part;
    kin_alone *alone;
    kin_wire wire;
    kin_head *head;
    uint32_t epoch;
    bool in_request;
};

static void act(kin_cluster *c, const kin_roster_event *event);

// ---- peers

static peer *peer_of_number(kin_cluster *c, uint32_t number) {
    for (int i = 0; i < MAX_PEERS; i++) {
        if (c->peers[i].link && c->peers[i].number == number) return &c->peers[i];
    }
    return NULL;
}

static void forget_peer(peer *p) {
    p->link = NULL;
    free(p->have);
    p->have = NULL;
}

static void close_peer(peer *p, const char *reason) {
    if (!p) return;
    kin_link_close(p->link, reason);
    forget_peer(p);
}

// Where others reach a device: where it says, else where the head sees it.
static kin_proto_endpoint endpoint_of(const peer *p) {
    kin_proto_endpoint e = p->facts.endpoint;
    if (e.n_addresses == 0) snprintf(e.address[e.n_addresses++], sizeof e.address[0], "%s", kin_link_address(p->link));
    return e;
}

// What one device has may be fetched from it by the others.
static void relay_have(kin_cluster *c, peer *from, kin_proto_have *have) {
    const kin_roster_device *d = NULL;
    for (int i = 0; i < KIN_ROSTER_DEVICES && !d; i++) {
        const kin_roster_device *one = kin_roster_device_at(c->roster, i);
        if (one && one->link == from->number) d = one;
    }
    if (!d || memcmp(have->model.bytes, c->o.manifest->hash, sizeof have->model.bytes) != 0) return;
    have->id = d->id;
    have->endpoint = endpoint_of(from);
    size_t n = kin_proto_size_have(have);
    uint8_t *bytes = malloc(n);
    if (!bytes) return;
    kin_proto_encode_have(bytes, n, have);
    free(from->have);
    from->have = bytes;
    from->n_have = n;
    kin_link_part part = {bytes, n};
    for (int i = 0; i < MAX_PEERS; i++) {
        if (c->peers[i].link && &c->peers[i] != from) kin_link_send(c->peers[i].link, KIN_FRAME_HAVE, 0, 1, &part);
    }
}

static void tell_haves(kin_cluster *c, const peer *to) {
    for (int i = 0; i < MAX_PEERS; i++) {
        const peer *p = &c->peers[i];
        if (!p->link || p == to || !p->have) continue;
        kin_link_part part = {p->have, p->n_have};
        kin_link_send(to->link, KIN_FRAME_HAVE, 0, 1, &part);
    }
}

// ---- what devices say

static void take_message(kin_cluster *c, peer *p, uint32_t epoch, kin_proto_message *m) {
    kin_roster_event e = {.link = p->number, .epoch = epoch};
    switch (m->type) {
    case KIN_FRAME_DEVICE:
        p->facts = m->device;
        e.kind = KIN_ROSTER_FACTS;
        e.facts = &m->device;
        break;
    case KIN_FRAME_PROGRESS:
        e.kind = KIN_ROSTER_PROGRESS;
        e.progress = &m->progress;
        break;
    case KIN_FRAME_READY: e.kind = KIN_ROSTER_READY; break;
    case KIN_FRAME_FAILED:
        e.kind = KIN_ROSTER_FAILED;
        e.stage = m->failed.stage;
        e.reason = m->failed.reason;
        break;
    case KIN_FRAME_NEXT:
        e.kind = m->next.is_open ? KIN_ROSTER_RING_OPENED : KIN_ROSTER_RING_CLOSED;
        e.reason = m->next.reason;
        break;
    case KIN_FRAME_HAVE: relay_have(c, p, &m->have); return;
    case KIN_FRAME_STATUS: return;
    default:
        kin_log(KIN_LOG_WARN, "%s sent %s, which is not for a head", kin_link_name(p->link), kin_frame_name(m->type));
        return;
    }
    act(c, &e);
}

static void peer_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    peer *p = user;
    kin_cluster *c = p->cluster;
    uint32_t number = p->number;
    kin_err err;
    kin_proto_message *m = malloc(sizeof *m);
    if (!m) return;
    if (kin_proto_decode(frame->type, payload, frame->length, m, &err) == 0) {
        take_message(c, p, frame->epoch, m);
    } else {
        kin_log(KIN_LOG_WARN, "%s: %s", kin_link_name(link), err.text);
        close_peer(p, err.text);
        act(c, &(kin_roster_event){.kind = KIN_ROSTER_LOST, .link = number, .reason = err.text});
    }
    free(m);
}

static void peer_closed(void *user, kin_link *link, const char *reason) {
    peer *p = user;
    (void)link;
    uint32_t number = p->number;
    forget_peer(p);
    act(p->cluster, &(kin_roster_event){.kind = KIN_ROSTER_LOST, .link = number, .reason = reason});
}

static void on_control(void *user, kin_link *link, const kin_proto_open *open) {
    static const kin_link_callbacks callbacks = {.frame = peer_frame, .closed = peer_closed};
    kin_cluster *c = user;
    peer *p = NULL;
    for (int i = 0; i < MAX_PEERS && !p; i++) p = c->peers[i].link ? NULL : &c->peers[i];
    if (!p) {
        kin_link_close(link, "busy: too many at the door");
        return;
    }
    *p = (peer){.cluster = c, .link = link, .number = ++c->next_number};
    kin_link_accept(link, &callbacks, p);
    kin_link_set_frame_max(link, KIN_FRAME_CAP_LARGE);
    kin_roster_hello hello = {.id = open->id, .name = open->name, .version = open->version, .features = open->features};
    act(c, &(kin_roster_event){.kind = KIN_ROSTER_JOINS, .link = p->number, .hello = &hello});
}

static void on_fetch(void *user, kin_link *link, const kin_proto_open *open) {
    kin_cluster *c = user;
    (void)open;
    kin_station_say_accept(c->station, link);
    kin_share_accept(c->share, link);
}

// ---- planning

static int lay_out(kin_cluster *c, const kin_roster_action *ask, planned *p, kin_err *err) {
    kin_candidate candidates[KIN_ROUNDS_MAX_MEMBERS];
    kin_proto_id ids[KIN_ROUNDS_MAX_MEMBERS];
    int n = 0;
    for (int i = 0; i < ask->n_devices; i++) {
        const kin_roster_device *d = kin_roster_device_at(c->roster, ask->devices[i]);
        candidates[n] = (kin_candidate){.name = d->name, .memory = d->facts.memory};
        ids[n++] = d->id;
    }
    kin_memory memory = kin_memory_read();
    uint64_t own = memory.available + memory.own;
    candidates[n++] =
        (kin_candidate){.name = c->o.name, .memory = c->o.shard.memory && c->o.shard.memory < own ? c->o.shard.memory : own};
    if (c->o.plan(c->o.plan_user, candidates, n, &p->ring, err) != 0) return KIN_FAIL;
    for (int i = 0; i < p->ring.n_members - 1; i++) p->ids[i] = ids[p->ring.candidate[i]];
    p->n_rounds = kin_rounds_lay_out(p->ring.shares, p->ring.n_members, c->o.model->hp.n_layer, p->windows, err);
    return p->n_rounds < 0 ? KIN_FAIL : 0;
}

// What a member has to do, in bytes that the roster compares.
static size_t stage_bytes(const planned *p, int i, uint8_t *bytes) {
    const kin_member_windows *w = &p->windows[i];
    size_t n = 0;
    memcpy(bytes + n, &p->n_rounds, sizeof p->n_rounds);
    n += sizeof p->n_rounds;
    memcpy(bytes + n, &p->ring.memory[i], sizeof p->ring.memory[i]);
    n += sizeof p->ring.memory[i];
    memcpy(bytes + n, w->windows.at, (size_t)w->windows.n * sizeof w->windows.at[0]);
    n += (size_t)w->windows.n * sizeof w->windows.at[0];
    memcpy(bytes + n, w->rounds, (size_t)w->windows.n * sizeof w->rounds[0]);
    return n + (size_t)w->windows.n * sizeof w->rounds[0];
}

enum { STAGE_BYTES = 16 + KIN_MAX_WINDOWS * (int)(sizeof(kin_window) + sizeof(int)) };

static void answer(kin_cluster *c, const kin_roster_action *ask) {
    kin_err err;
    planned *p = c->asked;
    if (lay_out(c, ask, p, &err) != 0) {
        act(c, &(kin_roster_event){.kind = KIN_ROSTER_NO_PLAN, .question = ask->question, .reason = err.text});
        return;
    }
    int n = p->ring.n_members - 1;
    kin_roster_stage stages[KIN_ROUNDS_MAX_MEMBERS];
    uint8_t *bytes = malloc((size_t)(n + 1) * STAGE_BYTES);
    if (!bytes) return;
    for (int i = 0; i < n; i++) {
        uint8_t *at = bytes + (size_t)i * STAGE_BYTES;
        stages[i] = (kin_roster_stage){.id = p->ids[i], .windows = at, .n_windows = stage_bytes(p, i, at)};
    }
    kin_roster_plan plan = {.n_stages = n, .stages = stages};
    act(c, &(kin_roster_event){.kind = KIN_ROSTER_PLANNED, .question = ask->question, .plan = &plan});
    free(bytes);
}

// The plan that was asked for is in force from now on.
static void take_asked(kin_cluster *c) {
    planned *before = c->plan;
    c->plan = c->asked;
    c->asked = before;
}

static const peer *member_at(kin_cluster *c, int i) {
    for (int k = 0; k < KIN_ROSTER_DEVICES; k++) {
        const kin_roster_device *d = kin_roster_device_at(c->roster, k);
        if (d && kin_proto_id_equal(&d->id, &c->plan->ids[i])) return peer_of_number(c, d->link);
    }
    return NULL;
}

static void fill_windows(kin_proto_plan *m, const kin_member_windows *w) {
    m->n_windows = w->windows.n;
    for (int i = 0; i < w->windows.n; i++) {
        const kin_window *window = &w->windows.at[i];
        m->window[i] = (kin_proto_window){.round = (uint16_t)w->rounds[i],
                                          .layer_begin = (uint16_t)window->layer_begin,
                                          .layer_end = (uint16_t)window->layer_end,
                                          .n_gpu = (uint16_t)window->n_gpu_layers};
    }
}

// Whom the i-th member sends to. For the last one that is the head, where it reached it unless the head advertises addresses.
static void fill_next(kin_cluster *c, kin_proto_plan *m, int i) {
    if (i + 1 < c->plan->ring.n_members - 1) {
        const peer *next = member_at(c, i + 1);
        m->next_id = c->plan->ids[i + 1];
        if (next) m->next = endpoint_of(next);
        return;
    }
    m->next_id = c->o.id;
    m->next.port = kin_station_port(c->station);
    for (int k = 0; k < c->o.n_advertise; k++) {
        kin_label_set(m->next.address[m->next.n_addresses++], KIN_PROTO_MAX_STR, c->o.advertise[k]);
    }
}

static void send_plan(kin_cluster *c, const kin_roster_action *a) {
    const kin_roster_device *d = kin_roster_device_at(c->roster, a->device);
    peer *p = peer_of_number(c, a->link);
    int i = 0;
    while (i < c->plan->ring.n_members - 1 && !kin_proto_id_equal(&c->plan->ids[i], &d->id)) i++;
    kin_proto_message *m = calloc(1, sizeof *m);
    if (!p || !m || i == c->plan->ring.n_members - 1) {
        free(m);
        return;
    }
    const kin_shard_options *so = &c->o.shard;
    kin_proto_plan *plan = &m->plan;
    m->type = KIN_FRAME_PLAN;
    memcpy(plan->model.bytes, c->o.manifest->hash, sizeof plan->model.bytes);
    plan->n_files = c->o.manifest->n_files;
    for (int k = 0; k < plan->n_files; k++) plan->file_size[k] = c->o.manifest->files[k].size;
    plan->n_ctx = (uint32_t)so->n_ctx;
    plan->n_batch = (uint32_t)(so->n_batch < so->n_ctx ? so->n_batch : so->n_ctx);
    plan->n_seq = (uint16_t)(so->n_ctx < MAX_SEQUENCES - 1 ? so->n_ctx : MAX_SEQUENCES - 1);
    plan->kv_type = so->kv_type == GGML_TYPE_Q8_0 ? KIN_PROTO_KV_Q8_0 : KIN_PROTO_KV_F16;
    plan->wire_type = c->o.wire_type;
    plan->flags = (so->flash ? KIN_PROTO_PLAN_FLASH : 0) | (c->o.repack ? KIN_PROTO_PLAN_REPACK : 0);
    plan->mode = so->mode == KIN_STREAM_MMAP       ? KIN_PROTO_MMAP
                 : so->mode == KIN_STREAM_WILLNEED ? KIN_PROTO_WILLNEED
                                                   : KIN_PROTO_STREAM;
    plan->memory = c->plan->ring.memory[i];
    plan->n_threads = (uint16_t)c->o.n_threads_hint;
    plan->n_rounds = (uint16_t)c->plan->n_rounds;
    fill_windows(plan, &c->plan->windows[i]);
    fill_next(c, plan, i);
    kin_station_say(p->link, a->epoch, m);
    tell_haves(c, p);
    free(m);
}

// ---- the roster's wishes

static void connect_ring(kin_cluster *c) {
    const peer *first = c->plan->ring.n_members > 1 ? member_at(c, 0) : NULL;
    if (!first) return;
    kin_proto_endpoint to = endpoint_of(first);
    kin_station_connect_next(c->station, &to);
}

static void say_end(kin_cluster *c, const kin_roster_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_END};
    peer *p = peer_of_number(c, a->link);
    kin_label_set(m.end.reason, KIN_PROTO_MAX_REASON, a->text);
    if (p) kin_station_say(p->link, a->epoch, &m);
}

static void refuse(kin_cluster *c, const kin_roster_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_REFUSE};
    peer *p = peer_of_number(c, a->link);
    if (!p) return;
    kin_label_set(m.refuse.reason, KIN_PROTO_MAX_REASON, a->text);
    kin_station_say(p->link, 0, &m);
    close_peer(p, NULL);
}

static void break_request(kin_cluster *c, const char *why) {
    pthread_mutex_lock(&c->mutex);
    snprintf(c->news.broken, sizeof c->news.broken, "%s", why);
    pthread_mutex_unlock(&c->mutex);
    kin_parcel_queue_interrupt(c->in, true);
}

static void take_action(kin_cluster *c, const kin_roster_action *a) {
    switch (a->kind) {
    case KIN_ROSTER_ACCEPT: {
        peer *p = peer_of_number(c, a->link);
        if (p) kin_station_say_accept(c->station, p->link);
        break;
    }
    case KIN_ROSTER_REFUSE: refuse(c, a); break;
    case KIN_ROSTER_DROP: close_peer(peer_of_number(c, a->link), a->text); break;
    case KIN_ROSTER_ASK: answer(c, a); break;
    case KIN_ROSTER_SEND_PLAN: send_plan(c, a); break;
    case KIN_ROSTER_SEND_END: say_end(c, a); break;
    case KIN_ROSTER_OPEN_RING:
        c->wants_ring = true;
        connect_ring(c);
        break;
    case KIN_ROSTER_CLOSE_RING:
        c->wants_ring = false;
        kin_station_close_next(c->station);
        break;
    case KIN_ROSTER_UP: break; // the news say it
    case KIN_ROSTER_FAIL: break_request(c, a->text); break;
    case KIN_ROSTER_LOG: kin_log(a->level, "%s", a->text); break;
    case KIN_ROSTER_STATUS: break;
    }
}

// What devices are busy with, for whoever waits for them.
static void describe(kin_cluster *c, char *buf, size_t n) {
    kin_roster_doing(c->roster, buf, n);
    for (int i = 0; i < KIN_ROSTER_DEVICES; i++) {
        static const char *const stages[] = {"hashing", "fetching", "packing", "loading"};
        const kin_roster_device *d = kin_roster_device_at(c->roster, i);
        size_t used = strlen(buf);
        if (!d || d->state != KIN_DEVICE_PREPARING || d->progress.total == 0 || used + 1 >= n) continue;
        const kin_proto_progress *p = &d->progress;
        snprintf(buf + used, n - used, "; %s: %s %d %%", d->name, stages[p->stage], (int)(100 * p->done / p->total));
        used = strlen(buf);
        if (p->rate && used + 1 < n) {
            snprintf(buf + used, n - used, " at %.0f MB/s, %.0f s left", (double)p->rate / 1e6,
                     (double)(p->total - p->done) / (double)p->rate);
        }
    }
}

// For the computing thread.
static void publish(kin_cluster *c) {
    uint32_t epoch = kin_roster_epoch(c->roster);
    if (!kin_roster_takes(c->roster, epoch)) epoch = 0;
    char doing[KIN_ROSTER_SENTENCE];
    describe(c, doing, sizeof doing);
    pthread_mutex_lock(&c->mutex);
    if (epoch && c->news.epoch != epoch) {
        int own = c->plan->ring.n_members - 1;
        c->news.own = c->plan->windows[own];
        c->news.own_memory = c->plan->ring.memory[own];
        c->news.n_rounds = c->plan->n_rounds;
        c->news.n_members = c->plan->ring.n_members;
    }
    c->news.epoch = epoch;
    c->news.up = kin_roster_state_now(c->roster) == KIN_ROSTER_SERVING;
    memcpy(c->news.doing, doing, sizeof doing);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

static void enter_epoch(kin_cluster *c) {
    uint32_t epoch = kin_roster_epoch(c->roster);
    bool in_force = kin_roster_takes(c->roster, epoch);
    size_t frame_max = kin_proto_step_size_max((uint32_t)c->o.shard.n_batch, (uint32_t)c->o.model->hp.n_embd, c->o.wire_type);
    kin_station_set_epoch(c->station, in_force ? epoch : 0,
                          frame_max > KIN_FRAME_CAP_STEP ? KIN_FRAME_CAP_STEP : (uint32_t)frame_max);
}

// One step of the roster. Actions may cause events, so they are copied: the roster's own live until its next step.
static void act(kin_cluster *c, const kin_roster_event *event) {
    uint32_t epoch_before = kin_roster_epoch(c->roster);
    const kin_roster_actions *now = kin_roster_step(c->roster, kin_clock_now(), event);
    kin_roster_actions *actions = malloc(sizeof *actions);
    kin_assert(actions);
    *actions = *now;
    if (kin_roster_epoch(c->roster) != epoch_before) take_asked(c);
    enter_epoch(c);
    for (int i = 0; i < actions->n; i++) take_action(c, &actions->at[i]);
    if (event->kind != KIN_ROSTER_TICK || actions->n > 0) publish(c);
    free(actions);
}

// ---- the station's callbacks

static void on_tick(void *user) {
    kin_cluster *c = user;
    act(c, &(kin_roster_event){.kind = KIN_ROSTER_TICK});
    if (c->n_ticks_to_reconnect > 0 && --c->n_ticks_to_reconnect == 0 && c->wants_ring) connect_ring(c);
}

static void on_next(void *user, uint32_t epoch, bool is_open, const char *reason) {
    kin_cluster *c = user;
    if (!is_open) c->n_ticks_to_reconnect = RECONNECT_TICKS;
    act(c, &(kin_roster_event){.kind = is_open ? KIN_ROSTER_RING_OPENED : KIN_ROSTER_RING_CLOSED,
                               .link = KIN_ROSTER_OWN,
                               .epoch = epoch,
                               .reason = reason});
}

static void open_share(kin_cluster *c) {
    kin_err err;
    kin_store *store = NULL;
    if (kin_share_open(&c->share, kin_station_loop(c->station), NULL, &err) != 0 ||
        kin_store_open_files(&store, c->o.manifest, c->o.paths, &err) != 0 ||
        kin_stock_new(&c->stock, kin_station_loop(c->station), store, &err) != 0) {
        kin_log(KIN_LOG_WARN, "devices cannot fetch the model from here: %s", err.text);
        if (!c->stock) kin_store_close(store);
        return;
    }
    kin_share_set_stock(c->share, c->stock);
}

static void begin(void *arg) {
    kin_cluster *c = arg;
    kin_err err;
    open_share(c);
    if (!c->o.hidden) {
        kin_discovery_options o = {.port = KIN_DISCOVERY_PORT};
        memcpy(o.key, c->o.key.bytes, sizeof o.key);
        kin_discovery_self self = {.id = c->o.id, .name = c->o.name, .port = kin_station_port(c->station)};
        if (kin_discovery_answer(&c->discovery, kin_station_loop(c->station), &o, &self, &err) != 0)
            kin_log(KIN_LOG_WARN, "devices cannot find this head by themselves: %s; give them its address", err.text);
    }
    on_tick(c);
    publish(c);
}

static void end(void *arg) {
    kin_cluster *c = arg;
    for (int i = 0; i < MAX_PEERS; i++) {
        if (c->peers[i].link) close_peer(&c->peers[i], "the head was stopped");
    }
    kin_share_close(c->share);
    kin_stock_let_go(c->stock);
    kin_discovery_close(c->discovery);
}

// ---- the computing thread

static void out(void *user, kin_parcel *parcel) {
    kin_cluster *c = user;
    kin_station_send(c->station, parcel);
}

static void broken(void *user, kin_err *err) {
    kin_cluster *c = user;
    pthread_mutex_lock(&c->mutex);
    kin_err_set(err, "%s", c->news.broken[0] ? c->news.broken : "the ring is broken");
    pthread_mutex_unlock(&c->mutex);
}

static kin_steps steps_of(const kin_cluster *c, int n_rounds) {
    return (kin_steps){.n_embd = c->o.model->hp.n_embd,
                       .n_batch = c->o.shard.n_batch,
                       .n_seq = MAX_SEQUENCES,
                       .n_rounds = n_rounds,
                       .type = c->o.wire_type};
}

static void close_own(kin_cluster *c) {
    kin_part_close(c->part);
    kin_shard_close(c->shard);
    c->part = NULL;
    c->shard = NULL;
}

static bool same_work(const news *a, const news *b) {
    const kin_windows *x = &a->own.windows, *y = &b->own.windows;
    return a->n_rounds == b->n_rounds && a->own_memory == b->own_memory && x->n == y->n &&
           memcmp(x->at, y->at, (size_t)x->n * sizeof x->at[0]) == 0 &&
           memcmp(a->own.rounds, b->own.rounds, (size_t)x->n * sizeof a->own.rounds[0]) == 0;
}

// The head's own part of the plan.
static int open_own(kin_cluster *c, const news *n, kin_err *err) {
    if (c->shard && same_work(c->seen, n)) {
        kin_part_reset(c->part);
        return 0;
    }
    close_own(c);
    kin_shard_options so = c->o.shard;
    so.windows = n->own.windows;
    so.output = true;
    so.n_steps = KIN_STEPS_ON_THEIR_WAY;
    if (n->own_memory && (!so.memory || n->own_memory < so.memory)) so.memory = n->own_memory;
    if (kin_shard_open(&c->shard, c->o.model, c->o.devices, &so, err) != 0) return KIN_FAIL;
    kin_part_options po = {.shard = n->own.windows.n ? c->shard : NULL,
                           .windows = n->own.windows,
                           .rounds = n->own.rounds,
                           .n_rounds = n->n_rounds,
                           .n_layer = c->o.model->hp.n_layer,
                           .n_steps = KIN_STEPS_ON_THEIR_WAY};
    return kin_part_open(&c->part, &po, err);
}

static int enter(kin_cluster *c, const news *n, kin_err *err) {
    if (open_own(c, n, err) != 0) return kin_err_prefix(err, "the head's own layers");
    *c->seen = *n;
    c->epoch = n->epoch;
    kin_wire_init(&c->wire, &(kin_wire_options){.steps = steps_of(c, n->n_rounds),
                                                .epoch = n->epoch,
                                                .pool = c->pool,
                                                .in = c->in,
                                                .stop = c->o.stop,
                                                .out = out,
                                                .broken = broken,
                                                .user = c});
    kin_head_ring ring = {.port = n->n_members > 1 ? kin_wire_port(&c->wire) : kin_alone_port(c->alone),
                          .part = c->part,
                          .shard = c->shard,
                          .n_rounds = n->n_rounds,
                          .n_members = n->n_members};
    if (c->head) {
        kin_head_set_ring(c->head, &ring);
        return 0;
    }
    return kin_head_open(&c->head, c->o.model, &ring, c->o.shard.n_batch, KIN_STEPS_ON_THEIR_WAY, err);
}

static void wait_for_news(kin_cluster *c, news *n) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&c->mutex);
    pthread_cond_timedwait(&c->changed, &c->mutex, &until);
    *n = c->news;
    pthread_mutex_unlock(&c->mutex);
}

static void on_begins(void *arg) {
    act(arg, &(kin_roster_event){.kind = KIN_ROSTER_BEGINS});
}

static void on_ends(void *arg) {
    kin_cluster *c = arg;
    act(c, &(kin_roster_event){.kind = KIN_ROSTER_ENDS, .epoch = kin_roster_epoch(c->roster)});
}

int kin_cluster_begin(kin_cluster *c, kin_err *err) {
    char said[KIN_ROSTER_SENTENCE] = "";
    news *n = malloc(sizeof *n);
    int rc = n ? 0 : kin_err_set(err, "out of memory");
    pthread_mutex_lock(&c->mutex);
    if (n) *n = c->news;
    pthread_mutex_unlock(&c->mutex);
    while (rc == 0 && !(n->up && n->epoch && n->epoch == c->epoch)) {
        if (c->o.stop && atomic_load(c->o.stop)) {
            rc = kin_err_set(err, "stopped");
        } else if (n->epoch && n->epoch != c->epoch) {
            rc = enter(c, n, err);
        } else {
            if (c->o.status && strcmp(said, n->doing) != 0) c->o.status(c->o.status_user, n->doing);
            memcpy(said, n->doing, sizeof said);
            wait_for_news(c, n);
        }
    }
    free(n);
    if (rc != 0) return KIN_FAIL;
    kin_parcel *parcel;
    kin_parcel_queue_interrupt(c->in, false);
    while ((parcel = kin_parcel_queue_take(c->in, 0))) kin_parcels_give(c->pool, parcel);
    kin_station_call(c->station, on_begins, c);
    c->in_request = true;
    return 0;
}

void kin_cluster_end(kin_cluster *c) {
    if (!c->in_request) return;
    c->in_request = false;
    kin_station_call(c->station, on_ends, c);
}

kin_head *kin_cluster_head(kin_cluster *c) {
    return c->head;
}

kin_shard *kin_cluster_shard(kin_cluster *c) {
    return c->shard;
}

int kin_cluster_n_rounds(const kin_cluster *c) {
    return c->seen->n_rounds;
}

int kin_cluster_n_members(const kin_cluster *c) {
    return c->seen->n_members;
}

uint16_t kin_cluster_port(const kin_cluster *c) {
    return kin_station_port(c->station);
}

// ---- opening and closing

static int open_roster(kin_cluster *c, kin_err *err) {
    kin_roster_options ro = kin_roster_options_default();
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    ro.id = c->o.id;
    snprintf(ro.version, sizeof ro.version, "%s", c->o.version);
    memcpy(ro.model.bytes, c->o.manifest->hash, sizeof ro.model.bytes);
    ro.epoch_first = (uint32_t)((uint64_t)wall.tv_sec * 4 + (uint64_t)wall.tv_nsec / 250000000);
    ro.n_expected = c->o.n_expected;
    c->roster = kin_roster_new(&ro, kin_clock_now());
    return c->roster ? 0 : kin_err_set(err, "out of memory");
}

static int open_all(kin_cluster *c, kin_err *err) {
    c->plan = calloc(1, sizeof *c->plan);
    c->asked = calloc(1, sizeof *c->asked);
    c->seen = calloc(1, sizeof *c->seen);
    if (!c->plan || !c->asked || !c->seen) return kin_err_set(err, "out of memory");
    if (kin_parcels_open(&c->pool, N_PARCELS, err) != 0 || kin_parcel_queue_open(&c->in, err) != 0) return KIN_FAIL;
    if (kin_alone_open(&c->alone, c->o.shard.n_batch, c->o.model->hp.n_embd, KIN_STEPS_ON_THEIR_WAY, err) != 0) return KIN_FAIL;
    if (open_roster(c, err) != 0) return KIN_FAIL;
    kin_station_options so = {.id = c->o.id,
                              .name = c->o.name,
                              .version = c->o.version,
                              .key = c->o.key,
                              .listen = c->o.listen,
                              .port = c->o.port,
                              .pool = c->pool,
                              .in = c->in};
    static const kin_station_callbacks callbacks = {.tick = on_tick, .control = on_control, .fetch = on_fetch, .next = on_next};
    if (kin_station_open(&c->station, &so, &callbacks, c, err) != 0) return KIN_FAIL;
    return kin_station_start(c->station, begin, c, err);
}

int kin_cluster_open(kin_cluster **out_cluster, const kin_cluster_options *o, kin_err *err) {
    *out_cluster = NULL;
    kin_cluster *c = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "out of memory");
    c->o = *o;
    if (c->o.shard.n_batch > c->o.shard.n_ctx) c->o.shard.n_batch = c->o.shard.n_ctx;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    if (open_all(c, err) != 0) {
        kin_cluster_close(c);
        return KIN_FAIL;
    }
    *out_cluster = c;
    return 0;
}

void kin_cluster_close(kin_cluster *c) {
    if (!c) return;
    kin_station_close(c->station, end, c);
    kin_parcel *parcel;
    if (c->in) kin_parcel_queue_interrupt(c->in, false);
    while (c->in && (parcel = kin_parcel_queue_take(c->in, 0))) kin_parcels_give(c->pool, parcel);
    kin_head_close(c->head);
    close_own(c);
    kin_alone_close(c->alone);
    kin_roster_free(c->roster);
    kin_parcel_queue_close(c->in);
    kin_parcels_close(c->pool);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    kin_key_wipe(&c->o.key);
    free(c->plan);
    free(c->asked);
    free(c->seen);
    free(c);
}
