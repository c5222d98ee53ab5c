// The control links of the devices, at the head. A link has a number here; the membership knows which device it belongs to
// (pure/proto/membership.h).
//
// It forwards messages, and stores each device's addresses, the parts of the model that it offers, and its last status.
//
// Owner: cluster/head/devices.h. Thread: the loop's.
#pragma once

#include "base/clock.h"
#include "net/link.h"
#include "observe/status_json.h"
#include "pure/proto/membership.h"
#include "pure/proto/message.h"

enum { KIN_CONNECTIONS_MAX = KIN_MEMBERSHIP_DEVICES + 8 }; // including those about to be refused

typedef struct kin_connections kin_connections;

typedef struct kin_connections_callbacks { // links may be dropped inside
    // A message that is not handled here.
    void (*message)(void *user, uint32_t number, uint32_t epoch, kin_proto_message *message);
    // The link has ended, and is removed.
    void (*lost)(void *user, uint32_t number, const char *reason);
} kin_connections_callbacks;

int kin_connections_open(kin_connections **out, const kin_connections_callbacks *callbacks, void *user, kin_err *err);
void kin_connections_close(kin_connections *connections, const char *reason); // NULL is allowed for connections

// Takes over a link. Returns its number; 0: there are too many, and it was closed.
uint32_t kin_connections_add(kin_connections *connections, kin_link *link);

// Returns NULL if that link is gone.
kin_link *kin_connections_link(const kin_connections *connections, uint32_t number);

void kin_connections_drop(kin_connections *connections, uint32_t number, const char *reason);

// Returns where others reach the device: the addresses that it reports, and the one that the head sees. False: it is gone.
bool kin_connections_endpoint(const kin_connections *connections, uint32_t number, kin_proto_endpoint *out);

// Sends a message that must arrive. If a link has no room for it, the link ends within a tick, since the device does not read.
// False: not sent.
bool kin_connections_send(kin_connections *connections, uint32_t number, uint32_t epoch, const kin_proto_message *message);
// Call it ten times a second. Sends the offers of parts that found no room before. Calls `lost`.
void kin_connections_tick(kin_connections *connections);

// Tells the other devices which parts of the model this one offers, and stores them.
void kin_connections_relay(kin_connections *connections, uint32_t number, const kin_proto_have *have);
// Tells one device what the others offer. When a device is gone, all others are told, too.
void kin_connections_send_haves(kin_connections *connections, uint32_t number);

// ---- status

// Asks all devices for their STATUS.
void kin_connections_ask(kin_connections *connections);
// True if all have answered the last question; answers to earlier questions do not count.
bool kin_connections_has_answered(const kin_connections *connections);
// Stops waiting for the missing answers.
void kin_connections_ask_no_more(kin_connections *connections);

kin_status_sample kin_connections_sample_of(const kin_connections *connections, uint32_t number);
