#include "sys/tls.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#elif defined(__linux__) && defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

enum {
    OUTPUT_FIRST = 32 << 10,  // bytes: a frame of 4096 floats and a little more
    OUTPUT_KEPT = 1 << 20,    // a larger buffer is freed when it is empty
    RECORD_BYTES = 16 << 10,  // most plaintext per record
    RECORD_MORE = 5 + 1 + 16, // header, content type, tag (RFC 8446, 5.2)
    RECORDS_PER_KEY = 1 << 22 // AES-GCM allows 2^24.5 (RFC 8446, 5.5); after this many the sender updates its key
};

static const unsigned char identity[] = {'k', 'i', 'n', '1'};
static const unsigned char cipher_id[] = {0x13, 0x01}; // TLS_AES_128_GCM_SHA256: it sets the key's hash, SHA-256

// OpenSSL counts the connections that use an SSL_CTX, but not those that use a BIO_METHOD or the application's data.
struct kin_tls_ctx {
    atomic_int n_users; // the owner, until it closes the context, and the connections
    SSL_CTX *ssl;
    BIO_METHOD *bio;
    uint8_t key[KIN_TLS_KEY_BYTES];
    bool has_certificate; // instead of a key
    char host[256];       // for a client that verifies certificates
    bool is_named;        // the host is a name, not a numeric address
};

struct kin_tls {
    kin_tls_ctx *ctx;
    SSL *ssl;
    kin_tls_state state;
    kin_tls_fault fault;
    const uint8_t *input; // [n_input] fed but not yet read by OpenSSL; borrowed
    size_t n_input;
    uint8_t *kept;   // owned memory of `input`, if it is not borrowed
    uint8_t *output; // [output_bytes], of which n_output are pending
    size_t n_output, output_bytes;
    size_t n_records; // upper bound on records encrypted with the present key
};

// ---- OpenSSL's BIO: reads from and writes to the memory of a connection

static int bio_read(BIO *bio, char *buf, size_t n, size_t *n_read) {
    kin_tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    *n_read = n < t->n_input ? n : t->n_input;
    if (*n_read == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    memcpy(buf, t->input, *n_read);
    t->input += *n_read;
    t->n_input -= *n_read;
    return 1;
}

// Makes room for n more bytes. If some are pending, grows faster, because more may follow.
static bool reserve(kin_tls *t, size_t n) {
    size_t want = t->n_output + n, least = t->n_output > 0 ? 2 * t->output_bytes : OUTPUT_FIRST;
    if (want <= t->output_bytes) return true;
    if (want < least) want = least;
    uint8_t *grown = realloc(t->output, want);
    if (!grown) return false;
    t->output = grown;
    t->output_bytes = want;
    return true;
}

static int bio_write(BIO *bio, const char *bytes, size_t n, size_t *n_written) {
    kin_tls *t = BIO_get_data(bio);
    if (!reserve(t, n)) return 0;
    memcpy(t->output + t->n_output, bytes, n);
    t->n_output += n;
    *n_written = n;
    return 1;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

// ---- the key

// Creates a session that looks like that of an earlier connection: OpenSSL's form of an external pre-shared key.
static SSL_SESSION *new_session(SSL *ssl) {
    const kin_tls_ctx *ctx = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, cipher_id);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session && cipher && SSL_SESSION_set1_master_key(session, ctx->key, sizeof ctx->key) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int give_key(SSL *ssl, const EVP_MD *hash, const unsigned char **id, size_t *id_bytes, SSL_SESSION **session) {
    *session = NULL;
    *id = identity;
    *id_bytes = sizeof identity;
    if (hash && EVP_MD_get_type(hash) != NID_sha256) return 1; // called again for a cipher that kin does not use
    *session = new_session(ssl);
    return *session != NULL;
}

static int find_key(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session) {
    *session = NULL;
    // continues without a key, and fails
    if (id_bytes != sizeof identity || memcmp(id, identity, sizeof identity) != 0) return 1;
    *session = new_session(ssl);
    return *session != NULL;
}

// ---- context

static bool cpu_has_aes(void) {
#if defined(__x86_64__) || defined(__i386__)
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_AES);
#elif defined(__linux__) && defined(__aarch64__)
    return (getauxval(AT_HWCAP) & HWCAP_AES) != 0;
#else
    return true; // all Macs have it
#endif
}

static int set_up(kin_tls_ctx *ctx, int version) {
    SSL_CTX *ssl = ctx->ssl;
    const char *ciphers = cpu_has_aes() ? "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
                                        : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
    if (SSL_CTX_set_min_proto_version(ssl, version) != 1 || SSL_CTX_set_max_proto_version(ssl, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(ssl, ciphers) != 1 || SSL_CTX_set1_groups_list(ssl, "X25519:P-256") != 1 ||
        SSL_CTX_set_num_tickets(ssl, 0) != 1)
        return KIN_FAIL;
    // The server chooses: ChaCha20 if the client prefers it or the server does.
    SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_app_data(ssl, ctx);
    return BIO_meth_set_read_ex(ctx->bio, bio_read) == 1 && BIO_meth_set_write_ex(ctx->bio, bio_write) == 1 &&
                   BIO_meth_set_ctrl(ctx->bio, bio_ctrl) == 1
               ? 0
               : KIN_FAIL;
}

// NULL: this OpenSSL does not support it; ERR_peek_last_error has the reason.
static kin_tls_ctx *open_ctx(int version) {
    kin_tls_ctx *ctx = calloc(1, sizeof *ctx);
    ERR_clear_error();
    if (!ctx) return NULL;
    atomic_init(&ctx->n_users, 1);
    ctx->ssl = SSL_CTX_new(TLS_method());
    ctx->bio = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "kin");
    if (ctx->ssl && ctx->bio && set_up(ctx, version) == 0) return ctx;
    kin_tls_ctx_close(ctx);
    return NULL;
}

static const char *last_reason(void) {
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason ? reason : "unknown reason";
}

int kin_tls_ctx_open(kin_tls_ctx **out, const uint8_t key[KIN_TLS_KEY_BYTES], kin_err *err) {
    kin_tls_ctx *ctx = *out = open_ctx(TLS1_3_VERSION);
    if (!ctx) return kin_err_set(err, "OpenSSL does not support TLS 1.3 with a pre-shared key (%s)", last_reason());
    memcpy(ctx->key, key, sizeof ctx->key);
    SSL_CTX_set_psk_use_session_callback(ctx->ssl, give_key);
    SSL_CTX_set_psk_find_session_callback(ctx->ssl, find_key);
    return 0;
}

int kin_tls_ctx_open_server(kin_tls_ctx **out, const char *cert_file, const char *key_file, kin_err *err) {
    *out = NULL;
    kin_tls_ctx *ctx = open_ctx(TLS1_2_VERSION);
    if (!ctx) return kin_err_set(err, "OpenSSL does not support TLS 1.2 (%s)", last_reason());
    ctx->has_certificate = true;
    SSL_CTX_set_mode(ctx->ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_default_passwd_cb_userdata(ctx->ssl, ""); // otherwise OpenSSL prompts for it
    if (SSL_CTX_set_cipher_list(ctx->ssl, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1)
        kin_err_set(err, "OpenSSL does not support TLS 1.2 (%s)", last_reason());
    else if (SSL_CTX_use_certificate_chain_file(ctx->ssl, cert_file) != 1)
        kin_err_set(err, "%s: cannot read a PEM certificate (%s)", cert_file, last_reason());
    else if (SSL_CTX_use_PrivateKey_file(ctx->ssl, key_file, SSL_FILETYPE_PEM) != 1)
        kin_err_set(err, "%s: cannot read the PEM private key of %s (%s)", key_file, cert_file, last_reason());
    else
        *out = ctx;
    if (*out) return 0;
    kin_tls_ctx_close(ctx);
    return KIN_FAIL;
}

int kin_tls_ctx_open_client(kin_tls_ctx **out, const char *host, const char *ca_file, kin_err *err) {
    *out = NULL;
    kin_tls_ctx *ctx = open_ctx(TLS1_2_VERSION);
    if (!ctx) return kin_err_set(err, "OpenSSL does not support TLS 1.2 (%s)", last_reason());
    X509_VERIFY_PARAM *who = SSL_CTX_get0_param(ctx->ssl);
    size_t n = strlen(host);
    ctx->has_certificate = true;
    ctx->is_named = X509_VERIFY_PARAM_set1_ip_asc(who, host) != 1;
    if (n < sizeof ctx->host) memcpy(ctx->host, host, n + 1);
    if (n >= sizeof ctx->host || (ctx->is_named && X509_VERIFY_PARAM_set1_host(who, host, n) != 1))
        kin_err_set(err, "'%.100s' is not a host name", host);
    else if (SSL_CTX_set_cipher_list(ctx->ssl, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1 ||
             SSL_CTX_set_default_verify_paths(ctx->ssl) != 1)
        kin_err_set(err, "OpenSSL cannot verify certificates (%s)", last_reason());
    else if (ca_file && SSL_CTX_load_verify_locations(ctx->ssl, ca_file, NULL) != 1)
        kin_err_set(err, "%s: cannot read a PEM certificate (%s)", ca_file, last_reason());
    else
        *out = ctx;
    if (*out) return 0;
    kin_tls_ctx_close(ctx);
    return KIN_FAIL;
}

void kin_tls_ctx_close(kin_tls_ctx *ctx) {
    if (!ctx || atomic_fetch_sub(&ctx->n_users, 1) > 1) return;
    SSL_CTX_free(ctx->ssl);
    BIO_meth_free(ctx->bio);
    OPENSSL_cleanse(ctx->key, sizeof ctx->key);
    free(ctx);
}

// ---- error messages

// Describes a failed handshake. If the keys differ, the server finds that the client's binder does not verify and sends an alert;
// a client that proceeds and decrypts data from an impostor finds it damaged. An internal error alert may come from a kin that is
// out of memory; errors from other parts of OpenSSL are local.
static int handshake_failed(kin_tls *t, kin_err *err) {
    unsigned long code = ERR_peek_last_error();
    switch (ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_SSLV3_ALERT_BAD_RECORD_MAC:
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
    case SSL_R_DIGEST_CHECK_FAILED: t->fault = KIN_TLS_FAULT_OTHER_KEY; return kin_err_set(err, "the other side has another key");
    case ERR_R_MALLOC_FAILURE: return kin_err_set(err, "out of memory");
    case SSL_R_TLSV1_ALERT_INTERNAL_ERROR: return kin_err_set(err, "the other side failed during the handshake");
    default:
        if (ERR_GET_LIB(code) == ERR_LIB_SSL) t->fault = KIN_TLS_FAULT_STRANGER;
        return kin_err_set(err, "the other side does not support TLS 1.3 with a pre-shared key (%s)",
                           code ? ERR_reason_error_string(code) : "it closed the connection");
    }
}

static int data_failed(kin_err *err) {
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    return kin_err_set(err, "the encrypted data is damaged (%s)", reason ? reason : "unknown reason");
}

// ---- a connection

int kin_tls_open(kin_tls **out, kin_tls_ctx *ctx, bool is_client, kin_err *err) {
    *out = NULL;
    kin_tls *t = calloc(1, sizeof *t);
    BIO *bio = BIO_new(ctx->bio);
    if (!t || !bio || !(t->ssl = SSL_new(ctx->ssl))) {
        BIO_free(bio);
        free(t);
        return kin_err_set(err, "out of memory");
    }
    t->ctx = ctx;
    atomic_fetch_add(&ctx->n_users, 1);
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);
    *out = t;
    if (!is_client) {
        SSL_set_accept_state(t->ssl);
        return 0;
    }
    SSL_set_connect_state(t->ssl);
    // With a shared key there are no authorities: a certificate, which only an impostor would send, never verifies.
    SSL_set_verify(t->ssl, SSL_VERIFY_PEER, NULL);
    if (ctx->is_named) SSL_set_tlsext_host_name(t->ssl, ctx->host);
    if (kin_tls_feed(t, NULL, 0, err) == 0) return 0;
    kin_tls_close(t);
    *out = NULL;
    return KIN_FAIL;
}

void kin_tls_close(kin_tls *t) {
    if (!t) return;
    SSL_free(t->ssl);
    kin_tls_ctx_close(t->ctx);
    free(t->output);
    free(t->kept);
    free(t);
}

int kin_tls_keep_input(kin_tls *t, kin_err *err) {
    if (t->n_input == 0) return 0;
    uint8_t *kept = malloc(t->n_input);
    if (!kept) return kin_err_set(err, "out of memory");
    memcpy(kept, t->input, t->n_input);
    free(t->kept);
    t->input = t->kept = kept;
    return 0;
}

int kin_tls_feed(kin_tls *t, const void *bytes, size_t n, kin_err *err) {
    kin_assert(t->n_input == 0);
    t->input = bytes;
    t->n_input = n;
    if (t->state != KIN_TLS_HANDSHAKING) return 0;
    ERR_clear_error();
    bool has_certificate = t->ctx->has_certificate;
    int rc = SSL_do_handshake(t->ssl);
    if (rc != 1 && SSL_get_error(t->ssl, rc) == SSL_ERROR_WANT_READ) return 0;
    // Without the key there is no certificate either; still verify that the key was used.
    if (rc == 1 && (has_certificate || SSL_session_reused(t->ssl))) {
        t->state = KIN_TLS_OPEN;
        return 0;
    }
    t->state = KIN_TLS_FAILED;
    t->n_input = 0;
    if (!has_certificate) return handshake_failed(t, err);
    long why = SSL_is_server(t->ssl) ? X509_V_OK : SSL_get_verify_result(t->ssl);
    return why == X509_V_OK ? kin_err_set(err, "the TLS handshake failed (%s)", last_reason())
                            : kin_err_set(err, "its certificate is not trusted (%s); give a trusted one with --ca-file",
                                          X509_verify_cert_error_string(why));
}

int kin_tls_read(kin_tls *t, void *buf, size_t n, size_t *n_read, kin_err *err) {
    *n_read = 0;
    if (t->state != KIN_TLS_OPEN) {
        t->n_input = 0;
        return 0;
    }
    if (n == 0) return 0;
    ERR_clear_error();
    int rc = SSL_read_ex(t->ssl, buf, n, n_read);
    if (rc == 1) return 0;
    *n_read = 0;
    int why = SSL_get_error(t->ssl, rc);
    if (why == SSL_ERROR_WANT_READ) return 0;
    t->n_input = 0;
    if (why == SSL_ERROR_ZERO_RETURN) {
        t->state = KIN_TLS_CLOSED;
        return 0;
    }
    t->state = KIN_TLS_FAILED;
    return data_failed(err);
}

size_t kin_tls_output_bytes(size_t n) {
    return n + (n / RECORD_BYTES + 1) * RECORD_MORE;
}

int kin_tls_write(kin_tls *t, const void *bytes, size_t n, kin_err *err) {
    kin_assert(t->state == KIN_TLS_OPEN || t->state == KIN_TLS_CLOSED);
    if (n == 0) return 0;
    size_t n_written;
    (void)reserve(t, kin_tls_output_bytes(n)); // for all of it; if there is no room, bio_write reports it
    ERR_clear_error();
    t->n_records += n / RECORD_BYTES + 1;
    if (t->n_records > RECORDS_PER_KEY && SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) t->n_records = 0;
    if (SSL_write_ex(t->ssl, bytes, n, &n_written) == 1 && n_written == n) return 0;
    t->state = KIN_TLS_FAILED;
    return kin_err_set(err, "out of memory for bytes to send");
}

void kin_tls_finish(kin_tls *t) {
    ERR_clear_error();
    if (t->state == KIN_TLS_OPEN || t->state == KIN_TLS_CLOSED) SSL_shutdown(t->ssl);
}

const uint8_t *kin_tls_output(const kin_tls *t, size_t *n) {
    *n = t->n_output;
    return t->output;
}

void kin_tls_output_done(kin_tls *t) {
    t->n_output = 0;
    if (t->output_bytes <= OUTPUT_KEPT) return;
    free(t->output);
    t->output = NULL;
    t->output_bytes = 0;
}

uint8_t *kin_tls_pop_output(kin_tls *t, size_t *n) {
    uint8_t *taken = t->output;
    *n = t->n_output;
    t->output = NULL;
    t->n_output = t->output_bytes = 0;
    return taken;
}

kin_tls_state kin_tls_state_now(const kin_tls *t) {
    return t->state;
}

kin_tls_fault kin_tls_fault_of(const kin_tls *t) {
    return t->fault;
}
