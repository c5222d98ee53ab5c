// A relay: the head forwards the frames of hops whose members do not reach each other. Both connect to the head, the sender with
// role RING, the receiver with role BACK; once both are there, both are accepted, and the frames of the sender go to the receiver
// unchanged.
//
//     device A ─► link ─► the head's loop ─► link ─► device B
//
// The owner decides which hops may exist. When one end is gone the other is closed; both are closed when more data waits for the
// receiver than can be in flight.
//
// Owner: cluster/cluster.c. Thread: the loop's.
#pragma once

#include "net/endpoint.h"

typedef struct kin_relay kin_relay;

// Called when the relay begins to forward frames of a hop.
typedef void (*kin_relay_begun)(void *user, const kin_proto_id *from, const kin_proto_id *to);

int kin_relay_open(kin_relay **out, kin_relay_begun begun, void *user, kin_err *err);
void kin_relay_close(kin_relay *relay, const char *reason); // NULL is allowed for relay

// Forwards frames of this epoch, with at most frame_max bytes of payload. Hops of another epoch end.
void kin_relay_enter(kin_relay *relay, uint32_t epoch, uint32_t frame_max);

// Returns the bytes of all hops that wait here for the receivers, that these have not acknowledged, or of incomplete incoming
// frames.
uint64_t kin_relay_moving(const kin_relay *relay);

// Adds one end of a hop of this epoch, a link on which OPEN came. It is answered here, now or when the other end is there.
void kin_relay_add(kin_relay *relay, kin_endpoint *endpoint, kin_link *link, const kin_proto_open *open);
