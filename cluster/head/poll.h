// Polls of all devices' STATUS, for a request of the computing thread or of another part. A poll ends when all have answered, or
// after half a second.
//
// Owner: the part that polls. Thread: the loop's, except wait.
#pragma once

#include "cluster/connections.h"
#include "net/endpoint.h"
#include "sys/completion.h"

typedef struct kin_cluster_polls { // all polls of a cluster
    kin_connections *connections;
    int n_running;
} kin_cluster_polls;

typedef struct kin_cluster_poll {
    kin_cluster_polls *polls;
    kin_completion completion;
    uint32_t generation; // of the current poll
    kin_time until;      // 0: none is running
} kin_cluster_poll;

void kin_cluster_poll_init(kin_cluster_poll *poll, kin_cluster_polls *polls);
void kin_cluster_poll_fini(kin_cluster_poll *poll);

// Asks the devices.
void kin_cluster_poll_begin(kin_cluster_poll *poll, kin_time now);
// Returns true once, when the poll is over. The caller completes it then.
bool kin_cluster_poll_ends(kin_cluster_poll *poll, kin_time now);

// The computing thread: starts a poll by calling `begin` in the loop's thread, and waits until it is completed.
void kin_cluster_poll_wait(kin_cluster_poll *poll, kin_endpoint *endpoint, kin_mailbox_fn begin, void *arg);
