// Heads and attention by kin's kernels.
#include "model/kernel/heads.h"

enum {
    SPLIT_ROWS = 4, // batches of at most this many rows may need their contexts split between threads
    ROWS_A_CHUNK = 4,
    COS_SIN_A_CHUNK = 16, // each chunk computes the frequencies again
};

// ---- rotation

static int count_cos_sin_chunks(const struct ggml_tensor *cos_sin, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)((cos_sin->ne[1] + COS_SIN_A_CHUNK - 1) / COS_SIN_A_CHUNK);
}

static void compute_cos_sin(struct ggml_tensor *cos_sin, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    kin_rope rope = op->hp->ropes[op->i_rope];
    double freq[KIN_ROPE_PAIRS];
    const int64_t begin = (int64_t)c->i * COS_SIN_A_CHUNK, n = cos_sin->ne[1];
    (void)n_threads;
    if (op->has_factors) rope.factors = cos_sin->src[0]->data;
    kin_rope_frequencies(&rope, freq);
    for (int64_t i = begin; i < n && i < begin + COS_SIN_A_CHUNK; i++)
        kin_rope_cos_sin(&rope, freq, op->rows->plain.pos[i], (float *)cos_sin->data + i * cos_sin->ne[0]);
}

static const kin_op_run rotation = {.count = count_cos_sin_chunks, .compute = compute_cos_sin};

struct ggml_tensor *kin_op_cos_sin(kin_graph *g, kin_graph_rows *rows, int i_rope) {
    if (rows->cos_sin[i_rope]) return rows->cos_sin[i_rope];
    struct kin_op *op = kin_op_new(g, KIN_OP_COS_SIN);
    op->rows = rows;
    op->i_rope = i_rope;
    op->has_factors = g->rope_factors && !g->hp->ignores_factors[i_rope];
    struct ggml_tensor *args[] = {g->rope_factors};
    rows->cos_sin[i_rope] =
        kin_op_node(g, GGML_TYPE_F32, g->hp->ropes[i_rope].n_rot, rows->n, args, op->has_factors, &rotation, op);
    return rows->cos_sin[i_rope];
}

// ---- heads

// Normalises and rotates n consecutive heads. cos_sin NULL: no rotation.
static void turn_heads(const struct kin_op *op, float *head, int n, const float *norm, const float *cos_sin) {
    const kin_hparams *hp = op->hp;
    const int head_dim = op->layer.head_dim;
    if (norm && op->norms_all) op->kernels->rms_norm(n * head_dim, head, norm, hp->rms_eps, head);
    for (int i = 0; i < n; i++, head += head_dim) {
        if (norm && !op->norms_all) {
            if (hp->centers_norms) op->kernels->center(head_dim, head, head);
            op->kernels->rms_norm(head_dim, head, norm + (op->norms_each ? i * head_dim : 0), hp->rms_eps, head);
        }
        if (cos_sin) op->kernels->rope(hp->rope_neox, hp->ropes[op->i_rope].n_rot, cos_sin, head);
    }
}

void kin_op_heat_queries(const struct kin_op *op, float *q, int64_t n, int32_t pos) {
    const kin_hparams *hp = op->hp;
    if (hp->query_temperature == 0) return;
    float factor = kin_rope_temperature(hp->query_temperature, hp->temperature_length, pos);
    for (int64_t i = 0; i < n; i++) q[i] *= factor;
}

void kin_op_store_rows(const struct kin_op *op, const kin_kv_rows *rows, int64_t begin, int64_t end) {
    const kin_rows *plain = &op->rows->plain;
    op->kernels->kv_store(rows, begin, end);
    for (int i = 0; i < plain->n_copies; i++) {
        const kin_row_cell *copy = &plain->copies[i];
        if (copy->row < begin || copy->row >= end) continue;
        kin_kv_rows one = *rows;
        one.k_rows += copy->row * rows->ldk;
        one.v_rows += copy->row * rows->ldv;
        one.cells = op->layer.is_windowed ? &copy->window_cell : &copy->cell;
        op->kernels->kv_store(&one, 0, 1);
    }
}

// Makes the values of the keys' products and stores them. Leaves the keys normalised, but without their weights.
static void store_values_of_keys(const struct kin_op *op, const kin_kv_rows *rows, float *keys, int64_t begin, int64_t end) {
    const int dim = op->layer.head_dim;
    kin_kv_rows values = *rows;
    values.k = NULL;
    values.v_rows = keys;
    for (int64_t row = begin; row < end; row++) {
        for (int i = 0; i < op->n_kv; i++) {
            float *head = keys + row * rows->ldk + i * dim;
            op->kernels->rms_norm(dim, head, NULL, op->hp->rms_eps, head);
        }
    }
    kin_op_store_rows(op, &values, begin, end);
}

// Multiplies heads that are normalised by the norm's weights, and rotates them.
static void weigh_heads(const struct kin_op *op, float *head, int n, const float *norm, const float *cos_sin) {
    const int dim = op->layer.head_dim;
    for (int i = 0; i < n; i++, head += dim) {
        for (int d = 0; d < dim; d++) head[d] *= norm[d];
        if (cos_sin) op->kernels->rope(op->hp->rope_neox, op->hp->ropes[op->i_rope].n_rot, cos_sin, head);
    }
}

// Normalises the values of a row, each head alone and without weights.
static void norm_values(const struct kin_op *op, float *values) {
    const int dim = op->layer.v_dim;
    for (int i = 0; i < op->n_kv; i++, values += dim) op->kernels->rms_norm(dim, values, NULL, op->hp->rms_eps, values);
}

// Scales the values of a row, if the family does so.
static void scale_values(const struct kin_op *op, float *values) {
    const float scale = op->hp->value_scale;
    for (int i = 0; i < op->n_kv * op->layer.v_dim && scale != 0; i++) values[i] *= scale;
}

// Sources: the products, cos_sin (K if there are none), K, V, and the norms of queries and of keys if there are any.
static int count_row_chunks(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)((y->ne[1] + ROWS_A_CHUNK - 1) / ROWS_A_CHUNK);
}

static void make_heads(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const int head_dim = op->layer.head_dim;
    const struct ggml_tensor *cos_sin = y->src[1], *k = y->src[2], *v = y->src[3];
    const float *q_norm = op->has_q_norm ? y->src[4]->data : NULL;
    const float *k_norm = op->has_k_norm ? y->src[4 + op->has_q_norm]->data : NULL;
    float *keys = (float *)y->data + op->n_q * head_dim;
    kin_kv_rows rows = {
        .kv = kin_layer_kv(&op->layer, (int)k->type),
        .k = k->data,
        .v = v->data,
        .k_rows = keys,
        .v_rows = keys + op->n_kv * head_dim,
        .ldk = y->ne[0],
        .ldv = y->ne[0],
        .cells = op->layer.is_windowed ? op->rows->plain.window_cells : op->rows->plain.cells,
    };
    const int64_t n = y->ne[1], begin = (int64_t)c->i * ROWS_A_CHUNK, end = begin + ROWS_A_CHUNK < n ? begin + ROWS_A_CHUNK : n;
    (void)n_threads;
    if (op->v_is_k) {
        store_values_of_keys(op, &rows, keys, begin, end);
        rows.v = NULL;
    }
    for (int64_t row = begin; row < end; row++) {
        float *at = (float *)y->data + row * y->ne[0];
        const float *turn = op->layer.rope == KIN_ROPE_NONE ? NULL : (const float *)cos_sin->data + row * cos_sin->ne[0];
        turn_heads(op, at, op->n_q, q_norm, turn);
        kin_op_heat_queries(op, at, (int64_t)op->n_q * head_dim, op->rows->plain.pos[row]);
        at += op->n_q * head_dim;
        if (op->v_is_k) {
            weigh_heads(op, at, op->n_kv, k_norm, turn);
        } else {
            turn_heads(op, at, op->n_kv, k_norm, turn);
            if (op->layer.norms_values) norm_values(op, at + op->n_kv * head_dim);
            if (op->n_kv) scale_values(op, at + op->n_kv * head_dim);
        }
    }
    if (op->n_kv) kin_op_store_rows(op, &rows, begin, end);
}

static const kin_op_run heads_of_rows = {.count = count_row_chunks, .compute = make_heads};

struct ggml_tensor *kin_op_heads(kin_graph *g, int il, struct ggml_tensor *y, int n_q, int n_kv, kin_graph_rows *rows) {
    const kin_graph_layer *layer = &g->layers[il];
    const kin_layer how = kin_layer_of(g->hp, il);
    const bool norms_all = layer->w[KIN_W_ATTN_Q_NORM_ALL] != NULL, norms_each = layer->w[KIN_W_ATTN_Q_NORM_EACH] != NULL;
    const kin_weight of_queries = norms_all ? KIN_W_ATTN_Q_NORM_ALL : norms_each ? KIN_W_ATTN_Q_NORM_EACH : KIN_W_ATTN_Q_NORM;
    const kin_weight of_keys = norms_all ? KIN_W_ATTN_K_NORM_ALL : norms_each ? KIN_W_ATTN_K_NORM_EACH : KIN_W_ATTN_K_NORM;
    struct ggml_tensor *q_norm = n_q ? layer->w[of_queries] : NULL, *k_norm = n_kv ? layer->w[of_keys] : NULL;
    struct ggml_tensor *args[5] = {how.rope == KIN_ROPE_NONE ? layer->k : kin_op_cos_sin(g, rows, how.rope), layer->k, layer->v};
    int n_args = 3;
    if (q_norm) args[n_args++] = q_norm;
    if (k_norm) args[n_args++] = k_norm;
    struct kin_op *op = kin_op_new(g, KIN_OP_HEADS);
    op->rows = rows;
    op->n_q = n_q;
    op->n_kv = n_kv;
    op->has_q_norm = q_norm != NULL;
    op->has_k_norm = k_norm != NULL;
    op->norms_all = norms_all;
    op->norms_each = norms_each;
    op->v_is_k = n_kv > 0 && how.norms_values && !layer->w[KIN_W_ATTN_V] && !layer->w[KIN_W_ATTN_QKV];
    kin_assert(!op->v_is_k || (k_norm && !norms_all && !norms_each && how.head_dim == how.v_dim));
    op->layer = how;
    op->i_rope = how.rope == KIN_ROPE_NONE ? 0 : how.rope;
    return kin_op_inplace(g, y, args, n_args, &heads_of_rows, op);
}

// ---- attention

// Sources: the heads, K, V (or K again, if values are within keys), and scratch, sinks and chosen positions if there are any.
static kin_attention attention_of(const struct ggml_tensor *out, const struct kin_op *op) {
    const struct ggml_tensor *heads = out->src[0], *k = out->src[1], *v = out->src[2];
    const struct ggml_tensor *partial = op->has_partial ? out->src[3] : NULL;
    const struct ggml_tensor *chosen = op->has_chosen ? out->src[3 + op->has_partial + op->has_sinks] : NULL;
    const bool by_block = kin_layer_chooses_blocks(&op->layer), by_group = kin_layer_chooses_groups(&op->layer);
    return (kin_attention){
        .kv = kin_layer_kv(&op->layer, (int)k->type),
        .k = k->data,
        .v = v->data,
        .n_head = op->layer.n_head,
        .scale = op->layer.attn_scale,
        .softcap = op->layer.softcap,
        .sinks = op->has_sinks ? out->src[3 + op->has_partial]->data : NULL,
        .n_rows = out->ne[1],
        .q = heads->data,
        .ldq = heads->ne[0],
        .n_cells = op->rows->plain.n_cells,
        .first_cells = op->layer.is_windowed ? op->rows->plain.first_cells : NULL,
        .chosen = chosen && !by_block && !by_group ? chosen->data : NULL,
        .n_chosen = chosen ? op->hp->indexer.n_chosen : 0,
        .chosen_pool = op->layer.n_pool,
        .chosen_blocks = chosen && by_block ? chosen->data : NULL,
        .chosen_step = op->hp->indexer.n_block,
        .chosen_groups = chosen && by_group ? chosen->data : NULL,
        .blocks = op->layer.is_windowed ? op->rows->plain.window_tables : op->rows->plain.tables,
        .out = out->data,
        .ldo = out->ne[0],
        .partial = partial ? partial->data : NULL,
        .partial_bytes = partial ? ggml_nbytes(partial) : 0,
    };
}

// Returns the plan of a node's attention. A thread keeps it from chunk to chunk, because it remembers the last tile.
static kin_attention *planned_attention(const struct ggml_tensor *out, const struct kin_op *op, int n_threads,
                                        const kin_team_chunk *c) {
    _Static_assert(sizeof(kin_attention) <= KIN_TEAM_STATE, "a thread has room for it");
    kin_attention *a = c->state;
    if (!c->is_new) return a;
    *a = attention_of(out, op);
    kin_attention_plan(a, n_threads);
    return a;
}

static int count_tasks(const struct ggml_tensor *out, const struct kin_op *op, int n_threads) {
    kin_attention a = attention_of(out, op);
    return (int)kin_attention_plan(&a, n_threads);
}

// A chunk's result has the layout of its destination: `out`, or the scratch for spans.
static void attend(struct ggml_tensor *out, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    kin_attention *a = planned_attention(out, op, n_threads, c);
    if (c->result && a->n_spans > 1) a->partial = c->result;
    if (c->result && a->n_spans == 1) a->out = c->result;
    op->kernels->attend(a, c->i, c->i + 1);
}

// Only single rows: with more rows the floats that a task writes are not a rectangle.
static size_t attention_bytes(const struct ggml_tensor *out, const struct kin_op *op, int n_threads) {
    kin_attention a = attention_of(out, op);
    if (a.n_rows > 1) return 0;
    kin_attention_plan(&a, n_threads);
    return a.n_spans > 1 ? kin_attention_partial_bytes(&a.kv, a.n_head, a.n_rows, a.n_seen) : ggml_nbytes(out);
}

static kin_op_area attention_area(const struct ggml_tensor *out, const struct kin_op *op, int n_threads, int chunk) {
    kin_attention a = attention_of(out, op);
    kin_attention_plan(&a, n_threads);
    const kin_attention_part p = kin_attention_part_of(&a, chunk);
    return (kin_op_area){(a.n_spans > 1 ? a.partial : a.out) + p.begin, p.ld, p.n_heads, p.width, p.begin, p.ld};
}

static const kin_op_run attention = {
    .count = count_tasks, .compute = attend, .result_bytes = attention_bytes, .area = attention_area};

// Merges the spans that were separate tasks: out->src[0] is the output of attend().
static int count_merged(const struct ggml_tensor *out, const struct kin_op *op, int n_threads) {
    kin_attention a = attention_of(out->src[0], op);
    kin_attention_plan(&a, n_threads);
    return a.n_spans > 1 ? (int)a.n_rows : 0;
}

static void merge_row(struct ggml_tensor *out, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    op->kernels->attend_merge(planned_attention(out->src[0], op, n_threads, c), c->i, c->i + 1);
}

static const kin_op_run merging = {.count = count_merged, .compute = merge_row};

static struct ggml_tensor *partial_of(kin_graph *g, const kin_graph_layer *layer, int n_rows) {
    size_t bytes = 0;
    if (g->partial || n_rows > SPLIT_ROWS || g->n_kv <= KIN_SPAN_CELLS) return g->partial;
    for (int il = 0; il < g->hp->n_layer; il++) {
        const kin_layer how = kin_layer_of(g->hp, il);
        const kin_kv_layout kv = kin_layer_kv(&how, (int)layer->k->type);
        if (!kin_attention_may_split(how.n_head_kv, g->n_threads)) continue;
        const bool chooses = kin_layer_chooses(&how) || kin_layer_chooses_blocks(&how) || kin_layer_chooses_groups(&how);
        const int n_seen = kin_indexer_n_seen(&g->hp->indexer);
        size_t of_layer = kin_attention_partial_bytes(&kv, how.n_head, n_rows, chooses && g->n_kv > n_seen ? n_seen : g->n_kv);
        if (of_layer > bytes) bytes = of_layer;
    }
    if (bytes == 0) return NULL;
    g->partial = ggml_new_tensor_1d(g->ctx, GGML_TYPE_I8, (int64_t)bytes);
    ggml_set_input(g->partial); // is allocated from the start
    return g->partial;
}

struct ggml_tensor *kin_op_attend(kin_graph *g, int il, struct ggml_tensor *heads, struct ggml_tensor *chosen,
                                  kin_graph_rows *rows) {
    const kin_graph_layer *layer = &g->layers[il];
    struct ggml_tensor *partial = partial_of(g, layer, rows->n), *sinks = layer->w[KIN_W_ATTN_SINKS];
    struct ggml_tensor *args[6] = {heads, layer->k, layer->v ? layer->v : layer->k};
    int n_args = 3;
    if (partial) args[n_args++] = partial;
    if (sinks) args[n_args++] = sinks;
    if (chosen) args[n_args++] = chosen;
    struct kin_op *op = kin_op_new(g, KIN_OP_ATTEND);
    op->rows = rows;
    op->layer = kin_layer_of(g->hp, il);
    op->has_partial = partial != NULL;
    op->has_sinks = sinks != NULL;
    op->has_chosen = chosen != NULL;
    struct ggml_tensor *out =
        kin_op_node(g, GGML_TYPE_F32, kin_layer_n_embd_out(&op->layer), rows->n, args, n_args, &attention, op);
    if (!partial) return out;
    struct kin_op *merge = kin_op_new(g, KIN_OP_MERGE);
    merge->rows = rows;
    merge->layer = op->layer;
    merge->has_partial = true;
    merge->has_sinks = op->has_sinks;
    merge->has_chosen = op->has_chosen;
    return kin_op_inplace(g, out, NULL, 0, &merging, merge);
}

// ---- gates

static int count_gated_rows(const struct ggml_tensor *x, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)x->ne[1];
}

// Sources: x, the gate.
static void gate_row(struct ggml_tensor *x, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *gate = x->src[1];
    const kin_layer *how = &op->layer;
    (void)n_threads;
    op->kernels->gate_heads(how->head_gate, how->n_head_gate > 1, how->n_head, how->v_dim,
                            (const float *)gate->data + c->i * gate->ne[0], (float *)x->data + c->i * x->ne[0]);
}

static const kin_op_run gating = {.count = count_gated_rows, .compute = gate_row};

struct ggml_tensor *kin_op_gate_heads(kin_graph *g, int il, struct ggml_tensor *x, struct ggml_tensor *gate) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->layer = kin_layer_of(g->hp, il);
    return kin_op_inplace(g, x, &gate, 1, &gating, op);
}
