#include "engine/kv_blocks.h"

#include <stdlib.h>
#include <string.h>

typedef struct sequence {
    int32_t *blocks; // [cap], as many as n positions need
    int n, cap;
} sequence;

struct kin_kv_blocks {
    int n_ctx, n_blocks, n_free;
    int *refs; // [n_blocks] number of sequences that use each block
    sequence *sequences;
    int n_sequences; // the size of `sequences`
};

static int blocks_of(int n_tokens) {
    return (n_tokens + KIN_KV_CELLS - 1) / KIN_KV_CELLS;
}

int kin_kv_blocks_open(kin_kv_blocks **out, int n_ctx, kin_err *err) {
    *out = NULL;
    kin_kv_blocks *b = calloc(1, sizeof *b);
    if (!b) return kin_err_set(err, "out of memory");
    b->n_ctx = n_ctx;
    b->n_blocks = b->n_free = blocks_of(n_ctx);
    b->refs = calloc((size_t)b->n_blocks, sizeof *b->refs);
    if (!b->refs) {
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

static void shorten(kin_kv_blocks *b, sequence *s, int n) {
    if (n >= s->n) return;
    for (int i = blocks_of(n); i < blocks_of(s->n); i++) give_block(b, s->blocks[i]);
    s->n = n;
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
    *copy = (kin_kv_copy){*last, block};
    give_block(b, *last);
    *last = block;
    return 0;
}

static int truncate_to(kin_kv_blocks *b, sequence *s, int n, kin_kv_copy *copy, kin_err *err) {
    if (n >= s->n) return 0;
    int kept = n % KIN_KV_CELLS ? s->blocks[n / KIN_KV_CELLS] : -1;
    bool is_shared = kept >= 0 && b->refs[kept] > 1;
    // The sequence's unshared blocks beyond n are freed before one is needed.
    bool frees = false;
    for (int i = blocks_of(n); i < blocks_of(s->n) && !frees; i++) frees = b->refs[s->blocks[i]] == 1;
    if (is_shared && b->n_free == 0 && !frees) return full_context(b, err);
    shorten(b, s, n);
    return own_last_block(b, s, copy, err);
}

static int share(kin_kv_blocks *b, const kin_kv_op *op, kin_kv_copy *copy, kin_err *err) {
    const sequence *from = op->from < b->n_sequences ? &b->sequences[op->from] : NULL;
    if (!from || op->n > from->n)
        return kin_err_set(err, "sequence %d has fewer than %d tokens in the KV cache", (int)op->from, (int)op->n);
    sequence *s = record(b, op->seq);
    if (!s || !reserve(s, blocks_of(op->n))) return kin_err_set(err, "out of memory for the KV cache's table");
    from = &b->sequences[op->from]; // the records may have moved
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
    *copy = (kin_kv_copy){-1, -1};
    if (op->seq < 0) {
        for (int i = 0; i < b->n_sequences; i++) shorten(b, &b->sequences[i], 0);
        return 0;
    }
    if (op->seq != op->from) return share(b, op, copy, err);
    return op->seq < b->n_sequences ? truncate_to(b, &b->sequences[op->seq], op->n, copy, err) : 0;
}

int kin_kv_blocks_append(kin_kv_blocks *b, int32_t seq, int32_t pos, int64_t *cell, kin_err *err) {
    int n = kin_kv_blocks_n_tokens(b, seq);
    if (pos < n) return kin_err_set(err, "position %d of sequence %d is already in the KV cache", (int)pos, (int)seq);
    if (pos > n) return kin_err_set(err, "tokens before position %d of sequence %d are not in the KV cache", (int)pos, (int)seq);
    if (pos >= b->n_ctx) return full_context(b, err);
    sequence *s = record(b, seq);
    int i = pos / KIN_KV_CELLS;
    if (!s || !reserve(s, i + 1)) return kin_err_set(err, "out of memory for the KV cache's table");
    if (pos % KIN_KV_CELLS == 0) {
        int block = take_block(b);
        if (block < 0) return full_context(b, err);
        s->blocks[i] = block;
    }
    s->n++;
    *cell = (int64_t)s->blocks[i] * KIN_KV_CELLS + pos % KIN_KV_CELLS;
    return 0;
}

void kin_kv_blocks_undo(kin_kv_blocks *b, int32_t seq, int32_t n) {
    if (seq < b->n_sequences) shorten(b, &b->sequences[seq], n);
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

int kin_kv_blocks_end(const kin_kv_blocks *b) {
    int n = b->n_blocks;
    while (n > 0 && b->refs[n - 1] == 0) n--;
    return n;
}
