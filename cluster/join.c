#include "cluster/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/join/compute.h"
#include "cluster/join/fetch.h"
#include "cluster/join/measure.h"
#include "cluster/join/messages.h"
#include "cluster/join/pages.h"
#include "cluster/join/prefetch.h"
#include "cluster/join/prepare.h"
#include "net/address.h"
#include "net/dial.h"
#include "pure/proto/goodbye.h"

enum {
    HANG_MS = 120000,  // one operation of 512 tokens may take half a minute on a slow processor
    STEPS_BYTES = 600, // bytes between two ticks: more than heartbeats
    STEPS_MS = 3000,   // after the last ones
    LONG_SILENCE_MS = 6000,
};

// ---- gateway for devices that reach this one but not the head

static void pass_links_on(kin_join *j, const char *head_name) {
    kin_err err;
    if (!j->gateway) return;
    kin_gateway_set_head(j->gateway, j->head.address, j->head.port);
    kin_discovery_options o = {.port = KIN_DISCOVERY_PORT};
    memcpy(o.key, j->o.key.bytes, sizeof o.key);
    kin_discovery_self self = {
        .id = j->head.id, .name = head_name, .port = kin_endpoint_port(j->ring.endpoint), .features = KIN_BEACON_IS_GATEWAY};
    if (kin_discovery_answer(&j->announces, kin_endpoint_loop(j->ring.endpoint), &o, &self, &err) == 0) return;
    kin_log(KIN_LOG_DEBUG, "this device cannot help others to find the head: %s", err.text);
    j->announces = NULL;
}

static void pass_no_links_on(kin_join *j) {
    kin_discovery_close(j->announces);
    j->announces = NULL;
    if (j->gateway) kin_gateway_set_head(j->gateway, NULL, 0);
}

// ---- the control link

static void drop_control(kin_join *j, const char *reason) {
    pass_no_links_on(j);
    kin_dial_cancel(j->head.dial, reason);
    kin_link_close(j->head.link, reason);
    j->head.dial = NULL;
    j->head.link = NULL;
    kin_probe_queue_clear(j->head.probes);
}

static void give_up(kin_join *j, const char *why) {
    pthread_mutex_lock(&j->mutex);
    j->given_up = true;
    kin_err_set(&j->why, "%s", why);
    pthread_mutex_unlock(&j->mutex);
    kin_lazy_load_end(j->preparing.lazy_load, why);
    kin_message_queue_interrupt(j->ring.in, true);
}

// For a head that the user named. A head that was found has signed its answer with the key, so there the failure is temporary.
static void leave_foreign_head(kin_join *j, const char *at) {
    kin_err why;
    kin_err_set(&why, "the head at %s has another key: wrong code", at);
    pthread_mutex_lock(&j->mutex);
    j->has_other_key = true;
    pthread_mutex_unlock(&j->mutex);
    give_up(j, why.text);
}

static void leave_stranger(kin_join *j, const char *at) {
    kin_err why;
    kin_err_set(&why, "%s answers, but is not kin; check the port that the head listens on", at);
    give_up(j, why.text);
}

static void control_closed(void *user, kin_link *link, const char *reason) {
    kin_join *j = user;
    if (j->head.link != link) return;
    j->head.link = NULL;
    pass_no_links_on(j);
    kin_probe_queue_clear(j->head.probes);
    kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_LOST, .reason = reason});
}

static void leave_head(kin_join *j, const char *reason) {
    drop_control(j, reason);
    kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_LOST, .reason = reason});
}

static void note_accepted(kin_join *j) {
    if (!j->head.was_accepted && j->o.accepted) j->o.accepted(j->o.user);
    j->head.was_accepted = true;
}

static void handle_message(kin_join *j, uint32_t epoch, const kin_proto_message *m) {
    switch (m->type) {
    case KIN_FRAME_REFUSE: kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_REFUSED, .reason = m->refuse.reason}); break;
    case KIN_FRAME_PLAN: kin_join_handle_plan(j, epoch, &m->plan); break;
    case KIN_FRAME_PREFETCH: kin_join_handle_prefetch(j, &m->prefetch); break;
    case KIN_FRAME_END: kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_END, .epoch = epoch}); break;
    case KIN_FRAME_LEFT_OUT:
        kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_LEFT_OUT, .reason = m->left_out.reason});
        break;
    case KIN_FRAME_STATUS_WANTED: kin_join_send_status(j); break;
    case KIN_FRAME_MEASURE: kin_join_handle_measure(j, &m->measure); break;
    case KIN_FRAME_HAVE: kin_join_handle_have(j, &m->have); break;
    case KIN_FRAME_KEPT: kin_join_handle_kept(j, &m->kept); break;
    default: leave_head(j, "unexpected message for a device"); break;
    }
}

static void control_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    kin_join *j = user;
    (void)link;
    kin_err err;
    if (kin_proto_decode(frame->type, payload, frame->length, j->message, &err) == 0)
        handle_message(j, frame->epoch, j->message);
    else
        leave_head(j, err.text);
}

static void control_accepted(void *user, kin_link *link, const kin_proto_accept *accept) {
    static const kin_link_callbacks callbacks = {.frame = control_frame, .closed = control_closed};
    kin_join *j = user;
    j->head.dial = NULL;
    j->head.link = link;
    kin_link_accept(link, &callbacks, j);
    kin_link_set_frame_max(link, KIN_FRAME_CAP_LARGE);
    j->head.id = accept->id;
    j->head.is_by_gateway = accept->features & KIN_PROTO_BY_GATEWAY;
    pass_links_on(j, accept->name);
    kin_join_end_prefetch(j); // tickets belong to a head
    note_accepted(j);
    kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_ACCEPTED, .name = accept->name});
    kin_join_send_have(j);
}

static void control_failed(void *user, const kin_dial_failure *failure) {
    kin_join *j = user;
    j->head.dial = NULL;
    if (j->o.head && failure->end == KIN_DIAL_OTHER_KEY) {
        leave_foreign_head(j, failure->at);
        return;
    }
    if (j->o.head && !j->head.was_accepted && failure->end == KIN_DIAL_STRANGER) {
        leave_stranger(j, failure->at);
        return;
    }
    kin_member_event_kind kind = failure->end == KIN_DIAL_REFUSED ? KIN_MEMBER_REFUSED : KIN_MEMBER_LOST;
    kin_join_act(j, &(kin_member_event){.kind = kind, .reason = failure->reason});
}

static void connect_head(kin_join *j, const kin_member_action *a) {
    static const kin_dial_callbacks callbacks = {.accepted = control_accepted, .failed = control_failed};
    kin_dial_options o = kin_dial_options_default(kin_endpoint_tls(j->ring.endpoint));
    kin_err err;
    drop_control(j, NULL);
    j->head.is_backpressured = false;
    snprintf(j->head.address, sizeof j->head.address, "%s", a->address);
    j->head.port = a->port;
    o.to = kin_dial_address(a->address, a->port);
    o.open = kin_endpoint_self(j->ring.endpoint);
    o.open.role = KIN_PROTO_CONTROL;
    if (kin_dial_start(&j->head.dial, kin_endpoint_loop(j->ring.endpoint), &o, &callbacks, j, &err) == 0) return;
    kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_LOST, .reason = err.text});
}

// ---- actions of the membership

// Connects to the neighbour, or to the head, which relays.
static void connect_ring(kin_join *j, kin_side side, bool by_head) {
    kin_proto_endpoint to = by_head ? (kin_proto_endpoint){0} : side == KIN_SIDE_NEXT ? j->plan->next : j->plan->previous;
    bool is_head = to.n_addresses == 0;
    kin_join_fill_endpoint(j, &to);
    kin_neighbours_connect(j->ring.neighbours, side, &to, is_head ? &j->head.id : NULL);
}

static void enter_epoch(kin_join *j, uint32_t epoch) {
    size_t frame_max = 0;
    kin_proto_group group = {0};
    if (epoch && j->preparing.n_embd)
        frame_max = kin_proto_step_size_max(j->plan->n_batch, (uint32_t)j->preparing.n_embd, j->plan->wire_type);
    kin_trace_turn(kin_metrics_trace(j->metrics), epoch && (j->plan->flags & KIN_PROTO_PLAN_TIMELINE));
    kin_ring_place place = {.epoch = epoch,
                            .frame_max = frame_max > KIN_FRAME_CAP_STEP ? KIN_FRAME_CAP_STEP : (uint32_t)frame_max,
                            .who = {j->plan->next_id, j->plan->previous_id}};
    if (epoch && epoch != j->ring.entered) group = j->plan->group;
    for (int r = 0; r < group.n_ranks; r++) {
        if (r != group.rank) kin_join_fill_endpoint(j, &group.endpoint[r]);
    }
    kin_ring_member_enter(&j->ring, &place, &group, j->plan->wire_type);
}

static void search(kin_join *j) {
    kin_err err;
    if (j->head.search && kin_discovery_ask(j->head.search, &err) != 0) kin_log(KIN_LOG_DEBUG, "search: %s", err.text);
}

static void apply_action(kin_join *j, const kin_member_action *a) {
    switch (a->kind) {
    case KIN_MEMBER_SEARCH: search(j); break;
    case KIN_MEMBER_CONNECT: connect_head(j, a); break;
    case KIN_MEMBER_DROP: drop_control(j, a->text[0] ? a->text : NULL); break;
    case KIN_MEMBER_SEND_FACTS: kin_join_send_facts(j); break;
    case KIN_MEMBER_PREPARE: kin_join_prepare(j, a->ticket); break;
    case KIN_MEMBER_CANCEL: break; // fetched chunks stay; an instance being opened is replaced
    case KIN_MEMBER_REUSE: kin_join_reuse(j, a->epoch); break;
    case KIN_MEMBER_SEND_PROGRESS: kin_join_send_progress(j, a->epoch); break;
    case KIN_MEMBER_SEND_READY: kin_join_send_ready(j, a->epoch); break;
    case KIN_MEMBER_SEND_FAILED: kin_join_send_failed(j, a); break;
    case KIN_MEMBER_CONNECT_NEXT: connect_ring(j, KIN_SIDE_NEXT, a->by_head); break;
    case KIN_MEMBER_CONNECT_PREVIOUS: connect_ring(j, KIN_SIDE_PREVIOUS, a->by_head); break;
    case KIN_MEMBER_CLOSE_RING:
        kin_neighbours_end(j->ring.neighbours, KIN_SIDE_NEXT);
        kin_neighbours_end(j->ring.neighbours, KIN_SIDE_PREVIOUS);
        break;
    case KIN_MEMBER_SEND_RING: kin_join_send_next(j, a); break;
    case KIN_MEMBER_GIVE_UP: give_up(j, a->text); break;
    case KIN_MEMBER_LOG: kin_log(a->level, "%s", a->text); break;
    case KIN_MEMBER_STATUS: kin_join_report_status(j); break;
    }
}

static void run_queued(kin_join *j, const kin_join_action *a) {
    if (a->enters)
        enter_epoch(j, a->of_member.epoch);
    else
        apply_action(j, &a->of_member);
}

// ---- the endpoint's callbacks

// Called outside of actions, since they are running when the backpressure is noticed.
static void leave_unresponsive_head(kin_join *j) {
    static const char reason[] = "it does not read its messages";
    if (!j->head.link || !j->head.is_backpressured) return;
    drop_control(j, reason);
    kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_LOST, .reason = reason});
}

// The computing thread hangs. The ring continues without this device, which is of no use to another ring either.
static void leave_for_good(kin_join *j) {
    char why[128], line[160];
    snprintf(why, sizeof why, "no progress in a step for %d s: a disk or the driver of a GPU hangs",
             (int)(j->watch.dog.silent_ns / 1000000000));
    snprintf(line, sizeof line, "left the head permanently: %s", why);
    j->watch.hangs = true;
    drop_control(j, why);
    kin_ring_member_enter(&j->ring, &(kin_ring_place){0}, &(kin_proto_group){0}, KIN_ACTIVATION_F32);
    give_up(j, why);
    if (j->o.status) j->o.status(j->o.user, line);
}

static bool is_hanging(kin_join *j) {
    bool is_busy = atomic_load(&j->is_computing) && !atomic_load(&j->is_fetching); // else it may wait for weights
    return kin_watchdog_check(&j->watch.dog, kin_clock_now(), is_busy, atomic_load(&j->n_signs));
}

// While steps come, messages of the head and the next member may be queued behind them, before a slow link, so a longer silence
// is allowed. A dead member is detected by its other links, or when no more steps come.
static void extend_silence(kin_join *j, kin_time now) {
    uint64_t net_in = kin_neighbours_stats_now(j->ring.neighbours).net_in;
    if (net_in > j->watch.net_in + STEPS_BYTES) j->watch.steps_at = now;
    j->watch.net_in = net_in;
    uint32_t silence_ms = j->watch.steps_at && kin_clock_ms(j->watch.steps_at, now) < STEPS_MS
                              ? LONG_SILENCE_MS
                              : kin_link_options_default(NULL).silence_ms;
    if (j->head.link) kin_link_set_silence(j->head.link, silence_ms);
    kin_neighbours_set_silence(j->ring.neighbours, silence_ms);
}

static void on_tick(void *user) {
    kin_join *j = user;
    if (atomic_load(j->o.stop)) kin_message_queue_interrupt(j->ring.in, true); // the computing thread checks whether to stop
    if (!j->watch.hangs && is_hanging(j)) leave_for_good(j);
    if (j->watch.hangs) return;
    extend_silence(j, kin_clock_now());
    leave_unresponsive_head(j);
    if (j->gateway) kin_gateway_tick(j->gateway);
    kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_TICK});
    kin_group_links_tick(j->ring.group_links);
    kin_join_prefetch_tick(j);
    if (j->fetching.owes_have) kin_join_send_have(j);
    kin_join_send_events(j);
}

static void on_device_hop(void *user, kin_side side, uint32_t epoch, bool is_open, const char *reason) {
    static const kin_member_event_kind kinds[KIN_N_SIDES][2] = {
        [KIN_SIDE_NEXT] = {KIN_MEMBER_NEXT_CLOSED, KIN_MEMBER_NEXT_OPENED},
        [KIN_SIDE_PREVIOUS] = {KIN_MEMBER_PREVIOUS_CLOSED, KIN_MEMBER_PREVIOUS_OPENED},
    };
    kin_join_act(user, &(kin_member_event){.kind = kinds[side][is_open], .epoch = epoch, .reason = reason});
}

static void on_link(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    kin_join *j = user;
    if (j->gateway && kin_gateway_accept(j->gateway, link, epoch, open)) return;
    if (kin_ring_member_accept(&j->ring, link, epoch, open)) return;
    if (open->role == KIN_PROTO_RING || open->role == KIN_PROTO_BACK)
        kin_endpoint_refuse(link, "identity: this is not the device that was called");
    else
        kin_endpoint_refuse(link, "no head: this is a device without a head at present");
}

static void on_found(void *user, const kin_beacon *head, const char *address) {
    kin_join *j = user;
    kin_join_act(j, &(kin_member_event){.kind = KIN_MEMBER_FOUND,
                                        .name = head->name,
                                        .address = address,
                                        .port = head->port,
                                        .is_gateway = head->features & KIN_BEACON_IS_GATEWAY});
}

static void begin_join(void *arg) {
    kin_join *j = arg;
    kin_err err;
    if (kin_chunk_server_open(&j->ring.server, kin_endpoint_loop(j->ring.endpoint), NULL, &err) != 0 ||
        kin_join_open_probes(j, &err) != 0 || (!j->o.engine && kin_gateway_open(&j->gateway, j->ring.endpoint, &err) != 0)) {
        give_up(j, err.text);
        return;
    }
    kin_join_open_pages(j);
    if (!j->o.head) {
        kin_discovery_options o = {.port = KIN_DISCOVERY_PORT};
        memcpy(o.key, j->o.key.bytes, sizeof o.key);
        if (kin_discovery_search(&j->head.search, kin_endpoint_loop(j->ring.endpoint), &o, on_found, j, &err) != 0) {
            kin_log(KIN_LOG_WARN, "cannot search for heads: %s; give the head's address", err.text);
        }
    }
    on_tick(j);
    kin_join_report_status(j);
}

static void end_join(void *arg) {
    kin_join *j = arg;
    drop_control(j, KIN_GOODBYE_STOPPED);
    kin_lazy_load_end(j->preparing.lazy_load, "the device was stopped");
    kin_probe_queue_close(j->head.probes);
    kin_fetch_cancel(j->fetching.fetch);
    kin_ring_member_end(&j->ring, KIN_GOODBYE_STOPPED);
    kin_chunk_store_release(j->fetching.chunks);
    kin_discovery_close(j->head.search);
    kin_gateway_close(j->gateway);
}

// ---- opening and closing

static int open_all(kin_join *j, kin_err *err) {
    kin_member_options mo = kin_member_options_default();
    memcpy(&mo.seed, j->o.id.bytes, sizeof mo.seed);
    mo.seed ^= kin_clock_now();
    if (j->o.head) snprintf(mo.address, sizeof mo.address, "%s", j->o.head);
    mo.port = j->o.head_port;
    j->plan = calloc(1, sizeof *j->plan);
    j->arriving = calloc(1, sizeof *j->arriving);
    j->message = calloc(1, sizeof *j->message);
    j->member = kin_member_new(&mo, kin_clock_now());
    if (!j->plan || !j->arriving || !j->message || !j->member) return kin_err_set(err, "out of memory");
    if (kin_metrics_open(&j->metrics, err) != 0 || kin_lazy_load_open(&j->preparing.lazy_load, j->o.stop, err) != 0)
        return KIN_FAIL;
    uint32_t own = (kin_device_has_kernels() ? 0 : KIN_PROTO_INEXACT) | (j->o.no_cache ? KIN_PROTO_NO_SLICES : 0);
    static const kin_endpoint_callbacks callbacks = {.tick = on_tick, .opened = on_link};
    const kin_ring_member_options ro = {.endpoint = {.id = j->o.id,
                                                     .run = j->o.run,
                                                     .name = j->o.name,
                                                     .version = j->o.version,
                                                     .features = j->o.engine ? j->o.engine->features : own,
                                                     .key = j->o.key,
                                                     .listen = j->o.listen,
                                                     .port = j->o.port},
                                        .callbacks = &callbacks,
                                        .hop = on_device_hop,
                                        .page_written = kin_join_on_page_written,
                                        .is_busy = kin_join_is_busy,
                                        .pack = kin_join_pack,
                                        .packed = kin_join_on_packed,
                                        .user = j,
                                        .trace = kin_metrics_trace(j->metrics),
                                        .stop = j->o.stop,
                                        .n_signs = &j->n_signs};
    if (kin_ring_member_open(&j->ring, &ro, err) != 0 || kin_join_open_prefetch(j, err) != 0) return KIN_FAIL;
    return kin_endpoint_start(j->ring.endpoint, begin_join, j, err);
}

static void close_all(kin_join *j) {
    kin_join_close_instance(j); // first: threads that pack for it report through the endpoint
    kin_ring_member_stop(&j->ring, end_join, j);
    kin_metrics_close(j->metrics);
    kin_lazy_load_close(j->preparing.lazy_load);
    kin_ring_member_close(&j->ring);
    kin_member_free(j->member);
    kin_join_close_prefetch(j);
    free(j->plan);
    free(j->arriving);
    free(j->message);
    free(j->actions.at);
    kin_join_fini_pages(j);
    pthread_mutex_destroy(&j->mutex);
    kin_key_wipe(&j->o.key);
    free(j);
}

int kin_join_run(const kin_join_options *o, kin_err *err) {
    kin_join *j = calloc(1, sizeof *j);
    if (!j) return kin_err_set(err, "out of memory");
    j->o = *o;
    j->watch.dog.least_ns = (o->hang_ms ? o->hang_ms : HANG_MS) * UINT64_C(1000000);
    pthread_mutex_init(&j->mutex, NULL);
    kin_join_init_pages(j);
    kin_join_open_prepare(j);
    j->actions.run = run_queued;
    int rc = open_all(j, err) == 0 ? kin_join_compute(j, err) : KIN_FAIL;
    close_all(j);
    return rc;
}
