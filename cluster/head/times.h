// Collects the time that a token takes on each member of the ring: devices are polled, and the planner corrects its predictions
// by their answers.
//
// Owner: kin_cluster. Thread: the loop's, except wait.
#pragma once

#include "cluster/head/poll.h"
#include "cluster/head/questions.h"
#include "pipeline/head.h"

typedef struct kin_cluster_times {
    const kin_cluster_options *o;
    kin_cluster_devices *devices;
    const kin_cluster_plans *plans;
    kin_cluster_questions *questions;
    const kin_head_counts *counts;
    kin_cluster_poll poll;
    kin_time measured_at; // when the last poll ended, or the first request of the ring began
    int n_measured;       // in this ring
    uint32_t epoch;       // of the last request
} kin_cluster_times;

void kin_cluster_times_init(kin_cluster_times *times, const kin_cluster_options *options, kin_cluster_devices *devices,
                            const kin_cluster_plans *plans, kin_cluster_questions *questions, const kin_head_counts *counts,
                            kin_cluster_polls *polls);
void kin_cluster_times_fini(kin_cluster_times *times);

// Call it when a request begins in this epoch.
void kin_cluster_times_begin(kin_cluster_times *times, uint32_t epoch, kin_time now);
// Polls the members' times now.
void kin_cluster_times_measure(kin_cluster_times *times);
// Call it ten times a second. is_computing: a request runs.
void kin_cluster_times_tick(kin_cluster_times *times, kin_time now, bool is_computing);
// Handles what the planner made of the times: it may want to be asked again.
void kin_cluster_times_handle(kin_cluster_times *times);

// The computing thread: measures, and waits until the planner knows the times.
void kin_cluster_times_wait(kin_cluster_times *times, kin_endpoint *endpoint);
