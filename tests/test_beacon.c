// Discovery's datagrams (pure/proto/beacon.h). The authenticator here is a toy: the tests are about the layout.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/hash.h"
#include "pure/proto/beacon.h"
#include "tests/place.h"

static int toy_sign(void *user, const uint8_t *bytes, size_t n, uint8_t tag[KIN_BEACON_TAG]) {
    uint64_t key = *(const uint64_t *)user;
    for (int half = 0; half < 2; half++) {
        uint64_t h = kin_hash64(bytes, n, key + (uint64_t)half);
        for (int i = 0; i < 8; i++) tag[8 * half + i] = (uint8_t)(h >> (8 * i));
    }
    return 0;
}

static int failing_sign(void *user, const uint8_t *bytes, size_t n, uint8_t tag[KIN_BEACON_TAG]) {
    (void)user, (void)bytes, (void)n, (void)tag;
    return KIN_FAIL;
}

static int zero_sign(void *user, const uint8_t *bytes, size_t n, uint8_t tag[KIN_BEACON_TAG]) {
    (void)user, (void)bytes, (void)n;
    memset(tag, 0, KIN_BEACON_TAG);
    return 0;
}

static uint64_t key = 42;

static kin_beacon an_answer(void) {
    kin_beacon b = {.kind = KIN_BEACON_ANNOUNCE, .port = 7577, .name = "tower", .features = 0x01020304};
    for (int i = 0; i < 16; i++) {
        b.nonce[i] = (uint8_t)(0x10 + i);
        b.id.bytes[i] = (uint8_t)(0xa0 + i);
    }
    return b;
}

static void encode(uint8_t bytes[KIN_BEACON_BYTES], const kin_beacon *b) {
    assert_int_equal(kin_beacon_encode(bytes, b, toy_sign, &key, NULL), 0);
}
#define encode(...) FROM_TEST(encode(__VA_ARGS__))

// Signs the changed bytes again, as a sender with the key could, and expects a refusal.
static void expect_refused(uint8_t bytes[KIN_BEACON_BYTES], const char *words) {
    kin_beacon b;
    kin_err err = {""};
    toy_sign(&key, bytes, KIN_BEACON_SIGNED, bytes + KIN_BEACON_SIGNED);
    assert_int_equal(kin_beacon_decode(bytes, KIN_BEACON_BYTES, &b, toy_sign, &key, &err), KIN_FAIL);
    if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

// ---- claims

static void an_answer_has_these_bytes(void **state) {
    (void)state;
    static const uint8_t golden[44] = {
        'K',  'I',  'N',  'B',  1,    2,    0x99, 0x1d,                                                 // header, port 7577
        0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, // nonce
        0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf, // id
        't',  'o',  'w',  'e',
    };
    uint8_t bytes[KIN_BEACON_BYTES];
    kin_beacon b = an_answer();
    assert_int_equal(kin_beacon_encode(bytes, &b, zero_sign, NULL, NULL), 0);
    assert_memory_equal(bytes, golden, sizeof golden);
    assert_memory_equal(bytes + 44, "r\0\0", 3);
    for (int i = 45; i < 104; i++) assert_int_equal(bytes[i], 0);
    assert_memory_equal(bytes + 104, "\x04\x03\x02\x01\0\0\0\0", 8);
    for (int i = 112; i < 128; i++) assert_int_equal(bytes[i], 0);
}

static void a_question_has_these_bytes(void **state) {
    (void)state;
    uint8_t bytes[KIN_BEACON_BYTES];
    kin_beacon b = {.kind = KIN_BEACON_SEARCH, .nonce = {1, 2, 3}};
    assert_int_equal(kin_beacon_encode(bytes, &b, zero_sign, NULL, NULL), 0);
    assert_memory_equal(bytes, "KINB\1\1\0\0\1\2\3", 11);
    for (int i = 11; i < 128; i++) assert_int_equal(bytes[i], 0); // a search does not identify its sender
}

static void what_was_encoded_is_decoded(void **state) {
    (void)state;
    uint8_t bytes[KIN_BEACON_BYTES];
    kin_beacon in = an_answer(), out;
    memset(in.name, 'n', sizeof in.name - 1); // the longest name
    encode(bytes, &in);
    assert_int_equal(kin_beacon_decode(bytes, sizeof bytes, &out, toy_sign, &key, NULL), 0);
    assert_int_equal(out.kind, in.kind);
    assert_int_equal(out.port, in.port);
    assert_int_equal(out.features, in.features);
    assert_string_equal(out.name, in.name);
    assert_memory_equal(&out.id, &in.id, sizeof in.id);
    assert_true(kin_beacon_answers(&out, in.nonce));
}

static void an_answer_belongs_to_one_question(void **state) {
    (void)state;
    kin_beacon answer = an_answer(), question = {.kind = KIN_BEACON_SEARCH};
    uint8_t other[KIN_BEACON_NONCE];
    memcpy(other, answer.nonce, sizeof other);
    other[15] ^= 1;
    assert_true(kin_beacon_answers(&answer, answer.nonce));
    assert_false(kin_beacon_answers(&answer, other));
    assert_false(kin_beacon_answers(&question, question.nonce));
}

static void every_flipped_bit_is_noticed(void **state) {
    (void)state;
    uint8_t bytes[KIN_BEACON_BYTES];
    kin_beacon b = an_answer(), out;
    encode(bytes, &b);
    for (int bit = 0; bit < KIN_BEACON_BYTES * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(kin_beacon_decode(bytes, sizeof bytes, &out, toy_sign, &key, NULL), KIN_FAIL);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(kin_beacon_decode(bytes, sizeof bytes, &out, toy_sign, &key, NULL), 0);
}

static void every_other_length_is_refused(void **state) {
    (void)state;
    uint8_t bytes[KIN_BEACON_BYTES + 1] = {0};
    kin_beacon b = an_answer(), out;
    kin_err err = {""};
    encode(bytes, &b);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        if (n == KIN_BEACON_BYTES) continue;
        assert_int_equal(kin_beacon_decode(bytes, n, &out, toy_sign, &key, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "bytes, but 128 are expected"));
    }
}

static void another_key_is_said_as_such(void **state) {
    (void)state;
    uint8_t bytes[KIN_BEACON_BYTES];
    kin_beacon b = an_answer(), out;
    kin_err err = {""};
    uint64_t other = 43;
    encode(bytes, &b);
    assert_int_equal(kin_beacon_decode(bytes, sizeof bytes, &out, toy_sign, &other, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "another key"));
}

static void strangers_and_other_versions_are_told_apart(void **state) {
    (void)state;
    uint8_t bytes[KIN_BEACON_BYTES];
    kin_beacon b = an_answer();
    encode(bytes, &b);
    bytes[0] = 'X';
    expect_refused(bytes, "not a kin datagram");
    bytes[0] = 'K';
    bytes[4] = 2;
    expect_refused(bytes, "version 2, but 1 is expected");
}

static void a_holder_of_the_key_can_still_lie_and_is_checked(void **state) {
    (void)state;
    uint8_t bytes[KIN_BEACON_BYTES];
    kin_beacon b = an_answer();
    static const struct {
        int at;
        uint8_t value;
        const char *words;
    } lies[] = {
        {5, 0, "kind"},
        {5, 3, "kind"},
        {5, KIN_BEACON_SEARCH, "fields of an answer"},
        {40, '\n', "control characters"},
        {40, 0x80, "control characters"},
        {40, 0, "not padded with zeros"},
        {103, 'x', "not padded with zeros"},
        {108, 1, "reserved"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        encode(bytes, &b);
        bytes[lies[i].at] = lies[i].value;
        expect_refused(bytes, lies[i].words);
    }
    encode(bytes, &b);
    memset(bytes + 40, 'x', 64);
    expect_refused(bytes, "not padded with zeros");
    encode(bytes, &b);
    memset(bytes + 6, 0, 2);
    expect_refused(bytes, "without a port");
}

static void a_name_is_made_clean_and_cut_between_characters(void **state) {
    (void)state;
    uint8_t bytes[KIN_BEACON_BYTES];
    kin_beacon b = an_answer(), out;
    strcpy(b.name, "to\x1bwer\n");
    encode(bytes, &b);
    assert_int_equal(kin_beacon_decode(bytes, sizeof bytes, &out, toy_sign, &key, NULL), 0);
    assert_string_equal(out.name, "to?wer?");
}

static void without_an_authenticator_nothing_works(void **state) {
    (void)state;
    uint8_t bytes[KIN_BEACON_BYTES];
    kin_beacon b = an_answer(), out;
    kin_err err = {""};
    assert_int_equal(kin_beacon_encode(bytes, &b, failing_sign, NULL, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "cannot compute"));
    encode(bytes, &b);
    assert_int_equal(kin_beacon_decode(bytes, sizeof bytes, &out, failing_sign, NULL, &err), KIN_FAIL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_has_these_bytes),
        cmocka_unit_test(a_question_has_these_bytes),
        cmocka_unit_test(what_was_encoded_is_decoded),
        cmocka_unit_test(an_answer_belongs_to_one_question),
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(every_other_length_is_refused),
        cmocka_unit_test(another_key_is_said_as_such),
        cmocka_unit_test(strangers_and_other_versions_are_told_apart),
        cmocka_unit_test(a_holder_of_the_key_can_still_lie_and_is_checked),
        cmocka_unit_test(a_name_is_made_clean_and_cut_between_characters),
        cmocka_unit_test(without_an_authenticator_nothing_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
