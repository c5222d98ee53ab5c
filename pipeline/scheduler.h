// The scheduler: many texts at once through one head, by continuous batching.
//
// Each step takes the next token of every text that is being written, and fills up with pieces of prompts in turn: of so many
// tokens that the step takes about 1.4 times as long as one without them (pure/plan/prefill.h). In a ring of several members
// several steps are in flight.
//
// Texts share one budget of context (engine/kv_blocks.h). A prefix that another text has, or had, is not computed again: texts
// that have ended stay in the KV cache until their room is needed, the least recently used leaves first. Where many begin with a
// prefix that is just being computed, they wait for it. What is longer on the disks (engine/kv_store.h) is taken from there, in
// pages, while other texts go on; each block that gets full is kept there. When the budget is full, the youngest text waits, and
// is computed again later. So the order and the company of texts change when a token comes, never which one it is, as long as the
// kernels compute a row alike in every batch (kernels/kernels.h).
//
// A text may have a source of drafts (pure/text/draft.h), and share a draft model (pipeline/draft_model.h), which computes on
// this thread before a step. Then a step has drafted tokens behind the text's last one, as many as are worth it
// (pure/plan/speculation.h): next() is called for row after row while it gives what was drafted, and the KV cache forgets the
// rest with the next step. So next() sees the same logits, in the same order, as without drafts.
//
//   kin_scheduler_submit ─► kin_scheduler_step, again and again ─► next() for each token ─► ended()
//
// Owner: the caller. Thread: the head's, for every function and callback.
#pragma once

#include "pipeline/draft_model.h"
#include "pipeline/head.h"
#include "pipeline/prefix_pages.h"
#include "pure/text/draft.h"

typedef struct kin_scheduler kin_scheduler;
typedef struct kin_generation kin_generation; // a text that was submitted

typedef struct kin_scheduler_options {
    int n_ctx;               // tokens in the KV cache, of all texts together; a single one has at most as many
    int n_vocab;             // of the model
    int n_embd;              // the same; 0: no text asks for hidden states
    int n_parallel;          // texts at once, at most KIN_SCHEDULER_MAX_PARALLEL; further ones wait
    bool keeps;              // texts that have ended stay as prefixes of others
    kin_prefix_pages *pages; // with keeps: texts are kept on the disks, too, and found there later; borrowed, NULL: they are not
    bool always_ahead;       // a text that is written alone is in as many steps at once as the ring has members: for tests
    bool inexact_drafts;     // also where a row's logits depend on the rows beside it, so that a text may differ
    kin_draft_model *draft_model; // drafts for texts that have a source of drafts, too; borrowed, NULL: none
    int draft_least, draft_most;  // drafted tokens of each text in a step: so many are verified whether it pays or not (0: none),
                                  // and no more than these (0: KIN_DRAFT_MAX)
} kin_scheduler_options;

enum { KIN_SCHEDULER_MAX_PARALLEL = 256, KIN_SCHEDULER_MAX_SEQUENCES = 512 };

typedef enum kin_generation_end {
    KIN_GENERATION_DONE,      // next() said so
    KIN_GENERATION_FULL,      // the context has no room for its next token
    KIN_GENERATION_CANCELLED, // by kin_scheduler_cancel
    KIN_GENERATION_FAILED,
} kin_generation_end;

enum { KIN_GENERATION_NO_TOKEN = -1 };

typedef struct kin_generation_options {
    const int32_t *prompt; // [n_prompt], copied
    int n_prompt;
    bool no_cache; // neither takes a prefix from others nor leaves one
    int tag;       // of kin_scheduler_erase
    // The next token, from logits // f32 [n_vocab], which may be written to; KIN_GENERATION_NO_TOKEN: the text ends.
    int32_t (*next)(void *user, float *logits);
    // The logits after the prompt's tokens from `pos` on, rows // f32 [n, n_vocab], piece by piece, before `next` gets the last
    // of them; some come again when the text has lost its place. Goes with no_cache. NULL: not wanted.
    void (*prompt_logits)(void *user, int pos, const float *rows, int n);
    // In place of `next`: the hidden states of the tokens from `pos` on, rows // f32 [n, n_embd], piece by piece. The text ends
    // with its prompt, and is computed in steps of its own.
    void (*hidden)(void *user, int pos, const float *rows, int n);
    // n_done of the prompt's tokens are in the KV cache; n_cached of them were there before. NULL: not wanted.
    void (*progress)(void *user, int n_done, int n_cached);
    const kin_draft_source *drafts; // NULL: none; borrowed, as the counts, until `ended`
    kin_draft_counts *draft_counts; // what comes of them, added up; NULL: not wanted
    // The last call. why: of KIN_GENERATION_FAILED.
    void (*ended)(void *user, kin_generation_end how, const kin_err *why);
    void *user;
} kin_generation_options;

int kin_scheduler_open(kin_scheduler **out, const kin_scheduler_options *options, kin_err *err);
void kin_scheduler_close(kin_scheduler *scheduler); // no `ended` is called. NULL is allowed

// The head to compute with from now on, when there is none yet, or the last step failed, or its ring has changed. What was in the
// KV cache is computed again. No step may be in flight.
int kin_scheduler_set_head(kin_scheduler *scheduler, kin_head *head, kin_err *err);

// Steps at once while n_texts (1 to KIN_SCHEDULER_MAX_PARALLEL) are written. 0 (as for all after open): as many as the ring has
// members. pure/plan/batching.h chooses; where weights are streamed it is often 1, for a pass reads them once.
void kin_scheduler_set_in_flight(kin_scheduler *scheduler, int n_texts, int n_steps);

// Fails when the prompt is empty or longer than the context. *out lives until `ended`.
int kin_scheduler_submit(kin_scheduler *scheduler, const kin_generation_options *options, kin_generation **out, kin_err *err);

// The text ends; at once, or when the steps that it is in have come back. Those of a step that failed do not come back.
void kin_scheduler_cancel(kin_scheduler *scheduler, kin_generation *generation);

// Forgets the texts with this tag that have ended and stay as prefixes, on the disks, too. Returns how many tokens they had.
int kin_scheduler_erase(kin_scheduler *scheduler, int tag);
// A copy of the tokens of the last of these, the caller's to free. Returns how many; 0: there is none, or no memory, and NULL.
int kin_scheduler_read_text(const kin_scheduler *scheduler, int tag, int32_t **tokens);

// All texts end as failed.
void kin_scheduler_fail(kin_scheduler *scheduler, const kin_err *why);

// Sends what there is to send, and waits for one step to come back, or to be woken (kin_head_receive). *busy: there is more to
// do. On failure what the KV cache held is lost; the texts stay: give it a head again, or fail them.
int kin_scheduler_step(kin_scheduler *scheduler, bool *busy, kin_err *err);

// Waits for the steps in flight, without sending others but for pages to be kept: the ring may be left afterwards.
int kin_scheduler_settle(kin_scheduler *scheduler, kin_err *err);

// Tokens of the running texts that have no full page and would be computed again in another ring; 0, if no pages are kept.
int kin_scheduler_n_beyond_pages(const kin_scheduler *scheduler);

typedef struct kin_scheduler_stats {
    int n_running, n_waiting;
    uint64_t n_running_tokens;   // in the KV cache, of the texts that run
    int n_blocks, n_free_blocks; // of the KV cache
    uint64_t logits_bytes;       // of memory for the logits of steps
    uint64_t n_steps;
    uint64_t n_prompt_tokens, n_cached_tokens, n_generated_tokens;
    uint64_t n_done;                   // texts that ended as KIN_GENERATION_DONE
    uint64_t n_replayed_tokens;        // computed again, in all layers: the ring was another one, or a text had lost its place
    uint64_t n_partly_replayed_tokens; // computed again in the layers only whose keys and values were lost
    uint64_t n_loaded_tokens;          // taken from pages on disks, this machine's or others'
    uint64_t n_wrong;                  // texts that were computed again because a step of theirs had no finite logit
    uint64_t n_preempted;              // texts that lost their place in the KV cache
    uint64_t n_decode_rows;            // of all steps, one for each text that is written; drafted ones do not count
    kin_draft_counts drafts;           // of all texts
} kin_scheduler_stats;

kin_scheduler_stats kin_scheduler_get_stats(const kin_scheduler *scheduler);
