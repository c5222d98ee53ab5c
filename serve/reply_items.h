// What a model has written so far, as a list of items: runs of reasoning, runs of text, tool calls. Each item ends before the
// next begins. The blocks of Anthropic's messages and the output items of OpenAI's responses are these.
//
// Owner: one response writer. Zero-initialised, freed by fini.
#pragma once

#include <stdbool.h>

#include "pure/text/reply_parser.h" // kin_reply_event
#include "pure/text/text_buffer.h"

typedef struct kin_reply_item {
    kin_reply_kind kind;  // KIN_REPLY_TEXT, KIN_REPLY_REASONING, or KIN_REPLY_TOOL_BEGIN: a call
    kin_text_buffer text; // of a call: its arguments
    kin_text_buffer name; // of a call
    kin_text_buffer id;   // of a call: the model's own; empty: none
    bool is_whole;        // its end was seen; a call that was cut off is not
} kin_reply_item;

typedef struct kin_reply_items {
    kin_reply_item *at; // [n]; only the last one may be open
    int n, cap;
    bool is_open;
    bool failed; // no memory: what comes is dropped
} kin_reply_items;

// Told of each change; i is the item's index.
typedef struct kin_reply_items_sink {
    void (*open)(void *user, const kin_reply_item *item, int i);
    void (*grow)(void *user, const kin_reply_item *item, int i, kin_str piece); // the piece is in the item already
    void (*close)(void *user, const kin_reply_item *item, int i);
    void *user;
} kin_reply_items_sink;

// A sink of NULL: nobody is told.
void kin_reply_items_take(kin_reply_items *items, const kin_reply_event *event, const kin_reply_items_sink *sink);
void kin_reply_items_end(kin_reply_items *items, const kin_reply_items_sink *sink); // the reply ends: so does an open item
void kin_reply_items_fini(kin_reply_items *items);
