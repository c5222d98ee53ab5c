// Planning in the cluster: measurements of devices and links, the planner's question and its answer, and what the members' tokens
// took.
#include "cluster/cluster_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/governor.h"
#include "model/border.h"
#include "pure/proto/id.h"
#include "pure/proto/label.h"

enum {
    GIVE_UP_MS = 6000,       // wait before giving up: links that are measured late may still allow a plan
    MEASURE_MS = 10000,      // while requests run: longest interval between measurements
    FIRST_MEASURE_MS = 1000, // in a new ring the first interval, doubled each time: predictions soon follow what steps take
    N_DEVICES_MAX = KIN_FACTS_MAX_DEVICES - 1, // without the head
};

// ---- tests

static void tests_are_over(void *user, uint32_t link, const kin_proto_device *device) {
    kin_cluster_act(user, &(kin_membership_event){.kind = KIN_MEMBERSHIP_FACTS, .link = link, .facts = device});
}

// Stores the facts under the name that is used here.
static void enter(kin_cluster *c, const kin_proto_id *id, const char *name, const kin_device_facts *measured) {
    kin_device_facts facts = *measured;
    kin_label_set(facts.name, sizeof facts.name - 1, name);
    kin_measurements_set_device(c->planning.measurements, id, &facts);
}

void kin_cluster_handle_profile(kin_cluster *c, uint32_t from, const kin_proto_profile *m) {
    const kin_membership_device *d = kin_cluster_device_of(c, from);
    if (d) enter(c, &d->id, d->name, &m->facts);
}

// Asks a device to measure its link now. False: one of the two is gone.
static bool asks_for(kin_cluster *c, const kin_probe_pair *pair) {
    const kin_membership_device *d = kin_cluster_device_of(c, pair->from), *other = NULL;
    kin_proto_message m = {.type = KIN_FRAME_MEASURE};
    if (pair->to) other = kin_cluster_device_of(c, pair->to);
    if (!d || (pair->to && !other)) return false;
    m.measure.id = other ? other->id : c->o.id;
    if (other && !kin_connections_endpoint(c->connections, pair->to, &m.measure.endpoint)) return false;
    if (!(pair->is_back ? kin_measurements_ask_back : kin_measurements_ask)(c->planning.measurements, &d->id, &m.measure.id))
        return false;
    size_t bytes = (size_t)kin_border_mean(&c->o.model->hp) * sizeof(float);
    m.measure.hidden_bytes = (uint32_t)(bytes < KIN_FRAME_ECHO_BYTES ? bytes : KIN_FRAME_ECHO_BYTES);
    return kin_connections_send(c->connections, pair->from, 0, &m);
}

// Returns the device whose test waits for this measurement.
static uint32_t test_of(const kin_probe_pair *pair) {
    return pair->is_back ? pair->to : pair->from;
}

// Asks for all measurements that may start.
static void probe_next(kin_cluster *c) {
    kin_probe_pair pair;
    while (kin_probe_schedule_begin(&c->planning.probes, kin_clock_now(), &pair)) {
        if (asks_for(c, &pair)) continue;
        kin_probe_schedule_end(&c->planning.probes, pair.from);
        kin_pairwise_tests_answered(c->planning.tests, test_of(&pair));
    }
}

void kin_cluster_forget_probes(kin_cluster *c, uint32_t link) {
    kin_pairwise_tests_lost(c->planning.tests, link);
    kin_probe_schedule_lost(&c->planning.probes, link);
}

bool kin_cluster_register_device(kin_cluster *c, uint32_t from, const kin_proto_device *device) {
    const kin_membership_device *d = kin_cluster_device_of(c, from);
    if (kin_pairwise_tests_renew(c->planning.tests, from, device)) return true;
    if (!c->o.facts || !d || d->state != KIN_DEVICE_GREETED || !kin_measurements_device(c->planning.measurements, &d->id))
        return false;
    int n = kin_probe_schedule_add(&c->planning.probes, from, 0, false);
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *other = kin_membership_device_at(c->membership, i);
        kin_proto_endpoint e;
        if (!other || other == d || !kin_connections_endpoint(c->connections, other->link, &e)) continue;
        n += kin_probe_schedule_add(&c->planning.probes, from, other->link, false);
    }
    bool begins = n > 0 && kin_pairwise_tests_begin(c->planning.tests, from, device, n, kin_clock_now());
    probe_next(c);
    return begins;
}

static unsigned port_of(const kin_cluster *c, const kin_membership_device *d) {
    kin_proto_endpoint e;
    return kin_connections_endpoint(c->connections, d->link, &e) ? e.port : 0;
}

void kin_cluster_log_unreachable(kin_cluster *c, const kin_proto_id *from, const kin_proto_id *to, const char *reason) {
    const kin_membership_device *a = kin_cluster_device_with(c, from), *b = kin_cluster_device_with(c, to);
    if (!a || !b || !kin_measurements_note_unreachable(c->planning.measurements, from, to)) return;
    char sentence[KIN_MEMBERSHIP_APART_MAX];
    kin_log(KIN_LOG_WARN, "%s",
            kin_membership_apart(sentence, sizeof sentence, a->name, port_of(c, a), b->name, port_of(c, b), reason));
}

// Handles a link that could not be measured from this end. True: the other end tries now.
static bool other_end_tries(kin_cluster *c, const kin_membership_device *d, const kin_membership_device *other,
                            const char *reason) {
    kin_log(KIN_LOG_DEBUG, "device '%s' does not reach %s: %s", d->name, other ? other->name : "the head", reason);
    if (!other || !kin_connections_link(c->connections, other->link)) return false;
    if (!kin_measurements_has_failed(c->planning.measurements, &other->id, &d->id))
        return kin_probe_schedule_add(&c->planning.probes, other->link, d->link, true);
    kin_cluster_log_unreachable(c, &d->id, &other->id, reason);
    return false;
}

static void record_link(kin_cluster *c, uint32_t from, const kin_proto_measured *m) {
    const kin_membership_device *d = kin_cluster_device_of(c, from), *other = kin_cluster_device_with(c, &m->id);
    kin_link_facts there = {m->rtt_s, m->to_bytes_s}, back = {m->rtt_s, m->from_bytes_s};
    bool failed = m->reason[0];
    // A device that tried because the other end had failed answers for the other end's test.
    uint32_t test = d && other && kin_measurements_has_failed(c->planning.measurements, &other->id, &d->id) ? other->link : from;
    if (!d || !kin_measurements_store(c->planning.measurements, &d->id, &m->id, failed ? NULL : &there, failed ? NULL : &back))
        return;
    if (failed && other_end_tries(c, d, other, m->reason)) return;
    bool in_time = kin_pairwise_tests_answered(c->planning.tests, test);
    // Too late for its test: the planner may find a different plan now.
    if (!in_time && (!failed || (other && kin_measurements_is_apart(c->planning.measurements, &d->id, &other->id))))
        kin_cluster_act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_DRIFT});
}

void kin_cluster_handle_measured(kin_cluster *c, uint32_t from, const kin_proto_measured *m) {
    kin_probe_schedule_end(&c->planning.probes, from);
    record_link(c, from, m);
    probe_next(c);
}

// ---- the question

static uint64_t own_memory(const kin_cluster *c) {
    uint64_t room = kin_governor_room(c->o.shard.memory), beside = c->o.shard.beside;
    return room > beside ? room - beside : 0; // the most that its shard will take
}

// Fills in the figures of devices and links, and what devices reported when they joined. ids: the head first.
static void fill_facts(kin_cluster *c, const kin_proto_id *ids, int n) {
    kin_facts *facts = &c->planning.about->facts;
    kin_measurements_fill(c->planning.measurements, ids, n, facts);
    for (int i = 1; i < n; i++) {
        const kin_membership_device *d = kin_cluster_device_with(c, &ids[i]);
        facts->devices[i].no_slices = d && d->features & KIN_PROTO_NO_SLICES;
    }
}

static void add_candidate(kin_planner_question *q, const kin_proto_id *id, const char *name, uint64_t memory, bool has_layers) {
    kin_candidate *candidate = &q->candidates[q->n];
    *candidate = (kin_candidate){.memory = memory, .has_layers = has_layers};
    snprintf(candidate->name, sizeof candidate->name, "%s", name);
    q->ids[q->n++] = *id;
}

// Makes a question about the head and these devices (indices of the membership). Valid until the next one.
static const kin_planner_question *question_about(kin_cluster *c, uint32_t number, const uint8_t *devices, int n_devices) {
    kin_planner_question *q = c->planning.about;
    uint64_t memory = own_memory(c);
    q->number = number;
    q->n = 0;
    add_candidate(q, &c->o.id, c->o.name, memory, false);
    for (int i = 0; i < n_devices && q->n < KIN_FACTS_MAX_DEVICES; i++) {
        const kin_membership_device *d = kin_membership_device_at(c->membership, devices[i]);
        add_candidate(q, &d->id, d->name, d->facts.memory, kin_assignment_find(c->plan, &d->id) >= 0);
    }
    q->has_facts = c->o.facts != NULL;
    if (!q->has_facts) return q;
    fill_facts(c, q->ids, q->n);
    q->facts.devices[0].memory_bytes = (double)memory;
    return q;
}

static void ask_planner(kin_cluster *c, const kin_membership_action *ask) {
    if (ask->n_devices > N_DEVICES_MAX)
        kin_log(KIN_LOG_WARN, "%d devices have joined; at most %d can be used", ask->n_devices, N_DEVICES_MAX);
    c->planning.question = ask->question;
    kin_planning_ask(c->planning.thread, question_about(c, ask->question, ask->devices, ask->n_devices));
}

void kin_cluster_ask_standby(kin_cluster *c, uint32_t number, const uint8_t *devices, int n_devices) {
    kin_planning_ask_standby(c->planning.thread, question_about(c, number, devices, n_devices));
}

// Stores why there is no plan. why NULL: there is one, or there may be one later.
static void note_no_plan(kin_cluster *c, const kin_err *why, int n_devices) {
    bool is_new = !c->planning.no_plan.text[0];
    if (!why || c->planning.had_plan || !c->o.gives_up) {
        c->planning.no_plan.text[0] = 0;
        c->planning.give_up_at = 0;
        return;
    }
    c->planning.no_plan = *why;
    kin_err_prefix(&c->planning.no_plan, "%d device%s here as requested", n_devices, n_devices == 1 ? " is" : "s are");
    if (is_new) c->planning.give_up_at = kin_clock_now() + GIVE_UP_MS * UINT64_C(1000000);
}

static void report_no_plan(kin_cluster *c, uint32_t question, const char *why) {
    kin_cluster_act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_NO_PLAN, .question = question, .reason = why});
}

void kin_cluster_ask_planner(kin_cluster *c, const kin_membership_action *ask) {
    kin_err err;
    if (c->planning.had_plan || ask->n_devices >= c->o.n_expected) {
        ask_planner(c, ask);
        return;
    }
    kin_err_set(&err, "%d of %d devices have joined; see the messages of 'kin join' on the others", ask->n_devices,
                c->o.n_expected);
    note_no_plan(c, NULL, ask->n_devices);
    report_no_plan(c, ask->question, err.text);
}

static void report_plan(kin_cluster *c, uint32_t question, const kin_assignment *p) {
    kin_membership_stage stages[KIN_FACTS_MAX_DEVICES];
    for (int i = 1; i < p->n_members; i++) {
        kin_cluster_fill_plan(c, p, i, &c->message->plan);
        stages[i - 1] = (kin_membership_stage){.id = p->ids[i], .work = kin_proto_plan_work(&c->message->plan)};
    }
    kin_cluster_act(c, &(kin_membership_event){
                           .kind = KIN_MEMBERSHIP_PLANNED, .question = question, .stages = stages, .n_stages = p->n_members - 1});
    kin_cluster_keep_next(c);
}

// Without a plan no device is left out of it: the devices that were now wait for the next one.
static void forget_left_out(kin_cluster *c) {
    const kin_proto_message m = {.type = KIN_FRAME_LEFT_OUT};
    if (kin_membership_accepts(c->membership, kin_membership_epoch(c->membership))) return; // the active plan continues
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *d = kin_membership_device_at(c->membership, i);
        if (d && d->state == KIN_DEVICE_JOINED) kin_connections_send(c->connections, d->link, 0, &m);
    }
}

static void handle_answer(kin_cluster *c, kin_planning_answer *a) {
    if (a->question != c->planning.question) return; // there is a later question
    kin_assignment *p = c->asked;
    int rc = a->has_plan ? 0 : KIN_FAIL;
    if (rc == 0) {
        p->question = a->question;
        rc = kin_assignment_lay_out(p, &a->plan, a->ids, c->o.model, (int)c->o.shard.kv_type, &a->why);
    }
    note_no_plan(c, rc == 0 ? NULL : &a->why, a->n - 1);
    if (rc == 0) {
        report_plan(c, a->question, p);
        return;
    }
    report_no_plan(c, a->question, a->why.text);
    forget_left_out(c);
}

// Logs this once, until a plan has layers for the device again: the figures differ from plan to plan.
static void log_left_out(kin_cluster *c, const kin_proto_id *id, const kin_membership_device *d, const char *why) {
    int i = 0;
    while (i < c->planning.n_left_out && !kin_proto_id_equal(&c->planning.left_out[i], id)) i++;
    bool was_said = i < c->planning.n_left_out;
    if (d && !was_said && c->planning.n_left_out < KIN_MEMBERSHIP_DEVICES) {
        c->planning.left_out[c->planning.n_left_out++] = *id;
        kin_log(KIN_LOG_INFO, "the plan leaves out '%s': %s", d->name, why);
    } else if (!d && was_said) {
        c->planning.left_out[i] = c->planning.left_out[--c->planning.n_left_out];
    }
}

static void send_left_out(kin_cluster *c, const kin_planning_reasons *r) {
    kin_proto_message m = {.type = KIN_FRAME_LEFT_OUT};
    if (r->question != c->planning.question) return; // there is a later question
    for (int i = 1; i < r->n; i++) {
        const kin_membership_device *d = r->why[i][0] ? kin_cluster_device_with(c, &r->ids[i]) : NULL;
        log_left_out(c, &r->ids[i], d, r->why[i]);
        if (!d) continue;
        kin_label_set_sentence(m.left_out.reason, KIN_PROTO_MAX_REASON, r->why[i]);
        kin_connections_send(c->connections, d->link, 0, &m);
    }
}

// ---- token times

void kin_cluster_on_measure(void *arg) {
    kin_cluster *c = arg;
    if (c->o.calls.add_measured) kin_cluster_poll_begin(c, &c->planning.measure);
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
static void collect(kin_cluster *c, kin_planner_measured *m) {
    const kin_head_counts *counts = kin_local_stage_counts(c->computing.local_stage);
    kin_token_times head = kin_head_token_times(counts);
    double others_s = 0;
    bool all_known = head.total_ns > 0;
    *m = (kin_planner_measured){.n = c->plan->n_members, .n_cached = (int)atomic_load(&counts->token_pos)};
    m->ids[0] = c->o.id;
    for (int i = 1; i < m->n; i++) {
        m->ids[i] = c->plan->ids[i];
        const kin_membership_device *d = kin_cluster_device_with(c, &m->ids[i]);
        if (!d) continue;
        kin_status_sample sample = kin_connections_sample_of(c->connections, d->link);
        kin_proto_status now = sample.is_fresh ? sample.now : (kin_proto_status){0};
        m->members[i] = measured_of(&now);
        others_s += (double)(now.token_compute_ns + now.token_stall_ns) / 1e9;
        all_known = all_known && (now.token_compute_ns > 0 || c->plan->windows[i].windows.n == 0);
    }
    m->members[0] = (kin_measured){.compute_s = (double)head.compute_ns / 1e9,
                                   .disk_s = (double)head.disk_ns / 1e9,
                                   .disk_bytes = (double)head.disk_bytes,
                                   .hop_s = m->n > 1 ? hops_s(&head, others_s, all_known) : 0};
    if (!c->o.facts) return;
    fill_facts(c, m->ids, m->n);
    m->facts = &c->planning.about->facts;
}

// Passes the times to the planner, in its own thread, where they may take as long as a plan.
static void end_measuring(kin_cluster *c) {
    if (!kin_membership_accepts(c->membership, c->planning.measured_epoch)) {
        kin_completion_done(&c->planning.measure.completion, c->planning.measure.generation, true);
        return;
    }
    kin_planner_measured m;
    collect(c, &m);
    kin_planning_add_measurement(c->planning.thread, c->planning.measure.generation, &m);
}

// kin_mailbox_fn: handles what the planning thread has done.
static void handle_planning(void *arg) {
    kin_cluster *c = arg;
    uint32_t generation;
    bool asks;
    if (kin_planning_pop_round(c->planning.thread, &generation, &asks)) {
        if (asks) kin_cluster_act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_DRIFT});
        kin_completion_done(&c->planning.measure.completion, generation, true);
    }
    if (kin_planning_pop_answer(c->planning.thread, c->planning.answer)) handle_answer(c, c->planning.answer);
    if (kin_planning_pop_reasons(c->planning.thread, c->planning.reasons)) send_left_out(c, c->planning.reasons);
    kin_cluster_handle_standby_plans(c);
}

static void planning_is_done(void *user) {
    kin_cluster *c = user;
    kin_endpoint_call(c->ring.endpoint, handle_planning, c);
}

static double measure_pause_ms(const kin_cluster *c) {
    return fmin(ldexp(FIRST_MEASURE_MS, c->planning.n_measured), MEASURE_MS);
}

void kin_cluster_begin_measuring(kin_cluster *c, uint32_t epoch, kin_time now) {
    if (epoch == c->planning.measured_epoch) return;
    c->planning.measured_epoch = epoch;
    c->planning.measured_at = now;
    c->planning.n_measured = 0;
}

void kin_cluster_planning_tick(kin_cluster *c, kin_time now) {
    probe_next(c);
    kin_pairwise_tests_tick(c->planning.tests, now);
    if (kin_cluster_poll_ends(c, &c->planning.measure, now)) {
        c->planning.measured_at = now;
        c->planning.n_measured++;
        end_measuring(c);
    } else if (c->request_epoch && kin_clock_ms(c->planning.measured_at, now) > measure_pause_ms(c) &&
               c->planning.measure.until == 0) {
        kin_cluster_on_measure(c);
    }
}

void kin_cluster_measure(kin_cluster *c) {
    if (c->o.calls.add_measured) kin_cluster_wait_for_poll(c, &c->planning.measure, kin_cluster_on_measure);
}

// ---- opening and closing

int kin_cluster_open_planning(kin_cluster *c, kin_err *err) {
    if (kin_measurements_open(&c->planning.measurements, err) != 0 ||
        kin_pairwise_tests_open(&c->planning.tests, tests_are_over, c, err) != 0)
        return KIN_FAIL;
    c->planning.about = calloc(1, sizeof *c->planning.about);
    c->planning.answer = calloc(1, sizeof *c->planning.answer);
    c->planning.reasons = calloc(1, sizeof *c->planning.reasons);
    if (!c->planning.about || !c->planning.answer || !c->planning.reasons) return kin_err_set(err, "out of memory");
    if (c->o.facts) enter(c, &c->o.id, c->o.name, c->o.facts);
    kin_planning_options po = {.planner = c->o.planner, .calls = c->o.calls, .done = planning_is_done, .user = c};
    return kin_planning_open(&c->planning.thread, &po, err);
}

void kin_cluster_close_planning(kin_cluster *c) {
    kin_pairwise_tests_close(c->planning.tests);
    kin_measurements_close(c->planning.measurements);
    kin_planning_close(c->planning.thread);
    free(c->planning.about);
    free(c->planning.answer);
    free(c->planning.reasons);
}
