#include "pure/text/tool_format.h"

#include <string.h>

#include "base/hash.h"
#include "pure/text/json.h"

// ---- trial conversations

#define PROBE_TOOL "kin_trial_tool"
#define PROBE_SYSTEM "kin_trial_system"

typedef struct trial {
    bool has_system, tools;
    int n_calls; // in one assistant message, each with its result
    const char *id;
} trial;

static kin_value *text(kin_values *v, const char *at) {
    return kin_value_string(v, at, strlen(at), KIN_ORIGIN_INPUT);
}

static void put(kin_values *v, kin_value *dict, const char *key, kin_value *item) {
    kin_value_put(v, dict, key, strlen(key), item);
}

static void append_message(kin_values *v, kin_value *messages, const char *role, const char *content) {
    kin_value *message = kin_value_dict(v);
    put(v, message, "role", text(v, role));
    put(v, message, "content", text(v, content));
    kin_value_append(v, messages, message);
}

static kin_value *make_tools(kin_values *v) {
    kin_value *property = kin_value_dict(v), *properties = kin_value_dict(v), *parameters = kin_value_dict(v);
    kin_value *function = kin_value_dict(v), *tool = kin_value_dict(v), *tools = kin_value_list(v);
    put(v, property, "type", text(v, "string"));
    put(v, property, "description", text(v, "a"));
    put(v, properties, "a", property);
    put(v, parameters, "type", text(v, "object"));
    put(v, parameters, "properties", properties);
    put(v, function, "name", text(v, PROBE_TOOL));
    put(v, function, "description", text(v, "a"));
    put(v, function, "parameters", parameters);
    put(v, tool, "type", text(v, "function"));
    put(v, tool, "function", function);
    kin_value_append(v, tools, tool);
    return tools;
}

static void append_calls(kin_values *v, kin_value *messages, const trial *t) {
    kin_value *calls = kin_value_list(v), *message = kin_value_dict(v);
    for (int i = 0; i < t->n_calls; i++) {
        kin_value *arguments = kin_value_dict(v), *function = kin_value_dict(v), *call = kin_value_dict(v);
        put(v, arguments, "a", text(v, "b"));
        put(v, function, "name", text(v, PROBE_TOOL));
        put(v, function, "arguments", arguments);
        put(v, call, "id", text(v, t->id));
        put(v, call, "type", text(v, "function"));
        put(v, call, "function", function);
        kin_value_append(v, calls, call);
    }
    put(v, message, "role", text(v, "assistant"));
    put(v, message, "content", text(v, ""));
    put(v, message, "tool_calls", calls);
    kin_value_append(v, messages, message);
    for (int i = 0; i < t->n_calls; i++) {
        kin_value *result = kin_value_dict(v);
        put(v, result, "role", text(v, "tool"));
        put(v, result, "tool_call_id", text(v, t->id));
        put(v, result, "content", text(v, "c"));
        kin_value_append(v, messages, result);
    }
}

static kin_value *make_variables(kin_values *v, const trial *t) {
    kin_value *variables = kin_value_dict(v), *messages = kin_value_list(v);
    if (t->has_system) append_message(v, messages, "system", PROBE_SYSTEM);
    append_message(v, messages, "user", "d");
    if (t->n_calls > 0) append_calls(v, messages, t);
    put(v, variables, "messages", messages);
    if (t->tools) put(v, variables, "tools", make_tools(v));
    put(v, variables, "bos_token", text(v, ""));
    put(v, variables, "eos_token", text(v, ""));
    put(v, variables, "add_generation_prompt", kin_value_bool(v, true));
    return variables;
}

static bool has(const char *at, size_t len, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= len; i++) {
        if (memcmp(at + i, word, n) == 0) return true;
    }
    return false;
}

// Returns the format whose markers the text contains; KIN_CHAT_PLAIN: none.
static kin_chat_known format_of(const char *at, size_t len) {
    if (has(at, len, "[TOOL_CALLS]")) return has(at, len, "[ARGS]") ? KIN_CHAT_MISTRAL_LABELS : KIN_CHAT_MISTRAL;
    if (has(at, len, "<tool_call>") && has(at, len, "<function=")) return KIN_CHAT_XML;
    if (has(at, len, "<tool_call>") && has(at, len, "arguments") && !has(at, len, "<arg_key>")) return KIN_CHAT_HERMES;
    if (has(at, len, "\"parameters\": ") && has(at, len, "ipython")) return KIN_CHAT_LLAMA;
    return KIN_CHAT_PLAIN;
}

// Determines whether the template renders the conversation, including `word`, and the format of the rendered text. Returns
// KIN_FAIL if memory runs out.
static int try(const kin_jinja *jinja, trial t, const char *word, bool *renders, kin_chat_known *format) {
    enum { MAX_BYTES = 4 << 20 };
    kin_values *v = kin_values_new(MAX_BYTES);
    kin_jinja_text prompt;
    if (!v) return KIN_FAIL;
    *renders = kin_jinja_render(jinja, v, make_variables(v, &t), 0, &prompt, NULL) == 0 && has(prompt.at, prompt.len, word);
    *format = *renders ? format_of(prompt.at, prompt.len) : KIN_CHAT_PLAIN;
    kin_values_free(v);
    return 0;
}

// ---- the format

int kin_tool_format_of(kin_tool_format *out, const kin_jinja *jinja, const char *source, size_t len, kin_err *err) {
    static const char nine[] = "abcdef123", other[] = "call_abcdef123";
    bool tells_tools = false, one = false, two = false, any_id = false, takes_system = false;
    kin_chat_known format = KIN_CHAT_PLAIN, ignored;
    int rc = try(jinja, (trial){.has_system = true}, PROBE_SYSTEM, &takes_system, &ignored);
    if (rc == 0) rc = try(jinja, (trial){.tools = true}, PROBE_TOOL, &tells_tools, &ignored);
    if (rc == 0) rc = try(jinja, (trial){.tools = true, .n_calls = 1, .id = nine}, "", &one, &format);
    if (rc == 0) rc = try(jinja, (trial){.tools = true, .n_calls = 2, .id = nine}, "", &two, &ignored);
    if (rc == 0) rc = try(jinja, (trial){.tools = true, .n_calls = 1, .id = other}, "", &any_id, &ignored);
    if (rc != 0) return kin_err_set(err, "chat template: out of memory");
    if (format == KIN_CHAT_PLAIN) format = format_of(source, len);
    *out = (kin_tool_format){.is_generic = !tells_tools || format == KIN_CHAT_PLAIN, .takes_system = takes_system};
    out->chat = *kin_chat_format_known(out->is_generic ? KIN_CHAT_HERMES : format);
    if (!has(source, len, "think>")) out->chat.think_begin[0] = out->chat.think_end[0] = 0;
    if (out->is_generic) return 0;
    out->one_call = one && !two;
    out->n_call_id = one && !any_id ? (int)strlen(nine) : 0;
    return 0;
}

static bool ends_with(kin_str text, const char *end) {
    size_t n = strlen(end);
    return text.len >= n && memcmp(text.at + text.len - n, end, n) == 0;
}

kin_reply_thinking kin_reply_thinking_of(const kin_tool_format *format, kin_str prompt) {
    while (prompt.len > 0 && memchr(" \n\r\t", prompt.at[prompt.len - 1], 4)) prompt.len--;
    if (!kin_chat_format_thinks(&format->chat)) return KIN_THINKING_NONE;
    if (ends_with(prompt, format->chat.think_begin)) return KIN_THINKING_BEGUN;
    if (ends_with(prompt, format->chat.think_end)) return KIN_THINKING_NONE;
    return KIN_THINKING_MAY_BEGIN;
}

// ---- call ids

static bool is_alphanumeric(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

void kin_tool_format_put_id(const kin_tool_format *format, kin_str id, kin_text_buffer *out) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    bool fits = format->n_call_id == 0 || id.len == (size_t)format->n_call_id;
    for (size_t i = 0; format->n_call_id > 0 && i < id.len; i++) fits = fits && is_alphanumeric(id.at[i]);
    uint64_t hash = fits ? 0 : kin_hash64(id.at, id.len, 0);
    for (int i = 0; i < format->n_call_id && !fits; i++, hash /= sizeof letters - 1)
        kin_text_put(out, &letters[hash % (sizeof letters - 1)], 1);
    if (fits) kin_text_put(out, id.at, id.len);
}

// ---- the generic form

static void put_text(kin_text_buffer *out, const char *at) {
    kin_text_put(out, at, strlen(at));
}

void kin_tool_format_put_instructions(const kin_str *tools, size_t n, kin_text_buffer *out) {
    put_text(out, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
                  "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n");
    for (size_t i = 0; i < n; i++) {
        kin_text_put(out, tools[i].at, tools[i].len);
        put_text(out, "\n");
    }
    put_text(out, "</tools>\n\nFor each function call, write a JSON object with the function's name and arguments within "
                  "<tool_call></tool_call> XML tags, and nothing after it:\n"
                  "<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>\n\n"
                  "The results come within <tool_response></tool_response> XML tags.");
}

void kin_tool_format_put_call(kin_str name, kin_str arguments, kin_text_buffer *out) {
    put_text(out, out->len > 0 ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
    kin_json_write_string(name, out);
    put_text(out, ", \"arguments\": ");
    kin_text_put(out, arguments.at, arguments.len);
    put_text(out, "}\n</tool_call>");
}

void kin_tool_format_put_result(kin_str text, kin_text_buffer *out) {
    put_text(out, "<tool_response>\n");
    kin_text_put(out, text.at, text.len);
    put_text(out, "\n</tool_response>");
}
