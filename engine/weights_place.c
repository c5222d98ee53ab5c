// Where the units' bytes are: the prepacked cache file, memory, the model file's mapping, the GPU.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "base/log.h"
#include "engine/cache_dir.h"
#include "engine/weights_impl.h"
#include "model/kernel_ops.h"
#include "sys/background.h"
#include "sys/checks.h"
#include "sys/memory.h"
#include "sys/pages.h"
#include "sys/parallel.h"

// Below this a model packs faster than a cache file is worth having.
#define CACHE_MIN_BYTES (32u << 20)

enum {
    HUGE_BYTES = 2 << 20, // a huge page of x86-64 and of arm64 with small pages
    SAMPLE_BYTES = 512,   // of each tensor, at as many places, for the model's identity
    N_SAMPLES = 3,
};

// ---- the prepacked cache

// Names, shapes, types and a sample of every tensor: what agrees in all of it is one model, though perhaps one that was mended
// since. Each unit of the file remembers what it was made from (packed.h).
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

// How the model's files look now; see packed.h.
static uint64_t source_stamp(const kin_model *m) {
    uint64_t stamp = kin_gguf_on_disk(m->gguf);
    for (int i = 0; i < kin_gguf_n_files(m->gguf); i++) stamp = kin_file_stamp(kin_gguf_file_fd(m->gguf, i), stamp);
    return stamp;
}

// The file has room for every unit of the whole model, so that it is the same whatever range a device runs.
static int open_cache(kin_weights *w, kin_err *err) {
    const kin_model *m = w->model;
    const kin_device *cpu = &w->devices->cpu;
    size_t n_layer_units = (size_t)m->hp.n_layer * KIN_UNIT_COUNT, n = n_layer_units + (size_t)kin_weights_count_tiles(m);
    uint64_t *bytes = calloc(n, sizeof *bytes), total = 0;
    uint64_t variant = kin_hash64(w->devices->cpu_variant, strlen(w->devices->cpu_variant), KIN_PANEL_FORMAT);
    if (!bytes) return kin_err_set(err, "out of memory");
    for (size_t i = 0; i < n; i++) {
        kin_weights_unit u = {0};
        if (i < n_layer_units)
            kin_weights_add_layer_unit(&u, m, (int)(i / KIN_UNIT_COUNT), (kin_unit)(i % KIN_UNIT_COUNT), NULL, cpu);
        else
            kin_weights_add_tile_unit(&u, m, (int)(i - n_layer_units), NULL, cpu);
        bytes[i] = u.pack ? u.packed_bytes : 0;
        for (int k = 0; k < u.n_pieces; k++) variant = kin_hash64(&u.pieces[k].layout, sizeof u.pieces[k].layout, variant);
        total += bytes[i];
    }
    kin_packed_key key = {.variant = variant};
    key.model = w->o.identity;
    w->source_stamp = key.model ? 0 : source_stamp(m);
    int rc = key.model ? 0 : model_identity(m, &key.model, err); // a file that is here in parts has no samples everywhere
    if (rc == 0 && !kin_packed_exists(w->o.cache_dir, key))
        rc = kin_cache_dir_make_room(w->o.cache_dir, total, w->o.cache_cap, err);
    if (rc == 0) rc = kin_packed_open(&w->packed, w->o.cache_dir, key, w->source_stamp, n, bytes, err);
    free(bytes);
    return rc;
}

// The packed bytes move to the cache file and its pages take their place: the same content, but memory that the OS can take back.
static int move_to_file(kin_weights *w, kin_weights_unit *u, kin_err *err) {
    if (u->fresh && kin_packed_write(w->packed, u->i_packed, u->base, u->source_hash, err) != 0) return KIN_FAIL;
    if (kin_packed_map(w->packed, u->i_packed, u->base, err) != 0) return KIN_FAIL;
    atomic_store(&u->in_file, true);
    return 0;
}

// Unless an earlier one failed to.
static void try_move(kin_weights *w, kin_weights_unit *u) {
    kin_err err;
    if (!w->packed || atomic_load(&w->cache_failed) || move_to_file(w, u, &err) == 0) return;
    if (!atomic_exchange(&w->cache_failed, true)) kin_log(KIN_LOG_WARN, "the prepacked cache cannot be used: %s", err.text);
}

void kin_weights_finish_cache(kin_weights *w) {
    kin_err err;
    kin_background_thread();
    for (size_t i = 0; i < w->n_units && !w->must_stream; i++) { // else each has moved, or never will
        kin_weights_unit *u = &w->units[i];
        if (u->pack && u->fresh && !atomic_load(&u->in_file)) try_move(w, u);
    }
    if (kin_packed_seal(w->packed, &err) != 0) kin_log(KIN_LOG_WARN, "the prepacked cache stays incomplete: %s", err.text);
}

static bool must_stream(const kin_weights *w) {
    return w->o.mode == KIN_STREAM_RESIDENT && w->o.budget < kin_weights_cpu_bytes(w->model, &w->o);
}

void kin_weights_try_cache(kin_weights *w) {
    uint64_t to_pack = 0;
    kin_err err;
    for (size_t i = 0; i < w->n_units; i++) to_pack += w->units[i].pack ? w->units[i].packed_bytes : 0;
    if (!w->o.cache_dir || (to_pack < CACHE_MIN_BYTES && !must_stream(w)) || to_pack == 0) return;
    if (open_cache(w, &err) != 0) kin_log(KIN_LOG_WARN, "no prepacked cache: %s", err.text);
}

// ---- placing the CPU's units

static int open_homes(kin_weights *w, kin_err *err) {
    uint64_t largest = KIN_WEIGHTS_ALIGN;
    bool repack = false;
    for (size_t i = 0; i < w->n_units; i++) {
        const kin_weights_unit *u = &w->units[i];
        if (u->packed_bytes > largest) largest = u->packed_bytes;
        for (int k = 0; k < u->n_pieces; k++) repack = repack || (u->pack && u->pieces[k].layout == KIN_LAYOUT_REPACK);
    }
    // Address space only: never written to.
    w->plain_memory = mmap(NULL, largest, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (w->plain_memory == MAP_FAILED) {
        w->plain_memory = NULL;
        return kin_err_set(err, "out of address space");
    }
    w->plain_home = ggml_backend_cpu_buffer_from_ptr(w->plain_memory, largest);
    if (repack) w->repack_home = ggml_backend_buft_alloc_buffer(w->devices->cpu.repack_buft, largest + KIN_WEIGHTS_ALIGN);
    return w->plain_home && (!repack || w->repack_home) ? 0 : kin_err_set(err, "out of memory");
}

static struct ggml_tensor *new_tensor(struct ggml_context *ctx, const kin_weights_piece *p) {
    return ggml_new_tensor_3d(ctx, (enum ggml_type)p->type, p->ne[0], p->ne[1], p->ne[2]);
}

// Gives the tensor its kind (plain, packed); its data pointer is set afterwards.
static int be_born(kin_weights *w, const kin_weights_piece *p, kin_layout layout, kin_err *err) {
    struct ggml_tensor *t = *p->slot;
    ggml_backend_buffer_t home = layout == KIN_LAYOUT_REPACK ? w->repack_home : w->plain_home;
    t->buffer = NULL;
    t->data = NULL;
    t->extra = NULL;
    if (ggml_backend_tensor_alloc(home, t, ggml_backend_buffer_get_base(home)) != GGML_STATUS_SUCCESS) {
        return kin_err_set(err, "a tensor of type %s cannot be placed", kin_gguf_type_name(p->type));
    }
    if (layout == KIN_LAYOUT_PANELS) kin_ops_mark_packed(t);
    return 0;
}

void kin_weights_point_at_mapping(kin_weights_unit *u) {
    for (int i = 0; i < u->n_pieces; i++) {
        const kin_weights_piece *p = &u->pieces[i];
        (*p->slot)->data = u->pack ? u->base + p->offset : (uint8_t *)p->data;
    }
}

// Fresh pages for n bytes, at an address that is as far from a multiple of HUGE_BYTES as `offset` is: a file mapped there from
// that offset can have huge pages wherever the file system keeps it in such. NULL without memory.
static uint8_t *reserve_pages(uint64_t n, uint64_t offset) {
    uint64_t bytes = kin_weights_align_up(n, KIN_PACKED_ALIGN), shift = offset % HUGE_BYTES;
    uint8_t *all = mmap(NULL, bytes + 2 * HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return NULL;
    uint8_t *base = (uint8_t *)kin_weights_align_up((uintptr_t)all, HUGE_BYTES) + shift, *end = all + bytes + 2 * HUGE_BYTES;
    if (base > all) munmap(all, (size_t)(base - all));
    if (end > base + bytes) munmap(base + bytes, (size_t)(end - base - bytes));
    return base;
}

static int place_unit(kin_weights *w, kin_weights_unit *u, kin_err *err) {
    for (int i = 0; i < u->n_pieces; i++) {
        kin_weights_piece *p = &u->pieces[i];
        if (!*p->slot) *p->slot = new_tensor(w->ctx, p);
        if (be_born(w, p, u->pack ? p->layout : KIN_LAYOUT_PLAIN, err) != 0) return KIN_FAIL;
    }
    if (u->pack && !u->base) {
        uint8_t *base = reserve_pages(u->packed_bytes, w->packed ? kin_packed_offset(w->packed, u->i_packed) : 0);
        if (!base) return kin_err_set(err, "out of memory: %llu bytes for weights", (unsigned long long)u->packed_bytes);
        u->base = base;
        u->fresh = !w->packed || !kin_packed_has(w->packed, u->i_packed);
    }
    kin_weights_point_at_mapping(u);
    return 0;
}

static void report(kin_weights *w, const char *what, uint64_t n) {
    uint64_t done = atomic_fetch_add(&w->n_done, n) + n;
    if (w->o.progress) w->o.progress(w->o.progress_user, what, done, atomic_load(&w->n_total));
}

void kin_weights_pack(kin_weights_unit *u, uint8_t *base) {
    for (int k = 0; k < u->n_pieces; k++) {
        const kin_weights_piece *p = &u->pieces[k];
        (*p->slot)->data = base + p->offset;
        if (p->layout == KIN_LAYOUT_REPACK)
            ggml_backend_tensor_set(*p->slot, p->data, 0, p->bytes);
        else if (p->layout == KIN_LAYOUT_PANELS)
            kin_kernel_pack(p->type, p->ne[0], p->ne[1] * p->ne[2], p->data, base + p->offset);
        else
            memcpy(base + p->offset, p->data, p->bytes);
    }
}

// What a packed unit was made from is not looked at again: its pages leave our memory (not the page cache).
static void forget_source(const kin_weights *w, const kin_weights_unit *u) {
    for (int i = 0; i < u->n_pieces && kin_gguf_on_disk(w->model->gguf); i++)
        kin_pages_drop((uint8_t *)u->pieces[i].data, u->pieces[i].bytes);
}

static void drop_packed(const kin_weights_unit *u) {
    kin_pages_drop(u->base, kin_weights_align_up(u->packed_bytes, KIN_PACKED_ALIGN));
}

void kin_weights_drop_pages(const kin_weights *w, const kin_weights_unit *u) {
    if (u->pack && atomic_load(&u->in_file)) drop_packed(u);
    if (!u->pack) forget_source(w, u);
}

bool kin_weights_on_disk(const kin_weights *w, const kin_weights_unit *u) {
    return u->pack ? atomic_load(&u->in_file) : kin_gguf_on_disk(w->model->gguf);
}

static int await_unit(const kin_weights *w, const kin_weights_unit *u, kin_err *err) {
    const kin_arrival *a = w->o.arrival;
    for (int i = 0; a && i < u->n_pieces; i++) {
        const kin_weights_piece *p = &u->pieces[i];
        if (a->wait(a->user, p->i_file, p->file_offset, p->bytes, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static int fill(kin_weights *w, kin_weights_unit *u, kin_err *err) {
    if (u->pack && !u->fresh) u->fresh = !kin_weights_trust(w, u);
    if (u->pack && !u->fresh) try_move(w, u);
    if (atomic_load(&u->in_file)) {
        forget_source(w, u);
        return 0;
    }
    if (await_unit(w, u, err) != 0) return KIN_FAIL;
    if (!u->pack) return 0;
    bool hopeless = w->must_stream && atomic_load(&w->cache_failed); // it will be used as it is in the model file
    if (!hopeless) {
        if (w->source_stamp) u->source_hash = kin_weights_source_hash(u); // first: should it change now, the next start sees that
        kin_weights_pack(u, u->base);                                     // in its place, which is ordinary memory so far
        if (w->move_at_once) try_move(w, u);
        if (w->must_stream && !atomic_load(&u->in_file)) drop_packed(u);
        report(w, "packing weights", u->packed_bytes);
    }
    forget_source(w, u);
    return 0;
}

static void fill_unit(kin_weights *w, kin_weights_unit *u) {
    kin_err err;
    int rc = fill(w, u, &err);
    pthread_mutex_lock(&w->mutex);
    if (rc == 0)
        atomic_store(&u->here, true);
    else if (!w->has_failed)
        w->failure = err;
    w->has_failed = w->has_failed || rc != 0;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

static void fill_one(void *user, size_t i) {
    kin_weights *w = user;
    kin_weights_unit *u = &w->units[i];
    if (!u->device->is_gpu && !u->later) fill_unit(w, u);
}

static void fill_later_one(void *user, size_t i) {
    kin_weights *w = user;
    kin_weights_unit *u = &w->units[i];
    if (!u->device->is_gpu && u->later) fill_unit(w, u);
}

bool kin_weights_has_fresh(const kin_weights *w) {
    for (size_t i = 0; i < w->n_units; i++) {
        if (w->units[i].fresh) return true;
    }
    return false;
}

// Of the cache file, that may have to be packed again.
static uint64_t doubtful_bytes(const kin_weights *w) {
    uint64_t sum = 0;
    for (size_t i = 0; i < w->n_units; i++) {
        const kin_weights_unit *u = &w->units[i];
        bool in_cache = u->pack && !u->fresh && !u->device->is_gpu;
        if (in_cache && !(kin_packed_is_current(w->packed, u->i_packed) && kin_packed_is_checked(w->packed, u->i_packed)))
            sum += u->packed_bytes;
    }
    return sum;
}

// As many as compute, where there is something to pack or to check.
static int n_fillers(const kin_weights *w) {
    return kin_weights_has_fresh(w) || doubtful_bytes(w) > 0 ? w->devices->n_threads : 1;
}

void kin_weights_fill_later(kin_weights *w) {
    kin_parallel(n_fillers(w), w->n_units, fill_later_one, w);
}

// Streaming reads from a file: a unit that found no place in the cache is used as it is in the model file.
static int unpack(kin_weights *w, kin_weights_unit *u, kin_err *err) {
    munmap(u->base, kin_weights_align_up(u->packed_bytes, KIN_PACKED_ALIGN));
    u->base = NULL;
    u->pack = false;
    return place_unit(w, u, err);
}

static void count_units(kin_weights *w) {
    w->stats.packed_bytes = w->stats.cached_bytes = w->stats.mapped_bytes = 0;
    for (size_t i = 0; i < w->n_units; i++) {
        const kin_weights_unit *u = &w->units[i];
        if (u->device->is_gpu) continue;
        uint64_t *sum = !u->pack ? &w->stats.mapped_bytes : u->fresh ? &w->stats.packed_bytes : &w->stats.cached_bytes;
        *sum += u->pack ? u->packed_bytes : u->bytes;
    }
}

static bool is_lost(const kin_weights_unit *u) {
    return u->pack && !atomic_load(&u->in_file);
}

static bool was_unpacked(const kin_weights_unit *u) {
    for (int i = 0; i < u->n_pieces && !u->pack; i++) {
        if (u->pieces[i].layout != KIN_LAYOUT_PLAIN) return true;
    }
    return false;
}

// A layer's experts are computed by kin's kernels or by ggml's: where one of its units is lost, all are used as in the file.
static bool has_lost_sibling(const kin_weights *w, const kin_weights_unit *u) {
    const kin_weights_unit *first = &w->units[w->layer_units[u->i_packed / KIN_UNIT_COUNT]];
    for (int i = 0; i < KIN_UNIT_COUNT; i++) {
        if (first[i].experts && (is_lost(&first[i]) || was_unpacked(&first[i]))) return true;
    }
    return false;
}

int kin_weights_unpack_if_lost(kin_weights *w, kin_weights_unit *u, kin_err *err) {
    if (!w->must_stream || !u->pack) return 0;
    return is_lost(u) || (u->experts && has_lost_sibling(w, u)) ? unpack(w, u, err) : 0;
}

int kin_weights_settle_cpu(kin_weights *w, kin_err *err) {
    for (size_t i = 0; i < w->n_units; i++) {
        if (kin_weights_unpack_if_lost(w, &w->units[i], err) != 0) return KIN_FAIL;
    }
    count_units(w);
    return 0;
}

int kin_weights_place_cpu(kin_weights *w, kin_err *err) {
    if (open_homes(w, err) != 0) return KIN_FAIL;
    bool stream = w->must_stream = must_stream(w);
    for (size_t i = 0; i < w->n_units; i++) {
        kin_weights_unit *u = &w->units[i];
        if (u->device->is_gpu) continue;
        u->pack = u->pack && !(stream && !w->packed);
        if (place_unit(w, u, err) != 0) return KIN_FAIL;
    }
    count_units(w);
    atomic_store(&w->n_total, w->stats.packed_bytes);
    // Writing the cache file can wait until the model runs, if memory holds the packed weights so long.
    w->move_at_once = stream || w->stats.packed_bytes + doubtful_bytes(w) > kin_memory_read().available / 2;
    kin_parallel(n_fillers(w), w->n_units, fill_one, w);
    if (w->has_failed) {
        *err = w->failure;
        return KIN_FAIL;
    }
    return w->has_later ? 0 : kin_weights_settle_cpu(w, err);
}

// ---- placing the GPU's units

int kin_weights_copy_units(kin_weights *w, size_t begin, size_t end, bool later, kin_err *err) {
    for (size_t i = begin; i < end; i++) {
        kin_weights_unit *u = &w->units[i];
        if (!u->device->is_gpu || u->later != later || atomic_load(&u->here)) continue;
        if (await_unit(w, u, err) != 0) return KIN_FAIL;
        for (int k = 0; k < u->n_pieces; k++) {
            kin_weights_piece *p = &u->pieces[k];
            ggml_backend_tensor_set(*p->slot, p->data, 0, p->bytes);
            report(w, "copying weights to the GPU", p->bytes);
        }
        atomic_store(&u->here, true);
    }
    return 0;
}

int kin_weights_place_gpu(kin_weights *w, kin_err *err) {
    for (size_t i = 0; i < w->n_units; i++) {
        for (int k = 0; w->units[i].device->is_gpu && k < w->units[i].n_pieces; k++) {
            kin_weights_piece *p = &w->units[i].pieces[k];
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
    if (w->has_later) {
        atomic_fetch_add(&w->n_total, w->stats.gpu_bytes); // some are still to be packed
    } else {
        atomic_store(&w->n_done, 0);
        atomic_store(&w->n_total, w->stats.gpu_bytes);
    }
    return kin_weights_copy_units(w, 0, w->n_units, false, err);
}
