// How often a ring may be lost before its texts end: a device that leaves by chance is none of their business, one that fails
// again and again before anything comes of it is.
//
// Owner and thread: the caller's.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { KIN_LOSSES_MOST = 5 }; // in a row, without progress

typedef struct kin_losses {
    int n;
    uint64_t progress; // when the ring was lost last
} kin_losses;

// The ring is lost, with `progress` made since the beginning: tokens that were written, texts that were done. False: it is not
// worth another ring. What comes afterwards may be lost as often again.
bool kin_losses_add(kin_losses *losses, uint64_t progress);
