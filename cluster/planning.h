// Planning in a thread of its own: a planner may take seconds, and the network's thread must answer heartbeats meanwhile.
//
//   loop's thread: ask, tell ─► the latest of each waits ─► planning thread: plan, measured ─► `done` ─► loop's thread: take
//
// A question, or what was measured, takes the place of an older one that still waits. Answers carry the number that came with the
// question, so that one for a question that is over can be told from others.
//
// Owner: the cluster. Thread: the loop's; `plan` to `measured`, and `done`, are called in the planning thread.
#pragma once

#include "pure/plan/correction.h"
#include "pure/plan/explain.h"
#include "pure/plan/manual_plan.h"
#include "pure/plan/rounds.h"
#include "pure/proto/message.h"

// What the planner is asked. Candidates and ids: the head is the last. Facts: only devices and links, the head is the first and
// the others follow as the candidates are; NULL: nobody measured. For the call.
typedef struct kin_cluster_question {
    uint32_t number; // of its answer; 0: that is in force at once
    int n;
    const kin_candidate *candidates; // [n]
    const kin_proto_id *ids;         // [n]
    const kin_facts *facts;
} kin_cluster_question;

// What the members' last tokens took, the head first, as medians, with so many tokens in the cache.
typedef struct kin_cluster_measured {
    int n, n_cached;
    kin_proto_id ids[KIN_ROUNDS_MAX_MEMBERS];
    kin_measured members[KIN_ROUNDS_MAX_MEMBERS];
    const kin_facts *facts; // of these members and their links, as they are known by now; NULL: nothing is measured. For the call
} kin_cluster_measured;

typedef struct kin_planning kin_planning;

typedef struct kin_planning_options {
    int (*plan)(void *user, const kin_cluster_question *question, kin_ring_plan *out, kin_err *err);
    // What the plan would be without candidate i; NULL: it is not asked.
    int (*without)(void *user, const kin_cluster_question *question, int i, kin_ring_plan *out, kin_err *err);
    // Why candidate i has no layers in the last answer, "" where it has; NULL: it is not asked.
    void (*left_out)(void *user, const kin_cluster_question *question, int i, char why[KIN_PLAN_WHY_MAX]);
    bool (*measured)(void *user, const kin_cluster_measured *measured);
    void *user;               // of all four
    void (*done)(void *user); // there is something to take
    void *done_user;
} kin_planning_options;

int kin_planning_open(kin_planning **out, const kin_planning_options *options, kin_err *err);
// Ends its thread, and waits for the planner; any thread. What is asked from then on is not answered. NULL is allowed.
void kin_planning_stop(kin_planning *planning);
// Stops, and frees it, when the loop has ended. NULL is allowed.
void kin_planning_close(kin_planning *planning);

// All copy what they are given.
void kin_planning_ask(kin_planning *planning, uint32_t question, const kin_cluster_question *about);
void kin_planning_tell(kin_planning *planning, uint32_t round, const kin_cluster_measured *measured);

// Asks for the plans without each of the devices; after everything else.
void kin_planning_ask_spares(kin_planning *planning, uint32_t number, const kin_cluster_question *about);

typedef struct kin_planning_answer {
    uint32_t question;
    int n_asked; // candidates of the question
    kin_proto_id ids[KIN_ROUNDS_MAX_MEMBERS];
    bool has_plan;
    kin_ring_plan plan; // of the candidates
    kin_err why;        // there is none
} kin_planning_answer;

// The latest answer, once. False: there is none.
bool kin_planning_take_answer(kin_planning *planning, kin_planning_answer *out);
// After a plan, when nothing else is to be answered: why devices of its question have no layers.
typedef struct kin_planning_reasons {
    uint32_t question;
    int n; // candidates, the head is the last
    kin_proto_id ids[KIN_ROUNDS_MAX_MEMBERS];
    char why[KIN_ROUNDS_MAX_MEMBERS][KIN_PLAN_WHY_MAX]; // "": it has some
} kin_planning_reasons;

bool kin_planning_take_reasons(kin_planning *planning, kin_planning_reasons *out); // the latest, once

// The latest round whose measurements the planner has taken, once, and whether it wants to be asked again. False: there is none.
bool kin_planning_take_round(kin_planning *planning, uint32_t *round, bool *asks);

// Plans without each of the devices of a question.
typedef struct kin_planning_spares {
    uint32_t number;
    int n; // candidates, the head is the last
    kin_proto_id ids[KIN_ROUNDS_MAX_MEMBERS];
    bool has[KIN_ROUNDS_MAX_MEMBERS]; // without candidate i: there is a plan
    kin_ring_plan plans[KIN_ROUNDS_MAX_MEMBERS];
} kin_planning_spares;

bool kin_planning_take_spares(kin_planning *planning, kin_planning_spares *out); // the latest, once
