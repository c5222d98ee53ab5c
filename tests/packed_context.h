// Folders and files of prepacked caches, and a model for them, for test_packed.c and test_packed_model.c.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/packed.h"
#include "testkit/model_gen.h"
#include "tests/place.h"

enum { HEADER_BYTES = 64, ENTRY_BYTES = 48 };

// ---- a folder and a cache in it

typedef struct temp_dir {
    char path[64];
} temp_dir;

static temp_dir made[128];
static size_t n_made;

static inline temp_dir make_dir(void) {
    temp_dir d = {"/tmp/kin-test-packed-XXXXXX"};
    assert_true(n_made < sizeof made / sizeof *made && mkdtemp(d.path));
    return made[n_made++] = d;
}
#define make_dir(...) FROM_TEST(make_dir(__VA_ARGS__))

// Removes the remaining files, including those of failed tests.
static inline int remove_made(void **state) {
    (void)state;
    char command[128];
    int failed = 0;
    for (size_t i = 0; i < n_made && snprintf(command, sizeof command, "rm -rf %.63s", made[i].path) > 0; i++)
        failed |= system(command);
    return failed;
}

static inline void remove_dir(const temp_dir *d, const char *file) {
    char note[1100];
    snprintf(note, sizeof note, "%s" KIN_PACKED_CHECKED_SUFFIX, file);
    unlink(note);
    unlink(file);
    rmdir(d->path);
}

typedef struct file_path {
    char text[1024];
} file_path;

static inline void flip(const char *path, off_t at, uint8_t bits) {
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= bits;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}
#define flip(...) FROM_TEST(flip(__VA_ARGS__))

static inline void copy_file(const char *from, const char *to) {
    uint8_t bytes[4096];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, bytes, sizeof bytes)) > 0;) assert_int_equal(write(out, bytes, (size_t)n), n);
    close(in);
    close(out);
}
#define copy_file(...) FROM_TEST(copy_file(__VA_ARGS__))

// ---- a model's weights through the cache

enum { N_IDS = 9, N_VOCAB = 1024 };

typedef struct big_model {
    char path[64];
    float want[N_IDS * N_VOCAB]; // logits without a cache
} big_model;

// Generates a model with 48 MiB of Q4_0, enough for kin_weights to use a cache.
static inline int generate(big_model *m, uint64_t seed) {
    kin_model_spec spec;
    kin_err err;
    *m = (big_model){.path = "/tmp/kin-test-packed-model-XXXXXX"};
    int fd = mkstemp(m->path);
    if (fd < 0 || kin_model_spec_preset(&spec, "25m", &err) != 0) return -1;
    close(fd);
    spec.n_layer = 10;
    spec.n_embd = 1024;
    spec.n_ff = 2048;
    spec.mix = "q4_0";
    spec.seed = seed;
    return kin_model_gen(&spec, m->path, &err);
}

static inline int make_big_model(void **state) {
    static big_model m;
    *state = &m;
    return generate(&m, 1);
}

static inline int remove_big_model(void **state) {
    unlink(((big_model *)*state)->path);
    return 0;
}

#define MODEL_TEST(name) cmocka_unit_test_setup_teardown(name, make_big_model, remove_big_model)
