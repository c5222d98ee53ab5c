// kin service: kin serve and kin join as services of systemd, which begin with the machine.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/app.h"
#include "app/options.h"
#include "app/unit_file.h"
#include "sys/whole_file.h"

enum { N_SERVICE_OPTIONS = 3, MAX_WORDS = 200 };

typedef struct service_options {
    bool system, dry_run;
} service_options;

static void fill_service_table(service_options *o, kin_option table[N_SERVICE_OPTIONS]) {
    const kin_option own[N_SERVICE_OPTIONS] = {
        {KIN_OPTION_FLAG, "system", 0, &o->system, NULL, "a service of the system instead of one of the user; needs root", 0, 0},
        {KIN_OPTION_FLAG, "dry-run", 0, &o->dry_run, NULL, "print the unit file, and change nothing", 0, 0},
        {0},
    };
    memcpy(table, own, sizeof own);
}

// ---- systemd

// Runs systemctl with up to three words. Returns its exit status; -1 if it could not be run.
static int systemctl(const service_options *o, const char *a, const char *b, const char *c) {
    const char *words[7] = {"systemctl"};
    int n = 1;
    if (!o->system) words[n++] = "--user";
    const char *const rest[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (rest[i]) words[n++] = rest[i];
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        execvp(words[0], (char *const *)words);
        _exit(127);
    }
    int status;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) != 127 ? WEXITSTATUS(status) : -1;
}

static int must_run(const service_options *o, const char *a, const char *b, const char *c, kin_err *err) {
    int status = systemctl(o, a, b, c);
    if (status < 0) return kin_err_set(err, "cannot run systemctl: kin service needs systemd");
    return status == 0 ? 0 : kin_err_set(err, "systemctl %s failed with status %d", a, status);
}

// Writes "kin-serve.service" and where it belongs.
static int unit_path(const service_options *o, const char *command, char *name, size_t n_name, char *path, size_t n_path,
                     kin_err *err) {
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = -1;
    snprintf(name, n_name, "kin-%s.service", command);
    if (o->system)
        n = snprintf(path, n_path, "/etc/systemd/system/%s", name);
    else if (xdg && xdg[0])
        n = snprintf(path, n_path, "%s/systemd/user/%s", xdg, name);
    else if (home && home[0])
        n = snprintf(path, n_path, "%s/.config/systemd/user/%s", home, name);
    return n > 0 && (size_t)n < n_path ? 0 : kin_err_set(err, "there is no home directory for the unit file");
}

// ---- verbs

// A service begins in another folder, so the paths of files become absolute.
static char *absolute(char *word, char *buf) {
    struct stat st;
    if (word[0] == '/' || word[0] == '-' || stat(word, &st) != 0 || !realpath(word, buf)) return word;
    return buf;
}

static int write_unit(const service_options *o, int argc, char **argv, kin_text_buffer *text, kin_err *err) {
    char program[PATH_MAX], *words[MAX_WORDS];
    char(*paths)[PATH_MAX] = malloc((size_t)argc * sizeof *paths);
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    int rc = paths ? 0 : kin_err_set(err, "out of memory");
    if (rc == 0 && (n <= 0 || argc > MAX_WORDS))
        rc = kin_err_set(err, n <= 0 ? "the path of this program is not known" : "too many options");
    if (rc == 0) {
        program[n] = '\0';
        words[0] = argv[0];
        for (int i = 1; i < argc; i++) words[i] = absolute(argv[i], paths[i]);
        rc = kin_unit_file_write(program, words, argc, o->system, text, err);
    }
    free(paths);
    return rc;
}

// Refuses wrong options now: later the service would end at every start, and the error would only be in the journal.
static int check_words(int argc, char **argv, kin_err *err) {
    service_options own = {0};
    kin_option table[N_SERVICE_OPTIONS];
    bool is_serve = strcmp(argv[0], "serve") == 0;
    fill_service_table(&own, table);
    for (int i = 1; i < argc; i++)
        for (const kin_option *o = table; o->kind != KIN_OPTION_END; o++)
            if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, o->name) == 0)
                return kin_err_set(err, "--%s is an option of kin service: write it before '%s'", o->name, argv[0]);
    int rc = (is_serve ? &kin_command_serve : &kin_command_join)->check(argc - 1, argv + 1, err);
    return rc == 0 ? 0 : kin_err_prefix(err, "kin %s", argv[0]);
}

static int install(const service_options *o, int argc, char **argv, kin_err *err) {
    char name[64], path[PATH_MAX], folder[PATH_MAX];
    kin_text_buffer text = {0};
    if (argc == 0)
        return kin_err_set(err, "which command? For example: kin service install serve MODEL, or kin service install join");
    if (check_words(argc, argv, err) != 0) return KIN_FAIL;
    int rc = write_unit(o, argc, argv, &text, err);
    if (rc == 0) rc = unit_path(o, argv[0], name, sizeof name, path, sizeof path, err);
    if (rc == 0 && o->dry_run) {
        printf("%.*s", (int)text.len, text.at);
    } else if (rc == 0) {
        snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
        rc = kin_folder_make(folder, err);
        if (rc == 0) rc = kin_whole_file_write(path, text.at, text.len, err);
        if (rc == 0) chmod(path, 0644);
        if (rc == 0) rc = must_run(o, "daemon-reload", NULL, NULL, err);
        if (rc == 0) rc = must_run(o, "enable", "--now", name, err);
        if (rc == 0)
            kin_app_say("%s runs now and after every start; 'journalctl %s-u %s' shows what it says", name,
                        o->system ? "" : "--user ", name);
        if (rc == 0 && !o->system) kin_app_say("to run it while you are not logged in: loginctl enable-linger");
    }
    kin_text_fini(&text);
    return rc;
}

static int remove_unit(const service_options *o, const char *command, kin_err *err) {
    char name[64], path[PATH_MAX];
    if (unit_path(o, command, name, sizeof name, path, sizeof path, err) != 0) return KIN_FAIL;
    if (access(path, F_OK) != 0) return kin_err_set(err, "%s is not installed", path);
    if (must_run(o, "disable", "--now", name, err) != 0) return KIN_FAIL;
    if (unlink(path) != 0) return kin_err_set(err, "%s: %s", path, strerror(errno));
    kin_app_say("%s was stopped and removed", name);
    return must_run(o, "daemon-reload", NULL, NULL, err);
}

// Returns the exit status.
static int show_status(const service_options *o) {
    static const char *const commands[] = {"serve", "join"};
    int n_installed = 0, status = 0;
    for (int i = 0; i < 2; i++) {
        char name[64], path[PATH_MAX];
        kin_err err;
        if (unit_path(o, commands[i], name, sizeof name, path, sizeof path, &err) != 0) return kin_app_fail(&err);
        if (access(path, F_OK) != 0) continue;
        n_installed++;
        if (systemctl(o, "status", "--no-pager", name) != 0) status = KIN_EXIT_FAILED;
    }
    if (n_installed == 0) kin_app_say("no service of kin is installed; kin service install serve MODEL");
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
        return show_status(&o);
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
    .summary = "run kin serve or kin join as a service of systemd, from every start of the machine",
    .help =
        "kin service install serve qwen3-4b --host 0.0.0.0 --api-key-file keys: the words after serve or join are those of that "
        "command.\n"
        "The service is restarted if it ends. Its own options come before serve or join.",
    .run = command_service,
    .options = with_service_options,
    .operands = "install status remove",
};
