// Declarations that the commands of the kin program share.
#pragma once

#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>

#include "app/options.h"
#include "cluster/console.h"

typedef struct kin_command {
    const char *name;
    const char *args;    // "[-m MODEL] -p PROMPT"
    const char *summary; // one line
    const char *help;    // a paragraph for `kin help NAME`, or NULL
    // argv: without program and command names. Returns the exit status.
    int (*run)(int argc, char **argv);
    // Calls `use` with the command's option tables. Their values point to defaults that are valid during the call only.
    void (*options)(void (*use)(kin_option_tables tables, void *user), void *user);
    // Checks the words that `run` would get, as far as that is possible without running it. NULL: not needed
    int (*check)(int argc, char **argv, kin_err *err);
    const char *operands; // completion candidates for operands, separated by spaces; NULL: file names
} kin_command;

enum { KIN_EXIT_OK = 0, KIN_EXIT_FAILED = 1, KIN_EXIT_USAGE = 2, KIN_EXIT_INTERRUPTED = 130 };

extern const kin_command *const kin_commands[]; // in the order of `kin help`; NULL-terminated

extern const kin_command kin_command_run, kin_command_eval, kin_command_bench, kin_command_info, kin_command_cache,
    kin_command_join, kin_command_status, kin_command_plan, kin_command_profile, kin_command_demo, kin_command_code,
    kin_command_serve, kin_command_models, kin_command_chat, kin_command_doctor, kin_command_pull, kin_command_list,
    kin_command_show, kin_command_rm, kin_command_service, kin_command_launch, kin_command_config;

// argv[0]: "build/kin".
extern const char *kin_app_name;

// Set by Ctrl-C, SIGTERM and SIGHUP (a second signal kills the process), and by anything else that ends the work early.
extern atomic_bool kin_app_stop;
// Set only by these signals.
extern atomic_bool kin_app_interrupted;
void kin_app_catch_interrupts(void);

// Suppresses log lines below warnings, unless KIN_VERBOSE is set: the terminal now shows a conversation.
void kin_app_be_quiet(void);

// Messages may quote names and texts from files and other machines: they are escaped (pure/text/escape.h) and fit on one line.

// Prints "kin: SENTENCE" to stderr. Any thread may call it and the next two functions, and kin_app_status.
void kin_app_log(const char *fmt, ...) KIN_PRINTF(1, 2);

// Prints "kin: SENTENCE" to stderr and returns KIN_EXIT_FAILED. After Ctrl-C it prints nothing and returns KIN_EXIT_INTERRUPTED.
int kin_app_fail(const kin_err *err);

// Reports a mistake on the command line the same way, with a hint to the command's help; returns KIN_EXIT_USAGE.
int kin_app_usage(const char *command, const kin_err *err);

// True if the stream is a terminal that understands escape sequences: TERM is set and not "dumb".
bool kin_app_accepts_escapes(FILE *stream);

// A kin_progress: redraws one progress line, only on a terminal and only for work that takes a while. Any thread.
void kin_app_progress(void *user, const char *what, uint64_t done, uint64_t total);

// Shows what the program is waiting for. A terminal gets a line that is overwritten. Elsewhere each new line is printed, unless
// only its figures changed (the text after "; ", or after ": " and a digit).
void kin_app_status(const char *line);

// Sets a function that is called before and after each sentence on stderr, in the thread that prints it: frame(true) makes room
// on the terminal, frame(false) restores what was there. NULL: none.
void kin_app_set_frame(void (*frame)(bool begins));

// Removes the progress line, if one is shown.
void kin_app_progress_clear(void);

// Writes text to stdout and flushes it. On a terminal control characters other than newline and tab are escaped; elsewhere all
// bytes are written unchanged. Fails if the write fails.
int kin_app_write(const char *text, size_t n, kin_err *err);

// The console for the layers below app/.
extern const kin_console kin_app_console;

// Prints a command's JSON result to stdout and takes over the reference. digits: significant digits of numbers; 0: as many as
// needed. On a terminal the output is ASCII only, so that names from other machines cannot control it.
void kin_app_write_json(json_t *json, int digits);

// Opens file descriptors 0, 1 and 2 if they are closed: otherwise the first opened file would get one of their numbers. Writing
// to a stdout that was closed still fails.
void kin_app_open_stdio(void);

// Call at the end. Returns `status`, or KIN_EXIT_FAILED with a message if output to stdout was lost.
int kin_app_close_stdout(int status);

// Prints statistics of weight streaming to stderr, if anything was streamed.
void kin_app_print_streaming(const kin_shard_stats *stats);
