#include "pipeline/local_stage.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/steps.h"
#include "sys/memory.h"

enum { PUBLISH_NS = 100000000 };

struct kin_local_stage {
    kin_local_stage_options o;
    kin_member_windows windows;
    int n_rounds;
    uint64_t memory;
    kin_shard *shard;
    kin_stage_executor *part;
    kin_head_counts counts;
    kin_time published;

    pthread_mutex_t mutex; // over the following
    kin_shard_stats shard_stats;
};

int kin_local_stage_open(kin_local_stage **out, const kin_local_stage_options *o, kin_err *err) {
    kin_local_stage *own = *out = calloc(1, sizeof *own);
    if (!own) return kin_err_set(err, "out of memory");
    own->o = *o;
    pthread_mutex_init(&own->mutex, NULL);
    return 0;
}

static void close_work(kin_local_stage *own) {
    kin_stage_executor_close(own->part);
    kin_shard_close(own->shard);
    own->part = NULL;
    own->shard = NULL;
}

void kin_local_stage_close(kin_local_stage *own) {
    if (!own) return;
    close_work(own);
    pthread_mutex_destroy(&own->mutex);
    free(own);
}

static bool is_same(const kin_local_stage *own, const kin_member_windows *windows, int n_rounds, uint64_t memory) {
    const kin_windows *a = &own->windows.windows, *b = &windows->windows;
    return own->part && own->n_rounds == n_rounds && own->memory == memory && a->n == b->n &&
           memcmp(a->at, b->at, (size_t)a->n * sizeof a->at[0]) == 0 &&
           memcmp(own->windows.rounds, windows->rounds, (size_t)a->n * sizeof windows->rounds[0]) == 0;
}

int kin_local_stage_set(kin_local_stage *own, const kin_member_windows *windows, int n_rounds, uint64_t memory, kin_err *err) {
    if (is_same(own, windows, n_rounds, memory)) {
        kin_stage_executor_reset(own->part);
        return 0;
    }
    close_work(own);
    own->windows = *windows;
    own->n_rounds = n_rounds;
    own->memory = memory;
    kin_shard_options so = own->o.shard;
    so.windows = windows->windows;
    so.output = true;
    so.n_steps = KIN_STEPS_IN_FLIGHT;
    if (memory && (!so.memory || memory < so.memory)) so.memory = memory;
    if (kin_shard_open(&own->shard, own->o.model, own->o.devices, &so, err) != 0) return KIN_FAIL;
    kin_stage_executor_options po = {.shard = windows->windows.n ? own->shard : NULL,
                                     .windows = windows->windows,
                                     .rounds = windows->rounds,
                                     .n_rounds = n_rounds,
                                     .n_layer = own->o.model->hp.n_layer,
                                     .n_steps = KIN_STEPS_IN_FLIGHT};
    if (kin_stage_executor_open(&own->part, &po, err) == 0) return 0;
    close_work(own); // a shard without its part is of no use to the next plan
    return KIN_FAIL;
}

kin_shard *kin_local_stage_shard(kin_local_stage *own) {
    return own->shard;
}

kin_stage_executor *kin_local_stage_executor(kin_local_stage *own) {
    return own->part;
}

kin_head_counts *kin_local_stage_counts(kin_local_stage *own) {
    return &own->counts;
}

void kin_local_stage_publish(kin_local_stage *own) {
    kin_time now = kin_clock_now();
    if (!own->shard || now - own->published < PUBLISH_NS) return;
    own->published = now;
    kin_shard_stats stats = kin_shard_get_stats(own->shard);
    pthread_mutex_lock(&own->mutex);
    own->shard_stats = stats;
    pthread_mutex_unlock(&own->mutex);
}

kin_proto_status kin_local_stage_status(kin_local_stage *own, kin_proto_ready *ready) {
    kin_proto_status s = {
        .steps = atomic_load(&own->counts.n_steps),
        .tokens = atomic_load(&own->counts.n_prompt) + atomic_load(&own->counts.n_generated),
        .compute_ns = atomic_load(&own->counts.compute_ns),
        .wait_ns = atomic_load(&own->counts.wait_ns),
        .token_compute_ns = atomic_load(&own->counts.token_compute_ns),
        .token_stall_ns = atomic_load(&own->counts.token_stall_ns),
        .token_disk_ns = atomic_load(&own->counts.token_disk_ns),
        .token_disk_bytes = atomic_load(&own->counts.token_disk_bytes),
    };
    pthread_mutex_lock(&own->mutex);
    kin_shard_stats of = own->shard_stats;
    pthread_mutex_unlock(&own->mutex);
    const kin_weights_stats *w = &of.weights;
    s.disk_ns = w->stream.busy_ns;
    s.streamed_bytes = w->stream.read_bytes;
    s.resident_bytes = w->stream.resident_bytes + w->anonymous_bytes;
    *ready = (kin_proto_ready){.kv_bytes = of.kv_bytes,
                               .weights_bytes = w->mapped_bytes + w->cached_bytes + w->packed_bytes + w->gpu_bytes,
                               .resident_bytes = s.resident_bytes,
                               .compute_bytes = of.compute_bytes,
                               .gpu_bytes = w->gpu_bytes};
    s.memory_free = kin_memory_read().available;
    return s;
}
