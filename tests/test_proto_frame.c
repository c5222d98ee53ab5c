// Parts of the wire format below messages (pure/proto): frame headers, labels, activations.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "pure/proto/activations.h"
#include "pure/proto/frame.h"
#include "pure/proto/label.h"
#include "tests/place.h"

// Frames

static const kin_frame ping = {KIN_FRAME_PING, 0, 8};

static void a_header_has_its_golden_bytes(void **state) {
    (void)state;
    static const uint8_t expected[KIN_FRAME_HEADER] = {'K',  'I',  'N',  '1',  5,    11,   0,    0,
                                                       0x04, 0x03, 0x02, 0x01, 0x00, 0x00, 0x00, 0x10};
    uint8_t got[KIN_FRAME_HEADER];
    kin_frame_encode(got, &(kin_frame){KIN_FRAME_STEP, 0x01020304, 256u << 20});
    assert_memory_equal(got, expected, sizeof got);
}

static void every_header_survives_the_round_trip(void **state) {
    (void)state;
    for (int type = 1; type <= KIN_FRAME_N_TYPES; type++) {
        uint8_t bytes[KIN_FRAME_HEADER];
        kin_frame frame, sent = {type, 0x80000001, kin_frame_cap(type)};
        kin_frame_encode(bytes, &sent);
        assert_int_equal(kin_frame_decode(bytes, sizeof bytes, &frame, NULL), KIN_FRAME_HEADER);
        assert_true(frame.type == sent.type && frame.epoch == sent.epoch && frame.length == sent.length);
    }
}

static void the_beginning_of_a_header_needs_more(void **state) {
    (void)state;
    uint8_t bytes[KIN_FRAME_HEADER];
    kin_frame frame;
    kin_frame_encode(bytes, &ping);
    assert_int_equal(kin_frame_decode(NULL, 0, &frame, NULL), 0);
    for (size_t n = 1; n < sizeof bytes; n++) assert_int_equal(kin_frame_decode(bytes, n, &frame, NULL), 0);
}

static void expect_malformed(const uint8_t *bytes, size_t n, const char *sentence) {
    kin_frame frame;
    kin_err err = {""};
    assert_int_equal(kin_frame_decode(bytes, n, &frame, &err), KIN_FAIL);
    assert_string_equal(err.text, sentence);
}
#define expect_malformed(...) FROM_TEST(expect_malformed(__VA_ARGS__))

static void a_stray_byte_is_malformed_at_once(void **state) {
    (void)state;
    uint8_t bytes[KIN_FRAME_HEADER];
    for (size_t i = 0; i < 4; i++) {
        kin_frame_encode(bytes, &ping);
        bytes[i] ^= 0x20;
        for (size_t n = i + 1; n <= sizeof bytes; n++) expect_malformed(bytes, n, "the peer does not speak kin's protocol");
    }
    expect_malformed((const uint8_t *)"G", 1, "the peer does not speak kin's protocol");
}

static void another_version_is_named(void **state) {
    (void)state;
    uint8_t bytes[KIN_FRAME_HEADER];
    kin_frame_encode(bytes, &ping);
    bytes[4] = 4;
    expect_malformed(bytes, 5, "the peer uses frame version 4, this program version 5; update kin on the other machine");
    bytes[4] = 6;
    expect_malformed(bytes, sizeof bytes, "the peer uses frame version 6, this program version 5; update kin on this machine");
}

static void an_unknown_type_is_malformed(void **state) {
    (void)state;
    uint8_t bytes[KIN_FRAME_HEADER];
    kin_frame_encode(bytes, &ping);
    bytes[5] = 0;
    expect_malformed(bytes, 6, "unknown type of frame: 0");
    bytes[5] = KIN_FRAME_N_TYPES + 1;
    expect_malformed(bytes, 6, "unknown type of frame: 35");
}

static void bytes_that_must_be_zero_are(void **state) {
    (void)state;
    uint8_t bytes[KIN_FRAME_HEADER];
    for (int i = 6; i < 8; i++) {
        kin_frame_encode(bytes, &ping);
        bytes[i] = 1;
        expect_malformed(bytes, sizeof bytes, "PING: bytes 6 and 7 of the header are not zero");
    }
}

static void frames_of_a_plan_name_its_epoch(void **state) {
    (void)state;
    int n_refused = 0;
    for (int type = 1; type <= KIN_FRAME_N_TYPES; type++) {
        uint8_t bytes[KIN_FRAME_HEADER];
        kin_frame frame;
        kin_frame_encode(bytes, &(kin_frame){type, 1, 0});
        kin_put_u32(bytes + 8, 0);
        n_refused += kin_frame_decode(bytes, sizeof bytes, &frame, NULL) == KIN_FAIL;
    }
    assert_int_equal(n_refused, 7); // PLAN, READY, STEP, END, NEXT, PAGES, SUM
    uint8_t step[KIN_FRAME_HEADER];
    kin_frame_encode(step, &(kin_frame){KIN_FRAME_STEP, 1, 0});
    kin_put_u32(step + 8, 0);
    expect_malformed(step, sizeof step, "STEP: the frame has epoch 0, which belongs to no plan");
}

static void a_payload_beyond_its_cap_is_refused_by_the_header(void **state) {
    (void)state;
    for (int type = 1; type <= KIN_FRAME_N_TYPES; type++) {
        uint8_t bytes[KIN_FRAME_HEADER];
        kin_frame frame;
        kin_frame_encode(bytes, &(kin_frame){type, 1, 0});
        kin_put_u32(bytes + 12, kin_frame_cap(type) + 1);
        assert_int_equal(kin_frame_decode(bytes, sizeof bytes, &frame, NULL), KIN_FAIL);
        if (type == KIN_FRAME_OPEN) expect_malformed(bytes, sizeof bytes, "OPEN: payload of 65537 bytes exceeds 65536");
    }
}

static void frames_belong_to_links(void **state) {
    (void)state;
    for (int role = 0; role < KIN_PROTO_N_ROLES; role++) {
        assert_true(kin_frame_belongs(KIN_FRAME_OPEN, role));
        assert_int_equal(kin_frame_belongs(KIN_FRAME_PLAN, role), role == KIN_PROTO_CONTROL);
        assert_int_equal(kin_frame_belongs(KIN_FRAME_STEP, role), role == KIN_PROTO_RING || role == KIN_PROTO_BACK);
        assert_int_equal(kin_frame_belongs(KIN_FRAME_GET, role), role == KIN_PROTO_FETCH);
        assert_int_equal(kin_frame_belongs(KIN_FRAME_PROFILE, role), role == KIN_PROTO_CONTROL);
        assert_int_equal(kin_frame_belongs(KIN_FRAME_ECHO, role), role == KIN_PROTO_PROBE);
        assert_int_equal(kin_frame_belongs(KIN_FRAME_REPORT, role), role == KIN_PROTO_OBSERVE);
        assert_int_equal(kin_frame_belongs(KIN_FRAME_STATUS_WANTED, role),
                         role == KIN_PROTO_OBSERVE || role == KIN_PROTO_CONTROL);
    }
}

// Labels

static void any_text_becomes_a_clean_label(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t most;
        const char *expected;
    } cases[] = {
        {"", 8, ""},
        {"nuc", 8, "nuc"},
        {"nuc", 3, "nuc"},
        {"nuc", 2, "nu"},
        {"nuc", 0, ""},
        {"K\xc3\xbc", 3, "K\xc3\xbc"},
        {"K\xc3\xbc", 2, "K"}, // does not cut a character
        {"a\nb\x1b[31m\x7f", 16, "a?b?[31m?"},
        {"a\xc2\x85z", 16, "a??z"}, // a C1 control character: each of its bytes is replaced
        {"\xff\xc3", 16, "??"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char label[32];
        assert_string_equal(kin_label_set(label, cases[i].most, cases[i].text), cases[i].expected);
        assert_true(kin_label_is_clean(label, strlen(label)));
    }
}

static void a_sentence_that_is_too_long_ends_with_a_word_and_dots(void **state) {
    (void)state;
    char label[32];
    assert_string_equal(kin_label_set_sentence(label, 18, "see /a/path\nor ask"), "see /a/path?or ask");
    assert_string_equal(kin_label_set_sentence(label, 18, "see /a/path or asks"), "see /a/path or ...");
    assert_string_equal(kin_label_set_sentence(label, 17, "see /a/path or asks"), "see /a/path ...");
    assert_string_equal(kin_label_set_sentence(label, 13, "see /a/path or ask"), "see ...");
    assert_string_equal(kin_label_set_sentence(label, 2, "see"), "");
}

static void an_unclean_label_is_told(void **state) {
    (void)state;
    assert_true(kin_label_is_clean("", 0));
    assert_true(kin_label_is_clean("K\xc3\xbc"
                                   "che 1",
                                   8));
    assert_false(kin_label_is_clean("a\0b", 3));
    assert_false(kin_label_is_clean("\t", 1));
    assert_false(kin_label_is_clean("\xed\xa0\x80", 3)); // a surrogate
    assert_false(kin_label_is_clean("\xc3", 1));
}

// Activations

static uint32_t bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

// Decodes an f16 by its definition.
static double value_of_f16(uint16_t h) {
    int exponent = h >> 10 & 31, fraction = h & 0x3ff;
    double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -value : value;
}

static void every_f16_has_its_value(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint32_t magnitude = h & 0x7fff, bits = kin_f16_to_f32((uint16_t)h);
        if (magnitude < 0x7c00)
            assert_true(bits == bits_of((float)value_of_f16((uint16_t)h)));
        else if (magnitude == 0x7c00)
            assert_true(isinf(float_of(bits)) && bits >> 31 == h >> 15);
        else
            assert_true(isnan(float_of(bits)));
    }
}

static void every_f16_survives_f32(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) assert_int_equal(kin_f16_from_f32(kin_f16_to_f32((uint16_t)h)), h);
}

// A value between two neighbours is rounded to the nearer one, and a value in the middle to the even one.
static void f32_is_rounded_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
        for (uint32_t h = 0; h < 0x7c00; h++) {
            double low = fabs(value_of_f16((uint16_t)h)), high = h == 0x7bff ? 65536 : value_of_f16((uint16_t)(h + 1));
            uint32_t middle = bits_of((float)((low + high) / 2)) | sign << 16; // exact
            assert_int_equal(kin_f16_from_f32(middle), sign | (h + (h & 1)));
            assert_int_equal(kin_f16_from_f32(middle - 1), sign | h);
            assert_int_equal(kin_f16_from_f32(middle + 1), sign | (h + 1));
        }
    }
}

static void what_no_f16_holds_becomes_zero_or_infinity(void **state) {
    (void)state;
    assert_int_equal(kin_f16_from_f32(bits_of(1e-30f)), 0);
    assert_int_equal(kin_f16_from_f32(1), 0);
    assert_int_equal(kin_f16_from_f32(bits_of(-1e-30f)), 0x8000);
    assert_int_equal(kin_f16_from_f32(bits_of(1e30f)), 0x7c00);
    assert_int_equal(kin_f16_from_f32(bits_of(-INFINITY)), 0xfc00);
}

static void a_nan_stays_a_nan(void **state) {
    (void)state;
    static const uint32_t fractions[] = {1, 0x1fff, 0x2000, 0x400000, 0x7fffff};
    for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++) {
        assert_true((kin_f16_from_f32(0x7f800000 | fractions[i]) & 0x7fff) > 0x7c00);
        assert_true((kin_f16_from_f32(0xff800000 | fractions[i]) & 0x7fff) > 0x7c00);
    }
}

static void rows_travel_in_both_types(void **state) {
    (void)state;
    static const float x[4] = {1, -2.5f, 65504, 1.0009765625f};
    static const uint8_t as_f32[8] = {0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0}, as_f16[8] = {0, 0x3c, 0, 0xc1, 0xff, 0x7b, 0x01, 0x3c};
    uint8_t wire[1 + 16];
    float back[4];
    for (int type = KIN_ACTIVATION_F32; type <= KIN_ACTIVATION_F16; type++) {
        kin_activations_encode(wire + 1, x, 4, type);
        assert_memory_equal(wire + 1, type == KIN_ACTIVATION_F16 ? as_f16 : as_f32, 8);
        kin_activations_decode(back, wire + 1, 4, type);
        assert_memory_equal(back, x, sizeof x);
    }
    kin_activations_encode(NULL, NULL, 0, KIN_ACTIVATION_F32);
    kin_activations_decode(NULL, NULL, 0, KIN_ACTIVATION_F32);
}

static void blocks_of_q8_have_their_bytes(void **state) {
    (void)state;
    float x[64] = {-254, 1, 2, 3, 0.9f, -1.1f, 254}, back[64];
    uint8_t wire[1 + 2 * KIN_ACTIVATION_Q8_BYTES];
    x[33] = 1.5f * 127;
    x[34] = -0.7f;
    x[35] = 0.75f;
    static const uint8_t first[9] = {0x00, 0x40, 0x81, 1, 1, 2, 0, 0xff, 0x7f}; // a scale of 2; halves are rounded away from 0
    static const uint8_t second[6] = {0xc0, 0x3f, 0, 0x7f, 0, 1};
    kin_activations_encode(wire + 1, x, 64, KIN_ACTIVATION_Q8);
    assert_int_equal(kin_activations_bytes(64, KIN_ACTIVATION_Q8), 2 * KIN_ACTIVATION_Q8_BYTES);
    assert_memory_equal(wire + 1, first, sizeof first);
    assert_memory_equal(wire + 1 + KIN_ACTIVATION_Q8_BYTES, second, sizeof second);
    kin_activations_decode(back, wire + 1, 64, KIN_ACTIVATION_Q8);
    assert_true(back[0] == -254 && back[2] == 2 && back[4] == 0 && back[5] == -2 && back[33] == 190.5f && back[35] == 1.5f);
}

static void q8_is_near_and_keeps_its_bytes_when_it_is_sent_on(void **state) {
    (void)state;
    enum { N = 32 };
    uint8_t wire[KIN_ACTIVATION_Q8_BYTES], again[KIN_ACTIVATION_Q8_BYTES];
    float x[N], back[N];
    kin_rng rng;
    kin_rng_seed(&rng, 3);
    for (int k = 0; k < 20000; k++) {
        float size = ldexpf(1 + (float)kin_rng_unit(&rng), k % 250 - 125), most = 0;
        for (int i = 0; i < N; i++) x[i] = ((float)kin_rng_unit(&rng) - 0.5f) * size;
        for (int i = 0; i < N; i++) most = fmaxf(most, fabsf(x[i]));
        kin_activations_encode(wire, x, N, KIN_ACTIVATION_Q8);
        kin_activations_decode(back, wire, N, KIN_ACTIVATION_Q8);
        for (int i = 0; i < N && most > 0x1p-118f; i++) assert_true(fabsf(back[i] - x[i]) <= most / 127 * 0.504f);
        for (int i = 0; i < N; i++) assert_true(fabsf(back[i] - x[i]) <= most);
        kin_activations_encode(again, back, N, KIN_ACTIVATION_Q8);
        assert_memory_equal(again, wire, sizeof wire);
    }
}

static void what_q8_cannot_hold_is_nan_or_zero(void **state) {
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    uint8_t wire[2 * KIN_ACTIVATION_Q8_BYTES];
    float back[64];
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        float x[64] = {1, [7] = bad[k], [32] = 3};
        kin_activations_encode(wire, x, 64, KIN_ACTIVATION_Q8);
        kin_activations_decode(back, wire, 64, KIN_ACTIVATION_Q8);
        for (int i = 0; i < 32; i++) assert_true(isnan(back[i]));
        assert_true(fabsf(back[32] - 3) < 0.02f && back[33] == 0); // the next block is not affected
    }
    const float least[32] = {1e-39f, -1e-39f}, largest[32] = {3.4e38f, -1e38f};
    kin_activations_encode(wire, least, 32, KIN_ACTIVATION_Q8);
    kin_activations_decode(back, wire, 32, KIN_ACTIVATION_Q8);
    assert_true(back[0] == 0 && back[1] == 0);
    kin_activations_encode(wire, largest, 32, KIN_ACTIVATION_Q8);
    kin_activations_decode(back, wire, 32, KIN_ACTIVATION_Q8);
    assert_true(fabsf(back[0] / 3.4e38f - 1) < 0.005f && fabsf(back[1] / -1e38f - 1) < 0.02f);
}

static void any_bytes_are_values_of_q8(void **state) {
    (void)state;
    uint8_t wire[KIN_ACTIVATION_Q8_BYTES];
    float back[32];
    for (uint32_t scale = 0; scale < 65536; scale += 37) {
        for (int i = 0; i < 34; i++) wire[i] = (uint8_t)(i * 91 + (int)scale);
        wire[0] = (uint8_t)scale;
        wire[1] = (uint8_t)(scale >> 8);
        wire[2] = 0x80; // -128, which no encoder sends
        kin_activations_decode(back, wire, 32, KIN_ACTIVATION_Q8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_has_its_golden_bytes),
        cmocka_unit_test(every_header_survives_the_round_trip),
        cmocka_unit_test(the_beginning_of_a_header_needs_more),
        cmocka_unit_test(a_stray_byte_is_malformed_at_once),
        cmocka_unit_test(another_version_is_named),
        cmocka_unit_test(an_unknown_type_is_malformed),
        cmocka_unit_test(bytes_that_must_be_zero_are),
        cmocka_unit_test(frames_of_a_plan_name_its_epoch),
        cmocka_unit_test(a_payload_beyond_its_cap_is_refused_by_the_header),
        cmocka_unit_test(frames_belong_to_links),
        cmocka_unit_test(any_text_becomes_a_clean_label),
        cmocka_unit_test(a_sentence_that_is_too_long_ends_with_a_word_and_dots),
        cmocka_unit_test(an_unclean_label_is_told),
        cmocka_unit_test(every_f16_has_its_value),
        cmocka_unit_test(every_f16_survives_f32),
        cmocka_unit_test(f32_is_rounded_to_nearest_even),
        cmocka_unit_test(what_no_f16_holds_becomes_zero_or_infinity),
        cmocka_unit_test(a_nan_stays_a_nan),
        cmocka_unit_test(rows_travel_in_both_types),
        cmocka_unit_test(blocks_of_q8_have_their_bytes),
        cmocka_unit_test(q8_is_near_and_keeps_its_bytes_when_it_is_sent_on),
        cmocka_unit_test(what_q8_cannot_hold_is_nan_or_zero),
        cmocka_unit_test(any_bytes_are_values_of_q8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
