// The vocabulary: bytes of tokens, end-of-generation tokens, and descriptions and files that must be rejected.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/vocab_load.h"
#include "pure/tokenizer/tokenizer.h"
#include "testkit/gguf_write.h"
#include "testkit/small_vocab.h"
#include "tests/place.h"

static void expect_piece(kin_str piece, const char *text) {
    assert_int_equal(piece.len, strlen(text));
    assert_memory_equal(piece.at, text, piece.len);
}
#define expect_piece(...) FROM_TEST(expect_piece(__VA_ARGS__))

static void expect_refused(kin_vocab_spec spec, const char *sentence) {
    kin_vocab *vocab;
    kin_err err = {""};
    assert_int_equal(kin_vocab_new(&vocab, &spec, &err), KIN_FAIL);
    assert_null(vocab);
    assert_string_equal(err.text, sentence);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

// ---- pieces and types

static void spm_pieces_are_text(void **state) {
    (void)state;
    kin_vocab *vocab = small_vocab(small_spm_spec());
    expect_piece(kin_vocab_piece(vocab, SMALL_SPM_SPACE_A), " a");
    expect_piece(kin_vocab_text(vocab, SMALL_SPM_SPACE_A), "\xe2\x96\x81"
                                                           "a");
    expect_piece(kin_vocab_piece(vocab, SMALL_SPM_BYTES + 0xe2), "\xe2");
    expect_piece(kin_vocab_piece(vocab, SMALL_SPM_CONTROL), "<|c|>");
    assert_int_equal(kin_vocab_type(vocab, SMALL_SPM_BYTES), KIN_TOKEN_BYTE);
    assert_int_equal(kin_vocab_n_tokens(vocab), SMALL_SPM_N);
    assert_int_equal(kin_vocab_get_kind(vocab), KIN_VOCAB_SPM);
    kin_vocab_free(vocab);
}

static void bpe_pieces_are_bytes(void **state) {
    (void)state;
    kin_vocab *vocab = small_vocab(small_bpe_spec("gpt-2"));
    for (int b = 0; b < 256; b++) {
        kin_str piece = kin_vocab_piece(vocab, b);
        assert_int_equal(piece.len, 1);
        assert_int_equal((uint8_t)piece.at[0], b);
    }
    expect_piece(kin_vocab_piece(vocab, SMALL_BPE_SPACE_W), " w");
    expect_piece(kin_vocab_piece(vocab, SMALL_BPE_USER), "<|u|>");
    kin_vocab_free(vocab);
}

static void tokens_are_found_by_their_text_only(void **state) {
    (void)state;
    kin_vocab *vocab = small_vocab(small_bpe_spec("gpt-2"));
    assert_int_equal(kin_vocab_find(vocab, "\xc4\xa0w", 3), SMALL_BPE_SPACE_W);
    assert_int_equal(kin_vocab_find(vocab, " w", 2), KIN_TOKEN_NONE);
    assert_int_equal(kin_vocab_find(vocab, "qu", 2), KIN_TOKEN_NONE); // the result of a merge, but not a token
    assert_int_equal(kin_vocab_find(vocab, "", 0), KIN_TOKEN_NONE);
    kin_vocab_free(vocab);
}

static void odd_tokens_are_taken_as_llama_cpp_takes_them(void **state) {
    (void)state;
    kin_str tokens[] = {small_piece(""), small_piece("\xe2\x82\xac"), small_piece("x"), small_piece("y")};
    int32_t types[] = {KIN_TOKEN_NORMAL, KIN_TOKEN_NORMAL, KIN_TOKEN_UNUSED, 77};
    kin_vocab_spec spec = kin_vocab_spec_defaults(KIN_VOCAB_BPE, "gpt-2");
    spec.tokens = tokens;
    spec.types = types;
    spec.n_tokens = 4;
    kin_vocab *vocab = small_vocab(spec);
    expect_piece(kin_vocab_text(vocab, 0), "[EMPTY_0]");
    expect_piece(kin_vocab_piece(vocab, 1), "\xe2\x82\xac"); // not in the byte alphabet: it represents its own text
    expect_piece(kin_vocab_piece(vocab, 2), "");
    assert_int_equal(kin_vocab_type(vocab, 3), KIN_TOKEN_UNDEFINED);
    kin_vocab_free(vocab);
}

// ---- end of generation

static void generation_ends_with_eos_and_with_tokens_named_so(void **state) {
    (void)state;
    kin_vocab_spec spec = small_bpe_spec("gpt-2");
    spec.eos = SMALL_BPE_CONTROL;
    kin_vocab *vocab = small_vocab(spec);
    assert_true(kin_vocab_is_eog(vocab, SMALL_BPE_CONTROL));
    assert_true(kin_vocab_is_eog(vocab, SMALL_BPE_IM_END));
    assert_false(kin_vocab_is_eog(vocab, SMALL_BPE_USER));
    assert_false(kin_vocab_is_eog(vocab, -1));
    assert_false(kin_vocab_is_eog(vocab, SMALL_BPE_N));
    assert_int_equal(kin_vocab_eos(vocab), SMALL_BPE_CONTROL);
    assert_int_equal(kin_vocab_eot(vocab), SMALL_BPE_IM_END);
    assert_int_equal(kin_vocab_bos(vocab), KIN_TOKEN_NONE);
    assert_int_equal(kin_vocab_type(vocab, SMALL_BPE_IM_END), KIN_TOKEN_CONTROL); // regardless of the description
    kin_vocab_free(vocab);
}

static void inner_end_of_gpt_oss_does_not_end_it(void **state) {
    (void)state;
    kin_str tokens[] = {small_piece("<|end|>"), small_piece("<|return|>"), small_piece("<|call|>"), small_piece("<|channel|>")};
    kin_vocab_spec spec = kin_vocab_spec_defaults(KIN_VOCAB_BPE, "gpt-4o");
    spec.tokens = tokens;
    spec.n_tokens = 4;
    kin_vocab *vocab = small_vocab(spec);
    assert_false(kin_vocab_is_eog(vocab, 0));
    assert_true(kin_vocab_is_eog(vocab, 1));
    assert_true(kin_vocab_is_eog(vocab, 2));
    assert_int_equal(kin_vocab_type(vocab, 3), KIN_TOKEN_USER_DEFINED);
    kin_vocab_free(vocab);

    spec.n_tokens = 2; // without <|call|> it is Phi's <|end|>, which ends the generation
    vocab = small_vocab(spec);
    assert_true(kin_vocab_is_eog(vocab, 0));
    kin_vocab_free(vocab);
}

static void gemma4_ends_with_a_turn_or_a_tool_and_not_with_html(void **state) {
    (void)state;
    kin_str tokens[] = {small_piece("<turn|>"), small_piece("</s>"), small_piece("<|channel>"), small_piece("<|tool_response>")};
    kin_vocab_spec spec = kin_vocab_spec_defaults(KIN_VOCAB_SPACED_BPE, NULL);
    assert_true(spec.add_bos);
    spec.add_bos = false;
    spec.tokens = tokens;
    spec.n_tokens = 4;
    kin_vocab *vocab = small_vocab(spec);
    assert_true(kin_vocab_is_eog(vocab, 0));
    assert_int_equal(kin_vocab_type(vocab, 0), KIN_TOKEN_CONTROL);
    assert_false(kin_vocab_is_eog(vocab, 1));
    assert_int_equal(kin_vocab_type(vocab, 1), KIN_TOKEN_NORMAL);
    assert_false(kin_vocab_is_eog(vocab, 2));
    assert_int_equal(kin_vocab_type(vocab, 2), KIN_TOKEN_USER_DEFINED);
    assert_true(kin_vocab_is_eog(vocab, 3));
    assert_int_equal(kin_vocab_type(vocab, 3), KIN_TOKEN_USER_DEFINED);
    kin_vocab_free(vocab);

    spec.n_tokens = 3; // in other vocabularies </s> is what it says
    vocab = small_vocab(spec);
    assert_true(kin_vocab_is_eog(vocab, 1));
    kin_vocab_free(vocab);
}

// ---- descriptions that must be rejected

static void bad_sizes_are_refused(void **state) {
    (void)state;
    kin_vocab_spec spec = small_bpe_spec("gpt-2");
    spec.n_tokens = 0;
    expect_refused(spec, "vocabulary: 0 tokens; must be 1 to 4194304");
    spec.n_tokens = KIN_VOCAB_MAX_TOKENS + 1;
    expect_refused(spec, "vocabulary: 4194305 tokens; must be 1 to 4194304");
    spec = small_bpe_spec("gpt-2");
    spec.n_merges = (size_t)KIN_VOCAB_MAX_MERGES + 1;
    expect_refused(spec, "vocabulary: 4194305 merges, but the limit is 4194304");
    spec = small_bpe_spec("gpt-2");
    ((kin_str *)spec.tokens)[5].len = KIN_VOCAB_MAX_TOKEN_BYTES + 1;
    expect_refused(spec, "vocabulary: token 5 has 65537 bytes, but the limit is 65536");
}

static void bad_ids_are_refused(void **state) {
    (void)state;
    kin_vocab_spec spec = small_bpe_spec("gpt-2");
    spec.eos = SMALL_BPE_N;
    expect_refused(spec, "vocabulary: eos is 265, but there are 265 tokens");
    spec.eos = -2;
    expect_refused(spec, "vocabulary: eos is -2, but there are 265 tokens");
    spec.eos = KIN_TOKEN_NONE;
    spec.add_eos = true;
    expect_refused(spec, "vocabulary: add_eos is set, but there is no EOS token");
    spec.add_eos = false;
    spec.add_bos = true;
    expect_refused(spec, "vocabulary: add_bos is set, but there is no BOS token");
}

static void bad_tokens_are_refused(void **state) {
    (void)state;
    kin_vocab_spec spec = small_bpe_spec("gpt-2");
    ((kin_str *)spec.tokens)[SMALL_BPE_XYZ] = small_piece("he");
    expect_refused(spec, "vocabulary: tokens 257 and 261 are equal: 'he'");
    spec = small_spm_spec();
    ((float *)spec.scores)[SMALL_SPM_A] = NAN;
    expect_refused(spec, "vocabulary: the score of token 260 is not a number");
    spec = small_spm_spec();
    ((int32_t *)spec.types)[SMALL_SPM_A] = KIN_TOKEN_BYTE;
    expect_refused(spec, "vocabulary: token 260 is a byte, but its name 'a' is not like <0x1F>");
}

static void bad_merges_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"", "ab", " ", "a", "a ", " b", "ab "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kin_vocab_spec spec = small_bpe_spec("gpt-2");
        ((kin_str *)spec.merges)[3] = small_piece(bad[i]);
        expect_refused(spec, "vocabulary: merge 3 must be two short strings separated by a space");
    }
}

// ---- from a file

static kin_gguf_writer *spm_writer(void) {
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "a", "b", "ab"};
    static const float scores[] = {0, 0, 0, -3, -3, -1};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1};
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "tokenizer.ggml.model", "llama");
    kin_gguf_writer_put_strs(w, "tokenizer.ggml.tokens", 6, tokens);
    kin_gguf_writer_put_array(w, "tokenizer.ggml.scores", KIN_GGUF_F32, 6, scores);
    kin_gguf_writer_put_array(w, "tokenizer.ggml.token_type", KIN_GGUF_I32, 6, types);
    return w;
}

static kin_gguf_writer *bpe_writer(void) {
    static const char *const tokens[] = {"a", "b", "ab"};
    static const char *const merges[] = {"a b"};
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "tokenizer.ggml.model", "gpt2");
    kin_gguf_writer_put_strs(w, "tokenizer.ggml.tokens", 3, tokens);
    kin_gguf_writer_put_strs(w, "tokenizer.ggml.merges", 1, merges);
    return w;
}

static int load(kin_vocab **vocab, kin_gguf_writer *w, kin_err *err) {
    uint8_t *bytes;
    size_t size;
    kin_gguf *gguf;
    kin_gguf_writer_save_bytes(w, &bytes, &size);
    kin_gguf_writer_free(w);
    assert_int_equal(kin_gguf_open_bytes(&gguf, "v.gguf", bytes, size, err), 0);
    int rc = kin_vocab_load(vocab, gguf, err);
    kin_gguf_close(gguf);
    free(bytes);
    return rc;
}

static void expect_file_refused(kin_gguf_writer *w, const char *part) {
    kin_vocab *vocab;
    kin_err err = {""};
    assert_int_equal(load(&vocab, w, &err), KIN_FAIL);
    assert_null(vocab);
    if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);
}
#define expect_file_refused(...) FROM_TEST(expect_file_refused(__VA_ARGS__))

static kin_vocab *expect_loaded(kin_gguf_writer *w) {
    kin_vocab *vocab;
    kin_err err = {""};
    int rc = load(&vocab, w, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    return vocab;
}
#define expect_loaded(...) FROM_TEST(expect_loaded(__VA_ARGS__))

static void spm_file_gets_llama_cpps_defaults(void **state) {
    (void)state;
    kin_vocab *vocab = expect_loaded(spm_writer());
    assert_int_equal(kin_vocab_unk(vocab), 0);
    assert_int_equal(kin_vocab_bos(vocab), 1);
    assert_int_equal(kin_vocab_eos(vocab), 2);
    assert_int_equal(kin_vocab_pad(vocab), KIN_TOKEN_NONE);
    assert_true(kin_vocab_add_bos(vocab));
    assert_false(kin_vocab_add_eos(vocab));
    assert_true(kin_vocab_is_eog(vocab, 2));
    kin_vocab_free(vocab);
}

static void bpe_file_gets_the_default_pre_tokenizer_and_no_bos(void **state) {
    (void)state;
    kin_vocab *vocab = expect_loaded(bpe_writer());
    kin_tokenizer *tokenizer;
    assert_int_equal(kin_vocab_bos(vocab), KIN_TOKEN_NONE);
    assert_int_equal(kin_vocab_eos(vocab), KIN_TOKEN_NONE);
    assert_false(kin_vocab_add_bos(vocab));
    assert_int_equal(kin_tokenizer_new(&tokenizer, vocab, NULL), 0);
    int32_t id;
    assert_int_equal(kin_tokenizer_encode(tokenizer, "ab", 2, 0, &id, 1, NULL), 1);
    assert_int_equal(id, 2);
    kin_tokenizer_free(tokenizer);
    kin_vocab_free(vocab);
}

static void file_overrides_the_defaults(void **state) {
    (void)state;
    kin_gguf_writer *w = spm_writer();
    kin_gguf_writer_put_int(w, "tokenizer.ggml.bos_token_id", KIN_GGUF_U32, 3);
    kin_gguf_writer_put_int(w, "tokenizer.ggml.eos_token_id", KIN_GGUF_U32, 4);
    kin_gguf_writer_put_int(w, "tokenizer.ggml.eot_token_id", KIN_GGUF_U32, 5);
    kin_gguf_writer_put_int(w, "tokenizer.ggml.padding_token_id", KIN_GGUF_U32, 0);
    kin_gguf_writer_put_int(w, "tokenizer.ggml.unknown_token_id", KIN_GGUF_U32, 3000); // not one of six tokens: ignored
    kin_gguf_writer_put_int(w, "tokenizer.ggml.add_bos_token", KIN_GGUF_BOOL, 0);
    kin_gguf_writer_put_int(w, "tokenizer.ggml.add_eos_token", KIN_GGUF_BOOL, 1);
    kin_vocab *vocab = expect_loaded(w);
    assert_int_equal(kin_vocab_bos(vocab), 3);
    assert_int_equal(kin_vocab_eos(vocab), 4);
    assert_int_equal(kin_vocab_eot(vocab), 5);
    assert_int_equal(kin_vocab_pad(vocab), 0);
    assert_int_equal(kin_vocab_unk(vocab), 0);
    assert_false(kin_vocab_add_bos(vocab));
    assert_true(kin_vocab_add_eos(vocab));
    kin_vocab_free(vocab);
}

static void llama_3_begins_texts_with_bos(void **state) {
    (void)state;
    kin_gguf_writer *w = bpe_writer();
    kin_gguf_writer_put_str(w, "tokenizer.ggml.pre", "llama-bpe");
    kin_gguf_writer_put_int(w, "tokenizer.ggml.bos_token_id", KIN_GGUF_U32, 0);
    kin_vocab *vocab = expect_loaded(w);
    assert_true(kin_vocab_add_bos(vocab));
    kin_vocab_free(vocab);

    w = bpe_writer();
    kin_gguf_writer_put_str(w, "tokenizer.ggml.pre", "llama-bpe");
    vocab = expect_loaded(w); // adds no bos, like its publisher's tokenizer
    assert_int_equal(kin_vocab_bos(vocab), KIN_TOKEN_NONE);
    assert_false(kin_vocab_add_bos(vocab));
    kin_vocab_free(vocab);
}

static void what_is_to_be_added_but_is_not_there_is_left_out(void **state) {
    (void)state;
    kin_gguf_writer *w = bpe_writer();
    kin_gguf_writer_put_int(w, "tokenizer.ggml.add_bos_token", KIN_GGUF_BOOL, 1);
    kin_gguf_writer_put_int(w, "tokenizer.ggml.add_eos_token", KIN_GGUF_BOOL, 1);
    kin_vocab *vocab = expect_loaded(w);
    assert_false(kin_vocab_add_bos(vocab));
    assert_false(kin_vocab_add_eos(vocab));
    kin_vocab_free(vocab);
}

static void tokens_for_filling_in_are_those_of_the_keys_the_newer_ones_first(void **state) {
    (void)state;
    kin_gguf_writer *w = spm_writer();
    kin_gguf_writer_put_int(w, "tokenizer.ggml.fim_suf_token_id", KIN_GGUF_U32, 4);
    kin_gguf_writer_put_int(w, "tokenizer.ggml.prefix_token_id", KIN_GGUF_U32, 3);
    kin_gguf_writer_put_int(w, "tokenizer.ggml.suffix_token_id", KIN_GGUF_U32, 5);
    kin_gguf_writer_put_int(w, "tokenizer.ggml.fim_pad_token_id", KIN_GGUF_U32, 5);
    kin_vocab *vocab = expect_loaded(w);
    assert_int_equal(kin_vocab_fim(vocab, KIN_FIM_PREFIX), 3);
    assert_int_equal(kin_vocab_fim(vocab, KIN_FIM_SUFFIX), 4);
    assert_int_equal(kin_vocab_fim(vocab, KIN_FIM_MIDDLE), KIN_TOKEN_NONE);
    assert_int_equal(kin_vocab_type(vocab, 3), KIN_TOKEN_CONTROL);
    assert_false(kin_vocab_is_eog(vocab, 4));
    assert_true(kin_vocab_is_eog(vocab, 5)); // padding ends the filling
    kin_vocab_free(vocab);
}

static void suppressed_tokens_come_from_the_file(void **state) {
    (void)state;
    const int32_t ids[] = {3, 5, 3000, -1}; // ids out of range are ignored
    kin_gguf_writer *w = spm_writer();
    kin_gguf_writer_put_array(w, "tokenizer.ggml.suppress_tokens", KIN_GGUF_I32, 4, ids);
    kin_vocab *vocab = expect_loaded(w);
    size_t n;
    const int32_t *suppressed = kin_vocab_suppressed(vocab, &n);
    assert_int_equal(n, 2);
    assert_memory_equal(suppressed, ids, 2 * sizeof *ids);
    kin_vocab_free(vocab);

    w = spm_writer();
    kin_gguf_writer_put_str(w, "tokenizer.ggml.suppress_tokens", "3");
    expect_file_refused(w, "suppress_tokens");
}

static void phi_3_is_known_by_its_name(void **state) {
    (void)state;
    static const char *const names[] = {"My Phi-3 mini", "phi3", "phi-4"};
    static const int64_t n_expected[] = {1, 1, 3}; // only </s>, or also the newline after it as a space and unk
    for (int i = 0; i < 3; i++) {
        kin_gguf_writer *w = spm_writer();
        kin_gguf_writer_put_str(w, "general.name", names[i]);
        kin_vocab *vocab = expect_loaded(w);
        kin_tokenizer *tokenizer;
        assert_int_equal(kin_tokenizer_new(&tokenizer, vocab, NULL), 0);
        int64_t n = kin_tokenizer_encode(tokenizer, "</s>\n", 5, KIN_ENCODE_PARSE_SPECIAL, NULL, 0, NULL);
        assert_true(n_expected[i] == 1 ? n == 1 : n > 1);
        kin_tokenizer_free(tokenizer);
        kin_vocab_free(vocab);
    }
}

static void file_without_a_tokenizer_is_refused(void **state) {
    (void)state;
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "general.architecture", "llama");
    expect_file_refused(w, "the key 'tokenizer.ggml.model' is missing");
    w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "tokenizer.ggml.model", "llama");
    expect_file_refused(w, "the key 'tokenizer.ggml.tokens' is missing");
    w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "tokenizer.ggml.model", "gpt2");
    kin_gguf_writer_put_strs(w, "tokenizer.ggml.tokens", 1, (const char *const[]){"a"});
    expect_file_refused(w, "the key 'tokenizer.ggml.merges' is missing");
    w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "tokenizer.ggml.model", "bert");
    expect_file_refused(w, "tokenizer.ggml.model is 'bert'; known are gemma4, gpt2 and llama");
}

static kin_gguf_writer *writer_with(const char *key, kin_gguf_kind kind, uint64_t n) {
    static const uint8_t zeros[64];
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "tokenizer.ggml.model", "llama");
    if (strcmp(key, "tokenizer.ggml.tokens") != 0)
        kin_gguf_writer_put_strs(w, "tokenizer.ggml.tokens", 3, (const char *const[]){"a", "b", "c"});
    if (kind == KIN_GGUF_STRING)
        kin_gguf_writer_put_strs(w, key, n, (const char *const[]){"a", "b", "c"});
    else
        kin_gguf_writer_put_array(w, key, kind, n, zeros);
    return w;
}

static void malformed_arrays_are_refused(void **state) {
    (void)state;
    expect_file_refused(writer_with("tokenizer.ggml.tokens", KIN_GGUF_F32, 3), "tokenizer.ggml.tokens: not an array of strings");
    expect_file_refused(writer_with("tokenizer.ggml.tokens", KIN_GGUF_STRING, 0), "vocabulary: 0 tokens");
    expect_file_refused(writer_with("tokenizer.ggml.scores", KIN_GGUF_F32, 2), "tokenizer.ggml.scores: 2 numbers for 3 tokens");
    expect_file_refused(writer_with("tokenizer.ggml.scores", KIN_GGUF_STRING, 3),
                        "tokenizer.ggml.scores: not an array of numbers");
    expect_file_refused(writer_with("tokenizer.ggml.token_type", KIN_GGUF_I32, 2),
                        "tokenizer.ggml.token_type: 2 numbers for 3 tokens");
    expect_file_refused(writer_with("tokenizer.ggml.token_type", KIN_GGUF_F32, 3),
                        "tokenizer.ggml.token_type: not an array of integers");
}

static void malformed_values_are_refused(void **state) {
    (void)state;
    kin_gguf_writer *w = spm_writer();
    kin_gguf_writer_put_str(w, "tokenizer.ggml.bos_token_id", "1");
    expect_file_refused(w, "tokenizer.ggml.bos_token_id");
    w = spm_writer();
    kin_gguf_writer_put_str(w, "tokenizer.ggml.add_bos_token", "yes");
    expect_file_refused(w, "tokenizer.ggml.add_bos_token");
    w = bpe_writer();
    char name[80];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    kin_gguf_writer_put_str(w, "tokenizer.ggml.pre", name);
    expect_file_refused(w, "tokenizer.ggml.pre: a name of 79 bytes is too long");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm_pieces_are_text),
        cmocka_unit_test(bpe_pieces_are_bytes),
        cmocka_unit_test(tokens_are_found_by_their_text_only),
        cmocka_unit_test(odd_tokens_are_taken_as_llama_cpp_takes_them),
        cmocka_unit_test(generation_ends_with_eos_and_with_tokens_named_so),
        cmocka_unit_test(inner_end_of_gpt_oss_does_not_end_it),
        cmocka_unit_test(gemma4_ends_with_a_turn_or_a_tool_and_not_with_html),
        cmocka_unit_test(bad_sizes_are_refused),
        cmocka_unit_test(bad_ids_are_refused),
        cmocka_unit_test(bad_tokens_are_refused),
        cmocka_unit_test(bad_merges_are_refused),
        cmocka_unit_test(spm_file_gets_llama_cpps_defaults),
        cmocka_unit_test(bpe_file_gets_the_default_pre_tokenizer_and_no_bos),
        cmocka_unit_test(file_overrides_the_defaults),
        cmocka_unit_test(llama_3_begins_texts_with_bos),
        cmocka_unit_test(what_is_to_be_added_but_is_not_there_is_left_out),
        cmocka_unit_test(tokens_for_filling_in_are_those_of_the_keys_the_newer_ones_first),
        cmocka_unit_test(suppressed_tokens_come_from_the_file),
        cmocka_unit_test(phi_3_is_known_by_its_name),
        cmocka_unit_test(file_without_a_tokenizer_is_refused),
        cmocka_unit_test(malformed_arrays_are_refused),
        cmocka_unit_test(malformed_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
