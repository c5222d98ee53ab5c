#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "base/clock.h"
#include "base/log.h"

static const kin_command *const commands[] = {&kin_command_run,   &kin_command_join,  &kin_command_status,
                                              &kin_command_eval,  &kin_command_bench, &kin_command_info,
                                              &kin_command_cache, &kin_command_plan,  &kin_command_profile};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

atomic_bool kin_app_stop;

static bool verbose;
static pthread_mutex_t progress_mutex = PTHREAD_MUTEX_INITIALIZER; // over what stands on the terminal
static bool progress_shown;

static void on_interrupt(int sig) {
    (void)sig;
    atomic_store(&kin_app_stop, true);
}

static void write_log(void *user, kin_log_level level, const char *line) {
    (void)user;
    if (level == KIN_LOG_DEBUG && !verbose) return;
    kin_app_progress_clear();
    fprintf(stderr, "kin: %s\n", line);
}

int kin_app_fail(const kin_err *err) {
    kin_app_progress_clear();
    if (atomic_load(&kin_app_stop)) return KIN_EXIT_INTERRUPTED;
    fprintf(stderr, "kin: %s\n", err->text);
    return KIN_EXIT_FAILED;
}

int kin_app_usage(const char *command, const kin_err *err) {
    fprintf(stderr, "kin %s: %s\nTry 'kin help %s'.\n", command, err->text, command);
    return KIN_EXIT_USAGE;
}

// Under the mutex.
static void clear_progress(void) {
    if (progress_shown) fputs("\r\033[K", stderr);
    progress_shown = false;
}

// Under the mutex. Short work shows nothing; long work shows ten times a second.
static void show_progress(const char *what, uint64_t done, uint64_t total) {
    static kin_time begun, shown;
    static const char *of;
    kin_time now = kin_clock_now();
    if (of != what) {
        of = what;
        begun = now;
    }
    if (done >= total) {
        clear_progress();
    } else if (kin_clock_ms(begun, now) > 400 && kin_clock_ms(shown, now) > 100) {
        shown = now;
        progress_shown = true;
        fprintf(stderr, "\r\033[K%s: %d %%", what, (int)(100 * done / total));
        fflush(stderr);
    }
}

void kin_app_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    (void)user;
    if (!isatty(STDERR_FILENO) || total == 0) return;
    pthread_mutex_lock(&progress_mutex);
    show_progress(what, done, total);
    pthread_mutex_unlock(&progress_mutex);
}

void kin_app_progress_clear(void) {
    pthread_mutex_lock(&progress_mutex);
    clear_progress();
    pthread_mutex_unlock(&progress_mutex);
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
    fprintf(stderr, "kin: there is no command '%s'. Try 'kin help'.\n", name);
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
    fprintf(stderr, "kin: environment variable KIN_VERBOSE: %s\n", err.text);
    return KIN_FAIL;
}

int main(int argc, char **argv) {
    spin_less(argv);
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    kin_log_set_sink(write_log, NULL);
    if (read_environment() != 0) return KIN_EXIT_USAGE;

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
