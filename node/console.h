// How a node talks to the person in front of it: the program has one for its terminal (app/terminal.c), a test may have another.
//
// Sentences may quote names and texts of other machines; a console shows them escaped. Functions: any thread, but for `ask`.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/shard.h"

typedef struct kin_console {
    atomic_bool *stop;                                       // set: end what is being done
    void (*say)(const char *fmt, ...) KIN_PRINTF(1, 2);      // one sentence
    void (*status)(const char *line);                        // what is being waited for; it replaces the line before
    kin_progress progress;                                   // of work that takes a while; user is NULL
    void (*clear_progress)(void);                            // where it stands
    void (*new_code)(const char *code);                      // this machine has made a cluster; the code that lets others join
    bool (*can_ask)(void);                                   // somebody can answer a question
    bool (*ask)(const char *question, char *line, size_t n); // false: no answer
} kin_console;
