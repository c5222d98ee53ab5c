// Planning in a separate thread: a planner may take seconds, and the network thread must answer heartbeats meanwhile.
//
//   loop's thread: ask, tell ─► the latest of each is pending ─► planning thread: the planner ─► `done` ─► loop's thread: take
//
// A question, or a measurement, replaces an older pending one. Answers carry the number of the question, so that outdated ones
// can be recognized.
//
// Owner: the cluster. Thread: the loop's; the planner and `done` are called in the planning thread.
#pragma once

#include "cluster/planner.h"

typedef struct kin_planning kin_planning;

typedef struct kin_planning_options {
    kin_planner *planner;
    kin_planner_calls calls;
    void (*done)(void *user); // there is something to take
    void *user;
} kin_planning_options;

int kin_planning_open(kin_planning **out, const kin_planning_options *options, kin_err *err);
// Ends the thread, and waits for the planner; any thread. Later questions are not answered. NULL is allowed.
void kin_planning_stop(kin_planning *planning);
// Stops and frees it, after the loop has ended. NULL is allowed.
void kin_planning_close(kin_planning *planning);

// These copy their arguments.
void kin_planning_ask(kin_planning *planning, const kin_planner_question *question);
void kin_planning_add_measurement(kin_planning *planning, uint32_t round, const kin_planner_measured *measured);

// Asks for the plans without each of the devices; the lowest priority.
void kin_planning_ask_standby(kin_planning *planning, const kin_planner_question *question);

typedef struct kin_planning_answer {
    uint32_t question;
    int n; // devices in the question; 0 is the head
    kin_proto_id ids[KIN_FACTS_MAX_DEVICES];
    bool has_plan;
    kin_plan plan;
    kin_err why; // why there is no plan
} kin_planning_answer;

// Takes the latest answer. Returns false if none has arrived since the last call.
bool kin_planning_pop_answer(kin_planning *planning, kin_planning_answer *out);
// Why devices of the last question have no layers; computed after a plan, when no question is pending.
typedef struct kin_planning_reasons {
    uint32_t question;
    int n; // devices of the question
    kin_proto_id ids[KIN_FACTS_MAX_DEVICES];
    char why[KIN_FACTS_MAX_DEVICES][KIN_PLAN_WHY_MAX]; // "": it has layers
} kin_planning_reasons;

bool kin_planning_pop_reasons(kin_planning *planning, kin_planning_reasons *out); // the latest, once

// Returns, once, the latest round whose measurements the planner has processed, and whether it wants to be asked again. False:
// none.
bool kin_planning_pop_round(kin_planning *planning, uint32_t *round, bool *asks);

// Standby plans: one without each of the devices of a question.
typedef struct kin_planning_standby {
    uint32_t number;
    int n; // devices of the question
    kin_proto_id ids[KIN_FACTS_MAX_DEVICES];
    bool has[KIN_FACTS_MAX_DEVICES]; // there is a plan without device i
    kin_plan plans[KIN_FACTS_MAX_DEVICES];
} kin_planning_standby;

bool kin_planning_pop_standby(kin_planning *planning, kin_planning_standby *out); // the latest, once
