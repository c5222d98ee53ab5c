#include "engine/weights/blocks.h"

#include <string.h>

enum {
    TILE_MOST = 16 << 20, // maximum bytes per tile of the output matrix
    TILE_LEAST = 2 << 20,
    TILE_ROWS_STEP = 64, // a multiple of every packed layout's row group
};

// The layout is plain, to be chosen, or turned.
static void add_piece(kin_weights_block *b, kin_weights_piece p, const kin_device *cpu) {
    kin_assert(b->n_pieces < KIN_WEIGHTS_PIECES);
    kin_device device = *cpu;
    if (p.experts && p.ne[2] == 1) device.repack_buft = NULL; // ggml cannot multiply a single expert of repacked weights
    if (p.layout != KIN_LAYOUT_TURNED) p.layout = kin_device_layout(&device, p.type, p.ne);
    if (p.n_runs > 1 && p.layout == KIN_LAYOUT_REPACK) p.layout = KIN_LAYOUT_PLAIN; // ggml packs only contiguous weights
    p.offset = kin_weights_align_up(b->packed_bytes, KIN_WEIGHTS_ALIGN);
    b->packed_bytes = p.offset + kin_weights_piece_bytes(&p);
    b->bytes += kin_weights_piece_bytes(&p);
    b->pack = b->pack || p.layout != KIN_LAYOUT_PLAIN || p.n_runs > 1;
    b->experts = b->experts || p.experts;
    b->pieces[b->n_pieces++] = p;
}

static const kin_slice full;

static void add_tensor(kin_weights_block *b, const kin_gguf_tensor *t, const kin_slice *slice, struct ggml_tensor **slot,
                       const kin_device *cpu, bool experts) {
    if (!t) return;
    kin_slice_view v = kin_slice_view_of(slice, t);
    kin_weights_piece p = {.data = t->data + v.first,
                           .i_file = t->i_file,
                           .file_offset = t->offset + v.first,
                           .bytes = v.bytes,
                           .run = v.run,
                           .n_runs = v.n_runs,
                           .stride = v.stride,
                           .type = t->type,
                           .slot = slot};
    memcpy(p.ne, v.ne, sizeof p.ne);
    p.experts = experts;
    add_piece(b, p, cpu);
}

// In a packed block the matrices of each expert lie side by side, so that one read brings an expert.
static void interleave_experts(kin_weights_block *b) {
    uint64_t at = 0, n_expert = 0;
    for (int i = 0; i < b->n_pieces; i++) {
        kin_weights_piece *p = &b->pieces[i];
        n_expert = (uint64_t)p->ne[2];
        p->offset = kin_weights_align_up(at, KIN_WEIGHTS_ALIGN);
        at = p->offset + kin_weights_piece_bytes(p) / n_expert;
    }
    b->expert_stride = kin_weights_align_up(at, KIN_STREAM_ALIGN);
    b->packed_bytes = b->expert_stride * n_expert;
}

// Of each head the file has the rows that make its keys, then those that make its values. The latter are used as they are; the
// former are multiplied from the other side.
static void add_fused(kin_weights_block *b, const kin_model *m, int il, struct ggml_tensor **slots, const kin_device *cpu) {
    const kin_gguf_tensor *t = m->layers[il].w[KIN_W_LATENT_KV_B];
    const kin_latent *l = &m->hp.latent;
    const int64_t n_head = kin_layer_of(&m->hp, il).n_head;
    const uint64_t row = t->n_bytes / (uint64_t)t->ne[1], k_bytes = (uint64_t)l->k_dim * row, v_bytes = (uint64_t)l->v_dim * row;
    kin_weights_piece keys = {.data = t->data,
                              .i_file = t->i_file,
                              .file_offset = t->offset,
                              .bytes = k_bytes * (uint64_t)n_head,
                              .run = k_bytes,
                              .n_runs = (uint64_t)n_head,
                              .stride = k_bytes + v_bytes,
                              .type = GGML_TYPE_F16,
                              .ne = {l->k_dim, l->n_latent, n_head},
                              .slot = slots ? &slots[KIN_W_LATENT_K_B] : NULL,
                              .layout = KIN_LAYOUT_TURNED,
                              .turned_type = t->type};
    kin_weights_piece values = keys;
    values.data += k_bytes;
    values.file_offset += k_bytes;
    values.bytes = v_bytes * (uint64_t)n_head;
    values.run = v_bytes;
    values.type = t->type;
    memcpy(values.ne, (const int64_t[]){l->n_latent, l->v_dim, n_head}, sizeof values.ne);
    values.slot = slots ? &slots[KIN_W_LATENT_V_B] : NULL;
    values.layout = KIN_LAYOUT_PLAIN;
    add_piece(b, keys, cpu);
    add_piece(b, values, cpu);
}

void kin_weights_add_layer_block(kin_weights_block *b, const kin_model *m, int il, kin_weight_block kind,
                                 const kin_slices *slices, struct ggml_tensor **slots, const kin_device *cpu) {
    b->i_packed = (size_t)il * KIN_WEIGHT_BLOCK_COUNT + (size_t)kind;
    const kin_gguf_tensor *const *weights = m->layers[il].w;
    for (int id = 0; id < KIN_W_COUNT; id++) {
        if (kin_weight_block_of(id) != kind) continue;
        if (id == KIN_W_LATENT_KV_B && weights[id])
            add_fused(b, m, il, slots, cpu);
        else
            add_tensor(b, weights[id], &slices->of[id], slots ? &slots[id] : NULL, cpu, kin_weight_is_experts(id));
    }
    if (b->experts && cpu->kernels) interleave_experts(b);
}

// A tile is as large as the largest weight of a layer: larger tiles would need a larger ring, and each would have to wait until
// that much of it is free.
int64_t kin_weights_tile_rows(const kin_model *m) {
    const kin_gguf_tensor *t = m->output;
    uint64_t bytes = TILE_LEAST;
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *w = m->layers[0].w[id];
        if (w && !kin_weight_is_experts(id) && w->n_bytes > bytes) bytes = w->n_bytes;
    }
    if (bytes > TILE_MOST) bytes = TILE_MOST;
    int64_t rows = (int64_t)bytes / (int64_t)(t->n_bytes / (uint64_t)t->ne[1]) / TILE_ROWS_STEP * TILE_ROWS_STEP;
    return rows < TILE_ROWS_STEP ? TILE_ROWS_STEP : rows;
}

int kin_weights_count_tiles(const kin_model *m) {
    return (int)((m->output->ne[1] + kin_weights_tile_rows(m) - 1) / kin_weights_tile_rows(m));
}

void kin_weights_add_tile_block(kin_weights_block *b, const kin_model *m, int i_tile, struct ggml_tensor **slot,
                                const kin_device *cpu) {
    const kin_gguf_tensor *t = m->output;
    int64_t rows = kin_weights_tile_rows(m), begin = i_tile * rows, left = t->ne[1] - begin;
    uint64_t row_bytes = t->n_bytes / (uint64_t)t->ne[1], at = (uint64_t)begin * row_bytes;
    if (left < rows) rows = left;
    b->i_packed = (size_t)m->hp.n_layer * KIN_WEIGHT_BLOCK_COUNT + (size_t)i_tile;
    add_piece(b,
              (kin_weights_piece){.data = t->data + at,
                                  .i_file = t->i_file,
                                  .file_offset = t->offset + at,
                                  .bytes = (uint64_t)rows * row_bytes,
                                  .run = (uint64_t)rows * row_bytes,
                                  .n_runs = 1,
                                  .type = t->type,
                                  .ne = {t->ne[0], rows, 1},
                                  .slot = slot},
              cpu);
}

static kin_weights_block *new_block(kin_weights *w, const kin_device *device, int i_compute_block) {
    kin_weights_block *b = &w->blocks[w->n_blocks++];
    b->device = device;
    b->i_compute_block = i_compute_block;
    return b;
}

int kin_weights_n_compute_blocks(const kin_hparams *hp, int il) {
    const kin_layer layer = kin_layer_of(hp, il);
    return layer.has_no_attention || layer.has_no_ff ? 1 : layer.has_experts || hp->n_streams > 1 ? 2 : 3;
}

// Returns the compute block, within its layer, that a weight block belongs to.
static int compute_block_of(const kin_hparams *hp, int il, kin_weight_block kind) {
    if (kind == KIN_WEIGHT_BLOCK_ATTN || kin_weights_n_compute_blocks(hp, il) == 1) return 0;
    return kind >= KIN_WEIGHT_BLOCK_FFN_DOWN ? kin_weights_n_compute_blocks(hp, il) - 1 : 1;
}

// True if the GPU has this block of a layer of the window: of a divided layer, that of its attention.
static bool is_on_gpu(const kin_hparams *hp, const kin_window *window, int il, kin_weight_block kind) {
    if (il < kin_window_gpu_begin(window)) return false;
    if (il >= kin_window_gpu_whole_begin(window)) return true;
    return kind == KIN_WEIGHT_BLOCK_ATTN && !kin_layer_of(hp, il).has_no_attention;
}

static void collect_layer(kin_weights *w, int il, const kin_window *window, bool later, int *i_compute_block) {
    const kin_device *cpu = &w->devices->cpu, *gpu = &w->devices->gpu;
    const kin_hparams *hp = &w->model->hp;
    w->on_gpu[il] = is_on_gpu(hp, window, il, KIN_WEIGHT_BLOCK_ATTN);
    w->compute_blocks[il] = *i_compute_block;
    w->layer_blocks[il] = w->n_blocks;
    for (int kind = 0; kind < KIN_WEIGHT_BLOCK_COUNT; kind++) {
        const bool on_gpu = is_on_gpu(hp, window, il, kind);
        int compute_block = on_gpu ? KIN_WEIGHTS_NO_COMPUTE_BLOCK : *i_compute_block + compute_block_of(hp, il, kind);
        kin_weights_block *b = new_block(w, on_gpu ? gpu : cpu, compute_block);
        b->later = later;
        b->i_cpu_layer = w->n_cpu_layers;
        b->is_ff = kind != KIN_WEIGHT_BLOCK_ATTN;
        kin_weights_add_layer_block(b, w->model, il, kind, &w->o.slices, w->layers[il], cpu);
    }
    if (il >= kin_window_gpu_whole_begin(window)) return;
    *i_compute_block += kin_weights_n_compute_blocks(hp, il);
    w->n_cpu_layers++;
}

// Matrices that end several streams are used as they are in the model's file.
static void leave_as_in_file(kin_weights_block *b) {
    b->pack = false;
    for (int i = 0; i < b->n_pieces; i++) b->pieces[i].layout = KIN_LAYOUT_PLAIN;
}

// In cyclic order: the layers, the output's tiles, then the weights that are always in memory.
void kin_weights_collect_blocks(kin_weights *w) {
    const kin_weights_options *o = &w->o;
    const kin_model *m = w->model;
    const kin_device *cpu = &w->devices->cpu, *gpu = &w->devices->gpu;
    int i_compute_block = 0;
    for (int i = 0; i < o->windows.n; i++) {
        const kin_window *window = &o->windows.at[i];
        for (int il = window->layer_begin; il < window->layer_end; il++)
            collect_layer(w, il, window, w->has_later && i > 0, &i_compute_block);
    }
    w->first_tile_compute_block = i_compute_block;
    const kin_device *output_device = o->output_on_gpu ? gpu : cpu;
    for (int i = 0; i < w->n_tiles; i++)
        kin_weights_add_tile_block(new_block(w, output_device, i_compute_block++), m, i, &w->tiles[i], cpu);
    const size_t n_numbered = w->n_blocks; // the others have no place in the cache file
    if (o->output || o->stream_ends) {
        kin_weights_block *norm = new_block(w, output_device, KIN_WEIGHTS_NO_COMPUTE_BLOCK);
        add_tensor(norm, m->output_norm, &full, &w->output_norm, cpu, false);
        add_tensor(norm, m->output_norm_bias, &full, &w->output_norm_bias, cpu, false);
        for (int i = 0; i < KIN_STREAM_ENDS; i++) add_tensor(norm, m->stream_ends[i], &full, &w->stream_ends[i], cpu, false);
        leave_as_in_file(norm);
    }
    const kin_gguf_tensor *factors = kin_model_rope_factors(m, o->n_ctx);
    add_tensor(new_block(w, cpu, KIN_WEIGHTS_NO_COMPUTE_BLOCK), factors, &full, &w->rope_factors[0], cpu, false);
    if (kin_windows_n_gpu_layers(&o->windows))
        add_tensor(new_block(w, gpu, KIN_WEIGHTS_NO_COMPUTE_BLOCK), factors, &full, &w->rope_factors[1], cpu, false);
    for (size_t i = 0; i < w->n_blocks; i++) {
        if (w->blocks[i].device->is_gpu) w->blocks[i].pack = false;
        kin_assert(i < n_numbered || !w->blocks[i].pack);
    }
}

// Returns the bytes that the CPU has of a layer of the window.
static uint64_t layer_bytes(const kin_model *m, const kin_window *window, int il, const kin_slices *slices) {
    uint64_t sum = 0;
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *t = m->layers[il].w[id];
        const bool is_here = t && !is_on_gpu(&m->hp, window, il, kin_weight_block_of(id));
        sum += is_here ? kin_slice_view_of(&slices->of[id], t).bytes : 0;
    }
    kin_weights_block turned = {0}; // takes more than in the file
    if (m->layers[il].w[KIN_W_LATENT_KV_B] && !is_on_gpu(&m->hp, window, il, KIN_WEIGHT_BLOCK_ATTN)) {
        add_fused(&turned, m, il, NULL, &(kin_device){0});
        sum += turned.bytes - m->layers[il].w[KIN_W_LATENT_KV_B]->n_bytes;
    }
    return sum;
}

uint64_t kin_weights_cpu_bytes(const kin_model *m, const kin_weights_options *o) {
    uint64_t sum = o->output && !o->output_on_gpu ? m->output->n_bytes : 0;
    for (int i = 0; i < o->windows.n; i++) {
        const kin_window *window = &o->windows.at[i];
        for (int il = window->layer_begin; il < kin_window_gpu_whole_begin(window); il++)
            sum += layer_bytes(m, window, il, &o->slices);
    }
    return sum;
}
