// A timeline: the members' activity during the first tokens after a prompt, on the head's clock.
//
// Members are rows, in the order in which they are named. Events come from the head itself (kin_timeline_own) and from devices
// (EVENTS, with the offset of the device's clock). Marks bound it: the first one is the end of the prompt, each further one the
// end of a token; after n_tokens it is complete, and events far outside are dropped.
//
// timeline_file.h writes it to a file: a picture (one self-contained SVG file, readable on light and dark backgrounds: per member
// a lane for computing, waiting and sending and one for the disk, an axis in milliseconds, the ends of tokens as thin lines), or
// trace events for Perfetto or chrome://tracing (a process per member, a thread per kind of event).
//
// Owner: the command that wants it. Thread: any for rows, events and marks; the owner's for the rest.
#pragma once

#include <stdbool.h>

#include "base/clock.h"
#include "observe/trace.h"
#include "pure/plan/window.h"
#include "pure/proto/message.h"

enum {
    KIN_TIMELINE_ROWS = 40,
    KIN_TIMELINE_NAME = 64,   // bytes with the NUL
    KIN_TIMELINE_LAYERS = 96, // bytes of a row's layers with the NUL
    KIN_TIMELINE_TOKENS = 8,
    KIN_TIMELINE_BARS = 1 << 17,        // limit; later ones are dropped
    KIN_TIMELINE_MARGIN_NS = 100000000, // kept before the first mark and after the last, until clock offsets are known better
};

typedef struct kin_timeline kin_timeline;

int kin_timeline_open(kin_timeline **out, int n_tokens, kin_err *err); // at most KIN_TIMELINE_TOKENS
void kin_timeline_close(kin_timeline *timeline);                       // NULL is allowed, here and in all functions below

// Returns the trace of this machine's events. Call kin_timeline_add_own now and then, since the trace is bounded.
kin_trace *kin_timeline_own(kin_timeline *timeline);

// Returns the row of a member; a new one for a new name. -1: too many.
int kin_timeline_row(kin_timeline *timeline, const char *name);

// As above, for a member whose layers are known.
int kin_timeline_place(kin_timeline *timeline, const char *name, const kin_windows *windows);

// clock_ahead_ns: the device's clock minus the head's. The latest value applies to all of the row's events.
void kin_timeline_add(kin_timeline *timeline, int row, const kin_proto_event *events, int n, int64_t clock_ahead_ns);

// Moves the events of this machine's trace to this row.
void kin_timeline_add_own(kin_timeline *timeline, int row);

void kin_timeline_mark(kin_timeline *timeline, kin_time now);
bool kin_timeline_is_whole(kin_timeline *timeline);

// Ends it: events and marks added later, such as late events of devices, are dropped.
void kin_timeline_end(kin_timeline *timeline);

// ---- inspection, when no thread adds events, or after it ended

typedef struct kin_bar {
    int row;
    kin_proto_event event; // times on the head's clock
} kin_bar;

int kin_timeline_n_rows(const kin_timeline *timeline);
const char *kin_timeline_name(const kin_timeline *timeline, int row);
const char *kin_timeline_layers(const kin_timeline *timeline, int row); // "0-3, 8-11"; "none"; "": not known
int kin_timeline_n_bars(const kin_timeline *timeline);
kin_bar kin_timeline_bar(const kin_timeline *timeline, int i);
int kin_timeline_n_marks(const kin_timeline *timeline);
kin_time kin_timeline_mark_at(const kin_timeline *timeline, int i);
