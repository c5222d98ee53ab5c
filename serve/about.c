#include "serve/about.h"

#include <stdlib.h>
#include <string.h>

#include "model/arch.h"
#include "serve/json_out.h"
#include "serve/ollama.h"
#include "serve/refuse.h"
#include "serve/server_json.h"

static void reply_json(kin_http_exchange *x, json_t *json) {
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

// The type that most of the weights' bytes have.
static const char *type_of(const kin_gguf *gguf, uint64_t *n_bytes) {
    uint64_t bytes[64] = {0};
    int best = 0;
    *n_bytes = 0;
    for (size_t i = 0; i < kin_gguf_n_tensors(gguf); i++) {
        const kin_gguf_tensor *t = kin_gguf_tensor_at(gguf, i);
        *n_bytes += t->n_bytes;
        if (t->type < 64) bytes[t->type] += t->n_bytes;
    }
    for (int type = 1; type < 64; type++) best = bytes[type] > bytes[best] ? type : best;
    return kin_gguf_type_name(best);
}

static kin_model_card card_of(const kin_about *a) {
    const kin_session *s = a->world->preparer.session;
    uint64_t n_bytes;
    kin_model_card card = {.id = a->world->model,
                           .created_s = a->created_s,
                           .ftype = type_of(s->model.gguf, &n_bytes),
                           .vocab_type = kin_vocab_get_kind(s->vocab) == KIN_VOCAB_BPE ? 2 : 1,
                           .n_vocab = s->model.hp.n_vocab,
                           .n_ctx = s->n_ctx,
                           .n_ctx_train = s->model.hp.n_ctx_train,
                           .n_embd = s->model.hp.n_embd,
                           .n_layer = s->model.hp.n_layer,
                           .arch = s->model.hp.arch->name,
                           .digest = "",
                           .n_params = (int64_t)kin_model_n_params(&s->model),
                           .has_tools = true,
                           .has_thinking = kin_prompter_format(a->world->preparer.prompter)->thinks};
    card.n_bytes = (int64_t)n_bytes;
    return card;
}

static bool is_name(kin_str path, const char *name) {
    size_t n = strlen(name);
    return path.len > n && path.at[path.len - n - 1] == '/' && memcmp(path.at + path.len - n, name, n) == 0;
}

void kin_about_models(const kin_about *a, kin_http_exchange *x) {
    kin_model_card card = card_of(a);
    kin_str path = kin_http_path(x);
    kin_api_error error;
    if (is_name(path, "models") || is_name(path, "models/")) {
        reply_json(x, kin_models_json(&card, 1));
    } else if (is_name(path, card.id)) {
        reply_json(x, kin_model_json(&card));
    } else {
        kin_api_error_set(&error, 404, "model", "there is no such model; this server has '%s'", card.id);
        error.code = "model_not_found";
        kin_refuse(x, NULL, &error);
    }
}

// A token's text, NUL-terminated, in text [n].
static const char *token_text(const kin_vocab *vocab, int32_t id, char *text, size_t n) {
    kin_str s = id == KIN_TOKEN_NONE ? (kin_str){"", 0} : kin_vocab_text(vocab, id);
    size_t len = s.len < n - 1 ? s.len : n - 1;
    memcpy(text, s.at, len);
    text[len] = 0;
    return text;
}

void kin_about_props(const kin_about *a, kin_http_exchange *x) {
    const kin_session *s = a->world->preparer.session;
    kin_model_card card = card_of(a);
    kin_request request = {0};
    kin_api_error error;
    char bos[256], eos[256];
    kin_str source = kin_prompter_template(a->world->preparer.prompter);
    char *template = source.at ? strndup(source.at, source.len) : NULL;
    if (kin_request_from_native(&request, json_pack("{s:s}", "prompt", ""), &a->world->defaults, &error) != 0) {
        kin_refuse(x, NULL, &error);
    } else {
        kin_server_props props = {.defaults = &request,
                                  .n_ctx = s->n_ctx,
                                  .n_slots = a->n_parallel,
                                  .alias = card.id,
                                  .ftype = card.ftype,
                                  .path = s->model_name,
                                  .chat_template = template ? template : "",
                                  .bos_token = token_text(s->vocab, kin_vocab_bos(s->vocab), bos, sizeof bos),
                                  .eos_token = token_text(s->vocab, kin_vocab_eos(s->vocab), eos, sizeof eos),
                                  .build = "kin " KIN_VERSION,
                                  .has_slots = a->has_slots,
                                  .has_metrics = a->has_metrics,
                                  .has_tools = card.has_tools,
                                  .has_thinking = card.has_thinking};
        reply_json(x, kin_props_json(&props));
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
    int n = views ? kin_call_views(a->world, views, a->n_parallel) : 0;
    kin_str fails = kin_http_query(x, "fail_on_no_slot");
    if (!views) {
        kin_http_reply_error(x, 500, "out of memory");
    } else if (n == a->n_parallel && fails.at && fails.len == 1 && fails.at[0] == '1') {
        kin_http_reply_error(x, 503, "no slot available");
    } else {
        for (int i = 0; i < a->n_parallel; i++) {
            views[i].id = i;
            views[i].n_ctx = a->world->preparer.session->n_ctx;
            if (i >= n) views[i].task = -1;
        }
        reply_json(x, kin_slots_json(views, a->n_parallel));
    }
    free(views);
}

// ---- Ollama's

void kin_about_ollama_version(const kin_about *a, kin_http_exchange *x) {
    kin_text_buffer body = {0};
    (void)a;
    kin_ollama_put_version(&body);
    reply_buffer(x, &body);
}

void kin_about_ollama_tags(const kin_about *a, kin_http_exchange *x) {
    kin_text_buffer body = {0};
    kin_model_card card = card_of(a);
    kin_ollama_put_tags(&card, 1, &body);
    reply_buffer(x, &body);
}

void kin_about_ollama_ps(const kin_about *a, kin_http_exchange *x) {
    kin_text_buffer body = {0};
    kin_model_card card = card_of(a);
    kin_ollama_put_ps(&card, 1, &body);
    reply_buffer(x, &body);
}

void kin_about_ollama_show(const kin_about *a, kin_http_exchange *x) {
    kin_text_buffer body = {0};
    kin_model_card card = card_of(a);
    kin_ollama_put_show(&card, &body);
    reply_buffer(x, &body);
}
