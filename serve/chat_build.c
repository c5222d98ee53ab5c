#include "serve/chat_build.h"

#include "serve/json_out.h"

static json_t *pop_text(kin_text_buffer *text) {
    json_t *json = text->failed ? NULL : json_stringn(text->at ? text->at : "", text->len);
    kin_text_fini(text);
    return json;
}

void kin_chat_join(kin_text_buffer *text, const json_t *part) {
    if (!part) return;
    if (text->len) kin_text_put(text, "\n", 1);
    kin_text_put(text, json_string_value(part), json_string_length(part));
}

void kin_chat_add_call(kin_chat_turn *turn, const json_t *id, const json_t *name, json_t *arguments) {
    json_t *function = json_object(), *call = json_object();
    json_object_set(function, "name", (json_t *)name);
    json_object_set_new(function, "arguments", arguments);
    json_object_set(call, "id", (json_t *)id);
    json_object_set_new(call, "type", json_string("function"));
    json_object_set_new(call, "function", function);
    if (!turn->calls) turn->calls = json_array();
    json_array_append_new(turn->calls, call);
}

void kin_chat_end_turn(kin_chat_turn *turn, json_t *messages) {
    json_t *message = json_object();
    if (turn->has_text || turn->calls || turn->reasoning.len) {
        bool is_null = turn->calls && !turn->text.len;
        json_object_set_new(message, "role", json_string("assistant"));
        json_object_set_new(message, "content", is_null ? json_null() : pop_text(&turn->text));
        if (turn->reasoning.len) json_object_set_new(message, "reasoning_content", pop_text(&turn->reasoning));
        if (turn->calls) json_object_set(message, "tool_calls", turn->calls);
        json_array_append(messages, message);
    }
    json_decref(message);
    kin_chat_drop_turn(turn);
}

void kin_chat_drop_turn(kin_chat_turn *turn) {
    kin_text_fini(&turn->text);
    kin_text_fini(&turn->reasoning);
    json_decref(turn->calls);
    *turn = (kin_chat_turn){0};
}

void kin_chat_add_message(json_t *messages, const char *role, kin_text_buffer *text) {
    json_t *message = json_object();
    json_object_set_new(message, "role", json_string(role));
    json_object_set_new(message, "content", pop_text(text));
    json_array_append_new(messages, message);
}

void kin_chat_add_tool_result(json_t *messages, const json_t *id, const json_t *name, kin_text_buffer *text) {
    kin_chat_add_message(messages, "tool", text);
    json_t *message = json_array_get(messages, json_array_size(messages) - 1);
    json_object_set(message, "tool_call_id", (json_t *)id);
    if (name) json_object_set(message, "name", (json_t *)name);
}

json_t *kin_chat_json_string(const json_t *json) {
    kin_text_buffer text = {0};
    kin_json_put(json_incref((json_t *)json), &text);
    return pop_text(&text);
}

json_t *kin_chat_named_choice(const json_t *name) {
    json_t *function = json_object(), *choice = json_object();
    json_object_set(function, "name", (json_t *)name);
    json_object_set_new(choice, "type", json_string("function"));
    json_object_set_new(choice, "function", function);
    return choice;
}

json_t *kin_chat_schema_format(const char *name, const json_t *schema) {
    json_t *inner = json_object(), *format = json_object();
    json_object_set_new(inner, "name", json_string(name));
    json_object_set(inner, "schema", (json_t *)schema);
    json_object_set_new(format, "type", json_string("json_schema"));
    json_object_set_new(format, "json_schema", inner);
    return format;
}

void kin_chat_set_thinking(json_t *chat, bool on) {
    const json_t *given = json_object_get(chat, "chat_template_kwargs");
    json_t *kwargs = json_is_object(given) ? json_copy((json_t *)given) : json_object();
    if (!json_object_get(kwargs, "enable_thinking")) json_object_set_new(kwargs, "enable_thinking", json_boolean(on));
    json_object_set_new(chat, "chat_template_kwargs", kwargs);
}

void kin_chat_copy_extensions(const kin_fields *body, json_t *chat) {
    static const char *const names[] = {"cache_prompt",
                                        "chat_template_kwargs",
                                        "dry_allowed_length",
                                        "dry_base",
                                        "dry_multiplier",
                                        "dry_penalty_last_n",
                                        "dry_sequence_breakers",
                                        "dynatemp_exponent",
                                        "dynatemp_range",
                                        "frequency_penalty",
                                        "grammar",
                                        "id_slot",
                                        "ignore_eos",
                                        "json_schema",
                                        "logit_bias",
                                        "min_keep",
                                        "min_p",
                                        "mirostat",
                                        "mirostat_eta",
                                        "mirostat_tau",
                                        "presence_penalty",
                                        "reasoning_format",
                                        "repeat_last_n",
                                        "repeat_penalty",
                                        "samplers",
                                        "seed",
                                        "sse_ping_interval",
                                        "top_k",
                                        "top_n_sigma",
                                        "typical_p",
                                        "xtc_probability",
                                        "xtc_threshold",
                                        NULL};
    kin_fields_copy(body, names, chat);
}
