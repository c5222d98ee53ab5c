// Probing: chooses the messages of a path probe (net/probe.h), and derives round trip and rates from the times of their answers.
//
//   2 small messages to warm up ─► 9 round trips of small messages ─► the rate there ─► the rate back
//
// A rate comes from the difference in time between two sizes: a hidden state's, and a larger one, which grows to 256 KiB as long
// as that takes no more than some milliseconds. So the cost of a message apart from its bytes cancels out. If a hidden state
// alone takes that long, its time and the round trip give the rate.
//
// On a long path a small message shows only the latency. TCP sends a large one in several flights until its window has opened,
// and BBR spreads even a hidden state over a third of a round trip, at 2.9 times the rate that it has seen: 16 KiB at 20 ms take
// 6.4 ms beyond the round trip regardless of the link's rate, but 0.2 ms after larger messages. So on long paths messages grow to
// 1 MiB and are repeated until they get no faster, which opens the window as a ring's prompts do. Their bytes and the least time
// beyond the least round trip give the rate.
//
// A single late message, because a thread or a page was late, says nothing about the path. Medians exclude it. Where one message
// that takes long would be enough, the least of three is used, or of as many as fit into half a second.
//
// Pure: no I/O, no clock. Plain data; times are arguments.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

enum { KIN_PROBING_TRIPS = 9, KIN_PROBING_PAIRS = 9 }; // pairs: a small and a large message each

typedef struct kin_probing_result {
    double rtt_s;                    // round trip of a small message
    double to_bytes_s, from_bytes_s; // each direction separately
} kin_probing_result;

typedef struct kin_probing {
    enum { KIN_PROBING_WARMS, KIN_PROBING_TRIES, KIN_PROBING_GROWS, KIN_PROBING_COMPARES, KIN_PROBING_OPENS } phase;
    kin_time begun;        // beginning of the phase
    int n;                 // answers in this phase
    bool is_back;          // direction whose rate is being measured
    uint32_t small, large; // bytes
    int n_slow;            // consecutive messages of one size that took long, or were no faster than those before
    double least_s;        // least time of these
    double least_trip_s;
    double trips[KIN_PROBING_TRIPS], took[2][KIN_PROBING_PAIRS]; // took: [0] of small messages, [1] of large ones
    kin_probing_result result;
} kin_probing;

void kin_probing_init(kin_probing *probing, uint32_t hidden_bytes, kin_time now);

// The next message: bytes to send, bytes of the answer, and whether the path should be idle before it.
typedef struct kin_probing_message {
    uint32_t n_bytes, answer_bytes;
    bool rests; // a ring's messages are rare, so both ends and everything between are asleep when one arrives
} kin_probing_message;

kin_probing_message kin_probing_next(const kin_probing *probing);

// Takes the time until its answer arrived, in seconds. True if everything is known.
bool kin_probing_add(kin_probing *probing, double s, kin_time now);
