#include "engine/kv_pages.h"

#include <stdlib.h>

struct kin_kv_pages {
    kin_kv_store *store;
    kin_page_key *missing; // [KIN_PAGES_MAX * layers of the model]
};

int kin_kv_pages_open(kin_kv_pages **out, const kin_kv *kv, const kin_kv_disk *disk, const uint8_t variant[KIN_KV_VARIANT_BYTES],
                      kin_err *err) {
    kin_kv_pages *p = *out = calloc(1, sizeof *p);
    if (p) p->missing = malloc((size_t)kin_kv_n_layers(kv) * KIN_PAGES_MAX * sizeof *p->missing);
    if (p && p->missing && kin_kv_store_open(&p->store, disk, variant, kin_kv_page_bytes(kv), err) == 0) return 0;
    if (!p || !p->missing) kin_err_set(err, "out of memory");
    kin_kv_pages_close(p);
    *out = NULL;
    return KIN_FAIL;
}

void kin_kv_pages_close(kin_kv_pages *p) {
    if (!p) return;
    kin_kv_store_close(p->store);
    free(p->missing);
    free(p);
}

// The first layer from `il` on that is here; the number of layers: there is none.
static int next_layer(const kin_kv *kv, int il) {
    while (il < kin_kv_n_layers(kv) && !kin_kv_has_layer(kv, il)) il++;
    return il;
}

static kin_page_key key_of(const kin_kv *kv, const kin_page_request *r, int i, int il) {
    return kin_page_key_of_layer(&r->keys[i], il, kin_kv_is_on_gpu(kv, il));
}

// False: not in all layers.
static bool keep_page(kin_kv_pages *p, const kin_kv *kv, const kin_page_request *r, int i) {
    for (int il = next_layer(kv, 0); il < kin_kv_n_layers(kv); il = next_layer(kv, il + 1)) {
        kin_page_key key = key_of(kv, r, i, il);
        if (kin_kv_store_has(p->store, &key)) continue;
        uint8_t *page = kin_kv_store_begin(p->store);
        if (!page) return false;
        kin_kv_page_get(kv, r->seq, r->first + i, il, page);
        kin_kv_store_keep(p->store, &key, page);
    }
    return true;
}

static int keep(kin_kv_pages *p, const kin_kv *kv, const kin_page_request *r, kin_err *err) {
    if (kin_kv_n_tokens(kv, r->seq) < (r->first + r->n) * KIN_KV_CELLS)
        return kin_err_set(err, "pages %d to %d of sequence %d are not full", r->first, r->first + r->n - 1, (int)r->seq);
    int n = 0;
    while (p && n < r->n && keep_page(p, kv, r, n)) n++;
    return n;
}

// What is not on this disk may be on others'.
static void fetch_missing(kin_kv_pages *p, const kin_kv *kv, const kin_page_request *r) {
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        for (int il = next_layer(kv, 0); il < kin_kv_n_layers(kv); il = next_layer(kv, il + 1)) {
            kin_page_key key = key_of(kv, r, i, il);
            if (!kin_kv_store_has(p->store, &key)) p->missing[n++] = key;
        }
    }
    if (n > 0) kin_kv_store_fetch(p->store, p->missing, n, r->patience_ms);
}

// False: not in all layers.
static bool find_page(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r, int i) {
    for (int il = next_layer(kv, 0); il < kin_kv_n_layers(kv); il = next_layer(kv, il + 1)) {
        kin_page_key key = key_of(kv, r, i, il);
        const uint8_t *page = kin_kv_store_read(p->store, &key);
        if (!page) return false;
        kin_kv_page_set(kv, r->seq, r->first + i, il, page);
    }
    return true;
}

// The cells of a page, which all members give out alike, whatever they find.
static int place(kin_kv *kv, const kin_page_request *r, int i, kin_err *err) {
    int32_t pos[KIN_KV_CELLS], seq[KIN_KV_CELLS];
    int64_t cells[KIN_KV_CELLS];
    for (int k = 0; k < KIN_KV_CELLS; k++) {
        pos[k] = (r->first + i) * KIN_KV_CELLS + k;
        seq[k] = r->seq;
    }
    return kin_kv_place(kv, &(kin_batch){.n_tokens = KIN_KV_CELLS, .pos = pos, .seq = seq}, cells, NULL, err);
}

int kin_kv_pages_take(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r, kin_err *err) {
    kin_assert(r->seq >= 0 && r->first >= 0 && r->n > 0 && r->n <= KIN_PAGES_MAX);
    if (!r->loads) return keep(p, kv, r, err);
    int n_good = 0;
    if (p && r->patience_ms > 0) fetch_missing(p, kv, r);
    for (int i = 0; i < r->n; i++) {
        if (place(kv, r, i, err) != 0) return KIN_FAIL;
        if (p && n_good == i && find_page(p, kv, r, i)) n_good++;
    }
    return n_good;
}
