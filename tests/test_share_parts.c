// A device of a group with a sparse file that has only the chunks of its slices: it computes, packs and streams the same bits as
// with the whole file.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ggml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/packed.h"
#include "engine/shard_memory.h"
#include "fetch/lazy_load.h"
#include "fetch/missing_chunks.h"
#include "model/manifest.h"
#include "model/model.h"
#include "pipeline/engine_instance.h"
#include "testkit/model_gen.h"
#include "tests/place.h"

enum { N_LAYER = 2, N_TOKENS = 4, N_CTX = 64, N_BATCH = 16, TICKET = 3, N_RANKS = 2 };

typedef struct context {
    char folder[64], path[96];
    kin_model model;
    kin_manifest manifest;
    kin_store *whole, *parts;
    kin_share share; // the second device's share
    kin_lazy_load *lazy_load;
    kin_lazy_load_view view;
    kin_arrival arrival;
    kin_message_pool *pool;
    atomic_bool stop;
} context;

static void ok(int rc, const kin_err *err) {
    if (rc != 0) fail_msg("%s", err->text);
}
#define ok(...) FROM_TEST(ok(__VA_ARGS__))

static kin_windows all_layers(void) {
    return kin_windows_one(0, N_LAYER, 0);
}

// Copies the chunks of the share's slices. Returns the number of the model's other chunks.
static uint32_t fill_parts(context *w) {
    static uint8_t bytes[KIN_CHUNK_BYTES_MIN];
    kin_windows windows = all_layers();
    kin_missing_chunks missing;
    kin_err err;
    for (int pass = 0; pass < 2; pass++) { // first the headers, then the chunks that these list
        ok(kin_missing_chunks_make(&missing, pass == 0 ? w->whole : w->parts, &windows, &w->share, &err), &err);
        size_t n = pass == 0 ? missing.ends[0] : missing.n;
        for (size_t i = 0; i < n; i++) {
            uint32_t n_bytes = kin_manifest_chunk(&w->manifest, missing.chunks[i]).bytes;
            ok(kin_store_read(w->whole, missing.chunks[i], 0, bytes, n_bytes, &err), &err);
            assert_int_equal(kin_store_put(w->parts, missing.chunks[i], bytes, n_bytes, &err), KIN_STORE_OK);
        }
        if (pass == 1) break;
        kin_missing_chunks_fini(&missing);
    }
    uint32_t n_absent = w->manifest.n_chunks - (uint32_t)missing.n;
    kin_missing_chunks_fini(&missing);
    return n_absent;
}
#define fill_parts(...) FROM_TEST(fill_parts(__VA_ARGS__))

static int open_context(void **state) {
    context *w = *state = calloc(1, sizeof *w);
    kin_model_spec spec = kin_model_spec_defaults();
    kin_manifest_options o = kin_manifest_options_defaults();
    kin_share shares[N_RANKS];
    kin_err err;
    strcpy(w->folder, "/tmp/kin-test-parts-XXXXXX");
    if (!mkdtemp(w->folder)) return -1;
    snprintf(w->path, sizeof w->path, "%s/model.gguf", w->folder);
    const char *path = w->path;
    spec.mix = "q4_0"; // a type that many CPUs pack
    spec.n_layer = N_LAYER;
    o.chunk_bytes = KIN_CHUNK_BYTES_MIN;
    ok(kin_model_gen(&spec, w->path, &err), &err);
    ok(kin_model_open(&w->model, w->path, &err), &err);
    ok(kin_share_split(&w->model, GGML_TYPE_F16, (double[]){1, 1}, N_RANKS, shares, &err), &err);
    w->share = shares[1];
    ok(kin_manifest_make(&w->manifest, &path, 1, &o, &err), &err);
    ok(kin_store_open_files(&w->whole, &w->manifest, &path, &err), &err);
    ok(kin_store_open(&w->parts, w->folder, &w->manifest, KIN_STORE_FILL, &err), &err);
    ok(kin_lazy_load_open(&w->lazy_load, &w->stop, &err), &err);
    ok(kin_message_pool_open(&w->pool, 4, &err), &err);
    uint32_t n_absent = fill_parts(w);
    print_message("%u of %u chunks are absent\n", (unsigned)n_absent, (unsigned)w->manifest.n_chunks);
    assert_true(n_absent > w->manifest.n_chunks / 4);
    kin_lazy_load_begin(w->lazy_load, TICKET, w->parts);
    kin_lazy_load_is_whole(w->lazy_load); // so waiting for another chunk fails
    w->view = (kin_lazy_load_view){w->lazy_load, TICKET, false};
    w->arrival = kin_lazy_load_arrival(&w->view);
    return 0;
}

static int close_context(void **state) {
    context *w = *state;
    char command[128];
    kin_message_pool_close(w->pool);
    kin_lazy_load_close(w->lazy_load);
    kin_store_close(w->parts);
    kin_store_close(w->whole);
    kin_manifest_fini(&w->manifest);
    kin_model_close(&w->model);
    snprintf(command, sizeof command, "rm -r %s", w->folder);
    free(w);
    return system(command);
}

static kin_proto_plan plan_of(const context *w) {
    kin_proto_plan p = {.flags = KIN_PROTO_PLAN_REPACK,
                        .n_files = 1,
                        .file_size = {w->manifest.files[0].size},
                        .n_ctx = N_CTX,
                        .n_seq = 1,
                        .n_batch = N_BATCH,
                        .n_rounds = 1,
                        .n_windows = 1,
                        .window = {{0, 0, N_LAYER, 0, 0}}};
    memcpy(p.model.bytes, w->manifest.hash, sizeof p.model.bytes);
    p.group = (kin_proto_group){.n_ranks = w->share.n_ranks,
                                .rank = w->share.rank,
                                .head_begin = (uint16_t)w->share.head_begin,
                                .head_end = (uint16_t)w->share.head_end,
                                .ff_begin = (uint32_t)w->share.ff_begin,
                                .ff_end = (uint32_t)w->share.ff_end};
    return p;
}

// A sum without the other devices: leaves this device's part.
static int add_nothing(void *user, float *x, int n_rows, int n_embd, kin_err *err) {
    (void)user, (void)x, (void)n_rows, (void)n_embd, (void)err;
    return 0;
}

static kin_engine_instance_options options_of(context *w, bool in_parts) {
    kin_engine_instance_options o = {
        .model_path = w->path, .n_threads = 2, .pool = w->pool, .stop = &w->stop, .sum = {.add = add_nothing}};
    if (!in_parts) return o;
    o.model_path = kin_store_path(w->parts, 0);
    o.in_parts = true;
    o.arrival = &w->arrival;
    return o;
}

static void compute(context *w, const kin_engine_instance_options *o, float *x, kin_shard_stats *stats) {
    static const int32_t pos[N_TOKENS] = {0, 1, 2, 3};
    kin_batch batch = {.n_tokens = N_TOKENS, .pos = pos};
    kin_proto_plan plan = plan_of(w);
    kin_engine_instance *instance;
    kin_err err;
    ok(kin_engine_instance_open(&instance, &plan, o, &err), &err);
    for (int i = 0; i < N_TOKENS * w->model.hp.n_embd; i++) x[i] = (float)(i % 37) / 37;
    ok(kin_stage_executor_begin(kin_engine_instance_executor(instance), 1, &batch, &err), &err);
    int n = kin_stage_executor_run(kin_engine_instance_executor(instance), 1, 0, N_TOKENS, x, &err);
    if (n != N_TOKENS) fail_msg("%s", err.text);
    *stats = kin_engine_instance_stats(instance);
    kin_engine_instance_close(instance);
}

static void expect_same(context *w, const kin_engine_instance_options *o, kin_shard_stats *stats) {
    static float want[N_TOKENS * 256], got[N_TOKENS * 256];
    kin_engine_instance_options whole = options_of(w, false);
    assert_int_equal(w->model.hp.n_embd, 256);
    compute(w, &whole, want, stats);
    compute(w, o, got, stats);
    assert_memory_equal(got, want, sizeof got);
}
#define expect_same(...) FROM_TEST(expect_same(__VA_ARGS__))

// ---- the claims

static void its_bits_are_those_of_the_whole_file(void **state) {
    context *w = *state;
    kin_shard_stats s;
    kin_engine_instance_options o = options_of(w, true);
    expect_same(w, &o, &s);
}

// Returns memory for a shard of this plan with three quarters of its weights.
static uint64_t little_memory(const context *w) {
    kin_shard_options so = kin_shard_options_defaults(&w->model);
    uint64_t weights = 0;
    so.windows = all_layers();
    so.share = w->share;
    so.n_ctx = N_CTX;
    so.n_batch = N_BATCH;
    so.kv_type = GGML_TYPE_F16;
    so.flash = false;
    so.output = false;
    for (int il = 0; il < N_LAYER; il++) weights += kin_share_layer_bytes(&w->share, &w->model, il);
    return kin_shard_fixed_bytes(&w->model, &so) + weights * 3 / 4;
}

static void what_streams_has_them_too(void **state) {
    context *w = *state;
    kin_shard_stats s;
    kin_engine_instance_options o = options_of(w, true);
    o.memory = little_memory(w);
    o.cache_dir = w->folder;
    for (int i = 0; i < 2; i++) { // packs first, then uses the cache
        expect_same(w, &o, &s);
        assert_true(s.weights.stream.read_bytes > 0);
    }
}

static void it_is_packed_ahead_without_the_other_chunks(void **state) {
    context *w = *state;
    kin_engine_instance_options o = options_of(w, true);
    kin_proto_plan plan = plan_of(w);
    kin_packed *held = NULL;
    kin_shard_stats s;
    kin_err err;
    o.memory = little_memory(w);
    o.cache_dir = w->folder;
    kin_engine_instance_options ahead = o;
    ahead.arrival = NULL;
    ok(kin_engine_instance_prepack(&plan, &ahead, &(kin_windows){0}, &w->stop, &held, &err), &err);
    expect_same(w, &o, &s);
    kin_packed_close(held);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(its_bits_are_those_of_the_whole_file, open_context, close_context),
        cmocka_unit_test_setup_teardown(what_streams_has_them_too, open_context, close_context),
        cmocka_unit_test_setup_teardown(it_is_packed_ahead_without_the_other_chunks, open_context, close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
