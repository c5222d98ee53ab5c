// An echo: answers ECHO on PROBE links, so that others can measure the way to this machine (ring/probe.h), and says ECHO.
//
// Nobody who asks can make it work much: at a time there are few links, each lives for some seconds and gets so many bytes, and
// who does not read its answers is hung up on. Who asks for more has to come again, with a new handshake. Nothing is kept, and
// nothing is allocated for an answer.
//
// Owner: the station. Thread: the loop's, for every function.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "ring/link.h"

enum {
    KIN_ECHO_LINKS = 4,      // at a time
    KIN_ECHO_LIFE_MS = 5000, // of a link
};

#define KIN_ECHO_BYTES_MAX ((uint64_t)32 << 20) // of a link, both directions together

typedef struct kin_echo kin_echo;

int kin_echo_open(kin_echo **out, kin_err *err);
void kin_echo_close(kin_echo *echo, const char *reason); // NULL is allowed as echo

// Takes over a link whose OPEN was answered. False: there are too many already, and the link is still the caller's.
bool kin_echo_add(kin_echo *echo, kin_link *link);
bool kin_echo_is_full(const kin_echo *echo);

// To be called some times a second: ends links that are too old.
void kin_echo_tick(kin_echo *echo, kin_time now);

// One ECHO of n_bytes (at most KIN_FRAME_ECHO_BYTES) that do not compress. Any thread.
kin_link_sent kin_echo_say(kin_link *link, uint64_t token, uint32_t answer_bytes, uint32_t n_bytes);
