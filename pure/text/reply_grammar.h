// The grammar of a reply: what a model may write, so that the calls it makes are calls, in the format of its chat template.
//
// The whole reply is the grammar's, from its first token: reasoning first, where the model may reason; then the calls
// (tool_choice: required, or one by name), or text and after it calls or none (auto). A call that has begun is valid, and the
// reply ends with the last one. Control tokens that belong to a call are asked for as such (<[id]>, gbnf.h); no other control
// token is possible, nor are bytes that are no UTF-8.
//
// What holds of a call: its tool is one of these, its arguments are a JSON object of the tool's schema. In the XML format a
// parameter that may be a string is free text, but for an enum of strings. A keyword that schema.h does not support is left out,
// and the rest of the schema holds; where it is no schema at all, or all together are too large, the arguments are any object (in
// XML: any parameters, any text); with `strict` that is an error.
#pragma once

#include "pure/text/grammar.h"
#include "pure/text/reply_parser.h"
#include "pure/text/text_buffer.h"
#include "pure/text/vocab.h"

enum {
    KIN_REPLY_MAX_TOOLS = 512,
    KIN_REPLY_MAX_CALLS = 64, // of one reply
};

typedef enum kin_reply_thinking {
    KIN_THINKING_NONE,      // the reply has no reasoning
    KIN_THINKING_MAY_BEGIN, // it may begin with <think>
    KIN_THINKING_BEGUN,     // the prompt ends with <think>
} kin_reply_thinking;

typedef struct kin_reply_rules {
    kin_reply_format format;
    kin_reply_thinking thinking;
    const kin_reply_tool *tools; // [n_tools] of which calls may be; tool_choice with a name: that one
    size_t n_tools;
    bool required;  // calls and no text
    bool parallel;  // one or several calls; else one
    kin_str schema; // JSON schema of the text (response_format); empty: any text
    bool strict;    // what is not supported in it is an error
    // Borrowed, or NULL: what is not supported and says nothing, as kin_schema_put_rules names it, "tools.NAME" before what is a
    // tool's.
    kin_text_buffer *relaxed;
} kin_reply_rules;

// Writes it as GBNF. vocab: for its control tokens; NULL: all markers are text. Fails with a sentence: without tools where calls
// are required, a name that the format cannot have, a schema of `schema` or of a strict tool that is not understood.
int kin_reply_rules_to_gbnf(const kin_reply_rules *rules, const kin_vocab *vocab, kin_text_buffer *gbnf, kin_err *err);

// And compiles it; takes schemas of tools as any object if it is too large with them. The grammar may be kept for other requests
// with the same rules.
int kin_reply_grammar_new(kin_grammar **out, const kin_reply_rules *rules, const kin_vocab *vocab, kin_err *err);
