// A tile of attention: queries of one kv head that share its K and V, and the operations on their scores. For attention.c and
// attention_q8_0.c; kernels/attention.h defines how rows become tiles.
#pragma once

#include <math.h>

#include "kernels/attention.h"
#include "kernels/panel.h"
#include "kernels/simd/backend.h"
#include "kernels/simd/simd.h"

enum {
    CELLS = KIN_KV_CELLS,
    MOST_DIM = KIN_KV_DIM,
    QUERIES = KIN_TILE_QUERIES,
    FETCH_QUERIES = 16, // up to this many queries are computed faster than memory delivers: later blocks are
                        // prefetched
};

static const float LOG2_E = 0x1.715476p0f;
static const float LOWEST = -3e38f; // below every score
// Scores are taken relative to the greatest one of the earlier blocks, as long as none exceeds it by more than this: 2^SLACK is
// far from overflow, and a new reference would cost as much as the block's exponentials.
static const float SLACK = 11;
// Lower scores are raised to this distance below the reference: 2^-92 adds nothing to a sum, and its products with V are normal
// numbers.
static const float FLOOR = -92;

// Prefetch into the second-level cache: whole blocks ahead exceed the first level's buffers (2 cores of Zen 4, one token after
// 2048 with F16: 2.6 instead of 3.4 ms for 16 layers; after 4096 with Q8_0, head size 128: 7.8 instead of 8.6).
#define fetch(p) __builtin_prefetch(p, 0, 2)

// Unrolls early: if gcc 12 unrolls a loop late, it keeps the sums on the stack as well.
#define UNROLL _Pragma("GCC unroll 4")

// Queries for a Q8_0 cache, rounded to 16 bits. Columns are padded to a multiple of 64.
typedef struct rounded {
    int8_t q[QUERIES * 3 * SIMD_X_BYTES]; // [n][columns / 64][SIMD_X_BYTES]: at most 153, for keys of 160
    int32_t sum[KIN_TILE_VALUES / 32];    // [n][k_dim / 32] sums of 32 columns
    float scale[QUERIES];
} rounded;

typedef struct tile {
    // Members that are read as vectors come first, so that each begins on a 64-byte boundary.
    union {
        float wide[MOST_DIM * CELLS]; // K or V of a block (F16)
        struct {                      // (Q8_0)
            rounded rounded;
            int8_t turned[MOST_DIM * CELLS + MOST_DIM / 32 * CELLS * 2] __attribute__((aligned(64)));   // V made of K: its layout
            int8_t gathered[MOST_DIM * CELLS + MOST_DIM / 32 * CELLS * 2] __attribute__((aligned(64))); // K of single cells, in
                                                                                                        // a block's layout
        };
    };
    float q[KIN_TILE_VALUES];                     // [n][k_dim], multiplied by the scale
    float values[KIN_TILE_VALUES];                // [n][v_dim] of this span
    float total[KIN_TILE_VALUES];                 // [n][v_dim] of the spans so far
    float sum[QUERIES][16];                       // of 2^(score - max), lanes are cells
    float p[QUERIES][CELLS];                      // of the current block: scores, then 2^(score - max)
    float max[QUERIES];                           // of the scores so far, in this span
    float total_max[QUERIES], total_sum[QUERIES]; // of the spans so far
    int begin[QUERIES], end[QUERIES];             // positions that a query attends to
    int see_begin[QUERIES], see_end[QUERIES];     // cells of the current block that it attends to: none if equal
    bool is_first;                                // the block is the first of a span: there are no values yet
    int at;                                       // the place of the current block's first cell
    int seen;                                     // cells of the current block, from its first on, that any query attends to
    int low, high;                                // positions that any query attends to
    const kin_attention *a;
    int head, group;                      // kv head; queries of one row that share it
    int next_head;                        // the head whose block is prefetched
    size_t block_bytes[2], head_bytes[2]; // of V, of K
    int64_t row;                          // of query 0
    int first;                            // of query 0, within its group: 0 unless a group is larger than a tile
    int n;                                // queries
} __attribute__((aligned(64))) tile;

// A head's K or V in a block of the cache, and the data to prefetch: `data` itself if there are so many queries that memory is
// not the bottleneck.
typedef struct cells {
    const void *data, *next;
} cells;

// block: two blocks of the cache: the current one, and the one to prefetch.
static inline cells tile_cells(const tile *t, bool is_k, const int32_t block[2]) {
    const char *cache = is_k ? t->a->k : t->a->v;
    const char *data = cache + (size_t)block[0] * t->block_bytes[is_k] + (size_t)t->head * t->head_bytes[is_k];
    const char *next = cache + (size_t)block[1] * t->block_bytes[is_k] + (size_t)t->next_head * t->head_bytes[is_k];
    return (cells){data, t->n <= FETCH_QUERIES ? next : data};
}

// Where K or V of a cell of the current block is, if single cells are read.
typedef struct cell_place {
    const char *head; // the block of the cache, of the tile's head
    int cell;         // within the block
} cell_place;

// Returns that of cell i; of a cell that no query sees that of the first one.
static inline cell_place tile_cell(const tile *t, bool is_k, int i) {
    const kin_attention *a = t->a;
    const int pos = kin_attention_position(a, t->row, t->at + (i < t->seen ? i : 0));
    const size_t block = (size_t)a->blocks[t->row][pos / CELLS];
    const char *cache = is_k ? a->k : a->v;
    return (cell_place){cache + block * t->block_bytes[is_k] + (size_t)t->head * t->head_bytes[is_k], pos % CELLS};
}

// True if the tile is a row that attends to chosen groups of cells. Such a group is in one block.
static inline bool tile_chooses_groups(const tile *t) { return t->a->chosen_groups && kin_attention_chooses(t->a, t->row); }

static inline bool sees_all(const tile *t, int i) { return t->see_end[i] - t->see_begin[i] == CELLS; }
static inline bool sees_none(const tile *t, int i) { return t->see_end[i] == t->see_begin[i]; }

// Sets the values of n queries from i on to zero.
static inline void clear_values(tile *t, int i, int n) {
    for (int d = i * t->a->kv.v_dim; d < (i + n) * t->a->kv.v_dim; d += 16) vf_store(t->values + d, vf_zero());
}

// The sixteen middle entries are for visible lanes. Lanes beyond `end` are hidden from 32 - end on, those before `begin` up to 16
// - begin.
#define TIMES_16(x) x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x
static const float unseen_score[48] = {TIMES_16(-INFINITY), TIMES_16(0), TIMES_16(-INFINITY)}; // to be added
static const float unseen_share[48] = {TIMES_16(0), TIMES_16(1), TIMES_16(0)};                 // to be multiplied

// Sets hidden cells among the 16 from c on to zero.
SIMD_INLINE vf only_seen(vf x, int c, int begin, int end) {
    if (c < begin) x = vf_mul(x, vf_load(unseen_share + 16 - (begin - c)));
    if (end < c + 16) x = vf_mul(x, vf_load(unseen_share + 32 - (end - c)));
    return x;
}

// Rescales the sums so far to a reference that has grown by -difference.
static inline void shrink(tile *t, int i, float difference) {
    int dim = t->a->kv.v_dim;
    vf factor = vf_exp2(vf_set1(difference));
    vf_store(t->sum[i], vf_mul(vf_load(t->sum[i]), factor));
    for (int d = 0; d < dim; d += 16) vf_store(t->values + i * dim + d, vf_mul(vf_load(t->values + i * dim + d), factor));
}

// Replaces the hidden ones of 16 scores by LOWEST, whatever they are.
static inline vf hide(float *p, const float *unseen) {
    vf seen = vf_max(vf_add(vf_load(p), vf_load(unseen)), vf_set1(LOWEST));
    vf_store(p, seen);
    return seen;
}

// Computes for n queries from i on, which attend to the cells [begin, end), lanes that contain the greatest score.
SIMD_INLINE void greatest_scores(tile *t, int i, int begin, int end, vf *most, const int n) {
    const int last = (end - 1) / 16 * 16;
    if (begin % 16) {
        for (int y = 0; y < n; y++) hide(t->p[i + y] + begin / 16 * 16, unseen_score + 16 - begin % 16);
    }
    UNROLL for (int y = 0; y < n; y++) {
        float *p = t->p[i + y] + last;
        most[y] = end % 16 ? hide(p, unseen_score + 32 - end % 16) : vf_load(p);
    }
    for (int c = begin / 16 * 16; c < last; c += 16) {
        UNROLL for (int y = 0; y < n; y++) most[y] = vf_max(most[y], vf_load(t->p[i + y] + c));
    }
}

// Does the same for four queries, of which the last ones may not exist. LOWEST if nothing is visible.
static inline void greatest_of_4(tile *t, int i, vf most[4]) {
    const int begin = t->see_begin[i], end = t->see_end[i];
    bool are_alike = i + 4 <= t->n;
    for (int y = 1; y < 4 && are_alike; y++) are_alike = t->see_begin[i + y] == begin && t->see_end[i + y] == end;
    if (are_alike && begin < end) return greatest_scores(t, i, begin, end, most, 4);
    for (int y = 0; y < 4; y++) {
        most[y] = vf_set1(LOWEST);
        if (i + y < t->n && !sees_none(t, i + y)) greatest_scores(t, i + y, t->see_begin[i + y], t->see_end[i + y], most + y, 1);
    }
}

// Scores hold 2 log2(e) x / c and become log2(e) c tanh(x / c), where tanh(a) = 1 - 2 / (e^2a + 1). NaN stays NaN.
static inline void cap_scores(tile *t) {
    const vf cap = vf_set1(t->a->softcap * LOG2_E), one = vf_set1(1), two = vf_set1(2), most = vf_set1(-120);
    for (int i = 0; i < t->n; i++) {
        for (int c = t->see_begin[i] / 16 * 16; c < t->see_end[i]; c += 16) {
            vf x = vf_load(t->p[i] + c), nothing = vf_mul(x, vf_zero());
            vf e = vf_exp2(vf_sub(vf_zero(), vf_max(vf_sub(vf_zero(), x), most)));
            vf_store(t->p[i] + c, vf_add(vf_mul(cap, vf_sub(one, vf_div(two, vf_add(e, one)))), nothing));
        }
    }
}

// Checks whether the references of all queries are still good. Four at a time, because each is a chain of dependent operations.
// greatest // [QUERIES]: the greatest scores, LOWEST if nothing is visible
static inline void raise_max(tile *t, float *greatest) {
    for (int i = 0; i < t->n; i += 4) {
        vf most[4];
        greatest_of_4(t, i, most);
        vf_greatest_4(most, greatest + i);
        if (t->is_first) {
            memcpy(t->max + i, greatest + i, 4 * sizeof *greatest);
            continue;
        }
        for (int y = i; y < i + 4 && y < t->n; y++) {
            if (greatest[y] <= t->max[y] + SLACK) continue;
            if (t->max[y] > LOWEST) shrink(t, y, t->max[y] - greatest[y]);
            t->max[y] = greatest[y];
        }
    }
}

// In attention_q8_0.c: round the tile's queries; then add the visible cells of a block. block: the current one, and the one to
// prefetch.
void SIMD_FN(kin_round_queries)(tile *t);
void SIMD_FN(kin_attend_q8_0)(tile *t, const int32_t block[2]);
