// Runs all schedulers on the same facts and compares the predicted time per token with that of `exact`: Table 4 of the paper as
// one command. A scheduler without a plan has a reason instead. Has no side effects. Main thread.
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "pure/plan/explain.h"
#include "pure/plan/latency.h"
#include "pure/plan/scheduler.h"

enum { KIN_PLAN_COMPARE_MAX = 8 };

typedef struct kin_plan_compare {
    const kin_facts *facts; // borrowed
    kin_device_set refused;
    char sentences[KIN_FACTS_MAX_DEVICES][KIN_PLAN_EXPLAIN_MAX]; // reasons for the refused devices
    int n, n_plans;
    struct {
        const kin_plan_scheduler *scheduler;
        bool has_plan;
        kin_plan plan;
        kin_prediction prediction;
        kin_err why_not;
    } entries[KIN_PLAN_COMPARE_MAX]; // `exact` first
} kin_plan_compare;

// Runs every scheduler. It is not an error if none finds a plan (n_plans is 0); invalid facts of the head, the model or the
// workload are.
int kin_plan_compare_make(kin_plan_compare *compare, const kin_facts *facts, const kin_plan_options *options, kin_err *err);

void kin_plan_compare_print(const kin_plan_compare *compare, FILE *file);

// Returns a new reference.
json_t *kin_plan_compare_json(const kin_plan_compare *compare);
