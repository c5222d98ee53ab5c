// The HTTP server over loopback sockets: requests, responses, shutdown, and listening addresses.
#include "tests/http_context.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "serve/http/http_request.h"
#include "tests/place.h"

// ---- requests and responses

static void a_response_has_length_type_date_and_id(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    get(c, "/");
    wait_for(c, "\r\n\r\nhello");
    assert_ptr_equal(strstr(c->got, "HTTP/1.1 200 OK\r\n"), c->got);
    expect_in(c, "\r\nContent-Length: 5\r\n");
    expect_in(c, "\r\nContent-Type: text/plain\r\n");
    expect_in(c, "\r\nx-request-id: ");
    expect_in(c, " GMT\r\n");
    assert_null(strstr(c->got, "Connection:"));
    close_client(c);
    close_context(&w);
}

static void a_connection_is_used_again_and_ends_where_the_client_says(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    for (int i = 0; i < 3; i++) {
        forget(c);
        get(c, "/");
        wait_for(c, "hello");
    }
    send_text(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    wait_for_end(c);
    expect_in(c, "\r\nConnection: close\r\n");
    assert_int_equal(w.n_requests, 4);
    close_client(c);
    close_context(&w);
}

static void http_1_0_ends_after_a_response_unless_asked_otherwise(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    send_text(c, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    wait_for(c, "hello");
    expect_in(c, "Connection: keep-alive");
    send_text(c, "GET / HTTP/1.0\r\n\r\n");
    wait_for_end(c);
    assert_int_equal(count(c->got, "hello"), 2);
    close_client(c);
    close_context(&w);
}

static void pipelined_requests_are_answered_one_after_the_other(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    send_text(c, "GET /later HTTP/1.1\r\nHost: a\r\n\r\nGET /later HTTP/1.1\r\nHost: a\r\n\r\n"
                 "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nlast");
    run_until(&w, w.n_open == 1);
    assert_int_equal(w.n_requests, 1);
    reply_text(pop_exchange(&w), "first");
    assert_int_equal(w.n_requests, 2); // the next one is parsed when the response is out
    reply_text(pop_exchange(&w), "second");
    wait_for(c, "last");
    assert_true(strstr(c->got, "first") < strstr(c->got, "second") && strstr(c->got, "second") < strstr(c->got, "last"));
    close_client(c);
    close_context(&w);
}

static void thousands_of_pipelined_requests_are_answered(void **state) {
    (void)state;
    enum { N = 5000 };
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    char *all = malloc(N * (sizeof request - 1));
    for (int i = 0; i < N; i++) memcpy(all + i * (sizeof request - 1), request, sizeof request - 1);
    send_bytes(c, all, N * (sizeof request - 1));
    run_until(&w, w.n_requests == N && kin_http_n_exchanges(w.http) == 0);
    run_until(&w, count(c->got, "hello") == N);
    assert_int_equal(kin_http_memory_used(w.http), 0);
    free(all);
    close_client(c);
    close_context(&w);
}

static void bodies_come_with_a_length_or_in_chunks(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    send_text(c, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                 "4;name=value\r\nWiki\r\n6\r\npedia.\r\n0\r\nTrailer: x\r\n\r\n");
    wait_for(c, "\r\n\r\nWikipedia.");
    forget(c);
    send_text(c, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    wait_for(c, "Content-Length: 0\r\n");
    close_client(c);
    close_context(&w);
}

static void a_client_that_expects_100_gets_it_before_its_body(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    send_text(c, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    wait_for(c, "HTTP/1.1 100 Continue\r\n\r\n");
    send_text(c, "body");
    wait_for(c, "\r\n\r\nbody");
    assert_int_equal(count(c->got, "100 Continue"), 1);
    forget(c);
    w.refuses_heads = true; // before the body
    send_text(c, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    wait_for_end(c);
    expect_in(c, "HTTP/1.1 401 Unauthorized\r\n");
    expect_in(c, "\"type\":\"authentication_error\"");
    assert_null(strstr(c->got, "100 Continue"));
    assert_int_equal(w.n_requests, 1);
    close_client(c);
    close_context(&w);
}

static void head_is_answered_like_get_without_the_body(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    send_text(c, "HEAD /query?q=x HTTP/1.1\r\nHost: a\r\n\r\nHEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    run_until(&w, w.n_open == 1);
    kin_http_exchange *x = pop_exchange(&w);
    kin_http_write(x, "piece", 5);
    kin_http_end(x);
    get(c, "/");
    wait_for(c, "hello");
    expect_in(c, "Content-Length: 7\r\n"); // the length of "[x] GET"
    assert_null(strstr(c->got, "[x]"));
    assert_null(strstr(c->got, "piece"));
    assert_null(strstr(c->got, "\r\n0\r\n"));
    close_client(c);
    close_context(&w);
}

static void paths_and_queries_are_decoded(void **state) {
    (void)state;
    static const struct {
        const char *target, *answer;
    } cases[] = {{"/api/v%31?q=1", "hello"},
                 {"/api/query?q=a%20b+c", "[a b c] GET"},
                 {"/api/%71uery?p=1&q=%C3%A4&q=2", "[\xc3\xa4] GET"},
                 {"/api/query?q", "[] GET"},
                 {"/api/query?qq=1&=2&&q=3#q=4", "[3] GET"},
                 {"http://proxied.example:80/api/query?q=http://x", "[http://x] GET"},
                 {"/api", "hello"}};
    context w;
    open_context(&w);
    w.o.prefix = "/api/";
    serve(&w);
    client *c = connect_client(&w);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        forget(c);
        get(c, cases[i].target);
        wait_for(c, cases[i].answer);
    }
    forget(c);
    get(c, "/apis");
    wait_for_end(c);
    expect_in(c, "HTTP/1.1 404 Not Found\r\n");
    close_client(c);
    close_context(&w);
}

static void streams_are_chunked_and_end(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    get(c, "/stream");
    wait_for(c, "Transfer-Encoding: chunked\r\n");
    kin_http_exchange *x = pop_exchange(&w);
    kin_http_write(x, "data: 1\n\n", 9);
    wait_for(c, "\r\n\r\n9\r\ndata: 1\n\n\r\n");
    kin_http_write(x, "", 0);
    kin_http_write(x, "seventeen bytes..", 17);
    kin_http_end(x);
    wait_for(c, "\r\n11\r\nseventeen bytes..\r\n0\r\n\r\n");
    get(c, "/");
    wait_for(c, "hello");
    close_client(c);
    close_context(&w);
}

static void streams_of_http_1_0_end_with_the_connection(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    send_text(c, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    run_until(&w, w.n_open == 1);
    kin_http_exchange *x = pop_exchange(&w);
    kin_http_write(x, "piece", 5);
    kin_http_end(x);
    wait_for_end(c);
    expect_in(c, "Connection: close\r\n");
    expect_in(c, "\r\n\r\npiece");
    assert_null(strstr(c->got, "chunked"));
    close_client(c);
    close_context(&w);
}

static void added_headers_cannot_add_others(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    get(c, "/later");
    run_until(&w, w.n_open == 1);
    kin_http_exchange *x = pop_exchange(&w);
    kin_http_add_header(x, "X-One", "1\r\nX-Two: 2");
    kin_http_reply(x, 204, NULL, NULL, 0);
    wait_for(c, "\r\n\r\n");
    expect_in(c, "HTTP/1.1 204 No Content\r\n");
    expect_in(c, "X-One: 1  X-Two: 2\r\n");
    assert_null(strstr(c->got, "Content-Length"));
    close_client(c);
    close_context(&w);
}

static void offers_of_other_protocols_are_not_taken(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    send_text(c, "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                 "HTTP2-Settings: AAMAAABk\r\nContent-Length: 4\r\n\r\nbody");
    wait_for(c, "\r\n\r\nbody");
    expect_in(c, "HTTP/1.1 200 OK");
    send_text(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    wait_for(c, "hello");
    forget(c);
    get(c, "/");
    wait_for(c, "hello");
    close_client(c);
    close_context(&w);
}

static void a_large_response_arrives_whole(void **state) {
    (void)state;
    enum { N = 20 << 20 };
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    get(c, "/later");
    run_until(&w, w.n_open == 1);
    char *body = malloc(N);
    memset(body, 'x', N);
    body[N - 1] = '!';
    kin_http_reply(pop_exchange(&w), 200, NULL, body, N);
    free(body);
    assert_int_equal(kin_http_n_exchanges(w.http), 1);
    run_until(&w, c->n_got > N && c->got[c->n_got - 1] == '!');
    run_until(&w, kin_http_n_exchanges(w.http) == 0);
    close_client(c);
    close_context(&w);
}

static void a_body_can_be_taken_along(void **state) {
    (void)state;
    context w;
    size_t n;
    kin_http_hold hold, given;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w);
    send_text(c, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    run_until(&w, w.n_open == 1);
    kin_http_exchange *x = pop_exchange(&w);
    char *body = kin_http_detach_body(x, &n, &given);
    kin_http_give_body(x, body, n, &given);
    kin_http_release(&given); // does nothing
    assert_int_equal(kin_http_body(x).len, 4);
    body = kin_http_detach_body(x, &n, &hold);
    assert_int_equal(n, 4);
    assert_null(kin_http_body(x).at);
    assert_true(kin_http_memory_used(w.http) >= 4);
    reply_text(x, "taken");
    assert_string_equal(body, "body");
    free(body);
    wait_for(c, "taken");
    assert_int_equal(kin_http_memory_used(w.http), 4); // until everything made of it is freed
    kin_http_release(&hold);
    assert_int_equal(kin_http_memory_used(w.http), 0);
    close_client(c);
    close_context(&w);
}

// ---- the end of the server

static void draining_ends_idle_connections_and_lets_exchanges_end(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *idle = connect_client(&w), *later = connect_client(&w), *stream = connect_client(&w), *sending = connect_client(&w);
    get(later, "/later");
    get(stream, "/stream");
    get(idle, "/");
    wait_for(idle, "hello");
    wait_for(stream, "chunked");
    send_text(sending, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo");
    run_until(&w, w.n_open == 2 && kin_http_memory_used(w.http) > 60);
    kin_http_drain(w.http);
    wait_for_end(idle);
    assert_int_equal(kin_http_n_exchanges(w.http), 2);
    for (int i = 0; i < 2; i++) {
        kin_http_exchange *x = pop_exchange(&w);
        if (is(kin_http_path(x), "/stream"))
            kin_http_end(x);
        else
            reply_text(x, "answer");
    }
    send_text(sending, "dy");
    wait_for_end(later);
    wait_for_end(stream);
    wait_for_end(sending);
    expect_in(later, "Connection: close\r\n");
    expect_in(later, "answer");
    expect_in(stream, "\r\n0\r\n\r\n");
    expect_in(sending, "body");
    assert_int_equal(kin_http_n_exchanges(w.http), 0);
    client *all[] = {idle, later, stream, sending};
    for (int i = 0; i < 4; i++) close_client(all[i]);
    close_context(&w);
}

static void closing_says_gone_for_open_exchanges(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w), *d = connect_client(&w);
    get(c, "/later");
    get(d, "/stream");
    run_until(&w, w.n_open == 2);
    kin_http_close(w.http);
    assert_int_equal(w.n_gone, 2);
    w.http = NULL;
    wait_for_end(c);
    wait_for_end(d);
    close_client(c);
    close_client(d);
    close_context(&w);
}

// ---- addresses

static void localhost_is_ipv4_and_ipv6(void **state) {
    (void)state;
    context w;
    open_context(&w);
    w.o.host = "localhost";
    serve(&w);
    struct sockaddr_in6 at;
    uv_ip6_addr("::1", kin_http_port(w.http), &at);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof at) != 0) print_message("no IPv6 here\n");
    client *c = connect_client(&w);
    get(c, "/");
    wait_for(c, "hello");
    if (fd >= 0) close(fd);
    close_client(c);
    close_context(&w);
}

static void expect_no_server(context *w, const char *host, uint16_t port, const char *sentence) {
    kin_err err = {""};
    kin_http_options o = w->o;
    o.host = host;
    o.port = port;
    kin_http *http;
    assert_int_equal(kin_http_open(&http, &w->loop, &o, &owner, w, &err), KIN_FAIL);
    if (!strstr(err.text, sentence)) fail_msg("%s", err.text);
    assert_null(http);
}
#define expect_no_server(...) FROM_TEST(expect_no_server(__VA_ARGS__))

static void addresses_that_cannot_be_had_are_said(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    expect_no_server(&w, "127.0.0.1", kin_http_port(w.http), "address already in use");
    expect_no_server(&w, "localhost", kin_http_port(w.http), "address already in use");
    expect_no_server(&w, "my.server", 0, "must be a numeric address");
    expect_no_server(&w, "8.8.8.8", 0, "cannot listen on 8.8.8.8");
    w.o.prefix = "kin";
    expect_no_server(&w, "127.0.0.1", 0, "begin with a slash");
    close_context(&w);
}

static void a_unix_socket_serves_and_is_removed(void **state) {
    (void)state;
    char folder[] = "/tmp/kin-http-XXXXXX", path[64], file[64], longest[200] = "/tmp/";
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/kin.sock", folder);
    snprintf(file, sizeof file, "%s/file.sock", folder);
    memset(longest + 5, 'x', 150);
    strcat(longest, ".sock");
    close(open(file, O_CREAT | O_WRONLY, 0600));
    // A socket file left behind by a process.
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(stale, (const struct sockaddr *)&at, sizeof at), 0);
    close(stale);
    context w;
    open_context(&w);
    w.o.host = path;
    serve(&w);
    assert_int_equal(kin_http_port(w.http), 0);
    client *c = connect_client(&w);
    get(c, "/");
    wait_for(c, "hello");
    expect_no_server(&w, path, 0, "another process listens");
    expect_no_server(&w, file, 0, "is not a socket");
    expect_no_server(&w, longest, 0, "has at most");
    assert_int_equal(access(file, F_OK), 0);
    assert_int_equal(access(path, F_OK), 0);
    close_client(c);
    close_context(&w);
    assert_int_not_equal(access(path, F_OK), 0);
    unlink(file);
    rmdir(folder);
}

// ---- the parser alone

static void a_request_may_be_cut_anywhere(void **state) {
    (void)state;
    static const char text[] = "POST /a%20b?q=1 HTTP/1.1\r\nHost: localhost\r\nX-Empty:\r\nX-Value:  two words \t\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\n5\r\npedia\r\n0\r\n\r\nGET";
    kin_http_limits limits = kin_http_options_default().limits;
    kin_http_memory memory = {.max = 1 << 20};
    for (size_t cut = 1; cut < sizeof text - 4; cut++) {
        kin_http_request *r = kin_http_request_new(NULL, &limits, &memory);
        kin_http_progress progress = KIN_HTTP_MORE;
        size_t at = 0, n_taken;
        while (progress != KIN_HTTP_WHOLE) {
            size_t end = at < cut ? cut : sizeof text - 1;
            progress = kin_http_request_feed(r, text + at, end - at, &n_taken);
            assert_int_not_equal(progress, KIN_HTTP_REFUSED);
            at += n_taken;
        }
        assert_int_equal(at, sizeof text - 1 - 3);
        assert_true(is(kin_http_request_path(r), "/a b"));
        assert_true(is(kin_http_request_query(r, "q"), "1"));
        assert_true(is(kin_http_request_header(r, "x-value"), "two words"));
        assert_true(is(kin_http_request_header(r, "X-EMPTY"), ""));
        assert_null(kin_http_request_header(r, "x-other").at);
        assert_true(is(kin_http_request_body(r), "Wikipedia"));
        kin_http_request_free(r);
        assert_int_equal(memory.used, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_response_has_length_type_date_and_id),
        cmocka_unit_test(a_connection_is_used_again_and_ends_where_the_client_says),
        cmocka_unit_test(http_1_0_ends_after_a_response_unless_asked_otherwise),
        cmocka_unit_test(pipelined_requests_are_answered_one_after_the_other),
        cmocka_unit_test(thousands_of_pipelined_requests_are_answered),
        cmocka_unit_test(bodies_come_with_a_length_or_in_chunks),
        cmocka_unit_test(a_client_that_expects_100_gets_it_before_its_body),
        cmocka_unit_test(head_is_answered_like_get_without_the_body),
        cmocka_unit_test(paths_and_queries_are_decoded),
        cmocka_unit_test(streams_are_chunked_and_end),
        cmocka_unit_test(streams_of_http_1_0_end_with_the_connection),
        cmocka_unit_test(added_headers_cannot_add_others),
        cmocka_unit_test(offers_of_other_protocols_are_not_taken),
        cmocka_unit_test(a_large_response_arrives_whole),
        cmocka_unit_test(a_body_can_be_taken_along),
        cmocka_unit_test(draining_ends_idle_connections_and_lets_exchanges_end),
        cmocka_unit_test(closing_says_gone_for_open_exchanges),
        cmocka_unit_test(localhost_is_ipv4_and_ipv6),
        cmocka_unit_test(addresses_that_cannot_be_had_are_said),
        cmocka_unit_test(a_unix_socket_serves_and_is_removed),
        cmocka_unit_test(a_request_may_be_cut_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
