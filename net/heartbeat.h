// Heartbeats with RTT: what PONGs tell about a link, how long a round trip takes and how far the other side's clock is from
// ours.
//
// When to send PING, and when a peer counts as dead, is net/link.c's. Plain data; zeros are a new one. Owner and thread: the
// link's.
#pragma once

#include <stdint.h>

enum { KIN_HEARTBEAT_KEPT = 31 }; // pings, at 300 ms the last 9 seconds

typedef struct kin_heartbeat_beat {
    uint64_t rtt_ns;
    int64_t ahead_ns; // the other side's clock minus ours, if both ways took the same time
} kin_heartbeat_beat;

typedef struct kin_heartbeat {
    kin_heartbeat_beat beats[KIN_HEARTBEAT_KEPT]; // a ring
    uint64_t n;                                   // ever added
} kin_heartbeat;

// A PONG: the PING left at `sent`, the answer came at `now`, both by our clock; `theirs` is the other side's clock in between.
// Times that cannot be true (in the future, or more than a minute ago) are ignored: the other side made them up.
void kin_heartbeat_add(kin_heartbeat *heartbeat, uint64_t sent, uint64_t theirs, uint64_t now);

// Median of those kept; 0: none yet.
uint64_t kin_heartbeat_rtt(const kin_heartbeat *heartbeat);

// From the shortest round trip of those kept, which had the least room for error; 0: none yet.
int64_t kin_heartbeat_clock_ahead(const kin_heartbeat *heartbeat);
