// Names of tools in OpenAI's responses. A template has one list of functions; the API also has namespaces with functions in them,
// and custom tools, whose input is plain text. The model knows a function in a namespace as NAMESPACE__NAME, and a custom tool as
// a function with one argument, `input`.
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/str.h"

typedef struct kin_responses_tool {
    const char *namespace; // NULL: none
    kin_str name;          // as the client knows it
    bool is_custom;
} kin_responses_tool;

// Returns the tool of the request's `tools` that the model calls by this name. Lives as long as both.
kin_responses_tool kin_responses_find_tool(const json_t *tools, kin_str called);

// Returns the model's name of a function, as a new string. namespace NULL: none.
json_t *kin_responses_full_name(const json_t *namespace, const json_t *name);

// Returns the input of a custom tool, from the arguments of its call, as a new string; of unfinished arguments an empty one.
json_t *kin_responses_custom_input(kin_str arguments);
// The reverse: the arguments, as a new string. The parameters, as a new schema.
json_t *kin_responses_custom_arguments(const json_t *input);
json_t *kin_responses_custom_parameters(void);
