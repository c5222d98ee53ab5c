// qwen35, qwen35moe, qwen3next: Qwen 3.5 and 3.6, dense and with experts; Qwen3-Next. Most layers are gated delta nets; the
// others are attention whose heads have gates. The experts have a shared one with a gate beside them.
#include "model/families/qwen35.h"

static const char *const obeyed[] = {"nextn_predict_layers", NULL};

void kin_qwen35_read_delta_net(kin_hparams *hp, kin_meta *k) {
    kin_delta_net *d = &hp->delta;
    d->n_taps = kin_meta_int(k, "ssm.conv_kernel", KIN_KEY_REQUIRED, 2, KIN_CONVOLUTION_TAPS);
    d->head_dim = kin_meta_int(k, "ssm.state_size", KIN_KEY_REQUIRED, 16, KIN_DELTA_KEYS);
    d->key_dim = d->head_dim;
    d->n_key_heads = kin_meta_int(k, "ssm.group_count", KIN_KEY_REQUIRED, 1, 4096);
    d->n_value_heads = kin_meta_int(k, "ssm.time_step_rank", KIN_KEY_REQUIRED, 1, 4096);
    int n_values = kin_meta_int(k, "ssm.inner_size", KIN_KEY_REQUIRED, 1, 1 << 20);
    if (k->failed) return;
    if (d->head_dim % 16 || d->n_value_heads % d->n_key_heads)
        kin_meta_fail(k, "recurrent layers with %d key heads and %d value heads of %d dimensions are not supported",
                      d->n_key_heads, d->n_value_heads, d->head_dim);
    else if (n_values != kin_delta_n_values(d))
        kin_meta_fail(k, "%d value heads of %d dimensions are not %d values", d->n_value_heads, d->head_dim, n_values);
}

void kin_qwen35_read_kinds(kin_hparams *hp, kin_meta *k) {
    int interval = kin_meta_int(k, "full_attention_interval", 4, 1, 4096);
    for (int il = 0; il < hp->n_layer && !k->failed; il++)
        hp->layers[il].is_recurrent = kin_meta_int_at(k, "attention.recurrent_layers", il, (il + 1) % interval != 0, 0, 1);
}

static void read_qwen35_keys(kin_hparams *hp, kin_meta *k) {
    kin_qwen35_read_delta_net(hp, k);
    if (!k->failed) kin_qwen35_read_kinds(hp, k);
    if (hp->n_expert == 0) return;
    hp->n_ff_shared = kin_meta_int(k, "expert_shared_feed_forward_length", hp->n_ff_exp, 1, 1 << 20);
    hp->routing.gating = KIN_GATING_SOFTMAX;
    hp->routing.normalize = true;
}

static void read_grouped(kin_hparams *hp, kin_meta *k) {
    read_qwen35_keys(hp, k);
    hp->delta.is_grouped = true;
}

static void read_dense(kin_hparams *hp, kin_meta *k) {
    if (hp->n_expert > 0) kin_meta_fail(k, "a qwen35 model with experts");
    read_qwen35_keys(hp, k);
}

static void read_qwen35_experts(kin_hparams *hp, kin_meta *k) {
    if (hp->n_expert == 0) kin_meta_fail(k, "a qwen35moe model without experts");
    read_qwen35_keys(hp, k);
}

static void describe_qwen35_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->is_recurrent = hp->layers[il].is_recurrent;
    layer->gates_queries = !layer->is_recurrent;
    layer->n_head_gate = layer->is_recurrent ? 0 : kin_layer_of(hp, il).head_dim;
    layer->head_gate = KIN_HEAD_GATE_SIGMOID;
}

static kin_weight_set require_qwen35_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = KIN_WEIGHT_SET(KIN_W_ATTN_NORM, KIN_W_FFN_NORM_2);
    kin_weight_set attention = KIN_WEIGHT_SET(KIN_W_ATTN_Q_GATE, KIN_W_ATTN_K, KIN_W_ATTN_V, KIN_W_ATTN_OUT, KIN_WEIGHTS_QK_NORM);
    kin_weight_set delta = KIN_WEIGHT_SET(KIN_W_DELTA_CONV, KIN_W_DELTA_DT, KIN_W_DELTA_A, KIN_W_DELTA_NORM, KIN_W_DELTA_OUT);
    kin_weight_set two = KIN_WEIGHT_SET(KIN_W_DELTA_BETA, KIN_W_DELTA_ALPHA), one = KIN_WEIGHT_SET(KIN_W_DELTA_BETA_ALPHA);
    kin_weight_set dense = KIN_WEIGHT_SET(KIN_W_FFN_GATE, KIN_W_FFN_UP, KIN_W_FFN_DOWN);
    kin_weight_set experts = KIN_WEIGHT_SET(KIN_WEIGHTS_ROUTED, KIN_WEIGHTS_SHARED, KIN_W_FFN_SHARED_ROUTER);
    kin_weight_set_join(&set, layer->is_recurrent ? &delta : &attention);
    if (layer->is_recurrent) kin_weight_set_join(&set, hp->delta.is_grouped ? &one : &two);
    kin_weight_set_join(&set, layer->has_experts ? &experts : &dense);
    return set;
}

static kin_weight_set allow_qwen35_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set = {0}, inputs = KIN_WEIGHT_SET(KIN_W_DELTA_QKV, KIN_W_DELTA_GATE), all = KIN_WEIGHT_SET(KIN_W_DELTA_IN);
    if (!layer->is_recurrent) return set;
    kin_weight_set_join(&set, &inputs);
    if (hp->delta.is_grouped) kin_weight_set_join(&set, &all);
    return set;
}

const kin_arch kin_arch_qwen35 = {
    .name = "qwen35",
    .title = "Qwen 3.5, 3.6 (dense)",
    .rope_neox = true,
    .drafts = true,
    .keys = obeyed,
    .read = read_dense,
    .layer = describe_qwen35_layer,
    .required = require_qwen35_weights,
    .optional = allow_qwen35_weights,
};

const kin_arch kin_arch_qwen35moe = {
    .name = "qwen35moe",
    .title = "Qwen 3.5, 3.6 with experts",
    .rope_neox = true,
    .drafts = true,
    .keys = obeyed,
    .read = read_qwen35_experts,
    .layer = describe_qwen35_layer,
    .required = require_qwen35_weights,
    .optional = allow_qwen35_weights,
};

const kin_arch kin_arch_qwen3next = {
    .name = "qwen3next",
    .title = "Qwen3-Next",
    .rope_neox = true,
    .drafts = true,
    .keys = obeyed,
    .read = read_grouped,
    .layer = describe_qwen35_layer,
    .required = require_qwen35_weights,
    .optional = allow_qwen35_weights,
};
