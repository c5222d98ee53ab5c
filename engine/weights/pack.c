#include "engine/weights/pack.h"

#include <stdlib.h>
#include <string.h>

#include "sys/pages.h"

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

// Packs or copies n rows of a piece that are `step` bytes apart.
static int pack_rows(const kin_weights_piece *p, const uint8_t *from, int64_t n, uint64_t step, uint8_t *to, kin_err *err) {
    const uint64_t row = row_bytes(p);
    if (p->layout == KIN_LAYOUT_PANELS && step != row) return pack_columns(p, from, n, to, err);
    if (p->layout == KIN_LAYOUT_PANELS) kin_kernel_pack(p->type, p->ne[0], n, from, to);
    if (p->layout == KIN_LAYOUT_PLAIN && step == row) memcpy(to, from, (uint64_t)n * row);
    for (int64_t r = 0; r < n && p->layout == KIN_LAYOUT_PLAIN && step != row; r++)
        memcpy(to + (uint64_t)r * row, from + (uint64_t)r * step, row);
    return 0;
}

// Packs or copies a band to its place in the matrix at `to`. A run of the piece is all matrices, one of them, half of one, or a
// row.
static int pack_band(const kin_weights_piece *p, const band *x, uint8_t *to, kin_err *err) {
    const uint64_t row = row_bytes(p), rows_of_run = p->run / row, first = x->i * (uint64_t)p->ne[1];
    int rc = 0;
    for (int64_t r = x->begin, n; r < x->end && rc == 0; r += n) {
        const uint64_t at = first + (uint64_t)r, left = rows_of_run - at % rows_of_run;
        n = x->end - r;
        if (rows_of_run > 1 && (uint64_t)n > left) n = (int64_t)left;
        const uint8_t *from = p->data + at / rows_of_run * p->stride + at % rows_of_run * row;
        rc = pack_rows(p, from, n, rows_of_run > 1 ? row : p->stride, to + (uint64_t)r * row, err);
    }
    return rc;
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
