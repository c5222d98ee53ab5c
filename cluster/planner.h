// The planner: assigns layers to devices whenever the cluster asks. By measurement (a scheduler of pure/plan), by rule (even,
// memory) or by a manual plan; and predicts the time of a token.
//
//   question (devices, links) ─► facts ─► corrections by earlier tokens ─► scheduler ─► plan ─► prediction
//                                                      ▲                                            │
//                                                      └────────── measured / predicted ◄───────────┘
//
// The active plan stays until another one is better by a margin, so that noise has no effect. An answer is a proposal until the
// cluster reports that it is active: its weights are fetched first, while the active ring continues; that ring's tokens are
// measured, and its order counts. A single machine is a question with one device: the same prediction and corrections.
//
// Owner: the session. Thread: any; a mutex guards it. The cluster asks in a thread of its own (planning.h), the commands inspect
// it from theirs.
#pragma once

#include "pure/plan/batching.h"
#include "pure/plan/correction.h"
#include "pure/plan/explain.h"
#include "pure/plan/manual_plan.h"
#include "pure/plan/scheduler.h"
#include "pure/proto/id.h"

typedef struct kin_planner_options {
    const char *plan;              // "auto", "even", "memory", "tp", or the file of `manual`
    const kin_manual_plan *manual; // copied; NULL: none
    const char *scheduler;         // for "auto": a name of pure/plan/scheduler.h
    const char *halda;             // its objective: "published" or "released"; NULL: published. Only for that scheduler
    const char *accept;            // for "auto", rule for replacing the active plan: "margin" (5 %) or "thesis"
    double hold_s;                 // how long a device that lost layers is not assumed to be faster, at first (120 s)
    int n_rounds;                  // 0: the scheduler chooses; by rule: 1
    const char *head_name;
    bool begins_alone; // the head has work before the first device joins
    bool dry_run;      // no device gets work (the answer is the head alone); the facts are stored
} kin_planner_options;

kin_planner_options kin_planner_options_defaults(void);

// True if `plan` is one of the words, not a file.
bool kin_planner_is_word(const char *plan);

typedef struct kin_planner kin_planner;

// A question to the planner. Device 0 is the head, in facts too, which have only devices and links.
typedef struct kin_planner_question {
    uint32_t number; // of the question; 0: the answer is active at once
    int n;
    kin_candidate candidates[KIN_FACTS_MAX_DEVICES]; // [n]
    kin_proto_id ids[KIN_FACTS_MAX_DEVICES];         // [n]
    bool has_facts;                                  // measured
    kin_facts facts;
} kin_planner_question;

// Medians of what the members' last tokens took, the head first, with n_cached tokens in the cache.
typedef struct kin_planner_measured {
    int n, n_cached;
    kin_proto_id ids[KIN_FACTS_MAX_DEVICES];
    kin_measured members[KIN_FACTS_MAX_DEVICES];
    const kin_facts *facts; // of these members and their links, as known now; NULL: not measured. Valid for the call
} kin_planner_measured;

// model, work: copied.
int kin_planner_open(kin_planner **out, const kin_planner_options *options, const kin_model_facts *model,
                     const kin_work_facts *work, kin_err *err);
void kin_planner_close(kin_planner *planner); // NULL is allowed

// Returns the number of devices that a manual plan names, without the head.
int kin_planner_n_named(const kin_planner *planner);

// Answers the question, in its numbers of devices.
int kin_planner_ask(kin_planner *planner, const kin_planner_question *question, kin_plan *out, kin_err *err);

// Marks the answer to that question as active. Any thread; never blocks.
void kin_planner_in_force(kin_planner *planner, uint32_t question);

// Plans without device i of the question, which must not be the head. The active plan stays unchanged.
int kin_planner_without(kin_planner *planner, const kin_planner_question *question, int i, kin_plan *out, kin_err *err);

// Sets the plan of a single machine: this division of all layers between its CPU and GPU.
int kin_planner_set_standalone(kin_planner *planner, const kin_device_facts *device, const kin_layer_share *share, kin_err *err);

// As above, with the division that the scheduler finds best. Fails if it finds no plan; then there is no prediction.
int kin_planner_choose_standalone(kin_planner *planner, const kin_device_facts *device, kin_layer_share *share, kin_err *err);

// Explains why device i of the question, not the head, has no layers in the last answer. "": it has, or the reason is not
// known. In the thread of kin_planner_ask.
void kin_planner_left_out(kin_planner *planner, const kin_planner_question *question, int i, char why[KIN_PLAN_WHY_MAX]);

// Takes medians of the last tokens, for devices by their id. True: the facts have changed so much that asking again is worth it.
bool kin_planner_add_measured(kin_planner *planner, const kin_planner_measured *measured);

// The prediction for the active plan, by the facts alone and with the corrections since. False: no prediction, because there is
// no plan or a device is not measured.
typedef struct kin_expectation {
    kin_prediction before, corrected;
} kin_expectation;
bool kin_planner_expects(kin_planner *planner, kin_expectation *out);

// Finds the best division of n_sequences sequences into steps with the active plan (pure/plan/batching.h). n_cached: tokens of
// each; -1: its share of the work's n_cached. False: not known, or a plan is being made.
bool kin_planner_batching(kin_planner *planner, int n_sequences, int n_cached, int most, kin_batching *out);

// Returns kin_prompt_chunk_worth of the active plan; 0: not known, or a plan is being made.
int kin_planner_chunk_worth(kin_planner *planner);

// Returns the facts of the active plan, uncorrected, and the plan (none in a dry run). False: there is no plan yet.
bool kin_planner_last(kin_planner *planner, kin_facts *facts, kin_plan *plan);

// Waits for the next question, for at most `ns`.
void kin_planner_wait(kin_planner *planner, uint64_t ns);

// The functions that a cluster calls. Tests replace some of them; a function that is NULL is not called.
typedef struct kin_planner_calls {
    int (*ask)(kin_planner *planner, const kin_planner_question *question, kin_plan *out, kin_err *err);
    int (*without)(kin_planner *planner, const kin_planner_question *question, int i, kin_plan *out, kin_err *err);
    void (*left_out)(kin_planner *planner, const kin_planner_question *question, int i, char why[KIN_PLAN_WHY_MAX]);
    bool (*add_measured)(kin_planner *planner, const kin_planner_measured *measured);
    void (*in_force)(kin_planner *planner, uint32_t question);
} kin_planner_calls;

kin_planner_calls kin_planner_calls_of(bool is_measured); // not measured: without add_measured
