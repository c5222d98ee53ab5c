// The echo responder: answers ECHO on PROBE links, so that others can measure the path to this machine (net/probe.h).
//
// Nobody who asks can make it work much: at a time there are few links, each lives for some seconds and gets so many bytes, and
// who does not read its answers is hung up on. Who asks for more has to come again, with a new handshake. Nothing is kept, and
// nothing is allocated for an answer.
//
// Owner: the endpoint. Thread: the loop's, for every function.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "net/link.h"

enum {
    KIN_ECHO_RESPONDER_LINKS = 4,      // at a time
    KIN_ECHO_RESPONDER_LIFE_MS = 5000, // of a link
};

#define KIN_ECHO_RESPONDER_BYTES_MAX ((uint64_t)32 << 20) // of a link, both directions together

typedef struct kin_echo_responder kin_echo_responder;

int kin_echo_responder_open(kin_echo_responder **out, kin_err *err);
void kin_echo_responder_close(kin_echo_responder *echo, const char *reason); // NULL is allowed as echo

// Takes over a link whose OPEN was answered. False: there are too many already, and the link is still the caller's.
bool kin_echo_responder_add(kin_echo_responder *echo, kin_link *link);
bool kin_echo_responder_is_full(const kin_echo_responder *echo);

// To be called some times a second: ends links that are too old.
void kin_echo_responder_tick(kin_echo_responder *echo, kin_time now);

// One ECHO of n_bytes (at most KIN_FRAME_ECHO_BYTES) that do not compress. Any thread.
kin_link_sent kin_echo_responder_say(kin_link *link, uint64_t token, uint32_t answer_bytes, uint32_t n_bytes);
