#include "cluster/head/questions.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "engine/governor.h"
#include "pure/proto/id.h"
#include "pure/proto/label.h"

enum {
    GIVE_UP_MS = 6000,                         // wait before giving up: links that are measured late may still allow a plan
    N_DEVICES_MAX = KIN_FACTS_MAX_DEVICES - 1, // without the head
};

// ---- the question

static uint64_t own_memory(const kin_cluster_questions *q) {
    uint64_t room = kin_governor_room(q->o.cluster->shard.memory), beside = q->o.cluster->shard.beside;
    return room > beside ? room - beside : 0; // the most that its shard will take
}

const kin_facts *kin_cluster_questions_facts(kin_cluster_questions *q, const kin_proto_id *ids, int n) {
    kin_facts *facts = &q->about->facts;
    kin_measurements_fill(q->o.measurements, ids, n, facts);
    for (int i = 1; i < n; i++) {
        const kin_membership_device *d = kin_cluster_devices_with(q->o.devices, &ids[i]);
        facts->devices[i].no_slices = d && d->features & KIN_PROTO_NO_SLICES; // reported when it joined
    }
    return facts;
}

static void add_candidate(kin_planner_question *q, const kin_proto_id *id, const char *name, uint64_t memory, bool has_layers) {
    kin_candidate *candidate = &q->candidates[q->n];
    *candidate = (kin_candidate){.memory = memory, .has_layers = has_layers};
    snprintf(candidate->name, sizeof candidate->name, "%s", name);
    q->ids[q->n++] = *id;
}

// Makes a question about the head and these devices (indices of the membership). Valid until the next one.
static const kin_planner_question *question_about(kin_cluster_questions *q, uint32_t number, const uint8_t *devices,
                                                  int n_devices) {
    const kin_cluster_options *o = q->o.cluster;
    kin_planner_question *about = q->about;
    uint64_t memory = own_memory(q);
    about->number = number;
    about->n = 0;
    add_candidate(about, &o->id, o->name, memory, false);
    for (int i = 0; i < n_devices && about->n < KIN_FACTS_MAX_DEVICES; i++) {
        const kin_membership_device *d = kin_membership_device_at(q->o.devices->membership, devices[i]);
        add_candidate(about, &d->id, d->name, d->facts.memory, kin_assignment_find(q->o.plans->active, &d->id) >= 0);
    }
    about->has_facts = o->facts != NULL;
    if (!about->has_facts) return about;
    kin_cluster_questions_facts(q, about->ids, about->n);
    about->facts.devices[0].memory_bytes = (double)memory;
    return about;
}

static void ask_planner(kin_cluster_questions *q, const kin_membership_action *ask) {
    if (ask->n_devices > N_DEVICES_MAX)
        kin_log(KIN_LOG_WARN, "%d devices have joined; at most %d can be used", ask->n_devices, N_DEVICES_MAX);
    q->number = ask->question;
    kin_planning_ask(q->thread, question_about(q, ask->question, ask->devices, ask->n_devices));
}

void kin_cluster_questions_ask_standby(kin_cluster_questions *q, uint32_t number, const uint8_t *devices, int n_devices) {
    kin_planning_ask_standby(q->thread, question_about(q, number, devices, n_devices));
}

// Stores why there is no plan. why NULL: there is one, or there may be one later.
static void note_no_plan(kin_cluster_questions *q, const kin_err *why, int n_devices) {
    bool is_new = !q->no_plan.text[0];
    if (!why || q->had_plan || !q->o.cluster->gives_up) {
        q->no_plan.text[0] = 0;
        q->give_up_at = 0;
        return;
    }
    q->no_plan = *why;
    kin_err_prefix(&q->no_plan, "%d device%s here as requested", n_devices, n_devices == 1 ? " is" : "s are");
    if (is_new) q->give_up_at = kin_clock_now() + GIVE_UP_MS * UINT64_C(1000000);
}

static void report_no_plan(kin_cluster_questions *q, uint32_t question, const char *why) {
    kin_cluster_devices_act(q->o.devices,
                            &(kin_membership_event){.kind = KIN_MEMBERSHIP_NO_PLAN, .question = question, .reason = why});
}

void kin_cluster_questions_ask(kin_cluster_questions *q, const kin_membership_action *ask) {
    kin_err err;
    if (q->had_plan || ask->n_devices >= q->o.cluster->n_expected) {
        ask_planner(q, ask);
        return;
    }
    kin_err_set(&err, "%d of %d devices have joined; see the messages of 'kin join' on the others", ask->n_devices,
                q->o.cluster->n_expected);
    note_no_plan(q, NULL, ask->n_devices);
    report_no_plan(q, ask->question, err.text);
}

static void report_plan(kin_cluster_questions *q, uint32_t question, const kin_assignment *p) {
    kin_membership_stage stages[KIN_FACTS_MAX_DEVICES];
    for (int i = 1; i < p->n_members; i++) {
        kin_cluster_plans_fill(q->o.plans, p, i, &q->o.plans->message->plan);
        stages[i - 1] = (kin_membership_stage){.id = p->ids[i], .work = kin_proto_plan_work(&q->o.plans->message->plan)};
    }
    kin_cluster_devices_act(
        q->o.devices, &(kin_membership_event){
                          .kind = KIN_MEMBERSHIP_PLANNED, .question = question, .stages = stages, .n_stages = p->n_members - 1});
    if (kin_membership_prepares(q->o.devices->membership) == q->o.plans->asked->question) kin_cluster_plans_keep_next(q->o.plans);
}

// Without a plan no device is left out of it: the devices that were now wait for the next one.
static void forget_left_out(kin_cluster_questions *q) {
    const kin_proto_message m = {.type = KIN_FRAME_LEFT_OUT};
    const kin_membership *membership = q->o.devices->membership;
    if (kin_membership_accepts(membership, kin_membership_epoch(membership))) return; // the active plan continues
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        const kin_membership_device *d = kin_membership_device_at(membership, i);
        if (d && d->state == KIN_DEVICE_JOINED) kin_connections_send(q->o.devices->connections, d->link, 0, &m);
    }
}

static void handle_answer(kin_cluster_questions *q, kin_planning_answer *a) {
    if (a->question != q->number) return; // there is a later question
    kin_assignment *p = q->o.plans->asked;
    int rc = a->has_plan ? 0 : KIN_FAIL;
    if (rc == 0) {
        p->question = a->question;
        rc = kin_assignment_lay_out(p, &a->plan, a->ids, q->o.cluster->model, (int)q->o.cluster->shard.kv_type, &a->why);
    }
    note_no_plan(q, rc == 0 ? NULL : &a->why, a->n - 1);
    if (rc == 0) {
        report_plan(q, a->question, p);
        return;
    }
    report_no_plan(q, a->question, a->why.text);
    forget_left_out(q);
}

// Logs this once, until a plan has layers for the device again: the figures differ from plan to plan.
static void log_left_out(kin_cluster_questions *q, const kin_proto_id *id, const kin_membership_device *d, const char *why) {
    int i = 0;
    while (i < q->n_left_out && !kin_proto_id_equal(&q->left_out[i], id)) i++;
    bool was_said = i < q->n_left_out;
    if (d && !was_said && q->n_left_out < KIN_MEMBERSHIP_DEVICES) {
        q->left_out[q->n_left_out++] = *id;
        kin_log(KIN_LOG_INFO, "the plan leaves out '%s': %s", d->name, why);
    } else if (!d && was_said) {
        q->left_out[i] = q->left_out[--q->n_left_out];
    }
}

static void send_left_out(kin_cluster_questions *q, const kin_planning_reasons *r) {
    kin_proto_message m = {.type = KIN_FRAME_LEFT_OUT};
    if (r->question != q->number) return; // there is a later question
    for (int i = 1; i < r->n; i++) {
        const kin_membership_device *d = r->why[i][0] ? kin_cluster_devices_with(q->o.devices, &r->ids[i]) : NULL;
        log_left_out(q, &r->ids[i], d, r->why[i]);
        if (!d) continue;
        kin_label_set_sentence(m.left_out.reason, KIN_PROTO_MAX_REASON, r->why[i]);
        kin_connections_send(q->o.devices->connections, d->link, 0, &m);
    }
}

void kin_cluster_questions_handle(kin_cluster_questions *q) {
    if (kin_planning_pop_answer(q->thread, q->answer)) handle_answer(q, q->answer);
    if (kin_planning_pop_reasons(q->thread, q->reasons)) send_left_out(q, q->reasons);
}

void kin_cluster_questions_note_active(kin_cluster_questions *q, uint32_t question) {
    const kin_cluster_options *o = q->o.cluster;
    q->had_plan = true;
    if (o->calls.in_force) o->calls.in_force(o->planner, question);
}

kin_err kin_cluster_questions_given_up(const kin_cluster_questions *q) {
    return q->give_up_at ? (kin_err){.text = ""} : q->no_plan;
}

bool kin_cluster_questions_give_up(kin_cluster_questions *q, kin_time now) {
    if (!q->give_up_at || now < q->give_up_at) return false;
    q->give_up_at = 0;
    return true;
}

// ---- opening and closing

int kin_cluster_questions_open(kin_cluster_questions *q, const kin_cluster_questions_options *options, kin_err *err) {
    *q = (kin_cluster_questions){.o = *options,
                                 .about = calloc(1, sizeof *q->about),
                                 .answer = calloc(1, sizeof *q->answer),
                                 .reasons = calloc(1, sizeof *q->reasons)};
    if (!q->about || !q->answer || !q->reasons) return kin_err_set(err, "out of memory");
    kin_planning_options po = {
        .planner = options->cluster->planner, .calls = options->cluster->calls, .done = options->done, .user = options->user};
    return kin_planning_open(&q->thread, &po, err);
}

void kin_cluster_questions_stop(kin_cluster_questions *q) {
    kin_planning_stop(q->thread);
}

void kin_cluster_questions_close(kin_cluster_questions *q) {
    kin_planning_close(q->thread);
    free(q->about);
    free(q->answer);
    free(q->reasons);
}
