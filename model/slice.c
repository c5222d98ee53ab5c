#include "model/slice.h"

#include <ggml.h>

#include "kernels/kernels.h"

enum { COLUMNS_STEP = 16 }; // for types without blocks: required by the kernels

static bool is_vector(const kin_gguf_tensor *t) {
    return t->ne[1] == 1 && t->ne[2] == 1;
}

// Returns the size of the dimension, or 0 if it cannot be split; a slice's ends are multiples of *step.
static int64_t split_size(const kin_gguf_tensor *t, kin_slice_dim dim, int64_t *step) {
    int64_t block = ggml_blck_size((enum ggml_type)t->type);
    *step = dim != KIN_SLICE_COLUMNS ? KIN_PANEL_ROWS : block < COLUMNS_STEP ? COLUMNS_STEP : block;
    if (dim == KIN_SLICE_FULL || (is_vector(t) && (dim != KIN_SLICE_ROWS || block != 1))) return 0;
    if (is_vector(t)) *step = 1;
    if (dim == KIN_SLICE_HALVES) return t->ne[1] % (2 * *step) == 0 ? t->ne[1] / 2 : 0;
    int64_t size = dim == KIN_SLICE_COLUMNS || is_vector(t) ? t->ne[0] : t->ne[1];
    return size % *step == 0 ? size : 0;
}

int64_t kin_slice_step(const kin_gguf_tensor *t, kin_slice_dim dim) {
    int64_t step;
    return split_size(t, dim, &step) > 0 ? step : 0;
}

bool kin_slice_can_split(const kin_gguf_tensor *t, kin_slice_dim dim, int n_parts) {
    int64_t step, size = split_size(t, dim, &step);
    return n_parts > 0 && size / step >= n_parts;
}

kin_slice kin_slice_part(const kin_gguf_tensor *t, kin_slice_dim dim, int i, int n_parts) {
    kin_assert(kin_slice_can_split(t, dim, n_parts) && i >= 0 && i < n_parts);
    int64_t step, size = split_size(t, dim, &step), n = size / step;
    return (kin_slice){.dim = dim, .begin = n * i / n_parts * step, .end = n * (i + 1) / n_parts * step};
}

int kin_slice_check(const kin_slice *s, const kin_gguf_tensor *t, kin_err *err) {
    if (s->dim == KIN_SLICE_FULL) return 0;
    int64_t step, size = split_size(t, s->dim, &step);
    if (s->begin >= 0 && s->begin < s->end && s->end <= size && s->begin % step == 0 && s->end % step == 0) return 0;
    return kin_err_set(err, "cannot slice the tensor '%.*s' (%s, %lld x %lld) at %s %lld to %lld", (int)t->name.len, t->name.at,
                       kin_gguf_type_name(t->type), (long long)t->ne[0], (long long)t->ne[1],
                       s->dim == KIN_SLICE_COLUMNS ? "columns" : "rows", (long long)s->begin, (long long)s->end);
}

kin_slice_view kin_slice_view_of(const kin_slice *s, const kin_gguf_tensor *t) {
    kin_slice_view v = {.ne = {t->ne[0], t->ne[1], t->ne[2]}, .bytes = t->n_bytes, .run = t->n_bytes, .n_runs = 1};
    if (s->dim == KIN_SLICE_FULL) return v;
    bool by_elements = s->dim == KIN_SLICE_COLUMNS || is_vector(t);
    // The elements and bytes of the smallest piece of the dimension: a row, or a block of columns.
    int64_t n_piece = by_elements ? ggml_blck_size((enum ggml_type)t->type) : 1;
    uint64_t row = t->n_bytes / (uint64_t)(t->ne[1] * t->ne[2]);
    uint64_t piece = by_elements ? ggml_row_size((enum ggml_type)t->type, n_piece) : row;
    v.ne[by_elements ? 0 : 1] = s->end - s->begin;
    v.first = (uint64_t)(s->begin / n_piece) * piece;
    v.run = (uint64_t)((s->end - s->begin) / n_piece) * piece;
    v.stride = by_elements ? row : row * (uint64_t)t->ne[1];
    v.n_runs = (uint64_t)(by_elements ? t->ne[1] * t->ne[2] : t->ne[2]);
    v.bytes = v.run * v.n_runs;
    if (s->dim == KIN_SLICE_HALVES) {
        v.ne[1] *= 2;
        v.stride /= 2;
        v.n_runs *= 2;
        v.bytes *= 2;
    }
    if (v.run == v.stride) { // the whole dimension
        v.run = v.bytes;
        v.n_runs = 1;
    }
    return v;
}
