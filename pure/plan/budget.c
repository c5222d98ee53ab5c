#include "pure/plan/budget.h"

uint64_t kin_budget_step(kin_budget *b, uint64_t now_ms, uint64_t room) {
    if (room > b->most_useful) room = b->most_useful;
    bool last_bit = room == b->most_useful && b->bytes < room; // completing the set is always worth it
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
