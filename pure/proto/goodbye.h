// Why a link ended, as its owner hears it from net/link.h, in words for people; and whether the other side was just told to
// stop.
//
// Plain functions.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define KIN_GOODBYE_CLOSED "the other side closed the link"
#define KIN_GOODBYE_STOPPED "it was stopped" // the reason that a head or a device gives when its user stops it

// The reason that the other side gave, without the words before it; or the reason as it is.
static inline const char *kin_goodbye_words(const char *reason) {
    static const char before[] = KIN_GOODBYE_CLOSED ": ";
    size_t n = sizeof before - 1;
    return strncmp(reason, before, n) == 0 ? reason + n : reason;
}

static inline bool kin_goodbye_is_stop(const char *reason) {
    return strcmp(kin_goodbye_words(reason), KIN_GOODBYE_STOPPED) == 0 && kin_goodbye_words(reason) != reason;
}
