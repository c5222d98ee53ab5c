// A TCP proxy on loopback that can misbehave: what lies between two processes of a test.
//
// Owner: the test. A thread of its own passes the bytes; the functions may be called from any thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct kin_proxy kin_proxy;

// Whoever connects to its port is connected to 127.0.0.1:`to`.
int kin_proxy_open(kin_proxy **out, uint16_t to, kin_err *err);
void kin_proxy_close(kin_proxy *proxy); // NULL is allowed
uint16_t kin_proxy_port(const kin_proxy *proxy);

// Ends all connections that are there.
void kin_proxy_cut(kin_proxy *proxy);
// Passes nothing while it is true: the cable is out, and nobody is told.
void kin_proxy_stall(kin_proxy *proxy, bool stalled);
// Flips a bit of the next bytes that pass.
void kin_proxy_corrupt(kin_proxy *proxy);
// Ends each connection when so many bytes have passed to who connected; 0: does not.
void kin_proxy_limit(kin_proxy *proxy, uint32_t bytes);
// So many bytes per second pass to all who connected, together; 0: as many as there are.
void kin_proxy_slow(kin_proxy *proxy, uint32_t bytes_s);

// Connections that were taken so far.
uint32_t kin_proxy_n_taken(const kin_proxy *proxy);
