#include "ring/cluster_impl.h"

#include <stdlib.h>
#include <string.h>

#include "pure/proto/id.h"
#include "ring/report.h"

enum { GATHER_TICKS = 5 }; // of 100 ms

// ---- the timeline

void kin_cluster_name_rows(kin_cluster *c) {
    for (int m = 0; m < c->plan->ring.n_members - 1; m++) {
        for (int i = 0; i < KIN_ROSTER_DEVICES; i++) {
            const kin_roster_device *d = kin_roster_device_at(c->roster, i);
            if (d && kin_proto_id_equal(&d->id, &c->plan->ids[m]))
                kin_timeline_place(c->o.timeline, d->name, &c->plan->windows[m].windows);
        }
    }
    kin_timeline_place(c->o.timeline, c->o.name, &c->plan->windows[c->plan->ring.n_members - 1].windows);
}

void kin_cluster_take_events(kin_cluster *c, uint32_t from, const kin_proto_events *m) {
    const kin_roster_device *d = kin_cluster_device_of(c, from);
    if (!c->o.timeline || !d) return;
    int64_t ahead = kin_link_stats_now(kin_crew_link(c->crew, from)).clock_ahead_ns;
    kin_timeline_add(c->o.timeline, kin_timeline_row(c->o.timeline, d->name), m->event, m->n_events, ahead);
}

void kin_cluster_on_gather(void *arg) {
    kin_cluster *c = arg;
    c->gather_round = kin_cluster_round_wanted(c, &c->gathering);
    kin_crew_ask(c->crew);
    c->n_ticks_to_gather = GATHER_TICKS;
}

static void end_gathering(kin_cluster *c) {
    c->n_ticks_to_gather = 0;
    kin_crew_ask_no_more(c->crew);
    kin_cluster_round_is_over(c, &c->gathering, c->gather_round);
}

// ---- reports

static kin_proto_status own_status(kin_cluster *c) {
    kin_proto_status s = kin_own_status(c->own, &c->own_sample.ready);
    kin_neighbours_stats net = kin_neighbours_stats_now(kin_station_neighbours(c->station));
    s.state = kin_roster_state_now(c->roster) != KIN_ROSTER_SERVING ? KIN_PROTO_PREPARING
              : kin_roster_n_requests(c->roster) > 0                ? KIN_PROTO_COMPUTING
                                                                    : KIN_PROTO_WAITING;
    s.net_in = net.net_in;
    s.net_out = net.net_out;
    s.rtt_ns = net.rtt_ns;
    return s;
}

static void ask(void *user) {
    kin_cluster *c = user;
    kin_time now = kin_clock_now();
    kin_crew_sample *own = &c->own_sample;
    uint64_t n = atomic_load(&kin_own_counts(c->own)->n_generated);
    c->tokens_per_s = now > c->counted_at ? (double)(n - c->counted) / kin_clock_ms(c->counted_at, now) * 1e3 : 0;
    c->counted = n;
    c->counted_at = now;
    own->before = own->now;
    own->has_before = own->has_now;
    own->now = own_status(c);
    own->has_now = true;
    if (c->n_ticks_to_gather == 0 && c->n_ticks_to_measure == 0) kin_crew_ask_no_more(c->crew); // answers may be lost
    kin_crew_ask(c->crew);
}

static bool has_answered(void *user) {
    const kin_cluster *c = user;
    return kin_crew_has_answered(c->crew);
}

static void describe_head(kin_cluster *c, kin_report_head *h, char doing[KIN_ROSTER_SENTENCE]) {
    kin_head_counts *counts = kin_own_counts(c->own);
    *h = (kin_report_head){.name = c->o.name,
                           .version = c->o.version,
                           .model = c->o.model_name,
                           .doing = kin_roster_doing(c->roster, doing, KIN_ROSTER_SENTENCE),
                           .port = kin_station_port(c->station),
                           .state = kin_roster_state_now(c->roster),
                           .epoch = kin_roster_epoch(c->roster),
                           .n_rounds = c->plan->n_rounds,
                           .n_layer = c->o.model->hp.n_layer,
                           .n_ctx = c->o.shard.n_ctx,
                           .n_requests = kin_roster_n_requests(c->roster),
                           .n_requests_total = c->n_requests,
                           .n_prompt = atomic_load(&counts->n_prompt),
                           .n_generated = atomic_load(&counts->n_generated),
                           .tokens_per_s = c->tokens_per_s,
                           .uptime_s = kin_clock_ms(c->begun, kin_clock_now()) / 1e3};
    memcpy(h->model_hash.bytes, c->o.manifest->hash, sizeof h->model_hash.bytes);
}

static void add_device(kin_cluster *c, kin_report *r, const kin_roster_device *d) {
    kin_report_member *m = &r->members[r->n_members++];
    const kin_link *link = kin_crew_link(c->crew, d->link);
    int i = d->stage ? kin_planned_find(c->plan, &d->id) : -1;
    *m = (kin_report_member){.device = d,
                             .address = link ? kin_link_name(link) : NULL,
                             .sample = kin_crew_sample_of(c->crew, d->link),
                             .stage = d->stage,
                             .windows = i < 0 ? NULL : &c->plan->windows[i],
                             .memory_planned = i < 0 ? 0 : c->plan->ring.memory[i]};
}

static void add_own(kin_cluster *c, kin_report *r) {
    int own = c->plan->ring.n_members - 1;
    bool planned = c->plan->n_rounds > 0 && kin_roster_takes(c->roster, kin_roster_epoch(c->roster));
    r->members[r->n_members++] = (kin_report_member){.sample = c->own_sample,
                                                     .stage = planned ? own + 1 : 0,
                                                     .windows = planned ? &c->plan->windows[own] : NULL,
                                                     .memory_planned = planned ? c->plan->ring.memory[own] : 0};
}

// Devices in the order of the ring, the head after them, then those who wait outside.
static char *report(void *user) {
    kin_cluster *c = user;
    char doing[KIN_ROSTER_SENTENCE];
    kin_report *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    describe_head(c, &r->head, doing);
    for (int stage = 1; stage <= KIN_ROSTER_DEVICES; stage++) {
        for (int i = 0; i < KIN_ROSTER_DEVICES; i++) {
            const kin_roster_device *d = kin_roster_device_at(c->roster, i);
            if (d && d->stage == stage) add_device(c, r, d);
        }
    }
    add_own(c, r);
    for (int i = 0; i < KIN_ROSTER_DEVICES; i++) {
        const kin_roster_device *d = kin_roster_device_at(c->roster, i);
        if (d && d->stage == 0) add_device(c, r, d);
    }
    char *text = kin_report_write(r, KIN_FRAME_REPORT_BYTES);
    free(r);
    return text;
}

int kin_cluster_open_sight(kin_cluster *c, kin_err *err) {
    static const kin_audience_callbacks callbacks = {.ask = ask, .has_answered = has_answered, .report = report};
    c->begun = c->counted_at = kin_clock_now();
    return kin_audience_open(&c->audience, &callbacks, c, err);
}

void kin_cluster_on_observe(void *user, kin_link *link, const kin_proto_open *open) {
    kin_cluster *c = user;
    kin_proto_message refusal = {.type = KIN_FRAME_REFUSE, .refuse = {"busy: too many are looking"}};
    (void)open;
    if (kin_audience_add(c->audience, link)) {
        kin_station_say_accept(c->station, link);
        return;
    }
    kin_station_say(link, 0, &refusal);
    kin_link_close(link, refusal.refuse.reason);
}

void kin_cluster_look(kin_cluster *c) {
    kin_audience_tick(c->audience);
    if (c->n_ticks_to_gather > 0 && (kin_crew_has_answered(c->crew) || --c->n_ticks_to_gather == 0)) end_gathering(c);
}
