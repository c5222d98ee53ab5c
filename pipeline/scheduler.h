// The scheduler: generates many sequences at once through one head, by continuous batching.
//
// Each step takes the next token of every decoding sequence, and fills up with pieces of prompts, in turn. The pieces are sized
// so that the step takes about 1.4 times as long as one without them (pure/plan/prefill.h). In a ring of several members several
// steps are in flight.
//
// Sequences share one budget of context (engine/kv_blocks.h). A prefix that another sequence has, or had, is not computed again:
// sequences that have ended stay in the KV cache until their room is needed; the least recently used is evicted first. If several
// sequences begin with a prefix that is just being computed, the others wait for it. If the disks hold a longer prefix
// (engine/kv_store.h), it is loaded from there in pages while other sequences continue; each block that becomes full is stored
// there. When the budget is full, the youngest sequence is preempted and recomputed later. So load changes when a token arrives,
// but never which token it is, as long as the kernels compute a row alike in every batch (kernels/kernels.h).
//
// A sequence may have a draft source (pure/sampling/draft.h) and use the shared draft model (pipeline/draft_model.h) or the
// model's own draft block (pipeline/mtp_drafter.h), which compute on this thread before a step. The step then has drafted tokens
// behind the sequence's last one, as many as pay off (pure/plan/speculation.h). next() is called for row after row while it
// returns what was drafted; the next step removes the rejected tokens from the KV cache. So next() sees the same logits, in the
// same order, as without drafts.
//
//   kin_scheduler_submit ─► kin_scheduler_step, repeatedly ─► next() for each token ─► ended()
//
// Owner: the caller. Thread: the head's, for every function and callback.
#pragma once

#include "pipeline/draft_model.h"
#include "pipeline/head.h"
#include "pipeline/mtp_drafter.h"
#include "pipeline/prefix_pages.h"
#include "pure/sampling/draft.h"

typedef struct kin_scheduler kin_scheduler;
typedef struct kin_generation kin_generation; // a sequence that was submitted

typedef struct kin_scheduler_options {
    int n_ctx;               // tokens in the KV cache, shared by all sequences; also the limit of a single one
    int n_vocab;             // of the model
    int n_embd;              // of the model; 0: no sequence asks for hidden states
    int n_states;            // of recurrent layers (kin_kv_n_states); 0: the model has none
    kin_kv_window window;    // of windowed layers (kin_kv_window_of)
    int checkpoint_gap;      // with pages: tokens between the checkpoints of a long sequence (kin_kv_checkpoint_gap)
    int n_parallel;          // sequences at once, at most KIN_SCHEDULER_MAX_PARALLEL; further ones wait
    bool keeps;              // ended sequences stay as prefixes for others
    kin_prefix_pages *pages; // with keeps: sequences are also stored on disks and found there later; borrowed, NULL: they are not
    bool always_ahead;       // for tests: a sequence that decodes alone is in as many steps at once as the ring has members
    bool inexact_drafts;     // also draft where a row's logits depend on the rows beside it, so that the output may differ
    kin_draft_model *draft_model; // further drafts for sequences that have a draft source; borrowed, NULL: none
    kin_mtp_drafter *mtp;         // the same, by the model's own block; not both
    int draft_least, draft_most;  // drafted tokens of each sequence in a step: at least draft_least are verified even if it does
                                  // not pay (0: no minimum), at most draft_most (0: KIN_DRAFT_MAX)
} kin_scheduler_options;

enum { KIN_SCHEDULER_MAX_PARALLEL = 256, KIN_SCHEDULER_MAX_SEQUENCES = 512 };

typedef enum kin_generation_end {
    KIN_GENERATION_DONE,      // next() returned KIN_GENERATION_NO_TOKEN, or all hidden states were delivered
    KIN_GENERATION_FULL,      // the context has no room for its next token
    KIN_GENERATION_CANCELLED, // by kin_scheduler_cancel
    KIN_GENERATION_FAILED,
} kin_generation_end;

enum { KIN_GENERATION_NO_TOKEN = -1 };

typedef struct kin_generation_options {
    const int32_t *prompt; // [n_prompt], copied
    int n_prompt;
    bool no_cache; // neither reuses a prefix of others nor leaves one
    int tag;       // for kin_scheduler_erase
    // Returns the next token, given logits // f32 [n_vocab], which it may modify; KIN_GENERATION_NO_TOKEN ends the sequence.
    int32_t (*next)(void *user, float *logits);
    // Receives the logits after the prompt's tokens from `pos` on, rows // f32 [n, n_vocab], piece by piece, before `next` gets
    // the last row. Rows repeat if the sequence was preempted and recomputed. Requires no_cache. NULL: not wanted.
    void (*prompt_logits)(void *user, int pos, const float *rows, int n);
    // Replaces `next`: receives the hidden states of the tokens from `pos` on, rows // f32 [n, n_embd], piece by piece. The
    // sequence ends with its prompt, and is computed in steps that have no other kind of sequence.
    void (*hidden)(void *user, int pos, const float *rows, int n);
    // n_done of the prompt's tokens are in the KV cache; n_cached of them were reused. NULL: not wanted.
    void (*progress)(void *user, int n_done, int n_cached);
    const kin_draft_source *drafts; // NULL: none; borrowed, like draft_counts, until `ended`
    kin_draft_counts *draft_counts; // totals are added here; NULL: not wanted
    // The last call. why: only for KIN_GENERATION_FAILED.
    void (*ended)(void *user, kin_generation_end how, const kin_err *why);
    void *user;
} kin_generation_options;

int kin_scheduler_open(kin_scheduler **out, const kin_scheduler_options *options, kin_err *err);
void kin_scheduler_close(kin_scheduler *scheduler); // does not call `ended`. NULL is allowed

// Sets the head to compute with: at first, after a step has failed, or when the ring has changed. The contents of the KV cache
// are recomputed. No step may be in flight.
int kin_scheduler_set_head(kin_scheduler *scheduler, kin_head *head, kin_err *err);

// Sets the number of steps in flight while n_sequences (1 to KIN_SCHEDULER_MAX_PARALLEL) sequences decode. 0 (the default): as
// many as the ring has members. pure/plan/batching.h chooses; where weights are streamed it is often 1, since every pass reads
// them once.
void kin_scheduler_set_in_flight(kin_scheduler *scheduler, int n_sequences, int n_steps);

// Fails if the prompt is empty or longer than the context. *out lives until `ended`.
int kin_scheduler_submit(kin_scheduler *scheduler, const kin_generation_options *options, kin_generation **out, kin_err *err);

// Ends the sequence, at once or when the steps that contain it have come back. Steps of a failed ring do not come back.
void kin_scheduler_cancel(kin_scheduler *scheduler, kin_generation *generation);

// Removes ended sequences with this tag from the prefix cache and from the disks. Returns the number of their tokens.
int kin_scheduler_erase(kin_scheduler *scheduler, int tag);
// Copies the tokens of the most recently used ended sequence with this tag; the caller frees them. Returns their number; 0 and
// NULL if there is no such sequence, or no memory.
int kin_scheduler_read_sequence(const kin_scheduler *scheduler, int tag, int32_t **tokens);

// Ends all sequences as failed.
void kin_scheduler_fail(kin_scheduler *scheduler, const kin_err *why);

// Sends what can be sent, then waits until a step comes back or the thread is woken (kin_head_receive). *busy: there is more to
// do. On failure the contents of the KV cache are lost but the sequences remain: set a head again, or fail them.
int kin_scheduler_step(kin_scheduler *scheduler, bool *busy, kin_err *err);

// Waits for the steps in flight; sends nothing but requests to store pages. Afterwards the ring may be left.
int kin_scheduler_settle(kin_scheduler *scheduler, kin_err *err);

// Returns the number of tokens of running sequences in partial pages, which another ring would recompute; 0 if pages are not
// stored.
int kin_scheduler_n_beyond_pages(const kin_scheduler *scheduler);

typedef struct kin_scheduler_stats {
    int n_running, n_waiting;
    uint64_t n_running_tokens;   // in the KV cache, of running sequences
    int n_blocks, n_free_blocks; // of the KV cache
    uint64_t logits_bytes;       // memory for the logits of steps
    uint64_t n_steps;
    uint64_t n_prompt_tokens, n_cached_tokens, n_generated_tokens;
    uint64_t n_done;                   // sequences that ended as KIN_GENERATION_DONE
    uint64_t n_replayed_tokens;        // recomputed in all layers: the ring changed, or the sequence was preempted
    uint64_t n_partly_replayed_tokens; // recomputed only in the layers whose keys and values were lost
    uint64_t n_loaded_tokens;          // loaded from pages on disks, local or remote
    uint64_t n_wrong;                  // sequences that were recomputed because one of their steps had no finite logit
    uint64_t n_preempted;              // preemptions: sequences that lost their place in the KV cache
    uint64_t n_decode_rows;            // over all steps, one for each decoding sequence; drafted rows do not count
    kin_draft_counts drafts;           // of all sequences
} kin_scheduler_stats;

kin_scheduler_stats kin_scheduler_get_stats(const kin_scheduler *scheduler);
