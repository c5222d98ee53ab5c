// Attention's inputs for a step's tokens: block tables for kin's kernels, masks for ggml's operators.
//
// Owner: one shard; the arrays are those of one run at a time. Thread: the shard's.
#pragma once

#include "engine/kv.h"
#include "engine/stage.h"

typedef struct kin_attention_rows {
    int n_blocks, window;                       // of the context; tokens of a windowed layer
    int32_t *out_pos, *out_seen;                // [n_batch]
    ggml_fp16_t *mask, *out_mask;               // [n_batch, n_cells]
    ggml_fp16_t *window_mask, *out_window_mask; // the same for windowed layers; NULL: the model has none
    int32_t *first_seen, *out_first_seen;       // [n_batch]: the first cell that a token attends to in windowed layers
    int32_t *tables;                            // [n_batch, n_blocks]: block tables of the batch's sequences
    int32_t *window_tables;                     // the same of windowed layers; NULL: these use `tables`
    const int32_t **table, **out_table;         // [n_batch]: the table of each token
    const int32_t **window_table, **out_window_table;
} kin_attention_rows;

// window: tokens of a windowed layer; 0: no layer is windowed. has_window_tables: the windows have blocks of their own. Zeroed
// before. Fails only without memory; call close also then.
int kin_attention_rows_open(kin_attention_rows *rows, int n_batch, int n_ctx, int window, bool has_window_tables, kin_err *err);
void kin_attention_rows_close(kin_attention_rows *rows);

// Fills in the rows of a batch, whose pos and seq are set, and points the stage's inputs to them: those for kin's kernels if
// `plain`, masks if `masks`; if in->out_rows is set, the same for these rows. The caller has set the other fields of in->all.
void kin_attention_rows_fill(kin_attention_rows *rows, const kin_kv *kv, const kin_batch *batch, int n_kv, bool plain, bool masks,
                             kin_stage_inputs *in);
