// kin launch: starts a coding agent with the settings that make it use a running server.
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "app/options.h"
#include "serve/client/chat_client.h"
#include "serve/http/key_file.h"

typedef struct launch_options {
    const char *server, *model, *api_key, *api_key_file, *ca_file;
    bool print;
} launch_options;

enum { N_LAUNCH_OPTIONS = 7, MAX_VARIABLES = 12, MAX_CONFLICTING = 3, MAX_WORDS = 200, AGENT_CTX = 20000 };

static void fill_launch_table(launch_options *o, kin_option table[N_LAUNCH_OPTIONS]) {
    o->server = "http://127.0.0.1:8080";
    const kin_option own[N_LAUNCH_OPTIONS] = {
        {KIN_OPTION_STRING, "server", 0, &o->server, "URL", "the running kin serve (default: http://127.0.0.1:8080)", 0, 0},
        {KIN_OPTION_STRING, "model", 'm', &o->model, "NAME", "name of the model (default: the server's first)", 0, 0},
        {KIN_OPTION_STRING, "api-key", 0, &o->api_key, "KEY",
         "API key of that server; visible to all local users, so prefer --api-key-file or KIN_API_KEY", 0, 0},
        {KIN_OPTION_STRING, "api-key-file", 0, &o->api_key_file, "FILE", "file whose first key is the API key of that server", 0,
         0},
        {KIN_OPTION_STRING, "ca-file", 0, &o->ca_file, "FILE", "certificate (PEM) of that server to trust", 0, 0},
        {KIN_OPTION_FLAG, "print", 0, &o->print, NULL, "print the variables and the command, and start nothing", 0, 0},
        {0},
    };
    memcpy(table, own, sizeof own);
}

typedef struct variable {
    const char *name;
    char *value;
} variable;

typedef struct launching {
    const launch_options *o;
    kin_chat_server_facts facts;
    char base[700]; // the server's address, without /v1
    char *file_key; // from --api-key-file; NULL: none
    const char *key;
    variable variables[MAX_VARIABLES];
    int n_variables;
    const char *words[MAX_WORDS + 1]; // of the command line; ends with NULL
    int n_words;
    char *texts[2]; // the words that this struct owns
    int n_texts;
    bool out_of_memory;
} launching;

// ---- variables of the program

static char *format(launching *l, const char *fmt, va_list args) KIN_PRINTF(2, 0);
static char *format(launching *l, const char *fmt, va_list args) {
    char *text = NULL;
    if (vasprintf(&text, fmt, args) >= 0) return text;
    l->out_of_memory = true;
    return NULL;
}

static void set(launching *l, const char *name, const char *fmt, ...) KIN_PRINTF(3, 4);
static void set(launching *l, const char *name, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    kin_assert(l->n_variables < MAX_VARIABLES);
    l->variables[l->n_variables++] = (variable){name, format(l, fmt, args)};
    va_end(args);
}

static void add_word(launching *l, const char *word) {
    kin_assert(l->n_words < MAX_WORDS);
    l->words[l->n_words++] = word;
}

static void add_text(launching *l, const char *fmt, ...) KIN_PRINTF(2, 3);
static void add_text(launching *l, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *text = l->texts[l->n_texts++] = format(l, fmt, args);
    va_end(args);
    add_word(l, text ? text : "");
}

// Titles and summaries are requested from the same model too, so that no request goes to another server. A local model may take
// minutes until its first token.
static void prepare_claude(launching *l) {
    set(l, "ANTHROPIC_BASE_URL", "%s", l->base);
    set(l, "ANTHROPIC_AUTH_TOKEN", "%s", l->key);
    set(l, "ANTHROPIC_MODEL", "%s", l->facts.model);
    set(l, "ANTHROPIC_DEFAULT_OPUS_MODEL", "%s", l->facts.model);
    set(l, "ANTHROPIC_DEFAULT_SONNET_MODEL", "%s", l->facts.model);
    set(l, "ANTHROPIC_DEFAULT_HAIKU_MODEL", "%s", l->facts.model);
    set(l, "ANTHROPIC_SMALL_FAST_MODEL", "%s", l->facts.model); // its name before ANTHROPIC_DEFAULT_HAIKU_MODEL
    set(l, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    set(l, "API_TIMEOUT_MS", "3600000");
    if (l->o->ca_file) set(l, "NODE_EXTRA_CA_CERTS", "%s", l->o->ca_file);
}

// Codex has no variables for a provider: its settings are command-line options in TOML.
static void prepare_codex(launching *l) {
    set(l, "KIN_SERVER_KEY", "%s", l->key);
    if (l->o->ca_file) set(l, "SSL_CERT_FILE", "%s", l->o->ca_file);
    add_word(l, "-c");
    add_word(l, "model_provider=\"kin\"");
    add_word(l, "-c");
    add_text(l, "model_providers.kin={name=\"kin\", base_url=\"%s/v1\", wire_api=\"responses\", env_key=\"KIN_SERVER_KEY\"}",
             l->base);
    add_word(l, "-m");
    add_word(l, l->facts.model);
}

static void prepare_opencode(launching *l) {
    char base[720], model[300];
    snprintf(base, sizeof base, "%s/v1", l->base);
    snprintf(model, sizeof model, "kin/%s", l->facts.model);
    json_t *entry = json_pack("{s:s}", "name", l->facts.model), *models = json_object();
    if (l->facts.n_ctx > 0)
        json_object_set_new(entry, "limit", json_pack("{s:i, s:i}", "context", l->facts.n_ctx, "output", l->facts.n_ctx / 4));
    json_object_set_new(models, l->facts.model, entry);
    json_t *config = json_pack("{s:s, s:s, s:{s:{s:s, s:s, s:{s:s, s:s}, s:o}}}", "model", model, "small_model", model,
                               "provider", "kin", "npm", "@ai-sdk/openai-compatible", "name", "kin", "options", "baseURL", base,
                               "apiKey", l->key, "models", models);
    char *text = config ? json_dumps(config, JSON_COMPACT) : NULL;
    l->out_of_memory = l->out_of_memory || !text;
    set(l, "OPENCODE_CONFIG_CONTENT", "%s", text ? text : "");
    if (l->o->ca_file) set(l, "NODE_EXTRA_CA_CERTS", "%s", l->o->ca_file);
    json_decref(config);
    free(text);
}

typedef struct agent {
    const char *name, *package;
    void (*prepare)(launching *l);
    const char *conflicting[MAX_CONFLICTING + 1]; // variables that would select another account or provider; ends with NULL
} agent;

static const agent agents[] = {
    {"claude",
     "@anthropic-ai/claude-code",
     prepare_claude,
     {"ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"}},
    {"codex", "@openai/codex", prepare_codex, {NULL}},
    {"opencode", "opencode-ai", prepare_opencode, {NULL}},
};

// ---- the server

static int write_base(launching *l, kin_err *err) {
    kin_http_url url;
    if (kin_http_url_parse(l->o->server, &url, err) != 0) return kin_err_prefix(err, "--server");
    bool is_v6 = strchr(url.host, ':') != NULL;
    snprintf(l->base, sizeof l->base, "http%s://%s%s%s:%u%s", url.is_tls ? "s" : "", is_v6 ? "[" : "", url.host, is_v6 ? "]" : "",
             (unsigned)url.port, url.path);
    return 0;
}

static bool goes_on(void *user) {
    (void)user;
    return !atomic_load(&kin_app_stop);
}

static void show_wait(void *user, const char *what, double percent) {
    char line[300];
    (void)user;
    snprintf(line, sizeof line, percent >= 0 ? "%.200s: %.0f %%" : "%.200s", what, percent);
    kin_app_status(line);
}

// Waits until the server is ready, and reads the model's name and its context.
static int ask_server(launching *l, kin_err *err) {
    kin_chat_client *client;
    const kin_chat_client_options co = {
        .http = {.url = l->o->server, .api_key = l->key, .ca_file = l->o->ca_file, .goes_on = goes_on},
        .model = l->o->model,
        .waits = show_wait};
    if (kin_chat_client_open(&client, &co, err) != 0) return KIN_FAIL;
    kin_http_client_end end = kin_chat_client_greet(client, &l->facts, err);
    kin_chat_client_close(client);
    kin_app_progress_clear();
    if (end == KIN_HTTP_CLIENT_STOPPED) return kin_err_set(err, "stopped");
    if (end != KIN_HTTP_CLIENT_DONE) {
        kin_err why = *err;
        return kin_err_set(err, "no server is ready at %s (%s); start one with 'kin serve MODEL', or name it with --server URL",
                           l->base, why.text);
    }
    return l->facts.model[0] ? 0 : kin_err_set(err, "the server at %s names no model; give its name with --model", l->base);
}

static void warn(const launching *l, const agent *a) {
    if (l->facts.n_ctx > 0 && l->facts.n_ctx < AGENT_CTX)
        kin_app_log("the server's context is %d tokens; %s alone sends about %d: start kin serve with --ctx 32768 or more",
                    l->facts.n_ctx, a->name, AGENT_CTX);
    if (l->facts.lacks_template) kin_app_log("%s has no chat template: it will not call tools", l->facts.model);
}

// ---- the program

// Prints a word for a shell.
static void put_quoted(const char *text) {
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'')
            printf("'\\''");
        else
            putchar(*text);
    }
    putchar('\'');
}

static void print_all(const launching *l, const agent *a) {
    for (int i = 0; a->conflicting[i]; i++) printf("unset %s\n", a->conflicting[i]);
    for (int i = 0; i < l->n_variables; i++) {
        printf("export %s=", l->variables[i].name);
        put_quoted(l->variables[i].value);
        printf("\n");
    }
    printf("# %s", l->words[0]);
    for (int i = 1; i < l->n_words; i++) {
        printf(" ");
        put_quoted(l->words[i]);
    }
    printf("\n");
}

// Replaces this process. Returns only if that failed.
static int start(const launching *l, const agent *a, kin_err *err) {
    for (int i = 0; a->conflicting[i]; i++) unsetenv(a->conflicting[i]);
    for (int i = 0; i < l->n_variables; i++) setenv(l->variables[i].name, l->variables[i].value, 1);
    fflush(stdout);
    signal(SIGXFSZ, SIG_DFL); // an ignored signal stays ignored in the new program
    execvp(l->words[0], (char *const *)l->words);
    if (errno != ENOENT) return kin_err_set(err, "%s: %s", a->name, strerror(errno));
    return kin_err_set(err, "%s is not installed, or not in PATH; it comes with: npm install -g %s", a->name, a->package);
}

static int launch(launching *l, const agent *a, int n_more, char **more, kin_err *err) {
    const launch_options *o = l->o;
    if (o->api_key_file && kin_key_file_first(&l->file_key, o->api_key_file, err) != 0)
        return kin_err_prefix(err, "--api-key-file");
    l->key = l->file_key ? l->file_key : o->api_key ? o->api_key : "none"; // these programs need one even if the server does not
    if (write_base(l, err) != 0) return KIN_FAIL;
    if (o->print && o->model)
        snprintf(l->facts.model, sizeof l->facts.model, "%s", o->model);
    else if (ask_server(l, err) != 0)
        return KIN_FAIL;
    add_word(l, a->name);
    a->prepare(l);
    for (int i = 0; i < n_more; i++) add_word(l, more[i]);
    if (l->out_of_memory) return kin_err_set(err, "out of memory");
    warn(l, a);
    if (!o->print) return start(l, a, err);
    print_all(l, a);
    return 0;
}

// ----

static const agent *find_agent(const char *name, kin_err *err) {
    for (size_t i = 0; name && i < sizeof agents / sizeof *agents; i++)
        if (strcmp(agents[i].name, name) == 0) return &agents[i];
    kin_err_set(err,
                name ? "kin launch does not know '%s'; it knows claude, codex and opencode"
                     : "which program? For example: kin launch claude; it knows claude, codex and opencode",
                name);
    return NULL;
}

static int command_launch(int argc, char **argv) {
    enum { OWN_WORDS = 20 };
    launch_options o = {0};
    kin_option table[N_LAUNCH_OPTIONS];
    kin_err err;
    const char *name = NULL;
    int n_own = 0;
    fill_launch_table(&o, table);
    while (n_own < argc && strcmp(argv[n_own], "--") != 0) n_own++; // the words after it are for the program
    int first = n_own < argc ? n_own + 1 : argc, n_more = argc - first;
    if (kin_options_parse((kin_option_tables){table}, n_own, argv, &name, &err) != 0) return kin_app_usage("launch", &err);
    const agent *a = find_agent(name, &err);
    if (!a) return kin_app_usage("launch", &err);
    if (n_more > MAX_WORDS - OWN_WORDS) {
        kin_err_set(&err, "too many words after '--'");
        return kin_app_usage("launch", &err);
    }
    if (o.model && kin_options_is_for_all("model", o.model)) o.model = NULL; // meant for commands that open files
    launching l = {.o = &o};
    int rc = launch(&l, a, n_more, argv + first, &err);
    for (int i = 0; i < l.n_variables; i++) free(l.variables[i].value);
    for (int i = 0; i < l.n_texts; i++) free(l.texts[i]);
    kin_key_file_free(l.file_key);
    return rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

static void with_launch_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    launch_options o = {0};
    kin_option table[N_LAUNCH_OPTIONS];
    fill_launch_table(&o, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_launch = {
    .name = "launch",
    .args = "claude|codex|opencode [-- ARGUMENTS]",
    .summary = "start a coding agent that uses a running kin serve",
    .help =
        "kin launch claude -- --continue: the words after '--' are for the program. Its own settings stay as they are: kin sets\n"
        "variables (codex: options) for this run only, and --print shows them. Needs a kin serve that runs, best with --ctx "
        "32768\n"
        "or more.",
    .run = command_launch,
    .options = with_launch_options,
    .operands = "claude codex opencode",
};
