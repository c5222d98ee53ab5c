// The state of a reply that is being split: held bytes, events, and the place within a call. Shared by the parser's modules:
// reply_parser.c handles text, reasoning and marks, above reply_parser_call.c (calls), reply_parser_values.c (arguments that are
// not JSON) and reply_parser_channels.c (the headers of messages).
//
// Owner and thread: the parser's. Running out of memory is noted in `failed`.
#pragma once

#include "pure/chat/loose.h"
#include "pure/chat/reply.h"
#include "pure/text/json.h"
#include "pure/text/json_scan.h"
#include "pure/text/string_table.h"

typedef enum kin_reply_state {
    KIN_REPLY_IN_TEXT,
    KIN_REPLY_IN_REASONING,
    KIN_REPLY_AFTER_CALL,   // after a call and its marks: white space is dropped
    KIN_REPLY_IN_HEADER,    // channels: before <|message|>
    KIN_REPLY_AFTER_MARK,   // after a mark that begins a call
    KIN_REPLY_IN_LIST,      // after the '[' of a list of calls, and between its calls
    KIN_REPLY_IN_OBJECT,    // a call as a JSON object, until name and arguments are known
    KIN_REPLY_IN_ARGUMENTS, // passing on the arguments
    KIN_REPLY_IN_REST,      // the rest of the object after the arguments
    KIN_REPLY_IN_LABEL,     // a mark within a call
    KIN_REPLY_IN_NAME,
    KIN_REPLY_IN_ID,
    KIN_REPLY_AFTER_NAME,
    KIN_REPLY_BEFORE_PARAMETER,
    KIN_REPLY_IN_KEY,
    KIN_REPLY_IN_TYPE,
    KIN_REPLY_IN_VALUE,
    KIN_REPLY_AFTER_VALUE, // after value_end, until the next mark confirms that the value has ended
    KIN_REPLY_IN_LOOSE,    // arguments as in Python, or between the format's own quotes
} kin_reply_state;

typedef enum kin_reply_place { // which marks may come next within a call
    KIN_REPLY_AT_CALL,         // after calls_begin
    KIN_REPLY_AT_NAME,         // after call_begin
    KIN_REPLY_AT_ARGUMENTS,    // after the name
    KIN_REPLY_AT_PARAMETER,
    KIN_REPLY_AT_TYPE,  // after a key
    KIN_REPLY_AT_VALUE, // after a type
} kin_reply_place;

typedef struct kin_reply_mark { // offsets of an event's strings in `out`
    size_t text, name, id;
} kin_reply_mark;

typedef struct kin_reply_range { // bytes of `held`
    size_t begin, end;
} kin_reply_range;

typedef struct kin_reply_parser {
    kin_reply_options options;
    const kin_chat_format *format;
    bool has_calls;         // the format has calls, and there are tools
    kin_string_table names; // tool names
    kin_reply_state state;
    bool at_beginning;  // only white space and reasoning so far
    bool drops_space;   // drop white space instead of holding it, because it follows a mark
    bool had_reasoning; // reasoning is over, or can no longer begin
    bool failed;        // out of memory
    bool flushed;

    kin_text_buffer held; // undecided bytes: white space, then the beginning of a mark; or the whole call so far
    size_t n_space;
    size_t n_given; // held bytes that the prompt ends with

    int n_calls;
    bool in_list, list_has_calls;
    bool in_calls; // after calls_begin
    kin_reply_place place;
    kin_json_scan scan;
    kin_loose_scan loose;
    bool bare;                         // the object is the arguments themselves
    int key;                           // the last key read in the call's object
    size_t object_begin, string_begin; // offsets in `held`
    kin_reply_range name, label, id, type, value;
    bool has_name;

    kin_json schema; // of the call's parameters
    bool has_schema;
    kin_string_table keys; // parameter keys read so far

    kin_text_buffer out; // bytes of the events
    kin_reply_event *events;
    kin_reply_mark *marks;
    uint32_t n_events, cap_events, cap_marks;
} kin_reply_parser;

static inline kin_str kin_reply_held(const kin_reply_parser *p, kin_reply_range range) {
    return (kin_str){p->held.at + range.begin, range.end - range.begin};
}

// Begin and end the events of one push; end returns KIN_FAIL if memory has run out.
void kin_reply_begin_events(kin_reply_parser *p);
int kin_reply_end_events(kin_reply_parser *p, const kin_reply_event **events, int *n);
void kin_reply_emit(kin_reply_parser *p, kin_reply_kind kind, const char *at, size_t len);
void kin_reply_emit_begin(kin_reply_parser *p, kin_str name, kin_str id);

bool kin_reply_hold(kin_reply_parser *p, char c); // returns false if memory runs out
void kin_reply_forget(kin_reply_parser *p);       // discards the held bytes
// Returns the kind of event for text at this place.
kin_reply_kind kin_reply_kind_of_text(const kin_reply_parser *p);

// Emits the held bytes as text; what follows is text too.
void kin_reply_release(kin_reply_parser *p);
// Emits the held mark of reasoning if it is part of the text, and forgets it.
void kin_reply_pass_reasoning_mark(kin_reply_parser *p);

// ---- within a call

// The current byte cannot be part of a call: releases the held bytes as text. The byte is not consumed.
bool kin_reply_is_no_call(kin_reply_parser *p);
// Holds the byte. Returns false if it exceeds the size limit of a call.
bool kin_reply_hold_in_call(kin_reply_parser *p, char c);
// Returns the number of the tool that the text names, as it is or as the id functions.NAME:0; -1: none.
int64_t kin_reply_find_tool(const kin_reply_parser *p, kin_str text);
// Begins a call: emits its name and id, which may be held, and forgets the held bytes.
void kin_reply_begin_named(kin_reply_parser *p, kin_str name, kin_str id, kin_reply_state state);
void kin_reply_begin_call(kin_reply_parser *p, int64_t tool, kin_str id, kin_reply_state state);
void kin_reply_begin_json(kin_reply_parser *p, int64_t tool, kin_str id); // the arguments' '{' comes next
void kin_reply_leave_call(kin_reply_parser *p);
// Compares the bytes from label.begin on with the marks [n]; empty ones never match. Returns the first that equals them, or -1;
// then *may_follow: they are the beginning of one.
int kin_reply_read_label(const kin_reply_parser *p, const char *const *marks, int n, bool *may_follow);
