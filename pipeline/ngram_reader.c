#include "pipeline/ngram_reader.h"

#include <stdlib.h>
#include <string.h>

#include "engine/row_cache.h"
#include "model/ngram.h"

// The tokens of a sequence. Those that it has lost stay until others take their positions.
typedef struct history {
    int32_t *tokens; // [cap]
    int cap;
} history;

struct kin_ngram_reader {
    const kin_ngram *ngram;
    kin_row_cache *rows;
    uint64_t *numbers;  // [n_batch, rows of a token]
    history *sequences; // [n_sequences]
    int n_sequences;
};

int kin_ngram_reader_open(kin_ngram_reader **out, const kin_model *model, int n_batch, kin_err *err) {
    kin_ngram_reader *r = *out = calloc(1, sizeof *r);
    if (!r) return kin_err_set(err, "out of memory");
    r->ngram = &model->hp.ngram;
    r->numbers = malloc((size_t)n_batch * (size_t)kin_ngram_n_rows(r->ngram) * sizeof *r->numbers);
    if (!r->numbers) kin_err_set(err, "out of memory");
    if (r->numbers && kin_row_cache_open(&r->rows, model->gguf, model->ngram_embd, err) == 0) return 0;
    kin_ngram_reader_close(r);
    *out = NULL;
    return KIN_FAIL;
}

void kin_ngram_reader_close(kin_ngram_reader *r) {
    if (!r) return;
    for (int i = 0; i < r->n_sequences; i++) free(r->sequences[i].tokens);
    free(r->sequences);
    kin_row_cache_close(r->rows);
    free(r->numbers);
    free(r);
}

// Returns the tokens of a sequence; NULL: out of memory.
static history *history_of(kin_ngram_reader *r, int32_t seq) {
    kin_assert(seq >= 0 && seq < KIN_KV_MAX_SEQUENCES);
    if (seq < r->n_sequences) return &r->sequences[seq];
    history *larger = realloc(r->sequences, ((size_t)seq + 1) * sizeof *larger);
    if (!larger) return NULL;
    r->sequences = larger;
    while (r->n_sequences <= seq) r->sequences[r->n_sequences++] = (history){0};
    return &r->sequences[seq];
}

static bool make_room(history *h, int n) {
    enum { LEAST = 256 };
    if (n <= h->cap) return true;
    const int cap = n > 2 * h->cap ? n + LEAST : 2 * h->cap;
    int32_t *larger = realloc(h->tokens, (size_t)cap * sizeof *larger);
    if (!larger) return false;
    h->tokens = larger;
    h->cap = cap;
    return true;
}

int kin_ngram_reader_note(kin_ngram_reader *r, int32_t seq, int pos, const int32_t *tokens, int n, kin_err *err) {
    history *h = history_of(r, seq);
    kin_assert(pos >= 0);
    if (!h || !make_room(h, pos + n)) return kin_err_set(err, "out of memory for the tokens of a sequence");
    memcpy(h->tokens + pos, tokens, (size_t)n * sizeof *tokens);
    return 0;
}

int kin_ngram_reader_change(kin_ngram_reader *r, const kin_kv_op *op, kin_err *err) {
    if (op->seq < 0 || op->seq == op->from || op->from < 0 || op->n == 0) return 0;
    kin_assert(op->from < r->n_sequences && op->n <= r->sequences[op->from].cap);
    return kin_ngram_reader_note(r, op->seq, 0, r->sequences[op->from].tokens, op->n, err);
}

int kin_ngram_reader_read(kin_ngram_reader *r, int n, const int32_t *tokens, const int32_t *seq, const int32_t *pos, float *to,
                          kin_err *err) {
    const size_t n_rows = (size_t)kin_ngram_n_rows(r->ngram);
    for (int i = 0; i < n; i++)
        if (kin_ngram_reader_note(r, seq[i], pos[i], &tokens[i], 1, err) != 0) return KIN_FAIL;
    for (int i = 0; i < n; i++) {
        int32_t ids[KIN_NGRAM_TOKENS];
        for (int k = 0; k < r->ngram->size; k++) ids[k] = pos[i] >= k ? r->sequences[seq[i]].tokens[pos[i] - k] : -1;
        kin_ngram_rows(r->ngram, ids, r->numbers + (size_t)i * n_rows);
    }
    return kin_row_cache_read(r->rows, r->numbers, (size_t)n * n_rows, to, err);
}
