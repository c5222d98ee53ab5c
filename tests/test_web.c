// kin's engine in WebAssembly (web/) gives the bits of the native one: the payloads that a member sends on, for the same plan and
// steps, in node and in Chromium. Skipped where clang-19 was not there to build it, or node is not there to run it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "pipeline/engine_instance.h"
#include "testkit/model_gen.h"
#include "testkit/process.h"

#define MODULES KIN_BINARY_DIR "/web"

enum { N_CTX = 1024, N_BATCH = 600, MAX_PATH = 256, MS_MOST = 120000 };

typedef struct model {
    const char *arch, *mix;
    kin_proto_kv_type kv;
    bool rope_freqs;
} model;

// Dense layers and experts, both ways of rotating, norms and biases of heads, every kind of product; the last one is the demo
// model.
static const model models[] = {{"llama", "q4_k_m", KIN_PROTO_KV_F16, true}, {"qwen3", "q8_0", KIN_PROTO_KV_Q8_0, false},
                               {"qwen2", "q4_0", KIN_PROTO_KV_F16, false},  {"qwen3moe", "q4_k_m", KIN_PROTO_KV_F16, false},
                               {"llama", "f16", KIN_PROTO_KV_Q8_0, false},  {"llama", "q5_k", KIN_PROTO_KV_F16, false},
                               {"demo", "", KIN_PROTO_KV_F16, false}};
enum { N_MODELS = sizeof models / sizeof *models };

static char folder[] = "/tmp/kin-test-web-XXXXXX";
static char paths[3][N_MODELS][MAX_PATH]; // models, cases, what was computed of them
enum { MODEL, CASE, OUT };

// ---- cases: parts of bytes, each after its length in 4 bytes

static void write_part(FILE *f, const uint8_t *bytes, size_t n) {
    uint8_t length[4];
    kin_put_u32(length, (uint32_t)n);
    assert_int_equal(fwrite(length, 1, 4, f), 4);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
}

static kin_proto_plan plan_of(const kin_model *m, const model *spec) {
    int middle = m->hp.n_layer / 2;
    return (kin_proto_plan){
        .n_files = 1,
        .file_size = {kin_gguf_file_size(m->gguf, 0)},
        .n_ctx = N_CTX,
        .n_batch = N_BATCH,
        .n_seq = 4,
        .kv_type = spec->kv,
        .wire_type = KIN_ACTIVATION_F32,
        .flags = KIN_PROTO_PLAN_FLASH | KIN_PROTO_PLAN_REPACK,
        .n_rounds = 2,
        .n_windows = 2,
        .window = {{.round = 0, .layer_begin = 0, .layer_end = (uint16_t)middle},
                   {.round = 1, .layer_begin = (uint16_t)middle, .layer_end = (uint16_t)m->hp.n_layer}},
    };
}

typedef struct maker {
    kin_engine_instance *engine;
    kin_message_pool *pool;
    kin_steps steps;
    kin_rng rng;
    uint64_t step;
    float *x;
    FILE *given, *expected;
} maker;

// A step through both rounds; what comes out of the first goes into the second. Only the last row is wanted.
static void compute_step(maker *m, int32_t seq, int32_t pos, int n, const kin_kv_op *ops, int n_ops) {
    int32_t positions[N_BATCH], seqs[N_BATCH], out = n - 1;
    kin_err err;
    for (int i = 0; i < n; i++) {
        positions[i] = pos + i;
        seqs[i] = seq;
    }
    for (int i = 0; i < n * m->steps.n_embd; i++) m->x[i] = (float)(4 * kin_rng_unit(&m->rng) - 2);
    const kin_batch batch = {.n_tokens = n, .pos = positions, .seq = seqs, .out = &out, .n_out = 1, .ops = ops, .n_ops = n_ops};
    m->step++;
    for (int round = 0; round < 2; round++) {
        const kin_hop hop = {.step = m->step, .round = round, .n_rows = n};
        kin_message_buffer *b = kin_steps_pack(&m->steps, m->pool, 1, &hop, &batch, m->x);
        write_part(m->given, b->payload, b->frame.length);
        b = kin_worker_take(kin_engine_instance_worker(m->engine), b, &err);
        if (!b) fail_msg("%s", err.text);
        write_part(m->expected, b->payload, b->frame.length);
        kin_proto_step said;
        if (kin_steps_check(&m->steps, b, &said, &err) != 0) fail_msg("%s", err.text);
        kin_activations_decode(m->x, said.activations, (size_t)said.n_rows * (size_t)m->steps.n_embd, m->steps.type);
        kin_message_pool_give(m->pool, b);
    }
}

// A prompt longer than a span of attention, tokens of it and of another sequence, one that shares its beginning.
static void compute_steps(maker *m) {
    compute_step(m, 0, 0, 520, NULL, 0);
    compute_step(m, 1, 0, 37, NULL, 0);
    for (int i = 0; i < 3; i++) compute_step(m, 0, 520 + i, 1, NULL, 0);
    compute_step(m, 1, 37, 3, NULL, 0);
    compute_step(m, 2, 100, 2, &(kin_kv_op){2, 0, 100}, 1);
}

static FILE *expected[N_MODELS];

static void make_case(int i) {
    kin_model model;
    kin_err err;
    maker m = {0};
    atomic_bool stop = false;
    if (kin_model_open(&model, paths[MODEL][i], &err) != 0) fail_msg("%s", err.text);
    kin_proto_plan plan = plan_of(&model, &models[i]);
    m.steps = kin_engine_instance_steps(&plan, model.hp.n_embd);
    m.x = malloc(N_BATCH * (size_t)model.hp.n_embd * sizeof *m.x);
    kin_rng_seed(&m.rng, 7);
    m.given = fopen(paths[CASE][i], "wb");
    m.expected = expected[i] = tmpfile();
    if (kin_message_pool_open(&m.pool, 4, &err) != 0) fail_msg("%s", err.text);
    const kin_engine_instance_options o = {.model_path = paths[MODEL][i], .n_threads = 2, .pool = m.pool, .stop = &stop};
    if (kin_engine_instance_open(&m.engine, &plan, &o, &err) != 0) fail_msg("%s", err.text);
    uint8_t bytes[KIN_FRAME_CAP_SMALL];
    write_part(m.given, bytes, kin_proto_encode_plan(bytes, sizeof bytes, &plan));
    compute_steps(&m);
    fclose(m.given);
    kin_engine_instance_close(m.engine);
    kin_message_pool_close(m.pool);
    kin_model_close(&model);
    free(m.x);
}

static void make_model(int i) {
    kin_model_spec s = kin_model_spec_defaults();
    kin_err err;
    if (strcmp(models[i].arch, "demo") == 0) {
        assert_int_equal(symlink(KIN_SOURCE_DIR "/assets/demo.gguf", paths[MODEL][i]), 0);
        return;
    }
    s.arch = models[i].arch;
    s.mix = models[i].mix;
    s.n_layer = 2;
    s.n_embd = 256;
    s.n_ff = 512;
    s.n_vocab = 300;
    s.rope_freqs = models[i].rope_freqs;
    if (strcmp(s.arch, "qwen3moe") == 0) {
        s.n_expert = 6;
        s.n_expert_used = 3;
    }
    if (kin_model_gen(&s, paths[MODEL][i], &err) != 0) fail_msg("%s", err.text);
}

static int make_cases(void **state) {
    (void)state;
    static const char *const kinds[] = {"model", "case", "out"};
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < N_MODELS; i++) {
        for (int k = 0; k < 3; k++) snprintf(paths[k][i], MAX_PATH, "%s/%s%d", folder, kinds[k], i);
        make_model(i);
        make_case(i);
    }
    return 0;
}

static int remove_cases(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        for (int k = 0; k < 3; k++) unlink(paths[k][i]);
        if (expected[i]) fclose(expected[i]);
    }
    char log[MAX_PATH];
    snprintf(log, sizeof log, "%s/log", folder);
    unlink(log);
    return rmdir(folder);
}

// ---- what is computed of them

static void check_file(int i) {
    FILE *f = fopen(paths[OUT][i], "rb");
    if (!f) fail_msg("%s %s: nothing was computed", models[i].arch, models[i].mix);
    long at = 0;
    rewind(expected[i]);
    for (int want; (want = getc(expected[i])) != EOF; at++) {
        int got = getc(f);
        if (got != want) fail_msg("%s %s: byte %ld is %d, natively %d", models[i].arch, models[i].mix, at, got, want);
    }
    assert_int_equal(getc(f), EOF);
    fclose(f);
    unlink(paths[OUT][i]);
}

static void show_log(const char *path) {
    FILE *f = fopen(path, "rb");
    for (int c; f && (c = getc(f)) != EOF;) putchar(c);
    if (f) fclose(f);
}

// tests/web/SCRIPT MODULES UNIT THREADS MODEL CASE OUT ...
static void check_with(const char *script, char *unit, char *threads) {
    char path[MAX_PATH], modules[] = MODULES, *argv[32 + 3 * N_MODELS];
    kin_process p = {0};
    kin_err err;
    int n = 0;
    if (access(MODULES "/engine_relaxed.wasm", R_OK) != 0) skip();
    snprintf(path, sizeof path, KIN_SOURCE_DIR "/tests/web/%s", script);
    snprintf(p.log, sizeof p.log, "%s/log", folder);
    argv[n++] = "/usr/bin/env"; // finds it
    argv[n++] = "node";
    argv[n++] = "--no-warnings";
    argv[n++] = "--experimental-wasm-relaxed-simd"; // a name that later ones ignore
    argv[n++] = "--no-liftoff";                     // V8 11.3's computes relaxed products wrongly
    argv[n++] = path;
    argv[n++] = modules;
    argv[n++] = unit;
    argv[n++] = threads;
    for (int i = 0; i < N_MODELS; i++)
        for (int k = 0; k < 3; k++) argv[n++] = paths[k][i];
    argv[n] = NULL;
    extern char **environ;
    if (kin_process_start(&p, argv, environ, false, &err) != 0) skip();
    bool ended = kin_process_wait(&p, MS_MOST);
    int code = ended && WIFEXITED(p.status) ? WEXITSTATUS(p.status) : -1;
    if (code == 77 || code == 127) skip(); // no such instructions, or browser; no node
    if (!ended || p.status != 0) show_log(p.log);
    if (!ended) kin_process_kill(&p);
    assert_true(ended);
    assert_int_equal(p.status, 0);
    for (int i = 0; i < N_MODELS; i++) check_file(i);
}

static void node_with_relaxed_vectors_gives_native_bits(void **state) {
    (void)state;
    check_with("engine.mjs", "relaxed", "1");
}

static void node_with_plain_vectors_gives_native_bits(void **state) {
    (void)state;
    check_with("engine.mjs", "simd128", "1");
}

static void node_with_several_threads_gives_native_bits(void **state) {
    (void)state;
    check_with("engine.mjs", "relaxed", "3");
}

static void chromium_gives_native_bits(void **state) {
    (void)state;
    check_with("chromium.mjs", "relaxed", "2");
}

static void chromium_without_shared_memory_gives_native_bits(void **state) {
    (void)state;
    check_with("chromium.mjs", "relaxed", "1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(node_with_relaxed_vectors_gives_native_bits),
        cmocka_unit_test(node_with_plain_vectors_gives_native_bits),
        cmocka_unit_test(node_with_several_threads_gives_native_bits),
        cmocka_unit_test(chromium_gives_native_bits),
        cmocka_unit_test(chromium_without_shared_memory_gives_native_bits),
    };
    if (access(MODULES "/engine_relaxed.wasm", R_OK) != 0) {
        print_message("skipped: kin's engine for browsers was not built (apt-get install clang-19 lld-19)\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, make_cases, remove_cases);
}
