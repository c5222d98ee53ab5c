// Groups of devices that share each layer, compared with one machine, with the golden models, and with themselves. The members
// are threads that exchange their sums in memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/shard_memory.h"
#include "testkit/golden.h"
#include "testkit/head_eval.h"
#include "testkit/logits.h"
#include "testkit/model_gen.h"
#include "testkit/thread_ring.h"
#include "tests/place.h"

static const char *const golden_dirs[] = {KIN_SOURCE_DIR "/../shared/golden", KIN_SOURCE_DIR "/../shared/golden-families",
                                          KIN_SOURCE_DIR "/tests/golden"};

enum { N_VOCAB = 300, N_LAYER = 2, N_IDS = 40, N_MADE = 6, N_ROWS = N_IDS + N_MADE, N_CTX = 128, CHUNK = 16 };

static char path[64] = "/tmp/kin-test-groups-XXXXXX";

typedef struct family {
    const char *arch, *mix;
    double bound;     // bound on the distance from one machine's logits
    const char *keys; // the text of its metadata (kin_model_spec); NULL: see make()
} family;

// Another order of summation changes the last bits of a float (2e-7 of a row). If that makes one activation round differently,
// all later roundings differ too; then the distance is that of rounding, 1.8e-2 measured.
#define EXACT 1e-4 // 3.2e-5 measured: a key or value rounds differently to F16
#define QUANTIZED 3e-2

#define HEADS "attention.head_count 16\nattention.head_count_kv 4\nattention.key_length 32\nattention.value_length 32\n"
#define EXPERTS "expert_count 4\nexpert_used_count 2\nexpert_feed_forward_length 192\n"

static const family biased = {"llama", "f32", EXACT, NULL}; // the attention's output has a bias
static const family normed = {"stablelm", "f32", EXACT,     // norms have biases
                              "architecture stablelm\ncontext_length 512\nembedding_length 128\nblock_count 2\n"
                              "feed_forward_length 256\nattention.head_count 8\nattention.head_count_kv 4\n"
                              "attention.layer_norm_epsilon 0.00001\nrope.dimension_count 8\n"
                              "present blk.0.ffn_norm.weight\npresent blk.1.ffn_norm.weight\n"};

// Heads of 64, four of them for each KV head: 256 columns of the attention's output, which is one block of the K types.
static const family *made; // the family that the file holds

// Writes the text of a family's metadata into a file and returns its name.
static const char *write_keys(const char *keys) {
    static char name[80];
    snprintf(name, sizeof name, "%s.txt", path);
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(keys, f);
    assert_int_equal(fclose(f), 0);
    return name;
}
#define write_keys(...) FROM_TEST(write_keys(__VA_ARGS__))

static void make(const family *f) {
    if (f == made) return;
    made = f;
    kin_model_spec s = kin_model_spec_defaults();
    kin_err err;
    s.arch = f->arch;
    s.mix = f->mix;
    s.n_layer = N_LAYER;
    s.n_embd = 256;
    s.n_ff = 1536;
    s.n_head = 16;
    s.n_head_kv = 4;
    s.head_dim = 64;
    s.n_vocab = N_VOCAB;
    s.attn_out_bias = f == &biased;
    if (strcmp(f->arch, "qwen3moe") == 0) {
        s.n_expert = 4;
        s.n_expert_used = 2;
        s.n_ff_exp = 512;
    }
    if (f->keys) s.keys = write_keys(f->keys);
    if (kin_model_gen(&s, path, &err) != 0) fail_msg("%s", err.text);
    if (s.keys) unlink(s.keys);
}
#define make(...) FROM_TEST(make(__VA_ARGS__))

static int make_path(void **state) {
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state) {
    (void)state;
    return unlink(path);
}

static int32_t largest(const float *row) {
    return kin_logits_best(row, N_VOCAB);
}

// Evaluates a prompt and greedy tokens after it. logits // f32 [N_ROWS, N_VOCAB]
static int try_run(kin_thread_ring *ring, float *logits, kin_err *err) {
    kin_head *head = kin_thread_ring_head(ring);
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++) ids[i] = (i * 37 + i * i % 11) % N_VOCAB;
    kin_head_clear(head);
    if (kin_head_eval(head, 0, 0, ids, N_IDS, logits, N_IDS, err) != 0) return KIN_FAIL;
    for (int i = 0; i < N_MADE; i++) {
        float *row = logits + (size_t)(N_IDS + i) * N_VOCAB;
        int32_t id = largest(row - N_VOCAB);
        if (kin_head_eval(head, 0, N_IDS + i, &id, 1, row, 1, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static void run(kin_thread_ring *ring, float *logits) {
    kin_err err;
    if (try_run(ring, logits, &err) != 0) fail_msg("%s", err.text);
}
#define run(...) FROM_TEST(run(__VA_ARGS__))

static kin_thread_ring_options usual(int n_members) {
    return (kin_thread_ring_options){.n_members = n_members, .n_batch = CHUNK, .n_chunk = CHUNK, .n_ctx = N_CTX, .n_steps = 4};
}

static kin_thread_ring_options one(void) {
    kin_thread_ring_options o = usual(1);
    o.shares[0].n_layer = N_LAYER;
    return o;
}

// Makes members [first, first + n) a group with n_layers layers.
static void group(kin_thread_ring_options *o, int first, int n, int n_layers, const double *weights) {
    o->shares[first].n_layer = n_layers;
    for (int k = 0; k < n; k++) {
        o->group[first + k].rank = k;
        o->group[first + k].n_ranks = n;
        o->group[first + k].weight = weights ? weights[k] : 1;
    }
}

static kin_thread_ring_options all_of(int n, const double *weights) {
    kin_thread_ring_options o = usual(n);
    group(&o, 0, n, N_LAYER, weights);
    return o;
}

static kin_thread_ring *open_ring(const kin_thread_ring_options *o) {
    kin_thread_ring *ring;
    kin_err err;
    if (kin_thread_ring_open(&ring, path, o, &err) != 0) fail_msg("%s", err.text);
    return ring;
}
#define open_ring(...) FROM_TEST(open_ring(__VA_ARGS__))

static void run_once(const kin_thread_ring_options *o, float *logits) {
    kin_thread_ring *ring = open_ring(o);
    run(ring, logits);
    kin_thread_ring_close(ring);
}
#define run_once(...) FROM_TEST(run_once(__VA_ARGS__))

// Returns the largest distance of the rows, ignoring up to n_excepted outliers above 0.05.
static double distance(const float *got, const float *want, int n_excepted) {
    double worst = 0;
    int n_above = 0;
    for (int i = 0; i < N_ROWS; i++) {
        double e = kin_logits_error(got + i * N_VOCAB, want + i * N_VOCAB, N_VOCAB);
        if (!(e <= 0.05) && n_above++ < n_excepted) continue;
        if (!(e <= worst)) worst = e;
    }
    return worst;
}

static void expect_equal_bits(kin_thread_ring *ring, int first, int n, uint64_t n_sums_least) {
    uint64_t want_sums, n_sums, want = kin_thread_ring_bits(ring, first, &want_sums);
    assert_true(want_sums >= n_sums_least);
    for (int k = 1; k < n; k++) {
        assert_true(kin_thread_ring_bits(ring, first + k, &n_sums) == want);
        assert_int_equal(n_sums, want_sums);
    }
}

// Expects the same bits in two runs and at all members, and a distance of at most `bound` from one machine.
static void expect_near(const kin_thread_ring_options *o, int first, int n, const float *want, double bound, int n_excepted) {
    static float got[N_ROWS * N_VOCAB], again[N_ROWS * N_VOCAB];
    kin_thread_ring *ring = open_ring(o);
    run(ring, got);
    run(ring, again);
    assert_memory_equal(got, again, sizeof got);
    expect_equal_bits(ring, first, n, 2 * N_MADE);
    kin_thread_ring_close(ring);
    double e = distance(got, want, n_excepted);
    if (!(e <= bound)) fail_msg("a group of %d: %.2e from one machine, at most %.2e is allowed", n, e, bound);
}
#define expect_near(...) FROM_TEST(expect_near(__VA_ARGS__))

static const family plain = {"llama", "f32", EXACT, NULL}, mixed = {"llama", "q4_k_m", QUANTIZED, NULL};

static const family families[] = {
    {"qwen3", "f32", EXACT, NULL},      {"qwen3moe", "f32", EXACT, NULL},      {"llama", "f16", EXACT, NULL},
    {"llama", "q6_k", QUANTIZED, NULL}, {"qwen2", "q5_k", QUANTIZED, NULL},    {"qwen3", "q8_0", QUANTIZED, NULL},
    {"llama", "q4_0", QUANTIZED, NULL}, {"qwen3moe", "q4_k", QUANTIZED, NULL},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

static void two_three_and_four_devices_are_near_to_one_machine_with_equal_bits_everywhere(void **state) {
    (void)state;
    static float want[N_ROWS * N_VOCAB];
    for (int i = 0; i < N_FAMILIES; i++) {
        const family *f = &families[i];
        kin_thread_ring_options o = one();
        make(f);
        run_once(&o, want);
        int n_excepted = strcmp(f->arch, "qwen3moe") == 0 ? N_ROWS / 10 : 0;
        int n = strcmp(f->arch, "qwen3moe") == 0 ? 2 : 2 + i % 3;
        o = all_of(n, NULL);
        expect_near(&o, 0, n, want, f->bound, n_excepted);
    }
}

#define GLM4MOE                                                                                                                  \
    "architecture glm4moe\ncontext_length 512\nembedding_length 256\nblock_count 2\nfeed_forward_length 448\n" HEADS             \
    "rope.dimension_count 16\nleading_dense_block_count 1\n" EXPERTS "expert_shared_count 1\nexpert_gating_func 2\n"             \
    "optional attn_q.bias attn_k.bias attn_v.bias attn_q_norm.weight attn_k_norm.weight exp_probs_b.bias\n"
#define QWEN2MOE                                                                                                                 \
    "architecture qwen2moe\ncontext_length 512\nembedding_length 256\nblock_count 2\nfeed_forward_length 576\n" HEADS            \
    "rope.dimension_count 32\n" EXPERTS "expert_shared_feed_forward_length 576\n"
#define HY_V3                                                                                                                    \
    "architecture hy_v3\ncontext_length 512\nembedding_length 256\nblock_count 2\nfeed_forward_length 320\n" HEADS               \
    "rope.dimension_count 32\n" EXPERTS "expert_shared_feed_forward_length 192\nexpert_weights_norm true\n"                      \
    "expert_weights_scale 2.5\nexpert_gating_func 2\npresent blk.1.ffn_gate_inp.weight\n"                                        \
    "optional attn_q.weight attn_k.weight attn_v.weight exp_probs_b ffn_gate_up_exps.weight\n"
#define GPT_OSS                                                                                                                  \
    "architecture gpt-oss\ncontext_length 512\nembedding_length 256\nblock_count 2\nfeed_forward_length 192\n" HEADS EXPERTS     \
    "attention.sliding_window 16\nrope.freq_base 150000.0\n"
#define GLM4                                                                                                                     \
    "architecture glm4\ncontext_length 512\nembedding_length 256\nblock_count 2\nfeed_forward_length 384\n" HEADS                \
    "rope.dimension_count 16\noptional attn_q.bias attn_k.bias attn_v.bias\n"
#define GRANITEMOE                                                                                                               \
    "architecture granitemoe\ncontext_length 512\nembedding_length 256\nblock_count 2\nfeed_forward_length 192\n" HEADS          \
    "rope.dimension_count 32\n" EXPERTS "expert_shared_feed_forward_length 384\nembedding_scale 12.0\nresidual_scale 0.22\n"     \
    "attention.scale 0.0156\nlogit_scale 6.0\n"
#define GEMMA2                                                                                                                   \
    "architecture gemma2\ncontext_length 512\nembedding_length 256\nblock_count 2\nfeed_forward_length 384\n" HEADS              \
    "attention.sliding_window 16\noptional tied\n"

static void experts_with_shared_ones_and_biases_and_norms_after_sums_are_shared_too(void **state) {
    (void)state;
    static const family some[] = {
        {"glm4moe", "f32", EXACT, GLM4MOE},       {"glm4moe", "q8_0", QUANTIZED, GLM4MOE},
        {"qwen2moe", "f32", EXACT, QWEN2MOE},     {"hy_v3", "f32", EXACT, HY_V3},
        {"hy_v3", "q8_0", QUANTIZED, HY_V3},      {"gpt-oss", "f32", EXACT, GPT_OSS},
        {"gpt-oss", "q8_0", QUANTIZED, GPT_OSS},  {"glm4", "f32", EXACT, GLM4},
        {"granitemoe", "f32", EXACT, GRANITEMOE}, {"gemma2", "f32", EXACT, GEMMA2},
    };
    static float want[N_ROWS * N_VOCAB];
    const double uneven[] = {3, 1, 2, 2};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        kin_thread_ring_options o = one();
        make(&some[i]);
        run_once(&o, want);
        for (int n = 2; n <= 4; n++) {
            o = all_of(n, n == 3 ? uneven : NULL);
            print_message("             %s %s, %d devices\n", some[i].arch, some[i].mix, n);
            expect_near(&o, 0, n, want, some[i].bound, N_ROWS / 10);
        }
    }
}

static void a_bias_of_the_output_is_added_once_in_a_group(void **state) {
    (void)state;
    static float want[N_ROWS * N_VOCAB], without[N_ROWS * N_VOCAB];
    kin_thread_ring_options o = one();
    make(&plain); // the same weights
    run_once(&o, without);
    make(&biased);
    run_once(&o, want);
    assert_true(distance(want, without, 0) > 0.01);
    for (int n = 2; n <= 3; n++) {
        o = all_of(n, NULL);
        expect_near(&o, 0, n, want, EXACT, 0);
    }
}

static void norms_with_biases_are_computed_by_every_device(void **state) {
    (void)state;
    static float want[N_ROWS * N_VOCAB];
    kin_thread_ring_options o = one();
    make(&normed);
    run_once(&o, want);
    for (int n = 2; n <= 4; n++) {
        o = all_of(n, NULL);
        expect_near(&o, 0, n, want, EXACT, 0);
    }
}

static void uneven_shares_and_a_q8_0_cache_and_ggmls_layout_are_near_too(void **state) {
    (void)state;
    static float want[N_ROWS * N_VOCAB];
    const double uneven[] = {3, 1, 2};
    make(&mixed);
    for (int i = 0; i < 4; i++) {
        kin_thread_ring_options o = one(), g = all_of(2 + i % 2, uneven);
        o.kv_type = g.kv_type = i < 2 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
        o.no_repack = g.no_repack = i >= 2;
        run_once(&o, want);
        expect_near(&g, 0, 2 + i % 2, want, QUANTIZED, 0);
    }
}

static void groups_inside_of_rings_are_near_too(void **state) {
    (void)state;
    static float want[N_ROWS * N_VOCAB];
    kin_thread_ring_options o = one();
    make(&mixed);
    run_once(&o, want);

    kin_thread_ring_options begins = usual(3), ends = usual(4), rounds = usual(2);
    group(&begins, 0, 2, 1, NULL); // a group, then the head alone
    begins.shares[2].n_layer = 1;
    expect_near(&begins, 0, 2, want, QUANTIZED, 0);

    ends.shares[0].n_layer = 1; // a device, a relay, then a group with the head
    group(&ends, 2, 2, 1, NULL);
    expect_near(&ends, 2, 2, want, QUANTIZED, 0);

    group(&rounds, 0, 2, 1, NULL); // two rounds of one layer
    expect_near(&rounds, 0, 2, want, QUANTIZED, 0);
}

// Uneven groups behind a device and a relay, in two rounds; dense and with experts.
static void groups_of_three_and_four_inside_of_rings_are_near_too(void **state) {
    (void)state;
    static float want[N_ROWS * N_VOCAB];
    static const family f32[] = {{"llama", "f32", EXACT, NULL}, {"qwen3moe", "f32", EXACT, NULL}};
    const double uneven[] = {2, 1, 1, 1};
    for (int i = 0; i < 2; i++) {
        int n_excepted = i == 1 ? N_ROWS / 10 : 0;
        kin_thread_ring_options o = one();
        make(&f32[i]);
        run_once(&o, want);
        for (int n = 3; n <= 4; n++) {
            kin_thread_ring_options ends = usual(n + 2), rounds = usual(n);
            ends.shares[0].n_layer = 1;
            group(&ends, 2, n, 1, uneven);
            expect_near(&ends, 2, n, want, EXACT, n_excepted);
            group(&rounds, 0, n, 1, uneven);
            expect_near(&rounds, 0, n, want, EXACT, n_excepted);
        }
    }
}

static void a_device_has_its_slices_and_no_more(void **state) {
    (void)state;
    const double uneven[] = {3, 1};
    make(&mixed);
    kin_thread_ring_options o = all_of(2, uneven), alone = one();
    kin_thread_ring *ring = open_ring(&o), *whole = open_ring(&alone);
    kin_shard_stats first = kin_thread_ring_stats(ring, 0), second = kin_thread_ring_stats(ring, 1),
                    all = kin_thread_ring_stats(whole, 0);
    const kin_model *m = kin_thread_ring_model(ring);
    const kin_share *a = kin_thread_ring_share(ring, 0), *b = kin_thread_ring_share(ring, 1);
    assert_int_equal(a->head_end, 3);
    assert_int_equal(b->head_begin, 3);
    assert_int_equal(a->ff_end, 1280); // of 1536, in blocks of 256: 4.5 and 1.5 of them
    assert_int_equal(first.kv_bytes, all.kv_bytes / 4 * 3);
    assert_int_equal(first.kv_bytes + second.kv_bytes, all.kv_bytes);
    uint64_t want = 0, bytes = first.weights.mapped_bytes + first.weights.cached_bytes + first.weights.packed_bytes;
    for (int il = 0; il < N_LAYER; il++) want += kin_share_layer_bytes(a, m, il);
    assert_int_equal(bytes, want); // the first member has no output layer
    uint64_t layers = 0, norms = 0;
    for (int il = 0; il < N_LAYER; il++) {
        layers += kin_model_layer_bytes(m, il);
        norms += m->layers[il].w[KIN_W_ATTN_NORM]->n_bytes + m->layers[il].w[KIN_W_FFN_NORM]->n_bytes;
    }
    uint64_t other = 0;
    for (int il = 0; il < N_LAYER; il++) other += kin_share_layer_bytes(b, m, il);
    assert_int_equal(want + other, layers + norms);
    kin_thread_ring_close(ring);
    kin_thread_ring_close(whole);
}

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(name);
}

static void streamed_slices_give_the_bits_of_resident_ones(void **state) {
    (void)state;
    static float want[N_ROWS * N_VOCAB], got[N_ROWS * N_VOCAB];
    char dir[] = "/tmp/kin-test-groups-cache-XXXXXX";
    assert_non_null(mkdtemp(dir));
    make(&mixed);
    kin_thread_ring_options o = all_of(2, NULL);
    kin_thread_ring *ring = open_ring(&o);
    run(ring, want);
    kin_shard_stats s = kin_thread_ring_stats(ring, 0);
    kin_shard_options so = kin_shard_options_defaults(kin_thread_ring_model(ring));
    so.n_ctx = N_CTX;
    so.n_batch = CHUNK;
    so.share = *kin_thread_ring_share(ring, 0);
    o.budget = kin_shard_fixed_bytes(kin_thread_ring_model(ring), &so) + s.weights.packed_bytes * 3 / 4;
    o.cache_dir = dir;
    kin_thread_ring_close(ring);
    for (int again = 0; again < 2; again++) {
        ring = open_ring(&o);
        run(ring, got);
        s = kin_thread_ring_stats(ring, 0);
        kin_thread_ring_close(ring);
        assert_memory_equal(got, want, sizeof got);
        assert_true(s.weights.stream.read_bytes > 0);
        assert_int_equal(s.weights.packed_bytes > 0, !again); // slices have their own cache file
    }
    o.budget = 0;
    const kin_sliding_window windows[] = {{1, 0}, {2, 0}, {3, 2}};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        o.sliding = windows[i];
        ring = open_ring(&o);
        run(ring, got);
        s = kin_thread_ring_stats(ring, 0);
        kin_thread_ring_close(ring);
        assert_memory_equal(got, want, sizeof got);
        assert_true(s.weights.stream.read_bytes > 0);
        assert_int_equal(s.weights.stream.resident_bytes > 0, windows[i].retain > 0);
        assert_int_equal(s.weights.blocks.retained_bytes, s.weights.stream.resident_bytes);
    }
    assert_int_equal(nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void a_member_with_little_memory_for_experts_gives_the_same_bits(void **state) {
    (void)state;
    static float want[N_ROWS * N_VOCAB], got[N_ROWS * N_VOCAB];
    static const family experts = {"qwen3moe", "q8_0", QUANTIZED, NULL};
    char dir[] = "/tmp/kin-test-groups-cache-XXXXXX";
    assert_non_null(mkdtemp(dir));
    make(&experts);
    kin_thread_ring_options o = all_of(2, NULL);
    kin_thread_ring *ring = open_ring(&o);
    run(ring, want);
    kin_shard_stats s = kin_thread_ring_stats(ring, 0);
    kin_shard_options so = kin_shard_options_defaults(kin_thread_ring_model(ring));
    so.n_ctx = N_CTX;
    so.n_batch = CHUNK;
    so.share = *kin_thread_ring_share(ring, 0);
    o.budgets[0] = kin_shard_fixed_bytes(kin_thread_ring_model(ring), &so) + s.weights.packed_bytes / 2;
    o.cache_dir = dir;
    kin_thread_ring_close(ring);
    ring = open_ring(&o);
    run(ring, got);
    s = kin_thread_ring_stats(ring, 0);
    const uint64_t n_read = s.weights.experts.n_misses, n_read_other = kin_thread_ring_stats(ring, 1).weights.experts.n_misses;
    kin_thread_ring_close(ring);
    assert_memory_equal(got, want, sizeof got);
    assert_true(n_read > 0 && n_read_other == 0);
    assert_int_equal(nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void a_sum_that_fails_ends_the_step_with_its_sentence(void **state) {
    (void)state;
    static float got[N_ROWS * N_VOCAB];
    kin_err err;
    make(&plain);
    kin_thread_ring_options o = all_of(3, NULL);
    kin_thread_ring *ring = open_ring(&o);
    run(ring, got);
    kin_thread_ring_break(ring, 0);
    assert_int_equal(try_run(ring, got, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "the group is broken"));
    kin_thread_ring_close(ring);
}

static void layers_that_cannot_be_cut_so_often_are_refused(void **state) {
    (void)state;
    const double weights[] = {1, 1, 1, 1, 1}, nothing[] = {1, 0};
    kin_share shares[KIN_SHARE_RANKS];
    kin_model model;
    kin_err err;
    make(&mixed);
    if (kin_model_open(&model, path, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_share_split(&model, GGML_TYPE_F16, weights, 4, shares, &err), 0);
    for (int r = 0; r < 4; r++) assert_int_equal(kin_share_check(&shares[r], &model, GGML_TYPE_F16, &err), 0);
    assert_int_equal(kin_share_split(&model, GGML_TYPE_F16, weights, 5, shares, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "4 pieces of attention and 6"));
    assert_int_equal(kin_share_split(&model, GGML_TYPE_F16, nothing, 2, shares, &err), KIN_FAIL);
    const kin_share wrong[] = {{0, 2, 0, 5, 0, 256},     {0, 2, 0, 1, 0, 128}, {2, 2, 0, 1, 0, 256},   {-1, 2, 0, 1, 0, 256},
                               {0, 1, 0, 1, 0, 256},     {0, 2, 1, 1, 0, 256}, {0, 2, 0, 1, 256, 256}, {0, 2, -1, 1, 0, 256},
                               {0, 2, 0, 1, 0, 1 << 20}, {0, 9, 0, 1, 0, 256}, {0, 2, 0, 1, -256, 256}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(kin_share_check(&wrong[i], &model, GGML_TYPE_F16, &err), KIN_FAIL);
    kin_model_close(&model);
}

static void what_cannot_be_shared_is_refused_with_its_reason(void **state) {
    (void)state;
#define SHAPE "context_length 512\nembedding_length 256\nblock_count 2\nfeed_forward_length 384\nrope.dimension_count 32\n" HEADS
    static const struct {
        family of;
        const char *reason;
    } some[] = {
        {{"minimax-m2", "f32", EXACT, "architecture minimax-m2\n" SHAPE EXPERTS "expert_gating_func 2\n"},
         "layer 0 normalises queries and keys over all heads at once"},
        {{"phi3", "f32", EXACT, "architecture phi3\n" SHAPE "optional attn_qkv.weight\n"},
         "queries, keys and values of layer 0 are one matrix"},
        {{"gemma2", "f32", EXACT,
          "architecture gemma2\ncontext_length 512\nembedding_length 256\nblock_count 2\nfeed_forward_length 40\n" HEADS
          "attention.sliding_window 16\noptional tied\n"},
         "parts of its feed-forward block are not whole blocks of its weights' types"},
    };
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        kin_share shares[2];
        kin_model model;
        kin_err err;
        make(&some[i].of);
        if (kin_model_open(&model, path, &err) != 0) fail_msg("%s", err.text);
        assert_int_equal(kin_share_split(&model, GGML_TYPE_F16, (const double[]){1, 1}, 2, shares, &err), KIN_FAIL);
        if (!strstr(err.text, some[i].reason)) fail_msg("%s: %s", some[i].of.arch, err.text);
        kin_model_close(&model);
    }
}

static int layers_of(const char *file) {
    kin_model model;
    kin_err err;
    if (kin_model_open(&model, file, &err) != 0) fail_msg("%s", err.text);
    int n = model.hp.n_layer;
    kin_model_close(&model);
    return n;
}
#define layers_of(...) FROM_TEST(layers_of(__VA_ARGS__))

// Returns how many numbers of devices can share the layers, which must then be as exact as llama.cpp's.
static int check_golden(const char *dir, const kin_golden *golden) {
    char model[1024];
    kin_err err;
    int n_checked = 0;
    snprintf(model, sizeof model, "%s/%.63s.gguf", dir, golden->name);
    for (int k = 2; k <= 4; k++) {
        kin_golden_result r;
        kin_thread_ring *ring;
        kin_thread_ring_options o = all_of(k, NULL);
        o.n_batch = o.n_chunk = 64;
        o.shares[0].n_layer = layers_of(model);
        if (kin_thread_ring_open(&ring, model, &o, &err) != 0) {
            print_message("             %-20s %d devices: %s\n", golden->name, k, err.text);
            assert_non_null(strstr(err.text, "cannot share the layers"));
            continue;
        }
        if (kin_golden_check_head(dir, golden, kin_thread_ring_head(ring), kin_thread_ring_model(ring), &r, &err) != 0)
            fail_msg("%d devices: %s", k, err.text);
        print_message("             %-20s %d devices: errors %.2e %.2e (llama.cpp %.2e %.2e)\n", golden->name, k, r.error_median,
                      r.error_max, golden->error_median, golden->error_max);
        kin_thread_ring_close(ring);
        n_checked++;
    }
    return n_checked;
}
#define check_golden(...) FROM_TEST(check_golden(__VA_ARGS__))

static void golden_models_are_as_exact_as_llama_cpp(void **state) {
    (void)state;
    static kin_golden models[KIN_GOLDEN_MAX_MODELS];
    kin_err err;
    for (size_t d = 0; d < sizeof golden_dirs / sizeof golden_dirs[0]; d++) {
        int n = kin_golden_load(golden_dirs[d], models, &err), n_checked = 0;
        for (int i = 0; i < n; i++) n_checked += check_golden(golden_dirs[d], &models[i]);
        if (n > 0) assert_true(n_checked > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_three_and_four_devices_are_near_to_one_machine_with_equal_bits_everywhere),
        cmocka_unit_test(experts_with_shared_ones_and_biases_and_norms_after_sums_are_shared_too),
        cmocka_unit_test(a_bias_of_the_output_is_added_once_in_a_group),
        cmocka_unit_test(norms_with_biases_are_computed_by_every_device),
        cmocka_unit_test(uneven_shares_and_a_q8_0_cache_and_ggmls_layout_are_near_too),
        cmocka_unit_test(groups_inside_of_rings_are_near_too),
        cmocka_unit_test(groups_of_three_and_four_inside_of_rings_are_near_too),
        cmocka_unit_test(a_device_has_its_slices_and_no_more),
        cmocka_unit_test(streamed_slices_give_the_bits_of_resident_ones),
        cmocka_unit_test(a_member_with_little_memory_for_experts_gives_the_same_bits),
        cmocka_unit_test(a_sum_that_fails_ends_the_step_with_its_sentence),
        cmocka_unit_test(layers_that_cannot_be_cut_so_often_are_refused),
        cmocka_unit_test(what_cannot_be_shared_is_refused_with_its_reason),
        cmocka_unit_test(golden_models_are_as_exact_as_llama_cpp),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
