#include "testkit/thread_ring.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/device.h"
#include "model/border.h"
#include "pipeline/loopback.h"
#include "pipeline/worker.h"
#include "testkit/memory_sum.h"

typedef struct member {
    kin_thread_ring *ring;
    kin_devices devices;
    kin_shard *shard;
    kin_stage_executor *executor;
    kin_worker *worker; // NULL for the head
    kin_message_queue *in;
    kin_message_buffer *held; // a message to be swapped with the next one; NULL: none
    kin_share share;
    kin_memory_sum *sums; // of the group that begins here; NULL: none begins here
    char cache_dir[256];
    pthread_t thread;
    bool running;
    int i;
} member;

struct kin_thread_ring {
    kin_thread_ring_options o;
    kin_model model;
    kin_member_windows windows[KIN_THREAD_RING_MEMBERS];
    int n_rounds;
    kin_message_pool *pool;
    member members[KIN_THREAD_RING_MEMBERS];
    kin_remote_ring wire;
    kin_loopback *loopback;
    kin_head *head;
    pthread_mutex_t mutex; // over `error`
    kin_err error;
};

static member *head_of(kin_thread_ring *r) {
    return &r->members[r->o.n_members - 1];
}

static kin_memory_sum *sums_of(kin_thread_ring *r, int i) {
    return r->members[i - r->o.group[i].rank].sums;
}

static void fail(kin_thread_ring *r, int i, const kin_err *why) {
    pthread_mutex_lock(&r->mutex);
    if (!r->error.text[0]) kin_err_set(&r->error, "member %d: %s", i, why->text); // later errors are its consequence
    pthread_mutex_unlock(&r->mutex);
    kin_message_queue_interrupt(head_of(r)->in, true);
    for (int k = 0; k < r->o.n_members; k++) {
        if (r->members[k].sums) kin_memory_sum_break(r->members[k].sums);
    }
}

static void pass(void *user, kin_message_buffer *buffer) {
    member *m = user;
    kin_message_queue *to = m->ring->members[m->i + 1].in;
    kin_message_buffer *held = m->held;
    bool holds = m->ring->o.swaps && m->i + 1 == m->ring->o.n_members - 1 && !held;
    m->held = holds ? buffer : NULL;
    if (!holds) kin_message_queue_put(to, buffer);
    if (held) kin_message_queue_put(to, held);
}

static void *work(void *arg) {
    member *m = arg;
    kin_message_buffer *buffer;
    while ((buffer = kin_message_queue_pop(m->in, -1))) {
        kin_err err;
        if (kin_worker_handle(m->worker, &buffer, &err) != 0) fail(m->ring, m->i, &err);
        if (buffer) pass(m, buffer);
    }
    return NULL;
}

static void out(void *user, kin_message_buffer *buffer) {
    kin_thread_ring *r = user;
    kin_message_queue_put(r->members[0].in, buffer);
}

static void broken(void *user, kin_err *err) {
    kin_thread_ring *r = user;
    pthread_mutex_lock(&r->mutex);
    *err = r->error;
    pthread_mutex_unlock(&r->mutex);
}

static kin_steps steps_of(const kin_thread_ring *r) {
    return (kin_steps){.n_embd = kin_border_most(&r->model.hp),
                       .n_least = kin_hparams_stream_width(&r->model.hp),
                       .n_batch = r->o.n_batch,
                       .n_seq = KIN_KV_MAX_SEQUENCES,
                       .n_rounds = r->n_rounds,
                       .type = r->o.type};
}

// Sets the shares of the group that begins with member i, and its windows for all its members.
static int open_group(kin_thread_ring *r, int i, kin_err *err) {
    double weights[KIN_THREAD_RING_MEMBERS];
    kin_share shares[KIN_SHARE_RANKS];
    int n = r->o.group[i].n_ranks, kv_type = r->o.kv_type ? (int)r->o.kv_type : GGML_TYPE_F16;
    for (int k = 0; k < n; k++) weights[k] = r->o.group[i + k].weight;
    if (kin_share_split(&r->model, kv_type, weights, n, shares, err) != 0) return KIN_FAIL;
    for (int k = 0; k < n; k++) {
        r->members[i + k].share = shares[k];
        r->windows[i + k] = r->windows[i];
    }
    return kin_memory_sum_open(&r->members[i].sums, n, err);
}

static int open_shard(kin_thread_ring *r, member *m, kin_err *err) {
    const kin_member_windows *w = &r->windows[m->i];
    bool head = m == head_of(r);
    kin_device_options dopts = kin_device_options_defaults();
    dopts.n_threads = 1;
    dopts.repack = !r->o.no_repack;
    dopts.gpu = r->o.gpu && kin_windows_n_gpu_layers(&w->windows) > 0;
    if (kin_devices_open(&m->devices, &dopts, err) != 0) return KIN_FAIL;
    kin_shard_options so = kin_shard_options_defaults(&r->model);
    so.windows = w->windows;
    so.n_ctx = r->o.n_ctx;
    so.n_batch = r->o.n_batch;
    so.n_steps = r->o.n_steps;
    so.n_sequences = r->o.n_sequences;
    so.output = head;
    so.kv_disk.dir = r->o.kv_dirs[m->i];
    if (r->o.kv_type) so.kv_type = r->o.kv_type;
    so.memory = r->o.budgets[m->i] ? r->o.budgets[m->i] : r->o.budget;
    so.sliding = r->o.sliding;
    if (r->o.cache_dir) {
        snprintf(m->cache_dir, sizeof m->cache_dir, "%s/%d", r->o.cache_dir, m->i);
        so.cache_dir = m->cache_dir;
    }
    so.share = m->share;
    if (!kin_share_is_whole(&so.share)) so.sum = kin_memory_sum_of(sums_of(r, m->i), so.share.rank);
    return w->windows.n || head ? kin_shard_open(&m->shard, &r->model, &m->devices, &so, err) : 0;
}

static int open_member(kin_thread_ring *r, int i, kin_err *err) {
    member *m = &r->members[i];
    const kin_member_windows *w = &r->windows[i];
    m->ring = r;
    m->i = i;
    if (open_shard(r, m, err) != 0 || kin_message_queue_open(&m->in, err) != 0) return KIN_FAIL;
    kin_stage_executor_options po = {.shard = w->windows.n ? m->shard : NULL,
                                     .windows = w->windows,
                                     .rounds = w->rounds,
                                     .n_rounds = r->n_rounds,
                                     .n_layer = r->model.hp.n_layer,
                                     .n_steps = r->o.n_steps};
    if (kin_stage_executor_open(&m->executor, &po, err) != 0) return KIN_FAIL;
    if (m == head_of(r)) return 0;
    kin_steps steps = steps_of(r);
    steps.ends_tokens = kin_worker_ends_tokens(w, kin_hparams_token_layers(&r->model.hp));
    if (kin_worker_open(&m->worker, m->executor, &steps, r->pool, err) != 0) return KIN_FAIL;
    if (m->share.rank + 1 < m->share.n_ranks) kin_worker_pass_early(m->worker, pass, m);
    if (kin_share_is_whole(&m->share)) kin_worker_set_queue(m->worker, m->in);
    m->running = pthread_create(&m->thread, NULL, work, m) == 0;
    return m->running ? 0 : kin_err_set(err, "no thread");
}

static int open_head(kin_thread_ring *r, kin_err *err) {
    member *m = head_of(r);
    kin_remote_ring_init(
        &r->wire, &(kin_remote_ring_options){
                      .steps = steps_of(r), .epoch = 1, .pool = r->pool, .in = m->in, .out = out, .broken = broken, .user = r});
    if (kin_loopback_open(&r->loopback, r->o.n_batch, kin_border_most(&r->model.hp), r->o.n_steps, err) != 0) return KIN_FAIL;
    kin_head_ring ring = {.transport =
                              r->o.n_members > 1 ? kin_remote_ring_transport(&r->wire) : kin_loopback_transport(r->loopback),
                          .executor = m->executor,
                          .shard = m->shard,
                          .n_rounds = r->n_rounds,
                          .n_members = r->o.n_members,
                          .exact = !r->o.gpu};
    if (kin_head_open(&r->head, &r->model, &ring, r->o.n_batch, r->o.n_steps, err) != 0) return KIN_FAIL;
    kin_head_set_chunk(r->head, r->o.n_chunk);
    return 0;
}

// Member i is device i + 1 of the plan; the last one is the head, device 0.
static int lay_out(kin_thread_ring *r, kin_err *err) {
    kin_plan plan = {.n_stops = r->o.n_members};
    for (int i = 0; i < plan.n_stops; i++) {
        int device = kin_plan_turn(&plan, i);
        plan.stops[device].device = device;
        plan.windows[device] = r->o.shares[i];
    }
    if (kin_plan_fill_rounds(&plan, r->model.hp.n_layer, err) != 0) return KIN_FAIL;
    r->n_rounds = plan.n_rounds;
    for (int i = 0; i < plan.n_stops; i++) {
        kin_plan_windows(&plan, kin_plan_turn(&plan, i), &r->windows[i].windows);
        for (int k = 0; k < r->windows[i].windows.n; k++) r->windows[i].rounds[k] = k;
    }
    return 0;
}

static int open_all(kin_thread_ring *r, const char *path, kin_err *err) {
    if (kin_model_open(&r->model, path, err) != 0) return KIN_FAIL;
    if (lay_out(r, err) != 0 || kin_message_pool_open(&r->pool, 2 * r->o.n_steps + 8, err) != 0) return KIN_FAIL;
    for (int i = 0; i < r->o.n_members; i++) {
        bool begins = r->o.group[i].n_ranks > 0 && r->o.group[i].rank == 0;
        if (begins && open_group(r, i, err) != 0) return KIN_FAIL;
    }
    for (int i = r->o.n_members - 1; i >= 0; i--) { // receivers before senders
        if (open_member(r, i, err) != 0) return KIN_FAIL;
    }
    return open_head(r, err);
}

int kin_thread_ring_open(kin_thread_ring **out_ring, const char *path, const kin_thread_ring_options *o, kin_err *err) {
    *out_ring = NULL;
    kin_thread_ring *r = calloc(1, sizeof *r);
    if (!r) return kin_err_set(err, "out of memory");
    r->o = *o;
    pthread_mutex_init(&r->mutex, NULL);
    if (open_all(r, path, err) != 0) {
        kin_thread_ring_close(r);
        return KIN_FAIL;
    }
    *out_ring = r;
    return 0;
}

void kin_thread_ring_wake(kin_thread_ring *r) {
    kin_message_queue_wake(head_of(r)->in);
}

static void drain(kin_thread_ring *r, kin_message_queue *queue) {
    kin_message_queue_drain(queue, r->pool);
    kin_message_queue_close(queue);
}

void kin_thread_ring_close(kin_thread_ring *r) {
    if (!r) return;
    for (int i = 0; i < r->o.n_members; i++) {
        if (r->members[i].sums) kin_memory_sum_break(r->members[i].sums);
        if (!r->members[i].running) continue;
        kin_message_queue_interrupt(r->members[i].in, true);
        pthread_join(r->members[i].thread, NULL);
    }
    kin_head_close(r->head);
    kin_loopback_close(r->loopback);
    for (int i = 0; i < r->o.n_members; i++) {
        member *m = &r->members[i];
        if (m->in) drain(r, m->in);
        if (m->held) kin_message_pool_give(r->pool, m->held);
        kin_worker_close(m->worker);
        kin_stage_executor_close(m->executor);
        kin_shard_close(m->shard);
        if (m->ring) kin_devices_close(&m->devices);
    }
    for (int i = 0; i < r->o.n_members; i++) kin_memory_sum_close(r->members[i].sums);
    kin_message_pool_close(r->pool);
    kin_model_close(&r->model);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

kin_head *kin_thread_ring_head(kin_thread_ring *r) {
    return r->head;
}

const kin_model *kin_thread_ring_model(const kin_thread_ring *r) {
    return &r->model;
}

kin_shard_stats kin_thread_ring_stats(const kin_thread_ring *r, int i) {
    return kin_shard_get_stats(r->members[i].shard);
}

const kin_share *kin_thread_ring_share(const kin_thread_ring *r, int i) {
    return &r->members[i].share;
}

uint64_t kin_thread_ring_bits(kin_thread_ring *r, int i, uint64_t *n_sums) {
    return kin_memory_sum_bits(sums_of(r, i), r->members[i].share.rank, n_sums);
}

void kin_thread_ring_break(kin_thread_ring *r, int i) {
    kin_memory_sum_break(sums_of(r, i));
}

int kin_thread_ring_n_rounds(const kin_thread_ring *r) {
    return r->n_rounds;
}
