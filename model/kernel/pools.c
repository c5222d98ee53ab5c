// The keys of an indexer that chooses pools of tokens (kin_indexer in model/hparams.h).
//
// A token's cell of the cache of such keys is a row of F16: the key of the pool that it ends, else zeros; its own key; and its
// gates. So all of it follows from the tokens up to this one: a sequence can be shortened anywhere, and sequences can share
// cells.
#include "model/kernel/made_rows.h"

static kin_made_rows keys_of_pools(const kin_layer *layer) {
    const int dim = layer->n_index_key;
    return (kin_made_rows){.n_tokens = layer->n_pool, .dim = dim, .values_at = dim, .n_values = dim};
}

static int count_rows(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->ne[1];
}

// Sources: the tokens' keys and gates, the cache, the keys' norm, which subtracts the mean, and its bias.
static void store_token(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *cache = y->src[1], *norm = y->src[2], *bias = y->src[3];
    const int dim = op->made.dim;
    float *key = (float *)y->data + c->i * y->ne[0];
    (void)n_threads;
    op->kernels->center(dim, key, key);
    op->kernels->rms_norm(dim, key, norm->data, op->hp->indexer.eps, key);
    op->kernels->add(dim, bias->data, key);
    kin_op_store_cells(op, cache, c->i, 0, dim, NULL);
    kin_op_store_cells(op, cache, c->i, dim, 2 * dim, key);
}

static const kin_op_run tokens_to_cells = {.count = count_rows, .compute = store_token};

// Sources: what the cells have got, the cache, what is added to the gates.
static void make_key(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *cache = y->src[1], *places = y->src[2];
    const int pos = op->rows->plain.pos[c->i];
    float x[KIN_KV_DIM];
    (void)n_threads;
    if ((pos + 1) % op->made.n_tokens != 0) return;
    kin_op_pool_block(op, cache, c->i, pos, places->data, x);
    kin_op_store_cells(op, cache, c->i, 0, op->made.dim, x);
}

static const kin_op_run keys = {.count = count_rows, .compute = make_key};

static struct kin_op *new_op(kin_graph *g, int il) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = &g->all;
    op->layer = kin_layer_of(g->hp, il);
    op->made = keys_of_pools(&op->layer);
    return op;
}

struct ggml_tensor *kin_op_pool_keys(kin_graph *g, int il, struct ggml_tensor *y) {
    const kin_graph_layer *layer = &g->layers[il];
    struct ggml_tensor *args[] = {layer->index, layer->w[KIN_W_INDEX_K_NORM], layer->w[KIN_W_INDEX_K_NORM_BIAS]};
    struct ggml_tensor *of_pool[] = {layer->index, layer->w[KIN_W_INDEX_POOL_PLACES]};
    y = kin_op_inplace(g, y, args, 3, &tokens_to_cells, new_op(g, il));
    return kin_op_inplace(g, y, of_pool, 2, &keys, new_op(g, il));
}

struct ggml_tensor *kin_op_pool_choose(kin_graph *g, int il, struct ggml_tensor *q, struct ggml_tensor *weights,
                                       kin_graph_rows *rows) {
    const kin_layer layer = kin_layer_of(g->hp, il);
    return kin_op_choose_made(g, il, q, weights, g->layers[il].index, keys_of_pools(&layer), g->n_kv / layer.n_pool + 1, rows);
}
