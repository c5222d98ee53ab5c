// A generation: the scheduler's (scheduler.h) input, and its counts. Plain data; thread: the head's, for every callback.
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
