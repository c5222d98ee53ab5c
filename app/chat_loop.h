// A chat at a terminal: reads messages and commands, shows answers as they are written, keeps the conversation.
//
// Owner and thread: the command's main thread.
#pragma once

#include "app/conversation.h"
#include "serve/chat_client.h"

typedef struct kin_chat_loop_options {
    kin_chat_client *client;
    kin_conversation *conversation;
    kin_chat_server_facts facts;
    bool stats; // a line of figures after each answer
} kin_chat_loop_options;

// Until /quit, Ctrl-D or a second Ctrl-C. From here on Ctrl-C does not set kin_app_stop.
int kin_chat_loop_run(const kin_chat_loop_options *options, kin_err *err);

// What the client's goes_on is to say: an answer is wanted further.
bool kin_chat_loop_goes_on(void);
