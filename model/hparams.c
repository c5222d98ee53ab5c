#include "model/hparams.h"

#include <math.h>
#include <stdlib.h>

// Far above any model, and far from overflow: dims * dims fits 63 bits with room for 4 more factors.
enum { MAX_LAYERS = 4096, MAX_WIDTH = 1 << 20, MAX_HEADS = 4096, MAX_CONTEXT = 1 << 27, MAX_VOCAB = 1 << 24 };

void kin_hparams_read_n_layer(kin_hparams *hp, kin_meta *k) {
    int n_block = kin_meta_int(k, "block_count", KIN_KEY_REQUIRED, 1, MAX_LAYERS);
    k->n_layer = n_block;
    hp->n_draft_layer = kin_meta_int(k, "nextn_predict_layers", 0, 0, n_block > 0 ? n_block - 1 : 0);
    hp->n_layer = n_block - hp->n_draft_layer;
}

// Reads one number for all layers, or one for each: into the layers where they differ, and the largest into *most.
static void read_per_layer(kin_meta *k, kin_hparams *hp, const char *key, int fallback, int min, int max, int *most,
                           size_t in_layer) {
    int first = kin_meta_int_at(k, key, 0, fallback, min, max);
    bool differ = false;
    *most = first;
    for (int il = 1; il < hp->n_layer && !k->failed; il++) {
        int n = kin_meta_int_at(k, key, il, fallback, min, max);
        differ = differ || n != first;
        if (n > *most) *most = n;
    }
    for (int il = 0; il < hp->n_layer && differ && !k->failed; il++)
        *(int *)((char *)&hp->layers[il] + in_layer) = kin_meta_int_at(k, key, il, fallback, min, max);
}

static void check_groups(kin_meta *k, const kin_hparams *hp) {
    for (int il = 0; il < hp->n_layer && !k->failed; il++) {
        const kin_layer layer = kin_layer_of(hp, il);
        if (layer.n_head % layer.n_head_kv != 0)
            kin_meta_fail(k, "%d query heads are not a multiple of %d key/value heads", layer.n_head, layer.n_head_kv);
    }
}

static void read_heads(kin_meta *k, kin_hparams *hp) {
    read_per_layer(k, hp, "attention.head_count", KIN_KEY_REQUIRED, 1, MAX_HEADS, &hp->n_head, offsetof(kin_layer, n_head));
    const int least = hp->mixes_layers ? 0 : 1;
    read_per_layer(k, hp, "attention.head_count_kv", hp->n_head, least, MAX_HEADS, &hp->n_head_kv,
                   offsetof(kin_layer, n_head_kv));
    if (!k->failed && hp->n_head_kv == 0) kin_meta_fail(k, "no layer has key and value heads");
    check_groups(k, hp);
    if (k->failed) return;
    int derived = hp->n_embd / kin_layer_of(hp, 0).n_head;
    hp->head_dim = kin_meta_int(k, "attention.key_length", derived > 0 ? derived : KIN_KEY_REQUIRED, 1, 4096);
    hp->v_dim = kin_meta_int(k, "attention.value_length", hp->head_dim, 1, 4096);
}

void kin_hparams_read_widths(kin_layer *layer, kin_meta *k, int i_block) {
    layer->n_head = kin_meta_int_at(k, "attention.head_count", i_block, KIN_KEY_REQUIRED, 1, MAX_HEADS);
    layer->n_head_kv = kin_meta_int_at(k, "attention.head_count_kv", i_block, layer->n_head, 1, MAX_HEADS);
    layer->n_ff = kin_meta_int_at(k, "feed_forward_length", i_block, 0, 0, MAX_WIDTH);
    if (!k->failed && layer->n_head % layer->n_head_kv != 0)
        kin_meta_fail(k, "%d query heads are not a multiple of %d key/value heads", layer->n_head, layer->n_head_kv);
}

static void read_feed_forward(kin_meta *k, kin_hparams *hp) {
    hp->n_expert = kin_meta_int(k, "expert_count", 0, 0, KIN_MAX_EXPERTS);
    hp->n_expert_used = kin_meta_int_of_all(k, "expert_used_count", hp->n_expert ? KIN_KEY_REQUIRED : 0, 0, KIN_MAX_EXPERTS);
    read_per_layer(k, hp, "feed_forward_length", hp->n_expert ? 0 : KIN_KEY_REQUIRED, hp->n_expert || hp->mixes_layers ? 0 : 1,
                   MAX_WIDTH, &hp->n_ff, offsetof(kin_layer, n_ff));
    hp->n_ff_exp = kin_meta_int(k, "expert_feed_forward_length", hp->n_ff, 0, MAX_WIDTH);
    if (!k->failed && hp->n_expert && (hp->n_expert_used < 1 || hp->n_expert_used > hp->n_expert))
        kin_meta_fail(k, "cannot use %d of %d experts per token", hp->n_expert_used, hp->n_expert);
    if (!k->failed && (hp->n_expert ? hp->n_ff_exp : hp->n_ff) < 1)
        kin_meta_fail(k, "'%s.feed_forward_length' must not be 0", k->family);
    hp->routing = (kin_routing){.n_expert = hp->n_expert, .n_used = hp->n_expert_used, .scale = 1};
}

// Returns the factor; 1: positions are not scaled. Like llama.cpp, treats 0 as 1, and also reads the key's older name, from
// before there were types of scaling.
static float read_rope_factor(kin_meta *k) {
    float old = kin_meta_float(k, "rope.scale_linear", 1.0f, 0.0f, 1e6f);
    float factor = kin_meta_float(k, "rope.scaling.factor", old, 0.0f, 1e6f);
    if (!k->failed && factor > 0 && factor < 1e-3f) kin_meta_fail(k, "positions cannot be scaled by %g", (double)factor);
    return factor > 0 ? factor : 1.0f;
}

static int read_n_rot(kin_meta *k, const kin_hparams *hp, const char *key, int fallback) {
    int n = kin_meta_int(k, key, fallback, hp->has_no_rope ? 0 : 2, hp->head_dim > 2 ? hp->head_dim : 2);
    if (!k->failed && (n % 2 || n > hp->head_dim))
        kin_meta_fail(k, "cannot rotate %d of a head's %d dimensions", n, hp->head_dim);
    return n;
}

static void read_rope(kin_meta *k, kin_hparams *hp) {
    kin_rope *r = &hp->ropes[0];
    int pairs = hp->head_dim & ~1; // rotation works on pairs
    r->n_rot = read_n_rot(k, hp, "rope.dimension_count", pairs > 0 ? pairs : KIN_KEY_REQUIRED);
    r->base = (double)kin_meta_float(k, "rope.freq_base", 10000.0f, 1.0f, 1e12f);
    float factor = read_rope_factor(k);
    r->n_ctx_orig = kin_meta_int(k, "rope.scaling.original_context_length", hp->n_ctx_train, 1, MAX_CONTEXT);
    r->attn_factor = (double)kin_meta_float(k, "rope.scaling.attn_factor", 1.0f, 1e-3f, 1e3f);
    r->beta_fast = (double)kin_meta_float(k, "rope.scaling.yarn_beta_fast", 32.0f, 0.0f, 1e6f);
    r->beta_slow = (double)kin_meta_float(k, "rope.scaling.yarn_beta_slow", 1.0f, 0.0f, 1e6f);
    if (k->failed) return;
    kin_str scaling = kin_meta_str(k, "rope.scaling.type", "linear"); // the default for a factor without a type
    bool yarn = kin_str_eq(scaling, "yarn"), scaled = yarn || kin_str_eq(scaling, "linear");
    if (!scaled && !kin_str_eq(scaling, "none") && !kin_str_eq(scaling, "longrope"))
        kin_meta_fail(k, "the rope scaling '%.*s' is not supported (supported: none, linear, longrope, yarn)",
                      scaling.len > 32 ? 32 : (int)scaling.len, scaling.at);
    r->freq_scale = scaled ? (double)(1.0f / factor) : 1;
    r->ext_factor = yarn ? 1 : 0;
    hp->ropes[1] = *r;
    hp->ropes[1].n_rot = read_n_rot(k, hp, "rope.dimension_count_swa", r->n_rot);
    hp->n_rope_factors = r->n_rot / 2;
}

// The vocabulary's size is the number of the embedding's rows. (A "vocab_size" key may count padding differently, so it is
// ignored.)
static void read_vocab_size(kin_meta *k, kin_hparams *hp) {
    if (k->failed) return;
    const kin_gguf_tensor *embd = kin_gguf_find_tensor(k->gguf, "token_embd.weight");
    if (!embd)
        kin_meta_fail(k, "the tensor 'token_embd.weight' is missing");
    else if (embd->ne[1] > MAX_VOCAB)
        kin_meta_fail(k, "a vocabulary of %lld tokens is not supported", (long long)embd->ne[1]);
    else
        hp->n_vocab = (int)embd->ne[1];
}

static void set_widths(const kin_hparams *hp, kin_layer *layer) {
    if (layer->n_head == 0) layer->n_head = hp->n_head;
    if (layer->n_head_kv == 0) layer->n_head_kv = hp->n_head_kv;
    if (layer->head_dim == 0) layer->head_dim = hp->head_dim;
    if (layer->v_dim == 0) layer->v_dim = hp->v_dim ? hp->v_dim : layer->head_dim;
    if (layer->n_ff == 0) layer->n_ff = hp->n_ff;
}

void kin_layer_set_plain(const kin_hparams *hp, kin_layer *layer) {
    layer->rope = hp->has_no_rope ? KIN_ROPE_NONE : 0;
    layer->has_experts = hp->n_expert > 0;
    layer->attn_scale = hp->attn_scale != 0 ? hp->attn_scale : 1.0f / sqrtf((float)hp->head_dim);
    layer->softcap = hp->score_softcap;
}

kin_layer kin_layer_of(const kin_hparams *hp, int il) {
    kin_layer layer = {0};
    if (hp->layers)
        layer = hp->layers[il];
    else
        kin_layer_set_plain(hp, &layer);
    set_widths(hp, &layer);
    return layer;
}

bool kin_hparams_has_states(const kin_hparams *hp) {
    for (int il = 0; il < hp->n_layer; il++)
        if (kin_layer_of(hp, il).is_recurrent) return true;
    return false;
}

bool kin_hparams_shares_choices(const kin_hparams *hp) {
    for (int il = 0; il < hp->n_layer; il++)
        if (kin_layer_of(hp, il).choice_back > 0) return true;
    return false;
}

int kin_hparams_token_layers(const kin_hparams *hp) {
    int n = 0;
    for (int il = 0; il < hp->n_layer; il++)
        if (kin_layer_of(hp, il).routes_by_token) n = il + 1;
    return n;
}

bool kin_hparams_is_uniform(const kin_hparams *hp) {
    for (int il = 0; il < hp->n_layer; il++) {
        const kin_layer l = kin_layer_of(hp, il);
        if (l.n_head != hp->n_head || l.n_head_kv != hp->n_head_kv || l.n_ff != hp->n_ff) return false;
        if (l.head_dim != hp->head_dim || l.v_dim != hp->head_dim) return false;
    }
    return true;
}

void kin_hparams_limit_context(kin_hparams *hp, int n_ctx) {
    hp->n_ctx_max = n_ctx;
    if (hp->n_ctx_train > n_ctx) hp->n_ctx_train = n_ctx;
}

int kin_hparams_check_context(const kin_hparams *hp, int n_ctx, kin_err *err) {
    if (hp->n_ctx_max == 0 || n_ctx <= hp->n_ctx_max) return 0;
    return kin_err_set(
        err,
        "a context of %d tokens is not supported: beyond %d tokens this model chooses which of them it sees, which "
        "kin does not compute; use --ctx %d or less",
        n_ctx, hp->n_ctx_max, hp->n_ctx_max);
}

void kin_hparams_read(kin_hparams *hp, kin_meta *k) {
    hp->n_streams = 1;
    hp->embedding_scale = hp->residual_scale = hp->logit_scale = hp->router_scale = 1;
    kin_hparams_read_n_layer(hp, k);
    hp->n_embd = kin_meta_int(k, "embedding_length", KIN_KEY_REQUIRED, 1, MAX_WIDTH);
    hp->n_ctx_train = kin_meta_int(k, "context_length", KIN_KEY_REQUIRED, 1, MAX_CONTEXT);
    if (!k->failed) {
        hp->layers = calloc((size_t)hp->n_layer, sizeof *hp->layers);
        if (!hp->layers) kin_meta_fail(k, "out of memory");
    }
    if (!k->failed) read_heads(k, hp);
    if (!k->failed) read_feed_forward(k, hp);
    if (!k->failed) read_rope(k, hp);
    hp->rms_eps = kin_meta_float(k, "attention.layer_norm_rms_epsilon", 1e-5f, 0.0f, 1.0f);
    read_vocab_size(k, hp);
}
