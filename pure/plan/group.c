#include "pure/plan/group.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pure/plan/deal.h"
#include "pure/plan/device_time.h"

// What a sum costs beside the wire: encrypting, system calls, adding. bench/sum.c on undisturbed processors: 19, 30 and 47 us for
// two devices and 2048, 4096 and 8192 values. The links' round trips have a thread's waking in them already.
static const double SUM_FIXED_S = 20e-6;

static void refuse(kin_group_plan *g, const char *reason) {
    *g = (kin_group_plan){0};
    snprintf(g->reason, sizeof g->reason, "%s", reason);
}

// By name, so that each has the rank, and the slices, that it had before the head started anew; the head last.
static void list_members(const kin_facts *facts, kin_device_set members, kin_group_plan *g) {
    for (int i = 1; i <= facts->n_device; i++) {
        int device = i % facts->n_device, at = g->n;
        if (!(members & kin_device_bit(device)) || g->n == KIN_GROUP_MAX) continue;
        for (; device > 0 && at > 0 && strcmp(facts->devices[g->devices[at - 1]].name, facts->devices[device].name) > 0; at--)
            g->devices[at] = g->devices[at - 1];
        g->devices[at] = device;
        g->n++;
    }
}

// The longest exchange of one with all others, of one hidden state.
static double sum_s(const kin_facts *facts, const kin_group_plan *g) {
    double longest_s = 0;
    for (int a = 0; a < g->n; a++) {
        double send_s = 0, rtt_s = 0;
        for (int b = 0; b < g->n; b++) {
            const kin_link_facts *link = &facts->links[g->devices[a]][g->devices[b]];
            if (a == b) continue;
            if (!kin_facts_link_usable(link)) return INFINITY;
            send_s += facts->model.hidden_bytes / link->bytes_s;
            rtt_s = fmax(rtt_s, link->rtt_s);
        }
        longest_s = fmax(longest_s, rtt_s / 2 + send_s);
    }
    return longest_s + SUM_FIXED_S;
}

// A step from the head through all members and back.
static double hops_s(const kin_facts *facts, const kin_group_plan *g) {
    double sum = 0;
    for (int i = 0; i < g->n; i++) {
        const kin_link_facts *link = &facts->links[g->devices[(i + g->n - 1) % g->n]][g->devices[i]];
        sum += link->rtt_s / 2 + facts->model.hidden_bytes / link->bytes_s;
    }
    return sum;
}

static double attn_share(const kin_model_facts *m) {
    return m->attn_bytes > 0 ? m->attn_bytes / kin_facts_layer_bytes(m) : 0.25;
}

// Of a token's products in a layer: a token reads a part of the experts only.
static double attn_time_share(const kin_model_facts *m) {
    double read = kin_facts_bytes_sum(m->layer_bytes) + m->expert_share * kin_facts_bytes_sum(m->expert_bytes);
    return m->attn_bytes > 0 ? m->attn_bytes / read : 0.25;
}

static bool fits(const kin_facts *facts, const kin_device_rates *r, double heads, double ff) {
    const kin_model_facts *m = &facts->model;
    double share = attn_share(m), layer = kin_facts_layer_bytes(m) * (share * heads + (1 - share) * ff);
    double need = m->n_layer * (layer + heads * r->kv_bytes) + r->cpu_buffer_bytes + (r->with_output ? r->output_bytes : 0);
    return need <= r->facts->memory_bytes;
}

void kin_group_time(const kin_facts *facts, kin_group_plan *g) {
    const kin_model_facts *m = &facts->model;
    kin_device_rates rates[KIN_GROUP_MAX];
    int heads[KIN_GROUP_MAX], ff[KIN_GROUP_MAX];
    double attn_s = 0, ff_s = 0, share = attn_time_share(m);
    if (g->n < 2) return refuse(g, "there is nobody to share layers with");
    if (m->share_heads < g->n || m->share_ff < g->n) return refuse(g, "the model's layers cannot be cut into so many shares");
    kin_deal(m->share_heads, g->weights, g->n, heads);
    kin_deal(m->share_ff, g->weights, g->n, ff);
    for (int i = 0; i < g->n; i++) {
        kin_device_rates *r = &rates[i];
        kin_device_rates_init(r, facts, g->devices[i], 1, facts->work.n_cached, 1);
        double h = (double)heads[i] / m->share_heads, f = (double)ff[i] / m->share_ff;
        double ops_s = m->layer_ops * r->facts->cpu.op_s, cache_s = r->cpu_layer_fixed_s - ops_s;
        if (!fits(facts, r, h, f)) return refuse(g, "a share of the layers does not fit into the memory of each device");
        attn_s = fmax(attn_s, r->cpu_layer_s * share * h + cache_s * h + ops_s / 2);
        ff_s = fmax(ff_s, r->cpu_layer_s * (1 - share) * f + ops_s / 2);
    }
    g->sum_s = sum_s(facts, g);
    if (!isfinite(g->sum_s)) return refuse(g, "not all of these devices reach each other");
    g->sums_s = 2 * m->n_layer * g->sum_s;
    g->hops_s = hops_s(facts, g);
    g->compute_s = m->n_layer * (attn_s + ff_s) + rates[g->n - 1].output_s;
    g->tpot_s = g->compute_s + g->sums_s + g->hops_s + rates[g->n - 1].window_s;
}

void kin_group_predict(const kin_facts *facts, kin_device_set members, kin_group_plan *g) {
    *g = (kin_group_plan){0};
    list_members(facts, members, g);
    for (int i = 0; i < g->n; i++) {
        kin_device_rates r;
        kin_device_rates_init(&r, facts, g->devices[i], 1, facts->work.n_cached, 1);
        g->weights[i] = 1 / (r.cpu_layer_s + r.cpu_layer_fixed_s);
    }
    kin_group_time(facts, g);
}

// ---- the best one

static void keep_better(const kin_facts *facts, kin_device_set members, kin_group_plan *best) {
    kin_group_plan g;
    kin_group_predict(facts, members, &g);
    if (g.n > 0 ? best->n == 0 || g.tpot_s < best->tpot_s : best->n == 0) *best = g;
}

// Devices but the head, the one with the fastest layers first.
static int by_speed(const kin_facts *facts, kin_device_set among, int *order) {
    double layer_s[KIN_FACTS_MAX_DEVICES];
    int n = 0;
    for (int i = 1; i < facts->n_device; i++) {
        kin_device_rates r;
        if (!(among & kin_device_bit(i))) continue;
        kin_device_rates_init(&r, facts, i, 1, facts->work.n_cached, 1);
        int at = n++;
        for (; at > 0 && layer_s[at - 1] > r.cpu_layer_s; at--) {
            layer_s[at] = layer_s[at - 1];
            order[at] = order[at - 1];
        }
        layer_s[at] = r.cpu_layer_s;
        order[at] = i;
    }
    return n;
}

// A tab computes whole layers only.
static kin_device_set browsers(const kin_facts *facts) {
    kin_device_set set = 0;
    for (int i = 0; i < facts->n_device; i++) {
        if (facts->devices[i].os == KIN_OS_BROWSER) set |= kin_device_bit(i);
    }
    return set;
}

void kin_group_best(const kin_facts *facts, kin_device_set leave_out, kin_group_plan *best) {
    kin_device_set usable;
    kin_err err;
    int order[KIN_FACTS_MAX_DEVICES];
    refuse(best, "there is nobody to share layers with");
    if (kin_facts_screen(facts, &usable, NULL, &err) != 0) return refuse(best, "the facts of the head cannot be");
    int n = by_speed(facts, usable & ~leave_out & ~browsers(facts), order);
    if (n > KIN_GROUP_EXACT) {
        kin_device_set members = kin_device_bit(0);
        for (int i = 0; i < n && i < KIN_GROUP_MAX - 1; i++) keep_better(facts, members |= kin_device_bit(order[i]), best);
        return;
    }
    for (uint32_t set = 1; set < UINT32_C(1) << n; set++) {
        kin_device_set members = kin_device_bit(0);
        int count = 0;
        for (int i = 0; i < n; i++) {
            if (set >> i & 1) members |= kin_device_bit(order[i]), count++;
        }
        if (count < KIN_GROUP_MAX) keep_better(facts, members, best);
    }
}

void kin_group_say(const kin_facts *facts, const kin_group_plan *g, double ring_s, double ring_compute_s, char *buf, size_t n) {
    if (g->n == 0) {
        snprintf(buf, n, "no group: %s", g->reason);
        return;
    }
    double gain_s = ring_compute_s - g->compute_s;
    snprintf(buf, n,
             "%s: %d devices that share each layer: 2 x %d sums of %.2f ms cost %.1f ms, sharing the layers %s %.1f ms: %.1f ms "
             "a token, the ring %.1f ms",
             g->tpot_s < ring_s ? "a group is faster" : "no group", g->n, facts->model.n_layer, g->sum_s * 1e3, g->sums_s * 1e3,
             gain_s >= 0 ? "gains" : "loses", fabs(gain_s) * 1e3, g->tpot_s * 1e3, ring_s * 1e3);
}
