// A client for servers that speak OpenAI's chat completions (kin serve, llama-server and others): sends a conversation and reads
// the answer while it is written.
//
// Waits while the server loads its model or waits for its ring. Owner: the caller of open. Thread: one at a time; callbacks run
// on it.
#pragma once

#include <jansson.h>

#include "serve/client/chat_stream.h"
#include "serve/client/http_client.h"

typedef struct kin_chat_client kin_chat_client;

typedef struct kin_chat_client_options {
    kin_http_client_options http;
    const char *model;    // for servers with several models; NULL: the server's first
    const json_t *fields; // added to each request, for example "temperature"; borrowed; NULL: none
    void (*waits)(void *user, const char *what, double percent); // called while the server is not ready; percent: -1 if not known
    void *user;                                                  // of `waits`
} kin_chat_client_options;

// Facts that the server reports about itself.
typedef struct kin_chat_server_facts {
    char model[256];     // empty: not reported
    bool lacks_template; // the model has no chat template: messages are concatenated
    int n_ctx;           // 0: not reported
} kin_chat_server_facts;

int kin_chat_client_open(kin_chat_client **out, const kin_chat_client_options *options, kin_err *err);
void kin_chat_client_close(kin_chat_client *c); // NULL is allowed

// Waits until the server is ready, then reads its facts.
kin_http_client_end kin_chat_client_greet(kin_chat_client *c, kin_chat_server_facts *facts, kin_err *err);

// messages: in OpenAI's form. `grown` is called when `answer` has grown. After a failure `answer` keeps what came before it.
kin_http_client_end kin_chat_client_ask(kin_chat_client *c, const json_t *messages, kin_chat_stream *answer,
                                        void (*grown)(void *user, const kin_chat_stream *answer), void *user, kin_err *err);
