// Versions of the protocol (pure/proto/versions.h): ranges that overlap, and the error if they do not; then between an endpoint
// and a dial.
#include <stdatomic.h>

#include "net/dial.h"
#include "net/endpoint.h"
#include "pure/proto/label.h"
#include "pure/proto/refusal.h"
#include "pure/proto/versions.h"
#include "tests/link_context.h"
#include "tests/place.h"

static const kin_key key = {{1, 2, 3}}; // good_key, as a key

// ---- the rule

static uint16_t meet(kin_proto_versions a, kin_proto_versions b, kin_err *err) {
    kin_proto_speaker desk = {"desk", "0.1.0", a}, anna = {"anna", "0.3.0", b};
    kin_err other;
    uint16_t version = kin_proto_versions_agree(&desk, &anna, err);
    assert_int_equal(kin_proto_versions_agree(&anna, &desk, &other), version); // both sides choose the same version
    return version;
}
#define meet(...) FROM_TEST(meet(__VA_ARGS__))

static void ranges_meet_at_the_highest_common_version(void **state) {
    (void)state;
    kin_err err;
    assert_int_equal(meet((kin_proto_versions){5, 7}, (kin_proto_versions){6, 9}, &err), 7);
    assert_int_equal(meet((kin_proto_versions){5, 9}, (kin_proto_versions){6, 7}, &err), 7);
    assert_int_equal(meet((kin_proto_versions){5, 6}, (kin_proto_versions){6, 7}, &err), 6);
    assert_int_equal(meet(KIN_PROTO_VERSIONS, KIN_PROTO_VERSIONS, &err), KIN_PROTO_VERSION_MAX);
}

static void ranges_that_do_not_overlap_are_named_with_the_side_to_update(void **state) {
    (void)state;
    kin_err err;
    assert_int_equal(meet((kin_proto_versions){5, 5}, (kin_proto_versions){6, 7}, &err), 0);
    assert_string_equal(err.text,
                        "version: incompatible protocol: 'desk' (kin 0.1.0) speaks version 5, 'anna' (kin 0.3.0) speaks versions "
                        "6 to 7; update kin on 'desk'");
    assert_int_equal(kin_refusal_of(err.text), KIN_REFUSAL_VERSION);
    assert_int_equal(meet((kin_proto_versions){8, 9}, (kin_proto_versions){6, 7}, &err), 0);
    assert_non_null(strstr(err.text, "; update kin on 'anna'"));
}

static void the_sentence_fits_whatever_the_names_are(void **state) {
    (void)state;
    char name[KIN_PROTO_MAX_STR + 1] = {0};
    kin_err err;
    for (size_t i = 0; i < KIN_PROTO_MAX_STR - 1; i += 2) memcpy(name + i, "\xc3\xbc", 2);
    kin_proto_speaker a = {name, name, {40000, 50000}}, b = {name, name, {60000, 65535}};
    assert_int_equal(kin_proto_versions_agree(&a, &b, &err), 0);
    kin_proto_refuse refuse, back;
    uint8_t bytes[2048];
    kin_label_set_sentence(refuse.reason, KIN_PROTO_MAX_REASON, err.text);
    size_t n = kin_proto_encode_refuse(bytes, sizeof bytes, &refuse);
    assert_int_equal(kin_proto_decode_refuse(bytes, n, &back, &err), 0);
    assert_non_null(strstr(back.reason, "; update kin on '\xc3\xbc"));
    assert_int_equal(back.reason[strlen(back.reason) - 1], '\'');
}

// ---- between two processes

static atomic_int version_there; // the link's version at the endpoint

static void opened(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    static const kin_link_callbacks none = {0};
    (void)epoch, (void)open;
    atomic_store(&version_there, kin_link_version(link));
    kin_link_accept(link, &none, NULL);
    kin_endpoint_send_accept(*(kin_endpoint **)user, link);
}

static void nothing(void *arg) {
    (void)arg;
}

typedef struct outcome {
    bool is_over;
    int version; // 0: failed
    kin_dial_end end;
    char reason[512];
} outcome;

static void accepted(void *user, kin_link *link, const kin_proto_accept *accept) {
    outcome *o = user;
    (void)accept;
    o->is_over = true;
    o->version = kin_link_version(link);
    kin_link_close(link, NULL);
}

static void failed(void *user, const kin_dial_failure *failure) {
    outcome *o = user;
    o->is_over = true;
    o->end = failure->end;
    snprintf(o->reason, sizeof o->reason, "%s", failure->reason);
}

static outcome dial(context *w, kin_proto_versions here, kin_proto_versions there) {
    static const kin_endpoint_callbacks of_endpoint = {.opened = opened};
    static const kin_dial_callbacks of_dial = {accepted, failed};
    outcome out = {0};
    kin_endpoint *s;
    kin_dial *d;
    kin_err err;
    atomic_store(&version_there, 0);
    kin_endpoint_options eo = {
        .id = {{100}}, .name = "desk", .version = "0.1.0", .versions = there, .key = key, .listen = "127.0.0.1"};
    assert_int_equal(kin_endpoint_open(&s, &eo, &of_endpoint, &s, &err), 0);
    assert_int_equal(kin_endpoint_start(s, nothing, NULL, &err), 0);
    kin_dial_options o = kin_dial_options_default(w->tls);
    o.to = kin_dial_address("127.0.0.1", kin_endpoint_port(s));
    o.open = (kin_proto_open){.role = KIN_PROTO_FETCH, .id = {{6}}, .versions = here, .name = "anna", .version = "0.3.0"};
    o.limit_ms = TIMEOUT_MS;
    assert_int_equal(kin_dial_start(&d, &w->loop, &o, &of_dial, &out, &err), 0);
    RUN_UNTIL(w, out.is_over);
    kin_endpoint_close(s, NULL, NULL);
    return out;
}
#define dial(...) FROM_TEST(dial(__VA_ARGS__))

static void both_sides_take_the_highest_common_version(void **state) {
    outcome out = dial(*state, (kin_proto_versions){5, 7}, (kin_proto_versions){6, 9});
    assert_int_equal(out.version, 7);
    assert_int_equal(atomic_load(&version_there), 7);
    out = dial(*state, (kin_proto_versions){0, 0}, (kin_proto_versions){0, 0}); // unset: the versions of this program
    assert_int_equal(out.version, KIN_PROTO_VERSION_MAX);
}

static void a_peer_without_a_common_version_is_refused_with_both_ranges(void **state) {
    outcome out = dial(*state, (kin_proto_versions){8, 9}, (kin_proto_versions){5, 6});
    assert_int_equal(out.version, 0);
    assert_int_equal(out.end, KIN_DIAL_REFUSED);
    assert_string_equal(out.reason,
                        "version: incompatible protocol: 'desk' (kin 0.1.0) speaks versions 5 to 6, 'anna' (kin 0.3.0) speaks "
                        "versions 8 to 9; update kin on 'desk'");
    assert_int_equal(atomic_load(&version_there), 0); // the endpoint's owner is not told
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_meet_at_the_highest_common_version),
        cmocka_unit_test(ranges_that_do_not_overlap_are_named_with_the_side_to_update),
        cmocka_unit_test(the_sentence_fits_whatever_the_names_are),
        cmocka_unit_test_setup_teardown(both_sides_take_the_highest_common_version, open_context, close_context),
        cmocka_unit_test_setup_teardown(a_peer_without_a_common_version_is_refused_with_both_ranges, open_context, close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
