// GGUF: written files read back the same, and any other content is refused with one sentence.
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <ggml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "model/gguf.h"
#include "testkit/gguf_write.h"
#include "tests/place.h"

#define NAME "m.gguf"

// A file in memory of exactly its size, so that the sanitizer catches reads beyond its end.
typedef struct image {
    uint8_t *bytes;
    size_t size;
} image;

static image image_of(kin_gguf_writer *w) {
    image m, exact;
    kin_gguf_writer_save_bytes(w, &m.bytes, &m.size);
    kin_gguf_writer_free(w);
    exact = (image){.bytes = malloc(m.size), .size = m.size};
    memcpy(exact.bytes, m.bytes, m.size);
    free(m.bytes);
    return exact;
}

// The data of a small file with one key of each kind and a few tensors.
static const float f32_data[6] = {1, -2, 3.5f, 4, 5, 6};
static const uint8_t q4_0_data[2 * 18] = {7, 8, 9}; // two blocks

static kin_gguf_writer *small_writer(void) {
    static const char *const tokens[] = {"<unk>", "", "a\001b", "\xe2\x96\x81x"};
    static const int16_t shorts[] = {-3, 0, 32767};
    static const float floats[] = {0.5f, -1e30f};
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "general.architecture", "llama");
    kin_gguf_writer_put_int(w, "k.u8", KIN_GGUF_U8, 255);
    kin_gguf_writer_put_int(w, "k.i8", KIN_GGUF_I8, -128);
    kin_gguf_writer_put_int(w, "k.u16", KIN_GGUF_U16, 65535);
    kin_gguf_writer_put_int(w, "k.i16", KIN_GGUF_I16, 1234);
    kin_gguf_writer_put_int(w, "k.u32", KIN_GGUF_U32, 4294967295);
    kin_gguf_writer_put_int(w, "k.i32", KIN_GGUF_I32, 70000);
    kin_gguf_writer_put_int(w, "k.u64", KIN_GGUF_U64, 5000000000);
    kin_gguf_writer_put_int(w, "k.u64.max", KIN_GGUF_U64, -1);
    kin_gguf_writer_put_int(w, "k.i64", KIN_GGUF_I64, 77);
    kin_gguf_writer_put_float(w, "k.f32", KIN_GGUF_F32, 0.25);
    kin_gguf_writer_put_float(w, "k.f64", KIN_GGUF_F64, 1e-3);
    kin_gguf_writer_put_float(w, "k.f64.large", KIN_GGUF_F64, 1e300);
    kin_gguf_writer_put_int(w, "k.bool", KIN_GGUF_BOOL, 1);
    kin_gguf_writer_put_strs(w, "k.strs", 4, tokens);
    kin_gguf_writer_put_array(w, "k.shorts", KIN_GGUF_I16, 3, shorts);
    kin_gguf_writer_put_array(w, "k.floats", KIN_GGUF_F32, 2, floats);
    kin_gguf_writer_put_array(w, "k.empty", KIN_GGUF_U64, 0, NULL);
    kin_gguf_writer_add(w, "a.weight", GGML_TYPE_F32, 2, (int64_t[]){3, 2}, f32_data);
    kin_gguf_writer_add(w, "b.weight", GGML_TYPE_Q4_0, 4, (int64_t[]){32, 1, 2, 1}, q4_0_data);
    kin_gguf_writer_add(w, "c.bias", GGML_TYPE_F32, 1, (int64_t[]){6}, f32_data);
    return w;
}

static image small_image(void) {
    return image_of(small_writer());
}

static kin_gguf *open_ok(const image *m) {
    kin_gguf *gguf;
    kin_err err = {"nothing"};
    if (kin_gguf_open_bytes(&gguf, NAME, m->bytes, m->size, &err) != 0) fail_msg("%s", err.text);
    return gguf;
}
#define open_ok(...) FROM_TEST(open_ok(__VA_ARGS__))

// Opening must fail with a message that names the file and contains `words`. Frees the image.
static void expect_refused(image m, const char *words) {
    kin_gguf *gguf;
    kin_err err = {"nothing"};
    assert_int_equal(kin_gguf_open_bytes(&gguf, NAME, m.bytes, m.size, &err), KIN_FAIL);
    assert_null(gguf);
    if (strncmp(err.text, NAME ": ", strlen(NAME ": ")) != 0 || !strstr(err.text, words)) {
        fail_msg("'%s' does not say '%s'", err.text, words);
    }
    assert_null(strchr(err.text, '\n'));
    assert_int_equal(kin_gguf_open_bytes(&gguf, NAME, m.bytes, m.size, NULL), KIN_FAIL);
    free(m.bytes);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

// Returns the place in the image just after `text`: the field that follows a key or a name.
static uint8_t *after(image m, const char *text) {
    uint8_t *at = memmem(m.bytes, m.size, text, strlen(text));
    assert_non_null(at);
    return at + strlen(text);
}
#define after(...) FROM_TEST(after(__VA_ARGS__))

// Reads everything that an open file offers.
static volatile uint8_t touched;

static void walk(const kin_gguf *gguf) {
    char text[100], name[100];
    uint8_t sum = 0;
    for (size_t i = 0; i < kin_gguf_n_meta(gguf); i++) {
        kin_str key = kin_gguf_meta_key(gguf, i);
        kin_gguf_meta_text(gguf, i, text, sizeof text);
        snprintf(name, sizeof name, "%.*s", (int)key.len, key.at);
        kin_gguf_array array;
        if (kin_gguf_get_array(gguf, name, &array, NULL) != 0) continue;
        const uint8_t *cursor = array.at;
        for (uint64_t k = 0; k < array.n; k++) {
            if (array.kind == KIN_GGUF_STRING) {
                kin_str s = kin_gguf_array_next_str(&cursor);
                for (size_t c = 0; c < s.len; c++) sum += (uint8_t)s.at[c];
            } else {
                sum += kin_gguf_array_f64(&array, k) > 0;
            }
        }
    }
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, i);
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.at);
        assert_ptr_equal(kin_gguf_find_tensor(gguf, name), t);
        for (uint64_t k = 0; k < t->n_bytes; k++) sum += t->data[k];
    }
    touched = sum;
}
#define walk(...) FROM_TEST(walk(__VA_ARGS__))

// Metadata

static void expect_u32(const kin_gguf *gguf, const char *key, uint32_t expected) {
    uint32_t value = 0;
    assert_int_equal(kin_gguf_get_u32(gguf, key, &value, NULL), 0);
    assert_int_equal(value, expected);
}
#define expect_u32(...) FROM_TEST(expect_u32(__VA_ARGS__))

static void integers_of_every_kind_come_back_if_they_fit(void **state) {
    (void)state;
    image m = small_image();
    kin_gguf *gguf = open_ok(&m);
    expect_u32(gguf, "k.u8", 255);
    expect_u32(gguf, "k.u16", 65535);
    expect_u32(gguf, "k.i16", 1234);
    expect_u32(gguf, "k.u32", 4294967295);
    expect_u32(gguf, "k.i32", 70000);
    expect_u32(gguf, "k.i64", 77);

    static const char *const misfits[] = {"k.i8", "k.u64", "k.u64.max"};
    static const char *const sentences[] = {"m.gguf: k.i8 is -128, but must be an unsigned 32-bit number",
                                            "m.gguf: k.u64 is 5000000000, but must be an unsigned 32-bit number",
                                            "m.gguf: k.u64.max is 18446744073709551615, but must be an unsigned 32-bit number"};
    for (int i = 0; i < 3; i++) {
        uint32_t value = 9;
        kin_err err;
        assert_int_equal(kin_gguf_get_u32(gguf, misfits[i], &value, &err), KIN_FAIL);
        assert_string_equal(err.text, sentences[i]);
        assert_int_equal(value, 9);
    }
    kin_gguf_close(gguf);
    free(m.bytes);
}

static void floats_bools_and_strings_come_back(void **state) {
    (void)state;
    image m = small_image();
    kin_gguf *gguf = open_ok(&m);
    float f = 0;
    bool b = false;
    kin_str s;
    kin_err err;
    assert_int_equal(kin_gguf_get_f32(gguf, "k.f32", &f, NULL), 0);
    assert_true(f == 0.25f);
    assert_int_equal(kin_gguf_get_f32(gguf, "k.f64", &f, NULL), 0);
    assert_true(f == 1e-3f);
    assert_int_equal(kin_gguf_get_f32(gguf, "k.f64.large", &f, &err), KIN_FAIL);
    assert_string_equal(err.text, "m.gguf: k.f64.large is 1e+300, but must be a 32-bit float");
    assert_int_equal(kin_gguf_get_bool(gguf, "k.bool", &b, NULL), 0);
    assert_true(b);
    assert_int_equal(kin_gguf_get_str(gguf, "general.architecture", &s, NULL), 0);
    assert_true(kin_str_eq(s, "llama"));
    assert_false(kin_str_eq(s, "llam"));
    assert_false(kin_str_eq(s, "llama2"));
    kin_gguf_close(gguf);
    free(m.bytes);
}

static void absent_key_is_no_error_and_leaves_the_value(void **state) {
    (void)state;
    image m = small_image();
    kin_gguf *gguf = open_ok(&m);
    uint32_t u = 5;
    float f = 6;
    bool b = true;
    kin_str s = {.at = "x", .len = 1};
    kin_gguf_array a = {.n = 7};
    kin_err err = {"untouched"};
    assert_int_equal(kin_gguf_get_u32(gguf, "k.u", &u, &err), 1);
    assert_int_equal(kin_gguf_get_f32(gguf, "", &f, &err), 1);
    assert_int_equal(kin_gguf_get_bool(gguf, "k.boo", &b, &err), 1);
    assert_int_equal(kin_gguf_get_str(gguf, "zzz", &s, &err), 1);
    assert_int_equal(kin_gguf_get_array(gguf, "k.strs.", &a, &err), 1);
    assert_true(u == 5 && f == 6 && b && s.len == 1 && a.n == 7);
    assert_string_equal(err.text, "untouched");
    kin_gguf_close(gguf);
    free(m.bytes);
}

static void value_of_another_kind_is_an_error(void **state) {
    (void)state;
    image m = small_image();
    kin_gguf *gguf = open_ok(&m);
    uint32_t u;
    float f;
    bool b;
    kin_str s;
    kin_gguf_array a;
    kin_err err;
    assert_int_equal(kin_gguf_get_u32(gguf, "general.architecture", &u, &err), KIN_FAIL);
    assert_string_equal(err.text, "m.gguf: general.architecture has the type string, but must be an integer");
    assert_int_equal(kin_gguf_get_u32(gguf, "k.f32", &u, &err), KIN_FAIL);
    assert_int_equal(kin_gguf_get_u32(gguf, "k.bool", &u, &err), KIN_FAIL);
    assert_int_equal(kin_gguf_get_f32(gguf, "k.u32", &f, &err), KIN_FAIL);
    assert_int_equal(kin_gguf_get_bool(gguf, "k.u8", &b, &err), KIN_FAIL);
    assert_int_equal(kin_gguf_get_str(gguf, "k.strs", &s, &err), KIN_FAIL);
    assert_int_equal(kin_gguf_get_array(gguf, "k.u8", &a, &err), KIN_FAIL);
    assert_string_equal(err.text, "m.gguf: k.u8 has the type u8, but must be an array");
    kin_gguf_close(gguf);
    free(m.bytes);
}

static void arrays_come_back_element_by_element(void **state) {
    (void)state;
    image m = small_image();
    kin_gguf *gguf = open_ok(&m);
    kin_gguf_array a;
    assert_int_equal(kin_gguf_get_array(gguf, "k.shorts", &a, NULL), 0);
    assert_int_equal(a.kind, KIN_GGUF_I16);
    assert_int_equal(a.n, 3);
    assert_int_equal(kin_gguf_array_i64(&a, 0), -3);
    assert_int_equal(kin_gguf_array_i64(&a, 2), 32767);
    assert_true(kin_gguf_array_f64(&a, 0) == -3);
    assert_int_equal(kin_gguf_get_array(gguf, "k.floats", &a, NULL), 0);
    assert_true(kin_gguf_array_f64(&a, 0) == 0.5 && kin_gguf_array_f64(&a, 1) == (double)-1e30f);
    assert_int_equal(kin_gguf_get_array(gguf, "k.empty", &a, NULL), 0);
    assert_int_equal(a.n, 0);

    assert_int_equal(kin_gguf_get_array(gguf, "k.strs", &a, NULL), 0);
    assert_int_equal(a.n, 4);
    const uint8_t *cursor = a.at;
    assert_true(kin_str_eq(kin_gguf_array_next_str(&cursor), "<unk>"));
    assert_true(kin_str_eq(kin_gguf_array_next_str(&cursor), ""));
    assert_true(kin_str_eq(kin_gguf_array_next_str(&cursor), "a\001b"));
    assert_true(kin_str_eq(kin_gguf_array_next_str(&cursor), "\xe2\x96\x81x"));
    kin_gguf_close(gguf);
    free(m.bytes);
}

static void metadata_is_listed_in_file_order_as_short_text(void **state) {
    (void)state;
    image m = small_image();
    kin_gguf *gguf = open_ok(&m);
    static const char *const expected[][2] = {
        {"general.architecture", "llama"},
        {"k.u8", "255"},
        {"k.i8", "-128"},
        {"k.u16", "65535"},
        {"k.i16", "1234"},
        {"k.u32", "4294967295"},
        {"k.i32", "70000"},
        {"k.u64", "5000000000"},
        {"k.u64.max", "18446744073709551615"},
        {"k.i64", "77"},
        {"k.f32", "0.25"},
        {"k.f64", "0.001"},
        {"k.f64.large", "1e+300"},
        {"k.bool", "true"},
        {"k.strs", "[4] <unk>, , a.b, \xe2\x96\x81x"},
        {"k.shorts", "[3] -3, 0, 32767"},
        {"k.floats", "[2] 0.5, -1e+30"},
        {"k.empty", "[0]"},
    };
    size_t n = sizeof expected / sizeof expected[0];
    assert_int_equal(kin_gguf_n_meta(gguf), n);
    for (size_t i = 0; i < n; i++) {
        char text[100];
        assert_true(kin_str_eq(kin_gguf_meta_key(gguf, i), expected[i][0]));
        assert_string_equal(kin_gguf_meta_text(gguf, i, text, sizeof text), expected[i][1]);
    }
    kin_gguf_close(gguf);
    free(m.bytes);
}

static void metadata_text_is_cut_to_any_buffer(void **state) {
    (void)state;
    image m = small_image();
    kin_gguf *gguf = open_ok(&m);
    for (size_t n = 1; n < 64; n++) {
        char *text = malloc(n); // exact size, for the sanitizer
        for (size_t i = 0; i < kin_gguf_n_meta(gguf); i++) {
            kin_gguf_meta_text(gguf, i, text, n);
            assert_true(strlen(text) < n);
        }
        free(text);
    }
    kin_gguf_close(gguf);
    free(m.bytes);
}

// Tensors

static void tensors_come_back_with_shape_and_data(void **state) {
    (void)state;
    image m = small_image();
    kin_gguf *gguf = open_ok(&m);
    assert_int_equal(kin_gguf_n_tensors(gguf), 3);
    assert_int_equal(kin_gguf_n_files(gguf), 1);
    assert_string_equal(kin_gguf_file_path(gguf, 0), NAME);
    assert_int_equal(kin_gguf_file_size(gguf, 0), m.size);

    const kin_gguf_tensor *t = kin_gguf_find_tensor(gguf, "b.weight");
    assert_ptr_equal(t, kin_gguf_tensor_at(gguf, 1));
    assert_int_equal(t->type, GGML_TYPE_Q4_0);
    assert_int_equal(t->n_dims, 4);
    assert_int_equal(t->ne[0], 32);
    assert_int_equal(t->ne[2], 2);
    assert_int_equal(t->ne[3], 1);
    assert_int_equal(t->n_bytes, sizeof q4_0_data);
    assert_int_equal(t->offset % 32, 0);
    assert_ptr_equal(t->data, m.bytes + t->offset);
    assert_memory_equal(t->data, q4_0_data, sizeof q4_0_data);

    t = kin_gguf_find_tensor(gguf, "a.weight");
    assert_int_equal(t->n_bytes, sizeof f32_data);
    assert_int_equal(t->ne[2], 1);
    assert_memory_equal(t->data, f32_data, sizeof f32_data);
    assert_null(kin_gguf_find_tensor(gguf, "a.weigh"));
    assert_null(kin_gguf_find_tensor(gguf, ""));
    kin_gguf_close(gguf);
    free(m.bytes);
}

static void count_rows(void *user, uint64_t row_begin, uint64_t n_rows, uint8_t *out) {
    uint32_t *next_row = user;
    assert_int_equal(*next_row, row_begin);
    for (uint64_t i = 0; i < n_rows; i++) {
        for (int k = 0; k < 1000; k++) kin_put_u32(out + 4 * (i * 1000 + (uint64_t)k), *next_row);
        (*next_row)++;
    }
}

static void filled_tensor_is_produced_row_by_row(void **state) {
    (void)state;
    uint32_t next_row = 0;
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_add_filled(w, "t", GGML_TYPE_F32, 3, (int64_t[]){1000, 300, 3}, count_rows, &next_row);
    image m = image_of(w);
    assert_int_equal(next_row, 900);
    kin_gguf *gguf = open_ok(&m);
    const kin_gguf_tensor *t = kin_gguf_find_tensor(gguf, "t");
    assert_int_equal(t->n_bytes, 3600000);
    for (uint64_t i = 0; i < 900000; i++) assert_int_equal(kin_get_u32(t->data + 4 * i), i / 1000);
    kin_gguf_close(gguf);
    free(m.bytes);
}

static void full_disk_fails_the_writer(void **state) {
    (void)state;
    kin_err err;
    kin_gguf_writer *w = small_writer();
    if (access("/dev/full", W_OK) != 0) skip();
    assert_int_equal(kin_gguf_writer_save(w, "/dev/full", &err), KIN_FAIL);
    assert_string_equal(err.text, "/dev/full: cannot write: No space left on device");
    kin_gguf_writer_free(w);
}

static void data_follows_the_alignment_of_the_file(void **state) {
    (void)state;
    static const uint32_t alignments[] = {1, 8, 64, 4096};
    for (size_t i = 0; i < 4; i++) {
        kin_gguf_writer *w = kin_gguf_writer_new();
        kin_gguf_writer_align(w, alignments[i]);
        kin_gguf_writer_add(w, "a", GGML_TYPE_F32, 1, (int64_t[]){1}, f32_data);
        kin_gguf_writer_add(w, "b", GGML_TYPE_F32, 1, (int64_t[]){6}, f32_data);
        image m = image_of(w);
        kin_gguf *gguf = open_ok(&m);
        const kin_gguf_tensor *t = kin_gguf_find_tensor(gguf, "b");
        assert_int_equal(t->offset % alignments[i], 0);
        assert_memory_equal(t->data, f32_data, sizeof f32_data);
        kin_gguf_close(gguf);
        free(m.bytes);
    }
}

static void file_without_tensors_opens(void **state) {
    (void)state;
    image m = image_of(kin_gguf_writer_new());
    m.size = 24; // not even padding
    kin_gguf *gguf = open_ok(&m);
    assert_int_equal(kin_gguf_n_tensors(gguf), 0);
    assert_int_equal(kin_gguf_n_meta(gguf), 0);
    assert_null(kin_gguf_find_tensor(gguf, "a"));
    kin_gguf_close(gguf);
    free(m.bytes);
}

static void version_2_opens(void **state) {
    (void)state;
    image m = small_image();
    kin_put_u32(m.bytes + 4, 2);
    kin_gguf *gguf = open_ok(&m);
    walk(gguf);
    kin_gguf_close(gguf);
    free(m.bytes);
}

// Split models are in test_gguf_split.c, except those that are refused at once

static void split_model_cannot_come_from_memory(void **state) {
    (void)state;
    kin_gguf_writer *w = small_writer();
    kin_gguf_writer_put_int(w, "split.no", KIN_GGUF_U16, 0);
    kin_gguf_writer_put_int(w, "split.count", KIN_GGUF_U16, 2);
    expect_refused(image_of(w), "part 1 of 2 of a model; a model in memory must be in one part");
}

static void impossible_part_numbers_are_refused(void **state) {
    (void)state;
    static const int64_t cases[][2] = {{2, 2}, {4294967295, 2}, {0, 100000}, {0, 4294967295}};
    for (size_t i = 0; i < 4; i++) {
        kin_gguf_writer *w = small_writer();
        kin_gguf_writer_put_int(w, "split.no", KIN_GGUF_U32, cases[i][0]);
        kin_gguf_writer_put_int(w, "split.count", KIN_GGUF_U32, cases[i][1]);
        expect_refused(image_of(w), "invalid split");
    }
}

// Damage

static void truncation_at_any_byte_is_refused(void **state) {
    (void)state;
    image m = small_image();
    kin_gguf *gguf = open_ok(&m);
    const kin_gguf_tensor *last = kin_gguf_tensor_at(gguf, 2);
    size_t needed = last->offset + last->n_bytes;
    kin_gguf_close(gguf);
    for (size_t size = 0; size < needed; size++) {
        kin_err err = {"nothing"};
        uint8_t *cut = malloc(size ? size : 1); // exact size, for the sanitizer
        memcpy(cut, m.bytes, size);
        assert_int_equal(kin_gguf_open_bytes(&gguf, NAME, cut, size, &err), KIN_FAIL);
        assert_int_equal(strncmp(err.text, "m.gguf: ", 8), 0);
        free(cut);
    }
    free(m.bytes);
}

static void any_flipped_bit_opens_or_is_refused(void **state) {
    (void)state;
    image m = small_image();
    kin_gguf *gguf = open_ok(&m);
    size_t head = kin_gguf_tensor_at(gguf, 0)->offset;
    kin_gguf_close(gguf);
    for (size_t bit = 0; bit < 8 * head; bit++) {
        m.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (kin_gguf_open_bytes(&gguf, NAME, m.bytes, m.size, NULL) == 0) {
            walk(gguf);
            kin_gguf_close(gguf);
        }
        m.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(m.bytes);
}

static void any_byte_replaced_opens_or_is_refused(void **state) {
    (void)state;
    static const uint8_t values[] = {0x00, 0x7f, 0x80, 0xff};
    image m = small_image();
    kin_gguf *gguf = open_ok(&m);
    size_t head = kin_gguf_tensor_at(gguf, 0)->offset;
    kin_gguf_close(gguf);
    for (size_t i = 0; i < 4 * head; i++) {
        uint8_t old = m.bytes[i / 4];
        m.bytes[i / 4] = values[i % 4];
        if (kin_gguf_open_bytes(&gguf, NAME, m.bytes, m.size, NULL) == 0) {
            walk(gguf);
            kin_gguf_close(gguf);
        }
        m.bytes[i / 4] = old;
    }
    free(m.bytes);
}

static void other_formats_are_named(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *words;
    } cases[] = {
        {"", 0, "not a GGUF file (it is empty)"},
        {"GG", 2, "not a GGUF file (starts with 'GG')"},
        {"\1\2\3\4\5", 5, "not a GGUF file (starts with '....')"},
        {"PK\3\4rest", 8, "not a GGUF file but a ZIP archive"},
        {"tjgg\1\0\0\0", 8, "not a GGUF file but an old GGML file (ggjt)"},
        {"lmgg", 4, "not a GGUF file but an old GGML file (ggml)"},
        {"\177ELF\2\1", 6, "not a GGUF file but a program"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, "not a GGUF file but a Git LFS pointer"},
        {"<!DOCTYPE html>", 15, "not a GGUF file but a web page"},
        {"\x40\0\0\0\0\0\0\0{\"a\"", 12, "not a GGUF file but probably a safetensors file"},
        {"GGUF", 4, "ends inside the header (4 bytes)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        image m = {.bytes = malloc(cases[i].size ? cases[i].size : 1), .size = cases[i].size};
        memcpy(m.bytes, cases[i].bytes, cases[i].size);
        expect_refused(m, cases[i].words);
    }
}

static void expect_version_refused(uint32_t version, const char *words) {
    image m = small_image();
    kin_put_u32(m.bytes + 4, version);
    expect_refused(m, words);
}
#define expect_version_refused(...) FROM_TEST(expect_version_refused(__VA_ARGS__))

static void other_versions_and_byte_order_are_refused(void **state) {
    (void)state;
    expect_version_refused(0, "GGUF version 0 is not supported");
    expect_version_refused(1, "GGUF version 1 is too old");
    expect_version_refused(4, "GGUF version 4 is not supported");
    expect_version_refused(3u << 24, "big-endian");
}

static void counts_beyond_the_file_are_refused(void **state) {
    (void)state;
    static const uint64_t counts[] = {1000, 1ull << 32, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < 4; i++) {
        image m = small_image();
        kin_put_u64(m.bytes + 8, counts[i]);
        expect_refused(m, "tensors, more than its");
        m = small_image();
        kin_put_u64(m.bytes + 16, counts[i]);
        expect_refused(m, "metadata entries, more than its");
        m = small_image();
        kin_put_u64(m.bytes + 24, counts[i]); // length of the first key
        expect_refused(m, "metadata entry 0 of 18: the file ends inside its key");
        m = small_image();
        kin_put_u64(after(m, "general.architecture") + 4, counts[i]);
        expect_refused(m, "'general.architecture': the file ends inside the string");
        m = small_image();
        kin_put_u64(after(m, "k.shorts") + 8, counts[i]);
        expect_refused(m, "values, more than the file can hold");
        m = small_image();
        kin_put_u64(after(m, "k.strs") + 8, counts[i]);
        expect_refused(m, "strings, more than the file can hold");
        m = small_image();
        kin_put_u64(after(m, "k.strs") + 16, counts[i]);
        expect_refused(m, "the file ends inside string 0 of 4");
    }
}

static void counts_of_entries_that_would_have_to_be_too_small_are_refused(void **state) {
    (void)state;
    image m = small_image();
    assert_in_range(m.size, 100, 1200); // room for 100 entries, but only if each were too small
    kin_put_u64(m.bytes + 16, 100);
    expect_refused(m, "announces 100 metadata entries, more than its");
    m = small_image();
    kin_put_u64(m.bytes + 8, 26);
    expect_refused(m, "announces 26 tensors, more than its");
}

static void unknown_kinds_are_refused(void **state) {
    (void)state;
    static const uint32_t kinds[] = {13, 255, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        image m = small_image();
        kin_put_u32(after(m, "k.i64"), kinds[i]);
        expect_refused(m, "'k.i64': has the unknown type");
        m = small_image();
        kin_put_u32(after(m, "k.shorts") + 4, kinds[i]);
        expect_refused(m, "'k.shorts': an array of unknown type");
    }
    image m = small_image();
    kin_put_u32(after(m, "k.shorts") + 4, KIN_GGUF_ARRAY);
    expect_refused(m, "'k.shorts': an array of arrays");
}

static void duplicate_names_are_refused(void **state) {
    (void)state;
    kin_gguf_writer *w = small_writer();
    kin_gguf_writer_put_int(w, "k.u8", KIN_GGUF_U8, 1);
    expect_refused(image_of(w), "metadata key 'k.u8' appears twice");
    w = small_writer();
    kin_gguf_writer_add(w, "a.weight", GGML_TYPE_F32, 1, (int64_t[]){6}, f32_data);
    expect_refused(image_of(w), "tensor 'a.weight' appears twice");
}

static void one_duplicate_among_100000_keys_is_found(void **state) {
    (void)state;
    kin_gguf_writer *w = kin_gguf_writer_new();
    char key[32];
    for (int i = 0; i < 100000; i++) {
        snprintf(key, sizeof key, "key.%d", i * 7919 % 100000);
        kin_gguf_writer_put_int(w, key, KIN_GGUF_U8, 1);
    }
    kin_gguf_writer_put_int(w, "key.4711", KIN_GGUF_U8, 1);
    expect_refused(image_of(w), "metadata key 'key.4711' appears twice");
}

static void names_are_bounded_and_printable(void **state) {
    (void)state;
    char name[65];
    memset(name, 'n', sizeof name);
    name[64] = '\0';
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_add(w, name, GGML_TYPE_F32, 1, (int64_t[]){6}, f32_data);
    expect_refused(image_of(w), "tensor 0 of 1: its name has 64 bytes, more than 63");

    name[63] = '\0';
    w = kin_gguf_writer_new();
    kin_gguf_writer_add(w, name, GGML_TYPE_F32, 1, (int64_t[]){6}, f32_data);
    image m = image_of(w);
    kin_gguf *gguf = open_ok(&m);
    assert_non_null(kin_gguf_find_tensor(gguf, name));
    kin_gguf_close(gguf);
    free(m.bytes);

    m = small_image();
    after(m, "a.weigh")[0] = '\0';
    expect_refused(m, "tensor 0 of 3: its name holds a control character");
    m = small_image();
    after(m, "k.u")[0] = '\x1b';
    expect_refused(m, "its key holds a control character");
}

static void long_key_is_refused(void **state) {
    (void)state;
    char *key = malloc(65537);
    memset(key, 'k', 65536);
    key[65536] = '\0';
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_put_int(w, key, KIN_GGUF_U8, 1);
    expect_refused(image_of(w), "its key has 65536 bytes");
    free(key);
}

static void impossible_alignments_are_refused(void **state) {
    (void)state;
    static const int64_t alignments[] = {0, 3, 48, 1 << 21};
    for (size_t i = 0; i < 4; i++) {
        kin_gguf_writer *w = small_writer();
        kin_gguf_writer_put_int(w, "general.alignment", KIN_GGUF_U32, alignments[i]);
        expect_refused(image_of(w), "not a power of two up to 1048576");
    }
    kin_gguf_writer *w = small_writer();
    kin_gguf_writer_put_str(w, "general.alignment", "32");
    expect_refused(image_of(w), "general.alignment has the type string, but must be an integer");
}

// The directory entry of a.weight: n_dims at 0, ne at 4 and 12, type at 20, offset at 24.

static void expect_entry_refused(size_t at, uint64_t value, size_t n, const char *words) {
    image m = small_image();
    uint8_t *entry = after(m, "a.weight");
    if (n == 4) {
        kin_put_u32(entry + at, (uint32_t)value);
    } else {
        kin_put_u64(entry + at, value);
    }
    expect_refused(m, words);
}
#define expect_entry_refused(...) FROM_TEST(expect_entry_refused(__VA_ARGS__))

static void impossible_shapes_are_refused(void **state) {
    (void)state;
    expect_entry_refused(0, 0, 4, "tensor 'a.weight': has 0 dimensions, not 1 to 4");
    expect_entry_refused(0, 5, 4, "tensor 'a.weight': has 5 dimensions, not 1 to 4");
    expect_entry_refused(0, UINT32_MAX, 4, "dimensions, not 1 to 4");
    expect_entry_refused(12, 0, 8, "tensor 'a.weight': dimension 1 is 0");
    expect_entry_refused(12, UINT64_MAX, 8, "tensor 'a.weight': dimension 1 is 18446744073709551615");
    expect_entry_refused(12, 1ull << 62, 8, "has more than 2^63 elements");
    expect_entry_refused(12, 1ull << 60, 8, "has more than 2^63 bytes"); // 3 * 2^60 elements of 4 bytes
    expect_entry_refused(12, 1ull << 40, 8, "beyond the end of the file");
}

static void unknown_and_removed_types_are_refused(void **state) {
    (void)state;
    static const uint32_t types[] = {4, 5, 31, 32, 33, 36, 37, 38, GGML_TYPE_COUNT, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        expect_entry_refused(20, types[i], 4, "tensor 'a.weight': has the unknown type");
    }
    expect_entry_refused(20, GGML_TYPE_Q4_K, 4, "has rows of 3 elements, not a multiple of the q4_K block size 256");
}

static void offsets_outside_the_file_are_refused(void **state) {
    (void)state;
    expect_entry_refused(24, 33, 8, "tensor 'a.weight' has offset 33, not a multiple of the alignment 32");
    expect_entry_refused(24, 1 << 20, 8, "beyond the end of the file");
    expect_entry_refused(24, UINT64_MAX - 31, 8, "tensor 'a.weight' has an impossible offset");
    expect_entry_refused(24, 1ull << 63, 8, "beyond the end of the file");
}

static void a_removed_type_is_named_with_the_one_to_quantize_to(void **state) {
    (void)state;
    expect_entry_refused(20, 31, 4, "(Q4_0_4_4, which ggml has removed); quantize the model again as Q4_0");
    expect_entry_refused(20, 33, 4, "(Q4_0_8_8, which ggml has removed); quantize the model again as Q4_0");
    expect_entry_refused(20, 36, 4, "(IQ4_NL_4_4, which ggml has removed); quantize the model again as IQ4_NL");
}

// Moves the second of two tensors into the first one, or the first one into the second.
static void overlapping_tensors_are_refused(void **state) {
    (void)state;
    static const float data[64];
    const int64_t ne[] = {16};
    for (uint64_t at = 0; at < 128; at += 32) {
        kin_gguf_writer *w = kin_gguf_writer_new();
        kin_gguf_writer_add(w, "first.weight", GGML_TYPE_F32, 1, ne, data);
        kin_gguf_writer_add(w, "second.weight", GGML_TYPE_F32, 1, ne, data);
        kin_gguf_writer_add(w, "third.weight", GGML_TYPE_F32, 1, ne, data);
        image m = image_of(w);
        kin_put_u64(after(m, "second.weight") + 16, at);
        kin_gguf *gguf = NULL;
        if (at == 64) { // its correct place
            assert_int_equal(kin_gguf_open_bytes(&gguf, NAME, m.bytes, m.size, NULL), 0);
            kin_gguf_close(gguf);
            free(m.bytes);
        } else {
            expect_refused(m, "overlap");
        }
    }
}

static void sentence_says_where_a_tensor_ends(void **state) {
    (void)state;
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_add(w, "t", GGML_TYPE_F32, 1, (int64_t[]){6}, f32_data);
    image m = image_of(w);
    m.size = 64 + 20;
    kin_err err;
    kin_gguf *gguf;
    assert_int_equal(kin_gguf_open_bytes(&gguf, NAME, m.bytes, m.size, &err), KIN_FAIL);
    assert_string_equal(err.text, "m.gguf: tensor 't' ends at byte 88, beyond the end of the file (84 bytes)");
    free(m.bytes);
}

// Real files

static void golden_models_open(void **state) {
    (void)state;
    const char *folder = KIN_SOURCE_DIR "/../shared/golden";
    DIR *dir = opendir(folder);
    if (!dir) skip();
    int n_models = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".gguf") != 0) continue;
        char file[512];
        kin_gguf *gguf;
        kin_err err;
        snprintf(file, sizeof file, "%s/%s", folder, entry->d_name);
        if (kin_gguf_open(&gguf, file, &err) != 0) fail_msg("%s", err.text);
        walk(gguf);
        assert_non_null(kin_gguf_find_tensor(gguf, "token_embd.weight"));
        kin_gguf_close(gguf);
        n_models++;
    }
    closedir(dir);
    assert_true(n_models > 0);
}

static void closing_nothing_is_allowed(void **state) {
    (void)state;
    kin_gguf_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_of_every_kind_come_back_if_they_fit),
        cmocka_unit_test(floats_bools_and_strings_come_back),
        cmocka_unit_test(absent_key_is_no_error_and_leaves_the_value),
        cmocka_unit_test(value_of_another_kind_is_an_error),
        cmocka_unit_test(arrays_come_back_element_by_element),
        cmocka_unit_test(metadata_is_listed_in_file_order_as_short_text),
        cmocka_unit_test(metadata_text_is_cut_to_any_buffer),
        cmocka_unit_test(tensors_come_back_with_shape_and_data),
        cmocka_unit_test(filled_tensor_is_produced_row_by_row),
        cmocka_unit_test(full_disk_fails_the_writer),
        cmocka_unit_test(data_follows_the_alignment_of_the_file),
        cmocka_unit_test(file_without_tensors_opens),
        cmocka_unit_test(version_2_opens),
        cmocka_unit_test(split_model_cannot_come_from_memory),
        cmocka_unit_test(impossible_part_numbers_are_refused),
        cmocka_unit_test(truncation_at_any_byte_is_refused),
        cmocka_unit_test(any_flipped_bit_opens_or_is_refused),
        cmocka_unit_test(any_byte_replaced_opens_or_is_refused),
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(other_versions_and_byte_order_are_refused),
        cmocka_unit_test(counts_beyond_the_file_are_refused),
        cmocka_unit_test(counts_of_entries_that_would_have_to_be_too_small_are_refused),
        cmocka_unit_test(unknown_kinds_are_refused),
        cmocka_unit_test(duplicate_names_are_refused),
        cmocka_unit_test(one_duplicate_among_100000_keys_is_found),
        cmocka_unit_test(names_are_bounded_and_printable),
        cmocka_unit_test(long_key_is_refused),
        cmocka_unit_test(impossible_alignments_are_refused),
        cmocka_unit_test(impossible_shapes_are_refused),
        cmocka_unit_test(unknown_and_removed_types_are_refused),
        cmocka_unit_test(offsets_outside_the_file_are_refused),
        cmocka_unit_test(a_removed_type_is_named_with_the_one_to_quantize_to),
        cmocka_unit_test(overlapping_tensors_are_refused),
        cmocka_unit_test(sentence_says_where_a_tensor_ends),
        cmocka_unit_test(golden_models_open),
        cmocka_unit_test(closing_nothing_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
