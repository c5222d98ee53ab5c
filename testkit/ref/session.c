#include "testkit/ref/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testkit/ref/vector.h"

// Allocates zeroed floats // (a, b, c); NULL if out of memory.
static float *floats(int a, int b, int c) {
    const uint64_t n = (uint64_t)a * (uint64_t)b; // at most 2^36
    if (n > SIZE_MAX / sizeof(float) / (uint64_t)c) return NULL;
    return calloc((size_t)n * (size_t)c, sizeof(float));
}

static int max_int(int a, int b) {
    return a > b ? a : b;
}

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

bool kin_ref_has_state(const kin_ref_layer *w) {
    return w->delta.n_head > 0 || w->gated.n_value > 0 || w->conv.n > 0 || w->space.n_head > 0;
}

// Allocates the states of layers that have such, and their scratch and that of latent attention.
static bool allocate_states(kin_ref_session *s) {
    size_t n_scratch = 1 + kin_ref_mixer_scratch_floats(&s->model->end_mixer);
    s->n_state = 1;
    for (int il = s->layer_begin; il < s->layer_end; il++) {
        const kin_ref_layer *w = &s->model->layers[il];
        if (w->delta.n_head > 0) {
            s->n_state = max_size(s->n_state, kin_ref_delta_state_floats(&w->delta));
            n_scratch = max_size(n_scratch, kin_ref_delta_scratch_floats(&w->delta));
        }
        if (w->gated.n_value > 0) {
            s->n_state = max_size(s->n_state, kin_ref_gated_state_floats(&w->gated));
            n_scratch = max_size(n_scratch, kin_ref_gated_scratch_floats(&w->gated));
        }
        if (w->space.n_head > 0) {
            s->n_state = max_size(s->n_state, kin_ref_state_space_state_floats(&w->space));
            n_scratch = max_size(n_scratch, kin_ref_state_space_scratch_floats(&w->space));
        }
        if (w->conv.n > 0) {
            s->n_state = max_size(s->n_state, kin_ref_convolution_state_floats(&w->conv));
            n_scratch = max_size(n_scratch, kin_ref_convolution_scratch_floats(&w->conv));
        }
        for (int i = 0; i < 2; i++) n_scratch = max_size(n_scratch, kin_ref_mixer_scratch_floats(&w->mixers[i]));
        n_scratch = max_size(n_scratch, kin_ref_ngram_scratch_floats(&w->ngram));
        if (w->compressed.n_head > 0)
            n_scratch = max_size(n_scratch, kin_ref_compressed_scratch_floats(&w->compressed, s->n_ctx));
        n_scratch = max_size(n_scratch, kin_ref_block_indexer_scratch_floats(&w->indexer, s->n_ctx));
        if (w->latent.n_head > 0) n_scratch = max_size(n_scratch, kin_ref_latent_scratch_floats(&w->latent, s->n_ctx));
    }
    s->states = calloc((size_t)max_int(s->layer_end - s->layer_begin, 1) * s->n_state, sizeof *s->states);
    s->scratch = calloc(n_scratch, sizeof *s->scratch);
    return s->states && s->scratch;
}

// Allocates what blocks of several streams need, and what is kept of tokens for compressed rows.
static bool allocate_streams(kin_ref_session *s) {
    const kin_ref_model *m = s->model;
    const int n = max_int(m->n_streams, 1);
    s->n_kept = 1;
    for (int il = s->layer_begin; il < s->layer_end; il++) {
        const kin_ref_layer *w = &m->layers[il];
        s->n_kept = max_size(s->n_kept, kin_ref_compressed_kept_floats(&w->compressed));
        s->n_kept = max_size(s->n_kept, kin_ref_indexer_kept_floats(&w->latent.indexer));
        s->n_kept = max_size(s->n_kept, (size_t)kin_ref_block_indexer_width(&w->indexer));
        if (w->ngram.size > 0) s->n_kept = max_size(s->n_kept, kin_ref_width(m));
    }
    s->kept = floats(max_int(s->layer_end - s->layer_begin, 1), s->n_ctx, (int)s->n_kept);
    s->single = floats(1, 1, m->n_embd);
    s->streams = floats(1, n, m->n_embd);
    s->sinkhorn = floats(n * (2 + n), 1, n * m->n_embd + 2);
    s->shares_of_streams = floats(1, 1, n);
    s->tokens = calloc((size_t)s->n_ctx, sizeof *s->tokens);
    s->seen = calloc((size_t)s->n_ctx * (size_t)m->n_head_kv, sizeof *s->seen);
    return s->seen && s->kept && s->single && s->streams && s->sinkhorn && s->shares_of_streams && s->tokens;
}

// Reads the rope factors, of which a model may have other ones for long contexts.
static bool read_factors(kin_ref_session *s) {
    const kin_ref_model *m = s->model;
    const bool is_long = m->rope_freqs_long.data && s->n_ctx > m->rope.n_ctx_orig;
    const kin_ref_tensor *factors = is_long ? &m->rope_freqs_long : &m->rope_freqs;
    if (!factors->data) return true;
    s->rope_factors = floats(1, 1, factors->n_cols);
    if (!s->rope_factors) return false;
    kin_ref_tensor_row(factors, 0, s->rope_factors);
    return true;
}

// Allocates the scratch of feed-forward blocks, and of the layers' inputs.
static bool allocate_blocks(kin_ref_session *s) {
    const kin_ref_model *m = s->model;
    const int n_ff = max_int(max_int(m->n_ff, m->n_input), max_int(m->n_ff_dense, m->n_ff_shared));
    s->inputs = floats(1, m->n_layer, max_int(m->n_input, 1));
    s->sum = floats(1, 1, m->n_embd);
    s->shared = floats(1, 1, m->n_embd);
    s->latent = floats(1, 1, m->n_embd);
    s->router = floats(1, 1, max_int(m->n_expert, 1));
    s->shares = floats(1, 1, max_int(m->n_expert, 1));
    s->choice = floats(1, 1, max_int(m->n_expert, 1));
    s->gate = floats(1, 1, n_ff);
    s->up = floats(1, 1, n_ff);
    s->weights = floats(1, 1, max_int(max_int(m->n_embd, m->n_head * m->head_dim), max_int(n_ff, m->n_expert)));
    return s->inputs && s->sum && s->shared && s->latent && s->router && s->shares && s->choice && s->gate && s->up && s->weights;
}

static bool allocate(kin_ref_session *s) {
    const kin_ref_model *m = s->model;
    const int n_layer = max_int(s->layer_end - s->layer_begin, 1), n_q = m->n_head * m->head_dim;
    s->n_held = calloc((size_t)n_layer, sizeof *s->n_held);
    s->k = floats(n_layer, s->n_ctx, m->n_head_kv * m->head_dim);
    s->v = floats(n_layer, s->n_ctx, m->n_head_kv * m->head_dim);
    s->cos_sin = floats(1, max_int(m->rope.n_rot, 2) / 2, 2);
    s->window_cos_sin = floats(1, max_int(m->window_rope.n_rot, 2) / 2, 2);
    s->normed = floats(1, 1, m->n_embd);
    s->added = floats(1, 1, m->n_embd);
    s->q = floats(2, 1, n_q);
    s->heads = floats(1, 1, n_q);
    s->gates = floats(1, 1, n_q);
    s->scores = floats(1, 1, s->n_ctx);
    return s->n_held && s->k && s->v && s->cos_sin && s->window_cos_sin && s->normed && s->added && s->q && s->heads &&
           s->gates && s->scores && allocate_blocks(s) && allocate_streams(s) && allocate_states(s) && read_factors(s);
}

kin_ref_session *kin_ref_session_open(const kin_ref_model *model, int layer_begin, int layer_end, int n_ctx) {
    if (kin_ref_model_check(model, layer_begin, layer_end) || n_ctx < 1 || n_ctx > KIN_REF_CTX_MAX) return NULL;
    kin_ref_session *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->model = model;
    s->layer_begin = layer_begin;
    s->layer_end = layer_end;
    s->n_ctx = n_ctx;
    if (allocate(s)) return s;
    kin_ref_session_close(s);
    return NULL;
}

void kin_ref_session_close(kin_ref_session *session) {
    if (!session) return;
    free(session->seen);
    free(session->tokens);
    free(session->shares_of_streams);
    free(session->sinkhorn);
    free(session->streams);
    free(session->single);
    free(session->kept);
    free(session->scratch);
    free(session->states);
    free(session->weights);
    free(session->up);
    free(session->choice);
    free(session->gate);
    free(session->shares);
    free(session->router);
    free(session->scores);
    free(session->heads);
    free(session->q);
    free(session->gates);
    free(session->latent);
    free(session->shared);
    free(session->sum);
    free(session->inputs);
    free(session->added);
    free(session->normed);
    free(session->window_cos_sin);
    free(session->cos_sin);
    free(session->rope_factors);
    free(session->v);
    free(session->k);
    free(session->n_held);
    free(session);
}

void kin_ref_norm_by_row(kin_ref_session *s, const kin_ref_tensor *weight, int row, float eps, const float *x, float *out) {
    const int n = weight->n_cols;
    double mean = 0;
    for (int i = 0; i < n && s->model->centers_norms; i++) mean += (double)x[i] / n;
    for (int i = 0; i < n; i++) out[i] = (float)((double)x[i] - mean);
    const float length = (float)(1 / sqrt(kin_ref_dot(out, out, n) / n + (double)eps));
    kin_ref_tensor_row(weight, row, s->weights);
    for (int i = 0; i < n; i++) out[i] = out[i] * length * s->weights[i];
}

void kin_ref_norm(kin_ref_session *s, const kin_ref_tensor *weight, const kin_ref_tensor *bias, int n, const float *x,
                  float *out) {
    if (!weight->data) {
        memcpy(out, x, (size_t)n * sizeof *out);
        return;
    }
    kin_ref_norm_by_row(s, weight, 0, s->model->rms_eps, x, out);
    if (!bias->data) return;
    kin_ref_tensor_row(bias, 0, s->weights);
    kin_ref_add(out, s->weights, n);
}

void kin_ref_project(kin_ref_session *s, const kin_ref_tensor *w, const kin_ref_tensor *b, int i, const float *x, float *out) {
    kin_ref_matvec(w, x, out);
    if (!b->data) return;
    kin_ref_tensor_row(b, i, s->weights);
    kin_ref_add(out, s->weights, w->n_rows);
}

void kin_ref_add_block(kin_ref_session *s, const kin_ref_tensor *out_norm, float *x) {
    const kin_ref_model *m = s->model;
    if (out_norm->data)
        kin_ref_norm_by_row(s, out_norm, 0, m->out_norm_eps != 0 ? m->out_norm_eps : m->rms_eps, s->added, s->added);
    kin_ref_scale(s->added, kin_ref_factor(m->residual_scale), m->n_embd);
    kin_ref_add(x, s->added, m->n_embd);
}
