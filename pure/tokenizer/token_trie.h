// Token trie: the texts of a vocabulary's tokens as two trees of bytes, so that tokens with a common prefix are examined
// together. Built once for a vocabulary.
//
// A control token appears as its reference (token_reference.h), so no text matches it; tokens that end the generation are in
// neither tree. Nor are unknown and unused tokens, and tokens whose text is empty, longer than 65535 bytes, or contains a byte
// 0xFF.
//
// Plain tokens have their own tree. They consist of complete UTF-8 characters that a JSON string contains unescaped: none below
// U+0020, not U+007F, no '"' and no '\'. Where a grammar accepts any plain character (within a string), or a limited number of
// them, kin_token_trie_add_plain adds the tokens without a walk of the tree.
//
// Immutable; any thread may read it. The vocabulary is borrowed until free.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/tokenizer/vocab.h"

enum { KIN_TOKEN_TRIE_N_SETS = 16 }; // sets of plain tokens by number of characters: up to 0, 1, ..., 15

typedef struct kin_long_token { // a plain token with more characters than the largest set
    int32_t id;
    uint32_t n_chars;
} kin_long_token;

typedef struct kin_token_node { // in preorder: the first child of a node directly follows it
    uint32_t end;               // index of the node after the last descendant
    int32_t token;              // the token that ends here; n_tokens: none
    uint16_t depth;             // bytes from the root, from 1
    uint8_t byte;
} kin_token_node;

typedef struct kin_token_tree {
    kin_token_node *nodes;
    uint32_t n_nodes;
} kin_token_tree;

typedef struct kin_token_trie {
    const kin_vocab *vocab;
    int32_t n_tokens;
    uint32_t n_words; // words of a token set: uint64_t [n_words], token i is bit i % 64 of word i / 64; there is room for one
                      // more token
    kin_token_tree plain, other;
    uint32_t longest;       // bytes of the longest token: the largest depth
    uint32_t longest_plain; // characters of the longest plain token
    int32_t (*same)[2];     // [n_same] pairs of a token that is in no tree and the token in a tree with the same text
    uint32_t n_same;
    uint64_t *plain_sets;       // [KIN_TOKEN_TRIE_N_SETS][n_words]
    kin_long_token *long_plain; // [n_long_plain]
    uint32_t n_long_plain;
    char (*references)[4]; // [n_tokens] references of control tokens
    uint64_t *ends;        // [n_words] tokens that end the generation
} kin_token_trie;

// Fails only if memory runs out.
int kin_token_trie_new(kin_token_trie **out, const kin_vocab *vocab, kin_err *err);
void kin_token_trie_free(kin_token_trie *trie);

// Returns the bytes of a token in the trees: its text, or the reference to a control token; empty if it is in neither tree. id
// in [0, n_tokens).
kin_str kin_token_trie_text(const kin_token_trie *trie, int32_t id);

// Adds all plain tokens of at most n_chars characters to the set.
void kin_token_trie_add_plain(const kin_token_trie *trie, uint32_t n_chars, uint64_t *set);

// Call after the tokens of the trees were added: adds the tokens with the same text, and removes the placeholder n_tokens.
void kin_token_trie_finish(const kin_token_trie *trie, uint64_t *set);

static inline void kin_token_set_add(uint64_t *set, int32_t id) {
    set[id / 64] |= (uint64_t)1 << (id % 64);
}

static inline bool kin_token_set_has(const uint64_t *set, int32_t id) {
    return set[id / 64] >> (id % 64) & 1;
}
