// The logits of draft blocks (multi-token prediction) are those that llama.cpp computes, for each family whose blocks kin
// computes: from the model's own hidden states on, and through several blocks, each of which takes the states of the one before
// it. And the memory of a block that ends several streams itself.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/shard_memory.h"
#include "model/draft_block.h"
#include "model/embed.h"
#include "model/streams.h"
#include "pipeline/mtp_drafter.h"
#include "sys/whole_file.h"
#include "testkit/model_gen.h"
#include "testkit/thread_ring.h"
#include "tests/place.h"

// As in tests/golden/make_drafts.c.
enum { N_VOCAB = 288, N_IDS = 24 };

static kin_devices devices;

static int32_t id_at(int i) {
    return (i * 37 + 11 + i / 7) % N_VOCAB;
}

// Computes the hidden states of all ids. // f32 [N_IDS, n_embd]
static void run_model(kin_head *head, size_t n_embd, float *states) {
    int32_t tokens[N_IDS], seq[N_IDS] = {0}, pos[N_IDS];
    uint64_t number;
    kin_err err;
    for (int i = 0; i < N_IDS; i++) tokens[i] = id_at(i), pos[i] = i;
    const kin_head_step step = {.n = N_IDS, .tokens = tokens, .seq = seq, .pos = pos, .states = true, .more = true};
    if (kin_head_send(head, &step, &number, &err) != 0 || kin_head_receive(head, NULL, &number, &err) != 0)
        fail_msg("%s", err.text);
    memcpy(states, kin_head_states(head), N_IDS * n_embd * sizeof *states);
}
#define run_model(...) FROM_TEST(run_model(__VA_ARGS__))

// x, y // f32 [n, stream width]. Of a block that ends its streams: ended // f32 [n, n_embd]
static void run_block(kin_draft_block *b, int n, const int32_t *tokens, const float *x, float *y, float *ended) {
    const size_t n_embd = (size_t)b->view.hp.n_input;
    kin_shard_options so = kin_shard_options_defaults(&b->view);
    float *inputs = malloc((size_t)n * n_embd * sizeof *inputs);
    int32_t pos[N_IDS];
    kin_shard *shard;
    kin_err err;
    so.n_ctx = 128;
    so.n_batch = N_IDS;
    so.output = false;
    so.stream_ends = b->has_ends;
    so.kv_type = GGML_TYPE_F16;
    for (int i = 0; i < n; i++) pos[i] = i;
    assert_non_null(inputs);
    assert_int_equal(kin_embed(&b->embeds, tokens, n, inputs, &err), 0);
    const kin_batch batch = {.n_tokens = n, .pos = pos, .inputs = inputs};
    if (kin_shard_open(&shard, &b->view, &devices, &so, &err) != 0) fail_msg("%s", err.text);
    const int step = kin_shard_begin(shard, &batch, &err);
    if (step < 0 || kin_shard_run(shard, step, 0, x, y, &err) != 0) fail_msg("%s", err.text);
    kin_shard_end(shard, step, true);
    if (b->has_ends) assert_int_equal(kin_shard_hidden(shard, n, y, ended, &err), 0);
    kin_shard_close(shard);
    free(inputs);
}
#define run_block(...) FROM_TEST(run_block(__VA_ARGS__))

static void normalize(const kin_draft_block *b, const float *norm, int n, const float *x, float *y) {
    const size_t n_embd = (size_t)b->view.hp.n_embd;
    kin_err err;
    for (size_t i = 0; i < (size_t)n; i++)
        kin_kernels_choose(&err)->rms_norm((int64_t)n_embd, x + i * n_embd, norm, b->view.hp.rms_eps, y + i * n_embd);
}

// Makes of states what the block takes; is_first: they are the model's.
static void take(const kin_draft_block *b, bool is_first, int n, const float *x, float *y) {
    const int n_embd = b->view.hp.n_embd, n_streams = is_first && b->n_streams > b->view.hp.n_streams ? b->n_streams : 1;
    kin_err err;
    for (int i = 0; i < n && n_streams > 1; i++)
        kin_streams_average(kin_kernels_choose(&err), n_streams, n_embd, x + i * n_streams * n_embd, y + i * n_embd);
    if (n_streams > 1) x = y;
    if (b->in_norm)
        normalize(b, b->in_norm, n, x, y);
    else
        memcpy(y, x, (size_t)n * (size_t)b->view.hp.n_input * sizeof *y);
}

// Makes of its results what the output matrix takes.
static void end(const kin_draft_block *b, kin_head *head, int n, const float *x, float *y) {
    const int n_embd = b->view.hp.n_embd;
    kin_err err;
    if (b->view.hp.n_streams == 1) {
        for (int i = 0; i < n && b->centers_out; i++) kin_kernels_choose(&err)->center(n_embd, x + i * n_embd, y + i * n_embd);
        normalize(b, b->out_norm, n, b->centers_out ? y : x, y);
        return;
    }
    assert_int_equal(kin_head_end(head, n, x, y, &err), 0);
    for (int i = 0; i < n * n_embd; i++) y[i] *= b->out_norm[i % n_embd] / b->model_norm[i % n_embd];
}

// Returns the relative L2 distance of the worst row.
static double worst_error(const float *got, const float *want, int n) {
    double worst = 0;
    for (int row = 0; row < n; row++, got += N_VOCAB, want += N_VOCAB) {
        double diff = 0, sum = 0;
        for (int i = 0; i < N_VOCAB; i++) {
            diff += (double)(got[i] - want[i]) * (double)(got[i] - want[i]);
            sum += (double)want[i] * (double)want[i];
        }
        worst = fmax(worst, sqrt(diff / sum));
    }
    return worst;
}

// Returns the first token that a drafter writes behind all ids. states // f32 [N_IDS, width]
static int32_t first_drafted(kin_head *head, const kin_model *m, const float *states) {
    const kin_mtp_drafter_options o = {.model = m,
                                       .devices = &devices,
                                       .n_ctx = 128,
                                       .n_sequences = 1,
                                       .n_batch = N_IDS,
                                       .n_vocab = N_VOCAB,
                                       .kv_type = GGML_TYPE_F16};
    int32_t tokens[N_IDS];
    kin_draft draft = {0};
    kin_draft_limits limits = {.most = 1};
    const kin_draft_query query = {.sequence = 1, .tokens = tokens, .n = N_IDS, .most = 1, .out = &draft};
    kin_mtp_drafter *d;
    kin_err err;
    for (int i = 0; i < KIN_DRAFT_GRADES; i++) limits.chances[i] = 0.5;
    for (int i = 0; i < N_IDS; i++) tokens[i] = id_at(i);
    if (kin_mtp_drafter_open(&d, &o, &err) != 0) fail_msg("%s", err.text);
    for (int pos = 0; pos < N_IDS - 1; pos++) { // one by one: the last one must wait for the draft
        const kin_mtp_states of = {.sequence = 1,
                                   .tokens = tokens,
                                   .n_tokens = pos + 1,
                                   .pos = pos,
                                   .n = 1,
                                   .rows = states + (size_t)pos * kin_mtp_drafter_width(d)};
        kin_mtp_drafter_add_states(d, &of);
    }
    kin_mtp_drafter_propose(d, head, &query, 1, &limits);
    kin_mtp_drafter_close(d);
    assert_int_equal(draft.n, 1);
    return draft.tokens[0];
}
#define first_drafted(...) FROM_TEST(first_drafted(__VA_ARGS__))

static void check_blocks(const char *name, kin_head *head, const kin_model *m, FILE *golden) {
    const size_t n_embd = (size_t)kin_hparams_stream_width(&m->hp);
    float *raw = calloc(N_IDS * n_embd, sizeof *raw), *x = calloc(N_IDS * n_embd, sizeof *x);
    float *want = malloc(N_IDS * N_VOCAB * sizeof *want), *got = malloc(N_IDS * N_VOCAB * sizeof *got);
    int32_t tokens[N_IDS];
    kin_draft_blocks b;
    kin_err err;
    assert_true(raw && x && want && got);
    if (kin_draft_blocks_open(&b, m, NULL, &err) != 0) fail_msg("%s: %s", name, err.text);
    run_model(head, n_embd, raw);
    const int32_t first = first_drafted(head, m, raw);
    for (int k = 0; k < b.n; k++) {
        const int n = N_IDS - 1 - k;
        for (int i = 0; i < n; i++) tokens[i] = id_at(i + 1 + k);
        take(&b.at[k], k == 0, n, raw, x);
        run_block(&b.at[k], n, tokens, x, raw, x);
        if (!b.at[k].has_ends) end(&b.at[k], head, n, raw, x);
        assert_int_equal(kin_head_project(head, n, x, got, &err), 0);
        assert_int_equal(fread(want, sizeof *want, (size_t)n * N_VOCAB, golden), (size_t)n * N_VOCAB);
        if (k == 0) assert_int_equal(first, kin_draft_choose(want + (size_t)(n - 1) * N_VOCAB, N_VOCAB).token);
        const double error = worst_error(got, want, n);
        print_message("%s, block %d: %.1e\n", name, k, error);
        if (!(error < 2e-3)) fail_msg("%s, block %d: the logits are wrong by %g", name, k, error); // keys and values are F16
    }
    assert_int_equal(fgetc(golden), EOF);
    kin_draft_blocks_close(&b);
    free(raw);
    free(x);
    free(want);
    free(got);
}

static void check_family(const char *name) {
    char text[1024], logits[1024], path[] = "/tmp/kin-test-mtp-golden-XXXXXX";
    kin_model_spec spec = kin_model_spec_defaults();
    kin_thread_ring_options o = {.n_members = 1, .n_batch = N_IDS, .n_ctx = 128, .n_steps = 2};
    kin_thread_ring *ring;
    kin_model m;
    kin_err err;
    const int fd = mkstemp(path);
    snprintf(text, sizeof text, KIN_SOURCE_DIR "/tests/golden/drafts/%s.txt", name);
    snprintf(logits, sizeof logits, KIN_SOURCE_DIR "/tests/golden/drafts/%s.logits", name);
    spec.keys = text;
    spec.mix = "f32";
    spec.n_vocab = N_VOCAB;
    if (fd < 0 || close(fd) != 0 || kin_model_gen(&spec, path, &err) != 0) fail_msg("%s", err.text);
    if (kin_model_open(&m, path, &err) != 0) fail_msg("%s", err.text);
    o.shares[0] = (kin_layer_share){m.hp.n_layer, 0, 0};
    kin_model_close(&m);
    if (kin_thread_ring_open(&ring, path, &o, &err) != 0) fail_msg("%s", err.text);
    FILE *golden = fopen(logits, "rb");
    assert_non_null(golden);
    check_blocks(name, kin_thread_ring_head(ring), kin_thread_ring_model(ring), golden);
    fclose(golden);
    kin_thread_ring_close(ring);
    unlink(path);
}

static void the_logits_of_each_block_are_llama_cpp_s(void **state) {
    static const char *const names[] = {"qwen35",     "qwen35moe",      "qwen3next", "glm4moe", "deepseek2",
                                        "deepseek32", "glm-dsa",        "hy_v3",     "step35",  "mimo2",
                                        "deepseek4",  "nemotron_h_moe", "qwen4exp",  "glm5next"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_family(names[i]);
}

// ---- memory

// Makes the golden model whose draft block ends several streams itself, with mixers of another rank.
static void make_with_rank(int rank, char *path) {
    static const char was[] = "hyper_connection.low_rank 32\n";
    char keys[] = "/tmp/kin-test-mtp-golden-XXXXXX";
    kin_model_spec spec = kin_model_spec_defaults();
    uint8_t *text;
    size_t n;
    kin_err err;
    assert_int_equal(kin_whole_file_read(KIN_SOURCE_DIR "/tests/golden/drafts/qwen4exp.txt", 1 << 20, &text, &n, &err), 0);
    const uint8_t *at = memmem(text, n, was, sizeof was - 1);
    assert_non_null(at);
    FILE *f = fdopen(mkstemp(keys), "w");
    assert_non_null(f);
    fwrite(text, 1, (size_t)(at - text), f);
    fprintf(f, "hyper_connection.low_rank %d\n", rank);
    fwrite(at + sizeof was - 1, 1, n - (size_t)(at - text) - (sizeof was - 1), f);
    assert_int_equal(fclose(f), 0);
    free(text);
    spec.keys = keys;
    spec.mix = "f32";
    spec.n_vocab = N_VOCAB;
    if (close(mkstemp(path)) != 0 || kin_model_gen(&spec, path, &err) != 0) fail_msg("%s", err.text);
    unlink(keys);
}

// Returns the bytes of the draft block's tensors in the file whose names contain `part`, without those that kin never reads.
static uint64_t bytes_of_block(const kin_model *m, const char *part) {
    char prefix[32], name[128];
    uint64_t sum = 0;
    snprintf(prefix, sizeof prefix, "blk.%d.", m->hp.n_layer);
    for (size_t i = 0; i < kin_gguf_n_tensors(m->gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(m->gguf, i);
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.at);
        if (strncmp(name, prefix, strlen(prefix)) == 0 && strstr(name, part) && !strstr(name, ".indexer.")) sum += t->n_bytes;
    }
    return sum;
}

// The bytes of weights that the block's shard has opened.
static uint64_t bytes_loaded(const kin_draft_block *b, const kin_devices *plain, const kin_shard_options *so) {
    kin_shard *shard;
    kin_err err;
    if (kin_shard_open(&shard, &b->view, plain, so, &err) != 0) fail_msg("%s", err.text);
    const kin_weights_stats w = kin_shard_get_stats(shard).weights;
    kin_shard_close(shard);
    return w.mapped_bytes + w.cached_bytes + w.packed_bytes;
}
#define bytes_loaded(...) FROM_TEST(bytes_loaded(__VA_ARGS__))

static void the_memory_of_a_block_is_that_of_the_tensors_that_it_loads(void **state) {
    uint64_t needs[2], tensors[2];
    kin_device_options plain_options = kin_device_options_defaults();
    kin_devices plain;
    kin_err err;
    (void)state;
    plain_options.repack = false; // so that weights have the size that they have in the file
    plain_options.n_threads = 1;
    assert_int_equal(kin_devices_open(&plain, &plain_options, &err), 0);
    for (int i = 0; i < 2; i++) {
        char path[] = "/tmp/kin-test-mtp-golden-XXXXXX";
        kin_model m;
        kin_draft_blocks b;
        make_with_rank(32 << i, path);
        if (kin_model_open(&m, path, &err) != 0 || kin_draft_blocks_open(&b, &m, NULL, &err) != 0) fail_msg("%s", err.text);
        kin_shard_options so = kin_shard_options_defaults(&b.at[0].view);
        so.n_ctx = 128;
        so.n_batch = N_IDS;
        so.output = false;
        so.kv_type = GGML_TYPE_F16;
        const uint64_t without = kin_shard_fixed_bytes(&b.at[0].view, &so), ends = bytes_of_block(&m, ".nextn.hc_head_");
        so.stream_ends = true;
        assert_true(b.n == 1 && b.at[0].has_ends && ends > 0);
        assert_int_equal(kin_shard_fixed_bytes(&b.at[0].view, &so) - without, ends);
        tensors[i] = bytes_of_block(&m, "");
        assert_int_equal(bytes_loaded(&b.at[0], &plain, &so), tensors[i]);
        assert_int_equal(kin_draft_blocks_bytes(&b), tensors[i]);
        const kin_mtp_drafter_options o = {.model = &m,
                                           .devices = &plain,
                                           .n_ctx = 128,
                                           .n_sequences = 1,
                                           .n_batch = N_IDS,
                                           .n_vocab = N_VOCAB,
                                           .kv_type = GGML_TYPE_F16};
        assert_int_equal(kin_mtp_drafter_needs(&o, &needs[i], &err), 0);
        kin_draft_blocks_close(&b);
        kin_model_close(&m);
        unlink(path);
    }
    assert_int_equal(needs[1] - needs[0], tensors[1] - tensors[0]); // the rest does not depend on the mixers' rank
    kin_devices_close(&plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_logits_of_each_block_are_llama_cpp_s),
                                       cmocka_unit_test(the_memory_of_a_block_is_that_of_the_tensors_that_it_loads)};
    kin_device_options o = kin_device_options_defaults();
    kin_err err;
    o.n_threads = 1;
    if (kin_devices_open(&devices, &o, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kin_devices_close(&devices);
    return failed;
}
