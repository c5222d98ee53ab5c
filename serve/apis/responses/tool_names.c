#include "serve/apis/responses/tool_names.h"

#include <string.h>

#include "serve/chat_build.h"

#define SEPARATOR "__"

static bool is_type(const json_t *tool, const char *type) {
    const char *is = json_string_value(json_object_get(tool, "type"));
    return is && strcmp(is, type) == 0;
}

static bool is_named(const json_t *tool, kin_str name) {
    const json_t *own = json_object_get(tool, "name");
    return json_is_string(own) && json_string_length(own) == name.len && memcmp(json_string_value(own), name.at, name.len) == 0;
}

// Returns the tool of this name in a namespace; NULL if there is none.
static const json_t *find_in(const json_t *space, kin_str name) {
    const json_t *tool;
    size_t i;
    json_array_foreach(json_object_get(space, "tools"), i, tool) {
        if (is_named(tool, name)) return tool;
    }
    return NULL;
}

kin_responses_tool kin_responses_find_tool(const json_t *tools, kin_str called) {
    const json_t *tool;
    size_t i, n_separator = strlen(SEPARATOR);
    json_array_foreach(tools, i, tool) {
        if (is_named(tool, called)) return (kin_responses_tool){.name = called, .is_custom = is_type(tool, "custom")};
    }
    json_array_foreach(tools, i, tool) {
        const json_t *space = json_object_get(tool, "name");
        size_t n = json_string_length(space), begin = n + n_separator;
        if (!is_type(tool, "namespace") || called.len < begin || memcmp(called.at, json_string_value(space), n) != 0) continue;
        kin_str name = {called.at + begin, called.len - begin};
        const json_t *inner = memcmp(called.at + n, SEPARATOR, n_separator) == 0 ? find_in(tool, name) : NULL;
        if (inner)
            return (kin_responses_tool){
                .namespace = json_string_value(space), .name = name, .is_custom = is_type(inner, "custom")};
    }
    return (kin_responses_tool){.name = called};
}

json_t *kin_responses_full_name(const json_t *namespace, const json_t *name) {
    if (!json_is_string(namespace) || !json_is_string(name)) return json_incref((json_t *)name);
    return json_sprintf("%s" SEPARATOR "%s", json_string_value(namespace), json_string_value(name));
}

json_t *kin_responses_custom_input(kin_str arguments) {
    json_t *object = json_loadb(arguments.at ? arguments.at : "", arguments.len, JSON_ALLOW_NUL, NULL);
    json_t *input = json_object_get(object, "input");
    input = json_is_string(input) ? json_incref(input) : json_string("");
    json_decref(object);
    return input;
}

json_t *kin_responses_custom_arguments(const json_t *input) {
    json_t *object = json_object();
    json_object_set(object, "input", (json_t *)input);
    json_t *text = kin_chat_json_string(object);
    json_decref(object);
    return text;
}

json_t *kin_responses_custom_parameters(void) {
    return json_pack("{s:s, s:{s:{s:s, s:s}}, s:[s], s:b}", "type", "object", "properties", "input", "type", "string",
                     "description", "The tool's whole input, as plain text", "required", "input", "additionalProperties", 0);
}
