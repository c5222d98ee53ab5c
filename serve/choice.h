// A choice: one sequence of a response while it is generated. Turns tokens into text, applies stop words, and splits a chat's
// reply into text, reasoning and tool calls.
//
// Owner: a call (serve/call.h). Thread: the loop's.
#pragma once

#include "pure/chat/reply_parser.h"
#include "pure/chat/stop_words.h"
#include "pure/tokenizer/detok.h"
#include "serve/service.h"
#include "serve/writer.h"

typedef struct kin_choice {
    int index;
    kin_job *job; // NULL: ended
    const kin_vocab *vocab;
    kin_detok *detok;
    kin_stop_words *stop;          // NULL: none
    kin_reply_parser *parser;      // NULL: everything is text
    const kin_chat_format *format; // of the parser
    const kin_request *request;
    void (*on_events)(void *user, int index, const kin_reply_event *events, int n);
    void *user;
    int stop_word;     // index of the one that was found; -1: none
    int indent;        // white space so far at the beginning of this line; -1: past it, or on the first line
    bool is_outdented; // a line began with less white space than the request's n_indent
    int n_prompt, n_cached, n_generated, n_reasoning;
    int n_done;                            // tokens of the prompt, until the first token
    bool in_reasoning, has_calls, in_call; // has_calls: complete ones
    bool has_new_line;                     // in text that was passed to `take`
    kin_reply_event joined; // text that came in pieces and was not yet passed to `take`; its bytes are in joined_text
    kin_text_buffer joined_text;
    char marker[KIN_CHAT_MAX_MARK]; // [n_marker] the last bytes, which may be the beginning of a marker of a call
    size_t n_marker;
    kin_draft_counts drafts;
    kin_time submitted, first, last; // first: arrival of the first token
} kin_choice;

// reply NULL: everything is text. Everything that `reply` borrows must outlive the choice.
int kin_choice_open(kin_choice *choice, const kin_vocab *vocab, const kin_request *request, const kin_reply_options *reply,
                    kin_err *err);
void kin_choice_close(kin_choice *choice); // a zeroed choice is allowed; does not free the job

// True if the text was ended before the model ended it: by a stop word or by a line's indentation.
static inline bool kin_choice_is_cut(const kin_choice *choice) {
    return choice->stop_word >= 0 || choice->is_outdented;
}

// Adds a token, or bytes if id is -1, to the reply. Calls `take` for each piece, possibly never. May cut the text.
int kin_choice_push(kin_choice *choice, int32_t id, kin_str bytes, kin_err *err);
// Ends the reply and emits text that was held back. is_cut: the model did not end the reply; an unfinished tool call is then
// dropped.
int kin_choice_flush(kin_choice *choice, bool is_cut, kin_err *err);

kin_timings kin_choice_timings(const kin_choice *choice);
