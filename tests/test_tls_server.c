// TLS with a certificate: the certificate that kin makes, clients of several TLS versions, and HTTPS.
#include "tests/http_context.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include "sys/certificate.h"
#include "tests/place.h"

static const char *const names[] = {"desk.local", "localhost", "127.0.0.1", "::1"};
enum { N_NAMES = 4 };

static char folder[] = "/tmp/kin-tls-XXXXXX", cert_file[64], key_file[64];

static int make_files(void **state) {
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(cert_file, sizeof cert_file, "%s/sub/cert.pem", folder);
    snprintf(key_file, sizeof key_file, "%s/sub/key.pem", folder);
    return kin_certificate_keep(cert_file, key_file, names, N_NAMES, NULL);
}

static int remove_files(void **state) {
    (void)state;
    char sub[64];
    snprintf(sub, sizeof sub, "%s/sub", folder);
    unlink(cert_file);
    unlink(key_file);
    return rmdir(sub) == 0 && rmdir(folder) == 0 ? 0 : -1;
}

static void expect_fingerprint(const char *before, bool is_same) {
    char now[KIN_CERTIFICATE_FINGERPRINT];
    assert_int_equal(kin_certificate_fingerprint(cert_file, now, NULL), 0);
    assert_int_equal(strcmp(before, now) == 0, is_same);
}
#define expect_fingerprint(...) FROM_TEST(expect_fingerprint(__VA_ARGS__))

// ---- certificates

static void a_certificate_is_made_once_and_kept(void **state) {
    (void)state;
    char first[KIN_CERTIFICATE_FINGERPRINT];
    struct stat file;
    assert_int_equal(kin_certificate_fingerprint(cert_file, first, NULL), 0);
    assert_int_equal(strlen(first), 95);
    assert_int_equal(kin_certificate_keep(cert_file, key_file, names, N_NAMES, NULL), 0);
    assert_int_equal(kin_certificate_keep(cert_file, key_file, names + 1, 2, NULL), 0);
    expect_fingerprint(first, true);
    assert_int_equal(stat(key_file, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
}

static void another_name_a_lost_key_or_age_make_a_new_one(void **state) {
    (void)state;
    static const char *const more[] = {"desk.local", "192.168.1.7"};
    char before[KIN_CERTIFICATE_FINGERPRINT], other[64];
    kin_certificate_fingerprint(cert_file, before, NULL);
    assert_int_equal(kin_certificate_keep(cert_file, key_file, more, 2, NULL), 0);
    expect_fingerprint(before, false);
    kin_certificate_fingerprint(cert_file, before, NULL);
    unlink(key_file);
    assert_int_equal(kin_certificate_keep(cert_file, key_file, more, 2, NULL), 0);
    expect_fingerprint(before, false);
    // The key of another certificate.
    kin_certificate_fingerprint(cert_file, before, NULL);
    unlink(key_file);
    snprintf(other, sizeof other, "%s/other.pem", folder);
    assert_int_equal(kin_certificate_keep(other, key_file, more, 2, NULL), 0);
    unlink(other);
    assert_int_equal(kin_certificate_keep(cert_file, key_file, more, 2, NULL), 0);
    expect_fingerprint(before, false);
    // The same certificate, signed again with 20 days left.
    FILE *f = fopen(cert_file, "r");
    X509 *cert = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    f = fopen(key_file, "r");
    EVP_PKEY *key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    fclose(f);
    X509_gmtime_adj(X509_getm_notAfter(cert), 20 * 24 * 60 * 60);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    f = fopen(cert_file, "w");
    PEM_write_X509(f, cert);
    fclose(f);
    X509_free(cert);
    EVP_PKEY_free(key);
    kin_certificate_fingerprint(cert_file, before, NULL);
    assert_int_equal(kin_certificate_keep(cert_file, key_file, more, 2, NULL), 0);
    expect_fingerprint(before, false);
    assert_int_equal(kin_certificate_keep(cert_file, key_file, names, N_NAMES, NULL), 0);
}

static void what_cannot_be_a_certificate_is_said(void **state) {
    (void)state;
    static const char *const wrong[] = {"desk.local,DNS:bank.example"}, *const empty[] = {""};
    char text[KIN_CERTIFICATE_FINGERPRINT];
    kin_tls_ctx *ctx;
    kin_err err = {""};
    assert_int_equal(kin_certificate_keep(cert_file, key_file, wrong, 1, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "cannot make a certificate for the name"));
    assert_int_equal(kin_certificate_keep(cert_file, key_file, empty, 1, &err), KIN_FAIL);
    assert_int_equal(kin_certificate_keep("/proc/none/cert.pem", "/proc/none/key.pem", names, 1, &err), KIN_FAIL);
    assert_int_equal(kin_certificate_fingerprint(key_file, text, &err), KIN_FAIL);
    assert_int_equal(kin_tls_ctx_open_server(&ctx, "/nowhere", key_file, &err), KIN_FAIL);
    assert_ptr_equal(strstr(err.text, "/nowhere: cannot read a PEM certificate"), err.text);
    assert_int_equal(kin_tls_ctx_open_server(&ctx, cert_file, cert_file, &err), KIN_FAIL);
    assert_non_null(strstr(err.text, "cannot read the PEM private key of"));
    assert_null(ctx);
}

// ---- clients

typedef struct tls_client {
    client *c;
    SSL *ssl; // reads and writes memory
    BIO *in, *out;
    char text[4096]; // decrypted
    size_t n_text;
} tls_client;

static SSL_CTX *new_client_ctx(int version) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(ctx);
    SSL_CTX_set_min_proto_version(ctx, version);
    SSL_CTX_set_max_proto_version(ctx, version);
    if (version < TLS1_2_VERSION) SSL_CTX_set_cipher_list(ctx, "ALL:@SECLEVEL=0");
    assert_int_equal(SSL_CTX_load_verify_locations(ctx, cert_file, NULL), 1);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    return ctx;
}
#define new_client_ctx(...) FROM_TEST(new_client_ctx(__VA_ARGS__))

static tls_client open_tls_client(context *w, SSL_CTX *ctx, const char *name) {
    tls_client t = {.c = connect_client(w), .ssl = SSL_new(ctx), .in = BIO_new(BIO_s_mem()), .out = BIO_new(BIO_s_mem())};
    SSL_set_bio(t.ssl, t.in, t.out);
    SSL_set1_host(t.ssl, name);
    SSL_set_connect_state(t.ssl);
    return t;
}
#define open_tls_client(...) FROM_TEST(open_tls_client(__VA_ARGS__))

static void close_tls_client(tls_client *t) {
    SSL_free(t->ssl);
    close_client(t->c);
}

// Carries bytes between OpenSSL and the socket, and decrypts.
static void carry(tls_client *t) {
    char *bytes;
    size_t n;
    BIO_write(t->in, t->c->got, (int)t->c->n_got);
    forget(t->c);
    if (SSL_is_init_finished(t->ssl) || SSL_do_handshake(t->ssl) == 1) {
        while (t->n_text < sizeof t->text - 1 &&
               SSL_read_ex(t->ssl, t->text + t->n_text, sizeof t->text - 1 - t->n_text, &n) == 1)
            t->n_text += n;
        t->text[t->n_text] = '\0';
    }
    n = (size_t)BIO_get_mem_data(t->out, &bytes);
    if (n > 0) send_bytes(t->c, bytes, n);
    (void)BIO_reset(t->out);
}
#define carry(...) FROM_TEST(carry(__VA_ARGS__))

static bool has_text(tls_client *t, const char *text) {
    carry(t);
    return strstr(t->text, text) != NULL;
}
#define has_text(...) FROM_TEST(has_text(__VA_ARGS__))

static bool shakes_hands(tls_client *t) {
    run_until(t->c->w, (carry(t), SSL_is_init_finished(t->ssl)) || t->c->has_ended);
    return SSL_is_init_finished(t->ssl);
}
#define shakes_hands(...) FROM_TEST(shakes_hands(__VA_ARGS__))

static void open_tls_context(context *w) {
    open_context(w);
    assert_int_equal(kin_tls_ctx_open_server(&w->o.tls, cert_file, key_file, NULL), 0);
    serve(w);
}
#define open_tls_context(...) FROM_TEST(open_tls_context(__VA_ARGS__))

static void close_tls_context(context *w) {
    close_context(w);
    kin_tls_ctx_close(w->o.tls);
}
#define close_tls_context(...) FROM_TEST(close_tls_context(__VA_ARGS__))

static void clients_that_know_the_certificate_believe_its_names(void **state) {
    (void)state;
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    context w;
    open_tls_context(&w);
    for (int i = 0; i < 2; i++) {
        SSL_CTX *ctx = new_client_ctx(versions[i]);
        tls_client right = open_tls_client(&w, ctx, "desk.local"), wrong = open_tls_client(&w, ctx, "bank.example");
        assert_true(shakes_hands(&right));
        assert_false(shakes_hands(&wrong));
        static const char request[] = "GET /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
        assert_int_equal(SSL_write(right.ssl, request, sizeof request - 1), sizeof request - 1);
        run_until(&w, has_text(&right, "\r\n\r\nbody"));
        close_tls_client(&right);
        close_tls_client(&wrong);
        SSL_CTX_free(ctx);
    }
    close_tls_context(&w);
}

static void old_versions_are_refused(void **state) {
    (void)state;
    context w;
    open_tls_context(&w);
    SSL_CTX *ctx = new_client_ctx(TLS1_1_VERSION);
    tls_client t = open_tls_client(&w, ctx, "desk.local");
    assert_false(shakes_hands(&t));
    close_tls_client(&t);
    SSL_CTX_free(ctx);
    close_tls_context(&w);
}

static void streams_and_their_end_come_over_tls(void **state) {
    (void)state;
    static const char request[] = "GET /stream HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    context w;
    open_tls_context(&w);
    SSL_CTX *ctx = new_client_ctx(TLS1_3_VERSION);
    tls_client t = open_tls_client(&w, ctx, "127.0.0.1");
    assert_true(shakes_hands(&t));
    SSL_write(t.ssl, request, sizeof request - 1);
    run_until(&w, has_text(&t, "chunked"));
    kin_http_exchange *x = pop_exchange(&w);
    kin_http_write(x, "piece", 5);
    run_until(&w, has_text(&t, "5\r\npiece\r\n"));
    kin_http_end(x);
    run_until(&w, t.c->has_ended);
    assert_true(has_text(&t, "\r\n0\r\n\r\n"));
    assert_int_equal(SSL_get_shutdown(t.ssl) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN); // no truncation
    close_tls_client(&t);
    SSL_CTX_free(ctx);
    close_tls_context(&w);
}

static void a_client_that_says_goodbye_or_breaks_off_is_gone(void **state) {
    (void)state;
    static const char request[] = "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n";
    context w;
    open_tls_context(&w);
    SSL_CTX *ctx = new_client_ctx(TLS1_3_VERSION);
    tls_client t[2] = {open_tls_client(&w, ctx, "localhost"), open_tls_client(&w, ctx, "localhost")};
    for (int i = 0; i < 2; i++) {
        assert_true(shakes_hands(&t[i]));
        SSL_write(t[i].ssl, request, sizeof request - 1);
        run_until(&w, has_text(&t[i], "chunked"));
    }
    SSL_shutdown(t[0].ssl);
    carry(&t[0]);
    run_until(&w, w.n_gone == 1);
    send_bytes(t[1].c, "\x17\x03\x03\x00\x20garbagegarbagegarbagegarbagegarbage", 40);
    run_until(&w, w.n_gone == 2);
    close_tls_client(&t[0]);
    close_tls_client(&t[1]);
    SSL_CTX_free(ctx);
    close_tls_context(&w);
}

static void a_client_that_speaks_http_to_the_port_is_told(void **state) {
    (void)state;
    context w;
    open_tls_context(&w);
    client *c = connect_client(&w), *garbage = connect_client(&w);
    get(c, "/");
    send_bytes(garbage, "\x16\x03\x01\x00\x05xxxxx", 10);
    wait_for_end(c);
    wait_for_end(garbage);
    assert_non_null(strstr(c->got, "HTTP/1.1 400 Bad Request"));
    assert_non_null(strstr(c->got, "use https:// in the URL"));
    assert_int_equal(w.n_requests, 0);
    close_client(c);
    close_client(garbage);
    close_tls_context(&w);
}

static void a_handshake_that_does_not_go_on_ends(void **state) {
    (void)state;
    context w;
    open_context(&w);
    assert_int_equal(kin_tls_ctx_open_server(&w.o.tls, cert_file, key_file, NULL), 0);
    w.o.limits.header_ms = 50;
    serve(&w);
    client *c = connect_client(&w);
    send_text(c, "\x16\x03\x01\x02");
    wait_for_end(c);
    close_client(c);
    close_tls_context(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_certificate_is_made_once_and_kept),
        cmocka_unit_test(another_name_a_lost_key_or_age_make_a_new_one),
        cmocka_unit_test(what_cannot_be_a_certificate_is_said),
        cmocka_unit_test(clients_that_know_the_certificate_believe_its_names),
        cmocka_unit_test(old_versions_are_refused),
        cmocka_unit_test(streams_and_their_end_come_over_tls),
        cmocka_unit_test(a_client_that_says_goodbye_or_breaks_off_is_gone),
        cmocka_unit_test(a_client_that_speaks_http_to_the_port_is_told),
        cmocka_unit_test(a_handshake_that_does_not_go_on_ends),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
