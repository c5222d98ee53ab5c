#include "cluster/planner.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sentence.h"
#include "base/units.h"
#include "pure/papers/acceptance.h"
#include "pure/plan/group_search.h"
#include "pure/plan/prompt.h"
#include "pure/plan/ring_order.h"
#include "pure/plan/timeline.h"
#include "pure/proto/id.h"
#include "pure/proto/label.h"
#include "sys/cond.h"
#include "sys/highs.h"

enum { MAX_NODES_OF_REASONS = 50 }; // limit of the search for a plan with a device that has no layers: it only explains

// A plan and its devices, as its question had them: the head first.
typedef struct active_plan {
    bool is_there;
    uint32_t since, question; // the first and the last of consecutive questions with this answer
    int n;
    kin_proto_id ids[KIN_FACTS_MAX_DEVICES];
    kin_facts facts; // uncorrected
    kin_plan plan;
    bool is_predicted;
    kin_prediction predicted;    // from these facts
    kin_corrections corrections; // of these devices, since then
    char refused[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_REASON];
} active_plan;

struct kin_planner {
    kin_planner_options o;
    kin_model_facts model;
    kin_work_facts work;
    const kin_plan_scheduler *scheduler; // NULL: by rule or manual
    kin_plan_options defaults;           // for it: with the objective of halda
    kin_manual_plan manual;
    bool by_thesis;  // the thesis' rule decides whether another plan replaces the active one
    bool was_joined; // a device had joined: from then on the head continues alone if it must

    _Atomic uint32_t in_force;    // the question whose answer is active
    pthread_cond_t asked;         // signalled at each question
    pthread_mutex_t mutex;        // guards the following
    active_plan now, proposed;    // active; the last answer, until it is active
    active_plan next;             // being planned
    kin_time changed_at;          // when the last plan was chosen
    int n_left_out;               // of one group
    kin_facts corrected, grouped; // scratch

    active_plan explained; // used by the planning thread without the mutex: reasons take as long as plans
    kin_facts explained_facts;
};

kin_planner_options kin_planner_options_defaults(void) {
    return (kin_planner_options){.plan = "auto", .scheduler = "exact", .accept = "margin", .hold_s = 120};
}

bool kin_planner_is_word(const char *plan) {
    return strcmp(plan, "auto") == 0 || strcmp(plan, "even") == 0 || strcmp(plan, "memory") == 0 || strcmp(plan, "tp") == 0;
}

static int no_scheduler(const char *name, kin_err *err) {
    char names[128] = "";
    for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", s->name);
    }
    return kin_err_set(err, "--scheduler %s: must be one of %s", name, names);
}

static int read_scheduler(kin_planner *p, kin_err *err) {
    p->scheduler = kin_plan_scheduler_find(p->o.scheduler);
    if (!p->scheduler) return no_scheduler(p->o.scheduler, err);
    if (p->scheduler->plan == kin_plan_halda && !kin_highs_is_there())
        return kin_err_set(err, "--scheduler halda is not available: kin was built without HiGHS");
    if (p->o.halda && kin_plan_options_read_halda(&p->defaults, p->o.halda, p->scheduler, err) != 0) return KIN_FAIL;
    return kin_plan_scheduler_check_rounds(p->scheduler, p->o.n_rounds, err);
}

static int read_options(kin_planner *p, kin_err *err) {
    p->by_thesis = strcmp(p->o.accept, "thesis") == 0;
    if (!p->by_thesis && strcmp(p->o.accept, "margin") != 0)
        return kin_err_set(err, "--accept %s: must be margin or thesis", p->o.accept);
    if (p->o.halda && strcmp(p->o.plan, "auto") != 0)
        return kin_err_set(err, "--halda %s: --plan %s uses no scheduler", p->o.halda, p->o.plan);
    if (p->o.manual) {
        p->manual = *p->o.manual;
        p->o.manual = NULL;
        if (kin_manual_plan_check_layers(&p->manual, p->model.n_layer, err) != 0) return kin_err_prefix(err, "%s", p->o.plan);
        return 0;
    }
    kin_assert(kin_planner_is_word(p->o.plan));
    return strcmp(p->o.plan, "auto") == 0 ? read_scheduler(p, err) : 0;
}

int kin_planner_open(kin_planner **out, const kin_planner_options *o, const kin_model_facts *model, const kin_work_facts *work,
                     kin_err *err) {
    kin_planner *p = *out = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    p->o = *o;
    p->model = *model;
    p->work = *work;
    p->defaults = kin_plan_options_defaults();
    pthread_mutex_init(&p->mutex, NULL);
    kin_cond_init(&p->asked);
    if (read_options(p, err) == 0) return 0;
    kin_planner_close(p);
    *out = NULL;
    return KIN_FAIL;
}

void kin_planner_close(kin_planner *p) {
    if (!p) return;
    pthread_cond_destroy(&p->asked);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

int kin_planner_n_named(const kin_planner *p) {
    int n = 0;
    for (int i = 0; i < p->manual.n_entries; i++) n += strcmp(p->manual.entries[i].name, p->o.head_name) != 0;
    return n;
}

// ---- renumbering: each question numbers the devices anew

static int find_device(const active_plan *s, const kin_proto_id *id) {
    for (int i = 0; i < s->n; i++) {
        if (kin_proto_id_equal(&s->ids[i], id)) return i;
    }
    return -1;
}

// Converts the plan of `from` to the numbers of `to`. False: one of its devices is gone.
static bool renumber(const active_plan *from, const active_plan *to, kin_plan *out) {
    int at[KIN_FACTS_MAX_DEVICES];
    for (int i = 0; i < from->n; i++) at[i] = find_device(to, &from->ids[i]);
    return kin_plan_renumber(&from->plan, at, from->n, out);
}

// Copies the corrections of devices that are still there.
static void renumber_corrections(const active_plan *from, active_plan *to) {
    kin_corrections_init(&to->corrections);
    if (!from->is_there) return;
    int at[KIN_FACTS_MAX_DEVICES];
    for (int i = 0; i < to->n; i++) {
        at[i] = find_device(from, &to->ids[i]);
        if (at[i] < 0) continue;
        to->corrections.devices[i] = from->corrections.devices[at[i]];
        for (int k = 0; k < i; k++) {
            if (at[k] < 0) continue;
            to->corrections.hops[i][k] = from->corrections.hops[at[i]][at[k]];
            to->corrections.hops[k][i] = from->corrections.hops[at[k]][at[i]];
        }
    }
}

// ---- active and proposed plans

static bool is_same_answer(const active_plan *a, const active_plan *b) {
    kin_plan plan;
    return a->is_there && renumber(a, b, &plan) && kin_plan_is_same(&plan, &b->plan);
}

static double now_s(void) {
    return kin_clock_ms(0, kin_clock_now()) / 1e3;
}

// Holds the corrections of devices that have fewer layers than before: their speed with more layers is known. A group is measured
// as a whole.
static void hold_corrections(const kin_planner *p, const active_plan *before, active_plan *after) {
    if (!before->is_there || before->plan.groups.n > 0 || after->plan.groups.n > 0) return;
    for (int i = 0; i < after->n; i++) {
        int was = find_device(before, &after->ids[i]);
        if (was >= 0 && before->plan.shares[was].n_layer > after->plan.shares[i].n_layer)
            kin_corrections_hold(&after->corrections, i, now_s(), p->o.hold_s);
    }
}

static void activate_proposed(kin_planner *p) {
    const active_plan *a = &p->proposed;
    if (!a->is_there || atomic_load(&p->in_force) - a->since > a->question - a->since) return;
    hold_corrections(p, &p->now, &p->proposed);
    p->now = p->proposed;
    p->proposed.is_there = false;
}

static void lock(kin_planner *p) {
    pthread_mutex_lock(&p->mutex);
    activate_proposed(p);
}

static const active_plan *latest(const kin_planner *p) {
    return p->proposed.is_there ? &p->proposed : &p->now;
}

// ---- predictions

// Valid until the next call.
static const kin_facts *corrected_facts(kin_planner *p, const active_plan *s) {
    p->corrected = s->facts;
    kin_corrections_apply(&s->corrections, &p->corrected);
    return &p->corrected;
}

// Returns the facts for planning: corrected, with held corrections. Valid until the next call.
static const kin_facts *planning_facts(kin_planner *p, const active_plan *s) {
    kin_corrections held = kin_corrections_held(&s->corrections, now_s());
    p->corrected = s->facts;
    kin_corrections_apply(&held, &p->corrected);
    return &p->corrected;
}

// Returns the facts with these groups as single devices. Valid until the next call; NULL: the groups are impossible.
static const kin_facts *put_groups(kin_planner *p, const kin_facts *facts, const kin_grouping *grouping, kin_err *err) {
    if (grouping->n == 0) return facts;
    return kin_grouping_apply(facts, grouping, &p->grouped, err) == 0 ? &p->grouped : NULL;
}

static int predict(kin_planner *p, const kin_facts *facts, const kin_plan *plan, kin_prediction *out, kin_err *err) {
    const kin_facts *all = put_groups(p, facts, &plan->groups, err);
    return all ? kin_timeline_predict(all, plan, out, err) : KIN_FAIL;
}

static void predict_by_facts(kin_planner *p, active_plan *s) {
    kin_err err = {""};
    s->is_predicted = predict(p, &s->facts, &s->plan, &s->predicted, &err) == 0;
    if (!s->is_predicted) kin_log(KIN_LOG_DEBUG, "cannot predict the time of the plan: %s", err.text);
}

static void predict_next(kin_planner *p) {
    p->next.is_there = true;
    predict_by_facts(p, &p->next);
}

// ---- planning by measurements

// A ring passes a device only once, so a relay must be a device without layers.
static bool passes_each_once(const kin_plan *plan) {
    kin_device_set seen = 0;
    for (int s = 0; s < plan->n_stops; s++) {
        if (seen & kin_device_bit(plan->stops[s].device)) return false;
        seen |= kin_device_bit(plan->stops[s].device);
    }
    return true;
}

// Returns the devices that do not reach the head, or that the head does not reach.
static kin_device_set far_devices(const kin_facts *facts) {
    kin_device_set far = 0;
    for (int i = 1; i < facts->n_device; i++) {
        if (!kin_facts_link_usable(&facts->links[0][i]) || !kin_facts_link_usable(&facts->links[i][0])) far |= kin_device_bit(i);
    }
    return far;
}

static int schedule_but(const kin_planner *p, const kin_facts *facts, kin_device_set but, kin_plan *plan, kin_err *err) {
    kin_plan_options o = p->defaults;
    o.ilp = kin_highs_solve;
    o.leave_out = but;
    o.n_rounds = facts->n_device == 1 ? 1 : p->o.n_rounds;
    if (kin_plan_schedule(p->scheduler, facts, &o, plan, err) != 0) return KIN_FAIL;
    if (passes_each_once(plan)) return 0;
    o.leave_out = but | far_devices(facts);
    if (kin_plan_schedule(p->scheduler, facts, &o, plan, err) != 0) return KIN_FAIL;
    return passes_each_once(plan) ? 0 : kin_err_set(err, "the devices' links do not form a ring through all of them");
}

static int schedule(const kin_planner *p, const kin_facts *facts, kin_plan *plan, kin_err *err) {
    return schedule_but(p, facts, 0, plan, err);
}

static void log_refused(kin_planner *p) {
    kin_device_set usable;
    kin_err err;
    char reasons[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_REASON];
    if (kin_facts_screen(&p->next.facts, &usable, reasons, &err) != 0) return;
    for (int i = 0; i < p->next.n; i++) {
        int before = find_device(latest(p), &p->next.ids[i]);
        if (reasons[i][0] && (before < 0 || strcmp(reasons[i], latest(p)->refused[before]) != 0))
            kin_log(KIN_LOG_WARN, "device '%s' is not used: %s", p->next.facts.devices[i].name, reasons[i]);
    }
    memcpy(p->next.refused, reasons, sizeof reasons);
}

// Returns the bytes of the layers that the device has in the candidate and not in the present plan.
static double missing_bytes(const kin_model_facts *m, const kin_plan *present, const kin_plan *candidate, int device) {
    kin_windows has, gets;
    double shares = 0;
    kin_plan_windows(present, device, &has);
    kin_plan_windows(candidate, device, &gets);
    for (int g = 0; g < gets.n; g++) {
        for (int il = gets.at[g].layer_begin; il < gets.at[g].layer_end; il++) {
            bool is_here = false;
            for (int h = 0; h < has.n; h++) is_here |= il >= has.at[h].layer_begin && il < has.at[h].layer_end;
            shares += is_here ? 0 : m->layer_share[il];
        }
    }
    return shares * kin_facts_layer_bytes(m);
}

// A device must fetch the layers that it does not have in the present plan. The head has the file. The model is up while a ring
// is active; before that, fetching delays the first token.
static bool thesis_accepts(const kin_planner *p, const kin_facts *facts, const kin_plan *present, double now_s,
                           const kin_plan *candidate, double then_s) {
    kin_acceptance_options o = kin_acceptance_options_published();
    kin_acceptance_cost cost = kin_acceptance_cost_of(then_s * 1e6, 0);
    double since_s = kin_clock_ms(p->changed_at, kin_clock_now()) / 1e3;
    for (int i = 1; i < facts->n_device; i++) {
        if (candidate->shares[i].n_layer == 0) continue;
        double init_us = kin_acceptance_init_us(&o, missing_bytes(&p->model, present, candidate, i), facts->links[0][i].bytes_s);
        double penalty = kin_acceptance_penalty(&o, init_us, p->now.is_there, since_s);
        cost = kin_acceptance_add(cost, kin_acceptance_cost_of(0, penalty));
    }
    return kin_acceptance_accepts(&o, &cost, now_s * 1e6);
}

static bool is_worth_changing(const kin_planner *p, const kin_facts *facts, const kin_plan *present, double now_s,
                              const kin_plan *candidate, double then_s) {
    return p->by_thesis ? thesis_accepts(p, facts, present, now_s, candidate, then_s) : kin_plan_is_worth_changing(now_s, then_s);
}

// Lets devices keep their places of the active ring. Uses uncorrected facts: only hops between devices of that ring have
// corrections, which would make any order with other devices look better. plan: over the devices of `about`; fits the corrected
// facts before and after.
static void keep_order(const kin_planner *p, const active_plan *about, const kin_facts *facts, kin_plan *plan) {
    kin_plan before = p->now.plan, kept = *plan;
    kin_prediction then;
    kin_err err;
    if (!p->now.is_there || p->now.plan.groups.n > 0) return;
    for (int s = 0; s < before.n_stops; s++) before.stops[s].device = find_device(about, &p->now.ids[before.stops[s].device]);
    kin_plan_keep_order(&about->facts, &before, &kept);
    if (kin_timeline_predict(facts, &kept, &then, &err) == 0) *plan = kept;
}

// Replaces the plan by one with groups if that is faster. The published schedulers know no groups, so their plans stay.
static void consider_groups(const kin_planner *p, const kin_facts *facts, kin_device_set but, kin_plan *plan) {
    kin_plan_options o = kin_plan_options_defaults();
    kin_grouped_plan grouped;
    kin_prediction ring;
    kin_err err;
    char text[KIN_GROUP_EXPLAIN_MAX];
    if (p->scheduler->plan != kin_plan_playoff) return;
    if (p->o.n_rounds || facts->n_device < 2 || kin_timeline_predict(facts, plan, &ring, &err) != 0) return;
    o.leave_out = but;
    if (kin_plan_grouped(facts, &o, ring.tpot_s, &grouped, &err) != 0) return;
    bool is_faster = grouped.plan.groups.n > 0 && grouped.prediction.tpot_s < ring.tpot_s && passes_each_once(&grouped.plan);
    kin_grouped_explain(facts, &grouped, &ring, text, sizeof text);
    kin_log(is_faster && p->now.plan.groups.n == 0 ? KIN_LOG_INFO : KIN_LOG_DEBUG, "%s", text);
    if (is_faster) *plan = grouped.plan;
}

// Finds the best plan for the devices of `about`.
static int choose(const kin_planner *p, const active_plan *about, const kin_facts *facts, kin_device_set but, kin_plan *out,
                  kin_err *err) {
    if (schedule_but(p, facts, but, out, err) != 0) return KIN_FAIL;
    keep_order(p, about, facts, out); // first, so that the comparison is with the real plan
    consider_groups(p, facts, but, out);
    return 0;
}

// True if the plan of `from` is still possible, and no other is better by the margin. A group that becomes possible by new
// devices needs no margin.
static bool keeps(kin_planner *p, const active_plan *from, const kin_facts *facts, const kin_plan *candidate, kin_plan *present) {
    kin_prediction now, then;
    kin_err err;
    if (!from->is_there || !renumber(from, &p->next, present)) return false;
    if (predict(p, facts, present, &now, &err) != 0 || predict(p, facts, candidate, &then, &err) != 0 || !isfinite(now.tpot_s))
        return false;
    if (from->n != p->next.n && from->plan.groups.n == 0 && candidate->groups.n > 0) return false;
    return !is_worth_changing(p, facts, present, now.tpot_s, candidate, then.tpot_s);
}

static int plan_measured(kin_planner *p, kin_err *err) {
    kin_plan *plan = &p->next.plan, present;
    log_refused(p);
    const kin_facts *facts = planning_facts(p, &p->next);
    if (choose(p, &p->next, facts, 0, plan, err) != 0) return KIN_FAIL;
    if (keeps(p, &p->now, facts, plan, &present) || keeps(p, &p->proposed, facts, plan, &present))
        *plan = present;
    else
        p->changed_at = kin_clock_now();
    return 0;
}

// ---- planning by rule or manually

// Returns how many devices can share a layer.
static int most_ranks(const kin_planner *p) {
    double n_pieces = fmin(p->model.share_heads, p->model.share_ff);
    return (int)fmin(n_pieces, KIN_GROUP_MAX);
}

static int apply_rule(const kin_planner *p, const kin_candidate *candidates, int n, kin_plan *out, kin_err *err) {
    int n_rounds = p->o.n_rounds ? p->o.n_rounds : 1, n_layer = p->model.n_layer;
    if (p->manual.n_entries) return kin_manual_plan_apply(&p->manual, candidates, n, n_layer, out, err);
    if (strcmp(p->o.plan, "even") == 0) return kin_plan_even(candidates, n, n_layer, n_rounds, out, err);
    if (strcmp(p->o.plan, "memory") == 0) return kin_plan_by_memory(candidates, n, n_layer, n_rounds, out, err);
    kin_plan_one_group(candidates, n, most_ranks(p), n_layer, out);
    return 0;
}

// Warns if the one group has fewer devices than are here: a layer can be split only so often.
static void log_left_out(kin_planner *p, const kin_plan *plan, int n) {
    int n_ranks = plan->groups.n ? plan->groups.groups[0].n : 1, n_left_out = strcmp(p->o.plan, "tp") == 0 ? n - n_ranks : 0;
    if (n_left_out > 0 && n_left_out != p->n_left_out)
        kin_log(KIN_LOG_WARN, "%d devices can share the layers of this model, but %d have joined: %d %s none", n_ranks, n,
                n_left_out, n_left_out == 1 ? "has" : "have");
    p->n_left_out = n_left_out;
}

static int plan_by_rule(kin_planner *p, const kin_planner_question *q, kin_err *err) {
    const kin_plan *plan = &p->next.plan;
    if (apply_rule(p, q->candidates, q->n, &p->next.plan, err) != 0) return KIN_FAIL;
    log_left_out(p, plan, q->n);
    for (int i = 0; i < q->n; i++) {
        if (plan->memory[i]) p->next.facts.devices[i].memory_bytes = (double)plan->memory[i];
    }
    return 0;
}

// ---- plans without a device

static int rule_without(const kin_planner *p, const kin_planner_question *q, int i, kin_plan *out, kin_err *err) {
    kin_candidate others[KIN_FACTS_MAX_DEVICES];
    int number[KIN_FACTS_MAX_DEVICES], n = 0;
    kin_plan plan;
    for (int k = 0; k < q->n; k++) {
        if (k == i) continue;
        number[n] = k;
        others[n++] = q->candidates[k];
    }
    if (apply_rule(p, others, n, &plan, err) != 0) return KIN_FAIL;
    return kin_plan_renumber(&plan, number, n, out) ? 0 : kin_err_set(err, "a device is gone");
}

// ---- questions

static void read_question(kin_planner *p, const kin_planner_question *q) {
    active_plan *next = &p->next;
    kin_assert(q->n >= 1 && q->n <= KIN_FACTS_MAX_DEVICES);
    memset(next, 0, sizeof *next);
    next->n = q->n;
    memcpy(next->ids, q->ids, (size_t)q->n * sizeof *q->ids);
    if (q->has_facts) next->facts = q->facts;
    for (int i = 0; i < q->n; i++) { // for devices that have sent no facts
        char *name = next->facts.devices[i].name;
        if (!name[0]) kin_label_set(name, KIN_FACTS_MAX_NAME - 1, q->candidates[i].name);
    }
    next->facts.model = p->model;
    next->facts.work = p->work;
    renumber_corrections(&p->now, next);
}

static void propose_next(kin_planner *p, uint32_t question) {
    predict_next(p);
    p->next.since = p->next.question = question;
    if (is_same_answer(&p->now, &p->next)) p->next.since = p->now.since;
    if (is_same_answer(&p->proposed, &p->next)) p->next.since = p->proposed.since;
    p->proposed = p->next;
    activate_proposed(p);
}

static int answer_question(kin_planner *p, const kin_planner_question *q, kin_plan *out, kin_err *err) {
    read_question(p, q);
    if (p->o.dry_run) { // stores the devices, and gives none of them work
        p->next.is_there = true;
        p->now = p->next;
        *out = (kin_plan){.n_rounds = 1, .n_stops = 1, .shares = {{p->model.n_layer, 0, 0}}};
        return 0;
    }
    if ((p->scheduler ? plan_measured(p, err) : plan_by_rule(p, q, err)) != 0) return KIN_FAIL;
    *out = p->next.plan;
    propose_next(p, q->number);
    return 0;
}

int kin_planner_ask(kin_planner *p, const kin_planner_question *q, kin_plan *out, kin_err *err) {
    if (q->n == 1 && !p->was_joined && !p->o.begins_alone && !p->o.dry_run)
        return kin_err_set(err, "no device has joined yet; run 'kin join' on one");
    p->was_joined = true;
    lock(p);
    int rc = answer_question(p, q, out, err);
    pthread_cond_broadcast(&p->asked);
    pthread_mutex_unlock(&p->mutex);
    return rc;
}

void kin_planner_in_force(kin_planner *p, uint32_t question) {
    atomic_store(&p->in_force, question);
}

int kin_planner_without(kin_planner *p, const kin_planner_question *q, int i, kin_plan *out, kin_err *err) {
    kin_assert(i > 0 && i < q->n);
    if (p->o.dry_run) return kin_err_set(err, "no device has layers");
    lock(p);
    read_question(p, q);
    const kin_facts *facts = planning_facts(p, &p->next);
    int rc = p->scheduler ? choose(p, &p->next, facts, kin_device_bit(i), out, err) : rule_without(p, q, i, out, err);
    pthread_mutex_unlock(&p->mutex);
    return rc;
}

static void explain_device(const kin_planner *p, int device, char why[KIN_PLAN_WHY_MAX]) {
    const active_plan *s = &p->explained;
    kin_plan_options o = kin_plan_options_defaults();
    kin_err err;
    o.n_rounds = p->o.n_rounds;
    o.max_nodes = MAX_NODES_OF_REASONS;
    if (s->refused[device][0])
        kin_sentence_print(why, KIN_PLAN_WHY_MAX, "%s", s->refused[device]);
    else if (!p->scheduler)
        kin_sentence_print(why, KIN_PLAN_WHY_MAX, "--plan %s assigns no layers to it", p->o.plan);
    else if (s->plan.groups.n > 0)
        kin_sentence_print(why, KIN_PLAN_WHY_MAX, "no plan that uses it is faster than the tensor-parallel plan");
    else if (p->scheduler->plan != kin_plan_playoff)
        kin_sentence_print(why, KIN_PLAN_WHY_MAX, "the scheduler %s assigns no layers to it", p->scheduler->name);
    else if (kin_plan_explain_left_out(&p->explained_facts, &o, &s->plan, device, why, &err) != 0)
        why[0] = '\0';
}

void kin_planner_left_out(kin_planner *p, const kin_planner_question *q, int i, char why[KIN_PLAN_WHY_MAX]) {
    kin_assert(i > 0 && i < q->n);
    why[0] = '\0';
    lock(p);
    const active_plan *s = latest(p);
    int device = s->is_there && !p->o.dry_run ? find_device(s, &q->ids[i]) : -1;
    bool is_left_out = device > 0 && !kin_plan_has(&s->plan, device);
    if (is_left_out) p->explained = *s;
    if (is_left_out) p->explained_facts = *planning_facts(p, s);
    pthread_mutex_unlock(&p->mutex);
    if (is_left_out) explain_device(p, device, why);
}

static void read_standalone(kin_planner *p, const kin_device_facts *device) {
    memset(&p->next, 0, sizeof p->next);
    p->next.n = p->next.facts.n_device = 1;
    p->next.facts.devices[0] = *device;
    p->next.facts.model = p->model;
    p->next.facts.work = p->work;
    kin_corrections_init(&p->next.corrections);
}

static void activate_standalone(kin_planner *p) {
    predict_next(p);
    p->now = p->next;
}

int kin_planner_set_standalone(kin_planner *p, const kin_device_facts *device, const kin_layer_share *share, kin_err *err) {
    lock(p);
    read_standalone(p, device);
    p->next.plan = (kin_plan){.n_rounds = 1, .n_stops = 1, .shares = {*share}};
    activate_standalone(p);
    int rc = p->now.is_predicted ? 0 : kin_timeline_predict(&p->now.facts, &p->now.plan, &p->now.predicted, err);
    pthread_mutex_unlock(&p->mutex);
    return rc;
}

int kin_planner_choose_standalone(kin_planner *p, const kin_device_facts *device, kin_layer_share *share, kin_err *err) {
    lock(p);
    read_standalone(p, device);
    int rc = schedule(p, &p->next.facts, &p->next.plan, err);
    if (rc == 0) activate_standalone(p);
    *share = rc == 0 ? p->now.plan.shares[0] : (kin_layer_share){.n_layer = p->model.n_layer};
    pthread_mutex_unlock(&p->mutex);
    return rc;
}

// ---- measurements since then

// Fills in links of the ring that were unknown when it was planned, because measuring took longer than a plan may wait.
static void learn_links(kin_planner *p, const kin_planner_measured *m) {
    active_plan *now = &p->now;
    for (int i = 0; i < m->n; i++) {
        for (int k = 0; k < m->n; k++) {
            int from = find_device(now, &m->ids[i]), to = find_device(now, &m->ids[k]);
            if (from < 0 || to < 0 || kin_facts_link_usable(&now->facts.links[from][to])) continue;
            now->facts.links[from][to] = m->facts->links[i][k];
        }
    }
    predict_by_facts(p, now);
}

// Predicts tokens at the depth of the measured ones.
static bool predict_at(kin_planner *p, int n_cached, kin_prediction *out) {
    kin_err err;
    p->corrected = p->now.facts;
    if (n_cached > 0) p->corrected.work.n_cached = n_cached;
    return predict(p, &p->corrected, &p->now.plan, out, &err) == 0;
}

// True if a new plan would replace the present one now.
static bool would_change(kin_planner *p) {
    kin_plan candidate;
    kin_prediction now, then;
    kin_err err;
    const active_plan *present = latest(p);
    const kin_facts *facts = planning_facts(p, present);
    if (choose(p, present, facts, 0, &candidate, &err) != 0) return false;
    if (predict(p, facts, &candidate, &then, &err) != 0) return false;
    return predict(p, facts, &present->plan, &now, &err) == 0 &&
           is_worth_changing(p, facts, &present->plan, now.tpot_s, &candidate, then.tpot_s);
}

static void log_corrections(const active_plan *now, int i) {
    char missing[32];
    kin_log(KIN_LOG_DEBUG, "measured on '%s': computing takes %.2f times the prediction, its disk %.2f, %s of memory missing",
            now->facts.devices[i].name, now->corrections.devices[i].cpu, now->corrections.devices[i].disk,
            kin_size_format((uint64_t)now->corrections.devices[i].missing_bytes, missing, sizeof missing));
}

bool kin_planner_add_measured(kin_planner *p, const kin_planner_measured *m) {
    kin_prediction predicted;
    lock(p);
    if (p->now.is_there && !p->now.is_predicted && m->facts) learn_links(p, m);
    bool known = p->now.is_predicted && predict_at(p, m->n_cached, &predicted);
    for (int i = 0; i < m->n && known; i++) {
        kin_measured measured = m->members[i];
        int at = p->now.n == 1 ? 0 : find_device(&p->now, &m->ids[i]);
        if (at < 0) continue;
        if (p->now.plan.groups.n > 0) measured.hop_s = 0; // members of a group compute concurrently: the rest is not hops
        kin_corrections_set(&p->now.corrections, at, &measured, &p->now.plan, &predicted);
        log_corrections(&p->now, at);
    }
    if (p->proposed.is_there) renumber_corrections(&p->now, &p->proposed);
    bool asks = known && p->scheduler && p->now.n > 1 && would_change(p);
    pthread_mutex_unlock(&p->mutex);
    return asks;
}

bool kin_planner_expects(kin_planner *p, kin_expectation *out) {
    kin_err err;
    lock(p);
    bool known = p->now.is_predicted;
    if (known) {
        out->before = p->now.predicted;
        known = predict(p, corrected_facts(p, &p->now), &p->now.plan, &out->corrected, &err) == 0;
    }
    pthread_mutex_unlock(&p->mutex);
    return known;
}

// Returns the facts of the active plan, corrected, with its groups as single devices; NULL: not known.
static const kin_facts *facts_in_force(kin_planner *p) {
    kin_err err;
    return p->now.is_predicted ? put_groups(p, corrected_facts(p, &p->now), &p->now.plan.groups, &err) : NULL;
}

bool kin_planner_batching(kin_planner *p, int n_sequences, int n_cached, int most, kin_batching *out) {
    kin_err err;
    if (pthread_mutex_trylock(&p->mutex) != 0) return false;
    activate_proposed(p);
    if (n_cached < 0) n_cached = p->work.n_cached / n_sequences;
    const kin_facts *facts = facts_in_force(p);
    bool known = facts && kin_batching_choose(facts, &p->now.plan, n_sequences, n_cached, most, out, &err) == 0;
    pthread_mutex_unlock(&p->mutex);
    return known;
}

int kin_planner_chunk_worth(kin_planner *p) {
    int worth;
    kin_err err;
    if (pthread_mutex_trylock(&p->mutex) != 0) return 0;
    activate_proposed(p);
    const kin_facts *facts = facts_in_force(p);
    if (!facts || kin_prompt_chunk_worth(facts, &p->now.plan, &worth, &err) != 0) worth = 0;
    pthread_mutex_unlock(&p->mutex);
    return worth;
}

void kin_planner_wait(kin_planner *p, uint64_t ns) {
    pthread_mutex_lock(&p->mutex);
    kin_cond_wait_for(&p->asked, &p->mutex, ns);
    pthread_mutex_unlock(&p->mutex);
}

bool kin_planner_last(kin_planner *p, kin_facts *facts, kin_plan *plan) {
    lock(p);
    bool is_there = p->now.is_there;
    *facts = p->now.facts;
    *plan = p->now.plan;
    pthread_mutex_unlock(&p->mutex);
    return is_there;
}

kin_planner_calls kin_planner_calls_of(bool is_measured) {
    return (kin_planner_calls){.ask = kin_planner_ask,
                               .without = kin_planner_without,
                               .left_out = kin_planner_left_out,
                               .add_measured = is_measured ? kin_planner_add_measured : NULL,
                               .in_force = kin_planner_in_force};
}
