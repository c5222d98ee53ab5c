// qwen4exp: Qwen3.8-Flash-Next. The layers of Qwen 3.5, whose norms are mixers of several streams; an embedding of the last
// tokens, whose table is read from the file row by row; an indexer in the layers of attention, which chooses blocks of tokens.
#include "model/families/qwen35.h"
#include "model/streams.h"

static const char *const obeyed[] = {"nextn_predict_layers", NULL};

// Weights of an indexer, which are ignored if kin does not compute it, and in draft blocks, which see all tokens.
static const char *const tensors_of_indexer[] = {"indexer.q_proj.weight", "indexer.k_proj.weight", "indexer.q_norm.weight",
                                                 "indexer.k_norm.weight", NULL};

static void read_streams(kin_hparams *hp, kin_meta *k) {
    hp->n_streams = kin_meta_int(k, "hyper_connection.count", KIN_KEY_REQUIRED, 2, KIN_STREAMS_MAX);
    hp->n_mixer_rank = kin_meta_int(k, "hyper_connection.low_rank", KIN_KEY_REQUIRED, 1, 1 << 16);
    hp->streams = KIN_STREAMS_GATED;
    if (!k->failed && (int64_t)hp->n_streams * hp->n_embd > 1 << 20)
        kin_meta_fail(k, "%d residual streams of %d numbers are too many", hp->n_streams, hp->n_embd);
    if (!k->failed && hp->n_mixer_rank % 16 != 0)
        kin_meta_fail(k, "mixers of streams with %d numbers between their matrices are not supported", hp->n_mixer_rank);
}

// Reads the tokens of a block in the layers of attention, and marks those that have blocks; a layer without them sees all tokens.
// Returns the tokens; 0: they differ between layers, or there are no blocks. *limit: up to that many tokens all are seen; 0:
// always.
static int read_blocks(kin_hparams *hp, kin_meta *k, int n_chosen, int *limit) {
    int n_block = 0;
    bool differ = false;
    *limit = 0;
    for (uint64_t i = 0, n = 1; i < n && !k->failed; i++) {
        const uint64_t ratio = kin_meta_u64_at(k, "attention.compress_ratios", i, &n);
        if (!k->failed && n > 1 << 12) kin_meta_fail(k, "%llu compress_ratios are too many", (unsigned long long)n);
        if (!k->failed && ratio > 1 << 16) kin_meta_fail(k, "blocks of %llu tokens are not supported", (unsigned long long)ratio);
        if (k->failed || i >= (uint64_t)hp->n_layer || hp->layers[i].is_recurrent || ratio == 0) continue;
        const int r = (int)ratio, n_seen = n_chosen - n_chosen % r + r - 1;
        differ = differ || (n_block > 0 && n_block != r);
        n_block = r;
        if (*limit == 0 || n_seen < *limit) *limit = n_seen;
        hp->layers[i].pools_index = true;
    }
    return differ ? 0 : n_block;
}

// True if kin's blocks of the KV cache consist of the indexer's, and its kernels have room for its keys.
static bool can_choose(const kin_hparams *hp, const kin_indexer *x) {
    if (x->n_block < KIN_KV_CELLS / KIN_POOLED_KEYS || KIN_KV_CELLS % x->n_block != 0) return false;
    if (x->n_chosen < x->n_block || x->n_chosen / x->n_block > KIN_CHOSEN_MAX) return false;
    if (x->n_head < 1 || x->n_head > KIN_INDEX_HEADS) return false;
    return x->key_dim % 16 == 0 && x->key_dim >= hp->ropes[0].n_rot;
}

// Reads the indexer. One that kin cannot compute limits contexts to those in which it chooses all whole blocks.
static void read_indexer(kin_hparams *hp, kin_meta *k) {
    kin_indexer x = {.pools = true, .rope_neox = true, .eps = hp->rms_eps};
    const int n_chosen = kin_meta_int(k, "attention.indexer.top_k", KIN_KEY_REQUIRED, 1, 1 << 20);
    int limit;
    x.n_head = kin_meta_int(k, "attention.indexer.head_count", 0, 0, 1024);
    x.key_dim = kin_meta_int(k, "attention.indexer.key_length", 0, 0, KIN_KV_DIM);
    x.n_block = read_blocks(hp, k, n_chosen, &limit);
    if (k->failed || limit == 0) return;
    if (x.n_block > 0) x.n_chosen = n_chosen - n_chosen % x.n_block;
    if (can_choose(hp, &x)) {
        hp->indexer = x;
        return;
    }
    for (int il = 0; il < hp->n_layer; il++) hp->layers[il].pools_index = false;
    kin_hparams_limit_context(hp, limit);
}

static void read_heads(kin_ngram *n, kin_meta *k) {
    const uint64_t n_tokens = (uint64_t)n->size, n_heads = (uint64_t)kin_ngram_n_rows(n);
    uint64_t n_found = 0;
    for (uint64_t i = 0; i < n_tokens && !k->failed; i++)
        n->multipliers[i] = kin_meta_u64_at(k, "ple.layer_multipliers", i, &n_found);
    for (uint64_t i = 0; i < n_heads && !k->failed; i++) {
        n->first[i] = kin_meta_u64_at(k, "ple.head_offsets", i, &n_found);
        n->n_rows[i] = kin_meta_u64_at(k, "ple.head_vocab_sizes", i, &n_found);
        if (!k->failed && (n->n_rows[i] == 0 || n->n_rows[i] > INT32_MAX || n->first[i] > INT32_MAX))
            kin_meta_fail(k, "head %d of the n-gram embedding has %llu rows from row %llu on", (int)i,
                          (unsigned long long)n->n_rows[i], (unsigned long long)n->first[i]);
    }
}

static void read_ngrams(kin_hparams *hp, kin_meta *k) {
    kin_ngram *n = &hp->ngram;
    uint64_t n_layers = 0;
    const uint64_t layer = kin_meta_u64_at(k, "ple.layers", 0, &n_layers);
    n->size = kin_meta_int(k, "ple.ngram_size", KIN_KEY_REQUIRED, 2, KIN_NGRAM_TOKENS);
    n->n_heads = kin_meta_int(k, "ple.heads_per_ngram", KIN_KEY_REQUIRED, 1, KIN_NGRAM_HEADS / (KIN_NGRAM_TOKENS - 1));
    n->n_taps = kin_meta_int(k, "ple.conv_kernel", KIN_KEY_REQUIRED, 2, KIN_CONVOLUTION_TAPS);
    n->eos = kin_meta_int(k, "ple.eos_token_id", KIN_KEY_REQUIRED, 0, INT32_MAX);
    n->dim = kin_meta_int(k, "embedding_length_per_layer_input", KIN_KEY_REQUIRED, 1, 1 << 16);
    if (k->failed) return;
    if (n_layers != 1 || layer >= (uint64_t)hp->n_layer || !hp->layers[layer].is_recurrent)
        kin_meta_fail(k, "n-gram embeddings must be added before one recurrent layer, not before %llu, the first of them %llu",
                      (unsigned long long)n_layers, (unsigned long long)layer);
    else if ((int64_t)kin_ngram_n_rows(n) * n->dim != hp->n_embd)
        kin_meta_fail(k, "%d rows of %d numbers are not an embedding of %d", kin_ngram_n_rows(n), n->dim, hp->n_embd);
    if (k->failed) return;
    n->layer = (int)layer;
    read_heads(n, k);
}

static void read_qwen4exp_keys(kin_hparams *hp, kin_meta *k) {
    kin_qwen35_read_delta_net(hp, k);
    if (!k->failed) kin_qwen35_read_kinds(hp, k);
    hp->delta.gates_by_sigmoid = true;
    hp->n_ff_shared = kin_meta_int(k, "expert_shared_feed_forward_length", hp->n_ff_exp, 1, 1 << 20);
    hp->routing.gating = KIN_GATING_SOFTMAX;
    hp->routing.normalize = true;
    read_streams(hp, k);
    if (!k->failed) read_indexer(hp, k);
    read_ngrams(hp, k);
    if (!k->failed && hp->n_expert == 0) kin_meta_fail(k, "qwen4exp models without experts are not supported");
}

// A draft block has attention, as a layer of attention, to all tokens, and no n-grams.
static void read_qwen4exp_draft(kin_hparams *hp, kin_meta *k, int i_block) {
    (void)k, (void)i_block;
    hp->ngram.size = 0;
    hp->indexer = (kin_indexer){0};
}

static void describe_qwen4exp_layer(const kin_hparams *hp, int il, kin_layer *layer) {
    layer->is_recurrent = hp->layers[il].is_recurrent;
    layer->gates_queries = !layer->is_recurrent;
    layer->n_head_gate = layer->is_recurrent ? 0 : kin_layer_of(hp, il).head_dim;
    layer->head_gate = KIN_HEAD_GATE_SIGMOID;
    layer->has_ngrams = hp->ngram.size > 0 && il == hp->ngram.layer;
    layer->n_index_key = layer->pools_index ? hp->indexer.key_dim : 0;
}

static kin_weight_set require_qwen4exp_weights(const kin_hparams *hp, const kin_layer *layer) {
    kin_weight_set set =
        KIN_WEIGHT_SET(KIN_W_GATED_ATTN_NORM, KIN_W_GATED_ATTN_DOWN, KIN_W_GATED_ATTN_UP, KIN_W_GATED_ATTN_INJECT,
                       KIN_W_GATED_FF_NORM, KIN_W_GATED_FF_DOWN, KIN_W_GATED_FF_UP, KIN_W_GATED_FF_INJECT, KIN_W_FFN_ROUTER,
                       KIN_W_FFN_DOWN_EXPS, KIN_WEIGHTS_SHARED, KIN_W_FFN_SHARED_ROUTER);
    const kin_weight_set attention =
        KIN_WEIGHT_SET(KIN_W_ATTN_Q_GATE, KIN_W_ATTN_K, KIN_W_ATTN_V, KIN_W_ATTN_OUT, KIN_WEIGHTS_QK_NORM);
    const kin_weight_set delta =
        KIN_WEIGHT_SET(KIN_W_DELTA_QKV, KIN_W_DELTA_GATE, KIN_W_DELTA_CONV, KIN_W_DELTA_DT, KIN_W_DELTA_A, KIN_W_DELTA_BETA,
                       KIN_W_DELTA_ALPHA, KIN_W_DELTA_NORM, KIN_W_DELTA_OUT);
    const kin_weight_set ngrams = KIN_WEIGHT_SET(KIN_W_NGRAM_KEY, KIN_W_NGRAM_VALUE, KIN_W_NGRAM_KEY_NORM, KIN_W_NGRAM_QUERY_NORM,
                                                 KIN_W_NGRAM_CONV_NORM, KIN_W_NGRAM_CONV);
    const kin_weight_set indexer = KIN_WEIGHT_SET(KIN_W_INDEX_Q, KIN_W_INDEX_Q_NORM, KIN_W_INDEX_K_2, KIN_W_INDEX_K_NORM);
    (void)hp;
    kin_weight_set_join(&set, layer->is_recurrent ? &delta : &attention);
    if (layer->has_ngrams) kin_weight_set_join(&set, &ngrams);
    if (layer->pools_index) kin_weight_set_join(&set, &indexer);
    return set;
}

static kin_weight_set allow_qwen4exp_weights(const kin_hparams *hp, const kin_layer *layer) {
    (void)hp, (void)layer;
    return KIN_WEIGHT_SET(KIN_W_FFN_GATE_EXPS, KIN_W_FFN_UP_EXPS, KIN_W_FFN_GATE_UP_EXPS);
}

const kin_arch kin_arch_qwen4exp = {
    .name = "qwen4exp",
    .title = "Qwen3.8-Flash-Next",
    .rope_neox = true,
    .has_no_output_norm = true,
    .drafts = true,
    .drafts_unnormed = true,
    .keys = obeyed,
    .ignored = tensors_of_indexer,
    .drafts_ignore = true,
    .read = read_qwen4exp_keys,
    .layer = describe_qwen4exp_layer,
    .draft_layer = read_qwen4exp_draft,
    .required = require_qwen4exp_weights,
    .optional = allow_qwen4exp_weights,
};
