// Checkpoints on disks: where layers without pages (kin_kv_n_parts) have their states stored, so that a sequence that is loaded
// can go on there. A mark (scheduler_states.c) becomes one: no step changes it, so its states are stored when the steps that may
// still copy them are back. A request stores a part of large states, and members with a slow disk leave parts out; then it is
// repeated some steps later.
//
// The disks have a checkpoint at each gap of a long sequence and where prompts part. The end of a turn is another one, until it
// is older than the last two and less than a gap after the one before.
#include "pipeline/scheduler_checkpoints.h"

#include <stdlib.h>

#include "pipeline/scheduler_flights.h"
#include "pipeline/scheduler_slots.h"

enum {
    MOST_TRIES = 32,
    PAUSE = 2,       // steps between them
    SETTLE_MS = 200, // or, when no step follows, the time that each waits for a disk
    NEWEST = 2,
};

// Finds the checkpoints of a sequence's first n_blocks blocks; the caller frees them. NULL: no memory, or no blocks.
static uint8_t *find_checkpoints(const kin_scheduler *s, const int32_t *tokens, int n_blocks) {
    uint8_t *kinds = n_blocks > 0 ? malloc((size_t)n_blocks) : NULL;
    if (kinds) kin_prefix_pages_checkpoints(s->o.pages, tokens, n_blocks, kinds);
    return kinds;
}

int kin_scheduler_last_checkpoint(const kin_scheduler *s, const int32_t *tokens, int n_blocks) {
    uint8_t *kinds = find_checkpoints(s, tokens, n_blocks);
    int n = kinds ? n_blocks : 0;
    while (n > 0 && kinds[n - 1] == KIN_STATES_NONE) n--;
    free(kinds);
    return n;
}

// Returns the block before the first checkpoint that newer ones replace, or -1.
static int find_old(const kin_scheduler *s, const uint8_t *kinds, int n_blocks) {
    int end = n_blocks, before = 0;
    for (int n_newest = 0; end > 0 && n_newest < NEWEST;) n_newest += kinds[--end] == KIN_STATES_OF_TURN;
    for (int i = 0; i < end; i++) {
        if (kinds[i] == KIN_STATES_NONE) continue;
        if (kinds[i] == KIN_STATES_OF_TURN && (i + 1 - before) * KIN_KV_CELLS < s->o.checkpoint_gap) return i;
        before = i + 1;
    }
    return -1;
}

// kind: of the checkpoint at the end of these blocks, which was just stored.
static void drop_old(kin_scheduler *s, const int32_t *tokens, int n_blocks, kin_states_kind kind) {
    uint8_t *kinds = s->old.is_due ? NULL : find_checkpoints(s, tokens, n_blocks);
    if (kinds) kinds[n_blocks - 1] = (uint8_t)kind;
    const int i = kinds ? find_old(s, kinds, n_blocks) : -1;
    free(kinds);
    if (i < 0 || !kin_prefix_pages_name(s->o.pages, tokens, i, 1, &s->old.name)) return;
    kin_prefix_pages_set_checkpoint(s->o.pages, tokens, i + 1, KIN_STATES_NONE);
    s->old.n_blocks = i + 1;
    s->old.is_due = true;
}

static int send_old(kin_scheduler *s, kin_err *err) {
    kin_page_request r = {.drops = true, .has_states = true, .first = s->old.n_blocks - 1, .n = 1, .keys = {s->old.name}};
    s->old.is_due = false;
    return kin_scheduler_send_pages(s, kin_scheduler_new_flight(s, KIN_FLIGHT_KEEP), &r, NULL, err);
}

// Without flights the steps that may still copy the states are back.
static bool is_storable(const kin_scheduler *s, const kin_slot *t) {
    const bool is_due = s->stats.n_steps >= t->mark.due || (s->n_flights == 0 && (t->mark.n_tries == 0 || s->settles));
    return t->is_mark && !t->mark.is_stored && t->mark.flight == 0 && t->mark.n_tries < MOST_TRIES && is_due;
}

int kin_scheduler_send_states(kin_scheduler *s, bool *sent, kin_err *err) {
    *sent = s->old.is_due;
    if (s->old.is_due) return send_old(s, err);
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) {
        kin_slot *t = &s->slots[i];
        if (!is_storable(s, t)) continue;
        kin_page_request r = {.has_states = true, .seq = i, .first = t->n / KIN_KV_CELLS - 1, .n = 1};
        r.timeout_ms = s->settles ? SETTLE_MS : 0;
        if (!kin_prefix_pages_name(s->o.pages, t->tokens, r.first, 1, r.keys)) return 0; // the next step tries again
        kin_flight *f = kin_scheduler_new_flight(s, KIN_FLIGHT_STATES);
        f->mark = i;
        *sent = true;
        if (kin_scheduler_send_pages(s, f, &r, NULL, err) != 0) return KIN_FAIL;
        t->mark.flight = f->number;
        return 0;
    }
    return 0;
}

// Returns the kind of a mark's checkpoint. A lasting one stays that, also when a prompt ends there.
static kin_states_kind kind_of(const kin_scheduler *s, const kin_slot *t) {
    const int n_blocks = t->n / KIN_KV_CELLS;
    uint8_t *kinds = t->mark.kind == KIN_SCHEDULER_END ? find_checkpoints(s, t->tokens, n_blocks) : NULL;
    const bool lasts = t->mark.kind != KIN_SCHEDULER_END || (kinds && kinds[n_blocks - 1] == KIN_STATES_LASTING);
    free(kinds);
    return lasts ? KIN_STATES_LASTING : KIN_STATES_OF_TURN;
}

void kin_scheduler_handle_states(kin_scheduler *s, const kin_flight *f) {
    kin_slot *t = &s->slots[f->mark];
    if (!t->is_mark || t->mark.flight != f->number) return; // it was evicted
    const int kind = t->mark.kind;
    t->mark.flight = 0;
    t->mark.is_stored = kin_head_n_good(s->head, f->number) > 0;
    if (t->mark.is_stored) {
        const kin_states_kind as = kind_of(s, t);
        kin_prefix_pages_set_checkpoint(s->o.pages, t->tokens, t->n / KIN_KV_CELLS, as);
        drop_old(s, t->tokens, t->n / KIN_KV_CELLS, as);
    } else {
        t->mark.n_tries++;
        t->mark.due = s->stats.n_steps + PAUSE;
    }
    // Others seldom begin there, so it takes no memory any more.
    if (kind == KIN_SCHEDULER_GAP && (t->mark.is_stored || t->mark.n_tries == MOST_TRIES)) kin_scheduler_free_slot(s, f->mark);
}
