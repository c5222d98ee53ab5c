#include "cluster/head/standby.h"

#include <stdlib.h>
#include <string.h>

#include "pure/proto/id.h"

#define STANDBY UINT32_C(0x80000000) // tickets of standby orders; others are questions

enum {
    SPARE_MS = 3000, // time with the same plan and devices, before standby weights are ordered
    QUIET_MS = 1000, // time without a request, before they are fetched without a rate limit
};

static bool is_there(const kin_membership_device *d) {
    return d && (d->state == KIN_DEVICE_JOINED || d->state == KIN_DEVICE_PREPARING || d->state == KIN_DEVICE_READY);
}

static int list_devices(const kin_cluster_standby *s, uint8_t devices[KIN_MEMBERSHIP_DEVICES]) {
    int n = 0;
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES; i++) {
        if (is_there(kin_membership_device_at(s->devices->membership, i))) devices[n++] = (uint8_t)i;
    }
    return n;
}

static void mark(bool *layers, const kin_windows *windows, bool value) {
    for (int i = 0; i < windows->n; i++) {
        for (int il = windows->at[i].layer_begin; il < windows->at[i].layer_end; il++) layers[il] = value;
    }
}

// Marks the layers of device `id` in the plan without device i of the question.
static void mark_of_plan(kin_cluster_standby *s, int i, const kin_proto_id *id, bool *layers) {
    const kin_planning_standby *answer = s->answer;
    kin_err err;
    if (!answer->has[i]) return;
    if (kin_assignment_lay_out(s->scratch, &answer->plans[i], answer->ids, s->o->model, (int)s->o->shard.kv_type, &err) != 0)
        return;
    int at = kin_assignment_find(s->scratch, id);
    if (at > 0) mark(layers, &s->scratch->windows[at].windows, true);
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

static void order_standby(kin_cluster_standby *s, int i) {
    const kin_membership_device *d = kin_membership_device_at(s->devices->membership, i);
    const kin_planning_standby *answer = s->answer;
    bool layers[KIN_PROTO_MAX_LAYERS] = {false};
    for (int k = 1; k < answer->n; k++) {
        if (!kin_proto_id_equal(&answer->ids[k], &d->id)) mark_of_plan(s, k, &d->id, layers);
    }
    int now = kin_assignment_find(s->plans->active, &d->id);
    bool has_whole = now >= 0 && kin_share_is_whole(&s->plans->active->shares[now]); // a share lacks parts of layers
    if (has_whole) mark(layers, &s->plans->active->windows[now].windows, false);
    kin_proto_message *m = s->plans->message;
    m->type = KIN_FRAME_PREFETCH;
    m->prefetch.ticket = s->ticket;
    m->prefetch.purpose = KIN_PROTO_FOR_STANDBY;
    m->prefetch.rate_limited = s->rate_limited;
    kin_cluster_plans_fill(s->plans, s->plans->active, 1, &m->prefetch.plan); // its windows are replaced below
    m->prefetch.plan.group = (kin_proto_group){0};                            // whole layers
    fill_standby_plan(&m->prefetch.plan, layers, s->o->model->hp.n_layer);
    s->has[i] = m->prefetch.plan.n_windows == 0;
    if (s->has[i]) return;
    kin_connections_send(s->devices->connections, d->link, 0, m);
    kin_connections_send_haves(s->devices->connections, d->link);
}

static void order_all_standby(kin_cluster_standby *s) {
    uint8_t devices[KIN_MEMBERSHIP_DEVICES];
    int n = list_devices(s, devices);
    for (int i = 0; i < n; i++) {
        if (!s->has[devices[i]]) order_standby(s, devices[i]);
    }
}

void kin_cluster_standby_handle(kin_cluster_standby *s) {
    if (!kin_planning_pop_standby(s->questions->thread, s->answer) || s->answer->number != s->ticket || !s->epoch) return;
    s->is_known = true;
    order_all_standby(s);
}

bool kin_cluster_standby_is_quiet(kin_cluster_standby *s, kin_time now) {
    if (kin_membership_n_requests(s->devices->membership) > 0) s->busy_at = now;
    return s->busy_at == 0 || kin_clock_ms(s->busy_at, now) >= QUIET_MS;
}

// A plan that is being prepared comes first; standby is then for the plan after it.
void kin_cluster_standby_tick(kin_cluster_standby *s, kin_time now) {
    uint8_t devices[KIN_MEMBERSHIP_DEVICES];
    uint32_t epoch = kin_membership_epoch(s->devices->membership);
    int n = list_devices(s, devices);
    bool rate_limited = !kin_cluster_standby_is_quiet(s, now);
    bool is_up = kin_cluster_devices_are_serving(s->devices) && !kin_membership_prepares(s->devices->membership);
    if (!s->o->calls.without || !is_up || s->plans->active->n_members < 2) {
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
        kin_cluster_questions_ask_standby(s->questions, s->ticket, devices, n);
    } else if (s->is_known && s->rate_limited != rate_limited) {
        s->rate_limited = rate_limited;
        order_all_standby(s);
    }
}

bool kin_cluster_standby_handle_answer(kin_cluster_standby *s, uint32_t from, const kin_proto_prefetched *m) {
    if (!(m->ticket & STANDBY)) return false;
    for (int i = 0; i < KIN_MEMBERSHIP_DEVICES && m->ticket == s->ticket; i++) {
        const kin_membership_device *d = kin_membership_device_at(s->devices->membership, i);
        if (d && d->link == from) s->has[i] = m->is_here || m->reason[0];
    }
    return true;
}

int kin_cluster_standby_open(kin_cluster_standby *s, const kin_cluster_options *options, const kin_cluster_devices *devices,
                             const kin_cluster_plans *plans, kin_cluster_questions *questions, kin_err *err) {
    *s = (kin_cluster_standby){.o = options,
                               .devices = devices,
                               .plans = plans,
                               .questions = questions,
                               .answer = calloc(1, sizeof *s->answer),
                               .scratch = calloc(1, sizeof *s->scratch)};
    return s->answer && s->scratch ? 0 : kin_err_set(err, "out of memory");
}

void kin_cluster_standby_close(kin_cluster_standby *s) {
    free(s->answer);
    free(s->scratch);
}
