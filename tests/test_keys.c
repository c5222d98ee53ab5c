// The keys of model files: the hyper-parameters read from them, and that no key that changes a result is ignored.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ggml.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/panel.h"
#include "model/arch.h"
#include "model/border.h"
#include "model/keys.h"
#include "testkit/gguf_write.h"
#include "tests/place.h"

enum { N_LAYER = 3 };

static kin_gguf_writer *file(void) {
    static const float data[64];
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "general.architecture", "llama");
    kin_gguf_writer_put_int(w, "llama.block_count", KIN_GGUF_U32, N_LAYER);
    kin_gguf_writer_put_int(w, "llama.embedding_length", KIN_GGUF_U32, 8);
    kin_gguf_writer_put_int(w, "llama.context_length", KIN_GGUF_U32, 4096);
    kin_gguf_writer_add(w, "token_embd.weight", GGML_TYPE_F32, 2, (int64_t[]){8, 8}, data);
    return w;
}

// The same file with the keys that may have a value per layer.
static kin_gguf_writer *whole_file(void) {
    kin_gguf_writer *w = file();
    kin_gguf_writer_put_int(w, "llama.attention.head_count", KIN_GGUF_U32, 4);
    kin_gguf_writer_put_int(w, "llama.attention.head_count_kv", KIN_GGUF_U32, 2);
    kin_gguf_writer_put_int(w, "llama.feed_forward_length", KIN_GGUF_U32, 16);
    return w;
}

// The caller frees hp->layers.
static int read_file_of(kin_gguf_writer *w, const kin_arch *arch, kin_hparams *hp, kin_err *err) {
    uint8_t *bytes;
    size_t size;
    kin_gguf *gguf = NULL;
    kin_gguf_writer_save_bytes(w, &bytes, &size);
    kin_gguf_writer_free(w);
    assert_int_equal(kin_gguf_open_bytes(&gguf, "test", bytes, size, err), 0);
    hp->arch = arch;
    int rc = kin_arch_read(hp, gguf, err);
    kin_gguf_close(gguf);
    free(bytes);
    return rc;
}
#define read_file_of(...) FROM_TEST(read_file_of(__VA_ARGS__))

static int read_file(kin_gguf_writer *w, kin_hparams *hp, kin_err *err) {
    return read_file_of(w, &kin_arch_llama, hp, err);
}
#define read_file(...) FROM_TEST(read_file(__VA_ARGS__))

static kin_hparams expect_read(kin_gguf_writer *w) {
    kin_hparams hp;
    kin_err err = {""};
    if (read_file(w, &hp, &err) != 0) fail_msg("%s", err.text);
    free(hp.layers);
    hp.layers = NULL;
    return hp;
}
#define expect_read(...) FROM_TEST(expect_read(__VA_ARGS__))

static void expect_refused(kin_gguf_writer *w, const char *words) {
    kin_hparams hp;
    kin_err err = {""};
    assert_int_equal(read_file(w, &hp, &err), KIN_FAIL);
    free(hp.layers);
    if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

#define expect_near(actual, expected) assert_float_equal(actual, expected, 1e-6)

static void a_factor_without_a_type_scales_positions_linearly(void **state) {
    (void)state;
    expect_near(expect_read(whole_file()).ropes[0].freq_scale, 1);
    kin_gguf_writer *w = whole_file();
    kin_gguf_writer_put_float(w, "llama.rope.scaling.factor", KIN_GGUF_F32, 4);
    expect_near(expect_read(w).ropes[0].freq_scale, 0.25);
    w = whole_file(); // the old name of the key
    kin_gguf_writer_put_float(w, "llama.rope.scale_linear", KIN_GGUF_F32, 2);
    expect_near(expect_read(w).ropes[0].freq_scale, 0.5);
    w = whole_file(); // the new name takes precedence
    kin_gguf_writer_put_float(w, "llama.rope.scale_linear", KIN_GGUF_F32, 2);
    kin_gguf_writer_put_float(w, "llama.rope.scaling.factor", KIN_GGUF_F32, 4);
    expect_near(expect_read(w).ropes[0].freq_scale, 0.25);
    w = whole_file();
    kin_gguf_writer_put_float(w, "llama.rope.scaling.factor", KIN_GGUF_F32, 0);
    expect_near(expect_read(w).ropes[0].freq_scale, 1);
    w = whole_file();
    kin_gguf_writer_put_float(w, "llama.rope.scaling.factor", KIN_GGUF_F32, 4);
    kin_gguf_writer_put_str(w, "llama.rope.scaling.type", "none");
    expect_near(expect_read(w).ropes[0].freq_scale, 1);
    w = whole_file();
    kin_gguf_writer_put_float(w, "llama.rope.scaling.factor", KIN_GGUF_F32, 1e-6);
    expect_refused(w, "cannot be scaled");
}

static void put_ints(kin_gguf_writer *w, const char *key, int32_t a, int32_t b, int32_t c) {
    const int32_t numbers[N_LAYER] = {a, b, c};
    kin_gguf_writer_put_array(w, key, KIN_GGUF_I32, N_LAYER, numbers);
}

static void a_number_for_each_layer_is_one_number_if_all_are_equal(void **state) {
    (void)state;
    kin_gguf_writer *w = file();
    put_ints(w, "llama.attention.head_count", 4, 4, 4);
    put_ints(w, "llama.attention.head_count_kv", 2, 2, 2);
    put_ints(w, "llama.feed_forward_length", 16, 16, 16);
    kin_hparams hp = expect_read(w);
    assert_int_equal(hp.n_head, 4);
    assert_int_equal(hp.n_head_kv, 2);
    assert_int_equal(hp.n_ff, 16);
}

static void numbers_that_differ_belong_to_their_layers(void **state) {
    (void)state;
    kin_gguf_writer *w = file();
    kin_hparams hp;
    kin_err err;
    put_ints(w, "llama.attention.head_count", 4, 8, 4);
    put_ints(w, "llama.attention.head_count_kv", 2, 1, 4);
    put_ints(w, "llama.feed_forward_length", 16, 16, 48);
    if (read_file(w, &hp, &err) != 0) fail_msg("%s", err.text);
    const kin_layer first = kin_layer_of(&hp, 0), second = kin_layer_of(&hp, 1), third = kin_layer_of(&hp, 2);
    assert_int_equal(first.n_head, 4);
    assert_int_equal(second.n_head, 8);
    assert_int_equal(second.n_head_kv, 1);
    assert_int_equal(third.n_head_kv, 4);
    assert_int_equal(second.n_ff, 16);
    assert_int_equal(third.n_ff, 48);
    assert_int_equal(hp.n_head, 8);
    assert_int_equal(hp.n_head_kv, 4);
    assert_int_equal(hp.n_ff, 48);
    assert_false(kin_hparams_is_uniform(&hp));
    free(hp.layers);
}

// Six layers, of which a third has no window.
static kin_gguf_writer *gemma4_file(int n_shared, bool all_are_windowed) {
    static const float data[64];
    const uint8_t pattern[] = {1, 1, all_are_windowed, 1, 1, 0};
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "general.architecture", "gemma4");
    kin_gguf_writer_put_int(w, "gemma4.block_count", KIN_GGUF_U32, 6);
    kin_gguf_writer_put_int(w, "gemma4.embedding_length", KIN_GGUF_U32, 8);
    kin_gguf_writer_put_int(w, "gemma4.context_length", KIN_GGUF_U32, 4096);
    kin_gguf_writer_put_int(w, "gemma4.attention.head_count", KIN_GGUF_U32, 4);
    kin_gguf_writer_put_array(w, "gemma4.attention.head_count_kv", KIN_GGUF_I32, 6, (int32_t[]){2, 2, 1, 4, 4, 4});
    kin_gguf_writer_put_int(w, "gemma4.feed_forward_length", KIN_GGUF_U32, 16);
    kin_gguf_writer_put_int(w, "gemma4.attention.key_length", KIN_GGUF_U32, 512);
    kin_gguf_writer_put_int(w, "gemma4.attention.value_length", KIN_GGUF_U32, 512);
    kin_gguf_writer_put_int(w, "gemma4.attention.key_length_swa", KIN_GGUF_U32, 256);
    kin_gguf_writer_put_int(w, "gemma4.attention.value_length_swa", KIN_GGUF_U32, 256);
    kin_gguf_writer_put_int(w, "gemma4.rope.dimension_count_swa", KIN_GGUF_U32, 256);
    kin_gguf_writer_put_int(w, "gemma4.attention.sliding_window", KIN_GGUF_U32, 512);
    kin_gguf_writer_put_array(w, "gemma4.attention.sliding_window_pattern", KIN_GGUF_BOOL, 6, pattern);
    kin_gguf_writer_put_int(w, "gemma4.attention.shared_kv_layers", KIN_GGUF_U32, n_shared);
    kin_gguf_writer_add(w, "token_embd.weight", GGML_TYPE_F32, 2, (int64_t[]){8, 8}, data);
    return w;
}

static void a_layer_shares_the_keys_of_the_last_one_of_its_kind_that_has_any(void **state) {
    (void)state;
    const int back[] = {0, 0, 0, 2, 3, 3};
    kin_hparams hp;
    kin_err err = {""};
    if (read_file_of(gemma4_file(3, false), &kin_arch_gemma4, &hp, &err) != 0) fail_msg("%s", err.text);
    for (int il = 0; il < 6; il++) {
        const kin_layer layer = kin_layer_of(&hp, il), of = kin_layer_of(&hp, il - back[il]);
        assert_int_equal(layer.kv_back, back[il]);
        assert_int_equal(layer.head_dim, il % 3 == 2 ? 512 : 256);
        assert_int_equal(layer.v_dim, layer.head_dim);
        assert_int_equal(layer.n_head_kv, of.n_head_kv);
        assert_int_equal(layer.is_windowed, of.is_windowed);
    }
    assert_false(kin_border_is_plain(&hp));
    free(hp.layers);
    if (read_file_of(gemma4_file(0, false), &kin_arch_gemma4, &hp, &err) != 0) fail_msg("%s", err.text);
    assert_true(kin_border_is_plain(&hp));
    free(hp.layers);
    assert_int_equal(read_file_of(gemma4_file(3, true), &kin_arch_gemma4, &hp, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "layer 5 shares keys and values, but no layer of its kind has any"));
    free(hp.layers);
}

// ---- latent attention

// Puts a number under a family's key.
static void put_of(kin_gguf_writer *w, const char *family, const char *key, int number) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", family, key);
    kin_gguf_writer_put_int(w, name, KIN_GGUF_U32, number);
}

static void put_float_of(kin_gguf_writer *w, const char *family, const char *key, double number) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", family, key);
    kin_gguf_writer_put_float(w, name, KIN_GGUF_F32, number);
}

// A latent of 64, rotary keys of n_rot, heads of 48 for keys, including these, and 24 for values.
static kin_gguf_writer *latent_file_of(const char *family, bool is_fused, int n_rot) {
    static const float data[64];
    static const struct {
        const char *key;
        int number;
    } keys[] = {{"block_count", 3},
                {"embedding_length", 8},
                {"context_length", 4096},
                {"feed_forward_length", 8},
                {"attention.head_count", 4},
                {"attention.kv_lora_rank", 64},
                {"attention.q_lora_rank", 32},
                {"leading_dense_block_count", 1},
                {"expert_count", 8},
                {"expert_used_count", 2},
                {"expert_feed_forward_length", 16},
                {"expert_shared_count", 2}};
    kin_gguf_writer *w = kin_gguf_writer_new();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) put_of(w, family, keys[i].key, keys[i].number);
    put_of(w, family, "rope.dimension_count", n_rot);
    put_of(w, family, "attention.head_count_kv", is_fused ? 4 : 1);
    put_of(w, family, "attention.key_length", is_fused ? 48 : 80);
    put_of(w, family, "attention.value_length", is_fused ? 24 : 64);
    if (!is_fused) put_of(w, family, "attention.key_length_mla", 48);
    if (!is_fused) put_of(w, family, "attention.value_length_mla", 24);
    kin_gguf_writer_add(w, "token_embd.weight", GGML_TYPE_F32, 2, (int64_t[]){8, 8}, data);
    return w;
}

static kin_gguf_writer *latent_file(const char *family, bool is_fused) {
    return latent_file_of(family, is_fused, 16);
}

static void expect_latent(kin_gguf_writer *w, const kin_arch *arch, bool is_fused) {
    kin_hparams hp;
    kin_err err = {""};
    if (read_file_of(w, arch, &hp, &err) != 0) fail_msg("%s", err.text);
    const kin_layer layer = kin_layer_of(&hp, 1);
    assert_true(layer.is_latent && layer.has_experts && !kin_layer_of(&hp, 0).has_experts);
    assert_int_equal(layer.n_head, 4);
    assert_int_equal(layer.n_head_kv, 1);
    assert_int_equal(kin_layer_n_embd_k(&layer), 80);
    assert_int_equal(kin_layer_n_embd_v(&layer), 0);
    assert_int_equal(layer.v_dim, 64);
    assert_int_equal(hp.latent.k_dim, 32);
    assert_int_equal(hp.latent.v_dim, 24);
    assert_int_equal(hp.latent.is_fused, is_fused);
    assert_int_equal(hp.n_ff_shared, 32);
    assert_int_equal(hp.routing.gating, KIN_GATING_SOFTMAX);
    expect_near(layer.attn_scale, 1 / 6.9282032);
    const kin_weight_set set = arch->required(&hp, &layer);
    assert_int_equal(kin_weight_set_has(&set, KIN_W_LATENT_KV_B), is_fused);
    assert_int_equal(kin_weight_set_has(&set, KIN_W_LATENT_K_B), !is_fused);
    assert_true(kin_weight_set_has(&set, KIN_W_LATENT_Q_B) && !kin_weight_set_has(&set, KIN_W_LATENT_Q));
    free(hp.layers);
}
#define expect_latent(...) FROM_TEST(expect_latent(__VA_ARGS__))

static void older_and_newer_files_describe_the_same_latents(void **state) {
    const kin_arch *const archs[] = {&kin_arch_deepseek2, &kin_arch_mistral4};
    (void)state;
    for (int i = 0; i < 4; i++) expect_latent(latent_file(archs[i / 2]->name, i % 2), archs[i / 2], i % 2);
}

// A file with an indexer that chooses n_chosen of the tokens; missing: a key that it lacks, or NULL.
static kin_gguf_writer *indexed_file(const char *family, int key_dim, int n_chosen, const char *missing) {
    const struct {
        const char *key;
        int number;
    } keys[] = {
        {"attention.indexer.head_count", 6}, {"attention.indexer.key_length", key_dim}, {"attention.indexer.top_k", n_chosen}};
    kin_gguf_writer *w = latent_file(family, false);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!missing || strcmp(keys[i].key, missing) != 0) put_of(w, family, keys[i].key, keys[i].number);
    return w;
}

static const kin_arch *const indexed[] = {&kin_arch_glm_dsa, &kin_arch_deepseek32};

static void an_indexer_limits_no_context(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        kin_hparams hp;
        kin_err err = {""};
        if (read_file_of(indexed_file(indexed[i]->name, 32, 1024, NULL), indexed[i], &hp, &err) != 0) fail_msg("%s", err.text);
        const kin_layer layer = kin_layer_of(&hp, 1);
        const kin_weight_set set = indexed[i]->required(&hp, &layer);
        assert_int_equal(hp.n_ctx_train, 4096);
        assert_int_equal(hp.n_ctx_max, 0);
        assert_int_equal(hp.ropes[0].n_ctx_orig, 4096);
        assert_int_equal(hp.routing.gating, KIN_GATING_SIGMOID);
        assert_int_equal(hp.indexer.n_head, 6);
        assert_int_equal(hp.indexer.n_chosen, 1024);
        assert_int_equal(hp.indexer.rope_neox, i == 1);
        assert_int_equal(kin_layer_n_index(&layer), 32);
        assert_int_equal(kin_layer_n_embd_v(&layer), 0);
        assert_true(kin_layer_kv(&layer, KIN_TYPE_F16).by_cell && kin_weight_set_has(&set, KIN_W_INDEX_Q_B));
        assert_int_equal(kin_hparams_check_context(&hp, 1 << 20, &err), 0);
        free(hp.layers);
    }
}

// The file says nothing about its original context, which is the one in training and not the limit.
static void an_indexer_that_chooses_too_many_limits_the_context(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        kin_hparams hp;
        kin_err err = {""};
        const int n = KIN_CHOSEN_MAX + 1;
        if (read_file_of(indexed_file(indexed[i]->name, 32, n, NULL), indexed[i], &hp, &err) != 0) fail_msg("%s", err.text);
        assert_int_equal(hp.n_ctx_train, 4096);
        assert_int_equal(hp.ropes[0].n_ctx_orig, 4096);
        assert_int_equal(kin_hparams_check_context(&hp, n, &err), 0);
        assert_int_equal(kin_hparams_check_context(&hp, n + 1, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "a context of 4098 tokens is not supported"));
        assert_non_null(strstr(err.text, "use --ctx 4097 or less"));
        free(hp.layers);
    }
}

static kin_gguf_writer *shared_file(const int32_t types[3], int n_chosen) {
    kin_gguf_writer *w = indexed_file("glm-dsa", 32, n_chosen, NULL);
    kin_gguf_writer_put_array(w, "glm-dsa.attention.indexer.types", KIN_GGUF_I32, 3, types);
    return w;
}

static void expect_choices(kin_gguf_writer *w, const int back[3]) {
    kin_hparams hp;
    kin_err err = {""};
    if (read_file_of(w, &kin_arch_glm_dsa, &hp, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(hp.n_ctx_train, 4096);
    assert_int_equal(kin_hparams_check_context(&hp, 1 << 20, &err), 0);
    for (int il = 0; il < 3; il++) {
        const kin_layer layer = kin_layer_of(&hp, il);
        const kin_weight_set set = kin_arch_glm_dsa.required(&hp, &layer);
        assert_int_equal(layer.choice_back, back[il]);
        assert_int_equal(kin_layer_n_index(&layer), back[il] > 0 ? 0 : 32);
        assert_int_equal(kin_weight_set_has(&set, KIN_W_INDEX_K), back[il] == 0);
        assert_true(kin_layer_kv(&layer, KIN_TYPE_F16).by_cell);
    }
    assert_int_equal(kin_hparams_shares_choices(&hp), back[1] + back[2] > 0);
    free(hp.layers);
}
#define expect_choices(...) FROM_TEST(expect_choices(__VA_ARGS__))

static void a_layer_shares_the_choice_of_the_last_one_that_makes_one(void **state) {
    static const int32_t types[][3] = {{1, 1, 1}, {1, 0, 1}, {1, 1, 0}, {1, 0, 0}};
    static const int back[][3] = {{0, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 1, 2}};
    (void)state;
    for (int i = 0; i < 4; i++) expect_choices(shared_file(types[i], 1024), back[i]);
}

// More tokens than an indexer of kin chooses: contexts in which all are seen.
static void layers_that_share_a_choice_of_too_many_see_all(void **state) {
    kin_hparams hp;
    kin_err err = {""};
    (void)state;
    if (read_file_of(shared_file((int32_t[]){1, 0, 0}, KIN_CHOSEN_MAX + 1), &kin_arch_glm_dsa, &hp, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(kin_hparams_check_context(&hp, KIN_CHOSEN_MAX + 1, &err), 0);
    assert_int_equal(kin_hparams_check_context(&hp, KIN_CHOSEN_MAX + 2, &err), KIN_FAIL);
    assert_false(kin_hparams_shares_choices(&hp));
    assert_int_equal(hp.indexer.n_chosen, 0);
    free(hp.layers);
}

static void a_choice_that_no_layer_makes_is_refused(void **state) {
    kin_hparams hp;
    kin_err err = {""};
    (void)state;
    assert_int_equal(read_file_of(shared_file((int32_t[]){0, 1, 1}, 1024), &kin_arch_glm_dsa, &hp, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "layer 0 shares a choice of tokens, but no layer before it makes one"));
    free(hp.layers);
}

static void indexers_that_cannot_be_computed_are_refused(void **state) {
    static const char *const missing[] = {"attention.indexer.head_count", "attention.indexer.key_length",
                                          "attention.indexer.top_k"};
    kin_hparams hp;
    kin_err err;
    (void)state;
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof missing / sizeof *missing; k++) {
            kin_gguf_writer *w = indexed_file(indexed[i]->name, 32, 1024, missing[k]);
            assert_int_equal(read_file_of(w, indexed[i], &hp, &err), KIN_FAIL);
            assert_true(strstr(err.text, missing[k]) && strstr(err.text, "is missing"));
            free(hp.layers);
        }
        for (int key_dim = 8; key_dim <= 24; key_dim += 16) { // narrower than what rotates, and no multiple of 16
            assert_int_equal(read_file_of(indexed_file(indexed[i]->name, key_dim, 9, NULL), indexed[i], &hp, &err), KIN_FAIL);
            assert_non_null(strstr(err.text, "of which 16 rotate, are not supported"));
            free(hp.layers);
        }
    }
}

// A MiniMax M3 with one of its keys left out; NULL: none.
static kin_gguf_writer *blocks_file(const char *missing) {
    static const float data[64];
    static const struct {
        const char *key;
        int number;
    } keys[] = {{"block_count", 3},         {"embedding_length", 8},         {"context_length", 4096},
                {"feed_forward_length", 8}, {"attention.head_count", 4},     {"leading_dense_block_count", 1},
                {"expert_count", 4},        {"expert_used_count", 2},        {"expert_feed_forward_length", 16},
                {"expert_shared_count", 2}, {"attention.indexer.top_k", 16}, {"attention.indexer.block_size", 128}};
    kin_gguf_writer *w = kin_gguf_writer_new();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!missing || strcmp(keys[i].key, missing) != 0) put_of(w, "minimax-m3", keys[i].key, keys[i].number);
    kin_gguf_writer_add(w, "token_embd.weight", GGML_TYPE_F32, 2, (int64_t[]){8, 8}, data);
    return w;
}

static void an_indexer_of_blocks_limits_the_context(void **state) {
    static const char *const missing[] = {"attention.indexer.top_k", "attention.indexer.block_size"};
    kin_hparams hp;
    kin_err err = {""};
    (void)state;
    if (read_file_of(blocks_file(NULL), &kin_arch_minimax_m3, &hp, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(hp.n_ctx_train, 2048);
    assert_int_equal(kin_hparams_check_context(&hp, 2048, &err), 0);
    assert_int_equal(kin_hparams_check_context(&hp, 2049, &err), KIN_FAIL);
    assert_true(kin_layer_of(&hp, 1).has_experts && !kin_layer_of(&hp, 0).has_experts);
    assert_int_equal(kin_layer_of(&hp, 0).gate, KIN_GATE_OAI);
    assert_int_equal(hp.n_ff_shared, 32);
    assert_int_equal(hp.routing.gating, KIN_GATING_SIGMOID);
    free(hp.layers);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_file_of(blocks_file(missing[i]), &kin_arch_minimax_m3, &hp, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, missing[i]));
        assert_non_null(strstr(err.text, "is missing"));
        free(hp.layers);
    }
}

// A Qwen3.8-Flash-Next whose indexer chooses n_chosen tokens, in blocks of `ratio` in the layer of attention, which is the last
// one.
static kin_gguf_writer *pooled_file(int ratio, int n_chosen, int key_dim) {
    static const float data[64];
    static const struct {
        const char *key;
        int number;
    } keys[] = {{"block_count", 4},
                {"embedding_length", 8},
                {"context_length", 4096},
                {"attention.head_count", 4},
                {"attention.head_count_kv", 2},
                {"attention.key_length", 32},
                {"rope.dimension_count", 16},
                {"expert_count", 4},
                {"expert_used_count", 2},
                {"expert_feed_forward_length", 16},
                {"ssm.conv_kernel", 4},
                {"ssm.state_size", 16},
                {"ssm.group_count", 1},
                {"ssm.time_step_rank", 1},
                {"ssm.inner_size", 16},
                {"hyper_connection.count", 4},
                {"hyper_connection.low_rank", 16},
                {"ple.layers", 1},
                {"ple.ngram_size", 2},
                {"ple.heads_per_ngram", 1},
                {"ple.conv_kernel", 4},
                {"ple.eos_token_id", 1},
                {"ple.head_offsets", 0},
                {"ple.head_vocab_sizes", 8},
                {"embedding_length_per_layer_input", 8},
                {"attention.indexer.head_count", 4}};
    const int32_t ratios[] = {128, 0, 0, ratio}; // that of a layer without attention does not count
    const uint64_t multipliers[] = {3, 5};
    kin_gguf_writer *w = kin_gguf_writer_new();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) put_of(w, "qwen4exp", keys[i].key, keys[i].number);
    put_of(w, "qwen4exp", "attention.indexer.key_length", key_dim);
    put_of(w, "qwen4exp", "attention.indexer.top_k", n_chosen);
    kin_gguf_writer_put_array(w, "qwen4exp.attention.compress_ratios", KIN_GGUF_I32, 4, ratios);
    kin_gguf_writer_put_array(w, "qwen4exp.ple.layer_multipliers", KIN_GGUF_U64, 2, multipliers);
    kin_gguf_writer_add(w, "token_embd.weight", GGML_TYPE_F32, 2, (int64_t[]){8, 8}, data);
    return w;
}

// limit: of contexts; 0: none
static void expect_pooled(kin_gguf_writer *w, int limit, int n_chosen) {
    kin_hparams hp;
    kin_err err = {""};
    if (read_file_of(w, &kin_arch_qwen4exp, &hp, &err) != 0) fail_msg("%s", err.text);
    const kin_layer layer = kin_layer_of(&hp, 3), recurrent = kin_layer_of(&hp, 0);
    const kin_weight_set set = kin_arch_qwen4exp.required(&hp, &layer), other = kin_arch_qwen4exp.required(&hp, &recurrent);
    assert_int_equal(hp.n_ctx_max, limit);
    assert_int_equal(hp.indexer.n_chosen, n_chosen);
    assert_int_equal(kin_layer_chooses_groups(&layer), n_chosen > 0);
    assert_int_equal(kin_layer_n_index(&layer), n_chosen > 0 ? 32 + 8 : 0); // the keys of 16 blocks after those of 64 tokens
    assert_int_equal(kin_weight_set_has(&set, KIN_W_INDEX_K_2), n_chosen > 0);
    assert_false(kin_layer_chooses_groups(&recurrent) || kin_weight_set_has(&other, KIN_W_INDEX_K_2));
    free(hp.layers);
}
#define expect_pooled(...) FROM_TEST(expect_pooled(__VA_ARGS__))

static void an_indexer_of_blocks_with_one_key_limits_contexts_if_kin_cannot_compute_it(void **state) {
    (void)state;
    expect_pooled(pooled_file(4, 2048, 32), 0, 2048);
    expect_pooled(pooled_file(16, 2050, 32), 0, 2048); // of whole blocks
    expect_pooled(pooled_file(0, 2048, 32), 0, 0);     // all tokens are seen
    expect_pooled(pooled_file(3, 2048, 32), 2046 + 2, 0);
    expect_pooled(pooled_file(128, 2048, 32), 2048 + 127, 0);
    expect_pooled(pooled_file(4, 2, 32), 3, 0);
    expect_pooled(pooled_file(4, 2048, 24), 2048 + 3, 0);
    expect_pooled(pooled_file(4, 4 * KIN_CHOSEN_MAX + 4, 32), 4 * KIN_CHOSEN_MAX + 4 + 3, 0);
}

static void expect_latent_refused(kin_gguf_writer *w, const char *words) {
    kin_hparams hp;
    kin_err err = {""};
    assert_int_equal(read_file_of(w, &kin_arch_deepseek2, &hp, &err), KIN_FAIL);
    free(hp.layers);
    if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
}
#define expect_latent_refused(...) FROM_TEST(expect_latent_refused(__VA_ARGS__))

// DeepSeek V3's numbers: a factor of 40 and a multiplier of 1 give scores a factor of (1 + 0.1 ln 40)^2.
static void yarn_scales_the_scores_of_latents_and_not_the_rope(void **state) {
    kin_hparams hp;
    kin_err err = {""};
    (void)state;
    for (int multiplies = 0; multiplies < 2; multiplies++) {
        kin_gguf_writer *w = latent_file("deepseek2", false);
        kin_gguf_writer_put_str(w, "deepseek2.rope.scaling.type", "yarn");
        put_float_of(w, "deepseek2", "rope.scaling.factor", 40);
        if (!multiplies) {
            expect_latent_refused(w, "yarn_log_multiplier");
            continue;
        }
        put_float_of(w, "deepseek2", "rope.scaling.yarn_log_multiplier", 0.1);
        put_float_of(w, "deepseek2", "attention.temperature_scale", 0.1);
        put_of(w, "deepseek2", "attention.temperature_length", 8192);
        if (read_file_of(w, &kin_arch_deepseek2, &hp, &err) != 0) fail_msg("%s", err.text);
        expect_near(kin_rope_length(&hp.ropes[0]), 1);
        expect_near(kin_layer_of(&hp, 1).attn_scale, 1.3688879 * 1.3688879 / 6.9282032);
        expect_near(hp.query_temperature, 0.1);
        assert_int_equal(hp.temperature_length, 8192);
        free(hp.layers);
    }
    kin_gguf_writer *w = latent_file("deepseek2", false);
    put_float_of(w, "deepseek2", "rope.scaling.factor", 2); // linear
    put_float_of(w, "deepseek2", "rope.scaling.yarn_log_multiplier", 0.1);
    expect_latent_refused(w, "rope scaling without YaRN");
}

static void latents_that_do_not_fit_are_refused(void **state) {
    (void)state;
    kin_gguf_writer *w = latent_file("deepseek2", false);
    put_of(w, "deepseek2", "expert_group_count", 4);
    put_of(w, "deepseek2", "expert_group_used_count", 2);
    expect_latent_refused(w, "groups of experts that are not chosen by sigmoids");
    w = latent_file("deepseek2", true);
    put_of(w, "deepseek2", "attention.key_length_mla", 48); // the cache's widths are missing
    expect_latent_refused(w, "4 key heads of 48 and values of 24 dimensions do not fit a latent of 64 and a rotary key of 16");
    w = latent_file_of("deepseek2", true, 48);
    expect_latent_refused(w, "all 48 dimensions of a head rotate");
    w = whole_file();
    kin_gguf_writer_put_int(w, "llama.attention.key_length", KIN_GGUF_U32, 8);
    kin_gguf_writer_put_int(w, "llama.attention.value_length", KIN_GGUF_U32, 4);
    expect_refused(w, "key heads of 8 and value heads of 4 dimensions are not supported");
}

static kin_gguf_writer *convolution_file(const char *family, int first_n_head_kv, int second_n_head_kv) {
    static const float data[64];
    char name[96];
    kin_gguf_writer *w = kin_gguf_writer_new();
    put_of(w, family, "block_count", 3);
    put_of(w, family, "embedding_length", 8);
    put_of(w, family, "context_length", 4096);
    put_of(w, family, "feed_forward_length", 8);
    put_of(w, family, "attention.head_count", 4);
    put_of(w, family, "shortconv.l_cache", 3);
    snprintf(name, sizeof name, "%s.attention.head_count_kv", family);
    put_ints(w, name, first_n_head_kv, second_n_head_kv, 0);
    kin_gguf_writer_add(w, "token_embd.weight", GGML_TYPE_F32, 2, (int64_t[]){8, 8}, data);
    return w;
}

static void layers_without_key_heads_are_convolutions(void **state) {
    kin_hparams hp;
    kin_err err = {""};
    (void)state;
    if (read_file_of(convolution_file("lfm2", 0, 2), &kin_arch_lfm2, &hp, &err) != 0) fail_msg("%s", err.text);
    for (int il = 0; il < 3; il++) assert_int_equal(kin_layer_of(&hp, il).is_recurrent, il != 1);
    assert_int_equal(kin_layer_of(&hp, 1).n_head_kv, 2);
    assert_true(kin_hparams_has_states(&hp));
    free(hp.layers);
    assert_int_equal(read_file_of(convolution_file("lfm2", 0, 0), &kin_arch_lfm2, &hp, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "no layer has key and value heads"));
    free(hp.layers);
    kin_gguf_writer *w = convolution_file("lfm2moe", 0, 2);
    put_of(w, "lfm2moe", "expert_count", 4);
    put_of(w, "lfm2moe", "expert_used_count", 2);
    put_of(w, "lfm2moe", "attention.sliding_window", 64);
    assert_int_equal(read_file_of(w, &kin_arch_lfm2moe, &hp, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "windows of attention are not supported"));
    free(hp.layers);
    w = file();
    put_ints(w, "llama.attention.head_count_kv", 0, 2, 2);
    kin_gguf_writer_put_int(w, "llama.attention.head_count", KIN_GGUF_U32, 4);
    expect_refused(w, "'llama.attention.head_count_kv' is 0");
}

static void numbers_of_layers_that_cannot_be_are_refused(void **state) {
    (void)state;
    kin_gguf_writer *w = file();
    put_ints(w, "llama.attention.head_count", 4, 4, 4);
    put_ints(w, "llama.attention.head_count_kv", 2, 2, 3);
    expect_refused(w, "4 query heads are not a multiple of 3 key/value heads");
    w = file();
    kin_gguf_writer_put_array(w, "llama.attention.head_count", KIN_GGUF_I32, 2, (int32_t[]){4, 4});
    expect_refused(w, "'llama.attention.head_count' has 2 numbers for 3 layers");
    w = file();
    put_ints(w, "llama.attention.head_count", -1, -1, -1);
    expect_refused(w, "'llama.attention.head_count' is -1");
    w = file();
    kin_gguf_writer_put_array(w, "llama.attention.head_count", KIN_GGUF_F32, N_LAYER, (float[]){4, 4, 4});
    expect_refused(w, "must be an array of integers");
}

static void the_first_wrong_key_is_not_forgotten_over_the_next_right_one(void **state) {
    (void)state;
    kin_gguf_writer *w = whole_file();
    kin_gguf_writer_put_int(w, "llama.rope.scaling.original_context_length", KIN_GGUF_U32, 0);
    expect_refused(w, "original_context_length");
}

static void what_kin_would_not_compute_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *key;
        kin_gguf_kind kind;
        int64_t fine, refused;
    } cases[] = {
        {"llama.attention.causal", KIN_GGUF_BOOL, 1, 0},
        {"llama.nextn_predict_layers", KIN_GGUF_U32, 0, 1},
        {"llama.expert_group_count", KIN_GGUF_U32, 1, 2},
        {"llama.embedding_length_out", KIN_GGUF_U32, 8, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kin_gguf_writer *w = whole_file();
        kin_gguf_writer_put_int(w, cases[i].key, cases[i].kind, cases[i].fine);
        expect_read(w);
        w = whole_file();
        kin_gguf_writer_put_int(w, cases[i].key, cases[i].kind, cases[i].refused);
        expect_refused(w, cases[i].key);
        w = whole_file();
        kin_gguf_writer_put_str(w, cases[i].key, "what?");
        expect_refused(w, cases[i].key);
    }
}

// The document has a row "| `KEY` | use |" for each row of the code's table, and no other rows.
static void windowed_layers_rotate_as_their_key_says(void **state) {
    (void)state;
    for (int n_rot = 4; n_rot <= 8; n_rot += 4) {
        kin_gguf_writer *w = whole_file();
        kin_gguf_writer_put_int(w, "llama.attention.key_length", KIN_GGUF_U32, 8);
        kin_gguf_writer_put_int(w, "llama.rope.dimension_count_swa", KIN_GGUF_U32, n_rot);
        kin_gguf_writer_put_int(w, "llama.attention.key_length_swa", KIN_GGUF_U32, 8);
        kin_hparams hp = expect_read(w);
        assert_int_equal(hp.ropes[0].n_rot, 8);
        assert_int_equal(hp.ropes[1].n_rot, n_rot);
    }
    kin_gguf_writer *w = whole_file();
    kin_gguf_writer_put_int(w, "llama.attention.key_length", KIN_GGUF_U32, 8);
    kin_gguf_writer_put_int(w, "llama.rope.dimension_count_swa", KIN_GGUF_U32, 10);
    expect_refused(w, "rope.dimension_count_swa");
    w = whole_file();
    kin_gguf_writer_put_int(w, "llama.attention.key_length", KIN_GGUF_U32, 8);
    kin_gguf_writer_put_int(w, "llama.attention.key_length_swa", KIN_GGUF_U32, 4);
    expect_refused(w, "a different head size in sliding-window layers");
}

static void the_table_for_people_says_the_same(void **state) {
    (void)state;
    static const char *const uses[] = {"used", "harmless", "refused"};
    FILE *f = fopen(KIN_SOURCE_DIR "/docs/GGUF.md", "r");
    char line[512], start[256];
    int n_rows = 0, n_keys = 0;
    assert_non_null(f);
    for (const kin_key *key; (key = kin_key_at(n_keys)); n_keys++) {
        bool found = false;
        snprintf(start, sizeof start, "| `%s` | %s |", key->name, uses[key->use]);
        rewind(f);
        while (fgets(line, sizeof line, f)) found = found || strncmp(line, start, strlen(start)) == 0;
        if (!found) fail_msg("docs/GGUF.md has no line that begins with %s", start);
    }
    rewind(f);
    while (fgets(line, sizeof line, f)) n_rows += strncmp(line, "| `", 3) == 0;
    fclose(f);
    assert_int_equal(n_rows, n_keys);
}

static bool is_in_table(const char *name) {
    const kin_key *key;
    for (int i = 0; (key = kin_key_at(i)); i++)
        if (strcmp(key->name, name) == 0) return true;
    return false;
}

// Finds calls such as kin_meta_int(k, "block_count", in a source file, and returns their number.
static int check_calls_in(const char *path) {
    FILE *f = fopen(path, "r");
    char line[512], name[128];
    int n = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        for (const char *at = line; (at = strstr(at, "kin_meta_")); at++) {
            if (strncmp(at, "kin_meta_fail", 13) == 0) continue; // its string is a sentence
            if (sscanf(at, "kin_meta_%*[a-z_](%*[a-z], \"%127[a-z_.]\",", name) != 1) continue;
            if (!is_in_table(name)) fail_msg("%s reads the key '%s', which is not in the table", path, name);
            n++;
        }
    }
    fclose(f);
    return n;
}
#define check_calls_in(...) FROM_TEST(check_calls_in(__VA_ARGS__))

static void every_key_that_a_family_reads_is_in_the_table(void **state) {
    (void)state;
    glob_t found;
    int n = 0;
    assert_int_equal(glob(KIN_SOURCE_DIR "/model/*.c", 0, NULL, &found), 0);
    assert_int_equal(glob(KIN_SOURCE_DIR "/model/families/*.c", GLOB_APPEND, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) n += check_calls_in(found.gl_pathv[i]);
    globfree(&found);
    assert_true(n > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_factor_without_a_type_scales_positions_linearly),
        cmocka_unit_test(a_number_for_each_layer_is_one_number_if_all_are_equal),
        cmocka_unit_test(numbers_that_differ_belong_to_their_layers),
        cmocka_unit_test(a_layer_shares_the_keys_of_the_last_one_of_its_kind_that_has_any),
        cmocka_unit_test(older_and_newer_files_describe_the_same_latents),
        cmocka_unit_test(an_indexer_limits_no_context),
        cmocka_unit_test(an_indexer_that_chooses_too_many_limits_the_context),
        cmocka_unit_test(a_layer_shares_the_choice_of_the_last_one_that_makes_one),
        cmocka_unit_test(layers_that_share_a_choice_of_too_many_see_all),
        cmocka_unit_test(a_choice_that_no_layer_makes_is_refused),
        cmocka_unit_test(indexers_that_cannot_be_computed_are_refused),
        cmocka_unit_test(an_indexer_of_blocks_limits_the_context),
        cmocka_unit_test(an_indexer_of_blocks_with_one_key_limits_contexts_if_kin_cannot_compute_it),
        cmocka_unit_test(yarn_scales_the_scores_of_latents_and_not_the_rope),
        cmocka_unit_test(latents_that_do_not_fit_are_refused),
        cmocka_unit_test(layers_without_key_heads_are_convolutions),
        cmocka_unit_test(numbers_of_layers_that_cannot_be_are_refused),
        cmocka_unit_test(the_first_wrong_key_is_not_forgotten_over_the_next_right_one),
        cmocka_unit_test(what_kin_would_not_compute_is_refused),
        cmocka_unit_test(windowed_layers_rotate_as_their_key_says),
        cmocka_unit_test(the_table_for_people_says_the_same),
        cmocka_unit_test(every_key_that_a_family_reads_is_in_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
