// Inside of kin_scheduler, for scheduler.c (texts, the KV cache, steps), scheduler_pages.c (pages on the disks) and
// scheduler_drafts.c (drafted tokens in steps, and what came of them).
#pragma once

#include "base/clock.h"
#include "pipeline/scheduler.h"
#include "pipeline/steps.h"
#include "pure/plan/prefill.h"
#include "pure/plan/speculation.h"

struct kin_generation {
    kin_generation_options o;
    kin_generation *next; // of those that wait, oldest first
    uint64_t number;      // in the order of submission
    int32_t *tokens;      // [cap], n of them: the prompt, and what was written
    int n, cap;
    int slot;           // NO_SLOT: it waits
    int n_sent, n_done; // tokens that steps have, or have had; that have come back: they are in the KV cache
    int n_steps;        // in flight that have tokens of it
    int n_cached;       // that others had computed
    int n_once;         // tokens that have been in the KV cache, at most; if it lost them, they are computed again
    kin_draft draft;    // for the step that it is in; n 0: that has none
    int16_t draft_slots[KIN_DRAFT_MAX]; // of these tokens: the text's own, or one of a branch
    int n_steps_wanted;                 // that it may be in at once, while it is written alone
    struct {
        int32_t token;
        uint8_t kind, grade;
    } ahead[KIN_STEPS_IN_FLIGHT]; // [n_ahead] drafted tokens behind its last one that steps in flight have, one each
    int n_ahead;
    int n_found;              // blocks that are on the disks; those beyond n_sent are being taken from there
    bool recomputes;          // some layers' are not: these are computed
    bool is_second;           // it is computed again because it came out wrong: nothing that was computed before is used
    int n_to_drop, n_dropped; // blocks whose pages are to leave the disks before; requests were sent for so many
    bool cancelled, was_running;
};

// A sequence of the KV cache: of a text that runs, or of one that has ended.
typedef struct kin_slot {
    kin_generation *owner;           // NULL: none
    const kin_generation *branch_of; // a text with a step in flight whose drafts branch; NULL: it is none
    int32_t *tokens;                 // [n] of a text that has ended; n 0: the slot is free
    int n, tag;
    int n_kept;    // blocks that are on the disks, or on their way
    uint64_t used; // when it ended or was last useful, in steps
} kin_slot;

typedef struct kin_part {
    kin_generation *g; // NULL: who wanted it wants it no more
    int n;             // tokens
    int row;           // of logits: the last token's, or the first one's
    bool all;          // each token's is wanted; else the last one's, if is_last
    bool is_last;      // of the text so far
    bool is_ahead;     // of a step behind the one with the text's last token
    bool is_prompt;    // a piece of a prompt or a history, not the one token that was chosen last
    int n_draft;       // tokens of the text's draft that are verified
    int draft_row;     // of logits: after the first one of these
} kin_part;

typedef enum kin_flight_kind { KIN_FLIGHT_TOKENS, KIN_FLIGHT_LOAD, KIN_FLIGHT_KEEP } kin_flight_kind;

typedef struct kin_flight {
    uint64_t number;
    kin_flight_kind kind; // LOAD: one part, its pages; KEEP: none
    kin_part parts[KIN_SCHEDULER_MAX_PARALLEL];
    int n_parts, n_tokens, n_out, n_prompt;
    int n_prompt_rows;         // of n_out
    int n_draft;               // of n_tokens
    bool hidden;               // all rows' hidden states are wanted, no logits
    bool ends_prompts;         // of texts that are written then
    bool in_chain;             // of a text that is in several steps at once
    bool follows_prompts;      // it was sent while pieces of prompts were in flight
    kin_prefill_beside beside; // what was written when it was sent
    float *logits;             // f32 [cap_out, n_vocab], or hidden states in the same memory
    int cap_out;
    kin_time sent;
} kin_flight;

struct kin_scheduler {
    kin_scheduler_options o;
    kin_head *head; // NULL: none, or it failed
    kin_kv_blocks *blocks;
    kin_slot slots[KIN_SCHEDULER_MAX_SEQUENCES];
    kin_generation *running[KIN_SCHEDULER_MAX_PARALLEL]; // oldest first
    int n_running;
    kin_generation *waiting;
    int n_waiting;
    uint64_t next_number, n_texts;                       // n_texts: that have begun to be computed
    uint8_t n_in_flight[KIN_SCHEDULER_MAX_PARALLEL + 1]; // of texts that are written; 0: as many as the ring has members
    kin_flight flights[KIN_STEPS_IN_FLIGHT];             // cyclic
    int first_flight, n_flights;
    int n_page_flights;                // of them not of tokens
    unsigned turn;                     // whose prompt comes first in the next step; wraps around
    int32_t *tokens, *seq, *pos, *out; // [cap_step] of the step that is made
    int cap_step;
    kin_time last_done;
    double prompt_alone_s; // a token of a prompt in steps without other texts; 0: not known
    kin_prefill prefill;   // beside them
    kin_speculation speculation;
    struct {
        int n_steps, n_tokens;
        double took_s;
    } chain; // of texts in several steps at once, since the policy was told
    kin_scheduler_stats stats;
};

// Pages of it are on the disks, or on their way.
static inline bool kin_scheduler_is_loading(const kin_generation *g) {
    return g->n_found * KIN_KV_CELLS > g->n_done;
}

static inline int kin_scheduler_min(int a, int b) {
    return a < b ? a : b;
}

// ---- scheduler.c

// Without a head nothing is in the cache. The head has memory for as many operations as there are sequences.
int kin_scheduler_change(kin_scheduler *s, kin_kv_op op, kin_err *err);

// Room in the KV cache for so many blocks, where texts that have ended may have to leave it. False: there is none.
bool kin_scheduler_make_room(kin_scheduler *s, int n_blocks);

// Room for up to n sequences that share a text's blocks, where texts that have ended may have to leave them slots and blocks.
// Returns for how many there is.
int kin_scheduler_make_branches(kin_scheduler *s, int n);

// An unused slot, or -1.
int kin_scheduler_unused_slot(const kin_scheduler *s);

void kin_scheduler_free_slot(kin_scheduler *s, int i);

// As many of n tokens of the text as there are blocks for.
int kin_scheduler_fit(kin_scheduler *s, const kin_generation *g, int n);

bool kin_scheduler_has_prompts(const kin_scheduler *s);

// Whether a step, or a request for pages, may be sent.
bool kin_scheduler_has_room(const kin_scheduler *s);

// The next one. It counts when it was sent.
kin_flight *kin_scheduler_new_flight(kin_scheduler *s, kin_flight_kind kind);

// So many tokens more of the text are in the KV cache. computed: by a step, in all layers.
void kin_scheduler_count_done(kin_scheduler *s, kin_generation *g, int n, bool computed);

// A text that has begun to be written has its prompt behind it, also where that is computed again.
void kin_scheduler_tell_progress(const kin_generation *g);

// The text has ended, and is freed.
void kin_scheduler_end(kin_scheduler *s, kin_generation *g, kin_generation_end how, const kin_err *why);

// ---- scheduler_pages.c

// Where the disks have more of the text than the cache, that is to be taken from them, from the last whole block on.
void kin_scheduler_look_on_disks(kin_scheduler *s, kin_generation *g);

// The next pages of each text that waits for none.
int kin_scheduler_send_loads(kin_scheduler *s, kin_err *err);
int kin_scheduler_take_load(kin_scheduler *s, const kin_flight *f, kin_err *err);

// What was computed of the text is not used any more: on the head's disk at once, on all disks by kin_scheduler_send_drops.
void kin_scheduler_distrust_pages(kin_scheduler *s, kin_generation *g);
int kin_scheduler_send_drops(kin_scheduler *s, kin_err *err);

// Whether blocks are kept as soon as steps have them: the request follows the last of these steps round the ring. Alone there is
// nobody whose loss in the middle of a prompt would make that worth the time before its first token.
bool kin_scheduler_keeps_at_once(const kin_scheduler *s);

// *sent: there was something to keep.
int kin_scheduler_send_keep(kin_scheduler *s, bool *sent, kin_err *err);

// ---- scheduler_drafts.c

// Into a step of nothing but texts' last tokens, where it makes texts faster. Prompts have no rows to spare.
int kin_scheduler_add_drafts(kin_scheduler *s, kin_flight *f, kin_err *err);

// While the ring computes: one pass of the draft model (kin_head_meanwhile). user: the scheduler.
bool kin_scheduler_draft_ahead(void *user, double free_s);

// A step with the token that is drafted behind those in flight, if the source still says what these have.
int kin_scheduler_add_ahead(kin_scheduler *s, kin_flight *f, kin_err *err);

// Which drafted token behind token i (-1: the text's last one) is this one; -1: none.
int kin_scheduler_find_drafted(kin_scheduler *s, const kin_draft *d, int i, int32_t id);

// Drafted token i was right. Where it is in a branch, that is the text from now on.
void kin_scheduler_follow_branch(kin_scheduler *s, kin_generation *g, int i);

// The other branches leave the KV cache with all that they have.
void kin_scheduler_forget_branches(kin_scheduler *s, const kin_generation *g);

// Drafted tokens that were wrong leave the KV cache. Their blocks are the text's own, so this works.
void kin_scheduler_forget_rejected(kin_scheduler *s, const kin_generation *g);

// The steps behind the text's last token go on without it: they guessed wrong, or are not wanted.
void kin_scheduler_drop_ahead(kin_scheduler *s, kin_generation *g);

// The step behind the one that gave the text's last token has that token, or is dropped with all behind it.
void kin_scheduler_follow_ahead(kin_scheduler *s, kin_generation *g, int32_t id);

void kin_scheduler_count_drafts(kin_scheduler *s, const kin_generation *g, kin_draft_counts more);

// Of a step of a text that is in several at once.
void kin_scheduler_measure_chain(kin_scheduler *s, double took_s);
