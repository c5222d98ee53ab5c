// Recurrent layers by kin's kernels. Sequences are independent of each other, and so are the heads of a sequence; a head's tokens
// follow each other. No chunk is computed twice, because chunks change states.
#include <math.h>
#include <string.h>

#include "model/kernel/ops_impl.h"

enum {
    ROWS = 16,              // tokens of a head that are prepared at once
    CHANNELS_A_CHUNK = 256, // of a convolution without heads
};

// ---- fields

// Sources: x.
static int count_recurrent_rows(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
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

static const kin_op_run field_copies = {.count = count_recurrent_rows, .compute = copy_fields};

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

// Channels of a chunk: a head's, which may have to be normalised.
static int width_of(const kin_delta_net *d) {
    return d->is_state_space ? CHANNELS_A_CHUNK : d->head_dim;
}

static int n_groups_of(const kin_delta_net *d) {
    return (kin_delta_n_channels(d) + width_of(d) - 1) / width_of(d);
}

// Sources: x, the taps, the bias if there is one; with decays_rows x and the taps of queries, keys and values. A chunk is some
// channels of one sequence.
static int count_convolutions(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)y, (void)n_threads;
    return op->rows->plain.n_runs * n_groups_of(&op->hp->delta);
}

// A convolution of some channels of a run.
typedef struct channels {
    const kin_run *run;
    float *history; // the first of the n_taps - 1 rows before the run
    size_t ldh;     // floats from one row to the next
    const float *x; // row 0 of the batch
    size_t ldx;
    float *y;
    size_t ldy;
    const float *taps, *bias;
    int n_before;
    int n; // channels
    bool is_plain;
} channels;

static const float *input_row(const channels *c, int i) {
    return i < c->n_before ? c->history + (size_t)i * c->ldh : c->x + (size_t)c->run->rows[i - c->n_before] * c->ldx;
}

static float *output_row(const channels *c, int i) {
    return c->y + (size_t)c->run->rows[i] * c->ldy;
}

// Begins with the state `history` before the log.
static void find_history(channels *c, float *history) {
    for (int i = 0; i < c->n_before && c->run->is_new; i++)
        memset(history + (size_t)i * c->ldh, 0, (size_t)c->n * sizeof *history);
    c->history = history + (size_t)c->run->n_logged * c->ldh;
}

static void convolve_run(const struct kin_op *op, const channels *c) {
    for (int done = 0, n; done < c->run->n; done += n) {
        const float *rows[ROWS + KIN_CONVOLUTION_TAPS];
        float *out[ROWS];
        n = c->run->n - done < ROWS ? c->run->n - done : ROWS;
        for (int i = 0; i < n + c->n_before; i++) rows[i] = input_row(c, done + i);
        for (int i = 0; i < n; i++) out[i] = output_row(c, done + i);
        op->kernels->convolve(&(kin_convolution){.n_taps = c->n_before + 1,
                                                 .n = c->n,
                                                 .taps = c->taps,
                                                 .bias = c->bias,
                                                 .n_rows = n,
                                                 .x = rows,
                                                 .y = out,
                                                 .is_plain = c->is_plain});
    }
}

// Makes the last rows before the run's first token, or after its last one, the first ones of the history `to`, and appends the
// run's tokens if they become the log.
static void move_history(const channels *c, float *to) {
    const kin_run *run = c->run;
    const int first = run->stores ? run->n : 0, n_kept = c->n_before + (run->stores ? 0 : run->n);
    for (int i = 0; i < n_kept; i++) memmove(to + (size_t)i * c->ldh, input_row(c, first + i), (size_t)c->n * sizeof *to);
}

// Returns the taps of the channels from `at` on.
static const float *taps_at(const struct ggml_tensor *y, const kin_delta_net *d, int at) {
    const int width = d->decays_rows ? kin_delta_n_values(d) : (int)y->ne[0]; // of the channels whose taps are in one tensor
    return (const float *)y->src[1 + at / width]->data + (size_t)(at % width) * (size_t)d->n_taps;
}

// Divides a head's query or key by its length.
static void make_unit(const struct kin_op *op, float *x) {
    const int n = op->hp->delta.head_dim;
    const float eps = op->hp->delta.unit_eps, scale = 1 / sqrtf((float)n);
    if (eps == 0) {
        op->kernels->unit(n, op->eps, x);
        return;
    }
    op->kernels->rms_norm(n, x, NULL, eps / (float)n, x); // of the length sqrt(n)
    for (int i = 0; i < n; i++) x[i] *= scale;
}

static void convolve(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *chunk) {
    const kin_delta_net *d = &op->hp->delta;
    const struct ggml_tensor *x = y->src[0], *bias = d->decays_rows ? NULL : y->src[2];
    const int n_groups = n_groups_of(d), group = chunk->i % n_groups, at = group * width_of(d), left = (int)x->ne[0] - at;
    const int n_normed = d->is_state_space ? 0 : 2 * d->n_key_heads; // groups
    const kin_run *run = &op->rows->plain.runs[chunk->i / n_groups];
    float *history = op->states + (size_t)run->state * op->states_apart + at;
    channels c = {.run = run,
                  .ldh = (size_t)x->ne[0],
                  .x = (const float *)x->data + at,
                  .ldx = (size_t)x->ne[0],
                  .y = (float *)y->data + at,
                  .ldy = (size_t)x->ne[0],
                  .taps = taps_at(y, d, at),
                  .bias = bias ? (const float *)bias->data + at : NULL,
                  .n_before = d->n_taps - 1,
                  .n = left < width_of(d) ? left : width_of(d)};
    (void)n_threads;
    find_history(&c, history);
    convolve_run(op, &c);
    for (int i = 0; i < run->n && group < n_normed; i++) make_unit(op, output_row(&c, i));
    move_history(&c, history);
}

static const kin_op_run convolutions = {.count = count_convolutions, .compute = convolve};

struct ggml_tensor *kin_op_convolve(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w;
    struct ggml_tensor *args[4] = {x, w[KIN_W_DELTA_CONV], w[KIN_W_STATE_CONV_BIAS]};
    int n_args = args[2] ? 3 : 2;
    for (int i = 0; i < 3 && g->hp->delta.decays_rows; i++) args[i + 1] = w[KIN_W_KDA_CONV_Q + i];
    if (g->hp->delta.decays_rows) n_args = 4;
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = &g->all;
    op->states = g->layers[il].states;
    op->states_apart = kin_state_floats(g->hp, il);
    op->eps = g->hp->rms_eps;
    return kin_op_node(g, GGML_TYPE_F32, x->ne[0], x->ne[1], args, n_args, &convolutions, op);
}

// ---- the short convolution

static int count_channels(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)n_threads;
    return op->rows->plain.n_runs * (int)((y->ne[0] + CHANNELS_A_CHUNK - 1) / CHANNELS_A_CHUNK);
}

// a *= b; f32 [n]
static void multiply_matrix(int n, const float *b, float *a) {
    for (int i = 0; i < n; i++) a[i] *= b[i];
}

// Sources: the gates and the input, the taps. A chunk is some channels of one sequence.
static void convolve_gated(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *chunk) {
    const struct ggml_tensor *gates = y->src[0], *taps = y->src[1];
    const int n_embd = (int)y->ne[0], n_taps = op->hp->conv.n_taps, n_chunks = (n_embd + CHANNELS_A_CHUNK - 1) / CHANNELS_A_CHUNK;
    const int at = chunk->i % n_chunks * CHANNELS_A_CHUNK, left = n_embd - at;
    const kin_run *run = &op->rows->plain.runs[chunk->i / n_chunks];
    float *history = op->states + (size_t)run->state * op->states_apart + at, *x = (float *)gates->data + at;
    channels c = {.run = run,
                  .ldh = (size_t)n_embd,
                  .x = x,
                  .ldx = (size_t)gates->ne[0],
                  .y = (float *)y->data + at,
                  .ldy = (size_t)n_embd,
                  .taps = (const float *)taps->data + (size_t)at * (size_t)n_taps,
                  .n_before = n_taps - 1,
                  .n = left < CHANNELS_A_CHUNK ? left : CHANNELS_A_CHUNK,
                  .is_plain = true};
    (void)n_threads;
    for (int i = 0; i < run->n; i++) {
        float *row = x + (size_t)run->rows[i] * c.ldx;
        multiply_matrix(c.n, row + 2 * n_embd, row);
    }
    find_history(&c, history);
    convolve_run(op, &c);
    for (int i = 0; i < run->n; i++) multiply_matrix(c.n, x + (size_t)run->rows[i] * c.ldx + n_embd, output_row(&c, i));
    move_history(&c, history);
}

static const kin_op_run short_convolutions = {.count = count_channels, .compute = convolve_gated};

struct ggml_tensor *kin_op_short_conv(kin_graph *g, int il, struct ggml_tensor *y) {
    struct ggml_tensor *args[] = {y, g->layers[il].w[KIN_W_CONV_TAPS]};
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = &g->all;
    op->states = g->layers[il].states;
    op->states_apart = kin_state_floats(g->hp, il);
    return kin_op_node(g, GGML_TYPE_F32, g->hp->n_embd, y->ne[1], args, 2, &short_convolutions, op);
}

// ---- the delta net

// Sources: the convolved queries, keys and values, beta and alpha, the gates, and the weights A, DT and NORM; of a state space:
// values, keys and queries, alpha, the gates, and A, DT and D; with decays_rows beta alone, and a seventh, of which the decays of
// rows are made in place. A chunk is a head of one sequence.
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
    float *state = op->states + (size_t)run->state * op->states_apart;
    float *m = state + kin_delta_history_floats(d) + (size_t)i * kin_delta_head_floats(d);
    return (head){.op = op,
                  .y = y,
                  .run = run,
                  .i = i,
                  .key = d->is_grouped ? i / (d->n_value_heads / d->n_key_heads) : i % d->n_key_heads,
                  .m = m,
                  .log = m + (size_t)d->key_dim * (size_t)d->head_dim};
}

static float *row_at(const struct ggml_tensor *t, int64_t row) {
    return (float *)t->data + row * t->ne[0];
}

// Returns the places of the head's beta and alpha in a row of both.
static void find_factors(const head *h, int *beta, int *alpha) {
    const kin_delta_net *d = &h->op->hp->delta;
    const int r = d->n_value_heads / d->n_key_heads;
    if (d->is_state_space) {
        *beta = *alpha = h->i;
        return;
    }
    *beta = d->is_grouped ? h->key * 2 * r + h->i % r : h->i;
    *alpha = *beta + (d->is_grouped ? r : d->n_value_heads);
}

// Makes the factors of n tokens of the run, from the one at `begin` on, with a decay for each token.
static void make_factors(head *h, int begin, int n) {
    const bool is_state_space = h->op->hp->delta.is_state_space;
    const struct ggml_tensor *beta_alpha = h->y->src[1];
    const float *a = h->y->src[3]->data, *dt = h->y->src[4]->data;
    int beta_at, alpha_at;
    find_factors(h, &beta_at, &alpha_at);
    for (int i = 0; i < ROWS; i++) {
        const float *both = row_at(beta_alpha, h->run->rows[begin + (i < n ? i : 0)]);
        h->beta[i] = both[beta_at];
        h->decay[i] = both[alpha_at];
    }
    h->op->kernels->delta_factors(ROWS, a[h->i], dt[h->i], h->decay, is_state_space ? NULL : h->beta, h->decay, h->beta);
}

// The same with a decay of each row, of which there are key_dim in the seventh source.
static void make_decays(head *h, int begin, int n) {
    const int n_key = h->op->hp->delta.key_dim;
    const float *a = h->y->src[3]->data, *dt = h->y->src[4]->data, one = 1;
    for (int i = 0; i < n; i++) {
        const int32_t row = h->run->rows[begin + i];
        float *decays = row_at(h->y->src[6], row) + h->i * n_key;
        h->op->kernels->delta_decays(n_key, a[h->i], h->op->hp->delta.least_decay, dt + h->i * n_key, decays, decays);
        h->op->kernels->scale_sigmoid(1, row_at(h->y->src[1], row)[h->i], &one, &h->beta[i]);
    }
}

// Prepares n tokens of the run, from the one at `begin` on.
static void prepare(head *h, int begin, int n, kin_delta_row *rows) {
    const kin_delta_net *d = &h->op->hp->delta;
    const struct ggml_tensor *x = h->y->src[0];
    if (d->decays_rows)
        make_decays(h, begin, n);
    else
        make_factors(h, begin, n);
    const int n_keys = d->n_key_heads * d->key_dim, n_values = kin_delta_n_values(d);
    const int q_at = d->is_state_space ? n_values + n_keys : 0, k_at = d->is_state_space ? n_values : n_keys;
    const int v_at = d->is_state_space ? 0 : 2 * n_keys;
    for (int i = 0; i < n; i++) {
        const int32_t row = h->run->rows[begin + i];
        const float *all = row_at(x, row);
        rows[i] = (kin_delta_row){.q = all + q_at + h->key * d->key_dim,
                                  .k = all + k_at + h->key * d->key_dim,
                                  .v = all + v_at + h->i * d->head_dim,
                                  .decay = h->decay[i],
                                  .beta = h->beta[i],
                                  .out = row_at(h->y, row) + h->i * d->head_dim};
        if (d->decays_rows) rows[i].decays = row_at(h->y->src[6], row) + h->i * d->key_dim;
    }
}

static void read_log(const head *h, kin_delta_row *rows) {
    const kin_delta_net *d = &h->op->hp->delta;
    for (int i = 0; i < h->run->n_logged; i++) {
        const float *at = h->log + (size_t)i * kin_delta_log_row(d), *factors = at + d->key_dim + d->head_dim;
        rows[i] = (kin_delta_row){.k = at, .v = at + d->key_dim, .decay = factors[0], .beta = factors[1], .decays = factors + 16};
    }
}

static void write_log(const head *h, const kin_delta_row *rows) {
    const kin_delta_net *d = &h->op->hp->delta;
    for (int i = 0; i < h->run->n; i++) {
        float *at = h->log + (size_t)i * kin_delta_log_row(d), *factors = at + d->key_dim + d->head_dim;
        memcpy(at, rows[i].k, (size_t)d->key_dim * sizeof *at);
        memcpy(at + d->key_dim, rows[i].v, (size_t)d->head_dim * sizeof *at);
        factors[0] = rows[i].decay;
        factors[1] = rows[i].beta;
        if (d->decays_rows) memcpy(factors + 16, rows[i].decays, (size_t)d->key_dim * sizeof *at);
    }
}

static void advance(const head *h, int n_rows, int n_stored) {
    const kin_delta_net *d = &h->op->hp->delta;
    const kin_delta_rule delta = {.n_key = d->key_dim,
                                  .n_value = d->head_dim,
                                  .is_additive = d->is_state_space,
                                  .scale = d->is_state_space ? 1 : 1 / sqrtf((float)d->key_dim),
                                  .n_rows = n_rows,
                                  .n_stored = n_stored,
                                  .rows = h->rows,
                                  .m = h->m,
                                  .decays_rows = d->decays_rows};
    h->op->kernels->delta(&delta);
}

// Finishes the head's result of token `i`.
static void finish(const head *h, int i) {
    const kin_delta_net *d = &h->op->hp->delta;
    const struct ggml_tensor *gate = h->y->src[2], *weight = h->y->src[5];
    const int dim = d->head_dim, at = h->i * dim;
    const int32_t row = h->run->rows[i];
    float *out = row_at(h->y, row) + at;
    if (d->is_state_space) {
        const float *v = row_at(h->y->src[0], row) + at, factor = ((const float *)weight->data)[h->i];
        for (int j = 0; j < dim; j++) {
            const float part = factor * v[j]; // a statement of its own: never fused
            out[j] += part;
        }
    } else {
        h->op->kernels->rms_norm(dim, out, weight->data, h->op->eps, out);
    }
    if (d->gates_by_sigmoid)
        h->op->kernels->gate_heads(KIN_HEAD_GATE_SIGMOID, true, 1, dim, row_at(gate, row) + at, out);
    else
        h->op->kernels->gate(KIN_GATE_SILU, dim, row_at(gate, row) + at, out, out);
}

static void compute_delta_net(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const kin_delta_net *d = &op->hp->delta;
    head h = head_of(y, op, c->i);
    const kin_run *run = h.run;
    int n_logged = run->n_logged;
    (void)n_threads;
    if (run->is_new) memset(h.m, 0, (size_t)d->key_dim * (size_t)d->head_dim * sizeof *h.m);
    read_log(&h, h.rows);
    for (int done = 0, n; done < run->n; done += n, n_logged = 0) {
        n = run->n - done < ROWS ? run->n - done : ROWS;
        prepare(&h, done, n, h.rows + n_logged);
        advance(&h, n_logged + n, n_logged + (run->stores ? n : 0));
        if (!run->stores) write_log(&h, h.rows + n_logged);
    }
    for (int i = 0; i < run->n; i++) finish(&h, i);
}

static const kin_op_run delta_nets = {.count = count_heads, .compute = compute_delta_net};

struct ggml_tensor *kin_op_delta_net(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *beta_alpha,
                                     struct ggml_tensor *gate, struct ggml_tensor *decays) {
    struct ggml_tensor *const *w = g->layers[il].w;
    struct ggml_tensor *dt = w[KIN_W_KDA_DT] ? w[KIN_W_KDA_DT] : w[KIN_W_DELTA_DT];
    struct ggml_tensor *a = w[KIN_W_STATE_A] ? w[KIN_W_STATE_A] : w[KIN_W_DELTA_A];
    struct ggml_tensor *last = w[KIN_W_STATE_D] ? w[KIN_W_STATE_D] : w[KIN_W_DELTA_NORM];
    struct ggml_tensor *args[] = {x, beta_alpha, gate, a, dt, last, decays};
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = &g->all;
    op->states = g->layers[il].states;
    op->states_apart = kin_state_floats(g->hp, il);
    op->eps = g->hp->rms_eps;
    return kin_op_node(g, GGML_TYPE_F32, kin_delta_n_values(&g->hp->delta), x->ne[1], args, decays ? 7 : 6, &delta_nets, op);
}

// ---- norms of groups

// Sources: x, the weights, a row for each group.
static void norm_groups(struct ggml_tensor *x, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *weight = x->src[1];
    const int64_t n = weight->ne[0];
    float *at = row_at(x, c->i);
    (void)n_threads;
    for (int64_t i = 0; i < weight->ne[1]; i++, at += n)
        op->kernels->rms_norm(n, at, (const float *)weight->data + i * n, op->eps, at);
}

static const kin_op_run group_norms = {.count = count_recurrent_rows, .compute = norm_groups};

struct ggml_tensor *kin_op_norm_groups(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *weight) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->eps = g->hp->rms_eps;
    return kin_op_inplace(g, x, &weight, 1, &group_norms, op);
}
