#include "serve/server.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "serve/about.h"
#include "serve/apis/llama/slots.h"
#include "serve/events.h"
#include "serve/json_out.h"
#include "serve/lane.h"
#include "serve/metrics_text.h"
#include "serve/model_scan.h"
#include "serve/pulls.h"
#include "serve/refuse.h"
#include "serve/router.h"
#include "serve/tabs/tab_page.h"
#include "serve/tabs/tabs.h"
#include "serve/utility.h"
#include "serve/webui.h"

enum {
    TICK_MS = 250,
    MAX_EVENTS = 4096,
    MAX_HUGE = 1024,    // bodies that wait; the memory for bodies is enough for far fewer
    MAX_COMPILING = 64, // grammars that take long and wait, of at most 0.3 s each; one more is 503
};

struct kin_server {
    kin_server_options o;
    uv_loop_t loop;
    uv_thread_t thread;
    uv_async_t wake;
    uv_timer_t tick;
    uv_signal_t interrupt, terminate;
    kin_http *http;
    kin_access *access;
    kin_lane compiling;   // grammars that take long
    kin_lane huge;        // bodies of more than KIN_HUGE_BODY
    kin_router router;    // without models while loading
    kin_model_scan *scan; // NULL: none, or not yet
    kin_pulls *pulls;     // NULL: clients may fetch no models
    kin_events *events;
    kin_tabs *tabs; // NULL: there is no ring to join
    int64_t begun_s;
    bool is_draining, has_drained, has_loop;
    // Under the mutex.
    pthread_mutex_t mutex;
    kin_service *service; // with one model; NULL, and no host: loading
    kin_preparer preparer;
    kin_model_host *host;    // with several models
    const kin_session *ring; // a ring that browsers may join; NULL once the loop has taken it
    kin_loading loading;
    kin_err missing; // why the model is missing; empty: it is loaded, or still loading
    bool drops;      // drop the model as soon as nothing uses it
    pthread_cond_t dropped;
    bool drain, close;
};

// ---- routes

typedef struct route route;
typedef void (*answer_fn)(kin_server *s, kin_http_exchange *x);

// The object that a route needs.
typedef enum scope {
    LOADED, // a model in memory: load it if necessary
    MODEL,  // a model, loaded or not
    SERVER,
} scope;

struct route {
    const char *method, *path; // a path that ends in "/" matches everything below it
    answer_fn answer;          // answers at once, without a model
    void (*about)(const kin_about *about, kin_http_exchange *x);
    void (*manage)(kin_server *s, kin_served_model *model, kin_http_exchange *x);
    kin_utility_fn utility; // in the pool; call.format: the form of its errors
    bool embeds;
    kin_embed_api embed;
    kin_call_route call; // otherwise
    scope scope;
    bool is_always; // also while the model is loading
};

static void reply_json(kin_http_exchange *x, int status, json_t *json) {
    kin_text_buffer body = {0};
    kin_json_put(json, &body);
    kin_http_reply(x, status, "application/json; charset=utf-8", body.at ? body.at : "", body.len);
    kin_text_fini(&body);
}

static void reply_text(kin_http_exchange *x, kin_text_buffer *body, const char *type) {
    if (body->failed)
        kin_http_reply_error(x, 500, "out of memory");
    else
        kin_http_reply(x, 200, type, body->at ? body->at : "", body->len);
    kin_text_fini(body);
}

static bool is_up(const kin_server *s) {
    if (s->router.host) return kin_model_host_is_up(s->router.host);
    return s->router.n > 0 && kin_service_get_status(s->router.models[0].shared.service).is_up;
}

// Returns the form of errors for a path.
static const kin_api_format *format_of(kin_str path) {
    static const struct {
        const char *begin;
        const kin_api_format *format;
    } formats[] = {{"/v1/messages", &kin_format_messages}, {"/api/", &kin_format_ollama_chat}};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        size_t n = strlen(formats[i].begin);
        if (path.len >= n && memcmp(path.at, formats[i].begin, n) == 0) return formats[i].format;
    }
    return &kin_format_chat;
}

static void put_refusal(kin_str path, const kin_api_error *error, kin_text_buffer *body) {
    format_of(path)->error(error, body);
}

static bool get_loading(void *server, kin_loading *loading) {
    kin_server *s = server;
    pthread_mutex_lock(&s->mutex);
    *loading = s->loading;
    pthread_mutex_unlock(&s->mutex);
    return is_up(s);
}

// True if the model cannot be used for another reason than that it is still loading; *why: the reason.
static bool is_missing(kin_server *s, kin_err *why) {
    const kin_served_model *only = s->router.n == 1 ? &s->router.models[0] : NULL;
    if (only && kin_router_has_changed(only, why)) return true;
    pthread_mutex_lock(&s->mutex);
    *why = s->missing;
    pthread_mutex_unlock(&s->mutex);
    return why->text[0] != '\0';
}

static void reply_loading(kin_server *s, kin_http_exchange *x) {
    kin_loading loading;
    kin_err why;
    char seconds[16];
    get_loading(s, &loading);
    const char *message = is_missing(s, &why) ? why.text : "Loading model";
    snprintf(seconds, sizeof seconds, "%d", kin_loading_retry_after_s(&loading));
    kin_http_add_header(x, "Retry-After", seconds);
    if (format_of(kin_http_path(x)) != &kin_format_chat) {
        kin_http_reply_error(x, 503, message);
        return;
    }
    reply_json(x, 503,
               json_pack("{s:{s:i, s:s, s:s, s:o}}", "error", "code", 503, "message", message, "type", "unavailable_error",
                         "loading", kin_loading_json(&loading)));
}

static void health(kin_server *s, kin_http_exchange *x) {
    kin_err why;
    if (is_up(s) && !is_missing(s, &why))
        kin_http_reply(x, 200, "application/json; charset=utf-8", "{\"status\":\"ok\"}", 15);
    else
        reply_loading(s, x);
}

static void root(kin_server *s, kin_http_exchange *x) {
    static const char text[] = "kin is running. Its API is at /v1/.\n";
    if (s->o.webui && kin_webui_is_wanted(x))
        kin_webui_reply(x, s->o.http.prefix);
    else
        kin_http_reply(x, 200, "text/plain; charset=utf-8", text, sizeof text - 1);
}

static void page_file(kin_server *s, kin_http_exchange *x) {
    if (s->o.webui)
        kin_webui_reply_file(x);
    else
        kin_http_reply_error(x, 404, "the server was started with --no-webui");
}

static void events(kin_server *s, kin_http_exchange *x) {
    kin_events_add(s->events, x);
}

// Shows the code only to clients on this machine, where it can be seen anyway, or with a key; and to no page but the server's
// own.
static void join_code(kin_server *s, kin_http_exchange *x) {
    char code[KIN_CODE_TEXT];
    kin_err err;
    kin_str site = kin_http_header(x, "sec-fetch-site");
    const kin_session *session = s->router.n > 0 && !s->router.host ? s->router.models[0].shared.preparer.session : NULL;
    if (!s->o.shows_code || (site.at && !(site.len == 11 && memcmp(site.at, "same-origin", 11) == 0))) {
        kin_http_reply_error(x, 403, "the code is shown only on the server's machine or with an API key; run 'kin code' there");
    } else if (s->router.n == 0) {
        reply_loading(s, x);
    } else if (!session || !session->clustered) {
        kin_http_reply_error(x, 404, "the server was started without --cluster: devices cannot join");
    } else if (kin_identity_code(code, &session->fleet.o.net, &err) != 0) {
        kin_http_reply_error(x, 404, err.text);
    } else {
        kin_http_add_header(x, "Cache-Control", "no-store");
        reply_json(x, 200, json_pack("{s:s, s:i}", "code", code, "port", kin_cluster_port(session->fleet.cluster)));
        kin_code_wipe(code, sizeof code);
    }
}

// Refuses requests below /join that cannot be answered. Returns true if it has answered.
static bool refuse_browsers(kin_server *s, kin_http_exchange *x) {
    if (!s->o.browsers)
        kin_http_reply_error(x, 404, "the server was started with --no-browsers");
    else if (!kin_tab_page_has_engine())
        kin_http_reply_error(x, 404, "this kin was built without the browser engine; building it needs clang-19 and lld-19");
    else if (!s->tabs && s->router.n == 0)
        reply_loading(s, x);
    else if (!s->tabs)
        kin_http_reply_error(x, 404,
                             "browsers cannot join: the server was started without --cluster, or has no code ('kin code')");
    else
        return false;
    return true;
}

static void join_page(kin_server *s, kin_http_exchange *x) {
    if (!refuse_browsers(s, x)) kin_tab_page_reply(x);
}

static void join_file(kin_server *s, kin_http_exchange *x) {
    if (!refuse_browsers(s, x)) kin_tab_page_reply_file(x);
}

static void join_socket(kin_server *s, kin_http_exchange *x) {
    if (!refuse_browsers(s, x)) kin_tabs_connect(s->tabs, x);
}

static void join_chunk(kin_server *s, kin_http_exchange *x) {
    if (!refuse_browsers(s, x)) kin_tabs_reply_chunk(s->tabs, x);
}

static void metrics(kin_server *s, kin_http_exchange *x);

static void pull_model(kin_server *s, kin_http_exchange *x);
static void delete_model(kin_server *s, kin_http_exchange *x);
static void no_reranking(kin_server *s, kin_http_exchange *x);
static void no_props(kin_server *s, kin_http_exchange *x);
static void load_model(kin_server *s, kin_served_model *model, kin_http_exchange *x);
static void unload_model(kin_server *s, kin_served_model *model, kin_http_exchange *x);
static void act_on_slot(kin_server *s, kin_served_model *model, kin_http_exchange *x);

static const route routes[] = {
    {"GET", "/", .answer = root, .is_always = true},
    {"GET", "/page/", .answer = page_file, .is_always = true},
    {"GET", "/kin/events", .answer = events, .is_always = true},
    {"GET", "/kin/code", .answer = join_code, .is_always = true},
    {"GET", "/join", .answer = join_page, .is_always = true},
    {"GET", "/join/ws", .answer = join_socket, .is_always = true},
    {"GET", "/join/chunks/", .answer = join_chunk, .is_always = true},
    {"GET", "/join/", .answer = join_file, .is_always = true},
    {"GET", "/health", .answer = health, .is_always = true},
    {"GET", "/v1/health", .answer = health, .is_always = true},
    {"GET", "/metrics", .answer = metrics},
    {"GET", "/v1/models", .about = kin_about_models, .scope = SERVER},
    {"GET", "/models", .about = kin_about_models, .scope = SERVER},
    {"GET", "/v1/models/", .about = kin_about_models, .scope = SERVER},
    {"GET", "/models/", .about = kin_about_models, .scope = SERVER},
    {"POST", "/models/load", .manage = load_model},
    {"POST", "/models/unload", .manage = unload_model, .scope = MODEL},
    {"GET", "/props", .about = kin_about_props},
    {"POST", "/props", .answer = no_props},
    {"GET", "/slots", .about = kin_about_slots},
    {"POST", "/slots/", .manage = act_on_slot},
    {"POST", "/tokenize", .utility = kin_utility_tokenize},
    {"POST", "/detokenize", .utility = kin_utility_detokenize},
    {"POST", "/apply-template", .utility = kin_utility_apply_template},
    {"POST", "/v1/messages/count_tokens", .utility = kin_utility_count_messages, .call = {&kin_format_messages, 0}},
    {"POST", "/v1/chat/completions/input_tokens", .utility = kin_utility_count_chat},
    {"POST", "/v1/responses/input_tokens", .utility = kin_utility_count_responses},
    {"POST", "/chat/completions/input_tokens", .utility = kin_utility_count_chat},
    {"POST", "/responses/input_tokens", .utility = kin_utility_count_responses},
    {"POST", "/v1/chat/completions", .call = {&kin_format_chat, KIN_BODY_CHAT}},
    {"POST", "/chat/completions", .call = {&kin_format_chat, KIN_BODY_CHAT}},
    {"POST", "/v1/completions", .call = {&kin_format_completions, KIN_BODY_COMPLETIONS}},
    {"POST", "/completion", .call = {&kin_format_native, KIN_BODY_NATIVE}},
    {"POST", "/completions", .call = {&kin_format_native, KIN_BODY_NATIVE}},
    {"POST", "/infill", .call = {&kin_format_native, KIN_BODY_INFILL}},
    {"POST", "/v1/responses", .call = {&kin_format_responses, KIN_BODY_RESPONSES}},
    {"POST", "/responses", .call = {&kin_format_responses, KIN_BODY_RESPONSES}},
    {"POST", "/v1/messages", .call = {&kin_format_messages, KIN_BODY_MESSAGES}},
    {"GET", "/api/version", .about = kin_about_ollama_version, .scope = SERVER, .is_always = true},
    {"GET", "/api/tags", .about = kin_about_ollama_tags, .scope = SERVER},
    {"GET", "/api/ps", .about = kin_about_ollama_ps, .scope = SERVER},
    {"POST", "/api/show", .about = kin_about_ollama_show, .scope = MODEL},
    {"POST", "/api/pull", .answer = pull_model},
    {"DELETE", "/api/delete", .answer = delete_model},
    {"POST", "/api/chat", .call = {&kin_format_ollama_chat, KIN_BODY_OLLAMA_CHAT}},
    {"POST", "/api/generate", .call = {&kin_format_ollama_generate, KIN_BODY_OLLAMA_GENERATE}},
    {"POST", "/v1/embeddings", .embeds = true, .embed = KIN_EMBED_OPENAI},
    {"POST", "/embeddings", .embeds = true, .embed = KIN_EMBED_LLAMA},
    {"POST", "/embedding", .embeds = true, .embed = KIN_EMBED_LLAMA},
    {"POST", "/api/embed", .embeds = true, .embed = KIN_EMBED_OLLAMA},
    {"POST", "/api/embeddings", .embeds = true, .embed = KIN_EMBED_OLLAMA_OLD},
    {"POST", "/v1/rerank", .answer = no_reranking},
    {"POST", "/v1/reranking", .answer = no_reranking},
    {"POST", "/rerank", .answer = no_reranking},
    {"POST", "/reranking", .answer = no_reranking},
};

enum { N_ROUTES = sizeof routes / sizeof *routes };

static bool is_join(const route *r) {
    return r->answer == join_page || r->answer == join_file || r->answer == join_socket || r->answer == join_chunk;
}

static bool is_below(kin_str path, const char *folder) {
    size_t n = strlen(folder);
    return n > 1 && folder[n - 1] == '/' && path.len > n && memcmp(path.at, folder, n) == 0;
}

static const route *find_route(kin_http_exchange *x, char *allow, size_t n_allow) {
    kin_str method = kin_http_method(x), path = kin_http_path(x);
    allow[0] = 0;
    while (path.len > 1 && path.at[path.len - 1] == '/') path.len--;
    for (int i = 0; i < N_ROUTES; i++) {
        if (!kin_str_eq(path, routes[i].path) && !is_below(path, routes[i].path)) continue;
        if (kin_str_eq(method, routes[i].method)) return &routes[i];
        snprintf(allow + strlen(allow), n_allow - strlen(allow), "%s%s", allow[0] ? ", " : "", routes[i].method);
    }
    return NULL;
}

// model: the one that the request is for; NULL: none.
static void send_models(kin_server *s, const route *r, const kin_served_model *model, kin_http_exchange *x) {
    int n = s->router.n, n_cards = 0;
    kin_model_card *cards = malloc(((size_t)n + 1) * sizeof *cards);
    const kin_model_card *own = NULL;
    if (!cards) {
        kin_http_reply_error(x, 500, "out of memory");
        return;
    }
    kin_router_check_files(&s->router);
    for (int i = 0; i < n; i++) {
        const kin_served_model *m = &s->router.models[i];
        if (!kin_router_offers(m)) continue;
        if (m == model) own = &cards[n_cards];
        cards[n_cards] = kin_about_card(&m->shared, m->file, s->begun_s);
        if (m->state == KIN_MODEL_LOADING) cards[n_cards].status = "loading";
        cards[n_cards++].tags = s->o.tags;
    }
    kin_about about = {.cards = cards,
                       .n_cards = n_cards,
                       .card = own,
                       .n_parallel = s->o.n_parallel,
                       .has_metrics = s->o.metrics,
                       .has_slots = s->o.slots,
                       .has_ui = s->o.webui};
    if (model) about.shared = &model->shared;
    r->about(&about, x);
    free(cards);
}

static void begin(void *user, kin_served_model *m, const void *of, kin_http_exchange *x) {
    kin_server *s = user;
    const route *r = of;
    if (r->about)
        send_models(s, r, m, x);
    else if (r->manage)
        r->manage(s, m, x);
    else if (r->utility)
        kin_utility_begin(&s->huge, &m->shared.preparer, &m->shared.defaults, r->utility, r->call.format, &m->n_utilities, x);
    else if (r->embeds)
        kin_embed_begin(&m->embed, r->embed, x);
    else
        kin_call_begin(&m->shared, &r->call, x);
}

// True if a request without a body would load its model although a foreign page may have caused the request.
static bool loads_for_a_page(kin_server *s, const route *r, const kin_http_exchange *x) {
    return r->scope == LOADED && !kin_access_may_load(s->access, x) &&
           kin_router_would_load(&s->router, kin_http_query(x, "model"));
}

static void on_request(void *user, kin_http_exchange *x) {
    kin_server *s = user;
    char allow[64];
    if (kin_access_preflight(x)) return;
    const route *r = find_route(x, allow, sizeof allow);
    if (!r && allow[0]) {
        kin_http_add_header(x, "Allow", allow);
        kin_http_reply_error(x, 405, "method not allowed: see the Allow header");
    } else if (!r) {
        bool is_doubled = is_below(kin_http_path(x), "/v1/v1/");
        kin_http_reply_error(x, 404,
                             is_doubled ? "File Not Found: the path has /v1 twice. Leave it out of the client's base URL."
                                        : "File Not Found");
    } else if (s->o.only_joins && !is_join(r)) {
        kin_http_reply_error(x, 404, "only the page /join is available; use 'kin serve --cluster' to serve the API");
    } else if (!r->is_always && !is_up(s)) {
        reply_loading(s, x);
    } else if (r->answer) {
        r->answer(s, x);
    } else if (r->scope == SERVER) {
        send_models(s, r, NULL, x);
    } else if (s->router.host && loads_for_a_page(s, r, x)) {
        kin_http_reply_error(x, 403,
                             "This model is not loaded, and a request from a browser may load it only from the server's own "
                             "page: use the chat page of this server, or a client that is not a browser.");
    } else if (s->router.host) {
        const kin_api_format *format = r->call.format ? r->call.format : format_of(kin_http_path(x));
        kin_router_route(&s->router, x, r, format, r->scope == LOADED, r->call.format && !r->utility);
    } else {
        begin(s, &s->router.models[0], r, x);
    }
}

static void on_head(void *user, kin_http_exchange *x) {
    kin_access_admit(((kin_server *)user)->access, x);
}

static void on_gone(void *user, kin_http_exchange *x) {
    const kin_exchange_data *data = kin_http_data(x);
    (void)user;
    if (data) data->gone(data->self);
}

static void reply_success(kin_http_exchange *x) {
    reply_json(x, 200, json_pack("{s:b}", "success", 1));
}

static void load_model(kin_server *s, kin_served_model *model, kin_http_exchange *x) {
    (void)s, (void)model; // it is loaded already
    reply_success(x);
}

static void unload_model(kin_server *s, kin_served_model *model, kin_http_exchange *x) {
    if (!s->router.host) {
        kin_http_reply_error(x, 501,
                             "this server has a single model, which stays loaded: start it with --models-dir for several");
    } else if (model->state != KIN_MODEL_LOADED) {
        kin_http_reply_error(x, 400, "the model is not loaded");
    } else {
        model->is_unwanted = true;
        reply_success(x);
    }
}

// Refuses it if clients may not fetch models. Returns true if it has answered.
static bool refuse_pulls(kin_server *s, kin_http_exchange *x) {
    if (s->pulls) return false;
    kin_http_reply_error(x, 501, "clients may not fetch or remove models: start the server with --models-dir FOLDER --pull");
    return true;
}

static void pull_model(kin_server *s, kin_http_exchange *x) {
    if (!refuse_pulls(s, x)) kin_pulls_begin(s->pulls, x);
}

static void delete_model(kin_server *s, kin_http_exchange *x) {
    if (!refuse_pulls(s, x)) kin_pulls_delete(s->pulls, x);
}

static void no_reranking(kin_server *s, kin_http_exchange *x) {
    (void)s;
    kin_http_reply_error(x, 501, "this server does not support reranking");
}

static void no_props(kin_server *s, kin_http_exchange *x) {
    (void)s;
    kin_http_reply_error(x, 501, "server properties cannot be changed at run time");
}

static void act_on_slot(kin_server *s, kin_served_model *model, kin_http_exchange *x) {
    if (s->o.slots)
        kin_slots_begin(&(kin_slots_shared){.loop = &s->loop,
                                            .service = model->shared.service,
                                            .save_path = s->o.slot_save_path,
                                            .n_vocab = kin_vocab_n_tokens(model->shared.preparer.session->vocab),
                                            .n_ctx = model->embed.n_ctx,
                                            .n_open = &model->n_utilities},
                        x);
    else
        kin_http_reply_error(x, 501, "the server was started with --no-slots");
}

// ---- metrics

static void metrics(kin_server *s, kin_http_exchange *x) {
    if (!s->o.metrics) {
        kin_http_reply_error(x, 501, "start the server with --metrics");
        return;
    }
    kin_text_buffer text = {0};
    char begun[24];
    struct kin_call_counters counters;
    kin_service_status status;
    kin_router_sum(&s->router, &counters, &status);
    kin_metrics_put(&counters, &status, &text);
    json_t *cluster = kin_events_cluster(s->events);
    kin_metrics_put_devices(cluster, &text);
    json_decref(cluster);
    snprintf(begun, sizeof begun, "%" PRId64, s->begun_s);
    kin_http_add_header(x, "Process-Start-Time-Unix", begun);
    reply_text(x, &text, "text/plain; version=0.0.4");
}

// ---- the loop

static void open_tabs(kin_server *s, const kin_session *session) {
    kin_err err;
    if (kin_tabs_open(&s->tabs, &s->loop, session, &err) != 0) kin_log(KIN_LOG_INFO, "browsers cannot join: %s", err.text);
}

static void on_listed(void *user, const kin_model_file *files, int n) {
    kin_router_set_files(&((kin_server *)user)->router, files, n);
}

static void on_fetched(void *user, const kin_model_file *file) {
    kin_server *s = user;
    if (s->router.host && file->is_usable) kin_router_add(&s->router, file);
}

// The command line's model is its owner's, so a client cannot delete it.
static const char *listed(void *user, kin_str name) {
    kin_server *s = user;
    const kin_served_model *m = kin_router_find(&s->router, name);
    const bool is_first = s->router.host && kin_model_host_get_options(s->router.host)->has_first && m == &s->router.models[0];
    return m && m->file && !is_first ? m->file->path : NULL;
}

// Runs once, because the pool reads the result, too.
static void set_served_model(kin_server *s) {
    if (s->router.n > 0 || s->router.host) return;
    pthread_mutex_lock(&s->mutex);
    kin_service *service = s->service;
    kin_model_host *host = s->host;
    kin_preparer preparer = s->preparer;
    pthread_mutex_unlock(&s->mutex);
    if (!service && !host) return;
    kin_router_options o = {.loop = &s->loop,
                            .shared = {.loop = &s->loop,
                                       .compiling = &s->compiling,
                                       .huge = &s->huge,
                                       .defaults = s->o.defaults,
                                       .model = s->o.alias,
                                       .names = {s->o.alias, s->o.names, s->o.n_names, s->o.strict_model},
                                       .fingerprint = "kin-" KIN_VERSION,
                                       .ping_s = s->o.ping_s},
                            .embed = {.loop = &s->loop, .huge = &s->huge, .pooling = s->o.pooling},
                            .n_max = s->o.models_max,
                            .sleep_idle_s = s->o.sleep_idle_s,
                            .accepts_any_name = s->o.accepts_any_name,
                            .max_waiting = s->o.max_waiting,
                            .begin = begin,
                            .user = s};
    // If out of memory, it is tried again at the next tick.
    (void)(host ? kin_router_open(&s->router, &o, host) : kin_router_open_one(&s->router, &o, service, &preparer));
    if (s->router.host && s->o.models_dir)
        s->scan = kin_model_scan_open(&(kin_model_scan_options){&s->loop, s->o.models_dir, on_listed, s});
    if (s->router.host && s->o.models_dir && s->o.pull)
        s->pulls = kin_pulls_open(&(kin_pulls_options){&s->loop, *s->o.pull, on_fetched, listed, s});
    if (s->router.n > 0 && service && preparer.session && preparer.session->clustered && s->o.browsers)
        open_tabs(s, preparer.session);
}

static void open_ring_tabs(kin_server *s) {
    pthread_mutex_lock(&s->mutex);
    const kin_session *ring = s->ring;
    s->ring = NULL;
    pthread_mutex_unlock(&s->mutex);
    if (ring) open_tabs(s, ring);
}

static bool has_open_requests(const kin_server *s) {
    if (kin_http_n_exchanges(s->http) > 0) return true;
    for (int i = 0; i < s->router.n; i++) {
        if (!kin_router_is_idle(&s->router.models[i])) return true;
    }
    return false;
}

static void begin_drain(kin_server *s) {
    if (s->is_draining) return;
    s->is_draining = true;
    kin_events_stop(s->events);
    kin_pulls_stop(s->pulls);
    kin_http_drain(s->http);
    if (s->o.draining && has_open_requests(s)) s->o.draining(s->o.user);
}

static void check_drained(kin_server *s) {
    if (!s->is_draining || s->has_drained || has_open_requests(s)) return;
    s->has_drained = true;
    s->o.drained(s->o.user);
}

static void close_loop(kin_server *s) {
    if (s->events) kin_events_stop(s->events);
    kin_tabs_stop(s->tabs);
    kin_pulls_stop(s->pulls);
    kin_http_close(s->http);
    s->http = NULL;
    uv_close((uv_handle_t *)&s->wake, NULL);
    uv_close((uv_handle_t *)&s->tick, NULL);
    uv_close((uv_handle_t *)&s->interrupt, NULL);
    uv_close((uv_handle_t *)&s->terminate, NULL);
}

// Drops the model before another one replaces it.
static void drop_model(kin_server *s) {
    pthread_mutex_lock(&s->mutex);
    bool drops = s->drops;
    pthread_mutex_unlock(&s->mutex);
    if (!drops) return;
    kin_tabs_stop(s->tabs);
    bool is_used = kin_events_is_reading(s->events) || (s->tabs && !kin_tabs_have_ended(s->tabs));
    for (int i = 0; i < s->router.n; i++) is_used = is_used || !kin_router_is_idle(&s->router.models[i]);
    if (is_used) return;
    kin_tabs_close(s->tabs);
    s->tabs = NULL;
    kin_router_fini(&s->router);
    pthread_mutex_lock(&s->mutex);
    s->service = NULL;
    s->preparer = (kin_preparer){0};
    s->drops = false;
    pthread_cond_signal(&s->dropped);
    pthread_mutex_unlock(&s->mutex);
}

static void handle_job_events(kin_server *s, kin_served_model *m) {
    kin_job_event event;
    int n = 0;
    for (; n < MAX_EVENTS && m->shared.service && kin_service_pop(m->shared.service, &event); n++) {
        if (event.kind == KIN_SEQUENCES_ERASED || event.kind == KIN_SEQUENCE_READ || event.restores)
            kin_slots_handle(&event);
        else if (event.pooling)
            kin_embed_handle(&event);
        else
            kin_call_handle(&m->shared, &event);
    }
    if (n == MAX_EVENTS) uv_async_send(&s->wake); // there may be more
}

static void on_wake(uv_async_t *handle) {
    kin_server *s = handle->data;
    set_served_model(s);
    open_ring_tabs(s);
    for (int i = 0; i < s->router.n; i++) handle_job_events(s, &s->router.models[i]);
    kin_router_tick(&s->router, kin_clock_now());
    drop_model(s);
    pthread_mutex_lock(&s->mutex);
    bool drain = s->drain, close = s->close;
    pthread_mutex_unlock(&s->mutex);
    if (drain) begin_drain(s);
    check_drained(s);
    if (close && s->http) close_loop(s);
}

static void on_tick(uv_timer_t *handle) {
    kin_server *s = handle->data;
    for (int i = 0; i < s->router.n; i++) kin_call_tick(&s->router.models[i].shared, kin_clock_now());
    kin_events_tick(s->events, kin_clock_now());
    if (s->tabs) kin_tabs_tick(s->tabs, kin_clock_now());
    if (s->scan && !s->is_draining) kin_model_scan_tick(s->scan, kin_clock_now());
    on_wake(&s->wake);
}

static void on_signal(uv_signal_t *handle, int number) {
    kin_server *s = handle->data;
    (void)number;
    if (s->is_draining) s->o.hurry(s->o.user);
    begin_drain(s);
    check_drained(s);
}

static void run_server(void *arg) {
    kin_server *s = arg;
    uv_run(&s->loop, UV_RUN_DEFAULT);
}

static int open_loop(kin_server *s, kin_err *err) {
    static const kin_http_callbacks callbacks = {.head = on_head, .request = on_request, .gone = on_gone, .refusal = put_refusal};
    if (uv_loop_init(&s->loop) != 0) return kin_err_set(err, "cannot create the event loop");
    s->has_loop = true;
    uv_async_init(&s->loop, &s->wake, on_wake);
    uv_timer_init(&s->loop, &s->tick);
    uv_signal_init(&s->loop, &s->interrupt);
    uv_signal_init(&s->loop, &s->terminate);
    s->wake.data = s->tick.data = s->interrupt.data = s->terminate.data = s;
    if (kin_http_open(&s->http, &s->loop, &s->o.http, &callbacks, s, err) != 0) return KIN_FAIL;
    uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
    if (s->o.leaves_signals) return 0;
    uv_signal_start(&s->interrupt, on_signal, SIGINT);
    uv_signal_start(&s->terminate, on_signal, SIGTERM);
    return 0;
}

int kin_server_open(kin_server **out, const kin_server_options *o, kin_err *err) {
    *out = NULL;
    kin_server *s = calloc(1, sizeof *s);
    if (!s) return kin_err_set(err, "out of memory");
    s->o = *o;
    s->begun_s = (int64_t)time(NULL);
    kin_loading_init(&s->loading);
    kin_lane_init(&s->compiling, &s->loop, MAX_COMPILING);
    kin_lane_init(&s->huge, &s->loop, MAX_HUGE);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->dropped, NULL);
    kin_events_options eo = {.router = &s->router,
                             .alias = s->o.alias,
                             .n_parallel = o->n_parallel,
                             .begun_s = s->begun_s,
                             .get_loading = get_loading,
                             .user = s};
    int rc = kin_access_open(&s->access, &o->access, err);
    if (rc == 0) rc = kin_events_open(&s->events, &s->loop, &eo, err);
    if (rc == 0) rc = open_loop(s, err);
    if (rc == 0 && uv_thread_create(&s->thread, run_server, s) != 0) rc = kin_err_set(err, "cannot start the server's thread");
    if (rc == 0) {
        *out = s;
        return 0;
    }
    if (s->has_loop) {
        close_loop(s);
        run_server(s);
        kin_assert(uv_loop_close(&s->loop) == 0);
    }
    kin_events_close(s->events);
    kin_access_close(s->access);
    pthread_cond_destroy(&s->dropped);
    pthread_mutex_destroy(&s->mutex);
    free(s);
    return KIN_FAIL;
}

void kin_server_stop(kin_server *s) {
    if (!s || !s->has_loop) return;
    pthread_mutex_lock(&s->mutex);
    s->close = true;
    pthread_mutex_unlock(&s->mutex);
    uv_async_send(&s->wake);
    uv_thread_join(&s->thread);
    // A remaining handle would use freed memory.
    kin_assert(uv_loop_close(&s->loop) == 0);
    kin_tabs_close(s->tabs); // they use the ring
    s->tabs = NULL;
    s->has_loop = false;
}

void kin_server_close(kin_server *s) {
    if (!s) return;
    kin_server_stop(s);
    kin_model_scan_close(s->scan);
    kin_pulls_close(s->pulls);
    kin_router_fini(&s->router);
    kin_events_close(s->events);
    kin_access_close(s->access);
    pthread_cond_destroy(&s->dropped);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

uint16_t kin_server_port(const kin_server *s) {
    return kin_http_port(s->http);
}

void kin_server_wake(void *server) {
    uv_async_send(&((kin_server *)server)->wake);
}

void kin_server_drop_model(kin_server *s, const kin_err *why) {
    pthread_mutex_lock(&s->mutex);
    s->missing = *why;
    s->drops = true;
    kin_server_wake(s);
    while (s->drops) pthread_cond_wait(&s->dropped, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

void kin_server_set_missing(kin_server *s, const kin_err *why) {
    pthread_mutex_lock(&s->mutex);
    s->missing = *why;
    pthread_mutex_unlock(&s->mutex);
}

void kin_server_set_model(kin_server *s, kin_service *service, const kin_preparer *preparer) {
    pthread_mutex_lock(&s->mutex);
    s->missing.text[0] = '\0';
    s->service = service;
    s->preparer = *preparer;
    pthread_mutex_unlock(&s->mutex);
    kin_server_wake(s);
}

void kin_server_set_models(kin_server *s, kin_model_host *host) {
    pthread_mutex_lock(&s->mutex);
    s->host = host;
    pthread_mutex_unlock(&s->mutex);
    kin_server_wake(s);
}

void kin_server_set_ring(kin_server *s, const kin_session *session) {
    pthread_mutex_lock(&s->mutex);
    s->ring = session;
    pthread_mutex_unlock(&s->mutex);
    kin_server_wake(s);
}

void kin_server_set_doing(kin_server *s, const char *what, double percent) {
    pthread_mutex_lock(&s->mutex);
    kin_loading_set(&s->loading, what, percent, kin_clock_now());
    pthread_mutex_unlock(&s->mutex);
}

void kin_server_drain(kin_server *s) {
    pthread_mutex_lock(&s->mutex);
    s->drain = true;
    pthread_mutex_unlock(&s->mutex);
    kin_server_wake(s);
}
