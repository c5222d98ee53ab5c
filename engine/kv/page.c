#include "engine/kv/page.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h> // getentropy() on musl

#include "base/bytes.h"
#include "sys/aes_gcm.h"

static const char magic[8] = {'k', 'i', 'n', 'p', 'a', 'g', 'e', '1'};

enum { AT_KEY = 8, AT_BYTES = 24, AT_NONCE = 32, AT_ZERO = 44 };

static kin_aes_extra extra_of(const kin_kv_page_seal *seal, const uint8_t *page) {
    return (kin_aes_extra){{page, seal->variant}, {KIN_KV_PAGE_HEAD, sizeof seal->variant}};
}

int kin_kv_page_seal_up(const kin_kv_page_seal *seal, const kin_page_key *key, uint8_t *page, size_t n, kin_err *err) {
    kin_assert(n <= KIN_KV_PAGE_MAX);
    memcpy(page, magic, sizeof magic);
    memcpy(page + AT_KEY, key->bytes, sizeof key->bytes);
    kin_put_u64(page + AT_BYTES, n);
    kin_put_u32(page + AT_ZERO, 0);
    if (getentropy(page + AT_NONCE, KIN_AES_NONCE_BYTES) != 0) return kin_err_set(err, "cannot get random numbers");
    kin_aes_extra extra = extra_of(seal, page);
    uint8_t *content = page + KIN_KV_PAGE_HEAD;
    return kin_aes_gcm_seal(seal->secret, page + AT_NONCE, &extra, content, n, content + n, err);
}

int kin_kv_page_unseal(const kin_kv_page_seal *seal, const kin_page_key *key, uint8_t *page, size_t n_page, size_t n,
                       kin_err *err) {
    if (n_page < KIN_KV_PAGE_FRAME || memcmp(page, magic, sizeof magic) != 0) return kin_err_set(err, "not a KV cache page");
    if (kin_get_u64(page + AT_BYTES) != n || n_page != n + KIN_KV_PAGE_FRAME)
        return kin_err_set(err, "a page of %zu bytes, not of %zu", n_page, n + KIN_KV_PAGE_FRAME);
    if (memcmp(page + AT_KEY, key->bytes, sizeof key->bytes) != 0 || kin_get_u32(page + AT_ZERO) != 0)
        return kin_err_set(err, "the key of the page does not match");
    kin_aes_extra extra = extra_of(seal, page);
    uint8_t *content = page + KIN_KV_PAGE_HEAD;
    return kin_aes_gcm_open(seal->secret, page + AT_NONCE, &extra, content, n, content + n, err);
}
