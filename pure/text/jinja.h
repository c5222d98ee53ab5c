// Chat templates: Jinja, as models' templates use it and transformers renders it.
//
// A template is compiled once and rendered often. What is rendered is a prompt whose pieces know where they come from: from the
// template (control tokens may be looked for in it) or from the input (messages, tools: text, whatever it looks like).
//
// What operations do to the origin of bytes:
//   text of the template, its string literals, names in it    template
//   strings of the caller                                     as kin_value_string was told
//   parts, characters, + and ~ and join, replace, strip,      every byte keeps its own
//   split, slices, upper and lower, macros, block sets
//   numbers, true, false, none written as text; dates         template: they cannot spell a control token
//   tojson; lists and dicts written as text                   input, as a whole
// The origin follows the bytes only. A template that writes a literal where the input asks for it means to.
//
// The language is Jinja 3.1 with transformers' settings: trim_blocks, lstrip_blocks, loop controls, generation blocks, the
// immutable sandbox, its own tojson, raise_exception and strftime_now. Not there: recursive loops, blocks, includes and
// imports, `autoescape` blocks, * and ** in calls, % of strings, str.format, filters for HTML. They are
// errors, when the template is compiled or when they are reached. Integers have 64 bits; beyond that is an error.
#pragma once

#include "pure/text/value.h"

enum { KIN_JINJA_MAX_SOURCE = 1 << 20 }; // bytes of a template

typedef struct kin_jinja kin_jinja;

// Compiles. The source is copied. Fails, with the line, on what is no template, and on one that is too large or nested too deep.
int kin_jinja_new(kin_jinja **out, const char *source, size_t len, kin_err *err);
void kin_jinja_free(kin_jinja *jinja); // NULL is fine

typedef struct kin_jinja_run {
    size_t begin, end; // bytes [begin, end) of the text
    kin_origin origin;
} kin_jinja_run;

// A rendered prompt. Neighbouring runs differ in origin; together they are the text.
typedef struct kin_jinja_text {
    const char *at; // [len], UTF-8
    size_t len;
    const kin_jinja_run *runs; // [n_runs]
    size_t n_runs;
} kin_jinja_text;

// Renders with the variables of a dict (messages, tools, add_generation_prompt, bos_token, ...). The result lives in `values`,
// where `variables` must be, too. now_s: seconds since 1970 on the clock of the place, for strftime_now.
//
// Fails, with the line, where Jinja would; when the template calls raise_exception (the sentence then has its message); and
// beyond the limits: of memory and steps (value.h), of a prompt's length, of macros and expressions in each other.
//
// Thread: any, several at once with one template; each with values of its own. It takes up to 256 KiB of stack.
int kin_jinja_render(const kin_jinja *jinja, kin_values *values, const kin_value *variables, int64_t now_s, kin_jinja_text *out,
                     kin_err *err);
