// base: sizes as text, error sentences, little-endian bytes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/sentence.h"
#include "base/units.h"
#include "tests/place.h"

// Sizes

static void expect_size(const char *text, uint64_t expected) {
    uint64_t bytes = 0;
    kin_err err;
    if (kin_size_parse(text, &bytes, &err) != 0) fail_msg("%s", err.text);
    if (bytes != expected) fail_msg("%s is %llu bytes", text, (unsigned long long)bytes);
}
#define expect_size(...) FROM_TEST(expect_size(__VA_ARGS__))

static void sizes_are_read_as_people_write_them(void **state) {
    (void)state;
    expect_size("0", 0);
    expect_size("4096", 4096);
    expect_size("1K", 1024);
    expect_size("560M", 560ull << 20);
    expect_size("560m", 560ull << 20);
    expect_size("560MB", 560ull << 20);
    expect_size("560MiB", 560ull << 20);
    expect_size("1.5G", 3ull << 29);
    expect_size(".5G", 1ull << 29);
    expect_size("2T", 2ull << 40);
    expect_size("12B", 12);
    expect_size("0G", 0);
}

static void anything_else_is_refused_and_named(void **state) {
    (void)state;
    static const char *const texts[] = {"",      " 5", "-1",  "+1",  "G",        "1X",  "1 G",   "1GG",   "1GiBs",
                                        "1.2.3", ".",  "nan", "inf", "infinity", "5,5", "9e18T", "1e300", "99999999999T"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        uint64_t bytes = 7;
        kin_err err = {"nothing"};
        char quoted[64];
        if (kin_size_parse(texts[i], &bytes, &err) != KIN_FAIL) fail_msg("'%s' was taken for a size", texts[i]);
        snprintf(quoted, sizeof quoted, "'%s' is not a size", texts[i]);
        assert_non_null(strstr(err.text, quoted));
        assert_int_equal(bytes, 7);
        assert_int_equal(kin_size_parse(texts[i], &bytes, NULL), KIN_FAIL);
    }
}

static void expect_text(uint64_t bytes, const char *expected) {
    char buf[32];
    assert_string_equal(kin_size_format(bytes, buf, sizeof buf), expected);
}
#define expect_text(...) FROM_TEST(expect_text(__VA_ARGS__))

static void sizes_are_written_with_three_digits(void **state) {
    (void)state;
    expect_text(0, "0 B");
    expect_text(1023, "1023 B");
    expect_text(1024, "1.00 KiB");
    expect_text(1536, "1.50 KiB");
    expect_text(15 << 10, "15.0 KiB");
    expect_text(525ull << 20, "525 MiB");
    expect_text(3ull << 29, "1.50 GiB");
    expect_text(5ull << 40, "5.00 TiB");
    expect_text(UINT64_MAX, "16777216 TiB");
}

static void size_text_is_cut_to_the_buffer(void **state) {
    (void)state;
    char buf[4] = "xxx";
    kin_size_format(1ull << 20, buf, sizeof buf);
    assert_string_equal(buf, "1.0");
}

static void written_size_reads_back(void **state) {
    (void)state;
    for (int shift = 0; shift < 50; shift += 10) {
        char buf[32], *space;
        uint64_t bytes = 0;
        kin_size_format(7ull << shift, buf, sizeof buf);
        space = strchr(buf, ' ');
        memmove(space, space + 1, strlen(space));
        assert_int_equal(kin_size_parse(buf, &bytes, NULL), 0);
        assert_int_equal(bytes, 7ull << shift);
    }
}

// Errors

static void error_holds_its_sentence(void **state) {
    (void)state;
    kin_err err;
    assert_int_equal(kin_err_set(&err, "frame of %d MB exceeds %d MB", 9, 8), KIN_FAIL);
    assert_string_equal(err.text, "frame of 9 MB exceeds 8 MB");
}

static void prefixes_pile_up_before_the_sentence(void **state) {
    (void)state;
    kin_err err;
    kin_err_set(&err, "connection reset");
    assert_int_equal(kin_err_prefix(&err, "device %d", 3), KIN_FAIL);
    assert_int_equal(kin_err_prefix(&err, "ring"), KIN_FAIL);
    assert_string_equal(err.text, "ring: device 3: connection reset");
}

static void missing_error_is_allowed(void **state) {
    (void)state;
    assert_int_equal(kin_err_set(NULL, "lost"), KIN_FAIL);
    assert_int_equal(kin_err_prefix(NULL, "lost"), KIN_FAIL);
}

static void what_has_no_room_is_left_out_from_a_word_on(void **state) {
    (void)state;
    static const struct {
        size_t size;
        const char *whole, *expected;
    } cases[] = {
        {24, "see /a/path for the log", "see /a/path for the log"},
        {23, "see /a/path for the log", "see /a/path for ..."},
        {16, "see /a/path for the log", "see /a/path ..."},
        {15, "see /a/path for the log", "see ..."}, // does not cut inside the path
        {9, "/a/path/of/one", "/a/pa..."},
        {9, "/a/p\xc3\xbch", "/a/p\xc3\xbch"},
        {9, "/a/p\xc3\xbchl/", "/a/p..."}, // does not cut a character
        {4, "log", "log"},
        {4, "logs", "..."},
        {3, "logs", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        kin_sentence_print(text, cases[i].size, "%s", cases[i].whole);
        assert_string_equal(text, cases[i].expected);
    }
}

static void a_prefix_leaves_no_half_of_a_path(void **state) {
    (void)state;
    kin_err err;
    char words[sizeof err.text];
    for (size_t i = 0; i < sizeof words; i++) words[i] = i % 8 == 7 ? ' ' : 'x';
    words[sizeof words - 1] = '\0';
    memcpy(words + sizeof words - sizeof " see /a/long/path", " see /a/long/path", sizeof " see /a/long/path");
    kin_err_set(&err, "%s", words);
    assert_non_null(strstr(err.text, " see /a/long/path"));
    kin_err_prefix(&err, "device 3");
    assert_null(strstr(err.text, "/a/"));
    assert_string_equal(err.text + strlen(err.text) - 4, " ...");
}

static void long_sentence_is_cut_and_ends(void **state) {
    (void)state;
    kin_err err;
    char text[2 * sizeof err.text];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    kin_err_set(&err, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    kin_err_prefix(&err, "model.gguf");
    assert_string_equal(err.text, "model.gguf: ...");
    kin_err_prefix(&err, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

// Bytes

static void bytes_are_little_endian(void **state) {
    (void)state;
    static const uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 0x88};
    assert_int_equal(kin_get_u16(bytes), 0x0201);
    assert_int_equal(kin_get_u32(bytes), 0x04030201);
    assert_true(kin_get_u64(bytes) == 0x8807060504030201);
    uint8_t out[8];
    kin_put_u32(out, 0x04030201);
    assert_memory_equal(out, bytes, 4);
    kin_put_u64(out, 0x8807060504030201);
    assert_memory_equal(out, bytes, 8);
}

static void extremes_survive_at_any_alignment(void **state) {
    (void)state;
    uint8_t room[16];
    for (int at = 0; at < 8; at++) {
        kin_put_u32(room + at, UINT32_MAX);
        assert_true(kin_get_u32(room + at) == UINT32_MAX);
        assert_true(kin_get_u16(room + at) == UINT16_MAX);
        kin_put_u64(room + at, UINT64_MAX);
        assert_true(kin_get_u64(room + at) == UINT64_MAX);
        kin_put_u64(room + at, 0);
        assert_true(kin_get_u64(room + at) == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_as_people_write_them),
        cmocka_unit_test(anything_else_is_refused_and_named),
        cmocka_unit_test(sizes_are_written_with_three_digits),
        cmocka_unit_test(size_text_is_cut_to_the_buffer),
        cmocka_unit_test(written_size_reads_back),
        cmocka_unit_test(error_holds_its_sentence),
        cmocka_unit_test(prefixes_pile_up_before_the_sentence),
        cmocka_unit_test(missing_error_is_allowed),
        cmocka_unit_test(what_has_no_room_is_left_out_from_a_word_on),
        cmocka_unit_test(a_prefix_leaves_no_half_of_a_path),
        cmocka_unit_test(long_sentence_is_cut_and_ends),
        cmocka_unit_test(bytes_are_little_endian),
        cmocka_unit_test(extremes_survive_at_any_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
