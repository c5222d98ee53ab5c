// The client of a server: addresses, streams cut anywhere, answers of several kinds of servers, TLS, and cancellation.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/client/chat_client.h"
#include "sys/certificate.h"
#include "sys/tls.h"
#include "tests/place.h"

// ---- events

typedef struct heard {
    char text[1000];
    int n;
} heard;

static int hear(void *user, kin_str data, kin_err *err) {
    heard *h = user;
    size_t len = strlen(h->text);
    (void)err;
    snprintf(h->text + len, sizeof h->text - len, "[%.*s]", (int)data.len, data.at);
    h->n++;
    return 0;
}

static void events_are_the_same_wherever_the_bytes_are_cut(void **state) {
    (void)state;
    static const char bytes[] =
        "\xef\xbb\xbf: hello\r\ndata: one\r\n\r\nevent: x\ndata:two\ndata:  three\n\nid: 7\n\ndata\n\ndata: four\r\rdata: late";
    for (size_t step = 1; step <= sizeof bytes; step++) {
        kin_sse_reader r = {0};
        heard h = {0};
        for (size_t at = 0; at < sizeof bytes - 1; at += step) {
            size_t n = sizeof bytes - 1 - at < step ? sizeof bytes - 1 - at : step;
            assert_int_equal(kin_sse_reader_feed(&r, bytes + at, n, hear, &h, NULL), 0);
        }
        assert_string_equal(h.text, "[one][two\n three][][four]");
        kin_sse_reader_fini(&r);
    }
}

static void a_line_without_an_end_is_refused(void **state) {
    (void)state;
    kin_sse_reader r = {0};
    heard h = {0};
    char *bytes = malloc(1 << 20);
    int rc = 0;
    memset(bytes, 'x', 1 << 20);
    for (int i = 0; i < 5 && rc == 0; i++) rc = kin_sse_reader_feed(&r, bytes, 1 << 20, hear, &h, NULL);
    assert_int_equal(rc, KIN_FAIL);
    free(bytes);
    kin_sse_reader_fini(&r);
}

static int feed(kin_chat_stream *s, const char *text, kin_err *err) {
    return kin_chat_stream_feed(s, text, strlen(text), err);
}

static void a_stream_becomes_text_reasoning_and_figures(void **state) {
    (void)state;
    kin_chat_stream s = {0};
    kin_err err;
    assert_int_equal(feed(&s, "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n", &err), 0);
    assert_int_equal(feed(&s, "data: {\"choices\":[{\"delta\":{}}],\"prompt_progress\":{\"processed\":3,\"total\":9}}\n\n", &err),
                     0);
    assert_int_equal(s.n_done, 3);
    assert_int_equal(s.n_prompt, 9);
    assert_int_equal(feed(&s, "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"so\"}}]}\n\n", &err), 0);
    assert_int_equal(feed(&s, "data: {\"choices\":[{\"delta\":{\"content\":\"\\u00e9\\u0000\"}}]}\n\n", &err), 0);
    assert_false(s.is_whole);
    assert_int_equal(feed(&s,
                          "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}],\"timings\":{\"cache_n\":4,"
                          "\"prompt_n\":5,\"prompt_ms\":1.5,\"predicted_n\":7,\"predicted_ms\":1e99}}\n\n",
                          &err),
                     0);
    assert_true(s.is_whole && s.is_cut);
    assert_memory_equal(s.reasoning.at, "so", 2);
    assert_int_equal(s.text.len, 3);
    assert_int_equal(s.n_prompt, 9);
    assert_int_equal(s.n_cached, 4);
    assert_int_equal(s.n_generated, 7);
    assert_true(s.prompt_ms == 1.5 && s.generated_ms == 0);
    kin_chat_stream_fini(&s);
}

static void what_is_no_answer_is_passed_over_or_refused(void **state) {
    (void)state;
    static const char *const odd[] = {"7",
                                      "[]",
                                      "{\"choices\":7}",
                                      "{\"choices\":[]}",
                                      "{\"choices\":[{\"delta\":[]}]}",
                                      "{\"choices\":[{\"delta\":{\"content\":{}},\"finish_reason\":4}],\"timings\":[]}"};
    kin_chat_stream s = {0};
    kin_err err;
    char line[200];
    for (size_t i = 1; i < sizeof odd / sizeof *odd; i++) {
        snprintf(line, sizeof line, "data: %s\n\n", odd[i]);
        assert_int_equal(feed(&s, line, &err), 0);
    }
    assert_false(s.is_whole);
    assert_int_equal(s.text.len, 0);
    assert_int_equal(feed(&s, "data: 7\n\n", &err), KIN_FAIL);
    kin_chat_stream_fini(&s);
    s = (kin_chat_stream){0};
    assert_int_equal(feed(&s, "data: {\"error\":{\"message\":\"the ring is lost\"}}\n\n", &err), KIN_FAIL);
    assert_string_equal(err.text, "the ring is lost");
    kin_chat_stream_fini(&s);
}

// ---- addresses

static void addresses_are_read_as_people_write_them(void **state) {
    (void)state;
    kin_http_url u;
    assert_int_equal(kin_http_url_parse("desk:8080", &u, NULL), 0);
    assert_string_equal(u.host, "desk");
    assert_true(u.port == 8080 && !u.is_tls && u.path[0] == 0);
    assert_int_equal(kin_http_url_parse("https://desk.local/kin/v1/", &u, NULL), 0);
    assert_true(u.port == 443 && u.is_tls);
    assert_string_equal(u.path, "/kin");
    assert_int_equal(kin_http_url_parse("http://[::1]:80", &u, NULL), 0);
    assert_string_equal(u.host, "::1");
    static const char *const wrong[] = {"",        "http://",     "ftp://desk", "desk:0",        "desk:99999",
                                        "desk:8x", "http://[::1", "a b",        "desk/\r\nX: y", ":8080"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_int_equal(kin_http_url_parse(wrong[i], &u, NULL), KIN_FAIL);
}

// ---- servers, which answer each connection with the next text

typedef struct server {
    int listener;
    uint16_t port;
    const char *const *answers; // NULL-terminated
    kin_tls_ctx *tls;           // NULL: no TLS
    size_t piece;               // bytes per send; 0: all
    pthread_t thread;
    char asked[4000]; // the last request
    atomic_int n_asked;
} server;

static void send_bytes(const server *s, int fd, kin_tls *tls, const char *bytes, size_t n) {
    size_t step = s->piece ? s->piece : n;
    for (size_t at = 0; at < n; at += step) {
        size_t len = n - at < step ? n - at : step;
        if (!tls) {
            if (send(fd, bytes + at, len, MSG_NOSIGNAL) < 0) return;
            continue;
        }
        size_t n_out;
        assert_int_equal(kin_tls_write(tls, bytes + at, len, NULL), 0);
        const uint8_t *out = kin_tls_output(tls, &n_out);
        if (send(fd, out, n_out, MSG_NOSIGNAL) < 0) return;
        kin_tls_output_done(tls);
    }
}

// Reads a request up to the end of its header. Returns false if the client closed the connection.
static bool read_request(server *s, int fd, kin_tls *tls) {
    char bytes[4000];
    size_t n_plain, len = 0;
    while (!memmem(s->asked, len, "\r\n\r\n", 4)) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0) return false;
        if (!tls) {
            memcpy(s->asked + len, bytes, (size_t)n);
            s->asked[len += (size_t)n] = 0;
            continue;
        }
        if (kin_tls_feed(tls, bytes, (size_t)n, NULL) != 0) return false;
        do {
            if (kin_tls_read(tls, s->asked + len, sizeof s->asked - len - 1, &n_plain, NULL) != 0) return false;
            s->asked[len += n_plain] = 0;
        } while (n_plain > 0);
        size_t n_out;
        const uint8_t *out = kin_tls_output(tls, &n_out);
        if (n_out > 0 && send(fd, out, n_out, MSG_NOSIGNAL) < 0) return false;
        kin_tls_output_done(tls);
    }
    return true;
}

static void *serve(void *arg) {
    server *s = arg;
    for (int i = 0; s->answers[i]; i++) {
        int fd = accept(s->listener, NULL, NULL);
        kin_tls *tls = NULL;
        if (s->tls) assert_int_equal(kin_tls_open(&tls, s->tls, false, NULL), 0);
        if (read_request(s, fd, tls)) {
            atomic_fetch_add(&s->n_asked, 1);
            send_bytes(s, fd, tls, s->answers[i], strlen(s->answers[i]));
            if (strcmp(s->answers[i], "") == 0) (void)recv(fd, s->asked, 1, 0); // no answer: wait until the client closes
        }
        kin_tls_close(tls);
        shutdown(fd, SHUT_WR);
        char rest[1000];
        while (recv(fd, rest, sizeof rest, 0) > 0) continue; // otherwise a reset may overtake the answer
        close(fd);
    }
    return NULL;
}

static void start(server *s, const char *const *answers) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    s->answers = answers;
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&at, &n), 0);
    s->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}
#define start(...) FROM_TEST(start(__VA_ARGS__))

static void stop(server *s) {
    pthread_join(s->thread, NULL);
    close(s->listener);
}

static kin_chat_client *client_of(const server *s, kin_chat_client_options o, const char *host) {
    kin_chat_client *c;
    char url[100];
    snprintf(url, sizeof url, "%s://%s:%u", s->tls ? "https" : "http", host, (unsigned)s->port);
    o.http.url = url;
    kin_err err;
    if (kin_chat_client_open(&c, &o, &err) != 0) fail_msg("%s", err.text);
    return c;
}
#define client_of(...) FROM_TEST(client_of(__VA_ARGS__))

static void count(void *user, const kin_chat_stream *s) {
    (void)s;
    ++*(int *)user;
}

static kin_http_client_end ask(kin_chat_client *c, kin_chat_stream *answer, kin_err *err) {
    int n_grown = 0;
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "hi");
    kin_http_client_end end = kin_chat_client_ask(c, messages, answer, count, &n_grown, err);
    json_decref(messages);
    return end;
}

#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
#define HI "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n"
#define CHUNKED(length, text) "Transfer-Encoding: chunked\r\n\r\n" length "\r\n" text "\r\n0\r\n\r\n"
#define DOCUMENT(status, text) "HTTP/1.1 " status "\r\nConnection: close\r\n\r\n" text

static void answers_come_in_chunks_until_the_end_and_in_single_bytes(void **state) {
    (void)state;
    static const char *const answers[] = {HEAD CHUNKED("3e", HI "data: [DONE]\n\n"), HEAD "\r\n" HI "data: [DONE]\n\n",
                                          "HTTP/1.1 100 Continue\r\n\r\n" HEAD CHUNKED("3e", HI "data: [DONE]\n\n"), NULL};
    for (size_t piece = 0; piece < 2; piece++) {
        server s = {.piece = piece};
        start(&s, answers);
        kin_chat_client *c = client_of(&s, (kin_chat_client_options){.http = {.api_key = "secret"}}, "localhost");
        for (int i = 0; answers[i]; i++) {
            kin_chat_stream answer = {0};
            kin_err err = {""};
            if (ask(c, &answer, &err) != KIN_HTTP_CLIENT_DONE) fail_msg("answer %d: %s", i, err.text);
            assert_int_equal(answer.text.len, 2);
            assert_non_null(strstr(s.asked, "POST /v1/chat/completions HTTP/1.1\r\n"));
            assert_non_null(strstr(s.asked, "\r\nAuthorization: Bearer secret\r\n"));
            kin_chat_stream_fini(&answer);
        }
        kin_chat_client_close(c);
        stop(&s);
    }
}

static void what_goes_wrong_is_said_and_the_text_so_far_is_kept(void **state) {
    (void)state;
    static const char *const answers[] = {HEAD "Content-Length: 1000\r\n\r\n" HI,
                                          HEAD "\r\n" HI,
                                          HEAD "\r\n" HI "data: {\"error\":{\"message\":\"no ring\"}}\n\n",
                                          DOCUMENT("400 Bad", "{\"error\":{\"message\":\"too long\"}}"),
                                          DOCUMENT("401 No", "{}"),
                                          DOCUMENT("500 Oh", "<html>"),
                                          "SSH-2.0-OpenSSH\r\n",
                                          NULL};
    static const char *const says[] = {"before its answer was complete",
                                       "before the answer was complete",
                                       "no ring",
                                       "too long",
                                       "--api-key",
                                       "status 500",
                                       "not HTTP"};
    server s = {0};
    start(&s, answers);
    kin_chat_client *c = client_of(&s, (kin_chat_client_options){0}, "127.0.0.1");
    for (int i = 0; answers[i]; i++) {
        kin_chat_stream answer = {0};
        kin_err err = {""};
        assert_int_equal(ask(c, &answer, &err), KIN_HTTP_CLIENT_FAILED);
        if (!strstr(err.text, says[i])) fail_msg("answer %d: %s", i, err.text);
        assert_int_equal(answer.text.len, i < 3 ? 2 : 0);
        kin_chat_stream_fini(&answer);
    }
    stop(&s);
    kin_chat_stream answer = {0};
    kin_err err = {""};
    assert_int_equal(ask(c, &answer, &err), KIN_HTTP_CLIENT_FAILED);
    assert_non_null(strstr(err.text, "Connection refused"));
    kin_chat_client_close(c);
}

static void note_wait(void *user, const char *what, double percent) {
    assert_string_equal(what, "fetching");
    assert_true(percent == 40);
    ++*(int *)user;
}

static void a_server_that_is_loading_is_waited_for(void **state) {
    (void)state;
    static const char loading[] =
        DOCUMENT("503 Later", "{\"error\":{\"message\":\"Loading model\",\"loading\":{\"what\":\"fetching\",\"percent\":40.0}}}");
    static const char *const answers[] = {loading,
                                          DOCUMENT("200 OK", "{\"data\":[{\"id\":\"m1\"}]}"),
                                          DOCUMENT("404 No", "{}"),
                                          loading,
                                          HEAD "\r\n" HI "data: [DONE]\n\n",
                                          NULL};
    server s = {0};
    int n_waits = 0;
    kin_chat_server_facts facts;
    kin_chat_stream answer = {0};
    kin_err err = {""};
    start(&s, answers);
    kin_chat_client *c = client_of(&s, (kin_chat_client_options){.waits = note_wait, .user = &n_waits}, "127.0.0.1");
    assert_int_equal(kin_chat_client_greet(c, &facts, &err), KIN_HTTP_CLIENT_DONE);
    assert_string_equal(facts.model, "m1");
    assert_false(facts.lacks_template);
    assert_int_equal(ask(c, &answer, &err), KIN_HTTP_CLIENT_DONE);
    assert_int_equal(n_waits, 2);
    stop(&s);
    kin_chat_stream_fini(&answer);
    kin_chat_client_close(c);
}

typedef struct stopper {
    server *s;
    int n_stops; // number of times that goes_on returned false
} stopper;

static bool not_yet_asked(void *user) {
    stopper *t = user;
    bool goes_on = atomic_load(&t->s->n_asked) == 0;
    t->n_stops += !goes_on;
    return goes_on;
}

static void a_silent_server_does_not_delay_stopping(void **state) {
    (void)state;
    static const char *const answers[] = {"", NULL};
    server s = {0};
    kin_chat_stream answer = {0};
    kin_err err = {""};
    start(&s, answers);
    stopper t = {.s = &s};
    kin_chat_client *c = client_of(&s, (kin_chat_client_options){.http = {.goes_on = not_yet_asked, .user = &t}}, "127.0.0.1");
    assert_int_equal(ask(c, &answer, &err), KIN_HTTP_CLIENT_STOPPED);
    assert_in_range(t.n_stops, 1, 3); // it must not wait for an answer after the first one: it would poll ten times a second
    stop(&s);
    kin_chat_client_close(c);
}

static void a_server_that_never_says_what_it_is_is_given_up(void **state) {
    (void)state;
    static const char *const answers[] = {"", NULL};
    server s = {0};
    kin_chat_server_facts facts;
    kin_err err = {""};
    start(&s, answers);
    kin_chat_client *c = client_of(&s, (kin_chat_client_options){.http = {.silent_ms = 50}}, "127.0.0.1");
    assert_int_equal(kin_chat_client_greet(c, &facts, &err), KIN_HTTP_CLIENT_FAILED);
    assert_non_null(strstr(err.text, "does not answer"));
    stop(&s);
    kin_chat_client_close(c);
}

static void a_certificate_must_be_trusted_and_of_the_host(void **state) {
    (void)state;
    static const char *const names[] = {"localhost", "127.0.0.1"};
    static const char *const other[] = {"desk.local"};
    static const char *const answers[] = {HEAD "\r\n" HI "data: [DONE]\n\n", HEAD "\r\n" HI "data: [DONE]\n\n", "-", "-", NULL};
    char folder[] = "/tmp/kin-chat-XXXXXX", cert[64], key[64], cert2[64], key2[64];
    server s = {.piece = 7};
    kin_err err = {""};
    assert_non_null(mkdtemp(folder));
    snprintf(cert, sizeof cert, "%s/cert", folder);
    snprintf(key, sizeof key, "%s/key", folder);
    snprintf(cert2, sizeof cert2, "%s/cert2", folder);
    snprintf(key2, sizeof key2, "%s/key2", folder);
    assert_int_equal(kin_certificate_keep(cert, key, names, 2, &err), 0);
    assert_int_equal(kin_certificate_keep(cert2, key2, other, 1, &err), 0);
    assert_int_equal(kin_tls_ctx_open_server(&s.tls, cert, key, &err), 0);
    start(&s, answers);
    static const char *const hosts[] = {"localhost", "127.0.0.1", "localhost", "127.0.0.1"};
    const char *const trusted[] = {cert, cert, NULL, cert2};
    for (int i = 0; i < 4; i++) {
        kin_chat_stream answer = {0};
        kin_chat_client *c = client_of(&s, (kin_chat_client_options){.http = {.ca_file = trusted[i]}}, hosts[i]);
        kin_http_client_end end = ask(c, &answer, &err);
        if (i < 2 && end != KIN_HTTP_CLIENT_DONE) fail_msg("%d: %s", i, err.text);
        if (i >= 2) assert_int_equal(end, KIN_HTTP_CLIENT_FAILED);
        if (i >= 2 && !strstr(err.text, "not trusted")) fail_msg("%d: %s", i, err.text);
        kin_chat_stream_fini(&answer);
        kin_chat_client_close(c);
    }
    stop(&s);
    kin_tls_ctx_close(s.tls);
    // Trusted, but for another host.
    static const char *const one[] = {"-", NULL};
    assert_int_equal(kin_tls_ctx_open_server(&s.tls, cert2, key2, &err), 0);
    start(&s, one);
    kin_chat_stream answer = {0};
    kin_chat_client *c = client_of(&s, (kin_chat_client_options){.http = {.ca_file = cert2}}, "localhost");
    assert_int_equal(ask(c, &answer, &err), KIN_HTTP_CLIENT_FAILED);
    assert_non_null(strstr(err.text, "not trusted"));
    kin_chat_client_close(c);
    stop(&s);
    kin_tls_ctx_close(s.tls);
    unlink(cert), unlink(key), unlink(cert2), unlink(key2);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_the_same_wherever_the_bytes_are_cut),
        cmocka_unit_test(a_line_without_an_end_is_refused),
        cmocka_unit_test(a_stream_becomes_text_reasoning_and_figures),
        cmocka_unit_test(what_is_no_answer_is_passed_over_or_refused),
        cmocka_unit_test(addresses_are_read_as_people_write_them),
        cmocka_unit_test(answers_come_in_chunks_until_the_end_and_in_single_bytes),
        cmocka_unit_test(what_goes_wrong_is_said_and_the_text_so_far_is_kept),
        cmocka_unit_test(a_server_that_is_loading_is_waited_for),
        cmocka_unit_test(a_silent_server_does_not_delay_stopping),
        cmocka_unit_test(a_server_that_never_says_what_it_is_is_given_up),
        cmocka_unit_test(a_certificate_must_be_trusted_and_of_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
