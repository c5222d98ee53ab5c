// The sums of a group whose members are threads of one process: all wait for each other, and each adds up all parts in rank
// order.
//
// Owner: the test. Thread: each rank is used by its member's thread.
#pragma once

#include "model/graph.h"
#include "model/share.h"

typedef struct kin_memory_sum kin_memory_sum;

int kin_memory_sum_open(kin_memory_sum **out, int n_ranks, kin_err *err);
void kin_memory_sum_close(kin_memory_sum *sum); // NULL is allowed

// The result is valid as long as `sum`.
kin_sum kin_memory_sum_of(kin_memory_sum *sum, int rank);

// Makes all further sums fail, and those that wait.
void kin_memory_sum_break(kin_memory_sum *sum);

// Returns a hash of all bits that the rank received; *n_sums: the number of sums.
uint64_t kin_memory_sum_bits(kin_memory_sum *sum, int rank, uint64_t *n_sums);
