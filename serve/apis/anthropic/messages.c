#include "serve/apis/anthropic/messages.h"

#include <string.h>

#include "serve/chat_build.h"
#include "serve/request/request_chat.h"

enum { DEFAULT_MAX_TOKENS = 4096 };

// State of a translation.
typedef struct translation {
    kin_fields body;
    json_t *chat, *messages;
    kin_chat_turn turn;   // of the assistant, not yet a message
    kin_text_buffer text; // of the user, not yet a message
    bool has_text;
    json_t *changes; // of tools in the conversation: by name true (added), false (removed) or a definition
} translation;

// ---- blocks of text

static int add_blocks(const kin_fields *of, const char *name, kin_text_buffer *text, kin_api_error *err);

static int not_supported(const kin_fields *block, kin_api_error *err) {
    const char *type = json_string_value(kin_fields_any(block, "type"));
    bool is_media = strcmp(type, "image") == 0 || strcmp(type, "document") == 0 || strcmp(type, "container_upload") == 0;
    if (is_media) return kin_fields_wrong(block, "type", err, 501, "this server supports text only, not %s", type);
    return kin_fields_wrong(block, "type", err, 400, "'%.40s' is not supported here", type);
}

static int add_text(const kin_fields *block, const char *name, kin_text_buffer *text, kin_api_error *err) {
    const json_t *part;
    if (kin_fields_need(block, name, KIN_FIELD_STRING, &part, err) != 0) return KIN_FAIL;
    kin_chat_join(text, part);
    return 0;
}

static int add_document(const kin_fields *block, kin_text_buffer *text, kin_api_error *err) {
    kin_fields source;
    if (kin_fields_object(block, "source", &source, err) != 0) return KIN_FAIL;
    if (!source.json) return kin_fields_wrong(block, "source", err, 400, "is required");
    if (kin_fields_is(&source, "type", "text")) return add_text(&source, "data", text, err);
    if (kin_fields_is(&source, "type", "content")) return add_blocks(&source, "content", text, err);
    return not_supported(block, err);
}

// Says that a tool has come or gone. Some clients name it `name`, others `tool_name`.
static int add_change(const kin_fields *reference, const char *says, kin_text_buffer *text, kin_api_error *err) {
    const char *key = kin_fields_any(reference, "name") ? "name" : "tool_name";
    const json_t *name;
    kin_text_buffer sentence = {0};
    if (kin_fields_need(reference, key, KIN_FIELD_STRING, &name, err) != 0) return KIN_FAIL;
    if (!kin_request_is_tool_name(name))
        return kin_fields_wrong(reference, key, err, 400, "must be 1 to %d letters, digits, '_', '-' or '.'",
                                KIN_REQUEST_MAX_TOOL_NAME);
    kin_text_print(&sentence, "The tool %s %s.", json_string_value(name), says);
    json_t *joined = json_stringn(sentence.at ? sentence.at : "", sentence.len);
    kin_chat_join(text, joined);
    json_decref(joined);
    kin_text_fini(&sentence);
    return 0;
}

// Adds a change of the tools in a system message, with a reference to a tool or its definition.
static int add_tool_change(const kin_fields *block, kin_text_buffer *text, kin_api_error *err) {
    const char *says = kin_fields_is(block, "type", "tool_removal") ? "is no longer available" : "is available now";
    kin_fields tool, definition;
    if (kin_fields_object(block, "tool", &tool, err) != 0) return KIN_FAIL;
    if (!tool.json) return kin_fields_wrong(block, "tool", err, 400, "is required");
    if (kin_fields_object(&tool, "definition", &definition, err) != 0) return KIN_FAIL;
    return add_change(definition.json ? &definition : &tool, says, text, err);
}

// Adds a text-only block: of the system prompt, of the user, of a tool's result.
static int add_block(const kin_fields *block, kin_text_buffer *text, kin_api_error *err) {
    const json_t *type;
    if (kin_fields_need(block, "type", KIN_FIELD_STRING, &type, err) != 0) return KIN_FAIL;
    if (kin_fields_is(block, "type", "text")) return add_text(block, "text", text, err);
    if (kin_fields_is(block, "type", "document")) return add_document(block, text, err);
    if (kin_fields_is(block, "type", "search_result")) return add_blocks(block, "content", text, err);
    if (kin_fields_is(block, "type", "tool_reference")) return add_change(block, "is available now", text, err);
    if (kin_fields_is(block, "type", "tool_addition") || kin_fields_is(block, "type", "tool_removal"))
        return add_tool_change(block, text, err);
    return not_supported(block, err);
}

// Adds a string, or an array of text blocks; nothing if absent.
static int add_blocks(const kin_fields *of, const char *name, kin_text_buffer *text, kin_api_error *err) {
    const json_t *content = kin_fields_any(of, name);
    kin_fields block;
    if (!content) return 0;
    if (json_is_string(content)) return add_text(of, name, text, err);
    if (!json_is_array(content))
        return kin_fields_wrong(of, name, err, 400, "type must be string or array, but is %s", kin_json_type_name(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        if (kin_fields_item(of, name, content, i, &block, err) != 0 || add_block(&block, text, err) != 0) return KIN_FAIL;
    }
    return 0;
}

// ---- system

// Claude Code begins its system prompt with its own line, "x-anthropic-billing-header: ...", which differs between requests. No
// model needs it, and it would keep prompts from sharing a prefix.
static void drop_billing_header(kin_text_buffer *text) {
    static const char header[] = "x-anthropic-billing-header:";
    if (text->len < sizeof header - 1 || memcmp(text->at, header, sizeof header - 1) != 0) return;
    const char *end = memchr(text->at, '\n', text->len);
    size_t n = end ? (size_t)(end + 1 - text->at) : text->len;
    memmove(text->at, text->at + n, text->len - n);
    text->len -= n;
}

static int add_system(translation *t, kin_api_error *err) {
    kin_text_buffer text = {0};
    int rc = add_blocks(&t->body, "system", &text, err);
    if (rc == 0) drop_billing_header(&text);
    if (rc == 0 && text.len) kin_chat_add_message(t->messages, "system", &text);
    kin_text_fini(&text);
    return rc;
}

// ---- messages

static int add_tool_use(translation *t, const kin_fields *block, kin_api_error *err) {
    const json_t *id, *name, *input;
    if (kin_fields_need(block, "id", KIN_FIELD_STRING, &id, err) != 0) return KIN_FAIL;
    if (kin_fields_need(block, "name", KIN_FIELD_STRING, &name, err) != 0) return KIN_FAIL;
    if (kin_fields_need(block, "input", KIN_FIELD_OBJECT, &input, err) != 0) return KIN_FAIL;
    kin_chat_add_call(&t->turn, id, name, kin_chat_json_string(input));
    return 0;
}

static int add_assistant_block(translation *t, const kin_fields *block, kin_api_error *err) {
    const json_t *type;
    if (kin_fields_need(block, "type", KIN_FIELD_STRING, &type, err) != 0) return KIN_FAIL;
    if (kin_fields_is(block, "type", "thinking")) return add_text(block, "thinking", &t->turn.reasoning, err);
    if (kin_fields_is(block, "type", "redacted_thinking")) return 0; // encrypted: cannot be read
    if (kin_fields_is(block, "type", "tool_use")) return add_tool_use(t, block, err);
    t->turn.has_text = true;
    return add_block(block, &t->turn.text, err);
}

static void end_user_text(translation *t) {
    if (t->has_text) kin_chat_add_message(t->messages, "user", &t->text);
    t->has_text = false;
}

static int add_tool_result(translation *t, const kin_fields *block, kin_api_error *err) {
    const json_t *id, *is_error;
    kin_text_buffer text = {0};
    if (kin_fields_need(block, "tool_use_id", KIN_FIELD_STRING, &id, err) != 0) return KIN_FAIL;
    if (kin_fields_get(block, "is_error", KIN_FIELD_BOOL, &is_error, err) != 0) return KIN_FAIL;
    if (json_is_true(is_error)) kin_text_print(&text, "Error:");
    int rc = add_blocks(block, "content", &text, err);
    if (rc == 0) {
        end_user_text(t);
        kin_chat_add_tool_result(t->messages, id, NULL, &text);
    }
    kin_text_fini(&text);
    return rc;
}

static int add_user_block(translation *t, const kin_fields *block, kin_api_error *err) {
    if (kin_fields_is(block, "type", "tool_result")) return add_tool_result(t, block, err);
    t->has_text = true;
    return add_block(block, &t->text, err);
}

static int add_message_blocks(translation *t, const kin_fields *message, bool is_user, kin_api_error *err) {
    const json_t *content = kin_fields_any(message, "content");
    kin_fields block;
    if (!content) return kin_fields_wrong(message, "content", err, 400, "is required");
    if (json_is_array(content) && json_array_size(content) > 0) {
        for (size_t i = 0; i < json_array_size(content); i++) {
            if (kin_fields_item(message, "content", content, i, &block, err) != 0) return KIN_FAIL;
            int rc = is_user ? add_user_block(t, &block, err) : add_assistant_block(t, &block, err);
            if (rc != 0) return KIN_FAIL;
        }
        return 0;
    }
    if (is_user) t->has_text = true;
    if (!is_user) t->turn.has_text = true;
    return add_blocks(message, "content", is_user ? &t->text : &t->turn.text, err);
}

static int add_system_message(translation *t, const kin_fields *message, kin_api_error *err) {
    kin_text_buffer text = {0};
    int rc = add_blocks(message, "content", &text, err);
    if (rc == 0) kin_chat_add_message(t->messages, "system", &text);
    kin_text_fini(&text);
    return rc;
}

// Consecutive messages of one role become one message.
static int add_message(translation *t, const kin_fields *message, kin_api_error *err) {
    const json_t *role;
    if (kin_fields_need(message, "role", KIN_FIELD_STRING, &role, err) != 0) return KIN_FAIL;
    bool is_user = kin_fields_is(message, "role", "user"), is_assistant = kin_fields_is(message, "role", "assistant");
    if (!is_assistant) kin_chat_end_turn(&t->turn, t->messages);
    if (!is_user) end_user_text(t);
    if (is_user || is_assistant) return add_message_blocks(t, message, is_user, err);
    if (kin_fields_is(message, "role", "system")) return add_system_message(t, message, err);
    return kin_fields_wrong(message, "role", err, 400, "must be user or assistant, but is '%.40s'", json_string_value(role));
}

static int add_messages(translation *t, kin_api_error *err) {
    const json_t *messages;
    kin_fields message;
    if (kin_fields_need(&t->body, "messages", KIN_FIELD_ARRAY, &messages, err) != 0) return KIN_FAIL;
    if (json_array_size(messages) == 0) return kin_fields_wrong(&t->body, "messages", err, 400, "at least one is required");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (kin_fields_item(&t->body, "messages", messages, i, &message, err) != 0) return KIN_FAIL;
        if (add_message(t, &message, err) != 0) return KIN_FAIL;
    }
    end_user_text(t);
    kin_chat_end_turn(&t->turn, t->messages);
    return 0;
}

// ---- tools

static void collect_change(const json_t *reference, json_t *change, json_t *changes) {
    const char *name = json_string_value(json_object_get(reference, "name"));
    if (!name) name = json_string_value(json_object_get(reference, "tool_name"));
    if (name) json_object_set(changes, name, change);
}

// Collects the tools that blocks name: results of a search, and what system messages add and remove. The last one counts.
static void collect_changes(const json_t *blocks, json_t *changes) {
    const json_t *block;
    size_t i;
    json_array_foreach(blocks, i, block) {
        const char *type = json_string_value(json_object_get(block, "type"));
        const json_t *tool = json_object_get(block, "tool");
        json_t *definition = json_object_get(tool, "definition");
        if (!type) continue;
        if (strcmp(type, "tool_result") == 0) // what it names is seldom deeper
            collect_changes(json_object_get(block, "content"), changes);
        else if (strcmp(type, "tool_reference") == 0)
            collect_change(block, json_true(), changes);
        else if (strcmp(type, "tool_addition") == 0)
            collect_change(definition ? definition : tool, definition ? definition : json_true(), changes);
        else if (strcmp(type, "tool_removal") == 0)
            collect_change(tool, json_false(), changes);
    }
}

// True if the model is not told this tool: it was removed, or its definition is deferred until something names it, which a tool
// choice does too.
static bool is_hidden(const translation *t, const kin_fields *tool) {
    const json_t *named = json_object_get(kin_fields_any(&t->body, "tool_choice"), "name");
    const char *name = json_string_value(kin_fields_any(tool, "name"));
    const json_t *change = name ? json_object_get(t->changes, name) : NULL;
    if (name && json_is_string(named) && strcmp(json_string_value(named), name) == 0) return false;
    if (change) return !json_is_true(change); // a definition replaces this one
    return json_is_true(kin_fields_any(tool, "defer_loading"));
}

// Tools that Anthropic's servers run themselves have another type and no schema; they are dropped.
static int add_tool(const kin_fields *tool, json_t *tools, kin_api_error *err) {
    const json_t *type, *name, *description, *schema;
    if (kin_fields_get(tool, "type", KIN_FIELD_STRING, &type, err) != 0) return KIN_FAIL;
    if (type && !kin_fields_is(tool, "type", "custom")) return 0;
    if (kin_fields_need(tool, "name", KIN_FIELD_STRING, &name, err) != 0) return KIN_FAIL;
    if (kin_fields_get(tool, "description", KIN_FIELD_STRING, &description, err) != 0) return KIN_FAIL;
    if (kin_fields_need(tool, "input_schema", KIN_FIELD_OBJECT, &schema, err) != 0) return KIN_FAIL;
    json_t *function = json_object(), *made = json_object();
    kin_fields_copy_as(tool, "name", function, "name");
    kin_fields_copy_as(tool, "description", function, "description");
    kin_fields_copy_as(tool, "input_schema", function, "parameters");
    json_object_set_new(made, "type", json_string("function"));
    json_object_set_new(made, "function", function);
    json_array_append_new(tools, made);
    return 0;
}

// Adds the tools that messages define.
static int add_defined_tools(translation *t, json_t *tools, kin_api_error *err) {
    const char *name;
    json_t *definition;
    kin_fields tool;
    json_object_foreach(t->changes, name, definition) {
        if (!json_is_object(definition)) continue;
        if (kin_fields_open(&tool, definition, err) != 0 || add_tool(&tool, tools, err) != 0) return KIN_FAIL;
    }
    return 0;
}

static int add_tools(translation *t, kin_api_error *err) {
    const json_t *given, *message;
    kin_fields tool;
    size_t i;
    if (kin_fields_get(&t->body, "tools", KIN_FIELD_ARRAY, &given, err) != 0) return KIN_FAIL;
    json_array_foreach(kin_fields_any(&t->body, "messages"), i, message) {
        collect_changes(json_object_get(message, "content"), t->changes);
    }
    json_t *tools = json_array();
    int rc = 0;
    for (i = 0; rc == 0 && i < json_array_size(given); i++) {
        rc = kin_fields_item(&t->body, "tools", given, i, &tool, err);
        if (rc == 0 && !is_hidden(t, &tool)) rc = add_tool(&tool, tools, err);
    }
    if (rc == 0) rc = add_defined_tools(t, tools, err);
    if (rc == 0 && json_array_size(tools) > 0) json_object_set(t->chat, "tools", tools);
    json_decref(tools);
    return rc;
}

static int add_tool_choice(translation *t, kin_api_error *err) {
    static const char *const choices[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    const json_t *type, *one_only, *name;
    kin_fields choice;
    if (kin_fields_object(&t->body, "tool_choice", &choice, err) != 0) return KIN_FAIL;
    if (json_object_get(t->chat, "tools")) json_object_set_new(t->chat, "parallel_tool_calls", json_true());
    if (!choice.json) return 0;
    if (kin_fields_need(&choice, "type", KIN_FIELD_STRING, &type, err) != 0) return KIN_FAIL;
    if (kin_fields_get(&choice, "disable_parallel_tool_use", KIN_FIELD_BOOL, &one_only, err) != 0) return KIN_FAIL;
    if (json_is_true(one_only)) json_object_set_new(t->chat, "parallel_tool_calls", json_false());
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        if (!kin_fields_is(&choice, "type", choices[i][0])) continue;
        json_object_set_new(t->chat, "tool_choice", json_string(choices[i][1]));
        return 0;
    }
    if (!kin_fields_is(&choice, "type", "tool"))
        return kin_fields_wrong(&choice, "type", err, 400, "must be auto, any, tool or none, but is '%.40s'",
                                json_string_value(type));
    if (kin_fields_need(&choice, "name", KIN_FIELD_STRING, &name, err) != 0) return KIN_FAIL;
    json_object_set_new(t->chat, "tool_choice", kin_chat_named_choice(name));
    return 0;
}

// ---- options

// Without `thinking` it is off, as in Anthropic's API.
static int add_thinking(translation *t, kin_api_error *err) {
    const json_t *budget;
    kin_fields thinking, config;
    if (kin_fields_object(&t->body, "thinking", &thinking, err) != 0) return KIN_FAIL;
    if (kin_fields_object(&t->body, "output_config", &config, err) != 0) return KIN_FAIL;
    bool on = thinking.json && !kin_fields_is(&thinking, "type", "disabled");
    if (on && !kin_fields_is(&thinking, "type", "enabled") && !kin_fields_is(&thinking, "type", "adaptive"))
        return kin_fields_wrong(&thinking, "type", err, 400, "must be enabled, adaptive or disabled");
    kin_chat_set_thinking(t->chat, on);
    if (!on) return 0;
    if (kin_fields_get(&thinking, "budget_tokens", KIN_FIELD_INTEGER, &budget, err) != 0) return KIN_FAIL;
    kin_fields_copy_as(&thinking, "budget_tokens", t->chat, "thinking_budget_tokens");
    if (config.json) kin_fields_copy_as(&config, "effort", t->chat, "reasoning_effort");
    return 0;
}

// Reads a JSON schema for the answer: output_config.format, or the older output_format.
static int add_format(translation *t, kin_api_error *err) {
    const json_t *schema;
    kin_fields config, format;
    if (kin_fields_object(&t->body, "output_config", &config, err) != 0) return KIN_FAIL;
    if (config.json && kin_fields_object(&config, "format", &format, err) != 0) return KIN_FAIL;
    if ((!config.json || !format.json) && kin_fields_object(&t->body, "output_format", &format, err) != 0) return KIN_FAIL;
    if (!format.json) return 0;
    if (!kin_fields_is(&format, "type", "json_schema")) return kin_fields_wrong(&format, "type", err, 400, "must be json_schema");
    if (kin_fields_need(&format, "schema", KIN_FIELD_OBJECT, &schema, err) != 0) return KIN_FAIL;
    json_object_set_new(t->chat, "response_format", kin_chat_schema_format("output", schema));
    json_object_set_new(json_object_get(json_object_get(t->chat, "response_format"), "json_schema"), "strict", json_true());
    return 0;
}

static int add_stops(translation *t, kin_api_error *err) {
    const json_t *stops;
    if (kin_fields_get(&t->body, "stop_sequences", KIN_FIELD_ARRAY, &stops, err) != 0) return KIN_FAIL;
    for (size_t i = 0; i < json_array_size(stops); i++) {
        if (json_is_string(json_array_get(stops, i))) continue;
        return kin_fields_wrong(&t->body, "stop_sequences", err, 400, "each must be a string, but one is %s",
                                kin_json_type_name(json_array_get(stops, i)));
    }
    kin_fields_copy_as(&t->body, "stop_sequences", t->chat, "stop");
    return 0;
}

static int add_options(translation *t, kin_api_error *err) {
    static const char *const same[] = {"model", "stream", "temperature", "top_p", NULL};
    const json_t *n;
    kin_fields_copy(&t->body, same, t->chat);
    kin_chat_copy_extensions(&t->body, t->chat);
    if (kin_fields_get(&t->body, "max_tokens", KIN_FIELD_INTEGER, &n, err) != 0) return KIN_FAIL;
    json_object_set_new(t->chat, "max_tokens", n ? json_incref((json_t *)n) : json_integer(DEFAULT_MAX_TOKENS));
    return add_stops(t, err) == 0 && add_thinking(t, err) == 0 ? add_format(t, err) : KIN_FAIL;
}

int kin_messages_to_chat(json_t **out, const json_t *body, kin_api_error *err) {
    translation t = {.chat = json_object(), .messages = json_array(), .changes = json_object()};
    bool done = kin_fields_open(&t.body, body, err) == 0 && add_options(&t, err) == 0 && add_system(&t, err) == 0 &&
                add_messages(&t, err) == 0 && add_tools(&t, err) == 0 && add_tool_choice(&t, err) == 0;
    json_object_set_new(t.chat, "messages", t.messages);
    kin_chat_drop_turn(&t.turn);
    kin_text_fini(&t.text);
    json_decref(t.changes);
    if (done) *out = t.chat;
    if (!done) json_decref(t.chat);
    return done ? 0 : KIN_FAIL;
}
