// A probe: measures the path to another member as the ring's messages use it: TCP, TLS, and the peer's loop.
//
//   connect, OPEN (role probe), ACCEPT ─► messages of pure/proto/probing.h, with a pause of 10 ms before each round trip
//
// Transfers a few megabytes, and up to 20 on a path with long delay.
//
// Measured in local clusters of lab/run: 1 Gbit/s with a round trip of 1 ms is measured as 0.80 to 0.86, in 0.12 s; 100 Mbit/s as
// 89 to 92, in 0.3 s. With 20 ms: 1 Gbit/s as 0.70 to 0.79, 50 Mbit/s as 48, 5 Mbit/s as 5. 1 Gbit/s at 12 ms as 0.92 to 0.95, at
// 50 ms as 0.31.
//
// Owner: the caller that started it. Thread: the loop's, for every function and callback. After the end the loop must run once
// more before it is closed.
#pragma once

#include <uv.h>

#include "net/link.h"
#include "pure/proto/message.h"
#include "pure/proto/probing.h"

enum {
    KIN_PROBE_LIMIT_MS = 3000,
    KIN_PROBE_CONNECT_MS = 1500, // part of it for connecting, over all addresses
};

typedef struct kin_probe kin_probe;

typedef struct kin_probe_options {
    kin_tls_ctx *tls;        // borrowed
    kin_proto_open self;     // id, name, version and features, for OPEN
    kin_proto_endpoint to;   // at least one address; they are tried in turn
    const kin_proto_id *who; // the expected id; borrowed for the call. NULL: any process
    uint32_t hidden_bytes;   // size of a hidden state, at least 1
    uint32_t limit_ms;       // 0: KIN_PROBE_LIMIT_MS
} kin_probe_options;

typedef kin_probing_result kin_probe_result;

// Called once, unless the probe was cancelled; the probe is freed afterwards. result NULL: it failed, for `reason`.
typedef void (*kin_probe_done)(void *user, const kin_probe_result *result, const char *reason);

// Fails only for local reasons; never calls `done` itself.
int kin_probe_start(kin_probe **out, uv_loop_t *loop, const kin_probe_options *options, kin_probe_done done, void *user,
                    kin_err *err);
void kin_probe_cancel(kin_probe *probe); // NULL is allowed
