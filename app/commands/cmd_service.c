// kin service: kin serve and kin join as services of systemd or launchd, which begin with the machine.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/app.h"
#include "app/options.h"
#include "app/service_manager.h"
#include "app/settings.h"
#include "sys/process.h"
#include "sys/whole_file.h"

enum { N_SERVICE_OPTIONS = 4, MAX_WORDS = 200 };

typedef struct service_options {
    bool system, dry_run;
    const char *manager;
} service_options;

static void fill_service_table(service_options *o, kin_option table[N_SERVICE_OPTIONS]) {
    const kin_option own[N_SERVICE_OPTIONS] = {
        {KIN_OPTION_FLAG, "system", 0, &o->system, NULL, "a service of the system instead of one of the user; needs root", 0, 0},
        {KIN_OPTION_FLAG, "dry-run", 0, &o->dry_run, NULL, "print the service's file, and change nothing", 0, 0},
        {KIN_OPTION_STRING, "manager", 0, &o->manager, "systemd|launchd",
         "what runs services (default: launchd on macOS, else systemd)", 0, 0},
        {0},
    };
    memcpy(table, own, sizeof own);
}

// ---- verbs

static const kin_command *command_of(const char *word) {
    return strcmp(word, "serve") == 0 ? &kin_command_serve : &kin_command_join;
}

enum { WORD_BYTES = PATH_MAX + 64 };

// The words of a service's command, some of them replaced.
typedef struct rewriting {
    int n;
    char **from, **words;      // [n]
    char (*paths)[WORD_BYTES]; // [n]
} rewriting;

// A service begins in another folder, so the paths of files become absolute, also in --name=PATH.
static char *absolute(char *word, char *buf, size_t n) {
    char path[PATH_MAX];
    struct stat st;
    char *value = word[0] == '-' ? strchr(word, '=') : word;
    if (value && value != word) value++;
    if (!value || value[0] == '/' || value[0] == '-' || stat(value, &st) != 0 || !realpath(value, path)) return word;
    int len = snprintf(buf, n, "%.*s%s", (int)(value - word), word, path);
    return len > 0 && (size_t)len < n ? buf : word;
}

static bool names_path(const kin_option *o) {
    return o->arg && (strstr(o->arg, "FILE") || strcmp(o->arg, "DIR") == 0);
}

// Replaces the values of options that take a file or a folder, and the words that belong to no option. Other values stay: a file
// may have the name of a device or of a model.
static void make_absolute(kin_option_tables tables, void *user) {
    rewriting *r = user;
    for (int i = 1; i < r->n; i++) {
        const kin_option *o = kin_options_find(tables, r->from[i]);
        bool has_value = o && o->kind != KIN_OPTION_FLAG && !strchr(r->from[i], '=');
        r->words[i] = !o || names_path(o) ? absolute(r->from[i], r->paths[i], sizeof r->paths[i]) : r->from[i];
        if (!has_value || i + 1 == r->n) continue;
        i++;
        r->words[i] = names_path(o) ? absolute(r->from[i], r->paths[i], sizeof r->paths[i]) : r->from[i];
    }
}

static int write_unit(const kin_service_manager *m, const kin_service_unit *unit, int argc, char **argv, kin_text_buffer *text,
                      kin_err *err) {
    char program[PATH_MAX], *words[MAX_WORDS];
    if (argc > MAX_WORDS) return kin_err_set(err, "too many options");
    if (!kin_process_own_path(program, sizeof program)) return kin_err_set(err, "the path of this program is not known");
    char(*paths)[WORD_BYTES] = malloc((size_t)argc * sizeof *paths);
    if (!paths) return kin_err_set(err, "out of memory");
    words[0] = argv[0];
    command_of(argv[0])->options(make_absolute, &(rewriting){argc, argv, words, paths});
    int rc = m->write(unit, program, words, argc, text, err);
    free(paths);
    return rc;
}

// Refuses wrong options now: later the service would end at every start, and the error would only be in the journal.
static int check_words(const service_options *o, int argc, char **argv, kin_err *err) {
    service_options own = {0};
    kin_option table[N_SERVICE_OPTIONS];
    fill_service_table(&own, table);
    for (int i = 1; i < argc; i++)
        for (const kin_option *row = table; row->kind != KIN_OPTION_END; row++)
            if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, row->name) == 0)
                return kin_err_set(err, "--%s is an option of kin service: write it before '%s'", row->name, argv[0]);
    const kin_command *command = command_of(argv[0]);
    if (o->system) // it has other settings than this user
        kin_options_preset(NULL, 0);
    else
        kin_settings_use(command);
    int rc = command->check(argc - 1, argv + 1, err);
    return rc == 0 ? 0 : kin_err_prefix(err, "kin %s", argv[0]);
}

static int write_file(const kin_service_unit *unit, const kin_text_buffer *text, kin_err *err) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(unit->path, '/') - unit->path), unit->path);
    if (kin_folder_make(folder, err) != 0 || kin_whole_file_write(unit->path, text->at, text->len, err) != 0) return KIN_FAIL;
    return chmod(unit->path, 0644) == 0 ? 0 : kin_err_set(err, "%s: %s", unit->path, strerror(errno));
}

static int install(const service_options *o, int argc, char **argv, kin_err *err) {
    const kin_service_manager *m = kin_service_manager_find(o->manager);
    kin_service_unit unit;
    kin_text_buffer text = {0};
    if (argc == 0)
        return kin_err_set(err, "which command? For example: kin service install serve MODEL, or kin service install join");
    if (check_words(o, argc, argv, err) != 0 || (!o->dry_run && kin_service_manager_check(m, err) != 0)) return KIN_FAIL;
    unit = (kin_service_unit){.command = argv[0], .is_system = o->system};
    int rc = m->init(&unit, err);
    if (rc == 0) rc = write_unit(m, &unit, argc, argv, &text, err);
    if (rc == 0 && o->dry_run) {
        printf("%.*s", (int)text.len, text.at);
    } else if (rc == 0) {
        rc = write_file(&unit, &text, err);
        if (rc == 0) rc = m->start(&unit, err);
        if (rc == 0) kin_app_log("%s starts now and with this machine; '%s' shows what it says", unit.name, m->log_hint(&unit));
        if (rc == 0 && m->linger_hint(&unit)) kin_app_log("%s", m->linger_hint(&unit));
    }
    kin_text_fini(&text);
    return rc;
}

static int remove_unit(const service_options *o, const char *command, kin_err *err) {
    const kin_service_manager *m = kin_service_manager_find(o->manager);
    kin_service_unit unit = {.command = command, .is_system = o->system};
    if (m->init(&unit, err) != 0) return KIN_FAIL;
    if (access(unit.path, F_OK) != 0) return kin_err_set(err, "%s is not installed", unit.path);
    if (m->stop(&unit, err) != 0) return KIN_FAIL;
    if (unlink(unit.path) != 0) return kin_err_set(err, "%s: %s", unit.path, strerror(errno));
    kin_app_log("%s was stopped and removed", unit.name);
    return m->removed(&unit, err);
}

// Returns the exit status.
static int print_service_status(const service_options *o) {
    static const char *const commands[] = {"serve", "join"};
    const kin_service_manager *m = kin_service_manager_find(o->manager);
    int n_installed = 0, status = 0;
    for (int i = 0; i < 2; i++) {
        kin_service_unit unit = {.command = commands[i], .is_system = o->system};
        kin_err err;
        if (m->init(&unit, &err) != 0) return kin_app_fail(&err);
        if (access(unit.path, F_OK) != 0) continue;
        n_installed++;
        if (m->show(&unit) != 0) status = KIN_EXIT_FAILED;
    }
    if (n_installed == 0) kin_app_log("no service of kin is installed; kin service install serve MODEL");
    return n_installed > 0 ? status : KIN_EXIT_FAILED;
}

static int command_service(int argc, char **argv) {
    service_options o = {0};
    kin_option table[N_SERVICE_OPTIONS];
    kin_err err;
    const char *verb = NULL;
    int n_own = 0;
    fill_service_table(&o, table);
    // The words after `serve` or `join` are for that command.
    while (n_own < argc && strcmp(argv[n_own], "serve") != 0 && strcmp(argv[n_own], "join") != 0) n_own++;
    if (kin_options_parse((kin_option_tables){table}, n_own, argv, &verb, &err) != 0) return kin_app_usage("service", &err);
    int rc = 0;
    if (verb && strcmp(verb, "install") == 0) {
        rc = install(&o, argc - n_own, argv + n_own, &err);
    } else if (verb && strcmp(verb, "remove") == 0 && argc - n_own == 1) {
        rc = remove_unit(&o, argv[n_own], &err);
    } else if (verb && strcmp(verb, "status") == 0 && n_own == argc) {
        return print_service_status(&o);
    } else {
        kin_err_set(&err, "expected one of: install serve|join OPTIONS, status, remove serve|join");
        return kin_app_usage("service", &err);
    }
    return rc == 0 ? KIN_EXIT_OK : kin_app_fail(&err);
}

static void with_service_options(void (*use)(kin_option_tables tables, void *user), void *user) {
    service_options o = {0};
    kin_option table[N_SERVICE_OPTIONS];
    fill_service_table(&o, table);
    use((kin_option_tables){table}, user);
}

const kin_command kin_command_service = {
    .name = "service",
    .args = "install serve|join OPTIONS | status | remove serve|join",
    .summary = "run kin serve or kin join as a service of systemd or launchd, from every start of the machine",
    .help =
        "kin service install serve qwen3-4b --host 0.0.0.0 --api-key-file keys: the words after serve or join are those of that "
        "command.\n"
        "The service is restarted if it ends. Its own options come before serve or join. A device that has no code yet:\n"
        "kin service install join --code-file FILE.",
    .run = command_service,
    .options = with_service_options,
    .operands = "install status remove",
};
