// Rows that cross a border between layers beside the residual: how wide they are, how they are taken apart and put together, how
// keys and values get from the cell of one device into that of another, and the frames of a device in between.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "engine/kv/cells.h"
#include "engine/shared_choice.h"
#include "engine/side_rows.h"
#include "pipeline/engine_instance.h"
#include "testkit/small_models.h"
#include "tests/place.h"

enum { N_LAYER = 6, N_EMBD = 32, N_INPUT = 16, DIM = 32 };

// Layers 4 and 5 read keys and values of layers 2 and 3.
static kin_hparams shared(kin_layer *layers, int n_input) {
    for (int il = 0; il < N_LAYER; il++) layers[il] = (kin_layer){.kv_back = il < 4 ? 0 : 2, .n_head_kv = 1 + il % 2};
    return (kin_hparams){.n_layer = N_LAYER,
                         .layers = layers,
                         .n_embd = N_EMBD,
                         .n_input = n_input,
                         .n_head = 2,
                         .n_head_kv = 2,
                         .head_dim = DIM,
                         .v_dim = DIM};
}

enum { N_NGRAM = 2 * 2 * 8 };
static const kin_ngram ngrams = {.size = 3, .layer = 2, .n_heads = 2, .dim = 8};

static void a_row_has_what_the_layers_behind_it_need(void **state) {
    static const int keys[N_LAYER + 1] = {0, 0, 0, 2 * DIM, 6 * DIM, 4 * DIM, 0};
    kin_layer layers[N_LAYER];
    (void)state;
    for (int n_input = 0; n_input <= N_INPUT; n_input += N_INPUT) {
        const kin_hparams hp = shared(layers, n_input);
        int sum = 0;
        for (int il = 0; il <= N_LAYER; il++) {
            const kin_border b = kin_border_before(&hp, il);
            assert_int_equal(b.width, N_EMBD + n_input * (N_LAYER - il) + keys[il]);
            assert_int_equal(b.n_sources, il == 4 ? 2 : il == 3 || il == 5);
            if (b.n_sources > 0) assert_int_equal(b.sources[0], il == 5 ? 3 : 2);
            sum += b.width;
        }
        assert_int_equal(kin_border_most(&hp), N_EMBD + 2 * n_input + 6 * DIM);
        assert_int_equal(kin_border_mean(&hp), (sum + N_LAYER) / (N_LAYER + 1));
        assert_false(kin_border_is_plain(&hp));
    }
}

// Layer 4 reads the keys and values of layer 3, and layer 5 those of layer 2: the layer that is found last is the first one.
static void keys_and_values_are_in_the_order_of_their_layers(void **state) {
    kin_layer layers[N_LAYER];
    const kin_hparams hp = shared(layers, 0);
    (void)state;
    layers[4] = (kin_layer){.kv_back = 1, .n_head_kv = 2};
    layers[5] = (kin_layer){.kv_back = 3, .n_head_kv = 1};
    const kin_border b = kin_border_before(&hp, 4);
    assert_int_equal(b.n_sources, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(b.sources[i], 2 + i);
        assert_int_equal(b.keys[i], (2 + 2 * i) * DIM);
    }
    assert_int_equal(b.width, N_EMBD + 6 * DIM);
}

static void a_row_has_the_embedding_up_to_the_layer_that_adds_it(void **state) {
    kin_layer layers[N_LAYER];
    kin_hparams hp = shared(layers, N_INPUT);
    (void)state;
    hp.ngram = ngrams;
    for (int il = 0; il <= N_LAYER; il++) assert_int_equal(kin_border_before(&hp, il).ngrams, il <= ngrams.layer ? N_NGRAM : 0);
    hp.ngram.size = 0;
    assert_int_equal(kin_border_before(&hp, 0).ngrams, 0);
}

static void without_shared_keys_the_row_before_the_first_layer_is_the_widest(void **state) {
    const kin_hparams hp = {.n_layer = 3, .n_embd = N_EMBD, .n_input = N_INPUT, .n_head = 1, .n_head_kv = 1, .head_dim = DIM};
    (void)state;
    assert_int_equal(kin_border_most(&hp), N_EMBD + 3 * N_INPUT);
}

static void memory_for_rows_has_all_that_crosses_any_border(void **state) {
    kin_layer layers[N_LAYER];
    kin_hparams hp = shared(layers, N_INPUT);
    (void)state;
    hp.ngram = ngrams;
    assert_int_equal(kin_side_rows_bytes(&hp, 5), 5 * (N_EMBD + N_LAYER * N_INPUT + N_NGRAM + 6 * DIM) * sizeof(float));
}

static void other_models_have_the_residual_only(void **state) {
    kin_hparams hp = {.n_layer = 3, .n_embd = N_EMBD, .n_head = 1, .n_head_kv = 1, .head_dim = DIM};
    kin_side_rows side;
    kin_err err;
    (void)state;
    assert_true(kin_border_is_plain(&hp));
    assert_int_equal(kin_border_most(&hp), N_EMBD);
    assert_int_equal(kin_border_mean(&hp), N_EMBD);
    assert_int_equal(kin_side_rows_bytes(&hp, 5), 0);
    assert_int_equal(kin_side_rows_open(&side, &hp, 5, &err), 0);
    assert_null(side.x);
    kin_side_rows_close(&side);
}

static void rows_lose_what_layers_have_used(void **state) {
    enum { N = 3 };
    kin_layer layers[N_LAYER];
    kin_hparams hp = shared(layers, N_INPUT);
    hp.ngram = ngrams;
    const int most = kin_border_most(&hp);
    kin_side_rows side;
    kin_err err;
    float *rows = calloc((size_t)(N * most), sizeof *rows), *back = calloc((size_t)(N * most), sizeof *back);
    (void)state;
    assert_true(rows && back);
    assert_int_equal(kin_side_rows_open(&side, &hp, N, &err), 0);
    for (int il = 0; il < N_LAYER; il++) {
        const kin_border b = kin_border_before(&hp, il);
        for (int i = 0; i < N * b.width; i++) rows[i] = (float)(1000 * il + i);
        kin_side_rows_take(&side, &hp, il, N, rows);
        for (int i = 0; i < N; i++) {
            const float *row = rows + i * b.width;
            assert_memory_equal(side.x + i * N_EMBD, row, N_EMBD * sizeof *row);
            assert_memory_equal(side.inputs + (i * N_LAYER + il) * N_INPUT, row + N_EMBD, (size_t)b.inputs * sizeof *row);
            if (b.ngrams > 0) assert_memory_equal(side.ngrams + i * N_NGRAM, row + N_EMBD + b.inputs, N_NGRAM * sizeof *row);
            if (b.n_sources == 2)
                assert_memory_equal(kin_side_rows_keys(&side, 3, i), row + b.width - 4 * DIM, 4 * DIM * sizeof *row);
        }
        memset(back, 0, (size_t)(N * most) * sizeof *back);
        kin_side_rows_give(&side, &hp, il, N, back);
        assert_memory_equal(back, rows, (size_t)(N * b.width) * sizeof *rows);
    }
    kin_side_rows_close(&side);
    free(rows);
    free(back);
}

// ---- choices of tokens

enum { N_CHOSEN = 40, N_TOKENS = 3 };

// Layers 1, 4 and 5 share the choice of the layer before, or of the second one before.
static kin_hparams choosing(kin_layer *layers) {
    static const int back[N_LAYER] = {0, 1, 0, 0, 1, 2};
    for (int il = 0; il < N_LAYER; il++) layers[il] = (kin_layer){.choice_back = back[il]};
    kin_hparams hp = {.n_layer = N_LAYER, .layers = layers, .n_embd = N_EMBD, .n_head = 1, .n_head_kv = 1, .head_dim = DIM};
    hp.indexer.n_chosen = N_CHOSEN;
    return hp;
}

// In a multiple of 32 numbers.
static void a_choice_crosses_borders_before_layers_that_share_it(void **state) {
    static const int widths[N_LAYER + 1] = {0, 128, 0, 0, 128, 128, 0};
    kin_layer layers[N_LAYER];
    const kin_hparams hp = choosing(layers);
    kin_side_rows side;
    kin_err err;
    float rows[2 * (N_EMBD + 128)], back[2 * (N_EMBD + 128)];
    (void)state;
    for (int il = 0; il <= N_LAYER; il++) {
        assert_int_equal(kin_border_before(&hp, il).choice, widths[il]);
        assert_int_equal(kin_border_before(&hp, il).width, N_EMBD + widths[il]);
    }
    assert_false(kin_border_is_plain(&hp));
    assert_int_equal(kin_side_rows_bytes(&hp, 3), 3 * (N_EMBD + 128) * sizeof(float));
    assert_int_equal(kin_side_rows_open(&side, &hp, 2, &err), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) rows[i] = (float)i;
    kin_side_rows_take(&side, &hp, 4, 2, rows);
    assert_memory_equal(side.choice, rows + N_EMBD, 128 * sizeof *rows);
    assert_memory_equal(side.choice + 128, rows + N_EMBD + 128 + N_EMBD, 128 * sizeof *rows);
    kin_side_rows_give(&side, &hp, 4, 2, back);
    assert_memory_equal(back, rows, sizeof rows);
    kin_side_rows_close(&side);
}

// Positions of three tokens: the second one sees all.
static const int32_t n_seen[N_TOKENS] = {KIN_CHOICE_POSITIONS, N_CHOSEN, 100};
static int32_t position(int token, int i) {
    if (token == 2) return i + (i > 7 ? 60 : 0);
    return i == 0 ? 0 : KIN_CHOICE_POSITIONS - 1 - (N_CHOSEN - 1 - i) * (N_CHOSEN - 1 - i) * 1291;
}

static int32_t *chosen_of(const kin_shared_choice *c, int token) {
    return (int32_t *)c->at->data + token * N_CHOSEN;
}

static void a_choice_is_the_same_after_any_rounding_on_the_wire(void **state) {
    enum { WIDTH_OF_CHOICE = 128 };
    kin_layer layers[N_LAYER];
    const kin_hparams hp = choosing(layers);
    kin_shared_choice from, to;
    kin_err err;
    float rows[N_TOKENS * WIDTH_OF_CHOICE], got[N_TOKENS * WIDTH_OF_CHOICE];
    uint8_t wire[sizeof rows];
    (void)state;
    assert_int_equal(kin_shared_choice_bytes(&hp, N_TOKENS) % 64, 0);
    if (kin_shared_choice_open(&from, &hp, N_TOKENS, &err) != 0 || kin_shared_choice_open(&to, &hp, N_TOKENS, &err) != 0)
        fail_msg("%s", err.text);
    for (int token = 0; token < N_TOKENS; token++)
        for (int i = 0; i < N_CHOSEN; i++) chosen_of(&from, token)[i] = position(token, i);
    kin_shared_choice_give(&from, N_TOKENS, n_seen, WIDTH_OF_CHOICE, rows);
    for (int i = 0; i < WIDTH_OF_CHOICE; i++) assert_true(rows[WIDTH_OF_CHOICE + i] == 0);
    for (int type = 0; type < KIN_ACTIVATION_N_TYPES; type++) {
        kin_activations_encode(wire, rows, N_TOKENS * WIDTH_OF_CHOICE, (kin_activation_type)type);
        kin_activations_decode(got, wire, N_TOKENS * WIDTH_OF_CHOICE, (kin_activation_type)type);
        memset(to.at->data, 0, N_TOKENS * N_CHOSEN * sizeof(int32_t));
        if (kin_shared_choice_take(&to, N_TOKENS, n_seen, WIDTH_OF_CHOICE, got, &err) != 0) fail_msg("%s", err.text);
        assert_memory_equal(chosen_of(&to, 0), chosen_of(&from, 0), N_CHOSEN * sizeof(int32_t));
        assert_memory_equal(chosen_of(&to, 2), chosen_of(&from, 2), N_CHOSEN * sizeof(int32_t));
        assert_int_equal(chosen_of(&to, 1)[1], 0); // it is not read
    }
    kin_shared_choice_close(&from);
    kin_shared_choice_close(&to);
}

// They come from the network.
static void a_choice_of_tokens_that_cannot_be_seen_is_refused(void **state) {
    enum { WIDTH_OF_CHOICE = 128 };
    static const struct {
        int at;
        float digit;
    } wrong[] = {{39, 100}, {5, 4},   {5, 6},    {40, 1},
                 {0, -1},   {0, 128}, {80, NAN}, {80, INFINITY}}; // of position 5 of 0 .. 7, 68 .. 99
    kin_layer layers[N_LAYER];
    const kin_hparams hp = choosing(layers);
    kin_shared_choice c;
    kin_err err;
    float row[WIDTH_OF_CHOICE];
    (void)state;
    if (kin_shared_choice_open(&c, &hp, 1, &err) != 0) fail_msg("%s", err.text);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        for (int i = 0; i < N_CHOSEN; i++) chosen_of(&c, 0)[i] = position(2, i);
        kin_shared_choice_give(&c, 1, &n_seen[2], WIDTH_OF_CHOICE, row);
        assert_int_equal(kin_shared_choice_take(&c, 1, &n_seen[2], WIDTH_OF_CHOICE, row, &err), 0);
        row[wrong[k].at] = wrong[k].digit;
        assert_int_equal(kin_shared_choice_take(&c, 1, &n_seen[2], WIDTH_OF_CHOICE, row, &err), KIN_FAIL);
        assert_string_equal(err.text, "a step whose token 0 does not see a choice of the 100 tokens up to it");
    }
    kin_shared_choice_close(&c);
}

static void other_models_have_no_choice(void **state) {
    kin_hparams hp = {.n_layer = 3, .n_embd = N_EMBD, .n_head = 1, .n_head_kv = 1, .head_dim = DIM};
    kin_shared_choice c;
    kin_err err;
    (void)state;
    assert_int_equal(kin_shared_choice_bytes(&hp, 5), 0);
    assert_int_equal(kin_shared_choice_open(&c, &hp, 5, &err), 0);
    assert_null(c.at);
    kin_shared_choice_close(&c);
}

// ---- cells

enum { N_CELLS = 2 * KIN_KV_CELLS, N_HEAD = 3, K_DIM = 64, V_DIM = 32, WIDTH = N_HEAD * (K_DIM + V_DIM) };

static kin_kv_cells open_cells(struct ggml_context *ctx, int type, const kin_kernels *kernels) {
    return (kin_kv_cells){.layout = {.type = type, .n_head_kv = N_HEAD, .k_dim = K_DIM, .v_dim = V_DIM},
                          .kernels = kernels,
                          .k = ggml_new_tensor_2d(ctx, (enum ggml_type)type, N_HEAD * K_DIM, N_CELLS),
                          .v = ggml_new_tensor_2d(ctx, (enum ggml_type)type, N_HEAD * V_DIM, N_CELLS)};
}

// Of both types, by kin's kernels and by ggml's tensors: a cell that was read and is written into another cache has its bits.
static void a_cell_is_copied_bit_for_bit(void **state) {
    static const float sizes[] = {1, 1e-3f, 200, 1e-7f, 0};
    kin_err err;
    (void)state;
    for (int i = 0; i < 4; i++) {
        const int type = i % 2 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
        const kin_kernels *kernels = i / 2 ? NULL : kin_kernels_choose(&err);
        const kin_kv_cells a = open_cells(ctx, type, kernels), b = open_cells(ctx, type, kernels);
        ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_cpu_buffer_type());
        float row[WIDTH], again[WIDTH];
        kin_rng rng;
        kin_rng_seed(&rng, 5);
        ggml_backend_buffer_clear(buffer, 0);
        for (int64_t cell = 0; cell < N_CELLS; cell += 7) {
            for (int k = 0; k < WIDTH; k++) row[k] = sizes[cell % 5] * (float)(2 * kin_rng_unit(&rng) - 1);
            kin_kv_cells_set(&a, cell, row);
            kin_kv_cells_get(&a, cell, again);
            // half a step of 1 / 127, and half of the scale's last place
            for (int k = 0; k < WIDTH; k++) assert_true(fabsf(again[k] - row[k]) <= sizes[cell % 5] * 0.0045f + 127 * 0x1p-25f);
            kin_kv_cells_set(&b, cell, again);
            kin_kv_cells_get(&b, cell, row);
            for (int k = 0; k < WIDTH; k++) assert_true(row[k] == again[k]); // a zero may have lost its sign
        }
        if (type == GGML_TYPE_F16) { // a scale of Q8_0 may be 0, and its bytes any
            assert_memory_equal(a.k->data, b.k->data, ggml_nbytes(a.k));
            assert_memory_equal(a.v->data, b.v->data, ggml_nbytes(a.v));
        }
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }
}

// ---- frames

enum { BEGIN = 3, END = 8, N_ROWS = 2 };

typedef struct desk {
    char path[40];
    kin_message_pool *pool;
    kin_message_queue *in;
    kin_engine_instance *instance;
    kin_steps steps;
    kin_border before, after;
} desk;

// A device with some layers of a model, among them those whose keys and values others read.
static void open_desk(desk *d) {
    const kin_proto_plan plan = {.n_files = 1,
                                 .n_ctx = 64,
                                 .n_seq = 1,
                                 .n_batch = 4,
                                 .n_threads = 1,
                                 .n_rounds = 1,
                                 .n_windows = 1,
                                 .window = {{0, BEGIN, END, 0, 0}}};
    kin_err err;
    kin_model model;
    *d = (desk){.path = "/tmp/kin-test-side-rows-XXXXXX"};
    if (kin_small_model_make(KIN_SMALL_SHARED, d->path, &err) != 0) fail_msg("%s", err.text);
    assert_int_equal(kin_model_open(&model, d->path, &err), 0);
    d->before = kin_border_before(&model.hp, BEGIN);
    d->after = kin_border_before(&model.hp, END);
    d->steps = kin_engine_instance_steps(&plan, &model.hp);
    kin_model_close(&model);
    assert_int_equal(kin_message_pool_open(&d->pool, 2, &err), 0);
    assert_int_equal(kin_message_queue_open(&d->in, &err), 0);
    const kin_engine_instance_options o = {.model_path = d->path, .n_threads = 1, .pool = d->pool, .in = d->in};
    if (kin_engine_instance_open(&d->instance, &plan, &o, &err) != 0) fail_msg("%s", err.text);
}

static void close_desk(desk *d) {
    kin_engine_instance_close(d->instance);
    kin_message_queue_close(d->in);
    kin_message_pool_close(d->pool);
    unlink(d->path);
}

// Returns a step of two tokens at the beginning of a sequence, which is forgotten first.
static kin_message_buffer *pack(desk *d, uint64_t step, int width) {
    static float x[N_ROWS * 1000];
    static const int32_t pos[N_ROWS] = {0, 1};
    static const kin_kv_op op = {0};
    for (int i = 0; i < N_ROWS * width; i++) x[i] = (float)(i % 7) - 3;
    const kin_batch batch = {.n_tokens = N_ROWS, .pos = pos, .ops = &op, .n_ops = 1};
    return kin_steps_pack(&d->steps, d->pool, 1, &(kin_hop){.step = step, .n_rows = N_ROWS, .n_embd = width}, &batch, x);
}

static kin_proto_step decode(const kin_message_buffer *buffer) {
    kin_proto_step m;
    kin_err err;
    if (kin_proto_decode_step(buffer->payload, buffer->frame.length, &m, &err) != 0) fail_msg("%s", err.text);
    return m;
}
#define decode(...) FROM_TEST(decode(__VA_ARGS__))

// Also of a step that a later one forgets, and that is not computed: the next member expects it so.
static void a_device_sends_the_rows_that_the_next_one_expects(void **state) {
    desk d;
    kin_err err;
    (void)state;
    open_desk(&d);
    assert_int_not_equal(d.before.width, d.after.width);
    kin_message_buffer *first = pack(&d, 1, d.before.width), *second = pack(&d, 2, d.before.width);
    kin_message_queue_put(d.in, second);
    assert_int_equal(kin_engine_instance_handle(d.instance, &first, &err), 0);
    assert_int_equal(kin_engine_instance_worker_stats(d.instance).n_dropped, 1);
    assert_int_equal(decode(first).n_embd, d.after.width);
    assert_ptr_equal(kin_message_queue_pop(d.in, 0), second);
    assert_int_equal(kin_engine_instance_handle(d.instance, &second, &err), 0);
    assert_int_equal(decode(second).n_embd, d.after.width);
    kin_message_pool_give(d.pool, first);
    kin_message_pool_give(d.pool, second);
    close_desk(&d);
}

static void rows_of_another_border_are_refused(void **state) {
    desk d;
    kin_err err;
    char why[80];
    (void)state;
    open_desk(&d);
    kin_message_buffer *buffer = pack(&d, 1, d.after.width);
    assert_int_equal(kin_engine_instance_handle(d.instance, &buffer, &err), KIN_FAIL);
    snprintf(why, sizeof why, "rows of %d values, but layers here need %d", d.after.width, d.before.width);
    assert_string_equal(err.text, why);
    assert_true(kin_engine_instance_got_wrong(d.instance));
    buffer = pack(&d, 2, d.before.width); // the device goes on
    assert_int_equal(kin_engine_instance_handle(d.instance, &buffer, &err), 0);
    kin_message_pool_give(d.pool, buffer);
    close_desk(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_what_the_layers_behind_it_need),
        cmocka_unit_test(keys_and_values_are_in_the_order_of_their_layers),
        cmocka_unit_test(a_row_has_the_embedding_up_to_the_layer_that_adds_it),
        cmocka_unit_test(without_shared_keys_the_row_before_the_first_layer_is_the_widest),
        cmocka_unit_test(memory_for_rows_has_all_that_crosses_any_border),
        cmocka_unit_test(other_models_have_the_residual_only),
        cmocka_unit_test(rows_lose_what_layers_have_used),
        cmocka_unit_test(a_choice_crosses_borders_before_layers_that_share_it),
        cmocka_unit_test(a_choice_is_the_same_after_any_rounding_on_the_wire),
        cmocka_unit_test(a_choice_of_tokens_that_cannot_be_seen_is_refused),
        cmocka_unit_test(other_models_have_no_choice),
        cmocka_unit_test(a_cell_is_copied_bit_for_bit),
        cmocka_unit_test(a_device_sends_the_rows_that_the_next_one_expects),
        cmocka_unit_test(rows_of_another_border_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
