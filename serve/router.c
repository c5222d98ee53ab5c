#include "serve/router.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "pure/text/escape.h"
#include "serve/apis/ollama/ollama.h"
#include "serve/apis/openai/openai_json.h"
#include "serve/refuse.h"

static const kin_time LONGEST_WAIT_NS = UINT64_C(600000000000); // the time that OpenAI's SDKs wait for an answer

struct kin_router_waiter {
    kin_router_waiter *next; // in its model's queue
    kin_exchange_data data;
    kin_http_exchange *x; // NULL: the client is gone
    kin_router *router;
    kin_served_model *model; // NULL: not known yet
    const void *route;
    const kin_api_format *format;
    bool needs, streams, is_unwanted;
    int ping_s; // interval of pings; 0: none
    kin_lane_work work;
    char *body;
    size_t n_body;
    kin_http_hold hold;
    int rc;
    kin_api_error error;
    char name[512];
    size_t n_name; // at most sizeof name
    bool is_named;
    kin_time since, last_sign; // last_sign: when bytes were last sent to the client
};

// ---- open, close

static int open_models(kin_router *r, const kin_router_options *o, int n, int n_room) {
    *r = (kin_router){.o = *o};
    r->models = calloc((size_t)n_room + 1, sizeof *r->models);
    if (!r->models) return KIN_FAIL;
    r->n = n;
    r->n_room = n_room;
    for (int i = 0; i < n_room; i++) {
        kin_served_model *m = &r->models[i];
        m->shared = o->shared;
        m->shared.names.own = o->shared.model;
        m->embed = o->embed;
        m->waiting_end = &m->waiting;
    }
    return 0;
}

static void use(const kin_router *r, kin_served_model *m, kin_service *service, const kin_preparer *preparer) {
    const kin_session *session = preparer->session;
    m->shared.service = m->embed.service = service;
    m->shared.preparer = *preparer;
    m->shared.fim = kin_fim_tokens_of(session->vocab);
    m->embed.prompter = preparer->prompter;
    m->embed.model = m->shared.model;
    m->embed.names = m->shared.names;
    m->embed.pooling = kin_embed_pooling(&session->model, r->o.embed.pooling);
    m->embed.n_embd = session->model.hp.n_embd;
    m->embed.n_ctx = session->n_ctx;
    m->state = KIN_MODEL_LOADED;
    m->leaves = m->is_unwanted = false;
    m->busy_at = kin_clock_now();
}

int kin_router_open_one(kin_router *r, const kin_router_options *o, kin_service *service, const kin_preparer *preparer) {
    if (open_models(r, o, 1, 1) != 0) return KIN_FAIL;
    use(r, &r->models[0], service, preparer);
    return 0;
}

// is_first: --alias applies to it.
static void name_model(kin_served_model *m, const kin_model_file *file, bool is_first) {
    m->file = file;
    m->shared.model = m->embed.model = file->name;
    m->shared.names.own = file->name;
    m->shared.names.is_strict = false; // the router has already matched the name
    if (!is_first) m->shared.names.n_others = 0;
}

bool kin_router_offers(const kin_served_model *m) {
    return !m->is_gone || m->state != KIN_MODEL_UNLOADED || m->waiting;
}

static const kin_model_file *find_path(const kin_model_file *files, int n, const char *path) {
    for (int i = 0; i < n; i++) {
        if (strcmp(files[i].path, path) == 0) return &files[i];
    }
    return NULL;
}

// True if another file may take the model's place.
static bool is_free(const kin_served_model *m) {
    return !kin_router_offers(m) && !m->has_changed && kin_router_is_idle(m);
}

// Returns the place for a new file; -1: its name is taken, or there is no room.
static int find_place(const kin_router *r, const kin_model_file *files, const kin_model_file *file) {
    int place = r->n < r->n_room ? r->n : -1;
    for (int i = 0; i < r->n; i++) {
        if (strcmp(files[i].name, file->name) == 0) return is_free(&r->models[i]) ? i : -1;
        if (place < 0 && is_free(&r->models[i])) place = i;
    }
    return place;
}

void kin_router_add(kin_router *r, const kin_model_file *file) {
    kin_model_file *files = kin_model_host_get_options(r->host)->files;
    const kin_model_file *known = find_path(files, r->n, file->path);
    int i = known ? (int)(known - files) : find_place(r, files, file);
    if (i < 0 || (known && !r->models[i].is_gone)) return;
    files[i] = *file;
    name_model(&r->models[i], &files[i], false);
    r->models[i].is_gone = false;
    if (i == r->n) r->n++;
    kin_log(KIN_LOG_INFO, "added model %s", file->name);
}

static void set_gone_file(kin_served_model *m, bool is_gone) {
    if (is_gone && !m->is_gone) kin_log(KIN_LOG_INFO, "%s is removed: it is no model of this server any more", m->file->path);
    m->is_gone = is_gone;
}

void kin_router_set_files(kin_router *r, const kin_model_file *listed, int n) {
    const kin_model_host_options *ho = kin_model_host_get_options(r->host);
    const kin_model_file *files = ho->files;
    for (int i = ho->has_first ? 1 : 0; i < r->n; i++) {
        set_gone_file(&r->models[i], !find_path(listed, n, files[i].path));
    }
    for (int i = 0; i < n; i++) {
        if (listed[i].is_usable) kin_router_add(r, &listed[i]);
    }
}

// Looks at the file of one model.
static void check_file(const kin_router *r, kin_served_model *m) {
    kin_file_identity identity;
    if (r->host && m->file) m->is_gone = kin_file_identify_path(m->file->path, &identity) != 0;
}

void kin_router_check_files(kin_router *r) {
    kin_file_identity identity;
    if (!r->host) return;
    for (int i = kin_model_host_get_options(r->host)->has_first ? 1 : 0; i < r->n; i++) {
        kin_served_model *m = &r->models[i];
        if (!m->is_gone) set_gone_file(m, kin_file_identify_path(m->file->path, &identity) != 0);
    }
}

int kin_router_open(kin_router *r, const kin_router_options *o, kin_model_host *host) {
    const kin_model_host_options *ho = kin_model_host_get_options(host);
    if (open_models(r, o, ho->n, ho->n > ho->n_max ? ho->n : ho->n_max) != 0) return KIN_FAIL;
    r->host = host;
    for (int i = 0; i < ho->n; i++) name_model(&r->models[i], &ho->files[i], i == 0 && ho->has_first);
    if (ho->has_first) { // its answer comes without an order
        r->models[0].state = KIN_MODEL_LOADING;
        r->is_ordered = true;
    }
    return 0;
}

static void free_waiter(kin_router_waiter *w) {
    free(w->body);
    kin_http_release(&w->hold);
    free(w);
}

void kin_router_fini(kin_router *r) {
    free(r->models);
    *r = (kin_router){0};
}

// ---- waiting

static void put_in_line(kin_served_model *m, kin_router_waiter *w) {
    w->model = m;
    w->next = NULL;
    *m->waiting_end = w;
    m->waiting_end = &w->next;
    w->router->n_waiting++;
}

static void leave_line(kin_router_waiter *w) {
    kin_served_model *m = w->model;
    kin_router_waiter **at = &m->waiting;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    if (!*at) m->waiting_end = at;
    w->router->n_waiting--;
}

static void on_waiter_gone(void *self) {
    kin_router_waiter *w = self;
    w->x = NULL;
    if (!w->model) return; // the pool is using it
    leave_line(w);
    free_waiter(w);
}

static void refuse(kin_router_waiter *w, const kin_api_error *error) {
    if (w->x) kin_refuse(w->x, w->format, error);
    free_waiter(w);
}

static void begin_call(kin_router_waiter *w, kin_served_model *m) {
    kin_router *r = w->router;
    kin_http_exchange *x = w->x;
    const void *route = w->route;
    if (w->needs) m->used = r->n_requests;
    if (w->needs) m->is_unwanted = w->is_unwanted;
    if (w->needs) m->busy_at = kin_clock_now();
    if (w->body) kin_http_give_body(x, w->body, w->n_body, &w->hold);
    w->body = NULL;
    kin_http_set_data(x, NULL);
    free_waiter(w);
    r->o.begin(r->o.user, m, route, x);
}

static void begin_all(kin_served_model *m) {
    while (m->waiting) {
        kin_router_waiter *w = m->waiting;
        leave_line(w);
        begin_call(w, m);
    }
}

static void refuse_all(kin_served_model *m, const kin_api_error *error) {
    while (m->waiting) {
        kin_router_waiter *w = m->waiting;
        leave_line(w);
        refuse(w, error);
    }
}

// ---- loading and unloading

bool kin_router_has_changed(const kin_served_model *m, kin_err *why) {
    if (m->has_changed) *why = m->changed;
    return m->has_changed || (m->shared.service && kin_service_has_changed(m->shared.service, why));
}

bool kin_router_is_idle(const kin_served_model *m) {
    return !m->shared.calls && m->embed.n_open == 0 && m->n_utilities == 0;
}

// Adds the counters that only grow.
static void add_counts(kin_scheduler_stats *to, const kin_scheduler_stats *t) {
    to->n_steps += t->n_steps;
    to->n_prompt_tokens += t->n_prompt_tokens;
    to->n_cached_tokens += t->n_cached_tokens;
    to->n_generated_tokens += t->n_generated_tokens;
    to->n_replayed_tokens += t->n_replayed_tokens;
    to->n_partly_replayed_tokens += t->n_partly_replayed_tokens;
    to->n_preempted += t->n_preempted;
    to->n_decode_rows += t->n_decode_rows;
    kin_draft_counts_add(&to->drafts, &t->drafts);
}

static void order(kin_router *r, kin_served_model *m, bool load) {
    if (!load) {
        kin_scheduler_stats stats = kin_service_get_status(m->shared.service).scheduler;
        add_counts(&r->past, &stats);
        m->shared.service = m->embed.service = NULL;
        m->shared.preparer = (kin_preparer){0};
        m->embed.prompter = NULL;
    }
    m->state = load ? KIN_MODEL_LOADING : KIN_MODEL_UNLOADING;
    r->is_ordered = true;
    kin_model_host_order(r->host, (int)(m - r->models), load);
}

// Returns the unloaded model whose oldest request has waited longest. NULL: none.
static kin_served_model *find_wanted(kin_router *r) {
    kin_served_model *wanted = NULL;
    for (int i = 0; i < r->n; i++) {
        kin_served_model *m = &r->models[i];
        if (m->state != KIN_MODEL_UNLOADED || !m->waiting) continue;
        if (!wanted || m->waiting->since < wanted->waiting->since) wanted = m;
    }
    return wanted;
}

static bool is_better_to_unload(const kin_served_model *a, const kin_served_model *b) {
    if (a->leaves != b->leaves) return a->leaves;
    if (kin_router_is_idle(a) != kin_router_is_idle(b)) return kin_router_is_idle(a);
    return a->used < b->used;
}

// Returns the model to unload to make room. NULL: there is room for one more.
static kin_served_model *find_leaver(kin_router *r) {
    kin_served_model *leaver = NULL;
    int n_loaded = 0;
    for (int i = 0; i < r->n; i++) {
        kin_served_model *m = &r->models[i];
        if (m->state != KIN_MODEL_LOADED) continue;
        n_loaded++;
        if (!leaver || is_better_to_unload(m, leaver)) leaver = m;
    }
    return n_loaded < r->o.n_max ? NULL : leaver;
}

// No model has to make room any more: requests that waited for a model that was to leave continue with it.
static void stay_all(kin_router *r) {
    for (int i = 0; i < r->n; i++) {
        kin_served_model *m = &r->models[i];
        if (m->state != KIN_MODEL_LOADED) continue;
        m->leaves = false;
        begin_all(m);
    }
}

void kin_router_plan(kin_router *r) {
    if (!r->host || r->is_ordered) return;
    for (int i = 0; i < r->n; i++) {
        kin_served_model *m = &r->models[i];
        bool is_to_leave = m->is_unwanted && (m->has_changed || !m->waiting);
        if (m->state != KIN_MODEL_LOADED || !is_to_leave || !kin_router_is_idle(m)) continue;
        order(r, m, false);
        return;
    }
    kin_served_model *wanted = find_wanted(r), *leaver = wanted ? find_leaver(r) : NULL;
    if (!wanted) {
        stay_all(r);
    } else if (!leaver) {
        order(r, wanted, true);
    } else {
        leaver->leaves = true;
        if (kin_router_is_idle(leaver)) order(r, leaver, false);
    }
}

static void set_gone(kin_api_error *error, const kin_served_model *m) {
    kin_api_error_set(error, 404, "model",
                      "there is no model '%.100s' any more: its file was removed; /v1/models lists those of this server",
                      m->shared.model);
    error->code = "model_not_found";
}

static void handle_answer(kin_router *r, const kin_model_answer *a) {
    kin_served_model *m = &r->models[a->model];
    r->is_ordered = false;
    if (a->loaded) {
        use(r, m, a->loaded->service, &a->loaded->preparer);
        begin_all(m);
        return;
    }
    m->state = KIN_MODEL_UNLOADED;
    m->leaves = m->is_unwanted = false;
    if (!a->failed) return;
    kin_api_error error;
    check_file(r, m);
    kin_api_error_set(&error, 500, "model", "cannot load model '%.100s': %.300s", m->shared.model, a->why.text);
    if (m->is_gone) set_gone(&error, m);
    refuse_all(m, &error);
}

// Marks a model for unloading if it was unused for long enough.
static void put_to_sleep(const kin_router *r, kin_served_model *m, kin_time now) {
    if (m->state != KIN_MODEL_LOADED) return;
    if (m->waiting || !kin_router_is_idle(m))
        m->busy_at = now;
    else if (r->o.sleep_idle_s > 0 && now >= m->busy_at + (kin_time)r->o.sleep_idle_s * 1000000000)
        m->is_unwanted = true;
}

// Sends a comment, which no API's client takes for an event: events begin with the first text.
static void ping(kin_router_waiter *w, kin_time now) {
    if (w->ping_s <= 0 || now < w->last_sign + (kin_time)w->ping_s * 1000000000) return;
    if (!kin_http_has_begun(w->x)) kin_begin_stream(w->x, w->format);
    kin_http_write(w->x, KIN_OPENAI_PING, strlen(KIN_OPENAI_PING));
    w->last_sign = now;
}

static void refuse_changed(kin_router_waiter *w, const kin_served_model *m) {
    kin_api_error error;
    kin_api_error_set(&error, 503, "model", "%s", m->changed.text);
    refuse(w, &error);
}

// Unloads a model whose files have changed. It is loaded again on request once they are complete.
static void check_changes(kin_router *r, kin_served_model *m) {
    if (m->has_changed && m->state == KIN_MODEL_UNLOADED && kin_model_host_is_whole(r->host, (int)(m - r->models)))
        m->has_changed = false;
    if (m->has_changed || m->state != KIN_MODEL_LOADED || !kin_service_has_changed(m->shared.service, &m->changed)) return;
    kin_log(KIN_LOG_WARN, "%s", m->changed.text);
    m->has_changed = m->is_unwanted = m->leaves = true;
    while (m->waiting) {
        kin_router_waiter *w = m->waiting;
        leave_line(w);
        refuse_changed(w, m);
    }
}

void kin_router_tick(kin_router *r, kin_time now) {
    kin_model_answer answer;
    if (!r->host) return;
    if (kin_model_host_pop(r->host, &answer)) handle_answer(r, &answer);
    for (int i = 0; i < r->n; i++) check_changes(r, &r->models[i]);
    for (int i = 0; i < r->n; i++) {
        kin_served_model *m = &r->models[i];
        for (kin_router_waiter *w = m->waiting; w; w = w->next) ping(w, now);
        put_to_sleep(r, m, now);
        while (m->waiting && now - m->waiting->since > LONGEST_WAIT_NS && now > m->waiting->since) {
            kin_router_waiter *w = m->waiting;
            kin_api_error error;
            kin_api_error_set(&error, 503, "model", "the model '%.100s' is not loaded yet: try again later", m->shared.model);
            leave_line(w);
            refuse(w, &error);
        }
    }
    kin_router_plan(r);
}

// ---- choosing the model

static kin_served_model *find_name(kin_router *r, kin_str name) {
    for (int i = 0; i < r->n; i++) {
        if (kin_model_names_have(&r->models[i].shared.names, name)) return &r->models[i];
    }
    return NULL;
}

kin_served_model *kin_router_find(kin_router *r, kin_str name) {
    kin_served_model *m = find_name(r, name);
    char file[256];
    const char *colon = memchr(name.at, ':', name.len);
    if (m || !r->host || name.len > 200) return m;
    int n = snprintf(file, sizeof file, "%.*s%s", (int)name.len, name.at, colon ? "" : "-latest");
    if (colon) file[colon - name.at] = '-';
    return find_name(r, (kin_str){file, (size_t)n}); // NAME:TAG is in a file NAME-TAG.gguf
}

// Returns the model for a request that names none: the command line's, or the only one, or the most recently used one in memory.
static kin_served_model *find_default(kin_router *r) {
    kin_served_model *best = NULL;
    if (r->n == 1 || kin_model_host_get_options(r->host)->has_first) return &r->models[0];
    for (int i = 0; i < r->n; i++) {
        kin_served_model *m = &r->models[i];
        if (m->state == KIN_MODEL_LOADED && (!best || m->used > best->used)) best = m;
    }
    return best;
}

static bool is_ready(const kin_served_model *m) {
    return m->state == KIN_MODEL_LOADED && !m->leaves;
}

bool kin_router_would_load(kin_router *r, kin_str name) {
    const kin_served_model *m = name.len > 0 ? kin_router_find(r, name) : find_default(r);
    return m && !is_ready(m);
}

static void route(kin_router_waiter *w) {
    kin_router *r = w->router;
    kin_api_error error;
    kin_served_model *m = w->is_named ? kin_router_find(r, (kin_str){w->name, w->n_name}) : find_default(r);
    if (!m && r->n == 1 && r->o.accepts_any_name) m = &r->models[0];
    if (m && !kin_router_offers(m)) check_file(r, m); // it may be back since the last scan
    r->n_requests++;
    w->since = w->last_sign = kin_clock_now();
    if (!m && w->is_named) {
        char name[101];
        kin_api_error_set(&error, 404, "model", "model '%s' not found: /v1/models lists the models of this server",
                          kin_escape(name, sizeof name, w->name, w->n_name));
        error.code = "model_not_found";
        refuse(w, &error);
    } else if (!m) {
        kin_api_error_set(&error, 400, "model", "this server has several models: set 'model' to one of /v1/models");
        refuse(w, &error);
    } else if (!kin_router_offers(m)) {
        set_gone(&error, m);
        refuse(w, &error);
    } else if (w->needs && m->has_changed) {
        refuse_changed(w, m);
    } else if (!w->needs || is_ready(m)) {
        begin_call(w, m);
    } else if (r->n_waiting >= r->o.max_waiting) {
        kin_api_error_set(&error, 429, NULL, "the queue is full: try again in a moment");
        refuse(w, &error);
    } else {
        put_in_line(m, w);
    }
    kin_router_plan(r);
}

static void set_name(kin_router_waiter *w, kin_str name) {
    w->is_named = name.len > 0;
    w->n_name = name.len < sizeof w->name ? name.len : sizeof w->name;
    if (name.len > 0) memcpy(w->name, name.at, w->n_name);
}

// Ollama's streams have nothing that could be sent before their first line.
static int read_ping(const kin_router_waiter *w, const json_t *body) {
    const json_t *own = json_object_get(body, "sse_ping_interval");
    bool is_own = json_is_integer(own) && json_integer_value(own) >= -1 && json_integer_value(own) <= INT32_MAX;
    if (!w->streams || !json_is_true(json_object_get(body, "stream")) || strcmp(w->format->stream_type, "text/event-stream") != 0)
        return 0;
    return is_own ? (int)json_integer_value(own) : w->router->o.shared.ping_s;
}

static void read_in_pool(kin_lane_work *work) {
    kin_router_waiter *w = work->user;
    json_t *body = w->n_body ? kin_request_parse((kin_str){w->body, w->n_body}, &w->error) : json_object();
    w->rc = body ? 0 : KIN_FAIL;
    const json_t *name = json_object_get(body, "model");
    if (!json_is_string(name)) name = json_object_get(body, "name"); // older clients of Ollama's show
    if (json_is_string(name)) set_name(w, (kin_str){json_string_value(name), json_string_length(name)});
    w->is_unwanted = kin_ollama_lets_go(json_object_get(body, "keep_alive"));
    w->ping_s = read_ping(w, body);
    json_decref(body);
    kin_request_trim(w->hold.bytes);
}

static void was_read(kin_lane_work *work, int status) {
    kin_router_waiter *w = work->user;
    if (status != 0) w->rc = kin_api_error_set(&w->error, 503, NULL, "the server is shutting down");
    if (!w->x)
        free_waiter(w);
    else if (w->rc != 0)
        refuse(w, &w->error);
    else
        route(w);
}

void kin_router_route(kin_router *r, kin_http_exchange *x, const void *route_of, const kin_api_format *format, bool needs,
                      bool streams) {
    kin_str method = kin_http_method(x);
    kin_router_waiter *w = calloc(1, sizeof *w);
    if (!w) {
        kin_http_reply_error(x, 500, "out of memory");
        return;
    }
    *w = (kin_router_waiter){.x = x, .router = r, .route = route_of, .format = format, .needs = needs, .streams = streams};
    w->data = (kin_exchange_data){on_waiter_gone, w};
    kin_http_set_data(x, &w->data);
    set_name(w, kin_http_query(x, "model"));
    if (method.len == 3 && memcmp(method.at, "GET", 3) == 0) {
        route(w);
        return;
    }
    w->body = kin_http_detach_body(x, &w->n_body, &w->hold);
    w->work = (kin_lane_work){.run = read_in_pool, .done = was_read, .user = w};
    kin_lane_run(r->o.shared.huge, &w->work, w->n_body > KIN_HUGE_BODY);
}

// ---- sums

static void add_counters(struct kin_call_counters *to, const struct kin_call_counters *c) {
    to->n_requests += c->n_requests;
    to->n_failed += c->n_failed;
    to->n_cancelled += c->n_cancelled;
    for (int i = 0; i < 16; i++) {
        to->ttft_buckets[i] += c->ttft_buckets[i];
        to->gap_buckets[i] += c->gap_buckets[i];
    }
    to->ttft_s += c->ttft_s;
    to->gap_s += c->gap_s;
    to->n_prompt += c->n_prompt;
    to->n_cached += c->n_cached;
    to->n_generated += c->n_generated;
    to->n_after_first += c->n_after_first;
    if (c->n_longest > to->n_longest) to->n_longest = c->n_longest;
    to->prompt_s += c->prompt_s;
    to->generated_s += c->generated_s;
}

static void add_status(kin_service_status *to, const kin_service_status *status) {
    const kin_scheduler_stats *t = &status->scheduler;
    to->n_running += status->n_running;
    to->expected_rate += status->expected_rate;
    to->n_waiting += status->n_waiting;
    to->scheduler.n_blocks += t->n_blocks;
    to->scheduler.n_free_blocks += t->n_free_blocks;
    add_counts(&to->scheduler, t);
}

void kin_router_sum(const kin_router *r, struct kin_call_counters *counters, kin_service_status *sum) {
    *counters = (struct kin_call_counters){0};
    *sum = (kin_service_status){.scheduler = r->past, .n_waiting = r->n_waiting};
    for (int i = 0; i < r->n; i++) {
        const kin_call_shared *w = &r->models[i].shared;
        add_counters(counters, &w->counters);
        if (!w->service) continue;
        kin_service_status status = kin_service_get_status(w->service);
        add_status(sum, &status);
    }
}
