// Generation in simulated clusters, by seed: the output is that of an undisturbed run, whatever fails meanwhile.
//
//     real: scheduler, KV caches, pages      simulated in memory: steps, disks, processes, links
//
// A member computes a chain of hashes: of a token, its position, and in each layer of everything that its sequence has in the KV
// cache there. So a page of another sequence, a cell that was not filled again, or a token that was computed twice changes the
// output. Members keep pages on disks that survive them and write them some time after the request; the next member has copies. A
// process that dies while it writes leaves nothing, or a page that does not open. If the head dies its client asks again.
//
// Sequences have drafts: chains, trees, or several steps ahead. A device may skip a step that a later one rolls back. Some
// requests are cancelled and sent again. Some devices keep no pages. Faults happen at random times or are aimed at events, such
// as the copying of a page.
//
// testkit/sim/cluster.h simulates the cluster. This file replaces pipeline/head.h (a head whose steps are simulated messages),
// engine/kv/store.h (disks) and base/clock.h (simulated time) by functions of the same names. KIN_SIM_SEEDS=n sets the number of
// schedules, KIN_SIM_FIRST=s the first seed; KIN_SIM_SEED=s runs one schedule and prints its events.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/kv/pages.h"
#include "pipeline/scheduler.h"
#include "pipeline/steps.h"
#include "testkit/sanitized.h"
#include "testkit/sim/disks.h"
#include "testkit/sim/faults.h"
#include "testkit/sim/model.h"
#include "tests/place.h"

enum {
    N_SCHEDULES = KIN_SANITIZED ? 250 : 500,
    N_SLOW = KIN_SANITIZED ? 200 : 250,
    N_LAYER = 10,
    N_VOCAB = 2,
    N_CTX = 768,
    N_BATCH = 64,
    N_REQUESTS = 5,
    N_PARALLEL = 3,
    MAX_TOKENS = 400,
    N_FAULTS = 14,
    CALM_MS = 20000,
    END_MS = 90000,
    N_EMBD = 4, // 16 bits each, see put_rows
};

typedef struct request {
    int32_t tokens[MAX_TOKENS], expected[MAX_TOKENS]; // both begin with the prompt
    int n_prompt, n, n_most;
    kin_sim_guesses guesses;
    bool is_done;
    kin_draft_source drafts;
    kin_generation *generation; // NULL: not submitted
} request;

typedef struct cache {
    kin_kv *kv;
    kin_kv_pages *pages;
    uint32_t epoch, life;
} cache;

typedef struct step {
    uint64_t number;
    uint32_t left_out_by;                             // the set of nodes that skipped the step
    bool is_back, is_forgotten, has_pages, has_later; // has_later: the head does its part when the step is back
    int n, n_out, n_ops, n_good, il;                  // il: the next layer
    int32_t seq[N_BATCH], pos[N_BATCH], out[N_BATCH];
    int64_t cells[N_BATCH]; // the head's cells
    kin_kv_copies copies;   // the head's copies
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
    uint64_t n_rings, n_lost, n_restarts, n_written, n_replayed, n_cached, n_fetched, n_yields, n_asked, n_computed, n_recomputed,
        n_cancelled, n_dropped, n_forgotten, n_drafted, n_right, n_branches;
} totals;

static struct {
    kin_sim *w;
    kin_head head;
    kin_scheduler *scheduler;
    kin_prefix_pages *prefix;
    request requests[N_REQUESTS];
    int n_requests, draft_least;
    bool is_ahead; // sequences have several steps in flight
    cache caches[KIN_SIM_NODES];
    totals totals;
    bool is_settled; // nothing is in flight
    bool is_plain;   // no drafts, no cancelled requests, no aimed faults
    bool has_slow_pages, never_has_copies, has_no_borders;
    kin_time late; // time that slow pages took so far; only the scheduler's clock includes it
} t;
static kin_sim_disks disks;
static kin_sim_faults faults;

// ---- disks (engine/kv/store.h)

struct kin_kv_store {
    int node;
    kin_sim_page_kind kind;
    size_t n_page;
    uint8_t content[KIN_SIM_PAGE_BYTES];
};

static kin_sim_page_kind kind_of(const uint8_t variant[KIN_KV_VARIANT_BYTES]) {
    if (strcmp((const char *)variant, "tokens, borders") == 0) return KIN_SIM_OF_TOKENS;
    return variant[KIN_KV_VARIANT_BYTES - 1] ? KIN_SIM_OF_BORDER : KIN_SIM_OF_LAYER;
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
    return kin_sim_find_page(&disks, s->node, s->kind, key) != NULL;
}

bool kin_kv_store_is_queued(kin_kv_store *s, const kin_page_key *key) {
    return kin_sim_is_writing(&disks, s->node, s->kind, key);
}

uint8_t *kin_kv_store_begin(kin_kv_store *s) {
    (void)s;
    if (kin_sim_below(t.w, 50) == 0) return NULL; // as if the disk's queue were full
    uint8_t *content = malloc(KIN_SIM_PAGE_BYTES);
    assert_non_null(content);
    return content;
}

uint8_t *kin_kv_store_begin_within(kin_kv_store *s, int timeout_ms) {
    (void)timeout_ms;
    return kin_kv_store_begin(s);
}

void kin_kv_store_keep(kin_kv_store *s, const kin_page_key *key, uint8_t *content) {
    kin_sim_write_page(&disks, s->node, s->kind, key, content);
    if (s->kind != KIN_SIM_OF_TOKENS) kin_sim_aim(&faults, KIN_SIM_ON_WRITE, s->node, 60);
}

void kin_kv_store_give_up(kin_kv_store *s, uint8_t *content) {
    (void)s;
    free(content);
}

// Writes logged hidden states, which other members request next. Sometimes the disk takes longer than the timeout.
void kin_kv_store_settle(kin_kv_store *s) {
    if (s->kind == KIN_SIM_OF_BORDER && kin_sim_below(t.w, 40) > 0) kin_sim_settle_pages(&disks, s->node, s->kind);
}

void kin_kv_store_remove(kin_kv_store *s, const kin_page_key *key) {
    kin_sim_page *p = kin_sim_find_page(&disks, s->node, s->kind, key);
    if (p) p->is_there = false;
}

// Fetches each page at once or not in time.
void kin_kv_store_fetch(kin_kv_store *s, const kin_page_key *keys, int n, int timeout_ms) {
    assert_true(timeout_ms > 0);
    for (int i = 0; i < n; i++) {
        const kin_sim_page *found = NULL;
        for (int from = 0; from < t.w->n_nodes && !found; from++) {
            if (from != s->node && kin_sim_reaches(t.w, from, s->node))
                found = kin_sim_find_page(&disks, from, s->kind, &keys[i]);
        }
        if (found && s->kind == KIN_SIM_OF_BORDER) kin_sim_aim(&faults, KIN_SIM_ON_BORDER, found->node, 2);
        if (!found || kin_sim_below(t.w, 40) == 0) continue;
        kin_sim_page copy = *found;
        kin_sim_put_page(&disks, s->node, copy.kind, &copy.key, copy.content, copy.is_torn);
        t.totals.n_fetched++;
    }
}

const uint8_t *kin_kv_store_read(kin_kv_store *s, const kin_page_key *key) {
    kin_sim_page *p = kin_sim_find_page(&disks, s->node, s->kind, key);
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

// Returns a node's window; the head is the last member.
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

// Returns the node's cache for this epoch and this life of its process; a new one is empty.
static cache *cache_of(int node, uint32_t epoch) {
    static const kin_device cpu;
    static const uint8_t variant[KIN_KV_VARIANT_BYTES] = "keys and values";
    cache *c = &t.caches[node];
    kin_hparams hp = {.n_layer = N_LAYER, .n_embd = N_EMBD, .n_head = 1, .n_head_kv = 1, .head_dim = 4};
    kin_window w = window_of(node);
    kin_kv_options o = {.windows = kin_windows_one(w.layer_begin, w.layer_end, 0), .n_ctx = N_CTX, .type = GGML_TYPE_F16};
    char dir[] = {(char)('0' + node), 0};
    kin_kv_disk disk = {.dir = dir};
    const kin_border_rows rows = {.n_embd = t.has_no_borders ? 0 : N_EMBD, .n_batch = N_BATCH};
    kin_err err;
    if (c->kv && c->epoch == epoch && c->life == t.w->nodes[node].life) return c;
    close_cache(c);
    *c = (cache){.epoch = epoch, .life = t.w->nodes[node].life};
    if (kin_kv_open(&c->kv, &hp, &o, on_cpu, &cpu, &err) != 0 ||
        (!disks.keeps_nothing[node] && kin_kv_pages_open(&c->pages, c->kv, &rows, &disk, variant, &err) != 0))
        fail_msg("%s", err.text);
    assert_true(kin_kv_page_bytes(c->kv) == KIN_SIM_PAGE_BYTES);
    return c;
}

static kin_batch batch_of(const step *s) {
    return (kin_batch){.n_tokens = s->n, .pos = s->pos, .seq = s->seq, .ops = s->ops, .n_ops = s->n_ops};
}

static void place(cache *c, const step *s, int64_t *cells, kin_kv_copies *copies) {
    kin_batch batch = batch_of(s);
    kin_err err;
    if (kin_kv_place(c->kv, &batch, cells, copies, &err) != 0) fail_msg("%s", err.text);
}

static void load_pages(cache *c, step *s) {
    kin_err err;
    int n = kin_kv_pages_handle(c->pages, c->kv, &s->pages, &err);
    if (n < 0) fail_msg("%s", err.text);
    if (n < s->n_good) s->n_good = n;
}

// Converts hidden states to rows of floats with 16 bits each. With 32 bits a float could be NaN, which is not kept.
static void put_rows(float *rows, const uint64_t *x, int n) {
    for (int i = 0; i < n * N_EMBD; i++) rows[i] = (float)(x[i / N_EMBD] >> 16 * (i % N_EMBD) & 0xffff);
}

static uint64_t get_row(const float *row) {
    uint64_t x = 0;
    for (int i = 0; i < N_EMBD; i++) x |= (uint64_t)row[i] << 16 * i;
    return x;
}

// Implements kin_kv_compute, token by token.
static int compute_lost(void *user, int layer_begin, int layer_end, int32_t seq, int pos, int n, float *rows, kin_err *err) {
    const cache *c = user;
    (void)err;
    for (int i = 0; i < n; i++) {
        int32_t at = pos + i;
        int64_t cell = (int64_t)kin_kv_block(c->kv, seq, at / KIN_KV_CELLS) * KIN_KV_CELLS + at % KIN_KV_CELLS;
        uint64_t x = get_row(rows + i * N_EMBD);
        t.totals.n_computed += (uint64_t)(layer_end - layer_begin);
        for (int il = layer_begin; il < layer_end; il++) kin_sim_compute_layer(c->kv, il, &seq, &at, &cell, NULL, 1, &x);
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
    kin_sim_aim(&faults, KIN_SIM_ON_RECOMPUTE, c == &t.caches[KIN_SIM_HEAD] ? 1 : (int)(c - t.caches), 8);
    s->n_good = kin_kv_pages_recompute(c->pages, c->kv, &r, &compute, &err);
    assert_in_range(s->n_good, 0, r.n);
}

// Logs hidden states like the real shard.
static void pass_on(const cache *c, const step *s, const int64_t *cells, const kin_kv_copies *copies) {
    float row[N_EMBD] = {0};
    for (int i = 0; i < s->n; i++) {
        put_rows(row, &s->x[i], 1);
        kin_kv_pages_pass(c->pages, s->il, &cells[i], 1, row);
        for (int m = 0; m < copies->n; m++) {
            int64_t cell = copies->at[m].cell;
            if (copies->at[m].row == i) kin_kv_pages_pass(c->pages, s->il, &cell, 1, row);
        }
    }
}

static void compute_window(const cache *c, step *s, int node, const int64_t *cells, const kin_kv_copies *copies) {
    kin_window w = window_of(node);
    assert_int_equal(s->il, w.layer_begin); // no layer is computed twice or skipped
    t.totals.n_computed += (uint64_t)(s->n * (w.layer_end - w.layer_begin));
    for (; s->il < w.layer_end; s->il++) kin_sim_compute_layer(c->kv, s->il, s->seq, s->pos, cells, copies, s->n, s->x);
    if (s->il < N_LAYER) pass_on(c, s, cells, copies);
}

// True if a later step that rolls back tokens of this one is already at the node. Half of the later steps arrive at once.
static bool is_lost(int node, uint64_t number, const kin_batch *batch) {
    for (uint64_t later = number + 1; later < t.head.next; later++) {
        const step *s = &t.head.steps[later % KIN_STEPS_IN_FLIGHT];
        if (s->number != later || s->has_pages || kin_sim_mix(later, (uint64_t)node) % 2) continue;
        for (int i = 0; i < s->n_ops; i++) {
            if (kin_batch_loses(batch, &s->ops[i])) return true;
        }
    }
    return false;
}

static bool is_forgotten(const kin_batch *batch, uint64_t after, uint64_t until) {
    bool is = false;
    for (; after <= until; after++) {
        const step *s = &t.head.steps[after % KIN_STEPS_IN_FLIGHT];
        for (int i = 0; i < s->n_ops; i++) is = is || kin_batch_loses(batch, &s->ops[i]);
    }
    return is;
}

// True if the pages to keep include tokens of a step that the node skipped, or tokens after those.
static bool is_lost_page(int node, const step *s) {
    uint64_t at = s->number < KIN_STEPS_IN_FLIGHT ? 1 : s->number + 1 - KIN_STEPS_IN_FLIGHT;
    bool is = false;
    for (; at < s->number && !s->pages.loads; at++) {
        const step *of = &t.head.steps[at % KIN_STEPS_IN_FLIGHT];
        for (int i = 0; i < of->n && of->number == at && of->left_out_by >> node & 1; i++) {
            const kin_batch token = {.n_tokens = 1, .pos = &of->pos[i], .seq = &of->seq[i]};
            bool is_of = of->seq[i] == s->pages.seq && of->pos[i] < (s->pages.first + s->pages.n) * KIN_KV_CELLS;
            is = is || (is_of && !is_forgotten(&token, at + 1, s->number));
        }
    }
    return is;
}

// Implements a callback of kin_sim_steps: computes a step at a node.
static void compute(void *user, int node, uint64_t number) {
    (void)user;
    step *s = &t.head.steps[number % KIN_STEPS_IN_FLIGHT];
    int64_t cells[N_BATCH];
    kin_kv_copies copies;
    if (s->number != number) return; // the step was given up
    cache *c = cache_of(node, t.w->request_epoch);
    place(c, s, cells, &copies);
    kin_batch batch = batch_of(s);
    if (!s->has_pages && is_lost(node, number, &batch)) {
        s->il = window_of(node).layer_end;
        s->left_out_by |= 1u << node;
        t.totals.n_dropped++;
    } else if (!s->has_pages) {
        compute_window(c, s, node, cells, &copies);
    } else if (is_lost_page(node, s)) {
        s->n_good = 0;
    } else {
        load_pages(c, s);
        recompute(c, s);
    }
}

static void finish(step *s) {
    compute_window(cache_of(KIN_SIM_HEAD, t.w->request_epoch), s, KIN_SIM_HEAD, s->cells, &s->copies);
    assert_int_equal(s->il, N_LAYER);
    for (int i = 0; i < s->n_out; i++) s->logits[i * N_VOCAB] = kin_sim_logit(s->x[s->out[i]]);
}

static void came_back(void *user, uint64_t number) {
    (void)user;
    step *s = &t.head.steps[number % KIN_STEPS_IN_FLIGHT];
    if (s->number != number) return;
    cache *c = cache_of(KIN_SIM_HEAD, t.w->request_epoch);
    if (!s->has_pages && !s->is_forgotten) finish(s);
    if (s->has_pages && s->has_later && !s->pages.loads) load_pages(c, s);
    if (s->has_pages && s->has_later && s->pages.loads) recompute(c, s);
    s->has_later = false;
    if (s->has_pages && s->pages.loads && t.has_slow_pages) t.late += 50000 * KIN_SIM_MS;
    s->is_back = true;
}

// ---- the head (pipeline/head.h)

static bool pump(void); // handles one event

int kin_head_n_batch(const kin_head *h) {
    (void)h;
    return N_BATCH;
}

int kin_head_n_members(const kin_head *h) {
    (void)h;
    return t.w->n_planned + 1;
}

kin_border_set kin_head_borders(const kin_head *h) {
    (void)h;
    return (kin_border_set){0};
}

int kin_head_n_chunk(const kin_head *h, int n) {
    return kin_prompt_chunk_tokens(n, kin_head_n_members(h), N_BATCH, 0);
}

int kin_head_chunk_worth(const kin_head *h) {
    (void)h;
    return 0;
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

// Like the real head.
static void end_own_pages(kin_head *h, const kin_kv_op *op) {
    bool are_computed = true;
    for (uint64_t i = h->done; i < h->next; i++) {
        step *s = &h->steps[i % KIN_STEPS_IN_FLIGHT];
        if (s->number != i) continue; // the ring is lost
        are_computed = are_computed && s->has_pages;
        if (!s->has_pages || !s->has_later || (op->seq >= 0 && s->pages.seq != op->seq)) continue;
        if (op->seq == op->from && op->n >= (s->pages.first + s->pages.n) * KIN_KV_CELLS) continue;
        s->has_later = false;
        if (are_computed && !s->pages.loads && op->seq >= 0) load_pages(&t.caches[KIN_SIM_HEAD], s);
        s->n_good = 0;
    }
}

int kin_head_change(kin_head *h, kin_kv_op op, kin_err *err) {
    end_own_pages(h, &op);
    if (op.seq < 0) h->n_ops = 0;
    if (h->n_ops == KIN_PROTO_MAX_OPS) return kin_err_set(err, "too many changes");
    h->ops[h->n_ops++] = op;
    return 0;
}

void kin_head_clear(kin_head *h) {
    kin_err err;
    assert_int_equal(kin_head_change(h, (kin_kv_op){-1, -1, 0}, &err), 0);
}

// Undoes the head's cells of steps in flight whose tokens the next step rolls back.
static void end_lost_steps(const kin_head *h, const cache *c) {
    for (uint64_t i = h->done; i < h->next; i++) {
        step *s = &t.head.steps[i % KIN_STEPS_IN_FLIGHT];
        const kin_batch batch = batch_of(s);
        for (int k = 0; k < h->n_ops && s->number == i && !s->is_back && !s->is_forgotten && !s->has_pages; k++) {
            if (!kin_batch_loses(&batch, &h->ops[k])) continue;
            kin_kv_undo(c->kv, &batch);
            s->is_forgotten = true;
            t.totals.n_forgotten++;
        }
    }
}

// Sends a step. The head allocates its cells when it sends, in the order of the steps.
static void send(kin_head *h, step *s) {
    cache *c = cache_of(KIN_SIM_HEAD, t.w->request_epoch);
    end_lost_steps(h, c);
    memcpy(s->ops, h->ops, (size_t)h->n_ops * sizeof *h->ops);
    s->n_ops = h->n_ops;
    h->n_ops = 0;
    s->is_back = s->is_forgotten = false;
    s->left_out_by = 0;
    s->il = 0;
    s->number = h->next++;
    place(c, s, s->cells, &s->copies);
    if (s->has_pages && s->pages.loads) load_pages(c, s);
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
    for (int i = 0; i < o->n; i++) s->x[i] = kin_sim_embed(o->tokens[i], o->pos[i]);
    send(h, s);
    return 0;
}

static void put_embeddings(const kin_page_request *r, const int32_t *tokens) {
    float rows[KIN_PAGES_MAX * KIN_KV_CELLS * N_EMBD] = {0};
    for (int i = 0; i < r->n * KIN_KV_CELLS; i++) {
        uint64_t x = kin_sim_embed(tokens[i], r->first * KIN_KV_CELLS + i);
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

static bool is_ring_lost(const kin_head *h) {
    return !kin_sim_lives(t.w, KIN_SIM_HEAD, h->life) || t.w->request != h->request;
}

const float *kin_head_states(const kin_head *h) {
    (void)h;
    return NULL;
}

int kin_head_project(kin_head *h, int n, const float *hidden, float *logits, kin_err *err) {
    (void)h, (void)n, (void)hidden, (void)logits;
    return kin_err_set(err, "not here");
}

int kin_head_end(kin_head *h, int n, const float *x, float *hidden, kin_err *err) {
    (void)h, (void)n, (void)x, (void)hidden;
    return kin_err_set(err, "not here");
}

int kin_head_receive(kin_head *h, const kin_head_meanwhile *meanwhile, uint64_t *number, kin_err *err) {
    (void)meanwhile;
    step *s = &h->steps[h->done % KIN_STEPS_IN_FLIGHT];
    bool goes_on = true;
    while (!s->is_back && !is_ring_lost(h) && goes_on) goes_on = pump();
    if (!s->is_back || is_ring_lost(h)) {
        h->done = h->next;
        for (int i = 0; i < KIN_STEPS_IN_FLIGHT; i++) h->steps[i].number = UINT64_MAX;
        return kin_err_set(err, "the ring is lost");
    }
    *number = h->done++;
    return 0;
}

// No sequence has a draft model.
void kin_draft_model_end(kin_draft_model *m, uint64_t request) {
    (void)m, (void)request;
}

kin_draft_spent kin_draft_model_propose(kin_draft_model *m, const kin_draft_query *queries, int n,
                                        const kin_draft_limits *limits) {
    (void)m, (void)queries, (void)n, (void)limits;
    return (kin_draft_spent){0};
}

kin_draft_spent kin_draft_model_go_on(kin_draft_model *m, const kin_draft_query *queries, int n, const kin_draft_limits *limits) {
    (void)m, (void)queries, (void)n, (void)limits;
    return (kin_draft_spent){0};
}

int kin_draft_model_n_known(const kin_draft_model *m, const kin_draft_query *query) {
    (void)m, (void)query;
    return 0;
}

// Not needed here.
void kin_head_count_sequences(kin_head *h, uint64_t n_begun, int n_running) {
    (void)h, (void)n_begun, (void)n_running;
}

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

// ---- the simulated cluster

static bool pump(void) {
    if (t.w->n_queue == 0 || t.w->queue[0].at >= END_MS * KIN_SIM_MS) return false;
    kin_sim_event e = kin_sim_pop(t.w);
    kin_sim_happen(t.w, &e);
    int from, to;
    if (e.what == KIN_SIM_WRITTEN && kin_sim_page_written(&disks, e.ticket, &from, &to))
        kin_sim_aim(&faults, KIN_SIM_ON_COPY, kin_sim_below(t.w, 2) ? from : to, 20);
    if (e.what == KIN_SIM_FAULT) kin_sim_fault(&faults, &e);
    return true;
}

// ---- texts

static int32_t next(void *user, float *logits) {
    request *x = user;
    int n_made = x->n - x->n_prompt;
    if (n_made == x->n_most) return KIN_GENERATION_NO_TOKEN;
    t.totals.n_written++;
    return x->tokens[x->n++] = kin_sim_sample(logits[0], n_made);
}

static void ended(void *user, kin_generation_end how, const kin_err *why) {
    request *x = user;
    if (how == KIN_GENERATION_FAILED) fail_msg("%s", why->text);
    x->generation = NULL;
    if (how == KIN_GENERATION_CANCELLED) return;
    assert_int_equal(how, KIN_GENERATION_DONE);
    assert_false(x->is_done);
    x->is_done = true;
}

static void propose(void *user, const int32_t *tokens, int n, int most, kin_draft *out) {
    const request *x = user;
    assert_memory_equal(tokens, x->expected, (size_t)n * sizeof *tokens);
    kin_sim_guess(&x->guesses, x->expected, x->n_prompt + x->n_most, n, most, out);
}

// Submits a request from its beginning, as after a restart of the head.
static void ask(request *x) {
    kin_generation_options o = {.prompt = x->tokens, .n_prompt = x->n_prompt, .next = next, .ended = ended, .user = x};
    kin_err err;
    x->n = x->n_prompt;
    x->drafts = (kin_draft_source){.propose = propose, .user = x};
    if (x->guesses.most > 0) o.drafts = &x->drafts;
    if (kin_scheduler_submit(t.scheduler, &o, &x->generation, &err) != 0) fail_msg("%s", err.text);
}

static void ask_for_all(void) {
    for (int i = 0; i < t.n_requests; i++) {
        if (!t.requests[i].is_done && !t.requests[i].generation) ask(&t.requests[i]);
    }
}

// Sometimes cancels a request; it is submitted again later.
static void cancel_one(void) {
    request *x = &t.requests[kin_sim_below(t.w, (uint64_t)t.n_requests)];
    if (t.is_plain || kin_sim_is_calm(t.w) || !x->generation || kin_sim_below(t.w, 150) > 0) return;
    t.totals.n_cancelled++;
    kin_scheduler_cancel(t.scheduler, x->generation);
}

static void open_scheduler(void) {
    kin_prefix_pages_options po = {.disk = {.dir = "0"}, .context = "c", .n_context = 1};
    kin_err err;
    if (kin_prefix_pages_open(&t.prefix, &po, &err) != 0) fail_msg("%s", err.text);
    kin_scheduler_options o = {.n_ctx = N_CTX, .n_vocab = N_VOCAB, .n_parallel = N_PARALLEL, .keeps = true, .pages = t.prefix};
    o.always_ahead = t.is_ahead;
    o.draft_least = t.draft_least;
    if (kin_scheduler_open(&t.scheduler, &o, &err) != 0) fail_msg("%s", err.text);
    t.head.life = t.w->nodes[KIN_SIM_HEAD].life;
    for (int i = 0; i < t.n_requests; i++) t.requests[i].generation = NULL; // belonged to the previous process
    ask_for_all();
}

static void close_scheduler(void) {
    if (t.scheduler) {
        kin_scheduler_stats stats = kin_scheduler_get_stats(t.scheduler);
        t.totals.n_replayed += stats.n_replayed_tokens;
        t.totals.n_cached += stats.n_cached_tokens;
        t.totals.n_drafted += kin_draft_counts_drafted(&stats.drafts);
        t.totals.n_right += kin_draft_counts_accepted(&stats.drafts);
        t.totals.n_branches += stats.drafts.accepted_branches;
    }
    kin_scheduler_close(t.scheduler);
    kin_prefix_pages_close(t.prefix);
    t.scheduler = NULL;
    t.prefix = NULL;
}

static bool all_done(void) {
    for (int i = 0; i < t.n_requests; i++) {
        if (!t.requests[i].is_done) return false;
    }
    return true;
}

// Checks that all members have allocated the same blocks.
static void check_caches(void) {
    const kin_kv *own = cache_of(KIN_SIM_HEAD, t.w->request_epoch)->kv;
    for (int i = 0; i < t.w->n_planned; i++) {
        const cache *c = &t.caches[t.w->planned[i]];
        if (!c->kv || c->epoch != t.w->request_epoch) continue; // no step reached this member
        for (int seq = 0; seq < KIN_SCHEDULER_MAX_SEQUENCES; seq++) {
            int n = kin_kv_n_tokens(own, seq);
            assert_int_equal(kin_kv_n_tokens(c->kv, seq), n);
            for (int k = 0; k * KIN_KV_CELLS < n; k++) assert_int_equal(kin_kv_block(c->kv, seq, k), kin_kv_block(own, seq, k));
        }
    }
}

static void settle(void) {
    kin_err err;
    if (kin_scheduler_settle(t.scheduler, &err) != 0) return;
    check_caches();
    kin_sim_end_request(t.w, false);
    t.is_settled = true;
}

// Runs steps until the ring is lost, all requests are done, or a better plan waits, like cluster/compute_loop.c.
static void write_texts(void) {
    bool busy = true;
    kin_err err;
    kin_sim_begin_request(t.w);
    t.head.request = t.w->request;
    t.totals.n_rings++;
    t.is_settled = false;
    kin_sim_aim(&faults, KIN_SIM_ON_RETURN, kin_sim_any_device(t.w), 8);
    if (kin_scheduler_set_head(t.scheduler, &t.head, &err) != 0) fail_msg("%s", err.text);
    while (busy && !kin_membership_yields(t.w->membership)) {
        ask_for_all();
        if (kin_scheduler_step(t.scheduler, &busy, &err) != 0) {
            t.totals.n_lost++;
            kin_sim_count_loss(&faults);
            return;
        }
        cancel_one();
    }
    t.totals.n_yields += busy;
    settle();
}

static bool is_up(void) {
    return t.w->nodes[KIN_SIM_HEAD].runs && t.w->request == 0 && !kin_sim_is_frozen(t.w, KIN_SIM_HEAD) &&
           kin_membership_state_now(t.w->membership) == KIN_MEMBERSHIP_SERVING;
}

static void write_all(void) {
    for (bool goes_on = true; goes_on && !all_done();) {
        bool is_other = t.scheduler && !kin_sim_lives(t.w, KIN_SIM_HEAD, t.head.life);
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

static void make_texts(void) {
    uint64_t drafts = t.is_plain ? 0 : kin_sim_below(t.w, 4);
    t.n_requests = 1 + (int)kin_sim_below(t.w, N_REQUESTS);
    t.is_ahead = drafts == 1;
    t.draft_least = drafts > 1 ? (int)kin_sim_below(t.w, 12) : 0;
    for (int i = 0; i < t.n_requests; i++) {
        request *x = &t.requests[i];
        *x = (request){.n_prompt = 1 + (int)kin_sim_below(t.w, 200), .n_most = 40 + (int)kin_sim_below(t.w, 120)};
        x->guesses = (kin_sim_guesses){.seed = kin_rng_u64(&t.w->rng), .has_branches = kin_sim_below(t.w, 2)};
        x->guesses.most = drafts ? (int)kin_sim_below(t.w, 12) : 0;
        for (int k = 0; k < x->n_prompt; k++) x->tokens[k] = kin_sim_prompt_token(i, k);
        kin_sim_write_undisturbed(x->tokens, x->n_prompt, N_LAYER, x->n_most, x->expected);
    }
}

static void set_up(kin_sim *w, kin_sim_totals *of_context, uint64_t seed) {
    kin_rng_seed(&w->rng, seed);
    w->n_nodes = 2 + (int)kin_sim_below(w, 5);
    w->calm_at = CALM_MS * KIN_SIM_MS;
    w->totals = of_context;
    disks.w = w;
    disks.has_no_copies = t.never_has_copies || seed % 3 == 0;
    for (int i = 1; i < w->n_nodes; i++) disks.keeps_nothing[i] = !t.is_plain && kin_sim_below(w, 8) == 0;
    kin_sim_faults_begin(&faults, w, &disks, !t.is_plain);
    w->steps = (kin_sim_steps){.compute = compute, .back = came_back};
    for (int i = 0; i < w->n_nodes; i++)
        kin_sim_push(w, (kin_sim_event){.at = kin_sim_between_ms(w, 0, 3000), .what = KIN_SIM_RESTART, .node = i});
    for (int i = 0; i < N_FAULTS; i++)
        kin_sim_push(w, (kin_sim_event){.at = kin_sim_between_ms(w, 1500, CALM_MS - 1), .what = KIN_SIM_FAULT});
}

// Checks that no request remains, and that erasing the kept sequences frees all blocks.
static void check_nothing_is_left(void) {
    if (!t.is_settled || !t.scheduler) return;
    assert_int_equal(kin_membership_n_requests(t.w->membership), 0);
    kin_scheduler_erase(t.scheduler, 0);
    kin_scheduler_stats stats = kin_scheduler_get_stats(t.scheduler);
    assert_int_equal(stats.n_running + stats.n_waiting, 0);
    assert_int_equal(stats.n_free_blocks, stats.n_blocks);
}

static void tear_down(void) {
    close_scheduler();
    for (int i = 0; i < KIN_SIM_NODES; i++) close_cache(&t.caches[i]);
    kin_sim_disks_end(&disks);
    kin_membership_free(t.w->membership);
    for (int i = 1; i < t.w->n_nodes; i++) kin_member_free(t.w->nodes[i].member);
    free(t.w);
    t.w = NULL;
}

static void run_schedule(uint64_t seed, bool tells) {
    static kin_sim_totals of_context;
    t.w = calloc(1, sizeof *t.w);
    assert_non_null(t.w);
    t.w->tells = tells;
    t.head = (kin_head){.next = 1, .done = 1};
    for (int i = 0; i < KIN_STEPS_IN_FLIGHT; i++) t.head.steps[i].number = UINT64_MAX;
    set_up(t.w, &of_context, seed);
    make_texts();
    write_all();
    for (int i = 0; i < t.n_requests; i++) {
        const request *x = &t.requests[i];
        if (!x->is_done) fail_msg("text %d has %d of %d tokens", i, x->n - x->n_prompt, x->n_most);
        assert_int_equal(x->n, x->n_prompt + x->n_most);
        assert_memory_equal(x->tokens, x->expected, (size_t)x->n * sizeof *x->tokens);
    }
    check_nothing_is_left();
    tear_down();
}
#define run_schedule(...) FROM_TEST(run_schedule(__VA_ARGS__))

static void print_totals(uint64_t n) {
    const totals *c = &t.totals;
    printf(
        "%llu schedules: %llu rings, %llu lost, %llu left for a better plan, %llu starts of a head with texts unfinished\n"
        "%llu tokens, %llu computed again, %llu from pages or others, %llu computed in lost layers only; %llu texts cancelled\n",
        (unsigned long long)n, (unsigned long long)c->n_rings, (unsigned long long)c->n_lost, (unsigned long long)c->n_yields,
        (unsigned long long)c->n_restarts, (unsigned long long)c->n_written, (unsigned long long)c->n_replayed,
        (unsigned long long)c->n_cached, (unsigned long long)c->n_recomputed, (unsigned long long)c->n_cancelled);
    printf(
        "%llu tokens drafted, %llu right, %llu of them began a branch; %llu steps forgotten, %llu times a device left one out\n"
        "pages: %llu copied, %llu fetched, %llu torn, %llu refused by full disks\n",
        (unsigned long long)c->n_drafted, (unsigned long long)c->n_right, (unsigned long long)c->n_branches,
        (unsigned long long)c->n_forgotten, (unsigned long long)c->n_dropped, (unsigned long long)disks.n_copied,
        (unsigned long long)c->n_fetched, (unsigned long long)disks.n_torn, (unsigned long long)disks.n_refused);
    kin_sim_print_faults(&faults);
}

static uint64_t number_of(const char *name, uint64_t otherwise) {
    return getenv(name) ? strtoull(getenv(name), NULL, 10) : otherwise;
}

static void whatever_dies_a_sequence_is_that_of_an_undisturbed_run(void **state) {
    (void)state;
    if (getenv("KIN_SIM_SEED")) return run_schedule(number_of("KIN_SIM_SEED", 0), true);
    const uint64_t n = number_of("KIN_SIM_SEEDS", N_SCHEDULES), first = number_of("KIN_SIM_FIRST", 0);
    for (uint64_t seed = first; seed < first + n; seed++) {
        fprintf(stderr, "\rseed %llu ", (unsigned long long)seed); // shows the seed if the test aborts here
        run_schedule(seed, false);
    }
    print_totals(n);
    const totals *c = &t.totals; // the counts prove that the cases occurred
    assert_true(c->n_lost > n && c->n_yields > n / 10 && c->n_restarts > n / 10 && c->n_cancelled > n / 5);
    assert_true(c->n_cached > 64 * n && c->n_recomputed > 10 * n);
    assert_true(disks.n_copied > n && c->n_fetched > n && disks.n_torn > n / 25 && disks.n_refused > n / 10);
    assert_true(c->n_right > 10 * n && c->n_branches > n && c->n_dropped > n && c->n_forgotten > n);
    for (int i = 0; i < KIN_SIM_N_FAULT_KINDS; i++) assert_true(faults.kinds[i].n_hits > n / 20);
}

// Returns the increase of a counter of t.totals over schedules without drafts and aimed faults; *flag is set meanwhile.
static uint64_t count(const uint64_t *counter, bool *flag) {
    uint64_t before = *counter;
    t.is_plain = true;
    if (flag) *flag = true;
    for (uint64_t seed = 0; seed < N_SLOW; seed++) run_schedule(seed, false);
    t.is_plain = false;
    if (flag) *flag = false;
    return *counter - before;
}
#define count(...) FROM_TEST(count(__VA_ARGS__))

// Tokens are computed instead of loaded after one or two pages have shown that loading is slower.
static void slow_pages_are_left(void **state) {
    (void)state;
    uint64_t quick = count(&t.totals.n_asked, NULL), slow = count(&t.totals.n_asked, &t.has_slow_pages);
    printf("%llu pages asked for, %llu where they are slow\n", (unsigned long long)quick, (unsigned long long)slow);
    assert_in_range(slow, 1, quick - quick / 100);
}

// Only the layers without pages are computed.
static void lost_layers_are_computed_alone(void **state) {
    (void)state;
    t.never_has_copies = true;
    uint64_t n_recomputed = t.totals.n_recomputed, some = count(&t.totals.n_computed, NULL);
    n_recomputed = t.totals.n_recomputed - n_recomputed;
    uint64_t all = count(&t.totals.n_computed, &t.has_no_borders);
    t.never_has_copies = false;
    printf(
        "without copies: %llu tokens in a layer computed, %llu tokens in lost layers only; %llu without logs of what was passed "
        "on\n",
        (unsigned long long)some, (unsigned long long)n_recomputed, (unsigned long long)all);
    assert_true(n_recomputed > 10 * N_SLOW);
    assert_in_range(some, 1, all - all / 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whatever_dies_a_sequence_is_that_of_an_undisturbed_run),
                                       cmocka_unit_test(slow_pages_are_left), cmocka_unit_test(lost_layers_are_computed_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
