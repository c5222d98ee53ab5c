#include "cluster/cluster_impl.h"

#include <stdlib.h>
#include <string.h>

#include "observe/status_json.h"
#include "pure/proto/id.h"

#define POLL_NS UINT64_C(500000000) // for the devices to answer

// ---- the timeline

void kin_cluster_name_rows(kin_cluster *c) {
    for (int i = 1; i < c->plan->n_members; i++) {
        const kin_membership_device *d = kin_cluster_device_with(c, &c->plan->ids[i]);
        if (d) kin_timeline_place(c->o.timeline, d->name, &c->plan->windows[i].windows);
    }
    kin_timeline_place(c->o.timeline, c->o.name, &c->plan->windows[0].windows);
}

void kin_cluster_handle_events(kin_cluster *c, uint32_t from, const kin_proto_events *m) {
    const kin_membership_device *d = kin_cluster_device_of(c, from);
    if (!c->o.timeline || !d) return;
    int64_t ahead = kin_link_stats_now(kin_connections_link(c->connections, from)).clock_ahead_ns;
    kin_timeline_add(c->o.timeline, kin_timeline_row(c->o.timeline, d->name), m->event, m->n_events, ahead);
}

void kin_cluster_on_gather(void *arg) {
    kin_cluster *c = arg;
    kin_cluster_poll_begin(c, &c->status.gather);
}

// ---- polls of the devices

void kin_cluster_poll_begin(kin_cluster *c, kin_cluster_poll *poll) {
    poll->generation = kin_completion_asked(&poll->completion);
    poll->until = kin_clock_now() + POLL_NS;
    kin_connections_ask(c->connections);
}

bool kin_cluster_poll_ends(kin_cluster *c, kin_cluster_poll *poll, kin_time now) {
    if (!poll->until || (now < poll->until && !kin_connections_has_answered(c->connections))) return false;
    poll->until = 0;
    kin_connections_ask_no_more(c->connections);
    return true;
}

// ---- reports

static kin_proto_status own_status(kin_cluster *c) {
    kin_proto_status s = kin_local_stage_status(c->computing.local_stage, &c->status.own_sample.ready);
    kin_neighbours_stats net = kin_neighbours_stats_now(c->ring.neighbours);
    s.state = kin_membership_state_now(c->membership) != KIN_MEMBERSHIP_SERVING ? KIN_PROTO_PREPARING
              : kin_membership_n_requests(c->membership) > 0                    ? KIN_PROTO_COMPUTING
                                                                                : KIN_PROTO_WAITING;
    s.net_in = net.net_in;
    s.net_out = net.net_out;
    s.rtt_ns = net.rtt_ns;
    return s;
}

static void ask(void *user) {
    kin_cluster *c = user;
    kin_time now = kin_clock_now();
    kin_status_sample *own = &c->status.own_sample;
    uint64_t n = atomic_load(&kin_local_stage_counts(c->computing.local_stage)->n_generated);
    c->status.tokens_per_s =
        now > c->status.counted_at ? (double)(n - c->status.counted) / kin_clock_ms(c->status.counted_at, now) * 1e3 : 0;
    c->status.counted = n;
    c->status.counted_at = now;
    own->before = own->now;
    own->has_before = own->has_now;
    own->now = own_status(c);
    own->has_now = true;
    if (!c->status.gather.until && !c->planning.measure.until && !c->steps.until)
        kin_connections_ask_no_more(c->connections); // answers may be lost
    kin_connections_ask(c->connections);
}

static bool has_answered(void *user) {
    const kin_cluster *c = user;
    return kin_connections_has_answered(c->connections);
}

static void describe_head(kin_cluster *c, kin_status_json_head *h, char doing[KIN_MEMBERSHIP_SENTENCE]) {
    kin_head_counts *counts = kin_local_stage_counts(c->computing.local_stage);
    *h = (kin_status_json_head){.name = c->o.name,
                                .version = c->o.version,
                                .model = c->o.model_name,
                                .doing = kin_membership_doing(c->membership, doing, KIN_MEMBERSHIP_SENTENCE),
                                .port = kin_endpoint_port(c->ring.endpoint),
                                .state = kin_membership_state_now(c->membership),
                                .epoch = kin_membership_epoch(c->membership),
                                .n_rounds = c->plan->n_rounds,
                                .n_layer = c->o.model->hp.n_layer,
                                .n_ctx = c->o.shard.n_ctx,
                                .n_sequences = (int)atomic_load(&counts->n_running),
                                .n_sequences_total = atomic_load(&counts->n_sequences),
                                .n_prompt = atomic_load(&counts->n_prompt),
                                .n_generated = atomic_load(&counts->n_generated),
                                .tokens_per_s = c->status.tokens_per_s,
                                .pages_bytes = c->pages.bytes,
                                .uptime_s = kin_clock_ms(c->status.begun, kin_clock_now()) / 1e3};
    memcpy(h->model_hash.bytes, c->o.manifest->hash, sizeof h->model_hash.bytes);
}

static void add_device(kin_cluster *c, kin_status_json *r, const kin_membership_device *d) {
    kin_status_json_member *m = &r->members[r->n_members++];
    const kin_link *link = kin_connections_link(c->connections, d->link);
    int i = d->stage ? kin_assignment_find(c->plan, &d->id) : -1;
    *m = (kin_status_json_member){.device = d,
                                  .address = link ? kin_link_name(link) : NULL,
                                  .sample = kin_connections_sample_of(c->connections, d->link),
                                  .stage = d->stage,
                                  .windows = i < 0 ? NULL : &c->plan->windows[i],
                                  .memory_planned = i < 0 ? 0 : c->plan->memory[i]};
}

static void add_own(kin_cluster *c, kin_status_json *r) {
    bool planned = c->plan->n_rounds > 0 && kin_membership_accepts(c->membership, kin_membership_epoch(c->membership));
    r->members[r->n_members++] = (kin_status_json_member){.sample = c->status.own_sample,
                                                          .stage = planned ? c->plan->n_members : 0,
                                                          .windows = planned ? &c->plan->windows[0] : NULL,
                                                          .memory_planned = planned ? c->plan->memory[0] : 0};
}

// Lists the devices in the order of the ring, then the head, then those that are not in the ring.
static char *report(void *user) {
    kin_cluster *c = user;
    char doing[KIN_MEMBERSHIP_SENTENCE];
    kin_status_json *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    describe_head(c, &r->head, doing);
    for (int stage = 1; stage <= KIN_MEMBERSHIP_DEVICES; stage++) {
        for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
            const kin_membership_device *d = kin_membership_device_at(c->membership, i);
            if (d && d->stage == stage) add_device(c, r, d);
        }
    }
    add_own(c, r);
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *d = kin_membership_device_at(c->membership, i);
        if (d && d->stage == 0) add_device(c, r, d);
    }
    char *text = kin_status_json_write(r, KIN_FRAME_REPORT_BYTES);
    free(r);
    return text;
}

int kin_cluster_open_status(kin_cluster *c, kin_err *err) {
    static const kin_status_subscribers_callbacks callbacks = {.ask = ask, .has_answered = has_answered, .report = report};
    c->status.begun = c->status.counted_at = kin_clock_now();
    return kin_status_subscribers_open(&c->status.subscribers, &callbacks, c, err);
}

static void on_status_query(void *arg) {
    kin_cluster *c = arg;
    kin_status_report_fn receive = c->status.query.receive;
    void *user = c->status.query.user;
    atomic_store(&c->status.query.is_pending, false);
    kin_status_subscribers_ask(c->status.subscribers, receive, user);
}

void kin_cluster_ask_status(kin_cluster *c, kin_status_report_fn receive, void *user) {
    kin_cluster_status_query *q = &c->status.query;
    if (atomic_exchange(&q->is_pending, true)) return;
    q->receive = receive;
    q->user = user;
    kin_endpoint_call(c->ring.endpoint, on_status_query, c); // fails only while the cluster is being closed
}

void kin_cluster_accept_status_link(kin_cluster *c, kin_link *link) {
    if (kin_status_subscribers_add(c->status.subscribers, link))
        kin_endpoint_send_accept(c->ring.endpoint, link);
    else
        kin_endpoint_refuse(link, "busy: too many status clients");
}

void kin_cluster_status_tick(kin_cluster *c, kin_time now) {
    kin_status_subscribers_tick(c->status.subscribers);
    if (kin_cluster_poll_ends(c, &c->status.gather, now))
        kin_completion_done(&c->status.gather.completion, c->status.gather.generation, true);
}
