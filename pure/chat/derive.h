// Derivation: finds the format of a model's calls from its chat template. It renders trial conversations (trial.h) and looks for
// what stands before, between and after the names and arguments of their calls. A format counts only if it is confirmed: parsed
// with it, the rendered calls are those of the trials, and its grammar allows them. A known format that is confirmed comes before
// a derived one, because its description says more than one rendering can.
#pragma once

#include "pure/chat/format.h"
#include "pure/jinja/jinja.h"

typedef struct kin_chat_derived {
    bool is_certain; // a format was confirmed; otherwise the other fields have no meaning
    bool is_known;   // it is one of the known ones
    kin_chat_format format;
    bool one_call;           // the template refuses more than one call in a message, or leaves the others out
    bool arguments_are_text; // the template expects them as a string of JSON
    bool content_is_null;    // it writes calls only of messages without content
} kin_chat_derived;

// think: the format's marks of reasoning, which every candidate gets. Fails only if memory runs out.
int kin_chat_derive(const kin_jinja *jinja, const kin_chat_format *think, kin_chat_derived *out);

// *reads: the format reads a simple call as the template renders it, or the template renders none. Fails only if memory runs out.
int kin_chat_reads_calls(const kin_jinja *jinja, const kin_chat_format *format, bool *reads);
