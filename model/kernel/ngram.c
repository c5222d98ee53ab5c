// The embedding of the last tokens (kin_ngram): what it adds to the streams, by kin's kernels.
//
// Of its embedding e a token has a key of each stream and one value. A stream's gate compares the key with the stream; the value
// is added to it, times the gate, and so is a convolution of what the token and some before it add.
//   s = rms(key_s) . rms(x_s) / sqrt(n_embd);  gate_s = sigmoid(sign(s) sqrt(max(|s|, 1e-6)));  g_s = gate_s value
//   x_s += g_s + SiLU(sum over taps k of taps_k rms(g_s) of the token k `size` positions earlier)
// A sequence's state has the value of each such token, and by stream the gate and 1 / rms(g_s), not the convolution's input: that
// is n_streams times as long.
#include <math.h>
#include <string.h>

#include "model/kernel/ops_impl.h"

enum { CHANNELS = 256 }; // of each stream, in a chunk

static float *row_of(const struct ggml_tensor *t, int64_t row) {
    return (float *)t->data + row * t->ne[0];
}

// ---- gates

static int count_tokens(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1];
}

// Returns the product of a, b // f32 [n]. Its terms are exact and are added in order, so the bits are the same everywhere.
static double dot(int n, const float *a, const float *b) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

// Returns the dot product of a stream and its key, both normalised; divided by the root of their length.
static float compare(const struct kin_op *op, int n, const float *key, const float *key_norm, const float *x,
                     const float *x_norm) {
    enum { PART = 256 };
    const double eps = (double)op->eps;
    const double scale = 1 / sqrt(dot(n, key, key) / n + eps) / sqrt(dot(n, x, x) / n + eps) / sqrt(n);
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const float a = key[i] * key_norm[i], b = x[i] * x_norm[i];
        sum += (double)a * (double)b;
    }
    return (float)(sum * scale);
}

// Sources: the keys and the value, x, the norms of keys and streams. Makes a row of the state.
static void gate_streams(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int n = op->hp->n_embd, n_streams = op->hp->n_streams;
    const float *keys = row_of(y->src[0], c->i), *x = row_of(y->src[1], c->i), *key_norm = y->src[2]->data,
                *x_norm = y->src[3]->data, *value = keys + (ptrdiff_t)n_streams * n, one = 1;
    float *row = row_of(y, c->i), *extra = row + n;
    (void)n_threads;
    memcpy(row, value, (size_t)n * sizeof *row);
    memset(extra, 0, KIN_NGRAM_EXTRA * sizeof *extra);
    const double mean = dot(n, value, value) / n;
    for (int s = 0; s < n_streams; s++) {
        const ptrdiff_t at = (ptrdiff_t)s * n;
        const float score = compare(op, n, keys + at, key_norm + at, x + at, x_norm + at), size = fabsf(score);
        const float root = sqrtf(size > 1e-6f ? size : 1e-6f);
        float *gate = &extra[KIN_NGRAM_GATES + s];
        op->kernels->scale_sigmoid(1, score > 0 ? root : score < 0 ? -root : 0, &one, gate);
        const double squares = (double)*gate * (double)*gate * mean;
        extra[KIN_NGRAM_FACTORS + s] = (float)((double)*gate / sqrt(squares + (double)op->eps));
    }
}

static const kin_op_run gating = {.count = count_tokens, .compute = gate_streams};

// ---- the convolution

// Returns row i of a run, counted from the n_before ones before its first token.
static const float *run_row(const struct kin_op *op, const struct ggml_tensor *rows, const kin_run *run, int i) {
    const int n_before = kin_ngram_n_before(op->hp);
    const float *history = op->states + (size_t)run->state * op->states_apart + kin_delta_state_floats(&op->hp->delta);
    if (i >= n_before) return row_of(rows, run->rows[i - n_before]);
    return history + (size_t)(run->n_logged + i) * kin_ngram_row_floats(op->hp);
}

// True if row i of a run is before the beginning of its sequence.
static bool is_missing(const struct kin_op *op, const kin_run *run, int i) {
    return run->is_new && run->n_logged + i < kin_ngram_n_before(op->hp);
}

static int count_parts(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)y, (void)n_threads;
    return op->rows->plain.n_runs * ((op->hp->n_embd + CHANNELS - 1) / CHANNELS);
}

// Adds to channels at .. at + n - 1 of stream s of y // f32 what row i of the run has for it.
static void add_part(const struct kin_op *op, struct ggml_tensor *const *src, const kin_run *run, int i, int s, int at, int n,
                     float *y) {
    const kin_hparams *hp = op->hp;
    const int n_taps = hp->ngram.n_taps, n_embd = hp->n_embd, n_before = kin_ngram_n_before(hp);
    const ptrdiff_t channel = (ptrdiff_t)s * n_embd + at;
    const float *norm = (const float *)src[3]->data + channel, *row = run_row(op, src[0], run, n_before + i);
    float in[KIN_CONVOLUTION_TAPS][CHANNELS], sum[CHANNELS], *out[] = {sum};
    const float *rows[KIN_CONVOLUTION_TAPS];
    for (int k = 0; k < n_taps; k++) {
        const int of = i + k * hp->ngram.size;
        const float *from = run_row(op, src[0], run, of);
        rows[k] = in[k];
        if (is_missing(op, run, of)) {
            memset(in[k], 0, sizeof in[k]);
            continue;
        }
        const float factor = from[n_embd + KIN_NGRAM_FACTORS + s];
        for (int c = 0; c < n; c++) {
            const float normed = from[at + c] * factor;
            in[k][c] = normed * norm[c];
        }
    }
    op->kernels->convolve(&(kin_convolution){
        .n_taps = n_taps, .n = n, .taps = (const float *)src[2]->data + channel * n_taps, .n_rows = 1, .x = rows, .y = out});
    op->kernels->add_scaled(n, row[n_embd + KIN_NGRAM_GATES + s], row + at, y);
    op->kernels->add(n, sum, y);
}

// Sources: the rows of the state that gate_streams makes, x, the taps, the norm. A chunk is some channels, of all streams, of one
// sequence.
static void add_ngrams(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int n_embd = op->hp->n_embd, n_parts = (n_embd + CHANNELS - 1) / CHANNELS, at = c->i % n_parts * CHANNELS;
    const int n = n_embd - at < CHANNELS ? n_embd - at : CHANNELS;
    const kin_run *run = &op->rows->plain.runs[c->i / n_parts];
    (void)n_threads;
    for (int i = 0; i < run->n; i++) {
        for (int s = 0; s < op->hp->n_streams; s++) {
            float *to = row_of(y, run->rows[i]) + (ptrdiff_t)s * n_embd + at;
            memcpy(to, row_of(y->src[1], run->rows[i]) + (ptrdiff_t)s * n_embd + at, (size_t)n * sizeof *to);
            add_part(op, y->src, run, i, s, at, n, to);
        }
    }
}

static const kin_op_run adding = {.count = count_parts, .compute = add_ngrams};

// ---- the state

static int count_runs(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)y, (void)n_threads;
    return op->rows->plain.n_runs;
}

// Sources: the rows that gate_streams makes. A chunk is a sequence; y stays as it is. Like the convolution of recurrent layers:
// the last rows before the run's first token, or after its last one, become the first ones, and the run's tokens the log if they
// are not added.
static void move_state(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const kin_run *run = &op->rows->plain.runs[c->i];
    const int n_before = kin_ngram_n_before(op->hp), first = run->stores ? run->n : 0;
    const int n_kept = n_before + (run->stores ? 0 : run->n);
    const size_t floats = kin_ngram_row_floats(op->hp);
    float *to = op->states + (size_t)run->state * op->states_apart + kin_delta_state_floats(&op->hp->delta);
    (void)n_threads;
    for (int i = 0; i < n_kept; i++, to += floats) {
        if (is_missing(op, run, first + i))
            memset(to, 0, floats * sizeof *to);
        else
            memmove(to, run_row(op, y->src[1], run, first + i), floats * sizeof *to);
    }
}

static const kin_op_run moving = {.count = count_runs, .compute = move_state};

static struct kin_op *op_with_states(kin_graph *g, int il) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = &g->all;
    op->states = g->layers[il].states;
    op->states_apart = kin_state_floats(g->hp, il);
    op->eps = g->hp->rms_eps;
    return op;
}

struct ggml_tensor *kin_op_ngrams(kin_graph *g, int il, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = g->layers[il].w, *const two[] = {w[KIN_W_NGRAM_KEY], w[KIN_W_NGRAM_VALUE]};
    struct ggml_tensor *both = kin_op_linear(g, g->ngrams, two, NULL, 2, NULL); // [stream width + n_embd, n]
    struct ggml_tensor *of_rows[] = {both, x, w[KIN_W_NGRAM_KEY_NORM], w[KIN_W_NGRAM_QUERY_NORM]};
    const int64_t width = (int64_t)kin_ngram_row_floats(g->hp);
    struct ggml_tensor *rows = kin_op_node(g, GGML_TYPE_F32, width, x->ne[1], of_rows, 4, &gating, op_with_states(g, il));
    struct ggml_tensor *args[] = {rows, x, w[KIN_W_NGRAM_CONV], w[KIN_W_NGRAM_CONV_NORM]};
    struct ggml_tensor *y = kin_op_node(g, GGML_TYPE_F32, x->ne[0], x->ne[1], args, 4, &adding, op_with_states(g, il));
    return kin_op_inplace(g, y, &rows, 1, &moving, op_with_states(g, il));
}
