// The reference engine, compared with exact logits of small models, with ggml's dequantization and rope, and with itself.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ggml-backend.h>
#include <ggml.h>

#include "testkit/gguf_write.h"
#include "testkit/logits.h"
#include "testkit/random_rows.h"
#include "testkit/ref/dequant.h"
#include "testkit/ref/forward.h"
#include "testkit/ref_load.h"
#include "tests/null_malloc.h"
#include "tests/place.h"

#define GOLDEN_DIR KIN_SOURCE_DIR "/../shared/golden"
#define FAMILIES_DIR KIN_SOURCE_DIR "/../shared/golden-families"
#define OWN_DIR KIN_SOURCE_DIR "/tests/golden"
#define GOLDEN_ERROR_MAX 1e-5 // relative L2 of a row; 5e-7 measured. The rule for this engine is 1e-4.
#define IDS_MAX 256           // of a golden line
#define OWN_ERROR_MAX 1e-4    // the exact logits are llama.cpp's in float32
#define COUNT(array) (sizeof(array) / sizeof *(array))

// Returns a number uniform in [-1, 1), the same on every machine (xorshift64).
static float random_float(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (float)(*state >> 40) * 0x1p-23f - 1;
}

// ---- golden models

static void step(kin_ref_session *session, const kin_ref_model *model, int token, int pos, float *x, float *logits) {
    assert_int_equal(kin_ref_session_embed(session, token, x), 0);
    assert_int_equal(kin_ref_session_run(session, 0, model->n_layer, pos, x), 0);
    assert_int_equal(kin_ref_session_output(session, x, logits), 0);
}
#define step(...) FROM_TEST(step(__VA_ARGS__))

// True for the row in which the last of the 32 positions that an indexer chooses has the score of others, 0: which of them is
// chosen is not defined, and llama.cpp does not choose the first.
static bool has_equal_scores(const char *name, int pos) {
    return strcmp(name, "deepseek32-sparse.f16") == 0 && pos == 85;
}

// Feeds the ids, comparing each one's logits with the next row of `exact`. Returns the largest relative error.
static double largest_error(const char *name, const kin_ref_model *model, const int *ids, int n_ids, FILE *exact) {
    const size_t n_vocab = (size_t)model->n_vocab;
    float *x = malloc(kin_ref_width(model) * sizeof *x), *got = malloc(n_vocab * sizeof *got),
          *want = malloc(n_vocab * sizeof *want);
    kin_ref_session *session = kin_ref_session_open(model, 0, model->n_layer, n_ids);
    assert_non_null(session);
    double error_max = 0;
    for (int pos = 0; pos < n_ids; pos++) {
        step(session, model, ids[pos], pos, x, got);
        assert_int_equal(fread(want, sizeof *want, n_vocab, exact), n_vocab);
        if (has_equal_scores(name, pos)) continue;
        assert_int_equal(kin_logits_best(got, model->n_vocab), kin_logits_best(want, model->n_vocab));
        error_max = fmax(error_max, kin_logits_error(got, want, model->n_vocab));
    }
    assert_int_equal(fgetc(exact), EOF); // one row per id
    kin_ref_session_close(session);
    free(want);
    free(got);
    free(x);
    return error_max;
}

static void check_golden(const char *dir, const char *name, char *line, double bound) {
    char path[1024];
    int ids[IDS_MAX], n_ids = 0;
    for (char *id = strtok(line, " "); id; id = strtok(NULL, " ")) {
        assert_true(n_ids < IDS_MAX);
        ids[n_ids++] = atoi(id);
    }
    kin_gguf *gguf = NULL;
    kin_ref_model model;
    kin_err err = {""};
    snprintf(path, sizeof path, "%s/%s.gguf", dir, name);
    if (kin_gguf_open(&gguf, path, &err) < 0 || kin_ref_load(&model, gguf, &err) < 0) fail_msg("%s", err.text);
    const char *wrong = kin_ref_model_check(&model, 0, model.n_layer);
    if (wrong) fail_msg("%s: %s", name, wrong);
    snprintf(path, sizeof path, "%s/%s.logits", dir, name);
    FILE *exact = fopen(path, "rb");
    assert_non_null(exact);

    const double error = largest_error(name, &model, ids, n_ids, exact);
    print_message("             %-25s largest error %.1e\n", name, error);
    assert_true(error <= bound);

    fclose(exact);
    kin_ref_unload(&model);
    kin_gguf_close(gguf);
}
#define check_golden(...) FROM_TEST(check_golden(__VA_ARGS__))

static bool is_listed(const char *name, const char *const *prefixes) {
    for (int i = 0; prefixes[i]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

// Checks the models of a folder's table whose names begin with one of `prefixes`, which ends with NULL; NULL: all. Returns their
// number. The table: name, n_vocab, prompt, greedy, ...; the ids are those of the prompt, then the greedy ones.
static int check_table(const char *dir, const char *table_name, const char *const *prefixes, double bound) {
    char path[1024], line[4096], name[64], prompt[1024], greedy[1024], ids[2049];
    snprintf(path, sizeof path, "%s/%s", dir, table_name);
    FILE *table = fopen(path, "r");
    if (!table) return 0;
    int n_models = 0;
    assert_non_null(fgets(line, sizeof line, table)); // column titles
    while (fgets(line, sizeof line, table)) {
        assert_int_equal(sscanf(line, "%63[^\t]\t%*d\t%1023[^\t]\t%1023[^\t]", name, prompt, greedy), 3);
        if (prefixes && !is_listed(name, prefixes)) continue;
        snprintf(ids, sizeof ids, "%s %s", prompt, greedy);
        check_golden(dir, name, ids, bound);
        n_models++;
    }
    fclose(table);
    return n_models;
}
#define check_table(...) FROM_TEST(check_table(__VA_ARGS__))

static int check_folder(const char *dir, const char *const *prefixes, double bound) {
    return check_table(dir, "golden.tsv", prefixes, bound);
}
#define check_folder(...) FROM_TEST(check_folder(__VA_ARGS__))

static void golden_models_give_the_exact_logits(void **state) {
    (void)state;
    if (check_folder(GOLDEN_DIR, NULL, GOLDEN_ERROR_MAX) > 0) return;
    print_message("golden models: %s is not there\n", GOLDEN_DIR);
    skip();
}

static void norms_windows_ropes_and_experts_give_the_exact_logits(void **state) {
    (void)state;
    static const char *const prefixes[] = {"exaone",   "stablelm",   "minimax-m3",   "kimi-linear", "cohere2",
                                           "hy_v3",    "laguna",     "muse-glimmer", "step35",      "mimo2",
                                           "mistral4", "nemotron_h", "deepseek4",    "qwen4exp",    "deepseek32",
                                           "glm-dsa",  "lfm2",       "glm5next",     NULL};
    assert_int_equal(check_folder(OWN_DIR, prefixes, OWN_ERROR_MAX), 30);
}

// Each name is that of one model.
static void families_give_the_exact_logits(void **state) {
    (void)state;
    static const char *const names[] = {"olmo2",     "olmo3",      "smollm3",        "granite.",   "granitemoe",  "glm4.",
                                        "qwen2moe",  "phi3-mini",  "phi4-mini",      "minimax-m2", "gemma2.",     "gemma2-27b",
                                        "gemma3.",   "gpt-oss",    "glm4moe",        "ministral3", "gemma3-270m", "dsv2-legacy",
                                        "dsv2lite",  "dsv3",       "mistral-large3", "lfm2.",      "lfm2moe",     "qwen35.",
                                        "qwen35moe", "qwen35-mtp", "qwen3next.",     "gemma4-26b", "gemma4-e2b",  NULL};
    const int n_models = check_folder(FAMILIES_DIR, names, GOLDEN_ERROR_MAX) +
                         check_table(FAMILIES_DIR, "golden-long.tsv", NULL, GOLDEN_ERROR_MAX);
    if (n_models == 0) {
        print_message("golden families: %s is not there\n", FAMILIES_DIR);
        skip();
    }
    assert_int_equal(n_models, COUNT(names)); // all but the last one, which is NULL, and the long one
}

// ---- dequantization and rope, compared with ggml's

static const int types[] = {KIN_REF_F32,  KIN_REF_F16,  KIN_REF_BF16, KIN_REF_Q8_0,   KIN_REF_Q4_0,
                            KIN_REF_Q4_1, KIN_REF_Q5_0, KIN_REF_Q5_1, KIN_REF_Q2_K,   KIN_REF_Q3_K,
                            KIN_REF_Q4_K, KIN_REF_Q5_K, KIN_REF_Q6_K, KIN_REF_IQ4_XS, KIN_REF_MXFP4};

// Asserts equality within one rounding of the block's largest element: compilers may fuse d * q + m. NaN and infinity match
// themselves.
static void assert_block_near(const float *got, const float *want, int n) {
    float largest = 0;
    for (int i = 0; i < n; i++) largest = fmaxf(largest, fabsf(want[i]));
    for (int i = 0; i < n; i++) {
        if (!isfinite(want[i]))
            assert_true(isnan(want[i]) ? isnan(got[i]) : got[i] == want[i]);
        else
            assert_true(fabsf(got[i] - want[i]) <= 1e-6f * largest);
    }
}

static void assert_dequant_equals_ggmls(int type, const uint8_t *row, int n) {
    float got[2048], want[2048];
    const ggml_to_float_t to_float = ggml_get_type_traits((enum ggml_type)type)->to_float;
    kin_ref_dequant(type, row, n, got);
    if (to_float)
        to_float(row, want, n);
    else
        memcpy(want, row, (size_t)n * sizeof *want); // F32 has no conversion
    for (int i = 0; i < n; i += kin_ref_block_n(type)) assert_block_near(got + i, want + i, kin_ref_block_n(type));
}
#define assert_dequant_equals_ggmls(...) FROM_TEST(assert_dequant_equals_ggmls(__VA_ARGS__))

static void dequantized_rows_equal_ggmls(void **state) {
    (void)state;
    enum { N = 2048 };
    uint64_t seed = 1;
    uint8_t row[N * sizeof(float)];
    for (size_t it = 0; it < COUNT(types); it++) {
        const enum ggml_type type = (enum ggml_type)types[it];
        assert_int_equal(kin_ref_block_n(type), ggml_blck_size(type));
        assert_int_equal(kin_ref_block_bytes(type), ggml_type_size(type));
        kin_random_rows *rows = kin_random_rows_new(types[it], N, false, 1);
        kin_random_rows_fill(rows, 1, 0, 1, row);
        kin_random_rows_free(rows);
        assert_dequant_equals_ggmls(type, row, N);
        for (size_t i = 0; i < sizeof row; i++) row[i] = (uint8_t)(int)(random_float(&seed) * 128);
        assert_dequant_equals_ggmls(type, row, N);
    }
}

static void every_f16_equals_ggmls(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const uint8_t bytes[2] = {(uint8_t)bits, (uint8_t)(bits >> 8)};
        float got, want = ggml_fp16_to_fp32((ggml_fp16_t)bits);
        kin_ref_dequant(KIN_REF_F16, bytes, 1, &got);
        assert_true(isnan(want) ? isnan(got) : memcmp(&got, &want, sizeof got) == 0);
    }
}

static void unknown_types_have_no_blocks(void **state) {
    (void)state;
    const int unknown[] = {-1, 4, 15, 29, 31, 1000};
    for (size_t i = 0; i < COUNT(unknown); i++) {
        assert_int_equal(kin_ref_block_n(unknown[i]), 0);
        assert_int_equal(kin_ref_block_bytes(unknown[i]), 0);
    }
}

// Applies ggml's rope in place. head: (n)
static void ggml_rope_head(ggml_backend_t backend, const kin_ref_rope *rope, const float *factors, int pos, float *head, int n) {
    struct ggml_context *ctx =
        ggml_init((struct ggml_init_params){ggml_tensor_overhead() * 8 + ggml_graph_overhead(), NULL, true});
    struct ggml_tensor *x = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, n, 1, 1); // [head_dim, n_head, n_tokens]
    struct ggml_tensor *p = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 1);
    struct ggml_tensor *f = factors ? ggml_new_tensor_1d(ctx, GGML_TYPE_F32, rope->n_rot / 2) : NULL;
    struct ggml_tensor *y =
        ggml_rope_ext(ctx, x, p, f, rope->n_rot, rope->kind == KIN_REF_ROPE_NEOX ? GGML_ROPE_TYPE_NEOX : 0, rope->n_ctx_orig,
                      rope->freq_base, rope->freq_scale, rope->yarn ? 1 : 0, rope->attn_factor, rope->beta_fast, rope->beta_slow);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, y);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    ggml_backend_tensor_set(x, head, 0, ggml_nbytes(x));
    ggml_backend_tensor_set(p, &pos, 0, sizeof pos);
    if (f) ggml_backend_tensor_set(f, factors, 0, ggml_nbytes(f));
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(y, head, 0, ggml_nbytes(y));
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}
#define ggml_rope_head(...) FROM_TEST(ggml_rope_head(__VA_ARGS__))

static void rope_equals_ggmls(void **state) {
    (void)state;
    ggml_backend_load_all();
    ggml_backend_t backend = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    if (!backend) {
        print_message("rope: ggml has no CPU backend here\n");
        skip();
    }
    enum { HEAD = 80, ROT = 64 };
    static const kin_ref_rope scalings[] = {
        {.freq_scale = 1, .attn_factor = 1},
        {.freq_scale = 0.25f, .attn_factor = 1},
        {.freq_scale = 0.25f, .attn_factor = 0.9f, .yarn = true, .n_ctx_orig = 4096, .beta_fast = 32, .beta_slow = 1},
    };
    uint64_t seed = 2;
    for (int i = 0; i < (int)COUNT(scalings) * 4; i++) {
        kin_ref_rope rope = scalings[i / 4];
        float factors[ROT / 2], turns[ROT], got[HEAD], want[HEAD];
        rope.kind = i % 2 ? KIN_REF_ROPE_NEOX : KIN_REF_ROPE_NORMAL;
        rope.n_rot = ROT;
        rope.freq_base = 10000;
        for (int j = 0; j < ROT / 2; j++) factors[j] = 2 + random_float(&seed);
        for (int j = 0; j < HEAD; j++) got[j] = want[j] = random_float(&seed);
        const float *used = i / 2 % 2 ? factors : NULL;
        kin_ref_rope_cos_sin(&rope, used, 123, turns);
        kin_ref_rope_apply(&rope, turns, got);
        ggml_rope_head(backend, &rope, used, 123, want, HEAD);
        for (int j = 0; j < HEAD; j++) assert_float_equal(got[j], want[j], 1e-4); // ggml accumulates angles in float32
    }
    ggml_backend_free(backend);
}

// ---- a toy model with every feature: random weights in float32, experts, biases, norms of heads, rope factors

enum { LAYERS = 3, EMBD = 32, HEADS = 4, HEADS_KV = 2, HEAD_DIM = 16, FF = 48, EXPERTS = 4, VOCAB = 64, CTX = 16 };

typedef struct toy {
    kin_ref_model model;
    kin_ref_layer layers[LAYERS];
    uint64_t seed;
    size_t n_floats;
    float floats[1 << 17];
} toy;

// Makes a random tensor whose elements are within `scale` of `middle`.
static kin_ref_tensor toy_tensor(toy *t, int n_mats, int n_rows, int n_cols, float middle, float scale) {
    const size_t n = (size_t)n_mats * (size_t)n_rows * (size_t)n_cols;
    float *data = t->floats + t->n_floats;
    t->n_floats += n;
    assert_true(t->n_floats <= COUNT(t->floats));
    for (size_t i = 0; i < n; i++) data[i] = middle + scale * random_float(&t->seed);
    return (kin_ref_tensor){(const uint8_t *)data, n * sizeof(float), KIN_REF_F32, n_mats, n_rows, n_cols};
}
#define toy_tensor(...) FROM_TEST(toy_tensor(__VA_ARGS__))

static void toy_layer(toy *t, kin_ref_layer *w) {
    w->attn_norm = toy_tensor(t, 1, 1, EMBD, 1, 0.2f);
    w->wq = toy_tensor(t, 1, HEADS * HEAD_DIM, EMBD, 0, 0.3f);
    w->wk = toy_tensor(t, 1, HEADS_KV * HEAD_DIM, EMBD, 0, 0.3f);
    w->wv = toy_tensor(t, 1, HEADS_KV * HEAD_DIM, EMBD, 0, 0.3f);
    w->wo = toy_tensor(t, 1, EMBD, HEADS * HEAD_DIM, 0, 0.3f);
    w->bq = toy_tensor(t, 1, 1, HEADS * HEAD_DIM, 0, 0.2f);
    w->bk = toy_tensor(t, 1, 1, HEADS_KV * HEAD_DIM, 0, 0.2f);
    w->bv = toy_tensor(t, 1, 1, HEADS_KV * HEAD_DIM, 0, 0.2f);
    w->q_norm = toy_tensor(t, 1, 1, HEAD_DIM, 1, 0.2f);
    w->k_norm = toy_tensor(t, 1, 1, HEAD_DIM, 1, 0.2f);
    w->ffn_norm = toy_tensor(t, 1, 1, EMBD, 1, 0.2f);
    w->ffn_router = toy_tensor(t, 1, EXPERTS, EMBD, 0, 0.3f);
    w->ffn_gate = toy_tensor(t, EXPERTS, FF, EMBD, 0, 0.3f);
    w->ffn_up = toy_tensor(t, EXPERTS, FF, EMBD, 0, 0.3f);
    w->ffn_down = toy_tensor(t, EXPERTS, EMBD, FF, 0, 0.3f);
}
#define toy_layer(...) FROM_TEST(toy_layer(__VA_ARGS__))

static int toy_setup(void **state) {
    toy *t = calloc(1, sizeof *t);
    if (!t) return -1;
    t->seed = 3;
    t->model = (kin_ref_model){
        .n_layer = LAYERS,
        .n_embd = EMBD,
        .n_vocab = VOCAB,
        .n_head = HEADS,
        .n_head_kv = HEADS_KV,
        .head_dim = HEAD_DIM,
        .n_ff = FF,
        .n_expert = EXPERTS,
        .n_expert_used = 2,
        .rms_eps = 1e-6f,
        .rope = {.kind = KIN_REF_ROPE_NEOX, .n_rot = 12, .freq_base = 10000, .freq_scale = 1, .attn_factor = 1},
        .layers = t->layers,
    };
    t->model.token_embd = toy_tensor(t, 1, VOCAB, EMBD, 0, 1);
    t->model.output_norm = toy_tensor(t, 1, 1, EMBD, 1, 0.2f);
    t->model.output = toy_tensor(t, 1, VOCAB, EMBD, 0, 1);
    t->model.rope_freqs = toy_tensor(t, 1, 1, 6, 2, 1);
    for (int il = 0; il < LAYERS; il++) toy_layer(t, &t->layers[il]);
    *state = t;
    return 0;
}

static int toy_teardown(void **state) {
    free(*state);
    return 0;
}

static kin_ref_session *open_all(const kin_ref_model *model) {
    kin_ref_session *session = kin_ref_session_open(model, 0, model->n_layer, CTX);
    assert_non_null(session);
    return session;
}
#define open_all(...) FROM_TEST(open_all(__VA_ARGS__))

// Computes the logits of every token of a sequence. tokens: (n), logits: (n, VOCAB)
static void run_sequence(const kin_ref_model *model, const int *tokens, int n, float *logits) {
    kin_ref_session *session = open_all(model);
    float x[EMBD];
    for (int i = 0; i < n; i++) step(session, model, tokens[i], i, x, logits + i * VOCAB);
    kin_ref_session_close(session);
}
#define run_sequence(...) FROM_TEST(run_sequence(__VA_ARGS__))

static const int tokens_a[] = {1, 5, 9, 5, 60, 2, 2, 33};
enum { N_A = COUNT(tokens_a) };

static void split_at_any_layer_gives_the_same_bits(void **state) {
    toy *t = *state;
    float want[N_A * VOCAB], got[VOCAB], x[EMBD];
    run_sequence(&t->model, tokens_a, N_A, want);
    for (int at = 0; at <= LAYERS; at++) {
        kin_ref_session *whole = open_all(&t->model);
        for (int i = 0; i < N_A; i++) {
            kin_ref_session_embed(whole, tokens_a[i], x);
            assert_int_equal(kin_ref_session_run(whole, 0, at, i, x), 0);
            assert_int_equal(kin_ref_session_run(whole, at, LAYERS, i, x), 0);
            kin_ref_session_output(whole, x, got);
            assert_memory_equal(got, want + i * VOCAB, sizeof got);
        }
        kin_ref_session_close(whole);
    }
}

// Each half has only the tensors of its layers; the first has the embedding, the second the output matrix.
static void two_sessions_of_half_a_model_give_the_same_bits(void **state) {
    toy *t = *state;
    float want[N_A * VOCAB], got[VOCAB], x[EMBD];
    run_sequence(&t->model, tokens_a, N_A, want);
    for (int at = 0; at <= LAYERS; at++) {
        kin_ref_model first = t->model, second = t->model;
        kin_ref_layer first_layers[LAYERS] = {0}, second_layers[LAYERS] = {0};
        memcpy(first_layers, t->layers, (size_t)at * sizeof *t->layers);
        memcpy(second_layers + at, t->layers + at, (size_t)(LAYERS - at) * sizeof *t->layers);
        first.layers = first_layers;
        second.layers = second_layers;
        first.output = first.output_norm = second.token_embd = (kin_ref_tensor){0};
        kin_ref_session *a = kin_ref_session_open(&first, 0, at, CTX), *b = kin_ref_session_open(&second, at, LAYERS, CTX);
        assert_true(a && b);
        for (int i = 0; i < N_A; i++) {
            assert_int_equal(kin_ref_session_embed(a, tokens_a[i], x), 0);
            assert_int_equal(kin_ref_session_run(a, 0, at, i, x), 0);
            assert_int_equal(kin_ref_session_run(b, at, LAYERS, i, x), 0);
            assert_int_equal(kin_ref_session_output(b, x, got), 0);
            assert_memory_equal(got, want + i * VOCAB, sizeof got);
        }
        assert_int_equal(kin_ref_session_output(a, x, got), -1);
        assert_int_equal(kin_ref_session_embed(b, 1, x), -1);
        kin_ref_session_close(a);
        kin_ref_session_close(b);
    }
}

static void later_tokens_do_not_change_earlier_logits(void **state) {
    toy *t = *state;
    int tokens_b[N_A];
    float a[N_A * VOCAB], b[N_A * VOCAB];
    memcpy(tokens_b, tokens_a, sizeof tokens_b);
    for (int i = 4; i < N_A; i++) tokens_b[i] = (tokens_a[i] + 7) % VOCAB;
    run_sequence(&t->model, tokens_a, N_A, a);
    run_sequence(&t->model, tokens_b, N_A, b);
    assert_memory_equal(a, b, 4 * VOCAB * sizeof *a);
    assert_memory_not_equal(a + 4 * VOCAB, b + 4 * VOCAB, VOCAB * sizeof *a);
}

static void rewound_session_forgets_what_came_after(void **state) {
    toy *t = *state;
    float want[N_A * VOCAB], got[VOCAB], x[EMBD];
    run_sequence(&t->model, tokens_a, N_A, want);
    kin_ref_session *session = open_all(&t->model);
    for (int i = 0; i < 3; i++) step(session, &t->model, tokens_a[i], i, x, got);
    for (int i = 3; i < N_A; i++) step(session, &t->model, 40 + i, i, x, got);
    for (int i = 3; i < N_A; i++) {
        step(session, &t->model, tokens_a[i], i, x, got);
        assert_memory_equal(got, want + i * VOCAB, sizeof got);
    }
    kin_ref_session_close(session);
}

// Attention sees the past as a set; only rope encodes the order.
static void order_matters_within_one_layer(void **state) {
    toy *t = *state;
    const int orders[2][3] = {{7, 8, 9}, {8, 7, 9}};
    float last[2][EMBD];
    for (int i = 0; i < 2; i++) {
        kin_ref_session *session = open_all(&t->model);
        for (int pos = 0; pos < 3; pos++) {
            kin_ref_session_embed(session, orders[i][pos], last[i]);
            assert_int_equal(kin_ref_session_run(session, 0, 1, pos, last[i]), 0);
        }
        kin_ref_session_close(session);
    }
    assert_true(kin_logits_error(last[0], last[1], EMBD) > 1e-3);
}

static void every_feature_changes_the_logits(void **state) {
    toy *t = *state;
    float want[N_A * VOCAB], got[N_A * VOCAB];
    run_sequence(&t->model, tokens_a, N_A, want);
    kin_ref_layer *w = &t->layers[1];
    kin_ref_tensor *optional[] = {&w->bq, &w->bk, &w->bv, &w->q_norm, &w->k_norm, &t->model.rope_freqs, &t->model.output};
    for (size_t i = 0; i < COUNT(optional); i++) {
        const kin_ref_tensor kept = *optional[i];
        *optional[i] = (kin_ref_tensor){0};
        run_sequence(&t->model, tokens_a, N_A, got);
        assert_true(kin_logits_error(got, want, N_A * VOCAB) > 1e-3);
        *optional[i] = kept;
    }
}

static void long_factors_count_in_long_contexts(void **state) {
    toy *t = *state;
    float want[N_A * VOCAB], got[N_A * VOCAB];
    run_sequence(&t->model, tokens_a, N_A, want);
    t->model.rope_freqs_long = toy_tensor(t, 1, 1, 6, 2, 1);
    t->model.rope.n_ctx_orig = CTX; // that of the session
    run_sequence(&t->model, tokens_a, N_A, got);
    assert_memory_equal(got, want, sizeof want);
    t->model.rope.n_ctx_orig = CTX - 1;
    run_sequence(&t->model, tokens_a, N_A, got);
    assert_true(kin_logits_error(got, want, N_A * VOCAB) > 1e-3);
    t->model.rope_freqs = t->model.rope_freqs_long;
    run_sequence(&t->model, tokens_a, N_A, want);
    assert_memory_equal(got, want, sizeof want);
}

// Replaces the experts by expert 0 as a dense feed-forward block.
static void make_dense(toy *t) {
    t->model.n_expert = t->model.n_expert_used = 0;
    for (int il = 0; il < LAYERS; il++) {
        kin_ref_layer *w = &t->layers[il];
        w->ffn_gate = kin_ref_tensor_matrix(&w->ffn_gate, 0);
        w->ffn_up = kin_ref_tensor_matrix(&w->ffn_up, 0);
        w->ffn_down = kin_ref_tensor_matrix(&w->ffn_down, 0);
        w->ffn_router = (kin_ref_tensor){0};
    }
}

static void copy_first_matrix(toy *t, const kin_ref_tensor *stack) {
    const size_t n = (size_t)stack->n_rows * (size_t)stack->n_cols;
    float *floats = t->floats + ((const float *)(const void *)stack->data - t->floats);
    for (int i = 1; i < stack->n_mats; i++) memcpy(floats + (size_t)i * n, floats, n * sizeof *floats);
}

static void equal_experts_equal_the_dense_model(void **state) {
    toy *t = *state;
    float moe[N_A * VOCAB], dense[N_A * VOCAB];
    for (int il = 0; il < LAYERS; il++) {
        copy_first_matrix(t, &t->layers[il].ffn_gate);
        copy_first_matrix(t, &t->layers[il].ffn_up);
        copy_first_matrix(t, &t->layers[il].ffn_down);
    }
    run_sequence(&t->model, tokens_a, N_A, moe);
    make_dense(t);
    run_sequence(&t->model, tokens_a, N_A, dense);
    assert_true(kin_logits_error(moe, dense, N_A * VOCAB) < 1e-5); // so the experts' shares sum to 1
}

static void of_equal_experts_the_first_is_chosen(void **state) {
    toy *t = *state;
    float moe[N_A * VOCAB], dense[N_A * VOCAB];
    t->model.n_expert_used = 1;
    for (int il = 0; il < LAYERS; il++) t->layers[il].ffn_router = toy_tensor(t, 1, EXPERTS, EMBD, 0, 0);
    run_sequence(&t->model, tokens_a, N_A, moe);
    make_dense(t);
    run_sequence(&t->model, tokens_a, N_A, dense);
    assert_memory_equal(moe, dense, sizeof moe);
}

// ---- what is refused

static void wrong_calls_are_refused(void **state) {
    toy *t = *state;
    float x[EMBD];
    kin_ref_session *s = kin_ref_session_open(&t->model, 1, 3, 4);
    assert_non_null(s);
    assert_int_equal(kin_ref_session_embed(s, -1, x), -1);
    assert_int_equal(kin_ref_session_embed(s, VOCAB, x), -1);
    assert_int_equal(kin_ref_session_embed(s, 1, x), 0);
    assert_int_equal(kin_ref_session_run(s, 0, 3, 0, x), -1);  // the session does not have layer 0
    assert_int_equal(kin_ref_session_run(s, 1, 4, 0, x), -1);  // there is no layer 3
    assert_int_equal(kin_ref_session_run(s, 2, 1, 0, x), -1);  // backwards
    assert_int_equal(kin_ref_session_run(s, 1, 3, 1, x), -1);  // nothing at position 0 yet
    assert_int_equal(kin_ref_session_run(s, 1, 3, -1, x), -1); // before the first
    assert_int_equal(kin_ref_session_run(s, 1, 2, 0, x), 0);
    assert_int_equal(kin_ref_session_run(s, 1, 3, 1, x), -1); // layer 2 has nothing at position 0
    for (int pos = 0; pos < 4; pos++) assert_int_equal(kin_ref_session_run(s, 1, 3, pos, x), 0);
    assert_int_equal(kin_ref_session_run(s, 1, 3, 4, x), -1); // the context is full
    t->layers[1].latent.shares_choice = true;
    assert_int_equal(kin_ref_session_run(s, 1, 3, 3, x), -1); // the layer before has not run
    t->layers[1].latent.shares_choice = false;
    kin_ref_session_close(s);
    kin_ref_session_close(NULL);
}

static void assert_refused(const toy *t, const char *name) {
    const char *wrong = kin_ref_model_check(&t->model, 0, LAYERS);
    assert_non_null(wrong);
    assert_string_equal(wrong, name);
    assert_null(kin_ref_session_open(&t->model, 0, LAYERS, CTX));
}
#define assert_refused(...) FROM_TEST(assert_refused(__VA_ARGS__))

static void wrong_models_are_refused_by_name(void **state) {
    toy *t = *state;
    const kin_ref_model good = t->model;
    kin_ref_layer good_layers[LAYERS];
    memcpy(good_layers, t->layers, sizeof good_layers);
    assert_null(kin_ref_model_check(&t->model, 0, LAYERS));
#define REFUSED(change, name)                                                                                                    \
    do {                                                                                                                         \
        change;                                                                                                                  \
        assert_refused(t, name);                                                                                                 \
        t->model = good;                                                                                                         \
        memcpy(t->layers, good_layers, sizeof good_layers);                                                                      \
    } while (0)
    REFUSED(t->model.n_head_kv = 3, "n_head_kv");
    REFUSED(t->model.n_embd = 0, "n_embd");
    REFUSED(t->model.n_layer = 2, "layer range");
    REFUSED(t->model.n_expert_used = 5, "n_expert_used");
    REFUSED(t->model.rms_eps = NAN, "rms_eps");
    REFUSED(t->model.rope.n_rot = 11, "rope.n_rot");
    REFUSED(t->model.rope.n_rot = 18, "rope.n_rot");
    REFUSED(t->model.rope.freq_base = 0, "rope.freq_base");
    REFUSED(t->model.rope.yarn = true, "rope.n_ctx_orig");
    REFUSED(t->model.window_rope.n_rot = 18, "rope.n_rot");
    REFUSED(t->model.value_dim = HEAD_DIM + 1, "value_dim");
    REFUSED(t->model.n_group = 3, "n_group");
    REFUSED((t->model.n_group = EXPERTS, t->model.n_group_used = 1), "n_group_used"); // too few for two experts
    REFUSED(t->model.query_temperature = 1, "temperature_length");
    REFUSED(t->layers[1].n_head = 2 * HEADS, "layer's n_head");
    REFUSED(t->layers[1].head_dim = HEAD_DIM + 1, "layer's head_dim");
    REFUSED(t->layers[1].head_dim = 8, "layer's head_dim"); // fewer than rotate
    REFUSED(t->layers[1].value_dim = HEAD_DIM + 1, "layer's value_dim");
    REFUSED(t->layers[1].kv_back = 2, "kv_back");
    REFUSED((t->layers[1].kv_back = t->layers[2].kv_back = 1), "kv_back"); // those of a layer without any
    REFUSED((t->layers[1].n_head_kv = t->layers[1].kv_back = 1, t->layers[1].wk.data = t->layers[1].wv.data = NULL,
             t->layers[1].bk.data = t->layers[1].bv.data = NULL),
            "kv_back");                                                 // those of a layer with another form
    REFUSED(t->layers[1].latent.shares_choice = true, "shares_choice"); // of a layer that does not choose
    REFUSED(t->model.n_streams = 9, "n_streams");
    REFUSED(t->model.n_streams = 2, "mixer.norm");
    REFUSED((t->model.n_streams = 2, t->model.n_sinkhorn = 1), "sinkhorn.fn");
    REFUSED(t->model.n_input = 8, "input_embd");
    REFUSED((t->model.n_input = 8, t->model.input_embd.type = KIN_REF_Q8_0), "input_embd"); // 8 are not a whole block
    REFUSED(t->layers[1].n_head = 3, "layer's n_head_kv");
    REFUSED(t->model.token_embd.n_rows--, "token_embd");
    REFUSED(t->model.rope_freqs.n_cols++, "rope_freqs");
    REFUSED(t->layers[2].wo.data = NULL, "wo");
    REFUSED(t->layers[2].wq.type = 1000, "wq");
    REFUSED(t->layers[2].wk.type = KIN_REF_Q4_K, "wk"); // 32 columns are not a whole block
    REFUSED(t->layers[0].ffn_up.n_bytes -= 4, "ffn_up");
    REFUSED(t->layers[0].ffn_down.n_mats = 3, "ffn_down");
    REFUSED(t->layers[0].bv.n_cols *= 2, "bv");
#undef REFUSED
    assert_null(kin_ref_session_open(&t->model, 0, LAYERS, 0));
    assert_null(kin_ref_session_open(&t->model, 0, LAYERS, KIN_REF_CTX_MAX + 1));
    assert_null(kin_ref_model_check(&t->model, 1, 1)); // no layers, as in a head: valid
}

// The tensors have large shapes and no data: 2^50 bytes of keys exceed every address space.
static void short_memory_gives_no_session(void **state) {
    toy *t = *state;
    kin_ref_layer *w = &t->layers[0];
    const int n_q = KIN_REF_HEAD_MAX * KIN_REF_HEAD_MAX;
    const kin_ref_tensor none = {0}, matrix = {(const uint8_t *)"", (size_t)n_q * EMBD * 4, KIN_REF_F32, 1, n_q, EMBD};
    t->model.n_head = t->model.n_head_kv = t->model.head_dim = KIN_REF_HEAD_MAX;
    w->wq = w->wk = w->wv = w->wo = matrix;
    w->wo.n_rows = EMBD;
    w->wo.n_cols = n_q;
    w->bq = w->bk = w->bv = w->q_norm = w->k_norm = none;
    assert_null(kin_ref_model_check(&t->model, 0, 1));
    assert_null(kin_ref_session_open(&t->model, 0, 1, KIN_REF_CTX_MAX));
}

// Loads the smallest valid file, modified by `architecture`, `scaling` and one more tensor.
static int load_file(const char *architecture, const char *scaling, const char *tensor, kin_ref_model *model, kin_err *err) {
    static const float data[64];
    const int64_t ne[] = {8, 8};
    uint8_t *bytes;
    size_t size;
    kin_gguf *gguf = NULL;
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "general.architecture", architecture);
    kin_gguf_writer_put_int(w, "qwen2.block_count", KIN_GGUF_U32, 1);
    kin_gguf_writer_put_int(w, "qwen2.embedding_length", KIN_GGUF_U32, 8);
    kin_gguf_writer_put_int(w, "qwen2.attention.head_count", KIN_GGUF_U32, 2);
    kin_gguf_writer_put_int(w, "qwen2.context_length", KIN_GGUF_U32, 4096);
    kin_gguf_writer_put_str(w, "qwen2.rope.scaling.type", scaling);
    kin_gguf_writer_put_float(w, "qwen2.rope.scaling.factor", KIN_GGUF_F32, 4);
    kin_gguf_writer_add(w, tensor, GGML_TYPE_F32, 2, ne, data);
    kin_gguf_writer_save_bytes(w, &bytes, &size);
    kin_gguf_writer_free(w);
    assert_int_equal(kin_gguf_open_bytes(&gguf, "test", bytes, size, err), 0);
    const int rc = kin_ref_load(model, gguf, err);
    kin_ref_unload(model);
    kin_gguf_close(gguf);
    free(bytes);
    return rc;
}
#define load_file(...) FROM_TEST(load_file(__VA_ARGS__))

static void loader_refuses_what_it_would_compute_wrongly(void **state) {
    (void)state;
    kin_ref_model model;
    kin_err err = {""};
    if (load_file("qwen2", "yarn", "token_embd.weight", &model, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(load_file("mamba", "yarn", "token_embd.weight", &model, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "mamba"));
    assert_int_equal(load_file("qwen2", "longrope", "token_embd.weight", &model, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "longrope"));
    assert_int_equal(load_file("qwen2", "yarn", "blk.0.attn_q.scale", &model, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "no place"));
}

#define TOY_TEST(name) cmocka_unit_test_setup_teardown(name, toy_setup, toy_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_models_give_the_exact_logits),
        cmocka_unit_test(norms_windows_ropes_and_experts_give_the_exact_logits),
        cmocka_unit_test(families_give_the_exact_logits),
        cmocka_unit_test(dequantized_rows_equal_ggmls),
        cmocka_unit_test(every_f16_equals_ggmls),
        cmocka_unit_test(unknown_types_have_no_blocks),
        cmocka_unit_test(rope_equals_ggmls),
        TOY_TEST(split_at_any_layer_gives_the_same_bits),
        TOY_TEST(two_sessions_of_half_a_model_give_the_same_bits),
        TOY_TEST(later_tokens_do_not_change_earlier_logits),
        TOY_TEST(rewound_session_forgets_what_came_after),
        TOY_TEST(order_matters_within_one_layer),
        TOY_TEST(every_feature_changes_the_logits),
        TOY_TEST(long_factors_count_in_long_contexts),
        TOY_TEST(equal_experts_equal_the_dense_model),
        TOY_TEST(of_equal_experts_the_first_is_chosen),
        TOY_TEST(wrong_calls_are_refused),
        TOY_TEST(wrong_models_are_refused_by_name),
        TOY_TEST(short_memory_gives_no_session),
        cmocka_unit_test(loader_refuses_what_it_would_compute_wrongly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
