// Several residual streams: their width, the embedding's copies, and how Sinkhorn's iteration mixes them, compared with the
// reference engine.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine/shard_memory.h"
#include "engine/stage.h"
#include "kernels/kernels.h"
#include "model/embed.h"
#include "model/share.h"
#include "model/streams.h"
#include "testkit/ref/streams.h"
#include "tests/small_model.h"

enum { N_STREAMS = 4, N_GATES = N_STREAMS * (2 + N_STREAMS), N_TOKENS = 5, WIDTH = N_STREAMS * N_EMBD };

static float fn[N_GATES * WIDTH], base[N_GATES], scale[3], x[N_TOKENS * WIDTH];

static void fill(float *to, size_t n, float size, uint64_t seed) {
    kin_rng rng;
    kin_rng_seed(&rng, seed);
    for (size_t i = 0; i < n; i++) to[i] = size * ((float)(kin_rng_u64(&rng) % 2001) / 1000 - 1);
}

static void fill_all(void) {
    fill(fn, sizeof fn / sizeof *fn, 0.2f, 1);
    fill(base, N_GATES, 1, 2);
    fill(scale, 3, 1, 3);
    fill(x, sizeof x / sizeof *x, 3, 4);
}

static kin_ref_streams reference(const kin_hparams *hp) {
    return (kin_ref_streams){.n_streams = N_STREAMS,
                             .n_embd = N_EMBD,
                             .n_iterations = hp->sinkhorn.n_iterations,
                             .norm_eps = (double)hp->rms_eps,
                             .eps = (double)hp->sinkhorn.eps,
                             .fn = fn,
                             .base = base,
                             .scale = scale};
}

static const kin_hparams shape = {.n_layer = 1,
                                  .n_embd = N_EMBD,
                                  .n_head = 1,
                                  .n_head_kv = 1,
                                  .head_dim = 16,
                                  .n_streams = N_STREAMS,
                                  .streams = KIN_STREAMS_SINKHORN,
                                  .sinkhorn = {3, 1e-6f},
                                  .rms_eps = 1e-6f};

// ---- the mixer, as a stage whose "block" returns the last n_embd numbers of each row of its input beside the streams

enum { IN, OUT, END, MEAN };

static struct ggml_tensor *weight(struct ggml_context *ctx, float *data, int64_t ne0, int64_t ne1) {
    struct ggml_tensor *t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, ne0, ne1);
    t->data = data;
    return t;
}

static struct ggml_tensor *build(const void *user, kin_graph *g, struct ggml_tensor *all, int variant) {
    struct ggml_tensor *const *ends = user, *gates;
    if (variant == END) return kin_streams_sinkhorn.end(g, ends, all);
    if (variant == MEAN) return kin_streams_sinkhorn_mean.end(g, NULL, all);
    struct ggml_tensor *in = kin_streams_sinkhorn.in(g, 0, KIN_STREAMS_FF, all, &gates);
    return variant == IN ? in : kin_streams_sinkhorn.out(g, 0, KIN_STREAMS_FF, all, gates, in);
}

static void run(int variant, float *y) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 16 * ggml_tensor_overhead(), .no_alloc = true});
    kin_graph_layer layer = {0};
    layer.w[KIN_W_SINKHORN_FF_FN] = weight(ctx, fn, WIDTH, N_GATES);
    layer.w[KIN_W_SINKHORN_FF_BASE] = weight(ctx, base, N_GATES, 1);
    layer.w[KIN_W_SINKHORN_FF_SCALE] = weight(ctx, scale, 3, 1);
    struct ggml_tensor *const ends[] = {weight(ctx, fn, WIDTH, N_STREAMS), weight(ctx, base, N_STREAMS, 1),
                                        weight(ctx, scale, 1, 1)};
    const kin_graph proto = {.hp = &shape, .layers = &layer, .kernels = devices.cpu.kernels, .n_threads = 1};
    const kin_stage_shape of = {.variant = variant, .n_tokens = N_TOKENS, .n_out = N_TOKENS};
    kin_stage *stage;
    kin_err err;
    if (kin_stage_open(&stage, &devices.cpu, &proto, 64, build, ends, &err) != 0) fail_msg("%s", err.text);
    if (kin_stage_reserve(stage, of, &err) != 0) fail_msg("%s", err.text);
    if (kin_stage_run(stage, of, &(kin_stage_inputs){.x = x}, y, &err) != 0) fail_msg("%s", err.text);
    kin_stage_close(stage);
    ggml_free(ctx);
}

static double distance(const float *got, const float *want, size_t n) {
    double diff = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        diff += (double)(got[i] - want[i]) * (double)(got[i] - want[i]);
        sum += (double)want[i] * (double)want[i];
    }
    return diff / sum;
}

static void what_a_block_reads_and_writes_is_the_reference_s(void **state) {
    float in[N_TOKENS * N_EMBD], out[N_TOKENS * WIDTH], end[N_TOKENS * N_EMBD], mean[N_TOKENS * N_EMBD], want[WIDTH];
    const kin_ref_streams ref = reference(&shape);
    (void)state;
    fill_all();
    run(IN, in);
    run(OUT, out);
    run(END, end);
    run(MEAN, mean);
    for (int i = 0; i < N_TOKENS; i++) {
        const float *token = x + i * WIDTH;
        const kin_ref_mix mix = kin_ref_streams_mix(&ref, token), last = kin_ref_streams_end(&ref, token);
        kin_ref_streams_read(&ref, &mix, token, want);
        assert_true(distance(in + i * N_EMBD, want, N_EMBD) < 1e-11);
        kin_ref_streams_write(&ref, &mix, token, in + i * N_EMBD, want);
        assert_true(distance(out + i * WIDTH, want, WIDTH) < 1e-11);
        kin_ref_streams_read(&ref, &last, token, want);
        assert_true(distance(end + i * N_EMBD, want, N_EMBD) < 1e-11);
        kin_ref_streams_average(N_STREAMS, N_EMBD, token, want);
        assert_true(distance(mean + i * N_EMBD, want, N_EMBD) < 1e-11);
    }
}

static void the_sums_of_the_mixed_streams_are_one(void **state) {
    const kin_sinkhorn s = {N_STREAMS, 20, 1e-6f, false, base, scale};
    float gates[N_GATES];
    (void)state;
    fill_all();
    for (int i = 0; kin_kernels_at(i); i++) {
        if (!kin_kernels_can_run(kin_kernels_at(i))) continue;
        kin_kernels_at(i)->sinkhorn(&s, x, gates);
        for (int d = 0; d < N_STREAMS; d++) {
            float column = 0, row = 0;
            for (int k = 0; k < N_STREAMS; k++) {
                column += gates[2 * N_STREAMS + k * N_STREAMS + d];
                row += gates[2 * N_STREAMS + d * N_STREAMS + k];
            }
            assert_true(column > 0.999f && column < 1.001f && row > 0.99f && row < 1.01f);
        }
    }
}

// ---- widths

static void the_embedding_is_copied_into_each_stream(void **state) {
    const int32_t tokens[] = {7, 0, 299};
    float one[3 * N_EMBD], all[3 * WIDTH];
    kin_err err;
    (void)state;
    assert_int_equal(kin_hparams_stream_width(&model.hp), N_EMBD);
    assert_int_equal(kin_embed(&model, tokens, 3, one, &err), 0);
    kin_model wide = model;
    wide.hp.n_streams = N_STREAMS;
    assert_int_equal(kin_hparams_stream_width(&wide.hp), WIDTH);
    assert_int_equal(kin_embed(&wide, tokens, 3, all, &err), 0);
    for (int i = 0; i < 3 * N_STREAMS; i++)
        assert_memory_equal(all + i * N_EMBD, one + i / N_STREAMS * N_EMBD, N_EMBD * sizeof *one);
}

static void buffers_and_borders_are_as_wide_as_all_streams(void **state) {
    kin_shard_options o = small_shard();
    kin_model wide = model;
    (void)state;
    o.kv_disk.dir = "/nowhere";
    wide.hp.n_streams = N_STREAMS;
    const uint64_t more = kin_shard_buffer_bytes(&wide, &o, false) - kin_shard_buffer_bytes(&model, &o, false);
    assert_int_equal(more, (uint64_t)N_BATCH * 4 * 4 * (WIDTH - N_EMBD));
    assert_int_equal(kin_shard_border_bytes(&wide, &o), N_STREAMS * kin_shard_border_bytes(&model, &o));
}

static void a_group_cannot_share_the_layers(void **state) {
    kin_model wide = model;
    kin_share shares[2];
    kin_err err;
    (void)state;
    wide.hp.n_streams = N_STREAMS;
    assert_int_equal(kin_share_split(&model, GGML_TYPE_F16, (const double[]){1, 1}, 2, shares, &err), 0);
    assert_int_not_equal(kin_share_split(&wide, GGML_TYPE_F16, (const double[]){1, 1}, 2, shares, &err), 0);
    assert_non_null(strstr(err.text, "this model: it has 4 residual streams"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_block_reads_and_writes_is_the_reference_s),
        cmocka_unit_test(the_sums_of_the_mixed_streams_are_one),
        cmocka_unit_test(the_embedding_is_copied_into_each_stream),
        cmocka_unit_test(buffers_and_borders_are_as_wide_as_all_streams),
        cmocka_unit_test(a_group_cannot_share_the_layers),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
