// A draft model: a smaller model of the same vocabulary, all of it on this machine's CPU, that writes on texts by itself. What it
// finds likeliest is a draft (pure/text/draft.h); how likely it finds it is the draft's grade.
//
// It has a KV cache of its own, in which it follows the texts: at each call it forgets what was not taken, and reads what is new
// before it goes on. While a step is verified it may go on as if its drafts were right (kin_draft_model_go_on); what it knows
// then costs no time where it comes true. A long prompt is read in pieces, one at a call, so that other texts are not kept
// waiting; until it is read there are no drafts for its text. Texts of one call share its passes. What it holds of texts that
// have ended stays until its room is needed, for the next turn of a conversation. Texts that find no room have no drafts, until
// others end, or have not asked for long: no text that lives is read again for another's sake.
//
// A model that cannot go on says so in the log, and has no drafts any more.
//
// Grades: 0 a token of a probability below 0.3, then below 0.5, 0.65, 0.8, 0.9, 0.95, 0.99; 7 the others.
//
// Owner: the session. Thread: the computing one.
#pragma once

#include "engine/shard.h"
#include "pure/text/draft.h"
#include "pure/text/vocab.h"

typedef struct kin_draft_model kin_draft_model;

enum {
    KIN_DRAFT_MODEL_MAX_TEXTS = KIN_DRAFT_MAX + 1,
    KIN_DRAFT_MODEL_BATCH = 128, // tokens in a pass that suit it: its buffers are small
};

typedef struct kin_draft_model_options {
    const char *path;
    const kin_vocab *vocab;     // of the texts, borrowed for open
    const kin_devices *devices; // borrowed; their CPU computes
    int n_ctx;                  // tokens of all texts together
    int n_batch;                // most tokens in a pass
    enum ggml_type kv_type;
    const char *cache_dir; // of prepacked weights, as a shard's; NULL: none
    uint64_t cache_cap;
    kin_progress progress;
} kin_draft_model_options;

// Whether the model of this file (path: for the sentence) has the vocabulary of the texts: each token is the same.
int kin_draft_model_check(const kin_gguf *gguf, const char *path, const kin_vocab *vocab, kin_err *err);

// Fails when it is no model of the same vocabulary.
int kin_draft_model_open(kin_draft_model **out, const kin_draft_model_options *options, kin_err *err);
void kin_draft_model_close(kin_draft_model *model); // NULL is allowed

// Of its weights, KV cache and buffers, for which the other shard on this machine has no room.
uint64_t kin_draft_model_bytes(const kin_draft_model *model);

// A text that drafts are wanted for.
typedef struct kin_draft_wish {
    uint64_t text;         // its number, while it lives
    const int32_t *tokens; // [n] of it so far
    int n;
    int most;       // tokens that it has room for
    kin_draft *out; // stays as it is where the model has none
} kin_draft_wish;

// What a call took, in seconds. `first`: the pass with what is new of the texts, where that is few tokens; `further`: those
// behind it, with a token of each text. n_passes, n_tokens: of all kinds, and in them.
typedef struct kin_draft_spent {
    double all_s;
    int n_passes, n_tokens;
    struct {
        double took_s;
        int n, n_texts; // passes, and texts in all of them together
    } first, further;
} kin_draft_spent;

// Drafts for n texts, at most KIN_DRAFT_MODEL_MAX_TEXTS.
kin_draft_spent kin_draft_model_propose(kin_draft_model *model, const kin_draft_wish *wishes, int n,
                                        const kin_draft_limits *limits);

// While a step verifies the texts' drafts: one pass, as if all of them were right, and what the model finds likeliest behind
// them. Where that comes true, the next drafts are known. What it does not know of the texts it reads first, for l->catch_up_s at
// most. limits: `most` tokens behind a text are known at last (0: there is only time to read), `least` is the chance that they
// must have of being right. Of the wishes, `out` is not used. No pass: there is nothing to do.
kin_draft_spent kin_draft_model_go_on(kin_draft_model *model, const kin_draft_wish *wishes, int n,
                                      const kin_draft_limits *limits);

// Tokens of a draft for the text that are known without a pass.
int kin_draft_model_n_known(const kin_draft_model *model, const kin_draft_wish *wish);

// For measurements with models of random weights: it takes the time that it takes, but says what this source does, where that has
// a guess. Borrowed; NULL: its own words.
void kin_draft_model_prompt(kin_draft_model *model, const kin_draft_source *source);

// The text lives no more.
void kin_draft_model_end(kin_draft_model *model, uint64_t text);
