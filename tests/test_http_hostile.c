// The HTTP server against clients that send garbage or too much, are slow, disconnect, or are many: their answers and their cost.
#include "tests/http_context.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include "base/rng.h"
#include "tests/place.h"

// ---- what is refused

static void wrong_requests_are_refused_and_the_connection_ends(void **state) {
    (void)state;
    static const struct {
        const char *request;
        int status;
    } cases[] = {
        {"garbage\r\n\r\n", 400},
        {"\x16\x03\x01\x02\x05\x01", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
        {"GET / HTTP/1.1\nHost: a\n\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", 400},
        {"GET relative HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /%4 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /?a=%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\n", 415},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000001\r\n\r\n", 413},
        {"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 405},
        {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
        {"GET / HTTP/7.3\r\nHost: a\r\n\r\n", 400},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
    };
    context w;
    open_context(&w);
    w.o.limits.max_body = 1000000;
    serve(&w);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char first[32];
        client *c = connect_client(&w);
        send_text(c, cases[i].request);
        wait_for_end(c);
        snprintf(first, sizeof first, "HTTP/1.1 %d ", cases[i].status);
        if (strstr(c->got, first) != c->got) fail_msg("%s got %s", cases[i].request, c->got);
        expect_in(c, "Connection: close\r\n");
        expect_in(c, "{\"error\":{\"code\":");
        close_client(c);
    }
    assert_int_equal(w.n_requests, 0);
    run_until(&w, kin_http_n_connections(w.http) == 0);
    assert_int_equal(kin_http_memory_used(w.http), 0);
    close_context(&w);
}

// Sends `begin`, then about n bytes made of `piece`, and expects that status.
static void expect_refusal(context *w, const char *begin, const char *piece, size_t n, const char *status) {
    client *c = connect_client(w);
    size_t len = strlen(piece);
    char *bytes = malloc(n + len);
    for (size_t i = 0; i < n + len; i++) bytes[i] = piece[i % len];
    send_text(c, begin);
    send_bytes(c, bytes, n / len * len);
    free(bytes);
    wait_for_end(c);
    if (strstr(c->got, status) != c->got) fail_msg("%s: %s", status, c->got);
    close_client(c);
}
#define expect_refusal(...) FROM_TEST(expect_refusal(__VA_ARGS__))

static void what_is_too_large_is_refused(void **state) {
    (void)state;
    context w;
    open_context(&w);
    w.o.limits.max_body = 1 << 20;
    serve(&w);
    expect_refusal(&w, "GET /", "a", 9000, "HTTP/1.1 414");
    expect_refusal(&w, "GET / HTTP/1.1\r\nHost: a\r\nX: ", "a", 70000, "HTTP/1.1 431");
    expect_refusal(&w, "GET / HTTP/1.1\r\nHost: a\r\nX: ", " ", 200000, "HTTP/1.1 431");
    expect_refusal(&w, "GET / HTTP/1.1\r\nHost: a\r\n", "a: b\r\n", 200000, "HTTP/1.1 431");
    expect_refusal(&w, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "4\r\nbody\r\n", 4 << 20,
                   "HTTP/1.1 413");
    expect_refusal(&w, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;", "a", 1 << 20, "HTTP/1.1 400");
    expect_refusal(&w, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "a: b\r\n", 1 << 20,
                   "HTTP/1.1 400");
    assert_int_equal(w.n_requests, 0);
    run_until(&w, kin_http_n_connections(w.http) == 0);
    assert_int_equal(kin_http_memory_used(w.http), 0);
    close_context(&w);
}

static void values_of_json_are_bounded_by_the_memory_that_they_take(void **state) {
    (void)state;
    enum { N = 60000, ALL = 1 << 20 };
    context w;
    open_context(&w);
    w.o.limits.max_memory = ALL;
    serve(&w);
    char *body = malloc(N);
    for (int i = 0; i < N; i++) body[i] = "1,"[i % 2];
    for (int chunked = 0; chunked < 2; chunked++) {
        client *c = connect_client(&w);
        send_text(c, chunked ? "POST /later HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nea60\r\n"
                             : "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n");
        send_bytes(c, body, N);
        wait_for_end(c);
        expect_in(c, "HTTP/1.1 413 ");
        expect_in(c, "too many JSON values");
        close_client(c);
    }
    // The first client's third is accepted; while it is processed, the same amount does not fit.
    client *first = connect_client(&w), *second = connect_client(&w);
    const char *head = "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n";
    size_t n;
    kin_http_hold hold;
    send_text(first, head);
    send_bytes(first, body, N / 3);
    run_until(&w, w.n_open == 1);
    kin_http_exchange *x = pop_exchange(&w);
    free(kin_http_detach_body(x, &n, &hold));
    assert_true(hold.bytes > ALL / 2);
    reply_text(x, "done"); // the parsed form still exists
    wait_for(first, "done");
    kin_http_hold rest; // as much as others may have
    forget(first);
    char rest_head[100];
    double of_a_byte = (double)hold.bytes / (N / 3);
    int n_rest = (int)((double)(ALL - ALL / 32 - hold.bytes - 1500) / of_a_byte);
    snprintf(rest_head, sizeof rest_head, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", n_rest);
    send_text(first, rest_head);
    send_bytes(first, body, (size_t)n_rest);
    run_until(&w, w.n_open == 1);
    x = pop_exchange(&w);
    free(kin_http_detach_body(x, &n, &rest));
    reply_text(x, "done");
    wait_for(first, "done");
    assert_true(kin_http_memory_used(w.http) > ALL / 32 * 29);
    client *small = connect_client(&w);
    send_text(small, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 200\r\n\r\n");
    send_bytes(small, body, 200);
    wait_for(small, "HTTP/1.1 200");
    close_client(small);
    kin_http_release(&rest);
    send_text(second, head);
    send_bytes(second, body, N / 3);
    wait_for_end(second);
    expect_in(second, "HTTP/1.1 503 ");
    close_client(second);
    kin_http_release(&hold);
    assert_int_equal(kin_http_memory_used(w.http), 0);
    forget(first);
    send_text(first, head);
    send_bytes(first, body, N / 3);
    run_until(&w, w.n_open == 1);
    reply_text(pop_exchange(&w), "again");
    wait_for(first, "again");
    free(body);
    close_client(first);
    close_context(&w);
}

static void the_memory_of_all_requests_together_is_bounded(void **state) {
    (void)state;
    context w;
    open_context(&w);
    w.o.limits.max_memory = 100000;
    serve(&w);
    char *body = calloc(1, 60000);
    client *first = connect_client(&w), *second = connect_client(&w);
    send_text(first, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n");
    send_bytes(first, body, 60000);
    run_until(&w, w.n_open == 1);
    send_text(second, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n");
    send_bytes(second, body, 60000);
    wait_for_end(second);
    expect_in(second, "HTTP/1.1 503 Service Unavailable\r\n");
    expect_in(second, "Retry-After: 1\r\n");
    reply_text(pop_exchange(&w), "done");
    wait_for(first, "done");
    assert_int_equal(kin_http_memory_used(w.http), 0);
    free(body);
    close_client(first);
    close_client(second);
    close_context(&w);
}

static void random_bytes_do_no_harm(void **state) {
    (void)state;
    static const char *const words[] = {"GET ",
                                        "POST ",
                                        "/",
                                        " HTTP/1.1\r\n",
                                        "Host: a\r\n",
                                        "\r\n",
                                        "Content-Length: 5\r\n",
                                        "hello",
                                        "0\r\n",
                                        "\r\n\r\n",
                                        "Transfer-Encoding: chunked\r\n",
                                        "\x80\xff",
                                        "5\r\n"};
    context w;
    kin_rng rng;
    open_context(&w);
    serve(&w);
    kin_rng_seed(&rng, 1);
    client *other = connect_client(&w);
    for (int i = 0; i < 300; i++) {
        client *c = connect_client(&w);
        for (int k = 0; k < 12; k++) {
            uint64_t r = kin_rng_u64(&rng);
            if (r % 16 == 0)
                send_bytes(c, (const char *)&r, sizeof r);
            else
                send_text(c, words[r / 16 % (sizeof words / sizeof words[0])]);
        }
        forget(other);
        get(other, "/");
        wait_for(other, "hello");
        close_client(c);
    }
    close_client(other);
    run_until(&w, kin_http_n_connections(w.http) == 0);
    assert_int_equal(kin_http_memory_used(w.http), 0);
    close_context(&w);
}

// ---- slow clients, and clients that disconnect

static void slow_requests_and_idle_connections_end(void **state) {
    (void)state;
    static const char *const slow[] = {"GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbo"};
    context w;
    open_context(&w);
    w.o.limits.header_ms = w.o.limits.idle_ms = 500; // `busy` and `once` are handled within this time, even on a busy machine
    serve(&w);
    for (int i = 0; i < 2; i++) {
        client *c = connect_client(&w);
        send_text(c, slow[i]);
        wait_for_end(c);
        expect_in(c, "HTTP/1.1 408 Request Timeout\r\n");
        close_client(c);
    }
    client *silent = connect_client(&w), *once = connect_client(&w), *busy = connect_client(&w);
    get(busy, "/later");
    get(once, "/");
    wait_for_end(silent);
    wait_for_end(once);
    assert_int_equal(silent->n_got, 0);
    assert_int_equal(count(once->got, "HTTP/1.1"), 1);
    assert_false(busy->has_ended); // its owner may answer at any time
    reply_text(pop_exchange(&w), "late");
    wait_for(busy, "late");
    close_client(silent);
    close_client(once);
    close_client(busy);
    close_context(&w);
}

static void a_client_that_goes_is_noticed_while_nothing_is_written(void **state) {
    (void)state;
    context w;
    open_context(&w);
    serve(&w);
    client *waiting = connect_client(&w), *reading = connect_client(&w), *resetting = connect_client(&w);
    get(waiting, "/later");
    get(reading, "/stream");
    wait_for(reading, "chunked");
    get(resetting, "/later");
    run_until(&w, w.n_open == 3);
    close_client(waiting);
    close_client(reading);
    uv_tcp_close_reset(&resetting->tcp, on_client_closed);
    run_until(&w, w.n_gone == 3 && kin_http_n_connections(w.http) == 0);
    assert_int_equal(kin_http_n_exchanges(w.http), 0);
    assert_int_equal(kin_http_memory_used(w.http), 0);
    close_context(&w);
}

static void disconnects_in_mid_stream_leave_nothing_behind(void **state) {
    (void)state;
    enum { ROUNDS = 50, N = 20 };
    char piece[3000];
    context w;
    open_context(&w);
    serve(&w);
    memset(piece, 'x', sizeof piece);
    for (int round = 0; round < ROUNDS; round++) {
        client *clients[N];
        for (int i = 0; i < N; i++) {
            clients[i] = connect_client(&w);
            get(clients[i], "/stream");
        }
        run_until(&w, w.n_open == N);
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < i; k++) kin_http_write(w.open[i], piece, sizeof piece);
        }
        for (int i = 0; i < N; i++) close_client(clients[i]);
        // Some disconnections show when the server writes, the others when it reads.
        for (int i = 0; i < w.n_open; i += 2) kin_http_write(w.open[i], piece, sizeof piece);
        run_until(&w, w.n_open == 0);
    }
    run_until(&w, kin_http_n_connections(w.http) == 0);
    assert_int_equal(w.n_gone, ROUNDS * N);
    assert_int_equal(kin_http_memory_used(w.http), 0);
    close_context(&w);
}

static void a_reader_that_stalls_is_cut_off_and_slows_no_other(void **state) {
    (void)state;
    enum { PIECE = 64 << 10 };
    context w;
    open_context(&w);
    w.o.limits.max_pending = 1 << 20;
    serve(&w);
    client *stalled = connect_client(&w), *other = connect_client(&w);
    char *piece = calloc(1, PIECE);
    get(stalled, "/stream");
    wait_for(stalled, "chunked");
    uv_read_stop(&stalled->stream);
    kin_http_exchange *x = w.open[0];
    int n;
    for (n = 0; w.n_gone == 0; n++) {
        if (w.n_open > 0) kin_http_write(x, piece, PIECE);
        forget(other);
        get(other, "/");
        wait_for(other, "hello");
        assert_true(n < 1000);
    }
    assert_true(n > (1 << 20) / PIECE); // not before the limit
    free(piece);
    close_client(stalled);
    close_client(other);
    close_context(&w);
}

static void a_response_that_is_not_read_ends_after_a_while(void **state) {
    (void)state;
    enum { N = 30 << 20 };
    context w;
    open_context(&w);
    w.o.limits.stall_ms = 50;
    serve(&w);
    client *stalled = connect_client(&w), *streaming = connect_client(&w);
    char *body = calloc(1, N);
    get(stalled, "/later");
    run_until(&w, w.n_open == 1);
    get(streaming, "/stream");
    run_until(&w, w.n_open == 2);
    uv_read_stop(&stalled->stream);
    kin_http_end(pop_exchange(&w));
    kin_http_reply(pop_exchange(&w), 200, NULL, body, N);
    free(body);
    run_until(&w, kin_http_n_connections(w.http) == 1);
    assert_int_equal(w.n_gone, 0); // it had been answered
    get(streaming, "/");
    wait_for(streaming, "hello");
    close_client(stalled);
    close_client(streaming);
    close_context(&w);
}

static void input_behind_an_open_exchange_is_bounded(void **state) {
    (void)state;
    enum { N = 8 << 20 };
    context w;
    open_context(&w);
    serve(&w);
    client *c = connect_client(&w), *other = connect_client(&w);
    char *bytes = malloc(N);
    for (int i = 0; i < N; i++) bytes[i] = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"[i % 51];
    get(c, "/later");
    send_bytes(c, bytes, N / 51 * 51);
    free(bytes);
    for (int i = 0; i < 100; i++) {
        forget(other);
        get(other, "/");
        wait_for(other, "hello");
        assert_true(kin_http_memory_used(w.http) <= 200 << 10);
    }
    reply_text(pop_exchange(&w), "first");
    run_until(&w, w.n_requests == 1 + 100 + N / 51);
    close_client(c);
    close_client(other);
    close_context(&w);
}

// ---- many connections

static size_t resident_bytes(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%*s %ld", &pages) != 1) pages = 0;
    fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static int connect_plainly(context *w) {
    struct sockaddr_in at;
    uv_ip4_addr("127.0.0.1", kin_http_port(w->http), &at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}
#define connect_plainly(...) FROM_TEST(connect_plainly(__VA_ARGS__))

static void idle_connections_cost_little(void **state) {
    (void)state;
    struct rlimit limit;
    context w;
    open_context(&w);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int n = limit.rlim_cur < 21000 ? (int)(limit.rlim_cur - 1000) / 2 : 10000, *fds = malloc((size_t)n * sizeof *fds);
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    serve(&w);
    client *c = connect_client(&w);
    get(c, "/");
    wait_for(c, "hello");
    size_t before = resident_bytes();
    for (int i = 0; i < n; i++) {
        fds[i] = connect_plainly(&w);
        if (i % 2) assert_int_equal(write(fds[i], request, sizeof request - 1), sizeof request - 1); // half have sent a request
        run_until(&w, kin_http_n_connections(w.http) == i + 2);
    }
    run_until(&w, w.n_requests == 1 + n / 2);
    size_t each = (resident_bytes() - before) / (size_t)n;
    print_message("%d idle connections: %zu bytes each\n", n, each);
    assert_true(each < 4096);
    get(c, "/");
    wait_for(c, "hello");
    for (int i = 0; i < n; i++) close(fds[i]);
    free(fds);
    run_until(&w, kin_http_n_connections(w.http) == 1);
    close_client(c);
    close_context(&w);
}

static void one_connection_too_many_ends_the_one_idle_longest(void **state) {
    (void)state;
    context w;
    open_context(&w);
    w.o.limits.max_connections = 3;
    serve(&w);
    client *busy = connect_client(&w);
    get(busy, "/later");
    run_until(&w, w.n_open == 1);
    client *first = connect_client(&w), *second = connect_client(&w), *third = connect_client(&w);
    wait_for_end(first);
    get(second, "/later");
    get(third, "/later");
    run_until(&w, w.n_open == 3);
    client *fourth = connect_client(&w); // none is idle
    wait_for_end(fourth);
    for (int i = 0; i < 3; i++) reply_text(pop_exchange(&w), "answer");
    wait_for(busy, "answer");
    wait_for(second, "answer");
    wait_for(third, "answer");
    client *all[] = {busy, first, second, third, fourth};
    for (int i = 0; i < 5; i++) close_client(all[i]);
    close_context(&w);
}

static void the_longest_idle_connection_is_the_least_recently_used(void **state) {
    (void)state;
    context w;
    open_context(&w);
    w.o.limits.max_connections = 3;
    w.o.limits.header_ms = 500;
    serve(&w);
    client *first = connect_client(&w), *second = connect_client(&w), *slow = connect_client(&w);
    get(first, "/");
    wait_for(first, "hello");
    get(second, "/");
    wait_for(second, "hello");
    send_text(slow, "GET"); // by the time of its 408, the others have been idle for a while
    wait_for(slow, "HTTP/1.1 408");
    get(first, "/");
    run_until(&w, count(first->got, "hello") == 2);
    client *third = connect_client(&w);
    wait_for_end(second);
    assert_false(first->has_ended);
    client *all[] = {first, second, slow, third};
    for (int i = 0; i < 4; i++) close_client(all[i]);
    close_context(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_connections_cost_little), // first, so that it does not reuse memory freed by other tests
        cmocka_unit_test(wrong_requests_are_refused_and_the_connection_ends),
        cmocka_unit_test(what_is_too_large_is_refused),
        cmocka_unit_test(values_of_json_are_bounded_by_the_memory_that_they_take),
        cmocka_unit_test(the_memory_of_all_requests_together_is_bounded),
        cmocka_unit_test(random_bytes_do_no_harm),
        cmocka_unit_test(slow_requests_and_idle_connections_end),
        cmocka_unit_test(a_client_that_goes_is_noticed_while_nothing_is_written),
        cmocka_unit_test(disconnects_in_mid_stream_leave_nothing_behind),
        cmocka_unit_test(a_reader_that_stalls_is_cut_off_and_slows_no_other),
        cmocka_unit_test(a_response_that_is_not_read_ends_after_a_while),
        cmocka_unit_test(input_behind_an_open_exchange_is_bounded),
        cmocka_unit_test(one_connection_too_many_ends_the_one_idle_longest),
        cmocka_unit_test(the_longest_idle_connection_is_the_least_recently_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
