// A relay: the head passes on the frames of hops whose members do not reach each other. Both call the head, the sender with role
// RING, the receiver with role BACK; when both ends are there both are accepted, and what the one sends goes to the other as it
// is.
//
//     device A ─► link ─► the head's loop ─► link ─► device B
//
// Which hops there are is the owner's to know. When one end is gone the other is closed; both are when more waits for the
// receiver than can be in flight.
//
// Owner: cluster/cluster.c. Thread: the loop's.
#pragma once

#include "net/endpoint.h"

typedef struct kin_relay kin_relay;

// Frames of a hop are being passed on from now on.
typedef void (*kin_relay_begun)(void *user, const kin_proto_id *from, const kin_proto_id *to);

int kin_relay_open(kin_relay **out, kin_relay_begun begun, void *user, kin_err *err);
void kin_relay_close(kin_relay *relay, const char *reason); // NULL is allowed as relay

// Frames of that epoch pass, of at most so many bytes of payload. Hops of another one end.
void kin_relay_enter(kin_relay *relay, uint32_t epoch, uint32_t frame_max);

// Bytes that wait here for the receivers of all hops, or that these have not acknowledged.
uint64_t kin_relay_moving(const kin_relay *relay);

// One end of a hop of this epoch: OPEN came on it. It is answered here, now or when the other end is there.
void kin_relay_add(kin_relay *relay, kin_endpoint *endpoint, kin_link *link, const kin_proto_open *open);
