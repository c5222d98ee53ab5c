// A budget of reasoning: how many tokens a text may have between <think> and </think>. When they are spent, the end is forced:
// the next tokens are given, not sampled.
//
//   next() ─► an id that must come, or KIN_FAIL: sample one ─► accept()
//
// Reasoning is where the reply's parser sees it (reply_parser.h): from <think> at the beginning of the text, or from its
// beginning, where the prompt ends with <think>.
//
// Owner: one generation, one thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct kin_thinking_budget kin_thinking_budget;

// begun: the prompt ends with <think>. end [n_end]: the tokens that end the reasoning, copied; </think> is at their end.
int kin_thinking_budget_new(kin_thinking_budget **out, int n_tokens, bool begun, const int32_t *end, int n_end, kin_err *err);
void kin_thinking_budget_free(kin_thinking_budget *budget); // NULL is allowed

int32_t kin_thinking_budget_next(const kin_thinking_budget *budget);
// The text's next token; text: its bytes, of a control token its name.
void kin_thinking_budget_accept(kin_thinking_budget *budget, kin_str text);
