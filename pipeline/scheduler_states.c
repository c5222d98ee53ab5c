// Models with recurrent layers: a sequence has one of a few states, and others can begin with its tokens only where a state
// stands: at its end, or in the log behind it. With windowed layers that keep only the window (engine/kv_window.h) they can begin
// only where all of the window is left: near its end. So the beginning of a prompt is kept as a prefix of its own, a mark, at two
// places: near its end, because what follows there often changes with the next turn of a conversation (a reply's reasoning is
// dropped), and where it parts from another prompt, because a third one may part there too.
#include <stdlib.h>
#include <string.h>

#include "pipeline/scheduler_impl.h"

enum {
    NO_SLOT = -1,
    LEAST_GAP = 128,  // tokens from one kept position to the next: fewer are computed again
    FROM_THE_END = 8, // tokens behind a mark that the next turn of a conversation may change: those that begin a reply
};

bool kin_scheduler_forgets(const kin_scheduler *s) {
    return s->o.n_states > 0 || s->o.window.n_blocks > 0;
}

int kin_scheduler_n_parallel(const kin_scheduler *s) {
    return s->o.n_states > 0 ? kin_scheduler_min(s->o.n_parallel, s->o.n_states) : s->o.n_parallel;
}

bool kin_scheduler_make_state(kin_scheduler *s, int but) {
    while (s->o.n_states > 0 && kin_kv_blocks_n_free_states(s->blocks) == 0)
        if (!kin_scheduler_evict(s, but)) return false;
    return true;
}

static int whole_blocks(int n) {
    return n > 0 ? n / KIN_KV_CELLS * KIN_KV_CELLS : 0;
}

// The tokens of a mark may still be in flight, so a block that is partly filled cannot be copied from it.
int kin_scheduler_reusable(const kin_scheduler *s, int i, int n) {
    if (s->slots[i].is_mark) n = whole_blocks(n);
    return kin_scheduler_forgets(s) ? kin_kv_blocks_nearest(s->blocks, i, n) : n;
}

int kin_scheduler_soon_reusable(const kin_scheduler *s, const kin_generation *g, const kin_generation *o) {
    const int n = kin_scheduler_common_prefix(g, o->tokens, o->n);
    int best = 0;
    if (!kin_scheduler_forgets(s) || (s->o.n_states == 0 && o->n <= s->o.window.size)) return n;
    for (int i = 0; i < KIN_SCHEDULER_MARKS; i++)
        if (o->marks[i] > o->n_sent && o->marks[i] <= n) best = o->marks[i];
    return best;
}

// Returns the tokens that the sequence has in common with the one that is most like it.
static int most_in_common(const kin_scheduler *s, const kin_generation *g) {
    int most = 0;
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) {
        const kin_slot *t = &s->slots[i];
        if (t->owner == g || (t->owner && t->owner->o.no_cache)) continue;
        int n = t->owner ? kin_scheduler_common_prefix(g, t->owner->tokens, t->owner->n)
                         : kin_scheduler_common_prefix(g, t->tokens, t->n);
        if (n > most) most = n;
    }
    return most;
}

void kin_scheduler_choose_marks(const kin_scheduler *s, kin_generation *g) {
    memset(g->marks, 0, sizeof g->marks);
    if (!kin_scheduler_forgets(s) || !s->o.keeps || g->o.no_cache || g->o.hidden || g->is_second) return;
    const int parting = whole_blocks(most_in_common(s, g)), end = whole_blocks(g->o.n_prompt - FROM_THE_END);
    if (parting >= g->n_sent + LEAST_GAP && parting + LEAST_GAP <= end) g->marks[0] = parting;
    if (end >= g->n_sent + LEAST_GAP) g->marks[1] = end;
}

int kin_scheduler_up_to_mark(const kin_generation *g, int n) {
    for (int i = 0; i < KIN_SCHEDULER_MARKS; i++)
        if (g->marks[i] > g->n_sent) n = kin_scheduler_min(n, g->marks[i] - g->n_sent);
    return n;
}

// Keeps the tokens that the sequence has so far in a slot of their own, if there is room. Its own slot stores their pages.
static void keep(kin_scheduler *s, const kin_generation *g) {
    kin_err err;
    const int n = g->n_sent;
    int slot = kin_scheduler_make_state(s, NO_SLOT) ? kin_scheduler_find_free_slot(s, NO_SLOT) : NO_SLOT;
    int32_t *tokens = slot == NO_SLOT ? NULL : malloc((size_t)n * sizeof *tokens);
    if (!tokens || kin_scheduler_change(s, (kin_kv_op){slot, g->slot, n}, &err) != 0) {
        free(tokens);
        return;
    }
    memcpy(tokens, g->tokens, (size_t)n * sizeof *tokens);
    s->slots[slot] = (kin_slot){.tokens = tokens, .n = n, .tag = g->o.tag, .used = s->stats.n_steps, .is_mark = true};
    s->slots[slot].n_kept = n / KIN_KV_CELLS;
}

void kin_scheduler_keep_marks(kin_scheduler *s, const kin_flight *f) {
    for (int i = 0; i < f->n_parts; i++) {
        kin_generation *g = f->parts[i].g;
        for (int k = 0; k < KIN_SCHEDULER_MARKS; k++) {
            if (g->marks[k] != g->n_sent || g->n_sent == 0) continue;
            g->marks[k] = 0;
            keep(s, g);
        }
    }
}
