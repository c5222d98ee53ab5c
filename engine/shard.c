#include "engine/shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "engine/stage.h"
#include "model/arch.h"
#include "model/blocks.h"
#include "sys/memory.h"

enum {
    MAX_SPANS = 2,         // the CPU's layers, then the GPU's
    MAX_OUTPUT_ROWS = 32,  // rows of logits at once: a vocabulary is wide
    NODES_PER_LAYER = 64,  // more than any family's layer
};

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

    // One step's inputs, sized for n_batch.
    int64_t *cells;
    int32_t *out_pos;
    ggml_fp16_t *mask, *out_mask; // [n_batch, n_ctx]
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

// A context that cannot fit is refused before anything is loaded, with what would fit.
static int check_memory(const kin_model *model, const kin_shard_options *o, kin_err *err) {
    kin_kv_options kv = kv_options(o);
    kv.layer_end -= o->n_gpu_layers;
    uint64_t need = kin_kv_bytes(&model->hp, &kv), available = kin_memory_read().available;
    if (need <= available) return 0;
    char a[32], b[32];
    uint64_t per_token = need / (uint64_t)o->n_ctx;
    return kin_err_set(err, "a context of %d tokens needs %s for its KV cache, but only %s of memory is available: try --ctx %llu", o->n_ctx,
                       kin_size_format(need, a, sizeof a), kin_size_format(available, b, sizeof b),
                       (unsigned long long)(available / 2 / per_token / 256 * 256));
}

static int open_weights(kin_shard *s, kin_err *err) {
    kin_weights_options w = {
        .layer_begin = s->o.layer_begin,
        .layer_end = s->o.layer_end,
        .n_gpu_layers = s->o.n_gpu_layers,
        .output = s->o.output,
        .output_on_gpu = s->o.n_gpu_layers > 0 && s->o.n_gpu_layers == s->o.layer_end - s->o.layer_begin,
        .cache_dir = s->o.cache_dir,
        .progress = s->o.progress,
        .progress_user = s->o.progress_user,
    };
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

static struct ggml_tensor *build_span(const void *user, kin_graph *g, struct ggml_tensor *x) {
    const span *sp = user;
    const kin_arch *arch = g->hp->arch;
    for (int il = sp->layer_begin; il < sp->layer_end; il++) {
        x = arch->attn(g, il, x);
        x = arch->ffn(g, il, x);
    }
    return x;
}

static struct ggml_tensor *build_output(const void *user, kin_graph *g, struct ggml_tensor *x) {
    const kin_shard *s = user;
    x = kin_block_norm(g, x, kin_weights_output_norm(s->weights));         // [n_embd, n]
    return ggml_mul_mat(g->ctx, kin_weights_output(s->weights), x); // [n_vocab, n]
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
    kin_stage_shape largest = {.n_tokens = s->o.n_batch, .n_kv = s->o.n_ctx, .n_out = s->o.n_batch};
    return kin_stage_reserve(sp->stage, largest, err);
}

static int open_output(kin_shard *s, kin_err *err) {
    if (!s->o.output) return 0;
    bool on_gpu = s->o.n_gpu_layers > 0 && s->o.n_gpu_layers == s->o.layer_end - s->o.layer_begin;
    kin_graph proto = {.hp = &s->model->hp};
    if (kin_stage_open(&s->output, on_gpu ? &s->devices->gpu : &s->devices->cpu, &proto, 32, build_output, s, err) != 0) return KIN_FAIL;
    kin_stage_shape largest = {.n_tokens = MAX_OUTPUT_ROWS, .n_out = MAX_OUTPUT_ROWS};
    return kin_stage_reserve(s->output, largest, err);
}

static int open_inputs(kin_shard *s, kin_err *err) {
    size_t n_batch = (size_t)s->o.n_batch, n_ctx = (size_t)s->o.n_ctx;
    s->layers = calloc((size_t)s->model->hp.n_layer, sizeof *s->layers);
    s->cells = malloc(n_batch * sizeof *s->cells);
    s->out_pos = malloc(n_batch * sizeof *s->out_pos);
    s->mask = malloc(n_batch * n_ctx * sizeof *s->mask);
    s->out_mask = malloc(n_batch * n_ctx * sizeof *s->out_mask);
    return s->layers && s->cells && s->out_pos && s->mask && s->out_mask ? 0 : kin_err_set(err, "out of memory");
}

static int open_all(kin_shard *s, kin_err *err) {
    const kin_shard_options *o = &s->o;
    if (o->n_gpu_layers > 0 && !s->devices->gpu.backend) return kin_err_set(err, "%d layers for the GPU, but no GPU is open", o->n_gpu_layers);
    if (check_memory(s->model, o, err) != 0 || open_inputs(s, err) != 0 || open_weights(s, err) != 0) return KIN_FAIL;

    kin_kv_options kv = kv_options(o);
    if (kin_kv_open(&s->kv, &s->model->hp, &kv, device_of_layer, s->weights, err) != 0) return KIN_FAIL;
    fill_layers(s);

    s->flash = o->flash && supports_flash(s, &s->devices->cpu) && (o->n_gpu_layers == 0 || supports_flash(s, &s->devices->gpu));
    int gpu_begin = o->layer_end - o->n_gpu_layers;
    if (open_span(s, o->layer_begin, gpu_begin, err) != 0 || open_span(s, gpu_begin, o->layer_end, err) != 0) return KIN_FAIL;
    return open_output(s, err);
}

int kin_shard_open(kin_shard **out, const kin_model *model, const kin_devices *devices, const kin_shard_options *o, kin_err *err) {
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
    for (int i = 0; i < s->n_spans; i++) kin_stage_close(s->spans[i].stage);
    kin_stage_close(s->output);
    kin_kv_close(s->kv);
    kin_weights_close(s->weights);
    free(s->layers);
    free(s->cells);
    free(s->out_pos);
    free(s->mask);
    free(s->out_mask);
    free(s);
}

// ---- running

static void forget(kin_shard *s, const kin_batch *batch) {
    for (int i = 0; i < batch->n_tokens; i++) {
        kin_kv_remove(s->kv, batch->seq ? batch->seq[i] : 0, batch->pos[i], batch->pos[i] + 1);
    }
}

static int run_spans(kin_shard *s, const kin_batch *batch, const float *x, float *y, kin_err *err) {
    bool last = s->o.layer_end == s->model->hp.n_layer;
    int n_kv = kin_kv_n_used(s->kv), n_out = last ? kin_batch_n_out(batch) : batch->n_tokens;
    bool some = n_out < batch->n_tokens;
    kin_stage_inputs in = {.x = x, .pos = batch->pos, .cells = s->cells, .mask = s->mask, .out_mask = s->out_mask, .out_pos = s->out_pos};

    kin_kv_mask(s->kv, batch, NULL, batch->n_tokens, n_kv, s->mask);
    if (some) {
        in.out_rows = batch->out;
        kin_kv_mask(s->kv, batch, batch->out, n_out, n_kv, s->out_mask);
        for (int i = 0; i < n_out; i++) s->out_pos[i] = batch->pos[batch->out[i]];
    }
    for (int i = 0; i < s->n_spans; i++) {
        bool ends = last && i == s->n_spans - 1;
        kin_stage_shape shape = {.n_tokens = batch->n_tokens, .n_kv = n_kv, .n_out = ends ? n_out : batch->n_tokens};
        if (kin_stage_run(s->spans[i].stage, shape, &in, y, err) != 0) return KIN_FAIL;
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

int kin_shard_output(kin_shard *s, int n, const float *x, float *logits, kin_err *err) {
    kin_assert(s->output);
    size_t n_embd = (size_t)s->model->hp.n_embd, n_vocab = (size_t)s->model->hp.n_vocab;
    while (n > 0) {
        int rows = n < MAX_OUTPUT_ROWS ? n : MAX_OUTPUT_ROWS;
        kin_stage_shape shape = {.n_tokens = rows, .n_out = rows};
        kin_stage_inputs in = {.x = x};
        if (kin_stage_run(s->output, shape, &in, logits, err) != 0) return KIN_FAIL;
        x += (size_t)rows * n_embd;
        logits += (size_t)rows * n_vocab;
        n -= rows;
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
        .flash = s->flash,
    };
    for (int i = 0; i < s->n_spans; i++) stats.compute_bytes += kin_stage_bytes(s->spans[i].stage);
    if (s->output) stats.compute_bytes += kin_stage_bytes(s->output);
    return stats;
}
