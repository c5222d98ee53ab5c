// Reads server-sent events (HTML standard, 9.2.6): the data of each event, from bytes that may be split anywhere.
//
// Drops event names, ids and retry times, which are not used here. No socket, no clock. Owner: the struct's holder;
// zero-initialised, freed by fini.
#pragma once

#include "pure/text/text_buffer.h"

enum { KIN_SSE_MAX = 4 << 20 }; // bytes of a line, or of an event's data

typedef struct kin_sse_reader {
    kin_text_buffer line, data;
    bool has_data, after_cr, has_begun;
} kin_sse_reader;

// Calls `take` for the data of each complete event. `take` may return KIN_FAIL with an error, which stops. Also fails on a line
// or an event longer than KIN_SSE_MAX. After a failure only fini may follow.
int kin_sse_reader_feed(kin_sse_reader *r, const char *bytes, size_t n, int (*handle)(void *user, kin_str data, kin_err *err),
                        void *user, kin_err *err);
void kin_sse_reader_fini(kin_sse_reader *r);
