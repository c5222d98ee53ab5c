// Deals the pieces of a layer to the devices of a group.
//
// Pure: no I/O, no clock, no threads.
#pragma once

// Deals n pieces in proportion to weights // [n_ranks] into counts // [n_ranks]. Each rank gets one piece; each further piece
// goes to the rank that is furthest below its share, the first of equal ones. n >= n_ranks; weights are positive.
void kin_deal(int n, const double *weights, int n_ranks, int *counts);
