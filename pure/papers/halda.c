// Halda: Algorithm 1 of prima.cpp's paper, with its device selection (A.7).
//
//   w in proportion to memory, n = 0
//   until the sets M1 to M4 stay the same:
//       sets from w, n, k; coefficients from the sets
//       for each k that divides L: solve the integer program of Eq. (6) to (10); keep the best
//       if a GPU has room while another device is overloaded: force the slowest disk of M1 to M3 into M4, and repeat
//   remove the devices with a window of one layer, and repeat everything without them, until there are none
//
// Where the paper is silent: a program without a solution ends the loop with the previous solution (as in prima.cpp). If there
// was none, the overloaded device with the slowest disk is forced into M4; if there is no such device, the first w is the result.
// Sets can alternate for ever, so the loop is bounded. Eq. (9) allows equality, Eq. (40) does not; here it is allowed.
// halda_cost.h lists what the released prima.cpp does otherwise.
#include <math.h>

#include <string.h>

#include "pure/papers/halda_cost.h"
#include "pure/plan/hops.h"
#include "pure/plan/scheduler.h"

enum { MAX_DEVICES = KIN_FACTS_MAX_DEVICES };
static const double RELEASED_HEAD_PRIORITY = 1.01;

typedef struct windows {
    int w[MAX_DEVICES], n[MAX_DEVICES], k;
} windows;

typedef struct solver {
    const kin_plan_options *options;
    kin_halda_model model;
    kin_halda_set sets[MAX_DEVICES];
    bool forced[MAX_DEVICES]; // into M4
    windows now, best;        // best->k 0: no program had a solution
    double best_s;
} solver;

static bool is_released(const solver *s) {
    return s->options->halda_kind == KIN_HALDA_RELEASED;
}

// ---- lines 1 to 6

// Initial windows in proportion to memory, at least one layer each, L in total: so k = 1.
static void init_windows(solver *s) {
    const kin_halda_model *h = &s->model;
    double memory[MAX_DEVICES];
    for (int i = 0; i < h->n_device; i++) memory[i] = h->devices[i].avail_bytes;
    s->now = (windows){.k = 1};
    kin_plan_scheduler_divide(h->n_layer, memory, h->n_device, s->now.w);
    for (int i = 0; i < h->n_device; i++) {
        int largest = 0;
        for (int j = 1; j < h->n_device; j++) {
            if (s->now.w[j] > s->now.w[largest]) largest = j;
        }
        if (s->now.w[i] == 0) s->now.w[i]++, s->now.w[largest]--;
    }
    for (int i = 0; i < h->n_device && is_released(s); i++) s->now.n[i] = h->devices[i].has_gpu ? s->now.w[i] : 0;
}

// Returns true if a set changed.
static bool assign_sets(solver *s) {
    bool changed = false;
    for (int i = 0; i < s->model.n_device; i++) {
        bool slow = s->forced[i] || s->model.devices[i].disk_bytes_s < s->options->slow_disk_bytes_s;
        kin_halda_set set = kin_halda_set_of(&s->model, i, s->now.w[i], s->now.n[i], s->now.k, slow);
        changed = changed || set != s->sets[i];
        s->sets[i] = set;
    }
    return changed;
}

// ---- lines 9 to 12: the program for one k. Columns: w of each device, then n of each.

static void add_entry(kin_ilp *ilp, int row, int column, double value) {
    ilp->entries[ilp->n_entry].row = row;
    ilp->entries[ilp->n_entry].column = column;
    ilp->entries[ilp->n_entry++].value = value;
}

static void add_row(kin_ilp *ilp, double least, double most) {
    ilp->row_least[ilp->n_row] = least;
    ilp->row_most[ilp->n_row++] = most;
}

// n <= w; memory (Eq. 27 to 32); the GPU's capacity (Eq. 34, 35) is the bound of n.
static void add_device_rows(const solver *s, kin_ilp *ilp, int i, int n_window) {
    const kin_halda_model *h = &s->model;
    int M = h->n_device;
    bool counts_gpu = h->devices[i].os == KIN_OS_MACOS || !h->devices[i].has_gpu; // if so, w counts, else w - n
    double room = n_window * kin_halda_memory_share(h, i);
    add_entry(ilp, ilp->n_row, i, -1);
    add_entry(ilp, ilp->n_row, M + i, 1);
    add_row(ilp, -INFINITY, 0);
    add_entry(ilp, ilp->n_row, i, 1);
    if (!counts_gpu) add_entry(ilp, ilp->n_row, M + i, -1);
    if (s->sets[i] == KIN_HALDA_M4)
        add_row(ilp, -INFINITY, room);
    else
        add_row(ilp, room, INFINITY);
    ilp->least[i] = 1;
    ilp->most[i] = n_window;
    ilp->least[M + i] = 0;
    ilp->most[M + i] = fmin(n_window, floor(n_window * kin_halda_gpu_share(h, i)));
}

static void make_program(const solver *s, int k, kin_ilp *ilp) {
    const kin_halda_model *h = &s->model;
    int n_window = h->n_layer / k;
    ilp->n_column = 2 * h->n_device;
    ilp->n_row = ilp->n_entry = 0;
    for (int i = 0; i < h->n_device; i++) {
        kin_halda_terms t = kin_halda_terms_of(h, i, s->sets[i]);
        ilp->cost[i] = k * t.a_s;
        ilp->cost[h->n_device + i] = k * t.b_s;
        add_entry(ilp, 0, i, 1);
    }
    if (is_released(s)) ilp->cost[0] /= RELEASED_HEAD_PRIORITY;
    add_row(ilp, n_window, n_window);
    for (int i = 0; i < h->n_device; i++) add_device_rows(s, ilp, i, n_window);
}

static double objective_s(const solver *s, const windows *x) {
    double sum = s->model.kappa_s;
    for (int i = 0; i < s->model.n_device; i++) {
        kin_halda_terms t = kin_halda_terms_of(&s->model, i, s->sets[i]);
        sum += x->k * (t.a_s * x->w[i] + t.b_s * x->n[i] + t.c_s) + t.constant_s;
    }
    return sum;
}

// Compares the solutions for all k with the best one. Sets *found if there is any.
static int solve_programs(solver *s, bool *found, kin_err *err) {
    kin_ilp ilp;
    double x[KIN_ILP_MAX_COLUMNS];
    int M = s->model.n_device, L = s->model.n_layer;
    *found = false;
    if (is_released(s)) s->best_s = INFINITY;
    for (int k = 1; k < L || k == 1; k++) {
        if (L % k != 0 || L / k < M || (s->options->n_rounds > 0 && k != s->options->n_rounds)) continue;
        make_program(s, k, &ilp);
        kin_ilp_outcome outcome = s->options->ilp(&ilp, x, err);
        if (outcome == KIN_ILP_FAILED) return KIN_FAIL;
        if (outcome == KIN_ILP_INFEASIBLE) continue;
        windows solution = {.k = k};
        for (int i = 0; i < M; i++) solution.w[i] = (int)lround(x[i]), solution.n[i] = (int)lround(x[M + i]);
        double value_s = objective_s(s, &solution);
        *found = true;
        if (value_s < s->best_s * (1 - 1e-9)) s->best_s = value_s, s->best = solution; // at a tie, fewer rounds win
    }
    return 0;
}

// ---- lines 13 to 15

// True if the GPU has room for one more layer in each round.
static bool has_room_on_gpu(const solver *s, int i) {
    int n_window = s->model.n_layer / s->best.k;
    return s->model.devices[i].has_gpu && s->best.n[i] < (int)floor(n_window * kin_halda_gpu_share(&s->model, i));
}

static bool is_overloaded(const solver *s, int i) {
    const windows *x = &s->best;
    const bool has_gpu = s->model.devices[i].has_gpu;
    if (is_released(s)) return has_gpu ? x->w[i] > x->n[i] : s->sets[i] != KIN_HALDA_M4;
    return (has_gpu && !has_room_on_gpu(s, i) && x->w[i] > x->n[i]) ||
           kin_halda_set_of(&s->model, i, x->w[i], x->n[i], x->k, false) != KIN_HALDA_M4;
}

static bool needs_calibration(const solver *s) {
    bool room = false, overload = false;
    for (int i = 0; i < s->model.n_device; i++) {
        room = room || has_room_on_gpu(s, i);
        overload = overload || is_overloaded(s, i);
    }
    return room && overload;
}

static bool has_weak(const solver *s) {
    for (int i = 0; i < s->model.n_device; i++) {
        if (s->best.w[i] == 1 && s->best.n[i] == 0) return true;
    }
    return false;
}

static bool force_slowest(solver *s) {
    int slowest = -1;
    for (int i = 0; i < s->model.n_device; i++) {
        if (s->sets[i] == KIN_HALDA_M4) continue;
        if (slowest < 0 || s->model.devices[i].disk_bytes_s < s->model.devices[slowest].disk_bytes_s) slowest = i;
    }
    if (slowest >= 0) s->forced[slowest] = true;
    return slowest >= 0;
}

// ---- Algorithm 1

static int allocate(solver *s, kin_err *err) {
    bool found;
    init_windows(s);
    s->best = (windows){0};
    s->best_s = INFINITY;
    memset(s->forced, 0, sizeof s->forced);
    for (int i = 0; i < s->model.n_device; i++) s->sets[i] = (kin_halda_set)-1;
    for (int round = 0; round < 4 * s->model.n_device + 8; round++) {
        if (!assign_sets(s)) break;
        if (solve_programs(s, &found, err) != 0) return KIN_FAIL;
        if (s->best.k == 0 && force_slowest(s)) continue;
        if (!found) break;
        bool may_force = !is_released(s) || !has_weak(s);
        if (may_force && needs_calibration(s) && force_slowest(s)) continue;
        s->now = s->best;
    }
    if (s->best.k > 0) s->now = s->best;
    return 0;
}

// Removes the devices with one layer. Returns true if there were any.
static bool drop_weak(const solver *s, int *members, int *n_members) {
    int n = 1;
    for (int i = 1; i < *n_members; i++) {
        if (s->now.w[i] > 1) members[n++] = members[i];
    }
    bool dropped = n < *n_members;
    *n_members = n;
    return dropped;
}

int kin_plan_halda(const kin_facts *facts, const kin_plan_options *options, kin_plan *plan, kin_err *err) {
    solver s = {.options = options};
    kin_hops hops;
    kin_device_set usable;
    int members[MAX_DEVICES];
    double hop_s[MAX_DEVICES];
    bool proven;
    if (!options->ilp) return kin_err_set(err, "halda: kin was built without the integer program solver HiGHS");
    if (options->n_rounds > 1 && (facts->model.n_layer % options->n_rounds != 0 || options->n_rounds == facts->model.n_layer))
        return kin_err_set(err, "halda: %d layers cannot be divided into %d rounds: it must be a divisor, and a smaller number",
                           facts->model.n_layer, options->n_rounds);
    if (kin_plan_scheduler_devices(facts, options, &usable, err) != 0) return KIN_FAIL;
    kin_hops_init(&hops, facts, usable, 1);
    kin_hops_tour(&hops, usable, members, &proven);
    int n_members = __builtin_popcount(usable);
    int n_window = facts->model.n_layer / (options->n_rounds > 0 ? options->n_rounds : 1);
    if (n_members > n_window) n_members = n_window; // each member has at least one
    do {
        for (int i = 0; i < n_members; i++) hop_s[i] = hops.cost[members[i]][members[(i + 1) % n_members]];
        kin_halda_model_init(&s.model, facts, members, hop_s, n_members, options->halda_kind);
        if (allocate(&s, err) != 0) return kin_err_prefix(err, "halda");
    } while (drop_weak(&s, members, &n_members));
    if (options->n_rounds > 0 && s.now.k != options->n_rounds)
        return kin_err_set(err, "halda: there is no plan with %d rounds", options->n_rounds);
    *plan = (kin_plan){.n_rounds = s.now.k};
    for (int i = 0; i < n_members; i++) {
        plan->shares[members[i]].n_layer = s.now.k * s.now.w[i];
        plan->shares[members[i]].n_layer_gpu = s.now.k * s.now.n[i];
    }
    kin_plan_scheduler_fit_gpus(facts, plan);
    return kin_plan_scheduler_finish(facts, usable, members, plan, err);
}
