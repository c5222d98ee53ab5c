// The planner: who gets which layers, whenever the cluster asks. By measurement (a scheduler of pure/plan), by rule (even,
// memory) or as a person wrote it; and what a token is expected to take.
//
//   question (devices, links, who is there) ─► facts ─► corrections of earlier tokens ─► scheduler ─► plan ─► prediction
//                                                           ▲                                            │
//                                                           └────────── measured / predicted ◄───────────┘
//
// A plan in force stays until another one is better by a margin, so that noise moves nothing. An answer is a proposal until the
// cluster says that it is in force: weights are fetched for it first, beside the ring in force, whose tokens are measured and
// whose places count meanwhile. A machine on its own is a question with one device: the same prediction and corrections.
//
// Owner: the session. Thread: any; a mutex guards it. The cluster asks in a thread of its own, the commands look from theirs.
#pragma once

#include "cluster/cluster.h"
#include "pure/plan/batching.h"
#include "pure/plan/correction.h"
#include "pure/plan/group.h"
#include "pure/plan/latency.h"
#include "pure/plan/manual_plan.h"
#include "pure/plan/scheduler.h"

typedef struct kin_planner_options {
    const char *plan;      // "auto", "even", "memory" or a file
    const char *scheduler; // of "auto": a name of pure/plan/scheduler.h
    const char *accept;    // when another plan of "auto" takes the place of the one in force: "margin" (5 %) or "thesis"
    double hold_s;         // a device that lost layers is not planned with as a faster one for so long at first (120 s)
    int n_rounds;          // 0: the scheduler chooses; by rule: 1
    const char *head_name;
    bool begins_alone; // the head has work before the first device joins
    bool only_looks;   // gives nobody work (the answer is the head alone), and remembers the facts
} kin_planner_options;

kin_planner_options kin_planner_options_defaults(void);

typedef struct kin_planner kin_planner;

// model, work: copied.
int kin_planner_open(kin_planner **out, const kin_planner_options *options, const kin_model_facts *model,
                     const kin_work_facts *work, kin_err *err);
void kin_planner_close(kin_planner *planner); // NULL is allowed

// Devices that a plan by hand names, beside the head.
int kin_planner_n_named(const kin_planner *planner);

// The cluster's question (kin_cluster_options.plan).
int kin_planner_ask(kin_planner *planner, const kin_cluster_question *question, kin_ring_plan *out, kin_err *err);

// The answer to that question is in force from now on. Any thread; waits for nothing.
void kin_planner_in_force(kin_planner *planner, uint32_t question);

// What the plan would be without candidate i of the question, which is not the head. The plan in force stays what it is.
int kin_planner_without(kin_planner *planner, const kin_cluster_question *question, int i, kin_ring_plan *out, kin_err *err);

// A machine on its own has `n_gpu` layers on its GPU, all others on its CPU.
int kin_planner_set_alone(kin_planner *planner, const kin_device_facts *device, int n_gpu, kin_err *err);

// Or as many as the scheduler finds best. Fails where it finds no plan; then nothing is expected.
int kin_planner_choose_alone(kin_planner *planner, const kin_device_facts *device, int *n_gpu, kin_err *err);

// Why candidate i of the question, not the head, has no layers in the last answer. "": it has, or that is not known.
// In the thread of kin_planner_ask.
void kin_planner_left_out(kin_planner *planner, const kin_cluster_question *question, int i, char why[KIN_PLAN_WHY_MAX]);

// Medians of the last tokens, of devices as the question had them. True: the facts have moved so far that it is worth asking
// again.
bool kin_planner_take_measured(kin_planner *planner, const kin_cluster_measured *measured);

// What the plan in force was expected to take, by the facts alone, and with what was learned since. False: nothing is expected,
// because there is no plan or no measurement of some device.
typedef struct kin_expectation {
    kin_prediction before, corrected;
} kin_expectation;
bool kin_planner_expects(kin_planner *planner, kin_expectation *out);

// How n_texts texts are best divided with the plan in force, by the same (pure/plan/batching.h). n_cached: tokens that each has;
// -1: its share of those that work was told of. False: not known, or not now, because a plan is being made.
bool kin_planner_batching(kin_planner *planner, int n_texts, int n_cached, int most, kin_batching *out);

// kin_prompt_chunk_worth of the plan in force; 0: not known, or not now.
int kin_planner_chunk_worth(kin_planner *planner);

// The facts that the plan in force was made of, uncorrected, its groups, and the plan of the facts with these (none, where it
// only looks). grouping: NULL is allowed. False: there is none yet.
bool kin_planner_last(kin_planner *planner, kin_facts *facts, kin_grouping *grouping, kin_plan *plan);

// Waits for the next question, at most so long.
void kin_planner_wait(kin_planner *planner, uint64_t ns);
