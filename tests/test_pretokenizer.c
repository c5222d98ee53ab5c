// The pre-tokenizer: each set of expressions cuts where its models expect it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "pure/tokenizer/pretokenizer.h"
#include "tests/place.h"

typedef struct joined {
    char text[512];
    size_t n;
} joined;

static int join(void *user, const char *at, size_t len, kin_err *err) {
    (void)err;
    joined *joined = user;
    assert_true(len > 0);
    if (joined->n > 0) joined->text[joined->n++] = '|';
    memcpy(joined->text + joined->n, at, len);
    joined->n += len;
    joined->text[joined->n] = '\0';
    return 0;
}

// Expects `text` to be cut into `pieces`, which are separated by "|".
static void expect(const char *name, const char *text, const char *pieces) {
    joined joined = {.n = 0};
    kin_pretokenizer *pre;
    kin_err err = {""};
    kin_pretokenizer_new(&pre, name, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(kin_pretokenizer_split(pre, text, strlen(text), join, &joined, &err), 0);
    assert_string_equal(joined.text, pieces);
    kin_pretokenizer_free(pre);
}
#define expect(...) FROM_TEST(expect(__VA_ARGS__))

static void gpt_2_keeps_one_space_with_its_word(void **state) {
    (void)state;
    expect("gpt-2", "Hello  world's 123!\n\n ok", "Hello| | world|'s| 123|!|\n\n| ok");
    expect("gpt-2", "I'LL a\tb  ", "I|'|LL| a|\t|b|  ");
}

static void llama_3_cuts_numbers_by_three(void **state) {
    (void)state;
    expect("llama-bpe", "I'LL pay 12345,-\n\n  now", "I|'LL| pay| |123|45|,-\n\n| | now");
    expect("llama-bpe", "(foo) \n \nx", "(foo|)| \n \n|x");
    expect("llama-bpe", "'\xc5\xbf", "'\xc5\xbf"); // U+017F does not match s
}

static void qwen_2_cuts_numbers_by_one(void **state) {
    (void)state;
    expect("qwen2", "x 123", "x| |1|2|3");
    expect("deepseek-r1-qwen", "x 123", "x| |1|2|3");
}

static void laguna_cuts_lines_first(void **state) {
    (void)state;
    expect("qwen2", "a \n\n b", "a| \n\n| b");
    expect("laguna", "a \n\n b12", "a| |\n\n| b|1|2");
}

static void combining_marks_stay_with_letters_in_qwen_35(void **state) {
    (void)state;
    expect("qwen2", "e\xcc\x81x", "e|\xcc\x81x");
    expect("qwen35", "e\xcc\x81x", "e\xcc\x81x");
}

static void tekken_cuts_before_capitals(void **state) {
    (void)state;
    expect("tekken", "helloWorld HTTPServer it's/\n1", "hello|World| HTTPServer| it|'s|/\n|1");
    expect("gpt-4o", "helloWorld it's 1234", "hello|World| it's| |123|4");
}

static void kimi_keeps_chinese_apart_and_contractions_in_words(void **state) {
    (void)state;
    expect("kimi-k2", "ab\xe4\xbd\xa0\xe5\xa5\xbd don't", "ab|\xe4\xbd\xa0\xe5\xa5\xbd| don't");
    expect("kimi-k2", "(\xe4\xbd\xa0 1234\n\n x", "(|\xe4\xbd\xa0| |123|4|\n\n| x");
    expect("kimi-k2", "iPhone \xf0\xa0\x80\x80", "iPhone| |\xf0\xa0\x80\x80"); // U+20000
}

static void smollm_and_falcon_cut_digits_first(void **state) {
    (void)state;
    expect("smollm", "a  12b", "a|  |1|2|b"); // digits are cut first, so both blanks are at the end of their piece
    expect("falcon", "a+=1234 b", "a|+=|123|4| b");
    expect("default", "a$1234 b", "a|$|123|4| b");
}

static void deepseek_coder_cuts_lines_words_and_digits(void **state) {
    (void)state;
    expect("deepseek-coder", "if (x1)\n\ty", "if| (|x|1|)|\n|\ty");
    expect("deepseek-coder", "\xe4\xbd\xa0\xe5\xa5\xbd", "\xe4\xbd\xa0\xe5\xa5\xbd");
}

static void deepseek_llm_cuts_scripts_apart(void **state) {
    (void)state;
    expect("deepseek-llm", "ab \xe4\xbd\xa0\xe5\xa5\xbd 12  ", "ab| |\xe4\xbd\xa0\xe5\xa5\xbd| |12|  ");
    expect("deepseek-llm", "\xe1\xbd\xbd\xe2\x84\xa6\xe2\x84\xaa.",
           "\xe1\xbd\xbd\xe2\x84\xa6\xe2\x84\xaa|."); // U+1F7D, U+2126, U+212A
}

static void deepseek_3_keeps_a_sign_with_its_word(void **state) {
    (void)state;
    expect("deepseek-v3", "a.foo 1234\xe4\xbd\xa0!", "a|.foo| |123|4|\xe4\xbd\xa0|!");
}

static void white_space_is_unicodes(void **state) {
    (void)state;
    expect("gpt-2",
           "a\xc2\xa0"
           "b\xe3\x80\x80",
           "a|\xc2\xa0|b|\xe3\x80\x80");
    expect("gpt-2",
           "a\xe1\xa0\x8e"
           "b",
           "a|\xe1\xa0\x8e|b");                        // U+180E is not white space, but is a piece here in both cases
    expect("gpt-2", " \xe1\xa0\x8e", " \xe1\xa0\x8e"); // here the difference shows
}

static int stop_at_b(void *user, const char *at, size_t len, kin_err *err) {
    (void)user;
    return len == 2 && at[1] == 'b' ? kin_err_set(err, "enough") : 0;
}

static void failing_sink_stops_the_split(void **state) {
    (void)state;
    kin_pretokenizer *pre;
    kin_err err = {""};
    assert_int_equal(kin_pretokenizer_new(&pre, "gpt-2", &err), 0);
    assert_int_equal(kin_pretokenizer_split(pre, "a b c", 5, stop_at_b, NULL, &err), KIN_FAIL);
    assert_string_equal(err.text, "enough");
    kin_pretokenizer_free(pre);
}

static void names_carry_their_traits(void **state) {
    (void)state;
    kin_pretokenizer_traits traits;
    assert_true(kin_pretokenizer_find("llama-bpe", &traits));
    assert_true(traits.ignore_merges && traits.add_bos);
    assert_true(kin_pretokenizer_find("qwen2", &traits));
    assert_false(traits.ignore_merges || traits.add_bos);
    assert_false(kin_pretokenizer_find("gpt-17", &traits));
    assert_false(kin_pretokenizer_find(NULL, &traits));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_2_keeps_one_space_with_its_word),
        cmocka_unit_test(llama_3_cuts_numbers_by_three),
        cmocka_unit_test(qwen_2_cuts_numbers_by_one),
        cmocka_unit_test(laguna_cuts_lines_first),
        cmocka_unit_test(combining_marks_stay_with_letters_in_qwen_35),
        cmocka_unit_test(tekken_cuts_before_capitals),
        cmocka_unit_test(kimi_keeps_chinese_apart_and_contractions_in_words),
        cmocka_unit_test(smollm_and_falcon_cut_digits_first),
        cmocka_unit_test(deepseek_coder_cuts_lines_words_and_digits),
        cmocka_unit_test(deepseek_llm_cuts_scripts_apart),
        cmocka_unit_test(deepseek_3_keeps_a_sign_with_its_word),
        cmocka_unit_test(white_space_is_unicodes),
        cmocka_unit_test(failing_sink_stops_the_split),
        cmocka_unit_test(names_carry_their_traits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
