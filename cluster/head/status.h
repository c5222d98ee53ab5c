// Reports to status clients, and the devices' rows and events in the timeline.
//
// Owner: kin_cluster. Thread: the loop's, except ask and gather.
#pragma once

#include "cluster/head/devices.h"
#include "cluster/head/pages.h"
#include "cluster/head/plans.h"
#include "cluster/head/poll.h"
#include "cluster/ring_member.h"
#include "observe/status_subscribers.h"
#include "pipeline/local_stage.h"

// A query for the status from this process. Any thread sets it if none is pending, the loop's thread takes it.
typedef struct kin_cluster_status_query {
    atomic_bool is_pending;
    kin_status_report_fn receive;
    void *user;
} kin_cluster_status_query;

typedef struct kin_cluster_status_options {
    const kin_cluster_options *cluster;
    const kin_cluster_devices *devices;
    const kin_cluster_plans *plans;
    const kin_cluster_pages *pages;
    const kin_ring_member *ring;
    kin_local_stage *local_stage;
    kin_cluster_polls *polls;
} kin_cluster_status_options;

typedef struct kin_cluster_status {
    kin_cluster_status_options o;
    kin_status_subscribers *subscribers;
    kin_status_sample own_sample; // like the devices' samples
    kin_cluster_status_query query;
    kin_time begun, counted_at; // counted_at: when tokens were counted last
    uint64_t counted;
    double tokens_per_s;
    kin_cluster_poll gather; // for the devices' last events
} kin_cluster_status;

int kin_cluster_status_open(kin_cluster_status *status, const kin_cluster_status_options *options, kin_err *err);
void kin_cluster_status_end(kin_cluster_status *status, const char *reason); // ends the clients' links
void kin_cluster_status_close(kin_cluster_status *status);

// Call it ten times a second.
void kin_cluster_status_tick(kin_cluster_status *status, kin_time now);
void kin_cluster_status_accept(kin_cluster_status *status, kin_link *link); // a client's

// Gives the members rows in the timeline, in the order of the ring.
void kin_cluster_status_name_rows(const kin_cluster_status *status);
// Handles a device's EVENTS.
void kin_cluster_status_handle_events(kin_cluster_status *status, uint32_t from, const kin_proto_events *m);

// Any thread; see kin_cluster_ask_status.
void kin_cluster_status_ask(kin_cluster_status *status, kin_status_report_fn receive, void *user);
// The computing thread: waits until the devices' events so far are in the timeline.
void kin_cluster_status_gather(kin_cluster_status *status);
