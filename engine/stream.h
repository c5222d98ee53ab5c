// Streaming: reads weights that are not in memory from the disk just before they are needed, in a fixed cyclic order.
//
// A pass visits all blocks once, in order, in one or several runs; the blocks of the output layer, which come last, take part
// only in passes that need them. A run may begin anywhere, but reading ahead goes in order. The streamer decides for every block
// in advance: a resident block is used in its file mapping (its pages are fetched in the background the first time); a streamed
// block is read with O_DIRECT, several MB per request and several requests in flight, into a ring buffer a little larger than one
// computation needs. Reading runs ahead of computing as far as the ring has room, also across the end of a pass.
//
//   begin ─► for each block in order: acquire ─► compute ─► release
//                         ▲                        │
//           I/O threads ──┘ filled            room ┘
//
// Owner: one kin_weights. Threads: begin, acquire and release from the computing thread; set_budget from any; the I/O threads
// belong to the streamer. `mutex` guards the state and is never held during a read; `budget_mutex`, taken before it, serialises
// set_budget.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/busy.h"

#define KIN_STREAM_ALIGN 4096 // alignment of reads, as O_DIRECT requires
#define KIN_STREAM_MAX_EXTENTS 32

typedef struct kin_stream kin_stream;

// A part of a block: a range of a file, and its mapping.
typedef struct kin_extent {
    int i_file;      // index into kin_stream_options.fds
    uint64_t offset; // any; reads are widened to the alignment of O_DIRECT
    uint64_t bytes;
    const uint8_t *map;
} kin_extent;

typedef struct kin_stream_block {
    kin_extent extents[KIN_STREAM_MAX_EXTENTS];
    int n_extents; // 0: the block is always in memory
    int i_window;  // for KIN_STREAM_WILLNEED: blocks of one window are announced together
    int i_group;   // blocks of one group are needed at the same time
    int i_part;    // with a window: blocks of one part occupy one slot of it
    bool stays;    // with a window: the block is resident
} kin_stream_block;

typedef enum kin_stream_mode {
    KIN_STREAM_RESIDENT, // resident set and streaming: kin's method
    KIN_STREAM_MMAP,     // leave it to the OS's paging, as llama.cpp does
    KIN_STREAM_WILLNEED, // the same, with the whole next window announced when one has been computed: prima.cpp's prefetching
} kin_stream_mode;

typedef struct kin_stream_options {
    const int *fds; // [n_files] open files, borrowed until close; read past the page cache if possible. -1: unused
    int n_files;
    const kin_stream_block *blocks; // [n_blocks] in cyclic order; copied
    size_t n_blocks;
    size_t n_layer_blocks; // the first ones; the rest belong to the output layer
    uint64_t budget;       // bytes for resident blocks and the ring together
    uint64_t beside;       // bytes that experts have beside it
    bool keeps_output;     // the output's blocks leave memory last
    bool reads_experts;    // kin_stream_read will be called: more reads are in flight
    int window;            // not 0: the ring has this many parts, and the blocks with `stays` are resident, whatever the budget
    kin_stream_mode mode;
} kin_stream_options;

// True if a stream of this process has read within the last second: background work on the same disk should then give way. Any
// thread.
bool kin_stream_is_reading(void);

// Fails if the budget cannot even hold the ring; the error says how much that is.
int kin_stream_open(kin_stream **out, const kin_stream_options *options, kin_err *err);
void kin_stream_close(kin_stream *stream);

// Checks the budget as kin_stream_open does, without looking at the files.
int kin_stream_check_budget(const kin_stream_options *options, kin_err *err);

// Returns the smallest budget: the ring alone.
uint64_t kin_stream_min_budget(const kin_stream_block *blocks, size_t n_blocks);

// Begins a run from `block` on. Blocks that were read ahead but are not next are dropped, so runs should follow each other in
// cyclic order. with_output: this pass will go on to the output's blocks. Returns false if every block is in its mapping (or the
// mode leaves it to the OS): use the mappings, and do not acquire in this run.
bool kin_stream_begin(kin_stream *stream, size_t block, bool with_output);

// Waits until the next block (its number must be `block`) is in memory. ptrs // [n_extents]: the address of each extent's bytes,
// valid until release. Returns the number of extents of the block, or KIN_FAIL if the disk fails.
int kin_stream_acquire(kin_stream *stream, size_t block, const uint8_t **ptrs, kin_err *err);

// Releases the oldest `n` acquired blocks.
void kin_stream_release(kin_stream *stream, size_t n);

// Changes the budget while running: blocks leave memory at once, and come back in later passes. Returns the resident bytes.
uint64_t kin_stream_set_budget(kin_stream *stream, uint64_t budget);

// True if all of the output's blocks are in memory: their mappings can be used at any time, without begin. The computing thread.
bool kin_stream_has_output(kin_stream *stream);

// True if any block can be streamed.
bool kin_stream_can_stream(const kin_stream *stream);

// Brings mapped pages into memory, several ranges at once, and waits. Uses only `map` and `bytes` of the extents.
void kin_stream_fetch(kin_stream *stream, const kin_extent *extents, size_t n);

// Ranges of files that are read into the caller's memory together. The caller keeps the ticket until it is done.
enum { KIN_STREAM_MAX_RANGES = 3 };
typedef struct kin_stream_ticket kin_stream_ticket;
typedef struct kin_stream_range {
    int i_file;
    uint64_t offset, bytes;
    uint8_t *to; // for the byte at `offset` rounded down to KIN_STREAM_ALIGN; with room up to the rounded end
} kin_stream_range;
struct kin_stream_ticket {
    kin_stream_range ranges[KIN_STREAM_MAX_RANGES];
    int n_ranges;
    // Called once all are read, by the thread that read the last one, with the streamer's mutex held; `failed` is set. May be
    // NULL.
    void (*done)(kin_stream_ticket *ticket);
    void *user;
    int n_open, n_begun; // reads that are not finished, and that have begun; the streamer's
    int failed;          // errno of a read, or 0
};

// Reads all tickets' ranges, the first ticket first and before everything that is read ahead, and does not wait.
void kin_stream_read(kin_stream *stream, kin_stream_ticket *const *tickets, size_t n);

// Does the same while next to nothing else is read, the first ticket before those of earlier calls.
void kin_stream_read_idly(kin_stream *stream, kin_stream_ticket *const *tickets, size_t n);

// Drops a ticket of kin_stream_read_idly, without a call of `done`. Returns false, and does nothing, if some of it has been read.
bool kin_stream_cancel(kin_stream *stream, kin_stream_ticket *ticket);

// Reads a ticket of kin_stream_read_idly as kin_stream_read does.
void kin_stream_hurry(kin_stream *stream, const kin_stream_ticket *ticket);

typedef struct kin_stream_stats {
    uint64_t resident_bytes; // selected as resident
    uint64_t ring_bytes;
    uint64_t read_bytes;  // streamed since open
    uint64_t fetch_bytes; // resident blocks fetched into memory, since open
    uint64_t busy_ns;     // time with at least one read in flight
    uint64_t wait_ns;     // time spent waiting in acquire
    uint64_t n_passes;    // runs that began at block 0
    bool direct;          // O_DIRECT works on these files
    uint64_t state_bytes; // of the streamer itself: chunks and interval records; allocated as they are used
} kin_stream_stats;

kin_stream_stats kin_stream_get_stats(kin_stream *stream);

// Returns the number of intervals when reads were in flight, or acquire waited for them, since the last call (at most the last
// KIN_BUSY_KEPT), oldest first: out // [n_max]. Any thread.
typedef enum kin_stream_record { KIN_STREAM_READS, KIN_STREAM_STALLS } kin_stream_record;
size_t kin_stream_pop_intervals(kin_stream *stream, kin_stream_record record, kin_interval *out, size_t n_max);
