// Counts how often a ring may be lost before its sequences end: occasional losses are tolerated; repeated losses without progress
// end the request. Also limits how often a loss is reported: a loose cable is one message.
//
// Owner and thread: the caller's.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "pure/proto/membership.h"

enum {
    KIN_LOSSES_MOST = 5,                         // in a row, without progress
    KIN_LOSSES_QUIET_S = KIN_MEMBERSHIP_QUIET_S, // a message is not repeated for this long
};

typedef struct kin_losses {
    int n;
    uint64_t progress; // at the last loss
    kin_err last;      // the last message, without its reason
    kin_time last_at;
} kin_losses;

// Counts a loss, with `progress` made since the beginning: generated tokens and finished sequences. False: do not enter another
// ring. The count starts anew then.
bool kin_losses_add(kin_losses *losses, uint64_t progress);

// True if this sentence about a loss should be reported: "device 'anna' is gone (no answer for 1.5 s)". False if it differs from
// the last one only in the reason, in brackets at its end, within KIN_LOSSES_QUIET_S.
bool kin_losses_is_news(kin_losses *losses, const char *sentence, kin_time now);
