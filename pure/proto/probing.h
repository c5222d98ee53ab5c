// Probing: which messages a probe of a path sends (net/probe.h), and what the times of their answers say of it.
//
//   2 small ones to warm up ─► 9 round trips of small ones ─► the rate there ─► the rate back
//
// A rate comes from the difference in time of two sizes: a hidden state's, and a larger one, which grows to 256 KiB as long as
// that takes no more than some milliseconds. What each message costs apart from its bytes drops out. Where a hidden state alone
// takes so long, it and the round trip give the rate.
//
// Of a long way a small message says nothing but the latency. TCP sends a large one in several flights as long as its window has
// not opened, and BBR sends even a hidden state over a third of a round trip, at 2.9 times the rate that it has seen: 16 KiB at
// 20 ms take 6.4 ms beyond the round trip, whatever the link's rate is, and 0.2 when larger ones have gone before. So there they
// grow to 1 MiB and are repeated until they become no faster, which opens the window as a ring's prompts do. Their bytes and the
// least time beyond the least round trip are the rate.
//
// A message that is late once, because a thread or a page was, says nothing of the path. Medians leave it out; where one message
// that takes long would do, it is the least of three, or as many as half a second has room for.
//
// Pure: no I/O, no clock. Plain data; times are an argument.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

enum { KIN_PROBING_TRIPS = 9, KIN_PROBING_PAIRS = 9 }; // pairs: of a small and a large message

typedef struct kin_probing_result {
    double rtt_s;                    // of a small message there and back
    double to_bytes_s, from_bytes_s; // each direction on its own
} kin_probing_result;

typedef struct kin_probing {
    enum { KIN_PROBING_WARMS, KIN_PROBING_TRIES, KIN_PROBING_GROWS, KIN_PROBING_COMPARES, KIN_PROBING_OPENS } phase;
    kin_time begun;        // the phase
    int n;                 // answers in it
    bool is_back;          // the direction whose rate is measured
    uint32_t small, large; // bytes
    int n_slow;            // times of one size in a row that were long, or no faster than those before
    double least_s;        // of these
    double least_trip_s;
    double trips[KIN_PROBING_TRIPS], took[2][KIN_PROBING_PAIRS]; // of small, of large messages
    kin_probing_result result;
} kin_probing;

void kin_probing_init(kin_probing *probing, uint32_t hidden_bytes, kin_time now);

// The next message: its bytes there, those of the answer, and whether the path rests before.
typedef struct kin_probing_message {
    uint32_t n_bytes, answer_bytes;
    bool rests; // a ring's messages are rare, and find both ends, and what is between them, asleep
} kin_probing_message;

kin_probing_message kin_probing_next(const kin_probing *probing);

// Its answer came after so many seconds. True: all is known.
bool kin_probing_take(kin_probing *probing, double s, kin_time now);
