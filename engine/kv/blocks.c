#include "engine/kv/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "model/graph.h"

enum { KEPT_BEHIND = 64 }; // positions before the window that are kept, more than drafts of steps in flight have

typedef struct sequence {
    int32_t *blocks; // [cap], as many as n positions need
    int32_t *window; // [cap], likewise; NULL: windowed layers have no blocks of their own
    int n, cap;
    int n_gone;    // the first blocks of `window`, which were given back
    uint64_t step; // of the last positions that were appended
    int begin;     // the first one of them
    // With states, while n > 0:
    int state, base; // the positions from `base` on are in the state's log
    int n_logged;    // before the run of that step
    bool is_loaded;  // its last blocks were loaded, and nothing was appended to them
} sequence;

typedef struct pool {
    int n, n_free;
    int *refs; // [n] number of sequences that use each block
} pool;

struct kin_kv_blocks {
    int n_ctx;
    pool blocks, window; // window.n 0: windowed layers have no blocks of their own
    int window_size, window_most;
    sequence *sequences;
    int n_sequences; // the size of `sequences`
    int n_states, n_free_states;
    bool *has_owner; // [n_states]
    uint64_t step;
};

static int blocks_of(int n_tokens) {
    return (n_tokens + KIN_KV_CELLS - 1) / KIN_KV_CELLS;
}

static bool open_pool(pool *p, int n) {
    *p = (pool){.n = n, .n_free = n, .refs = calloc((size_t)n + 1, sizeof *p->refs)};
    return p->refs;
}

int kin_kv_blocks_open(kin_kv_blocks **out, int n_ctx, int n_states, const kin_kv_window *window, kin_err *err) {
    *out = NULL;
    kin_kv_blocks *b = calloc(1, sizeof *b);
    if (!b) return kin_err_set(err, "out of memory");
    b->n_ctx = n_ctx;
    b->n_states = b->n_free_states = n_states;
    b->step = 1;
    b->window_size = window ? window->size : 0;
    b->window_most = window ? window->n_most : 0;
    b->has_owner = calloc((size_t)n_states + 1, sizeof *b->has_owner);
    if (!open_pool(&b->blocks, blocks_of(n_ctx)) || !open_pool(&b->window, window ? window->n_blocks : 0) || !b->has_owner) {
        kin_kv_blocks_close(b);
        return kin_err_set(err, "out of memory");
    }
    *out = b;
    return 0;
}

void kin_kv_blocks_close(kin_kv_blocks *b) {
    if (!b) return;
    for (int i = 0; i < b->n_sequences; i++) {
        free(b->sequences[i].blocks);
        free(b->sequences[i].window);
    }
    free(b->sequences);
    free(b->blocks.refs);
    free(b->window.refs);
    free(b->has_owner);
    free(b);
}

// Returns the record of a sequence; NULL: out of memory.
static sequence *record(kin_kv_blocks *b, int32_t seq) {
    kin_assert(seq >= 0 && seq < KIN_KV_MAX_SEQUENCES);
    if (seq >= b->n_sequences) {
        int n = seq + 1 > 2 * b->n_sequences ? seq + 1 : 2 * b->n_sequences;
        sequence *larger = realloc(b->sequences, (size_t)n * sizeof *larger);
        if (!larger) return NULL;
        memset(larger + b->n_sequences, 0, (size_t)(n - b->n_sequences) * sizeof *larger);
        b->sequences = larger;
        b->n_sequences = n;
    }
    return &b->sequences[seq];
}

static bool has_window(const kin_kv_blocks *b) {
    return b->window.n > 0;
}

static bool reserve(const kin_kv_blocks *b, sequence *s, int n_blocks) {
    if (n_blocks <= s->cap) return true;
    int cap = n_blocks > 2 * s->cap ? n_blocks : 2 * s->cap;
    int32_t **tables[] = {&s->blocks, &s->window};
    for (int i = 0; i < 1 + has_window(b); i++) {
        int32_t *larger = realloc(*tables[i], (size_t)cap * sizeof *larger);
        if (!larger) return false;
        *tables[i] = larger;
    }
    s->cap = cap;
    return true;
}

static int allocate_block(pool *p) {
    for (int i = 0; i < p->n; i++) {
        if (p->refs[i] > 0) continue;
        p->refs[i] = 1;
        p->n_free--;
        return i;
    }
    return -1;
}

static void give_block(pool *p, int32_t block) {
    if (--p->refs[block] == 0) p->n_free++;
}

static int allocate_state(kin_kv_blocks *b, sequence *s, kin_err *err) {
    for (int i = 0; i < b->n_states; i++) {
        if (b->has_owner[i]) continue;
        b->has_owner[i] = true;
        b->n_free_states--;
        s->state = i;
        s->base = s->n_logged = 0;
        return 0;
    }
    return kin_err_set(err, "all %d states of recurrent layers are in use", b->n_states);
}

static void give_state(kin_kv_blocks *b, const sequence *s) {
    if (b->n_states == 0 || s->n == 0) return;
    b->has_owner[s->state] = false;
    b->n_free_states++;
}

// Gives back blocks begin .. end - 1 of the sequence.
static void give_blocks(kin_kv_blocks *b, const sequence *s, int begin, int end) {
    for (int i = begin; i < end; i++) {
        give_block(&b->blocks, s->blocks[i]);
        if (has_window(b) && i >= s->n_gone) give_block(&b->window, s->window[i]);
    }
}

static void shorten(kin_kv_blocks *b, sequence *s, int n) {
    if (n >= s->n) return;
    give_blocks(b, s, blocks_of(n), blocks_of(s->n));
    if (n == 0) give_state(b, s);
    if (n == 0) s->n_gone = 0;
    s->is_loaded = s->is_loaded && n > 0;
    s->n = n;
}

// True if position n would see all positions of its window.
static bool has_window_at(const sequence *s, int n, int size) {
    return n == 0 || s->n_gone == 0 || s->n_gone * KIN_KV_CELLS <= n - size + 1;
}

// Gives back blocks that no later step of the sequence reads.
static void shift_window(kin_kv_blocks *b, sequence *s) {
    const int begin = s->begin < s->n ? s->begin : s->n, n_gone = (begin - b->window_size + 1 - KEPT_BEHIND) / KIN_KV_CELLS;
    for (; s->n_gone < n_gone; s->n_gone++) give_block(&b->window, s->window[s->n_gone]);
}

// True if the sequence's state can stand at position n.
static bool has_state_at(const kin_kv_blocks *b, const sequence *s, int n) {
    return b->n_states == 0 || n == 0 || (n >= s->base && n <= s->n);
}

// Fails if the sequence cannot go on at position n.
static int check_at(const kin_kv_blocks *b, int32_t seq, const sequence *s, int n, kin_err *err) {
    if (!has_state_at(b, s, n)) return kin_err_set(err, "there is no state of sequence %d at position %d", (int)seq, n);
    if (has_window_at(s, n, b->window_size)) return 0;
    return kin_err_set(err, "the window of sequence %d before position %d is not in the KV cache", (int)seq, n);
}

static int full_context(const kin_kv_blocks *b, kin_err *err) {
    return kin_err_set(err, "the context of %d tokens is full", b->n_ctx);
}

// If the last block of the sequence is partly filled and shared, replaces it by a private one.
static int own_last_block(kin_kv_blocks *b, sequence *s, kin_kv_copy *copy, kin_err *err) {
    const int i = s->n / KIN_KV_CELLS;
    if (s->n % KIN_KV_CELLS == 0 || b->blocks.refs[s->blocks[i]] == 1) return 0;
    if (!kin_kv_blocks_fit(b, 1)) return full_context(b, err);
    copy->from = s->blocks[i];
    copy->to = allocate_block(&b->blocks);
    give_block(&b->blocks, s->blocks[i]);
    s->blocks[i] = copy->to;
    if (!has_window(b)) return 0;
    copy->window_from = s->window[i];
    copy->window_to = allocate_block(&b->window);
    give_block(&b->window, s->window[i]);
    s->window[i] = copy->window_to;
    return 0;
}

// Takes from a sequence what it needs to continue after its last block.
static void release_tail(kin_kv_blocks *b, sequence *s) {
    const int n_blocks = blocks_of(s->n);
    for (int i = s->n_gone; i < n_blocks && has_window(b); i++) give_block(&b->window, s->window[i]);
    s->n_gone = has_window(b) ? n_blocks : 0;
    s->base = b->n_states > 0 ? INT32_MAX : 0;
}

static int truncate_to(kin_kv_blocks *b, int32_t seq, int n, kin_kv_copy *copy, kin_err *err) {
    sequence *s = &b->sequences[seq];
    if (n >= s->n) return 0;
    if (s->is_loaded && n > 0 && n % KIN_KV_CELLS == 0) {
        shorten(b, s, n);
        release_tail(b, s);
        return 0;
    }
    if (check_at(b, seq, s, n, err) != 0) return KIN_FAIL;
    int kept = n % KIN_KV_CELLS ? s->blocks[n / KIN_KV_CELLS] : -1;
    bool is_shared = kept >= 0 && b->blocks.refs[kept] > 1;
    // The sequence's unshared blocks beyond n are freed before one is needed. What is shared in all layers is shared in windowed
    // ones.
    bool frees = false;
    for (int i = blocks_of(n); i < blocks_of(s->n) && !frees; i++) frees = b->blocks.refs[s->blocks[i]] == 1;
    if (is_shared && !kin_kv_blocks_fit(b, 1) && !frees) return full_context(b, err);
    shorten(b, s, n);
    return own_last_block(b, s, copy, err);
}

// Gives s a state for the first n positions of `from`.
static int share_state(kin_kv_blocks *b, sequence *s, const sequence *from, int n, kin_kv_copy *copy, kin_err *err) {
    if (b->n_states == 0) return 0;
    if (n == 0) {
        give_state(b, s);
        return 0;
    }
    if (s->n == 0 && allocate_state(b, s, err) != 0) return KIN_FAIL;
    s->base = from->base < n ? from->base : n;
    copy->state_from = from->state;
    copy->state_to = s->state;
    return 0;
}

static int share(kin_kv_blocks *b, const kin_kv_op *op, kin_kv_copy *copy, kin_err *err) {
    const sequence *from = op->from < b->n_sequences ? &b->sequences[op->from] : NULL;
    if (!from || op->n > from->n)
        return kin_err_set(err, "sequence %d has fewer than %d tokens in the KV cache", (int)op->from, (int)op->n);
    sequence *s = record(b, op->seq);
    if (!s || !reserve(b, s, blocks_of(op->n))) return kin_err_set(err, "out of memory for the KV cache's table");
    from = &b->sequences[op->from]; // the records may have moved
    if (check_at(b, op->from, from, op->n, err) != 0) return KIN_FAIL;
    if (share_state(b, s, from, op->n, copy, err) != 0) return KIN_FAIL;
    const int n = blocks_of(op->n);
    for (int i = 0; i < n; i++) b->blocks.refs[from->blocks[i]]++;
    for (int i = from->n_gone; i < n && has_window(b); i++) b->window.refs[from->window[i]]++;
    give_blocks(b, s, 0, blocks_of(s->n));
    if (n > 0) memcpy(s->blocks, from->blocks, (size_t)n * sizeof *s->blocks);
    if (n > 0 && has_window(b)) memcpy(s->window, from->window, (size_t)n * sizeof *s->window);
    s->n = op->n;
    s->n_gone = n > 0 ? from->n_gone : 0;
    s->is_loaded = false;
    s->step = 0;
    if (own_last_block(b, s, copy, err) == 0) return 0;
    shorten(b, s, 0);
    return KIN_FAIL;
}

int kin_kv_blocks_apply(kin_kv_blocks *b, const kin_kv_op *op, kin_kv_copy *copy, kin_err *err) {
    *copy = (kin_kv_copy){-1, -1, -1, -1, -1, -1};
    if (op->seq < 0) {
        for (int i = 0; i < b->n_sequences; i++) shorten(b, &b->sequences[i], 0);
        return 0;
    }
    if (op->seq != op->from) return share(b, op, copy, err);
    return op->seq < b->n_sequences ? truncate_to(b, op->seq, op->n, copy, err) : 0;
}

// Before a position is appended: those of the log are added to the state, or the positions are too many for a log.
static void append_to_run(kin_kv_blocks *b, sequence *s) {
    if (s->step != b->step) {
        s->step = b->step;
        s->n_logged = s->n - s->base;
        s->begin = s->base = s->n;
    }
    if (s->n + 1 - s->begin > KIN_STATE_LOG) s->base = s->n + 1;
}

// Returns the first block of the window before position n.
static int window_begin(const kin_kv_blocks *b, int n) {
    return n >= b->window_size ? (n - b->window_size + 1) / KIN_KV_CELLS : 0;
}

// Gives a sequence of full blocks, without what release_tail takes, a state and the blocks of the window at its end.
static int give_end(kin_kv_blocks *b, sequence *s, kin_err *err) {
    const int begin = window_begin(b, s->n);
    if (has_window(b) && s->n_gone - begin > b->window.n_free) return full_context(b, err);
    for (; has_window(b) && s->n_gone > begin; s->n_gone--) s->window[s->n_gone - 1] = allocate_block(&b->window);
    s->base = b->n_states > 0 ? s->n : 0;
    return 0;
}

int kin_kv_blocks_load(kin_kv_blocks *b, int32_t seq, int n, bool has_states, kin_err *err) {
    sequence *s = record(b, seq);
    const int begin = s ? s->n / KIN_KV_CELLS : 0, end = begin + n;
    if (!s || !reserve(b, s, end)) return kin_err_set(err, "out of memory for the KV cache's table");
    if (s->n % KIN_KV_CELLS != 0) return kin_err_set(err, "the last block of sequence %d is not full", (int)seq);
    if (end > b->n_ctx / KIN_KV_CELLS || n > b->blocks.n_free) return full_context(b, err);
    if (s->n == 0 && b->n_states > 0 && allocate_state(b, s, err) != 0) return KIN_FAIL;
    release_tail(b, s);
    for (int i = begin; i < end; i++) {
        s->blocks[i] = allocate_block(&b->blocks);
        if (has_window(b)) s->window[i] = 0; // not read
    }
    s->n = s->begin = end * KIN_KV_CELLS;
    s->n_gone = has_window(b) ? end : 0;
    s->step = 0;
    s->is_loaded = true;
    return has_states ? give_end(b, s, err) : 0;
}

void kin_kv_blocks_begin_step(kin_kv_blocks *b) {
    for (int i = 0; i < b->n_sequences && has_window(b); i++) {
        sequence *s = &b->sequences[i];
        if (s->n > 0 && s->step == b->step) shift_window(b, s);
    }
    b->step++;
}

kin_kv_run kin_kv_blocks_run(const kin_kv_blocks *b, int32_t seq) {
    const sequence *s = &b->sequences[seq];
    kin_assert(b->n_states > 0 && s->n > 0 && s->step == b->step);
    const int n = s->n - s->begin;
    return (kin_kv_run){.begin = s->begin, .n = n, .state = s->state, .n_logged = s->n_logged, .stores = n > KIN_STATE_LOG};
}

int kin_kv_blocks_state(const kin_kv_blocks *b, int32_t seq) {
    kin_assert(b->n_states > 0 && seq < b->n_sequences && b->sequences[seq].n > 0);
    return b->sequences[seq].state;
}

int kin_kv_blocks_nearest(const kin_kv_blocks *b, int32_t seq, int n) {
    if (seq >= b->n_sequences) return 0;
    const sequence *s = &b->sequences[seq];
    if (n > s->n) n = s->n;
    return has_state_at(b, s, n) && has_window_at(s, n, b->window_size) ? n : 0;
}

int kin_kv_blocks_checkpoint(const kin_kv_blocks *b, int32_t seq, int n) {
    if (seq >= b->n_sequences) return 0;
    const sequence *s = &b->sequences[seq];
    if (n > s->n) n = s->n;
    if (b->n_states > 0) n = s->base <= n && s->base % KIN_KV_CELLS == 0 ? s->base : 0;
    n -= n % KIN_KV_CELLS;
    return has_window_at(s, n, b->window_size) ? n : 0;
}

int kin_kv_blocks_append(kin_kv_blocks *b, int32_t seq, int32_t pos, int64_t *cell, kin_err *err) {
    int n = kin_kv_blocks_n_tokens(b, seq);
    if (pos < n) return kin_err_set(err, "position %d of sequence %d is already in the KV cache", (int)pos, (int)seq);
    if (pos > n) return kin_err_set(err, "tokens before position %d of sequence %d are not in the KV cache", (int)pos, (int)seq);
    if (pos >= b->n_ctx) return full_context(b, err);
    sequence *s = record(b, seq);
    if (s && check_at(b, seq, s, pos, err) != 0) return KIN_FAIL;
    int i = pos / KIN_KV_CELLS;
    if (!s || !reserve(b, s, i + 1)) return kin_err_set(err, "out of memory for the KV cache's table");
    if (pos % KIN_KV_CELLS == 0 && !kin_kv_blocks_fit(b, 1)) return full_context(b, err);
    if (n == 0 && b->n_states > 0 && allocate_state(b, s, err) != 0) return KIN_FAIL;
    if (pos % KIN_KV_CELLS == 0) {
        s->blocks[i] = allocate_block(&b->blocks);
        if (has_window(b)) s->window[i] = allocate_block(&b->window);
    }
    append_to_run(b, s);
    s->is_loaded = false;
    s->n++;
    *cell = (int64_t)s->blocks[i] * KIN_KV_CELLS + pos % KIN_KV_CELLS;
    return 0;
}

void kin_kv_blocks_undo(kin_kv_blocks *b, int32_t seq, int32_t n) {
    if (seq >= b->n_sequences) return;
    sequence *s = &b->sequences[seq];
    if (n < s->n) s->base = INT32_MAX; // what was computed of these positions is not known
    shorten(b, s, n);
}

int kin_kv_blocks_n_tokens(const kin_kv_blocks *b, int32_t seq) {
    return seq < b->n_sequences ? b->sequences[seq].n : 0;
}

const int32_t *kin_kv_blocks_table(const kin_kv_blocks *b, int32_t seq, int *n) {
    *n = blocks_of(kin_kv_blocks_n_tokens(b, seq));
    return *n ? b->sequences[seq].blocks : NULL;
}

const int32_t *kin_kv_blocks_window_table(const kin_kv_blocks *b, int32_t seq, int *n) {
    const int32_t *blocks = kin_kv_blocks_table(b, seq, n);
    return has_window(b) && *n ? b->sequences[seq].window : blocks;
}

int kin_kv_blocks_n_gone(const kin_kv_blocks *b, int32_t seq) {
    return seq < b->n_sequences ? b->sequences[seq].n_gone : 0;
}

int kin_kv_blocks_n(const kin_kv_blocks *b) {
    return b->blocks.n;
}

int kin_kv_blocks_n_free(const kin_kv_blocks *b) {
    return b->blocks.n_free;
}

bool kin_kv_blocks_fit(const kin_kv_blocks *b, int n) {
    if (n > b->blocks.n_free) return false;
    return !has_window(b) || (n < b->window_most ? n : b->window_most) <= b->window.n_free;
}

bool kin_kv_blocks_fit_load(const kin_kv_blocks *b, int n, int n_window) {
    return n <= b->blocks.n_free && (!has_window(b) || n_window <= b->window.n_free);
}

int kin_kv_blocks_n_free_states(const kin_kv_blocks *b) {
    return b->n_free_states;
}

int kin_kv_blocks_end(const kin_kv_blocks *b) {
    int n = b->blocks.n;
    while (n > 0 && b->blocks.refs[n - 1] == 0) n--;
    return n;
}
