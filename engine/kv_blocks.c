#include "engine/kv_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "model/graph.h"

typedef struct sequence {
    int32_t *blocks; // [cap], as many as n positions need
    int n, cap;
    // With states, while n > 0:
    int state, base;     // the positions from `base` on are in the state's log
    uint64_t step;       // of the last positions that were appended
    int begin, n_logged; // the run of that step
} sequence;

struct kin_kv_blocks {
    int n_ctx, n_blocks, n_free;
    int *refs; // [n_blocks] number of sequences that use each block
    sequence *sequences;
    int n_sequences; // the size of `sequences`
    int n_states, n_free_states;
    bool *has_owner; // [n_states]
    uint64_t step;
};

static int blocks_of(int n_tokens) {
    return (n_tokens + KIN_KV_CELLS - 1) / KIN_KV_CELLS;
}

int kin_kv_blocks_open(kin_kv_blocks **out, int n_ctx, int n_states, kin_err *err) {
    *out = NULL;
    kin_kv_blocks *b = calloc(1, sizeof *b);
    if (!b) return kin_err_set(err, "out of memory");
    b->n_ctx = n_ctx;
    b->n_blocks = b->n_free = blocks_of(n_ctx);
    b->n_states = b->n_free_states = n_states;
    b->step = 1;
    b->refs = calloc((size_t)b->n_blocks, sizeof *b->refs);
    b->has_owner = calloc((size_t)n_states + 1, sizeof *b->has_owner);
    if (!b->refs || !b->has_owner) {
        kin_kv_blocks_close(b);
        return kin_err_set(err, "out of memory");
    }
    *out = b;
    return 0;
}

void kin_kv_blocks_close(kin_kv_blocks *b) {
    if (!b) return;
    for (int i = 0; i < b->n_sequences; i++) free(b->sequences[i].blocks);
    free(b->sequences);
    free(b->refs);
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

static bool reserve(sequence *s, int n_blocks) {
    if (n_blocks <= s->cap) return true;
    int cap = n_blocks > 2 * s->cap ? n_blocks : 2 * s->cap;
    int32_t *larger = realloc(s->blocks, (size_t)cap * sizeof *larger);
    if (!larger) return false;
    s->blocks = larger;
    s->cap = cap;
    return true;
}

static int take_block(kin_kv_blocks *b) {
    for (int i = 0; i < b->n_blocks; i++) {
        if (b->refs[i] > 0) continue;
        b->refs[i] = 1;
        b->n_free--;
        return i;
    }
    return -1;
}

static void give_block(kin_kv_blocks *b, int32_t block) {
    if (--b->refs[block] == 0) b->n_free++;
}

static int take_state(kin_kv_blocks *b, sequence *s, kin_err *err) {
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

static void shorten(kin_kv_blocks *b, sequence *s, int n) {
    if (n >= s->n) return;
    for (int i = blocks_of(n); i < blocks_of(s->n); i++) give_block(b, s->blocks[i]);
    if (n == 0) give_state(b, s);
    s->n = n;
}

// True if the sequence's state can stand at position n.
static bool has_state_at(const kin_kv_blocks *b, const sequence *s, int n) {
    return b->n_states == 0 || n == 0 || (n >= s->base && n <= s->n);
}

static int lacks_state(int32_t seq, int n, kin_err *err) {
    return kin_err_set(err, "there is no state of sequence %d at position %d", (int)seq, n);
}

static int full_context(const kin_kv_blocks *b, kin_err *err) {
    return kin_err_set(err, "the context of %d tokens is full", b->n_ctx);
}

// If the last block of the sequence is partly filled and shared, replaces it by a private one.
static int own_last_block(kin_kv_blocks *b, sequence *s, kin_kv_copy *copy, kin_err *err) {
    if (s->n % KIN_KV_CELLS == 0) return 0;
    int32_t *last = &s->blocks[s->n / KIN_KV_CELLS];
    if (b->refs[*last] == 1) return 0;
    int block = take_block(b);
    if (block < 0) return full_context(b, err);
    copy->from = *last;
    copy->to = block;
    give_block(b, *last);
    *last = block;
    return 0;
}

static int truncate_to(kin_kv_blocks *b, int32_t seq, int n, kin_kv_copy *copy, kin_err *err) {
    sequence *s = &b->sequences[seq];
    if (n >= s->n) return 0;
    if (!has_state_at(b, s, n)) return lacks_state(seq, n, err);
    int kept = n % KIN_KV_CELLS ? s->blocks[n / KIN_KV_CELLS] : -1;
    bool is_shared = kept >= 0 && b->refs[kept] > 1;
    // The sequence's unshared blocks beyond n are freed before one is needed.
    bool frees = false;
    for (int i = blocks_of(n); i < blocks_of(s->n) && !frees; i++) frees = b->refs[s->blocks[i]] == 1;
    if (is_shared && b->n_free == 0 && !frees) return full_context(b, err);
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
    if (s->n == 0 && take_state(b, s, err) != 0) return KIN_FAIL;
    s->base = from->base < n ? from->base : n;
    s->step = 0;
    copy->state_from = from->state;
    copy->state_to = s->state;
    return 0;
}

static int share(kin_kv_blocks *b, const kin_kv_op *op, kin_kv_copy *copy, kin_err *err) {
    const sequence *from = op->from < b->n_sequences ? &b->sequences[op->from] : NULL;
    if (!from || op->n > from->n)
        return kin_err_set(err, "sequence %d has fewer than %d tokens in the KV cache", (int)op->from, (int)op->n);
    sequence *s = record(b, op->seq);
    if (!s || !reserve(s, blocks_of(op->n))) return kin_err_set(err, "out of memory for the KV cache's table");
    from = &b->sequences[op->from]; // the records may have moved
    if (!has_state_at(b, from, op->n)) return lacks_state(op->from, op->n, err);
    if (share_state(b, s, from, op->n, copy, err) != 0) return KIN_FAIL;
    for (int i = 0; i < blocks_of(op->n); i++) b->refs[from->blocks[i]]++;
    int n_before = s->n;
    for (int i = 0; i < blocks_of(n_before); i++) give_block(b, s->blocks[i]);
    if (op->n > 0) memcpy(s->blocks, from->blocks, (size_t)blocks_of(op->n) * sizeof *s->blocks);
    s->n = op->n;
    if (own_last_block(b, s, copy, err) == 0) return 0;
    shorten(b, s, 0);
    return KIN_FAIL;
}

int kin_kv_blocks_apply(kin_kv_blocks *b, const kin_kv_op *op, kin_kv_copy *copy, kin_err *err) {
    *copy = (kin_kv_copy){-1, -1, -1, -1};
    if (op->seq < 0) {
        for (int i = 0; i < b->n_sequences; i++) shorten(b, &b->sequences[i], 0);
        return 0;
    }
    if (op->seq != op->from) return share(b, op, copy, err);
    return op->seq < b->n_sequences ? truncate_to(b, op->seq, op->n, copy, err) : 0;
}

// Before a position is appended: those of the log are added to the state, or the positions are too many for a log.
static void append_to_log(kin_kv_blocks *b, sequence *s) {
    if (s->step != b->step) {
        s->step = b->step;
        s->n_logged = s->n - s->base;
        s->begin = s->base = s->n;
    }
    if (s->n + 1 - s->begin > KIN_STATE_LOG) s->base = s->n + 1;
}

void kin_kv_blocks_begin_step(kin_kv_blocks *b) {
    b->step++;
}

kin_kv_run kin_kv_blocks_run(const kin_kv_blocks *b, int32_t seq) {
    const sequence *s = &b->sequences[seq];
    kin_assert(b->n_states > 0 && s->n > 0 && s->step == b->step);
    const int n = s->n - s->begin;
    return (kin_kv_run){.begin = s->begin, .n = n, .state = s->state, .n_logged = s->n_logged, .stores = n > KIN_STATE_LOG};
}

int kin_kv_blocks_nearest(const kin_kv_blocks *b, int32_t seq, int n) {
    if (seq >= b->n_sequences) return 0;
    const sequence *s = &b->sequences[seq];
    if (n > s->n) n = s->n;
    return has_state_at(b, s, n) ? n : 0;
}

int kin_kv_blocks_append(kin_kv_blocks *b, int32_t seq, int32_t pos, int64_t *cell, kin_err *err) {
    int n = kin_kv_blocks_n_tokens(b, seq);
    if (pos < n) return kin_err_set(err, "position %d of sequence %d is already in the KV cache", (int)pos, (int)seq);
    if (pos > n) return kin_err_set(err, "tokens before position %d of sequence %d are not in the KV cache", (int)pos, (int)seq);
    if (pos >= b->n_ctx) return full_context(b, err);
    sequence *s = record(b, seq);
    if (s && !has_state_at(b, s, pos)) return lacks_state(seq, pos, err);
    int i = pos / KIN_KV_CELLS;
    if (!s || !reserve(s, i + 1)) return kin_err_set(err, "out of memory for the KV cache's table");
    if (pos % KIN_KV_CELLS == 0) {
        int block = take_block(b);
        if (block < 0) return full_context(b, err);
        s->blocks[i] = block;
    }
    if (n == 0 && b->n_states > 0 && take_state(b, s, err) != 0) {
        give_block(b, s->blocks[i]);
        return KIN_FAIL;
    }
    if (b->n_states > 0) append_to_log(b, s);
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

int kin_kv_blocks_n(const kin_kv_blocks *b) {
    return b->n_blocks;
}

int kin_kv_blocks_n_free(const kin_kv_blocks *b) {
    return b->n_free;
}

int kin_kv_blocks_n_free_states(const kin_kv_blocks *b) {
    return b->n_free_states;
}

int kin_kv_blocks_end(const kin_kv_blocks *b) {
    int n = b->n_blocks;
    while (n > 0 && b->refs[n - 1] == 0) n--;
    return n;
}
