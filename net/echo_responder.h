// The echo responder: answers ECHO messages on PROBE links, so that others can measure the path to this machine (net/probe.h).
//
// The load that peers can cause is bounded: there are few links at a time, each lives for some seconds and transfers a limited
// number of bytes, and a link that does not read its answers is closed. A peer that needs more must connect again, with a new
// handshake. No state is kept, and an answer allocates nothing.
//
// Owner: the endpoint. Thread: the loop's, for every function.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "net/link.h"

enum {
    KIN_ECHO_RESPONDER_LINKS = 4,      // at a time
    KIN_ECHO_RESPONDER_LIFE_MS = 5000, // per link
};

#define KIN_ECHO_RESPONDER_BYTES_MAX ((uint64_t)32 << 20) // per link, both directions together

typedef struct kin_echo_responder kin_echo_responder;

int kin_echo_responder_open(kin_echo_responder **out, kin_err *err);
void kin_echo_responder_close(kin_echo_responder *echo, const char *reason); // NULL is allowed as echo

// Takes over a link whose OPEN was answered. Returns false if there are too many links; the caller then keeps the link.
bool kin_echo_responder_add(kin_echo_responder *echo, kin_link *link);
bool kin_echo_responder_is_full(const kin_echo_responder *echo);

// Call several times per second: closes links that are too old.
void kin_echo_responder_tick(kin_echo_responder *echo, kin_time now);

// Sends one ECHO with n_bytes (at most KIN_FRAME_ECHO_BYTES) of incompressible data. Any thread.
kin_link_sent kin_echo_responder_send(kin_link *link, uint64_t token, uint32_t answer_bytes, uint32_t n_bytes);
