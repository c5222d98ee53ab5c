#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "base/log.h"

static const kin_command *const commands[] = {&kin_command_run,   &kin_command_join,  &kin_command_status,
                                              &kin_command_eval,  &kin_command_bench, &kin_command_info,
                                              &kin_command_cache, &kin_command_plan,  &kin_command_profile};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

atomic_bool kin_app_stop;

static bool verbose;

static void on_interrupt(int sig) {
    (void)sig;
    atomic_store(&kin_app_stop, true);
}

static void write_log(void *user, kin_log_level level, const char *line) {
    (void)user;
    if (level == KIN_LOG_DEBUG && !verbose) return;
    kin_app_say("%s", line);
}

static const kin_command *find_command(const char *name) {
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    }
    return NULL;
}

static int print_help(void) {
    printf("kin %s: one large language model across the devices of a home\n\n", KIN_VERSION);
    for (int i = 0; i < N_COMMANDS; i++) printf("  kin %-7s %s\n", commands[i]->name, commands[i]->summary);
    printf("\n'kin help COMMAND' explains one. Without -m the built-in demo model is used: kin run -p \"Once upon a time\"\n");
    return KIN_EXIT_OK;
}

static int print_command_help(const kin_command *c) {
    printf("kin %s %s\n%s\n", c->name, c->args, c->summary);
    if (c->help) printf("\n%s\n", c->help);
    printf("\n");
    c->help_options();
    printf("\nEvery option can be set in the environment: --gpu-layers as KIN_GPU_LAYERS. Sizes take K, M, G.\n"
           "KIN_VERBOSE=1 says more on stderr.\n");
    return KIN_EXIT_OK;
}

static int unknown_command(const char *name) {
    kin_app_say("there is no command '%s'. Try 'kin help'.", name);
    return KIN_EXIT_USAGE;
}

// ggml's threads wait for each other by spinning, by default for so long that two other busy programs slow a token from 24 ms
// to 90 or 700. 20,000 turns cost little on a quiet machine (39.7 and 41.9 tokens/s against 42.3 and 41.1) and keep 19 tokens/s
// beside the two. OpenMP reads this once, before main: so the program starts itself again.
static void spin_less(char **argv) {
#ifdef __linux__
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    setenv("GOMP_SPINCOUNT", "20000", 1);
    execv("/proc/self/exe", argv); // where that fails, waiting is only less polite
#else
    (void)argv;
#endif
}

static int read_environment(void) {
    const char *text = getenv("KIN_VERBOSE");
    kin_err err;
    if (!text || !text[0] || kin_option_flag(text, &verbose, &err) == 0) return 0;
    kin_app_say("environment variable KIN_VERBOSE: %s", err.text);
    return KIN_FAIL;
}

static int run(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("kin %s\n", KIN_VERSION);
        return KIN_EXIT_OK;
    }
    bool help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (help && argc < 3) return print_help();

    const kin_command *command = find_command(help ? argv[2] : name);
    if (!command) return unknown_command(help ? argv[2] : name);
    for (int i = 2; i < argc && !help; i++) help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    return help ? print_command_help(command) : command->run(argc - 2, argv + 2);
}

int main(int argc, char **argv) {
    kin_app_open_stdio();
    spin_less(argv);
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    kin_log_set_sink(write_log, NULL);
    if (read_environment() != 0) return KIN_EXIT_USAGE;
    return kin_app_close_stdout(run(argc, argv));
}
