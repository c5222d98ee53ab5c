#include "engine/kv/cell_row.h"

#include <ggml-backend.h>

#include "base/err.h"

enum { ROW_BYTES = 1 << 16 }; // of 32,768 numbers in F16: more than any layer's keys

void kin_kv_cell_row_get(const struct ggml_tensor *t, int64_t cell, float *x) {
    uint8_t bytes[ROW_BYTES];
    kin_assert(t->nb[1] <= sizeof bytes);
    ggml_backend_tensor_get(t, bytes, (size_t)cell * t->nb[1], t->nb[1]);
    ggml_get_type_traits(t->type)->to_float(bytes, x, t->ne[0]);
}

void kin_kv_cell_row_set(struct ggml_tensor *t, int64_t cell, const float *x) {
    uint8_t bytes[ROW_BYTES];
    kin_assert(t->nb[1] <= sizeof bytes);
    ggml_quantize_chunk(t->type, x, bytes, 0, 1, t->ne[0], NULL);
    ggml_backend_tensor_set(t, bytes, (size_t)cell * t->nb[1], t->nb[1]);
}
