#include "pure/plan/expert_guess.h"

#include <stdlib.h>

// A wrong guess costs a read that others wait for, where the disk is the limit. A right one saves a part of its own read at best:
// what is done while the processor computes. So each rank must come true much more often than not.
static const float LEAST_OF_A_RANK = 0.7f, LEAST_OF_ALL = 0.8f;
static const float LEAST_SEEN = 6; // guesses of a rank, before it is judged
static const float KEEPS = 0.98f;  // of earlier guesses, for each new one: half after 34

typedef struct rank {
    float seen, right;
} rank;

typedef struct noted {
    int32_t expert;
    int rank;
} noted;

typedef struct layer {
    int n_noted;
    int n_skipped; // steps since the last guess
    int n_without; // the last guesses, all of whose experts were in memory
} layer;

struct kin_expert_guess {
    int n_used;
    rank *ranks;   // [n_layer][n_used]
    noted *noted;  // [n_layer][KIN_GUESS_TOKENS * n_used]
    layer *layers; // [n_layer]
};

int kin_expert_guess_open(kin_expert_guess **out, int n_layer, int n_used, kin_err *err) {
    kin_expert_guess *g = *out = calloc(1, sizeof *g);
    const size_t n = (size_t)n_layer, n_ranks = n * (size_t)n_used;
    if (!g) return kin_err_set(err, "out of memory");
    kin_assert(n_layer > 0 && n_used > 0);
    g->n_used = n_used;
    g->ranks = calloc(n_ranks, sizeof *g->ranks);
    g->noted = calloc(KIN_GUESS_TOKENS * n_ranks, sizeof *g->noted);
    g->layers = calloc(n, sizeof *g->layers);
    if (g->ranks && g->noted && g->layers) return 0;
    kin_expert_guess_close(g);
    *out = NULL;
    return kin_err_set(err, "out of memory");
}

void kin_expert_guess_close(kin_expert_guess *g) {
    if (!g) return;
    free(g->ranks);
    free(g->noted);
    free(g->layers);
    free(g);
}

static rank *ranks_of(const kin_expert_guess *g, int il) {
    return &g->ranks[(size_t)il * (size_t)g->n_used];
}

static bool is_unknown(const rank *r) {
    return r->seen < LEAST_SEEN;
}

// A rank of which little is known is read if a less likely one is worth it.
int kin_expert_guess_n_worthy(const kin_expert_guess *g, int il) {
    const rank *r = ranks_of(g, il);
    float seen = 0, right = 0;
    int n_worthy = 0;
    for (int n = 0; n < g->n_used; n++) {
        seen += r[n].seen;
        right += r[n].right;
        if (is_unknown(&r[n])) continue;
        if (r[n].right < LEAST_OF_A_RANK * r[n].seen || right < LEAST_OF_ALL * seen) break;
        n_worthy = n + 1;
    }
    return n_worthy;
}

static bool is_known(const kin_expert_guess *g, int il) {
    for (int n = 0; n < g->n_used; n++)
        if (!is_unknown(&ranks_of(g, il)[n])) return true;
    return false;
}

bool kin_expert_guess_is_due(kin_expert_guess *g, int il) {
    layer *l = &g->layers[il];
    l->n_noted = 0; // those of a step that ended before it came to this layer
    const bool is_idle = l->n_without >= KIN_GUESS_SELDOM || (is_known(g, il) && kin_expert_guess_n_worthy(g, il) == 0);
    if (is_idle && ++l->n_skipped < KIN_GUESS_SELDOM) return false;
    l->n_skipped = 0;
    l->n_without++;
    return true;
}

void kin_expert_guess_note(kin_expert_guess *g, int il, int32_t expert, int i_rank) {
    const int most = KIN_GUESS_TOKENS * g->n_used;
    kin_assert(i_rank >= 0 && i_rank < g->n_used);
    layer *l = &g->layers[il];
    kin_assert(l->n_noted < most);
    g->noted[(size_t)il * (size_t)most + (size_t)l->n_noted++] = (noted){expert, i_rank};
    l->n_without = 0;
}

void kin_expert_guess_settle(kin_expert_guess *g, int il, const int32_t *uses) {
    const noted *list = &g->noted[(size_t)il * KIN_GUESS_TOKENS * (size_t)g->n_used];
    for (int i = 0; i < g->layers[il].n_noted; i++) {
        rank *r = &ranks_of(g, il)[list[i].rank];
        r->seen = KEEPS * r->seen + 1;
        r->right = KEEPS * r->right + (uses[list[i].expert] > 0 ? 1 : 0);
    }
    g->layers[il].n_noted = 0;
}
