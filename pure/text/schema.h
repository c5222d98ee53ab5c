// JSON schema as a grammar: GBNF (gbnf.h) for texts that are valid JSON of that schema.
//
// Every text of the grammar is valid. The grammar may leave valid texts out:
//   - properties come in the order in which the schema lists them; each at most once. Where `properties` are listed and
//     `additionalProperties` is not said, there are no others
//   - white space is short: at most a space, or one or two line ends and 20 blanks, between any two parts
//   - numbers have up to 16 digits before and after the point; with bounds up to 6 after it and no exponent; no "-0" with bounds
//   - keys that the schema does not list are written without escapes
//
// Understood: true, false, $ref (local: "#..."), $defs, type, enum, const, properties, required, additionalProperties,
// minProperties and maxProperties where the rest implies them, items, prefixItems, minItems, maxItems, minLength, maxLength,
// pattern (a subset, schema_string.h), format (date, time, date-time, uuid, ipv4; others say nothing), minimum, maximum,
// exclusiveMinimum, exclusiveMaximum, anyOf, allOf, and oneOf where its alternatives provably exclude each other. Annotations
// (title, description, default, examples, $schema, $id, $comment, deprecated, readOnly, writeOnly, x-...) say nothing about
// validity. Any other keyword is an error that names it and its place.
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"
#include "pure/text/text_buffer.h"

enum {
    KIN_SCHEMA_MAX_RULES = 1 << 12,   // different schemas, after references and combinations
    KIN_SCHEMA_MAX_CHOICES = 1 << 10, // texts or tools to choose from
};

#define KIN_SCHEMA_ANY_OBJECT "{\"type\":\"object\"}" // response_format json_object

// Appends the grammar to `gbnf`. Fails with a sentence that names the keyword and its place: "schema: #/properties/a: ...".
int kin_schema_to_gbnf(kin_str schema, kin_text_buffer *gbnf, kin_err *err);

// The same for one of several texts, each of which is: these bytes, JSON of a schema, these bytes.
typedef struct kin_schema_choice {
    kin_str before, schema, after; // before, after: UTF-8
} kin_schema_choice;

int kin_schema_choices_to_gbnf(const kin_schema_choice *choices, size_t n, kin_text_buffer *gbnf, kin_err *err);

// Exactly one call of one of the tools: PREFIX {"name": "NAME", "arguments": {...}} SUFFIX. One tool: that one (tool_choice names
// it).
typedef struct kin_schema_tool {
    kin_str name;       // UTF-8
    kin_str parameters; // schema of the arguments; empty: any object
} kin_schema_tool;

int kin_schema_tools_to_gbnf(const kin_schema_tool *tools, size_t n, kin_str prefix, kin_str suffix, kin_text_buffer *gbnf,
                             kin_err *err);
