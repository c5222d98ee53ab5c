// Inside of the reply parser: reply_parser.c has text, reasoning and markers, reply_parser_call.c the calls.
#pragma once

#include "pure/text/json.h"
#include "pure/text/json_scan.h"
#include "pure/text/reply_parser.h"
#include "pure/text/string_table.h"

typedef enum kin_reply_state {
    KIN_REPLY_IN_TEXT,
    KIN_REPLY_IN_REASONING,
    KIN_REPLY_AFTER_CALL,   // and its markers: white space is dropped
    KIN_REPLY_AFTER_MARKER, // that begins a call
    KIN_REPLY_IN_LIST,      // [TOOL_CALLS][ and between its calls
    KIN_REPLY_IN_OBJECT,    // a call as a JSON object, of which name and arguments are not known
    KIN_REPLY_IN_ARGUMENTS, // they are being passed on
    KIN_REPLY_IN_REST,      // of the object, after the arguments
    KIN_REPLY_IN_NAME,      // NAME[CALL_ID]ID[ARGS]{...}
    KIN_REPLY_IN_LABEL,     // [CALL_ID] or [ARGS]
    KIN_REPLY_IN_ID,
    KIN_REPLY_BEFORE_ARGUMENTS,
    KIN_REPLY_IN_FUNCTION, // NAME of <function=NAME>
    KIN_REPLY_BEFORE_PARAMETER,
    KIN_REPLY_IN_KEY, // of <parameter=KEY>
    KIN_REPLY_IN_VALUE,
} kin_reply_state;

typedef struct kin_reply_mark { // of an event: where its texts are in `out`
    size_t text, name, id;
} kin_reply_mark;

typedef struct kin_reply_range { // bytes of `held`
    size_t begin, end;
} kin_reply_range;

struct kin_reply_parser {
    kin_reply_options options;
    kin_string_table names; // of the tools
    kin_reply_state state;
    bool at_beginning;  // nothing but white space and reasoning has come
    bool drops_space;   // white space is not held, but dropped: it follows a marker
    bool had_reasoning; // or it is over
    bool failed;        // out of memory
    bool flushed;

    kin_text_buffer held; // bytes that are not decided: white space, then a marker's beginning; or all of a call so far
    size_t n_space;

    int n_calls;
    bool in_list, list_has_calls;
    kin_json_scan scan;
    bool bare;                         // the object is the arguments, not a call that has them
    int key;                           // of the call's object: that was read last
    size_t object_begin, string_begin; // in `held`
    kin_reply_range name, label, id;
    bool has_name;

    kin_json schema; // of the call's parameters
    bool has_schema;
    kin_string_table keys; // of the parameters that were read

    kin_text_buffer out; // the events' bytes
    kin_reply_event *events;
    kin_reply_mark *marks;
    uint32_t n_events, cap_events, cap_marks;
};

// ---- reply_parser.c

void kin_reply_emit(kin_reply_parser *p, kin_reply_kind kind, const char *at, size_t len);
void kin_reply_emit_begin(kin_reply_parser *p, kin_str name, kin_str id);
bool kin_reply_is_space(char c);
bool kin_reply_hold(kin_reply_parser *p, char c); // false: no memory
void kin_reply_forget(kin_reply_parser *p);       // what is held

// What is held is text, and what follows, too.
void kin_reply_release(kin_reply_parser *p);

// ---- reply_parser_call.c

// One byte, in the states from AFTER_MARKER on. False: it was not read, and the state is another one.
bool kin_reply_step_call(kin_reply_parser *p, char c);

// The beginning of a call as a JSON object: '{', which is held.
void kin_reply_begin_object(kin_reply_parser *p);

// <function= was read and is held.
void kin_reply_begin_function(kin_reply_parser *p);
