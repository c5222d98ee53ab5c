#include "ggml.h"

#include <stdlib.h>
#include <string.h>

#include "ggml_impl.h"

static const char weights[] = ""; // only its address is used

// clang-format off
static const struct ggml_type_traits traits[GGML_TYPE_COUNT] = {
    [0] = {"f32", 1, 4, false, NULL},      [1] = {"f16", 1, 2, false, weights},      [2] = {"q4_0", 32, 18, true, weights},
    [3] = {"q4_1", 32, 20, true, weights},     [6] = {"q5_0", 32, 22, true, weights},    [7] = {"q5_1", 32, 24, true, weights},
    [8] = {"q8_0", 32, 34, true, weights},     [9] = {"q8_1", 32, 36, true, NULL},   [10] = {"q2_K", 256, 84, true, weights},
    [11] = {"q3_K", 256, 110, true, weights},  [12] = {"q4_K", 256, 144, true, weights}, [13] = {"q5_K", 256, 176, true, weights},
    [14] = {"q6_K", 256, 210, true, weights},  [15] = {"q8_K", 256, 292, true, NULL}, [16] = {"iq2_xxs", 256, 66, true, weights},
    [17] = {"iq2_xs", 256, 74, true, weights}, [18] = {"iq3_xxs", 256, 98, true, weights}, [19] = {"iq1_s", 256, 50, true, weights},
    [20] = {"iq4_nl", 32, 18, true, weights},  [21] = {"iq3_s", 256, 110, true, weights}, [22] = {"iq2_s", 256, 82, true, weights},
    [23] = {"iq4_xs", 256, 136, true, weights}, [24] = {"i8", 1, 1, false, NULL},    [25] = {"i16", 1, 2, false, NULL},
    [26] = {"i32", 1, 4, false, NULL},     [27] = {"i64", 1, 8, false, NULL},    [28] = {"f64", 1, 8, false, NULL},
    [29] = {"iq1_m", 256, 56, true, weights},  [30] = {"bf16", 1, 2, false, weights},    [34] = {"tq1_0", 256, 54, true, weights},
    [35] = {"tq2_0", 256, 66, true, weights},  [39] = {"mxfp4", 32, 17, true, weights},  [40] = {"nvfp4", 64, 36, true, weights},
    [41] = {"q1_0", 128, 18, true, weights},   [42] = {"q2_0", 64, 18, true, weights},
};
// clang-format on

const struct ggml_type_traits *ggml_get_type_traits(enum ggml_type type) {
    return &traits[type];
}

const char *ggml_type_name(enum ggml_type type) {
    return traits[type].type_name;
}

int64_t ggml_blck_size(enum ggml_type type) {
    return traits[type].blck_size;
}

bool ggml_is_quantized(enum ggml_type type) {
    return traits[type].is_quantized;
}

size_t ggml_row_size(enum ggml_type type, int64_t ne) {
    return (size_t)(ne / traits[type].blck_size) * traits[type].type_size;
}

size_t ggml_nbytes(const struct ggml_tensor *t) { // all are contiguous, except views of rows
    return (size_t)(t->ne[3] - 1) * t->nb[3] + (size_t)(t->ne[2] - 1) * t->nb[2] + (size_t)(t->ne[1] - 1) * t->nb[1] +
           ggml_row_size(t->type, t->ne[0]);
}

const char *ggml_op_desc(const struct ggml_tensor *t) {
    static const char *const names[] = {"none", "view", "custom"};
    return names[t->op];
}

// ---- contexts: arenas for tensor descriptions

struct ggml_context {
    unsigned char *memory;
    size_t size, used;
    bool own;
    struct ggml_tensor *first, *last;
};

struct ggml_context *ggml_init(struct ggml_init_params params) {
    struct ggml_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx) return NULL;
    ctx->size = params.mem_size;
    ctx->own = !params.mem_buffer;
    ctx->memory = params.mem_buffer ? params.mem_buffer : malloc(params.mem_size);
    if (ctx->memory) return ctx;
    free(ctx);
    return NULL;
}

void ggml_free(struct ggml_context *ctx) {
    if (!ctx) return;
    if (ctx->own) free(ctx->memory);
    free(ctx);
}

static void *allocate(struct ggml_context *ctx, size_t n) {
    n = (n + 15) / 16 * 16;
    if (n > ctx->size - ctx->used) abort(); // the caller's estimate was too small
    void *at = ctx->memory + ctx->used;
    ctx->used += n;
    return memset(at, 0, n);
}

size_t ggml_tensor_overhead(void) {
    return (sizeof(struct ggml_tensor) + 15) / 16 * 16;
}

struct ggml_tensor *ggml_get_first_tensor(const struct ggml_context *ctx) {
    return ctx->first;
}

struct ggml_tensor *ggml_get_next_tensor(const struct ggml_context *ctx, struct ggml_tensor *tensor) {
    (void)ctx;
    return tensor->next;
}

// ---- tensors

static struct ggml_tensor *new_tensor(struct ggml_context *ctx, enum ggml_type type, const int64_t ne[4]) {
    struct ggml_tensor *t = allocate(ctx, sizeof *t);
    t->type = type;
    t->name = "";
    memcpy(t->ne, ne, sizeof t->ne);
    t->nb[0] = traits[type].type_size;
    t->nb[1] = ggml_row_size(type, ne[0]);
    for (int i = 2; i < 4; i++) t->nb[i] = t->nb[i - 1] * (size_t)ne[i - 1];
    if (ctx->last)
        ctx->last->next = t;
    else
        ctx->first = t;
    ctx->last = t;
    return t;
}

struct ggml_tensor *ggml_new_tensor_1d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0) {
    return new_tensor(ctx, type, (const int64_t[]){ne0, 1, 1, 1});
}

struct ggml_tensor *ggml_new_tensor_2d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1) {
    return new_tensor(ctx, type, (const int64_t[]){ne0, ne1, 1, 1});
}

struct ggml_tensor *ggml_new_tensor_3d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2) {
    return new_tensor(ctx, type, (const int64_t[]){ne0, ne1, ne2, 1});
}

void ggml_set_input(struct ggml_tensor *t) {
    t->is_input = true;
}

void ggml_set_output(struct ggml_tensor *t) {
    t->is_output = true;
}

// ---- nodes

static struct ggml_tensor *node(struct ggml_context *ctx, enum ggml_op op, enum ggml_type type, const int64_t ne[4],
                                struct ggml_tensor *const *args, int n_args) {
    struct ggml_tensor *t = new_tensor(ctx, type, ne);
    t->op = op;
    for (int i = 0; i < n_args; i++) t->src[i] = args[i];
    return t;
}

static struct ggml_tensor *make_view(struct ggml_tensor *t, struct ggml_tensor *of, size_t offset) {
    t->view_src = of->view_src ? of->view_src : of;
    t->view_offs = of->view_offs + offset;
    return t;
}

struct ggml_tensor *ggml_view_2d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, size_t nb1,
                                 size_t offset) {
    struct ggml_tensor *t = node(ctx, GGML_OP_VIEW, a->type, (const int64_t[]){ne0, ne1, 1, 1}, &a, 1);
    t->nb[1] = nb1;
    t->nb[2] = t->nb[3] = nb1 * (size_t)ne1;
    return make_view(t, a, offset);
}

struct ggml_tensor *ggml_custom_4d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2,
                                   int64_t ne3, struct ggml_tensor **args, int n_args, ggml_custom_op_t fun, int n_tasks,
                                   void *userdata) {
    (void)n_tasks;
    struct ggml_tensor *t = node(ctx, GGML_OP_CUSTOM, type, (const int64_t[]){ne0, ne1, ne2, ne3}, args, n_args);
    t->fun = fun;
    t->userdata = userdata;
    return t;
}

struct ggml_tensor *ggml_custom_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor **args, int n_args,
                                        ggml_custom_op_t fun, int n_tasks, void *userdata) {
    (void)n_tasks;
    struct ggml_tensor *t = node(ctx, GGML_OP_CUSTOM, a->type, a->ne, &a, 1);
    for (int i = 0; i < n_args; i++) t->src[i + 1] = args[i];
    t->fun = fun;
    t->userdata = userdata;
    return make_view(t, a, 0);
}

struct ggml_tensor *ggml_absent(const char *op, ...) {
    (void)op;
    abort();
}

// ---- graphs

struct ggml_cgraph *ggml_new_graph_custom(struct ggml_context *ctx, size_t n_nodes, bool grads) {
    (void)grads;
    struct ggml_cgraph *graph = allocate(ctx, sizeof *graph + n_nodes * sizeof *graph->nodes);
    graph->most = (int)n_nodes;
    return graph;
}

size_t ggml_graph_overhead_custom(size_t n_nodes, bool grads) {
    (void)grads;
    return (sizeof(struct ggml_cgraph) + n_nodes * sizeof(struct ggml_tensor *) + 15) / 16 * 16;
}

// Adds a tensor's sources before the tensor. The recursion is at most as deep as the window has nodes.
void ggml_build_forward_expand(struct ggml_cgraph *graph, struct ggml_tensor *t) {
    if (t->in_graph) return;
    t->in_graph = true;
    for (int i = 0; i < GGML_MAX_SRC; i++)
        if (t->src[i]) ggml_build_forward_expand(graph, t->src[i]);
    if (t->op == GGML_OP_NONE) return;
    if (graph->n == graph->most) abort();
    graph->nodes[graph->n++] = t;
}

int ggml_graph_n_nodes(struct ggml_cgraph *graph) {
    return graph->n;
}

struct ggml_tensor **ggml_graph_nodes(struct ggml_cgraph *graph) {
    return graph->nodes;
}

struct ggml_tensor *ggml_graph_node(struct ggml_cgraph *graph, int i) {
    return graph->nodes[i];
}
