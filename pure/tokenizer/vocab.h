// Vocabulary: the tokens of a model, the bytes that each represents, and the special ones.
//
// Built once from a plain description (kin_vocab_spec), then immutable: any thread may read it. It copies everything from the
// description, which may be freed. Returned strings live as long as the vocabulary. tokenizer.h converts text to tokens;
// detok.h converts tokens to text.
//
// Three kinds of models:
//   SPM  SentencePiece: tokens have scores, a space is written U+2581 ("▁"), unknown characters become byte tokens
//        <0x00>..<0xFF>
//   BPE  GPT-2's byte-level BPE: tokens are written in an alphabet of 256 printable characters, one per byte, and merges are
//        ranked
//   SPACED_BPE  Gemma 4's: merges are ranked, of characters; tokens are written as in SentencePiece
// The rules for ids, names and types are llama.cpp's, so that a GGUF file has the same meaning here.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "pure/tokenizer/token_type.h"

enum { // limits, checked before anything is allocated
    KIN_VOCAB_MAX_TOKENS = 1 << 22,
    KIN_VOCAB_MAX_MERGES = 1 << 22,
    KIN_VOCAB_MAX_TOKEN_BYTES = 1 << 16,
};

typedef enum kin_vocab_kind {
    KIN_VOCAB_SPM,        // tokenizer.ggml.model = "llama"
    KIN_VOCAB_BPE,        // "gpt2"
    KIN_VOCAB_SPACED_BPE, // "gemma4"
} kin_vocab_kind;

typedef struct kin_vocab kin_vocab;

typedef struct kin_vocab_spec {
    kin_vocab_kind kind;
    const char *pre; // BPE: name of the pre-tokenizer (pretokenizer.h); SPM: not used

    int32_t n_tokens;
    const kin_str *tokens; // [n_tokens] as spelled in the file; all different
    const float *scores;   // [n_tokens], not NaN; NULL: all 0
    const int32_t *types;  // [n_tokens] kin_token_type; NULL: all normal

    size_t n_merges; // both kinds of BPE: "LEFT RIGHT", best first
    const kin_str *merges;

    int32_t bos, eos, eot, eom, unk, pad; // ids or KIN_TOKEN_NONE
    bool add_bos, add_eos;                // added around a text that is encoded with KIN_ENCODE_ADD_SPECIAL
    bool add_space_prefix;                // SPM: insert a space before a text, and after a special token
    bool ignore_merges;                   // BPE: a pre-token that is itself a token is not merged
    bool strip_after_special;             // Phi-3: white space after special tokens belongs to them
    int32_t fim[KIN_FIM_COUNT];           // ids, or KIN_TOKEN_NONE: tokens with well-known names are used
    const int32_t *suppressed;            // [n_suppressed] ids that are never sampled
    size_t n_suppressed;
} kin_vocab_spec;

// Returns llama.cpp's defaults for a kind and pre-tokenizer, for values missing from a file. No tokens, no merges. One
// difference: for BPE there are no default bos and eos (llama.cpp: 11, Falcon's).
kin_vocab_spec kin_vocab_spec_defaults(kin_vocab_kind kind, const char *pre);

// Fails on ids out of range, equal tokens, malformed merges, a missing token that add_bos or add_eos needs, exceeded limits,
// and if memory runs out. An empty token is named "[EMPTY_i]", as in llama.cpp.
int kin_vocab_new(kin_vocab **out, const kin_vocab_spec *spec, kin_err *err);
void kin_vocab_free(kin_vocab *vocab);

int32_t kin_vocab_n_tokens(const kin_vocab *vocab);
kin_vocab_kind kin_vocab_get_kind(const kin_vocab *vocab);
int32_t kin_vocab_bos(const kin_vocab *vocab); // these five: KIN_TOKEN_NONE if absent
int32_t kin_vocab_eos(const kin_vocab *vocab);
int32_t kin_vocab_eot(const kin_vocab *vocab);
int32_t kin_vocab_unk(const kin_vocab *vocab);
int32_t kin_vocab_pad(const kin_vocab *vocab);
int32_t kin_vocab_fim(const kin_vocab *vocab, kin_fim_role role); // as given by the file, not found by name
bool kin_vocab_add_bos(const kin_vocab *vocab);
bool kin_vocab_add_eos(const kin_vocab *vocab);

// Returns the *n ids that must never be sampled.
const int32_t *kin_vocab_suppressed(const kin_vocab *vocab, size_t *n);

// True for tokens that end the generation: eos, eot, eom and every token with a well-known name ("<|im_end|>", "<end_of_turn>",
// ...). False if the id is out of range.
bool kin_vocab_is_eog(const kin_vocab *vocab, int32_t id);

// For these three id is in [0, n_tokens).
kin_token_type kin_vocab_type(const kin_vocab *vocab, int32_t id);
kin_str kin_vocab_text(const kin_vocab *vocab, int32_t id);  // as spelled in the file
kin_str kin_vocab_piece(const kin_vocab *vocab, int32_t id); // the bytes that it represents; a SentencePiece space is ' '

// Returns the token with exactly this spelling, or KIN_TOKEN_NONE.
int32_t kin_vocab_find(const kin_vocab *vocab, const char *text, size_t len);
