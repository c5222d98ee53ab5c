// Dealing pieces of a layer to the devices of a group.
//
// Pure: no I/O, no clock, no threads.
#pragma once

// n pieces in proportion to weights // [n_ranks] -> counts // [n_ranks]: one for each rank, the others one by one to the rank
// that is furthest behind its share; of equal ones the first. n >= n_ranks; weights are above 0.
void kin_deal(int n, const double *weights, int n_ranks, int *counts);
