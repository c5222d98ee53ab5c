// A conversation: messages in the format of OpenAI's API, [{"role": "user", "content": "..."}], in memory and as a file.
//
// The file is {"messages": [...]}, which is also a valid request body; a bare array can be read, too. A system message, if
// present, comes first. Owner: the caller that opened it. Thread: one.
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

typedef struct kin_conversation {
    json_t *messages;
} kin_conversation;

int kin_conversation_open(kin_conversation *c, kin_err *err);
void kin_conversation_close(kin_conversation *c); // a zeroed struct is allowed

// Sets the system message; an empty text removes it.
void kin_conversation_set_system(kin_conversation *c, kin_str text);
// Removes all messages except the system message.
void kin_conversation_clear(kin_conversation *c);

// Returns the messages for a request: a copy with one more user message. text NULL: the messages up to the last user message, to
// regenerate the answer. Returns NULL if there is no such message, or out of memory. The caller owns the result.
json_t *kin_conversation_ask(const kin_conversation *c, kin_str text);
// Replaces the messages with `asked` and appends the answer. Takes over `asked`.
void kin_conversation_answer(kin_conversation *c, json_t *asked, kin_str text);

// Saves the conversation. "~/" stands for the home directory. An existing file that is not a conversation is not overwritten.
int kin_conversation_save(const kin_conversation *c, const char *path, kin_err *err);
// Loads a conversation, which stays unchanged on failure. *n: number of messages.
int kin_conversation_load(kin_conversation *c, const char *path, size_t *n, kin_err *err);
