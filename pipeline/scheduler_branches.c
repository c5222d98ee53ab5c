#include "pipeline/scheduler_branches.h"

#include "pipeline/scheduler_slots.h"

void kin_scheduler_follow_branch(kin_scheduler *s, kin_generation *g, int i) {
    int slot = g->draft_slots[i], before = g->slot;
    if (slot == before) return;
    s->slots[slot] = s->slots[before];
    s->slots[before] = (kin_slot){.branch_of = g};
    g->slot = slot;
}

void kin_scheduler_forget_branches(kin_scheduler *s, const kin_generation *g) {
    for (int i = 0; i < KIN_SCHEDULER_MAX_SEQUENCES; i++) {
        if (s->slots[i].branch_of == g) kin_scheduler_free_slot(s, i);
    }
}

void kin_scheduler_forget_rejected(kin_scheduler *s, const kin_generation *g) {
    kin_err err;
    if (!s->head || kin_kv_blocks_n_tokens(s->blocks, g->slot) <= g->n_done) return;
    kin_scheduler_change(s, (kin_kv_op){g->slot, g->slot, g->n_done}, &err);
}

void kin_scheduler_drop_ahead(kin_scheduler *s, kin_generation *g) {
    for (int i = s->n_flights - 1; i >= 0 && g->n_ahead > 0; i--) {
        kin_flight *f = &s->flights[(s->first_flight + i) % KIN_STEPS_IN_FLIGHT];
        for (int k = 0; k < f->n_parts; k++) {
            if (f->kind != KIN_FLIGHT_TOKENS || f->parts[k].g != g) continue;
            f->parts[k].g = NULL;
            g->n_ahead--;
            g->n_steps--;
        }
    }
    g->n_ahead = g->n_steps_wanted = 0; // also when the flights are gone
}
