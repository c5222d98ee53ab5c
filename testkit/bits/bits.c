#include "testkit/bits/bits.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "kernels/panel.h"
#include "testkit/bits/primitives.h"

enum { COLUMNS = 768, ROWS = 48, BATCH = 13 };

int kin_bits_n_variants = KIN_N_VARIANTS;

uint64_t kin_bits_hash_f32(const float *x, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        if ((bits & 0x7fffffff) > 0x7f800000) bits = 0x7fc00000;
        seed = kin_hash64(&bits, sizeof bits, seed);
    }
    return seed;
}

// ---- vector functions

#define CALL(id)                                                                                                                 \
    if (strcmp(k->name, #id) == 0) return kin_primitive_bits_##id((kin_primitive)which);

static uint64_t primitive(const kin_kernels *k, int which) {
    KIN_BACKENDS(CALL)
    kin_assert(!"a back-end without a name");
}

// ---- activations

// Returns [BATCH, columns] of many magnitudes; the last rows are special cases of rounding.
static float *activations(kin_rng *rng, int columns) {
    float *x = malloc(sizeof(float) * BATCH * (size_t)columns);
    kin_assert(x);
    for (int i = 0; i < BATCH * columns; i++) {
        float v = (float)(int)(kin_rng_u64(rng) % 4001) / 1000.0f - 2;
        switch (i / columns) {
        case BATCH - 6: v = v < 0 ? -1 : 1; break; // all are 127 or -127
        case BATCH - 5: v *= 1e30f; break;
        case BATCH - 4: v *= 1e-38f; break; // subnormal
        case BATCH - 3: v *= 0; break;
        case BATCH - 2: v = i % columns == 5 ? v / 0.0f : v; break;
        case BATCH - 1: v = i % columns == 300 ? 0.0f / 0.0f : v; break;
        }
        x[i] = v;
    }
    return x;
}

static uint64_t rounded(const kin_kernels *k, int kind) {
    const int columns = kind == KIN_ACT_256 ? COLUMNS : COLUMNS + 96,
              n_blocks = (columns + KIN_ACT_COLUMNS - 1) / KIN_ACT_COLUMNS;
    kin_rng rng;
    kin_rng_seed(&rng, 1);
    float *x = activations(&rng, columns);
    kin_act *act = calloc(1, kin_act_bytes(columns, BATCH));
    kin_assert(act);
    k->quantize((kin_act_kind)kind, columns, BATCH, x, act, 0, n_blocks * BATCH);
    uint64_t hash = 0;
    for (int i = 0; i < n_blocks * BATCH; i++) {
        hash = kin_hash64(act[i].q, sizeof act[i].q + sizeof act[i].sum, hash);
        hash = kin_bits_hash_f32(act[i].d, 8, hash);
    }
    free(act);
    free(x);
    return hash;
}

// ---- products

// Where a type's blocks have their f16 factors. -1: none. d == -1: weights are floats, or the factor is an exponent.
typedef struct format {
    int type, columns, bytes, d, d_min;
} format;

static const format formats[] = {
    {KIN_TYPE_Q4_K, 256, 144, 0, 2},   {KIN_TYPE_Q6_K, 256, 210, 208, -1}, {KIN_TYPE_Q8_0, 32, 34, 0, -1},
    {KIN_TYPE_Q4_0, 32, 18, 0, -1},    {KIN_TYPE_F16, 1, 2, -1, -1},       {KIN_TYPE_BF16, 1, 2, -1, -1},
    {KIN_TYPE_F32, 1, 4, -1, -1},      {KIN_TYPE_Q5_K, 256, 176, 0, 2},    {KIN_TYPE_Q3_K, 256, 110, 108, -1},
    {KIN_TYPE_Q2_K, 256, 84, 80, 82},  {KIN_TYPE_IQ4_XS, 256, 136, 0, -1}, {KIN_TYPE_MXFP4, 32, 17, -1, -1},
    {KIN_TYPE_Q4_1, 32, 20, 0, 2},     {KIN_TYPE_Q5_0, 32, 22, 0, -1},     {KIN_TYPE_Q5_1, 32, 24, 0, 2},
    {KIN_TYPE_IQ4_NL, 32, 18, 0, -1},  {KIN_TYPE_IQ3_S, 256, 110, 0, -1},  {KIN_TYPE_IQ3_XXS, 256, 98, 0, -1},
    {KIN_TYPE_IQ2_S, 256, 82, 0, -1},  {KIN_TYPE_IQ2_XS, 256, 74, 0, -1},  {KIN_TYPE_IQ2_XXS, 256, 66, 0, -1},
    {KIN_TYPE_IQ1_S, 256, 50, 0, -1},  {KIN_TYPE_IQ1_M, 256, 56, -1, -1},  {KIN_TYPE_TQ1_0, 256, 54, 52, -1},
    {KIN_TYPE_TQ2_0, 256, 66, 64, -1}, {KIN_TYPE_NVFP4, 64, 36, -1, -1},   {KIN_TYPE_Q2_0, 64, 18, 0, -1},
    {KIN_TYPE_Q1_0, 128, 18, 0, -1},
};

// Fills three panels: arbitrary bytes; arbitrary weights with small factors; the largest weights.
static void random_weights(kin_rng *rng, const format *f, int columns, uint8_t *w) {
    const int row_bytes = columns / f->columns * f->bytes;
    for (int i = 0; i < ROWS * row_bytes; i += f->bytes) {
        uint64_t pick = kin_rng_u64(rng);
        int panel = i / row_bytes / KIN_PANEL_ROWS;
        for (int j = 0; j < f->bytes; j++) {
            uint8_t largest[] = {0xff, 0x80, 0x7f, 0};
            w[i + j] = panel == 2 ? largest[pick % 4] : (uint8_t)(kin_rng_u64(rng) >> 32);
            if (f->d < 0) w[i + j] &= (uint8_t)(j % 2 ? 0xbf : 0xff); // finite, below 2
        }
        if (panel == 0) continue;
        if (f->d >= 0) w[i + f->d + 1] = (uint8_t)(0x14 + pick / 4 % 8);
        if (f->d_min >= 0) w[i + f->d_min + 1] = (uint8_t)(0x14 + pick / 32 % 8);
    }
}

// Fills three panels with factors that kernels may treat specially: finite ones, half of them subnormal; the same with one
// infinity; the same with one negative number.
static void random_factors(kin_rng *rng, const format *f, int columns, uint8_t *w) {
    const int row_bytes = columns / f->columns * f->bytes;
    random_weights(rng, f, columns, w);
    for (int i = 0; i < ROWS * row_bytes; i += f->bytes) {
        const int row = i / row_bytes;
        for (int k = 0; k < 2; k++) {
            const int at = k ? f->d_min : f->d;
            const uint64_t pick = kin_rng_u64(rng);
            uint16_t factor = (uint16_t)(pick & (pick >> 32 & 1 ? 0x3ff : 0x7bff));
            if (row == KIN_PANEL_ROWS + 3 && k == 0) factor = 0x7c00;
            if (row == 2 * KIN_PANEL_ROWS + 3 && k == 1) factor |= 0x8000;
            if (at >= 0) memcpy(w + i + at, &factor, sizeof factor);
        }
    }
}

static void multiply(const kin_kernels *k, const kin_matrix *m, const float *x, int64_t n, kin_act *act, float *y) {
    const int64_t n_blocks = (m->columns + KIN_ACT_COLUMNS - 1) / KIN_ACT_COLUMNS;
    if (kin_kernel_packs(m->type)) k->quantize(kin_kernel_act_kind(m->type), m->columns, n, x, act, 0, n_blocks * n);
    k->matmul(m, act, x, n, y, m->rows, 0, m->rows / KIN_PANEL_ROWS);
}

// True if each row alone, multiplied by the matrix (which is stored twice) in every variant, gives the same as in its batch.
static bool are_alike(const kin_kernels *k, kin_matrix m, const float *x, kin_act *act, const float *expected) {
    float y[2 * ROWS];
    bool alike = true;
    m.rows = 2 * ROWS;
    for (int i = 0; i < kin_bits_n_variants * BATCH; i++) {
        const int row = i % BATCH;
        const uint64_t want = kin_bits_hash_f32(expected + row * ROWS, ROWS, 0);
        kin_kernels_variants[m.type] = (uint8_t)(i / BATCH);
        multiply(k, &m, x + row * m.columns, 1, act, y);
        alike = alike && kin_bits_hash_f32(y, ROWS, 0) == want && kin_bits_hash_f32(y + ROWS, ROWS, 0) == want;
    }
    kin_kernels_variants[m.type] = 0;
    return alike;
}

// Multiplies in all batch sizes that kernels treat differently.
static uint64_t product_of(const kin_kernels *k, int type, void (*fill)(kin_rng *, const format *, int columns, uint8_t *w)) {
    const format *f = formats;
    while (f->type != type) f++;
    const int columns = f->columns == 256 ? COLUMNS : f->columns > 32 ? COLUMNS + 128 : COLUMNS + 96;
    const size_t bytes = (size_t)(ROWS * columns / f->columns * f->bytes);
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)type);
    uint8_t *raw = malloc(bytes), *data = malloc(2 * bytes);
    float *x = activations(&rng, columns), *y = malloc(sizeof(float) * ROWS * BATCH);
    kin_act *act = malloc(kin_act_bytes(columns, BATCH));
    kin_assert(raw && data && act && y);
    fill(&rng, f, columns, raw);
    if (kin_kernel_packs(type))
        kin_kernel_pack(type, columns, ROWS, raw, data);
    else
        memcpy(data, raw, bytes);
    memcpy(data + bytes, data, bytes);

    const kin_matrix m = {.type = type, .columns = columns, .rows = ROWS, .is_packed = true, .data = data};
    for (int i = 0, n = 1; i < BATCH; i += n, n = n < BATCH - i ? n + 1 : BATCH - i)
        multiply(k, &m, x + i * columns, n, act, y + i * ROWS);
    uint64_t hash = kin_bits_hash_f32(y, ROWS * BATCH, 0);
    if (!are_alike(k, m, x, act, y)) hash = ~hash;
    free(raw);
    free(data);
    free(x);
    free(y);
    free(act);
    return hash;
}

static uint64_t product(const kin_kernels *k, int type) {
    return product_of(k, type, random_weights);
}
static uint64_t factors(const kin_kernels *k, int type) {
    return product_of(k, type, random_factors);
}

// ---- attention

// LONG_POSITIONS: three spans, because the sum of two is the same in either order.
enum { N_HEAD = 8, N_HEAD_KV = 2, POSITIONS = 700, LONG_POSITIONS = 1300, QUERIES = 30 };

static float *random_floats(kin_rng *rng, size_t n, float size) {
    float *x = malloc(n * sizeof *x);
    kin_assert(x);
    for (size_t i = 0; i < n; i++) x[i] = size * (float)((int)(kin_rng_u64(rng) % 4001) - 2000) / 2000.0f;
    return x;
}

// Computes each span as a separate task.
static uint64_t split_attention(const kin_kernels *k, kin_attention a, uint64_t seed) {
    a.partial_bytes = kin_attention_partial_bytes(&a.kv, a.n_head, a.n_rows, LONG_POSITIONS);
    a.partial = malloc(a.partial_bytes);
    kin_assert(a.partial);
    k->attend(&a, 0, kin_attention_plan(&a, 8));
    kin_assert(a.n_spans == 3);
    k->attend_merge(&a, 0, a.n_rows);
    free(a.partial);
    return kin_bits_hash_f32(a.out, (size_t)(a.n_rows * a.ldo), seed);
}

// Hashes the cache, and the attention of the last of n positions of a sequence, with a window or without.
static uint64_t attention_of(const kin_kernels *k, const kin_kv_layout *kv, int n, bool is_capped) {
    enum { KV_BLOCKS = (LONG_POSITIONS + KIN_KV_CELLS - 1) / KIN_KV_CELLS };
    const int k_width = N_HEAD_KV * kv->k_dim, v_width = N_HEAD_KV * kv->v_dim;
    const int q_width = N_HEAD * kv->k_dim, out_width = N_HEAD * kv->v_dim;
    const int n_blocks = (n + KIN_KV_CELLS - 1) / KIN_KV_CELLS;
    const size_t k_bytes = (size_t)n_blocks * kin_kv_block_bytes(kv, true);
    const size_t bytes = k_bytes + (size_t)n_blocks * kin_kv_block_bytes(kv, false), n_out = QUERIES * (size_t)out_width;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)kv->k_dim);
    float *k_rows = random_floats(&rng, (size_t)(n * k_width), 1), *v_rows = random_floats(&rng, (size_t)(n * v_width), 2);
    float *q = random_floats(&rng, QUERIES * (size_t)q_width, 3), *out = malloc(n_out * sizeof *out);
    uint8_t *cache = aligned_alloc(64, bytes);
    kin_assert(out && cache);
    memset(cache, 0, bytes);

    int32_t cells[LONG_POSITIONS], blocks[KV_BLOCKS], n_cells[QUERIES], first_cells[QUERIES];
    const int32_t *tables[QUERIES];
    for (int i = 0; i < n_blocks; i++) blocks[i] = n_blocks - 1 - i;
    for (int i = 0; i < n; i++) cells[i] = blocks[i / KIN_KV_CELLS] * KIN_KV_CELLS + i % KIN_KV_CELLS;
    for (int i = 0; i < QUERIES; i++) {
        n_cells[i] = n - QUERIES + i + 1;
        first_cells[i] = i % 3 ? 0 : n_cells[i] - 100;
        tables[i] = blocks;
    }
    kin_kv_rows rows = {*kv, cache, kv->v_in_k ? NULL : cache + k_bytes, k_rows, v_rows, k_width, v_width, cells};
    kin_attention a = {.kv = *kv,
                       .k = cache,
                       .v = cache + k_bytes,
                       .n_head = N_HEAD,
                       .scale = 0.125f,
                       .n_rows = QUERIES,
                       .q = q,
                       .ldq = q_width,
                       .n_cells = n_cells,
                       .first_cells = first_cells,
                       .blocks = tables,
                       .out = out,
                       .ldo = out_width};
    const float sinks[N_HEAD] = {1, -2, 8};
    if (is_capped) {
        a.softcap = 2;
        a.sinks = sinks;
    }
    k->kv_store(&rows, 0, n);
    k->attend(&a, 0, kin_attention_plan(&a, 1));
    uint64_t hash = kin_bits_hash_f32(out, n_out, kin_hash64(cache, bytes, 0));
    if (n == LONG_POSITIONS) hash = split_attention(k, a, hash);
    a.n_rows = 1; // the first row alone: few queries convert the cells while multiplying
    k->attend(&a, 0, kin_attention_plan(&a, 1));
    hash = kin_bits_hash_f32(out, (size_t)out_width, hash);
    a.n_head = N_HEAD_KV; // and a single query
    k->attend(&a, 0, kin_attention_plan(&a, 1));
    hash = kin_bits_hash_f32(out, (size_t)v_width, hash);
    free(k_rows);
    free(v_rows);
    free(q);
    free(out);
    free(cache);
    return hash;
}

static uint64_t attention(const kin_kernels *k, int type) {
    const int dims[] = {64, 96, 128, 256};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        uint64_t h = attention_of(k, &(kin_kv_layout){type, N_HEAD_KV, dims[i], dims[i], false, false}, POSITIONS, false);
        hash = kin_hash64(&h, sizeof h, hash);
    }
    return hash;
}

// Wide heads, and keys and values of unlike widths.
static uint64_t wide_attention(const kin_kernels *k, int type) {
    const int dims[][2] = {{512, 512}, {576, 512}, {192, 128}, {64, 320}};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        uint64_t h = attention_of(k, &(kin_kv_layout){type, N_HEAD_KV, dims[i][0], dims[i][1], false, false}, POSITIONS, false);
        hash = kin_hash64(&h, sizeof h, hash);
    }
    return hash;
}

// Values that are the first ones of the keys.
static uint64_t latent_attention(const kin_kernels *k, int type) {
    const int dims[][2] = {{576, 512}, {96, 64}};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        uint64_t h = attention_of(k, &(kin_kv_layout){type, N_HEAD_KV, dims[i][0], dims[i][1], true, false}, POSITIONS, false);
        hash = kin_hash64(&h, sizeof h, hash);
    }
    return hash;
}

// The same with keys that are stored by cell.
static uint64_t attention_by_cell(const kin_kernels *k, int type) {
    const int dims[][2] = {{576, 512}, {96, 64}};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        uint64_t h = attention_of(k, &(kin_kv_layout){type, N_HEAD_KV, dims[i][0], dims[i][1], true, true}, POSITIONS, false);
        hash = kin_hash64(&h, sizeof h, hash);
    }
    return hash;
}

static uint64_t long_attention(const kin_kernels *k, int type) {
    return attention_of(k, &(kin_kv_layout){type, N_HEAD_KV, 64, 64, false, false}, LONG_POSITIONS, false);
}

// With soft caps and sinks, over several spans.
static uint64_t capped_attention(const kin_kernels *k, int type) {
    return attention_of(k, &(kin_kv_layout){type, N_HEAD_KV, 64, 64, false, false}, LONG_POSITIONS, true);
}

// ---- the small operators

enum { WIDTH = 2048, N_EXPERT = 96 };

static uint64_t norm(const kin_kernels *k, int what) {
    const float sizes[] = {1e-3f, 1, 1e3f};
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    for (int i = 0; i < 3; i++) {
        float *x = random_floats(&rng, WIDTH, sizes[i]), *weight = random_floats(&rng, WIDTH, 2);
        for (int64_t n = 16; n <= WIDTH; n *= 2) { // the next x is the previous y
            k->rms_norm(n, x, weight, 1e-5f, x);
            hash = kin_bits_hash_f32(x, WIDTH, hash);
        }
        free(x);
        free(weight);
    }
    return hash;
}

static uint64_t centered(const kin_kernels *k, int what) {
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    for (int64_t n = 16; n <= WIDTH; n *= 2) {
        float *x = random_floats(&rng, WIDTH, (float)n);
        k->center(n, x, x);
        hash = kin_bits_hash_f32(x, WIDTH, hash);
        free(x);
    }
    return hash;
}

// Alternates add and add_scaled, as a layer adds its parts.
static uint64_t sums(const kin_kernels *k, int what) {
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    float *y = random_floats(&rng, WIDTH, 1);
    for (int i = 1; i <= 4; i++) {
        float *x = random_floats(&rng, WIDTH, (float)i);
        k->add(WIDTH - i, x, y);
        k->add_scaled(WIDTH, 0.3f * (float)i, x, y);
        free(x);
    }
    uint64_t hash = kin_bits_hash_f32(y, WIDTH, 0);
    free(y);
    return hash;
}

static uint64_t gate(const kin_kernels *k, int what) {
    const float sizes[] = {1, 10, 200};
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, 3);
    for (int i = 0; i < 3; i++) {
        float *x = random_floats(&rng, WIDTH, sizes[i]), *up = random_floats(&rng, WIDTH, 3);
        k->gate((kin_gate)what, WIDTH, x, up, x);
        hash = kin_bits_hash_f32(x, WIDTH, hash);
        free(x);
        free(up);
    }
    return hash;
}

static uint64_t limited_gate(const kin_kernels *k, int what) {
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    for (int i = 1; i <= 3; i++) {
        float *x = random_floats(&rng, WIDTH, 10), *up = random_floats(&rng, WIDTH, 10);
        k->gate_limited(KIN_GATE_SILU, 0.5f * (float)(i * i), WIDTH, x, up, x);
        hash = kin_bits_hash_f32(x, WIDTH, hash);
        free(x);
        free(up);
    }
    return hash;
}

// Gates of whole heads, then of each of their values, with heads of 64.
static uint64_t head_gates(const kin_kernels *k, int what) {
    enum { DIM = 64, N = WIDTH / DIM };
    const float sizes[] = {1, 10, 200};
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, 9);
    for (int i = 0; i < 3; i++) {
        float *x = random_floats(&rng, WIDTH, 2), *by = random_floats(&rng, WIDTH, sizes[i]);
        k->gate_heads((kin_head_gate)what, false, N, DIM, by, x);
        hash = kin_bits_hash_f32(x, WIDTH, hash);
        k->gate_heads((kin_head_gate)what, true, N, DIM, by, x);
        hash = kin_bits_hash_f32(x, WIDTH, hash);
        free(by);
        free(x);
    }
    return hash;
}

// Scaling by a sigmoid and soft caps, with a length that is not a multiple of 16.
static uint64_t caps(const kin_kernels *k, int what) {
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    float *x = random_floats(&rng, WIDTH, 20);
    for (int i = 1; i <= 4; i++) {
        k->scale_sigmoid(WIDTH, (float)i - 2.5f, x, x);
        k->cap(WIDTH - i, 3, i % 2 ? 30 : 0, x);
        hash = kin_bits_hash_f32(x, WIDTH, hash);
    }
    free(x);
    return hash;
}

// Frequencies, angles and rotated heads: plain, with factors, with YaRN; both kinds of pairs.
static uint64_t rope(const kin_kernels *k, int what) {
    enum { N_ROT = 128 };
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    float factors[N_ROT / 2], cos_sin[N_ROT], *head = random_floats(&rng, N_ROT, 2);
    double freq[N_ROT / 2];
    for (int i = 0; i < N_ROT / 2; i++) factors[i] = 1 + (float)i / 8;
    const kin_rope ropes[] = {
        {.n_rot = 64, .base = 10000, .freq_scale = 1, .attn_factor = 1},
        {.n_rot = N_ROT, .base = 500000, .freq_scale = 1, .attn_factor = 1, .factors = factors},
        {.n_rot = N_ROT,
         .base = 1e6,
         .freq_scale = 0.25,
         .ext_factor = 1,
         .attn_factor = 1,
         .beta_fast = 32,
         .beta_slow = 1,
         .n_ctx_orig = 32768},
    };
    for (size_t i = 0; i < sizeof ropes / sizeof *ropes; i++) {
        kin_rope_frequencies(&ropes[i], freq);
        hash = kin_hash64(freq, sizeof *freq * (size_t)(ropes[i].n_rot / 2), hash);
        for (int32_t pos = 1; pos < 1 << 20; pos += 1 + pos / 32) { // enough to expose another order of operations
            kin_rope_cos_sin(&ropes[i], freq, pos, cos_sin);
            k->rope(pos % 2, ropes[i].n_rot, cos_sin, head);
            hash = kin_bits_hash_f32(head, N_ROT, kin_bits_hash_f32(cos_sin, (size_t)ropes[i].n_rot, hash));
        }
    }
    free(head);
    return hash;
}

// Chooses 1, 2, 4, ... experts by softmax; logits in coarse steps are often equal.
static uint64_t route(const kin_kernels *k, int what) {
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    for (int n = 1; n <= 64; n *= 2) {
        int32_t chosen[N_EXPERT];
        float share[N_EXPERT], *logits = random_floats(&rng, N_EXPERT, 3);
        for (int i = 0; i < N_EXPERT && n == 8; i++) logits[i] = (float)(int)logits[i];
        k->route(&(kin_routing){.n_expert = N_EXPERT, .n_used = n, .scale = 1}, logits, chosen, share);
        hash = kin_bits_hash_f32(share, (size_t)n, kin_hash64(chosen, sizeof *chosen * (size_t)n, hash));
        free(logits);
    }
    return hash;
}

// Softmax or sigmoid of all experts, with a bias, groups and a scale.
static uint64_t routings(const kin_kernels *k, int what) {
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    float *bias = random_floats(&rng, N_EXPERT, 0.2f);
    for (int i = 0; i < 8; i++) {
        int32_t chosen[N_EXPERT];
        float share[N_EXPERT], *logits = random_floats(&rng, N_EXPERT, 3);
        const kin_routing r = {.n_expert = N_EXPERT,
                               .n_used = 6,
                               .gating = i % 2 ? KIN_GATING_SIGMOID : KIN_GATING_SOFTMAX,
                               .normalize = i & 2,
                               .scale = i & 1 ? 2.5f : 1,
                               .n_group = i & 4 ? 8 : 0,
                               .n_group_used = 3,
                               .bias = i % 3 ? bias : NULL};
        k->route(&r, logits, chosen, share);
        hash = kin_bits_hash_f32(share, 6, kin_hash64(chosen, 6 * sizeof *chosen, hash));
        free(logits);
    }
    free(bias);
    return hash;
}

// An indexer's scores, of numbers of heads that are no multiples of 4 and some that are. what: the keys of a block
static uint64_t indexes(const kin_kernels *k, int what) {
    enum { MOST_HEADS = 9, DIM = 48 };
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, 17);
    for (int n = 1; n <= MOST_HEADS; n++) {
        float *q = random_floats(&rng, MOST_HEADS * DIM, 3), *weights = random_floats(&rng, MOST_HEADS, 2);
        float *x = random_floats(&rng, DIM * KIN_KV_CELLS, 2), scores[KIN_KV_CELLS];
        uint16_t keys[DIM * KIN_KV_CELLS];
        k->to_f16(DIM * KIN_KV_CELLS, x, keys);
        k->index_scores(&(kin_index_query){n, DIM, q, weights, 0, what}, keys, scores);
        hash = kin_bits_hash_f32(scores, (size_t)what, hash);
        free(q);
        free(weights);
        free(x);
    }
    return hash;
}

// Softmax of lengths that are no multiples of 16, with and without a sink; rows pooled by their gates.
static uint64_t pools(const kin_kernels *k, int what) {
    enum { N = 48, MOST = 130 };
    const float *gates[MOST], *rows[MOST];
    float pooled[N];
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    for (int n = 1; n <= MOST; n = n * 2 + 1) {
        float *x = random_floats(&rng, N * MOST, 8), *gate = random_floats(&rng, N * MOST, 5), sink = (float)n / 20 - 2;
        for (int i = 0; i < n; i++) {
            gates[i] = gate + i * N;
            rows[i] = x + i * N;
        }
        uint16_t narrow[N];
        k->to_f16(N, x, narrow);
        k->from_f16(N, narrow, x);
        k->pool(N, n, gates, rows, pooled);
        hash = kin_bits_hash_f32(pooled, N, hash);
        k->softmax(n, 0.3f, n % 4 == 3 ? &sink : NULL, x);
        hash = kin_bits_hash_f32(x, (size_t)n, hash);
        free(gate);
        free(x);
    }
    return hash;
}

// The gate whose limit comes first, and experts chosen by the root of a softplus, or given.
static uint64_t clamped(const kin_kernels *k, int what) {
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    for (int i = 1; i <= 4; i++) {
        const int32_t given[] = {3, 60, 17};
        int32_t chosen[3];
        float *x = random_floats(&rng, WIDTH, 10), *up = random_floats(&rng, WIDTH, 10), share[3];
        const kin_routing r = {.n_expert = N_EXPERT,
                               .n_used = 3,
                               .gating = KIN_GATING_SOFTPLUS,
                               .normalize = i > 1,
                               .scale = 1.5f,
                               .bias = i == 3 ? up : NULL,
                               .given = i == 4 ? given : NULL};
        k->route(&r, x, chosen, share);
        hash = kin_bits_hash_f32(share, 3, kin_hash64(chosen, sizeof chosen, hash));
        k->gate_limited(KIN_GATE_CLAMPED, 0.5f * (float)(i * i), WIDTH, x, up, x);
        hash = kin_bits_hash_f32(x, WIDTH, hash);
        free(x);
        free(up);
    }
    return hash;
}

// Gates of 2 to 8 streams, small and large, in the middle of the model and at its end.
static uint64_t sinkhorns(const kin_kernels *k, int what) {
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    for (int i = 0; i < 12; i++) {
        const int n = 2 + i % 4 * 2, n_gates = i % 5 == 4 ? n : n * (2 + n);
        const float scale[] = {0.5f, 1, (float)(1 << i % 6)};
        float *m = random_floats(&rng, 96, 3), *base = random_floats(&rng, 96, 1), gates[96];
        const kin_sinkhorn s = {n, 1 + i % 3 * 10, i % 2 ? 1e-6f : 1e-3f, n_gates == n, base, scale};
        k->sinkhorn(&s, m, gates);
        hash = kin_bits_hash_f32(gates, (size_t)n_gates, hash);
        free(base);
        free(m);
    }
    return hash;
}

// Convolutions of 1 to 8 taps, over rows that overlap.
enum { CONVOLUTION, CONVOLUTION_PLAIN, CONVOLUTION_BIASED };
static uint64_t convolutions(const kin_kernels *k, int what) {
    enum { N = 96, N_ROWS = 5 };
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, 11);
    float *x = random_floats(&rng, N * (N_ROWS + KIN_CONVOLUTION_TAPS), 2), y[N_ROWS * N];
    for (int n_taps = 1; n_taps <= KIN_CONVOLUTION_TAPS; n_taps++) {
        const float *rows[N_ROWS + KIN_CONVOLUTION_TAPS];
        float *out[N_ROWS], *taps = random_floats(&rng, N * KIN_CONVOLUTION_TAPS, 1);
        for (int i = 0; i < N_ROWS + KIN_CONVOLUTION_TAPS; i++) rows[i] = x + i * N;
        for (int i = 0; i < N_ROWS; i++) out[i] = y + i * N;
        const kin_convolution c = {.n_taps = n_taps,
                                   .n = N,
                                   .taps = taps,
                                   .bias = what == CONVOLUTION_BIASED ? taps + N : NULL,
                                   .n_rows = N_ROWS,
                                   .x = rows,
                                   .y = out,
                                   .is_plain = what == CONVOLUTION_PLAIN};
        k->convolve(&c);
        hash = kin_bits_hash_f32(y, N_ROWS * N, hash);
        free(taps);
    }
    free(x);
    return hash;
}

// A gated delta net, with one decay or with one of each row, which may be bounded, or a state space, whose tokens follow from
// those before: 144 values are groups of blocks and a rest.
enum { DELTA_NET = 12, STATE_SPACE, DELTA_ROWS, DELTA_BOUNDED };
static uint64_t delta_net(const kin_kernels *k, int what) {
    enum { N_KEY = 64, N_VALUE = 144, N_ROWS = 16 };
    const float sizes[] = {0.3f, 3, 30}, least = what == DELTA_BOUNDED ? -5 : 0;
    const bool decays_rows = what >= DELTA_ROWS;
    float m[N_KEY * N_VALUE] = {0}, out[N_VALUE];
    uint64_t hash = 0;
    kin_rng rng;
    kin_rng_seed(&rng, (uint64_t)what);
    for (int i = 0; i < 3; i++) {
        float *x = random_floats(&rng, N_ROWS, sizes[i]), *b = random_floats(&rng, N_ROWS, sizes[i]);
        k->delta_factors(N_ROWS, -0.7f, 0.2f, x, what == STATE_SPACE ? NULL : b, x, b);
        hash = kin_bits_hash_f32(b, N_ROWS, kin_bits_hash_f32(x, N_ROWS, hash));
        for (int row = 0; row < N_ROWS; row++) {
            float *q = random_floats(&rng, N_KEY, 1), *key = random_floats(&rng, N_KEY, 1), *v = random_floats(&rng, N_VALUE, 2);
            float *decays = decays_rows ? random_floats(&rng, 2 * N_KEY, sizes[i]) : NULL;
            k->unit(N_KEY, 1e-6f, q);
            k->unit(N_KEY, 1e-6f, key);
            if (decays) k->delta_decays(N_KEY, -0.7f, least, decays + N_KEY, decays, decays);
            const kin_delta_row r = {.q = q, .k = key, .v = v, .decay = x[row], .beta = b[row], .decays = decays, .out = out};
            const kin_delta_rule d = {N_KEY, N_VALUE, what == STATE_SPACE, 0.125f, 1, row % 4 != 3, &r, m, decays_rows};
            k->delta(&d);
            hash = kin_bits_hash_f32(out, N_VALUE, hash);
            free(decays);
            free(v);
            free(key);
            free(q);
        }
        free(b);
        free(x);
    }
    return kin_bits_hash_f32(m, N_KEY * N_VALUE, hash);
}

// ---- the table

static const kin_bits_case cases[] = {
    {"floats", 0x6f4e9dd8e3c91336, primitive, KIN_PRIMITIVE_FLOATS},
    {"halves", 0x54dbc3472acfdcf4, primitive, KIN_PRIMITIVE_HALVES},
    {"round", 0xa185412dbf07a36f, primitive, KIN_PRIMITIVE_ROUND},
    {"exp", 0x7cf5083c4ac48d2f, primitive, KIN_PRIMITIVE_EXP},
    {"integers", 0xcf80bf98dfafb349, primitive, KIN_PRIMITIVE_INTEGERS},
    {"bytes", 0xc035d472112b9916, primitive, KIN_PRIMITIVE_BYTES},
    {"dots", 0xc77426993f685094, primitive, KIN_PRIMITIVE_DOTS},
    {"words", 0x0e72fe86daa4ef16, primitive, KIN_PRIMITIVE_WORDS},
    {"quantize 256", 0x5871abd2ba12cc57, rounded, KIN_ACT_256},
    {"quantize 32", 0x4ddf4a47b3810172, rounded, KIN_ACT_32},
    {"matmul Q4_K", 0xab6ef8da726c09f8, product, KIN_TYPE_Q4_K},
    {"matmul Q6_K", 0x8387dfba14091606, product, KIN_TYPE_Q6_K},
    {"matmul Q8_0", 0xec79b4f01ad83d36, product, KIN_TYPE_Q8_0},
    {"matmul Q4_0", 0x550f678704f30c09, product, KIN_TYPE_Q4_0},
    {"matmul F16", 0xbad2e62bd404223c, product, KIN_TYPE_F16},
    {"matmul BF16", 0xd08e9152631a597e, product, KIN_TYPE_BF16},
    {"matmul F32", 0x11bb3512ecba1554, product, KIN_TYPE_F32},
    {"matmul Q5_K", 0x4aa92a45c5ec2785, product, KIN_TYPE_Q5_K},
    {"matmul Q3_K", 0xf086e47a9d2cac5b, product, KIN_TYPE_Q3_K},
    {"matmul Q2_K", 0xb8a19ff4cd261cce, product, KIN_TYPE_Q2_K},
    {"matmul IQ4_XS", 0x689463a12bed674f, product, KIN_TYPE_IQ4_XS},
    {"matmul MXFP4", 0x2e86ca53ac988212, product, KIN_TYPE_MXFP4},
    {"matmul Q4_1", 0x36b8f73a6d7691b4, product, KIN_TYPE_Q4_1},
    {"matmul Q5_0", 0xb297bfc895eecc5e, product, KIN_TYPE_Q5_0},
    {"matmul Q5_1", 0xdee8b8d0e8ec9378, product, KIN_TYPE_Q5_1},
    {"matmul IQ4_NL", 0x05909d3da8941cb8, product, KIN_TYPE_IQ4_NL},
    {"matmul IQ3_S", 0xffc57c270059d9df, product, KIN_TYPE_IQ3_S},
    {"matmul IQ3_XXS", 0x64b7c58652757f91, product, KIN_TYPE_IQ3_XXS},
    {"matmul IQ2_S", 0x6990052b8f063d92, product, KIN_TYPE_IQ2_S},
    {"matmul IQ2_XS", 0xab44dec9d6f1859b, product, KIN_TYPE_IQ2_XS},
    {"matmul IQ2_XXS", 0x8708edca3f6c0926, product, KIN_TYPE_IQ2_XXS},
    {"matmul IQ1_S", 0x1c0979bda66b9167, product, KIN_TYPE_IQ1_S},
    {"matmul IQ1_M", 0x6598ae0a55b64548, product, KIN_TYPE_IQ1_M},
    {"matmul TQ1_0", 0x283cc73f78ccedb5, product, KIN_TYPE_TQ1_0},
    {"matmul TQ2_0", 0xb7c01fc24534c89a, product, KIN_TYPE_TQ2_0},
    {"matmul NVFP4", 0xacc56eb3f7294372, product, KIN_TYPE_NVFP4},
    {"matmul Q2_0", 0xf496229d64148662, product, KIN_TYPE_Q2_0},
    {"matmul Q1_0", 0xb0d97a14932232ee, product, KIN_TYPE_Q1_0},
    {"factors Q4_K", 0x95e559510d99a487, factors, KIN_TYPE_Q4_K},
    {"factors Q5_K", 0x60e0137e4603babb, factors, KIN_TYPE_Q5_K},
    {"attention F16", 0xf6f4752f24548c87, attention, KIN_TYPE_F16},
    {"attention Q8_0", 0x51cdd92660d65ff9, attention, KIN_TYPE_Q8_0},
    {"wide attention F16", 0xfdd384e6a51fd988, wide_attention, KIN_TYPE_F16},
    {"wide attention Q8_0", 0x94118c2930bf0302, wide_attention, KIN_TYPE_Q8_0},
    {"latent attention F16", 0x6d0154d1a029856c, latent_attention, KIN_TYPE_F16},
    {"latent attention Q8_0", 0xafe25f57f4bbad29, latent_attention, KIN_TYPE_Q8_0},
    {"attention by cell F16", 0xae09213bb39965fa, attention_by_cell, KIN_TYPE_F16},
    {"attention by cell Q8_0", 0x3d05596e46aa0f9c, attention_by_cell, KIN_TYPE_Q8_0},
    {"long attention F16", 0x7d19add95cd988dd, long_attention, KIN_TYPE_F16},
    {"long attention Q8_0", 0x35ad097018531833, long_attention, KIN_TYPE_Q8_0},
    {"capped attention F16", 0x4cf8bfd1ff1fddc9, capped_attention, KIN_TYPE_F16},
    {"capped attention Q8_0", 0xbfe09734db1f9be4, capped_attention, KIN_TYPE_Q8_0},
    {"norm", 0xbe129113f5375087, norm, 1},
    {"center", 0xa57dc4d0681440f1, centered, 8},
    {"sums", 0x0fa7afc50724ffeb, sums, 2},
    {"gate by SiLU", 0xe38c9ec3153cc4df, gate, KIN_GATE_SILU},
    {"gate by GELU", 0x9ad48b1d81e9e184, gate, KIN_GATE_GELU},
    {"gate of gpt-oss", 0x2d64fff0c04f6fcf, gate, KIN_GATE_OAI},
    {"gate with a limit", 0x96a947d56b7f5f15, limited_gate, 10},
    {"heads by sigmoid", 0xb56d2c8eef5717c6, head_gates, KIN_HEAD_GATE_SIGMOID},
    {"heads by softplus", 0x8207f6f2a4cc4232, head_gates, KIN_HEAD_GATE_SOFTPLUS},
    {"caps", 0x4344e122f2f9753a, caps, 6},
    {"rope", 0xbba4e98faf3baaa8, rope, 4},
    {"route", 0x06616b24de335ab8, route, 5},
    {"routings", 0x8f9d0fdafc57a6a0, routings, 7},
    {"gates of streams", 0x6dc928574d611a6e, sinkhorns, 14},
    {"pools", 0x928173e667ba02e7, pools, 15},
    {"scores of indexers", 0x28d4f81abf8de0be, indexes, KIN_KV_CELLS},
    {"scores of blocks with one key", 0x6307914a16edb98c, indexes, KIN_POOLED_KEYS},
    {"clamped gates", 0xcafe5d0ca394f183, clamped, 16},
    {"convolutions", 0x26b332d3f49a3c52, convolutions, CONVOLUTION},
    {"plain convolutions", 0x4d1930d3694ce1ab, convolutions, CONVOLUTION_PLAIN},
    {"biased convolutions", 0x1db3f3c6b459097f, convolutions, CONVOLUTION_BIASED},
    {"delta net", 0x59328ad68f592111, delta_net, DELTA_NET},
    {"state space", 0xc17334ff4846cd06, delta_net, STATE_SPACE},
    {"delta net with a decay of each row", 0xfedd02364621d6bb, delta_net, DELTA_ROWS},
    {"delta net with bounded decays of each row", 0xcf4308650848c391, delta_net, DELTA_BOUNDED},
};

const kin_bits_case *kin_bits_at(int i) {
    return i >= 0 && i < (int)(sizeof cases / sizeof *cases) ? &cases[i] : NULL;
}
