// The view of a running cluster from outside: reports for observers, and a timeline of the members' work. A head and a device,
// here in one process; and peers that are not heads.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/endpoint.h"
#include "observe/status_client.h"
#include "observe/status_subscribers.h"
#include "testkit/head_eval.h"
#include "tests/place.h"
#include "tests/small_cluster.h"

enum { N_TOKENS = 3, TIMEOUT_MS = 60000 };

static const kin_key other_key = {{8}};

static void open_device(device *d, uint16_t port, uint16_t head_port) {
    kin_join_options o = device_with_model(99, "anna", head_port);
    o.port = port;
    start_device(d, &o, NULL);
}
#define open_device(...) FROM_TEST(open_device(__VA_ARGS__))

static kin_cluster *open_cluster(kin_timeline *timeline) {
    kin_cluster_options o = cluster_options(1);
    o.model_name = "random";
    o.timeline = timeline;
    o.calls.ask = plan_two_rounds;
    return open_small_cluster(&o);
}
#define open_cluster(...) FROM_TEST(open_cluster(__VA_ARGS__))

static kin_status_client_options status_options(uint16_t port, const kin_key *with, int n_reports) {
    return (kin_status_client_options){
        .id = {{50}}, .name = "eye", .version = "test", .key = *with, .head = "127.0.0.1", .port = port, .n_reports = n_reports};
}

static int observe_at(uint16_t port, const kin_key *with, int n_reports, char **text, kin_err *err) {
    kin_status_client_options o = status_options(port, with, n_reports);
    err->text[0] = '\0';
    return kin_status_client_run(&o, text, err);
}

static json_t *report_of(uint16_t port, int n_reports) {
    char *text;
    kin_err err;
    if (observe_at(port, &key, n_reports, &text, &err) != 0) fail_msg("%s", err.text);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    free(text);
    return root;
}
#define report_of(...) FROM_TEST(report_of(__VA_ARGS__))

static json_t *device_in(const json_t *report, size_t i) {
    return json_array_get(json_object_get(report, "devices"), i);
}

static double number(const json_t *o, const char *name) {
    if (!json_is_number(json_object_get(o, name))) fail_msg("no number '%s'", name);
    return json_number_value(json_object_get(o, name));
}
#define number(...) FROM_TEST(number(__VA_ARGS__))

static bool is_text(const json_t *o, const char *name, const char *text) {
    const char *got = json_string_value(json_object_get(o, name));
    return got && strcmp(got, text) == 0;
}

// Waits until device 0 reports n_tokens computed tokens, which takes a moment.
static json_t *report_when(uint16_t port, double n_tokens) {
    kin_time begun = kin_clock_now();
    json_t *report = report_of(port, 2);
    while (number(device_in(report, 0), "tokens") < n_tokens && kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS) {
        json_decref(report);
        report = report_of(port, 1);
    }
    return report;
}
#define report_when(...) FROM_TEST(report_when(__VA_ARGS__))

static int bars_of(const kin_timeline *t, int row, kin_proto_event_kind kind) {
    int n = 0;
    for (int i = 0; i < kin_timeline_n_bars(t); i++) {
        const kin_bar b = kin_timeline_bar(t, i);
        n += b.row == row && b.event.kind == kind;
    }
    return n;
}

// True if bars of the device, the first row, are missing.
static bool lacks_bars(const kin_timeline *t) {
    return t && bars_of(t, 0, KIN_PROTO_EVENT_COMPUTE) < 2 * N_TOKENS;
}

static void run_request(kin_cluster *c, kin_timeline *t) {
    static float logits[N_VOCAB];
    const int32_t ids[] = {1, 50, 60, 70};
    kin_err err;
    if (kin_cluster_begin(c, &err) != 0) fail_msg("%s", err.text);
    kin_head *head = kin_cluster_head(c);
    kin_head_clear(head);
    for (int i = 0; i <= N_TOKENS; i++) {
        int n = i == 0 ? 4 : 1;
        if (kin_head_eval(head, 0, i == 0 ? 0 : 3 + i, ids, n, logits, 1, &err) != 0) fail_msg("%s", err.text);
        kin_timeline_mark(t, kin_clock_now());
        kin_timeline_add_own(t, kin_timeline_row(t, "desk"));
    }
    for (int i = 0; i < 20 && (i == 0 || lacks_bars(t)); i++) kin_cluster_gather(c); // a device has half a second to answer
    kin_timeline_add_own(t, kin_timeline_row(t, "desk"));
    kin_cluster_end(c);
}
#define run_request(...) FROM_TEST(run_request(__VA_ARGS__))

// A planner that asks its own head for the status while it plans.
typedef struct thinker {
    kin_cluster *cluster;
    atomic_int n_answered, n_plans;
} thinker;

static void poll_head(thinker *t) {
    char *text = NULL;
    kin_err err;
    if (observe_at(kin_cluster_port(t->cluster), &key, 1, &text, &err) == 0) atomic_fetch_add(&t->n_answered, 1);
    free(text);
}

static int think(kin_planner *user, const kin_planner_question *q, kin_plan *out, kin_err *err) {
    thinker *t = (thinker *)user;
    poll_head(t);
    atomic_fetch_add(&t->n_plans, 1);
    return plan_two_rounds(NULL, q, out, err);
}

static bool think_of_what_was_measured(kin_planner *user, const kin_planner_measured *m) {
    (void)m;
    poll_head((thinker *)user);
    return false;
}

static void a_head_goes_on_while_its_planner_thinks(void **state) {
    (void)state;
    static device anna;
    thinker t = {0};
    kin_cluster_options o = cluster_options(1);
    o.calls = (kin_planner_calls){.ask = think, .add_measured = think_of_what_was_measured};
    o.planner = (kin_planner *)&t;
    t.cluster = open_small_cluster(&o);
    open_device(&anna, 0, kin_cluster_port(t.cluster));
    run_request(t.cluster, NULL);
    kin_cluster_measure(t.cluster);
    int n_plans = atomic_load(&t.n_plans); // another plan may be under way
    assert_true(n_plans >= 1);
    assert_true(atomic_load(&t.n_answered) >= n_plans + 1);
    kin_cluster_close(t.cluster);
    close_device(&anna);
}

static void a_head_reports_all_members_and_draws_what_they_did(void **state) {
    (void)state;
    static device anna;
    kin_timeline *t;
    kin_err err;
    assert_int_equal(kin_timeline_open(&t, N_TOKENS, &err), 0);
    kin_cluster *c = open_cluster(t);
    json_t *report = report_of(kin_cluster_port(c), 1);
    assert_int_equal(json_array_size(json_object_get(report, "devices")), 1);
    const json_t *of_head = json_object_get(report, "head");
    assert_true(is_text(of_head, "state", "gathering") || is_text(of_head, "state", "short")); // "short" after a second
    json_decref(report);

    open_device(&anna, 0, kin_cluster_port(c));
    run_request(c, t);
    assert_int_equal(kin_timeline_n_rows(t), 2);
    for (int row = 0; row < 2; row++) {
        assert_string_equal(kin_timeline_name(t, row), row ? "desk" : "anna");
        assert_true(bars_of(t, row, KIN_PROTO_EVENT_COMPUTE) >= 2 * N_TOKENS); // two rounds
        assert_true(bars_of(t, row, KIN_PROTO_EVENT_WAIT) >= 2 * N_TOKENS - 1);
        assert_true(bars_of(t, row, KIN_PROTO_EVENT_SEND) >= 2 * N_TOKENS - 1);
    }

    kin_head_count_sequences(kin_cluster_head(c), 1, 0); // as a scheduler does
    report = report_when(kin_cluster_port(c), 4 + N_TOKENS);
    const json_t *head = json_object_get(report, "head"), *device = device_in(report, 0), *own = device_in(report, 1);
    assert_true(is_text(head, "name", "desk") && is_text(head, "state", "serving") && is_text(head, "model", "random"));
    assert_true(number(head, "rounds") == 2 && number(head, "prompt_tokens") == 4 && number(head, "tokens") == N_TOKENS);
    assert_true(number(head, "sequences") == 0 && number(head, "sequences_total") == 1);
    assert_true(is_text(device, "name", "anna") && is_text(device, "role", "device") && is_text(device, "state", "waiting"));
    assert_true(is_text(own, "name", "desk") && is_text(own, "role", "head") && is_text(own, "state", "waiting"));
    assert_true(number(device, "layers") + number(own, "layers") == N_LAYER);
    assert_true(number(device, "stage") == 1 && number(own, "stage") == 2);
    assert_true(number(device, "tokens") == 4 + N_TOKENS && number(device, "wait_share") > 0.9);
    assert_true(number(device, "bytes_in") > 0 && number(device, "bytes_out") > 0 && number(own, "weights_bytes") > 0);
    json_decref(report);
    close_device(&anna);
    kin_cluster_close(c);
    kin_timeline_close(t);
}

// ---- peers that are not observers or heads

typedef struct own_report {
    kin_cluster *cluster;
    pthread_mutex_t mutex;
    pthread_cond_t came;
    char *text;
    int n;
} own_report;

// The first report triggers three more questions in the loop's thread: nothing comes between them.
static void on_own_report(void *user, char *text) {
    own_report *r = user;
    pthread_mutex_lock(&r->mutex);
    free(r->text);
    r->text = text;
    r->n++;
    for (int i = 0; i < 3 && r->n == 1; i++) kin_cluster_ask_status(r->cluster, on_own_report, r);
    pthread_cond_signal(&r->came);
    pthread_mutex_unlock(&r->mutex);
}

// Lets a device join at the second call.
typedef struct caller {
    kin_cluster *cluster;
    device device;
    int n;
} caller;

static void on_wait(void *user) {
    caller *w = user;
    if (++w->n == 2) open_device(&w->device, 0, kin_cluster_port(w->cluster));
}

static void a_request_that_waits_for_the_ring_is_called_meanwhile(void **state) {
    (void)state;
    static caller w;
    kin_err err;
    w.cluster = open_cluster(NULL);
    kin_cluster_set_meanwhile(w.cluster, on_wait, &w);
    if (kin_cluster_begin(w.cluster, &err) != 0) fail_msg("%s", err.text);
    assert_true(w.n >= 2);
    kin_cluster_end(w.cluster);
    kin_cluster_close(w.cluster);
    close_device(&w.device);
}

static void this_process_is_told_as_others_are_once_for_each_question(void **state) {
    (void)state;
    own_report r = {.mutex = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};
    kin_err err;
    kin_cluster *c = open_cluster(NULL);
    static device d;
    open_device(&d, 0, kin_cluster_port(c));
    if (kin_cluster_begin(c, &err) != 0) fail_msg("%s", err.text);
    r.cluster = c;
    kin_cluster_ask_status(c, on_own_report, &r);
    pthread_mutex_lock(&r.mutex);
    while (r.n < 2) pthread_cond_wait(&r.came, &r.mutex);
    json_t *own = json_loads(r.text, 0, NULL);
    pthread_mutex_unlock(&r.mutex);
    json_t *other = report_of(kin_cluster_port(c), 2); // later reports
    assert_int_equal(json_array_size(json_object_get(own, "devices")), 2);
    assert_true(is_text(device_in(own, 0), "name", "anna"));
    assert_int_equal(number(device_in(own, 0), "layers"), number(device_in(other, 0), "layers"));
    json_decref(own);
    json_decref(other);
    kin_cluster_end(c);
    kin_cluster_close(c);
    assert_int_equal(r.n, 2); // one report for the three questions
    close_device(&d);
    free(r.text);
}

static void a_peer_without_the_key_sees_nothing(void **state) {
    (void)state;
    kin_cluster *c = open_cluster(NULL);
    kin_err err;
    char *text;
    assert_int_equal(observe_at(kin_cluster_port(c), &other_key, 1, &text, &err), KIN_FAIL);
    assert_null(text);
    assert_non_null(strstr(err.text, "key"));
    json_decref(report_of(kin_cluster_port(c), 1));
    kin_cluster_close(c);
}

typedef struct eye {
    uint16_t port;
    atomic_bool *stop;
    pthread_t thread;
} eye;

// Reconnects if it was refused, and stays.
static void *look(void *arg) {
    eye *e = arg;
    kin_status_client_options o = status_options(e->port, &key, INT32_MAX);
    o.stop = e->stop;
    while (!atomic_load(e->stop)) {
        char *text = NULL;
        kin_err err;
        kin_status_client_run(&o, &text, &err);
        free(text);
    }
    return NULL;
}

// Repeats until the result is as expected.
static bool sees(uint16_t port, bool ok, const char *sentence) {
    kin_time begun = kin_clock_now();
    bool is_so = false;
    while (!is_so && kin_clock_ms(begun, kin_clock_now()) < TIMEOUT_MS) {
        char *text = NULL;
        kin_err err;
        bool got = observe_at(port, &key, 1, &text, &err) == 0;
        is_so = got == ok && (ok || strstr(err.text, sentence));
        free(text);
    }
    return is_so;
}

static void one_observer_too_many_is_told_so(void **state) {
    (void)state;
    kin_cluster *c = open_cluster(NULL);
    static eye eyes[KIN_STATUS_SUBSCRIBERS_MAX];
    atomic_bool stop = false;
    for (int i = 0; i < KIN_STATUS_SUBSCRIBERS_MAX; i++) {
        eyes[i] = (eye){.port = kin_cluster_port(c), .stop = &stop};
        assert_int_equal(pthread_create(&eyes[i].thread, NULL, look, &eyes[i]), 0);
    }
    bool is_refused = sees(kin_cluster_port(c), false, "busy: too many status clients"); // once all others are connected
    atomic_store(&stop, true);
    for (int i = 0; i < KIN_STATUS_SUBSCRIBERS_MAX; i++) pthread_join(eyes[i].thread, NULL);
    assert_true(is_refused);
    assert_true(sees(kin_cluster_port(c), true, NULL)); // there is room again
    kin_cluster_close(c);
}

static atomic_int answer; // frame type with which a peer that is not a head answers

static void ignore_frame(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload) {
    (void)user, (void)link, (void)frame, (void)payload;
}

static void ignore_end(void *user, kin_link *link, const char *reason) {
    (void)user, (void)link, (void)reason;
}

static void on_observe(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open) {
    static const kin_link_callbacks none = {.frame = ignore_frame, .closed = ignore_end};
    static const uint8_t zeros[64];
    kin_endpoint *s = *(kin_endpoint **)user;
    kin_frame_type type = (kin_frame_type)atomic_load(&answer);
    kin_frame_part part = {zeros, type == KIN_FRAME_REPORT ? 4 : 0};
    (void)epoch, (void)open;
    kin_link_accept(link, &none, NULL);
    if (type == KIN_FRAME_BYE) kin_link_close(link, "no time");
    if (type == KIN_FRAME_BYE) return;
    kin_endpoint_send_accept(s, link);
    kin_link_send(link, type, 0, 1, &part);
}

static void nothing(void *arg) {
    (void)arg;
}

static void a_head_that_is_none_is_an_error(void **state) {
    (void)state;
    static const struct {
        kin_frame_type answer;
        const char *sentence;
    } cases[] = {{KIN_FRAME_STATUS_WANTED, "it does not answer like a head"},
                 {KIN_FRAME_REPORT, "REPORT: number of bytes is 0"},
                 {KIN_FRAME_BYE, "no time"},
                 {KIN_FRAME_HASHES_WANTED, "HASHES_WANTED: ends 32 bytes too early"}};
    static const kin_endpoint_callbacks callbacks = {.opened = on_observe};
    kin_endpoint *s;
    kin_err err;
    char *text;
    kin_endpoint_options o = {.id = {{5}}, .name = "villain", .version = "test", .key = key, .listen = "127.0.0.1"};
    assert_int_equal(kin_endpoint_open(&s, &o, &callbacks, &s, &err), 0);
    assert_int_equal(kin_endpoint_start(s, nothing, NULL, &err), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        atomic_store(&answer, (int)cases[i].answer);
        assert_int_equal(observe_at(kin_endpoint_port(s), &key, 1, &text, &err), KIN_FAIL);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("expected: %s\ngot:      %s", cases[i].sentence, err.text);
    }
    kin_endpoint_close(s, NULL, NULL);
}

static void a_device_is_no_head(void **state) {
    (void)state;
    static device anna;
    static const kin_endpoint_callbacks callbacks = {0};
    kin_endpoint *s;
    kin_err err = {""};
    char *text;
    kin_endpoint_options o = {.id = {{6}}, .name = "free", .version = "test", .key = key, .listen = "127.0.0.1"};
    assert_int_equal(kin_endpoint_open(&s, &o, &callbacks, NULL, &err), 0); // to get a free port
    uint16_t port = kin_endpoint_port(s);
    kin_endpoint_close(s, NULL, NULL);
    open_device(&anna, port, 1);
    int rc = KIN_FAIL;
    for (int i = 0; i < 1000 && !strstr(err.text, "no head"); i++) { // until it listens
        rc = observe_at(port, &key, 1, &text, &err);
        if (rc != 0 && !strstr(err.text, "no head")) usleep(50000);
    }
    assert_int_equal(rc, KIN_FAIL);
    assert_non_null(strstr(err.text, "this is a device without a head at present"));
    close_device(&anna);
}

static void stopping_ends_the_looking(void **state) {
    (void)state;
    atomic_bool stop = true;
    kin_err err;
    char *text;
    kin_status_client_options o = {.name = "eye", .version = "test", .key = key, .port = 1, .n_reports = 1, .stop = &stop};
    assert_int_equal(kin_status_client_run(&o, &text, &err), KIN_FAIL);
    assert_null(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_reports_all_members_and_draws_what_they_did),
        cmocka_unit_test(a_head_goes_on_while_its_planner_thinks),
        cmocka_unit_test(a_request_that_waits_for_the_ring_is_called_meanwhile),
        cmocka_unit_test(this_process_is_told_as_others_are_once_for_each_question),
        cmocka_unit_test(a_peer_without_the_key_sees_nothing),
        cmocka_unit_test(one_observer_too_many_is_told_so),
        cmocka_unit_test(a_head_that_is_none_is_an_error),
        cmocka_unit_test(a_device_is_no_head),
        cmocka_unit_test(stopping_ends_the_looking),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
