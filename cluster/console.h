// A node's interface to its user: the program has one for its terminal (app/terminal/terminal.c); a test may have another.
//
// Sentences may quote names and texts of other machines; a console shows them escaped. Functions: any thread, except `ask`.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/shard.h"

typedef struct kin_console {
    atomic_bool *stop;                                       // set: stop the current work
    void (*log)(const char *fmt, ...) KIN_PRINTF(1, 2);      // shows one sentence
    void (*status)(const char *line);                        // shows what is being waited for; replaces the previous line
    kin_progress progress;                                   // of long work; user is NULL
    void (*clear_progress)(void);                            // removes the progress line
    void (*new_code)(const char *code);                      // this machine has created a cluster; the code lets others join
    bool (*can_ask)(void);                                   // a user can answer questions
    bool (*ask)(const char *question, char *line, size_t n); // false: no answer
} kin_console;
