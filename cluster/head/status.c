#include "cluster/head/status.h"

#include <stdlib.h>
#include <string.h>

#include "observe/status_json.h"

// ---- the timeline

void kin_cluster_status_name_rows(const kin_cluster_status *s) {
    const kin_assignment *plan = s->o.plans->active;
    kin_timeline *timeline = s->o.cluster->timeline;
    for (int i = 1; i < plan->n_members; i++) {
        const kin_membership_device *d = kin_cluster_devices_with(s->o.devices, &plan->ids[i]);
        if (d) kin_timeline_place(timeline, d->name, &plan->windows[i].windows);
    }
    kin_timeline_place(timeline, s->o.cluster->name, &plan->windows[0].windows);
}

void kin_cluster_status_handle_events(kin_cluster_status *s, uint32_t from, const kin_proto_events *m) {
    const kin_membership_device *d = kin_cluster_devices_on(s->o.devices, from);
    if (!s->o.cluster->timeline || !d) return;
    int64_t ahead = kin_link_stats_now(kin_connections_link(s->o.devices->connections, from)).clock_ahead_ns;
    kin_timeline_add(s->o.cluster->timeline, kin_timeline_row(s->o.cluster->timeline, d->name), m->event, m->n_events, ahead);
}

// ---- reports

static kin_proto_status own_status(kin_cluster_status *s) {
    kin_proto_status now = kin_local_stage_status(s->o.local_stage, &s->own_sample.ready);
    kin_neighbours_stats net = kin_neighbours_stats_now(s->o.ring->neighbours);
    now.state = !kin_cluster_devices_are_serving(s->o.devices)            ? KIN_PROTO_PREPARING
                : kin_membership_n_requests(s->o.devices->membership) > 0 ? KIN_PROTO_COMPUTING
                                                                          : KIN_PROTO_WAITING;
    now.net_in = net.net_in;
    now.net_out = net.net_out;
    now.rtt_ns = net.rtt_ns;
    return now;
}

static void ask(void *user) {
    kin_cluster_status *s = user;
    kin_time now = kin_clock_now();
    kin_status_sample *own = &s->own_sample;
    uint64_t n = atomic_load(&kin_local_stage_counts(s->o.local_stage)->n_generated);
    s->tokens_per_s = now > s->counted_at ? (double)(n - s->counted) / kin_clock_ms(s->counted_at, now) * 1e3 : 0;
    s->counted = n;
    s->counted_at = now;
    own->before = own->now;
    own->has_before = own->has_now;
    own->now = own_status(s);
    own->has_now = true;
    if (s->o.polls->n_running == 0) kin_connections_ask_no_more(s->o.devices->connections); // answers may be lost
    kin_connections_ask(s->o.devices->connections);
}

static bool has_answered(void *user) {
    const kin_cluster_status *s = user;
    return kin_connections_has_answered(s->o.devices->connections);
}

static void describe_head(kin_cluster_status *s, kin_status_json_head *h, char doing[KIN_MEMBERSHIP_SENTENCE]) {
    const kin_cluster_options *o = s->o.cluster;
    const kin_membership *membership = s->o.devices->membership;
    const kin_head_counts *counts = kin_local_stage_counts(s->o.local_stage);
    *h = (kin_status_json_head){.name = o->name,
                                .version = o->version,
                                .model = o->model_name,
                                .doing = kin_membership_doing(membership, doing, KIN_MEMBERSHIP_SENTENCE),
                                .port = kin_endpoint_port(s->o.ring->endpoint),
                                .state = kin_membership_state_now(membership),
                                .epoch = kin_membership_epoch(membership),
                                .n_rounds = s->o.plans->active->n_rounds,
                                .n_layer = o->model->hp.n_layer,
                                .n_ctx = o->shard.n_ctx,
                                .n_sequences = (int)atomic_load(&counts->n_running),
                                .n_sequences_total = atomic_load(&counts->n_sequences),
                                .n_prompt = atomic_load(&counts->n_prompt),
                                .n_generated = atomic_load(&counts->n_generated),
                                .tokens_per_s = s->tokens_per_s,
                                .pages_bytes = s->o.pages->bytes,
                                .uptime_s = kin_clock_ms(s->begun, kin_clock_now()) / 1e3};
    memcpy(h->model_hash.bytes, o->manifest->hash, sizeof h->model_hash.bytes);
}

static void add_device(kin_cluster_status *s, kin_status_json *r, const kin_membership_device *d) {
    kin_status_json_member *m = &r->members[r->n_members++];
    const kin_link *link = kin_connections_link(s->o.devices->connections, d->link);
    const kin_assignment *plan = s->o.plans->active;
    int i = d->stage ? kin_assignment_find(plan, &d->id) : -1;
    *m = (kin_status_json_member){.device = d,
                                  .address = link ? kin_link_name(link) : NULL,
                                  .sample = kin_connections_sample_of(s->o.devices->connections, d->link),
                                  .stage = d->stage,
                                  .windows = i < 0 ? NULL : &plan->windows[i],
                                  .memory_planned = i < 0 ? 0 : plan->memory[i]};
}

static void add_own(kin_cluster_status *s, kin_status_json *r) {
    const kin_assignment *plan = s->o.plans->active;
    const kin_membership *membership = s->o.devices->membership;
    bool planned = plan->n_rounds > 0 && kin_membership_accepts(membership, kin_membership_epoch(membership));
    r->members[r->n_members++] = (kin_status_json_member){.sample = s->own_sample,
                                                          .stage = planned ? plan->n_members : 0,
                                                          .windows = planned ? &plan->windows[0] : NULL,
                                                          .memory_planned = planned ? plan->memory[0] : 0};
}

// Lists the devices in the order of the ring, then the head, then those that are not in the ring.
static char *report(void *user) {
    kin_cluster_status *s = user;
    char doing[KIN_MEMBERSHIP_SENTENCE];
    kin_status_json *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    describe_head(s, &r->head, doing);
    for (int stage = 1; stage <= KIN_MEMBERSHIP_DEVICES; stage++) {
        for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
            const kin_membership_device *d = kin_membership_device_at(s->o.devices->membership, i);
            if (d && d->stage == stage) add_device(s, r, d);
        }
    }
    add_own(s, r);
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *d = kin_membership_device_at(s->o.devices->membership, i);
        if (d && d->stage == 0) add_device(s, r, d);
    }
    char *text = kin_status_json_write(r, KIN_FRAME_REPORT_BYTES);
    free(r);
    return text;
}

static void on_status_query(void *arg) {
    kin_cluster_status *s = arg;
    kin_status_report_fn receive = s->query.receive;
    void *user = s->query.user;
    atomic_store(&s->query.is_pending, false);
    kin_status_subscribers_ask(s->subscribers, receive, user);
}

void kin_cluster_status_ask(kin_cluster_status *s, kin_status_report_fn receive, void *user) {
    kin_cluster_status_query *q = &s->query;
    if (atomic_exchange(&q->is_pending, true)) return;
    q->receive = receive;
    q->user = user;
    kin_endpoint_call(s->o.ring->endpoint, on_status_query, s); // fails only while the cluster is being closed
}

void kin_cluster_status_accept(kin_cluster_status *s, kin_link *link) {
    if (kin_status_subscribers_add(s->subscribers, link))
        kin_endpoint_send_accept(s->o.ring->endpoint, link);
    else
        kin_endpoint_refuse(link, "busy: too many status clients");
}

void kin_cluster_status_tick(kin_cluster_status *s, kin_time now) {
    kin_status_subscribers_tick(s->subscribers);
    if (kin_cluster_poll_ends(&s->gather, now)) kin_completion_done(&s->gather.completion, s->gather.generation, true);
}

static void on_gather(void *arg) {
    kin_cluster_status *s = arg;
    kin_cluster_poll_begin(&s->gather, kin_clock_now());
}

void kin_cluster_status_gather(kin_cluster_status *s) {
    kin_cluster_poll_wait(&s->gather, s->o.ring->endpoint, on_gather, s);
}

// ---- opening and closing

int kin_cluster_status_open(kin_cluster_status *s, const kin_cluster_status_options *options, kin_err *err) {
    static const kin_status_subscribers_callbacks callbacks = {.ask = ask, .has_answered = has_answered, .report = report};
    *s = (kin_cluster_status){.o = *options};
    s->begun = s->counted_at = kin_clock_now();
    kin_cluster_poll_init(&s->gather, options->polls);
    return kin_status_subscribers_open(&s->subscribers, &callbacks, s, err);
}

void kin_cluster_status_end(kin_cluster_status *s, const char *reason) {
    kin_status_subscribers_close(s->subscribers, reason);
    s->subscribers = NULL;
}

void kin_cluster_status_close(kin_cluster_status *s) {
    kin_cluster_status_end(s, NULL);
    kin_cluster_poll_fini(&s->gather);
}
