// A choice: one text of a response while it is written. Tokens become text, stop words end it, a chat's reply is split into text,
// reasoning and tool calls.
//
// Owner: a call (serve/call.h). Thread: the loop's.
#pragma once

#include "pure/text/detok.h"
#include "pure/text/reply_parser.h"
#include "pure/text/stop_words.h"
#include "serve/service.h"
#include "serve/writer.h"

typedef struct kin_choice {
    int index;
    kin_job *job; // NULL: it has ended
    const kin_vocab *vocab;
    kin_detok *detok;
    kin_stop_words *stop;     // NULL: none
    kin_reply_parser *parser; // NULL: all is text
    const kin_request *request;
    void (*take)(void *user, int index, const kin_reply_event *events, int n);
    void *user;
    int stop_word;     // that was found; -1: none
    int indent;        // white space at the beginning of the line; -1: its beginning is over, or it is the first one
    bool is_outdented; // a line began with less white space than the request's n_indent
    int n_prompt, n_cached, n_generated, n_reasoning;
    bool in_reasoning, has_calls, in_call; // has_calls: whole ones
    kin_reply_event joined;                // text that came in pieces, and is not yet given to `take`; in joined_text
    kin_text_buffer joined_text;
    kin_draft_counts drafts;
    kin_time submitted, first, last; // first: when the first token came
} kin_choice;

// reply: NULL: all is text. What it borrows lives as long as the choice.
int kin_choice_open(kin_choice *choice, const kin_vocab *vocab, const kin_request *request, const kin_reply_options *reply,
                    kin_err *err);
void kin_choice_close(kin_choice *choice); // zeroed is allowed; the job is not its own

// Whether the text ended before the model said so: by a stop word or a line's indentation.
static inline bool kin_choice_is_cut(const kin_choice *choice) {
    return choice->stop_word >= 0 || choice->is_outdented;
}

// What a token, or its bytes (id -1), adds to the reply: `take` is called for each piece of it, perhaps never. May cut the text.
int kin_choice_push(kin_choice *choice, int32_t id, kin_str bytes, kin_err *err);
// The end: what was held back. is_cut: the model did not end the reply; a call that is only begun is then left out.
int kin_choice_flush(kin_choice *choice, bool is_cut, kin_err *err);

kin_timings kin_choice_timings(const kin_choice *choice);
