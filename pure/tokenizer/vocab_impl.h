// Internals of kin_vocab, for the encoders of this directory.
#pragma once

#include "pure/text/string_table.h"
#include "pure/tokenizer/merge_table.h"
#include "pure/tokenizer/vocab.h"

#define KIN_SPM_SPACE "\xe2\x96\x81" // U+2581, as SentencePiece writes a space
#define KIN_SPM_SPACE_LEN 3

struct kin_vocab {
    kin_vocab_kind kind;
    char *pre; // BPE: name of the pre-tokenizer
    int32_t n_tokens;

    // Strings 0..n_tokens-1 are the tokens as spelled in the file. BPE: they are followed by symbols that merges and bytes need
    // but that are not tokens. So a symbol is a token iff it is < n_tokens.
    kin_string_table texts;

    char *pieces;          // all pieces, end to end
    uint32_t *piece_begin; // [n_tokens + 1]
    float *scores;         // [n_tokens] SPM, else NULL
    uint8_t *types;        // [n_tokens] kin_token_type
    bool *is_eog;          // [n_tokens]
    size_t longest;        // bytes of the longest token's text

    kin_merge_table merges;     // BPE; between symbols
    uint32_t byte_symbols[256]; // BPE: the initial symbol of each byte
    int32_t byte_tokens[256];   // for a byte that is in no token: its byte token, else unk, else KIN_TOKEN_NONE

    int32_t bos, eos, eot, eom, unk, pad;
    int32_t fim[KIN_FIM_COUNT];
    int32_t *suppressed; // [n_suppressed]
    size_t n_suppressed;
    bool add_bos, add_eos, add_space_prefix, ignore_merges;
    bool *owns_space; // [n_tokens] white space after this special token belongs to it; NULL: after none
};
