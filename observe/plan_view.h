// A plan for display: which device computes what, the time of a token and of a prompt, where the time goes, and why. As JSON;
// app/plan_print.h prints it as a table and sentences.
//
// Facts may come from a file or from measurements; everything after that is here: planning with a scheduler, and predicting. It
// changes nothing and runs nothing. Plain functions; with several devices they take up to seconds.
#pragma once

#include <jansson.h>

#include "pure/plan/explain.h"
#include "pure/plan/group_search.h"
#include "pure/plan/loss_group.h"
#include "pure/plan/timeline.h"

enum { KIN_PLAN_VIEW_MAX_REASON = 512 };

typedef struct kin_plan_view {
    const kin_facts *facts;   // borrowed, or `with_groups`: the facts of the plan
    const kin_facts *devices; // borrowed: the facts without groups
    const kin_plan_scheduler *scheduler;
    kin_plan plan;
    kin_prediction prediction;
    char group[KIN_GROUP_EXPLAIN_MAX];     // a sentence on whether devices should share each layer; empty: not considered
    char reason[KIN_PLAN_VIEW_MAX_REASON]; // one plain sentence: why these devices compute together, or one alone. Empty: another
                                           // scheduler
    double ring_s;                         // a token in the best ring without groups; infinite: none, or not known
    bool has_groups;                       // the plan has groups:
    kin_grouped_plan grouped;
    kin_facts with_groups;
    kin_device_set refused; // devices with invalid facts, or without links to the head
    char sentences[KIN_FACTS_MAX_DEVICES]
                  [KIN_PLAN_EXPLAIN_MAX];            // of every device; with schedulers other than `exact` only of refused ones
    kin_plan_without without[KIN_FACTS_MAX_DEVICES]; // each device; of plans with groups only more_s
    enum {
        KIN_PLAN_VIEW_UNASKED,
        KIN_PLAN_VIEW_ENDS,
        KIN_PLAN_VIEW_PAUSES
    } if_lost[KIN_FACTS_MAX_DEVICES];       // effect of the loss of that device on sequences
    kin_loss losses[KIN_FACTS_MAX_DEVICES]; // for those that pause
    kin_grouped_plan other;                 // scratch
} kin_plan_view;

// Makes a scheduler's plan and predicts its times. Fails if the scheduler cannot obey options->n_rounds.
int kin_plan_view_ask(const kin_facts *facts, const kin_plan_options *options, const kin_plan_scheduler *scheduler,
                      kin_plan *plan, kin_prediction *prediction, kin_err *err);

// Finds the devices that cannot be used, with a sentence for each ("" for others).
int kin_plan_view_screen(const kin_facts *facts, kin_device_set *refused, char sentences[][KIN_PLAN_EXPLAIN_MAX], kin_err *err);

// Makes the plan. If there is none, the error message also names refused devices.
int kin_plan_view_make(kin_plan_view *view, const kin_facts *facts, const kin_plan_options *options,
                       const kin_plan_scheduler *scheduler, kin_err *err);

// Shows the active plan with its groups, whatever made it (kin_planner_last), and the effect of leaving a device out.
int kin_plan_view_of(kin_plan_view *view, const kin_facts *facts, const kin_plan *plan, const kin_plan_options *options,
                     kin_err *err);

// Returns the bytes of weights that the device's GPU holds, without KV cache and buffers.
double kin_plan_view_gpu_bytes(const kin_plan_view *view, int device);

// Returns the replica: the device with copies of the lost device's pages; the first one of a group.
const char *kin_plan_view_replica(const kin_plan_view *view, int lost);

// Both return new references.
json_t *kin_plan_view_json(const kin_plan_view *view);
json_t *kin_plan_view_work_json(const kin_facts *facts);
