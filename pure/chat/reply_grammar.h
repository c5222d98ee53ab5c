// The grammar of a reply: constrains a model so that its tool calls are valid, in the format of its chat template.
//
// The grammar covers the whole reply from its first token: first reasoning, if allowed; then calls (tool_choice: required, or a
// tool by name), or text and optionally calls after it (auto). A call that has begun is valid, and the reply ends with the last
// call. Control tokens that belong to a call are token references (<[id]>, gbnf.h); other control tokens and invalid UTF-8 are
// impossible.
//
// A call names one of the given tools, and its arguments match the tool's schema. They are a JSON object, or what the format has
// instead. Where parameters stand between marks, one that may be a string is plain text: free, or as its keywords (enum, pattern,
// format, lengths) want it; with a pattern or a format it has no quotes, backslashes and control characters. As in Python
// and between the format's own quotes, strings, lists and objects with nothing but types are written in that syntax, and what has
// other keywords as JSON, which the parser reads there too. A keyword that schema.h does not support is ignored and the rest of
// the schema applies; if the schema is invalid, or all schemas together are too large, the arguments may be any object (between
// marks: any parameters with any text). With `strict` each of these is an error.
#pragma once

#include "pure/chat/reply_rules.h"
#include "pure/tokenizer/vocab.h"

// Writes the rules as GBNF. vocab: supplies the control tokens; NULL: all markers are text. Fails with a sentence if calls are
// required but there are no tools, if a name cannot be written in the format, or if `schema` or the schema of a strict tool is
// not supported.
int kin_reply_rules_to_gbnf(const kin_reply_rules *rules, const kin_vocab *vocab, kin_text_buffer *gbnf, kin_err *err);

// Writes and compiles the rules. If the grammar is too large with the tools' schemas, the arguments may be any object. The
// grammar may be reused for requests with equal rules.
int kin_reply_grammar_new(kin_grammar **out, const kin_reply_rules *rules, const kin_vocab *vocab, kin_err *err);
