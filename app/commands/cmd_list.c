// kin list, kin show, kin rm: the models that were fetched.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/app.h"
#include "app/model_source.h"
#include "app/option_tables.h"
#include "app/terminal/table.h"
#include "base/units.h"
#include "pure/text/escape.h"
#include "serve/json_out.h"

enum { N_LIST_OPTIONS = 2 };

static void format_day(int64_t s, char *to, size_t n) {
    time_t t = (time_t)s;
    strftime(to, n, "%Y-%m-%d", localtime(&t));
}

// ---- kin list

static void print_records_json(const kin_model_record *records, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const kin_model_record *r = &records[i];
        json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:s, s:I, s:I, s:I}", "name", kin_json_string(r->source), "path",
                                              kin_json_string(r->path), "quantization", kin_json_string(r->quant), "sha256",
                                              r->n_parts == 1 ? r->sha256 : "", "bytes", (json_int_t)r->bytes, "fetched",
                                              (json_int_t)r->fetched_s, "used", (json_int_t)r->used_s));
    }
    kin_app_write_json(json_pack("{s:o}", "models", list), 0);
}

static void print_records(const kin_model_record *records, int n) {
    static const char *const titles[] = {"name", "size", "fetched", "last used"};
    kin_table *t = malloc(sizeof *t);
    if (!t) return;
    kin_table_init(t, "lrll", titles);
    for (int i = 0; i < n; i++) {
        char text[32];
        if (t->n_rows == KIN_TABLE_MAX_ROWS) {
            kin_table_print(t, stdout);
            kin_table_init(t, "lrll", titles);
        }
        kin_table_row(t);
        kin_table_cell(t, 0, "%s", records[i].source);
        kin_table_cell(t, 1, "%s", kin_size_format(records[i].bytes, text, sizeof text));
        format_day(records[i].fetched_s, text, sizeof text);
        kin_table_cell(t, 2, "%s", text);
        format_day(records[i].used_s, text, sizeof text);
        kin_table_cell(t, 3, "%s", text);
    }
    kin_table_print(t, stdout);
    free(t);
}

static int list(bool json, kin_err *err) {
    const kin_pull_options po = kin_model_source_options();
    kin_model_record *records;
    int n;
    if (!po.models_dir) return kin_err_set(err, "there is no home directory for models; set KIN_MODELS to a folder");
    if (kin_model_store_list(po.models_dir, &records, &n, err) != 0) return KIN_FAIL;
    if (json)
        print_records_json(records, n);
    else if (n > 0)
        print_records(records, n);
    else
        kin_app_log("there are no models in %s; 'kin pull NAME' fetches one, 'kin pull --names' lists some", po.models_dir);
    free(records);
    return 0;
}

static int command_list(int argc, char **argv) {
    kin_option table[KIN_JSON_N_OPTIONS];
    kin_err err;
    bool json = false;
    kin_json_option_table(&json, table);
    if (kin_options_parse((kin_option_tables){table}, argc, argv, NULL, &err) != 0) return kin_app_usage("list", &err);
    return list(json, &err) == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

static void with_list_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    kin_option table[KIN_JSON_N_OPTIONS];
    bool json = false;
    kin_json_option_table(&json, table);
    use((kin_option_tables){table}, user);
}

// ---- kin show, kin rm

// Each command has one flag: show --all, rm --dry-run.
static void fill_flag_table(const char *name, const char *help, bool *flag, kin_option table[N_LIST_OPTIONS]) {
    const kin_option own[N_LIST_OPTIONS] = {{KIN_OPTION_FLAG, name, 0, flag, NULL, help, 0, 0}, {0}};
    memcpy(table, own, sizeof own);
}

static void fill_show_table(bool *all, kin_option table[N_LIST_OPTIONS]) {
    fill_flag_table("all", "show all metadata and tensors", all, table);
}

static void fill_rm_table(bool *dry_run, kin_option table[N_LIST_OPTIONS]) {
    fill_flag_table("dry-run", "show what would be removed, without removing it", dry_run, table);
}

static void with_show_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    kin_option table[N_LIST_OPTIONS];
    bool all = false;
    fill_show_table(&all, table);
    use((kin_option_tables){table}, user);
}

static void with_rm_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    kin_option table[N_LIST_OPTIONS];
    bool dry_run = false;
    fill_rm_table(&dry_run, table);
    use((kin_option_tables){table}, user);
}

// Parses the one operand and finds its model. Returns an exit status; KIN_EXIT_OK: it is in `record`.
static int find_operand(const char *command, const kin_option *table, int argc, char **argv, kin_model_record *record,
                        kin_err *err) {
    const kin_pull_options po = kin_model_source_options();
    const char *name = NULL;
    if (kin_options_parse((kin_option_tables){table}, argc, argv, &name, err) != 0) return kin_app_usage(command, err);
    if (!name) {
        kin_err_set(err, "which model? 'kin list' shows those that are here");
        return kin_app_usage(command, err);
    }
    int rc = po.models_dir ? kin_pull_find(&po, name, record, err) : KIN_ABSENT;
    if (rc == KIN_ABSENT) kin_err_set(err, "there is no model '%s' here; 'kin list' shows those that are", name);
    return rc == 0 ? KIN_EXIT_OK : kin_app_fail(err);
}

static int command_show(int argc, char **argv) {
    kin_model_record r;
    kin_err err;
    char day[32], shown[KIN_STORE_PATH * 2], all_option[] = "--all";
    kin_option table[N_LIST_OPTIONS];
    bool all = false;
    fill_show_table(&all, table);
    int status = find_operand("show", table, argc, argv, &r, &err);
    if (status != KIN_EXIT_OK) return status;
    format_day(r.fetched_s, day, sizeof day);
    printf("name         %s\n", kin_escape(shown, sizeof shown, r.source, strlen(r.source)));
    printf("fetched      %s%s\n", day, r.sha256[0] ? "" : "; not verified, because its server gave no hash");
    if (r.n_parts == 1 && r.sha256[0]) printf("sha256       %s\n", r.sha256);
    if (r.n_parts > 1) printf("parts        %d\n", r.n_parts);
    char *words[] = {r.path, all_option};
    return kin_command_info.run(all ? 2 : 1, words);
}

static int command_rm(int argc, char **argv) {
    kin_model_record r;
    kin_err err;
    char size[32];
    kin_option table[N_LIST_OPTIONS];
    bool dry_run = false;
    fill_rm_table(&dry_run, table);
    int status = find_operand("rm", table, argc, argv, &r, &err);
    if (status != KIN_EXIT_OK) return status;
    if (!dry_run && kin_model_store_remove(&r, &err) != 0) return kin_app_fail(&err);
    printf("%s %s (%s)\n", dry_run ? "would remove" : "removed", r.source, kin_size_format(r.bytes, size, sizeof size));
    return KIN_EXIT_OK;
}

const kin_command kin_command_list = {
    .name = "list",
    .args = "",
    .summary = "list the models that were fetched",
    .run = command_list,
    .options = with_list_options,
    .operands = "",
};

const kin_command kin_command_show = {
    .name = "show",
    .args = "NAME",
    .summary = "describe a fetched model, and where it came from",
    .run = command_show,
    .options = with_show_options,
    .operands = "",
};

const kin_command kin_command_rm = {
    .name = "rm",
    .args = "NAME",
    .summary = "remove a fetched model",
    .help = "NAME is as in 'kin list', or the name of the file. Prepacked weights of the model stay in the cache: kin cache.",
    .run = command_rm,
    .options = with_rm_options,
    .operands = "",
};
