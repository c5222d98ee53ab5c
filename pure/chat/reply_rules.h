// The rules of a reply: whether it may have reasoning, tools, text. Plain data, from which reply_grammar.h makes a grammar.
#pragma once

#include "pure/chat/reply.h"
#include "pure/grammar/grammar.h"
#include "pure/text/text_buffer.h"

enum {
    KIN_REPLY_MAX_TOOLS = 512,
    KIN_REPLY_MAX_CALLS = 64, // in one reply
};

typedef enum kin_reply_thinking {
    KIN_THINKING_NONE,      // the reply has no reasoning
    KIN_THINKING_MAY_BEGIN, // it may begin with the format's mark
    KIN_THINKING_BEGUN,     // the prompt ends with that mark
} kin_reply_thinking;

typedef struct kin_reply_rules {
    const kin_chat_format *format; // NULL: KIN_CHAT_PLAIN
    kin_reply_thinking thinking;
    const kin_reply_tool *tools; // [n_tools] tools that may be called; for tool_choice with a name only that tool
    size_t n_tools;
    bool required;  // calls only, no text
    bool parallel;  // one or more calls; false: one
    kin_str schema; // JSON schema of the text (response_format); empty: any text
    bool strict;    // an unsupported keyword in `schema` is an error
    // NULL, or borrowed: ignored keywords are appended, named as by kin_schema_put_rules, with the prefix "tools.NAME" for
    // those of a tool.
    kin_text_buffer *relaxed;
    kin_grammar_budget *budget; // borrowed; NULL: one of KIN_GRAMMAR_MAX_STEPS
} kin_reply_rules;
