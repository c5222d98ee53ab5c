// Golden models of the families other than llama and Qwen, on the CPU: every configuration stays within the bounds of
// testkit/golden.h, with kin's kernels and with ggml's operators. Some are in tests/golden, the others in a folder beside the
// clone.
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/model_facts.h"
#include "engine/shard_memory.h"
#include "model/draft_block.h"
#include "testkit/gguf_write.h"
#include "testkit/golden.h"
#include "testkit/head_eval.h"
#include "testkit/logits.h"
#include "testkit/model_gen.h"
#include "testkit/runner.h"
#include "testkit/thread_ring.h"
#include "tests/place.h"

#define GOLDEN_DIR KIN_SOURCE_DIR "/../shared/golden-families"
#define OWN_DIR KIN_SOURCE_DIR "/tests/golden"

// The models in the folder whose families kin knows.
static const char *const known[] = {"dsv2-legacy.",
                                    "dsv2lite.",
                                    "dsv3.",
                                    "gemma2.",
                                    "gemma2-27b.",
                                    "gemma3.",
                                    "gemma3-270m.",
                                    "gemma4-26b.",
                                    "gemma4-e2b.",
                                    "glm4.",
                                    "glm4moe.",
                                    "gpt-oss.",
                                    "granite.",
                                    "granitemoe.",
                                    "lfm2moe.",
                                    "minimax-m2.",
                                    "ministral3.",
                                    "olmo2.",
                                    "olmo3.",
                                    "phi3-mini.",
                                    "phi4-mini.",
                                    "qwen2moe.",
                                    "mistral-large3.",
                                    "qwen35.",
                                    "qwen35moe.",
                                    "qwen35-mtp.",
                                    "qwen3next.",
                                    "smollm3.",
                                    "qwen3next-legacy-long."};
enum { N_KNOWN = sizeof known / sizeof known[0] };

static kin_golden models[KIN_GOLDEN_MAX_MODELS], own[KIN_GOLDEN_MAX_MODELS];
static int n_models, n_own; // n_models 0: the folder beside the clone is not there

static bool is_known(const kin_golden *g) {
    for (int i = 0; i < N_KNOWN; i++)
        if (strncmp(g->name, known[i], strlen(known[i])) == 0) return true;
    return false;
}

// True if only kin's kernels can compute the model.
static bool lacks_ggml(const kin_golden *g) {
    static const char *const lacking[] = {"deepseek32",      "deepseek4",    "dsv2",       "dsv3.",       "glm-dsa",
                                          "glm5next",        "kimi-linear.", "lfm2",       "ministral3.", "minimax-m3-sparse.",
                                          "mistral-large3.", "mistral4.",    "nemotron_h", "qwen35",      "qwen3next",
                                          "qwen4exp"};
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        if (strncmp(g->name, lacking[i], strlen(lacking[i])) == 0) return true;
    return false;
}

static const kin_golden *own_of(const char *name) {
    for (int i = 0; i < n_own; i++)
        if (strncmp(own[i].name, name, strlen(name)) == 0) return &own[i];
    fail_msg("no golden model of this folder is called %s", name);
    return NULL;
}

// For tests that concern no threads: in models as small as these, two threads take twice the processor time of one, since they
// mostly wait for each other.
static kin_runner_options one_thread(void) {
    kin_runner_options o = kin_runner_options_defaults();
    o.device.n_threads = 1;
    return o;
}

// Returns whether the model is computed as it must be.
static bool check_model(const char *dir, const kin_golden *g, const kin_runner_options *options) {
    kin_golden_result r;
    kin_err err;
    int rc = kin_golden_check(dir, g, options, &r, &err);
    if (options->device.ggml_kernels && lacks_ggml(g)) {
        assert_int_not_equal(rc, 0);
        assert_non_null(strstr(err.text, "needs kin's CPU kernels"));
        return true;
    }
    if (rc != 0)
        print_message("%s\n", err.text);
    else
        print_message("             %-24s errors %.2e %.2e (llama.cpp %.2e %.2e), %2d ids generated\n", g->name, r.error_median,
                      r.error_max, g->error_median, g->error_max, r.n_generated);
    return rc == 0;
}

static void check_all(const kin_runner_options *options) {
    int n = 0, n_wrong = 0;
    for (int i = 0; i < n_own; i++) n_wrong += !check_model(OWN_DIR, &own[i], options);
    for (int i = 0; i < n_models; i++) {
        if (!is_known(&models[i])) continue;
        n++;
        n_wrong += !check_model(GOLDEN_DIR, &models[i], options);
    }
    assert_int_equal(n, n_models ? N_KNOWN : 0);
    assert_int_equal(n_wrong, 0);
}
#define check_all(...) FROM_TEST(check_all(__VA_ARGS__))

static void kin_s_kernels_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    check_all(&o);
}

static void weights_as_in_the_file_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.device.repack = false;
    check_all(&o);
}

static void ggml_s_operators_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = kin_runner_options_defaults();
    o.device.ggml_kernels = true;
    check_all(&o);
}

static void plain_attention_is_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = one_thread();
    o.device.ggml_kernels = true;
    o.flash = false;
    check_all(&o);
}

static void a_prompt_in_small_batches_is_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = one_thread();
    o.n_batch = 8;
    check_all(&o);
}

static void a_prompt_token_by_token_is_as_exact_as_llama_cpp(void **state) {
    (void)state;
    kin_runner_options o = one_thread();
    o.n_batch = 1;
    check_all(&o);
}

// All logits of a model's ids // [n_ids, n_vocab]; returns the bytes of weights that were streamed.
static uint64_t eval_ids(const char *path, const kin_golden *g, const kin_runner_options *o, float *logits) {
    kin_runner r;
    kin_err err;
    if (kin_runner_open(&r, path, o, &err) != 0) return 0;
    if (kin_head_eval(r.head, 0, 0, g->ids, g->n_ids, logits, g->n_ids, &err) != 0) fail_msg("%s: %s", g->name, err.text);
    uint64_t streamed = kin_shard_get_stats(r.shard).weights.stream.read_bytes;
    kin_runner_close(&r);
    return streamed;
}
#define eval_ids(...) FROM_TEST(eval_ids(__VA_ARGS__))

static uint64_t fixed_bytes(const char *path, const kin_runner_options *o, uint64_t *weights) {
    kin_model m;
    kin_err err;
    if (kin_model_open(&m, path, &err) != 0) fail_msg("%s", err.text);
    kin_shard_options so = kin_shard_options_defaults(&m);
    so.n_ctx = o->n_ctx;
    so.n_batch = o->n_batch;
    uint64_t fixed = kin_shard_fixed_bytes(&m, &so);
    *weights = 0;
    for (int il = 0; il < m.hp.n_layer; il++) *weights += kin_model_layer_bytes(&m, il);
    kin_model_close(&m);
    return fixed;
}

static void remove_folder(const char *path) {
    char file[512];
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') assert_int_equal(unlink(file), 0);
    }
    closedir(dir);
    assert_int_equal(rmdir(path), 0);
}

static void check_streamed(const char *dir, const kin_golden *g) {
    char path[1024];
    uint64_t weights, streamed = 0;
    char cache[] = "/tmp/kin-test-families-XXXXXX";
    kin_runner_options o = one_thread();
    size_t n = (size_t)g->n_ids * (size_t)g->n_vocab * sizeof(float);
    float *want = calloc(1, n), *got = malloc(n);
    assert_true(want && got);
    snprintf(path, sizeof path, "%s/%s.gguf", dir, g->name);
    o.device.repack = false;
    assert_non_null(mkdtemp(cache));
    o.cache_dir = cache; // for weights that are converted
    o.n_batch = 24;      // the last layer drops rows in the last batch only
    eval_ids(path, g, &o, want);
    const uint64_t fixed = fixed_bytes(path, &o, &weights);
    for (uint64_t sixteenth = 1; sixteenth < 16 && !streamed; sixteenth++) { // the least memory that a ring fits in
        o.memory = fixed + weights * sixteenth / 16;
        streamed = eval_ids(path, g, &o, got);
    }
    if (!streamed) fail_msg("%s: nothing was streamed", g->name);
    if (memcmp(got, want, n) != 0) fail_msg("%s: streamed weights give other logits", g->name);
    remove_folder(cache);
    free(got);
    free(want);
}
#define check_streamed(...) FROM_TEST(check_streamed(__VA_ARGS__))

// Weights that a first run packs into a cache file, and a second one finds there.
static void check_cached(const char *dir, const kin_golden *g) {
    const size_t n = (size_t)g->n_ids * (size_t)g->n_vocab * sizeof(float);
    kin_runner_options o = kin_runner_options_defaults();
    float *want = calloc(1, n), *got = malloc(n);
    char path[1024], cache[] = "/tmp/kin-test-families-XXXXXX";
    assert_true(want && got);
    snprintf(path, sizeof path, "%s/%s.gguf", dir, g->name);
    eval_ids(path, g, &o, want);
    assert_non_null(mkdtemp(cache));
    o.cache_dir = cache;
    for (int run = 0; run < 2; run++) {
        eval_ids(path, g, &o, got);
        if (memcmp(got, want, n) != 0) fail_msg("%s: run %d with a cache gives other logits", g->name, run);
    }
    remove_folder(cache);
    free(got);
    free(want);
}
#define check_cached(...) FROM_TEST(check_cached(__VA_ARGS__))

static void weights_from_the_cache_give_the_same_bits(void **state) {
    (void)state;
    for (int i = 0; i < n_own; i++) check_cached(OWN_DIR, &own[i]);
}

static void streamed_weights_give_the_same_bits(void **state) {
    (void)state;
    for (int i = 0; i < n_own; i++) check_streamed(OWN_DIR, &own[i]);
    for (int i = 0; i < n_models; i++)
        if (is_known(&models[i])) check_streamed(GOLDEN_DIR, &models[i]);
}

// Returns a context for n sequences of n_ids tokens: whole blocks of 64, and of 2048 for each state of recurrent layers, if the
// model can have so many.
static int context_for(const char *path, int n, int n_ids) {
    kin_model m;
    kin_err err;
    if (kin_model_open(&m, path, &err) != 0) fail_msg("%s", err.text);
    const int most = m.hp.n_ctx_max > 0 ? m.hp.n_ctx_max : INT_MAX, n_cells = n * ((n_ids + 63) / 64 * 64);
    const int n_ctx = kin_hparams_has_states(&m.hp) ? n * 2048 : n_cells;
    kin_model_close(&m);
    return n_ctx < most ? n_ctx : most;
}

static bool has_heads_for(const char *path, enum ggml_type kv_type) {
    kin_model m;
    kin_err err;
    if (kin_model_open(&m, path, &err) != 0) fail_msg("%s", err.text);
    const bool has = kin_kv_check_type(&m.hp, kv_type, &err) == 0;
    kin_model_close(&m);
    return has;
}

// The logits of each of n sequences with a model's ids // [n, n_ids, n_vocab], which take turns with 8 tokens each.
static void eval_in_turns(const char *path, const kin_golden *g, enum ggml_type kv_type, int n, float *logits) {
    kin_runner_options o = one_thread();
    kin_runner r;
    kin_err err;
    o.n_ctx = context_for(path, n, g->n_ids);
    o.kv_type = kv_type;
    if (kin_runner_open(&r, path, &o, &err) != 0) fail_msg("%s", err.text);
    for (int at = 0; at < g->n_ids; at += 8) {
        const int n_here = g->n_ids - at < 8 ? g->n_ids - at : 8;
        for (int i = 0; i < n; i++) {
            float *to = logits + ((size_t)i * (size_t)g->n_ids + (size_t)at) * (size_t)g->n_vocab;
            if (kin_head_eval(r.head, i, at, g->ids + at, n_here, to, n_here, &err) != 0) fail_msg("%s: %s", g->name, err.text);
        }
    }
    kin_runner_close(&r);
}

static int compare_errors(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Returns the median over the rows of |got - want| / |want|: a few rows of a mixture may choose other experts.
static double median_error(const kin_golden *g, const float *got, const float *want) {
    double errors[KIN_GOLDEN_MAX_IDS];
    for (int row = 0; row < g->n_ids; row++) {
        double diff = 0, sum = 0;
        for (int i = 0; i < g->n_vocab; i++, got++, want++) {
            diff += (double)(*got - *want) * (double)(*got - *want);
            sum += (double)*want * (double)*want;
        }
        errors[row] = sqrt(diff / sum);
    }
    qsort(errors, (size_t)g->n_ids, sizeof *errors, compare_errors);
    return errors[g->n_ids / 2];
}

static void check_turns(const char *dir, const kin_golden *g) {
    enum { MOST = 8 };
    const size_t n = (size_t)g->n_ids * (size_t)g->n_vocab;
    float *f16 = malloc(n * sizeof *f16), *q8_0 = malloc(n * sizeof *q8_0), *all = malloc(MOST * n * sizeof *all);
    char path[1024];
    assert_true(f16 && q8_0 && all);
    snprintf(path, sizeof path, "%s/%s.gguf", dir, g->name);
    eval_in_turns(path, g, GGML_TYPE_F16, 1, f16);
    eval_in_turns(path, g, GGML_TYPE_F16, MOST, all);
    for (int i = 0; i < MOST; i++) assert_memory_equal(all + (size_t)i * n, f16, n * sizeof *f16);
    if (has_heads_for(path, GGML_TYPE_Q8_0)) {
        eval_in_turns(path, g, GGML_TYPE_Q8_0, 1, q8_0);
        eval_in_turns(path, g, GGML_TYPE_Q8_0, MOST, all);
        for (int i = 0; i < MOST; i++) assert_memory_equal(all + (size_t)i * n, q8_0, n * sizeof *q8_0);
        const double error = median_error(g, q8_0, f16);
        print_message("             %-24s a Q8_0 cache differs by %.2e\n", g->name, error);
        assert_true(error < 0.05);
    }
    free(f16);
    free(q8_0);
    free(all);
}
#define check_turns(...) FROM_TEST(check_turns(__VA_ARGS__))

static void eight_sequences_have_the_bits_of_one(void **state) {
    (void)state;
    for (int i = 0; i < n_own; i++) check_turns(OWN_DIR, &own[i]);
    for (int i = 0; i < n_models; i++)
        if (is_known(&models[i])) check_turns(GOLDEN_DIR, &models[i]);
}

static void check_ring(const char *dir, const kin_golden *g) {
    const size_t n = (size_t)g->n_ids * (size_t)g->n_vocab * sizeof(float);
    float *want = calloc(1, n), *got = malloc(n);
    kin_runner_options one = kin_runner_options_defaults();
    kin_model m;
    kin_thread_ring *ring;
    kin_err err;
    char path[1024];
    assert_true(want && got);
    snprintf(path, sizeof path, "%s/%s.gguf", dir, g->name);
    if (kin_model_open(&m, path, &err) != 0) fail_msg("%s", err.text);
    const int n_layer = m.hp.n_layer;
    kin_model_close(&m);
    one.n_batch = 16;
    eval_ids(path, g, &one, want);
    const kin_thread_ring_options o = {.n_members = 2,
                                       .shares = {{n_layer / 2, 0, 0}, {n_layer - n_layer / 2, 0, 0}},
                                       .n_batch = 16,
                                       .n_chunk = 16,
                                       .n_ctx = one.n_ctx,
                                       .n_steps = 4};
    if (kin_thread_ring_open(&ring, path, &o, &err) != 0) fail_msg("%s: %s", g->name, err.text);
    if (kin_head_eval(kin_thread_ring_head(ring), 0, 0, g->ids, g->n_ids, got, g->n_ids, &err) != 0)
        fail_msg("%s: %s", g->name, err.text);
    if (memcmp(got, want, n) != 0) fail_msg("%s: a ring gives other logits", g->name);
    kin_thread_ring_close(ring);
    free(got);
    free(want);
}
#define check_ring(...) FROM_TEST(check_ring(__VA_ARGS__))

// Layers whose caches are unlike other families': latents, short convolutions, delta attention, and compressed rows with several
// streams, whose first layers need the tokens' numbers.
static void a_ring_of_two_has_the_bits_of_one_machine(void **state) {
    static const char *const names[] = {"dsv", "mistral-large3.", "lfm2"};
    (void)state;
    for (int i = 0; i < n_models; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (strncmp(models[i].name, names[k], strlen(names[k])) == 0) check_ring(GOLDEN_DIR, &models[i]);
    check_ring(OWN_DIR, own_of("deepseek4."));
    check_ring(OWN_DIR, own_of("deepseek4-sparse."));
    check_ring(OWN_DIR, own_of("deepseek32-sparse."));
    check_ring(OWN_DIR, own_of("glm-dsa-sparse."));
    check_ring(OWN_DIR, own_of("minimax-m3-sparse."));
    check_ring(OWN_DIR, own_of("glm-dsa-shared."));
    check_ring(OWN_DIR, own_of("qwen4exp-sparse."));
    check_ring(OWN_DIR, own_of("kimi-linear."));
    check_ring(OWN_DIR, own_of("glm5next."));
    check_ring(OWN_DIR, own_of("glm5next-sparse."));
}

// A model of this folder, and the logits of all its tokens from one step, with which others are compared.
typedef struct whole_step {
    kin_runner runner;
    float *want, *got; // [n_ids, n_vocab]; got: for other steps
} whole_step;

static void open_whole_step(whole_step *w, const kin_golden *g) {
    const size_t n = (size_t)g->n_ids * (size_t)g->n_vocab;
    kin_runner_options o = kin_runner_options_defaults();
    char path[1024];
    kin_err err;
    w->want = malloc(n * sizeof *w->want);
    w->got = malloc(n * sizeof *w->got);
    o.n_ctx = 512;
    assert_true(w->want && w->got);
    snprintf(path, sizeof path, "%s/%s.gguf", OWN_DIR, g->name);
    if (kin_runner_open(&w->runner, path, &o, &err) != 0) fail_msg("%s", err.text);
    if (kin_head_eval(w->runner.head, 0, 0, g->ids, g->n_ids, w->want, g->n_ids, &err) != 0) fail_msg("%s", err.text);
}

static void close_whole_step(whole_step *w) {
    kin_runner_close(&w->runner);
    free(w->got);
    free(w->want);
}

// Whatever was written behind the position at which a sequence is shortened, or another one begins with its tokens, changes
// nothing. least: position from which on this is tried
static void check_prefixes(const kin_golden *g, int least) {
    const size_t n_vocab = (size_t)g->n_vocab;
    whole_step w;
    kin_err err;
    open_whole_step(&w, g);
    for (int n = g->n_ids - 1; n > least; n -= n % 4 == 0 ? 3 : 2) { // of all remainders, in blocks of 4 and across 128
        const size_t at = (size_t)n * n_vocab, bytes = (size_t)(g->n_ids - n) * n_vocab * sizeof *w.got;
        const int32_t others[] = {9, 8, 7, 6, 5};
        // sequence 1 begins with the first n tokens of sequence 0, goes on with others, is shortened, and goes on as sequence 0
        if (kin_head_change(w.runner.head, (kin_kv_op){1, 0, n}, &err) != 0) fail_msg("%s", err.text);
        if (kin_head_eval(w.runner.head, 1, n, others, 5, w.got, 5, &err) != 0) fail_msg("%s", err.text);
        kin_head_truncate(w.runner.head, 1, n);
        if (kin_head_eval(w.runner.head, 1, n, g->ids + n, g->n_ids - n, w.got, g->n_ids - n, &err) != 0)
            fail_msg("%s", err.text);
        assert_memory_equal(w.got, w.want + at, bytes);
        kin_head_truncate(w.runner.head, 1, 0);
    }
    close_whole_step(&w);
}
#define check_prefixes(...) FROM_TEST(check_prefixes(__VA_ARGS__))

// Compressed rows are in the cells of the tokens that end their blocks, and an indexer's keys in those of their tokens.
static void compressed_rows_and_indexers_follow_from_the_tokens_alone(void **state) {
    (void)state;
    check_prefixes(own_of("deepseek4."), 120);
    check_prefixes(own_of("deepseek4-sparse."), 120);
    check_prefixes(own_of("deepseek32-sparse."), 24);
    check_prefixes(own_of("glm-dsa-sparse."), 8);
    check_prefixes(own_of("minimax-m3-sparse."), 120);
    check_prefixes(own_of("glm-dsa-shared."), 8);
}

// The few rows that see a compressed row of 128 tokens are as exact as the others.
static void rows_behind_128_tokens_are_as_exact_as_the_others(void **state) {
    const kin_golden *g = own_of("deepseek4.");
    const size_t n_vocab = (size_t)g->n_vocab, n = (size_t)g->n_ids * n_vocab;
    const kin_runner_options o = kin_runner_options_defaults();
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    double errors[KIN_GOLDEN_MAX_IDS];
    char path[1024];
    int n_rows = 0;
    (void)state;
    assert_true(want && got);
    snprintf(path, sizeof path, "%s/%s.logits", OWN_DIR, g->name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(want, sizeof *want, n, f), n);
    fclose(f);
    snprintf(path, sizeof path, "%s/%s.gguf", OWN_DIR, g->name);
    eval_ids(path, g, &o, got);
    for (int row = 127; row < g->n_ids; row++) {
        double diff = 0, sum = 0;
        for (size_t i = (size_t)row * n_vocab; i < (size_t)(row + 1) * n_vocab; i++) {
            diff += (double)(got[i] - want[i]) * (double)(got[i] - want[i]);
            sum += (double)want[i] * (double)want[i];
        }
        errors[n_rows++] = sqrt(diff / sum);
    }
    qsort(errors, (size_t)n_rows, sizeof *errors, compare_errors);
    print_message("             the median error of %d rows is %.2e\n", n_rows, errors[n_rows / 2]);
    assert_true(n_rows > 16 && errors[n_rows / 2] < 1.5 * g->error_median);
    free(got);
    free(want);
}

// The states of recurrent layers depend on a sequence's tokens alone: drafts that are rejected leave nothing there, and a
// sequence that begins with another one's tokens goes on like it.
static void check_states(const kin_golden *g) {
    const size_t n_vocab = (size_t)g->n_vocab;
    whole_step w;
    kin_err err;
    open_whole_step(&w, g);
    kin_head_truncate(w.runner.head, 0, 0);
    for (int n = 0; n < g->n_ids; n++) {
        const int32_t drafts[] = {g->ids[n], 9, 211, 7, 6};
        if (kin_head_eval(w.runner.head, 0, n, drafts, 1 + n % 5, w.got, 1 + n % 5, &err) != 0) fail_msg("%s", err.text);
        assert_memory_equal(w.got, w.want + (size_t)n * n_vocab, n_vocab * sizeof *w.got);
        kin_head_truncate(w.runner.head, 0, n + 1);
        if (n != 12) continue;
        if (kin_head_change(w.runner.head, (kin_kv_op){1, 0, n + 1}, &err) != 0) fail_msg("%s", err.text);
        const int n_left = g->n_ids - n - 1;
        if (kin_head_eval(w.runner.head, 1, n + 1, g->ids + n + 1, n_left, w.got, n_left, &err) != 0) fail_msg("%s", err.text);
        assert_memory_equal(w.got, w.want + (size_t)(n + 1) * n_vocab, (size_t)n_left * n_vocab * sizeof *w.got);
    }
    for (int seq = 0; seq < 2; seq++) kin_head_truncate(w.runner.head, seq, 0);
    for (int at = 0; at < g->n_ids; at += 11) { // in turns, by more than a log holds
        const int n = g->n_ids - at < 11 ? g->n_ids - at : 11;
        for (int seq = 0; seq < 3; seq++) {
            if (kin_head_eval(w.runner.head, seq, at, g->ids + at, n, w.got, n, &err) != 0) fail_msg("%s", err.text);
            assert_memory_equal(w.got, w.want + (size_t)at * n_vocab, (size_t)n * n_vocab * sizeof *w.got);
        }
    }
    close_whole_step(&w);
}
#define check_states(...) FROM_TEST(check_states(__VA_ARGS__))

// The tokens before a step, and what they have added, are in the sequence's state. Keys of blocks are made of tokens that stay.
static void ngram_embeddings_and_keys_of_blocks_are_of_the_sequence(void **state) {
    (void)state;
    check_states(own_of("qwen4exp."));
    check_states(own_of("qwen4exp-sparse."));
}

static void states_of_delta_attention_are_of_the_sequence(void **state) {
    (void)state;
    check_states(own_of("kimi-linear."));
    check_states(own_of("glm5next."));
    check_states(own_of("glm5next-sparse."));
}

static void check_facts(const char *dir, const kin_golden *g) {
    static kin_model_facts facts;
    char path[1024];
    kin_model m;
    kin_err err;
    snprintf(path, sizeof path, "%s/%s.gguf", dir, g->name);
    if (kin_model_open(&m, path, &err) != 0) fail_msg("%s", err.text);
    kin_shard_options o = kin_shard_options_defaults(&m);
    if (kin_model_facts_of(&facts, &m, &o, &err) != 0) fail_msg("%s: %s", g->name, err.text);
    assert_int_equal(facts.n_layer, m.hp.n_layer);
    assert_true(facts.layer_ops > 4 && facts.kv_bytes > 0);
    o.kv_type = GGML_TYPE_Q8_0; // plans and shards refuse the same models
    assert_int_equal(kin_model_facts_of(&facts, &m, &o, &err), kin_kv_check_type(&m.hp, o.kv_type, &err));
    kin_model_close(&m);
}
#define check_facts(...) FROM_TEST(check_facts(__VA_ARGS__))

static void plans_know_the_facts_of_every_family(void **state) {
    (void)state;
    for (int i = 0; i < n_own; i++) check_facts(OWN_DIR, &own[i]);
    for (int i = 0; i < n_models; i++)
        if (is_known(&models[i])) check_facts(GOLDEN_DIR, &models[i]);
}

// ---- indexers

// Copies a model, of which an indexer chooses n tokens instead.
static void copy_with_choice(const kin_golden *g, int32_t n, char *to) {
    static uint8_t bytes[1 << 20];
    const char key[] = ".attention.indexer.top_k";
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.gguf", OWN_DIR, g->name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    uint8_t *at = memmem(bytes, size, key, strlen(key));
    assert_true(size < sizeof bytes && at);
    memcpy(at + strlen(key) + sizeof(uint32_t), &n, sizeof n); // behind the kind of the value
    const int fd = mkstemp(to);
    assert_true(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && close(fd) == 0);
}

// Returns the bytes of the tensors of a layer's indexer, all of which are ignored, or none.
static uint64_t bytes_of_indexer(const kin_model *m, int il, bool are_ignored) {
    uint64_t bytes = 0;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "blk.%d.indexer.", il);
    for (size_t i = 0; i < kin_gguf_n_tensors(m->gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(m->gguf, i);
        const bool is_of_indexer = t->name.len > strlen(prefix) && memcmp(t->name.at, prefix, strlen(prefix)) == 0;
        if (!is_of_indexer) continue;
        assert_int_equal(kin_model_ignores(m, t), are_ignored);
        bytes += t->n_bytes;
    }
    return bytes;
}
#define bytes_of_indexer(...) FROM_TEST(bytes_of_indexer(__VA_ARGS__))

static uint64_t bytes_of_layer(const kin_model *m, int il) {
    uint64_t bytes = 0;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "blk.%d.", il);
    for (size_t i = 0; i < kin_gguf_n_tensors(m->gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(m->gguf, i);
        if (t->name.len > strlen(prefix) && memcmp(t->name.at, prefix, strlen(prefix)) == 0) bytes += t->n_bytes;
    }
    return bytes;
}

static void check_indexer(const char *path, bool is_computed) {
    kin_model m;
    kin_err err;
    int n = 0;
    if (kin_model_open(&m, path, &err) != 0) fail_msg("%s", err.text);
    for (int il = 0; il < m.hp.n_layer; il++) {
        const uint64_t bytes = bytes_of_indexer(&m, il, !is_computed);
        n += bytes > 0;
        assert_int_equal(kin_model_layer_bytes(&m, il), bytes_of_layer(&m, il) - (is_computed ? 0 : bytes));
    }
    assert_true(n >= 1); // only layers with attention have one
    kin_model_close(&m);
}
#define check_indexer(...) FROM_TEST(check_indexer(__VA_ARGS__))

// An indexer that can choose no block at all is one that kin does not compute: its tensors are not counted, and contexts end
// where it would have to choose.
static void an_indexer_that_is_not_computed_is_not_read_and_limits_contexts(void **state) {
    char path[] = "/tmp/kin-test-families-XXXXXX";
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    kin_err err;
    (void)state;
    check_indexer(OWN_DIR "/qwen4exp.q8_0.gguf", true);
    copy_with_choice(own_of("qwen4exp."), 2, path);
    check_indexer(path, false);
    o.n_ctx = 4;
    assert_int_equal(kin_runner_open(&r, path, &o, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "use --ctx 3 or less"));
    o.n_ctx = 3;
    if (kin_runner_open(&r, path, &o, &err) != 0) fail_msg("%s", err.text);
    kin_runner_close(&r);
    unlink(path);
}

// Of rows with no more tokens the bits are those of a model that sees all tokens, and other rows differ.
static void check_choice(const kin_golden *g, int n_chosen) {
    const size_t n = (size_t)g->n_ids * (size_t)g->n_vocab, n_few = (size_t)n_chosen * (size_t)g->n_vocab;
    const int n_batches[] = {512, 64, 5, 1};
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got), *dense = malloc(n * sizeof *dense);
    kin_runner_options o = kin_runner_options_defaults();
    char path[1024], all[] = "/tmp/kin-test-families-XXXXXX";
    assert_true(want && got && dense);
    snprintf(path, sizeof path, "%s/%s.gguf", OWN_DIR, g->name);
    eval_ids(path, g, &o, want);
    for (size_t i = 0; i < sizeof n_batches / sizeof *n_batches; i++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            o.n_batch = n_batches[i];
            o.device.n_threads = threads;
            eval_ids(path, g, &o, got);
            if (memcmp(got, want, n * sizeof *got) != 0)
                fail_msg("%s: batches of %d with %d threads give other logits", g->name, o.n_batch, threads);
        }
    }
    copy_with_choice(g, 4096, all);
    o = kin_runner_options_defaults();
    eval_ids(all, g, &o, dense);
    unlink(all);
    assert_memory_equal(dense, want, n_few * sizeof *want);
    for (int row = n_chosen + 4; row < g->n_ids; row++) {
        const size_t at = (size_t)row * (size_t)g->n_vocab;
        assert_true(kin_logits_error(want + at, dense + at, g->n_vocab) > 1e-3);
    }
    free(want);
    free(got);
    free(dense);
}
#define check_choice(...) FROM_TEST(check_choice(__VA_ARGS__))

static void chosen_tokens_depend_on_no_batch_and_no_thread(void **state) {
    (void)state;
    check_choice(own_of("deepseek32-sparse."), 32);
    check_choice(own_of("deepseek4-sparse."), 27); // 6 rows of 4 tokens, and 3 tokens of the next one
    check_choice(own_of("glm-dsa-sparse."), 16);
    check_choice(own_of("minimax-m3-sparse."), 128);
    check_choice(own_of("glm-dsa-shared."), 16);
    check_choice(own_of("qwen4exp-sparse."), 19); // 4 blocks of 4 tokens, and 3 tokens of the next one
    check_choice(own_of("glm5next-sparse."), 19); // 4 pools of 4 tokens, and 3 tokens of the next one
}

// ---- draft blocks

static void a_block_behind_latent_layers_drafts(void **state) {
    kin_model m;
    kin_draft_blocks b;
    kin_err err;
    (void)state;
    if (kin_model_open(&m, OWN_DIR "/glm-dsa.q8_0.gguf", &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(m.hp.n_layer, 3);
    if (kin_draft_blocks_open(&b, &m, NULL, &err) != 0) fail_msg("%s", err.text);
    assert_true(kin_layer_of(&b.at[0].view.hp, 0).is_latent && kin_layer_of(&b.at[0].view.hp, 0).has_experts);
    kin_draft_blocks_close(&b);
    kin_model_close(&m);
}

// ---- exact weights

// Copies a model's keys, without those of its tokenizer.
static void copy_keys(kin_gguf_writer *w, const kin_gguf *gguf) {
    for (size_t i = 0; i < kin_gguf_n_meta(gguf); i++) {
        const kin_str name = kin_gguf_meta_key(gguf, i);
        kin_gguf_array array;
        kin_str text;
        uint32_t integer;
        float number;
        bool truth;
        char key[128];
        kin_err err;
        snprintf(key, sizeof key, "%.*s", (int)name.len, name.at);
        if (strncmp(key, "tokenizer.", strlen("tokenizer.")) == 0) continue;
        if (kin_gguf_get_array(gguf, key, &array, &err) == 0) {
            kin_gguf_writer_put_array(w, key, array.kind, array.n, array.at);
        } else if (kin_gguf_get_str(gguf, key, &text, &err) == 0) {
            char copy[128];
            snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.at);
            kin_gguf_writer_put_str(w, key, copy);
        } else if (kin_gguf_get_bool(gguf, key, &truth, &err) == 0) {
            kin_gguf_writer_put_int(w, key, KIN_GGUF_BOOL, truth);
        } else if (kin_gguf_get_u32(gguf, key, &integer, &err) == 0) {
            kin_gguf_writer_put_int(w, key, KIN_GGUF_U32, integer);
        } else {
            if (kin_gguf_get_f32(gguf, key, &number, &err) != 0) fail_msg("%s: %s", key, err.text);
            kin_gguf_writer_put_float(w, key, KIN_GGUF_F32, (double)number);
        }
    }
}

// Adds a tensor with the same values in F32.
static float *put_exact(kin_gguf_writer *w, const kin_model *m, const kin_gguf_tensor *t) {
    const int64_t n = t->ne[0] * t->ne[1] * t->ne[2];
    float *x = malloc((size_t)n * sizeof *x);
    uint8_t *bytes = malloc((size_t)t->n_bytes);
    char name[64];
    kin_err err;
    assert_true(x && bytes);
    assert_int_equal(kin_gguf_read(m->gguf, t, 0, bytes, (size_t)t->n_bytes, &err), 0);
    if (t->type == GGML_TYPE_F32)
        memcpy(x, bytes, (size_t)t->n_bytes);
    else
        ggml_get_type_traits((enum ggml_type)t->type)->to_float(bytes, x, n);
    free(bytes);
    snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.at);
    kin_gguf_writer_add(w, name, GGML_TYPE_F32, t->n_dims, t->ne, x);
    return x;
}

static void save_exact(const char *path, const char *to) {
    enum { MAX = 192 };
    kin_gguf_writer *w = kin_gguf_writer_new();
    float *data[MAX];
    kin_model m;
    kin_err err;
    if (kin_model_open(&m, path, &err) != 0) fail_msg("%s", err.text);
    const size_t n = kin_gguf_n_tensors(m.gguf);
    assert_true(n <= MAX);
    copy_keys(w, m.gguf);
    for (size_t i = 0; i < n; i++) data[i] = put_exact(w, &m, kin_gguf_tensor_at(m.gguf, i));
    if (kin_gguf_writer_save(w, to, &err) != 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++) free(data[i]);
    kin_gguf_writer_free(w);
    kin_model_close(&m);
}
#define save_exact(...) FROM_TEST(save_exact(__VA_ARGS__))

static void check_exact(const char *dir, const kin_golden *g, double most) {
    const size_t n = (size_t)g->n_ids * (size_t)g->n_vocab;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    const kin_runner_options o = kin_runner_options_defaults();
    char path[1024], exact_path[] = "/tmp/kin-test-families-XXXXXX";
    const int fd = mkstemp(exact_path);
    double error = 0;
    assert_true(want && got && fd >= 0 && close(fd) == 0);
    snprintf(path, sizeof path, "%s/%s.gguf", dir, g->name);
    save_exact(path, exact_path);
    snprintf(path, sizeof path, "%s/%s.logits", dir, g->name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(want, sizeof *want, n, f), n);
    fclose(f);
    eval_ids(exact_path, g, &o, got);
    for (int row = 0; row < g->n_ids; row++) {
        const size_t at = (size_t)row * (size_t)g->n_vocab;
        error = fmax(error, kin_logits_error(got + at, want + at, g->n_vocab));
    }
    print_message("             %-24s the largest error with exact weights is %.2e\n", g->name, error);
    assert_true(error < most);
    unlink(exact_path);
    free(got);
    free(want);
}
#define check_exact(...) FROM_TEST(check_exact(__VA_ARGS__))

// The exact logits of a model beside the clone, which llama.cpp computes with the same largest ones, and kin, whose rounding of
// activations differs as much, with another one in one row.
static void short_convolutions_of_exact_weights_are_exact(void **state) {
    (void)state;
    for (int i = 0; i < n_models; i++)
        if (strcmp(models[i].name, "lfm2.q8_0") == 0) check_exact(GOLDEN_DIR, &models[i], 1e-3);
}

static void delta_attention_of_exact_weights_is_exact(void **state) {
    (void)state;
    check_exact(OWN_DIR, own_of("kimi-linear."), 1e-3); // of the F16 cache of latents
    check_exact(OWN_DIR, own_of("glm5next."), 1e-3);
}

// A file of Qwen 3.5's family with heads that kin's kernels do not have.
static void check_refusal(int n_layer, int interval, int n_embd, int head_dim, bool ggml_kernels, const char *why) {
    char path[] = "/tmp/kin-test-families-XXXXXX";
    kin_model_spec spec = kin_model_spec_defaults();
    kin_runner_options o = kin_runner_options_defaults();
    kin_runner r;
    kin_err err;
    const int fd = mkstemp(path);
    spec.arch = "qwen35";
    spec.n_layer = n_layer;
    spec.attention_interval = interval;
    spec.n_embd = n_embd;
    spec.head_dim = head_dim;
    spec.n_vocab = 512;
    o.device.ggml_kernels = ggml_kernels;
    if (fd < 0 || close(fd) != 0 || kin_model_gen(&spec, path, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_runner_open(&r, path, &o, &err), KIN_FAIL);
    if (!strstr(err.text, why)) fail_msg("%s", err.text);
    unlink(path);
}
#define check_refusal(...) FROM_TEST(check_refusal(__VA_ARGS__))

static void kernels_that_do_not_fit_are_refused_with_the_size(void **state) {
    (void)state;
    check_refusal(1, 0, 64, 0, false,
                  "needs kin's CPU kernels for gates of queries, but heads of 8 values, as in layer 0, do not fit them: "
                  "16 to 576 in steps of 16 do");
    check_refusal(
        2, 2, 512, 24, false,
        "needs kin's CPU kernels for the states of recurrent layers, but heads of 24 values, as in layer 0, do not fit");
    check_refusal(2, 2, 264, 64, false, "but hidden states of 264 values do not fit them: multiples of 16 do");
    check_refusal(2, 2, 512, 64, true,
                  "needs kin's CPU kernels for the states of recurrent layers, but they are disabled by --kernels ggml");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kin_s_kernels_are_as_exact_as_llama_cpp),
        cmocka_unit_test(weights_as_in_the_file_are_as_exact_as_llama_cpp),
        cmocka_unit_test(ggml_s_operators_are_as_exact_as_llama_cpp),
        cmocka_unit_test(plain_attention_is_as_exact_as_llama_cpp),
        cmocka_unit_test(a_prompt_in_small_batches_is_as_exact_as_llama_cpp),
        cmocka_unit_test(a_prompt_token_by_token_is_as_exact_as_llama_cpp),
        cmocka_unit_test(streamed_weights_give_the_same_bits),
        cmocka_unit_test(weights_from_the_cache_give_the_same_bits),
        cmocka_unit_test(eight_sequences_have_the_bits_of_one),
        cmocka_unit_test(kernels_that_do_not_fit_are_refused_with_the_size),
        cmocka_unit_test(plans_know_the_facts_of_every_family),
        cmocka_unit_test(an_indexer_that_is_not_computed_is_not_read_and_limits_contexts),
        cmocka_unit_test(chosen_tokens_depend_on_no_batch_and_no_thread),
        cmocka_unit_test(a_block_behind_latent_layers_drafts),
        cmocka_unit_test(short_convolutions_of_exact_weights_are_exact),
        cmocka_unit_test(delta_attention_of_exact_weights_is_exact),
        cmocka_unit_test(a_ring_of_two_has_the_bits_of_one_machine),
        cmocka_unit_test(compressed_rows_and_indexers_follow_from_the_tokens_alone),
        cmocka_unit_test(rows_behind_128_tokens_are_as_exact_as_the_others),
        cmocka_unit_test(ngram_embeddings_and_keys_of_blocks_are_of_the_sequence),
        cmocka_unit_test(states_of_delta_attention_are_of_the_sequence),
    };
    kin_err err;
    n_models = kin_golden_load(GOLDEN_DIR, models, &err);
    if (n_models >= 0) n_own = kin_golden_load(OWN_DIR, own, &err);
    if (n_models == 0) printf("test_families: without %s, which is not there\n", GOLDEN_DIR);
    if (n_models < 0 || n_own < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
