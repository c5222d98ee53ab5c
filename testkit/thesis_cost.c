#include "testkit/thesis_cost.h"

#include <math.h>
#include <stdlib.h>

#include "pure/plan/device_time.h"

static const double DEVICE_OVERHEAD_S = 500e-6;

// ---- a range

static double engine_cost(const kin_device_rates *rates, double size, double kv, int n, int n_gpu) {
    double on_cpu = (double)(n - n_gpu) / n;
    kin_load load = {.n_cpu = n - n_gpu, .n_gpu = n_gpu, .size_cpu = size * on_cpu, .kv_cpu = kv * on_cpu};
    load.size_gpu = size - load.size_cpu;
    kin_device_time t = kin_device_time_of(rates, &load);
    if (!t.fits || t.streamed_bytes > 0 || t.experts_s > 0) return INFINITY;
    return t.compute_s - rates->output_s + kin_device_windows_s(rates, n, n_gpu, 1) + DEVICE_OVERHEAD_S;
}

// Returns the cost of layers [begin, end) on a device: with as many layers as possible on its GPU, or none.
static double range_cost(const kin_facts *f, const kin_device_rates *rates, int device, int begin, int end) {
    double size = 0, kv = 0, network_s = 0;
    int n = end - begin, n_gpu = kin_device_gpu_layers_max(rates, f->model.n_layer);
    if (n == 0 && device > 0) return 0;
    if (n == 0) {
        kin_load none = {0};
        kin_device_time t = kin_device_time_of(rates, &none);
        return t.fits && t.streamed_bytes == 0 ? 0 : INFINITY; // the head keeps its output in memory
    }
    for (int i = begin; i < end; i++) size += f->model.layer_share[i], kv += f->model.kv_share[i];
    if (device > 0) {
        const kin_link_facts *link = &f->links[0][device];
        if (!(link->bytes_s > 0)) return INFINITY;
        network_s = link->rtt_s + 2 * f->model.hidden_bytes / link->bytes_s;
    }
    return network_s + fmin(engine_cost(rates, size, kv, n, n_gpu < n ? n_gpu : n), engine_cost(rates, size, kv, n, 0));
}

static void rates_of(const kin_facts *f, kin_device_rates *rates) {
    for (int i = 0; i < f->n_device; i++) kin_device_rates_init(&rates[i], f, i, 1, f->work.n_cached, 1);
}

double kin_thesis_cost(const kin_facts *f, const kin_plan *plan) {
    kin_device_rates rates[KIN_FACTS_MAX_DEVICES];
    int begin = plan->shares[0].n_layer;
    rates_of(f, rates);
    double cost_s = range_cost(f, &rates[0], 0, 0, begin);
    for (int s = 0; s < plan->n_stops; s++) {
        int device = plan->stops[s].device, n = device == 0 || plan->stops[s].relay ? 0 : plan->shares[device].n_layer;
        if (n > 0) cost_s += range_cost(f, &rates[device], device, begin, begin + n);
        begin += n;
    }
    return begin == f->model.n_layer ? cost_s : INFINITY;
}

// ---- brute force

typedef struct brute {
    const kin_facts *facts;
    kin_device_rates rates[KIN_FACTS_MAX_DEVICES];
    double best_s;
} brute;

static void try_next(brute *b, kin_device_set left, int begin, double cost_s) {
    if (begin == b->facts->model.n_layer) b->best_s = fmin(b->best_s, cost_s);
    for (int i = 1; i < b->facts->n_device; i++) {
        if (!(left & kin_device_bit(i))) continue;
        for (int end = begin + 1; end <= b->facts->model.n_layer; end++)
            try_next(b, left & ~kin_device_bit(i), end, cost_s + range_cost(b->facts, &b->rates[i], i, begin, end));
    }
}

double kin_thesis_brute(const kin_facts *f) {
    static brute b;
    kin_device_set usable;
    if (kin_facts_screen(f, &usable, NULL, NULL) != 0) return INFINITY;
    b.facts = f;
    b.best_s = INFINITY;
    rates_of(f, b.rates);
    for (int end = 0; end <= f->model.n_layer; end++)
        try_next(&b, usable & ~kin_device_bit(0), end, range_cost(f, &b.rates[0], 0, 0, end));
    return b.best_s;
}

// ---- sets of workers

double kin_thesis_optimum(const kin_facts *f) {
    int n = f->model.n_layer, row = n + 1, n_worker = f->n_device - 1;
    size_t n_sets = (size_t)1 << n_worker;
    kin_device_rates rates[KIN_FACTS_MAX_DEVICES];
    kin_assert(n_worker <= KIN_THESIS_MAX_WORKERS);
    float *best = malloc(n_sets * (size_t)row * sizeof *best); // [set][layers]: least cost of the first layers on these workers
    double *cost = malloc((size_t)f->n_device * (size_t)row * (size_t)row * sizeof *cost);
    double best_s = INFINITY;
    if (!best || !cost) goto done;
    rates_of(f, rates);
    for (int i = 0; i < f->n_device; i++) {
        for (int begin = 0; begin <= n; begin++) {
            for (int end = begin; end <= n; end++) cost[(i * row + begin) * row + end] = range_cost(f, &rates[i], i, begin, end);
        }
    }
    for (size_t at = 0; at < n_sets * (size_t)row; at++) best[at] = INFINITY;
    for (int end = 0; end <= n; end++) best[end] = (float)cost[end];
    for (size_t set = 0; set < n_sets; set++) {
        const float *now = best + set * (size_t)row;
        best_s = fmin(best_s, now[n]);
        for (int i = 0; i < n_worker; i++) {
            if (set & ((size_t)1 << i)) continue;
            float *next = best + (set | (size_t)1 << i) * (size_t)row;
            for (int begin = 0; begin < n; begin++) {
                const double *of = cost + ((size_t)(i + 1) * (size_t)row + (size_t)begin) * (size_t)row;
                if (!(now[begin] < best_s)) continue;
                for (int end = begin + 1; end <= n && isfinite(of[end]); end++)
                    next[end] = fminf(next[end], now[begin] + (float)of[end]);
            }
        }
    }
done:
    free(best);
    free(cost);
    return best_s;
}
