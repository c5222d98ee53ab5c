// Access control of the HTTP server (keys, hosts, origins), as rules and over sockets.
#include "tests/http_context.h"
#include "tests/place.h"

#include <fcntl.h>
#include <sys/stat.h>

static kin_str str(const char *text) {
    return (kin_str){text, text ? strlen(text) : 0};
}

static kin_access *open_access(const kin_access_options *o) {
    kin_access *a;
    kin_err err = {""};
    if (kin_access_open(&a, o, &err) != 0) fail_msg("%s", err.text);
    return a;
}
#define open_access(...) FROM_TEST(open_access(__VA_ARGS__))

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}
#define write_file(...) FROM_TEST(write_file(__VA_ARGS__))

// ---- rules

static void a_key_is_taken_from_two_headers_and_only_whole(void **state) {
    (void)state;
    static const struct {
        const char *authorization, *x_api_key;
        bool is_right;
    } cases[] = {
        {"Bearer one", NULL, true},    {"bearer two", NULL, true}, {NULL, "one", true},        {NULL, "three", true},
        {"Bearer wrong", "one", true}, {NULL, NULL, false},        {"Bearer on", NULL, false}, {"Bearer one ", NULL, false},
        {"Bearer ONE", NULL, false},   {"one", NULL, false},       {"Basic one", NULL, false}, {"Bearer ", "", false},
        {NULL, "one,two", false},      {NULL, "", false},          {"Bearer", NULL, false}};
    char path[] = "/tmp/kin-keys-XXXXXX";
    close(mkstemp(path));
    write_file(path, "\xef\xbb\xbf\nthree\r\n  four \n# of the living room\nfive five\n");
    kin_access *a = open_access(&(kin_access_options){.host = "0.0.0.0", .api_keys = "one,,two", .api_key_file = path});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (kin_access_has_key(a, str(cases[i].authorization), str(cases[i].x_api_key)) != cases[i].is_right)
            fail_msg("%s, %s", cases[i].authorization, cases[i].x_api_key);
    assert_true(kin_access_has_key(a, str(NULL), str("four")));
    assert_true(kin_access_has_key(a, str(NULL), str("five five")));
    static const char *const parts[] = {"five", "#", "of", "the", "room", "# of the living room"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_false(kin_access_has_key(a, str(NULL), str(parts[i])));
    kin_access_close(a);
    unlink(path);
}

static void without_keys_everybody_may_ask(void **state) {
    (void)state;
    kin_access *a = open_access(&(kin_access_options){.host = "localhost"});
    assert_true(kin_access_has_key(a, str(NULL), str(NULL)));
    assert_true(kin_access_has_key(a, str("Bearer any"), str(NULL)));
    kin_access_close(a);
    assert_true(kin_access_is_public(str("/health")));
    assert_true(kin_access_is_public(str("/v1/health")));
    assert_true(kin_access_is_public(str("/")));
    assert_true(kin_access_is_public(str("/page/main.js")));
    assert_false(kin_access_is_public(str("/page/")));
    assert_false(kin_access_is_public(str("/kin/events")));
    assert_false(kin_access_is_public(str("/v1/models")));
    assert_false(kin_access_is_public(str("/health/")));
    assert_false(kin_access_is_public(str("")));
}

static void keys_that_were_meant_and_are_none_are_said(void **state) {
    (void)state;
    char path[] = "/tmp/kin-keys-XXXXXX";
    kin_access *a;
    kin_err err = {""};
    close(mkstemp(path));
    assert_int_equal(kin_access_open(&a, &(kin_access_options){.host = "", .api_keys = ""}, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "contains no API key"));
    assert_null(a);
    assert_int_equal(kin_access_open(&a, &(kin_access_options){.host = "", .api_key_file = path}, &err), KIN_FAIL);
    assert_ptr_equal(strstr(err.text, path), err.text);
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite("k\0e\0y", 1, 5, f), 5); // UTF-16, as PowerShell writes it
    fclose(f);
    assert_int_equal(kin_access_open(&a, &(kin_access_options){.host = "", .api_key_file = path}, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "UTF-8"));
    chmod(path, 0640);
    assert_int_equal(kin_access_open(&a, &(kin_access_options){.host = "", .api_key_file = path}, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "other users can read or change this key; fix it with: chmod 600"));
    unlink(path);
    assert_int_equal(kin_access_open(&a, &(kin_access_options){.host = "", .api_key_file = path}, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "no such API key file"));
    char many[5000] = "";
    for (int i = 0; i < 1025; i++) strcat(many, "k,");
    assert_int_equal(kin_access_open(&a, &(kin_access_options){.host = "", .api_keys = many}, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "more than 1024"));
}

static void a_server_of_this_machine_alone_looks_at_host(void **state) {
    (void)state;
    static const struct {
        const char *host;
        bool is_right;
    } cases[] = {{"localhost", true},
                 {"LocalHost:8080", true},
                 {"127.0.0.1:1", true},
                 {"127.8.9.1", true},
                 {"[::1]", true},
                 {"[::1]:8080", true},
                 {"desk.local:8080", true},
                 {"KIN.lan", true},
                 {NULL, true},
                 {"evil.example", false},
                 {"localhost.evil.com", false},
                 {"128.0.0.1", false},
                 {"[::2]", false},
                 {"", false},
                 {"127.0.0.1.evil.com", false},
                 {"desk.local.evil.com", false},
                 {"desk", false},
                 {"[", false},
                 {":", false},
                 {"[::1]evil", false},
                 {"[::1", false},
                 {"[::1]:80evil", false},
                 {"localhost:evil", false},
                 {"localhost:80.evil.com", false},
                 {"desk.local,kin.lan", false},
                 {"127.0.0.1@evil", false}};
    static const char *const bound[] = {"localhost", "127.0.0.1", "::1"}, *const elsewhere[] = {"0.0.0.0", "::", "192.168.1.7",
                                                                                                "/run/kin.sock"};
    for (int k = 0; k < 3; k++) {
        kin_access *a = open_access(&(kin_access_options){.host = bound[k], .allow_hosts = "desk.local,kin.lan"});
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            if (kin_access_allows_host(a, str(cases[i].host)) != cases[i].is_right) fail_msg("%s", cases[i].host);
        kin_access_close(a);
    }
    for (int k = 0; k < 4; k++) {
        kin_access *a = open_access(&(kin_access_options){.host = elsewhere[k], .api_keys = "secret"});
        assert_true(kin_access_allows_host(a, str("any.example")));
        kin_access_close(a);
    }
}

static void without_keys_host_is_a_name_of_the_home(void **state) {
    (void)state;
    static const struct {
        const char *host;
        bool is_right;
    } cases[] = {{"192.168.1.7:8080", true},
                 {"[fe80::1]:8080", true},
                 {"desk", true},
                 {"desk:8080", true},
                 {"Desk.Local", true},
                 {"desk.lan:1", true},
                 {"desk.home.arpa", true},
                 {"kin.example", true},
                 {"localhost", true},
                 {NULL, true},
                 {"evil.example", false},
                 {"desk.local.evil.example", false},
                 {"192.168.1.7.evil.example", false},
                 {".local", false},
                 {"", false}};
    static const char *const bound[] = {"0.0.0.0", "::", "192.168.1.7"};
    for (int k = 0; k < 3; k++) {
        kin_access *a = open_access(&(kin_access_options){.host = bound[k], .allow_hosts = "kin.example, port.example:8080"});
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            if (kin_access_allows_host(a, str(cases[i].host)) != cases[i].is_right) fail_msg("%s", cases[i].host);
        kin_access_close(a);
    }
    kin_access *a = open_access(&(kin_access_options){.host = "/run/kin.sock"});
    assert_true(kin_access_allows_host(a, str("any.example")));
    kin_access_close(a);
}

static void origins_are_those_of_this_machine_or_as_said(void **state) {
    (void)state;
    static const struct {
        const char *origin;
        bool by_default;
    } cases[] = {{"http://localhost", true},
                 {"http://localhost:3000", true},
                 {"https://127.0.0.1:1", true},
                 {"http://[::1]:3000", true},
                 {"tauri://localhost", true},
                 {"https://evil.example", false},
                 {"http://localhost.evil.com", false},
                 {"null", false},
                 {"", false},
                 {"http://", false},
                 {"localhost", false},
                 {"http://evil.com:80/http://localhost", false}};
    kin_access *some = open_access(&(kin_access_options){.host = ""});
    kin_access *none = open_access(&(kin_access_options){.host = "", .cors = KIN_CORS_NONE});
    kin_access *all = open_access(&(kin_access_options){.host = "", .cors = KIN_CORS_ALL});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (kin_access_allows_origin(some, str(cases[i].origin)) != cases[i].by_default) fail_msg("%s", cases[i].origin);
        assert_false(kin_access_allows_origin(none, str(cases[i].origin)));
        assert_true(kin_access_allows_origin(all, str(cases[i].origin)));
    }
    assert_false(kin_access_allows_origin(all, str(NULL)));
    kin_access_close(some);
    kin_access_close(none);
    kin_access_close(all);
}

static void listed_origins_are_taken_as_they_are_written(void **state) {
    (void)state;
    static const struct {
        const char *origin;
        bool is_taken;
    } cases[] = {{"https://chat.example", true},
                 {"HTTPS://Chat.Example", true},
                 {"http://desk:3000", true},
                 {"https://chat.example:8443", false},
                 {"http://chat.example", false},
                 {"https://chat.example.org", false},
                 {"https://a.chat.example", false},
                 {"http://desk", false},
                 {"http://localhost:5173", true},
                 {"http://127.0.0.1", true},
                 {"https://localhost.evil.com", false},
                 {"null", false},
                 {"", false}};
    kin_access *a = open_access(&(kin_access_options){
        .host = "", .cors = KIN_CORS_LIST, .cors_origins = "https://chat.example/, http://desk:3000,localhost"});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (kin_access_allows_origin(a, str(cases[i].origin)) != cases[i].is_taken) fail_msg("%s", cases[i].origin);
    }
    kin_access_close(a);
    a = open_access(&(kin_access_options){.host = "", .cors = KIN_CORS_LIST, .cors_origins = "https://chat.example"});
    assert_false(kin_access_allows_origin(a, str("http://localhost"))); // it is not in the list
    assert_false(kin_access_allows_origin(a, str(NULL)));
    kin_access_close(a);
}

// ---- over sockets

// Returns the server's answer to "METHOD PATH" with these header lines.
static char *ask(const kin_access_options *o, const char *line, const char *fields) {
    static char got[4096];
    char request[1024];
    context w;
    open_context(&w);
    kin_access *a = open_access(o);
    w.access = a;
    serve(&w);
    client *c = connect_client(&w);
    snprintf(request, sizeof request, "%s HTTP/1.1\r\n%sConnection: close\r\n\r\n", line, fields);
    send_text(c, request);
    wait_for_end(c);
    snprintf(got, sizeof got, "%s", c->got);
    close_client(c);
    close_context(&w);
    kin_access_close(a);
    return got;
}
#define ask(...) FROM_TEST(ask(__VA_ARGS__))

static const kin_access_options with_key = {.host = "127.0.0.1", .api_keys = "secret"}, without_key = {.host = "127.0.0.1"};

static void without_a_key_only_public_paths_answer(void **state) {
    (void)state;
    char *got = ask(&with_key, "POST /v1/models", "Host: localhost\r\nContent-Length: 5000\r\n"); // answered before the body
    assert_ptr_equal(strstr(got, "HTTP/1.1 401 Unauthorized\r\n"), got);
    assert_non_null(strstr(got, "\"message\":\"Invalid API Key"));
    assert_non_null(strstr(got, "\"type\":\"authentication_error\""));
    assert_non_null(strstr(got, "WWW-Authenticate: Bearer\r\n"));
    assert_non_null(strstr(ask(&with_key, "GET /v1/models", "Host: localhost\r\nAuthorization: Bearer secret\r\n"), "hello"));
    assert_non_null(strstr(ask(&with_key, "GET /v1/models", "Host: localhost\r\nX-Api-Key: secret\r\n"), "hello"));
    assert_non_null(strstr(ask(&with_key, "GET /health", "Host: localhost\r\n"), "hello"));
    assert_non_null(strstr(ask(&with_key, "HEAD /", "Host: localhost\r\n"), "HTTP/1.1 200"));
}

static void names_pointed_at_this_machine_are_refused(void **state) {
    (void)state;
    char *got = ask(&without_key, "GET /v1/models", "Host: evil.example\r\n");
    assert_ptr_equal(strstr(got, "HTTP/1.1 403 Forbidden\r\n"), got);
    assert_non_null(strstr(got, "--allow-hosts NAME"));
    assert_non_null(strstr(got, "permission_error"));
}

static void browsers_are_told_which_pages_may_read(void **state) {
    (void)state;
    char *got = ask(&with_key, "OPTIONS /v1/models",
                    "Host: localhost\r\nOrigin: http://localhost:3000\r\nAccess-Control-Request-Method: POST\r\n"
                    "Access-Control-Request-Headers: authorization, content-type\r\n");
    assert_ptr_equal(strstr(got, "HTTP/1.1 200 OK\r\n"), got);
    assert_non_null(strstr(got, "Access-Control-Allow-Origin: http://localhost:3000\r\n"));
    assert_non_null(strstr(got, "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS\r\n"));
    assert_non_null(strstr(got, "Access-Control-Allow-Headers: authorization, content-type\r\n"));
    assert_non_null(strstr(got, "Content-Length: 0\r\n"));
    got = ask(&with_key, "GET /v1/models", "Host: localhost\r\nOrigin: http://localhost:3000\r\n");
    assert_non_null(strstr(got, "HTTP/1.1 401")); // the page may read this answer
    assert_non_null(strstr(got, "Access-Control-Allow-Origin: http://localhost:3000\r\n"));
    assert_non_null(strstr(got, "Vary: Origin\r\n"));
    assert_non_null(strstr(got, "Access-Control-Expose-Headers: X-Kin-Relaxed\r\n"));
    got = ask(&without_key, "OPTIONS /", "Host: localhost\r\nOrigin: https://evil.example\r\n");
    assert_non_null(strstr(got, "HTTP/1.1 200"));
    assert_null(strstr(got, "Access-Control-Allow-Origin"));
}

static void pages_of_others_cannot_have_answers_computed(void **state) {
    (void)state;
    static const char evil[] = "Host: localhost\r\nOrigin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n";
    static const char proxied[] = "Host: localhost\r\nOrigin: https://kin.example\r\nSec-Fetch-Site: same-origin\r\n";
    static const char keyed[] =
        "Host: localhost\r\nOrigin: https://a.example\r\nSec-Fetch-Site: cross-site\r\nX-Api-Key: secret\r\n";
    kin_access_options all = without_key;
    all.cors = KIN_CORS_ALL;
    assert_non_null(strstr(ask(&without_key, "GET /v1/models", evil), "HTTP/1.1 403"));
    assert_non_null(strstr(ask(&without_key, "GET /v1/models", proxied), "hello"));
    assert_non_null(strstr(ask(&with_key, "GET /v1/models", keyed), "hello"));
    assert_non_null(strstr(ask(&all, "GET /v1/models", evil), "hello"));
}

typedef struct mark {
    const char *line, *fields; // a request, and the header lines that a browser adds
    bool is_answered;
} mark;

static void check_marks(const kin_access_options *o, const mark *marks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char *got = ask(o, marks[i].line, marks[i].fields);
        if ((strstr(got, "HTTP/1.1 200") == got) != marks[i].is_answered)
            fail_msg("%s\n%s%s", marks[i].line, marks[i].fields, got);
        if (!marks[i].is_answered && strstr(got, "HTTP/1.1 403") != got)
            fail_msg("%s\n%s%s", marks[i].line, marks[i].fields, got);
    }
}
#define check_marks(...) FROM_TEST(check_marks(__VA_ARGS__))

#define LAN "Host: 192.168.1.7:8080\r\n"
#define LOCAL "Host: localhost:8080\r\n"
#define EMPTY "Content-Length: 0\r\n"
#define NAVIGATES "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n"

// On addresses that are neither loopback nor https, browsers send no Sec-Fetch-Site.
static void a_foreign_origin_alone_marks_a_page_elsewhere(void **state) {
    (void)state;
    static const mark marks[] = {
        {"POST /slots/0", LAN EMPTY "Origin: http://evil.example\r\n", false},
        {"POST /models/unload", LAN EMPTY "Origin: https://192.168.1.7.evil.example\r\n", false},
        {"POST /v1/completions", LAN EMPTY "Origin: null\r\n", false},
        {"GET /props", LAN "Origin: http://192.168.1.8:8080\r\n", false},
        {"POST /v1/completions", LAN EMPTY "Origin: http://\r\n", false},
        {"POST /v1/completions", LAN EMPTY "Origin: http://192.168.1.7:8080\r\n", true},
        {"POST /v1/completions", LAN EMPTY "Origin: http://192.168.1.7\r\n", true},
        {"POST /v1/completions", "Host: Desk.lan\r\n" EMPTY "Origin: https://desk.lan:8443\r\n", true},
        {"POST /v1/completions", "Host: [fe80::1]:8080\r\n" EMPTY "Origin: http://[fe80::1]:8080\r\n", true},
        {"POST /v1/completions", LAN EMPTY "Origin: http://kin.example\r\n", true},        // --allow-hosts
        {"POST /v1/completions", LAN EMPTY "Origin: http://localhost:3000\r\n", true},     // CORS
        {"POST /v1/completions", LAN EMPTY "Origin: chrome-extension://abcdef\r\n", true}, // no page has it
        {"POST /v1/completions", LAN EMPTY, true},
        {"OPTIONS /v1/completions", LAN "Origin: http://evil.example\r\n", true}}; // without the headers that a browser wants
    kin_access_options home = {.host = "0.0.0.0", .allow_hosts = "kin.example"};
    kin_access_options all = home, keyed = home;
    check_marks(&home, marks, sizeof marks / sizeof *marks);
    all.cors = KIN_CORS_ALL;
    keyed.api_keys = "secret";
    for (int i = 0; i < 3; i++) {
        assert_non_null(strstr(ask(&all, marks[i].line, marks[i].fields), "HTTP/1.1 200"));
        assert_non_null(strstr(ask(&keyed, marks[i].line, marks[i].fields), "HTTP/1.1 401"));
    }
}

static void pages_elsewhere_reach_nothing_by_any_method(void **state) {
    (void)state;
    static const mark marks[] = {
        {"GET /props?model=tiny", LOCAL "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n",
         false},
        {"GET /props?model=tiny", LOCAL "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n",
         false},
        {"HEAD /props?model=tiny", LOCAL "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: empty\r\n",
         false},
        {"POST /v1/completions", LOCAL EMPTY "Sec-Fetch-Site: cross-site\r\nOrigin: null\r\n" NAVIGATES, false},
        {"POST /v1/completions", LOCAL EMPTY "Sec-Fetch-Site: same-site\r\nOrigin: https://evil.example\r\n", false},
        {"GET /", LOCAL "Sec-Fetch-Site: cross-site\r\n" NAVIGATES, true}, // the user followed a link
        {"GET /", LOCAL "Sec-Fetch-Site: none\r\n" NAVIGATES, true},       // the user typed the address
        {"POST /v1/completions", LOCAL EMPTY "Sec-Fetch-Site: same-origin\r\nOrigin: http://localhost:8080\r\n", true},
        {"POST /v1/completions", LOCAL EMPTY "Sec-Fetch-Site: none\r\nOrigin: chrome-extension://abcdef\r\n", true},
        {"POST /v1/completions", LOCAL EMPTY "Sec-Fetch-Site: same-site\r\nOrigin: http://localhost:3000\r\n", true},
        {"GET /v1/models", LOCAL "Sec-Fetch-Site: cross-site\r\nOrigin: http://127.0.0.1:3000\r\n", true}};
    kin_access_options all = without_key;
    check_marks(&without_key, marks, sizeof marks / sizeof *marks);
    all.cors = KIN_CORS_ALL;
    for (int i = 0; i < 4; i++) assert_non_null(strstr(ask(&all, marks[i].line, marks[i].fields), "HTTP/1.1 200"));
}

// A request that may come from a link or an image of another site (or that the browser does not mark) gets an answer from what
// is loaded, and loads no model.
static void what_may_be_of_a_page_elsewhere_loads_no_model(void **state) {
    (void)state;
#define BROWSER "User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n"
    static const mark marks[] = {{"GET /load", LOCAL "Sec-Fetch-Site: cross-site\r\n" NAVIGATES, false},
                                 {"GET /load", LOCAL "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\n", false},
                                 {"GET /load", LOCAL BROWSER, false},
                                 {"HEAD /load", LOCAL BROWSER, false},
                                 {"GET /load", LOCAL BROWSER "Sec-Fetch-Site: same-origin\r\n", true},
                                 {"GET /load", LOCAL BROWSER "Sec-Fetch-Site: none\r\n" NAVIGATES, true},
                                 {"GET /load", LOCAL BROWSER "Origin: http://localhost:3000\r\n", true},
                                 {"POST /load", LOCAL EMPTY BROWSER, true}, // pages cannot POST without Origin
                                 {"GET /load", LOCAL "User-Agent: curl/8.14.1\r\n", true},
                                 {"GET /load", LOCAL, true}};
    kin_access_options all = without_key;
    check_marks(&without_key, marks, sizeof marks / sizeof *marks);
    all.cors = KIN_CORS_ALL;
    for (int i = 0; i < 4; i++) assert_non_null(strstr(ask(&all, marks[i].line, marks[i].fields), "HTTP/1.1 200"));
    assert_non_null(strstr(ask(&with_key, "GET /load", LOCAL BROWSER "X-Api-Key: secret\r\n"), "HTTP/1.1 200"));
#undef BROWSER
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_taken_from_two_headers_and_only_whole),
        cmocka_unit_test(without_keys_everybody_may_ask),
        cmocka_unit_test(keys_that_were_meant_and_are_none_are_said),
        cmocka_unit_test(a_server_of_this_machine_alone_looks_at_host),
        cmocka_unit_test(without_keys_host_is_a_name_of_the_home),
        cmocka_unit_test(origins_are_those_of_this_machine_or_as_said),
        cmocka_unit_test(listed_origins_are_taken_as_they_are_written),
        cmocka_unit_test(without_a_key_only_public_paths_answer),
        cmocka_unit_test(names_pointed_at_this_machine_are_refused),
        cmocka_unit_test(browsers_are_told_which_pages_may_read),
        cmocka_unit_test(pages_of_others_cannot_have_answers_computed),
        cmocka_unit_test(a_foreign_origin_alone_marks_a_page_elsewhere),
        cmocka_unit_test(pages_elsewhere_reach_nothing_by_any_method),
        cmocka_unit_test(what_may_be_of_a_page_elsewhere_loads_no_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
