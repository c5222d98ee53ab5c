#include "engine/kv_pages.h"

#include <stdlib.h>

struct kin_kv_pages {
    kin_kv_store *store; // NULL: the cache has no layers, and so every page that there can be
};

int kin_kv_pages_open(kin_kv_pages **out, const kin_kv *kv, const kin_kv_disk *disk, const uint8_t variant[KIN_KV_VARIANT_BYTES],
                      kin_err *err) {
    size_t n_page = kin_kv_page_bytes(kv);
    kin_kv_pages *p = *out = calloc(1, sizeof *p);
    if (!p) return kin_err_set(err, "out of memory");
    if (n_page == 0 || kin_kv_store_open(&p->store, disk, variant, n_page, err) == 0) return 0;
    free(p);
    *out = NULL;
    return KIN_FAIL;
}

void kin_kv_pages_close(kin_kv_pages *p) {
    if (!p) return;
    kin_kv_store_close(p->store);
    free(p);
}

static int keep(kin_kv_pages *p, const kin_kv *kv, const kin_page_request *r, kin_err *err) {
    if (kin_kv_n_tokens(kv, r->seq) < (r->first + r->n) * KIN_KV_CELLS)
        return kin_err_set(err, "pages %d to %d of sequence %d are not full", r->first, r->first + r->n - 1, (int)r->seq);
    for (int i = 0; i < r->n && p && p->store; i++) {
        if (kin_kv_store_has(p->store, &r->keys[i])) continue;
        uint8_t *page = kin_kv_store_begin(p->store);
        if (!page) return i;
        kin_kv_page_get(kv, r->seq, r->first + i, page);
        kin_kv_store_keep(p->store, &r->keys[i], page);
    }
    return p ? r->n : 0;
}

static bool find(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r, int i) {
    if (!p || !p->store) return p != NULL;
    const uint8_t *page = kin_kv_store_read(p->store, &r->keys[i]);
    if (page) kin_kv_page_set(kv, r->seq, r->first + i, page);
    return page != NULL;
}

// The cells of a page, which all members give out alike, whatever they find.
static int place(kin_kv *kv, const kin_page_request *r, int i, kin_err *err) {
    int32_t pos[KIN_KV_CELLS], seq[KIN_KV_CELLS];
    int64_t cells[KIN_KV_CELLS];
    for (int k = 0; k < KIN_KV_CELLS; k++) {
        pos[k] = (r->first + i) * KIN_KV_CELLS + k;
        seq[k] = r->seq;
    }
    return kin_kv_place(kv, &(kin_batch){.n_tokens = KIN_KV_CELLS, .pos = pos, .seq = seq}, cells, err);
}

int kin_kv_pages_take(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r, kin_err *err) {
    kin_assert(r->seq >= 0 && r->first >= 0 && r->n > 0 && r->n <= KIN_PAGES_MAX);
    if (!r->loads) return keep(p, kv, r, err);
    int n_good = 0;
    for (int i = 0; i < r->n; i++) {
        if (place(kv, r, i, err) != 0) return KIN_FAIL;
        if (n_good == i && find(p, kv, r, i)) n_good++;
    }
    return n_good;
}
