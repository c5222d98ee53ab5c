// JSON schema as a grammar: generates GBNF (gbnf.h) for the JSON texts that are valid for a schema.
//
// Every text of the grammar is valid, but the grammar may omit valid texts:
//   - properties come in the order in which the schema lists them, each at most once. If `properties` is given without
//     `additionalProperties`, no others are allowed
//   - white space is short: at most one space, or one or two line ends and 20 blanks, between any two parts
//   - numbers have up to 16 digits before and after the point; with bounds up to 6 after it and no exponent; no "-0" with bounds
//   - keys that the schema does not list are written without escapes
//
// Supported: true, false, $ref (local: "#..."), $defs, type, enum, const, properties, required, additionalProperties,
// minProperties and maxProperties if the rest implies them, items, prefixItems, minItems, maxItems, minLength, maxLength,
// pattern (a subset, schema_string.h), format (date, time, date-time, uuid, ipv4; others are ignored), minimum, maximum,
// exclusiveMinimum, exclusiveMaximum, multipleOf (up to 10000; more with trailing zeros, less with digits after the point),
// anyOf, allOf, propertyNames (an enum, or a string type if the schema lists no names), `not` of a schema for which every value
// is valid, and oneOf if its alternatives provably exclude each other. Annotations (listed in schema_combine.c: title,
// description, default, examples, $schema, markdownDescription, errorMessage, propertyOrdering, x-..., ui:...) do not affect
// validity. Any other keyword is an error that names it and its place.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "pure/grammar/schema_combine.h"
#include "pure/grammar/schema_grammar.h"
#include "pure/text/json.h"

enum { KIN_SCHEMA_MAX_RULES = 1 << 12 }; // different schemas, after references and combinations

#define KIN_SCHEMA_ANY_OBJECT "{\"type\":\"object\"}" // for response_format json_object

// Appends the grammar to `gbnf`. Fails with a sentence that names the keyword and its place: "schema: #/properties/a: ...".
// relaxed: see below.
int kin_schema_to_gbnf(kin_str schema, kin_text_buffer *relaxed, kin_text_buffer *gbnf, kin_err *err);

// Compiles the grammar of a schema. A schema that no document satisfies is an error that names the place:
// "schema: #/properties/a: no text ...". budget: NULL means one of KIN_GRAMMAR_MAX_STEPS.
int kin_schema_compile(kin_grammar **out, kin_str schema, kin_text_buffer *relaxed, kin_grammar_budget *budget, kin_err *err);

// Appends the rules of a schema, as a part of a larger grammar. text: NULL, or the value is written like that. schema: a value of
// `json`, whose root resolves references. Appends rules to `to`, which must contain kin_schema_put_builtins (schema_string.h),
// and an expression for the schema to `rule`. relaxed: NULL, or unsupported keywords are ignored instead of being errors while
// all others apply, so not every text of the grammar is valid. The ignored ones are appended to it: "#/properties/id/pattern
// (why); ...", at most KIN_SCHEMA_MAX_RELAXED bytes of ASCII. After a failure `to` and `rule` may be partly written.
int kin_schema_put_rules(const kin_json *json, const kin_json_value *schema, const kin_schema_text *text,
                         kin_text_buffer *relaxed, kin_text_buffer *rule, kin_schema_grammar *to, kin_err *err);
