// Two vocabularies small enough to compute tokens by hand. For tests and fuzzers.
//
// SPM   0 <unk>, 1 <s>, 2 </s>, 3..258 the bytes, then SMALL_SPM_* below, each with its score.
//       A text begins with <s> and with a space.
// BPE   0..255 the bytes, then SMALL_BPE_*. The merges, best first: l l, h e, he ll, hell o, Ġ w, q u ("qu" is no token).
#pragma once

#include <stdio.h>
#include <string.h>

#include "pure/tokenizer/byte_alphabet.h"
#include "pure/tokenizer/vocab.h"

enum {
    SMALL_SPM_BYTES = 3,
    SMALL_SPM_SPACE = 259, // "▁" -6
    SMALL_SPM_A,           // "a" -7
    SMALL_SPM_B,           // "b" -7
    SMALL_SPM_C,           // "c" -7
    SMALL_SPM_AB,          // "ab" -2
    SMALL_SPM_BC,          // "bc" -1
    SMALL_SPM_AA,          // "aa" -3
    SMALL_SPM_SPACE_A,     // "▁a" -5
    SMALL_SPM_SPACES,      // "▁▁" -4
    SMALL_SPM_USER,        // "<|u|>" user-defined
    SMALL_SPM_CONTROL,     // "<|c|>" control
    SMALL_SPM_LONG,        // "<|c|><|u|>" control: longer than either of its halves
    SMALL_SPM_N,
};

enum {
    SMALL_BPE_LL = 256,
    SMALL_BPE_HE,
    SMALL_BPE_HELL,
    SMALL_BPE_HELLO,
    SMALL_BPE_SPACE_W,
    SMALL_BPE_XYZ,     // no merge leads to it
    SMALL_BPE_USER,    // "<|u|>" user-defined
    SMALL_BPE_CONTROL, // "<|c|>" control
    SMALL_BPE_IM_END,  // "<|im_end|>" normal: its name makes it a control token that ends the generation
    SMALL_BPE_N,
};

static inline kin_str small_piece(const char *text) {
    return (kin_str){text, strlen(text)};
}

// Returns a spec that points into static storage: change it as a test needs, then build. One at a time.
static inline kin_vocab_spec small_spm_spec(void) {
    static char names[256][8];
    static kin_str tokens[SMALL_SPM_N + 1]; // room for one more
    static float scores[SMALL_SPM_N + 1];
    static int32_t types[SMALL_SPM_N + 1];
    static const struct {
        const char *text;
        float score;
    } words[] = {
        {"\xe2\x96\x81", -6},
        {"a", -7},
        {"b", -7},
        {"c", -7},
        {"ab", -2},
        {"bc", -1},
        {"aa", -3},
        {"\xe2\x96\x81"
         "a",
         -5},
        {"\xe2\x96\x81\xe2\x96\x81", -4},
        {"<|u|>", 0},
        {"<|c|>", 0},
        {"<|c|><|u|>", 0},
    };
    tokens[0] = small_piece("<unk>");
    tokens[1] = small_piece("<s>");
    tokens[2] = small_piece("</s>");
    types[0] = KIN_TOKEN_UNKNOWN;
    types[1] = types[2] = KIN_TOKEN_CONTROL;
    for (int b = 0; b < 256; b++) {
        snprintf(names[b], sizeof names[b], "<0x%02X>", b);
        tokens[SMALL_SPM_BYTES + b] = small_piece(names[b]);
        types[SMALL_SPM_BYTES + b] = KIN_TOKEN_BYTE;
    }
    for (int i = SMALL_SPM_SPACE; i < SMALL_SPM_N; i++) {
        tokens[i] = small_piece(words[i - SMALL_SPM_SPACE].text);
        scores[i] = words[i - SMALL_SPM_SPACE].score;
        types[i] = KIN_TOKEN_NORMAL;
    }
    types[SMALL_SPM_USER] = KIN_TOKEN_USER_DEFINED;
    types[SMALL_SPM_CONTROL] = types[SMALL_SPM_LONG] = KIN_TOKEN_CONTROL;
    kin_vocab_spec spec = kin_vocab_spec_defaults(KIN_VOCAB_SPM, NULL);
    spec.n_tokens = SMALL_SPM_N;
    spec.tokens = tokens;
    spec.scores = scores;
    spec.types = types;
    return spec;
}

// The same tokens with merges instead of scores.
static inline kin_vocab_spec small_spaced_spec(void) {
    static const char *const texts[] = {"a b", "b c", "\xe2\x96\x81 a", "a a"};
    enum { N_MERGES = sizeof texts / sizeof *texts };
    static kin_str merges[N_MERGES];
    for (int i = 0; i < N_MERGES; i++) merges[i] = small_piece(texts[i]);
    kin_vocab_spec spec = small_spm_spec();
    spec.kind = KIN_VOCAB_SPACED_BPE;
    spec.add_bos = spec.add_space_prefix = false;
    spec.n_merges = N_MERGES;
    spec.merges = merges;
    return spec;
}

static inline kin_vocab_spec small_bpe_spec(const char *pre) {
    static char letters[256][KIN_BYTE_ALPHABET_MAX];
    static kin_str tokens[SMALL_BPE_N + 1]; // room for one more
    static int32_t types[SMALL_BPE_N + 1];
    static const char *const words[] = {"ll", "he", "hell", "hello", "\xc4\xa0w", "xyz", "<|u|>", "<|c|>", "<|im_end|>"};
    static const char *const merge_texts[] = {"l l", "h e", "he ll", "hell o", "\xc4\xa0 w", "q u"};
    enum { N_MERGES = sizeof merge_texts / sizeof *merge_texts };
    static kin_str merges[N_MERGES];
    for (int b = 0; b < 256; b++) {
        tokens[b] = (kin_str){letters[b], (size_t)kin_byte_alphabet_put(letters[b], (uint8_t)b)};
        types[b] = KIN_TOKEN_NORMAL;
    }
    for (int i = SMALL_BPE_LL; i < SMALL_BPE_N; i++) {
        tokens[i] = small_piece(words[i - SMALL_BPE_LL]);
        types[i] = KIN_TOKEN_NORMAL;
    }
    types[SMALL_BPE_USER] = KIN_TOKEN_USER_DEFINED;
    types[SMALL_BPE_CONTROL] = KIN_TOKEN_CONTROL;
    for (int i = 0; i < N_MERGES; i++) merges[i] = small_piece(merge_texts[i]);
    kin_vocab_spec spec = kin_vocab_spec_defaults(KIN_VOCAB_BPE, pre);
    spec.add_bos = false;
    spec.n_tokens = SMALL_BPE_N;
    spec.tokens = tokens;
    spec.types = types;
    spec.n_merges = N_MERGES;
    spec.merges = merges;
    return spec;
}

static inline kin_vocab *small_vocab(kin_vocab_spec spec) {
    kin_vocab *vocab;
    kin_err err;
    int rc = kin_vocab_new(&vocab, &spec, &err);
    if (rc < 0) fprintf(stderr, "%s\n", err.text);
    kin_assert(rc == 0);
    return vocab;
}
