#include "testkit/plan_brute.h"

#include <math.h>
#include <stddef.h>

#include "pure/plan/device_time.h"
#include "pure/plan/hops.h"

// Divisions of n layers: on the GPU, and of how many of these the CPU has the experts.
enum { KIN_BRUTE_DIVISIONS = (KIN_BRUTE_LAYERS + 1) * (KIN_BRUTE_LAYERS + 1) };

static int n_gpu_of(int division) {
    return division / (KIN_BRUTE_LAYERS + 1);
}

static int n_cpu_moe_of(int division) {
    return division % (KIN_BRUTE_LAYERS + 1);
}

static bool is_possible(const kin_device_rates *rates, int n, int division) {
    const int n_gpu = n_gpu_of(division), n_cpu_moe = n_cpu_moe_of(division);
    return n_gpu <= n && n_cpu_moe <= n_gpu && (n_cpu_moe == 0 || kin_device_can_divide(rates));
}

typedef struct brute {
    const kin_facts *facts;
    kin_device_set usable, force_in;
    kin_device_rates rates[KIN_BRUTE_DEVICES];
    kin_device_time times[KIN_BRUTE_DEVICES][KIN_BRUTE_LAYERS + 1][KIN_BRUTE_DIVISIONS]; // [layers][division of them]
    double ring_s[1 << KIN_BRUTE_DEVICES];
    int n_rounds;
    double best_s;
} brute;

// Returns the cheapest path from `at` through all of `left` back to the head.
static double ring_through(const kin_hops *hops, int at, kin_device_set left) {
    double best = INFINITY;
    if (!left) return hops->cost[at][0];
    for (int next = 1; next < hops->n_device; next++) {
        if (left & kin_device_bit(next))
            best = fmin(best, hops->cost[at][next] + ring_through(hops, next, left & ~kin_device_bit(next)));
    }
    return best;
}

static void divide(brute *b, int device, int n_left, kin_device_set members, double busy_s, double stall_s) {
    if (device == b->facts->n_device) {
        if (n_left > 0) return;
        b->best_s = fmin(b->best_s, fmax(busy_s + b->n_rounds * b->ring_s[members], stall_s));
        return;
    }
    bool usable = b->usable & kin_device_bit(device);
    for (int n = 0; n <= (usable ? n_left : 0); n++) {
        if (n > 0 && n < b->n_rounds) continue;
        if (n == 0 && (b->force_in & kin_device_bit(device))) continue;
        if (n == 0 && device > 0) {
            divide(b, device + 1, n_left, members, busy_s, stall_s);
            continue;
        }
        for (int i = 0; i < KIN_BRUTE_DIVISIONS; i++) {
            const kin_device_time *t = &b->times[device][n][i];
            if (!is_possible(&b->rates[device], n, i) || !t->fits) continue;
            double cost_s = t->compute_s + t->experts_s + kin_device_windows_s(&b->rates[device], n, n_gpu_of(i), b->n_rounds) +
                            kin_device_exposed_s(&t->wait, b->n_rounds);
            divide(b, device + 1, n_left - n, members | kin_device_bit(device), busy_s + cost_s, fmax(stall_s, t->stall_s));
        }
    }
}

double kin_plan_brute(const kin_facts *facts, kin_device_set force_in) {
    static brute b;
    kin_hops hops;
    b.facts = facts;
    b.force_in = force_in;
    b.best_s = INFINITY;
    kin_assert(facts->n_device <= KIN_BRUTE_DEVICES && facts->model.n_layer <= KIN_BRUTE_LAYERS);
    if (kin_facts_screen(facts, &b.usable, NULL, NULL) != 0 || (force_in & ~b.usable)) return INFINITY;
    kin_hops_init(&hops, facts, b.usable, 1);
    for (kin_device_set members = 1; members < kin_device_bit(facts->n_device); members += 2) {
        b.ring_s[members] = members == 1 ? hops.cost[0][0] : ring_through(&hops, 0, members & ~(kin_device_set)1);
    }
    for (int i = 0; i < facts->n_device; i++) {
        kin_device_rates_init(&b.rates[i], facts, i, 1, facts->work.n_cached, 1);
        for (int n = 0; n <= facts->model.n_layer; n++) {
            for (int division = 0; division < KIN_BRUTE_DIVISIONS; division++) {
                if (!is_possible(&b.rates[i], n, division)) continue;
                const kin_load load = kin_load_of(n - n_gpu_of(division), n_gpu_of(division), n_cpu_moe_of(division));
                b.times[i][n][division] = kin_device_time_of(&b.rates[i], &load);
            }
        }
    }
    for (b.n_rounds = 1; b.n_rounds <= facts->model.n_layer; b.n_rounds++) divide(&b, 0, facts->model.n_layer, 0, 0, 0);
    return b.best_s;
}
