// A link: frames (pure/proto/frame.h) to and from one other kin process, over a stream of bytes (net/transport.h): TCP and
// TLS 1.3 with the cluster's key, if nothing else is said.
//
// It knows frames, not messages: what a payload says is its owner's to check. Three types are the link's own and never reach the
// owner: PING and PONG (is the other side alive, how far is it), and BYE (why it closes). Who connects to us: net/listener.h.
//
// Life: kin_link_connect and then `opened`; or a listener's `accepted`, where it is open. Then `frame`..., and the end, which
// comes in one of two ways, never both: `closed` with the reason, or the owner's kin_link_close. After either the pointer is dead
// and nothing more is called. Functions may be called inside of all callbacks, kin_link_close too. `closed` is never called
// inside of one of the functions here; it comes from the loop.
//
// A link ends by itself, with a reason for its owner to say, when: the address does not answer or the handshake is not done in
// handshake_ms; the key is another; bytes are not frames of this version; a frame is longer than its type or frame_max allows;
// nothing was heard for silence_ms; it took none of the bytes waiting for it for silence_ms; the connection broke or was closed.
//
// Owner: who connected or accepted. Thread: the loop's, for every function and callback; from others use net/mailbox.h. SIGPIPE
// is blocked in that thread from the first link on. The loop must not be closed before all is closed: run it once more after the
// last kin_link_close until it has nothing to do.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "net/transport.h"
#include "pure/proto/frame.h"
#include "sys/tls.h"

typedef struct kin_link kin_link;

#define KIN_LINK_FRAME_MAX_FIRST 4096 // bytes of payload, before the owner knows who it is talking to

// Why a link ended on which nothing large has ever arrived, though small frames do.
#define KIN_LINK_MTU                                                                                                             \
    "frames above 1000 bytes do not arrive, smaller ones do: look at the MTU of the network between (VPN, tunnel, jumbo frames)"

typedef struct kin_link_options {
    const kin_transport *transport; // borrowed (kin_transport_tcp)
    kin_tls_ctx *tls;               // borrowed until the link is gone from the loop
    uint32_t frame_max;             // bytes of payload to receive (KIN_LINK_FRAME_MAX_FIRST); see kin_link_set_frame_max
    size_t queue_max;               // bytes to hold back for the other side (16 MiB)
    uint32_t handshake_ms;          // to be open, from connect or accept (3000)
    uint32_t ping_ms;               // between PINGs (300)
    uint32_t silence_ms;            // without a byte from the other side: it is lost (1500)
    uint32_t linger_ms;             // after kin_link_close, for what is queued to get out (1000)
} kin_link_options;

kin_link_options kin_link_options_default(kin_tls_ctx *tls);

typedef struct kin_link_callbacks {
    void (*opened)(void *user, kin_link *link); // may be NULL
    // A whole frame; payload // u8 [frame->length], valid during the call.
    void (*frame)(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload);
    // After KIN_LINK_FULL: the frame that was refused fits now. May be NULL.
    void (*drained)(void *user, kin_link *link);
    // The link has ended by itself, and why. The pointer is dead afterwards.
    void (*closed)(void *user, kin_link *link, const char *reason);
} kin_link_callbacks;

// ---- opening

// `address`: numbers or a name; of a name's addresses the first that answers. Fails only on what is wrong here (out of memory or
// of file descriptors); everything else is told to `closed`. The callbacks are copied.
int kin_link_connect(kin_link **out, uv_loop_t *loop, const char *address, uint16_t port, const kin_link_options *options,
                     const kin_link_callbacks *callbacks, void *user, kin_err *err);

// The same for somebody who has just connected to `acceptor`, inside of kin_acceptor_connected. For net/listener.c.
int kin_link_serve(kin_link **out, uv_loop_t *loop, kin_acceptor *acceptor, const kin_link_options *options,
                   const kin_link_callbacks *callbacks, void *user, kin_err *err);

// Another owner from now on.
void kin_link_accept(kin_link *link, const kin_link_callbacks *callbacks, void *user);

// ---- sending and closing

typedef enum kin_link_sent {
    KIN_LINK_SENT,   // with the OS
    KIN_LINK_QUEUED, // taken; some of it waits here
    KIN_LINK_FULL,   // not taken: the queue has no room; `drained` says when it has
    KIN_LINK_SHUT,   // not taken: not open (yet, or any more)
} kin_link_sent;

// One frame; its payload is the parts one after another. The bytes are encrypted or copied before it returns. A frame of any
// length is taken while nothing waits in the queue, so the queue holds at most the larger of queue_max and one frame, and a BYE.
kin_link_sent kin_link_send(kin_link *link, kin_frame_type type, uint32_t epoch, int n_parts, const kin_frame_part *parts);

// The version of the protocol that both sides speak, as OPEN and ACCEPT found it (net/dial.h, net/endpoint.h); 0 before.
void kin_link_set_version(kin_link *link, uint16_t version);
uint16_t kin_link_version(const kin_link *link);

// Frames up to this many bytes of payload are received from now on (never more than their type allows).
void kin_link_set_frame_max(kin_link *link, uint32_t n);
// So many bytes may wait for the other side from now on.
void kin_link_set_queue_max(kin_link *link, size_t n);
// From now on: without an answer for so long it ends.
void kin_link_set_silence(kin_link *link, uint32_t ms);

// Tells the other side why (a sentence of at most 1000 bytes, or NULL: none), and lets what is queued get out for at most
// linger_ms. The owner is not called any more. NULL is allowed as link.
void kin_link_close(kin_link *link, const char *reason);

// Ends the link, but not its connection: *fd, which does not block, and *tls are the caller's, who reads and writes frames itself
// from now on: the first ones may have come already (kin_tls_read before the socket). Of an open link, of which nothing waits to
// be sent, between two frames; may be called inside of `frame`. The owner is not called any more. On failure the link is as it
// was.
int kin_link_take(kin_link *link, int *fd, kin_tls **tls, kin_err *err);

// ---- inspection

typedef struct kin_link_stats {
    uint64_t bytes_in, bytes_out;   // on the wire, TLS and handshake included
    uint64_t frames_in, frames_out; // the link's own included
    uint64_t rtt_ns;                // median of the last pings; 0: none yet
    int64_t clock_ahead_ns;         // the other side's clock minus ours, from the ping with the shortest round trip
    size_t queued;                  // bytes that wait here
    size_t unacknowledged;          // bytes that are out, and that the other side has not acknowledged; 0: none, or not known
    size_t partial;                 // bytes of a frame that has come in part
} kin_link_stats;

kin_link_stats kin_link_stats_now(const kin_link *link);

// The frame that is arriving, and the n bytes of its payload that have come so far; NULL: no byte of a payload has. Valid until
// more comes, and inside of `closed`.
const uint8_t *kin_link_arriving(const kin_link *link, kin_frame *frame, size_t *n);

// In `closed`: what was wrong with the other side in the handshake.
kin_tls_fault kin_link_fault(const kin_link *link);

// "192.168.1.7:4100", of the other side; as given to kin_link_connect until it is connected. Lives as long as the link.
const char *kin_link_name(const kin_link *link);
// Its address without the port, numeric.
const char *kin_link_address(const kin_link *link);
