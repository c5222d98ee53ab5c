// Decides where the weight blocks' bytes are: the prepacked cache file, memory, the model file's mapping, the GPU.
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

// A smaller model packs so fast that a cache file is not worthwhile.
#define CACHE_MIN_BYTES (32u << 20)

// ---- the prepacked cache

// The sample suffices, because each block of the cache file also stores what it was made from (packed.h).
int kin_weights_model_identity(const kin_model *model, uint64_t *identity, kin_err *err) {
    return kin_gguf_sample(model->gguf, identity, err);
}

// Returns a stamp of the present state of the model's files; see packed.h.
static uint64_t source_stamp(const kin_model *m) {
    uint64_t stamp = kin_gguf_on_disk(m->gguf);
    for (int i = 0; i < kin_gguf_n_files(m->gguf); i++) stamp = kin_file_stamp(kin_gguf_file_fd(m->gguf, i), stamp);
    return stamp;
}

// A device's slices get a cache file of their own; the key of whole weights is unchanged.
static uint64_t hash_slices(const kin_slices *slices, uint64_t h) {
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_slice *s = &slices->of[id];
        const int64_t fields[] = {id, s->dim, s->begin, s->end};
        if (s->dim != KIN_SLICE_FULL) h = kin_hash64(fields, sizeof fields, h);
    }
    return h;
}

// The file has room for every block of the whole model, so that it is the same file whatever layers a device runs.
static int open_cache(kin_weights *w, kin_err *err) {
    const kin_model *m = w->model;
    const kin_device *cpu = &w->devices->cpu;
    size_t n_layer_blocks = (size_t)m->hp.n_layer * KIN_WEIGHT_BLOCK_COUNT,
           n = n_layer_blocks + (size_t)kin_weights_count_tiles(m);
    uint64_t *bytes = calloc(n, sizeof *bytes), total = 0;
    uint64_t variant = kin_hash64(w->devices->cpu_variant, strlen(w->devices->cpu_variant), KIN_PANEL_FORMAT);
    if (!bytes) return kin_err_set(err, "out of memory");
    for (size_t i = 0; i < n; i++) {
        kin_weights_block b = {0};
        if (i < n_layer_blocks)
            kin_weights_add_layer_block(&b, m, (int)(i / KIN_WEIGHT_BLOCK_COUNT), (kin_weight_block)(i % KIN_WEIGHT_BLOCK_COUNT),
                                        &w->o.slices, NULL, cpu);
        else
            kin_weights_add_tile_block(&b, m, (int)(i - n_layer_blocks), NULL, cpu);
        bytes[i] = b.pack ? b.packed_bytes : 0;
        for (int k = 0; k < b.n_pieces; k++) variant = kin_hash64(&b.pieces[k].layout, sizeof b.pieces[k].layout, variant);
        total += bytes[i];
    }
    kin_packed_key key = {.variant = hash_slices(&w->o.slices, variant)};
    key.model = w->o.identity;
    w->source_stamp = key.model ? 0 : source_stamp(m);
    int rc = key.model ? 0 : kin_weights_model_identity(m, &key.model, err); // a partly fetched file cannot be sampled everywhere
    if (rc == 0 && !kin_packed_exists(w->o.cache_dir, key))
        rc = kin_cache_dir_make_room(w->o.cache_dir, total, w->o.cache_cap, err);
    if (rc == 0) rc = kin_packed_share(&w->packed, w->o.cache_dir, key, w->source_stamp, n, bytes, err);
    free(bytes);
    return rc;
}

static int map_block(kin_weights *w, kin_weights_block *b, kin_err *err) {
    if (kin_packed_map(w->packed, b->i_packed, b->base, err) != 0) return KIN_FAIL;
    atomic_store(&b->in_file, true);
    return 0;
}

// Moves packed bytes to the cache file and maps it in their place: the same content, but reclaimable by the OS.
static int move_to_file(kin_weights *w, kin_weights_block *b, kin_err *err) {
    if (b->dirty && kin_packed_write(w->packed, b->i_packed, b->base, b->source_hash, err) != 0) return KIN_FAIL;
    return map_block(w, b, err);
}

static void warn_no_cache(kin_weights *w, const kin_err *err) {
    if (!atomic_exchange(&w->cache_failed, true)) kin_log(KIN_LOG_WARN, "cannot use the prepacked cache: %s", err->text);
}

// Does nothing if an earlier move failed.
static void try_move(kin_weights *w, kin_weights_block *b) {
    kin_err err;
    if (!w->packed || atomic_load(&w->cache_failed) || move_to_file(w, b, &err) == 0) return;
    warn_no_cache(w, &err);
}

void kin_weights_finish_cache(kin_weights *w) {
    kin_err err;
    kin_background_thread();
    for (size_t i = 0; i < w->n_blocks && !w->must_stream; i++) { // otherwise each has moved, or never will
        kin_weights_block *b = &w->blocks[i];
        if (b->pack && b->dirty && !atomic_load(&b->in_file)) try_move(w, b);
    }
    if (kin_packed_seal(w->packed, &err) != 0) kin_log(KIN_LOG_WARN, "the prepacked cache is incomplete: %s", err.text);
}

static bool must_stream(const kin_weights *w) {
    return w->o.mode == KIN_STREAM_RESIDENT && w->o.budget < kin_weights_cpu_bytes(w->model, &w->o);
}

void kin_weights_try_cache(kin_weights *w) {
    uint64_t to_pack = 0;
    kin_err err;
    for (size_t i = 0; i < w->n_blocks; i++) to_pack += w->blocks[i].pack ? w->blocks[i].packed_bytes : 0;
    if (!w->o.cache_dir || (to_pack < CACHE_MIN_BYTES && !must_stream(w)) || to_pack == 0) return;
    if (open_cache(w, &err) != 0) kin_log(KIN_LOG_WARN, "no prepacked cache: %s", err.text);
}

// ---- placing the CPU's blocks

static uint64_t page_bytes_of(const kin_weights_block *b) {
    return kin_weights_align_up(b->packed_bytes, KIN_PACKED_ALIGN);
}

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
        if (b->home_offset + page_bytes_of(b) > end) end = b->home_offset + page_bytes_of(b);
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
    if (mprotect(at, page_bytes_of(b), PROT_READ | PROT_WRITE) != 0)
        return kin_err_set(err, "out of memory: %llu bytes for weights", (unsigned long long)b->packed_bytes);
    if (!w->must_stream) kin_pages_advise_huge(at, page_bytes_of(b));
    b->base = at;
    return 0;
}

static void give_pages_back(kin_weights_block *b) {
    reserve(b->base, page_bytes_of(b)); // keeps the address space reserved
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

void kin_weights_point_at_mapping(kin_weights_block *b) {
    for (int i = 0; i < b->n_pieces; i++) {
        const kin_weights_piece *p = &b->pieces[i];
        (*p->slot)->data = b->pack ? b->base + p->offset : (uint8_t *)p->data;
    }
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

// A band of rows of one matrix of a piece, of an expert or the only one. It begins with a panel.
typedef struct band {
    uint64_t i; // of the matrix
    int64_t begin, end;
} band;

static uint64_t row_bytes(const kin_weights_piece *p) {
    return p->bytes / (uint64_t)(p->ne[1] * p->ne[2]);
}

// Packs rows that are not contiguous, from copies of 16 of them.
static int pack_columns(const kin_weights_piece *p, const uint8_t *from, int64_t n_rows, uint8_t *to, kin_err *err) {
    const uint64_t panel = p->run * KIN_PANEL_ROWS;
    uint8_t *rows = malloc(panel);
    if (!rows) return kin_err_set(err, "out of memory: %llu bytes to pack weights", (unsigned long long)panel);
    for (int64_t r = 0; r < n_rows; r += KIN_PANEL_ROWS, to += panel) {
        const int64_t n = n_rows - r < KIN_PANEL_ROWS ? n_rows - r : KIN_PANEL_ROWS;
        for (int64_t i = 0; i < n; i++, from += p->stride) memcpy(rows + (uint64_t)i * p->run, from, p->run);
        kin_kernel_pack(p->type, p->ne[0], n, rows, to);
    }
    free(rows);
    return 0;
}

// Packs or copies a band to its place in the matrix at `to`. A run of the piece is all matrices, one of them, or a row.
static int pack_band(const kin_weights_piece *p, const band *x, uint8_t *to, kin_err *err) {
    const uint64_t n_matrices = (uint64_t)p->ne[2], row = row_bytes(p), bytes = p->bytes / n_matrices,
                   n_runs = p->n_runs == 1 ? 1 : p->n_runs / n_matrices, step = n_runs > 1 ? p->stride : row;
    const uint8_t *from = p->data + x->i * (p->n_runs == 1 ? bytes : n_runs * p->stride) + (uint64_t)x->begin * step;
    const int64_t n = x->end - x->begin;
    to += (uint64_t)x->begin * row;
    if (p->layout == KIN_LAYOUT_PANELS && n_runs > 1) return pack_columns(p, from, n, to, err);
    if (p->layout == KIN_LAYOUT_PANELS) kin_kernel_pack(p->type, p->ne[0], n, from, to);
    if (p->layout == KIN_LAYOUT_PLAIN && n_runs == 1) memcpy(to, from, (uint64_t)n * row);
    for (int64_t r = 0; r < n && p->layout == KIN_LAYOUT_PLAIN && n_runs > 1; r++)
        memcpy(to + (uint64_t)r * row, from + (uint64_t)r * step, row);
    return 0;
}

static int pack_matrix(const kin_weights_piece *p, uint64_t i, uint8_t *to, kin_err *err) {
    return pack_band(p, &(band){i, 0, p->ne[1]}, to, err);
}

static int pack_matrices(const kin_weights_piece *p, uint8_t *to, kin_err *err) {
    int rc = 0;
    for (uint64_t i = 0; i < (uint64_t)p->ne[2] && rc == 0; i++)
        rc = pack_matrix(p, i, to + i * (p->bytes / (uint64_t)p->ne[2]), err);
    return rc;
}

static int pack_expert(const kin_weights_block *b, uint64_t i, uint8_t *base, kin_err *err) {
    int rc = 0;
    for (int k = 0; k < b->n_pieces && rc == 0; k++)
        rc = pack_matrix(&b->pieces[k], i, base + i * b->expert_stride + b->pieces[k].offset, err);
    return rc;
}

static uint64_t n_experts(const kin_weights_block *b) {
    return (uint64_t)b->pieces[0].ne[2];
}

// Copies the columns of a matrix // [n_columns, n] to rows // f16 [n, n_columns]: by a product with the identity matrix, which
// gives the same bits on every CPU.
typedef struct turner {
    const kin_kernels *kernels;
    kin_act_kind kind;
    float *identity; // f32 [n_columns, n_columns]
    kin_act *act;    // the same, rounded; NULL: not needed
    float *rows;     // f32 [n_columns, n]
} turner;

static bool open_turner(turner *t, const kin_kernels *kernels, int type, int64_t n_columns, int64_t n) {
    const size_t columns = (size_t)n_columns;
    *t = (turner){.kernels = kernels, .kind = kin_kernel_act_kind(type)};
    t->identity = calloc(columns * columns, sizeof *t->identity);
    t->act = t->kind == KIN_ACT_F32 ? NULL : malloc(kin_act_bytes(n_columns, n_columns));
    t->rows = malloc(columns * (size_t)n * sizeof *t->rows);
    if (!t->identity || !t->rows || (!t->act && t->kind != KIN_ACT_F32)) return false;
    for (size_t i = 0; i < columns; i++) t->identity[i * columns + i] = 1;
    const int64_t n_blocks = (int64_t)(kin_act_bytes(n_columns, n_columns) / sizeof *t->act);
    if (t->act) kernels->quantize(t->kind, n_columns, n_columns, t->identity, t->act, 0, n_blocks);
    return true;
}

static void close_turner(turner *t) {
    free(t->identity);
    free(t->act);
    free(t->rows);
}

// Turns a piece's matrices. A run is one of them.
static int turn(const kin_weights *w, const kin_weights_piece *p, uint8_t *to, kin_err *err) {
    const int64_t n = p->ne[0], n_columns = p->ne[1];
    turner t;
    int rc = 0;
    kin_assert(w->devices->cpu.kernels);
    if (!open_turner(&t, w->devices->cpu.kernels, p->turned_type, n_columns, n))
        rc = kin_err_set(err, "out of memory to convert weights");
    for (uint64_t i = 0; i < p->n_runs && rc == 0; i++, to += (size_t)(n * n_columns) * sizeof(ggml_fp16_t)) {
        const kin_matrix m = {
            .type = p->turned_type, .columns = n_columns, .rows = n, .is_packed = false, .data = p->data + i * p->stride};
        t.kernels->matmul(&m, t.act, t.identity, n_columns, t.rows, n, 0, (n + KIN_PANEL_ROWS - 1) / KIN_PANEL_ROWS);
        ggml_fp32_to_fp16_row(t.rows, (ggml_fp16_t *)to, n * n_columns);
    }
    close_turner(&t);
    return rc;
}

int kin_weights_pack(const kin_weights *w, kin_weights_block *b, uint8_t *base, kin_err *err) {
    int rc = 0;
    for (int k = 0; k < b->n_pieces && rc == 0; k++) {
        const kin_weights_piece *p = &b->pieces[k];
        (*p->slot)->data = base + p->offset;
        if (b->expert_stride > 0) continue;
        if (p->layout == KIN_LAYOUT_REPACK)
            ggml_backend_tensor_set(*p->slot, p->data, 0, p->bytes);
        else if (p->layout == KIN_LAYOUT_TURNED)
            rc = turn(w, p, base + p->offset, err);
        else
            rc = pack_matrices(p, base + p->offset, err);
    }
    for (uint64_t i = 0; i < n_experts(b) && b->expert_stride > 0 && rc == 0; i++) rc = pack_expert(b, i, base, err);
    return rc == 0 ? kin_gguf_check_reads(w->model->gguf, err) : KIN_FAIL;
}

// Returns how many bytes a thread packs before it writes them: those of all threads together are in memory at the same time.
static uint64_t pack_at_once(const kin_weights *w) {
    enum { AT_ONCE = 16 << 20 };
    const uint64_t part = AT_ONCE / (uint64_t)w->devices->n_threads;
    return part > KIN_PACKED_PIECE ? part : KIN_PACKED_PIECE;
}

typedef struct expert_writer {
    kin_weights *w;
    kin_weights_block *b;
    uint8_t *base;
    uint64_t at_once, written, hash;
} expert_writer;

// The block's bytes are packed up to `end`. Writes them and gives their pages back, if there are enough of them.
static int write_packed(expert_writer *x, uint64_t end, kin_err *err) {
    const bool is_last = end == x->b->packed_bytes;
    if (end - x->written < x->at_once && !is_last) return 0;
    if (!is_last) end = end / KIN_PACKED_PIECE * KIN_PACKED_PIECE;
    int rc = kin_packed_write_part(x->w->packed, x->b->i_packed, x->base + x->written, x->written, end, &x->hash, err);
    kin_pages_drop(x->base + x->written, end - x->written);
    x->written = end;
    return rc;
}

// Packs a matrix of expert i in bands, since an expert may be larger than what is written at once.
static int write_matrix(expert_writer *x, const kin_weights_piece *p, uint64_t i, kin_err *err) {
    const uint64_t at = i * x->b->expert_stride + p->offset, row = row_bytes(p);
    const int64_t n_panels = (int64_t)(KIN_PACKED_PIECE / (row * KIN_PANEL_ROWS)),
                  step = (n_panels ? n_panels : 1) * KIN_PANEL_ROWS;
    int rc = 0;
    for (band rows = {.i = i}; rows.begin < p->ne[1] && rc == 0; rows.begin = rows.end) {
        rows.end = rows.begin + step < p->ne[1] ? rows.begin + step : p->ne[1];
        rc = pack_band(p, &rows, x->base + at, err);
        if (rc == 0) rc = write_packed(x, at + (uint64_t)rows.end * row, err);
    }
    return rc;
}

int kin_weights_pack_experts(kin_weights *w, kin_weights_block *b, uint8_t *base, kin_err *err) {
    expert_writer x = {.w = w, .b = b, .base = base, .at_once = pack_at_once(w)};
    int rc = 0;
    for (uint64_t i = 0; i < n_experts(b) && rc == 0; i++)
        for (int k = 0; k < b->n_pieces && rc == 0; k++) rc = write_matrix(&x, &b->pieces[k], i, err);
    if (rc == 0 && x.written < b->packed_bytes) rc = write_packed(&x, b->packed_bytes, err);
    if (rc == 0) rc = kin_gguf_check_reads(w->model->gguf, err);
    if (rc == 0) kin_packed_note_written(w->packed, b->i_packed, x.hash, b->source_hash);
    return rc;
}

// The source of a packed block is not read again: its pages are unmapped (but stay in the page cache).
static void forget_source(const kin_weights *w, const kin_weights_block *b) {
    for (int i = 0; i < b->n_pieces && kin_gguf_on_disk(w->model->gguf); i++)
        kin_pages_drop((uint8_t *)b->pieces[i].data, (b->pieces[i].n_runs - 1) * b->pieces[i].stride + b->pieces[i].run);
}

static void drop_packed(const kin_weights_block *b) {
    kin_pages_drop(b->base, page_bytes_of(b));
}

void kin_weights_drop_pages(const kin_weights *w, const kin_weights_block *b) {
    if (b->pack && atomic_load(&b->in_file)) drop_packed(b);
    if (!b->pack) forget_source(w, b);
}

bool kin_weights_on_disk(const kin_weights *w, const kin_weights_block *b) {
    return b->pack ? atomic_load(&b->in_file) : kin_gguf_on_disk(w->model->gguf);
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
    if (kin_weights_pack_experts(w, b, b->base, &err) == 0 && map_block(w, b, &err) == 0) return true;
    warn_no_cache(w, &err);
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
        if (w->move_at_once && !hopeless) try_move(w, b);
    }
    if (w->must_stream && !atomic_load(&b->in_file)) drop_packed(b);
    report(w, "packing weights", b->packed_bytes);
    return 0;
}

static int fill(kin_weights *w, kin_weights_block *b, kin_err *err) {
    if (b->pack && !b->dirty) b->dirty = !kin_weights_trust(w, b);
    if (b->pack && !b->dirty) try_move(w, b);
    if (atomic_load(&b->in_file)) {
        forget_source(w, b);
        return 0;
    }
    if (await_block(w, b, err) != 0) return KIN_FAIL;
    if (!b->pack) return 0;
    if (pack_block(w, b, err) != 0) return KIN_FAIL;
    forget_source(w, b);
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
    bool stream = w->must_stream = must_stream(w);
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
    forget_source(w, b);
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
