// The cache of experts: if not all experts fit into memory, those that are in memory are blocks of memory that kin owns.
//
// Each expert is read from its file as a whole, past the page cache, into a slot. pure/plan/expert_cache.h decides which ones
// stay. A layer's nodes ask for experts while they compute (kin_expert_source):
//
//   choose       after the router: all missing experts are read at once, into free slots or those of experts that leave
//   find         before a product: waits until that expert is there. Those that are there already are computed first
//   choose_next  after a group, if there is no room for all experts of a prompt: a group has half of the room, and the next ones
//                are read into the other half while it is computed. So each expert is read once, and the slots change roles
//   expect       after choose: the next layer will likely need these experts (pure/plan/expert_guess.h), so they are read too,
//                after all that are missing, while this layer and the next attention are computed
//
// With counts of an earlier run a thread reads the most used experts until the budget is full, while the disk has nothing else to
// read (kin_experts_start_filling).
//
// A slot is as large as the largest layer's expert; its pages beyond what was read into it take no memory.
//
// Owner: one kin_weights. Threads: those of kin_expert_source from threads that compute a graph; set_budget from any; the rest
// from the computing thread between two runs. `mutex` guards the table of slots; places and states of slots are atomic, because
// find must hold nothing: its thread may be interrupted (sys/team/interrupt.h).
#pragma once

#include "engine/stream.h"
#include "model/graph.h"

typedef struct kin_experts kin_experts;

// Locations of a layer's experts. Expert i has the bytes [offset + i * stride, offset + i * stride + bytes) of each part.
typedef struct kin_expert_part {
    int i_file; // of the stream
    uint64_t offset, stride, bytes;
} kin_expert_part;

typedef struct kin_expert_layer {
    kin_expert_part parts[KIN_STREAM_MAX_RANGES];
    int n_parts; // 0: the layer has no experts, or they are elsewhere
    struct {
        int i_part;
        uint64_t at; // bytes from the begin of the part
    } matrices[KIN_EXPERT_MATRICES];
} kin_expert_layer;

// layers // [n_layer], copied. The stream is borrowed; close it first, so that no reads are in flight.
// n_used: experts of a token.
int kin_experts_open(kin_experts **out, kin_stream *stream, const kin_expert_layer *layers, int n_layer, int n_expert, int n_used,
                     uint64_t budget, kin_err *err);
void kin_experts_close(kin_experts *experts);

// For graphs; lives as long as the cache.
const kin_expert_source *kin_experts_source(const kin_experts *experts);

// Returns the memory that an expert takes, of the layer where it is largest.
uint64_t kin_experts_largest(const kin_expert_layer *layers, int n_layer);

// The counts of kin_expert_cache_set_counts, of earlier runs // [n_layer * n_expert]; before the first run. Layers without
// experts in the cache are left as they are. get_counts: any thread.
void kin_experts_set_counts(kin_experts *experts, const float *counts);
void kin_experts_get_counts(kin_experts *experts, float *counts);

// Starts reading the most used experts in the background, once. If no thread can be started, experts are read when they are
// needed. Stop it before the stream is closed; without a start that does nothing.
void kin_experts_start_filling(kin_experts *experts);
void kin_experts_stop_filling(kin_experts *experts);

void kin_experts_set_budget(kin_experts *experts, uint64_t budget);

// Fails if an expert that was found since the last call could not be read: what was computed since then is wrong.
int kin_experts_check(kin_experts *experts, kin_err *err);

// Reads a layer's experts again when they are needed next, because their bytes in the file have changed.
void kin_experts_forget(kin_experts *experts, int il);

typedef struct kin_experts_stats {
    uint64_t budget, held_bytes;
    uint64_t n_hits, n_misses; // experts that a layer's step needed, and that were in memory or not
    uint64_t n_filled;         // experts that earlier runs used, read before they were needed
    uint64_t n_guessed;        // experts that were read because their layer would likely need them
    uint64_t n_foreseen;       // those of them that it did need
    uint64_t n_late;           // those of these that had not been read completely by then, so that they are misses, too
    uint64_t read_bytes;
    uint64_t wait_ns; // from when a thread began to wait for an expert until all of its layer were there
} kin_experts_stats;

kin_experts_stats kin_experts_get_stats(kin_experts *experts); // any thread
