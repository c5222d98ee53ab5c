// A link: sends and receives frames (pure/proto/frame.h) to and from one other kin process, over a byte stream (net/transport.h),
// by default TCP and TLS 1.3 with the cluster's key.
//
// It knows frames, not messages: the owner checks payloads. Three types belong to the link and never reach the owner: PING and
// PONG (liveness and round trip time), and BYE (the reason for closing). Incoming connections: net/listener.h.
//
// Life: kin_link_connect and then `opened`; or a listener's `accepted`, where it is already open. Then `frame`..., and exactly
// one of two ends: `closed` with the reason, or the owner's kin_link_close. After either the pointer is dead and no callback
// comes. All functions, including kin_link_close, may be called inside callbacks. No function here calls `closed`; it comes from
// the loop.
//
// A link ends by itself, with a reason, when: the address does not answer or the handshake is not done in handshake_ms; the keys
// differ; bytes are not frames of this version; a frame is longer than its type or frame_max allows; nothing was received for
// silence_ms; the peer took none of the waiting bytes for silence_ms; the connection broke or was closed.
//
// Owner: the caller that connected or accepted. Thread: the loop's, for every function and callback; other threads use
// net/mailbox.h. SIGPIPE is blocked in that thread from the first link on. After the last kin_link_close run the loop until it
// has nothing to do; only then close it.
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

#define KIN_LINK_FRAME_MAX_FIRST 4096 // bytes of payload, before the owner has identified the peer

// The reason given for a link on which small frames arrived but never a large one.
#define KIN_LINK_MTU                                                                                                             \
    "frames above 1000 bytes do not arrive, smaller ones do: look at the MTU of the network between (VPN, tunnel, jumbo frames)"

typedef struct kin_link_options {
    const kin_transport *transport; // borrowed (kin_transport_tcp)
    kin_tls_ctx *tls;               // borrowed until the link is gone from the loop
    uint32_t frame_max;             // max payload to receive (KIN_LINK_FRAME_MAX_FIRST); see kin_link_set_frame_max
    size_t queue_max;               // max bytes queued for the peer (16 MiB)
    uint32_t handshake_ms;          // time limit to be open, from connect or accept (3000)
    uint32_t ping_ms;               // between PINGs (300)
    uint32_t silence_ms;            // time without a byte from the peer after which it is lost (1500)
    uint32_t linger_ms;             // time after kin_link_close in which queued data may still be sent (1000)
} kin_link_options;

kin_link_options kin_link_options_default(kin_tls_ctx *tls);

typedef struct kin_link_callbacks {
    void (*opened)(void *user, kin_link *link); // may be NULL
    // A whole frame arrived; payload // u8 [frame->length], valid during the call.
    void (*frame)(void *user, kin_link *link, const kin_frame *frame, const uint8_t *payload);
    // Follows KIN_LINK_FULL: the frame that was refused fits now. May be NULL.
    void (*drained)(void *user, kin_link *link);
    // The link has ended by itself. The pointer is dead afterwards.
    void (*closed)(void *user, kin_link *link, const char *reason);
} kin_link_callbacks;

// ---- opening

// `address`: a name or a numeric address; of a name's addresses the first that answers is used. Fails only for local reasons (out
// of memory or file descriptors); everything else is reported by `closed`. The callbacks are copied.
int kin_link_connect(kin_link **out, uv_loop_t *loop, const char *address, uint16_t port, const kin_link_options *options,
                     const kin_link_callbacks *callbacks, void *user, kin_err *err);

// The same for a connection that has just arrived at `acceptor`, inside kin_acceptor_connected. For net/listener.c.
int kin_link_serve(kin_link **out, uv_loop_t *loop, kin_acceptor *acceptor, const kin_link_options *options,
                   const kin_link_callbacks *callbacks, void *user, kin_err *err);

// Transfers the link to another owner.
void kin_link_accept(kin_link *link, const kin_link_callbacks *callbacks, void *user);

// ---- sending and closing

typedef enum kin_link_sent {
    KIN_LINK_SENT,   // passed to the OS
    KIN_LINK_QUEUED, // accepted; some of it waits in the queue
    KIN_LINK_FULL,   // refused: the queue is full; `drained` follows
    KIN_LINK_SHUT,   // refused: the link is not open
} kin_link_sent;

// Sends one frame; its payload is the concatenation of the parts. The bytes are encrypted or copied before it returns. A frame of
// any length is accepted while the queue is empty, so the queue holds at most the larger of queue_max and one frame, plus a BYE.
kin_link_sent kin_link_send(kin_link *link, kin_frame_type type, uint32_t epoch, int n_parts, const kin_frame_part *parts);

// The protocol version that both sides speak, as negotiated by OPEN and ACCEPT (net/dial.h, net/endpoint.h); 0 before.
void kin_link_set_version(kin_link *link, uint16_t version);
uint16_t kin_link_version(const kin_link *link);

// Sets the largest payload that is received from now on (never more than the frame's type allows).
void kin_link_set_frame_max(kin_link *link, uint32_t n);
// Sets the number of bytes that may wait for the peer.
void kin_link_set_queue_max(kin_link *link, size_t n);
// Sets the time without an answer after which the link ends.
void kin_link_set_silence(kin_link *link, uint32_t ms);

// Sends the reason to the peer (a sentence of at most 1000 bytes; NULL: none), and keeps sending queued data for at most
// linger_ms. No callback comes afterwards. NULL is allowed as link.
void kin_link_close(kin_link *link, const char *reason);

// Ends the link but keeps its connection: the caller owns *fd, which is non-blocking, and *tls, and reads and writes frames
// itself. Data may have arrived already: use kin_tls_read before the socket. Requires an open link with an empty queue, between
// two frames; may be called inside `frame`. No callback comes afterwards. On failure the link is unchanged.
int kin_link_release(kin_link *link, int *fd, kin_tls **tls, kin_err *err);

// ---- inspection

typedef struct kin_link_stats {
    uint64_t bytes_in, bytes_out;   // on the wire, including TLS and handshake
    uint64_t frames_in, frames_out; // including the link's own
    uint64_t rtt_ns;                // median of the last pings; 0: none yet
    int64_t clock_ahead_ns;         // peer's clock minus ours, from the ping with the shortest round trip
    size_t queued;                  // bytes in the send queue
    size_t unacknowledged;          // bytes sent that the peer has not acknowledged; 0: none, or unknown
    size_t partial;                 // bytes received of an incomplete frame
} kin_link_stats;

kin_link_stats kin_link_stats_now(const kin_link *link);

// Returns the first n payload bytes of the frame that is arriving; NULL: no payload byte yet. Valid until more data arrives, and
// inside `closed`.
const uint8_t *kin_link_arriving(const kin_link *link, kin_frame *frame, size_t *n);

// Inside `closed`: the reason for a failed handshake.
kin_tls_fault kin_link_fault(const kin_link *link);

// Returns the peer, "192.168.1.7:4100"; before the connection is made, the address given to kin_link_connect. Lives as long as
// the link.
const char *kin_link_name(const kin_link *link);
// Returns the peer's numeric address without the port.
const char *kin_link_address(const kin_link *link);
