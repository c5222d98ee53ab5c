// The profile that a device sends when it joins, and the links that it measures for its head. The head is an endpoint that
// records the messages.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/address.h"
#include "net/endpoint.h"
#include "tests/joined.h"
#include "tests/place.h"

enum { MAX_KEPT = 64, TIMEOUT_MS = 20000 };

static const kin_proto_id head_id = {{100}};

// ---- a head

typedef struct head {
    kin_endpoint *endpoint;
    kin_link *control; // of the last device that connected
    pthread_mutex_t mutex;
    kin_proto_message *kept[MAX_KEPT]; // received on `control`, in order
    int n_kept;
    const kin_proto_message *to_send;
} head;

static void on_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    head *h = user;
    kin_err err;
    (void)link;
    kin_proto_message *m = malloc(sizeof *m);
    if (kin_proto_decode(frame->type, payload, frame->length, m, &err) != 0) fail_msg("%s", err.text);
    pthread_mutex_lock(&h->mutex);
    assert_true(h->n_kept < MAX_KEPT);
    h->kept[h->n_kept++] = m;
    pthread_mutex_unlock(&h->mutex);
}

static void on_end(void *user, kin_link *link, const char *reason) {
    head *h = user;
    (void)reason;
    if (h->control == link) h->control = NULL;
}

static void on_control(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    static const kin_link_callbacks callbacks = {.frame = on_frame, .closed = on_end};
    head *h = user;
    (void)epoch, (void)open;
    h->control = link;
    kin_link_accept(link, &callbacks, h);
    kin_link_set_frame_max(link, KIN_FRAME_CAP_LARGE);
    kin_endpoint_send_accept(h->endpoint, link);
}

static void nothing(void *arg) {
    (void)arg;
}

static void open_head(head *h) {
    static const kin_endpoint_callbacks callbacks = {.opened = on_control};
    kin_endpoint_options o = {.id = head_id, .name = "desk", .version = "test", .key = key, .listen = "127.0.0.1"};
    kin_err err;
    *h = (head){0};
    pthread_mutex_init(&h->mutex, NULL);
    assert_int_equal(kin_endpoint_open(&h->endpoint, &o, &callbacks, h, &err), 0);
    assert_int_equal(kin_endpoint_start(h->endpoint, nothing, NULL, &err), 0);
}
#define open_head(...) FROM_TEST(open_head(__VA_ARGS__))

static void hang_up(void *arg) {
    head *h = arg;
    kin_link_close(h->control, "enough");
    h->control = NULL;
}

static void close_head(head *h) {
    kin_endpoint_close(h->endpoint, hang_up, h);
    for (int i = 0; i < h->n_kept; i++) free(h->kept[i]);
    pthread_mutex_destroy(&h->mutex);
}

static void send_it(void *arg) {
    head *h = arg;
    assert_non_null(h->control);
    kin_endpoint_send_message(h->control, 0, h->to_send);
}

static void say(head *h, const kin_proto_message *m) {
    h->to_send = m;
    kin_endpoint_call(h->endpoint, send_it, h);
}

// Returns message i; waits until it has arrived.
static const kin_proto_message *nth(head *h, int i) {
    for (int waited_ms = 0; waited_ms < TIMEOUT_MS; waited_ms += 5) {
        pthread_mutex_lock(&h->mutex);
        const kin_proto_message *m = i < h->n_kept ? h->kept[i] : NULL;
        pthread_mutex_unlock(&h->mutex);
        if (m) return m;
        usleep(5000);
    }
    fail_msg("message %d did not come", i);
    return NULL;
}
#define nth(...) FROM_TEST(nth(__VA_ARGS__))

static void open_device(device *d, const head *h, bool has_facts) {
    static const kin_device_facts facts = {
        .name = "anna", .has_gpu = true, .memory_bytes = 1, .gpu_memory_bytes = 3e9, .disk_bytes_s = NAN};
    kin_join_options o = device_options(99, "anna", kin_endpoint_port(h->endpoint));
    o.memory = 1 << 20;
    o.cpu = "Zen 4";
    if (has_facts) o.gpu = "RTX";
    start_device(d, &o, has_facts ? &facts : NULL);
}
#define open_device(...) FROM_TEST(open_device(__VA_ARGS__))

// ---- both, for each test

static head desk;
static device anna;

static int open_both(void **state) {
    (void)state;
    open_head(&desk);
    open_device(&anna, &desk, false);
    return 0;
}

static int open_both_with_facts(void **state) {
    (void)state;
    open_head(&desk);
    open_device(&anna, &desk, true);
    return 0;
}

static int close_both(void **state) {
    (void)state;
    close_device(&anna);
    close_head(&desk);
    return 0;
}

// ---- tests

static void a_profile_comes_before_the_device_itself(void **state) {
    (void)state;
    const kin_proto_message *profile = nth(&desk, 0), *m = nth(&desk, 1);
    assert_int_equal(profile->type, KIN_FRAME_PROFILE);
    assert_string_equal(profile->profile.facts.name, "anna");
    assert_true(profile->profile.facts.has_gpu && isnan(profile->profile.facts.disk_bytes_s));
    assert_true(profile->profile.facts.memory_bytes == 1 << 20); // current memory, capped by the device's limit
    assert_int_equal(m->type, KIN_FRAME_DEVICE);
    assert_true(m->device.memory == 1 << 20 && m->device.gpu_memory == 3000000000);
    assert_string_equal(m->device.cpu, "Zen 4");
    assert_string_equal(m->device.gpu, "RTX");
}

// The name has 58 bytes; a profile has room for 47, which would end inside a character.
static void a_long_name_is_cut_between_characters(void **state) {
    (void)state;
    static const char name[] = "Ноутбук-Александры-Викторовны";
    static const kin_device_facts facts = {.name = "this machine"};
    kin_proto_message m = {.type = KIN_FRAME_PROFILE};
    open_head(&desk);
    kin_join_options o = device_options(99, name, kin_endpoint_port(desk.endpoint));
    start_device(&anna, &o, &facts);
    m.profile = nth(&desk, 0)->profile; // the decoder accepted it
    assert_int_equal(nth(&desk, 0)->type, KIN_FRAME_PROFILE);
    assert_int_equal(strlen(m.profile.facts.name), 46);
    assert_memory_equal(m.profile.facts.name, name, 46);
    close_both(state);
}

static void without_facts_there_is_no_profile(void **state) {
    (void)state;
    const kin_proto_message *m = nth(&desk, 0);
    assert_int_equal(m->type, KIN_FRAME_DEVICE);
    assert_string_equal(m->device.gpu, "");
    assert_int_equal(m->device.gpu_memory, 0);
    say(&desk, &(kin_proto_message){.type = KIN_FRAME_STATUS_WANTED});
    m = nth(&desk, 1);
    assert_int_equal(m->type, KIN_FRAME_STATUS);
    assert_true(m->status.token_compute_ns == 0 && m->status.token_stall_ns == 0);
    assert_true(m->status.token_disk_ns == 0 && m->status.token_disk_bytes == 0);
}

static void a_device_measures_the_links_that_its_head_asks_for(void **state) {
    (void)state;
    assert_int_equal(nth(&desk, 0)->type, KIN_FRAME_DEVICE);
    static kin_proto_message to_head = {.type = KIN_FRAME_MEASURE, .measure = {.id = {{100}}, .hidden_bytes = 16384}};
    static kin_proto_message to_nobody = {.type = KIN_FRAME_MEASURE,
                                          .measure = {.id = {{9}}, .hidden_bytes = 1, .endpoint = {1, 1, {"127.0.0.1"}}}};
    static kin_proto_message to_another = {.type = KIN_FRAME_MEASURE, .measure = {.id = {{8}}, .hidden_bytes = 1}};
    say(&desk, &to_head);
    const kin_proto_message *m = nth(&desk, 1);
    assert_int_equal(m->type, KIN_FRAME_MEASURED);
    assert_memory_equal(&m->measured.id, &head_id, sizeof head_id);
    assert_string_equal(m->measured.reason, "");
    assert_true(isfinite(m->measured.rtt_s) && m->measured.rtt_s > 0);
    assert_true(isfinite(m->measured.to_bytes_s) && m->measured.to_bytes_s > 0);
    assert_true(isfinite(m->measured.from_bytes_s) && m->measured.from_bytes_s > 0);

    say(&desk, &to_nobody);
    m = nth(&desk, 2);
    assert_int_equal(m->measured.id.bytes[0], 9);
    assert_non_null(strstr(m->measured.reason, "cannot connect"));
    say(&desk, &to_another); // the address of this request is the head's own
    assert_string_equal(nth(&desk, 3)->measured.reason, "another device, 'desk', answers at its address");
}

static void a_device_on_the_heads_machine_tells_where_others_reach_it(void **state) {
    (void)state;
    char own[KIN_PROTO_MAX_ADDRESSES][KIN_ADDRESS_HOST];
    int n = kin_address_own(own, KIN_PROTO_MAX_ADDRESSES - 1);
    const kin_proto_endpoint *e = &nth(&desk, 0)->device.endpoint;
    assert_int_equal(e->n_addresses, n > 0 ? n + 1 : 0); // the device reached its head at 127.0.0.1
    if (n > 0) assert_string_equal(e->address[0], "127.0.0.1");
    for (int i = 0; i < n; i++) assert_string_equal(e->address[i + 1], own[i]);
}

// Results of measurements requested on a closed link are not sent on the next link.
static void what_a_lost_head_asked_for_is_forgotten(void **state) {
    (void)state;
    assert_int_equal(nth(&desk, 0)->type, KIN_FRAME_DEVICE);
    static kin_proto_message measure = {.type = KIN_FRAME_MEASURE, .measure = {.id = {{100}}, .hidden_bytes = 16384}};
    desk.to_send = &measure;
    for (int i = 0; i < KIN_PROTO_MAX_MEASURES; i++) kin_endpoint_call(desk.endpoint, send_it, &desk);
    kin_endpoint_call(desk.endpoint, hang_up, &desk);
    int n_measured = 0;
    int i = 1;
    for (; nth(&desk, i)->type != KIN_FRAME_DEVICE; i++) n_measured++;
    assert_true(n_measured < KIN_PROTO_MAX_MEASURES);
    say(&desk, &(kin_proto_message){.type = KIN_FRAME_STATUS_WANTED});
    assert_int_equal(nth(&desk, i + 1)->type, KIN_FRAME_STATUS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_profile_comes_before_the_device_itself, open_both_with_facts, close_both),
        cmocka_unit_test(a_long_name_is_cut_between_characters),
        cmocka_unit_test_setup_teardown(without_facts_there_is_no_profile, open_both, close_both),
        cmocka_unit_test_setup_teardown(a_device_measures_the_links_that_its_head_asks_for, open_both, close_both),
        cmocka_unit_test_setup_teardown(a_device_on_the_heads_machine_tells_where_others_reach_it, open_both, close_both),
        cmocka_unit_test_setup_teardown(what_a_lost_head_asked_for_is_forgotten, open_both, close_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
