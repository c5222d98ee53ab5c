#include "testkit/ref/forward.h"

#include <math.h>
#include <string.h>

#include "testkit/ref/attention.h"
#include "testkit/ref/experts.h"
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
    return 0;
}

// A state cannot go back, except to the first token.
static bool can_go_back(const kin_ref_session *s, int il, int pos) {
    return !kin_ref_has_state(&s->model->layers[il]) || pos == 0 || pos == s->n_held[il - s->layer_begin];
}

int kin_ref_session_run(kin_ref_session *session, int layer_begin, int layer_end, int pos, float *x) {
    kin_ref_session *s = session;
    if (layer_begin < s->layer_begin || layer_begin > layer_end || layer_end > s->layer_end) return -1;
    if (pos < 0 || pos >= s->n_ctx) return -1;
    for (int il = layer_begin; il < layer_end; il++)
        if (pos > s->n_held[il - s->layer_begin] || !can_go_back(s, il, pos)) return -1;

    kin_ref_rope_cos_sin(&s->model->rope, s->rope_factors, pos, s->cos_sin);
    kin_ref_rope_cos_sin(&s->model->window_rope, s->model->window_rope_has_no_freqs ? NULL : s->rope_factors, pos,
                         s->window_cos_sin);
    for (int il = layer_begin; il < layer_end; il++) {
        const kin_ref_layer *w = &s->model->layers[il];
        if (kin_ref_has_state(w))
            recurrence(s, il, pos, x);
        else if (!w->has_no_attention)
            kin_ref_attention(s, il, pos, x);
        if (!w->has_no_ff) kin_ref_feed_forward(s, il, x);
        finish_layer(s, il, x);
        s->n_held[il - s->layer_begin] = pos + 1;
    }
    return 0;
}

int kin_ref_session_output(kin_ref_session *session, const float *x, float *logits) {
    const kin_ref_model *m = session->model;
    const kin_ref_tensor *output = m->output.data ? &m->output : &m->token_embd;
    if (!m->output_norm.data || !output->data) return -1;
    kin_ref_norm(session, &m->output_norm, &m->output_norm_bias, m->n_embd, x, session->normed);
    kin_ref_matvec(output, session->normed, logits);
    kin_ref_scale(logits, kin_ref_factor(m->logit_scale), m->n_vocab);
    for (int i = 0; i < m->n_vocab; i++) logits[i] = kin_ref_capped(logits[i], m->logit_cap);
    return 0;
}
