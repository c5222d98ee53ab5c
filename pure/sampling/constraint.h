// Constraint: restricts one generation, token by token, to a grammar, either from its beginning or after a marker.
//
// With a marker (a "lazy" grammar: "<tool_call>") every token is allowed until the marker has been generated. The text after
// the marker must match the grammar, even if the token that completes the marker also contains the first bytes after it.
// kin_sampler_sample_constrained (sampler.h) applies the constraint.
//
// Owner: one generation. Thread: that of the matcher, which is borrowed and must have a trie.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/grammar/matcher.h"

enum { KIN_CONSTRAINT_MAX_MARKER = 256 };

typedef struct kin_constraint kin_constraint;

// marker: bytes, copied; empty: the grammar applies from the beginning. For a control token pass its kin_token_trie_text.
int kin_constraint_new(kin_constraint **out, kin_matcher *matcher, kin_str marker, kin_err *err);
void kin_constraint_free(kin_constraint *constraint);

// Returns to the beginning of a text. Like accept, it returns KIN_FAIL if memory runs out.
int kin_constraint_reset(kin_constraint *constraint, kin_err *err);

bool kin_constraint_allows(kin_constraint *constraint, int32_t id);

// Returns all allowed tokens as bits (token_trie.h); valid until the next call.
const uint64_t *kin_constraint_mask(kin_constraint *constraint);

// Advances by a token. Fails with a sentence if the token is not allowed.
int kin_constraint_accept(kin_constraint *constraint, int32_t id, kin_err *err);

// True if only the end of the text is allowed.
bool kin_constraint_is_complete(const kin_constraint *constraint);
