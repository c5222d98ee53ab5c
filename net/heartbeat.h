// Heartbeats with RTT: derives the round trip time and the offset of the peer's clock from PONGs.
//
// net/link.c decides when to send PING and when a peer counts as dead. Plain data; zero-initialise it. Owner and thread: the
// link's.
#pragma once

#include <stdint.h>

enum { KIN_HEARTBEAT_KEPT = 31 }; // pings, at 300 ms the last 9 seconds

typedef struct kin_heartbeat_beat {
    uint64_t rtt_ns;
    int64_t ahead_ns; // peer's clock minus ours, assuming symmetric delays
} kin_heartbeat_beat;

typedef struct kin_heartbeat {
    kin_heartbeat_beat beats[KIN_HEARTBEAT_KEPT]; // ring buffer
    uint64_t n;                                   // total added
} kin_heartbeat;

// Adds a PONG: the PING was sent at `sent`, the answer came at `now`, both by our clock; `theirs` is the peer's clock in between.
// Impossible times (in the future, or more than a minute ago) are ignored, because the peer forged them.
void kin_heartbeat_add(kin_heartbeat *heartbeat, uint64_t sent, uint64_t theirs, uint64_t now);

// Returns the median of the stored beats; 0: none yet.
uint64_t kin_heartbeat_rtt(const kin_heartbeat *heartbeat);

// Returns the offset from the stored beat with the shortest round trip, which has the least error; 0: none yet.
int64_t kin_heartbeat_clock_ahead(const kin_heartbeat *heartbeat);
