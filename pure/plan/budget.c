#include "pure/plan/budget.h"

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

static uint64_t capped(const kin_budget_memory *m, uint64_t bytes) {
    return m->cap && m->cap < bytes ? m->cap : bytes;
}

// Returns memory that is available but must not be used. The kernel's part for pages that this process already has is no longer
// available.
static uint64_t reserve(const kin_budget_memory *m) {
    uint64_t share = m->total / KIN_BUDGET_RESERVE_SHARE;
    return (share > KIN_BUDGET_RESERVE_LEAST ? share : KIN_BUDGET_RESERVE_LEAST) +
           less(m->available + m->own, m->resident) / KIN_BUDGET_KERNEL_SHARE;
}

uint64_t kin_budget_start(const kin_budget_memory *m) {
    return capped(m, less(m->available + m->own, reserve(m) + KIN_BUDGET_KERNEL_START));
}

uint64_t kin_budget_room(const kin_budget_memory *m) {
    uint64_t all = capped(m, less(m->available + m->own, reserve(m))), rest = less(m->own, m->own_weights) + KIN_BUDGET_PROGRAM;
    return less(all, rest > m->fixed ? rest : m->fixed);
}

uint64_t kin_budget_step(kin_budget *b, uint64_t now_ms, uint64_t room) {
    if (room > b->most_useful) room = b->most_useful;
    bool last_bit = room == b->most_useful && b->bytes < room; // completing the set is always worthwhile
    if (room < b->bytes) {
        b->bytes = room;
        b->since_ms = 0;
    } else if (room - b->bytes < KIN_BUDGET_GROW_STEP && !last_bit) {
        b->since_ms = 0;
    } else if (b->since_ms == 0) {
        b->since_ms = now_ms;
        b->room_min = room;
    } else {
        if (room < b->room_min) b->room_min = room;
        if (now_ms - b->since_ms >= KIN_BUDGET_GROW_AFTER_MS) {
            b->bytes = b->room_min;
            b->since_ms = 0;
        }
    }
    return b->bytes;
}
