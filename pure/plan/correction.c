#include "pure/plan/correction.h"

#include <math.h>

static const double FACTOR_LEAST = 0.1, FACTOR_MOST = 10;
static const double HOLD_GROWS = 4, HOLD_MOST = 256; // times the first holding time

void kin_corrections_init(kin_corrections *c) {
    for (int i = 0; i < KIN_FACTS_MAX_DEVICES; i++) {
        c->devices[i].cpu = c->devices[i].gpu = c->devices[i].disk = 1;
        c->devices[i].missing_bytes = c->devices[i].sums = 0;
        c->devices[i].held.hold_s = 0;
        for (int to = 0; to < KIN_FACTS_MAX_DEVICES; to++) c->hops[i][to] = 1;
    }
}

static bool known(double value) {
    return value > 0 && isfinite(value);
}

static void set(double *factor, double value) {
    if (known(value)) *factor = fmin(fmax(value, FACTOR_LEAST), FACTOR_MOST);
}

// Experts are not read like streamed weights: if there are any, only times can be compared, not rates.
static double disk_factor(const kin_measured *measured, const kin_device_prediction *p) {
    if (p->experts_s > 0 || !known(measured->disk_bytes)) return measured->disk_s / (p->own_load_s + p->experts_s);
    double predicted_bytes_s = p->streamed_bytes / p->own_load_s;
    return predicted_bytes_s / (measured->disk_bytes / measured->disk_s);
}

static void set_missing(double *missing_bytes, const kin_measured *measured, const kin_device_prediction *p) {
    if (p->streamed_bytes > 0 && p->experts_s == 0 && known(measured->disk_bytes))
        *missing_bytes = fmin(fmax(measured->disk_bytes - p->streamed_bytes, 0), p->resident_bytes);
}

// A hop that is slower than predicted waits longer, for threads and their processors, so only the round trips are corrected. If
// it is faster, it is faster as a whole.
static double hops_factor(double hop_s, const kin_prediction *p) {
    return hop_s > p->hops_s ? 1 + (hop_s - p->hops_s) / p->hops_latency_s : hop_s / p->hops_s;
}

static void set_hops(kin_corrections *c, double factor, const kin_plan *plan) {
    for (int s = 0; s < plan->n_stops; s++) {
        for (int to = 0; to < plan->n_stops; to++) set(&c->hops[plan->stops[s].device][plan->stops[to].device], factor);
    }
}

// cpu_s: predicted computing and windows of the group, including sums.
static void set_sums(kin_corrections *c, int device, double measured_s, double cpu_s, double sums_s) {
    double left_s = measured_s - c->devices[device].cpu * (cpu_s - sums_s);
    if (known(measured_s)) set(&c->devices[device].sums, fmax(left_s, FACTOR_LEAST * sums_s) / sums_s);
}

void kin_corrections_set(kin_corrections *c, int device, const kin_measured *measured, const kin_plan *plan,
                         const kin_prediction *predicted) {
    const kin_device_prediction *p = &predicted->devices[device];
    double *cpu = &c->devices[device].cpu, *gpu = &c->devices[device].gpu, gpu_s = p->gpu_s,
           cpu_s = p->compute_s + p->windows_s - gpu_s;
    if (known(measured->disk_s)) set(&c->devices[device].disk, disk_factor(measured, p));
    set_missing(&c->devices[device].missing_bytes, measured, p);
    if (p->sums_s > 0) {
        if (p->stall_s == 0) set_sums(c, device, measured->compute_s, cpu_s, p->sums_s);
        return;
    }
    double missing = measured->compute_s / (*cpu * cpu_s + *gpu * gpu_s);
    if (cpu_s > 0) set(cpu, *cpu * missing);
    if (gpu_s > 0) set(gpu, *gpu * missing);
    if (device == 0) set_hops(c, hops_factor(measured->hop_s, predicted), plan);
}

void kin_corrections_hold(kin_corrections *c, int device, double now_s, double hold_s) {
    double before_s = c->devices[device].held.hold_s, until_s = c->devices[device].held.until_s;
    bool is_again = before_s > 0 && now_s <= until_s + before_s;
    kin_corrections held = is_again ? kin_corrections_held(c, now_s) : *c;
    c->devices[device].held.cpu = held.devices[device].cpu;
    c->devices[device].held.gpu = held.devices[device].gpu;
    c->devices[device].held.disk = held.devices[device].disk;
    if (!is_again)
        c->devices[device].held.hold_s = hold_s;
    else if (now_s >= until_s)
        c->devices[device].held.hold_s = fmin(HOLD_GROWS * before_s, HOLD_MOST * hold_s);
    c->devices[device].held.until_s = now_s + c->devices[device].held.hold_s;
}

kin_corrections kin_corrections_held(const kin_corrections *c, double now_s) {
    kin_corrections with = *c;
    for (int i = 0; i < KIN_FACTS_MAX_DEVICES; i++) {
        if (c->devices[i].held.hold_s <= 0 || now_s >= c->devices[i].held.until_s) continue;
        with.devices[i].cpu = fmax(c->devices[i].cpu, c->devices[i].held.cpu);
        with.devices[i].gpu = fmax(c->devices[i].gpu, c->devices[i].held.gpu);
        with.devices[i].disk = fmax(c->devices[i].disk, c->devices[i].held.disk);
    }
    return with;
}

// Slows down what single tokens measure; the arithmetic of a batch's rows is not part of that.
static void slow_engine(kin_engine_facts *e, double factor) {
    for (int q = 0; q < KIN_N_QUANT; q++) {
        if (e->token_bytes_s[q] != KIN_RATE_CANNOT) e->token_bytes_s[q] /= factor;
    }
    e->read_bytes_s /= factor;
    e->prompt_read_bytes_s /= factor;
    e->kv_bytes_s /= factor;
    e->kv_copy_s *= factor;
    e->op_s *= factor;
}

void kin_corrections_apply(const kin_corrections *c, kin_facts *facts) {
    for (int i = 0; i < facts->n_device; i++) {
        kin_device_facts *d = &facts->devices[i];
        facts->shared[i].sums_factor = c->devices[i].sums;
        slow_engine(&d->cpu, c->devices[i].cpu);
        slow_engine(&d->gpu, c->devices[i].gpu);
        d->to_gpu_s *= c->devices[i].gpu;
        d->from_gpu_s *= c->devices[i].gpu;
        d->gpu_copy_bytes_s /= c->devices[i].gpu;
        d->window_s *= c->devices[i].cpu;
        d->memory_bytes -= fmax(0, fmin(c->devices[i].missing_bytes, d->memory_bytes));
        d->disk_bytes_s /= c->devices[i].disk;
        d->disk_random_bytes_s /= c->devices[i].disk;
        for (int to = 0; to < facts->n_device; to++) {
            facts->links[i][to].rtt_s *= c->hops[i][to];
            facts->links[i][to].bytes_s /= fmin(1, c->hops[i][to]);
        }
    }
}
