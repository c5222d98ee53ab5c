// Processes of this machine: detects processes that are exiting, and finds this one's program.
//
// A killed process keeps its locks and ports until its memory is freed, which takes a while if it has much.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Writes the path of this program. Returns false if it is not known, or does not fit.
bool kin_process_own_path(char *buf, size_t n);

// True if that process was killed or is exiting, and still exists. False if the system does not tell.
bool kin_process_is_ending(int pid);

// Waits until the process has ended, at most timeout_ms. Returns false on timeout, true if the system does not tell.
bool kin_process_wait_end(int pid, int timeout_ms);
