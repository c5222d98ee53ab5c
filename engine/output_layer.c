#include "engine/output_layer.h"

#include <stdlib.h>
#include <string.h>

#include "engine/shard_graphs.h"
#include "engine/stage.h"
#include "kernels/kernels.h"

enum { MAX_ROWS = 32 }; // of logits computed at once, because a vocabulary is wide

struct kin_output_layer {
    const kin_model *model;
    const kin_hparams *hp;
    kin_weights *weights;
    const kin_device *device;
    const kin_kernels *kernels; // for logits
    kin_stage *stage;
    float *tile; // [MAX_ROWS, n_vocab] logits of one tile of the vocabulary
};

static int min_int(int a, int b) {
    return a < b ? a : b;
}

// Returns the shape of a graph of the output layer, and in *width the numbers of a row of its input: one hidden state without the
// norm, else the residual.
static kin_stage_shape shape_of(const kin_output_layer *l, int variant, int n_rows, size_t *width) {
    const bool is_plain = variant >= KIN_VARIANT_PLAIN + KIN_VARIANT_WHOLE;
    *width = (size_t)(is_plain ? l->hp->n_embd : kin_hparams_stream_width(l->hp));
    return (kin_stage_shape){.variant = variant, .n_x = (int)*width, .n_tokens = n_rows, .n_out = n_rows};
}

static int open_stage(kin_output_layer *l, kin_err *err) {
    kin_graph proto = {.hp = &l->model->hp, .kernels = l->device->kernels};
    size_t n_nodes = 32 + 4 * (size_t)kin_weights_n_tiles(l->weights);
    if (kin_stage_open(&l->stage, l->device, &proto, n_nodes, kin_build_output, l->weights, err) != 0) return KIN_FAIL;
    const int most = kin_weights_n_tiles(l->weights) > 0 ? KIN_VARIANT_WHOLE : KIN_VARIANT_HIDDEN;
    return kin_stage_reserve(l->stage, shape_of(l, most, MAX_ROWS, &(size_t){0}), err);
}

int kin_output_layer_open(kin_output_layer **out, const kin_model *model, const kin_hparams *hp, kin_weights *weights,
                          const kin_device *device, const kin_kernels *kernels, kin_err *err) {
    kin_output_layer *l = *out = calloc(1, sizeof *l);
    if (!l) return kin_err_set(err, "out of memory");
    *l = (kin_output_layer){.model = model, .hp = hp, .weights = weights, .device = device, .kernels = kernels};
    const bool has_matrix = kin_weights_n_tiles(weights) > 0;
    if (has_matrix) l->tile = malloc(MAX_ROWS * (size_t)hp->n_vocab * sizeof *l->tile);
    if (has_matrix && !l->tile) kin_err_set(err, "out of memory");
    if ((l->tile || !has_matrix) && open_stage(l, err) == 0) return 0;
    kin_output_layer_close(l);
    *out = NULL;
    return KIN_FAIL;
}

void kin_output_layer_close(kin_output_layer *l) {
    if (!l) return;
    kin_stage_close(l->stage);
    free(l->tile);
    free(l);
}

// Computes one tile: x // f32 [n, n_embd or stream width] -> its part of logits // f32 [n, n_vocab], from column `at` on. base:
// KIN_VARIANT_PLAIN, or 0 with the norm
static int run_tile(kin_output_layer *l, int base, int i_tile, size_t at, int n, const float *x, float *logits, kin_err *err) {
    size_t n_vocab = (size_t)l->model->hp.n_vocab, width = (size_t)kin_weights_tile(l->weights, i_tile)->ne[1], n_x;
    for (int done = 0; done < n; done += MAX_ROWS) {
        int rows = min_int(n - done, MAX_ROWS);
        kin_stage_shape shape = shape_of(l, base + i_tile, rows, &n_x);
        kin_stage_inputs in = {.x = x + (size_t)done * n_x};
        if (kin_stage_run(l->stage, shape, &in, l->tile, err) != 0) return KIN_FAIL;
        for (int i = 0; i < rows; i++) {
            memcpy(logits + (size_t)(done + i) * n_vocab + at, l->tile + (size_t)i * width, width * sizeof *logits);
        }
    }
    return 0;
}

// One tile after the other for all rows, each with its weights acquired: a pass streams them once.
static int run_by_tile(kin_output_layer *l, int base, int n, const float *x, float *logits, kin_err *err) {
    size_t at = 0;
    for (int i = 0; i < kin_weights_n_tiles(l->weights); i++) {
        int block = kin_weights_tile_compute_block(l->weights, i);
        if (kin_weights_acquire(l->weights, block, err) != 0) return KIN_FAIL;
        int rc = run_tile(l, base, i, at, n, x, logits, err);
        kin_weights_release(l->weights, block);
        if (rc != 0) return KIN_FAIL;
        at += (size_t)kin_weights_tile(l->weights, i)->ne[1];
    }
    return 0;
}

// True if the tiles must be acquired. Between passes an output matrix in memory is used as it is: a run of the streamer would
// drop what it has read ahead for the next pass.
static bool begin(kin_output_layer *l, int base) {
    if (l->device->is_gpu || (base == KIN_VARIANT_PLAIN && kin_weights_use_output(l->weights))) return false;
    return kin_weights_begin(l->weights, kin_weights_tile_compute_block(l->weights, 0), true);
}

static int run_all(kin_output_layer *l, int base, int n, const float *x, float *logits, kin_err *err) {
    if (begin(l, base)) return run_by_tile(l, base, n, x, logits, err);
    size_t n_vocab = (size_t)l->model->hp.n_vocab, n_x;
    for (int done = 0; done < n; done += MAX_ROWS) {
        int rows = min_int(n - done, MAX_ROWS);
        kin_stage_shape shape = shape_of(l, base + KIN_VARIANT_WHOLE, rows, &n_x);
        kin_stage_inputs in = {.x = x + (size_t)done * n_x};
        if (kin_stage_run(l->stage, shape, &in, logits + (size_t)done * n_vocab, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static int compute(kin_output_layer *l, int base, int n, const float *x, float *logits, kin_err *err) {
    const kin_hparams *hp = l->hp;
    if (run_all(l, base, n, x, logits, err) != 0 || kin_gguf_check_files(l->model->gguf, err) != 0) return KIN_FAIL;
    if (hp->logit_scale == 1 && hp->logit_softcap == 0) return 0;
    for (int i = 0; i < n; i++)
        l->kernels->cap(hp->n_vocab, hp->logit_scale, hp->logit_softcap, logits + (size_t)i * (size_t)hp->n_vocab);
    return 0;
}

int kin_output_layer_run(kin_output_layer *l, int n, const float *x, float *logits, kin_err *err) {
    return compute(l, 0, n, x, logits, err);
}

int kin_output_layer_project(kin_output_layer *l, int n, const float *hidden, float *logits, kin_err *err) {
    return compute(l, KIN_VARIANT_PLAIN, n, hidden, logits, err);
}

int kin_output_layer_hidden(kin_output_layer *l, int n, const float *x, float *hidden, kin_err *err) {
    size_t n_embd = (size_t)l->model->hp.n_embd, n_x;
    for (int done = 0; done < n; done += MAX_ROWS) {
        int rows = min_int(n - done, MAX_ROWS);
        kin_stage_shape shape = shape_of(l, KIN_VARIANT_HIDDEN, rows, &n_x);
        kin_stage_inputs in = {.x = x + (size_t)done * n_x};
        if (kin_stage_run(l->stage, shape, &in, hidden + (size_t)done * n_embd, err) != 0) return KIN_FAIL;
    }
    return kin_gguf_check_files(l->model->gguf, err);
}

void kin_output_layer_forget(kin_output_layer *l) {
    if (l) kin_stage_forget(l->stage);
}

uint64_t kin_output_layer_bytes(const kin_output_layer *l) {
    return l ? kin_stage_bytes(l->stage) : 0;
}
