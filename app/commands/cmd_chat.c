// kin chat: a conversation in the terminal, or one answer in a pipe.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "app/chat_loop.h"
#include "app/chat_server.h"
#include "app/model_source.h"
#include "app/option_tables.h"
#include "serve/http/key_file.h"
#include "sys/whole_file.h"

typedef struct chat_options {
    kin_session_options session;
    kin_console console;
    const char *server, *api_key, *api_key_file, *ca_file, *system;
    int n_predict;
    uint64_t seed;
    float temperature;
    bool stats;
} chat_options;

enum { N_CHAT_OPTIONS = 10 + KIN_DRAFT_N_OPTIONS + KIN_KV_DISK_N_OPTIONS, MAX_INPUT = 16 << 20 };

typedef struct tables {
    kin_option own[N_CHAT_OPTIONS];
    kin_session_tables session;
} tables;

// Once the model is loaded, the terminal belongs to the conversation: wait states are shown with the pending answer (show_wait);
// of the ring only its loss is reported.
static atomic_bool is_loaded;

static void show_chat_status(const char *line) {
    if (!atomic_load(&is_loaded)) kin_app_status(line);
}

static void show_chat_loading(void *user, const char *what, uint64_t done, uint64_t total) {
    if (!atomic_load(&is_loaded)) kin_app_progress(user, what, done, total);
}

static void fill_chat_tables(chat_options *o, tables *t) {
    o->session = kin_session_options_defaults();
    o->console = kin_app_console;
    o->console.status = show_chat_status;
    o->console.progress = show_chat_loading;
    o->session.console = &o->console;
    o->n_predict = -1;
    o->seed = UINT64_MAX;
    o->temperature = NAN;
    const kin_option own[N_CHAT_OPTIONS] = {
        {KIN_OPTION_STRING, "server", 0, &o->server, "URL",
         "use a running kin serve or another OpenAI-compatible server (https://desk:8080); -m selects its model", 0, 0},
        {KIN_OPTION_STRING, "api-key", 0, &o->api_key, "KEY",
         "API key of that server; visible to all local users, so prefer --api-key-file or KIN_API_KEY", 0, 0},
        {KIN_OPTION_STRING, "api-key-file", 0, &o->api_key_file, "FILE", "file whose first key is the API key of that server", 0,
         0},
        {KIN_OPTION_STRING, "ca-file", 0, &o->ca_file, "FILE",
         "certificate (PEM) of that server to trust, such as ~/.config/kin/https.crt of kin serve --https", 0, 0},
        {KIN_OPTION_STRING, "system", 0, &o->system, "TEXT", "system prompt", 0, 0},
        {KIN_OPTION_INT, "n", 'n', &o->n_predict, "N", "maximum number of tokens per answer (default: no limit)", 1, 1 << 27},
        {KIN_OPTION_U64, "seed", 0, &o->seed, "N", "random seed (default: random)", 0, 0},
        {KIN_OPTION_FLOAT, "temp", 0, &o->temperature, "T", "temperature (default: the server's; 0.8 without --server)", 0, 100},
        {KIN_OPTION_FLAG, "stats", 0, &o->stats, NULL, "print timings after each answer", 0, 0},
        {0},
    };
    memcpy(t->own, own, sizeof own);
    kin_option *shared = t->own + N_CHAT_OPTIONS - 1 - KIN_KV_DISK_N_OPTIONS - KIN_DRAFT_N_OPTIONS;
    kin_draft_option_table(&o->session, shared);
    kin_kv_disk_option_table(&o->session.kv_disk_size, &o->session.no_kv_disk, shared + KIN_DRAFT_N_OPTIONS);
    t->own[N_CHAT_OPTIONS - 1] = (kin_option){0};
    kin_session_option_tables(&o->session, &t->session);
    for (kin_option *row = t->session.own; row->kind != KIN_OPTION_END; row++) {
        if (row->name && strcmp(row->name, "ctx") == 0)
            row->help = "context size in tokens (default: 16384, at most the model's)";
    }
}

typedef struct chatting {
    chat_options *o;
    kin_chat_server *server; // NULL: an external server
    kin_chat_client *client;
    kin_conversation conversation;
    kin_chat_server_facts facts;
    char *key; // from --api-key-file; NULL: none
    json_t *fields;
    size_t n_written; // of an answer in a pipe
    int write_rc;
    kin_err write_err;
} chatting;

// ---- wait states

static bool goes_on(void *user) {
    chatting *v = user;
    kin_err err;
    return kin_chat_loop_goes_on() && v->write_rc == 0 && !(v->server && kin_chat_server_has_failed(v->server, &err));
}

static void show_wait(void *user, const char *what, double percent) {
    const chatting *v = user;
    char line[300];
    if (v->server && !v->facts.model[0]) return;                      // this program is loading and reports that itself
    if (v->n_written > 0 && !kin_app_accepts_escapes(stderr)) return; // no log line for each state of a ring that recovers
    snprintf(line, sizeof line, percent >= 0 ? "%.200s: %.0f %%" : "%.200s", what, percent);
    kin_app_status(line);
}

// ---- in a pipe: stdin is one message, stdout is the answer

static void on_grown(void *user, const kin_chat_stream *s) {
    chatting *v = user;
    if (s->text.len > v->n_written && v->write_rc == 0)
        v->write_rc = kin_app_write(s->text.at + v->n_written, s->text.len - v->n_written, &v->write_err);
    v->n_written = s->text.len;
}

static int answer_input(chatting *v, kin_err *err) {
    uint8_t *bytes;
    size_t n;
    kin_chat_stream answer = {0};
    if (kin_whole_input_read("-", MAX_INPUT, &bytes, &n, err) != 0) return KIN_FAIL;
    while (n > 0 && bytes[n - 1] == '\n') n--;
    json_t *asked = n > 0 ? kin_conversation_ask(&v->conversation, (kin_str){(const char *)bytes, n}) : NULL;
    free(bytes);
    if (n == 0) return kin_err_set(err, "stdin is empty");
    kin_http_client_end end = kin_chat_client_ask(v->client, asked, &answer, on_grown, v, err);
    json_decref(asked);
    bool ends_line = answer.text.len > 0 && answer.text.at[answer.text.len - 1] == '\n';
    if (v->write_rc == 0 && v->n_written > 0 && !ends_line) v->write_rc = kin_app_write("\n", 1, &v->write_err);
    if (end == KIN_HTTP_CLIENT_DONE && answer.is_cut) kin_app_log("the answer reached its token limit");
    kin_chat_stream_fini(&answer);
    if (v->write_rc == 0) return end == KIN_HTTP_CLIENT_DONE ? 0 : KIN_FAIL;
    *err = v->write_err;
    return KIN_FAIL;
}

// ----

static json_t *fields_of(const chat_options *o) {
    json_t *fields = json_object();
    if (o->n_predict > 0) json_object_set_new(fields, "max_tokens", json_integer(o->n_predict));
    if (o->seed != UINT64_MAX) json_object_set_new(fields, "seed", json_integer((json_int_t)(o->seed & INT64_MAX)));
    if (!isnan(o->temperature)) json_object_set_new(fields, "temperature", json_real((double)o->temperature));
    return fields;
}

// Only if given on the command line: settings are meant for commands that open files.
static const char *named_model(const chat_options *o) {
    return o->session.model && !kin_options_is_preset("model", o->session.model) ? o->session.model : NULL;
}

static int open_client(chatting *v, kin_err *err) {
    const chat_options *o = v->o;
    if (o->api_key_file && kin_key_file_first(&v->key, o->api_key_file, err) != 0) return kin_err_prefix(err, "--api-key-file");
    v->fields = fields_of(o);
    if (!o->server && kin_chat_server_open(&v->server, &o->session, err) != 0) return KIN_FAIL;
    const kin_chat_client_options co = {.http = {.url = v->server ? kin_chat_server_url(v->server) : o->server,
                                                 .api_key = v->server ? kin_chat_server_key(v->server)
                                                            : v->key  ? v->key
                                                                      : o->api_key,
                                                 .ca_file = o->ca_file,
                                                 .goes_on = goes_on,
                                                 .user = v},
                                        .model = o->server ? named_model(o) : NULL,
                                        .fields = v->fields,
                                        .waits = show_wait,
                                        .user = v};
    if (kin_chat_client_open(&v->client, &co, err) != 0) return KIN_FAIL;
    return kin_chat_client_greet(v->client, &v->facts, err) == KIN_HTTP_CLIENT_DONE ? 0 : KIN_FAIL;
}

static int chat(chatting *v, kin_err *err) {
    if (!v->o->server && kin_model_source_resolve(&v->o->session, err) != 0) return KIN_FAIL;
    if (kin_conversation_open(&v->conversation, err) != 0 || open_client(v, err) != 0) return KIN_FAIL;
    if (v->o->system) kin_conversation_set_system(&v->conversation, (kin_str){v->o->system, strlen(v->o->system)});
    atomic_store(&is_loaded, true);
    kin_app_be_quiet();
    kin_app_progress_clear();
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return answer_input(v, err);
    const kin_chat_loop_options lo = {
        .client = v->client, .conversation = &v->conversation, .facts = v->facts, .stats = v->o->stats};
    return kin_chat_loop_run(&lo, err);
}

static int run_chat(chat_options *o) {
    chatting v = {.o = o};
    kin_err err;
    int rc = chat(&v, &err);
    // Then that is the reason
    if (rc != 0 && v.server && !atomic_load(&kin_app_stop)) kin_chat_server_has_failed(v.server, &err);
    int status = rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
    if (atomic_load(&kin_app_stop)) status = KIN_EXIT_INTERRUPTED;
    kin_chat_client_close(v.client);
    kin_chat_server_close(v.server);
    kin_conversation_close(&v.conversation);
    json_decref(v.fields);
    kin_key_file_free(v.key);
    return status;
}

static int check_options(const chat_options *o, const char *operand, kin_err *err) {
    if (o->server && (operand || o->session.fleet.cluster))
        return kin_err_set(err, "--server cannot be combined with %s", operand ? "a model file" : "--cluster");
    if (!o->server && o->ca_file) return kin_err_set(err, "--ca-file needs --server");
    return 0;
}

// An option on the command line drops the setting that excludes it.
static void settle(chat_options *o, const char *operand, kin_option_tables tables, int argc, char **argv) {
    bool is_preset = o->server && kin_options_is_preset("server", o->server);
    if (is_preset && (operand || kin_options_gives_way(tables, argc, argv, "server", "cluster"))) o->server = NULL;
    if (kin_options_gives_way(tables, argc, argv, "cluster", "server")) o->session.fleet.cluster = false;
    if (!o->server && o->ca_file && kin_options_is_preset("ca-file", o->ca_file)) o->ca_file = NULL;
}

static int command_chat(int argc, char **argv) {
    chat_options o = {0};
    tables t;
    kin_err err;
    const char *operand = NULL;
    fill_chat_tables(&o, &t);
    kin_option_tables all = {t.own, t.session.own, t.session.fleet};
    if (kin_options_parse(all, argc, argv, &operand, &err) != 0) return kin_app_usage("chat", &err);
    settle(&o, operand, all, argc, argv);
    if (check_options(&o, operand, &err) != 0 || kin_session_end_parsing(&o.session, operand, &err) != 0)
        return kin_app_usage("chat", &err);
    o.session.keeps_kv = o.session.fleet.cluster; // after a loss the sequence continues from its stored KV cache
    return run_chat(&o);
}

static void with_chat_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    chat_options o = {0};
    tables t;
    fill_chat_tables(&o, &t);
    use((kin_option_tables){t.own, t.session.own, t.session.fleet}, user);
}

const kin_command kin_command_chat = {
    .name = "chat",
    .args = "[MODEL | --server URL]",
    .summary = "chat with a model; with --cluster on several devices",
    .help = "/help lists the commands and keys of the chat. Ctrl-C stops an answer; twice at the prompt, or Ctrl-D, it ends the "
            "chat.\n"
            "If stdin is a file or a pipe, its content is one message, and the answer goes to stdout:\n"
            "echo 'Why is the sky blue?' | kin chat -m MODEL.",
    .run = command_chat,
    .options = with_chat_options,
};
