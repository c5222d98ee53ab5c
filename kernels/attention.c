// The KV cache's layout, and how attention is divided into tasks.
#include "kernels/attention.h"

#include "kernels/panel.h"

enum { TASKS_PER_THREAD = 4 }; // with fewer tasks, spans are split: otherwise the last task may leave other threads idle

static bool has_dim(int dim, int step) {
    return dim >= 16 && dim <= KIN_KV_DIM && dim % step == 0;
}

bool kin_kv_has(const kin_kv_layout *kv) {
    bool is_f16 = kv->type == KIN_TYPE_F16, is_q8_0 = kv->type == KIN_TYPE_Q8_0;
    if (kv->v_in_k ? kv->v_dim > kv->k_dim : kv->by_cell) return false;
    return (is_f16 || is_q8_0) && has_dim(kv->k_dim, is_q8_0 ? 32 : 16) && has_dim(kv->v_dim, is_q8_0 ? 32 : 16);
}

size_t kin_kv_block_bytes(const kin_kv_layout *kv, bool is_k) {
    kin_assert(kin_kv_has(kv));
    if (!is_k && kv->v_in_k) return 0;
    size_t n = (size_t)kv->n_head_kv * (size_t)(is_k ? kv->k_dim : kv->v_dim) * KIN_KV_CELLS;
    return kv->type == KIN_TYPE_F16 ? 2 * n : n / 32 * 34;
}

int64_t kin_attention_tile_end(const kin_attention *a, int64_t row) {
    int group = a->n_head / a->kv.n_head_kv, n_queries = kin_attention_queries(a);
    int64_t most = row + (group < n_queries ? n_queries / group : 1), end = row + 1;
    if (kin_attention_chooses(a, row)) return end;
    while (end < a->n_rows && end < most && a->blocks[end] == a->blocks[row] && !kin_attention_chooses(a, end)) end++;
    return end;
}

int64_t kin_attention_tile_row(kin_attention *a, int64_t tile) {
    if (tile < a->last_tile) a->last_tile = a->last_tile_row = 0;
    for (; a->last_tile < tile; a->last_tile++) a->last_tile_row = kin_attention_tile_end(a, a->last_tile_row);
    return a->last_tile_row;
}

static int64_t spans_of(int64_t n_cells) {
    return (n_cells + KIN_SPAN_CELLS - 1) / KIN_SPAN_CELLS;
}

bool kin_attention_may_split(int n_head_kv, int n_threads) {
    return n_threads > 1 && n_head_kv < n_threads * TASKS_PER_THREAD;
}

size_t kin_attention_partial_bytes(const kin_kv_layout *kv, int n_head, int64_t n_rows, int64_t n_cells) {
    return (size_t)(n_rows * n_head * spans_of(n_cells) * kin_attention_partial_floats(kv)) * sizeof(float);
}

int64_t kin_attention_plan(kin_attention *a, int n_threads) {
    kin_assert(kin_kv_has(&a->kv) && a->n_head % a->kv.n_head_kv == 0);
    kin_assert(!a->chosen || (a->kv.by_cell && !a->first_cells && !a->chosen_blocks && !a->chosen_groups));
    kin_assert(!a->chosen_blocks || (!a->kv.by_cell && !a->first_cells && a->n_chosen % a->chosen_step == 0));
    kin_assert(!a->chosen_groups || (!a->kv.by_cell && !a->kv.v_in_k && !a->first_cells && !a->chosen_blocks));
    kin_assert(!a->chosen_groups || (a->chosen_step % KIN_GROUP_CELLS == 0 && a->n_chosen % a->chosen_step == 0));
    a->n_seen = 0;
    a->n_tiles = a->last_tile = a->last_tile_row = 0;
    for (int64_t row = 0; row < a->n_rows; row = kin_attention_tile_end(a, row)) a->n_tiles++;
    for (int64_t row = 0; row < a->n_rows; row++)
        a->n_seen = kin_attention_end(a, row) > a->n_seen ? kin_attention_end(a, row) : a->n_seen;
    int64_t n_tasks = a->n_tiles * a->kv.n_head_kv * kin_attention_parts(a);
    bool fits = a->partial && kin_attention_partial_bytes(&a->kv, a->n_head, a->n_rows, a->n_seen) <= a->partial_bytes;
    a->n_spans = n_threads > 1 && n_tasks < n_threads * TASKS_PER_THREAD && fits ? (int)spans_of(a->n_seen) : 1;
    if (a->n_spans < 1) a->n_spans = 1;
    return n_tasks * a->n_spans;
}

kin_attention_part kin_attention_part_of(const kin_attention *a, int64_t task) {
    const int64_t parts = kin_attention_parts(a), part = task / a->n_spans % parts, span = task % a->n_spans;
    const int64_t begin = kin_attention_part_begin(a, part), n = kin_attention_part_begin(a, part + 1) - begin;
    const int64_t head = task / a->n_spans / parts * (a->n_head / a->kv.n_head_kv) + begin;
    const int64_t floats = kin_attention_partial_floats(&a->kv), width = n * a->kv.v_dim;
    kin_assert(a->n_rows == 1);
    if (a->n_spans == 1) return (kin_attention_part){head * a->kv.v_dim, 1, width, width};
    return (kin_attention_part){(head * a->n_spans + span) * floats, n, floats, a->n_spans * floats};
}
