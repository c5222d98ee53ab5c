#include "testkit/ref/model.h"

#include "testkit/ref/dequant.h"
#include "testkit/ref/streams.h"

typedef struct expected {
    const char *name;
    const kin_ref_tensor *tensor;
    bool required;
    int n_mats, n_rows, n_cols;
} expected;

kin_ref_heads kin_ref_heads_of(const kin_ref_model *model, const kin_ref_layer *layer) {
    const int k_dim = layer->head_dim ? layer->head_dim : model->head_dim, v_dim = model->value_dim ? model->value_dim : k_dim;
    return (kin_ref_heads){
        .n = layer->n_head ? layer->n_head : model->n_head,
        .n_kv = layer->n_head_kv ? layer->n_head_kv : model->n_head_kv,
        .k_dim = k_dim,
        .v_dim = layer->value_dim ? layer->value_dim : v_dim,
    };
}

bool kin_ref_has_mixers(const kin_ref_model *model) {
    return model->n_streams > 0 && model->n_sinkhorn == 0;
}

size_t kin_ref_width(const kin_ref_model *model) {
    return (size_t)model->n_embd * (model->n_streams > 0 ? (size_t)model->n_streams : 1);
}

int kin_ref_n_ff(const kin_ref_model *model, const kin_ref_layer *layer) {
    if (model->n_expert > 0 && !layer->is_dense) return model->n_ff;
    if (layer->n_ff_dense) return layer->n_ff_dense;
    return model->n_expert > 0 ? model->n_ff_dense : model->n_ff;
}

static bool within(int value, int low, int high) {
    return value >= low && value <= high;
}

// Returns the name of the first tensor that is missing or has the wrong shape, or NULL.
static const char *misfit(const expected *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const expected *e = &list[i];
        if (!e->tensor->data && !e->required) continue;
        if (!kin_ref_tensor_is(e->tensor, e->n_mats, e->n_rows, e->n_cols)) return e->name;
    }
    return NULL;
}

static const char *check_numbers(const kin_ref_model *m) {
    if (!within(m->n_layer, 1, KIN_REF_HEAD_MAX)) return "n_layer";
    if (!within(m->n_embd, 1, KIN_REF_DIM_MAX)) return "n_embd";
    if (!within(m->n_vocab, 1, KIN_REF_DIM_MAX)) return "n_vocab";
    if (!within(m->n_ff, 1, KIN_REF_DIM_MAX)) return "n_ff";
    if (!within(m->n_head, 1, KIN_REF_HEAD_MAX)) return "n_head";
    if (!within(m->n_head_kv, 1, m->n_head) || m->n_head % m->n_head_kv != 0) return "n_head_kv";
    if (!within(m->head_dim, 1, KIN_REF_HEAD_MAX)) return "head_dim";
    if (!within(m->value_dim, 0, m->head_dim)) return "value_dim";
    if (!within(m->n_expert, 0, KIN_REF_HEAD_MAX)) return "n_expert";
    if (!within(m->window, 0, KIN_REF_DIM_MAX)) return "window";
    if (!within(m->n_expert_used, m->n_expert > 0, m->n_expert)) return "n_expert_used";
    if (!within(m->n_group, 0, m->n_expert) || (m->n_group > 1 && m->n_expert % m->n_group != 0)) return "n_group";
    if (m->n_group > 1 && !within(m->n_group_used, 1, m->n_group)) return "n_group_used";
    if (m->n_group > 1 && m->n_expert / m->n_group * m->n_group_used < m->n_expert_used) return "n_group_used";
    if (!within(m->n_streams, 0, KIN_REF_STREAMS_MAX) || (m->n_streams > 0 && m->n_input > 0)) return "n_streams";
    if (m->query_temperature != 0 && m->temperature_length < 1) return "temperature_length";
    if (!(m->rms_eps >= 0)) return "rms_eps";
    return NULL;
}

// Rope factors must be at least as many as pairs.
static bool factors_fit(const kin_ref_model *m, const kin_ref_tensor *factors) {
    const int n_rot = m->window_rope_has_no_freqs || m->rope.n_rot > m->window_rope.n_rot ? m->rope.n_rot : m->window_rope.n_rot;
    return !factors->data || (factors->n_cols >= n_rot / 2 && kin_ref_tensor_is(factors, 1, 1, factors->n_cols));
}

static const char *check_sinkhorn(const kin_ref_model *m, const kin_ref_sinkhorn *s, bool is_end) {
    const int n = m->n_streams, n_rows = is_end ? n : n * (2 + n);
    const expected list[] = {
        {"sinkhorn.fn", &s->fn, true, 1, n_rows, n * m->n_embd},
        {"sinkhorn.base", &s->base, true, 1, 1, n_rows},
        {"sinkhorn.scale", &s->scale, true, 1, 1, is_end ? 1 : 3},
    };
    return n > 0 && !kin_ref_has_mixers(m) ? misfit(list, sizeof list / sizeof *list) : NULL;
}

static const char *check_mixers(const kin_ref_model *m, const kin_ref_layer *w) {
    const char *wrong = NULL;
    for (int i = 0; i < 2 && !wrong && kin_ref_has_mixers(m); i++)
        wrong = kin_ref_mixer_check(&w->mixers[i], m->n_streams, m->n_embd, false);
    if (wrong || w->ngram.size == 0) return wrong;
    return m->n_streams > 0 ? kin_ref_ngram_check(&w->ngram, m->n_streams, m->n_embd) : "ngram";
}

static const char *check_rope(const kin_ref_rope *rope, int head_dim) {
    if (rope->n_rot == 0) return NULL; // nothing rotates
    if (!within(rope->n_rot, 2, head_dim) || rope->n_rot % 2 != 0) return "rope.n_rot";
    if (!(rope->freq_base > 1)) return "rope.freq_base";
    if (!(rope->freq_scale > 0)) return "rope.freq_scale";
    if (rope->yarn && rope->n_ctx_orig < 1) return "rope.n_ctx_orig";
    if (rope->yarn && !(rope->beta_slow > 0 && rope->beta_fast >= rope->beta_slow)) return "rope.beta_fast";
    return NULL;
}

static const char *check_ends(const kin_ref_model *m) {
    const expected list[] = {
        {"token_embd", &m->token_embd, false, 1, m->n_vocab, m->n_embd},
        {"output_norm", &m->output_norm, false, 1, 1, m->n_embd},
        {"output_norm_bias", &m->output_norm_bias, false, 1, 1, m->n_embd},
        {"output", &m->output, false, 1, m->n_vocab, m->n_embd},
        {"input_embd", &m->input_embd, m->n_input > 0, 1, m->n_vocab, m->n_layer * m->n_input},
        {"input_proj", &m->input_proj, m->n_input > 0, 1, m->n_layer * m->n_input, m->n_embd},
        {"input_norm", &m->input_norm, m->n_input > 0, 1, 1, m->n_input},
    };
    if (!within(m->n_input, 0, KIN_REF_HEAD_MAX)) return "n_input";
    const int block_n = kin_ref_block_n(m->input_embd.type); // rows are read in pieces of n_input
    if (m->n_input > 0 && (block_n == 0 || m->n_input % block_n != 0)) return "input_embd";
    if (!factors_fit(m, &m->rope_freqs)) return "rope_freqs";
    if (!factors_fit(m, &m->rope_freqs_long)) return "rope_freqs_long";
    return misfit(list, sizeof list / sizeof *list);
}

// The columns of a norm of heads: a head's, or those of all.
static int norm_cols(const kin_ref_tensor *t, int n_head, int head_dim) {
    return t->n_rows == 1 && t->n_cols == n_head * head_dim ? t->n_cols : head_dim;
}

static const char *check_heads(const kin_ref_model *m, const kin_ref_layer *w) {
    const kin_ref_heads h = kin_ref_heads_of(m, w);
    const kin_ref_rope *rope = w->is_windowed && m->window_rope.n_rot > 0 ? &m->window_rope : &m->rope;
    if (!within(h.n, 1, m->n_head)) return "layer's n_head";
    if (!within(h.n_kv, 1, m->n_head_kv) || h.n % h.n_kv != 0) return "layer's n_head_kv";
    if (!within(h.k_dim, 1, m->head_dim) || (!w->has_no_rope && rope->n_rot > h.k_dim)) return "layer's head_dim";
    if (!within(h.v_dim, 1, h.k_dim) || (!w->wv.data && h.v_dim != h.k_dim)) return "layer's value_dim";
    return NULL;
}

static const char *check_attention(const kin_ref_model *m, const kin_ref_layer *w) {
    const kin_ref_heads h = kin_ref_heads_of(m, w);
    const int n_head = h.n, n_head_kv = h.n_kv, value_dim = h.v_dim, n_q = h.n * h.k_dim, n_kv = h.n_kv * h.k_dim;
    if (check_heads(m, w)) return check_heads(m, w);
    const expected list[] = {
        {"wq", &w->wq, true, 1, w->wq_has_gates ? 2 * n_q : n_q, m->n_embd},
        {"wk", &w->wk, w->kv_back == 0, 1, n_kv, m->n_embd},
        {"wv", &w->wv, false, 1, n_head_kv * value_dim, m->n_embd},
        {"wo", &w->wo, true, 1, m->n_embd, n_head * value_dim},
        {"bq", &w->bq, false, 1, 1, n_q},
        {"bk", &w->bk, false, 1, 1, n_kv},
        {"bv", &w->bv, false, 1, 1, n_head_kv * value_dim},
        {"bo", &w->bo, false, 1, 1, m->n_embd},
        {"q_norm", &w->q_norm, false, 1, w->q_norm.n_rows > 1 ? n_head : 1, norm_cols(&w->q_norm, n_head, h.k_dim)},
        {"k_norm", &w->k_norm, false, 1, w->k_norm.n_rows > 1 ? n_head_kv : 1, norm_cols(&w->k_norm, n_head_kv, h.k_dim)},
        {"sinks", &w->sinks, false, 1, 1, n_head},
        {"head_gate", &w->head_gate, false, 1, w->head_gate.n_rows == n_head ? n_head : n_head * value_dim, m->n_embd},
    };
    const char *wrong = misfit(list, sizeof list / sizeof *list);
    return wrong ? wrong : kin_ref_block_indexer_check(&w->indexer, n_head_kv, m->n_embd, m->rope.n_rot);
}

static const char *check_latent(const kin_ref_model *m, const kin_ref_layer *w) {
    if (w->latent.n_latent + w->latent.n_rot != m->head_dim || m->n_head_kv != 1) return "head_dim";
    return kin_ref_latent_check(&w->latent, m->n_embd);
}

// A layer that sees what the one before saw needs one.
static const char *check_shared_choice(const kin_ref_model *m, int layer_begin, int il) {
    if (!m->layers[il].latent.shares_choice) return NULL;
    return il > layer_begin && m->layers[il - 1].latent.n_head > 0 ? NULL : "shares_choice";
}

// A layer whose keys and values are those of another one reads them in its own form.
static const char *check_shared_keys(const kin_ref_model *m, int layer_begin, int il) {
    const kin_ref_layer *w = &m->layers[il], *of = w - w->kv_back;
    if (w->kv_back == 0) return NULL;
    if (!within(w->kv_back, 1, il - layer_begin) || of->kv_back != 0) return "kv_back";
    const kin_ref_heads own = kin_ref_heads_of(m, w), other = kin_ref_heads_of(m, of);
    return own.n_kv == other.n_kv && own.k_dim == other.k_dim && own.v_dim == other.v_dim ? NULL : "kv_back";
}

static const char *check_compressed(const kin_ref_model *m, const kin_ref_layer *w) {
    const kin_ref_rope *rope = w->is_windowed ? &m->window_rope : &m->rope;
    if (w->compressed.dim != m->head_dim || m->n_head_kv != 1 || rope->n_rot != w->compressed.n_rot) return "head_dim";
    return kin_ref_compressed_check(&w->compressed, m->n_embd);
}

// The experts of every token must be such.
static const char *check_token_experts(const kin_ref_model *m, const kin_ref_layer *w) {
    const kin_ref_tensor *t = &w->token_experts;
    if (!t->data) return NULL;
    if (t->type != KIN_REF_I32 || t->n_mats != 1 || t->n_rows != m->n_vocab || t->n_cols != m->n_expert_used)
        return "token_experts";
    if (t->n_bytes / 4 != (size_t)t->n_rows * (size_t)t->n_cols) return "token_experts";
    for (int token = 0; token < m->n_vocab; token++)
        for (int i = 0; i < m->n_expert_used; i++)
            if (!within(kin_ref_tensor_int(t, token, i), 0, m->n_expert - 1)) return "token_experts";
    return NULL;
}

static const char *check_norms(const kin_ref_model *m, const kin_ref_layer *w) {
    const bool has_norms = !kin_ref_has_mixers(m);
    const expected list[] = {
        {"attn_norm", &w->attn_norm, has_norms && !w->has_no_attention && !w->attn_out_norm.data, 1, 1, m->n_embd},
        {"attn_norm_bias", &w->attn_norm_bias, false, 1, 1, m->n_embd},
        {"attn_out_norm", &w->attn_out_norm, false, 1, 1, m->n_embd},
        {"ffn_norm", &w->ffn_norm, has_norms && !w->has_no_ff && !w->is_parallel && !w->ffn_out_norm.data, 1, 1, m->n_embd},
        {"ffn_norm_bias", &w->ffn_norm_bias, false, 1, 1, m->n_embd},
        {"ffn_out_norm", &w->ffn_out_norm, false, 1, 1, m->n_embd},
    };
    return misfit(list, sizeof list / sizeof *list);
}

static const char *check_feed_forward(const kin_ref_model *m, const kin_ref_layer *w) {
    const bool moe = m->n_expert > 0 && !w->is_dense, shares = w->shared_up.data != NULL;
    const int n_mats = moe ? m->n_expert : 1, n_ff = kin_ref_n_ff(m, w);
    const bool has_gate = m->gate != KIN_REF_GATE_NONE;
    const int width = moe && w->latent_down.data ? w->latent_down.n_rows : m->n_embd;
    const expected list[] = {
        {"ffn_router", &w->ffn_router, moe, 1, m->n_expert, m->n_embd},
        {"router_bias", &w->router_bias, false, 1, 1, m->n_expert},
        {"ffn_choice", &w->ffn_choice, false, 1, 1, m->n_expert},
        {"ffn_gate", &w->ffn_gate, has_gate && !w->ffn_gate_up.data, n_mats, n_ff, width},
        {"ffn_up", &w->ffn_up, !w->ffn_gate_up.data, n_mats, n_ff, width},
        {"ffn_gate_up", &w->ffn_gate_up, false, n_mats, 2 * n_ff, m->n_embd},
        {"ffn_down", &w->ffn_down, true, n_mats, width, n_ff},
        {"gate_bias", &w->gate_bias, false, 1, n_mats, n_ff},
        {"up_bias", &w->up_bias, false, 1, n_mats, n_ff},
        {"down_bias", &w->down_bias, false, 1, n_mats, m->n_embd},
        {"shared_gate", &w->shared_gate, has_gate && shares, 1, m->n_ff_shared, m->n_embd},
        {"shared_up", &w->shared_up, shares, 1, m->n_ff_shared, m->n_embd},
        {"shared_down", &w->shared_down, shares, 1, m->n_embd, m->n_ff_shared},
        {"shared_router", &w->shared_router, false, 1, 1, m->n_embd},
        {"latent_down", &w->latent_down, false, 1, width, m->n_embd},
        {"latent_up", &w->latent_up, moe && w->latent_down.data, 1, m->n_embd, width},
        {"router_norm", &w->router_norm, false, 1, 1, m->n_embd},
        {"experts_norm", &w->experts_norm, false, 1, 1, m->n_embd},
        {"experts_out_norm", &w->experts_out_norm, false, 1, 1, m->n_embd},
        {"shared_out_norm", &w->shared_out_norm, false, 1, 1, m->n_embd},
        {"expert_scales", &w->expert_scales, false, 1, 1, m->n_expert},
    };
    if (!within(width, 1, m->n_embd)) return "latent_down";
    if (!moe && !within(n_ff, 1, m->n_ff > m->n_ff_dense ? m->n_ff : m->n_ff_dense)) return "layer's n_ff_dense";
    return misfit(list, sizeof list / sizeof *list);
}

static const char *check_input(const kin_ref_model *m, const kin_ref_layer *w) {
    const bool has_input = m->n_input > 0;
    const expected list[] = {
        {"input_gate", &w->input_gate, has_input, 1, m->n_input, m->n_embd},
        {"input_proj", &w->input_proj, has_input, 1, m->n_embd, m->n_input},
        {"input_norm", &w->input_norm, has_input, 1, 1, m->n_embd},
        {"scale", &w->scale, false, 1, 1, 1},
    };
    return misfit(list, sizeof list / sizeof *list);
}

static const char *check_layer(const kin_ref_model *m, const kin_ref_layer *w) {
    const char *wrong = check_norms(m, w);
    if (wrong) return wrong;
    if (w->has_no_attention)
        wrong = NULL;
    else if (w->space.n_head > 0)
        wrong = kin_ref_state_space_check(&w->space, m->n_embd);
    else if (w->delta.n_head > 0)
        wrong = kin_ref_delta_check(&w->delta, m->n_embd);
    else if (w->gated.n_value > 0)
        wrong = kin_ref_gated_check(&w->gated, m->n_embd);
    else if (w->conv.n > 0)
        wrong = kin_ref_convolution_check(&w->conv, m->n_embd);
    else if (w->compressed.n_head > 0)
        wrong = check_compressed(m, w);
    else if (w->latent.n_head > 0)
        wrong = check_latent(m, w);
    else
        wrong = check_attention(m, w);
    if (!wrong && !w->has_no_ff) wrong = check_feed_forward(m, w);
    if (!wrong) wrong = check_token_experts(m, w);
    for (int i = 0; i < 2 && !wrong; i++) wrong = check_sinkhorn(m, &w->sinkhorn[i], false);
    if (!wrong) wrong = check_mixers(m, w);
    return wrong ? wrong : check_input(m, w);
}

const char *kin_ref_model_check(const kin_ref_model *model, int layer_begin, int layer_end) {
    const char *wrong = check_numbers(model);
    if (!wrong) wrong = check_rope(&model->rope, model->head_dim);
    if (!wrong && model->window_rope.n_rot != 0) wrong = check_rope(&model->window_rope, model->head_dim);
    if (!wrong) wrong = check_ends(model);
    if (!wrong && model->end_mixer.norm.data)
        wrong = kin_ref_mixer_check(&model->end_mixer, model->n_streams, model->n_embd, true);
    if (!wrong && model->output_norm.data && !model->averages_streams) wrong = check_sinkhorn(model, &model->end, true);
    if (!wrong && !(0 <= layer_begin && layer_begin <= layer_end && layer_end <= model->n_layer)) wrong = "layer range";
    for (int il = layer_begin; !wrong && il < layer_end; il++) {
        wrong = check_layer(model, &model->layers[il]);
        if (!wrong) wrong = check_shared_keys(model, layer_begin, il);
        if (!wrong) wrong = check_shared_choice(model, layer_begin, il);
    }
    return wrong;
}
