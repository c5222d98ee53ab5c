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

#include "pure/chat/reply.h"

typedef struct kin_reply_parser kin_reply_parser;

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
