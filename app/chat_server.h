// The server that a chat without --server talks to: kin serve's own, inside of this program.
//
// So a chat is always a client: templates, tokens, sampling and what is made of a reply are the server's, here as there. It
// listens on 127.0.0.1 only, on a port of its own, and answers nobody without a key that is drawn for this run.
//
// A thread opens the model and computes; the server has its own thread. Signals stay those of the thread that opened it.
//
// Owner and thread: the main thread.
#pragma once

#include "node/session.h"

typedef struct kin_chat_server kin_chat_server;

// Returns at once: the model is loaded meanwhile. options: borrowed until close, its console too.
int kin_chat_server_open(kin_chat_server **out, const kin_session_options *options, kin_err *err);
void kin_chat_server_close(kin_chat_server *s); // what is computed ends. NULL is allowed

const char *kin_chat_server_url(const kin_chat_server *s);
const char *kin_chat_server_key(const kin_chat_server *s);

// It cannot answer any more: the model cannot be opened, or the ring was lost for good.
bool kin_chat_server_has_failed(kin_chat_server *s, kin_err *err);
