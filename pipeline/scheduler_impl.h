// Internals of kin_scheduler, shared by scheduler.c (sequences, KV cache, steps), scheduler_pages.c (pages on disks) and
// scheduler_drafts.c (drafted tokens in steps, and their results).
#pragma once

#include "base/clock.h"
#include "pipeline/scheduler.h"
#include "pipeline/steps.h"
#include "pure/plan/prefill.h"
#include "pure/plan/speculation.h"

// The positions at which a sequence is kept as a prefix for others: where it parts from another one, in memory or on the disks;
// at multiples of a gap, on disks only; near its prompt's end.
enum { KIN_SCHEDULER_PARTING, KIN_SCHEDULER_GAP, KIN_SCHEDULER_END, KIN_SCHEDULER_MARKS };

struct kin_generation {
    kin_generation_options o;
    kin_generation *next; // in the waiting list, oldest first
    uint64_t number;      // in order of submission
    int32_t *tokens;      // [cap], of which n are used: the prompt and the generated tokens
    int n, cap;
    int slot;           // NO_SLOT: waiting
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
    } ahead[KIN_STEPS_IN_FLIGHT]; // [n_ahead] drafted tokens behind its last one, each in a step in flight
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
    bool is_ahead;     // it belongs to a step behind the one with the sequence's last token
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

// ---- scheduler.c

// Applies the operation to the block table, and passes it to the head. Without a head it does nothing: the cache is empty then.
// The head has memory for as many operations as there are slots.
int kin_scheduler_change(kin_scheduler *s, kin_kv_op op, kin_err *err);

// Makes room for n_blocks blocks in the KV cache; evicts ended sequences if needed. False: no room.
bool kin_scheduler_make_room(kin_scheduler *s, int n_blocks);

// Makes room for up to n slots that share a sequence's blocks; evicts ended sequences if needed. Returns the number of slots for
// which there is room.
int kin_scheduler_make_branches(kin_scheduler *s, int n);

// Returns an unused slot, or -1.
int kin_scheduler_unused_slot(const kin_scheduler *s);

void kin_scheduler_free_slot(kin_scheduler *s, int i);

// Returns how many of the next n tokens of the sequence there is room for.
int kin_scheduler_fit(kin_scheduler *s, const kin_generation *g, int n);

bool kin_scheduler_has_prompts(const kin_scheduler *s);

// True if a step, or a request for pages, may be sent.
bool kin_scheduler_has_room(const kin_scheduler *s);

// Prepares the next flight. The caller counts it (n_flights) once it is sent.
kin_flight *kin_scheduler_new_flight(kin_scheduler *s, kin_flight_kind kind);

// Counts n more tokens of the sequence in the KV cache. computed: by a step, in all layers.
void kin_scheduler_count_done(kin_scheduler *s, kin_generation *g, int n, bool computed);

// Reports progress, while the sequence is still in its prompt; not when a prompt is recomputed after decoding began.
void kin_scheduler_report_progress(const kin_generation *g);

// Ends the sequence, and frees it.
void kin_scheduler_end(kin_scheduler *s, kin_generation *g, kin_generation_end how, const kin_err *why);

// Evicts the least recently used prefix other than that of slot `but`. Returns false if the cache has no such prefix.
bool kin_scheduler_evict(kin_scheduler *s, int but);

// Returns a free slot, after evicting a prefix if needed, or -1.
int kin_scheduler_find_free_slot(kin_scheduler *s, int but);

// Returns how many of the first n tokens are also the sequence's, without its last one, which must be computed for its logits.
int kin_scheduler_common_prefix(const kin_generation *g, const int32_t *tokens, int n);

// ---- scheduler_states.c

// True if a sequence may have lost what others need to begin with a part of it: a state, or a window's blocks.
bool kin_scheduler_forgets(const kin_scheduler *s);

// Makes room for one more sequence with a state; evicts ended sequences other than that of slot `but`. Models without recurrent
// layers always have room.
bool kin_scheduler_make_state(kin_scheduler *s, int but);

// Returns how many sequences can run at once.
int kin_scheduler_n_parallel(const kin_scheduler *s);

// Returns the longest prefix of the n tokens of slot i that another sequence can begin with.
int kin_scheduler_reusable(const kin_scheduler *s, int i, int n);

// Returns the length of the longest prefix that a running sequence has in common with this one and will leave while its prompt is
// computed: an upper bound if nothing of it is forgotten.
int kin_scheduler_soon_reusable(const kin_scheduler *s, const kin_generation *g, const kin_generation *running);

// Chooses the positions at which a sequence that starts is kept. n_known: tokens that it has in common with one on the disks.
void kin_scheduler_choose_marks(const kin_scheduler *s, kin_generation *g, int n_known);

// Returns how many of the next n tokens of the sequence a step may have, so that it ends at a mark.
int kin_scheduler_up_to_mark(const kin_generation *g, int n);

// After a step was sent: keeps the sequences that stand at a mark.
void kin_scheduler_keep_marks(kin_scheduler *s, const kin_flight *f);

// ---- scheduler_checkpoints.c

// Returns the blocks before the last checkpoint of a sequence within its first n_blocks blocks; 0: there is none.
int kin_scheduler_last_checkpoint(const kin_scheduler *s, const int32_t *tokens, int n_blocks);

// Requests that the states of a mark are stored, or those of an old checkpoint dropped. *sent: there was such a mark.
int kin_scheduler_send_states(kin_scheduler *s, bool *sent, kin_err *err);
void kin_scheduler_handle_states(kin_scheduler *s, const kin_flight *f);

// ---- scheduler_pages.c

// Sends a request for pages. tokens: those of the pages, if they are to be loaded; else NULL.
int kin_scheduler_send_pages(kin_scheduler *s, kin_flight *f, const kin_page_request *r, const int32_t *tokens, kin_err *err);

// If the disks have more of the sequence than the cache, arranges to load it, from the last full block on. Returns how many of
// its tokens the disks have, with or without the states that it needs to go on behind them.
int kin_scheduler_find_pages(kin_scheduler *s, kin_generation *g);

// True if a sequence has pages to load, and must wait for steps in flight: they may still read the blocks of windowed layers, or
// write the states, that the sequence gets. No step is sent meanwhile.
bool kin_scheduler_waits_to_load(const kin_scheduler *s);

// Requests the next pages for each sequence that has pages to load and no step in flight.
int kin_scheduler_send_loads(kin_scheduler *s, kin_err *err);
int kin_scheduler_handle_load(kin_scheduler *s, const kin_flight *f, kin_err *err);

// Removes what was computed of the sequence: from the head's disk at once, from all disks by kin_scheduler_send_drops,
// which goes on at the next step if pages cannot be named.
void kin_scheduler_distrust_pages(kin_scheduler *s, kin_generation *g);
int kin_scheduler_send_drops(kin_scheduler *s, kin_err *err);

// True if blocks are stored as soon as steps contain them: the request follows the last of these steps round the ring. On one
// machine there is no failure to protect against, so pages are written later, and the first token does not wait for them.
bool kin_scheduler_keeps_at_once(const kin_scheduler *s);

// *sent: there was something to store.
int kin_scheduler_send_keep(kin_scheduler *s, bool *sent, kin_err *err);

// ---- scheduler_drafts.c

// Adds drafts to a step that has nothing but sequences' last tokens, if that makes generation faster. Prompts leave no spare
// rows.
int kin_scheduler_add_drafts(kin_scheduler *s, kin_flight *f, kin_err *err);

// True if hidden states of the step are wanted for drafts: one of its sequences has drafts.
bool kin_scheduler_wants_hidden(const kin_scheduler *s, const kin_flight *f);

// Passes on the hidden states of n tokens of the sequence, the first of which is the step's token `at` and has the position pos.
// Without states, or drafts that need them, it does nothing.
void kin_scheduler_give_hidden(kin_scheduler *s, const kin_generation *g, int at, int pos, int n);

// Runs one pass of the draft model while the ring computes (kin_head_meanwhile). user: the scheduler.
bool kin_scheduler_draft_ahead(void *user, double free_s);

// Fills a step with the token drafted behind those in flight, if the source still proposes the ones in flight.
int kin_scheduler_add_ahead(kin_scheduler *s, kin_flight *f, kin_err *err);

// Returns which drafted token behind token i (-1: the sequence's last one) equals id; -1: none.
int kin_scheduler_find_drafted(kin_scheduler *s, const kin_draft *d, int i, int32_t id);

// Drafted token i was right. If it is in a branch, the branch becomes the sequence.
void kin_scheduler_follow_branch(kin_scheduler *s, kin_generation *g, int i);

// Removes the sequence's other branches, with all their tokens, from the KV cache.
void kin_scheduler_forget_branches(kin_scheduler *s, const kin_generation *g);

// Removes rejected drafted tokens from the KV cache. Their blocks are not shared, so this cannot fail.
void kin_scheduler_forget_rejected(kin_scheduler *s, const kin_generation *g);

// Detaches the sequence from the steps behind its last token: their guesses were wrong, or are not wanted.
void kin_scheduler_drop_ahead(kin_scheduler *s, kin_generation *g);

// Checks the sampled token id against the step behind: if it has that token it is kept, else it is dropped with all behind it.
void kin_scheduler_follow_ahead(kin_scheduler *s, kin_generation *g, int32_t id);

void kin_scheduler_count_drafts(kin_scheduler *s, const kin_generation *g, kin_draft_counts more);

// Records the time of a step of a sequence that is in several steps at once.
void kin_scheduler_measure_chain(kin_scheduler *s, double took_s);
