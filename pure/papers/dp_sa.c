// The thesis's scheduler (chapter 5): dynamic programming over one range of layers per device in a given order of devices, and a
// search over orders.
//
//     dp[i][j] = min over x of dp[x][j - 1] + C(w_j, x, i)         layers [0, i) on the first j devices of the order
//     C = overhead + computing + 500 us + ping + both transfers    infinite if [x, i) does not fit into memory
//
// Every device talks to the head only, so each hop goes there and back; nothing is streamed, and there is one round. Orders: all
// of them for few devices, simulated annealing for more, random ones beyond. Differences from the thesis: the head is always
// first, a fixed number of random orders replaces 100 ms of searching, and downloads (C_init) are not counted, because facts do
// not say which device has which weights.
#include <math.h>
#include <stdlib.h>

#include <string.h>

#include "base/rng.h"
#include "pure/plan/device_time.h"
#include "pure/plan/hops.h"
#include "pure/plan/scheduler.h"

enum {
    MAX_DEVICES = KIN_FACTS_MAX_DEVICES,
    EXHAUSTIVE_DEVICES = 8, // fewer devices than this, and n^2 m below EXHAUSTIVE_SIZE
    EXHAUSTIVE_SIZE = 20000,
    ANNEALED_SIZE = 50000,
    ANNEAL_STEPS = 1000,
    ANNEAL_IDLE_STEPS = 200,
    WARM_UP_STEPS = 10,
};
static const double DEVICE_OVERHEAD_S = 500e-6;
static const double COLD_S = 10000e-6;
static const double UNCOVERED_S = 1e6; // cost of each layer that no device can hold: worse than any time

typedef struct part {
    double cost_s; // INFINITY: does not fit
    int n_gpu;
} part;

typedef struct solver {
    int n_layer, n_device;
    part *parts;  // [device][begin][end]
    double *best; // dp, [n_device + 1][n_layer + 1]
    int *begin;   // [n_device + 1][n_layer + 1] beginning of the last range
    int order[MAX_DEVICES];
    double order_s;
    kin_rng rng;
} solver;

// ---- costs

static part *part_of(const solver *s, int device, int begin, int end) {
    size_t row = (size_t)s->n_layer + 1;
    return &s->parts[((size_t)device * row + (size_t)begin) * row + (size_t)end];
}

// Returns INFINITY unless all weights are resident. The output on the head's CPU is not counted, since every plan has it. Where
// the head's GPU has all layers it has the output, too: then the cost differs by what that takes more or less.
// size, kv: sums of the layers' shares.
static double cost_of(const kin_device_rates *rates, double network_s, int n, double size, double kv, int n_gpu) {
    const double on_cpu = (double)(n - n_gpu) / n;
    kin_load load = {.n_cpu = n - n_gpu, .n_gpu = n_gpu, .size_cpu = size * on_cpu, .kv_cpu = kv * on_cpu};
    load.size_gpu = size - load.size_cpu;
    kin_device_time t = kin_device_time_of(rates, &load);
    if (!t.fits || t.streamed_bytes > 0 || t.experts_s > 0) return INFINITY;
    return t.compute_s - rates->output_s + kin_device_windows_s(rates, n, n_gpu, 1) + DEVICE_OVERHEAD_S + network_s;
}

// Without layers a worker takes no part, but the head keeps its output in memory.
static double cost_of_none(const kin_device_rates *rates, int device) {
    kin_load load = {0};
    kin_device_time t = kin_device_time_of(rates, &load);
    return device > 0 || (t.fits && t.streamed_bytes == 0) ? 0 : INFINITY;
}

static void fill_parts(solver *s, const kin_facts *facts, int device) {
    kin_device_rates rates;
    const kin_link_facts *link = &facts->links[0][device];
    kin_device_rates_init(&rates, facts, device, 1, facts->work.n_cached, 1);
    double network_s = device == 0                   ? 0
                       : kin_facts_link_usable(link) ? link->rtt_s + 2 * facts->model.hidden_bytes / link->bytes_s
                                                     : INFINITY;
    int n_gpu_max = kin_device_gpu_layers_max(&rates, s->n_layer);
    for (int begin = 0; begin <= s->n_layer; begin++) {
        double size = 0, kv = 0;
        *part_of(s, device, begin, begin) = (part){cost_of_none(&rates, device), 0};
        for (int end = begin + 1; end <= s->n_layer; end++) {
            int n = end - begin, n_gpu = n < n_gpu_max ? n : n_gpu_max;
            size += facts->model.layer_share[end - 1];
            kv += facts->model.kv_share[end - 1];
            double with_s = cost_of(&rates, network_s, n, size, kv, n_gpu),
                   without_s = cost_of(&rates, network_s, n, size, kv, 0);
            *part_of(s, device, begin, end) = with_s < without_s ? (part){with_s, n_gpu} : (part){without_s, 0};
        }
    }
}

// ---- Algorithm 5.1

static double order_cost(solver *s, const int *order) {
    int n = s->n_layer;
    size_t row = (size_t)n + 1;
    for (int i = 0; i <= n; i++) s->best[i] = i == 0 ? 0 : INFINITY;
    for (int j = 1; j <= s->n_device; j++) {
        const double *before = s->best + (size_t)(j - 1) * row;
        double *now = s->best + (size_t)j * row;
        for (int i = 0; i <= n; i++) {
            now[i] = INFINITY;
            s->begin[(size_t)j * row + (size_t)i] = i;
            for (int x = i; x >= 0; x--) {
                double cost_s = part_of(s, order[j - 1], x, i)->cost_s;
                if (cost_s == INFINITY && j > 1) break; // a longer range fits no better, but all layers on the head's GPU may
                if (!(before[x] + cost_s < now[i])) continue;
                now[i] = before[x] + cost_s;
                s->begin[(size_t)j * row + (size_t)i] = x;
            }
        }
    }
    const double *last = s->best + (size_t)s->n_device * row;
    int covered = n;
    while (covered > 0 && last[covered] == INFINITY) covered--;
    return last[covered] + (n - covered) * UNCOVERED_S;
}

static void keep_if_better(solver *s, const int *order, double cost_s) {
    if (!(cost_s < s->order_s)) return;
    s->order_s = cost_s;
    memcpy(s->order, order, sizeof s->order);
}

// ---- orders; the head stays first

static int random_below(solver *s, int n) {
    return (int)(kin_rng_unit(&s->rng) * n);
}

static void swap(int *order, int a, int b) {
    int device = order[a];
    order[a] = order[b], order[b] = device;
}

static void try_all(solver *s, int *order, int from) {
    if (from >= s->n_device) {
        keep_if_better(s, order, order_cost(s, order));
        return;
    }
    for (int i = from; i < s->n_device; i++) {
        swap(order, from, i);
        try_all(s, order, from + 1);
        swap(order, from, i);
    }
}

static void reverse(int *order, int begin, int end) {
    for (end--; begin < end; begin++, end--) swap(order, begin, end);
}

// Changes the order into one of the thesis's neighbours.
static void perturb(solver *s, int *order) {
    int n = s->n_device - 1, what = random_below(s, 10); // order[1 .. n]
    int a = 1 + random_below(s, n), b = 1 + random_below(s, n);
    if (what < 2) { // swap two ranges of equal length that do not overlap
        int low = a < b ? a : b, high = a < b ? b : a, most = high - low < n + 1 - high ? high - low : n + 1 - high;
        for (int i = 0, len = most > 0 ? 1 + random_below(s, most) : 0; i < len; i++) swap(order, low + i, high + i);
    } else if (what < 4) {
        reverse(order, a < b ? a : b, (a < b ? b : a) + 1);
    } else if (what < 6) {
        swap(order, random_below(s, 2) ? 1 : n, a);
    } else {
        swap(order, a, b);
    }
}

static void anneal(solver *s, int *order) {
    double now_s = order_cost(s, order), sum_s = 0;
    keep_if_better(s, order, now_s);
    for (int i = 0; i < WARM_UP_STEPS; i++) {
        perturb(s, order);
        double next_s = order_cost(s, order);
        keep_if_better(s, order, next_s);
        sum_s += fabs(next_s - now_s);
        now_s = next_s;
    }
    double hot_s = fmax(10 * sum_s / WARM_UP_STEPS, COLD_S), cooling = pow(COLD_S / hot_s, 1.0 / ANNEAL_STEPS);
    for (int step = 0, since = 0; step < ANNEAL_STEPS && since < ANNEAL_IDLE_STEPS; step++, since++, hot_s *= cooling) {
        int next[MAX_DEVICES];
        memcpy(next, order, sizeof next);
        perturb(s, next);
        double next_s = order_cost(s, next);
        if (next_s < s->order_s) since = 0;
        keep_if_better(s, next, next_s);
        if (next_s > now_s && kin_rng_unit(&s->rng) >= exp(-(next_s - now_s) / hot_s)) continue;
        memcpy(order, next, sizeof next);
        now_s = next_s;
    }
}

static void try_random(solver *s, int *order, int n_orders) {
    for (int i = 0; i < n_orders; i++) {
        keep_if_better(s, order, order_cost(s, order));
        for (int at = s->n_device - 1; at > 1; at--) swap(order, at, 1 + random_below(s, at));
    }
}

static void search_orders(solver *s, int *order, kin_dp_orders how, int n_orders) {
    long size = (long)s->n_layer * s->n_layer * s->n_device;
    bool is_by_size = how == KIN_DP_BY_SIZE;
    s->order_s = INFINITY;
    if (is_by_size && s->n_device < EXHAUSTIVE_DEVICES && size < EXHAUSTIVE_SIZE)
        try_all(s, order, 1);
    else if ((is_by_size ? size < ANNEALED_SIZE : how == KIN_DP_ANNEALED) && s->n_device > 2)
        anneal(s, order);
    else
        try_random(s, order, s->n_device > 2 ? n_orders : 1);
}

// ---- the plan

static int solver_open(solver *s, const kin_facts *facts, kin_err *err) {
    size_t row = (size_t)s->n_layer + 1, table = ((size_t)s->n_device + 1) * row;
    s->parts = malloc((size_t)facts->n_device * row * row * sizeof *s->parts);
    s->best = malloc(table * sizeof *s->best);
    s->begin = malloc(table * sizeof *s->begin);
    return s->parts && s->best && s->begin ? 0 : kin_err_set(err, "plan: out of memory for tables");
}

static void solver_close(solver *s) {
    free(s->parts);
    free(s->best);
    free(s->begin);
}

// Turns the ranges of the last order_cost into shares; sets `members` to the head and the workers in their order.
static void store_ranges(const solver *s, kin_plan *plan, int *members) {
    int end = s->n_layer, n = 0;
    for (int j = s->n_device; j > 0; j--) {
        int device = s->order[j - 1], begin = s->begin[(size_t)j * ((size_t)s->n_layer + 1) + (size_t)end];
        plan->shares[device].n_layer = end - begin;
        plan->shares[device].n_layer_gpu = part_of(s, device, begin, end)->n_gpu;
        end = begin;
    }
    for (int j = 0; j < s->n_device; j++) {
        if (j == 0 || plan->shares[s->order[j]].n_layer > 0) members[n++] = s->order[j];
    }
}

static bool head_holds_output(const solver *s, int head) {
    for (int end = 0; end <= s->n_layer; end++) {
        if (part_of(s, head, 0, end)->cost_s < INFINITY) return true;
    }
    return false;
}

int kin_plan_dp_sa(const kin_facts *facts, const kin_plan_options *options, kin_plan *plan, kin_err *err) {
    kin_device_set usable;
    int order[MAX_DEVICES] = {0}, members[MAX_DEVICES], rc = KIN_FAIL;
    if (kin_plan_scheduler_devices(facts, options, &usable, err) != 0) return KIN_FAIL;
    solver s = {.n_layer = facts->model.n_layer};
    *plan = (kin_plan){.n_rounds = 1};
    for (int i = 0; i < facts->n_device; i++) {
        if (usable & kin_device_bit(i)) order[s.n_device++] = i;
    }
    kin_rng_seed(&s.rng, options->seed);
    if (solver_open(&s, facts, err) != 0) goto done;
    for (int j = 0; j < s.n_device; j++) fill_parts(&s, facts, order[j]);
    if (!head_holds_output(&s, order[0])) {
        kin_err_set(err, "no plan: the head's memory does not hold the output, and this scheduler does not stream");
        goto done;
    }
    search_orders(&s, order, options->dp_orders, options->max_orders);
    if (s.order_s >= UNCOVERED_S) {
        kin_err_set(err, "no plan: the model is larger than the memory of the devices, and this scheduler does not stream");
        goto done;
    }
    order_cost(&s, s.order);
    store_ranges(&s, plan, members);
    rc = kin_plan_scheduler_finish(facts, usable, members, plan, err);
done:
    solver_close(&s);
    return rc;
}
