#include "testkit/model_gen.h"

#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testkit/gguf_write.h"
#include "testkit/random_rows.h"

#define POOLED_WEIGHTS_MIN (32ll << 20) // about 3 s of Q4_K quantizing
#define SOURCES_MAX 32                  // pairs of a type and a row length

// Presets

static const char preset_names[] = "tiny, 25m, 551m-32l, 1b, 8b";

#define LLAMA .arch = "llama", .mix = "q4_k_m", .seed = 1
#define LLAMA3 LLAMA, .n_ctx = 131072, .n_vocab = 128256, .rope_freq_base = 500000, .rope_freqs = true

static const struct {
    const char *name;
    kin_model_spec spec;
} presets[] = {
    {"tiny",
     {LLAMA, .n_layer = 4, .n_embd = 256, .n_ff = 768, .n_head = 8, .n_head_kv = 2, .n_vocab = 512, .n_ctx = 2048,
      .rope_freq_base = 10000}},
    {"25m",
     {LLAMA, .n_layer = 8, .n_embd = 512, .n_ff = 1536, .n_head = 8, .n_head_kv = 2, .n_vocab = 1024, .n_ctx = 4096,
      .rope_freq_base = 10000}},
    {"551m-32l",
     {LLAMA, .n_layer = 32, .n_embd = 1536, .n_ff = 4096, .n_head = 12, .n_head_kv = 4, .n_vocab = 32000, .n_ctx = 4096,
      .rope_freq_base = 10000}}, // 551 MB, many small layers
    {"1b", {LLAMA3, .n_layer = 16, .n_embd = 2048, .n_ff = 8192, .n_head = 32, .n_head_kv = 8, .tied = true}}, // Llama 3.2 1B
    {"8b", {LLAMA3, .n_layer = 32, .n_embd = 4096, .n_ff = 14336, .n_head = 32, .n_head_kv = 8}},              // Llama 3.1 8B
};

kin_model_spec kin_model_spec_defaults(void) {
    return presets[0].spec;
}

int kin_model_spec_preset(kin_model_spec *spec, const char *name, kin_err *err) {
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(presets[i].name, name) != 0) continue;
        *spec = presets[i].spec;
        return 0;
    }
    return kin_err_set(err, "there is no preset '%s' (%s)", name, preset_names);
}

const char *kin_model_presets(void) {
    return preset_names;
}

// Mixes: the type of each weight matrix. Those with `more` follow llama.cpp's recipe for Q4_K_M; the others are pure, except for
// the one with `up`.

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

// The role of a matrix, as far as its type depends on it.
typedef enum role {
    ROLE_OTHER,
    ROLE_EMBD,
    ROLE_OUTPUT,
    ROLE_ATTN_K,
    ROLE_ATTN_V,
    ROLE_ATTN_OUTPUT,
    ROLE_FFN_UP,
    ROLE_FFN_DOWN,
} role;

static int wanted_type(const kin_model_spec *spec, role r, int il) {
    const mix *m = find_mix(spec->mix);
    if (r == ROLE_FFN_UP && m->up) return m->up;
    if (m->more == m->type) return m->type;
    bool mixtral = spec->n_expert == 8; // its shared attention is small: better bits cost little
    switch (r) {
    case ROLE_OUTPUT: return m->more;
    case ROLE_EMBD: return spec->tied ? m->more : m->type;
    case ROLE_ATTN_K: return mixtral ? GGML_TYPE_Q8_0 : m->type;
    case ROLE_ATTN_V: return mixtral ? GGML_TYPE_Q8_0 : use_more_bits(il, spec->n_layer) ? m->more : m->type;
    case ROLE_ATTN_OUTPUT: return mixtral ? GGML_TYPE_Q5_K : m->type;
    case ROLE_FFN_DOWN: return use_more_bits(il, spec->n_layer) ? m->more : m->type;
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

#define TOKENS_SPECIAL 3 // <unk>, <s>, </s>
#define TOKENS_BYTE 256
#define TOKEN_END 2

// The generator: a writer, and the data from which its tensors are filled while it saves.

typedef struct matrix { // user of fill_matrix
    const kin_random_rows *rows;
    uint64_t seed;
    size_t zeros_bytes; // size of the row of </s>, which is all zero; 0: that row is like the others
    const struct generator *of;
    uint64_t (*row_of)(const struct generator *of, uint64_t row); // NULL: rows have their own numbers
    float skew;                                                   // of a router
    int64_t n_in;
    struct matrix *next;
} matrix;

typedef struct vector { // small f32 data, kept until saved
    struct vector *next;
    float at[];
} vector;

typedef struct generator {
    const kin_model_spec *spec;
    int64_t head_dim, n_ff_exp;
    bool pooled;
    kin_gguf_writer *writer;
    struct {
        int type;
        int64_t n_in;
        kin_random_rows *rows;
    } sources[SOURCES_MAX];
    int n_sources;
    matrix *matrices;
    vector *vectors;
} generator;

static void *alloc(size_t n) {
    void *at = calloc(1, n);
    kin_assert(at);
    return at;
}

static uint64_t seed_of(const generator *g, const char *name) {
    uint64_t seed = g->spec->seed;
    for (; *name; name++) seed = kin_random_mix(seed, (uint64_t)*name);
    return seed;
}

static const kin_random_rows *get_rows(generator *g, int type, int64_t n_in) {
    for (int i = 0; i < g->n_sources; i++) {
        if (g->sources[i].type == type && g->sources[i].n_in == n_in) return g->sources[i].rows;
    }
    kin_assert(g->n_sources < SOURCES_MAX);
    uint64_t seed = kin_random_mix(kin_random_mix(g->spec->seed, (uint64_t)type), (uint64_t)n_in);
    kin_random_rows *rows = kin_random_rows_new(type, n_in, g->pooled, seed);
    g->sources[g->n_sources].type = type;
    g->sources[g->n_sources].n_in = n_in;
    g->sources[g->n_sources++].rows = rows;
    return rows;
}

static void fill_mapped(const matrix *m, uint64_t row_begin, uint64_t n_rows, uint8_t *out) {
    const size_t bytes = kin_random_rows_bytes(m->rows);
    for (uint64_t i = 0; i < n_rows; i++)
        kin_random_rows_fill(m->rows, m->seed, m->row_of(m->of, row_begin + i), 1, out + i * bytes);
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

// A router whose rows have different lengths: long ones more often give one of the largest logits.
static void fill_router(void *user, uint64_t row_begin, uint64_t n_rows, uint8_t *out) {
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

static void add_router(generator *g, const char *name) {
    const int64_t n_in = g->spec->n_embd, ne[] = {n_in, g->spec->n_expert};
    matrix *m = alloc(sizeof *m);
    *m = (matrix){.rows = get_rows(g, GGML_TYPE_F32, n_in), .seed = seed_of(g, name), .next = g->matrices}; // never quantized
    m->skew = g->spec->router_skew;
    m->n_in = n_in;
    g->matrices = m;
    kin_gguf_writer_add_filled(g->writer, name, GGML_TYPE_F32, 2, ne, fill_router, m);
}

static matrix *add_typed(generator *g, const char *name, int type, int64_t n_in, int64_t n_out, int64_t n_expert) {
    matrix *m = alloc(sizeof *m);
    *m = (matrix){.rows = get_rows(g, type, n_in), .seed = seed_of(g, name), .next = g->matrices};
    if (g->spec->endless && strcmp(name, "output.weight") == 0) m->zeros_bytes = ggml_row_size((enum ggml_type)type, n_in);
    g->matrices = m;
    int64_t ne[] = {n_in, n_out, n_expert};
    kin_gguf_writer_add_filled(g->writer, name, type, n_expert ? 3 : 2, ne, fill_matrix, m);
    return m;
}

// Adds weights of [n_in, n_out] or, with n_expert > 0, of [n_in, n_out, n_expert]; il < 0: in no layer.
static void add_matrix(generator *g, role r, int il, const char *name, int64_t n_in, int64_t n_out, int64_t n_expert) {
    add_typed(g, name, fitting_type(wanted_type(g->spec, r, il), n_in), n_in, n_out, n_expert);
}

static float *add_vector(generator *g, const char *name, int64_t n) {
    vector *v = alloc(sizeof *v + (size_t)n * sizeof v->at[0]);
    v->next = g->vectors;
    g->vectors = v;
    kin_gguf_writer_add(g->writer, name, GGML_TYPE_F32, 1, &n, v->at);
    return v->at;
}

static void add_norm(generator *g, const char *name, int64_t n) { // 1 +- 0.1
    float *at = add_vector(g, name, n);
    kin_random_gaussian(seed_of(g, name), 0.1f, n, at);
    for (int64_t i = 0; i < n; i++) at[i] += 1;
}

// The norm before a sub-layer. Scaled down, what the sub-layer adds to its input is small, or next to nothing if the text is to
// be known.
static void add_block_norm(generator *g, const char *name) {
    const int64_t n = g->spec->n_embd;
    const float factor = g->spec->draft_right > 0 ? 1 / 1024.0f : g->spec->routes_by_token ? 0.02f : 1;
    add_norm(g, name, n);
    for (int64_t i = 0; i < n; i++) g->vectors->at[i] *= factor;
}

static void add_bias(generator *g, const char *name, int64_t n) { // 0 +- 0.1
    kin_random_gaussian(seed_of(g, name), 0.1f, n, add_vector(g, name, n));
}

// Adds the divisors of rotation frequencies that stretch Llama 3's context: 8 for long waves, 1 for short ones, smooth in
// between.
static void add_rope_freqs(generator *g) {
    const double stretch = 8, n_ctx_old = 8192, wave_short = n_ctx_old / 4, wave_long = n_ctx_old;
    float *at = add_vector(g, "rope_freqs.weight", g->head_dim / 2);
    for (int64_t i = 0; i < g->head_dim / 2; i++) {
        double wave = 2 * 3.14159265358979 * pow(g->spec->rope_freq_base, 2.0 * (double)i / (double)g->head_dim);
        double smooth = (n_ctx_old / wave - 1) / (4 - 1);
        at[i] = (float)(wave < wave_short ? 1 : wave > wave_long ? stretch : 1 / ((1 - smooth) / stretch + smooth));
    }
}

// Tensors of one layer, named blk.IL.NAME

typedef struct tensor_name {
    char text[64];
} tensor_name;

static tensor_name in_layer(int il, const char *name) {
    tensor_name n;
    snprintf(n.text, sizeof n.text, "blk.%d.%s", il, name);
    return n;
}

// The gated delta net of qwen35: as many key heads as attention has, and as many value heads as it has query heads.
enum { DELTA_TAPS = 4, DELTA_HEAD = 32 };

static bool is_qwen35(const kin_model_spec *s) {
    return strcmp(s->arch, "qwen35") == 0;
}

static bool is_delta_net(const kin_model_spec *s, int il) {
    return il < s->n_layer && s->attention_interval > 1 && (il + 1) % s->attention_interval != 0;
}

static void add_delta_net(generator *g, int il) {
    const kin_model_spec *s = g->spec;
    const int64_t n_values = (int64_t)DELTA_HEAD * s->n_head, n_channels = 2 * (int64_t)DELTA_HEAD * s->n_head_kv + n_values;
    add_block_norm(g, in_layer(il, "attn_norm.weight").text);
    add_matrix(g, ROLE_OTHER, il, in_layer(il, "attn_qkv.weight").text, s->n_embd, n_channels, 0);
    add_matrix(g, ROLE_OTHER, il, in_layer(il, "attn_gate.weight").text, s->n_embd, n_values, 0);
    add_typed(g, in_layer(il, "ssm_conv1d.weight").text, GGML_TYPE_F32, DELTA_TAPS, n_channels, 0);
    add_typed(g, in_layer(il, "ssm_beta.weight").text, GGML_TYPE_F32, s->n_embd, s->n_head, 0);
    add_typed(g, in_layer(il, "ssm_alpha.weight").text, GGML_TYPE_F32, s->n_embd, s->n_head, 0);
    add_bias(g, in_layer(il, "ssm_dt.bias").text, s->n_head);
    add_norm(g, in_layer(il, "ssm_a").text, s->n_head);
    for (int i = 0; i < s->n_head; i++) g->vectors->at[i] *= -1; // states decay
    add_norm(g, in_layer(il, "ssm_norm.weight").text, DELTA_HEAD);
    add_matrix(g, ROLE_ATTN_OUTPUT, il, in_layer(il, "ssm_out.weight").text, n_values, s->n_embd, 0);
}

static void add_attention(generator *g, int il) {
    const kin_model_spec *s = g->spec;
    int64_t n_q = g->head_dim * s->n_head, n_kv = g->head_dim * s->n_head_kv;
    bool is_qwen2 = strcmp(s->arch, "qwen2") == 0, is_qwen3 = strncmp(s->arch, "qwen3", 5) == 0;
    add_block_norm(g, in_layer(il, "attn_norm.weight").text);
    add_matrix(g, ROLE_OTHER, il, in_layer(il, "attn_q.weight").text, s->n_embd, is_qwen35(s) ? 2 * n_q : n_q, 0);
    add_matrix(g, ROLE_ATTN_K, il, in_layer(il, "attn_k.weight").text, s->n_embd, n_kv, 0);
    add_matrix(g, ROLE_ATTN_V, il, in_layer(il, "attn_v.weight").text, s->n_embd, n_kv, 0);
    if (is_qwen2) {
        add_bias(g, in_layer(il, "attn_q.bias").text, n_q);
        add_bias(g, in_layer(il, "attn_k.bias").text, n_kv);
        add_bias(g, in_layer(il, "attn_v.bias").text, n_kv);
    }
    if (is_qwen3) {
        add_norm(g, in_layer(il, "attn_q_norm.weight").text, g->head_dim);
        add_norm(g, in_layer(il, "attn_k_norm.weight").text, g->head_dim);
    }
    add_matrix(g, ROLE_ATTN_OUTPUT, il, in_layer(il, "attn_output.weight").text, n_q, s->n_embd, 0);
    if (s->attn_out_bias) add_bias(g, in_layer(il, "attn_output.bias").text, s->n_embd);
}

static void add_ffn(generator *g, int il) {
    const kin_model_spec *s = g->spec;
    add_block_norm(g, in_layer(il, is_qwen35(s) ? "post_attention_norm.weight" : "ffn_norm.weight").text);
    if (s->n_expert == 0) {
        add_matrix(g, ROLE_OTHER, il, in_layer(il, "ffn_gate.weight").text, s->n_embd, s->n_ff, 0);
        add_matrix(g, ROLE_FFN_UP, il, in_layer(il, "ffn_up.weight").text, s->n_embd, s->n_ff, 0);
        add_matrix(g, ROLE_FFN_DOWN, il, in_layer(il, "ffn_down.weight").text, s->n_ff, s->n_embd, 0);
        return;
    }
    add_router(g, in_layer(il, "ffn_gate_inp.weight").text);
    add_matrix(g, ROLE_OTHER, il, in_layer(il, "ffn_gate_exps.weight").text, s->n_embd, g->n_ff_exp, s->n_expert);
    add_matrix(g, ROLE_FFN_UP, il, in_layer(il, "ffn_up_exps.weight").text, s->n_embd, g->n_ff_exp, s->n_expert);
    add_matrix(g, ROLE_FFN_DOWN, il, in_layer(il, "ffn_down_exps.weight").text, g->n_ff_exp, s->n_embd, s->n_expert);
}

// A known text: words are the tokens after the special ones and the bytes.

static uint64_t first_word(const kin_model_spec *s) {
    return TOKENS_SPECIAL + (s->n_vocab >= TOKENS_SPECIAL + TOKENS_BYTE ? TOKENS_BYTE : 0);
}

static uint64_t greatest_divisor(uint64_t a, uint64_t b) {
    return b == 0 ? a : greatest_divisor(b, a % b);
}

// Returns the distance from a word to the next one of the text, so that all words come before one is repeated.
static uint64_t word_step(uint64_t n_words) {
    uint64_t step = n_words * 618 / 1000 + 1;
    while (greatest_divisor(step, n_words) != 1) step++;
    return step;
}

// A token that is no word is like one of them.
static uint64_t word_of(const generator *g, uint64_t token) {
    const uint64_t first = first_word(g->spec), n_words = (uint64_t)g->spec->n_vocab - first;
    return (token < first ? token : token - first) % n_words;
}

static uint64_t row_of_embedding(const generator *g, uint64_t token) {
    return word_of(g, token);
}

// The output's row of a word is the embedding's of the word before it; of other tokens it is like none.
static uint64_t row_of_output(const generator *g, uint64_t token) {
    const uint64_t first = first_word(g->spec), n_words = (uint64_t)g->spec->n_vocab - first;
    return token < first ? n_words + token : (token - first + n_words - word_step(n_words) % n_words) % n_words;
}

static uint64_t row_of_draft(const generator *g, uint64_t token) {
    const uint64_t n_words = (uint64_t)g->spec->n_vocab - first_word(g->spec), word = word_of(g, token);
    const double drawn = (double)(kin_random_mix(g->spec->seed, word) >> 11) / (double)(UINT64_C(1) << 53);
    return drawn < (double)g->spec->draft_right ? word : (word + n_words / 2) % n_words;
}

static void add_known(generator *g, const char *name, uint64_t (*row_of)(const generator *of, uint64_t row)) {
    const kin_model_spec *s = g->spec;
    const int type = fitting_type(wanted_type(s, ROLE_OUTPUT, -1), s->n_embd);
    matrix *m = add_typed(g, name, type, s->n_embd, s->n_vocab, 0);
    m->of = g;
    m->row_of = row_of;
    m->seed = g->spec->seed;
}

static void add_ends(generator *g) {
    const kin_model_spec *s = g->spec;
    const bool is_known = s->draft_right > 0;
    if (is_known)
        add_known(g, "output.weight", row_of_output);
    else if (!s->tied)
        add_matrix(g, ROLE_OUTPUT, -1, "output.weight", s->n_embd, s->n_vocab, 0);
    add_norm(g, "output_norm.weight", s->n_embd);
    if (s->rope_freqs) add_rope_freqs(g);
    if (is_known)
        add_known(g, "token_embd.weight", row_of_embedding);
    else
        add_matrix(g, ROLE_EMBD, -1, "token_embd.weight", s->n_embd, s->n_vocab, 0);
}

// Row i takes number i of the token's embedding, and nothing of the hidden state.
static void fill_identity(void *user, uint64_t row_begin, uint64_t n_rows, uint8_t *out) {
    const size_t n_in = 2 * (size_t)((const generator *)user)->spec->n_embd;
    const ggml_bf16_t one = ggml_fp32_to_bf16(1);
    memset(out, 0, n_rows * n_in * sizeof one);
    for (uint64_t i = 0; i < n_rows; i++) memcpy(out + (i * n_in + row_begin + i) * sizeof one, &one, sizeof one);
}

static void add_draft_block(generator *g) {
    const kin_model_spec *s = g->spec;
    const int il = s->n_layer;
    const int64_t ne[] = {2 * (int64_t)s->n_embd, s->n_embd};
    add_attention(g, il);
    add_ffn(g, il);
    add_norm(g, in_layer(il, "nextn.enorm.weight").text, s->n_embd);
    add_norm(g, in_layer(il, "nextn.hnorm.weight").text, s->n_embd);
    add_norm(g, in_layer(il, "nextn.shared_head_norm.weight").text, s->n_embd);
    for (int i = 0; i < s->n_embd; i++) g->vectors->at[i] = 1 + 5 * (g->vectors->at[i] - 1); // not to be mistaken for another
    if (s->draft_right > 0) {
        kin_gguf_writer_add_filled(g->writer, in_layer(il, "nextn.eh_proj.weight").text, GGML_TYPE_BF16, 2, ne, fill_identity, g);
        add_known(g, in_layer(il, "nextn.embed_tokens.weight").text, row_of_draft);
    } else {
        add_matrix(g, ROLE_OTHER, il, in_layer(il, "nextn.eh_proj.weight").text, ne[0], ne[1], 0);
    }
}

static void add_tensors(generator *g) {
    const kin_model_spec *s = g->spec;
    add_ends(g);
    for (int il = 0; il < s->n_layer; il++) {
        if (is_delta_net(s, il))
            add_delta_net(g, il);
        else
            add_attention(g, il);
        add_ffn(g, il);
    }
    if (s->draft_block) add_draft_block(g);
}

// Metadata

static void put_arch_u32(generator *g, const char *key, int64_t value) {
    char full[128];
    snprintf(full, sizeof full, "%s.%s", g->spec->arch, key);
    kin_gguf_writer_put_int(g->writer, full, KIN_GGUF_U32, value);
}

static void put_arch_f32(generator *g, const char *key, double value) {
    char full[128];
    snprintf(full, sizeof full, "%s.%s", g->spec->arch, key);
    kin_gguf_writer_put_float(g->writer, full, KIN_GGUF_F32, value);
}

static void put_qwen35(generator *g) {
    const kin_model_spec *s = g->spec;
    const int32_t quarter = (int32_t)(g->head_dim / 4 / 2), sections[] = {quarter, quarter, quarter, quarter};
    put_arch_u32(g, "ssm.conv_kernel", DELTA_TAPS);
    put_arch_u32(g, "ssm.state_size", DELTA_HEAD);
    put_arch_u32(g, "ssm.group_count", s->n_head_kv);
    put_arch_u32(g, "ssm.time_step_rank", s->n_head);
    put_arch_u32(g, "ssm.inner_size", (int64_t)DELTA_HEAD * s->n_head);
    put_arch_u32(g, "full_attention_interval", s->attention_interval > 1 ? s->attention_interval : 1);
    kin_gguf_writer_put_array(g->writer, "qwen35.rope.dimension_sections", KIN_GGUF_I32, 4, sections);
    if (s->draft_block) put_arch_u32(g, "nextn_predict_layers", 1);
}

static void put_hparams(generator *g) {
    const kin_model_spec *s = g->spec;
    put_arch_u32(g, "vocab_size", s->n_vocab);
    put_arch_u32(g, "context_length", s->n_ctx);
    put_arch_u32(g, "embedding_length", s->n_embd);
    put_arch_u32(g, "block_count", s->n_layer + s->draft_block);
    put_arch_u32(g, "feed_forward_length", s->n_ff);
    put_arch_u32(g, "attention.head_count", s->n_head);
    put_arch_u32(g, "attention.head_count_kv", s->n_head_kv);
    put_arch_f32(g, "attention.layer_norm_rms_epsilon", strcmp(s->arch, "llama") == 0 ? 1e-5 : 1e-6);
    put_arch_f32(g, "rope.freq_base", s->rope_freq_base);
    put_arch_u32(g, "rope.dimension_count", g->head_dim);
    if (g->head_dim * s->n_head != s->n_embd || is_qwen35(s)) {
        put_arch_u32(g, "attention.key_length", g->head_dim);
        put_arch_u32(g, "attention.value_length", g->head_dim);
    }
    if (is_qwen35(s)) put_qwen35(g);
    if (s->pooling_type > 0) put_arch_u32(g, "pooling_type", s->pooling_type);
    if (s->n_expert > 0) {
        put_arch_u32(g, "expert_count", s->n_expert);
        put_arch_u32(g, "expert_used_count", s->n_expert_used);
        if (strcmp(s->arch, "llama") != 0) put_arch_u32(g, "expert_feed_forward_length", g->n_ff_exp);
    }
}

// Vocabulary

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

static void put_vocab(generator *g) {
    size_t n = (size_t)g->spec->n_vocab;
    token *tokens = alloc(n * sizeof *tokens);
    const char **texts = alloc(n * sizeof *texts);
    float *scores = alloc(n * sizeof *scores);
    int32_t *types = alloc(n * sizeof *types);
    for (size_t i = 0; i < n; i++) {
        make_token(&tokens[i], (int)i, g->spec->n_vocab);
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

static void put_metadata(generator *g) {
    kin_gguf_writer_put_str(g->writer, "general.architecture", g->spec->arch);
    kin_gguf_writer_put_str(g->writer, "general.name", "random");
    put_hparams(g);
    kin_gguf_writer_put_int(g->writer, "general.quantization_version", KIN_GGUF_U32, GGML_QNT_VERSION);
    kin_gguf_writer_put_int(g->writer, "general.file_type", KIN_GGUF_U32, find_mix(g->spec->mix)->file_type);
    put_vocab(g);
}

// Making

static int check_spec(const kin_model_spec *s, kin_err *err) {
    static const char *const archs[] = {"llama", "qwen2", "qwen3", "qwen3moe", "qwen35"};
    bool known = false;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) known |= strcmp(s->arch, archs[i]) == 0;
    if (!known) return kin_err_set(err, "'%s' is not one of llama, qwen2, qwen3, qwen3moe, qwen35", s->arch);
    if ((s->attention_interval > 0 || s->draft_block) && !is_qwen35(s))
        return kin_err_set(err, "%s has neither delta nets nor a draft block", s->arch);
    if (s->draft_right < 0 || s->draft_right > 1 || (s->draft_right > 0 && (!s->draft_block || s->tied)))
        return kin_err_set(err, "draft_right is a share, of the drafts of a model with a draft block and an output of its own");
    if (!find_mix(s->mix)) return kin_err_set(err, "'%s' is not one of %s", s->mix, mix_names);
    if (s->n_layer < 1 || s->n_embd < 1 || s->n_ff < 1 || s->n_head < 1 || s->n_head_kv < 1 || s->n_ctx < 1) {
        return kin_err_set(err, "layers, widths, heads and context must be at least 1");
    }
    if (s->n_vocab < TOKENS_SPECIAL + 1) return kin_err_set(err, "a vocabulary needs at least %d tokens", TOKENS_SPECIAL + 1);
    if (s->n_head % s->n_head_kv != 0)
        return kin_err_set(err, "%d heads do not share %d KV heads evenly", s->n_head, s->n_head_kv);
    if (s->endless && s->tied) return kin_err_set(err, "a model whose output is its embedding cannot be endless");
    if (s->head_dim < 0 || s->head_dim % 2 != 0 || (s->head_dim == 0 && s->n_embd % (2 * s->n_head) != 0)) {
        return kin_err_set(err, "a head's dimension must be even; give head_dim or an n_embd that is a multiple of 2 * n_head");
    }
    if (s->n_expert < 0 || s->n_expert_used < 0 || s->n_expert_used > s->n_expert || (s->n_expert > 0 && s->n_expert_used == 0)) {
        return kin_err_set(err, "%d of %d experts cannot be used", s->n_expert_used, s->n_expert);
    }
    bool moe_only = strcmp(s->arch, "qwen3moe") == 0, moe_able = moe_only || strcmp(s->arch, "llama") == 0;
    if (moe_only && s->n_expert == 0) return kin_err_set(err, "qwen3moe needs experts");
    if (!moe_able && s->n_expert > 0) return kin_err_set(err, "%s has no experts", s->arch);
    if (!moe_only && s->n_ff_exp && s->n_ff_exp != s->n_ff) return kin_err_set(err, "%s has no n_ff_exp of its own", s->arch);
    return 0;
}

// About; a delta net counts as attention.
static int64_t count_weights(const kin_model_spec *s, int64_t head_dim, int64_t n_ff_exp) {
    int64_t attention = 2 * head_dim * (s->n_head + s->n_head_kv) * s->n_embd;
    int64_t ffn = 3 * (s->n_expert ? n_ff_exp * s->n_expert : s->n_ff) * s->n_embd;
    return (s->n_layer + s->draft_block) * (attention + ffn) + (s->tied ? 1 : 2) * (int64_t)s->n_vocab * s->n_embd;
}

static void generator_init(generator *g, const kin_model_spec *spec) {
    *g = (generator){.spec = spec, .writer = kin_gguf_writer_new()};
    g->head_dim = spec->head_dim ? spec->head_dim : spec->n_embd / spec->n_head;
    g->n_ff_exp = spec->n_ff_exp ? spec->n_ff_exp : spec->n_ff;
    g->pooled = count_weights(spec, g->head_dim, g->n_ff_exp) > POOLED_WEIGHTS_MIN;
    put_metadata(g);
    add_tensors(g);
}

static void generator_fini(generator *g) {
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
}

int kin_model_gen(const kin_model_spec *spec, const char *path, kin_err *err) {
    generator g;
    if (check_spec(spec, err) != 0) return KIN_FAIL;
    generator_init(&g, spec);
    int result = kin_gguf_writer_save(g.writer, path, err);
    generator_fini(&g);
    return result;
}

int kin_model_gen_split(const kin_model_spec *spec, const char *prefix, int n_parts, kin_err *err) {
    generator g;
    if (check_spec(spec, err) != 0) return KIN_FAIL;
    generator_init(&g, spec);
    int result = kin_gguf_writer_save_split(g.writer, prefix, n_parts, err);
    generator_fini(&g);
    return result;
}
