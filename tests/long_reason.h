// Returns the longest reason that a message can carry, for tests of how it is handled.
#pragma once

#include <string.h>

#include "pure/proto/message.h"

#define LONG_REASON_END " see /a/path"

static inline const char *long_reason(void) {
    static char reason[KIN_PROTO_MAX_REASON + 1];
    memset(reason, 'x', sizeof reason - 1);
    memcpy(reason + sizeof reason - sizeof LONG_REASON_END, LONG_REASON_END, sizeof LONG_REASON_END);
    return reason;
}
