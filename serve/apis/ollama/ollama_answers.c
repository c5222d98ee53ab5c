// Ollama's answers other than generations.
#include <stdio.h>
#include <time.h>

#include "serve/apis/ollama/ollama.h"

static void set_string(json_t *o, const char *key, const char *text) {
    json_object_set_new(o, key, json_string(text ? text : ""));
}

static void set_integer(json_t *o, const char *key, int64_t n) {
    json_object_set_new(o, key, json_integer(n));
}

json_t *kin_ollama_time(int64_t s) {
    time_t t = (time_t)s;
    struct tm tm;
    char text[40] = "";
    if (gmtime_r(&t, &tm)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_string(text);
}

void kin_ollama_put_loaded(kin_ollama_kind kind, bool is_chat, const char *model, int64_t now_s, kin_text_buffer *out) {
    json_t *o = json_object(), *message = json_object();
    set_string(o, "model", model);
    json_object_set_new(o, "created_at", kin_ollama_time(now_s));
    set_string(message, "role", "assistant");
    set_string(message, "content", "");
    if (is_chat) json_object_set(o, "message", message);
    if (!is_chat) set_string(o, "response", "");
    json_object_set_new(o, "done", json_true());
    set_string(o, "done_reason", kind == KIN_OLLAMA_UNLOAD ? "unload" : "load");
    json_decref(message);
    kin_json_put(o, out);
}

void kin_ollama_put_version(kin_text_buffer *out) {
    json_t *o = json_object();
    set_string(o, "version", KIN_OLLAMA_VERSION);
    kin_json_put(o, out);
}

// ---- models

// "8.0B", "752K"
static json_t *count_of(int64_t n) {
    static const char units[] = "KMBT";
    double count = (double)n / 1e3;
    char text[24];
    int i = 0;
    for (; count >= 999.95 && i < 3; i++) count /= 1e3;
    snprintf(text, sizeof text, "%.*f%c", i > 1 ? 1 : 0, count, units[i]);
    return json_string(text);
}

static json_t *details_of(const kin_model_card *m) {
    json_t *o = json_object(), *families = json_array();
    json_array_append_new(families, json_string(m->arch ? m->arch : ""));
    set_string(o, "parent_model", "");
    set_string(o, "format", "gguf");
    set_string(o, "family", m->arch);
    json_object_set_new(o, "families", families);
    json_object_set_new(o, "parameter_size", count_of(m->n_params));
    set_string(o, "quantization_level", m->ftype);
    return o;
}

static json_t *model_of(const kin_model_card *m) {
    json_t *o = json_object();
    set_string(o, "name", m->id);
    set_string(o, "model", m->id);
    set_integer(o, "size", m->n_bytes);
    set_string(o, "digest", m->digest);
    json_object_set_new(o, "details", details_of(m));
    return o;
}

void kin_ollama_put_tags(const kin_model_card *cards, int n, kin_text_buffer *out) {
    json_t *o = json_object(), *list = json_array();
    for (int i = 0; i < n; i++) {
        json_t *model = model_of(&cards[i]);
        json_object_set_new(model, "modified_at", kin_ollama_time(cards[i].created_s));
        json_array_append_new(list, model);
    }
    json_object_set_new(o, "models", list);
    kin_json_put(o, out);
}

void kin_ollama_put_ps(const kin_model_card *cards, int n, kin_text_buffer *out) {
    json_t *o = json_object(), *list = json_array();
    for (int i = 0; i < n; i++) {
        json_t *model = model_of(&cards[i]);
        set_string(model, "expires_at", "9999-12-31T23:59:59Z"); // models have no expiry
        set_integer(model, "size_vram", 0);
        set_integer(model, "context_length", cards[i].n_ctx);
        json_array_append_new(list, model);
    }
    json_object_set_new(o, "models", list);
    kin_json_put(o, out);
}

// Returns facts under GGUF's keys.
static json_t *facts_of(const kin_model_card *m) {
    static const char *const names[] = {"block_count", "context_length", "embedding_length", "vocab_size"};
    const int values[] = {m->n_layer, m->n_ctx_train, m->n_embd, m->n_vocab};
    json_t *o = json_object();
    char key[96];
    set_string(o, "general.architecture", m->arch);
    set_integer(o, "general.parameter_count", m->n_params);
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "%.64s.%s", m->arch ? m->arch : "", names[i]);
        set_integer(o, key, values[i]);
    }
    return o;
}

void kin_ollama_put_show(const kin_model_card *m, kin_text_buffer *out) {
    json_t *o = json_object(), *capabilities = json_array();
    json_array_append_new(capabilities, json_string("completion"));
    if (m->has_tools) json_array_append_new(capabilities, json_string("tools"));
    if (m->has_thinking) json_array_append_new(capabilities, json_string("thinking"));
    if (m->has_embeddings) json_array_append_new(capabilities, json_string("embedding"));
    set_string(o, "modelfile", "");
    set_string(o, "parameters", "");
    set_string(o, "template", m->chat_template);
    json_object_set_new(o, "details", details_of(m));
    json_object_set_new(o, "model_info", facts_of(m));
    json_object_set_new(o, "capabilities", capabilities);
    json_object_set_new(o, "modified_at", kin_ollama_time(m->created_s));
    kin_json_put(o, out);
}

// ---- embeddings

static json_t *vector_of(const kin_ollama_embeddings *e, int i) {
    json_t *vector = json_array();
    for (int k = 0; k < e->n_embd; k++)
        json_array_append_new(vector, json_real(e->vectors[(size_t)i * (size_t)e->n_embd + (size_t)k]));
    return vector;
}

void kin_ollama_put_embed(const kin_ollama_embeddings *e, kin_text_buffer *out) {
    json_t *o = json_object(), *list = json_array();
    for (int i = 0; i < e->n; i++) json_array_append_new(list, vector_of(e, i));
    set_string(o, "model", e->model);
    json_object_set_new(o, "embeddings", list);
    set_integer(o, "total_duration", (int64_t)(e->ms * 1e6));
    set_integer(o, "load_duration", 0);
    set_integer(o, "prompt_eval_count", e->n_prompt);
    kin_json_put(o, out);
}

void kin_ollama_put_embeddings(const kin_ollama_embeddings *e, kin_text_buffer *out) {
    json_t *o = json_object();
    json_object_set_new(o, "embedding", e->n > 0 ? vector_of(e, 0) : json_array());
    kin_json_put(o, out);
}
