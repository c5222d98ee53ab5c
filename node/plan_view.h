// A plan as people see it: who computes what, how long a token and a prompt will take, where the time goes, and why. As JSON;
// app/plan_print.h has it as a table and sentences.
//
// Wherever the facts come from (a file, measurements), everything after them is here: making the plan with a scheduler,
// predicting. It changes nothing and runs nothing. Plain functions; with several devices they take up to seconds.
#pragma once

#include <jansson.h>

#include "pure/plan/explain.h"
#include "pure/plan/group_search.h"
#include "pure/plan/loss_group.h"
#include "pure/plan/timeline.h"

enum { KIN_PLAN_VIEW_MAX_REASON = 512 };

typedef struct kin_plan_view {
    const kin_facts *facts;   // borrowed, or `with_groups`: those that the plan is of
    const kin_facts *devices; // borrowed: as they are, without groups
    const kin_plan_scheduler *scheduler;
    kin_plan plan;
    kin_prediction prediction;
    char group[KIN_GROUP_SAY_MAX]; // whether devices had better share each layer; empty: there is one, or another scheduler
    char reason[KIN_PLAN_VIEW_MAX_REASON]; // one plain sentence: why these devices compute together, or one alone. Empty: another
                                           // scheduler
    double ring_s;   // a token by the best ring, without groups; infinite: there is none, or it is not known
    bool has_groups; // the plan has these:
    kin_grouped_plan grouped;
    kin_facts with_groups;
    kin_device_set refused; // their facts cannot be, or nothing joins them with the head
    char sentences[KIN_FACTS_MAX_DEVICES]
                  [KIN_PLAN_EXPLAIN_MAX];    // of every device; of other schedulers than `exact` of refused ones only
    kin_plan without[KIN_FACTS_MAX_DEVICES]; // scratch: the plan without that device
    enum {
        KIN_PLAN_VIEW_UNASKED,
        KIN_PLAN_VIEW_ENDS,
        KIN_PLAN_VIEW_PAUSES
    } if_lost[KIN_FACTS_MAX_DEVICES];       // texts, with that device
    kin_loss losses[KIN_FACTS_MAX_DEVICES]; // of those that pause
    kin_grouped_plan other;                 // scratch
} kin_plan_view;

// A scheduler's plan and what it will take. Fails, too, where the scheduler would not heed options->n_rounds.
int kin_plan_view_ask(const kin_facts *facts, const kin_plan_options *options, const kin_plan_scheduler *scheduler,
                      kin_plan *plan, kin_prediction *prediction, kin_err *err);

// Who cannot be planned with, and a sentence for each ("" for others).
int kin_plan_view_screen(const kin_facts *facts, kin_device_set *refused, char sentences[][KIN_PLAN_EXPLAIN_MAX], kin_err *err);

// Makes the plan. Where there is none, the sentence tells about refused devices too.
int kin_plan_view_make(kin_plan_view *view, const kin_facts *facts, const kin_plan_options *options,
                       const kin_plan_scheduler *scheduler, kin_err *err);

// The plan in force with its groups, whatever made it (kin_planner_last), and what leaving a device out would change.
int kin_plan_view_of(kin_plan_view *view, const kin_facts *facts, const kin_grouping *grouping, const kin_plan *plan,
                     const kin_plan_options *options, kin_err *err);

// What the device's GPU holds beside its KV cache and buffers.
double kin_plan_view_gpu_bytes(const kin_plan_view *view, int device);

// Who has copies of the lost device's pages: the first one of a group.
const char *kin_plan_view_buddy(const kin_plan_view *view, int lost);

// New references.
json_t *kin_plan_view_json(const kin_plan_view *view);
json_t *kin_plan_view_work_json(const kin_facts *facts);
