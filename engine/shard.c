#include "engine/shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "engine/governor.h"
#include "engine/stage.h"
#include "model/arch.h"
#include "model/blocks.h"

enum {
    MAX_SPANS = 2,        // the CPU's layers, then the GPU's
    MAX_OUTPUT_ROWS = 32, // rows of logits at once: a vocabulary is wide
    NODES_PER_LAYER = 64, // more than any family's layer
    BLOCKS_PER_LAYER = 2, // attention, feed-forward
    WHOLE = -1,           // the variant of a stage's graph with all blocks in it; others are a block's number,
    ROUTE = 1 << 20,      // or this plus a feed-forward block's number: only the choice of its experts
};

// The program itself, its libraries and small things: measured 24 MiB on Linux without a GPU.
#define OVERHEAD_BYTES (24u << 20)

// Consecutive layers on one device.
typedef struct span {
    const kin_shard *shard;
    int layer_begin, layer_end;
    kin_stage *stage;
} span;

struct kin_shard {
    const kin_model *model;
    const kin_devices *devices;
    kin_shard_options o;
    kin_weights *weights;
    kin_kv *kv;
    kin_graph_layer *layers; // [n_layer], those of the range filled in
    span spans[MAX_SPANS];
    int n_spans;
    kin_stage *output;
    bool flash;
    bool by_block;           // this pass acquires the CPU's weights block by block
    uint64_t fixed_bytes;    // KV cache, buffers and the program itself
    uint64_t weights_budget; // at the start
    kin_governor *governor;

    // One step's inputs, sized for n_batch.
    int64_t *cells;
    int32_t *out_pos;
    ggml_fp16_t *mask, *out_mask; // [n_batch, n_ctx]
    int32_t *chosen;              // [n_batch, n_expert_used]
    float *tile;                  // [MAX_OUTPUT_ROWS, n_vocab] logits of one tile of the vocabulary
};

kin_shard_options kin_shard_options_defaults(const kin_model *model) {
    return (kin_shard_options){
        .layer_end = model->hp.n_layer,
        .n_ctx = model->hp.n_ctx_train < 4096 ? model->hp.n_ctx_train : 4096,
        .n_batch = 512,
        .kv_type = GGML_TYPE_F16,
        .flash = true,
        .output = true,
    };
}

// ---- opening

static const kin_device *device_of_layer(const void *user, int il) {
    return kin_weights_device(user, il);
}

static kin_kv_options kv_options(const kin_shard_options *o) {
    return (kin_kv_options){.layer_begin = o->layer_begin, .layer_end = o->layer_end, .n_ctx = o->n_ctx, .type = o->kv_type};
}

// Prompts are computed in batches of activations: an estimate of ggml's compute buffer and work memory for the largest.
static uint64_t compute_estimate(const kin_model *model, const kin_shard_options *o) {
    const kin_hparams *hp = &model->hp;
    uint64_t experts = (uint64_t)hp->n_ff_exp * (uint64_t)hp->n_expert_used, dense = (uint64_t)hp->n_ff;
    uint64_t widest = dense > experts ? dense : experts;
    // Activations in float32; the same quantized, for the products; two masks of 16 bits.
    uint64_t per_token = 4 * (4 * widest + 8 * (uint64_t)hp->n_embd) + 2 * widest + 4 * (uint64_t)o->n_ctx;
    if (!o->flash) per_token += 8 * (uint64_t)hp->n_head * (uint64_t)o->n_ctx; // scores, before and after the softmax
    return per_token * (uint64_t)o->n_batch;
}

// KV cache and buffers come first; what is left is for weights. A context that cannot fit is refused, with what would fit.
static int plan_memory(kin_shard *s, kin_err *err) {
    const kin_shard_options *o = &s->o;
    kin_kv_options kv = kv_options(o);
    kv.layer_end -= o->n_gpu_layers;
    uint64_t kv_bytes = kin_kv_bytes(&s->model->hp, &kv), rest = compute_estimate(s->model, o) + OVERHEAD_BYTES;
    uint64_t memory = kin_governor_room(o->memory);
    s->fixed_bytes = kv_bytes + rest;
    if (s->fixed_bytes <= memory) {
        s->weights_budget = o->mode == KIN_STREAM_RESIDENT ? memory - s->fixed_bytes : UINT64_MAX;
        return 0;
    }
    char a[32], b[32], c[32];
    return kin_err_set(err,
                       "a context of %d tokens in batches of %d needs %s for its KV cache and %s for computing, but only %s of "
                       "memory is %s: try a smaller --ctx or --batch",
                       o->n_ctx, o->n_batch, kin_size_format(kv_bytes, a, sizeof a), kin_size_format(rest, b, sizeof b),
                       kin_size_format(memory, c, sizeof c), o->memory && memory == o->memory ? "allowed" : "available");
}

static bool output_on_gpu(const kin_shard *s) {
    return s->o.n_gpu_layers > 0 && s->o.n_gpu_layers == s->o.layer_end - s->o.layer_begin;
}

static int open_weights(kin_shard *s, kin_err *err) {
    kin_weights_options w = {
        .layer_begin = s->o.layer_begin,
        .layer_end = s->o.layer_end,
        .n_gpu_layers = s->o.n_gpu_layers,
        .output = s->o.output,
        .output_on_gpu = output_on_gpu(s),
        .cache_dir = s->o.cache_dir,
        .cache_cap = s->o.cache_cap,
        .mode = s->o.mode,
        .progress = s->o.progress,
        .progress_user = s->o.progress_user,
    };
    if (plan_memory(s, err) != 0) return KIN_FAIL;
    w.budget = s->weights_budget;
    return kin_weights_open(&s->weights, s->model, s->devices, &w, err);
}

static void fill_layers(kin_shard *s) {
    for (int il = s->o.layer_begin; il < s->o.layer_end; il++) {
        memcpy(s->layers[il].w, kin_weights_layer(s->weights, il), sizeof s->layers[il].w);
        s->layers[il].k = kin_kv_k(s->kv, il);
        s->layers[il].v = kin_kv_v(s->kv, il);
    }
}

// Whether a device has the fused attention operator for this model's heads and cache type.
static bool supports_flash(const kin_shard *s, const kin_device *device) {
    const kin_hparams *hp = &s->model->hp;
    struct ggml_init_params params = {.mem_size = 8 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_tensor *q = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, hp->head_dim, 1, hp->n_head);
    struct ggml_tensor *k = ggml_new_tensor_3d(ctx, s->o.kv_type, hp->head_dim, 256, hp->n_head_kv);
    struct ggml_tensor *v = ggml_new_tensor_3d(ctx, s->o.kv_type, hp->head_dim, 256, hp->n_head_kv);
    struct ggml_tensor *mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 256, 1);
    bool ok = hp->head_dim % ggml_blck_size(s->o.kv_type) == 0 &&
              ggml_backend_dev_supports_op(device->dev, ggml_flash_attn_ext(ctx, q, k, v, mask, 1.0f, 0, 0));
    ggml_free(ctx);
    return ok;
}

static struct ggml_tensor *build_span(const void *user, kin_graph *g, struct ggml_tensor *x, int variant) {
    const span *sp = user;
    const kin_arch *arch = g->hp->arch;
    if (variant >= ROUTE) return arch->route(g, sp->layer_begin + (variant - ROUTE) / BLOCKS_PER_LAYER, x);
    if (variant != WHOLE) {
        int il = sp->layer_begin + variant / BLOCKS_PER_LAYER;
        return variant % BLOCKS_PER_LAYER == 0 ? arch->attn(g, il, x) : arch->ffn(g, il, x);
    }
    for (int il = sp->layer_begin; il < sp->layer_end; il++) {
        x = arch->attn(g, il, x);
        x = arch->ffn(g, il, x);
    }
    return x;
}

// x: [n_embd, n] -> logits [n_vocab, n], or of one tile of the vocabulary
static struct ggml_tensor *build_output(const void *user, kin_graph *g, struct ggml_tensor *x, int variant) {
    const kin_shard *s = user;
    int n_tiles = kin_weights_n_tiles(s->weights);
    x = kin_block_norm(g, x, kin_weights_output_norm(s->weights)); // [n_embd, n]
    if (variant != WHOLE) return ggml_mul_mat(g->ctx, kin_weights_tile(s->weights, variant), x);
    if (n_tiles == 1) return ggml_mul_mat(g->ctx, kin_weights_tile(s->weights, 0), x);

    struct ggml_tensor *logits = ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, g->hp->n_vocab, x->ne[1]);
    ggml_set_input(logits); // has its memory from the start
    size_t offset = 0;
    for (int i = 0; i < n_tiles; i++) {
        struct ggml_tensor *tile = ggml_mul_mat(g->ctx, kin_weights_tile(s->weights, i), x); // [n_rows, n]
        struct ggml_tensor *to = ggml_view_2d(g->ctx, logits, tile->ne[0], tile->ne[1], logits->nb[1], offset);
        ggml_build_forward_expand(g->gf, ggml_cpy(g->ctx, tile, to));
        offset += (size_t)tile->ne[0] * sizeof(float);
    }
    return logits;
}

static int open_span(kin_shard *s, int layer_begin, int layer_end, kin_err *err) {
    if (layer_begin == layer_end) return 0;
    const kin_hparams *hp = &s->model->hp;
    const kin_device *device = kin_weights_device(s->weights, layer_begin);
    span *sp = &s->spans[s->n_spans++];
    *sp = (span){.shard = s, .layer_begin = layer_begin, .layer_end = layer_end};
    kin_graph proto = {
        .hp = hp,
        .layers = s->layers,
        .rope_factors = kin_weights_rope_factors(s->weights, device),
        .flash = s->flash,
    };
    size_t n_nodes = (size_t)(layer_end - layer_begin) * (size_t)(NODES_PER_LAYER + 2 * hp->n_expert_used) + 32;
    if (kin_stage_open(&sp->stage, device, &proto, n_nodes, build_span, sp, err) != 0) return KIN_FAIL;
    kin_stage_shape largest = {.variant = WHOLE, .n_tokens = s->o.n_batch, .n_kv = s->o.n_ctx, .n_out = s->o.n_batch};
    return kin_stage_reserve(sp->stage, largest, err);
}

static int open_output(kin_shard *s, kin_err *err) {
    if (!s->o.output) return 0;
    kin_graph proto = {.hp = &s->model->hp};
    size_t n_nodes = 32 + 4 * (size_t)kin_weights_n_tiles(s->weights);
    const kin_device *device = output_on_gpu(s) ? &s->devices->gpu : &s->devices->cpu;
    if (kin_stage_open(&s->output, device, &proto, n_nodes, build_output, s, err) != 0) return KIN_FAIL;
    kin_stage_shape largest = {.variant = WHOLE, .n_tokens = MAX_OUTPUT_ROWS, .n_out = MAX_OUTPUT_ROWS};
    return kin_stage_reserve(s->output, largest, err);
}

static int open_inputs(kin_shard *s, kin_err *err) {
    size_t n_batch = (size_t)s->o.n_batch, n_ctx = (size_t)s->o.n_ctx;
    s->layers = calloc((size_t)s->model->hp.n_layer, sizeof *s->layers);
    s->cells = malloc(n_batch * sizeof *s->cells);
    s->out_pos = malloc(n_batch * sizeof *s->out_pos);
    s->mask = malloc(n_batch * n_ctx * sizeof *s->mask);
    s->out_mask = malloc(n_batch * n_ctx * sizeof *s->out_mask);
    s->chosen = malloc(n_batch * (size_t)(s->model->hp.n_expert_used + 1) * sizeof *s->chosen);
    s->tile = s->o.output ? malloc(MAX_OUTPUT_ROWS * (size_t)s->model->hp.n_vocab * sizeof *s->tile) : NULL;
    return s->layers && s->cells && s->out_pos && s->mask && s->out_mask && s->chosen && (s->tile || !s->o.output)
               ? 0
               : kin_err_set(err, "out of memory");
}

static void set_budget(void *user, uint64_t budget) {
    kin_weights_set_budget(user, budget);
}

// Only weights that can be streamed can make room.
static int open_governor(kin_shard *s, kin_err *err) {
    uint64_t most = kin_weights_most_useful_budget(s->weights);
    if (s->o.mode != KIN_STREAM_RESIDENT || most == 0) return 0;
    kin_governor_options o = {
        .memory = s->o.memory,
        .fixed = s->fixed_bytes,
        .budget = s->weights_budget,
        .most_useful = most,
        .set = set_budget,
        .user = s->weights,
    };
    return kin_governor_start(&s->governor, &o, err);
}

static int open_all(kin_shard *s, kin_err *err) {
    const kin_shard_options *o = &s->o;
    if (o->n_gpu_layers > 0 && !s->devices->gpu.backend)
        return kin_err_set(err, "%d layers for the GPU, but no GPU is open", o->n_gpu_layers);
    if (open_inputs(s, err) != 0 || open_weights(s, err) != 0) return KIN_FAIL;

    kin_kv_options kv = kv_options(o);
    if (kin_kv_open(&s->kv, &s->model->hp, &kv, device_of_layer, s->weights, err) != 0) return KIN_FAIL;
    fill_layers(s);

    s->flash = o->flash && supports_flash(s, &s->devices->cpu) && (o->n_gpu_layers == 0 || supports_flash(s, &s->devices->gpu));
    int gpu_begin = o->layer_end - o->n_gpu_layers;
    if (open_span(s, o->layer_begin, gpu_begin, err) != 0 || open_span(s, gpu_begin, o->layer_end, err) != 0) return KIN_FAIL;
    return open_output(s, err) == 0 ? open_governor(s, err) : KIN_FAIL;
}

int kin_shard_open(kin_shard **out, const kin_model *model, const kin_devices *devices, const kin_shard_options *o,
                   kin_err *err) {
    *out = NULL;
    kin_assert(o->layer_begin >= 0 && o->layer_begin <= o->layer_end && o->layer_end <= model->hp.n_layer);
    kin_assert(o->n_gpu_layers >= 0 && o->n_gpu_layers <= o->layer_end - o->layer_begin);
    kin_assert(o->n_ctx > 0 && o->n_batch > 0);
    kin_shard *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->model = model;
    s->devices = devices;
    s->o = *o;
    if (s->o.n_batch > s->o.n_ctx) s->o.n_batch = s->o.n_ctx;
    if (open_all(s, err) != 0) {
        kin_shard_close(s);
        return KIN_FAIL;
    }
    *out = s;
    return 0;
}

void kin_shard_close(kin_shard *s) {
    if (!s) return;
    kin_governor_stop(s->governor);
    for (int i = 0; i < s->n_spans; i++) kin_stage_close(s->spans[i].stage);
    kin_stage_close(s->output);
    kin_kv_close(s->kv);
    kin_weights_close(s->weights);
    free(s->layers);
    free(s->cells);
    free(s->out_pos);
    free(s->mask);
    free(s->out_mask);
    free(s->chosen);
    free(s->tile);
    free(s);
}

// ---- running

static void forget(kin_shard *s, const kin_batch *batch) {
    for (int i = 0; i < batch->n_tokens; i++) {
        kin_kv_remove(s->kv, batch->seq ? batch->seq[i] : 0, batch->pos[i], batch->pos[i] + 1);
    }
}

// Before a feed-forward block with experts: asks its router which ones, and brings them into memory.
static int fetch_experts(kin_shard *s, const span *sp, kin_stage_shape shape, const kin_stage_inputs *in, kin_err *err) {
    const kin_hparams *hp = &s->model->hp;
    if (hp->n_expert == 0) return 0;
    int il = sp->layer_begin + shape.variant / BLOCKS_PER_LAYER;
    kin_stage_shape route = {.variant = ROUTE + shape.variant, .n_tokens = shape.n_tokens, .n_out = shape.n_tokens};
    if (kin_stage_run(sp->stage, route, in, s->chosen, err) != 0) return KIN_FAIL;
    kin_weights_fetch_experts(s->weights, il, s->chosen, (size_t)shape.n_tokens * (size_t)hp->n_expert_used);
    return 0;
}

// Block by block, each with its weights acquired. The rows that are not wanted leave in the last layer's attention.
static int run_blocks(kin_shard *s, span *sp, kin_stage_shape shape, const kin_stage_inputs *in, float *y, kin_err *err) {
    kin_stage_inputs block_in = *in;
    int n_blocks = BLOCKS_PER_LAYER * (sp->layer_end - sp->layer_begin), n_out = shape.n_out;
    for (int i = 0; i < n_blocks; i++) {
        bool after_last_attention = i == n_blocks - 1;
        shape.variant = i;
        shape.n_out = i == n_blocks - BLOCKS_PER_LAYER ? n_out : shape.n_tokens;
        if (after_last_attention) shape.n_tokens = shape.n_out = n_out;
        if (kin_weights_acquire(s->weights, i, err) != 0) return KIN_FAIL;
        int rc = i % BLOCKS_PER_LAYER ? fetch_experts(s, sp, shape, &block_in, err) : 0;
        if (rc == 0) rc = kin_stage_run(sp->stage, shape, &block_in, y, err);
        kin_weights_release(s->weights, i);
        if (rc != 0) return KIN_FAIL;
        block_in.x = y;
    }
    return 0;
}

static int run_span(kin_shard *s, span *sp, kin_stage_shape shape, const kin_stage_inputs *in, float *y, kin_err *err) {
    bool on_gpu = kin_weights_device(s->weights, sp->layer_begin)->is_gpu;
    if (s->by_block && !on_gpu) return run_blocks(s, sp, shape, in, y, err);
    return kin_stage_run(sp->stage, shape, in, y, err);
}

static int run_spans(kin_shard *s, const kin_batch *batch, const float *x, float *y, kin_err *err) {
    bool last = s->o.layer_end == s->model->hp.n_layer;
    int n_kv = kin_kv_n_used(s->kv), n_out = last ? kin_batch_n_out(batch) : batch->n_tokens;
    bool some = n_out < batch->n_tokens;
    kin_stage_inputs in = {
        .x = x, .pos = batch->pos, .cells = s->cells, .mask = s->mask, .out_mask = s->out_mask, .out_pos = s->out_pos};

    kin_kv_mask(s->kv, batch, NULL, batch->n_tokens, n_kv, s->mask);
    if (some) {
        in.out_rows = batch->out;
        kin_kv_mask(s->kv, batch, batch->out, n_out, n_kv, s->out_mask);
        for (int i = 0; i < n_out; i++) s->out_pos[i] = batch->pos[batch->out[i]];
    }
    s->by_block = kin_weights_begin_pass(s->weights, s->output && !batch->no_output);
    for (int i = 0; i < s->n_spans; i++) {
        bool ends = last && i == s->n_spans - 1;
        kin_stage_shape shape = {
            .variant = WHOLE, .n_tokens = batch->n_tokens, .n_kv = n_kv, .n_out = ends ? n_out : batch->n_tokens};
        if (run_span(s, &s->spans[i], shape, &in, y, err) != 0) return KIN_FAIL;
        in.x = y;
    }
    return 0;
}

int kin_shard_run(kin_shard *s, const kin_batch *batch, const float *x, float *y, kin_err *err) {
    kin_assert(batch->n_tokens > 0 && batch->n_tokens <= s->o.n_batch);
    kin_assert(s->n_spans > 0);
    kin_assert(!batch->out || (batch->n_out > 0 && batch->n_out <= batch->n_tokens));
    if (kin_kv_place(s->kv, batch, s->cells, err) != 0) return KIN_FAIL;
    if (run_spans(s, batch, x, y, err) == 0) return 0;
    forget(s, batch);
    return KIN_FAIL;
}

static int min_int(int a, int b) {
    return a < b ? a : b;
}

// The rows of one tile: x // f32 [n, n_embd] -> its part of logits // f32 [n, n_vocab], from column `at` on
static int output_tile(kin_shard *s, int i_tile, size_t at, int n, const float *x, float *logits, kin_err *err) {
    size_t n_embd = (size_t)s->model->hp.n_embd, n_vocab = (size_t)s->model->hp.n_vocab;
    size_t width = (size_t)kin_weights_tile(s->weights, i_tile)->ne[1];
    for (int done = 0; done < n; done += MAX_OUTPUT_ROWS) {
        int rows = min_int(n - done, MAX_OUTPUT_ROWS);
        kin_stage_shape shape = {.variant = i_tile, .n_tokens = rows, .n_out = rows};
        kin_stage_inputs in = {.x = x + (size_t)done * n_embd};
        if (kin_stage_run(s->output, shape, &in, s->tile, err) != 0) return KIN_FAIL;
        for (int i = 0; i < rows; i++) {
            memcpy(logits + (size_t)(done + i) * n_vocab + at, s->tile + (size_t)i * width, width * sizeof *logits);
        }
    }
    return 0;
}

// Tile after tile, each with its weights acquired, for all rows: a pass streams them once.
static int output_by_tile(kin_shard *s, int n, const float *x, float *logits, kin_err *err) {
    int first = BLOCKS_PER_LAYER * (s->o.layer_end - s->o.n_gpu_layers - s->o.layer_begin);
    size_t at = 0;
    for (int i = 0; i < kin_weights_n_tiles(s->weights); i++) {
        if (kin_weights_acquire(s->weights, first + i, err) != 0) return KIN_FAIL;
        int rc = output_tile(s, i, at, n, x, logits, err);
        kin_weights_release(s->weights, first + i);
        if (rc != 0) return KIN_FAIL;
        at += (size_t)kin_weights_tile(s->weights, i)->ne[1];
    }
    return 0;
}

int kin_shard_output(kin_shard *s, int n, const float *x, float *logits, kin_err *err) {
    kin_assert(s->output);
    if (s->by_block && !output_on_gpu(s)) return output_by_tile(s, n, x, logits, err);
    size_t n_embd = (size_t)s->model->hp.n_embd, n_vocab = (size_t)s->model->hp.n_vocab;
    for (int done = 0; done < n; done += MAX_OUTPUT_ROWS) {
        int rows = min_int(n - done, MAX_OUTPUT_ROWS);
        kin_stage_shape shape = {.variant = WHOLE, .n_tokens = rows, .n_out = rows};
        kin_stage_inputs in = {.x = x + (size_t)done * n_embd};
        if (kin_stage_run(s->output, shape, &in, logits + (size_t)done * n_vocab, err) != 0) return KIN_FAIL;
    }
    return 0;
}

void kin_shard_remove(kin_shard *s, int32_t seq, int32_t begin, int32_t end) {
    kin_kv_remove(s->kv, seq, begin, end);
}

void kin_shard_clear(kin_shard *s) {
    kin_kv_clear(s->kv);
}

kin_shard_stats kin_shard_get_stats(const kin_shard *s) {
    kin_kv_options kv = kv_options(&s->o);
    kin_shard_stats stats = {
        .weights = kin_weights_get_stats(s->weights),
        .kv_bytes = kin_kv_bytes(&s->model->hp, &kv),
        .weights_budget = s->governor ? kin_governor_budget(s->governor) : s->weights_budget,
        .flash = s->flash,
    };
    for (int i = 0; i < s->n_spans; i++) stats.compute_bytes += kin_stage_bytes(s->spans[i].stage);
    if (s->output) stats.compute_bytes += kin_stage_bytes(s->output);
    return stats;
}
