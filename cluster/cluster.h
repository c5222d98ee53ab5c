// A cluster: the head's side of a ring with other devices. It admits devices, plans, opens the head's own shard, and gives the
// head (pipeline/head.h) a transport to the others for the duration of an epoch.
//
// Two threads: the caller's computes and owns shard and head; the endpoint's has the links and the membership
// (pure/proto/membership.h).
//
//   kin_cluster_begin ─► requests by kin_cluster_head ─► kin_cluster_end, repeatedly
//
// When a device is lost, the request fails with a sentence that names it. The cluster stays open: the next begin waits until a
// ring of the remaining devices is up. cluster/compute_loop.h turns the loss into a pause.
//
// Owner and thread: the computing thread.
#pragma once

#include "cluster/head_options.h"
#include "pipeline/head.h"

typedef struct kin_cluster kin_cluster;

int kin_cluster_open(kin_cluster **out, const kin_cluster_options *options, kin_err *err);
void kin_cluster_close(kin_cluster *cluster);

uint16_t kin_cluster_port(const kin_cluster *cluster);

// Sets a function that is called about every 100 ms while kin_cluster_begin waits, in the caller's thread. NULL: none.
void kin_cluster_set_meanwhile(kin_cluster *cluster, void (*meanwhile)(void *user), void *user);

// Waits until the ring is up. KIN_FAIL: stopped, the head cannot do its own part, or the cluster gave up (gives_up).
int kin_cluster_begin(kin_cluster *cluster, kin_err *err);
void kin_cluster_end(kin_cluster *cluster);
// True if a better plan waits for kin_cluster_end.
bool kin_cluster_yields(const kin_cluster *cluster);

// Waits until the planner knows what the last tokens took: at most half a second for the devices' answers, plus the time to check
// whether another plan would win. This also happens after each request.
void kin_cluster_measure(kin_cluster *cluster);

// Waits, for at most half a second, until the devices' events so far are in the timeline.
void kin_cluster_gather(kin_cluster *cluster);

// Any thread: asks for the status of head and devices. Calls `take` in another thread, within about half a second, with JSON
// (observe/status_json.h) that `take` must free; NULL: out of memory. Calls made before that are ignored. `take` is not called
// after close has returned.
void kin_cluster_ask_status(kin_cluster *cluster, void (*receive)(void *user, char *text), void *user);

// Any thread: wakes the thread that waits for a step of the ring (kin_head_receive), so that it checks for other work.
void kin_cluster_wake(kin_cluster *cluster);

// Valid until close; for use between begin and end.
kin_head *kin_cluster_head(kin_cluster *cluster);
kin_shard *kin_cluster_shard(kin_cluster *cluster); // the head's own, of the active plan; NULL before the first

int kin_cluster_n_members(const kin_cluster *cluster); // including the head
