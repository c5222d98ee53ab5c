#include "engine/weights.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "base/log.h"
#include "engine/packed.h"
#include "sys/background.h"
#include "sys/memory.h"
#include "sys/parallel.h"

// Below this a model packs faster than a cache file is worth having.
#define CACHE_MIN_BYTES (32u << 20)

enum { TENSOR_ALIGN = 64, MAX_UNIT_TENSORS = 12 };

// One weight of a unit: where it comes from and the tensor that it becomes.
typedef struct piece {
    const kin_gguf_tensor *src;
    struct ggml_tensor **slot; // in weights->layers or the output's fields
    bool repack;
    uint64_t offset; // in the packed unit
} piece;

// A block of a layer, or the output layer.
typedef struct unit {
    piece pieces[MAX_UNIT_TENSORS];
    int n_pieces;
    const kin_device *device;
    bool pack;
    uint64_t packed_bytes;
    size_t i_packed; // its number in the cache file

    ggml_backend_buffer_t repack_buf, plain_buf; // packed: two views of the same memory; mapped: plain_buf only
    uint8_t *base;                               // packed: page-aligned start
    atomic_bool in_file;                         // base is mapped from the cache file
    bool fresh;                                  // packed at this start
} unit;

struct kin_weights {
    const kin_model *model;
    const kin_devices *devices;
    kin_weights_options o;

    struct ggml_tensor *(*layers)[KIN_W_COUNT]; // [layer_end - layer_begin]
    struct ggml_tensor *output_norm, *output;
    struct ggml_tensor *rope_factors[2]; // for the CPU's layers, for the GPU's
    unit *units;
    size_t n_units;

    struct ggml_context *ctx;     // the CPU's tensors
    struct ggml_context *gpu_ctx; // the GPU's
    ggml_backend_buffer_t gpu_buf;

    kin_packed *packed;
    pthread_t finisher; // writes the cache file while the model already runs
    bool finishing;
    bool move_at_once;  // each unit goes to the cache file as soon as it is packed
    atomic_bool cache_failed;
    kin_weights_stats stats;
    atomic_ullong n_done, n_total; // bytes, for progress
};

static uint64_t align_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

// ---- what belongs to which unit

static void add_piece(unit *u, const kin_gguf_tensor *src, struct ggml_tensor **slot, const kin_device *cpu) {
    if (!src) return;
    kin_assert(u->n_pieces < MAX_UNIT_TENSORS);
    piece *p = &u->pieces[u->n_pieces++];
    *p = (piece){.src = src, .slot = slot, .repack = kin_device_can_repack(cpu, src->type, src->ne)};
    p->offset = align_up(u->packed_bytes, TENSOR_ALIGN);
    u->packed_bytes = p->offset + src->n_bytes;
    u->pack = u->pack || p->repack;
}

static void collect_layers(kin_weights *w) {
    const kin_weights_options *o = &w->o;
    const kin_device *cpu = &w->devices->cpu;
    for (int il = o->layer_begin; il < o->layer_end; il++) {
        for (int block = 0; block < KIN_BLOCK_COUNT; block++) {
            unit *u = &w->units[w->n_units++];
            u->device = il >= o->layer_end - o->n_gpu_layers ? &w->devices->gpu : cpu;
            u->i_packed = (size_t)il * KIN_BLOCK_COUNT + (size_t)block;
            for (int id = 0; id < KIN_W_COUNT; id++) {
                if (kin_weight_block(id) == (kin_block)block) {
                    add_piece(u, w->model->layers[il].w[id], &w->layers[il - o->layer_begin][id], cpu);
                }
            }
        }
    }
}

static void collect_rest(kin_weights *w) {
    const kin_weights_options *o = &w->o;
    const kin_device *cpu = &w->devices->cpu;
    for (int gpu = 0; gpu < 2; gpu++) {
        if (gpu && o->n_gpu_layers == 0) continue;
        unit *u = &w->units[w->n_units++];
        u->device = gpu ? &w->devices->gpu : cpu;
        add_piece(u, w->model->rope_factors, &w->rope_factors[gpu], cpu);
    }
    if (o->output) {
        unit *u = &w->units[w->n_units++];
        u->device = o->output_on_gpu ? &w->devices->gpu : cpu;
        u->i_packed = (size_t)w->model->hp.n_layer * KIN_BLOCK_COUNT;
        add_piece(u, w->model->output_norm, &w->output_norm, cpu);
        add_piece(u, w->model->output, &w->output, cpu);
    }
}

static void collect_units(kin_weights *w) {
    collect_layers(w);
    collect_rest(w);
    for (size_t i = 0; i < w->n_units; i++) w->units[i].pack = w->units[i].pack && !w->units[i].device->is_gpu;
}

static struct ggml_tensor *new_tensor(struct ggml_context *ctx, const kin_gguf_tensor *src) {
    struct ggml_tensor *t = ggml_new_tensor_4d(ctx, (enum ggml_type)src->type, src->ne[0], src->ne[1], src->ne[2], src->ne[3]);
    char name[GGML_MAX_NAME] = "";
    memcpy(name, src->name.at, src->name.len < sizeof name - 1 ? src->name.len : sizeof name - 1);
    ggml_set_name(t, name);
    return t;
}

// ---- the prepacked cache's identity

// Names, shapes, types and a sample of every tensor: two models that agree in all of it have the same weights.
static uint64_t model_identity(const kin_model *model) {
    uint64_t h = 1;
    for (size_t i = 0; i < kin_gguf_n_tensors(model->gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(model->gguf, i);
        uint64_t sample = t->n_bytes < 512 ? t->n_bytes : 512;
        h = kin_hash64(t->name.at, t->name.len, h);
        h = kin_hash64(t->ne, sizeof t->ne, h + (uint64_t)t->type);
        h = kin_hash64(t->data + (t->n_bytes - sample) / 2, sample, h);
    }
    return h;
}

// The packed size of every unit of the whole model, so that the file is the same whatever range a device runs.
static int open_cache(kin_weights *w, kin_err *err) {
    const kin_model *m = w->model;
    size_t n = (size_t)m->hp.n_layer * KIN_BLOCK_COUNT + 1;
    uint64_t *bytes = calloc(n, sizeof *bytes);
    if (!bytes) return kin_err_set(err, "out of memory");
    for (size_t i = 0; i < n; i++) {
        unit all = {0};
        struct ggml_tensor *ignored;
        for (int id = 0; i + 1 < n && id < KIN_W_COUNT; id++) {
            if (kin_weight_block(id) == (kin_block)(i % KIN_BLOCK_COUNT)) {
                add_piece(&all, m->layers[i / KIN_BLOCK_COUNT].w[id], &ignored, &w->devices->cpu);
            }
        }
        if (i + 1 == n) {
            add_piece(&all, m->output_norm, &ignored, &w->devices->cpu);
            add_piece(&all, m->output, &ignored, &w->devices->cpu);
        }
        bytes[i] = all.pack ? all.packed_bytes : 0;
    }
    kin_packed_key key = {model_identity(m), kin_hash64(w->devices->cpu_variant, strlen(w->devices->cpu_variant), 0)};
    int rc = kin_packed_open(&w->packed, w->o.cache_dir, key, n, bytes, err);
    free(bytes);
    return rc;
}

// ---- placing units

static int place_tensor(ggml_backend_buffer_t buf, struct ggml_tensor *t, const void *at, kin_err *err) {
    if (ggml_backend_tensor_alloc(buf, t, (void *)at) != GGML_STATUS_SUCCESS) return kin_err_set(err, "tensor '%s' cannot be placed", t->name);
    return 0;
}

// A unit as it is in the model file.
static int place_mapped(kin_weights *w, unit *u, kin_err *err) {
    if (u->n_pieces == 0) return 0;
    const uint8_t *begin = (const uint8_t *)UINTPTR_MAX, *end = NULL;
    for (int i = 0; i < u->n_pieces; i++) {
        const kin_gguf_tensor *src = u->pieces[i].src;
        if (src->data < begin) begin = src->data;
        if (src->data + src->n_bytes > end) end = src->data + src->n_bytes;
    }
    begin -= (uintptr_t)begin % TENSOR_ALIGN;
    u->plain_buf = ggml_backend_cpu_buffer_from_ptr((void *)begin, (size_t)(end - begin));
    if (!u->plain_buf) return kin_err_set(err, "out of memory");
    for (int i = 0; i < u->n_pieces; i++) {
        piece *p = &u->pieces[i];
        *p->slot = new_tensor(w->ctx, p->src);
        if (place_tensor(u->plain_buf, *p->slot, p->src->data, err) != 0) return KIN_FAIL;
        w->stats.mapped_bytes += p->src->n_bytes;
    }
    return 0;
}

// Room for a packed unit, page-aligned, so that the cache file can be mapped over it.
static int place_packed(kin_weights *w, unit *u, kin_err *err) {
    u->repack_buf = ggml_backend_buft_alloc_buffer(w->devices->cpu.repack_buft, align_up(u->packed_bytes, KIN_PACKED_ALIGN) + KIN_PACKED_ALIGN);
    if (!u->repack_buf) return kin_err_set(err, "out of memory: %llu bytes for weights", (unsigned long long)u->packed_bytes);
    u->base = (uint8_t *)align_up((uintptr_t)ggml_backend_buffer_get_base(u->repack_buf), KIN_PACKED_ALIGN);
    u->plain_buf = ggml_backend_cpu_buffer_from_ptr(u->base, u->packed_bytes);
    u->fresh = !w->packed || !kin_packed_has(w->packed, u->i_packed);
    for (int i = 0; i < u->n_pieces; i++) {
        piece *p = &u->pieces[i];
        *p->slot = new_tensor(w->ctx, p->src);
        if (place_tensor(p->repack ? u->repack_buf : u->plain_buf, *p->slot, u->base + p->offset, err) != 0) return KIN_FAIL;
    }
    if (u->fresh) w->stats.packed_bytes += u->packed_bytes;
    else w->stats.cached_bytes += u->packed_bytes;
    return 0;
}

static void report(kin_weights *w, const char *what, uint64_t n) {
    uint64_t done = atomic_fetch_add(&w->n_done, n) + n;
    if (w->o.progress) w->o.progress(w->o.progress_user, what, done, atomic_load(&w->n_total));
}

// Packs a unit in its place, which is ordinary memory so far.
static void pack(unit *u) {
    for (int k = 0; k < u->n_pieces; k++) {
        const piece *p = &u->pieces[k];
        if (p->repack) ggml_backend_tensor_set(*p->slot, p->src->data, 0, p->src->n_bytes);
        else memcpy(u->base + p->offset, p->src->data, p->src->n_bytes);
    }
}

// The packed bytes move to the cache file and its pages take their place: the same content, but memory that the OS can take back.
static int move_to_file(kin_weights *w, unit *u, kin_err *err) {
    if (u->fresh && kin_packed_write(w->packed, u->i_packed, u->base, err) != 0) return KIN_FAIL;
    if (kin_packed_map(w->packed, u->i_packed, u->base, err) != 0) return KIN_FAIL;
    u->in_file = true;
    return 0;
}

// Moves a freshly packed unit, unless an earlier one failed to.
static void try_move(kin_weights *w, unit *u) {
    kin_err err;
    if (!w->packed || atomic_load(&w->cache_failed) || move_to_file(w, u, &err) == 0) return;
    if (!atomic_exchange(&w->cache_failed, true)) kin_log(KIN_LOG_WARN, "the prepacked cache cannot be used: %s", err.text);
}

static void fill_unit(void *user, size_t i) {
    kin_weights *w = user;
    unit *u = &w->units[i];
    if (!u->pack || u->device->is_gpu) return;
    if (!u->fresh) try_move(w, u);
    if (u->in_file) return;
    pack(u);
    if (w->move_at_once) try_move(w, u);
    report(w, "packing weights", u->packed_bytes);
}

static int place_cpu(kin_weights *w, kin_err *err) {
    for (size_t i = 0; i < w->n_units; i++) {
        unit *u = &w->units[i];
        if (u->device->is_gpu) continue;
        if ((u->pack ? place_packed(w, u, err) : place_mapped(w, u, err)) != 0) return KIN_FAIL;
    }
    atomic_store(&w->n_total, w->stats.packed_bytes);
    // Writing the cache file can wait until the model runs, if memory holds the packed weights so long.
    w->move_at_once = w->stats.packed_bytes > kin_memory_read().available / 2;
    kin_parallel(w->stats.packed_bytes ? w->devices->n_threads : 1, w->n_units, fill_unit, w);
    return 0;
}

static int place_gpu(kin_weights *w, kin_err *err) {
    for (size_t i = 0; i < w->n_units; i++) {
        for (int k = 0; w->units[i].device->is_gpu && k < w->units[i].n_pieces; k++) {
            piece *p = &w->units[i].pieces[k];
            *p->slot = new_tensor(w->gpu_ctx, p->src);
            w->stats.gpu_bytes += p->src->n_bytes;
        }
    }
    if (!w->stats.gpu_bytes) return 0;
    size_t free_bytes, total_bytes;
    ggml_backend_dev_memory(w->devices->gpu.dev, &free_bytes, &total_bytes);
    w->gpu_buf = ggml_backend_alloc_ctx_tensors_from_buft(w->gpu_ctx, w->devices->gpu.buft);
    if (!w->gpu_buf) {
        return kin_err_set(err, "%s has no room for %llu MiB of weights (%zu of %zu MiB free): use fewer --gpu-layers",
                           w->devices->gpu.name, (unsigned long long)(w->stats.gpu_bytes >> 20), free_bytes >> 20, total_bytes >> 20);
    }
    ggml_backend_buffer_set_usage(w->gpu_buf, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    atomic_store(&w->n_done, 0);
    atomic_store(&w->n_total, w->stats.gpu_bytes);
    for (size_t i = 0; i < w->n_units; i++) {
        for (int k = 0; w->units[i].device->is_gpu && k < w->units[i].n_pieces; k++) {
            piece *p = &w->units[i].pieces[k];
            ggml_backend_tensor_set(*p->slot, p->src->data, 0, p->src->n_bytes);
            report(w, "copying weights to the GPU", p->src->n_bytes);
        }
    }
    return 0;
}

// ---- finishing the cache file in the background

static void *finish_cache(void *arg) {
    kin_weights *w = arg;
    kin_err err;
    kin_background_thread();
    for (size_t i = 0; i < w->n_units; i++) {
        unit *u = &w->units[i];
        if (u->pack && u->fresh && !u->in_file) try_move(w, u);
    }
    if (kin_packed_seal(w->packed, &err) != 0) kin_log(KIN_LOG_WARN, "the prepacked cache stays incomplete: %s", err.text);
    return NULL;
}

static void start_finisher(kin_weights *w) {
    if (w->packed && w->stats.packed_bytes) w->finishing = pthread_create(&w->finisher, NULL, finish_cache, w) == 0;
}

// ---- open and close

static uint64_t bytes_to_pack(const kin_weights *w) {
    uint64_t sum = 0;
    for (size_t i = 0; i < w->n_units; i++) sum += w->units[i].pack ? w->units[i].packed_bytes : 0;
    return sum;
}

static int open_contexts(kin_weights *w, kin_err *err) {
    size_t n_tensors = ((size_t)(w->o.layer_end - w->o.layer_begin) + 1) * KIN_W_COUNT;
    struct ggml_init_params params = {.mem_size = n_tensors * ggml_tensor_overhead(), .no_alloc = true};
    w->ctx = ggml_init(params);
    w->gpu_ctx = ggml_init(params);
    return w->ctx && w->gpu_ctx ? 0 : kin_err_set(err, "out of memory");
}

int kin_weights_open(kin_weights **out, const kin_model *model, const kin_devices *devices, const kin_weights_options *o, kin_err *err) {
    *out = NULL;
    size_t n_layer = (size_t)(o->layer_end - o->layer_begin);
    kin_weights *w = calloc(1, sizeof *w);
    if (!w) return kin_err_set(err, "out of memory");
    w->model = model;
    w->devices = devices;
    w->o = *o;
    w->layers = calloc(n_layer + 1, sizeof *w->layers);
    w->units = calloc(n_layer * KIN_BLOCK_COUNT + 3, sizeof *w->units); // the layers, two times rope factors, the output
    if (!w->layers || !w->units) {
        kin_err_set(err, "out of memory");
        goto fail;
    }
    if (open_contexts(w, err) != 0) goto fail;
    collect_units(w);

    kin_err why;
    if (o->cache_dir && bytes_to_pack(w) >= CACHE_MIN_BYTES && open_cache(w, &why) != 0) {
        kin_log(KIN_LOG_WARN, "no prepacked cache: %s", why.text);
    }
    if (place_cpu(w, err) != 0 || place_gpu(w, err) != 0) goto fail;
    start_finisher(w);
    *out = w;
    return 0;

fail:
    kin_weights_close(w);
    return KIN_FAIL;
}

static void close_unit(unit *u) {
    // The buffer's memory goes back to malloc: it must be ordinary memory again.
    if (u->in_file) {
        mmap(u->base, align_up(u->packed_bytes, KIN_PACKED_ALIGN), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    ggml_backend_buffer_free(u->plain_buf);
    ggml_backend_buffer_free(u->repack_buf);
}

void kin_weights_close(kin_weights *w) {
    if (!w) return;
    if (w->finishing) pthread_join(w->finisher, NULL);
    for (size_t i = 0; i < w->n_units; i++) close_unit(&w->units[i]);
    ggml_backend_buffer_free(w->gpu_buf);
    if (w->ctx) ggml_free(w->ctx);
    if (w->gpu_ctx) ggml_free(w->gpu_ctx);
    kin_packed_close(w->packed);
    free(w->units);
    free(w->layers);
    free(w);
}

const kin_device *kin_weights_device(const kin_weights *w, int il) {
    return il >= w->o.layer_end - w->o.n_gpu_layers ? &w->devices->gpu : &w->devices->cpu;
}

struct ggml_tensor *const *kin_weights_layer(const kin_weights *w, int il) {
    return w->layers[il - w->o.layer_begin];
}

struct ggml_tensor *kin_weights_rope_factors(const kin_weights *w, const kin_device *device) {
    return w->rope_factors[device->is_gpu];
}

struct ggml_tensor *kin_weights_output_norm(const kin_weights *w) {
    return w->output_norm;
}

struct ggml_tensor *kin_weights_output(const kin_weights *w) {
    return w->output;
}

kin_weights_stats kin_weights_get_stats(const kin_weights *w) {
    kin_weights_stats stats = w->stats;
    for (size_t i = 0; i < w->n_units; i++) {
        const unit *u = &w->units[i];
        if (u->pack && !u->in_file) stats.anonymous_bytes += u->packed_bytes;
    }
    return stats;
}
