#include "net/heartbeat.h"

#include "base/median.h"

#define AGE_MAX_NS (60 * UINT64_C(1000000000))

void kin_heartbeat_add(kin_heartbeat *p, uint64_t sent, uint64_t theirs, uint64_t now) {
    if (sent > now || now - sent > AGE_MAX_NS) return;
    uint64_t rtt = now - sent;
    p->beats[p->n++ % KIN_HEARTBEAT_KEPT] = (kin_heartbeat_beat){rtt, (int64_t)(theirs - (sent + rtt / 2))};
}

static int n_kept(const kin_heartbeat *p) {
    return p->n < KIN_HEARTBEAT_KEPT ? (int)p->n : KIN_HEARTBEAT_KEPT;
}

uint64_t kin_heartbeat_rtt(const kin_heartbeat *p) {
    double rtts[KIN_HEARTBEAT_KEPT];
    int n = n_kept(p);
    for (int i = 0; i < n; i++) rtts[i] = (double)p->beats[i].rtt_ns;
    return n > 0 ? (uint64_t)kin_median(rtts, n) : 0;
}

int64_t kin_heartbeat_clock_ahead(const kin_heartbeat *p) {
    if (p->n == 0) return 0;
    const kin_heartbeat_beat *best = &p->beats[0];
    for (int i = 1; i < n_kept(p); i++) {
        if (p->beats[i].rtt_ns < best->rtt_ns) best = &p->beats[i];
    }
    return best->ahead_ns;
}
