#include "cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "cluster/head/chunks.h"
#include "cluster/head/pages.h"
#include "cluster/head/prefetch.h"
#include "cluster/head/requests.h"
#include "cluster/head/routes.h"
#include "cluster/head/standby.h"
#include "cluster/head/status.h"
#include "cluster/head/steps.h"
#include "cluster/head/times.h"
#include "model/border.h"
#include "net/discovery.h"
#include "pure/proto/epoch.h"
#include "pure/proto/goodbye.h"
#include "pure/proto/label.h"

enum {
    RECONNECT_MS = 300, // until the ring link is tried again
};

// Limit from ACCEPT until a device has sent its facts and measured its links (cluster/pairwise_tests.h), with a margin.
#define TESTS_WAIT_NS UINT64_C(12000000000)

// Each part has its own state and knows only the parts above it here.
struct kin_cluster {
    kin_cluster_options o;
    kin_ring_member ring;
    kin_cluster_board board;       // between the two threads
    kin_cluster_requests requests; // the computing thread

    // Used by the loop's thread.
    kin_discovery *discovery;
    kin_relay *relay;
    kin_cluster_devices devices;
    kin_cluster_polls polls;
    kin_cluster_plans plans;
    kin_cluster_link_tests link_tests;
    kin_cluster_routes routes;
    kin_cluster_questions questions;
    kin_cluster_times times;
    kin_cluster_prefetch prefetch;
    kin_cluster_standby standby;
    kin_cluster_pages pages;
    kin_cluster_chunks chunks;
    kin_cluster_status status;
    kin_cluster_steps steps;
    uint32_t entered;       // the epoch whose plan is active here
    uint32_t request_epoch; // of the request that the membership counts; 0: none
    bool wants_ring;        // the membership wants the head's ring link
    kin_time reconnect_at;  // when it is tried again; 0: not scheduled

    atomic_bool yields; // a better plan waits for the end of the request; for the computing thread
};

static void act(kin_cluster *c, const kin_membership_event *event) {
    kin_cluster_devices_act(&c->devices, event);
}

// Returns the number of tokens that all rings have generated.
static uint64_t progress_made(const kin_cluster *c) {
    return atomic_load(&kin_local_stage_counts(c->requests.local_stage)->n_generated);
}

// ---- messages from devices

static void handle_prefetched(kin_cluster *c, uint32_t from, const kin_proto_prefetched *m) {
    if (!kin_cluster_standby_handle_answer(&c->standby, from, m)) kin_cluster_prefetch_handle_answer(&c->prefetch, from, m);
}

static void on_message(void *user, uint32_t from, uint32_t epoch, kin_proto_message *m) {
    kin_cluster *c = user;
    kin_membership_event e = {.link = from, .epoch = epoch, .progress_made = progress_made(c)};
    switch (m->type) {
    case KIN_FRAME_PROFILE: kin_cluster_link_tests_handle_profile(&c->link_tests, from, &m->profile); return;
    case KIN_FRAME_MEASURED: kin_cluster_link_tests_handle_measured(&c->link_tests, from, &m->measured); return;
    case KIN_FRAME_DEVICE:
        if (kin_cluster_link_tests_handle_device(&c->link_tests, from, &m->device))
            return; // the membership gets it when the links are measured
        e.kind = KIN_MEMBERSHIP_FACTS;
        e.facts = &m->device;
        break;
    case KIN_FRAME_PROGRESS:
        e.kind = KIN_MEMBERSHIP_PROGRESS;
        e.progress = &m->progress;
        break;
    case KIN_FRAME_READY: e.kind = KIN_MEMBERSHIP_READY; break;
    case KIN_FRAME_FAILED:
        e.kind = KIN_MEMBERSHIP_FAILED;
        e.stage = m->failed.stage;
        e.reason = m->failed.reason;
        break;
    case KIN_FRAME_NEXT:
        e.kind = m->next.is_open ? KIN_MEMBERSHIP_RING_OPENED : KIN_MEMBERSHIP_RING_CLOSED;
        e.reason = m->next.reason;
        break;
    case KIN_FRAME_PREFETCHED: handle_prefetched(c, from, &m->prefetched); return;
    case KIN_FRAME_HAVE: kin_cluster_chunks_relay(&c->chunks, from, &m->have); return;
    case KIN_FRAME_KEPT: kin_cluster_pages_handle_kept(&c->pages, from, m); return;
    case KIN_FRAME_EVENTS: kin_cluster_status_handle_events(&c->status, from, &m->events); return;
    default:
        kin_log(KIN_LOG_WARN, "%s sent %s, which a head does not accept",
                kin_link_name(kin_connections_link(c->devices.connections, from)), kin_frame_name(m->type));
        kin_cluster_link_tests_forget(&c->link_tests, from);
        kin_connections_drop(c->devices.connections, from, "unexpected message for a head");
        e.kind = KIN_MEMBERSHIP_LOST;
        e.reason = "it sent a message that a head does not accept";
        break;
    }
    act(c, &e);
}

static void on_lost(void *user, uint32_t number, const char *reason) {
    kin_cluster *c = user;
    kin_cluster_link_tests_forget(&c->link_tests, number);
    kin_membership_event_kind kind = kin_goodbye_is_stop(reason) ? KIN_MEMBERSHIP_LEFT : KIN_MEMBERSHIP_LOST;
    act(c, &(kin_membership_event){.kind = kind, .link = number, .reason = reason});
}

static void accept_control(kin_cluster *c, kin_link *link, const kin_proto_open *open) {
    uint32_t number = kin_connections_add(c->devices.connections, link);
    kin_membership_hello hello = {.id = open->id, .run = open->run, .name = open->name, .features = open->features};
    if (!number) return;
    act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_JOINS, .link = number, .hello = &hello});
    if (kin_cluster_devices_on(&c->devices, number))
        kin_cluster_pages_forget(&c->pages, &open->id); // else it is refused, perhaps as a duplicate identity
}

// Relays a hop that its two members cannot open.
static void accept_relay(kin_cluster *c, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    bool is_sender = open->role == KIN_PROTO_RING;
    int from = kin_assignment_find(c->plans.active, is_sender ? &open->id : &open->peer);
    int to = kin_assignment_find(c->plans.active, is_sender ? &open->peer : &open->id);
    if (!kin_membership_accepts(c->devices.membership, epoch))
        kin_endpoint_refuse(link, "busy: that plan is not active");
    else if (from < 0 || to != from + 1)
        kin_endpoint_refuse(link, "identity: these devices are not neighbours in this ring");
    else
        kin_relay_add(c->relay, c->ring.endpoint, link, open);
}

static void on_link(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    kin_cluster *c = user;
    if (kin_ring_member_accept(&c->ring, link, epoch, open)) return;
    switch (open->role) {
    case KIN_PROTO_CONTROL: accept_control(c, link, open); break;
    case KIN_PROTO_OBSERVE: kin_cluster_status_accept(&c->status, link); break;
    case KIN_PROTO_RING:
    case KIN_PROTO_BACK: accept_relay(c, link, epoch, open); break;
    default: kin_endpoint_refuse(link, "other: a head does not accept this kind of link"); break;
    }
}

static void relay_begun(void *user, const kin_proto_id *from, const kin_proto_id *to) {
    kin_cluster *c = user;
    const kin_membership_device *d = kin_cluster_devices_with(&c->devices, from);
    kin_cluster_link_tests_log_unreachable(&c->link_tests, from, to, d ? d->ring_error : "");
}

// ---- the active plan

static void send_plan(kin_cluster *c, const kin_membership_action *a) {
    const kin_membership_device *d = kin_membership_device_at(c->devices.membership, a->device);
    int i = kin_assignment_find(c->plans.active, &d->id);
    kin_proto_message *m = c->plans.message;
    if (!kin_connections_link(c->devices.connections, a->link) || i < 0) return;
    m->type = KIN_FRAME_PLAN;
    kin_cluster_plans_fill(&c->plans, c->plans.active, i, &m->plan);
    m->plan.group.allreduce = c->o.allreduce;
    kin_cluster_routes_fill(&c->routes, i, kin_assignment_behind(c->plans.active, i, 1), &m->plan.next_id, &m->plan.next);
    kin_cluster_routes_fill(&c->routes, i, kin_assignment_behind(c->plans.active, i, -1), &m->plan.previous_id,
                            &m->plan.previous);
    kin_cluster_routes_fill_group(&c->routes, i, &m->plan.group);
    kin_connections_send(c->devices.connections, a->link, a->epoch, m);
    kin_connections_send_haves(c->devices.connections, a->link);
    kin_cluster_pages_register_with(&c->pages, a->link);
}

// ---- actions of the membership

static void connect_ring(kin_cluster *c) {
    kin_proto_endpoint to;
    if (c->plans.active->n_members > 1 && kin_cluster_routes_endpoint(&c->routes, 1, &to))
        kin_neighbours_connect(c->ring.neighbours, KIN_SIDE_NEXT, &to, NULL);
}

static void send_end(kin_cluster *c, const kin_membership_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_END};
    kin_label_set_sentence(m.end.reason, KIN_PROTO_MAX_REASON, a->text);
    kin_connections_send(c->devices.connections, a->link, a->epoch, &m);
}

static void refuse(kin_cluster *c, const kin_membership_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_REFUSE};
    kin_link *link = kin_connections_link(c->devices.connections, a->link);
    if (!link) return;
    kin_label_set_sentence(m.refuse.reason, KIN_PROTO_MAX_REASON, a->text);
    kin_endpoint_send_message(link, 0, &m);
    kin_cluster_link_tests_forget(&c->link_tests, a->link);
    kin_connections_drop(c->devices.connections, a->link, NULL);
}

static void break_request(kin_cluster *c, const char *why) {
    kin_cluster_board_set_broken(&c->board, why);
    kin_message_queue_interrupt(c->ring.in, true);
}

static void on_action(void *user, const kin_membership_action *a) {
    kin_cluster *c = user;
    switch (a->kind) {
    case KIN_MEMBERSHIP_ACCEPT: {
        kin_link *link = kin_connections_link(c->devices.connections, a->link);
        if (link) kin_endpoint_send_accept(c->ring.endpoint, link);
        break;
    }
    case KIN_MEMBERSHIP_REFUSE: refuse(c, a); break;
    case KIN_MEMBERSHIP_DROP:
        kin_cluster_link_tests_forget(&c->link_tests, a->link);
        kin_connections_drop(c->devices.connections, a->link, a->text);
        break;
    case KIN_MEMBERSHIP_ASK: kin_cluster_questions_ask(&c->questions, a); break;
    case KIN_MEMBERSHIP_PREFETCH: kin_cluster_prefetch_begin(&c->prefetch, a); break;
    case KIN_MEMBERSHIP_SEND_PLAN: send_plan(c, a); break;
    case KIN_MEMBERSHIP_SEND_END: send_end(c, a); break;
    case KIN_MEMBERSHIP_OPEN_RING:
        c->wants_ring = true;
        c->reconnect_at = 0; // of an earlier epoch
        connect_ring(c);
        break;
    case KIN_MEMBERSHIP_CLOSE_RING:
        c->wants_ring = false;
        c->reconnect_at = 0;
        kin_neighbours_end(c->ring.neighbours, KIN_SIDE_NEXT);
        break;
    case KIN_MEMBERSHIP_UP: break; // reported by the snapshot
    case KIN_MEMBERSHIP_FAIL: break_request(c, a->text); break;
    case KIN_MEMBERSHIP_LOG: kin_log(a->level, "%s", a->text); break;
    case KIN_MEMBERSHIP_STATUS: break;
    }
}

// Publishes the snapshot for the computing thread.
static void publish(void *user) {
    kin_cluster *c = user;
    kin_cluster_snapshot *snapshot = kin_cluster_board_lock(&c->board);
    if (kin_cluster_snapshot_update(snapshot, &c->devices, &c->plans)) kin_cluster_status_name_rows(&c->status);
    snapshot->given_up = kin_cluster_questions_given_up(&c->questions);
    atomic_store(&c->yields, kin_membership_yields(c->devices.membership));
    kin_cluster_board_publish(&c->board);
}

// The head's place in the ring and in its group, where it is the last device.
static void enter_epoch(kin_cluster *c) {
    uint32_t epoch = kin_membership_epoch(c->devices.membership);
    bool in_force = kin_membership_accepts(c->devices.membership, epoch);
    size_t frame_max =
        kin_proto_step_size_max((uint32_t)c->o.shard.n_batch, (uint32_t)kin_border_most(&c->o.model->hp), c->o.wire_type);
    kin_ring_place place = {.epoch = in_force ? epoch : 0,
                            .frame_max = frame_max > KIN_FRAME_CAP_STEP ? KIN_FRAME_CAP_STEP : (uint32_t)frame_max};
    kin_proto_group group = {0};
    if (c->plans.active->n_members > 1) {
        place.who[KIN_SIDE_NEXT] = c->plans.active->ids[1];
        place.who[KIN_SIDE_PREVIOUS] = c->plans.active->ids[c->plans.active->n_members - 1];
    }
    if (place.epoch && place.epoch != c->ring.entered && c->plans.active->n_members > 1) {
        group.n_ranks = c->plans.active->shares[0].n_ranks;
        group.rank = c->plans.active->shares[0].rank;
        group.allreduce = c->o.allreduce;
        kin_cluster_routes_fill_group(&c->routes, 0, &group);
    }
    kin_ring_member_enter(&c->ring, &place, &group, c->o.wire_type);
    kin_relay_enter(c->relay, place.epoch, place.frame_max);
}

// The plan of a step of the membership, before its actions.
static void on_enter(void *user, uint32_t epoch, uint32_t question) {
    kin_cluster *c = user;
    if (epoch != c->entered) {
        kin_cluster_plans_activate(&c->plans, question);
        kin_cluster_questions_note_active(&c->questions, question);
        kin_cluster_pages_register_all(&c->pages);
    }
    c->entered = epoch;
    enter_epoch(c);
}

// ---- the endpoint's callbacks

// Wakes the computing thread, so that it checks whether to stop.
static void wake(kin_cluster *c) {
    kin_message_queue_interrupt(c->ring.in, true);
    kin_cluster_board_wake(&c->board);
}

// Connects to the next member again, when that is due.
static void reconnect_ring(kin_cluster *c, kin_time now) {
    if (!c->reconnect_at || now < c->reconnect_at) return;
    c->reconnect_at = 0;
    if (c->wants_ring) connect_ring(c);
}

static void on_tick(void *user) {
    kin_cluster *c = user;
    kin_time now = kin_clock_now();
    if (c->o.stop && atomic_load(c->o.stop)) wake(c);
    kin_connections_tick(c->devices.connections);
    act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_TICK});
    reconnect_ring(c, now);
    if (kin_cluster_questions_give_up(&c->questions, now)) publish(c);
    kin_cluster_status_tick(&c->status, now);
    kin_cluster_steps_tick(&c->steps, now);
    kin_group_links_tick(c->ring.group_links);
    kin_cluster_link_tests_tick(&c->link_tests, now);
    kin_cluster_times_tick(&c->times, now, c->request_epoch != 0);
    kin_cluster_standby_tick(&c->standby, now);
}

// Handles an invalid message of the last member.
static void on_wrong(void *arg) {
    kin_cluster *c = arg;
    kin_err why;
    uint32_t epoch = kin_cluster_board_read_wrong(&c->board, &why);
    act(c, &(kin_membership_event){
               .kind = KIN_MEMBERSHIP_WRONG, .epoch = epoch, .reason = why.text, .progress_made = progress_made(c)});
}

// Handles what the planning thread has done.
static void handle_planning(void *arg) {
    kin_cluster *c = arg;
    kin_cluster_times_handle(&c->times);
    kin_cluster_questions_handle(&c->questions);
    kin_cluster_standby_handle(&c->standby);
}

static void on_planning(void *user) {
    kin_cluster *c = user;
    kin_endpoint_call(c->ring.endpoint, handle_planning, c);
}

static void on_head_hop(void *user, kin_side side, uint32_t epoch, bool is_open, const char *reason) {
    kin_cluster *c = user;
    if (side == KIN_SIDE_PREVIOUS) return; // the last member reports the state of that link
    if (!c->ring.is_next_open && !c->reconnect_at) c->reconnect_at = kin_clock_now() + RECONNECT_MS * UINT64_C(1000000);
    act(c, &(kin_membership_event){.kind = is_open ? KIN_MEMBERSHIP_RING_OPENED : KIN_MEMBERSHIP_RING_CLOSED,
                                   .link = KIN_MEMBERSHIP_OWN,
                                   .epoch = epoch,
                                   .reason = reason,
                                   .progress_made = progress_made(c)});
}

static void begin_cluster(void *arg) {
    kin_cluster *c = arg;
    kin_err err;
    kin_cluster_chunks_begin(&c->chunks);
    const kin_kv_disk *disk = &c->o.shard.kv_disk;
    if (disk->dir && c->ring.server) kin_ring_member_share_pages(&c->ring, disk->dir, disk->cap);
    if (!c->o.hidden) {
        kin_discovery_options o = {.port = KIN_DISCOVERY_PORT};
        memcpy(o.key, c->o.key.bytes, sizeof o.key);
        kin_discovery_self self = {.id = c->o.id, .name = c->o.name, .port = kin_endpoint_port(c->ring.endpoint)};
        if (kin_discovery_answer(&c->discovery, kin_endpoint_loop(c->ring.endpoint), &o, &self, &err) != 0)
            kin_log(KIN_LOG_WARN, "devices cannot find this head automatically: %s; give them its address", err.text);
    }
    on_tick(c);
    publish(c);
}

static void end_cluster(void *arg) {
    kin_cluster *c = arg;
    kin_cluster_devices_end(&c->devices, KIN_GOODBYE_STOPPED);
    kin_cluster_status_end(&c->status, "the head was stopped");
    kin_relay_close(c->relay, "the head was stopped");
    c->relay = NULL;
    kin_ring_member_end(&c->ring, "the head was stopped");
    kin_cluster_chunks_end(&c->chunks);
    kin_discovery_close(c->discovery);
}

// ---- calls of the computing thread in the loop's thread

static void on_begins(void *arg) {
    kin_cluster *c = arg;
    uint32_t generation = kin_completion_asked(&c->requests.beginning), epoch = atomic_load(&c->requests.wanted_epoch);
    // The epoch may have ended in the meantime.
    bool can = kin_membership_accepts(c->devices.membership, epoch) && kin_cluster_devices_are_serving(&c->devices);
    if (can) {
        c->request_epoch = epoch;
        kin_cluster_times_begin(&c->times, epoch, kin_clock_now());
        act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_BEGINS});
    }
    kin_completion_done(&c->requests.beginning, generation, can);
}

static void on_ends(void *arg) {
    kin_cluster *c = arg;
    act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_ENDS, .epoch = c->request_epoch});
    c->request_epoch = 0;
    kin_cluster_times_measure(&c->times);
}

// ---- what the ring member asks for

static bool is_busy(void *user) {
    kin_cluster *c = user;
    return !kin_cluster_standby_is_quiet(&c->standby, kin_clock_now());
}

static int pack(void *user, const kin_prepacking_job *job, const atomic_bool *stop, kin_packed **held, kin_err *err) {
    const kin_cluster *c = user;
    return kin_cluster_prefetch_pack(&c->o, job, stop, held, err);
}

static void on_packed(void *user, uint32_t question) {
    kin_cluster *c = user;
    kin_cluster_prefetch_note_packed(&c->prefetch, question);
}

// ---- opening and closing

static int open_ring_member(kin_cluster *c, kin_err *err) {
    static const kin_endpoint_callbacks callbacks = {.tick = on_tick, .opened = on_link};
    const kin_ring_member_options o = {.endpoint = {.id = c->o.id,
                                                    .name = c->o.name,
                                                    .version = c->o.version,
                                                    .key = c->o.key,
                                                    .listen = c->o.listen,
                                                    .port = c->o.port},
                                       .callbacks = &callbacks,
                                       .hop = on_head_hop,
                                       .is_busy = is_busy,
                                       .pack = pack,
                                       .packed = on_packed,
                                       .user = c,
                                       .trace = kin_timeline_own(c->o.timeline),
                                       .stop = c->o.stop};
    return kin_ring_member_open(&c->ring, &o, err);
}

static int open_requests(kin_cluster *c, kin_err *err) {
    const kin_cluster_requests_options o = {.cluster = &c->o,
                                            .ring = &c->ring,
                                            .board = &c->board,
                                            .begins = on_begins,
                                            .ends = on_ends,
                                            .wrong = on_wrong,
                                            .user = c};
    return kin_cluster_requests_open(&c->requests, &o, err);
}

static int open_devices(kin_cluster *c, kin_err *err) {
    static const kin_cluster_devices_callbacks callbacks = {
        .enter = on_enter, .apply = on_action, .changed = publish, .links = {.message = on_message, .lost = on_lost}};
    kin_membership_options o = kin_membership_options_default();
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    o.id = c->o.id;
    kin_label_set(o.name, sizeof o.name - 1, c->o.name);
    memcpy(o.model.bytes, c->o.manifest->hash, sizeof o.model.bytes);
    o.epoch_first = kin_epoch_at((uint64_t)wall.tv_sec, (uint32_t)wall.tv_nsec);
    o.n_expected = c->o.n_expected;
    o.dry_run = c->o.dry_run;
    o.facts_wait_ns = TESTS_WAIT_NS;
    if (kin_cluster_devices_open(&c->devices, &o, &callbacks, c, err) != 0) return KIN_FAIL;
    c->polls.connections = c->devices.connections;
    c->entered = kin_membership_epoch(c->devices.membership);
    return 0;
}

// Opens the parts that plan.
static int open_planning(kin_cluster *c, kin_err *err) {
    const kin_head_counts *counts = kin_local_stage_counts(c->requests.local_stage);
    if (kin_cluster_plans_open(&c->plans, &c->o, err) != 0 ||
        kin_cluster_link_tests_open(&c->link_tests, &c->o, &c->devices, err) != 0)
        return KIN_FAIL;
    c->routes = (kin_cluster_routes){.o = &c->o,
                                     .devices = &c->devices,
                                     .plans = &c->plans,
                                     .measurements = c->link_tests.measurements,
                                     .own = c->ring.endpoint};
    const kin_cluster_questions_options qo = {.cluster = &c->o,
                                              .devices = &c->devices,
                                              .measurements = c->link_tests.measurements,
                                              .plans = &c->plans,
                                              .done = on_planning,
                                              .user = c};
    if (kin_cluster_questions_open(&c->questions, &qo, err) != 0) return KIN_FAIL;
    kin_cluster_times_init(&c->times, &c->o, &c->devices, &c->plans, &c->questions, counts, &c->polls);
    c->prefetch = (kin_cluster_prefetch){.o = &c->o, .devices = &c->devices, .plans = &c->plans, .ring = &c->ring};
    return kin_cluster_standby_open(&c->standby, &c->o, &c->devices, &c->plans, &c->questions, err);
}

static int open_status(kin_cluster *c, kin_err *err) {
    const kin_cluster_status_options o = {.cluster = &c->o,
                                          .devices = &c->devices,
                                          .plans = &c->plans,
                                          .pages = &c->pages,
                                          .ring = &c->ring,
                                          .local_stage = c->requests.local_stage,
                                          .polls = &c->polls};
    return kin_cluster_status_open(&c->status, &o, err);
}

static int open_all(kin_cluster *c, kin_err *err) {
    if (open_ring_member(c, err) != 0 || open_requests(c, err) != 0 || kin_relay_open(&c->relay, relay_begun, c, err) != 0)
        return KIN_FAIL;
    c->pages = (kin_cluster_pages){.devices = &c->devices, .plans = &c->plans, .ring = &c->ring};
    c->chunks = (kin_cluster_chunks){.o = &c->o, .devices = &c->devices, .ring = &c->ring};
    if (open_planning(c, err) != 0 || open_status(c, err) != 0) return KIN_FAIL;
    kin_cluster_steps_init(&c->steps, &c->devices, &c->plans, &c->ring, c->relay, kin_local_stage_counts(c->requests.local_stage),
                           &c->polls);
    if (open_devices(c, err) != 0) return KIN_FAIL;
    return kin_endpoint_start(c->ring.endpoint, begin_cluster, c, err);
}

static int check_batch(const kin_cluster_options *o, kin_err *err) {
    int n = o->shard.n_batch < o->shard.n_ctx ? o->shard.n_batch : o->shard.n_ctx;
    size_t bytes = kin_proto_step_size_max((uint32_t)n, (uint32_t)kin_border_most(&o->model->hp), o->wire_type);
    if (bytes <= KIN_FRAME_CAP_STEP && n <= KIN_PROTO_MAX_TOKENS) return 0;
    return kin_err_set(err, "--batch %d: too many tokens for a network frame of at most %u MiB", n, KIN_FRAME_CAP_STEP >> 20);
}

// Completes the options of the head's own shard.
static void set_shard_options(kin_cluster *c) {
    kin_shard_options *o = &c->o.shard;
    if (o->n_batch > o->n_ctx) o->n_batch = o->n_ctx;
    o->kv_disk.peers = &c->ring.peers; // the head's own pages need no copy: without the head there are no sequences
    o->wire = c->o.wire_type;
    memcpy(&o->kv_disk.model, c->o.manifest->hash, sizeof o->kv_disk.model);
}

int kin_cluster_open(kin_cluster **out, const kin_cluster_options *o, kin_err *err) {
    *out = NULL;
    if (check_batch(o, err) != 0) return KIN_FAIL;
    kin_cluster *c = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "out of memory");
    c->o = *o;
    set_shard_options(c);
    kin_cluster_board_init(&c->board);
    if (open_all(c, err) != 0) {
        kin_cluster_close(c);
        return KIN_FAIL;
    }
    *out = c;
    return 0;
}

void kin_cluster_close(kin_cluster *c) {
    if (!c) return;
    if (c->ring.pages) kin_page_fetch_settle(c->ring.pages); // copies of pages that others wrote while the head computed
    kin_cluster_questions_stop(&c->questions);
    kin_ring_member_stop(&c->ring, end_cluster, c);
    kin_cluster_devices_close(&c->devices);
    kin_cluster_status_close(&c->status);
    kin_cluster_steps_fini(&c->steps);
    kin_relay_close(c->relay, NULL);
    kin_cluster_requests_close(&c->requests);
    kin_ring_member_close(&c->ring);
    kin_cluster_standby_close(&c->standby);
    kin_cluster_times_fini(&c->times);
    kin_cluster_questions_close(&c->questions);
    kin_cluster_link_tests_close(&c->link_tests);
    kin_cluster_plans_close(&c->plans);
    kin_cluster_board_fini(&c->board);
    kin_key_wipe(&c->o.key);
    free(c);
}

// ---- the interface

uint16_t kin_cluster_port(const kin_cluster *c) {
    return kin_endpoint_port(c->ring.endpoint);
}

void kin_cluster_wake(kin_cluster *c) {
    kin_message_queue_wake(c->ring.in);
}

void kin_cluster_set_meanwhile(kin_cluster *c, void (*meanwhile)(void *user), void *user) {
    c->requests.meanwhile = meanwhile;
    c->requests.meanwhile_user = user;
}

int kin_cluster_begin(kin_cluster *c, kin_err *err) {
    return kin_cluster_requests_begin(&c->requests, err);
}

void kin_cluster_end(kin_cluster *c) {
    kin_cluster_requests_end(&c->requests);
}

bool kin_cluster_yields(const kin_cluster *c) {
    return atomic_load(&c->yields);
}

kin_head *kin_cluster_head(kin_cluster *c) {
    return c->requests.head;
}

kin_shard *kin_cluster_shard(kin_cluster *c) {
    return kin_local_stage_shard(c->requests.local_stage);
}

int kin_cluster_n_members(const kin_cluster *c) {
    return c->requests.seen->n_members;
}

void kin_cluster_measure(kin_cluster *c) {
    kin_cluster_times_wait(&c->times, c->ring.endpoint);
}

void kin_cluster_gather(kin_cluster *c) {
    kin_cluster_status_gather(&c->status);
}

void kin_cluster_ask_status(kin_cluster *c, kin_status_report_fn receive, void *user) {
    kin_cluster_status_ask(&c->status, receive, user);
}
