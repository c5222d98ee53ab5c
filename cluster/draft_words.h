// The words of --draft: which sources draft.
//
// Pure functions: any thread.
#pragma once

#include "base/err.h"
#include "model/draft_block.h"

typedef enum kin_draft_mode {
    KIN_DRAFT_AUTO, // n-gram lookup, and a draft model or the model's draft block if there is one, where they do not change the
                    // output
    KIN_DRAFT_OFF,
    KIN_DRAFT_ALSO_INEXACT, // also where ggml's kernels or a GPU compute
    KIN_DRAFT_BLOCK,        // as auto, and the model must have draft blocks, in its file or in their own
} kin_draft_mode;

// Parses --draft: "auto", "off", "ngram", "mtp", FILE, "auto,FILE", "ngram,FILE" or "mtp:FILE". *file points into `words`: with
// KIN_DRAFT_BLOCK the file of the draft blocks, else that of a draft model, or of draft blocks; NULL: none.
int kin_draft_words_read(const char *words, kin_draft_mode *mode, const char **file, kin_err *err);

// Returns how many times as fast tokens presumably come with one drafted token of the block per pass, 70 % of which are right:
//
//     1.7 / (1 + more + block / token)
//
// `token` and `block` are the bytes that the model, and the block with the output matrix, read for a token; `more` is the share
// of `token` that a second token of a pass reads again: that of experts on the disk, else 0. What a row costs in memory is
// measured while generating (pure/plan/speculation.h).
// memory: bytes for the model's weights.
double kin_draft_block_gain(const kin_model *model, const kin_draft_block *block, uint64_t memory);

// Returns whether a draft block that takes this many bytes is used without being asked for. It must take at most a tenth of the
// room and half of what the model's fixed memory (KV cache, buffers) leaves. Weights that all fit into memory without it must
// still fit. A streamed model may read at most a quarter more because of it.
bool kin_draft_block_fits(const kin_model *model, uint64_t bytes, uint64_t room, uint64_t fixed);
