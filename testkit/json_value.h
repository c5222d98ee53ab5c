// JSON as values of chat templates, for tests.
#pragma once

#include <jansson.h>

#include "pure/text/value.h"

// Strings are borrowed from the JSON and are input. NULL when the heap has an error.
kin_value *json_value(kin_values *values, const json_t *json);

// An object as the variables of a template: its strings whose names end with _token are the template's, as a server has them.
kin_value *json_variables(kin_values *values, const json_t *object);
