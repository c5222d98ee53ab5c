#include "sys/certificate.h"

#include <ctype.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sys/sha256.h"
#include "sys/whole_file.h"

enum {
    DAY_S = 24 * 60 * 60,
    DAYS = 800,     // Apple's systems accept at most 825
    DAYS_LEFT = 30, // a certificate that expires earlier is replaced
    NAMES_TEXT = 4096
};

static bool is_address(const char *name) {
    ASN1_OCTET_STRING *bytes = a2i_IPADDRESS(name);
    ASN1_OCTET_STRING_free(bytes);
    return bytes != NULL;
}

// ---- existing files

static void *read_pem(const char *path, void *(*read)(BIO *)) {
    BIO *file = BIO_new_file(path, "r");
    void *object = file ? read(file) : NULL;
    BIO_free(file);
    return object;
}

static void *read_cert(BIO *file) {
    return PEM_read_bio_X509(file, NULL, NULL, "");
}

static void *read_key(BIO *file) {
    return PEM_read_bio_PrivateKey(file, NULL, NULL, "");
}

static bool is_usable(const char *cert_file, const char *key_file, const char *const *names, int n_names) {
    X509 *cert = read_pem(cert_file, read_cert);
    EVP_PKEY *key = read_pem(key_file, read_key);
    time_t then = time(NULL) + (time_t)DAYS_LEFT * DAY_S;
    bool is_so = cert && key && X509_check_private_key(cert, key) == 1 && X509_cmp_time(X509_get0_notAfter(cert), &then) > 0;
    for (int i = 0; i < n_names && is_so; i++)
        is_so = (is_address(names[i]) ? X509_check_ip_asc(cert, names[i], 0) : X509_check_host(cert, names[i], 0, 0, NULL)) == 1;
    X509_free(cert);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return is_so;
}

// ---- a new certificate

// Formats "DNS:desk.local,IP:192.168.1.7", OpenSSL's form.
static int put_names(char text[NAMES_TEXT], const char *const *names, int n_names, kin_err *err) {
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < n_names; i++) {
        const char *c = names[i];
        while (isalnum((unsigned char)*c) || (*c && strchr(".-_:", *c))) c++;
        if (*c || c == names[i]) return kin_err_set(err, "cannot make a certificate for the name '%s'", names[i]);
        n += (size_t)snprintf(text + n, NAMES_TEXT - n, "%s%s:%s", i ? "," : "", is_address(names[i]) ? "IP" : "DNS", names[i]);
        if (n >= NAMES_TEXT) return kin_err_set(err, "too many names for one certificate: %d", n_names);
    }
    return 0;
}

static bool add_extension(X509 *cert, int nid, const char *value) {
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    bool is_added = extension && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return is_added;
}

static bool set_serial(X509 *cert) {
    unsigned char bytes[8];
    if (RAND_bytes(bytes, sizeof bytes) != 1) return false;
    bytes[0] &= 0x7f;
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool is_set = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return is_set;
}

static bool fill(X509 *cert, EVP_PKEY *key, const char *names) {
    X509_NAME *subject = X509_get_subject_name(cert);
    return X509_set_version(cert, 2) == 1 && set_serial(cert) && X509_gmtime_adj(X509_getm_notBefore(cert), -DAY_S) &&
           X509_gmtime_adj(X509_getm_notAfter(cert), (long)DAYS * DAY_S) && X509_set_pubkey(cert, key) == 1 &&
           X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)"kin", -1, -1, 0) == 1 &&
           X509_set_issuer_name(cert, subject) == 1 && add_extension(cert, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, NID_ext_key_usage, "serverAuth") && add_extension(cert, NID_subject_alt_name, names) &&
           X509_sign(cert, key, EVP_sha256()) > 0;
}

static int write_bio(const char *path, BIO *bio, kin_err *err) {
    char *bytes;
    long n = BIO_get_mem_data(bio, &bytes);
    return kin_folder_make_private_above(path, err) != 0 || kin_whole_file_write(path, bytes, (size_t)n, err) != 0 ? KIN_FAIL : 0;
}

int kin_certificate_keep(const char *cert_file, const char *key_file, const char *const *names, int n_names, kin_err *err) {
    char text[NAMES_TEXT];
    if (is_usable(cert_file, key_file, names, n_names)) return 0;
    if (put_names(text, names, n_names, err) != 0) return KIN_FAIL;
    X509 *cert = X509_new();
    EVP_PKEY *key = EVP_EC_gen("P-256");
    BIO *cert_pem = BIO_new(BIO_s_mem()), *key_pem = BIO_new(BIO_s_mem());
    int rc = KIN_FAIL;
    ERR_clear_error();
    if (!cert || !key || !cert_pem || !key_pem || !fill(cert, key, text) || PEM_write_bio_X509(cert_pem, cert) != 1 ||
        PEM_write_bio_PrivateKey(key_pem, key, NULL, NULL, 0, NULL, NULL) != 1) {
        const char *reason = ERR_reason_error_string(ERR_peek_last_error());
        kin_err_set(err, "OpenSSL cannot make a certificate (%s)", reason ? reason : "unknown reason");
    } else if (write_bio(key_file, key_pem, err) == 0) { // the key first: there is never a certificate without its key
        rc = write_bio(cert_file, cert_pem, err);
    }
    X509_free(cert);
    EVP_PKEY_free(key);
    BIO_free(cert_pem);
    BIO_free(key_pem);
    return rc;
}

int kin_certificate_fingerprint(const char *cert_file, char text[KIN_CERTIFICATE_FINGERPRINT], kin_err *err) {
    unsigned char hash[KIN_SHA256_BYTES];
    X509 *cert = read_pem(cert_file, read_cert);
    bool is_done = cert && X509_digest(cert, EVP_sha256(), hash, NULL) == 1;
    X509_free(cert);
    ERR_clear_error();
    if (!is_done) return kin_err_set(err, "%s: cannot read a PEM certificate", cert_file);
    for (int i = 0; i < KIN_SHA256_BYTES; i++) snprintf(text + 3 * i, 4, "%02X%s", hash[i], i < KIN_SHA256_BYTES - 1 ? ":" : "");
    return 0;
}
