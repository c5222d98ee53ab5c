// The head: the user's machine. It has the model's two ends (embedding, output layer) and drives the layers between them.
//
// Tokens never leave it: what travels to the layers is hidden states. Here, today, all layers are one shard of its own.
// It keeps no text and makes no choice of tokens: that is the caller's (sampler, tokenizer).
//
// Owner: the caller. Thread: one, the same as the shard's.
#pragma once

#include <stdint.h>

#include "engine/shard.h"

typedef struct kin_head kin_head;

// The model and the shard (all layers, with the output layer) are borrowed until close.
int kin_head_open(kin_head **out, const kin_model *model, kin_shard *shard, int n_batch, kin_err *err);
void kin_head_close(kin_head *head);

// Called while a prompt is processed.
void kin_head_on_progress(kin_head *head, kin_progress progress, void *user);

// Feeds tokens [n] of sequence `seq` at positions pos, pos + 1, ...
// logits: n_logits = 1: // f32 [n_vocab] after the last token; n_logits = n: // f32 [n, n_vocab] after each; 0: none, may be
// NULL. On failure the sequence holds the tokens of the chunks that succeeded; remove them or clear.
int kin_head_eval(kin_head *head, int32_t seq, int32_t pos, const int32_t *tokens, int n, float *logits, int n_logits,
                  kin_err *err);

// Forgets positions [begin, end) of a sequence; or everything.
void kin_head_remove(kin_head *head, int32_t seq, int32_t begin, int32_t end);
void kin_head_clear(kin_head *head);
