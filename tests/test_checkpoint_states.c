// Checkpoints in one device's KV cache: at which blocks a sequence can go on, states cut into parts for the disk, and how far
// apart checkpoints are. tests/test_checkpoints.c has rings that use them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv.h"
#include "engine/kv/pages.h"
#include "tests/block_table.h"
#include "tests/place.h"

static char disk_dir[64];

static int make_disk(void **state) {
    (void)state;
    strcpy(disk_dir, "/tmp/kin-test-checkpoint-states-XXXXXX");
    return mkdtemp(disk_dir) ? 0 : -1;
}

static int remove_disk(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", disk_dir);
    return system(command);
}

// ---- the table

static bool goes_on(kin_kv_blocks *b, int32_t seq) {
    kin_err err;
    int64_t cell;
    kin_kv_blocks_begin_step(b);
    return kin_kv_blocks_append(b, seq, kin_kv_blocks_n_tokens(b, seq), &cell, &err) == 0;
}

static void a_loaded_sequence_goes_on_at_states_only(void **state) {
    const kin_kv_window window = {.size = 100, .n_blocks = 12, .n_most = 8}, none = {0};
    kin_err err;
    (void)state;
    for (int has_window = 0; has_window < 2; has_window++) {
        kin_kv_blocks *b;
        assert_int_equal(kin_kv_blocks_open(&b, 6400, has_window ? 0 : 3, has_window ? &window : &none, &err), 0);
        assert_int_equal(kin_kv_blocks_load(b, 0, 8, false, &err), 0);
        assert_int_equal(kin_kv_blocks_load(b, 0, 8, false, &err), 0);
        assert_int_equal(kin_kv_blocks_n_tokens(b, 0), 1024);
        assert_false(goes_on(b, 0));
        assert_int_not_equal(apply(b, 1, 0, 1024), 0);
        assert_int_equal(kin_kv_blocks_checkpoint(b, 0, 1024), 0);
        assert_int_equal(apply(b, 0, 0, 960), 0);
        assert_int_equal(kin_kv_blocks_load(b, 0, 1, true, &err), 0);
        assert_int_equal(kin_kv_blocks_checkpoint(b, 0, 1030), 1024);
        assert_int_equal(apply(b, 0, 0, 640), 0); // its states were not found after all
        assert_false(goes_on(b, 0));
        assert_int_equal(kin_kv_blocks_load(b, 0, 2, true, &err), 0);
        assert_int_equal(kin_kv_blocks_n_gone(b, 0), has_window ? (768 - 99) / KIN_KV_CELLS : 0);
        assert_int_equal(apply(b, 1, 0, 768), 0); // for another sequence
        assert_true(goes_on(b, 0));
        assert_true(goes_on(b, 1));
        assert_int_not_equal(kin_kv_blocks_load(b, 0, 1, true, &err), 0);
        assert_non_null(strstr(err.text, "is not full"));
        assert_int_not_equal(kin_kv_blocks_load(b, 2, 101, true, &err), 0);
        assert_non_null(strstr(err.text, "is full"));
        assert_int_equal(apply(b, -1, 0, 0), 0);
        assert_int_equal(kin_kv_blocks_n_free(b), kin_kv_blocks_n(b));
        assert_true(kin_kv_blocks_fit(b, 100));
        kin_kv_blocks_close(b);
    }
}

// The last page fits even if the context has less room left than a window.
static void pages_and_a_window_s_blocks_fit_apart(void **state) {
    const kin_kv_window window = {.size = 300, .n_blocks = 12, .n_most = 10};
    kin_kv_blocks *b;
    kin_err err;
    (void)state;
    assert_int_equal(kin_kv_blocks_open(&b, 1280, 0, &window, &err), 0);
    assert_int_equal(kin_kv_blocks_load(b, 0, 19, false, &err), 0);
    assert_true(kin_kv_blocks_fit_load(b, 1, 5));
    assert_false(kin_kv_blocks_fit_load(b, 2, 5));
    assert_int_equal(kin_kv_blocks_load(b, 0, 1, true, &err), 0);
    assert_true(kin_kv_blocks_fit_load(b, 0, 7));
    assert_false(kin_kv_blocks_fit_load(b, 0, 8));
    kin_kv_blocks_close(b);
}

static void a_checkpoint_has_an_empty_log(void **state) {
    kin_kv_blocks *b;
    kin_err err;
    (void)state;
    assert_int_equal(kin_kv_blocks_open(&b, 6400, 3, NULL, &err), 0);
    append(b, 0, 128);
    assert_int_equal(kin_kv_blocks_checkpoint(b, 0, 128), 128);
    append(b, 0, 60);
    append(b, 0, 4);
    assert_int_equal(kin_kv_blocks_checkpoint(b, 0, 192), 0); // the state stands at 188
    append(b, 0, 1);
    assert_int_equal(kin_kv_blocks_checkpoint(b, 0, 193), 192);
    assert_int_equal(apply(b, 1, 0, 192), 0);
    assert_int_equal(kin_kv_blocks_checkpoint(b, 1, 192), 192);
    kin_kv_blocks_close(b);
}

// ---- parts

static const kin_device *on_cpu(const void *user, int il) {
    (void)il;
    return user;
}

static void parts_are_a_state_without_its_log(void **state) {
    static const kin_device cpu;
    kin_layer layers[2] = {{.is_recurrent = true}, {.n_head_kv = 1, .head_dim = 16, .v_dim = 16}};
    kin_hparams hp = {.n_layer = 2, .layers = layers};
    const kin_kv_options o = {.windows = kin_windows_one(0, 2, 0), .n_ctx = 640, .type = GGML_TYPE_F16};
    kin_kv *kv;
    kin_err err;
    (void)state;
    hp.delta = (kin_delta_net){.n_key_heads = 1, .n_value_heads = 2, .head_dim = 32, .key_dim = 32, .n_taps = 4};
    const size_t n_history = 3 * (size_t)kin_delta_n_channels(&hp.delta), n = n_history + 2 * 32 * 32;
    if (kin_kv_open(&kv, &hp, &o, on_cpu, &cpu, &err) != 0) fail_msg("%s", err.text);
    const size_t page = kin_kv_page_bytes(kv), n_parts = (n * sizeof(float) + page - 1) / page;
    assert_int_equal(kin_kv_n_parts(kv, 0, 1), n_parts);
    assert_int_equal(kin_kv_n_parts(kv, 1, 1), 0);
    assert_true(kin_kv_has_parts(kv, 0) && !kin_kv_has_parts(kv, 1));
    assert_int_equal(kin_kv_load(kv, 7, 1, 1, true, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "no pages from block 1 on can follow"));
    assert_int_equal(kin_kv_load(kv, 7, 0, 2, true, &err), 0);
    assert_true(kin_kv_is_at_checkpoint(kv, 7, 2) && !kin_kv_is_at_checkpoint(kv, 7, 1));
    float *all = calloc(n_parts, page), *got = malloc(page);
    for (size_t i = 0; i < n; i++) all[i] = (float)(i + 1);
    for (size_t i = 0; i < n_parts; i++) kin_kv_part_set(kv, 7, 0, (int)i, (const uint8_t *)all + i * page);
    const float *s = kin_kv_layer_states(kv, 0);
    assert_memory_equal(s, all, n_history * sizeof *s);
    assert_true(s[n_history] == 0); // the log
    for (size_t head = 0; head < 2; head++)
        assert_memory_equal(s + kin_delta_history_floats(&hp.delta) + head * kin_delta_head_floats(&hp.delta),
                            all + n_history + head * 32 * 32, 32 * 32 * sizeof *s);
    for (size_t i = 0; i < n_parts; i++) {
        memset(got, 1, page);
        kin_kv_part_get(kv, 7, 0, (int)i, (uint8_t *)got);
        assert_memory_equal(got, (const uint8_t *)all + i * page, page);
        assert_true(kin_kv_part_is_finite(kv, 0, (const uint8_t *)got));
    }
    got[page / sizeof *got - 1] = -INFINITY;
    assert_false(kin_kv_part_is_finite(kv, 0, (const uint8_t *)got));
    free(all);
    free(got);
    kin_kv_close(kv);
}

// A page that one request leaves out is stored by a later one.
static void large_states_are_kept_in_several_requests(void **state) {
    static const kin_device cpu;
    static kin_layer layers[10];
    kin_hparams hp = {.n_layer = 10, .layers = layers};
    const kin_kv_options o = {.windows = kin_windows_one(0, 10, 0), .n_ctx = 640, .type = GGML_TYPE_F16};
    const kin_kv_disk disk = {.dir = disk_dir, .cap = 1 << 28};
    const uint8_t variant[KIN_KV_VARIANT_BYTES] = {1};
    kin_page_request r = {.has_states = true, .first = 1, .n = 1, .keys = {{{5}}}};
    kin_kv *kv;
    kin_kv_pages *pages;
    kin_err err;
    int n_requests = 1;
    (void)state;
    for (int il = 0; il < 9; il++) layers[il] = (kin_layer){.is_recurrent = true};
    layers[9] = (kin_layer){.n_head_kv = 2, .head_dim = 256, .v_dim = 256};
    hp.delta =
        (kin_delta_net){.n_key_heads = 16, .n_value_heads = 32, .head_dim = 128, .key_dim = 128, .n_taps = 4}; // 2.2 MB each
    if (kin_kv_open(&kv, &hp, &o, on_cpu, &cpu, &err) != 0) fail_msg("%s", err.text);
    if (kin_kv_pages_open(&pages, kv, &(kin_border_rows){0}, &disk, variant, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_kv_load(kv, 0, 0, 1, true, &err), 0);
    assert_int_equal(kin_kv_pages_handle(pages, kv, &r, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "no states at the end of block 1"));
    assert_int_equal(kin_kv_load(kv, 0, 1, 1, true, &err), 0);
    for (int il = 0; il < 9; il++) kin_kv_layer_states(kv, il)[7] = (float)il + 0.5f;
    while (kin_kv_pages_handle(pages, kv, &r, &err) == 0) n_requests++;
    assert_int_equal(n_requests, 2);
    r.has_states = false;
    assert_int_equal(kin_kv_pages_handle(pages, kv, &r, &err), 1);
    kin_kv_pages_close(pages);
    if (kin_kv_pages_open(&pages, kv, &(kin_border_rows){0}, &disk, variant, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_kv_load(kv, 1, 0, 1, false, &err), 0);
    r = (kin_page_request){.loads = true, .has_states = true, .seq = 1, .first = 1, .n = 1, .keys = {{{5}}}};
    assert_int_equal(kin_kv_pages_handle(pages, kv, &r, &err), 1);
    const size_t at = kin_state_floats(&hp, 0); // the second state
    for (int il = 0; il < 9; il++) assert_true(kin_kv_layer_states(kv, il)[at + 7] == (float)il + 0.5f);
    kin_kv_pages_close(pages);
    kin_kv_close(kv);
}

// Without keys a page has no bytes, and a state in tiny pages has more parts than there are keys for.
static void states_that_cannot_be_cut_are_not_stored(void **state) {
    static const kin_device cpu;
    kin_layer layers[2] = {{.is_recurrent = true}, {.is_recurrent = true}};
    kin_hparams hp = {.n_layer = 2, .layers = layers};
    kin_kv_options o = {.windows = kin_windows_one(0, 2, 0), .n_ctx = 640, .type = GGML_TYPE_F16};
    const kin_kv_disk disk = {.dir = "/nonexistent", .cap = 1 << 28};
    const uint8_t variant[KIN_KV_VARIANT_BYTES] = {1};
    kin_kv_pages *pages;
    kin_kv *kv;
    kin_err err;
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int head_dim = i == 0 ? 32 : 2048;
        hp.delta = (kin_delta_net){.n_key_heads = 1, .n_value_heads = 2, .head_dim = head_dim, .key_dim = head_dim, .n_taps = 4};
        if (i == 1) layers[1] = (kin_layer){.n_head_kv = 1, .head_dim = 1, .v_dim = 1};
        if (kin_kv_open(&kv, &hp, &o, on_cpu, &cpu, &err) != 0) fail_msg("%s", err.text);
        assert_int_equal(kin_kv_n_parts(kv, 0, 1), 0);
        assert_int_equal(kin_kv_checkpoint_gap(&hp, &o), 0);
        assert_true(kin_kv_checkpoint_bytes(&hp, &o) == 0);
        assert_int_equal(kin_kv_pages_open(&pages, kv, &(kin_border_rows){0}, &disk, variant, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "no pages that its states could be cut into"));
        assert_null(pages);
        kin_kv_close(kv);
    }
}

// As far apart as states weigh what the pages between them do.
static void a_gap_weighs_what_states_do(void **state) {
    kin_layer layers[4] = {
        {.is_recurrent = true}, {.is_recurrent = true}, {.is_recurrent = true}, {.n_head_kv = 2, .head_dim = 256, .v_dim = 256}};
    kin_hparams hp = {.n_layer = 4, .layers = layers};
    kin_kv_options o = {.type = GGML_TYPE_F16};
    (void)state;
    hp.delta = (kin_delta_net){.n_key_heads = 16, .n_value_heads = 32, .head_dim = 128, .key_dim = 128, .n_taps = 4};
    assert_int_equal(kin_kv_checkpoint_gap(&hp, &o), 51 * KIN_KV_CELLS); // three states of 17 parts
    for (int il = 0; il < 3; il++) layers[il].is_recurrent = false;
    assert_int_equal(kin_kv_checkpoint_gap(&hp, &o), 0);
    o.window = (kin_kv_window){.size = 1024, .n_blocks = 30};
    for (int il = 0; il < 3; il++) layers[il] = (kin_layer){.n_head_kv = 2, .head_dim = 256, .v_dim = 256, .is_windowed = true};
    assert_int_equal(kin_kv_checkpoint_gap(&hp, &o), 3 * 1024);
    layers[0] = layers[1] = layers[3];
    o.window.size = 128;
    assert_int_equal(kin_kv_checkpoint_gap(&hp, &o), 512);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loaded_sequence_goes_on_at_states_only),
        cmocka_unit_test(pages_and_a_window_s_blocks_fit_apart),
        cmocka_unit_test(a_checkpoint_has_an_empty_log),
        cmocka_unit_test(parts_are_a_state_without_its_log),
        cmocka_unit_test_setup_teardown(large_states_are_kept_in_several_requests, make_disk, remove_disk),
        cmocka_unit_test(states_that_cannot_be_cut_are_not_stored),
        cmocka_unit_test(a_gap_weighs_what_states_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
