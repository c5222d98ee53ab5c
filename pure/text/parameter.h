// Parameters of tools that are written as plain text (XML-like formats): which JSON value a text means, by the tool's schema.
//
// The schema is read leniently: what is not understood says nothing. $ref within the schema, anyOf, oneOf and allOf are followed.
#pragma once

#include "pure/text/json.h"
#include "pure/text/schema_combine.h" // KIN_TYPE_...

// The types that the schema of a parameter allows, at least: bits KIN_TYPE_...; schema: a value of the tree.
unsigned kin_parameter_types(const kin_json *json, const kin_json_value *schema);

// Appends the JSON value for `text`. schema: of all parameters, an object with `properties`; NULL or none for this name: any
// type.
//
// Where a string is allowed, a text is one, but for null, an object or an array that is allowed too. Else it is the JSON value
// that is written, if that is of an allowed type (also Python's True, False, None). What fits nothing is a string: so the caller
// of the tool sees what the model wrote.
void kin_parameter_put(const kin_json *json, const kin_json_value *schema, kin_str name, kin_str text, kin_text_buffer *out);
