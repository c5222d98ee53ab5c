// Internals of the reply parser: reply_parser.c handles text, reasoning and markers, reply_parser_call.c the calls.
#pragma once

#include "pure/text/json.h"
#include "pure/text/json_scan.h"
#include "pure/text/reply_parser.h"
#include "pure/text/string_table.h"

typedef enum kin_reply_state {
    KIN_REPLY_IN_TEXT,
    KIN_REPLY_IN_REASONING,
    KIN_REPLY_AFTER_CALL,   // after a call and its markers: white space is dropped
    KIN_REPLY_AFTER_MARKER, // after a marker that begins a call
    KIN_REPLY_IN_LIST,      // after [TOOL_CALLS][ and between the calls of the list
    KIN_REPLY_IN_OBJECT,    // a call as a JSON object, until name and arguments are known
    KIN_REPLY_IN_ARGUMENTS, // passing on the arguments
    KIN_REPLY_IN_REST,      // the rest of the object after the arguments
    KIN_REPLY_IN_NAME,      // NAME of NAME[CALL_ID]ID[ARGS]{...}
    KIN_REPLY_IN_LABEL,     // [CALL_ID] or [ARGS]
    KIN_REPLY_IN_ID,
    KIN_REPLY_BEFORE_ARGUMENTS,
    KIN_REPLY_IN_FUNCTION, // NAME of <function=NAME>
    KIN_REPLY_BEFORE_PARAMETER,
    KIN_REPLY_IN_KEY, // of <parameter=KEY>
    KIN_REPLY_IN_VALUE,
} kin_reply_state;

typedef struct kin_reply_mark { // offsets of an event's strings in `out`
    size_t text, name, id;
} kin_reply_mark;

typedef struct kin_reply_range { // bytes of `held`
    size_t begin, end;
} kin_reply_range;

struct kin_reply_parser {
    kin_reply_options options;
    kin_string_table names; // tool names
    kin_reply_state state;
    bool at_beginning;  // only white space and reasoning so far
    bool drops_space;   // drop white space instead of holding it, because it follows a marker
    bool had_reasoning; // reasoning is over, or can no longer begin
    bool failed;        // out of memory
    bool flushed;

    kin_text_buffer held; // undecided bytes: white space, then the beginning of a marker; or the whole call so far
    size_t n_space;

    int n_calls;
    bool in_list, list_has_calls;
    kin_json_scan scan;
    bool bare;                         // the object is the arguments themselves
    int key;                           // the last key read in the call's object
    size_t object_begin, string_begin; // offsets in `held`
    kin_reply_range name, label, id;
    bool has_name;

    kin_json schema; // of the call's parameters
    bool has_schema;
    kin_string_table keys; // parameter keys read so far

    kin_text_buffer out; // bytes of the events
    kin_reply_event *events;
    kin_reply_mark *marks;
    uint32_t n_events, cap_events, cap_marks;
};

// ---- reply_parser.c

void kin_reply_emit(kin_reply_parser *p, kin_reply_kind kind, const char *at, size_t len);
void kin_reply_emit_begin(kin_reply_parser *p, kin_str name, kin_str id);
bool kin_reply_is_space(char c);
bool kin_reply_hold(kin_reply_parser *p, char c); // returns false if memory runs out
void kin_reply_forget(kin_reply_parser *p);       // discards the held bytes

// Emits the held bytes as text; what follows is text too.
void kin_reply_release(kin_reply_parser *p);

// ---- reply_parser_call.c

// Consumes one byte, in the states from AFTER_MARKER on. Returns false if the byte was not consumed but the state changed.
bool kin_reply_step_call(kin_reply_parser *p, char c);

// Begins a call that is a JSON object: '{' is held.
void kin_reply_begin_object(kin_reply_parser *p);

// Begins a call after <function= was read; it is held.
void kin_reply_begin_function(kin_reply_parser *p);
