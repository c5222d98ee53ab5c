#include "sys/aes_gcm.h"

#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>

enum { ENCRYPT = 1, DECRYPT = 0, MOST_BYTES = 1 << 30 };

static bool start(EVP_CIPHER_CTX *ctx, const uint8_t *key, const uint8_t *nonce, const kin_aes_extra *extra, int direction) {
    int n;
    bool ok = EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, nonce, direction) == 1;
    for (int i = 0; i < 2 && ok; i++) {
        if (extra->bytes[i]) ok = EVP_CipherUpdate(ctx, NULL, &n, extra->bytes[i], (int)extra->n[i]) == 1;
    }
    return ok;
}

int kin_aes_gcm_seal(const uint8_t key[KIN_AES_KEY_BYTES], const uint8_t nonce[KIN_AES_NONCE_BYTES], const kin_aes_extra *extra,
                     uint8_t *bytes, size_t n, uint8_t tag[KIN_AES_TAG_BYTES], kin_err *err) {
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n_done, n_end;
    kin_assert(n <= MOST_BYTES);
    bool ok = ctx && start(ctx, key, nonce, extra, ENCRYPT) && EVP_CipherUpdate(ctx, bytes, &n_done, bytes, (int)n) == 1 &&
              EVP_CipherFinal_ex(ctx, bytes + n_done, &n_end) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, KIN_AES_TAG_BYTES, tag) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return ok ? 0 : kin_err_set(err, "OpenSSL cannot encrypt with AES-256-GCM: out of memory, or the cipher is disabled");
}

int kin_aes_gcm_open(const uint8_t key[KIN_AES_KEY_BYTES], const uint8_t nonce[KIN_AES_NONCE_BYTES], const kin_aes_extra *extra,
                     uint8_t *bytes, size_t n, const uint8_t tag[KIN_AES_TAG_BYTES], kin_err *err) {
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    uint8_t expected[KIN_AES_TAG_BYTES];
    int n_done, n_end;
    kin_assert(n <= MOST_BYTES);
    memcpy(expected, tag, sizeof expected);
    bool ok = ctx && start(ctx, key, nonce, extra, DECRYPT) && EVP_CipherUpdate(ctx, bytes, &n_done, bytes, (int)n) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, sizeof expected, expected) == 1 &&
              EVP_CipherFinal_ex(ctx, bytes + n_done, &n_end) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return ok ? 0 : kin_err_set(err, "the data is damaged or was encrypted with another key");
}
