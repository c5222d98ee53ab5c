// A conversation: messages as OpenAI's API has them, [{"role": "user", "content": "..."}], in memory and as a file.
//
// The file is {"messages": [...]}, which is a request's body, too; an array alone is read as well. A system message, if there is
// one, is the first. Owner: who opened it. Thread: one.
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

typedef struct kin_conversation {
    json_t *messages;
} kin_conversation;

int kin_conversation_open(kin_conversation *c, kin_err *err);
void kin_conversation_close(kin_conversation *c); // zeroed is allowed

// An empty text: none.
void kin_conversation_set_system(kin_conversation *c, kin_str text);
// All but the system message goes.
void kin_conversation_clear(kin_conversation *c);

// What is to be asked: a copy of the messages with one more of the user; at NULL: up to the last message of the user, to be
// answered again. NULL: there is none, or no memory. The caller's.
json_t *kin_conversation_ask(const kin_conversation *c, kin_str text);
// ... and was answered: from now on these are the messages, with the answer. Takes `asked` over.
void kin_conversation_answer(kin_conversation *c, json_t *asked, kin_str text);

// "~/" is the home. A file that is there and is no conversation is not replaced.
int kin_conversation_save(const kin_conversation *c, const char *path, kin_err *err);
// Unchanged where it fails. *n: messages.
int kin_conversation_load(kin_conversation *c, const char *path, size_t *n, kin_err *err);
