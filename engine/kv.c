#include "engine/kv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// Attention's cost is per cell it looks at, a new graph's per change of that number: 64 makes both negligible.
enum { USED_STEP = 64 };

static const ggml_fp16_t f16_zero = 0x0000, f16_minus_infinity = 0xfc00;

typedef struct cell {
    int32_t seq; // -1: free
    int32_t pos;
} cell;

struct kin_kv {
    kin_kv_options o;
    cell *cells;    // [n_ctx]
    int n_used;     // one more than the highest used cell
    int first_free; // no free cell is below

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
    return 2 * row * (uint64_t)o->n_ctx * (uint64_t)kin_windows_n_layers(&o->windows);
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
    kv->cells = malloc((size_t)o->n_ctx * sizeof *kv->cells);
    kv->k = calloc((size_t)hp->n_layer, sizeof *kv->k);
    kv->v = calloc((size_t)hp->n_layer, sizeof *kv->v);
    struct ggml_init_params params = {.mem_size = (2 * n_layer + 1) * ggml_tensor_overhead(), .no_alloc = true};
    kv->cpu_ctx = ggml_init(params);
    kv->gpu_ctx = ggml_init(params);
    if (!kv->cells || !kv->k || !kv->v || !kv->cpu_ctx || !kv->gpu_ctx) {
        kin_err_set(err, "out of memory");
        goto fail;
    }

    const kin_device *gpu = NULL;
    for (int i = 0; i < o->windows.n; i++) {
        for (int il = o->windows.at[i].layer_begin; il < o->windows.at[i].layer_end; il++) {
            const kin_device *device = device_of(user, il);
            if (device->is_gpu) gpu = device;
            struct ggml_context *ctx = device->is_gpu ? kv->gpu_ctx : kv->cpu_ctx;
            kv->k[il] = ggml_new_tensor_2d(ctx, o->type, n_embd_kv(hp), o->n_ctx);
            kv->v[il] = ggml_new_tensor_2d(ctx, o->type, n_embd_kv(hp), o->n_ctx);
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
    free(kv->cells);
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

static int next_free(const kin_kv *kv, int from) {
    while (from < kv->o.n_ctx && kv->cells[from].seq >= 0) from++;
    return from;
}

static int refuse_twice(int32_t seq, int32_t pos, kin_err *err) {
    return kin_err_set(err, "position %d of sequence %d is in the KV cache already", (int)pos, (int)seq);
}

// A batch is nearly always one sequence in ascending order, which has nothing twice.
static bool is_ascending(const kin_batch *batch) {
    for (int i = 1; i < batch->n_tokens; i++) {
        if (seq_of(batch, i) != seq_of(batch, 0) || batch->pos[i] <= batch->pos[i - 1]) return false;
    }
    return true;
}

static int check_batch(const kin_batch *batch, kin_err *err) {
    if (is_ascending(batch)) return 0;
    for (int i = 1; i < batch->n_tokens; i++) {
        kin_batch before = *batch;
        before.n_tokens = i;
        if (kin_batch_has(&before, seq_of(batch, i), batch->pos[i], batch->pos[i] + 1))
            return refuse_twice(seq_of(batch, i), batch->pos[i], err);
    }
    return 0;
}

static int check_cells(const kin_kv *kv, const kin_batch *batch, kin_err *err) {
    int32_t least = INT32_MAX, most = 0;
    for (int i = 0; i < batch->n_tokens; i++) {
        if (batch->pos[i] < least) least = batch->pos[i];
        if (batch->pos[i] > most) most = batch->pos[i];
    }
    for (int i = 0; i < kv->n_used; i++) {
        const cell *c = &kv->cells[i];
        if (c->seq < 0 || c->pos < least || c->pos > most) continue;
        if (kin_batch_has(batch, c->seq, c->pos, c->pos + 1)) return refuse_twice(c->seq, c->pos, err);
    }
    return 0;
}

int kin_kv_place(kin_kv *kv, const kin_batch *batch, int64_t *cells, kin_err *err) {
    if (check_batch(batch, err) != 0 || check_cells(kv, batch, err) != 0) return KIN_FAIL;
    int at = kv->first_free;
    for (int i = 0; i < batch->n_tokens; i++, at++) {
        at = next_free(kv, at);
        if (at >= kv->o.n_ctx) return kin_err_set(err, "the context of %d tokens is full", kv->o.n_ctx);
        cells[i] = at;
    }
    for (int i = 0; i < batch->n_tokens; i++) {
        kv->cells[cells[i]] = (cell){.seq = seq_of(batch, i), .pos = batch->pos[i]};
    }
    kv->first_free = at;
    if (at > kv->n_used) kv->n_used = at;
    return 0;
}

void kin_kv_remove(kin_kv *kv, int32_t seq, int32_t begin, int32_t end) {
    for (int i = 0; i < kv->n_used; i++) {
        cell *c = &kv->cells[i];
        bool is_of_seq = seq < 0 ? c->seq >= 0 : c->seq == seq;
        if (!is_of_seq || c->pos < begin || c->pos >= end) continue;
        c->seq = -1;
        if (i < kv->first_free) kv->first_free = i;
    }
    while (kv->n_used > 0 && kv->cells[kv->n_used - 1].seq < 0) kv->n_used--;
}

void kin_kv_clear(kin_kv *kv) {
    for (int i = 0; i < kv->o.n_ctx; i++) kv->cells[i] = (cell){.seq = -1};
    kv->n_used = kv->first_free = 0;
}

int kin_kv_n_used(const kin_kv *kv) {
    int n = (kv->n_used + USED_STEP - 1) / USED_STEP * USED_STEP;
    return n < kv->o.n_ctx ? n : kv->o.n_ctx;
}

int kin_kv_n_ctx(const kin_kv *kv) {
    return kv->o.n_ctx;
}

void kin_kv_mask(const kin_kv *kv, const kin_batch *batch, const int32_t *rows, int n_rows, int n_kv, ggml_fp16_t *mask) {
    for (int i = 0; i < n_rows; i++, mask += n_kv) {
        int row = rows ? rows[i] : i;
        int32_t seq = seq_of(batch, row), pos = batch->pos[row];
        for (int j = 0; j < n_kv; j++) {
            const cell *c = &kv->cells[j];
            mask[j] = c->seq == seq && c->pos <= pos ? f16_zero : f16_minus_infinity;
        }
    }
}

struct ggml_tensor *kin_kv_k(const kin_kv *kv, int il) {
    return kv->k[il];
}

struct ggml_tensor *kin_kv_v(const kin_kv *kv, int il) {
    return kv->v[il];
}
