// A listener: accepts connections and hands over links (net/link.h) whose handshake succeeded.
//
// A peer without the key costs a little memory for at most handshake_ms, and a log line. There may be n_pending handshakes at a
// time, n_pending_address per address (IPv6: per /64). One more drops the oldest of them: a peer with the key needs only a few
// milliseconds. Log lines about failed handshakes are rate-limited, too.
//
// Owner: the caller that opened it. Thread: the loop's, for every function and callback. After kin_listener_close, and after a
// failed open, the loop must run once more before it is closed.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "net/link.h"

typedef struct kin_listener kin_listener;

typedef struct kin_listener_options {
    kin_link_options link;
    int n_pending;         // handshakes at a time (32)
    int n_pending_address; // the same, per address (8)
} kin_listener_options;

kin_listener_options kin_listener_options_default(kin_tls_ctx *tls);

// A link is open, and yours: inside this call set your callbacks with kin_link_accept, or close it with kin_link_close.
typedef void (*kin_listener_accepted)(void *user, kin_link *link);

// `address`: numeric; NULL: all addresses of the machine, IPv6 and IPv4. port 0: any free port, see kin_listener_port.
int kin_listener_open(kin_listener **out, uv_loop_t *loop, const char *address, uint16_t port,
                      const kin_listener_options *options, kin_listener_accepted accepted, void *user, kin_err *err);

// Pending handshakes are dropped without notice; accepted links stay. NULL is allowed.
void kin_listener_close(kin_listener *listener);

uint16_t kin_listener_port(const kin_listener *listener);
