#include "pure/plan/hops.h"

#include <math.h>

#include <string.h>

enum { FIT_SWEEPS = 40, LOCAL_SEARCH_MAX = 200, RINGS_MAX = 20000 };
static const double FIT_ENOUGH_S = 1e-12;

double kin_hop_s(const kin_facts *facts, int from, int to, int n_tokens) {
    const kin_link_facts *link = &facts->links[from][to];
    if (!kin_facts_link_usable(link)) return INFINITY;
    return link->rtt_s / 2 + n_tokens * facts->model.hidden_bytes / link->bytes_s;
}

bool kin_hops_are_in(const kin_facts *facts, const kin_plan *plan) {
    return plan->n_stops > 1 || facts->shared[0].n_members > 0;
}

// ---- relays: Floyd and Warshall, but existing links are always used directly

static void find_paths(kin_hops *h, const kin_facts *facts, int n_tokens) {
    int n = h->n_device;
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            bool both = (h->usable & kin_device_bit(a)) && (h->usable & kin_device_bit(b));
            h->next[a][b] = b;
            h->cost[a][b] = a == b ? 0 : both ? kin_hop_s(facts, a, b, n_tokens) : INFINITY;
            h->direct[a][b] = isfinite(h->cost[a][b]);
        }
    }
    double path[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_DEVICES];
    memcpy(path, h->cost, sizeof path);
    for (int via = 0; via < n; via++) {
        for (int a = 0; a < n; a++) {
            for (int b = 0; b < n; b++) {
                if (!(path[a][via] + path[via][b] < path[a][b])) continue;
                path[a][b] = path[a][via] + path[via][b];
                h->next[a][b] = h->next[a][via];
            }
        }
    }
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) h->cost[a][b] = h->direct[a][b] ? h->cost[a][b] : path[a][b];
    }
    if (facts->shared[0].n_members > 0) h->cost[0][0] = kin_hop_s(facts, 0, 0, n_tokens);
}

// ---- potentials: out[a] + in[b] <= cost[a][b], as close as possible
//
// If the cost of sending from a device, and of sending to it, is the same for all other devices (all in one network), the least
// squares fit is exact, and so is the bound.

typedef struct pairs {
    const kin_hops *hops;
    int n, devices[KIN_FACTS_MAX_DEVICES];
    double out[KIN_FACTS_MAX_DEVICES], in[KIN_FACTS_MAX_DEVICES]; // by index in `devices`
} pairs;

// Returns the mean (or, with `least`, the minimum) of row or column i's costs after subtracting the other side's shares.
static double left_over(const pairs *p, int i, bool row, bool least) {
    double sum = 0, min = INFINITY;
    int n = 0;
    for (int j = 0; j < p->n; j++) {
        int a = p->devices[row ? i : j], b = p->devices[row ? j : i];
        double rest = p->hops->cost[a][b] - (row ? p->in : p->out)[j];
        if (i == j || !isfinite(rest)) continue;
        sum += rest;
        min = rest < min ? rest : min;
        n++;
    }
    return n == 0 ? 0 : least ? min : sum / n;
}

// Mean shares make a fit, minimum ones a bound. Returns the largest change of an `in` share.
static double sweep(pairs *p, bool least) {
    double change = 0;
    for (int i = 0; i < p->n; i++) p->out[i] = left_over(p, i, true, least);
    for (int i = 0; i < p->n; i++) {
        double in = left_over(p, i, false, least);
        change = fmax(change, fabs(in - p->in[i]));
        p->in[i] = in;
    }
    return change;
}

static pairs fit(const kin_hops *h, kin_device_set among) {
    pairs p = {.hops = h};
    for (int i = 0; i < h->n_device; i++) {
        if (among & h->usable & kin_device_bit(i)) p.devices[p.n++] = i;
    }
    for (int i = 0; i < FIT_SWEEPS && sweep(&p, false) > FIT_ENOUGH_S; i++) {
    }
    sweep(&p, true);
    return p;
}

void kin_hops_potentials(const kin_hops *h, kin_device_set among, double potential[KIN_FACTS_MAX_DEVICES]) {
    pairs p = fit(h, among);
    bool negative = false;
    for (int i = 0; i < h->n_device; i++) potential[i] = 0;
    for (int i = 0; i < p.n; i++) negative = negative || p.out[i] + p.in[i] < 0;
    if (negative) { // solvers rely on costs that only grow
        memset(p.in, 0, sizeof p.in);
        sweep(&p, true);
    }
    // Rounding must not raise a potential above the bound.
    for (int i = 0; i < p.n; i++)
        potential[p.devices[i]] = fmax(0, p.out[i] + p.in[i] - 1e-12 * (fabs(p.out[i]) + fabs(p.in[i])));
}

void kin_hops_init(kin_hops *h, const kin_facts *facts, kin_device_set usable, int n_tokens) {
    h->n_device = facts->n_device;
    h->usable = usable;
    find_paths(h, facts, n_tokens);
}

// ---- the cheapest ring

// Held and Karp over the n members besides the head. order[0] is the head, order[1..n] the others in any order; rearranges them.
static double tour_exact(const kin_hops *h, int *order, int n) {
    enum { N_SETS = 1 << KIN_HOPS_EXACT };
    const int8_t NONE = -1;
    double cost[N_SETS][KIN_HOPS_EXACT]; // from the head through the set, ending at its last member
    int8_t before[N_SETS][KIN_HOPS_EXACT];
    kin_assert(n >= 1 && n <= KIN_HOPS_EXACT);
    for (int set = 1; set < 1 << n; set++) {
        for (int last = 0; last < n; last++) {
            if (!(set >> last & 1)) continue;
            int rest = set & ~(1 << last);
            cost[set][last] = rest ? INFINITY : h->cost[order[0]][order[last + 1]];
            before[set][last] = NONE;
            for (int prev = 0; prev < n; prev++) {
                if (!(rest >> prev & 1)) continue;
                double c = cost[rest][prev] + h->cost[order[prev + 1]][order[last + 1]];
                if (c < cost[set][last]) cost[set][last] = c, before[set][last] = (int8_t)prev;
            }
        }
    }
    int set = (1 << n) - 1, last = 0, found[KIN_HOPS_EXACT];
    for (int i = 1; i < n; i++) {
        if (cost[set][i] + h->cost[order[i + 1]][order[0]] < cost[set][last] + h->cost[order[last + 1]][order[0]]) last = i;
    }
    double best = cost[set][last] + h->cost[order[last + 1]][order[0]];
    for (int i = n - 1; i >= 0; i--) {
        int prev = before[set][last];
        found[i] = order[last + 1];
        set &= ~(1 << last);
        last = prev < 0 ? 0 : prev;
    }
    memcpy(order + 1, found, (size_t)n * sizeof *order);
    return best;
}

static double tour_cost(const kin_hops *h, const int *order, int n_order) {
    double sum = 0;
    for (int i = 0; i < n_order; i++) sum += h->cost[order[i]][order[(i + 1) % n_order]];
    return sum;
}

// Removes the member at `from` and inserts it at `to`.
static void move(int *order, int from, int to) {
    int member = order[from];
    if (from < to)
        memmove(order + from, order + from + 1, (size_t)(to - from) * sizeof *order);
    else
        memmove(order + to + 1, order + to, (size_t)(from - to) * sizeof *order);
    order[to] = member;
}

// Takes the nearest device each time, then moves single members as long as that helps.
static double tour_search(const kin_hops *h, int *order, int n_order) {
    for (int i = 1; i < n_order; i++) {
        int nearest = i;
        for (int j = i + 1; j < n_order; j++) {
            if (h->cost[order[i - 1]][order[j]] < h->cost[order[i - 1]][order[nearest]]) nearest = j;
        }
        move(order, nearest, i);
    }
    double best = tour_cost(h, order, n_order);
    bool better = true;
    for (int round = 0; better && round < LOCAL_SEARCH_MAX; round++) {
        better = false;
        for (int from = 1; from < n_order; from++) {
            for (int to = 1; to < n_order; to++) {
                if (from == to) continue;
                move(order, from, to);
                double cost = tour_cost(h, order, n_order);
                if (cost < best * (1 - 1e-12))
                    best = cost, better = true;
                else
                    move(order, to, from);
            }
        }
    }
    return best;
}

// ---- longer rings: tries all of them, except those that cannot be the best
//
// The excess of a hop over the shares of its two ends (above) is never negative. A ring whose excess reaches that of the best one
// is abandoned, usually early.

typedef struct trial {
    double over[KIN_FACTS_MAX_DEVICES][KIN_FACTS_MAX_DEVICES]; // excess, by index; the head is 0
    int n, n_tries;
    int ring[KIN_FACTS_MAX_DEVICES], best[KIN_FACTS_MAX_DEVICES];
    double best_over;
} trial;

static void try_rings(trial *t, int n_in_ring, double over) {
    int at = t->ring[n_in_ring - 1];
    if (n_in_ring == t->n && over + t->over[at][0] < t->best_over) {
        t->best_over = over + t->over[at][0];
        memcpy(t->best, t->ring, sizeof t->best);
    }
    for (int i = n_in_ring; i < t->n && t->n_tries < RINGS_MAX; i++) {
        int next = t->ring[i];
        if (!(over + t->over[at][next] < t->best_over)) continue;
        t->n_tries++;
        t->ring[i] = t->ring[n_in_ring], t->ring[n_in_ring] = next;
        try_rings(t, n_in_ring + 1, over + t->over[at][next]);
        t->ring[n_in_ring] = t->ring[i], t->ring[i] = next;
    }
}

// Replaces `order` by a cheaper ring if there is one. Returns its cost.
static double tour_improve(const kin_hops *h, kin_device_set members, int *order, int n_order, bool *proven) {
    pairs p = fit(h, members);
    double shares = 0;
    trial t = {.n = n_order};
    kin_assert(p.n == n_order && p.devices[0] == 0);
    for (int i = 0; i < t.n; i++) {
        t.ring[i] = i;
        for (int j = 0; j < t.n; j++) t.over[i][j] = fmax(0, h->cost[p.devices[i]][p.devices[j]] - p.out[i] - p.in[j]);
        shares += p.out[i] + p.in[i];
    }
    double cost = tour_cost(h, order, n_order);
    t.best_over = (cost - shares) * (1 - 1e-9);
    try_rings(&t, 1, 0);
    *proven = t.n_tries < RINGS_MAX;
    if (t.best[1] == 0) return cost;
    for (int i = 0; i < t.n; i++) order[i] = p.devices[t.best[i]];
    return tour_cost(h, order, n_order);
}

double kin_hops_tour(const kin_hops *h, kin_device_set members, int *order, bool *proven) {
    int n = 1;
    order[0] = 0;
    for (int i = 1; i < h->n_device; i++) {
        if (members & kin_device_bit(i)) order[n++] = i;
    }
    *proven = true;
    if (n == 1) return h->cost[0][0];
    if (n - 1 <= KIN_HOPS_EXACT) return tour_exact(h, order, n - 1);
    tour_search(h, order, n);
    return tour_improve(h, members, order, n, proven);
}

bool kin_hops_lay(const kin_hops *h, const int *order, int n_order, kin_plan *plan) {
    plan->n_stops = 0;
    for (int i = 0; i < n_order; i++) {
        int at = order[i], to = order[(i + 1) % n_order];
        bool relay = false, direct = h->direct[at][to];
        do {
            if (plan->n_stops == KIN_PLAN_MAX_STOPS) return false;
            plan->stops[plan->n_stops].device = at;
            plan->stops[plan->n_stops++].relay = relay;
            at = direct ? to : h->next[at][to];
            relay = true;
        } while (at != to);
    }
    return true;
}
