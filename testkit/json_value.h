// Converts JSON to values of chat templates, for tests.
#pragma once

#include <jansson.h>

#include "pure/jinja/value.h"

// Strings are borrowed from the JSON and count as input. Returns NULL if the heap has an error.
kin_value *json_value(kin_values *values, const json_t *json);

// Converts an object to the variables of a template: strings whose names end with _token belong to the template, as in a server.
kin_value *json_variables(kin_values *values, const json_t *object);
