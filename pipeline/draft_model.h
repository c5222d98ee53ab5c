// A draft model: a smaller model with the same vocabulary, entirely on this machine's CPU, that continues sequences by itself.
// Its likeliest tokens form a draft (pure/sampling/draft.h); their probability is the draft's grade.
//
// It has its own KV cache, in which it follows the sequences: each call removes the tokens that were rejected, and reads the new
// ones before it continues. While a step is verified it may continue as if its drafts were right (kin_draft_model_go_on); if they
// are, the next drafts cost no time. A long prompt is read in pieces, one per call, so that other sequences are not delayed; a
// sequence has no drafts until its prompt is read. Sequences of one call share its passes. The cache of ended sequences stays
// until its room is needed, for the next turn of a conversation. Sequences that find no room have no drafts until others end, or
// have not asked for a long time: no live sequence is evicted and read again for another one.
//
// A model that fails logs this once, and makes no drafts any more.
//
// Grades: 0 for a token with a probability below 0.3, then below 0.5, 0.65, 0.8, 0.9, 0.95, 0.99; 7 for the rest.
//
// Owner: the session. Thread: the computing one.
#pragma once

#include "engine/shard.h"
#include "pure/sampling/draft.h"
#include "pure/tokenizer/vocab.h"

typedef struct kin_draft_model kin_draft_model;

enum {
    KIN_DRAFT_MODEL_MAX_SEQUENCES = KIN_DRAFT_MAX + 1,
    KIN_DRAFT_MODEL_BATCH = 128, // a good number of tokens per pass: its buffers are small
};

typedef struct kin_draft_model_options {
    const char *path;
    const kin_vocab *vocab;     // of the target model, borrowed for open
    const kin_devices *devices; // borrowed; only the CPU computes
    int n_ctx;                  // tokens of all sequences together
    int n_batch;                // most tokens per pass
    enum ggml_type kv_type;
    const char *cache_dir; // for prepacked weights, as in a shard; NULL: none
    uint64_t cache_cap;
    kin_progress progress;
} kin_draft_model_options;

// Fails unless the file is a model that can draft: one without recurrent layers, and with the same vocabulary, token by token.
// vocab: of the target model; NULL: it is not known.
int kin_draft_model_check(const char *path, const kin_vocab *vocab, kin_err *err);

// Fails as kin_draft_model_check does, or if there is no memory for it.
int kin_draft_model_open(kin_draft_model **out, const kin_draft_model_options *options, kin_err *err);
void kin_draft_model_close(kin_draft_model *model); // NULL is allowed

// Returns the bytes of its weights, KV cache and buffers, which the other shard on this machine cannot use.
uint64_t kin_draft_model_bytes(const kin_draft_model *model);

// A pending query: a sequence that needs drafts.
typedef struct kin_draft_query {
    uint64_t sequence;     // the sequence's number, unique while it lives
    const int32_t *tokens; // [n] tokens so far
    int n;
    int most;       // most drafted tokens it has room for
    kin_draft *out; // unchanged if the model has no draft
} kin_draft_query;

// Time of a call, in seconds. `first`: the pass that reads new tokens of the sequences, if they are few; `further`: the passes
// after it, with one token of each sequence. n_passes, n_tokens: over all kinds of passes.
typedef struct kin_draft_spent {
    double all_s;
    int n_passes, n_tokens;
    struct {
        double took_s;
        int n, n_sequences; // passes, and the sum of the sequences in them
    } first, further;
} kin_draft_spent;

// Makes drafts for n sequences, at most KIN_DRAFT_MODEL_MAX_SEQUENCES.
kin_draft_spent kin_draft_model_propose(kin_draft_model *model, const kin_draft_query *queries, int n,
                                        const kin_draft_limits *limits);

// Runs one pass while a step verifies the sequences' drafts, as if all of them were right, with the tokens that the model finds
// likeliest after them. If they are right, the next drafts are known. Tokens of the sequences that it does not know are read
// first, for at most limits->catch_up_s. limits: at most `most` tokens after a sequence become known (0: there is only time to
// read); `least` is the probability of being right that they need. `out` of the queries is not used. No pass: there is nothing to
// do.
kin_draft_spent kin_draft_model_go_on(kin_draft_model *model, const kin_draft_query *queries, int n,
                                      const kin_draft_limits *limits);

// Returns how many drafted tokens for the sequence are known without a pass.
int kin_draft_model_n_known(const kin_draft_model *model, const kin_draft_query *query);

// For measurements with random weights: the model takes its usual time, but proposes this source's guesses where there are any.
// Borrowed; NULL: its own.
void kin_draft_model_prompt(kin_draft_model *model, const kin_draft_source *source);

// Marks the sequence as ended.
void kin_draft_model_end(kin_draft_model *model, uint64_t sequence);
