// What belongs to which unit.
#include <string.h>

#include "engine/weights_impl.h"
#include "model/kernel_ops.h"

enum {
    TILE_MOST = 16 << 20, // bytes of a tile of the output matrix
    TILE_LEAST = 2 << 20,
    TILE_ROWS_STEP = 64, // a multiple of every packed layout's row group
};

// by_kernels: kin's kernels may have it, where there are such.
static void add_piece(kin_weights_unit *u, kin_weights_piece p, const kin_device *cpu, bool by_kernels) {
    kin_assert(u->n_pieces < KIN_WEIGHTS_PIECES);
    kin_device device = *cpu;
    if (!by_kernels) device.kernels = NULL;
    if (p.experts && p.ne[2] == 1) device.repack_buft = NULL; // ggml's repacked weights have no product for a single expert
    p.layout = kin_device_layout(&device, p.type, p.ne);
    p.offset = kin_weights_align_up(u->packed_bytes, KIN_WEIGHTS_ALIGN);
    u->packed_bytes = p.offset + p.bytes;
    u->bytes += p.bytes;
    u->pack = u->pack || p.layout != KIN_LAYOUT_PLAIN;
    u->experts = u->experts || p.experts;
    u->pieces[u->n_pieces++] = p;
}

static void add_tensor(kin_weights_unit *u, const kin_gguf_tensor *t, struct ggml_tensor **slot, const kin_device *cpu,
                       bool experts, bool by_kernels) {
    if (!t) return;
    kin_weights_piece p = {
        .data = t->data, .i_file = t->i_file, .file_offset = t->offset, .bytes = t->n_bytes, .type = t->type, .slot = slot};
    memcpy(p.ne, t->ne, sizeof p.ne);
    p.experts = experts;
    add_piece(u, p, cpu, by_kernels);
}

static kin_matrix matrix_of(const kin_gguf_tensor *t) {
    return (kin_matrix){.type = t->type, .columns = t->ne[0], .rows = t->ne[1]};
}

// A layer's experts have kernels for all of their matrices, or go by ggml as a whole (model/blocks.c).
static bool experts_by_kernels(const kin_gguf_tensor *const *w) {
    if (!w[KIN_W_FFN_GATE_EXPS] || !w[KIN_W_FFN_UP_EXPS] || !w[KIN_W_FFN_DOWN_EXPS]) return false;
    kin_matrix gate = matrix_of(w[KIN_W_FFN_GATE_EXPS]), up = matrix_of(w[KIN_W_FFN_UP_EXPS]);
    kin_matrix down = matrix_of(w[KIN_W_FFN_DOWN_EXPS]);
    return kin_ops_take_experts(&gate, &up, &down);
}

void kin_weights_add_layer_unit(kin_weights_unit *u, const kin_model *m, int il, kin_unit kind, struct ggml_tensor **slots,
                                const kin_device *cpu) {
    u->i_packed = (size_t)il * KIN_UNIT_COUNT + (size_t)kind;
    const kin_gguf_tensor *const *weights = m->layers[il].w;
    bool experts = experts_by_kernels(weights);
    for (int id = 0; id < KIN_W_COUNT; id++) {
        bool is_experts = kin_weight_is_experts(id);
        if (kin_weight_unit(id) == kind)
            add_tensor(u, weights[id], slots ? &slots[id] : NULL, cpu, is_experts, experts || !is_experts);
    }
}

// A tile is as large as the largest weight of a layer: larger ones would need a larger ring to stream through, and each must wait
// until so much of it is free.
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

// Rows that are whole panels; those beyond them are a tile of their own, which has no kernel.
static int64_t panel_rows(const kin_model *m) {
    return m->output->ne[1] / KIN_PANEL_ROWS * KIN_PANEL_ROWS;
}

static int64_t count_panel_tiles(const kin_model *m) {
    return (panel_rows(m) + kin_weights_tile_rows(m) - 1) / kin_weights_tile_rows(m);
}

int kin_weights_count_tiles(const kin_model *m) {
    return (int)count_panel_tiles(m) + (panel_rows(m) < m->output->ne[1]);
}

void kin_weights_add_tile_unit(kin_weights_unit *u, const kin_model *m, int i_tile, struct ggml_tensor **slot,
                               const kin_device *cpu) {
    const kin_gguf_tensor *t = m->output;
    bool is_rest = i_tile == count_panel_tiles(m);
    int64_t rows = kin_weights_tile_rows(m), begin = is_rest ? panel_rows(m) : i_tile * rows;
    int64_t left = (is_rest ? t->ne[1] : panel_rows(m)) - begin;
    uint64_t row_bytes = t->n_bytes / (uint64_t)t->ne[1], at = (uint64_t)begin * row_bytes;
    if (left < rows) rows = left;
    u->i_packed = (size_t)m->hp.n_layer * KIN_UNIT_COUNT + (size_t)i_tile;
    add_piece(u,
              (kin_weights_piece){.data = t->data + at,
                                  .i_file = t->i_file,
                                  .file_offset = t->offset + at,
                                  .bytes = (uint64_t)rows * row_bytes,
                                  .type = t->type,
                                  .ne = {t->ne[0], rows, 1},
                                  .slot = slot},
              cpu, true);
}

static kin_weights_unit *new_unit(kin_weights *w, const kin_device *device, int i_block) {
    kin_weights_unit *u = &w->units[w->n_units++];
    u->device = device;
    u->i_block = i_block;
    return u;
}

int kin_weights_n_blocks(const kin_hparams *hp) {
    return hp->n_expert ? 2 : 3;
}

// The block of its layer that a unit belongs to.
static int block_of(const kin_hparams *hp, kin_unit kind) {
    if (kind == KIN_UNIT_ATTN) return 0;
    return kind == KIN_UNIT_FFN_DOWN ? kin_weights_n_blocks(hp) - 1 : 1;
}

static void collect_layer(kin_weights *w, int il, bool on_gpu, bool later, int *i_block) {
    const kin_device *cpu = &w->devices->cpu, *device = on_gpu ? &w->devices->gpu : cpu;
    const kin_hparams *hp = &w->model->hp;
    w->on_gpu[il] = on_gpu;
    w->blocks[il] = *i_block;
    w->layer_units[il] = w->n_units;
    for (int kind = 0; kind < KIN_UNIT_COUNT; kind++) {
        int block = on_gpu ? KIN_WEIGHTS_NO_BLOCK : *i_block + block_of(hp, kind);
        kin_weights_unit *u = new_unit(w, device, block);
        u->later = later;
        kin_weights_add_layer_unit(u, w->model, il, kind, w->layers[il], cpu);
    }
    if (!on_gpu) *i_block += kin_weights_n_blocks(hp);
}

// In cyclic order: the layers, the output's tiles, then what is always there.
void kin_weights_collect_units(kin_weights *w) {
    const kin_weights_options *o = &w->o;
    const kin_model *m = w->model;
    const kin_device *cpu = &w->devices->cpu, *gpu = &w->devices->gpu;
    int i_block = 0;
    for (int i = 0; i < o->windows.n; i++) {
        const kin_window *window = &o->windows.at[i];
        for (int il = window->layer_begin; il < window->layer_end; il++)
            collect_layer(w, il, il >= kin_window_gpu_begin(window), w->has_later && i > 0, &i_block);
    }
    w->first_tile_block = i_block;
    const kin_device *output_device = o->output_on_gpu ? gpu : cpu;
    for (int i = 0; i < w->n_tiles; i++)
        kin_weights_add_tile_unit(new_unit(w, output_device, i_block++), m, i, &w->tiles[i], cpu);
    if (o->output)
        add_tensor(new_unit(w, output_device, KIN_WEIGHTS_NO_BLOCK), m->output_norm, &w->output_norm, cpu, false, true);
    add_tensor(new_unit(w, cpu, KIN_WEIGHTS_NO_BLOCK), m->rope_factors, &w->rope_factors[0], cpu, false, true);
    if (kin_windows_n_gpu_layers(&o->windows))
        add_tensor(new_unit(w, gpu, KIN_WEIGHTS_NO_BLOCK), m->rope_factors, &w->rope_factors[1], cpu, false, true);
    for (size_t i = 0; i < w->n_units; i++) {
        if (w->units[i].device->is_gpu) w->units[i].pack = false;
    }
}

uint64_t kin_weights_cpu_bytes(const kin_model *m, const kin_weights_options *o) {
    uint64_t sum = o->output && !o->output_on_gpu ? m->output->n_bytes : 0;
    for (int i = 0; i < o->windows.n; i++) {
        const kin_window *window = &o->windows.at[i];
        for (int il = window->layer_begin; il < kin_window_gpu_begin(window); il++) sum += kin_model_layer_bytes(m, il);
    }
    return sum;
}
