// Streaming: weights that are not in memory, read from the disk just before they are needed, in a fixed cyclic order.
//
// A pass goes over all blocks once, in their order, in one or several runs; the blocks of the output layer, the last ones, take
// part only in passes that want it. A run may begin anywhere, but reading ahead goes in order. For every block the streamer
// decides ahead of time: it is resident (its file mapping is used; the first time its pages are fetched in the background) or it
// is streamed (its bytes come by O_DIRECT reads of several MB, some in flight at once, into a ring buffer a little larger than
// what one computation needs). Reading runs ahead of computing as far as the ring has room, across the end of a pass too.
//
//   begin ─► for each block in order: acquire ─► compute ─► release
//                         ▲                        │
//           I/O threads ──┘ filled            room ┘
//
// Owner: one kin_weights. Threads: begin, acquire and release from the computing thread; set_budget from any; the I/O
// threads are ours. `mutex` guards the state, and is never held during a read; `budget_mutex`,
// taken before it, is for one set_budget at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/busy.h"

#define KIN_STREAM_ALIGN 4096 // of reads: what O_DIRECT wants
#define KIN_STREAM_MAX_EXTENTS 32

typedef struct kin_stream kin_stream;

// A range of a file that a block is made of, and where it is mapped.
typedef struct kin_extent {
    int i_file;      // index into kin_stream_options.fds
    uint64_t offset; // any; reads are widened to what O_DIRECT wants
    uint64_t bytes;
    const uint8_t *map;
} kin_extent;

typedef struct kin_stream_block {
    kin_extent extents[KIN_STREAM_MAX_EXTENTS];
    int n_extents; // 0: the block is always in memory
    int i_group;   // blocks of one group are needed at the same time
    int i_part;    // with a window: blocks of one part count as one of it
    bool stays;    // with a window: resident
} kin_stream_block;

typedef enum kin_stream_mode {
    KIN_STREAM_RESIDENT, // resident set and streaming: ours
    KIN_STREAM_MMAP,     // leave it to the OS's paging, as llama.cpp does
    KIN_STREAM_WILLNEED, // the same, with the next blocks announced ahead (the prefetching of prima.cpp)
} kin_stream_mode;

typedef struct kin_stream_options {
    const int *fds; // [n_files] open files, borrowed until close; read past the page cache where that works. -1: not used
    int n_files;
    const kin_stream_block *blocks; // [n_blocks] in cyclic order; copied
    size_t n_blocks;
    size_t n_layer_blocks; // the first ones; the rest is the output layer's
    uint64_t budget;       // bytes for resident blocks and the ring together
    int window;            // not 0: the ring has so many parts, and resident are the blocks that stay, whatever the budget
    kin_stream_mode mode;
} kin_stream_options;

// Whether a stream of this process has read within the last second: who reads or writes the same disk for later gives way. Any
// thread.
bool kin_stream_is_reading(void);

// Fails if the budget cannot even hold the ring; the sentence says how much that is.
int kin_stream_open(kin_stream **out, const kin_stream_options *options, kin_err *err);
void kin_stream_close(kin_stream *stream);

// What open says of the budget. The files are not looked at.
int kin_stream_check_budget(const kin_stream_options *options, kin_err *err);

// The least budget: the ring alone.
uint64_t kin_stream_min_budget(const kin_stream_block *blocks, size_t n_blocks);

// Begins a run over blocks from `block` on. What was read ahead of others is dropped, so runs should follow each other in cyclic
// order. with_output: whether this pass will go on to the output's blocks. False: everything is in its mapping (or the mode
// leaves it to the OS); use that, and do not acquire in this run.
bool kin_stream_begin(kin_stream *stream, size_t block, bool with_output);

// Waits until the next block (its number must be `block`) is there. ptrs // [n_extents]: where the bytes of each extent are,
// until release. Returns how many extents the block has, or KIN_FAIL when the disk fails.
int kin_stream_acquire(kin_stream *stream, size_t block, const uint8_t **ptrs, kin_err *err);

// The oldest `n` acquired blocks are not needed any more.
void kin_stream_release(kin_stream *stream, size_t n);

// Changes the budget while running: blocks leave memory at once, or come back as the passes go on. Returns the resident bytes.
uint64_t kin_stream_set_budget(kin_stream *stream, uint64_t budget);

// Whether any block can be streamed at all.
bool kin_stream_can_stream(const kin_stream *stream);

// Brings mapped pages into memory, several ranges at once, and waits. Only `map` and `bytes` of the extents count.
void kin_stream_fetch(kin_stream *stream, const kin_extent *extents, size_t n);

typedef struct kin_stream_stats {
    uint64_t resident_bytes; // chosen to be resident
    uint64_t ring_bytes;
    uint64_t read_bytes;  // by streaming, since open
    uint64_t fetch_bytes; // of resident blocks, fetched into memory, since open
    uint64_t busy_ns;     // time with at least one read in flight
    uint64_t wait_ns;     // time that acquire waited
    uint64_t n_passes;    // runs from block 0 on
    bool direct;          // O_DIRECT works on these files
    uint64_t state_bytes; // of the stream itself: chunks, and when it read and waited. It takes them as it is used
} kin_stream_stats;

kin_stream_stats kin_stream_get_stats(kin_stream *stream);

// When reads were in flight, or acquire waited for them: since the last time or the last KIN_BUSY_KEPT intervals, the oldest
// first // [n_max]. Returns how many. Any thread.
typedef enum kin_stream_record { KIN_STREAM_READS, KIN_STREAM_STALLS } kin_stream_record;
size_t kin_stream_take_intervals(kin_stream *stream, kin_stream_record record, kin_interval *out, size_t n_max);
