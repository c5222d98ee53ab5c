// The stream of an answer, as a client reads it: the events of OpenAI's chat completions become text, reasoning, and figures.
//
// All bytes are a server's, and are checked: what is of another shape is passed over, what is no JSON ends the reading.
// No socket, no clock. Owner: whoever holds it; zero-initialised, freed by fini.
#pragma once

#include "serve/sse_reader.h"

typedef struct kin_chat_stream {
    kin_sse_reader sse;
    kin_text_buffer text, reasoning; // so far
    int n_done, n_prompt;            // of the prompt, while it is computed; 0: not known
    int n_cached, n_generated;       // at the end, where the server says so
    double prompt_ms, generated_ms;  // likewise
    bool is_whole;                   // the server has said that it is
    bool is_cut;                     // by a limit of length
} kin_chat_stream;

// What has been added to text, reasoning or n_done is seen there afterwards. Fails on bytes that are no such stream, and where
// the server says that something went wrong.
int kin_chat_stream_feed(kin_chat_stream *s, const char *bytes, size_t n, kin_err *err);
void kin_chat_stream_fini(kin_chat_stream *s);

// The sentence of a server's error: {"error": {"message": ...}}, or what else servers send. false: there is none.
bool kin_chat_stream_error(const char *bytes, size_t n, kin_err *err);
