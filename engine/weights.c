#include "engine/weights.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "base/log.h"
#include "engine/cache_dir.h"
#include "engine/packed.h"
#include "sys/background.h"
#include "sys/memory.h"
#include "sys/parallel.h"

// Below this a model packs faster than a cache file is worth having.
#define CACHE_MIN_BYTES (32u << 20)

enum {
    TENSOR_ALIGN = 64,
    MAX_PIECES = KIN_STREAM_MAX_EXTENTS,
    TILE_MOST = 16 << 20, // bytes of a tile of the output matrix
    TILE_LEAST = 2 << 20,
    TILE_ROWS_STEP = 64,  // a multiple of every packed layout's row group
    HUGE_BYTES = 2 << 20, // a huge page of x86-64 and of arm64 with small pages
    SAMPLE_BYTES = 512,   // of each tensor, at as many places, for the model's identity
    N_SAMPLES = 3,
    MAX_FETCH = 256, // experts' matrices asked for at once
};

// One weight of a unit: where it comes from and the tensor that it becomes.
typedef struct piece {
    const uint8_t *data; // in the model file's mapping
    int i_file;
    uint64_t file_offset;
    uint64_t bytes;
    int type;
    int64_t ne[3];
    struct ggml_tensor **slot; // in weights->layers, tiles, ...
    bool repack;
    bool experts;    // one matrix per expert
    uint64_t offset; // in the packed unit
} piece;

typedef struct unit {
    piece pieces[MAX_PIECES];
    int n_pieces;
    const kin_device *device;
    int i_block;
    bool pack;
    bool experts;                 // holds matrices of experts: fetched by need, never streamed
    uint64_t bytes, packed_bytes; // as it is in the model file; packed
    size_t i_packed;              // its number in the cache file

    uint8_t *base;       // packed: the unit's own pages, anonymous at first, then mapped from the cache file
    atomic_bool in_file; // they are
    bool fresh;          // packed at this start
} unit;

struct kin_weights {
    const kin_model *model;
    const kin_devices *devices;
    kin_weights_options o;

    struct ggml_tensor *(*layers)[KIN_W_COUNT]; // [n_layer] of the model; those of the windows are filled in
    bool *on_gpu;                               // [n_layer]
    int *blocks;                                // [n_layer] a CPU layer's first block
    size_t *layer_units;                        // [n_layer] a layer's first unit
    int first_tile_block;
    struct ggml_tensor *output_norm;
    struct ggml_tensor **tiles; // [n_tiles]
    int n_tiles;
    struct ggml_tensor *rope_factors[2]; // for the CPU's layers, for the GPU's
    unit *units;
    size_t n_units;

    struct ggml_context *ctx, *gpu_ctx; // the tensors of the CPU, of the GPU
    ggml_backend_buffer_t gpu_buf;
    // Buffers that the CPU's tensors are born in: they give a tensor its kind (packed or plain); its data then points elsewhere.
    ggml_backend_buffer_t repack_home, plain_home;
    uint8_t *plain_memory;

    kin_packed *packed;
    pthread_t finisher; // writes the cache file while the model already runs
    bool finishing;
    bool must_stream;  // not all fits: every unit must be in a file
    bool move_at_once; // each unit goes to the cache file as soon as it is packed
    atomic_bool cache_failed;
    pthread_mutex_t failing; // over the following, while units are filled
    bool has_failed;
    kin_err failure; // the first one: weights that did not come

    kin_stream *stream;
    size_t *stream_units; // [n_units] numbers of the streamer's units, in its order
    size_t n_stream_units, i_next_stream;
    bool streaming;               // this pass acquires its units
    atomic_bool short_of_experts; // not all fit: the chosen ones are fetched

    kin_weights_stats stats;
    atomic_ullong n_done, n_total; // bytes, for progress
};

static uint64_t align_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

// ---- what belongs to which unit

static void add_piece(unit *u, piece p, const kin_device *cpu) {
    kin_assert(u->n_pieces < MAX_PIECES);
    p.repack = kin_device_can_repack(cpu, p.type, p.ne);
    p.offset = align_up(u->packed_bytes, TENSOR_ALIGN);
    u->packed_bytes = p.offset + p.bytes;
    u->bytes += p.bytes;
    u->pack = u->pack || p.repack;
    u->experts = u->experts || p.experts;
    u->pieces[u->n_pieces++] = p;
}

static void add_tensor(unit *u, const kin_gguf_tensor *t, struct ggml_tensor **slot, const kin_device *cpu, bool experts) {
    if (!t) return;
    piece p = {
        .data = t->data, .i_file = t->i_file, .file_offset = t->offset, .bytes = t->n_bytes, .type = t->type, .slot = slot};
    memcpy(p.ne, t->ne, sizeof p.ne);
    p.experts = experts;
    add_piece(u, p, cpu);
}

static void add_layer_unit(unit *u, const kin_model *m, int il, kin_unit kind, struct ggml_tensor **slots,
                           const kin_device *cpu) {
    u->i_packed = (size_t)il * KIN_UNIT_COUNT + (size_t)kind;
    for (int id = 0; id < KIN_W_COUNT; id++) {
        if (kin_weight_unit(id) == kind)
            add_tensor(u, m->layers[il].w[id], slots ? &slots[id] : NULL, cpu, kin_weight_is_experts(id));
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

static int count_tiles(const kin_model *m) {
    return (int)((m->output->ne[1] + kin_weights_tile_rows(m) - 1) / kin_weights_tile_rows(m));
}

static void add_tile_unit(unit *u, const kin_model *m, int i_tile, struct ggml_tensor **slot, const kin_device *cpu) {
    const kin_gguf_tensor *t = m->output;
    int64_t rows = kin_weights_tile_rows(m), begin = i_tile * rows, left = t->ne[1] - begin;
    uint64_t row_bytes = t->n_bytes / (uint64_t)t->ne[1], at = (uint64_t)begin * row_bytes;
    if (left < rows) rows = left;
    u->i_packed = (size_t)m->hp.n_layer * KIN_UNIT_COUNT + (size_t)i_tile;
    add_piece(u,
              (piece){.data = t->data + at,
                      .i_file = t->i_file,
                      .file_offset = t->offset + at,
                      .bytes = (uint64_t)rows * row_bytes,
                      .type = t->type,
                      .ne = {t->ne[0], rows, 1},
                      .slot = slot},
              cpu);
}

enum { NO_BLOCK = -1 }; // small things that are always there

static unit *new_unit(kin_weights *w, const kin_device *device, int i_block) {
    unit *u = &w->units[w->n_units++];
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

static void collect_layer(kin_weights *w, int il, bool on_gpu, int *i_block) {
    const kin_device *cpu = &w->devices->cpu, *device = on_gpu ? &w->devices->gpu : cpu;
    const kin_hparams *hp = &w->model->hp;
    w->on_gpu[il] = on_gpu;
    w->blocks[il] = *i_block;
    w->layer_units[il] = w->n_units;
    for (int kind = 0; kind < KIN_UNIT_COUNT; kind++) {
        int block = on_gpu ? NO_BLOCK : *i_block + block_of(hp, kind);
        add_layer_unit(new_unit(w, device, block), w->model, il, kind, w->layers[il], cpu);
    }
    if (!on_gpu) *i_block += kin_weights_n_blocks(hp);
}

// In cyclic order: the layers, the output's tiles, then what is always there.
static void collect_units(kin_weights *w) {
    const kin_weights_options *o = &w->o;
    const kin_model *m = w->model;
    const kin_device *cpu = &w->devices->cpu, *gpu = &w->devices->gpu;
    int i_block = 0;
    for (int i = 0; i < o->windows.n; i++) {
        const kin_window *window = &o->windows.at[i];
        for (int il = window->layer_begin; il < window->layer_end; il++)
            collect_layer(w, il, il >= kin_window_gpu_begin(window), &i_block);
    }
    w->first_tile_block = i_block;
    const kin_device *output_device = o->output_on_gpu ? gpu : cpu;
    for (int i = 0; i < w->n_tiles; i++) add_tile_unit(new_unit(w, output_device, i_block++), m, i, &w->tiles[i], cpu);
    if (o->output) add_tensor(new_unit(w, output_device, NO_BLOCK), m->output_norm, &w->output_norm, cpu, false);
    add_tensor(new_unit(w, cpu, NO_BLOCK), m->rope_factors, &w->rope_factors[0], cpu, false);
    if (kin_windows_n_gpu_layers(&o->windows))
        add_tensor(new_unit(w, gpu, NO_BLOCK), m->rope_factors, &w->rope_factors[1], cpu, false);
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

// ---- the prepacked cache

// Names, shapes, types and a sample of every tensor: two models that agree in all of it have the same weights.
static int model_identity(const kin_model *model, uint64_t *identity, kin_err *err) {
    uint64_t h = 1;
    for (size_t i = 0; i < kin_gguf_n_tensors(model->gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(model->gguf, i);
        uint64_t n = t->n_bytes < SAMPLE_BYTES ? t->n_bytes : SAMPLE_BYTES;
        h = kin_hash64(t->name.at, t->name.len, h);
        h = kin_hash64(t->ne, sizeof t->ne, h + (uint64_t)t->type);
        for (int k = 0; k < N_SAMPLES; k++) {
            uint8_t sample[SAMPLE_BYTES];
            uint64_t at = (t->n_bytes - n) / (N_SAMPLES - 1) * (uint64_t)k;
            if (kin_gguf_read(model->gguf, t, at, sample, (size_t)n, err) != 0) return KIN_FAIL;
            h = kin_hash64(sample, (size_t)n, h);
        }
    }
    *identity = h;
    return 0;
}

// The file has room for every unit of the whole model, so that it is the same whatever range a device runs.
static int open_cache(kin_weights *w, kin_err *err) {
    const kin_model *m = w->model;
    const kin_device *cpu = &w->devices->cpu;
    size_t n_layer_units = (size_t)m->hp.n_layer * KIN_UNIT_COUNT, n = n_layer_units + (size_t)count_tiles(m);
    uint64_t *bytes = calloc(n, sizeof *bytes), total = 0;
    if (!bytes) return kin_err_set(err, "out of memory");
    for (size_t i = 0; i < n; i++) {
        unit u = {0};
        if (i < n_layer_units)
            add_layer_unit(&u, m, (int)(i / KIN_UNIT_COUNT), (kin_unit)(i % KIN_UNIT_COUNT), NULL, cpu);
        else
            add_tile_unit(&u, m, (int)(i - n_layer_units), NULL, cpu);
        bytes[i] = u.pack ? u.packed_bytes : 0;
        total += bytes[i];
    }
    kin_packed_key key = {.variant = kin_hash64(w->devices->cpu_variant, strlen(w->devices->cpu_variant), 0)};
    key.model = w->o.identity;
    int rc = key.model ? 0 : model_identity(m, &key.model, err); // a file that is here in parts has no samples everywhere
    if (rc == 0 && !kin_packed_exists(w->o.cache_dir, key))
        rc = kin_cache_dir_make_room(w->o.cache_dir, total, w->o.cache_cap, err);
    if (rc == 0) rc = kin_packed_open(&w->packed, w->o.cache_dir, key, n, bytes, err);
    free(bytes);
    return rc;
}

// The packed bytes move to the cache file and its pages take their place: the same content, but memory that the OS can take back.
static int move_to_file(kin_weights *w, unit *u, kin_err *err) {
    if (u->fresh && kin_packed_write(w->packed, u->i_packed, u->base, err) != 0) return KIN_FAIL;
    if (kin_packed_map(w->packed, u->i_packed, u->base, err) != 0) return KIN_FAIL;
    atomic_store(&u->in_file, true);
    return 0;
}

// Unless an earlier one failed to.
static void try_move(kin_weights *w, unit *u) {
    kin_err err;
    if (!w->packed || atomic_load(&w->cache_failed) || move_to_file(w, u, &err) == 0) return;
    if (!atomic_exchange(&w->cache_failed, true)) kin_log(KIN_LOG_WARN, "the prepacked cache cannot be used: %s", err.text);
}

static void *finish_cache(void *arg) {
    kin_weights *w = arg;
    kin_err err;
    kin_background_thread();
    for (size_t i = 0; i < w->n_units; i++) {
        unit *u = &w->units[i];
        if (u->pack && u->fresh && !atomic_load(&u->in_file)) try_move(w, u);
    }
    if (kin_packed_seal(w->packed, &err) != 0) kin_log(KIN_LOG_WARN, "the prepacked cache stays incomplete: %s", err.text);
    return NULL;
}

static void start_finisher(kin_weights *w) {
    if (w->packed && w->stats.packed_bytes) w->finishing = pthread_create(&w->finisher, NULL, finish_cache, w) == 0;
}

// ---- placing the CPU's units

static int open_homes(kin_weights *w, kin_err *err) {
    uint64_t largest = TENSOR_ALIGN;
    bool pack = false;
    for (size_t i = 0; i < w->n_units; i++) {
        if (w->units[i].packed_bytes > largest) largest = w->units[i].packed_bytes;
        pack = pack || w->units[i].pack;
    }
    // Address space only: nobody writes there.
    w->plain_memory = mmap(NULL, largest, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (w->plain_memory == MAP_FAILED) {
        w->plain_memory = NULL;
        return kin_err_set(err, "out of address space");
    }
    w->plain_home = ggml_backend_cpu_buffer_from_ptr(w->plain_memory, largest);
    if (pack) w->repack_home = ggml_backend_buft_alloc_buffer(w->devices->cpu.repack_buft, largest + TENSOR_ALIGN);
    return w->plain_home && (!pack || w->repack_home) ? 0 : kin_err_set(err, "out of memory");
}

static struct ggml_tensor *new_tensor(struct ggml_context *ctx, const piece *p) {
    return ggml_new_tensor_3d(ctx, (enum ggml_type)p->type, p->ne[0], p->ne[1], p->ne[2]);
}

// Makes the tensor one of its kind; where its data are is said afterwards.
static int be_born(kin_weights *w, const piece *p, bool repack, kin_err *err) {
    struct ggml_tensor *t = *p->slot;
    ggml_backend_buffer_t home = repack ? w->repack_home : w->plain_home;
    t->buffer = NULL;
    t->data = NULL;
    t->extra = NULL;
    if (ggml_backend_tensor_alloc(home, t, ggml_backend_buffer_get_base(home)) != GGML_STATUS_SUCCESS) {
        return kin_err_set(err, "a tensor of type %s cannot be placed", kin_gguf_type_name(p->type));
    }
    return 0;
}

static void point_at_mapping(unit *u) {
    for (int i = 0; i < u->n_pieces; i++) {
        const piece *p = &u->pieces[i];
        (*p->slot)->data = u->pack ? u->base + p->offset : (uint8_t *)p->data;
    }
}

// Fresh pages for n bytes, at an address that is as far from a multiple of HUGE_BYTES as `offset` is: a file mapped there from
// that offset can have huge pages wherever the file system keeps it in such. NULL without memory.
static uint8_t *reserve_pages(uint64_t n, uint64_t offset) {
    uint64_t bytes = align_up(n, KIN_PACKED_ALIGN), shift = offset % HUGE_BYTES;
    uint8_t *all = mmap(NULL, bytes + 2 * HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return NULL;
    uint8_t *base = (uint8_t *)align_up((uintptr_t)all, HUGE_BYTES) + shift, *end = all + bytes + 2 * HUGE_BYTES;
    if (base > all) munmap(all, (size_t)(base - all));
    if (end > base + bytes) munmap(base + bytes, (size_t)(end - base - bytes));
    return base;
}

static int place_unit(kin_weights *w, unit *u, kin_err *err) {
    for (int i = 0; i < u->n_pieces; i++) {
        piece *p = &u->pieces[i];
        if (!*p->slot) *p->slot = new_tensor(w->ctx, p);
        if (be_born(w, p, u->pack && p->repack, err) != 0) return KIN_FAIL;
    }
    if (u->pack && !u->base) {
        uint8_t *base = reserve_pages(u->packed_bytes, w->packed ? kin_packed_offset(w->packed, u->i_packed) : 0);
        if (!base) return kin_err_set(err, "out of memory: %llu bytes for weights", (unsigned long long)u->packed_bytes);
        u->base = base;
        u->fresh = !w->packed || !kin_packed_has(w->packed, u->i_packed);
    }
    point_at_mapping(u);
    return 0;
}

static void report(kin_weights *w, const char *what, uint64_t n) {
    uint64_t done = atomic_fetch_add(&w->n_done, n) + n;
    if (w->o.progress) w->o.progress(w->o.progress_user, what, done, atomic_load(&w->n_total));
}

// Packs a unit in its place, which is ordinary memory so far.
static void pack(const unit *u) {
    for (int k = 0; k < u->n_pieces; k++) {
        const piece *p = &u->pieces[k];
        if (p->repack)
            ggml_backend_tensor_set(*p->slot, p->data, 0, p->bytes);
        else
            memcpy(u->base + p->offset, p->data, p->bytes);
    }
}

// What a packed unit was made from is not looked at again: its pages leave our memory (not the page cache).
static void forget_source(const kin_weights *w, const unit *u) {
    const uintptr_t page = KIN_PACKED_ALIGN;
    for (int i = 0; i < u->n_pieces && kin_gguf_on_disk(w->model->gguf); i++) {
        uintptr_t begin = (uintptr_t)u->pieces[i].data / page * page, end = (uintptr_t)u->pieces[i].data + u->pieces[i].bytes;
        madvise((void *)begin, (size_t)(end - begin), MADV_DONTNEED);
    }
}

static int await_unit(const kin_weights *w, const unit *u, kin_err *err) {
    const kin_arrival *a = w->o.arrival;
    for (int i = 0; a && i < u->n_pieces; i++) {
        const piece *p = &u->pieces[i];
        if (a->wait(a->user, p->i_file, p->file_offset, p->bytes, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static void note_failure(kin_weights *w, const kin_err *err) {
    pthread_mutex_lock(&w->failing);
    if (!w->has_failed) w->failure = *err;
    w->has_failed = true;
    pthread_mutex_unlock(&w->failing);
}

static void fill_unit(void *user, size_t i) {
    kin_weights *w = user;
    unit *u = &w->units[i];
    kin_err err;
    if (u->device->is_gpu) return;
    if (u->pack && !u->fresh) try_move(w, u);
    if (atomic_load(&u->in_file)) {
        forget_source(w, u);
        return;
    }
    if (await_unit(w, u, &err) != 0) {
        note_failure(w, &err);
        return;
    }
    if (!u->pack) return;
    bool hopeless = w->must_stream && atomic_load(&w->cache_failed); // it will be used as it is in the model file
    if (!hopeless) {
        pack(u);
        if (w->move_at_once) try_move(w, u);
        if (w->must_stream && !atomic_load(&u->in_file)) madvise(u->base, u->packed_bytes, MADV_DONTNEED);
        report(w, "packing weights", u->packed_bytes);
    }
    forget_source(w, u);
}

// Streaming reads from a file: a unit that found no place in the cache is used as it is in the model file.
static int unpack(kin_weights *w, unit *u, kin_err *err) {
    munmap(u->base, align_up(u->packed_bytes, KIN_PACKED_ALIGN));
    u->base = NULL;
    u->pack = false;
    return place_unit(w, u, err);
}

static bool must_stream(const kin_weights *w) {
    return w->o.mode == KIN_STREAM_RESIDENT && w->o.budget < kin_weights_cpu_bytes(w->model, &w->o);
}

static void count_units(kin_weights *w) {
    w->stats.packed_bytes = w->stats.cached_bytes = w->stats.mapped_bytes = 0;
    for (size_t i = 0; i < w->n_units; i++) {
        const unit *u = &w->units[i];
        if (u->device->is_gpu) continue;
        uint64_t *sum = !u->pack ? &w->stats.mapped_bytes : u->fresh ? &w->stats.packed_bytes : &w->stats.cached_bytes;
        *sum += u->pack ? u->packed_bytes : u->bytes;
    }
}

static int place_cpu(kin_weights *w, kin_err *err) {
    if (open_homes(w, err) != 0) return KIN_FAIL;
    bool stream = w->must_stream = must_stream(w);
    for (size_t i = 0; i < w->n_units; i++) {
        unit *u = &w->units[i];
        if (u->device->is_gpu) continue;
        u->pack = u->pack && !(stream && !w->packed);
        if (place_unit(w, u, err) != 0) return KIN_FAIL;
    }
    count_units(w);
    atomic_store(&w->n_total, w->stats.packed_bytes);
    // Writing the cache file can wait until the model runs, if memory holds the packed weights so long.
    w->move_at_once = stream || w->stats.packed_bytes > kin_memory_read().available / 2;
    kin_parallel(w->stats.packed_bytes ? w->devices->n_threads : 1, w->n_units, fill_unit, w);
    if (w->has_failed) {
        *err = w->failure;
        return KIN_FAIL;
    }
    for (size_t i = 0; i < w->n_units && stream; i++) {
        unit *u = &w->units[i];
        if (u->pack && !atomic_load(&u->in_file) && unpack(w, u, err) != 0) return KIN_FAIL;
    }
    count_units(w);
    return 0;
}

// ---- placing the GPU's units

static int place_gpu(kin_weights *w, kin_err *err) {
    for (size_t i = 0; i < w->n_units; i++) {
        for (int k = 0; w->units[i].device->is_gpu && k < w->units[i].n_pieces; k++) {
            piece *p = &w->units[i].pieces[k];
            *p->slot = new_tensor(w->gpu_ctx, p);
            w->stats.gpu_bytes += p->bytes;
        }
    }
    if (!w->stats.gpu_bytes) return 0;
    size_t free_bytes, total_bytes;
    ggml_backend_dev_memory(w->devices->gpu.dev, &free_bytes, &total_bytes);
    w->gpu_buf = ggml_backend_alloc_ctx_tensors_from_buft(w->gpu_ctx, w->devices->gpu.buft);
    if (!w->gpu_buf) {
        return kin_err_set(err, "%s has no room for %llu MiB of weights (%zu of %zu MiB free): use fewer --gpu-layers",
                           w->devices->gpu.name, (unsigned long long)(w->stats.gpu_bytes >> 20), free_bytes >> 20,
                           total_bytes >> 20);
    }
    ggml_backend_buffer_set_usage(w->gpu_buf, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    atomic_store(&w->n_done, 0);
    atomic_store(&w->n_total, w->stats.gpu_bytes);
    for (size_t i = 0; i < w->n_units; i++) {
        if (w->units[i].device->is_gpu && await_unit(w, &w->units[i], err) != 0) return KIN_FAIL;
        for (int k = 0; w->units[i].device->is_gpu && k < w->units[i].n_pieces; k++) {
            piece *p = &w->units[i].pieces[k];
            ggml_backend_tensor_set(*p->slot, p->data, 0, p->bytes);
            report(w, "copying weights to the GPU", p->bytes);
        }
    }
    return 0;
}

// ---- streaming

static bool on_disk(const kin_weights *w, const unit *u) {
    return u->pack ? atomic_load(&u->in_file) : kin_gguf_on_disk(w->model->gguf);
}

// What the streamer must know of a unit: file ranges and mappings. Packed: one range of the cache file; else one per weight.
static kin_stream_unit describe(const kin_weights *w, const unit *u) {
    kin_stream_unit d = {.i_group = u->i_block};
    int n_files = kin_gguf_n_files(w->model->gguf);
    if (!on_disk(w, u) || u->experts) return d;
    if (u->pack) {
        d.extents[d.n_extents++] = (kin_extent){n_files, kin_packed_offset(w->packed, u->i_packed), u->packed_bytes, u->base};
        return d;
    }
    for (int i = 0; i < u->n_pieces; i++) {
        const piece *p = &u->pieces[i];
        d.extents[d.n_extents++] = (kin_extent){p->i_file, p->file_offset, p->bytes, p->data};
    }
    return d;
}

static int open_stream(kin_weights *w, kin_err *err) {
    int n_files = kin_gguf_n_files(w->model->gguf), rc = KIN_FAIL;
    kin_stream_unit *units = calloc(w->n_units, sizeof *units);
    int *fds = calloc((size_t)n_files + 1, sizeof *fds);
    w->stream_units = calloc(w->n_units, sizeof *w->stream_units);
    if (!units || !fds || !w->stream_units) {
        kin_err_set(err, "out of memory");
        goto done;
    }
    kin_stream_options so = {.units = units, .mode = w->o.mode, .budget = w->o.budget, .fds = fds};
    for (size_t i = 0; i < w->n_units; i++) {
        const unit *u = &w->units[i];
        if (u->device->is_gpu || u->i_block == NO_BLOCK) continue;
        w->stream_units[so.n_units] = i;
        if (u->i_block < w->first_tile_block) so.n_layer_units = so.n_units + 1;
        units[so.n_units++] = describe(w, u);
    }
    if (so.n_layer_units == 0) so.n_layer_units = so.n_units; // the output alone
    w->n_stream_units = so.n_units;
    for (int i = 0; i < n_files; i++) fds[i] = kin_gguf_file_fd(w->model->gguf, i);
    fds[n_files] = w->packed ? kin_packed_fd(w->packed) : -1;
    so.n_files = n_files + 1;
    rc = so.n_units > 0 ? kin_stream_open(&w->stream, &so, err) : 0;

done:
    free(units);
    free(fds);
    return rc;
}

int kin_weights_block(const kin_weights *w, int il) {
    return w->blocks[il];
}

int kin_weights_tile_block(const kin_weights *w, int i_tile) {
    return w->first_tile_block + i_tile;
}

bool kin_weights_begin(kin_weights *w, int i_block, bool with_output) {
    if (!w->stream) return false;
    w->i_next_stream = 0;
    while (w->i_next_stream < w->n_stream_units && w->units[w->stream_units[w->i_next_stream]].i_block < i_block)
        w->i_next_stream++;
    kin_assert(w->i_next_stream < w->n_stream_units);
    w->streaming = kin_stream_begin(w->stream, w->i_next_stream, with_output);
    for (size_t i = 0; i < w->n_stream_units && !w->streaming; i++) point_at_mapping(&w->units[w->stream_units[i]]);
    return w->streaming || atomic_load(&w->short_of_experts);
}

void kin_weights_fetch_experts(kin_weights *w, int il, const int32_t *chosen, size_t n) {
    kin_extent extents[MAX_FETCH];
    size_t n_extents = 0;
    int n_expert = w->model->hp.n_expert;
    bool wanted[KIN_MAX_EXPERTS] = {false};
    for (size_t i = 0; i < n; i++) wanted[chosen[i]] = true;

    const unit *units = &w->units[w->layer_units[il]];
    for (int kind = 0; kind < KIN_UNIT_COUNT; kind++) {
        const unit *u = &units[kind];
        for (int k = 0; k < u->n_pieces && on_disk(w, u); k++) {
            const piece *p = &u->pieces[k];
            const uint8_t *base = u->pack ? u->base + p->offset : p->data;
            uint64_t bytes = p->bytes / (uint64_t)n_expert;
            for (int e = 0; e < n_expert && p->experts; e++) {
                if (!wanted[e]) continue;
                if (n_extents == MAX_FETCH) {
                    kin_stream_fetch(w->stream, extents, n_extents);
                    n_extents = 0;
                }
                extents[n_extents++] = (kin_extent){.bytes = bytes, .map = base + (uint64_t)e * bytes};
            }
        }
    }
    kin_stream_fetch(w->stream, extents, n_extents);
}

static bool in_block(const kin_weights *w, size_t i_stream, int i_block) {
    return i_stream < w->n_stream_units && w->units[w->stream_units[i_stream]].i_block == i_block;
}

int kin_weights_acquire(kin_weights *w, int i_block, kin_err *err) {
    if (!w->streaming) return 0;
    while (w->i_next_stream < w->n_stream_units && !in_block(w, w->i_next_stream, i_block)) w->i_next_stream++;
    for (; in_block(w, w->i_next_stream, i_block); w->i_next_stream++) {
        const uint8_t *ptrs[KIN_STREAM_MAX_EXTENTS];
        unit *u = &w->units[w->stream_units[w->i_next_stream]];
        int n_extents = kin_stream_acquire(w->stream, w->i_next_stream, ptrs, err);
        if (n_extents < 0) return KIN_FAIL;
        if (n_extents == 0) point_at_mapping(u);
        for (int i = 0; i < u->n_pieces && n_extents > 0; i++) {
            const piece *p = &u->pieces[i];
            (*p->slot)->data = (void *)(u->pack ? ptrs[0] + p->offset : ptrs[i]);
        }
    }
    return 0;
}

void kin_weights_release(kin_weights *w, int i_block) {
    size_t n = 0;
    if (!w->streaming) return;
    for (size_t i = w->i_next_stream; i > 0 && in_block(w, i - 1, i_block); i--) n++;
    kin_stream_release(w->stream, n);
}

// Experts that do not all fit are fetched by need.
static void note_experts(kin_weights *w, uint64_t budget) {
    bool any = false;
    for (size_t i = 0; i < w->n_units; i++)
        any = any || (w->units[i].experts && !w->units[i].device->is_gpu && on_disk(w, &w->units[i]));
    atomic_store(&w->short_of_experts,
                 any && w->stream && w->o.mode == KIN_STREAM_RESIDENT && budget < kin_weights_cpu_bytes(w->model, &w->o));
}

uint64_t kin_weights_set_budget(kin_weights *w, uint64_t budget) {
    note_experts(w, budget);
    return w->stream ? kin_stream_set_budget(w->stream, budget) : kin_weights_cpu_bytes(w->model, &w->o);
}

uint64_t kin_weights_most_useful_budget(const kin_weights *w) {
    return w->stream && kin_stream_can_stream(w->stream) ? kin_weights_cpu_bytes(w->model, &w->o) : 0;
}

// ---- open and close

static int alloc_state(kin_weights *w, kin_err *err) {
    size_t n_layer = (size_t)kin_windows_n_layers(&w->o.windows), n_layer_all = (size_t)w->model->hp.n_layer;
    w->n_tiles = w->o.output ? count_tiles(w->model) : 0;
    w->layers = calloc(n_layer_all, sizeof *w->layers);
    w->on_gpu = calloc(n_layer_all, sizeof *w->on_gpu);
    w->blocks = calloc(n_layer_all, sizeof *w->blocks);
    w->layer_units = calloc(n_layer_all, sizeof *w->layer_units);
    w->tiles = calloc((size_t)w->n_tiles + 1, sizeof *w->tiles);
    w->units = calloc(n_layer * KIN_UNIT_COUNT + (size_t)w->n_tiles + 3, sizeof *w->units); // and norm, two times rope factors
    size_t n_tensors = (n_layer + 1) * KIN_W_COUNT + (size_t)w->n_tiles;
    struct ggml_init_params params = {.mem_size = n_tensors * ggml_tensor_overhead(), .no_alloc = true};
    w->ctx = ggml_init(params);
    w->gpu_ctx = ggml_init(params);
    return w->layers && w->on_gpu && w->blocks && w->layer_units && w->tiles && w->units && w->ctx && w->gpu_ctx
               ? 0
               : kin_err_set(err, "out of memory");
}

static void try_cache(kin_weights *w) {
    uint64_t to_pack = 0;
    kin_err err;
    for (size_t i = 0; i < w->n_units; i++) to_pack += w->units[i].pack ? w->units[i].packed_bytes : 0;
    if (!w->o.cache_dir || (to_pack < CACHE_MIN_BYTES && !must_stream(w)) || to_pack == 0) return;
    if (open_cache(w, &err) != 0) kin_log(KIN_LOG_WARN, "no prepacked cache: %s", err.text);
}

int kin_weights_open(kin_weights **out, const kin_model *model, const kin_devices *devices, const kin_weights_options *o,
                     kin_err *err) {
    *out = NULL;
    kin_weights *w = calloc(1, sizeof *w);
    if (!w) return kin_err_set(err, "out of memory");
    w->model = model;
    w->devices = devices;
    w->o = *o;
    pthread_mutex_init(&w->failing, NULL);
    if (alloc_state(w, err) != 0) goto fail;
    collect_units(w);
    try_cache(w);
    if (place_cpu(w, err) != 0 || place_gpu(w, err) != 0 || open_stream(w, err) != 0) goto fail;
    note_experts(w, w->o.budget);
    w->o.arrival = NULL;
    start_finisher(w);
    *out = w;
    return 0;

fail:
    kin_weights_close(w);
    return KIN_FAIL;
}

void kin_weights_close(kin_weights *w) {
    if (!w) return;
    if (w->finishing) pthread_join(w->finisher, NULL);
    kin_stream_close(w->stream);
    for (size_t i = 0; i < w->n_units; i++) {
        if (w->units[i].base) munmap(w->units[i].base, align_up(w->units[i].packed_bytes, KIN_PACKED_ALIGN));
    }
    ggml_backend_buffer_free(w->gpu_buf);
    ggml_backend_buffer_free(w->repack_home);
    ggml_backend_buffer_free(w->plain_home);
    if (w->plain_memory) {
        uint64_t largest = TENSOR_ALIGN;
        for (size_t i = 0; i < w->n_units; i++) largest = w->units[i].packed_bytes > largest ? w->units[i].packed_bytes : largest;
        munmap(w->plain_memory, largest);
    }
    if (w->ctx) ggml_free(w->ctx);
    if (w->gpu_ctx) ggml_free(w->gpu_ctx);
    kin_packed_close(w->packed);
    pthread_mutex_destroy(&w->failing);
    free(w->stream_units);
    free(w->units);
    free(w->tiles);
    free(w->layers);
    free(w->on_gpu);
    free(w->blocks);
    free(w->layer_units);
    free(w);
}

const kin_device *kin_weights_device(const kin_weights *w, int il) {
    return w->on_gpu[il] ? &w->devices->gpu : &w->devices->cpu;
}

struct ggml_tensor *const *kin_weights_layer(const kin_weights *w, int il) {
    return w->layers[il];
}

struct ggml_tensor *kin_weights_rope_factors(const kin_weights *w, const kin_device *device) {
    return w->rope_factors[device->is_gpu];
}

struct ggml_tensor *kin_weights_output_norm(const kin_weights *w) {
    return w->output_norm;
}

int kin_weights_n_tiles(const kin_weights *w) {
    return w->n_tiles;
}

struct ggml_tensor *kin_weights_tile(const kin_weights *w, int i_tile) {
    return w->tiles[i_tile];
}

kin_weights_stats kin_weights_get_stats(const kin_weights *w) {
    kin_weights_stats stats = w->stats;
    for (size_t i = 0; i < w->n_units; i++) {
        const unit *u = &w->units[i];
        if (u->pack && !atomic_load(&u->in_file)) stats.anonymous_bytes += u->packed_bytes;
    }
    if (w->stream) stats.stream = kin_stream_get_stats(w->stream);
    return stats;
}

size_t kin_weights_take_intervals(kin_weights *w, kin_stream_record record, kin_interval *out, size_t n_max) {
    return w->stream ? kin_stream_take_intervals(w->stream, record, out, n_max) : 0;
}
