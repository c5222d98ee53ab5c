#include "testkit/random_rows.h"

#include <ggml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "testkit/k_rounding.h"

#define PIECE_WEIGHTS_MAX 256
#define POOL_PIECES 16384
#define SAMPLE_BLOCKS 64 // for a type with a code book

struct kin_random_rows {
    enum ggml_type type;
    int64_t n_in;
    float scale;    // standard deviation of a weight
    float unscaled; // the same if the scale of a block is 1, for a type with a code book; otherwise 0
    size_t row_bytes;
    // The pool; NULL if every row is quantized.
    uint8_t *pool; // [n_pieces * piece_bytes]
    int64_t n_pieces;
    int64_t piece; // weights
    size_t piece_bytes;
};

// splitmix64: a full-period generator whose state is a counter.
static uint64_t next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t kin_random_mix(uint64_t a, uint64_t b) {
    uint64_t state = a;
    state = next(&state) ^ b;
    return next(&state);
}

// The sum of four uniform 16-bit numbers has the mean 2 * 65535 and the variance 4 * 65536^2 / 12.
void kin_random_gaussian(uint64_t seed, float scale, int64_t n, float *out) {
    const float unit = sqrtf(3.0f) / 65536.0f;
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = next(&seed);
        int sum = (int)(r & 0xffff) + (int)(r >> 16 & 0xffff) + (int)(r >> 32 & 0xffff) + (int)(r >> 48);
        out[i] = (float)(sum - 2 * 65535) * unit * scale;
    }
}

static void *alloc(size_t n) {
    void *at = malloc(n);
    kin_assert(at);
    return at;
}

// ---- types with a code book

// Quantizing to these types searches a table that ggml needs seconds to make. It can be skipped: all bits of a block except its
// scale may have any value.
static bool has_code_book(enum ggml_type type) {
    switch (type) {
    case GGML_TYPE_IQ2_XXS:
    case GGML_TYPE_IQ2_XS:
    case GGML_TYPE_IQ2_S:
    case GGML_TYPE_IQ3_XXS:
    case GGML_TYPE_IQ3_S:
    case GGML_TYPE_IQ1_S:
    case GGML_TYPE_IQ1_M: return true;
    default: return false;
    }
}

static void put_scale(enum ggml_type type, float scale, uint8_t *block) {
    const ggml_fp16_t bits = ggml_fp32_to_fp16(scale);
    if (type != GGML_TYPE_IQ1_M) { // the scale comes first
        memcpy(block, &bits, sizeof bits);
        return;
    }
    uint8_t *high = block + 49; // the scale is in the highest four bits of the last four 16-bit numbers
    for (int i = 0; i < 4; i++) high[2 * i] = (uint8_t)((high[2 * i] & 0x0f) | (bits >> 4 * i & 0x0f) << 4);
}

// Scales are between 3/4 and 5/4 of the given one.
static void draw_blocks(enum ggml_type type, float scale, uint64_t seed, size_t n_bytes, uint8_t *out) {
    const size_t block_bytes = ggml_type_size(type);
    for (size_t i = 0; i < n_bytes; i++) out[i] = (uint8_t)(next(&seed) >> 56);
    for (size_t at = 0; at < n_bytes; at += block_bytes) {
        put_scale(type, scale * (0.75f + (float)(next(&seed) % 512) / 1024), out + at);
    }
}

static float measure_unscaled(enum ggml_type type) {
    const size_t n_bytes = SAMPLE_BLOCKS * ggml_type_size(type);
    const int64_t n = SAMPLE_BLOCKS * ggml_blck_size(type);
    uint8_t *blocks = alloc(n_bytes);
    float *weights = alloc((size_t)n * sizeof *weights);
    draw_blocks(type, 1, 0, n_bytes, blocks);
    ggml_get_type_traits(type)->to_float(blocks, weights, n);
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += (double)weights[i] * weights[i];
    free(weights);
    free(blocks);
    return (float)sqrt(squares / (double)n);
}

// ---- other types

// Rounds n_rows rows of n_in weights.
static void round_rows(enum ggml_type type, const float *weights, int64_t n_rows, int64_t n_in, uint8_t *out) {
    if (kin_k_rounding_has(type))
        kin_k_rounding_fill(type, weights, n_rows * n_in, out);
    else
        ggml_quantize_chunk(type, weights, out, 0, n_rows, n_in, NULL);
}

static void fill_pool(kin_random_rows *rows, uint64_t seed) {
    int64_t piece = PIECE_WEIGHTS_MAX;
    while (rows->n_in % piece != 0) piece /= 2;
    rows->piece = piece;
    rows->piece_bytes = ggml_row_size(rows->type, piece);
    rows->n_pieces = POOL_PIECES;
    rows->pool = alloc((size_t)rows->n_pieces * rows->piece_bytes);

    float *weights = alloc((size_t)(rows->n_pieces * piece) * sizeof *weights);
    kin_random_gaussian(seed, rows->scale, rows->n_pieces * piece, weights);
    round_rows(rows->type, weights, rows->n_pieces, piece, rows->pool);
    free(weights);
}

kin_random_rows *kin_random_rows_new(int type, int64_t n_in, bool pooled, uint64_t seed) {
    kin_assert(n_in > 0 && n_in % ggml_blck_size((enum ggml_type)type) == 0);
    kin_random_rows *rows = alloc(sizeof *rows);
    *rows = (kin_random_rows){.type = (enum ggml_type)type, .n_in = n_in, .scale = 1 / sqrtf((float)n_in)};
    rows->row_bytes = ggml_row_size(rows->type, n_in);
    if (has_code_book(rows->type))
        rows->unscaled = measure_unscaled(rows->type);
    else if (pooled)
        fill_pool(rows, seed);
    return rows;
}

void kin_random_rows_free(kin_random_rows *rows) {
    if (!rows) return;
    free(rows->pool);
    free(rows);
}

size_t kin_random_rows_bytes(const kin_random_rows *rows) {
    return rows->row_bytes;
}

static void draw_row(const kin_random_rows *rows, uint64_t seed, uint8_t *out) {
    for (size_t at = 0; at < rows->row_bytes; at += rows->piece_bytes) {
        memcpy(out + at, rows->pool + next(&seed) % (uint64_t)rows->n_pieces * rows->piece_bytes, rows->piece_bytes);
    }
}

void kin_random_rows_fill(const kin_random_rows *rows, uint64_t seed, uint64_t row_begin, uint64_t n_rows, uint8_t *out) {
    float *weights = rows->pool || rows->unscaled > 0 ? NULL : alloc((size_t)rows->n_in * sizeof *weights);
    for (uint64_t i = 0; i < n_rows; i++, out += rows->row_bytes) {
        uint64_t row_seed = kin_random_mix(seed, row_begin + i);
        if (rows->unscaled > 0) {
            draw_blocks(rows->type, rows->scale / rows->unscaled, row_seed, rows->row_bytes, out);
        } else if (rows->pool) {
            draw_row(rows, row_seed, out);
        } else {
            kin_random_gaussian(row_seed, rows->scale, rows->n_in, weights);
            round_rows(rows->type, weights, 1, rows->n_in, out);
        }
    }
    free(weights);
}
