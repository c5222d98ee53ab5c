#include "pure/sampling/ngram_draft.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { N_LOOKS = 32, FIRST_CAP = 1024, NONE = -1, N_BESIDE = 8 };

// Hash chains as in LZ77: places whose last KIN_NGRAM_LEAST tokens have the same hash, latest first. A place is the position
// after these tokens.
struct kin_ngram_draft {
    int32_t *latest;   // [cap], by hash
    int32_t *previous; // [cap], by place
    int cap;           // a power of two, > n
    int n;             // tokens that are indexed
    int distance;      // from the end of the sequence back to the last matched place; 0: none
    int n_matched;     // length of the sequence at that match
};

int kin_ngram_draft_open(kin_ngram_draft **out, kin_err *err) {
    *out = calloc(1, sizeof **out);
    return *out ? 0 : kin_err_set(err, "out of memory");
}

void kin_ngram_draft_close(kin_ngram_draft *d) {
    if (!d) return;
    free(d->latest);
    free(d->previous);
    free(d);
}

void kin_ngram_draft_reset(kin_ngram_draft *d) {
    d->n = d->distance = 0;
}

static uint32_t hash(const int32_t *tokens) {
    uint32_t h = 0;
    for (int i = 0; i < KIN_NGRAM_LEAST; i++) h = (h ^ (uint32_t)tokens[i]) * UINT32_C(0x9e3779b1), h ^= h >> 15;
    return h;
}

static void add(kin_ngram_draft *d, const int32_t *tokens, int place) {
    int32_t *latest = &d->latest[hash(tokens + place - KIN_NGRAM_LEAST) & (uint32_t)(d->cap - 1)];
    d->previous[place] = *latest;
    *latest = place;
}

// Allocates empty tables for n tokens.
static bool grow(kin_ngram_draft *d, int n) {
    int cap = d->cap ? d->cap : FIRST_CAP;
    while (cap <= n) cap *= 2;
    int32_t *latest = malloc((size_t)cap * sizeof *latest), *previous = malloc((size_t)cap * sizeof *previous);
    free(d->latest);
    free(d->previous);
    d->latest = latest;
    d->previous = previous;
    d->cap = latest && previous ? cap : 0;
    d->n = 0;
    return d->cap > 0;
}

// Indexes new tokens, except at the end of the sequence: nothing follows there yet.
static bool index_tokens(kin_ngram_draft *d, const int32_t *tokens, int n) {
    if (n >= d->cap && !grow(d, n)) return false;
    if (n < d->n) kin_ngram_draft_reset(d);
    if (d->n == 0) memset(d->latest, 0xff, (size_t)d->cap * sizeof *d->latest); // NONE
    for (int place = d->n < KIN_NGRAM_LEAST ? KIN_NGRAM_LEAST : d->n; place < n; place++) add(d, tokens, place);
    d->n = n;
    return true;
}

static int match_length(const int32_t *tokens, int n, int place) {
    int most = place < KIN_NGRAM_MOST ? place : KIN_NGRAM_MOST, m = 0;
    while (m < most && tokens[place - 1 - m] == tokens[n - 1 - m]) m++;
    return m;
}

static uint8_t grade(int match) {
    static const uint8_t of_match[KIN_NGRAM_MOST + 1] = {0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 5,
                                                         5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7};
    return of_match[match < KIN_NGRAM_MOST ? match : KIN_NGRAM_MOST];
}

// Returns the place with the longest match, NONE if there is none; *longest: its length.
static int find(const kin_ngram_draft *d, const int32_t *tokens, int n, int *longest) {
    int best = NONE, place = d->latest[hash(tokens + n - KIN_NGRAM_LEAST) & (uint32_t)(d->cap - 1)];
    *longest = KIN_NGRAM_LEAST - 1;
    for (int i = 0; i < N_LOOKS && place != NONE && *longest < KIN_NGRAM_MOST; i++, place = d->previous[place]) {
        int m = match_length(tokens, n, place);
        if (m <= *longest) continue;
        *longest = m;
        best = place;
    }
    return best;
}

// Returns the place at the same distance as the last match, for a text that differs from it in a few tokens. NONE: no recent
// match.
static int find_beside(const kin_ngram_draft *d, int n) {
    bool is_near = d->distance > 0 && n > d->n_matched && n - d->n_matched <= N_BESIDE;
    return is_near ? n - d->distance : NONE;
}

void kin_ngram_draft_propose(kin_ngram_draft *d, const int32_t *tokens, int n, int most, kin_draft *out) {
    out->kind = KIN_DRAFT_NGRAM;
    out->n = 0;
    if (n < KIN_NGRAM_LEAST || most <= 0 || !index_tokens(d, tokens, n)) return;
    int longest, best = find(d, tokens, n, &longest);
    if (best == NONE) {
        longest = 0;
        best = find_beside(d, n);
    } else {
        d->distance = n - best;
        d->n_matched = n;
    }
    if (best == NONE) return;
    for (int i = 0; i < most && i < KIN_DRAFT_MAX; i++, out->n++) {
        int at = best + i; // beyond the end of the sequence it reads the draft itself, for repetitive text
        out->tokens[i] = at < n ? tokens[at] : out->tokens[at - n];
        out->grades[i] = grade(longest + i);
    }
}
