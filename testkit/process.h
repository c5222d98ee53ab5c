// Other programs of a test: started with a log each, stopped, and checked when they end by themselves.
//
// Owner and thread: the test's. On Linux they are killed when the test ends, for whatever reason.
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

enum { KIN_PROCESS_PATH = 512 };

typedef struct kin_process {
    pid_t pid;                  // 0: not running
    int in, out;                // pipes to its standard input and output, if it has pipes; otherwise -1
    int status;                 // from waitpid, when it has ended
    char log[KIN_PROCESS_PATH]; // its output is appended to this file
} kin_process;

// argv, envp: end with NULL. has_pipes false: its input is empty, and its standard output goes to the log too.
int kin_process_start(kin_process *p, char *const argv[], char *const envp[], bool has_pipes, kin_err *err);

void kin_process_signal(const kin_process *p, int sig);

// True if it has ended.
bool kin_process_has_ended(kin_process *p);
// Waits for its end for at most ms. False if it still runs.
bool kin_process_wait(kin_process *p, int ms);
// Kills it and waits.
void kin_process_kill(kin_process *p);

// Formats its end as "exit status 1" or "signal 11".
const char *kin_process_end(const kin_process *p, char *buf, size_t n);
