// A browser's KV cache is laid out by kin's kernels.
#include "engine/kv/cell_row.h"

#include "base/err.h"

void kin_kv_cell_row_get(const struct ggml_tensor *t, int64_t cell, float *x) {
    (void)t, (void)cell, (void)x;
    kin_assert(!"rows of ggml in a browser");
}

void kin_kv_cell_row_set(struct ggml_tensor *t, int64_t cell, const float *x) {
    (void)t, (void)cell, (void)x;
    kin_assert(!"rows of ggml in a browser");
}
