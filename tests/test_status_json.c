// The head's report of its cluster as JSON (observe/status_json.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "observe/status_json.h"
#include "pure/proto/frame.h"
#include "tests/place.h"

static kin_member_windows windows_of(int n) {
    kin_member_windows w = {.windows = {.n = n}};
    for (int i = 0; i < n; i++) {
        w.windows.at[i] = (kin_window){3 * i, 3 * i + 2, i == 0, 0};
        w.rounds[i] = i;
    }
    return w;
}

static kin_membership_device device_of(const char *name, kin_device_state state, int stage) {
    kin_membership_device d = {.state = state, .stage = stage, .facts = {.n_threads = 8, .memory = 6000, .memory_total = 8000}};
    strcpy(d.name, name);
    strcpy(d.facts.cpu, "Zen 4");
    return d;
}

static kin_status_sample sample_of(kin_proto_state state) {
    return (kin_status_sample){.has_now = true,
                               .has_before = true,
                               .now = {.state = state,
                                       .steps = 20,
                                       .tokens = 10,
                                       .compute_ns = 500,
                                       .wait_ns = 400,
                                       .disk_ns = 150,
                                       .net_in = 70,
                                       .net_out = 80,
                                       .streamed_bytes = 90,
                                       .resident_bytes = 100,
                                       .memory_free = 110,
                                       .rtt_ns = 250000,
                                       .doing = "working"},
                               .before = {.compute_ns = 200, .wait_ns = 300, .disk_ns = 50},
                               .ready = {.kv_bytes = 1, .weights_bytes = 2, .compute_bytes = 3},
                               .rtt_ns = 1500000};
}

static kin_status_json *new_report(void) {
    kin_status_json *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->head = (kin_status_json_head){.name = "desk",
                                     .version = "0.1",
                                     .model = "demo",
                                     .doing = "serving",
                                     .port = 7577,
                                     .state = KIN_MEMBERSHIP_SERVING,
                                     .epoch = 4000000000,
                                     .n_rounds = 2,
                                     .n_layer = 8,
                                     .n_ctx = 512,
                                     .n_sequences = 1,
                                     .n_sequences_total = 3,
                                     .n_prompt = 100,
                                     .n_generated = 50,
                                     .tokens_per_s = 12.5,
                                     .uptime_s = 60};
    r->head.model_hash.bytes[0] = 0xab;
    return r;
}
#define new_report(...) FROM_TEST(new_report(__VA_ARGS__))

static json_t *parse(const kin_status_json *r, size_t n_max) {
    char *text = kin_status_json_write(r, n_max);
    assert_non_null(text);
    assert_true(strlen(text) <= n_max);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    free(text);
    return root;
}
#define parse(...) FROM_TEST(parse(__VA_ARGS__))

static double number(const json_t *o, const char *key) {
    const json_t *value = json_object_get(o, key);
    if (!json_is_number(value)) fail_msg("no number '%s'", key);
    return json_number_value(value);
}
#define number(...) FROM_TEST(number(__VA_ARGS__))

static void expect_text(const json_t *o, const char *key, const char *expected) {
    const char *text = json_string_value(json_object_get(o, key));
    if (!text) fail_msg("no text '%s'", key);
    assert_string_equal(text, expected);
}
#define expect_text(...) FROM_TEST(expect_text(__VA_ARGS__))

static void the_head_tells_all_of_itself(void **state) {
    (void)state;
    kin_status_json *r = new_report();
    json_t *root = parse(r, KIN_FRAME_REPORT_BYTES), *head = json_object_get(root, "head");
    expect_text(head, "name", "desk");
    expect_text(head, "state", "serving");
    expect_text(head, "model", "demo");
    expect_text(head, "doing", "serving");
    assert_int_equal(strncmp(json_string_value(json_object_get(head, "model_hash")), "ab0000", 6), 0);
    assert_true(number(head, "epoch") == 4000000000);
    assert_true(number(head, "sequences") == 1 && number(head, "sequences_total") == 3);
    assert_true(number(head, "prompt_tokens") == 100 && number(head, "tokens") == 50);
    assert_true(number(head, "tokens_per_s") == 12.5 && number(head, "uptime_s") == 60);
    assert_int_equal(json_array_size(json_object_get(root, "devices")), 0);
    json_decref(root);
    free(r);
}

static void a_device_tells_its_windows_numbers_and_shares(void **state) {
    (void)state;
    kin_status_json *r = new_report();
    kin_membership_device anna = device_of("anna", KIN_DEVICE_READY, 1);
    kin_member_windows windows = windows_of(2);
    r->members[r->n_members++] = (kin_status_json_member){.device = &anna,
                                                          .address = "10.0.0.2:5",
                                                          .sample = sample_of(KIN_PROTO_COMPUTING),
                                                          .windows = &windows,
                                                          .memory_planned = 5000,
                                                          .stage = 1};
    json_t *root = parse(r, KIN_FRAME_REPORT_BYTES), *d = json_array_get(json_object_get(root, "devices"), 0);
    expect_text(d, "name", "anna");
    expect_text(d, "role", "device");
    expect_text(d, "address", "10.0.0.2:5");
    expect_text(d, "state", "computing");
    expect_text(d, "doing", "working");
    expect_text(d, "cpu", "Zen 4");
    assert_true(number(d, "layers") == 4 && number(d, "gpu_layers") == 1 && number(d, "stage") == 1);
    const json_t *second = json_array_get(json_object_get(d, "windows"), 1);
    assert_true(number(second, "round") == 1 && number(second, "layer_begin") == 3 && number(second, "layer_end") == 5);
    assert_true(number(d, "memory_planned") == 5000 && number(d, "memory_lent") == 6000 && number(d, "memory_total") == 8000);
    assert_true(number(d, "resident_bytes") == 100 && number(d, "streamed_bytes") == 90 && number(d, "memory_free") == 110);
    assert_true(number(d, "bytes_in") == 70 && number(d, "bytes_out") == 80 && number(d, "weights_bytes") == 2);
    // 300 ns of 400 since the last sample
    assert_true(number(d, "compute_share") == 0.75 && number(d, "wait_share") == 0.25 && number(d, "disk_share") == 0.25);
    assert_true(number(d, "rtt_ms") == 0.25 && number(d, "head_rtt_ms") == 1.5);
    assert_null(json_object_get(d, "gpu"));
    assert_null(json_object_get(d, "windows_left_out"));
    json_decref(root);
    free(r);
}

static void counters_that_began_anew_count_from_zero(void **state) {
    (void)state;
    kin_status_json *r = new_report();
    kin_status_json_member *m = &r->members[r->n_members++];
    *m = (kin_status_json_member){.sample = sample_of(KIN_PROTO_WAITING)};
    m->sample.before = (kin_proto_status){.compute_ns = 9999, .wait_ns = 300, .disk_ns = 9999};
    m->sample.now.disk_ns = 9000;
    json_t *root = parse(r, KIN_FRAME_REPORT_BYTES), *d = json_array_get(json_object_get(root, "devices"), 0);
    expect_text(d, "name", "desk");
    expect_text(d, "role", "head");
    expect_text(d, "state", "waiting");
    assert_true(number(d, "compute_share") == 500.0 / 600 || number(d, "compute_share") == 0.833333);
    assert_true(number(d, "disk_share") == 1);
    json_decref(root);
    free(r);
}

static void a_device_that_said_nothing_yet_has_no_numbers(void **state) {
    (void)state;
    static const struct {
        kin_device_state state;
        const char *word;
    } cases[] = {{KIN_DEVICE_GREETED, "greeted"}, {KIN_DEVICE_JOINED, "joined"}, {KIN_DEVICE_PREPARING, "preparing"},
                 {KIN_DEVICE_READY, "waiting"},   {KIN_DEVICE_FAILED, "failed"}, {KIN_DEVICE_LOST, "lost"},
                 {KIN_DEVICE_LEFT, "left"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kin_status_json *r = new_report();
        kin_membership_device ben = device_of("ben \"the\" \\ one", cases[i].state, 0);
        strcpy(ben.last_error, "no disk");
        r->members[r->n_members++] = (kin_status_json_member){.device = &ben};
        json_t *root = parse(r, KIN_FRAME_REPORT_BYTES), *d = json_array_get(json_object_get(root, "devices"), 0);
        expect_text(d, "name", "ben \"the\" \\ one");
        expect_text(d, "state", cases[i].word);
        expect_text(d, "last_error", "no disk");
        assert_null(json_object_get(d, "compute_share"));
        assert_null(json_object_get(d, "rtt_ms"));
        assert_int_equal(json_array_size(json_object_get(d, "windows")), 0);
        json_decref(root);
        free(r);
    }
}

static void the_largest_report_fits_and_says_what_it_leaves_out(void **state) {
    (void)state;
    kin_status_json *r = new_report();
    kin_membership_device d = device_of("", KIN_DEVICE_READY, 1);
    kin_status_sample sample = sample_of(KIN_PROTO_COMPUTING);
    kin_member_windows windows = windows_of(KIN_MAX_WINDOWS);
    memset(d.name, '"', sizeof d.name - 1);
    memset(d.last_error, '\\', sizeof d.last_error - 1);
    memset(d.facts.cpu, '"', sizeof d.facts.cpu - 1);
    memset(d.facts.gpu, '"', sizeof d.facts.gpu - 1);
    memset(d.facts.os, '"', sizeof d.facts.os - 1);
    memset(sample.now.doing, '"', sizeof sample.now.doing - 1);
    for (int i = 0; i <= KIN_MEMBERSHIP_DEVICES; i++)
        r->members[r->n_members++] =
            (kin_status_json_member){.device = &d, .sample = sample, .windows = &windows, .stage = i + 1};
    json_t *root = parse(r, KIN_FRAME_REPORT_BYTES), *devices = json_object_get(root, "devices");
    assert_int_equal(json_array_size(devices), KIN_MEMBERSHIP_DEVICES + 1);
    const json_t *last = json_array_get(devices, KIN_MEMBERSHIP_DEVICES);
    assert_true(number(last, "layers") == 2 * KIN_MAX_WINDOWS);
    assert_true(number(last, "windows_left_out") == KIN_MAX_WINDOWS);
    json_decref(root);

    r->n_members = 1; // the windows of a single member fit
    root = parse(r, KIN_FRAME_REPORT_BYTES);
    assert_int_equal(json_array_size(json_object_get(json_array_get(json_object_get(root, "devices"), 0), "windows")),
                     KIN_MAX_WINDOWS);
    json_decref(root);
    assert_null(kin_status_json_write(r, 100));
    free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_head_tells_all_of_itself),
        cmocka_unit_test(a_device_tells_its_windows_numbers_and_shares),
        cmocka_unit_test(counters_that_began_anew_count_from_zero),
        cmocka_unit_test(a_device_that_said_nothing_yet_has_no_numbers),
        cmocka_unit_test(the_largest_report_fits_and_says_what_it_leaves_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
