// Attention: softmax(scale q k) v over a KV cache in blocks, for tiles of queries that share K and V.
//
// K stands transposed in the cache, so that both products are chains over rows of 16-lane vectors: lanes are cells for q k and
// the chain runs over head_dim; lanes are head_dim for p v and the chain runs over cells. One function does both (chain). Where
// more than a few queries share a block, it is converted to f32 first, else on the way.
//
// The softmax is online: 64 cells at a time, with the greatest score so far; after a span, its sum and values are merged into the
// row's. Scores of cells that a query does not see are computed (lanes do not touch each other) and dropped before anything is
// done with them; values of such cells are not read.
#include "kernels/attention.h"
#include "kernels/panel.h"
#include "kernels/simd/backend.h"
#include "kernels/simd/simd.h"

enum {
    CELLS = KIN_KV_CELLS,
    MOST_DIM = 256,
    QUERIES = KIN_TILE_QUERIES,
    ROWS = 4,           // queries that a chain keeps in registers
    DIRECT_QUERIES = 8, // so many convert f16 on the way
    FETCH_QUERIES = 16, // so many are fast enough to wait for memory: the next block is fetched while they are computed
};

#define LOCALITY 3
static const float LOWEST = -3e38f; // below every score
// Scores are taken relative to the greatest one of the blocks before, as long as none is greater by more than this: exp(SLACK) is
// far from overflow, and a new reference would cost as much as the block's exponentials.
static const float SLACK = 8;
// Scores that are further below it count as this much below: e^-64 adds nothing to a sum, and its products with V are normal
// numbers.
static const float FLOOR = -64;

// ---- products

typedef enum source { FROM_F32, FROM_F16, N_SOURCES } source;

// out[i][j] += a[i][begin] b[begin][j] + a[i][begin + 1] b[begin + 1][j] + ... in this order, for n rows and 16 w columns.
typedef struct chain_args {
    float *out;       // [n][ldo]
    const float *a;   // [n][lda]
    const void *b;    // [end][ldb] of the source's type
    const void *next; // as b, what will be read after it: fetched meanwhile
    int ldo, lda, ldb;
    int begin, end;
    bool from_zero; // out is not read
} chain_args;

SIMD_INLINE void fetch(const void *p) { __builtin_prefetch(p, 0, LOCALITY); }

SIMD_INLINE vf load_from(const void *b, int at, const source from) {
    return from == FROM_F16 ? vf_load_f16((const uint16_t *)b + at) : vf_load((const float *)b + at);
}

// What is unrolled is unrolled early: gcc 12 keeps the sums of a loop that it unrolls later on the stack as well.
#define UNROLL _Pragma("GCC unroll 4")

SIMD_INLINE void chain(const chain_args *c, const source from, const int n, const int w) {
    vf sum[ROWS][SIMD_COLUMNS], b[SIMD_COLUMNS];
    UNROLL for (int i = 0; i < n; i++) {
        UNROLL for (int j = 0; j < w; j++) sum[i][j] = c->from_zero ? vf_zero() : vf_load(c->out + i * c->ldo + 16 * j);
    }
    for (int t = c->begin; t < c->end; t++) {
        if (from == FROM_F16) UNROLL for (int j = 0; j < w; j += 2) fetch((const uint16_t *)c->next + t * c->ldb + 16 * j);
        UNROLL for (int j = 0; j < w; j++) b[j] = load_from(c->b, t * c->ldb + 16 * j, from);
        UNROLL for (int i = 0; i < n; i++) {
            vf a = vf_set1(c->a[i * c->lda + t]);
            UNROLL for (int j = 0; j < w; j++) sum[i][j] = vf_add(sum[i][j], vf_mul(a, b[j]));
        }
    }
    UNROLL for (int i = 0; i < n; i++) { UNROLL for (int j = 0; j < w; j++) vf_store(c->out + i * c->ldo + 16 * j, sum[i][j]); }
}

typedef void (*chain_fn)(const chain_args *c);

// clang-format off
#define CHAIN(from, n, w) static void chain_##from##_##n##_##w(const chain_args *c) { chain(c, from, n, w); }
#define CHAINS(from, w) CHAIN(from, 1, w) CHAIN(from, 2, w) CHAIN(from, 3, w) CHAIN(from, 4, w)
#define NAMES(from, w) {chain_##from##_1_##w, chain_##from##_2_##w, chain_##from##_3_##w, chain_##from##_4_##w}
CHAINS(FROM_F32, 1) CHAINS(FROM_F16, 1)
#if SIMD_COLUMNS == 4
CHAINS(FROM_F32, 2) CHAINS(FROM_F16, 2) CHAINS(FROM_F32, 3) CHAINS(FROM_F16, 3) CHAINS(FROM_F32, 4) CHAINS(FROM_F16, 4)
static const chain_fn chains[N_SOURCES][SIMD_COLUMNS][ROWS] = {
    {NAMES(FROM_F32, 1), NAMES(FROM_F32, 2), NAMES(FROM_F32, 3), NAMES(FROM_F32, 4)},
    {NAMES(FROM_F16, 1), NAMES(FROM_F16, 2), NAMES(FROM_F16, 3), NAMES(FROM_F16, 4)},
};
#else
static const chain_fn chains[N_SOURCES][SIMD_COLUMNS][ROWS] = {{NAMES(FROM_F32, 1)}, {NAMES(FROM_F16, 1)}};
#endif
// clang-format on

// The same for n <= ROWS rows and any number of columns, a multiple of 16: in parts of nearly the same width.
static void chain_columns(chain_args c, source from, int n, int columns) {
    size_t element = from == FROM_F16 ? sizeof(uint16_t) : sizeof(float);
    int left = columns / 16, parts = (left + SIMD_COLUMNS - 1) / SIMD_COLUMNS;
    for (; parts > 0; parts--) {
        int w = (left + parts - 1) / parts;
        chains[from][w - 1][n - 1](&c);
        c.out += 16 * w;
        c.b = (const char *)c.b + 16 * (size_t)w * element;
        c.next = (const char *)c.next + 16 * (size_t)w * element;
        left -= w;
    }
}

// ---- a block's K or V of one head

// [rows][columns] of one head as the chain reads it.
typedef struct matrix {
    const void *data, *next; // next: of the block after this one
    source from;
} matrix;

static void widen_f16(const uint16_t *from, const uint16_t *next, int n, float *to) {
    for (int i = 0; i < n; i += 32) {
        fetch(next + i);
        vf_store(to + i, vf_load_f16(from + i));
        vf_store(to + i + 16, vf_load_f16(from + i + 16));
    }
}

// q8_0, K: [head_dim][CELLS]. Products of a scale (11 bits) and a byte are exact.
static void widen_k(const int8_t *q, const int8_t *next, int head_dim, float *to) {
    const uint16_t *scales = (const uint16_t *)(q + head_dim * CELLS);
    for (int at = 0; at < head_dim / 32 * CELLS * 2; at += 64) fetch(next + head_dim * CELLS + at);
    for (int begin = 0; begin < head_dim; begin += 32) {
        vf scale[4];
        for (int c = 0; c < 4; c++) scale[c] = vf_load_f16(scales + begin / 32 * CELLS + 16 * c);
        for (int d = begin * CELLS; d < (begin + 32) * CELLS; d += CELLS) {
            fetch(next + d);
            for (int c = 0; c < 4; c++) vf_store(to + d + 16 * c, vf_mul(scale[c], vf_from_vi(vi_load_i8(q + d + 16 * c))));
        }
    }
}

// q8_0, V: [CELLS][head_dim]
static void widen_v(const int8_t *q, const int8_t *next, int head_dim, float *to) {
    float scales[MOST_DIM / 32 * CELLS];
    widen_f16((const uint16_t *)(q + head_dim * CELLS), (const uint16_t *)(next + head_dim * CELLS), head_dim / 32 * CELLS,
              scales);
    for (int c = 0; c < CELLS; c++) {
        for (int d = 0; d < head_dim; d += 32) {
            vf scale = vf_set1(scales[d / 32 * CELLS + c]);
            int at = c * head_dim + d;
            fetch(next + at);
            vf_store(to + at, vf_mul(scale, vf_from_vi(vi_load_i8(q + at))));
            vf_store(to + at + 16, vf_mul(scale, vf_from_vi(vi_load_i8(q + at + 16))));
        }
    }
}

// ---- a tile of queries of one kv head

typedef struct tile {
    // First what is read in vectors, so that each begins on 64 bytes.
    float wide[MOST_DIM * CELLS];                 // K or V of a block
    float q[KIN_TILE_VALUES];                     // [n][head_dim], with the scale
    float values[KIN_TILE_VALUES];                // [n][head_dim] of this span
    float total[KIN_TILE_VALUES];                 // [n][head_dim] of the spans so far
    float sum[QUERIES][16];                       // of exp(score - max), lanes are cells
    float p[QUERIES][CELLS];                      // of the present block: scores, then exp(score - max)
    float max[QUERIES];                           // of the scores so far, in this span
    float total_max[QUERIES], total_sum[QUERIES]; // of the spans so far
    int begin[QUERIES], end[QUERIES];             // positions that a query sees
    int see_begin[QUERIES], see_end[QUERIES];     // cells of the present block that it sees: none if they are equal
    int low, high;                                // positions that any of them sees
    const kin_attention *a;
    int head, group; // kv head; queries of one row that share it
    int64_t row;     // of query 0
    int first;       // of query 0, within its group: 0 but where a group is larger than a tile
    int n;           // queries
} __attribute__((aligned(64))) tile;

static int64_t query_row(const tile *t, int i) { return t->row + (t->first + i) / t->group; }
static int query_head(const tile *t, int i) { return t->head * t->group + (t->first + i) % t->group; }

static void load_queries(tile *t) {
    const kin_attention *a = t->a;
    int dim = a->kv.head_dim;
    t->low = INT32_MAX;
    t->high = 0;
    for (int i = 0; i < t->n; i++) {
        int64_t row = query_row(t, i);
        const float *q = a->q + row * a->ldq + (int64_t)query_head(t, i) * dim;
        for (int d = 0; d < dim; d += 16) vf_store(t->q + i * dim + d, vf_mul(vf_load(q + d), vf_set1(a->scale)));
        t->begin[i] = a->first_cells ? a->first_cells[row] : 0;
        t->end[i] = a->n_cells[row];
        if (t->begin[i] >= t->end[i]) continue;
        t->low = t->begin[i] < t->low ? t->begin[i] : t->low;
        t->high = t->end[i] > t->high ? t->end[i] : t->high;
    }
}

// Of two blocks of the cache, the second one after the first.
static matrix block_of(tile *t, bool is_k, const int32_t block[2]) {
    const kin_kv_layout *kv = &t->a->kv;
    size_t bytes = kin_kv_block_bytes(kv), head_bytes = bytes / (size_t)kv->n_head_kv;
    const char *cache = (const char *)(is_k ? t->a->k : t->a->v) + (size_t)t->head * head_bytes;
    const void *data = cache + (size_t)block[0] * bytes, *next = t->n <= FETCH_QUERIES ? cache + (size_t)block[1] * bytes : data;
    if (kv->type == KIN_TYPE_F16 && t->n <= DIRECT_QUERIES) return (matrix){data, next, FROM_F16};
    if (kv->type == KIN_TYPE_F16)
        widen_f16(data, next, kv->head_dim * CELLS, t->wide);
    else if (is_k)
        widen_k(data, next, kv->head_dim, t->wide);
    else
        widen_v(data, next, kv->head_dim, t->wide);
    return (matrix){t->wide, t->wide, FROM_F32};
}

// Which of the 64 positions from `at` on each query sees.
static void see(tile *t, int at) {
    for (int i = 0; i < t->n; i++) {
        int begin = t->begin[i] - at, end = t->end[i] - at;
        t->see_begin[i] = begin < 0 ? 0 : begin;
        t->see_end[i] = end > CELLS ? CELLS : end;
        if (t->see_end[i] <= t->see_begin[i]) t->see_begin[i] = t->see_end[i] = 0;
    }
}

// Scores of n <= ROWS queries from i on, of as many vectors of cells as they see.
static void score(tile *t, matrix k, int i, int n) {
    int dim = t->a->kv.head_dim, end = 0;
    for (int j = i; j < i + n; j++) end = t->see_end[j] > end ? t->see_end[j] : end;
    if (end == 0) return;
    chain_args args = {t->p[i],    t->q + i * dim, k.data,     k.next,           .ldo = CELLS,
                       .lda = dim, .ldb = CELLS,   .end = dim, .from_zero = true};
    chain_columns(args, k.from, n, (end + 15) / 16 * 16);
}

static void fill_unseen(const tile *t, int i, float *p, float x) {
    for (int c = 0; c < t->see_begin[i]; c++) p[c] = x;
    for (int c = t->see_end[i]; c < CELLS; c++) p[c] = x;
}

// What was summed so far is taken relative to a reference that has grown by -difference.
static void shrink(tile *t, int i, float difference) {
    int dim = t->a->kv.head_dim;
    vf factor = vf_exp(vf_set1(difference));
    vf_store(t->sum[i], vf_mul(vf_load(t->sum[i]), factor));
    for (int d = 0; d < dim; d += 16) vf_store(t->values + i * dim + d, vf_mul(vf_load(t->values + i * dim + d), factor));
}

static bool sees_all(const tile *t, int i) { return t->see_end[i] - t->see_begin[i] == CELLS; }

// Looks at query i's scores: is its reference still good?
static void raise_max(tile *t, int i) {
    float *p = t->p[i];
    if (!sees_all(t, i)) fill_unseen(t, i, p, LOWEST);
    float max = vf_greatest(vf_max(vf_max(vf_load(p), vf_load(p + 16)), vf_max(vf_load(p + 32), vf_load(p + 48))));
    if (max <= t->max[i] + SLACK) return;
    if (t->max[i] > LOWEST) shrink(t, i, t->max[i] - max);
    t->max[i] = max;
}

// Query i's scores -> exp(score - max), 0 where it does not see.
static void soften(tile *t, int i) {
    float *p = t->p[i];
    vf x[4], sum = vf_load(t->sum[i]);
    for (int c = 0; c < 4; c++) x[c] = vf_max(vf_sub(vf_load(p + 16 * c), vf_set1(t->max[i])), vf_set1(FLOOR));
    for (int c = 0; c < 4; c += SIMD_COLUMNS) vf_exp_each(x + c, SIMD_COLUMNS);
    for (int c = 0; c < 4; c++) vf_store(p + 16 * c, x[c]);
    if (!sees_all(t, i)) {
        fill_unseen(t, i, p, 0);
        for (int c = 0; c < 4; c++) x[c] = vf_load(p + 16 * c);
    }
    for (int c = 0; c < 4; c++) sum = vf_add(sum, x[c]);
    vf_store(t->sum[i], sum);
}

static void add_values(tile *t, matrix v, int i, int n, int begin, int end) {
    int dim = t->a->kv.head_dim;
    if (begin >= end) return;
    chain_args args = {t->values + i * dim, t->p[i],    v.data,         v.next,    .ldo = dim,
                       .lda = CELLS,        .ldb = dim, .begin = begin, .end = end};
    chain_columns(args, v.from, n, dim);
}

// n queries from i on: the cells that all of them see together, those before and after them one query at a time.
static void add_seen(tile *t, matrix v, int i, int n) {
    int begin = 0, end = CELLS;
    for (int j = i; j < i + n; j++) {
        begin = t->see_begin[j] > begin ? t->see_begin[j] : begin;
        end = t->see_end[j] < end ? t->see_end[j] : end;
    }
    if (begin > end) begin = end = 0;
    for (int j = i; j < i + n; j++) add_values(t, v, j, 1, t->see_begin[j], begin < t->see_end[j] ? begin : t->see_end[j]);
    add_values(t, v, i, n, begin, end);
    for (int j = i; j < i + n; j++) add_values(t, v, j, 1, end > t->see_begin[j] ? end : t->see_begin[j], t->see_end[j]);
}

// Phases, so that the chains of operations of one query run beside those of others.
static void run_block(tile *t, const int32_t block[2]) {
    matrix k = block_of(t, true, block);
    for (int i = 0; i < t->n; i += ROWS) score(t, k, i, t->n - i < ROWS ? t->n - i : ROWS);
    for (int i = 0; i < t->n; i++)
        if (t->see_begin[i] < t->see_end[i]) raise_max(t, i);
    for (int i = 0; i < t->n; i++)
        if (t->see_begin[i] < t->see_end[i]) soften(t, i);
    matrix v = block_of(t, false, block);
    for (int i = 0; i < t->n; i += ROWS) add_seen(t, v, i, t->n - i < ROWS ? t->n - i : ROWS);
}

static void begin_span(tile *t) {
    for (int i = 0; i < t->n; i++) {
        t->max[i] = LOWEST;
        vf_store(t->sum[i], vf_zero());
    }
    for (int d = 0; d < t->n * t->a->kv.head_dim; d += 16) vf_store(t->values + d, vf_zero());
}

// The positions [begin, end) of a span, of which some query sees the first and the last.
static void run_span(tile *t, int begin, int end) {
    const int32_t *blocks = t->a->blocks[t->row];
    begin_span(t);
    for (int b = begin / CELLS; b * CELLS < end; b++) {
        see(t, b * CELLS);
        run_block(t, (const int32_t[2]){blocks[b], (b + 1) * CELLS < t->high ? blocks[b + 1] : blocks[b]});
    }
}

// ---- spans

// Merges a span's (max, sum, values) into those of the spans before it. A span in which nothing was seen has the sum 0.
static void merge(int dim, float *max, float *sum, float *values, float span_max, float span_sum, const float *span) {
    if (span_sum == 0) return;
    if (*sum == 0) {
        for (int d = 0; d < dim; d += 16) vf_store(values + d, vf_load(span + d));
        *sum = span_sum;
        *max = span_max;
        return;
    }
    bool is_greater = span_max > *max;
    float factor[16];
    vf_store(factor, vf_exp(vf_set1(is_greater ? *max - span_max : span_max - *max)));
    vf old = vf_set1(is_greater ? factor[0] : 1), new = vf_set1(is_greater ? 1 : factor[0]);
    for (int d = 0; d < dim; d += 16)
        vf_store(values + d, vf_add(vf_mul(vf_load(values + d), old), vf_mul(vf_load(span + d), new)));
    vf_store(factor, vf_add(vf_mul(vf_set1(*sum), old), vf_mul(vf_set1(span_sum), new)));
    *sum = factor[0];
    *max = is_greater ? span_max : *max;
}

// A row that sees nothing has no values.
static void finish(int dim, float sum, const float *values, float *out) {
    for (int d = 0; d < dim; d += 16) vf_store(out + d, sum > 0 ? vf_div(vf_load(values + d), vf_set1(sum)) : vf_zero());
}

static float *partial_of(const kin_attention *a, int64_t row, int head, int span) {
    return a->partial + ((row * a->n_head + head) * a->n_spans + span) * kin_attention_partial_floats(&a->kv);
}

static void store_span(tile *t, int span) {
    int dim = t->a->kv.head_dim;
    for (int i = 0; i < t->n; i++) {
        float *to = partial_of(t->a, query_row(t, i), query_head(t, i), span);
        to[KIN_PARTIAL_MAX] = t->max[i];
        to[KIN_PARTIAL_SUM] = vf_sum(vf_load(t->sum[i]));
        for (int d = 0; d < dim; d += 16) vf_store(to + KIN_PARTIAL_VALUES + d, vf_load(t->values + i * dim + d));
    }
}

static void run_one_span(tile *t, int span) {
    int begin = span * KIN_SPAN_CELLS, end = begin + KIN_SPAN_CELLS;
    begin = begin > t->low ? begin : t->low;
    end = end < t->high ? end : t->high;
    run_span(t, begin, end);
    store_span(t, span);
}

static void run_all_spans(tile *t) {
    const kin_attention *a = t->a;
    int dim = a->kv.head_dim;
    for (int i = 0; i < t->n; i++) {
        t->total_max[i] = LOWEST;
        t->total_sum[i] = 0;
    }
    for (int begin = t->low; begin < t->high;) {
        int next = (begin / KIN_SPAN_CELLS + 1) * KIN_SPAN_CELLS, end = next < t->high ? next : t->high;
        run_span(t, begin, end);
        for (int i = 0; i < t->n; i++) {
            float sum = vf_sum(vf_load(t->sum[i]));
            merge(dim, &t->total_max[i], &t->total_sum[i], t->total + i * dim, t->max[i], sum, t->values + i * dim);
        }
        begin = next;
    }
    for (int i = 0; i < t->n; i++) {
        float *out = a->out + query_row(t, i) * a->ldo + (int64_t)query_head(t, i) * dim;
        finish(dim, t->total_sum[i], t->total + i * dim, out);
    }
}

// ---- tasks

// Rows [begin, end) that stand together, for a kv head and one span, or all of them (a->n_spans is 1).
static void run_task(const kin_attention *a, int64_t begin, int64_t end, int head, int span) {
    tile t; // not zeroed: it is large
    t.a = a;
    t.head = head;
    t.group = a->n_head / a->kv.n_head_kv;
    t.row = begin;
    int n = (int)(end - begin) * t.group, most = kin_attention_queries(a);
    for (t.first = 0; t.first < n; t.first += most) {
        t.n = n - t.first < most ? n - t.first : most;
        load_queries(&t);
        if (a->n_spans == 1)
            run_all_spans(&t);
        else
            run_one_span(&t, span);
    }
}

void SIMD_FN(kin_attend)(const kin_attention *a, int64_t begin, int64_t end) {
    int64_t task = 0;
    for (int head = 0; head < a->kv.n_head_kv; head++) {
        for (int64_t row = 0, next; row < a->n_rows && task < end; row = next) {
            next = kin_attention_tile_end(a, row);
            for (int span = 0; span < a->n_spans; span++, task++)
                if (task >= begin && task < end) run_task(a, row, next, head, span);
        }
    }
}

void SIMD_FN(kin_attend_merge)(const kin_attention *a, int64_t begin, int64_t end) {
    int dim = a->kv.head_dim;
    if (a->n_spans == 1) return;
    for (int64_t row = begin; row < end; row++) {
        for (int head = 0; head < a->n_head; head++) {
            float max = LOWEST, sum = 0, values[MOST_DIM];
            for (int span = 0; span < a->n_spans; span++) {
                const float *p = partial_of(a, row, head, span);
                merge(dim, &max, &sum, values, p[KIN_PARTIAL_MAX], p[KIN_PARTIAL_SUM], p + KIN_PARTIAL_VALUES);
            }
            finish(dim, sum, values, a->out + row * a->ldo + (int64_t)head * dim);
        }
    }
}
