// Feed-forward blocks with experts, by kin's kernels.
//
// A batch's pairs of (token, expert) are sorted by expert; a pair's place in that order is its slot. So an expert's weights are
// read once for all its tokens. A token's sum over its experts follows the router's order.
#include <string.h>

#include "model/kernel_ops_impl.h"

// ---- routing

static void run_route(struct ggml_tensor *routed, struct kin_op *op, int n_threads) {
    const struct ggml_tensor *logits = routed->src[0];
    kin_routing routing = op->hp->routing;
    routing.bias = op->has_bias[0] ? routed->src[1]->data : NULL;
    for (int i; kin_op_take(op, n_threads, (int)routed->ne[1], &i);) {
        int32_t *chosen = (int32_t *)routed->data + i * routed->ne[0];
        float share[KIN_ROUTE_EXPERTS];
        op->kernels->route(&routing, (const float *)logits->data + i * logits->ne[0], chosen, share);
        memcpy(chosen + op->hp->n_expert_used, share, (size_t)op->hp->n_expert_used * sizeof *share);
    }
}

struct ggml_tensor *kin_op_route(kin_graph *g, struct ggml_tensor *logits, struct ggml_tensor *choice_bias) {
    struct ggml_tensor *args[] = {logits, choice_bias};
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->has_bias[0] = choice_bias != NULL;
    return kin_op_node(g, GGML_TYPE_I32, 2 * g->hp->n_expert_used, logits->ne[1], args, choice_bias ? 2 : 1, run_route, op);
}

// ---- slots

// A batch's routing as the nodes below read it: begin // i32 [n_expert + 1], the first slot of each expert; slot // i32 [n,
// n_used], the slot of each pair.
typedef struct slots {
    int32_t *begin, *slot;
} slots;

static slots slots_of(const struct ggml_tensor *t, const kin_hparams *hp) {
    int32_t *begin = t->data;
    return (slots){begin, begin + hp->n_expert + 1};
}

static size_t row_bytes(kin_act_kind kind, int64_t columns) {
    return kind == KIN_ACT_F32 ? (size_t)columns * sizeof(float) : kin_act_bytes(columns, 1);
}

// Sources: the routing. Uses a single thread, since these are only a few numbers.
static void run_count(struct ggml_tensor *counted, struct kin_op *op, int n_threads) {
    const struct ggml_tensor *routed = counted->src[0];
    int n_expert = op->hp->n_expert, n_used = op->hp->n_expert_used;
    slots s = slots_of(counted, op->hp);
    for (int i; kin_op_take(op, n_threads, 1, &i);) {
        memset(s.begin, 0, (size_t)(n_expert + 1) * sizeof *s.begin);
        for (int64_t row = 0; row < routed->ne[1]; row++) {
            const int32_t *chosen = (const int32_t *)routed->data + row * routed->ne[0];
            for (int j = 0; j < n_used; j++) s.slot[row * n_used + j] = s.begin[chosen[j] + 1]++; // its number within the expert
        }
        for (int e = 0; e < n_expert; e++) s.begin[e + 1] += s.begin[e];
        for (int64_t row = 0; row < routed->ne[1]; row++) {
            const int32_t *chosen = (const int32_t *)routed->data + row * routed->ne[0];
            for (int j = 0; j < n_used; j++) s.slot[row * n_used + j] += s.begin[chosen[j]];
        }
    }
}

// Finds row `row` of n rounded rows, in tiles: block b is at at[b * *step].
static kin_act *find_row(kin_act *act, int64_t n_blocks, int64_t n, int64_t row, int64_t *step) {
    int64_t tile = row / KIN_OP_TILE * KIN_OP_TILE;
    *step = kin_op_tile_rows(n, tile);
    return act + tile * n_blocks + row - tile;
}

static void copy_row(kin_act_kind kind, int64_t columns, const struct ggml_tensor *input, int64_t n, int64_t row, uint8_t *to,
                     int64_t n_to, int64_t row_to) {
    size_t bytes = row_bytes(kind, columns);
    if (kind == KIN_ACT_F32) {
        memcpy(to + (size_t)row_to * bytes, (const uint8_t *)input->data + (size_t)row * bytes, bytes);
        return;
    }
    int64_t n_blocks = (int64_t)(bytes / sizeof(kin_act)), step, step_to;
    const kin_act *a = find_row(input->data, n_blocks, n, row, &step);
    kin_act *b = find_row((kin_act *)to, n_blocks, n_to, row_to, &step_to);
    for (int64_t i = 0; i < n_blocks; i++) b[i * step_to] = a[i * step];
}

// Sources: the slots, the routing, the rounded input. Writes a row per slot; each expert's rows are laid out as if rounded
// together.
static void run_gather(struct ggml_tensor *gathered, struct kin_op *op, int n_threads) {
    const struct ggml_tensor *routed = gathered->src[1], *input = gathered->src[2];
    int n_used = op->hp->n_expert_used, columns = op->hp->n_embd;
    slots s = slots_of(gathered->src[0], op->hp);
    for (int i; kin_op_take(op, n_threads, (int)routed->ne[1], &i);) {
        const int32_t *chosen = (const int32_t *)routed->data + i * routed->ne[0];
        for (int j = 0; j < n_used; j++) {
            int32_t begin = s.begin[chosen[j]], end = s.begin[chosen[j] + 1], slot = s.slot[(int64_t)i * n_used + j];
            uint8_t *to = (uint8_t *)gathered->data + (size_t)begin * row_bytes(op->kind[0], columns);
            copy_row(op->kind[0], columns, input, routed->ne[1], i, to, end - begin, slot - begin);
        }
    }
}

// ---- products

// Walks the chunks of all experts that have slots, in order; a thread's chunks are in ascending order.
typedef struct cursor {
    int expert;
    int64_t first; // the expert's first chunk
} cursor;

static int64_t n_chunks(const int32_t *begin, int n_expert, int64_t per_expert) {
    int64_t n = 0;
    for (int e = 0; e < n_expert; e++) n += begin[e + 1] > begin[e] ? per_expert : 0;
    return n;
}

static void advance(cursor *c, const int32_t *begin, int64_t per_expert, int64_t chunk) {
    for (;; c->expert++) {
        bool has = begin[c->expert + 1] > begin[c->expert];
        if (has && chunk < c->first + per_expert) return;
        if (has) c->first += per_expert;
    }
}

// Returns an expert's bias from row `begin` of its weights on.
static const float *bias_of(const struct ggml_tensor *bias, int expert, int64_t begin) {
    return (const float *)bias->data + expert * bias->ne[0] + begin * KIN_PANEL_ROWS;
}

// Sources: the slots, the rounded inputs, then gate and up, or down, then their biases if there are any. With a single token all
// slots share its input.
static void run_experts(struct ggml_tensor *y, struct kin_op *op, int n_threads, bool gated) {
    const kin_hparams *hp = op->hp;
    const struct ggml_tensor *w = y->src[2];
    size_t input_bytes = gated && y->ne[1] == hp->n_expert_used ? 0 : row_bytes(op->kind[0], w->ne[0]);
    int64_t panels = kin_op_panels(w);
    int64_t step = gated ? KIN_OP_GATED_PANELS : kin_op_chunk_panels(panels * hp->n_expert_used, n_threads);
    int64_t per_expert = (panels + step - 1) / step;
    slots s = slots_of(y->src[0], hp);
    cursor at = {0, 0}, ahead = {0, 0};
    int n = (int)n_chunks(s.begin, hp->n_expert, per_expert);
    for (kin_op_chunk c = {0}; kin_op_take_ahead(op, n_threads, n, &c);) {
        advance(&at, s.begin, per_expert, c.i);
        int64_t begin = (c.i - at.first) * step, end = begin + step < panels ? begin + step : panels;
        int64_t slot = s.begin[at.expert], rows = s.begin[at.expert + 1] - slot;
        const void *input = (const uint8_t *)y->src[1]->data + (size_t)slot * input_bytes;
        float *to = (float *)y->data + slot * y->ne[0] + begin * KIN_PANEL_ROWS;
        kin_matrix m = kin_op_matrix(w, at.expert, begin, end), next = {0};
        if (c.has_next) {
            advance(&ahead, s.begin, per_expert, c.next);
            next = kin_op_matrix(w, ahead.expert, (c.next - ahead.first) * step, panels);
        }
        if (gated) {
            kin_op_pair pair = {.gate = m, .up = kin_op_matrix(y->src[3], at.expert, begin, end)};
            pair.up.next = next.data;
            if (op->has_expert_bias) {
                pair.gate_bias = bias_of(y->src[4], at.expert, begin);
                pair.up_bias = bias_of(y->src[5], at.expert, begin);
            }
            kin_op_multiply_gated(op, &pair, op->kind[0], input, rows, to, y->ne[0]);
        } else {
            m.next = next.data;
            kin_op_multiply(op, &m, op->kind[0], input, rows, to, y->ne[0]);
            if (op->has_expert_bias) kin_op_add_rows(op, rows, m.rows, bias_of(y->src[3], at.expert, begin), 0, to, y->ne[0]);
        }
    }
}

static void run_gated_experts(struct ggml_tensor *y, struct kin_op *op, int n_threads) {
    run_experts(y, op, n_threads, true);
}

static void run_down_experts(struct ggml_tensor *y, struct kin_op *op, int n_threads) {
    run_experts(y, op, n_threads, false);
}

// Sources: the slots, the gated values. Each expert's rows are rounded together, in the layout of run_gather.
static void run_round_experts(struct ggml_tensor *act, struct kin_op *op, int n_threads) {
    const struct ggml_tensor *h = act->src[1];
    int64_t columns = h->ne[0], n_blocks = (int64_t)(kin_act_bytes(columns, 1) / sizeof(kin_act));
    slots s = slots_of(act->src[0], op->hp);
    for (int e; kin_op_take(op, n_threads, op->hp->n_expert, &e);) {
        for (int64_t row = s.begin[e]; row < s.begin[e + 1]; row += KIN_OP_TILE) {
            int64_t rows = kin_op_tile_rows(s.begin[e + 1], row);
            op->kernels->quantize(op->kind[0], columns, rows, (const float *)h->data + row * columns,
                                  (kin_act *)act->data + row * n_blocks, 0, n_blocks * rows);
        }
    }
}

// Sources: the experts' outputs by slot, the routing, the slots, and x if it is added.
static void run_sum(struct ggml_tensor *out, struct kin_op *op, int n_threads) {
    const struct ggml_tensor *y = out->src[0], *routed = out->src[1], *x = op->has_residual ? out->src[3] : NULL;
    int64_t n_embd = out->ne[0];
    int n_used = op->hp->n_expert_used;
    slots s = slots_of(out->src[2], op->hp);
    for (int i; kin_op_take(op, n_threads, (int)out->ne[1], &i);) {
        float *to = (float *)out->data + i * n_embd;
        const float *share = (const float *)routed->data + i * routed->ne[0] + n_used;
        if (x)
            memcpy(to, (const float *)x->data + i * n_embd, (size_t)n_embd * sizeof *to);
        else
            memset(to, 0, (size_t)n_embd * sizeof *to);
        for (int j = 0; j < n_used; j++)
            op->kernels->add_scaled(n_embd, share[j], (const float *)y->data + s.slot[(int64_t)i * n_used + j] * n_embd, to);
    }
}

struct ggml_tensor *kin_op_experts(kin_graph *g, kin_gate how, struct ggml_tensor *x, struct ggml_tensor *normed,
                                   struct ggml_tensor *routed, struct ggml_tensor *const *w) {
    struct ggml_tensor *gate = w[KIN_W_FFN_GATE_EXPS], *up = w[KIN_W_FFN_UP_EXPS], *down = w[KIN_W_FFN_DOWN_EXPS];
    struct ggml_tensor *gate_bias = w[KIN_W_FFN_GATE_EXPS_BIAS], *up_bias = w[KIN_W_FFN_UP_EXPS_BIAS],
                       *down_bias = w[KIN_W_FFN_DOWN_EXPS_BIAS];
    kin_act_kind kind = kin_kernel_act_kind((int)gate->type), down_kind = kin_kernel_act_kind((int)down->type);
    int64_t n = normed->ne[1], n_embd = normed->ne[0], n_slots = n * g->hp->n_expert_used;
    kin_assert(kind == kin_kernel_act_kind((int)up->type) && !gate_bias == !up_bias);

    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    struct ggml_tensor *counted = kin_op_node(g, GGML_TYPE_I32, g->hp->n_expert + 1 + n_slots, 1, &routed, 1, run_count, op);
    struct ggml_tensor *input = kin_op_rounded(g, normed, kind);
    if (n > 1) {
        op = kin_op_new(g, KIN_OP_OTHER);
        op->kind[0] = kind;
        input = kin_op_node(g, GGML_TYPE_I8, (int64_t)row_bytes(kind, normed->ne[0]) * n_slots, 1,
                            (struct ggml_tensor *[]){counted, routed, input}, 3, run_gather, op);
    }
    op = kin_op_new(g, KIN_OP_OTHER);
    op->kind[0] = kind;
    op->gate = how;
    op->has_expert_bias = gate_bias != NULL;
    struct ggml_tensor *gated[] = {counted, input, gate, up, gate_bias, up_bias};
    struct ggml_tensor *h = kin_op_node(g, GGML_TYPE_F32, gate->ne[1], n_slots, gated, gate_bias ? 6 : 4, run_gated_experts,
                                        op); // [n_ff_exp, n_slots]
    if (down_kind != KIN_ACT_F32) {
        op = kin_op_new(g, KIN_OP_OTHER);
        op->kind[0] = down_kind;
        h = kin_op_node(g, GGML_TYPE_I8, (int64_t)row_bytes(down_kind, h->ne[0]) * n_slots, 1,
                        (struct ggml_tensor *[]){counted, h}, 2, run_round_experts, op);
    }
    op = kin_op_new(g, KIN_OP_OTHER);
    op->kind[0] = down_kind;
    op->has_expert_bias = down_bias != NULL;
    struct ggml_tensor *y = kin_op_node(g, GGML_TYPE_F32, n_embd, n_slots, (struct ggml_tensor *[]){counted, h, down, down_bias},
                                        down_bias ? 4 : 3, run_down_experts, op); // [n_embd, n_slots]
    op = kin_op_new(g, KIN_OP_OTHER);
    op->has_residual = x != NULL;
    return kin_op_node(g, GGML_TYPE_F32, n_embd, n, (struct ggml_tensor *[]){y, routed, counted, x}, x ? 4 : 3, run_sum, op);
}
