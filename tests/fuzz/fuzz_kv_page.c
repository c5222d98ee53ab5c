// Unseals any bytes as a page of the KV cache read from disk. A page that unseals can be sealed and unsealed again.
#include <stdlib.h>
#include <string.h>

#include "engine/kv/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// The corpus contains a page sealed with these values (tests/test_kv_pages.c).
static void make_seal(kin_kv_page_seal *seal, kin_page_key *key) {
    for (int i = 0; i < 32; i++) {
        seal->secret[i] = (uint8_t)i;
        seal->variant[i] = (uint8_t)(100 + i);
    }
    for (int i = 0; i < 16; i++) key->bytes[i] = (uint8_t)(200 + i);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    kin_kv_page_seal seal;
    kin_page_key key;
    kin_err err = {""};
    uint8_t *page = malloc(size + 1);
    size_t n = size > KIN_KV_PAGE_FRAME ? size - KIN_KV_PAGE_FRAME : 0;
    if (!page) return 0;
    memcpy(page, bytes, size);
    make_seal(&seal, &key);
    int rc = kin_kv_page_unseal(&seal, &key, page, size, n, &err);
    kin_assert(rc == 0 || (rc == KIN_FAIL && err.text[0]));
    if (rc == 0) {
        kin_assert(kin_kv_page_seal_up(&seal, &key, page, n, &err) == 0);
        kin_assert(kin_kv_page_unseal(&seal, &key, page, size, n, &err) == 0);
    }
    free(page);
    return 0;
}
