// kin models: lists the model files of a folder.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/option_tables.h"
#include "app/terminal/table.h"
#include "base/units.h"
#include "cluster/model_files.h"
#include "pure/text/escape.h"
#include "serve/json_out.h"

static json_t *file_json(const kin_model_file *f) {
    json_t *o = json_pack("{s:o, s:o}", "name", kin_json_string(f->name), "path", kin_json_string(f->path));
    if (!f->is_usable) {
        json_object_set_new(o, "error", kin_json_string(f->why.text));
        return o;
    }
    json_object_update_new(o, json_pack("{s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i}", "family", f->family, "type", f->type, "bytes",
                                        (json_int_t)f->n_bytes, "parameters", (json_int_t)f->n_params, "context", f->n_ctx_train,
                                        "vocabulary", f->n_vocab, "layers", f->n_layer, "width", f->n_embd));
    return o;
}

static void print_models_json(const kin_model_file *files, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, file_json(&files[i]));
    kin_app_write_json(json_pack("{s:o}", "models", list), 0);
}

static const char *parameters(uint64_t n, char *text, size_t size) {
    if (n >= 1000000000)
        snprintf(text, size, "%.1fB", (double)n / 1e9);
    else
        snprintf(text, size, "%.1fM", (double)n / 1e6);
    return text;
}

static void print_usable(const kin_model_file *files, int n) {
    static const char *const titles[] = {"name", "family", "parameters", "type", "size", "context"};
    kin_table *t = malloc(sizeof *t);
    if (!t) return;
    kin_table_init(t, "llrlrr", titles);
    for (int i = 0; i < n; i++) {
        const kin_model_file *f = &files[i];
        char text[32];
        if (!f->is_usable) continue;
        if (t->n_rows == KIN_TABLE_MAX_ROWS) { // the table is full: continue in another one
            kin_table_print(t, stdout);
            kin_table_init(t, "llrlrr", titles);
        }
        kin_table_row(t);
        kin_table_cell(t, 0, "%s", f->name);
        kin_table_cell(t, 1, "%s", f->family);
        kin_table_cell(t, 2, "%s", parameters(f->n_params, text, sizeof text));
        kin_table_cell(t, 3, "%s", f->type);
        kin_table_cell(t, 4, "%s", kin_size_format(f->n_bytes, text, sizeof text));
        kin_table_cell(t, 5, "%d", f->n_ctx_train);
    }
    if (t->n_rows > 1) kin_table_print(t, stdout);
    free(t);
}

static void print_models_text(const kin_model_file *files, int n, const char *dir) {
    char shown[1024];
    print_usable(files, n);
    for (int i = 0; i < n; i++) {
        if (!files[i].is_usable) kin_app_log("not usable: %s", files[i].why.text);
    }
    if (n == 0) printf("%s contains no model files (*.gguf)\n", kin_escape(shown, sizeof shown, dir, strlen(dir)));
}

static int command_models(int argc, char **argv) {
    kin_option table[KIN_JSON_N_OPTIONS];
    kin_model_file *files;
    kin_err err;
    bool json = false;
    const char *dir = NULL;
    int n;
    kin_json_option_table(&json, table);
    if (kin_options_parse((kin_option_tables){table}, argc, argv, &dir, &err) != 0) return kin_app_usage("models", &err);
    if (!dir) dir = ".";
    if (kin_model_files_find(&files, &n, dir, &err) != 0) return kin_app_fail(&err);
    if (json)
        print_models_json(files, n);
    else
        print_models_text(files, n, dir);
    free(files);
    return KIN_EXIT_OK;
}

static void with_models_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    kin_option table[KIN_JSON_N_OPTIONS];
    bool json = false;
    kin_json_option_table(&json, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_models = {
    .name = "models",
    .args = "[FOLDER]",
    .summary = "list the model files in a directory",
    .help = "Lists the files NAME.gguf in a directory (default: the current one) and its subdirectories: the models that\n"
            "'kin serve --models-dir' would serve.",
    .run = command_models,
    .options = with_models_options,
};
