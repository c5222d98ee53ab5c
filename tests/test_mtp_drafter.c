// Drafts from a model's own block for multi-token prediction: hidden states of verified tokens come with the step, alone, in
// rings and beside other sequences; the block computes what its formula says; refused drafts leave nothing behind; the text is
// the same.
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

#include "model/arch.h"
#include "model/draft_block.h"
#include "model/embed.h"
#include "pipeline/mtp_drafter.h"
#include "pipeline/scheduler.h"
#include "testkit/model_gen.h"
#include "testkit/thread_ring.h"
#include "tests/place.h"

enum { N_VOCAB = 360, N_EMBD = 128, N_HEAD = 4, N_HEAD_KV = 2, DIM = 32, N_FF = 160, N_LAYER = 6, N_CTX = 640, N_BATCH = 32 };

static char random_path[] = "/tmp/kin-test-mtp-XXXXXX", known_path[] = "/tmp/kin-test-mtp-XXXXXX",
            plain_path[] = "/tmp/kin-test-mtp-XXXXXX", several_path[] = "/tmp/kin-test-mtp-XXXXXX",
            trunk_path[] = "/tmp/kin-test-mtp-XXXXXX", blocks_path[] = "/tmp/kin-test-mtp-XXXXXX";
enum { N_SEVERAL = 3 };           // blocks in several_path
static const double RIGHT = 0.75; // of the known text's drafts
static kin_devices devices;

static kin_model_spec spec_of(const char *mix) {
    kin_model_spec spec = kin_model_spec_defaults();
    spec.arch = "qwen35";
    spec.mix = mix;
    spec.n_layer = N_LAYER;
    spec.n_embd = N_EMBD;
    spec.n_ff = N_FF;
    spec.n_head = N_HEAD;
    spec.n_head_kv = N_HEAD_KV;
    spec.head_dim = DIM;
    spec.n_vocab = N_VOCAB;
    spec.attention_interval = 3;
    spec.endless = true;
    return spec;
}

static void make_file(char *name, const kin_model_spec *spec) {
    kin_err err;
    int fd = mkstemp(name);
    if (fd < 0 || close(fd) != 0 || kin_model_gen(spec, name, &err) != 0) fail_msg("%s", err.text);
}
#define make_file(...) FROM_TEST(make_file(__VA_ARGS__))

static int begin(void **state) {
    (void)state;
    kin_device_options o = kin_device_options_defaults();
    kin_model_spec spec = spec_of("f32");
    kin_err err;
    make_file(plain_path, &spec);
    spec.draft_blocks = 1;
    make_file(random_path, &spec);
    spec.part = KIN_MODEL_WITHOUT_DRAFTS;
    make_file(trunk_path, &spec);
    spec.part = KIN_MODEL_DRAFTS;
    make_file(blocks_path, &spec);
    spec.part = KIN_MODEL_WHOLE;
    spec.draft_blocks = N_SEVERAL;
    make_file(several_path, &spec);
    spec.draft_blocks = 1;
    spec.draft_right = (float)RIGHT;
    make_file(known_path, &spec);
    o.n_threads = 2;
    if (kin_devices_open(&devices, &o, &err) != 0) fail_msg("%s", err.text);
    return 0;
}

static int end(void **state) {
    (void)state;
    kin_devices_close(&devices);
    return unlink(random_path) | unlink(known_path) | unlink(plain_path) | unlink(several_path) | unlink(trunk_path) |
           unlink(blocks_path);
}

static kin_thread_ring *open_ring(const char *path, int n_members) {
    kin_thread_ring_options o = {.n_members = n_members, .n_batch = N_BATCH, .n_ctx = N_CTX, .n_steps = 4};
    kin_thread_ring *ring;
    kin_err err;
    for (int i = 0; i < n_members; i++) o.shares[i] = (kin_layer_share){N_LAYER / n_members, 0, 0};
    if (kin_thread_ring_open(&ring, path, &o, &err) != 0) fail_msg("%s", err.text);
    return ring;
}
#define open_ring(...) FROM_TEST(open_ring(__VA_ARGS__))

static int32_t token_at(int sequence, int pos) {
    return 259 + (pos * 37 + sequence * 11 + pos / 7) % (N_VOCAB - 259);
}

// ---- hidden states

// Tokens of two sequences in one step: `n` of each, from position `pos` on; logits are wanted of every third row.
typedef struct states_step {
    int32_t tokens[N_BATCH], seq[N_BATCH], pos[N_BATCH], out[N_BATCH];
    int n, n_out;
    float logits[N_BATCH * N_VOCAB];
} states_step;

static void run_step(kin_head *head, states_step *s, bool states, int pos, int n) {
    uint64_t number;
    kin_err err;
    s->n = s->n_out = 0;
    for (int k = 0; k < n; k++) {
        for (int sequence = 0; sequence < 2; sequence++) {
            s->tokens[s->n] = token_at(sequence, pos + k);
            s->seq[s->n] = sequence;
            s->pos[s->n] = pos + k;
            if (s->n % 3 == 2) s->out[s->n_out++] = s->n;
            s->n++;
        }
    }
    kin_head_step step = {.n = s->n,
                          .tokens = s->tokens,
                          .seq = s->seq,
                          .pos = s->pos,
                          .out = s->out,
                          .n_out = s->n_out,
                          .logits = s->logits,
                          .states = states};
    if (kin_head_send(head, &step, &number, &err) != 0 || kin_head_receive(head, NULL, &number, &err) != 0)
        fail_msg("%s", err.text);
}
#define run_step(...) FROM_TEST(run_step(__VA_ARGS__))

static void normalize(const kin_model *m, const float *x, float *y) {
    kin_err err;
    kin_kernels_choose(&err)->rms_norm(N_EMBD, x, (const float *)m->output_norm->data, m->hp.rms_eps, y);
}

static void hidden_states_of_all_tokens_come_with_the_step(void **state) {
    (void)state;
    static states_step plain, with;
    static float first[2][N_BATCH * N_EMBD], normed[N_BATCH * N_EMBD], logits[N_BATCH * N_VOCAB];
    kin_err err;
    for (int n_members = 1; n_members <= 3; n_members++) {
        kin_thread_ring *ring = open_ring(random_path, n_members);
        kin_head *head = kin_thread_ring_head(ring);
        const int n[] = {9, 4};
        for (int i = 0, pos = 0; i < 2; pos += n[i++]) {
            run_step(head, &plain, false, pos, n[i]);
            assert_null(kin_head_states(head));
            for (int sequence = 0; sequence < 2; sequence++) kin_head_truncate(head, sequence, 0);
            for (int at = 0, k = 0; at < pos; at += n[k++]) run_step(head, &plain, false, at, n[k]);
            run_step(head, &with, true, pos, n[i]);
            const float *states = kin_head_states(head);
            assert_non_null(states);
            if (i == 0) assert_memory_equal(plain.logits, with.logits, (size_t)plain.n_out * N_VOCAB * sizeof(float));
            if (n_members == 1) memcpy(first[i], states, (size_t)with.n * N_EMBD * sizeof(float));
            assert_memory_equal(states, first[i], (size_t)with.n * N_EMBD * sizeof(float));
            for (int k = 0; k < with.n_out; k++)
                normalize(kin_thread_ring_model(ring), states + (size_t)with.out[k] * N_EMBD, normed + (size_t)k * N_EMBD);
            assert_int_equal(kin_head_project(head, with.n_out, normed, logits, &err), 0);
            assert_memory_equal(logits, with.logits, (size_t)with.n_out * N_VOCAB * sizeof(float));
        }
        kin_thread_ring_close(ring);
    }
}

// ---- the block's arithmetic

static const float *weight(const kin_model *m, const char *name) {
    char full[80];
    snprintf(full, sizeof full, "blk.%d.%s.weight", N_LAYER, name);
    const kin_gguf_tensor *t = kin_gguf_find_tensor(m->gguf, full);
    assert_non_null(t);
    return (const float *)t->data;
}

static void rms(int n, double eps, const double *x, const float *w, double *y) {
    double squares = 0;
    for (int i = 0; i < n; i++) squares += x[i] * x[i];
    const double scale = 1 / sqrt(squares / n + eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * scale * (double)w[i];
}

static void multiply(const float *w, int n_in, int n_out, const double *x, double *y) {
    for (int r = 0; r < n_out; r++) {
        y[r] = 0;
        for (int i = 0; i < n_in; i++) y[r] += (double)w[(size_t)r * (size_t)n_in + (size_t)i] * x[i];
    }
}

static void rotate(double base, int pos, double *head) {
    for (int i = 0; i < DIM / 2; i++) {
        const double angle = pos * pow(base, -2.0 * i / DIM), a = head[i], b = head[i + DIM / 2];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + DIM / 2] = a * sin(angle) + b * cos(angle);
    }
}

typedef struct entry {
    double k[N_HEAD_KV * DIM], v[N_HEAD_KV * DIM];
} entry;

static void attend(const entry *entries, int n, const double *q, const double *gate, int i_head, double *out) {
    double scores[64], sum = 0;
    const int kv = i_head / (N_HEAD / N_HEAD_KV) * DIM;
    for (int t = 0; t < n; t++) {
        scores[t] = 0;
        for (int i = 0; i < DIM; i++) scores[t] += q[i] * entries[t].k[kv + i];
        sum += scores[t] = exp(scores[t] / sqrt(DIM));
    }
    for (int i = 0; i < DIM; i++) {
        out[i] = 0;
        for (int t = 0; t < n; t++) out[i] += scores[t] / sum * entries[t].v[kv + i];
        out[i] /= 1 + exp(-gate[i]);
    }
}

// x // [2 * N_EMBD] the embedding and the state -> y // [N_EMBD], after the entries before it
static void compute_block(const kin_model *m, entry *entries, int pos, const double *in, double *y) {
    const double eps = (double)m->hp.rms_eps, base = m->hp.ropes[0].base;
    double both[2 * N_EMBD], x[N_EMBD], cur[N_EMBD], q[2 * N_HEAD * DIM], heads[N_HEAD * DIM], gate[N_FF], up[N_FF];
    entry *own = &entries[pos];
    rms(N_EMBD, eps, in, weight(m, "nextn.enorm"), both);
    rms(N_EMBD, eps, in + N_EMBD, weight(m, "nextn.hnorm"), both + N_EMBD);
    multiply(weight(m, "nextn.eh_proj"), 2 * N_EMBD, N_EMBD, both, x);
    rms(N_EMBD, eps, x, weight(m, "attn_norm"), cur);
    multiply(weight(m, "attn_q"), N_EMBD, 2 * N_HEAD * DIM, cur, q);
    multiply(weight(m, "attn_k"), N_EMBD, N_HEAD_KV * DIM, cur, own->k);
    multiply(weight(m, "attn_v"), N_EMBD, N_HEAD_KV * DIM, cur, own->v);
    for (int h = 0; h < N_HEAD_KV; h++) {
        rms(DIM, eps, own->k + h * DIM, weight(m, "attn_k_norm"), own->k + h * DIM);
        rotate(base, pos, own->k + h * DIM);
    }
    for (int h = 0; h < N_HEAD; h++) {
        double *of = q + (size_t)2 * (size_t)h * DIM;
        rms(DIM, eps, of, weight(m, "attn_q_norm"), of);
        rotate(base, pos, of);
        attend(entries, pos + 1, of, of + DIM, h, heads + h * DIM);
    }
    multiply(weight(m, "attn_output"), N_HEAD * DIM, N_EMBD, heads, cur);
    for (int i = 0; i < N_EMBD; i++) x[i] += cur[i];
    rms(N_EMBD, eps, x, weight(m, "post_attention_norm"), cur);
    multiply(weight(m, "ffn_gate"), N_EMBD, N_FF, cur, gate);
    multiply(weight(m, "ffn_up"), N_EMBD, N_FF, cur, up);
    for (int i = 0; i < N_FF; i++) up[i] *= gate[i] / (1 + exp(-gate[i]));
    multiply(weight(m, "ffn_down"), N_FF, N_EMBD, up, cur);
    for (int i = 0; i < N_EMBD; i++) y[i] = x[i] + cur[i];
}
#define compute_block(...) FROM_TEST(compute_block(__VA_ARGS__))

static void run_block(kin_draft_block *b, int n, const float *x, const float *inputs, float *y) {
    kin_shard_options so = kin_shard_options_defaults(&b->view);
    kin_shard *shard;
    kin_err err;
    int32_t pos[N_BATCH];
    so.n_ctx = 128;
    so.n_batch = N_BATCH;
    so.output = false;
    so.kv_type = GGML_TYPE_F16;
    for (int i = 0; i < n; i++) pos[i] = i;
    const kin_batch batch = {.n_tokens = n, .pos = pos, .inputs = inputs};
    if (kin_shard_open(&shard, &b->view, &devices, &so, &err) != 0) fail_msg("%s", err.text);
    int step = kin_shard_begin(shard, &batch, &err);
    if (step < 0 || kin_shard_run(shard, step, 0, x, y, &err) != 0) fail_msg("%s", err.text);
    kin_shard_end(shard, step, true);
    kin_shard_close(shard);
}
#define run_block(...) FROM_TEST(run_block(__VA_ARGS__))

static void the_block_computes_what_its_formula_says(void **state) {
    (void)state;
    enum { N = 12 };
    static float x[N * N_EMBD], inputs[N * N_EMBD], y[N * N_EMBD];
    static entry entries[N];
    kin_model m;
    kin_draft_blocks b;
    kin_err err;
    if (kin_model_open(&m, random_path, &err) != 0 || kin_draft_blocks_open(&b, &m, NULL, &err) != 0) fail_msg("%s", err.text);
    assert_true(!b.at[0].has_output && b.at[0].view.token_embd == m.token_embd && b.at[0].out_norm != b.at[0].in_norm);
    for (int i = 0; i < N * N_EMBD; i++) x[i] = sinf((float)i * 0.37f) + 0.3f * cosf((float)i * 1.7f);
    for (int i = 0; i < N; i++) {
        const int32_t token = token_at(0, i);
        assert_int_equal(kin_embed(&b.at[0].view, &token, 1, inputs + i * N_EMBD, &err), 0);
    }
    run_block(&b.at[0], N, x, inputs, y);
    double largest = 0, worst = 0;
    for (int i = 0; i < N; i++) {
        double in[2 * N_EMBD], want[N_EMBD];
        for (int k = 0; k < N_EMBD; k++) in[k] = (double)inputs[i * N_EMBD + k], in[N_EMBD + k] = (double)x[i * N_EMBD + k];
        compute_block(&m, entries, i, in, want);
        for (int k = 0; k < N_EMBD; k++) {
            worst = fmax(worst, fabs((double)y[i * N_EMBD + k] - want[k]));
            largest = fmax(largest, fabs(want[k]));
        }
    }
    assert_true(worst < 1e-3 * largest); // keys and values are F16
    kin_draft_blocks_close(&b);
    kin_model_close(&m);
}

// ---- files without a block that kin computes

static void expect_refused(const char *path, const char *says) {
    kin_model m;
    kin_draft_blocks b;
    kin_err err;
    if (kin_model_open(&m, path, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_draft_blocks_open(&b, &m, NULL, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, says));
    kin_model_close(&m);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

static void other_files_are_refused_with_a_sentence(void **state) {
    (void)state;
    kin_model m;
    kin_draft_blocks b;
    kin_err err;
    expect_refused(plain_path, "has no block for multi-token prediction");
    if (kin_model_open(&m, random_path, &err) != 0) fail_msg("%s", err.text);
    m.hp.n_draft_layer = KIN_DRAFT_BLOCKS + 1;
    assert_int_equal(kin_draft_blocks_open(&b, &m, NULL, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "9 blocks for multi-token prediction are not supported (at most 8 are)"));
    m.hp.n_draft_layer = 2;
    assert_int_equal(kin_draft_blocks_open(&b, &m, NULL, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "is missing"));
    m.hp.n_draft_layer = 1;
    m.hp.n_layer = N_LAYER - 1; // a layer that is not such a block
    assert_int_equal(kin_draft_blocks_open(&b, &m, NULL, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "has no block for multi-token prediction"));
    m.hp.n_layer = N_LAYER;
    const kin_arch *arch = m.hp.arch;
    m.hp.arch = kin_arch_at(0); // llama
    assert_int_equal(kin_draft_blocks_open(&b, &m, NULL, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "of the family 'llama' are not supported"));
    m.hp.arch = arch;
    kin_model_close(&m);
}

// ---- drafts

enum { MOST = 4 };

static kin_mtp_drafter *open_drafter_of(const kin_model *m, const char *path, int n_ctx, int n_sequences) {
    kin_mtp_drafter_options o = {.model = m,
                                 .path = path,
                                 .devices = &devices,
                                 .n_ctx = n_ctx,
                                 .n_sequences = n_sequences,
                                 .n_batch = N_BATCH,
                                 .n_vocab = N_VOCAB,
                                 .kv_type = GGML_TYPE_F16};
    kin_mtp_drafter *d;
    kin_err err;
    if (kin_mtp_drafter_open(&d, &o, &err) != 0) fail_msg("%s", err.text);
    return d;
}
#define open_drafter_of(...) FROM_TEST(open_drafter_of(__VA_ARGS__))

static kin_mtp_drafter *open_drafter(const kin_model *m, int n_ctx, int n_sequences) {
    return open_drafter_of(m, NULL, n_ctx, n_sequences);
}
#define open_drafter(...) FROM_TEST(open_drafter(__VA_ARGS__))

static kin_draft_limits limits(int most) {
    kin_draft_limits l = {.most = most, .mean_chance = 0.5};
    for (int i = 0; i < KIN_DRAFT_GRADES; i++) l.chances[i] = 0.5;
    return l;
}

static void make_state(int32_t token, int pos, float *row) {
    for (int k = 0; k < N_EMBD; k++) row[k] = sinf((float)token + (float)pos * 0.11f + (float)k);
}

// Hidden states are numbers of the token and the position. Later tokens are not known yet.
static void give(kin_mtp_drafter *d, uint64_t sequence, const int32_t *tokens, int pos, int n) {
    static float rows[N_BATCH * N_EMBD];
    kin_mtp_states of = {.sequence = sequence, .tokens = tokens, .n_tokens = pos + n, .pos = pos, .n = n, .rows = rows};
    for (int i = 0; i < n; i++) make_state(tokens[pos + i], pos + i, rows + i * N_EMBD);
    kin_mtp_drafter_add_states(d, &of);
}

static void give_all(kin_mtp_drafter *d, uint64_t sequence, const int32_t *tokens, int from, int n) {
    for (int pos = from; pos < n - 1; pos += N_BATCH - 5) {
        const int left = n - 1 - pos;
        give(d, sequence, tokens, pos, left < N_BATCH - 5 ? left : N_BATCH - 5);
    }
}

static kin_draft ask(kin_mtp_drafter *d, kin_head *head, uint64_t sequence, const int32_t *tokens, int n, int most) {
    kin_draft draft = {0};
    kin_draft_limits l = limits(most);
    kin_draft_query w = {.sequence = sequence, .tokens = tokens, .n = n, .most = most, .out = &draft};
    kin_mtp_drafter_propose(d, head, &w, 1, &l);
    return draft;
}

static void expect_fresh(kin_head *head, const kin_model *m, const kin_draft *got, const int32_t *tokens, int n, int most) {
    kin_mtp_drafter *d = open_drafter(m, N_CTX, 1);
    give_all(d, 9, tokens, 0, n);
    kin_draft fresh = ask(d, head, 9, tokens, n, most);
    if (m->hp.n_draft_layer > 1 && most > m->hp.n_draft_layer) most = m->hp.n_draft_layer; // a token of each
    assert_int_equal(got->kind, KIN_DRAFT_MTP);
    assert_int_equal(got->n, most);
    assert_int_equal(fresh.n, most);
    assert_memory_equal(got->tokens, fresh.tokens, (size_t)most * sizeof *got->tokens);
    assert_memory_equal(got->grades, fresh.grades, (size_t)most);
    kin_mtp_drafter_close(d);
}
#define expect_fresh(...) FROM_TEST(expect_fresh(__VA_ARGS__))

// A draft behind N_GIVEN tokens, and what a test needs to compute it again.
enum { N_GIVEN = 20 };
typedef struct drafted {
    kin_thread_ring *ring;
    kin_head *head;
    const kin_model *m;
    const kin_kernels *kernels;
    kin_mtp_drafter *d;
    kin_draft_blocks b;
    kin_draft got;
    int32_t tokens[N_BATCH];   // those that were given; a test appends those that it expects
    float x[N_BATCH * N_EMBD]; // states of all given tokens but the last, as the first block takes them
    float inputs[N_BATCH * N_EMBD], y[N_BATCH * N_EMBD], logits[N_VOCAB]; // scratch
} drafted;

static void open_drafted(drafted *t, const char *path, int n_asked, int n_drafted) {
    kin_err err;
    t->ring = open_ring(path, 1);
    t->head = kin_thread_ring_head(t->ring);
    t->m = kin_thread_ring_model(t->ring);
    t->kernels = kin_kernels_choose(&err);
    t->d = open_drafter(t->m, N_CTX, 1);
    for (int i = 0; i < N_GIVEN; i++) t->tokens[i] = token_at(0, i);
    give_all(t->d, 1, t->tokens, 0, N_GIVEN);
    t->got = ask(t->d, t->head, 1, t->tokens, N_GIVEN, n_asked);
    assert_int_equal(t->got.n, n_drafted);
    if (kin_draft_blocks_open(&t->b, t->m, NULL, &err) != 0) fail_msg("%s", err.text);
    for (int i = 0; i < N_GIVEN - 1; i++) {
        make_state(t->tokens[i], i, t->y);
        t->kernels->rms_norm(N_EMBD, t->y, t->b.at[0].in_norm, t->m->hp.rms_eps, t->x + i * N_EMBD);
    }
}
#define open_drafted(...) FROM_TEST(open_drafted(__VA_ARGS__))

static void close_drafted(drafted *t) {
    kin_draft_blocks_close(&t->b);
    kin_mtp_drafter_close(t->d);
    kin_thread_ring_close(t->ring);
}

// Each token is the likeliest one by the block's state, normalised, times the model's output matrix; this state is the next
// one's.
static void drafts_are_what_the_block_says(void **state) {
    (void)state;
    enum { MANY = 12 };
    static drafted t;
    kin_err err;
    open_drafted(&t, random_path, MANY, MANY);
    for (int n = N_GIVEN; n < N_GIVEN + MANY; n++) {
        for (int i = 0; i < n - 1; i++)
            assert_int_equal(kin_embed(&t.b.at[0].view, &t.tokens[i + 1], 1, t.inputs + i * N_EMBD, &err), 0);
        run_block(&t.b.at[0], n - 1, t.x, t.inputs, t.y);
        float *next = t.x + (n - 1) * N_EMBD;
        t.kernels->rms_norm(N_EMBD, t.y + (n - 2) * N_EMBD, t.b.at[0].out_norm, t.m->hp.rms_eps, next);
        assert_int_equal(kin_head_project(t.head, 1, next, t.logits, &err), 0);
        t.tokens[n] = kin_draft_choose(t.logits, N_VOCAB).token;
        assert_int_equal(t.got.tokens[n - N_GIVEN], t.tokens[n]);
    }
    close_drafted(&t);
}

// Block k takes the states that the block before it makes, and the tokens k positions behind those of the first.
static void each_of_several_blocks_drafts_one_token(void **state) {
    (void)state;
    static drafted t;
    kin_err err;
    open_drafted(&t, several_path, MOST, N_SEVERAL);
    assert_int_equal(t.b.n, N_SEVERAL);
    for (int k = 0; k < N_SEVERAL; k++) {
        for (int i = 0; i < N_GIVEN - 1; i++)
            assert_int_equal(kin_embed(&t.b.at[k].embeds, &t.tokens[i + 1 + k], 1, t.inputs + i * N_EMBD, &err), 0);
        run_block(&t.b.at[k], N_GIVEN - 1, t.x, t.inputs, t.y);
        for (int i = 0; i < N_GIVEN - 1; i++)
            t.kernels->rms_norm(N_EMBD, t.y + i * N_EMBD, t.b.at[k].out_norm, t.m->hp.rms_eps, t.x + i * N_EMBD);
        assert_int_equal(kin_head_project(t.head, 1, t.x + (N_GIVEN - 2) * N_EMBD, t.logits, &err), 0);
        t.tokens[N_GIVEN + k] = kin_draft_choose(t.logits, N_VOCAB).token;
        assert_int_equal(t.got.tokens[k], t.tokens[N_GIVEN + k]);
    }
    close_drafted(&t);
}

// After each draft some of its tokens come true, or none; then another token follows, with the model's own states.
static void expect_nothing_left_behind(const char *path) {
    enum { N = 200, MORE = 60, N_TOKENS = N + 2 * MOST + MORE };
    static int32_t tokens[N_TOKENS];
    kin_thread_ring *ring = open_ring(path, 1);
    kin_head *head = kin_thread_ring_head(ring);
    const kin_model *m = kin_thread_ring_model(ring);
    kin_mtp_drafter *d = open_drafter(m, N_CTX, 1);
    int n = 50;
    for (int i = 0; i < N_TOKENS; i++) tokens[i] = token_at(1, i);
    give_all(d, 7, tokens, 0, n);
    for (int n_right = 0; n < N - MOST - 1; n_right = (n_right + 1) % (MOST + 1)) {
        kin_draft got = ask(d, head, 7, tokens, n, MOST);
        expect_fresh(head, m, &got, tokens, n, MOST);
        for (int i = 0; i < n_right && i < got.n; i++) tokens[n + i] = got.tokens[i];
        const int n_new = n + n_right + 1;
        for (int pos = n - 1; pos < n_new - 1; pos++) give(d, 7, tokens, pos, 1); // row by row, as they are accepted
        n = n_new;
    }
    for (int pos = n - 1; pos < n + MORE; pos++) give(d, 7, tokens, pos, 1); // many tokens without a draft
    kin_draft got = ask(d, head, 7, tokens, n + MORE + 1, MOST);
    expect_fresh(head, m, &got, tokens, n + MORE + 1, MOST);
    kin_mtp_drafter_close(d);
    kin_thread_ring_close(ring);
}
#define expect_nothing_left_behind(...) FROM_TEST(expect_nothing_left_behind(__VA_ARGS__))

static void what_was_refused_leaves_nothing_behind(void **state) {
    (void)state;
    expect_nothing_left_behind(random_path);
    expect_nothing_left_behind(several_path);
}

// ---- blocks in a file of their own

static void blocks_in_a_file_of_their_own_draft_the_same(void **state) {
    (void)state;
    enum { N = 60 };
    int32_t tokens[N];
    kin_thread_ring *inside = open_ring(random_path, 1), *apart = open_ring(trunk_path, 1);
    kin_mtp_drafter *d = open_drafter_of(kin_thread_ring_model(apart), blocks_path, N_CTX, 1);
    for (int i = 0; i < N; i++) tokens[i] = token_at(2, i);
    give_all(d, 1, tokens, 0, N);
    const kin_draft got = ask(d, kin_thread_ring_head(apart), 1, tokens, N, MOST);
    expect_fresh(kin_thread_ring_head(inside), kin_thread_ring_model(inside), &got, tokens, N, MOST);
    assert_true(kin_draft_blocks_fill(blocks_path));
    assert_false(kin_draft_blocks_fill(random_path));
    assert_false(kin_draft_blocks_fill(trunk_path));
    assert_false(kin_draft_blocks_fill("/nonexistent"));
    kin_mtp_drafter_close(d);
    kin_thread_ring_close(inside);
    kin_thread_ring_close(apart);
}

// Opens the blocks of a file that `spec` describes for the model.
static void expect_other(const kin_model *m, const kin_model_spec *spec, const char *says) {
    char path[] = "/tmp/kin-test-mtp-XXXXXX";
    kin_draft_blocks b;
    kin_err err;
    make_file(path, spec);
    assert_int_equal(kin_draft_blocks_open(&b, m, path, &err), KIN_FAIL);
    if (!strstr(err.text, says) || strncmp(err.text, path, strlen(path)) != 0) fail_msg("%s", err.text);
    unlink(path);
}
#define expect_other(...) FROM_TEST(expect_other(__VA_ARGS__))

static void a_file_that_does_not_fit_the_model_is_refused_with_a_sentence(void **state) {
    (void)state;
    kin_model_spec spec = spec_of("f32"), other;
    kin_model m, none;
    kin_draft_blocks b;
    kin_err err;
    if (kin_model_open(&m, trunk_path, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_model_open(&none, blocks_path, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "has only blocks for multi-token prediction; give it with the model"));
    spec.draft_blocks = 1;
    spec.part = KIN_MODEL_DRAFTS;
    other = spec;
    other.n_layer++;
    expect_other(&m, &other, "of another model: it has 7 layers, this one 6");
    other = spec;
    other.n_embd *= 2;
    expect_other(&m, &other, "of another model: its width is 256, this one's 128");
    other = spec;
    other.n_vocab++;
    expect_other(&m, &other, "of another model: they have 361 tokens, this one has 360");
    other = spec;
    other.n_ff += 32;
    expect_other(&m, &other, "has the shape 128 x 192");
    other = kin_model_spec_defaults();
    expect_other(&m, &other, "the file has no block for multi-token prediction");
    assert_int_equal(kin_draft_blocks_open(&b, &m, "/nonexistent", &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "/nonexistent"));
    kin_model_close(&m);
}

static void a_sequence_that_is_computed_again_has_the_same_drafts(void **state) {
    (void)state;
    enum { N = 90 };
    static int32_t tokens[N];
    kin_thread_ring *ring = open_ring(random_path, 1);
    kin_head *head = kin_thread_ring_head(ring);
    kin_mtp_drafter *d = open_drafter(kin_thread_ring_model(ring), N_CTX, 1);
    for (int i = 0; i < N; i++) tokens[i] = token_at(0, i);
    for (int from = 0; from < N - 1; from += 33) {
        give_all(d, 3, tokens, from, N);
        kin_draft got = ask(d, head, 3, tokens, N, MOST);
        expect_fresh(head, kin_thread_ring_model(ring), &got, tokens, N, MOST);
    }
    kin_mtp_drafter_end(d, 3);
    give_all(d, 4, tokens, N - 20, N); // another sequence with the same beginning goes on behind it
    kin_draft got = ask(d, head, 4, tokens, N, MOST);
    expect_fresh(head, kin_thread_ring_model(ring), &got, tokens, N, MOST);
    kin_mtp_drafter_close(d);
    kin_thread_ring_close(ring);
}

// The cache has room for two of them. A sequence without room has no drafts, or shorter memory; nothing fails.
static void more_sequences_than_have_room_do_no_harm(void **state) {
    (void)state;
    enum { N_TEXTS = 40, N = 100 };
    static int32_t tokens[N_TEXTS][N];
    kin_thread_ring *ring = open_ring(random_path, 1);
    kin_head *head = kin_thread_ring_head(ring);
    kin_mtp_drafter *d = open_drafter(kin_thread_ring_model(ring), 200, 2);
    int n_drafts = 0;
    for (int turn = 0; turn < 3; turn++) {
        for (int t = 0; t < N_TEXTS; t++) {
            for (int i = 0; i < N; i++) tokens[t][i] = token_at(t, i);
            if (turn == 0) give_all(d, (uint64_t)t, tokens[t], 0, N);
            if (turn == 1 && t % 2 == 0) kin_mtp_drafter_end(d, (uint64_t)t);
            n_drafts += ask(d, head, (uint64_t)t, tokens[t], N, 2).n > 0;
        }
    }
    assert_true(n_drafts > 0 && n_drafts < 3 * N_TEXTS);
    give_all(d, 100, tokens[0], 0, N);
    kin_draft got = ask(d, head, 100, tokens[0], N, 2);
    assert_int_equal(got.n, 2);
    kin_mtp_drafter_close(d);
    kin_thread_ring_close(ring);
}

static void a_sequence_whose_states_are_missing_has_no_draft(void **state) {
    (void)state;
    static int32_t tokens[40];
    kin_thread_ring *ring = open_ring(random_path, 1);
    kin_head *head = kin_thread_ring_head(ring);
    kin_mtp_drafter *d = open_drafter(kin_thread_ring_model(ring), N_CTX, 1);
    for (int i = 0; i < 40; i++) tokens[i] = token_at(0, i);
    assert_int_equal(ask(d, head, 1, tokens, 20, 3).n, 0);
    give_all(d, 1, tokens, 0, 20);
    assert_int_equal(ask(d, head, 1, tokens, 25, 3).n, 0);
    assert_int_equal(ask(d, head, 1, tokens, 20, 3).n, 3);
    assert_int_equal(ask(d, head, 1, tokens, 20, 3).n, 0); // its states were used
    kin_mtp_drafter_close(d);
    kin_thread_ring_close(ring);
}

// ---- texts

enum { N_TEXTS = 3, N_PROMPT = 45, N_MADE = 100 };

enum { MOST_TOKENS = N_PROMPT + N_TEXTS + N_MADE + 1 };

typedef struct sequence {
    int32_t tokens[MOST_TOKENS]; // the prompt, what was made, and one more
    int n_prompt, n_made, n_want;
    bool ended;
    kin_draft_counts counts;
    uint64_t number;
    kin_head *head;
    kin_mtp_drafter *drafter; // NULL: none
    kin_draft last;           // what it drafts behind all these tokens
    kin_draft_source source;
    const struct sequence *known; // the same text; NULL: not known
} sequence;

static const int32_t *made_of(const sequence *t) {
    return t->tokens + t->n_prompt;
}

static int32_t next_token(void *user, float *logits) {
    sequence *t = user;
    int32_t best = 0;
    const int n = t->n_prompt + t->n_made;
    for (int32_t i = 1; i < N_VOCAB; i++) best = logits[i] > logits[best] ? i : best;
    t->tokens[n] = best;
    if (t->n_made < t->n_want) return t->n_made++, best;
    if (t->drafter) t->last = ask(t->drafter, t->head, t->number, t->tokens, n + 1, MOST);
    return KIN_GENERATION_NO_TOKEN;
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    sequence *t = user;
    if (how != KIN_GENERATION_DONE) fail_msg("%s", why ? why->text : "not done");
    t->ended = true;
}

// Proposes the known text, in which one token of five is wrong; nothing if it is not known.
static void propose(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    const sequence *t = user, *known = t->known;
    (void)tokens;
    *out = (kin_draft){.kind = KIN_DRAFT_ORACLE};
    for (int i = n; known && out->n < most && i < known->n_prompt + known->n_made; i++)
        kin_draft_add(out, out->n - 1, (known->tokens[i] + (i % 5 == 4)) % N_VOCAB, 0);
}

// Generates the texts, the second one later than the others, with at least `least` drafted tokens in each step; -1: no drafts.
// known: the same texts, for drafts; NULL: they are not known.
static void write_texts(const char *path, int n_members, int least, const sequence *known, sequence *texts, int n) {
    kin_thread_ring *ring = open_ring(path, n_members);
    kin_mtp_drafter *d = least >= 0 ? open_drafter(kin_thread_ring_model(ring), N_CTX, n) : NULL;
    kin_scheduler_options so = {.n_ctx = N_CTX,
                                .n_vocab = N_VOCAB,
                                .n_embd = N_EMBD,
                                .n_states = kin_kv_n_states(&kin_thread_ring_model(ring)->hp, N_CTX),
                                .n_parallel = n,
                                .mtp = d,
                                .draft_least = least > 0 ? least : 0};
    kin_scheduler *s;
    kin_err err;
    bool busy = true;
    if (kin_scheduler_open(&s, &so, &err) != 0 || kin_scheduler_set_head(s, kin_thread_ring_head(ring), &err) != 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < n; i++) {
        kin_generation *g;
        texts[i] = (sequence){.n_prompt = N_PROMPT + i, .n_want = N_MADE - 20 * i, .number = (uint64_t)i};
        texts[i].head = kin_thread_ring_head(ring);
        texts[i].drafter = d;
        texts[i].source = (kin_draft_source){propose, &texts[i]};
        texts[i].known = known ? &known[i] : NULL;
        for (int k = 0; k < texts[i].n_prompt; k++) texts[i].tokens[k] = token_at(i, k);
        kin_generation_options go = {.prompt = texts[i].tokens,
                                     .n_prompt = texts[i].n_prompt,
                                     .next = next_token,
                                     .ended = ended,
                                     .drafts = d ? &texts[i].source : NULL,
                                     .draft_counts = &texts[i].counts,
                                     .user = &texts[i]};
        if (kin_scheduler_submit(s, &go, &g, &err) != 0) fail_msg("%s", err.text);
        for (int k = 0; k < 6 && i == 0 && busy; k++)
            if (kin_scheduler_step(s, &busy, &err) != 0) fail_msg("%s", err.text);
    }
    while (busy)
        if (kin_scheduler_step(s, &busy, &err) != 0) fail_msg("%s", err.text);
    for (int i = 0; i < n; i++) assert_true(texts[i].ended);
    kin_scheduler_close(s);
    kin_mtp_drafter_close(d);
    kin_thread_ring_close(ring);
}
#define write_texts(...) FROM_TEST(write_texts(__VA_ARGS__))

static void expect_same_texts(const char *path, int n_members, int least, int n, sequence *drafted) {
    static sequence plain[N_TEXTS];
    write_texts(path, n_members, -1, NULL, plain, n);
    write_texts(path, n_members, least, NULL, drafted, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(plain[i].n_made, drafted[i].n_made);
        assert_memory_equal(made_of(&plain[i]), made_of(&drafted[i]), (size_t)plain[i].n_made * sizeof(int32_t));
        assert_true(least == 0 || drafted[i].counts.drafted[KIN_DRAFT_MTP] > 0);
    }
}
#define expect_same_texts(...) FROM_TEST(expect_same_texts(__VA_ARGS__))

// Computes the whole text in steps of its own, and drafts from these states.
static kin_draft draft_anew(kin_thread_ring *ring, const sequence *t) {
    kin_head *head = kin_thread_ring_head(ring);
    kin_mtp_drafter *d = open_drafter(kin_thread_ring_model(ring), N_CTX, 1);
    const int n = t->n_prompt + t->n_made;
    kin_err err;
    kin_head_truncate(head, 0, 0);
    for (int pos = 0, n_now; pos < n; pos += n_now) {
        int32_t seq[N_BATCH] = {0}, places[N_BATCH];
        uint64_t number;
        n_now = n - pos < N_BATCH ? n - pos : N_BATCH;
        for (int i = 0; i < n_now; i++) places[i] = pos + i;
        kin_head_step step = {.n = n_now, .tokens = t->tokens + pos, .seq = seq, .pos = places, .states = true, .more = true};
        if (kin_head_send(head, &step, &number, &err) != 0 || kin_head_receive(head, NULL, &number, &err) != 0)
            fail_msg("%s", err.text);
        const kin_mtp_states of = {
            .sequence = 1, .tokens = t->tokens, .n_tokens = n, .pos = pos, .n = n_now, .rows = kin_head_states(head)};
        kin_mtp_drafter_add_states(d, &of);
    }
    kin_draft draft = ask(d, head, 1, t->tokens, n + 1, MOST);
    kin_mtp_drafter_close(d);
    return draft;
}
#define draft_anew(...) FROM_TEST(draft_anew(__VA_ARGS__))

// The block's own drafts are hardly ever right here, so the texts are known to another source, whose tokens are accepted.
static void drafts_are_made_of_the_states_of_accepted_tokens(void **state) {
    (void)state;
    static sequence texts[N_TEXTS], known[N_TEXTS];
    kin_thread_ring *one = open_ring(random_path, 1);
    write_texts(random_path, 1, -1, NULL, known, N_TEXTS);
    for (int n_members = 1; n_members <= 3; n_members += 2) {
        for (int least = 0; least <= 6; least += 2) {
            write_texts(random_path, n_members, least, known, texts, N_TEXTS);
            for (int i = 0; i < N_TEXTS; i++) {
                kin_draft anew = draft_anew(one, &texts[i]);
                assert_true(least == 0 || texts[i].counts.accepted[KIN_DRAFT_ORACLE] > 0);
                assert_int_equal(texts[i].last.n, MOST);
                assert_int_equal(anew.n, MOST);
                assert_memory_equal(texts[i].last.tokens, anew.tokens, MOST * sizeof *anew.tokens);
                assert_memory_equal(texts[i].last.grades, anew.grades, MOST);
            }
        }
    }
    kin_thread_ring_close(one);
}

static void texts_are_the_same_with_and_without_drafts(void **state) {
    (void)state;
    static sequence texts[N_TEXTS];
    for (int n_members = 1; n_members <= 3; n_members++) {
        for (int n = 1; n <= N_TEXTS; n += 2) {
            expect_same_texts(random_path, n_members, 3, n, texts);
            expect_same_texts(several_path, n_members, 4, n, texts);
            expect_same_texts(known_path, n_members, n_members, n, texts);
        }
    }
    expect_same_texts(known_path, 1, 0, 2, texts); // as many as pay
}

// The generator says in which share of its tokens the block is right. 100 words and 149 tokens: each word is drafted at least
// once.
static void a_block_that_is_right_in_three_of_four_cases_is_accepted_so_often(void **state) {
    (void)state;
    static sequence texts[1];
    expect_same_texts(known_path, 1, 1, 1, texts);
    const kin_draft_counts *c = &texts[0].counts;
    const double share = (double)c->accepted[KIN_DRAFT_MTP] / (double)c->drafted[KIN_DRAFT_MTP];
    for (int i = 1; i < texts[0].n_made; i++) assert_int_not_equal(made_of(&texts[0])[i], made_of(&texts[0])[i - 1]);
    assert_true(fabs(share - RIGHT) < 0.15);
    assert_true(c->n_passes <= (uint64_t)(N_MADE / (1 + share) + 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_states_of_all_tokens_come_with_the_step),
        cmocka_unit_test(the_block_computes_what_its_formula_says),
        cmocka_unit_test(other_files_are_refused_with_a_sentence),
        cmocka_unit_test(drafts_are_what_the_block_says),
        cmocka_unit_test(each_of_several_blocks_drafts_one_token),
        cmocka_unit_test(blocks_in_a_file_of_their_own_draft_the_same),
        cmocka_unit_test(a_file_that_does_not_fit_the_model_is_refused_with_a_sentence),
        cmocka_unit_test(what_was_refused_leaves_nothing_behind),
        cmocka_unit_test(a_sequence_that_is_computed_again_has_the_same_drafts),
        cmocka_unit_test(more_sequences_than_have_room_do_no_harm),
        cmocka_unit_test(a_sequence_whose_states_are_missing_has_no_draft),
        cmocka_unit_test(drafts_are_made_of_the_states_of_accepted_tokens),
        cmocka_unit_test(texts_are_the_same_with_and_without_drafts),
        cmocka_unit_test(a_block_that_is_right_in_three_of_four_cases_is_accepted_so_often),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
