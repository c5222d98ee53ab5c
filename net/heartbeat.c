#include "net/heartbeat.h"

#include <stdlib.h>

#define AGE_MAX_NS (60 * UINT64_C(1000000000))

void kin_heartbeat_add(kin_heartbeat *p, uint64_t sent, uint64_t theirs, uint64_t now) {
    if (sent > now || now - sent > AGE_MAX_NS) return;
    uint64_t rtt = now - sent;
    p->beats[p->n++ % KIN_HEARTBEAT_KEPT] = (kin_heartbeat_beat){rtt, (int64_t)(theirs - (sent + rtt / 2))};
}

static int n_kept(const kin_heartbeat *p) {
    return p->n < KIN_HEARTBEAT_KEPT ? (int)p->n : KIN_HEARTBEAT_KEPT;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t kin_heartbeat_rtt(const kin_heartbeat *p) {
    uint64_t sorted[KIN_HEARTBEAT_KEPT];
    int n = n_kept(p);
    for (int i = 0; i < n; i++) sorted[i] = p->beats[i].rtt_ns;
    if (n == 0) return 0;
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return sorted[n / 2];
}

int64_t kin_heartbeat_clock_ahead(const kin_heartbeat *p) {
    if (p->n == 0) return 0;
    const kin_heartbeat_beat *best = &p->beats[0];
    for (int i = 1; i < n_kept(p); i++) {
        if (p->beats[i].rtt_ns < best->rtt_ns) best = &p->beats[i];
    }
    return best->ahead_ns;
}
