// Attention: softmax(scale q k) v over a KV cache in blocks, for tiles of queries that share K and V.
//
// K is stored transposed, so that both products are chains over rows of 16-lane vectors: for q k lanes are cells and the chain
// runs over k_dim; for p v lanes are v_dim and the chain runs over cells. One function does both (chain). If more than a
// few queries share a block, it is first converted to f32; otherwise it is converted while multiplying.
//
// The softmax is online: it processes 64 cells at a time with the greatest score so far; after a span, its sum and values are
// merged into the row's. Scores of hidden cells are computed (lanes are independent) and dropped before they are used; values of
// such cells are not read.
#include "kernels/simd/tile.h"

enum {
    ROWS = 4, // queries that a chain keeps in registers: one group
    GROUPS = QUERIES / ROWS,
    DIRECT_F16 = 8,  // up to this many queries convert f16 while multiplying
    FETCH_AHEAD = 2, // in blocks: a Q8_0 block is computed in less time than memory takes for the next
};

// Scores are base-2 logarithms: queries are multiplied by log2(e).

// ---- products

typedef enum source { FROM_F32, FROM_F16, N_SOURCES } source;
static const int element_bytes[] = {[FROM_F32] = 4, [FROM_F16] = 2};

typedef struct range {
    int begin, end;
} range;

// out[i][j] += a[i][begin] b[begin][j] + a[i][begin + 1] b[begin + 1][j] + ... in this order, for consecutive groups of n rows,
// and 16 w columns.
typedef struct chain_args {
    float *out;       // [groups * n][ldo]
    const float *a;   // [groups * n][lda]
    const void *b;    // [end][ldb] of the source's type
    const void *next; // like b: the data to be read after it, prefetched meanwhile
    int ldo, lda, ldb;
    int groups;
    const range *of; // [groups]
    bool from_zero;  // out is not read
} chain_args;

#ifdef SIMD_HALVES

// Computes 8 columns, then the other 8: w is 1.
SIMD_INLINE vh load_from(const void *b, int at, const source from) {
    return from == FROM_F32 ? vh_load((const float *)b + at) : vh_load_f16_normal((const uint16_t *)b + at);
}

SIMD_INLINE void chain_group(const chain_args *c, float *out, const float *a, const range of, const source from, const int n,
                             const int w) {
    const int ldo = c->ldo, lda = c->lda, ldb = c->ldb, end = of.end;
    vh sum[ROWS];
    (void)w;
    for (int half = 0; half < 16; half += 8) {
        UNROLL for (int i = 0; i < n; i++) sum[i] = c->from_zero ? vh_zero() : vh_load(out + i * ldo + half);
        for (int t = of.begin; t < end; t++) {
            vh b = load_from(c->b, t * ldb + half, from);
            UNROLL for (int i = 0; i < n; i++) sum[i] = vh_add_times(sum[i], a + i * lda + t, b);
        }
        UNROLL for (int i = 0; i < n; i++) vh_store(out + i * ldo + half, sum[i]);
    }
}

#else

SIMD_INLINE vf load_from(const void *b, int at, const source from) {
    return from == FROM_F32 ? vf_load((const float *)b + at) : vf_load_f16((const uint16_t *)b + at);
}

SIMD_INLINE void chain_group(const chain_args *c, float *out, const float *a, const range of, const source from, const int n,
                             const int w) {
    const int end = of.end;
    const int64_t ldo = c->ldo, lda = c->lda, ldb = c->ldb;
    const char *b = (const char *)c->b + of.begin * ldb * element_bytes[from], *next = (const char *)c->next + of.begin * ldb * 2;
    vf sum[ROWS][SIMD_COLUMNS];
    const float *row = out;
    UNROLL for (int i = 0; i < n; i++, row += ldo) {
        UNROLL for (int j = 0; j < w; j++) sum[i][j] = c->from_zero ? vf_zero() : vf_load(row + 16 * j);
    }
    for (int t = of.begin; t < end; t++) {
        if (from == FROM_F16) UNROLL for (int j = 0; j < w; j += 2) fetch(next + 32 * j);
        UNROLL for (int j = 0; j < w; j++) {
            vf x = load_from(b, 16 * j, from);
            UNROLL for (int i = 0; i < n; i++) sum[i][j] = vf_add(sum[i][j], vf_times(x, a + i * lda + t));
        }
        b += ldb * element_bytes[from];
        next += ldb * 2;
    }
    UNROLL for (int i = 0; i < n; i++, out += ldo) { UNROLL for (int j = 0; j < w; j++) vf_store(out + 16 * j, sum[i][j]); }
}

#endif

SIMD_INLINE void chain(const chain_args *c, const source from, const int n, const int w) {
    float *out = c->out;
    const float *a = c->a;
    for (int g = 0; g < c->groups; g++, out += n * c->ldo, a += n * c->lda) chain_group(c, out, a, c->of[g], from, n, w);
}

typedef void (*chain_fn)(const chain_args *c);

// clang-format off
#define CHAIN(from, n, w) static void chain_##from##_##n##_##w(const chain_args *c) { chain(c, from, n, w); }
#define CHAINS(from, w) CHAIN(from, 1, w) CHAIN(from, 2, w) CHAIN(from, 3, w) CHAIN(from, 4, w)
#define NAMES(from, w) {chain_##from##_1_##w, chain_##from##_2_##w, chain_##from##_3_##w, chain_##from##_4_##w}
#if SIMD_COLUMNS == 4
#define CHAINS_FROM(from) CHAINS(from, 1) CHAINS(from, 2) CHAINS(from, 3) CHAINS(from, 4)
#define NAMES_FROM(from) {NAMES(from, 1), NAMES(from, 2), NAMES(from, 3), NAMES(from, 4)}
#else
#define CHAINS_FROM(from) CHAINS(from, 1)
#define NAMES_FROM(from) {NAMES(from, 1)}
#endif
CHAINS_FROM(FROM_F32) CHAINS_FROM(FROM_F16)
static const chain_fn chains[N_SOURCES][SIMD_COLUMNS][ROWS] = {
    NAMES_FROM(FROM_F32), NAMES_FROM(FROM_F16),
};
// clang-format on

// Does the same for n rows and any number of columns that is a multiple of 16, in parts of nearly equal width. Modifies c.
static void chain_all(chain_args *c, source from, int n, int columns) {
    const float *a = c->a;
    const range *of = c->of;
    float *out = c->out;
    for (int left = columns / 16, parts = (left + SIMD_COLUMNS - 1) / SIMD_COLUMNS; parts > 0; parts--) {
        int w = (left + parts - 1) / parts;
        c->out = out;
        c->a = a;
        c->of = of;
        c->groups = n / ROWS;
        if (c->groups) chains[from][w - 1][ROWS - 1](c);
        c->out += c->groups * ROWS * c->ldo;
        c->a += c->groups * ROWS * c->lda;
        c->of += c->groups;
        c->groups = 1;
        if (n % ROWS) chains[from][w - 1][n % ROWS - 1](c);
        out += 16 * w;
        c->b = (const char *)c->b + 16 * w * element_bytes[from];
        c->next = (const char *)c->next + 16 * w * element_bytes[from];
        left -= w;
    }
}

// ---- a block's K or V of one head

// [rows][columns] of one head, as input of the chain.
typedef struct matrix {
    const void *data, *next; // next: in the block to be prefetched
    source from;
} matrix;

// f16 [rows][ld] -> f32 [rows][ld], only the first `columns` of each row.
static void widen_f16(const uint16_t *from, const uint16_t *next, int rows, int columns, int ld, float *to) {
    for (int row = 0; row < rows; row++, from += ld, next += ld, to += ld) {
        for (int i = 0; i < columns; i += 32) fetch(next + i);
        for (int i = 0; i < columns; i += 16) vf_store(to + i, vf_load_f16_normal(from + i));
    }
}

// ---- a tile of queries of one kv head

static int64_t query_row(const tile *t, int i) { return t->row + (t->first + i) / t->group; }
static int query_head(const tile *t, int i) { return t->head * t->group + (t->first + i) % t->group; }

static void load_queries(tile *t) {
    const kin_attention *a = t->a;
    int dim = a->kv.k_dim;
    vf scale = vf_set1(a->softcap > 0 ? a->scale * 2 / a->softcap * LOG2_E : a->scale * LOG2_E);
    t->low = INT32_MAX;
    t->high = 0;
    int64_t row = query_row(t, 0);
    for (int i = 0, head = t->first % t->group; i < t->n; head = 0, row++) {
        const float *q = a->q + row * a->ldq + (int64_t)(t->head * t->group + head) * dim;
        const int begin = a->first_cells ? a->first_cells[row] : 0, end = kin_attention_end(a, row);
        const int last = t->n - i < t->group - head ? t->n : i + t->group - head;
        for (int d = 0; d < (last - i) * dim; d += 16) vf_store(t->q + i * dim + d, vf_mul(vf_load(q + d), scale));
        for (; i < last; i++) {
            t->begin[i] = begin;
            t->end[i] = end;
        }
        if (begin >= end) continue;
        t->low = begin < t->low ? begin : t->low;
        t->high = end > t->high ? end : t->high;
    }
    if (a->kv.type == KIN_TYPE_Q8_0) SIMD_FN(kin_round_queries)(t);
}

typedef uint16_t u16x8 __attribute__((vector_size(16)));

// Turns 8 rows of 8 numbers into columns: to // u16 [8][16], of which 8 are written. Changes a.
static inline void turn_rows(u16x8 a[8], uint16_t *to) {
    u16x8 b[8];
    for (int step = 0; step < 3; step++) { // each interleaves row i with row i + 4
        for (int i = 0; i < 4; i++) {
            b[2 * i] = __builtin_shufflevector(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        memcpy(a, b, sizeof b);
    }
    for (int i = 0; i < 8; i++) memcpy(to + 16 * i, &a[i], sizeof a[i]);
}

// The same for from // u16 [8][ld]
static inline void turn_8(const uint16_t *from, int ld, uint16_t *to) {
    u16x8 a[8];
    for (int i = 0; i < 8; i++) memcpy(&a[i], from + i * ld, sizeof a[i]);
    turn_rows(a, to);
}

// Makes V of K: f16 [columns][CELLS] -> f32 [cells][columns], cells rounded up to a multiple of 8.
static void turn_f16(const uint16_t *from, int cells, int columns, float *to) {
    uint16_t turned[CELLS][16];
    for (int d = 0; d < columns; d += 16, from += 16 * CELLS) {
        for (int c = 0; c < cells; c += 8) {
            turn_8(from + c, CELLS, turned[c]);
            turn_8(from + 8 * CELLS + c, CELLS, turned[c] + 8);
        }
        for (int c = 0; c < cells; c++) vf_store(to + c * columns + d, vf_load_f16_normal(turned[c]));
    }
}

// Makes K of single cells: -> f32 [k_dim][CELLS], of as many cells as are seen, rounded up to a multiple of 16.
static void turn_cells(const tile *t, const uint16_t *const *cell, float *to) {
    uint16_t turned[8][16];
    for (int c = 0; c < t->seen; c += 16) {
        for (int d = 0; d < t->a->kv.k_dim; d += 8) {
            for (int half = 0; half < 16; half += 8) {
                u16x8 a[8];
                for (int i = 0; i < 8; i++) memcpy(&a[i], cell[c + half + i] + d, sizeof a[i]);
                turn_rows(a, turned[0] + half);
            }
            for (int i = 0; i < 8; i++) vf_store(to + (d + i) * CELLS + c, vf_load_f16_normal(turned[i]));
        }
    }
}

// Makes K or V of single cells. V // f32 [cells][v_dim]
static matrix gather(tile *t, bool is_k) {
    const int k_dim = t->a->kv.k_dim, v_dim = t->a->kv.v_dim;
    const uint16_t *cell[CELLS];
    for (int i = 0; i < CELLS; i++) {
        const cell_place at = tile_cell(t, true, i);
        cell[i] = (const uint16_t *)at.head + at.cell * k_dim;
    }
    if (is_k) turn_cells(t, cell, t->wide);
    for (int c = 0; !is_k && c < t->seen; c++)
        for (int d = 0; d < v_dim; d += 16) vf_store(t->wide + c * v_dim + d, vf_load_f16_normal(cell[c] + d));
    return (matrix){t->wide, t->wide, FROM_F32};
}

enum { GROUP = KIN_GROUP_CELLS };

// Makes K of groups of cells: -> f32 [k_dim][CELLS], of as many cells as are seen, rounded up to a multiple of 16.
static void join_keys(const tile *t, float *to) {
    const int cells = (t->seen + 15) / 16 * 16;
    const uint16_t *group[CELLS / GROUP];
    uint16_t joined[16][CELLS];
    for (int c = 0; c < cells; c += GROUP) {
        const cell_place at = tile_cell(t, true, c);
        group[c / GROUP] = (const uint16_t *)at.head + at.cell;
    }
    for (int d = 0; d < t->a->kv.k_dim; d += 16) {
        for (int c = 0; c < cells; c += GROUP)
            for (int i = 0; i < 16; i++) memcpy(joined[i] + c, group[c / GROUP] + (d + i) * CELLS, GROUP * sizeof(uint16_t));
        for (int i = 0; i < 16; i++)
            for (int c = 0; c < cells; c += 16) vf_store(to + (d + i) * CELLS + c, vf_load_f16_normal(joined[i] + c));
    }
}

// Makes V of them: -> f32 [cells][v_dim]
static void join_values(const tile *t, float *to) {
    const int dim = t->a->kv.v_dim;
    for (int c = 0; c < t->seen; c += GROUP) {
        const cell_place at = tile_cell(t, false, c);
        const uint16_t *from = (const uint16_t *)at.head + at.cell * dim;
        const int n = (t->seen - c < GROUP ? t->seen - c : GROUP) * dim;
        for (int d = 0; d < n; d += 16) vf_store(to + c * dim + d, vf_load_f16_normal(from + d));
    }
}

static matrix join(tile *t, bool is_k) {
    if (is_k)
        join_keys(t, t->wide);
    else
        join_values(t, t->wide);
    return (matrix){t->wide, t->wide, FROM_F32};
}

// block: two blocks of the cache: the current one, and the one to prefetch.
static matrix block_of(tile *t, bool is_k, const int32_t block[2]) {
    const kin_kv_layout *kv = &t->a->kv;
    const bool turns = !is_k && kv->v_in_k;
    if (kv->by_cell) return gather(t, is_k);
    if (tile_chooses_groups(t)) return join(t, is_k);
    const cells b = tile_cells(t, is_k || turns, block);
    if (turns) {
        turn_f16(b.data, t->seen, kv->v_dim, t->wide);
        return (matrix){t->wide, t->wide, FROM_F32};
    }
    if (t->n <= DIRECT_F16) return (matrix){b.data, b.next, FROM_F16};
    if (is_k)
        widen_f16(b.data, b.next, kv->k_dim, (t->seen + 15) / 16 * 16, CELLS, t->wide);
    else
        widen_f16(b.data, b.next, t->seen, kv->v_dim, kv->v_dim, t->wide);
    return (matrix){t->wide, t->wide, FROM_F32};
}

// Determines which of the 64 positions from `at` on each query attends to.
static void see(tile *t, int at) {
    t->at = at;
    t->seen = 0;
    for (int i = 0; i < t->n; i++) {
        int begin = t->begin[i] - at, end = t->end[i] - at;
        t->see_begin[i] = begin < 0 ? 0 : begin;
        t->see_end[i] = end > CELLS ? CELLS : end;
        if (t->see_end[i] <= t->see_begin[i]) t->see_begin[i] = t->see_end[i] = 0;
        t->seen = t->see_end[i] > t->seen ? t->see_end[i] : t->seen;
    }
}

// Computes the scores of n queries from i on, for this many cells.
static void score(tile *t, const matrix *k, int i, int n, int cells) {
    const int dim = t->a->kv.k_dim;
    range of[GROUPS];
    for (int g = 0; g < GROUPS; g++) of[g] = (range){0, dim};
    chain_args args = {.out = t->p[i],
                       .a = t->q + i * dim,
                       .b = k->data,
                       .next = k->next,
                       .ldo = CELLS,
                       .lda = dim,
                       .ldb = CELLS,
                       .of = of,
                       .from_zero = true};
    chain_all(&args, k->from, n, cells);
}

#ifdef SIMD_TAIL_ROWS

enum { TAIL = 8 }; // cells

SIMD_INLINE void score_tail_of(const float *q, const float *k, int dim, float *p, const int n) {
    vh sum[SIMD_TAIL_ROWS];
    _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) sum[i] = vh_zero();
    for (int d = 0; d < dim; d++) {
        vh b = vh_load(k + d * CELLS);
        _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) sum[i] = vh_add_times(sum[i], q + i * dim + d, b);
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) vf_store(p + i * CELLS, vf_from_vh(sum[i]));
}

// Computes the scores of n queries from i on, for the 8 cells from `cell` on, and zeros for 8 more.
static void score_tail(tile *t, const matrix *k, int i, int n, int cell) {
    const int dim = t->a->kv.k_dim;
    const float *cells = (const float *)k->data + cell;
    for (; n >= SIMD_TAIL_ROWS; n -= SIMD_TAIL_ROWS, i += SIMD_TAIL_ROWS)
        score_tail_of(t->q + i * dim, cells, dim, t->p[i] + cell, SIMD_TAIL_ROWS);
    for (; n >= ROWS; n -= ROWS, i += ROWS) score_tail_of(t->q + i * dim, cells, dim, t->p[i] + cell, ROWS);
    for (; n > 0; n--, i++) score_tail_of(t->q + i * dim, cells, dim, t->p[i] + cell, 1);
}

#else

enum { TAIL = 16 }; // no tail
static void score_tail(tile *t, const matrix *k, int i, int n, int cell) { (void)t, (void)k, (void)i, (void)n, (void)cell; }

#endif

// Computes the scores of all queries, for as many vectors of cells as each needs.
static void score_all(tile *t, const matrix *k) {
    const int step = k->from == FROM_F32 ? TAIL : 16;
    for (int i = 0, next; i < t->n; i = next) {
        const int parts = (t->see_end[i] + step - 1) / step, cells = parts * step / 16 * 16;
        for (next = i + 1; next < t->n && (t->see_end[next] + step - 1) / step == parts;) next++;
        if (cells) score(t, k, i, next - i, cells);
        if (cells < parts * step) score_tail(t, k, i, next - i, cells);
    }
}

// Turns the scores of n queries from i on into 2^(score - max), for the vectors [begin, end) of cells. Hidden cells add 2^FLOOR
// to the sum, which changes no bit of it.
SIMD_INLINE void soften(tile *t, int i, int begin, int end, const int n) {
    vf max[SIMD_COLUMNS], sum[SIMD_COLUMNS], x[SIMD_COLUMNS];
    UNROLL for (int y = 0; y < n; y++) {
        max[y] = vf_set1(t->max[i + y]);
        sum[y] = vf_load(t->sum[i + y]);
    }
    for (int c = 16 * begin; c < 16 * end; c += 16) {
        UNROLL for (int y = 0; y < n; y++) x[y] = vf_sub(vf_load(t->p[i + y] + c), max[y]);
        vf_exp2_each(x, n, FLOOR);
        UNROLL for (int y = 0; y < n; y++) {
            vf_store(t->p[i + y] + c, x[y]);
            sum[y] = vf_add(sum[y], x[y]);
        }
    }
    UNROLL for (int y = 0; y < n; y++) vf_store(t->sum[i + y], sum[y]);
}

// The same for all queries, as many at a time as need the same vectors.
static void soften_all(tile *t) {
    for (int i = 0, n; i < t->n; i += n) {
        const int begin = t->see_begin[i] / 16, end = (t->see_end[i] + 15) / 16;
        for (n = 1; n < SIMD_COLUMNS && i + n < t->n; n++) {
            if (t->see_begin[i + n] / 16 != begin || (t->see_end[i + n] + 15) / 16 != end) break;
        }
        if (n == SIMD_COLUMNS) {
            soften(t, i, begin, end, SIMD_COLUMNS);
        } else {
            n = 1;
            soften(t, i, begin, end, 1);
        }
    }
}

// Adds the values of n queries from i on, for the cells that each group attends to.
static void add_values(tile *t, const matrix *v, int i, int n, const range *of, bool from_zero) {
    int dim = t->a->kv.v_dim;
    chain_args args = {.out = t->values + i * dim,
                       .a = t->p[i],
                       .b = v->data,
                       .next = v->next,
                       .ldo = dim,
                       .lda = CELLS,
                       .ldb = dim,
                       .of = of,
                       .from_zero = from_zero};
    chain_all(&args, v->from, n, dim);
}

// Returns the cells that all queries of a group attend to; empty if they have none in common.
static range common_cells(const tile *t, int group) {
    range of = {0, CELLS};
    for (int i = group * ROWS; i < group * ROWS + ROWS && i < t->n; i++) {
        of.begin = t->see_begin[i] > of.begin ? t->see_begin[i] : of.begin;
        of.end = t->see_end[i] < of.end ? t->see_end[i] : of.end;
    }
    return of.begin < of.end ? of : (range){0, 0};
}

static void add_cells(tile *t, const matrix *v, int i, int begin, int end) {
    if (begin < end) add_values(t, v, i, 1, &(range){begin, end}, false);
}

// Adds the values of all queries: the cells common to a group together, those before and after them one query at a time.
static void add_all(tile *t, const matrix *v) {
    range of[GROUPS];
    bool some_before = false;
    for (int i = 0; i < t->n; i++) {
        if (i % ROWS == 0) of[i / ROWS] = common_cells(t, i / ROWS);
        some_before |= t->see_begin[i] < of[i / ROWS].begin;
    }
    if (some_before && t->is_first) clear_values(t, 0, t->n);
    for (int i = 0; i < t->n && some_before; i++) {
        const int end = t->see_end[i], first = of[i / ROWS].begin;
        add_cells(t, v, i, t->see_begin[i], first < end ? first : end);
    }
    add_values(t, v, 0, t->n, of, t->is_first && !some_before);
    for (int i = 0; i < t->n; i++) {
        const int begin = t->see_begin[i], last = of[i / ROWS].end;
        add_cells(t, v, i, last > begin ? last : begin, t->see_end[i]);
    }
}

// In phases, so that the dependent operations of one query overlap with those of others.
static void run_block(tile *t, const int32_t block[2]) {
    float greatest[QUERIES];
    matrix k = block_of(t, true, block);
    score_all(t, &k);
    if (t->a->softcap > 0) cap_scores(t);
    raise_max(t, greatest);
    soften_all(t);
    matrix v = block_of(t, false, block);
    add_all(t, &v);
}

static void begin_span(tile *t) {
    for (int i = 0; i < t->n; i++) {
        t->max[i] = LOWEST;
        vf_store(t->sum[i], vf_zero());
    }
}

// Returns the block that is read n blocks after b: one of the next head if this head's end before that.
static int32_t block_after(tile *t, int b, int n) {
    const int32_t *blocks = kin_attention_blocks(t->a, t->row, t->head);
    const int first = t->low / CELLS, last = (t->high - 1) / CELLS, beyond = b + n - last - 1;
    t->next_head = t->head;
    if (beyond < 0) return blocks[b + n];
    if (t->head + 1 < t->a->kv.n_head_kv) t->next_head++;
    return blocks[first + beyond < last ? first + beyond : last];
}

// Processes the positions [begin, end) of a span, of which some query attends to the first and to the last; may be empty.
static void run_span(tile *t, int begin, int end) {
    const int32_t *blocks = kin_attention_blocks(t->a, t->row, t->head);
    const bool reads_cells = t->a->kv.by_cell || tile_chooses_groups(t);
    begin_span(t);
    if (begin >= end) clear_values(t, 0, t->n);
    for (int b = begin / CELLS; b * CELLS < end; b++) {
        see(t, b * CELLS);
        t->is_first = b == begin / CELLS;
        const int32_t first = reads_cells ? 0 : blocks[b], next = reads_cells ? 0 : block_after(t, b, FETCH_AHEAD);
        const int32_t block[2] = {first, next};
        if (t->a->kv.type == KIN_TYPE_F16)
            run_block(t, block);
        else
            SIMD_FN(kin_attend_q8_0)(t, block);
    }
}

// ---- spans

// Merges a span's (max, sum, values) into those of the earlier spans. A span without visible cells has the sum 0.
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
    vf_store(factor, vf_exp2(vf_set1(is_greater ? *max - span_max : span_max - *max)));
    vf old = vf_set1(is_greater ? factor[0] : 1), new = vf_set1(is_greater ? 1 : factor[0]);
    for (int d = 0; d < dim; d += 16)
        vf_store(values + d, vf_add(vf_mul(vf_load(values + d), old), vf_mul(vf_load(span + d), new)));
    vf_store(factor, vf_add(vf_mul(vf_set1(*sum), old), vf_mul(vf_set1(span_sum), new)));
    *sum = factor[0];
    *max = is_greater ? span_max : *max;
}

// Adds a head's sink to the softmax: returns the factor of the values, and adds the sink's weight to their sum.
static float add_sink(const kin_attention *a, int head, float max, float *sum) {
    if (!a->sinks || *sum == 0) return 1;
    float sink = a->sinks[head] * LOG2_E, factor[16];
    vf_store(factor, vf_exp2(vf_set1(sink > max ? max - sink : sink - max)));
    *sum = sink > max ? *sum * factor[0] + 1 : *sum + factor[0];
    return sink > max ? factor[0] : 1;
}

// A row that attends to nothing gets zeros.
static void finish(const kin_attention *a, int head, float max, float sum, const float *values, float *out) {
    const int dim = a->kv.v_dim;
    const float factor = add_sink(a, head, max, &sum);
    vf inverse = vf_set1(factor / sum);
    for (int d = 0; d < dim; d += 16) vf_store(out + d, sum > 0 ? vf_mul(vf_load(values + d), inverse) : vf_zero());
}

static float *partial_of(const kin_attention *a, int64_t row, int head, int span) {
    return a->partial + ((row * a->n_head + head) * a->n_spans + span) * kin_attention_partial_floats(&a->kv);
}

static void store_span(tile *t, int span) {
    int dim = t->a->kv.v_dim;
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

static void finish_query(tile *t, int i, float max, float sum, const float *values) {
    const kin_attention *a = t->a;
    const int head = query_head(t, i);
    finish(a, head, max, sum, values, a->out + query_row(t, i) * a->ldo + (int64_t)head * a->kv.v_dim);
}

// Finishes queries that have only this span.
static void finish_span(tile *t) {
    for (int i = 0; i < t->n; i++) finish_query(t, i, t->max[i], vf_sum(vf_load(t->sum[i])), t->values + i * t->a->kv.v_dim);
}

static void run_all_spans(tile *t) {
    int dim = t->a->kv.v_dim;
    for (int i = 0; i < t->n; i++) {
        t->total_max[i] = LOWEST;
        t->total_sum[i] = 0;
    }
    for (int begin = t->low; begin < t->high;) {
        int next = (begin / KIN_SPAN_CELLS + 1) * KIN_SPAN_CELLS, end = next < t->high ? next : t->high;
        run_span(t, begin, end);
        if (begin == t->low && end == t->high) return finish_span(t);
        for (int i = 0; i < t->n; i++) {
            float sum = vf_sum(vf_load(t->sum[i]));
            merge(dim, &t->total_max[i], &t->total_sum[i], t->total + i * dim, t->max[i], sum, t->values + i * dim);
        }
        begin = next;
    }
    for (int i = 0; i < t->n; i++) finish_query(t, i, t->total_max[i], t->total_sum[i], t->total + i * dim);
}

// ---- tasks

// Prefetches the queries of rows that will probably be computed next, and the output of the current ones: 64 queries are 16 pages
// with a kilobyte each.
SIMD_INLINE void fetch_rows(const kin_attention *a, int64_t begin, int64_t end, int head) {
    const int64_t group = a->n_head / a->kv.n_head_kv, n_out = group * a->kv.v_dim, n_q = group * a->kv.k_dim;
    for (int64_t row = begin; row < end; row++)
        for (int64_t d = 0; d < n_out; d += 16) __builtin_prefetch(a->out + row * a->ldo + head * n_out + d, 1, 2);
    for (int64_t row = end; row < 2 * end - begin && row < a->n_rows; row++)
        for (int64_t d = 0; d < n_q; d += 16) __builtin_prefetch(a->q + row * a->ldq + head * n_q + d, 0, 2);
}

// Computes consecutive rows [begin, end) for a part of a kv head's queries and one span, or all spans (if a->n_spans is 1).
static void run_task(const kin_attention *a, int64_t begin, int64_t end, int64_t head_part, int span) {
    const int64_t parts = kin_attention_parts(a), part = head_part % parts;
    tile t; // not zeroed, because it is large
    t.a = a;
    t.head = (int)(head_part / parts);
    t.group = a->n_head / a->kv.n_head_kv;
    t.row = begin;
    for (int is_k = 0; is_k < 2; is_k++) {
        t.block_bytes[is_k] = kin_kv_block_bytes(&a->kv, is_k);
        t.head_bytes[is_k] = t.block_bytes[is_k] / (size_t)a->kv.n_head_kv;
    }
    t.first = (int)kin_attention_part_begin(a, part);
    t.n = (int)(end - begin) * t.group; // with several parts a tile is one row
    if (parts > 1) t.n = (int)kin_attention_part_begin(a, part + 1) - t.first;
    load_queries(&t);
    if (part == 0) fetch_rows(a, begin, end, t.head);
    if (a->n_spans == 1)
        run_all_spans(&t);
    else
        run_one_span(&t, span);
}

void SIMD_FN(kin_attend)(kin_attention *a, int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; task++) {
        int64_t tile = task / a->n_spans, row = kin_attention_tile_row(a, tile % a->n_tiles);
        run_task(a, row, kin_attention_tile_end(a, row), tile / a->n_tiles, (int)(task % a->n_spans));
    }
}

void SIMD_FN(kin_attend_merge)(const kin_attention *a, int64_t begin, int64_t end) {
    int dim = a->kv.v_dim;
    if (a->n_spans == 1) return;
    for (int64_t row = begin; row < end; row++) {
        for (int head = 0; head < a->n_head; head++) {
            float max = LOWEST, sum = 0, values[MOST_DIM];
            for (int span = 0; span < a->n_spans; span++) {
                const float *p = partial_of(a, row, head, span);
                merge(dim, &max, &sum, values, p[KIN_PARTIAL_MAX], p[KIN_PARTIAL_SUM], p + KIN_PARTIAL_VALUES);
            }
            finish(a, head, max, sum, values, a->out + row * a->ldo + (int64_t)head * dim);
        }
    }
}
