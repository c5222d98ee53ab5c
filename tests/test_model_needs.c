// Memory that a model needs beside its weights, computed from the beginning of its file.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/model_needs.h"
#include "engine/shard.h"
#include "engine/shard_memory.h"
#include "model/model.h"
#include "sys/whole_file.h"
#include "tests/place.h"

#define DEMO KIN_SOURCE_DIR "/assets/demo.gguf"

static uint8_t *file; // [n_file]
static size_t n_file;

static int read_demo(void **state) {
    (void)state;
    return kin_whole_file_read(DEMO, 64 << 20, &file, &n_file, NULL);
}

static int free_demo(void **state) {
    (void)state;
    free(file);
    return 0;
}

// Asks with more and more bytes, as a download does. Returns the number of bytes that were enough.
static uint64_t ask(uint64_t n, uint64_t file_size, uint64_t *beside) {
    uint64_t reach;
    int rc;
    while ((rc = kin_model_needs(file, n, file_size, &reach, beside)) == KIN_ABSENT) {
        assert_true(reach > n && reach <= n_file);
        n = reach;
    }
    assert_int_equal(rc, 0);
    return n;
}
#define ask(...) FROM_TEST(ask(__VA_ARGS__))

static void the_header_suffices_and_gives_what_a_shard_plans_with(void **state) {
    (void)state;
    kin_model model;
    kin_err err;
    uint64_t beside = 0, whole = 0;
    assert_true(ask(64, n_file, &beside) < n_file / 2);
    ask(n_file, n_file, &whole);
    assert_true(beside == whole);
    assert_int_equal(kin_model_open(&model, DEMO, &err), 0);
    kin_shard_options o = kin_shard_options_defaults(&model);
    o.windows = kin_windows_one(0, model.hp.n_layer, 0);
    o.n_ctx = model.hp.n_ctx_train;
    o.n_sequences = 1;
    o.output = true;
    assert_true(model.hp.n_ctx_train < KIN_NEEDS_CTX);
    assert_true(beside == kin_shard_fixed_bytes(&model, &o));
    kin_model_close(&model);
}

static void what_is_no_model_cannot_be_told(void **state) {
    (void)state;
    static const uint8_t page[] = "<!DOCTYPE html><title>Log in</title>";
    uint64_t reach, beside;
    assert_int_equal(kin_model_needs(page, sizeof page, 1 << 30, &reach, &beside), KIN_FAIL);
    // The directory names tensors beyond the end of a file that is this short.
    uint64_t enough = ask(64, n_file, &beside);
    assert_int_equal(kin_model_needs(file, enough, enough, &reach, &beside), KIN_FAIL);
}

static void a_family_that_is_not_known_cannot_be_told(void **state) {
    (void)state;
    uint64_t reach, beside;
    for (size_t i = 0; i + 5 < n_file; i++)
        if (memcmp(file + i, "llama", 5) == 0) file[i + 1] = 'x';
    assert_int_equal(kin_model_needs(file, n_file, n_file, &reach, &beside), KIN_FAIL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_header_suffices_and_gives_what_a_shard_plans_with),
        cmocka_unit_test(what_is_no_model_cannot_be_told),
        cmocka_unit_test(a_family_that_is_not_known_cannot_be_told),
    };
    return cmocka_run_group_tests(tests, read_demo, free_demo);
}
