// A transport (net/transport.h) within one loop: both ends of a stream are in this process, and bytes go from one to the other
// through memory. No sockets, no ports of the machine, no TLS: every peer counts as having the key. Bytes written by one end
// arrive at the other in the next iteration of the loop. The other end is always notified of a close.
//
// Owner: the test. Thread: the loop's.
#pragma once

#include "net/transport.h"

typedef struct kin_pair kin_pair;

int kin_pair_open(kin_pair **out, uv_loop_t *loop, kin_err *err);
// Call after all its streams and acceptors are closed and the loop has become idle. The loop must run once more afterwards. NULL
// is allowed.
void kin_pair_close(kin_pair *pair);

// Valid until close. The only address is 127.0.0.1.
const kin_transport *kin_pair_transport(const kin_pair *pair);
