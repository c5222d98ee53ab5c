// A model larger than its memory computes the same bits as with enough memory.
//
// Its bits are also the same with packed weights (unlimited memory, or any memory and a cache) and with those of the file (no
// packing, or streaming without a cache), and with a mixture of both, if a cache is only partly usable.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/expert_history.h"
#include "engine/weights.h"
#include "testkit/head_eval.h"
#include "testkit/model_gen.h"
#include "testkit/runner.h"
#include "testkit/sanitized.h"
#include "tests/place.h"

enum {
    MAX_VOCAB = 10240,
    N_EMBD = 512,  // of the dense models
    N_PROMPT = 45, // three batches
    N_BATCH = 20,
    N_MADE = 8, // tokens generated after the prompt
    N_AGAIN = 5 // tokens of another prompt after a clear
};

#define MIB ((uint64_t)1 << 20)

// ---- models

static kin_model_spec dense(const char *mix, int n_layer, int n_vocab) {
    kin_model_spec s = kin_model_spec_defaults();
    s.mix = mix;
    s.n_layer = n_layer;
    s.n_embd = N_EMBD;
    s.n_ff = 1024;
    s.n_vocab = n_vocab;
    return s;
}

static kin_model_spec experts(const char *arch) {
    kin_model_spec s = kin_model_spec_defaults();
    s.arch = arch;
    s.n_layer = 3;
    s.n_embd = 256;
    s.n_ff = 512;
    s.n_expert = 8;
    s.n_expert_used = 3;
    return s;
}

// Many small experts, as Qwen 3 Next has them.
static kin_model_spec many_experts(void) {
    kin_model_spec s = experts("qwen3moe");
    s.mix = "q4_0";
    s.n_layer = 2;
    s.n_embd = 128;
    s.n_ff_exp = 64;
    s.n_expert = 512;
    s.n_expert_used = 10;
    return s;
}

// Matrices of experts that are packed in several bands.
static kin_model_spec large_experts(void) {
    kin_model_spec s = experts("qwen3moe");
    s.mix = "q4_k_m";
    s.n_layer = 2;
    s.n_embd = 1024;
    s.n_ff_exp = 2560;
    s.n_expert = 4;
    s.n_expert_used = 2;
    return s;
}

// Experts are layers of their own, the last one, too.
#define NEMOTRON                                                                                                                 \
    "architecture nemotron_h_moe\ncontext_length 256\nembedding_length 256\nblock_count 6\nattention.head_count 4\n"             \
    "feed_forward_length [0, 128, 0, 128, 0, 128]\nattention.head_count_kv [0, 0, 2, 0, 0, 0]\n"                                 \
    "attention.layer_norm_rms_epsilon 0.00001\nssm.conv_kernel 4\nssm.state_size 32\nssm.group_count 2\nssm.inner_size 256\n"    \
    "ssm.time_step_rank 8\nexpert_count 64\nexpert_used_count 8\nexpert_feed_forward_length 128\nmoe_latent_size 128\n"

static kin_model_spec nemotron(void) {
    kin_model_spec s = kin_model_spec_defaults();
    s.mix = "q8_0";
    s.n_vocab = 1024;
    s.n_expert = 64;
    return s;
}

// All computed logits, row by row.
typedef struct result {
    float prompt[N_PROMPT * (size_t)MAX_VOCAB];
    float made[N_MADE * (size_t)MAX_VOCAB];
    float again[MAX_VOCAB];
    int32_t tokens[N_MADE];
    kin_shard_stats stats;
} result;

// A model file, a folder for its cache, and the results with unlimited memory.
typedef struct fixture {
    char dir[64], path[96], cache_dir[96];
    kin_model_spec spec;
    kin_runner_options o;
    size_t n_vocab;
    bool has_experts;
    uint64_t weights_bytes;              // weights on the CPU
    uint64_t least_memory, ample_memory; // the least memory with which the model opens; enough for all weights
    result wanted, got;
} fixture;

static int32_t best(const float *logits, size_t n) {
    size_t at = 0;
    for (size_t i = 1; i < n; i++) at = logits[i] > logits[at] ? i : at;
    return (int32_t)at;
}

static void eval(kin_runner *r, int32_t pos, const int32_t *tokens, int n, float *logits, int n_logits) {
    kin_err err;
    if (kin_head_eval(r->head, 0, pos, tokens, n, logits, n_logits, &err) != 0) fail_msg("%s", err.text);
}

static void make_prompt(const fixture *f, int32_t prompt[N_PROMPT]) {
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = (i * 37 + 1) % (int)f->n_vocab;
}

// Evaluates a prompt in batches with all logits, generates tokens one by one, clears, and evaluates a prompt for its last logits.
static void compute(const fixture *f, kin_runner *r, result *to) {
    int32_t prompt[N_PROMPT];
    make_prompt(f, prompt);
    eval(r, 0, prompt, N_PROMPT, to->prompt, N_PROMPT);
    int32_t token = best(to->prompt + (N_PROMPT - 1) * f->n_vocab, f->n_vocab);
    for (int i = 0; i < N_MADE; i++) {
        float *logits = to->made + (size_t)i * f->n_vocab;
        to->tokens[i] = token;
        eval(r, N_PROMPT + i, &token, 1, logits, 1);
        token = best(logits, f->n_vocab);
    }
    kin_head_clear(r->head);
    eval(r, 0, prompt + 9, N_AGAIN - 1, NULL, 0);
    eval(r, N_AGAIN - 1, prompt + 30, 1, to->again, 1);
}

static void run(const fixture *f, const kin_runner_options *o, result *to) {
    kin_runner r;
    kin_err err;
    if (kin_runner_open(&r, f->path, o, &err) != 0) fail_msg("%s", err.text);
    compute(f, &r, to);
    to->stats = kin_shard_get_stats(r.shard);
    kin_runner_close(&r);
}
#define run(...) FROM_TEST(run(__VA_ARGS__))

static void expect_same_bits(const fixture *f, const result *want) {
    size_t row = f->n_vocab * sizeof(float);
    assert_memory_equal(f->got.tokens, want->tokens, sizeof want->tokens);
    for (size_t i = 0; i < N_PROMPT; i++) {
        if (memcmp(f->got.prompt + i * f->n_vocab, want->prompt + i * f->n_vocab, row) != 0) fail_msg("prompt: token %zu", i);
    }
    for (size_t i = 0; i < N_MADE; i++) {
        if (memcmp(f->got.made + i * f->n_vocab, want->made + i * f->n_vocab, row) != 0) fail_msg("generated: token %zu", i);
    }
    assert_memory_equal(f->got.again, want->again, row);
}
#define expect_same_bits(...) FROM_TEST(expect_same_bits(__VA_ARGS__))

// ---- the least memory

static bool opens(const fixture *f, uint64_t memory, kin_err *err) {
    kin_runner_options o = f->o;
    kin_runner r;
    o.memory = memory;
    if (kin_runner_open(&r, f->path, &o, err) != 0) return false;
    kin_runner_close(&r);
    return true;
}

// Returns the least memory with which the model opens, to 64 KiB.
static uint64_t find_least_memory(const fixture *f) {
    uint64_t too_little = MIB, enough = 256 * MIB;
    kin_err err;
    while (enough - too_little > MIB / 16) {
        uint64_t middle = too_little + (enough - too_little) / 2;
        if (opens(f, middle, &err))
            enough = middle;
        else
            too_little = middle;
    }
    return enough;
}

// ---- set-up

// Each model is made once for all tests.
typedef enum which {
    Q4_K_M,
    SMALL,
    Q8_0_CACHE,
    F16,
    MIXTRAL,
    QWEN3MOE,
    MANY_EXPERTS,
    LARGE_EXPERTS,
    NEMOTRON_H_MOE,
    N_MODELS
} which;

static fixture *fixtures[N_MODELS];

// Returns the file of a fixture with the same model, which then need not be quantized again, or NULL.
static const char *path_of_same(const fixture *f) {
    for (int i = 0; i < N_MODELS; i++) {
        const fixture *o = fixtures[i];
        bool same = o && o != f && strcmp(o->spec.arch, f->spec.arch) == 0 && strcmp(o->spec.mix, f->spec.mix) == 0 &&
                    o->spec.n_layer == f->spec.n_layer && o->spec.n_vocab == f->spec.n_vocab;
        if (same) return o->path;
    }
    return NULL;
}

static void make_fixture(fixture *f, const kin_model_spec *spec) {
    kin_err err;
    memcpy(f->dir, "/tmp/kin-test-streaming-XXXXXX", 31);
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/model.gguf", f->dir);
    snprintf(f->cache_dir, sizeof f->cache_dir, "%s/cache", f->dir);
    f->o = kin_runner_options_defaults();
    f->o.n_batch = N_BATCH;
    f->n_vocab = (size_t)spec->n_vocab;
    f->has_experts = spec->n_expert > 0;
    assert_true(spec->n_vocab <= MAX_VOCAB);
    f->spec = *spec;
    const char *same = path_of_same(f);
    if (same) assert_int_equal(link(same, f->path), 0);
    if (!same && kin_model_gen(spec, f->path, &err) != 0) fail_msg("%s", err.text);
}

static void compute_wanted(fixture *f) {
    kin_runner_options o = f->o;
    run(f, &o, &f->wanted);
    assert_int_equal(f->wanted.stats.weights.stream.read_bytes, 0);
    o.device.repack = false;
    run(f, &o, &f->got);
    assert_int_equal(f->got.stats.weights.packed_bytes, 0);
    expect_same_bits(f, &f->wanted);
    f->weights_bytes = f->got.stats.weights.mapped_bytes;
    f->least_memory = find_least_memory(f);
    o.memory = f->least_memory;
    run(f, &o, &f->got);
    f->ample_memory = f->least_memory - f->got.stats.weights_budget + f->weights_bytes;
}

static int set_up(void **state, which i, kin_model_spec spec, enum ggml_type kv_type) {
    if (!fixtures[i]) {
        fixture *f = fixtures[i] = calloc(1, sizeof *f);
        assert_non_null(f);
        make_fixture(f, &spec);
        f->o.kv_type = kv_type;
        compute_wanted(f);
    }
    *state = fixtures[i];
    return 0;
}
#define set_up(...) FROM_TEST(set_up(__VA_ARGS__))

static int set_up_q4_k_m(void **state) {
    return set_up(state, Q4_K_M, dense("q4_k_m", 6, MAX_VOCAB), GGML_TYPE_F16); // its output layer has three tiles
}

static int set_up_small(void **state) {
    return set_up(state, SMALL, dense("q4_k_m", 6, 4096), GGML_TYPE_F16);
}

static int set_up_q8_0_cache(void **state) {
    return set_up(state, Q8_0_CACHE, dense("q4_k_m", 6, 4096), GGML_TYPE_Q8_0);
}

static int set_up_f16(void **state) {
    return set_up(state, F16, dense("f16", 3, 4096), GGML_TYPE_F16);
}

static int set_up_mixtral(void **state) {
    return set_up(state, MIXTRAL, experts("llama"), GGML_TYPE_F16);
}

static int set_up_qwen3moe(void **state) {
    return set_up(state, QWEN3MOE, experts("qwen3moe"), GGML_TYPE_F16);
}

// Removes a folder of this test and its files.
static void remove_dir(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] != '.') unlinkat(dirfd(dir), e->d_name, 0);
    }
    closedir(dir);
    rmdir(path);
}

static int set_up_many_experts(void **state) {
    return set_up(state, MANY_EXPERTS, many_experts(), GGML_TYPE_F16);
}

static int set_up_large_experts(void **state) {
    return set_up(state, LARGE_EXPERTS, large_experts(), GGML_TYPE_F16);
}

static int set_up_nemotron(void **state) {
    char keys[] = "/tmp/kin-test-streaming-XXXXXX";
    kin_model_spec spec = nemotron();
    const int fd = mkstemp(keys);
    assert_true(fd >= 0 && write(fd, NEMOTRON, sizeof NEMOTRON - 1) == sizeof NEMOTRON - 1);
    close(fd);
    spec.keys = keys;
    int rc = set_up(state, NEMOTRON_H_MOE, spec, GGML_TYPE_F16);
    unlink(keys);
    return rc;
}

static int tear_down(void **state) {
    remove_dir(((const fixture *)*state)->cache_dir);
    return 0;
}

static int remove_models(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        if (fixtures[i]) remove_dir(fixtures[i]->dir);
        free(fixtures[i]);
    }
    return 0;
}

// ---- memory

// part: from 0 (the least memory) to 4 (enough for everything).
static uint64_t memory_of(const fixture *f, uint64_t part) {
    return f->least_memory + (f->ample_memory - f->least_memory) * part / 4;
}

// Dense models read all non-resident weights in every pass. Experts come from a cache of their own.
static void expect_streaming(const fixture *f, uint64_t part) {
    const kin_weights_stats *w = &f->got.stats.weights;
    const uint64_t n_passes = (N_PROMPT + N_BATCH - 1) / N_BATCH + N_MADE + 2;
    assert_true(w->stream.resident_bytes < f->weights_bytes);
    assert_int_equal(w->stream.n_passes, n_passes);
    if (part == 0) assert_int_equal(w->stream.resident_bytes, 0);
    if (!f->has_experts)
        assert_true(w->stream.read_bytes >= (n_passes - 1) * (f->weights_bytes - w->stream.resident_bytes - MIB));
    if (part == 0) assert_true(w->stream.read_bytes > 0);
    assert_int_equal(w->anonymous_bytes, 0);
    if (!f->has_experts) return;
    assert_true(w->experts.n_misses > 0 && w->experts.read_bytes > 0);
    assert_true(w->experts.held_bytes > 0 && w->experts.held_bytes <= w->experts.budget);
}
#define expect_streaming(...) FROM_TEST(expect_streaming(__VA_ARGS__))

// Computes tokens, and drafts between them from any hidden states.
static kin_stream_stats read_with_drafts(const fixture *f, uint64_t memory, int n_drafts) {
    static float hidden[N_EMBD], logits[MAX_VOCAB];
    kin_runner_options o = f->o;
    kin_runner r;
    kin_err err;
    o.memory = memory;
    o.keeps_output = true;
    if (kin_runner_open(&r, f->path, &o, &err) != 0) fail_msg("%s", err.text);
    for (int i = 0; i < N_EMBD; i++) hidden[i] = (float)(i % 7) - 3;
    for (int32_t token = 0; token < 8; token++) {
        eval(&r, token, &token, 1, logits, 1);
        for (int i = 0; i < n_drafts; i++)
            if (kin_shard_project(r.shard, 1, hidden, logits, &err) != 0) fail_msg("%s", err.text);
    }
    const kin_stream_stats stats = kin_shard_get_stats(r.shard).weights.stream;
    kin_runner_close(&r);
    return stats;
}
#define read_with_drafts(...) FROM_TEST(read_with_drafts(__VA_ARGS__))

static void drafts_read_no_output_matrix_and_drop_nothing_that_was_read_ahead(void **state) {
    enum { OUTPUT_BYTES = 2 * MIB }; // at most, in Q6_K
    const fixture *f = *state;
    if (KIN_SANITIZED) skip(); // sanitizers take memory that leaves none for the output matrix
    const kin_stream_stats without = read_with_drafts(f, memory_of(f, 3), 0);
    const uint64_t with = read_with_drafts(f, memory_of(f, 3), 6).read_bytes;
    assert_true(without.read_bytes > 0 && without.resident_bytes > OUTPUT_BYTES);
    // They differ by what is read ahead at the end, and by an output matrix of which the kernel took a page.
    assert_in_range(with, without.read_bytes / 2, without.read_bytes * 4 / 3);
}

static void any_memory_gives_the_same_bits_without_a_cache(void **state) {
    fixture *f = *state;
    kin_runner_options o = f->o;
    for (uint64_t part = 0; part < 4; part++) {
        o.memory = memory_of(f, part);
        run(f, &o, &f->got);
        expect_streaming(f, part);
        assert_int_equal(f->got.stats.weights.packed_bytes, 0);
        expect_same_bits(f, &f->wanted);
    }
}

static void any_memory_gives_the_same_bits_with_a_cache(void **state) {
    fixture *f = *state;
    kin_runner_options o = f->o;
    o.cache_dir = f->cache_dir;
    for (uint64_t part = 0; part < 4; part++) {
        o.memory = memory_of(f, part);
        run(f, &o, &f->got);
        expect_streaming(f, part);
        const kin_weights_stats *w = &f->got.stats.weights;
        bool packs = f->wanted.stats.weights.packed_bytes > 0, first = part == 0;
        assert_int_equal(w->packed_bytes > 0, packs && first);
        assert_int_equal(w->cached_bytes > 0, packs && !first);
        expect_same_bits(f, &f->wanted);
    }
}

// Each of many threads writes what it has packed after each MiB.
static void experts_packed_in_parts_give_the_same_bits(void **state) {
    fixture *f = *state;
    kin_runner_options o = f->o;
    o.cache_dir = f->cache_dir;
    o.memory = memory_of(f, 1);
    o.device.n_threads = 16;
    run(f, &o, &f->got);
    expect_streaming(f, 1);
    expect_same_bits(f, &f->wanted);
    o.device.n_threads = f->o.device.n_threads;
    run(f, &o, &f->got); // checked against their hash
    assert_int_equal(f->got.stats.weights.packed_bytes, 0);
    expect_same_bits(f, &f->wanted);
}

static void all_the_memory_and_a_cache_give_the_same_bits(void **state) {
    fixture *f = *state;
    kin_runner_options o = f->o;
    o.cache_dir = f->cache_dir;
    for (int round = 0; round < 2; round++) {
        run(f, &o, &f->got);
        assert_int_equal(f->got.stats.weights.stream.read_bytes, 0);
        expect_same_bits(f, &f->wanted);
    }
}

static void modes_that_leave_it_to_the_os_give_the_same_bits(void **state) {
    static const kin_stream_mode modes[] = {KIN_STREAM_MMAP, KIN_STREAM_WILLNEED};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        kin_runner_options o = f->o;
        o.mode = modes[i];
        o.memory = memory_of(f, 1);
        run(f, &o, &f->got);
        assert_int_equal(f->got.stats.weights.stream.read_bytes, 0);
        expect_same_bits(f, &f->wanted);
        o.device.repack = false;
        run(f, &o, &f->got);
        expect_same_bits(f, &f->wanted);
    }
}

// Computes a batch twice, and returns what the first time did.
static kin_experts_stats compute_batch(fixture *f, uint64_t memory) {
    kin_runner_options o = f->o;
    kin_runner r;
    kin_err err;
    int32_t prompt[N_PROMPT];
    make_prompt(f, prompt);
    o.memory = memory;
    if (kin_runner_open(&r, f->path, &o, &err) != 0) fail_msg("%s", err.text);
    eval(&r, 0, prompt, N_BATCH, f->got.prompt, N_BATCH);
    const kin_experts_stats experts = kin_shard_get_stats(r.shard).weights.experts;
    kin_head_clear(r.head);
    eval(&r, 0, prompt, N_BATCH, f->got.again, 1);
    kin_runner_close(&r);
    assert_memory_equal(f->got.prompt, f->wanted.prompt, N_BATCH * f->n_vocab * sizeof(float));
    assert_memory_equal(f->got.again, f->wanted.prompt + (N_BATCH - 1) * f->n_vocab, f->n_vocab * sizeof(float));
    return experts;
}
#define compute_batch(...) FROM_TEST(compute_batch(__VA_ARGS__))

// Bytes of an expert in the file, of the layers where it is smallest and largest; the number of all experts.
typedef struct expert_sizes {
    uint64_t least, most;
    int n, n_layers;
} expert_sizes;

static expert_sizes find_expert_sizes(const fixture *f) {
    expert_sizes sizes = {.least = UINT64_MAX};
    kin_runner r;
    kin_err err;
    if (kin_runner_open(&r, f->path, &f->o, &err) != 0) fail_msg("%s", err.text);
    const kin_hparams *hp = &r.model.hp;
    for (int il = 0; il < hp->n_layer; il++) {
        uint64_t bytes = 0;
        for (int id = 0; id < KIN_W_COUNT && kin_layer_of(hp, il).has_experts; id++)
            if (kin_weight_is_experts((kin_weight)id) && r.model.layers[il].w[id]) bytes += r.model.layers[il].w[id]->n_bytes;
        bytes /= (uint64_t)hp->n_expert;
        if (bytes == 0) continue;
        sizes.n_layers++;
        sizes.n += hp->n_expert;
        if (bytes < sizes.least) sizes.least = bytes;
        if (bytes > sizes.most) sizes.most = bytes;
    }
    kin_runner_close(&r);
    return sizes;
}
#define find_expert_sizes(...) FROM_TEST(find_expert_sizes(__VA_ARGS__))

// The experts that a layer needs for a batch do not fit all at once, so they are computed in groups, each of which is read once.
static void a_prompt_keeps_to_the_memory_of_experts(void **state) {
    fixture *f = *state;
    const expert_sizes sizes = find_expert_sizes(f);
    const kin_experts_stats experts = compute_batch(f, memory_of(f, 0));
    assert_true(experts.held_bytes > 0 && experts.held_bytes <= experts.budget);
    assert_true(experts.n_hits == 0 && experts.n_misses <= (uint64_t)sizes.n);
    assert_in_range(experts.read_bytes, experts.n_misses * sizes.least, experts.n_misses * sizes.most);
    assert_true(experts.budget < experts.read_bytes / (uint64_t)sizes.n_layers); // so a layer takes several groups
}

// ---- a budget that changes while weights are in use

typedef struct changer {
    kin_weights *weights;
    uint64_t all; // bytes
    atomic_bool ends;
} changer;

static void *change_budgets(void *arg) {
    changer *c = arg;
    for (uint64_t i = 0; !atomic_load(&c->ends); i++) {
        kin_weights_set_budget(c->weights, c->all * (i % 5) / 4);
        kin_weights_anonymous_bytes(c->weights);
    }
    return NULL;
}

// Goes through all compute blocks, as a pass does.
static void pass_through(kin_weights *w) {
    kin_err err;
    if (!kin_weights_begin(w, 0, true)) return;
    for (int i = 0; i < kin_weights_tile_compute_block(w, kin_weights_n_tiles(w)); i++) {
        if (kin_weights_acquire(w, i, &err) != 0) fail_msg("%s", err.text);
        kin_weights_release(w, i);
    }
}
#define pass_through(...) FROM_TEST(pass_through(__VA_ARGS__))

// The computing thread opens the cache of experts when they do not all fit any more, while the governor's thread sets budgets.
static void a_budget_may_change_while_weights_are_opened_and_used(void **state) {
    const fixture *f = *state;
    kin_device_options device = f->o.device;
    kin_model m;
    kin_devices devices;
    kin_err err;
    device.repack = false; // packed experts would stay in memory without a cache
    if (kin_model_open(&m, f->path, &err) != 0 || kin_devices_open(&devices, &device, &err) != 0) fail_msg("%s", err.text);
    const kin_weights_options o = {.windows = kin_windows_one(0, m.hp.n_layer, 0),
                                   .n_ctx = f->o.n_ctx,
                                   .output = true,
                                   .mode = KIN_STREAM_RESIDENT,
                                   .budget = UINT64_MAX};
    for (int round = 0; round < 10; round++) {
        changer c = {.all = kin_weights_cpu_bytes(&m, &o)};
        pthread_t thread;
        if (kin_weights_open(&c.weights, &m, &devices, &o, &err) != 0) fail_msg("%s", err.text);
        assert_true(kin_weights_most_useful_budget(c.weights) > 0);
        assert_int_equal(pthread_create(&thread, NULL, change_budgets, &c), 0);
        bool has_experts = !devices.cpu.kernels;
        for (int pass = 0; pass < 5 || !has_experts; pass++) {
            pass_through(c.weights);
            has_experts = has_experts || kin_weights_get_stats(c.weights).experts.budget > 0;
        }
        atomic_store(&c.ends, true);
        pthread_join(thread, NULL);
        kin_weights_close(c.weights);
    }
    kin_devices_close(&devices);
    kin_model_close(&m);
}

// ---- counts of experts

// Returns the path of the only packed file in the cache's folder, with `suffix` appended.
static void find_cache_file(const fixture *f, const char *suffix, char *path, size_t size) {
    DIR *dir = opendir(f->cache_dir);
    assert_non_null(dir);
    path[0] = '\0';
    for (struct dirent *e; (e = readdir(dir));) {
        size_t n = strlen(e->d_name);
        if (n > 5 && strcmp(e->d_name + n - 5, ".pack") == 0) snprintf(path, size, "%s/%s%s", f->cache_dir, e->d_name, suffix);
    }
    closedir(dir);
    assert_true(path[0]);
}
#define find_cache_file(...) FROM_TEST(find_cache_file(__VA_ARGS__))

// Overwrites a byte of a file by other bits.
static void change_byte(const char *path, off_t at) {
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x20;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

// Predicts the hits with a half of the experts in memory, by the counts in the cache's folder.
static int predict_hits(const fixture *f, double *hits) {
    static const double half = 0.5;
    kin_runner r;
    kin_err err;
    if (kin_runner_open(&r, f->path, &f->o, &err) != 0) fail_msg("%s", err.text);
    int rc = kin_expert_history_hits(f->cache_dir, &r.model, &half, hits, 1, &err);
    kin_runner_close(&r);
    return rc;
}
#define predict_hits(...) FROM_TEST(predict_hits(__VA_ARGS__))

// Runs again if the thread that fills the cache came too late: a loaded machine may not let it run before all experts were
// needed.
static void run_filled(fixture *f, const kin_runner_options *o) {
    for (int i = 0; i < 5; i++) {
        run(f, o, &f->got);
        if (f->got.stats.weights.experts.n_filled > 0) return;
    }
    fail_msg("no expert was read before it was needed");
}
#define run_filled(...) FROM_TEST(run_filled(__VA_ARGS__))

// The second run reads before its first token what the first one used.
static void a_second_run_begins_with_the_experts_of_the_first(void **state) {
    fixture *f = *state;
    kin_runner_options o = f->o;
    char path[512];
    double hits = 0;
    o.cache_dir = f->cache_dir;
    o.memory = memory_of(f, 2);
    assert_int_equal(predict_hits(f, &hits), KIN_ABSENT);
    run(f, &o, &f->got);
    if (f->got.stats.weights.packed_bytes == 0) skip(); // this CPU has no other layout
    assert_int_equal(predict_hits(f, &hits), 0);
    assert_true(hits >= 0.5 && hits <= 1);
    assert_int_equal(f->got.stats.weights.experts.n_filled, 0);
    find_cache_file(f, ".experts", path, sizeof path);
    assert_int_equal(access(path, R_OK), 0);
    run_filled(f, &o);
    assert_true(f->got.stats.weights.experts.held_bytes <= f->got.stats.weights.experts.budget);
    expect_same_bits(f, &f->wanted);
    for (off_t at = 0; at < 40; at += 13) { // format, model, a count
        change_byte(path, at);
        run(f, &o, &f->got);
        assert_int_equal(f->got.stats.weights.experts.n_filled, 0);
        expect_same_bits(f, &f->wanted);
    }
    change_byte(path, 30);
    assert_int_equal(predict_hits(f, &hits), KIN_ABSENT);
    change_byte(path, 30);
    run_filled(f, &o); // the damaged file was replaced
}

// ---- a missing or incomplete cache

static void an_unusable_cache_folder_is_as_none(void **state) {
    fixture *f = *state;
    kin_runner_options o = f->o;
    o.cache_dir = "/dev/null/kin";
    o.memory = memory_of(f, 1);
    run(f, &o, &f->got);
    assert_true(f->got.stats.weights.packed_bytes == 0 && f->got.stats.weights.cached_bytes == 0);
    expect_same_bits(f, &f->wanted);
}

// Bytes from the cache are checked against their hash before they are used, whether streamed or not.
static void a_flipped_byte_in_the_cache_is_mended_while_it_streams(void **state) {
    fixture *f = *state;
    kin_runner_options o = f->o;
    char path[512];
    o.cache_dir = f->cache_dir;
    o.memory = memory_of(f, 0);
    run(f, &o, &f->got);
    if (f->got.stats.weights.packed_bytes == 0) skip(); // this CPU has no other layout
    find_cache_file(f, "", path, sizeof path);
    for (uint64_t part = 0; part < 4; part++) {
        struct stat st;
        uint8_t byte;
        int fd = open(path, O_RDWR);
        assert_true(fd >= 0 && fstat(fd, &st) == 0);
        off_t at = st.st_size * (off_t)(1 + 2 * part) / 8;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x20;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        o.memory = memory_of(f, part);
        for (int round = 0; round < 2; round++) {
            run(f, &o, &f->got);
            expect_same_bits(f, &f->wanted);
        }
        uint8_t mended;
        fd = open(path, O_RDONLY);
        assert_int_equal(pread(fd, &mended, 1, at), 1);
        assert_int_equal(mended, byte ^ 0x20);
        close(fd);
    }
}

static void invalidate_all_blocks(const char *path) {
    static const uint8_t zeros[4096 - 64]; // overwrites the table of blocks (packed.h)
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, zeros, sizeof zeros, 64), sizeof zeros);
    close(fd);
}
#define invalidate_all_blocks(...) FROM_TEST(invalidate_all_blocks(__VA_ARGS__))

static void limit_file_size(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}
#define limit_file_size(...) FROM_TEST(limit_file_size(__VA_ARGS__))

// As on a full disk: the file exists, but writes beyond its first megabytes fail.
static void a_cache_that_cannot_be_completed_is_used_as_far_as_it_goes(void **state) {
    fixture *f = *state;
    kin_runner_options o = f->o;
    char path[512];
    o.cache_dir = f->cache_dir;
    o.memory = memory_of(f, 1);
    run(f, &o, &f->got);
    if (f->got.stats.weights.packed_bytes == 0) skip(); // this CPU has no other layout
    uint64_t complete = f->got.stats.weights.packed_bytes;
    find_cache_file(f, "", path, sizeof path);
    invalidate_all_blocks(path);
    signal(SIGXFSZ, SIG_IGN);
    for (int round = 0; round < 2; round++) {
        limit_file_size(complete / 3);
        run(f, &o, &f->got);
        limit_file_size(RLIM_INFINITY);
        const kin_weights_stats *w = &f->got.stats.weights;
        uint64_t packed = w->packed_bytes + w->cached_bytes;
        assert_true(packed > 0 && packed < complete && w->mapped_bytes > 0);
        assert_int_equal(w->anonymous_bytes, 0);
        expect_same_bits(f, &f->wanted);
    }
    run(f, &o, &f->got); // now writes the rest
    expect_same_bits(f, &f->wanted);
    unlink(path);
    limit_file_size(complete / 3);
    run(f, &o, &f->got); // cannot even make an empty file
    limit_file_size(RLIM_INFINITY);
    assert_int_equal(f->got.stats.weights.packed_bytes, 0);
    expect_same_bits(f, &f->wanted);
}

// ---- the least memory

static void less_than_the_least_memory_is_refused_in_one_sentence(void **state) {
    fixture *f = *state;
    kin_err err;
    assert_true(opens(f, f->least_memory, &err));
    for (uint64_t memory = 1; memory < f->least_memory; memory = memory * 3 + MIB) {
        err.text[0] = '\0';
        assert_false(opens(f, memory, &err));
        assert_true(err.text[0] && !strchr(err.text, '\n'));
    }
    assert_false(opens(f, f->least_memory - MIB / 16, &err));
    assert_non_null(strstr(err.text, "MiB are not enough for weights: streaming needs at least"));
}

#define TEST(name, model)                                                                                                        \
    { #name ": " #model, name, set_up_##model, tear_down, NULL }
#define MODEL_TESTS(model)                                                                                                       \
    TEST(any_memory_gives_the_same_bits_without_a_cache, model), TEST(any_memory_gives_the_same_bits_with_a_cache, model),       \
        TEST(modes_that_leave_it_to_the_os_give_the_same_bits, model)

int main(void) {
    const struct CMUnitTest tests[] = {
        // First, because what tests leave in the heap counts as used memory.
        TEST(drafts_read_no_output_matrix_and_drop_nothing_that_was_read_ahead, small),
        MODEL_TESTS(q4_k_m),
        MODEL_TESTS(q8_0_cache),
        MODEL_TESTS(f16),
        MODEL_TESTS(mixtral),
        MODEL_TESTS(qwen3moe),
        MODEL_TESTS(nemotron),
        TEST(a_prompt_keeps_to_the_memory_of_experts, qwen3moe),
        TEST(a_prompt_keeps_to_the_memory_of_experts, many_experts),
        TEST(a_prompt_keeps_to_the_memory_of_experts, nemotron),
        TEST(any_memory_gives_the_same_bits_with_a_cache, many_experts),
        TEST(a_budget_may_change_while_weights_are_opened_and_used, qwen3moe),
        TEST(experts_packed_in_parts_give_the_same_bits, large_experts),
        TEST(all_the_memory_and_a_cache_give_the_same_bits, q4_k_m),
        TEST(a_flipped_byte_in_the_cache_is_mended_while_it_streams, q4_k_m),
        TEST(a_second_run_begins_with_the_experts_of_the_first, qwen3moe),
        TEST(an_unusable_cache_folder_is_as_none, small),
        TEST(a_cache_that_cannot_be_completed_is_used_as_far_as_it_goes, small),
        TEST(less_than_the_least_memory_is_refused_in_one_sentence, small),
    };
    return cmocka_run_group_tests(tests, NULL, remove_models);
}
