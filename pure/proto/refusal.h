// Why a head refuses a device, and whether the device asks again.
//
// On the wire a refusal is one sentence (message REFUSE). It begins with one of the words below and a colon, so that a program
// can tell them apart and a person can read the whole: "busy: 32 devices are there already".
#pragma once

#include <stdbool.h>

typedef enum kin_refusal {
    KIN_REFUSAL_VERSION,  // "version": no version of the protocol that both speak
    KIN_REFUSAL_FEATURE,  // "feature": it cannot do something that the ring needs
    KIN_REFUSAL_MODEL,    // "model": it brings another model file
    KIN_REFUSAL_BUSY,     // "busy": no place now
    KIN_REFUSAL_IDENTITY, // "identity": it has the head's own id
    KIN_REFUSAL_TWIN,     // "twin": another process has its identity; asked again a few times, because that process may be dead
    KIN_REFUSAL_NO_HEAD,  // "no head": a device answers, which has no head itself now (net/gateway.h)
    KIN_REFUSAL_OTHER,    // any other word
} kin_refusal;

const char *kin_refusal_word(kin_refusal refusal);

// Which one a sentence from the head is.
kin_refusal kin_refusal_of(const char *sentence);

// The sentence without that word.
const char *kin_refusal_words(const char *sentence);

// True: asking again is useless until this device is changed. False: ask again, slowly; KIN_REFUSAL_NO_HEAD: as if nobody
// answered.
bool kin_refusal_is_final(kin_refusal refusal);
