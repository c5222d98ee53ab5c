// The sums of a group whose members are threads of one process: all wait for each other, and each adds up all parts in the order
// of ranks.
//
// Owner: the test. Thread: each member's its own rank's.
#pragma once

#include "model/graph.h"
#include "model/share.h"

typedef struct kin_memory_sum kin_memory_sum;

int kin_memory_sum_open(kin_memory_sum **out, int n_ranks, kin_err *err);
void kin_memory_sum_close(kin_memory_sum *sum); // NULL is allowed

// Valid as long as the sums.
kin_sum kin_memory_sum_of(kin_memory_sum *sum, int rank);

// Every sum fails from now on, also those that wait.
void kin_memory_sum_break(kin_memory_sum *sum);

// A hash of all bits that the rank has got, and how many sums it was.
uint64_t kin_memory_sum_bits(kin_memory_sum *sum, int rank, uint64_t *n_sums);
