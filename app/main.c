#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app.h"
#include "app/bus_error.h"
#include "app/manual.h"
#include "app/option_tables.h"
#include "app/settings.h"
#include "app/suggest.h"
#include "app/version.h"
#include "base/log.h"
#include "cluster/session.h"

const kin_command *const kin_commands[] = {&kin_command_demo,
                                           &kin_command_run,
                                           &kin_command_chat,
                                           &kin_command_serve,
                                           &kin_command_join,
                                           &kin_command_code,
                                           &kin_command_status,
                                           &kin_command_plan,
                                           &kin_command_profile,
                                           &kin_command_doctor,
                                           &kin_command_eval,
                                           &kin_command_bench,
                                           &kin_command_info,
                                           &kin_command_models,
                                           &kin_command_pull,
                                           &kin_command_list,
                                           &kin_command_show,
                                           &kin_command_rm,
                                           &kin_command_cache,
                                           &kin_command_launch,
                                           &kin_command_service,
                                           &kin_command_config,
                                           NULL};

atomic_bool kin_app_stop, kin_app_interrupted;
const char *kin_app_name = "kin";

static bool verbose;
static atomic_bool quiet;

static void on_interrupt(int sig) {
    (void)sig;
    atomic_store(&kin_app_interrupted, true);
    atomic_store(&kin_app_stop, true);
}

// A closed terminal ends the program like Ctrl-C, unless nohup has disabled SIGHUP.
static void catch_hangup(const struct sigaction *action) {
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, action, NULL);
}

void kin_app_catch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    catch_hangup(&action);
}

static void write_log(void *user, kin_log_level level, const char *line) {
    (void)user;
    if (level < (atomic_load(&quiet) ? KIN_LOG_WARN : KIN_LOG_INFO) && !verbose) return;
    kin_app_log("%s", line);
}

void kin_app_be_quiet(void) {
    atomic_store(&quiet, true);
}

static const kin_command *find_command(const char *name) {
    for (int i = 0; kin_commands[i]; i++) {
        if (strcmp(kin_commands[i]->name, name) == 0) return kin_commands[i];
    }
    return NULL;
}

// Commands of other programs, and their equivalents in kin.
static const char *find_instead(const char *name) {
    static const struct {
        const char *names[4], *instead;
    } rows[] = {
        {{"download"}, "'kin pull NAME' fetches a model"},
        {{"ls"}, "'kin list' shows the models that were fetched; 'kin models FOLDER' those of a directory"},
        {{"ps"}, "'kin status' shows a running head; GET /v1/models of 'kin serve' lists its models"},
        {{"remove", "delete"}, "'kin rm NAME' removes a fetched model; 'kin cache' lists cached data"},
        {{"stop"}, "stop a server with Ctrl-C or SIGTERM"},
        {{"start"}, "'kin serve FILE.gguf' starts a server"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int k = 0; k < 4 && rows[i].names[k]; k++)
            if (strcmp(rows[i].names[k], name) == 0) return rows[i].instead;
    }
    return NULL;
}

static int unknown_command(const char *name) {
    kin_suggestion s = {.word = name};
    const char *instead = find_instead(name);
    if (instead) {
        kin_app_log("unknown command '%s': %s", name, instead);
        return KIN_EXIT_USAGE;
    }
    for (int i = 0; kin_commands[i]; i++) kin_suggest(&s, kin_commands[i]->name);
    if (s.best)
        kin_app_log("unknown command '%s'; did you mean 'kin %s'? 'kin help' lists all", name, s.best);
    else if (strchr(name, ' '))
        kin_app_log("unknown command '%s'; to run a prompt: kin run -p TEXT ('kin help' lists all commands)", name);
    else
        kin_app_log("unknown command '%s'; 'kin help' lists all", name);
    return KIN_EXIT_USAGE;
}

static int read_environment(void) {
    const char *text = getenv("KIN_VERBOSE");
    kin_err err;
    if (!text || !text[0] || kin_option_flag(text, &verbose, &err) == 0) return 0;
    kin_app_log("environment variable KIN_VERBOSE: %s", err.text);
    return KIN_FAIL;
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

// kin help, kin help COMMAND, kin help --man
static int help(const char *what) {
    if (!what || strcmp(what, "help") == 0) {
        kin_manual_overview();
        return KIN_EXIT_OK;
    }
    const kin_command *command = find_command(what);
    if (command) kin_manual_command(command);
    return command || kin_manual_print(what) == 0 ? KIN_EXIT_OK : unknown_command(what);
}

// `kin config` reads the settings itself, so that it can also say where the file belongs.
static int run_with_settings(const kin_command *command, int argc, char **argv) {
    kin_err err;
    if (command != &kin_command_config && kin_settings_read(&err) != 0) {
        kin_app_log("%s", err.text);
        return KIN_EXIT_USAGE;
    }
    kin_settings_use(command);
    return command->run(argc, argv);
}

static int run_command(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0 || strcmp(name, "version") == 0) {
        kin_version_print();
        return KIN_EXIT_OK;
    }
    if (strcmp(name, "help") == 0 || is_help(name)) return help(argc > 2 ? argv[2] : NULL);

    const kin_command *command = find_command(name);
    int n_words = 2;
    if (!command && (name[0] == '-' || kin_session_is_model(name))) { // kin MODEL.gguf ..., kin -p TEXT
        command = &kin_command_run;
        n_words = 1;
    }
    if (!command) return unknown_command(name);
    for (int i = n_words; i < argc; i++) {
        if (is_help(argv[i])) return help(command->name);
    }
    return run_with_settings(command, argc - n_words, argv + n_words);
}

int main(int argc, char **argv) {
    kin_app_open_stdio();
    if (argc > 0) kin_app_name = argv[0];
    kin_app_catch_interrupts();
    kin_bus_error_watch();
    signal(SIGXFSZ, SIG_IGN); // at the limit of ulimit -f the write fails and reports it
    kin_log_set_sink(write_log, NULL);
    if (read_environment() != 0) return KIN_EXIT_USAGE;
    return kin_app_close_stdout(run_command(argc, argv));
}
