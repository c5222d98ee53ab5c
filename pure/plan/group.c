#include "pure/plan/group.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pure/plan/deal.h"

// Cost of a sum besides the transfer: encrypting, system calls, adding. bench/sum.c on undisturbed processors: 19, 30 and 47 us
// for two devices and 2048, 4096 and 8192 values. The links' round trips already include waking a thread.
static const double SUM_FIXED_S = 20e-6;

kin_device_set kin_group_members(const kin_group *g) {
    kin_device_set members = 0;
    for (int i = 0; i < g->n; i++) members |= kin_device_bit(g->devices[i]);
    return members;
}

double kin_group_share(const kin_group *g, int device) {
    double own = 0, sum = 0;
    for (int i = 0; i < g->n; i++) {
        sum += g->weights[i];
        if (g->devices[i] == device) own = g->weights[i];
    }
    return own / sum;
}

double kin_group_saves_s(const kin_group_time *t) {
    return t->apart_s - t->layer_s - 2 * (t->sum_s + t->sum_token_s);
}

// If layers differ, a device must be able to hold the largest one, n_layer times (choices.c).
bool kin_group_is_short(const kin_facts *facts, const kin_group_time *by_speed) {
    double largest = 1;
    for (int il = 0; il < facts->model.n_layer; il++) largest = fmax(largest, facts->model.layer_share[il]);
    return by_speed->layers_kept < facts->model.n_layer * largest;
}

void kin_group_rates(const kin_facts *facts, kin_device_set devices, kin_device_rates *rates) {
    for (int i = 0; i < facts->n_device; i++) {
        if (devices & kin_device_bit(i)) kin_device_rates_init(&rates[i], facts, i, 1, facts->work.n_cached, 1);
    }
}

// ---- shares

static double attn_bytes_share(const kin_model_facts *m) {
    return m->attn_bytes > 0 ? m->attn_bytes / kin_facts_layer_bytes(m) : 0.25;
}

static double layer_s(const kin_device_rates *r) {
    return r->cpu_layer_s + r->cpu_layer_fixed_s;
}

static double disk_bytes_s(const kin_device_rates *r) {
    return r->facts->no_slices ? 0 : r->facts->disk_bytes_s;
}

static double kept_bytes(const kin_device_rates *r) {
    return fmax(0, r->facts->memory_bytes - r->cpu_buffer_bytes - r->output_bytes);
}

// Returns by how much a share can exceed its weight: half a piece.
static double rounding(const kin_model_facts *m) {
    double attn = attn_bytes_share(m);
    return (attn / m->share_heads + (1 - attn) / m->share_ff) / 2;
}

// Returns the share of the whole model that takes the device this long, computing or reading. Without a disk the dealt share must
// fit.
static double share_in(const kin_model_facts *m, const kin_device_rates *r, double seconds) {
    double bytes = r->n_layer * (r->layer_bytes + r->expert_bytes + r->kv_bytes), disk = disk_bytes_s(r);
    double has = (kept_bytes(r) + seconds * disk) / bytes - (disk > 0 ? 0 : rounding(m));
    return fmin(seconds / (r->n_layer * layer_s(r)), fmax(0, has));
}

// Returns the time in which all members together do the whole model. If some have no disk and the rest is slow, it is only an
// approximation.
static double balanced_s(const kin_model_facts *m, const kin_device_rates *rates, const kin_group *g) {
    enum { STEPS = 60 };
    double low = 0, high = 0;
    for (int i = 0; i < g->n; i++) {
        const kin_device_rates *r = &rates[g->devices[i]];
        double read_s = disk_bytes_s(r) > 0 ? r->n_layer * (r->layer_bytes + r->expert_bytes) / disk_bytes_s(r) : 0;
        high = fmax(high, fmax(r->n_layer * layer_s(r), read_s));
    }
    for (int step = 0; step < STEPS; step++) {
        double middle = low + (high - low) / 2, sum = 0;
        for (int i = 0; i < g->n; i++) sum += share_in(m, &rates[g->devices[i]], middle);
        *(sum < 1 ? &low : &high) = middle;
    }
    return high;
}

static void set_weights(const kin_model_facts *m, const kin_device_rates *rates, kin_group_shares by, kin_group *g) {
    double seconds = by == KIN_SHARES_BY_DISK ? balanced_s(m, rates, g) : 0;
    for (int i = 0; i < g->n; i++) {
        const kin_device_rates *r = &rates[g->devices[i]];
        if (by == KIN_SHARES_BY_SPEED) g->weights[i] = 1 / layer_s(r);
        if (by == KIN_SHARES_BY_MEMORY) g->weights[i] = fmax(1, kept_bytes(r));
        if (by == KIN_SHARES_BY_DISK) g->weights[i] = fmax(1e-6, share_in(m, r, seconds));
    }
}

void kin_group_of(const kin_facts *facts, const kin_device_rates *rates, kin_device_set members, kin_group_shares by,
                  kin_group *g) {
    g->n = 0;
    for (int i = 1; i <= facts->n_device; i++) {
        int device = i % facts->n_device, at = g->n;
        if (!(members & kin_device_bit(device)) || g->n == KIN_GROUP_MAX) continue;
        for (; device > 0 && at > 0 && strcmp(facts->devices[g->devices[at - 1]].name, facts->devices[device].name) > 0; at--)
            g->devices[at] = g->devices[at - 1];
        g->devices[at] = device;
        g->n++;
    }
    set_weights(&facts->model, rates, by, g);
}

bool kin_group_is_same(const kin_facts *facts, const kin_group *a, const kin_group *b) {
    int heads[2][KIN_GROUP_MAX], ff[2][KIN_GROUP_MAX];
    const kin_model_facts *m = &facts->model;
    if (a->n != b->n || m->share_heads < a->n || m->share_ff < a->n) return false;
    for (int k = 0; k < 2; k++) {
        kin_deal((int)m->share_heads, (k ? b : a)->weights, a->n, heads[k]);
        kin_deal((int)m->share_ff, (k ? b : a)->weights, a->n, ff[k]);
    }
    size_t n = (size_t)a->n;
    return memcmp(a->devices, b->devices, n * sizeof *a->devices) == 0 && memcmp(heads[0], heads[1], n * sizeof(int)) == 0 &&
           memcmp(ff[0], ff[1], n * sizeof(int)) == 0;
}

// ---- times

// Sets the sum from the slowest member's exchange with all others. False if two members do not reach each other.
static bool set_sum(const kin_facts *facts, const kin_group *g, kin_group_time *t) {
    for (int a = 0; a < g->n; a++) {
        double token_s = 0, rtt_s = 0;
        for (int b = 0; b < g->n; b++) {
            const kin_link_facts *link = &facts->links[g->devices[a]][g->devices[b]];
            if (a == b) continue;
            if (!kin_facts_link_usable(link)) return false;
            token_s += facts->model.hidden_bytes / link->bytes_s;
            rtt_s = fmax(rtt_s, link->rtt_s);
        }
        if (rtt_s / 2 + token_s <= t->sum_s + t->sum_token_s) continue;
        t->sum_s = rtt_s / 2;
        t->sum_token_s = token_s;
    }
    double factor = facts->shared[kin_group_last(g)].sums_factor;
    if (factor <= 0) factor = 1;
    t->sum_s = (t->sum_s + SUM_FIXED_S) * factor;
    t->sum_token_s *= factor;
    return true;
}

// Returns attention's fraction of a token's products in a layer: a token reads only some of the experts.
static double attn_time_share(const kin_model_facts *m) {
    double read = kin_facts_bytes_sum(m->layer_bytes) + m->expert_share * kin_facts_bytes_sum(m->expert_bytes);
    return m->attn_bytes > 0 ? m->attn_bytes / read : 0.25;
}

// Limits the layers by the member's memory and disk. *most_s, *sum_s: maximum and sum of the members' reading times for the whole
// model.
static void add_memory(const kin_facts *facts, const kin_device_rates *r, int device, double heads, double ff, kin_group_time *t,
                       double *most_s, double *sum_s) {
    kin_member_rates m;
    kin_member_rates_init(&m, facts, device, heads, ff);
    int n_layer = facts->model.n_layer;
    double room = r->facts->memory_bytes - r->cpu_buffer_bytes, layer = m.layer_bytes + m.expert_bytes + m.kv_bytes;
    double kept = (room - m.output_bytes) / layer, streaming = 0;
    if (m.disk_bytes_s > 0 && room >= m.ring_bytes) streaming = m.kv_bytes > 0 ? (room - m.ring_bytes) / m.kv_bytes : INFINITY;
    t->layers_kept = fmin(t->layers_kept, kept);
    t->layers_max = fmin(t->layers_max, fmax(kept, streaming));
    double read_s = fmax(0, n_layer * layer + m.output_bytes - room) / m.disk_bytes_s;
    if (!(read_s > 0) || !isfinite(read_s)) return;
    *most_s = fmax(*most_s, read_s);
    *sum_s += read_s;
}

int kin_group_time_of(const kin_facts *facts, const kin_device_rates *rates, const kin_group *g, kin_group_time *t,
                      kin_err *err) {
    const kin_model_facts *m = &facts->model;
    int heads[KIN_GROUP_MAX], ff[KIN_GROUP_MAX];
    double attn_s = 0, ff_s = 0, share = attn_time_share(m), most_s = 0, sum_s = 0;
    *t = (kin_group_time){.layers_kept = INFINITY, .layers_max = INFINITY};
    if (g->n < 2) return kin_err_set(err, "there is no other device to share layers with");
    if (m->share_heads < g->n || m->share_ff < g->n)
        return kin_err_set(err, "the model's layers do not divide into that many shares");
    if (!set_sum(facts, g, t)) return kin_err_set(err, "some of these devices cannot reach each other");
    kin_deal((int)m->share_heads, g->weights, g->n, heads);
    kin_deal((int)m->share_ff, g->weights, g->n, ff);
    for (int i = 0; i < g->n; i++) {
        const kin_device_rates *r = &rates[g->devices[i]];
        double h = heads[i] / m->share_heads, f = ff[i] / m->share_ff;
        double ops_s = m->layer_ops * r->facts->cpu.op_s, cache_s = r->cpu_layer_fixed_s - ops_s;
        double own_attn_s = r->cpu_layer_s * share * h + cache_s * h, own_ff_s = r->cpu_layer_s * (1 - share) * f;
        add_memory(facts, r, g->devices[i], h, f, t, &most_s, &sum_s);
        t->apart_s += own_attn_s + own_ff_s + (h + f) / 2 * ops_s;
        attn_s = fmax(attn_s, own_attn_s + ops_s / 2);
        ff_s = fmax(ff_s, own_ff_s + ops_s / 2);
    }
    t->layer_s = attn_s + ff_s;
    t->reads_s = (sum_s - most_s) / m->n_layer;
    if (!isfinite(t->layer_s + t->apart_s)) return kin_err_set(err, "one of these devices was not measured");
    return t->layers_max >= 1 ? 0
                              : kin_err_set(err, "a share of the layers does not fit into the memory of one of these devices");
}

// ---- as one device

static kin_link_facts one_after_the_other(const kin_link_facts *a, const kin_link_facts *b) {
    if (!kin_facts_link_usable(a) || !kin_facts_link_usable(b)) return (kin_link_facts){0};
    return (kin_link_facts){a->rtt_s + b->rtt_s, 1 / (1 / a->bytes_s + 1 / b->bytes_s)};
}

// A step for the group is sent to its first device; its last device sends it on.
static void put_links(const kin_facts *facts, const kin_group *g, kin_facts *out) {
    int first = g->devices[0], last = kin_group_last(g);
    for (int from = 0; from < out->n_device; from++) {
        kin_link_facts link = out->links[from][first];
        for (int i = 1; i < g->n; i++) link = one_after_the_other(&link, &facts->links[g->devices[i - 1]][g->devices[i]]);
        out->links[from][last] = link;
    }
    for (int i = 0; i < g->n - 1; i++) {
        for (int k = 0; k < out->n_device; k++) out->links[g->devices[i]][k] = out->links[k][g->devices[i]] = (kin_link_facts){0};
    }
}

static void put_name(const kin_facts *facts, const kin_group *g, char *name) {
    size_t n = 0;
    for (int i = 0; i < g->n && n < KIN_FACTS_MAX_NAME; i++) {
        int added = snprintf(name + n, KIN_FACTS_MAX_NAME - n, "%s%s", i > 0 ? " + " : "", facts->devices[g->devices[i]].name);
        n += added > 0 ? (size_t)added : 0;
    }
}

static void put_shares(const kin_model_facts *m, const kin_group *g, kin_shared_facts *shared) {
    int heads[KIN_GROUP_MAX], ff[KIN_GROUP_MAX];
    kin_deal((int)m->share_heads, g->weights, g->n, heads);
    kin_deal((int)m->share_ff, g->weights, g->n, ff);
    shared->n_members = g->n;
    for (int i = 0; i < g->n; i++) {
        shared->members[i].device = g->devices[i];
        shared->members[i].heads = heads[i] / m->share_heads;
        shared->members[i].ff = ff[i] / m->share_ff;
    }
}

void kin_group_put(const kin_facts *facts, const kin_device_rates *rates, const kin_group *g, const kin_group_time *t,
                   kin_facts *out) {
    int last = kin_group_last(g);
    const kin_device_rates *r = &rates[last];
    kin_device_facts *d = &out->devices[last];
    put_links(facts, g, out);
    put_name(facts, g, d->name);
    d->has_gpu = d->uma = false;
    kin_shared_facts *shared = &out->shared[last];
    put_shares(&facts->model, g, shared);
    shared->time = t->layer_s / layer_s(r);
    shared->sum_s = t->sum_s;
    shared->sum_token_s = t->sum_token_s;
}

int kin_grouping_apply(const kin_facts *facts, const kin_grouping *grouping, kin_facts *out, kin_err *err) {
    kin_device_rates rates[KIN_FACTS_MAX_DEVICES];
    *out = *facts;
    for (int i = 0; i < grouping->n; i++) {
        const kin_group *g = &grouping->groups[i];
        kin_group_time t;
        kin_group_rates(facts, kin_group_members(g), rates);
        if (kin_group_time_of(facts, rates, g, &t, err) != 0) return KIN_FAIL;
        kin_group_put(facts, rates, g, &t, out);
    }
    return 0;
}
