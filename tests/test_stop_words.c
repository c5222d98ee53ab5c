// Stop words: found however the text is cut, without emitting any part of them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pure/chat/stop_words.h"
#include "tests/place.h"

enum { MAX_TEXT = 4096 };

static kin_str str(const char *text) {
    return (kin_str){text, strlen(text)};
}

typedef struct result {
    char before[MAX_TEXT]; // the emitted text
    size_t n_before;
    int found;
} result;

static void add(result *r, kin_str text) {
    assert_true(r->n_before + text.len <= MAX_TEXT);
    memcpy(r->before + r->n_before, text.at, text.len);
    r->n_before += text.len;
}

static kin_stop_words *open_words(const char *const *words) {
    kin_str all[KIN_STOP_WORDS_MAX];
    size_t n = 0;
    kin_stop_words *stop;
    for (; words[n]; n++) all[n] = str(words[n]);
    assert_int_equal(kin_stop_words_new(&stop, all, n, NULL), 0);
    return stop;
}
#define open_words(...) FROM_TEST(open_words(__VA_ARGS__))

// Searches the text in pieces of `step` bytes.
static result search(const char *const *words, const char *text, size_t step) {
    kin_stop_words *stop = open_words(words);
    result r = {.found = -1};
    for (size_t at = 0, len = strlen(text); at < len && r.found < 0; at += step) {
        kin_str before;
        size_t n = len - at < step ? len - at : step;
        assert_int_equal(kin_stop_words_push(stop, text + at, n, &before, &r.found), 0);
        add(&r, before);
    }
    add(&r, kin_stop_words_flush(stop));
    kin_stop_words_free(stop);
    return r;
}
#define search(...) FROM_TEST(search(__VA_ARGS__))

static void expect(const char *const *words, const char *text, int found, const char *before) {
    for (size_t step = 1; step <= strlen(text) + 1; step++) {
        result r = search(words, text, step);
        assert_int_equal(r.found, found);
        assert_int_equal(r.n_before, strlen(before));
        assert_memory_equal(r.before, before, r.n_before);
    }
}
#define expect(...) FROM_TEST(expect(__VA_ARGS__))

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void a_word_is_found_wherever_the_text_is_cut(void **state) {
    (void)state;
    expect(WORDS("\n\nUser:"), "Hello.\n\nUser: you", 0, "Hello.");
    expect(WORDS("x", "END"), "abc END x", 1, "abc ");
    expect(WORDS("stop"), "stop", 0, "");
    expect(WORDS("\xe2\x82\xac"), "5 \xe2\x82\xac, 6", 0, "5 ");
}

static void a_text_without_one_comes_out_whole(void **state) {
    (void)state;
    expect(WORDS("\n\nUser:"), "Hello.\n\nUse", -1, "Hello.\n\nUse");
    expect(WORDS("abc", "bcd"), "ab bc abd", -1, "ab bc abd");
    expect((const char *const[]){NULL}, "anything", -1, "anything");
}

static void the_one_that_ends_first_is_found_and_the_longest_of_those(void **state) {
    (void)state;
    expect(WORDS("abcd", "bc"), "xabcd", 1, "xa");
    expect(WORDS("c", "abc", "bc"), "xabcd", 1, "x");
}

static void a_beginning_within_a_beginning_is_not_lost(void **state) {
    (void)state;
    expect(WORDS("aab"), "aaaab", 0, "aa");
    expect(WORDS("abababc"), "ababababcx", 0, "ab");
    expect(WORDS("ab:abc", "b:abd"), "ab:abd", 1, "a");
}

// Only text that may become a stop word is held back.
static void no_more_is_held_back_than_must_be(void **state) {
    (void)state;
    kin_stop_words *stop = open_words(WORDS("</s>", "<end>"));
    kin_str before;
    int found;
    assert_int_equal(kin_stop_words_push(stop, "a < b", 5, &before, &found), 0);
    assert_int_equal(before.len, 5);
    assert_int_equal(kin_stop_words_push(stop, " <", 2, &before, &found), 0);
    assert_int_equal(before.len, 1);
    assert_int_equal(kin_stop_words_push(stop, "e", 1, &before, &found), 0);
    assert_int_equal(before.len, 0);
    assert_int_equal(kin_stop_words_push(stop, "x", 1, &before, &found), 0);
    assert_int_equal(before.len, 3);
    assert_int_equal(kin_stop_words_flush(stop).len, 0);
    kin_stop_words_free(stop);
}

static void limits_are_told_in_a_sentence(void **state) {
    (void)state;
    static char long_word[KIN_STOP_WORDS_MAX_BYTES + 1];
    kin_str words[KIN_STOP_WORDS_MAX + 1];
    kin_stop_words *stop;
    kin_err err;
    memset(long_word, 'x', sizeof long_word);
    for (int i = 0; i <= KIN_STOP_WORDS_MAX; i++) words[i] = (kin_str){long_word, KIN_STOP_WORDS_MAX_BYTES};
    assert_int_equal(kin_stop_words_new(&stop, words, KIN_STOP_WORDS_MAX, &err), 0);
    kin_stop_words_free(stop);
    assert_int_equal(kin_stop_words_new(&stop, words, KIN_STOP_WORDS_MAX + 1, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "the limit is 64"));
    words[1].len = 0;
    assert_int_equal(kin_stop_words_new(&stop, words, 2, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "string 1 is empty"));
    words[0].len = sizeof long_word;
    assert_int_equal(kin_stop_words_new(&stop, words, 1, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "the limit is 1024"));
    assert_null(stop);
}

// The specification: for each position, the words that end there.
static int plain_search(const char *const *words, const char *text, size_t *n_before) {
    for (size_t end = 1; end <= strlen(text); end++) {
        int found = -1;
        for (int i = 0; words[i]; i++) {
            size_t len = strlen(words[i]);
            if (len > end || memcmp(text + end - len, words[i], len) != 0) continue;
            if (found < 0 || len > strlen(words[found])) found = i;
        }
        if (found < 0) continue;
        *n_before = end - strlen(words[found]);
        return found;
    }
    *n_before = strlen(text);
    return -1;
}

static void random_texts_give_what_a_plain_search_gives(void **state) {
    (void)state;
    kin_rng rng;
    kin_rng_seed(&rng, 7);
    int n_found = 0;
    for (int round = 0; round < 3000; round++) {
        char words[3][8], text[41];
        const char *all[4] = {words[0], words[1], words[2], NULL};
        for (int i = 0; i < 3; i++) {
            size_t len = 2 + kin_rng_u64(&rng) % 5;
            for (size_t k = 0; k < len; k++) words[i][k] = (char)('a' + kin_rng_u64(&rng) % 3);
            words[i][len] = 0;
        }
        for (int i = 0; i < 40; i++) text[i] = (char)('a' + kin_rng_u64(&rng) % 3);
        text[40] = 0;
        size_t n_before;
        int found = plain_search(all, text, &n_before);
        result r = search(all, text, 1 + kin_rng_u64(&rng) % 7);
        assert_int_equal(r.found, found);
        assert_int_equal(r.n_before, n_before);
        assert_memory_equal(r.before, text, n_before);
        n_found += found >= 0;
    }
    assert_in_range(n_found, 1000, 2999);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_is_found_wherever_the_text_is_cut),
        cmocka_unit_test(a_text_without_one_comes_out_whole),
        cmocka_unit_test(the_one_that_ends_first_is_found_and_the_longest_of_those),
        cmocka_unit_test(a_beginning_within_a_beginning_is_not_lost),
        cmocka_unit_test(no_more_is_held_back_than_must_be),
        cmocka_unit_test(limits_are_told_in_a_sentence),
        cmocka_unit_test(random_texts_give_what_a_plain_search_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
