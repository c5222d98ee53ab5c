// A listener: takes who connects, and hands over links (net/link.h) whose handshake succeeded.
//
// Somebody without the key costs a little memory for at most handshake_ms, and a line in the log: there may be n_pending
// handshakes at a time, n_pending_address of one address (IPv6: of one /64). One more drops the oldest of them, for who has the
// key is done in a few milliseconds. Lines about failed handshakes are limited, too.
//
// Owner: who opened it. Thread: the loop's, for every function and callback. After kin_listener_close, and after an open that
// failed, the loop must run once more before it is closed.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "net/link.h"

typedef struct kin_listener kin_listener;

typedef struct kin_listener_options {
    kin_link_options link;
    int n_pending;         // handshakes at a time (32)
    int n_pending_address; // the same, of one address (8)
} kin_listener_options;

kin_listener_options kin_listener_options_default(kin_tls_ctx *tls);

// A link is open, and yours: inside of this call give it your callbacks by kin_link_accept, or end it by kin_link_close.
typedef void (*kin_listener_accepted)(void *user, kin_link *link);

// `address`: numbers; NULL: all addresses of the machine, IPv6 and IPv4. port 0: any free one, see kin_listener_port.
int kin_listener_open(kin_listener **out, uv_loop_t *loop, const char *address, uint16_t port,
                      const kin_listener_options *options, kin_listener_accepted accepted, void *user, kin_err *err);

// Pending handshakes end without a word, links that were accepted stay. NULL is allowed.
void kin_listener_close(kin_listener *listener);

uint16_t kin_listener_port(const kin_listener *listener);
