#include "engine/attention_rows.h"

#include <stdlib.h>

static bool open_windows(kin_attention_rows *r, size_t n_batch, bool has_tables) {
    const size_t n_blocks = (size_t)r->n_blocks, n_cells = n_blocks * KIN_KV_CELLS;
    r->window_mask = malloc(n_batch * n_cells * sizeof *r->window_mask);
    r->out_window_mask = malloc(n_batch * n_cells * sizeof *r->out_window_mask);
    r->first_seen = malloc(n_batch * sizeof *r->first_seen);
    r->out_first_seen = malloc(n_batch * sizeof *r->out_first_seen);
    if (!r->window_mask || !r->out_window_mask || !r->first_seen || !r->out_first_seen) return false;
    if (!has_tables) return true;
    r->window_tables = malloc(n_batch * n_blocks * sizeof *r->window_tables);
    r->window_table = malloc(n_batch * sizeof *r->window_table);
    r->out_window_table = malloc(n_batch * sizeof *r->out_window_table);
    return r->window_tables && r->window_table && r->out_window_table;
}

int kin_attention_rows_open(kin_attention_rows *r, int n_batch, int n_ctx, int window, bool has_window_tables, kin_err *err) {
    const size_t n = (size_t)n_batch, n_cells = (size_t)kin_kv_n_cells(n_ctx);
    r->n_blocks = (int)(n_cells / KIN_KV_CELLS);
    r->window = window;
    r->out_pos = malloc(n * sizeof *r->out_pos);
    r->out_seen = malloc(n * sizeof *r->out_seen);
    r->mask = malloc(n * n_cells * sizeof *r->mask);
    r->out_mask = malloc(n * n_cells * sizeof *r->out_mask);
    r->tables = malloc(n * (n_cells / KIN_KV_CELLS) * sizeof *r->tables);
    r->table = malloc(n * sizeof *r->table);
    r->out_table = malloc(n * sizeof *r->out_table);
    const bool ok = r->out_pos && r->out_seen && r->mask && r->out_mask && r->tables && r->table && r->out_table &&
                    (window == 0 || open_windows(r, n, has_window_tables));
    return ok ? 0 : kin_err_set(err, "out of memory");
}

void kin_attention_rows_close(kin_attention_rows *r) {
    free(r->out_pos);
    free(r->out_seen);
    free(r->tables);
    free(r->table);
    free(r->out_table);
    free(r->window_tables);
    free(r->window_table);
    free(r->out_window_table);
    free(r->mask);
    free(r->out_mask);
    free(r->window_mask);
    free(r->out_window_mask);
    free(r->first_seen);
    free(r->out_first_seen);
}

// Fills in the block tables of a batch, one per sequence, with `fill`: table // [n_tokens] pointers into tables.
static void fill_block_tables(const kin_attention_rows *r, const kin_kv *kv, const kin_batch *batch,
                              void (*fill)(const kin_kv *kv, int32_t seq, int32_t *table), int32_t *tables,
                              const int32_t **table) {
    int n = 0;
    for (int i = 0; i < batch->n_tokens; i++) {
        int k = i - 1;
        while (k >= 0 && batch->seq[k] != batch->seq[i]) k--;
        table[i] = k >= 0 ? table[k] : tables + (size_t)n * (size_t)r->n_blocks;
        if (k < 0) fill(kv, batch->seq[i], tables + (size_t)n++ * (size_t)r->n_blocks);
    }
}

static void fill_tables(kin_attention_rows *r, const kin_kv *kv, const kin_batch *batch) {
    fill_block_tables(r, kv, batch, kin_kv_table, r->tables, r->table);
    if (r->window_tables) fill_block_tables(r, kv, batch, kin_kv_window_table, r->window_tables, r->window_table);
}

// Fills in ggml's attention masks for rows of a batch; rows NULL: all.
static void fill_masks(const kin_attention_rows *r, const kin_kv *kv, const kin_batch *batch, int n_kv, const int32_t *rows,
                       int n, ggml_fp16_t *mask, ggml_fp16_t *window_mask) {
    kin_kv_mask(kv, batch, rows, n, n_kv, 0, mask);
    if (window_mask) kin_kv_mask(kv, batch, rows, n, n_kv, r->window, window_mask);
}

// Computes for each token the first cell that it attends to in a windowed layer. first NULL: the model has no such layer.
static void fill_first(const kin_attention_rows *r, int n, const int32_t *pos, int32_t *first) {
    for (int i = 0; i < n && first; i++) first[i] = pos[i] >= r->window ? pos[i] - r->window + 1 : 0;
}

static void fill_out(kin_attention_rows *r, const kin_batch *batch, int n, const int32_t *rows, bool plain) {
    for (int i = 0; i < n; i++) {
        r->out_pos[i] = batch->pos[rows[i]];
        r->out_seen[i] = r->out_pos[i] + 1;
        if (plain) r->out_table[i] = r->table[rows[i]];
        if (plain && r->window_tables) r->out_window_table[i] = r->window_table[rows[i]];
    }
    fill_first(r, n, r->out_pos, r->out_first_seen);
}

void kin_attention_rows_fill(kin_attention_rows *r, const kin_kv *kv, const kin_batch *batch, int n_kv, bool plain, bool masks,
                             kin_stage_inputs *in) {
    if (plain) fill_tables(r, kv, batch);
    if (masks) fill_masks(r, kv, batch, n_kv, NULL, batch->n_tokens, r->mask, r->window_mask);
    fill_first(r, batch->n_tokens, batch->pos, r->first_seen);
    in->mask = r->mask;
    in->out_mask = r->out_mask;
    in->window_mask = r->window_mask;
    in->out_window_mask = r->out_window_mask;
    in->out_pos = r->out_pos;
    in->all.tables = r->table;
    in->all.window_tables = r->window_tables ? r->window_table : r->table;
    in->all.first_cells = r->first_seen;
    if (!in->out_rows) return;
    const int n_out = kin_batch_n_out(batch);
    if (masks) fill_masks(r, kv, batch, n_kv, in->out_rows, n_out, r->out_mask, r->out_window_mask);
    fill_out(r, batch, n_out, in->out_rows, plain);
    in->out = (kin_rows){.pos = r->out_pos, .n_cells = r->out_seen, .first_cells = r->out_first_seen, .tables = r->out_table};
    in->out.window_tables = r->window_tables ? r->out_window_table : r->out_table;
}
