// An arrival: weights that are still being written to the model's files, as the engine sees it. Code that is about to read
// weights waits for their bytes first.
//
// fetch/lazy_load.h implements it. Bytes that were not waited for must not be read: a hole of a sparse file reads as zeros.
// Without an arrival all of a model is in its files. A thread that waits must be stoppable: leave.
//
// Threads: any, several at once.
#pragma once

#include <stdint.h>

#include "base/err.h"

typedef struct kin_arrival {
    // Waits until these bytes of a file are in it, and checked. Fails when they will not come any more.
    int (*wait)(void *user, int i_file, uint64_t offset, uint64_t bytes, kin_err *err);
    // Ends waiting: all waits fail soon, those under way too.
    void (*leave)(void *user);
    void *user;
} kin_arrival;
