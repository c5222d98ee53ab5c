// Options of a cluster (cluster/cluster.h). All of its parts (cluster/head) read them; none changes them.
#pragma once

#include <stdatomic.h>

#include "cluster/planning.h"
#include "engine/shard_options.h"
#include "model/manifest.h"
#include "net/key.h"
#include "observe/timeline.h"

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
