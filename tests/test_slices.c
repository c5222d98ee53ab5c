// Slices of weights: a slice that is opened, packed, cached or streamed has exactly its own bytes, and its rows give the same
// products as in the whole matrix.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/weights.h"
#include "model/blocks.h"
#include "model/kernel/ops.h"
#include "model/ranges.h"
#include "testkit/model_gen.h"
#include "testkit/sanitized.h"
#include "tests/place.h"

enum { N_X = 3, N_EMBD = 768, N_FF = 768, MAX_PARTS = 3, MAX_MADE = 16 };

typedef struct context {
    char folder[64], path[128], cache[128];
    kin_model model;
    kin_devices devices;
    bool streamed;
} context;

static void ok(int rc, const kin_err *err) {
    if (rc != 0) fail_msg("%s", err->text);
}
#define ok(...) FROM_TEST(ok(__VA_ARGS__))

// Generated models, reused because quantizing one takes longer than a test.
static struct {
    char path[64];
    const char *arch, *mix;
} made[MAX_MADE];

static void make_model(const char *arch, const char *mix, const char *path) {
    kin_err err;
    kin_model_spec spec = kin_model_spec_defaults();
    spec.arch = arch;
    spec.mix = mix;
    spec.n_layer = 1;
    spec.n_embd = N_EMBD;
    spec.n_ff = N_FF;
    spec.n_head = 12;
    spec.n_head_kv = 3;
    spec.head_dim = 64;
    if (strcmp(arch, "qwen3moe") == 0) spec.n_expert = 3, spec.n_expert_used = 2, spec.n_ff_exp = N_FF;
    ok(kin_model_gen(&spec, path, &err), &err);
}

static const char *model_of(const char *arch, const char *mix) {
    int i = 0;
    while (made[i].arch && (strcmp(made[i].arch, arch) != 0 || strcmp(made[i].mix, mix) != 0)) assert_true(++i < MAX_MADE);
    if (!made[i].arch) {
        strcpy(made[i].path, "/tmp/kin-test-slices-XXXXXX");
        int fd = mkstemp(made[i].path);
        assert_true(fd >= 0 && close(fd) == 0);
        make_model(arch, mix, made[i].path);
        made[i].arch = arch;
        made[i].mix = mix;
    }
    return made[i].path;
}

static int remove_models(void **state) {
    (void)state;
    for (int i = 0; i < MAX_MADE && made[i].arch; i++) unlink(made[i].path);
    return 0;
}

static context open_context(const char *arch, const char *mix, bool repack, bool streamed) {
    context w = {.folder = "/tmp/kin-test-slices-XXXXXX", .streamed = streamed};
    kin_err err;
    kin_device_options o = kin_device_options_defaults();
    assert_non_null(mkdtemp(w.folder));
    snprintf(w.path, sizeof w.path, "%s", model_of(arch, mix));
    snprintf(w.cache, sizeof w.cache, "%s/cache", w.folder);
    ok(kin_model_open(&w.model, w.path, &err), &err);
    o.repack = repack;
    o.n_threads = 1;
    ok(kin_devices_open(&w.devices, &o, &err), &err);
    return w;
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

// Removes the cache's files. Returns how many of them are caches.
static int empty_cache(const context *w) {
    int n = 0;
    DIR *dir = opendir(w->cache);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[512];
        size_t len = strlen(e->d_name);
        snprintf(path, sizeof path, "%s/%s", w->cache, e->d_name);
        n += unlink(path) == 0 && len > 5 && strcmp(e->d_name + len - 5, ".pack") == 0;
    }
    if (dir) closedir(dir);
    rmdir(w->cache);
    return n;
}

static void close_context(context *w) {
    kin_model_close(&w->model);
    kin_devices_close(&w->devices);
    empty_cache(w);
    assert_int_equal(rmdir(w->folder), 0);
}
#define close_context(...) FROM_TEST(close_context(__VA_ARGS__))

static kin_weights_options options_of(const context *w, const kin_slices *slices) {
    kin_weights_options o = {.windows = kin_windows_one(0, 1, 0), .slices = *slices, .cache_dir = w->cache, .budget = UINT64_MAX};
    if (w->streamed) o.budget = kin_weights_cpu_bytes(&w->model, &o) * 3 / 4;
    return o;
}

// Each weight as seen during a pass over the layer.
typedef struct seen {
    float *y[KIN_W_COUNT]; // f32 [N_X, rows], the products of dense matrices
    uint8_t *bytes[KIN_W_COUNT];
    int64_t ne[KIN_W_COUNT][3];
    bool packed[KIN_W_COUNT];
} seen;

static void free_seen(seen *s) {
    for (int id = 0; id < KIN_W_COUNT; id++) {
        free(s->y[id]);
        free(s->bytes[id]);
    }
}

// Multiplies like the model's graphs.
static float *product(const context *w, struct ggml_tensor *weight) {
    struct ggml_init_params params = {.mem_size = 32 << 20};
    struct ggml_context *ctx = ggml_init(params);
    kin_graph g = {.ctx = ctx, .gf = ggml_new_graph(ctx), .hp = &w->model.hp, .kernels = w->devices.cpu.kernels, .n_threads = 1};
    g.max_ops = 8;
    g.ops = calloc(8, kin_op_bytes());
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, weight->ne[0], N_X);
    for (int64_t i = 0; i < weight->ne[0] * N_X; i++) ((float *)x->data)[i] = (float)((i * 7919 + i / 13) % 251 - 125) / 64;
    struct ggml_tensor *y = kin_block_output(&g, weight, x);
    ggml_build_forward_expand(g.gf, y);
    assert_int_equal(ggml_backend_graph_compute(w->devices.cpu.backend, g.gf), GGML_STATUS_SUCCESS);
    float *copy = malloc(ggml_nbytes(y));
    memcpy(copy, y->data, ggml_nbytes(y));
    ggml_free(ctx);
    free(g.ops);
    return copy;
}

static int compute_block_of(const context *w, int id) {
    kin_weight_block block = kin_weight_block_of(id);
    if (block == KIN_WEIGHT_BLOCK_ATTN) return 0;
    return block >= KIN_WEIGHT_BLOCK_FFN_DOWN ? kin_weights_n_compute_blocks(&w->model.hp, 0) - 1 : 1;
}

static void look(const context *w, kin_weights *weights, int i_compute_block, seen *s) {
    struct ggml_tensor *const *layer = kin_weights_layer(weights, 0);
    for (int id = 0; id < KIN_W_COUNT; id++) {
        struct ggml_tensor *t = layer[id];
        if (!t || compute_block_of(w, id) != i_compute_block) continue;
        const size_t matrix = ggml_row_size(t->type, t->ne[0]) * (size_t)t->ne[1];
        free(s->bytes[id]);
        s->bytes[id] = malloc(matrix * (size_t)t->ne[2]);
        for (int64_t i = 0; i < t->ne[2]; i++) // of experts, other matrices may lie in between
            memcpy(s->bytes[id] + (size_t)i * matrix, (const uint8_t *)t->data + (size_t)i * t->nb[2], matrix);
        memcpy(s->ne[id], t->ne, sizeof s->ne[id]);
        s->packed[id] = kin_ops_is_packed(t);
        free(s->y[id]);
        s->y[id] = kin_weight_is_vector(id) || kin_weight_is_experts(id) ? NULL : product(w, t);
    }
}

// Runs two passes: streamed weights are read again in the second one.
static seen pass(const context *w, const kin_slices *slices, bool want_cached) {
    seen s = {0};
    kin_weights *weights;
    kin_err err;
    kin_weights_options o = options_of(w, slices);
    ok(kin_weights_open(&weights, &w->model, &w->devices, &o, &err), &err);
    kin_weights_stats stats = kin_weights_get_stats(weights);
    if (want_cached) assert_true(stats.packed_bytes == 0);
    for (int k = 0; k < 2; k++) {
        bool acquires = kin_weights_begin(weights, kin_weights_compute_block(weights, 0), false);
        for (int i = 0; i < kin_weights_n_compute_blocks(&w->model.hp, 0); i++) {
            if (acquires) ok(kin_weights_acquire(weights, kin_weights_compute_block(weights, 0) + i, &err), &err);
            look(w, weights, i, &s);
            if (acquires) kin_weights_release(weights, kin_weights_compute_block(weights, 0) + i);
        }
    }
    if (w->streamed && w->model.hp.n_expert == 0) assert_true(kin_weights_get_stats(weights).stream.read_bytes > 0);
    kin_weights_close(weights);
    return s;
}
#define pass(...) FROM_TEST(pass(__VA_ARGS__))

// Returns part i of n of every weight that can be split in this dimension.
static kin_slices part_of(const context *w, kin_slice_dim dim, int i, int n) {
    kin_slices s = {0};
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *t = w->model.layers[0].w[id];
        if (t && !kin_weight_is_vector(id) && kin_slice_can_split(t, dim, n)) s.of[id] = kin_slice_part(t, dim, i, n);
    }
    return s;
}

// Returns whether a row of each of the tensor's matrices belongs to the slice.
static bool has_row(const kin_gguf_tensor *t, const kin_slice *s, int64_t row) {
    const int64_t at = s->dim == KIN_SLICE_HALVES ? row % (t->ne[1] / 2) : row;
    return (s->dim != KIN_SLICE_ROWS && s->dim != KIN_SLICE_HALVES) || (at >= s->begin && at < s->end);
}

static int64_t count_rows(const kin_gguf_tensor *t, const kin_slice *s) {
    int64_t n = 0;
    for (int64_t r = 0; r < t->ne[1]; r++) n += has_row(t, s, r);
    return n;
}

// Returns the slice's bytes from the file, row by row, and packed if the tensor is.
static uint8_t *expected_bytes(const kin_gguf_tensor *t, const kin_slice *s, bool packed, size_t *n) {
    bool columns = s->dim == KIN_SLICE_COLUMNS;
    int64_t c0 = columns ? s->begin : 0, nc = columns ? s->end - s->begin : t->ne[0], nr = count_rows(t, s);
    size_t whole = ggml_row_size(t->type, t->ne[0]), from = ggml_row_size(t->type, c0), row = ggml_row_size(t->type, nc);
    *n = row * (size_t)(nr * t->ne[2]);
    uint8_t *raw = malloc(*n), *at = raw;
    for (int64_t e = 0; e < t->ne[2]; e++) {
        for (int64_t r = 0; r < t->ne[1]; r++) {
            if (!has_row(t, s, r)) continue;
            memcpy(at, t->data + (size_t)(e * t->ne[1] + r) * whole + from, row);
            at += row;
        }
    }
    if (!packed) return raw;
    uint8_t *panels = malloc(*n);
    kin_kernel_pack(t->type, nc, nr * t->ne[2], raw, panels);
    free(raw);
    return panels;
}

static void expect_slice(const context *w, const kin_slices *slices, const seen *s) {
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *t = w->model.layers[0].w[id];
        if (!t) continue;
        size_t n;
        uint8_t *want = expected_bytes(t, &slices->of[id], s->packed[id], &n);
        assert_memory_equal(s->bytes[id], want, n);
        free(want);
    }
}
#define expect_slice(...) FROM_TEST(expect_slice(__VA_ARGS__))

// Expects the product with the slice to equal rows [begin, end) of the product with the whole matrix.
static void expect_rows(const seen *whole, const seen *part, const kin_slices *slices) {
    for (int id = 0; id < KIN_W_COUNT; id++) {
        if (!part->y[id]) continue;
        bool sliced = slices->of[id].dim == KIN_SLICE_ROWS;
        int64_t all = whole->ne[id][1], n = part->ne[id][1], begin = sliced ? slices->of[id].begin : 0;
        assert_int_equal(n, sliced ? slices->of[id].end - begin : all);
        for (int i = 0; i < N_X; i++)
            assert_memory_equal(part->y[id] + i * n, whole->y[id] + i * all + begin, (size_t)n * sizeof(float));
    }
}

static int n_sliced(const kin_slices *slices) {
    int n = 0;
    for (int id = 0; id < KIN_W_COUNT; id++) n += slices->of[id].dim != KIN_SLICE_FULL;
    return n;
}

static void slice_all_ways(const char *arch, const char *mix, bool repack, bool streamed, int n_least) {
    context w = open_context(arch, mix, repack, streamed);
    const kin_slices full = {0};
    seen whole = pass(&w, &full, false);
    expect_slice(&w, &full, &whole);
    for (int d = KIN_SLICE_ROWS; d <= KIN_SLICE_HALVES; d++) {
        for (int n = 2; n <= MAX_PARTS; n++) {
            for (int i = 0; i < n; i++) {
                kin_slices slices = part_of(&w, (kin_slice_dim)d, i, n);
                assert_true(n_sliced(&slices) >= n_least);
                seen s = pass(&w, &slices, false);
                expect_slice(&w, &slices, &s);
                if (d == KIN_SLICE_ROWS) expect_rows(&whole, &s, &slices);
                free_seen(&s);
            }
        }
    }
    free_seen(&whole);
    close_context(&w);
}
#define slice_all_ways(...) FROM_TEST(slice_all_ways(__VA_ARGS__))

static const char *const mixes[] = {"q4_k", "q6_k", "q8_0", "f16"};
enum { N_MIXES = sizeof mixes / sizeof mixes[0] };

static void products_of_row_slices_are_those_of_the_whole_and_columns_are_its_blocks(void **state) {
    (void)state;
    for (int i = 0; i < N_MIXES; i++) {
        for (int repack = 0; repack < 2; repack++) slice_all_ways("llama", mixes[i], repack, false, 7);
    }
}

static void streamed_slices_are_the_same(void **state) {
    (void)state;
    for (int i = 0; i < N_MIXES; i++) {
        for (int repack = 0; repack < 2; repack++) {
            if (!KIN_SANITIZED || repack == i % 2) slice_all_ways("llama", mixes[i], repack, true, 7);
        }
    }
}

static void slices_of_experts_are_a_piece_of_each(void **state) {
    (void)state;
    slice_all_ways("qwen3moe", "q4_k", true, false, 7);
    slice_all_ways("qwen3moe", "q8_0", false, false, 7);
}

static void each_slice_has_a_cache_of_its_own_and_finds_it_again(void **state) {
    (void)state;
    context w = open_context("llama", "q4_k", true, true);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < 2; i++) {
            kin_slices rows = part_of(&w, KIN_SLICE_ROWS, i, 2), columns = part_of(&w, KIN_SLICE_COLUMNS, i, 3);
            seen a = pass(&w, &rows, again), b = pass(&w, &columns, again);
            expect_slice(&w, &rows, &a);
            expect_slice(&w, &columns, &b);
            free_seen(&a);
            free_seen(&b);
        }
    }
    assert_int_equal(empty_cache(&w), 4);
    close_context(&w);
}

static void slices_in_pieces_are_not_streamed_without_a_cache(void **state) {
    (void)state;
    context w = open_context("llama", "f16", false, true);
    kin_slices slices = part_of(&w, KIN_SLICE_COLUMNS, 0, 2);
    kin_weights_options o = options_of(&w, &slices);
    kin_weights *weights;
    kin_err err;
    o.cache_dir = NULL;
    assert_int_equal(kin_weights_open(&weights, &w.model, &w.devices, &o, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "prepacked cache"));
    close_context(&w);
}

// ---- valid slices

static void slices_end_where_blocks_and_panels_do(void **state) {
    (void)state;
    const kin_gguf_tensor q4 = {.name = {"a", 1}, .type = GGML_TYPE_Q4_K, .ne = {768, 48, 1, 1}, .n_bytes = 48 * 3 * 144};
    const kin_gguf_tensor bias = {.name = {"b", 1}, .type = GGML_TYPE_F32, .ne = {48, 1, 1, 1}, .n_bytes = 48 * 4};
    const kin_gguf_tensor odd = {.name = {"c", 1}, .type = GGML_TYPE_Q8_0, .ne = {96, 40, 1, 1}, .n_bytes = 40 * 3 * 34};
    const kin_slice wrong[] = {{KIN_SLICE_ROWS, 0, 8},      {KIN_SLICE_ROWS, 16, 16},   {KIN_SLICE_ROWS, -16, 16},
                               {KIN_SLICE_ROWS, 32, 64},    {KIN_SLICE_COLUMNS, 0, 32}, {KIN_SLICE_COLUMNS, 128, 384},
                               {KIN_SLICE_COLUMNS, 0, 1024}};
    kin_err err;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) assert_int_equal(kin_slice_check(&wrong[i], &q4, &err), KIN_FAIL);
    assert_int_equal(kin_slice_check(&(kin_slice){KIN_SLICE_ROWS, 16, 48}, &q4, &err), 0);
    assert_int_equal(kin_slice_check(&(kin_slice){KIN_SLICE_COLUMNS, 256, 512}, &q4, &err), 0);
    assert_true(kin_slice_can_split(&q4, KIN_SLICE_ROWS, 3) && kin_slice_can_split(&q4, KIN_SLICE_COLUMNS, 3));
    assert_false(kin_slice_can_split(&q4, KIN_SLICE_ROWS, 4) || kin_slice_can_split(&q4, KIN_SLICE_COLUMNS, 4));
    assert_true(kin_slice_can_split(&bias, KIN_SLICE_ROWS, 3));
    assert_false(kin_slice_can_split(&bias, KIN_SLICE_COLUMNS, 1));
    kin_slice_view v = kin_slice_view_of(&(kin_slice){KIN_SLICE_ROWS, 16, 48}, &bias);
    assert_true(v.ne[0] == 32 && v.ne[1] == 1 && v.first == 64 && v.bytes == 128 && v.n_runs == 1);
    assert_false(kin_slice_can_split(&odd, KIN_SLICE_ROWS, 2)); // no kernel takes 40 rows, but one may take a slice
    assert_true(kin_slice_can_split(&odd, KIN_SLICE_COLUMNS, 3));
}

static void parts_are_the_whole_without_gaps(void **state) {
    (void)state;
    const kin_gguf_tensor t = {.name = {"a", 1}, .type = GGML_TYPE_Q6_K, .ne = {2560, 112, 1, 1}, .n_bytes = 112 * 10 * 210};
    for (int d = KIN_SLICE_ROWS; d <= KIN_SLICE_HALVES; d++) {
        for (int n = 1; kin_slice_can_split(&t, (kin_slice_dim)d, n); n++) {
            int64_t at = 0;
            for (int i = 0; i < n; i++) {
                kin_slice s = kin_slice_part(&t, (kin_slice_dim)d, i, n);
                kin_err err;
                ok(kin_slice_check(&s, &t, &err), &err);
                assert_int_equal(s.begin, at);
                at = s.end;
            }
            assert_int_equal(at, d == KIN_SLICE_ROWS ? t.ne[1] : t.ne[0]);
        }
    }
}

// ---- ranges of the file

// Marks bytes of layer 0: 1 if they belong to the slices, 2 for padding after a tensor, which may be in a range.
static uint8_t *mark_wanted(const context *w, const kin_slices *slices, uint64_t size) {
    uint8_t *wanted = calloc(1, size);
    for (int id = 0; id < KIN_W_COUNT; id++) {
        const kin_gguf_tensor *t = w->model.layers[0].w[id];
        if (!t) continue;
        const kin_slice *s = &slices->of[id];
        bool columns = s->dim == KIN_SLICE_COLUMNS;
        size_t row = ggml_row_size(t->type, t->ne[0]);
        size_t from = columns ? ggml_row_size(t->type, s->begin) : 0, to = columns ? ggml_row_size(t->type, s->end) : row;
        for (int64_t r = 0; r < t->ne[1] * t->ne[2]; r++) {
            if (has_row(t, s, r % t->ne[1])) memset(wanted + t->offset + (size_t)r * row + from, 1, to - from);
        }
        for (uint64_t p = t->offset + t->n_bytes; p % 32 != 0 && p < size; p++) wanted[p] = 2;
    }
    return wanted;
}

static void expect_ranges(const context *w, const kin_slices *slices) {
    kin_range *ranges;
    size_t n;
    kin_err err;
    uint64_t size = kin_gguf_file_size(w->model.gguf, 0);
    uint8_t *wanted = mark_wanted(w, slices, size), *got = calloc(1, size);
    kin_ranges_wanted rw = {.layer_end = 1, .slices = *slices};
    ok(kin_ranges_list(w->model.gguf, &rw, &ranges, &n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        for (uint64_t p = ranges[i].offset; p < ranges[i].offset + ranges[i].bytes; p++) assert_int_equal(got[p]++, 0);
    }
    for (uint64_t p = 0; p < size; p++) assert_true(wanted[p] == 2 || wanted[p] == got[p]);
    free(ranges);
    free(wanted);
    free(got);
}
#define expect_ranges(...) FROM_TEST(expect_ranges(__VA_ARGS__))

static void ranges_of_slices_are_their_bytes_and_no_others(void **state) {
    (void)state;
    const char *const archs[] = {"llama", "qwen3moe"};
    for (int a = 0; a < 2; a++) {
        context w = open_context(archs[a], "q4_k", true, false);
        expect_ranges(&w, &(kin_slices){0});
        for (int d = KIN_SLICE_ROWS; d <= KIN_SLICE_HALVES; d++) {
            for (int i = 0; i < MAX_PARTS; i++) {
                kin_slices slices = part_of(&w, (kin_slice_dim)d, i, MAX_PARTS);
                expect_ranges(&w, &slices);
            }
        }
        close_context(&w);
    }
}

static void ranges_of_a_slice_that_does_not_fit_are_refused(void **state) {
    (void)state;
    context w = open_context("llama", "q4_k", true, false);
    kin_ranges_wanted rw = {.layer_end = 1};
    kin_range *ranges;
    size_t n;
    kin_err err;
    rw.slices.of[KIN_W_FFN_DOWN] = (kin_slice){KIN_SLICE_COLUMNS, 0, 100};
    assert_int_equal(kin_ranges_list(w.model.gguf, &rw, &ranges, &n, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "blk.0.ffn_down.weight"));
    close_context(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_end_where_blocks_and_panels_do),
        cmocka_unit_test(parts_are_the_whole_without_gaps),
        cmocka_unit_test(ranges_of_slices_are_their_bytes_and_no_others),
        cmocka_unit_test(ranges_of_a_slice_that_does_not_fit_are_refused),
        cmocka_unit_test(products_of_row_slices_are_those_of_the_whole_and_columns_are_its_blocks),
        cmocka_unit_test(streamed_slices_are_the_same),
        cmocka_unit_test(slices_of_experts_are_a_piece_of_each),
        cmocka_unit_test(each_slice_has_a_cache_of_its_own_and_finds_it_again),
        cmocka_unit_test(slices_in_pieces_are_not_streamed_without_a_cache),
    };
    return cmocka_run_group_tests(tests, NULL, remove_models);
}
