#include "serve/about.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "cluster/model_files.h"
#include "model/arch.h"
#include "serve/apis/ollama/ollama.h"
#include "serve/json_out.h"
#include "serve/model_names.h"
#include "serve/refuse.h"
#include "serve/request/request_prompts.h"
#include "serve/server_json.h"
#include "sys/sha256.h"

static void reply_about(kin_http_exchange *x, json_t *json) {
    kin_text_buffer body = {0};
    kin_json_put(json, &body);
    if (body.failed)
        kin_http_reply_error(x, 500, "out of memory");
    else
        kin_http_reply(x, 200, "application/json; charset=utf-8", body.at, body.len);
    kin_text_fini(&body);
}

static void reply_buffer(kin_http_exchange *x, kin_text_buffer *body) {
    if (body->failed)
        kin_http_reply_error(x, 500, "out of memory");
    else
        kin_http_reply(x, 200, "application/json; charset=utf-8", body->at, body->len);
    kin_text_fini(body);
}

// ---- the model

// Clients of Ollama's API show the digest's first 12 digits. Reading a model for a hash takes long, so its facts are hashed.
static kin_model_card with_digest(kin_model_card card, int64_t modified_s) {
    char facts[1024];
    uint8_t hash[KIN_SHA256_BYTES];
    int n = snprintf(facts, sizeof facts, "%lld %lld %s", (long long)modified_s, (long long)card.n_bytes, card.id);
    size_t len = n < (int)sizeof facts ? (size_t)n : sizeof facts - 1;
    card.digest[0] = '\0';
    if (kin_sha256(facts, len, hash, NULL) == 0) *kin_hex_put(card.digest, hash, sizeof hash) = '\0';
    return card;
}

static kin_model_card card_of_file(const kin_call_shared *shared, const kin_model_file *f) {
    const kin_model_card card = {.id = shared->model,
                                 .aliases = shared->names.others,
                                 .n_aliases = shared->names.n_others,
                                 .created_s = f->modified_s,
                                 .ftype = f->type,
                                 .arch = f->family,
                                 .vocab_type = f->is_bpe ? 2 : 1,
                                 .n_vocab = f->n_vocab,
                                 .n_ctx_train = f->n_ctx_train,
                                 .n_embd = f->n_embd,
                                 .n_layer = f->n_layer,
                                 .n_params = (int64_t)f->n_params,
                                 .n_bytes = (int64_t)f->n_bytes,
                                 .has_embeddings = true,
                                 .status = "unloaded"};
    return with_digest(card, f->modified_s);
}

kin_model_card kin_about_card(const kin_call_shared *shared, const kin_model_file *file, int64_t created_s) {
    if (!shared->service) return card_of_file(shared, file);
    const kin_session *s = shared->preparer.session;
    uint64_t n_bytes;
    kin_model_card card = {.id = shared->model,
                           .aliases = shared->names.others,
                           .n_aliases = shared->names.n_others,
                           .created_s = file ? file->modified_s : created_s,
                           .ftype = kin_model_main_type(s->model.gguf, &n_bytes),
                           .vocab_type = kin_vocab_get_kind(s->vocab) == KIN_VOCAB_SPM ? 1 : 2,
                           .n_vocab = s->model.hp.n_vocab,
                           .n_ctx = s->n_ctx,
                           .n_ctx_train = s->model.hp.n_ctx_train,
                           .n_embd = s->model.hp.n_embd,
                           .n_layer = s->model.hp.n_layer,
                           .arch = s->model.hp.arch->name,
                           .n_params = (int64_t)kin_model_n_params(&s->model),
                           .has_tools = true,
                           .has_embeddings = true,
                           .has_thinking = kin_chat_format_thinks(&kin_prompter_format(shared->preparer.prompter)->chat),
                           .status = file ? "loaded" : NULL};
    card.n_bytes = (int64_t)n_bytes;
    return with_digest(card, file ? file->modified_s : 0);
}

// Returns the name in "/v1/models/NAME" or "/models/NAME"; empty: none.
static kin_str name_in(kin_str path) {
    static const char *const folders[] = {"/v1/models/", "/models/"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        size_t n = strlen(folders[i]);
        if (path.len > n && memcmp(path.at, folders[i], n) == 0) return (kin_str){path.at + n, path.len - n};
    }
    return (kin_str){"", 0};
}

static const kin_model_card *find_card(const kin_about *a, kin_str name) {
    for (int i = 0; i < a->n_cards; i++) {
        const kin_model_card *card = &a->cards[i];
        const kin_model_names names = {.own = card->id, .others = card->aliases, .n_others = card->n_aliases};
        if (kin_model_names_have(&names, name)) return card;
    }
    return NULL;
}

void kin_about_models(const kin_about *a, kin_http_exchange *x) {
    kin_str name = name_in(kin_http_path(x));
    const kin_model_card *card = find_card(a, name);
    kin_api_error error;
    if (name.len == 0) {
        reply_about(x, kin_models_json(a->cards, a->n_cards));
    } else if (card) {
        reply_about(x, kin_model_json(card));
    } else {
        kin_api_error_set(&error, 404, "model", "model not found; this server has '%.200s'%s",
                          a->n_cards ? a->cards[0].id : "none", a->n_cards > 1 ? " and others, see /v1/models" : "");
        error.code = "model_not_found";
        kin_refuse(x, NULL, &error);
    }
}

// Copies a token's text, NUL-terminated, to text [n].
static const char *token_text(const kin_vocab *vocab, int32_t id, char *text, size_t n) {
    kin_str s = id == KIN_TOKEN_NONE ? (kin_str){"", 0} : kin_vocab_text(vocab, id);
    size_t len = s.len < n - 1 ? s.len : n - 1;
    memcpy(text, s.at, len);
    text[len] = 0;
    return text;
}

void kin_about_props(const kin_about *a, kin_http_exchange *x) {
    const kin_session *s = a->shared->preparer.session;
    const kin_model_card *card = a->card;
    kin_request request = {0};
    kin_api_error error;
    char bos[256], eos[256];
    kin_str source = kin_prompter_template(a->shared->preparer.prompter);
    char *template = source.at ? strndup(source.at, source.len) : NULL;
    if (kin_request_from_native(&request, json_pack("{s:s}", "prompt", ""), &a->shared->defaults, &error) != 0) {
        kin_refuse(x, NULL, &error);
    } else {
        kin_server_props props = {.defaults = &request,
                                  .n_ctx = s->n_ctx,
                                  .n_slots = a->n_parallel,
                                  .alias = card->id,
                                  .ftype = card->ftype,
                                  .path = s->model_name,
                                  .chat_template = template ? template : "",
                                  .bos_token = token_text(s->vocab, kin_vocab_bos(s->vocab), bos, sizeof bos),
                                  .eos_token = token_text(s->vocab, kin_vocab_eos(s->vocab), eos, sizeof eos),
                                  .build = "kin " KIN_VERSION,
                                  .has_slots = a->has_slots,
                                  .has_metrics = a->has_metrics,
                                  .has_ui = a->has_ui,
                                  .has_tools = card->has_tools,
                                  .has_thinking = card->has_thinking};
        reply_about(x, kin_props_json(&props));
    }
    kin_request_fini(&request);
    free(template);
}

void kin_about_slots(const kin_about *a, kin_http_exchange *x) {
    if (!a->has_slots) {
        kin_http_reply_error(x, 501, "the server was started with --no-slots");
        return;
    }
    kin_slot_view *views = calloc((size_t)a->n_parallel, sizeof *views);
    int n = views ? kin_call_views(a->shared, views, a->n_parallel) : 0;
    kin_str fails = kin_http_query(x, "fail_on_no_slot");
    if (!views) {
        kin_http_reply_error(x, 500, "out of memory");
    } else if (n == a->n_parallel && fails.at && fails.len == 1 && fails.at[0] == '1') {
        kin_http_reply_error(x, 503, "no slot available");
    } else {
        for (int i = 0; i < a->n_parallel; i++) {
            views[i].id = i;
            views[i].n_ctx = a->shared->preparer.session->n_ctx;
            if (i >= n) views[i].task = -1;
        }
        reply_about(x, kin_slots_json(views, a->n_parallel));
    }
    free(views);
}

// ---- Ollama

void kin_about_ollama_version(const kin_about *a, kin_http_exchange *x) {
    kin_text_buffer body = {0};
    (void)a;
    kin_ollama_put_version(&body);
    reply_buffer(x, &body);
}

void kin_about_ollama_tags(const kin_about *a, kin_http_exchange *x) {
    kin_text_buffer body = {0};
    kin_ollama_put_tags(a->cards, a->n_cards, &body);
    reply_buffer(x, &body);
}

void kin_about_ollama_ps(const kin_about *a, kin_http_exchange *x) {
    kin_text_buffer body = {0};
    kin_model_card *loaded = malloc(((size_t)a->n_cards + 1) * sizeof *loaded);
    int n = 0;
    for (int i = 0; i < a->n_cards && loaded; i++) {
        if (!a->cards[i].status || strcmp(a->cards[i].status, "loaded") == 0) loaded[n++] = a->cards[i];
    }
    body.failed = !loaded;
    if (loaded) kin_ollama_put_ps(loaded, n, &body);
    free(loaded);
    reply_buffer(x, &body);
}

void kin_about_ollama_show(const kin_about *a, kin_http_exchange *x) {
    kin_text_buffer body = {0};
    kin_model_card card = *a->card;
    kin_str source = a->shared->service ? kin_prompter_template(a->shared->preparer.prompter) : (kin_str){NULL, 0};
    char *template = source.at ? strndup(source.at, source.len) : NULL;
    card.chat_template = template ? template : "";
    body.failed = source.at && !template;
    if (!body.failed) kin_ollama_put_show(&card, &body);
    free(template);
    reply_buffer(x, &body);
}
