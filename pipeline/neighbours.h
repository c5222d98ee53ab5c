// Neighbours: a member's two links in the ring of an epoch, from the previous member and to the next one.
//
//     previous member ─► link ─► message buffers ─► queue `in` ─► computing thread ─► kin_neighbours_send ─► link ─► next member
//
// Steps go one way. Either end of a hop may open its link: the sender (role RING), or the receiver (role BACK) where the sender
// does not get through. Where neither gets through, both call the head, which passes the frames on (pipeline/relay.h).
//
// The sender decides which link of several counts: it uses the first one that is open and refuses all others; the receiver
// follows. An id is compared on both ends, so that neither a stranger nor the member itself (an address that leads back to it) is
// a neighbour.
//
// Owner: a driver (cluster/cluster.h, cluster/join.h). Thread: the loop's, but for open and kin_neighbours_send. To be closed
// where the endpoint ends (kin_endpoint_close).
#pragma once

#include "net/endpoint.h"
#include "net/message_buffer.h"
#include "observe/trace.h"
#include "pure/proto/message.h"

typedef enum kin_side { KIN_SIDE_NEXT, KIN_SIDE_PREVIOUS, KIN_N_SIDES } kin_side;

// This member's place in a ring.
typedef struct kin_ring_place {
    uint32_t epoch;                // frames and links of it count, and no others; 0: none
    uint32_t frame_max;            // bytes of payload
    kin_proto_id who[KIN_N_SIDES]; // the neighbours; zeros: nobody yet
} kin_ring_place;

typedef struct kin_neighbours kin_neighbours;

typedef struct kin_neighbours_options {
    kin_endpoint *endpoint;
    kin_message_pool *pool; // borrowed until close, as the queue and the events
    kin_message_queue *in;
    kin_trace *trace; // where sending is recorded; NULL: nowhere
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

// How long the next member may say nothing.
void kin_neighbours_set_silence(kin_neighbours *neighbours, uint32_t ms);

// A link of role RING or BACK that another process opened. False: it is for another member, and stays the caller's. Else it is
// taken, and accepted or refused.
bool kin_neighbours_take(kin_neighbours *neighbours, kin_link *link, uint32_t epoch, const kin_proto_open *open);

// Any thread: takes one frame to the next member; the buffer goes back to the pool. Without a link, or of another epoch, the
// frame is dropped: its epoch is over.
void kin_neighbours_send(kin_neighbours *neighbours, kin_message_buffer *buffer);

typedef struct kin_neighbours_stats {
    uint64_t net_in, net_out; // bytes of all links so far
    uint64_t rtt_ns;          // to the next member, 0: not known
    bool has[KIN_N_SIDES];
    // Of this epoch: frames with steps that came from the previous member, and that were given to kin_neighbours_send.
    uint32_t epoch, n_came, n_left;
    uint64_t moving; // bytes that the next member has not acknowledged, and of a frame that has come in part
} kin_neighbours_stats;

kin_neighbours_stats kin_neighbours_stats_now(kin_neighbours *neighbours);
