// An endpoint: this process's presence on the network. It owns the loop's thread, the listener and the TLS context, and
// dispatches links that others open: each begins with OPEN, which states its role (kin_proto_open.role). A peer without a common
// protocol version is refused. Probes of this process are answered here (net/echo_responder.h); every other link goes to the
// owner with its OPEN.
//
// Other threads reach the loop's thread through a mailbox: kin_endpoint_call.
//
// Owner: a driver (cluster/cluster.h, cluster/join.h). Thread: the loop's, except for open, start and close, which belong to the
// owner, and kin_endpoint_call, which any thread may use between open and close.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "net/key.h"
#include "net/listener.h"
#include "net/mailbox.h"
#include "pure/proto/id.h"

typedef struct kin_endpoint kin_endpoint;

typedef struct kin_endpoint_options {
    kin_proto_id id;
    const char *name, *version; // sent in OPEN and ACCEPT; borrowed until close
    uint32_t features;
    uint64_t run;                // identifies this run of the process (kin_proto_open)
    kin_proto_versions versions; // protocol versions; not set: this program's
    kin_key key;
    const char *listen; // numeric address; NULL: all
    uint16_t port;      // 0: any
} kin_endpoint_options;

typedef struct kin_endpoint_callbacks { // called in the loop's thread
    // Ten times a second.
    void (*tick)(void *user);
    // Another process opened a link and sent OPEN, which is not answered yet. The owner takes the link over (kin_link_accept) and
    // answers (kin_endpoint_send_accept), or refuses it (kin_endpoint_refuse). NULL: all are refused.
    void (*opened)(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open);
} kin_endpoint_callbacks;

int kin_endpoint_open(kin_endpoint **out, const kin_endpoint_options *options, const kin_endpoint_callbacks *callbacks,
                      void *user, kin_err *err);

// Starts the loop's thread; `begin` is the first function that runs in it.
int kin_endpoint_start(kin_endpoint *endpoint, kin_mailbox_fn begin, void *arg, kin_err *err);

// Ends the thread: pending calls run, then `end`, which closes the owner's links and handles; then the endpoint closes its own.
// NULL is allowed.
void kin_endpoint_close(kin_endpoint *endpoint, kin_mailbox_fn end, void *arg);

// ---- any thread

// Runs fn(arg) in the loop's thread, in order. Blocks while too many calls are pending. Returns false if the loop is ending; fn
// will not be called.
bool kin_endpoint_call(kin_endpoint *endpoint, kin_mailbox_fn fn, void *arg);

// ---- the loop's thread

// Returns the content of OPEN for this process, except for role and peer.
kin_proto_open kin_endpoint_self(const kin_endpoint *endpoint);

// Answer OPEN; refusing closes the link.
void kin_endpoint_send_accept(kin_endpoint *endpoint, kin_link *link);
void kin_endpoint_refuse(kin_link *link, const char *reason);

uv_loop_t *kin_endpoint_loop(kin_endpoint *endpoint);
kin_tls_ctx *kin_endpoint_tls(kin_endpoint *endpoint);
uint16_t kin_endpoint_port(const kin_endpoint *endpoint);

// Encodes and sends one message of up to 64 KiB (header and payload).
kin_link_sent kin_endpoint_send_message(kin_link *link, uint32_t epoch, const kin_proto_message *message);
