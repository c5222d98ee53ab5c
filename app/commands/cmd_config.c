// kin config: shows the settings of this user.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/options.h"
#include "app/settings.h"
#include "app/terminal/table.h"

typedef struct config_options {
    bool path;
} config_options;

enum { N_CONFIG_OPTIONS = 2, MAX_SEEN = 512 };

static void fill_config_table(config_options *o, kin_option table[N_CONFIG_OPTIONS]) {
    const kin_option own[N_CONFIG_OPTIONS] = {
        {KIN_OPTION_FLAG, "path", 0, &o->path, NULL, "print the path of the file, whether it exists or not", 0, 0},
        {0},
    };
    memcpy(table, own, sizeof own);
}

// ---- the table of settings

typedef struct listing {
    const kin_command *only; // NULL: all commands
    kin_table *table;
    int n;                      // settings so far
    const char *seen[MAX_SEEN]; // options whose environment variable was looked at
    int n_seen;
} listing;

static const char *const titles[] = {"setting", "value", "commands", "from"};

// Prints the rows so far, if there is no room for another one.
static void make_room(listing *l) {
    if (l->table->n_rows < KIN_TABLE_MAX_ROWS) return;
    kin_table_print(l->table, stdout);
    kin_table_init(l->table, "llll", titles);
}

static void add_row(listing *l, const char *name, const char *value, const char *commands) {
    bool is_secret = strcmp(name, "api-key") == 0;
    make_room(l);
    kin_table_row(l->table);
    kin_table_cell(l->table, 0, "%s", name);
    kin_table_cell(l->table, 1, "%s", is_secret ? "(not shown)" : value ? value : "yes");
    kin_table_cell(l->table, 2, "%s", commands);
    l->n++;
}

static void list_file(listing *l) {
    int n;
    const kin_setting *settings = kin_settings_list(&n);
    for (int i = 0; i < n; i++) {
        const kin_setting *s = &settings[i];
        bool is_meant =
            !l->only || (s->section[0] ? strcmp(s->section, l->only->name) == 0 : kin_settings_concern(s->name, l->only));
        if (!is_meant) continue;
        add_row(l, s->name, s->value, s->section[0] ? s->section : "all");
        kin_table_cell(l->table, 3, "line %d", s->line);
    }
}

static bool was_seen(listing *l, const char *name) {
    for (int i = 0; i < l->n_seen; i++)
        if (strcmp(l->seen[i], name) == 0) return true;
    if (l->n_seen < MAX_SEEN) l->seen[l->n_seen++] = name;
    return false;
}

static void list_variables_of(kin_option_tables tables, void *user) {
    listing *l = user;
    char variable[64];
    for (int t = 0; t < KIN_MAX_TABLES && tables[t]; t++) {
        for (const kin_option *o = tables[t]; o->kind != KIN_OPTION_END; o++) {
            const char *value = getenv(kin_options_variable(o->name, variable, sizeof variable));
            if (!value || !value[0] || o->kind == KIN_OPTION_NEEDS || was_seen(l, o->name)) continue;
            add_row(l, o->name, value, "all");
            kin_table_cell(l->table, 3, "%s", variable);
        }
    }
}

// ---- checks

typedef struct check {
    int rc;
    kin_err *err;
} check;

static void check_values_of(kin_option_tables tables, void *user) {
    check *c = user;
    c->rc = kin_options_parse(tables, 0, NULL, NULL, c->err);
}

// Parses an empty command line of every command, which refuses values that its options do not take.
static int check_values(const kin_command *only, kin_err *err) {
    check c = {0, err};
    for (int i = 0; c.rc == 0 && kin_commands[i]; i++) {
        if (only && kin_commands[i] != only) continue;
        kin_settings_use(kin_commands[i]);
        kin_commands[i]->options(check_values_of, &c);
    }
    return c.rc;
}

static int show(const kin_command *only, kin_err *err) {
    char path[1024];
    listing l = {.only = only, .table = malloc(sizeof *l.table)};
    if (kin_settings_read(err) != 0 || check_values(only, err) != 0 || !l.table) {
        if (!l.table) kin_err_set(err, "out of memory");
        free(l.table);
        return KIN_FAIL;
    }
    kin_table_init(l.table, "llll", titles);
    list_file(&l);
    for (int i = 0; kin_commands[i]; i++)
        if (!only || kin_commands[i] == only) kin_commands[i]->options(list_variables_of, &l);
    if (l.n > 0) kin_table_print(l.table, stdout);
    if (kin_settings_path(path, sizeof path))
        kin_app_log(l.n > 0 ? "the file is %s" : "there are no settings; they would be lines NAME = VALUE in %s", path);
    free(l.table);
    return 0;
}

// ----

static int command_config(int argc, char **argv) {
    config_options o = {0};
    kin_option table[N_CONFIG_OPTIONS];
    kin_err err;
    char path[1024];
    const char *name = NULL;
    const kin_command *only = NULL;
    fill_config_table(&o, table);
    if (kin_options_parse((kin_option_tables){table}, argc, argv, &name, &err) != 0) return kin_app_usage("config", &err);
    for (int i = 0; name && kin_commands[i]; i++)
        if (strcmp(kin_commands[i]->name, name) == 0) only = kin_commands[i];
    if (name && !only) {
        kin_err_set(&err, "there is no command '%s'", name);
        return kin_app_usage("config", &err);
    }
    if (!o.path) {
        if (show(only, &err) == 0) return KIN_EXIT_OK;
        kin_app_log("%s", err.text);
        return KIN_EXIT_USAGE;
    }
    if (!kin_settings_path(path, sizeof path)) {
        kin_err_set(&err, "there is no home directory for settings; set KIN_CONFIG to a file");
        return kin_app_fail(&err);
    }
    printf("%s\n", path);
    return KIN_EXIT_OK;
}

static void with_config_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    config_options o = {0};
    kin_option table[N_CONFIG_OPTIONS];
    fill_config_table(&o, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_config = {
    .name = "config",
    .args = "[COMMAND]",
    .summary = "show the settings in ~/.config/kin/kin.conf and in the environment",
    .help =
        "A line of the file is NAME = VALUE, or NAME for an option without a value; names are those of options, without '--'.\n"
        "Lines before the first [COMMAND] are for all commands that have the option, those below it for that command.\n"
        "Later lines win over earlier ones, [COMMAND] over all, the environment over the file, and the command line over both.\n"
        "KIN_CONFIG names another file.",
    .run = command_config,
    .options = with_config_options,
    .operands = "",
};
