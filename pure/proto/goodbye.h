// The reason for the end of a link, as reported by net/link.h, in words for people; and whether the other side was stopped by its
// user.
//
// Pure functions.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define KIN_GOODBYE_CLOSED "the other side closed the link"
#define KIN_GOODBYE_STOPPED "it was stopped" // reason that a head or a device sends when its user stops it

// Returns the reason that the other side gave, without the prefix; any other reason unchanged.
static inline const char *kin_goodbye_words(const char *reason) {
    static const char before[] = KIN_GOODBYE_CLOSED ": ";
    size_t n = sizeof before - 1;
    return strncmp(reason, before, n) == 0 ? reason + n : reason;
}

// True if the other side closed the link because its user stopped it.
static inline bool kin_goodbye_is_stop(const char *reason) {
    return strcmp(kin_goodbye_words(reason), KIN_GOODBYE_STOPPED) == 0 && kin_goodbye_words(reason) != reason;
}
