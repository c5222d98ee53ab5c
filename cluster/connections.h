// The control links of the devices at a head. Here a link is a number; which device is behind it is known to the membership
// (pure/proto/membership.h).
//
// It passes messages on, knows where each device is reached, which parts of the model it has to give, and what it last said of
// itself.
//
// Owner: cluster/cluster.c. Thread: the loop's.
#pragma once

#include "base/clock.h"
#include "net/link.h"
#include "observe/status_json.h"
#include "pure/proto/membership.h"
#include "pure/proto/message.h"

enum { KIN_CONNECTIONS_MAX = KIN_MEMBERSHIP_DEVICES + 8 }; // with those that are about to be refused

typedef struct kin_connections kin_connections;

typedef struct kin_connections_callbacks { // a link may be dropped inside
    // What the connections does not keep for itself.
    void (*message)(void *user, uint32_t number, uint32_t epoch, kin_proto_message *message);
    // The link has ended, and is gone.
    void (*lost)(void *user, uint32_t number, const char *reason);
} kin_connections_callbacks;

int kin_connections_open(kin_connections **out, const kin_connections_callbacks *callbacks, void *user, kin_err *err);
void kin_connections_close(kin_connections *connections, const char *reason); // NULL is allowed as connections

// Takes a link over. Its number; 0: there are too many, and it was closed.
uint32_t kin_connections_add(kin_connections *connections, kin_link *link);

// NULL: that one is gone.
kin_link *kin_connections_link(const kin_connections *connections, uint32_t number);

void kin_connections_drop(kin_connections *connections, uint32_t number, const char *reason);

// Where others reach the device: where it says, else where the head sees it. False: it is gone.
bool kin_connections_endpoint(const kin_connections *connections, uint32_t number, kin_proto_endpoint *out);

// A message that must arrive. One that finds no more room on a link ends it, within a tick: that device does not read what it is
// told. False: it was not taken.
bool kin_connections_send(kin_connections *connections, uint32_t number, uint32_t epoch, const kin_proto_message *message);
// Ten times a second. Calls `lost`.
void kin_connections_tick(kin_connections *connections);

// What one device has may be fetched from it by the others: tells them, and remembers it.
void kin_connections_relay(kin_connections *connections, uint32_t number, const kin_proto_have *have);
// Tells one what was relayed of the others. They are told, too, when one of these is gone.
void kin_connections_tell(kin_connections *connections, uint32_t number);

// ---- how they are

// Asks all for their STATUS.
void kin_connections_ask(kin_connections *connections);
// Whether all have answered that question; an answer to an earlier one is none to it.
bool kin_connections_has_answered(const kin_connections *connections);
// What is not answered by now is not waited for.
void kin_connections_ask_no_more(kin_connections *connections);

kin_status_sample kin_connections_sample_of(const kin_connections *connections, uint32_t number);
