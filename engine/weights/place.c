#include "engine/weights/place.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "engine/weights/cache.h"
#include "engine/weights/check.h"
#include "engine/weights/mapping.h"
#include "engine/weights/pack.h"
#include "model/kernel/ops.h"
#include "sys/background.h"
#include "sys/memory.h"
#include "sys/pages.h"
#include "sys/parallel.h"

// ---- placing the CPU's blocks

static void *reserve(void *at, uint64_t n) {
    return mmap(at, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
}

// Reserves address space for all packed blocks. Each has the same offset from a multiple of KIN_HUGE_PAGE as in the cache file,
// and the same neighbours: so huge pages of the file system can be mapped as such, also across block borders.
static int reserve_packed_home(kin_weights *w, kin_err *err) {
    uint64_t begin = UINT64_MAX, end = 0;
    for (size_t i = 0; i < w->n_blocks; i++) {
        kin_weights_block *b = &w->blocks[i];
        if (!b->pack) continue;
        b->home_offset = w->packed ? kin_packed_offset(w->packed, b->i_packed) : end;
        if (b->home_offset < begin) begin = b->home_offset;
        if (b->home_offset + kin_weights_page_bytes(b) > end) end = b->home_offset + kin_weights_page_bytes(b);
    }
    if (end == 0) return 0;
    begin = begin / KIN_HUGE_PAGE * KIN_HUGE_PAGE;
    w->packed_home_bytes = end - begin + KIN_HUGE_PAGE;
    w->packed_home = reserve(NULL, w->packed_home_bytes);
    if (w->packed_home == MAP_FAILED) {
        w->packed_home = NULL;
        return kin_err_set(err, "out of address space");
    }
    uint64_t shift = kin_weights_align_up((uintptr_t)w->packed_home, KIN_HUGE_PAGE) - (uintptr_t)w->packed_home - begin;
    for (size_t i = 0; i < w->n_blocks; i++) w->blocks[i].home_offset += shift; // may wrap around, and back
    return 0;
}

// Makes the block's address space usable memory: huge pages if the OS has them, for fewer faults while packing; but not if memory
// is short, because a huge page becomes free only when all of its blocks have moved.
static int map_pages(kin_weights *w, kin_weights_block *b, kin_err *err) {
    uint8_t *at = w->packed_home + b->home_offset;
    if (mprotect(at, kin_weights_page_bytes(b), PROT_READ | PROT_WRITE) != 0)
        return kin_err_set(err, "out of memory: %llu bytes for weights", (unsigned long long)b->packed_bytes);
    if (!w->must_stream) kin_pages_advise_huge(at, kin_weights_page_bytes(b));
    b->base = at;
    return 0;
}

static void give_pages_back(kin_weights_block *b) {
    reserve(b->base, kin_weights_page_bytes(b)); // keeps the address space reserved
    b->base = NULL;
}

static int open_homes(kin_weights *w, kin_err *err) {
    uint64_t largest = KIN_WEIGHTS_ALIGN;
    bool repack = false;
    if (reserve_packed_home(w, err) != 0) return KIN_FAIL;
    for (size_t i = 0; i < w->n_blocks; i++) {
        const kin_weights_block *b = &w->blocks[i];
        if (b->packed_bytes > largest) largest = b->packed_bytes;
        for (int k = 0; k < b->n_pieces; k++) repack = repack || (b->pack && b->pieces[k].layout == KIN_LAYOUT_REPACK);
    }
    // Address space only; never written.
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

// Sets the tensor's kind (plain, packed); its data pointer is set afterwards.
static int be_born(kin_weights *w, const kin_weights_piece *p, kin_layout layout, kin_err *err) {
    struct ggml_tensor *t = *p->slot;
    ggml_backend_buffer_t home = layout == KIN_LAYOUT_REPACK ? w->repack_home : w->plain_home;
    t->buffer = NULL;
    t->data = NULL;
    t->extra = NULL;
    if (ggml_backend_tensor_alloc(home, t, ggml_backend_buffer_get_base(home)) != GGML_STATUS_SUCCESS) {
        return kin_err_set(err, "cannot place a tensor of type %s", kin_gguf_type_name(p->type));
    }
    if (layout == KIN_LAYOUT_PANELS) kin_ops_mark_packed(t);
    return 0;
}

static int place_block(kin_weights *w, kin_weights_block *b, kin_err *err) {
    for (int i = 0; i < b->n_pieces; i++) {
        kin_weights_piece *p = &b->pieces[i];
        if (!*p->slot) *p->slot = new_tensor(w->ctx, p);
        if (be_born(w, p, b->pack ? p->layout : KIN_LAYOUT_PLAIN, err) != 0) return KIN_FAIL;
        struct ggml_tensor *t = *p->slot;
        t->nb[2] = b->pack && b->expert_stride > 0 ? b->expert_stride : t->nb[1] * (size_t)t->ne[1];
        t->nb[3] = t->nb[2] * (size_t)t->ne[2];
    }
    if (b->pack && !b->base) {
        if (map_pages(w, b, err) != 0) return KIN_FAIL;
        b->dirty = !w->packed || !kin_packed_has(w->packed, b->i_packed);
    }
    kin_weights_point_at_mapping(b);
    return 0;
}

static void report(kin_weights *w, const char *what, uint64_t n) {
    uint64_t done = atomic_fetch_add(&w->n_done, n) + n;
    if (w->o.progress) w->o.progress(w->o.progress_user, what, done, atomic_load(&w->n_total));
}

static int await_block(const kin_weights *w, const kin_weights_block *b, kin_err *err) {
    const kin_arrival *a = w->o.arrival;
    for (int i = 0; a && i < b->n_pieces; i++) {
        const kin_weights_piece *p = &b->pieces[i];
        for (uint64_t k = 0; k < p->n_runs; k++) {
            if (a->wait(a->user, p->i_file, p->file_offset + k * p->stride, p->run, err) != 0) return KIN_FAIL;
        }
    }
    return 0;
}

// Packs a layer's experts into the cache file and maps them: together they may be larger than memory. Returns false if that is
// not possible.
static bool move_experts(kin_weights *w, kin_weights_block *b) {
    kin_err err;
    if (b->expert_stride == 0 || !w->move_at_once || !w->packed || atomic_load(&w->cache_failed)) return false;
    if (kin_weights_pack_experts(w, b, b->base, &err) == 0 && kin_weights_map_block(w, b, &err) == 0) return true;
    kin_weights_warn_no_cache(w, &err);
    return false;
}

// Packs a block into its place, which is still ordinary memory, and moves it to the cache file if memory is short.
static int pack_block(kin_weights *w, kin_weights_block *b, kin_err *err) {
    bool hopeless = w->must_stream && atomic_load(&w->cache_failed); // the block will be used from the model file
    if (hopeless) return 0;
    // Before packing: if the source changes meanwhile, the next start detects it.
    if (w->source_stamp) b->source_hash = kin_weights_source_hash(b);
    if (!move_experts(w, b)) {
        hopeless = w->must_stream && b->expert_stride > 0;
        if (!hopeless && kin_weights_pack(w, b, b->base, err) != 0) return KIN_FAIL;
        if (w->move_at_once && !hopeless) kin_weights_try_move(w, b);
    }
    if (w->must_stream && !atomic_load(&b->in_file)) kin_weights_drop_packed(b);
    report(w, "packing weights", b->packed_bytes);
    return 0;
}

static int fill(kin_weights *w, kin_weights_block *b, kin_err *err) {
    if (b->pack && !b->dirty) b->dirty = !kin_weights_trust(w, b);
    if (b->pack && !b->dirty) kin_weights_try_move(w, b);
    if (atomic_load(&b->in_file)) {
        kin_weights_forget_source(w, b);
        return 0;
    }
    if (await_block(w, b, err) != 0) return KIN_FAIL;
    if (!b->pack) return 0;
    if (pack_block(w, b, err) != 0) return KIN_FAIL;
    kin_weights_forget_source(w, b);
    return 0;
}

static void fill_block(kin_weights *w, kin_weights_block *b) {
    kin_err err;
    int rc = fill(w, b, &err);
    pthread_mutex_lock(&w->mutex);
    if (rc == 0)
        atomic_store(&b->here, true);
    else if (!w->has_failed)
        w->failure = err;
    w->has_failed = w->has_failed || rc != 0;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

static void fill_one(void *user, size_t i) {
    kin_weights *w = user;
    kin_weights_block *b = &w->blocks[i];
    if (!b->device->is_gpu && !b->later) fill_block(w, b);
}

static void fill_later_one(void *user, size_t i) {
    kin_weights *w = user;
    kin_weights_block *b = &w->blocks[i];
    if (!b->device->is_gpu && b->later) fill_block(w, b);
}

bool kin_weights_has_dirty(const kin_weights *w) {
    for (size_t i = 0; i < w->n_blocks; i++) {
        if (w->blocks[i].dirty) return true;
    }
    return false;
}

// Returns the bytes in the cache file that may have to be packed again.
static uint64_t unchecked_bytes(const kin_weights *w) {
    uint64_t sum = 0;
    for (size_t i = 0; i < w->n_blocks; i++) {
        const kin_weights_block *b = &w->blocks[i];
        bool in_cache = b->pack && !b->dirty && !b->device->is_gpu;
        if (in_cache && !(kin_packed_is_current(w->packed, b->i_packed) && kin_packed_is_checked(w->packed, b->i_packed)))
            sum += b->packed_bytes;
    }
    return sum;
}

// As many threads as compute, if there is something to pack or to check.
static int n_fillers(const kin_weights *w) {
    return kin_weights_has_dirty(w) || unchecked_bytes(w) > 0 ? w->devices->n_threads : 1;
}

void kin_weights_fill_later(kin_weights *w) {
    kin_parallel(n_fillers(w), w->n_blocks, fill_later_one, w);
}

// Kernels need contiguous weights: a slice of several runs is contiguous only in the cache file. Turned ones are only there.
static bool is_gathered(const kin_weights_block *b) {
    for (int i = 0; i < b->n_pieces; i++) {
        if (b->pieces[i].n_runs > 1 || b->pieces[i].layout == KIN_LAYOUT_TURNED) return true;
    }
    return false;
}

static int refuse_gathered(kin_err *err) {
    return kin_err_set(err,
                       "weights that are cut or converted can be streamed only from the prepacked cache, which is not available: "
                       "set --cache, or give more memory");
}

// Streaming reads from a file: a block that found no room in the cache file is used from the model file.
static int unpack(kin_weights *w, kin_weights_block *b, kin_err *err) {
    if (is_gathered(b)) return refuse_gathered(err);
    give_pages_back(b);
    b->pack = false;
    return place_block(w, b, err);
}

static void count_blocks(kin_weights *w) {
    w->stats.packed_bytes = w->stats.cached_bytes = w->stats.mapped_bytes = 0;
    for (size_t i = 0; i < w->n_blocks; i++) {
        const kin_weights_block *b = &w->blocks[i];
        if (b->device->is_gpu) continue;
        uint64_t *sum = !b->pack ? &w->stats.mapped_bytes : b->dirty ? &w->stats.packed_bytes : &w->stats.cached_bytes;
        *sum += b->pack ? b->packed_bytes : b->bytes;
    }
}

static bool is_lost(const kin_weights_block *b) {
    return b->pack && !atomic_load(&b->in_file);
}

int kin_weights_unpack_if_lost(kin_weights *w, kin_weights_block *b, kin_err *err) {
    return w->must_stream && is_lost(b) ? unpack(w, b, err) : 0;
}

int kin_weights_settle_cpu(kin_weights *w, kin_err *err) {
    for (size_t i = 0; i < w->n_blocks; i++) {
        if (kin_weights_unpack_if_lost(w, &w->blocks[i], err) != 0) return KIN_FAIL;
    }
    count_blocks(w);
    return 0;
}

int kin_weights_place_cpu(kin_weights *w, kin_err *err) {
    if (open_homes(w, err) != 0) return KIN_FAIL;
    bool stream = w->must_stream = kin_weights_must_stream(w);
    for (size_t i = 0; i < w->n_blocks; i++) {
        kin_weights_block *b = &w->blocks[i];
        if (b->device->is_gpu) continue;
        if (stream && !w->packed && is_gathered(b)) return refuse_gathered(err);
        b->pack = b->pack && !(stream && !w->packed);
        if (place_block(w, b, err) != 0) return KIN_FAIL;
    }
    count_blocks(w);
    atomic_store(&w->n_total, w->stats.packed_bytes);
    // Writing the cache file can wait until the model runs, if memory can hold the packed weights until then.
    w->move_at_once = stream || w->stats.packed_bytes + unchecked_bytes(w) > kin_memory_read().available / 2;
    kin_parallel(n_fillers(w), w->n_blocks, fill_one, w);
    if (w->has_failed) {
        *err = w->failure;
        return KIN_FAIL;
    }
    return w->has_later ? 0 : kin_weights_settle_cpu(w, err);
}

// ---- packing ahead

static bool is_in(const kin_windows *windows, int il) {
    for (int i = 0; i < windows->n; i++) {
        if (il >= windows->at[i].layer_begin && il < windows->at[i].layer_end) return true;
    }
    return false;
}

// Packs a block, writes it, and releases it: only one block is in memory at any time.
static int pack_one_ahead(kin_weights *w, kin_weights_block *b, kin_err *err) {
    if (kin_packed_has(w->packed, b->i_packed)) {
        bool is_other = !kin_packed_is_current(w->packed, b->i_packed) &&
                        !kin_packed_renew(w->packed, b->i_packed, kin_weights_source_hash(b));
        if (!is_other && !kin_packed_is_checked(w->packed, b->i_packed))
            is_other = kin_packed_check_behind(w->packed, b->i_packed, NULL) == KIN_PACKED_DAMAGED;
        if (!is_other) return 0;
    }
    if (place_block(w, b, err) != 0) return KIN_FAIL;
    b->source_hash = w->source_stamp ? kin_weights_source_hash(b) : 0;
    int rc;
    if (b->expert_stride > 0) {
        rc = kin_weights_pack_experts(w, b, b->base, err);
    } else {
        rc = kin_weights_pack(w, b, b->base, err);
        if (rc == 0) rc = kin_packed_write(w->packed, b->i_packed, b->base, b->source_hash, err);
    }
    give_pages_back(b);
    kin_weights_forget_source(w, b);
    report(w, "packing weights", b->packed_bytes);
    return rc;
}

int kin_weights_pack_ahead(kin_weights *w, const kin_windows *but, const atomic_bool *stop, kin_err *err) {
    if (open_homes(w, err) != 0) return KIN_FAIL;
    for (size_t i = 0; i < w->n_blocks; i++) {
        if (w->blocks[i].pack) atomic_fetch_add(&w->n_total, w->blocks[i].packed_bytes);
    }
    int rc = 0;
    for (size_t i = 0; i < w->n_blocks && rc == 0; i++) {
        kin_weights_block *b = &w->blocks[i];
        if (!b->pack || is_in(but, (int)(b->i_packed / KIN_WEIGHT_BLOCK_COUNT))) continue;
        if (atomic_load(stop)) return kin_err_set(err, "stopped");
        kin_time began = kin_clock_now();
        rc = pack_one_ahead(w, b, err);
        kin_background_rest(began, kin_stream_is_reading, stop);
    }
    kin_err ignored;
    if (kin_packed_seal(w->packed, rc == 0 ? err : &ignored) != 0) rc = KIN_FAIL; // in any case: it lets others use the file
    return rc;
}

// ---- placing the GPU's blocks

int kin_weights_copy_blocks(kin_weights *w, size_t begin, size_t end, bool later, kin_err *err) {
    for (size_t i = begin; i < end; i++) {
        kin_weights_block *b = &w->blocks[i];
        if (!b->device->is_gpu || b->later != later || atomic_load(&b->here)) continue;
        if (await_block(w, b, err) != 0) return KIN_FAIL;
        for (int k = 0; k < b->n_pieces; k++) {
            kin_weights_piece *p = &b->pieces[k];
            for (uint64_t r = 0; r < p->n_runs; r++)
                ggml_backend_tensor_set(*p->slot, p->data + r * p->stride, r * p->run, p->run);
            report(w, "copying weights to the GPU", p->bytes);
        }
        atomic_store(&b->here, true);
    }
    return 0;
}

int kin_weights_place_gpu(kin_weights *w, kin_err *err) {
    for (size_t i = 0; i < w->n_blocks; i++) {
        for (int k = 0; w->blocks[i].device->is_gpu && k < w->blocks[i].n_pieces; k++) {
            kin_weights_piece *p = &w->blocks[i].pieces[k];
            *p->slot = new_tensor(w->gpu_ctx, p);
            w->stats.gpu_bytes += p->bytes;
        }
    }
    if (!w->stats.gpu_bytes) return 0;
    size_t free_bytes, total_bytes;
    ggml_backend_dev_memory(w->devices->gpu.dev, &free_bytes, &total_bytes);
    w->gpu_buf = ggml_backend_alloc_ctx_tensors_from_buft(w->gpu_ctx, w->devices->gpu.buft);
    if (!w->gpu_buf) {
        return kin_err_set(err, "%s has no memory for %llu MiB of weights (%zu of %zu MiB free); use fewer --gpu-layers",
                           w->devices->gpu.name, (unsigned long long)(w->stats.gpu_bytes >> 20), free_bytes >> 20,
                           total_bytes >> 20);
    }
    ggml_backend_buffer_set_usage(w->gpu_buf, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    if (w->has_later) {
        atomic_fetch_add(&w->n_total, w->stats.gpu_bytes); // some blocks have yet to be packed
    } else {
        atomic_store(&w->n_done, 0);
        atomic_store(&w->n_total, w->stats.gpu_bytes);
    }
    return kin_weights_copy_blocks(w, 0, w->n_blocks, false, err);
}
