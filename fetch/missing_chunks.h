// The scan for missing chunks: determines the chunks of a model that a device with these windows, and this share of their layers,
// needs, as far as the headers that are present tell.
//
// If headers are missing, the result is at least the chunks of the headers; a second scan finds the rest. Otherwise it is the
// chunks of the headers and of each window, in the order of need. Chunks that are present are listed, too.
//
// Reads files and may wait for the disk. Thread: any; the result is the caller's plain data.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/share.h"
#include "model/store.h"
#include "pure/plan/window.h"

typedef struct kin_missing_chunks {
    bool is_whole; // all headers are present
    uint32_t *chunks;
    size_t n;
    // Group 0 is the headers (and data that all windows use), followed by one group per window; group g is chunks [ends[g - 1],
    // ends[g]).
    int n_groups;
    size_t ends[1 + KIN_MAX_WINDOWS];
    bool *is_private; // from kin_ranges_private // [n_chunks]; NULL: headers are missing
} kin_missing_chunks;

// Fails if a file has no valid GGUF header, if the model lacks these layers or cannot be split into this share, or if a file
// cannot be read. The share may be a peer's.
int kin_missing_chunks_make(kin_missing_chunks *scan, kin_store *store, const kin_windows *windows, const kin_share *share,
                            kin_err *err);

void kin_missing_chunks_fini(kin_missing_chunks *scan); // a zeroed struct is allowed
