#include "pure/plan/correction.h"

#include <math.h>

#include <string.h>

void kin_median_init(kin_median *m, int size) {
    *m = (kin_median){.size = size};
}

void kin_median_add(kin_median *m, double value) {
    if (!(value > 0) || !isfinite(value)) return;
    m->values[m->at] = value;
    m->at = (m->at + 1) % m->size;
    if (m->n < m->size) m->n++;
}

double kin_median_of(const kin_median *m, double otherwise) {
    double sorted[KIN_MEDIAN_MAX];
    if (m->n < (m->size + 1) / 2) return otherwise;
    for (int i = 0; i < m->n; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > m->values[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = m->values[i];
    }
    return (sorted[(m->n - 1) / 2] + sorted[m->n / 2]) / 2;
}

void kin_corrections_init(kin_corrections *c) {
    for (int i = 0; i < KIN_FACTS_MAX_DEVICES; i++) {
        kin_median_init(&c->compute[i], KIN_MEDIAN_COMPUTE);
        kin_median_init(&c->disk[i], KIN_MEDIAN_DISK);
        kin_median_init(&c->hop[i], KIN_MEDIAN_HOP);
    }
}

static void add(kin_median *median, double measured_s, double predicted_s) {
    if (measured_s > 0 && predicted_s > 0) kin_median_add(median, measured_s / predicted_s);
}

void kin_corrections_add(kin_corrections *c, int device, const kin_measured *measured, const kin_device_prediction *predicted) {
    add(&c->compute[device], measured->compute_s, predicted->compute_s + predicted->windows_s);
    add(&c->disk[device], measured->disk_s, predicted->load_s + predicted->experts_s);
    add(&c->hop[device], measured->hop_s, predicted->hop_s);
}

static void slow_engine(kin_engine_facts *e, double ratio) {
    for (int q = 0; q < KIN_N_QUANT; q++) {
        e->token_bytes_s[q] /= ratio;
        e->prompt_flop_s[q] /= ratio;
    }
    e->read_bytes_s /= ratio;
    e->kv_copy_s *= ratio;
    e->op_s *= ratio;
}

void kin_corrections_apply(const kin_corrections *c, kin_facts *facts) {
    for (int i = 0; i < facts->n_device; i++) {
        kin_device_facts *d = &facts->devices[i];
        double compute = kin_median_of(&c->compute[i], 1), disk = kin_median_of(&c->disk[i], 1),
               hop = kin_median_of(&c->hop[i], 1);
        slow_engine(&d->cpu, compute);
        slow_engine(&d->gpu, compute);
        d->to_gpu_s *= compute;
        d->from_gpu_s *= compute;
        d->gpu_copy_bytes_s /= compute;
        d->window_s *= compute;
        d->disk_bytes_s /= disk;
        d->disk_random_bytes_s /= disk;
        for (int to = 0; to < facts->n_device; to++) {
            facts->links[i][to].rtt_s *= hop;
            facts->links[i][to].bytes_s /= hop;
        }
    }
}
