// The best plan under the timeline model.
//
// For k rounds and a trial period T, a device's cost depends only on its own layers, once choices with a stall longer than T are
// dropped. So dynamic programming over (device, layers) gives
//
//     busy(T) = min over plans with stalls <= T of the sum of busy times
//
// which falls as T grows. The best plan has the smallest max(busy(T), stall); its T is found by bisection between the best known
// plan and the best bound. T moves over finitely many stalls, so the result is exact: no plan has a value below the last one's.
//
// Rounds. Without waits for disks, busy grows with k. As soon as that bound is no better than the best plan, larger k are not
// tried.
//
// Order. The ring's hops do not belong to single devices. kin_hops gives each device a potential such that the sum over members
// never exceeds the cheapest ring through them; with potentials in place of hops, the dynamic program gives a bound. Its workers
// are then placed into their cheapest real ring. If both agree (always if each device has the same cost to and from all others),
// that is the optimum. Otherwise the search branches: one more device is certainly in, or certainly out. After max_nodes it
// stops, and bound_s shows how far it is from proven.
//
// Before branching, the dynamic program runs from both ends. The sums before, of and after a device bound the value of plans
// with it, and without it. That excludes most devices that no good plan uses, and with fewer devices the potentials are tighter.
#include <math.h>
#include <stdlib.h>

#include <string.h>

#include "pure/plan/choices.h"
#include "pure/plan/hops.h"
#include "pure/plan/scheduler.h"

enum { MAX_LAYERS = KIN_FACTS_MAX_LAYERS, MAX_DEVICES = KIN_FACTS_MAX_DEVICES };

static const double SAME = 1e-12; // relative: rounding, not a difference

// Costs of every device, shared by all nodes with the same rounds and period.
typedef struct costs {
    int n_rounds; // 0: not filled yet
    double period_s;
    bool hidden;
    int first[MAX_DEVICES], last[MAX_DEVICES]; // least and most layers that a device can have, besides 0
    double of[MAX_DEVICES][MAX_LAYERS + 1];    // INFINITY: not possible
} costs;

typedef struct solver {
    const kin_facts *facts;
    int n_layer, n_device;
    kin_device_set usable;
    kin_hops hops;
    const kin_choices *choices[MAX_DEVICES];
    costs costs;
    int n_at, at[MAX_DEVICES];                     // devices that the current node does not leave out, the head first
    double before[MAX_DEVICES][MAX_LAYERS + 1];    // least cost of n layers on at[0] to at[j]
    double after[MAX_DEVICES + 1][MAX_LAYERS + 1]; // least cost of n layers on at[j] and those after it
    int n_nodes, n_nodes_max;
    double best_s; // of the plan in `best`
    kin_plan best;
    double open_s; // least bound of the nodes that were given up
} solver;

// A set of plans: these devices must compute, those must not; k rounds.
typedef struct node {
    kin_device_set in, out;
    int n_rounds;
    bool hops_known; // every device is in or out: the ring costs hops_s, and potentials are not needed
    double hops_s;
    double potential[MAX_DEVICES]; // per round
} node;

// ---- costs of devices

static double cheapest_choice(const kin_choices *choices, int n_layer, int n_rounds, double period_s, bool hidden,
                              double *stall_s, kin_layer_share *share) {
    double cheapest = INFINITY;
    for (int i = choices->begin[n_layer]; i < choices->begin[n_layer + 1]; i++) {
        const kin_choice *c = &choices->all[i];
        if (c->stall_s > period_s) continue;
        double cost = hidden ? c->base_s + kin_device_windows_s(&choices->rates, n_layer, c->n_gpu, n_rounds)
                             : kin_choice_s(choices, c, n_layer, n_rounds);
        if (cost >= cheapest) continue;
        cheapest = cost;
        if (stall_s) *stall_s = c->stall_s;
        if (share) *share = (kin_layer_share){n_layer, c->n_gpu, c->n_cpu_moe};
    }
    return cheapest;
}

// hidden: as if no device ever waited for its disk.
static void fill_costs(solver *s, int n_rounds, double period_s, bool hidden) {
    costs *c = &s->costs;
    if (c->n_rounds == n_rounds && c->period_s == period_s && c->hidden == hidden) return;
    c->n_rounds = n_rounds, c->period_s = period_s, c->hidden = hidden;
    for (int i = 0; i < s->n_device; i++) {
        if (!(s->usable & kin_device_bit(i))) continue;
        c->first[i] = s->n_layer + 1, c->last[i] = 0;
        for (int n = 0; n <= s->n_layer; n++) {
            bool possible = n >= n_rounds || (n == 0 && i == 0);
            c->of[i][n] = possible ? cheapest_choice(s->choices[i], n, n_rounds, period_s, hidden, NULL, NULL) : INFINITY;
            if (n == 0 || !isfinite(c->of[i][n])) continue;
            if (n < c->first[i]) c->first[i] = n;
            c->last[i] = n;
        }
    }
}

static double potential_s(const node *node, int device) {
    return node->hops_known ? 0 : node->n_rounds * node->potential[device];
}

// ---- dynamic programming

// Takes from // [n_layer + 1], the least cost of n layers on the devices so far, and writes to // [n_layer + 1], that with this
// device. Sums that reach limit_s are of no use.
static void add_device_choices(const solver *s, const node *node, int device, double limit_s, const double *restrict from,
                               double *restrict to) {
    const double *of = s->costs.of[device];
    int L = s->n_layer, first = s->costs.first[device], last = s->costs.last[device];
    bool in = node->in & kin_device_bit(device);
    double potential = potential_s(node, device);
    for (int n = 0; n <= L; n++) to[n] = in ? INFINITY : from[n];
    for (int n = 0; n <= L - first; n++) {
        double already_s = from[n] + potential;
        if (!(already_s < limit_s)) continue;
        int end = n + last < L ? last : L - n;
        for (int m = first; m <= end; m++) {
            double sum = already_s + of[m];
            to[n + m] = sum < to[n + m] ? sum : to[n + m];
        }
    }
}

// The head's own costs, and its part of the ring if there is one.
static void fill_head(solver *s, const node *node) {
    for (int n = 0; n <= s->n_layer; n++) {
        bool none = n == 0 && (node->in & kin_device_bit(0));
        s->before[0][n] = none ? INFINITY : s->costs.of[0][n];
        if (node->hops_known)
            s->before[0][n] += node->n_rounds * node->hops_s;
        else
            s->before[0][n] += n < s->n_layer ? potential_s(node, 0) : node->n_rounds * s->hops.cost[0][0];
    }
}

// Returns busy(period_s).
static double least_busy(solver *s, const node *node, double period_s, double limit_s, bool hidden) {
    fill_costs(s, node->n_rounds, period_s, hidden);
    s->n_at = 0;
    for (int i = 0; i < s->n_device; i++) {
        if (i == 0 || !(node->out & kin_device_bit(i))) s->at[s->n_at++] = i;
    }
    fill_head(s, node);
    for (int j = 1; j < s->n_at; j++) add_device_choices(s, node, s->at[j], limit_s, s->before[j - 1], s->before[j]);
    return s->before[s->n_at - 1][s->n_layer];
}

// Extracts the plan of the last least_busy. Returns its longest stall.
static double trace(const solver *s, const node *node, double period_s, kin_layer_share *shares) {
    double longest_s = 0;
    int left = s->n_layer;
    memset(shares, 0, MAX_DEVICES * sizeof *shares);
    for (int j = s->n_at - 1; j >= 0; j--) {
        int device = s->at[j], n = j == 0 ? left : 0;
        double least = j == 0 || (node->in & kin_device_bit(device)) ? INFINITY : s->before[j - 1][left];
        for (int m = s->costs.first[device]; j > 0 && m <= left && m <= s->costs.last[device]; m++) {
            double sum = s->before[j - 1][left - m] + potential_s(node, device) + s->costs.of[device][m];
            if (sum < least) least = sum, n = m;
        }
        left -= n;
        if (n == 0 && j > 0) continue;
        double stall_s = 0;
        shares[device].n_layer = n;
        cheapest_choice(s->choices[device], n, node->n_rounds, period_s, false, &stall_s, &shares[device]);
        if (stall_s > longest_s) longest_s = stall_s;
    }
    return longest_s;
}

// ---- one node

typedef struct found {
    double bound_s; // lower bound of the node's plans
    bool is_plan;   // a plan was found that reaches it, if hops cost what the potentials say
    double busy_s, stall_s;
    kin_layer_share shares[MAX_DEVICES];
} found;

// Finds the best plan of a node below s->best_s: by bisection, alternating with tries just below the best plan's own value.
static found solve_node(solver *s, const node *node) {
    found found = {.bound_s = s->best_s};
    double low = 0, high = s->best_s;
    for (bool below = true;; below = !below) {
        double period_s = below ? high * (1 - SAME) : low + (high - low) / 2, stall_s = 0;
        kin_layer_share shares[MAX_DEVICES];
        double busy_s = least_busy(s, node, period_s, high, false);
        bool better = busy_s < high * (1 - SAME);
        if (better) {
            stall_s = trace(s, node, period_s, shares);
            high = fmax(busy_s, stall_s);
            found.is_plan = true;
            found.busy_s = busy_s, found.stall_s = stall_s;
            memcpy(found.shares, shares, sizeof shares);
        }
        if (below && (!better || stall_s <= busy_s)) break;
        if (!below && busy_s > period_s) low = period_s;
        if (!(low < high * (1 - SAME))) break;
    }
    found.bound_s = high;
    return found;
}

// Offers a plan with a real ring; value_s is its period. Keeps it if it is the best. Returns its value.
static double offer(solver *s, const node *node, const found *found, const int *order, int n_order, double value_s) {
    if (!(value_s < s->best_s * (1 - SAME))) return value_s;
    kin_plan plan = {.n_rounds = node->n_rounds, .tpot_s = value_s};
    memcpy(plan.shares, found->shares, sizeof plan.shares);
    if (!kin_hops_lay(&s->hops, order, n_order, &plan)) return INFINITY;
    s->best = plan;
    s->best_s = value_s;
    return value_s;
}

static kin_device_set workers_of(const solver *s, const kin_layer_share *shares) {
    kin_device_set workers = 0;
    for (int i = 0; i < s->n_device; i++) {
        if (shares[i].n_layer > 0) workers |= kin_device_bit(i);
    }
    return workers;
}

// Everything is decided: if the ring is known, the dynamic program is exact with it. If not, the node only has a bound.
static void search_leaf(solver *s, node *node) {
    int order[MAX_DEVICES];
    bool proven;
    node->hops_s = kin_hops_tour(&s->hops, node->in | kin_device_bit(0), order, &proven);
    node->hops_known = isfinite(node->hops_s);
    if (!node->hops_known) return;
    found found = solve_node(s, node);
    if (found.is_plan) offer(s, node, &found, order, __builtin_popcount(node->in | kin_device_bit(0)), found.bound_s);
}

// ---- devices that need no decision

// True if a plan of the node in which at[j] computes can cost less than limit_s.
static bool useful_with(const solver *s, const node *node, int j, double limit_s) {
    int device = s->at[j], L = s->n_layer, first = s->costs.first[device], last = s->costs.last[device];
    const double *of = s->costs.of[device], *before = s->before[j - 1], *after = s->after[j + 1];
    for (int n = 0; n <= L - first; n++) {
        double already_s = before[n] + potential_s(node, device);
        if (!(already_s < limit_s)) continue;
        for (int m = first; m <= last && m <= L - n; m++) {
            if (already_s + of[m] + after[L - n - m] < limit_s) return true;
        }
    }
    return false;
}

// True if one in which it does not compute can.
static bool useful_without(const solver *s, int j, double limit_s) {
    for (int n = 0; n <= s->n_layer; n++) {
        if (s->before[j - 1][n] + s->after[j + 1][s->n_layer - n] < limit_s) return true;
    }
    return false;
}

// Decides on the devices without which, or with which, no plan of the node beats the best one. True if some are now out, so
// potentials can be tighter.
static bool narrow(solver *s, node *node) {
    kin_device_set out = node->out;
    double limit_s = s->best_s * (1 - SAME);
    if (!isfinite(limit_s)) return false;
    least_busy(s, node, limit_s, limit_s, false);
    for (int n = 0; n <= s->n_layer; n++) s->after[s->n_at][n] = n == 0 ? 0 : INFINITY;
    for (int j = s->n_at - 1; j > 1; j--) add_device_choices(s, node, s->at[j], limit_s, s->after[j + 1], s->after[j]);
    for (int j = 1; j < s->n_at; j++) {
        kin_device_set bit = kin_device_bit(s->at[j]);
        if (node->in & bit) continue;
        if (!useful_with(s, node, j, limit_s))
            node->out |= bit;
        else if (!useful_without(s, j, limit_s))
            node->in |= bit;
    }
    if (node->out == out) return false;
    kin_hops_potentials(&s->hops, ~node->out, node->potential);
    return true;
}

// Returns the device to decide on next: one that computes in the relaxed plan, otherwise any. -1: all are decided.
static int undecided(const solver *s, const node *node, kin_device_set workers) {
    kin_device_set open = s->usable & ~node->in & ~node->out & ~kin_device_bit(0);
    if (open & workers) open &= workers;
    return open ? __builtin_ctz(open) : -1;
}

static void search(solver *s, node *node);

// Searches with the device, then without it; the latter has tighter potentials, because they bound fewer rings.
static void search_both(solver *s, const node *parent, int device) {
    node child = *parent;
    child.in |= kin_device_bit(device);
    search(s, &child);
    child = *parent;
    child.out |= kin_device_bit(device);
    kin_hops_potentials(&s->hops, ~child.out, child.potential);
    search(s, &child);
}

// Places the node's relaxed plan into a real ring. Returns false if the node has no better plan than that.
static bool relax(solver *s, const node *node, found *found, bool *ring_proven) {
    int order[MAX_DEVICES];
    *found = solve_node(s, node);
    if (!found->is_plan) return false;
    kin_device_set members = workers_of(s, found->shares) | kin_device_bit(0);
    int n_order = __builtin_popcount(members);
    double ring_s = kin_hops_tour(&s->hops, members, order, ring_proven);
    double potential_sum = n_order == 1 ? s->hops.cost[0][0] : 0;
    for (int i = 0; i < n_order && n_order > 1; i++) potential_sum += node->potential[order[i]];
    double busy_s = found->busy_s + node->n_rounds * (ring_s - potential_sum);
    double value_s = offer(s, node, found, order, n_order, fmax(busy_s, found->stall_s));
    return value_s > found->bound_s * (1 + 1e-9);
}

static void search(solver *s, node *node) {
    found found;
    bool ring_proven;
    do {
        if (!relax(s, node, &found, &ring_proven)) return;
    } while (narrow(s, node));
    int device = undecided(s, node, workers_of(s, found.shares));
    if (++s->n_nodes > s->n_nodes_max || (device < 0 && !ring_proven)) s->open_s = fmin(s->open_s, found.bound_s);
    if (s->n_nodes > s->n_nodes_max) return;
    if (device < 0)
        search_leaf(s, node);
    else
        search_both(s, node, device);
}

// ---- all rounds

static void solve(solver *s, const kin_plan_options *options) {
    kin_device_set all = s->n_device == 32 ? ~(kin_device_set)0 : kin_device_bit(s->n_device) - 1;
    node root = {.in = options->force_in, .out = all & ~s->usable};
    kin_hops_potentials(&s->hops, s->usable, root.potential);
    int first = options->n_rounds > 0 ? options->n_rounds : 1, last = options->n_rounds > 0 ? options->n_rounds : s->n_layer;
    for (root.n_rounds = first; root.n_rounds <= last; root.n_rounds++) {
        double bound_s = least_busy(s, &root, s->best_s, s->best_s, true);
        if (isfinite(s->best_s) && bound_s >= s->best_s * (1 - SAME)) break;
        node node = root;
        search(s, &node);
    }
    s->best.bound_s = fmin(s->best_s, s->open_s);
}

static solver *solver_open(const kin_facts *facts, const kin_plan_options *options, const kin_choices *const *choices,
                           kin_err *err) {
    kin_device_set usable;
    if (kin_plan_scheduler_devices(facts, options, &usable, err) != 0) return NULL;
    if (options->force_in & ~usable) return (void)kin_err_set(err, "plan: a required device cannot compute"), NULL;
    solver *s = calloc(1, sizeof *s);
    if (!s) return (void)kin_err_set(err, "plan: out of memory"), NULL;
    s->facts = facts;
    s->n_layer = facts->model.n_layer;
    s->n_device = facts->n_device;
    s->usable = usable;
    s->n_nodes_max = options->max_nodes;
    s->best_s = options->below_s > 0 ? options->below_s : INFINITY;
    s->open_s = INFINITY;
    kin_hops_init(&s->hops, facts, usable, 1);
    memcpy(s->choices, choices, (size_t)facts->n_device * sizeof *choices);
    return s;
}

int kin_plan_exact_of(const kin_facts *facts, const kin_plan_options *options, const kin_choices *const *choices, kin_plan *plan,
                      kin_err *err) {
    solver *s = solver_open(facts, options, choices, err);
    if (!s) return KIN_FAIL;
    solve(s, options);
    *plan = s->best;
    kin_device_set usable = s->usable;
    free(s);
    if (plan->n_stops == 0)
        return kin_err_set(err, options->below_s > 0
                                    ? "there is no faster plan"
                                    : "no plan: the devices cannot hold the model even with streaming; try a smaller --ctx");
    // Layers differ in size: only the prediction knows which ones each device has.
    if (kin_plan_scheduler_finish(facts, usable, NULL, plan, err) != 0) return KIN_FAIL;
    plan->bound_s = fmin(plan->bound_s, plan->tpot_s);
    return 0;
}

int kin_plan_exact(const kin_facts *facts, const kin_plan_options *options, kin_plan *plan, kin_err *err) {
    kin_choices *all = calloc(MAX_DEVICES, sizeof *all);
    const kin_choices *choices[MAX_DEVICES] = {NULL};
    kin_device_set usable;
    int rc = all ? kin_plan_scheduler_devices(facts, options, &usable, err) : kin_err_set(err, "plan: out of memory");
    for (int i = 0; i < facts->n_device && rc == 0; i++) {
        if (usable & kin_device_bit(i)) rc = kin_choices_init(&all[i], facts, i, err);
        choices[i] = &all[i];
    }
    if (rc == 0) rc = kin_plan_exact_of(facts, options, choices, plan, err);
    for (int i = 0; i < MAX_DEVICES && all; i++) kin_choices_fini(&all[i]);
    free(all);
    return rc;
}
