// The head's cluster for the commands: its options, and opening all that it needs (key, content hash).
#pragma once

#include "cluster/cluster.h"
#include "cluster/console.h"
#include "cluster/identity.h"
#include "cluster/planner.h"

typedef struct kin_fleet_options {
    bool cluster; // lets other devices join
    kin_identity_options net;
    int n_devices;         // devices to wait for; 0: those present after a second
    bool begins_alone;     // ... or none at all; else waits for at least one device
    const char *plan;      // "auto", "even", "memory" or a file
    const char *scheduler; // for "auto"
    const char *halda;     // for the scheduler of that name: see kin_planner_options
    const char *accept;    // for "auto": see kin_planner_options
    int n_rounds;          // for all plans but a file; 0: the scheduler chooses; by rule: 1
    const char *wire;      // "f32", "f16" or "q8"
    const char *allreduce; // for groups: "mesh", "star", "tree" or "ring"
    int n_chunk;           // 0: what suits the ring
    bool hidden;
} kin_fleet_options;

kin_fleet_options kin_fleet_options_defaults(void);

typedef struct kin_fleet {
    const kin_console *console;
    kin_fleet_options o;
    kin_identity self;
    kin_manifest manifest;
    const char *paths[KIN_PROTO_MAX_FILES];
    kin_planner *planner;
    kin_cluster *cluster;
} kin_fleet;

// What the session has opened: model, devices, and the options of the head's own shard.
typedef struct kin_fleet_base {
    const kin_console *console;
    const kin_model *model;
    const kin_devices *devices;
    kin_shard_options shard;
    const char *model_name; // for display
    kin_timeline *timeline; // NULL: none
    const char *cache_dir;  // for content hashes; NULL: none
    const kin_model_facts *model_facts;
    const kin_work_facts *work;
    const kin_device_facts *facts; // the head's own; NULL: nothing is measured, so plan auto is impossible
    bool dry_run;                  // see kin_planner_options
} kin_fleet_base;

// Returns the format named by `wire`.
kin_activation_type kin_fleet_wire_type(const kin_fleet_options *o);

int kin_fleet_open(kin_fleet *fleet, const kin_fleet_options *o, const kin_fleet_base *base, kin_err *err);
void kin_fleet_close(kin_fleet *fleet); // a zeroed fleet is allowed

// Computes the content hash of a model's files, with progress; the next time it comes from the cache.
int kin_fleet_hash(kin_manifest *manifest, const char **paths, const kin_model *model, const char *cache_dir,
                   const kin_console *console, kin_err *err);
