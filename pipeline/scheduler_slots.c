#include "pipeline/scheduler_slots.h"

#include <stdlib.h>

int kin_scheduler_change(kin_scheduler *s, kin_kv_op op, kin_err *err) {
    kin_kv_copy copy; // unused here; the caches make the copy
    if (!s->head) return 0;
    return kin_kv_blocks_apply(s->blocks, &op, &copy, err) == 0 ? kin_head_change(s->head, op, err) : KIN_FAIL;
}

void kin_scheduler_free_slot(kin_scheduler *s, int i) {
    kin_err err;
    free(s->slots[i].tokens);
    s->slots[i] = (kin_slot){0};
    kin_scheduler_change(s, (kin_kv_op){i, i, 0}, &err); // forgetting all of a sequence cannot fail
}

bool kin_scheduler_evict(kin_scheduler *s, int but) {
    int oldest = KIN_SCHEDULER_NO_SLOT;
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) {
        const kin_slot *t = &s->slots[i];
        if (t->n == 0 || i == but) continue;
        if (oldest == KIN_SCHEDULER_NO_SLOT || t->used < s->slots[oldest].used) oldest = i;
    }
    if (oldest != KIN_SCHEDULER_NO_SLOT) kin_scheduler_free_slot(s, oldest);
    return oldest != KIN_SCHEDULER_NO_SLOT;
}

static bool is_unused(const kin_slot *t) {
    return !t->owner && !t->branch_of && t->n == 0;
}

int kin_scheduler_unused_slot(const kin_scheduler *s) {
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) {
        if (is_unused(&s->slots[i])) return i;
    }
    return KIN_SCHEDULER_NO_SLOT;
}

int kin_scheduler_find_free_slot(kin_scheduler *s, int but) {
    int i = kin_scheduler_unused_slot(s);
    return i != KIN_SCHEDULER_NO_SLOT    ? i
           : kin_scheduler_evict(s, but) ? kin_scheduler_find_free_slot(s, but)
                                         : KIN_SCHEDULER_NO_SLOT;
}

bool kin_scheduler_make_room(kin_scheduler *s, int n_blocks, int but) {
    while (!kin_kv_blocks_fit(s->blocks, n_blocks)) {
        if (!kin_scheduler_evict(s, but)) return false;
    }
    return true;
}

int kin_scheduler_make_branches(kin_scheduler *s, int n) {
    int n_unused = 0;
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) n_unused += is_unused(&s->slots[i]);
    while (n_unused < n && kin_scheduler_evict(s, KIN_SCHEDULER_NO_SLOT)) n_unused++;
    if (n > n_unused) n = n_unused;
    while (n > 0 && !kin_scheduler_make_room(s, n, KIN_SCHEDULER_NO_SLOT)) n--;
    return n;
}

bool kin_scheduler_forgets(const kin_scheduler *s) {
    return s->o.n_states > 0 || s->o.window.n_blocks > 0;
}

bool kin_scheduler_make_state(kin_scheduler *s, int but) {
    while (s->o.n_states > 0 && kin_kv_blocks_n_free_states(s->blocks) == 0)
        if (!kin_scheduler_evict(s, but)) return false;
    return true;
}

int kin_scheduler_fit(kin_scheduler *s, const kin_generation *g, int n) {
    if (g->n_sent == 0 && !kin_scheduler_make_state(s, KIN_SCHEDULER_NO_SLOT)) return 0;
    while (n > 0 && !kin_scheduler_make_room(s, kin_scheduler_blocks_for(g, n), KIN_SCHEDULER_NO_SLOT))
        n = n > KIN_KV_CELLS ? n - KIN_KV_CELLS : n - 1;
    return n;
}

// The tokens of a mark may still be in flight, so a block that is partly filled cannot be copied from it.
int kin_scheduler_reusable(const kin_scheduler *s, int i, int n) {
    if (s->slots[i].is_mark) n = kin_scheduler_whole_blocks(n);
    return kin_scheduler_forgets(s) ? kin_kv_blocks_nearest(s->blocks, i, n) : n;
}

int kin_scheduler_common_prefix(const kin_generation *g, const int32_t *tokens, int n) {
    int i = 0;
    if (n > g->n - 1) n = g->n - 1; // its last token must be computed, for its logits
    while (i < n && tokens[i] == g->tokens[i]) i++;
    return i;
}
