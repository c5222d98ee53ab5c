#include "web/engine/gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch.h"
#include "model/kernel/ops_impl.h"
#include "web/engine/threads.h"
#include "web/ggml/ggml_impl.h"
#include "web/host.h"

enum { MOST_TRANSFERS = 16, COMMAND_WORDS = 64 };

// Kernels, their flags, and limits: must match web/gpu_kernels.js.
enum { NORM, ROUND, PRODUCT, HEADS, STORE, ATTEND, ROWS };
enum { HAS_BIAS = 1, HAS_RESIDUAL = 2, IS_UP = 4, HAS_Q_NORM = 1, HAS_K_NORM = 2 };
enum { TILE = 8, HEAD_DIM_MOST = 256 };

// One dispatch. x, y and residual are offsets in the arena; stores, n_cells and tables are offsets in the list of numbers; all in
// words of 4 bytes.
typedef struct command {
    uint32_t kernel, type, w, w2, k, v, groups[2];
    uint32_t columns, n_rows, x, y, ldx, ldy, n_out, flags;
    uint32_t residual, ldr;
    float number;
    uint32_t n_head, n_head_kv, head_dim, n_rot, neox;
    uint32_t n_q, stores, n_cells, tables;
    uint32_t unused[COMMAND_WORDS - 28];
} command;
_Static_assert(sizeof(command) == 4 * COMMAND_WORDS, "a uniform buffer's offsets are multiples of 256");

// Offsets in the list of numbers of the data for a batch's rows.
typedef struct rows_at {
    const kin_graph_rows *rows;
    uint32_t stores, n_stores, n_cells, tables;
} rows_at;

static struct {
    bool is_on;
    command *commands;
    int n_commands, max_commands;
    int32_t *numbers;
    uint32_t n_numbers, max_numbers;
    rows_at rows[2]; // of a graph: all rows of the batch, and those with wanted output
    int n_rows;
    kin_gpu_transfer up[MOST_TRANSFERS], down;
    int n_up;
    uint8_t *arena;
} gpu;

bool kin_gpu_is_on(void) {
    return gpu.is_on;
}

void kin_gpu_set(bool on) {
    if (gpu.is_on) kin_host_gpu_clear();
    gpu.is_on = on;
}

static const struct kin_op *op_of(const struct ggml_tensor *node) {
    return node->op == GGML_OP_CUSTOM ? node->userdata : NULL;
}

bool kin_gpu_is_here(const struct ggml_tensor *node) {
    const struct kin_op *op = op_of(node);
    return gpu.is_on && op && op->code == KIN_OP_COS_SIN;
}

static void refuse(const char *sentence) {
    kin_host_gpu_refuse(sentence, strlen(sentence));
}

void kin_gpu_check(const kin_hparams *hp) {
    if (!hp->arch->is_like_llama) refuse("this family's layers are not computed there");
    if (!kin_hparams_is_uniform(hp)) refuse("layers that differ in width are not computed there");
    if (hp->n_expert > 0) refuse("a mixture of experts is not computed there");
    if (hp->head_dim > HEAD_DIM_MOST) refuse("heads of more than 256 dimensions are not computed there");
}

void kin_gpu_put(struct ggml_tensor *t, const void *bytes) {
    if (!bytes && t->type != GGML_TYPE_F16) refuse("a KV cache of Q8_0 is not computed there");
    if (kin_ops_is_packed(t) && t->ne[1] % KIN_PANEL_ROWS != 0) refuse("matrices of this number of rows are not computed there");
    t->data = (void *)(uintptr_t)kin_host_gpu_put((int)t->type, bytes, ggml_nbytes(t));
    t->buffer = (ggml_backend_buffer_t)&gpu; // marker for kin_gpu_has
}

bool kin_gpu_has(const struct ggml_tensor *t) {
    return t->buffer == (ggml_backend_buffer_t)&gpu;
}

// ---- growing lists that keep their memory

static void *grown(void *at, size_t n, size_t size) {
    void *larger = realloc(at, n * size);
    kin_assert(larger); // a few KiB
    return larger;
}

static command *add(int kernel, int64_t groups_x, int64_t groups_y) {
    if (gpu.n_commands == gpu.max_commands)
        gpu.commands = grown(gpu.commands, (size_t)(gpu.max_commands = 2 * gpu.max_commands + 256), sizeof *gpu.commands);
    command *c = &gpu.commands[gpu.n_commands++];
    *c = (command){.kernel = (uint32_t)kernel, .groups = {(uint32_t)groups_x, (uint32_t)groups_y}};
    return c;
}

static uint32_t add_number(int32_t number) {
    if (gpu.n_numbers == gpu.max_numbers)
        gpu.numbers = grown(gpu.numbers, (size_t)(gpu.max_numbers = 2 * gpu.max_numbers + 1024), sizeof *gpu.numbers);
    gpu.numbers[gpu.n_numbers] = number;
    return gpu.n_numbers++;
}

static uint32_t word_of(const struct ggml_tensor *t) {
    return (uint32_t)((const uint8_t *)t->data - gpu.arena) / 4;
}

static kin_gpu_transfer transfer_of(const struct ggml_tensor *t) {
    return (kin_gpu_transfer){(uint32_t)((const uint8_t *)t->data - gpu.arena), (uint32_t)(ggml_nbytes(t) + 3) / 4 * 4};
}

static void send(const struct ggml_tensor *t) {
    kin_gpu_transfer one = transfer_of(t);
    for (int i = 0; i < gpu.n_up; i++)
        if (gpu.up[i].at == one.at) return;
    kin_assert(gpu.n_up < MOST_TRANSFERS);
    gpu.up[gpu.n_up++] = one;
}

static uint32_t buffer_of(const struct ggml_tensor *t) {
    return (uint32_t)(uintptr_t)t->data;
}

// ---- rows

// Appends the rows and cells to which keys and values of a batch are written.
static void add_stores(rows_at *at, const kin_rows *p, int n) {
    at->stores = gpu.n_numbers;
    for (int i = 0; p->cells && i < n; i++) {
        add_number(i);
        add_number(p->cells[i]);
    }
    for (int i = 0; i < p->n_copies; i++) {
        add_number(p->copies[i].row);
        add_number(p->copies[i].cell);
    }
    at->n_stores = (gpu.n_numbers - at->stores) / 2;
}

// Appends the offset of the block table of each row's sequence; rows of a sequence share it.
static void add_tables(rows_at *at, const kin_rows *p, int n) {
    at->tables = gpu.n_numbers;
    for (int i = 0; i < n; i++) add_number(0);
    for (int i = 0; i < n; i++) {
        int before = i - 1, n_cells = 0;
        while (before >= 0 && p->tables[before] != p->tables[i]) before--;
        gpu.numbers[at->tables + (uint32_t)i] = before >= 0 ? gpu.numbers[at->tables + (uint32_t)before] : (int32_t)gpu.n_numbers;
        if (before >= 0) continue;
        for (int k = i; k < n; k++)
            if (p->tables[k] == p->tables[i] && p->n_cells[k] > n_cells) n_cells = p->n_cells[k];
        for (int k = 0; k < (n_cells + KIN_KV_CELLS - 1) / KIN_KV_CELLS; k++) add_number(p->tables[i][k]);
    }
}

static const rows_at *rows_of(const kin_graph_rows *rows) {
    for (int i = 0; i < gpu.n_rows; i++)
        if (gpu.rows[i].rows == rows) return &gpu.rows[i];
    kin_assert(gpu.n_rows < 2);
    rows_at *at = &gpu.rows[gpu.n_rows++];
    at->rows = rows;
    add_stores(at, &rows->plain, rows->n);
    at->n_cells = gpu.n_numbers;
    for (int i = 0; i < rows->n; i++) add_number(rows->plain.n_cells[i]);
    add_tables(at, &rows->plain, rows->n);
    return at;
}

// ---- nodes

static void add_norm(const struct ggml_tensor *y, const struct kin_op *op) {
    command *c = add(NORM, y->ne[1], 1);
    c->w = buffer_of(y->src[1]);
    c->columns = (uint32_t)y->ne[0];
    c->x = word_of(y->src[0]);
    c->y = word_of(y);
    c->number = op->hp->rms_eps;
}

static void add_round(const struct ggml_tensor *y, const struct kin_op *op) {
    const struct ggml_tensor *x = y->src[0];
    command *c = add(ROUND, (x->ne[0] + KIN_ACT_COLUMNS - 1) / KIN_ACT_COLUMNS, x->ne[1]);
    c->flags = op->kind[0] == KIN_ACT_256;
    c->columns = (uint32_t)x->ne[0];
    c->x = word_of(x);
    c->y = word_of(y);
}

static command *add_product(const struct ggml_tensor *w, const struct ggml_tensor *input, const struct ggml_tensor *y,
                            int64_t column) {
    int64_t n = y->ne[1];
    command *c = add(PRODUCT, kin_op_panels(w), n > 1 ? (n + TILE - 1) / TILE : 1);
    c->type = (uint32_t)w->type;
    c->w = buffer_of(w);
    c->columns = (uint32_t)w->ne[0];
    c->n_rows = (uint32_t)n;
    c->x = word_of(input);
    c->y = word_of(y) + (uint32_t)column;
    c->ldy = (uint32_t)y->ne[0];
    c->n_out = (uint32_t)w->ne[1];
    return c;
}

static void add_linear(const struct ggml_tensor *y, const struct kin_op *op) {
    int at = 0;
    int64_t column = 0;
    for (int i = 0; i < op->n_weights; i++) {
        const struct ggml_tensor *w = y->src[at];
        command *c = add_product(w, y->src[at + 1], y, column);
        if (op->has_bias[i]) {
            c->flags |= HAS_BIAS;
            c->w2 = buffer_of(y->src[at + 2]);
        }
        at += 2 + op->has_bias[i];
        column += w->ne[1];
        if (i > 0 || !op->has_residual) continue;
        const struct ggml_tensor *residual = y->src[2 + op->has_bias[0]];
        c->flags |= HAS_RESIDUAL;
        c->residual = word_of(residual);
        c->ldr = (uint32_t)residual->ne[0];
    }
}

static void add_gated(const struct ggml_tensor *y) {
    add_product(y->src[0], y->src[2], y, 0);
    add_product(y->src[1], y->src[3], y, 0)->flags = IS_UP;
}

static void add_heads(const struct ggml_tensor *y, const struct kin_op *op) {
    const rows_at *rows = rows_of(op->rows);
    int64_t head_dim = op->hp->head_dim;
    command *c = add(HEADS, op->n_q + op->n_kv, y->ne[1]);
    if (op->has_q_norm) c->w = buffer_of(y->src[4]);
    if (op->has_k_norm) c->w2 = buffer_of(y->src[4 + op->has_q_norm]);
    c->flags = (op->has_q_norm ? HAS_Q_NORM : 0) | (op->has_k_norm ? HAS_K_NORM : 0);
    c->x = word_of(y->src[1]);
    c->ldx = (uint32_t)y->src[1]->ne[0];
    c->y = word_of(y);
    c->ldy = (uint32_t)y->ne[0];
    c->number = op->hp->rms_eps;
    c->n_q = (uint32_t)op->n_q;
    c->head_dim = (uint32_t)head_dim;
    c->n_rot = (uint32_t)op->hp->ropes[0].n_rot;
    c->neox = op->hp->rope_neox;
    if (!op->n_kv) return;
    c = add(STORE, op->n_kv, rows->n_stores);
    c->k = buffer_of(y->src[2]);
    c->v = buffer_of(y->src[3]);
    c->x = word_of(y) + (uint32_t)(op->n_q * head_dim);
    c->ldx = (uint32_t)y->ne[0];
    c->head_dim = (uint32_t)head_dim;
    c->n_head_kv = (uint32_t)op->n_kv;
    c->stores = rows->stores;
}

static void add_attend(const struct ggml_tensor *y, const struct kin_op *op) {
    const rows_at *rows = rows_of(op->rows);
    command *c = add(ATTEND, op->hp->n_head, y->ne[1]);
    c->k = buffer_of(y->src[1]);
    c->v = buffer_of(y->src[2]);
    c->x = word_of(y->src[0]);
    c->ldx = (uint32_t)y->src[0]->ne[0];
    c->y = word_of(y);
    c->ldy = (uint32_t)y->ne[0];
    c->number = 1.0f / sqrtf((float)op->hp->head_dim);
    c->n_head = (uint32_t)op->hp->n_head;
    c->n_head_kv = (uint32_t)op->hp->n_head_kv;
    c->head_dim = (uint32_t)op->hp->head_dim;
    c->n_cells = rows->n_cells;
    c->tables = rows->tables;
}

static void add_rows(const struct ggml_tensor *y) {
    command *c = add(ROWS, y->ne[1], 1);
    c->columns = (uint32_t)y->ne[0];
    c->x = word_of(y->src[0]);
    c->residual = word_of(y->src[1]); // their numbers
    c->y = word_of(y);
}

static void add_op(struct ggml_tensor *node, const struct kin_op *op) {
    switch (op->code) {
    case KIN_OP_NORM: add_norm(node, op); break;
    case KIN_OP_ROUND: add_round(node, op); break;
    case KIN_OP_LINEAR: add_linear(node, op); break;
    case KIN_OP_GATED: add_gated(node); break;
    case KIN_OP_HEADS: add_heads(node, op); break;
    case KIN_OP_ATTEND: add_attend(node, op); break;
    case KIN_OP_MERGE: break; // attention is computed as a whole
    case KIN_OP_ROWS: add_rows(node); break;
    case KIN_OP_COS_SIN:
        kin_ops_run(op->graph, kin_web_team(), &node, 1);
        send(node);
        break;
    case KIN_OP_OTHER: kin_assert(false); // experts are refused, and a tab belongs to no group
    }
}

static void add_node(struct ggml_tensor *node) {
    const struct kin_op *op = op_of(node);
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        const struct ggml_tensor *src = node->src[i];
        if (src && src->is_input && src->type != GGML_TYPE_I8) send(src); // I8: scratch memory
    }
    if (op) add_op(node, op);
    if (node->is_output) gpu.down = transfer_of(node);
}

void kin_gpu_compute(struct ggml_cgraph *graph, uint8_t *arena, size_t n) {
    gpu.n_commands = gpu.n_rows = gpu.n_up = 0;
    gpu.n_numbers = 0;
    gpu.down = (kin_gpu_transfer){0};
    gpu.arena = arena;
    for (int i = 0; i < graph->n; i++) add_node(graph->nodes[i]);
    kin_assert(gpu.down.n > 0); // every graph has an output
    kin_host_gpu_run(&(kin_gpu_job){.commands = gpu.commands,
                                    .numbers = gpu.numbers,
                                    .arena = arena,
                                    .up = gpu.up,
                                    .n_commands = (uint32_t)gpu.n_commands,
                                    .n_numbers = gpu.n_numbers,
                                    .n_arena = (uint32_t)n,
                                    .n_up = (uint32_t)gpu.n_up,
                                    .down = gpu.down});
}
