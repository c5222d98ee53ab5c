// A cluster: the head's side of a ring over other devices. It lets devices join, plans, opens the head's own shard, and gives
// the head (pipeline/head.h) a transport to the others while an epoch lasts.
//
// Two threads: the caller's computes and owns shard and head; the endpoint's has the links and the membership
// (pure/proto/membership.h).
//
//   kin_cluster_begin ─► requests by kin_cluster_head ─► kin_cluster_end, and again
//
// When a device is lost, the request fails with a sentence that names it. The cluster stays: the next begin waits until the
// ring is up again, with who is there by then. node/compute_loop.h makes a pause of it.
//
// Owner and thread: the computing thread; `plan` and `measured` are called in one of their own, and may take seconds.
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
    const char *listen;                             // numeric address, NULL: all
    uint16_t port;                                  // 0: any
    bool hidden;                                    // do not answer devices that search
    const char *advertise[KIN_PROTO_MAX_ADDRESSES]; // where others reach the head; none: where they reached it
    int n_advertise;

    const kin_model *model;
    const kin_manifest *manifest; // of its files; borrowed, as all here
    const char *const *paths;     // [manifest->n_files]
    const kin_devices *devices;
    kin_shard_options shard; // the windows are the plan's
    kin_activation_type wire_type;
    kin_proto_allreduce allreduce; // of groups
    int n_threads_hint;            // for devices; 0: their own choice
    const char *model_name;        // for people; NULL: none
    kin_timeline *timeline;        // filled with what all do; NULL: not used

    int n_expected;                // devices to wait for before the first plan; 0: whoever is there after a second of quiet
    bool only_looks;               // nobody is given work, see kin_membership_options
    bool gives_up;                 // when those are there and make no plan; else others are waited for
    const kin_device_facts *facts; // the head's own; NULL: devices and links are not measured
    int (*plan)(void *user, const kin_cluster_question *question, kin_ring_plan *out, kin_err *err);
    // What the plan would be without candidate i. NULL: nothing is prepared for that.
    int (*without)(void *user, const kin_cluster_question *question, int i, kin_ring_plan *out, kin_err *err);
    // Why candidate i has no layers in the last answer; "": it has. NULL: devices without layers are not told.
    void (*left_out)(void *user, const kin_cluster_question *question, int i, char why[KIN_PLAN_WHY_MAX]);
    // After requests. True: the planner wants to be asked again. NULL: not used.
    bool (*measured)(void *user, const kin_cluster_measured *measured);
    // The answer to that question is in force from now on. In the loop's thread, which must not wait. NULL: not used.
    void (*in_force)(void *user, uint32_t question);
    void *plan_user; // of all five; all but the last are called in a thread of their own, one at a time

    atomic_bool *stop;
    void (*status)(void *user, const char *line); // what begin waits for; in the caller's thread
    void *status_user;
} kin_cluster_options;

int kin_cluster_open(kin_cluster **out, const kin_cluster_options *options, kin_err *err);
void kin_cluster_close(kin_cluster *cluster);

uint16_t kin_cluster_port(const kin_cluster *cluster);

// What is called every 100 ms or so while kin_cluster_begin waits, in the caller's thread. NULL: nothing is.
void kin_cluster_set_meanwhile(kin_cluster *cluster, void (*meanwhile)(void *user), void *user);

// Waits until the ring is up. KIN_FAIL: stopped, or the head itself cannot do its part, or it gives up.
int kin_cluster_begin(kin_cluster *cluster, kin_err *err);
void kin_cluster_end(kin_cluster *cluster);
// A better plan waits for kin_cluster_end.
bool kin_cluster_yields(const kin_cluster *cluster);

// Waits until the planner knows what the last tokens took: half a second at most for the devices' answers, and as long as it
// takes to see whether another plan would win. Happens by itself after each request.
void kin_cluster_measure(kin_cluster *cluster);

// Waits, for at most half a second, until what the devices did so far is in the timeline.
void kin_cluster_gather(kin_cluster *cluster);

// Any thread: asks how head and devices are. `take` is called in another thread, at most about half a second later, with JSON
// (observe/status_json.h) that it frees; NULL: out of memory. One at a time: until then another call does nothing. Not called any
// more when close has returned.
void kin_cluster_ask_status(kin_cluster *cluster, void (*take)(void *user, char *text), void *user);

// Any thread: who waits for a step of the ring goes on without it (kin_head_receive), to look what else there is to do.
void kin_cluster_wake(kin_cluster *cluster);

// Valid until close; to be used between begin and end.
kin_head *kin_cluster_head(kin_cluster *cluster);
kin_shard *kin_cluster_shard(kin_cluster *cluster); // the head's own, of the plan in force; NULL before the first

int kin_cluster_n_members(const kin_cluster *cluster); // with the head
