// Detokenizer: emits no partial characters, hides special tokens, and returns the text byte for byte. Also the UTF-8 functions
// it uses.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pure/text/utf8.h"
#include "pure/tokenizer/detok.h"
#include "testkit/small_vocab.h"
#include "tests/place.h"

#define REPLACEMENT "\xef\xbf\xbd"

typedef struct pair {
    kin_vocab *vocab;
    kin_detok *detok;
} pair;

static pair pair_of(kin_vocab_spec spec, unsigned flags) {
    pair p = {.vocab = small_vocab(spec)};
    assert_int_equal(kin_detok_new(&p.detok, p.vocab, flags, NULL), 0);
    return p;
}
#define pair_of(...) FROM_TEST(pair_of(__VA_ARGS__))

static void pair_free(pair p) {
    kin_detok_free(p.detok);
    kin_vocab_free(p.vocab);
}

static void expect_piece(kin_str piece, const char *text) {
    assert_int_equal(piece.len, strlen(text));
    assert_memory_equal(piece.at, text, piece.len);
}
#define expect_piece(...) FROM_TEST(expect_piece(__VA_ARGS__))

static void characters_wait_until_they_are_whole(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"), 0);
    expect_piece(kin_detok_push(p.detok, 0xf0), ""); // U+1F999 in four tokens
    expect_piece(kin_detok_push(p.detok, 0x9f), "");
    expect_piece(kin_detok_push(p.detok, 0xa6), "");
    expect_piece(kin_detok_push(p.detok, 0x99), "\xf0\x9f\xa6\x99");
    expect_piece(kin_detok_push(p.detok, SMALL_BPE_HELLO), "hello");
    expect_piece(kin_detok_flush(p.detok), "");
    pair_free(p);
}

static void bad_bytes_pass_as_they_are(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"), 0);
    expect_piece(kin_detok_push(p.detok, 0xff), "\xff");
    expect_piece(kin_detok_push(p.detok, 0xe2), "");
    expect_piece(kin_detok_push(p.detok, 0x96), "");
    expect_piece(kin_detok_push(p.detok, SMALL_BPE_HE), "\xe2\x96he");
    expect_piece(kin_detok_push(p.detok, 0xe2), "");
    expect_piece(kin_detok_push(p.detok, 0xc3), "\xe2");
    expect_piece(kin_detok_flush(p.detok), "\xc3");
    expect_piece(kin_detok_flush(p.detok), "");
    pair_free(p);
}

static void bad_bytes_are_replaced_if_asked(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"), KIN_DETOK_REPLACE);
    expect_piece(kin_detok_push(p.detok, 0xff), REPLACEMENT);
    expect_piece(kin_detok_push(p.detok, 0xe2), "");
    expect_piece(kin_detok_push(p.detok, 0x96), "");
    expect_piece(kin_detok_push(p.detok, SMALL_BPE_HE), REPLACEMENT "he"); // one replacement for the whole truncated sequence
    expect_piece(kin_detok_push(p.detok, 0xe0), "");
    expect_piece(kin_detok_push(p.detok, 0x80), REPLACEMENT REPLACEMENT); // overlong: 0x80 never follows 0xe0
    expect_piece(kin_detok_push(p.detok, 0xf0), "");
    expect_piece(kin_detok_push(p.detok, 0x9f), "");
    expect_piece(kin_detok_flush(p.detok), REPLACEMENT);
    pair_free(p);
}

static void control_and_unknown_tokens_are_hidden_unless_asked_for(void **state) {
    (void)state;
    pair p = pair_of(small_spm_spec(), 0);
    expect_piece(kin_detok_push(p.detok, 0), "");
    expect_piece(kin_detok_push(p.detok, SMALL_SPM_CONTROL), "");
    expect_piece(kin_detok_push(p.detok, SMALL_SPM_USER), "<|u|>");
    pair_free(p);
    p = pair_of(small_spm_spec(), KIN_DETOK_SPECIAL);
    expect_piece(kin_detok_push(p.detok, 0), "<unk>");
    expect_piece(kin_detok_push(p.detok, SMALL_SPM_CONTROL), "<|c|>");
    pair_free(p);
}

static void first_space_of_a_text_is_the_encoders(void **state) {
    (void)state;
    pair p = pair_of(small_spm_spec(), KIN_DETOK_TEXT_START);
    expect_piece(kin_detok_push(p.detok, 1), ""); // <s> is hidden and does not count
    expect_piece(kin_detok_push(p.detok, SMALL_SPM_SPACE_A), "a");
    expect_piece(kin_detok_push(p.detok, SMALL_SPM_SPACE_A), " a");
    kin_detok_reset(p.detok);
    expect_piece(kin_detok_push(p.detok, SMALL_SPM_SPACES), " ");
    kin_detok_reset(p.detok);
    expect_piece(kin_detok_push(p.detok, SMALL_SPM_A), "a"); // no leading space here, and none is removed later either
    expect_piece(kin_detok_push(p.detok, SMALL_SPM_SPACE), " ");
    pair_free(p);
}

static void continuation_keeps_its_space(void **state) {
    (void)state;
    pair p = pair_of(small_spm_spec(), 0);
    expect_piece(kin_detok_push(p.detok, SMALL_SPM_SPACE_A), " a");
    pair_free(p);
    p = pair_of(small_bpe_spec("gpt-2"), KIN_DETOK_TEXT_START); // BPE adds no space, so none is removed
    expect_piece(kin_detok_push(p.detok, SMALL_BPE_SPACE_W), " w");
    pair_free(p);
}

static void reset_forgets_a_held_beginning(void **state) {
    (void)state;
    pair p = pair_of(small_bpe_spec("gpt-2"), 0);
    expect_piece(kin_detok_push(p.detok, 0xe2), "");
    kin_detok_reset(p.detok);
    expect_piece(kin_detok_push(p.detok, 'a'), "a");
    expect_piece(kin_detok_flush(p.detok), "");
    pair_free(p);
}

// ---- UTF-8

static void every_character_is_written_and_read_back(void **state) {
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;
        char text[KIN_UTF8_MAX];
        int len = kin_utf8_put(text, c);
        assert_int_equal(kin_utf8_len(text, (size_t)len), len);
        assert_int_equal(kin_utf8_get(text, len), c);
        for (int n = 0; n < len; n++) assert_int_equal(kin_utf8_len(text, (size_t)n), 0);
    }
}

static void what_is_not_utf8_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xc3(",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xe2\x96(",
        "\xe2(",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "\xf0\x9f\xa6(",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(kin_utf8_len(bad[i], strlen(bad[i])), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_wait_until_they_are_whole),
        cmocka_unit_test(bad_bytes_pass_as_they_are),
        cmocka_unit_test(bad_bytes_are_replaced_if_asked),
        cmocka_unit_test(control_and_unknown_tokens_are_hidden_unless_asked_for),
        cmocka_unit_test(first_space_of_a_text_is_the_encoders),
        cmocka_unit_test(continuation_keeps_its_space),
        cmocka_unit_test(reset_forgets_a_held_beginning),
        cmocka_unit_test(every_character_is_written_and_read_back),
        cmocka_unit_test(what_is_not_utf8_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
