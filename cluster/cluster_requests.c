#include "cluster/cluster_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/border.h"

enum { MEANWHILE_NS = 100000000 };

static void out(void *user, kin_message_buffer *buffer) {
    kin_cluster *c = user;
    kin_neighbours_send(c->ring.neighbours, buffer);
    kin_local_stage_publish(c->computing.local_stage);
}

static void broken(void *user, kin_err *err) {
    kin_cluster *c = user;
    uv_mutex_lock(&c->mutex);
    kin_err_set(err, "%s", c->snapshot.broken[0] ? c->snapshot.broken : "the ring is broken");
    uv_mutex_unlock(&c->mutex);
}

static void wrong(void *user, const char *reason) {
    kin_cluster *c = user;
    kin_cluster_report_wrong(c, c->computing.epoch, reason);
}

static kin_steps steps_of(const kin_cluster *c, int n_rounds) {
    return (kin_steps){.n_embd = kin_border_most(&c->o.model->hp),
                       .n_least = kin_hparams_stream_width(&c->o.model->hp),
                       .n_batch = c->o.shard.n_batch,
                       .n_seq = KIN_CLUSTER_SEQUENCES,
                       .n_rounds = n_rounds,
                       .type = c->o.wire_type};
}

static int enter(kin_cluster *c, const kin_cluster_snapshot *n, kin_err *err) {
    kin_prepacking_pause(c->ring.prepacking);
    kin_exchange_use(c->ring.exchange, n->epoch);
    if (kin_local_stage_set(c->computing.local_stage, &n->own, err) != 0) return kin_err_prefix(err, "the head's own layers");
    *c->computing.seen = *n;
    c->computing.epoch = n->epoch;
    kin_remote_ring_init(&c->computing.remote, &(kin_remote_ring_options){.steps = steps_of(c, n->own.n_rounds),
                                                                          .epoch = n->epoch,
                                                                          .pool = c->ring.pool,
                                                                          .in = c->ring.in,
                                                                          .stop = c->o.stop,
                                                                          .out = out,
                                                                          .broken = broken,
                                                                          .wrong = wrong,
                                                                          .user = c});
    kin_head_ring ring = {.transport = n->n_members > 1 ? kin_remote_ring_transport(&c->computing.remote)
                                                        : kin_loopback_transport(c->computing.loopback),
                          .executor = kin_local_stage_executor(c->computing.local_stage),
                          .shard = kin_local_stage_shard(c->computing.local_stage),
                          .counts = kin_local_stage_counts(c->computing.local_stage),
                          .n_rounds = n->own.n_rounds,
                          .n_members = n->n_stages,
                          .borders = n->borders,
                          .exact = n->is_exact && kin_shard_is_exact(kin_local_stage_shard(c->computing.local_stage))};
    if (c->computing.head) {
        kin_head_set_ring(c->computing.head, &ring);
        return 0;
    }
    if (kin_head_open(&c->computing.head, c->o.model, &ring, c->o.shard.n_batch, KIN_STEPS_IN_FLIGHT, err) != 0) return KIN_FAIL;
    kin_head_record(c->computing.head, kin_timeline_own(c->o.timeline));
    return 0;
}

static void read_snapshot(kin_cluster *c, kin_cluster_snapshot *n) {
    uv_mutex_lock(&c->mutex);
    *n = c->snapshot;
    uv_mutex_unlock(&c->mutex);
}

static bool is_stopped(const kin_cluster *c) {
    return c->o.stop && atomic_load(c->o.stop);
}

// Waits until there is a newer snapshot than `seen`, or the user stops.
static void wait_for_change(kin_cluster *c, kin_cluster_snapshot *seen) {
    uv_mutex_lock(&c->mutex);
    while (c->snapshot.version == seen->version && !is_stopped(c)) {
        if (uv_cond_timedwait(&c->changed, &c->mutex, MEANWHILE_NS) == 0 || !c->computing.meanwhile) continue;
        uv_mutex_unlock(&c->mutex);
        c->computing.meanwhile(c->computing.meanwhile_user);
        uv_mutex_lock(&c->mutex);
    }
    *seen = c->snapshot;
    uv_mutex_unlock(&c->mutex);
}

static int wait_until_up(kin_cluster *c, kin_cluster_snapshot *n, kin_err *err) {
    char said[KIN_MEMBERSHIP_SENTENCE] = "";
    int rc = 0;
    read_snapshot(c, n);
    while (rc == 0 && !(n->up && n->epoch && n->epoch == c->computing.epoch)) {
        if (is_stopped(c)) {
            rc = kin_err_set(err, "stopped");
        } else if (n->given_up.text[0]) {
            *err = n->given_up;
            rc = KIN_FAIL;
        } else if (n->epoch && n->epoch != c->computing.epoch) {
            rc = enter(c, n, err);
            read_snapshot(c, n); // opening a shard takes time
        } else {
            if (c->o.status && strcmp(said, n->doing) != 0) c->o.status(c->o.status_user, n->doing);
            memcpy(said, n->doing, sizeof said);
            wait_for_change(c, n);
        }
    }
    return rc;
}

// Asks the loop's thread to begin the request. False: it has ended the epoch in the meantime, for a better plan.
static bool asks_to_begin(kin_cluster *c) {
    kin_message_queue_interrupt(c->ring.in, false);
    // Answers to steps that were dropped in this epoch stay in the queue, since the check of their order counts them.
    if (atomic_load(&c->wanted_epoch) != c->computing.epoch) kin_message_queue_drain(c->ring.in, c->ring.pool);
    atomic_store(&c->wanted_epoch, c->computing.epoch);
    uint32_t generation = kin_completion_ask(&c->beginning);
    return kin_endpoint_call(c->ring.endpoint, kin_cluster_on_begins, c) && kin_completion_wait(&c->beginning, generation);
}

void kin_cluster_wake(kin_cluster *c) {
    kin_message_queue_wake(c->ring.in);
}

void kin_cluster_set_meanwhile(kin_cluster *c, void (*meanwhile)(void *user), void *user) {
    c->computing.meanwhile = meanwhile;
    c->computing.meanwhile_user = user;
}

int kin_cluster_begin(kin_cluster *c, kin_err *err) {
    kin_cluster_snapshot *n = malloc(sizeof *n);
    if (!n) return kin_err_set(err, "out of memory");
    int rc;
    do {
        rc = wait_until_up(c, n, err);
    } while (rc == 0 && !asks_to_begin(c));
    free(n);
    c->computing.in_request = rc == 0;
    if (rc == 0) kin_local_stage_publish(c->computing.local_stage);
    return rc;
}

void kin_cluster_end(kin_cluster *c) {
    if (!c->computing.in_request) return;
    c->computing.in_request = false;
    kin_local_stage_publish(c->computing.local_stage);
    kin_endpoint_call(c->ring.endpoint, kin_cluster_on_ends, c);
}

bool kin_cluster_yields(const kin_cluster *c) {
    return atomic_load(&c->yields);
}

kin_head *kin_cluster_head(kin_cluster *c) {
    return c->computing.head;
}

kin_shard *kin_cluster_shard(kin_cluster *c) {
    return kin_local_stage_shard(c->computing.local_stage);
}

int kin_cluster_n_members(const kin_cluster *c) {
    return c->computing.seen->n_members;
}

// ---- polls

void kin_cluster_wait_for_poll(kin_cluster *c, kin_cluster_poll *poll, kin_mailbox_fn begin) {
    uint32_t generation = kin_completion_ask(&poll->completion);
    if (kin_endpoint_call(c->ring.endpoint, begin, c)) kin_completion_wait(&poll->completion, generation);
}

void kin_cluster_gather(kin_cluster *c) {
    kin_cluster_wait_for_poll(c, &c->status.gather, kin_cluster_on_gather);
}

void kin_cluster_close_requests(kin_cluster *c) {
    kin_head_close(c->computing.head);
    kin_local_stage_close(c->computing.local_stage);
    kin_loopback_close(c->computing.loopback);
}
