// Weights that are still on their way to the model's files: asked by whoever is about to read them.
//
// Behind it is somebody who brings them (fetch/lazy_load.h). Bytes that were not waited for must not be looked at: a hole reads
// as zeros. Without an arrival all of a model is in its files. Whoever waits in a thread of its own must be able to end it:
// leave.
//
// Threads: any, several at once.
#pragma once

#include <stdint.h>

#include "base/err.h"

typedef struct kin_arrival {
    // Waits until these bytes of a file are in it, and checked. Fails when they will not come any more.
    int (*wait)(void *user, int i_file, uint64_t offset, uint64_t bytes, kin_err *err);
    // Nobody wants to wait any more: all waits fail soon, those under way too.
    void (*leave)(void *user);
    void *user;
} kin_arrival;
