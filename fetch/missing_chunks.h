// The scan for missing chunks: which chunks of a model a device with these windows, and this share of their layers, needs, as far
// as the headers that it has tell.
//
// Without all headers: the chunks that the headers take at least; with them a second scan finds the rest. With them: the chunks
// of the headers and of each window, in the order of need. Chunks that are there already are listed, too.
//
// Reads files and may wait for the disk. Thread: any; the result is plain data of the caller.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/share.h"
#include "model/store.h"
#include "pure/plan/window.h"

typedef struct kin_missing_chunks {
    bool is_whole; // all headers are there
    uint32_t *chunks;
    size_t n;
    // Group 0 is the headers (and what all windows use), then one for each window; group g is chunks [ends[g - 1], ends[g]).
    int n_groups;
    size_t ends[1 + KIN_MAX_WINDOWS];
    bool *is_private; // of kin_ranges_private // [n_chunks]; NULL: not whole
} kin_missing_chunks;

// Fails if a header is none, if the model has not these layers or not such a share of them, or if a file cannot be read. The
// share may be a peer's.
int kin_missing_chunks_make(kin_missing_chunks *survey, kin_store *store, const kin_windows *windows, const kin_share *share,
                            kin_err *err);

void kin_missing_chunks_fini(kin_missing_chunks *survey); // zeroed is allowed
