// A TCP proxy on loopback that can misbehave between two processes of a test.
//
// Owner: the test. A separate thread forwards the bytes; the functions may be called from any thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct kin_proxy kin_proxy;

// Connections to its port are forwarded to 127.0.0.1:`to`.
int kin_proxy_open(kin_proxy **out, uint16_t to, kin_err *err);
void kin_proxy_close(kin_proxy *proxy); // NULL is allowed
uint16_t kin_proxy_port(const kin_proxy *proxy);

// Ends all current connections.
void kin_proxy_cut(kin_proxy *proxy);
// While true, forwards nothing: as if the cable were unplugged; neither side is notified.
void kin_proxy_stall(kin_proxy *proxy, bool stalled);
// Flips a bit of the next forwarded bytes.
void kin_proxy_corrupt(kin_proxy *proxy);
// Ends each connection when this many bytes have been forwarded to its client; 0: no limit.
void kin_proxy_limit(kin_proxy *proxy, uint32_t bytes);
// Limits the bytes per second to all clients together; 0: no limit.
void kin_proxy_slow(kin_proxy *proxy, uint32_t bytes_s);

// Returns the number of connections accepted so far.
uint32_t kin_proxy_n_accepted(const kin_proxy *proxy);
