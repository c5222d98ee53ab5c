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
    if (w->gated.n_value > 0)
        kin_ref_gated_step(&w->gated, s->model->rms_eps, s->normed, state, s->scratch, s->added);
    else if (w->conv.n > 0)
        kin_ref_convolution_step(&w->conv, s->normed, state, s->scratch, s->added);
    else
        kin_ref_delta_step(&w->delta, s->model->rms_eps, s->normed, state, s->scratch, s->added);
    kin_ref_add_block(s, &w->attn_out_norm, x);
}

int kin_ref_session_embed(kin_ref_session *session, int token, float *x) {
    const kin_ref_model *m = session->model;
    if (!m->token_embd.data || token < 0 || token >= m->n_vocab) return -1;
    kin_ref_tensor_row(&m->token_embd, token, x);
    kin_ref_scale(x, kin_ref_factor(m->embedding_scale), m->n_embd);
    if (m->norms_embedding)
        kin_ref_scale(x, (float)(1 / sqrt(kin_ref_dot(x, x, m->n_embd) / m->n_embd + (double)m->rms_eps)), m->n_embd);
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
        if (kin_ref_has_state(&s->model->layers[il]))
            recurrence(s, il, pos, x);
        else
            kin_ref_attention(s, il, pos, x);
        kin_ref_feed_forward(s, il, x);
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
