// A gateway: forwards a device's links to the head when the device reaches only this process, which is connected to both
// networks.
//
//     device ─► link ─► this process ─► link ─► head          OPEN and ACCEPT are forwarded, then bytes as they come
//
// Control links and links of status clients are always meant for a head. Once a device's control link is forwarded, its other
// links are forwarded, too, except those that name this process. After a link is accepted, its own thread moves the bytes, so
// that a slow reader slows only the other side of that link. Head and device identify each other by OPEN and ACCEPT; this process
// is trusted only as a holder of the cluster's key.
//
// Owner: cluster/join.c. Thread: the loop's.
#pragma once

#include "net/endpoint.h"
#include "pure/proto/message.h"

enum { KIN_GATEWAY_LINKS = 64 }; // at a time

typedef struct kin_gateway kin_gateway;

int kin_gateway_open(kin_gateway **out, kin_endpoint *endpoint, kin_err *err);
// Ends forwarded links. NULL is allowed.
void kin_gateway_close(kin_gateway *gateway);

// Sets the head's address; NULL: no head, and forwarded links end.
void kin_gateway_set_head(kin_gateway *gateway, const char *address, uint16_t port);

// Forwards a link to the head and answers it. Returns false if the link is not meant for the head, or there is no head; the
// caller then keeps it.
bool kin_gateway_accept(kin_gateway *gateway, kin_link *link, uint32_t epoch, const kin_proto_open *open);

// Call ten times a second.
void kin_gateway_tick(kin_gateway *gateway);
