// An endpoint: this process in the network. It has the loop's thread, the listener and the TLS context, and sorts the links that
// others open: each begins with OPEN, which says what it is for (kin_proto_open.role). Who speaks no version of the protocol that
// this process speaks is refused. Probes of this process are answered here
// (net/echo_responder.h); every other link goes to the owner with its OPEN.
//
// Other threads reach the loop's thread through a mailbox: kin_endpoint_call.
//
// Owner: a driver (cluster/cluster.h, cluster/join.h). Thread: the loop's for everything but kin_endpoint_call, which any thread
// may use between open and close, and open, start and close themselves.
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
    const char *name, *version; // what OPEN and ACCEPT say; borrowed until close
    uint32_t features;
    uint64_t run;                // of this process (kin_proto_open)
    kin_proto_versions versions; // of the protocol; not set: those of this program
    kin_key key;
    const char *listen; // numeric address, NULL: all
    uint16_t port;      // 0: any
} kin_endpoint_options;

typedef struct kin_endpoint_callbacks { // in the loop's thread
    // Ten times a second.
    void (*tick)(void *user);
    // A link that another process opened, and its OPEN, which is not answered yet. The owner takes the link over
    // (kin_link_accept) and answers (kin_endpoint_send_accept), or refuses it (kin_endpoint_refuse). NULL: all are refused.
    void (*opened)(void *user, kin_link *link, uint32_t epoch, const kin_proto_open *open);
} kin_endpoint_callbacks;

int kin_endpoint_open(kin_endpoint **out, const kin_endpoint_options *options, const kin_endpoint_callbacks *callbacks,
                      void *user, kin_err *err);

// Starts the loop's thread; `begin` is the first thing that runs in it.
int kin_endpoint_start(kin_endpoint *endpoint, kin_mailbox_fn begin, void *arg, kin_err *err);

// Ends the thread: calls that were left run, then `end`, which closes the owner's links and handles; then the endpoint's own are
// closed. NULL is allowed.
void kin_endpoint_close(kin_endpoint *endpoint, kin_mailbox_fn end, void *arg);

// ---- any thread

// fn(arg) in the loop's thread, in order. Waits while there are too many already. False: the loop is at its end, and fn will not
// be called.
bool kin_endpoint_call(kin_endpoint *endpoint, kin_mailbox_fn fn, void *arg);

// ---- the loop's thread

// What OPEN says of this process, but for role and peer.
kin_proto_open kin_endpoint_self(const kin_endpoint *endpoint);

// Answers OPEN; refusing closes the link.
void kin_endpoint_send_accept(kin_endpoint *endpoint, kin_link *link);
void kin_endpoint_refuse(kin_link *link, const char *reason);

uv_loop_t *kin_endpoint_loop(kin_endpoint *endpoint);
kin_tls_ctx *kin_endpoint_tls(kin_endpoint *endpoint);
uint16_t kin_endpoint_port(const kin_endpoint *endpoint);

// Sends one message, header and payload, made by the codec. Messages of up to 64 KiB.
kin_link_sent kin_endpoint_send_message(kin_link *link, uint32_t epoch, const kin_proto_message *message);
