// A model split into several files: it opens from any of them, and every mix-up of the files is refused with one sentence.
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

#include "model/gguf.h"
#include "testkit/gguf_write.h"
#include "tests/place.h"

// Three tensors with different data.
static const float data[3][6] = {{1, -2, 3.5f, 4, 5, 6}, {7}, {8, 9}};

static kin_gguf_writer *small_writer(void) {
    static const char *const names[] = {"a.weight", "b.weight", "c.bias"};
    kin_gguf_writer *w = kin_gguf_writer_new();
    kin_gguf_writer_put_str(w, "general.architecture", "llama");
    kin_gguf_writer_put_int(w, "llama.block_count", KIN_GGUF_U32, 77);
    for (int i = 0; i < 3; i++) kin_gguf_writer_add(w, names[i], GGML_TYPE_F32, 2, (int64_t[]){3, 2}, data[i]);
    return w;
}

// Each test has its own directory.

typedef struct directory {
    char path[64];
} directory;

static int make_directory(void **state) {
    directory *d = malloc(sizeof *d);
    snprintf(d->path, sizeof d->path, "/tmp/kin-test-gguf-XXXXXX");
    *state = d;
    return mkdtemp(d->path) ? 0 : -1;
}

static int remove_directory(void **state) {
    directory *d = *state;
    DIR *dir = opendir(d->path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", d->path, entry->d_name);
        unlink(path);
    }
    if (dir) closedir(dir);
    rmdir(d->path);
    free(d);
    return 0;
}

typedef struct path {
    char text[256];
} path;

static path in(const directory *d, const char *name) {
    path p;
    snprintf(p.text, sizeof p.text, "%s/%s", d->path, name);
    return p;
}

static void save_split(const directory *d, const char *prefix, kin_gguf_writer *w, int n_parts) {
    kin_err err;
    if (kin_gguf_writer_save_split(w, in(d, prefix).text, n_parts, &err) != 0) fail_msg("%s", err.text);
    kin_gguf_writer_free(w);
}
#define save_split(...) FROM_TEST(save_split(__VA_ARGS__))

static void expect_path_refused(path p, const char *words) {
    kin_gguf *gguf;
    kin_err err = {"nothing"};
    assert_int_equal(kin_gguf_open(&gguf, p.text, &err), KIN_FAIL);
    assert_null(gguf);
    if (err.text[0] != '/' || !strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
}
#define expect_path_refused(...) FROM_TEST(expect_path_refused(__VA_ARGS__))

static void split_model_opens_from_any_part(void **state) {
    directory *d = *state;
    kin_gguf_writer *w = small_writer();
    kin_gguf_writer_align(w, 64);
    save_split(d, "m", w, 3);
    for (int no = 1; no <= 3; no++) {
        char name[64];
        kin_gguf *gguf;
        kin_err err;
        snprintf(name, sizeof name, "m-%05d-of-00003.gguf", no);
        if (kin_gguf_open(&gguf, in(d, name).text, &err) != 0) fail_msg("%s", err.text);
        assert_int_equal(kin_gguf_n_files(gguf), 3);
        assert_int_equal(kin_gguf_n_tensors(gguf), 3);
        uint32_t n_layer = 0;
        assert_int_equal(kin_gguf_get_u32(gguf, "llama.block_count", &n_layer, NULL), 0);
        assert_int_equal(n_layer, 77);
        for (int i = 0; i < 3; i++) {
            const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, (size_t)i);
            assert_int_equal(t->i_file, i);
            assert_int_equal(t->offset % 64, 0);
            assert_true(t->offset + t->n_bytes <= kin_gguf_file_size(gguf, i));
            assert_memory_equal(t->data, data[i], sizeof data[i]);
        }
        assert_ptr_equal(kin_gguf_find_tensor(gguf, "b.weight"), kin_gguf_tensor_at(gguf, 1));
        assert_string_equal(kin_gguf_file_path(gguf, 1), in(d, "m-00002-of-00003.gguf").text);
        kin_gguf_close(gguf);
    }
}

static void missing_part_is_named(void **state) {
    directory *d = *state;
    save_split(d, "m", small_writer(), 3);
    unlink(in(d, "m-00002-of-00003.gguf").text);
    expect_path_refused(in(d, "m-00003-of-00003.gguf"),
                        "m-00002-of-00003.gguf: cannot open part 2 of 3: No such file or directory");
}

static void renamed_part_is_refused(void **state) {
    directory *d = *state;
    save_split(d, "m", small_writer(), 2);
    rename(in(d, "m-00001-of-00002.gguf").text, in(d, "m.gguf").text);
    expect_path_refused(in(d, "m.gguf"), "part 1 of 2 of a model, but its name does not end in '-00001-of-00002.gguf'");
}

static void part_in_the_wrong_place_is_refused(void **state) {
    directory *d = *state;
    save_split(d, "m", small_writer(), 3);
    rename(in(d, "m-00003-of-00003.gguf").text, in(d, "m-00002-of-00003.gguf").text);
    expect_path_refused(in(d, "m-00001-of-00003.gguf"), "part 3 of 3, but part 2 of 3 is expected");
}

static void part_of_another_split_is_refused(void **state) {
    directory *d = *state;
    save_split(d, "m", small_writer(), 3);
    save_split(d, "other", small_writer(), 2);
    rename(in(d, "other-00002-of-00002.gguf").text, in(d, "m-00002-of-00003.gguf").text);
    expect_path_refused(in(d, "m-00001-of-00003.gguf"), "part 2 of 2, but part 2 of 3 is expected");
}

static void part_of_a_model_with_other_tensors_is_refused(void **state) {
    directory *d = *state;
    kin_gguf_writer *w = small_writer();
    kin_gguf_writer_add(w, "d", GGML_TYPE_F32, 1, (int64_t[]){6}, data[0]);
    save_split(d, "m", small_writer(), 2);
    save_split(d, "other", w, 2);
    rename(in(d, "other-00002-of-00002.gguf").text, in(d, "m-00002-of-00002.gguf").text);
    expect_path_refused(in(d, "m-00001-of-00002.gguf"), "part of another model (of 4 tensors, not 3)");
}

static void whole_model_in_place_of_a_part_is_refused(void **state) {
    directory *d = *state;
    save_split(d, "m", small_writer(), 2);
    kin_gguf_writer *w = small_writer();
    assert_int_equal(kin_gguf_writer_save(w, in(d, "m-00002-of-00002.gguf").text, NULL), 0);
    kin_gguf_writer_free(w);
    expect_path_refused(in(d, "m-00001-of-00002.gguf"), "a whole model, but part 2 of 2 is expected");
}

static void broken_part_is_named(void **state) {
    directory *d = *state;
    save_split(d, "m", small_writer(), 2);
    assert_int_equal(truncate(in(d, "m-00002-of-00002.gguf").text, 100), 0);
    expect_path_refused(in(d, "m-00001-of-00002.gguf"), "m-00002-of-00002.gguf");
}

static void parts_with_too_few_tensors_are_refused(void **state) {
    directory *d = *state;
    kin_gguf_writer *w = small_writer();
    kin_gguf_writer_put_int(w, "split.no", KIN_GGUF_U16, 0);
    kin_gguf_writer_put_int(w, "split.count", KIN_GGUF_U16, 2);
    kin_gguf_writer_put_int(w, "split.tensors.count", KIN_GGUF_I32, 5);
    assert_int_equal(kin_gguf_writer_save(w, in(d, "m-00001-of-00002.gguf").text, NULL), 0);
    kin_gguf_writer_free(w);
    w = kin_gguf_writer_new();
    kin_gguf_writer_put_int(w, "split.no", KIN_GGUF_U16, 1);
    kin_gguf_writer_put_int(w, "split.count", KIN_GGUF_U16, 2);
    kin_gguf_writer_put_int(w, "split.tensors.count", KIN_GGUF_I32, 5);
    assert_int_equal(kin_gguf_writer_save(w, in(d, "m-00002-of-00002.gguf").text, NULL), 0);
    kin_gguf_writer_free(w);
    expect_path_refused(in(d, "m-00001-of-00002.gguf"), "the 2 parts hold 3 tensors, but 5 are expected");
}

static void tensor_in_two_parts_is_refused(void **state) {
    directory *d = *state;
    kin_gguf_writer *w = kin_gguf_writer_new();
    for (int i = 0; i < 2; i++) kin_gguf_writer_add(w, "same", GGML_TYPE_F32, 1, (int64_t[]){6}, data[0]);
    save_split(d, "m", w, 2);
    expect_path_refused(in(d, "m-00001-of-00002.gguf"), "m-00002-of-00002.gguf: tensor 'same' appears twice");
}

static void unreadable_paths_are_named(void **state) {
    directory *d = *state;
    expect_path_refused(in(d, "absent.gguf"), "absent.gguf: ");
    expect_path_refused((path){"/tmp"}, "/tmp: is a directory");
    FILE *f = fopen(in(d, "empty.gguf").text, "wb");
    fclose(f);
    expect_path_refused(in(d, "empty.gguf"), "empty.gguf: not a GGUF file (it is empty)");
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(split_model_opens_from_any_part),
        IN_DIRECTORY(missing_part_is_named),
        IN_DIRECTORY(renamed_part_is_refused),
        IN_DIRECTORY(part_in_the_wrong_place_is_refused),
        IN_DIRECTORY(part_of_another_split_is_refused),
        IN_DIRECTORY(part_of_a_model_with_other_tensors_is_refused),
        IN_DIRECTORY(whole_model_in_place_of_a_part_is_refused),
        IN_DIRECTORY(broken_part_is_named),
        IN_DIRECTORY(parts_with_too_few_tensors_are_refused),
        IN_DIRECTORY(tensor_in_two_parts_is_refused),
        IN_DIRECTORY(unreadable_paths_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
