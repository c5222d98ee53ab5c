#include "serve/request/request_chat.h"

#include <stdlib.h>
#include <string.h>

#include "pure/grammar/schema.h"
#include "pure/text/text_buffer.h"
#include "serve/json_out.h"
#include "serve/request/request_sampling.h"

// ---- messages

static bool is(const json_t *string, const char *text) {
    return json_is_string(string) && strcmp(json_string_value(string), text) == 0;
}

static int set(const kin_fields *of, const char *name, json_t *value, kin_api_error *err) {
    return json_object_set_new((json_t *)of->json, name, value) < 0 ? kin_api_error_memory(err) : 0;
}

// Appends the text of one content part.
static int append_part(kin_text_buffer *text, const kin_fields *part, kin_api_error *err) {
    const json_t *type, *said;
    if (kin_fields_need(part, "type", KIN_FIELD_STRING, &type, err) < 0) return KIN_FAIL;
    if (is(type, "image_url") || is(type, "input_audio") || is(type, "audio_url") || is(type, "input_video") ||
        is(type, "video_url") || is(type, "file"))
        return kin_fields_wrong(part, NULL, err, 501, "kin supports text only, not %s", json_string_value(type));
    if (!is(type, "text") && !is(type, "refusal"))
        return kin_fields_wrong(part, "type", err, 400, "must be 'text', but is '%.40s'", json_string_value(type));
    if (kin_fields_need(part, json_string_value(type), KIN_FIELD_STRING, &said, err) < 0) return KIN_FAIL;
    if (text->len > 0) kin_text_put(text, "\n", 1);
    kin_text_put(text, json_string_value(said), json_string_length(said));
    return 0;
}

// Joins the parts into one string.
static int join_parts(const kin_fields *message, const json_t *parts, kin_api_error *err) {
    kin_text_buffer text = {0};
    kin_fields part;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(parts); i++) {
        rc = kin_fields_item(message, "content", parts, i, &part, err);
        if (rc == 0) rc = append_part(&text, &part, err);
    }
    if (rc == 0) rc = set(message, "content", text.failed ? NULL : json_stringn(text.at ? text.at : "", text.len), err);
    kin_text_fini(&text);
    return rc;
}

// Converts arguments to a string: some clients send the object itself, or an empty string for no arguments.
static int convert_arguments(const kin_fields *function, kin_api_error *err) {
    const json_t *arguments = kin_fields_any(function, "arguments");
    if (json_is_string(arguments) && json_string_length(arguments) > 0) return 0;
    if (!json_is_object(arguments) && kin_fields_get(function, "arguments", KIN_FIELD_STRING, &arguments, err) < 0)
        return KIN_FAIL;
    kin_text_buffer text = {0};
    if (json_is_object(arguments))
        kin_json_put(json_incref((json_t *)arguments), &text);
    else
        kin_text_put(&text, "{}", 2);
    int rc = set(function, "arguments", text.failed ? NULL : json_stringn(text.at, text.len), err);
    kin_text_fini(&text);
    return rc;
}

static int check_call(const kin_fields *call, kin_api_error *err) {
    kin_fields function;
    const json_t *ignored;
    if (kin_fields_get(call, "id", KIN_FIELD_STRING, &ignored, err) < 0) return KIN_FAIL;
    if (kin_fields_object(call, "function", &function, err) < 0) return KIN_FAIL;
    if (!function.json) return kin_fields_wrong(call, "function", err, 400, "is required");
    if (kin_fields_need(&function, "name", KIN_FIELD_STRING, &ignored, err) < 0) return KIN_FAIL;
    return convert_arguments(&function, err);
}

// An empty list of calls is removed.
static int check_calls(const kin_fields *message, bool *has_calls, kin_api_error *err) {
    const json_t *calls;
    kin_fields call;
    if (kin_fields_get(message, "tool_calls", KIN_FIELD_ARRAY, &calls, err) < 0) return KIN_FAIL;
    *has_calls = json_array_size(calls) > 0;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        if (kin_fields_item(message, "tool_calls", calls, i, &call, err) < 0 || check_call(&call, err) < 0) return KIN_FAIL;
    }
    if (calls && !*has_calls) json_object_del((json_t *)message->json, "tool_calls");
    return 0;
}

static int convert_content(const kin_fields *message, bool has_calls, kin_api_error *err) {
    const json_t *content = kin_fields_any(message, "content");
    if (json_is_array(content)) return join_parts(message, content, err);
    if (content && !json_is_string(content))
        return kin_fields_wrong(message, "content", err, 400, "type must be string or array, but is %s",
                                kin_json_type_name(content));
    if (content) return 0;
    bool is_null = json_object_get(message->json, "content") && !has_calls;
    if (is_null) return set(message, "content", json_string(""), err);
    if (!kin_fields_is(message, "role", "assistant")) return kin_fields_wrong(message, "content", err, 400, "is required");
    if (has_calls || json_string_length(kin_fields_any(message, "reasoning_content")) > 0) return 0;
    return kin_fields_wrong(message, NULL, err, 400, "an assistant's message must have content or tool_calls");
}

static int convert_message(const kin_fields *message, kin_api_error *err) {
    static const char *const strings[] = {"reasoning_content", "name", "tool_call_id"};
    const json_t *role, *ignored;
    bool has_calls = false;
    if (kin_fields_need(message, "role", KIN_FIELD_STRING, &role, err) < 0) return KIN_FAIL;
    if (json_string_length(role) == 0) return kin_fields_wrong(message, "role", err, 400, "must not be empty");
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
        if (kin_fields_get(message, strings[i], KIN_FIELD_STRING, &ignored, err) < 0) return KIN_FAIL;
    }
    if (is(role, "assistant") && check_calls(message, &has_calls, err) < 0) return KIN_FAIL;
    if (convert_content(message, has_calls, err) < 0) return KIN_FAIL;
    return is(role, "developer") ? set(message, "role", json_string("system"), err) : 0;
}

bool kin_request_knows_role(const json_t *role) {
    static const char *const known[] = {"system", "developer", "user", "assistant", "tool", "function"};
    bool is_known = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        is_known |= is(role, known[i]) && json_string_length(role) == strlen(known[i]);
    return is_known;
}

int kin_request_check_roles(kin_request *r, kin_api_error *err) {
    kin_fields body = kin_request_body(r), message;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(r->messages); i++) {
        rc = kin_fields_item(&body, "messages", r->messages, i, &message, err);
        const json_t *role = rc == 0 ? kin_fields_any(&message, "role") : NULL;
        if (rc == 0 && !kin_request_knows_role(role))
            rc = kin_fields_wrong(&message, "role", err, 400,
                                  "must be system, developer, user, assistant, tool or function, but is '%.40s'",
                                  json_string_value(role));
    }
    if (rc != 0) kin_request_fini(r);
    return rc;
}

static bool is_prefill(const json_t *message) {
    return is(json_object_get(message, "role"), "assistant") && !json_object_get(message, "tool_calls") &&
           json_string_length(json_object_get(message, "content")) > 0;
}

static int read_messages(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    kin_fields body = kin_request_body(r), message;
    size_t n = json_array_size(value);
    if (!json_is_array(value)) return kin_request_type_error(err, name, "array", value);
    for (size_t i = 0; i < n; i++) {
        if (kin_fields_item(&body, name, value, i, &message, err) < 0 || convert_message(&message, err) < 0) return KIN_FAIL;
    }
    r->messages = value;
    r->continues_last = n > 0 && is_prefill(json_array_get(value, n - 1));
    if (r->continues_last && n > 1 && is_prefill(json_array_get(value, n - 2)))
        return kin_fields_wrong(&body, name, err, 400, "two assistant messages at the end; only one can be continued");
    return 0;
}

// true: the last message must be suitable for continuing; false: it is not continued.
static int read_continue(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    bool wanted = json_is_true(value) || is(value, "content");
    if (!json_is_boolean(value) && !wanted)
        return kin_api_error_set(err, 400, name, "Field '%s': must be a boolean or \"content\"", name);
    if (wanted && json_is_true(json_object_get(r->body, "add_generation_prompt")))
        return kin_api_error_set(err, 400, name, "Cannot set both add_generation_prompt and continue_final_message to true.");
    if (wanted && !r->continues_last)
        return kin_api_error_set(err, 400, name, "Field '%s': the last message must be an assistant message with content", name);
    r->continues_last = wanted;
    return 0;
}

// ---- tools

bool kin_request_is_tool_name(const json_t *name) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    const size_t len = json_string_length(name);
    return len > 0 && len <= KIN_REQUEST_MAX_TOOL_NAME && strspn(json_string_value(name), allowed) == len;
}

static int check_tool(const kin_fields *tool, kin_api_error *err) {
    kin_fields function;
    const json_t *type, *called, *ignored;
    if (kin_fields_need(tool, "type", KIN_FIELD_STRING, &type, err) < 0) return KIN_FAIL;
    if (!is(type, "function"))
        return kin_fields_wrong(tool, "type", err, 400, "must be 'function', but is '%.40s'", json_string_value(type));
    if (kin_fields_object(tool, "function", &function, err) < 0) return KIN_FAIL;
    if (!function.json) return kin_fields_wrong(tool, "function", err, 400, "is required");
    if (kin_fields_need(&function, "name", KIN_FIELD_STRING, &called, err) < 0) return KIN_FAIL;
    if (!kin_request_is_tool_name(called))
        return kin_fields_wrong(&function, "name", err, 400, "must be 1 to %d letters, digits, '_', '-' or '.'",
                                KIN_REQUEST_MAX_TOOL_NAME);
    if (kin_fields_get(&function, "description", KIN_FIELD_STRING, &ignored, err) < 0) return KIN_FAIL;
    if (kin_fields_get(&function, "strict", KIN_FIELD_BOOL, &ignored, err) < 0) return KIN_FAIL;
    if (kin_fields_get(&function, "parameters", KIN_FIELD_OBJECT, &ignored, err) < 0) return KIN_FAIL;
    // As in OpenAI's API, a tool without parameters takes none. Templates write them without looking whether there are any.
    static const char none[] = "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}";
    return ignored ? 0 : set(&function, "parameters", json_loads(none, 0, NULL), err);
}

// Calls name their tool, so names must be unique.
static int check_names_differ(const kin_fields *body, const char *name, const json_t *tools, kin_api_error *err) {
    int rc = 0;
    size_t i;
    json_t *tool, *seen = json_object();
    if (!seen) return kin_api_error_memory(err);
    json_array_foreach(tools, i, tool) {
        const char *called = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (json_object_get(seen, called))
            rc = kin_fields_wrong(body, name, err, 400, "two tools are named '%.64s'", called);
        else if (json_object_set(seen, called, tool) < 0)
            rc = kin_api_error_memory(err);
        if (rc < 0) break;
    }
    json_decref(seen);
    return rc;
}

static int read_tools(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    kin_fields body = kin_request_body(r), tool;
    size_t n = json_array_size(value);
    if (!json_is_array(value)) return kin_request_type_error(err, name, "array", value);
    if (n > KIN_REQUEST_MAX_TOOLS) return kin_fields_wrong(&body, name, err, 400, "more than %d tools", KIN_REQUEST_MAX_TOOLS);
    for (size_t i = 0; i < n; i++) {
        if (kin_fields_item(&body, name, value, i, &tool, err) < 0 || check_tool(&tool, err) < 0) return KIN_FAIL;
    }
    if (check_names_differ(&body, name, value, err) < 0) return KIN_FAIL;
    r->tools = n > 0 ? value : NULL;
    return 0;
}

static json_t *find_tool(const json_t *tools, const char *name) {
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        if (is(json_object_get(json_object_get(tool, "function"), "name"), name)) return tool;
    }
    return NULL;
}

// {type: allowed_tools, allowed_tools: {mode, tools}}: drops all other tools.
static int read_allowed_tools(kin_request *r, const kin_fields *choice, kin_api_error *err) {
    kin_fields allowed, tool, function;
    const json_t *tools, *called;
    if (kin_fields_object(choice, "allowed_tools", &allowed, err) < 0) return KIN_FAIL;
    if (!allowed.json) return kin_fields_wrong(choice, "allowed_tools", err, 400, "is required");
    if (kin_fields_need(&allowed, "tools", KIN_FIELD_ARRAY, &tools, err) < 0) return KIN_FAIL;
    if (!kin_fields_is(&allowed, "mode", "auto") && !kin_fields_is(&allowed, "mode", "required"))
        return kin_fields_wrong(&allowed, "mode", err, 400, "must be \"auto\" or \"required\"");
    if (json_array_size(tools) == 0) return kin_fields_wrong(&allowed, "tools", err, 400, "must not be empty");
    json_t *kept = json_array();
    if (!kept || json_object_set_new(r->body, "allowed_tools", kept) < 0) return kin_api_error_memory(err); // the body owns it
    for (size_t i = 0; i < json_array_size(tools); i++) {
        if (kin_fields_item(&allowed, "tools", tools, i, &tool, err) < 0 ||
            kin_fields_object(&tool, "function", &function, err) < 0)
            return KIN_FAIL;
        if (!function.json) return kin_fields_wrong(&tool, "function", err, 400, "is required");
        if (kin_fields_need(&function, "name", KIN_FIELD_STRING, &called, err) < 0) return KIN_FAIL;
        json_t *found = find_tool(r->tools, json_string_value(called));
        if (!found) return kin_fields_wrong(&function, "name", err, 400, "'%.64s' is not in tools", json_string_value(called));
        bool is_kept = find_tool(kept, json_string_value(called)) != NULL; // it may be named twice
        if (!is_kept && json_array_append(kept, found) < 0) return kin_api_error_memory(err);
    }
    r->tool_choice = kin_fields_is(&allowed, "mode", "required") ? KIN_TOOLS_REQUIRED : KIN_TOOLS_AUTO;
    r->tools = kept;
    return 0;
}

static int read_named_choice(kin_request *r, const char *name, kin_api_error *err) {
    kin_fields body = kin_request_body(r), choice, function;
    const json_t *called;
    if (kin_fields_object(&body, name, &choice, err) < 0) return KIN_FAIL;
    if (kin_fields_is(&choice, "type", "allowed_tools")) return read_allowed_tools(r, &choice, err);
    if (kin_fields_object(&choice, "function", &function, err) < 0) return KIN_FAIL;
    if (!kin_fields_is(&choice, "type", "function") || !function.json)
        return kin_fields_wrong(&choice, NULL, err, 400,
                                "an object must be {\"type\": \"function\", \"function\": {\"name\": ...}}, or of type "
                                "allowed_tools");
    if (kin_fields_need(&function, "name", KIN_FIELD_STRING, &called, err) < 0) return KIN_FAIL;
    r->tool_name = json_string_value(called);
    r->tool_choice = KIN_TOOLS_NAMED;
    if (find_tool(r->tools, r->tool_name)) return 0;
    return kin_fields_wrong(&choice, NULL, err, 400, "'%.64s' is not in tools", r->tool_name);
}

static int read_tool_choice(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    if (json_is_object(value)) return read_named_choice(r, name, err);
    if (!json_is_string(value)) return kin_request_type_error(err, name, "string or object", value);
    if (is(value, "auto"))
        r->tool_choice = KIN_TOOLS_AUTO;
    else if (is(value, "none"))
        r->tool_choice = KIN_TOOLS_NONE;
    else if (is(value, "required"))
        r->tool_choice = KIN_TOOLS_REQUIRED;
    else
        return kin_api_error_set(err, 400, name, "Invalid tool_choice: %.64s", json_string_value(value));
    if (r->tool_choice == KIN_TOOLS_REQUIRED && !r->tools)
        return kin_api_error_set(err, 400, name, "Field '%s': a call is required, but there are no tools", name);
    return 0;
}

// ---- format, reasoning, probabilities

static int read_format_schema(kin_request *r, const kin_fields *format, kin_api_error *err) {
    kin_fields inside;
    if (kin_fields_object(format, "json_schema", &inside, err) < 0) return KIN_FAIL;
    const json_t *schema = inside.json ? kin_fields_any(&inside, "schema") : NULL;
    if (!schema) return kin_fields_wrong(&inside, "schema", err, 400, "is required");
    const json_t *strict;
    if (kin_fields_get(&inside, "strict", KIN_FIELD_BOOL, &strict, err) < 0) return KIN_FAIL;
    r->schema_is_strict = strict && json_is_true(strict);
    return kin_request_set_schema(r, "response_format.json_schema.schema", schema, err);
}

static int read_format(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    kin_fields body = kin_request_body(r), format;
    (void)value;
    if (kin_fields_object(&body, name, &format, err) < 0) return KIN_FAIL;
    if (kin_fields_is(&format, "type", "text")) return 0;
    if (kin_fields_is(&format, "type", "json_schema")) return read_format_schema(r, &format, err);
    if (!kin_fields_is(&format, "type", "json_object"))
        return kin_fields_wrong(&format, "type", err, 400, "must be \"text\", \"json_object\" or \"json_schema\"");
    const json_t *schema = kin_fields_any(&format, "schema");
    if (schema) return kin_request_set_schema(r, "response_format.schema", schema, err);
    free(r->schema);
    r->schema = strdup(KIN_SCHEMA_ANY_OBJECT);
    return r->schema ? 0 : kin_api_error_memory(err);
}

static int read_template_kwargs(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    kin_fields body = kin_request_body(r), kwargs;
    const json_t *thinking;
    if (kin_fields_object(&body, name, &kwargs, err) < 0) return KIN_FAIL;
    if (kin_fields_get(&kwargs, "enable_thinking", KIN_FIELD_BOOL, &thinking, err) < 0) return KIN_FAIL;
    if (thinking) r->thinking = json_is_true(thinking) ? KIN_YES : KIN_NO;
    r->template_kwargs = value;
    return 0;
}

// "none" turns thinking off; other values are passed to the template.
static int read_effort(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    json_t *kwargs = json_object_get(r->body, "chat_template_kwargs");
    if (!json_is_string(value)) return kin_request_type_error(err, name, "string", value);
    if (is(value, "none")) {
        if (r->thinking == KIN_UNSET) r->thinking = KIN_NO;
        return 0;
    }
    if (!json_is_object(kwargs)) {
        kwargs = json_object();
        if (json_object_set_new(r->body, "chat_template_kwargs", kwargs) < 0) return kin_api_error_memory(err);
    }
    r->template_kwargs = kwargs;
    if (json_object_get(kwargs, name)) return 0;
    return json_object_set(kwargs, name, value) < 0 ? kin_api_error_memory(err) : 0;
}

static int read_thinking(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    kin_fields body = kin_request_body(r), thinking;
    int64_t budget;
    (void)value;
    if (kin_fields_object(&body, name, &thinking, err) < 0) return KIN_FAIL;
    if (kin_fields_is(&thinking, "type", "disabled"))
        r->thinking = KIN_NO;
    else if (kin_fields_is(&thinking, "type", "enabled"))
        r->thinking = KIN_YES;
    else if (!kin_fields_is(&thinking, "type", "adaptive") && !kin_fields_is(&thinking, "type", "auto"))
        return kin_fields_wrong(&thinking, "type", err, 400, "must be \"enabled\", \"disabled\", \"adaptive\" or \"auto\"");
    const json_t *tokens = kin_fields_any(&thinking, "budget_tokens");
    if (!tokens) return 0;
    if (kin_request_whole("thinking.budget_tokens", tokens, -1, INT32_MAX, &budget, err) < 0) return KIN_FAIL;
    r->thinking_budget = (int)budget;
    return 0;
}

static int read_reasoning_format(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    if (!json_is_string(value)) return kin_request_type_error(err, name, "string", value);
    r->reasoning_in_content = is(value, "none");
    if (r->reasoning_in_content || is(value, "auto") || is(value, "deepseek")) return 0;
    return kin_api_error_set(err, 400, name, "Field '%s': must be \"auto\", \"deepseek\" or \"none\"", name);
}

static int read_logprobs(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    if (!json_is_boolean(value)) return kin_request_type_error(err, name, "boolean", value);
    if (json_is_true(value) && r->n_probs < 0) r->n_probs = 0;
    return 0;
}

static int read_top_logprobs(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    int64_t n;
    if (kin_request_whole(name, value, 0, KIN_REQUEST_MAX_PROBS, &n, err) < 0) return KIN_FAIL;
    if (n > 0 && !json_is_true(json_object_get(r->body, "logprobs")))
        return kin_api_error_set(err, 400, name, "top_logprobs requires logprobs to be set to true");
    if (n > r->n_probs) r->n_probs = n > 0 ? (int)n : r->n_probs;
    return 0;
}

static int read_modalities(kin_request *r, const char *name, json_t *value, kin_api_error *err) {
    size_t i;
    json_t *one;
    (void)r;
    if (!json_is_array(value)) return kin_request_type_error(err, name, "array", value);
    json_array_foreach(value, i, one) {
        if (!is(one, "text")) return kin_api_error_set(err, 400, name, "Field '%s': kin supports text output only", name);
    }
    return 0;
}

static const kin_request_field chat_fields[] = {
    KIN_ROW_OTHER("messages", read_messages),
    KIN_ROW_BOOL("add_generation_prompt", add_generation_prompt),
    KIN_ROW_OTHER("continue_final_message", read_continue),
    KIN_ROW_OTHER("tools", read_tools),
    KIN_ROW_OTHER("tool_choice", read_tool_choice),
    KIN_ROW_BOOL("parallel_tool_calls", parallel_tool_calls),
    KIN_ROW_OTHER("response_format", read_format),
    KIN_ROW_OTHER("chat_template_kwargs", read_template_kwargs),
    KIN_ROW_OTHER("reasoning_effort", read_effort),
    KIN_ROW_OTHER("reasoning_format", read_reasoning_format),
    KIN_ROW_WHOLE("reasoning_budget_tokens", thinking_budget, -1, INT32_MAX),
    KIN_ROW_WHOLE("reasoning_budget", thinking_budget, -1, INT32_MAX),
    KIN_ROW_WHOLE("thinking_budget_tokens", thinking_budget, -1, INT32_MAX),
    KIN_ROW_STRING("reasoning_budget_message", thinking_budget_message),
    KIN_ROW_OTHER("thinking", read_thinking),
    KIN_ROW_OTHER("modalities", read_modalities),
    KIN_ROW_OTHER("logprobs", read_logprobs),
    KIN_ROW_OTHER("top_logprobs", read_top_logprobs),
    {.name = NULL},
};

static int read_chat(kin_request *r, kin_api_error *err) {
    r->is_chat = true;
    if (kin_request_fields_read(r, kin_request_common_fields, err) < 0) return KIN_FAIL;
    if (kin_request_fields_read(r, chat_fields, err) < 0) return KIN_FAIL;
    if (!r->messages) return kin_api_error_set(err, 400, "messages", "'messages' is required");
    if (json_array_size(r->messages) == 0) return kin_api_error_set(err, 400, "messages", "'messages' must not be empty");
    return kin_request_check(r, err);
}

int kin_request_from_chat(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err) {
    if (kin_request_begin(out, body, defaults, err) == 0 && read_chat(out, err) == 0) {
        bool is_said = out->thinking != KIN_UNSET || defaults->reasoning == KIN_REASONING_AUTO;
        if (!is_said) out->thinking = defaults->reasoning == KIN_REASONING_ON ? KIN_YES : KIN_NO;
        return 0;
    }
    kin_request_fini(out);
    return KIN_FAIL;
}
