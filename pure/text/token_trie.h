// Token trie: the texts of a vocabulary's tokens as two trees of bytes, so that tokens with a common beginning are looked at
// together. Built once for a vocabulary.
//
// A control token is there as what a grammar's reference to it is (token_reference.h), so no text matches it; those that end the
// generation are in none of the trees. Nor are unknown and unused tokens, tokens without text, with more than 65535 bytes of it,
// or with a byte 0xFF.
// Plain tokens have a tree of their own. They are whole UTF-8 of characters that a JSON string holds as they are: none below
// U+0020, not U+007F, no '"' and no '\'. Where a grammar takes any plain character (inside of a string), or so many of them,
// kin_token_trie_add_plain has the tokens, and nobody looks at the tree.
//
// Immutable; any thread may read it. The vocabulary is borrowed until free.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/text/vocab.h"

enum { KIN_TOKEN_TRIE_N_SETS = 16 }; // sets of plain tokens by number of characters: up to 0, 1, ..., 15

typedef struct kin_long_token { // a plain token of more characters than that
    int32_t id;
    uint32_t n_chars;
} kin_long_token;

typedef struct kin_token_node { // in the order of a walk from the root: a node's first child comes right after it
    uint32_t end;               // node after the last one below this
    int32_t token;              // whose text ends here; n_tokens: none
    uint16_t depth;             // bytes from the root: 1 and more
    uint8_t byte;
} kin_token_node;

typedef struct kin_token_tree {
    kin_token_node *nodes;
    uint32_t n_nodes;
} kin_token_tree;

typedef struct kin_token_trie {
    const kin_vocab *vocab;
    int32_t n_tokens;
    uint32_t n_words; // of a set of tokens as bits: uint64_t [n_words], token i is bit i % 64 of word i / 64; there is room
                      // for one more token than there are
    kin_token_tree plain, other;
    uint32_t longest;       // bytes of the longest token: the largest depth
    uint32_t longest_plain; // characters of the longest plain token
    int32_t (*same)[2];     // [n_same] tokens that are in no tree, and the one in a tree that has the same text
    uint32_t n_same;
    uint64_t *plain_sets;       // [KIN_TOKEN_TRIE_N_SETS][n_words]
    kin_long_token *long_plain; // [n_long_plain]
    uint32_t n_long_plain;
    char (*references)[4]; // [n_tokens] of control tokens
    uint64_t *ends;        // [n_words] tokens that end the generation
} kin_token_trie;

// Fails without memory only.
int kin_token_trie_new(kin_token_trie **out, const kin_vocab *vocab, kin_err *err);
void kin_token_trie_free(kin_token_trie *trie);

// The bytes that a token is in the trees: those that it adds to a text, or a reference to it; empty if it is in none. id in
// [0, n_tokens).
kin_str kin_token_trie_text(const kin_token_trie *trie, int32_t id);

// Adds all plain tokens of at most so many characters to the set.
void kin_token_trie_add_plain(const kin_token_trie *trie, uint32_t n_chars, uint64_t *set);

// After the trees' tokens were added: adds those with the same text, and takes out the one that is none.
void kin_token_trie_finish(const kin_token_trie *trie, uint64_t *set);

static inline void kin_token_set_add(uint64_t *set, int32_t id) {
    set[id / 64] |= (uint64_t)1 << (id % 64);
}

static inline bool kin_token_set_has(const uint64_t *set, int32_t id) {
    return set[id / 64] >> (id % 64) & 1;
}
