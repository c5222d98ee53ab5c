// A gateway: what another device means for the head is passed on to it, where that device reaches this one alone (two networks,
// and this one is in both).
//
//     device ─► link ─► this process ─► link ─► head          OPEN and ACCEPT of each other, then bytes as they come
//
// Control links and those of status clients are meant for a head whoever is called. Of a device whose control link passes here
// other links pass, too, but those that name this process. Once a link is accepted its bytes are moved by a thread of its own,
// so that a side that reads slowly slows the other one and nothing else. Both sides know each other by OPEN and ACCEPT; the
// cluster's key is all that this process is trusted with.
//
// Owner: cluster/join.c. Thread: the loop's.
#pragma once

#include "net/endpoint.h"
#include "pure/proto/message.h"

enum { KIN_GATEWAY_LINKS = 64 }; // at a time

typedef struct kin_gateway kin_gateway;

int kin_gateway_open(kin_gateway **out, kin_endpoint *endpoint, kin_err *err);
// Links that pass end. NULL is allowed.
void kin_gateway_close(kin_gateway *gateway);

// The head's address from now on; NULL: there is none, and what passes ends.
void kin_gateway_set_head(kin_gateway *gateway, const char *address, uint16_t port);

// False: the link is not for the head, or there is none; it stays the caller's. Else it is answered here.
bool kin_gateway_take(kin_gateway *gateway, kin_link *link, uint32_t epoch, const kin_proto_open *open);

// Ten times a second.
void kin_gateway_tick(kin_gateway *gateway);
