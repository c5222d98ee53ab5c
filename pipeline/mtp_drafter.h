// Drafts from the model's own block for multi-token prediction (model/draft_block.h), on the head's CPU.
//
//   states of a step ─► take ─► [pass: keys and values of a prompt]         the head, after each step
//   wishes ─► propose ─► pass ─► output matrix of the head ─► token, state ─► pass ─► ...
//
// Hidden states of verified tokens come from the model's own steps (kin_head_states), so the block needs no pass of the model.
// It has a KV cache of its own with one entry per token; its entries are numbered by themselves, because attention depends on
// distances only. A sequence that began with a cached prefix has no entries for that prefix. Entries of drafted tokens leave the
// cache before the next pass for the sequence. States of the last tokens wait for a draft, at most a batch of them; those of
// prompts are read as soon as they come.
//
// Ended sequences stay in the cache until their room is needed, for the next turn of a conversation. A drafter that fails logs
// this once, and makes no drafts any more.
//
// Owner: the session. Thread: the computing one.
#pragma once

#include "pipeline/draft_model.h"
#include "pipeline/head.h"

typedef struct kin_mtp_drafter kin_mtp_drafter;

typedef struct kin_mtp_drafter_options {
    const kin_model *model;     // borrowed until close
    const char *path;           // the file of its draft blocks, borrowed for the call; NULL: the model's
    const kin_devices *devices; // borrowed; only the CPU computes
    int n_ctx;                  // tokens of all running sequences together
    int n_sequences;            // sequences that run at once; at most KIN_DRAFT_MODEL_MAX_SEQUENCES of them have drafts
    int n_batch;                // most tokens per pass
    int n_vocab;                // tokens that may be drafted
    enum ggml_type kv_type;
    const char *cache_dir; // for prepacked weights, as in a shard; NULL: none
    uint64_t cache_cap;
    kin_progress progress;
} kin_mtp_drafter_options;

// Computes from the file's header how many bytes a drafter takes: what kin_mtp_drafter_bytes returns, or a little more. Fails as
// kin_mtp_drafter_open does if the model has no such block, or one that kin does not compute.
int kin_mtp_drafter_needs(const kin_mtp_drafter_options *options, uint64_t *bytes, kin_err *err);

// Fails with a sentence if the model has no such block, or one that kin does not compute.
int kin_mtp_drafter_open(kin_mtp_drafter **out, const kin_mtp_drafter_options *options, kin_err *err);
void kin_mtp_drafter_close(kin_mtp_drafter *drafter); // NULL is allowed

// Returns the bytes of its weights, KV cache and buffers, which the other shard on this machine cannot use.
uint64_t kin_mtp_drafter_bytes(const kin_mtp_drafter *drafter);

// Returns the numbers of a hidden state: of all residual streams.
size_t kin_mtp_drafter_width(const kin_mtp_drafter *drafter);

// The tokens of a sequence that are known, and hidden states // f32 [n, width] of those at positions pos .. pos + n - 1, before
// the output norm. A position that was given before replaces its earlier state and all later ones.
typedef struct kin_mtp_states {
    uint64_t sequence;     // the sequence's number, unique while it lives
    const int32_t *tokens; // [n_tokens]
    int n_tokens;
    int pos, n;
    const float *rows;
} kin_mtp_states;

void kin_mtp_drafter_add_states(kin_mtp_drafter *drafter, const kin_mtp_states *states);

// Makes drafts for n sequences, at most KIN_DRAFT_MODEL_MAX_SEQUENCES, with the head's output matrix. A sequence has none if its
// last states were not taken.
kin_draft_spent kin_mtp_drafter_propose(kin_mtp_drafter *drafter, kin_head *head, const kin_draft_query *queries, int n,
                                        const kin_draft_limits *limits);

// Marks the sequence as ended.
void kin_mtp_drafter_end(kin_mtp_drafter *drafter, uint64_t sequence);
