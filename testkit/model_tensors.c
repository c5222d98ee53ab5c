#include "testkit/model_tensors.h"

#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testkit/random_rows.h"

#define SOURCES_MAX 32 // pairs of a type and a row length
#define TOKENS_SPECIAL KIN_GEN_TOKENS_SPECIAL
#define TOKENS_BYTE KIN_GEN_TOKENS_BYTE
#define TOKEN_END 2

typedef struct kin_generator generator;

// ---- mixes: the type of each weight matrix. Those with `more` follow llama.cpp's recipe for Q4_K_M; the others are pure, except
// for the one with `up`.

typedef struct mix {
    const char *name;
    int type;      // enum ggml_type of most matrices
    int more;      // for the output and the most sensitive matrices
    int file_type; // general.file_type, llama.cpp's numbers
    int up;        // for the matrices that a gate multiplies; 0: like most
} mix;

static const char mix_names[] = "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, q4_k_m, q5_k_m, "
                                "iq4_nl, iq4_xs, iq3_s, iq3_xxs, iq2_s, iq2_xs, iq2_xxs, iq1_s, iq1_m, tq1_0, tq2_0, "
                                "mxfp4, nvfp4, q2_0, q1_0, q4_k_q5_0";

#define PURE(name, type, file_type)                                                                                              \
    { name, GGML_TYPE_##type, GGML_TYPE_##type, file_type, 0 }
static const mix mixes[] = {
    PURE("f32", F32, 0),
    PURE("f16", F16, 1),
    PURE("bf16", BF16, 32),
    PURE("q8_0", Q8_0, 7),
    PURE("q4_0", Q4_0, 2),
    PURE("q4_1", Q4_1, 3),
    PURE("q5_0", Q5_0, 8),
    PURE("q5_1", Q5_1, 9),
    PURE("q2_k", Q2_K, 10),
    PURE("q3_k", Q3_K, 11),
    PURE("q4_k", Q4_K, 14),
    PURE("q5_k", Q5_K, 16),
    PURE("q6_k", Q6_K, 18),
    PURE("iq4_nl", IQ4_NL, 25),
    PURE("iq4_xs", IQ4_XS, 30),
    PURE("iq3_s", IQ3_S, 26),
    PURE("iq3_xxs", IQ3_XXS, 23),
    PURE("iq2_s", IQ2_S, 28),
    PURE("iq2_xs", IQ2_XS, 20),
    PURE("iq2_xxs", IQ2_XXS, 19),
    PURE("iq1_s", IQ1_S, 24),
    PURE("iq1_m", IQ1_M, 31),
    PURE("tq1_0", TQ1_0, 36),
    PURE("tq2_0", TQ2_0, 37),
    PURE("mxfp4", MXFP4, 38),
    PURE("nvfp4", NVFP4, 39),
    PURE("q1_0", Q1_0, 40),
    PURE("q2_0", Q2_0, 41),
    {"q4_k_m", GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, 15, 0},
    {"q5_k_m", GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, 17, 0},
    {"q4_k_q5_0", GGML_TYPE_Q4_K, GGML_TYPE_Q4_K, 14, GGML_TYPE_Q5_0},
};

const char *kin_model_mixes(void) {
    return mix_names;
}

static const mix *find_mix(const char *name) {
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++) {
        if (strcmp(mixes[i].name, name) == 0) return &mixes[i];
    }
    return NULL;
}

static bool use_more_bits(int il, int n_layer) { // the first and last eighth, and every third layer in between
    return il < n_layer / 8 || il >= 7 * n_layer / 8 || (il - n_layer / 8) % 3 == 2;
}

static int wanted_type(const kin_gen_facts *facts, kin_role r, int il) {
    const mix *m = find_mix(facts->mix);
    if (r == KIN_ROLE_FFN_UP && m->up) return m->up;
    if (m->more == m->type) return m->type;
    bool mixtral = facts->is_mixtral; // its shared attention is small: better bits cost little
    switch (r) {
    case KIN_ROLE_OUTPUT: return m->more;
    case KIN_ROLE_EMBD: return facts->tied ? m->more : m->type;
    case KIN_ROLE_ATTN_K: return mixtral ? GGML_TYPE_Q8_0 : m->type;
    case KIN_ROLE_ATTN_V: return mixtral ? GGML_TYPE_Q8_0 : use_more_bits(il, facts->n_layer) ? m->more : m->type;
    case KIN_ROLE_ATTN_OUTPUT: return mixtral ? GGML_TYPE_Q5_K : m->type;
    case KIN_ROLE_FFN_DOWN: return use_more_bits(il, facts->n_layer) ? m->more : m->type;
    default: return m->type;
    }
}

// llama.cpp's fallback for rows that are not whole blocks of 256.
static int fitting_type(int type, int64_t n_in) {
    if (n_in % ggml_blck_size((enum ggml_type)type) == 0) return type;
    if (n_in % 32 != 0) return GGML_TYPE_F16;
    switch (type) {
    case GGML_TYPE_Q4_K: return GGML_TYPE_Q5_0;
    case GGML_TYPE_Q5_K: return GGML_TYPE_Q5_1;
    case GGML_TYPE_Q6_K: return GGML_TYPE_Q8_0;
    default: return GGML_TYPE_IQ4_NL;
    }
}

bool kin_model_has_mix(const char *name) {
    return find_mix(name) != NULL;
}

// ---- the generator

typedef struct matrix { // user of fill_matrix
    const kin_random_rows *rows;
    uint64_t seed;
    size_t zeros_bytes; // size of the row of </s>, which is all zero; 0: that row is like the others
    uint64_t (*row_of)(const void *user, uint64_t row); // NULL: rows have their own numbers
    const void *user;
    float skew;
    int64_t n_in;
    struct matrix *next;
} matrix;

typedef struct vector { // small f32 data, kept until saved
    struct vector *next;
    float at[];
} vector;

struct kin_generator {
    kin_gen_facts facts;
    kin_gguf_writer *writer;
    struct {
        int type;
        int64_t n_in;
        kin_random_rows *rows;
    } sources[SOURCES_MAX];
    int n_sources;
    matrix *matrices;
    vector *vectors;
};

static void *alloc(size_t n) {
    void *at = calloc(1, n);
    kin_assert(at);
    return at;
}

static uint64_t seed_of(const generator *g, const char *name) {
    uint64_t seed = g->facts.seed;
    for (; *name; name++) seed = kin_random_mix(seed, (uint64_t)*name);
    return seed;
}

static const kin_random_rows *get_rows(generator *g, int type, int64_t n_in) {
    for (int i = 0; i < g->n_sources; i++) {
        if (g->sources[i].type == type && g->sources[i].n_in == n_in) return g->sources[i].rows;
    }
    kin_assert(g->n_sources < SOURCES_MAX);
    uint64_t seed = kin_random_mix(kin_random_mix(g->facts.seed, (uint64_t)type), (uint64_t)n_in);
    kin_random_rows *rows = kin_random_rows_new(type, n_in, g->facts.pooled, seed);
    g->sources[g->n_sources].type = type;
    g->sources[g->n_sources].n_in = n_in;
    g->sources[g->n_sources++].rows = rows;
    return rows;
}

static void fill_mapped(const matrix *m, uint64_t row_begin, uint64_t n_rows, uint8_t *out) {
    const size_t bytes = kin_random_rows_bytes(m->rows);
    for (uint64_t i = 0; i < n_rows; i++)
        kin_random_rows_fill(m->rows, m->seed, m->row_of(m->user, row_begin + i), 1, out + i * bytes);
}

static void fill_matrix(void *user, uint64_t row_begin, uint64_t n_rows, uint8_t *out) {
    const matrix *m = user;
    if (m->row_of)
        fill_mapped(m, row_begin, n_rows, out);
    else
        kin_random_rows_fill(m->rows, m->seed, row_begin, n_rows, out);
    if (row_begin <= TOKEN_END && TOKEN_END < row_begin + n_rows && m->zeros_bytes > 0)
        memset(out + (TOKEN_END - row_begin) * m->zeros_bytes, 0, m->zeros_bytes);
}

static matrix *add_typed(generator *g, const char *name, int type, int64_t n_in, int64_t n_out, int64_t n_expert) {
    matrix *m = alloc(sizeof *m);
    *m = (matrix){.rows = get_rows(g, type, n_in), .seed = seed_of(g, name), .next = g->matrices};
    if (g->facts.endless && strcmp(name, "output.weight") == 0) m->zeros_bytes = ggml_row_size((enum ggml_type)type, n_in);
    g->matrices = m;
    int64_t ne[] = {n_in, n_out, n_expert};
    kin_gguf_writer_add_filled(g->writer, name, type, n_expert ? 3 : 2, ne, fill_matrix, m);
    return m;
}

// Rows have different lengths: as a router's, long ones more often give one of the largest logits.
static void fill_skewed(void *user, uint64_t row_begin, uint64_t n_rows, uint8_t *out) {
    const matrix *m = user;
    float *row = (float *)out;
    fill_matrix(user, row_begin, n_rows, out);
    for (uint64_t r = row_begin; r < row_begin + n_rows; r++) {
        double sum = -6; // of twelve numbers from 0 to 1: about normal
        for (uint64_t i = 0; i < 12; i++) sum += (double)(kin_random_mix(kin_random_mix(m->seed, r), i) >> 11) * 0x1p-53;
        const float factor = expf(m->skew * (float)sum);
        for (int64_t i = 0; i < m->n_in; i++) *row++ *= factor;
    }
}

static matrix *new_floats(generator *g, const char *name, int64_t n_in) {
    matrix *m = alloc(sizeof *m);
    *m = (matrix){.rows = get_rows(g, GGML_TYPE_F32, n_in), .seed = seed_of(g, name), .next = g->matrices};
    m->n_in = n_in;
    g->matrices = m;
    return m;
}

void kin_gen_add_taps(generator *g, const char *name, int64_t n_taps, int64_t n_channels) {
    const int64_t ne[] = {n_taps, 1, n_channels};
    kin_gguf_writer_add_filled(g->writer, name, GGML_TYPE_F32, 3, ne, fill_matrix, new_floats(g, name, n_taps));
}

void kin_gen_add_floats(generator *g, const char *name, int64_t n_in, int64_t n_out, float skew) {
    const int64_t ne[] = {n_in, n_out};
    matrix *m = new_floats(g, name, n_in);
    m->skew = skew;
    kin_gguf_writer_add_filled(g->writer, name, GGML_TYPE_F32, 2, ne, skew > 0 ? fill_skewed : fill_matrix, m);
}

void kin_gen_add_known(generator *g, const char *name, int64_t n_in, int64_t n_out,
                       uint64_t (*row_of)(const void *user, uint64_t row), const void *user) {
    matrix *m = add_typed(g, name, fitting_type(wanted_type(&g->facts, KIN_ROLE_OUTPUT, -1), n_in), n_in, n_out, 0);
    m->row_of = row_of;
    m->user = user;
    m->seed = g->facts.seed;
}

void kin_gen_add_matrix(generator *g, kin_role r, int il, const char *name, int64_t n_in, int64_t n_out, int64_t n_expert) {
    add_typed(g, name, fitting_type(wanted_type(&g->facts, r, il), n_in), n_in, n_out, n_expert);
}

float *kin_gen_add_vector(generator *g, const char *name, float mean, int64_t n) {
    return kin_gen_add_vectors(g, name, mean, n, 1);
}

float *kin_gen_add_vectors(generator *g, const char *name, float mean, int64_t n_each, int64_t n_rows) {
    const int64_t n = n_each * n_rows, ne[] = {n_each, n_rows};
    vector *v = alloc(sizeof *v + (size_t)n * sizeof v->at[0]);
    v->next = g->vectors;
    g->vectors = v;
    kin_gguf_writer_add(g->writer, name, GGML_TYPE_F32, n_rows > 1 ? 2 : 1, ne, v->at);
    kin_random_gaussian(seed_of(g, name), 0.1f, n, v->at);
    for (int64_t i = 0; i < n; i++) v->at[i] += mean;
    return v->at;
}

void kin_gen_add_experts(generator *g, const char *name, int n_used, int64_t n_rows, int n_expert) {
    const int64_t n = n_used * n_rows, ne[] = {n_used, n_rows};
    vector *v = alloc(sizeof *v + (size_t)n * sizeof v->at[0]);
    int32_t *to = (int32_t *)v->at;
    const uint64_t seed = seed_of(g, name);
    v->next = g->vectors;
    g->vectors = v;
    for (int64_t row = 0; row < n_rows; row++) {
        const int first = (int)(kin_random_mix(seed, (uint64_t)row) % (uint64_t)n_expert);
        for (int i = 0; i < n_used; i++) *to++ = (first + i * (1 + (int)(row % 2))) % n_expert;
    }
    kin_gguf_writer_add(g->writer, name, GGML_TYPE_I32, 2, ne, v->at);
}

kin_generator *kin_gen_new(const kin_gen_facts *facts) {
    generator *g = alloc(sizeof *g);
    kin_assert(find_mix(facts->mix));
    g->facts = *facts;
    g->writer = kin_gguf_writer_new();
    return g;
}

void kin_gen_free(generator *g) {
    if (!g) return;
    for (matrix *m = g->matrices, *after; m; m = after) {
        after = m->next;
        free(m);
    }
    for (vector *v = g->vectors, *after; v; v = after) {
        after = v->next;
        free(v);
    }
    for (int i = 0; i < g->n_sources; i++) kin_random_rows_free(g->sources[i].rows);
    kin_gguf_writer_free(g->writer);
    free(g);
}

kin_gguf_writer *kin_gen_writer(generator *g) {
    return g->writer;
}

// ---- metadata

void kin_gen_put_types(generator *g) {
    kin_gguf_writer_put_int(g->writer, "general.quantization_version", KIN_GGUF_U32, GGML_QNT_VERSION);
    kin_gguf_writer_put_int(g->writer, "general.file_type", KIN_GGUF_U32, find_mix(g->facts.mix)->file_type);
}

typedef struct token {
    char text[64];
    int type; // in the format's numbers: 1 normal, 2 unknown, 3 control, 6 byte
} token;

// Writes word i of all words over the 27 letters "▁a..z", ordered by length, then alphabetically.
static void write_word(uint64_t i, char *text) {
    uint64_t n_words = 27, len = 1;
    for (; i >= n_words; len++) {
        i -= n_words;
        n_words *= 27;
    }
    for (; len > 0; len--) {
        n_words /= 27;
        uint64_t letter = i / n_words % 27;
        if (letter == 0) {
            memcpy(text, "\u2581", 3);
            text += 3;
        } else {
            *text++ = (char)('a' + letter - 1);
        }
    }
    *text = '\0';
}

static void make_token(token *t, int i, int n_vocab) {
    static const char *const special[TOKENS_SPECIAL] = {"<unk>", "<s>", "</s>"};
    int n_byte = n_vocab >= TOKENS_SPECIAL + TOKENS_BYTE ? TOKENS_BYTE : 0;
    if (i < TOKENS_SPECIAL) {
        snprintf(t->text, sizeof t->text, "%s", special[i]);
        t->type = i == 0 ? 2 : 3;
    } else if (i < TOKENS_SPECIAL + n_byte) {
        snprintf(t->text, sizeof t->text, "<0x%02X>", (unsigned)(i - TOKENS_SPECIAL));
        t->type = 6;
    } else {
        write_word((uint64_t)(i - TOKENS_SPECIAL - n_byte), t->text);
        t->type = 1;
    }
}

void kin_gen_put_vocab(generator *g) {
    size_t n = (size_t)g->facts.n_vocab;
    token *tokens = alloc(n * sizeof *tokens);
    const char **texts = alloc(n * sizeof *texts);
    float *scores = alloc(n * sizeof *scores);
    int32_t *types = alloc(n * sizeof *types);
    for (size_t i = 0; i < n; i++) {
        make_token(&tokens[i], (int)i, g->facts.n_vocab);
        texts[i] = tokens[i].text;
        scores[i] = tokens[i].type == 1 ? -(float)i : 0;
        types[i] = tokens[i].type;
    }
    kin_gguf_writer_put_str(g->writer, "tokenizer.ggml.model", "llama");
    kin_gguf_writer_put_strs(g->writer, "tokenizer.ggml.tokens", n, texts);
    kin_gguf_writer_put_array(g->writer, "tokenizer.ggml.scores", KIN_GGUF_F32, n, scores);
    kin_gguf_writer_put_array(g->writer, "tokenizer.ggml.token_type", KIN_GGUF_I32, n, types);
    kin_gguf_writer_put_int(g->writer, "tokenizer.ggml.unknown_token_id", KIN_GGUF_U32, 0);
    kin_gguf_writer_put_int(g->writer, "tokenizer.ggml.bos_token_id", KIN_GGUF_U32, 1);
    kin_gguf_writer_put_int(g->writer, "tokenizer.ggml.eos_token_id", KIN_GGUF_U32, TOKEN_END);
    kin_gguf_writer_put_int(g->writer, "tokenizer.ggml.add_bos_token", KIN_GGUF_BOOL, 1);
    free(tokens);
    free(texts);
    free(scores);
    free(types);
}
