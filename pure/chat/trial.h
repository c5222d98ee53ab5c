// Trial conversations: small chats that are rendered with a chat template to learn what it can do. They have a question, and then
// nothing, an answer, or calls of two tools. Bounded: a trial takes at most a twentieth of the steps that a request may.
#pragma once

#include "pure/chat/reply_parser.h"
#include "pure/jinja/jinja.h"
#include "pure/text/text_buffer.h"

#define KIN_TRIAL_SYSTEM "kin_trial_system"
#define KIN_TRIAL_QUESTION "kin_trial_question"
#define KIN_TRIAL_ANSWER "kin_trial_answer"
#define KIN_TRIAL_THOUGHT "kin_trial_thought"
#define KIN_TRIAL_TOOL "kin_trial_tool"
#define KIN_TRIAL_OTHER_TOOL "kin_other_tool"

extern const kin_reply_tool kin_trial_tools[2];

typedef struct kin_trial_call {
    int tool;              // index in kin_trial_tools
    const char *arguments; // JSON
} kin_trial_call;

typedef struct kin_trial {
    bool has_system, has_tools;
    bool has_answer;             // an answer, if there are no calls
    const kin_trial_call *calls; // [n_calls] in one message
    int n_calls;
    const char *id;         // of the calls; NULL: functions.NAME:0, functions.NAME:1
    bool has_results;       // a result for each call
    const char *reasoning;  // of the answer or the message with the calls; NULL: none
    bool arguments_as_text; // as a string of JSON instead of an object
    bool content_is_null;   // of the message with the calls; otherwise empty
    bool is_open;           // add_generation_prompt
} kin_trial;

// Appends the rendered text. *is_rendered: the template accepts the conversation. Returns KIN_FAIL if memory runs out.
int kin_trial_render(const kin_jinja *jinja, const kin_trial *trial, kin_text_buffer *out, bool *is_rendered);
