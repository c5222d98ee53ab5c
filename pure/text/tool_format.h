// What a model's chat template says about tools and reasoning: which format its calls have, and what the template can render.
//
// The template is asked by rendering small conversations with it. Markers are looked for in what it renders of a call, and, where
// it has none there, in its source. Where it renders no tools,
// or calls in a format that kin does not read, the generic form serves: the tools are told in the system message, and calls are
// those of KIN_REPLY_HERMES. Then the template gets no tools and no calls: kin_tool_format_put_... write all of it as text of
// messages.
//
// A server does this for a request with tools:
//   - renders the prompt; where is_generic, with put_instructions in the system message, put_call in the content of an
//   assistant's
//     message, and a tool's message as a user's with put_result
//   - makes a grammar of the tools, tool_choice and kin_reply_thinking_of(prompt) (reply_grammar.h), and a constraint of it
//   - pushes what the model writes to a reply parser of the format (reply_parser.h), with control tokens that are markers
#pragma once

#include "pure/text/jinja.h"
#include "pure/text/reply_grammar.h"

typedef struct kin_tool_format {
    kin_reply_format calls; // never KIN_REPLY_PLAIN
    bool is_generic;
    bool one_call;     // the template refuses more than one call in a message: `parallel` must be off
    int n_call_id;     // ids of calls must be so many letters and digits (kin_tool_format_put_id); 0: any text
    bool thinks;       // it knows <think>
    bool takes_system; // it renders system messages; else their text belongs in front of the first user's
} kin_tool_format;

// source [len]: of the template that was compiled. Fails without memory.
int kin_tool_format_of(kin_tool_format *out, const kin_jinja *jinja, const char *source, size_t len, kin_err *err);

// Whether the reply begins with reasoning, or may; prompt: rendered with the generation prompt, or its last bytes.
kin_reply_thinking kin_reply_thinking_of(const kin_tool_format *format, kin_str prompt);

// The id of a call as the template takes it, in the call and in its result: as it is, or letters and digits that are made from
// it, for one id always the same.
void kin_tool_format_put_id(const kin_tool_format *format, kin_str id, kin_text_buffer *out);

// The generic form. tools [n]: each as JSON, as the client wrote it. arguments: a JSON object.
void kin_tool_format_put_instructions(const kin_str *tools, size_t n, kin_text_buffer *out);
// A call after others is on a line of its own.
void kin_tool_format_put_call(kin_str name, kin_str arguments, kin_text_buffer *out);
void kin_tool_format_put_result(kin_str text, kin_text_buffer *out);
