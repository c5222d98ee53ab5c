// Standby weights: what the others would need if a device were lost. The planner is asked for the plans without each device, and
// devices fetch what those plans would give them (PREFETCH), slowly while requests run.
//
// Owner: kin_cluster. Thread: the loop's.
#pragma once

#include "cluster/head/questions.h"

typedef struct kin_cluster_standby {
    const kin_cluster_options *o;
    const kin_cluster_devices *devices;
    const kin_cluster_plans *plans;
    kin_cluster_questions *questions;
    uint32_t epoch; // 0: none; the epoch and number of devices that standby is for
    int n_devices;
    kin_time since; // when both were seen first
    bool is_asked, is_known, rate_limited;
    uint32_t ticket;
    kin_time busy_at;                 // the last time a request ran
    kin_planning_standby *answer;     // the planner's
    bool has[KIN_MEMBERSHIP_DEVICES]; // by device index of the membership: it has everything, or cannot get it
    kin_assignment *scratch;
} kin_cluster_standby;

int kin_cluster_standby_open(kin_cluster_standby *standby, const kin_cluster_options *options, const kin_cluster_devices *devices,
                             const kin_cluster_plans *plans, kin_cluster_questions *questions, kin_err *err);
void kin_cluster_standby_close(kin_cluster_standby *standby);

bool kin_cluster_standby_is_quiet(kin_cluster_standby *standby, kin_time now); // no request for a second
void kin_cluster_standby_tick(kin_cluster_standby *standby, kin_time now);     // ten times a second
void kin_cluster_standby_handle(kin_cluster_standby *standby);                 // handles the planner's answer, if there is one
// Handles a device's answer to PREFETCH. False: it is not about standby weights.
bool kin_cluster_standby_handle_answer(kin_cluster_standby *standby, uint32_t from, const kin_proto_prefetched *m);
