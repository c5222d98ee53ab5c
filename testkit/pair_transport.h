// A transport (net/transport.h) within one loop: both ends of a stream are here, bytes go from one to the other through memory.
// No sockets, no ports of the machine, no TLS: whoever connects has the key. What one end writes, the other gets in the next turn
// of the loop, and until then it waits. A close is always told to the other end.
//
// Owner: the test. Thread: the loop's.
#pragma once

#include "net/transport.h"

typedef struct kin_pair kin_pair;

int kin_pair_open(kin_pair **out, uv_loop_t *loop, kin_err *err);
// After all streams and acceptors of it are closed and the loop had nothing to do any more. Then it must run once more. NULL is
// allowed.
void kin_pair_close(kin_pair *pair);

// Valid until close. The only address is 127.0.0.1.
const kin_transport *kin_pair_transport(const kin_pair *pair);
