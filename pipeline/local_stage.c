#include "pipeline/local_stage.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/steps.h"
#include "sys/memory.h"

enum { PUBLISH_NS = 100000000 };

struct kin_local_stage {
    kin_local_stage_options o;
    kin_local_work work;
    kin_shard *shard;
    kin_stage_executor *executor;
    kin_head_counts counts;
    kin_time published;

    pthread_mutex_t mutex; // guards the following
    kin_shard_stats shard_stats;
};

int kin_local_stage_open(kin_local_stage **out, const kin_local_stage_options *o, kin_err *err) {
    kin_local_stage *stage = *out = calloc(1, sizeof *stage);
    if (!stage) return kin_err_set(err, "out of memory");
    stage->o = *o;
    pthread_mutex_init(&stage->mutex, NULL);
    return 0;
}

static void close_work(kin_local_stage *stage) {
    kin_stage_executor_close(stage->executor);
    kin_shard_close(stage->shard);
    stage->executor = NULL;
    stage->shard = NULL;
}

void kin_local_stage_close(kin_local_stage *stage) {
    if (!stage) return;
    close_work(stage);
    pthread_mutex_destroy(&stage->mutex);
    free(stage);
}

static bool is_same(const kin_local_stage *stage, const kin_local_work *work) {
    const kin_local_work *has = &stage->work;
    const kin_windows *a = &has->windows.windows, *b = &work->windows.windows;
    return stage->executor && has->n_rounds == work->n_rounds && has->memory == work->memory && a->n == b->n &&
           memcmp(&has->share, &work->share, sizeof has->share) == 0 &&
           memcmp(a->at, b->at, (size_t)a->n * sizeof a->at[0]) == 0 &&
           memcmp(has->windows.rounds, work->windows.rounds, (size_t)a->n * sizeof has->windows.rounds[0]) == 0;
}

static kin_shard_options shard_options(const kin_local_stage_options *o, const kin_local_work *work) {
    kin_shard_options so = o->shard;
    so.windows = work->windows.windows;
    so.share = work->share;
    so.sum = o->sum;
    so.output = true;
    so.n_steps = KIN_STEPS_IN_FLIGHT;
    if (work->memory && (!so.memory || work->memory < so.memory)) so.memory = work->memory;
    return so;
}

int kin_local_stage_prepack(const kin_local_stage_options *o, const kin_windows *windows, const kin_windows *but,
                            const atomic_bool *stop, kin_packed **held, kin_err *err) {
    kin_shard_options so = shard_options(o, &(kin_local_work){.windows.windows = *windows});
    so.progress = NULL;
    so.output = false;
    return kin_shard_prepack(o->model, o->devices, &so, but, stop, held, err);
}

int kin_local_stage_set(kin_local_stage *stage, const kin_local_work *work, kin_err *err) {
    if (is_same(stage, work)) {
        kin_stage_executor_reset(stage->executor);
        return 0;
    }
    close_work(stage);
    stage->work = *work;
    kin_shard_options so = shard_options(&stage->o, work);
    if (kin_shard_open(&stage->shard, stage->o.model, stage->o.devices, &so, err) != 0) return KIN_FAIL;
    kin_stage_executor_options po = {.shard = work->windows.windows.n ? stage->shard : NULL,
                                     .windows = work->windows.windows,
                                     .rounds = work->windows.rounds,
                                     .n_rounds = work->n_rounds,
                                     .sum = kin_share_is_whole(&work->share) ? (kin_sum){0} : stage->o.sum,
                                     .n_layer = stage->o.model->hp.n_layer,
                                     .n_steps = KIN_STEPS_IN_FLIGHT};
    if (kin_stage_executor_open(&stage->executor, &po, err) == 0) return 0;
    close_work(stage); // a shard without its executor is of no use to the next plan
    return KIN_FAIL;
}

kin_shard *kin_local_stage_shard(kin_local_stage *stage) {
    return stage->shard;
}

kin_stage_executor *kin_local_stage_executor(kin_local_stage *stage) {
    return stage->executor;
}

kin_head_counts *kin_local_stage_counts(kin_local_stage *stage) {
    return &stage->counts;
}

void kin_local_stage_publish(kin_local_stage *stage) {
    kin_time now = kin_clock_now();
    if (!stage->shard || now - stage->published < PUBLISH_NS) return;
    stage->published = now;
    kin_shard_stats stats = kin_shard_get_stats(stage->shard);
    pthread_mutex_lock(&stage->mutex);
    stage->shard_stats = stats;
    pthread_mutex_unlock(&stage->mutex);
}

kin_proto_status kin_local_stage_status(kin_local_stage *stage, kin_proto_ready *ready) {
    kin_proto_status s = {
        .steps = atomic_load(&stage->counts.n_steps),
        .tokens = atomic_load(&stage->counts.n_prompt) + atomic_load(&stage->counts.n_generated),
        .compute_ns = atomic_load(&stage->counts.compute_ns),
        .wait_ns = atomic_load(&stage->counts.wait_ns),
        .token_compute_ns = atomic_load(&stage->counts.token_compute_ns),
        .token_stall_ns = atomic_load(&stage->counts.token_stall_ns),
        .token_disk_ns = atomic_load(&stage->counts.token_disk_ns),
        .token_disk_bytes = atomic_load(&stage->counts.token_disk_bytes),
    };
    pthread_mutex_lock(&stage->mutex);
    kin_shard_stats of = stage->shard_stats;
    pthread_mutex_unlock(&stage->mutex);
    const kin_weights_stats *w = &of.weights;
    s.disk_ns = w->stream.busy_ns;
    s.streamed_bytes = w->stream.read_bytes;
    s.resident_bytes = w->resident_bytes;
    *ready = (kin_proto_ready){.kv_bytes = of.kv_bytes,
                               .weights_bytes = w->mapped_bytes + w->cached_bytes + w->packed_bytes + w->gpu_bytes,
                               .resident_bytes = s.resident_bytes,
                               .compute_bytes = of.compute_bytes,
                               .gpu_bytes = w->gpu_bytes};
    s.memory_free = kin_memory_read().available;
    return s;
}
