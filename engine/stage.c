#include "engine/stage.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/kernel/ops.h"
#include "sys/team/team.h"
#include "sys/team/width.h"

enum { WIDTHS = 16 }; // classes of graphs by their number of tokens: 1, 2 to 3, 4 to 7, ...

struct kin_stage {
    const kin_device *device;
    kin_graph proto;
    kin_stage_build build;
    const void *user;

    size_t n_nodes;
    void *meta; // memory for the graph's metadata
    size_t meta_bytes;
    ggml_gallocr_t galloc;
    bool borrows_galloc;

    // The current graph, valid if ctx is not NULL.
    kin_stage_shape shape;
    kin_graph g;
    struct ggml_tensor *x, *y;

    float yarn_factors[KIN_ROPES][KIN_ROPE_PAIRS]; // kin_graph.yarn_factors
    kin_width widths[WIDTHS];                      // the number of threads for each class of graphs
};

// galloc: of another stage; NULL: one of its own.
static int open_stage(kin_stage **out, const kin_device *device, const kin_graph *proto, size_t n_nodes, kin_stage_build build,
                      const void *user, ggml_gallocr_t galloc, kin_err *err) {
    *out = NULL;
    kin_stage *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->device = device;
    s->proto = *proto;
    s->build = build;
    s->user = user;
    s->n_nodes = n_nodes;
    s->galloc = galloc ? galloc : ggml_gallocr_new(device->buft);
    s->borrows_galloc = galloc;
    s->proto.compute = &device->compute;
    s->proto.max_ops = s->proto.kernels || s->proto.sums ? (int)n_nodes : 0;
    s->meta_bytes = n_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_nodes, false);
    s->meta = malloc(s->meta_bytes);
    s->proto.ops = calloc((size_t)s->proto.max_ops + 1, kin_op_bytes());
    if (!s->meta || !s->galloc || !s->proto.ops) {
        kin_stage_close(s);
        return kin_err_set(err, "out of memory");
    }
    *out = s;
    return 0;
}

int kin_stage_open(kin_stage **out, const kin_device *device, const kin_graph *proto, size_t n_nodes, kin_stage_build build,
                   const void *user, kin_err *err) {
    return open_stage(out, device, proto, n_nodes, build, user, NULL, err);
}

int kin_stage_open_beside(kin_stage **out, kin_stage *other, size_t n_nodes, kin_err *err) {
    return open_stage(out, other->device, &other->proto, n_nodes, other->build, other->user, other->galloc, err);
}

static void drop_graph(kin_stage *s) {
    if (s->g.ctx) ggml_free(s->g.ctx);
    s->g = s->proto;
}

void kin_stage_close(kin_stage *s) {
    if (!s) return;
    if (s->g.ctx) ggml_free(s->g.ctx);
    if (s->galloc && !s->borrows_galloc) ggml_gallocr_free(s->galloc);
    free(s->proto.ops);
    free(s->meta);
    free(s);
}

static struct ggml_tensor *input(kin_graph *g, enum ggml_type type, int64_t ne0, int64_t ne1) {
    struct ggml_tensor *t = ggml_new_tensor_2d(g->ctx, type, ne0, ne1);
    ggml_set_input(t);
    return t;
}

static kin_graph_rows input_rows(kin_graph *g, int n) {
    kin_graph_rows rows = {.n = n};
    rows.pos = input(g, GGML_TYPE_I32, n, 1);
    rows.mask = input(g, GGML_TYPE_F16, g->n_kv, n);
    if (g->hp->window > 0) rows.window_mask = input(g, GGML_TYPE_F16, g->n_kv, n);
    return rows;
}

// ggml rounds the corners of YaRN. If the family does not, frequency factors replace YaRN.
static void input_yarn(kin_stage *s) {
    const kin_hparams *hp = s->g.hp;
    for (int i = 0; i < KIN_ROPES; i++) {
        if (hp->ropes[i].ext_factor == 0 || !hp->ropes[i].exact_corners) continue;
        kin_rope_factors(&hp->ropes[i], s->yarn_factors[i]);
        s->g.yarn_factors[i] = input(&s->g, GGML_TYPE_F32, hp->ropes[i].n_rot / 2, 1);
    }
}

static int build_graph(kin_stage *s, kin_stage_shape shape, kin_err *err) {
    drop_graph(s);
    kin_graph *g = &s->g;
    struct ggml_init_params params = {.mem_size = s->meta_bytes, .mem_buffer = s->meta, .no_alloc = true};
    g->ctx = ggml_init(params);
    if (!g->ctx) return kin_err_set(err, "out of memory");
    g->gf = ggml_new_graph_custom(g->ctx, s->n_nodes, false);
    g->n_kv = shape.n_kv;
    s->shape = shape;
    const int width = kin_hparams_stream_width(g->hp);
    s->x = input(g, GGML_TYPE_F32, shape.n_x ? shape.n_x : width, shape.n_tokens);
    if (shape.is_half) g->residual = input(g, GGML_TYPE_F32, width, shape.n_tokens);
    if (g->hp->n_input > 0) g->inputs = input(g, GGML_TYPE_F32, (int64_t)g->hp->n_input * g->hp->n_layer, shape.n_tokens);
    if (kin_hparams_token_layers(g->hp) > 0) g->tokens = input(g, GGML_TYPE_I32, 1, shape.n_tokens);
    if (g->hp->ngram.size > 0)
        g->ngrams = input(g, GGML_TYPE_F32, (int64_t)kin_ngram_n_rows(&g->hp->ngram) * g->hp->ngram.dim, shape.n_tokens);
    if (shape.n_kv > 0) {
        g->cells = input(g, GGML_TYPE_I64, shape.n_tokens, 1);
        g->all = input_rows(g, shape.n_tokens);
    }
    if (shape.n_out < shape.n_tokens) {
        g->out_rows = input(g, GGML_TYPE_I32, shape.n_out, 1);
        g->out = input_rows(g, shape.n_out);
    }
    if (shape.n_kv > 0 && !g->kernels) input_yarn(s);
    s->y = s->build(s->user, g, s->x, shape.variant);
    ggml_set_output(s->y);
    ggml_build_forward_expand(g->gf, s->y);
    return 0;
}

static bool is_cache(const kin_graph *g, const struct ggml_tensor *t) {
    for (int il = 0; g->layers && il < g->hp->n_layer; il++)
        if (t == g->layers[il].k || t == g->layers[il].v || t == g->layers[il].index) return true;
    return false;
}

// Returns the bytes of the weights that the graph reads.
static size_t weight_bytes(const kin_graph *g) {
    size_t bytes = 0;
    for (int i = 0; i < ggml_graph_n_nodes(g->gf); i++) {
        const struct ggml_tensor *node = ggml_graph_node(g->gf, i);
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            const struct ggml_tensor *src = node->src[k];
            if (src && src->op == GGML_OP_NONE && src->data && !is_cache(g, src)) bytes += ggml_nbytes(src);
        }
    }
    return bytes;
}

// Gives each node memory of its own if that pays and the compute buffer is large enough, which it is for a few rows. It pays for
// graphs that take longer than a millisecond; the built-in model's graphs take 0.1 ms, and bookkeeping for chunks that are
// computed again would cost a quarter of that. The allocator reuses its last plan for a graph whose tensors fit in there, so it
// must plan again.
static bool allocate(kin_stage *s) {
    enum { ALIGNMENT = 64, LEAST_WEIGHTS = 64 << 20 };
    const int n_nodes = ggml_graph_n_nodes(s->g.gf);
    size_t bytes = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(s->g.ctx); t; t = ggml_get_next_tensor(s->g.ctx, t)) {
        if (!t->view_src) bytes += (ggml_nbytes(t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    const bool pays = s->g.compute->repeats_small || weight_bytes(&s->g) >= LEAST_WEIGHTS;
    s->g.keeps_all = s->g.compute->team && pays && bytes <= ggml_gallocr_get_buffer_size(s->galloc, 0);
    for (int i = 0; s->g.keeps_all && i < n_nodes; i++) ggml_set_output(ggml_graph_node(s->g.gf, i));
    if (s->g.keeps_all && !ggml_gallocr_reserve(s->galloc, s->g.gf)) return false;
    return ggml_gallocr_alloc_graph(s->galloc, s->g.gf);
}

static int check_supported(const kin_stage *s, kin_err *err) {
    for (int i = 0; i < ggml_graph_n_nodes(s->g.gf); i++) {
        const struct ggml_tensor *node = ggml_graph_node(s->g.gf, i);
        if (ggml_backend_supports_op(s->device->backend, node)) continue;
        return kin_err_set(err, "%s cannot compute %s with weights of type %s ('%s')", s->device->name, ggml_op_desc(node),
                           node->src[0] ? ggml_type_name(node->src[0]->type) : "none", node->src[0] ? node->src[0]->name : "");
    }
    return 0;
}

int kin_stage_reserve(kin_stage *s, kin_stage_shape largest, kin_err *err) {
    if (build_graph(s, largest, err) != 0 || check_supported(s, err) != 0) return KIN_FAIL;
    bool ok = ggml_gallocr_reserve(s->galloc, s->g.gf);
    drop_graph(s);
    return ok ? 0 : kin_err_set(err, "%s has no memory for the compute buffer", s->device->name);
}

static bool same_shape(kin_stage_shape a, kin_stage_shape b) {
    return a.variant == b.variant && a.n_x == b.n_x && a.is_half == b.is_half && a.n_tokens == b.n_tokens && a.n_kv == b.n_kv &&
           a.n_out == b.n_out;
}

// An input that no node reads has no memory, so there is nothing to write.
static void set_input(struct ggml_tensor *t, const void *data) {
    if (t && t->buffer) ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t));
}

static kin_width *width_of(kin_stage *s) {
    int i = 0;
    for (int n = s->shape.n_tokens; n > 1 && i < WIDTHS - 1; n /= 2) i++;
    return &s->widths[i];
}

// Computes the graph with as many threads as help. In a group most of the time may be other devices', so all threads compute.
static enum ggml_status compute(kin_stage *s) {
    const kin_team *team = s->g.compute->team;
    if (!team || s->g.sums) return kin_ops_compute(&s->g, s->device->backend);
    const int most = kin_team_size(team);
    kin_width *w = width_of(s);
    const kin_time begun = kin_clock_now();
    s->g.active_threads = kin_width_next(w, most, begun);
    enum ggml_status status = kin_ops_compute(&s->g, s->device->backend);
    const kin_time ended = kin_clock_now();
    if (status == GGML_STATUS_SUCCESS) kin_width_add(w, most, ended - begun, ended);
    return status;
}

int kin_stage_run(kin_stage *s, kin_stage_shape shape, const kin_stage_inputs *in, void *y, kin_err *err) {
    if (!s->g.ctx || !same_shape(s->shape, shape)) {
        if (build_graph(s, shape, err) != 0) return KIN_FAIL;
        if (!allocate(s)) {
            drop_graph(s);
            return kin_err_set(err, "%s has no memory for the compute buffer", s->device->name);
        }
    }
    set_input(s->x, in->x);
    set_input(s->g.residual, in->residual);
    set_input(s->g.inputs, in->inputs);
    set_input(s->g.tokens, in->tokens);
    set_input(s->g.ngrams, in->ngrams);
    set_input(s->g.cells, in->cells);
    set_input(s->g.all.pos, in->pos);
    set_input(s->g.all.mask, in->mask);
    set_input(s->g.all.window_mask, in->window_mask);
    set_input(s->g.out_rows, in->out_rows);
    set_input(s->g.out.pos, in->out_pos);
    set_input(s->g.out.mask, in->out_mask);
    set_input(s->g.out.window_mask, in->out_window_mask);
    for (int i = 0; i < KIN_ROPES; i++) set_input(s->g.yarn_factors[i], s->yarn_factors[i]);

    s->g.all.plain = in->all;
    s->g.out.plain = in->out;

    if (s->g.sums) s->g.sums->failed = false;
    enum ggml_status status = compute(s);
    if (status == GGML_STATUS_ABORTED) return kin_err_set(err, "stopped");
    if (status != GGML_STATUS_SUCCESS)
        return kin_err_set(err, "%s failed to compute: %s", s->device->name, ggml_status_to_string(status));
    if (s->g.sums && s->g.sums->failed) {
        *err = s->g.sums->err;
        return KIN_FAIL;
    }
    ggml_backend_tensor_get(s->y, y, 0, ggml_nbytes(s->y));
    return 0;
}

void kin_stage_forget(kin_stage *s) {
    if (s) drop_graph(s);
}

uint64_t kin_stage_bytes(const kin_stage *s) {
    return ggml_gallocr_get_buffer_size(s->galloc, 0);
}
