// Models with recurrent layers: a sequence has one of a few states, and others can begin with its tokens only where a state
// stands: at its end, or in the log after it. With windowed layers that keep only the window (engine/kv/window.h) they can begin
// only where all of the window is left: near its end. So the beginning of a prompt is kept as a prefix of its own, a mark, at two
// places: near its end, because what follows there often changes with the next turn of a conversation (a reply's reasoning is
// dropped), and where it parts from another prompt, because a third one may part there too. With pages on disks a sequence leaves
// more marks, at multiples of a gap, until their states are stored (scheduler_checkpoints.c).
#include "pipeline/scheduler_states.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/scheduler_slots.h"

enum {
    LEAST_GAP = 128,  // tokens from one kept position to the next: fewer are computed again
    FROM_THE_END = 8, // tokens after a mark that the next turn of a conversation may change: those that begin a reply
};

int kin_scheduler_n_parallel(const kin_scheduler *s) {
    return s->o.n_states > 0 ? kin_scheduler_min(s->o.n_parallel, s->o.n_states) : s->o.n_parallel;
}

int kin_scheduler_soon_reusable(const kin_scheduler *s, const kin_generation *g, const kin_generation *o) {
    const int n = kin_scheduler_common_prefix(g, o->tokens, o->n);
    int best = 0;
    if (!kin_scheduler_forgets(s) || (s->o.n_states == 0 && o->n <= s->o.window.size)) return n;
    for (int i = 0; i < KIN_SCHEDULER_MARKS; i++) {
        const int mark = i == KIN_SCHEDULER_GAP ? 0 : o->marks[i];
        if (mark > o->n_sent && mark <= n && mark > best) best = mark;
    }
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

// Returns the first multiple of the gap after n tokens; 0: sequences are not stored on disks.
static int next_gap(const kin_scheduler *s, int n) {
    const int gap = s->o.pages ? s->o.checkpoint_gap : 0;
    return gap > 0 ? (n / gap + 1) * gap : 0;
}

void kin_scheduler_choose_marks(const kin_scheduler *s, kin_generation *g, int n_known) {
    memset(g->marks, 0, sizeof g->marks);
    if (!kin_scheduler_forgets(s) || !s->o.keeps || g->o.no_cache || g->o.hidden || g->is_second) return;
    const int n_found = g->n_found * KIN_KV_CELLS, n = n_found > g->n_sent ? n_found : g->n_sent, common = most_in_common(s, g);
    const int n_marked = n_found > s->slots[g->slot].n_marked ? n_found : s->slots[g->slot].n_marked;
    const int parting = kin_scheduler_whole_blocks(common > n_known ? common : n_known),
              end = kin_scheduler_whole_blocks(g->o.n_prompt - FROM_THE_END);
    if (parting >= n + LEAST_GAP && parting + LEAST_GAP <= end) g->marks[KIN_SCHEDULER_PARTING] = parting;
    if (end > n && end >= n_marked + LEAST_GAP) g->marks[KIN_SCHEDULER_END] = end;
    g->marks[KIN_SCHEDULER_GAP] = next_gap(s, n);
}

// A state at a mark must have no log. It has one after a step of few tokens; then the next step has few, too, so that the state
// stands at the mark, with these in its log.
int kin_scheduler_up_to_mark(const kin_generation *g, int n) {
    for (int i = 0; i < KIN_SCHEDULER_MARKS; i++) {
        const int left = g->marks[i] - g->n_sent;
        if (g->marks[i] == 0 || left < 0) continue;
        n = kin_scheduler_min(n, left > 0 ? left : KIN_STATE_LOG);
    }
    return n;
}

// Frees an older mark of the sequence that is of no more use than a new one. Returns false if there is none.
static bool free_older_mark(kin_scheduler *s, const kin_generation *g) {
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) {
        const kin_slot *t = &s->slots[i];
        if (!t->is_mark || t->mark.flight != 0 || (t->mark.kind != KIN_SCHEDULER_GAP && !t->mark.is_stored)) continue;
        if (kin_scheduler_common_prefix(g, t->tokens, t->n) < t->n) continue;
        kin_scheduler_free_slot(s, i);
        return true;
    }
    return false;
}

static bool has_free_place(const kin_scheduler *s) {
    const bool has_state = s->o.n_states == 0 || kin_kv_blocks_n_free_states(s->blocks) > 0;
    return has_state && kin_scheduler_unused_slot(s) != KIN_SCHEDULER_NO_SLOT;
}

// Returns a slot for a mark, or -1. Those at gaps are kept for a short time, so no other sequence is evicted for them.
static int find_place(kin_scheduler *s, const kin_generation *g, int kind) {
    if (kind != KIN_SCHEDULER_GAP)
        return kin_scheduler_make_state(s, KIN_SCHEDULER_NO_SLOT) ? kin_scheduler_find_free_slot(s, KIN_SCHEDULER_NO_SLOT)
                                                                  : KIN_SCHEDULER_NO_SLOT;
    return has_free_place(s) || (free_older_mark(s, g) && has_free_place(s)) ? kin_scheduler_unused_slot(s)
                                                                             : KIN_SCHEDULER_NO_SLOT;
}

// Keeps the first n tokens of the sequence in a slot of their own, if there is room. Its own slot stores their pages.
static void keep(kin_scheduler *s, const kin_generation *g, int kind, int n) {
    kin_err err;
    const int slot = find_place(s, g, kind);
    int32_t *tokens = slot == KIN_SCHEDULER_NO_SLOT ? NULL : malloc((size_t)n * sizeof *tokens);
    if (!tokens || kin_scheduler_change(s, (kin_kv_op){slot, g->slot, n}, &err) != 0) {
        free(tokens);
        return;
    }
    memcpy(tokens, g->tokens, (size_t)n * sizeof *tokens);
    s->slots[slot] = (kin_slot){.tokens = tokens, .n = n, .tag = g->o.tag, .used = s->stats.n_steps, .is_mark = true};
    s->slots[slot].n_kept = n / KIN_KV_CELLS;
    s->slots[slot].n_marked = s->slots[g->slot].n_marked = n;
    s->slots[slot].mark.kind = kind;
    s->slots[slot].mark.due = s->stats.n_steps + (uint64_t)(s->n_flights - s->n_page_flights) + 1; // the next step has the change
}

// Returns which mark the sequence has reached with its first n tokens; KIN_SCHEDULER_MARKS: none.
static int reached_mark(const kin_generation *g, int n) {
    if (n == g->marks[KIN_SCHEDULER_PARTING]) return KIN_SCHEDULER_PARTING;
    if (n == g->marks[KIN_SCHEDULER_END]) return KIN_SCHEDULER_END;
    const int gap = g->marks[KIN_SCHEDULER_GAP];
    return gap > 0 && n >= gap ? KIN_SCHEDULER_GAP : KIN_SCHEDULER_MARKS;
}

void kin_scheduler_keep_marks(kin_scheduler *s, const kin_flight *f) {
    for (int i = 0; i < f->n_parts && kin_scheduler_forgets(s); i++) {
        kin_generation *g = f->parts[i].g;
        const int n = kin_kv_blocks_checkpoint(s->blocks, g->slot, kin_scheduler_min(g->n_sent, g->n));
        const int kind = n > 0 ? reached_mark(g, n) : KIN_SCHEDULER_MARKS;
        if (kind == KIN_SCHEDULER_MARKS) continue;
        g->marks[kind] = 0;
        if (n >= g->marks[KIN_SCHEDULER_GAP]) g->marks[KIN_SCHEDULER_GAP] = next_gap(s, n);
        keep(s, g, kind, n);
    }
}
