#include <stdlib.h>
#include <string.h>

#include "ggml-alloc.h"
#include "ggml_impl.h"
#include "web/engine/gpu.h"
#include "web/host.h"

// ---- memory

struct ggml_backend_buffer {
    void *memory; // NULL: its tensors are on the GPU
};

ggml_backend_buffer_t ggml_backend_cpu_buffer_from_ptr(void *ptr, size_t n) {
    (void)n;
    ggml_backend_buffer_t buffer = malloc(sizeof *buffer);
    if (buffer) buffer->memory = ptr;
    return buffer;
}

void ggml_backend_buffer_free(ggml_backend_buffer_t buffer) {
    free(buffer);
}

enum ggml_status ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, void *at) {
    tensor->buffer = buffer;
    tensor->data = at;
    return GGML_STATUS_SUCCESS;
}

ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors_from_buft(struct ggml_context *ctx, ggml_backend_buffer_type_t buft) {
    (void)buft;
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(NULL, 0);
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); buffer && t; t = ggml_get_next_tensor(ctx, t)) kin_gpu_put(t, NULL);
    return buffer;
}

void ggml_backend_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset, size_t n) {
    if (kin_gpu_has(tensor))
        kin_host_gpu_set((int)(uintptr_t)tensor->data, (double)offset, data, n);
    else
        memcpy((char *)tensor->data + offset, data, n);
}

void ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t n) {
    if (kin_gpu_has(tensor))
        kin_host_gpu_get((int)(uintptr_t)tensor->data, (double)offset, data, n);
    else
        memcpy(data, (const char *)tensor->data + offset, n);
}

// ---- memory of a graph

enum { ALIGN = 64 };

struct ggml_gallocr {
    struct ggml_backend_buffer buffer;
    size_t size;
};

ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t buft) {
    (void)buft;
    return calloc(1, sizeof(struct ggml_gallocr));
}

void ggml_gallocr_free(ggml_gallocr_t g) {
    if (!g) return;
    free(g->buffer.memory);
    free(g);
}

size_t ggml_gallocr_get_buffer_size(ggml_gallocr_t g, int i) {
    (void)i;
    return g->size;
}

static struct ggml_tensor *root_of(struct ggml_tensor *t) {
    return t->view_src ? t->view_src : t;
}

// Determines each tensor's lifetime: from the node that writes it (inputs: from the beginning) to its last reader (outputs: to
// the end). Tensors with their own memory, weights and caches, are skipped.
static void find_lives(struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n; i++) {
        struct ggml_tensor *t = graph->nodes[i], *root = root_of(t);
        if (root == t) t->first = t->last = i;
        root->is_placed = false;
        if (kin_gpu_is_here(t)) t->first = 0;
        if (t->is_output) root->last = graph->n;
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            struct ggml_tensor *src = t->src[k] ? root_of(t->src[k]) : NULL;
            if (src && src->op == GGML_OP_NONE) src->first = 0;
            if (src) src->is_placed = false;
            if (src && src->last < i) src->last = i;
        }
        if (root->last < i) root->last = i;
    }
}

// Placement: each tensor gets the lowest address that is free during its lifetime. placed // [n] sorted by address
typedef struct places {
    struct ggml_tensor **placed;
    size_t *at;
    int n;
    size_t size;
} places;

static void insert(places *p, struct ggml_tensor *t, size_t at) {
    int i = p->n++;
    for (; i > 0 && p->at[i - 1] > at; i--) {
        p->at[i] = p->at[i - 1];
        p->placed[i] = p->placed[i - 1];
    }
    p->at[i] = at;
    p->placed[i] = t;
}

static size_t bytes_of(const struct ggml_tensor *t) {
    return (ggml_nbytes(t) + ALIGN - 1) / ALIGN * ALIGN;
}

static void place(places *p, struct ggml_tensor *t) {
    size_t at = 0, bytes = bytes_of(t);
    if (t->is_placed) return;
    t->is_placed = true;
    for (int i = 0; i < p->n; i++) {
        const struct ggml_tensor *other = p->placed[i];
        if (other->last < t->first || t->last < other->first) continue;
        if (p->at[i] >= at + bytes) break;
        size_t end = p->at[i] + bytes_of(other);
        if (end > at) at = end;
    }
    insert(p, t, at);
    if (at + bytes > p->size) p->size = at + bytes;
}

static void place_all(places *p, struct ggml_cgraph *graph) {
    find_lives(graph);
    for (int i = 0; i < graph->n; i++) {
        struct ggml_tensor *t = graph->nodes[i];
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            struct ggml_tensor *src = t->src[k] ? root_of(t->src[k]) : NULL;
            if (src && src->op == GGML_OP_NONE && !src->data) place(p, src);
        }
        if (root_of(t) == t) place(p, t);
    }
}

static bool grow(ggml_gallocr_t g, size_t size) {
    if (size <= g->size) return true;
    free(g->buffer.memory);
    g->buffer.memory = malloc(size);
    g->size = g->buffer.memory ? size : 0;
    return g->size;
}

static void give(ggml_gallocr_t g, struct ggml_cgraph *graph, const places *p) {
    for (int i = 0; i < p->n; i++) {
        p->placed[i]->buffer = &g->buffer;
        p->placed[i]->data = (char *)g->buffer.memory + p->at[i];
    }
    for (int i = 0; i < graph->n; i++) {
        struct ggml_tensor *t = graph->nodes[i];
        if (!t->view_src) continue;
        t->buffer = t->view_src->buffer;
        t->data = (char *)t->view_src->data + t->view_offs;
    }
}

static bool allocate(ggml_gallocr_t g, struct ggml_cgraph *graph, bool gives) {
    size_t most = (size_t)graph->n * (GGML_MAX_SRC + 1);
    places p = {.placed = calloc(most, sizeof *p.placed), .at = calloc(most, sizeof *p.at)};
    bool ok = p.placed && p.at;
    if (ok) place_all(&p, graph);
    ok = ok && grow(g, p.size);
    if (ok && gives) give(g, graph, &p);
    free(p.placed);
    free(p.at);
    return ok;
}

bool ggml_gallocr_reserve(ggml_gallocr_t g, struct ggml_cgraph *graph) {
    return allocate(g, graph, false);
}

bool ggml_gallocr_alloc_graph(ggml_gallocr_t g, struct ggml_cgraph *graph) {
    return allocate(g, graph, true);
}

// ---- computing

// The module's threads compute graphs without this (kin_ops_compute).
enum ggml_status ggml_backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    const struct ggml_gallocr *g = (const void *)graph->nodes[0]->buffer; // the memory of a graph is one block
    (void)backend;
    kin_assert(kin_gpu_is_on());
    kin_gpu_compute(graph, g->buffer.memory, g->size);
    return GGML_STATUS_SUCCESS;
}

const char *ggml_status_to_string(enum ggml_status status) {
    return status == GGML_STATUS_SUCCESS ? "success" : "aborted";
}
