// Latent attention by kin's kernels: what comes before and after attention itself.
#include <string.h>

#include "model/kernel/heads.h"

enum { ROWS_A_CHUNK = 4 };

// ---- a matrix for each head

// Sources: x. Copies the first ne[0] values of each head: y // [ne0, n * n_head], all rows of a head one after the other.
static int count_latent_rows(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)y->src[0]->ne[1];
}

static void copy_heads_apart(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *x = y->src[0];
    const int64_t n = x->ne[1], n_in = y->ne[0], width = x->ne[0] / op->n_groups;
    const float *from = (const float *)x->data + c->i * x->ne[0];
    (void)n_threads;
    for (int64_t head = 0; head < op->n_groups; head++)
        memcpy((float *)y->data + (head * n + c->i) * n_in, from + head * width, (size_t)n_in * sizeof *from);
}

static const kin_op_run heads_apart = {.count = count_latent_rows, .compute = copy_heads_apart};

// Returns the inputs of the heads' matrices: [n_in, n, n_head]
static struct ggml_tensor *inputs_of_heads(kin_graph *g, struct ggml_tensor *x, int64_t n_in, int64_t n_head) {
    const int64_t n = x->ne[1];
    if (n == 1 && n_in * n_head == x->ne[0]) return ggml_reshape_3d(g->ctx, x, n_in, n, n_head);
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->n_groups = (int)n_head;
    struct ggml_tensor *y = kin_op_node(g, GGML_TYPE_F32, n_in, n * n_head, &x, 1, &heads_apart, op);
    return ggml_reshape_3d(g->ctx, y, n_in, n, n_head);
}

// Sources of the product: the matrices, their rounded inputs. A chunk is some panels of one head's matrix, for all rows.
// Heads whose matrices are rows of one have n_groups parts of it.
static int64_t panels_a_head(const struct ggml_tensor *y, const struct kin_op *op) {
    const int64_t panels = kin_op_panels(y->src[0]);
    return y->src[0]->ne[2] > 1 ? panels : panels / op->n_groups;
}

static int64_t panels_a_chunk(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    const int64_t panels = panels_a_head(y, op), step = kin_op_chunk_panels(panels * op->n_groups, n_threads);
    return step < panels ? step : panels;
}

static int64_t chunks_a_head(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    const int64_t step = panels_a_chunk(y, op, n_threads);
    return (panels_a_head(y, op) + step - 1) / step;
}

static int count_products(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    return (int)(chunks_a_head(y, op, n_threads) * op->n_groups);
}

static void multiply_head(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *weights = y->src[0];
    const int64_t n = y->ne[1], n_in = weights->ne[0], step = panels_a_chunk(y, op, n_threads), panels = panels_a_head(y, op);
    const int64_t head = c->i / chunks_a_head(y, op, n_threads), begin = c->i % chunks_a_head(y, op, n_threads) * step;
    const int64_t end = begin + step < panels ? begin + step : panels, width = y->ne[0] / op->n_groups;
    const bool is_one = weights->ne[2] == 1;
    const kin_matrix m =
        is_one ? kin_op_matrix(weights, 0, head * panels + begin, head * panels + end) : kin_op_matrix(weights, head, begin, end);
    const size_t bytes = op->kind[0] == KIN_ACT_F32 ? (size_t)(n * n_in) * sizeof(float) : kin_act_bytes(n_in, n);
    const uint8_t *input = (const uint8_t *)y->src[1]->data + (size_t)head * bytes;
    kin_op_multiply(op, &m, op->kind[0], input, n, (float *)y->data + head * width + begin * KIN_PANEL_ROWS, y->ne[0]);
}

static const kin_op_run products_of_heads = {.count = count_products, .compute = multiply_head};

struct ggml_tensor *kin_op_by_heads(kin_graph *g, struct ggml_tensor *x, struct ggml_tensor *weights, int n_head, int width) {
    const kin_act_kind kind = kin_kernel_act_kind((int)weights->type);
    const bool is_one = weights->ne[2] == 1; // which is also right for a single head
    kin_assert(x->ne[0] % n_head == 0 && (is_one || (weights->ne[2] == n_head && width >= weights->ne[1])));
    kin_assert(!is_one || n_head == 1 || weights->ne[1] == (int64_t)n_head * width);
    kin_assert(!is_one || n_head == 1 || width % KIN_PANEL_ROWS == 0);
    struct ggml_tensor *inputs = inputs_of_heads(g, x, weights->ne[0], n_head);
    struct ggml_tensor *args[] = {weights, kin_op_rounded(g, inputs, kind)};
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->kind[0] = kind;
    op->n_groups = n_head;
    return kin_op_node(g, GGML_TYPE_F32, width * n_head, x->ne[1], args, 2, &products_of_heads, op);
}

// ---- keys and queries

static int count_row_chunks(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)((y->ne[1] + ROWS_A_CHUNK - 1) / ROWS_A_CHUNK);
}

// cos_sin NULL: the family has no rope.
static void rotate(const struct kin_op *op, const struct ggml_tensor *cos_sin, int64_t row, float *x) {
    if (!cos_sin) return;
    op->kernels->rope(op->hp->rope_neox, op->hp->latent.n_rot, (const float *)cos_sin->data + row * cos_sin->ne[0], x);
}

// Sources: the latents with their keys, K, the norm, and cos_sin unless the family has no rope.
static void make_keys(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *k = y->src[1], *norm = y->src[2], *cos_sin = y->src[3];
    const int64_t n = y->ne[1], begin = (int64_t)c->i * ROWS_A_CHUNK, end = begin + ROWS_A_CHUNK < n ? begin + ROWS_A_CHUNK : n;
    const int n_latent = op->hp->latent.n_latent;
    float *rows = y->data;
    (void)n_threads;
    for (int64_t row = begin; row < end; row++) {
        float *at = rows + row * y->ne[0];
        op->kernels->rms_norm(n_latent, at, norm->data, op->eps, at);
        rotate(op, cos_sin, row, at + n_latent);
    }
    const kin_kv_rows stored = {.kv = kin_layer_kv(&op->layer, (int)k->type),
                                .k = k->data,
                                .k_rows = rows,
                                .v_rows = rows,
                                .ldk = y->ne[0],
                                .ldv = y->ne[0],
                                .cells = op->rows->plain.cells};
    kin_op_store_rows(op, &stored, begin, end);
}

static const kin_op_run latent_keys = {.count = count_row_chunks, .compute = make_keys};

struct ggml_tensor *kin_op_latent_keys(kin_graph *g, int il, struct ggml_tensor *y) {
    const kin_graph_layer *layer = &g->layers[il];
    const kin_layer how = kin_layer_of(g->hp, il);
    struct ggml_tensor *args[3] = {layer->k, layer->w[KIN_W_LATENT_KV_A_NORM]};
    const bool has_rope = how.rope != KIN_ROPE_NONE;
    if (has_rope) args[2] = kin_op_cos_sin(g, &g->all, how.rope);
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = &g->all;
    op->layer = how;
    op->eps = g->hp->rms_eps;
    return kin_op_inplace(g, y, args, has_rope ? 3 : 2, &latent_keys, op);
}

// Sources: the products, the queries, and cos_sin unless the family has no rope.
static void complete_queries(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *q = y->src[1], *cos_sin = y->src[2];
    const kin_hparams *hp = op->hp;
    const kin_latent *l = &hp->latent;
    const int64_t n = y->ne[1], begin = (int64_t)c->i * ROWS_A_CHUNK, end = begin + ROWS_A_CHUNK < n ? begin + ROWS_A_CHUNK : n;
    (void)n_threads;
    for (int64_t row = begin; row < end; row++) {
        const float *from = (const float *)q->data + row * q->ne[0] + l->k_dim;
        float *to = (float *)y->data + row * y->ne[0] + l->n_latent;
        for (int i = 0; i < op->layer.n_head; i++, from += l->k_dim + l->n_rot, to += l->n_latent + l->n_rot) {
            memcpy(to, from, (size_t)l->n_rot * sizeof *to);
            rotate(op, cos_sin, row, to);
        }
        kin_op_heat_queries(op, (float *)y->data + row * y->ne[0], y->ne[0], op->rows->plain.pos[row]);
    }
}

static const kin_op_run latent_queries = {.count = count_row_chunks, .compute = complete_queries};

struct ggml_tensor *kin_op_latent_queries(kin_graph *g, int il, struct ggml_tensor *y, struct ggml_tensor *q,
                                          kin_graph_rows *rows) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->rows = rows;
    op->layer = kin_layer_of(g->hp, il);
    const bool has_rope = op->layer.rope != KIN_ROPE_NONE;
    struct ggml_tensor *args[] = {q, has_rope ? kin_op_cos_sin(g, rows, op->layer.rope) : NULL};
    return kin_op_inplace(g, y, args, has_rope ? 2 : 1, &latent_queries, op);
}
