#include "pure/plan/loss.h"

#include <math.h>

#include "pure/plan/device_time.h"
#include "pure/plan/prompt.h"

// The device of a layer, its window, and the engine that computes its attention there.
typedef struct place {
    int device;
    kin_window window;
    bool on_gpu;
} place;

typedef struct places {
    place before[KIN_FACTS_MAX_LAYERS], after[KIN_FACTS_MAX_LAYERS]; // [n_layer]
} places;

static void find_places(const kin_plan *plan, int n_device, place at[KIN_FACTS_MAX_LAYERS]) {
    kin_windows windows;
    for (int d = 0; d < n_device; d++) {
        kin_plan_windows(plan, d, &windows);
        for (int i = 0; i < windows.n; i++) {
            const kin_window *w = &windows.at[i];
            for (int il = w->layer_begin; il < w->layer_end; il++) at[il] = (place){d, *w, il >= kin_window_gpu_begin(w)};
        }
    }
}

static bool keeps_pages(const kin_facts *facts, int device) {
    return !kin_os_is_browser(facts->devices[device].os);
}

// Pages of a GPU differ in their bits from those of a CPU, so only the same kind of engine finds them. but: the device whose
// layers need no pages, or -1.
static bool all_keep_pages(const kin_facts *facts, const places *p, int but) {
    for (int il = 0; il < facts->model.n_layer; il++) {
        const place *before = &p->before[il], *after = &p->after[il];
        if (before->device == but && keeps_pages(facts, after->device)) continue;
        if (before->on_gpu != after->on_gpu) return false;
        if (!keeps_pages(facts, before->device) || !keeps_pages(facts, after->device)) return false;
    }
    return true;
}

static int replica_of(const kin_facts *facts, const kin_plan *plan, int device) {
    bool is_behind = false;
    for (int s = 1; s < plan->n_stops; s++) {
        int d = plan->stops[s].device;
        if (plan->stops[s].relay) continue;
        if (is_behind && keeps_pages(facts, d)) return d;
        is_behind = is_behind || d == device;
    }
    return 0;
}

static double weights_of(const kin_facts *facts, int il) {
    return facts->model.layer_share[il] * kin_facts_layer_bytes(&facts->model);
}

// Adds the times of the weights that each device lacks: from its disk, and over the head's links. False if the rate of a disk is
// not known.
static bool add_weights(const kin_facts *facts, const places *p, kin_loss *out) {
    double sum = 0, best_rate = 0, bytes[KIN_FACTS_MAX_DEVICES] = {0};
    for (int il = 0; il < facts->model.n_layer; il++) {
        if (p->after[il].device != p->before[il].device) bytes[p->after[il].device] += weights_of(facts, il);
    }
    for (int d = 0; d < facts->n_device; d++) {
        const kin_link_facts *link = &facts->links[0][d];
        double disk = facts->devices[d].disk_bytes_s;
        if (bytes[d] == 0) continue;
        if (disk <= 0) return false;
        out->load_s = fmax(out->load_s, bytes[d] / disk);
        if (d == 0 || !kin_facts_link_usable(link)) continue; // the head has the file; unreachable ones fetch from others
        sum += bytes[d];
        best_rate = fmax(best_rate, link->bytes_s);
        out->fetch_s = fmax(out->fetch_s, bytes[d] / link->bytes_s);
    }
    if (sum > 0) out->fetch_s = fmax(out->fetch_s, sum / best_rate);
    return true;
}

static double hops_of(const kin_facts *facts, const kin_plan *plan) {
    double s = 0;
    for (int i = 0; i < plan->n_stops && plan->n_stops > 1; i++)
        s += facts->links[plan->stops[i].device][plan->stops[(i + 1) % plan->n_stops].device].rtt_s / 2;
    return s;
}

// Returns the number of tokens whose keys and values, or states, are stored.
static int count_stored(const kin_facts *facts) {
    int n_cached = facts->work.n_cached, gap = facts->model.checkpoint_gap, n_behind = 0;
    if (gap > 0) n_behind = n_cached % gap < KIN_LOSS_REPLY_TOKENS ? n_cached % gap : KIN_LOSS_REPLY_TOKENS;
    return (n_cached - n_behind) / KIN_LOSS_PAGE_TOKENS * KIN_LOSS_PAGE_TOKENS;
}

static int count_requests(int n_pages) {
    int n = 0;
    for (int i = 0; i < n_pages; n++)
        i += i == 0 ? KIN_LOSS_FIRST_PAGES : 2 * i < KIN_LOSS_REQUEST_PAGES ? 2 * i : KIN_LOSS_REQUEST_PAGES;
    return n;
}

// Computes the time to get a sequence's n_pages pages of all layers that moved; replica -1: without those of the lost device.
// False if a device cannot get some of them from their owner.
static bool fetch_pages(const kin_facts *facts, const places *p, const kin_plan *without, int lost, int replica, int n_pages,
                        double *s) {
    double bytes = n_pages * KIN_LOSS_PAGE_TOKENS * facts->model.kv_bytes + facts->model.checkpoint_bytes / facts->model.n_layer;
    int n_requests = count_requests(n_pages);
    double rtt_s[KIN_FACTS_MAX_DEVICES] = {0};
    *s = n_requests * hops_of(facts, without);
    for (int il = 0; il < facts->model.n_layer; il++) {
        int to = p->after[il].device, from = p->before[il].device == lost ? replica : p->before[il].device;
        if (from < 0) continue;
        if (to != 0) *s += bytes / KIN_LOSS_READ_BYTES_S; // the head reads its own pages at the same time
        if (to == from) continue;
        const kin_link_facts *link = &facts->links[from][to];
        if (!kin_facts_link_usable(link)) return false;
        *s += bytes / link->bytes_s;
        rtt_s[to] = fmax(rtt_s[to], link->rtt_s);
    }
    for (int d = 0; d < facts->n_device; d++) *s += n_requests * rtt_s[d];
    return true;
}

// Returns the time of computing n_pages pages of these layers on a device, one request after the other.
static double compute_layers(const kin_facts *facts, int device, const kin_load *load, int n_pages) {
    int n = KIN_LOSS_PAGE_TOKENS * (n_pages < KIN_LOSS_REQUEST_PAGES ? n_pages : KIN_LOSS_REQUEST_PAGES);
    if (n > facts->work.n_batch) n = facts->work.n_batch;
    kin_device_rates rates;
    kin_device_rates_init(&rates, facts, device, n, n_pages * KIN_LOSS_PAGE_TOKENS / 2, 0);
    kin_device_time t = kin_device_time_of(&rates, load);
    return t.fits ? (t.compute_s + t.experts_s) * n_pages * KIN_LOSS_PAGE_TOKENS / n : INFINITY;
}

// Adds the time of computing the lost device's layers from the states that were passed on to it, one device after the other.
// False if these states are not available.
static bool recompute_lost(const kin_facts *facts, const places *p, int lost, int n_pages, double *s) {
    for (int il = 0, begin; il < facts->model.n_layer;) {
        int to = p->after[il].device;
        kin_load load = {0};
        if (p->before[il].device != lost) {
            il++;
            continue;
        }
        for (begin = il; il < facts->model.n_layer && p->before[il].device == lost && p->after[il].device == to; il++)
            kin_load_add(&load, &facts->model, &p->after[il].window, il);
        int from = begin == 0                            ? 0
                   : p->before[begin - 1].device == lost ? p->after[begin - 1].device
                                                         : p->before[begin - 1].device;
        const kin_link_facts *link = &facts->links[from][to];
        if (!keeps_pages(facts, from) || (from != to && !kin_facts_link_usable(link))) return false;
        if (from != to) *s += n_pages * KIN_LOSS_PAGE_TOKENS * facts->model.hidden_bytes / link->bytes_s;
        *s += compute_layers(facts, to, &load, n_pages);
    }
    return true;
}

static bool has_groups(const kin_facts *facts) {
    bool has = false;
    for (int d = 0; d < facts->n_device; d++) has = has || facts->shared[d].n_members > 0;
    return has;
}

// False if not possible. Devices of a group log nothing. If the lost device had several windows, the later ones need what others
// compute from the earlier ones, so everything is computed.
static bool recompute_layers(const kin_facts *facts, const kin_plan *plan, const kin_plan *without, const places *p, int lost,
                             int n_pages, double *s) {
    if (facts->model.checkpoint_gap > 0 || has_groups(facts) || plan->n_rounds > 1 || without->n_rounds > 1 ||
        !all_keep_pages(facts, p, lost))
        return false;
    if (!fetch_pages(facts, p, without, lost, -1, n_pages, s)) return false;
    *s += hops_of(facts, without);
    return recompute_lost(facts, p, lost, n_pages, s);
}

// Chooses the recovery that kin uses, and returns its time. tail_s: time of the tokens after the pages.
static double choose(const kin_facts *facts, const kin_plan *plan, const kin_plan *without, const places *p, int device,
                     double tail_s, kin_loss *out) {
    int n_stored = count_stored(facts), n_pages = n_stored / KIN_LOSS_PAGE_TOKENS;
    int n_first = n_pages < KIN_LOSS_FIRST_PAGES ? n_pages : KIN_LOSS_FIRST_PAGES;
    double pages_s, layers_s, first_s = 0;
    out->n_computed = facts->work.n_cached;
    if (n_pages == 0) return out->compute_s;
    if (all_keep_pages(facts, p, -1) && fetch_pages(facts, p, without, device, out->replica, n_pages, &pages_s) &&
        fetch_pages(facts, p, without, device, out->replica, n_first, &first_s)) {
        out->pages_s = pages_s + tail_s;
        if (out->pages_s <= out->compute_s) {
            out->recovery = KIN_LOSS_PAGES;
            out->n_computed -= n_stored;
            return out->pages_s;
        }
    }
    int n_left = first_s > 0 ? n_pages - n_first : n_pages;
    if (n_left > 0 && recompute_layers(facts, plan, without, p, device, n_left, &layers_s) && layers_s < INFINITY) {
        out->layers_s = layers_s + tail_s;
        if (out->layers_s <= out->compute_s) {
            out->recovery = KIN_LOSS_LAYERS;
            out->n_computed -= n_stored;
            return first_s + out->layers_s;
        }
    }
    if (first_s > 0) out->n_computed -= n_first * KIN_LOSS_PAGE_TOKENS;
    return first_s + out->compute_s;
}

int kin_loss_predict(const kin_facts *facts, const kin_plan *plan, const kin_plan *without, int device, kin_loss *out,
                     kin_err *err) {
    int n_cached = facts->work.n_cached, n_tail = n_cached - count_stored(facts);
    double tail_s;
    places p;
    kin_assert(device > 0 && device < facts->n_device);
    *out = (kin_loss){.recovery = KIN_LOSS_COMPUTED};
    if (kin_plan_check(plan, facts, err) != 0 || kin_plan_check(without, facts, err) != 0) return KIN_FAIL;
    if (without->shares[device].n_layer > 0)
        return kin_err_set(err, "the plan without '%s' assigns layers to it", facts->devices[device].name);
    find_places(plan, facts->n_device, p.before);
    find_places(without, facts->n_device, p.after);
    if (kin_prompt_predict_behind(facts, without, n_cached + 1, 0, &out->compute_s, err) != 0) return KIN_FAIL;
    if (kin_prompt_predict_behind(facts, without, n_tail + 1, n_cached - n_tail, &tail_s, err) != 0) return KIN_FAIL;
    out->replica = replica_of(facts, plan, device);
    if (!add_weights(facts, &p, out)) return kin_err_set(err, "the rate of a disk is unknown");
    out->pause_s = KIN_LOSS_SWITCH_S + out->load_s + choose(facts, plan, without, &p, device, tail_s, out);
    return 0;
}
