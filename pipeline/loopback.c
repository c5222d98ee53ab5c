#include "pipeline/loopback.h"

#include <stdlib.h>
#include <string.h>

#include "model/border.h"

typedef struct waiting {
    kin_hop hop;
    float *x; // f32 [n_batch, n_embd]
} waiting;

struct kin_loopback {
    size_t n_embd;
    int n_steps;
    waiting *queue; // [n_steps] cyclic
    int first, n;
};

int kin_loopback_open(kin_loopback **out, int n_batch, int n_embd, int n_steps, kin_err *err) {
    *out = NULL;
    kin_loopback *a = calloc(1, sizeof *a);
    if (!a) return kin_err_set(err, "out of memory");
    a->n_embd = (size_t)n_embd;
    a->n_steps = n_steps;
    a->queue = calloc((size_t)n_steps, sizeof *a->queue);
    for (int i = 0; i < n_steps && a->queue; i++) {
        waiting *w = &a->queue[i];
        w->x = malloc((size_t)n_batch * (size_t)n_embd * sizeof *w->x);
        if (w->x) continue;
        kin_loopback_close(a);
        return kin_err_set(err, "out of memory");
    }
    if (!a->queue) {
        free(a);
        return kin_err_set(err, "out of memory");
    }
    *out = a;
    return 0;
}

void kin_loopback_close(kin_loopback *a) {
    if (!a) return;
    for (int i = 0; i < a->n_steps; i++) free(a->queue[i].x);
    free(a->queue);
    free(a);
}

static size_t floats_of(const kin_loopback *a, const kin_hop *hop) {
    return (size_t)hop->n_rows * (hop->n_embd ? (size_t)hop->n_embd : a->n_embd);
}

static int send(void *user, const kin_hop *hop, const kin_batch *batch, const float *x, kin_err *err) {
    kin_loopback *a = user;
    if (a->n == a->n_steps) return kin_err_set(err, "%d steps are in flight already", a->n);
    waiting *w = &a->queue[(a->first + a->n++) % a->n_steps];
    (void)batch;
    w->hop = *hop;
    memcpy(w->x, x, floats_of(a, hop) * sizeof *x);
    return 0;
}

static int receive_loopback(void *user, kin_hop *hop, float *x, kin_err *err) {
    kin_loopback *a = user;
    if (a->n == 0) return kin_err_set(err, "no step is in flight");
    const waiting *w = &a->queue[a->first];
    *hop = w->hop;
    memcpy(x, w->x, floats_of(a, hop) * sizeof *x);
    a->first = (a->first + 1) % a->n_steps;
    a->n--;
    return 0;
}

static bool is_here(void *user) {
    (void)user;
    return true;
}

static void drop(void *user) {
    kin_loopback *a = user;
    a->n = 0;
}

kin_ring_transport kin_loopback_transport(kin_loopback *a) {
    return (kin_ring_transport){.user = a, .send = send, .receive = receive_loopback, .is_here = is_here, .drop = drop};
}

int kin_loopback_head_open(kin_loopback_head *out, const kin_model *model, kin_shard *shard, int n_batch, kin_err *err) {
    const kin_hparams *hp = &model->hp;
    const int round = 0, n_steps = 1;
    *out = (kin_loopback_head){0};
    kin_stage_executor_options po = {.shard = shard,
                                     .windows = kin_windows_one(0, hp->n_layer, 0),
                                     .rounds = &round,
                                     .n_rounds = 1,
                                     .n_layer = hp->n_layer,
                                     .n_steps = n_steps};
    if (kin_loopback_open(&out->loopback, n_batch, kin_border_most(hp), n_steps, err) != 0 ||
        kin_stage_executor_open(&out->executor, &po, err) != 0) {
        kin_loopback_head_close(out);
        return KIN_FAIL;
    }
    kin_head_ring ring = {.transport = kin_loopback_transport(out->loopback),
                          .executor = out->executor,
                          .shard = shard,
                          .n_rounds = 1,
                          .n_members = 1,
                          .exact = kin_shard_is_exact(shard)};
    if (kin_head_open(&out->head, model, &ring, n_batch, n_steps, err) == 0) return 0;
    kin_loopback_head_close(out);
    return KIN_FAIL;
}

void kin_loopback_head_close(kin_loopback_head *h) {
    kin_head_close(h->head);
    kin_stage_executor_close(h->executor);
    kin_loopback_close(h->loopback);
    *h = (kin_loopback_head){0};
}
