// Measures the schedulers: `plan [REPETITIONS]`. Prints one line per set of facts and scheduler: milliseconds (median and
// maximum), the predicted time per token, and what the bound proves. Then prints the gain of groups where weights stream: equal
// devices with 15 GB/s, linked by 0.4 ms and 1 Gbit/s, with an 8B model and memory for a part of it; ms per token of the best
// ring and of the best plan with groups.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/median.h"
#include "pure/plan/group_search.h"
#include "pure/plan/scheduler.h"
#include "pure/plan/timeline.h"
#include "sys/highs.h"
#include "testkit/equal_devices.h"
#include "testkit/ilp_small.h"
#include "testkit/paper_clusters.h"
#include "testkit/plan_random.h"

enum { N_MAX = 1000 };

static void measure(const char *name, const kin_facts *facts, int n) {
    kin_plan_options options = kin_plan_options_defaults();
    options.ilp = kin_highs_is_there() ? kin_highs_solve : kin_ilp_small;
    for (const kin_plan_scheduler *s = kin_plan_schedulers; s->name; s++) {
        double ms[N_MAX];
        kin_plan plan;
        kin_err err;
        int rc = 0;
        for (int i = 0; i < n; i++) {
            kin_time begin = kin_clock_now();
            rc = s->plan(facts, &options, &plan, &err);
            ms[i] = kin_clock_ms(begin, kin_clock_now());
        }
        double median = kin_median(ms, n);
        printf("%-34s %-9s %9.3f %9.3f ms", name, s->name, median, ms[n - 1]);
        if (rc != 0)
            printf("   no plan\n");
        else if (plan.bound_s == 0)
            printf("   %9.1f ms/token\n", plan.tpot_s * 1e3);
        else
            printf("   %9.1f ms/token, gap %.2f %%, %d rounds\n", plan.tpot_s * 1e3, 100 * (1 - plan.bound_s / plan.tpot_s),
                   plan.n_rounds);
    }
}

// Repeats the devices of Table 3 with small variations. memory: fraction of their memory.
static void many(kin_facts *facts, int n_device, double memory, bool one_network) {
    kin_rng rng;
    kin_rng_seed(&rng, 1);
    kin_paper_facts(facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 6);
    for (int i = 0; i < n_device; i++) {
        kin_device_facts *d = &facts->devices[i];
        double speed = 0.5 + kin_rng_unit(&rng);
        *d = facts->devices[i % 6];
        d->memory_bytes *= i < 6 ? memory : 0.5 + kin_rng_unit(&rng);
        d->gpu_memory_bytes *= i < 6 ? memory : 1;
        for (int q = 0; q < KIN_N_QUANT; q++) d->cpu.token_bytes_s[q] *= speed;
        for (int to = 0; to < n_device; to++) {
            double rtt_s = one_network ? 10e-3 : 5e-3 + 10e-3 * kin_rng_unit(&rng);
            facts->links[i][to] = (kin_link_facts){rtt_s, 55e6};
        }
    }
    facts->n_device = n_device;
}

static void equal_devices(kin_facts *facts, int n, double kept, double disk_bytes_s) {
    kin_equal_devices(facts, n, 4e-4);
    kin_model_facts *m = &facts->model;
    m->layer_blocks = 3, m->output_blocks = 19, m->layer_ops = 20;
    m->block_bytes = 67e6;
    for (int i = 0; i < n; i++) {
        kin_device_facts *d = &facts->devices[i];
        for (int q = 0; q < KIN_N_QUANT; q++) d->cpu.token_bytes_s[q] = 15e9;
        d->memory_bytes = kept * (m->n_layer * kin_facts_layer_bytes(m) + kin_facts_bytes_sum(m->output_bytes)) / n;
        d->disk_bytes_s = d->disk_random_bytes_s = disk_bytes_s;
        d->window_s = 3e-5, d->cpu.op_s = 3e-6;
    }
}

static void compare_groups(kin_facts *facts, int n, double kept, double disk_bytes_s) {
    static kin_grouped_plan grouped;
    kin_plan_options options = kin_plan_options_defaults();
    kin_plan plan;
    kin_prediction ring;
    kin_err err;
    equal_devices(facts, n, kept, disk_bytes_s);
    if (kin_plan_playoff(facts, &options, &plan, &err) != 0 || kin_timeline_predict(facts, &plan, &ring, &err) != 0) return;
    if (kin_plan_grouped(facts, &options, ring.tpot_s, &grouped, &err) != 0 || grouped.plan.groups.n == 0) return;
    double grouped_s = grouped.prediction.tpot_s, best_s = fmin(ring.tpot_s, grouped_s);
    printf("%d devices, %3.0f %% in memory, disks of %.1f GB/s: ring %6.0f (%2d rounds), groups %6.0f, %.2f times as fast\n", n,
           100 * kept, disk_bytes_s / 1e9, ring.tpot_s * 1e3, plan.n_rounds, grouped_s * 1e3, ring.tpot_s / best_s);
}

int main(int argc, char **argv) {
    static kin_facts facts;
    int n = argc > 1 ? atoi(argv[1]) : 21;
    if (n < 1 || n > N_MAX) return fprintf(stderr, "usage: plan [REPETITIONS] (1 to %d)\n", N_MAX), 2;
    kin_paper_facts(&facts, KIN_PAPER_TABLE_3, KIN_PAPER_70B, 4);
    measure("Table 3, 70B, 4 devices", &facts, n);
    kin_paper_facts(&facts, KIN_PAPER_TABLE_11, KIN_PAPER_70B, 0);
    measure("Table 11, 70B, 10 devices", &facts, n);
    many(&facts, 32, 1, true);
    measure("32 devices, 80 layers", &facts, n);
    many(&facts, 32, 0.4, true);
    measure("32 devices, little memory", &facts, n);
    many(&facts, 12, 0.4, false);
    measure("12 devices, all links differ", &facts, n);
    many(&facts, 32, 1, false);
    measure("32 devices, all links differ", &facts, n);
    many(&facts, 32, 0.4, false);
    measure("the same, little memory", &facts, n);
    for (int n_device = 2; n_device <= 4; n_device += 2) {
        static const double kept[] = {0.95, 0.75, 0.5, 0.25}, disks[] = {0.3e9, 1e9, 3e9};
        for (int i = 0; i < 12; i++) compare_groups(&facts, n_device, kept[i / 3], disks[i % 3]);
    }
    return 0;
}
