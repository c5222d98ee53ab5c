// Attention over a Q8_0 cache in integers: twice the rate of floats, without conversion.
//
// Queries are rounded to 16 bits with one scale each, once per tile. Their products with 32 bytes of K are summed exactly, then
// multiplied by these bytes' scale. In p v each cell has its own scale per 32 values of its head, which is multiplied with p
// first; these weights are rounded to 15 bits per block, head and query, and the sum over the block's cells is exact.
//
//   score[c]   = scale_q sum_b k_scale[b][c] (q[32 b ..] . k[c][32 b ..])               b: 32 columns
//   share[b][c] = MOST_WEIGHT v_scale[b][c] / greatest[b]
//   weight[c]  = round(2^(score[c] - m) share[b][c])
//   values[d] += 2^(m - max) greatest[b] / MOST_WEIGHT sum_c weight[c] v[c][d]          d of b
//
// m is at least the block's greatest score, and at most 1 above it (unless the block is negligible): all weights are at most
// MOST_WEIGHT, and the greatest is not small. max is the reference of all blocks (tile.h); m - max is an integer. Everything
// depends only on the cells that a row attends to.
#include "kernels/simd/tile.h"

enum {
    ROWS = SIMD_S16_ROWS, // queries that a product keeps in registers, for each of WIDTH vectors
    WIDTH = SIMD_S16_COLUMNS,
    MOST_QUERY = 32512, // the range of vd_dot
    MOST_WEIGHT = 32512,
    BLOCKS = MOST_DIM / 32,
    FACTORS = (BLOCKS + 15) / 16 * 16, // whole vectors
};
static const float LOWEST_LIFT = -64; // 2^-64 of the sum so far is negligible

static int chunks_of(const tile *t) { return (t->a->kv.k_dim + 63) / 64; }

// ---- queries

// Rounds 64 columns, of which the last ones may be zeros.
static void round_64(const float *q, int columns, float inverse, int8_t *to, int32_t *sum) {
    vi x[4];
    for (int c = 0; c < 4; c++)
        x[c] = inverse != 0 && 16 * c < columns ? vi_round(vf_mul(vf_load(q + 16 * c), vf_set1(inverse))) : vi_zero();
    vx_store(to, x);
    for (int b = 0; b < 2 && 32 * b < columns; b++) {
        sum[b] = (int32_t)vf_sum(vf_from_vi(vi_add(x[2 * b], x[2 * b + 1]))); // exact: below 2^21
    }
}

void SIMD_FN(kin_round_queries)(tile *t) {
    const int dim = t->a->kv.k_dim, chunks = chunks_of(t);
    rounded *r = &t->rounded;
    for (int i = 0; i < t->n; i++) {
        const float *q = t->q + i * dim;
        vf most = vf_zero(), zeros = vf_zero();
        for (int d = 0; d < dim; d += 16) {
            most = vf_max(most, vf_abs(vf_load(q + d)));
            zeros = vf_add(zeros, vf_mul(vf_load(q + d), vf_zero()));
        }
        float zero = vf_sum(zeros), greatest = vf_greatest(most);
        bool is_finite = zero == 0;
        float inverse = is_finite && greatest > 0x1p-100f ? MOST_QUERY / greatest : 0;
        r->scale[i] = is_finite ? greatest / MOST_QUERY : zero; // otherwise NaN, as are all scores
        for (int c = 0; c < chunks; c++) {
            round_64(q + 64 * c, dim - 64 * c, inverse, r->q + (i * chunks + c) * SIMD_X_BYTES, r->sum + i * (dim / 32) + 2 * c);
        }
    }
}

// ---- q k

static const uint16_t *scales_of(const cells *c, int dim) { // f16 [dim / 32][CELLS]
    return (const uint16_t *)((const int8_t *)c->data + dim * CELLS);
}

// Computes the scores of n queries from i on, for 16 w cells from 16 * column on.
SIMD_INLINE void score_cells(tile *t, const cells *k, int i, int column, const int n, const int w) {
    const int n_blocks = t->a->kv.k_dim / 32, chunks = chunks_of(t);
    const rounded *r = &t->rounded;
    const int8_t *bytes = k->data, *ahead = (const int8_t *)k->next + column * 16 * t->a->kv.k_dim;
    const uint16_t *scales = scales_of(k, t->a->kv.k_dim);
    vf score[ROWS][WIDTH];
    UNROLL for (int y = 0; y < n; y++) { UNROLL for (int j = 0; j < w; j++) score[y][j] = vf_zero(); }
    for (int b = 0; b < n_blocks; b++) {
        const int8_t *x = r->q + (i * chunks + b / 2) * SIMD_X_BYTES + b % 2 * 2 * SIMD_X_STEP;
        vd sum[ROWS][WIDTH];
        fetch((const int8_t *)k->next + (n_blocks * 32 + b * 2) * CELLS + 32 * column); // scales
        UNROLL for (int y = 0; y < n; y++) {
            UNROLL for (int j = 0; j < w; j++) sum[y][j] = vd_set1(-SIMD_S16_BIAS * r->sum[(i + y) * n_blocks + b]);
        }
        for (int at = 32 * CELLS * b + 64 * column, end = at + 32 * CELLS; at < end; x += SIMD_X_STEP) {
            UNROLL for (int g = 0; g < 4; g++, at += 4 * CELLS) {
                vw four[WIDTH];
                UNROLL for (int j = 0; j < w; j++, ahead += 64) {
                    four[j] = vw_load(bytes + at + 64 * j);
                    fetch(ahead);
                }
                UNROLL for (int y = 0; y < n; y++) {
                    UNROLL for (int j = 0; j < w; j++) sum[y][j] = vd_dot(sum[y][j], four[j], x + y * chunks * SIMD_X_BYTES, g);
                }
            }
        }
        UNROLL for (int j = 0; j < w; j++) {
            vf scale = vf_load_f16(scales + b * CELLS + 16 * (column + j));
            UNROLL for (int y = 0; y < n; y++) {
                score[y][j] = vf_add(score[y][j], vf_mul(scale, vf_from_vi(vi_from_vd(sum[y][j]))));
            }
        }
    }
    UNROLL for (int y = 0; y < n; y++) {
        UNROLL for (int j = 0; j < w; j++)
            vf_store(t->p[i + y] + 16 * (column + j), vf_mul(score[y][j], vf_set1(r->scale[i + y])));
    }
}

typedef void (*score_fn)(tile *t, const cells *k, int i, int column);

// clang-format off
#define SCORE(n, w) static void score_##n##_##w(tile *t, const cells *k, int i, int column) { score_cells(t, k, i, column, n, w); }
#if SIMD_S16_ROWS == 4
#define SCORES(w) SCORE(1, w) SCORE(2, w) SCORE(3, w) SCORE(4, w)
#define SCORE_NAMES(w) {score_1_##w, score_2_##w, score_3_##w, score_4_##w}
#else
#define SCORES(w) SCORE(1, w) SCORE(2, w)
#define SCORE_NAMES(w) {score_1_##w, score_2_##w}
#endif
SCORES(1)
#if SIMD_S16_COLUMNS == 2
SCORES(2)
static const score_fn scores[WIDTH][ROWS] = {SCORE_NAMES(1), SCORE_NAMES(2)};
#else
static const score_fn scores[WIDTH][ROWS] = {SCORE_NAMES(1)};
#endif
// clang-format on

// Computes the scores of n queries from i on, for this many vectors of cells.
static void score_queries(tile *t, const cells *k, int i, int n, int vectors) {
    for (int column = 0, w; column < vectors; column += w) {
        w = vectors - column < WIDTH ? vectors - column : WIDTH;
        for (int y = 0, rows; y < n; y += rows) {
            rows = n - y < ROWS ? n - y : ROWS;
            scores[w - 1][rows - 1](t, k, i + y, column);
        }
    }
}

// ---- softmax

// Returns m, and sets *lift to 2^(m - max), for a block's greatest score.
static float reference_of(float max, float greatest, float *lift) {
    const float magic = 0x1.8p23f;
    float above = greatest - max;
    if (!(above > LOWEST_LIFT)) above = LOWEST_LIFT;
    float whole = (above + 0.5f) + magic - magic; // at least `above`, at most 1 more
    uint32_t bits = (uint32_t)((int)whole + 127) << 23;
    memcpy(lift, &bits, sizeof bits);
    return max + whole > greatest ? max + whole : greatest;
}

// Turns query i's scores into 2^(score - m), and zeros for hidden cells.
static void soften(tile *t, int i, float m, float lift) {
    const int begin = t->see_begin[i], end = t->see_end[i];
    float *p = t->p[i];
    vf x[4], sum = vf_zero();
    for (int c = 0; c < 4; c++) x[c] = vf_sub(vf_load(p + 16 * c), vf_set1(m));
    if (SIMD_COLUMNS < 4 || end <= 32)
        for (int c = 0; 16 * c < end; c++) vf_exp2_each(x + c, 1, FLOOR);
    else
        vf_exp2_each(x, 4, FLOOR);
    for (int c = 0; c < 4; c++) {
        if (end - begin < CELLS) x[c] = 16 * c < end && 16 * c + 16 > begin ? only_seen(x[c], 16 * c, begin, end) : vf_zero();
        vf_store(p + 16 * c, x[c]);
        sum = vf_add(sum, x[c]);
    }
    vf_store(t->sum[i], vf_add(vf_load(t->sum[i]), vf_mul(sum, vf_set1(lift))));
}

// ---- p v

// The factors of p, per 32 columns of V.
typedef struct shares {
    float share[BLOCKS][CELLS];   // for a query that attends to all cells
    float factor[FACTORS];        // its greatest[b] / MOST_WEIGHT
    float inverse[FACTORS];       // MOST_WEIGHT / greatest[b]
    uint16_t most[BLOCKS][CELLS]; // the greatest scale of the cells 0 .. c
    // For the last query that attends to only a part, the cells [begin, end).
    int begin, end;
    float seen_share[BLOCKS][CELLS]; // 0 for hidden cells
    float seen_factor[FACTORS];
} shares;

// Weights of a few queries in the form that vd_dot_positive expects.
typedef struct weights {
    int8_t x[ROWS][BLOCKS][SIMD_X_BYTES];
    float factor[ROWS][BLOCKS];
} __attribute__((aligned(64))) weights;

// greatest // f32 [n_blocks], magnitudes. The factor of NaN is NaN.
static void factors_of(int n_blocks, const float *greatest, float *factor, float *inverse) {
    for (int b = 0; b < n_blocks; b += 16) {
        vf s = vf_load(greatest + b);
        vf_store(factor + b, vf_div(s, vf_set1(MOST_WEIGHT)));
        vf_store(inverse + b, vf_div(vf_set1(MOST_WEIGHT), vf_max(s, vf_set1(0x1p-24f))));
    }
}

// Returns the greatest magnitude of a block's scales; NaN if one of them is infinite or NaN.
static float greatest_scale(const uint16_t *scales) {
    vf most = vf_zero(), zeros = vf_zero();
    for (int c = 0; c < CELLS; c += 16) {
        vf s = vf_load_f16(scales + c);
        most = vf_max(most, vf_abs(s));
        zeros = vf_add(zeros, vf_mul(s, vf_zero()));
    }
    return vf_greatest(most) + vf_sum(zeros);
}

static uint16_t greatest_half(const uint16_t *h, int begin, int end) {
    uint16_t most = 0;
    for (int c = begin; c < end; c++) most = (h[c] & 0x7fff) > most ? h[c] & 0x7fff : most;
    return most;
}

static void share_all(const tile *t, const cells *v, shares *s) {
    const int n_blocks = t->a->kv.v_dim / 32;
    float greatest[FACTORS] = {0};
    const uint16_t *scales = scales_of(v, t->a->kv.v_dim);
    for (int b = 0; b < 2 * n_blocks; b++) fetch((const int8_t *)v->next + (n_blocks * 32 + b) * CELLS);
    for (int b = 0; b < n_blocks; b++) greatest[b] = greatest_scale(scales + b * CELLS);
    factors_of(n_blocks, greatest, s->factor, s->inverse);
    for (int b = 0; b < n_blocks; b++) {
        for (int c = 0; c < CELLS; c += 16)
            vf_store(s->share[b] + c, vf_mul(vf_load_f16(scales + b * CELLS + c), vf_set1(s->inverse[b])));
    }
}

static void find_most(const tile *t, const cells *v, shares *s) {
    const uint16_t *scales = scales_of(v, t->a->kv.v_dim);
    s->begin = s->end = 0;
    for (int b = 0; b < t->a->kv.v_dim / 32; b++) {
        uint16_t most = 0;
        for (int c = 0; c < t->seen; c++) {
            uint16_t h = scales[b * CELLS + c] & 0x7fff;
            s->most[b][c] = most = h > most ? h : most;
        }
    }
}

static void share_seen(const tile *t, const cells *v, int begin, int end, shares *s) {
    const uint16_t *scales = scales_of(v, t->a->kv.v_dim);
    const int n_blocks = t->a->kv.v_dim / 32;
    uint16_t half[FACTORS] = {0};
    float greatest[FACTORS], inverse[FACTORS];
    if (begin == s->begin && end == s->end) return; // for another head of the same row
    for (int b = 0; b < n_blocks; b++) half[b] = begin ? greatest_half(scales + b * CELLS, begin, end) : s->most[b][end - 1];
    for (int b = 0; b < n_blocks; b += 16) {
        vf most = vf_load_f16(half + b);
        vf_store(greatest + b, vf_add(most, vf_mul(most, vf_zero())));
    }
    factors_of(n_blocks, greatest, s->seen_factor, inverse);
    for (int b = 0; b < n_blocks; b++) {
        for (int c = 0; c < CELLS; c += 16) {
            vf share = vf_zero();
            if (c < end && c + 16 > begin)
                share = only_seen(vf_mul(vf_load_f16(scales + b * CELLS + c), vf_set1(inverse[b])), c, begin, end);
            vf_store(s->seen_share[b] + c, vf_max(share, vf_zero())); // the share of hidden cells may be NaN
        }
    }
    s->begin = begin;
    s->end = end;
}

// Weighs query i as the y-th of the weights. Hidden cells have zeros in p.
static void weigh(const tile *t, const float share[][CELLS], const float *factor, int i, float lift, weights *w, int y) {
    const float *p = t->p[i];
    for (int b = 0; b < t->a->kv.v_dim / 32; b++) {
        vi x[4];
        for (int c = 0; c < 4; c++) x[c] = vi_round(vf_mul(vf_load(p + 16 * c), vf_load(share[b] + 16 * c)));
        vx_store_positive(w->x[y][b], x);
        w->factor[y][b] = factor[b] * lift;
    }
}

// Adds the weighted cells [16 begin, 16 end) of V to the values of n queries from i on.
SIMD_INLINE void add_values(tile *t, const cells *v, const weights *w, int i, int begin, int end, const int n) {
    const int dim = t->a->kv.v_dim;
    const int8_t *bytes = v->data, *ahead = v->next;
    for (int d = 0; d < dim; d += 16 * WIDTH) {
        vd sum[ROWS][WIDTH];
        UNROLL for (int y = 0; y < n; y++) { UNROLL for (int j = 0; j < WIDTH; j++) sum[y][j] = vd_set1(0); }
        for (int quarter = begin; quarter < end; quarter++) {
            const int8_t *x = w->x[0][d / 32] + quarter * SIMD_X_STEP;
            UNROLL for (int g = 0; g < 4; g++) {
                vw four[WIDTH];
                UNROLL for (int j = 0; j < WIDTH; j++, ahead += 64) {
                    four[j] = vw_load_positive(bytes + ((4 * quarter + g) * dim + d + 16 * j) * 4);
                    fetch(ahead);
                }
                UNROLL for (int y = 0; y < n; y++) {
                    UNROLL for (int j = 0; j < WIDTH; j++) sum[y][j] =
                        vd_dot_positive(sum[y][j], four[j], x + y * BLOCKS * SIMD_X_BYTES, g);
                }
            }
        }
        UNROLL for (int y = 0; y < n; y++) {
            UNROLL for (int j = 0; j < WIDTH; j++) {
                float *to = t->values + (i + y) * dim + d + 16 * j;
                vf part = vf_mul(vf_from_vi(vi_from_vd(sum[y][j])), vf_set1(w->factor[y][d / 32]));
                vf_store(to, vf_add(t->is_first ? vf_zero() : vf_load(to), part));
            }
        }
    }
}

typedef void (*add_fn)(tile *t, const cells *v, const weights *w, int i, int begin, int end);

// clang-format off
#define ADD(n) static void add_##n(tile *t, const cells *v, const weights *w, int i, int begin, int end) { add_values(t, v, w, i, begin, end, n); }
ADD(1) ADD(2)
#if SIMD_S16_ROWS == 4
ADD(3) ADD(4)
static const add_fn adds[ROWS] = {add_1, add_2, add_3, add_4};
#else
static const add_fn adds[ROWS] = {add_1, add_2};
#endif
// clang-format on

// ---- a block

// Adds the values of n queries from i on, each of which attends to some cell.
static void add_seen(tile *t, const cells *v, shares *s, const float *lift, int i, int n) {
    weights w;
    int begin = CELLS, end = 0;
    for (int y = 0; y < n; y++) {
        begin = t->see_begin[i + y] < begin ? t->see_begin[i + y] : begin;
        end = t->see_end[i + y] > end ? t->see_end[i + y] : end;
        if (sees_all(t, i + y)) {
            weigh(t, s->share, s->factor, i + y, lift[i + y], &w, y);
        } else {
            share_seen(t, v, t->see_begin[i + y], t->see_end[i + y], s);
            weigh(t, s->seen_share, s->seen_factor, i + y, lift[i + y], &w, y);
        }
    }
    adds[n - 1](t, v, &w, i, begin / 16, (end + 15) / 16);
}

// Makes V of K: bytes [v_dim / 4][CELLS][4] -> [CELLS / 4][v_dim][4], then the same scales.
static cells turn_keys(tile *t, const cells *k) {
    typedef int8_t s8x16 __attribute__((vector_size(16)));
    const int dim = t->a->kv.v_dim;
    const int8_t *from = k->data;
    for (int d = 0; d < dim; d += 4) {
        for (int c = 0; c < CELLS; c += 4, from += 16) {
            s8x16 x;
            memcpy(&x, from, sizeof x);
            x = __builtin_shufflevector(x, x, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            memcpy(t->turned + c * dim + 4 * d, &x, sizeof x);
        }
    }
    memcpy(t->turned + dim * CELLS, scales_of(k, t->a->kv.k_dim), (size_t)(dim / 32 * CELLS) * sizeof(uint16_t));
    return (cells){t->turned, t->turned};
}

// Makes K of single cells: bytes [CELLS][k_dim] and scales [CELLS][k_dim / 32] of each cell's block -> a block's layout.
static cells gather(tile *t) {
    const int dim = t->a->kv.k_dim;
    uint16_t *scales = (uint16_t *)(t->gathered + dim * CELLS);
    for (int c = 0; c < CELLS; c++) {
        const cell_place at = tile_cell(t, true, c);
        const int8_t *from = (const int8_t *)at.head + at.cell * dim;
        const uint16_t *from_scales = (const uint16_t *)(at.head + dim * CELLS) + at.cell * (dim / 32);
        for (int d = 0; d < dim; d += 4) memcpy(t->gathered + d * CELLS + 4 * c, from + d, 4);
        for (int b = 0; b < dim / 32; b++) scales[b * CELLS + c] = from_scales[b];
    }
    return (cells){t->gathered, t->gathered};
}

// Makes K or V of groups of cells, in a block's layout: bytes [k_dim / 4][CELLS][4] or [CELLS / 4][v_dim][4], then the scales.
static cells join(const tile *t, bool is_k, int8_t *to) {
    enum { GROUP = KIN_GROUP_CELLS };
    const int dim = is_k ? t->a->kv.k_dim : t->a->kv.v_dim;
    for (int c = 0; c < CELLS; c += GROUP) {
        const cell_place at = tile_cell(t, is_k, c);
        const int8_t *from = (const int8_t *)at.head;
        const size_t scales = (size_t)dim * CELLS, size = GROUP * sizeof(uint16_t);
        if (is_k)
            for (int d = 0; d < dim; d += 4) memcpy(to + d * CELLS + 4 * c, from + d * CELLS + 4 * at.cell, 4 * GROUP);
        else
            memcpy(to + c * dim, from + at.cell * dim, (size_t)(GROUP * dim));
        for (int b = 0; b < dim / 32; b++)
            memcpy(to + scales + 2 * (size_t)(b * CELLS + c), from + scales + 2 * (size_t)(b * CELLS + at.cell), size);
    }
    return (cells){to, to};
}

static cells keys_of(tile *t, const int32_t block[2]) {
    if (tile_chooses_groups(t)) return join(t, true, t->gathered);
    return t->a->kv.by_cell ? gather(t) : tile_cells(t, true, block);
}

static cells values_of(tile *t, const cells *k, const int32_t block[2]) {
    if (tile_chooses_groups(t)) return join(t, false, t->turned);
    return t->a->kv.v_in_k ? turn_keys(t, k) : tile_cells(t, false, block);
}

void SIMD_FN(kin_attend_q8_0)(tile *t, const int32_t block[2]) {
    const cells k = keys_of(t, block), v = values_of(t, &k, block);
    float greatest[QUERIES], lift[QUERIES];
    shares s;
    bool some_all = false, some_less = false;
    for (int i = 0, next; i < t->n; i = next) {
        int vectors = (t->see_end[i] + 15) / 16;
        for (next = i + 1; next < t->n && (t->see_end[next] + 15) / 16 == vectors;) next++;
        score_queries(t, &k, i, next - i, vectors);
    }
    if (t->a->softcap > 0) cap_scores(t);
    raise_max(t, greatest);
    for (int i = 0; i < t->n; i++) {
        if (sees_none(t, i)) continue;
        float m = reference_of(t->max[i], greatest[i], &lift[i]);
        soften(t, i, m, lift[i]);
        some_all |= sees_all(t, i);
        some_less |= !sees_all(t, i);
    }
    if (some_all) share_all(t, &v, &s);
    if (some_less) find_most(t, &v, &s);
    for (int i = 0, n; i < t->n; i += n) {
        for (n = 0; n < ROWS && i + n < t->n && !sees_none(t, i + n);) n++;
        if (n) {
            add_seen(t, &v, &s, lift, i, n);
        } else {
            n = 1;
            if (t->is_first) clear_values(t, i, n);
        }
    }
}
