// The sums of a group's devices over the network. Each device has a connection to each other one; the computing thread itself
// reads and writes them, because each sum waits for the slowest message: no other thread has to wake up for it.
//
//   graph ─► kin_sum ─► SUM frames (pure/proto/message.h) ─► TLS ─► sockets of the others          all have the sum, and equal
//   bits
//
// How parts meet (kin_proto_allreduce): mesh, in one step, each adding in the order of the ranks; star, the same bits in two
// steps by way of the last device; tree and ring add in another order. With f16 or q8 on the wire each part is rounded, also
// the own one.
//
// A sum waits for its messages by looking for SPIN_NS, then by sleeping. Every message says to which step, round and sum it
// belongs, so devices that have lost each other's place notice. When a connection breaks, the epoch ends or the user stops the
// program, sums fail, and all further ones of the epoch.
//
// Owner: a driver (cluster/cluster.h, cluster/join.h). Threads: enter, give and is_complete are the loop's; use and the sums are
// the computing thread's.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/graph.h"
#include "model/share.h"
#include "pure/proto/message.h"
#include "sys/tls.h"

typedef struct kin_exchange kin_exchange;

// This device's place in a group.
typedef struct kin_exchange_place {
    uint32_t epoch;    // 0: in no group
    int rank, n_ranks; // n_ranks 0: in no group
    kin_proto_allreduce allreduce;
    kin_activation_type type; // of values on the wire
} kin_exchange_place;

// A sum failed and will not succeed in this epoch; once for each. In the computing thread.
typedef void (*kin_exchange_broken)(void *user, uint32_t epoch, const char *reason);

typedef struct kin_exchange_options {
    kin_exchange_broken broken; // NULL: nobody is told
    void *user;
    const atomic_bool *stop; // once true, sums fail, also one that waits, and nobody is told; NULL: never
    atomic_uint *n_signs;    // counts on while a sum waits for others; NULL: not asked for
} kin_exchange_options;

int kin_exchange_open(kin_exchange **out, const kin_exchange_options *options, kin_err *err);
void kin_exchange_close(kin_exchange *exchange); // NULL is allowed. When both threads are done

// ---- the loop's thread

// From now on this is the place. Sums of another epoch fail, also one that waits.
void kin_exchange_enter(kin_exchange *exchange, const kin_exchange_place *place);

// The connection to the device of that rank, which kin_link_take gave: it is the exchange's from now on, in the place of one that
// was given before. Once steps have come it is closed.
void kin_exchange_give(kin_exchange *exchange, uint32_t epoch, int rank, int fd, kin_tls *tls);

// Whether there are connections to all; in no group there are.
bool kin_exchange_is_complete(kin_exchange *exchange);

// ---- the computing thread

// Steps of that epoch come now.
void kin_exchange_use(kin_exchange *exchange, uint32_t epoch);
// Whether a sum of the epoch in use has failed: then a step that failed has done so because of it.
bool kin_exchange_is_broken(const kin_exchange *exchange);

// For a shard; valid as long as the exchange.
kin_sum kin_exchange_sum(kin_exchange *exchange);

// Of all sums so far: how many, and the time from the own part to the sum.
typedef struct kin_exchange_stats {
    uint64_t n_sums, sum_ns;
} kin_exchange_stats;

kin_exchange_stats kin_exchange_get_stats(const kin_exchange *exchange);
