#include "engine/kv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const ggml_fp16_t f16_zero = 0x0000, f16_minus_infinity = 0xfc00;

// The caches of a layer: one entry of each per token.
enum { KEYS, VALUES, INDEX_KEYS, N_CACHES };

struct kin_kv {
    kin_kv_options o;
    kin_kv_blocks *blocks;
    kin_kv_states *states;
    kin_kv_later later; // of operations whose step was not placed yet
    int n_states;
    size_t state_bytes;                           // of a recurrent layer's state at a checkpoint
    void *block_copy;                             // a block's bytes while it is copied within a GPU
    void (*copied)(void *user, int from, int to); // or NULL
    void *copied_user;

    struct ggml_context *cpu_ctx, *gpu_ctx;
    int n_layer;
    kin_layer *layers;                 // [n_layer] of the model
    bool *has_window;                  // [n_layer] whether the layer uses the window's blocks
    const kin_kernels *kernels;        // the CPU's blocks are laid out as kin_kv_layout says; NULL: as ggml's tensors
    size_t row_bytes;                  // of a token's keys and values in the widest layer
    struct ggml_tensor **of[N_CACHES]; // [n_layer] of the model; NULL for layers that are not here, or have none
    ggml_backend_buffer_t cpu_buf, gpu_buf;
    void *cpu_memory;
    size_t cpu_bytes;
};

// The width of one of a layer's caches; 0: the layer is recurrent, has no attention, or has none of these.
static int64_t width(const kin_hparams *hp, int il, int cache) {
    const kin_layer layer = kin_layer_of(hp, il);
    if (layer.is_recurrent || layer.has_no_attention) return 0;
    if (cache == INDEX_KEYS) return kin_layer_n_index(&layer);
    return cache == VALUES ? kin_layer_n_embd_v(&layer) : kin_layer_n_embd_k(&layer);
}

int kin_kv_home(const kin_hparams *hp, const kin_window *w, int il) {
    const int gpu_begin = kin_window_gpu_begin(w), begin = il >= gpu_begin ? gpu_begin : w->layer_begin;
    const int of = il - kin_layer_of(hp, il).kv_back;
    int home = begin;
    if (of >= begin) return of;
    while (home - kin_layer_of(hp, home).kv_back != of) home++;
    return home;
}

// Cells with compressed rows are F16 for any type, and so are the keys of indexers.
static enum ggml_type type_of(const kin_layer *layer, int cache, enum ggml_type type) {
    return layer->is_compressed || cache == INDEX_KEYS ? GGML_TYPE_F16 : type;
}

static size_t layer_row_bytes(const kin_hparams *hp, enum ggml_type type, int il) {
    const kin_layer layer = kin_layer_of(hp, il);
    size_t bytes = 0;
    for (int i = 0; i < N_CACHES; i++) bytes += ggml_row_size(type_of(&layer, i, type), width(hp, il, i));
    return bytes;
}

// Returns the bytes of a page of the model.
static size_t page_bytes_of(const kin_hparams *hp, enum ggml_type type) {
    size_t most = 0;
    for (int il = 0; il < hp->n_layer; il++) {
        const size_t row = layer_row_bytes(hp, type, il);
        if (row > most) most = row;
    }
    return most * KIN_KV_CELLS;
}

// Returns the cells of a layer.
static int64_t n_cells_of(const kin_hparams *hp, const kin_kv_options *o, int il, bool on_gpu) {
    const kin_layer layer = kin_layer_of(hp, il);
    const bool has_window = !on_gpu && kin_kv_window_has(&o->window, &layer);
    return has_window ? (int64_t)o->window.n_blocks * KIN_KV_CELLS : kin_kv_n_cells(o->n_ctx);
}

int kin_kv_source(const kin_kv *kv, int il) {
    return il - kv->layers[il].kv_back;
}

uint64_t kin_kv_bytes(const kin_hparams *hp, const kin_kv_options *o) {
    uint64_t bytes = kin_kv_states_bytes(hp, &o->windows, o->n_ctx);
    for (int i = 0; i < o->windows.n; i++) {
        const kin_window *w = &o->windows.at[i];
        for (int il = w->layer_begin; il < w->layer_end; il++) {
            if (kin_kv_home(hp, w, il) != il) continue;
            bytes += layer_row_bytes(hp, o->type, il) * (uint64_t)n_cells_of(hp, o, il, il >= kin_window_gpu_begin(w));
        }
    }
    return bytes;
}

int kin_kv_check_type(const kin_hparams *hp, enum ggml_type type, kin_err *err) {
    const int block = (int)ggml_blck_size(type);
    for (int il = 0; il < hp->n_layer; il++) {
        const kin_layer layer = kin_layer_of(hp, il);
        if (width(hp, il, 0) == 0 || layer.is_compressed) continue;
        const int odd = layer.head_dim % block != 0 ? layer.head_dim : layer.v_dim % block != 0 ? layer.v_dim : 0;
        if (odd == 0) continue;
        return kin_err_set(err, "a KV cache of type %s needs heads with a multiple of %d values, but this model's have %d",
                           ggml_type_name(type), block, odd);
    }
    return 0;
}

// New pages from the OS are zero and take no memory until a token is written: a long context is paid for as it fills.
static int alloc_cpu(kin_kv *kv, kin_err *err) {
    size_t n_layer = (size_t)kin_windows_n_layers(&kv->o.windows), align = 64;
    for (struct ggml_tensor *t = ggml_get_first_tensor(kv->cpu_ctx); t; t = ggml_get_next_tensor(kv->cpu_ctx, t)) {
        kv->cpu_bytes += (ggml_nbytes(t) + align - 1) / align * align;
    }
    if (!kv->cpu_bytes) return 0;
    kv->cpu_memory = mmap(NULL, kv->cpu_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (kv->cpu_memory == MAP_FAILED) {
        kv->cpu_memory = NULL;
        return kin_err_set(err, "out of memory: %zu MiB for the KV cache of %zu layers", kv->cpu_bytes >> 20, n_layer);
    }
    kv->cpu_buf = ggml_backend_cpu_buffer_from_ptr(kv->cpu_memory, kv->cpu_bytes);
    char *at = kv->cpu_memory;
    for (struct ggml_tensor *t = ggml_get_first_tensor(kv->cpu_ctx); t; t = ggml_get_next_tensor(kv->cpu_ctx, t)) {
        if (ggml_backend_tensor_alloc(kv->cpu_buf, t, at) != GGML_STATUS_SUCCESS)
            return kin_err_set(err, "cannot place the KV cache");
        at += (ggml_nbytes(t) + align - 1) / align * align;
    }
    return 0;
}

static int alloc_gpu(kin_kv *kv, const kin_device *gpu, kin_err *err) {
    if (!gpu) return 0;
    kv->gpu_buf = ggml_backend_alloc_ctx_tensors_from_buft(kv->gpu_ctx, gpu->buft);
    if (!kv->gpu_buf)
        return kin_err_set(err, "%s has no room for its part of the KV cache: use fewer --gpu-layers or a smaller --ctx",
                           gpu->name);
    ggml_backend_buffer_clear(kv->gpu_buf, 0);
    return 0;
}

// Makes the tensors of the layers whose keys and values are stored here, without memory. Returns the GPU that has some of them;
// NULL: none has.
static const kin_device *make_tensors(kin_kv *kv, const kin_hparams *hp, const kin_device *(*device_of)(const void *user, int il),
                                      const void *user) {
    const kin_kv_options *o = &kv->o;
    const kin_device *gpu = NULL;
    for (int i = 0; i < o->windows.n; i++) {
        const kin_window *w = &o->windows.at[i];
        for (int il = w->layer_begin; il < w->layer_end; il++) {
            if (width(hp, il, 0) == 0 || kin_kv_home(hp, w, il) != il) continue;
            const kin_device *device = device_of(user, il);
            if (device->is_gpu) gpu = device;
            if (!device->is_gpu) kv->kernels = device->kernels;
            struct ggml_context *ctx = device->is_gpu ? kv->gpu_ctx : kv->cpu_ctx;
            const int64_t n_cells = n_cells_of(hp, o, il, device->is_gpu);
            kv->has_window[il] = !device->is_gpu && kin_kv_window_has(&o->window, &kv->layers[il]);
            for (int i = 0; i < N_CACHES; i++)
                if (width(hp, il, i) > 0)
                    kv->of[i][il] = ggml_new_tensor_2d(ctx, type_of(&kv->layers[il], i, o->type), width(hp, il, i), n_cells);
        }
    }
    return gpu;
}

int kin_kv_open(kin_kv **out, const kin_hparams *hp, const kin_kv_options *o,
                const kin_device *(*device_of)(const void *user, int il), const void *user, kin_err *err) {
    *out = NULL;
    if (kin_kv_check_type(hp, o->type, err) != 0) return KIN_FAIL;
    size_t n_layer = (size_t)kin_windows_n_layers(&o->windows);
    kin_kv *kv = calloc(1, sizeof *kv);
    if (!kv) return kin_err_set(err, "out of memory");
    kv->o = *o;
    kv->n_layer = hp->n_layer;
    kv->row_bytes = page_bytes_of(hp, o->type) / KIN_KV_CELLS;
    kv->layers = calloc((size_t)hp->n_layer, sizeof *kv->layers);
    for (int il = 0; il < hp->n_layer && kv->layers; il++) kv->layers[il] = kin_layer_of(hp, il);
    kv->has_window = calloc((size_t)hp->n_layer, sizeof *kv->has_window);
    bool ok = true;
    for (int i = 0; i < N_CACHES; i++) {
        kv->of[i] = calloc((size_t)hp->n_layer, sizeof *kv->of[i]);
        ok = ok && kv->of[i];
    }
    struct ggml_init_params params = {.mem_size = (N_CACHES * n_layer + 1) * ggml_tensor_overhead(), .no_alloc = true};
    kv->cpu_ctx = ggml_init(params);
    kv->gpu_ctx = ggml_init(params);
    kv->block_copy = malloc(kv->row_bytes * KIN_KV_CELLS);
    if (!kv->layers || !kv->has_window || !kv->block_copy || !ok || !kv->cpu_ctx || !kv->gpu_ctx) {
        kin_err_set(err, "out of memory");
        goto fail;
    }
    kv->n_states = kin_kv_n_states(hp, o->n_ctx);
    kv->state_bytes = kin_kv_states_bare_floats(hp) * sizeof(float);
    if (kin_kv_blocks_open(&kv->blocks, o->n_ctx, kv->n_states, &o->window, err) != 0) goto fail;
    if (kin_kv_states_open(&kv->states, hp, &o->windows, o->n_ctx, err) != 0) goto fail;

    const kin_device *gpu = make_tensors(kv, hp, device_of, user);
    if (alloc_cpu(kv, err) != 0 || alloc_gpu(kv, gpu, err) != 0) goto fail;
    *out = kv;
    return 0;

fail:
    kin_kv_close(kv);
    return KIN_FAIL;
}

void kin_kv_close(kin_kv *kv) {
    if (!kv) return;
    ggml_backend_buffer_free(kv->cpu_buf);
    ggml_backend_buffer_free(kv->gpu_buf);
    if (kv->cpu_memory) munmap(kv->cpu_memory, kv->cpu_bytes);
    if (kv->cpu_ctx) ggml_free(kv->cpu_ctx);
    if (kv->gpu_ctx) ggml_free(kv->gpu_ctx);
    free(kv->layers);
    free(kv->has_window);
    for (int i = 0; i < N_CACHES; i++) free(kv->of[i]);
    free(kv->block_copy);
    kin_kv_blocks_close(kv->blocks);
    kin_kv_states_close(kv->states);
    free(kv->later.states.at);
    free(kv->later.blocks.at);
    free(kv);
}

static int32_t seq_of(const kin_batch *batch, int i) {
    return batch->seq ? batch->seq[i] : 0;
}

bool kin_batch_loses(const kin_batch *batch, const kin_kv_op *op) {
    if (op->seq < 0) return true;
    int32_t begin = op->seq == op->from ? op->n : 0;
    for (int i = 0; i < batch->n_tokens; i++) {
        if (seq_of(batch, i) == op->seq && batch->pos[i] >= begin) return true;
    }
    return false;
}

static void copy_block(kin_kv *kv, struct ggml_tensor *t, int from_block, int to_block) {
    size_t bytes = t->nb[1] * KIN_KV_CELLS, from = (size_t)from_block * bytes, to = (size_t)to_block * bytes;
    if (t->buffer == kv->cpu_buf) {
        memcpy((char *)t->data + to, (const char *)t->data + from, bytes);
        return;
    }
    ggml_backend_tensor_get(t, kv->block_copy, from, bytes);
    ggml_backend_tensor_set(t, kv->block_copy, to, bytes);
}

static void copy_layer(kin_kv *kv, int il, int from_block, int to_block) {
    for (int i = 0; i < N_CACHES; i++)
        if (kv->of[i][il]) copy_block(kv, kv->of[i][il], from_block, to_block);
}

_Static_assert((int)KIN_WINDOW_LOADS == (int)KIN_PAGES_MAX, "windows have room for the pages of a request");

static int apply(kin_kv *kv, const kin_kv_op *op, kin_kv_copy *copy, kin_err *err) {
    if (kin_kv_blocks_apply(kv->blocks, op, copy, err) != 0) return KIN_FAIL;
    kin_kv_later *later = &kv->later;
    if (copy->state_from >= 0 && kin_state_copies_add(&later->states, copy->state_from, copy->state_to, err) != 0)
        return KIN_FAIL;
    if (copy->window_from >= 0 && kin_state_copies_add(&later->blocks, copy->window_from, copy->window_to, err) != 0)
        return KIN_FAIL;
    for (int il = 0; copy->from >= 0 && il < kv->n_layer; il++) {
        if (kv->has_window[il]) continue;
        copy_layer(kv, il, copy->from, copy->to);
    }
    if (copy->from >= 0 && kv->copied) kv->copied(kv->copied_user, copy->from, copy->to);
    return 0;
}

// If the token's cell is among the first n of block copy.from, the token must also be written to block copy.to.
static int copy_cell(kin_kv_copies *copies, int row, int64_t cell, kin_kv_copy copy, int n, kin_err *err) {
    if (cell / KIN_KV_CELLS != copy.from || cell % KIN_KV_CELLS >= n) return 0;
    if (!copies) return kin_err_set(err, "a sequence branches off within a step that has no list of copies");
    if (copies->n == KIN_KV_COPIES)
        return kin_err_set(err, "sequences that branch in a step have more than %d of its tokens in common", KIN_KV_COPIES);
    const int32_t at = (int32_t)(cell % KIN_KV_CELLS), to = copy.to * KIN_KV_CELLS + at;
    copies->at[copies->n++] = (kin_row_cell){row, to, copy.window_to >= 0 ? copy.window_to * KIN_KV_CELLS + at : to};
    return 0;
}

// After a block was copied: the keys and values of the batch's first n_placed tokens were not in it yet, so they go to both.
static int copy_placed(const int64_t *cells, int n_placed, kin_kv_copies *copies, kin_kv_copy copy, int n, kin_err *err) {
    int n_before = copies ? copies->n : 0;
    for (int i = 0; i < n_placed; i++) {
        if (copy_cell(copies, i, cells[i], copy, n, err) != 0) return KIN_FAIL;
    }
    for (int i = 0; i < n_before; i++) {
        if (copy_cell(copies, copies->at[i].row, copies->at[i].cell, copy, n, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// Applies operations from *i on, up to one that needs tokens of the batch that are not placed yet.
static int apply_ops(kin_kv *kv, const kin_batch *batch, int *i, int n_placed, const int64_t *cells, kin_kv_copies *copies,
                     kin_err *err) {
    for (; *i < batch->n_ops; ++*i) {
        const kin_kv_op *op = &batch->ops[*i];
        kin_kv_copy copy;
        bool waits = op->seq >= 0 && op->seq != op->from && kin_kv_blocks_n_tokens(kv->blocks, op->from) < op->n;
        if (waits && n_placed < batch->n_tokens) return 0;
        const kin_batch placed = {.n_tokens = n_placed, .pos = batch->pos, .seq = batch->seq};
        if (n_placed > 0 && op->seq != op->from && kv->n_states > 0)
            return kin_err_set(err, "sequences of a model with recurrent layers cannot branch within a step");
        if (n_placed > 0 && kin_batch_loses(&placed, op)) return kin_err_set(err, "a step forgets tokens of its own");
        if (apply(kv, op, &copy, err) != 0) return KIN_FAIL;
        if (copy.from >= 0 && copy_placed(cells, n_placed, copies, copy, op->n % KIN_KV_CELLS, err) != 0) return KIN_FAIL;
    }
    return 0;
}

int kin_kv_place(kin_kv *kv, const kin_batch *batch, int64_t *cells, kin_kv_copies *copies, kin_err *err) {
    int i = 0, i_op = 0;
    if (copies) copies->n = 0;
    kin_kv_blocks_begin_step(kv->blocks);
    for (; i < batch->n_tokens; i++) {
        if (apply_ops(kv, batch, &i_op, i, cells, copies, err) != 0) goto fail;
        if (kin_kv_blocks_append(kv->blocks, seq_of(batch, i), batch->pos[i], &cells[i], err) != 0) goto fail;
    }
    if (apply_ops(kv, batch, &i_op, i, cells, copies, err) == 0) return 0;
fail:
    while (--i >= 0) kin_kv_blocks_undo(kv->blocks, seq_of(batch, i), batch->pos[i]);
    return KIN_FAIL;
}

int kin_kv_runs(const kin_kv *kv, const kin_batch *batch, kin_run *runs, int32_t *rows) {
    int n_runs = 0;
    for (int i = 0; i < batch->n_tokens; i++) {
        const kin_kv_run run = kin_kv_blocks_run(kv->blocks, seq_of(batch, i));
        if (batch->pos[i] != run.begin) continue;
        kin_run *to = &runs[n_runs++];
        *to = (kin_run){.state = run.state, .rows = rows, .n_logged = run.n_logged, .stores = run.stores};
        to->is_new = run.begin - run.n_logged == 0;
        for (int k = i; k < batch->n_tokens; k++)
            if (seq_of(batch, k) == seq_of(batch, i)) rows[to->n++] = k;
        rows += to->n;
    }
    return n_runs;
}

void kin_kv_swap_later(kin_kv *kv, kin_kv_later *later) {
    const kin_kv_later taken = kv->later;
    kv->later = *later;
    kv->later.states.n = kv->later.blocks.n = 0;
    *later = taken;
}

void kin_kv_copy_later(kin_kv *kv, int il, const kin_kv_later *later) {
    kin_kv_states_copy(kv->states, il, &later->states);
    for (int i = 0; i < later->blocks.n && kv->has_window[il] && kv->of[KEYS][il]; i++) {
        copy_layer(kv, il, later->blocks.at[i].from, later->blocks.at[i].to);
    }
}

void kin_kv_copy_now(kin_kv *kv) {
    for (int il = 0; il < kv->n_layer; il++) kin_kv_copy_later(kv, il, &kv->later);
    kv->later.states.n = kv->later.blocks.n = 0;
}

float *kin_kv_layer_states(const kin_kv *kv, int il) {
    return kin_kv_states_layer(kv->states, il);
}

void kin_kv_undo(kin_kv *kv, const kin_batch *batch) {
    for (int i = 0; i < batch->n_tokens; i++) kin_kv_blocks_undo(kv->blocks, seq_of(batch, i), batch->pos[i]);
}

void kin_kv_clear(kin_kv *kv) {
    kin_kv_copy none;
    kin_err err;
    kin_kv_blocks_apply(kv->blocks, &(kin_kv_op){.seq = -1}, &none, &err);
}

int kin_kv_n_used(const kin_kv *kv) {
    return kin_kv_blocks_end(kv->blocks) * KIN_KV_CELLS;
}

void kin_kv_table(const kin_kv *kv, int32_t seq, int32_t *table) {
    int n;
    const int32_t *blocks = kin_kv_blocks_table(kv->blocks, seq, &n);
    memset(table, 0, (size_t)kin_kv_blocks_n(kv->blocks) * sizeof *table);
    if (n) memcpy(table, blocks, (size_t)n * sizeof *table);
}

void kin_kv_window_table(const kin_kv *kv, int32_t seq, int32_t *table) {
    int n;
    const int32_t *blocks = kin_kv_blocks_window_table(kv->blocks, seq, &n);
    memset(table, 0, (size_t)kin_kv_blocks_n(kv->blocks) * sizeof *table);
    if (n) memcpy(table, blocks, (size_t)n * sizeof *table);
}

int64_t kin_kv_window_cell(const kin_kv *kv, int32_t seq, int32_t pos) {
    int n;
    const int32_t *blocks = kin_kv_blocks_window_table(kv->blocks, seq, &n);
    kin_assert(pos / KIN_KV_CELLS < n);
    return (int64_t)blocks[pos / KIN_KV_CELLS] * KIN_KV_CELLS + pos % KIN_KV_CELLS;
}

// A token at `pos` of `seq` attends to all positions of its sequence up to its own. Their blocks are among the first n_kv cells,
// because the token was already placed.
static void mask_row(const kin_kv *kv, int32_t seq, int32_t pos, int n_kv, int window, ggml_fp16_t *mask) {
    int n_blocks, n_seen = kin_kv_blocks_n_tokens(kv->blocks, seq);
    const int32_t *blocks = kin_kv_blocks_table(kv->blocks, seq, &n_blocks);
    if (pos < n_seen) n_seen = pos + 1;
    for (int i = 0; i < n_kv; i++) mask[i] = f16_minus_infinity;
    for (int i = window > 0 && pos >= window ? pos - window + 1 : 0; i < n_seen; i++)
        mask[blocks[i / KIN_KV_CELLS] * KIN_KV_CELLS + i % KIN_KV_CELLS] = f16_zero;
}

void kin_kv_mask(const kin_kv *kv, const kin_batch *batch, const int32_t *rows, int n_rows, int n_kv, int window,
                 ggml_fp16_t *mask) {
    for (int i = 0; i < n_rows; i++, mask += n_kv) {
        int row = rows ? rows[i] : i;
        mask_row(kv, seq_of(batch, row), batch->pos[row], n_kv, window, mask);
    }
}

// ---- pages

size_t kin_kv_page_bytes(const kin_kv *kv) {
    return kv->row_bytes * KIN_KV_CELLS;
}

int kin_kv_n_layers(const kin_kv *kv) {
    return kv->n_layer;
}

bool kin_kv_has_layer(const kin_kv *kv, int il) {
    return kv->of[KEYS][il] != NULL;
}

bool kin_kv_is_on_gpu(const kin_kv *kv, int il) {
    return kv->of[KEYS][il]->buffer != kv->cpu_buf;
}

int kin_kv_block(const kin_kv *kv, int32_t seq, int i) {
    int n;
    const int32_t *table = kin_kv_blocks_table(kv->blocks, seq, &n);
    kin_assert(i >= 0 && i < n);
    return table[i];
}

// Returns the bytes of a block's keys or values in a layer; cache NULL: it has none.
static size_t block_bytes(const struct ggml_tensor *cache) {
    return cache ? cache->nb[1] * KIN_KV_CELLS : 0;
}

// Returns the block of a layer that holds block `i` of a sequence, which must exist.
static int block_of_layer(const kin_kv *kv, int32_t seq, int i, int il) {
    int n;
    const int32_t *table = kin_kv_blocks_window_table(kv->blocks, seq, &n);
    kin_assert(i >= 0 && i < n);
    return kv->has_window[il] ? table[i] : kin_kv_block(kv, seq, i);
}

void kin_kv_page_get(const kin_kv *kv, int32_t seq, int i, int il, uint8_t *page) {
    const size_t block = (size_t)block_of_layer(kv, seq, i, il);
    const uint8_t *end = page + kin_kv_page_bytes(kv);
    for (int i_cache = 0; i_cache < N_CACHES; i_cache++) {
        struct ggml_tensor *of = kv->of[i_cache][il];
        const size_t bytes = block_bytes(of), at = block * bytes;
        if (!of) continue;
        if (of->buffer == kv->cpu_buf)
            memcpy(page, (const char *)of->data + at, bytes);
        else
            ggml_backend_tensor_get(of, page, at, bytes);
        page += bytes;
    }
    memset(page, 0, (size_t)(end - page));
}

void kin_kv_page_set(kin_kv *kv, int32_t seq, int i, int il, const uint8_t *page) {
    const size_t block = (size_t)block_of_layer(kv, seq, i, il);
    for (int i_cache = 0; i_cache < N_CACHES; i_cache++) {
        struct ggml_tensor *of = kv->of[i_cache][il];
        const size_t bytes = block_bytes(of), at = block * bytes;
        if (!of) continue;
        if (of->buffer == kv->cpu_buf)
            memcpy((char *)of->data + at, page, bytes);
        else
            ggml_backend_tensor_set(of, page, at, bytes);
        page += bytes;
    }
}

// Infinities and NaN have all exponent bits set, so the addition carries into the sign bit.
static uint64_t find_infinite(uint64_t four_f16) {
    return ((four_f16 & UINT64_C(0x7c007c007c007c00)) + UINT64_C(0x0400040004000400)) & UINT64_C(0x8000800080008000);
}

// f16 [n], n a multiple of 4
static bool are_finite(const uint8_t *numbers, size_t n) {
    uint64_t found = 0;
    for (size_t i = 0; i < n; i += 4) {
        uint64_t four;
        memcpy(&four, numbers + 2 * i, sizeof four);
        found |= find_infinite(four);
    }
    return !found;
}

// Keys or values of 64 cells, Q8_0 in ggml's layout: each block of 32 values begins with its scale.
static bool are_ggml_scales_finite(const uint8_t *cells, size_t bytes) {
    const size_t block = ggml_row_size(GGML_TYPE_Q8_0, ggml_blck_size(GGML_TYPE_Q8_0));
    uint64_t found = 0;
    for (size_t at = 0; at < bytes; at += block) {
        uint16_t scale;
        memcpy(&scale, cells + at, sizeof scale);
        found |= find_infinite(scale);
    }
    return !found;
}

// The same in kin's layout: for each head the values, then the scales.
static bool are_kernel_scales_finite(int n_head_kv, int dim, const uint8_t *cells, size_t bytes) {
    const size_t head = bytes / (size_t)n_head_kv, values = (size_t)dim * KIN_KV_CELLS;
    bool are = true;
    for (int i = 0; i < n_head_kv; i++, cells += head) are = are && are_finite(cells + values, (head - values) / 2);
    return are;
}

bool kin_kv_page_is_finite(const kin_kv *kv, int il, const uint8_t *page) {
    const kin_layer *layer = &kv->layers[il];
    const size_t k_bytes = block_bytes(kv->of[KEYS][il]), v_bytes = block_bytes(kv->of[VALUES][il]), both = k_bytes + v_bytes;
    if (!are_finite(page + both, block_bytes(kv->of[INDEX_KEYS][il]) / sizeof(ggml_fp16_t))) return false;
    if (type_of(layer, KEYS, kv->o.type) == GGML_TYPE_F16) return are_finite(page, both / sizeof(ggml_fp16_t));
    if (!kv->kernels || kin_kv_is_on_gpu(kv, il))
        return are_ggml_scales_finite(page, k_bytes) && are_ggml_scales_finite(page + k_bytes, v_bytes);
    if (!are_kernel_scales_finite(layer->n_head_kv, layer->head_dim, page, k_bytes)) return false;
    return v_bytes == 0 || are_kernel_scales_finite(layer->n_head_kv, layer->v_dim, page + k_bytes, v_bytes);
}

// ---- states at checkpoints

static size_t ceil_div(size_t a, size_t b) {
    return (a + b - 1) / b;
}

// Returns the most parts of a layer, of pages of this size; 0: these layers cannot be stored, since there are no pages, or their
// parts are more than there are keys for.
static size_t most_parts_of(size_t state_bytes, const kin_kv_window *window, size_t page_bytes) {
    const size_t n_window = (size_t)kin_kv_window_n_blocks(window);
    const size_t n_state = page_bytes > 0 ? ceil_div(state_bytes, page_bytes) : 0;
    const size_t n = n_state > n_window ? n_state : n_window;
    return page_bytes > 0 && n <= KIN_KV_PARTS_MAX ? n : 0;
}

bool kin_kv_is_storable(const kin_kv *kv) {
    const bool has_parts = kv->state_bytes > 0 || kv->o.window.n_blocks > 0;
    return kin_kv_page_bytes(kv) > 0 && (!has_parts || most_parts_of(kv->state_bytes, &kv->o.window, kin_kv_page_bytes(kv)) > 0);
}

int kin_kv_n_parts(const kin_kv *kv, int il, int n_blocks) {
    const int n_window = kin_kv_window_n_blocks(&kv->o.window);
    if (!kin_kv_is_storable(kv)) return 0;
    if (kv->layers[il].is_recurrent) return (int)ceil_div(kv->state_bytes, kin_kv_page_bytes(kv));
    if (!kin_kv_window_has(&kv->o.window, &kv->layers[il]) || (kv->layers[il].kv_back > 0 && !kv->of[KEYS][il])) return 0;
    return n_window < n_blocks ? n_window : n_blocks;
}

bool kin_kv_has_parts(const kin_kv *kv, int il) {
    return kin_kv_layer_states(kv, il) || (kv->has_window[il] && kv->of[KEYS][il]);
}

bool kin_kv_is_at_checkpoint(const kin_kv *kv, int32_t seq, int n_blocks) {
    const int n = n_blocks * KIN_KV_CELLS;
    return kin_kv_n_tokens(kv, seq) == n && kin_kv_blocks_checkpoint(kv->blocks, seq, n) == n;
}

// Returns the block of a sequence at a checkpoint that part `i` of a windowed layer is.
static int block_of_part(const kin_kv *kv, int32_t seq, int il, int i) {
    const int n_blocks = kin_kv_n_tokens(kv, seq) / KIN_KV_CELLS;
    return n_blocks - kin_kv_n_parts(kv, il, n_blocks) + i;
}

void kin_kv_part_get(const kin_kv *kv, int32_t seq, int il, int i, uint8_t *part) {
    const size_t n = kin_kv_page_bytes(kv) / sizeof(float);
    if (kv->has_window[il])
        kin_kv_page_get(kv, seq, block_of_part(kv, seq, il, i), il, part);
    else
        kin_kv_states_get(kv->states, il, kin_kv_blocks_state(kv->blocks, seq), (size_t)i * n, n, (float *)part);
}

void kin_kv_part_set(kin_kv *kv, int32_t seq, int il, int i, const uint8_t *part) {
    const size_t n = kin_kv_page_bytes(kv) / sizeof(float);
    if (kv->has_window[il])
        kin_kv_page_set(kv, seq, block_of_part(kv, seq, il, i), il, part);
    else
        kin_kv_states_set(kv->states, il, kin_kv_blocks_state(kv->blocks, seq), (size_t)i * n, n, (const float *)part);
}

bool kin_kv_part_is_finite(const kin_kv *kv, int il, const uint8_t *part) {
    uint32_t found = 0;
    if (kv->has_window[il]) return kin_kv_page_is_finite(kv, il, part);
    for (size_t i = 0; i < kin_kv_page_bytes(kv); i += sizeof found) {
        uint32_t one;
        memcpy(&one, part + i, sizeof one);
        found |= ((one & UINT32_C(0x7f800000)) + UINT32_C(0x00800000)) & UINT32_C(0x80000000);
    }
    return !found;
}

int kin_kv_load(kin_kv *kv, int32_t seq, int first, int n, bool has_states, kin_err *err) {
    if (kin_kv_n_tokens(kv, seq) != first * KIN_KV_CELLS)
        return kin_err_set(err, "sequence %d has %d tokens, so no pages from block %d on can follow", (int)seq,
                           kin_kv_n_tokens(kv, seq), first);
    return kin_kv_blocks_load(kv->blocks, seq, n, has_states, err);
}

// Counts the parts of all layers at a checkpoint, and the layers that have pages.
static size_t count_parts(const kin_hparams *hp, const kin_kv_options *o, int *n_page_layers) {
    const size_t state_bytes = kin_kv_states_bare_floats(hp) * sizeof(float), page_bytes = page_bytes_of(hp, o->type);
    size_t n = 0;
    *n_page_layers = 0;
    if (most_parts_of(state_bytes, &o->window, page_bytes) == 0) return 0;
    for (int il = 0; il < hp->n_layer; il++) {
        const kin_layer layer = kin_layer_of(hp, il);
        if (layer.is_recurrent)
            n += ceil_div(state_bytes, page_bytes);
        else if (layer.kv_back == 0 && kin_kv_window_has(&o->window, &layer))
            n += (size_t)kin_kv_window_n_blocks(&o->window);
        else
            *n_page_layers += layer.kv_back == 0 && width(hp, il, 0) > 0;
    }
    return n;
}

uint64_t kin_kv_checkpoint_bytes(const kin_hparams *hp, const kin_kv_options *o) {
    int n_page_layers;
    return count_parts(hp, o, &n_page_layers) * (page_bytes_of(hp, o->type) + KIN_KV_PAGE_FRAME);
}

int kin_kv_checkpoint_gap(const kin_hparams *hp, const kin_kv_options *o) {
    enum { LEAST = 512 / KIN_KV_CELLS, MOST = 8192 / KIN_KV_CELLS };
    int n_page_layers;
    const size_t n_parts = count_parts(hp, o, &n_page_layers);
    if (n_parts == 0) return 0;
    const size_t n = n_parts / (size_t)(n_page_layers > 0 ? n_page_layers : 1);
    return (int)(n < LEAST ? LEAST : n > MOST ? MOST : n) * KIN_KV_CELLS;
}

int kin_kv_n_tokens(const kin_kv *kv, int32_t seq) {
    return kin_kv_blocks_n_tokens(kv->blocks, seq);
}

struct ggml_tensor *kin_kv_k(const kin_kv *kv, int il) {
    return kv->of[KEYS][il];
}

struct ggml_tensor *kin_kv_v(const kin_kv *kv, int il) {
    return kv->of[VALUES][il];
}

struct ggml_tensor *kin_kv_index(const kin_kv *kv, int il) {
    return kv->of[INDEX_KEYS][il];
}

kin_kv_cells kin_kv_cells_of(const kin_kv *kv, int il) {
    kin_assert(kv->of[KEYS][il] && kv->of[VALUES][il]);
    return (kin_kv_cells){.layout = kin_layer_kv(&kv->layers[il], (int)kv->of[KEYS][il]->type),
                          .kernels = kin_kv_is_on_gpu(kv, il) ? NULL : kv->kernels,
                          .k = kv->of[KEYS][il],
                          .v = kv->of[VALUES][il]};
}

bool kin_kv_has_window_cells(const kin_kv *kv, int il) {
    return kv->has_window[il];
}

void kin_kv_on_copy(kin_kv *kv, void (*copied)(void *user, int from, int to), void *user) {
    kv->copied = copied;
    kv->copied_user = user;
}
