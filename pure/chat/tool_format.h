// Tool format: determines from a model's chat template which format its calls have, and what the template can render.
//
// It renders small conversations with the template (chat/trial.h) and derives the format from the calls in them (chat/derive.h).
// If that leads to nothing certain, the marks of known formats are searched for, in what the template renders and in its source.
// If the template renders no tools, there are no such marks, or it renders calls that their format does not read, the generic
// form is used: tools are described in the system message, and calls have the format KIN_CHAT_HERMES. Then the template is given
// no tools and no calls: the kin_tool_format_put_... functions write everything as text of messages.
//
// For a request with tools the server
//   - renders the prompt; if is_generic, with put_instructions in the system message, put_call in the content of an
//     assistant's message, and a tool's message as a user message with put_result
//   - makes a grammar of the tools, tool_choice and kin_reply_thinking_of(prompt) (reply_grammar.h), and a constraint of it
//   - pushes the model's output to a reply parser of the format (reply_parser.h), including control tokens that are markers
#pragma once

#include "pure/chat/reply_grammar.h"
#include "pure/jinja/jinja.h"

typedef struct kin_tool_format {
    kin_chat_format chat; // always has calls
    bool is_generic;
    bool is_confirmed;       // the template renders calls in this format; otherwise its marks were found
    bool arguments_are_text; // if confirmed: the template expects arguments as a string of JSON
    bool content_is_null;    // if confirmed: it writes calls only of messages without content
    bool one_call;       // the template rejects more than one call in a message, or writes only the first: `parallel` must be off
    int n_call_id;       // required number of letters and digits in a call's id (kin_tool_format_put_id); 0: any text
    bool accepts_system; // it renders system messages; otherwise put their text before the first user message
} kin_tool_format;

// source [len]: the source of the compiled template. Fails only if memory runs out.
int kin_tool_format_of(kin_tool_format *out, const kin_jinja *jinja, const char *source, size_t len, kin_err *err);

// Returns whether the reply has begun with reasoning, or may begin with it. prompt: rendered with the generation prompt, or its
// last bytes.
kin_reply_thinking kin_reply_thinking_of(const kin_tool_format *format, kin_str prompt);

// Writes the id of a call, in the call and in its result, as the template accepts it: unchanged, or letters and digits derived
// from it; equal ids give equal results.
void kin_tool_format_put_id(const kin_tool_format *format, kin_str id, kin_text_buffer *out);

// The generic form. tools [n]: each as the client's JSON. arguments: a JSON object.
void kin_tool_format_put_instructions(const kin_str *tools, size_t n, kin_text_buffer *out);
// A call that follows another one is written on a new line.
void kin_tool_format_put_call(kin_str name, kin_str arguments, kin_text_buffer *out);
void kin_tool_format_put_result(kin_str text, kin_text_buffer *out);
