// A reply parser: splits what a chat model writes, while it is written, into text, reasoning and tool calls.
//
// Formats (kin_reply_format) differ in their markers; which one a model uses is told by its chat template (tool_format.h). Bytes
// that may be the beginning of a marker are held back until it is decided. What looks like a call and is none (no JSON, a tool
// that nobody offered) is text. Every byte of the input comes out in an event, but for markers, white space around them, and what
// a call has beside its name and its arguments.
//
// Reasoning is what a reply has between <think> and </think> at its beginning. Calls are not looked for in it.
//
// What to push: all text of the generation but the end token, so what kin_detok_push gives. A control token prints nothing there;
// where kin_reply_is_marker(its text), push that text (after kin_detok_flush, if a character was not whole).
//
// Bounded: KIN_REPLY_MAX_*. No JSON library: arguments are passed on as bytes of JSON while they come, or (names that come after
// the arguments) when the call is whole; in the XML format each parameter when it is whole.
//
// Owner: one generation, one thread. Events live until the next call.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

enum {
    KIN_REPLY_MAX_HELD = 1 << 20, // bytes of a call that is not decided, of a parameter: beyond that it is text
    KIN_REPLY_MAX_NAME = 256,     // bytes of a tool's name
    KIN_REPLY_MAX_SPACE = 64,     // bytes of white space that are held back, because a marker may follow
};

typedef struct kin_reply_parser kin_reply_parser;

typedef enum kin_reply_format {
    KIN_REPLY_PLAIN,        // no calls
    KIN_REPLY_HERMES,       // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, one or several. Also the generic one
    KIN_REPLY_XML,          // Qwen3-Coder: <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
    KIN_REPLY_LLAMA,        // Llama 3: the whole reply is {"name": ..., "parameters": {...}}, or several with ';'; or after
                            // <|python_tag|>
    KIN_REPLY_MISTRAL,      // [TOOL_CALLS][{"name": ..., "arguments": {...}, "id": ...}, ...]
    KIN_REPLY_MISTRAL_ARGS, // [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...}, one or several; without [CALL_ID]ID too
} kin_reply_format;

typedef struct kin_reply_tool {
    kin_str name;       // UTF-8
    kin_str parameters; // JSON schema of the arguments; empty: any object
    bool strict;        // for grammars (reply_grammar.h)
} kin_reply_tool;

typedef struct kin_reply_options {
    kin_reply_format format;
    const kin_reply_tool *tools; // [n_tools] borrowed, also their texts, until free
    size_t n_tools;
    bool reasoning;           // <think> at the beginning is a marker
    bool begins_in_reasoning; // the prompt ends with <think> (kin_reply_thinking_of, tool_format.h)
    bool reasoning_in_text;   // reasoning is TEXT, with its markers; no calls are looked for in it all the same
} kin_reply_options;

typedef enum kin_reply_kind {
    KIN_REPLY_TEXT,
    KIN_REPLY_REASONING,
    KIN_REPLY_TOOL_BEGIN,     // `name`; `tool` counts the calls of the reply from 0. Calls do not interleave
    KIN_REPLY_TOOL_ARGUMENTS, // a piece of the arguments' JSON
    KIN_REPLY_TOOL_END,       // the pieces together are one JSON object. A call that has no end was cut off: by the end of the
                              // reply, or where it ceased to be JSON; then what follows is text
} kin_reply_kind;

typedef struct kin_reply_event {
    kin_reply_kind kind;
    int tool;
    kin_str text; // TEXT, REASONING, ARGUMENTS; UTF-8 if the input is, never empty
    kin_str name; // TOOL_BEGIN
    kin_str id;   // TOOL_BEGIN: what the model calls the call, in KIN_REPLY_MISTRAL_ARGS; else empty
} kin_reply_event;

int kin_reply_parser_new(kin_reply_parser **out, const kin_reply_options *options, kin_err *err);
void kin_reply_parser_free(kin_reply_parser *parser); // NULL is fine

// More of the reply: any bytes, cut anywhere. *events [*n]: what is decided now; all events of a reply, with neighbours of a kind
// joined, do not depend on where it was cut. Returns 0, or KIN_FAIL without memory: then the parser can only be freed.
int kin_reply_parser_push(kin_reply_parser *parser, const char *at, size_t len, const kin_reply_event **events, int *n);

// The end of the reply: what was held back. The same results. Afterwards nothing may be pushed. is_cut: the reply did not end by
// itself; then the beginning of a call, or of its marker, is no text, and is left out.
int kin_reply_parser_flush(kin_reply_parser *parser, bool is_cut, const kin_reply_event **events, int *n);

// Whether what was pushed last is inside of a call: behind the marker that begins it, or the object's first byte, up to its last.
bool kin_reply_parser_is_in_call(const kin_reply_parser *parser);

// Whether it is the text of a token that is pushed though it is a control token.
bool kin_reply_is_marker(kin_str text);
