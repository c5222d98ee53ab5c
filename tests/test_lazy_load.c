// Engine instances opened while their weights are still in flight: they open with the first window, wait for the weights that
// they need, and compute the same bits as with the whole model.
#define SMALL_MODEL_MIX "q4_0" // a type that many CPUs pack
#include "engine/shard_memory.h"
#include "tests/small_model.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "engine/kv.h"
#include "fetch/lazy_load.h"
#include "model/ranges.h"
#include "model/store.h"
#include "pipeline/engine_instance.h"
#include "tests/place.h"

enum { TICKET = 3, N_TOKENS = 4, HEADER_CHUNKS = 8 };

// A store that is filled chunk by chunk, and a thread that opens an engine instance over it.
typedef struct bench {
    char cache[64];
    kin_store *store, *whole;
    kin_lazy_load *lazy_load;
    atomic_bool stop;
    kin_message_pool *pool;
    pthread_t thread;
    atomic_bool has_ended;
    kin_engine_instance *instance;
    kin_err err;
    uint64_t budget; // memory for weights, which then stream from a prepacked cache; 0: unlimited
    uint16_t n_gpu;  // layers of each window on the GPU
    kin_lazy_load_view view;
    kin_arrival arrival;
} bench;

static kin_proto_plan plan_of_all(uint16_t n_gpu) {
    kin_proto_plan p = {.flags = KIN_PROTO_PLAN_REPACK,
                        .n_files = 1,
                        .file_size = {manifest.files[0].size},
                        .n_ctx = 64,
                        .n_seq = 1,
                        .n_batch = 16};
    memcpy(p.model.bytes, manifest.hash, sizeof p.model.bytes);
    p.n_rounds = p.n_windows = 2;
    p.window[0] = (kin_proto_window){0, 0, 2, n_gpu, 0};
    p.window[1] = (kin_proto_window){1, 2, N_LAYER, n_gpu, 0};
    return p;
}

// Returns the memory of a shard of this plan with this budget for weights.
static uint64_t memory_for(uint64_t budget) {
    kin_shard_options so = kin_shard_options_defaults(&model);
    so.windows = (kin_windows){.n = 2, .at = {{0, 2, 0, 0}, {2, N_LAYER, 0, 0}}};
    so.n_ctx = 64;
    so.n_batch = 16;
    so.kv_type = GGML_TYPE_F16;
    so.flash = false;
    return kin_shard_fixed_bytes(&model, &so) + budget;
}

static void put(bench *b, uint32_t i_chunk) {
    static uint8_t bytes[KIN_CHUNK_BYTES_MIN];
    kin_err err;
    kin_chunk c = kin_manifest_chunk(&manifest, i_chunk);
    assert_int_equal(kin_store_read(b->whole, i_chunk, 0, bytes, c.bytes, &err), 0);
    assert_int_equal(kin_store_put(b->store, i_chunk, bytes, c.bytes, &err), KIN_STORE_OK);
    kin_lazy_load_arrived(b->lazy_load);
}
#define put(...) FROM_TEST(put(__VA_ARGS__))

static void *open_instance(void *arg) {
    bench *b = arg;
    kin_proto_plan plan = plan_of_all(b->n_gpu);
    b->view = (kin_lazy_load_view){b->lazy_load, TICKET, false};
    b->arrival = kin_lazy_load_arrival(&b->view);
    kin_engine_instance_options o = {.model_path = kin_store_path(b->store, 0),
                                     .in_parts = true,
                                     .arrival = &b->arrival,
                                     .memory = b->budget ? memory_for(b->budget) : 0,
                                     .cache_dir = b->budget ? b->cache : NULL,
                                     .n_threads = 2,
                                     .pool = b->pool,
                                     .stop = &b->stop};
    kin_engine_instance_open(&b->instance, &plan, &o, &b->err);
    atomic_store(&b->has_ended, true);
    return NULL;
}

static void set_up_with(bench *b, uint64_t budget, uint16_t n_gpu) {
    kin_err err;
    const char *path = model_path;
    *b = (bench){.cache = "/tmp/kin-test-lazy-XXXXXX", .budget = budget, .n_gpu = n_gpu};
    assert_non_null(mkdtemp(b->cache));
    assert_int_equal(kin_store_open_files(&b->whole, &manifest, &path, &err), 0);
    assert_int_equal(kin_store_open(&b->store, b->cache, &manifest, KIN_STORE_FILL, &err), 0);
    assert_int_equal(kin_lazy_load_open(&b->lazy_load, &b->stop, &err), 0);
    assert_int_equal(kin_message_pool_open(&b->pool, 4, &err), 0);
    for (uint32_t i = 0; i < HEADER_CHUNKS; i++) put(b, i);
    kin_lazy_load_begin(b->lazy_load, TICKET, b->store);
    assert_int_equal(pthread_create(&b->thread, NULL, open_instance, b), 0);
}
#define set_up_with(...) FROM_TEST(set_up_with(__VA_ARGS__))

static void set_up(bench *b) {
    set_up_with(b, 0, 0);
}
#define set_up(...) FROM_TEST(set_up(__VA_ARGS__))

static void tear_down(bench *b) {
    char command[128];
    kin_engine_instance_close(b->instance);
    kin_message_pool_close(b->pool);
    kin_lazy_load_close(b->lazy_load);
    kin_store_close(b->store);
    kin_store_close(b->whole);
    snprintf(command, sizeof command, "rm -r %s", b->cache);
    assert_int_equal(system(command), 0);
}
#define tear_down(...) FROM_TEST(tear_down(__VA_ARGS__))

// Computes the hidden states of some tokens after the first window.
static void compute_first(kin_engine_instance *instance, float *x) {
    static const int32_t pos[N_TOKENS] = {0, 1, 2, 3};
    kin_batch batch = {.n_tokens = N_TOKENS, .pos = pos};
    kin_err err;
    for (int i = 0; i < N_TOKENS * N_EMBD; i++) x[i] = (float)(i % 37) / 37;
    kin_stage_executor_reset(kin_engine_instance_executor(instance));
    if (kin_stage_executor_begin(kin_engine_instance_executor(instance), 1, &batch, &err) != 0) fail_msg("%s", err.text);
    if (kin_stage_executor_run(kin_engine_instance_executor(instance), 1, 0, N_TOKENS, x, &err) != N_TOKENS)
        fail_msg("%s", err.text);
}
#define compute_first(...) FROM_TEST(compute_first(__VA_ARGS__))

// Computes the hidden states after both windows.
static void compute(kin_engine_instance *instance, float *x) {
    kin_err err;
    compute_first(instance, x);
    if (kin_stage_executor_run(kin_engine_instance_executor(instance), 1, 1, N_TOKENS, x, &err) != N_TOKENS)
        fail_msg("%s", err.text);
}
#define compute(...) FROM_TEST(compute(__VA_ARGS__))

// Computes the same with an instance over the whole model.
static void compute_whole(bench *b, float *x) {
    kin_proto_plan plan = plan_of_all(b->n_gpu);
    kin_engine_instance_options o = {.model_path = model_path, .n_threads = 2, .pool = b->pool, .stop = &b->stop};
    kin_engine_instance *instance;
    assert_int_equal(kin_engine_instance_open(&instance, &plan, &o, &b->err), 0);
    compute(instance, x);
    kin_engine_instance_close(instance);
}
#define compute_whole(...) FROM_TEST(compute_whole(__VA_ARGS__))

static void an_instance_over_weights_that_come_in_any_order_gives_the_same_bits(void **state) {
    (void)state;
    static float want[N_TOKENS * N_EMBD], got[N_TOKENS * N_EMBD];
    bench b;
    set_up(&b);
    uint32_t n = manifest.n_chunks, *order = malloc(n * sizeof *order);
    kin_rng rng;
    kin_rng_seed(&rng, 5);
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = (uint32_t)(kin_rng_u64(&rng) % i), last = order[i - 1];
        order[i - 1] = order[k];
        order[k] = last;
    }
    for (uint32_t i = 0; i < n; i++) put(&b, order[i]);
    free(order);
    pthread_join(b.thread, NULL);
    if (!b.instance) fail_msg("%s", b.err.text);
    compute(b.instance, got);
    kin_shard_stats s = kin_engine_instance_stats(b.instance);
    print_message("%llu bytes were packed\n", (unsigned long long)s.weights.packed_bytes);
    compute_whole(&b, want);
    assert_memory_equal(got, want, sizeof got);
    tear_down(&b);
}

// ---- the first window is present, the second one arrives later

// Lists the chunks of both windows' layers in the order of need. n_first: the number for the first window. Returns the total.
static size_t list_chunks(uint32_t **all, size_t *n_first) {
    kin_ranges_wanted wanted[] = {{.layer_begin = 0, .layer_end = 2}, {.layer_begin = 0, .layer_end = N_LAYER}};
    size_t n_ranges, n[2];
    kin_err err;
    for (int i = 0; i < 2; i++) {
        kin_range *ranges;
        assert_int_equal(kin_ranges_list(model.gguf, &wanted[i], &ranges, &n_ranges, &err), 0);
        assert_int_equal(kin_ranges_chunks(&manifest, ranges, n_ranges, all, &n[i], &err), 0);
        free(ranges);
        if (i == 0) free(*all);
    }
    *n_first = n[0];
    assert_true(n[0] < n[1]);
    return n[1];
}
#define list_chunks(...) FROM_TEST(list_chunks(__VA_ARGS__))

// Opens an instance with its first window.
static void set_up_early(bench *b, uint64_t budget, uint16_t n_gpu) {
    uint32_t *chunks;
    size_t n_first;
    list_chunks(&chunks, &n_first);
    set_up_with(b, budget, n_gpu);
    for (size_t i = 0; i < n_first; i++) put(b, chunks[i]);
    free(chunks);
    pthread_join(b->thread, NULL);
    if (!b->instance) fail_msg("%s", b->err.text);
}
#define set_up_early(...) FROM_TEST(set_up_early(__VA_ARGS__))

static void *bring_the_rest(void *arg) {
    bench *b = arg;
    uint32_t *chunks;
    size_t n_first, n = list_chunks(&chunks, &n_first);
    for (size_t i = n_first; i < n; i++) put(b, chunks[i]);
    free(chunks);
    return NULL;
}
#define bring_the_rest(...) FROM_TEST(bring_the_rest(__VA_ARGS__))

static void check_late_window(uint64_t budget, uint16_t n_gpu) {
    static float want[N_TOKENS * N_EMBD], got[N_TOKENS * N_EMBD];
    bench b;
    kin_err err;
    set_up_early(&b, budget, n_gpu);
    compute_whole(&b, want);
    compute_first(b.instance, got);
    // Nothing is read ahead while weights are arriving.
    assert_int_equal(kin_engine_instance_stats(b.instance).weights.stream.ring_bytes, 0);
    assert_int_equal(pthread_create(&b.thread, NULL, bring_the_rest, &b), 0);
    assert_int_equal(kin_stage_executor_run(kin_engine_instance_executor(b.instance), 1, 1, N_TOKENS, got, &err),
                     N_TOKENS); // waits for the second window
    assert_memory_equal(got, want, sizeof got);
    pthread_join(b.thread, NULL);
    do { // until all weights that arrived are packed
        compute(b.instance, got);
        assert_memory_equal(got, want, sizeof got);
    } while (budget && kin_engine_instance_stats(b.instance).weights.stream.read_bytes == 0);
    tear_down(&b);
}
#define check_late_window(...) FROM_TEST(check_late_window(__VA_ARGS__))

static void a_step_waits_for_a_later_window_and_gives_the_same_bits(void **state) {
    (void)state;
    check_late_window(0, 0);
}

// Returns a budget smaller than the weights and larger than the ring.
static uint64_t streaming_budget(void) {
    uint64_t all = 0;
    for (int il = 0; il < N_LAYER; il++) all += kin_model_layer_bytes(&model, il);
    return all * 3 / 4;
}

static void what_must_stream_does_so_once_all_is_here(void **state) {
    (void)state;
    check_late_window(streaming_budget(), 0);
}

static void a_later_window_on_the_gpu_gives_the_same_bits(void **state) {
    (void)state;
    kin_devices some;
    kin_device_options o = kin_device_options_defaults();
    kin_err err;
    o.gpu = true;
    if (kin_devices_open(&some, &o, &err) != 0) skip(); // no GPU
    kin_devices_close(&some);
    check_late_window(0, 1);
    check_late_window(0, 2);
}

static void too_little_memory_to_stream_is_found_before_a_later_window_comes(void **state) {
    (void)state;
    uint32_t *chunks;
    size_t n_first;
    bench b;
    list_chunks(&chunks, &n_first);
    set_up_with(&b, 1, 0);
    for (size_t i = 0; i < n_first; i++) put(&b, chunks[i]);
    free(chunks);
    pthread_join(b.thread, NULL);
    assert_null(b.instance);
    assert_non_null(strstr(b.err.text, "are not enough for weights"));
    tear_down(&b);
}

// Expects the second window to fail with this message. The first window still works afterwards, and the instance closes.
static void expect_step_failed(bench *b, const char *words) {
    static float x[N_TOKENS * N_EMBD];
    kin_err err;
    compute_first(b->instance, x);
    assert_int_equal(kin_stage_executor_run(kin_engine_instance_executor(b->instance), 1, 1, N_TOKENS, x, &err), KIN_FAIL);
    if (!strstr(err.text, words)) fail_msg("'%s' is not in '%s'", words, err.text);
    compute_first(b->instance, x);
    tear_down(b);
}
#define expect_step_failed(...) FROM_TEST(expect_step_failed(__VA_ARGS__))

static void a_step_is_told_that_its_window_does_not_come(void **state) {
    (void)state;
    bench b;
    set_up_early(&b, 0, 0);
    kin_lazy_load_end(b.lazy_load, "the head is gone");
    expect_step_failed(&b, "the head is gone");
}

static void another_plan_ends_the_wait_of_a_step(void **state) {
    (void)state;
    bench b;
    set_up_early(&b, 0, 0);
    kin_lazy_load_begin(b.lazy_load, TICKET + 1, b.store);
    expect_step_failed(&b, "a new plan has replaced it");
}

static void a_stop_ends_the_wait_of_a_step(void **state) {
    (void)state;
    bench b;
    set_up_early(&b, 0, 0);
    atomic_store(&b.stop, true);
    static float x[N_TOKENS * N_EMBD] = {0};
    static const int32_t pos[N_TOKENS] = {0, 1, 2, 3};
    kin_batch batch = {.n_tokens = N_TOKENS, .pos = pos};
    kin_err err;
    assert_int_equal(kin_stage_executor_begin(kin_engine_instance_executor(b.instance), 1, &batch, &err), 0);
    int is = kin_stage_executor_run(kin_engine_instance_executor(b.instance), 1, 0, N_TOKENS, x,
                                    &err); // may fail already, if the graph is stopped
    if (is > 0) is = kin_stage_executor_run(kin_engine_instance_executor(b.instance), 1, 1, N_TOKENS, x, &err);
    assert_int_equal(is, KIN_FAIL);
    assert_string_equal(err.text, "stopped");
    tear_down(&b);
}

static void *end_lazy(void *arg) {
    bench *b = arg;
    kin_lazy_load_end(b->lazy_load, "no byte came for a minute");
    return NULL;
}

static void a_wait_under_way_ends_when_nothing_more_comes(void **state) {
    (void)state;
    static float x[N_TOKENS * N_EMBD];
    bench b;
    kin_err err;
    set_up_early(&b, 0, 0);
    compute_first(b.instance, x);
    assert_int_equal(pthread_create(&b.thread, NULL, end_lazy, &b), 0);
    assert_int_equal(kin_stage_executor_run(kin_engine_instance_executor(b.instance), 1, 1, N_TOKENS, x, &err), KIN_FAIL);
    assert_string_equal(err.text, "no byte came for a minute");
    pthread_join(b.thread, NULL);
    tear_down(&b);
}

static void an_instance_closes_while_a_window_is_waited_for(void **state) {
    (void)state;
    bench b;
    set_up_early(&b, 0, 0);
    kin_engine_instance_close(b.instance);
    b.instance = NULL;
    bring_the_rest(&b);
    tear_down(&b);
}

static void expect_failed(bench *b, const char *words) {
    pthread_join(b->thread, NULL);
    assert_null(b->instance);
    if (!strstr(b->err.text, words)) fail_msg("'%s' is not in '%s'", words, b->err.text);
    tear_down(b);
}
#define expect_failed(...) FROM_TEST(expect_failed(__VA_ARGS__))

static void a_waiting_thread_learns_that_nothing_more_comes(void **state) {
    (void)state;
    bench b;
    set_up(&b);
    kin_lazy_load_end(b.lazy_load, "the head is gone");
    expect_failed(&b, "the head is gone");
}

static void another_plan_ends_the_wait_for_the_former(void **state) {
    (void)state;
    bench b;
    set_up(&b);
    kin_lazy_load_begin(b.lazy_load, TICKET + 1, b.store);
    expect_failed(&b, "a new plan has replaced it");
}

static void a_stop_ends_the_wait(void **state) {
    (void)state;
    bench b;
    set_up(&b);
    atomic_store(&b.stop, true);
    expect_failed(&b, "stopped");
}

static void what_was_not_asked_for_is_not_waited_for(void **state) {
    (void)state;
    bench b;
    set_up(&b);
    for (uint32_t i = HEADER_CHUNKS; i + 1 < manifest.n_chunks; i += 2) put(&b, i);
    assert_false(atomic_load(&b.has_ended)); // half of the chunks are not enough
    kin_lazy_load_is_whole(b.lazy_load);
    expect_failed(&b, "these weights are not part of the plan's windows");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_instance_over_weights_that_come_in_any_order_gives_the_same_bits),
        cmocka_unit_test(a_step_waits_for_a_later_window_and_gives_the_same_bits),
        cmocka_unit_test(what_must_stream_does_so_once_all_is_here),
        cmocka_unit_test(a_later_window_on_the_gpu_gives_the_same_bits),
        cmocka_unit_test(too_little_memory_to_stream_is_found_before_a_later_window_comes),
        cmocka_unit_test(a_step_is_told_that_its_window_does_not_come),
        cmocka_unit_test(another_plan_ends_the_wait_of_a_step),
        cmocka_unit_test(a_stop_ends_the_wait_of_a_step),
        cmocka_unit_test(a_wait_under_way_ends_when_nothing_more_comes),
        cmocka_unit_test(an_instance_closes_while_a_window_is_waited_for),
        cmocka_unit_test(a_waiting_thread_learns_that_nothing_more_comes),
        cmocka_unit_test(another_plan_ends_the_wait_for_the_former),
        cmocka_unit_test(a_stop_ends_the_wait),
        cmocka_unit_test(what_was_not_asked_for_is_not_waited_for),
    };
    setenv("GGML_VK_VISIBLE_DEVICES", "0", 0); // before ggml loads its backends: see test_golden_gpu.c
    return cmocka_run_group_tests(tests, open_model, close_model);
}
