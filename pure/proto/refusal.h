// The reasons for which a head refuses a device, and whether the device asks again.
//
// On the wire a refusal is one sentence (message REFUSE). It begins with one of the words below and a colon, so that programs can
// distinguish refusals and people can read the sentence: "busy: 32 devices are there already".
#pragma once

#include <stdbool.h>

typedef enum kin_refusal {
    KIN_REFUSAL_VERSION,   // "version": there is no protocol version that both speak
    KIN_REFUSAL_FEATURE,   // "feature": the device lacks a feature that the ring needs
    KIN_REFUSAL_MODEL,     // "model": it has another model file
    KIN_REFUSAL_BUSY,      // "busy": no place at the moment
    KIN_REFUSAL_IDENTITY,  // "identity": it has the head's own id
    KIN_REFUSAL_DUPLICATE, // "twin": duplicate identity; the device asks again a few times, because the other process may be dead
    KIN_REFUSAL_NO_HEAD,   // "no head": the answer comes from a device that has no head at the moment (net/gateway.h)
    KIN_REFUSAL_OTHER,     // any other word
} kin_refusal;

const char *kin_refusal_word(kin_refusal refusal);

// Returns the kind of a refusal sentence.
kin_refusal kin_refusal_of(const char *sentence);

// Returns the sentence without its leading word.
const char *kin_refusal_words(const char *sentence);

// True: asking again is useless until this device is changed. False: it asks again, slowly; for KIN_REFUSAL_NO_HEAD as if no head
// had answered.
bool kin_refusal_is_final(kin_refusal refusal);
