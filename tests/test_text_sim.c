// Texts in simulated clusters, with a seed: the words are those of an undisturbed run, whatever dies while they are written.
//
//     scheduler, KV caches, pages: the real ones      steps, disks, processes, links: of the simulated world, in memory
//
// What a member computes is a chain of hashes: of a token, its position, and in each layer of all that its text has in the KV
// cache there. So a page of another text, a cell that was not filled again, or a token that was computed twice gives another
// text. Members keep pages on disks that survive them, write them some time after they were told, and the next one has copies; a
// process that dies while it writes leaves nothing, or a page that does not open. When the head dies its client asks again.
//
// The world is testkit/cluster_sim.h. This file stands in for pipeline/head.h (a head whose steps are messages of that world),
// engine/kv_store.h (disks) and base/clock.h (its time), by the same names.
// KIN_SIM_SEEDS=n changes how many schedules run, KIN_SIM_SEED=s runs one and tells its story.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/kv_pages.h"
#include "pipeline/scheduler.h"
#include "pipeline/steps.h"
#include "testkit/cluster_sim.h"

enum {
    N_SCHEDULES = 500,
    N_SLOW = 500,
    N_LAYER = 10,
    N_VOCAB = 2,
    N_CTX = 768,
    N_BATCH = 64,
    N_TEXTS = 3,
    MAX_TOKENS = 400,
    N_FAULTS = 14,
    CALM_MS = 20000,
    END_MS = 90000,
    MAX_PAGES = 16384,
    MAX_WRITES = 8192,
    PAGE_BYTES = 2 * 8 * KIN_KV_CELLS, // 8 bytes of keys and 8 of values for each token
    N_EMBD = 4,                        // as many bytes of hidden states
};

typedef struct text {
    int32_t tokens[MAX_TOKENS], expected[MAX_TOKENS]; // the prompt first
    int n_prompt, n, n_most;
    bool is_done;
} text;

typedef enum page_kind { OF_LAYER, OF_TOKENS, OF_BORDER } page_kind;

// A page on a disk.
typedef struct page {
    int node;
    page_kind kind;
    bool is_there, is_torn;
    kin_page_key key;
    uint8_t content[PAGE_BYTES];
} page;

// A page that is being written, and by whom; a copy is fetched from its source first.
typedef struct page_write {
    int node, source; // source -1: it is no copy
    uint32_t life, source_life;
    page_kind kind;
    kin_page_key key;
    uint8_t *content;
} page_write;

typedef struct cache {
    kin_kv *kv;
    kin_kv_pages *pages;
    uint32_t epoch, life;
} cache;

typedef struct step {
    uint64_t number;
    bool is_back, has_pages, has_later; // has_later: the head's part is to be done when it is back
    int n, n_out, n_ops, n_good, il;    // il: the layer that comes next
    int32_t seq[N_BATCH], pos[N_BATCH], out[N_BATCH];
    int64_t cells[N_BATCH]; // the head's
    uint64_t x[N_BATCH];
    float *logits;
    kin_page_request pages;
    kin_kv_op ops[KIN_PROTO_MAX_OPS];
} step;

struct kin_head {
    uint64_t next, done;
    uint32_t life, request;
    int n_ops;
    kin_kv_op ops[KIN_PROTO_MAX_OPS];
    step steps[KIN_STEPS_IN_FLIGHT];
};

typedef struct totals {
    uint64_t n_rings, n_lost, n_restarts, n_written, n_replayed, n_cached, n_torn, n_copied, n_fetched, n_yields, n_asked,
        n_computed, n_recomputed;
} totals;

static struct {
    kin_sim *w;
    kin_head head;
    kin_scheduler *scheduler;
    kin_prefix_pages *prefix;
    text texts[N_TEXTS];
    int n_texts;
    cache caches[KIN_SIM_NODES];
    page pages[MAX_PAGES]; // from 1 on
    int n_pages;
    int places[2 * MAX_PAGES]; // hash table of pages; 0: free
    page_write writes[MAX_WRITES];
    uint32_t n_writes;
    totals totals;
    bool has_slow_pages, has_no_copies, never_has_copies, has_no_borders;
    kin_time late; // what slow pages took so far, for the scheduler's clock only
} t;

// ---- the model

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 29) * 0x94d049bb133111eb;
    return x ^ x >> 32;
}

static uint64_t embed(int32_t id, int32_t pos) {
    return mix((uint64_t)id, (uint64_t)pos);
}

static uint64_t key_of(uint64_t x, int il) {
    return mix(x, (uint64_t)il);
}

// A layer's result, from what it was given and a hash of all keys of the text up to here.
static uint64_t attend(uint64_t x, uint64_t seen) {
    return mix(x, seen);
}

// A sampler with a state: it sees each row once.
static int32_t sample(float logit, int n_made) {
    return (int32_t)(mix((uint64_t)logit, (uint64_t)n_made) % 60000);
}

static float logit_of(uint64_t x) {
    return (float)(x & 0xffffff);
}

static void write_undisturbed(text *x) {
    uint64_t seen[N_LAYER] = {0};
    memcpy(x->expected, x->tokens, (size_t)x->n_prompt * sizeof *x->tokens);
    for (int pos = 0; pos < x->n_prompt + x->n_most - 1; pos++) {
        uint64_t h = embed(x->expected[pos], pos);
        for (int il = 0; il < N_LAYER; il++) {
            seen[il] = mix(seen[il], key_of(h, il));
            h = attend(h, seen[il]);
        }
        if (pos >= x->n_prompt - 1) x->expected[pos + 1] = sample(logit_of(h), pos + 1 - x->n_prompt);
    }
}

// ---- disks (engine/kv_store.h)

struct kin_kv_store {
    int node;
    page_kind kind;
    size_t n_page;
    uint8_t content[PAGE_BYTES];
};

// Its place in the table of hashes, or the free one where it belongs.
static int *place_of(int node, page_kind kind, const kin_page_key *key) {
    for (uint64_t at = kin_hash64(key, sizeof *key, (uint64_t)node * 3 + kind);; at++) {
        int *place = &t.places[at % (2 * MAX_PAGES)];
        const page *p = &t.pages[*place];
        if (*place == 0) return place;
        if (p->node == node && p->kind == kind && memcmp(&p->key, key, sizeof *key) == 0) return place;
    }
}

static page *find_page(int node, page_kind kind, const kin_page_key *key) {
    page *p = &t.pages[*place_of(node, kind, key)];
    return p->is_there ? p : NULL;
}

static void put_page(int node, page_kind kind, const kin_page_key *key, const uint8_t *content, bool is_torn) {
    int *place = place_of(node, kind, key);
    if (*place == 0) *place = ++t.n_pages;
    assert_true(t.n_pages < MAX_PAGES);
    page *p = &t.pages[*place];
    *p = (page){.node = node, .kind = kind, .is_there = true, .is_torn = is_torn, .key = *key};
    memcpy(p->content, content, kind == OF_TOKENS ? 4 * KIN_KV_CELLS : PAGE_BYTES);
}

static void begin_write(page_write write, kin_time at) {
    uint32_t i = t.n_writes++ % MAX_WRITES;
    assert_null(t.writes[i].content);
    t.writes[i] = write;
    kin_sim_push(t.w, (kin_sim_event){.at = at, .what = KIN_SIM_WRITTEN, .ticket = i});
}

// The next member that keeps pages; the head has its own.
static int buddy_of(int node) {
    for (int i = 0; i + 1 < t.w->n_planned; i++) {
        if (t.w->planned[i] == node) return t.w->planned[i + 1];
    }
    return KIN_SIM_HEAD;
}

static bool lives(int node, uint32_t life) {
    return t.w->nodes[node].runs && t.w->nodes[node].life == life;
}

static void copy_to_buddy(const page_write *of) {
    int buddy = buddy_of(of->node);
    page_write copy = *of;
    copy.node = buddy;
    copy.life = t.w->nodes[buddy].life;
    copy.source = of->node;
    copy.source_life = of->life;
    copy.content = malloc(PAGE_BYTES);
    assert_non_null(copy.content);
    memcpy(copy.content, of->content, PAGE_BYTES);
    begin_write(copy, t.w->now + kin_sim_between_ms(t.w, 5, 100));
}

// KIN_SIM_WRITTEN: it is, if its process has lived so long.
static void written(uint32_t i) {
    page_write *p = &t.writes[i];
    bool has_source = p->source < 0 || lives(p->source, p->source_life), is_whole = lives(p->node, p->life);
    bool is_torn = !is_whole && kin_sim_below(t.w, 2) == 0;
    if (has_source && (is_whole || is_torn)) put_page(p->node, p->kind, &p->key, p->content, is_torn);
    t.totals.n_torn += has_source && is_torn;
    t.totals.n_copied += has_source && is_whole && p->source >= 0;
    bool is_copied = p->kind == OF_LAYER && p->source < 0 && p->node != KIN_SIM_HEAD && !t.has_no_copies;
    if (is_whole && is_copied && t.w->nodes[KIN_SIM_HEAD].runs) copy_to_buddy(p);
    free(p->content);
    p->content = NULL;
}

static page_kind kind_of(const uint8_t variant[KIN_KV_VARIANT_BYTES]) {
    if (strcmp((const char *)variant, "tokens") == 0) return OF_TOKENS;
    return variant[KIN_KV_VARIANT_BYTES - 1] ? OF_BORDER : OF_LAYER;
}

int kin_kv_store_open(kin_kv_store **out, const kin_kv_disk *disk, const uint8_t variant[KIN_KV_VARIANT_BYTES], size_t n_page,
                      kin_err *err) {
    (void)err;
    kin_kv_store *s = *out = calloc(1, sizeof *s);
    assert_non_null(s);
    *s = (kin_kv_store){.node = disk->dir[0] - '0', .kind = kind_of(variant), .n_page = n_page};
    assert_true(n_page <= sizeof s->content);
    return 0;
}

void kin_kv_store_close(kin_kv_store *s) {
    free(s);
}

bool kin_kv_store_has(const kin_kv_store *s, const kin_page_key *key) {
    return find_page(s->node, s->kind, key) != NULL;
}

bool kin_kv_store_is_queued(kin_kv_store *s, const kin_page_key *key) {
    bool is = false;
    for (int i = 0; i < MAX_WRITES && !is; i++) {
        const page_write *p = &t.writes[i];
        is = p->content && p->node == s->node && p->kind == s->kind && memcmp(&p->key, key, sizeof *key) == 0;
    }
    return is;
}

uint8_t *kin_kv_store_begin(kin_kv_store *s) {
    (void)s;
    if (kin_sim_below(t.w, 50) == 0) return NULL; // the disk is behind
    uint8_t *content = malloc(PAGE_BYTES);
    assert_non_null(content);
    return content;
}

void kin_kv_store_keep(kin_kv_store *s, const kin_page_key *key, uint8_t *content) {
    page_write write = {
        .node = s->node, .source = -1, .life = t.w->nodes[s->node].life, .kind = s->kind, .key = *key, .content = content};
    begin_write(write, t.w->now + kin_sim_between_ms(t.w, 1, kin_sim_below(t.w, 8) ? 10 : 400));
}

// What was passed on: others ask for it next. Sometimes the disk takes longer than one waits.
void kin_kv_store_settle(kin_kv_store *s) {
    if (s->kind != OF_BORDER || kin_sim_below(t.w, 40) == 0) return;
    for (int i = 0; i < MAX_WRITES; i++) {
        page_write *p = &t.writes[i];
        if (p->content && p->node == s->node && p->kind == s->kind) put_page(p->node, p->kind, &p->key, p->content, false);
    }
}

void kin_kv_store_remove(kin_kv_store *s, const kin_page_key *key) {
    page *p = find_page(s->node, s->kind, key);
    if (p) p->is_there = false;
}

static bool reaches(int from, int to) {
    const kin_sim_node *n = &t.w->nodes[from];
    return n->runs && n->frozen_until <= t.w->now && t.w->cut_until[from][to] <= t.w->now;
}

// At once, or not in time.
void kin_kv_store_fetch(kin_kv_store *s, const kin_page_key *keys, int n, int patience_ms) {
    assert_true(patience_ms > 0);
    for (int i = 0; i < n; i++) {
        const page *found = NULL;
        for (int from = 0; from < t.w->n_nodes && !found; from++) {
            if (from != s->node && reaches(from, s->node)) found = find_page(from, s->kind, &keys[i]);
        }
        if (!found || kin_sim_below(t.w, 40) == 0) continue;
        page copy = *found;
        put_page(s->node, copy.kind, &copy.key, copy.content, copy.is_torn);
        t.totals.n_fetched++;
    }
}

const uint8_t *kin_kv_store_read(kin_kv_store *s, const kin_page_key *key) {
    page *p = find_page(s->node, s->kind, key);
    if (!p) return NULL;
    if (p->is_torn) {
        p->is_there = false;
        return NULL;
    }
    memcpy(s->content, p->content, s->n_page);
    return s->content;
}

// ---- members

static const kin_device *on_cpu(const void *user, int il) {
    (void)il;
    return user;
}

// The head is the last member.
static kin_window window_of(int node) {
    int n = t.w->n_planned + 1, i = 0;
    while (i < t.w->n_planned && t.w->planned[i] != node) i++;
    assert_true(i < t.w->n_planned || node == KIN_SIM_HEAD);
    return (kin_window){.layer_begin = i * N_LAYER / n, .layer_end = (i + 1) * N_LAYER / n};
}

static void close_cache(cache *c) {
    kin_kv_pages_close(c->pages);
    kin_kv_close(c->kv);
    *c = (cache){0};
}

// Of this epoch and this life: another one begins empty.
static cache *cache_of(int node, uint32_t epoch) {
    static const kin_device cpu;
    static const uint8_t variant[KIN_KV_VARIANT_BYTES] = "keys and values";
    cache *c = &t.caches[node];
    kin_hparams hp = {.n_layer = N_LAYER, .n_embd = N_EMBD, .n_head = 1, .n_head_kv = 1, .head_dim = 4};
    kin_window w = window_of(node);
    kin_kv_options o = {.windows = kin_windows_one(w.layer_begin, w.layer_end, 0), .n_ctx = N_CTX, .type = GGML_TYPE_F16};
    char dir[] = {(char)('0' + node), 0};
    kin_kv_disk disk = {.dir = dir};
    kin_err err;
    if (c->kv && c->epoch == epoch && c->life == t.w->nodes[node].life) return c;
    close_cache(c);
    *c = (cache){.epoch = epoch, .life = t.w->nodes[node].life};
    if (kin_kv_open(&c->kv, &hp, &o, on_cpu, &cpu, &err) != 0 ||
        kin_kv_pages_open(&c->pages, c->kv, t.has_no_borders ? 0 : N_EMBD, N_BATCH, &disk, variant, &err) != 0)
        fail_msg("%s", err.text);
    assert_true(kin_kv_page_bytes(c->kv) == PAGE_BYTES);
    return c;
}

static uint64_t *cell_at(struct ggml_tensor *tensor, int64_t cell) {
    return (uint64_t *)((char *)tensor->data + (size_t)cell * tensor->nb[1]);
}

// Of n tokens: x // [n] before the layer -> after it
static void compute_layer(const cache *c, int il, const int32_t *seq, const int32_t *pos, const int64_t *cells, int n,
                          uint64_t *x) {
    int32_t table[N_CTX / KIN_KV_CELLS];
    for (int i = 0; i < n; i++) {
        int before = pos[i] - 1;
        uint64_t seen = 0;
        if (before >= 0) {
            kin_kv_table(c->kv, seq[i], table);
            seen = *cell_at(kin_kv_v(c->kv, il), (int64_t)table[before / KIN_KV_CELLS] * KIN_KV_CELLS + before % KIN_KV_CELLS);
        }
        uint64_t key = key_of(x[i], il);
        *cell_at(kin_kv_k(c->kv, il), cells[i]) = key;
        *cell_at(kin_kv_v(c->kv, il), cells[i]) = seen = mix(seen, key);
        x[i] = attend(x[i], seen);
    }
    t.totals.n_computed += (uint64_t)n;
}

static kin_batch batch_of(const step *s) {
    return (kin_batch){.n_tokens = s->n, .pos = s->pos, .seq = s->seq, .ops = s->ops, .n_ops = s->n_ops};
}

static void place(cache *c, const step *s, int64_t *cells) {
    kin_batch batch = batch_of(s);
    kin_err err;
    if (kin_kv_place(c->kv, &batch, cells, NULL, &err) != 0) fail_msg("%s", err.text);
}

static void take_pages(cache *c, step *s) {
    kin_err err;
    int n = kin_kv_pages_take(c->pages, c->kv, &s->pages, &err);
    if (n < 0) fail_msg("%s", err.text);
    if (n < s->n_good) s->n_good = n;
}

// Hidden states as rows of floats.
static void put_rows(float *rows, const uint64_t *x, int n) {
    for (int i = 0; i < n; i++) memcpy(rows + i * N_EMBD, &x[i], sizeof x[i]);
}

// kin_kv_compute: a token after the other.
static int compute_lost(void *user, int layer_begin, int layer_end, int32_t seq, int pos, int n, float *rows, kin_err *err) {
    const cache *c = user;
    (void)err;
    for (int i = 0; i < n; i++) {
        int32_t at = pos + i;
        int64_t cell = (int64_t)kin_kv_block(c->kv, seq, at / KIN_KV_CELLS) * KIN_KV_CELLS + at % KIN_KV_CELLS;
        uint64_t x;
        memcpy(&x, rows + i * N_EMBD, sizeof x);
        for (int il = layer_begin; il < layer_end; il++) compute_layer(c, il, &seq, &at, &cell, 1, &x);
        put_rows(rows + i * N_EMBD, &x, 1);
    }
    t.totals.n_recomputed += (uint64_t)n;
    return 0;
}

static void recompute(cache *c, step *s) {
    const kin_kv_compute compute = {.layers = compute_lost, .user = c};
    kin_page_request r = s->pages;
    kin_err err;
    if (!r.recomputes || s->n_good == 0) return;
    r.n = s->n_good;
    s->n_good = kin_kv_pages_recompute(c->pages, c->kv, &r, &compute, &err);
    assert_in_range(s->n_good, 0, r.n);
}

static void compute_window(const cache *c, step *s, int node, const int64_t *cells) {
    kin_window w = window_of(node);
    float rows[N_BATCH * N_EMBD] = {0};
    assert_int_equal(s->il, w.layer_begin); // no layer twice, none left out
    for (; s->il < w.layer_end; s->il++) compute_layer(c, s->il, s->seq, s->pos, cells, s->n, s->x);
    put_rows(rows, s->x, s->n);
    if (s->il < N_LAYER) kin_kv_pages_pass(c->pages, s->il, cells, s->n, rows);
}

// kin_sim_steps
static void compute(void *user, int node, uint64_t number) {
    (void)user;
    step *s = &t.head.steps[number % KIN_STEPS_IN_FLIGHT];
    int64_t cells[N_BATCH];
    if (s->number != number) return; // it was given up
    cache *c = cache_of(node, t.w->request_epoch);
    place(c, s, cells);
    if (!s->has_pages) {
        compute_window(c, s, node, cells);
        return;
    }
    take_pages(c, s);
    recompute(c, s);
}

static void finish(step *s) {
    compute_window(cache_of(KIN_SIM_HEAD, t.w->request_epoch), s, KIN_SIM_HEAD, s->cells);
    assert_int_equal(s->il, N_LAYER);
    for (int i = 0; i < s->n_out; i++) s->logits[i * N_VOCAB] = logit_of(s->x[s->out[i]]);
}

static void came_back(void *user, uint64_t number) {
    (void)user;
    step *s = &t.head.steps[number % KIN_STEPS_IN_FLIGHT];
    if (s->number != number) return;
    cache *c = cache_of(KIN_SIM_HEAD, t.w->request_epoch);
    if (!s->has_pages) finish(s);
    if (s->has_pages && s->has_later && !s->pages.loads) take_pages(c, s);
    if (s->has_pages && s->has_later && s->pages.loads) recompute(c, s);
    s->has_later = false;
    if (s->has_pages && s->pages.loads && t.has_slow_pages) t.late += 50000 * KIN_SIM_MS;
    s->is_back = true;
}

// ---- the head (pipeline/head.h)

static bool pump(void); // one thing happens

int kin_head_n_batch(const kin_head *h) {
    (void)h;
    return N_BATCH;
}

int kin_head_n_members(const kin_head *h) {
    (void)h;
    return t.w->n_planned + 1;
}

int kin_head_n_chunk(const kin_head *h, int n) {
    return kin_prompt_chunk_tokens(n, kin_head_n_members(h), N_BATCH);
}

bool kin_head_is_exact(const kin_head *h) {
    (void)h;
    return true;
}

bool kin_head_pages_stay_behind(const kin_head *h) {
    (void)h;
    return true;
}

bool kin_head_has_room(const kin_head *h) {
    return h->next - h->done < KIN_STEPS_IN_FLIGHT;
}

// As the real one.
static void forget_own_pages(kin_head *h, const kin_kv_op *op) {
    for (int i = 0; i < KIN_STEPS_IN_FLIGHT; i++) {
        step *s = &h->steps[i];
        if (s->number == UINT64_MAX || !s->has_pages || !s->has_later || (op->seq >= 0 && s->pages.seq != op->seq)) continue;
        if (op->seq == op->from && op->n >= (s->pages.first + s->pages.n) * KIN_KV_CELLS) continue;
        s->has_later = false;
        s->n_good = 0;
    }
}

int kin_head_change(kin_head *h, kin_kv_op op, kin_err *err) {
    forget_own_pages(h, &op);
    if (op.seq < 0) h->n_ops = 0;
    if (h->n_ops == KIN_PROTO_MAX_OPS) return kin_err_set(err, "too many changes");
    h->ops[h->n_ops++] = op;
    return 0;
}

void kin_head_clear(kin_head *h) {
    kin_err err;
    assert_int_equal(kin_head_change(h, (kin_kv_op){-1, -1, 0}, &err), 0);
}

// The head has its cells when it sends, in the order of the steps.
static void send(kin_head *h, step *s) {
    memcpy(s->ops, h->ops, (size_t)h->n_ops * sizeof *h->ops);
    s->n_ops = h->n_ops;
    h->n_ops = 0;
    s->is_back = false;
    s->il = 0;
    s->number = h->next++;
    cache *c = cache_of(KIN_SIM_HEAD, t.w->request_epoch);
    place(c, s, s->cells);
    if (s->has_pages && s->pages.loads) take_pages(c, s);
    s->has_later = s->has_pages && (s->pages.recomputes || !s->pages.loads);
    kin_sim_send_step(t.w, s->number);
}

int kin_head_send(kin_head *h, const kin_head_step *o, uint64_t *number, kin_err *err) {
    (void)err;
    step *s = &h->steps[h->next % KIN_STEPS_IN_FLIGHT];
    *number = h->next;
    s->has_pages = false;
    s->n = o->n;
    s->n_out = o->n_out;
    s->logits = o->logits;
    memcpy(s->seq, o->seq, (size_t)o->n * sizeof *o->seq);
    memcpy(s->pos, o->pos, (size_t)o->n * sizeof *o->pos);
    if (o->n_out) memcpy(s->out, o->out, (size_t)o->n_out * sizeof *o->out);
    for (int i = 0; i < o->n; i++) s->x[i] = embed(o->tokens[i], o->pos[i]);
    send(h, s);
    return 0;
}

static void put_embeddings(const kin_page_request *r, const int32_t *tokens) {
    float rows[KIN_PAGES_MAX * KIN_KV_CELLS * N_EMBD] = {0};
    for (int i = 0; i < r->n * KIN_KV_CELLS; i++) {
        uint64_t x = embed(tokens[i], r->first * KIN_KV_CELLS + i);
        put_rows(rows + i * N_EMBD, &x, 1);
    }
    kin_kv_pages_put_border(cache_of(KIN_SIM_HEAD, t.w->request_epoch)->pages, 0, r, rows);
}

int kin_head_send_pages(kin_head *h, const kin_page_request *request, const int32_t *tokens, uint64_t *number, kin_err *err) {
    (void)err;
    if (request->recomputes) put_embeddings(request, tokens);
    step *s = &h->steps[h->next % KIN_STEPS_IN_FLIGHT];
    *number = h->next;
    if (request->loads && !request->recomputes) t.totals.n_asked += (uint64_t)request->n;
    s->has_pages = true;
    s->pages = *request;
    s->n = s->n_out = 0;
    s->n_good = request->n;
    send(h, s);
    return 0;
}

int kin_head_n_good(const kin_head *h, uint64_t number) {
    return h->steps[number % KIN_STEPS_IN_FLIGHT].n_good;
}

static bool is_lost(const kin_head *h) {
    return !lives(KIN_SIM_HEAD, h->life) || t.w->request != h->request;
}

int kin_head_receive(kin_head *h, const kin_head_meanwhile *meanwhile, uint64_t *number, kin_err *err) {
    (void)meanwhile;
    step *s = &h->steps[h->done % KIN_STEPS_IN_FLIGHT];
    bool goes_on = true;
    while (!s->is_back && !is_lost(h) && goes_on) goes_on = pump();
    if (!s->is_back || is_lost(h)) {
        h->done = h->next;
        for (int i = 0; i < KIN_STEPS_IN_FLIGHT; i++) h->steps[i].number = UINT64_MAX;
        return kin_err_set(err, "the ring is lost");
    }
    *number = h->done++;
    return 0;
}

// No text has a draft model: that would be computed by a head of its own.
void kin_draft_model_end(kin_draft_model *m, uint64_t text) {
    (void)m, (void)text;
}

kin_draft_spent kin_draft_model_propose(kin_draft_model *m, const kin_draft_wish *wishes, int n, const kin_draft_limits *limits) {
    (void)m, (void)wishes, (void)n, (void)limits;
    return (kin_draft_spent){0};
}

kin_draft_spent kin_draft_model_go_on(kin_draft_model *m, const kin_draft_wish *wishes, int n, const kin_draft_limits *limits) {
    (void)m, (void)wishes, (void)n, (void)limits;
    return (kin_draft_spent){0};
}

int kin_draft_model_n_known(const kin_draft_model *m, const kin_draft_wish *wish) {
    (void)m, (void)wish;
    return 0;
}

// For steps in flight at once, which no text is in.
const kin_head_counts *kin_head_get_counts(const kin_head *h) {
    (void)h;
    return NULL;
}

kin_token_times kin_head_token_times(const kin_head_counts *counts) {
    (void)counts;
    return (kin_token_times){0};
}

kin_time kin_clock_now(void) {
    return t.w ? t.w->now + t.late : 1;
}

// ---- faults

static kin_time until_calm(kin_time at) {
    return at < t.w->calm_at ? at : t.w->calm_at;
}

static void crash(int node, uint64_t most_ms) {
    if (!t.w->nodes[node].runs) return;
    kin_sim_stop(t.w, node, kin_sim_below(t.w, 2) == 0);
    kin_sim_push(t.w, (kin_sim_event){.at = until_calm(t.w->now + kin_sim_between_ms(t.w, 20, most_ms)),
                                      .what = KIN_SIM_RESTART,
                                      .node = node});
}

static kin_time a_while(void) {
    return until_calm(t.w->now +
                      (kin_sim_below(t.w, 2) ? kin_sim_between_ms(t.w, 50, 1400) : kin_sim_between_ms(t.w, 2000, 6000)));
}

static void freeze(int node) {
    KIN_SIM_TELL(t.w, "%d freezes", node);
    t.w->nodes[node].frozen_until = a_while();
}

static void cut(int a, int b) {
    if (a == b) return;
    KIN_SIM_TELL(t.w, "cut between %d and %d", a, b);
    t.w->cut_until[a][b] = t.w->cut_until[b][a] = a_while();
}

static void fault(void) {
    int node = kin_sim_below(t.w, 8) == 0 ? KIN_SIM_HEAD : 1 + (int)kin_sim_below(t.w, (uint64_t)t.w->n_nodes - 1);
    int other = (int)kin_sim_below(t.w, (uint64_t)t.w->n_nodes);
    if (!t.w->nodes[node].runs || kin_sim_is_frozen(t.w, node)) return;
    switch (kin_sim_below(t.w, 6)) {
    case 0: crash(node, 6000); break;
    case 1: crash(node, 250); break; // it flaps
    case 2:                          // with the one that has its copies
        other = buddy_of(node);
        crash(node, 6000);
        crash(other, 6000);
        break;
    case 3: freeze(node); break;
    case 4: cut(node, other); break;
    case 5: cut(node, KIN_SIM_HEAD); break;
    }
}

static bool pump(void) {
    if (t.w->n_queue == 0 || t.w->queue[0].at >= END_MS * KIN_SIM_MS) return false;
    kin_sim_event e = kin_sim_pop(t.w);
    kin_sim_happen(t.w, &e);
    if (e.what == KIN_SIM_WRITTEN) written(e.ticket);
    if (e.what == KIN_SIM_FAULT) fault();
    return true;
}

// ---- texts

static int32_t next(void *user, float *logits) {
    text *x = user;
    int n_made = x->n - x->n_prompt;
    if (n_made == x->n_most) return KIN_GENERATION_NO_TOKEN;
    t.totals.n_written++;
    return x->tokens[x->n++] = sample(logits[0], n_made);
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    text *x = user;
    if (how == KIN_GENERATION_FAILED) fail_msg("%s", why->text);
    assert_int_equal(how, KIN_GENERATION_DONE);
    assert_false(x->is_done);
    x->is_done = true;
}

// As after a start of the head: what was written before is forgotten, and asked for again.
static void ask(text *x) {
    kin_generation_options o = {.prompt = x->tokens, .n_prompt = x->n_prompt, .next = next, .ended = ended, .user = x};
    kin_generation *g;
    kin_err err;
    x->n = x->n_prompt;
    if (kin_scheduler_submit(t.scheduler, &o, &g, &err) != 0) fail_msg("%s", err.text);
}

static void open_scheduler(void) {
    kin_prefix_pages_options po = {.disk = {.dir = "0"}, .context = "c", .n_context = 1};
    kin_err err;
    if (kin_prefix_pages_open(&t.prefix, &po, &err) != 0) fail_msg("%s", err.text);
    kin_scheduler_options o = {.n_ctx = N_CTX, .n_vocab = N_VOCAB, .n_parallel = N_TEXTS, .keeps = true, .pages = t.prefix};
    if (kin_scheduler_open(&t.scheduler, &o, &err) != 0) fail_msg("%s", err.text);
    t.head.life = t.w->nodes[KIN_SIM_HEAD].life;
    for (int i = 0; i < t.n_texts; i++) {
        if (!t.texts[i].is_done) ask(&t.texts[i]);
    }
}

static void close_scheduler(void) {
    if (t.scheduler) {
        kin_scheduler_stats stats = kin_scheduler_get_stats(t.scheduler);
        t.totals.n_replayed += stats.n_replayed_tokens;
        t.totals.n_cached += stats.n_cached_tokens;
    }
    kin_scheduler_close(t.scheduler);
    kin_prefix_pages_close(t.prefix);
    t.scheduler = NULL;
    t.prefix = NULL;
}

static bool all_done(void) {
    for (int i = 0; i < t.n_texts; i++) {
        if (!t.texts[i].is_done) return false;
    }
    return true;
}

// Until the ring is lost, all is written, or a better plan waits: as node/compute_loop.c.
static void write_texts(void) {
    bool busy = true;
    kin_err err;
    kin_sim_begin_request(t.w);
    t.head.request = t.w->request;
    t.totals.n_rings++;
    if (kin_scheduler_set_head(t.scheduler, &t.head, &err) != 0) fail_msg("%s", err.text);
    while (busy && !kin_membership_yields(t.w->membership)) {
        if (kin_scheduler_step(t.scheduler, &busy, &err) != 0) {
            t.totals.n_lost++;
            return;
        }
    }
    t.totals.n_yields += busy;
    if (kin_scheduler_settle(t.scheduler, &err) == 0) kin_sim_end_request(t.w, false);
}

static bool is_up(void) {
    return t.w->nodes[KIN_SIM_HEAD].runs && t.w->request == 0 && !kin_sim_is_frozen(t.w, KIN_SIM_HEAD) &&
           kin_membership_state_now(t.w->membership) == KIN_MEMBERSHIP_SERVING;
}

static void write_all(void) {
    for (bool goes_on = true; goes_on && !all_done();) {
        bool is_other = t.scheduler && !lives(KIN_SIM_HEAD, t.head.life);
        if (is_other) {
            close_scheduler();
            t.totals.n_restarts++;
        }
        if (!is_up()) {
            goes_on = pump();
            continue;
        }
        if (!t.scheduler) open_scheduler();
        write_texts();
    }
}

// ---- a schedule

// Two of them begin alike, and the third one has their second block behind another first one.
static int32_t prompt_token(int i, int k) {
    int which = i == 2 ? (k < KIN_KV_CELLS ? 4 : k < 80 ? 1 : 2) : k < 80 ? 1 : i + 2;
    return which * (k + 3) % 60000;
}

static void make_texts(void) {
    t.n_texts = 1 + (int)kin_sim_below(t.w, N_TEXTS);
    for (int i = 0; i < t.n_texts; i++) {
        text *x = &t.texts[i];
        *x = (text){.n_prompt = 1 + (int)kin_sim_below(t.w, 200), .n_most = 40 + (int)kin_sim_below(t.w, 120)};
        for (int k = 0; k < x->n_prompt; k++) x->tokens[k] = prompt_token(i, k);
        write_undisturbed(x);
    }
}

static void set_up(kin_sim *w, kin_sim_totals *of_world, uint64_t seed) {
    kin_rng_seed(&w->rng, seed);
    w->n_nodes = 2 + (int)kin_sim_below(w, 5);
    w->calm_at = CALM_MS * KIN_SIM_MS;
    w->totals = of_world;
    t.has_no_copies = t.never_has_copies || seed % 3 == 0;
    w->steps = (kin_sim_steps){.compute = compute, .back = came_back};
    for (int i = 0; i < w->n_nodes; i++)
        kin_sim_push(w, (kin_sim_event){.at = kin_sim_between_ms(w, 0, 3000), .what = KIN_SIM_RESTART, .node = i});
    for (int i = 0; i < N_FAULTS; i++)
        kin_sim_push(w, (kin_sim_event){.at = kin_sim_between_ms(w, 1500, CALM_MS - 1), .what = KIN_SIM_FAULT});
}

static void tear_down(void) {
    close_scheduler();
    for (int i = 0; i < KIN_SIM_NODES; i++) close_cache(&t.caches[i]);
    for (int i = 0; i < MAX_WRITES; i++) {
        free(t.writes[i].content);
        t.writes[i].content = NULL;
    }
    memset(t.places, 0, sizeof t.places);
    t.n_pages = 0;
    t.n_writes = 0;
    kin_membership_free(t.w->membership);
    for (int i = 1; i < t.w->n_nodes; i++) kin_member_free(t.w->nodes[i].member);
    free(t.w);
    t.w = NULL;
}

static void run_schedule(uint64_t seed, bool tells) {
    static kin_sim_totals of_world;
    t.w = calloc(1, sizeof *t.w);
    assert_non_null(t.w);
    t.w->tells = tells;
    t.head = (kin_head){.next = 1, .done = 1};
    for (int i = 0; i < KIN_STEPS_IN_FLIGHT; i++) t.head.steps[i].number = UINT64_MAX;
    set_up(t.w, &of_world, seed);
    make_texts();
    write_all();
    for (int i = 0; i < t.n_texts; i++) {
        const text *x = &t.texts[i];
        if (!x->is_done) fail_msg("text %d has %d of %d tokens", i, x->n - x->n_prompt, x->n_most);
        assert_int_equal(x->n, x->n_prompt + x->n_most);
        assert_memory_equal(x->tokens, x->expected, (size_t)x->n * sizeof *x->tokens);
    }
    tear_down();
}

static void whatever_dies_a_text_is_that_of_an_undisturbed_run(void **state) {
    (void)state;
    const char *one = getenv("KIN_SIM_SEED"), *many = getenv("KIN_SIM_SEEDS");
    if (one) {
        run_schedule(strtoull(one, NULL, 10), true);
        return;
    }
    uint64_t n = many ? strtoull(many, NULL, 10) : N_SCHEDULES;
    for (uint64_t seed = 0; seed < n; seed++) {
        fprintf(stderr, "\rseed %llu ", (unsigned long long)seed); // which one it was, if it ends here
        run_schedule(seed, false);
    }
    const totals *c = &t.totals;
    printf("%llu rings, %llu lost, %llu left for a better plan, %llu starts of a head with texts unfinished; %llu tokens, %llu "
           "computed again, %llu from pages or others; pages: %llu copied, %llu fetched, %llu torn; %llu computed in lost layers "
           "only\n",
           (unsigned long long)c->n_rings, (unsigned long long)c->n_lost, (unsigned long long)c->n_yields,
           (unsigned long long)c->n_restarts, (unsigned long long)c->n_written, (unsigned long long)c->n_replayed,
           (unsigned long long)c->n_cached, (unsigned long long)c->n_copied, (unsigned long long)c->n_fetched,
           (unsigned long long)c->n_torn, (unsigned long long)c->n_recomputed);
    assert_true(c->n_lost > n && c->n_yields > n / 10 && c->n_restarts > n / 10); // else nothing was tested
    assert_true(c->n_cached > 64 * n && c->n_copied > n && c->n_fetched > n && c->n_torn > n / 25);
}

// Pages that were asked for.
static uint64_t count_asked(bool has_slow_pages) {
    uint64_t before = t.totals.n_asked;
    t.has_slow_pages = has_slow_pages;
    for (uint64_t seed = 0; seed < N_SLOW; seed++) run_schedule(seed, false);
    t.has_slow_pages = false;
    return t.totals.n_asked - before;
}

// What computing gives sooner is computed, once a page or two have shown it.
static void slow_pages_are_left(void **state) {
    (void)state;
    uint64_t quick = count_asked(false), slow = count_asked(true);
    printf("%llu pages asked for, %llu where they are slow\n", (unsigned long long)quick, (unsigned long long)slow);
    assert_in_range(slow, 1, quick - quick / 100);
}

static uint64_t count_computed(bool has_no_borders) {
    uint64_t before = t.totals.n_computed;
    t.has_no_borders = has_no_borders;
    for (uint64_t seed = 0; seed < N_SLOW; seed++) run_schedule(seed, false);
    t.has_no_borders = false;
    return t.totals.n_computed - before;
}

// Layers that nobody has pages of are computed alone.
static void lost_layers_are_computed_alone(void **state) {
    (void)state;
    t.never_has_copies = true;
    uint64_t n_recomputed = t.totals.n_recomputed, some = count_computed(false);
    n_recomputed = t.totals.n_recomputed - n_recomputed;
    uint64_t all = count_computed(true);
    t.never_has_copies = false;
    printf(
        "without copies: %llu tokens in a layer computed, %llu tokens in lost layers only; %llu without logs of what was passed "
        "on\n",
        (unsigned long long)some, (unsigned long long)n_recomputed, (unsigned long long)all);
    assert_true(n_recomputed > 10 * N_SLOW);
    assert_in_range(some, 1, all - all / 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whatever_dies_a_text_is_that_of_an_undisturbed_run),
                                       cmocka_unit_test(slow_pages_are_left), cmocka_unit_test(lost_layers_are_computed_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
