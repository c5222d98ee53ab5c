// Reasoning budget: limits the number of tokens between the format's marks of reasoning. When it is used up, the end is forced:
// the next tokens are given instead of sampled.
//
//   next() ─► an id that must come, or KIN_FAIL: sample one ─► accept()
//
// Reasoning is recognised as in the reply parser (reply_parser.h): after think_begin at the beginning of the text, or from the
// beginning if the prompt ends with it.
//
// Owner: one generation, one thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "pure/chat/format.h"

typedef struct kin_thinking_budget kin_thinking_budget;

// n_tokens: the budget. format: its marks of reasoning are copied. begun: the prompt ends with the mark that begins reasoning.
// end [n_end]: the tokens that end the reasoning, copied; they end with think_end.
int kin_thinking_budget_new(kin_thinking_budget **out, const kin_chat_format *format, int n_tokens, bool begun,
                            const int32_t *end, int n_end, kin_err *err);
void kin_thinking_budget_free(kin_thinking_budget *budget); // NULL is allowed

int32_t kin_thinking_budget_next(const kin_thinking_budget *budget);
// Accepts the next token of the sequence; text: its bytes, or the name of a control token.
void kin_thinking_budget_accept(kin_thinking_budget *budget, kin_str text);
