// A client's side of a streamed answer: turns the events of OpenAI's chat completions into text, reasoning and figures.
//
// All bytes come from a server and are checked: JSON of an unexpected form is skipped, anything that is not JSON is an error. No
// socket, no clock. Owner: the struct's holder; zero-initialised, freed by fini.
#pragma once

#include "serve/client/sse_reader.h"

typedef struct kin_chat_stream {
    kin_sse_reader sse;
    kin_text_buffer text, reasoning; // received so far
    int n_done, n_prompt;            // prompt tokens, while the prompt is computed; 0: not known
    int n_cached, n_generated;       // at the end, if the server reports them
    double prompt_ms, generated_ms;  // likewise
    bool is_whole;                   // the server has reported the end
    bool is_cut;                     // by a length limit
} kin_chat_stream;

// Reads bytes; text, reasoning and n_done are updated. Fails on bytes that are not such a stream, and if the server reports an
// error.
int kin_chat_stream_feed(kin_chat_stream *s, const char *bytes, size_t n, kin_err *err);
void kin_chat_stream_fini(kin_chat_stream *s);

// Extracts the message of a server's error: {"error": {"message": ...}} or another common form. Returns false if there is none.
bool kin_chat_stream_error(const char *bytes, size_t n, kin_err *err);
