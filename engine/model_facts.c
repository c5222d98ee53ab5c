#include "engine/model_facts.h"
#include "engine/kv.h"
#include "engine/shard_memory.h"

#include <stdlib.h>
#include <string.h>

#include "model/blocks.h"
#include "model/border.h"
#include "model/kernel/ops.h"

enum { MAX_NODES = 256 }; // of one layer's graph

kin_quant kin_quant_of(enum ggml_type type) {
    switch (type) {
    case GGML_TYPE_F32: return KIN_QUANT_F32;
    case GGML_TYPE_F16: return KIN_QUANT_F16;
    case GGML_TYPE_BF16: return KIN_QUANT_BF16;
    case GGML_TYPE_Q8_0: return KIN_QUANT_Q8_0;
    case GGML_TYPE_Q6_K: return KIN_QUANT_Q6_K;
    case GGML_TYPE_Q5_K: return KIN_QUANT_Q5_K;
    case GGML_TYPE_Q4_K: return KIN_QUANT_Q4_K;
    case GGML_TYPE_Q4_0: return KIN_QUANT_Q4_0;
    case GGML_TYPE_Q3_K: return KIN_QUANT_Q3_K;
    case GGML_TYPE_Q2_K: return KIN_QUANT_Q2_K;
    default: return KIN_QUANT_OTHER;
    }
}

// ---- bytes and FLOP

// Multiply-adds count as two; of experts only those that a token uses.
static double flops(const kin_gguf_tensor *t, const kin_hparams *hp, bool experts) {
    return 2.0 * (double)t->ne[0] * (double)t->ne[1] * (experts ? hp->n_expert_used : 1);
}

static void add_layer(kin_model_facts *f, const kin_model *m, int il) {
    double share = 1.0 / m->hp.n_layer;
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *t = m->layers[il].w[id];
        if (!t) continue;
        bool experts = kin_weight_is_experts(id);
        kin_quant q = kin_quant_of((enum ggml_type)t->type);
        (experts ? f->expert_bytes : f->layer_bytes)[q] += share * (double)t->n_bytes;
        if (!kin_weight_is_vector(id)) f->layer_flops[q] += share * flops(t, &m->hp, experts);
    }
}

static void add_output(kin_model_facts *f, const kin_model *m) {
    kin_quant q = kin_quant_of((enum ggml_type)m->output->type);
    f->output_bytes[q] = (double)m->output->n_bytes;
    f->output_flops[q] = flops(m->output, &m->hp, false);
    f->input_bytes = m->token_embd == m->output ? 0 : (double)m->token_embd->n_bytes;
    if (m->input_embd) f->input_bytes += (double)m->input_embd->n_bytes + (double)m->input_proj->n_bytes;
}

// ---- blocks that are resident or streamed as a whole

static double block_bytes(const kin_model *m, int il, kin_weight_block block) {
    double sum = 0;
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *t = m->layers[il].w[id];
        if (t && kin_weight_block_of(id) == block && !kin_weight_is_experts(id)) sum += (double)t->n_bytes;
    }
    return sum;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static double tile_bytes(const kin_model *m) {
    int64_t rows = kin_weights_tile_rows(m);
    return (double)(rows < m->output->ne[1] ? rows : m->output->ne[1]) * (double)m->output->n_bytes / (double)m->output->ne[1];
}

// Sets the sizes of the layers' weight blocks and of the output's tiles, and of the compute block that needs the largest ring.
static void set_blocks(kin_model_facts *f, const kin_model *m) {
    double sum = 0, n = 0;
    f->output_blocks = kin_weights_count_tiles(m);
    f->layer_blocks = kin_weights_n_compute_blocks(&m->hp, m->hp.n_layer / 2);
    f->block_bytes = tile_bytes(m);
    for (int il = 0; il < m->hp.n_layer; il++) {
        double block[KIN_WEIGHT_BLOCK_COUNT];
        for (int k = 0; k < KIN_WEIGHT_BLOCK_COUNT; k++) {
            block[k] = block_bytes(m, il, (kin_weight_block)k);
            f->attn_bytes += k == KIN_WEIGHT_BLOCK_ATTN ? block[k] / m->hp.n_layer : 0;
            sum += block[k];
            n += block[k] > 0;
        }
        // Gate and up are one compute block; down is the next, or part of the same in layers of fewer blocks.
        double gate_up = block[KIN_WEIGHT_BLOCK_FFN_GATE] + block[KIN_WEIGHT_BLOCK_FFN_UP],
               down = block[KIN_WEIGHT_BLOCK_FFN_DOWN];
        double ffn = kin_weights_n_compute_blocks(&m->hp, il) < 3 ? gate_up + down : larger(gate_up, down);
        f->block_bytes = larger(f->block_bytes, larger(block[KIN_WEIGHT_BLOCK_ATTN], ffn));
    }
    f->weight_block_bytes = (sum + (double)m->output->n_bytes) / (n + f->output_blocks);
}

// ---- operations

static bool computes(const struct ggml_tensor *node) {
    enum ggml_op op = node->op;
    return op != GGML_OP_NONE && op != GGML_OP_VIEW && op != GGML_OP_RESHAPE && op != GGML_OP_PERMUTE && op != GGML_OP_TRANSPOSE;
}

static struct ggml_tensor *weight(struct ggml_context *ctx, const kin_gguf_tensor *t, bool by_kernels) {
    if (!t) return NULL;
    struct ggml_tensor *w = ggml_new_tensor_3d(ctx, (enum ggml_type)t->type, t->ne[0], t->ne[1], t->ne[2]);
    if (by_kernels && kin_kernel_packs((int)t->type)) kin_ops_mark_packed(w);
    return w;
}

// The matrices of keys and values that a file has in one become two when they are packed.
static void split_fused(struct ggml_context *ctx, const kin_model *m, int il, struct ggml_tensor **w) {
    const kin_gguf_tensor *fused = m->layers[il].w[KIN_W_LATENT_KV_B];
    const kin_latent *l = &m->hp.latent;
    const int n_head = kin_layer_of(&m->hp, il).n_head;
    if (!fused) return;
    w[KIN_W_LATENT_K_B] = ggml_new_tensor_3d(ctx, GGML_TYPE_F16, l->k_dim, l->n_latent, n_head);
    w[KIN_W_LATENT_V_B] = ggml_new_tensor_3d(ctx, (enum ggml_type)fused->type, l->n_latent, l->v_dim, n_head);
}

// Builds the graph of one layer for one token, without data, and counts its operations. kernels: NULL: ggml's.
static int count_layer_ops(const kin_model *m, const kin_shard_options *o, int il, const kin_kernels *kernels, double *n_ops,
                           kin_err *err) {
    const kin_hparams *hp = &m->hp;
    const kin_layer layer = kin_layer_of(hp, il);
    const size_t n_max = MAX_NODES + 2 * (size_t)hp->n_expert_used;
    struct ggml_init_params params = {.mem_size = 2 * n_max * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_max, false),
                                      .no_alloc = true};
    kin_graph_layer *layers = calloc((size_t)hp->n_layer, sizeof *layers);
    struct kin_op *ops = calloc(n_max, kin_op_bytes());
    struct ggml_context *ctx = ggml_init(params);
    if (!layers || !ops || !ctx) {
        if (ctx) ggml_free(ctx);
        free(ops);
        free(layers);
        return kin_err_set(err, "out of memory");
    }
    for (int id = 0; id < KIN_W_COUNT; id++) layers[il].w[id] = weight(ctx, m->layers[il].w[id], kernels != NULL);
    split_fused(ctx, m, il, layers[il].w);
    layers[il].k = ggml_new_tensor_2d(ctx, o->kv_type, kin_layer_n_embd_k(&layer), 64);
    if (kin_layer_n_embd_v(&layer) > 0) layers[il].v = ggml_new_tensor_2d(ctx, o->kv_type, kin_layer_n_embd_v(&layer), 64);
    if (kin_layer_n_index(&layer) > 0) layers[il].index = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, kin_layer_n_index(&layer), 64);
    kin_graph g = {.ctx = ctx, .gf = ggml_new_graph_custom(ctx, n_max, false), .hp = hp, .layers = layers, .flash = o->flash};
    g.kernels = kernels;
    g.ops = ops;
    g.max_ops = (int)n_max;
    g.n_kv = 64;
    if (kin_hparams_token_layers(hp) > 0) g.tokens = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, 1);
    if (hp->ngram.size > 0)
        g.ngrams = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, (int64_t)kin_ngram_n_rows(&hp->ngram) * hp->ngram.dim, 1);
    if (kin_hparams_shares_choices(hp)) g.choice = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, hp->indexer.n_chosen, 1);
    if (hp->n_input) g.inputs = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, (int64_t)hp->n_input * hp->n_layer, 1);
    g.cells = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, 1);
    g.all = (kin_graph_rows){
        .n = 1, .pos = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 1), .mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, g.n_kv, 1)};
    g.all.window_mask = g.all.mask;
    for (int i = 0; i < KIN_ROPES; i++) // in a whole model the first layers compute these
        g.all.cos_sin[i] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, hp->ropes[i].n_rot, 1);
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, kin_hparams_stream_width(hp), 1);
    ggml_build_forward_expand(g.gf, kin_block_layer(&g, il, x));
    *n_ops = 0;
    for (int i = 0; i < ggml_graph_n_nodes(g.gf); i++) *n_ops += computes(ggml_graph_node(g.gf, i));
    ggml_free(ctx);
    free(ops);
    free(layers);
    return 0;
}

// ---- all of it

static void set_shares(kin_model_facts *f, const kin_model *m) {
    double bytes[KIN_FACTS_MAX_LAYERS];
    for (int il = 0; il < m->hp.n_layer; il++) bytes[il] = (double)kin_model_layer_bytes(m, il);
    kin_facts_set_shares(f, bytes);
}

// Returns the part of n in the context that an indexer chooses.
static double chosen_part(const kin_hparams *hp, double n) {
    return hp->indexer.n_chosen < n ? hp->indexer.n_chosen / n : 1;
}

// The next function's result for a layer with compressed rows.
static double compressed_of(const kin_hparams *hp, const kin_layer *layer, const kin_shard_options *o) {
    if (layer->ratio == 0) return 0;
    const double part = layer->n_index_key > 0 ? chosen_part(hp, (double)o->n_ctx / layer->ratio) : 1;
    return (double)sizeof(ggml_fp16_t) * (layer->n_index_key + part * layer->head_dim) / layer->ratio;
}

// Returns the bytes that a layer reads of each token of the context, on average: where an indexer chooses, attention reads only
// what it has chosen.
static double read_of(const kin_hparams *hp, const kin_layer *layer, const kin_shard_options *o) {
    const enum ggml_type type = o->kv_type;
    if (layer->is_recurrent || layer->has_no_attention) return 0;
    if (layer->is_compressed) return compressed_of(hp, layer, o);
    const bool chooses = kin_layer_chooses(layer) || kin_layer_chooses_blocks(layer) || kin_layer_chooses_groups(layer);
    const double part = chooses ? chosen_part(hp, o->n_ctx) : 1;
    const size_t all = ggml_row_size(type, kin_layer_n_embd_k(layer) + kin_layer_n_embd_v(layer));
    const double n_index = layer->n_pool > 0 ? (double)layer->n_index_key / layer->n_pool : kin_layer_n_index_read(layer);
    return (double)sizeof(ggml_fp16_t) * n_index + part * (double)all;
}

// Returns the bytes of the copies that a device keeps of keys and values of a layer before its own (kin_kv_home), in one round.
static double copies_bytes(const kin_model *m, const kin_shard_options *o) {
    double bytes = 0;
    bool is_source[KIN_FACTS_MAX_LAYERS] = {false};
    for (int il = 0; il < m->hp.n_layer; il++)
        is_source[il - kin_layer_of(&m->hp, il).kv_back] |= kin_layer_of(&m->hp, il).kv_back > 0;
    for (int il = 0; il < m->hp.n_layer; il++) bytes += is_source[il] ? (double)kin_shard_kv_bytes(m, o, il, il + 1, false) : 0;
    return bytes;
}

// Sets what layers hold of the context, and what they read of each token. A layer that reads the keys and values of another one
// holds none.
static void set_kv(kin_model_facts *f, const kin_model *m, const kin_shard_options *o) {
    double held[KIN_FACTS_MAX_LAYERS], read = 0;
    for (int il = 0; il < m->hp.n_layer; il++) {
        const kin_layer layer = kin_layer_of(&m->hp, il);
        read += read_of(&m->hp, &layer, o);
        held[il] = layer.kv_back > 0 ? 0 : (double)kin_shard_kv_bytes(m, o, il, il + 1, false);
        f->gpu_kv_bytes = larger(f->gpu_kv_bytes, (double)kin_shard_kv_bytes(m, o, il, il + 1, true) / o->n_ctx);
    }
    f->kv_bytes = read / m->hp.n_layer;
    kin_facts_set_kv(f, o->n_ctx, held);
    const kin_kv_options kv = kin_shard_kv_options(m, o);
    f->checkpoint_gap = kin_kv_checkpoint_gap(&m->hp, &kv);
    f->checkpoint_bytes = f->checkpoint_gap > 0 ? (double)kin_kv_checkpoint_bytes(&m->hp, &kv) : 0;
}

int kin_model_facts_of(kin_model_facts *f, const kin_model *m, const kin_shard_options *o, kin_err *err) {
    const kin_hparams *hp = &m->hp;
    if (hp->n_layer > KIN_FACTS_MAX_LAYERS)
        return kin_err_set(err, "%d layers; at most %d are supported", hp->n_layer, KIN_FACTS_MAX_LAYERS);
    if (kin_kv_check_type(hp, o->kv_type, err) != 0) return KIN_FAIL;
    *f = (kin_model_facts){.n_layer = hp->n_layer, .n_vocab = hp->n_vocab};
    f->hidden_bytes = (double)sizeof(float) * kin_border_mean(hp);
    for (int il = 0; il < hp->n_layer; il++) add_layer(f, m, il);
    if (hp->n_expert) f->expert_share = (double)hp->n_expert_used / hp->n_expert;
    set_shares(f, m);
    add_output(f, m);
    set_blocks(f, m);
    set_kv(f, m, o);
    f->kv_reads = (double)hp->n_head / hp->n_head_kv;
    kin_share_pieces pieces = kin_share_pieces_of(m, (int)o->kv_type);
    f->share_heads = pieces.n_heads;
    f->share_ff = pieces.n_ff;
    f->cpu_buffer_bytes = (double)(kin_shard_buffer_bytes(m, o, false) + kin_shard_overhead_bytes()) + copies_bytes(m, o);
    f->gpu_buffer_bytes = (double)kin_shard_buffer_bytes(m, o, true);
    f->output_ops = 2 + (f->output_blocks > 1 ? 2 : 1) * f->output_blocks; // norm, its weight; per tile a product and a copy
    // A model that ggml cannot compute is never on a GPU, and its nodes are those of kin's kernels everywhere.
    f->cpu_only = kin_blocks_without_ggml(hp, o->n_ctx);
    const kin_kernels *own = kin_kernels_at(0), *on_gpu = f->cpu_only ? own : NULL;
    const kin_kernels *on_cpu = kin_shard_has_kernels(m, o) ? own : on_gpu;
    if (count_layer_ops(m, o, hp->n_layer / 2, on_cpu, &f->layer_ops, err) != 0) return KIN_FAIL;
    return count_layer_ops(m, o, hp->n_layer / 2, on_gpu, &f->gpu_layer_ops, err);
}
