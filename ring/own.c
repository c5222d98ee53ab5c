#include "ring/own.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ring/steps.h"
#include "sys/memory.h"

enum { PUBLISH_NS = 100000000 };

struct kin_own {
    kin_own_options o;
    kin_member_windows windows;
    int n_rounds;
    uint64_t memory;
    kin_shard *shard;
    kin_part *part;
    kin_head_counts counts;
    kin_time published;

    pthread_mutex_t mutex; // over the following
    kin_shard_stats shard_stats;
};

int kin_own_open(kin_own **out, const kin_own_options *o, kin_err *err) {
    kin_own *own = *out = calloc(1, sizeof *own);
    if (!own) return kin_err_set(err, "out of memory");
    own->o = *o;
    pthread_mutex_init(&own->mutex, NULL);
    return 0;
}

static void close_work(kin_own *own) {
    kin_part_close(own->part);
    kin_shard_close(own->shard);
    own->part = NULL;
    own->shard = NULL;
}

void kin_own_close(kin_own *own) {
    if (!own) return;
    close_work(own);
    pthread_mutex_destroy(&own->mutex);
    free(own);
}

static bool is_same(const kin_own *own, const kin_member_windows *windows, int n_rounds, uint64_t memory) {
    const kin_windows *a = &own->windows.windows, *b = &windows->windows;
    return own->part && own->n_rounds == n_rounds && own->memory == memory && a->n == b->n &&
           memcmp(a->at, b->at, (size_t)a->n * sizeof a->at[0]) == 0 &&
           memcmp(own->windows.rounds, windows->rounds, (size_t)a->n * sizeof windows->rounds[0]) == 0;
}

int kin_own_set(kin_own *own, const kin_member_windows *windows, int n_rounds, uint64_t memory, kin_err *err) {
    if (is_same(own, windows, n_rounds, memory)) {
        kin_part_reset(own->part);
        return 0;
    }
    close_work(own);
    own->windows = *windows;
    own->n_rounds = n_rounds;
    own->memory = memory;
    kin_shard_options so = own->o.shard;
    so.windows = windows->windows;
    so.output = true;
    so.n_steps = KIN_STEPS_ON_THEIR_WAY;
    if (memory && (!so.memory || memory < so.memory)) so.memory = memory;
    if (kin_shard_open(&own->shard, own->o.model, own->o.devices, &so, err) != 0) return KIN_FAIL;
    kin_part_options po = {.shard = windows->windows.n ? own->shard : NULL,
                           .windows = windows->windows,
                           .rounds = windows->rounds,
                           .n_rounds = n_rounds,
                           .n_layer = own->o.model->hp.n_layer,
                           .n_steps = KIN_STEPS_ON_THEIR_WAY};
    if (kin_part_open(&own->part, &po, err) == 0) return 0;
    close_work(own); // a shard without its part is of no use to the next plan
    return KIN_FAIL;
}

kin_shard *kin_own_shard(kin_own *own) {
    return own->shard;
}

kin_part *kin_own_part(kin_own *own) {
    return own->part;
}

kin_head_counts *kin_own_counts(kin_own *own) {
    return &own->counts;
}

void kin_own_publish(kin_own *own) {
    kin_time now = kin_clock_now();
    if (!own->shard || now - own->published < PUBLISH_NS) return;
    own->published = now;
    kin_shard_stats stats = kin_shard_get_stats(own->shard);
    pthread_mutex_lock(&own->mutex);
    own->shard_stats = stats;
    pthread_mutex_unlock(&own->mutex);
}

kin_proto_status kin_own_status(kin_own *own, kin_proto_ready *ready) {
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
