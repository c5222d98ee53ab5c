// paper: what experiments of the papers need and kin itself does not print.
//
//   paper list                             names of clusters and models
//   paper facts CLUSTER MODEL [DEVICES]    their facts as JSON, for kin plan --what-if; DEVICES: only the first ones
//   paper dp N                             the thesis's dynamic program beside brute force, on N random instances
//   paper orders N                         its searches for an order of 8 to 20 workers beside the optimum, on N instances each
//
// dp and orders use the thesis's cost: each worker has one range of layers and talks to the head only, and nothing is streamed.
// dp fails if a plan is not the best one. `refused` are plans of unequal ranges that kin does not accept, because it requires
// room for as many mean layers. orders prints a line per search and number of workers.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/facts_file.h"
#include "pure/plan/scheduler.h"
#include "testkit/paper_clusters.h"
#include "testkit/plan_random.h"
#include "testkit/thesis_cost.h"

enum { N_MAX = 1000000 };
static const double SAME = 1e-5; // the optimum's sums are floats

static int list(void) {
    for (int i = 0; i < KIN_N_PAPER_CLUSTER; i++)
        printf("cluster %-12s %s\n", kin_paper_cluster_id((kin_paper_cluster)i), kin_paper_cluster_name((kin_paper_cluster)i));
    for (int i = 0; i < KIN_N_PAPER_MODEL; i++)
        printf("model %-12s %s\n", kin_paper_model_id((kin_paper_model)i), kin_paper_model_name((kin_paper_model)i));
    return 0;
}

static int facts(const char *cluster, const char *model, int n_device) {
    static kin_facts f;
    int c = 0, m = 0;
    kin_err err;
    while (c < KIN_N_PAPER_CLUSTER && strcmp(kin_paper_cluster_id((kin_paper_cluster)c), cluster) != 0) c++;
    while (m < KIN_N_PAPER_MODEL && strcmp(kin_paper_model_id((kin_paper_model)m), model) != 0) m++;
    if (c == KIN_N_PAPER_CLUSTER) return fprintf(stderr, "paper: there is no cluster '%s'; 'paper list' names all\n", cluster), 1;
    if (m == KIN_N_PAPER_MODEL) return fprintf(stderr, "paper: there is no model '%s'; 'paper list' names all\n", model), 1;
    kin_paper_facts(&f, (kin_paper_cluster)c, (kin_paper_model)m, n_device);
    json_t *json = kin_facts_file_to_json(&f, &err);
    if (!json) return fprintf(stderr, "paper: %s\n", err.text), 1;
    int rc = json_dumpf(json, stdout, JSON_INDENT(2)) == 0 && puts("") >= 0 && fflush(stdout) == 0 ? 0 : 1;
    json_decref(json);
    return rc;
}

// ---- the thesis

// Layers of unequal size, because with equal ones the order of workers does not matter.
static void unequal_layers(kin_facts *f, kin_rng *rng) {
    double bytes[KIN_FACTS_MAX_LAYERS];
    for (int i = 0; i < f->model.n_layer; i++) bytes[i] = 0.4 + 1.6 * kin_rng_unit(rng);
    bytes[0] *= 3; // an embedding and an output that are layers
    bytes[f->model.n_layer - 1] *= 3;
    kin_facts_set_shares(&f->model, bytes);
}

static int compare_with_brute_force(int n) {
    static kin_facts f;
    kin_rng rng;
    int n_plans = 0, n_equal = 0, n_refused = 0, n_wrong = 0;
    double worst = 0;
    kin_rng_seed(&rng, 1);
    for (int done = 0; done < n;) {
        kin_plan_options options = kin_plan_options_defaults();
        kin_plan plan;
        kin_random_facts(&f, &rng, KIN_THESIS_BRUTE_DEVICES, KIN_THESIS_BRUTE_LAYERS);
        unequal_layers(&f, &rng);
        double best_s = kin_thesis_brute(&f);
        kin_err err = {""};
        bool has_plan = kin_plan_dp_sa(&f, &options, &plan, &err) == 0, none_found = strncmp(err.text, "no plan", 7) == 0;
        n_refused += !has_plan && !none_found && isfinite(best_s);
        n_wrong += isfinite(best_s) ? none_found : has_plan;
        done++;
        if (!has_plan || !isfinite(best_s)) continue;
        double excess = kin_thesis_cost(&f, &plan) / best_s - 1;
        n_plans++;
        n_equal += fabs(excess) < 1e-9;
        worst = fmax(worst, excess);
    }
    printf("instances,with_a_plan,equal,worst_excess_percent,refused\n%d,%d,%d,%.3g,%d\n", n, n_plans, n_equal, 100 * worst,
           n_refused);
    return n_equal == n_plans && n_wrong == 0 ? 0 : 1;
}

// Workers with memory for about two shares of the layers each, so that some are left out and the order decides what fits.
static void random_workers(kin_facts *f, kin_rng *rng, int n_worker) {
    kin_paper_facts(f, KIN_PAPER_THESIS, KIN_PAPER_THESIS_4B, 1);
    f->n_device = 1 + n_worker;
    unequal_layers(f, rng);
    double layers = f->model.n_layer * kin_facts_layer_bytes(&f->model);
    for (int i = 1; i < f->n_device; i++) {
        kin_device_facts *d = &f->devices[i];
        *d = f->devices[0];
        snprintf(d->name, sizeof d->name, "worker %d", i);
        double rate = 10e9 * pow(15, kin_rng_unit(rng));
        for (int q = 0; q < KIN_N_QUANT; q++) d->cpu.token_bytes_s[q] = rate;
        d->memory_bytes = f->model.cpu_buffer_bytes + layers * (0.5 + 1.5 * kin_rng_unit(rng)) * 2 / n_worker;
        double rtt_s = 1e-3 * pow(20, kin_rng_unit(rng));
        for (int to = 0; to < f->n_device; to++)
            f->links[i][to] = f->links[to][i] = (kin_link_facts){to == 0 ? rtt_s : 20e-3, 1e6 * pow(50, kin_rng_unit(rng))};
    }
}

static int compare_orders(int n) {
    static const struct {
        const char *name;
        kin_dp_orders orders;
    } searches[] = {{"annealed", KIN_DP_ANNEALED}, {"random", KIN_DP_RANDOM}};
    static kin_facts f;
    printf("workers,search,instances,optimal,mean_excess_percent,worst_excess_percent\n");
    for (int n_worker = 8; n_worker <= KIN_THESIS_MAX_WORKERS; n_worker += 2) {
        double sum[2] = {0}, worst[2] = {0};
        int n_optimal[2] = {0}, n_instance = n_worker <= 16 ? n : (n + 9) / 10, n_done = 0;
        kin_rng rng;
        kin_rng_seed(&rng, (uint64_t)n_worker);
        while (n_done < n_instance) {
            random_workers(&f, &rng, n_worker);
            double best_s = kin_thesis_optimum(&f);
            if (!isfinite(best_s)) continue;
            n_done++;
            for (int k = 0; k < 2; k++) {
                kin_plan_options options = kin_plan_options_defaults();
                kin_plan plan;
                options.dp_orders = searches[k].orders;
                double excess = kin_plan_dp_sa(&f, &options, &plan, NULL) == 0 ? kin_thesis_cost(&f, &plan) / best_s - 1 : 1;
                n_optimal[k] += excess < SAME;
                sum[k] += excess;
                worst[k] = fmax(worst[k], excess);
            }
        }
        for (int k = 0; k < 2; k++)
            printf("%d,%s,%d,%d,%.3f,%.3f\n", n_worker, searches[k].name, n_instance, n_optimal[k], 100 * sum[k] / n_instance,
                   100 * worst[k]);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int n = argc == 3 ? atoi(argv[2]) : 0;
    if (argc == 2 && strcmp(what, "list") == 0) return list();
    if ((argc == 4 || argc == 5) && strcmp(what, "facts") == 0) return facts(argv[2], argv[3], argc == 5 ? atoi(argv[4]) : 0);
    if (strcmp(what, "dp") == 0 && n > 0 && n <= N_MAX) return compare_with_brute_force(n);
    if (strcmp(what, "orders") == 0 && n > 0 && n <= N_MAX) return compare_orders(n);
    return fprintf(stderr, "usage: paper list | facts CLUSTER MODEL [DEVICES] | dp N | orders N\n"), 2;
}
