// kin pull: fetches a model by its name.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/model_source.h"
#include "app/options.h"
#include "app/terminal/table.h"
#include "base/units.h"
#include "engine/governor.h"
#include "pull/known_models.h"

typedef struct pull_options {
    const char *mirror, *hf;
    uint64_t memory;
    int n_connections, patience_s;
    bool offline, names;
} pull_options;

enum { N_PULL_OPTIONS = 8 };

static void fill_pull_table(pull_options *o, kin_option table[N_PULL_OPTIONS]) {
    *o = (pull_options){.n_connections = KIN_DOWNLOAD_CONNECTIONS, .patience_s = KIN_DOWNLOAD_PATIENCE_S};
    const kin_option own[N_PULL_OPTIONS] = {
        {KIN_OPTION_STRING, "hf", 0, &o->hf, "OWNER/REPO", "a model of Hugging Face, as -hf of llama.cpp's programs", 0, 0},
        {KIN_OPTION_SIZE, "memory", 0, &o->memory, "SIZE",
         "memory that the model should fit into, for example that of all devices together (default: this machine's)", 0, 0},
        {KIN_OPTION_STRING, "mirror", 0, &o->mirror, "URL",
         "server to ask in place of the registry (HF_ENDPOINT: of Hugging Face)", 0, 0},
        {KIN_OPTION_INT, "connections", 0, &o->n_connections, "N", "number of ranges fetched at once (default: 4)", 1,
         KIN_DOWNLOAD_MAX_CONNECTIONS},
        {KIN_OPTION_INT, "patience", 0, &o->patience_s, "S",
         "give up if less than 1 KiB/s comes on average for S seconds (default: 60; 0: never)", 0, 86400},
        {KIN_OPTION_FLAG, "offline", 0, &o->offline, NULL, "contact no server; only check whether the model is here", 0, 0},
        {KIN_OPTION_FLAG, "names", 0, &o->names, NULL, "list the short names of models", 0, 0},
        {0},
    };
    memcpy(table, own, sizeof own);
}

static int list_names(kin_err *err) {
    static const char *const titles[] = {"name", "from", "what it is"};
    const kin_pull_options po = kin_model_source_options();
    kin_known_model *models;
    int n;
    if (kin_known_models_list(po.known_file, &models, &n, err) != 0) return KIN_FAIL;
    kin_table *t = malloc(sizeof *t);
    if (t) kin_table_init(t, "lll", titles);
    for (int i = 0; t && i < n; i++) {
        if (t->n_rows == KIN_TABLE_MAX_ROWS) {
            kin_table_print(t, stdout);
            kin_table_init(t, "lll", titles);
        }
        kin_table_row(t);
        kin_table_cell(t, 0, "%s", models[i].name);
        kin_table_cell(t, 1, "%s", models[i].source);
        kin_table_cell(t, 2, "%s", models[i].about);
    }
    if (t) kin_table_print(t, stdout);
    free(t);
    free(models);
    return 0;
}

static int pull(const pull_options *o, const char *name, kin_err *err) {
    kin_pull_options po = kin_model_source_options();
    kin_model_record record;
    char size[32];
    po.mirror = o->mirror;
    po.offline = o->offline;
    po.refreshes = !o->offline;
    po.room = o->memory ? o->memory : kin_governor_room(0);
    po.n_connections = o->n_connections;
    po.patience_s = o->patience_s;
    if (kin_model_source_pull(&po, name, &record, err) != 0) return KIN_FAIL;
    kin_model_record whole; // with the size of all parts
    if (kin_pull_find(&po, record.source, &whole, err) == 0) record = whole;
    kin_app_log("%s is here (%s): kin chat %s", record.source, kin_size_format(record.bytes, size, sizeof size), name);
    printf("%s\n", record.path);
    return 0;
}

static int command_pull(int argc, char **argv) {
    pull_options o;
    kin_option table[N_PULL_OPTIONS];
    kin_err err;
    const char *name = NULL;
    char hf[KIN_REF_TEXT];
    fill_pull_table(&o, table);
    if (kin_options_parse((kin_option_tables){table}, argc, argv, &name, &err) != 0) return kin_app_usage("pull", &err);
    if (o.hf && !name) {
        snprintf(hf, sizeof hf, "hf:%s", o.hf);
        name = hf;
    }
    if (!name && !o.names) {
        kin_err_set(&err, "which model? For example: kin pull qwen3-4b; 'kin pull --names' lists more");
        return kin_app_usage("pull", &err);
    }
    int rc = o.names ? list_names(&err) : pull(&o, name, &err);
    return rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

static void with_pull_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    pull_options o;
    kin_option table[N_PULL_OPTIONS];
    fill_pull_table(&o, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_pull = {
    .name = "pull",
    .args = "NAME",
    .summary = "fetch a model from Hugging Face, Ollama's registry or any web server",
    .help =
        "NAME is hf:OWNER/REPO, hf:OWNER/REPO:QUANT, hf:OWNER/REPO/FILE.gguf, ollama:NAME[:TAG], https://HOST/FILE.gguf, or a "
        "short\n"
        "name such as qwen3-4b (--names). Without QUANT kin chooses one that fits into memory. The same names work wherever a "
        "command\n"
        "takes a model: kin chat NAME. Ctrl-C stops a download; the same command continues it. The path of the file goes to "
        "stdout.\n"
        "HF_TOKEN is the token for models that need an account, KIN_MODELS the folder of models (default: ~/.cache/kin/models).",
    .run = command_pull,
    .options = with_pull_options,
    .operands = "",
};
