// Recomputes only the layers of a lost device, from the logged hidden states that were sent to it (engine/border_log.h,
// engine/kv/pages.h). The shards share a disk.
//
//     before     a: layers 0 to 2, keeps pages     b: layers 2 to 5, keeps none, is lost
//     after      c: layers 0 to 4, from a's pages and its log of border 2     d: layer 4, from c's log of border 4
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/shard.h"
#include "testkit/model_gen.h"
#include "tests/own_dir.h"
#include "tests/place.h"

enum { N_LAYER = 5, N_EMBD = 256, N_PAGES = 3, N_TOKENS = N_PAGES * KIN_KV_CELLS, N_CTX = 320, N_BATCH = 50, SEQ = 2 };

static char model_path[] = "/tmp/kin-test-recompute-model-XXXXXX";
static kin_model model;
static kin_devices devices;
static float inputs[(N_TOKENS + 1) * N_EMBD]; // the first layer's inputs

static int set_up(void **state) {
    (void)state;
    kin_model_spec spec = kin_model_spec_defaults();
    kin_device_options device = kin_device_options_defaults();
    kin_err err;
    spec.n_layer = N_LAYER;
    spec.n_embd = spec.n_ff = N_EMBD;
    spec.mix = "q4_k_m";
    device.n_threads = 1;
    for (int i = 0; i < (N_TOKENS + 1) * N_EMBD; i++) inputs[i] = (float)(i * 7919 % 2001 - 1000) / 1000;
    int fd = mkstemp(model_path);
    if (fd < 0 || close(fd) != 0 || kin_model_gen(&spec, model_path, &err) != 0) return -1;
    return kin_model_open(&model, model_path, &err) != 0 || kin_devices_open(&devices, &device, &err) != 0 ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    kin_devices_close(&devices);
    kin_model_close(&model);
    return unlink(model_path);
}

static int make_dir(void **state) {
    (void)state;
    return make_own_dir("/tmp", "recompute");
}

static kin_activation_type wire; // the activation type between all shards

static kin_shard *open_shard(int layer_begin, int layer_end, kin_stream_mode mode, bool keeps) {
    kin_shard_options o = kin_shard_options_defaults(&model);
    kin_shard *s;
    kin_err err;
    o.windows = kin_windows_one(layer_begin, layer_end, 0);
    o.n_ctx = N_CTX;
    o.n_batch = N_BATCH;
    o.output = false;
    o.wire = wire;
    o.mode = mode;
    o.kv_disk.dir = keeps ? dir : NULL;
    if (kin_shard_open(&s, &model, &devices, &o, &err) != 0) fail_msg("%s", err.text);
    return s;
}
#define open_shard(...) FROM_TEST(open_shard(__VA_ARGS__))

// Runs n tokens from position `pos` on, in steps of at most n_step. x: f32 [n, n_embd], in place
static void run(kin_shard *s, int pos, int n, int n_step, float *x) {
    kin_err err;
    for (int at = 0, some; at < n; at += some) {
        int32_t positions[N_BATCH], seq[N_BATCH];
        some = n - at < n_step ? n - at : n_step;
        for (int i = 0; i < some; i++) {
            positions[i] = pos + at + i;
            seq[i] = SEQ;
        }
        kin_batch batch = {.n_tokens = some, .pos = positions, .seq = seq};
        int number = kin_shard_begin(s, &batch, &err);
        if (number < 0) fail_msg("%s", err.text);
        if (kin_shard_run(s, number, 0, x + at * N_EMBD, x + at * N_EMBD, &err) != 0) fail_msg("%s", err.text);
        kin_shard_end(s, number, true);
    }
}
#define run(...) FROM_TEST(run(__VA_ARGS__))

static kin_page_request request_of(bool loads, int first, int n) {
    kin_page_request r = {.loads = loads, .recomputes = loads, .seq = SEQ, .first = first, .n = n};
    for (int i = 0; i < n; i++) r.keys[i].bytes[3] = (uint8_t)(first + i + 1);
    return r;
}

static int ask(kin_shard *s, const kin_page_request *r) {
    kin_err err;
    int n = kin_shard_pages(s, &(kin_batch){.pages = r}, &err);
    if (n >= 0 && r->recomputes) n = kin_shard_recompute(s, r, &err);
    if (n < 0) fail_msg("%s", err.text);
    return n;
}
#define ask(...) FROM_TEST(ask(__VA_ARGS__))

// Rounds rows as sending them over a hop does. x: f32 [n, N_EMBD], in place
static void send(float *x, int n) {
    uint8_t row[N_EMBD * sizeof(float)];
    for (int i = 0; i < n; i++) {
        kin_activations_encode(row, x + i * N_EMBD, N_EMBD, wire);
        kin_activations_decode(x + i * N_EMBD, row, N_EMBD, wire);
    }
}

// a and b compute all tokens, and a keeps its pages. x: f32 [n_embd], the output of the last layer for the token after the pages
static void compute_in_two(float *x) {
    kin_shard *a = open_shard(0, 2, KIN_STREAM_RESIDENT, true), *b = open_shard(2, N_LAYER, KIN_STREAM_RESIDENT, false);
    float all[N_TOKENS * N_EMBD];
    kin_page_request r = request_of(false, 0, N_PAGES);
    memcpy(all, inputs, sizeof all);
    memcpy(x, inputs + N_TOKENS * N_EMBD, N_EMBD * sizeof *x);
    run(a, 0, N_TOKENS, 41, all);
    send(all, N_TOKENS);
    run(b, 0, N_TOKENS, 50, all);
    assert_int_equal(ask(a, &r), N_PAGES);
    run(a, N_TOKENS, 1, 1, x);
    send(x, 1);
    run(b, N_TOKENS, 1, 1, x);
    kin_shard_close(a);
    kin_shard_close(b);
}
#define compute_in_two(...) FROM_TEST(compute_in_two(__VA_ARGS__))

static void lost_layers_have_the_bits_that_they_had(void **state) {
    (void)state;
    const kin_stream_mode modes[] = {KIN_STREAM_RESIDENT, KIN_STREAM_WILLNEED};
    for (int i = 0; i < 2; i++) {
        float expected[N_EMBD], got[N_EMBD];
        remove_dir(NULL);
        compute_in_two(expected);
        kin_shard *c = open_shard(0, 4, modes[i], true), *d = open_shard(4, N_LAYER, modes[i], true);
        kin_page_request first = request_of(true, 0, 1), others = request_of(true, 1, N_PAGES - 1);
        assert_int_equal(ask(c, &first), 1);
        assert_int_equal(ask(c, &others), N_PAGES - 1);
        assert_int_equal(ask(d, &first), 1);
        assert_int_equal(ask(d, &others), N_PAGES - 1);
        memcpy(got, inputs + N_TOKENS * N_EMBD, sizeof got);
        run(c, N_TOKENS, 1, 1, got);
        run(d, N_TOKENS, 1, 1, got);
        assert_memory_equal(got, expected, sizeof expected);
        kin_shard_close(c);
        kin_shard_close(d);
    }
}

// b returns without its pages, and computes from the rows that a logged when it sent them.
static void a_device_that_comes_back_computes_from_what_it_had_got(void **state) {
    (void)state;
    const kin_activation_type wires[] = {KIN_ACTIVATION_F32, KIN_ACTIVATION_F16, KIN_ACTIVATION_Q8};
    for (int i = 0; i < 3; i++) {
        wire = wires[i];
        float expected[N_EMBD], got[N_EMBD];
        kin_page_request r = request_of(true, 0, N_PAGES);
        remove_dir(NULL);
        compute_in_two(expected);
        kin_shard *a = open_shard(0, 2, KIN_STREAM_RESIDENT, true), *b = open_shard(2, N_LAYER, KIN_STREAM_RESIDENT, true);
        assert_int_equal(ask(a, &r), N_PAGES);
        assert_int_equal(ask(b, &r), N_PAGES);
        memcpy(got, inputs + N_TOKENS * N_EMBD, sizeof got);
        run(a, N_TOKENS, 1, 1, got);
        send(got, 1);
        run(b, N_TOKENS, 1, 1, got);
        assert_memory_equal(got, expected, sizeof expected);
        kin_shard_close(a);
        kin_shard_close(b);
    }
    wire = KIN_ACTIVATION_F32;
}

// b is lost and a computes its layers. Then c is lost, which had received rounded rows from b.
static void a_border_where_a_lost_device_sent_is_logged_as_it_was_sent(void **state) {
    (void)state;
    const kin_activation_type wires[] = {KIN_ACTIVATION_F32, KIN_ACTIVATION_F16, KIN_ACTIVATION_Q8};
    for (int i = 0; i < 3; i++) {
        wire = wires[i];
        float all[N_TOKENS * N_EMBD], expected[N_EMBD], got[N_EMBD];
        kin_page_request keep = request_of(false, 0, N_PAGES), load = request_of(true, 0, N_PAGES);
        kin_border_set_add(&load.borders, 2);
        kin_border_set_add(&load.borders, 4);
        remove_dir(NULL);
        kin_shard *a = open_shard(0, 2, KIN_STREAM_RESIDENT, true), *b = open_shard(2, 4, KIN_STREAM_RESIDENT, false),
                  *c = open_shard(4, N_LAYER, KIN_STREAM_RESIDENT, false);
        memcpy(all, inputs, sizeof all);
        run(a, 0, N_TOKENS, 50, all);
        send(all, N_TOKENS);
        run(b, 0, N_TOKENS, 50, all);
        send(all, N_TOKENS);
        run(c, 0, N_TOKENS, 50, all);
        assert_int_equal(ask(a, &keep), N_PAGES);
        memcpy(expected, inputs + N_TOKENS * N_EMBD, sizeof expected);
        memcpy(got, expected, sizeof got);
        run(c, N_TOKENS, 1, 1, expected);
        kin_shard_close(a);
        kin_shard_close(b);
        kin_shard_close(c);
        a = open_shard(0, 4, KIN_STREAM_RESIDENT, true);
        assert_int_equal(ask(a, &load), N_PAGES);
        kin_shard_close(a);
        c = open_shard(4, N_LAYER, KIN_STREAM_RESIDENT, true);
        assert_int_equal(ask(c, &load), N_PAGES);
        run(c, N_TOKENS, 1, 1, got);
        assert_memory_equal(got, expected, sizeof expected);
        kin_shard_close(c);
    }
    wire = KIN_ACTIVATION_F32;
}

// The head's embeddings are rounded too, because they are sent. The rows after the recomputed layers are not, because they stayed
// inside one device.
static void rows_are_logged_as_the_next_layer_gets_them(void **state) {
    (void)state;
    float sent[N_TOKENS * N_EMBD], expected[N_EMBD], got[N_EMBD];
    kin_page_request r = request_of(true, 0, N_PAGES);
    wire = KIN_ACTIVATION_Q8;
    kin_shard *whole = open_shard(0, N_LAYER, KIN_STREAM_RESIDENT, false);
    memcpy(sent, inputs, sizeof sent);
    send(sent, N_TOKENS);
    run(whole, 0, N_TOKENS, 50, sent);
    memcpy(expected, inputs + N_TOKENS * N_EMBD, sizeof expected);
    run(whole, N_TOKENS, 1, 1, expected);
    kin_shard_close(whole);
    kin_shard *c = open_shard(0, 3, KIN_STREAM_RESIDENT, true), *d = open_shard(3, N_LAYER, KIN_STREAM_RESIDENT, true);
    kin_shard_put_border(c, 0, &r, inputs);
    assert_int_equal(ask(c, &r), N_PAGES);
    assert_int_equal(ask(d, &r), N_PAGES);
    memcpy(got, inputs + N_TOKENS * N_EMBD, sizeof got);
    run(c, N_TOKENS, 1, 1, got);
    run(d, N_TOKENS, 1, 1, got);
    assert_memory_equal(got, expected, sizeof expected);
    kin_shard_close(c);
    kin_shard_close(d);
    wire = KIN_ACTIVATION_F32;
}

// c recomputes its layers. The results are then on the disk as pages, which c can load; d's layers have no pages, but the hidden
// states that c passed on are logged, from which d recomputes them after c has ended.
static void what_was_computed_is_kept_for_the_next_loss(void **state) {
    (void)state;
    float x[N_EMBD];
    kin_page_request r = request_of(true, 0, N_PAGES);
    compute_in_two(x);
    kin_shard *c = open_shard(0, 4, KIN_STREAM_RESIDENT, true);
    assert_int_equal(ask(c, &r), N_PAGES);
    kin_shard_close(c);
    r.recomputes = false;
    c = open_shard(0, 4, KIN_STREAM_RESIDENT, true);
    assert_int_equal(ask(c, &r), N_PAGES);
    kin_shard_close(c);
    kin_shard *d = open_shard(4, N_LAYER, KIN_STREAM_RESIDENT, true);
    assert_int_equal(ask(d, &r), 0);
    kin_shard_close(d);
    r.recomputes = true;
    d = open_shard(4, N_LAYER, KIN_STREAM_RESIDENT, true);
    assert_int_equal(ask(d, &r), N_PAGES);
    kin_shard_close(d);
}

// A shard begins at a layer whose input was not logged: inside the lost device's layers, or after them without c's log.
static void without_hidden_states_nothing_is_computed(void **state) {
    (void)state;
    float x[N_EMBD];
    kin_page_request r = request_of(true, 0, N_PAGES);
    compute_in_two(x);
    for (int begin = 3; begin < N_LAYER; begin++) {
        kin_shard *s = open_shard(begin, N_LAYER, KIN_STREAM_RESIDENT, true);
        assert_int_equal(ask(s, &r), 0);
        kin_shard_close(s);
    }
}

// The head supplies the first layer's input.
static void the_first_layers_begin_with_what_the_head_gives(void **state) {
    (void)state;
    float expected[N_EMBD], got[N_EMBD];
    kin_page_request r = request_of(true, 0, N_PAGES);
    compute_in_two(expected);
    remove_dir(NULL);
    kin_shard *all = open_shard(0, N_LAYER, KIN_STREAM_RESIDENT, true);
    kin_shard_put_border(all, 0, &r, inputs);
    assert_int_equal(ask(all, &r), N_PAGES);
    memcpy(got, inputs + N_TOKENS * N_EMBD, sizeof got);
    run(all, N_TOKENS, 1, 1, got);
    assert_memory_equal(got, expected, sizeof expected);
    kin_shard_close(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lost_layers_have_the_bits_that_they_had, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_device_that_comes_back_computes_from_what_it_had_got, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_border_where_a_lost_device_sent_is_logged_as_it_was_sent, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(rows_are_logged_as_the_next_layer_gets_them, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(what_was_computed_is_kept_for_the_next_loss, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(without_hidden_states_nothing_is_computed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(the_first_layers_begin_with_what_the_head_gives, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
