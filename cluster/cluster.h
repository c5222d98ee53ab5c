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

#include <stdatomic.h>

#include "cluster/planning.h"
#include "model/manifest.h"
#include "net/key.h"
#include "observe/timeline.h"
#include "pipeline/head.h"
#include "pipeline/steps.h"

typedef struct kin_cluster kin_cluster;

typedef struct kin_cluster_options {
    kin_proto_id id;
    const char *name, *version;
    kin_key key;
    const char *listen;                             // numeric address; NULL: all
    uint16_t port;                                  // 0: any
    bool hidden;                                    // does not answer devices that search
    const char *advertise[KIN_PROTO_MAX_ADDRESSES]; // addresses at which others reach the head; none: the one they used
    int n_advertise;

    const kin_model *model;
    const kin_manifest *manifest; // of its files; borrowed, like all pointers here
    const char *const *paths;     // [manifest->n_files]
    const kin_devices *devices;
    kin_shard_options shard; // the windows come from the plan
    kin_activation_type wire_type;
    kin_proto_allreduce allreduce; // for groups
    int n_threads_hint;            // for devices; 0: they decide
    const char *model_name;        // for display; NULL: none
    kin_timeline *timeline;        // records the events of all members; NULL: not used

    int n_expected; // devices to wait for before the first plan; 0: those present after a second of quiet
    bool dry_run;   // no device is given work, see kin_membership_options
    bool gives_up;  // fails if the expected devices are there but cannot form a plan; false: waits for more devices
    const kin_device_facts *facts; // the head's own; NULL: devices and links are not measured
    kin_planner *planner;          // it is called in the planning thread, which may take seconds, except calls.in_force
    kin_planner_calls calls;

    atomic_bool *stop;
    void (*status)(void *user, const char *line); // reports what begin waits for; in the caller's thread
    void *status_user;
} kin_cluster_options;

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
