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
// exclusiveMinimum, exclusiveMaximum, multipleOf (up to 10000, with zeros behind it more; with digits after the point less),
// anyOf, allOf, propertyNames with an enum, not of a schema that takes everything, and oneOf where its alternatives provably
// exclude each other. A format beside a pattern says nothing. Annotations (schema_combine.c lists them: title, description,
// default, examples, $schema, markdownDescription, errorMessage, propertyOrdering, x-..., ui:...) say nothing about validity. Any
// other keyword is an error that names it and its place.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "pure/text/json.h"
#include "pure/text/text_buffer.h"

enum { KIN_SCHEMA_MAX_RULES = 1 << 12 }; // different schemas, after references and combinations

#define KIN_SCHEMA_ANY_OBJECT "{\"type\":\"object\"}" // response_format json_object

// Appends the grammar to `gbnf`. Fails with a sentence that names the keyword and its place: "schema: #/properties/a: ...".
// relaxed: as below.
int kin_schema_to_gbnf(kin_str schema, kin_text_buffer *relaxed, kin_text_buffer *gbnf, kin_err *err);

// The rules of a schema, for a grammar with more in it. schema: a value of `json`; references are looked up from the whole.
// Appends lines to `gbnf`, which has kin_schema_put_builtins (schema_string.h), and to `rule` what stands for the schema.
// relaxed: NULL, or a keyword that is not supported says nothing instead of being an error, and all others hold: then not every
// text is valid. What says nothing is appended there: "#/properties/id/pattern (why); ...", at most KIN_SCHEMA_MAX_RELAXED bytes
// of ASCII. *n_rules: of all schemas of the grammar so far, first 0. After a failure `gbnf` and `rule` may have more.
int kin_schema_put_rules(const kin_json *json, const kin_json_value *schema, kin_text_buffer *relaxed, uint32_t *n_rules,
                         kin_text_buffer *rule, kin_text_buffer *gbnf, kin_err *err);
