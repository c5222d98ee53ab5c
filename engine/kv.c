#include "engine/kv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const ggml_fp16_t f16_zero = 0x0000, f16_minus_infinity = 0xfc00;

// 64 cells: positions 64 * index .. 64 * index + 63 of a sequence.
typedef struct block {
    int32_t seq; // -1: free
    int index;
    uint64_t used; // bit i: position 64 * index + i has been placed
} block;

struct kin_kv {
    kin_kv_options o;
    block *blocks; // [n_blocks]
    int n_blocks;
    int n_tokens; // placed

    struct ggml_context *cpu_ctx, *gpu_ctx;
    struct ggml_tensor **k, **v; // [n_layer] of the model; NULL for layers of others
    ggml_backend_buffer_t cpu_buf, gpu_buf;
    void *cpu_memory;
    size_t cpu_bytes;
};

static int64_t n_embd_kv(const kin_hparams *hp) {
    return kin_hparams_n_embd_kv(hp);
}

uint64_t kin_kv_bytes(const kin_hparams *hp, const kin_kv_options *o) {
    uint64_t row = ggml_row_size(o->type, n_embd_kv(hp));
    return 2 * row * (uint64_t)kin_kv_n_cells(o->n_ctx) * (uint64_t)kin_windows_n_layers(&o->windows);
}

// Fresh pages from the OS are zero and cost nothing until a token is written: a long context is paid for as it fills.
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
            return kin_err_set(err, "the KV cache cannot be placed");
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

int kin_kv_open(kin_kv **out, const kin_hparams *hp, const kin_kv_options *o,
                const kin_device *(*device_of)(const void *user, int il), const void *user, kin_err *err) {
    *out = NULL;
    if (n_embd_kv(hp) % ggml_blck_size(o->type) != 0) {
        return kin_err_set(err, "a KV cache of type %s needs key and value rows of a multiple of %lld (here %lld)",
                           ggml_type_name(o->type), (long long)ggml_blck_size(o->type), (long long)n_embd_kv(hp));
    }
    size_t n_layer = (size_t)kin_windows_n_layers(&o->windows);
    kin_kv *kv = calloc(1, sizeof *kv);
    if (!kv) return kin_err_set(err, "out of memory");
    kv->o = *o;
    kv->n_blocks = kin_kv_n_cells(o->n_ctx) / KIN_KV_CELLS;
    kv->blocks = malloc((size_t)kv->n_blocks * sizeof *kv->blocks);
    kv->k = calloc((size_t)hp->n_layer, sizeof *kv->k);
    kv->v = calloc((size_t)hp->n_layer, sizeof *kv->v);
    struct ggml_init_params params = {.mem_size = (2 * n_layer + 1) * ggml_tensor_overhead(), .no_alloc = true};
    kv->cpu_ctx = ggml_init(params);
    kv->gpu_ctx = ggml_init(params);
    if (!kv->blocks || !kv->k || !kv->v || !kv->cpu_ctx || !kv->gpu_ctx) {
        kin_err_set(err, "out of memory");
        goto fail;
    }

    const kin_device *gpu = NULL;
    for (int i = 0; i < o->windows.n; i++) {
        for (int il = o->windows.at[i].layer_begin; il < o->windows.at[i].layer_end; il++) {
            const kin_device *device = device_of(user, il);
            if (device->is_gpu) gpu = device;
            struct ggml_context *ctx = device->is_gpu ? kv->gpu_ctx : kv->cpu_ctx;
            kv->k[il] = ggml_new_tensor_2d(ctx, o->type, n_embd_kv(hp), kin_kv_n_cells(o->n_ctx));
            kv->v[il] = ggml_new_tensor_2d(ctx, o->type, n_embd_kv(hp), kin_kv_n_cells(o->n_ctx));
        }
    }
    if (alloc_cpu(kv, err) != 0 || alloc_gpu(kv, gpu, err) != 0) goto fail;
    kin_kv_clear(kv);
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
    free(kv->k);
    free(kv->v);
    free(kv->blocks);
    free(kv);
}

static int32_t seq_of(const kin_batch *batch, int i) {
    return batch->seq ? batch->seq[i] : 0;
}

bool kin_batch_has(const kin_batch *batch, int32_t seq, int32_t begin, int32_t end) {
    for (int i = 0; i < batch->n_tokens; i++) {
        if ((seq < 0 || seq_of(batch, i) == seq) && batch->pos[i] >= begin && batch->pos[i] < end) return true;
    }
    return false;
}

static block *find_block(const kin_kv *kv, int32_t seq, int index) {
    for (int i = 0; i < kv->n_blocks; i++) {
        if (kv->blocks[i].seq == seq && kv->blocks[i].index == index) return &kv->blocks[i];
    }
    return NULL;
}

static block *find_free_block(const kin_kv *kv) {
    for (int i = 0; i < kv->n_blocks; i++) {
        if (kv->blocks[i].seq < 0) return &kv->blocks[i];
    }
    return NULL;
}

// Bits of a block's positions in [begin, end).
static uint64_t bits_between(const block *b, int32_t begin, int32_t end) {
    int64_t first = (int64_t)b->index * KIN_KV_CELLS, from = begin - first, to = end - first; // numbers of bits
    if (from < 0) from = 0;
    if (to > KIN_KV_CELLS) to = KIN_KV_CELLS;
    if (from >= to) return 0;
    return (~(uint64_t)0 >> (KIN_KV_CELLS - (to - from))) << from;
}

// Whether all positions before `pos` are there: attention looks at every one of them.
static bool has_all_before(const kin_kv *kv, int32_t seq, int32_t pos) {
    int n = 0;
    for (int i = 0; i < kv->n_blocks; i++) {
        const block *b = &kv->blocks[i];
        if (b->seq == seq) n += __builtin_popcountll(b->used & bits_between(b, 0, pos));
    }
    return n == pos;
}

static int place_token(kin_kv *kv, int32_t seq, int32_t pos, int64_t *cell, kin_err *err) {
    block *b = find_block(kv, seq, pos / KIN_KV_CELLS);
    uint64_t bit = (uint64_t)1 << pos % KIN_KV_CELLS;
    if (b && b->used & bit) return kin_err_set(err, "position %d of sequence %d is in the KV cache already", (int)pos, (int)seq);
    if (!b) b = find_free_block(kv);
    if (!b || kv->n_tokens == kv->o.n_ctx) return kin_err_set(err, "the context of %d tokens is full", kv->o.n_ctx);
    if (b->seq < 0) *b = (block){.seq = seq, .index = pos / KIN_KV_CELLS};
    b->used |= bit;
    kv->n_tokens++;
    *cell = (b - kv->blocks) * KIN_KV_CELLS + pos % KIN_KV_CELLS;
    return 0;
}

static int check_before(const kin_kv *kv, const kin_batch *batch, int i, kin_err *err) {
    int32_t seq = seq_of(batch, i), pos = batch->pos[i];
    if (i > 0 && seq_of(batch, i - 1) == seq && batch->pos[i - 1] == pos - 1) return 0;
    if (pos >= 0 && has_all_before(kv, seq, pos)) return 0;
    return kin_err_set(err, "tokens before position %d of sequence %d are not in the KV cache", (int)pos, (int)seq);
}

int kin_kv_place(kin_kv *kv, const kin_batch *batch, int64_t *cells, kin_err *err) {
    for (int i = 0; i < batch->n_tokens; i++) {
        bool ok = check_before(kv, batch, i, err) == 0;
        if (ok && place_token(kv, seq_of(batch, i), batch->pos[i], &cells[i], err) == 0) continue;
        while (--i >= 0) kin_kv_remove(kv, seq_of(batch, i), batch->pos[i], batch->pos[i] + 1);
        return KIN_FAIL;
    }
    return 0;
}

void kin_kv_remove(kin_kv *kv, int32_t seq, int32_t begin, int32_t end) {
    for (int i = 0; i < kv->n_blocks; i++) {
        block *b = &kv->blocks[i];
        if (b->seq < 0 || (seq >= 0 && b->seq != seq)) continue;
        uint64_t gone = b->used & bits_between(b, begin, end);
        kv->n_tokens -= __builtin_popcountll(gone);
        b->used &= ~gone;
        if (!b->used) b->seq = -1;
    }
}

void kin_kv_clear(kin_kv *kv) {
    for (int i = 0; i < kv->n_blocks; i++) kv->blocks[i] = (block){.seq = -1};
    kv->n_tokens = 0;
}

int kin_kv_n_used(const kin_kv *kv) {
    int n = kv->n_blocks;
    while (n > 0 && kv->blocks[n - 1].seq < 0) n--;
    return n * KIN_KV_CELLS;
}

void kin_kv_table(const kin_kv *kv, int32_t seq, int32_t *table) {
    memset(table, 0, (size_t)kv->n_blocks * sizeof *table);
    for (int i = 0; i < kv->n_blocks; i++) {
        if (kv->blocks[i].seq == seq) table[kv->blocks[i].index] = i;
    }
}

// One block's cells, for a token at `pos` of `seq`.
static void mask_block(const block *b, int32_t seq, int32_t pos, ggml_fp16_t *mask) {
    uint64_t seen = b->seq == seq && pos >= 0 ? b->used & bits_between(b, 0, pos < INT32_MAX ? pos + 1 : pos) : 0;
    for (int i = 0; i < KIN_KV_CELLS; i++) mask[i] = seen >> i & 1 ? f16_zero : f16_minus_infinity;
}

void kin_kv_mask(const kin_kv *kv, const kin_batch *batch, const int32_t *rows, int n_rows, int n_kv, ggml_fp16_t *mask) {
    kin_assert(n_kv % KIN_KV_CELLS == 0);
    for (int i = 0; i < n_rows; i++, mask += n_kv) {
        int row = rows ? rows[i] : i;
        for (int b = 0; b < n_kv / KIN_KV_CELLS; b++)
            mask_block(&kv->blocks[b], seq_of(batch, row), batch->pos[row], mask + b * KIN_KV_CELLS);
    }
}

struct ggml_tensor *kin_kv_k(const kin_kv *kv, int il) {
    return kv->k[il];
}

struct ggml_tensor *kin_kv_v(const kin_kv *kv, int il) {
    return kv->v[il];
}
