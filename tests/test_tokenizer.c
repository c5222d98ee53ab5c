// The tokenizer: real vocabularies give the expected ids, small ones the ids worked out by hand, and no text takes too long.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "model/vocab_load.h"
#include "pure/tokenizer/detok.h"
#include "pure/tokenizer/merger.h"
#include "pure/tokenizer/tokenizer.h"
#include "testkit/sanitized.h"
#include "testkit/small_vocab.h"
#include "tests/place.h"

enum { MAX_IDS = 256 };

typedef struct pair {
    kin_vocab *vocab;
    kin_tokenizer *tokenizer;
} pair;

static pair pair_of(kin_vocab_spec spec) {
    kin_err err = {""};
    pair p = {.vocab = small_vocab(spec)};
    int rc = kin_tokenizer_new(&p.tokenizer, p.vocab, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    return p;
}
#define pair_of(...) FROM_TEST(pair_of(__VA_ARGS__))

static void pair_free(pair p) {
    kin_tokenizer_free(p.tokenizer);
    kin_vocab_free(p.vocab);
}

static void expect_ids(const kin_tokenizer *tokenizer, const char *text, size_t len, unsigned flags, const int32_t *expected,
                       size_t n) {
    int32_t ids[MAX_IDS];
    kin_err err = {""};
    int64_t n_ids = kin_tokenizer_encode(tokenizer, text, len, flags, ids, MAX_IDS, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(n_ids, n);
    assert_memory_equal(ids, expected, n * sizeof *ids);
}
#define expect_ids(...) FROM_TEST(expect_ids(__VA_ARGS__))

#define EXPECT(tokenizer, text, flags, ...)                                                                                      \
    do {                                                                                                                         \
        const int32_t expected_[] = {__VA_ARGS__};                                                                               \
        expect_ids(tokenizer, text, sizeof(text) - 1, flags, expected_, sizeof expected_ / sizeof *expected_);                   \
    } while (0)

// ---- BPE of characters

static void characters_are_merged_by_rank_between_newlines(void **state) {
    (void)state;
    pair p = pair_of(small_spaced_spec());
    EXPECT(p.tokenizer, "abc", 0, SMALL_SPM_AB, SMALL_SPM_C); // "bc" has the better score
    EXPECT(p.tokenizer, "aab a", 0, SMALL_SPM_A, SMALL_SPM_AB, SMALL_SPM_SPACE_A);
    EXPECT(p.tokenizer, "a\nb", 0, SMALL_SPM_A, SMALL_SPM_BYTES + '\n', SMALL_SPM_B);
    EXPECT(p.tokenizer, "\xc3\xa9\xff", 0, SMALL_SPM_BYTES + 0xc3, SMALL_SPM_BYTES + 0xa9, SMALL_SPM_BYTES + 0xff);
    pair_free(p);
}

// ---- real vocabularies

static char *read_all(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*size + 1);
    assert_int_equal(fread(text, 1, *size, f), *size);
    text[*size] = '\0';
    fclose(f);
    return text;
}

static size_t parse_ids(const char *line, int32_t *ids) {
    size_t n = 0;
    char *end;
    for (long id = strtol(line, &end, 10); end != line; id = strtol(line, &end, 10)) {
        assert_true(n < MAX_IDS);
        ids[n++] = (int32_t)id;
        line = end;
    }
    return n;
}

// The texts of NAME.gguf.inp must be encoded to the lines of NAME.gguf.out, and decoded from them. The lines were made without
// bos and eos; no text contains a special token, so parsing them changes nothing.
static void check_lines(const kin_vocab *vocab, const kin_tokenizer *tokenizer, char *texts, char *lines, bool goes_back,
                        int n_least) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    int n_lines = 0;
    kin_detok *detok;
    assert_int_equal(kin_detok_new(&detok, vocab, KIN_DETOK_TEXT_START, NULL), 0);
    for (char *text = texts, *line = lines; text; n_lines++) {
        char *text_end = strstr(text, separator), *line_end = strchr(line, '\n');
        size_t len = text_end ? (size_t)(text_end - text) : strlen(text);
        if (line_end) *line_end = '\0';
        int32_t ids[MAX_IDS];
        size_t n = parse_ids(line, ids), at = 0;
        expect_ids(tokenizer, text, len, 0, ids, n);
        expect_ids(tokenizer, text, len, KIN_ENCODE_PARSE_SPECIAL, ids, n);

        kin_detok_reset(detok);
        for (size_t i = 0; i < n && goes_back; i++) {
            kin_str piece = kin_detok_push(detok, ids[i]);
            assert_true(at + piece.len <= len);
            assert_memory_equal(piece.at, text + at, piece.len);
            at += piece.len;
        }
        assert_int_equal(at, goes_back ? len : 0);
        line = line_end ? line_end + 1 : line + strlen(line);
        text = text_end ? text_end + strlen(separator) : NULL;
    }
    assert_true(n_lines >= n_least);
    kin_detok_free(detok);
}

static void check_vocab_in(const char *folder, const char *name, bool goes_back) {
    char path[512];
    size_t size;
    kin_err err = {""};
    snprintf(path, sizeof path, "%s/../shared/%s/%s.gguf.inp", KIN_SOURCE_DIR, folder, name);
    char *texts = read_all(path, &size);
    if (!texts) {
        print_message("%s is missing: this vocabulary is not checked\n", path);
        skip();
    }
    strcpy(strrchr(path, '.'), ".out");
    char *lines = read_all(path, &size);
    assert_non_null(lines);
    *strrchr(path, '.') = '\0';

    kin_gguf *gguf;
    pair p;
    int rc = kin_gguf_open(&gguf, path, &err);
    if (rc == 0) rc = kin_vocab_load(&p.vocab, gguf, &err);
    if (rc == 0) rc = kin_tokenizer_new(&p.tokenizer, p.vocab, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    kin_gguf_close(gguf); // the vocabulary does not need the file
    check_lines(p.vocab, p.tokenizer, texts, lines, goes_back, 41);
    pair_free(p);
    free(lines);
    free(texts);
}
#define check_vocab_in(...) FROM_TEST(check_vocab_in(__VA_ARGS__))

static void check_vocab_file(const char *name) {
    check_vocab_in("vocab", name, true);
}
#define check_vocab_file(...) FROM_TEST(check_vocab_file(__VA_ARGS__))

// Shortens the name of the pre-tokenizer in the bytes of a file without tensors. Returns the new size.
static size_t rename_pre(char *bytes, size_t size, const char *from, const char *to) {
    static const char key[] = "tokenizer.ggml.pre";
    const size_t n_from = strlen(from), n_to = strlen(to);
    char *at = memmem(bytes, size, key, sizeof key - 1);
    assert_true(at && n_to <= n_from);
    at += sizeof key - 1 + sizeof(uint32_t); // behind the kind: the length, then the text
    assert_memory_equal(at + sizeof(uint64_t), from, n_from);
    const uint64_t n = n_to;
    memcpy(at, &n, sizeof n);
    at += sizeof n;
    memcpy(at, to, n_to);
    memmove(at + n_to, at + n_from, (size_t)(bytes + size - (at + n_from)));
    return size - (n_from - n_to);
}

// llama.cpp's ids with the vocabulary of DeepSeek V3, if that names the pre-tokenizer of Kimi K2.
static void kimi_k2_lines_match(void **state) {
    (void)state;
    size_t size, n;
    kin_err err = {""};
    kin_gguf *gguf;
    pair p;
    char *bytes = read_all(KIN_SOURCE_DIR "/../shared/vocab/deepseek-v3.gguf", &size);
    char *texts = read_all(KIN_SOURCE_DIR "/../shared/vocab/pre/pre.inp", &n);
    char *lines = read_all(KIN_SOURCE_DIR "/../shared/vocab/pre/deepseek-v3.pre-kimi-k2.out", &n);
    if (!bytes || !texts || !lines) skip();
    size = rename_pre(bytes, size, "deepseek-v3", "kimi-k2");
    int rc = kin_gguf_open_bytes(&gguf, "the vocabulary", (uint8_t *)bytes, size, &err);
    if (rc == 0) rc = kin_vocab_load(&p.vocab, gguf, &err);
    if (rc == 0) rc = kin_tokenizer_new(&p.tokenizer, p.vocab, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    kin_gguf_close(gguf);
    check_lines(p.vocab, p.tokenizer, texts, lines, true, 15);
    pair_free(p);
    free(lines);
    free(texts);
    free(bytes);
}

static void dbrx_lines_match(void **state) {
    (void)state;
    check_vocab_in("vocab-families", "dbrx", true);
}

static void small_dbrx_lines_match(void **state) {
    (void)state;
    check_vocab_in("vocab-families", "mini-dbrx", true);
}

static void small_gemma3_lines_match(void **state) {
    (void)state;
    check_vocab_in("vocab-families", "mini-gemma3", false); // tokens of spaces are written literally, as in llama.cpp
}

static void small_gemma4_lines_match(void **state) {
    (void)state;
    check_vocab_in("vocab-families", "mini-gemma4", false); // likewise
}

static void small_gpt_4o_lines_match(void **state) {
    (void)state;
    check_vocab_in("vocab-families", "mini-gpt-4o", true);
}

static void small_tekken_lines_match(void **state) {
    (void)state;
    check_vocab_in("vocab-families", "mini-tekken", true);
}

static void deepseek_coder_lines_match(void **state) {
    (void)state;
    check_vocab_file("deepseek-coder");
}

static void deepseek_llm_lines_match(void **state) {
    (void)state;
    check_vocab_file("deepseek-llm");
}

static void gpt_2_lines_match(void **state) {
    (void)state;
    check_vocab_file("gpt-2");
}

static void llama_bpe_lines_match(void **state) {
    (void)state;
    check_vocab_file("llama-bpe");
}

static void llama_spm_lines_match(void **state) {
    (void)state;
    check_vocab_file("llama-spm");
}

static void phi_3_lines_match(void **state) {
    (void)state;
    check_vocab_file("phi-3");
}

// ---- SPM by hand

static void spm_joins_the_best_score_first_then_the_leftmost(void **state) {
    (void)state;
    pair p = pair_of(small_spm_spec());
    // _ a b c: "bc" -1 beats "ab" -2, then only "_a" is left.
    EXPECT(p.tokenizer, "abc", 0, SMALL_SPM_SPACE_A, SMALL_SPM_BC);
    // _ a a a: both "aa" -3 beat "_a" -5; the left one goes first.
    EXPECT(p.tokenizer, "aaa", 0, SMALL_SPM_SPACE, SMALL_SPM_AA, SMALL_SPM_A);
    EXPECT(p.tokenizer, "a  b", 0, SMALL_SPM_SPACE_A, SMALL_SPM_SPACES, SMALL_SPM_B);
    pair_free(p);
}

static void spm_writes_unknown_characters_and_bad_bytes_as_bytes(void **state) {
    (void)state;
    pair p = pair_of(small_spm_spec());
    EXPECT(p.tokenizer, "\xc3\xa9", 0, SMALL_SPM_SPACE, SMALL_SPM_BYTES + 0xc3, SMALL_SPM_BYTES + 0xa9);
    EXPECT(p.tokenizer, "\xe2 a\0", 0, SMALL_SPM_SPACE, SMALL_SPM_BYTES + 0xe2, SMALL_SPM_SPACE_A, SMALL_SPM_BYTES);
    pair_free(p);
}

static void spm_unknown_bytes_become_unk_without_byte_tokens(void **state) {
    (void)state;
    kin_str tokens[] = {small_piece("<unk>"), small_piece("<s>"), small_piece("</s>"), small_piece("a")};
    kin_vocab_spec spec = kin_vocab_spec_defaults(KIN_VOCAB_SPM, NULL);
    spec.tokens = tokens;
    spec.n_tokens = 4;
    spec.add_space_prefix = false;
    pair p = pair_of(spec);
    EXPECT(p.tokenizer,
           "a\xc3\xa9"
           "a",
           0, 3, 0, 0, 3);
    pair_free(p);
}

static void spm_text_begins_with_a_space_also_after_special_tokens(void **state) {
    (void)state;
    pair p = pair_of(small_spm_spec());
    EXPECT(p.tokenizer, "a", KIN_ENCODE_ADD_SPECIAL, 1, SMALL_SPM_SPACE_A);
    EXPECT(p.tokenizer, "a<|u|>a", 0, SMALL_SPM_SPACE_A, SMALL_SPM_USER, SMALL_SPM_SPACE_A);
    EXPECT(p.tokenizer, "<|u|>", 0, SMALL_SPM_USER);
    expect_ids(p.tokenizer, "", 0, 0, NULL, 0);
    EXPECT(p.tokenizer, "", KIN_ENCODE_ADD_SPECIAL, 1);
    pair_free(p);
}

static void spm_space_prefix_can_be_off(void **state) {
    (void)state;
    kin_vocab_spec spec = small_spm_spec();
    spec.add_space_prefix = false;
    spec.add_bos = false;
    spec.add_eos = true;
    pair p = pair_of(spec);
    EXPECT(p.tokenizer, "a<|u|>a", KIN_ENCODE_ADD_SPECIAL, SMALL_SPM_A, SMALL_SPM_USER, SMALL_SPM_A, 2);
    pair_free(p);
}

static size_t random_text(kin_rng *rng, const char *letters, char *text, size_t len) {
    for (size_t i = 0; i < len; i++) text[i] = letters[kin_rng_u64(rng) % strlen(letters)];
    return len;
}

// A token with a space inside disables encoding word by word. No text here contains an x, so the token has no other effect.
static void spm_words_one_by_one_give_what_the_whole_text_gives(void **state) {
    (void)state;
    kin_vocab_spec spec = small_spm_spec();
    pair by_words = pair_of(spec);
    ((kin_str *)spec.tokens)[SMALL_SPM_N] = small_piece("x\xe2\x96\x81x");
    ((int32_t *)spec.types)[SMALL_SPM_N] = KIN_TOKEN_NORMAL;
    spec.n_tokens++;
    pair whole = pair_of(spec);
    kin_rng rng;
    kin_rng_seed(&rng, 1);
    for (int i = 0; i < 2000; i++) {
        char text[40];
        int32_t ids[MAX_IDS];
        size_t len = random_text(&rng, "aab bc   \xc3\xa9", text, kin_rng_u64(&rng) % sizeof text);
        int64_t n = kin_tokenizer_encode(by_words.tokenizer, text, len, 0, ids, MAX_IDS, NULL);
        expect_ids(whole.tokenizer, text, len, 0, ids, (size_t)n);
    }
    pair_free(by_words);
    pair_free(whole);
}

// ---- BPE by hand

static void bpe_joins_by_rank_then_the_leftmost(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"));
    EXPECT(p.tokenizer, "hello", 0, SMALL_BPE_HELLO);
    EXPECT(p.tokenizer, "helo", 0, SMALL_BPE_HE, 'l', 'o');
    EXPECT(p.tokenizer, "lll", 0, SMALL_BPE_LL, 'l');
    EXPECT(p.tokenizer, "hell wo", 0, SMALL_BPE_HELL, SMALL_BPE_SPACE_W, 'o');
    pair_free(p);
}

static void bpe_join_that_is_no_token_becomes_bytes(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"));
    EXPECT(p.tokenizer, "quhe", 0, 'q', 'u', SMALL_BPE_HE);
    pair_free(p);
}

static void bpe_joins_nothing_across_pre_tokens(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("qwen2"));
    EXPECT(p.tokenizer, "hel\nlo", 0, SMALL_BPE_HE, 'l', '\n', 'l', 'o');
    pair_free(p);
}

static void bpe_takes_whole_pre_tokens_only_if_merges_are_ignored(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"));
    EXPECT(p.tokenizer, "xyz", 0, 'x', 'y', 'z');
    pair_free(p);
    p = pair_of(small_bpe_spec("llama-bpe"));
    EXPECT(p.tokenizer, "xyz", 0, SMALL_BPE_XYZ);
    EXPECT(p.tokenizer, "xyzx", 0, 'x', 'y', 'z', 'x');
    pair_free(p);
}

static void bpe_bad_bytes_stand_apart_and_survive(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"));
    EXPECT(p.tokenizer,
           "h\xff"
           "e",
           0, 'h', 0xff, 'e');
    EXPECT(p.tokenizer, "he\xe2\x96", 0, SMALL_BPE_HE, 0xe2, 0x96);
    EXPECT(p.tokenizer, "\0\xed\xa0\x80", 0, 0, 0xed, 0xa0, 0x80);
    pair_free(p);
}

static void bpe_byte_without_a_token_is_left_out_or_unk(void **state) {
    (void)state;
    kin_str tokens[] = {small_piece("a"), small_piece("?")};
    kin_vocab_spec spec = kin_vocab_spec_defaults(KIN_VOCAB_BPE, "gpt-2");
    spec.tokens = tokens;
    spec.n_tokens = 2;
    pair p = pair_of(spec);
    EXPECT(p.tokenizer, "aba", 0, 0, 0);
    pair_free(p);
    spec.unk = 1;
    p = pair_of(spec);
    EXPECT(p.tokenizer, "aba", 0, 0, 1, 0);
    pair_free(p);
}

// ---- the merger against the simplest implementation

enum { N_LETTERS = 4, RUN_MAX = 60 };

// Letters are 0..3, joined symbols 4..15; order 0: never joined.
typedef struct random_rules {
    uint32_t order[16][16], result[16][16];
} random_rules;

static bool random_rule(const void *rules, const char *text, const kin_symbol *left, const kin_symbol *right, uint32_t *order,
                        uint32_t *id) {
    (void)text;
    const random_rules *r = rules;
    *order = r->order[left->id][right->id];
    *id = r->result[left->id][right->id];
    return *order > 0;
}

// Repeatedly joins the best pair, leftmost first.
static size_t join_naively(const random_rules *rules, uint32_t *symbols, size_t n) {
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t order = rules->order[symbols[i]][symbols[i + 1]];
            if (order > 0 && (best == n || order < rules->order[symbols[best]][symbols[best + 1]])) best = i;
        }
        if (best == n) return n;
        symbols[best] = rules->result[symbols[best]][symbols[best + 1]];
        n--;
        for (size_t i = best + 1; i < n; i++) symbols[i] = symbols[i + 1];
    }
}

static void merger_joins_what_a_naive_search_joins(void **state) {
    (void)state;
    kin_rng rng;
    kin_merger merger = {0};
    kin_rng_seed(&rng, 3);
    for (int round = 0; round < 3000; round++) {
        random_rules rules;
        for (int i = 0; i < 256; i++) {
            rules.order[i / 16][i % 16] = kin_rng_u64(&rng) % 3 == 0 ? (uint32_t)(kin_rng_u64(&rng) % 20) : 0;
            rules.result[i / 16][i % 16] = (uint32_t)(N_LETTERS + kin_rng_u64(&rng) % (16 - N_LETTERS));
        }
        uint32_t symbols[RUN_MAX];
        size_t n = kin_rng_u64(&rng) % RUN_MAX, at = 0;
        assert_int_equal(kin_merger_begin(&merger, n, NULL), 0);
        for (size_t i = 0; i < n; i++)
            kin_merger_add(&merger, (uint32_t)i, 1, symbols[i] = (uint32_t)(kin_rng_u64(&rng) % N_LETTERS));
        kin_merger_run(&merger, random_rule, &rules, NULL);
        n = join_naively(&rules, symbols, n);
        for (size_t i = 0; i < merger.n; i++) {
            if (merger.symbols[i].len == 0) continue;
            assert_true(at < n);
            assert_int_equal(merger.symbols[i].id, symbols[at++]);
        }
        assert_int_equal(at, n);
    }
    kin_merger_fini(&merger);
}

// ---- special tokens

static void control_tokens_are_parsed_only_on_request(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"));
    EXPECT(p.tokenizer, "<|c|>", 0, '<', '|', 'c', '|', '>');
    EXPECT(p.tokenizer, "<|c|>", KIN_ENCODE_PARSE_SPECIAL, SMALL_BPE_CONTROL);
    EXPECT(p.tokenizer, "he<|u|>", 0, SMALL_BPE_HE, SMALL_BPE_USER);
    EXPECT(p.tokenizer, "<|im_end|>", 0, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    EXPECT(p.tokenizer, "<|im_end|>", KIN_ENCODE_PARSE_SPECIAL, SMALL_BPE_IM_END);
    pair_free(p);
}

static void longest_special_token_wins_wherever_it_stands(void **state) {
    (void)state;
    pair p = pair_of(small_spm_spec());
    EXPECT(p.tokenizer, "<|c|><|c|><|u|>", KIN_ENCODE_PARSE_SPECIAL, SMALL_SPM_CONTROL, SMALL_SPM_LONG);
    EXPECT(p.tokenizer, "<|c|><|u|><|u|>", KIN_ENCODE_PARSE_SPECIAL, SMALL_SPM_LONG, SMALL_SPM_USER);
    pair_free(p);
}

// "abab" and "babc" are equally long, so the smaller id goes first, and the place of the other is taken.
static void overlapping_special_tokens_never_share_a_byte(void **state) {
    (void)state;
    kin_vocab_spec spec = small_bpe_spec("gpt-2");
    ((kin_str *)spec.tokens)[SMALL_BPE_USER] = small_piece("abab");
    ((kin_str *)spec.tokens)[SMALL_BPE_CONTROL] = small_piece("babc");
    pair p = pair_of(spec);
    EXPECT(p.tokenizer, "ababc", KIN_ENCODE_PARSE_SPECIAL, SMALL_BPE_USER, 'c');
    EXPECT(p.tokenizer, "ababab", 0, SMALL_BPE_USER, 'a', 'b');
    EXPECT(p.tokenizer, "babcab", KIN_ENCODE_PARSE_SPECIAL, SMALL_BPE_CONTROL, 'a', 'b');
    pair_free(p);
}

static void white_space_after_special_tokens_goes_with_them_if_asked(void **state) {
    (void)state;
    kin_vocab_spec spec = small_spm_spec();
    spec.strip_after_special = true;
    pair p = pair_of(spec);
    EXPECT(p.tokenizer, "<|u|> \n\ta", 0, SMALL_SPM_USER, SMALL_SPM_SPACE_A);
    EXPECT(p.tokenizer, "<|u|> <|u|>\n", 0, SMALL_SPM_USER, SMALL_SPM_USER);
    EXPECT(p.tokenizer, "<s>  a", KIN_ENCODE_PARSE_SPECIAL, 1, SMALL_SPM_SPACES, SMALL_SPM_SPACE_A); // but not after <s>
    pair_free(p);
}

// ---- the call

static void small_buffer_gets_the_first_ids_and_the_full_count(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"));
    int32_t ids[3] = {-7, -7, -7};
    assert_int_equal(kin_tokenizer_encode(p.tokenizer, "abcd", 4, 0, ids, 2, NULL), 4);
    assert_int_equal(ids[0], 'a');
    assert_int_equal(ids[1], 'b');
    assert_int_equal(ids[2], -7);
    assert_int_equal(kin_tokenizer_encode(p.tokenizer, "abcd", 4, 0, NULL, 0, NULL), 4);
    pair_free(p);
}

static void text_beyond_the_limit_is_refused(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"));
    kin_err err = {""};
    assert_int_equal(kin_tokenizer_encode(p.tokenizer, "", (size_t)KIN_ENCODE_MAX_BYTES + 1, 0, NULL, 0, &err), KIN_FAIL);
    assert_string_equal(err.text, "tokenizer: the text has 1073741825 bytes, but the limit is 1073741824");
    pair_free(p);
}

static void unknown_pre_tokenizer_is_refused_and_named(void **state) {
    (void)state;
    kin_vocab *vocab = small_vocab(small_bpe_spec("gpt-17"));
    kin_tokenizer *tokenizer;
    kin_err err = {""};
    assert_int_equal(kin_tokenizer_new(&tokenizer, vocab, &err), KIN_FAIL);
    assert_null(tokenizer);
    assert_non_null(strstr(err.text, "the pre-tokenizer 'gpt-17' is not supported (supported: default, gpt-2"));
    assert_non_null(strstr(err.text, "llama-bpe"));
    assert_non_null(strstr(err.text, "deepseek-v3"));
    kin_tokenizer_free(NULL);
    kin_vocab_free(vocab);
}

enum { N_THREADS = 4 };

// Returns NULL on success, because only the main thread may assert.
static void *encode_often(void *arg) {
    static const char text[] = "hello w hello<|u|>xyz 123";
    static const int32_t expected[] = {
        SMALL_BPE_HELLO, SMALL_BPE_SPACE_W, ' ', SMALL_BPE_HELLO, SMALL_BPE_USER, 'x', 'y', 'z', ' ', '1', '2', '3'};
    enum { N = sizeof expected / sizeof *expected };
    const pair *p = arg;
    for (int i = 0; i < 200; i++) {
        int32_t ids[N];
        if (kin_tokenizer_encode(p->tokenizer, text, strlen(text), 0, ids, N, NULL) != N) return arg;
        if (memcmp(ids, expected, sizeof ids) != 0) return arg;
    }
    return NULL;
}

static void threads_share_one_tokenizer(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("deepseek-llm"));
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &p), 0);
    for (int i = 0; i < N_THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    pair_free(p);
}

// ---- hostile texts: quadratic time would take minutes, and stack or match limits would fail

enum { HOSTILE_LEN = KIN_SANITIZED ? 1 << 16 : 1 << 18 };

static void fill(char *text, const char *unit, const char *tail) {
    size_t n_unit = strlen(unit), n_tail = strlen(tail);
    for (size_t i = 0; i < HOSTILE_LEN; i++) text[i] = unit[i % n_unit];
    memcpy(text + HOSTILE_LEN - n_tail, tail, n_tail);
}

static void expect_round_trip(const pair *p, const char *text, size_t len, int32_t *ids, size_t cap) {
    kin_err err = {""};
    kin_time start = kin_clock_now();
    int64_t n = kin_tokenizer_encode(p->tokenizer, text, len, 0, ids, cap, &err);
    assert_string_equal(err.text, "");
    assert_in_range(n, 0, cap);
    assert_true(kin_clock_ms(start, kin_clock_now()) < 20e3); // takes about 0.05 s; sanitized builds use a quarter of the text

    kin_detok *detok;
    assert_int_equal(kin_detok_new(&detok, p->vocab, KIN_DETOK_TEXT_START, NULL), 0);
    size_t at = 0;
    for (int64_t i = 0; i <= n; i++) {
        kin_str piece = i < n ? kin_detok_push(detok, ids[i]) : kin_detok_flush(detok);
        assert_true(at + piece.len <= len && memcmp(piece.at, text + at, piece.len) == 0);
        at += piece.len;
    }
    assert_int_equal(at, len);
    kin_detok_free(detok);
}
#define expect_round_trip(...) FROM_TEST(expect_round_trip(__VA_ARGS__))

static const struct {
    const char *unit, *tail;
} hostile[] = {
    {"a", ""},
    {"A", ""},
    {"l", ""},
    {" ", "\xe4\xb8\xad"},
    {" ", "x"},
    {"\n", "x"},
    {"\n ", "x"},
    {"1", ""},
    {"'", "s"},
    {"<|", "u"},
    {"!", "\n"},
    {"\xe4\xb8\xad", ""},
    {"\xff", ""},
    {"\xff"
     "a",
     ""},
    {"aA", ""},
    {"\xcc\x81", ""},
    {"/\n", ""},
    {"<|u|>", ""},
};

static void expect_linear(const pair *p) {
    char *text = malloc(HOSTILE_LEN);
    size_t cap = HOSTILE_LEN + 16;
    int32_t *ids = malloc(cap * sizeof *ids);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        fill(text, hostile[i].unit, hostile[i].tail);
        expect_round_trip(p, text, HOSTILE_LEN, ids, cap);
    }
    free(ids);
    free(text);
}
#define expect_linear(...) FROM_TEST(expect_linear(__VA_ARGS__))

static void hostile_texts_pass_every_bpe_expression(void **state) {
    (void)state;
    static const char *const names[] = {"default", "gpt-2",  "llama-bpe",    "qwen2",          "qwen35",      "tekken", "gpt-4o",
                                        "smollm",  "falcon", "deepseek-llm", "deepseek-coder", "deepseek-v3", "kimi-k2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        pair p = pair_of(small_bpe_spec(names[i]));
        expect_linear(&p);
        pair_free(p);
    }
}

static void hostile_texts_pass_spm(void **state) {
    (void)state;
    pair p = pair_of(small_spm_spec());
    char *text = malloc(HOSTILE_LEN);
    size_t cap = HOSTILE_LEN + 16;
    int32_t *ids = malloc(cap * sizeof *ids);
    for (size_t i = 0; i + 1 < sizeof hostile / sizeof *hostile; i++) { // the last one keeps spaces after special tokens
        fill(text, hostile[i].unit, hostile[i].tail);
        expect_round_trip(&p, text, HOSTILE_LEN, ids, cap);
    }
    free(ids);
    free(text);
    pair_free(p);
}

static void only_trusted_parts_of_a_prompt_spell_control_tokens(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"));
    static const char text[] = "<|c|>he<|c|>he<|c|>";
    const kin_text_range trusted[] = {{0, 5}, {12, 18}}; // the last one ends within the token
    int32_t ids[32];
    kin_err err;
    int64_t n = kin_tokenizer_encode_prompt(p.tokenizer, text, sizeof text - 1, trusted, 2, false, ids, 32, &err);
    int n_control = 0;
    for (int64_t i = 0; i < n; i++) n_control += ids[i] == SMALL_BPE_CONTROL;
    assert_int_equal(n_control, 1);
    assert_int_equal(ids[0], SMALL_BPE_CONTROL);
    // The ranges do not affect merging.
    int32_t whole[8], parts[8];
    const kin_text_range first = {0, 1};
    int64_t n_whole = kin_tokenizer_encode(p.tokenizer, "he", 2, 0, whole, 8, &err);
    assert_int_equal(kin_tokenizer_encode_prompt(p.tokenizer, "he", 2, &first, 1, false, parts, 8, &err), n_whole);
    assert_memory_equal(parts, whole, (size_t)n_whole * sizeof *whole);
    pair_free(p);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kimi_k2_lines_match),
        cmocka_unit_test(dbrx_lines_match),
        cmocka_unit_test(small_dbrx_lines_match),
        cmocka_unit_test(small_gemma3_lines_match),
        cmocka_unit_test(characters_are_merged_by_rank_between_newlines),
        cmocka_unit_test(small_gemma4_lines_match),
        cmocka_unit_test(small_gpt_4o_lines_match),
        cmocka_unit_test(small_tekken_lines_match),
        cmocka_unit_test(deepseek_coder_lines_match),
        cmocka_unit_test(deepseek_llm_lines_match),
        cmocka_unit_test(gpt_2_lines_match),
        cmocka_unit_test(llama_bpe_lines_match),
        cmocka_unit_test(llama_spm_lines_match),
        cmocka_unit_test(phi_3_lines_match),
        cmocka_unit_test(only_trusted_parts_of_a_prompt_spell_control_tokens),
        cmocka_unit_test(spm_joins_the_best_score_first_then_the_leftmost),
        cmocka_unit_test(spm_writes_unknown_characters_and_bad_bytes_as_bytes),
        cmocka_unit_test(spm_unknown_bytes_become_unk_without_byte_tokens),
        cmocka_unit_test(spm_text_begins_with_a_space_also_after_special_tokens),
        cmocka_unit_test(spm_space_prefix_can_be_off),
        cmocka_unit_test(spm_words_one_by_one_give_what_the_whole_text_gives),
        cmocka_unit_test(bpe_joins_by_rank_then_the_leftmost),
        cmocka_unit_test(bpe_join_that_is_no_token_becomes_bytes),
        cmocka_unit_test(bpe_joins_nothing_across_pre_tokens),
        cmocka_unit_test(bpe_takes_whole_pre_tokens_only_if_merges_are_ignored),
        cmocka_unit_test(bpe_bad_bytes_stand_apart_and_survive),
        cmocka_unit_test(bpe_byte_without_a_token_is_left_out_or_unk),
        cmocka_unit_test(merger_joins_what_a_naive_search_joins),
        cmocka_unit_test(control_tokens_are_parsed_only_on_request),
        cmocka_unit_test(longest_special_token_wins_wherever_it_stands),
        cmocka_unit_test(overlapping_special_tokens_never_share_a_byte),
        cmocka_unit_test(white_space_after_special_tokens_goes_with_them_if_asked),
        cmocka_unit_test(small_buffer_gets_the_first_ids_and_the_full_count),
        cmocka_unit_test(text_beyond_the_limit_is_refused),
        cmocka_unit_test(unknown_pre_tokenizer_is_refused_and_named),
        cmocka_unit_test(threads_share_one_tokenizer),
        cmocka_unit_test(hostile_texts_pass_every_bpe_expression),
        cmocka_unit_test(hostile_texts_pass_spm),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
