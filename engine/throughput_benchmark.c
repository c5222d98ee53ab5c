#include "engine/throughput_benchmark.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "model/arch.h"
#include "model/blocks.h"
#include "model/kernel/ops.h"
#include "sys/pages.h"

enum {
    WIDTH = 2048, // of the imitated layers
    WIDTH_KV = 512,
    WIDTH_FF = 8192,
    HEAD_DIM = 64,
    BATCH = 128,       // tokens of a prompt
    N_CELLS = 1024,    // of a sequence: with 4096 a processor cache of low associativity serves it at only two thirds of the rate
    DEEP_CELLS = 4096, // of a sequence for kin's kernels, whose KV cache is in blocks
    MAX_MATRICES = 512,
    MAX_CACHES = 128,
    CACHE_ALIGN = 64,      // of kin's kernels
    N_INPUTS = 4,          // of products, at most: two inputs, and each rounded
    N_SMALL = 400,         // small operations in a row
    RUN_BYTES = 128 << 20, // maximum bytes of weights or caches per run
    MOVE_ALIGN = 64 << 10, // alignment of a run's place: like weight blocks in memory
    N_STEPS = 4 + 2 * KIN_N_QUANT + KIN_FACTS_BATCHES + KIN_FACTS_CACHED,
    MAX_KEPT = 8 * N_STEPS, // buffers: each step needs a few
};

// The matrices of a layer, [in, out].
static const int64_t shapes[][2] = {
    {WIDTH, WIDTH}, {WIDTH, WIDTH_KV}, {WIDTH, WIDTH_KV}, {WIDTH, WIDTH}, {WIDTH, WIDTH_FF}, {WIDTH, WIDTH_FF}, {WIDTH_FF, WIDTH},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static const double SLOW_LAYER_S = 0.02;

static const enum ggml_type types[KIN_N_QUANT] = {
    [KIN_QUANT_F32] = GGML_TYPE_F32,   [KIN_QUANT_F16] = GGML_TYPE_F16,      [KIN_QUANT_BF16] = GGML_TYPE_BF16,
    [KIN_QUANT_Q8_0] = GGML_TYPE_Q8_0, [KIN_QUANT_Q6_K] = GGML_TYPE_Q6_K,    [KIN_QUANT_Q5_K] = GGML_TYPE_Q5_K,
    [KIN_QUANT_Q4_K] = GGML_TYPE_Q4_K, [KIN_QUANT_Q4_0] = GGML_TYPE_Q4_0,    [KIN_QUANT_Q3_K] = GGML_TYPE_Q3_K,
    [KIN_QUANT_Q2_K] = GGML_TYPE_Q2_K, [KIN_QUANT_OTHER] = GGML_TYPE_IQ4_XS,
};

struct kin_throughput_benchmark {
    const kin_device *device;
    // The same memory as two buffers: weights in the packed layout, and everything else.
    ggml_backend_buffer_t packed, plain;
    uint64_t bytes;
    // Compute buffers of finished graphs. With Mesa's software Vulkan (22.3, ggml 0.27) a buffer freed between two graphs is
    // accessed once more, which crashes the process.
    ggml_gallocr_t kept[MAX_KEPT];
    int n_kept;
    // For kin's kernels: caches, and a batch of one sequence in which every token attends to all cells.
    kin_graph_layer layers[N_SMALL];
    int32_t zeros[BATCH], n_cells[BATCH], table[DEEP_CELLS / KIN_KV_CELLS];
    const int32_t *tables[BATCH];
};

// The shape of the imitated layers.
static const kin_hparams shape = {
    .arch = &kin_arch_llama,
    .n_embd = WIDTH,
    .n_head = WIDTH / HEAD_DIM,
    .n_head_kv = WIDTH_KV / HEAD_DIM,
    .head_dim = HEAD_DIM,
    .rms_eps = 1e-5f,
    .ropes = {{.n_rot = HEAD_DIM, .base = 1e4, .freq_scale = 1, .attn_factor = 1}},
    .residual_scale = 1,
};

static void fill_batch(kin_throughput_benchmark *r) {
    for (int i = 0; i < DEEP_CELLS / KIN_KV_CELLS; i++) r->table[i] = i;
    for (int i = 0; i < BATCH; i++) r->tables[i] = r->table;
}

int kin_throughput_benchmark_open(kin_throughput_benchmark **out, const kin_device *device, uint64_t bytes, kin_err *err) {
    *out = NULL;
    kin_throughput_benchmark *r = calloc(1, sizeof *r);
    if (!r) return kin_err_set(err, "out of memory");
    r->device = device;
    r->bytes = bytes;
    fill_batch(r);
    if (device->repack_buft) {
        r->packed = ggml_backend_buft_alloc_buffer(device->repack_buft, bytes);
        if (r->packed) r->plain = ggml_backend_cpu_buffer_from_ptr(ggml_backend_buffer_get_base(r->packed), bytes);
    } else {
        r->plain = ggml_backend_buft_alloc_buffer(device->buft, bytes);
    }
    if (!r->plain) {
        kin_throughput_benchmark_close(r);
        return kin_err_set(err, "out of memory: %llu bytes on %s", (unsigned long long)bytes, device->name);
    }
    // Packed weights are in huge pages if the file system has them (engine/weights/place.c).
    if (ggml_backend_buffer_is_host(r->plain)) kin_pages_advise_huge(ggml_backend_buffer_get_base(r->plain), bytes);
    ggml_backend_buffer_clear(r->plain, 0); // allocates real pages: untouched ones all map to the same zero page
    *out = r;
    return 0;
}

void kin_throughput_benchmark_close(kin_throughput_benchmark *r) {
    if (!r) return;
    for (int i = 0; i < r->n_kept; i++) ggml_gallocr_free(r->kept[i]);
    if (r->plain) ggml_backend_buffer_free(r->plain);
    if (r->packed) ggml_backend_buffer_free(r->packed);
    free(r);
}

// ---- graphs

static int open_benchmark(const kin_throughput_benchmark *r, kin_micro_benchmark *g, size_t n_nodes, int n_tokens, kin_err *err) {
    if (kin_micro_benchmark_init(g, r->device, n_nodes, err) != 0) return KIN_FAIL;
    g->graph.hp = &shape;
    g->graph.layers = r->layers;
    g->graph.all = (kin_graph_rows){.n = n_tokens,
                                    .plain = {.pos = r->zeros, .cells = r->zeros, .n_cells = r->n_cells, .tables = r->tables}};
    return 0;
}

static struct ggml_tensor *input(kin_micro_benchmark *g, enum ggml_type type, int64_t n0, int64_t n1) {
    struct ggml_tensor *t = ggml_new_tensor_2d(g->graph.ctx, type, n0, n1);
    ggml_set_input(t);
    return t;
}

static void close_benchmark(kin_throughput_benchmark *r, kin_micro_benchmark *g) {
    if (r->n_kept < MAX_KEPT) {
        r->kept[r->n_kept++] = g->galloc;
        g->galloc = NULL;
    }
    kin_micro_benchmark_fini(g);
}

// Measures the seconds of a run; 0 if the device does not support the operations.
static int time_and_close(kin_throughput_benchmark *r, kin_micro_benchmark *g, const kin_benchmark_options *p, double *seconds,
                          kin_err *err) {
    int rc = 0;
    *seconds = 0;
    if (ggml_graph_n_nodes(g->graph.gf) > 0 && kin_micro_benchmark_possible(g)) {
        rc = kin_micro_benchmark_ready(g, err);
        if (rc == 0) rc = kin_micro_benchmark_time(g, p, seconds, err);
    }
    close_benchmark(r, g);
    return rc;
}

// Places tensors one after the other from the store's beginning, in `most` bytes.
typedef struct place {
    kin_throughput_benchmark *rates;
    uint64_t used, most;
} place;

static place whole_store(kin_throughput_benchmark *r) {
    return (place){.rates = r, .most = r->bytes};
}

static place one_run(kin_throughput_benchmark *r) {
    return (place){.rates = r, .most = r->bytes < RUN_BYTES ? r->bytes : RUN_BYTES};
}

// Makes each run use another part of the store. A processor's cache retains some of the data read in turn even if more than its
// size is read in between: 128 MB read repeatedly were 5 to 9 % faster than 384 MB, 512 MB no slower (Zen 5, a cache of 32 MB).
// On a GPU tensors stay in place, because the driver may prepare a graph again when tensors move.
static void move_each_run(const place *at, kin_micro_benchmark *g) {
    uint64_t bytes = (at->used + MOVE_ALIGN - 1) / MOVE_ALIGN * MOVE_ALIGN;
    if (at->used == 0 || at->rates->device->is_gpu) return;
    g->moved[0] = at->rates->packed;
    g->moved[1] = at->rates->plain;
    g->move_bytes = bytes;
    g->n_places = 1 + (int)((at->rates->bytes - at->used) / bytes);
}

// Puts a tensor into the store. Returns false if there is no room.
static bool put_tensor(place *at, struct ggml_tensor *t, bool packed) {
    ggml_backend_buffer_t buffer = packed ? at->rates->packed : at->rates->plain;
    size_t align = ggml_backend_buffer_get_alignment(buffer), bytes = ggml_backend_buffer_get_alloc_size(buffer, t);
    if (align < CACHE_ALIGN) align = CACHE_ALIGN;
    uint64_t begin = (at->used + align - 1) / align * align;
    if (begin + bytes > at->most) return false;
    at->used = begin + bytes;
    return ggml_backend_tensor_alloc(buffer, t, (uint8_t *)ggml_backend_buffer_get_base(buffer) + begin) == GGML_STATUS_SUCCESS;
}

static bool add_product(place *at, kin_micro_benchmark *g, enum ggml_type type, const int64_t ne[2], struct ggml_tensor *x) {
    struct ggml_tensor *w = ggml_new_tensor_2d(g->graph.ctx, type, ne[0], ne[1]);
    kin_layout layout = kin_device_layout(g->device, type, (int64_t[3]){ne[0], ne[1], 1});
    if (layout == KIN_LAYOUT_PANELS) kin_ops_mark_packed(w);
    if (!put_tensor(at, w, layout == KIN_LAYOUT_REPACK)) return false;
    ggml_build_forward_expand(g->graph.gf, kin_block_output(&g->graph, w, x)); // [out, n]
    return true;
}

// Adds the keys and values of a layer for this many cells.
static bool add_cache(place *at, kin_micro_benchmark *g, int il, int n_cells) {
    kin_graph_layer *layer = &at->rates->layers[il];
    layer->k = ggml_new_tensor_2d(g->graph.ctx, GGML_TYPE_F16, WIDTH_KV, n_cells);
    layer->v = ggml_new_tensor_2d(g->graph.ctx, GGML_TYPE_F16, WIDTH_KV, n_cells);
    return put_tensor(at, layer->k, false) && put_tensor(at, layer->v, false);
}

// ---- matrix products

typedef struct products {
    int n;
    double bytes, flops, seconds; // in total; seconds 0: the device cannot multiply this type
} products;

// Adds matrices of one layer after the other while there is room, at most `most`. A single one would stay in the processor's
// cache.
static void add_products(kin_throughput_benchmark *r, kin_micro_benchmark *g, enum ggml_type type, int n_tokens, int most,
                         products *sum) {
    place at = one_run(r);
    struct ggml_tensor *narrow = input(g, GGML_TYPE_F32, WIDTH, n_tokens), *wide = input(g, GGML_TYPE_F32, WIDTH_FF, n_tokens);
    bool fits = true;
    while (fits && sum->n < most) {
        fits = false;
        for (int i = 0; i < N_SHAPES && sum->n < most; i++) {
            if (!add_product(&at, g, type, shapes[i], shapes[i][0] == WIDTH ? narrow : wide)) continue;
            fits = true;
            sum->n++;
            sum->flops += 2.0 * (double)(shapes[i][0] * shapes[i][1]) * n_tokens;
        }
    }
    sum->bytes = (double)at.used;
    if (most > 1) move_each_run(&at, g);
}

static int measure_products(kin_throughput_benchmark *r, enum ggml_type type, int n_tokens, int most,
                            const kin_benchmark_options *p, products *out, kin_err *err) {
    kin_micro_benchmark g;
    *out = (products){0};
    if (open_benchmark(r, &g, (size_t)most + N_INPUTS, n_tokens, err) != 0) return KIN_FAIL;
    add_products(r, &g, type, n_tokens, most, out);
    return time_and_close(r, &g, p, &out->seconds, err);
}

// The fixed cost of an operation is subtracted, since it is measured separately.
static int measure_token(kin_throughput_benchmark *r, kin_quant q, const kin_benchmark_options *p, kin_engine_facts *f,
                         kin_err *err) {
    products all = {0};
    // A GPU has no large cache. A slow one, such as a software device, would take minutes for the whole store.
    if (r->device->is_gpu && measure_products(r, types[q], 1, N_SHAPES, p, &all, err) != 0) return KIN_FAIL;
    if (all.seconds < SLOW_LAYER_S && measure_products(r, types[q], 1, MAX_MATRICES, p, &all, err) != 0) return KIN_FAIL;
    if (all.seconds > 0) f->token_bytes_s[q] = all.bytes / fmax(all.seconds - all.n * f->op_s, all.seconds / 2);
    return 0;
}

// A single matrix suffices: this is limited by the processor, not by the memory.
static int measure_prompt(kin_throughput_benchmark *r, kin_quant q, const kin_benchmark_options *p, kin_engine_facts *f,
                          kin_err *err) {
    products one;
    if (measure_products(r, types[q], BATCH, 1, p, &one, err) != 0) return KIN_FAIL;
    if (one.seconds > 0) f->prompt_flop_s[q] = one.flops / one.seconds;
    return 0;
}

// Three types, of which two are multiplied while they are unpacked (kernels/simd/fused.c); the median of the supported ones is
// used for all other types (docs/PROFILE.md).
static const kin_quant chosen[] = {KIN_QUANT_Q4_K, KIN_QUANT_Q6_K, KIN_QUANT_Q8_0};
enum { N_CHOSEN = sizeof chosen / sizeof *chosen };

// One layer's matrices suffice for 32 rows; fewer rows need proportionally more.
static int measure_batch(kin_throughput_benchmark *r, int i, const kin_benchmark_options *p, kin_engine_facts *f, kin_err *err) {
    enum { MOST_ROWS = 2 << (KIN_FACTS_BATCHES - 1) };
    double factors[N_CHOSEN];
    int n = 0, n_rows = 2 << i, n_layers = r->device->is_gpu ? 1 : MOST_ROWS / n_rows;
    for (int k = 0; k < N_CHOSEN; k++) {
        products all;
        kin_quant q = chosen[k];
        if (f->token_bytes_s[q] <= 0 || f->prompt_flop_s[q] <= 0) continue;
        if (measure_products(r, types[q], n_rows, n_layers * N_SHAPES, p, &all, err) != 0) return KIN_FAIL;
        double apart_s = all.bytes / f->token_bytes_s[q] + all.flops / f->prompt_flop_s[q];
        if (all.seconds <= 0) continue;
        factors[n++] = f->batch_factor[i][q] = fmax(all.seconds - all.n * f->op_s, all.seconds / 2) / apart_s;
    }
    if (n > 0) f->batch_factor[i][KIN_QUANT_OTHER] = kin_median(factors, n);
    return 0;
}

// Multiplies with this many bytes of weights, which the processor's cache may hold completely or in part.
static int measure_some(kin_throughput_benchmark *r, enum ggml_type type, int64_t width, uint64_t bytes,
                        const kin_benchmark_options *p, products *out, kin_err *err) {
    kin_micro_benchmark g;
    place at = whole_store(r);
    *out = (products){0};
    if (open_benchmark(r, &g, MAX_MATRICES + N_INPUTS, 1, err) != 0) return KIN_FAIL;
    struct ggml_tensor *x = input(&g, GGML_TYPE_F32, width, 1);
    while (out->n < MAX_MATRICES && at.used < bytes && add_product(&at, &g, type, (int64_t[2]){width, width}, x)) out->n++;
    out->bytes = (double)at.used;
    return time_and_close(r, &g, p, &out->seconds, err);
}

// The matrices of each size have a distinct width, so that the lab can tell them apart (lab/preload/slow_compute.c).
static int measure_cached(kin_throughput_benchmark *r, int i, const kin_benchmark_options *p, kin_engine_facts *f, kin_err *err) {
    static const int64_t widths[KIN_FACTS_CACHED] = {768, 1024, 1280, 1792};
    double factors[N_CHOSEN];
    uint64_t bytes = (uint64_t)KIN_FACTS_CACHED_LEAST << i;
    int n = 0;
    if (r->device->is_gpu || bytes >= r->bytes) return 0;
    for (int k = 0; k < N_CHOSEN; k++) {
        products some;
        kin_quant q = chosen[k];
        if (f->token_bytes_s[q] <= 0) continue;
        if (measure_some(r, types[q], widths[i], bytes, p, &some, err) != 0) return KIN_FAIL;
        if (some.seconds <= 0) continue;
        double seconds = fmax(some.seconds - some.n * f->op_s, some.seconds / 2);
        factors[n++] = f->cached_factor[i][q] = fmin(1, seconds * f->token_bytes_s[q] / some.bytes);
    }
    if (n > 0) f->cached_factor[i][KIN_QUANT_OTHER] = kin_median(factors, n);
    return 0;
}

// ---- operations

// The operations of a layer between its products: norms, rotations, sums, the gate. Both functions return how many nodes compute.
static int add_small_of_ggml(kin_micro_benchmark *g) {
    struct ggml_context *ctx = g->graph.ctx;
    struct ggml_tensor *x = input(g, GGML_TYPE_F32, WIDTH, 1), *w = input(g, GGML_TYPE_F32, WIDTH, 1);
    struct ggml_tensor *pos = input(g, GGML_TYPE_I32, 1, 1);
    while (ggml_graph_n_nodes(g->graph.gf) < N_SMALL) {
        x = ggml_mul(ctx, ggml_rms_norm(ctx, x, 1e-5f), w);
        x = ggml_reshape_3d(ctx, x, HEAD_DIM, WIDTH / HEAD_DIM, 1);
        x = ggml_rope_ext(ctx, x, pos, NULL, HEAD_DIM, 0, 4096, 1e4f, 1, 0, 1, 32, 1);
        x = ggml_reshape_2d(ctx, x, WIDTH, 1);
        x = ggml_add(ctx, x, w);
        x = ggml_swiglu_split(ctx, x, w);
        ggml_build_forward_expand(g->graph.gf, x);
    }
    return ggml_graph_n_nodes(g->graph.gf) * 5 / 7; // reshaping computes nothing
}

// For kin's kernels: norms, activations rounded for products, heads.
static int add_small_of_kin(kin_throughput_benchmark *r, kin_micro_benchmark *g) {
    place at = whole_store(r);
    struct ggml_tensor *x = input(g, GGML_TYPE_F32, WIDTH, 1), *w = input(g, GGML_TYPE_F32, WIDTH, 1);
    if (!add_cache(&at, g, 0, KIN_KV_CELLS)) return 0;
    while (ggml_graph_n_nodes(g->graph.gf) < N_SMALL) {
        x = kin_op_norm(&g->graph, g->graph.hp->rms_eps, x, w, NULL);
        ggml_build_forward_expand(g->graph.gf, kin_op_rounded(&g->graph, x, KIN_ACT_256));
        x = kin_op_heads(&g->graph, 0, x, WIDTH / HEAD_DIM, 0, &g->graph.all);
        ggml_build_forward_expand(g->graph.gf, x);
    }
    return ggml_graph_n_nodes(g->graph.gf);
}

static int measure_ops(kin_throughput_benchmark *r, const kin_benchmark_options *p, kin_engine_facts *f, kin_err *err) {
    kin_micro_benchmark g;
    double seconds;
    if (open_benchmark(r, &g, N_SMALL + 16, 1, err) != 0) return KIN_FAIL;
    int n = r->device->kernels ? add_small_of_kin(r, &g) : add_small_of_ggml(&g);
    if (time_and_close(r, &g, p, &seconds, err) != 0) return KIN_FAIL;
    if (seconds > 0) f->op_s = seconds / n;
    return 0;
}

// ggml stores keys and values with one operator each, kin with a single one that also prepares the heads.
static int measure_cache_copy(kin_throughput_benchmark *r, const kin_benchmark_options *p, kin_engine_facts *f, kin_err *err) {
    kin_micro_benchmark g;
    place at = whole_store(r);
    if (open_benchmark(r, &g, 2 * N_SMALL, 1, err) != 0) return KIN_FAIL;
    struct ggml_tensor *rows = input(&g, GGML_TYPE_F32, 2 * WIDTH_KV, 1), *cell = input(&g, GGML_TYPE_I64, 1, 1);
    struct ggml_tensor *row = input(&g, GGML_TYPE_F32, WIDTH_KV, 1);
    int n = 0, n_ops = 0;
    for (; n < N_SMALL && add_cache(&at, &g, n, KIN_KV_CELLS); n++) {
        if (r->device->kernels) {
            rows = kin_op_heads(&g.graph, n, rows, 0, WIDTH_KV / HEAD_DIM, &g.graph.all);
            ggml_build_forward_expand(g.graph.gf, rows);
            n_ops++;
        } else {
            ggml_build_forward_expand(g.graph.gf, ggml_set_rows(g.graph.ctx, r->layers[n].k, row, cell));
            ggml_build_forward_expand(g.graph.gf, ggml_set_rows(g.graph.ctx, r->layers[n].v, row, cell));
            n_ops += 2;
        }
    }
    double seconds;
    if (time_and_close(r, &g, p, &seconds, err) != 0) return KIN_FAIL;
    if (seconds > 0) f->kv_copy_s = fmax(0, seconds - n_ops * f->op_s) / n;
    return 0;
}

// Attention over caches of `bytes` bytes; looks: the bytes that all heads and tokens read, each counted separately.
typedef struct attended {
    double bytes, attended_bytes, seconds; // seconds 0: the device does not have the operator
} attended;

// As in the engine: each head reads the keys and values of its group, whose rows alternate with those of the others. Every token
// attends to all cells.
static struct ggml_tensor *attention_of_ggml(kin_micro_benchmark *g, int il, struct ggml_tensor *q, struct ggml_tensor *mask) {
    struct ggml_context *ctx = g->graph.ctx;
    struct ggml_tensor *k = g->graph.layers[il].k, *v = g->graph.layers[il].v;
    size_t row = k->nb[1], head = ggml_row_size(k->type, HEAD_DIM);
    int n_head_kv = WIDTH_KV / HEAD_DIM, n_cells = (int)k->ne[1];
    q = ggml_reshape_3d(ctx, q, HEAD_DIM, q->ne[1], WIDTH / HEAD_DIM); // [head_dim, n_tokens, n_head]
    struct ggml_tensor *out =
        ggml_flash_attn_ext(ctx, q, ggml_view_3d(ctx, k, HEAD_DIM, n_cells, n_head_kv, row, head, 0),
                            ggml_view_3d(ctx, v, HEAD_DIM, n_cells, n_head_kv, row, head, 0), mask, 0.125f, 0, 0);
    ggml_prec_set_acc(out, GGML_PREC_F32);
    return out;
}

static int measure_attention(kin_throughput_benchmark *r, int n_tokens, int n_cells, int most, const kin_benchmark_options *p,
                             double op_s, attended *out, kin_err *err) {
    *out = (attended){0};
    kin_micro_benchmark g;
    place at = one_run(r);
    if (open_benchmark(r, &g, 3 * MAX_CACHES, n_tokens, err) != 0) return KIN_FAIL;
    g.graph.n_kv = n_cells;
    for (int i = 0; i < n_tokens; i++) r->n_cells[i] = n_cells;
    struct ggml_tensor *q = input(&g, GGML_TYPE_F32, WIDTH, n_tokens), *mask = input(&g, GGML_TYPE_F16, n_cells, n_tokens);
    int n = 0;
    for (; n < most && add_cache(&at, &g, n, n_cells); n++) {
        ggml_build_forward_expand(g.graph.gf, r->device->kernels ? kin_op_attend(&g.graph, n, q, NULL, &g.graph.all)
                                                                 : attention_of_ggml(&g, n, q, mask));
    }
    double seconds;
    if (most > 1) move_each_run(&at, &g);
    if (time_and_close(r, &g, p, &seconds, err) != 0) return KIN_FAIL;
    out->bytes = n * 2.0 * n_cells * WIDTH_KV * sizeof(ggml_fp16_t);
    out->attended_bytes = out->bytes * WIDTH / WIDTH_KV * n_tokens;
    out->seconds = fmax(seconds - n * op_s, seconds / 2);
    return 0;
}

static int measure_prompt_attention(kin_throughput_benchmark *r, const kin_benchmark_options *p, kin_engine_facts *f,
                                    kin_err *err) {
    attended a;
    if (measure_attention(r, BATCH, N_CELLS, 1, p, f->op_s, &a, err) != 0) return KIN_FAIL;
    if (a.seconds > 0) f->prompt_read_bytes_s = a.attended_bytes / a.seconds;
    return 0;
}

// With kin's kernels a token's attention reads and computes concurrently (pure/plan/device_time.c): the read rate follows from
// the rate for a prompt, which is limited by computing alone.
static int measure_token_attention(kin_throughput_benchmark *r, const kin_benchmark_options *p, kin_engine_facts *f,
                                   kin_err *err) {
    attended a;
    if (measure_attention(r, 1, r->device->kernels ? DEEP_CELLS : N_CELLS, MAX_CACHES, p, f->op_s, &a, err) != 0) return KIN_FAIL;
    if (a.seconds == 0) return 0;
    f->read_bytes_s = a.attended_bytes / a.seconds;
    if (!r->device->kernels) return 0;
    double compute_s = a.attended_bytes / f->prompt_read_bytes_s, square = a.seconds * a.seconds - compute_s * compute_s;
    f->kv_bytes_s = a.bytes / sqrt(fmax(square, a.seconds * a.seconds / 4));
    return 0;
}

int kin_throughput_benchmark_n_steps(void) {
    return N_STEPS;
}

int kin_throughput_benchmark_step(kin_throughput_benchmark *r, int i, const kin_benchmark_options *p, kin_engine_facts *f,
                                  kin_err *err) {
    if (i == 0) return measure_ops(r, p, f, err);
    if (i == 1) return measure_cache_copy(r, p, f, err);
    if (i == 2) return measure_prompt_attention(r, p, f, err);
    if (i == 3) return measure_token_attention(r, p, f, err);
    i -= 4;
    // Q8_0 must not follow the floats: for some 50 ms after them a Zen 5 reads it 12 % faster than at any other time.
    if (i < KIN_N_QUANT) return measure_token(r, (kin_quant)(KIN_N_QUANT - 1 - i), p, f, err);
    i -= KIN_N_QUANT;
    if (i < KIN_N_QUANT) return measure_prompt(r, (kin_quant)i, p, f, err);
    i -= KIN_N_QUANT;
    if (i < KIN_FACTS_BATCHES) return measure_batch(r, i, p, f, err);
    return measure_cached(r, i - KIN_FACTS_BATCHES, p, f, err);
}
