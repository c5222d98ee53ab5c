// engine/weights.h for a web page: all weights of the windows, in memory, read from the model's file and packed at open.
#include "engine/weights.h"

#include <ggml.h>
#include <stdlib.h>

#include "model/arch.h"
#include "model/kernel/ops.h"
#include "web/engine/gpu.h"

enum { READ_BYTES = 4 << 20 }; // read at once of a weight that is packed

typedef struct layer {
    struct ggml_tensor *w[KIN_W_COUNT];
} layer;

struct kin_weights {
    const kin_model *model;
    kin_device device;
    struct ggml_context *ctx;
    layer *layers; // [n_layer], only those of the windows are filled in
    struct ggml_tensor *rope_factors;
    uint64_t bytes;
    kin_progress progress;
    void *progress_user;
    uint64_t total;
};

static void add_progress(kin_weights *w, uint64_t n) {
    w->bytes += n;
    if (w->progress) w->progress(w->progress_user, "weights", w->bytes, w->total);
}

// ---- one weight

// Reads and packs panel by panel, so that little memory is needed twice. Each expert's matrix is packed separately.
static int read_packed(kin_weights *w, const kin_gguf_tensor *t, uint8_t *to, kin_err *err) {
    const int64_t n_rows = t->ne[1];
    const size_t row = (size_t)(t->n_bytes / (uint64_t)(n_rows * t->ne[2]));
    int64_t at_once = (int64_t)(READ_BYTES / row) / KIN_PANEL_ROWS * KIN_PANEL_ROWS;
    if (at_once < KIN_PANEL_ROWS) at_once = KIN_PANEL_ROWS;
    uint8_t *rows = malloc((size_t)at_once * row);
    if (!rows) return kin_err_set(err, "out of memory for weights");
    int rc = 0;
    for (int64_t i = 0, n; rc == 0 && i < n_rows * t->ne[2]; i += n) {
        const int64_t left = n_rows - i % n_rows; // of this expert
        n = left < at_once ? left : at_once;
        rc = kin_gguf_read(w->model->gguf, t, (uint64_t)i * row, rows, (size_t)n * row, err);
        if (rc == 0) kin_kernel_pack(t->type, t->ne[0], n, rows, to + (size_t)i * row);
    }
    free(rows);
    return rc;
}

// Moves a tensor to the GPU, through this memory.
static void move_to_gpu(struct ggml_tensor *t) {
    void *bytes = t->data;
    kin_gpu_put(t, bytes);
    free(bytes);
}

static int read_weight(kin_weights *w, const kin_gguf_tensor *t, bool packs, struct ggml_tensor **out, kin_err *err) {
    if (t->n_bytes > SIZE_MAX / 2)
        return kin_err_set(err, "'%.*s' is larger than a browser's memory", (int)t->name.len, t->name.at);
    uint8_t *bytes = malloc((size_t)t->n_bytes);
    if (!bytes) {
        return kin_err_set(err, "out of memory for '%.*s' (%llu MiB of %llu MiB are there): give this device fewer layers",
                           (int)t->name.len, t->name.at, (unsigned long long)(w->bytes >> 20),
                           (unsigned long long)(w->total >> 20));
    }
    struct ggml_tensor *tensor = *out = ggml_new_tensor_3d(w->ctx, (enum ggml_type)t->type, t->ne[0], t->ne[1], t->ne[2]);
    tensor->data = bytes;
    if (packs) kin_ops_mark_packed(tensor);
    add_progress(w, t->n_bytes);
    return packs ? read_packed(w, t, bytes, err) : kin_gguf_read(w->model->gguf, t, 0, bytes, (size_t)t->n_bytes, err);
}

// ---- layers

static int refuse(const kin_gguf_tensor *t, kin_err *err) {
    return kin_err_set(err, "'%.*s' is of type %s in a shape that a browser does not compute", (int)t->name.len, t->name.at,
                       kin_gguf_type_name(t->type));
}

// Fails unless all of a layer's types are known.
static int check_layer(const kin_model_layer *l, kin_err *err) {
    if (l->w[KIN_W_LATENT_KV_B])
        return kin_err_set(err, "a browser does not convert 'attn_kv_b': use a newer file of this model");
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *t = l->w[id];
        if (t && !kin_weight_is_vector(id) && !kin_kernel_has(t->type, t->ne[0])) return refuse(t, err);
    }
    return 0;
}

static int read_layer(kin_weights *w, int il, kin_err *err) {
    const kin_model_layer *l = &w->model->layers[il];
    if (check_layer(l, err) != 0) return KIN_FAIL;
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *t = l->w[id];
        bool packs = t && !kin_weight_is_vector(id) && kin_kernel_packs(t->type);
        if (t && read_weight(w, t, packs, &w->layers[il].w[id], err) != 0) return KIN_FAIL;
        if (t && kin_gpu_is_on()) move_to_gpu(w->layers[il].w[id]);
    }
    return 0;
}

static int read_all(kin_weights *w, const kin_windows *windows, int n_ctx, kin_err *err) {
    for (int i = 0; i < windows->n; i++)
        for (int il = windows->at[i].layer_begin; il < windows->at[i].layer_end; il++)
            w->total += kin_model_layer_bytes(w->model, il);
    for (int i = 0; i < windows->n; i++)
        for (int il = windows->at[i].layer_begin; il < windows->at[i].layer_end; il++)
            if (read_layer(w, il, err) != 0) return KIN_FAIL;
    const kin_gguf_tensor *factors = kin_model_rope_factors(w->model, n_ctx);
    return factors ? read_weight(w, factors, false, &w->rope_factors, err) : 0;
}

int kin_weights_model_identity(const kin_model *model, uint64_t *identity, kin_err *err) {
    (void)model, (void)identity;
    return kin_err_set(err, "not known in a page");
}

int kin_weights_open(kin_weights **out, const kin_model *model, const kin_devices *devices, const kin_weights_options *o,
                     kin_err *err) {
    *out = NULL;
    if (!devices->cpu.kernels || !devices->cpu.packs)
        return kin_err_set(err,
                           "a browser computes with kin's kernels and packed weights only, but the plan (or the model's shape) "
                           "asks for others");
    if (kin_gpu_is_on()) kin_gpu_check(&model->hp);
    kin_weights *w = calloc(1, sizeof *w);
    if (!w) return kin_err_set(err, "out of memory");
    w->model = model;
    w->device = devices->cpu;
    w->device.is_gpu = kin_gpu_is_on(); // the KV cache is there, too
    w->progress = o->progress;
    w->progress_user = o->progress_user;
    size_t n_layer = (size_t)model->hp.n_layer, n = n_layer * KIN_W_COUNT + 1;
    w->layers = calloc(n_layer, sizeof *w->layers);
    w->ctx = ggml_init((struct ggml_init_params){.mem_size = n * ggml_tensor_overhead(), .no_alloc = true});
    int rc = w->layers && w->ctx ? read_all(w, &o->windows, o->n_ctx, err) : kin_err_set(err, "out of memory");
    if (rc != 0)
        kin_weights_close(w);
    else
        *out = w;
    return rc;
}

void kin_weights_close(kin_weights *w) {
    if (!w) return;
    for (struct ggml_tensor *t = w->ctx ? ggml_get_first_tensor(w->ctx) : NULL; t; t = ggml_get_next_tensor(w->ctx, t))
        if (!kin_gpu_has(t)) free(t->data);
    ggml_free(w->ctx);
    free(w->layers);
    free(w);
}

const kin_device *kin_weights_device(const kin_weights *w, int il) {
    (void)il;
    return &w->device;
}

struct ggml_tensor *const *kin_weights_layer(const kin_weights *w, int il) {
    return w->layers[il].w;
}

struct ggml_tensor *kin_weights_rope_factors(const kin_weights *w, const kin_device *device) {
    (void)device;
    return w->rope_factors;
}

kin_weights_stats kin_weights_get_stats(kin_weights *w) {
    return (kin_weights_stats){.packed_bytes = w->bytes, .anonymous_bytes = w->bytes, .resident_bytes = w->bytes};
}

// ---- features that do not exist here: an output layer, streaming, late arrival of weights

struct ggml_tensor *kin_weights_output_norm(const kin_weights *w) {
    (void)w;
    return NULL;
}

struct ggml_tensor *kin_weights_output_norm_bias(const kin_weights *w) {
    (void)w;
    return NULL;
}

struct ggml_tensor *const *kin_weights_stream_ends(const kin_weights *w) {
    (void)w;
    return NULL;
}

int kin_weights_n_tiles(const kin_weights *w) {
    (void)w;
    return 0;
}

struct ggml_tensor *kin_weights_tile(const kin_weights *w, int i_tile) {
    (void)w, (void)i_tile;
    return NULL;
}

int kin_weights_compute_block(const kin_weights *w, int il) {
    (void)w;
    return il;
}

int kin_weights_tile_compute_block(const kin_weights *w, int i_tile) {
    (void)w;
    return i_tile;
}

bool kin_weights_begin(kin_weights *w, int i_compute_block, bool with_output) {
    (void)w, (void)i_compute_block, (void)with_output;
    return false;
}

int kin_weights_acquire(kin_weights *w, int i_compute_block, kin_err *err) {
    (void)w, (void)i_compute_block, (void)err;
    return 0;
}

void kin_weights_release(kin_weights *w, int i_compute_block) {
    (void)w, (void)i_compute_block;
}

bool kin_weights_is_arriving(const kin_weights *w) {
    (void)w;
    return false;
}

bool kin_weights_has_arrived(kin_weights *w) {
    (void)w;
    return true;
}

int kin_weights_settle(kin_weights *w, kin_err *err) {
    (void)w, (void)err;
    return 0;
}

int kin_weights_await_gpu(kin_weights *w, int layer_begin, int layer_end, kin_err *err) {
    (void)w, (void)layer_begin, (void)layer_end, (void)err;
    return 0;
}

const kin_expert_source *kin_weights_expert_source(const kin_weights *w) {
    (void)w;
    return NULL;
}

int kin_weights_check_experts(kin_weights *w, kin_err *err) {
    (void)w, (void)err;
    return 0;
}

uint64_t kin_weights_anonymous_bytes(kin_weights *w) {
    return w->bytes;
}

void kin_weights_fetch_experts(kin_weights *w, int il, const int32_t *chosen, size_t n) {
    (void)w, (void)il, (void)chosen, (void)n;
}

uint64_t kin_weights_set_budget(kin_weights *w, uint64_t budget) {
    (void)budget;
    return w->bytes;
}

uint64_t kin_weights_most_useful_budget(const kin_weights *w) {
    (void)w;
    return 0;
}

size_t kin_weights_pop_intervals(kin_weights *w, kin_stream_record record, kin_interval *out, size_t n_max) {
    (void)w, (void)record, (void)out, (void)n_max;
    return 0;
}
