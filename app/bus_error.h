// Bus errors: a file that is mapped was cut, or its disk failed, and a thread touched what is not there any more.
//
// Missing pages of a model's file become zeros (sys/file.h), and whoever computes from it notices. Of other files: there is no
// way back into the middle of a matrix product, so the process says which file it was and ends with status 1. In a ring only this
// device leaves.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// From here on. Other bus errors (a broken program) end it as without this.
void kin_bus_error_watch(void);

// The file that is mapped at an address, as /proc/self/maps, open for reading at its beginning, has it. False: none is. Control
// characters in the name become '?'. Calls nothing that a signal handler may not.
bool kin_bus_error_find(int maps_fd, uintptr_t at, char *path, size_t n);
