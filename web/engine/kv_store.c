// engine/kv/store.h for a web page, which has no disk: nothing is stored.
#include "engine/kv/store.h"

int kin_kv_store_open(kin_kv_store **out, const kin_kv_disk *disk, const uint8_t variant[KIN_KV_VARIANT_BYTES], size_t n_page,
                      kin_err *err) {
    (void)disk, (void)variant, (void)n_page;
    *out = NULL;
    return kin_err_set(err, "a page has no disk");
}

void kin_kv_store_close(kin_kv_store *store) {
    (void)store;
}

bool kin_kv_store_has(const kin_kv_store *store, const kin_page_key *key) {
    (void)store, (void)key;
    return false;
}

bool kin_kv_store_is_queued(kin_kv_store *store, const kin_page_key *key) {
    (void)store, (void)key;
    return false;
}

uint8_t *kin_kv_store_begin(kin_kv_store *store) {
    (void)store;
    return NULL;
}

uint8_t *kin_kv_store_begin_within(kin_kv_store *store, int timeout_ms) {
    (void)store, (void)timeout_ms;
    return NULL;
}

void kin_kv_store_keep(kin_kv_store *store, const kin_page_key *key, uint8_t *content) {
    (void)store, (void)key, (void)content;
}

void kin_kv_store_give_up(kin_kv_store *store, uint8_t *content) {
    (void)store, (void)content;
}

void kin_kv_store_remove(kin_kv_store *store, const kin_page_key *key) {
    (void)store, (void)key;
}

void kin_kv_store_settle(kin_kv_store *store) {
    (void)store;
}

void kin_kv_store_fetch(kin_kv_store *store, const kin_page_key *keys, int n, int timeout_ms) {
    (void)store, (void)keys, (void)n, (void)timeout_ms;
}

const uint8_t *kin_kv_store_read(kin_kv_store *store, const kin_page_key *key) {
    (void)store, (void)key;
    return NULL;
}
