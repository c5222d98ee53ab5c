// Writes the parts that all rules of a reply's grammar have: marks, text without marks, the schemas of tools. reply_grammar.c
// writes calls in JSON, text and reasoning; reply_grammar_values.c arguments in other syntaxes.
//
// Owner: the function that writes a grammar; everything in it is borrowed. Thread: any. Running out of memory is noted in the
// buffers (text_buffer.h).
//
// Rules: s0, s1, ... of schemas, and those of schema_string.h; call: one call; bare: a name and arguments; calls, body, root;
// raw: the text of a parameter; parameter: any parameter; any: any value of a loose syntax; item-T-I: a parameter, more-T-I: the
// rest of a list of them.
#pragma once

#include "pure/chat/reply_rules.h"
#include "pure/grammar/schema.h"
#include "pure/grammar/schema_grammar.h"
#include "pure/text/json.h"
#include "pure/tokenizer/vocab.h"

typedef struct kin_reply_writer {
    const kin_reply_rules *rules;
    const kin_chat_format *format;
    const kin_vocab *vocab;
    kin_schema_grammar *to;
    kin_text_buffer *gbnf; // of `to`: complete rules
    kin_text_buffer *line; // the rule being written
    bool any_arguments;    // ignore the schemas of tools that are not strict
    kin_err *err;
} kin_reply_writer;

void kin_reply_put(kin_reply_writer *w, const char *text);
// Writes text to be matched as it is; nothing for an empty one.
void kin_reply_put_literal(kin_reply_writer *w, kin_str text);
void kin_reply_end_rule(kin_reply_writer *w, const char *name);
// Writes a mark: its control tokens as tokens, the rest as text; a line end in it is any white space.
void kin_reply_put_mark(kin_reply_writer *w, const char *mark);
// True if the mark has a control token in it, so that no text contains it.
bool kin_reply_is_token(const kin_reply_writer *w, const char *mark);
// Writes text that does not contain the mark.
void kin_reply_put_text_without(kin_reply_writer *w, const char *mark);
// The same for two marks, of which the second one counts if both begin with the same character. "": none.
void kin_reply_put_text_without_both(kin_reply_writer *w, const char *mark, const char *other);

// Writes rules for a schema of a tool, and appends their name to the line. text: NULL, or how its strings are written. If that is
// impossible: appends `instead`, or fails if the tool is strict.
int kin_reply_put_schema(kin_reply_writer *w, const kin_json *json, const kin_json_value *schema, const kin_schema_text *text,
                         const kin_reply_tool *tool, const char *instead);
// Writes an object of the tool's schema, in the form of `text`. any: the rule of any object.
int kin_reply_put_arguments(kin_reply_writer *w, const kin_reply_tool *tool, const kin_schema_text *text, const char *any);
#define KIN_REPLY_TOO_LARGE "the tools together are too large, or one cannot be satisfied"

// Notes what is ignored of a tool's schema, for kin_reply_rules' `relaxed`.
void kin_reply_note_relaxed(kin_reply_writer *w, const kin_reply_tool *tool, kin_str why);
// Names the tool in the error. Returns KIN_FAIL.
int kin_reply_name_tool(kin_reply_writer *w, const kin_reply_tool *tool);
