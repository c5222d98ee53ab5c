// Feed-forward blocks with experts, by kin's kernels.
//
// A batch's pairs of (token, expert) are sorted by expert; a pair's place in that order is its slot. So an expert's weights are
// read once for all its tokens. A token's sum over its experts follows the router's order.
//
// If there is no room in memory for all experts of a batch, they are computed in groups: the nodes from the first product to the
// last one are computed for one group, then again for the next. Each writes the rows of its own experts, and the sum comes after
// the last group, so groups do not change it.
#include <string.h>

#include "model/kernel/ops_impl.h"

// ---- routing

static int count_tokens(const struct ggml_tensor *routed, const struct kin_op *op, int n_threads) {
    (void)op, (void)n_threads;
    return (int)routed->ne[1];
}

static void route_token(struct ggml_tensor *routed, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *logits = routed->src[0];
    kin_routing routing = op->hp->routing;
    int32_t *chosen = (int32_t *)routed->data + c->i * routed->ne[0];
    float share[KIN_ROUTE_EXPERTS];
    (void)n_threads;
    float *row = (float *)logits->data + c->i * logits->ne[0];
    const float *scale = op->has_expert_scale ? routed->src[1 + op->has_bias[0]]->data : NULL;
    routing.bias = op->has_bias[0] ? routed->src[1]->data : NULL;
    if (op->hp->router_scale != 1) op->kernels->cap(logits->ne[0], op->hp->router_scale, 0, row);
    op->kernels->route(&routing, row, chosen, share);
    for (int i = 0; i < op->hp->n_expert_used && scale; i++) share[i] *= scale[chosen[i]];
    memcpy(chosen + op->hp->n_expert_used, share, (size_t)op->hp->n_expert_used * sizeof *share);
}

static const kin_op_run routes = {.count = count_tokens, .compute = route_token};

struct ggml_tensor *kin_op_route(kin_graph *g, struct ggml_tensor *logits, struct ggml_tensor *choice_bias,
                                 struct ggml_tensor *scale) {
    struct ggml_tensor *args[3] = {logits};
    int n_args = 1;
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->has_bias[0] = choice_bias != NULL;
    op->has_expert_scale = scale != NULL;
    if (choice_bias) args[n_args++] = choice_bias;
    if (scale) args[n_args++] = scale;
    return kin_op_node(g, GGML_TYPE_I32, 2 * g->hp->n_expert_used, logits->ne[1], args, n_args, &routes, op);
}

// Sources: the logits, the tokens, the table. A number that no token or no expert has would be read outside of the weights: it is
// taken as 0.
static void route_by_number(struct ggml_tensor *routed, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *logits = routed->src[0], *table = routed->src[2];
    const int n_used = op->hp->n_expert_used, token = ((const int32_t *)routed->src[1]->data)[c->i];
    const int32_t *of = (const int32_t *)table->data + (token >= 0 && token < table->ne[1] ? token : 0) * table->ne[0];
    int32_t *chosen = (int32_t *)routed->data + c->i * routed->ne[0], given[KIN_ROUTE_EXPERTS];
    kin_routing routing = op->hp->routing;
    float share[KIN_ROUTE_EXPERTS];
    (void)n_threads;
    for (int i = 0; i < n_used; i++) given[i] = of[i] >= 0 && of[i] < op->hp->n_expert ? of[i] : 0;
    routing.given = given;
    op->kernels->route(&routing, (const float *)logits->data + c->i * logits->ne[0], chosen, share);
    memcpy(chosen + n_used, share, (size_t)n_used * sizeof *share);
}

static const kin_op_run routes_by_number = {.count = count_tokens, .compute = route_by_number};

struct ggml_tensor *kin_op_route_tokens(kin_graph *g, struct ggml_tensor *logits, struct ggml_tensor *tokens,
                                        struct ggml_tensor *table) {
    struct ggml_tensor *args[] = {logits, tokens, table};
    kin_assert(g->hp->routing.gating != KIN_GATING_CHOSEN && g->hp->router_scale == 1);
    return kin_op_node(g, GGML_TYPE_I32, 2 * g->hp->n_expert_used, logits->ne[1], args, 3, &routes_by_number,
                       kin_op_new(g, KIN_OP_OTHER));
}

// ---- slots

// A batch's routing as the nodes below read it: begin // i32 [n_expert + 1], the first slot of each expert; n_order, the number
// of experts in this group, and n_left, those in later ones; order // i32 [n_expert], all these in their order of computing; slot
// // i32 [n, n_used], the slot of each pair.
typedef struct slots {
    int32_t *begin, *n_order, *n_left, *order, *slot;
} slots;

static slots slots_of(const struct ggml_tensor *t, const kin_hparams *hp) {
    int32_t *begin = t->data, *n_order = begin + hp->n_expert + 1;
    return (slots){begin, n_order, n_order + 1, n_order + 2, n_order + 2 + hp->n_expert};
}

static int64_t slots_size(const kin_hparams *hp, int64_t n_slots) {
    return 2 * hp->n_expert + 3 + n_slots;
}

// A single row's experts always fit. ggml's threads compute a graph's nodes once.
static bool are_in_groups(const kin_graph *g, int64_t n_rows) {
    return n_rows > 1 && g->experts && g->experts->choose && g->compute && g->compute->team;
}

static size_t row_bytes(kin_act_kind kind, int64_t columns) {
    return kind == KIN_ACT_F32 ? (size_t)columns * sizeof(float) : kin_act_bytes(columns, 1);
}

static int count_one(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    (void)y, (void)op, (void)n_threads;
    return 1;
}

// Experts are computed in ascending order, unless some of them have yet to come.
static void order_experts(const struct kin_op *op, const slots *s, int64_t n_tokens) {
    const kin_expert_source *source = op->graph->experts;
    int n = 0;
    for (int e = 0; e < op->hp->n_expert; e++)
        if (s->begin[e + 1] > s->begin[e]) s->order[n++] = e;
    *s->n_order = n;
    if (source && source->choose)
        *s->n_order = source->choose(source->user, op->il, (int)n_tokens, s->begin, s->order, n, op->in_groups);
    *s->n_left = n - *s->n_order;
}

// implements kin_op_run.again, after the last product of a group
static struct ggml_tensor *begin_group(const struct ggml_tensor *y, const struct kin_op *op) {
    const kin_expert_source *source = op->graph->experts;
    const slots s = slots_of(y->src[0], op->hp);
    const int32_t n = *s.n_left;
    if (!op->from || n == 0) return NULL;
    memmove(s.order, s.order + *s.n_order, (size_t)n * sizeof *s.order);
    *s.n_order = source->choose_next(source->user, op->il, s.order, n);
    *s.n_left = n - *s.n_order;
    return op->from;
}

// Sources: the routing. A single chunk, since these are only a few numbers.
static void count_slots(struct ggml_tensor *counted, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *routed = counted->src[0];
    int n_expert = op->hp->n_expert, n_used = op->hp->n_expert_used;
    slots s = slots_of(counted, op->hp);
    (void)n_threads, (void)c;
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
    order_experts(op, &s, routed->ne[1]);
}

static const kin_op_run slot_counts = {.count = count_one, .compute = count_slots};

struct ggml_tensor *kin_op_slots(kin_graph *g, int il, struct ggml_tensor *routed) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->il = il;
    op->in_groups = are_in_groups(g, routed->ne[1]);
    const int64_t n_slots = routed->ne[1] * g->hp->n_expert_used;
    struct ggml_tensor *counted = kin_op_node(g, GGML_TYPE_I32, slots_size(g->hp, n_slots), 1, &routed, 1, &slot_counts, op);
    ggml_build_forward_expand(g->gf, counted); // before anything that can be computed while experts are read
    return counted;
}

// ---- look-ahead

// Sources: the slots of the layer before, the routing. Writes nothing.
static void expect_experts(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *routed = y->src[1];
    const kin_expert_source *source = op->graph->experts;
    (void)n_threads, (void)c;
    source->expect(source->user, op->il, routed->data, (int)routed->ne[1], (int)routed->ne[0]);
}

static const kin_op_run expectation = {.count = count_one, .compute = expect_experts};

// Nodes that are always computed must not use a rounding that was made for a guess alone.
static void forget_guessed_roundings(kin_graph *g) {
    int n = 0;
    for (int i = 0; i < g->n_rounded; i++) {
        const struct kin_op *op = g->rounded[i].act->extra;
        if (!op->is_guess) g->rounded[n++] = g->rounded[i];
    }
    g->n_rounded = n;
}

void kin_op_expect(kin_graph *g, int il, int first, struct ggml_tensor *slots, struct ggml_tensor *routed) {
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    struct ggml_tensor *y = kin_op_node(g, GGML_TYPE_I32, 1, 1, (struct ggml_tensor *[]){slots, routed}, 2, &expectation, op);
    for (int i = first; i < g->n_ops; i++) g->ops[i].is_guess = true, g->ops[i].il = il;
    forget_guessed_roundings(g);
    ggml_build_forward_expand(g->gf, y);
}

// ---- rows

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
static int count_gathered(const struct ggml_tensor *gathered, const struct kin_op *op, int n_threads) {
    return count_tokens(gathered->src[1], op, n_threads);
}

static void gather_token(struct ggml_tensor *gathered, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *routed = gathered->src[1], *input = gathered->src[2];
    int n_used = op->hp->n_expert_used, columns = kin_hparams_expert_width(op->hp);
    slots s = slots_of(gathered->src[0], op->hp);
    const int32_t *chosen = (const int32_t *)routed->data + c->i * routed->ne[0];
    (void)n_threads;
    for (int j = 0; j < n_used; j++) {
        int32_t begin = s.begin[chosen[j]], end = s.begin[chosen[j] + 1], slot = s.slot[(int64_t)c->i * n_used + j];
        uint8_t *to = (uint8_t *)gathered->data + (size_t)begin * row_bytes(op->kind[0], columns);
        copy_row(op->kind[0], columns, input, routed->ne[1], c->i, to, end - begin, slot - begin);
    }
}

static const kin_op_run gathering = {.count = count_gathered, .compute = gather_token};

// ---- products

// Returns an expert's bias from row `begin` of its weights on.
static const float *bias_of(const struct ggml_tensor *bias, int expert, int64_t begin) {
    return (const float *)bias->data + expert * bias->ne[0] + begin * KIN_PANEL_ROWS;
}

// The division of a node of experts into chunks.
typedef struct expert_chunks {
    int64_t panels; // panels of an expert's matrix
    int64_t step;   // panels of a chunk
    int64_t per_expert;
} expert_chunks;

static expert_chunks cut_experts(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    expert_chunks e = {.panels = kin_op_panels(y->src[2]) / (op->is_stacked ? 2 : 1)};
    e.step = op->gates ? KIN_OP_GATED_PANELS : kin_op_chunk_panels(e.panels * op->hp->n_expert_used, n_threads);
    e.per_expert = (e.panels + e.step - 1) / e.step;
    return e;
}

static int count_expert_chunks(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    return (int)(*slots_of(y->src[0], op->hp).n_order * cut_experts(y, op, n_threads).per_expert);
}

// A chunk: panels of one expert, for the rows of its slots.
typedef struct expert_span {
    int expert;
    int64_t begin, end;   // panels
    int64_t slot, n_rows; // its first slot
} expert_span;

static expert_span expert_span_of(const expert_chunks *e, const slots *s, int64_t chunk) {
    const int expert = s->order[chunk / e->per_expert];
    expert_span x = {.expert = expert, .begin = chunk % e->per_expert * e->step, .slot = s->begin[expert]};
    x.end = x.begin + e->step < e->panels ? x.begin + e->step : e->panels;
    x.n_rows = s->begin[expert + 1] - x.slot;
    return x;
}

// Returns panels of one of an expert's matrices. waits: when they are in memory.
static kin_matrix expert_matrix(const struct kin_op *op, const struct ggml_tensor *w, int matrix, int expert, int64_t begin,
                                int64_t end, bool waits) {
    const kin_expert_source *source = op->graph->experts;
    kin_matrix m = kin_op_matrix(w, expert, begin, end);
    const uint8_t *at = source && source->find ? source->find(source->user, op->il, expert, matrix, waits) : NULL;
    if (at) m.data = at + (size_t)begin * KIN_PANEL_ROWS * w->nb[1];
    return m;
}

static kin_op_area expert_area(const struct ggml_tensor *y, const struct kin_op *op, int n_threads, int chunk) {
    const expert_chunks e = cut_experts(y, op, n_threads);
    const slots s = slots_of(y->src[0], op->hp);
    const expert_span x = expert_span_of(&e, &s, chunk);
    const int64_t width = kin_op_matrix(y->src[2], x.expert, x.begin, x.end).rows;
    return (kin_op_area){(float *)y->data + x.slot * y->ne[0] + x.begin * KIN_PANEL_ROWS, y->ne[0], x.n_rows, width, 0, width};
}

static size_t expert_bytes(const struct ggml_tensor *y, const struct kin_op *op, int n_threads) {
    return (size_t)(cut_experts(y, op, n_threads).step * KIN_PANEL_ROWS * y->ne[1]) * sizeof(float);
}

// Returns the rounded input of a span. With a single token all slots of gate and up share its input.
static const void *input_of(const struct ggml_tensor *y, const struct kin_op *op, const struct ggml_tensor *inputs, int i,
                            int64_t slot) {
    const bool is_shared = (op->gates || op->is_up) && y->ne[1] == op->hp->n_expert_used;
    return (const uint8_t *)inputs->data + (is_shared ? 0 : (size_t)slot * row_bytes(op->kind[i], y->src[2]->ne[0]));
}

// Sources: the slots, the rounded inputs, then gate, up and up's inputs, or up alone, or down, then their biases if there are
// any; of down then what keep_for_groups() adds.
static void multiply_expert(struct ggml_tensor *y, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *w = y->src[2];
    const expert_chunks e = cut_experts(y, op, n_threads);
    const slots s = slots_of(y->src[0], op->hp);
    const expert_span x = expert_span_of(&e, &s, c->i);
    const void *input = input_of(y, op, y->src[1], 0, x.slot), *next = NULL;
    const int matrix = op->gates ? KIN_EXPERT_GATE : op->is_up ? KIN_EXPERT_UP : KIN_EXPERT_DOWN;
    kin_matrix m = expert_matrix(op, w, matrix, x.expert, x.begin, x.end, true);
    float *to = c->result ? c->result : (float *)y->data + x.slot * y->ne[0] + x.begin * KIN_PANEL_ROWS;
    const int64_t ldy = c->result ? m.rows : y->ne[0];
    if (c->next >= 0) {
        const expert_span then = expert_span_of(&e, &s, c->next);
        next = expert_matrix(op, w, matrix, then.expert, then.begin, e.panels, false).data;
    }
    if (op->gates) {
        const int64_t up_at = op->is_stacked ? e.panels : 0;
        kin_op_pair pair = {.gate = m,
                            .up = expert_matrix(op, y->src[3], KIN_EXPERT_UP, x.expert, up_at + x.begin, up_at + x.end, true),
                            .input = {input, input_of(y, op, y->src[4], 1, x.slot)}};
        pair.up.next = next;
        if (op->has_expert_bias) {
            pair.gate_bias = bias_of(y->src[5], x.expert, x.begin);
            pair.up_bias = bias_of(y->src[6], x.expert, x.begin);
        }
        kin_op_multiply_gated(op, &pair, x.n_rows, to, ldy);
    } else {
        m.next = next;
        kin_op_multiply(op, &m, op->kind[0], input, x.n_rows, to, ldy);
        if (op->has_expert_bias) kin_op_add_rows(op, x.n_rows, m.rows, bias_of(y->src[3], x.expert, x.begin), 0, to, ldy);
    }
}

static const kin_op_run expert_products = {.count = count_expert_chunks,
                                           .compute = multiply_expert,
                                           .result_bytes = expert_bytes,
                                           .area = expert_area,
                                           .claims_ahead = true,
                                           .again = begin_group};

// Sources: the slots, the gated values. Each expert's rows are rounded together, in the layout of gather_token().
static int count_experts(const struct ggml_tensor *act, const struct kin_op *op, int n_threads) {
    (void)n_threads;
    return *slots_of(act->src[0], op->hp).n_order;
}

static void round_expert(struct ggml_tensor *act, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *h = act->src[1];
    int64_t columns = h->ne[0], n_blocks = (int64_t)(kin_act_bytes(columns, 1) / sizeof(kin_act));
    slots s = slots_of(act->src[0], op->hp);
    const int64_t end = s.begin[s.order[c->i] + 1];
    (void)n_threads;
    for (int64_t row = s.begin[s.order[c->i]]; row < end; row += KIN_OP_TILE) {
        int64_t rows = kin_op_tile_rows(end, row);
        op->kernels->quantize(op->kind[0], columns, rows, (const float *)h->data + row * columns,
                              (kin_act *)act->data + row * n_blocks, 0, n_blocks * rows);
    }
}

static const kin_op_run expert_rounding = {.count = count_experts, .compute = round_expert};

// Sources: the experts' outputs by slot, the routing, the slots, and x if it is added.
static void add_experts(struct ggml_tensor *out, const struct kin_op *op, int n_threads, const kin_team_chunk *c) {
    const struct ggml_tensor *y = out->src[0], *routed = out->src[1], *x = op->has_residual ? out->src[3] : NULL;
    int64_t n_embd = out->ne[0];
    int n_used = op->hp->n_expert_used;
    slots s = slots_of(out->src[2], op->hp);
    float *to = (float *)out->data + c->i * n_embd;
    const float *share = (const float *)routed->data + c->i * routed->ne[0] + n_used;
    (void)n_threads;
    if (x)
        memcpy(to, (const float *)x->data + c->i * n_embd, (size_t)n_embd * sizeof *to);
    else
        memset(to, 0, (size_t)n_embd * sizeof *to);
    for (int j = 0; j < n_used; j++)
        op->kernels->add_scaled(n_embd, share[j], (const float *)y->data + s.slot[(int64_t)c->i * n_used + j] * n_embd, to);
}

static const kin_op_run expert_sums = {.count = count_tokens, .compute = add_experts};

// The rounded inputs of gate or up: a row per slot, or that of the single token.
static struct ggml_tensor *expert_inputs(kin_graph *g, struct ggml_tensor *counted, struct ggml_tensor *routed,
                                         struct ggml_tensor *normed, kin_act_kind kind) {
    struct ggml_tensor *input = kin_op_rounded(g, normed, kind), *args[] = {counted, routed, input};
    if (normed->ne[1] == 1) return input;
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->kind[0] = kind;
    const int64_t n_slots = normed->ne[1] * g->hp->n_expert_used;
    return kin_op_node(g, GGML_TYPE_I8, (int64_t)row_bytes(kind, normed->ne[0]) * n_slots, 1, args, 3, &gathering, op);
}

// activation(gate x') * up x' for each slot: [n_ff_exp, n_slots]
static struct ggml_tensor *gated_experts(kin_graph *g, int il, const kin_layer *how, struct ggml_tensor *counted,
                                         struct ggml_tensor *routed, struct ggml_tensor *normed) {
    struct ggml_tensor *const *w = g->layers[il].w, *both = w[KIN_W_FFN_GATE_UP_EXPS];
    struct ggml_tensor *gate = both ? both : w[KIN_W_FFN_GATE_EXPS], *up = both ? both : w[KIN_W_FFN_UP_EXPS];
    struct ggml_tensor *gate_bias = w[KIN_W_FFN_GATE_EXPS_BIAS], *up_bias = w[KIN_W_FFN_UP_EXPS_BIAS];
    const kin_act_kind gate_kind = kin_kernel_act_kind((int)gate->type), up_kind = kin_kernel_act_kind((int)up->type);
    kin_assert(!gate_bias == !up_bias);
    struct ggml_tensor *input = expert_inputs(g, counted, routed, normed, gate_kind);
    struct ggml_tensor *up_input = up_kind == gate_kind ? input : expert_inputs(g, counted, routed, normed, up_kind);
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->kind[0] = gate_kind;
    op->kind[1] = up_kind;
    op->gate = how->gate;
    op->gate_limit = how->limit_exps;
    op->gates = true;
    op->il = il;
    op->is_stacked = both != NULL;
    op->has_expert_bias = gate_bias != NULL;
    struct ggml_tensor *args[] = {counted, input, gate, up, up_input, gate_bias, up_bias};
    const int64_t n_ff = both ? gate->ne[1] / 2 : gate->ne[1];
    return kin_op_node(g, GGML_TYPE_F32, n_ff, normed->ne[1] * g->hp->n_expert_used, args, gate_bias ? 7 : 5, &expert_products,
                       op);
}

// max(up x', 0)^2 for each slot: [n_ff_exp, n_slots]
static struct ggml_tensor *ungated_experts(kin_graph *g, int il, struct ggml_tensor *counted, struct ggml_tensor *routed,
                                           struct ggml_tensor *normed) {
    struct ggml_tensor *up = g->layers[il].w[KIN_W_FFN_UP_EXPS];
    const kin_act_kind kind = kin_kernel_act_kind((int)up->type);
    struct ggml_tensor *args[] = {counted, expert_inputs(g, counted, routed, normed, kind), up};
    struct kin_op *op = kin_op_new(g, KIN_OP_OTHER);
    op->kind[0] = kind;
    op->is_up = true;
    op->il = il;
    const int64_t n_slots = normed->ne[1] * g->hp->n_expert_used;
    return kin_op_square_relu(g, kin_op_node(g, GGML_TYPE_F32, up->ne[1], n_slots, args, 3, &expert_products, op));
}

// Each group runs all nodes from the first product to the last again. So the allocator must keep the first product's inputs and
// result until the last group is done: they become sources of the last node too, and the first product becomes its `from`.
// product // [n_ff_exp, n_slots]. Returns the number of sources.
static int keep_for_groups(struct kin_op *op, struct ggml_tensor *product, struct ggml_tensor **args, int n_args) {
    op->from = product->view_src ? product->view_src : product;
    args[n_args++] = product;
    args[n_args++] = op->from->src[1];
    if (((const struct kin_op *)op->from->extra)->gates) args[n_args++] = op->from->src[4];
    return n_args;
}

struct ggml_tensor *kin_op_experts(kin_graph *g, int il, const kin_layer *how, struct ggml_tensor *x, struct ggml_tensor *normed,
                                   struct ggml_tensor *routed, struct ggml_tensor *counted) {
    struct ggml_tensor *const *w = g->layers[il].w, *down = w[KIN_W_FFN_DOWN_EXPS], *down_bias = w[KIN_W_FFN_DOWN_EXPS_BIAS];
    const kin_act_kind kind = kin_kernel_act_kind((int)down->type);
    const int64_t n = normed->ne[1], n_embd = normed->ne[0], n_slots = n * g->hp->n_expert_used;

    struct kin_op *op;
    const bool is_gated = w[KIN_W_FFN_GATE_EXPS] || w[KIN_W_FFN_GATE_UP_EXPS];
    struct ggml_tensor *product = is_gated ? gated_experts(g, il, how, counted, routed, normed)
                                           : ungated_experts(g, il, counted, routed, normed); // [n_ff_exp, n_slots]
    struct ggml_tensor *h = product;
    if (kind != KIN_ACT_F32) {
        op = kin_op_new(g, KIN_OP_OTHER);
        op->kind[0] = kind;
        h = kin_op_node(g, GGML_TYPE_I8, (int64_t)row_bytes(kind, h->ne[0]) * n_slots, 1, (struct ggml_tensor *[]){counted, h}, 2,
                        &expert_rounding, op);
    }
    op = kin_op_new(g, KIN_OP_OTHER);
    op->kind[0] = kind;
    op->il = il;
    op->has_expert_bias = down_bias != NULL;
    struct ggml_tensor *args[KIN_OP_ARGS] = {counted, h, down, down_bias};
    int n_args = down_bias ? 4 : 3;
    if (are_in_groups(g, n)) n_args = keep_for_groups(op, product, args, n_args);
    struct ggml_tensor *y =
        kin_op_node(g, GGML_TYPE_F32, n_embd, n_slots, args, n_args, &expert_products, op); // [n_embd, n_slots]
    op = kin_op_new(g, KIN_OP_OTHER);
    op->has_residual = x != NULL;
    return kin_op_node(g, GGML_TYPE_F32, n_embd, n, (struct ggml_tensor *[]){y, routed, counted, x}, x ? 4 : 3, &expert_sums, op);
}
