// How long the schedulers take: `plan [REPETITIONS]`. Prints one line per set of facts and scheduler: milliseconds (median and
// the longest), the predicted time of a token, and what the bound proves.
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/median.h"
#include "pure/plan/scheduler.h"
#include "sys/highs.h"
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

// The devices of Table 3 again and again, each a little different. memory: so much of theirs.
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
    return 0;
}
