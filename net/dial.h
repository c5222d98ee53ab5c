// A dial: opens a link to another kin process: connects, sends OPEN, and waits for ACCEPT or REFUSE. Every link that a kin
// process opens begins here. After the answer the link belongs to the owner.
//
// The protocol version is the highest one that both sides speak (kin_link_version). The id in ACCEPT is compared with the
// expected one, if it is known, and with this process's own, because an address may lead back to it. If there are several
// addresses and one does not lead to the right process, the next one is tried; a refusal by the right one is final.
//
// Life: kin_dial_start, then one call of `accepted` or `failed`, or the owner's kin_dial_cancel. After each of these the pointer
// is dead. No function here calls a callback. All functions may be called inside callbacks.
//
// Owner: the caller that started it. Thread: the loop's, for every function and callback. After the end the loop must run once
// more before it is closed.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "net/link.h"
#include "pure/proto/message.h"

enum { KIN_DIAL_LIMIT_MS = 4000 };

typedef struct kin_dial kin_dial;

typedef struct kin_dial_options { // copied, except for the TLS context
    kin_link_options link;        // handshake_ms: per address; frame_max is set here
    kin_proto_endpoint to;        // with at least one address
    kin_proto_open open;          // content of OPEN; filled in if not set: peer (`answers`) and versions (this program's)
    uint32_t epoch;               // of OPEN's frame
    kin_proto_id answers;         // the expected id; zeros: any process
    uint32_t limit_ms;            // total time limit (KIN_DIAL_LIMIT_MS)
} kin_dial_options;

// Returns an endpoint with one address.
kin_proto_endpoint kin_dial_address(const char *address, uint16_t port);

typedef enum kin_dial_end {
    KIN_DIAL_LOST,      // no connection, it broke, or no answer in time
    KIN_DIAL_OTHER_KEY, // the other side has another key
    KIN_DIAL_STRANGER,  // the process there does not speak kin's protocol
    KIN_DIAL_WRONG,     // an unexpected process, or an invalid answer
    KIN_DIAL_REFUSED,   // `reason` is the other side's sentence (pure/proto/refusal.h)
} kin_dial_end;

typedef struct kin_dial_failure { // valid during the call
    kin_dial_end end;
    const char *reason; // one sentence
    const char *at;     // the last address tried
} kin_dial_failure;

typedef struct kin_dial_callbacks {
    // The link is open, accepted, and yours: inside this call set your callbacks with kin_link_accept, or close it.
    void (*accepted)(void *user, kin_link *link, const kin_proto_accept *accept);
    void (*failed)(void *user, const kin_dial_failure *failure);
} kin_dial_callbacks;

kin_dial_options kin_dial_options_default(kin_tls_ctx *tls);

// Fails only for local reasons: no address, no memory, no file descriptor. The callbacks are copied.
int kin_dial_start(kin_dial **out, uv_loop_t *loop, const kin_dial_options *options, const kin_dial_callbacks *callbacks,
                   void *user, kin_err *err);
void kin_dial_cancel(kin_dial *dial, const char *reason); // reason: sent to the other side; may be NULL. NULL is allowed as dial
