// See ggml.h. The only device is this module's memory with its threads (web/engine/threads.h).
#pragma once

#include "ggml.h"

typedef struct ggml_backend *ggml_backend_t;
typedef struct ggml_backend_device *ggml_backend_dev_t;
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;

static inline bool ggml_backend_supports_op(ggml_backend_t backend, const struct ggml_tensor *op) {
    return (void)backend, (void)op, true;
}
static inline bool ggml_backend_dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    return (void)dev, (void)op, true;
}

enum ggml_status ggml_backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph);
const char *ggml_status_to_string(enum ggml_status status);

void ggml_backend_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset, size_t n);
void ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t n);

ggml_backend_buffer_t ggml_backend_cpu_buffer_from_ptr(void *ptr, size_t n); // NULL: out of memory
enum ggml_status ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, void *at);
void ggml_backend_buffer_free(ggml_backend_buffer_t buffer);

// Allocates tensors on the GPU (web/engine/gpu.h), where they are zero.
ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors_from_buft(struct ggml_context *ctx, ggml_backend_buffer_type_t buft);
#define ggml_backend_buffer_clear(buffer, value) ((void)(buffer), (void)(value))
