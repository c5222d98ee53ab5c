#include "engine/kv/cells.h"

#include <string.h>

#include "engine/kv/cell_row.h"

enum { CELLS = KIN_KV_CELLS };

static void get_f16(const kin_kernels *kernels, const uint16_t *from, int dim, int cell, bool is_k, float *x) {
    uint16_t h[KIN_KV_DIM] = {0};
    for (int d = 0; d < dim; d++) h[d] = from[is_k ? d * CELLS + cell : cell * dim + d];
    kernels->from_f16(dim, h, x);
}

static void get_q8_0(const kin_kernels *kernels, const int8_t *from, int dim, int cell, bool is_k, float *x) {
    const uint16_t *scales = (const uint16_t *)(from + dim * CELLS);
    uint16_t h[KIN_KV_DIM] = {0};
    for (int d = 0; d < dim; d++) h[d] = scales[d / 32 * CELLS + cell];
    kernels->from_f16(dim, h, x);
    for (int d = 0; d < dim; d++)
        x[d] *= (float)from[is_k ? d / 4 * 4 * CELLS + 4 * cell + d % 4 : cell / 4 * 4 * dim + 4 * d + cell % 4];
}

static void get_heads(const kin_kv_cells *c, const void *cache, bool is_k, int64_t cell, float *x) {
    const size_t bytes = kin_kv_block_bytes(&c->layout, is_k), head_bytes = bytes / (size_t)c->layout.n_head_kv;
    const char *head = (const char *)cache + (size_t)(cell / CELLS) * bytes;
    const int dim = is_k ? c->layout.k_dim : c->layout.v_dim, at = (int)(cell % CELLS);
    for (int i = 0; i < c->layout.n_head_kv; i++, head += head_bytes, x += dim) {
        if (c->layout.type == GGML_TYPE_F16)
            get_f16(c->kernels, (const uint16_t *)head, dim, at, is_k, x);
        else
            get_q8_0(c->kernels, (const int8_t *)head, dim, at, is_k, x);
    }
}

void kin_kv_cells_get(const kin_kv_cells *c, int64_t cell, float *row) {
    float *values = row + c->layout.n_head_kv * c->layout.k_dim;
    if (c->kernels) {
        get_heads(c, c->k->data, true, cell, row);
        get_heads(c, c->v->data, false, cell, values);
    } else {
        kin_kv_cell_row_get(c->k, cell, row);
        kin_kv_cell_row_get(c->v, cell, values);
    }
}

void kin_kv_cells_set(const kin_kv_cells *c, int64_t cell, const float *row) {
    const float *values = row + c->layout.n_head_kv * c->layout.k_dim;
    const int32_t at = (int32_t)cell;
    if (c->kernels) {
        const kin_kv_rows one = {
            .kv = c->layout, .k = c->k->data, .v = c->v->data, .k_rows = row, .v_rows = values, .cells = &at};
        c->kernels->kv_store(&one, 0, 1);
    } else {
        kin_kv_cell_row_set(c->k, cell, row);
        kin_kv_cell_row_set(c->v, cell, values);
    }
}
