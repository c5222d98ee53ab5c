// Matcher: tracks the position of a text in a grammar and determines which tokens may come next.
//
// A **place** is a value: all call stacks that the text so far can have, as one graph with shared parts. Each sequence has its
// own; copy it to save and restore (drafts) or to fork a sequence. Its size grows with the call depth, typically some hundred
// bytes.
//
// The matcher is working memory and a cache. Every set of stacks that has occurred has a number and a row of transitions by
// byte, computed on demand, so a pass over the vocabulary costs one table look-up per trie node. A full cache is emptied;
// places are not affected. One matcher serves all sequences of its grammar on one thread.
//
// Equal stacks are merged, and calls of one machine at one point of the text share their continuation, so ambiguous grammars
// need polynomially many stacks. Beyond the limits below a byte is always rejected, so calls nest at most KIN_MATCHER_MAX_DEPTH
// deep.
//
// Owner: one thread. Grammar and trie are borrowed. Everything is allocated by new, except places, which grow with their depth.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/grammar/grammar.h"
#include "pure/tokenizer/token_trie.h"

enum {
    KIN_MATCHER_MAX_DEPTH = 512,     // nested calls, not counting tail calls
    KIN_MATCHER_MAX_ITEMS = 4096,    // alternatives at one point of the text
    KIN_MATCHER_MAX_LISTS = 1 << 14, // stacks and sets of stacks in the cache
    KIN_MATCHER_MAX_STEPS = 1 << 22, // alternatives examined for one mask: about 50 ms
    KIN_MATCHER_MAX_CELLS = 1 << 21, // transitions in the cache: 8 MiB
};

typedef struct kin_matcher kin_matcher;

typedef struct kin_place { // zero-initialised, written by the functions below, freed by fini
    uint32_t *words;       // [n_words]
    uint32_t n_words, cap_words;
} kin_place;

// trie: of the vocabulary whose tokens will be matched; NULL: bytes only.
int kin_matcher_new(kin_matcher **out, const kin_grammar *grammar, const kin_token_trie *trie, kin_err *err);
void kin_matcher_free(kin_matcher *matcher);
const kin_token_trie *kin_matcher_trie(const kin_matcher *matcher);

// Sets the place to the beginning of a text. begin, copy and the two accept functions return KIN_FAIL if memory runs out; the
// place is unchanged then.
int kin_matcher_begin(kin_matcher *matcher, kin_place *place);
int kin_place_copy(kin_place *to, const kin_place *from);
void kin_place_fini(kin_place *place);

// Advances by bytes or by a token. *allowed: the grammar accepts them; otherwise the place is unchanged. A token that ends the
// generation is allowed where the text may end, and leaves the place unchanged. id in [0, n_tokens).
int kin_matcher_accept_bytes(kin_matcher *matcher, kin_place *place, const char *at, size_t len, bool *allowed);
int kin_matcher_accept(kin_matcher *matcher, kin_place *place, int32_t id, bool *allowed);

// may_end: the text may end here. may_go_on: the text can continue.
bool kin_place_may_end(const kin_place *place);
bool kin_place_may_go_on(const kin_place *place);

// True if the token is allowed next.
bool kin_matcher_allows(kin_matcher *matcher, const kin_place *place, int32_t id);

// Writes all allowed tokens to set [trie->n_words], see token_trie.h. If a very ambiguous grammar needs more than
// KIN_MATCHER_MAX_STEPS, tokens that were not examined are left out.
void kin_matcher_mask(kin_matcher *matcher, const kin_place *place, uint64_t *set);
