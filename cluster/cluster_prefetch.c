// Prefetching for a plan that is not active yet: devices are told to fetch and pack (PREFETCH), and the head packs its own part
// in a thread of the lowest priority.
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster_impl.h"
#include "pure/proto/id.h"

#define STANDBY UINT32_C(0x80000000) // tickets of standby orders; others are questions

enum {
    SPARE_MS = 3000, // time with the same plan and devices, before standby weights are ordered
    QUIET_MS = 1000, // time without a request, before they are fetched without a rate limit
};

// ---- plans

kin_assignment **kin_cluster_answer_of(kin_cluster *c, uint32_t question) {
    return c->next->question == question ? &c->next : &c->asked;
}

void kin_cluster_keep_next(kin_cluster *c) {
    kin_assignment *answer = c->asked;
    if (kin_membership_prepares(c->membership) != answer->question) return;
    c->asked = c->next;
    c->next = answer;
}

// ---- the head's own part

void kin_cluster_on_packed(void *user, uint32_t question) {
    kin_cluster_act(user,
                    &(kin_membership_event){
                        .kind = KIN_MEMBERSHIP_PREFETCHED, .link = KIN_MEMBERSHIP_OWN, .question = question, .is_here = true});
}

int kin_cluster_pack(void *user, const kin_prepacking_job *job, const atomic_bool *stop, kin_packed **held, kin_err *err) {
    const kin_cluster *c = user;
    kin_local_stage_options o = {.model = c->o.model, .devices = c->o.devices, .shard = c->o.shard};
    return kin_local_stage_prepack(&o, &job->windows, &job->but, stop, held, err);
}

static bool has_work(const kin_windows *windows, const kin_windows *but) {
    return windows->n > 0 && (windows->n != but->n || memcmp(windows->at, but->at, (size_t)but->n * sizeof but->at[0]) != 0);
}

static void prefetch_own(kin_cluster *c, uint32_t question) {
    const kin_assignment *p = *kin_cluster_answer_of(c, question), *now = c->plan;
    kin_prepacking_job *job = c->ring.job;
    if (question == c->standby.own_ticket) return; // only the rate limit would differ
    c->standby.own_ticket = job->ticket = question;
    job->windows = p->windows[0].windows;
    job->but = now->windows[0].windows;
    bool is_whole = kin_share_is_whole(&p->shares[0]); // a share is packed when its plan begins
    if (has_work(&job->windows, &job->but) && c->o.shard.cache_dir && is_whole)
        kin_prepacking_begin(c->ring.prepacking, job);
    else
        kin_cluster_on_packed(c, question);
}

// ---- devices

void kin_cluster_prefetch(kin_cluster *c, const kin_membership_action *a) {
    if (a->link == KIN_MEMBERSHIP_OWN) {
        prefetch_own(c, a->question);
        return;
    }
    const kin_assignment *p = *kin_cluster_answer_of(c, a->question);
    const kin_membership_device *d = kin_membership_device_at(c->membership, a->device);
    kin_proto_message *m = c->message;
    int i = kin_assignment_find(p, &d->id);
    if (i < 0 || p->question != a->question) return; // that plan was given up
    m->type = KIN_FRAME_PREFETCH;
    m->prefetch.ticket = a->question;
    m->prefetch.purpose = KIN_PROTO_FOR_PLAN;
    m->prefetch.rate_limited = a->rate_limited;
    kin_cluster_fill_plan(c, p, i, &m->prefetch.plan);
    kin_connections_send(c->connections, a->link, 0, m);
    kin_connections_send_haves(c->connections, a->link);
}

// ---- standby: what the others would need if a device were lost

static bool is_there(const kin_membership_device *d) {
    return d && (d->state == KIN_DEVICE_JOINED || d->state == KIN_DEVICE_PREPARING || d->state == KIN_DEVICE_READY);
}

static int list_devices(const kin_cluster *c, uint8_t devices[KIN_MEMBERSHIP_DEVICES]) {
    int n = 0;
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        if (is_there(kin_membership_device_at(c->membership, i))) devices[n++] = (uint8_t)i;
    }
    return n;
}

static void mark(bool *layers, const kin_windows *windows, bool value) {
    for (int i = 0; i < windows->n; i++) {
        for (int il = windows->at[i].layer_begin; il < windows->at[i].layer_end; il++) layers[il] = value;
    }
}

// Marks the layers of device `id` in the plan without device i of the question.
static void mark_of_plan(kin_cluster *c, int i, const kin_proto_id *id, bool *layers) {
    const kin_planning_standby *s = c->standby.plans;
    kin_assignment *scratch = c->standby.scratch;
    kin_err err;
    if (!s->has[i]) return;
    if (kin_assignment_lay_out(scratch, &s->plans[i], s->ids, c->o.model, (int)c->o.shard.kv_type, &err) != 0) return;
    int at = kin_assignment_find(scratch, id);
    if (at > 0) mark(layers, &scratch->windows[at].windows, true);
}

// Makes each layer a window: a device fetches as many as its disk may hold.
static void fill_standby_plan(kin_proto_plan *plan, const bool *layers, int n_layer) {
    plan->n_windows = 0;
    for (int il = 0; il < n_layer && plan->n_windows < KIN_MAX_WINDOWS; il++) {
        if (!layers[il]) continue;
        plan->window[plan->n_windows] =
            (kin_proto_window){.round = (uint16_t)plan->n_windows, .layer_begin = (uint16_t)il, .layer_end = (uint16_t)(il + 1)};
        plan->n_windows++;
    }
    plan->n_rounds = (uint16_t)(plan->n_windows ? plan->n_windows : 1);
}

static void order_standby(kin_cluster *c, int i) {
    const kin_membership_device *d = kin_membership_device_at(c->membership, i);
    const kin_planning_standby *s = c->standby.plans;
    bool layers[KIN_PROTO_MAX_LAYERS] = {false};
    for (int k = 1; k < s->n; k++) {
        if (!kin_proto_id_equal(&s->ids[k], &d->id)) mark_of_plan(c, k, &d->id, layers);
    }
    int now = kin_assignment_find(c->plan, &d->id);
    bool has_whole = now >= 0 && kin_share_is_whole(&c->plan->shares[now]); // a share lacks parts of layers
    if (has_whole) mark(layers, &c->plan->windows[now].windows, false);
    kin_proto_message *m = c->message;
    m->type = KIN_FRAME_PREFETCH;
    m->prefetch.ticket = c->standby.ticket;
    m->prefetch.purpose = KIN_PROTO_FOR_STANDBY;
    m->prefetch.rate_limited = c->standby.rate_limited;
    kin_cluster_fill_plan(c, c->plan, 1, &m->prefetch.plan); // its windows are replaced below
    m->prefetch.plan.group = (kin_proto_group){0};           // whole layers
    fill_standby_plan(&m->prefetch.plan, layers, c->o.model->hp.n_layer);
    c->standby.has[i] = m->prefetch.plan.n_windows == 0;
    if (c->standby.has[i]) return;
    kin_connections_send(c->connections, d->link, 0, m);
    kin_connections_send_haves(c->connections, d->link);
}

static void order_all_standby(kin_cluster *c) {
    uint8_t devices[KIN_MEMBERSHIP_DEVICES];
    int n = list_devices(c, devices);
    for (int i = 0; i < n; i++) {
        if (!c->standby.has[devices[i]]) order_standby(c, devices[i]);
    }
}

void kin_cluster_handle_standby_plans(kin_cluster *c) {
    kin_cluster_standby *s = &c->standby;
    if (!kin_planning_pop_standby(c->planning.thread, s->plans) || s->plans->number != s->ticket || !s->epoch) return;
    s->is_known = true;
    order_all_standby(c);
}

bool kin_cluster_is_quiet(kin_cluster *c, kin_time now) {
    if (kin_membership_n_requests(c->membership) > 0) c->standby.busy_at = now;
    return c->standby.busy_at == 0 || kin_clock_ms(c->standby.busy_at, now) >= QUIET_MS;
}

// A plan that is being prepared comes first; standby is then for the plan after it.
void kin_cluster_prefetch_tick(kin_cluster *c, kin_time now) {
    kin_cluster_standby *s = &c->standby;
    uint8_t devices[KIN_MEMBERSHIP_DEVICES];
    uint32_t epoch = kin_membership_epoch(c->membership);
    int n = list_devices(c, devices);
    bool rate_limited = !kin_cluster_is_quiet(c, now);
    bool is_up = kin_membership_state_now(c->membership) == KIN_MEMBERSHIP_SERVING && !kin_membership_prepares(c->membership);
    if (!c->o.calls.without || !is_up || c->plan->n_members < 2) {
        s->epoch = 0;
    } else if (s->epoch != epoch || s->n_devices != n) {
        s->epoch = epoch;
        s->n_devices = n;
        s->since = now;
        s->is_asked = s->is_known = false;
        memset(s->has, 0, sizeof s->has);
    } else if (!s->is_asked && kin_clock_ms(s->since, now) >= SPARE_MS) {
        s->is_asked = true;
        s->ticket = STANDBY | (s->ticket + 1);
        s->rate_limited = rate_limited;
        kin_cluster_ask_standby(c, s->ticket, devices, n);
    } else if (s->is_known && s->rate_limited != rate_limited) {
        s->rate_limited = rate_limited;
        order_all_standby(c);
    }
}

static void handle_standby(kin_cluster *c, uint32_t from, const kin_proto_prefetched *m) {
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES && m->ticket == c->standby.ticket; i++) {
        const kin_membership_device *d = kin_membership_device_at(c->membership, i);
        if (d && d->link == from) c->standby.has[i] = m->is_here || m->reason[0];
    }
}

// ---- answers

void kin_cluster_handle_prefetched(kin_cluster *c, uint32_t from, const kin_proto_prefetched *m) {
    if (m->ticket & STANDBY) {
        handle_standby(c, from, m);
        return;
    }
    kin_cluster_act(c, &(kin_membership_event){.kind = KIN_MEMBERSHIP_PREFETCHED,
                                               .link = from,
                                               .question = m->ticket,
                                               .is_here = m->is_here,
                                               .progress = &m->progress,
                                               .reason = m->reason[0] ? m->reason : NULL});
}

// ---- opening and closing

int kin_cluster_open_prefetch(kin_cluster *c, kin_err *err) {
    c->standby.plans = calloc(1, sizeof *c->standby.plans);
    c->standby.scratch = calloc(1, sizeof *c->standby.scratch);
    if (!c->standby.plans || !c->standby.scratch) return kin_err_set(err, "out of memory");
    return 0;
}

void kin_cluster_close_prefetch(kin_cluster *c) {
    free(c->standby.plans);
    free(c->standby.scratch);
}
