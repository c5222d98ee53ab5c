// The reply so far as a list of items: runs of reasoning, runs of text, tool calls. Each item ends before the next begins. They
// become the blocks of Anthropic's messages and the output items of OpenAI's responses.
//
// Owner: one response writer. Zero-initialised, freed by fini.
#pragma once

#include <stdbool.h>

#include "pure/chat/reply_parser.h" // kin_reply_event
#include "pure/text/text_buffer.h"

typedef struct kin_reply_item {
    kin_reply_kind kind;  // KIN_REPLY_TEXT, KIN_REPLY_REASONING, or KIN_REPLY_TOOL_BEGIN for a call
    kin_text_buffer text; // of a call: its arguments
    kin_text_buffer name; // of a call
    kin_text_buffer id;   // of a call: the model's own; empty: none
    bool is_whole;        // its end was seen; false for a call that was cut off
} kin_reply_item;

typedef struct kin_reply_items {
    kin_reply_item *at; // [n]; only the last one may be open
    int n, cap;
    bool is_open;
    bool failed; // out of memory: further events are dropped
} kin_reply_items;

// Callbacks for each change; i is the item's index.
typedef struct kin_reply_items_sink {
    void (*open)(void *user, const kin_reply_item *item, int i);
    void (*grow)(void *user, const kin_reply_item *item, int i, kin_str piece); // the item already contains the piece
    void (*close)(void *user, const kin_reply_item *item, int i);
    void *user;
} kin_reply_items_sink;

// sink NULL: no callbacks.
void kin_reply_items_add(kin_reply_items *items, const kin_reply_event *events, int n, const kin_reply_items_sink *sink);
void kin_reply_items_end(kin_reply_items *items, const kin_reply_items_sink *sink); // the reply ends, and with it an open item
void kin_reply_items_fini(kin_reply_items *items);
