// Compares which experts stay in memory: `experts [LAYERS EXPERTS USED TOKENS]`. Replays generated routings of
// several kinds through the cache's table, for several shares of the experts in memory, and prints the hits of each policy, and
// those of Belady's cache, which knows the future. The first half of the tokens only fills the cache. empty and filled: hits of
// the first 50 tokens of a run, without and with counts of an earlier run, which had the first half of the tokens; another
// quarter lies between.
#include <stdio.h>
#include <stdlib.h>

#include "testkit/expert_trace.h"

static const char *const policy_names[KIN_EXPERTS_N_POLICIES] = {"mixed", "lru", "lfu"};
enum { N_FIRST = 50 };
static const int shares[] = {12, 25, 50, 75}; // percent

static int compare(const kin_expert_trace *t, kin_trace_kind kind, int percent, kin_err *err) {
    const int64_t n_slots = (int64_t)t->n_layer * t->n_expert * percent / 100;
    double best, hits;
    if (kin_expert_trace_belady(t, n_slots, t->n_tokens / 2, &best, err) != 0) return KIN_FAIL;
    printf("%-8s %5d %%", kin_trace_names[kind], percent);
    for (int i = 0; i < KIN_EXPERTS_N_POLICIES; i++) {
        if (kin_expert_trace_replay(t, (kin_expert_policy)i, n_slots, t->n_tokens / 2, &hits, err) != 0) return KIN_FAIL;
        printf(" %7.1f %%", 100 * hits);
    }
    printf(" %7.1f %%", 100 * best);
    const int n_learn = t->n_tokens / 2, n_gap = t->n_tokens / 4, n_rest = t->n_tokens - n_learn - n_gap;
    double first[2];
    if (kin_expert_trace_restart(t, n_slots, n_learn, n_gap, n_rest < N_FIRST ? n_rest : N_FIRST, first, err) != 0)
        return KIN_FAIL;
    printf(" %7.1f %% %7.1f %%\n", 100 * first[0], 100 * first[1]);
    return 0;
}

int main(int argc, char **argv) {
    int shape[] = {24, 128, 8, 600};
    for (int i = 0; i < 4 && 1 + i < argc; i++) shape[i] = atoi(argv[1 + i]);
    if (shape[0] < 1 || shape[2] < 1 || shape[1] < shape[2] || shape[3] < 2) {
        fprintf(stderr, "usage: experts [LAYERS EXPERTS USED TOKENS]\n");
        return 2;
    }
    printf("%-8s %7s", "kind", "memory");
    for (int i = 0; i < KIN_EXPERTS_N_POLICIES; i++) printf(" %9s", policy_names[i]);
    printf(" %9s %9s %9s\n", "Belady", "empty", "filled");
    for (int kind = 0; kind < KIN_TRACE_N_KINDS; kind++) {
        kin_expert_trace t = {.n_layer = shape[0], .n_expert = shape[1], .n_used = shape[2], .n_tokens = shape[3]};
        kin_err err;
        int rc = kin_expert_trace_make(&t, (kin_trace_kind)kind, 1, &err);
        for (size_t i = 0; i < sizeof shares / sizeof shares[0] && rc == 0; i++)
            rc = compare(&t, (kin_trace_kind)kind, shares[i], &err);
        kin_expert_trace_free(&t);
        if (rc == 0) continue;
        fprintf(stderr, "experts: %s\n", err.text);
        return 1;
    }
    return 0;
}
