// Command-line options: a table says what there is; this fills it in from the environment and the command line, and prints help.
//
// Every option --some-name can also be given as the environment variable KIN_SOME_NAME; the command line wins.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef enum kin_option_kind {
    KIN_OPTION_END,     // closes a table
    KIN_OPTION_FLAG,    // bool: set by being there; after an equals sign and in the environment see kin_option_flag
    KIN_OPTION_INT,     // int in [min, max]
    KIN_OPTION_THREADS, // int: 0, or as many CPU threads as this machine can run at once; more are cut to that, with a line in
                        // the log
    KIN_OPTION_FLOAT,   // float in [min, max]
    KIN_OPTION_SIZE,    // uint64_t bytes: 512M, 1.5G
    KIN_OPTION_STRING,  // const char *; see arg
    KIN_OPTION_ADDRESS, // const char *: a numeric IPv4 or IPv6 address
    KIN_OPTION_U64,     // uint64_t
    KIN_OPTION_NAME,    // no option of the command any more: a name that is suggested to who misspells it
    KIN_OPTION_NEEDS,   // no option: those after it, to the end of the table, need the flag `name`, whose bool `value` is
} kin_option_kind;

typedef struct kin_option {
    kin_option_kind kind;
    const char *name; // "gpu-layers"
    char letter;      // 'm' for -m, or 0
    void *value;      // of the kind's C type; holds the default beforehand
    // How help names the value: "N", "FILE". A STRING is not empty, but for "TEXT"; "auto|even|FILE" is one of these words, or
    // whatever a word in capitals stands for; "N|all" a whole number or that word.
    const char *arg;
    const char *help;
    double min, max;
} kin_option;

#define KIN_MAX_TABLES 5

// Several tables, one after the other: a command's own, then those it shares. NULL ends the list.
typedef const kin_option *const kin_option_tables[KIN_MAX_TABLES];

// Parses argv [argc] (without program and command). At most one word that is no option may stand among them: *operand, or NULL
// if the command takes none. Fails with a sentence that names the option. What the environment sets may lack the flag that it
// needs: it is for all commands.
int kin_options_parse(kin_option_tables tables, int argc, char **argv, const char **operand, kin_err *err);

// 1, true, yes, on; 0, false, no, off. Fails with a sentence for anything else.
int kin_option_flag(const char *text, bool *value, kin_err *err);

// Prints the tables' options to stdout.
void kin_options_help(kin_option_tables tables);
