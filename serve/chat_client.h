// A client of a server that speaks OpenAI's chat completions (kin serve, llama-server and others): sends a conversation, reads
// the answer as it is written.
//
// A server that is still loading its model, or waits for its ring, is waited for. Owner: who opened it. Thread: one at a time;
// the callbacks come in it.
#pragma once

#include <jansson.h>

#include "serve/chat_stream.h"
#include "serve/http_client.h"

typedef struct kin_chat_client kin_chat_client;

typedef struct kin_chat_client_options {
    kin_http_client_options http;
    const char *model;    // for servers with several; NULL: its first
    const json_t *fields; // of each request, for example "temperature"; borrowed; NULL: none
    void (*waits)(void *user, const char *what, double percent); // for the server; percent: -1 where it is not known
    void *user;                                                  // of `waits`
} kin_chat_client_options;

// What the server says of itself.
typedef struct kin_chat_server_facts {
    char model[256];     // empty: it does not say
    bool lacks_template; // the model has no chat template: texts are put one after the other
    int n_ctx;           // 0: it does not say
} kin_chat_server_facts;

int kin_chat_client_open(kin_chat_client **out, const kin_chat_client_options *options, kin_err *err);
void kin_chat_client_close(kin_chat_client *c); // NULL is allowed

// Waits until the server can answer, and asks what it is.
kin_http_client_end kin_chat_client_greet(kin_chat_client *c, kin_chat_server_facts *facts, kin_err *err);

// messages: as OpenAI has them. `grown` is called when there is more in `answer`. What came before a failure stays there.
kin_http_client_end kin_chat_client_ask(kin_chat_client *c, const json_t *messages, kin_chat_stream *answer,
                                        void (*grown)(void *user, const kin_chat_stream *answer), void *user, kin_err *err);
