// Matcher: where in a grammar a text stands, which tokens may come next.
//
// A **place** is a value: all stacks of calls that the text so far can have, as one graph in which equal parts are shared. It
// belongs to a sequence. Copy it to save and restore (drafts) or to fork a sequence; it is as large as the calls are deep, some
// hundred bytes.
//
// The matcher itself is working memory and a cache. Every set of stacks that was met has a number and a row of transitions by
// bytes, computed when first asked for, so looking at a vocabulary costs a table look-up for each node of its trie. When the
// cache is full it is emptied; places are not affected. One matcher serves all sequences of its grammar on one thread.
//
// Equal stacks are one, and calls of one machine at one point of the text share what comes after them, so ambiguous grammars need
// polynomially many stacks. Beyond the limits below a byte is refused, always in the same way; so a text nests at most
// KIN_MATCHER_MAX_DEPTH calls deep.
//
// Owner: one thread. Grammar and trie are borrowed. Everything is allocated by new, but for places, which grow with their depth.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/text/grammar.h"
#include "pure/text/token_trie.h"

enum {
    KIN_MATCHER_MAX_DEPTH = 512,     // calls in each other, not counting those at the end of a machine
    KIN_MATCHER_MAX_ITEMS = 4096,    // ways to read a text on at one point of it
    KIN_MATCHER_MAX_LISTS = 1 << 14, // stacks and sets of stacks in the cache
    KIN_MATCHER_MAX_STEPS = 1 << 22, // ways looked at for one mask: some 50 ms
    KIN_MATCHER_MAX_CELLS = 1 << 21, // transitions in the cache: 8 MiB
};

typedef struct kin_matcher kin_matcher;

typedef struct kin_place { // zero-initialised, then written by these functions; fini frees it
    uint32_t *words;       // [n_words]
    uint32_t n_words, cap_words;
} kin_place;

// trie: of the vocabulary whose tokens are asked about; NULL: bytes only.
int kin_matcher_new(kin_matcher **out, const kin_grammar *grammar, const kin_token_trie *trie, kin_err *err);
void kin_matcher_free(kin_matcher *matcher);
const kin_token_trie *kin_matcher_trie(const kin_matcher *matcher);

// The beginning of a text. These four return 0, or KIN_FAIL without memory (the place is as before).
int kin_matcher_begin(kin_matcher *matcher, kin_place *place);
int kin_place_copy(kin_place *to, const kin_place *from);
void kin_place_fini(kin_place *place);

// Goes on by bytes or by a token: *allowed says whether the grammar takes them; if not, the place is as before. A token that ends
// the generation is allowed where the text may end, and leaves the place as it is. id in [0, n_tokens).
int kin_matcher_accept_bytes(kin_matcher *matcher, kin_place *place, const char *at, size_t len, bool *allowed);
int kin_matcher_accept(kin_matcher *matcher, kin_place *place, int32_t id, bool *allowed);

// Whether the text may end here; whether it can go on.
bool kin_place_may_end(const kin_place *place);
bool kin_place_may_go_on(const kin_place *place);

// Whether the token is allowed next.
bool kin_matcher_allows(kin_matcher *matcher, const kin_place *place, int32_t id);

// All tokens for which that is so: set [trie->n_words], see token_trie.h. Where a very ambiguous grammar needs more than
// KIN_MATCHER_MAX_STEPS, tokens that were not looked at are left out.
void kin_matcher_mask(kin_matcher *matcher, const kin_place *place, uint64_t *set);
