// A planner over the facts of a cluster, for test_planner.c and test_planner_groups.c.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "cluster/planner.h"
#include "testkit/paper_clusters.h"
#include "tests/place.h"

static kin_facts cluster;

// Makes a question about devices [n] of `cluster`; `who` are their numbers there, the head (0) first.
static inline void ask_about(kin_planner_question *a, const int *who, int n) {
    *a = (kin_planner_question){.n = n, .has_facts = true, .facts = cluster};
    a->facts.n_device = n;
    for (int i = 0; i < n; i++) {
        a->facts.devices[i] = cluster.devices[who[i]];
        a->candidates[i].memory = (uint64_t)a->facts.devices[i].memory_bytes;
        snprintf(a->candidates[i].name, KIN_CANDIDATE_NAME, "%s", a->facts.devices[i].name);
        a->ids[i] = (kin_proto_id){{(uint8_t)(who[i] + 1)}};
        for (int k = 0; k < n; k++) a->facts.links[i][k] = cluster.links[who[i]][who[k]];
    }
}

static inline kin_planner_options options_of(const char *plan, const char *scheduler) {
    kin_planner_options o = kin_planner_options_defaults();
    o.plan = plan;
    o.scheduler = scheduler;
    o.head_name = "head";
    return o;
}

static inline kin_planner *open_with(const kin_planner_options *o) {
    kin_planner *p;
    kin_err err;
    if (kin_planner_open(&p, o, &cluster.model, &cluster.work, &err) != 0) fail_msg("%s", err.text);
    return p;
}
#define open_with(...) FROM_TEST(open_with(__VA_ARGS__))

static inline kin_planner *open_planner(const char *plan, const char *scheduler) {
    kin_planner_options o = options_of(plan, scheduler);
    return open_with(&o);
}
#define open_planner(...) FROM_TEST(open_planner(__VA_ARGS__))

static inline void answer_to(kin_planner *p, const kin_planner_question *a, kin_plan *out) {
    kin_err err;
    if (kin_planner_ask(p, a, out, &err) != 0) fail_msg("%s", err.text);
}
#define answer_to(...) FROM_TEST(answer_to(__VA_ARGS__))

static inline int setup(void **state) {
    (void)state;
    kin_paper_facts(&cluster, KIN_PAPER_A4, KIN_PAPER_30B, 0);
    return 0;
}
