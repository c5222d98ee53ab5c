// Bus errors: a mapped file was truncated or its disk failed, and a thread touched a missing page.
//
// Missing pages of a model file are replaced by zeros (sys/file.h), and the computing code detects that. For other files there is
// no way back into the middle of a matrix product, so the process names the file and exits with status 1. In a ring only this
// device is lost.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Installs the handler. Other bus errors (a bug in the program) still kill the process.
void kin_bus_error_watch(void);

// Finds the file that is mapped at address `at`. maps_fd is /proc/self/maps, open at its beginning. Returns false if no file is
// mapped there. Control characters in the name become '?'. Async-signal-safe.
bool kin_bus_error_find(int maps_fd, uintptr_t at, char *path, size_t n);
