// Neighbours: a member's two links in the ring of an epoch, from the previous member and to the next one.
//
//     previous member ─► link ─► message buffers ─► queue `in` ─► computing thread ─► kin_neighbours_send ─► link ─► next member
//
// Steps go one way. Either end of a hop may open its link: the sender (role RING), or the receiver (role BACK) if the sender does
// not get through. If neither does, both connect to the head, which relays the frames (pipeline/relay.h).
//
// The sender decides which of several links counts: it uses the first one that is open and refuses all others; the receiver
// follows. Both ends compare ids, so that neither a stranger nor the member itself (an address that leads back to it) becomes a
// neighbour.
//
// Owner: a driver (cluster/cluster.h, cluster/join.h). Thread: the loop's, except open and kin_neighbours_send. Close it where
// the endpoint ends (kin_endpoint_close).
#pragma once

#include "net/endpoint.h"
#include "net/message_buffer.h"
#include "observe/trace.h"
#include "pure/proto/message.h"

typedef enum kin_side { KIN_SIDE_NEXT, KIN_SIDE_PREVIOUS, KIN_N_SIDES } kin_side;

// This member's place in a ring.
typedef struct kin_ring_place {
    uint32_t epoch;                // only frames and links of this epoch count; 0: none
    uint32_t frame_max;            // bytes of payload
    kin_proto_id who[KIN_N_SIDES]; // the neighbours; zeros: none yet
} kin_ring_place;

typedef struct kin_neighbours kin_neighbours;

typedef struct kin_neighbours_options {
    kin_endpoint *endpoint;
    kin_message_pool *pool; // borrowed until close, like the queue and the trace
    kin_message_queue *in;
    kin_trace *trace; // records sending; NULL: nothing
} kin_neighbours_options;

// Called when the link on that side has opened, has ended, or could not be opened (reason).
typedef void (*kin_neighbours_report)(void *user, kin_side side, uint32_t epoch, bool is_open, const char *reason);

int kin_neighbours_open(kin_neighbours **out, const kin_neighbours_options *options, kin_neighbours_report report, void *user,
                        kin_err *err);
void kin_neighbours_close(kin_neighbours *neighbours, const char *reason); // NULL is allowed for neighbours

// Enters a place. Links of another epoch end.
void kin_neighbours_enter(kin_neighbours *neighbours, const kin_ring_place *place);

// Connects to the neighbour on that side; the result comes by `told`, perhaps before this returns. Does nothing if the link to
// the next member is open: its receiver may have opened it since the last try. Each call tries the next address. answers: the id
// that must be in ACCEPT, that of the head if it relays; NULL: the neighbour's.
void kin_neighbours_connect(kin_neighbours *neighbours, kin_side side, const kin_proto_endpoint *endpoint,
                            const kin_proto_id *answers);
void kin_neighbours_end(kin_neighbours *neighbours, kin_side side);

// Sets how long the next member may be silent.
void kin_neighbours_set_silence(kin_neighbours *neighbours, uint32_t ms);

// Handles a link of role RING or BACK that another process opened. False: it is for another member, and remains the caller's.
// True: it was accepted or refused.
bool kin_neighbours_accept(kin_neighbours *neighbours, kin_link *link, uint32_t epoch, const kin_proto_open *open);

// Any thread: sends one frame to the next member; the buffer returns to the pool. Without a link, or if it is of another epoch,
// the frame is dropped, since its epoch is over.
void kin_neighbours_send(kin_neighbours *neighbours, kin_message_buffer *buffer);

typedef struct kin_neighbours_stats {
    uint64_t net_in, net_out; // bytes over all links so far
    uint64_t rtt_ns;          // to the next member; 0: not known
    bool has[KIN_N_SIDES];
    // In this epoch: frames with steps that came from the previous member, and that were given to kin_neighbours_send.
    uint32_t epoch, n_came, n_left;
    uint64_t moving; // bytes in flight: not acknowledged by the next member, or of an incomplete incoming frame
} kin_neighbours_stats;

kin_neighbours_stats kin_neighbours_stats_now(kin_neighbours *neighbours);
