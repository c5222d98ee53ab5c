// The requests of a cluster's computing thread: it waits for a ring, opens the head's own part of it, and begins and ends
// requests.
//
// Owner: kin_cluster. Thread: the computing one, except where it says otherwise.
#pragma once

#include "cluster/head/board.h"
#include "cluster/head_options.h"
#include "cluster/ring_member.h"
#include "pipeline/loopback.h"
#include "pipeline/remote_ring.h"
#include "sys/completion.h"

typedef struct kin_cluster_requests_options {
    const kin_cluster_options *cluster;
    kin_ring_member *ring;
    kin_cluster_board *board;
    // Functions for the loop's thread, of `user`. `begins` completes `beginning` with true if the epoch `wanted_epoch` is still
    // up.
    kin_mailbox_fn begins, ends;
    kin_mailbox_fn wrong; // the last member's message was invalid: the board says why
    void *user;
} kin_cluster_requests_options;

typedef struct kin_cluster_requests {
    kin_cluster_requests_options o;
    kin_cluster_snapshot *seen; // the snapshot for which the shard is open
    kin_local_stage *local_stage;
    kin_loopback *loopback;
    kin_remote_ring remote;
    kin_head *head;
    uint32_t epoch;
    bool in_request;
    void (*meanwhile)(void *user); // called while it waits for the ring; NULL: none
    void *meanwhile_user;

    kin_completion beginning; // any thread; result: whether the request of `wanted_epoch` has begun
    atomic_uint wanted_epoch;
} kin_cluster_requests;

int kin_cluster_requests_open(kin_cluster_requests *requests, const kin_cluster_requests_options *options, kin_err *err);
void kin_cluster_requests_close(kin_cluster_requests *requests); // after the loop has ended

// See kin_cluster_begin and kin_cluster_end.
int kin_cluster_requests_begin(kin_cluster_requests *requests, kin_err *err);
void kin_cluster_requests_end(kin_cluster_requests *requests);
