// The server for `kin chat` without --server: the server of kin serve, inside this process.
//
// A chat is therefore always a client: the server handles templates, tokens, sampling and reply parsing in both cases. It listens
// on 127.0.0.1 only, on a free port, and requires a random key that is generated for this run.
//
// One thread opens the model and computes; the server has its own thread. Signals are handled by the thread that opened it.
//
// Owner and thread: the main thread.
#pragma once

#include "cluster/session.h"

typedef struct kin_chat_server kin_chat_server;

// Returns at once; the model loads in the background. options: borrowed until close, with its console.
int kin_chat_server_open(kin_chat_server **out, const kin_session_options *options, kin_err *err);
void kin_chat_server_close(kin_chat_server *s); // stops the computation. NULL is allowed

const char *kin_chat_server_url(const kin_chat_server *s);
const char *kin_chat_server_key(const kin_chat_server *s);

// True if the server can no longer answer: the model cannot be opened, or the ring was lost for good.
bool kin_chat_server_has_failed(kin_chat_server *s, kin_err *err);
