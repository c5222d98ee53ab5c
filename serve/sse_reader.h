// Server-sent events, as they come: the data of each one, from bytes that are cut anywhere (HTML standard, 9.2.6).
//
// Names, ids and retry times of events are not used here, and are dropped. No socket, no clock.
// Owner: whoever holds it; zero-initialised, freed by fini.
#pragma once

#include "pure/text/text_buffer.h"

enum { KIN_SSE_MAX = 4 << 20 }; // bytes of a line, or of an event's data

typedef struct kin_sse_reader {
    kin_text_buffer line, data;
    bool has_data, after_cr, has_begun;
} kin_sse_reader;

// Calls `take` for the data of each event that is whole; it may return KIN_FAIL with an error, which ends the feeding.
// Fails too on a line or an event beyond KIN_SSE_MAX. After a failure only fini may follow.
int kin_sse_reader_feed(kin_sse_reader *r, const char *bytes, size_t n, int (*take)(void *user, kin_str data, kin_err *err),
                        void *user, kin_err *err);
void kin_sse_reader_fini(kin_sse_reader *r);
