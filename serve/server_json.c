#include "serve/server_json.h"

#include <string.h>

#include "serve/json_out.h"
#include "serve/request/settings.h"

static void set_text(json_t *o, const char *name, const char *text) {
    json_object_set_new(o, name, kin_json_string(text));
}

static void set_whole(json_t *o, const char *name, int64_t value) {
    json_object_set_new(o, name, json_integer(value));
}

static void set_bool(json_t *o, const char *name, bool value) {
    json_object_set_new(o, name, json_boolean(value));
}

// ---- models

static json_t *meta_json(const kin_model_card *card) {
    json_t *meta = json_object();
    set_whole(meta, "vocab_type", card->vocab_type);
    set_whole(meta, "n_vocab", card->n_vocab);
    if (card->n_ctx > 0) set_whole(meta, "n_ctx", card->n_ctx); // 0: not loaded
    set_whole(meta, "n_ctx_train", card->n_ctx_train);
    set_whole(meta, "n_embd", card->n_embd);
    set_whole(meta, "n_params", card->n_params);
    set_whole(meta, "size", card->n_bytes);
    set_text(meta, "ftype", card->ftype);
    return meta;
}

// Returns "a, b" as an array.
static json_t *tags_json(const char *tags) {
    json_t *all = json_array();
    for (size_t n; tags && *tags; tags += n) {
        tags += strspn(tags, ", ");
        n = strcspn(tags, ",");
        if (n > 0) json_array_append_new(all, kin_json_text((kin_str){tags, n}));
    }
    return all;
}

json_t *kin_model_json(const kin_model_card *card) {
    json_t *o = json_object(), *aliases = json_array();
    for (int i = 0; i < card->n_aliases; i++) json_array_append_new(aliases, kin_json_string(card->aliases[i]));
    set_text(o, "id", card->id);
    json_object_set_new(o, "aliases", aliases);
    json_object_set_new(o, "tags", tags_json(card->tags));
    json_object_set_new(o, "object", json_string("model"));
    set_whole(o, "created", card->created_s);
    json_object_set_new(o, "owned_by", json_string("kin"));
    json_object_set_new(o, "architecture", json_pack("{s:[s], s:[s]}", "input_modalities", "text", "output_modalities", "text"));
    json_object_set_new(o, "meta", meta_json(card));
    if (card->status) json_object_set_new(o, "status", json_pack("{s:s}", "value", card->status));
    return o;
}

static json_t *capabilities_json(const kin_model_card *card) {
    json_t *list = json_array();
    json_array_append_new(list, json_string("completion"));
    if (card->has_tools) json_array_append_new(list, json_string("tools"));
    if (card->has_thinking) json_array_append_new(list, json_string("thinking"));
    if (card->has_embeddings) json_array_append_new(list, json_string("embedding"));
    return list;
}

// Returns an entry of Ollama's list. Unknown values are empty, as in llama-server.
static json_t *listed_json(const kin_model_card *card) {
    json_t *o = json_object(), *details = json_object();
    static const char *const empty[] = {"modified_at", "digest", "description", "parameters"};
    set_text(o, "name", card->id);
    set_text(o, "model", card->id);
    set_text(o, "type", "model");
    set_whole(o, "size", card->n_bytes);
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) set_text(o, empty[i], "");
    json_object_set_new(o, "tags", tags_json(card->tags));
    json_object_set_new(o, "capabilities", capabilities_json(card));
    set_text(details, "format", "gguf");
    set_text(details, "family", "");
    set_text(details, "parent_model", "");
    json_object_set_new(details, "families", json_array());
    set_text(details, "parameter_size", "");
    set_text(details, "quantization_level", card->ftype);
    json_object_set_new(o, "details", details);
    return o;
}

json_t *kin_models_json(const kin_model_card *cards, int n) {
    json_t *data = json_array(), *models = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(data, kin_model_json(&cards[i]));
        json_array_append_new(models, listed_json(&cards[i]));
    }
    return json_pack("{s:s, s:o, s:o}", "object", "list", "data", data, "models", models);
}

// ---- properties

static json_t *caps_json(const kin_server_props *p) {
    json_t *caps = json_object();
    set_bool(caps, "supports_tools", p->has_tools);
    set_bool(caps, "supports_tool_calls", p->has_tools);
    set_bool(caps, "supports_parallel_tool_calls", p->has_tools);
    set_bool(caps, "supports_reasoning", p->has_thinking);
    set_bool(caps, "supports_system_role", true);
    set_bool(caps, "supports_string_content", true);
    return caps;
}

json_t *kin_props_json(const kin_server_props *p) {
    json_t *o = json_object(), *generation = json_object(), *modalities = json_object();
    json_object_set_new(generation, "params", kin_settings_json(p->defaults, UINT32_MAX));
    set_whole(generation, "n_ctx", p->n_ctx);
    set_bool(modalities, "vision", false);
    set_bool(modalities, "audio", false);
    set_bool(modalities, "video", false);
    json_object_set_new(o, "default_generation_settings", generation);
    set_whole(o, "total_slots", p->n_slots);
    set_bool(o, "context_is_shared", true); // all slots share n_ctx; llama-server divides it
    set_text(o, "model_alias", p->alias);
    set_text(o, "model_ftype", p->ftype);
    set_text(o, "model_path", p->path);
    json_object_set_new(o, "modalities", modalities);
    set_bool(o, "endpoint_slots", p->has_slots);
    set_bool(o, "endpoint_props", false);
    set_bool(o, "endpoint_metrics", p->has_metrics);
    set_bool(o, "ui", p->has_ui);
    json_object_set_new(o, "ui_settings", json_object());
    set_text(o, "chat_template", p->chat_template);
    json_object_set_new(o, "chat_template_caps", caps_json(p));
    set_text(o, "bos_token", p->bos_token);
    set_text(o, "eos_token", p->eos_token);
    set_text(o, "build_info", p->build);
    set_bool(o, "is_sleeping", false);
    return o;
}

// ---- slots

static json_t *next_token_json(const kin_slot_view *s) {
    json_t *next = json_object(), *list = json_array();
    set_bool(next, "has_next_token", s->is_processing);
    set_bool(next, "has_new_line", s->has_new_line);
    set_whole(next, "n_remain", s->n_left);
    set_whole(next, "n_decoded", s->n_generated);
    json_array_append_new(list, next);
    return list;
}

static json_t *slot_json(const kin_slot_view *s) {
    json_t *o = json_object();
    set_whole(o, "id", s->id);
    set_whole(o, "n_ctx", s->n_ctx);
    set_bool(o, "speculative", false);
    set_bool(o, "is_processing", s->is_processing);
    if (s->task < 0) return o;
    set_whole(o, "id_task", s->task);
    set_whole(o, "n_prompt_tokens", s->n_prompt);
    set_whole(o, "n_prompt_tokens_processed", s->n_done);
    set_whole(o, "n_prompt_tokens_cache", s->n_cached);
    if (s->request) json_object_set_new(o, "params", kin_settings_json(s->request, s->seed));
    json_object_set_new(o, "next_token", next_token_json(s));
    return o;
}

json_t *kin_slots_json(const kin_slot_view *slots, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, slot_json(&slots[i]));
    return list;
}
