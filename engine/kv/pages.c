#include "engine/kv/pages.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

// Copying so much takes 20 to 40 ms on a busy machine, in which no token is computed.
enum { MOST_KEPT_BYTES = 16 << 20 }; // of states, in a request

struct kin_kv_pages {
    kin_kv_store *store;
    double timeout_ms; // what is left of the request's timeout
    size_t n_embd;
    kin_border_log *borders; // NULL: none
    kin_page_key *missing;   // [KIN_PAGES_MAX * layers of the model + most_parts]
};

// Returns the most parts that the layers of the model have at a checkpoint.
static size_t most_parts(const kin_kv *kv) {
    size_t n = 0;
    for (int il = 0; il < kin_kv_n_layers(kv); il++) n += (size_t)kin_kv_n_parts(kv, il, INT32_MAX);
    return n;
}

static void on_copy(void *user, int from, int to) {
    kin_border_log_copy(user, from, to);
}

static int open_borders(kin_kv_pages *p, kin_kv *kv, const kin_border_rows *rows, const kin_kv_disk *disk,
                        const uint8_t variant[KIN_KV_VARIANT_BYTES], kin_err *err) {
    if (rows->n_embd == 0) return 0;
    p->n_embd = (size_t)rows->n_embd;
    if (kin_border_log_open(&p->borders, rows, disk, variant, err) != 0) return KIN_FAIL;
    kin_kv_on_copy(kv, on_copy, p->borders);
    return 0;
}

int kin_kv_pages_open(kin_kv_pages **out, kin_kv *kv, const kin_border_rows *rows, const kin_kv_disk *disk,
                      const uint8_t variant[KIN_KV_VARIANT_BYTES], kin_err *err) {
    *out = NULL;
    if (!kin_kv_is_storable(kv)) return kin_err_set(err, "the model has no pages that its states could be cut into");
    kin_kv_pages *p = *out = calloc(1, sizeof *p);
    if (p) p->missing = malloc(((size_t)kin_kv_n_layers(kv) * KIN_PAGES_MAX + most_parts(kv)) * sizeof *p->missing);
    if (p && p->missing && kin_kv_store_open(&p->store, disk, variant, kin_kv_page_bytes(kv), err) == 0 &&
        open_borders(p, kv, rows, disk, variant, err) == 0)
        return 0;
    if (!p || !p->missing) kin_err_set(err, "out of memory");
    kin_kv_pages_close(p);
    *out = NULL;
    return KIN_FAIL;
}

void kin_kv_pages_close(kin_kv_pages *p) {
    if (!p) return;
    kin_border_log_close(p->borders);
    kin_kv_store_close(p->store);
    free(p->missing);
    free(p);
}

static bool has_pages(const kin_kv *kv, int il) {
    return kin_kv_has_layer(kv, il) && !kin_kv_has_parts(kv, il);
}

// Returns the first layer from `il` on that is here and has pages; the number of layers if there is none.
static int next_layer(const kin_kv *kv, int il) {
    while (il < kin_kv_n_layers(kv) && !has_pages(kv, il)) il++;
    return il;
}

// Returns the end of the run of consecutive layers that are here and have pages, beginning with `il`.
static int end_of_run(const kin_kv *kv, int il) {
    while (il < kin_kv_n_layers(kv) && has_pages(kv, il)) il++;
    return il;
}

// A part of a layer's states at the end of a request's last page.
typedef struct part {
    int il, i;
    kin_page_key key;
} part;

// Iterates over the parts of the layers that are here; starts with il = -1. False: no more.
static bool next_part(const kin_kv *kv, const kin_page_request *r, part *at) {
    const int n_blocks = r->first + r->n;
    bool is_new = at->il < 0;
    at->i = is_new ? 0 : at->i + 1;
    if (is_new) at->il = 0;
    for (; at->il < kin_kv_n_layers(kv); at->il++, at->i = 0) {
        if (!kin_kv_has_parts(kv, at->il) || at->i >= kin_kv_n_parts(kv, at->il, n_blocks)) continue;
        at->key = kin_page_key_of_part(&r->keys[r->n - 1], kin_kv_source(kv, at->il), at->i);
        return true;
    }
    return false;
}

static kin_page_key key_of(const kin_kv *kv, const kin_page_request *r, int i, int il) {
    return kin_page_key_of_layer(&r->keys[i], kin_kv_source(kv, il), kin_kv_is_on_gpu(kv, il));
}

static int timeout_left_ms(const kin_kv_pages *p) {
    return p->timeout_ms > 0 ? (int)p->timeout_ms : 0;
}

// ---- keeping

// Returns false if the page is not kept in all layers. Values that are not finite were computed wrongly, and must not be loaded
// by other sequences with the same prefix.
static bool keep_page(kin_kv_pages *p, const kin_kv *kv, const kin_page_request *r, int i) {
    for (int il = next_layer(kv, 0); il < kin_kv_n_layers(kv); il = next_layer(kv, il + 1)) {
        kin_page_key key = key_of(kv, r, i, il);
        if (kin_kv_store_has(p->store, &key)) continue;
        uint8_t *page = kin_kv_store_begin(p->store);
        if (!page) return false;
        kin_kv_page_get(kv, r->seq, r->first + i, il, page);
        if (!kin_kv_page_is_finite(kv, il, page)) {
            kin_kv_store_give_up(p->store, page);
            return false;
        }
        kin_kv_store_keep(p->store, &key, page);
    }
    return true;
}

static int keep(kin_kv_pages *p, const kin_kv *kv, const kin_page_request *r, kin_err *err) {
    if (kin_kv_n_tokens(kv, r->seq) < (r->first + r->n) * KIN_KV_CELLS)
        return kin_err_set(err, "pages %d to %d of sequence %d are not full", r->first, r->first + r->n - 1, (int)r->seq);
    int n = 0;
    for (int i = 0; p && p->borders && i < r->n; i++)
        kin_border_log_keep(p->borders, kin_kv_block(kv, r->seq, r->first + i), &r->keys[i]);
    while (p && n < r->n && keep_page(p, kv, r, n)) n++;
    return n;
}

// Returns false if a part is left out. What was kept by an earlier request is not kept again. It waits for the disk only as long
// as the request says, since no step is computed meanwhile.
static bool keep_parts(kin_kv_pages *p, const kin_kv *kv, const kin_page_request *r) {
    size_t bytes = 0;
    p->timeout_ms = r->timeout_ms;
    for (part at = {.il = -1}; next_part(kv, r, &at);) {
        if (kin_kv_store_has(p->store, &at.key) || kin_kv_store_is_queued(p->store, &at.key)) continue;
        bytes += kin_kv_page_bytes(kv);
        if (bytes > MOST_KEPT_BYTES && bytes > kin_kv_page_bytes(kv)) return false;
        const kin_time begun = kin_clock_now();
        uint8_t *content = kin_kv_store_begin_within(p->store, timeout_left_ms(p));
        p->timeout_ms -= kin_clock_ms(begun, kin_clock_now());
        if (!content) return false;
        kin_kv_part_get(kv, r->seq, at.il, at.i, content);
        if (!kin_kv_part_is_finite(kv, at.il, content)) {
            kin_kv_store_give_up(p->store, content);
            return false;
        }
        kin_kv_store_keep(p->store, &at.key, content);
    }
    return true;
}

static int keep_states(kin_kv_pages *p, const kin_kv *kv, const kin_page_request *r, kin_err *err) {
    if (!kin_kv_is_at_checkpoint(kv, r->seq, r->first + r->n))
        return kin_err_set(err, "sequence %d has no states at the end of block %d", (int)r->seq, r->first + r->n - 1);
    return p && keep_parts(p, kv, r) ? r->n : 0;
}

// ---- finding

// A range of a request's pages and layers that contains everything missing.
typedef struct lack {
    int begin, end; // pages; equal: none
    int layer_begin, layer_end;
} lack;

// Loads pages begin .. end - 1 of some layers from this disk; returns what is missing.
static lack find_pages(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r, int begin, int end, int layer_begin,
                       int layer_end) {
    lack l = {.layer_begin = layer_end, .layer_end = layer_begin};
    for (int i = begin; i < end; i++) {
        for (int il = layer_begin; il < layer_end; il++) {
            kin_page_key key = key_of(kv, r, i, il);
            const uint8_t *page = kin_kv_store_read(p->store, &key);
            if (page) {
                kin_kv_page_set(kv, r->seq, r->first + i, il, page);
                continue;
            }
            if (l.end == 0) l.begin = i;
            l.end = i + 1;
            if (il < l.layer_begin) l.layer_begin = il;
            if (il >= l.layer_end) l.layer_end = il + 1;
        }
    }
    return l;
}

// Fetches pages that are not on this disk from other devices, with the states if all layers are wanted.
static void fetch_missing(kin_kv_pages *p, const kin_kv *kv, const kin_page_request *r, int layer_begin, int layer_end) {
    int n = 0;
    const bool wants_states = r->has_states && layer_begin == 0 && layer_end == kin_kv_n_layers(kv);
    for (int i = 0; i < r->n; i++) {
        for (int il = next_layer(kv, layer_begin); il < layer_end; il = next_layer(kv, il + 1)) {
            kin_page_key key = key_of(kv, r, i, il);
            if (!kin_kv_store_has(p->store, &key)) p->missing[n++] = key;
        }
    }
    for (part at = {.il = -1}; wants_states && next_part(kv, r, &at);)
        if (!kin_kv_store_has(p->store, &at.key)) p->missing[n++] = at.key;
    if (n == 0 || timeout_left_ms(p) == 0) return;
    kin_time begun = kin_clock_now();
    kin_kv_store_fetch(p->store, p->missing, n, timeout_left_ms(p));
    p->timeout_ms -= kin_clock_ms(begun, kin_clock_now());
}

static bool find_parts(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r) {
    for (part at = {.il = -1}; next_part(kv, r, &at);) {
        const uint8_t *content = kin_kv_store_read(p->store, &at.key);
        if (!content) return false;
        kin_kv_part_set(kv, r->seq, at.il, at.i, content);
    }
    return true;
}

// Loads the pages; returns how many leading ones are complete in all layers, the last one with its states if these are wanted.
static int find(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r) {
    int n = r->n;
    p->timeout_ms = r->timeout_ms;
    fetch_missing(p, kv, r, 0, kin_kv_n_layers(kv));
    for (int begin = next_layer(kv, 0), end; begin < kin_kv_n_layers(kv) && n > 0; begin = next_layer(kv, end)) {
        end = end_of_run(kv, begin);
        lack l = find_pages(p, kv, r, 0, n, begin, end);
        if (l.end > 0) n = l.begin;
    }
    return n == r->n && r->has_states && !find_parts(p, kv, r) ? n - 1 : n;
}

static void drop_states(kin_kv_pages *p, const kin_kv *kv, const kin_page_request *r, int i) {
    for (int il = 0; il < kin_kv_n_layers(kv); il++) {
        for (int k = kin_kv_n_parts(kv, il, r->first + i + 1) - 1; k >= 0; k--) {
            kin_page_key key = kin_page_key_of_part(&r->keys[i], il, k);
            kin_kv_store_remove(p->store, &key);
        }
    }
}

// Also removes copies of other devices' pages.
static void drop(kin_kv_pages *p, const kin_kv *kv, const kin_page_request *r) {
    kin_kv_store_settle(p->store);
    for (int i = 0; i < r->n; i++) {
        drop_states(p, kv, r, i);
        for (int il = 0; il < kin_kv_n_layers(kv); il++) {
            for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
                kin_page_key key = kin_page_key_of_layer(&r->keys[i], il, on_gpu);
                kin_kv_store_remove(p->store, &key);
            }
        }
    }
    if (p->borders) kin_border_log_drop(p->borders, r->keys, r->n, kin_kv_n_layers(kv));
}

// Assigns the cells of the pages. All members do so alike, whether they find the pages or not.
static int place(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r, kin_err *err) {
    if (kin_kv_load(kv, r->seq, r->first, r->n, r->has_states, err) != 0) return KIN_FAIL;
    for (int i = 0; i < r->n && p && p->borders; i++) kin_border_log_forget(p->borders, kin_kv_block(kv, r->seq, r->first + i));
    return 0;
}

int kin_kv_pages_handle(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r, kin_err *err) {
    kin_assert(r->seq >= 0 && r->first >= 0 && r->n > 0 && r->n <= KIN_PAGES_MAX);
    if (r->drops) {
        if (p && r->has_states) drop_states(p, kv, r, r->n - 1);
        if (p && !r->has_states) drop(p, kv, r);
        return r->n;
    }
    if (!r->loads) return r->has_states ? keep_states(p, kv, r, err) : keep(p, kv, r, err);
    if (place(p, kv, r, err) != 0) return KIN_FAIL;
    return r->recomputes ? r->n : p ? find(p, kv, r) : 0;
}

// ---- recomputing missing pages

// True if the missing pages have hidden states here at the border before the first missing layer.
static bool fetch_borders(kin_kv_pages *p, const kin_page_request *r, const lack *l) {
    int i = l->begin;
    kin_time begun = kin_clock_now();
    kin_border_log_fetch(p->borders, l->layer_begin, r->keys + l->begin, l->end - l->begin, timeout_left_ms(p));
    p->timeout_ms -= kin_clock_ms(begun, kin_clock_now());
    while (i < l->end && kin_border_log_get(p->borders, l->layer_begin, &r->keys[i], NULL)) i++;
    return i == l->end;
}

// Computes the missing pages. Stores the hidden states at the border after these layers for the next member, and for a later
// loss, in the form from which the next layer was computed: rounded if the border was between two devices.
static int compute_pages(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r, const lack *l, const kin_kv_compute *compute,
                         kin_err *err) {
    size_t row = p->n_embd * KIN_KV_CELLS;
    int n = 0, most = l->end - l->begin;
    float *x = malloc((size_t)most * row * sizeof *x);
    if (!x) {
        kin_log(KIN_LOG_WARN, "no memory to recompute layers %d to %d of %d tokens: all layers compute them", l->layer_begin,
                l->layer_end - 1, most * KIN_KV_CELLS);
        return 0;
    }
    while (n < most && kin_border_log_get(p->borders, l->layer_begin, &r->keys[l->begin + n], x + (size_t)n * row)) n++;
    int rc = n == 0 ? 0
                    : compute->layers(compute->user, l->layer_begin, l->layer_end, r->seq, (r->first + l->begin) * KIN_KV_CELLS,
                                      n * KIN_KV_CELLS, x, err);
    bool is_sent = kin_border_set_has(&r->borders, l->layer_end);
    for (int i = 0; i < n && rc == 0 && l->layer_end < kin_kv_n_layers(kv); i++)
        kin_border_log_put(p->borders, l->layer_end, &r->keys[l->begin + i], x + (size_t)i * row, is_sent);
    kin_border_log_settle(p->borders);
    free(x);
    return rc == 0 ? n : KIN_FAIL;
}

// Recomputes the first n pages in consecutive layers of one or more windows. Returns how many of these pages are then valid.
static int recompute_run(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r, int n, int layer_begin, int layer_end,
                         const kin_kv_compute *compute, kin_err *err) {
    lack l = find_pages(p, kv, r, 0, n, layer_begin, layer_end);
    if (l.end == 0) return n;
    if (!fetch_borders(p, r, &l)) { // these are not the lost device's layers, or not from the first one on
        fetch_missing(p, kv, r, l.layer_begin, l.layer_end);
        l = find_pages(p, kv, r, l.begin, l.end, l.layer_begin, l.layer_end);
        if (l.end == 0) return n;
        if (!fetch_borders(p, r, &l) && l.layer_begin != layer_begin) {
            l.layer_begin = layer_begin;
            fetch_borders(p, r, &l);
        }
    }
    int n_computed = compute_pages(p, kv, r, &l, compute, err);
    if (n_computed < 0) return KIN_FAIL;
    return l.begin + n_computed < l.end ? l.begin + n_computed : n;
}

int kin_kv_pages_recompute(kin_kv_pages *p, kin_kv *kv, const kin_page_request *r, const kin_kv_compute *compute, kin_err *err) {
    int n = r->n;
    kin_assert(r->loads && r->recomputes);
    if (!p || !p->borders) return 0;
    p->timeout_ms = r->timeout_ms;
    for (int begin = next_layer(kv, 0), end; begin < kin_kv_n_layers(kv) && n > 0; begin = next_layer(kv, end)) {
        end = end_of_run(kv, begin);
        n = recompute_run(p, kv, r, n, begin, end, compute, err);
    }
    for (int i = 0; i < n; i++) keep_page(p, kv, r, i);
    return n;
}

void kin_kv_pages_pass(kin_kv_pages *p, int il, const int64_t *cells, int n, const float *x) {
    if (p && p->borders) kin_border_log_add(p->borders, il, cells, n, x);
}

void kin_kv_pages_put_border(kin_kv_pages *p, int il, const kin_page_request *r, const float *x) {
    if (!p || !p->borders) return;
    for (int i = 0; i < r->n; i++)
        kin_border_log_put(p->borders, il, &r->keys[i], x + (size_t)i * p->n_embd * KIN_KV_CELLS, true);
    kin_border_log_settle(p->borders);
}

uint64_t kin_kv_pages_bytes(const kin_kv_pages *p) {
    return p && p->borders ? kin_border_log_bytes(p->borders) : 0;
}
