// TLS between two ends in memory: with the same key they connect, with different keys both report it, and no other peer gets in.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "sys/tls.h"
#include "tests/place.h"

static const uint8_t good_key[KIN_TLS_KEY_BYTES] = {1, 2, 3}, other_key[KIN_TLS_KEY_BYTES] = {1, 2, 4};

typedef struct pair {
    kin_tls_ctx *client_ctx, *server_ctx;
    kin_tls *client, *server;
    kin_err client_err, server_err;
    int client_rc, server_rc;
} pair;

static pair open_pair(const uint8_t *client_key, const uint8_t *server_key) {
    pair p = {0};
    assert_int_equal(kin_tls_ctx_open(&p.client_ctx, client_key, NULL), 0);
    assert_int_equal(kin_tls_ctx_open(&p.server_ctx, server_key, NULL), 0);
    assert_int_equal(kin_tls_open(&p.client, p.client_ctx, true, NULL), 0);
    assert_int_equal(kin_tls_open(&p.server, p.server_ctx, false, NULL), 0);
    return p;
}
#define open_pair(...) FROM_TEST(open_pair(__VA_ARGS__))

static void close_pair(pair *p) {
    kin_tls_close(p->client);
    kin_tls_close(p->server);
    kin_tls_ctx_close(p->client_ctx);
    kin_tls_ctx_close(p->server_ctx);
}

// Carries all output of one end to the other, `step` bytes at a time.
static int carry(kin_tls *from, kin_tls *to, size_t step, kin_err *err) {
    size_t n, n_read;
    int rc = 0;
    char byte;
    uint8_t *bytes = kin_tls_pop_output(from, &n);
    for (size_t at = 0; at < n && rc == 0; at += step) {
        bool was_open = kin_tls_state_now(to) == KIN_TLS_OPEN;
        rc = kin_tls_feed(to, bytes + at, step < n - at ? step : n - at, err);
        if (rc == 0 && was_open) rc = kin_tls_read(to, &byte, 1, &n_read, err);
    }
    free(bytes);
    return rc;
}

static void shake_hands(pair *p, size_t step) {
    for (int i = 0; i < 4; i++) {
        if (p->server_rc == 0) p->server_rc = carry(p->client, p->server, step, &p->server_err);
        if (p->client_rc == 0) p->client_rc = carry(p->server, p->client, step, &p->client_err);
    }
}

static pair open_shaken_pair(void) {
    pair p = open_pair(good_key, good_key);
    shake_hands(&p, SIZE_MAX / 2);
    assert_int_equal(kin_tls_state_now(p.client), KIN_TLS_OPEN);
    assert_int_equal(kin_tls_state_now(p.server), KIN_TLS_OPEN);
    return p;
}
#define open_shaken_pair(...) FROM_TEST(open_shaken_pair(__VA_ARGS__))

// Sends n bytes and expects them on the other side.
static void expect_bytes(kin_tls *from, kin_tls *to, size_t n) {
    uint8_t *sent = calloc(1, n + 1), *got = calloc(1, n + 1);
    for (size_t i = 0; i < n; i++) sent[i] = (uint8_t)(i * 31 + i / 300);
    assert_int_equal(kin_tls_write(from, sent, n, NULL), 0);
    size_t n_wire, n_got = 0, k = 1;
    uint8_t *wire = kin_tls_pop_output(from, &n_wire);
    assert_true(n_wire > n && n_wire <= n + (n / 16384 + 1) * 22);
    if (n >= 8) assert_null(memmem(wire, n_wire, sent, 8));
    assert_int_equal(kin_tls_feed(to, wire, n_wire, NULL), 0);
    while (k > 0 && n_got < n) {
        assert_int_equal(kin_tls_read(to, got + n_got, n - n_got, &k, NULL), 0);
        n_got += k;
    }
    assert_int_equal(n_got, n);
    assert_memory_equal(got, sent, n);
    assert_int_equal(kin_tls_read(to, got, 1, &k, NULL), 0);
    assert_int_equal(k, 0);
    free(wire);
    free(sent);
    free(got);
}
#define expect_bytes(...) FROM_TEST(expect_bytes(__VA_ARGS__))

static void with_one_key_both_are_open_and_understand_each_other(void **state) {
    (void)state;
    static const size_t lengths[] = {1, 8, 16384, 16385, 100000, 3000000};
    pair p = open_shaken_pair();
    for (int i = 0; i < 6; i++) {
        expect_bytes(p.client, p.server, lengths[i]);
        expect_bytes(p.server, p.client, lengths[i]);
    }
    assert_int_equal(kin_tls_write(p.client, NULL, 0, NULL), 0);
    close_pair(&p);
}

static void a_handshake_may_come_byte_by_byte(void **state) {
    (void)state;
    pair p = open_pair(good_key, good_key);
    shake_hands(&p, 1);
    assert_int_equal(kin_tls_state_now(p.client), KIN_TLS_OPEN);
    assert_int_equal(kin_tls_state_now(p.server), KIN_TLS_OPEN);
    close_pair(&p);
}

static void a_connection_keeps_its_context_until_it_is_closed(void **state) {
    (void)state;
    pair p = open_pair(good_key, good_key), q = open_pair(other_key, good_key);
    kin_tls_ctx **contexts[] = {&p.client_ctx, &p.server_ctx, &q.client_ctx, &q.server_ctx};
    for (int i = 0; i < 4; i++) {
        kin_tls_ctx_close(*contexts[i]);
        *contexts[i] = NULL;
    }
    shake_hands(&p, SIZE_MAX / 2);
    assert_int_equal(kin_tls_state_now(p.client), KIN_TLS_OPEN);
    assert_int_equal(kin_tls_state_now(p.server), KIN_TLS_OPEN);
    expect_bytes(p.client, p.server, 100000);
    expect_bytes(p.server, p.client, 100000);
    shake_hands(&q, SIZE_MAX / 2); // the keys still differ; wiped keys would be equal
    assert_int_equal(kin_tls_fault_of(q.client), KIN_TLS_FAULT_OTHER_KEY);
    close_pair(&p);
    close_pair(&q);
}

static void with_two_keys_both_say_so(void **state) {
    (void)state;
    pair p = open_pair(other_key, good_key);
    shake_hands(&p, SIZE_MAX / 2);
    assert_int_equal(p.client_rc, KIN_FAIL);
    assert_int_equal(p.server_rc, KIN_FAIL);
    assert_string_equal(p.client_err.text, "the other side has another key");
    assert_string_equal(p.server_err.text, "the other side has another key");
    assert_int_equal(kin_tls_fault_of(p.client), KIN_TLS_FAULT_OTHER_KEY);
    assert_int_equal(kin_tls_fault_of(p.server), KIN_TLS_FAULT_OTHER_KEY);
    assert_int_equal(kin_tls_state_now(p.client), KIN_TLS_FAILED);
    assert_int_equal(kin_tls_state_now(p.server), KIN_TLS_FAILED);
    close_pair(&p);
}

// Returns the fault after a fatal alert instead of a server's answer.
static kin_tls_fault fault_after_alert(uint8_t alert) {
    const uint8_t bytes[] = {0x15, 0x03, 0x03, 0, 2, 2, alert};
    pair p = open_pair(good_key, good_key);
    assert_int_equal(kin_tls_feed(p.client, bytes, sizeof bytes, &p.client_err), KIN_FAIL);
    kin_tls_fault fault = kin_tls_fault_of(p.client);
    close_pair(&p);
    return fault;
}
#define fault_after_alert(...) FROM_TEST(fault_after_alert(__VA_ARGS__))

static void what_may_be_a_kin_in_need_is_no_stranger(void **state) {
    (void)state;
    assert_int_equal(fault_after_alert(80), KIN_TLS_FAULT_NONE);     // internal error: perhaps a kin without memory
    assert_int_equal(fault_after_alert(40), KIN_TLS_FAULT_STRANGER); // handshake failure
    assert_int_equal(fault_after_alert(70), KIN_TLS_FAULT_STRANGER); // protocol version
}

static void the_server_says_nothing_unasked(void **state) {
    (void)state;
    size_t n;
    pair p = open_pair(good_key, good_key);
    kin_tls_output(p.server, &n);
    assert_int_equal(n, 0);
    close_pair(&p);
}

static void nothing_follows_the_handshake_unasked(void **state) {
    (void)state;
    size_t n;
    pair p = open_shaken_pair(); // sends no session ticket
    kin_tls_output(p.server, &n);
    assert_int_equal(n, 0);
    close_pair(&p);
}

static void output_takes_no_more_than_is_said(void **state) {
    (void)state;
    static uint8_t bytes[100 << 10];
    const size_t sizes[] = {1, 16 << 10, (16 << 10) + 1, sizeof bytes};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n;
        pair p = open_shaken_pair();
        assert_int_equal(kin_tls_write(p.client, bytes, sizes[i], NULL), 0);
        kin_tls_output(p.client, &n);
        assert_true(n > sizes[i] && n <= kin_tls_output_bytes(sizes[i]));
        close_pair(&p);
    }
}

static void every_connection_has_secrets_of_its_own(void **state) {
    (void)state;
    size_t n, m;
    pair p = open_shaken_pair(), q = open_shaken_pair();
    kin_tls_write(p.client, "the same words", 14, NULL);
    kin_tls_write(q.client, "the same words", 14, NULL);
    const uint8_t *a = kin_tls_output(p.client, &n), *b = kin_tls_output(q.client, &m);
    assert_int_equal(n, m);
    assert_memory_not_equal(a, b, n);
    close_pair(&p);
    close_pair(&q);
}

static void garbage_instead_of_a_handshake_is_an_error(void **state) {
    (void)state;
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n", "KIN1\1\1\1\1\1\1\1\1\1", "\x16\x03\x01\xff\xffzzz"};
    for (int i = 0; i < 3; i++) {
        pair p = open_pair(good_key, good_key);
        kin_err err;
        assert_int_equal(kin_tls_feed(p.server, garbage[i], strlen(garbage[i]), &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "does not support TLS 1.3 with a pre-shared key"));
        assert_int_equal(kin_tls_feed(p.client, garbage[i], strlen(garbage[i]), &err), KIN_FAIL);
        close_pair(&p);
    }
}

static void every_changed_bit_of_a_record_is_noticed(void **state) {
    (void)state;
    for (size_t i = 5; i < 30; i++) { // after the record's header
        pair p = open_shaken_pair();
        kin_err err;
        size_t n, n_read;
        char buf[64];
        assert_int_equal(kin_tls_write(p.client, "12345678", 8, NULL), 0);
        uint8_t *wire = kin_tls_pop_output(p.client, &n);
        assert_int_equal(n, 30);
        wire[i] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(kin_tls_feed(p.server, wire, n, &err), 0);
        assert_int_equal(kin_tls_read(p.server, buf, sizeof buf, &n_read, &err), KIN_FAIL);
        assert_non_null(strstr(err.text, "damaged"));
        assert_int_equal(n_read, 0);
        free(wire);
        close_pair(&p);
    }
}

static void a_record_that_is_repeated_is_noticed(void **state) {
    (void)state;
    pair p = open_shaken_pair();
    size_t n, n_read;
    char buf[64];
    kin_tls_write(p.client, "1234", 4, NULL);
    uint8_t *wire = kin_tls_pop_output(p.client, &n);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kin_tls_feed(p.server, wire, n, NULL), 0);
        assert_int_equal(kin_tls_read(p.server, buf, sizeof buf, &n_read, NULL), i == 0 ? 0 : KIN_FAIL);
        if (i == 0) assert_int_equal(kin_tls_read(p.server, buf, sizeof buf, &n_read, NULL), 0);
    }
    free(wire);
    close_pair(&p);
}

static void the_end_is_told(void **state) {
    (void)state;
    pair p = open_shaken_pair();
    size_t n_read;
    char buf[8];
    kin_tls_finish(p.client);
    size_t n;
    uint8_t *wire = kin_tls_pop_output(p.client, &n);
    assert_int_equal(kin_tls_feed(p.server, wire, n, NULL), 0);
    assert_int_equal(kin_tls_read(p.server, buf, sizeof buf, &n_read, NULL), 0);
    assert_int_equal(kin_tls_state_now(p.server), KIN_TLS_CLOSED);
    free(wire);
    close_pair(&p);
}

// ---- TLS peers without the key

// Carries the handshake between a stranger and our end. Returns our end's result.
static int meet(SSL *stranger, BIO *in, BIO *out, kin_tls *ours, kin_err *err) {
    char buf[16384];
    for (int i = 0; i < 4; i++) {
        size_t n;
        SSL_do_handshake(stranger);
        int k = BIO_read(out, buf, sizeof buf);
        if (k > 0 && kin_tls_feed(ours, buf, (size_t)k, err) != 0) return KIN_FAIL;
        const uint8_t *bytes = kin_tls_output(ours, &n);
        if (n > 0) BIO_write(in, bytes, (int)n);
        kin_tls_output_done(ours);
    }
    return 0;
}

static void self_sign(SSL_CTX *ctx) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_set_pubkey(cert, key);
    X509_gmtime_adj(X509_getm_notBefore(cert), -1000);
    X509_gmtime_adj(X509_getm_notAfter(cert), 100000);
    X509_sign(cert, key, EVP_sha256());
    assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static void expect_stranger_refused(bool is_server, int version) {
    kin_tls_ctx *ctx;
    kin_tls *ours;
    kin_err err;
    SSL_CTX *stranger_ctx = SSL_CTX_new(TLS_method());
    assert_int_equal(kin_tls_ctx_open(&ctx, good_key, NULL), 0);
    assert_int_equal(kin_tls_open(&ours, ctx, is_server, NULL), 0); // is_server is the stranger's role
    SSL_CTX_set_max_proto_version(stranger_ctx, version);
    if (is_server) self_sign(stranger_ctx);
    SSL *stranger = SSL_new(stranger_ctx);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(stranger, in, out);
    if (is_server)
        SSL_set_accept_state(stranger);
    else
        SSL_set_connect_state(stranger);
    assert_int_equal(meet(stranger, in, out, ours, &err), KIN_FAIL);
    assert_int_equal(kin_tls_state_now(ours), KIN_TLS_FAILED);
    assert_int_not_equal(SSL_is_init_finished(stranger) && !is_server, 1);
    SSL_free(stranger);
    SSL_CTX_free(stranger_ctx);
    kin_tls_close(ours);
    kin_tls_ctx_close(ctx);
}
#define expect_stranger_refused(...) FROM_TEST(expect_stranger_refused(__VA_ARGS__))

static void a_server_with_a_certificate_instead_of_the_key_is_refused(void **state) {
    (void)state;
    expect_stranger_refused(true, TLS1_3_VERSION);
    expect_stranger_refused(true, TLS1_2_VERSION);
}

static void a_client_without_a_key_is_refused(void **state) {
    (void)state;
    expect_stranger_refused(false, TLS1_3_VERSION);
    expect_stranger_refused(false, TLS1_2_VERSION);
}

// A peer that has the right identity and key, and offers the key with this cipher.
static const char *offered_cipher;

static int offer_key(SSL *ssl, const EVP_MD *hash, const unsigned char **id, size_t *id_bytes, SSL_SESSION **session) {
    (void)hash;
    const unsigned char cipher_id[] = {0x13, strcmp(offered_cipher, "TLS_AES_256_GCM_SHA384") == 0 ? 0x02 : 0x03};
    *id = (const unsigned char *)"kin1";
    *id_bytes = 4;
    *session = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(*session, good_key, sizeof good_key);
    SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, cipher_id));
    SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
    return 1;
}

static int meet_with_key(const char *cipher, bool without_exchange) {
    kin_tls_ctx *ctx;
    kin_tls *ours;
    SSL_CTX *stranger_ctx = SSL_CTX_new(TLS_method());
    assert_int_equal(kin_tls_ctx_open(&ctx, good_key, NULL), 0);
    assert_int_equal(kin_tls_open(&ours, ctx, false, NULL), 0);
    offered_cipher = cipher;
    SSL_CTX_set_ciphersuites(stranger_ctx, cipher);
    if (without_exchange) {
        SSL_CTX_set_options(stranger_ctx, SSL_OP_ALLOW_NO_DHE_KEX);
        SSL_CTX_set1_groups_list(stranger_ctx, "P-521"); // no common group, so only psk_ke would be possible
    }
    SSL_CTX_set_psk_use_session_callback(stranger_ctx, offer_key);
    SSL *stranger = SSL_new(stranger_ctx);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(stranger, in, out);
    SSL_set_connect_state(stranger);
    meet(stranger, in, out, ours, NULL);
    int is_open = kin_tls_state_now(ours) == KIN_TLS_OPEN;
    SSL_free(stranger);
    SSL_CTX_free(stranger_ctx);
    kin_tls_close(ours);
    kin_tls_ctx_close(ctx);
    return is_open;
}
#define meet_with_key(...) FROM_TEST(meet_with_key(__VA_ARGS__))

static void chacha_is_used_with_peers_without_aes(void **state) {
    (void)state;
    assert_true(meet_with_key("TLS_CHACHA20_POLY1305_SHA256", false));
}

static void other_hashes_and_no_key_exchange_are_refused_even_with_the_key(void **state) {
    (void)state;
    assert_false(meet_with_key("TLS_AES_256_GCM_SHA384", false));
    assert_false(meet_with_key("TLS_CHACHA20_POLY1305_SHA256", true));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_one_key_both_are_open_and_understand_each_other),
        cmocka_unit_test(a_handshake_may_come_byte_by_byte),
        cmocka_unit_test(a_connection_keeps_its_context_until_it_is_closed),
        cmocka_unit_test(with_two_keys_both_say_so),
        cmocka_unit_test(what_may_be_a_kin_in_need_is_no_stranger),
        cmocka_unit_test(the_server_says_nothing_unasked),
        cmocka_unit_test(nothing_follows_the_handshake_unasked),
        cmocka_unit_test(output_takes_no_more_than_is_said),
        cmocka_unit_test(every_connection_has_secrets_of_its_own),
        cmocka_unit_test(garbage_instead_of_a_handshake_is_an_error),
        cmocka_unit_test(every_changed_bit_of_a_record_is_noticed),
        cmocka_unit_test(a_record_that_is_repeated_is_noticed),
        cmocka_unit_test(the_end_is_told),
        cmocka_unit_test(a_server_with_a_certificate_instead_of_the_key_is_refused),
        cmocka_unit_test(a_client_without_a_key_is_refused),
        cmocka_unit_test(chacha_is_used_with_peers_without_aes),
        cmocka_unit_test(other_hashes_and_no_key_exchange_are_refused_even_with_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
