// A chat at a terminal: reads messages and commands, shows answers as they are generated, and keeps the conversation.
//
// Owner and thread: the command's main thread.
#pragma once

#include "app/conversation.h"
#include "serve/client/chat_client.h"

typedef struct kin_chat_loop_options {
    kin_chat_client *client;
    kin_conversation *conversation;
    kin_chat_server_facts facts;
    bool stats; // print a line of statistics after each answer
} kin_chat_loop_options;

// Runs until /quit, Ctrl-D or a second Ctrl-C. From now on Ctrl-C does not set kin_app_stop.
int kin_chat_loop_run(const kin_chat_loop_options *options, kin_err *err);

// Use as the client's goes_on callback: false once the user has interrupted the answer.
bool kin_chat_loop_goes_on(void);
