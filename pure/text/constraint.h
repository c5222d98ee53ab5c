// Constraint: what one text may be, token by token: a grammar, from the text's beginning or after a marker.
//
// With a marker (a "lazy" grammar: "<tool_call>") everything is allowed until the text has it; what comes after it is the
// grammar's, also where one token ends the marker and goes on. kin_sampler_sample_constrained (sampler.h) asks the constraint.
//
// Owner: one generation, one thread: that of the matcher, which is borrowed and must have a trie.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "pure/text/matcher.h"

enum { KIN_CONSTRAINT_MAX_MARKER = 256 };

typedef struct kin_constraint kin_constraint;

// marker: bytes, copied; empty: from the beginning. For a control token: kin_token_trie_text of it.
int kin_constraint_new(kin_constraint **out, kin_matcher *matcher, kin_str marker, kin_err *err);
void kin_constraint_free(kin_constraint *constraint);

// Back to the beginning of a text. Like accept it returns 0, or KIN_FAIL without memory.
int kin_constraint_reset(kin_constraint *constraint, kin_err *err);

bool kin_constraint_allows(kin_constraint *constraint, int32_t id);

// All allowed tokens as bits (token_trie.h); lives until the next call.
const uint64_t *kin_constraint_mask(kin_constraint *constraint);

// Goes on by a token that is allowed; fails with a sentence if it is not.
int kin_constraint_accept(kin_constraint *constraint, int32_t id, kin_err *err);

// Whether nothing but the end can come.
bool kin_constraint_is_complete(const kin_constraint *constraint);
