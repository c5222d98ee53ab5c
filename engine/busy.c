#include "engine/busy.h"

#include "base/err.h"

static void keep(kin_busy *b, kin_time end) {
    if (b->next - b->first == KIN_BUSY_KEPT) b->first++;
    b->kept[b->next++ % KIN_BUSY_KEPT] = (kin_interval){b->since, end};
    b->closed_ns += end - b->since;
    b->since = end;
}

void kin_busy_begin(kin_busy *b, kin_time now) {
    if (b->n_open++ == 0) b->since = now;
}

void kin_busy_end(kin_busy *b, kin_time now) {
    kin_assert(b->n_open > 0);
    if (--b->n_open == 0) keep(b, now);
}

uint64_t kin_busy_ns(const kin_busy *b, kin_time now) {
    return b->closed_ns + (b->n_open > 0 ? now - b->since : 0);
}

size_t kin_busy_pop(kin_busy *b, kin_time now, kin_interval *out, size_t n_max) {
    size_t n = 0;
    if (b->n_open > 0 && now > b->since) keep(b, now);
    for (; n < n_max && b->first < b->next; n++) out[n] = b->kept[b->first++ % KIN_BUSY_KEPT];
    return n;
}
