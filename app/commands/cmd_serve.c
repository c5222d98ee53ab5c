// kin serve: a server for chat and text completion, for clients of OpenAI, Anthropic, llama.cpp and Ollama.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "app/app.h"
#include "app/https.h"
#include "app/join_page.h"
#include "app/llama_options.h"
#include "app/model_reload.h"
#include "app/model_source.h"
#include "app/option_tables.h"
#include "engine/governor.h"
#include "net/address.h"
#include "pure/chat/named_templates.h"
#include "serve/server.h"
#include "serve/tabs/tab_page.h"
#include "sys/memory.h"
#include "sys/notify.h"
#include "sys/whole_file.h"

typedef struct serve_options {
    kin_session_options session;
    kin_console console;
    const char *host;
    int port;
    const char *alias, *pooling, *chat_template_file, *chat_template, *prefix;
    const char *reasoning, *reasoning_format, *tags;
    const char *models_dir;
    int n_parallel, max_waiting, models_max, n_predict, reasoning_budget, ping_s, sleep_idle_s;
    kin_sampler_options sampler;
    uint64_t seed;
    const char *api_keys, *api_key_file, *allow_hosts, *cors, *slot_save_path;
    kin_https_options https;
    bool open, pull, metrics, no_slots, no_webui, no_browsers, strict_model, no_prefix_cache, verbose;
} serve_options;

enum { N_SERVE_OPTIONS = 43 + KIN_DRAFT_N_OPTIONS, DEFAULT_PORT = 8080, DEFAULT_CTX = 16384, MAX_NAMES = 16 };

typedef struct tables {
    kin_option own[N_SERVE_OPTIONS];
    kin_session_tables session;
} tables;

static void set_serve_defaults(serve_options *o) {
    o->session = kin_session_options_defaults();
    o->console = kin_app_console;
    o->session.console = &o->console;
    o->session.keeps_kv = true;
    o->session.does_without_gpu = true; // as llama-server, so that its scripts run
    o->session.fleet.begins_alone = true;
    o->sampler = kin_sampler_options_defaults();
    o->host = "127.0.0.1";
    o->cors = "localhost";
    o->port = DEFAULT_PORT;
    o->n_parallel = 16;
    o->max_waiting = 512;
    o->models_max = 1;
    o->reasoning_budget = o->sleep_idle_s = -1;
    o->n_predict = -1;
    o->seed = UINT64_MAX;
    o->ping_s = 30;
}

// Each of these fills in rows of the table, and returns how many.
static int fill_model_rows(serve_options *o, kin_option *out) {
    const kin_option rows[] = {
        {KIN_OPTION_STRING, "host", 0, &o->host, "ADDRESS",
         "address to listen on (default: 127.0.0.1, this machine only; 0.0.0.0: all; NAME.sock: a Unix socket)", 0, 0},
        {KIN_OPTION_INT, "port", 0, &o->port, "N", "port to listen on (default: 8080; 0: any free port)", 0, 65535},
        {KIN_OPTION_STRING, "alias", 0, &o->alias, "NAME,NAME",
         "model name in the API, and further aliases (default: the file's name)", 0, 0},
        {KIN_OPTION_STRING, "tags", 0, &o->tags, "TAG,TAG", "tags of the model in /v1/models (informational)", 0, 0},
        {KIN_OPTION_STRING, "models-dir", 0, &o->models_dir, "FOLDER",
         "serve all model files in FOLDER; a request selects one by name in `model`, and it is loaded on first use", 0, 0},
        {KIN_OPTION_FLAG, "pull", 0, &o->pull, NULL,
         "let clients fetch models into the folder of models (/api/pull) and remove them (/api/delete)", 0, 0},
        {KIN_OPTION_INT, "models-max", 0, &o->models_max, "N",
         "maximum number of loaded models (default: 1); the least recently used one is unloaded", 1, KIN_MODEL_FILES_MAX},
        {KIN_OPTION_INT, "sleep-idle-seconds", 0, &o->sleep_idle_s, "S",
         "unload a model after S seconds without requests, until the next request (default: -1, never)", -1, 1 << 30},
        {KIN_OPTION_INT, "parallel", 0, &o->n_parallel, "N", "number of requests processed in parallel (default: 16)", 1,
         KIN_SCHEDULER_MAX_PARALLEL},
        {KIN_OPTION_INT, "max-queue", 0, &o->max_waiting, "N",
         "maximum number of queued requests; further ones are refused (default: 512)", 0, 2048},
        {KIN_OPTION_INT, "n-predict", 0, &o->n_predict, "N",
         "default maximum number of generated tokens (default: -1, until the context is full)", -1, 1 << 27},
        {KIN_OPTION_INT, "reasoning-budget", 0, &o->reasoning_budget, "N",
         "default maximum number of reasoning tokens (default: -1, no limit)", -1, 1 << 27},
        {KIN_OPTION_STRING, "reasoning", 0, &o->reasoning, "on|off|auto",
         "default reasoning mode, if the chat template supports it (default: auto, the template's default)", 0, 0},
        {KIN_OPTION_STRING, "reasoning-format", 0, &o->reasoning_format, "auto|deepseek|deepseek-legacy|none",
         "default field of reasoning: reasoning_content (the first three are the same), or left in content (none)", 0, 0},
    };
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static int fill_request_rows(serve_options *o, kin_option *out) {
    const kin_option rows[] = {
        {KIN_OPTION_U64, "seed", 0, &o->seed, "N", "default seed (default: random)", 0, 0},
        {KIN_OPTION_FLOAT, "temp", 0, &o->sampler.temperature, "T", "default temperature (default: 0.8)", 0, 100},
        {KIN_OPTION_INT, "top-k", 0, &o->sampler.top_k, "N",
         "default top_k: sample from the N most likely tokens (default: 40; 0: all)", 0, 1 << 24},
        {KIN_OPTION_FLOAT, "top-p", 0, &o->sampler.top_p, "P",
         "default top_p: sample from the most likely tokens with total probability P (default: 0.95; 1: all)", 1e-6, 1},
        {KIN_OPTION_FLOAT, "min-p", 0, &o->sampler.min_p, "P",
         "default min_p: drop tokens less likely than P times the most likely one (default: 0.05)", 0, 1},
        {KIN_OPTION_STRING, "chat-template-file", 0, &o->chat_template_file, "FILE",
         "Jinja chat template file (default: the model's template)", 0, 0},
        {KIN_OPTION_STRING, "chat-template", 0, &o->chat_template, "TEXT|NAME",
         "Jinja chat template, or a name known to llama.cpp: chatml, llama3, gemma, ...", 0, 0},
        {KIN_OPTION_STRING, "pooling", 0, &o->pooling, "mean|last|cls",
         "pooling of embeddings over the tokens (default: the model's, else mean)", 0, 0},
    };
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static int fill_access_rows(serve_options *o, kin_option *out) {
    const kin_option rows[] = {
        {KIN_OPTION_STRING, "api-prefix", 0, &o->prefix, "/PATH", "prefix of all paths, for example behind a proxy", 0, 0},
        {KIN_OPTION_INT, "sse-ping-interval", 0, &o->ping_s, "S",
         "interval in seconds of keep-alive comments on idle streams (default: 30; -1: never)", -1, 1 << 20},
        {KIN_OPTION_STRING, "api-key", 0, &o->api_keys, "KEY,KEY",
         "API keys that clients may use; visible to all local users, so prefer --api-key-file", 0, 0},
        {KIN_OPTION_STRING, "api-key-file", 0, &o->api_key_file, "FILE",
         "file with one API key per line (#: comment); required if other machines can connect", 0, 0},
        {KIN_OPTION_FLAG, "no-api-key", 0, &o->open, NULL, "serve other machines without an API key", 0, 0},
        {KIN_OPTION_STRING, "allow-hosts", 0, &o->allow_hosts, "NAME,NAME",
         "allowed Host headers besides this machine's names (and local network names with --no-api-key)", 0, 0},
        {KIN_OPTION_STRING, "cors-origins", 0, &o->cors, "none|localhost|*|ORIGIN,...",
         "allowed CORS origins (default: localhost, pages of this machine; *: all)", 0, 0},
        {KIN_OPTION_FLAG, "https", 0, &o->https.on, NULL,
         "use TLS with a self-signed certificate, which clients must be told to trust", 0, 0},
        {KIN_OPTION_STRING, "ssl-cert-file", 0, &o->https.cert_file, "FILE", "use TLS with this certificate (PEM)", 0, 0},
        {KIN_OPTION_STRING, "ssl-key-file", 0, &o->https.key_file, "FILE", "private key of the certificate", 0, 0},
        {KIN_OPTION_FLAG, "verbose", 0, &o->verbose, NULL,
         "add __verbose to responses: the prompt as the model sees it, and the settings", 0, 0},
        {KIN_OPTION_FLAG, "metrics", 0, &o->metrics, NULL, "enable /metrics for Prometheus", 0, 0},
        {KIN_OPTION_FLAG, "no-slots", 0, &o->no_slots, NULL, "disable /slots, which shows the requests in progress", 0, 0},
        {KIN_OPTION_STRING, "slot-save-path", 0, &o->slot_save_path, "FOLDER",
         "directory of saved slots (/slots/ID?action=save and restore)", 0, 0},
        {KIN_OPTION_FLAG, "no-webui", 0, &o->no_webui, NULL, "disable the web UI at /", 0, 0},
        {KIN_OPTION_FLAG, "no-browsers", 0, &o->no_browsers, NULL, "do not let browsers join the ring; disable /join", 0, 0},
        {KIN_OPTION_FLAG, "strict-model", 0, &o->strict_model, NULL, "refuse requests for a model other than --alias", 0, 0},
        {KIN_OPTION_FLAG, "no-prefix-cache", 0, &o->no_prefix_cache, NULL, "disable the prefix cache", 0, 0},
    };
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static void fill_serve_tables(serve_options *o, tables *t) {
    kin_option *end = t->own;
    set_serve_defaults(o);
    end += fill_model_rows(o, end);
    end += fill_request_rows(o, end);
    end += fill_access_rows(o, end);
    kin_draft_option_table(&o->session, end);
    end += KIN_DRAFT_N_OPTIONS;
    kin_kv_disk_option_table(&o->session.kv_disk_size, &o->session.no_kv_disk, end);
    end += KIN_KV_DISK_N_OPTIONS;
    kin_assert(end == &t->own[N_SERVE_OPTIONS - 1]);
    *end = (kin_option){0};
    kin_session_option_tables(&o->session, &t->session);
    for (kin_option *row = t->session.own; row->kind != KIN_OPTION_END; row++) {
        if (row->name && strcmp(row->name, "ctx") == 0)
            row->help = "context size in tokens, shared by all requests (default: 16384, at most the model's)";
    }
    for (kin_option *row = t->session.fleet; row->kind != KIN_OPTION_END; row++) { // --port is the port for clients here
        if (row->name && strcmp(row->name, "port") == 0) row->name = "cluster-port";
    }
}

typedef struct serving {
    const serve_options *o;
    kin_server *server;
    kin_tls_ctx *tls;       // NULL: none
    kin_loaded_model model; // or several:
    kin_model_file *files;  // [n_room], of which n_files were found at the start
    int n_files, n_room;
    kin_model_host *host;
    char alias[256];
    const char *chat_template;    // the template's text; NULL: the model's
    const char *names[MAX_NAMES]; // [n_names] from --alias, stored in `alias`
    int n_names;
    atomic_bool drained;
} serving;

static serving *shown; // the server whose clients see progress

static void show_serve_loading(void *user, const char *what, uint64_t done, uint64_t total) {
    kin_app_console.progress(user, what, done, total);
    kin_server_set_doing(shown->server, what, total ? 100.0 * (double)done / (double)total : -1);
}

static void show_serve_status(const char *line) {
    kin_app_console.status(line);
    kin_server_set_doing(shown->server, line, -1);
}

static void on_draining(void *user) {
    (void)user;
    kin_app_log("shutting down after the open requests; a second Ctrl-C or SIGTERM stops at once");
}

static void on_drained(void *user) {
    serving *v = user;
    atomic_store(&v->drained, true);
    atomic_store(&kin_app_stop, true);
}

static void on_hurry(void *user) {
    on_drained(user);
}

// Splits "a,b" into two names; the first is the alias.
static int split_names(serving *v, kin_err *err) {
    for (char *at = v->alias; *at;) {
        size_t n = strcspn(at, ",");
        bool is_last = at[n] == '\0';
        at[n] = '\0';
        if (n > 0 && v->n_names == MAX_NAMES) return kin_err_set(err, "--alias: more than %d names", MAX_NAMES);
        if (n > 0) v->names[v->n_names++] = at;
        at += n + !is_last;
    }
    return v->n_names > 0 ? 0 : kin_err_set(err, "--alias %s: contains no name", v->o->alias);
}

// Derives "Qwen3-0.6B-Q8_0" from "/models/Qwen3-0.6B-Q8_0.gguf".
static int name_model(serving *v, kin_err *err) {
    const char *name = v->o->alias ? v->o->alias : v->o->session.model ? v->o->session.model : "demo";
    const char *slash = strrchr(name, '/');
    if (v->o->alias) name += strspn(name, ",");
    if (v->o->alias && strlen(name) >= sizeof v->alias)
        return kin_err_set(err, "--alias: more than %zu bytes", sizeof v->alias - 1);
    snprintf(v->alias, sizeof v->alias, "%s", v->o->alias || !slash ? name : slash + 1);
    size_t n = strlen(v->alias);
    if (!v->o->alias && n > 5 && strcmp(v->alias + n - 5, ".gguf") == 0) v->alias[n - 5] = 0;
    return v->o->alias ? split_names(v, err) : 0;
}

static bool is_loopback(const char *host) {
    size_t n = strlen(host);
    bool is_socket = n >= 5 && strcmp(host + n - 5, ".sock") == 0;
    return is_socket || strcasecmp(host, "localhost") == 0 || kin_address_is_loopback(host);
}

static bool has_models(const serve_options *o) {
    return o->session.model || o->models_dir;
}

static int read_cors(const serve_options *o, kin_cors *cors, kin_err *err) {
    static const char *const names[] = {"localhost", "none", "*"};
    static const kin_cors values[] = {KIN_CORS_LOCALHOST, KIN_CORS_NONE, KIN_CORS_ALL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *cors = values[i];
        if (strcmp(o->cors, names[i]) == 0) return 0;
    }
    *cors = KIN_CORS_LIST;
    if (strstr(o->cors, "://") && !strchr(o->cors, '*')) return 0;
    return kin_err_set(err, "--cors-origins %s: must be none, localhost, *, or origins like https://chat.example", o->cors);
}

static kin_reasoning reasoning_of(const serve_options *o) {
    if (!o->reasoning || strcmp(o->reasoning, "auto") == 0) return KIN_REASONING_AUTO;
    return strcmp(o->reasoning, "on") == 0 ? KIN_REASONING_ON : KIN_REASONING_OFF;
}

// Sets the template's text. NULL: none was given.
static int find_template(const serve_options *o, const char **text, kin_err *err) {
    *text = o->chat_template;
    if (!*text || strstr(*text, "{%") || strstr(*text, "{{")) return 0;
    *text = kin_named_template(o->chat_template);
    if (*text) return 0;
    kin_err_set(err, "--chat-template %.60s: neither a template (with {{ and {%%) nor a known name:", o->chat_template);
    for (int i = 0; kin_named_template_at(i); i++) {
        size_t n = strlen(err->text);
        snprintf(err->text + n, sizeof err->text - n, "%s %s", i ? "," : "", kin_named_template_at(i));
    }
    return KIN_FAIL;
}

static kin_pooling pooling_of(const serve_options *o) {
    if (!o->pooling) return KIN_POOLING_NONE;
    if (strcmp(o->pooling, "mean") == 0) return KIN_POOLING_MEAN;
    return strcmp(o->pooling, "last") == 0 ? KIN_POOLING_LAST : KIN_POOLING_CLS;
}

// The folder holds texts: accessible to the owner only.
static int make_slot_folder(const char *path, kin_err *err) {
    char file[4096];
    snprintf(file, sizeof file, "%s/slot", path);
    int rc = kin_folder_make_private_above(file, err);
    if (rc != 0) kin_err_prefix(err, "--slot-save-path");
    return rc;
}

// In a small container weights and sequences need the memory more.
static size_t request_memory(size_t most) {
    uint64_t share = kin_memory_read().total / 8;
    return share < most ? (size_t)share : most;
}

static int check_access(const serve_options *o, kin_err *err) {
    if (is_loopback(o->host) || o->api_keys || o->api_key_file || o->open) return 0;
    return kin_err_set(
        err,
        "--host %s accepts requests from other machines: give --api-key-file FILE (or --api-key KEY, which every user "
        "of this machine sees in the process list), or --no-api-key to allow them without a key",
        o->host);
}

static int check_options(const serve_options *o, kin_err *err) {
    if (o->chat_template && o->chat_template_file)
        return kin_err_set(err, "--chat-template cannot be combined with --chat-template-file");
    if (o->sleep_idle_s > 0 && o->session.fleet.cluster)
        return kin_err_set(err, "--sleep-idle-seconds cannot be combined with --cluster: the model of a ring stays loaded");
    if (o->sleep_idle_s > 0 && !has_models(o)) return kin_err_set(err, "--sleep-idle-seconds needs -m or --models-dir");
    return check_access(o, err);
}

static kin_request_defaults defaults_of(const serve_options *o) {
    return (kin_request_defaults){.sampler = o->sampler,
                                  .n_predict = o->n_predict,
                                  .limits_thinking = o->reasoning_budget >= 0,
                                  .thinking_budget = o->reasoning_budget,
                                  .reasoning = reasoning_of(o),
                                  .reasoning_in_content = o->reasoning_format && strcmp(o->reasoning_format, "none") == 0,
                                  .verbose = o->verbose};
}

static kin_pull_options pull_options_of(const serve_options *o) {
    kin_pull_options pull = kin_model_source_options();
    pull.models_dir = o->models_dir;
    pull.mirror = o->session.mirror;
    pull.offline = o->session.offline;
    pull.room = kin_governor_room(o->session.memory);
    return pull;
}

static kin_http_options http_options_of(const serve_options *o) {
    kin_http_options http = kin_http_options_default();
    http.host = o->host;
    http.limits.max_memory = request_memory(http.limits.max_memory);
    http.port = (uint16_t)o->port;
    http.prefix = o->prefix;
    return http;
}

static kin_server_options server_options_of(serving *v) {
    const serve_options *o = v->o;
    return (kin_server_options){.http = http_options_of(o),
                                .access = {.host = o->host,
                                           .allow_hosts = o->allow_hosts,
                                           .api_keys = o->api_keys,
                                           .api_key_file = o->api_key_file,
                                           .cors_origins = o->cors},
                                .alias = v->alias,
                                .names = v->names,
                                .n_names = v->n_names,
                                .strict_model = o->strict_model,
                                .metrics = o->metrics,
                                .slots = !o->no_slots,
                                .slot_save_path = o->slot_save_path,
                                .webui = !o->no_webui,
                                .browsers = !o->no_browsers,
                                .shows_code = !o->no_webui && (is_loopback(o->host) || !o->open),
                                .n_parallel = o->n_parallel,
                                .models_max = o->models_max,
                                .max_waiting = o->n_parallel + o->max_waiting,
                                .ping_s = o->ping_s,
                                .pooling = pooling_of(o),
                                .tags = o->tags,
                                .models_dir = o->models_dir,
                                .sleep_idle_s = o->sleep_idle_s,
                                .accepts_any_name = !o->models_dir && !o->strict_model,
                                .defaults = defaults_of(o),
                                .draining = on_draining,
                                .drained = on_drained,
                                .hurry = on_hurry,
                                .user = v};
}

static int open_server(serving *v, kin_err *err) {
    const serve_options *o = v->o;
    kin_server_options so = server_options_of(v);
    static kin_pull_options pull;
    if (read_cors(o, &so.access.cors, err) != 0) return KIN_FAIL;
    if (find_template(o, &v->chat_template, err) != 0) return KIN_FAIL;
    if (check_options(o, err) != 0) return KIN_FAIL;
    if (o->slot_save_path && make_slot_folder(o->slot_save_path, err) != 0) return KIN_FAIL;
    pull = pull_options_of(o);
    if (o->pull) so.pull = &pull;
    if (kin_https_open(&v->tls, &o->https, err) != 0) return KIN_FAIL;
    so.http.tls = v->tls;
    return kin_server_open(&v->server, &so, err);
}

static kin_loaded_model_options loading_of(serving *v) {
    const serve_options *o = v->o;
    return (kin_loaded_model_options){.session = o->session,
                                      .n_ctx = DEFAULT_CTX,
                                      .chat_template_file = o->chat_template_file,
                                      .chat_template = v->chat_template,
                                      .has_seed = o->seed != UINT64_MAX,
                                      .seed = o->seed,
                                      .service = {.n_parallel = o->n_parallel,
                                                  .max_waiting = o->max_waiting,
                                                  .keeps = !o->no_prefix_cache,
                                                  .stop = &kin_app_stop,
                                                  .wake = kin_server_wake,
                                                  .wake_user = v->server}};
}

// ---- several models

// Finds the usable files of the folder; they follow the model of the command line, if there is one.
static int find_files(serving *v, kin_err *err) {
    const char *first = v->o->session.model;
    kin_model_file *found = NULL;
    int n = 0;
    if (v->o->models_dir && kin_model_files_find(&found, &n, v->o->models_dir, err) != 0) return KIN_FAIL;
    v->n_room = v->o->models_dir ? KIN_MODEL_FILES_MAX + 1 : 1;
    v->files = calloc((size_t)v->n_room, sizeof *v->files);
    if (v->files && first) {
        kin_model_file_read(&v->files[0], first);
        snprintf(v->files[0].name, sizeof v->files[0].name, "%s", v->alias);
        v->n_files = 1;
    }
    for (int i = 0; i < n && v->files; i++) {
        if (!found[i].is_usable)
            kin_app_log("skipped: %s", found[i].why.text);
        else if (!first || strcmp(found[i].name, v->alias) != 0)
            v->files[v->n_files++] = found[i];
    }
    free(found);
    if (!v->files) return kin_err_set(err, "out of memory");
    if (v->n_files == 0) return kin_err_set(err, "%s contains no usable model file (*.gguf)", v->o->models_dir);
    if (first && !v->files[0].is_usable) return kin_err_set(err, "%s", v->files[0].why.text);
    return 0;
}

static int open_host(serving *v, kin_err *err) {
    if (v->o->session.fleet.cluster)
        return kin_err_set(err, "--models-dir cannot be combined with --cluster: a ring runs one model, give it with -m");
    if (find_files(v, err) != 0) return KIN_FAIL;
    const kin_model_host_options ho = {.files = v->files,
                                       .n = v->n_files,
                                       .n_max = v->n_room,
                                       .loading = loading_of(v),
                                       .has_first = v->o->session.model != NULL};
    return kin_model_host_open(&v->host, &ho, err);
}

// ---- serving

static void log_addresses(const serving *v) {
    kin_notify("READY=1");
    const char *host = v->o->host, *when = v->o->session.fleet.cluster ? ", once the ring is up" : "";
    uint16_t port = kin_server_port(v->server);
    bool is_v6 = strchr(host, ':') != NULL;
    char what[sizeof v->alias];
    snprintf(what, sizeof what, "%s", v->alias);
    if (v->host) snprintf(what, sizeof what, "%d model%s", v->n_files, v->n_files > 1 ? "s" : "");
    if (port)
        kin_app_log("serving %s at http%s://%s%s%s:%u%s (OpenAI: /v1)%s", what, v->tls ? "s" : "", is_v6 ? "[" : "", host,
                    is_v6 ? "]" : "", (unsigned)port, v->o->prefix ? v->o->prefix : "", when);
    else
        kin_app_log("serving %s at %s%s", what, host, when);
    if (port && v->o->session.fleet.cluster && !v->o->no_browsers && kin_tab_page_has_engine())
        kin_join_page_print(&v->o->session.fleet.net, host, port, v->tls != NULL, v->o->prefix);
}

static void on_begun(void *user) {
    (void)user;
    kin_app_log("ready");
}

static int load_and_serve(serving *v, bool is_first, kin_err *err) {
    kin_loaded_model_options lo = loading_of(v);
    if (v->o->session.fleet.cluster) lo.service.begun = on_begun;
    if (!is_first) lo.session.fleet.n_devices = 0; // the ring was up before: build it from the devices that are present
    if (kin_loaded_model_open(&v->model, &lo, err) != 0) return KIN_FAIL;
    kin_server_set_model(v->server, v->model.service, &v->model.preparer);
    // A ring's address is printed before the ring is up, because browsers need it to join.
    if (!atomic_load(&kin_app_stop) && is_first) log_addresses(v);
    if (!is_first) kin_app_log("the model was reloaded");
    return kin_service_run(v->model.service, err);
}

static int serve_one(serving *v, kin_err *err) {
    kin_model_wait wait = kin_reload_wait(&v->o->session, v->o->chat_template_file);
    int rc = load_and_serve(v, true, err);
    if (rc == 0 || !kin_reload_is_due(&v->model)) return rc;
    while (rc != 0 && !atomic_load(&kin_app_stop)) {
        kin_reload_await(&wait, v->server, &v->model, err, true);
        rc = atomic_load(&kin_app_stop) ? 0 : load_and_serve(v, false, err);
    }
    return rc;
}

static int serve_several(serving *v, kin_err *err) {
    if (open_host(v, err) != 0) return KIN_FAIL;
    kin_server_set_models(v->server, v->host);
    if (kin_model_host_begin(v->host, err) != 0) return KIN_FAIL;
    log_addresses(v);
    kin_model_host_run(v->host);
    return 0;
}

static int serve(serving *v, kin_err *err) {
    if (name_model(v, err) != 0 || open_server(v, err) != 0) return KIN_FAIL;
    return v->o->models_dir || v->o->sleep_idle_s > 0 ? serve_several(v, err) : serve_one(v, err);
}

// The session's threads report to the server until the session is closed.
static void close_serving(serving *v) {
    kin_server_stop(v->server);
    kin_model_host_close(v->host);
    kin_loaded_model_close(&v->model);
    kin_server_close(v->server);
    kin_tls_ctx_close(v->tls);
    free(v->files);
}

static int run_serve(serve_options *o) {
    serving v = {.o = o};
    kin_err err;
    shown = &v;
    o->console.progress = show_serve_loading;
    o->console.status = show_serve_status;
    o->session.predicts = o->session.fleet.cluster; // requests are divided by the predicted times
    if (o->pull && !o->models_dir) o->models_dir = kin_model_source_options().models_dir;
    int rc = o->pull && o->models_dir ? kin_folder_make(o->models_dir, &err) : 0;
    if (rc == 0) rc = kin_model_source_resolve(&o->session, &err);
    if (rc == 0) rc = serve(&v, &err);
    kin_notify("STOPPING=1");
    close_serving(&v);
    if (atomic_load(&v.drained)) return KIN_EXIT_OK; // a regular shutdown
    return rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

typedef struct parsed {
    serve_options o;
    char **words, *texts; // the options point into them
} parsed;

static int read_serve_options(parsed *p, int argc, char **argv, kin_err *err) {
    tables t;
    kin_option llama_names[KIN_LLAMA_N_NAMES];
    int n_words;
    const char *model = NULL;
    fill_serve_tables(&p->o, &t);
    if (kin_llama_options_translate(argc, argv, &p->words, &n_words, &p->texts, err) != 0) return KIN_FAIL;
    kin_llama_options_names(llama_names);
    kin_option_tables all = {t.own, t.session.own, t.session.fleet, llama_names};
    if (kin_options_parse(all, n_words, p->words, &model, err) != 0) {
        kin_llama_options_explain(all, err);
        return KIN_FAIL;
    }
    if (kin_options_gives_way(all, n_words, p->words, "chat-template", "chat-template-file")) p->o.chat_template = NULL;
    if (kin_options_gives_way(all, n_words, p->words, "chat-template-file", "chat-template")) p->o.chat_template_file = NULL;
    return kin_session_end_parsing(&p->o.session, model, err);
}

static void parsed_fini(parsed *p) {
    free(p->words);
    free(p->texts);
}

static int check_serve(int argc, char **argv, kin_err *err) {
    parsed p = {0};
    int rc = read_serve_options(&p, argc, argv, err);
    if (rc == 0) rc = check_access(&p.o, err);
    parsed_fini(&p);
    return rc;
}

static int command_serve(int argc, char **argv) {
    parsed p = {0};
    kin_err err;
    int status = read_serve_options(&p, argc, argv, &err) == 0 ? run_serve(&p.o) : kin_app_usage("serve", &err);
    parsed_fini(&p);
    return status;
}

static void with_serve_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    serve_options o = {0};
    tables t;
    fill_serve_tables(&o, &t);
    use((kin_option_tables){t.own, t.session.own, t.session.fleet}, user);
}

const kin_command kin_command_serve = {
    .name = "serve",
    .args = "[MODEL]",
    .summary = "serve a model over HTTP (OpenAI, Anthropic, Ollama and llama.cpp APIs); with --cluster on several devices",
    .help =
        "The base URL is http://127.0.0.1:8080/v1 for OpenAI clients and http://127.0.0.1:8080 for the others. Requests are "
        "processed\n"
        "in parallel and share the context (--ctx): a common prefix is computed once; when the context is full, the latest "
        "request\n"
        "waits. The option names of llama-server are accepted. With --models-dir several models are served: 'kin models FOLDER'\n"
        "lists them.",
    .run = command_serve,
    .check = check_serve,
    .options = with_serve_options,
};
