// Neighbours: a member's two links in the ring of an epoch, from the previous member and to the next one.
//
//     previous member ─► link ─► message buffers ─► queue `in` ─► computing thread ─► kin_neighbours_send ─► link ─► next member
//
// Steps go one way. Either end of a hop may open its link: the sender (role RING), or the receiver (role BACK) where the sender
// does not get through. Where neither gets through, both call the head, which passes the frames on (ring/relay.h).
//
// The sender decides which link of several counts: it uses the first one that is open and refuses all others; the receiver
// follows. An id is compared on both ends, so that neither a stranger nor the member itself (an address that leads back to it) is
// a neighbour.
//
// Owner: ring/station.c. Thread: the loop's.
#pragma once

#include <uv.h>

#include "pure/proto/message.h"
#include "ring/events.h"
#include "ring/link.h"
#include "ring/parcel.h"

typedef enum kin_side { KIN_SIDE_NEXT, KIN_SIDE_PREVIOUS, KIN_N_SIDES } kin_side;

// This member's place in a ring.
typedef struct kin_ring_place {
    uint32_t epoch;                // frames and links of it count, and no others; 0: none
    uint32_t frame_max;            // bytes of payload
    kin_proto_id who[KIN_N_SIDES]; // the neighbours; zeros: nobody yet
} kin_ring_place;

typedef struct kin_neighbours kin_neighbours;

typedef struct kin_neighbours_options {
    uv_loop_t *loop;
    kin_tls_ctx *tls;
    kin_proto_open self; // what OPEN says, but for role and peer
    kin_parcels *pool;   // borrowed until close, as the queue and the events
    kin_parcel_queue *in;
    kin_events *events; // where sending is recorded; NULL: nowhere
} kin_neighbours_options;

// The link on that side opened, or ended, or did not come to be (reason).
typedef void (*kin_neighbours_told)(void *user, kin_side side, uint32_t epoch, bool is_open, const char *reason);

int kin_neighbours_open(kin_neighbours **out, const kin_neighbours_options *options, kin_neighbours_told told, void *user,
                        kin_err *err);
void kin_neighbours_close(kin_neighbours *neighbours, const char *reason); // NULL is allowed as neighbours

// From now on this is the place. Links of another epoch end.
void kin_neighbours_enter(kin_neighbours *neighbours, const kin_ring_place *place);

// Connects to the neighbour on that side; the answer comes by `told`, perhaps at once. Nothing happens where the link to the next
// member is open: its receiver may have opened it since the last try. Addresses are tried in turn, one each time this is called.
// answers: whose id must be in ACCEPT; NULL: the neighbour's, else that of the head, which passes on.
void kin_neighbours_connect(kin_neighbours *neighbours, kin_side side, const kin_proto_endpoint *endpoint,
                            const kin_proto_id *answers);
void kin_neighbours_end(kin_neighbours *neighbours, kin_side side);

// Somebody's link of role RING or BACK that is for this member. True: taken, and ACCEPT may be sent before anything else is done;
// false: *reason says why not, and the link is the caller's.
bool kin_neighbours_takes(kin_neighbours *neighbours, uint32_t epoch, const kin_proto_open *open, const char **reason);
void kin_neighbours_take(kin_neighbours *neighbours, kin_link *link, const kin_proto_open *open);

// One frame to the next member. Without a link, or of another epoch, it is dropped.
void kin_neighbours_send(kin_neighbours *neighbours, const kin_parcel *parcel);

// Ten times a second.
void kin_neighbours_tick(kin_neighbours *neighbours, kin_time now);

typedef struct kin_neighbours_stats {
    uint64_t net_in, net_out; // bytes of all links so far
    uint64_t rtt_ns;          // to the next member, 0: not known
    bool has[KIN_N_SIDES];
} kin_neighbours_stats;

kin_neighbours_stats kin_neighbours_stats_now(const kin_neighbours *neighbours);
