// Tool parameters that are written as plain text (XML-like formats): converts the text to a JSON value, guided by the tool's
// schema.
//
// The schema is read leniently: unsupported parts are ignored. $ref within the schema, anyOf, oneOf and allOf are followed.
#pragma once

#include "pure/grammar/schema_combine.h" // KIN_TYPE_...
#include "pure/text/json.h"

// Returns the types that the schema of a parameter allows (bits KIN_TYPE_...); the set may be too large. schema: a value of
// `json`.
unsigned kin_parameter_types(const kin_json *json, const kin_json_value *schema);

// Returns the schema that describes the parameters: the whole one, or, if it names no parameters, the one to which its $ref
// leads.
const kin_json_value *kin_parameter_root(const kin_json *json);

// Appends the JSON value for `text`. schema: of all parameters (kin_parameter_root); if it is NULL or does not describe the name,
// by `properties` or `additionalProperties`, any type is allowed.
//
// If a string is allowed, the text is a string, unless it is null, an object or an array and the schema allows that too.
// Otherwise it is parsed as null or a JSON value of an allowed type (Python's True, False and None are accepted). A text that
// fits no allowed type becomes a string, so that the tool's caller sees what the model wrote.
void kin_parameter_put(const kin_json *json, const kin_json_value *schema, kin_str name, kin_str text, kin_text_buffer *out);
