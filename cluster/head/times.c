#include "cluster/head/times.h"

#include <math.h>

enum {
    MEASURE_MS = 10000,      // while requests run: longest interval between measurements
    FIRST_MEASURE_MS = 1000, // in a new ring the first interval, doubled each time: predictions soon follow what steps take
};

void kin_cluster_times_init(kin_cluster_times *t, const kin_cluster_options *options, kin_cluster_devices *devices,
                            const kin_cluster_plans *plans, kin_cluster_questions *questions, const kin_head_counts *counts,
                            kin_cluster_polls *polls) {
    *t = (kin_cluster_times){.o = options, .devices = devices, .plans = plans, .questions = questions, .counts = counts};
    kin_cluster_poll_init(&t->poll, polls);
}

void kin_cluster_times_fini(kin_cluster_times *t) {
    kin_cluster_poll_fini(&t->poll);
}

static kin_measured measured_of(const kin_proto_status *s) {
    return (kin_measured){.compute_s = (double)s->token_compute_ns / 1e9,
                          .disk_s = (double)s->token_disk_ns / 1e9,
                          .disk_bytes = (double)s->token_disk_bytes};
}

// Returns the part of a token's time that is neither computing nor waiting for a disk, on any member: hops. 0: a member's part is
// not known.
static double hops_s(const kin_token_times *head, double others_s, bool all_known) {
    double own_s = (double)(head->compute_ns + head->stall_ns) / 1e9, total_s = (double)head->total_ns / 1e9;
    return all_known && total_s > own_s + others_s ? total_s - own_s - others_s : 0;
}

// Collects the members' times.
static void collect(kin_cluster_times *t, kin_planner_measured *m) {
    kin_token_times head = kin_head_token_times(t->counts);
    double others_s = 0;
    bool all_known = head.total_ns > 0;
    *m = (kin_planner_measured){.n = t->plans->active->n_members, .n_cached = (int)atomic_load(&t->counts->token_pos)};
    m->ids[0] = t->o->id;
    for (int i = 1; i < m->n; i++) {
        m->ids[i] = t->plans->active->ids[i];
        const kin_membership_device *d = kin_cluster_devices_with(t->devices, &m->ids[i]);
        if (!d) continue;
        kin_status_sample sample = kin_connections_sample_of(t->devices->connections, d->link);
        kin_proto_status now = sample.is_fresh ? sample.now : (kin_proto_status){0};
        m->members[i] = measured_of(&now);
        others_s += (double)(now.token_compute_ns + now.token_stall_ns) / 1e9;
        all_known = all_known && (now.token_compute_ns > 0 || t->plans->active->windows[i].windows.n == 0);
    }
    m->members[0] = (kin_measured){.compute_s = (double)head.compute_ns / 1e9,
                                   .disk_s = (double)head.disk_ns / 1e9,
                                   .disk_bytes = (double)head.disk_bytes,
                                   .hop_s = m->n > 1 ? hops_s(&head, others_s, all_known) : 0};
    if (t->o->facts) m->facts = kin_cluster_questions_facts(t->questions, m->ids, m->n);
}

// Passes the times to the planner, in its own thread, where they may take as long as a plan.
static void end_measuring(kin_cluster_times *t) {
    if (!kin_membership_accepts(t->devices->membership, t->epoch)) {
        kin_completion_done(&t->poll.completion, t->poll.generation, true);
        return;
    }
    kin_planner_measured m;
    collect(t, &m);
    kin_planning_add_measurement(t->questions->thread, t->poll.generation, &m);
}

void kin_cluster_times_handle(kin_cluster_times *t) {
    uint32_t generation;
    bool asks;
    if (!kin_planning_pop_round(t->questions->thread, &generation, &asks)) return;
    if (asks) kin_cluster_devices_act(t->devices, &(kin_membership_event){.kind = KIN_MEMBERSHIP_DRIFT});
    kin_completion_done(&t->poll.completion, generation, true);
}

void kin_cluster_times_measure(kin_cluster_times *t) {
    if (t->o->calls.add_measured) kin_cluster_poll_begin(&t->poll, kin_clock_now());
}

void kin_cluster_times_begin(kin_cluster_times *t, uint32_t epoch, kin_time now) {
    if (epoch == t->epoch) return;
    t->epoch = epoch;
    t->measured_at = now;
    t->n_measured = 0;
}

static double pause_ms(const kin_cluster_times *t) {
    return fmin(ldexp(FIRST_MEASURE_MS, t->n_measured), MEASURE_MS);
}

void kin_cluster_times_tick(kin_cluster_times *t, kin_time now, bool is_computing) {
    if (kin_cluster_poll_ends(&t->poll, now)) {
        t->measured_at = now;
        t->n_measured++;
        end_measuring(t);
    } else if (is_computing && kin_clock_ms(t->measured_at, now) > pause_ms(t) && t->poll.until == 0) {
        kin_cluster_times_measure(t);
    }
}

static void on_wait(void *arg) {
    kin_cluster_times_measure(arg);
}

void kin_cluster_times_wait(kin_cluster_times *t, kin_endpoint *endpoint) {
    if (t->o->calls.add_measured) kin_cluster_poll_wait(&t->poll, endpoint, on_wait, t);
}
