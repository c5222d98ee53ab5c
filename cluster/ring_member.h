// The parts that the head and a device have in common as members of a ring: an endpoint, links to its two neighbours and to its
// group, the sums of the group, and the pages and chunks that it exchanges with other members.
//
//     previous member ─► neighbours ─► `in` ─► computing thread ─► kin_neighbours_send ─► next member
//     group           ◄─ group links, exchange ─► group            disks ◄─ chunk server, page fetch ─► other members
//
// Owner: kin_cluster (the head's) or kin_join (a device's), as its `ring`. Its fields may be used, not changed. Thread: the
// loop's, except open, stop and close, and where a field's type says otherwise.
#pragma once

#include <pthread.h>

#include "engine/kv/store.h"
#include "fetch/chunk_server.h"
#include "fetch/page_fetch.h"
#include "net/endpoint.h"
#include "net/message_buffer.h"
#include "pipeline/exchange.h"
#include "pipeline/group_links.h"
#include "pipeline/neighbours.h"
#include "pipeline/prepacking.h"

typedef struct kin_ring_member_options {
    kin_endpoint_options endpoint;
    const kin_endpoint_callbacks *callbacks; // of the endpoint
    // The state of a link to a neighbour. That to the next member counts as open once those of the group are open too; a sum that
    // failed closes it.
    kin_neighbours_report hop;
    // A page was written as a file of n bytes; called on the store's thread. NULL: not wanted
    void (*page_written)(void *user, const kin_page_name *name, size_t n);
    bool (*is_busy)(void *user); // steps are being computed, so copies of pages can wait
    int (*pack)(void *user, const kin_prepacking_job *job, const atomic_bool *stop, kin_packed **held, kin_err *err);
    void (*packed)(void *user, uint32_t ticket); // a job has ended (kin_prepacking_options.done), in the loop's thread
    void *user;                                  // for all of these
    kin_trace *trace;                            // see kin_neighbours_options
    const atomic_bool *stop;                     // see kin_exchange_options, as n_signs
    atomic_uint *n_signs;
} kin_ring_member_options;

typedef struct kin_ring_member {
    kin_ring_member_options o;
    kin_message_pool *pool;
    kin_message_queue *in;
    kin_endpoint *endpoint;
    kin_neighbours *neighbours;
    kin_exchange *exchange;
    kin_group_links *group_links;
    kin_chunk_server *server; // NULL: it has not been opened yet
    kin_page_fetch *pages;    // NULL: pages are not shared
    kin_kv_peers peers;       // for the shard's store
    kin_prepacking *prepacking;
    kin_prepacking_job *job; // scratch: the next one
    uint32_t entered;        // the epoch of ring and group
    bool is_next_open;       // the link to the next member is open, perhaps not all of the group's

    pthread_mutex_t mutex; // guards the following
    kin_err sum_error;     // why a sum failed, and in which epoch
    uint32_t sum_error_epoch;
} kin_ring_member;

// Opens all but the chunk server and the pages. `begin` is the first function that runs in the loop's thread, once it is started
// by kin_endpoint_start. On failure, call stop and close.
int kin_ring_member_open(kin_ring_member *member, const kin_ring_member_options *options, kin_err *err);

// Ends the packing thread, then the loop's. `end` is the last function that runs there; it calls kin_ring_member_end.
void kin_ring_member_stop(kin_ring_member *member, kin_mailbox_fn end, void *arg);
void kin_ring_member_end(kin_ring_member *member, const char *reason);
// Call it when both threads are done. A zeroed member is allowed, as for stop.
void kin_ring_member_close(kin_ring_member *member);

// Shares pages of the KV cache in `dir`, at most `cap` bytes (0: a twentieth of the disk). Without them, sequences are
// recomputed.
void kin_ring_member_share_pages(kin_ring_member *member, const char *dir, uint64_t cap);

// Enters a place in a ring, and in a group, which is not read if the epoch is the same as before. Links of another epoch end.
void kin_ring_member_enter(kin_ring_member *member, const kin_ring_place *place, const kin_proto_group *group,
                           kin_activation_type type);

// Handles a link that another process opened. False: it is not for this member as a part of a ring, and remains the caller's.
bool kin_ring_member_accept(kin_ring_member *member, kin_link *link, uint32_t epoch, const kin_proto_open *open);
