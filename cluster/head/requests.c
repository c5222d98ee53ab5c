#include "cluster/head/requests.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/head/plans.h"
#include "model/border.h"

enum { MEANWHILE_NS = 100000000 };

static void out(void *user, kin_message_buffer *buffer) {
    kin_cluster_requests *r = user;
    kin_neighbours_send(r->o.ring->neighbours, buffer);
    kin_local_stage_publish(r->local_stage);
}

static void broken(void *user, kin_err *err) {
    const kin_cluster_requests *r = user;
    kin_cluster_board_read_broken(r->o.board, err);
}

static void wrong(void *user, const char *reason) {
    const kin_cluster_requests *r = user;
    kin_cluster_board_set_wrong(r->o.board, r->epoch, reason);
    kin_endpoint_call(r->o.ring->endpoint, r->o.wrong, r->o.user);
}

static kin_steps steps_of(const kin_cluster_requests *r, int n_rounds) {
    return (kin_steps){.n_embd = kin_border_most(&r->o.cluster->model->hp),
                       .n_least = kin_hparams_stream_width(&r->o.cluster->model->hp),
                       .n_batch = r->o.cluster->shard.n_batch,
                       .n_seq = KIN_CLUSTER_SEQUENCES,
                       .n_rounds = n_rounds,
                       .type = r->o.cluster->wire_type};
}

static int enter(kin_cluster_requests *r, const kin_cluster_snapshot *n, kin_err *err) {
    kin_prepacking_pause(r->o.ring->prepacking);
    kin_exchange_use(r->o.ring->exchange, n->epoch);
    if (kin_local_stage_set(r->local_stage, &n->own, err) != 0) return kin_err_prefix(err, "the head's own layers");
    *r->seen = *n;
    r->epoch = n->epoch;
    kin_remote_ring_init(&r->remote, &(kin_remote_ring_options){.steps = steps_of(r, n->own.n_rounds),
                                                                .epoch = n->epoch,
                                                                .pool = r->o.ring->pool,
                                                                .in = r->o.ring->in,
                                                                .stop = r->o.cluster->stop,
                                                                .out = out,
                                                                .broken = broken,
                                                                .wrong = wrong,
                                                                .user = r});
    kin_head_ring ring = {.transport =
                              n->n_members > 1 ? kin_remote_ring_transport(&r->remote) : kin_loopback_transport(r->loopback),
                          .executor = kin_local_stage_executor(r->local_stage),
                          .shard = kin_local_stage_shard(r->local_stage),
                          .counts = kin_local_stage_counts(r->local_stage),
                          .n_rounds = n->own.n_rounds,
                          .n_members = n->n_stages,
                          .borders = n->borders,
                          .exact = n->is_exact && kin_shard_is_exact(kin_local_stage_shard(r->local_stage))};
    if (r->head) {
        kin_head_set_ring(r->head, &ring);
        return 0;
    }
    if (kin_head_open(&r->head, r->o.cluster->model, &ring, r->o.cluster->shard.n_batch, KIN_STEPS_IN_FLIGHT, err) != 0)
        return KIN_FAIL;
    kin_head_record(r->head, kin_timeline_own(r->o.cluster->timeline));
    return 0;
}

static bool is_stopped(const kin_cluster_requests *r) {
    const atomic_bool *stop = r->o.cluster->stop;
    return stop && atomic_load(stop);
}

// Waits until there is a newer snapshot than `seen`, or the user stops.
static void wait_for_change(const kin_cluster_requests *r, kin_cluster_snapshot *seen) {
    while (!is_stopped(r) && !kin_cluster_board_wait(r->o.board, seen, MEANWHILE_NS)) {
        if (r->meanwhile) r->meanwhile(r->meanwhile_user);
    }
}

static int wait_until_up(kin_cluster_requests *r, kin_cluster_snapshot *n, kin_err *err) {
    char said[KIN_MEMBERSHIP_SENTENCE] = "";
    int rc = 0;
    kin_cluster_board_read(r->o.board, n);
    while (rc == 0 && !(n->up && n->epoch && n->epoch == r->epoch)) {
        if (is_stopped(r)) {
            rc = kin_err_set(err, "stopped");
        } else if (n->given_up.text[0]) {
            *err = n->given_up;
            rc = KIN_FAIL;
        } else if (n->epoch && n->epoch != r->epoch) {
            rc = enter(r, n, err);
            kin_cluster_board_read(r->o.board, n); // opening a shard takes time
        } else {
            if (r->o.cluster->status && strcmp(said, n->doing) != 0) r->o.cluster->status(r->o.cluster->status_user, n->doing);
            memcpy(said, n->doing, sizeof said);
            wait_for_change(r, n);
        }
    }
    return rc;
}

// Asks the loop's thread to begin the request. False: it has ended the epoch in the meantime, for a better plan.
static bool asks_to_begin(kin_cluster_requests *r) {
    kin_message_queue_interrupt(r->o.ring->in, false);
    // Answers to steps that were dropped in this epoch stay in the queue, since the check of their order counts them.
    if (atomic_load(&r->wanted_epoch) != r->epoch) kin_message_queue_drain(r->o.ring->in, r->o.ring->pool);
    atomic_store(&r->wanted_epoch, r->epoch);
    uint32_t generation = kin_completion_ask(&r->beginning);
    return kin_endpoint_call(r->o.ring->endpoint, r->o.begins, r->o.user) && kin_completion_wait(&r->beginning, generation);
}

int kin_cluster_requests_begin(kin_cluster_requests *r, kin_err *err) {
    kin_cluster_snapshot *n = malloc(sizeof *n);
    if (!n) return kin_err_set(err, "out of memory");
    int rc;
    do {
        rc = wait_until_up(r, n, err);
    } while (rc == 0 && !asks_to_begin(r));
    free(n);
    r->in_request = rc == 0;
    if (rc == 0) kin_local_stage_publish(r->local_stage);
    return rc;
}

void kin_cluster_requests_end(kin_cluster_requests *r) {
    if (!r->in_request) return;
    r->in_request = false;
    kin_local_stage_publish(r->local_stage);
    kin_endpoint_call(r->o.ring->endpoint, r->o.ends, r->o.user);
}

// ---- opening and closing

int kin_cluster_requests_open(kin_cluster_requests *r, const kin_cluster_requests_options *options, kin_err *err) {
    const kin_cluster_options *o = options->cluster;
    *r = (kin_cluster_requests){.o = *options, .seen = calloc(1, sizeof *r->seen)};
    kin_completion_init(&r->beginning);
    if (!r->seen) return kin_err_set(err, "out of memory");
    kin_local_stage_options lo = {
        .model = o->model, .devices = o->devices, .shard = o->shard, .sum = kin_exchange_sum(options->ring->exchange)};
    if (kin_local_stage_open(&r->local_stage, &lo, err) != 0) return KIN_FAIL;
    return kin_loopback_open(&r->loopback, o->shard.n_batch, kin_border_most(&o->model->hp), KIN_STEPS_IN_FLIGHT, err);
}

void kin_cluster_requests_close(kin_cluster_requests *r) {
    if (!r->o.cluster) return;
    kin_head_close(r->head);
    kin_local_stage_close(r->local_stage);
    kin_loopback_close(r->loopback);
    kin_completion_fini(&r->beginning);
    free(r->seen);
}
