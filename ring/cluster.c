#include "ring/cluster_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "pure/proto/epoch.h"
#include "pure/proto/goodbye.h"
#include "pure/proto/label.h"

enum {
    N_PARCELS = 2 * KIN_STEPS_ON_THEIR_WAY + 16,
    RECONNECT_TICKS = 3, // of 100 ms, before the ring link is tried again
};

// From ACCEPT until a device has said what it has and has measured its links (ring/meetings.h), and some.
#define MEETING_WAIT_NS UINT64_C(12000000000)

// ---- what devices say

const kin_roster_device *kin_cluster_device_of(const kin_cluster *c, uint32_t number) {
    for (int i = 0; i < KIN_ROSTER_DEVICES; i++) {
        const kin_roster_device *d = kin_roster_device_at(c->roster, i);
        if (d && d->link == number) return d;
    }
    return NULL;
}

// What one device has may be fetched from it by the others.
static void relay_have(kin_cluster *c, uint32_t from, kin_proto_have *have) {
    const kin_roster_device *d = kin_cluster_device_of(c, from);
    if (!d || memcmp(have->model.bytes, c->o.manifest->hash, sizeof have->model.bytes) != 0) return;
    if (have->n_chunks != c->o.manifest->n_chunks) return;
    have->id = d->id;
    if (kin_crew_endpoint(c->crew, from, &have->endpoint)) kin_crew_relay(c->crew, from, have);
}

static void on_message(void *user, uint32_t from, uint32_t epoch, kin_proto_message *m) {
    kin_cluster *c = user;
    kin_roster_event e = {.link = from, .epoch = epoch};
    switch (m->type) {
    case KIN_FRAME_PROFILE: kin_cluster_take_profile(c, from, &m->profile); return;
    case KIN_FRAME_MEASURED: kin_cluster_take_link(c, from, &m->measured); return;
    case KIN_FRAME_DEVICE:
        if (kin_cluster_meets(c, from, &m->device)) return; // the roster hears of it when the links are measured
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
    case KIN_FRAME_HAVE: relay_have(c, from, &m->have); return;
    case KIN_FRAME_EVENTS: kin_cluster_take_events(c, from, &m->events); return;
    default:
        kin_log(KIN_LOG_WARN, "%s sent %s, which is not for a head", kin_link_name(kin_crew_link(c->crew, from)),
                kin_frame_name(m->type));
        kin_meetings_lost(c->meetings, from);
        kin_crew_drop(c->crew, from, "that message is not for a head");
        e.kind = KIN_ROSTER_LOST;
        e.reason = "it sent what is not for a head";
        break;
    }
    kin_cluster_act(c, &e);
}

static void on_lost(void *user, uint32_t number, const char *reason) {
    kin_meetings_lost(((kin_cluster *)user)->meetings, number);
    kin_roster_event_kind kind = kin_goodbye_is_stop(reason) ? KIN_ROSTER_LEFT : KIN_ROSTER_LOST;
    kin_cluster_act(user, &(kin_roster_event){.kind = kind, .link = number, .reason = reason});
}

static void on_control(void *user, kin_link *link, const kin_proto_open *open) {
    kin_cluster *c = user;
    uint32_t number = kin_crew_add(c->crew, link);
    kin_roster_hello hello = {
        .id = open->id, .run = open->run, .name = open->name, .version = open->version, .features = open->features};
    if (number) kin_cluster_act(c, &(kin_roster_event){.kind = KIN_ROSTER_JOINS, .link = number, .hello = &hello});
}

static void on_fetch(void *user, kin_link *link, const kin_proto_open *open) {
    kin_cluster *c = user;
    (void)open;
    kin_station_say_accept(c->station, link);
    kin_share_accept(c->share, link);
}

// A hop that its two members cannot open.
static void on_relay(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    kin_cluster *c = user;
    bool is_sender = open->role == KIN_PROTO_RING;
    int from = kin_planned_find(c->plan, is_sender ? &open->id : &open->peer);
    int to = kin_planned_find(c->plan, is_sender ? &open->peer : &open->id);
    if (!kin_roster_takes(c->roster, epoch))
        kin_station_refuse(link, "busy: that plan is not in force");
    else if (from < 0 || to != from + 1)
        kin_station_refuse(link, "identity: these two are not neighbours in this ring");
    else
        kin_relay_add(c->relay, c->station, link, open);
}

static void relay_begun(void *user, const kin_proto_id *from, const kin_proto_id *to) {
    kin_cluster *c = user;
    const char *reason = "";
    for (int i = 0; i < KIN_ROSTER_DEVICES; i++) {
        const kin_roster_device *d = kin_roster_device_at(c->roster, i);
        if (d && kin_proto_id_equal(&d->id, from)) reason = d->ring_trouble;
    }
    kin_cluster_say_apart(c, from, to, reason);
}

// ---- the plan in force

// The plan that was asked for is in force from now on.
static void take_asked(kin_cluster *c) {
    kin_planned *before = c->plan;
    c->plan = c->asked;
    c->asked = before;
    c->had_plan = true;
}

// Where the i-th member is reached. False: it is gone.
static bool member_endpoint(kin_cluster *c, int i, kin_proto_endpoint *out) {
    for (int k = 0; k < KIN_ROSTER_DEVICES; k++) {
        const kin_roster_device *d = kin_roster_device_at(c->roster, k);
        if (d && kin_proto_id_equal(&d->id, &c->plan->ids[i])) return kin_crew_endpoint(c->crew, d->link, out);
    }
    return false;
}

// A neighbour of the i-th member: which one, and where it is reached. No addresses: by way of the head, which for the head itself
// is where that member reached it.
static void fill_neighbour(kin_cluster *c, int i, int neighbour, kin_proto_id *id, kin_proto_endpoint *endpoint) {
    bool is_head = neighbour < 0 || neighbour == c->plan->ring.n_members - 1;
    *id = is_head ? c->o.id : c->plan->ids[neighbour];
    if (!is_head && !kin_ledger_is_apart(c->ledger, &c->plan->ids[i], id)) member_endpoint(c, neighbour, endpoint);
    if (!is_head) return;
    endpoint->port = kin_station_port(c->station);
    for (int k = 0; k < c->o.n_advertise; k++) {
        kin_label_set(endpoint->address[endpoint->n_addresses++], KIN_PROTO_MAX_STR, c->o.advertise[k]);
    }
}

static void send_plan(kin_cluster *c, const kin_roster_action *a) {
    const kin_roster_device *d = kin_roster_device_at(c->roster, a->device);
    kin_link *link = kin_crew_link(c->crew, a->link);
    int i = kin_planned_find(c->plan, &d->id);
    if (!link || i < 0) return;
    const kin_shard_options *so = &c->o.shard;
    kin_proto_message *m = c->message;
    kin_proto_plan *plan = &m->plan;
    memset(m, 0, sizeof *m);
    m->type = KIN_FRAME_PLAN;
    memcpy(plan->model.bytes, c->o.manifest->hash, sizeof plan->model.bytes);
    plan->n_files = c->o.manifest->n_files;
    for (int k = 0; k < plan->n_files; k++) plan->file_size[k] = c->o.manifest->files[k].size;
    plan->n_ctx = (uint32_t)so->n_ctx;
    plan->n_batch = (uint32_t)(so->n_batch < so->n_ctx ? so->n_batch : so->n_ctx);
    plan->n_seq = (uint16_t)(so->n_ctx < KIN_CLUSTER_SEQUENCES - 1 ? so->n_ctx : KIN_CLUSTER_SEQUENCES - 1);
    plan->kv_type = so->kv_type == GGML_TYPE_Q8_0 ? KIN_PROTO_KV_Q8_0 : KIN_PROTO_KV_F16;
    plan->wire_type = c->o.wire_type;
    const kin_device_options *devices = &c->o.devices->options;
    plan->flags = (so->flash ? KIN_PROTO_PLAN_FLASH : 0) | (devices->repack ? KIN_PROTO_PLAN_REPACK : 0) |
                  (devices->ggml_kernels ? KIN_PROTO_PLAN_GGML : 0) | (c->o.timeline ? KIN_PROTO_PLAN_TIMELINE : 0);
    plan->mode = so->mode == KIN_STREAM_MMAP       ? KIN_PROTO_MMAP
                 : so->mode == KIN_STREAM_WILLNEED ? KIN_PROTO_WILLNEED
                                                   : KIN_PROTO_STREAM;
    plan->n_threads = (uint16_t)c->o.n_threads_hint;
    kin_planned_fill(c->plan, i, plan);
    fill_neighbour(c, i, i + 1, &plan->next_id, &plan->next);
    fill_neighbour(c, i, i - 1, &plan->previous_id, &plan->previous);
    kin_crew_say(c->crew, a->link, a->epoch, m);
    kin_crew_tell(c->crew, a->link);
}

// ---- the roster's wishes

static void connect_ring(kin_cluster *c) {
    kin_proto_endpoint to;
    if (c->plan->ring.n_members > 1 && member_endpoint(c, 0, &to))
        kin_neighbours_connect(kin_station_neighbours(c->station), KIN_SIDE_NEXT, &to, NULL);
}

static void say_end(kin_cluster *c, const kin_roster_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_END};
    kin_label_set(m.end.reason, KIN_PROTO_MAX_REASON, a->text);
    kin_crew_say(c->crew, a->link, a->epoch, &m);
}

static void refuse(kin_cluster *c, const kin_roster_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_REFUSE};
    kin_link *link = kin_crew_link(c->crew, a->link);
    if (!link) return;
    kin_label_set(m.refuse.reason, KIN_PROTO_MAX_REASON, a->text);
    kin_station_say(link, 0, &m);
    kin_meetings_lost(c->meetings, a->link);
    kin_crew_drop(c->crew, a->link, NULL);
}

static void break_request(kin_cluster *c, const char *why) {
    uv_mutex_lock(&c->mutex);
    snprintf(c->news.broken, sizeof c->news.broken, "%s", why);
    uv_mutex_unlock(&c->mutex);
    kin_parcel_queue_interrupt(c->in, true);
}

static void take_action(kin_cluster *c, const kin_roster_action *a) {
    switch (a->kind) {
    case KIN_ROSTER_ACCEPT: {
        kin_link *link = kin_crew_link(c->crew, a->link);
        if (link) kin_station_say_accept(c->station, link);
        break;
    }
    case KIN_ROSTER_REFUSE: refuse(c, a); break;
    case KIN_ROSTER_DROP:
        kin_meetings_lost(c->meetings, a->link);
        kin_crew_drop(c->crew, a->link, a->text);
        break;
    case KIN_ROSTER_ASK: kin_cluster_ask_planner(c, a); break;
    case KIN_ROSTER_SEND_PLAN: send_plan(c, a); break;
    case KIN_ROSTER_SEND_END: say_end(c, a); break;
    case KIN_ROSTER_OPEN_RING:
        c->wants_ring = true;
        c->n_ticks_to_reconnect = 0; // of an earlier epoch
        connect_ring(c);
        break;
    case KIN_ROSTER_CLOSE_RING:
        c->wants_ring = false;
        c->n_ticks_to_reconnect = 0;
        kin_neighbours_end(kin_station_neighbours(c->station), KIN_SIDE_NEXT);
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
    uv_mutex_lock(&c->mutex);
    if (epoch && c->news.epoch != epoch) {
        kin_cluster_name_rows(c);
        int own = c->plan->ring.n_members - 1;
        c->news.own = c->plan->windows[own];
        c->news.own_memory = c->plan->ring.memory[own];
        c->news.n_rounds = c->plan->n_rounds;
        c->news.n_members = c->plan->ring.n_members;
    }
    c->news.epoch = epoch;
    c->news.up = kin_roster_state_now(c->roster) == KIN_ROSTER_SERVING;
    memcpy(c->news.doing, doing, sizeof doing);
    c->news.given_up = c->n_ticks_to_give_up > 0 ? (kin_err){.text = ""} : c->no_plan;
    uv_cond_broadcast(&c->changed);
    uv_mutex_unlock(&c->mutex);
}

static void enter_epoch(kin_cluster *c) {
    uint32_t epoch = kin_roster_epoch(c->roster);
    bool in_force = kin_roster_takes(c->roster, epoch);
    size_t frame_max = kin_proto_step_size_max((uint32_t)c->o.shard.n_batch, (uint32_t)c->o.model->hp.n_embd, c->o.wire_type);
    kin_ring_place place = {.epoch = in_force ? epoch : 0,
                            .frame_max = frame_max > KIN_FRAME_CAP_STEP ? KIN_FRAME_CAP_STEP : (uint32_t)frame_max};
    int n_others = c->plan->ring.n_members - 1;
    if (n_others > 0) place.who[KIN_SIDE_NEXT] = c->plan->ids[0];
    if (n_others > 0) place.who[KIN_SIDE_PREVIOUS] = c->plan->ids[n_others - 1];
    kin_neighbours_enter(kin_station_neighbours(c->station), &place);
    kin_relay_enter(c->relay, place.epoch, place.frame_max);
}

// One step of the roster. Actions may cause events, so they are copied: the roster's own live until its next step.
void kin_cluster_act(kin_cluster *c, const kin_roster_event *event) {
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
    kin_crew_tick(c->crew);
    kin_cluster_act(c, &(kin_roster_event){.kind = KIN_ROSTER_TICK});
    if (c->n_ticks_to_reconnect > 0 && --c->n_ticks_to_reconnect == 0 && c->wants_ring) connect_ring(c);
    if (c->n_ticks_to_give_up > 0 && --c->n_ticks_to_give_up == 0) publish(c);
    kin_cluster_look(c);
    kin_cluster_look_at_plan(c);
}

static void on_hop(void *user, kin_side side, uint32_t epoch, bool is_open, const char *reason) {
    kin_cluster *c = user;
    if (side == KIN_SIDE_PREVIOUS) return; // the last member tells how that one is
    if (!is_open) c->n_ticks_to_reconnect = RECONNECT_TICKS;
    kin_cluster_act(c, &(kin_roster_event){.kind = is_open ? KIN_ROSTER_RING_OPENED : KIN_ROSTER_RING_CLOSED,
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
    kin_crew_close(c->crew, KIN_GOODBYE_STOPPED);
    kin_audience_close(c->audience, "the head was stopped");
    c->crew = NULL;
    c->audience = NULL;
    kin_relay_close(c->relay, "the head was stopped");
    c->relay = NULL;
    kin_share_close(c->share);
    kin_stock_let_go(c->stock);
    kin_discovery_close(c->discovery);
}

// ---- posts of the computing thread

void kin_cluster_on_begins(void *arg) {
    kin_cluster *c = arg;
    uv_mutex_lock(&c->mutex);
    uint32_t epoch = c->news.request;
    uv_mutex_unlock(&c->mutex);
    // It may have ended while the computing thread made up its mind.
    bool can = kin_roster_takes(c->roster, epoch) && kin_roster_state_now(c->roster) == KIN_ROSTER_SERVING;
    if (can) {
        c->n_requests++;
        c->request_epoch = c->measured_epoch = epoch;
        kin_cluster_act(c, &(kin_roster_event){.kind = KIN_ROSTER_BEGINS});
    }
    uv_mutex_lock(&c->mutex);
    c->is_beginning = false;
    c->has_begun = can;
    uv_cond_broadcast(&c->changed);
    uv_mutex_unlock(&c->mutex);
}

void kin_cluster_on_ends(void *arg) {
    kin_cluster *c = arg;
    kin_cluster_act(c, &(kin_roster_event){.kind = KIN_ROSTER_ENDS, .epoch = c->request_epoch});
    c->request_epoch = 0;
    kin_cluster_on_measure(c);
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
    kin_label_set(ro.name, sizeof ro.name - 1, c->o.name);
    memcpy(ro.model.bytes, c->o.manifest->hash, sizeof ro.model.bytes);
    ro.epoch_first = kin_epoch_at((uint64_t)wall.tv_sec, (uint32_t)wall.tv_nsec);
    ro.n_expected = c->o.n_expected;
    ro.facts_wait_ns = MEETING_WAIT_NS;
    c->roster = kin_roster_new(&ro, kin_clock_now());
    return c->roster ? 0 : kin_err_set(err, "out of memory");
}

static int open_all(kin_cluster *c, kin_err *err) {
    c->plan = calloc(1, sizeof *c->plan);
    c->asked = calloc(1, sizeof *c->asked);
    c->message = calloc(1, sizeof *c->message);
    c->seen = calloc(1, sizeof *c->seen);
    if (!c->plan || !c->asked || !c->message || !c->seen) return kin_err_set(err, "out of memory");
    static const kin_crew_callbacks crew_callbacks = {.message = on_message, .lost = on_lost};
    kin_own_options oo = {.model = c->o.model, .devices = c->o.devices, .shard = c->o.shard};
    if (kin_crew_open(&c->crew, &crew_callbacks, c, err) != 0 || kin_own_open(&c->own, &oo, err) != 0) return KIN_FAIL;
    if (kin_relay_open(&c->relay, relay_begun, c, err) != 0) return KIN_FAIL;
    if (kin_cluster_open_sight(c, err) != 0 || kin_cluster_open_planning(c, err) != 0) return KIN_FAIL;
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
                              .in = c->in,
                              .events = kin_timeline_own(c->o.timeline)};
    static const kin_station_callbacks callbacks = {.tick = on_tick,
                                                    .control = on_control,
                                                    .fetch = on_fetch,
                                                    .observe = kin_cluster_on_observe,
                                                    .relay = on_relay,
                                                    .hop = on_hop};
    if (kin_station_open(&c->station, &so, &callbacks, c, err) != 0) return KIN_FAIL;
    return kin_station_start(c->station, begin, c, err);
}

int kin_cluster_open(kin_cluster **out_cluster, const kin_cluster_options *o, kin_err *err) {
    *out_cluster = NULL;
    kin_cluster *c = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "out of memory");
    c->o = *o;
    if (c->o.shard.n_batch > c->o.shard.n_ctx) c->o.shard.n_batch = c->o.shard.n_ctx;
    uv_mutex_init(&c->mutex);
    uv_cond_init(&c->changed);
    if (open_all(c, err) != 0) {
        kin_cluster_close(c);
        return KIN_FAIL;
    }
    *out_cluster = c;
    return 0;
}

void kin_cluster_close(kin_cluster *c) {
    if (!c) return;
    kin_planning_stop(c->planning); // its thread leaves calls in the loop
    kin_station_close(c->station, end, c);
    kin_parcel *parcel;
    if (c->in) kin_parcel_queue_interrupt(c->in, false);
    while (c->in && (parcel = kin_parcel_queue_take(c->in, 0))) kin_parcels_give(c->pool, parcel);
    kin_crew_close(c->crew, NULL);
    kin_audience_close(c->audience, NULL);
    kin_relay_close(c->relay, NULL);
    kin_cluster_close_work(c);
    kin_cluster_close_planning(c);
    kin_roster_free(c->roster);
    kin_parcel_queue_close(c->in);
    kin_parcels_close(c->pool);
    uv_cond_destroy(&c->changed);
    uv_mutex_destroy(&c->mutex);
    kin_key_wipe(&c->o.key);
    free(c->plan);
    free(c->asked);
    free(c->message);
    free(c->seen);
    free(c);
}
