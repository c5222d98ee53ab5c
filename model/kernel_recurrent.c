// Recurrent layers by kin's kernels. Sequences are independent of each other, and so are the heads of a sequence; a head's tokens
// follow each other. No chunk is computed twice, because chunks change states.
#include <math.h>
#include <string.h>

#include "model/kernel_ops_impl.h"

enum { ROWS = 16 }; // tokens of a head that are prepared at once

// ---- fields

// Sources: x.
static int count_rows(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1];
}

static void copy_fields(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *x = y->src[0];
    const int64_t part = x->ne[0] / op->n_groups;
    const float *from = (const float *)x->data + c->i * x->ne[0];
    float *to = (float *)y->data + c->i * y->ne[0];
    (void)n_threads;
    for (int k = 0; k < op->n_fields; k++) {
        const kin_op_field *f = &op->fields[k];
        for (int i = 0; i < op->n_groups; i++, to += f->n) memcpy(to, from + i * part + f->at, (size_t)f->n * sizeof *to);
    }
}

static const kin_op_run field_copies = {.count = count_rows, .compute = copy_fields};

struct ggml_tensor *kin_op_fields(kin_graph *g, struct ggml_tensor *x, int n_groups, const kin_op_field *fields, int n_fields) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    int64_t n = 0;
    kin_assert(n_fields <= KIN_OP_FIELDS && x->ne[0] % n_groups == 0);
    op->n_groups = n_groups;
    op->n_fields = n_fields;
    for (int i = 0; i < n_fields; i++) {
        op->fields[i] = fields[i];
        n += (int64_t)n_groups * fields[i].n;
    }
    return kin_op_node(g, GGML_TYPE_F32, n, x->ne[1], &x, 1, &field_copies, op);
}

// ---- convolution

static int n_groups_of(const kin_delta_net *d) {
    return 2 * d->n_key_heads + d->n_value_heads;
}

// Sources: x, the taps. A chunk is a head's channels of one sequence.
static int count_convolutions(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)y, (void)n_threads;
    return op->rows->plain.n_runs * n_groups_of(&op->hp->delta);
}

// The convolution's inputs of a run's channels.
typedef struct inputs {
    const kin_run *run;
    float *history; // the first of the n_taps - 1 rows before the run
    const float *x; // row 0 of the batch
    size_t ld;      // floats from one row to the next, in both
    int n_before;
} inputs;

static const float *input_row(const inputs *in, int i) {
    return i < in->n_before ? in->history + (size_t)i * in->ld : in->x + (size_t)in->run->rows[i - in->n_before] * in->ld;
}

// Makes the last rows before the run's first token, or behind its last one, the first ones of the history `to`, and appends the
// run's tokens if they become the log.
static void move_history(const inputs *in, float *to, int n) {
    const kin_run *run = in->run;
    const size_t bytes = (size_t)n * sizeof(float);
    const int first = run->stores ? run->n : 0, n_kept = in->n_before + (run->stores ? 0 : run->n);
    for (int i = 0; i < n_kept; i++) memmove(to + (size_t)i * in->ld, input_row(in, first + i), bytes);
}

static void convolve(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *x = y->src[0], *taps = y->src[1];
    const kin_delta_net *d = &op->hp->delta;
    const int n_groups = n_groups_of(d), group = c->i % n_groups, at = group * d->head_dim;
    const kin_run *run = &op->rows->plain.runs[c->i / n_groups];
    float *history = op->states + (size_t)run->state * kin_delta_state_floats(d) + at;
    inputs in = {.run = run, .x = (const float *)x->data + at, .ld = (size_t)x->ne[0], .n_before = d->n_taps - 1};
    in.history = history + (size_t)run->n_logged * in.ld;
    (void)n_threads;
    for (int i = 0; i < in.n_before && run->is_new; i++)
        memset(history + (size_t)i * in.ld, 0, (size_t)d->head_dim * sizeof(float));
    for (int done = 0, n; done < run->n; done += n) {
        const float *rows[ROWS + KIN_CONVOLUTION_TAPS];
        float *out[ROWS];
        n = run->n - done < ROWS ? run->n - done : ROWS;
        for (int i = 0; i < n + in.n_before; i++) rows[i] = input_row(&in, done + i);
        for (int i = 0; i < n; i++) out[i] = (float *)y->data + (size_t)run->rows[done + i] * in.ld + at;
        op->kernels->convolve(&(kin_convolution){.n_taps = d->n_taps,
                                                 .n = d->head_dim,
                                                 .taps = (const float *)taps->data + (size_t)at * (size_t)d->n_taps,
                                                 .n_rows = n,
                                                 .x = rows,
                                                 .y = out});
        for (int i = 0; i < n && group < 2 * d->n_key_heads; i++) op->kernels->unit(d->head_dim, op->eps, out[i]);
    }
    move_history(&in, history, d->head_dim);
}

static const kin_op_run convolutions = {.count = count_convolutions, .compute = convolve};

struct ggml_tensor *kin_op_convolve(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *args[] = {x, g->layers[il].w[KIN_W_DELTA_CONV]};
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = &g->all;
    op->states = g->layers[il].states;
    op->eps = g->hp->rms_eps;
    return kin_op_node(g, GGML_TYPE_F32, x->ne[0], x->ne[1], args, 2, &convolutions, op);
}

// ---- the delta net

// Sources: the convolved queries, keys and values, beta and alpha, the gates, and the weights A, DT and NORM. A chunk is a head
// of one sequence.
static int count_heads(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)y, (void)n_threads;
    return op->rows->plain.n_runs * op->hp->delta.n_value_heads;
}

// A head of a run.
typedef struct head {
    const struct kin_op *op;
    struct ggml_tensor *y;
    const kin_run *run;
    int i, key; // its number, and that of its key head
    float *m, *log;
    float decay[ROWS], beta[ROWS];
    kin_delta_row rows[KIN_STATE_LOG + ROWS];
} head;

static head head_of(struct ggml_tensor *y, const struct kin_op *op, int chunk) {
    const kin_delta_net *d = &op->hp->delta;
    const int i = chunk % d->n_value_heads;
    const kin_run *run = &op->rows->plain.runs[chunk / d->n_value_heads];
    float *state = op->states + (size_t)run->state * kin_delta_state_floats(d);
    float *m = state + kin_delta_history_floats(d) + (size_t)i * kin_delta_head_floats(d);
    return (head){.op = op,
                  .y = y,
                  .run = run,
                  .i = i,
                  .key = d->is_grouped ? i / (d->n_value_heads / d->n_key_heads) : i % d->n_key_heads,
                  .m = m,
                  .log = m + (size_t)d->head_dim * (size_t)d->head_dim};
}

static float *row_at(const struct ggml_tensor *t, int64_t row) {
    return (float *)t->data + row * t->ne[0];
}

// Returns the places of the head's beta and alpha in a row of both.
static void find_factors(const head *h, int *beta, int *alpha) {
    const kin_delta_net *d = &h->op->hp->delta;
    const int r = d->n_value_heads / d->n_key_heads;
    *beta = d->is_grouped ? h->key * 2 * r + h->i % r : h->i;
    *alpha = *beta + (d->is_grouped ? r : d->n_value_heads);
}

// Prepares n tokens of the run, from the one at `begin` on.
static void prepare(head *h, int begin, int n, kin_delta_row *rows) {
    const kin_delta_net *d = &h->op->hp->delta;
    const struct ggml_tensor *x = h->y->src[0], *beta_alpha = h->y->src[1];
    const float *a = h->y->src[3]->data, *dt = h->y->src[4]->data;
    int beta_at, alpha_at;
    find_factors(h, &beta_at, &alpha_at);
    for (int i = 0; i < ROWS; i++) {
        const float *both = row_at(beta_alpha, h->run->rows[begin + (i < n ? i : 0)]);
        h->beta[i] = both[beta_at];
        h->decay[i] = both[alpha_at];
    }
    h->op->kernels->delta_factors(ROWS, a[h->i], dt[h->i], h->decay, h->beta, h->decay, h->beta);
    for (int i = 0; i < n; i++) {
        const int32_t row = h->run->rows[begin + i];
        const float *q = row_at(x, row);
        rows[i] = (kin_delta_row){.q = q + h->key * d->head_dim,
                                  .k = q + (d->n_key_heads + h->key) * d->head_dim,
                                  .v = q + (2 * d->n_key_heads + h->i) * d->head_dim,
                                  .decay = h->decay[i],
                                  .beta = h->beta[i],
                                  .out = row_at(h->y, row) + h->i * d->head_dim};
    }
}

static void read_log(const head *h, kin_delta_row *rows) {
    const kin_delta_net *d = &h->op->hp->delta;
    for (int i = 0; i < h->run->n_logged; i++) {
        const float *at = h->log + (size_t)i * kin_delta_log_row(d), *factors = at + 2 * d->head_dim;
        rows[i] = (kin_delta_row){.k = at, .v = at + d->head_dim, .decay = factors[0], .beta = factors[1]};
    }
}

static void write_log(const head *h, const kin_delta_row *rows) {
    const kin_delta_net *d = &h->op->hp->delta;
    for (int i = 0; i < h->run->n; i++) {
        float *at = h->log + (size_t)i * kin_delta_log_row(d), *factors = at + 2 * d->head_dim;
        memcpy(at, rows[i].k, (size_t)d->head_dim * sizeof *at);
        memcpy(at + d->head_dim, rows[i].v, (size_t)d->head_dim * sizeof *at);
        factors[0] = rows[i].decay;
        factors[1] = rows[i].beta;
    }
}

static void advance(const head *h, int n_rows, int n_stored) {
    const int dim = h->op->hp->delta.head_dim;
    const kin_delta_rule delta = {.n_key = dim,
                                  .n_value = dim,
                                  .scale = 1 / sqrtf((float)dim),
                                  .n_rows = n_rows,
                                  .n_stored = n_stored,
                                  .rows = h->rows,
                                  .m = h->m};
    h->op->kernels->delta(&delta);
}

static void compute_delta_net(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *gate = y->src[2], *norm = y->src[5];
    const int dim = op->hp->delta.head_dim;
    head h = head_of(y, op, c->i);
    const kin_run *run = h.run;
    int n_logged = run->n_logged;
    (void)n_threads;
    if (run->is_new) memset(h.m, 0, (size_t)dim * (size_t)dim * sizeof *h.m);
    read_log(&h, h.rows);
    for (int done = 0, n; done < run->n; done += n, n_logged = 0) {
        n = run->n - done < ROWS ? run->n - done : ROWS;
        prepare(&h, done, n, h.rows + n_logged);
        advance(&h, n_logged + n, n_logged + (run->stores ? n : 0));
        if (!run->stores) write_log(&h, h.rows + n_logged);
    }
    for (int i = 0; i < run->n; i++) {
        float *out = row_at(y, run->rows[i]) + h.i * dim;
        op->kernels->rms_norm(dim, out, norm->data, op->eps, out);
        op->kernels->gate(KIN_GATE_SILU, dim, row_at(gate, run->rows[i]) + h.i * dim, out, out);
    }
}

static const kin_op_run delta_nets = {.count = count_heads, .compute = compute_delta_net};

struct ggml_tensor *kin_op_delta_net(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *beta_alpha,
                                     struct ggml_tensor *gate) {
    struct ggml_tensor *const *w = g->layers[il].w;
    struct ggml_tensor *args[] = {x, beta_alpha, gate, w[KIN_W_DELTA_A], w[KIN_W_DELTA_DT], w[KIN_W_DELTA_NORM]};
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = &g->all;
    op->states = g->layers[il].states;
    op->eps = g->hp->rms_eps;
    return kin_op_node(g, GGML_TYPE_F32, kin_delta_n_values(&g->hp->delta), x->ne[1], args, 6, &delta_nets, op);
}
