// Chat templates: renders Jinja as transformers does, to the extent that models' templates use it.
//
// A template is compiled once and rendered often. A rendered prompt records the origin of its pieces: the template (control
// tokens may be parsed in it) or the input (messages and tools, always plain text).
//
// The origin of bytes after each operation:
//   text of the template, its string literals, names in it    template
//   strings of the caller                                     as passed to kin_value_string
//   parts, characters, + and ~ and join, replace, strip,      every byte keeps its origin
//   split, slices, upper and lower, macros, block sets
//   numbers, true, false, none written as text; dates         template: they cannot spell a control token
//   tojson; lists and dicts written as text                   input, as a whole
// Only bytes carry an origin: a literal that the template selects by a condition on the input is still template text.
//
// The language is Jinja 3.1 with transformers' settings: trim_blocks, lstrip_blocks, loop controls, generation blocks, the
// immutable sandbox, transformers' tojson, raise_exception and strftime_now. Not supported: `block`, `include`, `import`,
// `extends` and `autoescape` blocks, HTML filters, %r, %e and %g, and attributes in the braces of str.format. These are errors
// when the template is compiled or when they are executed. Integers have 64 bits; overflow is an error.
#pragma once

#include "pure/jinja/value.h"

enum { KIN_JINJA_MAX_SOURCE = 1 << 20 }; // bytes of a template

typedef struct kin_jinja kin_jinja;

// Compiles a template. The source is copied. Fails, with the line, on a syntax error and if the template is too large or nested
// too deeply.
int kin_jinja_new(kin_jinja **out, const char *source, size_t len, kin_err *err);
void kin_jinja_free(kin_jinja *jinja); // NULL is allowed

typedef struct kin_jinja_run {
    size_t begin, end; // bytes [begin, end) of the text
    kin_origin origin;
} kin_jinja_run;

// A rendered prompt. Adjacent runs differ in origin; together they cover the text.
typedef struct kin_jinja_text {
    const char *at; // [len], UTF-8
    size_t len;
    const kin_jinja_run *runs; // [n_runs]
    size_t n_runs;
} kin_jinja_text;

// Renders with the variables of a dict (messages, tools, add_generation_prompt, bos_token, ...). `variables` must be in
// `values`, and the result lives there too. now_s: local time in seconds since 1970, for strftime_now.
//
// Fails, with the line, where Jinja would; when the template calls raise_exception (the error is then its message); and beyond
// the limits of memory and steps (value.h), prompt length, and nesting of macros and expressions.
//
// Thread: any; one template may be rendered by several threads at once, each with its own values. Uses up to 256 KiB of stack.
int kin_jinja_render(const kin_jinja *jinja, kin_values *values, const kin_value *variables, int64_t now_s, kin_jinja_text *out,
                     kin_err *err);
