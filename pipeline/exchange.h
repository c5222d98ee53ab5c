// The sums of a group's devices over the network (all-reduce). Each device has a connection to each other one. The computing
// thread reads and writes them itself: each sum waits for the slowest message, and no other thread has to wake up for it.
//
//   graph ─► kin_sum ─► SUM frames (pure/proto/message.h) ─► TLS ─► sockets of the others: all get the sum, with equal bits
//
// Variants (kin_proto_allreduce): mesh, in one step, each device adds in the order of the ranks; star, the same bits in two steps
// through the last device; tree and ring add in another order. With f16 or q8 on the wire every device's part is rounded,
// including the own one.
//
// A sum first polls for its messages for SPIN_NS, then sleeps. Every message carries its step, round and sum number, so that
// devices that got out of step notice it. When a connection breaks, the epoch ends or the user stops the program, the sum fails,
// and so do all further ones of the epoch.
//
// Owner: a driver (cluster/cluster.h, cluster/join.h). Threads: enter, give and is_complete belong to the loop's; use and the
// sums to the computing one.
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
    uint32_t epoch;    // 0: no group
    int rank, n_ranks; // n_ranks 0: no group
    kin_proto_allreduce allreduce;
    kin_activation_type type; // format of values on the wire
} kin_exchange_place;

// Called once per epoch when a sum has failed; no further one of the epoch will succeed. In the computing thread.
typedef void (*kin_exchange_broken)(void *user, uint32_t epoch, const char *reason);

typedef struct kin_exchange_options {
    kin_exchange_broken broken; // NULL: not reported
    void *user;
    const atomic_bool *stop; // once true, sums fail, including one that waits, without a report; NULL: never
    atomic_uint *n_signs;    // incremented while a sum waits for others; NULL: not wanted
} kin_exchange_options;

int kin_exchange_open(kin_exchange **out, const kin_exchange_options *options, kin_err *err);
void kin_exchange_close(kin_exchange *exchange); // NULL is allowed. Call it when both threads are done

// ---- the loop's thread

// Enters a place. Sums of another epoch fail, including one that waits.
void kin_exchange_enter(kin_exchange *exchange, const kin_exchange_place *place);

// Takes over the connection to the device of that rank, as kin_link_release returned it; replaces an earlier one. Once the
// computing thread has taken the connections, further ones are closed.
void kin_exchange_give(kin_exchange *exchange, uint32_t epoch, int rank, int fd, kin_tls *tls);

// True if there are connections to all devices of the group, or if there is no group.
bool kin_exchange_is_complete(kin_exchange *exchange);

// ---- the computing thread

// Steps of this epoch follow.
void kin_exchange_use(kin_exchange *exchange, uint32_t epoch);
// True if a sum of the epoch in use has failed; this explains a failed step.
bool kin_exchange_is_broken(const kin_exchange *exchange);

// For a shard; valid as long as the exchange.
kin_sum kin_exchange_sum(kin_exchange *exchange);

// Totals over all sums: their number, and the time from the own part to the sum.
typedef struct kin_exchange_stats {
    uint64_t n_sums, sum_ns;
} kin_exchange_stats;

kin_exchange_stats kin_exchange_get_stats(const kin_exchange *exchange);
