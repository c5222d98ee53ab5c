// All schedulers on the same facts: what a token would take with the plan of each, beside the plan of `exact`. The paper's Table
// 4 as one command. A scheduler that has no plan has a sentence instead. Changes nothing. Main thread.
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
    char sentences[KIN_FACTS_MAX_DEVICES][KIN_PLAN_EXPLAIN_MAX]; // of refused devices
    int n, n_plans;
    struct {
        const kin_plan_scheduler *scheduler;
        bool has_plan;
        kin_plan plan;
        kin_prediction prediction;
        kin_err why_not;
    } entries[KIN_PLAN_COMPARE_MAX]; // `exact` first
} kin_plan_compare;

// Asks every scheduler. It is no error if none has a plan (n_plans is 0); nonsense of the head, the model or the work is one.
int kin_plan_compare_make(kin_plan_compare *compare, const kin_facts *facts, const kin_plan_options *options, kin_err *err);

void kin_plan_compare_print(const kin_plan_compare *compare, FILE *file);

// A new reference.
json_t *kin_plan_compare_json(const kin_plan_compare *compare);
