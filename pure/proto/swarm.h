// Swarm: decides which chunk of a model to request from which source, for a device that fetches its weights from a head and from
// other devices.
//
// Events in, actions out: no links, no disk, no clock. The driver reports arrivals and losses, and asks for actions after every
// event and at least four times a second (otherwise silence goes unnoticed).
//
// The rules:
//   need       chunks are requested in the order in which they were wanted; those of one call to kin_swarm_want either in their
//              given order (needed at once), or shuffled by the device's own seed, so that devices that want the same chunks
//              get different ones first and can exchange them
//   load       a limited number of requests per source, and in total (each takes a chunk of memory)
//   slow links if less than slow_bytes_s arrives from all sources together, at most 3 sources are used, with one chunk each:
//              more sources on one slow link would each stall now and then, and be considered dead. Requests that others got
//              before the link was known to be slow are withdrawn; the driver ends these links, and keeps what has arrived
//   the head   is asked for chunks that no device has. For other chunks it is asked only if all devices that have them would
//              take longer than max_wait_ns: all uplinks should be used, not only the head's
//   failures   if a source is silent for timeout_ns, is lost, or lacks the chunk, other sources are asked. A silent source is
//              left alone for a while, twice as long each time
//   bad peers  a source that sent wrong bytes is never asked again, even after it reconnects
//   endgame    when everything has been requested, slow requests are repeated at other sources
//   giving up  after give_up_ns without a byte from any source
//
// Owner: the driver. Thread: its loop's. Everything is valid until kin_swarm_free.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

enum {
    KIN_SWARM_SOURCES = 64,   // known at the same time, including those that sent wrong bytes
    KIN_SWARM_IN_FLIGHT = 16, // most requests per source
    KIN_SWARM_ID_BYTES = 16,
};

typedef struct kin_swarm kin_swarm;

typedef struct kin_swarm_options {
    uint32_t n_chunks;    // of the model
    uint32_t chunk_bytes; // of a whole chunk, for estimates
    uint64_t seed;        // different on every device
    int n_in_flight;      // per source, up to KIN_SWARM_IN_FLIGHT
    int n_in_flight_all;
    uint64_t timeout_ns;
    uint64_t max_wait_ns;
    uint32_t slow_bytes_s; // a link with a lower rate is slow
    uint64_t rest_ns;      // pause after a source's first silence
    uint64_t give_up_ns;
} kin_swarm_options;

// 3 requests per source and 16 in total; slow below 512 kB/s; timeout 10 s, longest expected wait 2 s, rest 1 s, giving up after
// 60 s.
kin_swarm_options kin_swarm_options_defaults(uint32_t n_chunks, uint32_t chunk_bytes, uint64_t seed);

// NULL if out of memory.
kin_swarm *kin_swarm_new(const kin_swarm_options *options, kin_time now);
void kin_swarm_free(kin_swarm *swarm);

// ---- wanted chunks

// Adds chunks that the device lacks, after those wanted before. Chunks that are already wanted keep their place. in_order: they
// are needed at once, in the given order. chunks[i] < n_chunks.
void kin_swarm_want(kin_swarm *swarm, const uint32_t *chunks, size_t n, bool in_order, kin_time now);

// ---- events

// Adds a source. Returns its number, which stays the same when it reconnects; -1 if it has sent wrong bytes before, or if there
// are too many sources. A device has no chunks until kin_swarm_offers; the head has all.
int kin_swarm_add_source(kin_swarm *swarm, const uint8_t id[KIN_SWARM_ID_BYTES], bool is_head);

// Sets the chunks that a source has now: bit i % 8 of byte i / 8 is chunk i. It has no chunks beyond n_bytes.
void kin_swarm_offers(kin_swarm *swarm, int source, const uint8_t *bits, size_t n_bytes);

void kin_swarm_heard(kin_swarm *swarm, int source, uint32_t n_bytes, kin_time now); // bytes of some chunk arrived from it
void kin_swarm_got(kin_swarm *swarm, int source, uint32_t chunk, kin_time now);     // a whole chunk arrived: checked and kept
void kin_swarm_lied(kin_swarm *swarm, int source, uint32_t chunk);                  // a whole chunk arrived: wrong
void kin_swarm_spoiled(kin_swarm *swarm, int source, uint32_t chunk); // wrong, but not all of it came from this source
void kin_swarm_lacks(kin_swarm *swarm, int source, uint32_t chunk);   // the source does not have that chunk
void kin_swarm_lost(kin_swarm *swarm, int source);                    // the source can no longer be asked

// ---- actions

typedef enum kin_swarm_verb {
    KIN_SWARM_WAIT,    // nothing to do now
    KIN_SWARM_ASK,     // source, chunk
    KIN_SWARM_GIVE_UP, // reason; returned every time until something arrives
} kin_swarm_verb;

typedef struct kin_swarm_action {
    kin_swarm_verb verb;
    int source;
    uint32_t chunk;
    char reason[160];
} kin_swarm_action;

// Returns one action; call it until it returns WAIT or GIVE_UP.
kin_swarm_action kin_swarm_next(kin_swarm *swarm, kin_time now);

// ---- inspection

// True if this chunk was requested from this source and is still expected from it. If not, the driver need not
// wait for the rest of it.
bool kin_swarm_is_asked(const kin_swarm *swarm, int source, uint32_t chunk);
bool kin_swarm_complete(const kin_swarm *swarm); // all wanted chunks are there

typedef struct kin_swarm_stats {
    uint32_t n_wanted, n_done; // chunks
    uint32_t n_in_flight;
    uint32_t n_twice;     // chunks that arrived although they were already there
    uint64_t bytes_head;  // received from the head
    uint64_t bytes_peers; // received from others
    uint64_t rate;        // bytes per second over the last seconds; 0: not known, as in the first two seconds
    uint64_t left_ns;     // until everything is there, at this rate; UINT64_MAX: not known
} kin_swarm_stats;

kin_swarm_stats kin_swarm_get_stats(const kin_swarm *swarm, kin_time now);
