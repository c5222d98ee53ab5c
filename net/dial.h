// A dial: opens a link to another kin process, up to the answer to OPEN: connect, OPEN, then ACCEPT or REFUSE. Every link that a
// process of kin opens begins here. What comes after the answer is the owner's.
//
// The version of the protocol is the highest one that both sides speak (kin_link_version). The id in ACCEPT is compared: with the
// one that must answer, where that is known, and with this process's own, for an address may lead back to it. Of several
// addresses the next one is tried when one does not lead to the right process; a refusal by the right one counts for all of them.
//
// Life: kin_dial_start, then once `accepted` or `failed`, or the owner's kin_dial_cancel. After each of these the pointer is
// dead. No callback comes inside of a function here. Inside of the callbacks everything may be called.
//
// Owner: who started it. Thread: the loop's, for every function and callback. After the end the loop must run once more before it
// is closed.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "net/link.h"
#include "pure/proto/message.h"

enum { KIN_DIAL_LIMIT_MS = 4000 };

typedef struct kin_dial kin_dial;

typedef struct kin_dial_options { // all of it is copied, but the context for TLS
    kin_link_options link;        // handshake_ms: for each address; frame_max is set here
    kin_proto_endpoint to;        // with at least one address
    kin_proto_open open;          // what OPEN says. Not set: peer, which is `answers` then, and versions, those of this program
    uint32_t epoch;               // of OPEN's frame
    kin_proto_id answers;         // who must answer; zeros: whoever does
    uint32_t limit_ms;            // for all of it (KIN_DIAL_LIMIT_MS)
} kin_dial_options;

// For an endpoint with one address.
kin_proto_endpoint kin_dial_address(const char *address, uint16_t port);

typedef enum kin_dial_end {
    KIN_DIAL_LOST,      // no connection, it ended, or no answer in time
    KIN_DIAL_OTHER_KEY, // the other side has another key
    KIN_DIAL_STRANGER,  // what answers there does not speak as kin does
    KIN_DIAL_WRONG,     // another process than the one that must answer, or one that does not answer as kin does
    KIN_DIAL_REFUSED,   // the reason is the other side's sentence (pure/proto/refusal.h)
} kin_dial_end;

typedef struct kin_dial_failure { // valid during the call
    kin_dial_end end;
    const char *reason; // one sentence
    const char *at;     // the address that was tried last
} kin_dial_failure;

typedef struct kin_dial_callbacks {
    // The link is open, accepted, and yours: inside of this call give it your callbacks by kin_link_accept, or close it.
    void (*accepted)(void *user, kin_link *link, const kin_proto_accept *accept);
    void (*failed)(void *user, const kin_dial_failure *failure);
} kin_dial_callbacks;

kin_dial_options kin_dial_options_default(kin_tls_ctx *tls);

// Fails only on what is wrong here: no address, no memory, no file descriptor. The callbacks are copied.
int kin_dial_start(kin_dial **out, uv_loop_t *loop, const kin_dial_options *options, const kin_dial_callbacks *callbacks,
                   void *user, kin_err *err);
void kin_dial_cancel(kin_dial *dial, const char *reason); // for the other side, or NULL. NULL is allowed as dial
