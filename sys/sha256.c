#include "sys/sha256.h"

#include <openssl/evp.h>

static int failed(kin_err *err) {
    return kin_err_set(err, "OpenSSL cannot compute SHA-256: out of memory, or it is disabled");
}

int kin_sha256(const void *data, size_t n, uint8_t hash[KIN_SHA256_BYTES], kin_err *err) {
    return EVP_Digest(data, n, hash, NULL, EVP_sha256(), NULL) == 1 ? 0 : failed(err);
}

// Casts to EVP_MD_CTX: kin's headers do not expose OpenSSL's types.
static EVP_MD_CTX *context(kin_sha256_stream *stream) {
    return (EVP_MD_CTX *)stream;
}

int kin_sha256_open(kin_sha256_stream **out, kin_err *err) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    *out = NULL;
    if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(ctx);
        return failed(err);
    }
    *out = (kin_sha256_stream *)ctx;
    return 0;
}

void kin_sha256_close(kin_sha256_stream *stream) {
    EVP_MD_CTX_free(context(stream));
}

int kin_sha256_add(kin_sha256_stream *stream, const void *data, size_t n, kin_err *err) {
    return EVP_DigestUpdate(context(stream), data, n) == 1 ? 0 : failed(err);
}

int kin_sha256_end(kin_sha256_stream *stream, uint8_t hash[KIN_SHA256_BYTES], kin_err *err) {
    if (EVP_DigestFinal_ex(context(stream), hash, NULL) != 1) return failed(err);
    return EVP_DigestInit_ex(context(stream), EVP_sha256(), NULL) == 1 ? 0 : failed(err);
}
