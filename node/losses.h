// How often a ring may be lost before its texts end: a device that leaves by chance is none of their business, one that fails
// again and again before anything comes of it is. And how often that is said: a cable that is loose is one sentence.
//
// Owner and thread: the caller's.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

enum {
    KIN_LOSSES_MOST = 5,     // in a row, without progress
    KIN_LOSSES_QUIET_S = 30, // what was said is not said again for so long
};

typedef struct kin_losses {
    int n;
    uint64_t progress; // when the ring was lost last
    kin_err said;      // last: of whom, and what, up to the reason
    kin_time said_at;
} kin_losses;

// The ring is lost, with `progress` made since the beginning: tokens that were written, texts that were done. False: it is not
// worth another ring. What comes afterwards may be lost as often again.
bool kin_losses_add(kin_losses *losses, uint64_t progress);

// Whether this sentence about a loss is to be said: "device 'anna' is gone (no answer for 1.5 s)". Not if the last one that was
// said differs in its reason at most, in brackets at its end, and is less than KIN_LOSSES_QUIET_S old.
bool kin_losses_is_news(kin_losses *losses, const char *sentence, kin_time now);
