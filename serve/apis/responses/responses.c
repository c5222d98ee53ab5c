#include "serve/apis/responses/responses.h"

#include <string.h>

#include "serve/apis/responses/tool_names.h"
#include "serve/chat_build.h"

// State of a translation.
typedef struct translation {
    kin_fields body;
    json_t *chat, *messages;
    json_t *tools;         // all that the request defines: of the body, and of items of the input
    json_t *told, *names;  // functions for the model; the names of all that were considered, as keys
    const json_t *allowed; // borrowed: those that the tool choice allows; NULL: all
    kin_chat_turn turn;    // of the assistant, not yet a message
} translation;

// ---- content

static int add_part(const kin_fields *part, kin_text_buffer *text, kin_api_error *err) {
    const json_t *type, *said;
    if (kin_fields_need(part, "type", KIN_FIELD_STRING, &type, err) != 0) return KIN_FAIL;
    const char *name = json_string_value(type);
    bool is_refusal = strcmp(name, "refusal") == 0;
    if (strcmp(name, "input_image") == 0 || strcmp(name, "input_file") == 0 || strcmp(name, "input_audio") == 0)
        return kin_fields_wrong(part, "type", err, 501, "this server supports text only, not %s", name);
    if (!is_refusal && strcmp(name, "input_text") != 0 && strcmp(name, "output_text") != 0 && strcmp(name, "text") != 0 &&
        strcmp(name, "reasoning_text") != 0 && strcmp(name, "summary_text") != 0)
        return kin_fields_wrong(part, "type", err, 400, "'%.40s' is not supported here", name);
    if (kin_fields_need(part, is_refusal ? "refusal" : "text", KIN_FIELD_STRING, &said, err) != 0) return KIN_FAIL;
    kin_chat_join(text, said);
    return 0;
}

// Adds a string, or an array of parts; nothing if absent.
static int add_content(const kin_fields *of, const char *name, kin_text_buffer *text, kin_api_error *err) {
    const json_t *content = kin_fields_any(of, name);
    kin_fields part;
    if (!content) return 0;
    if (!json_is_array(content)) {
        if (kin_fields_get(of, name, KIN_FIELD_STRING, &content, err) != 0) return KIN_FAIL;
        kin_chat_join(text, content);
        return 0;
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        if (kin_fields_item(of, name, content, i, &part, err) != 0 || add_part(&part, text, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// ---- input items

// Consecutive reasoning, text and calls form one message of the assistant; text after calls begins the next.
static int add_assistant(translation *t, const kin_fields *item, kin_api_error *err) {
    if (t->turn.calls) kin_chat_end_turn(&t->turn, t->messages);
    t->turn.has_text = true;
    return add_content(item, "content", &t->turn.text, err);
}

static int add_message(translation *t, const kin_fields *item, kin_api_error *err) {
    static const char *const roles[] = {"user", "system", "developer"};
    const json_t *role;
    if (kin_fields_need(item, "role", KIN_FIELD_STRING, &role, err) != 0) return KIN_FAIL;
    if (!kin_fields_any(item, "content")) return kin_fields_wrong(item, "content", err, 400, "is required");
    if (kin_fields_is(item, "role", "assistant")) return add_assistant(t, item, err);
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (!kin_fields_is(item, "role", roles[i])) continue;
        kin_text_buffer text = {0};
        int rc = add_content(item, "content", &text, err);
        kin_chat_end_turn(&t->turn, t->messages);
        if (rc == 0) kin_chat_add_message(t->messages, roles[i], &text);
        kin_text_fini(&text);
        return rc;
    }
    return kin_fields_wrong(item, "role", err, 400, "must be user, assistant, system or developer, but is '%.40s'",
                            json_string_value(role));
}

static int add_reasoning(translation *t, const kin_fields *item, kin_api_error *err) {
    const char *name = kin_fields_any(item, "content") ? "content" : "summary";
    if (t->turn.calls || t->turn.has_text) kin_chat_end_turn(&t->turn, t->messages);
    return add_content(item, name, &t->turn.reasoning, err);
}

// Adds a call of a function, or of a custom tool, whose free-form input becomes its only argument.
static int add_call(translation *t, const kin_fields *item, bool is_custom, kin_api_error *err) {
    const json_t *id, *name, *given;
    if (kin_fields_need(item, "call_id", KIN_FIELD_STRING, &id, err) != 0) return KIN_FAIL;
    if (kin_fields_need(item, "name", KIN_FIELD_STRING, &name, err) != 0) return KIN_FAIL;
    if (kin_fields_need(item, is_custom ? "input" : "arguments", KIN_FIELD_STRING, &given, err) != 0) return KIN_FAIL;
    json_t *arguments = is_custom ? kin_responses_custom_arguments(given) : json_incref((json_t *)given);
    json_t *full_name = kin_responses_full_name(kin_fields_any(item, "namespace"), name);
    kin_chat_add_call(&t->turn, id, full_name, arguments);
    json_decref(full_name);
    return 0;
}

static int add_call_output(translation *t, const kin_fields *item, kin_api_error *err) {
    const json_t *id;
    kin_text_buffer text = {0};
    if (kin_fields_need(item, "call_id", KIN_FIELD_STRING, &id, err) != 0) return KIN_FAIL;
    if (!kin_fields_any(item, "output")) return kin_fields_wrong(item, "output", err, 400, "is required");
    int rc = add_content(item, "output", &text, err);
    kin_chat_end_turn(&t->turn, t->messages);
    if (rc == 0) kin_chat_add_tool_result(t->messages, id, NULL, &text);
    kin_text_fini(&text);
    return rc;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

// True for an item that brings tools: those of newer models of Codex, and those that a search has found.
static bool has_tools(const kin_fields *item) {
    return kin_fields_is(item, "type", "additional_tools") || kin_fields_is(item, "type", "tool_search_output");
}

static int add_item(translation *t, const kin_fields *item, kin_api_error *err) {
    const json_t *type;
    if (kin_fields_get(item, "type", KIN_FIELD_STRING, &type, err) != 0) return KIN_FAIL;
    const char *name = type ? json_string_value(type) : "message";
    if (strcmp(name, "message") == 0) return add_message(t, item, err);
    if (strcmp(name, "reasoning") == 0) return add_reasoning(t, item, err);
    if (strcmp(name, "function_call") == 0) return add_call(t, item, false, err);
    if (strcmp(name, "custom_tool_call") == 0) return add_call(t, item, true, err);
    if (strcmp(name, "function_call_output") == 0 || strcmp(name, "custom_tool_call_output") == 0)
        return add_call_output(t, item, err);
    if (strcmp(name, "item_reference") == 0)
        return kin_fields_wrong(item, "type", err, 400, "responses are not stored: send the items themselves");
    if (has_tools(item)) return 0; // add_tools reads them
    // Skips calls of tools that OpenAI's servers run: a conversation begun there can continue here without them.
    if (ends_with(name, "_call") || ends_with(name, "_call_output")) return 0;
    return kin_fields_wrong(item, "type", err, 400, "'%.40s' is not supported", name);
}

static int add_instructions(translation *t, kin_api_error *err) {
    const json_t *instructions;
    kin_text_buffer text = {0};
    if (kin_fields_get(&t->body, "instructions", KIN_FIELD_STRING, &instructions, err) != 0) return KIN_FAIL;
    kin_chat_join(&text, instructions);
    if (text.len) kin_chat_add_message(t->messages, "system", &text);
    kin_text_fini(&text);
    return 0;
}

static int add_input(translation *t, kin_api_error *err) {
    const json_t *input = kin_fields_any(&t->body, "input");
    kin_fields item;
    kin_text_buffer text = {0};
    if (!input) return kin_fields_wrong(&t->body, "input", err, 400, "is required");
    if (!json_is_array(input)) {
        if (!json_is_string(input))
            return kin_fields_wrong(&t->body, "input", err, 400, "type must be string or array, but is %s",
                                    kin_json_type_name(input));
        kin_chat_join(&text, input);
        kin_chat_add_message(t->messages, "user", &text);
        return 0;
    }
    if (json_array_size(input) == 0) return kin_fields_wrong(&t->body, "input", err, 400, "at least one item is required");
    for (size_t i = 0; i < json_array_size(input); i++) {
        if (kin_fields_item(&t->body, "input", input, i, &item, err) != 0 || add_item(t, &item, err) != 0) return KIN_FAIL;
    }
    kin_chat_end_turn(&t->turn, t->messages);
    return 0;
}

// ---- tools

static int check_count(const kin_fields *of, const json_t *tools, kin_api_error *err) {
    if (json_array_size(tools) <= KIN_REQUEST_MAX_TOOLS) return 0;
    return kin_fields_wrong(of, "tools", err, 400, "more than %d tools", KIN_REQUEST_MAX_TOOLS);
}

static bool is_field(const json_t *of, const char *key, const json_t *value) {
    const json_t *own = json_object_get(of, key);
    return value ? json_equal(own, value) : !own;
}

// True if the tool choice allows the tool of this name in a namespace (NULL: in none), by itself or with the whole namespace.
// Without a list all are allowed.
static bool is_allowed(const json_t *allowed, const json_t *space, const json_t *name) {
    for (size_t i = 0; i < json_array_size(allowed); i++) {
        const json_t *one = json_array_get(allowed, i);
        if (is_field(one, "name", name) && is_field(one, "namespace", space)) return true;
        const char *type = json_string_value(json_object_get(one, "type"));
        if (space && type && strcmp(type, "namespace") == 0 && is_field(one, "name", space)) return true;
    }
    return !allowed;
}

// Adds a function or a custom tool if it is allowed and the first of its name, and if that, together with its namespace's (NULL:
// none), is not too long for the model.
static int add_function(translation *t, const kin_fields *tool, const json_t *space, kin_api_error *err) {
    static const char *const names[] = {"description", "parameters", "strict", NULL};
    const json_t *name, *parameters;
    if (kin_fields_need(tool, "name", KIN_FIELD_STRING, &name, err) != 0) return KIN_FAIL;
    if (kin_fields_get(tool, "parameters", KIN_FIELD_OBJECT, &parameters, err) != 0) return KIN_FAIL;
    json_t *full_name = kin_responses_full_name(space, name);
    const char *key = json_string_value(full_name);
    bool is_left_out = (space && json_string_length(full_name) > KIN_REQUEST_MAX_TOOL_NAME) || json_object_get(t->names, key);
    if (!is_left_out) json_object_set_new(t->names, key, json_true());
    if (is_left_out || !is_allowed(t->allowed, space, name)) {
        json_decref(full_name);
        return 0;
    }
    json_t *function = json_object(), *made = json_object();
    json_object_set_new(function, "name", full_name);
    kin_fields_copy(tool, names, function);
    if (kin_fields_is(tool, "type", "custom")) json_object_set_new(function, "parameters", kin_responses_custom_parameters());
    json_object_set_new(made, "type", json_string("function"));
    json_object_set_new(made, "function", function);
    json_array_append_new(t->told, made);
    return 0;
}

// Other types are dropped: OpenAI's servers run them.
static bool is_one(const kin_fields *tool) {
    return kin_fields_is(tool, "type", "function") || kin_fields_is(tool, "type", "custom");
}

static int add_namespace(translation *t, const kin_fields *space, kin_api_error *err) {
    const json_t *name, *given;
    kin_fields tool;
    if (kin_fields_need(space, "name", KIN_FIELD_STRING, &name, err) != 0) return KIN_FAIL;
    if (kin_fields_get(space, "tools", KIN_FIELD_ARRAY, &given, err) != 0 || check_count(space, given, err) != 0) return KIN_FAIL;
    for (size_t i = 0; i < json_array_size(given); i++) {
        if (kin_fields_item(space, "tools", given, i, &tool, err) != 0) return KIN_FAIL;
        if (is_one(&tool) && add_function(t, &tool, name, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// Adds the tools of the body or of an item.
static int add_tools_of(translation *t, const kin_fields *of, kin_api_error *err) {
    const json_t *given, *type;
    kin_fields tool;
    if (kin_fields_get(of, "tools", KIN_FIELD_ARRAY, &given, err) != 0 || check_count(of, given, err) != 0) return KIN_FAIL;
    if (given) json_array_extend(t->tools, (json_t *)given);
    for (size_t i = 0; i < json_array_size(given); i++) {
        if (kin_fields_item(of, "tools", given, i, &tool, err) != 0) return KIN_FAIL;
        if (kin_fields_need(&tool, "type", KIN_FIELD_STRING, &type, err) != 0) return KIN_FAIL;
        bool is_space = kin_fields_is(&tool, "type", "namespace");
        if (is_space && add_namespace(t, &tool, err) != 0) return KIN_FAIL;
        if (is_one(&tool) && add_function(t, &tool, NULL, err) != 0) return KIN_FAIL;
        if (json_object_size(t->names) > KIN_REQUEST_MAX_TOOLS)
            return kin_fields_wrong(of, "tools", err, 400, "more than %d tools", KIN_REQUEST_MAX_TOOLS);
    }
    return 0;
}

static int add_tools(translation *t, const json_t *allowed, kin_api_error *err) {
    const json_t *input = kin_fields_any(&t->body, "input");
    kin_fields item;
    t->allowed = allowed;
    if (add_tools_of(t, &t->body, err) != 0) return KIN_FAIL;
    for (size_t i = 0; i < json_array_size(input); i++) {
        if (kin_fields_item(&t->body, "input", input, i, &item, err) != 0) return KIN_FAIL;
        if (has_tools(&item) && add_tools_of(t, &item, err) != 0) return KIN_FAIL;
    }
    if (json_array_size(t->told) == 0) return 0;
    json_object_set(t->chat, "tools", t->told);
    json_object_set_new(t->chat, "parallel_tool_calls", json_true()); // unless the body turns it off
    kin_fields_copy_as(&t->body, "parallel_tool_calls", t->chat, "parallel_tool_calls");
    return 0;
}

// "auto", "none", "required"; {type: function or custom, name}; {type: allowed_tools, mode, tools}.
static int add_tools_and_choice(translation *t, kin_api_error *err) {
    const json_t *given = kin_fields_any(&t->body, "tool_choice"), *name, *allowed;
    kin_fields choice;
    if (!given || json_is_string(given)) {
        kin_fields_copy_as(&t->body, "tool_choice", t->chat, "tool_choice");
        return add_tools(t, NULL, err);
    }
    if (kin_fields_object(&t->body, "tool_choice", &choice, err) != 0) return KIN_FAIL;
    if (kin_fields_is(&choice, "type", "function") || kin_fields_is(&choice, "type", "custom")) {
        if (kin_fields_need(&choice, "name", KIN_FIELD_STRING, &name, err) != 0) return KIN_FAIL;
        json_t *full_name = kin_responses_full_name(kin_fields_any(&choice, "namespace"), name);
        json_object_set_new(t->chat, "tool_choice", kin_chat_named_choice(full_name));
        json_decref(full_name);
        return add_tools(t, NULL, err);
    }
    if (!kin_fields_is(&choice, "type", "allowed_tools"))
        return kin_fields_wrong(&choice, "type", err, 400, "must be function, custom or allowed_tools");
    if (kin_fields_need(&choice, "tools", KIN_FIELD_ARRAY, &allowed, err) != 0 || check_count(&choice, allowed, err) != 0)
        return KIN_FAIL;
    kin_fields_copy_as(&choice, "mode", t->chat, "tool_choice");
    return add_tools(t, allowed, err);
}

// ---- options

static int add_format(translation *t, kin_api_error *err) {
    kin_fields text, format;
    const json_t *schema, *name;
    if (kin_fields_object(&t->body, "text", &text, err) != 0) return KIN_FAIL;
    if (!text.json) return 0;
    if (kin_fields_object(&text, "format", &format, err) != 0) return KIN_FAIL;
    if (!format.json || kin_fields_is(&format, "type", "text")) return 0;
    if (kin_fields_is(&format, "type", "json_object")) {
        json_object_set(t->chat, "response_format", (json_t *)format.json);
        return 0;
    }
    if (!kin_fields_is(&format, "type", "json_schema"))
        return kin_fields_wrong(&format, "type", err, 400, "must be text, json_object or json_schema");
    if (kin_fields_need(&format, "schema", KIN_FIELD_OBJECT, &schema, err) != 0) return KIN_FAIL;
    if (kin_fields_get(&format, "name", KIN_FIELD_STRING, &name, err) != 0) return KIN_FAIL;
    json_object_set_new(t->chat, "response_format", kin_chat_schema_format(name ? json_string_value(name) : "output", schema));
    kin_fields_copy_as(&format, "strict", json_object_get(json_object_get(t->chat, "response_format"), "json_schema"), "strict");
    return 0;
}

// Refuses fields that need stored responses or prompts, or processing in the background.
static int refuse_state(translation *t, kin_api_error *err) {
    static const char *const names[] = {"previous_response_id", "conversation", "prompt"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (kin_fields_any(&t->body, names[i]))
            return kin_fields_wrong(&t->body, names[i], err, 400,
                                    "responses are not stored: send the whole conversation as input");
    }
    if (json_is_true(kin_fields_any(&t->body, "background")))
        return kin_fields_wrong(&t->body, "background", err, 400, "responses are not stored: stream the response");
    return 0;
}

// Probabilities are requested by top_logprobs or by `include`. Other values of `include` are ignored: kin has none of them.
static int add_logprobs(translation *t, kin_api_error *err) {
    const json_t *n, *included, *one;
    size_t i;
    bool wanted = false;
    if (kin_fields_get(&t->body, "top_logprobs", KIN_FIELD_INTEGER, &n, err) != 0) return KIN_FAIL;
    if (kin_fields_get(&t->body, "include", KIN_FIELD_ARRAY, &included, err) != 0) return KIN_FAIL;
    json_array_foreach(included, i, one) {
        wanted = wanted || (json_is_string(one) && strcmp(json_string_value(one), "message.output_text.logprobs") == 0);
    }
    if (wanted || json_integer_value(n) > 0) json_object_set_new(t->chat, "logprobs", json_true());
    if (json_integer_value(n) > 0) kin_fields_copy_as(&t->body, "top_logprobs", t->chat, "top_logprobs");
    return 0;
}

static int add_options(translation *t, kin_api_error *err) {
    static const char *const same[] = {"model", "stream", "temperature", "top_p", NULL};
    const json_t *n;
    kin_fields reasoning;
    json_object_set_new(t->chat, "continue_final_message", json_false()); // an input item is always complete
    kin_fields_copy(&t->body, same, t->chat);
    kin_chat_copy_extensions(&t->body, t->chat);
    if (kin_fields_get(&t->body, "max_output_tokens", KIN_FIELD_INTEGER, &n, err) != 0) return KIN_FAIL;
    if (kin_fields_object(&t->body, "reasoning", &reasoning, err) != 0) return KIN_FAIL;
    kin_fields_copy_as(&t->body, "max_output_tokens", t->chat, "max_tokens");
    if (reasoning.json) kin_fields_copy_as(&reasoning, "effort", t->chat, "reasoning_effort");
    return add_logprobs(t, err) == 0 ? add_format(t, err) : KIN_FAIL;
}

// Adds the fields that a response repeats, or their defaults.
static void add_echo(translation *t) {
    static const struct {
        const char *name, *otherwise;
    } fields[] = {{"background", "false"},
                  {"instructions", "null"},
                  {"max_output_tokens", "null"},
                  {"max_tool_calls", "null"},
                  {"metadata", "{}"},
                  {"parallel_tool_calls", "true"},
                  {"previous_response_id", "null"},
                  {"prompt_cache_key", "null"},
                  {"reasoning", "{\"effort\":null,\"summary\":null}"},
                  {"safety_identifier", "null"},
                  {"service_tier", "\"default\""},
                  {"store", "false"},
                  {"temperature", "null"},
                  {"text", "{\"format\":{\"type\":\"text\"}}"},
                  {"tool_choice", "\"auto\""},
                  {"top_logprobs", "0"},
                  {"top_p", "null"},
                  {"truncation", "\"disabled\""},
                  {"user", "null"}};
    json_t *echo = json_object();
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        json_object_set_new(echo, fields[i].name, json_loads(fields[i].otherwise, JSON_DECODE_ANY, NULL));
        kin_fields_copy_as(&t->body, fields[i].name, echo, fields[i].name);
    }
    json_object_set_new(echo, "store", json_false()); // whatever was requested
    json_object_set(echo, "tools", t->tools);         // the writer finds the tool of a call in it
    json_object_set_new(t->chat, KIN_RESPONSES_ECHO, echo);
}

int kin_responses_to_chat(json_t **out, const json_t *body, kin_api_error *err) {
    translation t = {
        .chat = json_object(), .messages = json_array(), .tools = json_array(), .told = json_array(), .names = json_object()};
    bool done = kin_fields_open(&t.body, body, err) == 0 && refuse_state(&t, err) == 0 && add_options(&t, err) == 0 &&
                add_instructions(&t, err) == 0 && add_input(&t, err) == 0 && add_tools_and_choice(&t, err) == 0;
    json_object_set_new(t.chat, "messages", t.messages);
    kin_chat_drop_turn(&t.turn);
    if (done) add_echo(&t);
    if (done) *out = t.chat;
    if (!done) json_decref(t.chat);
    json_decref(t.tools);
    json_decref(t.told);
    json_decref(t.names);
    return done ? 0 : KIN_FAIL;
}
