// The planner's questions and answers, at the head: what is known about devices and links, the membership's question, its answer,
// and which devices the plan leaves out.
//
// Owner: kin_cluster. Its other parts may use `thread`. Thread: the loop's.
#pragma once

#include "cluster/head/link_tests.h"
#include "cluster/head/plans.h"

typedef struct kin_cluster_questions_options {
    const kin_cluster_options *cluster;
    kin_cluster_devices *devices;
    kin_measurements *measurements;
    kin_cluster_plans *plans;
    void (*done)(void *user); // the planning thread has something to take; called there
    void *user;
} kin_cluster_questions_options;

typedef struct kin_cluster_questions {
    kin_cluster_questions_options o;
    kin_planning *thread;
    kin_planner_question *about; // scratch: the question that is made; its facts are also used for measurements
    kin_planning_answer *answer;
    kin_planning_reasons *reasons;                 // the latest reasons why devices have no layers
    uint32_t number;                               // of the latest question
    kin_proto_id left_out[KIN_MEMBERSHIP_DEVICES]; // [n_left_out] devices that were logged as left out
    int n_left_out;
    bool had_plan;       // from then on fewer devices than expected are enough
    kin_err no_plan;     // why the last question had no answer although all expected devices were there; empty: it had one
    kin_time give_up_at; // when to report that; 0: not scheduled
} kin_cluster_questions;

int kin_cluster_questions_open(kin_cluster_questions *questions, const kin_cluster_questions_options *options, kin_err *err);
void kin_cluster_questions_stop(kin_cluster_questions *questions); // ends the thread, which calls `done`; before the loop ends
void kin_cluster_questions_close(kin_cluster_questions *questions);

// Passes the membership's question to the planner.
void kin_cluster_questions_ask(kin_cluster_questions *questions, const kin_membership_action *ask);
// Asks the planner for the plans without each of these devices (indices of the membership).
void kin_cluster_questions_ask_standby(kin_cluster_questions *questions, uint32_t number, const uint8_t *devices, int n_devices);
// Handles the answer and the reasons, if there are any.
void kin_cluster_questions_handle(kin_cluster_questions *questions);

// Notes that the answer to a question has become the active plan.
void kin_cluster_questions_note_active(kin_cluster_questions *questions, uint32_t question);

// Returns what is known about these devices, the head first; without the figures of memory. Valid until the next question.
const kin_facts *kin_cluster_questions_facts(kin_cluster_questions *questions, const kin_proto_id *ids, int n);

// Returns why the cluster gives up; empty: it does not.
kin_err kin_cluster_questions_given_up(const kin_cluster_questions *questions);
// Returns true once, when the cluster gives up.
bool kin_cluster_questions_give_up(kin_cluster_questions *questions, kin_time now);
