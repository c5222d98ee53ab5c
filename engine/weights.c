#include "engine/weights.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "engine/weights/arrival.h"
#include "engine/weights/blocks.h"
#include "engine/weights/cache.h"
#include "engine/weights/check.h"
#include "engine/weights/experts.h"
#include "engine/weights/mapping.h"
#include "engine/weights/place.h"
#include "sys/pages.h"

enum {
    MAX_FETCH = 256, // experts' matrices requested at once
    READ_AHEAD_BYTES = 8 << 20,
};

// ---- streaming

// Sets the block's part for the sliding window: a layer's attention, the rest of the layer, or a tile.
static void describe_part(const kin_weights *w, const kin_weights_block *b, kin_stream_block *d) {
    bool is_tile = b->i_compute_block >= w->first_tile_compute_block;
    d->i_part = is_tile ? 2 * w->n_cpu_layers + b->i_compute_block - w->first_tile_compute_block : 2 * b->i_cpu_layer + b->is_ff;
    d->stays = !is_tile && b->is_ff && kin_sliding_window_retains(&w->o.sliding, b->i_cpu_layer);
}

// Returns the number of the window that the block belongs to. The tiles of the output have the number after all others.
static int window_of(const kin_weights *w, const kin_weights_block *b) {
    const kin_windows *windows = &w->o.windows;
    if (b->i_compute_block >= w->first_tile_compute_block) return windows->n;
    int i = windows->n - 1;
    while (i > 0 && w->compute_blocks[windows->at[i].layer_begin] > b->i_compute_block) i--;
    return i;
}

// Describes a block for the streamer as file ranges and mappings. A packed block is one range of the cache file; others have one
// range per weight. will_be: as if the block were in its file already.
static kin_stream_block describe_unit(const kin_weights *w, const kin_weights_block *b, bool will_be) {
    kin_stream_block d = {.i_group = b->i_compute_block, .i_window = window_of(w, b)};
    describe_part(w, b, &d);
    int n_files = kin_gguf_n_files(w->model->gguf);
    if ((!kin_weights_on_disk(w, b) && !(will_be && b->pack && w->packed)) || b->experts) return d;
    if (b->pack) {
        d.extents[d.n_extents++] = (kin_extent){n_files, kin_packed_offset(w->packed, b->i_packed), b->packed_bytes, b->base};
        return d;
    }
    for (int i = 0; i < b->n_pieces; i++) {
        const kin_weights_piece *p = &b->pieces[i];
        d.extents[d.n_extents++] = (kin_extent){p->i_file, p->file_offset, p->bytes, p->data};
    }
    return d;
}

// Opens the streamer. will_be: only checks whether it could be opened once all blocks are here.
static int open_stream(kin_weights *w, bool will_be, kin_err *err) {
    int n_files = kin_gguf_n_files(w->model->gguf), rc = KIN_FAIL;
    kin_stream_block *blocks = calloc(w->n_blocks, sizeof *blocks);
    int *fds = calloc((size_t)n_files + 1, sizeof *fds);
    if (!blocks || !fds) {
        kin_err_set(err, "out of memory");
        goto done;
    }
    kin_stream_options so = {.blocks = blocks,
                             .mode = w->o.mode,
                             .keeps_output = w->o.keeps_output,
                             .reads_experts = kin_weights_caches_experts(w),
                             .window = w->o.sliding.n_blocks,
                             .fds = fds};
    for (size_t i = 0; i < w->n_blocks; i++) {
        const kin_weights_block *b = &w->blocks[i];
        if (b->device->is_gpu || b->i_compute_block == KIN_WEIGHTS_NO_COMPUTE_BLOCK) continue;
        w->stream_blocks[so.n_blocks] = i;
        if (b->i_compute_block < w->first_tile_compute_block) so.n_layer_blocks = so.n_blocks + 1;
        blocks[so.n_blocks] = describe_unit(w, b, will_be);
        if (!will_be) w->blocks[i].in_stream = blocks[so.n_blocks].n_extents > 0;
        so.n_blocks++;
    }
    if (so.n_layer_blocks == 0) so.n_layer_blocks = so.n_blocks; // the shard has only the output
    w->n_stream_blocks = so.n_blocks;
    w->ring_bytes = kin_stream_min_budget(blocks, so.n_blocks);
    so.beside = kin_weights_experts_budget(w, w->o.budget);
    so.budget = w->o.budget > so.beside ? w->o.budget - so.beside : 0;
    for (int i = 0; i < n_files; i++) fds[i] = kin_gguf_file_fd(w->model->gguf, i);
    fds[n_files] = w->packed ? kin_packed_fd(w->packed) : -1;
    so.n_files = n_files + 1;
    rc = 0;
    if (so.n_blocks > 0) rc = will_be ? kin_stream_check_budget(&so, err) : kin_stream_open(&w->stream, &so, err);

done:
    free(blocks);
    free(fds);
    return rc;
}

int kin_weights_compute_block(const kin_weights *w, int il) {
    return w->compute_blocks[il];
}

int kin_weights_tile_compute_block(const kin_weights *w, int i_tile) {
    return w->first_tile_compute_block + i_tile;
}

bool kin_weights_begin(kin_weights *w, int i_compute_block, bool with_output) {
    if (w->is_arriving) return true;
    if (!w->stream) return false;
    w->i_next_stream = 0;
    while (w->i_next_stream < w->n_stream_blocks &&
           w->blocks[w->stream_blocks[w->i_next_stream]].i_compute_block < i_compute_block)
        w->i_next_stream++;
    kin_assert(w->i_next_stream < w->n_stream_blocks);
    kin_weights_begin_experts(w);
    w->streaming = kin_stream_begin(w->stream, w->i_next_stream, with_output);
    for (size_t i = 0; i < w->n_stream_blocks && !w->streaming; i++)
        kin_weights_point_at_mapping(&w->blocks[w->stream_blocks[i]]);
    const bool fetches = atomic_load(&w->short_of_experts) && !w->devices->cpu.kernels;
    return w->streaming || fetches || atomic_load(&w->n_to_check) > 0;
}

bool kin_weights_use_output(kin_weights *w) {
    if (w->is_arriving || !w->stream || atomic_load(&w->n_to_check) > 0 || !kin_stream_has_output(w->stream)) return false;
    for (size_t i = 0; i < w->n_stream_blocks; i++) {
        kin_weights_block *b = &w->blocks[w->stream_blocks[i]];
        if (b->i_compute_block >= w->first_tile_compute_block) kin_weights_point_at_mapping(b);
    }
    return true;
}

const kin_expert_source *kin_weights_expert_source(const kin_weights *w) {
    return &w->source;
}

int kin_weights_check_experts(kin_weights *w, kin_err *err) {
    if (!w->experts || kin_experts_check(w->experts, err) == 0) return 0;
    return kin_err_prefix(err, "%s", w->packed ? kin_packed_path(w->packed) : kin_gguf_file_path(w->model->gguf, 0));
}

void kin_weights_fetch_experts(kin_weights *w, int il, const int32_t *chosen, size_t n) {
    kin_extent extents[MAX_FETCH];
    size_t n_extents = 0;
    if (!w->stream) return;
    int n_expert = w->model->hp.n_expert;
    bool wanted[KIN_MAX_EXPERTS] = {false};
    for (size_t i = 0; i < n; i++) wanted[chosen[i]] = true;

    const kin_weights_block *blocks = &w->blocks[w->layer_blocks[il]];
    for (int kind = 0; kind < KIN_WEIGHT_BLOCK_COUNT; kind++) {
        const kin_weights_block *b = &blocks[kind];
        for (int k = 0; k < b->n_pieces && kin_weights_on_disk(w, b); k++) {
            const kin_weights_piece *p = &b->pieces[k];
            const uint8_t *base = b->pack ? b->base + p->offset : p->data;
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

static bool in_compute_block(const kin_weights *w, size_t i_stream, int i_compute_block) {
    return i_stream < w->n_stream_blocks && w->blocks[w->stream_blocks[i_stream]].i_compute_block == i_compute_block;
}

static int check_compute_block(kin_weights *w, int i_compute_block, kin_err *err) {
    for (size_t i = 0; i < w->n_stream_blocks && atomic_load(&w->n_to_check) > 0; i++) {
        kin_weights_block *b = &w->blocks[w->stream_blocks[i]];
        if (b->i_compute_block == i_compute_block && b->pack && kin_weights_check(w, b, b->base, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static int acquire_block(kin_weights *w, const kin_weights_block *b, const uint8_t **ptrs, kin_err *err) {
    int n = kin_stream_acquire(w->stream, w->i_next_stream, ptrs, err);
    if (n >= 0) return n;
    const char *path = b->pack ? kin_packed_path(w->packed) : kin_gguf_file_path(w->model->gguf, b->pieces[0].i_file);
    return kin_err_prefix(err, "%s", path);
}

int kin_weights_acquire(kin_weights *w, int i_compute_block, kin_err *err) {
    if (w->is_arriving) return kin_weights_acquire_arriving(w, i_compute_block, err);
    if (!w->streaming) return check_compute_block(w, i_compute_block, err);
    while (w->i_next_stream < w->n_stream_blocks && !in_compute_block(w, w->i_next_stream, i_compute_block)) w->i_next_stream++;
    for (; in_compute_block(w, w->i_next_stream, i_compute_block); w->i_next_stream++) {
        const uint8_t *ptrs[KIN_STREAM_MAX_EXTENTS];
        kin_weights_block *b = &w->blocks[w->stream_blocks[w->i_next_stream]];
        int n_extents = acquire_block(w, b, ptrs, err);
        if (n_extents < 0) return KIN_FAIL;
        if (b->pack && kin_weights_check(w, b, n_extents > 0 ? ptrs[0] : b->base, err) != 0) return KIN_FAIL;
        if (n_extents == 0) kin_weights_point_at_mapping(b);
        for (int i = 0; i < b->n_pieces && n_extents > 0; i++) {
            const kin_weights_piece *p = &b->pieces[i];
            (*p->slot)->data = (void *)(b->pack ? ptrs[0] + p->offset : ptrs[i]);
        }
    }
    return 0;
}

void kin_weights_release(kin_weights *w, int i_compute_block) {
    size_t n = 0;
    if (w->is_arriving) kin_weights_release_arriving(w, i_compute_block);
    if (!w->streaming) return;
    for (size_t i = w->i_next_stream; i > 0 && in_compute_block(w, i - 1, i_compute_block); i--) n++;
    kin_stream_release(w->stream, n);
}

// Experts that do not all fit in memory are fetched on demand.
static void note_experts(kin_weights *w, uint64_t budget) {
    bool any = false;
    for (size_t i = 0; i < w->n_blocks; i++)
        any = any || (w->blocks[i].experts && !w->blocks[i].device->is_gpu && kin_weights_on_disk(w, &w->blocks[i]));
    atomic_store(&w->short_of_experts,
                 any && w->stream && w->o.mode == KIN_STREAM_RESIDENT && budget < kin_weights_cpu_bytes(w->model, &w->o));
}

uint64_t kin_weights_set_budget(kin_weights *w, uint64_t budget) {
    note_experts(w, budget);
    if (!w->stream) return kin_weights_cpu_bytes(w->model, &w->o);
    pthread_mutex_lock(&w->mutex);
    w->budget = budget;
    const uint64_t experts = kin_weights_experts_budget(w, budget);
    if (w->experts) kin_experts_set_budget(w->experts, experts);
    pthread_mutex_unlock(&w->mutex);
    return kin_stream_set_budget(w->stream, budget > experts ? budget - experts : 0) + experts;
}

uint64_t kin_weights_most_useful_budget(const kin_weights *w) {
    return w->stream && kin_stream_can_stream(w->stream) ? kin_weights_cpu_bytes(w->model, &w->o) : 0;
}

// ---- open and close

// Only single rows of the embedding are read. If memory is short, nothing around them should be read, nor around other weights
// that are not streamed.
static void hint_small_reads(const kin_weights *w, bool read_around) {
    const kin_gguf_tensor *embedding = w->model->token_embd, *others[] = {w->model->output_norm, w->model->output_norm_bias,
                                                                          kin_model_rope_factors(w->model, w->o.n_ctx)};
    if (!w->must_stream || !kin_gguf_on_disk(w->model->gguf)) return;
    if (w->o.output && embedding != w->model->output) kin_pages_read_around(embedding->data, embedding->n_bytes, read_around);
    const kin_gguf_tensor *inputs = w->model->input_embd;
    if (w->o.output && inputs) kin_pages_read_around(inputs->data, inputs->n_bytes, read_around);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i]) kin_pages_read_around(others[i]->data, others[i]->n_bytes, read_around);
    }
}

// Reading a file's header has also brought in up to 8 MiB after it. If memory is short these pages are dropped; with a sliding
// window, all pages of the file that no mapping uses.
static void forget_read_ahead(const kin_weights *w) {
#ifdef POSIX_FADV_DONTNEED
    const kin_gguf *gguf = w->model->gguf;
    const off_t n = w->o.sliding.n_blocks > 0 ? 0 : READ_AHEAD_BYTES; // 0: to the end of the file
    if (!w->must_stream || !kin_gguf_on_disk(gguf)) return;
    for (int i = 0; i < kin_gguf_n_files(gguf); i++) {
        uint64_t begin = UINT64_MAX;
        for (size_t k = 0; k < kin_gguf_n_tensors(gguf); k++) {
            const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, k);
            if (t->i_file == i && t->offset < begin) begin = t->offset;
        }
        if (begin < UINT64_MAX) posix_fadvise(kin_gguf_file_fd(gguf, i), (off_t)begin, n, POSIX_FADV_DONTNEED);
    }
#else
    (void)w;
#endif
}

static int start_streaming(kin_weights *w, kin_err *err) {
    if (open_stream(w, false, err) != 0) return KIN_FAIL;
    hint_small_reads(w, false);
    forget_read_ahead(w);
    w->budget = w->o.budget;
    note_experts(w, w->o.budget);
    return 0;
}

bool kin_weights_is_arriving(const kin_weights *w) {
    return w->is_arriving;
}

bool kin_weights_has_arrived(kin_weights *w) {
    pthread_mutex_lock(&w->mutex);
    bool has = w->has_arrived;
    pthread_mutex_unlock(&w->mutex);
    return has;
}

int kin_weights_await_gpu(kin_weights *w, int layer_begin, int layer_end, kin_err *err) {
    for (int il = layer_begin; w->has_later && il < layer_end; il++) {
        if (kin_weights_copy_blocks(w, w->layer_blocks[il], w->layer_blocks[il] + KIN_WEIGHT_BLOCK_COUNT, true, err) != 0)
            return KIN_FAIL;
    }
    return 0;
}

int kin_weights_settle(kin_weights *w, kin_err *err) {
    kin_assert(w->is_arriving && w->has_arrived);
    if (kin_weights_settle_cpu(w, err) != 0 || start_streaming(w, err) != 0) return KIN_FAIL;
    w->is_arriving = false;
    return 0;
}

static int alloc_state(kin_weights *w, kin_err *err) {
    size_t n_layer = (size_t)kin_windows_n_layers(&w->o.windows), n_layer_all = (size_t)w->model->hp.n_layer;
    w->n_tiles = w->o.output ? kin_weights_count_tiles(w->model) : 0;
    w->layers = calloc(n_layer_all, sizeof *w->layers);
    w->on_gpu = calloc(n_layer_all, sizeof *w->on_gpu);
    w->compute_blocks = calloc(n_layer_all, sizeof *w->compute_blocks);
    w->layer_blocks = calloc(n_layer_all, sizeof *w->layer_blocks);
    w->tiles = calloc((size_t)w->n_tiles + 1, sizeof *w->tiles);
    size_t n_blocks = n_layer * KIN_WEIGHT_BLOCK_COUNT + (size_t)w->n_tiles + 3; // plus the norm and twice the rope factors
    w->blocks = calloc(n_blocks, sizeof *w->blocks);
    w->stream_blocks = calloc(n_blocks, sizeof *w->stream_blocks);
    size_t n_tensors = (n_layer + 1) * KIN_W_COUNT + KIN_STREAM_ENDS + (size_t)w->n_tiles;
    struct ggml_init_params params = {.mem_size = n_tensors * ggml_tensor_overhead(), .no_alloc = true};
    w->ctx = ggml_init(params);
    w->gpu_ctx = ggml_init(params);
    return w->layers && w->on_gpu && w->compute_blocks && w->layer_blocks && w->tiles && w->blocks && w->stream_blocks &&
                   w->ctx && w->gpu_ctx
               ? 0
               : kin_err_set(err, "out of memory");
}

// Another version of ggml may have types that kin's kernels do not know.
static int check_kernel(const kin_weights *w, const kin_gguf_tensor *t, kin_err *err) {
    if (!w->devices->cpu.kernels || kin_kernel_has(t->type, t->ne[0])) return 0;
    return kin_err_set(err, "tensor '%.*s' has the type %s, which kin's kernels do not multiply: use --kernels ggml",
                       (int)t->name.len, t->name.at, kin_gguf_type_name(t->type));
}

static int check_weights(const kin_weights *w, kin_err *err) {
    for (int il = 0; il < w->model->hp.n_layer; il++) {
        for (int id = 0; id < KIN_W_COUNT; id++) {
            const kin_gguf_tensor *t = w->model->layers[il].w[id];
            if (!t) continue;
            if (kin_slice_check(&w->o.slices.of[id], t, err) != 0) return KIN_FAIL;
            if (!kin_weight_is_integers(id) && check_kernel(w, t, err) != 0) return KIN_FAIL;
        }
    }
    for (int i = 0; i < KIN_STREAM_ENDS; i++)
        if (w->model->stream_ends[i] && check_kernel(w, w->model->stream_ends[i], err) != 0) return KIN_FAIL;
    return check_kernel(w, w->model->output, err);
}

// Collects the blocks, and opens the cache file if it is useful.
static int begin(kin_weights **out, const kin_model *model, const kin_devices *devices, const kin_weights_options *o,
                 kin_err *err) {
    kin_weights *w = *out = calloc(1, sizeof *w);
    if (!w) return kin_err_set(err, "out of memory");
    w->model = model;
    w->devices = devices;
    w->o = *o;
    if (o->sliding.n_blocks > 0) w->o.budget = 0;
    w->is_arriving = w->has_later = o->arrival && o->windows.n > 1;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    if (alloc_state(w, err) != 0 || check_weights(w, err) != 0) return KIN_FAIL;
    kin_weights_collect_blocks(w);
    kin_weights_try_cache(w);
    return 0;
}

int kin_weights_prepack(const kin_model *model, const kin_devices *devices, const kin_weights_options *o, const kin_windows *but,
                        const atomic_bool *stop, kin_packed **held, kin_err *err) {
    kin_weights *w;
    *held = NULL;
    int rc = begin(&w, model, devices, o, err);
    if (rc == 0 && w->packed) rc = kin_weights_pack_ahead(w, but, stop, err);
    if (rc == 0) {
        *held = w->packed;
        w->packed = NULL;
    }
    kin_weights_close(w);
    return rc;
}

int kin_weights_open(kin_weights **out, const kin_model *model, const kin_devices *devices, const kin_weights_options *o,
                     kin_err *err) {
    kin_weights *w;
    *out = NULL;
    if (begin(&w, model, devices, o, err) != 0) goto fail;
    if (kin_weights_place_cpu(w, err) != 0 || kin_weights_place_gpu(w, err) != 0) goto fail;
    if (!w->is_arriving && start_streaming(w, err) != 0) goto fail;
    if (w->is_arriving && w->must_stream && open_stream(w, true, err) != 0) goto fail;
    if (!w->is_arriving) kin_weights_begin_experts(w); // the most used ones are read before the first token
    if (kin_weights_start_packer(w, err) != 0) goto fail;
    *out = w;
    return 0;

fail:
    kin_weights_close(w);
    return KIN_FAIL;
}

void kin_weights_close(kin_weights *w) {
    if (!w) return;
    kin_weights_stop_packer(w);
    kin_weights_end_experts(w);
    kin_stream_close(w->stream);
    kin_experts_close(w->experts);
    hint_small_reads(w, true);
    if (w->packed_home) munmap(w->packed_home, w->packed_home_bytes);
    ggml_backend_buffer_free(w->gpu_buf);
    ggml_backend_buffer_free(w->repack_home);
    ggml_backend_buffer_free(w->plain_home);
    if (w->plain_memory) {
        uint64_t largest = KIN_WEIGHTS_ALIGN;
        for (size_t i = 0; i < w->n_blocks; i++)
            largest = w->blocks[i].packed_bytes > largest ? w->blocks[i].packed_bytes : largest;
        munmap(w->plain_memory, largest);
    }
    if (w->ctx) ggml_free(w->ctx);
    if (w->gpu_ctx) ggml_free(w->gpu_ctx);
    kin_packed_close(w->packed);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->changed);
    free(w->stream_blocks);
    free(w->blocks);
    free(w->tiles);
    free(w->layers);
    free(w->on_gpu);
    free(w->compute_blocks);
    free(w->layer_blocks);
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

struct ggml_tensor *kin_weights_output_norm_bias(const kin_weights *w) {
    return w->output_norm_bias;
}

struct ggml_tensor *const *kin_weights_stream_ends(const kin_weights *w) {
    return w->stream_ends;
}

int kin_weights_n_tiles(const kin_weights *w) {
    return w->n_tiles;
}

struct ggml_tensor *kin_weights_tile(const kin_weights *w, int i_tile) {
    return w->tiles[i_tile];
}

static uint64_t waited_ns(kin_weights *w) {
    pthread_mutex_lock(&w->mutex);
    uint64_t ns = kin_busy_ns(&w->waiting, kin_clock_now());
    pthread_mutex_unlock(&w->mutex);
    return ns;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// Measures the blocks that a sliding window covers. Blocks are in the order of the layers.
static kin_sliding_blocks measure_blocks(const kin_weights *w) {
    int layer = -1;
    kin_sliding_blocks m = {.n_layers = w->n_cpu_layers, .n_tiles = w->n_tiles};
    uint64_t ff_bytes = 0; // of the current layer so far
    for (size_t i = 0; i < w->n_blocks; i++) {
        const kin_weights_block *b = &w->blocks[i];
        if (b->i_compute_block == KIN_WEIGHTS_NO_COMPUTE_BLOCK || b->experts) continue;
        bool is_tile = b->i_compute_block >= w->first_tile_compute_block;
        if (!is_tile && b->i_cpu_layer != layer) ff_bytes = 0;
        if (!is_tile) layer = b->i_cpu_layer;
        if (is_tile) {
            m.tile_bytes = larger(m.tile_bytes, b->bytes);
        } else if (!b->is_ff) {
            m.attn_bytes = larger(m.attn_bytes, b->bytes);
        } else {
            ff_bytes += b->bytes;
            m.ff_bytes = larger(m.ff_bytes, ff_bytes);
            if (kin_sliding_window_retains(&w->o.sliding, layer)) m.retained_bytes += b->bytes;
        }
    }
    return m;
}

static uint64_t packed_in_memory(const kin_weights *w) {
    uint64_t sum = 0;
    for (size_t i = 0; i < w->n_blocks; i++) {
        const kin_weights_block *b = &w->blocks[i];
        if (b->pack && atomic_load(&b->here) && !atomic_load(&b->in_file)) sum += b->packed_bytes;
    }
    return sum;
}

uint64_t kin_weights_anonymous_bytes(kin_weights *w) {
    pthread_mutex_lock(&w->mutex);
    const uint64_t experts = w->experts ? kin_experts_get_stats(w->experts).held_bytes : 0;
    pthread_mutex_unlock(&w->mutex);
    return packed_in_memory(w) + experts;
}

kin_weights_stats kin_weights_get_stats(kin_weights *w) {
    kin_weights_stats stats = w->stats;
    stats.sliding = w->o.sliding;
    for (size_t i = 0; i < w->n_blocks; i++) {
        const kin_weights_block *b = &w->blocks[i];
        bool is_packed = b->pack && atomic_load(&b->here), in_file = atomic_load(&b->in_file);
        // The cache file may have taken the block after the streamer was opened without it. Of experts the OS decides which stay.
        if (is_packed && !b->in_stream && !(b->experts && in_file)) stats.resident_bytes += b->packed_bytes;
    }
    stats.anonymous_bytes = packed_in_memory(w);
    stats.blocks = measure_blocks(w);
    if (w->stream) stats.stream = kin_stream_get_stats(w->stream);
    pthread_mutex_lock(&w->mutex); // the computing thread opens the cache of experts
    if (w->experts) stats.experts = kin_experts_get_stats(w->experts);
    pthread_mutex_unlock(&w->mutex);
    stats.resident_bytes += stats.stream.resident_bytes + stats.experts.held_bytes;
    stats.stream.wait_ns += waited_ns(w) + stats.experts.wait_ns;
    return stats;
}

size_t kin_weights_pop_intervals(kin_weights *w, kin_stream_record record, kin_interval *out, size_t n_max) {
    size_t n = 0;
    if (record == KIN_STREAM_STALLS) {
        pthread_mutex_lock(&w->mutex);
        n = kin_busy_pop(&w->waiting, kin_clock_now(), out, n_max);
        pthread_mutex_unlock(&w->mutex);
    }
    return w->stream ? n + kin_stream_pop_intervals(w->stream, record, out + n, n_max - n) : n;
}
