// The scheduler's data: sequences, slots of the KV cache, flights. Shared by its modules, lowest first:
//
//   scheduler_slots        which generation has which slot, and room for more
//   scheduler_flights      requests in flight
//   scheduler_branches     drafted tokens in the KV cache: branches, and steps after the last token
//   scheduler_states       which beginnings of sequences are kept for others
//   scheduler_sequences    sequences that wait, run and end
//   scheduler_drafts       drafted tokens in steps, and their results
//   scheduler_checkpoints  states on disks
//   scheduler_pages        pages on disks
//   scheduler              steps
//
// Owner and thread: the scheduler's.
#pragma once

#include "base/clock.h"
#include "pipeline/generation.h"
#include "pipeline/steps.h"
#include "pure/plan/prefill.h"
#include "pure/plan/speculation.h"

enum { KIN_SCHEDULER_NO_SLOT = -1 };

// The positions at which a sequence is kept as a prefix for others: where it parts from another one, in memory or on the disks;
// at multiples of a gap, on disks only; near its prompt's end.
enum { KIN_SCHEDULER_PARTING, KIN_SCHEDULER_GAP, KIN_SCHEDULER_END, KIN_SCHEDULER_MARKS };

struct kin_generation {
    kin_generation_options o;
    kin_generation *next; // in the waiting list, oldest first
    uint64_t number;      // in order of submission
    int32_t *tokens;      // [cap], of which n are used: the prompt and the generated tokens
    int n, cap;
    int slot;           // KIN_SCHEDULER_NO_SLOT: waiting
    int n_sent, n_done; // n_sent: tokens that were put into steps; n_done: those that came back, so they are in the KV cache
    int n_steps;        // steps in flight that contain it
    int n_cached;       // tokens that were reused rather than computed
    int n_once;         // high-water mark of n_done; tokens below it that were lost are recomputed
    kin_draft draft;    // for the step that it is in; n = 0: no draft
    int16_t draft_slots[KIN_DRAFT_MAX]; // slot of each drafted token: the sequence's own, or that of a branch
    int n_steps_wanted;                 // steps it may be in at once, while it decodes alone
    struct {
        int32_t token;
        uint8_t kind, grade;
    } ahead[KIN_STEPS_IN_FLIGHT]; // [n_ahead] drafted tokens after its last one, each in a step in flight
    int n_ahead;
    int n_found;                    // blocks found on the disks; those beyond n_sent are being loaded
    int n_refused;                  // blocks before the last checkpoint that could not be loaded; 0: none
    bool recomputes;                // some layers' pages were not found: these layers are recomputed
    bool is_second;                 // it is recomputed after a wrong row, up to that row: nothing computed before is reused
    int n_to_drop, n_dropped;       // blocks whose pages must leave the disks before that; blocks for which requests were sent
    int marks[KIN_SCHEDULER_MARKS]; // positions at which it is kept as a prefix for others; 0: none
    bool cancelled, was_running;
};

// A sequence of the KV cache, of a running or an ended generation. "Slot" in the comments, to tell it from the generated
// sequence.
typedef struct kin_slot {
    kin_generation *owner;           // the running sequence; NULL: none
    const kin_generation *branch_of; // the sequence in flight whose draft this branch belongs to; NULL: not a branch
    int32_t *tokens;                 // [n] tokens of an ended sequence; n = 0 and no owner: the slot is free
    int n, tag;
    bool is_mark; // the beginning of a sequence, at a checkpoint
    struct {
        int kind;        // which of a sequence's marks it was
        uint64_t due;    // steps until its states are everywhere
        uint64_t flight; // the request that stores them; 0: none
        int n_tries;     // requests that have failed
        bool is_stored;  // they are on the disks
    } mark;
    int n_marked;  // tokens up to its last mark
    int n_kept;    // blocks that are stored on the disks, or whose request is in flight
    uint64_t used; // when it ended or was last reused, in steps
} kin_slot;

typedef struct kin_part {
    kin_generation *g; // NULL: the generation was cancelled, or its guess was dropped
    int n;             // tokens
    int first;         // the step's token that is its first one
    int draft_first;   // the step's token that is its first drafted one
    int row;           // row of logits: that of the last token, or of the first one if `all`
    bool all;          // every token's row is wanted; else only the last one's, if is_last
    bool is_last;      // it contains the sequence's last token so far
    bool is_ahead;     // it belongs to a step after the one with the sequence's last token
    bool is_prompt;    // a piece of a prompt or a history, not the one token that was sampled last
    int n_draft;       // drafted tokens of the sequence that are verified
    int draft_row;     // row of logits after the first drafted token
} kin_part;

typedef enum kin_flight_kind { KIN_FLIGHT_TOKENS, KIN_FLIGHT_LOAD, KIN_FLIGHT_KEEP, KIN_FLIGHT_STATES } kin_flight_kind;

typedef struct kin_flight {
    uint64_t number;
    kin_flight_kind kind; // LOAD: one part, its pages; KEEP (also drops): no part; STATES: no part, but a mark
    int mark;             // its slot
    kin_part parts[KIN_SCHEDULER_MAX_PARALLEL];
    int n_parts, n_tokens, n_out, n_prompt;
    int n_prompt_rows;         // part of n_out
    int n_draft;               // part of n_tokens
    bool hidden;               // the hidden states of all rows are wanted, no logits
    bool ends_prompts;         // prompts end here; their sequences decode from then on
    bool in_chain;             // of a sequence that is in several steps at once
    bool follows_prompts;      // was sent while pieces of prompts were in flight
    kin_prefill_beside beside; // what was decoding when it was sent
    float *logits;             // f32 [cap_out, n_vocab]; also holds hidden states
    int cap_out;
    kin_time sent;
} kin_flight;

struct kin_scheduler {
    kin_scheduler_options o;
    kin_head *head; // NULL: none yet, or it failed
    kin_kv_blocks *blocks;
    kin_slot slots[KIN_SCHEDULER_MAX_SEQUENCES];
    kin_generation *running[KIN_SCHEDULER_MAX_PARALLEL]; // oldest first
    int n_running;
    kin_generation *waiting;
    int n_waiting;
    uint64_t next_number, n_sequences;                   // n_sequences: sequences that have started
    uint8_t n_in_flight[KIN_SCHEDULER_MAX_PARALLEL + 1]; // by number of decoding sequences; 0: as many as the ring has members
    kin_flight flights[KIN_STEPS_IN_FLIGHT];             // cyclic
    int first_flight, n_flights;
    int n_page_flights;                // those for pages
    bool settles;                      // no step follows until all that can be stored is stored
    unsigned turn;                     // rotates whose prompt comes first in the next step; wraps around
    int32_t *tokens, *seq, *pos, *out; // [cap_step] of the step being built
    int cap_step;
    kin_time last_done;
    double prompt_alone_s; // a prompt token's time in steps without decoding sequences; 0: not known
    kin_prefill prefill;   // sizes pieces of prompts in steps with them
    kin_speculation speculation;
    struct {
        bool is_due;
        kin_page_key name;
        int n_blocks;
    } old; // a checkpoint that newer ones replace: its states are to leave the disks
    struct {
        int n_steps, n_tokens;
        double took_s;
    } chain; // of a sequence in several steps at once, since s->speculation was last updated
    kin_scheduler_stats stats;
};

// True if pages of the sequence are still to be loaded from disks.
static inline bool kin_scheduler_is_loading(const kin_generation *g) {
    return g->n_found * KIN_KV_CELLS > g->n_done;
}

static inline int kin_scheduler_min(int a, int b) {
    return a < b ? a : b;
}

// Returns the blocks that n tokens need.
static inline int kin_scheduler_blocks_of(int n_tokens) {
    return (n_tokens + KIN_KV_CELLS - 1) / KIN_KV_CELLS;
}

// Returns how many more blocks the sequence needs for n more tokens.
static inline int kin_scheduler_blocks_for(const kin_generation *g, int n) {
    return kin_scheduler_blocks_of(g->n_sent + n) - kin_scheduler_blocks_of(g->n_sent);
}

// Returns the tokens of n that fill blocks.
static inline int kin_scheduler_whole_blocks(int n) {
    return n > 0 ? n / KIN_KV_CELLS * KIN_KV_CELLS : 0;
}
