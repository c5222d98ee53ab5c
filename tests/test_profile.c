// The figures of this machine and of a model, from which plans are made.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/kv.h"
#include "engine/model_facts.h"
#include "engine/profile.h"
#include "engine/shard_memory.h"
#include "engine/throughput_benchmark.h"
#include "pure/plan/device_time.h"
#include "sys/disk.h"
#include "sys/quota.h"
#include "testkit/model_gen.h"
#include "tests/place.h"

#define MIB ((uint64_t)1 << 20)

typedef struct opened {
    char dir[64], path[96];
    kin_model model;
} opened;

static void ok(int rc, const kin_err *err) {
    if (rc != 0) fail_msg("%s", err->text);
}
#define ok(...) FROM_TEST(ok(__VA_ARGS__))

static opened made; // the file of dense(), for all tests; path is empty until it is made

static void make_folder(opened *o) {
    snprintf(o->dir, sizeof o->dir, "/tmp/kin-profile-XXXXXX");
    assert_non_null(mkdtemp(o->dir));
    snprintf(o->path, sizeof o->path, "%s/model.gguf", o->dir);
}

static void open_spec(opened *o, const kin_model_spec *spec) {
    kin_err err;
    make_folder(o);
    ok(kin_model_gen(spec, o->path, &err), &err);
    ok(kin_model_open(&o->model, o->path, &err), &err);
}
#define open_spec(...) FROM_TEST(open_spec(__VA_ARGS__))

static void close_spec(opened *o) {
    kin_model_close(&o->model);
    unlink(o->path);
    rmdir(o->dir);
}

static kin_model_spec dense(void) {
    kin_model_spec s = kin_model_spec_defaults();
    s.mix = "q4_k";
    s.n_layer = 6;
    s.n_embd = 512;
    s.n_ff = 1536;
    s.n_head = 8;
    s.n_head_kv = 2;
    s.n_vocab = 40960;
    s.tied = false;
    return s;
}

static void open_dense(opened *o) {
    kin_err err;
    if (!made.path[0]) {
        const kin_model_spec spec = dense();
        make_folder(&made);
        ok(kin_model_gen(&spec, made.path, &err), &err);
    }
    make_folder(o);
    assert_int_equal(link(made.path, o->path), 0);
    ok(kin_model_open(&o->model, o->path, &err), &err);
}
#define open_dense(...) FROM_TEST(open_dense(__VA_ARGS__))

static int remove_made(void **state) {
    (void)state;
    return made.path[0] && (unlink(made.path) != 0 || rmdir(made.dir) != 0) ? -1 : 0;
}

static kin_model_spec experts(void) {
    kin_model_spec s = kin_model_spec_defaults();
    s.arch = "qwen3moe";
    s.mix = "q8_0";
    s.n_layer = 3;
    s.n_embd = 256;
    s.n_ff = 512;
    s.n_ff_exp = 512;
    s.n_expert = 16;
    s.n_expert_used = 4;
    return s;
}

static void facts_of(const opened *o, int n_ctx, kin_model_facts *facts) {
    kin_err err;
    kin_shard_options so = kin_shard_options_defaults(&o->model);
    so.n_ctx = n_ctx;
    ok(kin_model_facts_of(facts, &o->model, &so, &err), &err);
}
#define facts_of(...) FROM_TEST(facts_of(__VA_ARGS__))

static kin_devices devices_of(int n_threads, bool repack) {
    kin_devices devices;
    kin_err err;
    kin_device_options o = kin_device_options_defaults();
    o.n_threads = n_threads;
    o.repack = repack;
    ok(kin_devices_open(&devices, &o, &err), &err);
    return devices;
}
#define devices_of(...) FROM_TEST(devices_of(__VA_ARGS__))

// ---- the machine

static void every_type_has_a_rate_and_a_plan_can_be_made_with_them(void **state) {
    (void)state;
    kin_err err;
    opened o;
    kin_model_facts model;
    kin_device_facts facts;
    kin_devices devices = devices_of(1, true);
    const kin_profile_options po = {.name = "tower"};
    ok(kin_profile_measure(&facts, &devices, &po, &err), &err);
    for (int q = 0; q < KIN_N_QUANT; q++) {
        // Between a toy's rate and ten times that of any processor's memory.
        assert_true(facts.cpu.token_bytes_s[q] > 1e6 && facts.cpu.token_bytes_s[q] < 10e12);
        assert_true(facts.cpu.prompt_flop_s[q] > 1e6 && facts.cpu.prompt_flop_s[q] < 1e15);
    }
    assert_true(facts.cpu.op_s > 0 && facts.cpu.op_s < 0.1);
    assert_true(facts.window_s > 0 && facts.window_s < 1);
    assert_true(facts.cpu.read_bytes_s > 1e6 && facts.cpu.prompt_read_bytes_s > 1e6 && facts.cpu.kv_bytes_s > 1e6);
    for (int i = 0; i < KIN_FACTS_BATCHES; i++) {
        const double *factors = facts.cpu.batch_factor[i];
        assert_true(factors[KIN_QUANT_OTHER] > 0.01 && factors[KIN_QUANT_OTHER] < 100);
        assert_true(factors[KIN_QUANT_Q4_K] > 0.01 && factors[KIN_QUANT_Q6_K] > 0.01 && factors[KIN_QUANT_F16] == 0);
    }
    assert_true(facts.cpu.cached_factor[0][KIN_QUANT_Q4_K] > 0.01 && facts.cpu.cached_factor[0][KIN_QUANT_Q4_K] <= 1);
    assert_string_equal(facts.name, "tower");
    assert_true(facts.disk_bytes_s == 0 && facts.disk_random_bytes_s == 0); // not measured without a folder
    assert_false(facts.has_gpu);

    open_dense(&o);
    facts_of(&o, 512, &model);
    ok(kin_facts_check_device(&facts, &model, true, &err), &err);
    close_spec(&o);
    kin_devices_close(&devices);
}

// Kernels that count their calls, on one thread.
static const kin_kernels *counted;
static int n_products, n_attended, n_stored, n_norms;
static uintptr_t lowest_weight, highest_weight;

static void count_matmul(const kin_matrix *w, const kin_act *act, const float *x, int64_t n, float *y, int64_t ldy, int64_t begin,
                         int64_t end) {
    uintptr_t weight = (uintptr_t)w->data;
    n_products++;
    lowest_weight = weight < lowest_weight ? weight : lowest_weight;
    highest_weight = weight > highest_weight ? weight : highest_weight;
    counted->matmul(w, act, x, n, y, ldy, begin, end);
}

static void count_attend(kin_attention *a, int64_t begin, int64_t end) {
    n_attended++;
    counted->attend(a, begin, end);
}

static void count_store(const kin_kv_rows *rows, int64_t begin, int64_t end) {
    n_stored++;
    counted->kv_store(rows, begin, end);
}

static void count_norm(int64_t n, const float *x, const float *weight, float eps, float *y) {
    n_norms++;
    counted->rms_norm(n, x, weight, eps, y);
}

// Replaces some of the device's kernels by counting ones. `counting` must outlive their use.
static void count_kernels(kin_device *device, kin_kernels *counting) {
    counted = device->kernels;
    *counting = *counted;
    counting->matmul = count_matmul;
    counting->attend = count_attend;
    counting->kv_store = count_store;
    counting->rms_norm = count_norm;
    device->kernels = counting;
}

typedef struct counted_benchmark {
    kin_devices devices;
    kin_device device; // with counting kernels
    kin_kernels counting;
    kin_throughput_benchmark *rates;
} counted_benchmark;

static void open_counted(counted_benchmark *b, uint64_t store_bytes) {
    kin_err err;
    b->devices = devices_of(1, true);
    b->device = b->devices.cpu;
    count_kernels(&b->device, &b->counting);
    ok(kin_throughput_benchmark_open(&b->rates, &b->device, store_bytes, &err), &err);
}
#define open_counted(...) FROM_TEST(open_counted(__VA_ARGS__))

static void close_counted(counted_benchmark *b) {
    kin_throughput_benchmark_close(b->rates);
    kin_devices_close(&b->devices);
}

// Measures one type, of which a layer has 34 MB, in several runs. Returns the distance between the weights that were read.
static uint64_t spread_of_weights(kin_throughput_benchmark *rates, int i_step) {
    kin_err err;
    kin_engine_facts facts = {0};
    facts.token_bytes_s[KIN_QUANT_Q4_K] = facts.prompt_flop_s[KIN_QUANT_Q4_K] = 1;
    lowest_weight = UINTPTR_MAX;
    highest_weight = 0;
    ok(kin_throughput_benchmark_step(rates, i_step, &(kin_benchmark_options){.least_s = 0.2}, &facts, &err), &err);
    return highest_weight - lowest_weight;
}
#define spread_of_weights(...) FROM_TEST(spread_of_weights(__VA_ARGS__))

static void each_run_reads_other_weights_unless_they_are_to_be_in_the_cache(void **state) {
    (void)state;
    counted_benchmark b;
    open_counted(&b, 80 * MIB);
    int first_cached = kin_throughput_benchmark_n_steps() - KIN_FACTS_CACHED;
    assert_true(spread_of_weights(b.rates, first_cached) < 17 * MIB);
    assert_true(spread_of_weights(b.rates, first_cached - 1) > 50 * MIB);
    close_counted(&b);
}

static void each_step_measures_the_kernels_that_the_engine_computes_with(void **state) {
    (void)state;
    enum { FIRST_PRODUCT = 4, N_TOO_LARGE = 2 }; // 64 and 128 MB of weights do not fit into this store
    kin_err err;
    counted_benchmark b;
    open_counted(&b, 40 * MIB);
    kin_engine_facts facts = {0};
    int n_steps = kin_throughput_benchmark_n_steps();
    for (int i = 0; i < n_steps; i++) {
        n_products = n_attended = n_stored = n_norms = 0;
        ok(kin_throughput_benchmark_step(b.rates, i, &(kin_benchmark_options){0}, &facts, &err), &err);
        assert_int_equal(n_products > 0, i >= FIRST_PRODUCT && i < n_steps - N_TOO_LARGE);
        assert_int_equal(n_norms > 0, i == 0);
        assert_int_equal(n_stored > 0, i == 1);
        assert_int_equal(n_attended > 0, i == 2 || i == 3);
    }
    close_counted(&b);
}

static void a_stop_ends_measuring(void **state) {
    (void)state;
    kin_err err;
    kin_device_facts facts;
    atomic_bool stop = true;
    kin_devices devices;
    kin_device_options o = kin_device_options_defaults();
    o.stop = &stop;
    ok(kin_devices_open(&devices, &o, &err), &err);
    const kin_profile_options po = {.name = "tower", .stop = &stop, .disk_dir = "/tmp"};
    assert_int_equal(kin_profile_measure(&facts, &devices, &po, &err), KIN_FAIL);
    assert_string_equal(err.text, "stopped");
    kin_devices_close(&devices);
}

static void memory_is_read_anew_and_nothing_else(void **state) {
    (void)state;
    kin_devices devices = devices_of(1, true);
    kin_device_facts facts, before;
    memset(&facts, 0x11, sizeof facts);
    before = facts;
    kin_profile_refresh(&facts, &devices, 64 * MIB);
    assert_true(facts.memory_bytes > 0 && facts.memory_bytes <= (double)(64 * MIB));
    assert_true(facts.swap_bytes == 0);
    facts.memory_bytes = before.memory_bytes;
    facts.swap_bytes = before.swap_bytes;
    assert_memory_equal(&facts, &before, sizeof facts);
    kin_devices_close(&devices);
}

static void another_setting_has_another_fingerprint(void **state) {
    (void)state;
    char a[1024], b[1024], c[1024], again[1024];
    kin_devices one = devices_of(1, true), two = devices_of(2, true), plain = devices_of(1, false);
    assert_true(one.cpu.kernels && one.cpu.packs && !plain.cpu.packs);
    kin_profile_fingerprint(&one, a, sizeof a);
    kin_profile_fingerprint(&one, again, sizeof again);
    kin_profile_fingerprint(&two, b, sizeof b);
    kin_profile_fingerprint(&plain, c, sizeof c);
    assert_string_equal(a, again);
    assert_string_not_equal(a, b);
    if (one.cpu.repack_buft) assert_string_not_equal(a, c);
    assert_non_null(strstr(a, KIN_VERSION));
    assert_non_null(strstr(a, one.cpu.kernels->name));
    kin_devices_close(&one);
    kin_devices_close(&two);
    kin_devices_close(&plain);
}

// ---- the disk

static int count_files(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}
#define count_files(...) FROM_TEST(count_files(__VA_ARGS__))

static void a_disk_is_measured_and_left_as_it_was(void **state) {
    (void)state;
    kin_err err;
    kin_disk_speed speed;
    char dir[] = "/var/tmp/kin-disk-XXXXXX";
    assert_non_null(mkdtemp(dir));
    int rc = kin_disk_measure(dir, 32 * MIB, NULL, &speed, &err);
    assert_int_equal(count_files(dir), 0);
    rmdir(dir);
    if (rc != 0) { // a file system without direct reads gives an error
        assert_true(speed.bytes_s == 0 && speed.random_bytes_s == 0);
        assert_non_null(strstr(err.text, dir));
        return;
    }
    assert_true(speed.bytes_s > 1e5 && speed.bytes_s < 1e12);
    assert_true(speed.random_bytes_s > 1e4 && speed.random_bytes_s < 1e12);
}

static void a_disk_that_cannot_be_measured_has_a_reason(void **state) {
    (void)state;
    kin_err err;
    kin_disk_speed speed = {1, 1};
    atomic_bool stop = true;
    assert_int_equal(kin_disk_measure("/nowhere/at/all", 32 * MIB, NULL, &speed, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "/nowhere/at/all: "));
    assert_true(speed.bytes_s == 0 && speed.random_bytes_s == 0);
    assert_int_equal(kin_disk_measure("/var/tmp", 4096, NULL, &speed, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "nearly full"));
    assert_int_equal(kin_disk_measure("/var/tmp", 32 * MIB, &stop, &speed, &err), KIN_FAIL);
}

static void a_quota_is_none_or_a_number_with_a_period(void **state) {
    (void)state;
    kin_quota q = kin_quota_read();
    assert_true(q.cores == 0 ? q.period_s == 0 : q.cores > 0 && q.period_s > 0 && q.period_s <= 10);
}

// ---- a model

static void near(double value, double expected, double relative) {
    if (fabs(value - expected) > relative * fabs(expected)) fail_msg("%.17g instead of %.17g", value, expected);
}
#define near(...) FROM_TEST(near(__VA_ARGS__))

static void a_dense_model_asks_for_what_its_shape_says(void **state) {
    (void)state;
    opened o;
    kin_model_facts f;
    open_dense(&o);
    facts_of(&o, 512, &f);
    const double q4_k = 144.0 / 256; // bytes per weight
    double attention = 2 * 512.0 * 512 + 2 * 512 * 128, ffn = 3 * 512.0 * 1536;
    assert_int_equal(f.n_layer, 6);
    assert_int_equal(f.n_vocab, 40960);
    near(f.layer_bytes[KIN_QUANT_Q4_K], (attention + ffn) * q4_k, 1e-12);
    near(f.layer_bytes[KIN_QUANT_F32], 2 * 512 * 4, 1e-12); // two norms
    near(f.layer_flops[KIN_QUANT_Q4_K], 2 * (attention + ffn), 1e-12);
    assert_true(f.layer_flops[KIN_QUANT_F32] == 0);
    near(f.output_bytes[KIN_QUANT_Q4_K], 512 * 40960.0 * q4_k, 1e-12);
    near(f.output_flops[KIN_QUANT_Q4_K], 2 * 512 * 40960.0, 1e-12);
    near(f.hidden_bytes, 512 * 4, 0);
    near(f.kv_bytes, 2 * 128 * 2, 0); // keys and values of 2 heads of 64 in F16
    near(f.kv_reads, 4, 0);
    // kin's kernels: 2 norms, rounding of 4 inputs, heads, attention, products Q with K and V, output, gate with up, down
    near(f.layer_ops, 12, 0);
    // ggml's: 7 products, 2 norms with their weights, rope of Q and K, stores of K and V, attention, gate, 2 sums
    near(f.gpu_layer_ops, 19, 0);
    near(f.layer_blocks, 3, 0);
    // Tiles of 2 MiB at least: 288 bytes a row, in steps of 64 rows: 7232 rows, 6 tiles.
    near(f.output_blocks, 6, 0);
    near(f.output_ops, 2 + 2 * 6, 0);
    near(f.attn_bytes, attention * q4_k + 512 * 4, 1e-12); // with its norm
    near(f.block_bytes, 7232 * 288, 0);                    // an output tile is larger than gate and up together
    near(f.weight_block_bytes, (6 * ((attention + ffn) * q4_k + 4096) + 512 * 40960.0 * q4_k) / (6 * 4 + 6), 1e-12);
    assert_true(f.expert_share == 0 && kin_facts_bytes_sum(f.expert_bytes) == 0);
    for (int il = 0; il < 6; il++) near(f.layer_share[il], 1, 1e-12);
    assert_true(f.checkpoint_gap == 0 && f.checkpoint_bytes == 0);
    close_spec(&o);
}

static void recurrent_layers_have_checkpoints(void **state) {
    (void)state;
    opened o;
    kin_model_facts f;
    kin_model_spec spec = dense();
    spec.arch = "qwen35";
    spec.attention_interval = 3;
    spec.n_vocab = 512; // no matter here
    open_spec(&o, &spec);
    facts_of(&o, 512, &f);
    assert_int_equal(f.checkpoint_gap, 512); // the least: the states are small
    // Four layers of 8 heads with a state of 32 x 32 and 3 inputs of 384 channels, in whole pages of an attention layer.
    const double page = 64 * f.kv_bytes * 6 / 2;
    near(f.checkpoint_bytes, 4 * page * ceil((8 * 32 * 32 + 3 * 384) * 4 / page), 0.003); // beside their headers
    close_spec(&o);
}

// Eight query heads in three of five layers, four in the others; four and two key and value heads.
static void layers_that_differ_in_width_hold_what_is_theirs(void **state) {
    (void)state;
    kin_model m;
    kin_model_facts f;
    kin_err err;
    if (kin_model_open(&m, KIN_SOURCE_DIR "/tests/golden/step35.q8_0.gguf", &err) != 0) fail_msg("%s", err.text);
    kin_shard_options o = kin_shard_options_defaults(&m);
    o.n_ctx = 512;
    if (kin_model_facts_of(&f, &m, &o, &err) != 0) fail_msg("%s", err.text);
    near(f.kv_bytes, 2 * (2 + 4 + 4 + 4 + 2) / 5.0 * 32 * 2, 1e-12); // keys and values of heads of 32 in F16, on average
    near(f.kv_held_bytes, f.kv_bytes, 1e-12);
    near(f.kv_share[0], 2 * 5 / 16.0, 1e-12);
    near(f.kv_share[1], 4 * 5 / 16.0, 1e-12);
    near(f.gpu_kv_bytes, 2 * 4 * 32 * 2, 0); // of the widest layer
    near(f.kv_reads, 2, 0);
    assert_int_equal(f.share_heads, 0); // no group
    assert_int_equal(f.share_ff, 0);
    assert_true(f.layer_share[1] > f.layer_share[0]);
    const kin_kv_options kv = {.windows = o.windows, .n_ctx = o.n_ctx, .type = o.kv_type};
    assert_int_equal(kin_kv_bytes(&m.hp, &kv), 512 * 2 * 32 * (2 + 4 + 4 + 4 + 2) * 2); // each layer's own
    kin_model_close(&m);
}

// In a layer that is a feed-forward block only, up and down are in the ring at once.
static void a_layer_of_one_block_needs_a_ring_for_all_of_it(void **state) {
    static const char text[] = "architecture nemotron_h\ncontext_length 512\nembedding_length 64\nblock_count 3\n"
                               "feed_forward_length [0, 1024, 0]\nattention.head_count 4\nattention.head_count_kv [0, 0, 2]\n"
                               "attention.layer_norm_rms_epsilon 0.00001\nssm.conv_kernel 4\nssm.state_size 16\n"
                               "ssm.group_count 1\nssm.time_step_rank 2\nssm.inner_size 64\n";
    char keys[] = "/tmp/kin-profile-keys-XXXXXX";
    const int fd = mkstemp(keys);
    opened o;
    kin_model_facts f;
    (void)state;
    assert_true(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1);
    close(fd);
    kin_model_spec spec = dense();
    spec.keys = keys;
    spec.n_vocab = 300;
    spec.mix = "q8_0";
    open_spec(&o, &spec);
    facts_of(&o, 512, &f);
    near(f.block_bytes, 2 * 64 * 1024 * 34.0 / 32 + 64 * sizeof(float), 0);
    close_spec(&o);
    unlink(keys);
}

static void experts_are_counted_apart_and_used_in_part(void **state) {
    (void)state;
    opened o;
    kin_model_facts f;
    kin_model_spec spec = experts();
    open_spec(&o, &spec);
    facts_of(&o, 512, &f);
    const double q8_0 = 34.0 / 32;
    near(f.expert_bytes[KIN_QUANT_Q8_0], 16 * 3 * 256.0 * 512 * q8_0, 1e-12);
    near(f.expert_share, 0.25, 0);
    near(f.layer_blocks, 2, 0);
    double attention = f.layer_bytes[KIN_QUANT_Q8_0] / q8_0, router = 256 * 16.0;
    near(f.layer_flops[KIN_QUANT_Q8_0], 2 * attention + 2 * 4 * 3 * 256.0 * 512, 1e-12);
    near(f.layer_flops[KIN_QUANT_F32], 2 * router, 1e-12);
    assert_true(f.layer_ops > 12 && f.gpu_layer_ops > 19);
    close_spec(&o);
}

static void other_types_of_a_cache_are_smaller(void **state) {
    (void)state;
    opened o;
    kin_err err;
    kin_model_facts f16, q8;
    open_dense(&o);
    facts_of(&o, 512, &f16);
    kin_shard_options so = kin_shard_options_defaults(&o.model);
    so.n_ctx = 512;
    so.kv_type = GGML_TYPE_Q8_0;
    ok(kin_model_facts_of(&q8, &o.model, &so, &err), &err);
    near(q8.kv_bytes, f16.kv_bytes * 34 / 64, 1e-12);
    close_spec(&o);
}

// The number of operations of a layer, and the need for masks in prompts, depend on whether kin's or ggml's kernels compute.
static void facts_are_those_of_the_kernels_that_compute(void **state) {
    (void)state;
    opened o;
    kin_err err;
    kin_model_facts by_kin, by_ggml;
    open_dense(&o);
    facts_of(&o, 512, &by_kin);
    kin_shard_options so = kin_shard_options_defaults(&o.model);
    so.n_ctx = 512;
    so.ggml_kernels = true;
    ok(kin_model_facts_of(&by_ggml, &o.model, &so, &err), &err);
    near(by_ggml.layer_ops, by_kin.gpu_layer_ops, 1e-12);
    assert_true(by_kin.layer_ops < by_ggml.layer_ops);
    const double masks = 2 * 2.0 * 512 * 512; // 16 bits per value; one mask for all tokens and one for the tokens with outputs
    near(by_ggml.cpu_buffer_bytes, by_kin.cpu_buffer_bytes + masks, 1e-12);
    near(by_ggml.gpu_buffer_bytes, by_kin.gpu_buffer_bytes, 1e-12);
    close_spec(&o);
}

// A plan must predict which weights the engine keeps in memory. The weights are opened without a shard, because its governor
// would react to this process's actual memory.
static void the_engine_divides_memory_as_predicted(void **state) {
    (void)state;
    opened o;
    kin_err err;
    static kin_facts facts;
    open_dense(&o);
    kin_devices devices = devices_of(1, true);
    facts = (kin_facts){.n_device = 1, .work = {.n_ctx = 512, .n_cached = 128, .n_prompt = 128, .n_batch = 64}};
    kin_shard_options so = kin_shard_options_defaults(&o.model);
    so.n_ctx = 512;
    so.n_batch = 64;
    ok(kin_model_facts_of(&facts.model, &o.model, &so, &err), &err);
    kin_device_facts *d = &facts.devices[0];
    for (int q = 0; q < KIN_N_QUANT; q++) d->cpu.token_bytes_s[q] = d->cpu.prompt_flop_s[q] = 1e9;
    d->cpu.read_bytes_s = d->disk_bytes_s = d->disk_random_bytes_s = 1e9;
    double weights = 6 * kin_facts_layer_bytes(&facts.model) + kin_facts_bytes_sum(facts.model.output_bytes);
    double fixed = facts.model.cpu_buffer_bytes + 6 * facts.model.kv_bytes * 512, ring = 1.25 * facts.model.block_bytes;
    for (int i = 0; i < 5; i++) {
        uint64_t memory = (uint64_t)(fixed + 1.1 * ring + (weights - ring) * i / 4);
        kin_weights *w;
        kin_device_rates rates;
        const kin_load load = kin_load_of(6, 0, 0);
        const kin_weights_options wo = {
            .windows = so.windows, .output = so.output, .mode = so.mode, .budget = memory - kin_shard_fixed_bytes(&o.model, &so)};
        d->memory_bytes = (double)memory;
        ok(kin_weights_open(&w, &o.model, &devices, &wo, &err), &err);
        kin_stream_stats got = kin_weights_get_stats(w).stream;
        kin_weights_close(w);
        kin_device_rates_init(&rates, &facts, 0, 1, 128, 1);
        kin_device_time t = kin_device_time_of(&rates, &load);
        assert_true(t.fits);
        bool streams = i < 4;
        assert_true((t.streamed_bytes > 0) == streams && (got.ring_bytes > 0) == streams);
        if (!streams) continue;
        near((double)got.ring_bytes, rates.members[0].ring_bytes, 0.02);
        // The engine counts whole blocks, the prediction their mean size.
        if (fabs((double)got.resident_bytes - t.members[0].resident_bytes) > facts.model.block_bytes)
            fail_msg("%.0f resident, %.0f predicted with %.0f", (double)got.resident_bytes, t.members[0].resident_bytes,
                     (double)memory);
    }
    kin_devices_close(&devices);
    close_spec(&o);
}

static void graphs_are_started_more_often_while_weights_stream(void **state) {
    (void)state;
    opened o;
    static kin_facts facts;
    open_dense(&o);
    facts = (kin_facts){.n_device = 1, .work = {.n_ctx = 512, .n_cached = 128, .n_prompt = 128, .n_batch = 64}};
    facts_of(&o, 512, &facts.model);
    kin_device_facts *d = &facts.devices[0];
    for (int q = 0; q < KIN_N_QUANT; q++) d->cpu.token_bytes_s[q] = d->cpu.prompt_flop_s[q] = 1e9;
    d->cpu.read_bytes_s = d->disk_bytes_s = 1e9;
    d->window_s = 1e-3;
    double seconds[2];
    for (int streams = 0; streams < 2; streams++) {
        kin_device_rates rates;
        const kin_load load = kin_load_of(6, 0, 0);
        d->memory_bytes = streams ? facts.model.cpu_buffer_bytes + 10e6 : 1e9;
        kin_device_rates_init(&rates, &facts, 0, 1, 128, 1);
        kin_device_time t = kin_device_time_of(&rates, &load);
        assert_true(t.fits && (t.streamed_bytes > 0) == streams);
        seconds[streams] = t.compute_s;
    }
    near(seconds[1] - seconds[0], (6 * 3 + 6) * 1e-3, 1e-9);
    close_spec(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_a_rate_and_a_plan_can_be_made_with_them),
        cmocka_unit_test(each_step_measures_the_kernels_that_the_engine_computes_with),
        cmocka_unit_test(each_run_reads_other_weights_unless_they_are_to_be_in_the_cache),
        cmocka_unit_test(a_stop_ends_measuring),
        cmocka_unit_test(memory_is_read_anew_and_nothing_else),
        cmocka_unit_test(another_setting_has_another_fingerprint),
        cmocka_unit_test(a_disk_is_measured_and_left_as_it_was),
        cmocka_unit_test(a_disk_that_cannot_be_measured_has_a_reason),
        cmocka_unit_test(a_quota_is_none_or_a_number_with_a_period),
        cmocka_unit_test(a_dense_model_asks_for_what_its_shape_says),
        cmocka_unit_test(recurrent_layers_have_checkpoints),
        cmocka_unit_test(layers_that_differ_in_width_hold_what_is_theirs),
        cmocka_unit_test(a_layer_of_one_block_needs_a_ring_for_all_of_it),
        cmocka_unit_test(experts_are_counted_apart_and_used_in_part),
        cmocka_unit_test(other_types_of_a_cache_are_smaller),
        cmocka_unit_test(facts_are_those_of_the_kernels_that_compute),
        cmocka_unit_test(the_engine_divides_memory_as_predicted),
        cmocka_unit_test(graphs_are_started_more_often_while_weights_stream),
    };
    return cmocka_run_group_tests(tests, NULL, remove_made);
}
