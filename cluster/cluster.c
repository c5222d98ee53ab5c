#include "cluster/cluster_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "model/border.h"
#include "model/ranges.h"
#include "pure/proto/epoch.h"
#include "pure/proto/goodbye.h"
#include "pure/proto/label.h"

enum {
    RECONNECT_MS = 300, // until the ring link is tried again
};

// Limit from ACCEPT until a device has sent its facts and measured its links (cluster/pairwise_tests.h), with a margin.
#define TESTS_WAIT_NS UINT64_C(12000000000)

// ---- messages from devices

const kin_membership_device *kin_cluster_device_of(const kin_cluster *c, uint32_t number) {
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *d = kin_membership_device_at(c->membership, i);
        if (d && d->link == number) return d;
    }
    return NULL;
}

const kin_membership_device *kin_cluster_device_with(const kin_cluster *c, const kin_proto_id *id) {
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *d = kin_membership_device_at(c->membership, i);
        if (d && kin_proto_id_equal(&d->id, id)) return d;
    }
    return NULL;
}

// Lets the other devices fetch from this one what it has of the model.
static void relay_have(kin_cluster *c, uint32_t from, kin_proto_have *have) {
    const kin_membership_device *d = kin_cluster_device_of(c, from);
    if (!d || memcmp(have->model.bytes, c->o.manifest->hash, sizeof have->model.bytes) != 0) return;
    if (have->n_chunks != c->o.manifest->n_chunks) return;
    have->id = d->id;
    if (kin_connections_endpoint(c->connections, from, &have->endpoint)) kin_connections_relay(c->connections, from, have);
}

uint64_t kin_cluster_progress_made(const kin_cluster *c) {
    return atomic_load(&kin_local_stage_counts(c->computing.local_stage)->n_generated);
}

static void on_message(void *user, uint32_t from, uint32_t epoch, kin_proto_message *m) {
    kin_cluster *c = user;
    kin_membership_event e = {.link = from, .epoch = epoch, .progress_made = kin_cluster_progress_made(c)};
    switch (m->type) {
    case KIN_FRAME_PROFILE: kin_cluster_handle_profile(c, from, &m->profile); return;
    case KIN_FRAME_MEASURED: kin_cluster_handle_measured(c, from, &m->measured); return;
    case KIN_FRAME_DEVICE:
        if (kin_cluster_register_device(c, from, &m->device)) return; // the membership gets it when the links are measured
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
    case KIN_FRAME_PREFETCHED: kin_cluster_handle_prefetched(c, from, &m->prefetched); return;
    case KIN_FRAME_HAVE: relay_have(c, from, &m->have); return;
    case KIN_FRAME_KEPT: kin_cluster_handle_kept(c, from, m); return;
    case KIN_FRAME_EVENTS: kin_cluster_handle_events(c, from, &m->events); return;
    default:
        kin_log(KIN_LOG_WARN, "%s sent %s, which a head does not accept",
                kin_link_name(kin_connections_link(c->connections, from)), kin_frame_name(m->type));
        kin_cluster_forget_probes(c, from);
        kin_connections_drop(c->connections, from, "unexpected message for a head");
        e.kind = KIN_MEMBERSHIP_LOST;
        e.reason = "it sent a message that a head does not accept";
        break;
    }
    kin_cluster_act(c, &e);
}

static void on_lost(void *user, uint32_t number, const char *reason) {
    kin_cluster_forget_probes(user, number);
    kin_membership_event_kind kind = kin_goodbye_is_stop(reason) ? KIN_MEMBERSHIP_LEFT : KIN_MEMBERSHIP_LOST;
    kin_cluster_act(user, &(kin_membership_event){.kind = kind, .link = number, .reason = reason});
}

static void accept_control(kin_cluster *c, kin_link *link, const kin_proto_open *open) {
    uint32_t number = kin_connections_add(c->connections, link);
    kin_membership_hello hello = {.id = open->id, .run = open->run, .name = open->name, .features = open->features};
    if (!number) return;
    kin_cluster_act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_JOINS, .link = number, .hello = &hello});
    if (kin_cluster_device_of(c, number))
        kin_cluster_forget_replica(c, &open->id); // else it is refused, perhaps as a duplicate identity
}

// Relays a hop that its two members cannot open.
static void accept_relay(kin_cluster *c, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    bool is_sender = open->role == KIN_PROTO_RING;
    int from = kin_assignment_find(c->plan, is_sender ? &open->id : &open->peer);
    int to = kin_assignment_find(c->plan, is_sender ? &open->peer : &open->id);
    if (!kin_membership_accepts(c->membership, epoch))
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
    case KIN_PROTO_OBSERVE: kin_cluster_accept_status_link(c, link); break;
    case KIN_PROTO_RING:
    case KIN_PROTO_BACK: accept_relay(c, link, epoch, open); break;
    default: kin_endpoint_refuse(link, "other: a head does not accept this kind of link"); break;
    }
}

static void relay_begun(void *user, const kin_proto_id *from, const kin_proto_id *to) {
    kin_cluster *c = user;
    const kin_membership_device *d = kin_cluster_device_with(c, from);
    kin_cluster_log_unreachable(c, from, to, d ? d->ring_error : "");
}

// ---- the active plan

// Makes the planner's answer to that question the active plan.
static void activate_answer(kin_cluster *c, uint32_t question) {
    kin_assignment **answer = kin_cluster_answer_of(c, question), *before = c->plan;
    c->plan = *answer;
    *answer = before;
    c->planning.had_plan = true;
    if (c->o.calls.in_force) c->o.calls.in_force(c->o.planner, question);
}

// Returns the addresses of the i-th member. False: it is gone.
static bool member_endpoint(kin_cluster *c, int i, kin_proto_endpoint *out) {
    const kin_membership_device *d = kin_cluster_device_with(c, &c->plan->ids[i]);
    return d && kin_connections_endpoint(c->connections, d->link, out);
}

// Fills in the id and addresses with which the i-th member reaches another one. No addresses: it goes through the head, or for
// the head itself, to the address at which that member reached it.
static void fill_member(kin_cluster *c, int i, int other, kin_proto_id *id, kin_proto_endpoint *endpoint) {
    bool is_head = other == 0;
    *id = c->plan->ids[other];
    if (!is_head && !kin_measurements_is_apart(c->planning.measurements, &c->plan->ids[i], id))
        member_endpoint(c, other, endpoint);
    if (!is_head) return;
    endpoint->port = kin_endpoint_port(c->ring.endpoint);
    for (int k = 0; k < c->o.n_advertise; k++) {
        kin_label_set(endpoint->address[endpoint->n_addresses++], KIN_PROTO_MAX_STR, c->o.advertise[k]);
    }
}

// Fills in the devices of the i-th member's group, as that member reaches them.
static void fill_group(kin_cluster *c, int i, kin_proto_group *g) {
    for (int r = 0; r < g->n_ranks; r++)
        fill_member(c, i, kin_assignment_behind(c->plan, i, r - g->rank), &g->id[r], &g->endpoint[r]);
}

void kin_cluster_fill_plan(const kin_cluster *c, const kin_assignment *of, int i, kin_proto_plan *plan) {
    const kin_shard_options *so = &c->o.shard;
    const kin_device_options *devices = &c->o.devices->options;
    memset(plan, 0, sizeof *plan);
    memcpy(plan->model.bytes, c->o.manifest->hash, sizeof plan->model.bytes);
    plan->n_files = c->o.manifest->n_files;
    for (int k = 0; k < plan->n_files; k++) plan->file_size[k] = c->o.manifest->files[k].size;
    plan->n_ctx = (uint32_t)so->n_ctx;
    plan->n_batch = (uint32_t)(so->n_batch < so->n_ctx ? so->n_batch : so->n_ctx);
    plan->n_seq = (uint16_t)(so->n_ctx < KIN_CLUSTER_SEQUENCES - 1 ? so->n_ctx : KIN_CLUSTER_SEQUENCES - 1);
    plan->kv_type = so->kv_type == GGML_TYPE_Q8_0 ? KIN_PROTO_KV_Q8_0 : KIN_PROTO_KV_F16;
    plan->wire_type = c->o.wire_type;
    plan->flags = (so->flash ? KIN_PROTO_PLAN_FLASH : 0) | (devices->repack ? KIN_PROTO_PLAN_REPACK : 0) |
                  (devices->ggml_kernels ? KIN_PROTO_PLAN_GGML : 0) | (c->o.timeline ? KIN_PROTO_PLAN_TIMELINE : 0);
    if (kin_kv_window_of(&c->o.model->hp, so->n_ctx, (int)plan->n_batch, so->n_sequences).n_blocks > 0) {
        plan->flags |= KIN_PROTO_PLAN_WINDOWS;
        plan->n_sequences = (uint16_t)so->n_sequences;
    }
    plan->mode = so->mode == KIN_STREAM_MMAP       ? KIN_PROTO_MMAP
                 : so->mode == KIN_STREAM_WILLNEED ? KIN_PROTO_WILLNEED
                 : so->sliding.n_blocks > 0        ? KIN_PROTO_WINDOW
                                                   : KIN_PROTO_STREAM;
    plan->sliding_blocks = (uint16_t)so->sliding.n_blocks;
    plan->sliding_retain = (uint16_t)so->sliding.retain;
    plan->n_threads = (uint16_t)c->o.n_threads_hint;
    kin_assignment_fill(of, i, plan);
}

static void send_plan(kin_cluster *c, const kin_membership_action *a) {
    const kin_membership_device *d = kin_membership_device_at(c->membership, a->device);
    int i = kin_assignment_find(c->plan, &d->id);
    kin_proto_message *m = c->message;
    if (!kin_connections_link(c->connections, a->link) || i < 0) return;
    m->type = KIN_FRAME_PLAN;
    kin_cluster_fill_plan(c, c->plan, i, &m->plan);
    m->plan.group.allreduce = c->o.allreduce;
    fill_member(c, i, kin_assignment_behind(c->plan, i, 1), &m->plan.next_id, &m->plan.next);
    fill_member(c, i, kin_assignment_behind(c->plan, i, -1), &m->plan.previous_id, &m->plan.previous);
    fill_group(c, i, &m->plan.group);
    kin_connections_send(c->connections, a->link, a->epoch, m);
    kin_connections_send_haves(c->connections, a->link);
    kin_cluster_register_peer(c, a->link);
}

// ---- actions of the membership

static void connect_ring(kin_cluster *c) {
    kin_proto_endpoint to;
    if (c->plan->n_members > 1 && member_endpoint(c, 1, &to))
        kin_neighbours_connect(c->ring.neighbours, KIN_SIDE_NEXT, &to, NULL);
}

static void send_end(kin_cluster *c, const kin_membership_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_END};
    kin_label_set_sentence(m.end.reason, KIN_PROTO_MAX_REASON, a->text);
    kin_connections_send(c->connections, a->link, a->epoch, &m);
}

static void refuse(kin_cluster *c, const kin_membership_action *a) {
    kin_proto_message m = {.type = KIN_FRAME_REFUSE};
    kin_link *link = kin_connections_link(c->connections, a->link);
    if (!link) return;
    kin_label_set_sentence(m.refuse.reason, KIN_PROTO_MAX_REASON, a->text);
    kin_endpoint_send_message(link, 0, &m);
    kin_cluster_forget_probes(c, a->link);
    kin_connections_drop(c->connections, a->link, NULL);
}

static void break_request(kin_cluster *c, const char *why) {
    uv_mutex_lock(&c->mutex);
    snprintf(c->snapshot.broken, sizeof c->snapshot.broken, "%s", why);
    uv_mutex_unlock(&c->mutex);
    kin_message_queue_interrupt(c->ring.in, true);
}

static void apply_action(kin_cluster *c, const kin_membership_action *a) {
    switch (a->kind) {
    case KIN_MEMBERSHIP_ACCEPT: {
        kin_link *link = kin_connections_link(c->connections, a->link);
        if (link) kin_endpoint_send_accept(c->ring.endpoint, link);
        break;
    }
    case KIN_MEMBERSHIP_REFUSE: refuse(c, a); break;
    case KIN_MEMBERSHIP_DROP:
        kin_cluster_forget_probes(c, a->link);
        kin_connections_drop(c->connections, a->link, a->text);
        break;
    case KIN_MEMBERSHIP_ASK: kin_cluster_ask_planner(c, a); break;
    case KIN_MEMBERSHIP_PREFETCH: kin_cluster_prefetch(c, a); break;
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

// Describes what devices are busy with, for the waiting user.
static void describe(kin_cluster *c, char *buf, size_t n) {
    kin_membership_doing(c->membership, buf, n);
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        static const char *const stages[] = {"hashing", "fetching", "packing", "loading"};
        const kin_membership_device *d = kin_membership_device_at(c->membership, i);
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

// True if the plan's devices give a row the same bits in every step; the head's own weights are checked elsewhere.
static bool is_exact(const kin_cluster *c) {
    for (int i = 0; i < c->plan->n_members; i++) {
        if (kin_windows_n_gpu_layers(&c->plan->windows[i].windows) > 0) return false;
        const kin_membership_device *d = kin_cluster_device_with(c, &c->plan->ids[i]);
        if (d && d->features & KIN_PROTO_INEXACT) return false;
    }
    return true;
}

// Returns the layers at which windows begin.
static kin_border_set borders_of(const kin_assignment *plan) {
    kin_border_set borders = {0};
    for (int i = 0; i < plan->n_members; i++) {
        const kin_windows *w = &plan->windows[i].windows;
        for (int k = 0; k < w->n; k++) kin_border_set_add(&borders, w->at[k].layer_begin);
    }
    return borders;
}

// Publishes the snapshot for the computing thread.
static void publish(kin_cluster *c) {
    uint32_t epoch = kin_membership_epoch(c->membership);
    if (!kin_membership_accepts(c->membership, epoch)) epoch = 0;
    char doing[KIN_MEMBERSHIP_SENTENCE];
    describe(c, doing, sizeof doing);
    uv_mutex_lock(&c->mutex);
    if (epoch && c->snapshot.epoch != epoch) {
        kin_cluster_name_rows(c);
        c->snapshot.own = (kin_local_work){.windows = c->plan->windows[0],
                                           .share = c->plan->shares[0],
                                           .n_rounds = c->plan->n_rounds,
                                           .memory = c->plan->memory[0]};
        c->snapshot.n_members = c->plan->n_members;
        c->snapshot.n_stages = 0;
        for (int i = 0; i < c->plan->n_members; i++) c->snapshot.n_stages += c->plan->shares[i].rank == 0;
        c->snapshot.borders = borders_of(c->plan);
        c->snapshot.is_exact = is_exact(c);
    }
    atomic_store(&c->yields, kin_membership_yields(c->membership));
    c->snapshot.version++;
    c->snapshot.epoch = epoch;
    c->snapshot.up = kin_membership_state_now(c->membership) == KIN_MEMBERSHIP_SERVING;
    memcpy(c->snapshot.doing, doing, sizeof doing);
    c->snapshot.given_up = c->planning.give_up_at ? (kin_err){.text = ""} : c->planning.no_plan;
    uv_cond_broadcast(&c->changed);
    uv_mutex_unlock(&c->mutex);
}

// The head's place in the ring and in its group, where it is the last device.
static void enter_epoch(kin_cluster *c) {
    uint32_t epoch = kin_membership_epoch(c->membership);
    bool in_force = kin_membership_accepts(c->membership, epoch);
    size_t frame_max =
        kin_proto_step_size_max((uint32_t)c->o.shard.n_batch, (uint32_t)kin_border_most(&c->o.model->hp), c->o.wire_type);
    kin_ring_place place = {.epoch = in_force ? epoch : 0,
                            .frame_max = frame_max > KIN_FRAME_CAP_STEP ? KIN_FRAME_CAP_STEP : (uint32_t)frame_max};
    kin_proto_group group = {0};
    if (c->plan->n_members > 1) {
        place.who[KIN_SIDE_NEXT] = c->plan->ids[1];
        place.who[KIN_SIDE_PREVIOUS] = c->plan->ids[c->plan->n_members - 1];
    }
    if (place.epoch && place.epoch != c->ring.entered && c->plan->n_members > 1) {
        group.n_ranks = c->plan->shares[0].n_ranks;
        group.rank = c->plan->shares[0].rank;
        group.allreduce = c->o.allreduce;
        fill_group(c, 0, &group);
    }
    kin_ring_member_enter(&c->ring, &place, &group, c->o.wire_type);
    kin_relay_enter(c->relay, place.epoch, place.frame_max);
}

static kin_cluster_action *queue_action(kin_cluster_actions *q) {
    if (q->n == q->cap) {
        q->cap = q->cap ? 2 * q->cap : KIN_MEMBERSHIP_ACTIONS;
        q->at = realloc(q->at, (size_t)q->cap * sizeof *q->at);
        kin_assert(q->at);
    }
    return &q->at[q->n++];
}

static void run_queued(kin_cluster *c, const kin_cluster_action *a) {
    if (a->kind == KIN_CLUSTER_ACTS) {
        apply_action(c, &a->of_membership);
        return;
    }
    bool is_new = a->of_membership.epoch != c->entered;
    if (is_new) activate_answer(c, a->of_membership.question);
    if (is_new) kin_cluster_register_page_peers(c);
    c->entered = a->of_membership.epoch;
    enter_epoch(c);
}

// Runs at top level only: actions caused by an action are queued behind the others.
static void drain(kin_cluster *c) {
    kin_cluster_actions *q = &c->actions;
    if (q->is_draining) return;
    q->is_draining = true;
    while (q->next < q->n) {
        kin_cluster_action a = q->at[q->next++]; // the queue may grow meanwhile
        run_queued(c, &a);
    }
    q->next = q->n = 0;
    q->is_draining = false;
}

void kin_cluster_act(kin_cluster *c, const kin_membership_event *event) {
    const kin_membership_actions *actions = kin_membership_step(c->membership, kin_clock_now(), event);
    *queue_action(&c->actions) = (kin_cluster_action){.kind = KIN_CLUSTER_ENTERS,
                                                      .of_membership.epoch = kin_membership_epoch(c->membership),
                                                      .of_membership.question = kin_membership_planned_by(c->membership)};
    for (int i = 0; i < actions->n; i++)
        *queue_action(&c->actions) = (kin_cluster_action){.kind = KIN_CLUSTER_ACTS, .of_membership = actions->at[i]};
    bool has_changed = event->kind != KIN_MEMBERSHIP_TICK || actions->n > 0;
    drain(c);
    if (has_changed && !c->actions.is_draining) publish(c);
}

// ---- the endpoint's callbacks

// True once, from that time on.
static bool is_due(kin_time *at, kin_time now) {
    bool due = *at && now >= *at;
    if (due) *at = 0;
    return due;
}

// Wakes the computing thread, so that it checks whether to stop.
static void wake(kin_cluster *c) {
    kin_message_queue_interrupt(c->ring.in, true);
    uv_mutex_lock(&c->mutex);
    uv_cond_broadcast(&c->changed);
    uv_mutex_unlock(&c->mutex);
}

static void on_tick(void *user) {
    kin_cluster *c = user;
    kin_time now = kin_clock_now();
    if (c->o.stop && atomic_load(c->o.stop)) wake(c);
    kin_connections_tick(c->connections);
    kin_cluster_act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_TICK});
    if (is_due(&c->reconnect_at, now) && c->wants_ring) connect_ring(c);
    if (is_due(&c->planning.give_up_at, now)) publish(c);
    kin_cluster_status_tick(c, now);
    kin_cluster_steps_tick(c, now);
    kin_group_links_tick(c->ring.group_links);
    kin_cluster_planning_tick(c, now);
    kin_cluster_prefetch_tick(c, now);
}

// Handles an invalid message of the last member.
static void on_wrong(void *arg) {
    kin_cluster *c = arg;
    uv_mutex_lock(&c->mutex);
    kin_err why = c->wrong;
    uint32_t epoch = c->wrong_epoch;
    uv_mutex_unlock(&c->mutex);
    kin_cluster_act(
        c, &(kin_membership_event){
               .kind = KIN_MEMBERSHIP_WRONG, .epoch = epoch, .reason = why.text, .progress_made = kin_cluster_progress_made(c)});
}

void kin_cluster_report_wrong(kin_cluster *c, uint32_t epoch, const char *reason) {
    uv_mutex_lock(&c->mutex);
    kin_err_set(&c->wrong, "%s", reason);
    c->wrong_epoch = epoch;
    uv_mutex_unlock(&c->mutex);
    kin_endpoint_call(c->ring.endpoint, on_wrong, c);
}

static void on_head_hop(void *user, kin_side side, uint32_t epoch, bool is_open, const char *reason) {
    kin_cluster *c = user;
    if (side == KIN_SIDE_PREVIOUS) return; // the last member reports the state of that link
    if (!c->ring.is_next_open && !c->reconnect_at) c->reconnect_at = kin_clock_now() + RECONNECT_MS * UINT64_C(1000000);
    kin_cluster_act(c, &(kin_membership_event){.kind = is_open ? KIN_MEMBERSHIP_RING_OPENED : KIN_MEMBERSHIP_RING_CLOSED,
                                               .link = KIN_MEMBERSHIP_OWN,
                                               .epoch = epoch,
                                               .reason = reason,
                                               .progress_made = kin_cluster_progress_made(c)});
}

// Embedding and output layer stay on the head.
static int withhold_private(kin_cluster *c, kin_err *err) {
    bool *is_private = calloc(c->o.manifest->n_chunks, sizeof *is_private);
    if (!is_private) return kin_err_set(err, "out of memory");
    if (kin_ranges_private(c->o.model->gguf, c->o.manifest, is_private, err) != 0) {
        free(is_private);
        return KIN_FAIL;
    }
    kin_chunk_store_set_private(c->chunks, is_private);
    return 0;
}

static void open_chunk_server(kin_cluster *c) {
    kin_err err;
    kin_store *store = NULL;
    if (kin_chunk_server_open(&c->ring.server, kin_endpoint_loop(c->ring.endpoint), NULL, &err) != 0 ||
        kin_store_open_files(&store, c->o.manifest, c->o.paths, &err) != 0 ||
        kin_chunk_store_new(&c->chunks, kin_endpoint_loop(c->ring.endpoint), store, &err) != 0 ||
        withhold_private(c, &err) != 0) {
        kin_log(KIN_LOG_WARN, "devices cannot fetch the model from this head: %s", err.text);
        if (!c->chunks) kin_store_close(store);
        return;
    }
    kin_chunk_server_set_store(c->ring.server, c->chunks);
}

static void begin_cluster(void *arg) {
    kin_cluster *c = arg;
    kin_err err;
    open_chunk_server(c);
    kin_cluster_open_pages(c);
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
    kin_connections_close(c->connections, KIN_GOODBYE_STOPPED);
    kin_status_subscribers_close(c->status.subscribers, "the head was stopped");
    c->connections = NULL;
    c->status.subscribers = NULL;
    kin_relay_close(c->relay, "the head was stopped");
    c->relay = NULL;
    kin_ring_member_end(&c->ring, "the head was stopped");
    kin_chunk_store_release(c->chunks);
    kin_discovery_close(c->discovery);
}

// ---- calls from the computing thread, through the mailbox

void kin_cluster_on_begins(void *arg) {
    kin_cluster *c = arg;
    uint32_t generation = kin_completion_asked(&c->beginning), epoch = atomic_load(&c->wanted_epoch);
    // The epoch may have ended in the meantime.
    bool can = kin_membership_accepts(c->membership, epoch) && kin_membership_state_now(c->membership) == KIN_MEMBERSHIP_SERVING;
    if (can) {
        c->request_epoch = epoch;
        kin_cluster_begin_measuring(c, epoch, kin_clock_now());
        kin_cluster_act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_BEGINS});
    }
    kin_completion_done(&c->beginning, generation, can);
}

void kin_cluster_on_ends(void *arg) {
    kin_cluster *c = arg;
    kin_cluster_act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_ENDS, .epoch = c->request_epoch});
    c->request_epoch = 0;
    kin_cluster_on_measure(c);
}

uint16_t kin_cluster_port(const kin_cluster *c) {
    return kin_endpoint_port(c->ring.endpoint);
}

// ---- opening and closing

static int open_membership(kin_cluster *c, kin_err *err) {
    kin_membership_options ro = kin_membership_options_default();
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    ro.id = c->o.id;
    kin_label_set(ro.name, sizeof ro.name - 1, c->o.name);
    memcpy(ro.model.bytes, c->o.manifest->hash, sizeof ro.model.bytes);
    ro.epoch_first = kin_epoch_at((uint64_t)wall.tv_sec, (uint32_t)wall.tv_nsec);
    ro.n_expected = c->o.n_expected;
    ro.dry_run = c->o.dry_run;
    ro.facts_wait_ns = TESTS_WAIT_NS;
    c->membership = kin_membership_new(&ro, kin_clock_now());
    if (!c->membership) return kin_err_set(err, "out of memory");
    c->entered = kin_membership_epoch(c->membership);
    return 0;
}

static bool is_busy(void *user) {
    return !kin_cluster_is_quiet(user, kin_clock_now());
}

static int open_all(kin_cluster *c, kin_err *err) {
    c->plan = calloc(1, sizeof *c->plan);
    c->next = calloc(1, sizeof *c->next);
    c->asked = calloc(1, sizeof *c->asked);
    c->message = calloc(1, sizeof *c->message);
    c->computing.seen = calloc(1, sizeof *c->computing.seen);
    if (!c->plan || !c->next || !c->asked || !c->message || !c->computing.seen) return kin_err_set(err, "out of memory");
    static const kin_connections_callbacks connection_callbacks = {.message = on_message, .lost = on_lost};
    static const kin_endpoint_callbacks callbacks = {.tick = on_tick, .opened = on_link};
    const kin_ring_member_options ro = {.endpoint = {.id = c->o.id,
                                                     .name = c->o.name,
                                                     .version = c->o.version,
                                                     .key = c->o.key,
                                                     .listen = c->o.listen,
                                                     .port = c->o.port},
                                        .callbacks = &callbacks,
                                        .hop = on_head_hop,
                                        .is_busy = is_busy,
                                        .pack = kin_cluster_pack,
                                        .packed = kin_cluster_on_packed,
                                        .user = c,
                                        .trace = kin_timeline_own(c->o.timeline),
                                        .stop = c->o.stop};
    if (kin_ring_member_open(&c->ring, &ro, err) != 0) return KIN_FAIL;
    kin_local_stage_options oo = {
        .model = c->o.model, .devices = c->o.devices, .shard = c->o.shard, .sum = kin_exchange_sum(c->ring.exchange)};
    if (kin_connections_open(&c->connections, &connection_callbacks, c, err) != 0 ||
        kin_local_stage_open(&c->computing.local_stage, &oo, err) != 0)
        return KIN_FAIL;
    if (kin_relay_open(&c->relay, relay_begun, c, err) != 0) return KIN_FAIL;
    if (kin_cluster_open_status(c, err) != 0 || kin_cluster_open_planning(c, err) != 0) return KIN_FAIL;
    if (kin_cluster_open_prefetch(c, err) != 0) return KIN_FAIL;
    if (kin_loopback_open(&c->computing.loopback, c->o.shard.n_batch, kin_border_most(&c->o.model->hp), KIN_STEPS_IN_FLIGHT,
                          err) != 0)
        return KIN_FAIL;
    if (open_membership(c, err) != 0) return KIN_FAIL;
    return kin_endpoint_start(c->ring.endpoint, begin_cluster, c, err);
}

static int check_batch(const kin_cluster_options *o, kin_err *err) {
    int n = o->shard.n_batch < o->shard.n_ctx ? o->shard.n_batch : o->shard.n_ctx;
    size_t bytes = kin_proto_step_size_max((uint32_t)n, (uint32_t)kin_border_most(&o->model->hp), o->wire_type);
    if (bytes <= KIN_FRAME_CAP_STEP && n <= KIN_PROTO_MAX_TOKENS) return 0;
    return kin_err_set(err, "--batch %d: too many tokens for a network frame of at most %u MiB", n, KIN_FRAME_CAP_STEP >> 20);
}

int kin_cluster_open(kin_cluster **out_cluster, const kin_cluster_options *o, kin_err *err) {
    *out_cluster = NULL;
    if (check_batch(o, err) != 0) return KIN_FAIL;
    kin_cluster *c = calloc(1, sizeof *c);
    if (!c) return kin_err_set(err, "out of memory");
    c->o = *o;
    if (c->o.shard.n_batch > c->o.shard.n_ctx) c->o.shard.n_batch = c->o.shard.n_ctx;
    kin_cluster_init_pages(c);
    uv_mutex_init(&c->mutex);
    uv_cond_init(&c->changed);
    kin_completion_init(&c->beginning);
    kin_completion_init(&c->status.gather.completion);
    kin_completion_init(&c->planning.measure.completion);
    if (open_all(c, err) != 0) {
        kin_cluster_close(c);
        return KIN_FAIL;
    }
    *out_cluster = c;
    return 0;
}

void kin_cluster_close(kin_cluster *c) {
    if (!c) return;
    kin_cluster_settle_pages(c);
    kin_planning_stop(c->planning.thread); // its thread posts calls to the loop
    kin_ring_member_stop(&c->ring, end_cluster, c);
    kin_connections_close(c->connections, NULL);
    kin_status_subscribers_close(c->status.subscribers, NULL);
    kin_relay_close(c->relay, NULL);
    kin_cluster_close_requests(c);
    kin_ring_member_close(&c->ring);
    kin_cluster_close_planning(c);
    kin_cluster_close_prefetch(c);
    kin_membership_free(c->membership);
    kin_completion_fini(&c->planning.measure.completion);
    kin_completion_fini(&c->status.gather.completion);
    kin_completion_fini(&c->beginning);
    uv_cond_destroy(&c->changed);
    uv_mutex_destroy(&c->mutex);
    kin_key_wipe(&c->o.key);
    free(c->plan);
    free(c->next);
    free(c->asked);
    free(c->message);
    free(c->computing.seen);
    free(c->actions.at);
    free(c);
}
