// Generated models: the same spec gives the same bytes, and the files have the structure of their family's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/arch.h"
#include "model/gguf.h"
#include "model/model.h"
#include "testkit/family_gen.h"
#include "testkit/k_rounding.h"
#include "testkit/model_gen.h"
#include "testkit/random_rows.h"
#include "tests/place.h"

typedef struct temp_path {
    char text[64];
} temp_path;

static temp_path new_path(void) {
    temp_path p = {"/tmp/kin-test-gen-XXXXXX"};
    int fd = mkstemp(p.text);
    assert_true(fd >= 0);
    close(fd);
    return p;
}

static kin_gguf *generate(const kin_model_spec *spec) {
    temp_path p = new_path();
    kin_gguf *gguf = NULL;
    kin_err err;
    if (kin_model_gen(spec, p.text, &err) != 0 || kin_gguf_open(&gguf, p.text, &err) != 0) fail_msg("%s", err.text);
    unlink(p.text); // the mapping stays
    return gguf;
}
#define generate(...) FROM_TEST(generate(__VA_ARGS__))

static kin_model_spec small_spec(const char *arch) {
    kin_model_spec s = kin_model_spec_defaults();
    s.arch = arch;
    s.mix = "q8_0";
    s.n_layer = 2;
    s.n_vocab = 300;
    return s;
}

static void expect_shape(const kin_gguf *gguf, const char *name, int64_t ne0, int64_t ne1, int64_t ne2) {
    const kin_gguf_tensor *t = kin_gguf_find_tensor(gguf, name);
    if (!t) fail_msg("no tensor %s", name);
    assert_int_equal(t->ne[0], ne0);
    assert_int_equal(t->ne[1], ne1);
    assert_int_equal(t->ne[2], ne2);
}
#define expect_shape(...) FROM_TEST(expect_shape(__VA_ARGS__))

static void expect_type(const kin_gguf *gguf, const char *name, int type) {
    const kin_gguf_tensor *t = kin_gguf_find_tensor(gguf, name);
    if (!t) fail_msg("no tensor %s", name);
    if (t->type != type) fail_msg("%s is %s", name, ggml_type_name((enum ggml_type)t->type));
}
#define expect_type(...) FROM_TEST(expect_type(__VA_ARGS__))

static void expect_u32(const kin_gguf *gguf, const char *key, uint32_t expected) {
    uint32_t value = 0;
    if (kin_gguf_get_u32(gguf, key, &value, NULL) != 0) fail_msg("no key %s", key);
    assert_int_equal(value, expected);
}
#define expect_u32(...) FROM_TEST(expect_u32(__VA_ARGS__))

static void same_spec_makes_the_same_weights(void **state) {
    (void)state;
    kin_model_spec s = small_spec("llama");
    kin_gguf *a = generate(&s), *b = generate(&s);
    s.seed++;
    kin_gguf *c = generate(&s);
    for (size_t i = 0; i < kin_gguf_n_tensors(a); i++) {
        const kin_gguf_tensor *ta = kin_gguf_tensor_at(a, i);
        assert_memory_equal(ta->data, kin_gguf_tensor_at(b, i)->data, ta->n_bytes);
        assert_memory_not_equal(ta->data, kin_gguf_tensor_at(c, i)->data, ta->n_bytes);
    }
    kin_gguf_close(a);
    kin_gguf_close(b);
    kin_gguf_close(c);
}

static void llama_has_its_tensors_and_keys(void **state) {
    (void)state;
    kin_model_spec s = small_spec("llama");
    s.rope_freqs = true;
    kin_gguf *gguf = generate(&s);
    assert_int_equal(kin_gguf_n_tensors(gguf), 4 + 2 * 9);
    expect_shape(gguf, "token_embd.weight", 256, 300, 1);
    expect_shape(gguf, "output.weight", 256, 300, 1);
    expect_shape(gguf, "rope_freqs.weight", 16, 1, 1);
    expect_shape(gguf, "blk.1.attn_k.weight", 256, 64, 1);
    expect_shape(gguf, "blk.1.ffn_down.weight", 768, 256, 1);
    expect_u32(gguf, "llama.block_count", 2);
    expect_u32(gguf, "llama.attention.head_count_kv", 2);
    expect_u32(gguf, "llama.vocab_size", 300);
    uint32_t absent;
    assert_int_equal(kin_gguf_get_u32(gguf, "llama.attention.key_length", &absent, NULL), 1);
    kin_gguf_close(gguf);

    s.tied = true;
    gguf = generate(&s);
    assert_null(kin_gguf_find_tensor(gguf, "output.weight"));
    kin_gguf_close(gguf);
}

static void families_have_their_own_tensors(void **state) {
    (void)state;
    kin_model_spec s = small_spec("qwen2");
    kin_gguf *gguf = generate(&s);
    expect_shape(gguf, "blk.0.attn_q.bias", 256, 1, 1);
    expect_shape(gguf, "blk.1.attn_v.bias", 64, 1, 1);
    kin_gguf_close(gguf);

    s = small_spec("qwen3");
    s.head_dim = 64;
    gguf = generate(&s);
    expect_shape(gguf, "blk.0.attn_q.weight", 256, 512, 1);
    expect_shape(gguf, "blk.0.attn_output.weight", 512, 256, 1);
    expect_shape(gguf, "blk.0.attn_k_norm.weight", 64, 1, 1);
    expect_u32(gguf, "qwen3.attention.key_length", 64);
    kin_gguf_close(gguf);

    s = small_spec("qwen3moe");
    s.n_expert = 6;
    s.n_expert_used = 2;
    s.n_ff_exp = 128;
    gguf = generate(&s);
    expect_shape(gguf, "blk.0.ffn_gate_inp.weight", 256, 6, 1);
    expect_type(gguf, "blk.0.ffn_gate_inp.weight", GGML_TYPE_F32);
    expect_shape(gguf, "blk.0.ffn_up_exps.weight", 256, 128, 6);
    expect_shape(gguf, "blk.1.ffn_down_exps.weight", 128, 256, 6);
    assert_null(kin_gguf_find_tensor(gguf, "blk.0.ffn_up.weight"));
    expect_u32(gguf, "qwen3moe.expert_feed_forward_length", 128);
    expect_u32(gguf, "qwen3moe.expert_used_count", 2);
    kin_gguf_close(gguf);
}

static void q4_k_m_gives_more_bits_where_llama_cpp_does(void **state) {
    (void)state;
    kin_model_spec s = small_spec("llama");
    s.mix = "q4_k_m";
    s.n_layer = 8; // layers with more bits: 0; 3 and 6, every third from 1; 7
    s.n_ff = 256;
    kin_gguf *gguf = generate(&s);
    for (int il = 0; il < 8; il++) {
        char name[64];
        int expected = il == 0 || il == 3 || il == 6 || il == 7 ? GGML_TYPE_Q6_K : GGML_TYPE_Q4_K;
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", il);
        expect_type(gguf, name, expected);
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", il);
        expect_type(gguf, name, expected);
        snprintf(name, sizeof name, "blk.%d.ffn_up.weight", il);
        expect_type(gguf, name, GGML_TYPE_Q4_K);
    }
    expect_type(gguf, "output.weight", GGML_TYPE_Q6_K);
    expect_type(gguf, "token_embd.weight", GGML_TYPE_Q4_K);
    expect_type(gguf, "output_norm.weight", GGML_TYPE_F32);
    expect_u32(gguf, "general.file_type", 15);
    kin_gguf_close(gguf);

    s.tied = true;
    gguf = generate(&s);
    expect_type(gguf, "token_embd.weight", GGML_TYPE_Q6_K);
    kin_gguf_close(gguf);
}

static void rows_that_are_not_whole_blocks_get_a_fitting_type(void **state) {
    (void)state;
    kin_model_spec s = small_spec("llama");
    s.mix = "q4_k";
    s.n_embd = 96;
    s.n_ff = 40;
    s.n_head = s.n_head_kv = 4;
    kin_gguf *gguf = generate(&s);
    expect_type(gguf, "blk.0.ffn_up.weight", GGML_TYPE_Q5_0);
    expect_type(gguf, "blk.0.ffn_down.weight", GGML_TYPE_F16);
    kin_gguf_close(gguf);
}

static void tokens_are_unique_words_of_any_vocabulary(void **state) {
    (void)state;
    static const int sizes[] = {4, 258, 259, 2000};
    for (size_t i = 0; i < 4; i++) {
        kin_model_spec s = small_spec("llama");
        s.n_vocab = sizes[i];
        kin_gguf *gguf = generate(&s);
        kin_gguf_array a;
        assert_int_equal(kin_gguf_get_array(gguf, "tokenizer.ggml.tokens", &a, NULL), 0);
        assert_int_equal(a.n, sizes[i]);
        kin_str *all = calloc(a.n, sizeof *all);
        const uint8_t *cursor = a.at;
        for (uint64_t k = 0; k < a.n; k++) {
            all[k] = kin_gguf_array_next_str(&cursor);
            assert_true(all[k].len > 0);
            for (uint64_t j = 0; j < k; j++) {
                assert_false(all[j].len == all[k].len && memcmp(all[j].at, all[k].at, all[k].len) == 0);
            }
        }
        free(all);
        kin_gguf_close(gguf);
    }
}

static void weights_keep_the_size_of_their_input(void **state) {
    (void)state;
    enum { N = 100000 };
    float *at = malloc(N * sizeof *at);
    double sum = 0, squares = 0;
    kin_random_gaussian(42, 0.5f, N, at);
    for (int i = 0; i < N; i++) {
        sum += at[i];
        squares += (double)at[i] * at[i];
    }
    assert_true(fabs(sum / N) < 0.01);
    assert_true(fabs(sqrt(squares / N) - 0.5) < 0.01);
    free(at);
}

static void rows_do_not_depend_on_how_they_are_asked_for(void **state) {
    (void)state;
    enum { N_IN = 1024, N_ROWS = 7, ROW_BYTES = N_IN / 256 * 144 };
    for (int pooled = 0; pooled < 2; pooled++) {
        kin_random_rows *rows = kin_random_rows_new(GGML_TYPE_Q4_K, N_IN, pooled, 5);
        uint8_t whole[N_ROWS * ROW_BYTES], single[ROW_BYTES];
        kin_random_rows_fill(rows, 9, 0, N_ROWS, whole);
        for (uint64_t i = 0; i < N_ROWS; i++) {
            kin_random_rows_fill(rows, 9, i, 1, single);
            assert_memory_equal(single, whole + i * ROW_BYTES, ROW_BYTES);
            if (i > 0) assert_memory_not_equal(single, whole, ROW_BYTES);
        }
        kin_random_rows_free(rows);
    }
}

static void weights_of_every_type_have_the_same_deviation(void **state) {
    (void)state;
    enum { N_IN = 1024, N_ROWS = 16, N = N_IN * N_ROWS };
    static const int types[] = {GGML_TYPE_Q4_K,   GGML_TYPE_IQ1_S, GGML_TYPE_IQ1_M,   GGML_TYPE_IQ2_XXS,
                                GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S, GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S};
    static float weights[N];
    static uint8_t bytes[N];
    for (size_t it = 0; it < sizeof types / sizeof *types; it++) {
        kin_random_rows *rows = kin_random_rows_new(types[it], N_IN, false, 1);
        kin_random_rows_fill(rows, 9, 0, N_ROWS, bytes);
        kin_random_rows_free(rows);
        ggml_get_type_traits((enum ggml_type)types[it])->to_float(bytes, weights, N);
        double sum = 0, squares = 0;
        for (int i = 0; i < N; i++) sum += weights[i], squares += (double)weights[i] * weights[i];
        double deviation = sqrt(squares / N);
        if (fabs(deviation * sqrt(N_IN) - 1) > 0.1 || fabs(sum / N) > deviation / 20)
            fail_msg("%s: mean %g, deviation %g", ggml_type_name((enum ggml_type)types[it]), sum / N, deviation);
    }
}

// As far as ggml decodes them. Every part of a block has a scale of its own, those of Q6_K with both signs.
static void weights_are_rounded_to_the_nearest_numbers_of_their_block(void **state) {
    (void)state;
    enum { N = 64 * 256 };
    static const struct {
        int type;
        double error; // of ggml's search: 0.075, 0.038 and 0.017
    } cases[] = {{GGML_TYPE_Q4_K, 0.084}, {GGML_TYPE_Q5_K, 0.041}, {GGML_TYPE_Q6_K, 0.019}};
    static float weights[N], got[N];
    static uint8_t bytes[N];
    kin_random_gaussian(3, 1, N, weights);
    for (int i = 0; i < N; i++) weights[i] *= 1 + (float)(i / 16 % 5); // parts of other sizes
    memset(weights + 512, 0, 256 * sizeof *weights);                   // a block of zeros
    for (size_t it = 0; it < sizeof cases / sizeof *cases; it++) {
        const enum ggml_type type = (enum ggml_type)cases[it].type;
        double off = 0, squares = 0;
        int n_negative = 0;
        kin_k_rounding_fill(type, weights, N, bytes);
        ggml_get_type_traits(type)->to_float(bytes, got, N);
        for (int i = 0; i < N; i++) {
            off += ((double)got[i] - weights[i]) * ((double)got[i] - weights[i]);
            squares += (double)weights[i] * weights[i];
        }
        const double error = sqrt(off / squares);
        print_message("             %s: %.4f\n", ggml_type_name(type), error);
        assert_true(error < cases[it].error);
        for (int i = 512; i < 768; i++) assert_true(got[i] == 0);
        for (int i = 0; type == GGML_TYPE_Q6_K && i < 16; i++) n_negative += (int8_t)bytes[192 + i] < 0;
        if (type == GGML_TYPE_Q6_K) assert_in_range(n_negative, 1, 15);
    }
    assert_false(kin_k_rounding_has(GGML_TYPE_Q3_K));
}

static void large_model_is_made_from_a_pool_within_a_split(void **state) {
    (void)state;
    kin_model_spec s = small_spec("llama");
    s.mix = "q4_0";
    s.n_vocab = 70000; // 36 million weights
    char prefix[] = "/tmp/kin-test-gen-split-XXXXXX", path[80];
    assert_non_null(mkdtemp(prefix));
    strcat(strcpy(path, prefix), "/m");
    kin_err err;
    if (kin_model_gen_split(&s, path, 2, &err) != 0) fail_msg("%s", err.text);

    kin_gguf *gguf;
    snprintf(path, sizeof path, "%s/m-00001-of-00002.gguf", prefix);
    if (kin_gguf_open(&gguf, path, &err) != 0) fail_msg("%s", err.text);
    const kin_gguf_tensor *t = kin_gguf_find_tensor(gguf, "output.weight");
    size_t row_bytes = ggml_row_size(GGML_TYPE_Q4_0, 256);
    assert_int_equal(t->n_bytes, 70000 * row_bytes);
    kin_gguf_close(gguf);
    for (int no = 1; no <= 2; no++) {
        snprintf(path, sizeof path, "%s/m-%05d-of-00002.gguf", prefix, no);
        unlink(path);
    }
    rmdir(prefix);
}

static void expect_refused(kin_model_spec s, const char *words) {
    kin_err err = {"nothing"};
    assert_int_equal(kin_model_gen(&s, "/dev/null/m.gguf", &err), KIN_FAIL);
    if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

static void impossible_specs_are_refused(void **state) {
    (void)state;
    kin_model_spec s = small_spec("llama"), ok = s;
    kin_err err;
    expect_refused(s, "/dev/null/m.gguf: ");
    s.arch = "gpt5";
    expect_refused(s, "'gpt5' is not one of llama");
    s = ok;
    s.mix = "q9";
    expect_refused(s, "'q9' is not one of f32");
    s = ok;
    s.n_layer = 0;
    expect_refused(s, "at least 1");
    s = ok;
    s.n_head_kv = 3;
    expect_refused(s, "8 heads do not share 3 KV heads evenly");
    s = ok;
    s.n_embd = 250;
    expect_refused(s, "a head's dimension must be even");
    s = ok;
    s.n_expert = 4;
    s.n_expert_used = 5;
    expect_refused(s, "5 of 4 experts");
    s = ok;
    s.arch = "qwen3moe";
    expect_refused(s, "qwen3moe needs experts");
    s = ok;
    s.arch = "qwen2";
    s.n_expert = 4;
    s.n_expert_used = 2;
    expect_refused(s, "qwen2 has no experts");
    s = ok;
    s.tied = s.endless = true;
    expect_refused(s, "cannot be endless");
    s = ok;
    s.n_vocab = 2;
    expect_refused(s, "at least 4 tokens");
    assert_int_equal(kin_model_spec_preset(&s, "9b", &err), KIN_FAIL);
    assert_string_equal(err.text, "there is no preset '9b' (tiny, 25m, 551m-32l, 1b, 8b)");
}

static void of_an_endless_model_the_last_tokens_logit_is_zero(void **state) {
    (void)state;
    static const int mixes[] = {GGML_TYPE_Q8_0, GGML_TYPE_Q6_K};
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
        kin_model_spec s = small_spec("llama");
        s.mix = mixes[i] == GGML_TYPE_Q8_0 ? "q8_0" : "q6_k";
        s.endless = true;
        kin_gguf *gguf = generate(&s);
        const kin_gguf_tensor *t = kin_gguf_find_tensor(gguf, "output.weight");
        expect_type(gguf, "output.weight", mixes[i]);
        size_t n = ggml_row_size((enum ggml_type)mixes[i], s.n_embd);
        for (int row = 0; row < s.n_vocab; row++) {
            const uint8_t *at = t->data + (size_t)row * n;
            bool is_zero = at[0] == 0 && memcmp(at, at + 1, n - 1) == 0;
            assert_int_equal(is_zero, row == 2);
        }
        kin_gguf_close(gguf);
    }
}

// ---- families from a text of their metadata

static temp_path write_text(const char *text) {
    temp_path p = new_path();
    FILE *file = fopen(p.text, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return p;
}

#define SIZES                                                                                                                    \
    "context_length 64\nembedding_length 64\nblock_count 6\nfeed_forward_length 96\nattention.head_count 4\n"                    \
    "attention.head_count_kv 2\nattention.key_length 16\nattention.value_length 16\n"                                            \
    "attention.layer_norm_rms_epsilon 0.000001\nattention.sliding_window 8\n"

static void a_text_of_metadata_makes_a_model_of_its_family(void **state) {
    (void)state;
    temp_path text = write_text("# two lines\n\narchitecture gemma3\n" SIZES "rope.freq_base 1000000.0\ntied\n"),
              path = new_path();
    kin_model_spec s = small_spec("llama");
    kin_model model;
    kin_err err;
    s.keys = text.text;
    if (kin_model_gen(&s, path.text, &err) != 0 || kin_model_open(&model, path.text, &err) != 0) fail_msg("%s", err.text);
    assert_string_equal(model.hp.arch->name, "gemma3");
    assert_int_equal(model.hp.n_layer, 6);
    assert_int_equal(model.hp.window, 8);
    kin_model_close(&model);
    unlink(path.text);
    unlink(text.text);
}

static void lists_and_optional_weights_are_written(void **state) {
    (void)state;
    temp_path text =
        write_text("architecture step35\n" SIZES "attention.sliding_window_pattern [true, true, false, true, true, false]\n"
                   "swiglu_clamp_exp [0.0, 0.0, 0.0, 0.5, 1.0, 1.0]\nexpert_count 4\nexpert_used_count 2\n"
                   "expert_feed_forward_length 32\nexpert_shared_feed_forward_length 32\nleading_dense_block_count 2\n"
                   "expert_gating_func 2\noptional exp_probs_b.bias\npresent blk.2.ffn_gate_inp.weight\n");
    kin_model_spec s = small_spec("llama");
    s.keys = text.text;
    kin_gguf *gguf = generate(&s);
    expect_shape(gguf, "blk.2.exp_probs_b.bias", 4, 1, 1);
    expect_shape(gguf, "blk.0.attn_gate.weight", 64, 4, 1);
    expect_shape(gguf, "blk.5.ffn_down_exps.weight", 32, 64, 4);
    assert_null(kin_gguf_find_tensor(gguf, "blk.1.exp_probs_b.bias"));
    kin_gguf_close(gguf);
    unlink(text.text);
}

// Its file opens: no tensor is named twice, and none is missing.
static void make_hollow(const char *keys) {
    char path[] = "/tmp/kin-test-model-gen-XXXXXX";
    kin_model_spec spec = kin_model_spec_defaults();
    kin_model model;
    kin_err err;
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    spec.keys = keys;
    spec.mix = "q4_k_m";
    spec.n_vocab = 512;
    spec.hollow = true;
    if (kin_model_gen(&spec, path, &err) != 0) fail_msg("%s: %s", keys, err.text);
    if (kin_model_open(&model, path, &err) != 0) fail_msg("%s: %s", keys, err.text);
    kin_model_close(&model);
    unlink(path);
}
#define make_hollow(...) FROM_TEST(make_hollow(__VA_ARGS__))

static void every_family_of_the_benchmark_is_described(void **state) {
    (void)state;
    DIR *dir = opendir(KIN_SOURCE_DIR "/bench/families");
    int n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[512];
        kin_family *family;
        kin_err err;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/bench/families/%s", KIN_SOURCE_DIR, e->d_name);
        if (kin_family_read(&family, path, 300, &err) != 0) fail_msg("%s", err.text);
        assert_true(kin_family_n_weights(family) > 100 << 20);
        kin_family_free(family);
        make_hollow(path);
        n++;
    }
    closedir(dir);
    assert_true(n > 20);
}

#define NEMOTRON(ff, heads_kv)                                                                                                   \
    "architecture nemotron_h\ncontext_length 64\nembedding_length 64\nblock_count 3\nfeed_forward_length " ff                    \
    "\nattention.head_count 4\nattention.head_count_kv " heads_kv                                                                \
    "\nattention.layer_norm_rms_epsilon 0.00001\nssm.conv_kernel 4\nssm.state_size 16\nssm.group_count 1\n"                      \
    "ssm.time_step_rank 2\nssm.inner_size 64\n"
#define NEMOTRON_LATENT(latent)                                                                                                  \
    "architecture nemotron_h_moe\ncontext_length 64\nembedding_length 64\nblock_count 3\nfeed_forward_length [0, 64, 0]\n"       \
    "attention.head_count 4\nattention.head_count_kv [0, 0, 2]\nattention.layer_norm_rms_epsilon 0.00001\nssm.conv_kernel 4\n"   \
    "ssm.state_size 16\nssm.group_count 1\nssm.time_step_rank 2\nssm.inner_size 64\nexpert_count 4\nexpert_used_count 2\n"       \
    "expert_feed_forward_length 24\nmoe_latent_size " latent "\n"
#define QWEN4EXP(width)                                                                                                          \
    "architecture qwen4exp\ncontext_length 64\nembedding_length 64\nblock_count 3\nattention.head_count 4\n"                     \
    "attention.head_count_kv 2\nattention.key_length 16\nattention.value_length 16\nattention.layer_norm_rms_epsilon 0.00001\n"  \
    "attention.indexer.top_k 2048\nattention.compress_ratios [0]\nssm.conv_kernel 4\n"                                           \
    "ssm.state_size 32\nssm.group_count 2\nssm.time_step_rank 4\nssm.inner_size 128\nfull_attention_interval 3\n"                \
    "hyper_connection.count 2\nhyper_connection.low_rank 32\nexpert_count 4\nexpert_used_count 2\nple.layers [0]\n"              \
    "expert_feed_forward_length " width "\nexpert_shared_feed_forward_length 32\nple.ngram_size 2\nple.heads_per_ngram 1\n"      \
    "ple.conv_kernel 4\nple.eos_token_id 2\nple.layer_multipliers u64[5, 7]\nple.head_offsets u64[0]\n"                          \
    "ple.head_vocab_sizes u64[9]\nembedding_length_per_layer_input 64\n"
#define KIMI(heads, dim, of_heads)                                                                                               \
    "architecture kimi-linear\ncontext_length 64\nembedding_length 64\nblock_count 2\nfeed_forward_length 64\n"                  \
    "attention.head_count " heads "\nattention.head_count_kv [0, 1]\nattention.layer_norm_rms_epsilon 0.00001\n"                 \
    "attention.key_length 64\nattention.value_length 24\nattention.value_length_mla 32\nattention.kv_lora_rank 32\n"             \
    "rope.dimension_count 32\nssm.conv_kernel 4\nkda.head_dim " dim "\n" of_heads
#define GLM5_NEXT(of_indexer)                                                                                                    \
    "architecture glm5-next\ncontext_length 64\nembedding_length 64\nblock_count 2\nfeed_forward_length 64\n"                    \
    "attention.head_count 2\nattention.head_count_kv [0, 1]\nattention.layer_norm_rms_epsilon 0.00001\n"                         \
    "attention.key_length 32\nattention.value_length 32\nattention.key_length_mla 32\nattention.value_length_mla 32\n"           \
    "attention.kv_lora_rank 32\nattention.q_lora_rank 32\nrope.dimension_count 0\nssm.conv_kernel 4\nkda.head_dim 32\n"          \
    "hyper_connection.count 4\nhyper_connection.sinkhorn_iterations 20\nhyper_connection.epsilon 0.000001\n"                     \
    "attention.indexer.head_count 6\nattention.indexer.key_length 32\nleading_dense_block_count 2\n" of_indexer
#define STABLELM                                                                                                                 \
    "architecture stablelm\ncontext_length 64\nembedding_length 64\nblock_count 2\nfeed_forward_length 96\n"                     \
    "attention.head_count 4\nattention.head_count_kv 2\nattention.layer_norm_epsilon 0.00001\nrope.dimension_count 8\n"

#define DEEPSEEK4(heads, gating)                                                                                                 \
    "architecture deepseek4\n"                                                                                                   \
    "context_length 4096\n"                                                                                                      \
    "embedding_length 64\n"                                                                                                      \
    "block_count 4\n"                                                                                                            \
    "feed_forward_length 32\n"                                                                                                   \
    "attention.head_count_kv 1\n"                                                                                                \
    "attention.key_length 32\n"                                                                                                  \
    "attention.value_length 32\n"                                                                                                \
    "attention.layer_norm_rms_epsilon 0.000001\n"                                                                                \
    "attention.q_lora_rank 32\n"                                                                                                 \
    "attention.sliding_window 24\n"                                                                                              \
    "attention.output_group_count 2\n"                                                                                           \
    "attention.output_lora_rank 32\n"                                                                                            \
    "attention.compress_ratios [0, 4, 128, 4]\n"                                                                                 \
    "attention.compress_rope_freq_base 160000.0\n"                                                                               \
    "attention.indexer.head_count 2\n"                                                                                           \
    "attention.indexer.key_length 64\n"                                                                                          \
    "attention.indexer.top_k 512\n"                                                                                              \
    "rope.dimension_count 16\n"                                                                                                  \
    "rope.freq_base 10000.0\n"                                                                                                   \
    "rope.scaling.type yarn\n"                                                                                                   \
    "rope.scaling.factor 16.0\n"                                                                                                 \
    "rope.scaling.original_context_length 64\n"                                                                                  \
    "hyper_connection.count 4\n"                                                                                                 \
    "hyper_connection.sinkhorn_iterations 20\n"                                                                                  \
    "hyper_connection.epsilon 0.000001\n"                                                                                        \
    "hash_layer_count 2\n"                                                                                                       \
    "expert_count 4\n"                                                                                                           \
    "expert_used_count 2\n"                                                                                                      \
    "expert_feed_forward_length 32\n"                                                                                            \
    "expert_shared_count 1\n"                                                                                                    \
    "expert_weights_norm true\n"                                                                                                 \
    "expert_weights_scale 1.5\n"                                                                                                 \
    "swiglu_clamp_exp [1.0, 1.0, 1.0, 1.0]\n"                                                                                    \
    "attention.head_count " heads "\nexpert_gating_func " gating "\n"

static void expect_family(const char *keys, const char *error) {
    temp_path text = write_text(keys);
    kin_family *family;
    kin_err err = {""};
    int rc = kin_family_read(&family, text.text, 300, &err);
    if (rc == 0) kin_family_free(family);
    if ((rc == 0) != !error || (error && !strstr(err.text, error))) fail_msg("'%s'", err.text);
    unlink(text.text);
}
#define expect_family(...) FROM_TEST(expect_family(__VA_ARGS__))

static void a_family_refuses_layers_that_it_cannot_compute(void **state) {
    (void)state;
    expect_family(NEMOTRON("[0, 64, 0]", "[0, 0, 2]"), NULL);
    expect_family(NEMOTRON("[0, 64, 0]", "[2, 0, 2]"), "without state spaces");
    expect_family(NEMOTRON_LATENT("48"), NULL);
    expect_family(NEMOTRON_LATENT("24"), "a latent of experts must be a multiple of 16 numbers, not 24");
    expect_family(DEEPSEEK4("8", "4"), NULL);
    expect_family(DEEPSEEK4("[8, 4, 8, 8]", "4"), "layers with different numbers of heads are not supported");
    expect_family(DEEPSEEK4("8", "3"), "a softmax of the chosen ones");
    expect_family(KIMI("2", "32", "attention.key_length_mla 48\n"), NULL);
    expect_family(KIMI("2", "32", ""), "the key 'kimi-linear.attention.key_length_mla' is missing");
    expect_family(KIMI("2", "24", "attention.key_length_mla 48\n"), "heads of 24 dimensions");
    expect_family(KIMI("[2, 1]", "32", "attention.key_length_mla 48\n"), "layers with unlike numbers of heads");
    expect_family(GLM5_NEXT("attention.indexer.top_k 16\nattention.indexer.kpool 4\n"), NULL);
    expect_family(GLM5_NEXT("attention.indexer.top_k 16\n"), "the key 'glm5-next.attention.indexer.kpool' is missing");
    expect_family(GLM5_NEXT("attention.indexer.top_k 18\nattention.indexer.kpool 4\n"), "cannot choose 18 tokens in pools of 4");
    expect_family(GLM5_NEXT("attention.indexer.top_k 16\nattention.indexer.kpool 4\nattention.indexer.kpool_select_tail false\n"),
                  "an indexer that may leave out the tokens after the last pool is not supported");
    expect_family(GLM5_NEXT("attention.indexer.top_k 16\nattention.indexer.kpool 4\nattention.indexer.types [1, 0]\n"),
                  "layer 1 shares a choice of tokens, which is not supported for this family");
    expect_family(GLM5_NEXT("attention.indexer.top_k 16\nattention.indexer.kpool 4\nattention.indexer.types [0, 1]\n"), NULL);
    expect_family(STABLELM "present blk.0.attn_q_norm.weight\npresent blk.0.attn_k_norm.weight\n", NULL);
    expect_family(STABLELM "present blk.1.attn_k_norm.weight\n", "layer 1 has a norm of query heads or of key heads alone");
}

static void expect_model(const char *keys, const char *error) {
    temp_path text = write_text(keys), path = new_path();
    kin_model_spec s = small_spec("llama");
    kin_model model;
    kin_err err = {""};
    s.keys = text.text;
    s.mix = "f32";
    if (kin_model_gen(&s, path.text, &err) != 0) fail_msg("%s", err.text);
    int rc = kin_model_open(&model, path.text, &err);
    if (rc == 0) kin_model_close(&model);
    if ((rc == 0) != !error || (error && !strstr(err.text, error))) fail_msg("'%s'", err.text);
    unlink(path.text);
    unlink(text.text);
}
#define expect_model(...) FROM_TEST(expect_model(__VA_ARGS__))

static void gate_and_up_in_one_matrix_need_whole_panels(void **state) {
    (void)state;
    expect_model(QWEN4EXP("32") "optional ffn_gate_up_exps.weight\n", NULL);
    expect_model(QWEN4EXP("24") "optional ffn_gate_up_exps.weight\n", "must have a width that is a multiple of 16, not 24");
    expect_model(QWEN4EXP("24") "optional ffn_gate_exps.weight ffn_up_exps.weight\n", NULL);
}

static void impossible_texts_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"block_count 2\n", "no line names the architecture"},
        {"architecture gemma3\nblock_count\n", "the line 'block_count' has no value"},
        {"architecture nobody\n" SIZES, "nobody"},
        {"architecture gemma3\nblock_count 2\n", "gemma3."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        temp_path text = write_text(cases[i].text);
        kin_model_spec s = small_spec("llama");
        kin_err err;
        s.keys = text.text;
        assert_int_not_equal(kin_model_gen(&s, "/dev/null", &err), 0);
        if (!strstr(err.text, cases[i].error)) fail_msg("'%s' does not say '%s'", err.text, cases[i].error);
        unlink(text.text);
    }
    kin_model_spec s = small_spec("llama");
    kin_err err;
    s.keys = "/nowhere/keys.txt";
    assert_int_not_equal(kin_model_gen(&s, "/dev/null", &err), 0);
    assert_string_equal(err.text, "/nowhere/keys.txt: No such file or directory");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_an_endless_model_the_last_tokens_logit_is_zero),
        cmocka_unit_test(same_spec_makes_the_same_weights),
        cmocka_unit_test(llama_has_its_tensors_and_keys),
        cmocka_unit_test(families_have_their_own_tensors),
        cmocka_unit_test(q4_k_m_gives_more_bits_where_llama_cpp_does),
        cmocka_unit_test(rows_that_are_not_whole_blocks_get_a_fitting_type),
        cmocka_unit_test(tokens_are_unique_words_of_any_vocabulary),
        cmocka_unit_test(weights_keep_the_size_of_their_input),
        cmocka_unit_test(rows_do_not_depend_on_how_they_are_asked_for),
        cmocka_unit_test(weights_of_every_type_have_the_same_deviation),
        cmocka_unit_test(weights_are_rounded_to_the_nearest_numbers_of_their_block),
        cmocka_unit_test(large_model_is_made_from_a_pool_within_a_split),
        cmocka_unit_test(impossible_specs_are_refused),
        cmocka_unit_test(a_text_of_metadata_makes_a_model_of_its_family),
        cmocka_unit_test(lists_and_optional_weights_are_written),
        cmocka_unit_test(every_family_of_the_benchmark_is_described),
        cmocka_unit_test(a_family_refuses_layers_that_it_cannot_compute),
        cmocka_unit_test(gate_and_up_in_one_matrix_need_whole_panels),
        cmocka_unit_test(impossible_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
