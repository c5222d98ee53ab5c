// The engine on the CPU, compared with the reference engine on generated models of some families and of every weight type, and
// with itself.
//
// Errors are relative L2 distances between rows of logits. Their causes, largest first:
//   - quantized weights: ggml rounds activations to 8 bits before it multiplies, about 1 % per matrix
//   - F16 and BF16 weights: ggml rounds activations to the weights' type: 2^-11 or 2^-8 each
//   - all: the F16 cache of keys and values and the fused attention, about 2^-11
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/embed.h"
#include "sys/memory.h"
#include "testkit/head_eval.h"
#include "testkit/logits.h"
#include "testkit/model_gen.h"
#include "testkit/model_tensors.h"
#include "testkit/ref/forward.h"
#include "testkit/ref_load.h"
#include "testkit/runner.h"
#include "tests/place.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { N_VOCAB = 300, N_EMBD = 256, N_IDS = 20 };

static const int32_t ids[N_IDS] = {1, 5, 80, 299, 270, 260, 44, 99, 3, 17, 262, 12, 12, 12, 77, 205, 31, 259, 259, 200};

// ---- models

typedef struct temp_model {
    char path[64];
} temp_model;

static kin_model_spec small_spec(const char *arch, const char *mix) {
    kin_model_spec s = kin_model_spec_defaults();
    s.arch = arch;
    s.mix = mix;
    s.n_layer = 3;
    s.n_embd = N_EMBD;
    s.n_ff = 256;
    s.n_vocab = N_VOCAB;
    if (strcmp(arch, "qwen3moe") == 0) {
        s.n_expert = 6;
        s.n_expert_used = 3;
    }
    return s;
}

static temp_model make_model(const kin_model_spec *spec) {
    temp_model m = {"/tmp/kin-test-engine-XXXXXX"};
    kin_err err;
    int fd = mkstemp(m.path);
    assert_true(fd >= 0);
    close(fd);
    if (kin_model_gen(spec, m.path, &err) != 0) fail_msg("%s", err.text);
    return m;
}
#define make_model(...) FROM_TEST(make_model(__VA_ARGS__))

static void open_runner(kin_runner *r, const char *path, const kin_runner_options *o) {
    kin_err err;
    if (kin_runner_open(r, path, o, &err) != 0) fail_msg("%s", err.text);
}
#define open_runner(...) FROM_TEST(open_runner(__VA_ARGS__))

// Opens a small F32 model, on which wrong positions, masks and cells show best.
static void open_exact_runner(kin_runner *r, const kin_runner_options *o) {
    kin_model_spec spec = small_spec("llama", "f32");
    temp_model m = make_model(&spec);
    open_runner(r, m.path, o);
    unlink(m.path); // the mapping keeps the data
}
#define open_exact_runner(...) FROM_TEST(open_exact_runner(__VA_ARGS__))

// ---- logits

// Returns the largest error of n rows. NaN counts as larger than any number.
static double rows_error(const float *got, const float *want, int n) {
    double max = 0;
    for (int i = 0; i < n; i++) {
        double error = kin_logits_error(got + i * N_VOCAB, want + i * N_VOCAB, N_VOCAB);
        if (!(error <= max)) max = error;
    }
    return max;
}

#define assert_near(got, want, n, bound)                                                                                         \
    do {                                                                                                                         \
        double error_ = rows_error(got, want, n);                                                                                \
        if (!(error_ <= (bound))) fail_msg("error %.2e, at most %.2e is allowed", error_, (double)(bound));                      \
    } while (0)

static void eval(kin_runner *r, int32_t seq, int32_t pos, const int32_t *tokens, int n, float *logits) {
    kin_err err;
    if (kin_head_eval(r->head, seq, pos, tokens, n, logits, n, &err) != 0) fail_msg("%s", err.text);
}
#define eval(...) FROM_TEST(eval(__VA_ARGS__))

// Computes logits // (N_IDS, N_VOCAB) of all ids in a fresh sequence.
static void eval_all(kin_runner *r, float *logits) {
    kin_head_clear(r->head);
    eval(r, 0, 0, ids, N_IDS, logits);
}
#define eval_all(...) FROM_TEST(eval_all(__VA_ARGS__))

// ---- the reference engine

// Replaces a tensor by its values as ggml dequantizes them: the reference engine does not know all of ggml's types.
static void to_f32(kin_ref_tensor *t) {
    if (!t->data || t->type == GGML_TYPE_F32) return;
    size_t n = (size_t)t->n_mats * (size_t)t->n_rows * (size_t)t->n_cols;
    float *floats = malloc(n * sizeof *floats);
    assert_non_null(floats);
    ggml_get_type_traits((enum ggml_type)t->type)->to_float(t->data, floats, (int64_t)n);
    *t = (kin_ref_tensor){(const uint8_t *)floats, n * sizeof *floats, GGML_TYPE_F32, t->n_mats, t->n_rows, t->n_cols};
}

// Lists the tensors that may have another type than F32.
static int list_matrices(kin_ref_model *m, kin_ref_tensor **list) {
    int n = 0;
    list[n++] = &m->token_embd;
    list[n++] = &m->output;
    for (int il = 0; il < m->n_layer; il++) {
        kin_ref_layer *l = &m->layers[il];
        kin_ref_tensor *const of_layer[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->ffn_gate, &l->ffn_up, &l->ffn_down};
        memcpy(list + n, of_layer, sizeof of_layer);
        n += (int)COUNT(of_layer);
    }
    return n;
}

static void run_reference(const kin_ref_model *model, float *logits) {
    float x[N_EMBD];
    const char *wrong = kin_ref_model_check(model, 0, model->n_layer);
    if (wrong) fail_msg("the reference engine finds fault with %s", wrong);
    kin_ref_session *session = kin_ref_session_open(model, 0, model->n_layer, N_IDS);
    assert_non_null(session);
    for (int i = 0; i < N_IDS; i++) {
        assert_int_equal(kin_ref_session_embed(session, ids[i], x), 0);
        assert_int_equal(kin_ref_session_run(session, 0, model->n_layer, i, x), 0);
        assert_int_equal(kin_ref_session_output(session, x, logits + i * N_VOCAB), 0);
    }
    kin_ref_session_close(session);
}

static void eval_reference(const char *path, float *logits) {
    enum { MAX_MATRICES = 64 };
    kin_gguf *gguf;
    kin_ref_model model;
    kin_err err;
    kin_ref_tensor *matrices[MAX_MATRICES];
    const uint8_t *in_file[MAX_MATRICES];
    if (kin_gguf_open(&gguf, path, &err) != 0 || kin_ref_load(&model, gguf, &err) != 0) fail_msg("%s", err.text);
    int n = list_matrices(&model, matrices);
    for (int i = 0; i < n; i++) {
        in_file[i] = matrices[i]->data;
        to_f32(matrices[i]);
    }
    run_reference(&model, logits);
    for (int i = 0; i < n; i++) {
        if (matrices[i]->data != in_file[i]) free((void *)matrices[i]->data);
    }
    kin_ref_unload(&model);
    kin_gguf_close(gguf);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Computes errors // (n): the engine's error on a generated model for each of n sets of options, all ids in one batch. Each is
// the error of the worst row after the n_excepted worst ones are ignored.
static void errors_against_reference(const kin_model_spec *spec, const kin_runner_options *o, int n, int n_excepted,
                                     double *errors) {
    static float want[N_IDS * N_VOCAB], got[N_IDS * N_VOCAB];
    double of_rows[N_IDS];
    temp_model m = make_model(spec);
    kin_runner r;
    eval_reference(m.path, want);
    for (int k = 0; k < n; k++) {
        open_runner(&r, m.path, &o[k]);
        eval_all(&r, got);
        kin_runner_close(&r);
        for (int i = 0; i < N_IDS; i++) {
            of_rows[i] = kin_logits_error(got + i * N_VOCAB, want + i * N_VOCAB, N_VOCAB);
            if (isnan(of_rows[i])) of_rows[i] = INFINITY;
        }
        qsort(of_rows, N_IDS, sizeof *of_rows, compare);
        errors[k] = of_rows[N_IDS - 1 - n_excepted];
    }
    unlink(m.path);
}
#define errors_against_reference(...) FROM_TEST(errors_against_reference(__VA_ARGS__))

static void every_family_gives_the_reference_logits(void **state) {
    (void)state;
    const double bound = 3e-3; // 1.3e-3 measured
    kin_model_spec specs[] = {
        small_spec("llama", "f32"), small_spec("llama", "f32"), small_spec("llama", "f32"),    small_spec("llama", "f32"),
        small_spec("qwen2", "f32"), small_spec("qwen3", "f32"), small_spec("qwen3moe", "f32"),
    };
    static const char *const names[] = {"llama", "llama tied", "llama with rope_freqs", "mixtral", "qwen2", "qwen3", "qwen3moe"};
    specs[1].tied = true;
    specs[2].rope_freqs = true;
    specs[2].rope_freq_base = 500000;
    specs[3].n_expert = 8;
    specs[3].n_expert_used = 2;
    specs[5].head_dim = 64; // not n_embd / n_head
    specs[6].n_ff_exp = 96;
    kin_runner_options o[2] = {kin_runner_options_defaults(), kin_runner_options_defaults()};
    o[1].flash = false;
    for (size_t i = 0; i < COUNT(specs); i++) {
        // Rounding decides near-ties between experts: one row in ten. With more layers, later rows would see the difference
        // too.
        double errors[2];
        if (specs[i].n_expert) specs[i].n_layer = 1;
        errors_against_reference(&specs[i], o, 2, specs[i].n_expert ? N_IDS / 10 : 0, errors);
        print_message("             %-22s errors %.1e fused attention, %.1e plain\n", names[i], errors[0], errors[1]);
        assert_true(errors[0] <= bound && errors[1] <= bound);
    }
}

static double bound_of_mix(const char *mix) {
    if (strcmp(mix, "f32") == 0 || strcmp(mix, "f16") == 0) return 2e-3;
    return strcmp(mix, "bf16") == 0 ? 1.5e-2 : 6e-2;
}

static void every_weight_type_gives_the_reference_logits(void **state) {
    (void)state;
    char mixes[512];
    int n = 0;
    snprintf(mixes, sizeof mixes, "%s", kin_model_mixes());
    for (char *mix = strtok(mixes, ", "); mix; mix = strtok(NULL, ", "), n++) {
        kin_model_spec spec = small_spec("llama", mix);
        kin_runner_options o[2] = {kin_runner_options_defaults(), kin_runner_options_defaults()};
        double errors[2];
        o[1].device.repack = false;
        errors_against_reference(&spec, o, 2, 0, errors);
        print_message("             %-8s errors %.1e repacked, %.1e as in the file\n", mix, errors[0], errors[1]);
        assert_true(errors[0] <= bound_of_mix(mix) && errors[1] <= bound_of_mix(mix));
    }
    assert_true(n >= 20);
}

static void experts_of_any_type_give_the_reference_logits(void **state) {
    (void)state;
    static const char *const mixes[] = {"f32", "q4_0", "q4_k_m", "q8_0", "iq4_nl"};
    for (size_t i = 0; i < COUNT(mixes); i++) {
        kin_model_spec spec = small_spec("qwen3moe", mixes[i]);
        spec.n_expert_used = spec.n_expert; // all experts used: no choice, so no near-ties
        kin_runner_options o = kin_runner_options_defaults();
        double error;
        errors_against_reference(&spec, &o, 1, 0, &error);
        print_message("             %-8s error %.1e\n", mixes[i], error);
        assert_true(error <= bound_of_mix(mixes[i]));
    }
}

// ---- cache types and batches

static void q8_0_cache_is_close_to_f16(void **state) {
    (void)state;
    float want[N_IDS * N_VOCAB], got[N_IDS * N_VOCAB];
    for (int flash = 0; flash < 2; flash++) {
        kin_runner_options o = kin_runner_options_defaults();
        o.flash = flash;
        kin_runner r;
        open_exact_runner(&r, &o);
        eval_all(&r, want);
        kin_runner_close(&r);
        o.kv_type = GGML_TYPE_Q8_0;
        open_exact_runner(&r, &o);
        eval_all(&r, got);
        kin_runner_close(&r);
        assert_memory_not_equal(got, want, sizeof got);
        assert_near(got, want, N_IDS, 2e-2);
    }
}

static void batch_sizes_agree(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 7, 19};
    float want[N_IDS * N_VOCAB], got[N_IDS * N_VOCAB];
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    open_exact_runner(&r, &o);
    eval_all(&r, want);
    kin_runner_close(&r);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        o.n_batch = sizes[i];
        open_exact_runner(&r, &o);
        eval_all(&r, got);
        kin_runner_close(&r);
        assert_near(got, want, N_IDS, 2e-3);
    }
}

static void the_last_row_alone_is_the_last_of_all_rows(void **state) {
    (void)state;
    float want[N_IDS * N_VOCAB], got[N_VOCAB];
    kin_err err;
    for (int n_batch = 7; n_batch <= 64; n_batch += 57) {
        kin_runner_options o = kin_runner_options_defaults();
        o.n_batch = n_batch;
        kin_runner r;
        open_exact_runner(&r, &o);
        eval_all(&r, want);
        kin_head_clear(r.head);
        assert_int_equal(kin_head_eval(r.head, 0, 0, ids, N_IDS, got, 1, &err), 0);
        assert_near(got, want + (N_IDS - 1) * N_VOCAB, 1, 2e-3);

        // Tokens evaluated without logits are in the cache all the same.
        kin_head_clear(r.head);
        assert_int_equal(kin_head_eval(r.head, 0, 0, ids, N_IDS - 1, NULL, 0, &err), 0);
        assert_int_equal(kin_head_eval(r.head, 0, N_IDS - 1, ids + N_IDS - 1, 1, got, 1, &err), 0);
        assert_near(got, want + (N_IDS - 1) * N_VOCAB, 1, 2e-3);
        kin_runner_close(&r);
    }
}

// Covers attention over several steps of 64 cells, and an output layer with more rows than it takes at once.
static void a_long_prompt_is_the_same_in_any_batches(void **state) {
    (void)state;
    enum { N = 150 };
    static float want[N * N_VOCAB], got[N * N_VOCAB];
    int32_t tokens[N];
    for (int i = 0; i < N; i++) tokens[i] = i * 37 % N_VOCAB;
    for (int flash = 0; flash < 2; flash++) {
        kin_runner_options o = kin_runner_options_defaults();
        o.flash = flash;
        o.n_batch = N;
        kin_runner r;
        open_exact_runner(&r, &o);
        eval(&r, 0, 0, tokens, N, want);
        kin_runner_close(&r);
        o.n_batch = 33;
        open_exact_runner(&r, &o);
        eval(&r, 0, 0, tokens, N, got);
        kin_runner_close(&r);
        assert_near(got, want, N, 1e-2); // the fused attention accumulates in F16 here and in F32 there: 4e-3 measured
    }
}

// ---- sequences and cells

static void sequences_do_not_see_each_other(void **state) {
    (void)state;
    float want[2][N_IDS * N_VOCAB], got[2][N_IDS * N_VOCAB];
    int32_t other[N_IDS];
    for (int i = 0; i < N_IDS; i++) other[i] = ids[N_IDS - 1 - i];
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    open_exact_runner(&r, &o);
    const int32_t *const sequences[2] = {ids, other};
    for (int s = 0; s < 2; s++) {
        kin_head_clear(r.head);
        eval(&r, 0, 0, sequences[s], N_IDS, want[s]);
    }
    kin_head_clear(r.head);
    for (int i = 0; i < N_IDS; i += 5) { // alternating between the sequences
        for (int s = 0; s < 2; s++) eval(&r, s * 7, i, sequences[s] + i, 5, got[s] + i * N_VOCAB);
    }
    for (int s = 0; s < 2; s++) assert_near(got[s], want[s], N_IDS, 2e-3);
    kin_runner_close(&r);
}

// Runs a batch through all windows of a shard. x // f32 [n_tokens, n_embd] in and out
static void run_step(kin_shard *shard, const kin_batch *batch, float *x) {
    kin_err err;
    int step = kin_shard_begin(shard, batch, &err);
    assert_true(step >= 0);
    for (int i = 0; i < kin_shard_n_windows(shard); i++) assert_int_equal(kin_shard_run(shard, step, i, x, x, &err), 0);
    kin_shard_end(shard, step, true);
}
#define run_step(...) FROM_TEST(run_step(__VA_ARGS__))

// One step with tokens of three sequences, as continuous batching builds it.
static void sequences_in_one_batch_do_not_see_each_other(void **state) {
    (void)state;
    enum { N_SEQ = 3, LEN = 6, N = N_SEQ * LEN };
    static float x[N * N_EMBD], got[N * N_VOCAB], want[LEN * N_VOCAB];
    int32_t tokens[N], pos[N], seq[N];
    kin_err err;
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    open_exact_runner(&r, &o);
    for (int i = 0; i < N; i++) { // interleaved token by token
        seq[i] = i % N_SEQ;
        pos[i] = i / N_SEQ;
        tokens[i] = ids[(seq[i] * LEN + pos[i]) % N_IDS];
    }
    const kin_batch batch = {.n_tokens = N, .pos = pos, .seq = seq};
    assert_int_equal(kin_embed(&r.model, tokens, N, x, &err), 0);
    run_step(r.shard, &batch, x);
    assert_int_equal(kin_shard_output(r.shard, N, x, got, &err), 0);
    for (int s = 0; s < N_SEQ; s++) {
        kin_head_clear(r.head);
        eval(&r, 0, 0, ids + s * LEN, LEN, want);
        for (int i = 0; i < LEN; i++) assert_near(got + (i * N_SEQ + s) * N_VOCAB, want + i * N_VOCAB, 1, 2e-3);
    }
    kin_runner_close(&r);
}

static void removed_positions_leave_no_trace(void **state) {
    (void)state;
    float want[N_IDS * N_VOCAB], got[N_IDS * N_VOCAB];
    int32_t wrong[N_IDS];
    for (int i = 0; i < N_IDS; i++) wrong[i] = (ids[i] + 50) % N_VOCAB;
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    open_exact_runner(&r, &o);
    eval_all(&r, want);

    kin_head_clear(r.head);
    eval(&r, 3, 0, wrong, N_IDS, got); // another sequence comes first and is removed later
    eval(&r, 0, 0, ids, 8, got);
    eval(&r, 0, 8, wrong, 9, got + 8 * N_VOCAB);
    kin_head_truncate(r.head, 0, 8);
    kin_head_truncate(r.head, 3, 0);
    eval(&r, 0, 8, ids + 8, N_IDS - 8, got + 8 * N_VOCAB); // these go to the lowest free cells, in front of the first ones
    assert_near(got, want, N_IDS, 2e-3);
    kin_runner_close(&r);
}

static void a_full_context_is_an_error_and_stays_usable(void **state) {
    (void)state;
    float want[N_IDS * N_VOCAB], got[N_IDS * N_VOCAB];
    kin_err err;
    kin_runner_options o = kin_runner_options_defaults();
    o.n_ctx = N_IDS;
    kin_runner r;
    open_exact_runner(&r, &o);
    eval_all(&r, want);
    assert_int_equal(kin_head_eval(r.head, 0, N_IDS, ids, 1, got, 1, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "context of 20 tokens is full"));

    kin_head_truncate(r.head, 0, 15);
    assert_int_equal(kin_head_eval(r.head, 0, 15, ids, 6, got, 1, &err), KIN_FAIL); // only 5 cells are free
    eval(&r, 0, 15, ids + 15, 5, got + 15 * N_VOCAB);
    assert_near(got + 15 * N_VOCAB, want + 15 * N_VOCAB, 5, 2e-3);
    kin_runner_close(&r);
}

// ---- shards

// Opens layers [begin, end) over the runner's model and devices.
static kin_shard *open_part(const kin_runner *r, int begin, int end) {
    kin_shard *shard;
    kin_err err;
    kin_shard_options so = kin_shard_options_defaults(&r->model);
    so.windows = kin_windows_one(begin, end, 0);
    so.n_ctx = 256;
    so.n_batch = 64;
    so.output = end == r->model.hp.n_layer;
    if (kin_shard_open(&shard, &r->model, &r->devices, &so, &err) != 0) fail_msg("%s", err.text);
    return shard;
}
#define open_part(...) FROM_TEST(open_part(__VA_ARGS__))

// Feeds the ids through two shards in series: the prompt in one batch, the rest token by token.
static void eval_chained(const kin_runner *r, kin_shard *a, kin_shard *b, float *logits) {
    static float x[N_IDS * N_EMBD];
    int32_t pos[N_IDS];
    kin_err err;
    for (int i = 0; i < N_IDS; i++) pos[i] = i;
    for (int at = 0, n = N_IDS - 4; at < N_IDS; at += n, n = 1) {
        const kin_batch batch = {.n_tokens = n, .pos = pos + at};
        assert_int_equal(kin_embed(&r->model, ids + at, n, x, &err), 0);
        run_step(a, &batch, x);
        run_step(b, &batch, x);
        assert_int_equal(kin_shard_output(b, n, x, logits + at * N_VOCAB, &err), 0);
    }
}
#define eval_chained(...) FROM_TEST(eval_chained(__VA_ARGS__))

static void two_shards_give_the_bits_of_one(void **state) {
    (void)state;
    static const char *const mixes[] = {"f32", "q4_k_m"};
    float want[N_IDS * N_VOCAB], got[N_IDS * N_VOCAB];
    for (size_t i = 0; i < COUNT(mixes); i++) {
        kin_model_spec spec = small_spec("llama", mixes[i]);
        temp_model m = make_model(&spec);
        kin_runner_options o = kin_runner_options_defaults();
        kin_runner r;
        open_runner(&r, m.path, &o);
        eval(&r, 0, 0, ids, N_IDS - 4, want);
        for (int k = N_IDS - 4; k < N_IDS; k++) eval(&r, 0, k, ids + k, 1, want + k * N_VOCAB);
        for (int cut = 1; cut < spec.n_layer; cut++) {
            kin_shard *a = open_part(&r, 0, cut), *b = open_part(&r, cut, spec.n_layer);
            eval_chained(&r, a, b, got);
            assert_memory_equal(got, want, sizeof got);
            kin_shard_close(a);
            kin_shard_close(b);
        }
        kin_runner_close(&r);
        unlink(m.path);
    }
}

// ---- refused input

static void tokens_outside_of_the_vocabulary_are_refused(void **state) {
    (void)state;
    static const int32_t wrong[] = {-1, N_VOCAB, INT32_MAX, INT32_MIN};
    float want[N_IDS * N_VOCAB], got[N_IDS * N_VOCAB];
    kin_err err;
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    open_exact_runner(&r, &o);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const int32_t tokens[3] = {1, wrong[i], 2};
        assert_int_equal(kin_head_eval(r.head, 0, 0, tokens, 3, got, 3, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "is not in the vocabulary (0..299)"));
    }
    eval(&r, 0, 0, ids, N_IDS, got); // the refused tokens left nothing in the cache
    eval_all(&r, want);
    assert_memory_equal(got, want, sizeof got);
    kin_runner_close(&r);
}

static void a_context_beyond_memory_is_refused_with_numbers(void **state) {
    (void)state;
    const uint64_t bytes_per_token = 2 * 2 * 3 * 64; // keys and values in F16, 3 layers, 2 heads of 32
    uint64_t n = kin_memory_read().total / bytes_per_token * 2;
    kin_model_spec spec = small_spec("llama", "f32");
    temp_model m = make_model(&spec);
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    kin_err err;
    o.n_ctx = n < INT32_MAX ? (int)n : INT32_MAX;
    assert_int_equal(kin_runner_open(&r, m.path, &o, &err), KIN_FAIL);
    print_message("             %s\n", err.text);
    assert_non_null(strstr(err.text, "a context of "));
    assert_non_null(strstr(err.text, "use a smaller --ctx"));
    unlink(m.path);
}

// Several windows with several chunks of a prompt in flight, as in a ring.
static void windows_and_chunks_in_flight_give_the_same_bits(void **state) {
    (void)state;
    enum { CHUNK = 5, N_CHUNKS = 3 };
    static float want[N_IDS * N_VOCAB], got[N_IDS * N_VOCAB], x[N_CHUNKS][CHUNK * N_EMBD];
    int32_t pos[N_IDS];
    int steps[N_CHUNKS];
    kin_err err;
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    open_exact_runner(&r, &o);
    for (int i = 0; i < N_CHUNKS; i++) {
        const int at = i * CHUNK;
        assert_int_equal(kin_head_eval(r.head, 0, at, ids + at, CHUNK, want + at * N_VOCAB, CHUNK, &err), 0);
    }

    kin_shard *shard;
    kin_shard_options so = kin_shard_options_defaults(&r.model);
    const int n_layer = r.model.hp.n_layer;
    so.windows = (kin_windows){.n = 2, .at = {{0, 1, 0, 0}, {1, n_layer, 0, 0}}};
    so.n_ctx = 256;
    so.n_batch = 64;
    so.n_steps = N_CHUNKS;
    if (kin_shard_open(&shard, &r.model, &r.devices, &so, &err) != 0) fail_msg("%s", err.text);
    for (int i = 0; i < N_IDS; i++) pos[i] = i;
    for (int i = 0; i < N_CHUNKS; i++) {
        const kin_batch batch = {.n_tokens = CHUNK, .pos = pos + i * CHUNK};
        assert_int_equal(kin_embed(&r.model, ids + i * CHUNK, CHUNK, x[i], &err), 0);
        assert_true((steps[i] = kin_shard_begin(shard, &batch, &err)) >= 0);
        assert_int_equal(kin_shard_run(shard, steps[i], 0, x[i], x[i], &err), 0);
    }
    assert_int_equal(kin_shard_begin(shard, &(kin_batch){.n_tokens = 1, .pos = pos}, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "3 steps are in flight"));
    for (int i = 0; i < N_CHUNKS; i++) {
        assert_int_equal(kin_shard_run(shard, steps[i], 1, x[i], x[i], &err), 0);
        assert_int_equal(kin_shard_output(shard, CHUNK, x[i], got + i * CHUNK * N_VOCAB, &err), 0);
        kin_shard_end(shard, steps[i], true);
    }
    assert_memory_equal(got, want, N_CHUNKS * CHUNK * N_VOCAB * sizeof *got);
    kin_shard_close(shard);
    kin_runner_close(&r);
}

static void a_step_that_branches_is_refused_where_ggml_computes_attention(void **state) {
    (void)state;
    const int32_t pos[] = {0, 1, 1}, seq[] = {0, 0, 1};
    const kin_kv_op op = {.seq = 1, .from = 0, .n = 1};
    const kin_batch batch = {.n_tokens = 3, .pos = pos, .seq = seq, .ops = &op, .n_ops = 1};
    float x[3 * N_EMBD];
    kin_err err;
    for (int ggml = 0; ggml < 2; ggml++) {
        kin_runner_options o = kin_runner_options_defaults();
        kin_runner r;
        o.device.ggml_kernels = ggml;
        open_exact_runner(&r, &o);
        if (ggml || !r.devices.cpu.kernels) {
            assert_int_equal(kin_shard_begin(r.shard, &batch, &err), KIN_FAIL);
            assert_non_null(strstr(err.text, "a step that branches needs kin's kernels"));
        } else {
            assert_int_equal(kin_embed(&r.model, ids, 3, x, &err), 0);
            run_step(r.shard, &batch, x);
        }
        kin_runner_close(&r);
    }
}

static void gpu_layers_without_a_gpu_are_refused(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    open_exact_runner(&r, &o);
    kin_shard *shard;
    kin_err err;
    kin_shard_options so = kin_shard_options_defaults(&r.model);
    so.windows.at[0].n_gpu_layers = 1;
    assert_int_equal(kin_shard_open(&shard, &r.model, &r.devices, &so, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "no GPU is open"));
    assert_null(shard);
    so.windows.at[0].n_cpu_moe = 1; // the model is dense
    assert_int_equal(kin_shard_open(&shard, &r.model, &r.devices, &so, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "this model has no experts"));
    kin_runner_close(&r);
}

static void a_stopped_run_is_an_error_and_leaves_no_trace(void **state) {
    (void)state;
    float want[N_IDS * N_VOCAB], got[N_IDS * N_VOCAB];
    atomic_bool stop = false;
    kin_err err;
    kin_runner_options o = kin_runner_options_defaults();
    o.device.stop = &stop;
    kin_runner r;
    open_exact_runner(&r, &o);
    eval(&r, 0, 0, ids, 10, want);
    atomic_store(&stop, true);
    assert_int_equal(kin_head_eval(r.head, 0, 10, ids + 10, 10, got, 10, &err), KIN_FAIL);
    assert_string_equal(err.text, "stopped");
    atomic_store(&stop, false);
    eval(&r, 0, 10, ids + 10, 10, got + 10 * N_VOCAB);
    eval_all(&r, want);
    assert_near(got + 10 * N_VOCAB, want + 10 * N_VOCAB, 10, 2e-3);
    kin_runner_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_gives_the_reference_logits),
        cmocka_unit_test(every_weight_type_gives_the_reference_logits),
        cmocka_unit_test(experts_of_any_type_give_the_reference_logits),
        cmocka_unit_test(q8_0_cache_is_close_to_f16),
        cmocka_unit_test(batch_sizes_agree),
        cmocka_unit_test(the_last_row_alone_is_the_last_of_all_rows),
        cmocka_unit_test(a_long_prompt_is_the_same_in_any_batches),
        cmocka_unit_test(sequences_do_not_see_each_other),
        cmocka_unit_test(sequences_in_one_batch_do_not_see_each_other),
        cmocka_unit_test(removed_positions_leave_no_trace),
        cmocka_unit_test(a_full_context_is_an_error_and_stays_usable),
        cmocka_unit_test(two_shards_give_the_bits_of_one),
        cmocka_unit_test(windows_and_chunks_in_flight_give_the_same_bits),
        cmocka_unit_test(tokens_outside_of_the_vocabulary_are_refused),
        cmocka_unit_test(a_context_beyond_memory_is_refused_with_numbers),
        cmocka_unit_test(a_step_that_branches_is_refused_where_ggml_computes_attention),
        cmocka_unit_test(gpu_layers_without_a_gpu_are_refused),
        cmocka_unit_test(a_stopped_run_is_an_error_and_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
