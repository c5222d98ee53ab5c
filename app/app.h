// The kin program: what its commands share.
#pragma once

#include <stdatomic.h>

#include "app/options.h"
#include "engine/shard.h"

typedef struct kin_command {
    const char *name;
    const char *args;    // "[-m MODEL] -p PROMPT"
    const char *summary; // one line
    const char *help;    // a paragraph for `kin help NAME`, or NULL
    // argv: without program and command. Returns the exit status.
    int (*run)(int argc, char **argv);
    // Fills the tables for help; the values point to defaults.
    void (*help_options)(void);
} kin_command;

enum { KIN_EXIT_OK = 0, KIN_EXIT_FAILED = 1, KIN_EXIT_USAGE = 2, KIN_EXIT_INTERRUPTED = 130 };

extern const kin_command kin_command_run, kin_command_eval, kin_command_bench, kin_command_info, kin_command_cache,
    kin_command_join, kin_command_status, kin_command_plan, kin_command_profile;

// Set by Ctrl-C (a second one kills).
extern atomic_bool kin_app_stop;

// "kin: SENTENCE" on stderr; returns KIN_EXIT_FAILED. After Ctrl-C it says nothing and returns KIN_EXIT_INTERRUPTED.
int kin_app_fail(const kin_err *err);

// The same for a mistake on the command line, with a hint to the command's help; returns KIN_EXIT_USAGE.
int kin_app_usage(const char *command, const kin_err *err);

// A kin_progress: a line that overwrites itself, on a terminal only and only for work that takes a while. Any thread.
void kin_app_progress(void *user, const char *what, uint64_t done, uint64_t total);

// Removes a progress line, if one stands.
void kin_app_progress_clear(void);

// What streaming did, on stderr, if it did anything.
void kin_app_print_streaming(const kin_shard_stats *stats);
