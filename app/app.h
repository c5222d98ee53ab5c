// The kin program: what its commands share.
#pragma once

#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>

#include "app/options.h"
#include "node/console.h"

typedef struct kin_command {
    const char *name;
    const char *args;    // "[-m MODEL] -p PROMPT"
    const char *summary; // one line
    const char *help;    // a paragraph for `kin help NAME`, or NULL
    // argv: without program and command. Returns the exit status.
    int (*run)(int argc, char **argv);
    // Calls `use` with the command's tables; their values point to defaults, for the call.
    void (*options)(void (*use)(kin_option_tables tables, void *user), void *user);
    const char *operands; // words that may stand for what is no option, for completions; NULL: names of files
} kin_command;

enum { KIN_EXIT_OK = 0, KIN_EXIT_FAILED = 1, KIN_EXIT_USAGE = 2, KIN_EXIT_INTERRUPTED = 130 };

extern const kin_command *const kin_commands[]; // in the order of help; NULL ends them

extern const kin_command kin_command_run, kin_command_eval, kin_command_bench, kin_command_info, kin_command_cache,
    kin_command_join, kin_command_status, kin_command_plan, kin_command_profile, kin_command_demo, kin_command_code,
    kin_command_serve, kin_command_models, kin_command_chat, kin_command_doctor;

// How the program was called: "build/kin".
extern const char *kin_app_name;

// Set by Ctrl-C, SIGTERM and SIGHUP (a second one kills), and by what else ends the work early.
extern atomic_bool kin_app_stop;
// Set by these signals only.
extern atomic_bool kin_app_interrupted;
void kin_app_catch_interrupts(void);

// From now on of the log only warnings are said, if not KIN_VERBOSE: the terminal is a conversation's.
void kin_app_be_quiet(void);

// What is said may quote names and texts of files and of other machines: it is shown escaped (pure/text/escape.h), on one line.

// "kin: SENTENCE" on stderr. Any thread, as the next two.
void kin_app_say(const char *fmt, ...) KIN_PRINTF(1, 2);

// "kin: SENTENCE" on stderr; returns KIN_EXIT_FAILED. After Ctrl-C it says nothing and returns KIN_EXIT_INTERRUPTED.
int kin_app_fail(const kin_err *err);

// The same for a mistake on the command line, with a hint to the command's help; returns KIN_EXIT_USAGE.
int kin_app_usage(const char *command, const kin_err *err);

// Whether a stream is a terminal that knows escape sequences: TERM is set, and not "dumb".
bool kin_app_takes_escapes(FILE *stream);

// A kin_progress: a line that overwrites itself, on a terminal only and only for work that takes a while. Any thread.
void kin_app_progress(void *user, const char *what, uint64_t done, uint64_t total);

// What is waited for: on a terminal a line that overwrites itself; elsewhere a line, but none for figures that have moved only
// (what follows "; ", or ": " and a digit).
void kin_app_status(const char *line);

// What is called around a sentence on stderr, in the thread that says it: it makes room on the terminal (begins), and puts there
// again what stood there. NULL: nothing does.
void kin_app_set_frame(void (*frame)(bool begins));

// Removes a progress line, if one stands.
void kin_app_progress_clear(void);

// Text to stdout, at once. On a terminal its control characters are escaped, but for newlines and tabs; elsewhere all bytes are
// as they are. Fails if they cannot be written.
int kin_app_write(const char *text, size_t n, kin_err *err);

// The terminal, for what is below this layer.
extern const kin_console kin_app_console;

// A command's answer on stdout, for programs; takes the reference. digits: of numbers, 0: as many as there are. On a terminal
// only ASCII: what other machines call themselves does not act there.
void kin_app_write_json(json_t *json, int digits);

// Gives 0, 1 and 2 a meaning where one of them is closed: the first file to be opened would be taken for it. Writing to a stdout
// that was closed fails.
void kin_app_open_stdio(void);

// At the end: `status`, or KIN_EXIT_FAILED with a sentence if not all that was written to stdout arrived.
int kin_app_close_stdout(int status);

// What streaming did, on stderr, if it did anything.
void kin_app_print_streaming(const kin_shard_stats *stats);
