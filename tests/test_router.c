// The router of a server with several models (serve/router.h): which model is loaded, which one is unloaded for it, and which
// requests wait or are refused. The test replaces the model host by one that answers an order when the test says so; every model
// is the demo.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "pure/text/text_buffer.h"
#include "serve/http/http.h"
#include "serve/http/http_connection.h"
#include "serve/refuse.h"
#include "serve/router.h"
#include "testkit/silent_console.h"
#include "tests/place.h"

enum { A, B, C, N_MODELS, MAX_CLIENTS = 32, HANG_S = 60 };

static kin_loaded_model demo;

// ---- the model host

struct kin_model_host {
    kin_model_host_options o;
    bool has_order, load, has_answer;
    int ordered;
    kin_model_answer answer;
};

const kin_model_host_options *kin_model_host_get_options(const kin_model_host *host) {
    return &host->o;
}

void kin_model_host_order(kin_model_host *host, int model, bool load) {
    assert_false(host->has_order || host->has_answer); // one order at a time
    host->has_order = true;
    host->ordered = model;
    host->load = load;
}

bool kin_model_host_pop(kin_model_host *host, kin_model_answer *answer) {
    bool any = host->has_answer;
    *answer = host->answer;
    host->has_answer = false;
    return any;
}

bool kin_model_host_is_whole(kin_model_host *host, int model) {
    (void)host, (void)model;
    return true;
}

// ---- a router, and clients with one connection each

typedef struct context context;

typedef struct client {
    context *w;
    kin_http_service service;
    kin_http_connection *c;
    kin_http_exchange *x;    // the unanswered request; NULL: none
    kin_served_model *model; // the model that handles the request; NULL: the request has not begun
    kin_text_buffer got;
} client;

struct context {
    uv_loop_t loop;
    kin_lane huge;
    kin_model_file files[N_MODELS + 1]; // room for one added model
    kin_model_host host;
    kin_router router;
    client clients[MAX_CLIENTS];
    int n_clients, n_begun;
    bool needs;
    const kin_api_format *format; // of requests that may stream; NULL: requests do not stream
};

static void send_bytes(void *socket, const void *bytes, size_t n) {
    kin_text_put(&((client *)socket)->got, bytes, n);
}

static size_t count_pending(const void *socket, uint64_t *n_out) {
    *n_out = ((const client *)socket)->got.len;
    return 0;
}

static void set_reading(void *socket, bool on) {
    (void)socket, (void)on;
}

static void end_socket(void *socket) {
    (void)socket;
}

static void on_request(void *user, kin_http_exchange *x) {
    client *c = user;
    c->x = x;
    kin_router_route(&c->w->router, x, c, c->w->format, c->w->needs, c->w->format);
}

static void on_gone(void *user, kin_http_exchange *x) {
    client *c = user;
    const kin_exchange_data *data = kin_http_data(x);
    if (data) data->gone(data->self);
    if (c->model) c->model->n_utilities--;
    c->x = NULL;
}

// `route` is the client.
static void begin(void *user, kin_served_model *model, const void *route, kin_http_exchange *x) {
    client *c = (client *)route;
    assert_ptr_equal(c->x, x);
    assert_null(c->model);
    c->model = model;
    model->n_utilities++; // the model is busy with the request
    ((context *)user)->n_begun++;
}

static void open_context(context *w, int n_max, int max_waiting, bool has_first) {
    static const char *const names[] = {"a", "b", "c"};
    *w = (context){.needs = true};
    assert_int_equal(uv_loop_init(&w->loop), 0);
    for (int i = 0; i < N_MODELS; i++) {
        snprintf(w->files[i].name, sizeof w->files[i].name, "%s", names[i]);
        snprintf(w->files[i].path, sizeof w->files[i].path, "/%.*s", i + 1, "./././"); // each is there
    }
    w->host.o = (kin_model_host_options){.files = w->files, .n = N_MODELS, .n_max = N_MODELS + 1, .has_first = has_first};
    kin_lane_init(&w->huge, &w->loop, MAX_CLIENTS);
    kin_router_options o = {
        .loop = &w->loop, .shared.huge = &w->huge, .n_max = n_max, .max_waiting = max_waiting, .begin = begin, .user = w};
    assert_int_equal(kin_router_open(&w->router, &o, &w->host), 0);
}
#define open_context(...) FROM_TEST(open_context(__VA_ARGS__))

// Ends the server: connections first, then the loop.
static void close_context(context *w) {
    for (int i = 0; i < w->n_clients; i++) {
        kin_http_connection_free(w->clients[i].c);
        kin_text_fini(&w->clients[i].got);
    }
    alarm(HANG_S);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    alarm(0);
    assert_int_equal(w->router.n_waiting, 0);
    kin_router_fini(&w->router);
    assert_int_equal(uv_loop_close(&w->loop), 0);
}
#define close_context(...) FROM_TEST(close_context(__VA_ARGS__))

static client *send_text(context *w, const char *text) {
    static const kin_http_socket_ops ops = {send_bytes, count_pending, set_reading, end_socket, end_socket};
    assert_true(w->n_clients < MAX_CLIENTS);
    client *c = &w->clients[w->n_clients++];
    c->w = w;
    c->service = (kin_http_service){.limits = kin_http_options_default().limits,
                                    .memory = {.max = 1 << 20},
                                    .callbacks = {.request = on_request, .gone = on_gone},
                                    .user = c};
    kin_rng_seed(&c->service.rng, 1);
    assert_int_equal(kin_http_connection_open(&c->c, &c->service, &ops, c, NULL), 0);
    kin_http_connection_feed(c->c, text, strlen(text));
    return c;
}

// Sends a request for the model; NULL: without a model's name.
static client *ask(context *w, const char *name) {
    char text[200];
    snprintf(text, sizeof text, "GET /x%s%s HTTP/1.1\r\nHost: a\r\n\r\n", name ? "?model=" : "", name ? name : "");
    return send_text(w, text);
}
#define ask(...) FROM_TEST(ask(__VA_ARGS__))

static client *post(context *w, const char *body) {
    char text[400];
    snprintf(text, sizeof text, "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    return send_text(w, text);
}
#define post(...) FROM_TEST(post(__VA_ARGS__))

static void disconnect(client *c) {
    kin_http_connection_end(c->c);
}

// Writes the answer of the client's request.
static void finish(client *c) {
    kin_http_exchange *x = c->x;
    assert_non_null(c->model);
    c->x = NULL;
    kin_http_reply(x, 200, NULL, "done", 4);
    c->model->n_utilities--;
    kin_router_plan(&c->w->router);
}
#define finish(...) FROM_TEST(finish(__VA_ARGS__))

static void tick(context *w) {
    kin_router_tick(&w->router, kin_clock_now());
}

static void expect_order(const context *w, int model, bool load) {
    assert_true(w->host.has_order);
    assert_int_equal(w->host.ordered, model);
    assert_int_equal(w->host.load, load);
}
#define expect_order(...) FROM_TEST(expect_order(__VA_ARGS__))

// The host carries out its order.
static void obey(context *w) {
    assert_true(w->host.has_order);
    w->host.has_order = false;
    w->host.answer = (kin_model_answer){.model = w->host.ordered, .loaded = w->host.load ? &demo : NULL};
    w->host.has_answer = true;
    tick(w);
}
#define obey(...) FROM_TEST(obey(__VA_ARGS__))

static void fail_to(context *w, const char *why) {
    assert_true(w->host.has_order && w->host.load);
    w->host.has_order = false;
    w->host.answer = (kin_model_answer){.model = w->host.ordered, .failed = true};
    snprintf(w->host.answer.why.text, sizeof w->host.answer.why.text, "%s", why);
    w->host.has_answer = true;
    tick(w);
}
#define fail_to(...) FROM_TEST(fail_to(__VA_ARGS__))

static void expect_begun(const context *w, const client *c, int model) {
    assert_ptr_equal(c->model, &w->router.models[model]);
}
#define expect_begun(...) FROM_TEST(expect_begun(__VA_ARGS__))

static void expect_waits(const client *c) {
    assert_non_null(c->x);
    assert_null(c->model);
    assert_int_equal(c->got.len, 0);
}
#define expect_waits(...) FROM_TEST(expect_waits(__VA_ARGS__))

static void expect_refused(const client *c, const char *status, const char *words) {
    assert_null(c->model);
    assert_non_null(c->got.at);
    if (!strstr(c->got.at, status) || !strstr(c->got.at, words)) fail_msg("no '%s' and '%s' in: %s", status, words, c->got.at);
}
#define expect_refused(...) FROM_TEST(expect_refused(__VA_ARGS__))

// Loads the model by a request, and answers that at once.
static void use(context *w, const char *name) {
    client *c = ask(w, name);
    while (w->host.has_order) obey(w);
    finish(c);
}
#define use(...) FROM_TEST(use(__VA_ARGS__))

// ---- which model is in memory

static void a_request_waits_until_its_model_is_loaded(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    assert_false(w.host.has_order); // no request yet
    client *first = ask(&w, "b"), *second = ask(&w, "b:latest");
    expect_order(&w, B, true);
    expect_waits(first);
    kin_service_status status;
    struct kin_call_counters counters;
    kin_router_sum(&w.router, &counters, &status);
    assert_int_equal(status.n_waiting, 2);
    obey(&w);
    expect_begun(&w, first, B);
    expect_begun(&w, second, B);
    assert_false(w.host.has_order);
    client *third = ask(&w, "b");
    expect_begun(&w, third, B); // without waiting
    close_context(&w);
}

static void the_least_recently_used_idle_model_makes_room(void **state) {
    (void)state;
    context w;
    open_context(&w, 2, 10, false);
    use(&w, "a");
    use(&w, "b");
    use(&w, "a");
    client *c = ask(&w, "c");
    expect_order(&w, B, false);
    obey(&w);
    expect_order(&w, C, true);
    obey(&w);
    expect_begun(&w, c, C);
    client *b = ask(&w, "b"); // c is busy, a is idle
    expect_order(&w, A, false);
    obey(&w);
    obey(&w);
    expect_begun(&w, b, B);
    close_context(&w);
}

static void an_idle_model_makes_room_before_a_busy_one_that_was_used_earlier(void **state) {
    (void)state;
    context w;
    open_context(&w, 2, 10, false);
    client *a = ask(&w, "a");
    obey(&w);
    use(&w, "b");
    ask(&w, "c");
    expect_order(&w, B, false);
    expect_begun(&w, a, A);
    close_context(&w);
}

static void a_model_that_makes_room_takes_no_further_requests(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    client *a = ask(&w, "a");
    obey(&w);
    client *b = ask(&w, "b"), *later = ask(&w, "a");
    assert_false(w.host.has_order); // a is busy
    expect_waits(b);
    expect_waits(later);
    finish(a);
    expect_order(&w, A, false);
    obey(&w);
    expect_order(&w, B, true);
    obey(&w);
    expect_begun(&w, b, B);
    expect_waits(later);
    finish(b);
    expect_order(&w, B, false); // now b makes room
    obey(&w);
    obey(&w);
    expect_begun(&w, later, A);
    close_context(&w);
}

static void whose_request_waits_longest_is_loaded_first(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    client *a = ask(&w, "a");
    client *c = ask(&w, "c"), *b = ask(&w, "b");
    obey(&w);
    finish(a);
    obey(&w);
    expect_order(&w, C, true);
    obey(&w);
    expect_begun(&w, c, C);
    expect_waits(b);
    close_context(&w);
}

static void the_first_model_of_the_host_comes_without_an_order(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, true);
    client *any = ask(&w, NULL), *b = ask(&w, "b");
    assert_false(w.host.has_order);
    w.host.answer = (kin_model_answer){.model = A, .loaded = &demo};
    w.host.has_answer = true;
    tick(&w);
    expect_begun(&w, any, A);
    expect_waits(b);
    finish(any);
    expect_order(&w, A, false);
    close_context(&w);
}

static void keep_alive_0_takes_a_model_out_when_it_is_idle(void **state) {
    (void)state;
    context w;
    open_context(&w, 2, 10, false);
    client *a = post(&w, "{\"model\":\"a\",\"keep_alive\":0}");
    alarm(HANG_S);
    while (!w.host.has_order) uv_run(&w.loop, UV_RUN_ONCE);
    alarm(0);
    obey(&w);
    expect_begun(&w, a, A);
    kin_str body = kin_http_body(a->x); // the router has given the body back
    assert_int_equal(body.len, strlen("{\"model\":\"a\",\"keep_alive\":0}"));
    assert_false(w.host.has_order);
    finish(a);
    expect_order(&w, A, false);
    close_context(&w);
}

// ---- refused requests

static void a_model_that_is_added_takes_requests_and_none_is_added_twice(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 8, false);
    expect_refused(ask(&w, "d"), "404", "model 'd' not found");
    kin_router_add(&w.router, &(kin_model_file){.name = "a", .path = "/elsewhere/a"}); // the name exists
    kin_model_file another = w.files[1];                                               // the file exists
    snprintf(another.name, sizeof another.name, "another");
    kin_router_add(&w.router, &another);
    assert_int_equal(w.router.n, N_MODELS);
    kin_router_add(&w.router, &(kin_model_file){.name = "d", .path = "/d"});
    assert_int_equal(w.router.n, N_MODELS + 1);
    client *c = ask(&w, "d");
    expect_order(&w, N_MODELS, true);
    obey(&w);
    expect_begun(&w, c, N_MODELS);
    finish(c);
    kin_router_add(&w.router, &(kin_model_file){.name = "e", .path = "/e"}); // no room for another model
    assert_int_equal(w.router.n, N_MODELS + 1);
    close_context(&w);
}

static void a_model_sleeps_when_it_was_idle_long_enough(void **state) {
    (void)state;
    enum { SLEEP_S = 30 };
    context w;
    open_context(&w, 2, 8, false);
    w.router.o.sleep_idle_s = SLEEP_S;
    use(&w, "a");
    client *busy = ask(&w, "b");
    while (w.host.has_order) obey(&w);
    kin_time now = kin_clock_now();
    kin_router_tick(&w.router, now + (kin_time)(SLEEP_S - 1) * 1000000000);
    assert_false(w.host.has_order);
    kin_router_tick(&w.router, now + (kin_time)(SLEEP_S + 1) * 1000000000);
    expect_order(&w, A, false);
    obey(&w);
    assert_int_equal(w.router.models[A].state, KIN_MODEL_UNLOADED);
    kin_router_tick(&w.router, now + (kin_time)(2 * SLEEP_S) * 1000000000);
    assert_false(w.host.has_order); // b is busy
    finish(busy);
    close_context(&w);
}

static void the_only_model_takes_any_name_if_it_is_to(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 8, false);
    w.router.o.accepts_any_name = true;
    expect_refused(ask(&w, "d"), "404", "model 'd' not found"); // there are three models
    w.router.n = 1;
    client *c = ask(&w, "d");
    expect_order(&w, A, true);
    obey(&w);
    expect_begun(&w, c, A);
    finish(c);
    close_context(&w);
}

static void a_name_that_is_not_there_is_404(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    expect_refused(ask(&w, "nope"), " 404 ", "model_not_found");
    expect_refused(ask(&w, "a:other"), " 404 ", "a:other");
    expect_refused(ask(&w, "ab"), " 404 ", "'ab'");
    assert_false(w.host.has_order);
    close_context(&w);
}

static void without_a_name_it_is_the_model_used_last_or_none(void **state) {
    (void)state;
    context w;
    open_context(&w, 2, 10, false);
    expect_refused(ask(&w, NULL), " 400 ", "several models");
    use(&w, "a");
    use(&w, "b");
    expect_begun(&w, ask(&w, NULL), B);
    close_context(&w);
}

static void what_needs_no_model_in_memory_loads_none(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    w.needs = false;
    expect_begun(&w, ask(&w, "c"), C);
    assert_false(w.host.has_order);
    close_context(&w);
}

static void so_many_requests_wait_and_further_ones_are_429(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 2, false);
    client *a = ask(&w, "a"), *b = ask(&w, "b"), *third = ask(&w, "b");
    expect_waits(a);
    expect_waits(b);
    expect_refused(third, " 429 ", "Retry-After");
    obey(&w);
    expect_begun(&w, a, A);
    expect_waits(ask(&w, "c")); // the queue has room again
    expect_refused(ask(&w, "c"), " 429 ", "queue is full");
    expect_waits(b);
    close_context(&w);
}

static void a_model_whose_file_was_removed_is_not_found(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    snprintf(w.files[0].path, sizeof w.files[0].path, "/none/of/that/name");
    client *a = ask(&w, "a");
    fail_to(&w, "No such file");
    expect_refused(a, " 404 ", "there is no model 'a' any more");
    expect_refused(ask(&w, "a"), " 404 ", "its file was removed");
    snprintf(w.files[0].path, sizeof w.files[0].path, "/.");
    expect_waits(ask(&w, "a")); // it is back
    close_context(&w);
}

static void a_model_whose_file_was_removed_is_offered_no_more_once_the_files_were_looked_at(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, true);
    snprintf(w.files[A].path, sizeof w.files[A].path, "/none/of/that/name"); // the command line's model is its owner's
    snprintf(w.files[B].path, sizeof w.files[B].path, "/none/of/that/name");
    kin_router_check_files(&w.router);
    assert_false(w.router.models[A].is_gone);
    assert_false(kin_router_offers(&w.router.models[B]));
    assert_true(kin_router_offers(&w.router.models[C]));
    close_context(&w);
}

static void all_waiting_requests_learn_why_a_model_cannot_be_loaded(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    client *first = ask(&w, "a"), *second = ask(&w, "a"), *b = ask(&w, "b");
    fail_to(&w, "its file is cut");
    expect_refused(first, " 500 ", "cannot load model 'a': its file is cut");
    expect_refused(second, " 500 ", "its file is cut");
    expect_waits(b);
    expect_order(&w, B, true); // requests for other models go on
    obey(&w);
    finish(b);
    ask(&w, "a"); // a new request loads the model again
    obey(&w);
    expect_order(&w, A, true);
    close_context(&w);
}

static void a_request_that_waits_too_long_is_503(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    client *a = ask(&w, "a");
    kin_router_tick(&w.router, kin_clock_now() + (kin_time)590e9);
    expect_waits(a);
    kin_router_tick(&w.router, kin_clock_now() + (kin_time)601e9);
    expect_refused(a, " 503 ", "not loaded yet");
    assert_int_equal(w.router.n_waiting, 0);
    obey(&w); // the model is still loaded
    expect_begun(&w, ask(&w, "a"), A);
    close_context(&w);
}

// ---- streams

static int count(const client *c, const char *words) {
    int n = 0;
    for (const char *at = c->got.at; at && (at = strstr(at, words)); at++) n++;
    return n;
}

static void wait_for_waiters(const context *w, int n) {
    alarm(HANG_S);
    while (w->router.n_waiting < n) uv_run((uv_loop_t *)&w->loop, UV_RUN_ONCE);
    alarm(0);
}

static void a_stream_that_waits_is_kept_alive(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    w.format = &kin_format_messages;
    w.router.o.shared.ping_s = 30;
    client *stream = post(&w, "{\"model\":\"a\",\"stream\":true}"), *plain = post(&w, "{\"model\":\"a\",\"stream\":false}");
    client *own = post(&w, "{\"model\":\"a\",\"stream\":true,\"sse_ping_interval\":90}");
    client *none = post(&w, "{\"model\":\"a\",\"stream\":true,\"sse_ping_interval\":-1}");
    wait_for_waiters(&w, 4);
    kin_time now = kin_clock_now();
    kin_router_tick(&w.router, now + (kin_time)29e9);
    expect_waits(stream);
    for (int i = 0; i < 3; i++) kin_router_tick(&w.router, now + (kin_time)31e9);
    assert_int_equal(count(stream, "text/event-stream"), 1);
    assert_int_equal(count(stream, "\r\n:\n\n\r\n"), 1);
    kin_router_tick(&w.router, now + (kin_time)62e9);
    assert_int_equal(count(stream, "HTTP/1.1 200 "), 1);
    assert_int_equal(count(stream, "\r\n:\n\n\r\n"), 2);
    expect_waits(plain);
    expect_waits(own);
    expect_waits(none);
    obey(&w);
    expect_begun(&w, stream, A);
    expect_begun(&w, plain, A);
    expect_begun(&w, own, A);
    expect_begun(&w, none, A);
    assert_true(kin_http_has_begun(stream->x));
    assert_false(kin_http_has_begun(plain->x));
    close_context(&w);
}

static void what_is_no_stream_of_events_is_sent_nothing(void **state) {
    static const kin_api_format *const formats[] = {NULL, &kin_format_ollama_chat};
    (void)state;
    for (int i = 0; i < 2; i++) {
        context w;
        open_context(&w, 1, 10, false);
        w.format = formats[i];
        w.router.o.shared.ping_s = 30;
        client *c = post(&w, "{\"model\":\"a\",\"stream\":true}");
        wait_for_waiters(&w, 1);
        kin_router_tick(&w.router, kin_clock_now() + (kin_time)100e9);
        expect_waits(c);
        close_context(&w);
    }
}

static void a_stream_that_has_begun_is_refused_by_an_event(void **state) {
    static const struct {
        const kin_api_format *format;
        const char *event;
    } cases[] = {{&kin_format_chat, "data: {\"error\":{\"code\":500,"},
                 {&kin_format_completions, "data: {\"error\":{\"code\":500,"},
                 {&kin_format_native, "data: {\"error\":{\"code\":500,"},
                 {&kin_format_responses, "data: {\"error\":{\"code\":500,"},
                 {&kin_format_messages, "event: error\ndata: {\"type\":\"error\",\"error\":{"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        context w;
        open_context(&w, 1, 10, false);
        w.format = cases[i].format;
        w.router.o.shared.ping_s = 30;
        client *c = post(&w, "{\"model\":\"a\",\"stream\":true}");
        wait_for_waiters(&w, 1);
        kin_router_tick(&w.router, kin_clock_now() + (kin_time)31e9);
        fail_to(&w, "its file is cut");
        expect_refused(c, "HTTP/1.1 200 ", cases[i].event);
        assert_int_equal(count(c, "its file is cut"), 1);
        assert_int_equal(count(c, "\r\n0\r\n\r\n"), 1); // the end of the stream
        close_context(&w);
    }
}

// ---- clients that go away

static void whoever_goes_away_does_not_wait_any_more(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 3, false);
    client *first = ask(&w, "a"), *second = ask(&w, "a"), *third = ask(&w, "a");
    disconnect(second); // in the middle of the queue
    assert_int_equal(w.router.n_waiting, 2);
    disconnect(third); // at its end
    client *fourth = ask(&w, "a");
    disconnect(first);
    obey(&w);
    expect_begun(&w, fourth, A);
    assert_int_equal(w.n_begun, 1);
    close_context(&w);
}

static void a_model_stays_when_no_request_waits_for_its_place(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    client *a = ask(&w, "a");
    obey(&w);
    client *b = ask(&w, "b"), *later = ask(&w, "a");
    expect_waits(later);
    disconnect(b);
    tick(&w);
    expect_begun(&w, later, A);
    expect_begun(&w, ask(&w, "a"), A);
    finish(a);
    assert_false(w.host.has_order);
    close_context(&w);
}

static void a_client_may_go_away_while_its_body_is_read(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    disconnect(post(&w, "{\"model\":\"a\"}"));
    alarm(HANG_S);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    alarm(0);
    assert_int_equal(w.n_begun, 0);
    assert_false(w.host.has_order);
    close_context(&w);
}

static void waiting_requests_are_forgotten_when_the_server_ends(void **state) {
    (void)state;
    context w;
    open_context(&w, 1, 10, false);
    ask(&w, "a");
    ask(&w, "b");
    post(&w, "{\"model\":\"c\"}"); // its body is still in the thread pool
    close_context(&w);
    assert_int_equal(w.n_begun, 0);
}

// ----

static atomic_bool never;

static void wake(void *user) {
    (void)user;
}

static int open_demo(void **state) {
    static kin_console console;
    kin_loaded_model_options o = {.session = kin_session_options_defaults(), .n_ctx = 256};
    kin_err err;
    (void)state;
    console = kin_silent_console(&never);
    o.session.console = &console;
    o.session.n_threads = 1;
    o.session.gpu_layers = "0";
    o.service = (kin_service_options){.n_parallel = 1, .max_waiting = 1, .stop = &never, .wake = wake};
    if (kin_loaded_model_open(&demo, &o, &err) == 0) return 0;
    print_error("%s\n", err.text);
    return -1;
}

static int close_demo(void **state) {
    (void)state;
    kin_loaded_model_close(&demo);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_waits_until_its_model_is_loaded),
        cmocka_unit_test(the_least_recently_used_idle_model_makes_room),
        cmocka_unit_test(an_idle_model_makes_room_before_a_busy_one_that_was_used_earlier),
        cmocka_unit_test(a_model_that_makes_room_takes_no_further_requests),
        cmocka_unit_test(whose_request_waits_longest_is_loaded_first),
        cmocka_unit_test(the_first_model_of_the_host_comes_without_an_order),
        cmocka_unit_test(keep_alive_0_takes_a_model_out_when_it_is_idle),
        cmocka_unit_test(a_model_that_is_added_takes_requests_and_none_is_added_twice),
        cmocka_unit_test(a_model_sleeps_when_it_was_idle_long_enough),
        cmocka_unit_test(the_only_model_takes_any_name_if_it_is_to),
        cmocka_unit_test(a_name_that_is_not_there_is_404),
        cmocka_unit_test(without_a_name_it_is_the_model_used_last_or_none),
        cmocka_unit_test(what_needs_no_model_in_memory_loads_none),
        cmocka_unit_test(so_many_requests_wait_and_further_ones_are_429),
        cmocka_unit_test(a_model_whose_file_was_removed_is_not_found),
        cmocka_unit_test(a_model_whose_file_was_removed_is_offered_no_more_once_the_files_were_looked_at),
        cmocka_unit_test(all_waiting_requests_learn_why_a_model_cannot_be_loaded),
        cmocka_unit_test(a_request_that_waits_too_long_is_503),
        cmocka_unit_test(a_stream_that_waits_is_kept_alive),
        cmocka_unit_test(what_is_no_stream_of_events_is_sent_nothing),
        cmocka_unit_test(a_stream_that_has_begun_is_refused_by_an_event),
        cmocka_unit_test(whoever_goes_away_does_not_wait_any_more),
        cmocka_unit_test(a_model_stays_when_no_request_waits_for_its_place),
        cmocka_unit_test(a_client_may_go_away_while_its_body_is_read),
        cmocka_unit_test(waiting_requests_are_forgotten_when_the_server_ends),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
