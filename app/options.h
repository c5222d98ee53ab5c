// Command-line options: a table describes them; this module fills in values from the environment and the command line, and prints
// help.
//
// Every option --some-name can also be given as the environment variable KIN_SOME_NAME, and as a line of a file of settings
// (app/settings.h). The command line wins over the environment, and this over the file.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum kin_option_kind {
    KIN_OPTION_END,     // closes a table
    KIN_OPTION_FLAG,    // bool: true if present; for values after '=' and in the environment see kin_option_flag
    KIN_OPTION_INT,     // int in [min, max]
    KIN_OPTION_THREADS, // int: 0, or at most the number of CPU threads that this machine runs at once; larger values are
                        // reduced, with a log line
    KIN_OPTION_FLOAT,   // float in [min, max]
    KIN_OPTION_SIZE,    // uint64_t bytes: 512M, 1.5G
    KIN_OPTION_STRING,  // const char *; see arg
    KIN_OPTION_ADDRESS, // const char *: a numeric IPv4 or IPv6 address
    KIN_OPTION_U64,     // uint64_t
    KIN_OPTION_NAME,    // not an option: a name that is only suggested for a misspelled option
    KIN_OPTION_NEEDS,   // not an option: the entries after it, up to the table's end, require the flag `name`, whose bool is
                        // `value`
} kin_option_kind;

typedef struct kin_option {
    kin_option_kind kind;
    const char *name; // "gpu-layers"
    char letter;      // 'm' for -m, or 0
    void *value;      // of the kind's C type; holds the default before parsing
    // Name of the value in help: "N", "FILE". Also a constraint: a STRING must not be empty, except for "TEXT"; "auto|even|FILE"
    // accepts those words, or any value in place of the word in capitals; "N|all" accepts an integer or that word.
    const char *arg;
    const char *help; // NULL: accepted, but not listed, as the older name of an option
    double min, max;
} kin_option;

#define KIN_MAX_TABLES 5

// A NULL-terminated list of tables: the command's own first, then shared ones.
typedef const kin_option *const kin_option_tables[KIN_MAX_TABLES];

// Parses argv [argc] (without program and command names). At most one word may be a non-option: *operand; operand is NULL if the
// command takes none. Fails with a sentence that names the option. Environment variables may be set without the flag that they
// need, because they apply to all commands.
int kin_options_parse(kin_option_tables tables, int argc, char **argv, const char **operand, kin_err *err);

// A value from a file of settings, for every command line that is parsed from now on.
typedef struct kin_option_preset {
    const char *name, *value; // as after "--"; "1" for a flag
    const char *file;         // for error messages
    int line;
    bool is_own; // meant for this command: refused if it does not fit; one for all commands is then ignored
} kin_option_preset;

// presets: [n], borrowed with their strings; later ones win. Those that name no option of the tables are ignored.
void kin_options_preset(const kin_option_preset *presets, int n);

// True if the value of the option `name` is that of a preset or of the environment: a word of the command line may replace it.
bool kin_options_is_preset(const char *name, const char *value);

// The same, but false if the preset is meant for this command.
bool kin_options_is_for_all(const char *name, const char *value);

// True if the words give the option `other` and not the option `name`, which excludes it: a value of `name` is then that of a
// preset or of the environment, and must be dropped. argv: [argc] words that kin_options_parse accepted.
bool kin_options_gives_way(kin_option_tables tables, int argc, char **argv, const char *name, const char *other);

// True if the tables have an option of this name.
bool kin_options_have(kin_option_tables tables, const char *name);

// Fails with a sentence if the tables' option does not take the text; NULL: a name without a value, which only flags may be.
int kin_options_check(kin_option_tables tables, const char *name, const char *text, kin_err *err);

// Returns the option that a word such as --name, --name=VALUE or -n stands for; NULL: none of the tables.
const kin_option *kin_options_find(kin_option_tables tables, const char *word);

// Returns the name of the option's environment variable: KIN_GPU_LAYERS for gpu-layers.
const char *kin_options_variable(const char *name, char *buf, size_t n);

// Accepts 1, true, yes, on; 0, false, no, off. Fails with a sentence for any other text.
int kin_option_flag(const char *text, bool *value, kin_err *err);

// Prints the tables' options to stdout.
void kin_options_help(kin_option_tables tables);
