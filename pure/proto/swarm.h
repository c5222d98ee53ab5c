// Which chunk of a model to ask from whom: the plan of a device that fetches its weights from a head and from other devices.
//
// Events in, actions out: no link, no disk, no clock. The driver reports what came and what was lost, and asks for actions after
// every event and at least four times a second (silence is noticed only then).
//
// The rules:
//   need       chunks are asked for in the order in which they were wanted; those of one call to kin_swarm_want either in their
//              order (needed at once), or shuffled by the device's own seed, so that devices that want the same chunks get
//              different ones first and can then give them to each other
//   load       a limited number of requests per source, and in all (each takes a chunk of memory)
//   slow links where less than slow_bytes_s comes from all together, at most 3 sources are asked, for one chunk each: many that
//              share a slow link would each come to a halt now and then, and be taken for dead. Requests that others got before
//              the link was known to be slow are withdrawn; the driver ends these links, and keeps what came
//   the head   is asked for what no device has. For what devices have it is asked only if all of these would take longer than
//              patience_ns: all uplinks are to be used, not only the head's
//   failures   a source that is silent for timeout_ns, is lost, or lacks the chunk: other sources are asked. A silent source is
//              left alone for a while, twice as long each time
//   bad peers  a source that sent bytes that are not the chunk's is never asked again, also when it comes back
//   endgame    when everything is asked for, slow requests are repeated at other sources
//   giving up  after give_up_ns without a byte from any source
//
// Owner: the driver. Thread: its loop's. Everything lives until kin_swarm_free.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

enum {
    KIN_SWARM_SOURCES = 64,   // known at a time, with those that sent wrong bytes
    KIN_SWARM_IN_FLIGHT = 16, // most requests per source
    KIN_SWARM_ID_BYTES = 16,
};

typedef struct kin_swarm kin_swarm;

typedef struct kin_swarm_options {
    uint32_t n_chunks;    // of the model
    uint32_t chunk_bytes; // of a whole chunk, for estimates
    uint64_t seed;        // another one for every device
    int n_in_flight;      // per source, up to KIN_SWARM_IN_FLIGHT
    int n_in_flight_all;
    uint64_t timeout_ns;
    uint64_t patience_ns;
    uint32_t slow_bytes_s; // a rate below this is one of a slow link
    uint64_t rest_ns;      // of a source that was silent once
    uint64_t give_up_ns;
} kin_swarm_options;

// 3 requests per source and 16 in all; slow below 512 kB/s; 10 s of silence, 2 s of patience, 1 s of rest, giving up after 60 s.
kin_swarm_options kin_swarm_options_defaults(uint32_t n_chunks, uint32_t chunk_bytes, uint64_t seed);

// NULL: out of memory.
kin_swarm *kin_swarm_new(const kin_swarm_options *options, kin_time now);
void kin_swarm_free(kin_swarm *swarm);

// ---- what is wanted

// Adds chunks that the device lacks, after those that were wanted before. Chunks that are wanted already are left where they are.
// in_order: they are needed at once, first things first. chunks[i] < n_chunks.
void kin_swarm_want(kin_swarm *swarm, const uint32_t *chunks, size_t n, bool in_order, kin_time now);

// ---- events

// Adds a source. Returns its number, the same whenever it comes back. -1: it has sent wrong bytes before, or there are too
// many. A device has nothing before kin_swarm_offers, the head has everything.
int kin_swarm_add_source(kin_swarm *swarm, const uint8_t id[KIN_SWARM_ID_BYTES], bool is_head);

// What it has now: bit i % 8 of byte i / 8 is chunk i; it does not have the chunks beyond the n_bytes.
void kin_swarm_offers(kin_swarm *swarm, int source, const uint8_t *bits, size_t n_bytes);

void kin_swarm_heard(kin_swarm *swarm, int source, uint32_t n_bytes, kin_time now); // bytes of some chunk came from it
void kin_swarm_got(kin_swarm *swarm, int source, uint32_t chunk, kin_time now);     // a whole chunk: checked and kept
void kin_swarm_lied(kin_swarm *swarm, int source, uint32_t chunk);                  // a whole chunk: wrong
void kin_swarm_spoiled(kin_swarm *swarm, int source, uint32_t chunk);               // wrong, but not all of it came from there
void kin_swarm_lacks(kin_swarm *swarm, int source, uint32_t chunk);                 // it has not that chunk
void kin_swarm_lost(kin_swarm *swarm, int source);                                  // it cannot be asked any more

// ---- actions

typedef enum kin_swarm_verb {
    KIN_SWARM_WAIT,    // nothing to do now
    KIN_SWARM_ASK,     // source, chunk
    KIN_SWARM_GIVE_UP, // reason; every time, until something comes
} kin_swarm_verb;

typedef struct kin_swarm_action {
    kin_swarm_verb verb;
    int source;
    uint32_t chunk;
    char reason[160];
} kin_swarm_action;

// One action; call it until it says WAIT or GIVE_UP.
kin_swarm_action kin_swarm_next(kin_swarm *swarm, kin_time now);

// ---- inspection

// Whether this chunk was asked from this source, and is to come from there: if not, other bytes of it are not waited for.
bool kin_swarm_is_asked(const kin_swarm *swarm, int source, uint32_t chunk);
bool kin_swarm_complete(const kin_swarm *swarm); // all that was wanted is there

typedef struct kin_swarm_stats {
    uint32_t n_wanted, n_done; // chunks
    uint32_t n_in_flight;
    uint32_t n_twice;     // chunks that came though they were there
    uint64_t bytes_head;  // that came from the head
    uint64_t bytes_peers; // from others
    uint64_t rate;        // bytes per second over the last seconds; 0: unknown, as in the first two
    uint64_t left_ns;     // until all is there, at this rate; UINT64_MAX: unknown
} kin_swarm_stats;

kin_swarm_stats kin_swarm_get_stats(const kin_swarm *swarm, kin_time now);
