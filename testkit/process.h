// Other programs of a test: started with a log each, stopped, and looked at when they end by themselves.
//
// Owner and thread: the test's. On Linux they are killed when the test ends, however it ends.
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

enum { KIN_PROCESS_PATH = 512 };

typedef struct kin_process {
    pid_t pid;                  // 0: none runs
    int in, out;                // its standard input and output, where it has pipes; else -1
    int status;                 // as waitpid tells it, when it has ended
    char log[KIN_PROCESS_PATH]; // what it says is added to this file
} kin_process;

// argv, envp: end with NULL. has_pipes: else it reads nothing, and its output is in the log, too.
int kin_process_start(kin_process *p, char *const argv[], char *const envp[], bool has_pipes, kin_err *err);

void kin_process_signal(const kin_process *p, int sig);

// Whether it has ended.
bool kin_process_has_ended(kin_process *p);
// Waits for its end, at most so long. False: it still runs.
bool kin_process_wait(kin_process *p, int ms);
// Kills it and waits.
void kin_process_kill(kin_process *p);

// "exit status 1", "signal 11".
const char *kin_process_end(const kin_process *p, char *buf, size_t n);
