// Reply parser: splits a chat model's reply, while it is generated, into text, reasoning and tool calls.
//
// The model's format (kin_chat_format, chat/format.h) says which marks begin and end reasoning and calls, and how a call is
// written. Bytes that may begin a mark are held back until the next bytes decide. An invalid call (not JSON, or an unknown tool)
// is text. Every input byte comes out in an event, except marks, white space around them, and the parts of a call other than its
// name and arguments.
//
// Reasoning is the part between the format's marks at the beginning of a reply; in channels it may come several times. It is not
// searched for calls.
//
// Push all text of the generation except the end token, that is, the output of kin_detok_push. A control token prints nothing
// there; if kin_chat_format_has_token is true for its name, push the name (after kin_detok_flush, if a character was incomplete).
//
// Bounded: KIN_REPLY_MAX_*. Uses no JSON library: arguments are passed on as bytes of JSON as they arrive; if the name comes
// after the arguments, when the call is complete; between marks of each parameter, when each is complete; as in Python and
// between the format's own quotes, when the call is complete.
//
// Owner: one generation, one thread. Events are valid until the next call.
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

typedef struct kin_reply_parser kin_reply_parser;

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

int kin_reply_parser_new(kin_reply_parser **out, const kin_reply_options *options, kin_err *err);
void kin_reply_parser_free(kin_reply_parser *parser); // NULL is allowed

// Parses more of the reply: any bytes, cut anywhere. events [*n]: the newly decided parts. With adjacent events of one kind
// joined, the events do not depend on where the reply was cut. Returns KIN_FAIL if memory runs out; then the parser can only be
// freed.
int kin_reply_parser_push(kin_reply_parser *parser, const char *at, size_t len, const kin_reply_event **events, int *n);

// Ends the reply: emits what was held back, with the results of push. Nothing may be pushed afterwards. is_cut: the reply was
// truncated; then an unfinished call or mark is dropped instead of being text.
int kin_reply_parser_flush(kin_reply_parser *parser, bool is_cut, const kin_reply_event **events, int *n);

// True if the last byte pushed is within a call: from the mark that begins it, or the first byte of its object, up to its
// last byte.
bool kin_reply_parser_is_in_call(const kin_reply_parser *parser);

// True if the text, pushed now, would be a mark that begins or ends a call (*is_whole), or the beginning of one. Only outside
// calls.
bool kin_reply_parser_marks_call(const kin_reply_parser *parser, kin_str text, bool *is_whole);
