// An engine instance: what a device runs its part of a plan with: model file, compute devices, shard, and the worker over them.
// With a remote engine: only the model's header, and the checks of the engine's answers.
//
// Owner and thread: the computing thread.
#pragma once

#include <stdatomic.h>

#include "engine/shard.h"
#include "pipeline/remote_engine.h"
#include "pipeline/worker.h"
#include "pure/plan/window.h"

typedef struct kin_engine_instance kin_engine_instance;

typedef struct kin_engine_instance_options {
    const char *model_path; // the first file
    bool in_parts;          // the file holds only what the plan needs
    const char *cache_dir;  // for prepacked weights; NULL: none
    uint64_t cache_cap;
    kin_kv_disk kv_disk;
    uint64_t memory; // limit for this device; 0: none
    int n_threads;   // 0: from the plan, else one per core
    bool no_gpu;
    const kin_arrival *arrival; // for weights that are not in the files yet, borrowed until close; NULL: all are there
    kin_sum sum;                // for plans with a group; zeros: this device takes part in none
    kin_message_pool *pool;
    kin_message_queue *in;           // see kin_worker_set_queue; NULL: not used
    const kin_remote_engine *remote; // computes instead of this process, borrowed; NULL: none
    atomic_bool *stop;
    atomic_uint *n_signs; // see kin_device_options
    kin_progress progress;
    void *progress_user;
} kin_engine_instance_options;

// Opens the instance. The plan comes from a peer: it is checked against the model and this machine. With an arrival this returns
// when the first window's weights are here; steps wait for the others.
int kin_engine_instance_open(kin_engine_instance **out, const kin_proto_plan *plan, const kin_engine_instance_options *options,
                             kin_err *err);
void kin_engine_instance_close(kin_engine_instance *instance);

// Packs ahead (a remote engine: prefetches) what an instance for this plan will need, except the layers in `but`; see
// kin_shard_prepack. All weights must be in the files. Any thread.
int kin_engine_instance_prepack(const kin_proto_plan *plan, const kin_engine_instance_options *options, const kin_windows *but,
                                const atomic_bool *stop, kin_packed **held, kin_err *err);

// See kin_worker_handle.
int kin_engine_instance_handle(kin_engine_instance *instance, kin_message_buffer **buffer, kin_err *err);
bool kin_engine_instance_got_wrong(const kin_engine_instance *instance); // see kin_worker_got_wrong
// Resets to the state after open: no step, an empty KV cache. Only a remote engine may fail.
int kin_engine_instance_reset(kin_engine_instance *instance, kin_err *err);
kin_worker_stats kin_engine_instance_worker_stats(const kin_engine_instance *instance);

// NULL, or not meaningful, with a remote engine.
kin_worker *kin_engine_instance_worker(kin_engine_instance *instance);
bool kin_engine_instance_passes_early(const kin_engine_instance *instance); // see kin_worker_pass_early
kin_stage_executor *kin_engine_instance_executor(kin_engine_instance *instance);
int kin_engine_instance_n_embd(const kin_engine_instance *instance); // kin_border_most of its model
int kin_engine_instance_n_rounds(const kin_engine_instance *instance);

// Zeros for a relay; for a remote engine the sizes that it reported when it was opened.
kin_shard_stats kin_engine_instance_stats(const kin_engine_instance *instance);

// See kin_shard_get_memory.
bool kin_engine_instance_get_memory(const kin_engine_instance *instance, kin_shard_memory *memory);

// Returns when weights were read from the disk, and waited for: see kin_stream_pop_intervals.
size_t kin_engine_instance_pop_intervals(kin_engine_instance *instance, kin_stream_record record, kin_interval *out,
                                         size_t n_max);

// Converts the windows of a plan and their rounds. Fails if they do not fit a model with n_layer layers.
int kin_engine_instance_windows(const kin_proto_plan *plan, int n_layer, kin_member_windows *out, kin_err *err);

// Returns the device's share of these layers, as in the plan; not checked.
kin_share kin_engine_instance_share(const kin_proto_plan *plan);

// Returns the parameters that all steps of the plan's ring share.
kin_steps kin_engine_instance_steps(const kin_proto_plan *plan, const kin_hparams *hp);
