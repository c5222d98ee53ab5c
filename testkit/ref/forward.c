#include "testkit/ref/forward.h"

#include <math.h>
#include <string.h>

#include "testkit/ref/attention.h"
#include "testkit/ref/experts.h"
#include "testkit/ref/streams.h"
#include "testkit/ref/vector.h"

// x += what the layer makes of its state and norm(x). x // (n_embd)
static void recurrence(kin_ref_session *s, int il, int pos, float *x) {
    const kin_ref_layer *w = &s->model->layers[il];
    float *state = s->states + (size_t)(il - s->layer_begin) * s->n_state;
    if (pos == 0) memset(state, 0, s->n_state * sizeof *state);
    kin_ref_norm(s, &w->attn_norm, &w->attn_norm_bias, s->model->n_embd, x, s->normed);
    if (w->space.n_head > 0)
        kin_ref_state_space_step(&w->space, s->model->rms_eps, s->normed, state, s->scratch, s->added);
    else if (w->gated.n_value > 0)
        kin_ref_gated_step(&w->gated, s->model->rms_eps, s->normed, state, s->scratch, s->added);
    else if (w->conv.n > 0)
        kin_ref_convolution_step(&w->conv, s->normed, state, s->scratch, s->added);
    else
        kin_ref_delta_step(&w->delta, s->model->rms_eps, s->normed, state, s->scratch, s->added);
    kin_ref_add_block(s, &w->attn_out_norm, x);
}

// s->inputs = (norm(input_proj x / sqrt(n_embd)) + sqrt(n_input) row(token)) / sqrt(2), for each layer
static void make_inputs(kin_ref_session *s, int token, const float *x) {
    const kin_ref_model *m = s->model;
    const int n = m->n_input;
    kin_ref_matvec(&m->input_proj, x, s->inputs);
    kin_ref_scale(s->inputs, (float)(1 / sqrt(m->n_embd)), m->n_layer * n);
    for (int il = 0; il < m->n_layer; il++) {
        float *input = s->inputs + il * n;
        kin_ref_norm_by_row(s, &m->input_norm, 0, m->rms_eps, input, input);
        kin_ref_tensor_elements(&m->input_embd, token, il * n, n, s->up);
        for (int i = 0; i < n; i++) input[i] = (float)(((double)input[i] + sqrt(n) * (double)s->up[i]) / sqrt(2));
    }
}

// The end of a layer: adds what it makes of x and its input, and scales the result.
static void finish_layer(kin_ref_session *s, int il, float *x) {
    const kin_ref_model *m = s->model;
    const kin_ref_layer *w = &m->layers[il];
    float scale = 1;
    if (w->input_gate.data) {
        kin_ref_matvec(&w->input_gate, x, s->gate);
        for (int i = 0; i < m->n_input; i++) s->gate[i] = kin_ref_gelu(s->gate[i]) * s->inputs[il * m->n_input + i];
        kin_ref_matvec(&w->input_proj, s->gate, s->added);
        kin_ref_add_block(s, &w->input_norm, x);
    }
    if (w->scale.data) kin_ref_tensor_row(&w->scale, 0, &scale);
    kin_ref_scale(x, scale, m->n_embd);
}

int kin_ref_session_embed(kin_ref_session *session, int token, float *x) {
    const kin_ref_model *m = session->model;
    if (!m->token_embd.data || token < 0 || token >= m->n_vocab) return -1;
    kin_ref_tensor_row(&m->token_embd, token, x);
    kin_ref_scale(x, kin_ref_factor(m->embedding_scale), m->n_embd);
    if (m->norms_embedding) kin_ref_unit(x, m->n_embd, (double)m->rms_eps);
    if (m->n_input > 0) make_inputs(session, token, x);
    for (int i = 1; i < m->n_streams; i++) memcpy(x + i * m->n_embd, x, (size_t)m->n_embd * sizeof *x);
    session->token = token;
    return 0;
}

// x += the result of a block for the token at pos. x // (n_embd)
static void run_block(kin_ref_session *s, int il, int pos, kin_ref_block block, float *x) {
    const kin_ref_layer *w = &s->model->layers[il];
    if (block == KIN_REF_FEED_FORWARD)
        kin_ref_feed_forward(s, il, x);
    else if (kin_ref_has_state(w))
        recurrence(s, il, pos, x);
    else
        kin_ref_attention(s, il, pos, x);
}

// Reads the weights of the streams' mixing.
static kin_ref_streams read_sinkhorn(kin_ref_session *s, const kin_ref_sinkhorn *w) {
    const kin_ref_model *m = s->model;
    float *base = s->sinkhorn + (size_t)w->fn.n_rows * (size_t)w->fn.n_cols, *scale = base + w->fn.n_rows;
    for (int i = 0; i < w->fn.n_rows; i++) kin_ref_tensor_row(&w->fn, i, s->sinkhorn + (size_t)i * (size_t)w->fn.n_cols);
    kin_ref_tensor_row(&w->base, 0, base);
    kin_ref_tensor_row(&w->scale, 0, scale);
    return (kin_ref_streams){.n_streams = m->n_streams,
                             .n_embd = m->n_embd,
                             .n_iterations = m->n_sinkhorn,
                             .norm_eps = (double)m->rms_eps,
                             .eps = (double)m->sinkhorn_eps,
                             .fn = s->sinkhorn,
                             .base = base,
                             .scale = scale};
}

// The same with several streams x // (n_streams, n_embd) that have mixers. What a block adds is in s->added.
static void run_block_of_mixer(kin_ref_session *s, int il, int pos, kin_ref_block block, float *x) {
    const kin_ref_model *m = s->model;
    kin_ref_mixer_read(&m->layers[il].mixers[block], m->n_streams, m->rms_eps, x, s->scratch, s->single, s->shares_of_streams);
    run_block(s, il, pos, block, s->single);
    for (int i = 0; i < m->n_streams * m->n_embd; i++) x[i] += s->shares_of_streams[i / m->n_embd] * s->added[i % m->n_embd];
}

// The same with streams that Sinkhorn's iteration mixes.
static void run_block_of_streams(kin_ref_session *s, int il, int pos, kin_ref_block block, float *x) {
    const kin_ref_streams streams = read_sinkhorn(s, &s->model->layers[il].sinkhorn[block]);
    const kin_ref_mix mix = kin_ref_streams_mix(&streams, x);
    kin_ref_streams_read(&streams, &mix, x, s->single);
    run_block(s, il, pos, block, s->single);
    kin_ref_streams_write(&streams, &mix, x, s->added, s->streams);
    memcpy(x, s->streams, kin_ref_width(s->model) * sizeof *x);
}

static void run_layer(kin_ref_session *s, int il, int pos, float *x) {
    const kin_ref_layer *w = &s->model->layers[il];
    if (w->ngram.size > 0)
        kin_ref_ngram_step(&w->ngram, s->model->n_embd, s->model->rms_eps, s->tokens, pos,
                           s->kept + (size_t)(il - s->layer_begin) * (size_t)s->n_ctx * s->n_kept, s->n_kept, s->scratch, x);
    for (kin_ref_block block = KIN_REF_ATTENTION; block <= KIN_REF_FEED_FORWARD; block++) {
        if (block == KIN_REF_ATTENTION ? w->has_no_attention : w->has_no_ff) continue;
        if (kin_ref_has_mixers(s->model))
            run_block_of_mixer(s, il, pos, block, x);
        else if (s->model->n_streams > 0)
            run_block_of_streams(s, il, pos, block, x);
        else
            run_block(s, il, pos, block, x);
    }
    finish_layer(s, il, x);
}

// A state cannot go back, except to the first token.
static bool can_go_back(const kin_ref_session *s, int il, int pos) {
    return !kin_ref_has_state(&s->model->layers[il]) || pos == 0 || pos == s->n_held[il - s->layer_begin];
}

int kin_ref_session_run(kin_ref_session *session, int layer_begin, int layer_end, int pos, float *x) {
    kin_ref_session *s = session;
    if (layer_begin < s->layer_begin || layer_begin > layer_end || layer_end > s->layer_end) return -1;
    if (pos < 0 || pos >= s->n_ctx) return -1;
    if (layer_begin < layer_end && s->model->layers[layer_begin].latent.shares_choice) return -1;
    for (int il = layer_begin; il < layer_end; il++)
        if (pos > s->n_held[il - s->layer_begin] || !can_go_back(s, il, pos)) return -1;

    s->tokens[pos] = s->token;
    kin_ref_rope_cos_sin(&s->model->rope, s->rope_factors, pos, s->cos_sin);
    kin_ref_rope_cos_sin(&s->model->window_rope, s->model->window_rope_has_no_freqs ? NULL : s->rope_factors, pos,
                         s->window_cos_sin);
    for (int il = layer_begin; il < layer_end; il++) {
        run_layer(s, il, pos, x);
        s->n_held[il - s->layer_begin] = pos + 1;
    }
    return 0;
}

int kin_ref_session_output(kin_ref_session *session, const float *x, float *logits) {
    const kin_ref_model *m = session->model;
    const kin_ref_tensor *output = m->output.data ? &m->output : &m->token_embd;
    if ((!m->output_norm.data && !m->end_mixer.norm.data) || !output->data) return -1;
    if (kin_ref_has_mixers(m)) {
        kin_ref_mixer_read(&m->end_mixer, m->n_streams, m->rms_eps, x, session->scratch, session->single, NULL);
        x = session->single;
    } else if (m->averages_streams) {
        kin_ref_streams_average(m->n_streams, m->n_embd, x, session->single);
        x = session->single;
    } else if (m->n_streams > 0) {
        const kin_ref_streams streams = read_sinkhorn(session, &m->end);
        const kin_ref_mix mix = kin_ref_streams_end(&streams, x);
        kin_ref_streams_read(&streams, &mix, x, session->single);
        x = session->single;
    }
    kin_ref_norm(session, &m->output_norm, &m->output_norm_bias, m->n_embd, x, session->normed);
    kin_ref_matvec(output, session->normed, logits);
    kin_ref_scale(logits, kin_ref_factor(m->logit_scale), m->n_vocab);
    for (int i = 0; i < m->n_vocab; i++) logits[i] = kin_ref_capped(logits[i], m->logit_cap);
    return 0;
}
