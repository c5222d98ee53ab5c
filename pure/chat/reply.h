// A chat model's reply: the tools that it may call, and the events into which reply_parser.h splits it. Plain data.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"
#include "pure/chat/format.h"

enum {
    KIN_REPLY_MAX_HELD = 1 << 20, // bytes of an undecided call or of a parameter; beyond that it is text
    KIN_REPLY_MAX_NAME = 256,     // bytes of a tool's name
    KIN_REPLY_MAX_SPACE = 64,     // bytes of white space held back because a mark may follow
};

typedef struct kin_reply_tool {
    kin_str name;       // UTF-8
    kin_str parameters; // JSON schema of the arguments; empty: any object
    bool strict;        // used by reply_grammar.h only
} kin_reply_tool;

typedef struct kin_reply_options {
    const kin_chat_format *format; // borrowed until free; NULL: KIN_CHAT_PLAIN
    const kin_reply_tool *tools; // [n_tools]; the array and its strings are borrowed until free. Without tools there are no calls
    size_t n_tools;
    bool reasoning;           // the mark at the beginning begins reasoning
    bool begins_in_reasoning; // the prompt ends with that mark (kin_reply_thinking_of, tool_format.h). Ignored if the format has
                              // no mark for the end of reasoning
    bool reasoning_in_text;   // emit reasoning as TEXT, with its marks; it is still not searched for calls
} kin_reply_options;

typedef enum kin_reply_kind {
    KIN_REPLY_TEXT,
    KIN_REPLY_REASONING,
    KIN_REPLY_TOOL_BEGIN,     // has `name`; `tool` counts the calls of the reply from 0. Calls do not interleave
    KIN_REPLY_TOOL_ARGUMENTS, // a piece of the arguments' JSON
    KIN_REPLY_TOOL_END, // the pieces together are one JSON object. A call without END was cut off, by the end of the reply or
                        // where it ceased to be JSON; what follows is text
} kin_reply_kind;

typedef struct kin_reply_event {
    kin_reply_kind kind;
    int tool;
    kin_str text; // TEXT, REASONING, ARGUMENTS: never empty; UTF-8 if the input is
    kin_str name; // TOOL_BEGIN
    kin_str id;   // TOOL_BEGIN: the call's id if the model wrote one before the arguments; else empty
} kin_reply_event;
