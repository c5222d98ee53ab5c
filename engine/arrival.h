// The engine's view of weights that are still being written to the model's files. Code that is about to read weights first waits
// for their bytes.
//
// fetch/lazy_load.h implements it. Do not read bytes that were not waited for: a hole in a sparse file reads as zeros. Without an
// arrival the files contain the whole model. `leave` stops threads that wait.
//
// Threads: any, several at once.
#pragma once

#include <stdint.h>

#include "base/err.h"

typedef struct kin_arrival {
    // Waits until these bytes of a file are written and checked. Fails if they will not arrive.
    int (*wait)(void *user, int i_file, uint64_t offset, uint64_t bytes, kin_err *err);
    // Makes all waits fail soon, including those already blocked.
    void (*leave)(void *user);
    void *user;
} kin_arrival;
